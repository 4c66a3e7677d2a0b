"""How hits are shown to a person."""

import click

from retrieval.console import hits_table
from retrieval.ranking import Hit


def shown(**fields: object) -> list[str]:
    hit = Hit(**({"doc_id": "src/a.py", "rank": 1, "score": 0.5, "retrieval_score": 0.5} | fields))  # type: ignore[arg-type]
    return [click.unstyle(line) for line in hits_table("query", [hit])]


def test_code_keeps_its_lines_and_indentation() -> None:
    text = "    @cached\n    def merge(self):\n\n        if x:\n\t\t\treturn '\x1b[31m'\n"
    lines = shown(title="a.py > A.merge", text=text, section="A.merge", kind="method", start_line=7, end_line=11)
    assert lines == [
        "  1  0.5000  src/a.py:7-11  a.py > A.merge",
        "             @cached",
        "             def merge(self):",
        "                 if x:",
        "                     return ' [31m'",
    ]


def test_long_code_is_shortened_by_lines() -> None:
    text = "\n".join(["def f():", *(f"    x{n} = {'y' * 200}" for n in range(30))])
    head, *lines = shown(text=text, section="f", kind="function", start_line=1, end_line=31)
    assert head.endswith("src/a.py:1-31")
    assert [line.strip()[:3] for line in lines] == ["def", *(f"x{n} " for n in range(7)), "…"]
    assert max(map(len, lines)) == 13 + 100


def test_prose_is_wrapped_whatever_lines_it_has() -> None:
    lines = shown(text="one\n\ntwo\nthree", section="Guide > Install", kind="section", start_line=3, end_line=6)
    assert lines == ["  1  0.5000  src/a.py:3-6", "             one two three"]
    assert shown(text="one\ntwo", doc_id="d") == ["  1  0.5000  d", "             one two"]

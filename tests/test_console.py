"""How hits are shown to a person."""

import json
import re
from dataclasses import asdict

import click

from retrieval.console import hits_json, hits_table
from retrieval.ranking import Hit, Span


def a_hit(**fields: object) -> Hit:
    return Hit(**({"doc_id": "src/a.py", "rank": 1, "score": 0.5, "retrieval_score": 0.5} | fields))  # type: ignore[arg-type]


def shown(**fields: object) -> list[str]:
    return [click.unstyle(line) for line in hits_table("query", [a_hit(**fields)])]


def highlighted(text: str, part: str, **fields: object) -> tuple[list[str], str]:
    """The lines with `part` of the text highlighted, and what is in bold in them, a line of it each."""
    start = 1000 + text.index(part)
    span = Span(start=start, end=start + len(part), score=1.0)
    _, *lines = hits_table("query", [a_hit(text=text, start=1000, **fields)], spans=[span])
    bold = re.findall(r"\x1b\[1m(.*?)\x1b\[0m", "\n".join(lines))
    return [click.unstyle(line).strip() for line in lines], "\n".join(bold)


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


def test_the_highlighted_sentence_is_bold_also_across_lines() -> None:
    text = "Tides. " + "The moon pulls the water. " * 3 + "This is it, \n and it goes on for more than a line, I think."
    lines, bold = highlighted(text, text[text.index("This") :])
    assert " ".join(lines) == " ".join(text.split())
    assert len(lines) == 2 and bold.replace("\n", " ") == "This is it, and it goes on for more than a line, I think."


def test_a_highlighted_sentence_far_behind_is_shown() -> None:
    text = "word " * 200 + "This is it. " + "word " * 200
    lines, bold = highlighted(text, "This is it.")
    assert lines[0].startswith("…This is it. word word") and lines[-1].endswith("…") and bold == "This is it."
    assert len(" ".join(lines)) <= 242
    _, bold = highlighted(text, "word " * 100)
    assert bold.replace("\n", " ").startswith("word word")


def test_highlighted_lines_of_code_are_shown_below_the_signature() -> None:
    text = "\n".join(["    def f(self):", *(f"        x{n} = {n}" for n in range(30)), "", "        return x"])
    lines, bold = highlighted(text, "        x20 = 20\n        x21 = 21", kind="method")
    assert lines == ["def f(self):", "…", *(f"x{n} = {n}" for n in range(20, 27)), "…"]
    assert [line.strip() for line in bold.split("\n")] == ["x20 = 20", "x21 = 21"]
    lines, bold = highlighted(text, "return x", kind="method")
    assert lines == ["def f(self):", "…", "return x"] and bold.strip() == "return x"
    lines, bold = highlighted(text, "x0 = 0", kind="method")
    assert lines[:2] == ["def f(self):", "x0 = 0"] and bold.strip() == "x0 = 0"


def found(query: str, text: str, **fields: object) -> list[str]:
    """The lines below the hit's first, without any highlight; nothing in them is bold."""
    _, *lines = hits_table(query, [a_hit(text=text, **fields)])
    assert "\x1b[1m" not in "\n".join(lines)
    return [click.unstyle(line).strip() for line in lines]


def test_a_long_passage_is_shown_from_the_sentence_that_holds_the_querys_terms() -> None:
    text = "Nothing of interest is said here. " * 20 + "The moon pulls the water. " + "And so it goes on. " * 20
    for start in (0, 500):
        lines = found("moon and water", text, start=start)
        assert lines[0].startswith("…The moon pulls the water. And so") and lines[-1].endswith("…")
    early = text[text.index("The moon") - 34 :]
    assert found("moon and water", early)[0].startswith("Nothing of interest is said here. The moon pulls")
    for query in ("zebra", ""):  # vectors have no text
        assert found(query, text)[0].startswith("Nothing of interest")


def test_long_code_is_shown_from_the_lines_that_hold_the_querys_terms_below_its_first() -> None:
    text = "\n".join(["def f(self):", *(f"    x{n} = {n}" for n in range(30)), "", "    return moon(water)"])
    assert found("moon water", text, kind="function") == ["def f(self):", "…", "return moon(water)"]
    assert found("f", text, kind="function")[:3] == ["def f(self):", "x0 = 0", "x1 = 1"]


def test_further_passages_are_named_below_a_hit_a_line_each() -> None:
    spans = [
        Span(start=0, end=9, score=0.4, text="def init():\n", section="KMeans.init", start_line=12, end_line=14),
        Span(start=10, end=19, score=0.3, text="A sentence\nof \x1b[31m two lines. " * 9, section=""),
        Span(start=20, end=29, score=0.2, text="x", section="Guide > Install"),
    ]
    lines = shown(text="one", spans=spans)
    assert lines[2] == "             also lines 12-14  KMeans.init"
    assert lines[3].startswith("             also A sentence of  [31m two lines. A sentence") and lines[3].endswith("…")
    assert len(lines[3]) <= 13 + 100
    assert lines[4:] == ["             also Guide > Install"]


def test_json_has_highlights_where_they_were_asked_for() -> None:
    hits = [a_hit(text="one. two."), a_hit(text="")]
    plain, asked = (
        json.loads(hits_json("1", "q", hits, spans=spans))["hits"]
        for spans in (None, [Span(start=5, end=9, score=1.0), None])
    )
    assert all("highlight" not in hit for hit in plain)
    assert [hit["highlight"] for hit in asked] == [asdict(Span(start=5, end=9, score=1.0)), None]

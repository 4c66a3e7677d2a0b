"""Parts of documents and what asks for them: titles, headings, docstrings; and what is left out."""

import time

import pytest

from retrieval.structure import DOCSTRING, HEADING, TITLE, parts_of, source_of

LONG = "It is moved away at midnight and an empty one takes its place at once."
CODE = '''
import os


def rotate(path, count):
    """Rename a file and keep a few old ones."""
    for number in range(count):
        os.rename(f"{path}.{number}", f"{path}.{number + 1}")
    return path


class Log:
    def first(self):
        """Short one."""
        a = 1
        b = a
        return b

    def bare(self):
        a = 1
        b = a
        return a + b

    def tiny(self):
        """Say nothing at all here."""
        return 1

    def leaks(self):
        """Open the file."""
        a = "open the file"
        b = a
        return b
'''


def pairs(*document):
    return [(part.kind, part.query, part.text) for part in parts_of(*document) if part.query]


def reasons(*document):
    return [part.no_query for part in parts_of(*document) if not part.left_out]


def test_a_title_asks_for_the_text():
    assert pairs("d1", "Rotating the logs", LONG) == [(TITLE, "Rotating the logs", LONG)]
    assert parts_of("d1", "", LONG)[0].no_query == "neither title nor heading"
    assert parts_of("d1", "Rotating the logs", "")[0].left_out == "no text"


def test_the_name_of_a_file_is_no_title():
    text = f"{LONG}\n\n# Sizes\n\n{LONG} Ever."
    assert pairs("guide/rotate-the-logs.md", "rotate-the-logs.md", text) == []
    assert pairs("guide/rotate-the-logs.md", "rotate-the-logs", text) == [
        (TITLE, "rotate-the-logs", LONG),
        (HEADING, "rotate-the-logs Sizes", f"{LONG} Ever."),
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"Rotating the logs\n{LONG}",
        f"Rotating the logs. {LONG}",
        f"*Rotating  the Logs* {LONG}",
        f"ROTATING THE LOGS - {LONG}",
        f"# Rotating the logs\n\n{LONG}",
        f"Rotating the logs\n=================\n\n{LONG}",
    ],
)
def test_a_title_that_is_repeated_at_the_beginning_is_cut_off(text):
    assert pairs("d1", "Rotating the logs", text) == [(TITLE, "Rotating the logs", LONG)]


@pytest.mark.parametrize("text", [f"Rotating the logs is easy. {LONG}", f"{LONG} That is (rotating the LOGS)."])
def test_a_query_in_its_text_is_none(text):
    assert reasons("d1", "Rotating the logs", text) == ["query occurs in its text"]
    assert reasons("d1", "", f"# Rotating the logs\n\n{text}") == ["query occurs in its text"]


def test_headings_ask_for_their_sections():
    text = f"Why {LONG}\n\n# 2. Rotating `the` [logs](x.md)\n\n{LONG}\n\n## Notes\n\nN {LONG}\n\n## Sizes\n\nS {LONG}\n"
    assert pairs("a/b.md", "Logs of the server", text) == [
        (TITLE, "Logs of the server", f"Why {LONG}"),
        (HEADING, "Rotating the logs", LONG),
        (HEADING, "Rotating the logs Sizes", f"S {LONG}"),
    ]
    found = parts_of("a/b.md", "Logs of the server", text)
    assert [part.doc_id for part in found] == [f"a/b.md#{number}" for number in range(4)]
    assert found[2].no_query == "heading that says nothing of its section" and found[2].text == f"N {LONG}"
    assert found[3].heading == " sizes " and found[1].heading == ""
    assert {source_of(part.doc_id) for part in found} == {"a/b.md"}


def test_headings_of_restructuredtext():
    text = f"Logs\n####\n\nRotating the logs\n*****************\n\n{LONG}\n\nSizes\n*****\n\n{LONG} Ever.\n"
    assert [query for _, query, _ in pairs("a.rst", "", text)] == ["Rotating the logs"]
    assert reasons("a.rst", "", text) == ["", "fewer than 3 words"]  # `Logs Sizes`
    assert [query for _, query, _ in pairs("a.rst", "Of servers", text)][1] == "Of servers Logs Sizes"


def test_what_is_too_short_or_too_long():
    assert reasons("d", "Rotating logs", LONG) == ["fewer than 3 words"]
    assert reasons("d", "word " * 61, LONG) == ["more than 60 words"]
    assert reasons("d", "Rotating the logs", "See the manual.") == ["text of fewer than 8 words"]
    assert pairs("d", "自転車で行く", "図書館は月曜日に休みで火曜日から日曜日まで開いています。")


@pytest.mark.parametrize("doc_id", ["src/log.py", "function-17"])
def test_docstrings_ask_for_code(doc_id):
    (pair,) = pairs(doc_id, "a title that asks for nothing", CODE)
    assert pair[:2] == (DOCSTRING, "Rename a file and keep a few old ones.")
    assert pair[2].startswith("def rotate") and "Rename" not in pair[2]
    found = {part.doc_id.rpartition("#")[2]: part for part in parts_of(doc_id, "", CODE)}
    assert {name: part.no_query for name, part in found.items() if part.no_query} == {
        "Log.first": "fewer than 3 words",
        "Log.bare": "no docstring",
        "Log.leaks": "query occurs in its text",
    }
    assert found["Log.tiny"].left_out.startswith("trivial")


def test_comments_of_code_are_no_headings():
    shell = f"\n# Rotating the old logs\n\n{LONG}\n"
    assert pairs("run.sh", "", shell) == [] and pairs("run", "", shell) != []
    assert pairs("broken.py", "", f"{shell}def (") == []
    assert pairs("bare.py", "Moves of the night", shell) == [(TITLE, "Moves of the night", shell.strip())]


def test_equal_words_and_equal_code_have_one_mark():
    one, two = (parts_of("d", "", text)[0] for text in (LONG, LONG.upper().replace(" ", "\n")))
    assert one.mark == two.mark != parts_of("d", "", "else")[0].mark
    first, second = (parts_of(f"{name}.py", "", CODE)[0] for name in "ab")
    assert first.mark == second.mark and first.doc_id != second.doc_id


def test_ids_fit_a_run():
    (part,) = parts_of("a b#c\t.md", "", LONG)
    assert part.doc_id == "a%20b%23c%09.md#0" and source_of(part.doc_id) == "a%20b%23c%09.md"


@pytest.mark.parametrize("sign", ["[", "[a](", " x" + " " * 50, "{#", "!["])
def test_a_title_of_any_signs_and_length_takes_no_time(sign: str) -> None:
    started = time.process_time()
    parts_of("a.md", f"a{sign * 100_000}b", "The tide comes in twice a day, and goes out as often.")
    assert time.process_time() - started < 5

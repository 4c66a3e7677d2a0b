"""What a file is by its name; the languages agree with those of the grammars and of mining."""

import pytest

from retrieval import suffixes
from retrieval.eval.mining import LANGUAGES
from retrieval.grammars import grammar_of
from retrieval.suffixes import CODE_SUFFIXES, PROSE_SUFFIXES, is_text_name, language_of


def test_no_suffix_is_of_two_languages():
    entries = [entry.split() for table in (suffixes._CODE, suffixes._PROSE) for entry in table.split("|")]
    names, listed = [entry[0] for entry in entries], [suffix for entry in entries for suffix in entry[1:]]
    assert len(set(listed)) == len(listed) and len(set(names)) == len(names)
    assert all(suffix.startswith(".") and suffix.islower() for suffix in listed)


def test_languages_are_those_of_grammars_and_of_mining():
    names = {"C++": "cpp", "C#": "csharp"}
    with_grammar = {suffix: grammar for suffix in CODE_SUFFIXES if (grammar := grammar_of(suffix))}
    assert len(with_grammar) > 25
    for suffix, grammar in with_grammar.items():
        assert language_of(f"a{suffix}") in (names.get(grammar.name, grammar.name.lower()), "cuda")
    for suffix, language in LANGUAGES.items():
        assert language_of(f"a{suffix}") == language.name


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("src/a.py", "python"), ("A.PYI", "python"), ("a.test.tsx", "typescript"), ("x.h", "cpp"), ("a.sh", "bash"),
        ("README.md", "markdown"), ("a.rst", "rst"), ("a.htm", "html"), ("n.ipynb", "jupyter"),
        ("Makefile", "makefile"), ("sub/Dockerfile", "dockerfile"), ("a.txt", None), ("LICENSE", None), ("a.pdf", None),
        ("go", None), ("a.png", None),
    ],
)  # fmt: skip
def test_the_language_of_a_file_is_that_of_its_name(name, language):
    assert language_of(name) == language


def test_what_may_be_text_has_a_known_suffix_or_none():
    assert all(is_text_name(f"a{suffix.upper()}") for suffix in CODE_SUFFIXES | PROSE_SUFFIXES)
    assert is_text_name("LICENSE") and is_text_name("a.pdf")
    assert not is_text_name("a.png") and not is_text_name("a.jsonl")

"""Where sentences begin and end, in prose of any language."""

from __future__ import annotations

import re

_CLOSING = "\"'”’»)\\]」』）】"
_BORDER = re.compile(
    rf"(?<![.!?…])(?P<stop>[.!?…]+[{_CLOSING}]*)(?=\s)"
    rf"|[。！？｡؟।॥]+[{_CLOSING}]*"  # needs no blank behind it
    r"|\n\s*\n"
    r"|\n(?=\s*(?:[-*+•·#>]+|\d{1,3}[.)])\s)"  # an item of a list, a heading
)
_SHORTENED = (
    "al approx ca cf ch co corp dept dr e.g ed eds eq eqs esp etc fig figs i.e inc jr ltd mr mrs ms no nos p pp prof "
    "ref refs resp sec sr st tab vol vs"
)
_ABBREVIATIONS = frozenset(_SHORTENED.split())
_LONGEST_WORD = 50  # characters that are looked at before a full stop, and behind it
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘]*$")


def sentences(text: str) -> list[tuple[int, int]]:
    """Find the sentences of a text.

    Args:
        text: Prose. A single line break ends no sentence, a blank line does.

    Returns:
        Start and end in characters of each, ends exclusive, in order; together they cover all that is not blank.
    """
    found: list[tuple[int, int]] = []
    start = 0
    for border in _BORDER.finditer(text):
        if border["stop"] and not _ends(text, start, border):
            continue
        _append(found, text, start, border.end())
        start = border.end()
    _append(found, text, start, len(text))
    return found


def _append(found: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    part = text[start:end]
    if part.strip():
        found.append((start + len(part) - len(part.lstrip()), start + len(part.rstrip())))


def _ends(text: str, start: int, border: re.Match[str]) -> bool:
    """Whether a full stop with a blank behind it ends a sentence: no abbreviation, initial or number of an item."""
    following = text[border.end() : border.end() + _LONGEST_WORD].lstrip()[:1]
    if following.islower():
        return False
    if border["stop"] != ".":
        return True
    before = text[max(start, border.start() - _LONGEST_WORD) : border.start()].lstrip()
    last = _LAST_WORD.search(before)
    word = last[0] if last else ""
    initial = len(word) == 1 and word.isupper() and word != "I"
    return not (initial or word.lower() in _ABBREVIATIONS or (word == before and word.isdigit()))

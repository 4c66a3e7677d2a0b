"""Where long texts are cut into windows, and what passages look like once encoded. Arithmetic only."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class PassageVectors:
    """Encoded passages, in the order of the documents they come from.

    Attributes:
        parent: (m,) int64, row of the document among those given.
        start: (m,) int64, first character of the passage in the document's text.
        end: (m,) int64, character after its last one.
        vectors: (m, dim) float32.
        unit: (m,) int64, number of the document's unit that the passage lies in, -1 for a document that is not cut
            into units; None where there are no units at all.
    """

    parent: np.ndarray
    start: np.ndarray
    end: np.ndarray
    vectors: np.ndarray
    unit: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class Window:
    """A run of a text's tokens, and the characters that it covers; ends are exclusive."""

    start_token: int
    end_token: int
    start_char: int
    end_char: int


def is_blank(text: str) -> bool:
    """Whether a text holds nothing to search: no letter, number, punctuation, symbol or mark."""
    return not any(unicodedata.category(character)[0] in "LNPSM" for character in text)


def windows(text: str, offsets: np.ndarray, *, limit: int, overlap: int) -> list[Window]:
    """Cut a text into overlapping windows at word borders.

    A window starts and ends where a word begins, as long as that costs less than half of its length; failing
    that at a character, failing that at any token. Every token lies in some window. The last window reaches
    back to be as long as the others, so that no tail is left with little context.

    Args:
        text: The text.
        offsets: (n, 2) int64, start and end of each token in characters of ``text``.
        limit: Tokens a window may hold, at least 1.
        overlap: Tokens that a window shares with the one before, at least, where word borders allow;
            more than half of the limit counts as half.

    Returns:
        Windows with growing starts and growing ends; none for a text without tokens.

    Raises:
        ValueError: The limit or the overlap is out of range.
    """
    if limit < 1 or overlap < 0:
        raise ValueError(f"windows need limit >= 1 and overlap >= 0, got {limit} and {overlap}")
    count, overlap = len(offsets), min(overlap, limit // 2)
    found: list[Window] = []
    start = 0
    while start < count:
        end = count
        if count - start > limit:
            end = _cut(text, offsets, start + limit // 2 + 1, start + limit)
        found.append(_window(text, offsets, start, end))
        if end == count:
            break
        latest = end - overlap
        following = _cut(text, offsets, start + (latest - start) // 2 + 1, latest)
        if count - following <= limit:  # the last one: as early as it can start and still reach the end
            following = _first_cut(text, offsets, max(start + 1, count - limit), following)
        start = following
    return found


def _window(text: str, offsets: np.ndarray, start: int, end: int) -> Window:
    """The window of some tokens, without the blanks at its ends, which some tokenizers count as or into tokens."""
    first, last = int(offsets[start][0]), int(offsets[end - 1][1])
    while first < last and text[first].isspace():
        first += 1
    while first < last and text[last - 1].isspace():
        last -= 1
    return Window(start_token=start, end_token=end, start_char=first, end_char=max(first, last))


def _begins_word(text: str, offsets: np.ndarray, token: int) -> bool:
    if token >= len(offsets):
        return True
    at = int(offsets[token][0])
    return at == 0 or text[at - 1].isspace() or text[at : at + 1].isspace()


def _begins_character(offsets: np.ndarray, token: int) -> bool:
    return token >= len(offsets) or bool(offsets[token][0] >= offsets[token - 1][1])


def _cut(text: str, offsets: np.ndarray, lowest: int, highest: int) -> int:
    """The last good place to cut among tokens ``lowest`` to ``highest``, both included."""
    return _search(text, offsets, range(highest, lowest - 1, -1), highest)


def _first_cut(text: str, offsets: np.ndarray, lowest: int, highest: int) -> int:
    """The first good place to cut among tokens ``lowest`` to ``highest``, both included."""
    return _search(text, offsets, range(lowest, highest + 1), highest)


def _search(text: str, offsets: np.ndarray, tokens: range, otherwise: int) -> int:
    tests: list[Callable[[int], bool]] = [
        lambda token: _begins_word(text, offsets, token),
        lambda token: _begins_character(offsets, token),
    ]
    for test in tests:
        for token in tokens:
            if test(token):
                return token
    return otherwise


def joined(title: str, text: str) -> str:
    """Return what a model reads of a document: the title in front of the text, a space between."""
    return f"{title.strip()} {text}".strip() if title.strip() else text

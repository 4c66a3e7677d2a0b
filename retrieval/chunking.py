"""Where long texts are cut into windows, and what passages look like once encoded. Arithmetic only."""

import unicodedata
from dataclasses import dataclass

import numpy as np

CHARACTER, WORD, SENTENCE, LINE, PARAGRAPH = range(1, 6)  # what may end at a place, the better the larger

_AROUND = 200  # characters of a text that are looked at on both sides of a place
_CJK_STOPS = tuple("。！？｡．")
_STOPS = (*".!?…؟।", *_CJK_STOPS)
_CLOSING = "\"'”’»)]}」』）】*_`"


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
    """Cut a text into overlapping windows, at the borders of paragraphs, lines, sentences or words.

    A window starts where a word begins. It ends where a paragraph (a blank line), failing that a line, a sentence, a
    word ends. All that as long as it costs less than half of its length; failing that at a character, failing that at
    any token. Every token lies in some window. The last window reaches back to be as long as the others, so that no
    tail is left with little context.

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
            end = _last(text, offsets, range(start + limit // 2 + 1, start + limit + 1), PARAGRAPH)
        found.append(_window(text, offsets, start, end))
        if end == count:
            break
        latest = end - overlap
        following = _last(text, offsets, range(start + (latest - start) // 2 + 1, latest + 1), WORD)
        if count - following <= limit:  # the last one: as early as it can start and still reach the end
            following = _last(text, offsets, range(following, max(start + 1, count - limit) - 1, -1), WORD)
        start = following
    return found


def _window(text: str, offsets: np.ndarray, start: int, end: int) -> Window:
    """The window of some tokens, without the blanks that some tokenizers count into a word's token."""
    first, last = int(offsets[start][0]), int(offsets[end - 1][1])
    while first < last and text[first].isspace():
        first += 1
    return Window(start_token=start, end_token=end, start_char=first, end_char=max(first, last))


def _last(text: str, offsets: np.ndarray, tokens: range, most: int) -> int:
    """The last of some tokens with the best border before it; what is better than `most` is as good."""
    best, found = tokens[-1], -1
    for token in reversed(tokens):
        border = min(_border(text, offsets, token), most)
        if border > found:
            best, found = token, border
        if border == most:  # the usual case after a few tokens
            break
    return best


def _border(text: str, offsets: np.ndarray, token: int) -> int:
    """What ends before a token: a paragraph, a line, a sentence, a word, a character, or nothing (0)."""
    if token >= len(offsets):
        return PARAGRAPH
    at = int(offsets[token][0])
    before, after = text[max(0, at - _AROUND) : at], text[at : at + _AROUND]
    seen = before.rstrip()
    blanks = before[len(seen) :] + after[: len(after) - len(after.lstrip())]
    if blanks or at == 0:
        if breaks := blanks.count("\n"):
            return PARAGRAPH if breaks > 1 else LINE
        return SENTENCE if seen.rstrip(_CLOSING)[-1:] in _STOPS else WORD
    if seen.rstrip(_CLOSING)[-1:] in _CJK_STOPS:
        return SENTENCE
    return CHARACTER if offsets[token][0] >= offsets[token - 1][1] else 0


def joined(title: str, text: str) -> str:
    """Return what a model reads of a document: the title in front of the text, a space between."""
    return f"{title.strip()} {text}".strip() if title.strip() else text

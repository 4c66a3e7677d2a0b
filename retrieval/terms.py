"""The terms of keyword search: what a text or a query is broken into before BM25 counts.

Words are lower-cased, identifiers give the whole and its parts, Chinese and Japanese give single characters and pairs.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

TERMS_VERSION = 1
"""Changes with every rule below; an index keeps the version that its postings were made with."""

K1 = 1.2
"""How fast a term that occurs again counts less (BM25's k1)."""
B = 0.75
"""How much long passages count less (BM25's b)."""

_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]+|(?:(?![{_IDEOGRAPHS}])\w)+(?:\.(?:(?![{_IDEOGRAPHS}])\w)+)*")
_IS_IDEOGRAPH = re.compile(rf"[{_IDEOGRAPHS}]")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


def terms(text: str) -> list[str]:
    """Return the terms of a text, in its order, as often as they occur.

    Args:
        text: Any text; passages and queries are treated alike.
    """
    found: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text)):
        found.extend(_terms_of(word))
    return found


@lru_cache(maxsize=100_000)
def _terms_of(word: str) -> tuple[str, ...]:
    if _IS_IDEOGRAPH.match(word):
        return (*word, *(word[start : start + 2] for start in range(len(word) - 1)))
    parts = [part.casefold() for part in _PART.findall(word)]
    whole = word.casefold()
    return (whole,) if parts in ([], [whole]) else (whole, *parts)

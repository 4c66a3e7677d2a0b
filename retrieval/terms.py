"""The terms of keyword search: what a text or a query is broken into before BM25 counts.

- **Words** are lower-cased, accents fall away, English endings too (Porter's second stemmer), so that "Weights" finds
  "weight". Words of grammar ("the", "how") are left out, but not as parts of identifiers (`is_valid`).
- **Identifiers** (`getUserId`, `get_user_id`, `HTTPServer2`, `os.path.join`, `v1.2.3`) give the whole as it was
  written, without stemming, and its parts. A dotted name also gives the names between its dots.
- **Scripts without blanks between words** (Chinese, Japanese, Thai, ...) and Korean, whose particles cling to words,
  give single characters and pairs of neighbours.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

TERMS_VERSION = 1
"""Changes whenever a text may give other terms than before; an index remembers the one that its terms were made by."""

K1 = 1.0
"""BM25's k1: how soon a term that occurs again counts no more."""
B = 0.8
"""BM25's b: how much a term counts less in a long passage, 0 to 1."""

_LONGEST = 64  # characters of a term: nobody types more, and files hold encoded data without a blank
_CACHED = 65_536  # words

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters of scripts that are read in pairs, as a regular expression's set: Thai, Lao, Myanmar, Khmer; Hangul's
letters, kana, Han, Hangul."""

# Vowel signs and the like belong to words, and Python's \w lacks them.
_MARKS = "".join(chr(code) for code in range(0x300, 0x1B00) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
_ACCENT = re.compile("[\u0300-\u036f]")
_NAME = rf"[^\W{UNSPACED}]+(?:[{_MARKS}]+[^\W{UNSPACED}]*)*"
_WORD = re.compile(rf"[{UNSPACED}]+|{_NAME}(?:\.{_NAME})*")
_ASCII_WORD = re.compile(r"\w+(?:\.\w+)*", re.ASCII)
_PART = re.compile(r"[A-Z]+s?(?![a-z])|[A-Z]?[a-z]+|\d+")
_PART_BEYOND_ASCII = re.compile(rf"\d+|(?:[^\W\d_]|[{_MARKS}])+")
_HAS_UNSPACED = re.compile(f"[{UNSPACED}]")
_GRAMMAR = (
    "a an and are as at be been but by can could did do does for from had has have he how i if in into is it its me my "
    "no not of on or s she should so such t than that the their then there these they this to was we were what when "
    "where which who why will with would you your"
)
_DEFINITION = re.compile(
    r"\s*(?:(?:class|def|function|func|fn|struct|interface|enum|trait|type|method)\s+)?(\w+(?:\.\w+)*)(?:\(\))?\s*"
)
_STOP_WORDS = frozenset(_GRAMMAR.split())


def terms(text: str) -> list[str]:
    """Return the terms of a text or a query, in its order, as often as they occur.

    Args:
        text: Any text.
    """
    return [term for found in _by_word(_words(text)) for term in found]


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryTerms:
    """What keyword search looks for.

    Attributes:
        terms: As `terms` gives them.
        names: Of identifiers, the wholes: `getUserId`, as one term.
        defined: What something may be called that the query asks for, as it was written: its identifiers, and the word
            that it is, be it after `class`, `def` and the like.
        is_name: Whether the query is nothing but one word, identifier, path or the like, without a blank. Who writes
            that wants to see where it stands.
    """

    terms: list[str]
    names: list[str]
    defined: list[str]
    is_name: bool


def query_terms(query: str) -> QueryTerms:
    """Return the terms of a query, and which of them are names."""
    words = _words(query)
    found = _by_word(words)
    names = {word: some[0] for word, some in zip(words, found, strict=True) if len(some) > 1}
    names = {word: name for word, name in names.items() if not _HAS_UNSPACED.match(name)}
    asked = _DEFINITION.fullmatch(query)
    return QueryTerms(
        terms=[term for some in found for term in some],
        names=list(names.values()),
        defined=list(dict.fromkeys([*names, *([asked[1]] if asked else [])])),
        is_name=bool(found) and not _HAS_UNSPACED.search(query) and len(query.split()) == 1,
    )


def _words(text: str) -> list[str]:
    return _ASCII_WORD.findall(text) if text.isascii() else _WORD.findall(unicodedata.normalize("NFKC", text))


def _by_word(words: list[str]) -> list[tuple[str, ...]]:
    return [_cached(word) if len(word) <= _LONGEST else _terms_of(word) for word in words]


def _terms_of(word: str) -> tuple[str, ...]:
    """The terms of one word, identifier, dotted name, or run of a script without blanks."""
    if _HAS_UNSPACED.match(word):
        return (*word, *(word[start : start + 2] for start in range(len(word) - 1)))
    if not word.isascii():
        word = unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", word)))
    names = word.split(".")
    found = [word.casefold()[:_LONGEST]] if len(names) > 1 else []
    for name in names:
        found += _of_name(name)
    return tuple(found)


def _of_name(name: str) -> list[str]:
    """The terms of what holds no dot: a word's stem, or an identifier and its parts' stems."""
    whole = name.casefold()[:_LONGEST]
    parts = [part.casefold()[:_LONGEST] for part in (_PART if name.isascii() else _PART_BEYOND_ASCII).findall(name)]
    if parts == [whole]:
        return [] if whole in _STOP_WORDS else [_stemmers.stemmed(whole)]
    return [whole, *map(_stemmers.stemmed, parts)]


class _Stemmers(threading.local):
    """A stemmer for each thread: they are not made to be shared."""

    def __init__(self) -> None:
        import Stemmer

        self.stemmed = Stemmer.Stemmer("english", 0).stemWord


_stemmers = _Stemmers()
_cached = lru_cache(maxsize=_CACHED)(_terms_of)

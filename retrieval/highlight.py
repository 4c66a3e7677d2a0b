"""Highlighting: the sentence of a hit, or the few lines of code, that answers the query best."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from retrieval.chunking import is_blank
from retrieval.matching import Encoder
from retrieval.ranking import Hit, Span
from retrieval.sentences import sentences
from retrieval.terms import K1, B, terms
from retrieval.units import CODE_KINDS

_LONGEST = 400  # characters of a piece
_SHORTEST = 30  # of prose; a heading, or "No." answers nothing alone
_LINES = 4  # of a piece of code
_DENSE = re.compile(
    "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)  # a character says as much as three letters
_BLANKS = re.compile(r"\s*")
_CODE_LINE = re.compile(r"[ \t].*|.*[;{}():,\[\]]\s*")


def highlights(query: str, hits: Sequence[Hit], encoder: Encoder | None) -> list[Span | None]:
    """Find the best piece of each hit's text.

    Args:
        query: The text that the hits answer.
        hits: Hits with their texts.
        encoder: Scores pieces by their similarity to the query, all in one call; None: by the query's terms in them,
            weighted as in BM25 among the pieces.

    Returns:
        For each hit its best piece, `start` and `end` in characters of the document's text, as those of the hit; None
        where the query or the text is blank, or where no piece holds any of the query's terms.
    """
    cut = [[] if is_blank(query) else pieces(hit.text, code=_is_code(hit)) for hit in hits]
    texts = [hit.text[start:end] for hit, spans in zip(hits, cut, strict=True) for start, end in spans]
    if not texts:
        return [None] * len(hits)
    scores = _by_terms(query, texts) if encoder is None else _by_vectors(query, texts, encoder)
    least = 0.0 if encoder is None else -math.inf
    found: list[Span | None] = []
    first = 0
    for hit, spans in zip(hits, cut, strict=True):
        mine = scores[first : first + len(spans)]
        first += len(spans)
        best = int(np.argmax(mine)) if spans else -1
        found.append(_span(hit, *spans[best], float(mine[best])) if spans and mine[best] > least else None)
    return found


def _span(hit: Hit, start: int, end: int, score: float) -> Span:
    """Say where in its document a piece stands, of which start and end are characters of the hit's text."""
    text = hit.text[start:end]
    line = None if hit.start_line is None else hit.start_line + hit.text.count("\n", 0, start)
    return Span(
        start=hit.start + start,
        end=hit.start + end,
        score=score,
        text=text,
        section=hit.section,
        kind=hit.kind,
        start_line=line,
        end_line=None if line is None else line + text.count("\n"),
    )


def pieces(text: str, *, code: bool) -> list[tuple[int, int]]:
    """Cut a text into sentences, or into groups of at most four lines: start and end in characters of each."""
    if code:
        return _groups(text)
    merged: list[tuple[int, int]] = []
    for start, end in sentences(text):
        if merged and _length(text[slice(*merged[-1])]) < _SHORTEST:
            start = merged.pop()[0]
        merged.append((start, end))
    return [part for start, end in merged for part in _limited(text, start, end)]


def _length(text: str) -> int:
    return len(text) + 2 * len(_DENSE.findall(text))


def _groups(text: str) -> list[tuple[int, int]]:
    """Lines of code, some at a time; a blank line ends a group."""
    groups: list[tuple[int, int]] = []
    lines, start = 0, 0
    for line in text.split("\n"):
        end = start + len(line.rstrip())
        if not line.strip():
            lines = 0
        elif 0 < lines < _LINES:
            groups[-1] = (groups[-1][0], end)
            lines += 1
        else:
            groups.append((end - len(line.strip()), end))
            lines = 1
        start += len(line) + 1
    return [part for group in groups for part in _limited(text, *group)]


def _limited(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Cut what is too long for a sentence between words, or anywhere where there is no blank."""
    parts = []
    while end - start > _LONGEST:
        blank = max(text.rfind(mark, start + _LONGEST // 2, start + _LONGEST) for mark in " \n\t")
        stop = start + _LONGEST if blank < 0 else blank
        parts.append((start, stop))
        start = _BLANKS.match(text, stop, end).end()  # type: ignore[union-attr]  # it matches anywhere
    return [*parts, (start, end)]


def _is_code(hit: Hit) -> bool:
    """What its unit says, or else what most of its lines look like."""
    if hit.kind in CODE_KINDS:
        return True
    lines = [line for line in hit.text.split("\n") if line.strip()]
    return len(lines) > 1 and 2 * sum(_CODE_LINE.fullmatch(line) is not None for line in lines) > len(lines)


def _by_vectors(query: str, texts: Sequence[str], encoder: Encoder) -> np.ndarray:
    """Similarity to the query, (n,); of a piece beyond the encoder's limit that of its best passage."""
    found = encoder.encode_documents([""] * len(texts), texts)
    asked = encoder.encode_queries([query])[0]
    similar = found.vectors @ asked  # (m, dim) @ (dim,) -> (m,)
    if encoder.metric == "cosine":
        similar /= np.maximum(np.linalg.norm(found.vectors, axis=1) * np.linalg.norm(asked), 1e-12)
    scores = np.full(len(texts), -np.inf)
    np.maximum.at(scores, found.parent, similar)
    return scores


def _by_terms(query: str, texts: Sequence[str]) -> np.ndarray:
    """BM25 (Robertson and Zaragoza 2009, equation 3.15) with the pieces as the collection, (n,)."""
    wanted = set(terms(query))
    counts = [Counter(terms(text)) for text in texts]
    lengths = np.array([max(1, count.total()) for count in counts])
    scores = np.zeros(len(texts))
    for term in sorted(wanted):
        frequency = np.array([count[term] for count in counts], float)
        holding = np.count_nonzero(frequency)
        rarity = math.log1p((len(texts) - holding + 0.5) / (holding + 0.5))
        scores += rarity * frequency / (frequency + K1 * (1 - B + B * lengths / lengths.mean()))
    return scores

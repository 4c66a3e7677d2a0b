"""The ranking rules: one total order, and hits.

Score descending, then `doc_id` descending (trec_eval's rule), then passage ascending. Everything that orders
documents, a search, a reranking, a run, calls `ordered`, so hits and metrics agree by construction.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol, TypeVar


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A stretch of a document's text: a further passage of a hit's document, or the part of a hit to highlight.

    Attributes:
        start: Where it starts in the document's text, in characters, as the `start` of a hit.
        end: Where it ends.
        score: How well it answers the query, by vectors or by terms; a reranker has no part in it.
        text: The stretch itself, `end - start` characters.
        section: The part of the document that it is of, as in a hit; so is the rest.
        kind: What that part is.
        start_line: The file's line on which it starts, from 1.
        end_line: The line on which it ends.
    """

    start: int
    end: int
    score: float
    text: str = ""
    section: str | None = None
    kind: str | None = None
    start_line: int | None = None
    end_line: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """One document of a result, with its best passage. All numbers are plain Python numbers.

    Attributes:
        doc_id: The document's id, as written in the corpus.
        rank: Position in the result, from 1.
        score: What the hits are ordered by; higher is better.
        retrieval_score: The first stage's score.
        retrieval_rank: Its rank there, from 1; None where that is not known.
        dense_score: Its score by vectors, None where they were not asked.
        lexical_score: Its score by terms (BM25), None where they were not asked.
        rerank_score: The cross-encoder's logit, or None where no reranker ran.
        rerank_probability: Its sigmoid, or None.
        title: The document's title, or "".
        text: The best passage (the whole text of a document that fits the encoder).
        start: Where the passage starts in the document's text, in characters. That of notebooks, HTML and PDF is made
            when they are read, and no call returns it: there `start` and `end` say no more than the order of passages.
        end: Where it ends; `text` is `end - start` characters.
        passage: The passage's number within its document, from 0.
        section: The part of the document that the passage is of, such as `DataFrame.merge` or `Guide > Install`; ""
            where it has no name, None for a document without parts.
        kind: What that part is: function, method, class, section, cell, page, code, text; or None.
        start_line: The file's line on which the passage starts, from 1; None where the text is not the file's own.
        end_line: The line on which it ends.
        spans: The document's next best passages, at most three, of other sections than this one where it has a name,
            and of each named section one. Their scores are the first stage's, by vectors, or by terms where these weigh
            more or alone were asked; a reranker does not read them. Empty where each passage is a hit by itself.
        metadata: The document's further columns.
    """

    doc_id: str
    rank: int
    score: float
    retrieval_score: float
    retrieval_rank: int | None = None
    dense_score: float | None = None
    lexical_score: float | None = None
    rerank_score: float | None = None
    rerank_probability: float | None = None
    title: str = ""
    text: str = ""
    start: int = 0
    end: int = 0
    passage: int = 0
    section: str | None = None
    kind: str | None = None
    start_line: int | None = None
    end_line: int | None = None
    spans: Sequence[Span] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return the hit as a dictionary that `json.dumps` takes as it is, without NaN.

        Metadata that JSON has no type for (dates, bytes, decimals) becomes text, a NaN becomes None.
        """
        return {
            **asdict(self),
            "spans": [asdict(span) for span in self.spans],
            "metadata": _json_value(dict(self.metadata)),
        }


def _json_value(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, str | bool | int):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A scored passage: what the rules below order, before a hit's texts are read."""

    score: float
    doc_id: str
    passage: int
    row: int
    dense_score: float | None = None
    lexical_score: float | None = None
    named: float = 0.0  # the share of the query's rare names that it holds, and 2 more if it defines one


class _Scored(Protocol):
    """What the rules look at: a `Candidate`, a `Hit`."""

    @property
    def score(self) -> float: ...
    @property
    def doc_id(self) -> str: ...
    @property
    def passage(self) -> int: ...


S = TypeVar("S", bound=_Scored)


def ordered(candidates: Iterable[S]) -> list[S]:
    """Sort by score descending, doc_id descending, passage ascending."""
    by_passage = sorted(candidates, key=lambda c: c.passage)
    return sorted(by_passage, key=lambda c: (c.score, c.doc_id), reverse=True)  # stable: passages stay ascending


def ranked(scores: Mapping[str, float]) -> list[tuple[str, float]]:
    """Order one query of a run: `(doc_id, score)`, by score descending, then doc_id descending."""
    return sorted(scores.items(), key=lambda hit: (hit[1], hit[0]), reverse=True)


def followed(head: Mapping[str, float], tail: Iterable[str]) -> dict[str, float]:
    """Put documents below others, in the order given: their scores are made up so that it is kept."""
    scores = dict(head)
    last = min(head.values(), default=0.0)
    for doc_id in tail:
        last = min(last - 1, math.nextafter(last, -math.inf))  # where numbers are so large that 1 less is the same
        scores[doc_id] = last
    return scores


def best_passages(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Order, and keep each document's first: a document scores as its best passage (MaxP, Dai and Callan 2019)."""
    best: dict[str, Candidate] = {}
    for candidate in ordered(candidates):
        best.setdefault(candidate.doc_id, candidate)
    return list(best.values())

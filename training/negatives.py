"""Hard negatives: documents that a search finds for a query although they do not answer it.

Which hits are left out, in this order: those outside the rank window, documents judged relevant, texts equal to a
positive, to the query or to an earlier candidate, scores too close to the positive's, and what a cross-encoder takes
for relevant. Thresholds relative to the positive's score as in Moreira et al. 2024 (NV-Retriever, TopK-PercPos), the
cross-encoder as in Qu et al. 2021 (RocketQA, denoised hard negatives).
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from retrieval.chunking import is_blank, joined
from retrieval.errors import ConfigError, DataError
from retrieval.files import atomic_write
from retrieval.matching import Reranker, probability, scored
from retrieval.ranking import Hit
from retrieval.training.examples import Example, write_examples

_QUERIES_AT_ONCE = 256
_TEXTS_KEPT = 200_000

Search = Callable[[Sequence[str], int], Sequence[Sequence[Hit]]]


@dataclass(frozen=True, kw_only=True)
class MiningSettings:
    """Which hits become negatives.

    Attributes:
        per_query: negatives of a query, at most.
        first_rank: first rank of the window they come from, from 1.
        last_rank: last rank of it.
        depth: hits searched, in which the positive's score is looked for; at least `last_rank`.
        margin: a negative scores at most the positive's score less this; None: no such threshold.
        ratio: a negative scores at most this share of the positive's score (of 0.95: lower by 5 % of its
            magnitude, so that it also means something below zero); None: no such threshold.
        sampling: `top`, the best of the window, or `random`.
        seed: of the random choice.
        reranker_margin: the cross-encoder scores a negative at most the positive's logit less this.
    """

    per_query: int = 5
    first_rank: int = 1
    last_rank: int = 50
    depth: int = 100
    margin: float | None = None
    ratio: float | None = 0.95
    sampling: Literal["top", "random"] = "top"
    seed: int = 0
    reranker_margin: float = 0.0

    def __post_init__(self) -> None:
        if self.per_query < 1:
            raise ConfigError(f"per_query is {self.per_query}; expected at least 1")
        if not 1 <= self.first_rank <= self.last_rank <= self.depth:
            given = f"{self.first_rank}, {self.last_rank} and {self.depth}"
            raise ConfigError(f"first_rank, last_rank and depth are {given}; expected 1 or more, none below the last")
        if self.margin is not None and not 0 <= self.margin < math.inf:
            raise ConfigError(f"margin is {self.margin}; expected 0 or more")
        if not math.isfinite(self.reranker_margin):
            raise ConfigError(f"reranker_margin is {self.reranker_margin}; expected a number of logits")
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise ConfigError(f"ratio is {self.ratio}; expected a number above 0, at most 1")
        if self.sampling not in ("top", "random"):
            raise ConfigError(f"sampling is {self.sampling!r}; expected top or random")


@dataclass(frozen=True, kw_only=True)
class MiningResult:
    """Examples with negatives, and what happened on the way.

    Attributes:
        examples: one for each query that has a positive with a text, in the order of the queries; ids are set, the
            scores are the cross-encoder's logits where there was one. A query may have no negatives.
        settings: which hits became negatives.
        data: SHA-256 of the queries and judgements.
        queries: queries given.
        unusable: of these, without text or without a positive whose text is known: they have no example.
        asked: different query texts searched that lead to an example; the counts below are of these.
        without_threshold: no positive among the hits, so that `margin` and `ratio` had nothing to compare with.
        short: fewer negatives than asked for.
        negatives: negatives found.
        dropped: hits of the rank window that were left out, by reason: `positive`, `equal text` (to a positive or the
            query), `repeated text`, `no text`, `margin`, `ratio`, `cross-encoder`.
        false_negatives: an estimate of the share of negatives that answer their query after all; None where there
            is no negative. With a cross-encoder, its mean probability of relevance for them, as good as it is
            calibrated. Without one, the share that the search scores no lower than the query's best positive (all
            of a query whose positive is not among the hits): an indication only; with a threshold, nothing but those.
    """

    examples: list[Example]
    settings: MiningSettings
    data: str
    queries: int
    unusable: int
    asked: int
    without_threshold: int
    short: int
    negatives: int
    dropped: Mapping[str, int]
    false_negatives: float | None

    def facts(self) -> dict[str, Any]:
        """Return the counts, for a report."""
        estimate = "unknown" if self.false_negatives is None else f"{self.false_negatives:.1%}"
        return {
            "queries": self.queries,
            "examples": len(self.examples),
            "different queries searched": self.asked,
            "negatives": self.negatives,
            "queries left out (no text, or no positive with one)": self.unusable,
            f"queries with fewer than {self.settings.per_query} negatives": self.short,
            "queries whose positive was not found (no threshold)": self.without_threshold,
            **{f"hits left out ({reason})": count for reason, count in sorted(self.dropped.items())},
            "estimated false negatives": estimate,
        }

    def provenance(self) -> dict[str, Any]:
        """Return what the negatives come from, as JSON types: settings, counts, the hash of the data."""
        counts = ("queries", "unusable", "asked", "without_threshold", "short", "negatives", "false_negatives")
        return {
            "settings": asdict(self.settings),
            "queries_and_judgements_sha256": self.data,
            "examples": len(self.examples),
            **{name: getattr(self, name) for name in counts},
            "dropped": dict(sorted(self.dropped.items())),
        }


class _Candidate(NamedTuple):
    doc_id: str
    text: str
    score: float  # the search's


@dataclass(slots=True, kw_only=True)
class _Pool:
    """What was found for one query text."""

    query: str
    positives: dict[str, str] = field(default_factory=dict)  # text by doc_id
    best: float | None = None  # the search's score of the best positive found
    candidates: list[_Candidate] = field(default_factory=list)  # those to take first come first
    dropped: Counter[str] = field(default_factory=Counter)
    negatives: list[_Candidate] = field(default_factory=list)
    positive_logits: dict[str, float] = field(default_factory=dict)  # the cross-encoder's
    negative_logits: list[float] = field(default_factory=list)


def mine_negatives(
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    search: Search,
    *,
    texts: Mapping[str, str] = MappingProxyType({}),
    settings: MiningSettings = MiningSettings(),
    reranker: Reranker | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MiningResult:
    """Find hard negatives for judged queries.

    Queries that differ only in case and blanks are one query here: what is relevant to one of them is a negative of
    none. Where the search returns passages, a negative is the passage found, and so is a positive that was found;
    another positive is the whole text from `texts`. The result does not depend on the order of the queries.

    Args:
        queries: text by query_id.
        qrels: grade by doc_id, by query_id; 1 or more is relevant.
        search: takes query texts and a number of hits, and returns the hits of each, best first.
        texts: of relevant documents, title and text joined, by doc_id.
        settings: which hits become negatives.
        reranker: a cross-encoder that drops what it takes for relevant, and whose scores are kept (a teacher).
        progress: called with the number of different queries done, and of all of them.

    Raises:
        DataError: no query has a text and a relevant document.
        ModelError: the reranker gives something else than finite scores.
    """
    relevant: dict[str, set[str]] = defaultdict(set)  # doc_ids by normalised query
    asked: dict[str, None] = {}
    for query_id, query in queries.items():
        judged = {doc_id for doc_id, grade in qrels.get(query_id, {}).items() if grade > 0}
        relevant[_normal(query)] |= judged
        if judged and not is_blank(query):
            asked[query] = None
    if not asked:
        raise DataError(f"nothing to mine: none of {len(queries):,} queries has a text and a relevant document")
    pools: dict[str, _Pool] = {}
    normal = _Normal()
    for start in range(0, len(asked), _QUERIES_AT_ONCE):
        chunk = list(asked)[start : start + _QUERIES_AT_ONCE]
        found = zip(chunk, search(chunk, settings.depth), strict=True)
        some = [_pool(query, hits, relevant[_normal(query)], texts, settings, normal) for query, hits in found]
        some = [pool for pool in some if pool.positives]
        if reranker is None:
            for pool in some:
                pool.negatives = pool.candidates[: settings.per_query]
        else:
            _choose(some, settings, reranker)
        for pool in some:
            pool.candidates.clear()
            pools[pool.query] = pool
        if progress is not None:
            progress(start + len(chunk), len(asked))
    examples = list(_examples(queries, qrels, pools))
    return MiningResult(
        examples=examples,
        settings=settings,
        data=_fingerprint(queries, qrels),
        queries=len(queries),
        unusable=len(queries) - len(examples),
        asked=len(pools),
        without_threshold=sum(pool.best is None for pool in pools.values()),
        short=sum(len(pool.negatives) < settings.per_query for pool in pools.values()),
        negatives=sum(len(pool.negatives) for pool in pools.values()),
        dropped=dict(sum((pool.dropped for pool in pools.values()), Counter())),
        false_negatives=_false_negatives(pools.values(), reranker),
    )


def write_mined(path: str | Path, result: MiningResult, provenance: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Write the examples as JSONL, and where they come from as `<path>.provenance.json`.

    Args:
        path: `.jsonl` or `.jsonl.gz`.
        result: of `mine_negatives`.
        provenance: what only the caller knows, as JSON types: index, model, benchmark.

    Raises:
        ConfigError: the name is that of another format.
        DataError: a file cannot be written.
    """
    write_examples(path, result.examples)
    with atomic_write(f"{path}.provenance.json") as stream:
        body = json.dumps({**result.provenance(), **provenance}, ensure_ascii=False, indent=1, allow_nan=False)
        stream.write(body.encode() + b"\n")


class _Normal:
    """Normalised texts of passages, each made once: a passage is a hit of many queries."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[str, str]] = {}

    def __call__(self, hit: Hit) -> tuple[str, str]:
        """Return a hit's text as the encoder reads it, and the same normalised."""
        key = hit.doc_id, hit.passage
        if key not in self._known:
            if len(self._known) == _TEXTS_KEPT:
                self._known.clear()
            text = joined(hit.title, hit.text)
            self._known[key] = text, _normal(text)
        return self._known[key]


def _normal(text: str) -> str:
    """Return a text without what makes no other text of it: case, and how many blanks."""
    return " ".join(text.casefold().split())


def _pool(
    query: str,
    hits: Sequence[Hit],
    relevant: set[str],
    texts: Mapping[str, str],
    settings: MiningSettings,
    normal: _Normal,
) -> _Pool:
    """Find the positives of a query, and the candidates that its hits leave."""
    pool = _Pool(query=query)
    found = {hit.doc_id: hit for hit in hits if hit.doc_id in relevant}
    known = {_normal(query)}
    for doc_id in sorted(relevant):
        whole = texts.get(doc_id, "")
        text = normal(found[doc_id])[0] if doc_id in found else whole
        if not is_blank(text):
            pool.positives[doc_id] = text
            known |= {_normal(text), _normal(whole)}
    pool.best = max((hit.score for hit in found.values()), default=None)
    seen: set[str] = set()
    for hit in hits[settings.first_rank - 1 : settings.last_rank]:
        text, plain = normal(hit)
        if hit.doc_id in relevant:
            reason = "positive"
        elif not plain:
            reason = "no text"
        elif plain in known:
            reason = "equal text"
        elif plain in seen:
            reason = "repeated text"
        else:
            reason = _too_close(hit.score, pool.best, settings)
        seen.add(plain)
        if reason:
            pool.dropped[reason] += 1
        else:
            pool.candidates.append(_Candidate(hit.doc_id, text, hit.score))
    if settings.sampling == "random":
        # A generator of the query's own: neither order nor number of the other queries matters.
        random.Random(f"{settings.seed} {query}").shuffle(pool.candidates)
    return pool


def _too_close(score: float, best: float | None, settings: MiningSettings) -> str:
    """Say which threshold a score does not keep; nothing where it keeps all."""
    if best is None:
        return ""
    if settings.margin is not None and score > best - settings.margin:
        return "margin"
    if settings.ratio is not None and score > best - (1 - settings.ratio) * abs(best):
        return "ratio"
    return ""


def _choose(pools: Sequence[_Pool], settings: MiningSettings, reranker: Reranker) -> None:
    """Take the first candidates that the cross-encoder lets pass; it reads no more than it takes to find them."""
    of_positives = _logits(reranker, [(pool.query, text) for pool in pools for text in pool.positives.values()])
    for pool in pools:
        pool.positive_logits = {doc_id: next(of_positives) for doc_id in pool.positives}
    waiting = [(pool, 0) for pool in pools]  # and how many of its candidates were read
    while waiting:
        taken = [
            (pool, pool.candidates[start : start + settings.per_query - len(pool.negatives)], start)
            for pool, start in waiting
        ]
        of_candidates = _logits(reranker, [(pool.query, one.text) for pool, some, _ in taken for one in some])
        waiting = []
        for pool, some, start in taken:
            limit = max(pool.positive_logits.values()) - settings.reranker_margin
            for candidate in some:
                logit = next(of_candidates)
                if logit > limit:
                    pool.dropped["cross-encoder"] += 1
                else:
                    pool.negatives.append(candidate)
                    pool.negative_logits.append(logit)
            if len(pool.negatives) < settings.per_query and start + len(some) < len(pool.candidates):
                waiting.append((pool, start + len(some)))


def _logits(reranker: Reranker, pairs: Sequence[tuple[str, str]]) -> Iterator[float]:
    return iter(scored(reranker, pairs).astype(float).tolist() if pairs else [])


def _examples(
    queries: Mapping[str, str], qrels: Mapping[str, Mapping[str, int]], pools: Mapping[str, _Pool]
) -> Iterator[Example]:
    for query_id, query in queries.items():
        pool = pools.get(query, _Pool(query=query))
        judged = qrels.get(query_id, {})
        positives = [doc_id for doc_id, grade in judged.items() if grade > 0 and doc_id in pool.positives]
        if positives:
            yield Example(
                query=query,
                query_id=query_id,
                positives=tuple(pool.positives[doc_id] for doc_id in positives),
                positive_ids=tuple(positives),
                positive_scores=tuple(pool.positive_logits[d] for d in positives if d in pool.positive_logits),
                negatives=tuple(candidate.text for candidate in pool.negatives),
                negative_ids=tuple(candidate.doc_id for candidate in pool.negatives),
                negative_scores=tuple(pool.negative_logits),
            )


def _false_negatives(pools: Collection[_Pool], reranker: Reranker | None) -> float | None:
    """Estimate as `MiningResult.false_negatives` says."""
    if reranker is not None:
        logits = np.array([logit for pool in pools for logit in pool.negative_logits], np.float32)
        return float(np.mean(probability(reranker, logits))) if len(logits) else None
    above = [pool.best is None or one.score >= pool.best for pool in pools for one in pool.negatives]
    return sum(above) / len(above) if above else None


def _fingerprint(queries: Mapping[str, str], qrels: Mapping[str, Mapping[str, int]]) -> str:
    """SHA-256 of queries and their judgements, whatever their order."""
    judged = {query_id: [query, dict(qrels.get(query_id, {}))] for query_id, query in queries.items()}
    return hashlib.sha256(json.dumps(judged, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

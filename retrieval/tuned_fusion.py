"""The weight of keyword search beside vectors, learnt from judged queries, and kept only if others prove it better."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from retrieval.chunking import is_blank
from retrieval.counts import many
from retrieval.errors import DataError
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.comparison import Comparison
from retrieval.eval.evaluation import Evaluation, evaluate_runs
from retrieval.eval.metrics import evaluate
from retrieval.eval.profiles import get_profile
from retrieval.eval.stages import held_documents
from retrieval.hybrid import Fusion
from retrieval.index.reader import Pool, ordered_by
from retrieval.indexing import set_fusion
from retrieval.ranking import Candidate, best_passages
from retrieval.retriever import Retriever

WEIGHTS = tuple(step / 20 for step in range(21))
"""Weights of keyword search that are tried."""

METRIC = "ndcg@10"
"""What a weight is chosen by, and compared by."""

_FOLDS = 5
_HITS = 20  # of a query: those that the metric sees, and some that may be left out
_EQUAL = 1e-12  # means that differ by less differ by rounding

Run = dict[str, dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class LearntFusion:
    """What judged queries say of the weight.

    Attributes:
        before: How the index mixes scores now.
        learnt: With the weight that is best on all queries.
        evaluation: Four systems on all queries: `now`, `dense`, `lexical`, and `tuned`, where each query is answered by
            the weight that is best on the other folds; with paired tests against `now`.
        folds: How many.
        kept: Whether the learnt weight was stored.
    """

    before: Fusion
    learnt: Fusion
    evaluation: Evaluation
    folds: int
    kept: bool = False

    @property
    def decisive(self) -> Comparison:
        """What the way that the weight is learnt gains on queries it was not learnt from, in nDCG@10."""
        return self.evaluation.comparisons[-1]

    @property
    def better(self) -> bool:
        """Whether the weight is another one, and what it gains is not by chance."""
        return self.learnt.weight != self.before.weight and self.decisive.better

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for `json.dumps`."""
        return {
            "before": self.before.to_dict(),
            "learnt": self.learnt.to_dict(),
            "kept": self.kept,
            "gain": self.decisive.difference,
            "p": self.decisive.p_randomization,
            "folds": self.folds,
            "evaluation": self.evaluation.to_dict(),
        }


def learn_fusion(
    retriever: Retriever, benchmark: Benchmark, *, progress: Callable[[int, int], None] | None = None
) -> LearntFusion:
    """Try weights on a benchmark's queries, and say by cross-validation what that is worth. Nothing is stored.

    Queries are dealt to five folds by the SHA-256 of their ids. Of equal weights the one nearest to the present one
    is taken.

    Args:
        retriever: Of an index with a keyword part.
        benchmark: Whose judged queries are asked.
        progress: Called with the number of queries asked and the number of all.

    Raises:
        ConfigError: The index has no keyword part.
        DataError: Fewer than two judged queries with a text, or none of the judged documents is in the index.
    """
    retriever.index.require_keywords()
    held_documents(retriever, benchmark.qrels)
    before = retriever.index.fusion
    pools = _pools(retriever, benchmark, progress)
    if len(pools) < 2:
        raise DataError(
            f"{benchmark.card.name}: {many(len(pools), 'judged query')}; to learn a weight some hundreds are usual"
        )
    ignore = bool(benchmark.card.profile) and get_profile(benchmark.card.profile).ignore_identical_ids
    qrels = {query_id: benchmark.qrels[query_id] for query_id in pools}
    weights = sorted({*WEIGHTS, before.weight}, key=lambda weight: (abs(weight - before.weight), weight))
    runs = {weight: _run(pools, functools.partial(ordered_by, Fusion(weight=weight))) for weight in weights}
    found = np.stack(  # (weights, queries)
        [evaluate(qrels, run, METRIC, ignore_identical_ids=ignore).of(METRIC) for run in runs.values()]
    )
    folds = _folds(list(qrels))
    tuned: Run = {}
    for number in range(folds.max() + 1):
        chosen = runs[weights[_best(found[:, folds != number])]]
        tuned |= {query_id: chosen[query_id] for query_id, fold in zip(qrels, folds, strict=True) if fold == number}
    systems = {
        "now": runs[before.weight],
        "dense": _run(pools, _by_vectors),
        "lexical": _run(pools, _by_terms),
        "tuned": {query_id: tuned[query_id] for query_id in qrels},
    }
    title = f"{benchmark.card.name}, {benchmark.card.split}"
    return LearntFusion(
        before=before,
        learnt=Fusion(weight=weights[_best(found)], origin=f"learnt from {len(qrels)} queries of {title}"),
        evaluation=evaluate_runs(qrels, systems, METRIC, ignore_identical_ids=ignore, title=title, curve=False),
        folds=int(folds.max()) + 1,
    )


def tune_fusion(
    retriever: Retriever,
    benchmark: Benchmark,
    *,
    always: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> LearntFusion:
    """Learn the weight, and store it in the index if it is better; an open retriever goes on with the old one.

    Args:
        retriever: As in `learn_fusion`, like the rest.
        benchmark: Whose judged queries are asked.
        always: Store another weight also where it is not proven better.
        progress: Called with the number of queries asked and the number of all.

    Raises:
        ConfigError: As in `learn_fusion`.
        DataError: As in `learn_fusion`.
        IndexLockedError: Another process is writing to the index.
    """
    found = learn_fusion(retriever, benchmark, progress=progress)
    if found.learnt.weight == found.before.weight or not (found.better or always):
        return found
    set_fusion(retriever.index.path, found.learnt)
    return replace(found, kept=True)


def _pools(retriever: Retriever, benchmark: Benchmark, progress: Callable[[int, int], None] | None) -> dict[str, Pool]:
    """Ask both sides for the candidates of every judged query that has a text."""
    asked = [query_id for query_id in benchmark.qrels if not is_blank(benchmark.queries[query_id])]
    pools: dict[str, Pool] = {}
    for query_id, pool in zip(asked, retriever.pools([benchmark.queries[one] for one in asked]), strict=True):
        pools[query_id] = pool
        if progress is not None:
            progress(len(pools), len(asked))
    return pools


def _run(pools: Mapping[str, Pool], ordered: Callable[[Pool], Sequence[Candidate]]) -> Run:
    return {query_id: {one.doc_id: one.score for one in ordered(pool)[:_HITS]} for query_id, pool in pools.items()}


def _by_vectors(pool: Pool) -> list[Candidate]:
    return best_passages(replace(one, score=one.dense_score or 0.0) for one in pool.candidates)


def _by_terms(pool: Pool) -> list[Candidate]:
    return best_passages(replace(one, score=one.lexical_score) for one in pool.candidates if one.lexical_score)


def _folds(query_ids: Sequence[str]) -> np.ndarray:
    """Deal queries to folds of equal size, (queries,) int64."""
    order = sorted(range(len(query_ids)), key=lambda at: hashlib.sha256(query_ids[at].encode()).hexdigest())
    folds = np.empty(len(query_ids), np.int64)
    folds[order] = np.arange(len(query_ids)) % min(_FOLDS, len(query_ids))
    return folds


def _best(found: np.ndarray) -> int:
    """Of values (weights, queries), return the first weight whose mean none exceeds."""
    means = found.mean(axis=1)
    return int(np.flatnonzero(means >= means.max() - _EQUAL)[0])

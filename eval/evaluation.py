"""Evaluating systems side by side: a retriever's stages on a benchmark, or finished runs on judgements."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from retrieval.errors import ConfigError
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.comparison import Comparison, compare, confidence_interval
from retrieval.eval.measures import parse_measures
from retrieval.eval.metrics import DEFAULT_METRICS, Scores, evaluate
from retrieval.eval.profiles import Profile, get_profile, pool_notices, pools
from retrieval.ranking import Hit, ranked

if TYPE_CHECKING:
    import pyarrow.compute as pc

_DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # of the curve of recall
_LEAST = 100  # hits for each query, where no metric looks deeper

Run = dict[str, dict[str, float]]


class Searcher(Protocol):
    """What an evaluation asks of a retriever; `Retriever` is ours, any object with these will do."""

    @property
    def documents(self) -> int:
        """How many documents can be found."""

    @property
    def reranker(self) -> object | None:
        """The second stage, or None."""

    def holds(self, doc_ids: Collection[str]) -> set[str]:
        """Return which of these documents can be found."""

    def facts(self) -> Mapping[str, str]:
        """Say what searches: index, models."""

    def search(
        self, query: str, k: int = 10, *, where: pc.Expression | None = None, rerank: bool | None = None
    ) -> list[Hit]:
        """Find the k best documents, best first."""

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Re-order hits."""


@dataclass(frozen=True, kw_only=True)
class System:
    """One ranking of the same queries: a first stage, its re-ordering, or a run from elsewhere.

    Attributes:
        name: What tables call it.
        scores: By metric and query.
        run: Score by doc_id, by query_id.
        recall: Mean recall by depth (1, 2, 5, 10, ... hits).
        seconds: For each stage ("retrieve", "rerank") the seconds of each query; empty for a finished run.
    """

    name: str
    scores: Scores
    run: Mapping[str, Mapping[str, float]] = field(default_factory=dict, repr=False)
    recall: Mapping[int, float] = field(default_factory=dict)
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Systems on the same queries, side by side.

    Attributes:
        title: One line.
        facts: What was evaluated, as a person reads it.
        systems: At least one; the first is the baseline.
        comparisons: Paired tests, a row for each metric and pair of systems.
        ceiling: By metric, what an ideal re-ordering of the first stage's candidates would reach.
        queries: Text by query_id; may be empty.
        notices: Sentences on what a reader should know before trusting a number.
    """

    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    systems: tuple[System, ...]
    comparisons: tuple[Comparison, ...] = ()
    ceiling: Mapping[str, float] = field(default_factory=dict)
    queries: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """By which rules the numbers were made, in sentences."""
        scores = self.systems[0].scores
        names = {metric.partition("@")[0].partition("-l")[0] for metric in scores.metrics}
        own = "are left out" if scores.counts.ignored_identical else "count like any other"
        gains = {
            "ndcg": "ndcg has linear gain, the grade itself, as in trec_eval.",
            "ndcg_burges": "ndcg_burges has exponential gain, 2^grade - 1.",
        }
        return (
            "Hits are ordered by score, the highest first; equal scores by doc_id, descending, as trec_eval does.",
            "Every judged query counts in the mean: one without hits, or without a relevant document, counts as 0. "
            "Queries without judgements are left out.",
            "Documents without a judgement, and those with a negative grade, are not relevant.",
            f"Hits that have the id of their query {own}.",
            *(sentence for name, sentence in gains.items() if name in names),
            "Confidence intervals are of the mean over queries, by Student's t; they are not cut at 0 and 1.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all of it but the runs, for `json.dumps`."""
        return {
            "title": self.title,
            "facts": dict(self.facts),
            "rules": list(self.rules),
            "systems": [_system_dict(system) for system in self.systems],
            "comparisons": [comparison.to_dict() for comparison in self.comparisons],
            "ceiling": dict(self.ceiling),
            "notices": list(self.notices),
        }


def evaluate_runs(
    qrels: Mapping[str, Mapping[str, int]],
    runs: Mapping[str, Mapping[str, Mapping[str, float]]],
    metrics: str | Iterable[str] = DEFAULT_METRICS,
    *,
    relevance_level: int = 1,
    ignore_identical_ids: bool = False,
    all_pairs: bool = False,
    title: str = "",
    facts: Mapping[str, str] | None = None,
) -> Evaluation:
    """Score finished runs, and compare them where there are several.

    Args:
        qrels: Grade by doc_id, by query_id.
        runs: By name; the first is the baseline of the others.
        metrics: As in `evaluate`.
        relevance_level: As in `evaluate`.
        ignore_identical_ids: As in `evaluate`.
        all_pairs: Compare every two runs, not only each with the first.
        title: Of the report.
        facts: Of the report.

    Raises:
        ConfigError: No such metric, or no run.
        DataError: See `evaluate`.
    """
    if not runs:
        raise ConfigError("no run to evaluate")
    rules = _Rules(tuple(map(str, parse_measures(metrics, relevance_level))), relevance_level, ignore_identical_ids)
    systems = tuple(rules.system(name, qrels, run) for name, run in runs.items())
    return Evaluation(
        title=title or " and ".join(runs),
        facts=dict(facts or {}),
        systems=systems,
        comparisons=_compared(systems, all_pairs),
        notices=_notices(systems),
    )


def evaluate_retriever(
    retriever: Searcher,
    benchmark: Benchmark,
    metrics: str | Iterable[str] | None = None,
    *,
    profile: str | Profile | None = None,
    k: int | None = None,
    rerank_depth: int = 100,
    relevance_level: int = 1,
    ignore_identical_ids: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Ask a retriever a benchmark's queries, one at a time, and score both of its stages.

    Args:
        retriever: An open `Retriever`, with a reranker or without.
        benchmark: Whose judged queries are asked.
        metrics: As in `evaluate`; None: the profile's.
        profile: Rules that published numbers use, by name (see `retrieval.eval.profiles`); None: those that the
            benchmark's card names, unless metrics are given.
        k: Hits for each query; None: what the metrics need, at least 100.
        rerank_depth: How many of them are re-ordered; the others follow in their old order.
        relevance_level: As in `evaluate`.
        ignore_identical_ids: Leave out hits whose doc_id is the query's id; None: as the profile says.
        progress: Called after each query with the number done and the number of all.

    Raises:
        ConfigError: No such metric or profile, or a k that is too small for the metrics.
        DataError: See `evaluate`.
    """
    if profile is None and metrics is None and benchmark.card.profile:
        profile = benchmark.card.profile
    chosen = get_profile(profile) if isinstance(profile, str) else profile
    names = tuple(map(str, parse_measures(metrics or _metrics_of(chosen), relevance_level)))
    if ignore_identical_ids is None:
        ignore_identical_ids = chosen is not None and chosen.ignore_identical_ids
    rules = _Rules(names, relevance_level, ignore_identical_ids)
    qrels, pool, notices = _pooled(benchmark, chosen)
    depth = _depth(names, chosen, pool, k, retriever.documents)
    asked = {query_id: benchmark.queries[query_id] for query_id in qrels}
    stages = _Stages(retriever, depth, rerank_depth, ignore_identical_ids)
    for number, (query_id, text) in enumerate(asked.items(), 1):
        stages.ask(query_id, text, pool.get(query_id) if pool else None)
        if progress is not None:
            progress(number, len(asked))
    judged = {doc_id for grades in qrels.values() for doc_id in grades}
    held = retriever.holds(judged)
    seconds = {"retrieve": stages.retrieve_seconds}
    systems = [rules.system("first stage", qrels, stages.first, held, seconds)]
    if retriever.reranker is not None:
        seconds = {**seconds, "rerank": stages.rerank_seconds}
        systems.append(rules.system("reranked", qrels, stages.second, held, seconds))
    ideal = evaluate(
        qrels,
        {query_id: _ideal(hits, qrels[query_id], rerank_depth) for query_id, hits in stages.first.items()},
        names,
        relevance_level=relevance_level,
        ignore_identical_ids=ignore_identical_ids,
    )
    return Evaluation(
        title=f"{benchmark.card.name}, {benchmark.card.split}",
        facts={
            **_card_facts(benchmark),
            **retriever.facts(),
            **({"profile": f"{chosen.name}: {chosen.about}"} if chosen else {}),
            "hits for each query": f"{depth:,}",
            **({"re-ordered hits": f"{min(rerank_depth, depth):,}"} if retriever.reranker is not None else {}),
        },
        systems=tuple(systems),
        comparisons=_compared(systems),
        ceiling=ideal.means(),
        queries=asked,
        notices=(*notices, *_notices(systems)),
    )


@dataclass(frozen=True)
class _Rules:
    metrics: tuple[str, ...]
    relevance_level: int
    ignore_identical_ids: bool

    def system(
        self,
        name: str,
        qrels: Mapping[str, Mapping[str, int]],
        run: Mapping[str, Mapping[str, float]],
        held: Collection[str] | None = None,
        seconds: Mapping[str, Sequence[float]] | None = None,
    ) -> System:
        """Score a run."""
        options = {"relevance_level": self.relevance_level, "ignore_identical_ids": self.ignore_identical_ids}
        scores = evaluate(qrels, run, self.metrics, doc_ids=held, **options)  # type: ignore[arg-type]
        longest = max((len(hits) for query_id, hits in run.items() if query_id in qrels), default=0)
        depths = [depth for depth in _DEPTHS if depth <= max(longest, 1)]
        curve = evaluate(qrels, run, [f"recall@{depth}" for depth in depths], **options)  # type: ignore[arg-type]
        recall = dict(zip(depths, curve.values.mean(axis=1).tolist(), strict=True))
        return System(name=name, scores=scores, run=run, recall=recall, seconds=seconds or {})


class _Stages:
    """Asks a retriever one query at a time, and keeps both stages' runs and seconds."""

    def __init__(self, retriever: Searcher, k: int, rerank_depth: int, ignore_identical_ids: bool) -> None:
        self.retriever, self.k, self.rerank_depth = retriever, k, rerank_depth
        self.ignore_identical_ids = ignore_identical_ids
        self.first: Run = {}
        self.second: Run = {}
        self.retrieve_seconds: list[float] = []
        self.rerank_seconds: list[float] = []

    def ask(self, query_id: str, text: str, pool: Collection[str] | None) -> None:
        where = None
        if pool is not None:
            import pyarrow.compute as pc

            where = pc.field("doc_id").isin(list(pool))
        if not self.first:  # loads the encoder, which is no query's time
            self.retriever.search(text, 1, where=where, rerank=False)
        start = time.perf_counter()
        hits = self.retriever.search(text, self.k + self.ignore_identical_ids, where=where, rerank=False)
        self.retrieve_seconds.append(time.perf_counter() - start)
        if self.ignore_identical_ids:
            hits = [hit for hit in hits if hit.doc_id != query_id][: self.k]
        self.first[query_id] = {hit.doc_id: hit.score for hit in hits}
        if self.retriever.reranker is None:
            return
        start = time.perf_counter()
        head = self.retriever.rerank(text, hits[: self.rerank_depth])
        self.rerank_seconds.append(time.perf_counter() - start)
        floor = head[-1].score if head else 0.0
        tail = {hit.doc_id: floor - rank for rank, hit in enumerate(hits[self.rerank_depth :], 1)}
        self.second[query_id] = {hit.doc_id: hit.score for hit in head} | tail


def _metrics_of(profile: Profile | None) -> tuple[str, ...]:
    return DEFAULT_METRICS if profile is None else profile.metrics


def _pooled(
    benchmark: Benchmark, profile: Profile | None
) -> tuple[Mapping[str, Mapping[str, int]], Mapping[str, Collection[str]], list[str]]:
    """Return the judgements that are scored, the documents each query is ranked among ({}: all), and notices."""
    if profile is None or profile.pool is None:
        return benchmark.qrels, {}, []
    pool = pools(benchmark.qrels, profile.pool)
    qrels = {query_id: grades for query_id, grades in benchmark.qrels.items() if query_id in pool}
    return qrels, pool, pool_notices(len(benchmark.qrels), profile.pool)


def _depth(
    names: Sequence[str],
    profile: Profile | None,
    pool: Mapping[str, Collection[str]],
    k: int | None,
    documents: int,
) -> int:
    """Decide how many hits each query gets."""
    deepest = max(measure.k for measure in parse_measures(names))
    if k is not None:
        if k < deepest:
            raise ConfigError(f"k is {k}, but a metric looks at {deepest} hits; expected at least as many")
        return k
    if pool:
        return max(map(len, pool.values()))
    if profile is not None:
        return min(profile.depth or documents, documents)
    return max(deepest, _LEAST)


def _ideal(hits: Mapping[str, float], grades: Mapping[str, int], depth: int) -> dict[str, float]:
    """Re-order the first hits by their grades; the others keep their places below."""
    head = [doc_id for doc_id, _ in ranked(hits)[:depth]]
    best = {doc_id: 1.0 + max(grades.get(doc_id, 0), 0) for doc_id in head}
    return best | {doc_id: -rank for rank, (doc_id, _) in enumerate(ranked(hits)[depth:], 1)}


def _card_facts(benchmark: Benchmark) -> dict[str, str]:
    card = benchmark.card
    facts = {
        "benchmark": card.name,
        "split": card.split,
        "queries": f"{len(benchmark.qrels):,} judged",
        "direction": card.direction,
        "ranked against": card.pool,
        "title": card.title,
        "source": card.source,
        "notes": "; ".join(card.notes),
    }
    if card.documents is not None:
        facts["documents"] = f"{card.documents:,}"
    if card.duplicates:
        facts["equal documents"] = f"{card.duplicates:,}"
    return {name: value for name, value in facts.items() if value}


def _compared(systems: Sequence[System], all_pairs: bool = False) -> tuple[Comparison, ...]:
    if len(systems) < 2:
        return ()
    return compare({system.name: system.scores for system in systems}, all_pairs=all_pairs)


def _notices(systems: Sequence[System]) -> tuple[str, ...]:
    """Collect what the counts say; where systems differ, by name."""
    said = {system.name: system.scores.counts.notices() for system in systems}
    common = [line for line in next(iter(said.values())) if all(line in lines for lines in said.values())]
    own = [f"{name}: {line}" for name, lines in said.items() for line in lines if line not in common]
    return (*common, *own)


def _system_dict(system: System) -> dict[str, Any]:
    intervals = {m: confidence_interval(system.scores.of(m)) for m in system.scores.metrics}
    return {
        "name": system.name,
        **system.scores.to_dict(),
        "confidence_interval_95": {m: [i.low, i.high] for m, i in intervals.items()},
        "recall": {str(depth): value for depth, value in system.recall.items()},
        "seconds": {
            stage: {"median": float(np.median(spent)), "p95": float(np.percentile(spent, 95)), "sum": float(sum(spent))}
            for stage, spent in system.seconds.items()
        },
    }

"""A retriever on a benchmark: its queries asked one at a time, both stages scored and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from retrieval.counts import many
from retrieval.errors import ConfigError, DataError
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.evaluation import Evaluation, Rules, compared, counted
from retrieval.eval.measures import Measure
from retrieval.eval.profiles import Profile
from retrieval.ranking import Hit, followed, ranked

_LEAST = 100  # hits for each query, where no metric looks deeper
_UNCUT = 1000  # hits for a metric without a cut-off


class Searcher(Protocol):
    """What an evaluation asks of a retriever; `Retriever` is ours, any object with this will do.

    What else it has is used: a `reranker` that is not None, with `rerank(query, hits)` and `search(..., rerank=False)`;
    `documents`, how many there are; `holds(doc_ids)`, which of these there are; `facts()` for the report. Profiles with
    pools search with `where=`, a pyarrow expression on `doc_id`.
    """

    def search(self, query: str, k: int = 10) -> Sequence[Hit]:
        """Find the k best documents, best first."""


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
        retriever: An open `Retriever`, with a reranker or without, or anything with `search`.
        benchmark: Whose judged queries are asked.
        metrics: As in `evaluate`; None: the profile's.
        profile: Rules that published numbers use, by name (see `retrieval.eval.profiles`); None: those that the
            benchmark's card names, unless metrics are given.
        k: Hits for each query; None: what the metrics need, at least 100, and 1,000 for one without a cut-off.
        rerank_depth: How many of them are re-ordered; the others follow in their old order.
        relevance_level: As in `evaluate`.
        ignore_identical_ids: Leave out hits whose doc_id is the query's id; None: as the profile says.
        progress: Called after each query with the number done and the number of all.

    Raises:
        ConfigError: No such metric or profile, or a k or a rerank_depth that is too small.
        DataError: See `evaluate`.
    """
    if rerank_depth < 1:
        raise ConfigError(f"rerank_depth is {rerank_depth}; expected at least 1")
    if profile is None and metrics is None and benchmark.card.profile:
        profile = benchmark.card.profile
    rules = Rules.choose(metrics, profile, relevance_level, ignore_identical_ids)
    qrels, pool, notices = rules.pooled(benchmark.qrels)
    documents = getattr(retriever, "documents", None)
    depth = _depth(rules, pool, k, documents)
    held = held_documents(retriever, qrels)
    if lost := [query_id for query_id in qrels if query_id not in benchmark.queries]:
        raise DataError(
            f"benchmark {benchmark.card.name}: {many(len(lost), 'judged query')} without a text, such as {lost[0]!r}"
        )
    stages = _Stages(retriever, depth, rerank_depth, rules.ignore_identical_ids)
    for number, (query_id, grades) in enumerate(qrels.items(), 1):
        stages.ask(query_id, benchmark.queries[query_id], grades, pool.get(query_id))
        if progress is not None:
            progress(number, len(qrels))
    if stages.identical:
        notices.append(f"{many(stages.identical, 'hit')} left out, with the id of the query")
    notices += _blind(rules, depth, pool, documents)
    seconds = {"retrieve": stages.retrieve_seconds}
    systems = [rules.system("first stage", qrels, stages.first, held, seconds)]
    if stages.two:
        seconds = {**seconds, "rerank": stages.rerank_seconds}
        systems.append(rules.system("reranked", qrels, stages.second, held, seconds))
    ideal = {query_id: _ideal(hits, qrels[query_id], rerank_depth) for query_id, hits in stages.first.items()}
    return Evaluation(
        title=f"{benchmark.card.name}, {benchmark.card.split}",
        facts={
            **_card_facts(benchmark),
            **(retriever.facts() if hasattr(retriever, "facts") else {}),
            **rules.facts(),
            "hits for each query": f"{depth:,}",
            "re-ordered hits" if stages.two else "hits that a ceiling re-orders": f"{min(rerank_depth, depth):,}",
        },
        systems=tuple(systems),
        comparisons=compared(systems, metrics=_movable(rules.measures, rerank_depth)),
        ceiling=rules.scores(qrels, ideal).means(),
        queries={query_id: benchmark.queries[query_id] for query_id in qrels},
        notices=(*notices, *counted(systems)),
    )


class _Stages:
    """Asks a retriever one query at a time, and keeps both stages' runs and seconds.

    Of a list that is longer than `_UNCUT`, or that a pool makes long, only what a metric can see is kept: the first
    hits, and all down to the last judged one.
    """

    def __init__(self, retriever: Any, k: int, rerank_depth: int, ignore_identical_ids: bool) -> None:
        self.retriever, self.k, self.rerank_depth = retriever, k, rerank_depth
        self.ignore_identical_ids = ignore_identical_ids
        self.two = getattr(retriever, "reranker", None) is not None
        self.first: dict[str, dict[str, float]] = {}
        self.second: dict[str, dict[str, float]] = {}
        self.retrieve_seconds: list[float] = []
        self.rerank_seconds: list[float] = []
        self.identical = 0  # hits left out since they have their query's id
        self._ids: dict[str, str] = {}  # equal ids share one string
        self._filters: dict[int, Any] = {}  # by the identity of a pool, which many queries share

    def ask(self, query_id: str, text: str, grades: Mapping[str, int], pool: Collection[str] | None) -> None:
        options: dict[str, Any] = {"rerank": False} if self.two else {}
        if pool is not None:
            options["where"] = self._filter(pool)
        if not self.first:  # loads the models, which is no query's time
            found = self.retriever.search(text, 1, **options)
            if self.two:
                self.retriever.rerank(text, found)
        start = time.perf_counter()
        hits = self.retriever.search(text, self.k + self.ignore_identical_ids, **options)
        self.retrieve_seconds.append(time.perf_counter() - start)
        if self.ignore_identical_ids:
            others = [hit for hit in hits if hit.doc_id != query_id]
            self.identical += len(hits) - len(others)
            hits = others[: self.k]
        scores = {self._ids.setdefault(hit.doc_id, hit.doc_id): float(hit.score) for hit in hits}
        self.first[query_id] = _seen(scores, grades)
        if not self.two:
            return
        start = time.perf_counter()
        head = self.retriever.rerank(text, hits[: self.rerank_depth])
        self.rerank_seconds.append(time.perf_counter() - start)
        again = {self._ids[hit.doc_id]: float(hit.score) for hit in head}
        self.second[query_id] = followed(again, [doc_id for doc_id in self.first[query_id] if doc_id not in again])

    def _filter(self, pool: Collection[str]) -> Any:
        import pyarrow.compute as pc

        if id(pool) not in self._filters:
            self._filters[id(pool)] = pc.field("doc_id").isin(list(pool))
        return self._filters[id(pool)]


def _seen(scores: dict[str, float], grades: Mapping[str, int]) -> dict[str, float]:
    """Return a query's hits, best first, without the tail of a long list that no metric can see."""
    if len(scores) < _UNCUT:
        return scores
    last = max((rank for rank, doc_id in enumerate(scores, 1) if doc_id in grades), default=0)
    return dict(list(scores.items())[: max(_UNCUT, last)])


def _depth(rules: Rules, pool: Mapping[str, Collection[str]], k: int | None, documents: int | None) -> int:
    """Decide how many hits each query gets."""
    deepest = max(measure.k for measure in rules.measures)
    if k is not None:
        if k < max(deepest, 1):
            raise ConfigError(f"k is {k}, but a metric looks at {deepest} hits; expected at least as many")
        return k
    if pool:
        return max(map(len, pool.values()))
    if rules.profile is not None:
        if rules.profile.depth is None and documents is None:
            raise ConfigError(f"profile {rules.profile.name} ranks all documents, whose number is not known; give k")
        wanted = max(rules.profile.depth or documents or 0, deepest)
    else:
        wanted = max(deepest, _UNCUT if any(measure.k == 0 for measure in rules.measures) else _LEAST)
    return wanted if documents is None else max(min(wanted, documents), 1)


def held_documents(retriever: Searcher, qrels: Mapping[str, Mapping[str, int]]) -> set[str] | None:
    """Ask which judged documents can be found; None where the retriever does not say.

    Raises:
        DataError: None of them.
    """
    if not hasattr(retriever, "holds"):
        return None
    judged = {doc_id for grades in qrels.values() for doc_id in grades}
    held: set[str] = retriever.holds(judged)
    if not held:
        raise DataError(
            f"none of the judged documents ({len(judged):,}) can be found, such as {min(judged)!r}; "
            "was the index built from this benchmark's corpus?"
        )
    return held


def _movable(measures: Sequence[Measure], rerank_depth: int) -> list[str]:
    """Return the metrics that a re-ordering of the first hits can change: not those that only count what is found."""
    unordered = ("recall", "precision", "hit_rate")
    return [str(m) for m in measures if m.name not in unordered or 0 < m.k < rerank_depth]


def _blind(rules: Rules, depth: int, pool: Mapping[str, Collection[str]], documents: int | None) -> list[str]:
    """Say which metrics see less of the documents, or more of them, than a reader may think."""
    if pool or documents is None:
        return []
    said = []
    uncut = [str(measure) for measure in rules.measures if measure.k == 0]
    if uncut and depth < documents:
        said.append(f"{', '.join(uncut)} without a cut-off: the first {many(depth, 'hit')} of each query count (-k)")
    wide = [str(measure) for measure in rules.measures if measure.name == "recall" and measure.k * 5 > documents]
    if wide:
        said.append(f"{', '.join(wide)}: of only {many(documents, 'document')}, which makes it easy")
    return said


def _ideal(hits: Mapping[str, float], grades: Mapping[str, int], depth: int) -> dict[str, float]:
    """Re-order the first hits by their grades; the others keep their places below."""
    order = [doc_id for doc_id, _ in ranked(hits)]
    best = {doc_id: 1.0 + max(grades.get(doc_id, 0), 0) for doc_id in order[:depth]}
    return followed(best, order[depth:])


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

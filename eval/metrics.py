"""Metrics: a run and judgements in, numbers out.

The formulas are ranx's (this is the only module that imports it), its input is ours. ranx orders equal scores by
chance of a dictionary, stops at a query without hits or without judgements, compiles without a word, and dies when
two threads call it. So the rules are applied here, before it sees anything: score descending, then doc_id
descending (trec_eval's order); the mean over all judged queries, those without hits at 0; grades below the level
are no gain. Results agree with trec_eval's (`tests/test_metrics.py` compares them to 1e-9).
"""

from __future__ import annotations

import inspect
import logging
import math
import os
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.counts import many
from retrieval.errors import ConfigError, DataError, MissingDependencyError
from retrieval.eval.intervals import Interval, mean_interval
from retrieval.eval.measures import Measure, parse_measures
from retrieval.lines import shown as shown_name
from retrieval.ranking import ranked

log = logging.getLogger(__name__)

DEFAULT_METRICS = ("ndcg@10", "mrr@10", "recall@100")

_SHOWN = 5  # query ids in a message
_LARGEST = 2**53  # grade: gains are added up in float64
_LARGEST_EXPONENT = 1000  # grade of an exponential gain
_running = threading.Lock()  # numba's default threading layer ends the process when two threads are in it


def _new_lock() -> None:
    global _running  # a child must not wait for a thread that it does not have
    _running = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a mean alone would hide.

    Attributes:
        queries: Judged queries; the mean is over these.
        without_hits: Those that the run has nothing for; they score 0.
        without_relevant: Those without a relevant document; they score 0.
        unjudged: Queries of the run without judgements; they are left out.
        missing_documents: Judged documents that the corpus does not hold; None where the corpus is not known.
        identical_ids: Hits whose doc_id is the query's own id.
        ignored_identical: Whether these were left out.
        tied: By cut-off, the queries whose last hit counted has the score of the first one not counted.
    """

    queries: int
    without_hits: tuple[str, ...] = ()
    without_relevant: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    missing_documents: int | None = None
    identical_ids: int = 0
    ignored_identical: bool = False
    tied: Mapping[int, int] = field(default_factory=dict)

    def notices(self) -> list[str]:
        """Say in sentences what a reader should know before trusting a mean."""
        said = []
        if self.without_hits:
            count = many(len(self.without_hits), "judged query has", "judged queries have")
            said.append(f"{count} no hits, counted as 0: {_listed(self.without_hits)}")
        if self.without_relevant:
            count = many(len(self.without_relevant), "judged query has", "judged queries have")
            said.append(f"{count} no relevant document, counted as 0: {_listed(self.without_relevant)}")
        if self.unjudged:
            count = many(len(self.unjudged), "query has", "queries have")
            said.append(f"{count} no judgements, left out: {_listed(self.unjudged)}")
        if self.missing_documents:
            count = many(self.missing_documents, "judged document is", "judged documents are")
            said.append(f"{count} not in the corpus and can never be found")
        if self.identical_ids:
            count = many(self.identical_ids, "hit has", "hits have")
            done = "left out" if self.ignored_identical else "kept (--ignore-identical-ids leaves such hits out)"
            said.append(f"{count} the id of the query: {done}")
        for k, queries in self.tied.items():
            count = many(queries, "query has", "queries have")
            said.append(f"{count} equal scores on both sides of the cut at {k}; the larger doc_id comes first")
        return said

    def to_dict(self) -> dict[str, Any]:
        """Return the counts for `json.dumps`."""
        return {
            "queries": self.queries,
            "without_hits": list(self.without_hits),
            "without_relevant": list(self.without_relevant),
            "unjudged": list(self.unjudged),
            "missing_documents": self.missing_documents,
            "identical_ids": self.identical_ids,
            "ignored_identical": self.ignored_identical,
            "tied": {str(k): count for k, count in self.tied.items()},
        }


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Every metric of every judged query.

    Attributes:
        metrics: Their names, in the order asked for.
        query_ids: In the order of the judgements.
        values: (metrics, queries) float64, in [0, 1].
        counts: What the mean alone would hide.
    """

    metrics: tuple[str, ...]
    query_ids: tuple[str, ...]
    values: np.ndarray
    counts: Counts

    def of(self, metric: str) -> np.ndarray:
        """Return one metric of every query, (queries,) float64.

        Raises:
            ConfigError: No such metric, or one that was not asked for.
        """
        name = metric if metric in self.metrics else str(parse_measures(metric)[0])
        if name not in self.metrics:
            raise ConfigError(f"{name} was not evaluated; there are {', '.join(self.metrics)}")
        row: np.ndarray = self.values[self.metrics.index(name)]
        return row

    def mean(self, metric: str) -> float:
        """Return a metric's mean over the judged queries."""
        return float(self.of(metric).mean())

    def interval(self, metric: str) -> Interval:
        """Estimate where the mean over all such queries lies, 95 % confident; [0, 1] for a single query."""
        return mean_interval(self.of(metric), widest=Interval(low=0.0, high=1.0))

    def means(self) -> dict[str, float]:
        """Return the mean of every metric."""
        return {metric: self.mean(metric) for metric in self.metrics}

    def by_query(self, metric: str) -> dict[str, float]:
        """Return a metric by query_id."""
        return dict(zip(self.query_ids, self.of(metric).tolist(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return means, values by query and counts for `json.dumps`."""
        columns = {metric: self.of(metric).tolist() for metric in self.metrics}
        intervals = {metric: self.interval(metric) for metric in self.metrics}
        return {
            "means": self.means(),
            "confidence_interval_95": {metric: [found.low, found.high] for metric, found in intervals.items()},
            "by_query": {
                query_id: {metric: columns[metric][number] for metric in self.metrics}
                for number, query_id in enumerate(self.query_ids)
            },
            "counts": self.counts.to_dict(),
        }


def evaluate(
    qrels: Mapping[str, Mapping[str, int]],
    run: Mapping[str, Mapping[str, float]],
    metrics: str | Iterable[str | Measure] = DEFAULT_METRICS,
    *,
    relevance_level: int = 1,
    ignore_identical_ids: bool = False,
    doc_ids: Collection[str] | None = None,
) -> Scores:
    """Score a run against judgements.

    Gains of `ndcg` are the grades (linear, Järvelin and Kekäläinen 2002, as trec_eval), of `ndcg_burges` 2^grade - 1
    (Burges et al. 2005). Equal scores are ordered by doc_id, descending; what order the run comes in does not
    matter. The first use of a metric on a machine compiles it, a few seconds, and is announced.

    Args:
        qrels: Grade by doc_id by query_id; `retrieval.read_qrels` reads files. Negative grades are not relevant.
        run: Score by doc_id by query_id, higher is better; `retrieval.read_run` reads files.
        metrics: Names in any common spelling, such as "ndcg@10,mrr@10".
        relevance_level: The smallest grade that is relevant, for metrics that do not say (`mrr@10-l2`).
        ignore_identical_ids: Leave out hits whose doc_id is the query's id, as BEIR does where queries are documents.
        doc_ids: The ids of the corpus, to count judged documents that cannot be found.

    Raises:
        ConfigError: No such metric.
        DataError: No judgements, a grade that is no whole number, a score that is no number, or no query in common.
        MissingDependencyError: ranx is not installed.
    """
    measures = parse_measures(metrics, relevance_level)
    if not qrels:
        raise DataError("no judgements; expected grades by doc_id by query_id")
    if run and not any(query_id in qrels for query_id in run):
        raise DataError(
            f"judgements and run have no query in common: {next(iter(qrels))!r} is a query of the judgements, "
            f"{next(iter(run))!r} of the run"
        )
    depth = None if any(m.k == 0 for m in measures) else max(m.k for m in measures)
    tied = dict.fromkeys(sorted({m.k for m in measures if m.k}), 0)
    judged: list[np.ndarray] = []  # of each query: (its judged documents, 2): number from 1 and grade, best first
    laid_out: list[np.ndarray] = []  # of each query: (hits, 2): number or 0 and a score, best first
    identical = 0
    for query_id, grades in qrels.items():
        hits = run.get(query_id, {})
        if query_id in hits:
            identical += 1
            if ignore_identical_ids:
                hits = {doc_id: score for doc_id, score in hits.items() if doc_id != query_id}
        grades = _whole(query_id, grades)
        ordered = sorted((grade, doc_id) for doc_id, grade in grades.items() if grade >= 0)[::-1]
        numbers = {doc_id: number for number, (_, doc_id) in enumerate(ordered, 1)}
        judged.append(np.array([(number, grade) for number, (grade, _) in enumerate(ordered, 1)], float).reshape(-1, 2))
        descending = _descending(query_id, hits)
        laid_out.append(_laid_out(hits, descending, numbers, depth))
        for k in tied:
            tied[k] += int(len(descending) > k and descending[k - 1] == descending[k])
    counts = Counts(
        queries=len(qrels),
        without_hits=tuple(q for q, rows in zip(qrels, laid_out, strict=True) if not len(rows)),
        without_relevant=tuple(q for q, rows in zip(qrels, judged, strict=True) if not _any(rows, relevance_level)),
        unjudged=tuple(query_id for query_id in run if query_id not in qrels),
        missing_documents=None if doc_ids is None else len({d for g in qrels.values() for d in g if d not in doc_ids}),
        identical_ids=identical,
        ignored_identical=ignore_identical_ids,
        tied={k: count for k, count in tied.items() if count},
    )
    values = np.stack([_values(measure, judged, laid_out) for measure in measures])
    return Scores(metrics=tuple(map(str, measures)), query_ids=tuple(qrels), values=values, counts=counts)


def _whole(query_id: str, grades: Mapping[str, int]) -> dict[str, int]:
    for doc_id, grade in grades.items():
        whole = isinstance(grade, int | np.integer) or (isinstance(grade, float | np.floating) and grade % 1 == 0)
        if not whole:
            raise DataError(f"query {query_id!r}, document {doc_id!r}: the grade {grade!r} is not a whole number")
        if not -_LARGEST <= grade <= _LARGEST:
            raise DataError(f"query {query_id!r}, document {doc_id!r}: the grade {grade!r} is too large to be a gain")
    return {doc_id: int(grade) for doc_id, grade in grades.items()}


def _descending(query_id: str, hits: Mapping[str, float]) -> np.ndarray:
    """Return the scores of a query's hits, best first, (n,) float64."""
    numeric = (float, int, np.floating, np.integer)
    if not all(map(numeric.__contains__, set(map(type, hits.values())))):
        hits = {doc_id: score if isinstance(score, numeric) else math.nan for doc_id, score in hits.items()}
    scores = np.fromiter(hits.values(), np.float64, len(hits))
    if np.isnan(scores).any():
        wrong = next(doc_id for doc_id, score in hits.items() if score != score)
        raise DataError(f"query {query_id!r}, document {wrong!r}: the score is not a number")
    scores.sort()
    return scores[::-1]


def _laid_out(
    hits: Mapping[str, float], descending: np.ndarray, numbers: Mapping[str, int], depth: int | None
) -> np.ndarray:
    """Lay out a query's hits for ranx, best first: (n, 2), the judged document's number, or 0; and 0 for a score.

    Ranks come from the sorted scores; only where a judged document ties is the whole list ordered by id.
    """
    length = len(descending) if depth is None else min(depth, len(descending))
    rows = np.zeros((length, 2))
    found = [doc_id for doc_id in numbers if doc_id in hits]
    if not found or not length:
        return rows
    scores = np.array([hits[doc_id] for doc_id in found], np.float64)
    above = np.searchsorted(-descending, -scores, side="left")
    after = np.searchsorted(-descending, -scores, side="right")
    if (after - above > 1).any():
        for rank, (doc_id, _) in enumerate(ranked(hits)[:length]):
            rows[rank, 0] = numbers.get(doc_id, 0)
        return rows
    for rank, doc_id in zip(above.tolist(), found, strict=True):
        if rank < length:
            rows[rank, 0] = numbers[doc_id]
    return rows


def _any(judged: np.ndarray, level: int) -> bool:
    return bool((judged[:, 1] >= level).any())


def _values(measure: Measure, judged: Sequence[np.ndarray], laid_out: Sequence[np.ndarray]) -> np.ndarray:
    """Compute one metric of every query, (queries,) float64; ranx sees only queries that have something to score."""
    values = np.zeros(len(judged))
    asked = [n for n, rows in enumerate(judged) if len(laid_out[n]) and _any(rows, measure.level)]
    if not asked:
        return values
    if measure.name == "ndcg_burges" and max(rows[:, 1].max() for rows in judged if len(rows)) > _LARGEST_EXPONENT:
        raise DataError(
            f"{measure}: 2^grade is no number for grades above {_LARGEST_EXPONENT}; take ndcg, or map grades"
        )
    kernel = _kernel(measure.name)
    grades = [judged[n] for n in asked]
    if measure.name == "bpref":
        grades = [_with_nonrelevant(rows, measure.level) for rows in grades]
    with _running, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="unsafe cast from uint64 to int64")  # ranx's own loop variable
        values[asked] = kernel(_typed(grades), _typed([laid_out[n] for n in asked]), measure.k, measure.level)
    return values


def _with_nonrelevant(judged: np.ndarray, level: int) -> np.ndarray:
    """Add a document that is never found where none is judged not relevant: bpref divides by their number."""
    if (judged[:, 1] < level).any():
        return judged
    return np.vstack([judged, [len(judged) + 1, 0]])


def _typed(arrays: Sequence[np.ndarray]) -> Any:
    from numba.typed import List

    typed = List()
    for array in arrays:
        typed.append(array)
    return typed


def _kernel(name: str) -> Callable[..., np.ndarray]:
    """Return ranx's function; says so when it has to be compiled, which it does once on a machine."""
    try:
        from ranx.metrics import metric_switch
    except ImportError as error:
        raise MissingDependencyError(
            f'evaluation needs ranx ({error}); install it with: pip install "retrieve-rerank[eval]"'
        ) from error
    function: Callable[..., np.ndarray] = metric_switch(name)
    compiled = [v for n, v in vars(inspect.getmodule(function)).items() if n.endswith("_parallel")]
    kept = [path for d in compiled for path in Path(d.stats.cache_path).glob(f"*.{d.__name__}-*.nbi")]
    if not kept and not any(d.signatures for d in compiled):
        log.warning("compiling ranx's %s for this machine (numba keeps it): some seconds, only this time", name)
    return function


def _listed(query_ids: Sequence[str]) -> str:
    shown = ", ".join(shown_name(query_id) for query_id in query_ids[:_SHOWN])
    return shown if len(query_ids) <= _SHOWN else f"{shown} ..."

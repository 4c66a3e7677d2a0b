"""Metrics: a run and judgements in, numbers out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


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
        """Return one metric of every query, (queries,) float64."""
        return self.values[self.metrics.index(metric)]

    def mean(self, metric: str) -> float:
        """Return a metric's mean over the judged queries."""
        return float(self.of(metric).mean())

    def means(self) -> dict[str, float]:
        """Return the mean of every metric."""
        return {metric: self.mean(metric) for metric in self.metrics}

    def by_query(self, metric: str) -> dict[str, float]:
        """Return a metric by query_id."""
        return dict(zip(self.query_ids, self.of(metric).tolist(), strict=True))

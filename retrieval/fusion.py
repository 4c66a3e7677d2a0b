"""Several rankings of the same queries made one.

Reciprocal rank fusion (Cormack, Clarke and Buettcher 2009) looks at ranks alone. A weighted sum looks at scores,
which have to be made comparable first: each list of a query is normalised on its own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence

from retrieval.counts import many
from retrieval.errors import ConfigError, DataError
from retrieval.ranking import ranked

logger = logging.getLogger(__name__)

METHODS = ("rrf", "wsum")
_LARGEST = 1e100  # scores and weights up to this size can be multiplied, squared and added without overflow


def fuse(
    runs: Sequence[Mapping[str, Mapping[str, float]]],
    *,
    method: str = "rrf",
    weights: Sequence[float] | None = None,
    normalization: str = "min-max",
    rrf_k: int = 60,
    k: int | None = None,
) -> dict[str, dict[str, float]]:
    """Merge runs into one, query by query.

    `rrf` scores a document by the sum of weight / (rrf_k + rank) over the runs that have it; ranks count from 1 in
    the total order (score, then doc_id, both descending). `wsum` adds weight * normalised score. In both a run that
    lacks a document adds 0.

    How `wsum` normalises the scores s of one query in one run; a list of equal scores is the special case:

    - `min-max`: (s - min) / (max - min); equal ones are 1 (ranx: 0, as if the document were absent).
    - `max`: s / max; a best score below 0 is refused, since it would turn the order round, as is 0 unless all are 0.
    - `sum`: (s - min) / sum of all (s - min); equal ones are 1 / n (ranx: 0).
    - `zmuv`: (s - mean) / standard deviation (of the population); equal ones are 0.
    - `rank`: 1 - (rank - 1) / n, with ranks in the total order (ranx: in the order of the file).
    - `none`: s.

    Differences below 1e-9 count as they are (ranx divides by 1e-9 at least).

    Args:
        runs: Score by doc_id, by query_id; at least two. A query that some lack is fused from the others, and one
            warning counts those queries.
        method: `rrf` or `wsum`.
        weights: One for each run, not negative, not all 0; None: 1 each.
        normalization: For `wsum` only: one of the above.
        rrf_k: For `rrf` only: the larger, the less the first ranks count; at least 0.
        k: Documents kept for each query; None: all.

    Returns:
        Score by doc_id, by query_id, in the total order. Neither depends on the order of the runs (each with its
        weight) or of what they hold.

    Raises:
        ConfigError: A setting that cannot be used, or fewer than two runs.
        DataError: A score that is not a number, or that the normalisation cannot take; names run, query and document.
    """
    given = _checked_weights(weights, len(runs))
    if method not in METHODS:
        raise ConfigError(f"no fusion method {method!r}; expected one of {', '.join(METHODS)}")
    if normalization not in NORMALIZATIONS:
        raise ConfigError(f"no normalisation {normalization!r}; expected one of {', '.join(NORMALIZATIONS)}")
    if k is not None and k < 1:
        raise ConfigError(f"k {k}: expected at least 1")
    if rrf_k < 0:
        raise ConfigError(f"rrf_k {rrf_k}: expected at least 0; 60 is usual")
    query_ids = list(dict.fromkeys(query_id for run in runs for query_id in run))
    partial = sum(any(query_id not in run for run in runs) for query_id in query_ids)
    if partial:
        total = many(len(query_ids), "query")
        logger.warning("not in every run, and fused from the runs that have them: %d of %s", partial, total)
    return {
        query_id: dict(
            _fused([run.get(query_id, {}) for run in runs], given, method, normalization, rrf_k, query_id)[:k]
        )
        for query_id in query_ids
    }


def _fused(
    lists: Sequence[Mapping[str, float]],
    weights: Sequence[float],
    method: str,
    normalization: str,
    rrf_k: int,
    query_id: str,
) -> list[tuple[str, float]]:
    """Merge one query's lists."""
    parts: dict[str, list[float]] = {}
    for number, (scores, weight) in enumerate(zip(lists, weights, strict=True), start=1):
        where = f"run {number}, query {query_id!r}"
        hits = _ordered(scores, where)
        if hits:
            values = _reciprocal_ranks(len(hits), rrf_k) if method == "rrf" else _normalized(hits, normalization, where)
            for (doc_id, _), value in zip(hits, values, strict=True):
                parts.setdefault(doc_id, []).append(weight * value)
    # fsum rounds once, so equal sums stay equal in whatever order the runs come
    return _ordered({doc_id: math.fsum(values) for doc_id, values in parts.items()}, f"query {query_id!r}")


def _checked_weights(weights: Sequence[float] | None, runs: int) -> Sequence[float]:
    if runs < 2:
        raise ConfigError(f"fusion needs at least two runs; given: {runs}")
    if weights is None:
        return [1.0] * runs
    if len(weights) != runs:
        raise ConfigError(f"{len(weights)} weights for {runs} runs; expected one for each")
    if not all(0 <= weight <= _LARGEST for weight in weights) or not any(weights):
        given = ", ".join(map(str, weights))
        raise ConfigError(f"weights {given}: expected numbers from 0 to {_LARGEST:g}, not all of them 0")
    return weights


def _ordered(scores: Mapping[str, float], where: str) -> list[tuple[str, float]]:
    for doc_id, score in scores.items():
        if score != score:
            raise DataError(f"{where}, document {doc_id!r}: the score is not a number")
    return ranked(scores)


def _reciprocal_ranks(hits: int, k: int) -> list[float]:
    return [1 / (k + rank) for rank in range(1, hits + 1)]


def _normalized(hits: Sequence[tuple[str, float]], normalization: str, where: str) -> list[float]:
    """Return the normalised score of each hit, in their order."""
    scores = [float(score) for _, score in hits]
    if normalization != "rank":
        for doc_id, score in (hits[0], hits[-1]):  # the largest and the smallest
            if abs(score) > _LARGEST:
                raise DataError(
                    f"{where}, document {doc_id!r}: the score {score} is too large to be added up "
                    f"(normalisation {normalization!r}); use method 'rrf' or normalisation 'rank'"
                )
    if normalization == "max" and scores[0] <= 0 and scores[-1] < 0:
        raise DataError(
            f"{where}: the best score is {scores[0]}; normalisation 'max' needs one above 0, use 'min-max' instead"
        )
    return _NORMALIZED_BY[normalization](scores)


# Each takes one query's scores, best first, at least one.


def _min_max(scores: Sequence[float]) -> list[float]:
    best, worst = scores[0], scores[-1]
    return [(score - worst) / (best - worst) if best > worst else 1.0 for score in scores]


def _max(scores: Sequence[float]) -> list[float]:
    return [score / scores[0] if scores[0] else 0.0 for score in scores]


def _sum(scores: Sequence[float]) -> list[float]:
    above = [score - scores[-1] for score in scores]
    total = math.fsum(above)
    return [part / total if total else 1 / len(scores) for part in above]


def _zmuv(scores: Sequence[float]) -> list[float]:
    mean = math.fsum(scores) / len(scores)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
    if scores[0] == scores[-1] or not deviation:
        return [0.0] * len(scores)
    return [(score - mean) / deviation for score in scores]


def _rank(scores: Sequence[float]) -> list[float]:
    return [1 - place / len(scores) for place in range(len(scores))]


_NORMALIZED_BY: Mapping[str, Callable[[Sequence[float]], list[float]]] = {
    "min-max": _min_max,
    "max": _max,
    "sum": _sum,
    "zmuv": _zmuv,
    "rank": _rank,
    "none": list,
}
NORMALIZATIONS = tuple(_NORMALIZED_BY)

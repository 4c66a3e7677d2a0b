"""Where the mean of a metric lies, as far as the queries seen can tell: Student's t."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from retrieval.errors import MissingDependencyError

LEVEL = 0.95
ROUNDING = 1e-12  # two values of a metric that differ by less are one value, computed in another order


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A 95 % confidence interval of a mean, in the unit of the values."""

    low: float
    high: float


def mean_interval(values: np.ndarray, *, widest: Interval) -> Interval:
    """Estimate where the mean over all such queries lies: mean -/+ t * s / sqrt(n).

    The interval is symmetric and not cut at 0 and 1: an end beyond them shows that the queries are too few or
    too alike for this approximation, which a cut would hide.

    Args:
        values: (queries,) float64, finite, at least one.
        widest: The interval of a single value, which says nothing of the spread.

    Raises:
        MissingDependencyError: scipy is not installed.
    """
    if len(values) == 1:
        return widest
    mean = float(values.mean())
    spread = 0.0 if constant(values) else float(values.std(ddof=1))
    half = float(stats().t.ppf((1 + LEVEL) / 2, len(values) - 1)) * spread / len(values) ** 0.5
    return Interval(low=mean - half, high=mean + half)


def constant(values: np.ndarray) -> bool:
    """Whether all values are one, but for rounding."""
    return bool(np.ptp(values) <= ROUNDING)


def stats() -> Any:
    """Return scipy.stats.

    Raises:
        MissingDependencyError: scipy is not installed.
    """
    try:
        from scipy import stats
    except ImportError as error:
        raise MissingDependencyError(
            f'evaluation needs scipy ({error}); install it with: pip install "retrieve-rerank[eval]"'
        ) from error
    return stats

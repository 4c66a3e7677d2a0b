"""Whether one system is better than another: paired tests over the same queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations

import numpy as np

from retrieval.errors import ConfigError, DataError
from retrieval.eval.intervals import ROUNDING, Interval, constant, mean_interval, stats
from retrieval.eval.measures import parse_measures
from retrieval.eval.metrics import Scores

SIGNIFICANT = 0.05
"""The p-value below which a difference is taken for more than chance."""

_EXACT = 16  # up to so many queries that differ, all patterns of signs are tried


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One system against a baseline, by one metric, paired over the same queries.

    All p-values are two-sided. A single query says nothing of the spread: its p-values are 1, its interval is
    all that a difference can be, [-1, 1]. Where all queries differ by the same amount, p_student is 0.

    Attributes:
        metric: Its canonical name.
        baseline: A system's name.
        system: Another's.
        queries: How many both were judged on.
        baseline_mean: The metric's mean over the queries.
        system_mean: The same of the system.
        difference: Mean over queries of system - baseline.
        low: Lower end of the 95 % confidence interval of the difference, by Student's t.
        high: Its upper end.
        effect_size: Cohen's d_z: the difference / its (sample) standard deviation over queries; 0 where that is 0.
        p_student: Of the paired t-test.
        p_randomization: Of the randomisation test: how often chance signs differ at least as much.
        p_student_holm: The same, corrected by Holm's method for all rows of the table.
        p_randomization_holm: The same.
        wins: Queries where the system is better.
        ties: Queries with equal values.
        losses: Queries where the baseline is better.
    """

    metric: str
    baseline: str
    system: str
    queries: int
    baseline_mean: float
    system_mean: float
    difference: float
    low: float
    high: float
    effect_size: float
    p_student: float
    p_randomization: float
    p_student_holm: float
    p_randomization_holm: float
    wins: int
    ties: int
    losses: int

    @property
    def better(self) -> bool:
        """Whether the system is better than the baseline, and not by chance (randomisation test, p < .05)."""
        return self.difference > 0 and self.p_randomization < SIGNIFICANT

    def to_dict(self) -> dict[str, str | int | float]:
        """Return plain numbers by name, none of them NaN or infinite."""
        return asdict(self)


def compare(
    systems: Mapping[str, Scores],
    metrics: Sequence[str] | None = None,
    *,
    all_pairs: bool = False,
    permutations: int = 100_000,
    seed: int = 0,
) -> tuple[Comparison, ...]:
    """Test each system against the first one, or every two, paired over the same queries.

    Args:
        systems: Scores by name, at least two, of the same queries in the same order.
        metrics: Those to compare by, in any spelling; None: all that the systems have, which must be the same.
        all_pairs: Compare every two systems; the earlier one is the baseline.
        permutations: Samples of the randomisation test. Where few queries differ (16 or fewer) it is exact.
        seed: Of the samples. The same input and seed give the same p-values.

    Returns:
        A row for each metric and pair, by metric first.

    Raises:
        ConfigError: Fewer than two systems, a metric that one lacks, or a setting that cannot be used.
        DataError: Systems on different queries.
        MissingDependencyError: scipy is not installed.
    """
    if len(systems) < 2:
        given = ", ".join(map(repr, systems)) or "none"
        raise ConfigError(f"a comparison needs at least two systems; given: {given}")
    for name, scores in systems.items():
        if not isinstance(scores, Scores):
            raise ConfigError(f"system {name!r} is {type(scores).__name__}; expected the Scores that evaluate returns")
    if permutations < 1 or seed < 0:
        raise ConfigError(f"permutations {permutations}, seed {seed}: expected at least 1 and at least 0")
    first, *others = systems
    for name in others:
        _check_queries(first, systems[first], name, systems[name])
    names = _shared_metrics(systems) if metrics is None else [str(metric) for metric in parse_measures(metrics)]
    pairs = list(combinations(systems, 2)) if all_pairs else [(first, name) for name in others]
    rows: list[Comparison] = []
    for metric in names:
        values = {name: scores.of(metric) for name, scores in systems.items()}
        rows += [_compared(metric, one, two, values, permutations, seed) for one, two in pairs]
    student = _holm([row.p_student for row in rows])
    randomization = _holm([row.p_randomization for row in rows])
    return tuple(
        replace(row, p_student_holm=by_t, p_randomization_holm=by_signs)
        for row, by_t, by_signs in zip(rows, student, randomization, strict=True)
    )


def differences(baseline: Scores, system: Scores, metric: str) -> list[tuple[str, float]]:
    """Return system - baseline by query_id: the largest gain first, the largest loss last, equal ones by query_id.

    Raises:
        ConfigError: A metric that one of them lacks.
        DataError: Different queries.
    """
    _check_queries("baseline", baseline, "system", system)
    changes = _differences(baseline.of(metric), system.of(metric))
    return sorted(zip(baseline.query_ids, changes.tolist(), strict=True), key=lambda change: (-change[1], change[0]))


def _check_queries(one: str, scores: Scores, two: str, others: Scores) -> None:
    """Make sure that two systems can be paired query by query."""
    if scores.query_ids == others.query_ids:
        return
    known, found = set(scores.query_ids), set(others.query_ids)
    for name, ids, lacking, lacks in ((one, scores.query_ids, two, found), (two, others.query_ids, one, known)):
        alone = [query_id for query_id in ids if query_id not in lacks]
        if alone:
            raise DataError(
                f"systems {one!r} and {two!r} were judged on different queries: {len(alone)} of {name!r} are not "
                f"in {lacking!r}, such as {alone[0]!r}; evaluate both with the same judgements"
            )
    raise DataError(
        f"systems {one!r} and {two!r} hold the same queries in another order or number; "
        "evaluate both with the same judgements"
    )


def _shared_metrics(systems: Mapping[str, Scores]) -> tuple[str, ...]:
    """Return the metrics of the first system, which all others must have, and no more."""
    first = next(iter(systems))
    metrics = systems[first].metrics
    for name, scores in systems.items():
        odd = set(metrics) ^ set(scores.metrics)
        if odd:
            raise ConfigError(
                f"systems {first!r} and {name!r} have different metrics: only one of them has "
                f"{', '.join(sorted(odd))}; name the metrics to compare by"
            )
    return metrics


def _differences(baseline: np.ndarray, system: np.ndarray) -> np.ndarray:
    """Return system - baseline, (queries,) float64; exactly 0 where only rounding differs."""
    changes = system - baseline
    return np.where(np.abs(changes) <= ROUNDING, 0.0, changes)


def _compared(
    metric: str, baseline: str, system: str, values: Mapping[str, np.ndarray], permutations: int, seed: int
) -> Comparison:
    """Compare two systems by one metric; the corrected p-values are those of a table of one row."""
    changes = _differences(values[baseline], values[system])
    interval = mean_interval(changes, widest=Interval(low=-1.0, high=1.0))
    by_t, by_signs = _p_student(changes), _p_randomization(changes, permutations, seed)
    return Comparison(
        metric=metric,
        baseline=baseline,
        system=system,
        queries=len(changes),
        baseline_mean=float(values[baseline].mean()),
        system_mean=float(values[system].mean()),
        difference=float(changes.mean()),
        low=interval.low,
        high=interval.high,
        effect_size=0.0 if constant(changes) else float(changes.mean() / changes.std(ddof=1)),
        p_student=by_t,
        p_randomization=by_signs,
        p_student_holm=by_t,
        p_randomization_holm=by_signs,
        wins=int((changes > 0).sum()),
        ties=int((changes == 0).sum()),
        losses=int((changes < 0).sum()),
    )


def _p_student(changes: np.ndarray) -> float:
    """Test whether the mean is 0 by Student's t; on differences this is the paired test."""
    if constant(changes):  # no spread: scipy would warn, and divide by 0
        return 0.0 if len(changes) > 1 and changes.any() else 1.0
    return float(stats().ttest_rel(changes, np.zeros_like(changes)).pvalue)


def _p_randomization(changes: np.ndarray, permutations: int, seed: int) -> float:
    """Fisher's randomisation test, two-sided: flip the sign of each query's difference by chance.

    Smucker, Allan and Carterette 2007. (ranx 0.3.21 has the test, but its seed has no effect.) All patterns of
    signs count where they are few; else (hits + 1) / (samples + 1), which is never 0: the pattern seen is one
    of those possible.

    Takes 8 bytes of memory a permutation, and no more for more queries.
    """
    moved = changes[changes != 0]  # a sign does nothing to 0
    exact = len(moved) <= _EXACT
    sums = _all_sums(moved) if exact else _random_sums(moved, permutations, np.random.default_rng(seed))
    rounding = ROUNDING * np.abs(moved).sum()  # a sum added up in another order is the same sum
    hits = int((np.abs(sums) >= abs(moved.sum()) - rounding).sum())
    return hits / len(sums) if exact else (hits + 1) / (len(sums) + 1)


def _all_sums(changes: np.ndarray) -> np.ndarray:
    """Return the sum under every pattern of signs, (2 ** n,) float64."""
    sums = np.zeros(1)
    for change in changes:
        sums = np.concatenate((sums + change, sums - change))
    return sums


def _random_sums(changes: np.ndarray, permutations: int, rng: np.random.Generator) -> np.ndarray:
    """Return the sum under random signs, (permutations,) float64.

    The signs of eight queries are one random byte, which looks their sum up in a table of 256.
    """
    signs = 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) - 1  # (256, 8)
    eights = np.pad(changes, (0, -len(changes) % 8)).reshape(-1, 8)
    sums = np.zeros(permutations)
    for eight in eights:
        sums += (signs @ eight)[rng.integers(256, size=permutations, dtype=np.uint8)]
    return sums


def _holm(p_values: Sequence[float]) -> list[float]:
    """Correct for several tests (Holm 1979): the i-th smallest times (n - i + 1), never below a smaller one's."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for place, row in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[row]))
        corrected[row] = largest
    return corrected

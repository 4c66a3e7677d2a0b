"""Paired comparison of systems: values worked out by hand, and scipy's and ranx's tests beside ours."""

from __future__ import annotations

import itertools
import json
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from retrieval.errors import ConfigError, DataError
from retrieval.eval.comparison import (
    Comparison,
    Interval,
    _holm,
    _random_sums,
    compare,
    differences,
)
from retrieval.eval.metrics import Counts, Scores


def scores(*rows: Sequence[float], metrics: Sequence[str] = ("ndcg@10", "mrr@10"), first: int = 0) -> Scores:
    """Scores of one metric for each row, of the queries q<first>, q<first + 1>, ..."""
    values = np.array(rows, dtype=np.float64)
    return Scores(
        metrics=tuple(metrics[: len(rows)]),
        query_ids=tuple(f"q{number}" for number in range(first, first + values.shape[1])),
        values=values,
        counts=Counts(queries=values.shape[1]),
    )


def row(baseline: Sequence[float], system: Sequence[float], permutations: int = 100_000, seed: int = 0) -> Comparison:
    (found,) = compare({"a": scores(baseline), "b": scores(system)}, permutations=permutations, seed=seed)
    return found


# ---------------------------------------------------------------- golden values


def test_a_row_worked_out_by_hand() -> None:
    """Differences .1 .2 .3 .4 -.5: mean .1, sample variance (0 + .01 + .04 + .09 + .36) / 4 = .125.

    t = .1 / sqrt(.125 / 5) = .632456; t(.975, 4) = 2.776445. Of 32 patterns of signs, the sum is within -.4 .. .4
    (exclusive) for those whose positive part p (of 1.5) has |2 p - 1.5| < .5, so .5 < p < 1: the subsets of
    {.1 .2 .3 .4 .5} with sum .6 (three: .1+.5, .2+.4, .1+.2+.3), .7 (.2+.5, .3+.4, .1+.2+.4), .8 (.3+.5, .1+.2+.5,
    .1+.3+.4), .9 (.4+.5, .1+.3+.5, .2+.3+.4): 12. The other 20 are at least as far out: p = 20 / 32.
    """
    found = row([0.5, 0.5, 0.5, 0.5, 0.5], [0.6, 0.7, 0.8, 0.9, 0.0])
    assert (found.metric, found.baseline, found.system, found.queries) == ("ndcg@10", "a", "b", 5)
    assert (found.wins, found.ties, found.losses) == (4, 0, 1)
    assert found.p_randomization == 20 / 32
    close = pytest.approx
    assert found.baseline_mean == 0.5 and found.system_mean == close(0.6, abs=1e-12)
    assert found.difference == close(0.1, abs=1e-12)
    assert found.effect_size == close(0.1 / math.sqrt(0.125), abs=1e-12)
    half = 2.7764451 * math.sqrt(0.125 / 5)
    assert (found.low, found.high) == (close(0.1 - half, abs=1e-7), close(0.1 + half, abs=1e-7))
    assert found.p_student == close(2 * stats.t.sf(0.1 / math.sqrt(0.125 / 5), 4), abs=1e-12)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # .03 * 2 = .06 holds .04 * 1 up
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.0, 0.2, 0.2], [0.0, 0.4, 0.4]),
        ([0.03], [0.03]),
        ([], []),
    ],
)
def test_holm(given: list[float], expected: list[float]) -> None:
    assert _holm(given) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_the_closed_bonferroni_test(p_values: list[float]) -> None:
    """Holm's corrected p: the largest Bonferroni p, n * min, over all sets of the hypotheses that hold this one."""
    rows = range(len(p_values))
    sets = [s for n in rows for s in itertools.combinations(rows, n + 1)]
    expected = [max(min(1.0, len(s) * min(p_values[i] for i in s)) for s in sets if one in s) for one in rows]
    assert _holm(p_values) == pytest.approx(expected)


def test_holm_counts_all_rows_and_each_test_on_its_own() -> None:
    rng = np.random.default_rng(5)
    systems = {name: scores(*rng.random((2, 30)) + shift) for name, shift in (("a", 0.0), ("b", 0.1), ("c", 0.3))}
    rows = compare(systems, all_pairs=True, permutations=1000)
    assert [(r.metric, r.baseline, r.system) for r in rows] == [
        (metric, *pair) for metric in ("ndcg@10", "mrr@10") for pair in itertools.combinations("abc", 2)
    ]
    assert [r.p_student_holm for r in rows] == _holm([r.p_student for r in rows])
    assert [r.p_randomization_holm for r in rows] == _holm([r.p_randomization for r in rows])
    assert any(r.p_student_holm > r.p_student for r in rows)
    assert [r.p_student_holm for r in rows] != [r.p_randomization_holm for r in rows]


def test_the_first_is_the_baseline_of_all_others() -> None:
    systems = {name: scores([0.1, 0.5], [0.2, 0.9]) for name in ("base", "x", "y")}
    assert [(r.metric, r.baseline, r.system) for r in compare(systems)] == [
        ("ndcg@10", "base", "x"),
        ("ndcg@10", "base", "y"),
        ("mrr@10", "base", "x"),
        ("mrr@10", "base", "y"),
    ]
    named = compare(systems, ["MRR@10", "recip_rank@10"])
    assert [r.metric for r in named] == ["mrr@10", "mrr@10"], "one metric, however often it is named"


# ---------------------------------------------------------------- no spread, one query


@pytest.mark.parametrize("queries", [1, 2, 300])
def test_equal_systems_differ_by_nothing_for_sure(queries: int) -> None:
    values = np.random.default_rng(0).random(queries).tolist()
    found = row(values, values)
    assert (found.p_student, found.p_randomization, found.effect_size, found.difference) == (1.0, 1.0, 0.0, 0.0)
    assert (found.wins, found.ties, found.losses) == (0, queries, 0)
    assert (found.low, found.high) == ((-1.0, 1.0) if queries == 1 else (0.0, 0.0))


def test_rounding_is_no_difference() -> None:
    found = row([0.3, 0.1 + 0.2, 0.5], [0.1 + 0.2, 0.3, 0.5])
    assert (found.wins, found.ties, found.losses, found.p_student, found.p_randomization) == (0, 3, 0, 1.0, 1.0)


def test_the_same_gain_everywhere_has_no_spread() -> None:
    """.3 - .2 and .8 - .7 differ in the last bit; that is no spread."""
    found = row([0.2, 0.7, 0.4], [0.3, 0.8, 0.5])
    assert (found.p_student, found.effect_size, found.wins) == (0.0, 0.0, 3)
    assert found.low == found.high == found.difference == pytest.approx(0.1)
    assert found.p_randomization == 2 / 8


def test_one_query_proves_nothing() -> None:
    found = row([0.1], [0.9])
    assert (found.p_student, found.p_randomization, found.effect_size) == (1.0, 1.0, 0.0)
    assert (found.low, found.high) == (-1.0, 1.0)
    assert scores([0.4]).interval("ndcg@10") == Interval(low=0.0, high=1.0)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(*[st.sampled_from([0.0, 0.1, 0.3, 1 / 3, 0.5, 1.0]) | st.floats(0, 1)] * 2), min_size=1, max_size=30
    )
)
def test_a_row_is_json_and_its_parts_agree(pairs: list[tuple[float, float]]) -> None:
    one, two = zip(*pairs, strict=True)
    found = row(one, two, permutations=200)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    assert found.wins + found.ties + found.losses == found.queries == len(pairs)
    assert found.low <= found.difference <= found.high
    if found.queries > 1 and found.effect_size:  # the interval and the test are one statement
        assert (found.low > 0 or found.high < 0) == (found.p_student < 0.05)
    back = row(two, one, permutations=200)
    assert back.p_randomization == found.p_randomization and back.difference == -found.difference
    assert (back.wins, back.losses) == (found.losses, found.wins)


# ---------------------------------------------------------------- oracles


def test_student_is_scipys_and_ranxs() -> None:
    from ranx.statistical_tests import paired_student_t_test

    rng = np.random.default_rng(1)
    one, two = rng.random((2, 100))
    found = row(one, two)
    theirs = stats.ttest_rel(two, one)
    assert found.p_student == pytest.approx(theirs.pvalue, rel=1e-9)
    assert found.p_student == pytest.approx(paired_student_t_test(one, two)[0], rel=1e-9)
    interval = theirs.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    ours = scores(one).interval("ndcg@10")
    low, high = stats.t.interval(0.95, 99, one.mean(), stats.sem(one))
    assert (ours.low, ours.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("queries", [2, 3, 7, 12, 16])
@pytest.mark.parametrize("grid", [0.1, 0.25, 1e-6])
def test_few_queries_are_exact(queries: int, grid: float) -> None:
    """Coarse values give many equal sums, which rounding must not tell apart; scipy tries all patterns too."""
    rng = np.random.default_rng(queries)
    one, two = np.round(rng.random((2, queries)) / grid) * grid
    theirs = stats.permutation_test(
        (np.round((two - one) / grid),), lambda d: abs(d.sum()), permutation_type="samples", alternative="greater",
        n_resamples=2**queries, vectorized=False,
    )  # fmt: skip
    assert row(one, two).p_randomization == pytest.approx(theirs.pvalue, abs=1e-12)


def test_samples_find_the_exact_value() -> None:
    """17 queries are sampled; all 2^17 patterns counted here in whole numbers. Five standard errors of slack."""
    steps = np.random.default_rng(3).integers(1, 6, 17) * np.array([1, 1, -1] * 5 + [1, 1])
    patterns = 2 * np.unpackbits(np.arange(2**17, dtype=">u4").view(np.uint8).reshape(-1, 4), axis=1)[:, 15:] - 1.0
    exact = float((np.abs(patterns @ steps) >= abs(steps.sum())).mean())
    assert 0.02 < exact < 0.98
    found = row(np.full(17, 0.5), 0.5 + steps / 10).p_randomization
    assert found != exact, "not sampled"
    assert found == pytest.approx(exact, abs=5 * math.sqrt(exact * (1 - exact) / 100_000))


def test_every_pattern_of_signs_is_as_likely() -> None:
    """Nine powers of two: each of the 512 patterns has its own sum, to be seen 200 times; five deviations of slack."""
    changes = 2.0 ** np.arange(9)
    sums, seen = np.unique(_random_sums(changes, 512 * 200, np.random.default_rng(0)), return_counts=True)
    assert sums.tolist() == list(range(-511, 512, 2))
    assert abs(seen - 200).max() < 5 * math.sqrt(200)


def test_queries_without_a_difference_change_nothing() -> None:
    few = row([0.5, 0.5, 0.5], [0.6, 0.7, 0.4])  # sums of +-.1 +-.2 +-.1: twice .4, four times .2, twice 0
    many = row([0.5] * 50, [0.6, 0.7, 0.4] + [0.5] * 47)
    assert few.p_randomization == many.p_randomization == 6 / 8
    assert (many.wins, many.ties, many.losses) == (2, 47, 1)


def test_samples_agree_with_ranx() -> None:
    from numba.core.errors import NumbaTypeSafetyWarning
    from ranx.statistical_tests import fisher_randomization_test

    rng = np.random.default_rng(0)
    one = rng.random(203)  # not a multiple of eight
    two = np.clip(one + rng.normal(0.04, 0.2, 203), 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumbaTypeSafetyWarning)  # in ranx's own loop
        theirs, _ = fisher_randomization_test(one, two, 20_000)
    assert 0.02 < theirs < 0.5
    slack = 5 * math.sqrt(theirs * (1 - theirs) * (1 / 20_000 + 1 / 100_000))
    assert row(one, two).p_randomization == pytest.approx(theirs, abs=slack)


def test_samples_are_a_function_of_the_seed() -> None:
    one, two = np.random.default_rng(2).random((2, 50))
    first, again, other = (row(one, two, 1000, seed).p_randomization for seed in (1, 1, 2))
    assert first == again != other
    both = compare({"a": scores(two, one), "b": scores(one, two)}, permutations=1000, seed=1)
    assert both[1].p_randomization == first, "what else is in the table does not matter"


def test_a_sampled_p_is_never_zero() -> None:
    found = row(np.zeros(40), np.linspace(0.5, 1, 40), permutations=999)
    assert found.p_randomization == 1 / 1000


def test_many_queries_take_seconds_at_most() -> None:
    one, two = np.random.default_rng(4).random((2, 7000))
    start = time.perf_counter()
    found = row(one, two)
    assert time.perf_counter() - start < 10  # .4 s on a quiet core
    assert found.p_randomization == pytest.approx(found.p_student, abs=0.01)


# ---------------------------------------------------------------- per-query differences


def test_queries_that_gained_and_lost_most() -> None:
    one = replace(scores([0.5, 0.5, 0.5, 0.3, 0.5]), query_ids=("q2", "q4", "q0", "q3", "q1"))
    two = replace(scores([0.4, 1.0, 0.4, 0.1 + 0.2, 1.0]), query_ids=one.query_ids)
    changes = differences(one, two, "nDCG@10")
    assert [query_id for query_id, _ in changes] == ["q1", "q4", "q3", "q0", "q2"]
    assert [value for _, value in changes] == pytest.approx([0.5, 0.5, 0.0, -0.1, -0.1])
    assert changes[2] == ("q3", 0.0)
    with pytest.raises(DataError, match="different queries"):
        differences(one, scores([0.5] * 5, first=1), "ndcg@10")


def test_an_interval_is_not_cut_at_one() -> None:
    found = scores([1.0, 1.0, 1.0, 0.6]).interval("ndcg@10")
    assert found.high > 1 and found.low + found.high == pytest.approx(2 * 0.9)
    assert scores([0.3] * 10).interval("ndcg@10") == Interval(low=pytest.approx(0.3), high=pytest.approx(0.3))


# ---------------------------------------------------------------- what cannot be compared


@pytest.mark.parametrize(
    ("systems", "error", "says"),
    [
        ({}, ConfigError, "at least two systems; given: none"),
        ({"a": scores([0.5])}, ConfigError, "at least two systems; given: 'a'"),
        ({"a": scores([0.5, 0.5]), "b": scores([0.5])}, DataError, "1 of 'a' are not in 'b', such as 'q1'"),
        ({"a": scores([0.5]), "b": scores([0.5, 0.5])}, DataError, "1 of 'b' are not in 'a', such as 'q1'"),
        ({"a": scores([0.5]), "b": scores([0.5], [0.5])}, ConfigError, "only one of them has mrr@10"),
    ],
)  # fmt: skip
def test_systems_that_do_not_match(systems: dict[str, Scores], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        compare(systems)
    assert "\n" not in str(caught.value)


def test_the_order_of_queries_is_not_guessed() -> None:
    one = scores([0.1, 0.2])
    two = replace(one, query_ids=one.query_ids[::-1])
    with pytest.raises(DataError, match="in another order"):
        compare({"a": one, "b": two})


def test_settings_that_cannot_be_used() -> None:
    two = {"a": scores([0.5, 0.1]), "b": scores([0.5, 0.2], [0.1, 0.1])}
    assert len(compare(two, ["ndcg@10"])) == 1, "metrics that are named need not be all"
    with pytest.raises(ConfigError, match="mrr@10 was not evaluated; there are ndcg@10"):
        compare(two, ["mrr@10"])
    with pytest.raises(ConfigError, match="permutations 0"):
        compare(two, ["ndcg@10"], permutations=0)
    with pytest.raises(ConfigError, match="seed -1"):
        compare(two, ["ndcg@10"], seed=-1)

"""Fusion of runs: values worked out by hand, ranx beside ours, and what must not matter."""

from __future__ import annotations

import io
import itertools
import logging
import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.errors import ConfigError, DataError
from retrieval.fusion import fuse
from retrieval.runs import read_run, write_run

Run = dict[str, dict[str, float]]

NORMALIZATIONS = ("min-max", "max", "sum", "zmuv", "rank", "none")
WAYS = [("rrf", "none"), *(("wsum", name) for name in NORMALIZATIONS)]

DOC_IDS = st.sampled_from(["1", "10", "9", "a", "B", "é", "d7"])
SCORES = st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 1.0, 7.0]) | st.floats(0, 1e6)  # 0 or more: `max` takes them too
RUNS = st.dictionaries(st.sampled_from(["q1", "q2"]), st.dictionaries(DOC_IDS, SCORES, max_size=7), max_size=2)


def one_query(*lists: Mapping[str, float]) -> list[Run]:
    return [{"q": dict(scores)} for scores in lists]


# ---------------------------------------------------------------- golden values


def test_reciprocal_ranks_by_hand() -> None:
    """y: 1/62 + 1/61. x and w stand in one list each, at ranks 1 and 2; z is third."""
    runs = one_query({"z": 0.5, "x": 3.0, "y": 2.0}, {"w": 0.3, "y": 1.0})
    assert list(fuse(runs)["q"].items()) == [("y", 1 / 62 + 1 / 61), ("x", 1 / 61), ("w", 1 / 62), ("z", 1 / 63)]
    assert list(fuse(runs, rrf_k=0)["q"].items()) == [("y", 1.5), ("x", 1.0), ("w", 0.5), ("z", 1 / 3)]
    assert list(fuse(runs, weights=[1, 3], rrf_k=0)["q"].items()) == [("y", 3.5), ("w", 1.5), ("x", 1.0), ("z", 1 / 3)]


def test_the_best_k_are_kept() -> None:
    runs = one_query({"z": 0.5, "x": 3.0, "y": 2.0}, {"w": 0.3, "y": 1.0})
    assert list(fuse(runs, k=2)["q"]) == ["y", "x"] == list(fuse(runs)["q"])[:2]
    with pytest.raises(ConfigError, match="k 0"):
        fuse(runs, k=0)


def test_equal_scores_are_ranked_by_id_descending() -> None:
    assert list(fuse(one_query({"10": 1.0, "9": 1.0}, {"10": 5.0}), rrf_k=1)["q"].items()) == [
        ("10", 1 / 3 + 1 / 2),
        ("9", 1 / 2),
    ]
    assert list(fuse(one_query({"10": 1.0}, {"9": 1.0}))["q"].items()) == [("9", 1 / 61), ("10", 1 / 61)]


@pytest.mark.parametrize(
    ("normalization", "expected"),
    [
        ("min-max", {"a": 1.0, "b": 0.25, "c": 0.0}),
        ("max", {"a": 1.0, "b": 0.4, "c": 0.2}),
        ("sum", {"a": 0.8, "b": 0.2, "c": 0.0}),
        ("zmuv", {"a": 7 / math.sqrt(26), "b": -2 / math.sqrt(26), "c": -5 / math.sqrt(26)}),  # mean 8/3, variance 26/9
        ("rank", {"a": 1.0, "b": 2 / 3, "c": 1 / 3}),
        ("none", {"a": 5.0, "b": 2.0, "c": 1.0}),
    ],
)
def test_normalised_scores_by_hand(normalization: str, expected: dict[str, float]) -> None:
    """The second list has another document, so a to c keep the first list's normalised scores."""
    runs = one_query({"b": 2.0, "c": 1.0, "a": 5.0}, {"other": 1.0})
    found = fuse(runs, method="wsum", normalization=normalization)["q"]
    assert {doc_id: found[doc_id] for doc_id in "abc"} == pytest.approx(expected)
    half = fuse(runs, method="wsum", normalization=normalization, weights=[0.5, 0])["q"]
    assert {doc_id: half[doc_id] for doc_id in "abc"} == pytest.approx({d: s / 2 for d, s in expected.items()})
    assert half["other"] == 0


@pytest.mark.parametrize(
    ("normalization", "score", "expected"),
    [
        ("min-max", 0.1, [1.0, 1.0, 1.0]),
        ("max", 0.1, [1.0, 1.0, 1.0]),
        ("max", 0.0, [0.0, 0.0, 0.0]),
        ("sum", 0.1, [1 / 3, 1 / 3, 1 / 3]),
        ("zmuv", 0.1, [0.0, 0.0, 0.0]),
        ("rank", 0.1, [1.0, 2 / 3, 1 / 3]),
    ],
)
def test_equal_scores_are_normalised(normalization: str, score: float, expected: list[float]) -> None:
    runs = one_query(dict.fromkeys("cab", score), {})
    fused = fuse(runs, method="wsum", normalization=normalization)["q"]
    assert list(fused) == ["c", "b", "a"]
    assert list(fused.values()) == pytest.approx(expected, abs=1e-12)


# ---------------------------------------------------------------- oracle


def random_runs(seed: int, count: int) -> list[Run]:
    """Runs of 30 queries, in order of scores as ranx wants them; no list is empty or of equal scores."""
    rng = np.random.default_rng(seed)
    runs = []
    for number in range(count):
        lists = [rng.choice(60, rng.integers(2, 40), replace=False) for _ in range(30)]
        drawn = [np.sort(rng.normal(3, 1, len(found)) * 10**number)[::-1] for found in lists]
        runs.append(
            {
                f"q{q}": {f"d{doc}": float(score) for doc, score in zip(found, values, strict=True)}
                for q, (found, values) in enumerate(zip(lists, drawn, strict=True))
            }
        )
    return runs


@pytest.mark.parametrize(("method", "normalization"), WAYS)
def test_fused_scores_are_ranxs(method: str, normalization: str) -> None:
    import ranx
    from numba.core.errors import NumbaTypeSafetyWarning

    runs = random_runs(7, 3)
    norm = None if normalization == "none" else normalization
    weights = None if method == "rrf" else [0.2, 0.5, 0.3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumbaTypeSafetyWarning)  # in ranx's own loops
        theirs = ranx.fuse(
            [ranx.Run(run) for run in runs], norm=norm, method=method, params={"weights": weights} if weights else {}
        ).to_dict()
    ours = fuse(runs, method=method, normalization=normalization, weights=weights)
    assert list(ours) == list(runs[0])
    for query_id, hits in ours.items():
        assert hits == pytest.approx(dict(theirs[query_id]), rel=1e-9, abs=1e-9)


# ---------------------------------------------------------------- what must not matter


@pytest.mark.parametrize(("method", "normalization"), WAYS)
@given(st.lists(RUNS, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_runs_and_of_their_lines_does_not_matter(
    method: str, normalization: str, runs: list[Run], random: object
) -> None:
    expected = fuse(runs, method=method, normalization=normalization)
    for shuffled in itertools.permutations(runs):
        lines = [{q: dict(reversed(hits.items())) for q, hits in reversed(run.items())} for run in shuffled]
        assert fuse(lines, method=method, normalization=normalization) == expected


@pytest.mark.parametrize(("method", "normalization"), WAYS)
@given(RUNS, st.integers(2, 4))
def test_a_run_fused_with_itself_keeps_its_order(method: str, normalization: str, run: Run, times: int) -> None:
    """No document passes one that stood before it (scores so near that normalising rounds them together may tie)."""
    for query_id, fused in fuse([run] * times, method=method, normalization=normalization).items():
        alone = sorted(run[query_id], key=lambda doc_id: (run[query_id][doc_id], doc_id), reverse=True)
        assert len(alone) == len(fused)
        assert all(fused[one] >= fused[two] for one, two in itertools.pairwise(alone))
        if method == "rrf":
            assert list(fused) == alone


@given(st.lists(st.permutations(["1", "10", "9", "a", "B"]), min_size=2, max_size=2), st.sampled_from(WAYS))
def test_whole_scores_fused_with_themselves_keep_the_order(order: list[Sequence[str]], way: tuple[str, str]) -> None:
    alone = {doc_id: float(place) for place, doc_id in enumerate(order[0])}
    fused = fuse(one_query(alone, alone), method=way[0], normalization=way[1])["q"]
    assert list(fused) == list(order[0])[::-1]


@given(st.lists(RUNS, min_size=2, max_size=3), st.sampled_from(WAYS))
def test_a_fused_run_can_be_written(runs: list[Run], way: tuple[str, str]) -> None:
    fused = fuse(runs, method=way[0], normalization=way[1])
    assert set(fused) == {query_id for run in runs for query_id in run}
    for query_id, hits in fused.items():
        assert set(hits) == {doc_id for run in runs for doc_id in run.get(query_id, {})}
    write_run(io.BytesIO(), fused)


def test_a_fused_run_is_read_back_the_same(tmp_path) -> None:
    fused = fuse(random_runs(3, 2))
    write_run(tmp_path / "run.trec", fused)
    assert read_run(tmp_path / "run.trec") == fused


# ---------------------------------------------------------------- queries that some lack


def test_a_query_that_a_run_lacks_is_fused_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[Run] = [{"q1": {"a": 1.0}, "q2": {"b": 1.0}}, {"q1": {"a": 1.0}, "q3": {}}, {"q1": {}}]
    with caplog.at_level(logging.WARNING):
        fused = fuse(runs, rrf_k=0)
    assert fused == {"q1": {"a": 2.0}, "q2": {"b": 1.0}, "q3": {}}
    assert [r.getMessage() for r in caplog.records] == [
        "not in every run, and fused from the runs that have them: 2 of 3 queries"
    ]
    caplog.clear()
    fuse([runs[0], runs[0]])
    assert not caplog.records


# ---------------------------------------------------------------- what cannot be fused


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "borda"}, "no fusion method 'borda'; expected one of rrf, wsum"),
        ({"normalization": "min_max"}, "no normalisation 'min_max'; expected one of min-max, max,"),
        ({"weights": [1.0]}, "1 weights for 2 runs"),
        ({"weights": [1.0, 1.0, 1.0]}, "3 weights for 2 runs"),
        ({"weights": [1.0, -0.5]}, "weights 1.0, -0.5: expected numbers from 0"),
        ({"weights": [0, 0]}, "weights 0, 0: .* not all of them 0"),
        ({"weights": [1.0, math.nan]}, "weights 1.0, nan"),
        ({"weights": [1.0, math.inf]}, "weights 1.0, inf"),
        ({"rrf_k": -1}, "rrf_k -1: expected at least 0"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        fuse(one_query({"a": 1.0}, {"b": 1.0}), **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("runs", [[], one_query({"a": 1.0})])
def test_one_run_is_not_enough(runs: list[Run]) -> None:
    with pytest.raises(ConfigError, match=f"at least two runs; given: {len(runs)}"):
        fuse(runs)


@pytest.mark.parametrize("score", [math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("normalization", ["min-max", "max", "sum", "zmuv", "none"])
def test_scores_that_cannot_be_added_up(score: float, normalization: str) -> None:
    runs = one_query({"a": 1.0}, {"x": 1.0, "y": score, "z": 2.0})
    with pytest.raises(DataError, match=r"run 2, query 'q', document 'y': the score .* is too large") as caught:
        fuse(runs, method="wsum", normalization=normalization)
    assert "\n" not in str(caught.value)
    assert fuse(runs)["q"] and fuse(runs, method="wsum", normalization="rank")["q"], "ranks need the order alone"


@pytest.mark.parametrize(("method", "normalization"), WAYS)
def test_a_score_that_is_not_a_number(method: str, normalization: str) -> None:
    with pytest.raises(DataError, match="run 1, query 'q', document 'b': the score is not a number"):
        fuse(one_query({"a": 1.0, "b": math.nan}, {"a": 1.0}), method=method, normalization=normalization)


@pytest.mark.parametrize("scores", [{"a": -1.0, "b": -3.0}, {"a": 0.0, "b": -3.0}, {"a": -1.0}])
def test_scores_below_zero_have_no_share_of_their_maximum(scores: dict[str, float]) -> None:
    runs = one_query(scores, {"a": 1.0})
    with pytest.raises(DataError, match=r"run 1, query 'q': the best score is .* needs one above 0"):
        fuse(runs, method="wsum", normalization="max")
    for normalization in ("min-max", "sum", "zmuv", "rank", "none"):
        assert next(iter(fuse(runs, method="wsum", normalization=normalization)["q"])) == "a"

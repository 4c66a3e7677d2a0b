"""How dense and keyword scores are mixed: by hand, whatever their size and order, and as it is stored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.errors import ConfigError, DataError
from retrieval.hybrid import LOOKUP, NAMED, Fusion


def test_the_formula_by_hand() -> None:
    # mean 2, deviation sqrt(2/3): -1.224745, 0, 1.224745; and mean 4, deviation sqrt(32): 1.414214, -.707107 twice
    found = Fusion(weight=0.25).combine(np.array([1.0, 2.0, 3.0], np.float32), np.array([12.0, 0.0, 0.0]))
    z = np.array([-1.5, 0, 1.5]) / math.sqrt(1.5), np.array([8, -4, -4]) / math.sqrt(32)
    np.testing.assert_allclose(found, 0.75 * z[0] + 0.25 * z[1], rtol=1e-12)
    assert found.dtype == np.float64


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_at_the_ends_one_side_alone(weight: float) -> None:
    rng = np.random.default_rng(0)
    dense, lexical = rng.normal(size=20), rng.gamma(2, 3, size=20)
    found = Fusion(weight=weight).combine(dense, lexical)
    assert np.argsort(found).tolist() == np.argsort(lexical if weight else dense).tolist()


def test_a_side_without_differences_says_nothing() -> None:
    found = Fusion(weight=0.5).combine(np.array([0.1, 0.3, 0.2]), np.zeros(3))
    assert np.argsort(found).tolist() == [0, 2, 1]
    assert Fusion().combine(np.ones(2), np.ones(2)).tolist() == [0, 0]
    assert Fusion().combine(np.ones(1), np.ones(1)).tolist() == [0]
    assert Fusion().combine(np.empty(0), np.empty(0)).tolist() == []


def test_a_name_by_itself_is_looked_up_by_keywords() -> None:
    dense, lexical = np.array([3.0, 2.0, 1.0]), np.array([0.0, 0.0, 5.0])
    looked_up = Fusion(weight=0.2).combine(dense, lexical, is_name=True)
    assert looked_up.tolist() == Fusion(weight=LOOKUP).combine(dense, lexical).tolist()
    assert Fusion(weight=0.9).combine(dense, lexical, is_name=True).argmax() == 2
    assert Fusion(weight=0).combine(dense, lexical, np.array([0, 0, 1.0]), is_name=True).argmax() == 0


def test_a_passage_gains_by_the_share_of_rare_names_that_it_holds() -> None:
    dense, lexical = np.linspace(1, 0, 50), np.zeros(50)
    plain = Fusion().combine(dense, lexical)
    named = np.zeros(50)
    named[[48, 49]] = 1, 0.5  # one holds all of them, one half
    found = Fusion().combine(dense, lexical, named)
    np.testing.assert_allclose(found - plain, NAMED * named)
    assert np.array_equal(Fusion(weight=0).combine(dense, lexical, named), Fusion(weight=0).combine(dense, lexical))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(0, 1e9)), min_size=1, max_size=12), st.randoms())
def test_the_order_of_the_candidates_is_no_matter(pairs: list[tuple[float, float]], random: Any) -> None:
    def scores() -> list[float]:
        found = Fusion(weight=0.3).combine(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]))
        assert np.isfinite(found).all()
        return [float(score) for score in found]

    before = dict(zip(pairs, scores(), strict=True))
    random.shuffle(pairs)
    assert dict(zip(pairs, scores(), strict=True)) == before  # to the bit


@pytest.mark.parametrize("lexical", [[1.0], [1.0, math.nan], [[1.0, 2.0]]])
def test_what_cannot_be_mixed(lexical: list[Any]) -> None:
    with pytest.raises(DataError):
        Fusion().combine(np.zeros(2), np.array(lexical))


@pytest.mark.parametrize("weight", [-0.1, 1.1, math.nan, math.inf])
def test_a_weight_is_a_share(weight: float) -> None:
    with pytest.raises(ConfigError, match=r"expected .*0 to 1"):
        Fusion(weight=weight)

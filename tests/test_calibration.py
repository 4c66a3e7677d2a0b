"""Calibration: values worked by hand, maximum likelihood against a search, files, and what a reranker does with it."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.calibration import CALIBRATION_FILE, Calibration, expected_calibration_error, fit_calibration
from retrieval.errors import DataError, ModelError
from retrieval.reranker import CrossEncoder, RerankSettings


def drawn(scale: float, bias: float, n: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and relevance drawn with the probability 1 / (1 + exp(-(scale * score + bias)))."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 3, n).astype(np.float32)
    return scores, rng.random(n) < 1 / (1 + np.exp(-(scale * scores + bias)))


# ---------------------------------------------------------------- fitting


def test_two_scores_by_hand():
    # 3 of 4 relevant at score 1, 1 of 4 at score -1; Platt's targets are 5/6 and 1/6 (4 relevant, 4 not):
    # mean target at 1 is (3 * 5/6 + 1/6) / 4 = 2/3, so scale = ln(2/3 / 1/3) = ln 2, and bias = 0.
    scores = np.array([1, 1, 1, 1, -1, -1, -1, -1])
    relevant = np.array([1, 1, 1, 0, 1, 0, 0, 0], dtype=bool)
    for bias in (True, False):
        fitted = fit_calibration(scores, relevant, bias=bias)
        assert (fitted.scale, fitted.bias) == pytest.approx((np.log(2), 0), abs=1e-6)
    np.testing.assert_allclose(fitted.probability(np.array([1.0, -1.0])), [2 / 3, 1 / 3], rtol=1e-6)


@pytest.mark.parametrize(("scale", "bias"), [(1.0, 0.0), (0.3, -2.0), (2.5, 1.0)])
def test_it_finds_what_the_labels_were_drawn_with(scale, bias):
    fitted = fit_calibration(*drawn(scale, bias))
    assert fitted.scale == pytest.approx(scale, rel=0.1)
    assert fitted.bias == pytest.approx(bias, abs=0.2)


def test_it_is_the_most_likely_of_its_neighbours():
    scores, relevant = drawn(0.5, -1.0, n=300)
    fitted = fit_calibration(scores, relevant)
    positive = relevant.sum()
    targets = np.where(relevant, (positive + 1) / (positive + 2), 1 / (len(scores) - positive + 2))

    def loss(scale: float, bias: float) -> float:
        logits = scale * scores.astype(float) + bias
        return float(np.mean(np.logaddexp(0, logits) - targets * logits))

    best = loss(fitted.scale, fitted.bias)
    for step in (1e-3, 1e-1):
        for ds, db in [(step, 0), (-step, 0), (0, step), (0, -step)]:
            assert loss(fitted.scale + ds, fitted.bias + db) > best


def test_a_temperature_alone_has_no_bias():
    fitted = fit_calibration(*drawn(0.4, 0.0), bias=False)
    assert fitted.bias == 0.0 and fitted.scale == pytest.approx(0.4, rel=0.1)


@pytest.mark.parametrize("size", [1.0, 1e4, 1e-4])
def test_separable_scores_give_finite_numbers(size):
    scores = size * np.array([-3.0, -2.0, -1.0, 1.0, 2.0])
    fitted = fit_calibration(scores, scores > 0)
    chances = fitted.probability(scores)
    assert np.isfinite([fitted.scale, fitted.bias]).all() and fitted.scale > 0
    assert (chances[:3] < 0.5).all() and (chances[3:] > 0.5).all()


def test_scores_that_fall_with_relevance_give_the_share_and_a_warning(caplog):
    scores, relevant = drawn(-1.0, 1.0)
    with caplog.at_level(logging.WARNING):
        fitted = fit_calibration(scores, relevant)
    assert fitted.scale == 0 and "do not rise with relevance" in caplog.text
    np.testing.assert_allclose(fitted.probability(scores), relevant.mean(), atol=1e-3)
    assert fit_calibration(scores, relevant, bias=False).probability(np.array([9.0]))[0] == 0.5


def test_equal_scores_give_the_share():
    fitted = fit_calibration(np.zeros(100), np.arange(100) < 20)
    assert fitted.probability(np.zeros(1))[0] == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize(
    ("scores", "relevant", "said"),
    [
        ([1.0, 2.0], [True, True], "given 2 and 0"),
        ([1.0, 2.0], [False, False], "given 0 and 2"),
        ([], [], "given 0 and 0"),
        ([1.0, np.nan], [True, False], "1 of 2 scores are not finite"),
        ([1.0, 2.0, 3.0], [True, False], "as many scores as labels"),
    ],
)
def test_what_cannot_be_fitted_is_an_error(scores, relevant, said):
    with pytest.raises(DataError, match=said):
        fit_calibration(np.array(scores), np.array(relevant, dtype=bool))


# ---------------------------------------------------------------- the error


def test_the_error_by_hand():
    # Two bins of two: mean probability .1 and share 0; mean .7 and share .5 -> (.1 + .2) / 2
    chances, relevant = np.array([0.6, 0.15, 0.8, 0.05]), np.array([True, False, False, False])
    assert expected_calibration_error(chances, relevant, bins=2) == pytest.approx(0.15)
    # More bins than pairs: each is one; |.6 - 1|, .15, .8, .05
    assert expected_calibration_error(chances, relevant, bins=15) == pytest.approx(1.4 / 4)
    assert expected_calibration_error(chances, relevant, bins=1) == pytest.approx(0.4 - 0.25)


def test_bins_hold_equally_many():
    # 99 % lie near 0: bins of equal width would see one bin that is right, and hide this
    chances = np.r_[np.full(50, 0.01), np.full(50, 0.03)]
    relevant = np.r_[np.zeros(50, bool), np.ones(50, bool)]
    assert expected_calibration_error(chances, relevant, bins=2) == pytest.approx((0.01 + 0.97) / 2)


@pytest.mark.parametrize(("n", "bins"), [(0, 5), (3, 0)])
def test_no_pairs_or_no_bins(n, bins):
    with pytest.raises(DataError, match=f"given {n} and {bins}"):
        expected_calibration_error(np.zeros(n), np.zeros(n, bool), bins=bins)


def test_fitting_lowers_the_error_on_pairs_it_did_not_see():
    fitted = fit_calibration(*drawn(0.2, -2.0))
    scores, relevant = drawn(0.2, -2.0, seed=1)
    before = expected_calibration_error(Calibration().probability(scores), relevant)
    after = expected_calibration_error(fitted.probability(scores), relevant)
    assert before > 0.2 and after < 0.03


# ---------------------------------------------------------------- applying, files


@settings(deadline=None)
@given(st.floats(0, 50), st.floats(-50, 50), st.lists(st.floats(-500, 500, width=32), min_size=1, max_size=20))
def test_a_higher_score_is_never_less_probable(scale, bias, scores):
    chances = Calibration(scale=scale, bias=bias).probability(np.sort(np.array(scores, dtype=np.float32)))
    assert chances.dtype == np.float32
    assert (np.diff(chances) >= 0).all() and (chances >= 0).all() and (chances <= 1).all()


def test_a_saved_calibration_comes_back(tmp_path):
    saved = Calibration(scale=1 / 3, bias=-2.7182818284590455, notes={"pairs": 12})
    saved.save(tmp_path)
    assert Calibration.load(tmp_path) == saved
    assert [path.name for path in tmp_path.iterdir()] == [CALIBRATION_FILE]
    assert Calibration.load(tmp_path / "nowhere") == Calibration()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"format": 1, "scale": 0.5', "damaged"),
        (b"\xff\xfe", "damaged"),
        (b"[]", "damaged"),
        (b'{"format": 1, "scale": 0.5}', "damaged"),
        (b'{"format": 1, "scale": null, "bias": 0}', "damaged"),
        (b'{"format": 1, "scale": NaN, "bias": 0}', "damaged"),
        (b'{"format": 1, "scale": -1, "bias": 0}', "damaged"),
        (b'{"format": 1, "scale": "0.5", "bias": 0}', "damaged"),
        (b'{"format": 1, "scale": true, "bias": 0}', "damaged"),
        (b'{"format": 1, "scale": ' + b"9" * 400 + b', "bias": 0}', "damaged"),
        (b"[" * 100_000, "damaged"),
        (b'{"format": 1, "scale": 1, "bias": 0, "notes": "x"}', "damaged"),
        (b'{"format": 2, "scale": 1, "bias": 0}', "format 2; this version reads 1"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content, said):
    (tmp_path / CALIBRATION_FILE).write_bytes(content)
    with pytest.raises(ModelError, match=said) as caught:
        Calibration.load(tmp_path)
    assert CALIBRATION_FILE in str(caught.value)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_is_there_and_no_file_is_not_passed_over(tmp_path, make):
    make(tmp_path / CALIBRATION_FILE)
    with pytest.raises(ModelError, match=f"{CALIBRATION_FILE} cannot be read"):
        Calibration.load(tmp_path)


@pytest.mark.parametrize("name", ["cross1", "cross2"])
def test_a_reranker_uses_the_calibration_in_its_folder(tiny: Any, tmp_path: Path, name: str):
    folder = tmp_path / "model"
    shutil.copytree(tiny(name), folder)
    cpu = RerankSettings(device="cpu")
    plain = CrossEncoder.load(folder, settings=cpu)
    Calibration(scale=2.0, bias=-1.0).save(folder)
    model = CrossEncoder.load(folder, settings=cpu)
    scores = model.score([("heat", "copper"), ("heat", "ferry")])
    np.testing.assert_array_equal(scores, plain.score([("heat", "copper"), ("heat", "ferry")]))
    np.testing.assert_allclose(model.probability(scores), 1 / (1 + np.exp(-(2 * scores.astype(float) - 1))), rtol=1e-6)
    np.testing.assert_allclose(plain.probability(scores), 1 / (1 + np.exp(-scores.astype(float))), rtol=1e-6)
    # what decides the probabilities is part of the model's identity
    assert model.identity["sha256"] != plain.identity["sha256"]
    (folder / CALIBRATION_FILE).write_text(json.dumps({"format": 1}))
    with pytest.raises(ModelError, match="damaged"):
        CrossEncoder.load(folder, settings=cpu)

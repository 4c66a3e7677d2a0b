"""Calibration: turning a reranker's scores into probabilities that can be taken at their word.

A trained score orders well, but its sigmoid is seldom the share of relevant passages among those scored so.
One number or two, fitted on judged pairs, put that right: a temperature (Guo, Pleiss, Sun and Weinberger 2017,
"On Calibration of Modern Neural Networks") or temperature and bias (Platt 1999, "Probabilistic Outputs for
Support Vector Machines"). Neither changes an order.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from retrieval.errors import ConfigError, DataError
from retrieval.fitted import read_fitted, write_fitted

CALIBRATION_FILE = "calibration.json"
"""Where a model's folder keeps its calibration."""

BINS = 15
"""Equal-mass bins of the expected calibration error, unless told otherwise."""

_FORMAT = 1
_STEPS = 100  # Newton's method needs about ten
_RIDGE = 1e-9  # keeps the Hessian invertible where all scores are equal

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """A probability is 1 / (1 + exp(-(scale * score + bias))).

    Attributes:
        scale: One over the temperature; never negative, so a higher score is never less probable.
        bias: Log-odds that are added; 0 after fitting a temperature alone.
        notes: What it was fitted on, and how well it does, as JSON types; kept in the file.
    """

    scale: float = 1.0
    bias: float = 0.0
    notes: Mapping[str, object] = field(default_factory=dict)

    def probability(self, scores: np.ndarray) -> np.ndarray:
        """Turn scores into probabilities.

        Args:
            scores: (n,) logits.

        Returns:
            (n,) float32 in [0, 1].
        """
        values = np.asarray(scores, dtype=np.float32)
        if (self.scale, self.bias) != (1.0, 0.0):
            values = (values * self.scale + self.bias).astype(np.float32)
        decay = np.exp(-np.abs(values))  # never overflows
        return np.asarray(np.where(values >= 0, np.float32(1), decay) / (1 + decay))

    def save(self, folder: Path) -> None:
        """Write the file into a model's folder.

        Raises:
            DataError: It cannot be written.
        """
        numbers = {"scale": self.scale, "bias": self.bias}
        write_fitted(folder / CALIBRATION_FILE, version=_FORMAT, numbers=numbers, notes=self.notes)

    @classmethod
    def load(cls, folder: Path) -> Calibration:
        """Read a model's calibration; without a file the probability is the plain sigmoid.

        Raises:
            ModelError: The file is damaged, or of a newer format.
        """

        def made(numbers: Mapping[str, float], notes: Mapping[str, object]) -> Calibration:
            if not (all(map(math.isfinite, numbers.values())) and numbers["scale"] >= 0):
                raise ConfigError(f"scale and bias are {numbers}; expected finite numbers, a scale of at least 0")
            return cls(**numbers, notes=notes)

        found = read_fitted(
            folder / CALIBRATION_FILE,
            made,
            version=_FORMAT,
            names=("scale", "bias"),
            expected="a scale of at least 0 and a bias",
        )
        return found or cls()


def fit_calibration(scores: np.ndarray, relevant: np.ndarray, *, bias: bool = True) -> Calibration:
    """Fit by maximum likelihood.

    The probabilities presuppose the share of relevant pairs that the judged ones have: take candidates as a
    first stage returns them, not one relevant text for each irrelevant one. Targets are Platt's,
    (n+ + 1) / (n+ + 2) and 1 / (n- + 2), so that scores which separate the two perfectly do not ask for an
    infinite scale.

    Args:
        scores: (n,) logits.
        relevant: (n,) bool.
        bias: Whether to fit a bias too (Platt) or a temperature alone.

    Raises:
        DataError: Of relevant and irrelevant pairs there is not one each, or a score is not finite.
    """
    values, labels = _checked(scores, relevant)
    positive, negative = int(labels.sum()), int((~labels).sum())
    if not positive or not negative:
        raise DataError(f"calibration needs relevant and irrelevant pairs; given {positive} and {negative}")
    targets = np.where(labels, (positive + 1) / (positive + 2), 1 / (negative + 2))
    columns = [values, np.ones_like(values)] if bias else [values]
    design = np.stack(columns, axis=1)  # (n, 1 or 2)
    weights = _logistic(design, targets)
    if weights[0] <= 0:
        logger.warning("the scores do not rise with relevance on the %d pairs of the calibration", len(values))
        constant = _logistic(design[:, 1:], targets) if bias else np.zeros(1)
        weights = np.array([0.0, *constant])
    return Calibration(scale=float(weights[0]), bias=float(weights[1]) if bias else 0.0)


def expected_calibration_error(probabilities: np.ndarray, relevant: np.ndarray, *, bins: int = BINS) -> float:
    """How far probabilities are from the shares of relevant pairs, on average (Naeini et al. 2015).

    Bins are of equal mass (Nguyen and O'Connor 2015): most candidates are irrelevant, and bins of equal
    width would hold nearly all of them in one.

    Args:
        probabilities: (n,) in [0, 1].
        relevant: (n,) bool.
        bins: Bins; fewer where there are fewer pairs.

    Returns:
        The mean over all pairs of |mean probability - share of relevant pairs| of their bin, in [0, 1].

    Raises:
        DataError: There are no pairs, or less than one bin.
    """
    values, labels = _checked(probabilities, relevant)
    if not len(values) or bins < 1:
        raise DataError(f"a calibration error needs pairs and bins; given {len(values)} and {bins}")
    order = np.argsort(values, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    gaps = [len(part) * abs(values[part].mean() - labels[part].mean()) for part in parts]
    return float(sum(gaps) / len(values))


def _checked(scores: np.ndarray, relevant: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    if values.ndim != 1 or values.shape != labels.shape:
        raise DataError(f"expected as many scores as labels; given {values.shape} and {labels.shape}")
    if not np.isfinite(values).all():
        raise DataError(f"{int((~np.isfinite(values)).sum())} of {len(values)} scores are not finite")
    return values, labels


def _logistic(design: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Weights of a logistic regression, by Newton's method with halved steps: (columns,) float64."""
    weights = np.zeros(design.shape[1])
    loss = _cross_entropy(design @ weights, targets)
    for _ in range(_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(design @ weights, -500, 500)))
        gradient = design.T @ (chances - targets)
        hessian = (design.T * (chances * (1 - chances))) @ design + _RIDGE * np.eye(len(weights))
        step = np.linalg.solve(hessian, gradient)
        share = 1.0
        while (trial := _cross_entropy(design @ (weights - share * step), targets)) > loss and share > 1e-10:
            share /= 2
        weights, gain, loss = weights - share * step, loss - trial, trial
        if gain < 1e-12:
            break
    return weights


def _cross_entropy(logits: np.ndarray, targets: np.ndarray) -> float:
    """Mean binary cross-entropy of logits, in nats."""
    return float(np.mean(np.logaddexp(0, logits) - targets * logits))

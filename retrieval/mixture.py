"""A mixture: how much the first stage counts beside a cross-encoder when hits are re-ordered.

A cross-encoder that was trained on little, or elsewhere, makes orders worse where the first stage was sure. So a
model's folder may say that hits are ordered by a weighted sum of both scores (as Akkalyoncu Yilmaz, Yang, Zhang and
Lin 2019 do, "Cross-Domain Modeling of Sentence-Level Evidence for Document Retrieval").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from retrieval.errors import ConfigError, DataError
from retrieval.fitted import read_fitted, write_fitted
from retrieval.hybrid import standardised

MIXTURE_FILE = "mixture.json"
"""Where a model's folder keeps its mixture."""

WEIGHTS = tuple(step / 20 for step in range(21))
"""Weights of the first stage that a fit tries."""

_FORMAT = 1
_CUT = 10  # of the nDCG that a fit goes by
_EQUAL = 1e-12  # means that differ by less differ by rounding


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixture:
    """Hits are ordered by weight * z + (1 - weight) * logit / temperature.

    z is the first stage's score, less the mean over the query's candidates, divided by their standard deviation (of the
    population): 0 where all are equal. Logits are not brought to one spread query by query: where a cross-encoder
    sees little difference, it shall change little. The default is the cross-encoder alone.

    Attributes:
        weight: Of the first stage, 0 to 1.
        temperature: Divides the logits; above 0.
        notes: What it was fitted on, and how well it does, as JSON types; kept in the file.

    Raises:
        ConfigError: A weight or a temperature out of range.
    """

    weight: float = 0.0
    temperature: float = 1.0
    notes: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ConfigError(f"weight of the first stage is {self.weight}; expected 0 to 1")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ConfigError(f"temperature is {self.temperature}; expected a number above 0")

    def combine(self, retrieval_scores: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Mix the two scores of one query's candidates; each result depends on all candidates.

        Args:
            retrieval_scores: (n,) the first stage's. An infinite one counts as the best, or the worst, finite one.
            logits: (n,) the cross-encoder's.

        Returns:
            (n,) float64, higher is better. With weight 0 and temperature 1 the logits, to the bit.

        Raises:
            DataError: Not as many scores as logits, or a score that is no number.
        """
        second = np.asarray(logits, np.float64) / self.temperature
        if np.shape(retrieval_scores) != second.shape or second.ndim != 1:
            raise DataError(
                f"{np.shape(retrieval_scores)} retrieval scores and {second.shape} logits; expected (n,) each"
            )
        if not self.weight:
            return second
        return _mixed(self.weight, standardised(retrieval_scores), second)

    def save(self, folder: Path) -> None:
        """Write the file into a model's folder.

        Raises:
            DataError: It cannot be written.
        """
        numbers = {"weight": self.weight, "temperature": self.temperature}
        write_fitted(folder / MIXTURE_FILE, version=_FORMAT, numbers=numbers, notes=self.notes)

    @classmethod
    def load(cls, folder: Path) -> Mixture:
        """Read a model's mixture; without a file it is the cross-encoder alone.

        Raises:
            ModelError: The file is damaged, or of a newer format.
        """
        found = read_fitted(
            folder / MIXTURE_FILE,
            lambda numbers, notes: cls(**numbers, notes=notes),
            version=_FORMAT,
            names=("weight", "temperature"),
            expected="a weight from 0 to 1 and a temperature above 0",
        )
        return found or cls()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class JudgedList:
    """One query's candidates with both scores and their grades; `of` makes one.

    Attributes:
        doc_ids: The candidates, which equal scores are ordered by.
        retrieval_scores: (n,) the first stage's.
        logits: (n,) the cross-encoder's.
        gains: (n,) float64: the grades, 0 where a document is not judged or not relevant.
        ideal: The DCG@10 of the best order of all judged documents, also of those that are no candidates.
    """

    doc_ids: Sequence[str]
    retrieval_scores: np.ndarray
    logits: np.ndarray
    gains: np.ndarray
    ideal: float

    def __post_init__(self) -> None:
        shapes = {np.shape(part) for part in (self.retrieval_scores, self.logits, self.gains)}
        if shapes != {(len(self.doc_ids),)}:
            raise DataError(f"{len(self.doc_ids)} candidates with arrays of shapes {sorted(shapes)}; expected (n,)")
        if not np.isfinite(self.logits).all():
            raise DataError(f"{int((~np.isfinite(self.logits)).sum())} of {len(self.doc_ids)} logits are not finite")

    @classmethod
    def of(
        cls,
        doc_ids: Sequence[str],
        retrieval_scores: Sequence[float] | np.ndarray,
        logits: Sequence[float] | np.ndarray,
        grades: Mapping[str, int],
    ) -> JudgedList:
        """Put a query's candidates and its judgements together.

        Args:
            doc_ids: The candidates.
            retrieval_scores: (n,) the first stage's.
            logits: (n,) the cross-encoder's.
            grades: Grade by doc_id, of all documents that are judged for the query.

        Raises:
            DataError: Not as many scores as candidates, or logits that are not finite.
        """
        best = sorted((float(grade) for grade in grades.values() if grade > 0), reverse=True)[:_CUT]
        return cls(
            doc_ids=tuple(doc_ids),
            retrieval_scores=np.asarray(retrieval_scores, np.float64),
            logits=np.asarray(logits, np.float64),
            gains=np.array([max(grades.get(doc_id, 0), 0) for doc_id in doc_ids], np.float64),
            ideal=float(np.array(best) @ _discounts(len(best))),
        )


def fit_mixture(
    groups: Mapping[str, Sequence[JudgedList]],
    *,
    floor: float | None = None,
    least: float = 0.0,
    weights: Sequence[float] = WEIGHTS,
    cautious: bool = False,
) -> Mixture:
    """Choose the mixture with the largest gain in mean nDCG@10 over the first stage, of equal ones the largest weight.

    An order depends on weight * temperature / (1 - weight) alone. So the temperature is set once, by the mean standard
    deviation of a query's logits, which makes the weight a share between scores of one size, and weights are tried.

    Args:
        groups: Judged lists by the name of a domain; the gain is the mean over domains of their mean gains.
        floor: nDCG@10 that no domain may lose against the first stage; None: any.
        least: The smallest weight that is tried.
        weights: Those that are tried; the first stage alone (1) always is.
        cautious: Take the largest weight that gains less than the best one by no more than a standard error of that
            difference (the one-standard-error rule: Breiman, Friedman, Olshen and Stone 1984), for domains that
            nothing is known of.

    Returns:
        The mixture. Its notes hold the mean nDCG@10 of each domain: first stage, cross-encoder, mixed.

    Raises:
        DataError: A domain without queries, or none.
        ConfigError: A floor below 0, or a least weight or weights out of range.
    """
    if not groups or not all(groups.values()):
        raise DataError(
            f"a mixture needs judged queries; given { ({name: len(some) for name, some in groups.items()}) }"
        )
    if floor is not None and not floor >= 0:
        raise ConfigError(f"floor is {floor}; expected an nDCG of at least 0 that may be lost")
    tried = sorted({float(weight) for weight in weights if weight >= least} | {1.0}, reverse=True)
    if not 0 <= least <= 1 or tried[0] > 1 or tried[-1] < 0:
        raise ConfigError(f"weights {tried[-1]:g} to {tried[0]:g}, at least {least:g}; expected 0 to 1")
    stacked = {name: _Stack(some) for name, some in groups.items()}
    spread = float(np.mean([stack.spread for stack in stacked.values()]))
    temperature = float(f"{spread:.4g}") if spread > 0 else 1.0
    found = {
        weight: [stack.ndcg(weight, temperature) for stack in stacked.values()] for weight in {0.0, *tried}
    }  # by weight, for each domain (queries,)
    means = {weight: np.array([some.mean() for some in by_domain]) for weight, by_domain in found.items()}
    first = means[1.0]
    allowed = [w for w in tried if floor is None or (means[w] - first).min() >= -floor - _EQUAL]
    best = 1.0
    for weight in allowed:
        if means[weight].mean() > means[best].mean() + _EQUAL:
            best = weight
    if cautious:
        best = next(weight for weight in allowed if _no_worse(found[weight], found[best]))
    return Mixture(
        weight=best,
        temperature=temperature if best else 1.0,
        notes={
            "metric": f"ndcg@{_CUT}",
            "floor": floor,
            "least_weight": least,
            "cautious": cautious,
            "fitted_on": {
                name: {
                    "queries": len(groups[name]),
                    "first_stage": float(first[row]),
                    "cross_encoder": float(means[0.0][row]),
                    "mixed": float(means[best][row]),
                }
                for row, name in enumerate(stacked)
            },
        },
    )


class _Stack:
    """A domain's lists as arrays (queries, candidates), documents in descending order of their ids.

    Attributes:
        spread: The mean over queries of the standard deviation of their logits.
    """

    def __init__(self, lists: Sequence[JudgedList]) -> None:
        shape = len(lists), max(1, *(len(one.doc_ids) for one in lists))
        self._first, self._second, self._gains = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._absent = np.ones(shape, dtype=bool)
        for row, one in enumerate(lists):
            order = sorted(range(len(one.doc_ids)), key=one.doc_ids.__getitem__, reverse=True)
            here = row, slice(len(order))
            self._first[here] = standardised(one.retrieval_scores)[order]
            self._second[here] = one.logits[order]
            self._gains[here] = one.gains[order]
            self._absent[here] = False
        self._ideal = np.array([one.ideal for one in lists])
        self.spread = float(np.mean([one.logits.std() if len(one.doc_ids) else 0.0 for one in lists]))

    def ndcg(self, weight: float, temperature: float) -> np.ndarray:
        """Return the nDCG@10 of each query's mixed order: (queries,)."""
        scores = _mixed(weight, self._first, self._second / temperature)
        scores[self._absent] = -np.inf
        top = np.argsort(-scores, axis=1, kind="stable")[:, :_CUT]  # equal scores stay in descending order of ids
        found = np.take_along_axis(self._gains, top, axis=1) @ _discounts(top.shape[1])
        return np.asarray(np.divide(found, self._ideal, out=np.zeros(len(found)), where=self._ideal > 0))


def _mixed(weight: float, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.asarray(weight * first + (1 - weight) * second)


def _no_worse(some: Sequence[np.ndarray], best: Sequence[np.ndarray]) -> bool:
    """Whether the mean over domains falls behind the best one's by at most a standard error of the difference."""
    behind = [high - low for low, high in zip(some, best, strict=True)]  # (queries,) for each domain
    variance = sum(float(part.var(ddof=1)) / len(part) if len(part) > 1 else 0.0 for part in behind)
    return bool(np.mean([part.mean() for part in behind]) <= np.sqrt(variance) / len(behind) + _EQUAL)


def _discounts(ranks: int) -> np.ndarray:
    """1 / log2(rank + 1) of the first ranks (Järvelin and Kekäläinen 2002): (ranks,)."""
    return np.asarray(1 / np.log2(np.arange(2, ranks + 2)))

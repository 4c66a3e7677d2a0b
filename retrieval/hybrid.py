"""How the scores of dense and of keyword search become one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retrieval.errors import ConfigError, DataError

USUAL = 0.2
"""Weight of keyword search beside an encoder that reads the documents: it adds what vectors miss, and harms little
where keywords fail."""
FOREIGN = 0.8
"""Weight beside an encoder that does not."""
LOOKUP = 0.8
"""Weight, at least, where the query is a name and nothing else; see `retrieval.terms.QueryTerms`."""
NAMED = 2.0
"""What a passage gains that holds the rare names of a query. Standardised scores reach 2 to 4 on either side: so it
comes before nearly all that does not hold them, and the order among such passages stays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fusion:
    """The score of a passage is weight * its keyword score + (1 - weight) * its dense score, each standardised.

    An encoder knows few names. So a query that is a name weighs keywords by `LOOKUP` at least, passages that hold the
    rare names of a longer query gain `NAMED`, and the passage with which a name's definition begins gains twice that;
    but a weight of 0 is for vectors alone.

    Attributes:
        weight: Of the keyword side, 0 to 1.
        origin: Where the weight comes from, in words.

    Raises:
        ConfigError: A weight out of range.
    """

    weight: float = USUAL
    origin: str = "default"

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ConfigError(f"weight of keyword search is {self.weight}; expected 0 to 1")

    def combine(
        self, dense: np.ndarray, lexical: np.ndarray, named: np.ndarray | None = None, *, is_name: bool = False
    ) -> np.ndarray:
        """Mix both scores of one query's candidates; each result depends on all of them, not on their order.

        Args:
            dense: (n,) scores by vectors.
            lexical: (n,) scores by terms.
            named: (n,) shares, 0 to 1, of the query's rare names that each holds, and 2 more where one is defined;
                None: it has no names.
            is_name: Whether the query is a name and nothing else.

        Returns:
            (n,) float64, finite, higher is better.

        Raises:
            DataError: Not as many of one kind as of the other, or a score that is no number.
        """
        sides = [np.asarray(side, np.float64) for side in (dense, lexical)]
        if sides[0].shape != sides[1].shape or sides[0].ndim != 1:
            raise DataError(f"{sides[0].shape} dense and {sides[1].shape} keyword scores; expected (n,) each")
        first, second = (standardised(side) for side in sides)
        weight = max(self.weight, LOOKUP) if is_name and self.weight else self.weight
        gained = NAMED * np.asarray(named, np.float64) if named is not None and weight else 0.0
        return np.asarray((1 - weight) * first + weight * second + gained)

    def to_dict(self) -> dict[str, object]:
        """Return JSON types."""
        return {"weight": self.weight, "origin": self.origin}


def standardised(scores: np.ndarray) -> np.ndarray:
    """Bring the scores of one query's candidates to mean 0 and standard deviation 1, whatever their order.

    Args:
        scores: (n,) any numbers; infinite ones count as the largest or smallest finite one.

    Returns:
        (n,) float64; all 0 where all are equal.

    Raises:
        DataError: A score is NaN.
    """
    values = np.asarray(scores, np.float64)
    if np.isnan(values).any():
        raise DataError(f"{int(np.isnan(values).sum())} of {len(values)} retrieval scores are not a number")
    if not len(values):
        return values
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (-1.0, 1.0)
    halves = np.clip(values, low, high) / 2  # so that no difference overflows
    span = halves.max() - halves.min()
    if span == 0:
        return np.zeros(len(values))
    shares = (halves - halves.min()) / span  # from 0 to 1
    alike = np.sort(shares)  # sums round the same in any order of the candidates
    return np.asarray((shares - alike.mean()) / alike.std())

"""Lists to train a cross-encoder with, and the steps' inputs made from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from retrieval.errors import DataError
from retrieval.pairs import PairTokens, Piece
from retrieval.runtime import load_torch
from retrieval.training.examples import Example
from retrieval.training.rank_losses import DISTILLING


@dataclass(frozen=True, kw_only=True, slots=True)
class TextList:
    """Texts of a query that are scored against each other, those that answer it first.

    Attributes:
        query: The query.
        texts: Positives, then all of the negatives to draw from.
        relevance: One for each positive: its grade, or 1.
        teacher: A teacher's scores, one for each text; empty where there are none.
    """

    query: str
    texts: tuple[str, ...]
    relevance: tuple[float, ...]
    teacher: tuple[float, ...] = ()


def lists_of(examples: Sequence[Example], *, loss: str, positives: int) -> tuple[list[TextList], int]:
    """Make lists out of examples: an example with more positives than a list takes makes several.

    Args:
        examples: The examples. Scores of positives alone are grades; of both, a teacher's.
        loss: The loss that the lists are for, by name.
        positives: Positives in a list, at most.

    Returns:
        The lists, and how many more were left out, because nothing in them can be told apart.

    Raises:
        DataError: No list is left, or an example has no scores and the loss needs them, or a negative grade.
    """
    made: list[TextList] = []
    empty = 0
    for number, example in enumerate(examples, start=1):
        taught = bool(example.positive_scores) and len(example.negative_scores) == len(example.negatives)
        graded = bool(example.positive_scores) and not example.negative_scores
        if loss in DISTILLING and not taught:
            raise DataError(
                f"example {number} ({example.query_id or example.query:.60}) has no scores of a teacher for all its "
                f"texts; the loss {loss} needs them: mine with a teacher, or take another loss"
            )
        grades = example.positive_scores if graded else (1.0,) * len(example.positives)
        if graded and min(grades) <= 0:
            raise DataError(f"example {number} ({example.query_id or example.query:.60}): a positive with grade <= 0")
        for start in range(0, len(example.positives), positives):
            some = slice(start, start + positives)
            one = TextList(
                query=example.query,
                texts=example.positives[some] + example.negatives,
                relevance=tuple(grades[some]),
                teacher=example.positive_scores[some] + example.negative_scores if taught else (),
            )
            if _teaches(one, loss):
                made.append(one)
            else:
                empty += 1
    if not made:
        raise DataError(
            f"none of {len(examples)} examples can be learned from with the loss {loss}: "
            "expected negatives; mine them first"
        )
    return made, empty


def _teaches(one: TextList, loss: str) -> bool:
    """Whether a loss finds anything in a list to tell apart."""
    negatives = len(one.texts) - len(one.relevance)
    if loss in ("pointwise", "kl"):
        return loss == "pointwise" or len(one.texts) > 1
    return negatives > 0 or (loss != "listwise" and len(set(one.relevance)) > 1)


class ListBatches:
    """The inputs of each step, a function of its number: the order of lists and the negatives drawn included.

    Attributes:
        notices: Counts over the steps made: pairs, pairs_cut (a passage that did not fit was read in part),
            queries_cut.
        with_types: Whether the tokenizer tells query and passage apart by token types.
    """

    def __init__(
        self,
        lists: Sequence[TextList],
        tokens: PairTokens,
        *,
        steps: int,
        size: int,
        negatives: int,
        windows: int,
        seed: int,
    ) -> None:
        """Lay out the steps.

        Args:
            lists: The lists.
            tokens: How a pair becomes one sequence.
            steps: Steps.
            size: Lists in a step.
            negatives: Negatives drawn for a list, at most.
            windows: Windows of a passage that are read, at most; the first ones.
            seed: Of order and draws.
        """
        self.notices: Counter[str] = Counter()
        self.with_types = tokens.with_types
        self._lists, self._tokens = lists, tokens
        self._steps, self._size = steps, size
        self._negatives, self._windows, self._seed = negatives, windows, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))  # an epoch and its order

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Mapping[str, Any]:
        """Tensors of a step.

        Returns:
            `input_ids`, `attention_mask`, `token_type_ids` (pieces, longest) int64; `windows` (pairs, w) int64,
            the pieces of a pair, -1 where it has fewer; `slots` (lists, items) int64, the pairs of a list, -1
            where it has fewer; `relevance`, `teacher` (lists, items) float32.
        """
        if not 0 <= step < self._steps:
            raise IndexError(step)
        torch = load_torch()
        drawn = [self._drawn(place) for place in range(step * self._size, (step + 1) * self._size)]
        widest = max(len(one.texts) for one in drawn)
        slots = np.full((len(drawn), widest), -1, dtype=np.int64)
        relevance, teacher = np.zeros((2, *slots.shape), dtype=np.float32)
        pairs: list[tuple[str, str]] = []
        for row, one in enumerate(drawn):
            slots[row, : len(one.texts)] = np.arange(len(pairs), len(pairs) + len(one.texts))
            relevance[row, : len(one.relevance)] = one.relevance
            teacher[row, : len(one.teacher)] = one.teacher
            pairs += [(one.query, text) for text in one.texts]
        pieces, windows = self._pieces(pairs)
        arrays = self._tokens.batch(pieces)
        arrays |= {"windows": windows, "slots": slots, "relevance": relevance, "teacher": teacher}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _drawn(self, place: int) -> TextList:
        """The list at a place of the run, with the negatives that this epoch draws."""
        epoch, within = divmod(place, len(self._lists))
        if self._order[0] != epoch:
            self._order = epoch, np.random.default_rng((self._seed, epoch)).permutation(len(self._lists))
        number = int(self._order[1][within])
        one = self._lists[number]
        positives, spare = len(one.relevance), len(one.texts) - len(one.relevance)
        if spare <= self._negatives:
            return one
        rng = np.random.default_rng((self._seed, epoch, number))
        chosen = [*range(positives), *(positives + rng.choice(spare, self._negatives, replace=False))]
        return TextList(
            query=one.query,
            texts=tuple(one.texts[at] for at in chosen),
            relevance=one.relevance,
            teacher=tuple(one.teacher[at] for at in chosen) if one.teacher else (),
        )

    def _pieces(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[Piece], np.ndarray]:
        """The pieces that are read, and which are a pair's: (pairs, w) int64, -1 where it has fewer."""
        pieces, cut = self._tokens.pieces(pairs)
        starts = np.flatnonzero([piece.first for piece in pieces])
        counts = np.diff(starts, append=len(pieces))
        kept = np.minimum(counts, self._windows)
        self.notices.update(pairs=len(pairs), pairs_cut=int((counts > kept).sum()), queries_cut=cut)
        windows = np.full((len(pairs), int(kept.max())), -1, dtype=np.int64)
        read: list[Piece] = []
        for pair, (start, count) in enumerate(zip(starts.tolist(), kept.tolist(), strict=True)):
            windows[pair, :count] = np.arange(len(read), len(read) + count)
            read += pieces[start : start + count]
        return read, windows

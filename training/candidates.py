"""Batches of a bi-encoder's training: queries, the texts they are compared with, what each text is to each query."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from retrieval.errors import DataError
from retrieval.runtime import load_torch
from retrieval.sentence_model import SentenceModel
from retrieval.training.examples import Example
from retrieval.training.run import TrainingSettings

_SLICE = 4096  # texts tokenised at a time
_POSITIVE, _LEFT_OUT = 1, -1  # as `losses` has them; that module imports torch


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """A query with one of its positives; queries and texts by their numbers.

    Attributes:
        query: The query.
        positive: The positive.
        score: A teacher's score of the positive; NaN where there is none.
        negatives: Texts that no example calls a positive of this query.
        scores: The teacher's scores of the negatives; empty where there are none.
        turn: Which of its example's rows it is, and how many there are.
    """

    query: int
    positive: int
    score: float
    negatives: tuple[int, ...]
    scores: tuple[float, ...]
    turn: tuple[int, int]

    def picked(self, epoch: int, count: int) -> list[int]:
        """Places of the negatives whose turn it is, going round."""
        number, rows = self.turn
        first = (epoch * rows + number) * count
        return [(first + place) % len(self.negatives) for place in range(min(count, len(self.negatives)))]


class CandidateBatches:
    """The steps of a run, each a function of its number.

    A row is a query with one positive; it brings some negatives of its example, others every epoch. Rows come in a new
    order every epoch. Equal texts of a batch are one column, and a column that answers the row's query, according to
    any example, is no negative of that row.

    Attributes:
        counts: `queries` and `texts` (different ones), `rows` of an epoch, `queries_cut`, `texts_cut`,
            `negatives_that_are_positives` (left out), `rows_without_scores` (left out, where a teacher is followed).
    """

    def __init__(
        self,
        examples: Sequence[Example],
        *,
        model: SentenceModel,
        settings: TrainingSettings,
        negatives: int,
        query_prompt: str,
        document_prompt: str,
        taught: bool,
    ) -> None:
        """Take examples apart and tokenise their texts.

        Args:
            examples: The examples.
            model: The model that will read the texts.
            settings: Sizes and the seed.
            negatives: Negatives that a row brings.
            query_prompt: Stands before each query.
            document_prompt: Stands before each text.
            taught: Whether labels hold a teacher's scores.

        Raises:
            DataError: There is nothing to train with, or a text is no valid Unicode.
        """
        self.counts: Counter[str] = Counter()
        self._settings, self._model, self._negatives, self._taught = settings, model, negatives, taught
        queries: dict[str, int] = {}
        texts: dict[str, int] = {}
        self._answers = _answers(examples, queries, texts)
        self._rows = self._taken_apart(examples, queries, texts)
        if not self._rows:
            raise DataError(f"{len(examples)} examples give nothing to train with; {self._expected()}")
        limit = (settings.max_length or model.spec.limit or 512) - model.spec.frame.size
        self._query_tokens = _tokens(model, [query_prompt + text for text in queries])
        self._text_tokens = _tokens(model, [document_prompt + text for text in texts])
        for name, tokens in (("queries", self._query_tokens), ("texts", self._text_tokens)):
            self.counts[name] = len(tokens)
            self.counts[f"{name}_cut"] = sum(len(one) > limit for one in tokens)
            tokens[:] = [one[:limit] for one in tokens]
        self.counts["rows"] = len(self._rows)
        self._prompts = {"query": _skipped(model, query_prompt), "text": _skipped(model, document_prompt)}

    def __len__(self) -> int:
        """Steps of the run."""
        return self._settings.steps(len(self._rows))

    def __getitem__(self, step: int) -> dict[str, Any]:
        """Inputs of one step: tokens of its queries and of its texts, longest first, and the loss's labels."""
        if not 0 <= step < len(self):
            raise IndexError(step)
        torch = load_torch()
        chosen = [(self._rows[row], epoch) for epoch, row in self._chosen(step)]
        chosen.sort(key=lambda one: -len(self._query_tokens[one[0].query]))
        places = [row.picked(epoch, self._negatives) for row, epoch in chosen]
        used = {row.positive for row, _ in chosen}
        used.update(row.negatives[place] for (row, _), some in zip(chosen, places, strict=True) for place in some)
        order = sorted(used, key=lambda text: (-len(self._text_tokens[text]), text))
        column = {text: number for number, text in enumerate(order)}
        labels = np.zeros((1 + self._taught, len(chosen), len(order)), dtype=np.float32)
        labels[1:] = math.nan
        for number, ((row, _), some) in enumerate(zip(chosen, places, strict=True)):
            labels[0, number, [column[text] for text in self._answers[row.query] & used]] = _LEFT_OUT
            labels[0, number, column[row.positive]] = _POSITIVE
            if self._taught:
                labels[1, number, column[row.positive]] = row.score
                labels[1, number, [column[row.negatives[place]] for place in some]] = [row.scores[p] for p in some]
        return {
            **self._inputs("query", [self._query_tokens[row.query] for row, _ in chosen]),
            **self._inputs("text", [self._text_tokens[text] for text in order]),
            "label": torch.from_numpy(labels),
        }

    def _taken_apart(self, examples: Sequence[Example], queries: dict[str, int], texts: dict[str, int]) -> list[_Row]:
        """One row for each positive of each example."""
        rows = []
        for example in examples:
            query = queries[example.query]
            known = self._answers[query]
            numbers = [texts.setdefault(text, len(texts)) for text in example.negatives]
            kept = [place for place, text in enumerate(numbers) if text not in known]
            self.counts["negatives_that_are_positives"] += len(numbers) - len(kept)
            scored = bool(example.positive_scores) and len(example.negative_scores) == len(numbers) and bool(kept)
            if self._taught and not scored:
                self.counts["rows_without_scores"] += len(example.positives)
                continue
            for turn, text in enumerate(example.positives):
                rows.append(
                    _Row(
                        query=query,
                        positive=texts[text],
                        score=example.positive_scores[turn] if scored else math.nan,
                        negatives=tuple(numbers[place] for place in kept),
                        scores=tuple(example.negative_scores[place] for place in kept) if scored else (),
                        turn=(turn, len(example.positives)),
                    )
                )
        return rows

    def _expected(self) -> str:
        if self._taught:
            return "following a teacher needs scores of positives and of at least one negative each"
        return "expected at least one query with a positive"

    def _chosen(self, step: int) -> list[tuple[int, int]]:
        """Epoch and row of each row of a step: the orders of all epochs, one behind the other, cut into batches."""
        count, size = len(self._rows), self._settings.batch_rows(len(self._rows))
        last = (step + 1) * size
        if self._settings.max_steps is None:  # the last step may be a short one
            last = min(last, max(1, math.ceil(self._settings.epochs * count)))
        found = []
        for position in range(step * size, last):
            epoch, place = divmod(position, count)
            found.append((epoch, int(_order(self._settings.seed, epoch, count)[place])))
        return found

    def _inputs(self, name: str, tokens: Sequence[np.ndarray]) -> dict[str, Any]:
        torch = load_torch()
        inputs = {f"{name}_{key}": torch.from_numpy(array) for key, array in self._model.inputs(tokens).items()}
        skipped = self._prompts[name]
        return inputs | {f"{name}_prompt_length": skipped} if skipped else inputs


@functools.lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> np.ndarray:
    """The rows' order in an epoch, (count,) int64."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def _answers(examples: Sequence[Example], queries: dict[str, int], texts: dict[str, int]) -> list[set[int]]:
    """Number queries and positives; the positives of each query, over all examples."""
    answers: list[set[int]] = []
    for example in examples:
        number = queries.setdefault(example.query, len(queries))
        if number == len(answers):
            answers.append(set())
        answers[number].update(texts.setdefault(text, len(texts)) for text in example.positives)
    return answers


def _tokens(model: SentenceModel, texts: Sequence[str]) -> list[np.ndarray]:
    """Token ids of texts, without special tokens, each (length,) int32."""
    found: list[np.ndarray] = []
    for start in range(0, len(texts), _SLICE):
        some = texts[start : start + _SLICE]
        for text in some:
            if not text.isascii():
                try:
                    text.encode()
                except UnicodeEncodeError as error:
                    raise DataError(f"a text is no valid Unicode ({error.reason}): {text[:40]!r}") from None
        found += [np.array(one.ids, dtype=np.int32) for one in model.tokenize(some)]
    return found


def _skipped(model: SentenceModel, prompt: str) -> int:
    """Tokens that a pooling which leaves prompts out skips, special ones included; as the encoder counts them."""
    return len(model.spec.frame.before) + len(model.tokenize([prompt])[0].ids) if prompt else 0

"""Token sequences of (query, passage) pairs, put together as the model's tokenizer would.

Each text is tokenised once. A pair that does not fit keeps its query, and its passage becomes overlapping
windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from retrieval.errors import ConfigError, ModelError

_QUERY_SHARE = 0.75  # of the room: the most a query may take where the passage needs more than the rest
_OVERLAP = 0.25  # of a window: what it shares with the next
_SMALLEST_ROOM = 4  # tokens of query and passage together
_TEXTS_AT_ONCE = 1_024  # tokenised in one call; the tokenizer's own results are large
_PROBE = ("a", "b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One input of the network: a query and a window of a passage, as token ids without special tokens.

    Attributes:
        query: (q,) int32.
        passage: (p,) int32.
        first: Whether this is the first window of its pair.
        length: Tokens, special ones included.
    """

    query: np.ndarray
    passage: np.ndarray
    first: bool
    length: int


@dataclass(frozen=True, kw_only=True)
class PairSpec:
    """What has to be known of a cross-encoder to feed its network and to read its logits.

    Attributes:
        labels: The labels' names, by their numbers as strings.
        positions: Tokens of a pair that the network has positions for.
        limit: Tokens of a pair where the user says nothing.
        pad: Id of the padding token.
        with_types: Whether the tokenizer tells query and passage apart by token types.
        prompt: What stands before every query.
    """

    labels: Mapping[str, str]
    positions: int
    limit: int
    pad: int
    with_types: bool
    prompt: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return asdict(self)

    def max_length(self, asked: int | None, name: str) -> int:
        """Tokens of a pair.

        Raises:
            ConfigError: More is asked for than the network has positions.
        """
        if asked is not None and asked > self.positions:
            raise ConfigError(f"max_length {asked}: model {name} reads at most {self.positions} tokens")
        return self.limit if asked is None else asked


class PairNetwork(Protocol):
    """The network of a cross-encoder.

    Attributes:
        kind: cpu, cuda or mps.
    """

    kind: str

    @property
    def workers(self) -> int:
        """How many threads should call ``logits`` at once where there are many batches."""

    def padded(self, lengths: np.ndarray) -> np.ndarray:
        """The lengths of the batches to which pairs of some lengths belong, (n,) int64; each by its own length only."""

    def logits(self, inputs: Mapping[str, np.ndarray], *, alone: bool) -> np.ndarray:
        """Read one batch.

        Args:
            inputs: What ``PairTokens.batch`` gives. On a CPU all pairs are padded to one length.
            alone: Whether this is the only call at the moment, and may use all cores.

        Returns:
            (batch, labels) float32.
        """

    def quantised(self, samples: Sequence[Mapping[str, np.ndarray]], key: str) -> PairNetwork:
        """Return the network in 8-bit integers, its ranges of numbers taken from some inputs; OpenVINO only.

        Args:
            samples: Inputs of one pair each.
            key: Names the quantisation: the same key gives the same network, whatever the inputs.

        Raises:
            MissingDependencyError: NNCF is not installed.
            ModelError: It cannot be made.
        """


class PairTokens:
    """A tokenizer's way to put a pair into one sequence.

    Attributes:
        max_length: Tokens of a sequence, special ones included.
        with_types: Whether the tokenizer tells the two texts apart by token types.
    """

    def __init__(
        self, backend: Any, *, pad: int, with_types: bool, max_length: int, model: str, prompt: str = ""
    ) -> None:
        """Learn the template by encoding a probe.

        Args:
            backend: A tokenizer of the tokenizers package, which is changed: nothing cuts or pads any more.
            pad: Id of the padding token.
            with_types: See above.
            max_length: Tokens of a sequence.
            model: The model's name, for messages.
            prompt: Put before every query.

        Raises:
            ModelError: The tokenizer does not join two texts into one sequence.
            ConfigError: `max_length` leaves no room for texts.
        """
        self._backend, self._pad, self._prompt, self.with_types = backend, pad, prompt, with_types
        self._backend.no_truncation()
        self._backend.no_padding()
        self._learn_template(model)
        self.max_length = max_length
        self._room = max_length - sum(map(len, self._special))  # tokens for query and passage
        if self._room < _SMALLEST_ROOM:
            raise ConfigError(
                f"max_length {max_length} is too small for model {model}; "
                f"expected at least {max_length - self._room + _SMALLEST_ROOM}"
            )

    @classmethod
    def of(cls, tokenizer: Any, *, max_length: int, model: str, prompt: str = "") -> PairTokens:
        """Take over a fast tokenizer of transformers.

        Raises:
            ModelError: It is not a fast one, or as above.
            ConfigError: As above.
        """
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError(f"model {model} has no fast tokenizer (tokenizer.json); convert it with transformers")
        backend = tokenizer.backend_tokenizer
        return cls(
            type(backend).from_str(backend.to_str()),
            pad=tokenizer.pad_token_id or 0,
            with_types="token_type_ids" in tokenizer.model_input_names,
            max_length=max_length,
            model=model,
            prompt=prompt,
        )

    def _learn_template(self, model: str) -> None:
        probe = self._backend.encode(*_PROBE)
        owners = probe.sequence_ids  # 0 and 1 for the texts, None for special tokens
        if 0 not in owners or 1 not in owners:
            raise ModelError(f"the tokenizer of model {model} does not join two texts; a reranker's does")
        last = len(owners)
        cuts = [owners.index(0), last - owners[::-1].index(0), owners.index(1), last - owners[::-1].index(1)]
        if cuts != sorted(cuts):
            raise ModelError(f"the tokenizer of model {model} puts the passage before the query")
        ids, types = np.array(probe.ids, np.int64), np.array(probe.type_ids, np.int64)
        spans = [slice(start, stop) for start, stop in pairwise([0, *cuts, last])]
        self._special = [ids[span] for span in spans[::2]]  # before, between and after the texts
        self._special_types = [types[span] for span in spans[::2]]
        self._text_types = [types[span][:1] for span in spans[1::2]]  # of the query, of the passage

    def pieces(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[Piece], int]:
        """Tokenise pairs and cut them to fit.

        Returns:
            The pieces in the order of the pairs, one or more each; and how many different queries were cut.
        """
        queries = self._tokenise({query: self._prompt + query for query, _ in pairs})
        passages = self._tokenise({passage: passage for _, passage in pairs})
        pieces: list[Piece] = []
        cut: set[str] = set()
        for query_text, passage_text in pairs:
            query, passage = queries[query_text], passages[passage_text]
            kept = query[: max(int(_QUERY_SHARE * self._room), self._room - len(passage))]
            if len(kept) < len(query):
                cut.add(query_text)
            pieces += self._windows(kept, passage)
        return pieces, len(cut)

    def batch(self, pieces: Sequence[Piece]) -> dict[str, np.ndarray]:
        """Lay pieces out as the network's inputs.

        Returns:
            `input_ids`, `attention_mask` and `token_type_ids`, each (n, longest) int64, padded on the right.
        """
        shape = (len(pieces), max(piece.length for piece in pieces))
        ids = np.full(shape, self._pad, dtype=np.int64)
        mask, types = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        before, between, after = self._special
        types_before, types_between, types_after = self._special_types
        of_query, of_passage = self._text_types
        for row, piece in enumerate(pieces):
            used = slice(0, piece.length)
            ids[row, used] = np.concatenate([before, piece.query, between, piece.passage, after])
            query_types, passage_types = (
                of_query.repeat(len(piece.query)),
                of_passage.repeat(len(piece.passage)),
            )
            types[row, used] = np.concatenate([types_before, query_types, types_between, passage_types, types_after])
            mask[row, used] = 1
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}

    def _windows(self, query: np.ndarray, passage: np.ndarray) -> list[Piece]:
        """Cut a passage into windows that fit beside the query; the last one ends where the passage ends."""
        size = self._room - len(query)
        step = max(1, size - int(_OVERLAP * size))
        last = max(0, len(passage) - size)
        used = self.max_length - self._room + len(query)
        windows = [passage[start : start + size] for start in [*range(0, last, step), last]]
        return [
            Piece(query=query, passage=window, first=number == 0, length=used + len(window))
            for number, window in enumerate(windows)
        ]

    def _tokenise(self, texts: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Turn texts into token ids without special tokens, (n,) int32, by the mapping's keys."""
        found: dict[str, np.ndarray] = {}
        keys = list(texts)
        for start in range(0, len(keys), _TEXTS_AT_ONCE):
            some = keys[start : start + _TEXTS_AT_ONCE]
            encodings = self._backend.encode_batch_fast([texts[key] for key in some], add_special_tokens=False)
            for key, encoding in zip(some, encodings, strict=True):
                found[key] = np.array(encoding.ids, dtype=np.int32)
        return found

"""Texts as a bi-encoder reads them: its tokenizer, the special tokens around a text, its limits. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from retrieval.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The special tokens around a text: their ids and type ids, and the type id of the text's own tokens."""

    before: list[int]
    after: list[int]
    types_before: list[int]
    types_after: list[int]
    type_inside: int

    @property
    def size(self) -> int:
        """Tokens that the frame takes."""
        return len(self.before) + len(self.after)


@dataclass(frozen=True, kw_only=True)
class TextSpec:
    """What has to be known of a bi-encoder to feed its network and to use its vectors.

    Attributes:
        frame: The special tokens of one text.
        pad: Id of the padding token.
        with_types: Whether the network reads token types.
        limit: Tokens of one input that the model takes, special tokens included; None where not stated.
        metric: cosine or dot.
        pooling: The pooling mode in force, several joined by ``+``; None without a pooling module.
        query_prompt: The model's own prompt for queries, or None.
        document_prompt: The model's own prompt for documents, or None.
    """

    frame: Frame
    pad: int
    with_types: bool
    limit: int | None
    metric: str
    pooling: str | None
    query_prompt: str | None
    document_prompt: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "TextSpec":
        """Make one of what ``to_dict`` gave."""
        return cls(**{**data, "frame": Frame(**data["frame"])})


class TextModel:
    """A bi-encoder: tokenizer and what is known of the network; the classes below this one run the network.

    Attributes:
        tokenizer: Of the tokenizers package, without truncation and padding.
        spec: See there.
        name: The model's name, for messages.
        device: cpu, cuda, cuda:N or mps.
    """

    def __init__(self, tokenizer: Any, spec: TextSpec, *, name: str, device: str) -> None:
        self.tokenizer, self.spec, self.name, self.device = tokenizer, spec, name, device

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.forward([np.empty(0, dtype=np.int32)]).shape[1])

    @property
    def workers(self) -> int:
        """How many threads should call ``forward`` at once where there are many batches."""
        return 1

    def padded(self, lengths: np.ndarray) -> np.ndarray:
        """The lengths of the batches to which texts of some lengths belong, (n,) int64; each by its own length only."""
        return lengths

    def tokenize(self, texts: Sequence[str]) -> list[Any]:
        """Tokenise whole texts, without special tokens: encodings of the tokenizers package, one a text."""
        found: list[Any] = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return found

    def inputs(self, tokens: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The network's inputs of some texts' ids, each (batch, longest) int64, padded on the right."""
        frame = self.spec.frame
        longest = max(1, max(len(one) for one in tokens) + frame.size)
        ids = np.full((len(tokens), longest), self.spec.pad, dtype=np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        first = len(frame.before)
        for row, one in enumerate(tokens):
            last = first + len(one)
            stop = last + len(frame.after)
            ids[row, :first], ids[row, first:last], ids[row, last:stop] = frame.before, one, frame.after
            types[row, :first], types[row, last:stop] = frame.types_before, frame.types_after
            types[row, first:last] = frame.type_inside
            mask[row, : max(1, stop)] = 1  # an empty text without special tokens is one padding token
        inputs = {"input_ids": ids, "attention_mask": mask}
        return inputs | {"token_type_ids": types} if self.spec.with_types else inputs

    def forward(self, tokens: Sequence[np.ndarray], *, prompt_length: int = 0, alone: bool = True) -> np.ndarray:
        """Run one batch through all modules.

        On a CPU all texts of the batch must be padded to one length; each row's bits then depend on no other row.

        Args:
            tokens: (batch,) ids of each text, without special tokens.
            prompt_length: Tokens at the start, special ones included, that a pooling which excludes prompts
                leaves out.
            alone: Whether this is the only call at the moment, and may use all cores.

        Returns:
            (batch, dim) float32, not normalised unless the model does so itself.
        """
        raise NotImplementedError

    def quantised(self, tokens: Sequence[np.ndarray], key: str | None) -> "TextModel":
        """Return the model in 8-bit integers, its ranges of numbers taken from some texts; OpenVINO only.

        Args:
            tokens: (n,) ids of texts, without special tokens; at least one.
            key: Names the quantisation: the same key gives the same model, whatever the texts. None: the texts do.

        Raises:
            MissingDependencyError: NNCF is not installed.
            ModelError: It cannot be made.
        """
        raise NotImplementedError


def bare_tokenizer(tokenizer: Any, name: str) -> Any:
    """A copy of a fast tokenizer's core (of the tokenizers package), without truncation and padding.

    Raises:
        ModelError: It is no fast tokenizer.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "encode_batch"):
        raise ModelError(f"model {name} has no fast tokenizer (tokenizer.json); save it once with one")
    copy = type(backend).from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def frame_of(tokenizer: Any, name: str) -> Frame:
    """Derive the special tokens around a text from a probe.

    Raises:
        ModelError: They do not stand around the text.
    """
    probe = "a"
    bare, full = tokenizer.encode(probe, add_special_tokens=False), tokenizer.encode(probe)
    size = len(bare.ids)
    for first in range(len(full.ids) - size + 1):
        last = first + size
        inside = not any(full.special_tokens_mask[first:last])
        if full.ids[first:last] == bare.ids and (inside or size == len(full.ids)):
            return Frame(
                before=full.ids[:first],
                after=full.ids[last:],
                types_before=full.type_ids[:first],
                types_after=full.type_ids[last:],
                type_inside=full.type_ids[first] if size else 0,
            )
    raise ModelError(f"model {name}: its tokenizer does not put special tokens around a text as a frame")

"""A cross-encoder run by OpenVINO."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from retrieval.cross_model import TorchPairs, load_network, pair_spec, transformer_folder
from retrieval.errors import ModelError
from retrieval.graphs import Cached, Graph, Padding, Probe, forked
from retrieval.models import ResolvedModel
from retrieval.pairs import PairSpec, PairTokens
from retrieval.runtime import load_torch
from retrieval.texts import bare_tokenizer

_PROBE = ("how far did the lake rise?", "Measured at 6:40 a.m., the Überlauf of lake 七 rose by 12.5 cm # metres")
_PROBE_LENGTHS = (24, 0, 18, 33, 130, 258, 600)  # of pairs in tokens, as far as they can be; beyond any local attention


class PairGraph:
    """A cross-encoder whose network is an OpenVINO graph; see `pairs.PairNetwork`.

    Attributes:
        spec: What is known of the model.
        tokenizer: Of the tokenizers package.
        dtype: The number format in which it computes.
    """

    kind = "cpu"

    def __init__(
        self,
        cached: Cached,
        graph: Graph,
        *,
        dtype: str,
        torch: Callable[[], TorchPairs],
    ) -> None:
        """Use ``load_cross_graph``.

        Args:
            cached: Its folder in the cache.
            graph: The network.
            dtype: See above.
            torch: Loads the same network for torch, where a forked process needs it.
        """
        self.spec, self.tokenizer, self.dtype = PairSpec(**cached.facts["spec"]), cached.tokenizer(), dtype
        self._cached, self._graph, self._torch = cached, graph, torch

    @property
    def workers(self) -> int:
        """See `PairNetwork`."""
        return 1 if forked() else self._graph.streams

    def padded(self, lengths: np.ndarray) -> np.ndarray:
        """See `PairNetwork`."""
        return lengths if forked() else self._graph.padded(lengths)

    def logits(self, inputs: Mapping[str, np.ndarray], *, alone: bool = True) -> np.ndarray:
        """See `PairNetwork`."""
        if forked():
            return self._torch().logits(inputs)
        return self._graph.run(self._read(inputs), alone=alone)

    def quantised(self, samples: Sequence[Mapping[str, np.ndarray]], key: str) -> PairGraph:
        """See `PairNetwork`, and `graphs.Cached.quantised`."""
        try:
            graph = self._cached.quantised(key, [self._read(one) for one in samples], per_row=False)
        except (ModelError, OSError) as error:
            raise ModelError(f"the reranker is not run in int8: {error}") from error
        return PairGraph(self._cached, graph, dtype="int8", torch=self._torch)

    def _read(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The inputs that the network reads."""
        return {name: inputs[name] for name in self._cached.facts["inputs"]}


def load_cross_graph(found: ResolvedModel, *, sha256: str, dtype: str) -> PairGraph:
    """Load a cross-encoder's graph from the cache; the first time it is made, from the model loaded by torch.

    Args:
        found: The model's folder.
        sha256: Its fingerprint.
        dtype: auto, float32 or bfloat16; int8 as auto, see ``PairGraph.quantised``.

    Raises:
        ModelError: The model cannot be loaded, or not run by OpenVINO.
    """
    cached = Cached("cross-encoder", sha256)
    dtype = cached.ready(found.name, dtype, lambda: _convert(cached, found))
    typed = bool(cached.facts["spec"]["with_types"])
    torch = functools.cache(lambda: TorchPairs(_in_torch(found)[0], with_types=typed))
    return PairGraph(cached, cached.graph(dtype), dtype=dtype, torch=torch)


def _in_torch(found: ResolvedModel) -> tuple[Any, Any]:
    """Network and tokenizer, loaded for torch on the CPU."""
    return load_network(found, transformer_folder(found), False)


def _convert(cached: Cached, found: ResolvedModel) -> None:
    """Make the graph of a model.

    Raises:
        ModelError: It cannot be loaded, or not be converted.
        OSError: The cache cannot be written.
    """
    torch = load_torch()
    network, tokenizer = _in_torch(found)
    spec = pair_spec(found, transformer_folder(found), network, tokenizer)
    plain = TorchPairs(network, with_types=spec.with_types)
    inputs = list(plain.inputs)

    class Whole(torch.nn.Module):  # type: ignore[name-defined,misc]
        """The network, whose mask may be left out."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None) -> Any:
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            return self.network(input_ids=input_ids, attention_mask=mask, **types).logits

    tokens = PairTokens.of(tokenizer, max_length=spec.limit, model=found.name, prompt=spec.prompt)
    query, passage = _PROBE
    longest = tokens.pieces([(query, " ".join([passage] * _PROBE_LENGTHS[-1]))])[0][0]
    probes = []
    for length in _PROBE_LENGTHS:
        size = min(max(0, length - longest.length + len(longest.passage)), len(longest.passage))
        cut = longest.length - len(longest.passage) + size
        piece = replace(longest, passage=longest.passage[:size], length=cut)
        batch = tokens.batch([piece, piece])
        batch["input_ids"][1] = np.roll(batch["input_ids"][1], 1)
        probes.append(Probe(inputs={name: batch[name] for name in inputs}, output=plain.logits(batch)))
    facts = {"spec": spec.to_dict(), "inputs": inputs}
    bare, padding = bare_tokenizer(tokenizer, found.name), Padding(token=spec.pad, most=spec.positions)
    cached.convert(Whole().eval(), probes, bare, facts, padding=padding, per_row=False)

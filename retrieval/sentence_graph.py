"""A bi-encoder run by OpenVINO, pooling and what follows it inside the graph."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from retrieval.errors import ModelError
from retrieval.graphs import CALIBRATION, Cached, Graph, Padding, Probe, forked
from retrieval.models import ResolvedModel
from retrieval.runtime import load_torch
from retrieval.sentence_model import SentenceModel, load_sentence_model
from retrieval.texts import TextModel, TextSpec

_PROBE = "Measured at 6:40 a.m., the Überlauf of lake 七 rose by 12.5 cm; def level(x): return x / 2  # metres"
_PROBE_LENGTHS = (16, 0, 1, 3, 33, 128, 256, 510, 1100)  # tokens; the last are beyond any local attention


class SentenceGraph(TextModel):
    """A bi-encoder whose network is an OpenVINO graph."""

    def __init__(self, cached: Cached, graph: Graph, *, name: str, torch: Callable[[], SentenceModel]) -> None:
        """Use ``load_sentence_graph``.

        Args:
            cached: Its folder in the cache.
            graph: The network.
            name: See ``TextModel``.
            torch: Loads the same model for torch, where a forked process needs it.
        """
        spec = TextSpec.from_dict(cached.facts["spec"])
        super().__init__(cached.tokenizer(), spec, name=name, device="cpu")
        self._cached, self._graph = cached, graph
        self._torch = torch

    @property
    def dim(self) -> int:
        """See ``TextModel``."""
        return int(self._cached.facts["dim"])

    @property
    def workers(self) -> int:
        """See ``TextModel``."""
        return 1 if forked() else self._graph.streams

    def padded(self, lengths: np.ndarray) -> np.ndarray:
        """See ``TextModel``."""
        return lengths if forked() else self._graph.padded(lengths)

    def forward(self, tokens: Sequence[np.ndarray], *, prompt_length: int = 0, alone: bool = True) -> np.ndarray:
        """See ``TextModel``; a graph is made only of models for which the prompt's length does not matter."""
        if forked():
            return self._torch().forward(tokens)
        return self._graph.run(self.inputs(tokens), alone=alone)

    def quantised(self, tokens: Sequence[np.ndarray], key: str | None) -> SentenceGraph:
        """See ``TextModel``, and ``graphs.Cached.quantised``."""
        chosen = [tokens[row] for row in np.unique(np.linspace(0, len(tokens) - 1, CALIBRATION).astype(int))]
        if key is None:
            key = hashlib.sha256(b"\0".join(one.tobytes() for one in chosen)).hexdigest()[:16]
        samples = [self.inputs([one]) for one in chosen]
        try:
            graph = self._cached.quantised(key, samples, per_row=True)
        except (ModelError, OSError) as error:
            raise ModelError(f"model {self.name} is not run in int8: {error}") from error
        return SentenceGraph(self._cached, graph, name=self.name, torch=self._torch)


def load_sentence_graph(
    resolved: ResolvedModel, *, sha256: str, pooling: str | None, dtype: str
) -> tuple[SentenceGraph, str]:
    """Load a bi-encoder's graph from the cache; the first time it is made, from the model loaded by torch.

    Args:
        resolved: The model's folder.
        sha256: Its fingerprint.
        pooling: As in ``load_sentence_model``.
        dtype: auto, float32 or bfloat16; int8 as auto, see ``SentenceGraph.quantised``.

    Returns:
        The model, and the number format in which it computes.

    Raises:
        ModelError: The model cannot be loaded, or not run by OpenVINO.
    """
    cached = Cached("bi-encoder", sha256)  # with the pooling of its own
    if pooling is not None and cached.facts.get("spec", {}).get("pooling") != pooling:
        cached = Cached("bi-encoder", sha256, pooling)
    dtype = cached.ready(resolved.name, dtype, lambda: _convert(cached, resolved, pooling))
    torch = functools.cache(lambda: _in_torch(resolved, pooling))
    return SentenceGraph(cached, cached.graph(dtype), name=resolved.name, torch=torch), dtype


def _in_torch(resolved: ResolvedModel, pooling: str | None) -> SentenceModel:
    return load_sentence_model(resolved, device="cpu", dtype="float32", pooling=pooling, trust_remote_code=False)


def _convert(cached: Cached, resolved: ResolvedModel, pooling: str | None) -> None:
    """Make the graph of a model.

    Raises:
        ModelError: It cannot be loaded, or not be converted.
        OSError: The cache cannot be written.
    """
    torch = load_torch()
    model = _in_torch(resolved, pooling)
    if model.made_up:
        raise ModelError("some of its weights are random")
    if any(getattr(module, "include_prompt", True) is False for module in model.model):
        raise ModelError("its pooling leaves out prompts")

    class Whole(torch.nn.Module):  # type: ignore[name-defined,misc]
        """All modules as one."""

        def __init__(self, modules: Any) -> None:
            super().__init__()
            self.parts = modules

        def forward(self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None) -> Any:
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            features = {"input_ids": input_ids, "attention_mask": mask}
            if token_type_ids is not None:
                features["token_type_ids"] = token_type_ids
            for module in self.parts:
                features = module(features)
            return features["sentence_embedding"]

    probes = _probes(model)
    facts = {"spec": model.spec.to_dict(), "dim": probes[0].output.shape[1]}
    padding = Padding(token=model.spec.pad, most=model.spec.limit)
    cached.convert(Whole(model.model).eval(), probes, model.tokenizer, facts, padding=padding, per_row=True)


def _probes(model: SentenceModel) -> list[Probe]:
    """Texts of several lengths, two of each, and their vectors by torch."""
    words = np.array(model.tokenize([_PROBE])[0].ids, dtype=np.int32)
    most = (model.spec.limit or _PROBE_LENGTHS[-1]) - model.spec.frame.size
    probes = []
    for length in dict.fromkeys(min(length, most) for length in _PROBE_LENGTHS):
        tokens = [np.resize(np.roll(words, -shift), length) for shift in (0, 5)]
        probes.append(Probe(inputs=model.inputs(tokens), output=model.forward(tokens)))
    return probes

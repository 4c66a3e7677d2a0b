"""The cross-encoder: reads a query and a passage together and gives the pair one logit.

monoBERT (Nogueira and Cho 2019, "Passage Re-ranking with BERT") in any encoder family. A passage that does
not fit is read in overlapping windows and counts with its best one; a query is never pushed out by a passage.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.batching import token_batches
from retrieval.calibration import Calibration
from retrieval.errors import ConfigError, DataError
from retrieval.mixture import Mixture
from retrieval.models import ResolvedModel, fingerprint, resolve
from retrieval.pairs import PairNetwork, PairSpec, PairTokens, Piece
from retrieval.runtime import choose_device, choose_dtype, require_finite, run_batches, try_openvino
from retrieval.texts import bare_tokenizer

logger = logging.getLogger(__name__)

_BUDGETS = {"cpu": 4_096, "cuda": 65_536, "mps": 16_384}  # tokens a batch
_CALIBRATION = 32  # pairs that decide the ranges of numbers of an int8 network
_NEGATIVE = {"not", "non", "no", "irrelevant", "nonrelevant", "unrelated", "false", "negative"}


@dataclass(frozen=True, kw_only=True)
class RerankSettings:
    """How a cross-encoder runs.

    Attributes:
        max_length: Tokens of a pair, special tokens included; None takes the model's own limit.
        batch_tokens: Tokens of a batch, padding included; None chooses by device.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        dtype: `auto`, `float32`, `bfloat16`, `float16` or `int8`, of the layers below the head; scores are float32. As
            in `EncoderSettings`, like the next. int8 takes ranges of numbers from the first 32 pairs or more that are
            scored in one call on this machine; until then it is `auto`.
        runtime: `auto`, `torch` or `openvino`.
        trust_remote_code: Whether code that comes with the model may run.
    """

    max_length: int | None = None
    batch_tokens: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    runtime: str = "auto"
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens is {self.batch_tokens}; expected at least 1")


class CrossEncoder:
    """Scores (query, passage) pairs; `load` makes one. Safe to use from several threads.

    Attributes:
        identity: What decides the scores, as JSON types: name, sha256, labels, relevant_label, max_length,
            prompt, runtime, dtype; and path, the folder as a hint or None.
        mixture: How a retriever mixes the first stage's scores in; what `mixture.json` in the model's folder says,
            else these scores alone count.
        notices: Counts since loading: pairs_scored, pairs_reused (equal to an earlier one of the same call),
            pairs_windowed (the passage did not fit), queries_truncated.
    """

    def __init__(
        self,
        network: PairNetwork,
        tokens: PairTokens,
        *,
        relevant: int | None,
        identity: dict[str, object],
        batch_tokens: int | None = None,
        calibration: Calibration | None = None,
        mixture: Mixture | None = None,
    ) -> None:
        self.identity = identity
        self.mixture = mixture or Mixture()
        self.notices: Counter[str] = Counter()
        self._network = network
        self._quantised = identity.get("dtype") != "int8"  # whether nothing is left to do for it
        self._tokens = tokens
        self._relevant = relevant
        self._calibration = calibration or Calibration()
        self._budget = batch_tokens or _BUDGETS[network.kind]
        self._lock = threading.RLock()  # of the notices, and of making an int8 network

    @classmethod
    def load(cls, model: str | Path, *, settings: RerankSettings = RerankSettings()) -> CrossEncoder:
        """Load a cross-encoder with one or two labels.

        Args:
            model: A folder of transformers or of sentence-transformers' CrossEncoder, or a hub name.
            settings: How it runs.

        Raises:
            ModelError: There is no such model, or it is none that scores pairs.
            ConfigError: A setting that this model or this machine cannot follow.
        """
        found = resolve(model)
        sha256 = fingerprint(found.folder)
        settings = replace(settings, device=choose_device(settings.device))
        network, spec, tokenizer, settings = _loaded(found, sha256, settings)
        limit = spec.max_length(settings.max_length, found.name)
        relevant = relevant_label({int(label): text for label, text in spec.labels.items()})
        tokens = PairTokens(
            tokenizer,
            pad=spec.pad,
            with_types=spec.with_types,
            max_length=limit,
            model=found.name,
            prompt=spec.prompt,
        )
        identity: dict[str, object] = {
            "name": found.name,
            "sha256": sha256,
            "labels": len(spec.labels),
            "relevant_label": relevant,
            "max_length": limit,
            "prompt": spec.prompt,
            "runtime": settings.runtime,
            "dtype": settings.dtype,
            "path": found.path,
        }
        return cls(
            network,
            tokens,
            relevant=relevant,
            identity=identity,
            batch_tokens=settings.batch_tokens,
            calibration=Calibration.load(found.folder),
            mixture=Mixture.load(found.folder),
        )

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Score pairs; equal ones are read once.

        Args:
            pairs: (query, passage) texts. An empty passage is scored as such.
            progress: Called after each batch with the number of pairs that it finished.

        Returns:
            (n,) float32 logits, finite; higher is more relevant. Of a model with two labels, the log-odds of
            the relevant one.

        Raises:
            DataError: A pair that is not two strings.
            ModelError: The model gives NaN or infinite logits.
        """
        _check_pairs(pairs)
        rows: dict[tuple[str, str], int] = {}
        wanted = np.array([rows.setdefault((query, passage), len(rows)) for query, passage in pairs], dtype=int)
        if not rows:
            return np.empty(0, dtype=np.float32)
        pieces, cut = self._tokens.pieces(list(rows))
        first = np.array([piece.first for piece in pieces])  # (m,) bool: where a pair's windows start
        starts = np.flatnonzero(first)  # (pairs,)
        lengths = np.array([piece.length for piece in pieces], dtype=np.int64)
        if progress is not None:
            progress(len(pairs) - len(rows))

        network = self._for(pieces)
        # On a CPU a pair is padded by its own length only, so that it has the same bits alone and in any batch.
        lengths = network.padded(lengths)
        batches = token_batches(lengths, self._budget, same_length=network.kind == "cpu")
        workers = network.workers if len(batches) > 1 else 1

        def forward(batch: np.ndarray) -> np.ndarray:
            logits = self._logits(network, [pieces[row] for row in batch], alone=workers == 1)
            if progress is not None:
                with self._lock:
                    progress(int(first[batch].sum()))
            return logits

        name, limit = str(self.identity["name"]), self._tokens.max_length
        logits = run_batches(batches, lengths, forward, model=name, workers=workers)
        owner = np.cumsum(first) - 1  # (m,) the pair of each window
        texts = list(rows)
        require_finite(logits, model=name, what=lambda row: f"the pair {_shown(texts[owner[row]])}")
        if cut:
            logger.warning("%d of the queries cut to leave room for their passages: a pair has %d tokens", cut, limit)
        with self._lock:
            self.notices.update(
                pairs_scored=len(rows),
                pairs_reused=len(pairs) - len(rows),
                pairs_windowed=int((np.diff(starts, append=len(pieces)) > 1).sum()),
                queries_truncated=cut,
            )
        best = np.maximum.reduceat(logits, starts)  # (pairs,)
        return np.asarray(best[wanted])

    def probability(self, scores: np.ndarray) -> np.ndarray:
        """Turn logits into probabilities of relevance, by the model's calibration where it carries one.

        Args:
            scores: (n,) what `score` returned.

        Returns:
            (n,) float32 in [0, 1]: 1 / (1 + exp(-score)) without a calibration.
        """
        return self._calibration.probability(scores)

    def _for(self, pieces: Sequence[Piece]) -> PairNetwork:
        """The network that reads these pairs; in int8, made with the first ones that are enough."""
        with self._lock:
            if not self._quantised and len(pieces) >= _CALIBRATION:
                chosen = [pieces[row] for row in np.linspace(0, len(pieces) - 1, _CALIBRATION).astype(int)]
                chosen[::2] = [_answered(piece) for piece in chosen[::2]]
                self._network = self._network.quantised([self._tokens.batch([piece]) for piece in chosen], "pairs")
                self._quantised = True
            return self._network

    def _logits(self, network: PairNetwork, pieces: Sequence[Piece], *, alone: bool) -> np.ndarray:
        """Run the network on one batch: (batch,) float32."""
        logits = network.logits(self._tokens.batch(pieces), alone=alone)
        if self._relevant is None:
            return logits[:, 0]
        return np.asarray(logits[:, self._relevant] - logits[:, 1 - self._relevant])  # log p / (1 - p) of a softmax


def _loaded(
    found: ResolvedModel, sha256: str, settings: RerankSettings
) -> tuple[PairNetwork, PairSpec, Any, RerankSettings]:
    """Load a network for the runtime that fits, and its tokenizer; the settings say which runtime and number format.

    Raises:
        ModelError: It cannot be loaded, or not by the runtime that is asked for.
        ConfigError: Settings that contradict each other.
    """

    def graph() -> tuple[PairNetwork, PairSpec, Any, RerankSettings]:
        from retrieval.cross_graph import load_cross_graph

        read = load_cross_graph(found, sha256=sha256, dtype=settings.dtype)
        dtype = "int8" if settings.dtype == "int8" else read.dtype
        return read, read.spec, read.tokenizer, replace(settings, runtime="openvino", dtype=dtype)

    by_openvino = try_openvino(
        graph,
        runtime=settings.runtime,
        device=settings.device,
        dtype=settings.dtype,
        folder=found.folder,
        trust_remote_code=settings.trust_remote_code,
    )
    if by_openvino is not None:
        return by_openvino
    from retrieval.cross_model import TorchPairs, load_network, pair_spec, place, transformer_folder

    settings = replace(settings, runtime="torch", dtype=choose_dtype(settings.dtype, settings.device))
    folder = transformer_folder(found)
    network, tokenizer = load_network(found, folder, settings.trust_remote_code)
    place(network, settings.device, settings.dtype)
    spec = pair_spec(found, folder, network, tokenizer)
    return TorchPairs(network, with_types=spec.with_types), spec, bare_tokenizer(tokenizer, found.name), settings


def relevant_label(names: Mapping[int, str]) -> int | None:
    """Find the label that means relevant.

    Args:
        names: The labels' names, `id2label` of a model's config.

    Returns:
        None for a model with one label; for two, the one whose companion says no (`not_relevant`, `false`,
        ...), or 1 where the names say nothing.
    """
    if len(names) == 1:
        return None
    negative = [label for label, name in names.items() if _NEGATIVE & set(re.findall("[a-z]+", name.lower()))]
    return 1 - negative[0] if len(negative) == 1 else 1


def _answered(piece: Piece) -> Piece:
    """The same passage with its own beginning for a query, so that relevant pairs are looked at too."""
    size = len(piece.query)
    return replace(piece, query=np.resize(piece.passage, size)) if len(piece.passage) else piece


def _check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(f"pair {number}: expected (query, passage), got {pair!r:.60}")
        for kind, text in zip(("query", "passage"), pair, strict=True):
            if not isinstance(text, str):
                raise DataError(f"pair {number}: the {kind} is {text!r:.60}; expected a string")
            if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise DataError(f"pair {number}: the {kind} holds half a character; read its file as UTF-8")


def _shown(pair: tuple[str, str]) -> str:
    return " / ".join(repr(text if len(text) <= 40 else text[:37] + "...") for text in pair)

"""The encoder of an index: which model it is, loading it again, refusing another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from retrieval.calibration import Calibration
from retrieval.chunking import PassageVectors
from retrieval.encoder import POOLINGS, BiEncoder, EncoderSettings
from retrieval.errors import ConfigError, IndexMismatchError, ModelError
from retrieval.index.manifest import Manifest
from retrieval.models import ResolvedModel, resolve


class Encoder(Protocol):
    """What a build asks of a bi-encoder; `BiEncoder` is ours, any object with these will do."""

    dim: int
    metric: str

    @property
    def identity(self) -> Mapping[str, Any]:
        """JSON-able: says which model this is; has at least `name` and `sha256`."""

    @property
    def notices(self) -> Mapping[str, int]:
        """Counts of what was cut."""

    def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
        """Split documents into passages and encode them."""

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Encode queries as (n, dim) float32."""


class Reranker(Protocol):
    """What a retriever asks of a cross-encoder; `CrossEncoder` is ours, any object with this will do.

    A `probability(scores)` of its own is used, (n,) in [0, 1]; without one, a score is a logit. So is a `mixture`
    whose `combine(retrieval_scores, scores)` gives what a query's hits are ordered by, (n,); without one, or where it
    is None, they are ordered by the score.
    """

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Score (query, passage) pairs as (n,) numbers, higher is better."""


def scored(reranker: Reranker, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Score pairs, with any reranker, as (n,) finite numbers.

    Raises:
        ModelError: The reranker gives something else.
    """
    scores = np.asarray(reranker.score(pairs))
    if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
        given = "NaN or infinite scores" if scores.shape == (len(pairs),) else f"an array of shape {scores.shape}"
        raise ModelError(f"the reranker gave {given}, expected {len(pairs)} finite scores")
    return scores


def probability(reranker: Reranker, scores: np.ndarray) -> np.ndarray:
    """Turn a reranker's scores (n,) into probabilities of relevance, (n,) float64."""
    own = getattr(reranker, "probability", None) or Calibration().probability
    return np.asarray(own(scores), float)


def combined(reranker: Reranker, retrieval_scores: Sequence[float], scores: np.ndarray) -> np.ndarray:
    """Say what the candidates of one query are ordered by once a reranker has scored them.

    Args:
        reranker: Its `mixture` is asked, if it has one.
        retrieval_scores: (n,) the first stage's.
        scores: (n,) the reranker's.

    Returns:
        (n,) float64; the reranker's scores where there is no mixture. With one they depend on all candidates.

    Raises:
        ModelError: The mixture gives something else than finite numbers.
    """
    mixture = getattr(reranker, "mixture", None)
    if mixture is None:
        return scores.astype(np.float64)
    mixed = np.asarray(mixture.combine(np.asarray(retrieval_scores, np.float64), scores), np.float64)
    if mixed.shape != scores.shape or not np.isfinite(mixed).all():
        raise ModelError(f"the reranker's mixture gave {mixed!r:.60}, expected {len(scores)} finite numbers")
    return mixed


def mixed(reranker: Reranker) -> str:
    """Say for a person that the first stage's score counts too; "" where the reranker alone decides."""
    weight = getattr(getattr(reranker, "mixture", None), "weight", 0)
    return f"mixed: {weight:g} first stage" if weight else ""


def find_model(manifest: Manifest, path: Path, model: str | Path | None = None) -> ResolvedModel:
    """Find the folder of an index's encoder, or of the one that is given in its place.

    Raises:
        ModelError: It cannot be found.
    """
    made_with = manifest.encoder
    if made_with is None or model is not None:
        return resolve(model)
    try:
        return resolve(made_with.get("path") or made_with["name"])
    except ModelError as error:
        raise ModelError(
            f"the index {path} was made with {made_with['name']}, and {error}; "
            "if it lies elsewhere now, give that place with --model"
        ) from error


def load_encoder(
    manifest: Manifest,
    path: Path,
    model: str | Path | None = None,
    run: EncoderSettings = EncoderSettings(),
) -> BiEncoder:
    """Load the model that an index was made with, with the index's prompts, pooling and limits.

    Args:
        manifest: The index's.
        path: The index folder, for messages.
        model: Where the model lies, if not where it did.
        run: How it runs here: device, dtype, batch_tokens, trust_remote_code. The rest is the index's.

    Raises:
        ConfigError: The index was made of ready-made vectors and no model is given.
        ModelError: The model cannot be found or loaded.
    """
    made_with = manifest.encoder
    if made_with is None:
        if model is None:
            raise ConfigError(
                f"{path} was made of ready-made vectors without a model: "
                "give --model to encode texts, or --vectors instead of texts"
            )
        return BiEncoder.load(model, settings=run)
    settings = replace(
        run,
        pooling=pooling if (pooling := made_with.get("pooling")) in POOLINGS else None,
        query_prompt=made_with.get("query_prompt"),
        document_prompt=made_with.get("document_prompt"),
        max_length=made_with.get("max_length"),
        on_long=manifest.text.get("on_long", "window"),
        overlap=manifest.text.get("overlap"),
        calibration=made_with.get("calibration"),
        dim=manifest.dim if made_with.get("model_dim", manifest.dim) != manifest.dim else None,
    )
    found = find_model(manifest, path, model)
    return BiEncoder.load(found.folder if found.path else found.name, settings=settings)


def require_same_model(manifest: Manifest, encoder: Encoder, path: Path) -> None:
    """Check that an encoder is the one that the index was made with.

    Raises:
        IndexMismatchError: Another dimension, another model, or the same name with other weights.
    """
    made_with = manifest.encoder
    name = encoder.identity.get("name")
    if encoder.dim != manifest.dim:
        known = f"was made with {made_with['name']}" if made_with else "holds ready-made vectors"
        raise IndexMismatchError(
            f"the index {path} {known} ({manifest.dim} dimensions), the model given is {name} ({encoder.dim}); "
            "use the index's model or rebuild the index"
        )
    known, given = (str((identity or {}).get("sha256")) for identity in (made_with, encoder.identity))
    if made_with and known != given:
        same = " with other weights, tokenizer or configuration" if name == made_with["name"] else ""
        raise IndexMismatchError(
            f"the index {path} was made with {made_with['name']} (sha256 {known[:12]}), the model given is "
            f"{name}{same} (sha256 {given[:12]}); use the index's model or rebuild the index"
        )

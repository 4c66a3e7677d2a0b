"""Training of bi-encoders, on sentence-transformers' trainer: the model that is trained is the one that is served."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retrieval.encoder import POOLINGS
from retrieval.errors import ConfigError, MissingDependencyError
from retrieval.models import fingerprint, resolve
from retrieval.runtime import load_torch, quiet_loading
from retrieval.sentence_model import SentenceModel, load_sentence_model
from retrieval.training.adapters import add_adapters, merged
from retrieval.training.candidates import CandidateBatches
from retrieval.training.card import model_card
from retrieval.training.examples import Example
from retrieval.training.loop import autocast, fit, micro_tokens, prepare, training_device
from retrieval.training.run import (
    Evaluate,
    TrainingReport,
    TrainingSettings,
    examples_hash,
    identity_of,
    open_run,
)

LOSSES = ("infonce", "margin-mse", "kl")
"""What a bi-encoder learns from: positives against all other texts of the batch, or a teacher's scores."""

_TEMPERATURES = {"cosine": 0.05, "dot": 1.0}
_ACTIVATION_BYTES = (
    100  # a token's, for each layer and each component of its vector (measured: 60 in bfloat16, 80 in float32)
)
_ACTIVATIONS = 3 * 2**29  # bytes that may be kept on a CPU
_SHORT = 512  # tokens up to which eager attention, the fastest on a CPU, is affordable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BiEncoderTraining(TrainingSettings):
    """How a bi-encoder is trained.

    Attributes:
        loss: One of `LOSSES`.
        temperature: What similarities are divided by in the loss; None: 0.05 for cosines, 1 for dot products.
        negatives: Negatives of its example that each row brings into the batch, others every epoch.
        matryoshka: Lengths to which vectors shall be cut later on: the loss is taken at each of them.
        lora_rank: Train adapters of this rank instead of the weights; needs peft.
        interpolation: What is saved and evaluated lies so far from the model that training starts from towards what
            was learnt: above 0, up to 1, all of the way (weight interpolation: Wortsman et al. 2022). Less keeps
            most of a gain and most of what the model could do on other texts.
        query_prompt: Put before each query, and stored in the model; None leaves the model's own.
        document_prompt: The same for texts.
        direct_tokens: Batches of at most so many tokens keep their activations, which is a quarter faster than
            computing them twice; larger ones take no more memory. None: what fits into 1.5 GiB, on a GPU into a
            quarter of its free memory.
    """

    loss: str = "infonce"
    temperature: float | None = None
    negatives: int = 1
    matryoshka: tuple[int, ...] = ()
    lora_rank: int | None = None
    interpolation: float = 1.0
    query_prompt: str | None = None
    document_prompt: str | None = None
    direct_tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in LOSSES:
            raise ConfigError(f"unknown loss {self.loss!r}; expected one of {', '.join(LOSSES)}")
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise ConfigError(f"temperature is {self.temperature}; expected a number above 0")
        if not 0 < self.interpolation <= 1:
            raise ConfigError(f"interpolation is {self.interpolation}; expected a share above 0, up to 1")
        for name, lowest in (("negatives", int(self.loss != "infonce")), ("direct_tokens", 0), ("lora_rank", 1)):
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ConfigError(f"{name} is {value}; expected at least {lowest}")


def train_bi_encoder(
    examples: Sequence[Example],
    out: str | Path,
    *,
    model: str | Path | None = None,
    pooling: str | None = None,
    settings: BiEncoderTraining = BiEncoderTraining(),
    evaluate: Evaluate | None = None,
    sources: Mapping[str, object] | None = None,
    overwrite: bool = False,
    progress: Callable[[float], None] | None = None,
) -> TrainingReport:
    """Train a bi-encoder. An interrupted call goes on when it is repeated, with the same result on a CPU.

    Args:
        examples: What to learn from.
        out: The folder of the trained model; it appears when the training is complete.
        model: The model to start from, as `BiEncoder.load` takes it; a plain encoder too.
        pooling: One of `retrieval.encoder.POOLINGS`; None takes the model's own, the mean for a plain encoder.
        settings: How to train.
        evaluate: Called at intervals with the folder of the model as it is; the model of the highest first
            figure is kept. None keeps the last one.
        sources: Where the examples come from (names, hashes, counts), for the model's card.
        overwrite: Replace a model that lies at `out`.
        progress: Called after each step with the share of the steps that is done.

    Raises:
        ConfigError: A setting does not fit the model or this machine, or `out` exists.
        DataError: The examples give nothing to train with.
        ModelError: The model cannot be loaded or trained.
        MissingDependencyError: A package that training needs is not installed.
    """
    if pooling is not None and pooling not in POOLINGS:
        raise ConfigError(f"unknown pooling {pooling!r}; expected one of {', '.join(POOLINGS)}")
    device = training_device(settings)
    resolved = resolve(model)
    start, data = fingerprint(resolved.folder), examples_hash(examples)
    identity = identity_of("bi-encoder", settings, model=start, data=data, pooling=pooling)
    with open_run(out, identity=identity, overwrite=overwrite) as run:
        served = load_sentence_model(
            resolved, device=device, dtype="float32", pooling=pooling, trust_remote_code=settings.trust_remote_code
        )
        _check_length(settings, served)
        _set_prompts(served, settings)
        batches = CandidateBatches(
            examples,
            model=served,
            settings=settings,
            negatives=settings.negatives,
            query_prompt=served.spec.query_prompt or "",
            document_prompt=served.spec.document_prompt or "",
            taught=settings.loss != "infonce",
        )
        _log_counts(batches.counts)
        transformer = served.model[0].auto_model
        prepare(transformer, settings)
        if device == "cpu" and (settings.max_length or served.spec.limit or _SHORT + 1) <= _SHORT:
            transformer.set_attn_implementation("eager")
        origin = {} if settings.interpolation == 1 else _weights(served.model)
        if settings.lora_rank is not None:
            add_adapters(transformer, rank=settings.lora_rank, seed=settings.seed)
        with quiet_loading():
            from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

        fit(
            run,
            model=served.model,
            loss=_loss(served, settings, device),
            batches=batches,
            settings=settings,
            interval=settings.interval(batches.counts["rows"]),
            trainer=SentenceTransformerTrainer,
            arguments=SentenceTransformerTrainingArguments,
            save=lambda folder: _save(served.model, folder, settings, origin),
            evaluate=evaluate,
            progress=progress,
        )
        report = run.report(batches.counts)
        run.publish(
            model_card(
                report,
                kind="bi-encoder",
                start=resolved.name,
                start_sha256=start,
                data_sha256=data,
                examples=len(examples),
                settings=settings,
                sources=sources or {},
                history=run.records(),
            )
        )
    return report


def _check_length(settings: BiEncoderTraining, served: SentenceModel) -> None:
    """Refuse lengths that the model does not have."""
    length, limit = settings.max_length, served.spec.limit
    if length is None and limit is None:
        raise ConfigError(f"model {served.name} states no maximum length; give max_length (--max-length)")
    if length is not None and limit is not None and length > limit:
        raise ConfigError(f"max_length {length} is more than model {served.name} takes: {limit} tokens")
    if length is not None and length <= served.spec.frame.size:
        raise ConfigError(f"max_length {length} leaves no room beside {served.spec.frame.size} special tokens")
    if settings.matryoshka:
        dim = served.model.get_embedding_dimension()
        if served.spec.metric != "cosine":
            raise ConfigError(
                f"matryoshka lengths need a model of cosines; {served.name} is made for {served.spec.metric}"
            )
        if not all(0 < length <= dim for length in settings.matryoshka):
            raise ConfigError(f"matryoshka lengths are {settings.matryoshka}; expected 1 to {dim}, the model's own")


def _set_prompts(served: SentenceModel, settings: BiEncoderTraining) -> None:
    """Put the user's prompts into the model, so that they are saved with it."""
    for name in ("query", "document"):
        prompt = getattr(settings, f"{name}_prompt")
        if prompt is not None:
            served.model.prompts[name] = prompt
            setattr(served, f"{name}_prompt", prompt)


def _loss(served: SentenceModel, settings: BiEncoderTraining, device: str) -> Any:
    with quiet_loading():
        try:
            from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss

            from retrieval.training.losses import CandidateLoss
        except ImportError as error:  # version 5 has them elsewhere, and a gradient cache of another form
            raise MissingDependencyError(
                "training of bi-encoders needs sentence-transformers 6; install it with: "
                'pip install "sentence-transformers>=6"'
            ) from error

    direct = _direct_tokens(served, device) if settings.direct_tokens is None else settings.direct_tokens
    loss = CandidateLoss(
        served.model,
        kind=settings.loss,
        metric=served.spec.metric,
        temperature=settings.temperature or _TEMPERATURES[served.spec.metric],
        micro_tokens=micro_tokens(settings, device),
        direct_tokens=direct,
        autocast=autocast(settings, device),
    )
    if settings.matryoshka:
        return MatryoshkaLoss(served.model, loss, sorted(settings.matryoshka, reverse=True))
    return loss


def _direct_tokens(served: SentenceModel, device: str) -> int:
    """Tokens whose activations fit into memory together."""
    torch = load_torch()
    config = served.model[0].auto_model.config
    layers = getattr(config, "num_hidden_layers", 12)
    room = torch.cuda.mem_get_info()[0] // 4 if device == "cuda" else _ACTIVATIONS
    return int(room // (_ACTIVATION_BYTES * layers * config.hidden_size))


def _save(model: Any, folder: Path, settings: BiEncoderTraining, origin: Mapping[str, Any]) -> None:
    """Write the model as a folder that `BiEncoder.load` and SentenceTransformer read."""
    plain = merged(model) if settings.lora_rank is not None else model
    with quiet_loading(), _interpolated(plain, origin, settings.interpolation):
        plain.save_pretrained(str(folder), create_model_card=False)


@contextlib.contextmanager
def _interpolated(model: Any, origin: Mapping[str, Any], share: float) -> Iterator[None]:
    """Move a model's weights to `share` of the way from those of `origin` to its own, for a while."""
    if not origin:
        yield
        return
    own = _weights(model)
    floating = {name: value for name, value in own.items() if value.is_floating_point()}
    model.load_state_dict(
        {**own, **{name: origin[name].lerp(value.float(), share) for name, value in floating.items()}}
    )
    try:
        yield
    finally:
        model.load_state_dict(own)


def _weights(model: Any) -> dict[str, Any]:
    """Copy a model's weights to the CPU."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def _log_counts(counts: Mapping[str, int]) -> None:
    logger.info("%d rows an epoch: %d queries, %d texts", counts["rows"], counts["queries"], counts["texts"])
    for name in ("queries_cut", "texts_cut", "negatives_that_are_positives", "rows_without_scores"):
        if counts[name]:
            logger.warning("%s: %d", name.replace("_", " "), counts[name])

"""Training a cross-encoder: monoBERT and its list-wise kin, from any encoder.

The steps are `loop.fit`'s, on transformers' Trainer. sentence-transformers' CrossEncoderTrainer is that same trainer
with losses that read texts themselves: they cut the longer of the two texts, pad a batch to its longest pair, and most
take one label only. Here a pair is read as `retrieval.reranker` reads it, micro-batches are sorted by length, and a
head may have two labels, so the inputs and losses are ours (`lists`, `list_loss`, `rank_losses`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.calibration import BINS, Calibration, expected_calibration_error, fit_calibration
from retrieval.errors import ConfigError, DataError
from retrieval.models import ResolvedModel, fingerprint, resolve
from retrieval.pairs import PairTokens
from retrieval.reranker import CrossEncoder, RerankSettings, relevant_label
from retrieval.training.card import model_card
from retrieval.training.classifier import Classifier, save_classifier, start_classifier
from retrieval.training.examples import Example
from retrieval.training.lists import ListBatches, lists_of
from retrieval.training.loop import autocast, fit, micro_tokens, prepare, training_device
from retrieval.training.rank_losses import LOSSES
from retrieval.training.run import (
    Evaluate,
    TrainingReport,
    TrainingRun,
    TrainingSettings,
    examples_hash,
    identity_of,
    open_run,
)

CALIBRATIONS = ("platt", "temperature", "none")
"""What is fitted on development examples: scale and bias, the scale alone, or nothing."""

# Tokens up to which attention is computed by plain products on a CPU: 1.4 times as fast as torch's own (measured), but
# its memory grows with the square of the length.
_EAGER = 512

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CrossEncoderTraining(TrainingSettings):
    """How a cross-encoder is trained. A row of a step is a list: positives of one query and negatives.

    Attributes:
        batch_size: Lists in a step.
        loss: One of pointwise, pairwise, listwise, lambda, margin-mse, kl; see `rank_losses`.
        positives: Positives in a list, at most; an example with more makes several lists.
        negatives: Negatives in a list, at most; others are drawn in every epoch.
        windows: Windows of a passage that are read in training, at most. A passage counts with its best one,
            as in serving, where all are read.
        labels: 1 or 2; None: as many as a cross-encoder to start from has, 1 for an encoder.
        prompt: Put before every query, in training and in serving; None: the one of a cross-encoder to start
            from, none for an encoder.
        half: Write the weights as float16.
        calibration: One of `CALIBRATIONS`.
    """

    batch_size: int = 16
    learning_rate: float = 5e-5
    loss: str = "listwise"
    positives: int = 1
    negatives: int = 5
    windows: int = 1
    labels: int | None = None
    prompt: str | None = None
    half: bool = False
    calibration: str = "platt"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (("loss", LOSSES), ("calibration", CALIBRATIONS)):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"unknown {name} {getattr(self, name)!r}; expected one of {', '.join(allowed)}")
        for name in ("positives", "negatives", "windows"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 1")
        if self.labels not in (None, 1, 2):
            raise ConfigError(f"labels is {self.labels}; expected 1 or 2")


def train_cross_encoder(
    examples: Sequence[Example],
    out: str | Path,
    *,
    model: str | Path | None = None,
    settings: CrossEncoderTraining = CrossEncoderTraining(),
    evaluate: Evaluate | None = None,
    development: Sequence[Example] = (),
    sources: Mapping[str, object] | None = None,
    overwrite: bool = False,
    progress: Callable[[float], None] | None = None,
) -> TrainingReport:
    """Train a cross-encoder and write it into a folder; an interrupted training of the same inputs goes on.

    Args:
        examples: What to learn from.
        out: The folder to make. It loads with `retrieval.CrossEncoder` and with sentence-transformers'.
        model: An encoder or cross-encoder to start from, as a folder or hub name; None: the default encoder.
        settings: How.
        evaluate: Judges a model's folder at intervals, the deciding figure first; the best model is kept. None:
            mean reciprocal rank of the development examples' positives, where there are such examples.
        development: Examples to calibrate on, each with its candidates as a first stage returns them: the
            share of positives among them is what probabilities presuppose. One half of the queries fits, the
            other measures.
        sources: Where the examples come from (names, hashes, counts), for the model's card.
        overwrite: Replace a model that is there when the new one is complete.
        progress: Called with the share of the steps that is done.

    Returns:
        The report; its metrics hold `ece_before` and `ece`, the expected calibration errors, where something was
        calibrated. Its notices count pairs (and lists, pairs_cut, queries_cut) since the last interruption.

    Raises:
        DataError: There is nothing to learn from, or nothing to calibrate with.
        ModelError: The model cannot be trained, or diverges.
        ConfigError: A setting that this model or machine cannot follow, or `out` exists.
    """
    device = training_device(settings)
    _require_calibration(development, settings)
    lists, left_out = lists_of(examples, loss=settings.loss, positives=settings.positives)
    found = resolve(model)
    sha256, data = fingerprint(found.folder), examples_hash(examples)
    identity = identity_of("cross-encoder", settings, model=sha256, data=data, development=examples_hash(development))
    with open_run(out, identity=identity, overwrite=overwrite) as run:
        start = _start(found, settings, device)
        batches = ListBatches(
            lists,
            PairTokens.of(start.tokenizer, max_length=start.max_length, prompt=start.prompt, model=found.name),
            steps=settings.steps(len(lists)),
            size=settings.batch_rows(len(lists)),
            negatives=settings.negatives,
            windows=settings.windows,
            seed=settings.seed,
        )
        trainer, arguments = _trainer()
        fit(
            run,
            model=start.network,
            loss=_loss(start, batches, settings, device),
            batches=batches,
            settings=settings,
            interval=settings.interval(len(lists)),
            trainer=trainer,
            arguments=arguments,
            save=lambda folder: save_classifier(start, folder, half=settings.half),
            evaluate=evaluate or (_ranking(development, settings) if development else None),
            progress=progress,
        )
        figures = _calibrate(run, development, settings)
        report = run.report({"lists": len(lists), "lists_left_out": left_out, **batches.notices})
        _log_notices(report.notices)
        report = replace(report, metrics={**report.metrics, **figures})
        card = model_card(
            report,
            kind="cross-encoder",
            start=found.name,
            start_sha256=sha256,
            data_sha256=data,
            examples=len(examples),
            settings=settings,
            sources=sources or {},
            history=run.records(),
        )
        run.publish(card + _calibrated(figures, settings))
    return report


def _start(found: ResolvedModel, settings: CrossEncoderTraining, device: str) -> Classifier:
    start = start_classifier(
        found,
        labels=settings.labels,
        max_length=settings.max_length,
        prompt=settings.prompt,
        seed=settings.seed,
        trust_remote_code=settings.trust_remote_code,
    )
    prepare(start.network, settings)
    if device == "cpu" and start.max_length <= _EAGER:
        start.network.set_attn_implementation("eager")
    return start


def _loss(start: Classifier, batches: ListBatches, settings: CrossEncoderTraining, device: str) -> Any:
    from retrieval.training.list_loss import ListLoss

    accepted = inspect.signature(start.network.forward).parameters
    return ListLoss(
        start.network,
        kind=settings.loss,
        relevant=relevant_label(start.network.config.id2label),
        micro_tokens=micro_tokens(settings, device),
        with_types=batches.with_types and "token_type_ids" in accepted,
        autocast=autocast(settings, device),
    )


def _trainer() -> tuple[type[Any], type[Any]]:
    """transformers' trainer, for a loss that takes a step's inputs, and the class of its arguments."""
    from transformers import Trainer, TrainingArguments

    class ListTrainer(Trainer):  # type: ignore[misc]  # transformers is not typed here
        def __init__(self, *, model: Any, args: Any, loss: Any) -> None:
            super().__init__(model=model, args=args)
            self.loss = loss

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **more: Any) -> Any:
            return self.loss(inputs)

    return ListTrainer, TrainingArguments


def _log_notices(notices: Mapping[str, int]) -> None:
    for name in ("lists_left_out", "pairs_cut", "queries_cut"):
        if notices.get(name):
            logger.warning("%s: %d", name.replace("_", " "), notices[name])


def _ranking(development: Sequence[Example], settings: CrossEncoderTraining) -> Evaluate:
    """Judge a model by how high it ranks the positives of development examples."""

    def evaluate(folder: Path) -> Mapping[str, float]:
        scores = _scores(folder, development, settings)
        places: list[float] = []
        start = 0
        for example in development:
            good = scores[start : start + len(example.positives)]
            start += len(example.positives)
            bad = scores[start : start + len(example.negatives)]
            start += len(example.negatives)
            places.append(1 / (1 + int((bad >= good.max()).sum())))
        return {"mrr": float(np.mean(places))}

    return evaluate


def _scores(folder: Path, examples: Sequence[Example], settings: CrossEncoderTraining) -> np.ndarray:
    """Scores of all texts, example by example, the positives first, as they are served: (n,) float32."""
    serving = RerankSettings(
        device=settings.device, runtime="torch", trust_remote_code=settings.trust_remote_code
    )  # a checkpoint is not converted
    reranker = CrossEncoder.load(folder, settings=serving)
    return reranker.score([(one.query, text) for one in examples for text in one.positives + one.negatives])


def _require_calibration(development: Sequence[Example], settings: CrossEncoderTraining) -> None:
    """Refuse examples that cannot calibrate before the training that would be lost: another setting starts anew.

    Raises:
        DataError: The half that fits has no relevant or no irrelevant text, or the other half is empty.
    """
    if not development or settings.calibration == "none":
        return
    relevant, fitting = _halves(development, settings.seed)
    good, bad, measured = (int(part.sum()) for part in (relevant & fitting, ~relevant & fitting, ~fitting))
    if not (good and bad and measured):
        raise DataError(
            f"the {len(development)} development examples cannot calibrate: of the half that fits, {good} texts are "
            f"relevant and {bad} are not, the other half has {measured}; give more of them, with negatives, or set "
            "calibration to none"
        )


def _halves(development: Sequence[Example], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which texts are relevant, and which are on the half that fits; in the order of `_scores`, each (n,) bool."""
    sizes = [len(one.positives) + len(one.negatives) for one in development]
    relevant = np.concatenate(
        [np.arange(size) < len(one.positives) for size, one in zip(sizes, development, strict=True)]
    )
    queries = np.unique([one.query for one in development], return_inverse=True)[1]
    drawn = np.random.default_rng(seed).permutation(int(queries.max()) + 1)
    return relevant, np.repeat(drawn[queries] % 2 == 0, sizes)  # all texts of a query on one side


def _calibrate(run: TrainingRun, development: Sequence[Example], settings: CrossEncoderTraining) -> dict[str, float]:
    """Fit the best model's calibration on one half of the queries and measure it on the other.

    Returns:
        `ece_before` and `ece`; {} where there is nothing to calibrate with.
    """
    best = run.best()
    if not development or settings.calibration == "none" or best is None:
        return {}
    folder = run.folder / f"best-{best['step']}"
    relevant, fitting = _halves(development, settings.seed)
    scores = _scores(folder, development, settings)
    fitted = fit_calibration(scores[fitting], relevant[fitting], bias=settings.calibration == "platt")
    figures = {
        "ece_before": expected_calibration_error(Calibration().probability(scores[~fitting]), relevant[~fitting]),
        "ece": expected_calibration_error(fitted.probability(scores[~fitting]), relevant[~fitting]),
    }
    counts = {"pairs_fitted": int(fitting.sum()), "pairs_measured": int((~fitting).sum()), "bins": BINS}
    replace(fitted, notes={"method": settings.calibration, **counts, **figures}).save(folder)
    return figures


def _calibrated(figures: Mapping[str, float], settings: CrossEncoderTraining) -> str:
    """The card's section on probabilities."""
    if not figures:
        return "\n## Calibration\n\nNone: a probability is the plain sigmoid of a score.\n"
    return (
        f"\n## Calibration\n\nBy {settings.calibration}, on half of the development queries. "
        f"Expected calibration error on the other half, in {BINS} bins of equal mass: "
        f"{figures['ece']:.4f}, before {figures['ece_before']:.4f}.\n"
    )

"""A training run: its settings, its working folder, its log, its best checkpoint and its card.

Both trainers use it in the same way; `loop.fit` drives the steps in between:

    with open_run(out, identity={...}, overwrite=False) as run:
        fit(run, ..., save=..., evaluate=...)       # log, checkpoints, candidates
        run.publish(card_text)                      # the best model becomes `out`, all at once

The run works in a hidden sibling of `out`, `.NAME.training`: `identity.json` (what the run is made of), `log.jsonl`,
`checkpoints/checkpoint-N` (to resume), `best-N` (the best model so far) and `best.json` (its step and figures, the
commit point of a candidate). A run of the same identity goes on there; another one discards it and says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from retrieval.errors import ConfigError, DataError
from retrieval.files import atomic_write, require_utf8, saving, sync_folder, writer_lock, writing
from retrieval.lines import is_encodable
from retrieval.training.curve import loss_curve

SCHEDULES = ("linear", "cosine", "constant")
"""How the learning rate goes on after the warm-up."""

PRECISIONS = ("auto", "float32", "bfloat16")
"""What matrix products are computed in; weights and their updates are float32 always."""

_IDENTITY, _REPLACED = "identity.json", "replaced"  # in the working folder

Evaluate = Callable[[Path], Mapping[str, float]]
"""Takes the folder of a saved model and returns figures of it, the one that decides first; higher is better."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What the trainers of both kinds have in common.

    Attributes:
        epochs: Times that all examples are seen; need not be whole.
        max_steps: Steps (batches) to train for instead.
        batch_size: Rows of one step.
        learning_rate: The highest one, after the warm-up.
        schedule: One of `SCHEDULES`.
        warmup: Share of the steps in which the learning rate rises from zero.
        weight_decay: AdamW's, on weights but not on biases and norms.
        max_grad_norm: Length to which gradients are cut; 0: never.
        dropout: Share of values dropped everywhere in the transformer, whatever its configuration says.
        max_length: Tokens of one input in training, special ones included; None: what the model takes.
        micro_tokens: Tokens computed at once, of a cross-encoder with their padding; None: 1,024 on a CPU, else
            16,384. Halved when memory runs out.
        precision: One of `PRECISIONS`; auto is bfloat16 where the device computes in it.
        gradient_checkpointing: Compute activations twice instead of keeping them.
        device: auto, cpu, cuda or mps.
        seed: Of everything that is drawn.
        evaluate_every: Steps between two checkpoints, each with an evaluation; None: once an epoch. The last
            step has one always.
        trust_remote_code: Run Python code that comes with the model.
    """

    epochs: float = 1.0
    max_steps: int | None = None
    batch_size: int = 64
    learning_rate: float = 2e-5
    schedule: str = "linear"
    warmup: float = 0.1
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    dropout: float = 0.0
    max_length: int | None = None
    micro_tokens: int | None = None
    precision: str = "auto"
    gradient_checkpointing: bool = False
    device: str = "auto"
    seed: int = 0
    evaluate_every: int | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ConfigError(f"unknown schedule {self.schedule!r}; expected one of {', '.join(SCHEDULES)}")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"unknown precision {self.precision!r}; expected one of {', '.join(PRECISIONS)}")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed is {self.seed}; expected 0 to {2**32 - 1:,}")
        for name, text in asdict(self).items():
            if isinstance(text, str) and not is_encodable(text):
                raise ConfigError(f"{name} is {text!r:.80}; expected characters, this holds bytes that are not UTF-8")
        for name in ("max_steps", "batch_size", "max_length", "micro_tokens", "evaluate_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; expected at least 1")
        for name in ("epochs", "learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected a number above 0")
        for name in ("weight_decay", "max_grad_norm"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected 0 or more")
        for name in ("warmup", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected a share from 0 to below 1")

    def batch_rows(self, rows: int) -> int:
        """Rows of one step, where there are that many."""
        return min(self.batch_size, rows)

    def steps(self, rows: int) -> int:
        """Steps of the run over a number of rows."""
        return self.max_steps or max(1, math.ceil(self.epochs * rows / self.batch_rows(rows)))

    def interval(self, rows: int) -> int:
        """Steps between two checkpoints."""
        return self.evaluate_every or max(1, math.ceil(rows / self.batch_rows(rows)))


@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """What a run came to.

    Attributes:
        out: The model's folder.
        steps: Steps trained.
        best_step: The step whose model was kept.
        metrics: What the evaluation said of it; empty without one.
        loss: Mean loss over the last tenth of the steps.
        seconds: Time spent in steps, those before an interruption included; evaluations are not.
        tokens: Tokens trained on, without padding.
        resumed_from: The step at which an interrupted run was taken up; 0: it was not.
        notices: Counts of what else is worth knowing, such as texts that were cut.
    """

    out: Path
    steps: int
    best_step: int
    metrics: Mapping[str, float]
    loss: float
    seconds: float
    tokens: int
    resumed_from: int
    notices: Mapping[str, int] = field(default_factory=dict)


class TrainingRun:
    """The working folder of a run; made by `open_run`.

    Attributes:
        out: Where the model goes.
        folder: The working folder.
        checkpoints: The folder of checkpoints.
        resumed_from: The step that the run goes on from, 0 at the start.
    """

    def __init__(self, out: Path, folder: Path) -> None:
        self.out, self.folder = out, folder
        self.checkpoints = folder / "checkpoints"
        self._log = folder / "log.jsonl"
        checkpoint = self.last_checkpoint()
        self.resumed_from = _step_of(checkpoint) if checkpoint else 0
        self._forget_after(self.resumed_from)

    def last_checkpoint(self) -> Path | None:
        """The newest whole checkpoint; its state is the file that is written last."""
        return _last_checkpoint(self.folder)

    def record(self, step: int, **values: object) -> None:
        """Append a line to the log: of a step, or of an evaluation (`metrics`)."""
        with writing(self._log), self._log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, **values}) + "\n")

    def records(self) -> list[dict[str, Any]]:
        """All lines of the log; a last one that was not written to its end is none."""
        if not self._log.exists():
            return []
        lines = self._log.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def was_considered(self, step: int) -> bool:
        """Whether `consider` came to its end for the model of a step."""
        evaluated = any("metrics" in record and record["step"] == step for record in self.records())
        return evaluated or (self.best() or {}).get("step") == step

    def best(self) -> dict[str, Any] | None:
        """Step and metrics of the best model so far."""
        file = self.folder / "best.json"
        found: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
        return found

    def consider(self, step: int, save: Callable[[Path], None], evaluate: Evaluate | None) -> None:
        """Save the model of a step, evaluate it, and keep it if no earlier one was better.

        Args:
            step: The step.
            save: Writes the model, as it is now, into a folder.
            evaluate: What judges it; None keeps the newest.

        Raises:
            ConfigError: The evaluation gave no figure that can be compared.
        """
        candidate = self.folder / f"candidate-{step}"
        shutil.rmtree(candidate, ignore_errors=True)
        with saving(candidate):
            save(candidate)
        metrics: dict[str, float] = {}
        if evaluate is not None:
            metrics = {name: float(value) for name, value in evaluate(candidate).items()}
            if not metrics or not math.isfinite(_first(metrics)):
                raise ConfigError(f"the evaluation at step {step} gave {metrics}; expected a finite figure first")
        before = self.best()
        if before is None or evaluate is None or _first(metrics) > _first(before["metrics"]):
            kept = self.folder / f"best-{step}"
            with writing(kept):
                shutil.rmtree(kept, ignore_errors=True)
                candidate.rename(kept)
            with atomic_write(self.folder / "best.json") as stream:
                stream.write(json.dumps({"step": step, "metrics": metrics}).encode())
            for other in self.folder.glob("best-*"):
                if other != kept:
                    shutil.rmtree(other)
        shutil.rmtree(candidate, ignore_errors=True)
        if metrics:
            self.record(step, metrics=metrics)

    def report(self, notices: Mapping[str, int]) -> TrainingReport:
        """What the run came to, from its log."""
        best = self.best() or {"step": 0, "metrics": {}}
        steps = [record for record in self.records() if "loss" in record]
        last = [record["loss"] for record in steps[-max(1, len(steps) // 10) :]]
        return TrainingReport(
            out=self.out,
            steps=len(steps),
            best_step=best["step"],
            metrics=best["metrics"],
            loss=sum(last) / max(1, len(last)),
            seconds=sum(record["seconds"] for record in steps),
            tokens=sum(record["tokens"] for record in steps),
            resumed_from=self.resumed_from,
            notices=dict(notices),
        )

    def publish(self, card: str) -> None:
        """Put the best model, with card, log and curve, in place of `out`, and remove the working folder."""
        best = self.best()
        if best is None:
            raise DataError(f"{self.folder} holds no model to publish; train at least one step")
        model = self.folder / f"best-{best['step']}"
        with writing(self.out):
            (model / "README.md").write_text(card, encoding="utf-8", errors="backslashreplace")  # odd names of files
            shutil.copyfile(self._log, model / "log.jsonl")
            (model / "loss.svg").write_text(loss_curve(self.records()), encoding="utf-8")
            _share(model)
            if self.out.exists():
                self.out.rename(self.folder / _REPLACED)
            model.rename(self.out)
            sync_folder(self.out.parent)
            (self.folder / _IDENTITY).unlink()  # what is left of the folder is rubbish from here on
            shutil.rmtree(self.folder)

    def _forget_after(self, step: int) -> None:
        """Drop what the log holds of steps that will be trained again."""
        kept = [record for record in self.records() if record["step"] <= step]
        with atomic_write(self._log) as stream:
            stream.writelines(json.dumps(record).encode() + b"\n" for record in kept)


@contextlib.contextmanager
def open_run(out: str | Path, *, identity: Mapping[str, object], overwrite: bool = False) -> Iterator[TrainingRun]:
    """Open the run that makes `out`, a new one or one that was interrupted; one process at a time.

    Args:
        out: The folder of the trained model.
        identity: All that decides the result: settings, hashes of the model and the data; JSON values.
        overwrite: Replace a folder that is there, when the new model is complete.

    Raises:
        ConfigError: `out` exists, and is not to be overwritten.
        IndexLockedError: Another process trains into it.
    """
    out = Path(out).absolute()
    _require_free(out, overwrite)
    require_utf8(out)
    with writing(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.parent / f".{out.name}.training"
    with writer_lock(out.parent / f".{out.name}.training.lock", what=out):
        if (folder / _REPLACED).exists() and not out.exists():  # killed between two renames
            (folder / _REPLACED).rename(out)
            _require_free(out, overwrite)
        if _was_published(folder):
            shutil.rmtree(folder)
        text = json.dumps(identity, sort_keys=True, ensure_ascii=False)
        file = folder / _IDENTITY
        if folder.exists() and not (file.is_file() and file.read_text(encoding="utf-8") == text):
            if _last_checkpoint(folder) is not None:
                logger.warning("%s belongs to a training with other settings or data and is discarded", folder)
            shutil.rmtree(folder)
        with writing(folder):
            folder.mkdir(exist_ok=True)
        with atomic_write(file) as stream:
            stream.write(text.encode())
        run = TrainingRun(out, folder)
        if run.resumed_from:
            logger.warning("an interrupted training is taken up after step %d", run.resumed_from)
        try:
            yield run
        except BaseException:
            if run.last_checkpoint() is None:  # there is nothing to go on from
                shutil.rmtree(folder, ignore_errors=True)
            raise


def identity_of(kind: str, settings: TrainingSettings, *, model: str, data: str, **more: object) -> dict[str, object]:
    """What decides a run's result.

    Args:
        kind: bi-encoder or cross-encoder.
        settings: The run's settings.
        model: Fingerprint of the model to start from.
        data: Hash of the examples, from `examples_hash`.
        more: Whatever else does; JSON values.
    """
    return {"kind": kind, "settings": asdict(settings), "model": model, "data": data, **more}


def examples_hash(examples: Any) -> str:
    """SHA-256 (64 hexadecimal digits) over all fields of examples, in their order."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps(asdict(example), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def _last_checkpoint(folder: Path) -> Path | None:
    states = folder.glob("checkpoints/checkpoint-*/trainer_state.json")
    return max((state.parent for state in states if _is_json(state)), key=_step_of, default=None)


def _is_json(file: Path) -> bool:
    """Whether a file was written to its end."""
    try:
        json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def _was_published(folder: Path) -> bool:
    """Whether a working folder is what a run left that was killed after its model went to its place."""
    best = folder / "best.json"
    return best.is_file() and not (folder / f"best-{json.loads(best.read_text(encoding='utf-8'))['step']}").exists()


def _share(folder: Path) -> None:
    """Let those read a model's weights who may read the rest of it; safetensors writes them for their owner alone."""
    for path in folder.rglob("*.safetensors"):
        path.chmod((folder / "README.md").stat().st_mode)


def _first(metrics: Mapping[str, float]) -> float:
    return float(next(iter(metrics.values())))


def _step_of(folder: Path) -> int:
    return int(re.sub(r".*-", "", folder.name))


def _require_free(out: Path, overwrite: bool) -> None:
    """Refuse a target that is not to be replaced."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ConfigError(f"{out} is not a folder; expected a folder to make")
    if out.exists() and not overwrite:
        raise ConfigError(f"{out} exists; give another folder, or overwrite it (--overwrite)")
    if out.is_dir() and any(out.iterdir()) and not _is_model(out):
        raise ConfigError(f"{out} holds something else than a model and is not replaced; give another folder")


def _is_model(folder: Path) -> bool:
    listed = (folder / "modules.json").is_file() or (folder / "config.json").is_file()
    return listed and any(folder.rglob("*.safetensors"))

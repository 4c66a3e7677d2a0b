"""The steps of a training run, on sentence-transformers' trainers: both kinds of model train through `fit`.

What is ours beside the trainer: a batch is a function of its number, so that a resumed run sees what an undisturbed
one sees; each step is logged; memory that runs out halves the micro-batch; checkpoints and evaluations coincide.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from retrieval.errors import ConfigError, MissingDependencyError, ModelError
from retrieval.files import saving
from retrieval.runtime import choose_device, is_out_of_memory, load_torch
from retrieval.training.run import Evaluate, TrainingRun, TrainingSettings

CPU_MICRO_TOKENS = 1024
GPU_MICRO_TOKENS = 16384

logger = logging.getLogger(__name__)


class Batches(Protocol):
    """The steps' inputs; a batch must depend on its number alone, not on what was asked before."""

    def __len__(self) -> int:
        """Steps of the run."""

    def __getitem__(self, step: int) -> Mapping[str, Any]:
        """Inputs of a step, from 0, as the trainer's `compute_loss` takes them: tensors on the CPU."""


class Loss(Protocol):
    """A sentence-transformers loss (a torch module) that computes in micro-batches."""

    micro_tokens: int
    """Tokens computed at once; halved when memory runs out."""


def fit(
    run: TrainingRun,
    *,
    model: Any,
    loss: Any,
    batches: Batches,
    settings: TrainingSettings,
    interval: int,
    trainer: type[Any],
    arguments: type[Any],
    save: Callable[[Path], None],
    evaluate: Evaluate | None,
    progress: Callable[[float], None] | None,
) -> None:
    """Train a model from the run's last checkpoint to its last step; the best model is kept in the run.

    Args:
        run: The run.
        model: A SentenceTransformer or CrossEncoder, on the CPU or on the device.
        loss: A `Loss`, or one that wraps such a loss.
        batches: What each step gets.
        settings: The run's settings.
        interval: Steps between checkpoints.
        trainer: SentenceTransformerTrainer or CrossEncoderTrainer.
        arguments: The class of its arguments.
        save: Writes the model, as it is now, into a folder that can be served.
        evaluate: Judges such a folder.
        progress: Called after each step with the share of the steps that is done.

    Raises:
        ModelError: The loss is no number any more, or one text does not fit into memory.
    """
    from torch.utils.data import DataLoader
    from transformers.trainer_callback import PrinterCallback

    made = _trainer_class(trainer)(
        model=model,
        args=_arguments(arguments, run, settings, len(batches)),
        loss=loss,
    )
    made.loader = DataLoader(batches, batch_size=1, collate_fn=lambda one: one[0])
    made.remove_callback(PrinterCallback)
    made.add_callback(_between_steps(made, run, interval, save, evaluate, progress))
    checkpoint = run.last_checkpoint()
    made.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


def training_device(settings: TrainingSettings) -> str:
    """The device to train on: cpu, cuda or mps.

    Raises:
        ConfigError: There is no such device, or a number is given: the trainer takes the first one that it sees.
        MissingDependencyError: The packages that training needs are not installed.
    """
    from importlib.util import find_spec

    for package in ("accelerate", "datasets"):
        if find_spec(package) is None:
            raise MissingDependencyError(
                f'training needs {package}; install it with: pip install "retrieve-rerank[train]"'
            )
    device = choose_device(settings.device)
    if ":" in device:
        raise ConfigError(f"device {device!r}: training takes cpu, cuda or mps; choose a GPU by CUDA_VISIBLE_DEVICES")
    return device


def micro_tokens(settings: TrainingSettings, device: str) -> int:
    """Tokens to compute at once."""
    return settings.micro_tokens or (CPU_MICRO_TOKENS if device == "cpu" else GPU_MICRO_TOKENS)


def autocast(settings: TrainingSettings, device: str) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Make contexts in which a forward pass computes in the precision of the settings.

    Enter one for each micro-batch: a context keeps its casts of the weights, with their graph.
    """
    torch = load_torch()
    precision = settings.precision
    if precision == "auto":
        precision = "bfloat16" if _computes_bfloat16(device) else "float32"
    if precision == "float32":
        return contextlib.nullcontext
    return lambda: torch.autocast(device, dtype=torch.bfloat16)


def prepare(transformer: Any, settings: TrainingSettings) -> None:
    """Set dropout and gradient checkpointing of a transformers model; its stored configuration stays as it is.

    Raises:
        ModelError: The model cannot do gradient checkpointing.
    """
    torch = load_torch()
    for module in transformer.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = settings.dropout
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, settings.dropout)
    if settings.gradient_checkpointing:
        enable = getattr(transformer, "activation_checkpointing_enable", None)
        try:
            if enable is not None:
                enable(activation_checkpointing_kwargs={"use_reentrant": False})
            else:  # transformers before 5.20 or so
                transformer.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        except ValueError as error:
            raise ModelError(f"gradient checkpointing does not work with this model: {error}") from error


def _computes_bfloat16(device: str) -> bool:
    torch = load_torch()
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    known = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return device == "cpu" and known is not None and bool(known())


def _arguments(arguments: type[Any], run: TrainingRun, settings: TrainingSettings, steps: int) -> Any:
    device = training_device(settings)
    made = arguments(
        output_dir=str(run.checkpoints),
        max_steps=steps,
        per_device_train_batch_size=1,  # a batch is one item of the loader
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup" if settings.schedule == "constant" else settings.schedule,
        warmup_steps=math.ceil(settings.warmup * steps),
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        seed=settings.seed,
        use_cpu=device == "cpu",
        dataloader_pin_memory=device == "cuda",
        save_strategy="no",  # the callback says when
        save_total_limit=1,
        logging_strategy="no",
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
    )
    if made.device.type == "cuda":
        made._n_gpu = 1  # else the trainer splits batches over all GPUs
    return made


def _trainer_class(base: type[Any]) -> type[Any]:
    """A trainer of ours over one of sentence-transformers'."""
    torch = load_torch()
    from safetensors.torch import load_model, save_model

    class Trainer(base):  # type: ignore[misc]  # the base is known at run time only
        """Takes ready-made batches, halves the micro-batch when memory runs out, stores plain checkpoints."""

        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(self.loader)

        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """The card is ours."""

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            self.started, self.step_rate = time.perf_counter(), self.optimizer.param_groups[0]["lr"]
            self.step_tokens = sum(int(inputs[name].sum()) for name in inputs if name.endswith("attention_mask"))
            micro = next(part for part in self.loss.modules() if hasattr(part, "micro_tokens"))
            while True:
                try:
                    self.step_loss = super().training_step(model, inputs, num_items_in_batch)
                    return self.step_loss
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    if micro.micro_tokens < 2:
                        raise ModelError("out of memory on one text; lower max_length") from error
                micro.micro_tokens //= 2
                if hasattr(micro, "direct_tokens"):
                    micro.direct_tokens = 0  # no batch keeps its activations from here on
                logger.warning("out of memory: %d tokens at once from here on", micro.micro_tokens)
                model.zero_grad()
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            with saving(Path(self.args.output_dir)):
                super()._save_checkpoint(model, trial)

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            save_model(self.model, str(folder / "weights.safetensors"))

        def _load_from_checkpoint(self, checkpoint_path: str, model: Any = None) -> None:
            load_model(self.model, str(Path(checkpoint_path) / "weights.safetensors"))

    return Trainer


def _require_finite(model: Any, step: int) -> None:
    """Refuse weights that a step made useless; the loss, taken before it, does not tell.

    Raises:
        ModelError: A weight is no finite number; names the first such one.
    """
    for name, weight in model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise ModelError(f"{name} is not finite after step {step}; lower the learning rate, or use float32")


def _between_steps(
    trainer: Any,
    run: TrainingRun,
    interval: int,
    save: Callable[[Path], None],
    evaluate: Evaluate | None,
    progress: Callable[[float], None] | None,
) -> Any:
    """What happens between steps: the log, and at intervals a checkpoint, then an evaluation."""
    from transformers import TrainerCallback

    class Between(TrainerCallback):  # type: ignore[misc]  # transformers is not typed here
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            step = state.global_step  # not 0: interrupted after the checkpoint, perhaps before its evaluation ended
            wanted = step and (evaluate is not None or step == state.max_steps)
            if wanted and not run.was_considered(step):
                run.consider(step, save, evaluate)

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            step, loss = state.global_step, float(trainer.step_loss)
            if not math.isfinite(loss):
                raise ModelError(f"the loss is {loss} at step {step}; lower the learning rate, or use float32")
            seconds = time.perf_counter() - trainer.started
            run.record(
                step,
                loss=loss,
                learning_rate=trainer.step_rate,
                tokens=trainer.step_tokens,
                seconds=round(seconds, 4),
                tokens_per_second=round(trainer.step_tokens / seconds),
            )
            if progress is not None:
                progress(step / state.max_steps)
            control.should_save = step % interval == 0 or step == state.max_steps
            if control.should_save:
                _require_finite(trainer.model, step)

        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if evaluate is not None or state.global_step == state.max_steps:
                run.consider(state.global_step, save, evaluate)

    return Between()

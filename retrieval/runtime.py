"""What encoders and rerankers share of torch: device, number format, quiet loading, running batches."""

import functools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from retrieval.errors import ConfigError, ModelError

DEVICES = ("auto", "cpu", "cuda", "mps")
"""Devices by name; ``cuda:1`` and the like are taken too."""

DTYPES = ("auto", "float32", "bfloat16", "float16")
"""Number formats of a model's weights; results are float32 always."""

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")

logger = logging.getLogger(__name__)


@functools.cache
def load_torch() -> Any:
    """Import torch, and see to it that a process forked later does not hang.

    A forked child inherits the thread pool's state without its threads, and the first parallel operation
    would wait for them for ever: the child computes with one thread.
    """
    import torch

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
    return torch


def choose_device(device: str = "auto") -> str:
    """The device to compute on: ``auto`` takes CUDA, else MPS, else the CPU.

    Raises:
        ConfigError: The name is unknown, or this machine has no such device.
    """
    torch = load_torch()
    has_cuda, has_mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device == "auto":
        return "cuda" if has_cuda else "mps" if has_mps else "cpu"
    kind, _, number = device.partition(":")
    if kind not in DEVICES[1:] or (number and not (number.isdecimal() and kind == "cuda")):
        raise ConfigError(f"unknown device {device!r}; expected one of {', '.join(DEVICES)} or cuda:N")
    if (kind == "cuda" and not has_cuda) or (kind == "mps" and not has_mps):
        raise ConfigError(f"device {device!r} is not available here; use auto or cpu")
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise ConfigError(f"device {device!r} is not available here: {torch.cuda.device_count()} CUDA devices")
    return device


def choose_dtype(dtype: str, device: str) -> str:
    """The number format of the weights: ``auto`` is bfloat16 on CUDA and float32 elsewhere.

    Args:
        dtype: One of ``DTYPES``.
        device: What ``choose_device`` returned.

    Returns:
        The name of a torch dtype.

    Raises:
        ConfigError: The name is unknown.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    if dtype == "auto":
        return "bfloat16" if device.startswith("cuda") else "float32"
    return dtype


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Keep transformers and sentence-transformers from drawing bars and writing notes while one loads."""
    from transformers.utils import logging as chatter

    bars, level = chatter.is_progress_bar_enabled(), chatter.get_verbosity()
    other = logging.getLogger("sentence_transformers")
    other_level = other.level
    chatter.disable_progress_bar()
    chatter.set_verbosity_error()
    other.setLevel(logging.ERROR)
    try:
        yield
    finally:
        other.setLevel(other_level)
        chatter.set_verbosity(level)
        if bars:
            chatter.enable_progress_bar()


def run_batches(
    batches: Sequence[np.ndarray],
    lengths: np.ndarray,
    forward: Callable[[np.ndarray], np.ndarray],
    *,
    model: str,
    progress: Callable[[float], None] | None = None,
) -> np.ndarray:
    """Run every batch and put the results in the texts' order, with smaller batches where memory runs out.

    Args:
        batches: Positions of texts, each in one batch, as ``token_batches`` cuts them.
        lengths: (n,) tokens of each text.
        forward: Takes positions (batch,), returns (batch, ...) float32 in the same order.
        model: The model's name, for messages.
        progress: Called after each batch with the share of the tokens that is done.

    Returns:
        (n, ...) float32; (0,) where there are no batches.

    Raises:
        ModelError: A single text does not fit into memory.
    """
    results: np.ndarray | None = None
    done = 0  # tokens
    limit: int | None = None  # tokens a batch may hold, once memory ran out
    waiting = list(reversed(batches))
    while waiting:
        rows = waiting.pop()
        tokens = len(rows) * int(lengths[rows].max())
        part = _attempt(forward, rows) if limit is None or tokens <= limit or len(rows) == 1 else None
        if part is None:
            if len(rows) == 1:
                raise ModelError(f"model {model}: out of memory on one text of {tokens} tokens; lower max_length")
            limit = min(limit or tokens, max(1, tokens // 2))
            logger.warning("out of memory: batches of at most %d tokens from here on", limit)
            middle = (len(rows) + 1) // 2
            waiting += [rows[middle:], rows[:middle]]
            continue
        if results is None:
            results = np.empty((len(lengths), *part.shape[1:]), dtype=np.float32)
        results[rows] = part
        if progress is not None:
            done += int(lengths[rows].sum())
            progress(done / max(1, int(lengths.sum())))
    return np.empty(0, dtype=np.float32) if results is None else results


def _attempt(forward: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> np.ndarray | None:
    """The batch's results, or None where memory ran out; by then the failed call's tensors are free."""
    try:
        return forward(rows)
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_out_of_memory(error):
            raise
    torch = load_torch()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of the device or of the machine, ran out."""
    torch = load_torch()
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)


def require_finite(values: np.ndarray, *, model: str, what: Callable[[int], str]) -> None:
    """Refuse results that are NaN or infinite.

    Args:
        values: (n,) or (n, dim) results.
        model: The model's name.
        what: Names the text of a row, for the message.

    Raises:
        ModelError: Some row is not finite; the first one is named.
    """
    bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ModelError(
            f"model {model} gave NaN or infinite numbers for {what(row)} ({int(bad.sum())} in all); "
            "try dtype float32, or check the model's weights"
        )

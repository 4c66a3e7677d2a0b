"""What encoders and rerankers share of torch: device, number format, quiet loading, running batches."""

import ctypes
import functools
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from retrieval.errors import ConfigError, ModelError

DEVICES = ("auto", "cpu", "cuda", "mps")
"""Devices by name; ``cuda:1`` and the like are taken too."""

DTYPES = ("auto", "float32", "bfloat16", "float16", "int8")
"""Number formats that a model computes in; results are float32 always."""

RUNTIMES = ("auto", "torch", "openvino")
"""What runs a model."""

_WORTH_CONVERTING = 16 * 2**20  # bytes of weights: a smaller model is fast anyway

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")

_Loaded = TypeVar("_Loaded")

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
    if device == "cpu" or (device == "auto" and not _may_have_gpu()):
        return "cpu"
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


def cuda_memory(device: str) -> dict[int, int]:
    """Free bytes of each CUDA device that a name stands for, by its number: of all for ``cuda``, of none for ``cpu``.

    Raises:
        ConfigError: The name is unknown, or this machine has no such device.
    """
    kind, _, number = choose_device(device).partition(":")
    if kind != "cuda":
        return {}
    torch = load_torch()
    numbers = [int(number)] if number else range(torch.cuda.device_count())
    return {one: int(torch.cuda.mem_get_info(one)[0]) for one in numbers}


def _may_have_gpu() -> bool:
    """Whether there may be a GPU, found out without torch, which takes seconds to import."""
    if sys.platform == "darwin":
        return True
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:  # ROCm's devices are cuda to torch
        return Path("/dev/kfd").exists()
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def choose_dtype(dtype: str, device: str) -> str:
    """The number format in which torch computes: ``auto`` is bfloat16 on CUDA devices that have it, else float32.

    Args:
        dtype: One of ``DTYPES``.
        device: What ``choose_device`` returned.

    Returns:
        The name of a torch dtype.

    Raises:
        ConfigError: The name is unknown, or torch does not compute in it.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    if dtype == "int8":
        raise ConfigError("dtype int8 needs OpenVINO on a CPU: --runtime openvino --device cpu")
    if dtype == "auto":
        return auto_dtype(load_torch().cuda.get_device_capability(device) if device.startswith("cuda") else None)
    return dtype


def auto_dtype(capability: tuple[int, int] | None) -> str:
    """The number format that fits a CUDA device of a compute capability, or by None another device.

    From 8.0 on (Ampere) bfloat16 is computed in hardware; before, torch emulates it, more slowly than float32.
    """
    return "bfloat16" if capability is not None and capability >= (8, 0) else "float32"


def use_flash_attention(network: Any, *, device: str, dtype: str) -> bool:
    """Let a network of transformers attend by flash attention where flash-attn is installed, on CUDA in 16 bits.

    Args:
        network: A model of transformers, loaded.
        device: What ``choose_device`` returned.
        dtype: What ``choose_dtype`` returned.

    Returns:
        Whether it does now; some networks have no such attention.
    """
    if not device.startswith("cuda") or dtype not in ("bfloat16", "float16"):
        return False
    from transformers.utils import is_flash_attn_2_available

    if not is_flash_attn_2_available():
        return False
    with quiet_loading():
        try:
            network.set_attn_implementation("flash_attention_2")
        except (AttributeError, ImportError, ValueError):
            return False
    return getattr(network.config, "_attn_implementation", "") == "flash_attention_2"


def try_openvino(
    load: Callable[[], _Loaded], *, runtime: str, device: str, dtype: str, folder: Path, trust_remote_code: bool
) -> _Loaded | None:
    """Load a model to be run by OpenVINO, if it is to run it and can; a line says why it cannot.

    Under ``auto`` it does on a CPU where it is installed, and where the model is large enough to be worth a conversion.

    Args:
        load: Loads it, or raises ModelError.
        runtime: One of ``RUNTIMES``.
        device: What ``choose_device`` returned.
        dtype: One of ``DTYPES``.
        folder: The model's.
        trust_remote_code: Whether the model may run code of its own, which only torch does.

    Returns:
        What ``load`` returned; None where torch is to run it.

    Raises:
        ConfigError: The name is unknown, or the other settings do not fit OpenVINO.
        ModelError: OpenVINO and nothing else is asked for, and cannot run it.
    """
    if not _prefers_openvino(runtime, device, dtype, folder, trust_remote_code):
        return None
    try:
        return load()
    except ModelError as error:
        if runtime == "openvino":
            raise
        logger.warning("%s; torch runs it (--runtime torch ends this note)", error)
        return None


def _prefers_openvino(runtime: str, device: str, dtype: str, folder: Path, trust_remote_code: bool) -> bool:
    if runtime not in RUNTIMES:
        raise ConfigError(f"unknown runtime {runtime!r}; expected one of {', '.join(RUNTIMES)}")
    if runtime == "openvino":
        if device != "cpu" or dtype == "float16" or trust_remote_code:
            raise ConfigError(
                "runtime openvino runs on the CPU (--device cpu), in float32, bfloat16 or int8, "
                "and no code of a model's own"
            )
        return True
    if runtime == "torch" or device != "cpu" or dtype == "float16" or trust_remote_code:
        return False
    size = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
    return (size >= _WORTH_CONVERTING or dtype == "int8") and importlib.util.find_spec("openvino") is not None


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
    workers: int = 1,
) -> np.ndarray:
    """Run every batch and put the results in the texts' order, with smaller batches where memory runs out.

    Args:
        batches: Positions of texts, each in one batch, as ``token_batches`` cuts them.
        lengths: (n,) tokens of each text.
        forward: Takes positions (batch,), returns (batch, ...) float32 in the same order.
        model: The model's name, for messages.
        progress: Called after each batch with the share of the tokens that is done.
        workers: Threads that call ``forward``, which is to stand that if there is more than one.

    Returns:
        (n, ...) float32; (0,) where there are no batches.

    Raises:
        ModelError: A single text does not fit into memory.
    """
    results: np.ndarray | None = None
    done = 0  # tokens
    limit: int | None = None  # tokens a batch may hold, once memory ran out

    def attempt(rows: np.ndarray) -> np.ndarray | None:
        too_large = limit is not None and len(rows) > 1 and len(rows) * int(lengths[rows].max()) > limit
        return None if too_large else _attempt(forward, rows)

    pool = ThreadPoolExecutor(workers)
    try:
        parts = pool.map(attempt, batches) if workers > 1 else map(attempt, batches)
        for whole, part in zip(batches, parts, strict=True):
            waiting = [whole]
            while waiting:
                rows = waiting.pop()
                part = part if rows is whole else attempt(rows)
                if part is None:
                    tokens = len(rows) * int(lengths[rows].max())
                    if len(rows) == 1:
                        raise ModelError(
                            f"model {model}: out of memory on one text of {tokens} tokens; lower max_length"
                        )
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
    finally:
        pool.shutdown(cancel_futures=True)
    return np.empty(0, dtype=np.float32) if results is None else results


def _attempt(forward: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> np.ndarray | None:
    """The batch's results, or None where memory ran out; by then the failed call's tensors are free."""
    try:
        return forward(rows)
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_out_of_memory(error):
            raise
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of the device or of the machine, ran out."""
    torch = sys.modules.get("torch")  # another runtime does without
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
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

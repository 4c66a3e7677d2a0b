"""Searching on GPUs: what an index searches is copied there when it is opened for it; its files know nothing of GPUs.

A flat index, and one of a type that FAISS has no GPU form for (a graph), is searched exactly over all its rows, in the
number format of its files. An IVF index is copied as it is. FAISS answers at most 2,048 rows from as many lists on a
GPU, takes no selector there and lets one thread search at a time; what that does not allow, the CPU does.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from retrieval.index.approximate import ApproximateIndex
from retrieval.index.segment import Raw, Rows
from retrieval.index.vectors import faiss

log = logging.getLogger(__name__)

MOST = 2048
"""Rows that FAISS returns for a query on a GPU, and lists that it looks at, at most."""

_FOR_MODELS = 0.25  # share of the free memory that stays for encoder and reranker
_SCRATCH = 3 * 2**29  # bytes that FAISS takes of every GPU for its own use: 1.5 GiB
_PART_BYTES = 2**30  # float32 vectors that are read, and handed to a GPU, at once
_LISTS_GROW = 1.5  # lists on a GPU to the file they come from, at most

T = TypeVar("T")


def placed(sizes: Sequence[int], memory: Mapping[int, int]) -> list[int] | None:
    """Give each part to the GPU that has most room.

    Args:
        sizes: Bytes of each part.
        memory: Free bytes of each GPU by its number; a quarter of them, and FAISS's scratch memory, stay free.

    Returns:
        A GPU's number for each part, or None where not all of them fit.
    """
    room = {number: int(free * (1 - _FOR_MODELS)) - _SCRATCH for number, free in memory.items()}
    numbers = []
    for size in sizes:
        number = max(room, key=room.__getitem__)
        room[number] -= size
        if room[number] < 0:
            return None
        numbers.append(number)
    return numbers


class _Turns:
    """Lets one thread at a time use the GPUs, in the process that filled them; a forked child has no GPU."""

    def __init__(self) -> None:
        self._lock, self._process = threading.Lock(), os.getpid()

    def take(self, search: Callable[[], T]) -> T | None:
        """Search, or say by None that the CPU has to."""
        if os.getpid() != self._process:
            return None
        try:
            with self._lock:
                return search()
        except RuntimeError as error:  # another program took the memory meanwhile, for example
            log.warning("a GPU could not search, the CPU did: %s", _reason(error))
            return None


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some rows on a GPU: the first one's number, a flat FAISS index of them, and the GPU's number."""

    first: int
    index: Any
    gpu: int


class GpuRows:
    """The rows of an index on one or several GPUs, searched exactly; stands for the `Rows` that they were read from.

    Attributes:
        gpus: How many hold them.
        rounding: As of `Rows`. A GPU rounds queries to float16 where rows have it: by 2^-11 of each number.
    """

    def __init__(self, rows: Rows, parts: Sequence[Part], *, half: bool) -> None:
        """Search `parts`, which together are all `rows`; `half` says that they hold float16 (see `on`)."""
        self._rows, self._turns = rows, _Turns()
        on_one = attrgetter("gpu")
        self._by_gpu = [list(some) for _, some in groupby(sorted(parts, key=on_one), key=on_one)]
        self.gpus = len(self._by_gpu)
        self.rounding = 6e-4 if half else 1e-5

    @classmethod
    def on(cls, rows: Rows, memory: Mapping[int, int], *, half: bool) -> GpuRows | None:
        """Copy rows, at least one, to GPUs in parts; None where they do not fit.

        Args:
            rows: Rows of open segments.
            memory: Free bytes of each GPU by its number.
            half: Whether the files hold float16.

        Raises:
            RuntimeError: FAISS says that it cannot.
        """
        size = min(max(1, _PART_BYTES // (4 * rows.dim)), math.ceil(rows.rows / len(memory)))
        ranges = [range(first, min(first + size, rows.rows)) for first in range(0, rows.rows, size)]
        numbers = placed([len(some) * rows.dim * (2 if half else 4) for some in ranges], memory)
        if numbers is None:
            return None
        module = faiss()
        resources = {number: module.StandardGpuResources() for number in set(numbers)}
        parts = []
        for some, number in zip(ranges, numbers, strict=True):
            config = module.GpuIndexFlatConfig()
            config.device, config.useFloat16, config.use_cuvs = number, half, False
            index = module.GpuIndexFlatIP(resources[number], rows.dim, config)
            index.add(rows.take(np.arange(some.start, some.stop)))  # at once: FAISS would copy all at every addition
            parts.append(Part(first=some.start, index=index, gpu=number))
        return cls(rows, parts, half=half)

    def search(
        self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None, *, first_row: int = 0
    ) -> list[Raw]:
        """See `Rows.search`; where not all rows are allowed, more are asked for, and what is not allowed is dropped."""
        available = self._rows.rows if allowed is None else int(allowed.sum())
        k = min(k, available)
        asked = k if available == self._rows.rows else math.ceil(1.25 * k * self._rows.rows / max(1, available))
        asked = min(asked, self._rows.rows)
        raws = self._turns.take(lambda: self._nearest(queries, asked)) if 0 < asked <= MOST and not first_row else None
        if raws is None:
            return self._rows.search(queries, k, allowed, first_row=first_row)
        if allowed is not None:
            raws = [(scores[allowed[rows]], rows[allowed[rows]]) for scores, rows in raws]
        raws = [(scores[:k], rows[:k]) for scores, rows in raws]
        short = [number for number, (_, rows) in enumerate(raws) if len(rows) < k]
        if short:
            for number, raw in zip(short, self._rows.search(queries[short], k, allowed), strict=True):
                raws[number] = raw
        return raws

    def _nearest(self, queries: np.ndarray, k: int) -> list[Raw]:
        """The k best rows of each query, from all GPUs at once."""
        scale = np.abs(queries).max(axis=1, keepdims=True)  # (q, 1): in float16 nothing may be too large or too small
        scale[scale == 0] = 1
        scaled = queries / scale

        def one(parts: Sequence[Part]) -> list[Raw]:
            found = []
            for part in parts:
                scores, rows = part.index.search(scaled, min(k, part.index.ntotal))
                found.append((scores, np.where(rows < 0, -1, rows + part.first)))
            return found

        with ThreadPoolExecutor(self.gpus) as pool:
            found = [raw for some in pool.map(one, self._by_gpu) for raw in some]
        scores = np.hstack([some for some, _ in found]) * scale  # (q, parts * k)
        rows = np.hstack([some for _, some in found])
        best = np.argsort(np.where(rows < 0, np.inf, -scores), axis=1, kind="stable")[:, :k]
        scores, rows = np.take_along_axis(scores, best, axis=1), np.take_along_axis(rows, best, axis=1)
        return _existing(scores, rows)


class GpuLists(ApproximateIndex):
    """An IVF index whose lists are on GPUs; the CPU's searches what a GPU does not."""

    def __init__(self, index: ApproximateIndex, copy: Any, *, gpus: int) -> None:
        """Search `copy`, which has the rows of `index` under the same numbers (see `on`)."""
        super().__init__(index._index, index.parameters)
        self.gpus = gpus
        self._copy, self._turns = copy, _Turns()
        self._lists = faiss().extract_index_ivf(index._index)

    @classmethod
    def on(cls, index: ApproximateIndex, memory: Mapping[int, int], *, file_bytes: int) -> GpuLists | None:
        """Copy an index to GPUs, to each a share; None where it is of another type, or does not fit.

        Args:
            index: Any approximate index.
            memory: Free bytes of each GPU by its number.
            file_bytes: Size of the index's file.

        Raises:
            RuntimeError: FAISS says that it cannot: it has no GPU form of these codes, for example.
        """
        module = faiss()
        inner = index._index
        if isinstance(inner, module.IndexIDMap):
            inner = module.downcast_index(inner.index)
        share = math.ceil(_LISTS_GROW * file_bytes / len(memory))
        fits = all(placed([share], {number: free}) for number, free in memory.items())
        if not isinstance(inner, module.IndexIVF) or not fits:
            return None
        options = module.GpuMultipleClonerOptions()
        options.shard, options.useFloat16, options.use_cuvs = len(memory) > 1, True, False
        copy = module.index_cpu_to_gpus_list(index._index, co=options, gpus=list(memory))
        return cls(index, copy, gpus=len(memory))

    def search(self, queries: np.ndarray, k: int, *, wider: float = 1.0) -> list[Raw]:
        """See `ApproximateIndex.search`."""
        lists = self._nprobe(self._lists, k, wider)
        if k <= MOST and lists <= MOST:
            parameters = faiss().SearchParametersIVF(nprobe=lists)
            found = self._turns.take(lambda: self._copy.search(queries, k, params=parameters))
            if found is not None:
                return _existing(*found)
        return super().search(queries, k, wider=wider)


def on_gpus(
    rows: Rows,
    approximate: ApproximateIndex | None,
    memory: Mapping[int, int],
    *,
    half: bool,
    file_bytes: int,
    what: object,
) -> GpuRows | GpuLists | None:
    """Copy to GPUs what an index searches: the lists of an IVF index, else all rows.

    Args:
        rows: All rows of the index.
        approximate: Its approximate index, if it has one.
        memory: Free bytes of each GPU that may be used, by its number.
        half: Whether rows are stored in float16.
        file_bytes: Size of the approximate index's file.
        what: Names the index, for messages.

    Returns:
        None, with a line in the log, where FAISS has no GPU or the GPUs cannot hold it.
    """
    usable = {number: free for number, free in memory.items() if number < faiss().get_num_gpus()}
    if not usable or not rows.rows:
        log.info("%s: the CPU searches the vectors, for FAISS finds %d GPUs", what, len(usable))
        return None
    problem = f"{sum(usable.values()):,} bytes free are too few"
    forms: list[Callable[[], GpuRows | GpuLists | None]] = [lambda: GpuRows.on(rows, usable, half=half)]
    if approximate is not None:
        forms.insert(0, lambda: GpuLists.on(approximate, usable, file_bytes=file_bytes))
    for form in forms:
        try:
            held = form()
        except RuntimeError as error:
            problem = _reason(error)
            continue
        if held is not None:
            form_told = "IVF lists" if isinstance(held, GpuLists) else f"{rows.rows:,} rows, exactly"
            log.info("%s: %d GPUs search %s", what, held.gpus, form_told)
            return held
    log.warning("%s: the CPU searches the vectors, for the GPUs cannot hold them: %s", what, problem)
    return None


def _existing(scores: np.ndarray, rows: np.ndarray) -> list[Raw]:
    """Of scores and rows (q, k) each query's own, without FAISS's -1."""
    return [(s[r >= 0], r[r >= 0]) for s, r in zip(scores, rows, strict=True)]


def _reason(error: BaseException) -> str:
    return str(error).strip().rpartition("Error: ")[2] or type(error).__name__

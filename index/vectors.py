"""Vectors on disk and their search: the one module that imports FAISS.

FAISS takes what it is given: a wrong dimension is an `AssertionError` without text, NaN comes back as row -1, a float64
or non-contiguous array passes or crashes. So every array is checked here before FAISS sees it, and FAISS's -1 (no
such row) never leaves this module.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np

from retrieval.errors import ConfigError, DataError, IndexFormatError, MissingDependencyError

VectorDtype = Literal["float32", "float16"]
_ADD_ROWS = 65_536  # rows decoded at a time while an approximate index is built


@functools.cache
def faiss() -> ModuleType:
    """Import FAISS when it is first needed.

    Raises:
        MissingDependencyError: Neither faiss-cpu nor faiss-gpu is installed.
    """
    try:
        import faiss as module
    except ImportError as error:
        raise MissingDependencyError('FAISS is not installed: pip install "retrieve-rerank[cpu]" (or [gpu])') from error
    # OpenMP's threads do not survive a fork; a child that starts a parallel region would wait for them for ever.
    os.register_at_fork(after_in_child=lambda: module.omp_set_num_threads(1))
    return module


def checked(vectors: np.ndarray, dim: int, *, what: str) -> np.ndarray:
    """Return `vectors` as a contiguous float32 array of shape (n, dim).

    Raises:
        DataError: Another shape, another kind of number, or a value that is not finite (the row is named).
    """
    if vectors.ndim != 2 or vectors.shape[1] != dim:
        raise DataError(f"{what}: shape {tuple(vectors.shape)}, expected (n, {dim})")
    if vectors.dtype.kind not in "fiu":
        raise DataError(f"{what}: dtype {vectors.dtype}, expected float32")
    array = np.ascontiguousarray(vectors, dtype=np.float32)
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        raise DataError(f"{what}: row {int(np.argmin(finite))} holds NaN or an infinite value")
    return array


def write_vectors(sink: BinaryIO, blocks: Iterable[np.ndarray], *, rows: int, dim: int, dtype: VectorDtype) -> None:
    """Write a flat FAISS index of `rows` vectors, block by block, without holding them all.

    A flat index on disk is a header followed by the codes, so the header of an empty index with its two counts set,
    and the rows behind it, is the file that `faiss.write_index` would write (a test compares the bytes; float16
    codes are rounded half to even, as IEEE 754 says, where FAISS rounds half up).

    Args:
        sink: Where the bytes go.
        blocks: Arrays of shape (n, dim), float32; their row counts sum to `rows`.
        rows: How many vectors there will be.
        dim: Their dimension.
        dtype: float32 (IndexFlatIP) or float16 (IndexScalarQuantizer).
    """
    header = bytearray(faiss().serialize_index(_empty_flat(dim, dtype)).tobytes())
    header[8:16] = rows.to_bytes(8, "little")  # fourcc, dimension (4 bytes each), then the number of rows
    size = rows * dim if dtype == "float32" else rows * dim * 2  # counted in floats, or in bytes of code
    header[-8:] = size.to_bytes(8, "little")
    sink.write(header)
    written = 0
    for block in blocks:
        array = checked(block, dim, what="vectors to write")
        if dtype == "float16":
            if np.abs(array).max(initial=0) > np.finfo(np.float16).max:
                raise DataError("vectors beyond float16's range (65504): store them with --vector-dtype float32")
            array = array.astype("<f2")
        if len(array):
            sink.write(array.view(np.uint8).data)
        written += len(array)
    if written != rows:
        raise DataError(f"{written} vectors were given where {rows} were announced")


def _empty_flat(dim: int, dtype: VectorDtype) -> Any:
    if dtype == "float32":
        return faiss().IndexFlatIP(dim)
    return faiss().IndexScalarQuantizer(dim, faiss().ScalarQuantizer.QT_fp16, faiss().METRIC_INNER_PRODUCT)


class FlatVectors:
    """The mapped vectors of one segment: row i of the file is row i of the segment."""

    def __init__(self, path: Path, *, rows: int, dim: int) -> None:
        """Map a file written by `write_vectors`; nothing is copied into memory.

        Raises:
            IndexFormatError: The file is no flat index of that many rows and dimensions.
        """
        self._index = _read(path)
        if self._index.ntotal != rows or self._index.d != dim:
            found = f"{self._index.ntotal} x {self._index.d}"
            raise IndexFormatError(f"{path}: holds {found} vectors, expected {rows} x {dim}; rebuild the index")
        self.rows = rows

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Find the k best rows of each query exactly.

        Args:
            queries: (q, dim) float32.
            k: At most the number of allowed rows, so that every place of the result is filled.
            allowed: (rows,) bool, or None for all.

        Returns:
            Scores (q, k) float32 and rows (q, k) int64, best first, ties in any order.
        """
        with _Selector(allowed) as selector:
            parameters = None if selector is None else faiss().SearchParameters(sel=selector)
            scores, rows = self._index.search(queries, k, params=parameters)
        return scores, rows

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the vectors of `rows` (n,) int64 as (n, dim) float32."""
        if len(rows) == 0:
            return np.empty((0, self._index.d), np.float32)
        return self._index.reconstruct_batch(np.ascontiguousarray(rows, np.int64))  # type: ignore[no-any-return]

    def block(self, start: int, stop: int) -> np.ndarray:
        """Return rows start..stop as (stop - start, dim) float32."""
        return self._index.reconstruct_n(start, stop - start)  # type: ignore[no-any-return]


class _Selector:
    """A FAISS selector over a boolean mask, kept alive with its bits while FAISS uses it."""

    def __init__(self, allowed: np.ndarray | None) -> None:
        self._bits = None if allowed is None else np.packbits(allowed, bitorder="little")

    def __enter__(self) -> Any:
        if self._bits is None:
            return None
        return faiss().IDSelectorBitmap(self._bits)

    def __exit__(self, *_: object) -> None:
        self._bits = None


def _read(path: Path) -> Any:
    try:
        return faiss().read_index(str(path), faiss().IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise IndexFormatError(
            f"{path}: not a FAISS index that can be read; restore it or rebuild the index"
        ) from error


def exact_scores(query: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Score rows by inner product, each row alone: equal rows score equal, whatever stands beside them.

    FAISS sums in another order for one query than for a batch, so its last bits depend on company. Products of two
    float32 are exact in float64, and numpy sums each row by itself.

    Args:
        query: (dim,) float32.
        vectors: (n, dim) float32.

    Returns:
        (n,) float32.

    Raises:
        DataError: A score beyond float32's range; under cosine there is none.
    """
    products = vectors.astype(np.float64) * query.astype(np.float64)  # (n, dim)
    with np.errstate(over="ignore"):
        scores: np.ndarray = products.sum(axis=1).astype(np.float32)
    if not np.isfinite(scores).all():
        raise DataError("scores beyond float32's range (3.4e38): scale down the vectors, of queries or of documents")
    return scores


class VectorSource(Protocol):
    """All vectors of an index, in the order of its rows."""

    rows: int
    dim: int

    def blocks(self, block_rows: int) -> Iterable[np.ndarray]:
        """Yield (n, dim) float32 arrays that together are all rows."""

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the vectors of some rows."""


@dataclass(frozen=True, kw_only=True)
class IndexPlan:
    """What an index type comes to for a number of passages.

    Attributes:
        factory: A FAISS factory string, or None for exact search.
        notice: One line when it is not what was asked for, else None.
    """

    factory: str | None
    notice: str | None = None


AUTO_FLAT_ROWS = 200_000
_MIN_POINTS_PER_LIST = 39  # FAISS's own lower bound for a k-means that it does not warn about
_MIN_PQ_POINTS = 39 * 256


# FAISS parses these and then ends the process, in its assertions or by a segmentation fault.
_CRASHING = re.compile(r"[A-Za-z]0+(?!\d)|(HNSW|NSG)0*1(?!\d)")


def plan(index_type: str, *, rows: int, dim: int) -> IndexPlan:
    """Turn an index type into a FAISS factory string that fits the number of passages.

    `auto` is exact up to 200,000 passages and HNSW above. `ivf` has about 4 * sqrt(n) lists, fewer when there are
    fewer than 39 passages for each. Anything else is taken as a factory string.

    Raises:
        ConfigError: Not a type and not a factory string that FAISS knows.
    """
    name = index_type.lower()
    if _CRASHING.search(index_type):
        raise ConfigError(f"--index-type {index_type}: a part of size 0, or a graph of fewer than 2 links, is no index")
    if name == "flat" or (name == "auto" and rows <= AUTO_FLAT_ROWS):
        return IndexPlan(factory=None)
    if name in ("hnsw", "auto"):
        return IndexPlan(factory="HNSW32,Flat")
    if name in ("ivf", "ivfpq"):
        return _plan_ivf(name, rows, dim)
    try:
        faiss().index_factory(dim, index_type, faiss().METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise ConfigError(
            f"--index-type {index_type}: neither auto, flat, hnsw, ivf, ivfpq nor a FAISS factory string "
            f"for {dim} dimensions"
        ) from error
    return IndexPlan(factory=index_type)


def _plan_ivf(name: str, rows: int, dim: int) -> IndexPlan:
    needed = 2 * _MIN_POINTS_PER_LIST if name == "ivf" else _MIN_PQ_POINTS
    if rows < needed:
        return IndexPlan(
            factory=None,
            notice=f"{name} needs at least {needed} passages and the index has {rows}: exact search is used",
        )
    wanted = round(4 * rows**0.5)
    lists = min(wanted, rows // _MIN_POINTS_PER_LIST)
    notice = None
    if lists < wanted:
        notice = (
            f"{name} with {lists} lists instead of {wanted}: {rows} passages, {_MIN_POINTS_PER_LIST} needed per list"
        )
    codes = "Flat" if name == "ivf" else f"PQ{_pq_parts(dim)}x8"
    return IndexPlan(factory=f"IVF{lists},{codes}", notice=notice)


def _pq_parts(dim: int) -> int:
    """The largest divisor of dim that leaves at least 8 dimensions for each byte, or dim's largest divisor at all."""
    return max(parts for parts in range(1, max(1, dim // 8) + 1) if dim % parts == 0)


class ApproximateIndex:
    """An approximate FAISS index over all rows of some segments."""

    def __init__(self, index: Any, parameters: Mapping[str, int]) -> None:
        """Wrap a FAISS index with its search parameters (`nprobe` or `efSearch`, or none)."""
        self._index = index
        self.parameters = dict(parameters)

    @property
    def rows(self) -> int:
        """How many rows it covers."""
        return int(self._index.ntotal)

    @classmethod
    def build(cls, factory: str, source: VectorSource) -> ApproximateIndex:
        """Train on a sample, then add every row.

        Raises:
            ConfigError: FAISS cannot build this index from so many vectors, or it cannot leave rows out of a search.
        """
        index = faiss().index_factory(source.dim, factory, faiss().METRIC_INNER_PRODUCT)
        try:
            if not index.is_trained:
                index.train(_training_sample(index, source))
            for block in source.blocks(_ADD_ROWS):
                index.add(block)
        except RuntimeError as error:
            reason = str(error).strip().rpartition("Error: ")[2]
            raise ConfigError(
                f"--index-type {factory} cannot be built from {source.rows} passages: {reason}"
            ) from error
        built = cls(index, {})
        try:
            built.search(source.take(np.zeros(1, np.int64)), 1, np.ones(source.rows, bool))
        except RuntimeError as error:
            raise ConfigError(
                f"--index-type {factory}: FAISS cannot leave deleted or filtered rows out of a search of this type; "
                "take one built on IVF or HNSW"
            ) from error
        return built

    @classmethod
    def open(cls, path: Path, parameters: Mapping[str, int]) -> ApproximateIndex:
        """Read one from disk.

        Raises:
            IndexFormatError: The file cannot be read.
        """
        return cls(_read(path), parameters)

    def write(self, sink: BinaryIO) -> None:
        """Write it through Python, so that any path and any full disk is Python's matter."""
        faiss().write_index(self._index, faiss().PyCallbackIOWriter(sink.write))

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None) -> list[tuple[np.ndarray, np.ndarray]]:
        """Find about the k best rows of each query; scores may be approximate.

        Args:
            queries: (q, dim) float32.
            k: How many, at most the number of rows.
            allowed: (rows,) bool, or None for all.

        Returns:
            For each query scores (m,) float32 and rows (m,) int64 with m <= k, best first.
        """
        with _Selector(allowed) as selector:
            scores, rows = self._index.search(queries, k, params=self._search_parameters(self._index, selector, k))
        found = rows >= 0  # FAISS fills what it did not find with -1
        return [(s[f], r[f]) for s, r, f in zip(scores, rows, found, strict=True)]

    def _search_parameters(self, index: Any, selector: Any, k: int) -> Any:
        module = faiss()
        index = module.downcast_index(index)
        chosen: dict[str, Any] = {} if selector is None else {"sel": selector}
        if isinstance(index, module.IndexPreTransform):
            return module.SearchParametersPreTransform(index_params=self._search_parameters(index.index, selector, k))
        if isinstance(index, module.IndexRefine):
            base = self._search_parameters(index.base_index, selector, k)
            return module.IndexRefineSearchParameters(k_factor=4.0, base_index_params=base)
        if isinstance(index, module.IndexHNSW):
            wanted = self.parameters.get("efSearch", _START_VALUES["efSearch"])
            return module.SearchParametersHNSW(efSearch=max(wanted, k), **chosen)
        if isinstance(index, module.IndexIVFPQ):
            return module.IVFPQSearchParameters(nprobe=self._nprobe(index), **chosen)
        if isinstance(index, module.IndexIVF):
            return module.SearchParametersIVF(nprobe=self._nprobe(index), **chosen)
        return module.SearchParameters(**chosen) if chosen else None

    def _nprobe(self, index: Any) -> int:
        return min(self.parameters.get("nprobe", _START_VALUES["nprobe"]), int(index.nlist))

    def tunable(self) -> tuple[str, int] | None:
        """Name the parameter that trades speed for recall, and its largest useful value; None without one."""
        module = faiss()
        index = module.downcast_index(self._index)
        while isinstance(index, module.IndexPreTransform | module.IndexRefine):
            inner = index.index if isinstance(index, module.IndexPreTransform) else index.base_index
            index = module.downcast_index(inner)
        if isinstance(index, module.IndexHNSW):
            return "efSearch", _MOST_EF_SEARCH
        return ("nprobe", int(index.nlist)) if isinstance(index, module.IndexIVF) else None


_START_VALUES = {"nprobe": 8, "efSearch": 64}
_MOST_EF_SEARCH = 2048
_TARGET_RECALL = 0.95
_SAME_RECALL = 0.01


def _training_sample(index: Any, source: VectorSource) -> np.ndarray:
    """Rows spread evenly over the index: enough for k-means (64 a list), never more than needed."""
    inner = faiss().try_extract_index_ivf(index)
    lists = int(inner.nlist) if inner is not None else 256
    wanted = min(source.rows, max(64 * lists, 20_000))
    return source.take(np.linspace(0, source.rows - 1, wanted).astype(np.int64))


def measure_recall(
    approximate: ApproximateIndex, source: VectorSource, exact: Sequence[np.ndarray], sample: np.ndarray
) -> float:
    """Recall@10 of an approximate index, with passages of the index as queries, each without itself.

    Args:
        approximate: The index, after rescoring its candidates exactly, as a search does.
        source: The vectors.
        exact: For each sampled row the rows of its 10 best neighbours, (10,) int64 or fewer.
        sample: (s,) int64, the rows used as queries.
    """
    queries = source.take(sample)
    found = approximate.search(queries, min(128, source.rows), None)
    shares = []
    for row, query, (_, rows), best in zip(sample, queries, found, exact, strict=True):
        rows = rows[rows != row]
        scores = exact_scores(query, source.take(rows))
        top = rows[np.argsort(-scores, kind="stable")[: len(best)]]
        if len(best):
            shares.append(len(np.intersect1d(top, best)) / len(best))
    return float(np.mean(shares)) if shares else 1.0


def tune(approximate: ApproximateIndex, source: VectorSource, exact: Sequence[np.ndarray], sample: np.ndarray) -> float:
    """Double nprobe or efSearch until recall@10 on the sample reaches .95; return the recall.

    Lossy codes may never reach it. Then the smallest value within .01 of the best recall stays, since looking at more
    lists would cost time for nothing.
    """
    found = approximate.tunable()
    if found is None:
        return measure_recall(approximate, source, exact, sample)
    name, most = found
    value, recalls = min(_START_VALUES[name], most), dict[int, float]()
    while True:
        approximate.parameters[name] = value
        recalls[value] = measure_recall(approximate, source, exact, sample)
        if recalls[value] >= _TARGET_RECALL:
            return recalls[value]
        if value == most:
            break
        value = min(2 * value, most)
    enough = max(recalls.values()) - _SAME_RECALL
    best = min(value for value, recall in recalls.items() if recall >= enough)
    approximate.parameters[name] = best
    return recalls[best]

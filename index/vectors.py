"""Vectors on disk and their search: the one module that imports FAISS.

FAISS takes what it is given: a wrong dimension is an `AssertionError` without text, NaN comes back as row -1, a float64
or non-contiguous array passes or crashes. So every array is checked here before FAISS sees it, and FAISS's -1 (no
such row) never leaves this module.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Literal

import numpy as np

from retrieval.errors import DataError, IndexFormatError, MissingDependencyError

VectorDtype = Literal["float32", "float16"]
WantedDtype = Literal["auto", "float32", "float16"]


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
            if not fits_float16(array):
                raise DataError("vectors beyond float16's range (65504): store them with --vector-dtype float32")
            array = array.astype("<f2")
        if len(array):
            sink.write(array.view(np.uint8).data)
        written += len(array)
    if written != rows:
        raise DataError(f"{written} vectors were given where {rows} were announced")


def fits_float16(array: np.ndarray) -> bool:
    """Whether no value lies beyond float16's range."""
    return bool(np.abs(array).max(initial=0) <= np.finfo(np.float16).max)


def _empty_flat(dim: int, dtype: VectorDtype) -> Any:
    if dtype == "float32":
        return faiss().IndexFlatIP(dim)
    return faiss().IndexScalarQuantizer(dim, faiss().ScalarQuantizer.QT_fp16, faiss().METRIC_INNER_PRODUCT)


def _kind(index: Any) -> tuple[object, ...]:
    """What two flat indexes have in common whose vectors are read and compared in one way."""
    quantised = getattr(index, "sq", None)  # None: of float32
    return type(index), index.d, index.metric_type, index.is_trained, getattr(quantised, "qtype", None)


class FlatVectors:
    """The mapped vectors of one segment: row i of the file is row i of the segment."""

    def __init__(self, path: Path, *, rows: int, dim: int, dtype: VectorDtype) -> None:
        """Map a file written by `write_vectors`; nothing is copied into memory.

        Raises:
            IndexFormatError: The file is no flat index of that dtype, and that many rows and dimensions.
        """
        self._index = read_index(path)
        if _kind(self._index) != _kind(_empty_flat(dim, dtype)):
            raise IndexFormatError(f"{path}: no {dtype} vectors of {dim} dimensions; rebuild the index")
        if self._index.ntotal != rows:
            raise IndexFormatError(f"{path} holds {self._index.ntotal} vectors, expected {rows}; rebuild the index")
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
        with Selector(allowed) as selector:
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


class Selector:
    """A FAISS selector over a boolean mask, kept alive with its bits while FAISS uses it."""

    def __init__(self, allowed: np.ndarray | None) -> None:
        self._bits = None if allowed is None else np.packbits(allowed, bitorder="little")

    def __enter__(self) -> Any:
        if self._bits is None:
            return None
        return faiss().IDSelectorBitmap(self._bits)

    def __exit__(self, *_: object) -> None:
        self._bits = None


def read_index(path: Path) -> Any:
    """Map a FAISS index.

    Raises:
        IndexFormatError: The file is none.
    """
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


def nearest(blocks: Iterable[tuple[np.ndarray, np.ndarray]], queries: np.ndarray, k: int) -> np.ndarray:
    """Find the k best rows of each query by reading all vectors once, which many queries make cheap.

    Args:
        blocks: Row numbers (n,) int64 and their vectors (n, dim) float32.
        queries: (q, dim) float32.
        k: How many; fewer are returned when there are fewer rows.

    Returns:
        Rows (q, k) int64, best first.
    """
    scores = np.empty((len(queries), 0), np.float32)
    rows = np.empty((len(queries), 0), np.int64)
    for numbers, vectors in blocks:
        found, at = faiss().knn(queries, vectors, min(k, len(vectors)), faiss().METRIC_INNER_PRODUCT)
        scores, rows = np.hstack([scores, found]), np.hstack([rows, numbers[at]])
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, rows = np.take_along_axis(scores, best, axis=1), np.take_along_axis(rows, best, axis=1)
    return rows

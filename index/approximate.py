"""Approximate indexes: what a type comes to, building, searching. `choosing` tunes them and measures their recall."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from retrieval.counts import many
from retrieval.errors import ConfigError
from retrieval.index.vectors import faiss, read_index

_CANDIDATES = 128  # of an index that does not say how many are rescored at least: those of older releases
_ADD_ROWS = 65_536  # rows decoded at a time


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
        bytes_each: Bytes that a passage is about to take in it, or None where nothing but building it tells.
    """

    factory: str | None
    notice: str | None = None
    bytes_each: float | None = None


EXACT_NUMBERS = 200_000 * 384
"""Numbers (passages times dimensions) up to which `auto` searches exactly: some 20 ms a query on a core in float16."""

_AUTO = ("hnsw", "ivfsq", "ivfpq")  # in the order in which they are tried: by speed, which is by size too
_LINKS = 16  # of a node on the graph's upper layers, and half of those on its lowest
_MIN_POINTS_PER_LIST = 39  # FAISS's own lower bound for a k-means that it does not warn about
_MIN_PQ_POINTS = 39 * 256


# FAISS parses these and then ends the process, in its assertions or by a segmentation fault.
_CRASHING = re.compile(r"[A-Za-z]0+(?!\d)|(HNSW|NSG)0*1(?!\d)")


def plans(index_type: str, *, rows: int, dim: int, memory_limit: int | None = None) -> list[IndexPlan]:
    """Return what is to be tried for an index type, in this order; only `auto` has more than one, or none.

    Args:
        index_type: auto, flat, hnsw, ivf, ivfsq, ivfpq or a FAISS factory string.
        rows: Number of passages.
        dim: Dimension.
        memory_limit: Bytes that an index chosen by `auto` may have.

    Raises:
        ConfigError: Not a type and not a factory string that FAISS knows.
    """
    if index_type.lower() != "auto":
        return [plan(index_type, rows=rows, dim=dim)]
    if rows * dim <= EXACT_NUMBERS:
        return [IndexPlan(factory=None)]
    found = [plan(name, rows=rows, dim=dim) for name in _AUTO]
    most = math.inf if memory_limit is None else memory_limit
    return [one for one in found if one.factory and (one.bytes_each or 0) * rows <= most]


def plan(index_type: str, *, rows: int, dim: int) -> IndexPlan:
    """Turn an index type, `auto` excepted, into a FAISS factory string that fits the number of passages.

    `hnsw` is a graph over codes of a byte a dimension. The `ivf` types have about 4 * sqrt(n) lists, fewer when there
    are fewer than 39 passages for each. Anything else is taken as a factory string.

    Raises:
        ConfigError: Not a type and not a factory string that FAISS knows.
    """
    name = index_type.lower()
    if _CRASHING.search(index_type):
        raise ConfigError(f"--index-type {index_type}: a part of size 0, or a graph of fewer than 2 links, is no index")
    if name == "flat":
        return IndexPlan(factory=None)
    if name == "hnsw":
        return IndexPlan(factory=f"HNSW{_LINKS}_SQ8", bytes_each=dim + 9 * _LINKS + 8)
    if name in ("ivf", "ivfsq", "ivfpq"):
        return _plan_ivf(name, rows, dim)
    try:
        faiss().index_factory(dim, index_type, faiss().METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise ConfigError(
            f"--index-type {index_type}: neither auto, flat, hnsw, ivf, ivfsq, ivfpq nor a FAISS factory string "
            f"for {dim} dimensions"
        ) from error
    return IndexPlan(factory=index_type)


def _plan_ivf(name: str, rows: int, dim: int) -> IndexPlan:
    needed = _MIN_PQ_POINTS if name == "ivfpq" else 2 * _MIN_POINTS_PER_LIST
    if rows < needed:
        return IndexPlan(
            factory=None,
            notice=f"{name} needs at least {needed} passages and the index has {rows}: exact search is used",
        )
    wanted = round(4 * rows**0.5)
    lists = min(wanted, rows // _MIN_POINTS_PER_LIST)
    notice = None
    if lists < wanted:
        few = f"{many(rows, 'passage')}, {_MIN_POINTS_PER_LIST} needed per list"
        notice = f"{name} with {many(lists, 'list')} instead of {wanted}: {few}"
    parts = _pq_parts(dim)
    codes, size = {"ivf": ("Flat", 4 * dim), "ivfsq": ("SQ8", dim), "ivfpq": (f"PQ{parts}x8", parts)}[name]
    # Beside its code a passage has its number (8 bytes, twice) and its share of the lists' centres.
    bytes_each = size + 16 + 4 * dim * lists / rows
    return IndexPlan(factory=f"IVF{lists},{codes}", notice=notice, bytes_each=bytes_each)


def _pq_parts(dim: int) -> int:
    """The largest divisor of dim that leaves at least 4 dimensions for each byte, or 1."""
    return max(parts for parts in range(1, max(1, dim // 4) + 1) if dim % parts == 0)


class ApproximateIndex:
    """An approximate FAISS index over all rows of some segments."""

    def __init__(self, index: Any, parameters: Mapping[str, int]) -> None:
        """Wrap a FAISS index with its search parameters: `nprobe` or `efSearch`, and `candidates`."""
        self._index = index
        self.parameters = dict(parameters)

    @property
    def rows(self) -> int:
        """How many rows it covers."""
        return int(self._index.ntotal)

    @classmethod
    def build(cls, factory: str, source: VectorSource, without: np.ndarray | None = None) -> ApproximateIndex:
        """Train on a sample, then add every row but those of `without`, (w,) int64, sorted.

        Raises:
            ConfigError: FAISS cannot build this index from so many vectors.
        """
        index = faiss().index_factory(source.dim, factory, faiss().METRIC_INNER_PRODUCT)
        if isinstance(index, faiss().IndexHNSW):
            index.hnsw.efConstruction = _EF_CONSTRUCTION
        try:
            if not index.is_trained:
                index.train(_training_sample(index, source))
            index = faiss().IndexIDMap(index)
            for rows, vectors in blocks_without(source, without):
                index.add_with_ids(vectors, rows)
        except RuntimeError as error:
            reason = str(error).strip().rpartition("Error: ")[2]
            raise ConfigError(
                f"--index-type {factory} cannot be built from {many(source.rows, 'passage')}: {reason}"
            ) from error
        return cls(index, {})

    def add(self, vectors: np.ndarray, rows: np.ndarray) -> None:
        """Add vectors (n, dim) float32 under their row numbers (n,) int64."""
        self._index.add_with_ids(vectors, rows)

    @classmethod
    def open(cls, path: Path, parameters: Mapping[str, int]) -> ApproximateIndex:
        """Read one from disk.

        Raises:
            IndexFormatError: The file cannot be read.
        """
        return cls(read_index(path), parameters)

    def write(self, sink: BinaryIO) -> None:
        """Write it through Python, so that any path and any full disk is Python's matter."""
        faiss().write_index(self._index, faiss().PyCallbackIOWriter(sink.write))

    @property
    def bytes(self) -> int:
        """How many it will take on disk, and mapped."""
        sizes: list[int] = []
        faiss().write_index(self._index, faiss().PyCallbackIOWriter(lambda data: sizes.append(len(data))))
        return sum(sizes)

    @property
    def candidates(self) -> int:
        """Rows that a search asks for at least and rescores; more where codes are coarse."""
        return self.parameters.get("candidates", _CANDIDATES)

    def search(self, queries: np.ndarray, k: int, *, wider: float = 1.0) -> list[tuple[np.ndarray, np.ndarray]]:
        """Find about the k best rows of each query; scores may be approximate.

        Args:
            queries: (q, dim) float32.
            k: How many, at most the number of rows. Beyond `candidates` more of the index is looked at.
            wider: How many times as many lists are looked at, at least, where there are such.

        Returns:
            For each query scores (m,) float32 and rows (m,) int64 with m <= k, best first.
        """
        scores, rows = self._index.search(queries, k, params=self._search_parameters(self._index, k, wider))
        found = rows >= 0  # FAISS fills what it did not find with -1
        return [(s[f], r[f]) for s, r, f in zip(scores, rows, found, strict=True)]

    def _search_parameters(self, index: Any, k: int, wider: float) -> Any:
        module = faiss()
        index = module.downcast_index(index)
        if isinstance(index, module.IndexIDMap):
            return self._search_parameters(index.index, k, wider)
        if isinstance(index, module.IndexPreTransform):
            return module.SearchParametersPreTransform(index_params=self._search_parameters(index.index, k, wider))
        if isinstance(index, module.IndexRefine):
            base = self._search_parameters(index.base_index, k, wider)
            return module.IndexRefineSearchParameters(k_factor=4.0, base_index_params=base)
        if isinstance(index, module.IndexHNSW):
            wanted = self.parameters.get("efSearch", _UNTUNED["efSearch"])
            return module.SearchParametersHNSW(efSearch=max(wanted, k if k <= self.candidates else 2 * k))
        if isinstance(index, module.IndexIVFPQ):
            return module.IVFPQSearchParameters(nprobe=self._nprobe(index, k, wider))
        if isinstance(index, module.IndexIVF):
            return module.SearchParametersIVF(nprobe=self._nprobe(index, k, wider))
        return None

    def _nprobe(self, index: Any, k: int, wider: float) -> int:
        lists = self.parameters.get("nprobe", _UNTUNED["nprobe"])
        return min(math.ceil(lists * max(wider, k / max(self.candidates, _CANDIDATES))), int(index.nlist))

    def beam(self) -> Beam | None:
        """The parameter that trades speed for recall; None without one."""
        module = faiss()
        index = module.downcast_index(self._index)
        while isinstance(index, module.IndexIDMap | module.IndexPreTransform | module.IndexRefine):
            inner = index.base_index if isinstance(index, module.IndexRefine) else index.index
            index = module.downcast_index(inner)
        if isinstance(index, module.IndexHNSW):
            return Beam(name="efSearch", first=32, ample=1024, most=2048)
        if isinstance(index, module.IndexIVF):
            lists = int(index.nlist)
            return Beam(name="nprobe", first=min(8, lists), ample=min(256, lists), most=lists)
        return None


@dataclass(frozen=True, kw_only=True)
class Beam:
    """How far an index looks: the parameter's name, its least value, one that is ample, and the largest."""

    name: str
    first: int
    ample: int
    most: int


_UNTUNED = {"nprobe": 8, "efSearch": 64}
_EF_CONSTRUCTION = 200


def blocks_without(source: VectorSource, without: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield row numbers (n,) int64 and vectors (n, dim) float32 of all rows but some, (w,) int64, sorted."""
    first = 0
    for block in source.blocks(_ADD_ROWS):
        rows = np.arange(first, first + len(block))
        first += len(block)
        if without is not None:
            keep = ~np.isin(rows, without, assume_unique=True)
            rows, block = rows[keep], block[keep]
        yield rows, block


def _training_sample(index: Any, source: VectorSource) -> np.ndarray:
    """Rows spread evenly over the index: enough for k-means (64 a list), never more than needed."""
    inner = faiss().try_extract_index_ivf(index)
    lists = int(inner.nlist) if inner is not None else 256
    wanted = min(source.rows, max(64 * lists, 20_000))
    return source.take(np.linspace(0, source.rows - 1, wanted).astype(np.int64))

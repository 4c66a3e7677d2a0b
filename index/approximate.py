"""Approximate indexes: which one fits, building, searching, and tuning it against exact search."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from retrieval.errors import ConfigError
from retrieval.index.vectors import exact_scores, faiss, read_index

LEAST_FETCH = 128
"""Rows that a search asks for at least; nprobe and efSearch are tuned for so many."""

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
            ConfigError: FAISS cannot build this index from so many vectors.
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
        return cls(index, {})

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

    def search(self, queries: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Find about the k best rows of each query; scores may be approximate.

        Args:
            queries: (q, dim) float32.
            k: How many, at most the number of rows. Beyond 128 more of the index is looked at in proportion.

        Returns:
            For each query scores (m,) float32 and rows (m,) int64 with m <= k, best first.
        """
        scores, rows = self._index.search(queries, k, params=self._search_parameters(self._index, k))
        found = rows >= 0  # FAISS fills what it did not find with -1
        return [(s[f], r[f]) for s, r, f in zip(scores, rows, found, strict=True)]

    def _search_parameters(self, index: Any, k: int) -> Any:
        module = faiss()
        index = module.downcast_index(index)
        if isinstance(index, module.IndexPreTransform):
            return module.SearchParametersPreTransform(index_params=self._search_parameters(index.index, k))
        if isinstance(index, module.IndexRefine):
            base = self._search_parameters(index.base_index, k)
            return module.IndexRefineSearchParameters(k_factor=4.0, base_index_params=base)
        if isinstance(index, module.IndexHNSW):
            wanted = self.parameters.get("efSearch", _START_VALUES["efSearch"])
            return module.SearchParametersHNSW(efSearch=max(wanted, k))
        if isinstance(index, module.IndexIVFPQ):
            return module.IVFPQSearchParameters(nprobe=self._nprobe(index, k))
        if isinstance(index, module.IndexIVF):
            return module.SearchParametersIVF(nprobe=self._nprobe(index, k))
        return None

    def _nprobe(self, index: Any, k: int) -> int:
        lists = self.parameters.get("nprobe", _START_VALUES["nprobe"])
        return min(math.ceil(lists * max(1.0, k / LEAST_FETCH)), int(index.nlist))

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
_TARGET_RECALL = 0.99
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
    found = approximate.search(queries, min(LEAST_FETCH, source.rows))
    shares = []
    for row, query, (_, rows), best in zip(sample, queries, found, exact, strict=True):
        rows = rows[rows != row]
        scores = exact_scores(query, source.take(rows))
        top = rows[np.argsort(-scores, kind="stable")[: len(best)]]
        if len(best):
            shares.append(len(np.intersect1d(top, best)) / len(best))
    return float(np.mean(shares)) if shares else 1.0


def tune(approximate: ApproximateIndex, source: VectorSource, exact: Sequence[np.ndarray], sample: np.ndarray) -> float:
    """Double nprobe or efSearch until recall@10 on the sample reaches .99; return the recall.

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

"""A segment: `documents.arrow` and `vectors.faiss`, row i of one beside row i of the other."""

from __future__ import annotations

import bisect
import functools
import hashlib
import io
import itertools
import os
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrieval.columns import as_python, conform, plain
from retrieval.errors import IndexFormatError
from retrieval.files import sync_parents, writing
from retrieval.index.manifest import FileEntry, SegmentEntry
from retrieval.index.mapped import checked_column, damaged, map_batches, sound
from retrieval.index.vectors import FlatVectors, VectorDtype, write_vectors
from retrieval.units import CODE_KINDS, DIGEST, is_own

PASSAGE_FIELDS = (pa.field("passage", pa.int32()), pa.field("start", pa.int64()), pa.field("end", pa.int64()))
_OWN_TYPES = (
    *((name, pa.string()) for name in ("doc_id", "title", "text")),
    *((field.name, field.type) for field in PASSAGE_FIELDS),
)
OWN_COLUMNS = tuple(name for name, _ in _OWN_TYPES)


Raw = tuple[np.ndarray, np.ndarray]
"""Scores (m,) float32 and rows (m,) int64 that a search found, best first."""


class HashingFile(io.RawIOBase):
    """A file that is being written and knows its SHA-256 and size."""

    def __init__(self, path: Path) -> None:
        """Create `path`, which must not exist."""
        self._stream: BinaryIO = path.open("xb")
        self._hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write and hash all of `data`."""
        view = memoryview(data).cast("B")
        self._stream.write(view)
        self._hash.update(view)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.size

    def finish(self, name: str) -> FileEntry:
        """Make the file durable and return its entry for the manifest."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        return FileEntry(path=name, bytes=self.size, sha256=self._hash.hexdigest())

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._stream.close()
        super().close()


def write_file(folder: Path, name: str, fill: Any) -> FileEntry:
    """Write `folder/name` through `fill(sink)` and return its manifest entry.

    Raises:
        DataError: The operating system refuses (permission, space).
    """
    path = folder / name
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with HashingFile(path) as sink:
            fill(sink)
            entry = sink.finish(name)
        sync_parents(folder, name)
    return entry


def write_segment(
    folder: Path,
    segment_id: str,
    *,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    blocks: Iterable[np.ndarray],
    rows: int,
    dim: int,
    dtype: VectorDtype,
) -> SegmentEntry:
    """Write a segment below `folder/segments`, batch by batch.

    Args:
        folder: The index or its staging folder.
        segment_id: Names the segment's own folder.
        schema: Of the documents; every batch is brought to it.
        batches: Passages; their rows sum to `rows`.
        blocks: (n, dim) float32 arrays, unit rows under cosine; their rows sum to `rows`.
        rows: Number of passages.
        dim: Dimension.
        dtype: Of the stored vectors.
    """

    def documents(sink: BinaryIO) -> None:
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(conform(batch, schema))

    def vectors(sink: BinaryIO) -> None:
        write_vectors(sink, blocks, rows=rows, dim=dim, dtype=dtype)

    name = f"segments/{segment_id}"
    return SegmentEntry(
        id=segment_id,
        rows=rows,
        documents=write_file(folder, f"{name}/documents.arrow", documents),
        vectors=write_file(folder, f"{name}/vectors.faiss", vectors),
    )


class Segment:
    """An open segment: mapped, read cell by cell (`Table.take` would copy whole columns)."""

    def __init__(
        self, folder: Path, entry: SegmentEntry, *, dim: int, dtype: VectorDtype, verify: bool = False
    ) -> None:
        """Map both files.

        Raises:
            IndexFormatError: A file is missing, damaged or not of the size that the manifest says.
        """
        self.id = entry.id
        self.rows = entry.rows
        self._path = entry.documents.check(folder, verify=verify)
        vectors = entry.vectors.check(folder, verify=verify)
        self.vectors = FlatVectors(vectors, rows=entry.rows, dim=dim, dtype=dtype)
        self.schema, self.batches = map_batches(self._path)
        if not set(_OWN_TYPES) <= {(field.name, field.type) for field in self.schema}:
            raise IndexFormatError(f"{self._path} holds other columns than passages have; rebuild the index")
        self._checked: dict[tuple[str, int], pa.Array] = {}
        self._starts = list(itertools.accumulate((batch.num_rows for batch in self.batches), initial=0))
        own = [field.name for field in self.schema if is_own(field)]  # a corpus without units has none of them
        self._own = (*OWN_COLUMNS, *own)
        hidden = {*self._own, DIGEST} if own else set(OWN_COLUMNS)
        self._metadata_fields = [field for field in self.schema if field.name not in hidden]
        if self._starts[-1] != self.rows:
            raise IndexFormatError(f"{self._path} has {self._starts[-1]} rows, expected {self.rows}; rebuild the index")

    def selected(self, names: Container[str]) -> Iterator[pa.RecordBatch]:
        """Yield those of some columns that there are, batch by batch; each is read first, to see that it is sound.

        Raises:
            IndexFormatError: The file is damaged.
        """
        found = [name for name in self.schema.names if name in names]
        for batch in self.batches:
            columns = batch.select(found)
            with sound(self._path):
                columns.validate(full=True)
            yield columns

    def select(self, names: list[str]) -> pa.Table:
        """Return columns over the whole segment, without a copy, as `selected` yields them."""
        schema = pa.schema([field for field in self.schema if field.name in names])
        return pa.Table.from_batches(self.selected(names), schema)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column over the whole segment, as `select` does."""
        return self.select([name]).column(0)

    @functools.cached_property
    def without_text(self) -> np.ndarray | None:
        """Rows of documents that have no searchable text (their passage is null) as (rows,) bool, or None."""
        column = self.column("passage")
        if not column.null_count:
            return None
        flags = column.is_null().cast(pa.uint8())  # its to_numpy would import pandas, where that is installed
        return np.concatenate([np.from_dlpack(chunk) for chunk in flags.chunks]).astype(bool)

    def cells(self, row: int, names: Iterable[str]) -> list[Any]:
        """Return values of one row as Arrow's plain Python objects.

        Raises:
            IndexFormatError: The file is damaged.
        """
        index = bisect.bisect_right(self._starts, row) - 1
        place = row - self._starts[index]
        try:
            return [as_python(self._array(name, index)[place]) for name in names]
        except (pa.ArrowException, ValueError) as error:
            raise damaged(self._path) from error

    def defining(self, name: str) -> np.ndarray:
        """Return the rows with which a function or class of this name begins, be it within another, (n,) int64.

        Raises:
            IndexFormatError: The file is damaged.
        """
        rows = [np.empty(0, np.int64)]
        for index, start in enumerate(self._starts[:-1] if "section" in self._own else ()):
            with sound(self._path):
                section = self._array("section", index)
                same = pc.or_kleene(pc.equal(section, name), pc.ends_with(section, f".{name}"))
                rows.append(np.flatnonzero(np.from_dlpack(pc.fill_null(same, False).cast(pa.uint8()))) + start)
        found = dict.fromkeys(np.concatenate(rows).tolist())
        first = [row for row in found if row - 1 not in found or self.cells(row, ("passage",)) == [0]]
        return np.array([row for row in first if self.cells(row, ("kind",))[0] in CODE_KINDS], np.int64)

    def damaged(self) -> IndexFormatError:
        """Say that what the documents' file says cannot be."""
        return damaged(self._path)

    def _array(self, name: str, index: int) -> pa.Array:
        """Return a column of one batch; asking the batch for it, and checking it, take longer than reading a cell."""
        array = self._checked.get((name, index))
        if array is None:
            array = self._checked[name, index] = checked_column(self.batches[index], name)
        return array

    def metadata(self, row: int) -> dict[str, object]:
        """Return the row's further columns with the values that the corpus had."""
        fields = self._metadata_fields
        values = self.cells(row, (field.name for field in fields))
        with sound(self._path):
            return {field.name: plain(value, field) for field, value in zip(fields, values, strict=True)}

    def passage(self, row: int) -> dict[str, Any]:
        """Return the row's own columns; those of `UNIT_FIELDS` only where the segment has them."""
        return dict(zip(self._own, self.cells(row, self._own), strict=True))


class Rows:
    """The rows of several segments under one numbering: a segment's offset plus the row within it.

    Attributes:
        rounding: How far a score that `search` gives may be off, at most, to the product of both vectors' lengths.
    """

    rounding = 2e-6

    def __init__(self, segments: Sequence[Segment], *, dim: int) -> None:
        """Number the rows of open segments."""
        self.segments = list(segments)
        self.dim = dim
        self.starts = np.cumsum([0, *(segment.rows for segment in self.segments)])
        self.rows = int(self.starts[-1])
        self._offsets: list[int] = self.starts.tolist()

    def locate(self, row: int) -> tuple[Segment, int]:
        """Return the segment of a global row and the row within it."""
        index = bisect.bisect_right(self._offsets, row) - 1
        return self.segments[index], row - self._offsets[index]

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the vectors of global rows (n,) as (n, dim) float32."""
        if len(self.segments) == 1:
            return self.segments[0].vectors.take(rows)
        result = np.empty((len(rows), self.dim), np.float32)
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        for index in np.unique(owner):
            mine = owner == index
            result[mine] = self.segments[index].vectors.take(rows[mine] - self.starts[index])
        return result

    def search(
        self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None, *, first_row: int = 0
    ) -> list[Raw]:
        """Search the vectors of all segments that start at `first_row` or later, exactly.

        Args:
            queries: (q, dim) float32.
            k: Passages for each query.
            allowed: (rows,) bool, or None for all.
            first_row: A segment's start.

        Returns:
            For each query scores (m,) float32 and global rows (m,) int64, best first, m the smaller of k and the rows.
        """
        parts: list[list[Raw]] = [[] for _ in queries]
        for start, segment in zip(self.starts, self.segments, strict=False):
            mask = None if allowed is None else allowed[start : start + segment.rows]
            count = min(k, segment.rows if mask is None else int(mask.sum()))
            if start < first_row or count == 0:
                continue
            scores, found = segment.vectors.search(queries, count, mask)
            for part, query_scores, query_rows in zip(parts, scores, found + start, strict=True):
                part.append((query_scores, query_rows))
        return [merged(part, k) for part in parts]

    def blocks(self, block_rows: int) -> Iterator[np.ndarray]:
        """Yield all vectors in order, (n, dim) float32 with n <= block_rows."""
        for segment in self.segments:
            for start in range(0, segment.rows, block_rows):
                yield segment.vectors.block(start, min(start + block_rows, segment.rows))


def merged(parts: Sequence[Raw], most: int) -> Raw:
    """Bring scores and rows from several places into one order, best first, and keep so many."""
    if len(parts) == 1:
        return parts[0]
    scores = np.concatenate([part[0] for part in parts] or [np.empty(0, np.float32)])
    rows = np.concatenate([part[1] for part in parts] or [np.empty(0, np.int64)])
    best = np.argsort(-scores, kind="stable")[:most]
    return scores[best], rows[best]

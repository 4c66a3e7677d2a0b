"""Ready-made vectors: a .npy file, or a Parquet file with ids, read in step with the documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrieval.errors import ConfigError, DataError
from retrieval.tables import ID_NAMES

if TYPE_CHECKING:
    from retrieval.records import DocumentSettings

_BATCH_ROWS = 4096


class VectorFile(ABC):
    """Vectors in the order of the documents.

    Attributes:
        path: The file.
        dim: Dimension of its vectors.
    """

    def __init__(self, path: Path, *, dim: int, rows: int, dropped: tuple[str, ...] = ()) -> None:
        """Describe a file (see `open`).

        Raises:
            DataError: There is nothing in it.
        """
        if rows == 0 or dim == 0:
            raise DataError(f"--vectors {path}: no vectors in it; its shape is ({rows}, {dim})")
        self.path = path
        self.dim = dim
        self._rows = rows
        self._dropped = dropped
        self._position = 0

    @classmethod
    def open(cls, path: str | Path, *, column: str | None = None) -> VectorFile:
        """Open a vector file and look at its shape; no vector is read yet.

        Args:
            path: `.npy` with an array (n, dim) of numbers, or `.parquet` with an id column and a list column.
            column: The list column's name; None where there is only one.

        Raises:
            DataError: No such file, or another content.
        """
        path = Path(path).expanduser()
        if not path.is_file():
            raise DataError(f"--vectors {path}: no such file")
        if path.suffix == ".npy":
            return _NumpyVectors(path)
        if path.suffix == ".parquet":
            return _ParquetVectors(path, column)
        raise DataError(f"--vectors {path}: expected .npy or .parquet")

    def fingerprint(self) -> str:
        """Return what tells this file from a changed one."""
        state = self.path.stat()
        return f"{self.path}:{state.st_size}:{state.st_mtime_ns}"

    def document_settings(self, settings: DocumentSettings) -> DocumentSettings:
        """Adapt how documents are read: text is optional, the vector column is no metadata.

        Raises:
            ConfigError: Bad records are to be skipped, which would shift the vectors against the documents.
        """
        if settings.on_bad == "skip":
            raise ConfigError("--on-bad skip does not go with --vectors: the vectors would shift against the documents")
        return replace(settings, require_text=False, drop_fields=(*settings.drop_fields, *self._dropped))

    def skip(self, rows: int) -> None:
        """Leave out vectors, of documents that are encoded already."""
        for _ in range(0, rows, _BATCH_ROWS):
            self._next(min(_BATCH_ROWS, rows))
            rows -= _BATCH_ROWS

    def take(self, doc_ids: pa.ChunkedArray, *, unit: bool) -> np.ndarray:
        """Return the vectors of the next documents.

        Args:
            doc_ids: Their ids, n of them.
            unit: Bring each row to unit length.

        Returns:
            (n, dim) float32, finite.

        Raises:
            DataError: Too few vectors, another id, a value that is not finite, or a zero row under `unit`.
        """
        ids = doc_ids.to_pylist()
        vectors, found = self._next(len(ids))
        if len(vectors) < len(ids):
            raise DataError(
                f"{self.path} has {self._rows} vectors and the corpus more documents: "
                f"none is left for document {ids[len(vectors)]!r}"
            )
        for row, (expected, other) in enumerate(zip(ids, found or ids, strict=True)):
            if expected != other:
                position = self._position - len(ids) + row + 1
                raise DataError(
                    f"{self.path} row {position}: id {other!r} where the corpus has {expected!r}; "
                    "vectors and documents must be in the same order"
                )
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            raise DataError(f"{self.path}: the vector of document {ids[int(np.argmax(bad))]!r} holds NaN or infinity")
        return unit_rows(vectors, lambda row: f"{self.path}: the vector of document {ids[row]!r}") if unit else vectors

    def finish(self) -> None:
        """Check that every vector had its document.

        Raises:
            DataError: Vectors are left over.
        """
        if self._position < self._rows:
            raise DataError(f"{self.path} has {self._rows} vectors, the corpus only {self._position} documents")

    @abstractmethod
    def _next(self, count: int) -> tuple[np.ndarray, list[str] | None]:
        """Read the next `count` vectors (n, dim) float32, n smaller at the end, and their ids where there are some."""


class _NumpyVectors(VectorFile):
    def __init__(self, path: Path) -> None:
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"--vectors {path}: not an array of numbers that numpy can map ({reason})") from error
        if not isinstance(mapped, np.memmap):
            raise DataError(f"--vectors {path}: an archive of arrays, expected one array, as numpy.save writes it")
        if mapped.ndim != 2 or mapped.dtype.kind not in "fiu" or not mapped.flags.c_contiguous:
            raise DataError(
                f"--vectors {path}: {mapped.dtype} array of shape {mapped.shape}, expected numbers of shape (n, dim) "
                "in C order"
            )
        super().__init__(path, dim=mapped.shape[1], rows=mapped.shape[0])
        self._dtype = mapped.dtype
        self._offset = mapped.offset

    def _next(self, count: int) -> tuple[np.ndarray, None]:
        with self.path.open("rb") as stream:  # read, not mapped: pages of a map would count as our memory
            stream.seek(self._offset + self._position * self.dim * self._dtype.itemsize)
            vectors = np.fromfile(stream, self._dtype, count * self.dim).reshape(-1, self.dim)
        self._position += len(vectors)
        return _float32(vectors), None


class _ParquetVectors(VectorFile):
    def __init__(self, path: Path, column: str | None) -> None:
        import pyarrow.parquet

        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"--vectors {path}: not a Parquet file that can be read ({reason})") from error
        schema = self._file.schema_arrow
        names = [field.name for field in schema if _is_vector(field.type) and column in (None, field.name)]
        ids = [name for name in ID_NAMES if name in schema.names]
        if len(names) != 1 or not ids:
            raise DataError(
                f"--vectors {path}: expected an id column ({', '.join(ID_NAMES)}) and one list column of floats "
                f"(or --vector-field); found {', '.join(f'{field.name} ({field.type})' for field in schema)}"
            )
        self._batches = self._read(path, ids[0], names[0])
        first = next(self._batches, None)
        self._waiting = [] if first is None else [first]
        dim = 0 if first is None else first[0].shape[1]
        super().__init__(path, dim=dim, rows=self._file.metadata.num_rows, dropped=(names[0],))

    def _read(self, path: Path, id_name: str, name: str) -> Iterator[tuple[np.ndarray, list[str]]]:
        dim = position = 0
        try:
            for batch in self._file.iter_batches(_BATCH_ROWS, columns=[id_name, name]):
                ids = pc.cast(batch[id_name], pa.string()).to_pylist()
                lengths = pc.fill_null(pc.list_value_length(batch[name]), -1).to_numpy()  # -1: no list
                dim = dim or max(0, int(lengths[0]))
                odd = np.flatnonzero((lengths != dim) | (lengths < 1))
                if len(odd):
                    row = int(odd[0])
                    given = "no vector" if lengths[row] < 0 else f"a vector of {lengths[row]} values"
                    raise DataError(
                        f"{path} row {position + row + 1}: {given} for document {ids[row]!r}; "
                        "every document needs one, all of the same length"
                    )
                position += len(ids)
                yield _float32(batch[name].flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)), ids
        except (pa.ArrowInvalid, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"--vectors {path}: damaged after row {position} ({reason})") from error

    def _next(self, count: int) -> tuple[np.ndarray, list[str]]:
        vectors: list[np.ndarray] = []
        ids: list[str] = []
        while count > len(ids):
            block = self._waiting.pop() if self._waiting else next(self._batches, None)
            if block is None:
                break
            missing = count - len(ids)
            vectors.append(block[0][:missing])
            ids += block[1][:missing]
            if len(block[1]) > missing:
                self._waiting.append((block[0][missing:], block[1][missing:]))
        self._position += len(ids)
        return np.concatenate(vectors) if vectors else np.empty((0, self.dim), np.float32), ids


def _float32(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors as float32; numbers beyond its range become infinite, which is refused with the others."""
    with np.errstate(over="ignore"):
        return vectors.astype(np.float32, copy=False)


def unit_rows(vectors: np.ndarray, name: Callable[[int], str]) -> np.ndarray:
    """Bring rows to unit length; rows that have it within float32's rounding stay as they are, to the bit.

    Args:
        vectors: (n, dim) float32.
        name: Names a row, for the message.

    Raises:
        DataError: A row is zero.
    """
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    if not norms.all():
        raise DataError(f"{name(int(np.argmin(norms)))} is zero and has no direction (cosine)")
    off = np.abs(norms - 1.0) >= 1e-6
    if off.any():
        vectors = vectors.copy()
        with np.errstate(invalid="ignore"):  # what is not finite stays so, for whoever checks that
            vectors[off] = vectors[off] / norms[off, None]
    return vectors


def read_query_vectors(path: str | Path) -> tuple[list[str], np.ndarray]:
    """Read query vectors: from .npy numbered from 1, from Parquet with their ids.

    Returns:
        The q ids, and the vectors (q, dim) float32.

    Raises:
        DataError: No such file, or no array of numbers (q, dim).
    """
    file = VectorFile.open(path)
    vectors, ids = file._next(file._rows)
    if not np.isfinite(vectors).all():
        row = int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise DataError(f"{path}: row {row + 1} holds NaN or infinity")
    names = ids or [str(number) for number in range(1, len(vectors) + 1)]
    if len(set(names)) < len(names):
        raise DataError(f"{path}: an id occurs twice; query ids must differ")
    return names, vectors


def _is_vector(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in lists) and pa.types.is_floating(kind.value_type)

"""From documents to passages: parts of fixed size, and the rows that an index stores of a part.

A part is tokenised, encoded and written before the next is read, so memory does not grow with the corpus, and a part
on disk is a checkpoint. Where parts end depends on the documents alone, so an interrupted build ends with the same
bytes as an undisturbed one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrieval.chunking import PassageVectors
from retrieval.columns import conform, unify
from retrieval.encoder import BiEncoder
from retrieval.errors import DataError, ModelError
from retrieval.matching import Encoder
from retrieval.vectorfile import VectorFile, unit_rows

PART_DOCUMENTS = 2048
_PART_BYTES = 2 * 2**20  # of text, so that long documents make smaller parts
_VECTOR_PART_DOCUMENTS = 65_536
_VECTOR_PART_BYTES = 64 * 2**20
_TAKE_ROWS = 1024  # Arrow's take cannot return more than 2 GiB of text


class PassageSource(Protocol):
    """Turns the documents of a part into passages and vectors."""

    part_documents: int
    part_bytes: int

    def skip(self, documents: int) -> None:
        """Leave out the documents of parts that are taken over."""

    def passages(self, documents: pa.Table, progress: Callable[[float], None]) -> PassageVectors:
        """Return the passages of the next documents; `progress` hears which share of them is done."""

    def finish(self) -> None:
        """Check that nothing is left over."""

    def cut(self) -> dict[str, int]:
        """Counts of what was cut."""


class EncodedPassages:
    """Passages that an encoder makes."""

    part_documents = PART_DOCUMENTS
    part_bytes = _PART_BYTES

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._before = dict(encoder.notices)

    def skip(self, documents: int) -> None:
        """See `PassageSource`."""

    def passages(self, documents: pa.Table, progress: Callable[[float], None]) -> PassageVectors:
        """See `PassageSource`."""
        try:
            titles, texts = documents["title"].to_pylist(), documents["text"].to_pylist()
            if isinstance(self.encoder, BiEncoder):
                found = self.encoder.encode_documents(titles, texts, progress=progress)
            else:
                found = self.encoder.encode_documents(titles, texts)
        except (DataError, ModelError) as error:  # the encoder counts documents, people know them by their ids
            named = re.sub(r"document (\d+) of the call", lambda m: _document(documents, int(m[1]) - 1), str(error))
            raise type(error)(named) from error
        if self.encoder.metric != "cosine":
            return found

        def name(row: int) -> str:
            document = _document(documents, int(found.parent[row]))
            return f"{self.encoder.identity.get('name')}: the vector of {document}"

        return replace(found, vectors=unit_rows(np.asarray(found.vectors, np.float32), name))

    def finish(self) -> None:
        """See `PassageSource`."""

    def cut(self) -> dict[str, int]:
        """See `PassageSource`."""
        counts = {name: count - self._before.get(name, 0) for name, count in self.encoder.notices.items()}
        return {name: count for name, count in counts.items() if count}


class ReadyPassages:
    """One passage a document, with a ready-made vector."""

    part_documents = _VECTOR_PART_DOCUMENTS
    part_bytes = _VECTOR_PART_BYTES

    def __init__(self, ready: VectorFile, *, cosine: bool) -> None:
        self._ready = ready
        self._cosine = cosine

    def skip(self, documents: int) -> None:
        """See `PassageSource`."""
        self._ready.skip(documents)

    def passages(self, documents: pa.Table, progress: Callable[[float], None]) -> PassageVectors:
        """See `PassageSource`."""
        vectors = self._ready.take(documents["doc_id"], unit=self._cosine)
        lengths = pc.utf8_length(documents["text"]).to_numpy().astype(np.int64)
        rows = np.arange(documents.num_rows)
        return PassageVectors(parent=rows, start=np.zeros_like(lengths), end=lengths, vectors=vectors)

    def finish(self) -> None:
        """See `PassageSource`."""
        self._ready.finish()

    def cut(self) -> dict[str, int]:
        """See `PassageSource`."""
        return {}


def cut_parts(batches: Iterable[pa.RecordBatch], documents: int, text_bytes: int) -> Iterator[pa.Table]:
    """Cut a stream of documents into parts, by number and by size of their strings, whatever batches they come in."""
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        start = 0
        for row, length in enumerate(_text_bytes(batch)):
            count += 1
            size += int(length)
            if count >= documents or size >= text_bytes:
                yield _table([*waiting, batch.slice(start, row + 1 - start)])
                waiting, count, size, start = [], 0, 0, row + 1
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
    if waiting:
        yield _table(waiting)


def _text_bytes(batch: pa.RecordBatch) -> np.ndarray:
    """Bytes of each row's strings, metadata included, (n,) int64."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return sizes


def _document(documents: pa.Table, row: int) -> str:
    return f"document {documents['doc_id'][row].as_py()!r}"


def _table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    schema = unify([batch.schema for batch in batches])
    return pa.Table.from_batches([conform(batch, schema) for batch in batches], schema).combine_chunks()


def as_rows(documents: pa.Table, found: PassageVectors, dim: int) -> tuple[pa.Table, np.ndarray, int]:
    """Join documents and their passages: one row a passage, and one, with a null passage, for a document without.

    Returns:
        The rows, and how many documents have no searchable text; their vectors (n, dim) float32 stand beside them.
    """
    blank = np.setdiff1d(np.arange(documents.num_rows), found.parent)
    parent = np.concatenate([found.parent, blank])
    order = np.argsort(parent, kind="stable")
    first = np.searchsorted(found.parent, found.parent)  # where each passage's document begins
    number = np.concatenate([np.arange(len(found.parent)) - first, np.full(len(blank), -1)])[order]
    zeros = np.zeros(len(blank), np.int64)
    start, end = np.concatenate([found.start, zeros])[order], np.concatenate([found.end, zeros])[order]
    parent = parent[order]
    vectors = found.vectors
    if len(blank):
        vectors = np.concatenate([vectors, np.zeros((len(blank), dim), np.float32)])[order]
    # Without the texts: a book repeated for each of its passages grows with the square of its length.
    place = documents.column_names.index("text")
    others = documents.remove_column(place)
    slices = [others.take(pa.array(parent[i : i + _TAKE_ROWS])) for i in range(0, len(parent), _TAKE_ROWS)]
    table = pa.concat_tables(slices or [others])
    whole = documents["text"].to_pylist()
    texts = [whole[p][s:e] if n >= 0 else whole[p] for p, n, s, e in zip(parent, number, start, end, strict=True)]
    table = table.add_column(place, documents.schema.field("text"), pa.array(texts, pa.string()))
    passage = pa.array(number, pa.int32(), mask=number < 0)
    for name, column in (("passage", passage), ("start", pa.array(start)), ("end", pa.array(end))):
        table = table.append_column(name, column)
    return table, vectors, len(blank)

"""Documents out of an index: the passages of each put together again, to be indexed by another model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from retrieval.chunking import joined
from retrieval.columns import conform, metadata_name, unify
from retrieval.documents import DocumentSettings
from retrieval.files import atomic_write
from retrieval.index.reader import Index

_ID, _TITLE, _TEXT = "document id", "document title", "document text"  # no metadata is called so by chance
_PASSAGE_COLUMNS = ("passage", "start", "end")

READING = DocumentSettings(id_field=_ID, title_field=_TITLE, text_field=_TEXT)
"""How a file that `write_documents` made is read."""


@dataclass(kw_only=True)
class Reassembly:
    """What became of an index's documents.

    Attributes:
        documents: written.
        blanks: of these, such where passages do not touch; what lies between, blanks, is written as spaces.
    """

    documents: int = 0
    blanks: int = 0


class _Passage(NamedTuple):
    start: int
    text: str


def fingerprint_of(index: Index) -> str:
    """SHA-256 over all that an index holds, as 64 hexadecimal digits."""
    files = "\n".join(file.sha256 for file in index.manifest.files())
    return hashlib.sha256(files.encode()).hexdigest()


def write_documents(index: Index, path: str | Path) -> Reassembly:
    """Write the documents of an index, as they were when it was built, into an Arrow file (read it with `READING`).

    The text of a document comes back to the character, but for blanks at its ends and, with windows that do not
    overlap, between them: a window has no blanks around it. Of a text that was truncated only its beginning is there.

    Raises:
        DataError: The file cannot be written.
    """
    found = Reassembly()
    schema = _schema(index)
    with atomic_write(path) as stream, pa.ipc.new_file(stream, schema) as writer:
        for batch in documents_of(index, found):
            writer.write_batch(batch)
    return found


def write_documents_once(index: Index, path: Path) -> Reassembly:
    """Do as `write_documents`, unless it was done; what was counted then is kept beside, as JSON.

    Raises:
        DataError: A file cannot be written.
    """
    counts = path.with_suffix(".json")
    if counts.exists():
        return Reassembly(**json.loads(counts.read_text()))
    found = write_documents(index, path)
    with atomic_write(counts) as stream:
        stream.write(json.dumps(asdict(found)).encode())
    return found


def read_texts(path: str | Path, doc_ids: Collection[str]) -> dict[str, str]:
    """Read what some documents of such a file say, title and text joined, by id."""
    wanted = pa.array(sorted(doc_ids), pa.string())
    texts: dict[str, str] = {}
    with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            batch = batch.filter(pc.is_in(batch.column(_ID), value_set=wanted))
            columns = (batch.column(name).to_pylist() for name in (_ID, _TITLE, _TEXT))
            texts |= {doc_id: joined(title, text) for doc_id, title, text in zip(*columns, strict=True)}
    return texts


def titles_and_texts(path: str | Path) -> Iterator[tuple[str, str, str]]:
    """Yield id, title and text of the documents of such a file, in order."""
    with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            columns = (batch.column(name).to_pylist() for name in (_ID, _TITLE, _TEXT))
            yield from zip(*columns, strict=True)


def write_sample(path: str | Path, out: str | Path, doc_ids: Collection[str], *, every: int) -> None:
    """Copy some documents of such a file into another, and one of every so many of all.

    Raises:
        DataError: The file cannot be written.
    """
    wanted = pa.array(sorted(doc_ids), pa.string())
    position = 0
    with (
        pa.ipc.open_file(pa.memory_map(str(path))) as reader,
        atomic_write(out) as stream,
        pa.ipc.new_file(stream, reader.schema) as writer,
    ):
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            named = pc.is_in(batch.column(_ID), value_set=wanted).to_pylist()
            keep = [name or (position + row) % every == 0 for row, name in enumerate(named)]
            position += batch.num_rows
            writer.write_batch(batch.filter(pa.array(keep, pa.bool_())))


def documents_of(index: Index, found: Reassembly | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the documents of an index that are not deleted, one a row, in order; `found` counts them."""
    found = Reassembly() if found is None else found
    schema, whole = _schema(index), _passage_schema(index)
    waiting: pa.RecordBatch | None = None  # the rows of a document whose passages may go on in the next batch
    for batch in index.documents():
        batch = conform(batch, whole)
        if waiting is not None:
            batch = pa.Table.from_batches([waiting, batch]).combine_chunks().to_batches()[0]
        last = _beginnings(batch)[-1]
        waiting = batch.slice(last)
        if last:
            yield _joined(batch.slice(0, last), schema, found)
    if waiting is not None:
        yield _joined(waiting, schema, found)


def _passage_schema(index: Index) -> pa.Schema:
    return unify([segment.schema for segment in index.rows.segments])


def _schema(index: Index) -> pa.Schema:
    """The columns of documents, with the names that metadata had before the index's own names were kept free."""
    own = {"doc_id": _ID, "title": _TITLE, "text": _TEXT}
    kept = [field for field in _passage_schema(index) if field.name not in _PASSAGE_COLUMNS]
    return pa.schema([field.with_name(own.get(field.name) or _given_name(field.name)) for field in kept])


def _given_name(column: str) -> str:
    """The name that `metadata_name` made a column's name of."""
    return column[:-1] if column.endswith("_") and metadata_name(column[:-1]) == column else column


def _beginnings(batch: pa.RecordBatch) -> list[int]:
    """Rows that begin a document: passage 0, or none for one without text."""
    return [row for row, passage in enumerate(batch.column("passage").to_pylist()) if not passage]


def _joined(batch: pa.RecordBatch, schema: pa.Schema, found: Reassembly) -> pa.RecordBatch:
    """Make documents of the passages of whole documents."""
    first = _beginnings(batch)
    rows = list(map(_Passage, batch.column("start").to_pylist(), batch.column("text").to_pylist()))
    heads = batch.take(pa.array(first))
    texts = [_text(rows[begin:end], found) for begin, end in zip(first, [*first[1:], len(rows)], strict=True)]
    found.documents += len(texts)
    columns = [
        pa.array(texts, pa.string()) if name == "text" else heads.column(name)
        for name in batch.schema.names
        if name not in _PASSAGE_COLUMNS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _text(passages: Sequence[_Passage], found: Reassembly) -> str:
    """Lay passages over each other by where they start."""
    parts: list[str] = []
    end = 0  # characters
    torn = False
    for start, text in passages:
        if start > end:
            parts.append(" " * (start - end))
            torn, end = True, start
        parts.append(text[end - start :])
        end = max(end, start + len(text))
    found.blanks += torn
    return "".join(parts)

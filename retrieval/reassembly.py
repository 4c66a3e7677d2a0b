"""Documents out of an index: the passages of each put together again, to be indexed by another model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retrieval.chunking import joined
from retrieval.columns import conform, metadata_name, unify
from retrieval.documents import DocumentSettings
from retrieval.files import atomic_write
from retrieval.index.reader import Index
from retrieval.units import UNITS, UNITS_TYPE, Unit, is_own, units_column, untitled

_ID, _TITLE, _TEXT = "document id", "document title", "document text"  # no metadata is called so by chance
_OF_PASSAGES = ("passage", "start", "end")

READING = DocumentSettings(id_field=_ID, title_field=_TITLE, text_field=_TEXT)
"""How a file that `write_documents` made is read."""


@dataclass(kw_only=True)
class Reassembly:
    """What became of an index's documents.

    Attributes:
        documents: written.
        blanks: of these, such where passages do not touch, and no lines are known; what lies between, blanks, is
            written as spaces.
    """

    documents: int = 0
    blanks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passage:
    """What a row says of its passage."""

    start: int
    text: str
    section: str | None = None
    kind: str | None = None
    start_line: int | None = None
    end_line: int | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def fingerprint_of(index: Index) -> str:
    """SHA-256 over all that an index holds, as 64 hexadecimal digits."""
    files = "\n".join(file.sha256 for file in index.manifest.files())
    return hashlib.sha256(files.encode()).hexdigest()


def write_documents(index: Index, path: str | Path) -> Reassembly:
    """Write the documents of an index, as they were when it was built, into an Arrow file (read it with `READING`).

    The text of a document comes back to the character, but for blanks at its ends and, with windows that do not
    overlap, between them: a window has no blanks around it. Front matter, which is in no passage, comes back as blanks.
    Where the lines of passages are known, the line ends between them come back, so that lines keep their numbers. Of a
    text that was truncated only its beginning is there.

    Units come back as one or several that give the same passages: windows that overlap are of one unit.

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
    fields = _passage_schema(index)
    kept = [field.with_name(own.get(field.name) or _given_name(field.name)) for field in fields if _is_kept(field)]
    return pa.schema([*kept, pa.field(UNITS, UNITS_TYPE)] if any(map(is_own, fields)) else kept)


def _is_kept(field: pa.Field) -> bool:
    return field.name not in _OF_PASSAGES and not is_own(field)


def _given_name(column: str) -> str:
    """The name that `metadata_name` made a column's name of."""
    return column[:-1] if column.endswith("_") and metadata_name(column[:-1]) == column else column


def _beginnings(batch: pa.RecordBatch) -> list[int]:
    """Rows that begin a document: passage 0, or none for one without text."""
    return [row for row, passage in enumerate(batch.column("passage").to_pylist()) if not passage]


def _joined(batch: pa.RecordBatch, schema: pa.Schema, found: Reassembly) -> pa.RecordBatch:
    """Make documents of the passages of whole documents."""
    first = _beginnings(batch)
    names = ["start", "text", *(field.name for field in batch.schema if is_own(field))]
    values = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    rows = [_Passage(**dict(zip(names, row, strict=True))) for row in values]
    documents = [rows[begin:end] for begin, end in zip(first, [*first[1:], len(rows)], strict=True)]
    found.documents += len(documents)
    heads = batch.take(pa.array(first))
    titles = zip(heads.column("title").to_pylist(), documents, strict=True)
    made: dict[str, Any] = {
        "title": pa.array([untitled(title, passages[0].section) for title, passages in titles], pa.string()),
        "text": pa.array([_text(passages, found) for passages in documents], pa.string()),
    }
    columns = [made.get(field.name, heads.column(field.name)) for field in batch.schema if _is_kept(field)]
    if len(columns) < len(schema):
        columns.append(units_column([_units(passages) for passages in documents]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _units(passages: Sequence[_Passage]) -> list[Unit] | None:
    """Units that give these passages; None for a document that was not cut into units."""
    units: list[Unit] = []
    for passage in passages:
        if passage.kind is None:
            return None
        unit = Unit(start=passage.start, end=passage.end, section=passage.section or "", kind=passage.kind)
        last = units[-1] if units else None
        if last and (last.section, last.kind) == (unit.section, unit.kind) and unit.start < last.end:
            units[-1] = replace(last, end=max(last.end, unit.end))
        else:
            units.append(unit)
    return units


def _text(passages: Sequence[_Passage], found: Reassembly) -> str:
    """Lay passages over each other by where they start, with blanks between those that do not touch.

    These are line ends as far as lines are known, and between parts that are called differently.
    """
    parts: list[str] = []
    end = 0  # characters
    line = 1  # that the text so far ends on
    torn = False
    section = None
    for passage in passages:
        if passage.start > end:
            gap = passage.start - end
            breaks = gap if passage.section != section else 0
            if passage.start_line:
                breaks = min(gap, passage.start_line - line)
            parts.append("\n" * breaks + " " * (gap - breaks))
            torn, end = torn or not passage.start_line, passage.start
        parts.append(passage.text[end - passage.start :])
        end = max(end, passage.end)
        section = passage.section
        line = passage.end_line + passage.text.endswith("\n") if passage.end_line else line
    found.blanks += torn
    return "".join(parts)

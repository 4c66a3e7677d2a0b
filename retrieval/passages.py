"""From documents to passages: parts of fixed size, and the rows that an index stores of a part.

Where a column `units` says how a document is cut (see `retrieval.units`), no passage crosses a unit's border.

A part is tokenised, encoded and written before the next is read, so memory does not grow with the corpus, and a part
on disk is a checkpoint. Where parts end depends on the documents alone, so an interrupted build ends with the same
bytes as an undisturbed one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrieval.chunking import PassageVectors, is_blank
from retrieval.columns import conform, taken, unify
from retrieval.encoder import BiEncoder
from retrieval.errors import DataError, ModelError
from retrieval.matching import Encoder
from retrieval.units import LINELESS, UNIT_FIELDS, UNITS, UNITS_TYPE, Unit, line_numbers, titled, units_of, visible
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
        self._elsewhere: Counter[str] = Counter()

    def skip(self, documents: int) -> None:
        """See `PassageSource`."""

    def passages(self, documents: pa.Table, progress: Callable[[float], None]) -> PassageVectors:
        """See `PassageSource`."""
        pieces = _pieces(documents)
        try:
            if isinstance(self.encoder, BiEncoder):
                found = self.encoder.encode_documents(pieces.titles, pieces.texts, progress=progress)
            else:
                found = self.encoder.encode_documents(pieces.titles, pieces.texts)
        except (DataError, ModelError) as error:  # the encoder counts texts, people know documents by their ids
            named = re.sub(
                r"document (\d+) of the call",
                lambda match: _document(documents, int(pieces.parent[int(match[1]) - 1])),
                str(error),
            )
            raise type(error)(named) from error
        found = pieces.of_documents(found)
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
        counts = Counter({name: count - self._before.get(name, 0) for name, count in self.encoder.notices.items()})
        return dict(counts + self._elsewhere)

    def count(self, elsewhere: Mapping[str, int]) -> None:
        """Add the counts of what another process encoded."""
        self._elsewhere.update(elsewhere)


@dataclass(frozen=True, kw_only=True)
class _Pieces:
    """What an encoder gets of some documents: the units of those that are cut into such, the others whole.

    Attributes:
        titles: (n,) of documents, with what their units are called.
        texts: (n,)
        parent: (n,) int64, row of the document that each comes from.
        unit: (n,) int64, number of the unit within it, -1 for a whole document; None where all are whole.
        start: (n,) int64, its first character in the document's text.
    """

    titles: list[str]
    texts: list[str]
    parent: np.ndarray
    unit: np.ndarray | None
    start: np.ndarray

    def of_documents(self, found: PassageVectors) -> PassageVectors:
        """Say of the passages of these texts where they lie in the documents, without the blanks at their ends."""
        if self.unit is None:
            return found
        places = zip(found.parent, found.start, found.end, strict=True)
        lengths = [len(self.texts[row][start:end].rstrip()) for row, start, end in places]
        start = self.start[found.parent] + found.start
        return PassageVectors(
            parent=self.parent[found.parent],
            start=start,
            end=start + np.array(lengths, np.int64),
            vectors=found.vectors,
            unit=self.unit[found.parent],
        )


def _pieces(documents: pa.Table) -> _Pieces:
    titles, texts = documents["title"].to_pylist(), documents["text"].to_pylist()
    rows = np.arange(len(texts))
    units = _units(documents)
    if not any(units):
        return _Pieces(titles=titles, texts=texts, parent=rows, unit=None, start=np.zeros_like(rows))
    whole = Unit(start=0, end=0, section="", kind="")
    found: list[tuple[int, int, Unit]] = []
    for row, (text, some) in enumerate(zip(texts, units, strict=True)):
        trimmed = [(row, number, _visible(text, unit)) for number, unit in enumerate(some)]
        full = [one for one in trimmed if not is_blank(text[one[2].start : one[2].end])]
        found += full or [(row, -1, replace(whole, end=len(text)))]
    return _Pieces(
        titles=[titled(titles[row], unit.section) if number >= 0 else titles[row] for row, number, unit in found],
        texts=[texts[row][unit.start : unit.end] for row, _, unit in found],
        parent=np.array([row for row, _, _ in found]),
        unit=np.array([number for _, number, _ in found]),
        start=np.array([unit.start for _, _, unit in found]),
    )


def _visible(text: str, unit: Unit) -> Unit:
    start, end = visible(text, unit.start, unit.end)
    return replace(unit, start=start, end=end)


def _units(documents: pa.Table) -> list[list[Unit]]:
    """The units of each document, none for one that is not cut."""
    if not _cut_into_units(documents):
        return [[] for _ in range(documents.num_rows)]
    return [some or [] for some in units_of(documents[UNITS])]


def _cut_into_units(documents: pa.Table) -> bool:
    """Whether there is a column `units` that is not some corpus's metadata of that name."""
    return UNITS in documents.column_names and documents.schema.field(UNITS).type == UNITS_TYPE


class ReadyPassages:
    """One passage a document, with a ready-made vector, whatever its units."""

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

    A column `units` goes; `UNIT_FIELDS` come in its place, and what a unit is called comes to the title.

    Returns:
        The rows, and how many documents have no searchable text; their vectors (n, dim) float32 stand beside them.

    Raises:
        DataError: Some documents have units, and metadata of others is called as a column for these.
    """
    units = _units(documents) if _cut_into_units(documents) else None
    documents = documents if units is None else documents.drop_columns(UNITS)
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
    if units is not None:
        numbers = np.full(len(found.parent), -1) if found.unit is None else found.unit
        numbers = np.concatenate([numbers, np.full(len(blank), -1)])[order]
        rows = [units[p][n] if n >= 0 else None for p, n in zip(parent, numbers, strict=True)]
        table = _with_units(table, rows, _lines(whole, rows, parent, start, end))
    return table, vectors, len(blank)


def _with_units(table: pa.Table, units: Sequence[Unit | None], lines: tuple[pa.Array, pa.Array]) -> pa.Table:
    """Say of each row what its unit is."""
    titles = [titled(t, u.section) if u else t for t, u in zip(table["title"].to_pylist(), units, strict=True)]
    place = table.column_names.index("title")
    table = table.set_column(place, table.schema.field(place), pa.array(titles, pa.string()))
    names = ([getattr(unit, name, None) for unit in units] for name in ("section", "kind"))
    columns = [*(pa.array(column, pa.string()) for column in names), *lines]
    for field, column in zip(UNIT_FIELDS, columns, strict=True):
        if field.name in table.column_names:
            raise taken(field.name)
        table = table.append_column(field, column)
    return table


def _lines(
    texts: Sequence[str], units: Sequence[Unit | None], parent: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[pa.Array, pa.Array]:
    """The first and last line of each row in its file, null where that is not known."""
    lines = np.zeros((2, len(units)), np.int32)
    known = np.array([unit is not None and unit.kind not in LINELESS for unit in units], bool)
    for row in np.unique(parent[known]):
        mine = np.flatnonzero(known & (parent == row))
        lines[:, mine] = line_numbers(texts[row], start[mine], end[mine])
    first, last = (pa.array(numbers, pa.int32(), mask=~known) for numbers in lines)
    return first, last

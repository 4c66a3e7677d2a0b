"""From raw records to documents: which field is the id, the title, the text, and what may be missing.

A document is a row of `doc_id`, `title`, `text` (strings, never null); every further field is metadata.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrieval.columns import field_of, from_values, is_json, metadata_name, normal
from retrieval.errors import ConfigError, DataError
from retrieval.formats import Columns, json_type
from retrieval.lines import Fault, Rows, check_encoding, shown
from retrieval.tables import ID_NAMES, TEXT_NAMES, TITLE_NAME
from retrieval.tree import Wishes

DOCUMENT_FIELDS = [pa.field(name, pa.string(), nullable=False) for name in ("doc_id", "title", "text")]
_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class DocumentSettings:
    """How documents are read.

    Attributes:
        id_field: the field that holds the id; None: the first known name in a source's first record.
        title_field: the same for the title.
        text_field: the same for the text.
        encoding: of JSONL, CSV and TSV.
        on_bad: whether a bad record stops the reading or is counted, listed and left out.
        header: whether the first row of a table names its columns; None: it does if it holds a known id name.
        require_text: whether a record without a text is bad; if not, its text is empty.
        drop_fields: fields that are not kept as metadata.
        include: patterns of files and folders of source trees that are read whatever the rules for trees say.
        exclude: patterns of such that are left out; see `retrieval.tree.Wishes`.
    """

    id_field: str | None = None
    title_field: str | None = None
    text_field: str | None = None
    encoding: str = "utf-8"
    on_bad: Literal["fail", "skip"] = "fail"
    header: bool | None = None
    require_text: bool = True
    drop_fields: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        for name, patterns in (("--include", self.include), ("--exclude", self.exclude)):
            if isinstance(patterns, str):
                raise ConfigError(f"{name} {patterns!r} is one text; expected a list of patterns")
        Wishes.of(self.include, self.exclude)
        if self.on_bad not in ("fail", "skip"):
            raise ConfigError(f"--on-bad {self.on_bad}: expected fail or skip")
        if self.header is False and self.given:
            raise ConfigError(f"--no-header leaves no name for {', '.join(map(repr, self.given))}; drop one of them")

    @property
    def given(self) -> tuple[str, ...]:
        """The field names that the user gave."""
        return tuple(n for n in (self.id_field, self.title_field, self.text_field) if n is not None)


@dataclass(frozen=True, slots=True)
class Fields:
    """Where a source keeps id, text and title."""

    doc_id: str
    text: str
    title: str


def find_fields(names: Collection[str], settings: DocumentSettings, *, whole: bool) -> Fields:
    """Finds the fields of a source in its first record.

    Args:
        names: the field names of the record.
        settings: names given by the user win.
        whole: whether these are all the names there will ever be, as in a table.

    Raises:
        DataError: with the options that help; the caller adds the file.
    """
    doc_id = settings.id_field or next((n for n in ID_NAMES if n in names), None)
    text = settings.text_field or next((n for n in TEXT_NAMES if n in names), None)
    title = settings.title_field or TITLE_NAME
    if not settings.require_text and (text is None or text not in names):
        text = settings.text_field if settings.text_field and not whole else TEXT_NAMES[0]
    elif text is None or text not in names:
        wanted = f"no {text!r}" if text else f"no text field ({', '.join(TEXT_NAMES)})"
        raise DataError(f"{wanted}{_found(names)}; name it with --text-field")
    if doc_id is None or doc_id not in names:
        wanted = f"no {doc_id!r}" if doc_id else f"no id field ({', '.join(ID_NAMES)})"
        raise DataError(f"{wanted}{_found(names)}; name it with --id-field")
    if whole and settings.title_field and title not in names:
        raise DataError(f"no {title!r}{_found(names)}; name it with --title-field")
    return Fields(doc_id, text, title)


def _found(names: Collection[str]) -> str:
    listed = ", ".join(shown(n) for n in list(names)[:20]) + (", ..." if len(names) > 20 else "")
    return f" (found: {listed})" if names else " (found: nothing)"


class RecordReader:
    """Turns the records of one source into document batches."""

    def __init__(self, settings: DocumentSettings) -> None:
        self.size = 0  # bytes of the documents held, about
        self.title_seen = False
        self.fields: Fields | None = None
        self._settings = settings
        self._ids: list[str] = []
        self._titles: list[str] = []
        self._texts: list[str] = []
        self._rest: list[dict[str, Any]] = []
        self._numbers: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    def take(self, rows: Rows) -> list[Fault]:
        """Takes in the good records of a stretch and returns the bad ones, in order of their lines.

        Raises:
            DataError: the columns of a table hold no id or no text.
        """
        faults = list(rows.faults)
        self.size += rows.size
        if self.fields is None and rows.names is not None:
            self.fields = find_fields(rows.names, self._settings, whole=True)
        for number, record in zip(rows.numbers, rows.records, strict=True):
            if self.fields is None:
                try:
                    self.fields = find_fields(record.keys(), self._settings, whole=False)
                except DataError as error:
                    faults.append(Fault(number, str(error)))
                    continue
            if reason := self._add(number, record, self.fields):
                faults.append(Fault(number, reason))
        return sorted(faults, key=lambda fault: fault.number)

    def _add(self, number: int, record: dict[str, Any], fields: Fields) -> str | None:
        """Adds one record, or says why it cannot be used."""
        doc_id = record.get(fields.doc_id, _ABSENT)
        text = record.get(fields.text, _ABSENT)
        title = record.get(fields.title)
        if type(doc_id) is int:
            doc_id = str(doc_id)
        if (text is None or text is _ABSENT) and not self._settings.require_text:
            text = ""
        if title is None:
            title = ""
        else:
            self.title_seen = True
        if type(doc_id) is not str or not doc_id or type(text) is not str or type(title) is not str:
            return _reason(record, fields, doc_id, text, title)
        record.pop(fields.doc_id)
        record.pop(fields.text, None)
        record.pop(fields.title, None)
        self._ids.append(doc_id)
        self._titles.append(title)
        self._texts.append(text)
        self._rest.append(record)
        self._numbers.append(number)
        return None

    def cut(self, count: int) -> "Documents":
        """Takes out the first `count` documents as a batch."""
        rest = self._rest[:count]
        names = dict.fromkeys(name for record in rest for name in record)
        columns = [
            from_values(metadata_name(name), [record.get(name) for record in rest])
            for name in names
            if name not in self._settings.drop_fields
        ]
        arrays = [pa.array(v[:count], pa.string()) for v in (self._ids, self._titles, self._texts)]
        schema = pa.schema(DOCUMENT_FIELDS + [field for field, _ in columns])
        batch = pa.RecordBatch.from_arrays(arrays + [array for _, array in columns], schema=schema)
        documents = Documents(batch, np.array(self._numbers[:count], dtype=np.int64), list(names))
        self.size -= self.size * batch.num_rows // len(self._ids)
        for pending in (self._ids, self._titles, self._texts, self._rest, self._numbers):
            del pending[:count]
        return documents


@dataclass(frozen=True, slots=True)
class Documents:
    """A batch of documents with the line or row of each, and the metadata fields as they were called."""

    batch: pa.RecordBatch
    numbers: np.ndarray  # (rows,) int64, from 1
    metadata: Sequence[str]


def _reason(record: dict[str, Any], fields: Fields, doc_id: object, text: object, title: object) -> str:
    missing = [repr(n) for n, v in ((fields.doc_id, doc_id), (fields.text, text)) if v is _ABSENT]
    if missing:
        return f"no {' and no '.join(missing)}{_found(record.keys())}"
    if type(doc_id) is not str:
        kind = "true or false" if isinstance(doc_id, bool) else json_type(doc_id)
        number = f" with a fraction or an exponent ({doc_id})" if isinstance(doc_id, float) else ""
        return f"the id {fields.doc_id!r} is {kind}{number}; expected a string or an integer"
    if not doc_id:
        return f"the id {fields.doc_id!r} is empty"
    name, value = (fields.text, text) if type(text) is not str else (fields.title, title)
    return f"{name!r} is {json_type(value)}; expected a string"


def from_columns(columns: Columns, settings: DocumentSettings) -> tuple[Documents, list[Fault]]:
    """Turns rows of a column format into documents; types are kept, their storage variants are not.

    Raises:
        DataError: a column that is needed is missing, or has a type that cannot be used.
    """
    names = columns.batch.schema.names
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"two columns are called {shown(name)!r}; rename one")
    fields = find_fields(names, settings, whole=True)
    rows = columns.batch.num_rows
    needed = [
        _id_array(columns.batch.column(fields.doc_id), fields.doc_id),
        _string_array(columns.batch.column(fields.title), fields.title) if fields.title in names else None,
        _string_array(columns.batch.column(fields.text), fields.text) if fields.text in names else None,
    ]
    doc_id, title, text = (pa.nulls(rows, pa.string()) if array is None else array for array in needed)
    taken = {fields.doc_id, fields.title, fields.text, *settings.drop_fields}
    kept = [name for name in names if name not in taken]
    arrays, described = [doc_id, title.fill_null(""), text.fill_null("")], list(DOCUMENT_FIELDS)
    for name in kept:
        array = normal(columns.batch.column(name))
        arrays.append(array)
        json_text = is_json(columns.batch.schema.field(name))
        described.append(field_of(metadata_name(name), array, json_text))
    faults = _bad_rows(doc_id, text if settings.require_text else None, arrays, fields, columns.first)
    numbers = np.arange(columns.first, columns.first + rows, dtype=np.int64)
    keep = np.isin(numbers, [fault.number for fault in faults], invert=True)
    if faults:
        arrays, numbers = [array.filter(pa.array(keep)) for array in arrays], numbers[keep]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(described))
    return Documents(batch, numbers, kept), faults


def _id_array(array: pa.Array, name: str) -> pa.Array:
    array = normal(array)
    if pa.types.is_integer(array.type) or pa.types.is_null(array.type):
        return array.cast(pa.string())
    if not pa.types.is_string(array.type):
        remedy = "cast it to strings in the file first"
        raise DataError(f"the id column {name!r} has type {array.type}; expected strings or integers: {remedy}")
    return array


def _string_array(array: pa.Array, name: str) -> pa.Array:
    array = normal(array)
    if pa.types.is_null(array.type):
        return array.cast(pa.string())
    if not pa.types.is_string(array.type):
        raise DataError(f"the column {name!r} has type {array.type}; expected strings")
    return array


def _bad_rows(
    doc_id: pa.Array, text: pa.Array | None, arrays: list[pa.Array], fields: Fields, first: int
) -> list[Fault]:
    """Lists the rows without an id or a text, and those with bytes that are no text."""
    faults: dict[int, str] = {}
    checks = [(pc.is_null(doc_id), f"the id {fields.doc_id!r} is null")]
    checks.append((pc.equal(doc_id, ""), f"the id {fields.doc_id!r} is empty"))
    if text is not None:
        checks.append((pc.is_null(text), f"{fields.text!r} is null; expected a string"))
    for mask, reason in checks:
        for bad in np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False)):
            faults.setdefault(int(bad), reason)
    for array in arrays:
        # Parquet and Arrow files may hold any bytes in a string column.
        if not _is_valid(array):
            for row in range(len(array)):
                if not _is_valid(array.slice(row, 1)):
                    faults.setdefault(row, "a string that is not UTF-8")
    return [Fault(first + row, faults[row]) for row in sorted(faults)]


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True

"""The records of a benchmark's own files: JSON lines and JSON arrays, with places and checked fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retrieval.errors import DataError
from retrieval.formats import json_type, read_file
from retrieval.lines import Rows, is_encodable, json_value, line_blocks, shown, source_name, whole_text


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a file and where it stands.

    Attributes:
        file: where it was read.
        unit: what `number` counts, `line` or `record`.
        number: from 1.
        fields: as written.
    """

    file: Path
    unit: str
    number: int
    fields: dict[str, Any]

    def error(self, reason: str) -> DataError:
        """Make the error that says what is wrong with the record, and where it stands."""
        return DataError(f"{self.file}, {self.unit} {self.number}: {reason}")

    def has(self, *names: str) -> bool:
        """Tell whether one of the fields is there and not null."""
        return any(self.fields.get(name) is not None for name in names)

    def text(self, *names: str) -> str:
        """Return the first of the fields that is there.

        Raises:
            DataError: none is there, or it is no string; names the fields found.
        """
        name, value = self._value(names)
        if not isinstance(value, str):
            raise self.error(f"{name!r} is {json_type(value)}; expected a string")
        return self._checked(name, value)

    def words(self, *names: str) -> str:
        """Return the first of the fields that is there: a list of words, joined by blanks.

        Raises:
            DataError: none is there, or it is no list of strings; names the fields found.
        """
        name, value = self._value(names)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = " ".join(value)
        if not isinstance(value, str):
            raise self.error(f"{name!r} is {json_type(value)}; expected a list of strings")
        return self._checked(name, value)

    def whole(self, *names: str) -> int:
        """Return the first of the fields that is there, a whole number.

        Raises:
            DataError: none is there, or it is no whole number; names the fields found.
        """
        name, value = self._value(names)
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if type(value) is not int:
            raise self.error(f"{name!r} is {shown(repr(value))}; expected a whole number")
        return value

    def _value(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if self.fields.get(name) is not None:
                return name, self.fields[name]
        wanted = " or ".join(map(repr, names))
        found = ", ".join(map(shown, list(self.fields)[:20])) or "nothing"
        raise self.error(f"no {wanted} (found: {found})")

    def _checked(self, name: str, value: str) -> str:
        if not is_encodable(value):
            raise self.error(f"{name!r} holds half a surrogate pair, which is no character")
        return value


def read_records(path: Path, kind: str = "jsonl", *, header: bool | None = None) -> Iterator[Record]:
    """Read a file of one JSON object a line, or a table; also compressed, a stretch at a time.

    Args:
        path: the file.
        kind: `jsonl`, `csv` or `tsv`.
        header: of a table, see `retrieval.tables.read_table`.

    Raises:
        DataError: the file cannot be read, or a line is broken; names the line.
    """
    for rows in read_file(str(path), kind, header=header):
        if not isinstance(rows, Rows):
            continue
        for fault in rows.faults:
            advice = "; convert the file to UTF-8" if fault.undecodable else ""
            raise DataError(f"{path}, line {fault.number}: {fault.reason}{advice}")
        for number, fields in zip(rows.numbers, rows.records, strict=True):
            yield Record(path, "line", number, fields)


def read_json(path: Path, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Read a file of one JSON value.

    Args:
        path: the file.
        pairs: makes an object of its keys and values; a `dict` without it.

    Raises:
        DataError: the file cannot be read, is not UTF-8 or no JSON; names the line.
    """
    name = source_name(path)
    return json_value(whole_text(name, line_blocks(path)), name, pairs)


def read_array(path: Path) -> list[Record]:
    """Read a file of one JSON array of objects.

    Raises:
        DataError: the file cannot be read, or holds something else; names the record.
    """
    values = read_json(path)
    if not isinstance(values, list):
        raise DataError(f"{path}: a JSON array was expected, not {json_type(values)}")
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise DataError(f"{path}, record {number}: a JSON object was expected, not {json_type(value)}")
    return [Record(path, "record", number, value) for number, value in enumerate(values, 1)]


def first_record(path: Path) -> Record | None:
    """Return the first record of a file of JSON lines, None where there is none that can be read."""
    try:
        return next(read_records(path), None)
    except DataError:
        return None


def find_file(path: Path, *names: str) -> Path | None:
    """Find a file by its name, which may be the path itself or lie in that folder; None where there is none."""
    places = [path] if path.name in names else [path / name for name in names]
    return next((place for place in places if place.is_file()), None)


class Census:
    """Counts the documents of a pool, and those whose text came before; eight bytes and a set's entry for each."""

    def __init__(self) -> None:
        self.documents = 0
        self.duplicates = 0
        self._seen: set[int] = set()

    def add(self, text: str) -> None:
        """Count a document."""
        seen = len(self._seen)
        self._seen.add(hash(text))
        self.documents += 1
        self.duplicates += len(self._seen) == seen

    def notes(self) -> tuple[str, ...]:
        """Say what repeated documents do to a number."""
        if not self.duplicates:
            return ()
        return (f"documents with the text of an earlier one, not right for its query: {self.duplicates}",)

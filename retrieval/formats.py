"""Corpus files: which formats there are, and the raw records in them with their positions.

Two shapes leave this module. Line formats (JSONL, CSV, TSV) yield `Rows`: dicts as written, each with the
line it starts on, and the lines that are broken. Column formats (Parquet, Arrow) yield `Columns`.
What a record means (which field is the id, what may be missing) is decided above.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from retrieval.errors import DataError
from retrieval.lines import COMPRESSIONS, Fault, Rows, UndecodableError, decode, line_encoding, numbered_lines, shown
from retrieval.tables import ROWS_PER_READ, read_table

STANDARD_INPUT = "-"
KINDS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
COMPRESSIBLE = ("jsonl", "csv", "tsv")

_MAX_DEPTH = 100  # of lists and objects in each other: whoever prints a hit walks down them by recursion
_TOO_DEEP = f"JSON nested too deeply, more than {_MAX_DEPTH} lists and objects in each other"

# A pair of surrogate escapes is one character, any other escape is harmless; what is left stands alone.
_LONE_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of a column format.

    Attributes:
        batch: the rows.
        first: the number of the first one, from 1.
        share: of the file that was read when they came, 0 to 1.
    """

    batch: pa.RecordBatch
    first: int
    share: float = 0.0


def kind_of(name: str) -> str | None:
    """Names the format that a file name stands for, None where its suffix is not known."""
    path = Path(name.lower())
    if path.suffix not in COMPRESSIONS:
        return KINDS.get(path.suffix)
    kind = KINDS.get(Path(path.stem).suffix)
    return kind if kind in COMPRESSIBLE else None


def shown_file(name: str) -> str:
    """Writes the name of a file, or of standard input, for a message."""
    return "standard input" if name == STANDARD_INPUT else shown(name, 1000)


def read_file(
    name: str,
    kind: str,
    *,
    encoding: str = "utf-8",
    header: bool | None = None,
    given: Sequence[str] = (),
    drop: Sequence[str] = (),
    batch_rows: int = ROWS_PER_READ,
) -> Iterator[Rows | Columns]:
    """Reads a corpus file of one of the `KINDS`, or JSONL from standard input (`-`).

    Args:
        name: the file.
        kind: what `kind_of` says of it.
        encoding: of a line format.
        header: of a table, see `read_table`.
        given: field names that the user gave, see `read_table`.
        drop: columns that a column format may leave unread.
        batch_rows: rows of a column format to yield at once.

    Raises:
        DataError: the file cannot be opened, is damaged or has no usable columns; the message names it.
    """

    def items() -> Iterator[Rows | Columns]:
        if kind == "parquet":
            yield from read_parquet(name, batch_rows, drop)
        elif kind == "arrow":
            yield from read_arrow(name, batch_rows)
        else:
            with _open_bytes(name) as opened:
                if kind == "jsonl":
                    stretches = read_jsonl(opened.source, encoding)
                else:
                    delimiter = "," if kind == "csv" else "\t"
                    stretches = read_table(opened.source, delimiter, encoding=encoding, header=header, given=given)
                for rows in stretches:
                    rows.share = opened.share()
                    yield rows

    label = shown_file(name)
    iterator = items()
    while True:
        # Only the reading is guarded: what the caller does between two items raises as it is.
        try:
            item = next(iterator)
        except StopIteration:
            return
        except DataError as error:
            raise DataError(f"{label}: {error}") from None
        except (OSError, EOFError, pa.ArrowException) as error:
            errno = getattr(error, "errno", None)
            why = os.strerror(errno) if errno else shown(str(error).partition("\n")[0], 200)
            hint = "" if errno else "; it is truncated, damaged or of another format"
            raise DataError(f"{label}: cannot be read{hint} ({why})") from error
        yield item


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open stream of bytes, and the file beneath it; None for standard input."""

    source: BinaryIO
    file: pa.NativeFile | None

    def share(self) -> float:
        return 0.0 if self.file is None else self.file.tell() / max(self.file.size(), 1)


@contextmanager
def _open_bytes(name: str) -> Iterator[_Opened]:
    """Opens a file, decompressed as its suffix says, or standard input."""
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise DataError("it is closed; give a file instead of -")
        yield _Opened(sys.stdin.buffer, None)
        return
    compression = COMPRESSIONS.get(Path(name.lower()).suffix)
    with pa.OSFile(name) as file:
        yield _Opened(pa.CompressedInputStream(file, compression) if compression else file, file)


def read_jsonl(source: BinaryIO, encoding: str = "utf-8") -> Iterator[Rows]:
    """Reads one JSON object a line; blank lines are skipped."""
    line_codec = line_encoding(encoding)
    # The public raw_decode spares the two regular expressions that json.loads runs around each value.
    raw_decode = json.JSONDecoder().raw_decode
    for first, lines in numbered_lines(source, encoding):
        rows = Rows(size=sum(map(len, lines)))
        numbers, records = rows.numbers, rows.records
        for number, line in enumerate(lines, first):
            try:
                text = str(line, line_codec)
                record, end = raw_decode(text)
                if (
                    (end == len(text) or text[end:] == "\r")
                    and type(record) is dict
                    and "\\ud" not in text
                    and "\\uD" not in text
                    and not _too_deep(text, record)
                ):
                    numbers.append(number)
                    records.append(record)
                    continue
            except (ValueError, RecursionError):
                pass  # told apart below, off the fast path
            try:
                checked = _json_object(line, line_codec)
            except ValueError as error:
                rows.faults.append(Fault(number, str(error), isinstance(error, UndecodableError)))
            else:
                if checked is not None:
                    numbers.append(number)
                    records.append(checked)
        yield rows


def _json_object(line: bytes, encoding: str) -> dict[str, Any] | None:
    """Reads a line with care: None where it is blank, ValueError with the whole reason where it is broken."""
    text = decode(line, encoding)
    if not text.strip(" \t\r"):
        return None
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at").removesuffix(" starting")
        raise ValueError(f"not valid JSON: {what} at column {error.colno}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError:
        raise ValueError("a number with too many digits") from None
    if not isinstance(record, dict):
        hint = "; a file of one JSON array must become one object a line" if isinstance(record, list) else ""
        raise ValueError(f"a JSON object was expected, not {json_type(record)}{hint}")
    if _too_deep(text, record):
        raise ValueError(_TOO_DEEP)
    for match in _LONE_SURROGATE.finditer(text):
        if match.group(1):
            place = match.start() + 1
            raise ValueError(f"{match.group(1)} at column {place} is half a surrogate pair, not a character")
    return record


def _too_deep(text: str, record: dict[str, Any]) -> bool:
    """Tells whether a record nests too deeply; the brackets are counted first, which is quick."""
    if text.count("[") + text.count("{") <= _MAX_DEPTH:
        return False
    level: list[Any] = [record]
    for _ in range(_MAX_DEPTH):
        inner = (value.values() if type(value) is dict else value for value in level)
        level = [item for items in inner for item in items if type(item) in (dict, list)]
        if not level:
            return False
    return True


def json_type(value: object) -> str:
    """Names the type of a JSON value as its reader would."""
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "null")


def read_parquet(name: str, batch_rows: int, drop: Sequence[str] = ()) -> Iterator[Columns]:
    """Reads a Parquet file, some rows at a time, without the columns in `drop`."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(name) as file:
        names = file.schema_arrow.names
        # Parquet reads `a.b` as a path into a nested column, so such a file is read whole and cut later.
        prune = bool(set(drop) & set(names)) and not any("." in column for column in names)
        columns = [column for column in names if column not in drop] if prune else None
        first = 1
        for batch in file.iter_batches(batch_size=batch_rows, columns=columns):
            last = first + batch.num_rows
            yield Columns(batch, first, (last - 1) / max(file.metadata.num_rows, 1))
            first = last


def read_arrow(name: str, batch_rows: int) -> Iterator[Columns]:
    """Reads an Arrow IPC file (Feather version 2) or stream, mapped into memory."""
    with pa.memory_map(name) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        first = 1
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
        for batch in batches:
            # One record batch may hold a whole corpus.
            for start in range(0, batch.num_rows, batch_rows):
                yield Columns(batch.slice(start, batch_rows), first + start, source.tell() / source.size())
            first += batch.num_rows

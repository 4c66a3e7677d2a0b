"""CSV and TSV: rows of cells, all of them strings as written."""

import csv
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from retrieval.counts import many
from retrieval.errors import DataError
from retrieval.lines import OTHER_ENCODING, Fault, Rows, UndecodableError, decode, line_encoding, numbered_lines, shown

ID_NAMES = ("_id", "id", "doc_id", "docid", "docno")
TEXT_NAMES = ("text", "contents", "document_text", "body")
TITLE_NAME = "title"

ROWS_PER_READ = 1024


def read_table(
    source: BinaryIO,
    delimiter: str,
    *,
    encoding: str = "utf-8",
    header: bool | None = None,
    given: Sequence[str] = (),
) -> Iterator[Rows]:
    """Reads CSV (`,`, RFC 4180) or TSV (tab, no quoting); all cells are strings as written.

    Args:
        source: the bytes.
        delimiter: `,` or a tab.
        encoding: of the bytes.
        header: whether the first row names the columns; None: it does if it holds a known id name.
        given: field names that the user gave; there is a header then.

    Yields:
        Rows, every record with all columns. Columns without a header are id, text or id, title, text.

    Raises:
        DataError: the columns cannot be named.
    """
    cells = _csv_rows(source, encoding) if delimiter == "," else _tsv_rows(source, encoding)
    names: tuple[str, ...] | None = None
    rows = Rows()
    for number, size, row in cells:
        if names is None:
            if isinstance(row, ValueError):
                advice = f" {OTHER_ENCODING}" if isinstance(row, UndecodableError) else ""
                raise DataError(f"line {number}: {row}{advice}")
            names, is_data = _columns(number, row, header, given)
            rows.names = names
            if not is_data:
                continue
        rows.size += size
        if isinstance(row, ValueError):
            rows.faults.append(Fault(number, str(row), isinstance(row, UndecodableError)))
        elif len(row) != len(names):
            expected = many(len(names), "column was", "columns were")
            rows.faults.append(Fault(number, f"{many(len(row), 'cell')} where {expected} expected"))
        else:
            rows.numbers.append(number)
            rows.records.append(dict(zip(names, row, strict=True)))
        if len(rows.records) + len(rows.faults) >= ROWS_PER_READ or rows.size >= 1 << 20:
            yield rows
            rows = Rows(names=names)
    yield rows


def _columns(number: int, row: list[str], header: bool | None, given: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Names the columns by the first row, and says whether that row is data."""
    if header is None:
        header = bool(given) or any(cell in ID_NAMES for cell in row)
        if not header and any(cell in (*TEXT_NAMES, TITLE_NAME) for cell in row):
            found = ", ".join(map(shown, row))
            raise DataError(
                f"line {number}: a header without a known id column (found: {found}); name it with "
                "--id-field, or pass --no-header"
            )
    if header:
        for name in row:
            if row.count(name) > 1:
                raise DataError(f"line {number}: two columns are called {shown(name)!r}; rename one")
        return tuple(row), False
    layouts = {2: (ID_NAMES[0], TEXT_NAMES[0]), 3: (ID_NAMES[0], TITLE_NAME, TEXT_NAMES[0])}
    if len(row) not in layouts:
        columns = many(len(row), "column")
        raise DataError(
            f"line {number}: {columns} and no header with a known id name; expected id, text or id, "
            "title, text (--header if the first row names the columns, --id-field and --text-field say which)"
        )
    return layouts[len(row)], True


def _tsv_rows(source: BinaryIO, encoding: str) -> Iterator[tuple[int, int, list[str] | ValueError]]:
    """Yields line, bytes and cells of each row, or what is wrong with it."""
    codec = line_encoding(encoding)
    for first, lines in numbered_lines(source, encoding):
        for number, line in enumerate(lines, first):
            if not line.rstrip(b"\r"):
                continue
            try:
                yield number, len(line), decode(line, codec).removesuffix("\r").split("\t")
            except ValueError as error:
                yield number, len(line), error


def _csv_rows(source: BinaryIO, encoding: str) -> Iterator[tuple[int, int, list[str] | ValueError]]:
    """Yields line, bytes and cells of each row, or what is wrong with it; a row may span lines."""
    codec = line_encoding(encoding)
    number = size = 0  # of the line that the csv module took last, and the bytes it took since the last row
    undecodable: UndecodableError | None = None

    def lines() -> Iterator[str]:
        nonlocal number, size, undecodable
        for first, block in numbered_lines(source, encoding):
            for number, line in enumerate(block, first):
                size += len(line) + 1
                try:
                    text = decode(line, codec)
                except UndecodableError as error:
                    # The row is refused, but must end where it ends: a quoted cell may go on.
                    place = f"line {number}: " if number > start else ""
                    undecodable = undecodable or UndecodableError(f"{place}{error}")
                    text = str(line, codec, "replace")
                yield text + "\n"

    _lift_field_limit()
    reader = csv.reader(lines(), strict=True)
    while True:
        start, size, undecodable = number + 1, 0, None
        row: list[str] | ValueError
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = ValueError(f"not valid CSV: {_csv_reason(str(error))}")
        if row:
            yield start, size, undecodable or row


def _csv_reason(message: str) -> str:
    """Says what the csv module means, in words that fit somebody who never saw it."""
    if message == "unexpected end of data":
        return "a quoted cell that begins in this row is never closed"
    if message.startswith("new-line character seen"):
        return "a carriage return within an unquoted cell"
    return f"{message}; a quote within a quoted cell is written twice"


def _lift_field_limit() -> None:
    """Lets the csv module, in this whole process, read cells of more than its 131,072 characters."""
    limit = sys.maxsize
    while True:
        try:
            csv.field_size_limit(limit)
            return
        except OverflowError:  # a C long has 32 bits on Windows
            limit //= 2

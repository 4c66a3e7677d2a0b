"""Documents with a number each, by query: what runs (scores) and judgements (grades) have in common.

Which file holds what is decided by its suffix (without `.gz` or `.zst`), then by its first line:

| suffix | first line | read as |
|---|---|---|
| `.parquet .parq .pq` | | columns of query id, document id and number |
| `.jsonl .ndjson` | | JSONL: one document a line, or one query a line with a list of `hits` |
| any other | an object whose first value is no object | the same |
| any other | another `{`, but not a row of a table | one JSON object: `{query_id: {doc_id: number}}` |
| any other | | a text table; its readers know which |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval.errors import DataError
from retrieval.lines import (
    COMPRESSIONS,
    is_encodable,
    json_id,
    json_object,
    json_value,
    key_of,
    line_blocks,
    shown,
    source_name,
    text_lines,
    whole_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_NAMES = ("query_id", "query-id", "queryid", "qid", "q_id")
DOCUMENT_NAMES = ("doc_id", "doc-id", "docid", "docno", "corpus_id", "corpus-id", "pid", "passage_id")
HITS = "hits"

_PARQUET = (".parquet", ".parq", ".pq")
_PARQUET_ROWS = 1 << 16
_RECORD = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*[^{\s]')

Blocks = Iterable[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Ratings:
    """Documents of one query that follow one another in a file.

    Attributes:
        query_id: never empty.
        doc_ids: never empty ones; an id may repeat.
        values: the number of each document, float64 and not NaN.
        places: the line or row of each, from 1; empty where the format has none.
    """

    query_id: str
    doc_ids: Sequence[str]
    values: Sequence[float]
    places: Sequence[int] = ()


def suffix_of(name: str) -> str:
    """Returns a file's suffix in lower case, without that of a compression."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix


def place_name(path: str | Path) -> str:
    """Says what a file's `places` are: lines, or the rows of a Parquet file."""
    return "row" if suffix_of(str(path)) in _PARQUET else "line"


def read_ratings(
    path: str | Path,
    *,
    names: Sequence[str],
    is_row: Callable[[str], bool],
    table: Callable[[str, str, Blocks], Iterator[Ratings]],
) -> Iterator[Ratings]:
    """Reads a file of scores or grades.

    Args:
        path: the file.
        names: of the field with the number, in the order of preference.
        is_row: whether a first line that starts with `{` is a row of a text table all the same.
        table: reads a text table, from the file's name, its first line that is not blank, and its blocks.

    Raises:
        DataError: something that cannot be used; names file, place and field.
    """
    name, suffix = source_name(path), suffix_of(str(path))
    if suffix in _PARQUET:
        yield from _parquet_ratings(str(path), name, names)
        return
    blocks = line_blocks(path)
    for block in blocks:
        if first := next((line for line in block[1].split(b"\n") if line.strip()), None):
            line = str(first, "utf-8", "replace").lstrip()
            blocks = chain([block], blocks)
            break
    else:
        return
    if suffix in (".jsonl", ".ndjson"):
        yield from _jsonl_ratings(name, blocks, names)
    elif suffix == ".json" or (line.startswith("{") and not is_row(line)):
        if _RECORD.match(line):
            yield from _jsonl_ratings(name, blocks, names)
        else:
            yield from _object_ratings(name, blocks, names[0])
    else:
        yield from table(name, line, blocks)


def by_query(
    query_ids: Sequence[str], doc_ids: Sequence[str], values: Sequence[float], places: Sequence[int]
) -> Iterator[Ratings]:
    """Cuts columns where the query changes."""
    start = 0
    for query_id, group in groupby(query_ids):
        end = start + len(list(group))
        yield Ratings(query_id, doc_ids[start:end], values[start:end], places[start:end])
        start = end


def as_number(cell: str) -> float | None:
    """Reads a decimal number; None for anything else: NaN, Python's `1_000`, digits beyond ASCII."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return None if value != value or "_" in cell or not cell.isascii() else value


def _json_number(value: object) -> float | None:
    """Returns a number of JSON as float64; None for anything else: booleans, NaN, what float64 cannot hold."""
    if type(value) is float:
        return value if value == value else None
    try:
        return float(value) if type(value) is int else None
    except OverflowError:
        return None


def _jsonl_ratings(name: str, blocks: Blocks, names: Sequence[str]) -> Iterator[Ratings]:
    query_key = doc_key = value_key = ""
    for number, line in text_lines(name, blocks):
        where = f"{name}, line {number}"
        record = json_object(line, where)
        query_key = query_key or key_of(QUERY_NAMES, record, where)
        query_id = _record_id(record, query_key, where)
        hits = record.get(HITS, [record])
        if type(hits) is not list or not all(type(hit) is dict for hit in hits):
            raise DataError(f"{where}: {HITS!r} is {hits!r:.40}; expected a list of objects")
        doc_ids, values = [], []
        for hit in hits:
            if not doc_key:  # the first one decides for the whole file
                doc_key, value_key = key_of(DOCUMENT_NAMES, hit, where), key_of(names, hit, where)
            value = _json_number(hit.get(value_key))
            if value is None:
                key_of((value_key,), hit, where)
                raise DataError(f"{where}: {value_key!r} is {hit[value_key]!r:.40}; expected a number")
            doc_ids.append(_record_id(hit, doc_key, where))
            values.append(value)
        yield Ratings(query_id, doc_ids, values, [number] * len(doc_ids))


def _record_id(record: dict[str, Any], key: str, where: str) -> str:
    value = record.get(key)
    if type(value) is str and value and value.isascii():  # the usual case, for speed
        return value
    key_of((key,), record, where)
    if not (text := json_id(record, key, where)):
        raise DataError(f"{where}: {key!r} is empty; expected an id")
    return text


class _Repeats(list[tuple[str, Any]]):
    """The pairs of a JSON object in which a key occurs twice: a dict would keep the last one silently."""


def _entries(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Repeats:
    entries = dict(pairs)
    return entries if len(entries) == len(pairs) else _Repeats(pairs)


def _object_ratings(name: str, blocks: Blocks, what: str) -> Iterator[Ratings]:
    text = whole_text(name, blocks)
    queries = json_value(text, name, _entries)
    if not isinstance(queries, dict | _Repeats):
        expected = f"one object {{query_id: {{doc_id: {what}}}}}, or one object a line"
        raise DataError(f"{name}: it holds a JSON {type(queries).__name__}; expected {expected}")
    escaped = "\\ud" in text or "\\uD" in text
    del text
    for query_id, documents in _pairs(queries):
        where = f"{name}, query {shown(query_id)!r}"
        if not isinstance(documents, dict | _Repeats):
            raise DataError(f"{where}: {documents!r:.40}; expected an object {{doc_id: {what}}}")
        doc_ids, values = [], []
        for doc_id, given in _pairs(documents):
            value = _json_number(given)
            if value is None:
                raise DataError(f"{where}, document {shown(doc_id)!r}: the {what} is {given!r:.40}; expected a number")
            doc_ids.append(doc_id)
            values.append(value)
        if not all(doc_ids) or not query_id:
            raise DataError(f"{where}: an empty id; expected ids of queries and documents")
        if escaped and not all(map(is_encodable, [query_id, *doc_ids])):
            raise DataError(f"{where}: an id holds half a surrogate pair, not a character")
        yield Ratings(query_id, doc_ids, values)


def _pairs(entries: dict[str, Any] | _Repeats) -> Iterable[tuple[str, Any]]:
    return entries.items() if isinstance(entries, dict) else entries


def _parquet_ratings(path: str, name: str, names: Sequence[str]) -> Iterator[Ratings]:
    from retrieval.formats import Columns, read_file

    for columns in read_file(path, "parquet", batch_rows=_PARQUET_ROWS):
        if not isinstance(columns, Columns):
            continue
        batch, found = columns.batch, columns.batch.schema.names
        keys = [key_of(wanted, found, name) for wanted in (QUERY_NAMES, DOCUMENT_NAMES, names)]
        for key in keys:
            if found.count(key) > 1:
                raise DataError(f"{name}: two columns are called {key!r}; rename one")
        query_ids, doc_ids = (_id_column(name, key, batch.column(key), columns.first) for key in keys[:2])
        values = _number_column(name, keys[2], batch.column(keys[2]), columns.first)
        yield from by_query(query_ids, doc_ids, values, range(columns.first, columns.first + batch.num_rows))


def _id_column(name: str, key: str, array: pa.Array, first: int) -> list[str]:
    import pyarrow as pa

    from retrieval.columns import normal

    array = normal(array)
    if pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    elif not (pa.types.is_string(array.type) or pa.types.is_null(array.type)):
        raise DataError(f"{name}: the id column {key!r} has type {array.type}; expected strings or integers")
    ids: list[str] = []
    try:
        ids = array.to_pylist()
        row = next((row for row, text in enumerate(ids, first) if not text), None)
        problem = "null or empty"
    except UnicodeDecodeError:  # Parquet files may hold any bytes in a string column
        row = next(first + row for row in range(len(array)) if not _is_text(array[row]))
        problem = "not UTF-8"
    if row is not None:
        raise DataError(f"{name}, row {row}: the id {key!r} is {problem}; expected a string or an integer")
    return ids


def _is_text(cell: pa.Scalar) -> bool:
    try:
        cell.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _number_column(name: str, key: str, array: pa.Array, first: int) -> list[float]:
    import pyarrow as pa

    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise DataError(f"{name}: the column {key!r} has type {kind}; expected numbers")
    values: list[float] = array.cast(pa.float64(), safe=False).to_pylist()
    for row, value in enumerate(values, first):
        if value is None or value != value:
            raise DataError(f"{name}, row {row}: {key!r} is {'null' if value is None else 'NaN'}; expected a number")
    return values

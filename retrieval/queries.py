"""Queries with ids, from JSONL or TSV, and plain lines: UTF-8, read strictly, plain or compressed (`.gz`, `.zst`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from retrieval.errors import DataError
from retrieval.lines import is_encodable, json_id, json_object, key_of, line_blocks, source_name, text_lines
from retrieval.ratings import QUERY_NAMES, suffix_of

ID_NAMES = ("_id", "id", *QUERY_NAMES)
TEXT_NAMES = ("text", "query", "question", "query_text")


def read_queries(source: str | Path | BinaryIO) -> dict[str, str]:
    """Read queries with ids from JSONL or TSV, in the order of the file.

    JSONL holds one object a line, with an id (`_id`, `id`, `query_id`, `qid`, ...) and a text (`text`,
    `query`, `question`). TSV holds `id<TAB>text` without quoting, or names its columns in a first row that
    starts with one of those id names. The suffix decides (`.jsonl .ndjson .json`, `.tsv .txt`); if none of
    these, a first line that starts with `{` means JSONL.

    Args:
        source: A file, or an open binary stream such as `sys.stdin.buffer`.

    Returns:
        Text by query id. A null text becomes an empty query, which a search answers with nothing.

    Raises:
        DataError: A line that cannot be used, an id that occurs twice, or no query at all; names the line.
    """
    name = source_name(source)
    lines = text_lines(name, line_blocks(source))
    first = next(lines, None)
    if first is None:
        raise DataError(f"{name}: no queries in it; expected JSONL or id<TAB>text, one query a line")
    suffix = suffix_of(name)
    as_json = suffix in (".jsonl", ".ndjson", ".json") or (
        suffix not in (".tsv", ".txt") and first[1].lstrip().startswith("{")
    )
    rows = _json_queries(name, chain([first], lines)) if as_json else _tsv_queries(name, first, lines)
    queries: dict[str, str] = {}
    seen: dict[str, int] = {}
    for number, query_id, text in rows:
        if not query_id:
            raise DataError(f"{name}, line {number}: the query id is empty")
        if query_id in seen:
            raise DataError(f"{name}: query id {query_id!r} occurs twice, on lines {seen[query_id]} and {number}")
        seen[query_id] = number
        queries[query_id] = text
    if not queries:
        raise DataError(f"{name}: no queries in it, only a header")
    return queries


def read_lines(source: str | Path | BinaryIO) -> list[str]:
    """Read queries or ids, one a line, from a file or an open binary stream; blank lines are skipped.

    Args:
        source: A file, or an open binary stream such as `sys.stdin.buffer`.

    Raises:
        DataError: No such file, or a line that is not UTF-8.
    """
    return [text for _, text in text_lines(source_name(source), line_blocks(source))]


def _json_queries(name: str, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    keys: tuple[str, str] | None = None
    for number, line in lines:
        where = f"{name}, line {number}"
        record = json_object(line, where)
        if keys is None:  # the first record decides for the whole file
            keys = key_of(ID_NAMES, record, where), key_of(TEXT_NAMES, record, where)
        for key in keys:
            key_of((key,), record, where)
        query_id, text = json_id(record, keys[0], where), record[keys[1]]
        if text is not None and not (isinstance(text, str) and is_encodable(text)):
            raise DataError(f"{where}: {keys[1]!r} is {text!r:.40}; expected a string")
        yield number, query_id, text or ""


def _tsv_queries(name: str, first: tuple[int, str], lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    header = first[1].split("\t")
    width, text_column = 2, 1
    if header[0].strip().lower() in ID_NAMES and len(header) > 1:
        width = len(header)
        known = [column for column, cell in enumerate(header) if cell.strip().lower() in TEXT_NAMES]
        if width > 2 and not known:
            raise DataError(f"{name}, line {first[0]}: no column of the header is one of {', '.join(TEXT_NAMES)}")
        text_column = known[0] if known else 1
        rows = lines
    else:
        rows = chain([first], lines)
    for number, line in rows:
        cells = line.split("\t")
        if len(cells) != width:
            raise DataError(f"{name}, line {number}: {len(cells)} cells between tabs; expected {width} (id<TAB>text)")
        yield number, cells[0], cells[text_column]

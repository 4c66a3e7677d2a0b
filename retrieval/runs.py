"""Queries, runs and judgements: the files of evaluation, read strictly, written so that the order survives.

Every reader takes UTF-8 (a byte order mark is allowed), lines that end at `\\n` or `\\r\\n` only, blank
lines, and `.gz`. Ids are strings, kept as written.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from retrieval.errors import ConfigError, DataError
from retrieval.files import atomic_write

logger = logging.getLogger(__name__)

ID_NAMES = ("_id", "id", "query_id", "query-id", "queryid", "qid")
TEXT_NAMES = ("text", "query", "question", "query_text")
_TREC_COLUMNS = "query_id 0 doc_id grade"
_BEIR_COLUMNS = "query-id<TAB>corpus-id<TAB>score"
_words = re.compile(r"[^ \t\r\n\f\v]+").findall


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
    name = _name(source)
    lines = _numbered_lines(source)
    first = next(lines, None)
    if first is None:
        raise DataError(f"{name}: no queries in it; expected JSONL or id<TAB>text, one query a line")
    suffix = Path(name.removesuffix(".gz")).suffix.lower()
    as_json = suffix in (".jsonl", ".ndjson", ".json") or (
        suffix not in (".tsv", ".txt") and first[1].lstrip().startswith("{")
    )
    rows = _json_queries(name, first, lines) if as_json else _tsv_queries(name, first, lines)
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
    return [text for _, text in _numbered_lines(source)]


def read_run(path: str | Path) -> dict[str, dict[str, float]]:
    """Read a TREC run: `query_id Q0 doc_id rank score tag`, separated by any blanks, in any order of lines.

    The rank column is ignored: scores decide. A document that occurs twice for a query keeps its best score,
    and one warning counts them.

    Returns:
        Score (float64) by document id, by query id, in the order of the file. Empty for an empty file.

    Raises:
        DataError: A line without six columns, or a score that is no number; names file and line.
    """
    name = _name(path)
    run: dict[str, dict[str, float]] = {}
    repeated = 0
    for number, line in _numbered_lines(path):
        cells = _cells(line)
        if len(cells) != 6:
            raise DataError(
                f"{name}, line {number}: {len(cells)} columns; expected 6: query_id Q0 doc_id rank score tag"
            )
        query_id, _, doc_id, _, cell, _ = cells
        score = _number(cell)
        if score is None:
            raise DataError(f"{name}, line {number}: the score {cell!r} is not a number")
        scores = run.setdefault(query_id, {})
        if doc_id in scores:
            repeated += 1
            score = max(score, scores[doc_id])
        scores[doc_id] = score
    if repeated:
        logger.warning("%s: %d lines repeat a document of the same query; its best score was kept", name, repeated)
    return run


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements: TREC's `query_id 0 doc_id grade`, or BEIR's TSV with its header line.

    Grades are kept as written, negative ones too (they mean not relevant). An exact repeat is taken once, and
    one warning counts them.

    Returns:
        Grade by document id, by query id, in the order of the file.

    Raises:
        DataError: A line with another number of columns, a grade that is not a whole number, two different
            grades for one document, or no judgement at all; names file and lines.
    """
    name = _name(path)
    qrels: dict[str, dict[str, int]] = {}
    seen: dict[tuple[str, str], int] = {}
    repeated = 0
    for number, query_id, doc_id, cell in _judgement_rows(path):
        grade = _number(cell)
        if grade is None or not grade.is_integer():
            raise DataError(f"{name}, line {number}: the grade {cell!r} is not a whole number")
        first = seen.setdefault((query_id, doc_id), number)
        grades = qrels.setdefault(query_id, {})
        if first != number and grades[doc_id] != grade:
            raise DataError(
                f"{name}: lines {first} and {number} give document {doc_id!r} of query {query_id!r} "
                f"the grades {grades[doc_id]} and {int(grade)}; keep one of them"
            )
        repeated += first != number
        grades[doc_id] = int(grade)
    if not qrels:
        raise DataError(f"{name}: no judgements in it; expected lines of {_TREC_COLUMNS}")
    if repeated:
        logger.warning("%s: %d lines repeat an earlier judgement; each was taken once", name, repeated)
    return qrels


def read_beir_qrels(folder: str | Path, split: str = "test") -> dict[str, dict[str, int]]:
    """Read the judgements of one split of a BEIR folder, `qrels/<split>.tsv`.

    Raises:
        DataError: The folder has no such split (the message lists those there are), or see `read_qrels`.
    """
    paths = [*Path(folder).glob("qrels/*.tsv.gz"), *Path(folder).glob("qrels/*.tsv")]
    files = {path.name.removesuffix(".gz").removesuffix(".tsv"): path for path in paths}
    if split not in files:
        there = ", ".join(sorted(files)) or "none"
        raise DataError(f"{folder}: no judgements for split {split!r} in qrels/; there are: {there}")
    return read_qrels(files[split])


def write_run(
    target: str | Path | BinaryIO, results: Mapping[str, Sequence[tuple[str, float]]], tag: str = "retrieve"
) -> None:
    """Write a TREC run whose order any reader finds again from the scores.

    Scores carry the digits that tell a float64 from its neighbours, so distinct ones stay distinct.

    Args:
        target: A file, replaced only when the whole run is written (compressed if it ends in `.gz`), or an
            open binary stream.
        results: `(doc_id, score)` by query id, best first: score descending, equal ones by doc_id descending.
        tag: The run's name, the last column.

    Raises:
        DataError: An id the format cannot hold, a score that is no number, a document twice in one result, or
            an order that contradicts the scores; or the file cannot be written.
        ConfigError: A tag that is empty or holds blanks.
    """
    if not _fits_run(tag):
        raise ConfigError(f"run tag {tag!r}: expected one word without blanks")
    if not isinstance(target, str | Path):
        target.writelines(_run_lines(results, tag))
        return
    with atomic_write(target) as stream:
        if str(target).endswith(".gz"):
            # No name and no time inside: the same run gives the same bytes.
            with gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as packed:
                packed.writelines(_run_lines(results, tag))
        else:
            stream.writelines(_run_lines(results, tag))


def _run_lines(results: Mapping[str, Sequence[tuple[str, float]]], tag: str) -> Iterator[bytes]:
    for query_id, hits in results.items():
        previous: tuple[float, str] | None = None
        seen: set[str] = set()
        for rank, (doc_id, given) in enumerate(hits, start=1):
            score = float(given)
            for kind, value in (("query", query_id), ("document", doc_id)):
                if not _fits_run(value):
                    raise DataError(f"{kind} id {value!r} does not fit a TREC run (blanks); write JSONL instead")
            if score != score:
                raise DataError(f"query {query_id!r}, document {doc_id!r}: the score is not a number")
            if doc_id in seen:
                raise DataError(f"query {query_id!r}: document {doc_id!r} occurs twice")
            if previous is not None and (score, doc_id) > previous:
                raise DataError(
                    f"query {query_id!r}: rank {rank} ({doc_id!r}, {score!r}) belongs before rank {rank - 1} "
                    f"({previous[1]!r}, {previous[0]!r}); order by score, then doc_id, both descending"
                )
            previous = (score, doc_id)
            seen.add(doc_id)
            yield f"{query_id} Q0 {doc_id} {rank} {score!r} {tag}\n".encode()


def _cells(line: str) -> list[str]:
    """Split at ASCII blanks only, as trec_eval does: a no-break space is part of an id."""
    return line.split() if line.isascii() else _words(line)  # split is four times as fast


def _fits_run(word: str) -> bool:
    """Whether a word stays one column: no blanks of any kind (many readers split at all of Unicode's)."""
    return word.split() == [word] and not word.startswith("\ufeff") and _encodable(word)


def _encodable(text: str) -> bool:
    """Whether a text is proper Unicode: JSON can smuggle in half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(cell: str) -> float | None:
    """Read a decimal number; None for anything else, NaN and Python's `1_000` included."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return None if value != value or "_" in cell else value


def _json_queries(
    name: str, first: tuple[int, str], lines: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, str, str]]:
    keys: tuple[str, str] | None = None
    for number, line in chain([first], lines):
        where = f"{name}, line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
        except (ValueError, RecursionError) as error:  # numbers too long, brackets too deep
            raise DataError(f"{where}: not JSON that can be read: {error}") from None
        if not isinstance(record, dict):
            raise DataError(f"{where}: expected a JSON object with an id and a text, found {line.strip()[:40]!r}")
        if keys is None:  # the first record decides for the whole file
            keys = _key(record, ID_NAMES, where), _key(record, TEXT_NAMES, where)
        id_key, text_key = keys
        _key(record, (id_key,), where)
        _key(record, (text_key,), where)
        query_id, text = record[id_key], record[text_key]
        if isinstance(query_id, bool) or not isinstance(query_id, str | int) or not _encodable(str(query_id)):
            raise DataError(f"{where}: {id_key!r} is {query_id!r}; expected a string or an integer")
        if text is not None and not (isinstance(text, str) and _encodable(text)):
            raise DataError(f"{where}: {text_key!r} is {text!r:.40}; expected a string")
        yield number, str(query_id), text or ""


def _key(record: Mapping[str, object], names: Sequence[str], where: str) -> str:
    """Return the first of `names` that the record has."""
    for name in names:
        if name in record:
            return name
    raise DataError(f"{where}: no {' / '.join(names)} in the query; keys found: {', '.join(record) or 'none'}")


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


def _judgement_rows(path: str | Path) -> Iterator[tuple[int, str, str, str]]:
    """Yield line number, query id, document id and the grade as written."""
    beir: bool | None = None
    for number, line in _numbered_lines(path):
        tabbed = line.split("\t")
        if beir is None:
            beir = len(tabbed) == 3 and tabbed[0].strip().lower() in ID_NAMES
            if beir:
                continue
        cells = tabbed if beir else _cells(line)
        if len(cells) != (3 if beir else 4) or not all(cells):
            expected = _BEIR_COLUMNS if beir else f"{_TREC_COLUMNS} (or BEIR's TSV under the line {_BEIR_COLUMNS})"
            raise DataError(f"{_name(path)}, line {number}: {line.strip()!r:.80}; expected {expected}")
        yield number, cells[0], cells[-2], cells[-1]


def _numbered_lines(source: str | Path | BinaryIO) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers, without line ends and byte order mark."""
    name = _name(source)
    number = 0
    try:
        with _opened(source) as stream:
            for number, raw in enumerate(stream, start=1):  # a binary stream breaks at \n only
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                line = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}, line {number}: byte 0x{error.object[error.start]:02x} at position {error.start + 1} "
            "is not UTF-8; convert the file to UTF-8"
        ) from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{name}: the compressed file is damaged after line {number}: {error}") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror or error}") from None


def _opened(source: str | Path | BinaryIO) -> AbstractContextManager[Iterable[bytes]]:
    if not isinstance(source, str | Path):
        return nullcontext(source)  # whoever opened it closes it
    return gzip.open(source) if str(source).endswith(".gz") else Path(source).open("rb")


def _name(source: str | Path | BinaryIO) -> str:
    return str(source) if isinstance(source, str | Path) else "standard input"

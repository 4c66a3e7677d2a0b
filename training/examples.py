"""Examples to train with: a query, texts that answer it, and texts that do not; read from files and from judgements."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from retrieval.chunking import is_blank
from retrieval.counts import many
from retrieval.errors import ConfigError, DataError
from retrieval.files import atomic_write
from retrieval.lines import json_object, line_blocks, shown, source_name, text_lines
from retrieval.ratings import place_name

logger = logging.getLogger(__name__)

_PARQUET_ROWS = 1 << 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A query with texts that answer it and texts that do not.

    Attributes:
        query: what is asked, without a model's prompt.
        positives: texts that answer it, at least one, each as the encoder reads it (title and text joined).
        negatives: texts that do not.
        query_id: of the query; empty where it is not known.
        positive_ids: of the positives, one each; empty where they are not known.
        negative_ids: of the negatives, one each; empty where they are not known.
        positive_scores: a teacher's scores or grades, one for each positive; empty where there are none.
        negative_scores: the same for the negatives.
    """

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    query_id: str = ""
    positive_ids: tuple[str, ...] = ()
    negative_ids: tuple[str, ...] = ()
    positive_scores: tuple[float, ...] = ()
    negative_scores: tuple[float, ...] = ()


def read_examples(path: str | Path, texts: Mapping[str, str] | None = None) -> list[Example]:
    """Read examples, in any layout of `retrieval.training.layouts`, from JSONL (also `.gz`, `.zst`) or Parquet.

    Rows with a label (a query, a text, 0 or 1) become one example for each query. A query all of whose labels
    are 0 is left out; one warning counts these, another lists fields that have no meaning here.

    Args:
        path: the file.
        texts: of documents, title and text joined, by id: for records that hold ids in place of texts.

    Raises:
        DataError: a string where a list belongs, ids or scores in another number than texts, a text that is blank
            or none, a record without query or positives, a document that is not there, or no example at all;
            names file, line (row in Parquet) and field.
    """
    from retrieval.training.layouts import EXPECTED, Record  # which makes an Example of a record

    name = source_name(path)
    found: dict[object, list[Example]] = {}
    unused: set[str] = set()
    for where, fields in _records(path, name):
        record = Record(fields, where, texts)
        example = record.example()
        key = (example.query_id, example.query) if record.is_labelled else where
        found.setdefault(key, []).append(example)
        unused |= record.fields.keys() - record.taken
    examples = [_merged(parts) for parts in found.values()]
    usable = [example for example in examples if example.positives]
    if not usable:
        raise DataError(f"{name}: no examples in it; {EXPECTED}")
    if lost := len(examples) - len(usable):
        logger.warning("%s: left out: %s without a text labelled 1", name, many(lost, "query"))
    if unused:
        logger.warning("%s: fields that are not used: %s", name, shown(", ".join(sorted(unused)), 300))
    return usable


def write_examples(path: str | Path, examples: Iterable[Example]) -> None:
    """Write examples as JSONL, one a line, with the fields of `Example` that are not empty; all or nothing.

    Raises:
        ConfigError: the name is that of another format.
        DataError: the file cannot be written, or an example holds NaN or half a character.
    """
    check_target(path)
    with atomic_write(path) as stream:
        if str(path).lower().endswith(".gz"):
            # No name and no time inside: the same examples give the same bytes.
            with gzip.GzipFile(filename="", fileobj=stream, mode="wb", compresslevel=6, mtime=0) as packed:
                packed.writelines(map(_line, examples))
        else:
            stream.writelines(map(_line, examples))


def check_target(path: str | Path) -> None:
    """Look whether examples can be written there, before the work of making them.

    Raises:
        ConfigError: the name is that of another format; `.jsonl` and `.jsonl.gz` are written.
        DataError: there is no such folder.
    """
    if str(path).lower().endswith((".zst", ".parquet", ".parq", ".pq")):
        raise ConfigError(f"{path}: examples are written as JSONL, plain or .gz; give another name")
    if not Path(path).absolute().parent.is_dir():
        raise DataError(f"{path}: there is no folder {Path(path).parent}")


def examples_of(
    queries: Mapping[str, str], qrels: Mapping[str, Mapping[str, int]], texts: Mapping[str, str]
) -> list[Example]:
    """Make examples without negatives of judgements: a grade of 1 or more is a positive.

    Grades become scores where they differ. Queries without a positive, or without text, and documents without text
    are left out; one warning counts them.

    Args:
        queries: text by query_id.
        qrels: grade by doc_id, by query_id.
        texts: of documents, title and text joined, by doc_id.

    Raises:
        DataError: no example is left.
    """
    relevant = {
        query_id: {doc_id: grade for doc_id, grade in qrels.get(query_id, {}).items() if grade > 0}
        for query_id in queries
    }
    graded = len({grade for grades in relevant.values() for grade in grades.values()}) > 1
    examples: list[Example] = []
    missing = 0
    for query_id, query in queries.items():
        known = [doc_id for doc_id in relevant[query_id] if not is_blank(texts.get(doc_id, ""))]
        missing += len(relevant[query_id]) - len(known)
        if known and not is_blank(query):
            scores = tuple(float(relevant[query_id][doc_id]) for doc_id in known) if graded else ()
            positives = tuple(texts[doc_id] for doc_id in known)
            examples.append(
                Example(
                    query=query,
                    query_id=query_id,
                    positives=positives,
                    positive_ids=tuple(known),
                    positive_scores=scores,
                )
            )
    if not examples:
        raise DataError(f"no example: none of {len(queries):,} queries has a relevant document with a text")
    if missing or len(examples) < len(queries):
        lost, bare = many(len(queries) - len(examples), "query"), many(missing, "relevant document")
        logger.warning("left out: %s without a positive, %s without text", lost, bare)
    return examples


def _records(path: str | Path, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the fields of each record."""
    if place_name(path) == "line":
        for number, line in text_lines(name, line_blocks(path)):
            where = f"{name}, line {number}"
            yield where, json_object(line, where)
        return
    from retrieval.formats import Columns, read_file

    for columns in read_file(str(path), "parquet", batch_rows=_PARQUET_ROWS):
        if not isinstance(columns, Columns):
            continue
        names, last = columns.batch.schema.names, columns.first + columns.batch.num_rows - 1
        if repeated := sorted({column for column in names if names.count(column) > 1}):
            raise DataError(f"{name}: two columns are called {repeated[0]!r}; rename one")
        try:
            rows = columns.batch.to_pylist()
        except UnicodeDecodeError:
            raise DataError(f"{name}, rows {columns.first} to {last}: a string that is not UTF-8") from None
        for row, fields in enumerate(rows, columns.first):
            yield f"{name}, row {row}", fields


def _merged(parts: Sequence[Example]) -> Example:
    """Join the labelled rows of one query."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        positives=tuple(text for part in parts for text in part.positives),
        negatives=tuple(text for part in parts for text in part.negatives),
    )


def _line(example: Example) -> bytes:
    fields = {name: value for name, value in asdict(example).items() if value not in ("", ())}
    try:
        return json.dumps(fields, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except ValueError as error:  # UnicodeEncodeError too
        raise DataError(f"the example of query {example.query!r:.80} does not fit JSON: {error}") from None

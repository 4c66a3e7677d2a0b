"""Judgements (qrels): which document answers which query, and how well."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from retrieval.counts import many
from retrieval.errors import DataError
from retrieval.lines import text_lines
from retrieval.ratings import QUERY_NAMES, Blocks, Ratings, as_number, place_name, read_ratings

logger = logging.getLogger(__name__)

GRADE_NAMES = ("relevance", "grade", "label", "rel", "score")
_HEADER_NAMES = ("_id", "id", *QUERY_NAMES)
_TREC_COLUMNS = "query_id 0 doc_id grade"
_BEIR_COLUMNS = "query-id<TAB>corpus-id<TAB>score"


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements.

    - TREC: `query_id 0 doc_id grade`, separated by any blanks.
    - BEIR: TSV of three columns under its header line `query-id corpus-id score`. Without the header, three
      columns are refused: nothing says which is which.
    - JSONL (one judgement a line) and Parquet, with the fields `query_id` (`qid`, `query-id`, ...), `doc_id`
      (`docid`, `corpus-id`, ...) and `relevance` (`grade`, `label`, `score`, ...).
    - One JSON object: `{query_id: {doc_id: grade}}`.

    The suffix tells them apart, then the first line (see `retrieval.ratings`); all but Parquet may be
    compressed (`.gz`, `.zst`). Grades are kept as written, negative ones too (they mean not relevant). An
    exact repeat is taken once, and one warning counts them.

    Returns:
        Grade by document id, by query id, in the order of the file.

    Raises:
        DataError: A line with another number of columns, a grade that is not a whole number, two different
            grades for one document, or no judgement at all; names file and lines (rows in Parquet).
    """
    name, unit = str(path), place_name(path)
    qrels: dict[str, dict[str, int]] = {}
    places: dict[str, dict[str, int]] = {}
    repeated, units = 0, ""
    for ratings in read_ratings(path, names=GRADE_NAMES, is_row=_is_row, table=_table):
        query_id, units = ratings.query_id, f"{unit}s" if ratings.places else "entries"
        grades, first = qrels.setdefault(query_id, {}), places.setdefault(query_id, {})
        for at, (doc_id, value) in enumerate(zip(ratings.doc_ids, ratings.values, strict=True)):
            place = ratings.places[at] if ratings.places else 0
            if not value.is_integer():
                where = f"{name}, {unit} {place}" if place else f"{name}, query {query_id!r}, document {doc_id!r}"
                raise DataError(f"{where}: the grade {value!r} is not a whole number")
            grade = int(value)
            if doc_id not in grades:
                grades[doc_id], first[doc_id] = grade, place
            elif grades[doc_id] == grade:
                repeated += 1
            else:
                who = f"{name}: {units} {first[doc_id]} and {place} give" if place else f"{name}: it gives"
                raise DataError(
                    f"{who} document {doc_id!r} of query {query_id!r} "
                    f"the grades {grades[doc_id]} and {grade}; keep one of them"
                )
    if not any(qrels.values()):
        raise DataError(f"{name}: no judgements in it; expected lines of {_TREC_COLUMNS}")
    if repeated:
        logger.warning("%s: %d %s repeat an earlier judgement; each was taken once", name, repeated, units)
    unjudged = [query_id for query_id, grades in qrels.items() if not grades]
    if unjudged:
        logger.warning("%s: left out: %s without a judgement", name, many(len(unjudged), "query"))
    return {query_id: grades for query_id, grades in qrels.items() if grades}


def _is_row(line: str) -> bool:
    cells = line.split()
    return len(cells) == 4 and as_number(cells[3]) is not None


def _table(name: str, first: str, blocks: Blocks) -> Iterator[Ratings]:
    """Read TREC's lines, or BEIR's under their header."""
    header = first.split("\t")
    beir = len(header) == 3 and header[0].strip().lower() in _HEADER_NAMES and as_number(header[2]) is None
    lines = text_lines(name, blocks)
    if beir:
        next(lines)
    for number, line in lines:
        # bytes split at ASCII blanks only, as trec_eval does: a no-break space is part of an id
        cells = line.split("\t") if beir else [cell.decode() for cell in line.encode().split()]
        if len(cells) != (3 if beir else 4) or not all(cells):
            expected = _BEIR_COLUMNS if beir else f"{_TREC_COLUMNS} (or BEIR's TSV under the line {_BEIR_COLUMNS})"
            raise DataError(f"{name}, line {number}: {line.strip()!r:.80}; expected {expected}")
        grade = as_number(cells[-1])
        if grade is None or not grade.is_integer():
            raise DataError(f"{name}, line {number}: the grade {cells[-1]!r} is not a whole number")
        yield Ratings(cells[0], (cells[-2],), (grade,), (number,))

"""Runs: which documents a system found for which query, read strictly, written so that the order survives."""

from __future__ import annotations

import gzip
import logging
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from retrieval.counts import many
from retrieval.errors import ConfigError, DataError
from retrieval.files import atomic_write
from retrieval.lines import decoded, is_encodable
from retrieval.ranking import ranked
from retrieval.ratings import Blocks, Ratings, as_number, by_query, place_name, read_ratings

logger = logging.getLogger(__name__)

SCORE_NAMES = ("score",)
_TREC = ("query_id", "Q0", "doc_id", "rank", "score", "tag")
_MARCO = ("query_id", "doc_id", "rank")
_MARCO_SCORED = ("query_id", "doc_id", "rank", "score")
# Equal ids share one string, which halves the memory of a run over a small corpus. With more ids than this,
# few are equal, and looking one up takes longer than reading it: sharing ends.
_SHARED_IDS = 1 << 18

_MARK = "\0"
# Where a block holds one of these, `str.split` would see a mark, or a blank that `bytes.split` and trec_eval do not.
_UNSURE = (b"\0", b"\x1c", b"\x1d", b"\x1e", b"\x1f")
_blanks = re.compile(rb"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2(?:\x80[\x80-\x8a\xa8\xa9\xaf]|\x81\x9f)|\xe3\x80\x80").search


def read_run(path: str | Path) -> dict[str, dict[str, float]]:
    """Read a run, in any order of lines.

    - TREC: `query_id Q0 doc_id rank score tag`, separated by any blanks. The rank is ignored: scores decide.
    - MS MARCO: `query_id<TAB>doc_id<TAB>rank` without a header, ranks from 1; the score is 1 / rank. With a
      fourth column that is the score, and the rank is only checked.
    - JSONL and Parquet, one hit a line or row, with the fields `query_id` (`qid`, `q_id`, ...), `doc_id`
      (`docid`, `docno`, `corpus-id`, ...) and `score`.
    - JSONL, one query a line, with its `hits` in a list (what `retrieve query --format jsonl` prints); a
      query without hits stays one.
    - One JSON object: `{query_id: {doc_id: score}}`, as ranx and BEIR write.

    The suffix tells them apart, then the first line (see `retrieval.ratings`); all but Parquet may be
    compressed (`.gz`, `.zst`). Ids are strings, integers become their decimal digits. A document that occurs
    twice for a query keeps its best score, and one warning counts them.

    Returns:
        Score (float64) by document id, by query id, in the order of the file. Empty for an empty file.

    Raises:
        DataError: A line that cannot be used, such as a score that is no number; names file, line and field.
    """
    run: dict[str, dict[str, float]] = {}
    shared: dict[str, str] | None = {}
    repeated, unit = 0, ""
    for hits in read_ratings(path, names=SCORE_NAMES, is_row=_is_row, table=_table):
        doc_ids = hits.doc_ids
        if shared is not None:
            doc_ids = list(map(shared.setdefault, doc_ids, doc_ids))
            shared = shared if len(shared) <= _SHARED_IDS else None
        fresh = dict(zip(doc_ids, hits.values, strict=True))
        scores = run.setdefault(hits.query_id, fresh)
        if len(fresh) == len(doc_ids) and (scores is fresh or scores.keys().isdisjoint(fresh)):
            scores.update(fresh)
            continue
        if scores is fresh:
            scores = run[hits.query_id] = {}
        unit = f"{place_name(path)}s" if hits.places else "entries"
        for doc_id, score in zip(doc_ids, hits.values, strict=True):
            repeated += doc_id in scores
            scores[doc_id] = max(score, scores.get(doc_id, score))
    if repeated:
        logger.warning("%s: %d %s repeat a document of the same query; its best score was kept", path, repeated, unit)
    return run


def write_run(target: str | Path | BinaryIO, run: Mapping[str, Mapping[str, float]], tag: str = "retrieve") -> None:
    """Write a TREC run: each query's documents by score, equal ones by doc_id, both descending; ranks from 1.

    Scores carry the digits that tell a float64 from its neighbours, so that any reader finds the order again.

    Args:
        target: A file, replaced only when the whole run is written (compressed if it ends in `.gz`), or an
            open binary stream.
        run: Score by doc_id, by query_id, in any order. A query without hits has no line.
        tag: The run's name, the last column.

    Raises:
        DataError: An id the format cannot hold, or a score that is no number; or the file cannot be written.
        ConfigError: A tag that is empty or holds blanks, or a file that ends in `.zst`.
    """
    check_target(target, tag)
    if not isinstance(target, str | Path):
        target.writelines(_run_lines(run, tag))
        return
    with atomic_write(target) as stream:
        if str(target).endswith(".gz"):
            # No name and no time inside: the same run gives the same bytes.
            with gzip.GzipFile(filename="", fileobj=stream, mode="wb", compresslevel=6, mtime=0) as packed:
                packed.writelines(_run_lines(run, tag))
        else:
            stream.writelines(_run_lines(run, tag))


def check_target(target: str | Path | BinaryIO, tag: str) -> None:
    """Refuse what `write_run` would refuse, before the run is made.

    Raises:
        ConfigError: A tag that is empty or holds blanks, or a file that ends in `.zst`.
    """
    if not _fits_run(tag):
        raise ConfigError(f"run tag {tag!r}: expected one word without blanks")
    if str(target).endswith(".zst"):
        raise ConfigError(f"{target}: runs are written plain or as .gz; give another name")


def _run_lines(run: Mapping[str, Mapping[str, float]], tag: str) -> Iterator[bytes]:
    """Yield the lines of one query after the other."""
    for query_id, scores in run.items():
        if not (_fits_run(query_id) and _fit_run(list(scores)) and not math.isnan(sum(scores.values()))):
            _check_hits(query_id, scores)
        yield "".join(
            [
                f"{query_id} Q0 {doc_id} {rank} {float(score)!r} {tag}\n"
                for rank, (doc_id, score) in enumerate(ranked(scores), 1)
            ]
        ).encode()


def _check_hits(query_id: str, scores: Mapping[str, float]) -> None:
    """Say what is wrong with the hits of a query, if anything is."""
    for doc_id, score in scores.items():
        for kind, value in (("query", query_id), ("document", doc_id)):
            if not _fits_run(value):
                raise DataError(f"{kind} id {value!r} does not fit a TREC run (blanks); write JSONL instead")
        if score != score:
            raise DataError(f"query {query_id!r}, document {doc_id!r}: the score is not a number")


def _fits_run(word: str) -> bool:
    """Whether a word stays one column: no blanks of any kind (many readers split at all of Unicode's)."""
    return word.split() == [word] and not word.startswith("\ufeff") and is_encodable(word)


def _fit_run(words: list[str]) -> bool:
    """Whether all words surely do."""
    text = " ".join(words)
    return text.split() == words and (text.isascii() or ("\ufeff" not in text and is_encodable(text)))


def _is_row(line: str) -> bool:
    cells = line.split()
    return len(cells) == len(_TREC) and as_number(cells[4]) is not None


def _table(name: str, first: str, blocks: Blocks) -> Iterator[Ratings]:
    """Read a TREC or MS MARCO run; the width of the first line decides which."""
    shape = len(first.encode().split()), first.rstrip().count("\t")
    columns = {(3, 2): _MARCO, (4, 3): _MARCO_SCORED}.get(shape, _TREC)
    cells = first.split()
    if columns is _MARCO_SCORED and cells[1] == "0" and cells[2] != "1":
        raise DataError(f"{name}: it begins with {first.strip()!r:.80}, which looks like judgements; expected a run")
    best: dict[str, float] = {}
    for number, block in blocks:
        for hits in _quick(number, block, columns) or _careful(name, number, block, columns):
            if columns is _MARCO:
                best[hits.query_id] = max(*hits.values, best.get(hits.query_id, 0.0))
            yield hits
    if unled := sum(score < 1 for score in best.values()):
        logger.warning(
            "%s: %s without a rank 1; if the third column is a score, write the run in TREC's form",
            name,
            many(unled, "query"),
        )


def _quick(number: int, block: bytes, columns: tuple[str, ...]) -> Iterator[Ratings] | None:
    """Read a block of lines that are all in order; None where any of them needs a closer look."""
    if any(sign in block for sign in _UNSURE) or not (block.isascii() or _blanks(block) is None):
        return None
    if columns is not _TREC and b" " in block:
        return None
    width, lines = len(columns) + 1, block.count(b"\n") + 1
    try:
        cells = str(block, "utf-8").replace("\n", f" {_MARK} ").split()
        cells.append(_MARK)
        # Every mark in its place: so each line has its columns, and none is blank.
        if cells[width - 1 :: width].count(_MARK) != lines:
            return None
        values = _numbers(cells[columns.index("score") :: width]) if "score" in columns else None
        if columns is not _TREC:
            ranks = _numbers(cells[columns.index("rank") :: width])
            if min(ranks) < 1 or not all(map(float.is_integer, ranks)):
                return None
            values = values or [1 / rank for rank in ranks]
    except ValueError:  # UnicodeDecodeError too
        return None
    places = range(number, number + lines)
    return by_query(cells[0::width], cells[columns.index("doc_id") :: width], values or [], places)


def _numbers(cells: list[str]) -> list[float]:
    """Read all of the cells as `as_number` does; ValueError where it would give None, or might."""
    values = list(map(float, cells))
    total, text = sum(values), "".join(cells)
    if total != total or "_" in text or not text.isascii():
        raise ValueError
    return values


def _careful(name: str, first: int, block: bytes, columns: tuple[str, ...]) -> Iterator[Ratings]:
    """Read a block line by line."""
    query_ids, doc_ids, scores, places = [], [], [], []
    for number, raw in enumerate(block.split(b"\n"), first):
        if not raw.strip():
            continue
        where = f"{name}, line {number}"
        decoded(name, number, raw)
        # bytes split at ASCII blanks only, as trec_eval does: a no-break space is part of an id
        cells = [str(cell, "utf-8") for cell in (raw.split() if columns is _TREC else raw.rstrip().split(b"\t"))]
        if len(cells) != len(columns) or not all(cells):
            raise DataError(f"{where}: {len(cells)} columns; expected {len(columns)}: {' '.join(columns)}")
        score: float | None = None
        if columns is not _TREC:
            cell = cells[columns.index("rank")]
            rank = as_number(cell)
            if rank is None or rank < 1 or not rank.is_integer():
                raise DataError(f"{where}: the rank {cell!r} is not a whole number from 1")
            score = 1 / rank
        if columns is not _MARCO:
            cell = cells[columns.index("score")]
            score = as_number(cell)
        if score is None:
            raise DataError(f"{where}: the score {cell!r} is not a number")
        query_ids.append(cells[0])
        doc_ids.append(cells[columns.index("doc_id")])
        scores.append(score)
        places.append(number)
    yield from by_query(query_ids, doc_ids, scores, places)

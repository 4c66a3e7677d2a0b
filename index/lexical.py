"""Keyword search: the postings of a segment on disk, and BM25 over the segments of an index.

Postings hold what was counted, nothing that depends on other passages. The number of passages, a term's document
frequency and the mean length are worked out over the live rows when a query is asked, so an index that was added to and
deleted from scores exactly as one that was built afresh.

`terms.arrow` has three columns, its terms sorted: `term`; `rows`, the gaps between the rows that hold it, doubled, plus
1 where it occurs there more than once; `frequencies`, how often less 2, of these rows alone. Gaps and frequencies are
integers of 7 bits a byte, least significant first, the last byte of each below 128 (LEB128). `lengths.npy` holds the
number of terms of each row.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import operator
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from retrieval.chunking import joined
from retrieval.errors import IndexFormatError
from retrieval.files import writing
from retrieval.index.manifest import LexicalEntry
from retrieval.index.mapped import map_batches, sound
from retrieval.index.segment import write_file
from retrieval.terms import K1, TERMS_VERSION, B, terms

_RUN_TERMS = 2**19  # occurrences counted at once, in some 50 MB
_BATCH_TERMS = 2**14  # of a record batch on disk
_BATCH_BYTES = 2**22
_MERGED_AT_ONCE = 2**15  # terms of all runs together
RARE = 10
"""Rows that hold or define a name that is rare: as many as a user looks through."""

_RUN = pa.schema(
    [
        ("term", pa.string()),
        ("first", pa.int64()),  # the first row, doubled, plus 1 where the term occurs there more than once
        ("last", pa.int64()),  # the last row
        ("rows", pa.binary()),  # as in the file, without the first
        ("frequencies", pa.binary()),
    ]
)
_TERMS = pa.schema([("term", pa.string()), ("rows", pa.binary()), ("frequencies", pa.binary())])


def write_lexical(folder: Path, segment_id: str, batches: Iterable[pa.RecordBatch]) -> LexicalEntry:
    """Write the postings of a segment beside its other files.

    Occurrences are counted half a million at a time, as a sorted run on disk; the runs are merged. So memory does not
    grow with the segment, but for four bytes a row.

    Args:
        folder: The index or its staging folder.
        segment_id: Names the segment's own folder.
        batches: The segment's rows: title, text and passage, which is null where there is nothing to search.

    Raises:
        DataError: A place that cannot be written.
    """
    name = f"segments/{segment_id}"
    lengths = array("I")
    counted = folder / name / "runs.arrow"
    with writing(counted):
        counted.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(counted), "wb") as sink, pa.ipc.new_file(sink, _RUN) as writer:
            for run in _runs(batches, lengths):
                writer.write_batch(run)

    def fill_terms(sink: BinaryIO) -> None:
        reader = pa.ipc.open_file(pa.memory_map(str(counted)))
        runs = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        with pa.ipc.new_file(sink, _TERMS) as writer:
            for batch in _batches(_merged(runs)):
                writer.write_batch(batch)

    def fill_lengths(sink: BinaryIO) -> None:
        np.save(sink, np.frombuffer(lengths, np.uint32), allow_pickle=False)

    entry = LexicalEntry(
        terms_version=TERMS_VERSION,
        terms=write_file(folder, f"{name}/terms.arrow", fill_terms),
        lengths=write_file(folder, f"{name}/lengths.npy", fill_lengths),
    )
    counted.unlink()
    return entry


def _runs(batches: Iterable[pa.RecordBatch], lengths: array[int]) -> Iterator[pa.RecordBatch]:
    """Count the terms of all rows, and append each row's length to `lengths`."""
    numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    occurring = array("I")  # the number of each term, as it occurs
    first_row = 0
    for batch in batches:
        for title, text, passage in zip(
            *(batch[name].to_pylist() for name in ("title", "text", "passage")), strict=True
        ):
            found = [] if passage is None else terms(joined(title, text))
            occurring.extend(map(numbers.__getitem__, found))
            lengths.append(len(found))
            if len(occurring) >= _RUN_TERMS:
                yield _run(numbers, occurring, lengths[first_row:], first_row)
                numbers, occurring = defaultdict(itertools.count().__next__), array("I")
                first_row = len(lengths)
    if numbers:
        yield _run(numbers, occurring, lengths[first_row:], first_row)


def _run(numbers: dict[str, int], occurring: array[int], lengths: array[int], first_row: int) -> pa.RecordBatch:
    """Sort the occurrences of terms in the rows from `first_row` on, `lengths` of them to each."""
    names = sorted(numbers)
    place = np.empty(len(names), np.int64)
    place[[numbers[name] for name in names]] = np.arange(len(names))
    row = np.repeat(np.arange(len(lengths)), np.frombuffer(lengths, np.uint32))
    keys, frequency = np.unique(
        place[np.frombuffer(occurring, np.uint32)] * len(lengths) + row, return_counts=True
    )  # a term in a row is one key
    term, row = np.divmod(keys, len(lengths))
    again = frequency > 1
    first = np.diff(term, prepend=-1) > 0  # row of its term
    gaps = np.diff(row, prepend=0) * 2 + again
    columns = {
        "term": names,
        "first": (row[first] + first_row) * 2 + again[first],
        "last": row[np.append(first[1:], True)] + first_row,
        "rows": _binary(gaps[~first], np.bincount(term[~first], minlength=len(names))),
        "frequencies": _binary(frequency[again] - 2, np.bincount(term[again], minlength=len(names))),
    }
    return pa.RecordBatch.from_pydict(columns, _RUN)


def _merged(runs: Sequence[pa.RecordBatch]) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield the terms of all runs, in order and each once, as rows of the file."""
    at_once = max(16, _MERGED_AT_ONCE // max(1, len(runs)))
    entries = heapq.merge(*(_entries(run, at_once) for run in runs))  # those of one term in the order of their rows
    for term, parts in itertools.groupby(entries, operator.itemgetter(0)):
        rows, frequencies, last = bytearray(), bytearray(), 0
        for _, first, end, others, more in parts:
            rows += _number(first - 2 * last) + others
            frequencies += more
            last = end
        yield term, bytes(rows), bytes(frequencies)


def _entries(run: pa.RecordBatch, at_once: int) -> Iterator[tuple[str, int, int, bytes, bytes]]:
    for start in range(0, run.num_rows, at_once):
        yield from zip(*(column.to_pylist() for column in run.slice(start, at_once).columns), strict=True)


def _batches(merged: Iterable[tuple[str, bytes, bytes]]) -> Iterator[pa.RecordBatch]:
    waiting: list[tuple[str, bytes, bytes]] = []
    size = 0
    for entry in merged:
        waiting.append(entry)
        size += len(entry[1]) + len(entry[2])
        if len(waiting) == _BATCH_TERMS or size >= _BATCH_BYTES:
            yield pa.RecordBatch.from_arrays(list(map(pa.array, zip(*waiting, strict=True))), schema=_TERMS)
            waiting, size = [], 0
    if waiting:
        yield pa.RecordBatch.from_arrays(list(map(pa.array, zip(*waiting, strict=True))), schema=_TERMS)


def _number(value: int) -> bytes:
    """Encode one integer."""
    data = bytearray()
    while value >= 128:
        data.append(value & 127 | 128)
        value >>= 7
    data.append(value)
    return bytes(data)


def _binary(values: np.ndarray, counts: np.ndarray) -> pa.Array:
    """Encode integers (n,) int64, the first `counts[0]` of them as the first bytes of a column, and so on."""
    size = np.ones(len(values), np.int64)  # in bytes
    for bits in range(7, 36, 7):
        size += values >= 1 << bits
    ends = np.concatenate([[0], np.cumsum(size)])
    data = np.empty(ends[-1], np.uint8)
    for byte in range(size.max(initial=0)):
        some = np.flatnonzero(size > byte)
        data[ends[some] + byte] = values[some] >> 7 * byte & 127 | (size[some] > byte + 1) * 128
    offsets = ends[np.concatenate([[0], np.cumsum(counts)])].astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _numbers(data: pa.Buffer) -> np.ndarray:
    """Decode bytes to integers, (n,) int64.

    Raises:
        ValueError: The last one does not end.
    """
    read = np.frombuffer(data, np.uint8)
    values = (read & 127).astype(np.int64)
    if len(ends := np.flatnonzero(read < 128)) == len(read):
        return values
    if read[-1] >= 128:
        raise ValueError("an integer without its end")
    starts = np.concatenate([[0], ends[:-1] + 1])
    shifts = np.arange(len(read)) - np.repeat(starts, ends + 1 - starts)
    result: np.ndarray = np.add.reduceat(values << 7 * shifts, starts)
    return result


class Postings:
    """The mapped postings of one segment."""

    def __init__(self, folder: Path, entry: LexicalEntry, *, rows: int, verify: bool = False) -> None:
        """Map both files.

        Raises:
            IndexFormatError: A file is missing, damaged, or not for that many rows.
        """
        self._path, lengths = (file.check(folder, verify=verify) for file in (entry.terms, entry.lengths))
        schema, self._batches = map_batches(self._path)
        with sound(self._path):
            if not schema.equals(_TERMS):
                raise ValueError("another table")
            for batch in self._batches:
                if not batch.num_rows or any(column.null_count for column in batch.columns):
                    raise ValueError("no terms")
                batch.slice(0, 1).validate(full=True)
            self._first_terms = [batch["term"][0].as_py() for batch in self._batches]
        self._checked: set[int] = set()  # batches whose offsets all lie within them: Arrow follows any
        with sound(lengths):
            self.lengths: np.ndarray = np.load(lengths, mmap_mode="r", allow_pickle=False)
        if self.lengths.dtype != np.uint32 or self.lengths.shape != (rows,):
            raise IndexFormatError(f"{lengths} holds no list of {rows} lengths; rebuild the index")

    @property
    def terms(self) -> int:
        """How many terms there are."""
        return sum(batch.num_rows for batch in self._batches)

    def find(self, term: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that hold a term (n,) int64, growing, and how often each holds it, (n,) int64."""
        if self._batches:
            batch = self._checked_batch(max(0, bisect.bisect_right(self._first_terms, term) - 1))
            names = batch["term"]
            place = bisect.bisect_left(range(len(names)), term, key=lambda row: names[row].as_py())
            if place < len(names) and names[place].as_py() == term:
                with sound(self._path):
                    return self._decoded(batch["rows"][place].as_buffer(), batch["frequencies"][place].as_buffer())
        return np.empty(0, np.int64), np.empty(0, np.int64)

    def _checked_batch(self, number: int) -> pa.RecordBatch:
        batch = self._batches[number]
        if number not in self._checked:
            with sound(self._path):
                batch.validate(full=True)
            self._checked.add(number)
        return batch

    def _decoded(self, gaps: pa.Buffer, frequencies: pa.Buffer) -> tuple[np.ndarray, np.ndarray]:
        """Decode what the file says of one term.

        Raises:
            ValueError: It says something that cannot be.
        """
        read, more = _numbers(gaps), _numbers(frequencies)
        rows, frequency = np.cumsum(read >> 1), 1 + (read & 1)
        again = np.flatnonzero(read & 1)
        if len(again) != len(more) or not len(rows) or rows.view(np.uint64).max() >= len(self.lengths):
            raise ValueError("other rows than there are")
        frequency[again] += more
        return rows, frequency


class Keywords:
    """BM25 over the live rows of an index (Robertson and Zaragoza 2009; idf and term frequency as in Lucene 8)."""

    def __init__(self, segments: Sequence[Postings], live: np.ndarray | None) -> None:
        """Count what the formula needs of all rows.

        Args:
            segments: In the order of global rows.
            live: (rows,) bool, those that count; None for all.
        """
        self._segments = segments
        self._live = live
        lengths = [np.asarray(segment.lengths) for segment in segments]
        self._lengths = np.concatenate([np.empty(0, np.uint32), *lengths])
        self._starts = np.cumsum([0, *map(len, lengths)])
        counted = self._lengths if live is None else self._lengths[live]
        self._count = len(counted)
        self._mean_length = int(counted.sum(dtype=np.int64)) / max(1, len(counted))

    def scores(self, query: Sequence[str]) -> np.ndarray:
        """Score all rows, (rows,) float64; 0 where no term of the query occurs.

        Args:
            query: Terms; one that is repeated counts as often.
        """
        scores = np.zeros(len(self._lengths))
        for term, times in sorted(Counter(query).items()):  # in one order: a sum's last bits depend on it
            rows, frequency = self._find(term)
            held = len(rows)
            weight = times * math.log(1 + (self._count - held + 0.5) / (held + 0.5))
            norm = K1 * (1 - B + B * self._lengths[rows] / self._mean_length) if held else frequency
            scores[rows] += weight * (frequency / (frequency + norm))
        return scores

    def named(self, names: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Say which share of the names that few rows hold each of these rows holds, (n,) float64; 0 if none is rare.

        Args:
            names: Terms.
            rows: (n,) int64.
        """
        found = [self._find(name)[0] for name in dict.fromkeys(names)]
        rare = [held for held in found if 0 < len(held) <= RARE]
        return np.mean([np.isin(rows, held) for held in rare], axis=0) if rare else np.zeros(len(rows))

    def _find(self, term: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the live rows of all segments that hold a term, and how often."""
        found = [segment.find(term) for segment in self._segments]
        empty = np.empty(0, np.int64)
        rows = np.concatenate([empty, *(rows + start for (rows, _), start in zip(found, self._starts, strict=False))])
        frequency = np.concatenate([empty, *(frequency for _, frequency in found)])
        if self._live is not None:
            live = self._live[rows]
            rows, frequency = rows[live], frequency[live]
        return rows, frequency


def best_rows(scores: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Of some rows, return the `count` with the highest scores, and all that equal the last of these."""
    if len(rows) <= count:
        return rows
    found = scores[rows]
    best: np.ndarray = rows[found >= np.partition(found, len(found) - count)[len(found) - count]]
    return best

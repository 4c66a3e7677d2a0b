"""Ids that come twice: found in eight bytes an id, and confirmed by reading the sources again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrieval.formats import STANDARD_INPUT
from retrieval.lines import Fault, shown
from retrieval.records import Documents
from retrieval.rejects import Place, ReadingLog

_CHUNK = 1 << 16


def id_hashes(ids: Sequence[str]) -> np.ndarray:
    """Hashes ids: (n,) int64, equal for equal ids within this process; different ids may collide."""
    return np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids))


class SeenHashes:
    """A growing set of 64-bit hashes: a few sorted arrays, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._levels: list[np.ndarray] = []

    def contains(self, hashes: np.ndarray) -> np.ndarray:
        """Tells for each hash whether it was added before: (n,) bool."""
        found = np.zeros(len(hashes), dtype=bool)
        for level in self._levels:
            at = np.searchsorted(level, hashes)
            found |= level[np.minimum(at, len(level) - 1)] == hashes
        return found

    def add(self, hashes: np.ndarray) -> None:
        """Adds hashes, repeated or not."""
        if not len(hashes):
            return
        new = np.unique(hashes)
        while self._levels and len(self._levels[-1]) < 2 * len(new):
            new = np.concatenate((self._levels.pop(), new))
            new.sort(kind="stable")  # two sorted runs: one merge
        self._levels.append(new)


class KnownIds:
    """Ids that exist already, as Arrow arrays (which may be mapped files) and a hash of each."""

    def __init__(self) -> None:
        self._arrays: list[pa.Array] = []
        self._hashes = SeenHashes()

    def add(self, ids: pa.Array | pa.ChunkedArray) -> None:
        """Adds ids, repeated or not; the array is kept, not copied."""
        for array in ids.chunks if isinstance(ids, pa.ChunkedArray) else [ids]:
            self._arrays.append(array)
            for start in range(0, len(array), _CHUNK):
                self._hashes.add(id_hashes(array.slice(start, _CHUNK).to_pylist()))

    def find(self, ids: Sequence[str], hashes: np.ndarray) -> set[str]:
        """Finds which of the ids exist already; equal hashes are confirmed by the ids themselves."""
        suspects = [ids[int(row)] for row in np.flatnonzero(self._hashes.contains(hashes))]
        if not suspects:
            return set()
        wanted = pa.array(suspects, pa.string())
        return {
            doc_id for array in self._arrays for doc_id in array.filter(pc.is_in(array, value_set=wanted)).to_pylist()
        }


@dataclass(frozen=True, slots=True)
class Piece:
    """A batch of one source and where its rows stand.

    Attributes:
        documents: the batch.
        source: the number of the source, from 0.
        unit: what `documents.numbers` count: `line`, `row`, or nothing where each file is a document.
        files: the file of all rows, or of each.
    """

    documents: Documents
    source: int
    unit: str
    files: str | list[str]

    def place(self, row: int) -> Place:
        """Says where a row of the batch stands."""
        file = self.files if isinstance(self.files, str) else self.files[row]
        return Place(self.source, file, self.unit, int(self.documents.numbers[row]))


class Repeats:
    """Finds the documents of a stream whose id came before, or exists in an index already.

    Equal hashes only raise a suspicion. The sources are read again to confirm it and to name the first
    place: once and up to here where bad records stop the reading; twice and to the end where they are left
    out, after which all repeated ids are known. Standard input cannot be read again: there the hash is taken
    at its word.

    Args:
        known: ids that exist already.
        log: gets the repeats.
        reread: reads all sources but standard input again, in the same order.
    """

    def __init__(self, known: KnownIds, log: ReadingLog, reread: Callable[[], Iterator[Piece]]) -> None:
        self._known = known
        self._log = log
        self._reread = reread
        self._seen = SeenHashes()
        self._read = 0  # pieces that `reread` will give again
        self._first: dict[str, Place] | None = None

    def removed_from(self, piece: Piece) -> Documents:
        """Returns the documents of a piece without repeats.

        Raises:
            DataError: there is a repeat, and bad records stop the reading; names both places.
        """
        documents = piece.documents
        ids: list[str] = documents.batch.column(0).to_pylist()
        hashes = id_hashes(ids)
        earlier = self._seen.contains(hashes)
        self._seen.add(hashes)
        self._read += piece.files != STANDARD_INPUT
        taken = self._known.find(ids, hashes)
        if not taken and not earlier.any() and len(set(ids)) == len(ids):
            return documents
        reasons = self._reasons(piece, ids, hashes, earlier, taken)
        by_file: dict[str, list[Fault]] = {}
        for row, reason in reasons.items():
            place = piece.place(row)
            by_file.setdefault(place.file, []).append(Fault(place.number, reason))
        for file, faults in by_file.items():
            self._log.bad(piece.source, file, piece.unit, faults, repeats=True)
        keep = np.ones(len(ids), dtype=bool)
        keep[list(reasons)] = False
        return Documents(documents.batch.filter(pa.array(keep)), documents.numbers[keep], documents.metadata)

    def _reasons(
        self, piece: Piece, ids: list[str], hashes: np.ndarray, earlier: np.ndarray, taken: set[str]
    ) -> dict[int, str]:
        """Says of the rows that are repeats what they repeat."""
        first_places = self._first_places(hashes[earlier]) if earlier.any() else {}
        first_rows: dict[str, int] = {}
        reasons: dict[int, str] = {}
        for row, doc_id in enumerate(ids):
            first_row = first_rows.setdefault(doc_id, row)
            before = first_places.get(doc_id)
            name = f"id '{shown(doc_id)}'"
            if doc_id in taken:
                reasons[row] = f"{name} is already in the index (--upsert replaces it)"
            elif earlier[row] and before is None:
                reasons[row] = f"{name} came before"
            elif earlier[row] and before != piece.place(row):
                reasons[row] = f"{name} came before, in {before}"
            elif first_row != row:
                reasons[row] = f"{name} came before, in {piece.place(first_row)}"
        return reasons

    def _first_places(self, hashes: np.ndarray) -> dict[str, Place]:
        """Finds the first places of ids with these hashes, and perhaps of more."""
        if self._log.stops:
            return self._find(hashes, self._read)
        if self._first is None:
            seen = SeenHashes()
            repeated = [hashes]
            for piece in self._reread():
                own = np.sort(id_hashes(piece.documents.batch.column(0).to_pylist()))
                repeated += [own[seen.contains(own)], own[1:][own[1:] == own[:-1]]]
                seen.add(own)
            self._first = self._find(np.unique(np.concatenate(repeated)), None)
        return self._first

    def _find(self, hashes: np.ndarray, pieces: int | None) -> dict[str, Place]:
        places: dict[str, Place] = {}
        for piece in islice(self._reread(), pieces):
            ids: list[str] = piece.documents.batch.column(0).to_pylist()
            for row in np.flatnonzero(np.isin(id_hashes(ids), hashes)):
                places.setdefault(ids[row], piece.place(int(row)))
        return places

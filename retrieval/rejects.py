"""What reading a corpus leaves out: places, counts, reasons, and the list of them."""

import json
import logging
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from retrieval.counts import many
from retrieval.errors import DataError
from retrieval.files import atomic_write
from retrieval.formats import shown_file
from retrieval.grammars import INSTALL
from retrieval.lines import OTHER_ENCODING, Fault

LISTED = 1000  # rejects held in memory; the file of them has all
NAMED = 5  # bad records that one message names
REMEDY = "correct the file, or leave bad records out with --on-bad skip (--rejects FILE lists them)"
REMEDY_OF_FILES = (
    "the id of a file is its path within the folder that is given: give the folder above both, or make an index of each"
)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands.

    Attributes:
        source: the number of the source, from 0, so that one file given twice has two places.
        file: its name as given.
        unit: `line` or `row`; empty where the file is the document.
        number: of the line or row, from 1.
    """

    source: int
    file: str
    unit: str = ""
    number: int = 0

    def __str__(self) -> str:
        place = f", {self.unit} {self.number}" if self.unit else ""
        return f"{shown_file(self.file)}{place}"


@dataclass(frozen=True, slots=True)
class Reject:
    """A record, or a file of a tree, that was left out, with the reason; line and row count from 1."""

    file: str
    reason: str
    line: int | None = None
    row: int | None = None


@dataclass(slots=True)
class DocumentCounts:
    """What became of the input.

    Attributes:
        documents: documents yielded.
        empty: those of them without any visible character in title and text.
        rejected: records left out, repeats among them.
        duplicates: records left out because their id came before, or is in the index already.
        skipped_files: files and folders of trees left out, by reason.
    """

    documents: int = 0
    empty: int = 0
    rejected: int = 0
    duplicates: int = 0
    skipped_files: Counter[str] = field(default_factory=Counter)


class ReadingLog:
    """The counts, rejects and notices of one reading.

    Args:
        on_bad: fail or skip, what a bad record does.
        silent: a second reading, whose rejects the user was told of by the first.
    """

    def __init__(self, on_bad: str, *, silent: bool = False) -> None:
        self.counts = DocumentCounts()
        self.rejects: list[Reject] = []
        self.encodings: Counter[str] = Counter()
        self.uncut: set[str] = set()  # languages whose grammar is not installed
        self.share = 0.0  # of the bytes of all sources that were read, 0 to 1
        self.stops = on_bad == "fail"  # at the first bad record
        self._silent = silent
        self._notices: dict[str, None] = {}
        self._spool = tempfile.SpooledTemporaryFile(max_size=1 << 20)  # noqa: SIM115 (closed by the finalizer)
        weakref.finalize(self, self._spool.close)

    def notice(self, text: str) -> None:
        """Notes something the user should know; the same text once."""
        self._notices[text] = None

    @property
    def notices(self) -> list[str]:
        """What the user should know, in order of appearance."""
        decoded = [
            f"{many(count, 'file is', 'files are')} not UTF-8 and read as {encoding}"
            for encoding, count in sorted(self.encodings.items())
        ]
        languages = ", ".join(sorted(self.uncut))
        uncut = [f"{languages}: files are not cut into functions and classes; {INSTALL}"] if languages else []
        return [*self._notices, *decoded, *uncut]

    def bad(self, source: int, file: str, unit: str, faults: Sequence[Fault], *, repeats: bool = False) -> None:
        """Deals with bad records of one file: lists them, or stops.

        Raises:
            DataError: bad records stop the reading; names the first few.
        """
        if not faults:
            return
        if self.stops:
            first, *others = faults[:NAMED]
            listed = [f"{Place(source, file, unit, first.number)}: {_reason(first)}"]
            listed += [f"{unit} {fault.number}: {_reason(fault)}" for fault in others]
            more = f"; and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
            remedy = REMEDY_OF_FILES if repeats and not unit else REMEDY
            raise DataError(f"{'; '.join(listed)}{more}; {remedy}")
        self.counts.rejected += len(faults)
        self.counts.duplicates += len(faults) if repeats else 0
        for fault in faults:
            number = fault.number if unit else None
            line, row = (number, None) if unit == "line" else (None, number)
            self._list(Reject(file, _reason(fault), line=line, row=row))

    def skipped(self, file: str, reason: str) -> None:
        """Lists a file or folder of a tree that is no document."""
        self.counts.skipped_files[reason] += 1
        self._list(Reject(file, reason))

    def _list(self, reject: Reject) -> None:
        if not self._silent:
            place = "".join(f", {unit} {n}" for unit, n in (("line", reject.line), ("row", reject.row)) if n)
            log.info("left out %s%s: %s", shown_file(reject.file), place, reject.reason)
        if len(self.rejects) < LISTED:
            self.rejects.append(reject)
        # A file name may hold bytes that are no text.
        name = reject.file.encode("utf-8", "backslashreplace").decode()
        entry = {"file": name, "line": reject.line, "row": reject.row, "reason": reject.reason}
        line = json.dumps({k: v for k, v in entry.items() if v is not None}, ensure_ascii=False)
        self._spool.write(f"{line}\n".encode())

    def write_rejects(self, path: str | Path) -> None:
        """Writes all rejects as JSON lines: file, line or row, reason.

        Raises:
            DataError: the file cannot be written.
        """
        self._spool.seek(0)
        try:
            with atomic_write(path) as target:
                shutil.copyfileobj(self._spool, target)
        finally:
            self._spool.seek(0, 2)


def _reason(fault: Fault) -> str:
    return f"{fault.reason} {OTHER_ENCODING}" if fault.undecodable else fault.reason

"""Units: the parts of a document that make sense alone, such as a function, a section or a notebook's cell.

Whoever reads a document cuts it into units; passages never cross their borders, and each carries its unit's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

UNITS = "units"  # a column of documents that are being read; an index stores `UNIT_FIELDS` of each passage instead
UNITS_TYPE = pa.list_(
    pa.struct(
        [
            pa.field("start", pa.int64()),
            pa.field("end", pa.int64()),
            pa.field("section", pa.string()),
            pa.field("kind", pa.string()),
        ]
    )
)
DIGEST = "digest"  # a column of a source tree's documents: SHA-256 of the file, to see whether it has changed
_OWN = {b"retrieval": b"own"}
UNIT_FIELDS = (
    pa.field("section", pa.string(), metadata=_OWN),
    pa.field("kind", pa.string(), metadata=_OWN),
    pa.field("start_line", pa.int32(), metadata=_OWN),
    pa.field("end_line", pa.int32(), metadata=_OWN),
)
CODE_KINDS = frozenset({"function", "method", "class", "code"})
LINELESS = frozenset({"cell", "page"})  # kinds whose text is no stretch of a file's lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A part of a document's text.

    Attributes:
        start: Its first character in the text.
        end: The character after its last one.
        section: What it is called: `DataFrame.merge`, `Guide > Install > Linux`; empty where it has no name.
        kind: What it is: function, method, class, section, cell, page, code, text.
    """

    start: int
    end: int
    section: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """A folder whose files are documents, and the patterns by which they were chosen.

    Attributes:
        name: Its own name, without the folders above it.
        key: Of its place: the beginning of the SHA-256 of its path, by which it is known as long as it is not moved.
        include: As in `DocumentSettings`, like the rest.
        exclude: See there.
    """

    name: str
    key: str
    include: list[str]
    exclude: list[str]

    @property
    def patterns(self) -> str:
        """As options of the command line."""
        named = [("--include", one) for one in self.include] + [("--exclude", one) for one in self.exclude]
        return " ".join(f"{option} {pattern!r}" for option, pattern in named) or "no patterns"


def matched(trees: Sequence[TreeEntry], known: Sequence[TreeEntry], *, moved: bool = True) -> list[TreeEntry | None]:
    """Find each folder among those known: by its place.

    Where folders may have `moved`, also by their names, if only one of either side has that.
    """
    found = {number: one for number, tree in enumerate(trees) for one in known if one.key == tree.key}
    rest = [number for number in range(len(trees)) if number not in found]
    others = [one for one in known if one not in found.values()]
    for number in rest if moved else ():
        twins = [other for other in rest if trees[other].name == trees[number].name]
        named = [one for one in others if one.name == trees[number].name]
        if len(twins) == len(named) == 1:
            found[number] = named[0]
    return [found.get(number) for number in range(len(trees))]


def units_column(units: Sequence[Sequence[Unit] | None]) -> pa.Array:
    """Make the column `units` of some documents; None for a document that is not cut into units."""
    rows = [
        None if some is None else [{"start": u.start, "end": u.end, "section": u.section, "kind": u.kind} for u in some]
        for some in units
    ]
    return pa.array(rows, UNITS_TYPE)


def units_of(column: pa.ChunkedArray | pa.Array) -> list[list[Unit] | None]:
    """Return the units of each document, None where it is not cut."""
    return [None if row is None else [Unit(**unit) for unit in row] for row in column.to_pylist()]


def is_own(field: pa.Field) -> bool:
    """Tell whether a column is one of `UNIT_FIELDS`, and not a corpus's metadata of the same name."""
    return bool(field.metadata and field.metadata.get(b"retrieval") == _OWN[b"retrieval"])


def titled(title: str, section: str) -> str:
    """Return the title of a passage: the document's, and what its unit is called."""
    return " > ".join(part for part in (title.strip(), section) if part)


def untitled(title: str, section: str | None) -> str:
    """Return the title of the document, of what `titled` made of it."""
    return title if not section else title[: -len(section)].removesuffix(" > ")


def visible(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a stretch of a text without the blank lines before it and the blanks behind it; the same if all blank."""
    stretch = text[start:end]
    first = len(stretch) - len(stretch.lstrip())
    last = len(stretch.rstrip())
    return (start + stretch.rfind("\n", 0, first) + 1, start + last) if last else (start, start)


def line_numbers(text: str, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Say on which lines passages of a text lie; lines end at `\n`.

    Args:
        text: The whole text.
        start: (n,) int64, first character of each passage.
        end: (n,) int64, the character after its last one.

    Returns:
        First and last line of each, (n,) int32 from 1; an empty passage lies on one line.
    """
    breaks = np.flatnonzero(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32) == ord("\n"))
    last = np.maximum(start, end - 1)
    return tuple((np.searchsorted(breaks, places) + 1).astype(np.int32) for places in (start, last))  # type: ignore[return-value]

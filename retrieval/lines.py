"""Lines of a text file, cut and decoded strictly, and the records found on them."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from retrieval.errors import ConfigError, DataError

BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Fault:
    """A record that cannot be used: its line or row (from 1) and why."""

    number: int
    reason: str


@dataclass(slots=True)
class Rows:
    """Records of one stretch of a line format.

    Attributes:
        numbers: the line each record starts on, from 1.
        records: the records, as many as `numbers`; the reader of them may take them apart.
        faults: the broken lines of the stretch.
        size: bytes read for it, about.
        names: the columns of a table; None where each record brings its own.
        share: of the file that was read when it came, 0 to 1; 0 where the size is not known.
    """

    numbers: list[int] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    size: int = 0
    names: tuple[str, ...] | None = None
    share: float = 0.0


def check_encoding(encoding: str) -> None:
    """Raises ConfigError where `encoding` is not the name of a text encoding that Python knows."""
    try:
        "\n".encode(encoding)
    except (LookupError, ValueError):
        raise ConfigError(f"--encoding {encoding}: no such text encoding (utf-8, cp1252, latin-1, ...)") from None


def shown(name: str, limit: int = 80) -> str:
    """Writes a name from a user's file so that it stays on one line and readable."""
    short = name if len(name) <= limit else name[: limit - 3] + "..."
    return short if short.isprintable() else ascii(short)[1:-1]


def numbered_lines(source: BinaryIO, encoding: str) -> Iterator[tuple[int, list[bytes]]]:
    r"""Cuts a stream into lines at `\n` only, a block at a time.

    Lines keep a `\r`. Where a line end is not the single byte of ASCII (UTF-16, UTF-32), the stream is
    turned into UTF-8 on the way; `line_encoding` says which encoding the lines then have.

    Yields:
        The number of the first line of a block (from 1), and its lines without `\n`.

    Raises:
        DataError: such a stream is not of the encoding named.
    """
    number = 1
    pending: list[bytes] = []
    for block in _blocks(source, encoding):
        cut = block.rfind(b"\n")
        if cut < 0:
            pending.append(block)
            continue
        pending.append(block[:cut])
        lines = b"".join(pending).split(b"\n")
        pending = [block[cut + 1 :]]
        yield number, lines
        number += len(lines)
    if rest := b"".join(pending):
        yield number, [rest]


def line_encoding(encoding: str) -> str:
    """Names the encoding of the lines that `numbered_lines` yields."""
    if "\n".encode(encoding) != b"\n" or codecs.lookup(encoding).name == "utf-8-sig":
        return "utf-8"
    return encoding


def _blocks(source: BinaryIO, encoding: str) -> Iterator[bytes]:
    if "\n".encode(encoding) == b"\n":
        first = source.read(BLOCK_BYTES)
        yield first.removeprefix(codecs.BOM_UTF8)
        while block := source.read(BLOCK_BYTES):
            yield block
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    done = 0
    while True:
        block = source.read(BLOCK_BYTES)
        try:
            yield decoder.decode(block, final=not block).removeprefix("" if done else "\ufeff").encode()
        except UnicodeError as error:
            raise DataError(f"not {encoding} near byte {done} ({error}); name its encoding with --encoding") from None
        if not block:
            return
        done += len(block)


def decode(line: bytes, encoding: str) -> str:
    """Decodes one line.

    Raises:
        ValueError: with the position, and the option that names another encoding.
    """
    try:
        return str(line, encoding)
    except UnicodeDecodeError as error:
        bad = f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
        raise ValueError(f"{bad} is not {encoding} (--encoding names another, e.g. cp1252)") from None

"""Lines of a text file, cut and decoded strictly, and the records found on them."""

import codecs
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from retrieval.errors import ConfigError, DataError

BLOCK_BYTES = 1 << 18
OTHER_ENCODING = "(--encoding names another, e.g. cp1252)"  # what to do where a corpus is read
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class Fault:
    """A record that cannot be used: its line or row (from 1), why, and whether another encoding could help."""

    number: int
    reason: str
    undecodable: bool = False


class UndecodableError(ValueError):
    """A line is not of the encoding that it was read with."""


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
    """Cuts a stream into lines, see `numbered_blocks`.

    Yields:
        The number of the first line of a block (from 1), and its lines without `\\n`.
    """
    for number, block in numbered_blocks(source, encoding):
        yield number, block.split(b"\n")


def numbered_blocks(source: BinaryIO, encoding: str) -> Iterator[tuple[int, bytes]]:
    r"""Cuts a stream into blocks of whole lines, which end at `\n` only.

    Lines keep a `\r`. Where a line end is not the single byte of ASCII (UTF-16, UTF-32), the stream is
    turned into UTF-8 on the way; `line_encoding` says which encoding the lines then have.

    Yields:
        The number of the first line of a block (from 1), and the block without its last `\n`.

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
        lines = b"".join(pending)
        pending = [block[cut + 1 :]]
        yield number, lines
        number += lines.count(b"\n") + 1
    if rest := b"".join(pending):
        yield number, rest


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
        UndecodableError: with the position.
    """
    try:
        return str(line, encoding)
    except UnicodeDecodeError as error:
        bad = f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
        raise UndecodableError(f"{bad} is not {encoding}") from None


def source_name(source: str | Path | BinaryIO) -> str:
    """Names a file, or standard input, for a message."""
    return shown(str(source), 1000) if isinstance(source, str | Path) else "standard input"


def line_blocks(source: str | Path | BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Opens a file (decompressed where it ends in `.gz` or `.zst`) or takes an open stream: `numbered_blocks` of it.

    Raises:
        DataError: it cannot be opened, or is damaged; names the file, and the last line before the damage.
    """
    done = 0
    try:
        with ExitStack() as opened:
            stream: BinaryIO
            if not isinstance(source, str | Path):
                stream = source  # whoever opened it closes it
            else:
                stream = opened.enter_context(Path(source).open("rb"))
                if compression := COMPRESSIONS.get(Path(source).suffix.lower()):
                    import pyarrow as pa

                    stream = opened.enter_context(pa.CompressedInputStream(stream, compression))
            for number, block in numbered_blocks(stream, "utf-8"):
                yield number, block
                done = number + block.count(b"\n")
    except OSError as error:
        if error.errno is None:  # of the decompression
            why = f"the compressed file is damaged after line {done}: {shown(str(error))}"
        else:
            why = f"cannot be read: {error.strerror or error}"
        raise DataError(f"{source_name(source)}: {why}") from None


def decoded(name: str, number: int, block: bytes) -> str:
    """Decodes a block of lines as UTF-8.

    Args:
        name: of the file.
        number: of the block's first line.
        block: the lines.

    Raises:
        DataError: a byte that is not UTF-8; names its line and position.
    """
    try:
        return str(block, "utf-8")
    except UnicodeDecodeError as error:
        line = number + block.count(b"\n", 0, error.start)
        position = error.start - block.rfind(b"\n", 0, error.start)
        raise DataError(
            f"{name}, line {line}: byte 0x{block[error.start]:02x} at position {position} is not UTF-8; "
            "convert the file to UTF-8"
        ) from None


def text_lines(name: str, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Yields the lines of `line_blocks` that are not blank, with their numbers, without line ends."""
    for first, block in blocks:
        for number, line in enumerate(decoded(name, first, block).split("\n"), first):
            if line and not line.isspace():
                yield number, line.removesuffix("\r")


def whole_text(name: str, blocks: Iterable[tuple[int, bytes]]) -> str:
    """Joins the blocks of `line_blocks` to the text of the whole file, as `decoded` reads them."""
    return "\n".join([decoded(name, number, block) for number, block in blocks])


def json_value(text: str, where: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Reads a text that is one JSON value.

    Args:
        text: a line, or that of a whole file.
        where: the file, and the line if the text is one.
        pairs: makes an object of its keys and values; a `dict` without it.

    Raises:
        DataError: it is no JSON; begins with `where` and the line of several.
    """
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if "\n" in text else ""
        raise DataError(f"{where}{line}: not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # numbers too long, brackets too deep
        raise DataError(f"{where}: not JSON that can be read: {error}") from None


def json_object(line: str, where: str) -> dict[str, Any]:
    """Reads a line that holds one JSON object.

    Raises:
        DataError: it holds anything else; begins with `where`.
    """
    record = json_value(line, where)
    if not isinstance(record, dict):
        raise DataError(f"{where}: expected a JSON object, found {line.strip()[:40]!r}")
    return record


def key_of(names: Sequence[str], record: Collection[str], where: str) -> str:
    """Returns the first of `names` that a record has.

    Raises:
        DataError: it has none of them; lists the keys it has.
    """
    for name in names:
        if name in record:
            return name
    found = ", ".join(shown(key) for key in record) or "none"
    raise DataError(f"{where}: no {' / '.join(names)}; keys found: {shown(found, 300)}")


def json_id(record: dict[str, Any], key: str, where: str) -> str:
    """Returns an id of a record as a string: strings as written, integers in decimal.

    Raises:
        DataError: it is of another type, or no proper Unicode (JSON can smuggle in half a surrogate pair).
    """
    value = record[key]
    if type(value) is int or (type(value) is str and is_encodable(value)):
        return str(value)
    raise DataError(f"{where}: {key!r} is {value!r:.80}; expected a string or an integer")


def json_number(value: object) -> float:
    """Returns a number of JSON as a float.

    Raises:
        TypeError: it only converts to a number, as true or "1" do.
        OverflowError: an integer too large.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.80} is no number")
    return float(value)


def is_encodable(text: str) -> bool:
    """Tells whether a text is proper Unicode, without half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

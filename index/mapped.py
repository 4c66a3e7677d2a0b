"""Arrow files of an index, mapped.

Arrow follows any offset that it reads, and where that leads out of the file the process ends. A file above 16 MiB is
not hashed when it is opened, so what it says is checked before it is followed: where its columns lie when it is opened,
the offsets within a column when it is first read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError

import pyarrow as pa

from retrieval.errors import IndexFormatError


@contextlib.contextmanager
def sound(path: Path) -> Iterator[None]:
    """Name the file of which something cannot be.

    Raises:
        IndexFormatError: Remedies.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, SyntaxError, TokenError) as error:  # numpy parses its header
        if isinstance(error, OSError) and error.errno is not None:  # the system's own, not Arrow's
            raise
        raise damaged(path) from error


def damaged(path: Path) -> IndexFormatError:
    """Say that a file is not what was written."""
    return IndexFormatError(f"{path} is damaged; restore it or rebuild the index")


def map_batches(path: Path) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Map an Arrow file; nothing but its metadata is read.

    Returns:
        Its schema, and its batches, whose columns all lie within it. Their offsets may be any: see `checked_column`.

    Raises:
        IndexFormatError: It is damaged.
    """
    with sound(path):
        data = pa.memory_map(str(path)).read_buffer()
        reader = pa.ipc.open_file(data)
        if not pa.ipc.read_schema(data.slice(8)).equals(reader.schema, check_metadata=True):  # it stands at both ends
            raise ValueError("two schemas")
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        for batch in batches:
            _check_place(batch, data)
        return reader.schema, batches


def _check_place(batch: pa.RecordBatch, data: pa.Buffer) -> None:
    for part in (part for column in batch.columns for part in column.buffers() if part is not None and part.size):
        if part.address < data.address or part.address + part.size > data.address + data.size:
            raise ValueError("a column outside of the file")
    batch.validate()


def checked_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column whose offsets lead nowhere else; its texts are not read, and may be no UTF-8.

    Raises:
        pa.ArrowInvalid: They do.
    """
    array = batch.column(name)
    (array.view(pa.binary()) if pa.types.is_string(array.type) else array).validate(full=True)
    return array

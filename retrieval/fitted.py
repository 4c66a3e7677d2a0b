"""Numbers that were fitted to a model, in a file of its folder: written whole, read strictly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from retrieval.errors import ConfigError, ModelError
from retrieval.files import atomic_write
from retrieval.lines import json_number

T = TypeVar("T")


def write_fitted(path: Path, *, version: int, numbers: Mapping[str, float], notes: Mapping[str, object]) -> None:
    """Write a file.

    Raises:
        DataError: It cannot be written.
    """
    entries = {"format": version, **numbers, "notes": dict(notes)}
    with atomic_write(path) as stream:
        stream.write((json.dumps(entries, indent=2) + "\n").encode())


def read_fitted(
    path: Path,
    make: Callable[[Mapping[str, float], Mapping[str, object]], T],
    *,
    version: int,
    names: Sequence[str],
    expected: str,
) -> T | None:
    """Read a file.

    Args:
        path: The file.
        make: Takes the numbers by name, and the notes; a ConfigError of its own says that they are out of range.
        version: The format that is read.
        names: Of the numbers.
        expected: What the file should hold, for the message.

    Returns:
        What `make` made, or None where there is no file.

    Raises:
        ModelError: The file is damaged, cannot be read, or is of another format.
    """
    if not (path.exists() or path.is_symlink()):
        return None
    damaged = ModelError(f"{path} is damaged: expected {expected}; fit it again or remove it")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        known = entries["format"] == version
        numbers = {name: json_number(entries[name]) for name in names}
        notes = dict(entries.get("notes") or {})
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise damaged from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    if not known:
        raise ModelError(f"{path} has format {entries['format']!r:.20}; this version reads {version}: upgrade")
    try:
        return make(numbers, notes)
    except ConfigError:
        raise damaged from None

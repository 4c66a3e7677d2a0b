"""Files that are whole or absent: atomic writes, hashes, and the lock of a single writer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from retrieval.errors import ConfigError, DataError, IndexLockedError, RetrievalError

_NO_SPACE = 2**20  # bytes: less is as good as none to a model


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable (a rename is not, until its folder is synced)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_parents(folder: Path, name: str) -> None:
    """Make the file `folder/name` durable in its folder, and that in its own, up to `folder` itself."""
    for parent in Path(name).parents:
        sync_folder(folder / parent)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an operating system's refusal to write into one line that names the place.

    Raises:
        DataError: Permission denied, no space left, a missing parent folder, and the like.
    """
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"cannot write {error.filename or path}: {reason}") from error


def require_utf8(path: Path) -> None:
    """Refuse a folder's name whose bytes are not UTF-8: the libraries that read and write models and indexes cannot.

    Raises:
        ConfigError: Shows the name.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(path)!r}: the name is not UTF-8; rename the folder, or give another") from None


@contextlib.contextmanager
def saving(path: Path) -> Iterator[None]:
    """As `writing`, for libraries that say in errors of their own that a file cannot be written.

    Raises:
        DataError: Whatever goes wrong; names the place, and that no space is left where that is why.
    """
    try:
        with writing(path):
            yield
    except RetrievalError:
        raise
    except Exception as error:  # of any type: torch and safetensors raise kinds of their own for a full disk
        full = shutil.disk_usage(path.parent).free < _NO_SPACE
        reason = "no space left on device" if full else f"{error!s:.200}"
        raise DataError(f"cannot write {path}: {reason}") from error


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that takes the place of `path` only when the block ends without an error.

    A link stays, and its target is replaced. A device or a pipe (`/dev/stdout`) is written to as it is.

    Raises:
        DataError: The file cannot be written; nothing is left behind.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as stream:
                yield stream
            return
        path = path.resolve() if path.is_symlink() else path
        temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        try:
            with temporary.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:  # also from the block, where the disk may fill; the temporary name helps nobody
        raise DataError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error


@contextlib.contextmanager
def writer_lock(path: Path, *, what: Path | None = None) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; the file is gone afterwards.

    The lock belongs to the process (`flock`), so a killed writer leaves none behind, at most its file.

    Args:
        path: The lock file.
        what: What it guards, for the message; None: the folder it lies in.

    Raises:
        IndexLockedError: Another process holds it.
        DataError: The file cannot be made.
    """
    with writing(path):
        handle = _locked(path, what or path.parent)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _locked(path: Path, what: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, handle):
                os.ftruncate(handle, 0)
                os.write(handle, str(os.getpid()).encode())
                return handle
        except BlockingIOError:
            owner = os.pread(handle, 20, 0).decode() or "unknown"
            os.close(handle)
            raise IndexLockedError(
                f"another process (pid {owner}) is writing to {what}; wait for it or stop it"
            ) from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its last owner removed the file between our open and our lock


def _is_still(path: Path, handle: int) -> bool:
    """Whether a file is the one that was opened."""
    try:
        return os.fstat(handle).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False

"""Where an index stands: what may be there before, who may write, and what is cleared away after a commit."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from retrieval.errors import ConfigError, IndexFormatError
from retrieval.files import writer_lock, writing
from retrieval.index.manifest import MANIFEST, Manifest


def next_generation(path: Path) -> int:
    """The generation after the present one, also where a damaged manifest no longer tells it."""
    try:
        return Manifest.read(path).generation + 1
    except IndexFormatError:
        used = [int(folder.name) for folder in (path / "segments").glob("*") if folder.name.isdigit()]
        return max(used, default=1) + 1


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse a path at which no new index may be made.

    Raises:
        ConfigError: An index is there and may not be overwritten, or something that is no index.
    """
    if not (path / MANIFEST).exists():
        check_free(path)
    elif not overwrite:
        raise ConfigError(
            f"{path} is an index already; give --overwrite to replace it, or extend it with `retrieve add`"
        )


def check_free(path: Path) -> None:
    """Refuse a path where something stands that is no index.

    Raises:
        ConfigError: A file, a folder with other things in it, the current folder, or a mount point.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise ConfigError(f"{path} is not a folder; give a new folder for the index")
    if path.is_dir() and not (path / MANIFEST).exists() and any(path.iterdir()):
        raise ConfigError(f"{path} holds other files and is no index; give a new folder for the index")
    if path.resolve().is_mount():  # a mount point cannot be renamed to
        raise ConfigError(f"{path} is a mount point; give a new folder within it for the index")
    if path.is_dir() and path.samefile("."):  # whoever stands in it would stand in a folder that is gone
        raise ConfigError(f"{path} is the current folder; give a new folder for the index")


def _lock_beside(path: Path) -> Path:
    """The lock of a first build, for which there is no index folder yet."""
    path = path.absolute()  # `.` has no name
    return path.with_name(f".{path.name}.lock")


def lock(stack: contextlib.ExitStack, path: Path) -> bool:
    """Take the lock, inside an index that exists and beside one that does not; return whether it exists."""
    while True:
        exists = (path / MANIFEST).exists()
        file = path / ".lock" if exists else _lock_beside(path)
        with contextlib.ExitStack() as attempt:
            if not exists:
                with writing(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
            attempt.enter_context(writer_lock(file, what=path))
            if exists == (path / MANIFEST).exists():  # else another writer finished or moved it meanwhile
                stack.push(attempt.pop_all())
                return exists


def clean(path: Path, manifest: Manifest) -> None:
    """Remove what the manifest does not list: older generations' files and the staging folders.

    Readers that have them mapped keep them until they close.
    """
    listed = {entry.path for entry in manifest.files()}
    for name in ("segments", "deleted", "ann"):
        for file in (path / name).rglob("*"):
            if file.is_file() and file.relative_to(path).as_posix() not in listed:
                file.unlink(missing_ok=True)
        for folder in (*(path / name).glob("*"), path / name):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
    for leftover in (path / ".building", path / "parts", path / "build.json", _lock_beside(path)):
        remove(leftover)
    for unwritten in path.glob(f".{MANIFEST}.*.tmp"):  # of a writer that was killed while it committed
        remove(unwritten)


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it; nothing there is fine."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

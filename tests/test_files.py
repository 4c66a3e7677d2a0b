"""Files that are whole or absent, and the lock of a single writer."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from retrieval.errors import ConfigError, DataError, IndexLockedError, ModelError
from retrieval.files import atomic_write, require_utf8, saving, sha256, writer_lock
from retrieval.index.reader import Index
from retrieval.training.run import open_run
from retrieval.tuning import tune


def test_a_written_file_takes_the_place_of_the_old_one_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(b"old")
    with atomic_write(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["run"]  # noqa: PTH208


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyboardInterrupt()])
def test_after_an_error_the_old_file_stands_and_nothing_is_beside_it(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "run"
    for before in (None, b"old"):
        if before is not None:
            path.write_bytes(before)
        with pytest.raises(type(error)), atomic_write(path) as stream:
            stream.write(b"half")
            raise error
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == ({} if before is None else {"run": before})


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "far" / "run")
    for content in (b"new", b"newer"):
        with atomic_write(tmp_path / "run") as stream:
            stream.write(content)
        assert (tmp_path / "run").is_symlink()
        assert [p.read_bytes() for p in (tmp_path / "far").iterdir()] == [content]


def test_a_device_or_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with atomic_write(pipe) as stream:
        stream.write(b"abc")
    assert os.read(reader, 10) == b"abc"
    os.close(reader)
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]
    assert pipe.is_fifo()
    (tmp_path / "null").symlink_to("/dev/null")
    with atomic_write(tmp_path / "null") as stream:
        stream.write(b"abc")
    assert Path("/dev/null").is_char_device()


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(DataError, match=r"cannot write .*run: no space left"), atomic_write(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a write would
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    places = {
        tmp_path / "folder": "is a directory",
        tmp_path / "no" / "run": "no such file or directory",
        tmp_path / "file" / "run": "not a directory",
        Path("/"): "is a directory",
        Path(): "is a directory",
        tmp_path / ("long" * 80): "file name too long",
    }
    for path, reason in places.items():
        with pytest.raises(DataError) as caught, atomic_write(path) as stream:
            stream.write(b"x")
        assert str(caught.value) == f"cannot write {path}: {reason}"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    assert not list((tmp_path / "folder").iterdir())


def test_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc" * 100_000)
    assert sha256(tmp_path / "f") == hashlib.sha256(b"abc" * 100_000).hexdigest()


def test_a_lock_is_held_by_one_and_names_its_owner(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with writer_lock(path):
        with pytest.raises(IndexLockedError, match=rf"pid {os.getpid()}\) is writing to {tmp_path}"), writer_lock(path):
            pytest.fail("two hold the lock")
        assert path.exists()
    assert not path.exists()
    with writer_lock(path):
        pass


def test_a_lock_is_freed_by_an_error_and_by_death(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with pytest.raises(ValueError, match="a bug"), writer_lock(path):
        raise ValueError("a bug")
    code = (
        "import os, pathlib; from retrieval.files import writer_lock\n"
        f"with writer_lock(pathlib.Path({str(path)!r})): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 9
    assert path.exists()
    with writer_lock(path):
        pass
    assert not path.exists()


def test_a_lock_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot write .*\.lock: no such file"), writer_lock(tmp_path / "no" / ".lock"):
        pytest.fail("locked without a file")


def test_names_that_libraries_cannot_open_are_refused(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"index\xff")
    for work in (
        lambda: require_utf8(odd),
        lambda: Index.open(odd),
        lambda: open_run(odd, identity={}).__enter__(),
        lambda: tune("index", None, odd),
    ):
        with pytest.raises(ConfigError, match="the name is not UTF-8"):
            work()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("free", "said"), [(100, "no space left on device"), (2**40, "unexpected pos 5 vs 4")])
def test_libraries_that_cannot_write_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, said: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(DataError, match=f"cannot write .*model: {said}"), saving(tmp_path / "model"):
        raise RuntimeError("unexpected pos 5 vs 4")
    with pytest.raises(ModelError, match="ours"), saving(tmp_path / "model"):
        raise ModelError("ours")

"""Parts that are read ahead, encoded by other processes and written behind: same bytes, errors in order, no orphans."""

import importlib.util
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wordbag import WordBag
from worlds import records, unit, write_corpus

from retrieval import ConfigError, DataError, EncoderSettings, RetrievalError, add_documents, build_index
from retrieval.index.build import Writer
from retrieval.indexing import Progress
from retrieval.workers import Behind, ahead

CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")
KILLED = r"^worker process \d+ was ended by SIGKILL.*; repeat the command, with fewer workers"
CPU = EncoderSettings(device="cpu", runtime="torch")


def tree(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def children() -> list[int]:
    return [int(child) for path in CHILDREN.parent.parent.glob("*/children") for child in path.read_text().split()]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Documents for twelve parts, some of them long."""
    monkeypatch.setattr("retrieval.passages.EncodedPassages.part_documents", 3)
    texts = [f"Note {row}: " + "the level rises " * (row % 5 * 20) for row in range(36)]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"_id": f"d{row}", "text": text}) + "\n" for row, text in enumerate(texts)))
    return path


@pytest.mark.parametrize("runtime", ["torch", "openvino"])
def test_workers_make_the_same_bytes(corpus: Path, tmp_path: Path, tiny: Any, runtime: str) -> None:
    if importlib.util.find_spec(runtime) is None:
        pytest.skip(f"{runtime} is not installed")
    calls: list[Progress] = []
    made = []
    for workers in (1, 2):
        made.append(
            build_index(
                corpus,
                tmp_path / f"{workers}",
                model=tiny("mean"),
                encoding=EncoderSettings(device="cpu", runtime=runtime),
                workers=workers,
                progress=calls.append if workers == 2 else None,
            )
        )
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    assert made[0].cut == made[1].cut and made[0].cut["texts_windowed"] > 0
    counts = [call.documents for call in calls]
    assert counts == sorted(counts) and counts[-1] == 36 and calls[-1].share == 1.0


@pytest.mark.skipif(not CHILDREN.exists(), reason="finds processes in /proc")
@pytest.mark.parametrize(("error", "words"), [(RetrievalError, KILLED), (KeyboardInterrupt, None)])
def test_a_build_whose_workers_are_ended_goes_on(
    corpus: Path,
    tmp_path: Path,
    tiny: Any,
    error: type[BaseException],
    words: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    build_index(corpus, tmp_path / "undisturbed", model=tiny("mean"), encoding=CPU)
    before = set(children())

    def disturb(now: Progress) -> None:
        if any(tmp_path.glob(".index.building/parts/*.json")):
            if error is KeyboardInterrupt:
                raise KeyboardInterrupt
            for child in set(children()) - before:
                os.kill(child, signal.SIGKILL)

    with pytest.raises(error, match=words):
        build_index(corpus, tmp_path / "index", model=tiny("mean"), encoding=CPU, workers=2, progress=disturb)
    assert set(children()) == before
    assert "documents; repeat the command" in caplog.text
    report = build_index(corpus, tmp_path / "index", model=tiny("mean"), encoding=CPU)
    assert 3 <= report.kept < 36
    assert tree(tmp_path / "index") == tree(tmp_path / "undisturbed")


def test_a_document_that_cannot_be_encoded_is_named_as_without_workers(corpus: Path, tmp_path: Path, tiny: Any) -> None:
    settings = EncoderSettings(device="cpu", runtime="torch", on_long="error")
    messages = []
    for workers in (1, 2):
        with pytest.raises(DataError) as caught:
            build_index(corpus, tmp_path / "index", model=tiny("mean"), encoding=settings, workers=workers)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and messages[0].startswith("document 'd1' ")  # others are too long, too


def test_workers_that_cannot_be_had_are_refused(tmp_path: Path) -> None:
    corpus, vectors = write_corpus(tmp_path, records(5), unit(5))
    with pytest.raises(ConfigError, match="an encoder of your own cannot be sent to other processes"):
        build_index(corpus, tmp_path / "index", encoder=WordBag(), workers=2)
    with pytest.raises(ConfigError, match="ready-made vectors are not encoded"):
        build_index(corpus, tmp_path / "index", vectors=vectors, workers=2)
    with pytest.raises(ConfigError, match="workers is 0; expected 1 or more"):
        build_index(corpus, tmp_path / "index", encoder=WordBag(), workers=0)
    build_index(corpus, tmp_path / "index", encoder=WordBag())
    with pytest.raises(ConfigError, match="an encoder of your own"):
        add_documents(corpus, tmp_path / "index", encoder=WordBag(), workers=2)


def test_what_is_taken_ahead_comes_in_order_and_errors_in_their_place() -> None:
    taken: list[tuple[int, int]] = []

    def items() -> Iterator[int]:
        for number in range(5):
            taken.append((number, threading.get_ident()))
            if number == 3:
                raise DataError("the fourth")
            yield number

    found = []
    with pytest.raises(DataError, match="the fourth"):
        for number in ahead(items()):
            found.append(number)
    assert found == [0, 1, 2]
    first, *others = [thread for _, thread in taken]
    assert first == threading.get_ident() and first not in others


def test_only_the_next_one_is_taken_ahead() -> None:
    taken: list[int] = []
    source = ahead(taken.append(number) or number for number in range(9))
    assert next(source) == 0
    source.close()  # waits for the one that is being taken
    assert taken == [0, 1]


def test_what_is_done_behind_is_done_in_order_and_its_error_is_the_earlier_one() -> None:
    done: list[int] = []

    def work(number: int) -> Callable[[], None]:
        def run() -> None:
            if number == 3:
                raise DataError("writing")
            done.append(number)

        return run

    with Behind() as behind:
        for number in range(3):
            behind.do(work(number))
    assert done == [0, 1, 2]
    with pytest.raises(DataError, match="writing") as caught, Behind() as behind:
        behind.do(work(3))
        raise DataError("encoding what comes after")
    assert isinstance(caught.value.__context__, DataError)


def test_an_error_of_writing_ends_the_build_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.passages.ReadyPassages.part_documents", 10)
    corpus, vectors = write_corpus(tmp_path, records(100), unit(100))
    build_index(corpus, tmp_path / "undisturbed", vectors=vectors)
    add = Writer.add

    def full(self: Writer, *given: Any, **named: Any) -> None:
        if len(self.parts) == 4:
            raise DataError("no space left on the disk")
        add(self, *given, **named)

    monkeypatch.setattr(Writer, "add", full)
    with pytest.raises(DataError, match="no space left"):
        build_index(corpus, tmp_path / "index", vectors=vectors)
    monkeypatch.setattr(Writer, "add", add)
    assert build_index(corpus, tmp_path / "index", vectors=vectors).kept == 40
    assert tree(tmp_path / "index") == tree(tmp_path / "undisturbed")

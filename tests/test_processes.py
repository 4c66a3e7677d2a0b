"""What only processes show: a builder that is killed, writers at once, files that one may not read."""

import contextlib
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from forked import Processes, public_folder
from worlds import records

from retrieval import Retriever
from retrieval.cli import main
from retrieval.index.manifest import Manifest


def answers(index: Path) -> list[Any]:
    retriever = Retriever.open(index)
    asked = ["text 17", "text 333", "of what"]
    return [
        [[(hit.doc_id, hit.score, hit.text) for hit in hits] for hits in retriever.search_many(asked, 20, mode=mode)]
        for mode in ("dense", "lexical", "hybrid")
    ]


def test_a_killed_first_build_with_keywords_and_a_graph_ends_as_an_unbroken_one(
    tiny: Any, tmp_path: Path, processes: Processes
) -> None:
    """Killed at every stage: while the parts are written, merged, terms counted, the graph written, all published."""
    corpus, work = tmp_path / "c.jsonl", tmp_path / "work"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records(400)))
    work.mkdir()
    command = ("build-index", corpus, "--model", tiny("mean"), "--index-type", "hnsw")
    assert processes(*command, tmp_path / "unbroken") == 0, processes.stderr
    killed = 0
    for changes in (2, 4, 6, 8, 10, 12, 14):  # each goes on where the one before was killed
        code = processes(*command, "--overwrite", work / "idx", watch=work, changes=changes)
        assert code in (0, -signal.SIGKILL), processes.stderr
        killed += code != 0
        if (work / "idx").exists():  # published: what is left of the build does no harm
            assert answers(work / "idx") == answers(tmp_path / "unbroken")
    assert killed >= 5
    assert processes(*command, "--overwrite", work / "idx") == 0, processes.stderr
    assert answers(work / "idx") == answers(tmp_path / "unbroken")
    assert Manifest.read(work / "idx").approximate is not None
    assert {path.name for path in (work / "idx").iterdir()} == {"ann", "manifest.json", "segments"}
    assert [path.name for path in work.iterdir()] == ["idx"]


def refused(*arguments: object) -> str:
    """Run a command in this process that must fail, and return its one line."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.output
    return result.stderr


def test_of_two_that_sync_at_once_one_is_told_that_the_other_writes(
    tiny: Any, tmp_path: Path, processes: Processes
) -> None:
    folder, index = tmp_path / "src", tmp_path / "idx"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.txt").write_text(f"text {number}\n")
    assert processes("build-index", folder, index, "--model", tiny("mean")) == 0, processes.stderr
    for number in range(3, 60):
        (folder / f"{number}.txt").write_text(f"new text {number}\n")
    sync = ("add", folder, index, "--sync")
    codes: list[int] = []
    first = threading.Thread(target=lambda: codes.append(processes(*sync)))
    first.start()
    lock = index / ".lock"
    while not (lock.exists() and lock.read_text()):
        assert first.is_alive(), processes.stderr
        time.sleep(0.001)
    owner = int(lock.read_text())
    os.kill(owner, signal.SIGSTOP)  # it holds the lock for as long as we look
    try:
        assert f"another process (pid {owner}) is writing to {index}; wait for it or stop it" in refused(*sync)
        assert len(answers(index)[0][0]) == 4  # readers are not in the way
    finally:
        os.kill(owner, signal.SIGCONT)
        first.join()
    assert codes == [0], processes.stderr
    assert processes("build-index", folder, tmp_path / "fresh", "--model", tiny("mean")) == 0
    assert processes(*sync) == 0 and re.search(r"60 .*unchanged|unchanged.* 60", processes.stderr), processes.stderr
    assert answers(index) == answers(tmp_path / "fresh")
    assert not lock.exists() and Manifest.read(index).generation == 2


@contextlib.contextmanager
def closed(path: Path) -> Iterator[None]:
    path.chmod(0)
    yield
    path.chmod(0o755)


def public_model(model: Path, work: Path) -> Path:
    shutil.copytree(model, work / "model")
    for path in (work / "model").rglob("*"):
        path.chmod(path.stat().st_mode | 0o444)
    return work / "model"


def told(processes: Processes, place: Path) -> None:
    assert processes.stderr.startswith("error: ") and processes.stderr.count("\n") == 1, processes.stderr
    assert str(place) in processes.stderr and "permission denied" in processes.stderr.lower()


def test_an_index_that_one_may_not_read_is_one_line(tiny: Any, processes: Processes) -> None:
    with public_folder() as (work, user):
        corpus, index, model = work / "c.jsonl", work / "idx", public_model(tiny("mean"), work)
        corpus.write_text("".join(json.dumps(record) + "\n" for record in records(30)))
        corpus.chmod(0o644)
        build = ("build-index", corpus, index, "--model", model)
        assert processes(*build, user=user) == 0, processes.stderr
        changes = [("add", corpus, index, "--upsert"), ("delete", index, "d1"), (*build, "--overwrite")]
        with closed(index):
            for command in (("query", index, "text"), ("info", index), *changes):
                assert processes(*command, user=user) == 1, command
                told(processes, index)
        for name in ("manifest.json", "documents.arrow", "vectors.faiss", "terms.arrow"):
            file = next(index.rglob(name))
            with closed(file):
                assert processes("query", index, "text", user=user) == 1, name
                told(processes, file)
        assert processes("query", index, "text", user=user) == 0, processes.stderr


def test_a_corpus_that_one_may_not_read_is_one_line_and_leaves_nothing(tiny: Any, processes: Processes) -> None:
    with public_folder() as (work, user):
        model = public_model(tiny("mean"), work)
        for name in ("c.jsonl", "c.csv", "c.parquet", "c.txt", "tree"):
            corpus = work / name
            corpus.mkdir() if name == "tree" else corpus.write_text("{}")
            with closed(corpus):
                assert processes("build-index", corpus, work / "idx", "--model", model, user=user) == 1
            told(processes, corpus)
            assert [path.name for path in work.iterdir() if "idx" in path.name] == []

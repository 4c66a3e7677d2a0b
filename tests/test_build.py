"""Writing an index: commit, resume, damage, locks, changes, readers meanwhile."""

import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from worlds import DIM, add, build, records, unit, write_corpus

from retrieval import (
    ConfigError,
    DataError,
    IndexFormatError,
    IndexLockedError,
    IndexMismatchError,
    IndexSettings,
    Retriever,
    add_documents,
    build_index,
    compact_index,
    delete_documents,
    optimize_index,
)
from retrieval.chunking import PassageVectors
from retrieval.documents import DocumentStream
from retrieval.files import writer_lock
from retrieval.index.build import Writer
from retrieval.index.manifest import Manifest, _checksum
from retrieval.index.reader import Index


def tree(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def answers(path: Path, k: int = 20) -> list[list[tuple[str, float, str]]]:
    found = Retriever.open(path).search_many(unit(15, 99), k)
    return [[(hit.doc_id, hit.score, hit.text) for hit in hits] for hits in found]


def test_an_index_is_its_manifest_and_the_files_it_lists(tmp_path: Path) -> None:
    path = build(tmp_path, 100)
    listed = {entry.path for entry in Manifest.read(path).files()}
    assert set(tree(path)) == {"manifest.json", *listed}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.jsonl", "c.npy", "index"]
    assert str(tmp_path) not in (path / "manifest.json").read_text()


def test_the_same_build_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = build(tmp_path / "1", 300, index_type="ivf"), build(tmp_path / "2", 300, index_type="ivf")
    assert tree(one) == tree(two)


def test_building_over_an_index_needs_overwrite_and_over_anything_else_is_refused(tmp_path: Path) -> None:
    path = build(tmp_path, 5)
    before = tree(path)
    corpus, file = tmp_path / "c.jsonl", tmp_path / "c.npy"
    with pytest.raises(ConfigError, match="--overwrite"):
        build_index(corpus, path, vectors=file)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"x")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="holds other files"):
            build_index(corpus, tmp_path / "photos", vectors=file, overwrite=overwrite)
        with pytest.raises(ConfigError, match="not a folder"):
            build_index(corpus, corpus, vectors=file, overwrite=overwrite)
    assert tree(path) == before
    (tmp_path / "empty").mkdir()
    assert build_index(corpus, tmp_path / "empty", vectors=file).documents == 5


@pytest.mark.parametrize("how", ["gone", "empty", "half", "flip"])
@pytest.mark.parametrize("index_type", ["flat", "hnsw"])
def test_every_damage_of_every_file_is_an_error_that_names_it(tmp_path: Path, how: str, index_type: str) -> None:
    path = build(tmp_path, 300, index_type=index_type)
    delete_documents(["d1", "d2"], path)
    for name, data in tree(path).items():
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :]
        if how == "gone":
            (copy / name).unlink()
        else:
            (copy / name).write_bytes({"empty": b"", "half": data[:middle], "flip": flipped}[how])
        with pytest.raises(IndexFormatError, match=Path(name).name) as caught:
            Index.open(copy)
        assert "rebuild" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_large_files_are_hashed_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.index.manifest._HASH_ALWAYS", 100)
    path = build(tmp_path, 300)
    file = next(path.rglob("vectors.faiss"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    Index.open(path)
    with pytest.raises(IndexFormatError, match=r"vectors\.faiss is damaged"):
        Index.open(path, verify=True)


def test_compacting_does_not_make_damage_look_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.index.manifest._HASH_ALWAYS", 100)  # as if the files were large
    path = build(tmp_path, 300)
    file = next(path.rglob("vectors.faiss"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    before = tree(path)
    with pytest.raises(IndexFormatError, match=r"vectors\.faiss is damaged"):
        compact_index(path)
    assert tree(path) == before


def test_a_damaged_index_can_be_rebuilt_in_place(tmp_path: Path) -> None:
    path = build(tmp_path, 50)
    (path / "manifest.json").write_text("{")
    with pytest.raises(IndexFormatError, match="damaged"):
        Index.open(path)
    build(tmp_path, 50)
    assert len(answers(path)[0]) == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 3}, "format_version 3 and this release reads up to 2"),
        ({"format": "other"}, "not ours"),
        ({"documents": 7}, "wrong checksum"),
    ],
)
def test_a_manifest_from_elsewhere_is_refused_by_name(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = build(tmp_path, 5)
    body = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**body, **change}))
    with pytest.raises(IndexFormatError, match=message):
        Index.open(path)


@pytest.mark.parametrize("name", ["manifest.json", "documents.arrow", "vectors.faiss"])
def test_a_file_that_may_not_be_read_is_one_line(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path, 5)
    opened = Path.open

    def refusing(self: Path, *args: object, **options: object) -> object:
        if self.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return opened(self, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refusing)  # root may read anything, so the refusal is made
    with pytest.raises(IndexFormatError, match=rf"{name} cannot be read: permission denied"):
        Index.open(path)


def test_no_index(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="no such folder"):
        Index.open(tmp_path / "nowhere")
    with pytest.raises(IndexFormatError, match=r"holds no manifest\.json"):
        Index.open(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(IndexFormatError, match="is a file"):
        Index.open(tmp_path / "file")
    nowhere = tmp_path / "no" / "where"
    for change in (lambda: compact_index(nowhere), lambda: delete_documents(["a"], nowhere)):
        with pytest.raises(IndexFormatError, match="no index at"):
            change()
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_one_writer_at_a_time_and_readers_all_the_while(tmp_path: Path) -> None:
    path = build(tmp_path, 20)
    with writer_lock(path / ".lock"):
        with pytest.raises(IndexLockedError, match=rf"pid {os.getpid()}"):
            delete_documents(["d1"], path)
        assert len(answers(path)[0]) == 20
    assert delete_documents(["d1"], path).deleted == 1
    with (
        writer_lock(tmp_path / ".new.lock"),  # beside an index that is not there yet
        pytest.raises(IndexLockedError, match=rf"is writing to {tmp_path / 'new'};"),
    ):
        build_index(tmp_path / "c.jsonl", tmp_path / "new", vectors=tmp_path / "c.npy")


def test_a_lock_file_of_a_killed_writer_is_no_lock(tmp_path: Path) -> None:
    path = build(tmp_path, 20)
    (path / ".lock").write_text("99999999")
    assert delete_documents(["d1"], path).deleted == 1
    assert not (path / ".lock").exists()


SLOW_BUILD = """
import sys, time
import retrieval.indexing as indexing
from retrieval.index.build import Writer
from retrieval.passages import ReadyPassages
ReadyPassages.part_documents = 40
add = Writer.add
def slow(self, *a, **k):
    time.sleep(0.02)
    add(self, *a, **k)
Writer.add = slow
corpus, vectors, index, overwrite = sys.argv[1:]
report = indexing.build_index(corpus, index, vectors=vectors, overwrite=overwrite == "yes")
print("kept", report.kept)
"""


@pytest.mark.parametrize("present", [False, True])
def test_a_killed_build_resumes_and_ends_with_the_same_bytes(tmp_path: Path, present: bool) -> None:
    corpus, vectors = write_corpus(tmp_path, records(1000), unit(1000))
    script = tmp_path / "slow.py"
    script.write_text(SLOW_BUILD)

    def command(index: Path) -> list[str]:
        return [
            sys.executable,
            str(script),
            str(corpus),
            str(vectors),
            str(index),
            "yes" if present else "no",
        ]

    old: list[list[tuple[str, float, str]]] = []
    if present:
        old = answers(build(tmp_path / "old", 30))
        for name in ("undisturbed", "killed"):
            shutil.copytree(tmp_path / "old" / "index", tmp_path / name)
    subprocess.run(command(tmp_path / "undisturbed"), check=True, capture_output=True)
    index = tmp_path / "killed"
    staging = index / ".building" if present else tmp_path / ".killed.building"
    for parts in (1, 4, 9):
        process = subprocess.Popen(command(index), stdout=subprocess.DEVNULL)
        while len(list(staging.glob("parts/*.json"))) < parts:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if present:
            assert answers(index) == old
        else:
            with pytest.raises(IndexFormatError, match="not finished"):
                Index.open(index)
    output = subprocess.run(command(index), check=True, capture_output=True, text=True).stdout
    kept = int(output.split("kept ")[1])
    assert 9 * 40 <= kept < 1000 and kept % 40 == 0
    assert tree(index) == tree(tmp_path / "undisturbed")
    assert not list(tmp_path.glob(".*"))


def test_an_unfinished_build_of_other_inputs_is_not_mixed_in(tmp_path: Path) -> None:
    corpus, vectors = write_corpus(tmp_path, records(100), unit(100))
    script = tmp_path / "slow.py"
    script.write_text(SLOW_BUILD)
    process = subprocess.Popen(
        [sys.executable, str(script), str(corpus), str(vectors), str(tmp_path / "index"), "no"],
        stdout=subprocess.DEVNULL,
    )
    staged = tmp_path / ".index.building" / "parts" / "000000.json"
    while not staged.exists():
        time.sleep(0.005)
    process.kill()
    process.wait()
    corpus, vectors = write_corpus(tmp_path, records(50, start=500), unit(50, 1))
    report = build_index(corpus, tmp_path / "index", vectors=vectors)
    assert report.kept == 0 and report.index_documents == 50
    assert any("discarded" in notice for notice in report.notices)


def test_an_error_before_the_first_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    corpus, vectors = write_corpus(tmp_path, records(10), unit(9))
    with pytest.raises(DataError, match="none is left for document 'd9'"):
        build_index(corpus, tmp_path / "index", vectors=vectors)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.jsonl", "c.npy"]


def test_documents_that_cannot_be_read_again_are_not_kept_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("retrieval.passages.ReadyPassages.part_documents", 10)
    corpus, vectors = write_corpus(tmp_path, records(30), unit(25))
    for source, kept in ((corpus, True), ("-", False)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
        with pytest.raises(DataError, match="none is left"):
            build_index(source, tmp_path / "index", vectors=vectors)
        assert (tmp_path / ".index.building").exists() == kept
        assert ("encoded and kept: 20 documents" in caplog.text) == kept
        caplog.clear()


def test_a_manifest_that_was_being_written_when_its_writer_died_is_cleaned_up(tmp_path: Path) -> None:
    path = build(tmp_path, 5)
    (path / ".manifest.json.99999.tmp").write_text("{")
    delete_documents(["d1"], path)
    assert sorted(p.name for p in path.iterdir()) == ["deleted", "manifest.json", "segments"]


@pytest.mark.parametrize("index_type", ["flat", "hnsw", "ivf"])
def test_changes_equal_a_fresh_build_of_the_final_documents(tmp_path: Path, index_type: str) -> None:
    build(tmp_path / "a", 2000, index_type=index_type)
    path = tmp_path / "a" / "index"
    assert delete_documents([f"d{i}" for i in range(0, 200, 2)], path).deleted == 100
    changed = [{"_id": f"d{i}", "text": f"new {i}", "year": 1} for i in range(1001, 1101)]
    report = add(tmp_path / "a", changed, unit(100, 7), upsert=True)
    assert (report.replaced, report.index_documents) == (100, 1900)
    assert add(tmp_path / "a", records(100, start=5000), unit(100, 8)).index_documents == 2000

    final = {r["_id"]: (r, v) for r, v in zip(records(2000), unit(2000), strict=True)}
    for i in range(0, 200, 2):
        del final[f"d{i}"]
    final |= {r["_id"]: (r, v) for r, v in zip(changed, unit(100, 7), strict=True)}
    final |= {r["_id"]: (r, v) for r, v in zip(records(100, start=5000), unit(100, 8), strict=True)}
    corpus, vectors = write_corpus(tmp_path, [r for r, _ in final.values()], np.stack([v for _, v in final.values()]))
    build_index(corpus, tmp_path / "fresh", vectors=vectors, settings=IndexSettings(index_type=index_type))

    before, fresh = answers(path), answers(tmp_path / "fresh")
    compact_index(path)
    after = answers(path)
    assert Index.open(path).deleted_rows.size == 0
    assert Manifest.read(path).documents == Manifest.read(tmp_path / "fresh").documents == 2000
    if index_type == "flat":
        assert before == fresh == after
    else:
        for mine in (before, after):
            shared = [len({h[0] for h in a} & {h[0] for h in b}) for a, b in zip(mine, fresh, strict=True)]
            assert sum(shared) >= 0.9 * sum(map(len, fresh))


def test_an_id_that_is_there_is_refused_by_add_and_nothing_changes(tmp_path: Path) -> None:
    path = build(tmp_path, 30)
    before = tree(path)
    with pytest.raises(DataError, match=r"more\.jsonl.*d7"):
        add(tmp_path, [{"_id": "x", "text": "x"}, {"_id": "d7", "text": "x"}], unit(2, 3))
    assert tree(path) == before
    delete_documents(["d7"], path)
    assert add(tmp_path, [{"_id": "d7", "text": "again"}], unit(1, 3)).index_documents == 30


def test_add_wants_the_same_dimension(tmp_path: Path) -> None:
    build(tmp_path, 5)
    with pytest.raises(IndexMismatchError, match="8 dimensions"):
        add(tmp_path, [{"_id": "x", "text": "x"}], unit(1, 0, dim=8))


def test_delete_counts_what_is_not_there(tmp_path: Path) -> None:
    path = build(tmp_path, 5)
    report = delete_documents(["d1", "nope", "d1"], path)
    assert (report.deleted, report.unknown, report.index_documents) == (1, ["nope"], 4)
    generation = Manifest.read(path).generation
    before = tree(path)
    assert delete_documents(["nope"], path).deleted == 0
    assert Manifest.read(path).generation == generation
    assert tree(path) == before  # no staging folder that the next change would take for an unfinished build
    assert not add(tmp_path, records(1, start=9), unit(1)).notices


def test_counts_of_windowed_and_empty_documents_survive_changes(tmp_path: Path) -> None:
    """A fake encoder of one passage a word: documents of several passages, and of none."""
    corpus = tmp_path / "c.jsonl"

    def write(*texts: str) -> None:
        lines = [json.dumps({"_id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts)]
        corpus.write_text("".join(lines))

    write("a b c", "", "d e", " ", "f")
    build_index(corpus, tmp_path / "index", encoder=WordEncoder())
    delete_documents(["d0", "d1"], tmp_path / "index")
    manifest = Manifest.read(tmp_path / "index")
    assert (manifest.documents, manifest.passages, manifest.empty) == (3, 4, 1)
    write("x", "y z", "", "w")
    report = add_documents(corpus, tmp_path / "index", encoder=WordEncoder(), upsert=True)
    assert (report.replaced, report.index_documents, report.index_passages) == (2, 5, 6)
    assert Manifest.read(tmp_path / "index").empty == 1
    compact_index(tmp_path / "index")
    manifest = Manifest.read(tmp_path / "index")
    assert (manifest.documents, manifest.passages, manifest.empty) == (5, 6, 1)


class WordEncoder:
    dim, metric = DIM, "cosine"
    identity: ClassVar = {"name": "words", "sha256": "0"}
    notices: ClassVar[dict[str, int]] = {}

    def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
        found = [(row, m.start(), m.end()) for row, text in enumerate(texts) for m in re.finditer(r"\w+", text)]
        parent, start, end = (np.array(column, np.int64) for column in zip(*found, strict=True))
        return PassageVectors(parent=parent, start=start, end=end, vectors=unit(len(found)))

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        return unit(len(texts))


def test_a_change_that_discards_an_unfinished_build_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = build(tmp_path, 100)
    monkeypatch.setattr("retrieval.passages.ReadyPassages.part_documents", 10)
    bad = unit(50, 3)
    bad[30] = np.nan
    with pytest.raises(DataError, match="NaN"):
        add(tmp_path, records(50, start=200), bad)
    assert (path / ".building").exists()  # three parts are kept for the next try
    caplog.clear()
    delete_documents(["d1"], path)
    assert "unfinished build of other inputs or settings was discarded" in caplog.text
    assert not (path / ".building").exists()


def test_an_index_replaced_while_the_inputs_were_looked_at_gets_no_vectors_of_another_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path, 20)

    class Slow(DocumentStream):
        def fingerprint(self) -> str | None:
            monkeypatch.undo()
            build(tmp_path, 20, metric="dot")
            return super().fingerprint()

    monkeypatch.setattr("retrieval.indexing.DocumentStream", Slow)
    with pytest.raises(IndexMismatchError, match="was replaced"):
        add(tmp_path, records(1, start=50), unit(1))
    assert Manifest.read(path).documents == 20


def test_the_current_folder_is_no_place_for_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, vectors = write_corpus(tmp_path, records(3), unit(3))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for place in (".", tmp_path / "here"):
        with pytest.raises(ConfigError, match="is the current folder"):
            build_index(corpus, place, vectors=vectors)


def test_a_change_that_finds_nothing_to_do_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    path = build(tmp_path, 20)
    names = sorted(p.relative_to(path) for p in path.rglob("*"))
    for name in ("deleted/000001.npy", "segments/000000/documents.arrow", ".building/build.json"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).touch()
    assert delete_documents(["not there"], path).deleted == 0
    assert sorted(p.relative_to(path) for p in path.rglob("*")) == names


def test_a_mount_point_is_no_place_for_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, vectors = write_corpus(tmp_path, records(3), unit(3))
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda self: self == tmp_path / "disk")
    with pytest.raises(ConfigError, match="is a mount point"):
        build_index(corpus, tmp_path / "disk", vectors=vectors)
    build_index(corpus, tmp_path / "disk" / "index", vectors=vectors)


def test_an_index_can_be_changed_from_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path, 20)
    corpus, vectors = write_corpus(tmp_path, records(3, start=50), unit(3))
    monkeypatch.chdir(path)
    add_documents(corpus, ".", vectors=vectors)
    delete_documents(["d1"], ".")
    compact_index(".")
    assert Manifest.read(path).documents == Manifest.read(Path()).documents
    build_index(corpus, ".", vectors=vectors, overwrite=True)
    assert Manifest.read(path).documents == 3
    assert sorted(p.name for p in path.iterdir()) == ["manifest.json", "segments"]


def test_ivf_is_built_once_there_are_enough_and_small_additions_wait(tmp_path: Path) -> None:
    path = build(tmp_path, 50, index_type="ivf")
    assert Manifest.read(path).approximate is None
    add(tmp_path, records(950, start=50), unit(950, 1))
    first = Manifest.read(path).approximate
    assert first is not None and first.recall_at_10 >= 0.9
    add(tmp_path, records(20, start=2000), unit(20, 2))
    assert Manifest.read(path).approximate == first  # searched exactly beside it
    assert Retriever.open(path).search(unit(20, 2)[3], 1)[0].doc_id == "d2003"
    add(tmp_path, records(200, start=3000), unit(200, 3))
    assert Manifest.read(path).approximate != first


def test_a_reader_keeps_its_generation_and_never_sees_two(tmp_path: Path) -> None:
    """Every document of generation g has the text `g`; an answer with two texts would mix generations."""
    path = tmp_path / "index"
    corpus = tmp_path / "c.jsonl"
    vectors = tmp_path / "c.npy"
    np.save(vectors, unit(200))

    def write(generation: int) -> None:
        corpus.write_text("".join(json.dumps({"_id": f"d{i}", "text": str(generation)}) + "\n" for i in range(200)))

    write(0)
    build_index(corpus, path, vectors=vectors)
    pinned = Retriever.open(path)
    stop, problems = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                hits = Retriever.open(path).search(unit(1, 5)[0], 50)
            except Exception as error:  # any error at all is the finding
                problems.append(repr(error))
                return
            if len({hit.text for hit in hits}) != 1 or len(hits) != 50:
                problems.append({hit.text for hit in hits})

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for generation in range(1, 15):
            write(generation)
            if generation % 3:
                build_index(corpus, path, vectors=vectors, overwrite=True)
            else:
                add_documents(corpus, path, vectors=vectors, upsert=True)
            if generation % 4 == 0:
                compact_index(path)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert {hit.text for hit in pinned.search(unit(1, 5)[0], 50)} == {"0"}


def test_a_place_that_cannot_be_written_is_named_before_any_work(tmp_path: Path) -> None:
    corpus, vectors = write_corpus(tmp_path, records(3), unit(3))
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=r"cannot write .*file"):
        build_index(corpus, tmp_path / "file" / "index", vectors=vectors)
    read_only = tmp_path / "ro"
    read_only.mkdir(mode=0o555)
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    with pytest.raises(DataError, match="permission denied"):
        build_index(corpus, read_only / "index", vectors=vectors)


def test_no_file_of_an_index_is_a_pickle(tmp_path: Path) -> None:
    import pickletools

    path = build(tmp_path, 300, index_type="hnsw")
    delete_documents(["d1"], path)
    for name, data in tree(path).items():
        with pytest.raises(ValueError, match=r".+"):
            list(pickletools.genops(data))
        assert not name.endswith((".pkl", ".pickle", ".pt", ".bin"))


@pytest.mark.parametrize(("rows", "dtype"), [(99, "float32"), (100, "float32"), (101, "float16")])
def test_many_passages_are_kept_as_float16_and_additions_follow(
    tmp_path: Path, rows: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.index.build.FLOAT32_ROWS", 100)
    path = build(tmp_path / "auto", rows, vector_dtype="auto")
    named = build(tmp_path / "named", rows, vector_dtype=dtype)
    assert Manifest.read(path).vector_dtype == dtype
    assert tree(path) == tree(named)
    add(tmp_path / "auto", records(200, start=1000), unit(200, 1))
    compact_index(path)
    assert Manifest.read(path).vector_dtype == dtype


def test_values_that_float16_does_not_hold_stay_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.index.build.FLOAT32_ROWS", 100)
    for length, dtype in ((1e6, "float32"), (10, "float16")):
        corpus, vectors = write_corpus(tmp_path, records(150), length * unit(150))
        settings = IndexSettings(metric="dot")
        build_index(corpus, tmp_path / "index", vectors=vectors, settings=settings, overwrite=True)
        assert Manifest.read(tmp_path / "index").vector_dtype == dtype


def test_a_stopped_build_resumes_with_the_same_bytes_though_the_dtype_was_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.index.build.FLOAT32_ROWS", 100)
    monkeypatch.setattr("retrieval.passages.ReadyPassages.part_documents", 40)
    undisturbed = build(tmp_path / "one", 200, vector_dtype="auto", index_type="hnsw")
    write = Writer.add

    def stopping(self: Writer, *args: Any, **options: Any) -> None:
        if len(self.parts) == 2:
            raise KeyboardInterrupt
        write(self, *args, **options)

    corpus, vectors = write_corpus(tmp_path, records(200), unit(200))
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", stopping)
        with pytest.raises(KeyboardInterrupt):
            build_index(corpus, tmp_path / "index", vectors=vectors, settings=IndexSettings(index_type="hnsw"))
    # Another type and recall are no reason to begin anew: they matter when all vectors are there.
    settings = IndexSettings(index_type="flat", min_recall=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", stopping)
        with pytest.raises(KeyboardInterrupt):
            build_index(corpus, tmp_path / "index", vectors=vectors, settings=settings)
    report = build_index(corpus, tmp_path / "index", vectors=vectors, settings=IndexSettings(index_type="hnsw"))
    assert report.kept == 80
    assert Manifest.read(undisturbed).vector_dtype == "float16"
    assert tree(tmp_path / "index") == tree(undisturbed)


def test_another_index_type_is_one_commit_and_changes_nothing_else(tmp_path: Path) -> None:
    build(tmp_path, 2000, vector_dtype="float16")
    path = tmp_path / "index"
    delete_documents([f"d{i}" for i in range(100)], path)
    add(tmp_path, records(50, start=5000), unit(50, 8))
    before, exact = Manifest.read(path), answers(path, 10)
    manifest = optimize_index(path, index_type="hnsw", min_recall=0.95, memory_limit=10**9)
    assert manifest == Manifest.read(path)
    assert (manifest.index_type, manifest.min_recall, manifest.memory_limit) == ("hnsw", 0.95, 10**9)
    same = ("segments", "documents", "passages", "empty", "vector_dtype", "encoder", "text", "lexical", "fusion")
    assert all(getattr(manifest, name) == getattr(before, name) for name in same)
    assert manifest.generation == before.generation + 1
    assert manifest.approximate is not None and manifest.approximate.recall_at_10 >= 0.95
    assert set(tree(path)) == {"manifest.json", *(file.path for file in manifest.files())}
    assert Index.open(path, verify=True).deleted_rows.size == 100
    hits = [({h[0] for h in a}, {h[0] for h in b}) for a, b in zip(answers(path, 10), exact, strict=True)]
    assert sum(len(a & b) for a, b in hits) >= 0.9 * 150
    add(tmp_path, records(900, start=7000), unit(900, 9))  # made anew, by the same rules
    grown = Manifest.read(path)
    assert grown.approximate is not None and len(grown.approximate.segments) == 3
    assert (grown.min_recall, grown.memory_limit) == (0.95, 10**9)
    optimize_index(path, index_type="flat")
    delete_documents([f"d{i}" for i in range(7000, 7900)], path)
    assert answers(path, 10) == exact
    assert not (path / "ann").exists()


def test_a_change_of_type_that_fails_leaves_the_index_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path, 300, index_type="hnsw")
    before = tree(path)
    with pytest.raises(ConfigError, match="--index-type best"):
        optimize_index(path, index_type="best")
    with pytest.raises(ConfigError, match="--min-recall 2"):
        optimize_index(path, min_recall=2)
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "write", lambda *_: 1 / 0)  # as if it died before the commit
        with pytest.raises(ZeroDivisionError):
            optimize_index(path, index_type="ivf")
    assert Index.open(path).manifest.index_type == "hnsw"
    assert {name: data for name, data in tree(path).items() if name in before} == before
    optimize_index(path, index_type="hnsw")
    assert answers(path) and not (path / ".building").exists()


def test_a_manifest_of_an_earlier_release_opens_and_its_search_is_what_it_was(tmp_path: Path) -> None:
    path = build(tmp_path, 500, index_type="hnsw")
    manifest = path / "manifest.json"
    body = json.loads(manifest.read_bytes())
    del body["min_recall"], body["memory_limit"], body["approximate"]["parameters"]["candidates"], body["checksum"]
    body["checksum"] = _checksum(body)
    manifest.write_text(json.dumps(body))
    index = Index.open(path)
    assert (index.manifest.min_recall, index.manifest.memory_limit) == (0.99, None)
    assert "0.99 asked for" in index.facts(verified=False)["recall@10"]
    assert answers(path, 5) and delete_documents(["d1"], path).deleted == 1

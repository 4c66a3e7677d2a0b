"""Keeping an index up to date with folders of files: what is encoded, what is deleted, what stays."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from retrieval import (
    BiEncoder,
    ConfigError,
    DataError,
    DocumentSettings,
    Retriever,
    add_documents,
    build_index,
    compact_index,
    delete_documents,
    documents,
    preview_sync,
    sync_documents,
)
from retrieval.chunking import PassageVectors
from retrieval.cli import main
from retrieval.index.manifest import Manifest
from retrieval.index.reader import Index


class Counting:
    """An encoder that notes what it encodes, and may fail after so many calls."""

    def __init__(self, encoder: BiEncoder) -> None:
        self._encoder = encoder
        self.texts: list[str] = []
        self.calls_left: int | None = None
        self.dim, self.metric, self.notices = encoder.dim, encoder.metric, encoder.notices
        self.identity = encoder.identity

    def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
        if self.calls_left == 0:
            raise KeyboardInterrupt
        self.calls_left = None if self.calls_left is None else self.calls_left - 1
        self.texts += texts
        return self._encoder.encode_documents(titles, texts)

    def encode_queries(self, texts: Sequence[str], **options: Any) -> Any:
        return self._encoder.encode_queries(texts, **options)


@pytest.fixture
def encoder(tiny: Any) -> Counting:
    return Counting(BiEncoder.load(tiny("mean")))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for number in range(12):
        path = root / f"sub{number % 3}" / f"f{number:02d}.ini"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# file {number}\nvalue = {number * 37 % 11}\n")
    (root / "guide.md").write_text("# Guide\n\nBefore.\n\n## Install\n\nRun it.\n\n## Use\n\nCall it.\n")
    (root / "empty.txt").write_text("")
    (root / "vendored").mkdir()
    (root / "vendored/x.c").write_text("int x;")
    return root


@pytest.fixture
def others(tmp_path: Path) -> Path:
    records = [{"id": f"d{n}", "text": f"Note {n}: level {n}.", "year": 2000 + n} for n in range(3)]
    records.append({"id": "dd", "text": "with a digest", "digest": "0" * 64})
    path = tmp_path / "others.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def answers(path: Path, encoder: Counting) -> list[list[dict[str, object]]]:
    queries = ["value = 4", "Run it.", "Note 2: level 2.", "guide", "changed"]
    retriever = Retriever.open(path, encoder=encoder)  # type: ignore[arg-type]
    return [[hit.to_dict() for hit in retriever.search(query, 100)] for query in queries]


def change(tree: Path) -> None:
    """Two files with other bytes, one new, one gone, one moved, one touched, one that is no text any more."""
    (tree / "sub0/f00.ini").write_text("# changed\n")
    (tree / "guide.md").write_text((tree / "guide.md").read_text().replace("Call it.", "Call it twice."))
    (tree / "sub1/new.ini").write_text("# new\n")
    (tree / "sub2/f02.ini").unlink()
    (tree / "sub2/f05.ini").rename(tree / "moved.ini")
    (tree / "sub1/f01.ini").touch()
    (tree / "sub1/f04.ini").write_bytes(b"\0")


def test_a_sync_encodes_what_changed_and_ends_where_a_fresh_build_does(
    tree: Path, others: Path, tmp_path: Path, encoder: Any
) -> None:
    build_index([tree], tmp_path / "index", encoder=encoder)
    change(tree)
    build_index([tree], tmp_path / "fresh", encoder=encoder)
    encoder.texts.clear()
    report = sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert (report.unchanged, report.replaced, report.vanished) == (8, 2, 3)
    assert (report.documents, report.index_documents) == (4, 12)
    assert sorted(text.strip() for text in encoder.texts) == [
        "# Guide\n\nBefore.", "# changed", "# file 5\nvalue = 9", "# new", "## Install\n\nRun it.",
        "## Use\n\nCall it twice.",
    ]  # fmt: skip
    assert report.skipped_files == {"empty": 1, "binary": 1, "vendored folder": 1}
    assert Manifest.read(tmp_path / "index").generation == 2  # one commit
    expected = answers(tmp_path / "fresh", encoder)
    assert answers(tmp_path / "index", encoder) == expected
    compact_index(tmp_path / "index")
    assert answers(tmp_path / "index", encoder) == expected
    assert all("digest" not in hit["metadata"] for hits in expected for hit in hits)  # type: ignore[operator]


def test_nothing_changed_means_nothing_is_done(tree: Path, tmp_path: Path, encoder: Any) -> None:
    build_index(tree, tmp_path / "index", encoder=encoder)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "index").rglob("*") if path.is_file()}
    encoder.texts.clear()
    report = sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert (report.unchanged, report.documents, report.vanished, encoder.texts) == (13, 0, 0, [])
    assert report.index_documents == 13
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "index").rglob("*") if path.is_file()}
    assert {path: when for path, when in after.items() if path.name != ".lock"} == before


def test_a_file_in_which_nothing_is_to_be_seen_does_not_stop_a_sync(tree: Path, tmp_path: Path, encoder: Any) -> None:
    nothing = {"a.txt": "\u200b\n", "b.py": "\ufeff\x07", "c.html": "<p>&shy;</p>", "d.md": "\u0301"}
    for name, text in nothing.items():
        (tree / name).write_text(text)
    build_index(tree, tmp_path / "index", encoder=encoder)
    (tree / "b.py").write_text("x = 1\n")
    (tree / "d.md").unlink()
    report = sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert (report.unchanged, report.documents, report.vanished) == (13, 1, 1)
    assert report.skipped_files["empty"] == 3


def test_files_that_only_vanished(tree: Path, tmp_path: Path, encoder: Any) -> None:
    build_index(tree, tmp_path / "index", encoder=encoder)
    shutil.rmtree(tree / "sub0")
    report = sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert (report.unchanged, report.vanished, report.index_documents) == (9, 4, 9)
    report = sync_documents(
        tree, tmp_path / "index", encoder=encoder, documents=DocumentSettings(exclude=("*.md",), include=("vendored/",))
    )
    assert (report.unchanged, report.vanished, report.documents) == (8, 1, 1)  # what is chosen now counts


def test_a_sync_that_would_delete_too_much_is_refused_before_anything_is_encoded(
    tree: Path, tmp_path: Path, encoder: Any
) -> None:
    index, other = tmp_path / "index", tmp_path / "other"
    other.mkdir()
    (other / "o.txt").write_text("other")
    build_index([tree, other], index, encoder=encoder)
    (tree / "sub0/guide.md").write_text("# Guide\n")  # a sub-folder with a file of the same name
    (tree / "sub0/new.md").write_text("# New\n")
    encoder.texts.clear()
    cases = (
        (
            tree / "sub0",
            {},
            r"13 documents of 14 .*no file of sub0 .*made of other and tree: give all of them, or --max-deletes 13 ",
        ),
        (tree, {}, "1 document of 14 .*made of other and tree"),
        (
            [tree, other],
            {"documents": DocumentSettings(exclude=("sub*/",))},
            r"12 documents of 14 .* --max-deletes 12 .*dry-run",
        ),
        ([tree, other], {"documents": DocumentSettings(exclude=("sub0/",)), "max_deletes": 3}, "4 documents of 14 "),
    )
    for folders, options, why in cases:
        preview = preview_sync(folders, index, **options)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=why) as caught:
            sync_documents(folders, index, encoder=encoder, **options)  # type: ignore[arg-type]
        assert preview.refusal == str(caught.value)
    assert encoder.texts == [] and Manifest.read(index).generation == 1
    report = sync_documents(tree, index, encoder=encoder, max_deletes=1)
    assert (report.vanished, report.documents) == (1, 2)
    assert sync_documents(tree, index, encoder=encoder).unchanged == 15  # now it is made of this one


def test_what_only_reading_shows_to_be_gone_counts_too(tree: Path, tmp_path: Path, encoder: Any) -> None:
    build_index(tree, tmp_path / "index", encoder=encoder)
    for path in tree.glob("sub*/*"):
        path.write_bytes(b"\0")
    with pytest.raises(ConfigError, match="12 documents of 13 would be deleted"):
        sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert Manifest.read(tmp_path / "index").generation == 1


def test_each_folder_is_read_by_the_patterns_it_was_built_with(tree: Path, tmp_path: Path, encoder: Any) -> None:
    index, other = tmp_path / "index", tmp_path / "other"
    other.mkdir()
    for name in ("a.ini", "b.md", "c.md"):
        (other / name).write_text(f"value = {name}")
    build_index(tree, index, encoder=encoder, documents=DocumentSettings(exclude=("*.md", "sub1/")))
    add_documents(other, index, encoder=encoder, documents=DocumentSettings(exclude=("*.ini",)))
    report = sync_documents([other, tree], index, encoder=encoder)
    assert (report.unchanged, report.vanished, report.documents) == (10, 0, 0)
    without = DocumentSettings(exclude=("b.md", "sub1/"))
    preview = preview_sync([tree, other], index, documents=without)
    assert (preview.new, preview.changed, preview.vanished) == (["a.ini", "guide.md"], [], ["b.md"])
    assert preview.unchanged == 9 and preview.refusal is None
    report = sync_documents(
        [tree, other], index, encoder=encoder, documents=DocumentSettings(exclude=("b.md", "sub1/"))
    )
    assert (report.unchanged, report.vanished, report.documents) == (9, 1, 2)
    (tree / "b.md").write_text("still left out")
    assert sync_documents([tree, other], index, encoder=encoder).unchanged == 11


def test_an_index_that_knows_no_folders_can_be_synced(tree: Path, tmp_path: Path, encoder: Any) -> None:
    build_index(tree, tmp_path / "index", encoder=encoder)
    replace(Manifest.read(tmp_path / "index"), trees=None).write(tmp_path / "index")  # as an earlier release made it
    (tree / "sub0/f00.ini").unlink()
    with pytest.raises(ConfigError, match=r"does not say which folders it was made of: give all .* --max-deletes 1 "):
        sync_documents(tree, tmp_path / "index", encoder=encoder)
    report = sync_documents(tree, tmp_path / "index", encoder=encoder, max_deletes=1)
    assert (report.vanished, report.unchanged) == (1, 12)
    assert any("from now on it does" in notice for notice in report.notices)
    (known,) = Manifest.read(tmp_path / "index").trees or []
    assert (known.name, known.include, known.exclude) == ("tree", [], [])


def test_a_file_that_was_given_by_itself_stays(tree: Path, tmp_path: Path, encoder: Any) -> None:
    (tmp_path / "note.md").write_text("by itself")
    build_index([tree, tmp_path / "note.md"], tmp_path / "index", encoder=encoder)
    report = sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert (report.unchanged, report.vanished, report.index_documents) == (13, 0, 14)


def test_folders_of_one_name_are_told_apart_by_their_places(tmp_path: Path, encoder: Any) -> None:
    first, second, index = tmp_path / "x/src", tmp_path / "y/src", tmp_path / "index"
    for folder, names in ((first, "abcde"), (second, "pq")):
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.md").write_text(f"text {name}")
    build_index(first, index, encoder=encoder, documents=DocumentSettings(exclude=("e.md",)))
    add_documents(second, index, encoder=encoder, documents=DocumentSettings(exclude=("a.md", "q.md")))
    preview = preview_sync([second, first], index)
    assert (preview.new, preview.vanished, preview.notices, preview.refusal) == ([], [], [], None)
    with pytest.raises(ConfigError, match=r"1 document of 5 .*made of src and src: give all"):
        sync_documents(first, index, encoder=encoder)
    shutil.copytree(tmp_path / "x", tmp_path / "moved/x")  # now nothing tells them apart
    shutil.copytree(tmp_path / "y", tmp_path / "moved/y")
    preview = preview_sync([tmp_path / "moved/x/src", tmp_path / "moved/y/src"], index)
    assert preview.new == ["e.md", "q.md"] and "given now: src and src" in preview.notices[0]


def test_a_folder_that_moved_or_has_another_name_is_read_as_before(tree: Path, tmp_path: Path, encoder: Any) -> None:
    index = tmp_path / "index"
    build_index(tree, index, encoder=encoder, documents=DocumentSettings(exclude=("*.md",)))
    moved = tree.rename(tmp_path / "elsewhere")
    (moved / "sub0/f00.ini").unlink()
    preview = preview_sync(moved, index)
    assert (preview.new, preview.vanished) == ([], ["sub0/f00.ini"])
    assert preview.refusal is not None and "made of tree: give all" in preview.refusal
    assert preview.notices == ["the index was made of tree; given now: elsewhere"]
    (tmp_path / "deep").mkdir()
    moved = moved.rename(tmp_path / "deep/tree")
    preview = preview_sync(moved, index)
    assert (preview.new, preview.vanished, preview.refusal, preview.notices) == ([], ["sub0/f00.ini"], None, [])


def test_what_other_patterns_change_is_said(tree: Path, tmp_path: Path, encoder: Any) -> None:
    index = tmp_path / "index"
    (tree / "made.ini").write_text("# @generated\nvalue = 1\n")
    wanted = DocumentSettings(include=("made.ini",), exclude=("sub0/",))
    build_index(tree, index, encoder=encoder, documents=wanted)
    other = DocumentSettings(exclude=("guide.md",))
    said = "files of tree are chosen by --exclude 'guide.md'; before: --include 'made.ini' --exclude 'sub0/'"
    assert preview_sync(tree, index, documents=other).notices == [said]
    report = sync_documents(tree, index, encoder=encoder, documents=other)
    assert said in report.notices and (report.documents, report.vanished) == (4, 2)  # made.ini is generated
    (tree / "guide.md").write_text("# Another\n")
    report = add_documents(tree, index, encoder=encoder, upsert=True, documents=wanted)
    assert "--sync will choose files of tree by --exclude 'guide.md', as before" in report.notices


def test_an_id_in_two_folders_is_refused_before_and_after(tmp_path: Path, encoder: Any) -> None:
    folders, index = [tmp_path / "p", tmp_path / "q"], tmp_path / "index"
    for folder in folders:
        folder.mkdir()
    (folders[0] / "a.md").write_text("a")
    (folders[1] / "c.md").write_text("c")
    build_index(folders, index, encoder=encoder)
    for text in ("other", "a"):  # other bytes, and the same
        (folders[1] / "a.md").write_text(text)
        with pytest.raises(DataError, match=r"id 'a\.md' is in two of the folders"):
            preview_sync(folders, index)
        with pytest.raises(DataError, match=r"id 'a\.md' is in two of the folders"):
            sync_documents(folders, index, encoder=encoder)


def test_documents_from_elsewhere_stay(tree: Path, others: Path, tmp_path: Path, encoder: Any) -> None:
    build_index([others, tree], tmp_path / "index", encoder=encoder)
    change(tree)
    report = sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert (report.unchanged, report.replaced, report.vanished, report.index_documents) == (8, 2, 3, 16)
    stored = {batch["doc_id"][row].as_py() for batch in Index.open(tmp_path / "index").documents()
              for row in range(batch.num_rows)}  # fmt: skip
    assert {"d0", "d1", "d2", "dd"} < stored
    (tree / "d1").write_text("now a file")
    before = Manifest.read(tmp_path / "index").generation
    with pytest.raises(DataError, match="id 'd1' is already in the index"):
        sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert Manifest.read(tmp_path / "index").generation == before


def test_a_killed_sync_leaves_the_old_index_and_goes_on(
    tree: Path, tmp_path: Path, encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index(tree, tmp_path / "index", encoder=encoder)
    expected = answers(tmp_path / "index", encoder)
    change(tree)
    monkeypatch.setattr("retrieval.passages.EncodedPassages.part_documents", 1)
    encoder.calls_left = 2
    with pytest.raises(KeyboardInterrupt):
        sync_documents(tree, tmp_path / "index", encoder=encoder)
    encoder.calls_left = None
    assert answers(tmp_path / "index", encoder) == expected
    report = sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert (report.kept, report.documents, report.unchanged, report.replaced, report.vanished) == (2, 4, 8, 2, 3)
    build_index(tree, tmp_path / "fresh", encoder=encoder)
    assert answers(tmp_path / "index", encoder) == answers(tmp_path / "fresh", encoder)


def test_what_cannot_be_synced_is_refused_and_changes_nothing(
    tree: Path, others: Path, tmp_path: Path, encoder: Any
) -> None:
    build_index(tree, tmp_path / "index", encoder=encoder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.txt").write_text("x")
    with pytest.raises(DataError, match=r"no file of .*other is in the index"):
        sync_documents(tmp_path / "other", tmp_path / "index", encoder=encoder)
    with pytest.raises(ConfigError, match=r"others.jsonl is no folder of files"):
        sync_documents([tree, others], tmp_path / "index", encoder=encoder)
    (tmp_path / "twin").mkdir()
    shutil.copy(tree / "guide.md", tmp_path / "twin/guide.md")
    (tree / "guide.md").write_text("# Other\n")
    with pytest.raises(DataError, match=r"id .guide\.md. is in two of the folders"):
        sync_documents([tree, tmp_path / "twin"], tmp_path / "index", encoder=encoder)
    build_index(others, tmp_path / "plain", encoder=encoder)
    with pytest.raises(DataError, match=r"no file of .*tree is in the index"):
        sync_documents(tree, tmp_path / "plain", encoder=encoder)
    assert Manifest.read(tmp_path / "index").generation == Manifest.read(tmp_path / "plain").generation == 1
    delete_documents(["guide.md"], tmp_path / "index")
    assert sync_documents(tree, tmp_path / "index", encoder=encoder).documents == 1  # a deleted one is new


def test_what_became_a_link_or_a_pipe_while_the_tree_was_read_is_left_out(
    tree: Path, tmp_path: Path, encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index(tree, tmp_path / "index", encoder=encoder)
    (tmp_path / "secret.txt").write_text("of another folder")
    read = documents.read_bytes

    def reading(path: str, **options: Any) -> Any:
        for name, change in (("sub1/f01.ini", lambda file: file.symlink_to(tmp_path / "secret.txt")),
                             ("sub2/f02.ini", os.mkfifo), ("sub2/f05.ini", Path.mkdir)):  # fmt: skip
            if path == str(tree / name):
                Path(path).unlink()
                change(Path(path))
        return read(path, **options)

    monkeypatch.setattr(documents, "read_bytes", reading)
    report = sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert report.vanished == 3 and report.documents == 0
    skipped = {"symbolic link": 1, "not a regular file": 1, "is a directory": 1, "empty": 1, "vendored folder": 1}
    assert report.skipped_files == skipped
    monkeypatch.undo()
    link = tmp_path / "link.txt"  # that the user named
    link.symlink_to(tmp_path / "secret.txt")
    assert build_index(link, tmp_path / "named", encoder=encoder).documents == 1


def test_an_emptied_tree_is_refused_with_the_remedy(tree: Path, tmp_path: Path, encoder: Any) -> None:
    build_index(tree, tmp_path / "index", encoder=encoder)
    shutil.rmtree(tree)
    tree.mkdir()
    with pytest.raises(DataError, match=r"no file of .*tree is in the index; .*build-index --overwrite"):
        sync_documents(tree, tmp_path / "index", encoder=encoder)


def found_where(path: Path, where: str, encoder: Counting) -> set[str]:
    hits = Retriever.open(path, encoder=encoder).search("value", 100, where=where)  # type: ignore[arg-type]
    return {hit.doc_id for hit in hits}


def test_files_are_filtered_by_their_language_beside_records_that_have_one(
    tree: Path, tmp_path: Path, encoder: Any
) -> None:
    (tree / "a.py").write_text("value = 1\n")
    (tree / "notes.txt").write_text("of no language\n")
    (tmp_path / "more.jsonl").write_text('{"id": "r", "text": "value", "lang": "python"}\n{"id": "s", "text": "x"}\n')
    build_index([tree, tmp_path / "more.jsonl"], tmp_path / "index", encoder=encoder)
    assert found_where(tmp_path / "index", "lang = 'python'", encoder) == {"a.py", "r"}
    assert found_where(tmp_path / "index", "lang is null", encoder) == {"notes.txt", "s"}
    assert found_where(tmp_path / "index", "lang = 'markdown'", encoder) == {"guide.md"}


def test_an_index_of_before_there_was_a_language_is_kept_up_to_date(
    tree: Path, tmp_path: Path, encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_batch = documents._TreeBatch.documents

    def without_language(batch: documents._TreeBatch) -> Any:
        found = of_batch(batch)
        return replace(found, batch=found.batch.drop_columns("lang"))

    with monkeypatch.context() as older:
        older.setattr(documents._TreeBatch, "documents", without_language)
        build_index(tree, tmp_path / "index", encoder=encoder)
    with pytest.raises(DataError, match="no column is called lang"):
        found_where(tmp_path / "index", "lang = 'markdown'", encoder)
    change(tree)
    report = sync_documents(tree, tmp_path / "index", encoder=encoder)
    assert (report.unchanged, report.replaced, report.vanished) == (8, 2, 3)
    for _ in range(2):
        assert found_where(tmp_path / "index", "lang = 'markdown'", encoder) == {"guide.md"}
        assert len(found_where(tmp_path / "index", "lang is null", encoder)) == 8
        compact_index(tmp_path / "index")


def test_the_command(tree: Path, tmp_path: Path, tiny: Any) -> None:
    def retrieve(*arguments: object) -> Any:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    assert retrieve("build-index", tree, tmp_path / "index", "--model", tiny("mean")).exit_code == 0
    change(tree)
    shown = retrieve("add", "--sync", "--dry-run", tree, tmp_path / "index")
    assert shown.stdout.splitlines() == [
        "new moved.ini", "new sub1/new.ini", "changed guide.md", "changed sub0/f00.ini",
        "vanished sub1/f04.ini", "vanished sub2/f02.ini", "vanished sub2/f05.ini",
    ]  # fmt: skip
    assert shown.stderr.splitlines()[-2:] == ["files: 8 unchanged, 2 new, 2 changed, 3 vanished", "nothing was changed"]
    listed = json.loads(retrieve("add", "--sync", "--dry-run", "--json", tree, tmp_path / "index").stdout)
    assert (listed["changed"], listed["refusal"]) == (["guide.md", "sub0/f00.ini"], None)
    assert retrieve("add", "--dry-run", tree, tmp_path / "index").exit_code == 2
    done = retrieve("add", "--sync", tree, tmp_path / "index", "--json")
    assert done.exit_code == 0, done.output
    assert "files: 8 unchanged, 2 changed, 3 vanished, 2 new" in done.stderr.splitlines()
    assert json.loads(done.stdout)["vanished"] == 3
    refused = retrieve("add", "--sync", "--upsert", tree, tmp_path / "index")
    assert refused.exit_code == 2
    assert "it does not go with --upsert" in refused.stderr

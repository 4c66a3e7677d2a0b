"""Judgements: what is read, what is refused and where."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pytest

from retrieval.errors import DataError
from retrieval.qrels import read_beir_qrels, read_qrels


@pytest.fixture
def put(tmp_path: Path):
    def put(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.tsv.*[Nn]o such file"):
        read_qrels(tmp_path / "nowhere.tsv")
    with pytest.raises(DataError, match="directory"):
        read_qrels(tmp_path)


def test_trec_judgements_keep_their_grades(put):
    content = b"q1\t0\td1\t1\t\r\nq1  0   d2    -1\r\n\r\nq2 0 d3 2.0   \nq2\t 0 \td4 0"
    assert read_qrels(put("qrels.txt", content)) == {"q1": {"d1": 1, "d2": -1}, "q2": {"d3": 2, "d4": 0}}


def test_beir_judgements_have_a_header_and_tabs(put):
    content = "\ufeffquery-id\tcorpus-id\tscore\r\nq1\ta file.txt\t1\r\nq2\td\t0\r\n"
    expected = {"q1": {"a file.txt": 1}, "q2": {"d": 0}}
    put("beir/qrels/dev.tsv.gz", gzip.compress(content.encode()))
    put("beir/qrels/test.tsv", content)
    folder = put("beir/qrels/notes.txt", "x").parent.parent
    assert read_beir_qrels(folder, "test") == expected
    assert read_beir_qrels(str(folder), "dev") == expected
    with pytest.raises(DataError, match=r"'train'.*: dev, test$"):
        read_beir_qrels(folder, "train")
    with pytest.raises(DataError, match=r"'test'.*: none$"):
        read_beir_qrels(folder / "qrels", "test")


def test_an_exact_repeat_counts_once_and_a_conflict_is_refused(put, caplog):
    path = put("qrels", "q 0 d 1\nq 0 e 0\nq 0 d 1.0\nq 0 d 1\np 0 d 2\n")
    with caplog.at_level(logging.WARNING):
        assert read_qrels(path) == {"q": {"d": 1, "e": 0}, "p": {"d": 2}}
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 2 lines repeat an earlier judgement; each was taken once"
    ]
    with pytest.raises(DataError, match=r"lines 1 and 3 .*'d'.*'q'.*grades 1 and 0"):
        read_qrels(put("qrels", "q 0 d 1\np 0 d 1\nq 0 d 0\n"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("q 0 d 1\nq 0 e 0.5\n", ["line 2", "'0.5'", "whole number"]),
        ("q 0 d nan\n", ["line 1", "'nan'"]),
        ("q 0 d inf\n", ["line 1", "'inf'"]),
        ("q 0 d yes\n", ["line 1", "'yes'"]),
        ("q 0 d 1\nq 0 d\n", ["line 2", "query_id 0 doc_id grade"]),
        ("q\td\t1\n", ["line 1", "query-id<TAB>corpus-id<TAB>score"]),
        ("query-id\tcorpus-id\tscore\nq\td\n", ["line 2", "query-id<TAB>corpus-id<TAB>score"]),
        ("query-id\tcorpus-id\tscore\n\td\t1\n", ["line 2"]),
        ("query-id\tcorpus-id\tscore\n", ["no judgements"]),
        ("", ["no judgements"]),
    ],
)
def test_unusable_judgements_are_refused_with_their_place(put, content, words):
    with pytest.raises(DataError) as caught:
        read_qrels(put("qrels.tsv", content))
    for word in [*words, "qrels.tsv"]:
        assert word in str(caught.value)

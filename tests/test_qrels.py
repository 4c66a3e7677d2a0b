"""Judgements: what is read, what is refused and where."""

from __future__ import annotations

import gzip
import json
import logging
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retrieval.errors import DataError
from retrieval.qrels import read_qrels


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
    assert read_qrels(put("dev.tsv.gz", gzip.compress(content.encode()))) == expected
    assert read_qrels(put("test.tsv", content)) == expected


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
        ("qid\td\t1\n", ["line 1", "query-id<TAB>corpus-id<TAB>score"]),
        ("q 0 d \u0661\n", ["line 1", "whole number"]),
        ("q Q0 d 1 2.0 s\n", ["line 1", "query_id 0 doc_id grade"]),
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


def test_ids_are_kept_as_trec_eval_keeps_them(put):
    content = "q 0 a\x1cb 1\nq 0 c\u00a0d 2\n{ 0 007 3\n"
    assert read_qrels(put("qrels", content)) == {"q": {"a\x1cb": 1, "c\u00a0d": 2}, "{": {"007": 3}}
    assert read_qrels(put("qrels", "{ 0 007 3\n")) == {"{": {"007": 3}}


# ---------------------------------------------------------------- JSON and Parquet


_EXPECTED = {"1": {"d": 2, "7": -1}, "2": {"d": 0}}


@pytest.mark.parametrize(
    ("names", "suffix"),
    [
        (("query_id", "doc_id", "relevance"), ".jsonl"),
        (("qid", "docno", "label"), ".ndjson"),
        (("query-id", "corpus-id", "score"), ".json"),
        (("q_id", "doc_id", "grade"), ""),
        (("query_id", "passage_id", "rel"), ".txt"),
    ],
)
def test_jsonl_is_read(put, names, suffix):
    rows = [("1", "d", 2), (1, 7, -1.0), ("2", "d", 0)]
    content = "\n\n".join(json.dumps(dict(zip(names, row, strict=True)) | {"source": "x"}) for row in rows).encode()
    for name, data in {
        f"qrels{suffix}": b"\xef\xbb\xbf" + content,
        f"qrels{suffix}.gz": gzip.compress(content),
        f"qrels{suffix}.zst": pa.compress(content, "zstd", asbytes=True),
    }.items():
        qrels = read_qrels(put(name, data))
        assert qrels == _EXPECTED
        assert all(type(grade) is int for grades in qrels.values() for grade in grades.values())


def test_one_json_object_is_read(put, caplog):
    assert read_qrels(put("a.json", '{"1": {"d": 2, "7": -1.0}, "2": {"d": 0}}')) == _EXPECTED
    path = put("a.json", '{"1": {"d": 2, "7": -1, "d": 2}, "2": {"d": 0}, "3": {}, "2": {"d": 0}}')
    with caplog.at_level(logging.WARNING):
        assert read_qrels(path) == _EXPECTED
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 2 entries repeat an earlier judgement; each was taken once",
        f"{path}: left out: 1 query without a judgement",
    ]


@pytest.mark.parametrize("kind", [pa.float64(), pa.int8(), pa.int64(), pa.decimal128(25, 2)])
def test_parquet_is_read(tmp_path, kind):
    columns = {"query-id": ["1", "1", "2"], "corpus-id": ["d", "7", "d"], "score": pa.array([2, -1, 0]).cast(kind)}
    pq.write_table(pa.table(columns), tmp_path / "test.parquet")
    assert read_qrels(tmp_path / "test.parquet") == _EXPECTED


def _row(**changes):
    return json.dumps({"query_id": "q", "doc_id": "d", "relevance": 1} | changes)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", f"{_row()}\n{_row(doc_id='e', relevance=0.5)}", ["line 2", "0.5", "whole number"]),
        ("a.jsonl", _row(relevance=math.inf), ["line 1", "inf", "whole number"]),
        ("a.jsonl", _row(relevance=math.nan), ["line 1", "'relevance' is nan", "number"]),
        ("a.jsonl", _row(relevance=True), ["line 1", "'relevance' is True", "number"]),
        ("a.jsonl", _row(relevance="1"), ["line 1", "'relevance' is '1'", "number"]),
        ("a.jsonl", _row(doc_id=1.5), ["line 1", "'doc_id' is 1.5"]),
        ("a.jsonl", f"{_row()}\n\n{_row(relevance=2)}", ["lines 1 and 3", "'d'", "'q'", "grades 1 and 2"]),
        ("a.jsonl", '{"query_id": "q", "doc_id": "d"}', ["line 1", "no relevance / grade", "query_id, doc_id"]),
        ("a.jsonl", "\n", ["no judgements"]),
        ("a.json", '{"q": {"d": 0.5}}', ["query 'q'", "document 'd'", "0.5", "whole number"]),
        ("a.json", '{"q": {"d": 1, "d": 2}}', ["'q'", "'d'", "grades 1 and 2"]),
        ("a.json", '{"q": {"d": 1}, "q": {"d": 2}}', ["'q'", "'d'", "grades 1 and 2"]),
        ("a.json", '{"q": {"d": "1"}}', ["query 'q'", "document 'd'", "'1'", "number"]),
        ("a.json", '{"q": {}}', ["no judgements"]),
        ("a.json", "{}", ["no judgements"]),
    ],
)
def test_unusable_json_is_refused_with_its_place(put, name, content, words):
    with pytest.raises(DataError) as caught:
        read_qrels(put(name, content))
    for word in [*words, name]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("grades", "words"),
    [
        ([1, 2, 0.5], ["row 3", "0.5", "whole number"]),
        ([1, None, 1], ["row 2", "'label' is null"]),
        ([1, 1, 2], ["rows 1 and 3", "'d'", "'q'", "grades 1 and 2"]),
    ],
)
def test_unusable_parquet_is_refused_with_its_row(tmp_path, grades, words):
    table = pa.table({"qid": ["q", "q", "q"], "docid": ["d", "e", "d"], "label": grades})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError) as caught:
        read_qrels(tmp_path / "a.parquet")
    for word in [*words, "a.parquet"]:
        assert word in str(caught.value)

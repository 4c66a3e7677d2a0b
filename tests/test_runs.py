"""Queries, runs and judgements: what is read, what is refused, and that a written run keeps its order."""

from __future__ import annotations

import gzip
import io
import logging
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.errors import ConfigError, DataError
from retrieval.runs import read_beir_qrels, read_lines, read_qrels, read_queries, read_run, write_run


@pytest.fixture
def put(tmp_path: Path):
    def put(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put


# ---------------------------------------------------------------- queries


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("q.jsonl", '{"_id": "b", "text": "x"}\n{"_id": "a", "text": "y"}', {"b": "x", "a": "y"}),
        ("q.jsonl", '{"qid": 7, "question": "x"}\n\n', {"7": "x"}),
        ("q.jsonl", '{"id": "007", "query": "x", "metadata": {"id": 1}}\n', {"007": "x"}),
        ("q.jsonl", '{"query_id": 9007199254740993, "text": null}\n', {"9007199254740993": ""}),
        ("q.jsonl", b'\xef\xbb\xbf{"id": 1, "text": "x"}\r\n{"id": 2, "text": ""}\r\n', {"1": "x", "2": ""}),
        ("q.jsonl", '{"_id": "a", "text": "one\u2028two\u0085three"}\n', {"a": "one\u2028two\u0085three"}),
        ("q.tsv", '1\ta 3" bolt\n2\t"open quote\n3\tx', {"1": 'a 3" bolt', "2": '"open quote', "3": "x"}),
        ("q.tsv", "qid\tquery\n1\tx\n", {"1": "x"}),
        ("q.tsv", "_id\tlang\ttext\n1\ten\tx\r\n2\tde\ty\r\n", {"1": "x", "2": "y"}),
        ("q.tsv", "a\t\nb\ty\n", {"a": "", "b": "y"}),
        ("queries", '{"_id": "a", "text": "x"}\n', {"a": "x"}),
        ("queries", "a\tx\n", {"a": "x"}),
    ],
)  # fmt: skip
def test_queries_are_read_in_order(put, name, content, expected):
    queries = read_queries(put(name, content))
    assert list(queries.items()) == list(expected.items())


def test_queries_are_read_compressed_and_from_a_stream(put):
    lines = b'{"_id": "a", "text": "x"}\n'
    assert read_queries(put("q.jsonl.gz", gzip.compress(lines))) == {"a": "x"}
    stream = io.BytesIO(lines)
    assert read_queries(stream) == {"a": "x"}
    assert not stream.closed


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("q.jsonl", '{"_id": "a", "text": "x"}\n{"_id": "b", "te', ["q.jsonl", "line 2", "column"]),
        ("q.jsonl", '{"_id": "a", "text": "x"}\n\n{"_id": "b", "txt": "x"}', ["line 3", "text", "_id, txt"]),
        ("q.jsonl", '{"docid": "a", "text": "x"}', ["line 1", "query_id", "docid, text"]),
        ("q.jsonl", '{"_id": "a", "text": "x"}\n["a", "x"]', ["line 2", "object"]),
        ("q.jsonl", '{"_id": 1.5, "text": "x"}', ["line 1", "1.5"]),
        ("q.jsonl", '{"_id": true, "text": "x"}', ["line 1", "True"]),
        ("q.jsonl", '{"_id": null, "text": "x"}', ["line 1", "None"]),
        ("q.jsonl", '{"_id": "", "text": "x"}', ["line 1", "empty"]),
        ("q.jsonl", '{"_id": "a", "text": ["x"]}', ["line 1", "text", "string"]),
        ("q.jsonl", '{"_id": "a", "text": "\\ud800"}', ["line 1", "text"]),
        ("q.jsonl", '{"_id": "a", "text": ' + "[" * 100_000, ["line 1"]),
        ("q.jsonl", '{"_id": ' + "1" * 5000 + ', "text": "x"}', ["line 1"]),
        ("q.jsonl", '{"_id": 1, "text": "x"}\n{"_id": "1", "text": "y"}', ["'1'", "lines 1 and 2"]),
        ("q.jsonl", b'{"_id": "a", "text": "x"}\n{"_id": "b", "text": "\xe9"}', ["line 2", "0xe9", "UTF-8"]),
        ("q.tsv", "a\tx\nb\ty\tz\n", ["line 2", "3 cells", "expected 2"]),
        ("q.tsv", "just words\n", ["line 1", "1 cells"]),
        ("q.tsv", "qid\tlang\tscore\n1\ten\t3\n", ["line 1", "header"]),
        ("q.tsv", "qid\tquery\n", ["no queries"]),
        ("q.tsv", "\ta text\n", ["line 1", "empty"]),
        ("q.jsonl", "\n \r\n", ["no queries"]),
        ("q.jsonl", "", ["no queries"]),
        ("q.jsonl.gz", b"no gzip", ["q.jsonl.gz"]),
        ("q.jsonl.gz", gzip.compress(b'{"_id": "a", "text": "x"}\n', mtime=0)[:-9], ["damaged"]),
    ],
)  # fmt: skip
def test_unusable_queries_are_refused_with_their_place(put, name, content, words):
    with pytest.raises(DataError) as caught:
        read_queries(put(name, content))
    for word in [*words, name]:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reader", [read_queries, read_run, read_qrels])
def test_missing_files_and_folders_are_named(reader, tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.tsv.*[Nn]o such file"):
        reader(tmp_path / "nowhere.tsv")
    with pytest.raises(DataError, match="directory"):
        reader(tmp_path)


def test_query_lines():
    stream = io.BytesIO("\ufeffred apple\r\n\n  \n\u2028 blue plum\u0085\n\u200b".encode())
    assert read_lines(stream) == ["red apple", "\u2028 blue plum\u0085", "\u200b"]
    with pytest.raises(DataError, match=r"standard input, line 2: byte 0xe9"):
        read_lines(io.BytesIO(b"fine\ncaf\xe9\n"))
    assert read_lines(io.BytesIO(b"\n\r\n")) == []


# ---------------------------------------------------------------- runs


def test_a_run_of_any_blanks_and_order_is_read(put):
    content = (
        b"\xef\xbb\xbfq1   Q0  d1   7   9.5   sys  \r\nq2 Q0 e1 1 3e-1 sys\n\r\n\n"
        b"q1\tQ0\td2\tx\t-1E+2\tsys\r\nq2 Q0 d\xc2\xa0d 1 inf s"
    )
    expected = {"q1": {"d1": 9.5, "d2": -100.0}, "q2": {"e1": 0.3, "d\u00a0d": math.inf}}
    assert read_run(put("a.run", content)) == expected
    assert read_run(put("a.run.gz", gzip.compress(content))) == expected


def test_a_repeated_document_keeps_its_best_score_and_is_counted_once(put, caplog):
    path = put("a.run", "q Q0 d 1 1 s\nq Q0 e 2 9 s\nq Q0 d 3 3 s\nq Q0 d 4 2 s\np Q0 d 1 5 s\n")
    with caplog.at_level(logging.WARNING):
        assert read_run(path) == {"q": {"d": 3.0, "e": 9.0}, "p": {"d": 5.0}}
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 2 lines repeat a document of the same query; its best score was kept"
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("q Q0 d 1 2.0", ["5 columns", "expected 6"]),
        ("q Q0 d 1 2.0 my tag", ["7 columns"]),
        ("q Q0 d 1 high tag", ["'high'", "not a number"]),
        ("q Q0 d 1 nan tag", ["'nan'", "not a number"]),
        ("q Q0 d 1 1_0 tag", ["'1_0'", "not a number"]),
    ],
)
def test_unusable_run_lines_are_refused_with_their_place(put, line, words):
    with pytest.raises(DataError) as caught:
        read_run(put("a.run", f"q Q0 c 1 3.0 tag\n\n{line}\n"))
    for word in [*words, "a.run, line 3"]:
        assert word in str(caught.value)


def test_an_empty_run_is_empty(put):
    assert read_run(put("a.run", "\n")) == {}


_id = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
    lambda text: text.split() == [text] and not text.startswith("\ufeff")
)
_scores = st.one_of(
    st.floats(allow_nan=False),
    st.sampled_from([0.1, math.nextafter(0.1, 1), 1.0, -0.0, 0.0, 5e-324, 1e22, math.inf]),
)


@given(st.dictionaries(_id, st.dictionaries(_id, _scores, min_size=1), max_size=5), st.booleans())
def test_a_run_comes_back_as_it_was_written(tmp_path_factory, run, packed):
    path = tmp_path_factory.mktemp("runs") / ("a.run.gz" if packed else "a.run")
    results = {
        query_id: sorted(scores.items(), key=lambda hit: (hit[1], hit[0]), reverse=True)
        for query_id, scores in run.items()
    }
    write_run(path, results, "tag")
    again = read_run(path)
    assert again == run
    # ordering the scores that were read gives the order that was written, ties included
    for query_id, hits in results.items():
        ordered = sorted(again[query_id].items(), key=lambda hit: (hit[1], hit[0]), reverse=True)
        assert [doc_id for doc_id, _ in ordered] == [doc_id for doc_id, _ in hits]


def test_a_written_run_is_what_trec_eval_reads():
    stream = io.BytesIO()
    write_run(stream, {"q1": [("b", 2.5), ("a", 2.5), ("c", 1e-9)], "q2": [], "7": [("x", 3)]}, "mine")
    assert stream.getvalue().decode() == (
        "q1 Q0 b 1 2.5 mine\nq1 Q0 a 2 2.5 mine\nq1 Q0 c 3 1e-09 mine\n7 Q0 x 1 3.0 mine\n"
    )


def test_a_packed_run_has_the_same_bytes_every_time(tmp_path):
    for name in ("a.gz", "b.gz"):
        write_run(tmp_path / name, {"q": [("d", 1.0)]})
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ({"q": [("a b", 1.0)]}, ["document id 'a b'", "blanks"]),
        ({"q 1": [("a", 1.0)]}, ["query id 'q 1'", "blanks"]),
        ({"q": [("a\u3000b", 1.0)]}, ["document id"]),
        ({"q": [("", 1.0)]}, ["document id ''"]),
        ({"\ufeffq": [("a", 1.0)]}, ["query id"]),
        ({"q": [("\ud800", 1.0)]}, ["document id"]),
        ({"q": [("a", math.nan)]}, ["'q'", "'a'", "not a number"]),
        ({"q": [("a", 1.0), ("b", 2.0)]}, ["rank 2 ('b', 2.0) belongs before rank 1"]),
        ({"q": [("a", 1.0), ("b", 1.0)]}, ["rank 2 ('b', 1.0) belongs before rank 1"]),
        ({"q": [("a", 3.0), ("b", 2.0), ("a", 1.0)]}, ["'a' occurs twice"]),
    ],
)
def test_what_a_run_cannot_hold_is_refused_and_the_old_file_stays(tmp_path, results, words):
    path = tmp_path / "a.run"
    path.write_text("before")
    with pytest.raises(DataError) as caught:
        write_run(path, {"p": [("z", 1.0)], **results})
    for word in words:
        assert word in str(caught.value)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("tag", ["", "my tag", "tag\n"])
def test_a_tag_is_one_word(tag):
    with pytest.raises(ConfigError, match="run tag"):
        write_run(io.BytesIO(), {}, tag)


# ---------------------------------------------------------------- judgements


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

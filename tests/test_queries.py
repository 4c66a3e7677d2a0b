"""Queries: what is read, what is refused and where."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pytest

from retrieval.errors import DataError
from retrieval.queries import read_lines, read_queries


@pytest.fixture
def put(tmp_path: Path):
    def put(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("q.jsonl", '{"_id": "b", "text": "x"}\n{"_id": "a", "text": "y"}', {"b": "x", "a": "y"}),
        ("q.jsonl", '{"qid": 7, "question": "x"}\n\n', {"7": "x"}),
        ("q.jsonl", '{"q_id": "7", "text": "x"}\n', {"7": "x"}),
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
    assert read_queries(put("q.jsonl.zst", pa.compress(lines, "zstd", asbytes=True))) == {"a": "x"}
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


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.tsv.*[Nn]o such file"):
        read_queries(tmp_path / "nowhere.tsv")
    with pytest.raises(DataError, match="directory"):
        read_queries(tmp_path)


def test_query_lines():
    stream = io.BytesIO("\ufeffred apple\r\n\n  \n\u2028 blue plum\u0085\n\u200b".encode())
    assert read_lines(stream) == ["red apple", "\u2028 blue plum\u0085", "\u200b"]
    with pytest.raises(DataError, match=r"standard input, line 2: byte 0xe9"):
        read_lines(io.BytesIO(b"fine\ncaf\xe9\n"))
    assert read_lines(io.BytesIO(b"\n\r\n")) == []


def test_a_line_number_is_right_beyond_the_first_block(put):
    content = "".join(f"q{n}\ta text\n" for n in range(50_000)) + "q\ta\tb\n"
    with pytest.raises(DataError, match=r"q\.tsv, line 50001: 3 cells"):
        read_queries(put("q.tsv", content))
    with pytest.raises(DataError, match=r"q\.tsv, line 50001: byte 0xff at position 3 "):
        read_lines(put("q.tsv", content.encode()[:-6] + b"q\t\xff\n"))

"""Scores and grades in JSON, JSONL and Parquet: what is read, what is refused and where (by way of `read_run`)."""

from __future__ import annotations

import gzip
import json
import logging
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retrieval.console import hits_json
from retrieval.errors import DataError
from retrieval.ranking import Hit
from retrieval.runs import read_run


@pytest.fixture
def put(tmp_path: Path):
    def put(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"query_id": "1", "doc_id": "d", "score": 2}\n\n{"query_id": 1, "doc_id": 7, "score": 0.5}\r\n'),
        ("a.ndjson", '\ufeff{"qid": 1, "docid": "d", "score": 2.0}\n{"qid": 1, "docid": 7, "score": 5e-1}'),
        ("a.json", '{"q_id": "1", "docno": "d", "score": 2, "rank": 1}\n{"q_id": "1", "docno": "7", "score": 0.5}'),
        ("a.run", '{"query-id": "1", "corpus-id": "d", "score": 2}\n{"query-id": "1", "corpus-id": "7", "score": 0.5}'),
        ("a", '{"query_id": 1, "query": "x", "hits": [{"doc_id": "d", "score": 2}, {"doc_id": 7, "score": 0.5}]}'),
        ("a.json", '{"1": {"d": 2, "7": 0.5}}'),
        ("a.txt", '{"1": {"d": 2, "7": 0.5}}'),
        ("a.json", '\n{\n  "1": {\n    "d": 2.0,\n    "7": 0.5\n  }\n}\n'),
        ("a.json", '{"1": {"d": 2}, "1": {"7": 0.5}}'),
    ],
)  # fmt: skip
def test_json_of_every_shape_is_read(put, name, content):
    expected = {"1": {"d": 2.0, "7": 0.5}}
    run = read_run(put(name, content))
    assert run == expected
    assert list(run["1"]) == ["d", "7"]
    assert all(type(score) is float for score in run["1"].values())
    assert read_run(put(f"{name}.gz", gzip.compress(content.encode()))) == expected
    assert read_run(put(f"{name}.zst", pa.compress(content.encode(), "zstd", asbytes=True))) == expected


def _hit(rank):
    rest = {"text": "x", "title": "", "passage": 0, "start": 0, "end": 1, "metadata": {}}
    return Hit(doc_id=f"d{rank}", score=1 / rank, rank=rank, retrieval_score=1 / rank, **rest)


def test_hits_of_the_query_command_are_a_run(put):
    hits = [_hit(rank) for rank in (1, 2)]
    content = "\n".join([hits_json("a", "x", hits), hits_json("b", None, []), hits_json("c", "y", hits[:1])])
    assert read_run(put("a.jsonl", content)) == {"a": {"d1": 1.0, "d2": 0.5}, "b": {}, "c": {"d1": 1.0}}


def test_queries_without_hits_stay_in_json(put):
    assert read_run(put("a.jsonl", '{"query_id": "a", "hits": []}\n')) == {"a": {}}
    assert read_run(put("a.json", '{"a": {}, "b": {"d": 1}}')) == {"a": {}, "b": {"d": 1.0}}
    assert read_run(put("a.json", "{}")) == read_run(put("a.json", "")) == read_run(put("a.jsonl", "\n")) == {}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", "".join(f'{{"qid": "q", "docid": "d", "score": {score}}}\n' for score in (1, 3, 2))),
        ("a.jsonl", '{"qid": "q", "hits": [' + ", ".join(f'{{"docid": "d", "score": {n}}}' for n in (1, 3, 2)) + "]}"),
        ("a.json", '{"q": {"d": 1, "d": 3, "d": 2}}'),
        ("a.json", '{"q": {"d": 3}, "q": {"d": 1, "d": 2}}'),
        ("a.json", '{"q": {"d": 3}, "p": {}, "q": {"d": 1, "d": 2}}'),
    ],
)  # fmt: skip
def test_a_repeated_document_keeps_its_best_score_in_json(put, caplog, name, content):
    path = put(name, content)
    with caplog.at_level(logging.WARNING):
        assert read_run(path)["q"] == {"d": 3.0}
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 2 lines repeat a document of the same query; its best score was kept"
        if name == "a.jsonl"
        else f"{path}: 2 entries repeat a document of the same query; its best score was kept"
    ]


def _record(**changes):
    return json.dumps({"query_id": "q", "doc_id": "d", "score": 1.0} | changes)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", f"{_record()}\n{_record(score=None)}", ["line 2", "'score' is None", "number"]),
        ("a.jsonl", _record(score="1.0"), ["line 1", "'score' is '1.0'"]),
        ("a.jsonl", _record(score=True), ["line 1", "'score' is True"]),
        ("a.jsonl", _record(score=math.nan), ["line 1", "'score' is nan"]),
        ("a.jsonl", _record(score=10**400), ["line 1", "'score'"]),
        ("a.jsonl", _record(query_id=1.0), ["line 1", "'query_id' is 1.0", "string or an integer"]),
        ("a.jsonl", _record(doc_id=True), ["line 1", "'doc_id' is True"]),
        ("a.jsonl", _record(doc_id=None), ["line 1", "'doc_id' is None"]),
        ("a.jsonl", _record(doc_id=""), ["line 1", "'doc_id' is empty"]),
        ("a.jsonl", _record(query_id=""), ["line 1", "'query_id' is empty"]),
        ("a.jsonl", _record(doc_id="\ud800"), ["line 1", "'doc_id'"]),
        ("a.jsonl", '{"query_id": "q", "score": 1}', ["line 1", "no doc_id / ", "keys found: query_id, score"]),
        ("a.jsonl", '{"topic": "q", "doc_id": "d"}', ["line 1", "no query_id / ", "keys found: topic, doc_id"]),
        ("a.jsonl", f'{_record()}\n{{"query_id": "q", "docid": "d", "score": 1}}', ["line 2", "no doc_id;"]),
        ("a.jsonl", f'{_record()}\n{{"qid": "q", "doc_id": "d", "score": 1}}', ["line 2", "no query_id;"]),
        ("a.jsonl", f'{_record()}\n{{"query_id": "q", "doc_id": "d"}}', ["line 2", "no score;"]),
        ("a.jsonl", f"{_record()}\n[1]", ["line 2", "object"]),
        ("a.jsonl", f"{_record()}\n{_record()[:-3]}", ["line 2", "not JSON", "column"]),
        ("a.jsonl", '{"qid": "q", "hits": {"d": 1}}', ["line 1", "'hits'", "list of objects"]),
        ("a.jsonl", '{"qid": "q", "hits": null}', ["line 1", "'hits'", "list of objects"]),
        ("a.jsonl", '{"qid": "q", "hits": ["d"]}', ["line 1", "'hits'", "list of objects"]),
        ("a.jsonl", '{"qid": "q", "hits": [{"docid": "d"}]}', ["line 1", "no score"]),
        ("a.jsonl", b'{"qid": "q", "docid": "d\xe9", "score": 1}', ["line 1", "0xe9", "position 25"]),
        ("a.json", '{"q": {"d": "1"}}', ["query 'q'", "document 'd'", "'1'", "number"]),
        ("a.json", '{"q": {"d": true}}', ["query 'q'", "document 'd'", "True"]),
        ("a.json", '{"q": {"d": NaN}}', ["query 'q'", "document 'd'", "nan"]),
        ("a.json", '{"q": {"d": 1, "d": "x"}}', ["query 'q'", "document 'd'", "'x'"]),
        ("a.json", '{"q": {"d": 1, "d": NaN}}', ["query 'q'", "document 'd'", "nan"]),
        ("a.json", '{"p": {"d": 1}, "q": ["d"]}', ["query 'q'", "['d']", "{doc_id: score}"]),
        ("a.json", '{"q": {"": 1}}', ["query 'q'", "empty id"]),
        ("a.json", '{"": {"d": 1}}', ["query ''", "empty id"]),
        ("a.json", '{"q": {"\\ud800": 1}}', ["query 'q'", "surrogate"]),
        ("a.json", '{"q": {"d": 1},\n "p": {"d" 1}}', ["line 2", "not JSON", "column 12"]),
        ("a.json", '{"q":\n {"d": 1}} x', ["line 2", "Extra data"]),
        ("a.json", '{"q":' * 100_000, ["not JSON"]),
        ("a.json", '[{"query_id": "q"}]', ["list", "one object"]),
        ("a.json", b'{"q":\n {"d\xe9": 1}}', ["line 2", "0xe9", "position 5"]),
    ],
)  # fmt: skip
def test_unusable_json_is_refused_with_its_place(put, name, content, words):
    with pytest.raises(DataError) as caught:
        read_run(put(name, content))
    for word in [*words, name]:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.parquet", "A.PARQ", "a.pq"])
@pytest.mark.parametrize(
    "columns",
    [
        {"q_id": ["1", "1", "2", "1"], "doc_id": ["d", "7", "d", "e"], "score": [2.0, 0.5, -1.0, 3.0]},
        {"query_id": [1, 1, 2, 1], "docid": pa.array(["d", "7", "d", "e"], "large_string"), "score": [2, 0.5, -1, 3]},
        {
            "qid": pa.array(["1", "1", "2", "1"]).dictionary_encode(),
            "docno": pa.array(["d", "7", "d", "e"]).dictionary_encode(),
            "score": pa.array([2.0, 0.5, -1.0, 3.0], pa.float32()),
            "rank": [1, 2, 1, 3],
        },
    ],
)  # fmt: skip
def test_parquet_is_read(tmp_path, name, columns):
    pq.write_table(pa.table(columns), tmp_path / name, row_group_size=3)
    run = read_run(tmp_path / name)
    assert run == {"1": {"d": 2.0, "7": 0.5, "e": 3.0}, "2": {"d": -1.0}}
    assert all(type(score) is float for scores in run.values() for score in scores.values())


def test_parquet_of_more_rows_than_are_read_at_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("retrieval.ratings._PARQUET_ROWS", 4)
    ids = [f"d{n % 9}" for n in range(10)]
    pq.write_table(pa.table({"qid": ["q"] * 10, "docid": ids, "score": range(10)}), tmp_path / "a.parquet")
    with caplog.at_level(logging.WARNING):
        assert read_run(tmp_path / "a.parquet") == {"q": {f"d{n}": float(n or 9) for n in range(9)}}
    assert "1 rows repeat a document" in caplog.text
    pq.write_table(pa.table({"qid": pa.nulls(0, pa.string()), "docid": [], "score": []}), tmp_path / "a.parquet")
    assert read_run(tmp_path / "a.parquet") == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"query_id": ["q", None, "q"]}, ["row 2", "'query_id' is null or empty"]),
        ({"doc_id": ["d", "e", ""]}, ["row 3", "'doc_id' is null or empty"]),
        ({"doc_id": [1.0, 2.0, 3.0]}, ["'doc_id'", "double", "strings or integers"]),
        ({"doc_id": [True, False, True]}, ["'doc_id'", "bool"]),
        ({"score": [1.0, None, 2.0]}, ["row 2", "'score' is null"]),
        ({"score": [1.0, 2.0, math.nan]}, ["row 3", "'score' is NaN"]),
        ({"score": ["1", "2", "3"]}, ["'score'", "string", "numbers"]),
        ({"score": [True, False, True]}, ["'score'", "bool", "numbers"]),
        ({"score": None}, ["no score; keys found: query_id, doc_id"]),
        ({"doc_id": pa.array([b"d", b"\xe9", b"f"]).view(pa.string())}, ["row 2", "'doc_id' is not UTF-8"]),
    ],
)
def test_unusable_parquet_is_refused_with_its_row(tmp_path, changes, words):
    columns = {"query_id": ["q", "q", "q"], "doc_id": ["d", "e", "f"], "score": [1.0, 2.0, 3.0]} | changes
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({name: column for name, column in columns.items() if column is not None}), path)
    with pytest.raises(DataError) as caught:
        read_run(path)
    for word in [*words, "a.parquet"]:
        assert word in str(caught.value)


def test_damaged_and_missing_parquet(put, tmp_path):
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read"):
        read_run(put("a.parquet", "q Q0 d 1 2 s\n"))
    with pytest.raises(DataError, match=r"b\.parquet: cannot be read.*No such file"):
        read_run(tmp_path / "b.parquet")
    schema = pa.schema([("qid", pa.string()), ("docid", pa.string()), ("score", pa.int64()), ("score", pa.int64())])
    table = pa.Table.from_arrays([pa.array(["q"]), pa.array(["d"]), pa.array([1]), pa.array([1])], schema=schema)
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"two columns are called 'score'"):
        read_run(tmp_path / "a.parquet")


def test_runs_that_ranx_saves_are_read(tmp_path):
    ranx = pytest.importorskip("ranx")
    expected = {"q1": {"d1": 0.5, "d2": 0.25}, "q2": {"d1": 1e-9}}
    for name in ("a.json", "a.trec", "a.txt", "a.parquet"):
        ranx.Run(expected, name="sys").save(str(tmp_path / name))
        assert read_run(tmp_path / name) == expected

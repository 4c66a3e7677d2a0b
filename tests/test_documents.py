"""Streams of documents: fields, ids, faults, duplicates, counts, sources."""

import gzip
import hashlib
import io
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval import documents as module
from retrieval.documents import DocumentSettings, DocumentStream, conform, plain, unify
from retrieval.errors import ConfigError, DataError
from retrieval.grammars import loaded
from retrieval.tree import Skipped

SKIP = DocumentSettings(on_bad="skip")


def save(path, *records):
    """Writes JSON lines; a record that is text or bytes is written as it is."""
    lines = [r if isinstance(r, bytes) else (r if isinstance(r, str) else json.dumps(r)).encode() for r in records]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def rows_of(stream):
    """All documents as dicts of plain values, without metadata that is null."""
    rows = []
    for batch in stream:
        columns = [
            [plain(cell, field) for cell in column] for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
        for values in zip(*columns, strict=True):
            rows.append({k: v for k, v in zip(batch.schema.names, values, strict=True) if v is not None})
    return rows


def read(*sources, **settings):
    return rows_of(DocumentStream(sources, DocumentSettings(**settings)))


def error_of(*sources, **settings):
    with pytest.raises(DataError) as caught:
        read(*sources, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def stdin(monkeypatch):
    """Gives bytes to standard input."""
    return lambda data: monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


# Fields


@pytest.mark.parametrize("doc_id", ["_id", "id", "doc_id", "docid", "docno"])
@pytest.mark.parametrize("text", ["text", "contents", "document_text", "body"])
def test_known_spellings_are_found(tmp_path, doc_id, text):
    path = save(tmp_path / "c.jsonl", {doc_id: "a", text: "x", "title": "t"})
    assert read(path) == [{"doc_id": "a", "title": "t", "text": "x"}]


def test_names_that_are_given_win_and_the_others_are_metadata(tmp_path):
    path = save(tmp_path / "c.jsonl", {"_id": "1", "key": "k", "text": "t", "code": "c", "title": "u", "name": "n"})
    expected = {"doc_id": "k", "title": "n", "text": "c", "_id": "1", "text_": "t", "title_": "u"}
    stream = DocumentStream([path], DocumentSettings(id_field="key", title_field="name", text_field="code"))
    assert rows_of(stream) == [expected]
    assert stream.notices == ["metadata 'text' is kept as 'text_'", "metadata 'title' is kept as 'title_'"]


def test_the_first_record_decides_for_its_source_only(tmp_path):
    one = save(
        tmp_path / "a.jsonl",
        {"docid": "1", "contents": "x"},
        {"docid": "2", "contents": "y", "text": "z", "id": 7},
    )
    two = save(tmp_path / "b.jsonl", {"_id": "3", "text": "w"})
    assert read(one, two) == [
        {"doc_id": "1", "title": "", "text": "x"},
        {"doc_id": "2", "title": "", "text": "y", "text_": "z", "id": 7},
        {"doc_id": "3", "title": "", "text": "w"},
    ]
    bad = save(tmp_path / "c.jsonl", {"docid": "1", "contents": "x"}, {"_id": "2", "text": "y"})
    assert "c.jsonl, line 2: no 'docid' and no 'contents' (found: _id, text)" in error_of(bad)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (
            {"key": "a", "text": "x"},
            "(_id, id, doc_id, docid, docno) (found: key, text); name it with --id-field",
        ),
        (
            {"id": "a", "code": "x"},
            "(text, contents, document_text, body) (found: id, code); name it with --text-field",
        ),
        ({}, "found: nothing"),
    ],
)
def test_a_first_record_without_known_names_says_which_option_helps(tmp_path, record, reason):
    assert reason in error_of(save(tmp_path / "c.jsonl", record))


def test_a_name_that_was_given_but_is_missing_is_an_error_in_tables_too(tmp_path):
    (tmp_path / "c.csv").write_text("id,text\na,x\n")
    assert "c.csv: no 'body' (found: id, text); name it with --text-field" in error_of(
        tmp_path / "c.csv", text_field="body"
    )
    assert "c.csv: no 'name' (found: id, text); name it with --title-field" in error_of(
        tmp_path / "c.csv", title_field="name"
    )
    pq.write_table(pa.table({"id": ["a"], "text": ["x"]}), tmp_path / "c.parquet")
    assert "c.parquet: no 'key' (found: id, text)" in error_of(tmp_path / "c.parquet", id_field="key")
    path = save(tmp_path / "c.jsonl", {"id": "a", "text": "x"})
    stream = DocumentStream([path], DocumentSettings(title_field="name"))
    assert len(rows_of(stream)) == 1
    assert stream.notices == [f"{path}: no record has a title in 'name'"]


# Values


def test_ids_are_kept_as_written_and_integers_exactly(tmp_path):
    ids = ["007", "7 ", "1e5", 7, -1, 9007199254740993, 10**30, "é\u2028"]
    path = save(tmp_path / "c.jsonl", *({"id": i, "text": "x"} for i in ids))
    assert [row["doc_id"] for row in read(path)] == [str(i) for i in ids]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": 1.0, "text": "x"}, "the id 'id' is a number with a fraction or an exponent (1.0)"),
        ({"id": True, "text": "x"}, "the id 'id' is true or false"),
        ({"id": None, "text": "x"}, "the id 'id' is null"),
        ({"id": ["a"], "text": "x"}, "the id 'id' is a list"),
        ({"id": "", "text": "x"}, "the id 'id' is empty"),
        ({"text": "x"}, "no 'id' (found: text)"),
        ({"id": "b"}, "no 'text' (found: id)"),
        ({"id": "b", "text": None}, "'text' is null; expected a string"),
        ({"id": "b", "text": 3}, "'text' is a number"),
        ({"id": "b", "text": ["x"]}, "'text' is a list"),
        ({"id": "b", "text": False}, "'text' is a boolean"),
        ({"id": "b", "text": "x", "title": 3}, "'title' is a number"),
        ("[1]", "not a list"),
        ('{"id": "b", "text": "x"', "not valid JSON"),
        (b'{"id": "b", "text": "\xff"}', "byte 0xff"),
        ('{"id": "b", "text": "x", "m": ' + "[" * 100 + "]" * 100 + "}", "nested too deeply"),
        ('{"id": "b", "text": "x", "m": ' + '{"a": ' * 101 + "1" + "}" * 101 + "}", "nested too deeply"),
        ('{"id": "b", "text": "x", "m": ' + "[" * 10**5 + "]" * 10**5 + "}", "nested too deeply"),
    ],
)
def test_a_bad_record_stops_the_reading_or_is_counted_and_listed(tmp_path, record, reason):
    path = save(tmp_path / "c.jsonl", {"id": "a", "text": "x"}, "", record, {"id": "z", "text": "y"})
    message = error_of(path)
    assert f"{path}, line 3: " in message
    assert reason in message
    assert "--on-bad skip" in message
    assert "--rejects FILE" in message
    stream = DocumentStream([path], SKIP)
    assert [row["doc_id"] for row in rows_of(stream)] == ["a", "z"]
    assert (stream.counts.documents, stream.counts.rejected, stream.counts.duplicates) == (2, 1, 0)
    assert [(r.file, r.line, r.row) for r in stream.rejects] == [(str(path), 3, None)]
    assert reason in stream.rejects[0].reason


def test_one_message_names_the_first_bad_records_of_all_kinds_in_order(tmp_path):
    bad = [{"id": "x", "text": None}, "{", {"id": 1.5, "text": "x"}, "3", {"text": "x"}, {"id": "y"}, "["]
    path = save(tmp_path / "c.jsonl", {"id": "a", "text": "x"}, *bad)
    message = error_of(path)
    assert all(f"line {n}: " in message for n in range(2, 7))
    assert "line 7" not in message
    assert "; and 2 more; " in message
    assert message.index("line 2") < message.index("line 3") < message.index("line 4")


def test_a_title_may_be_missing_or_null_and_a_text_empty_but_both_are_never_the_word(tmp_path):
    path = save(
        tmp_path / "c.jsonl",
        {"id": "a", "title": None, "text": "x"},
        {"id": "b", "text": ""},
        {"id": "c", "title": "t", "text": ""},
        {"id": "d", "text": " \u200b\u00ad\n" * 20},
        {"id": "e", "text": "\u200b" * 50 + "x"},
    )
    stream = DocumentStream([path])
    rows = rows_of(stream)
    assert [row["title"] for row in rows] == ["", "", "t", "", ""]
    assert rows[1]["text"] == ""
    assert stream.counts.documents == 5
    assert stream.counts.empty == 2  # b and d: c has a title, e a letter after fifty invisible characters


def test_texts_may_be_missing_where_vectors_are_given(tmp_path):
    path = save(
        tmp_path / "c.jsonl",
        {"id": "a", "v": [1]},
        {"id": "b", "text": None, "v": [2]},
        {"id": "c", "text": "x", "v": []},
    )
    expected = [{"doc_id": i, "title": "", "text": t} for i, t in (("a", ""), ("b", ""), ("c", "x"))]
    assert read(path, require_text=False, drop_fields=("v",)) == expected
    table = pa.table({"id": ["a", "b", "c"], "text": [None, None, "x"], "v": [[1.0]] * 3})
    pq.write_table(table, tmp_path / "c.parquet")
    assert read(tmp_path / "c.parquet", require_text=False, drop_fields=("v",)) == expected
    pq.write_table(table.drop_columns(["text"]), tmp_path / "d.parquet")
    assert [row["text"] for row in read(tmp_path / "d.parquet", require_text=False, drop_fields=("v",))] == [
        "",
        "",
        "",
    ]


def test_metadata_comes_back_exactly_across_batches_of_other_types(tmp_path):
    extra = [
        {"m": 1},
        {"m": "one"},
        {"m": {"src": [{"a": None}, 2]}},
        {},
        {"m": None},
        {"m": True},
        {"n": 2**60},
        {"n": 0.5},
    ]
    path = save(tmp_path / "c.jsonl", *({"id": n, "text": "x", **record} for n, record in enumerate(extra)))
    stream = DocumentStream([path], batch_rows=1)
    batches = list(stream)
    schema = unify([batch.schema for batch in batches])
    table = pa.Table.from_batches([conform(batch, schema) for batch in batches])
    for name in ("m", "n"):
        values = [plain(cell, schema.field(name)) for cell in table[name]]
        assert repr(values) == repr([record.get(name) for record in extra])
    assert "metadata 'm' is kept as JSON text (objects, lists or mixed types)" in stream.notices


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
metadata = st.dictionaries(
    st.sampled_from(["year", "passage", "start_", "metadata", "é"]),
    scalars | st.lists(scalars, max_size=2) | st.dictionaries(texts, scalars, max_size=2),
    max_size=3,
)


@given(
    st.dictionaries(texts.filter(bool), st.tuples(texts, texts, metadata), min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.integers(1, 3),
)
def test_any_records_come_back_as_they_went_in(records, escaped, end, batch_rows):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.jsonl")
        lines = [
            json.dumps({"id": doc_id, "title": title, "text": text, **rest}, ensure_ascii=escaped)
            for doc_id, (title, text, rest) in records.items()
        ]
        path.write_bytes(end.join(lines).encode())
        rows = rows_of(DocumentStream([path], batch_rows=batch_rows))
    for row, (doc_id, (title, text, rest)) in zip(rows, records.items(), strict=True):
        assert (row.pop("doc_id"), row.pop("title"), row.pop("text")) == (doc_id, title, text)
        moved = {{"passage": "passage_", "start_": "start__"}.get(k, k): v for k, v in rest.items() if v is not None}
        assert row == moved


# Column formats


def test_parquet_types_are_kept_and_storage_variants_are_not(tmp_path):
    table = pa.table(
        {
            "id": pa.array(["a", "b"]).dictionary_encode(),
            "text": pa.array(["x", "y"], pa.large_string()),
            "title": pa.array([None, "t"], pa.string()),
            "tags": pa.array([["p"], None], pa.list_(pa.string())),
            "year": pa.array([2000, None], pa.int16()),
            "start": pa.array([1.5, 2.5]),
            "__index_level_0__": pa.array([1, 0]),
        }
    )
    for name in ("c.parquet", "c.arrow"):
        if name == "c.parquet":
            pq.write_table(table, tmp_path / name)
        else:
            with pa.ipc.new_file(str(tmp_path / name), table.schema) as writer:
                writer.write_table(table)
        (batch,) = DocumentStream([tmp_path / name])
        assert batch.column("year").type == pa.int16()
        assert batch.column("tags").type.value_type == pa.string()
        assert rows_of([batch]) == [
            {
                "doc_id": "a",
                "title": "",
                "text": "x",
                "tags": ["p"],
                "year": 2000,
                "start_": 1.5,
                "__index_level_0__": 1,
            },
            {"doc_id": "b", "title": "t", "text": "y", "start_": 2.5, "__index_level_0__": 0},
        ]


def test_integer_ids_stay_exact_beside_a_null_which_is_named_by_its_row(tmp_path):
    ids = pa.array([1, None, 9007199254740993, None], pa.int64())
    pq.write_table(pa.table({"id": ids, "text": ["x"] * 4}), tmp_path / "c.parquet")
    message = error_of(tmp_path / "c.parquet")
    assert "c.parquet, row 2: the id 'id' is null; row 4: the id" in message
    stream = DocumentStream([tmp_path / "c.parquet"], SKIP)
    assert [row["doc_id"] for row in rows_of(stream)] == ["1", "9007199254740993"]
    assert [(r.row, r.line) for r in stream.rejects] == [(2, None), (4, None)]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (
            {"id": pa.array([1.0]), "text": ["x"]},
            "the id column 'id' has type double; expected strings or integers",
        ),
        ({"id": pa.array([True]), "text": ["x"]}, "the id column 'id' has type bool"),
        ({"id": ["a"], "text": pa.array([3])}, "the column 'text' has type int64; expected strings"),
        ({"id": ["a"], "text": ["x"], "title": pa.array([3])}, "the column 'title' has type int64"),
        ({"id": ["a"], "text": pa.array([None], pa.string())}, "row 1: 'text' is null"),
        ({"id": ["a"], "text": pa.nulls(1)}, "row 1: 'text' is null"),
        ({"id": [""], "text": ["x"]}, "row 1: the id 'id' is empty"),
    ],
)
def test_columns_that_are_no_documents_are_an_error(tmp_path, columns, reason):
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    assert reason in error_of(tmp_path / "c.parquet")


def test_bytes_that_are_no_text_in_a_string_column_are_named_by_their_row(tmp_path):
    def broken(values):
        binary = pa.array(values, pa.binary())
        return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())

    table = pa.table({"id": ["a", "b", "c"], "text": broken([b"x", b"\xff", b"y"]), "m": broken([b"x", b"y", b"\xc3"])})
    pq.write_table(table, tmp_path / "c.parquet")
    assert "row 2: a string that is not UTF-8; row 3: a string" in error_of(tmp_path / "c.parquet")
    assert [row["doc_id"] for row in rows_of(DocumentStream([tmp_path / "c.parquet"], SKIP))] == ["a"]


# Duplicate ids


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_a_repeated_id_is_an_error_that_names_both_places(tmp_path, batch_rows):
    one = save(tmp_path / "a.jsonl", {"id": "x", "text": "1"}, "", {"id": 7, "text": "2"}, {"id": "07", "text": "3"})
    two = save(tmp_path / "b.jsonl", {"id": "y", "text": "4"}, {"id": "7", "text": "5"})
    stream = DocumentStream([one, two], batch_rows=batch_rows)
    with pytest.raises(DataError, match=r"b\.jsonl, line 2: id '7' came before, in .*a\.jsonl, line 3; "):
        list(stream)


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 100])
def test_of_repeated_ids_the_first_wins_and_the_others_are_listed(tmp_path, batch_rows):
    ids = ["a", "b", "a", "c", "b", "a", "d", "d"]
    path = save(tmp_path / "c.jsonl", *({"id": i, "text": str(n)} for n, i in enumerate(ids)))
    stream = DocumentStream([path], SKIP, batch_rows=batch_rows)
    for _ in range(2):  # a stream can be read again
        assert [(row["doc_id"], row["text"]) for row in rows_of(stream)] == [
            ("a", "0"),
            ("b", "1"),
            ("c", "3"),
            ("d", "6"),
        ]
        assert stream.counts.duplicates == stream.counts.rejected == 4
        places = {reject.line: reject.reason.rpartition(" ")[2] for reject in stream.rejects}
        assert places == {3: "1", 5: "2", 6: "1", 8: "7"}


@pytest.mark.parametrize("on_bad", ["fail", "skip"])
@pytest.mark.parametrize("batch_rows", [1, 3])
def test_equal_hashes_are_no_duplicates(tmp_path, monkeypatch, on_bad, batch_rows):
    lengths = lambda ids: np.array([len(i) for i in ids], dtype=np.int64)  # noqa: E731
    monkeypatch.setattr("retrieval.duplicates.id_hashes", lengths)
    path = save(tmp_path / "c.jsonl", *({"id": i, "text": "x"} for i in ("a", "b", "cc", "c", "dd", "e")))
    stream = DocumentStream([path], DocumentSettings(on_bad=on_bad), batch_rows=batch_rows)
    assert [row["doc_id"] for row in rows_of(stream)] == ["a", "b", "cc", "c", "dd", "e"]
    path = save(tmp_path / "c.jsonl", *({"id": i, "text": "x"} for i in ("a", "b", "cc", "b")))
    stream = DocumentStream([path], DocumentSettings(on_bad=on_bad), batch_rows=batch_rows)
    if on_bad == "skip":
        assert [row["doc_id"] for row in rows_of(stream)] == ["a", "b", "cc"]
    else:
        with pytest.raises(DataError, match=r"line 4: id 'b' came before, in .*line 2"):
            list(stream)


def test_ids_of_an_index_count_as_taken(tmp_path):
    path = save(tmp_path / "c.jsonl", *({"id": i, "text": "x"} for i in "abc"))
    stream = DocumentStream([path])
    stream.also_known(pa.chunked_array([["z", "b"], ["b"]]))
    with pytest.raises(DataError, match=r"c.jsonl, line 2: id 'b' is already in the index"):
        list(stream)
    stream = DocumentStream([path], SKIP)
    stream.also_known(pa.array(["b", "c"]))
    assert [row["doc_id"] for row in rows_of(stream)] == ["a"]
    assert [reject.line for reject in stream.rejects] == [2, 3]


# Sources


def test_standard_input_is_read_once_and_its_repeats_are_found(tmp_path, stdin):
    path = save(tmp_path / "c.jsonl", {"id": "a", "text": "1"})
    stdin(b'{"id": "b", "text": "2"}\r\n\n{"id": "a", "text": "3"}\n{"id": "b", "text": "4"}')
    stream = DocumentStream([path, "-"], SKIP, batch_rows=1)
    assert [row["text"] for row in rows_of(stream)] == ["1", "2"]
    assert [(r.file, r.line) for r in stream.rejects] == [("-", 3), ("-", 4)]
    assert stream.rejects[0].reason.endswith("line 1")
    assert stream.rejects[1].reason == "id 'b' came before"
    assert stream.fingerprint() is None
    assert stream.share_read is None
    with pytest.raises(DataError, match="standard input can be read only once"):
        list(stream)
    stdin(b'{"id": "b"}\n')
    assert "standard input, line 1: no text field" in error_of("-")


def of_tree(data, length, lang=None):
    """What a file of one unit without a name has besides its text."""
    return {
        **({"lang": lang} if lang else {}),
        "units": [{"start": 0, "end": length, "section": "", "kind": "text"}],
        "digest": hashlib.sha256(data).hexdigest(),
    }


def test_a_folder_with_a_corpus_file_is_that_file_and_any_other_a_tree(tmp_path):
    (tmp_path / "beir/qrels").mkdir(parents=True)
    (tmp_path / "beir/queries.jsonl").write_text('{"_id": "q", "text": "x"}')
    record = {"_id": "d", "title": "t", "text": "x", "metadata": {}}
    (tmp_path / "beir/corpus.jsonl.gz").write_bytes(gzip.compress(json.dumps(record).encode()))
    assert read(tmp_path / "beir") == [{"doc_id": "d", "title": "t", "text": "x", "metadata": {}}]
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/a.yml").write_text("x = 1\n")
    (tmp_path / "tree/b.cfg").write_bytes("é".encode("cp1252"))
    (tmp_path / "tree/c.md").write_text("")
    stream = DocumentStream([tmp_path / "tree"])
    assert rows_of(stream) == [
        {"doc_id": "b.cfg", "title": "b.cfg", "text": "é", **of_tree("é".encode("cp1252"), 1, "ini")},
        {"doc_id": "sub/a.yml", "title": "a.yml", "text": "x = 1\n", **of_tree(b"x = 1\n", 6, "yaml")},
    ]
    assert stream.counts.skipped_files == Counter({"empty": 1})
    assert stream.notices == ["1 file is not UTF-8 and read as cp1252"]
    assert [(r.file, r.reason) for r in stream.rejects] == [(str(tmp_path / "tree/c.md"), "empty")]


def test_languages_whose_grammar_is_not_installed_are_told_once(tmp_path, monkeypatch):
    for name in ("a.go", "b.go", "c.rs", "d.py", "e.txt"):
        (tmp_path / name).write_text("text\n")
    stream = DocumentStream([tmp_path])
    assert sum(batch.num_rows for batch in stream) == 5 and stream.notices == []
    for grammar in ("tree_sitter_go", "tree_sitter_rust"):
        monkeypatch.setitem(sys.modules, grammar, None)
    loaded.cache_clear()
    try:
        stream = DocumentStream([tmp_path])
        assert sum(batch.num_rows for batch in stream) == 5
    finally:
        loaded.cache_clear()
    assert stream.notices == [
        'Go, Rust: files are not cut into functions and classes; pip install "retrieve-rerank[code]"'
    ]


def test_one_text_file_is_one_document(tmp_path):
    for name, lang in (("notes.txt", None), ("Makefile", "makefile")):
        (tmp_path / name).write_text("all:\n")
        own = of_tree(b"all:\n", 5, lang)
        del own["digest"]  # which a sync of folders goes by
        assert read(tmp_path / name) == [{"doc_id": name, "title": name, "text": "all:\n", **own}]


@pytest.mark.parametrize(
    ("name", "data"),
    [("corpus.dat", b"x"), ("a.png", b"x"), ("a.txt", b"\0\0"), ("LICENSE", b"\xff"), ("a.parquet.gz", b"x")],
)
def test_a_file_of_no_known_kind_is_refused_at_once_naming_those_that_are(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=rf"{name}: no corpus file.*\.jsonl .*\.parquet .*\.zst"):
        DocumentStream([tmp_path / name])


def test_sources_are_checked_before_anything_is_read(tmp_path):
    path = save(tmp_path / "c.jsonl", {"id": "a", "text": "x"})
    with pytest.raises(DataError, match=r"no.jsonl: no such file or folder"):
        DocumentStream([path, tmp_path / "no.jsonl"])
    with pytest.raises(ConfigError, match="given twice"):
        DocumentStream([path, tmp_path / "." / "c.jsonl"])
    with pytest.raises(ConfigError, match="no corpus given"):
        DocumentStream([])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", b""),
        ("a.jsonl", b"\n \n\r\n"),
        ("a.csv", b"id,text\r\n"),
        ("a.tsv", b""),
        ("a.jsonl.gz", gzip.compress(b"")),
    ],
)
def test_no_documents_at_all_is_an_error_naming_the_source(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    assert error_of(tmp_path / name) == f"no documents in {tmp_path / name}"


def test_no_documents_says_what_was_left_out(tmp_path):
    pq.write_table(
        pa.table({"id": pa.array([], pa.string()), "text": pa.array([], pa.string())}), tmp_path / "e.parquet"
    )
    assert error_of(tmp_path / "e.parquet") == f"no documents in {tmp_path / 'e.parquet'}"
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/.keep").write_text("")
    assert error_of(tmp_path / "tree").endswith("(1 skipped: hidden file)")
    path = save(tmp_path / "c.jsonl", {"key": "a", "text": "x"}, {"key": "b", "text": "y"})
    assert "(2 bad records left out; the first: no id field" in error_of(path, on_bad="skip")
    good = save(tmp_path / "good.jsonl", {"id": "a", "text": "x"})
    empty = save(tmp_path / "empty.jsonl")
    stream = DocumentStream([empty, good])
    assert len(rows_of(stream)) == 1
    assert stream.notices == [f"no documents in {empty}"]


def test_tables_and_encodings_reach_their_reader(tmp_path):
    (tmp_path / "c.csv").write_bytes("id,text,note\n1,café,\n".encode("cp1252"))
    message = error_of(tmp_path / "c.csv")
    assert "c.csv, line 2: byte 0xe9 at byte 6 of the line is not utf-8 (--encoding names another" in message
    (tmp_path / "h.csv").write_bytes("id,text,Größe\n1,a,b\n".encode("cp1252"))
    assert "h.csv: line 1: byte 0xf6 at byte 11 of the line is not utf-8 (--encoding" in error_of(tmp_path / "h.csv")
    (tmp_path / "q.csv").write_bytes('id,text\n1,"a\ncafé"\n'.encode("cp1252"))
    assert "q.csv, line 2: line 3: byte 0xe9 at byte 4 of the line is not utf-8 (--enc" in error_of(tmp_path / "q.csv")
    assert read(tmp_path / "c.csv", encoding="cp1252") == [{"doc_id": "1", "title": "", "text": "café", "note": ""}]
    (tmp_path / "collection.tsv").write_text('0\tsize 6" pipe\n1\t"x\n')
    assert [row["text"] for row in read(tmp_path / "collection.tsv")] == ['size 6" pipe', '"x']
    (tmp_path / "h.tsv").write_text("id\ttext\n")
    assert read(tmp_path / "h.tsv", header=False) == [{"doc_id": "id", "title": "", "text": "text"}]


@pytest.mark.parametrize(
    "settings",
    [{"encoding": "utf-9"}, {"on_bad": "ignore"}, {"header": False, "id_field": "key"}],
)
def test_settings_that_cannot_be_used_are_refused(settings):
    with pytest.raises(ConfigError, match="--"):
        DocumentSettings(**settings)


# The whole


def test_batches_hold_at_most_so_many_documents_and_end_early_when_large(tmp_path, monkeypatch):
    path = save(tmp_path / "c.jsonl", *({"id": n, "text": "x" * 100} for n in range(10)))
    assert [batch.num_rows for batch in DocumentStream([path], batch_rows=4)] == [4, 4, 2]
    monkeypatch.setattr(module, "BATCH_BYTES", 300)
    monkeypatch.setattr("retrieval.lines.BLOCK_BYTES", 130)
    sizes = [batch.num_rows for batch in DocumentStream([path])]
    assert sum(sizes) == 10
    assert max(sizes) <= 4
    (tmp_path / "tree").mkdir()
    for n in range(10):
        (tmp_path / f"tree/{n}.txt").write_text("x" * 100)
    assert [batch.num_rows for batch in DocumentStream([tmp_path / "tree"])] == [3, 3, 3, 1]


def test_the_three_columns_are_first_and_never_null(tmp_path):
    path = save(tmp_path / "c.jsonl", {"year": 1, "text": "x", "id": "a"})
    (batch,) = DocumentStream([path])
    assert batch.schema.names == ["doc_id", "title", "text", "year"]
    assert [field.type for field in batch.schema][:3] == [pa.string()] * 3


def test_rejects_are_bounded_in_memory_and_complete_in_the_file(tmp_path):
    path = save(tmp_path / "c.jsonl", {"id": "a", "text": "é"}, *(["{"] * 3000), {"id": "\n", "text": None})
    stream = DocumentStream([path], SKIP)
    assert len(rows_of(stream)) == 1
    assert len(stream.rejects) == 1000
    assert stream.counts.rejected == 3001
    for _ in range(2):
        stream.write_rejects(tmp_path / "rejects.jsonl")
        lines = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text("utf-8").splitlines()]
        assert [line["line"] for line in lines] == list(range(2, 3003))
        assert lines[-1] == {"file": str(path), "line": 3002, "reason": "'text' is null; expected a string"}
    with pytest.raises(DataError, match="cannot write"):
        stream.write_rejects(tmp_path / "no/such/folder.jsonl")


def test_the_share_read_grows_to_one(tmp_path):
    one = save(tmp_path / "a.jsonl", *({"id": n, "text": "x" * 1000} for n in range(2000)))
    (tmp_path / "tree").mkdir()
    for n in range(10):
        (tmp_path / f"tree/{n}.txt").write_text("y" * 10_000)
    two = tmp_path / "b.jsonl.gz"
    two.write_bytes(
        gzip.compress(
            b"".join(b'{"id": "b%d", "text": "%s"}\n' % (n, os.urandom(200).hex().encode()) for n in range(2000))
        )
    )
    pq.write_table(pa.table({"id": [f"p{n}" for n in range(100)], "text": ["x"] * 100}), tmp_path / "c.parquet")
    stream = DocumentStream([one, tmp_path / "tree", two, tmp_path / "c.parquet"], batch_rows=50)
    shares = [stream.share_read for _ in stream]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.3
    assert len({round(share, 1) for share in shares}) > 6
    assert stream.share_read == 1.0


def test_the_fingerprint_follows_the_inputs_and_the_settings(tmp_path):
    path = save(tmp_path / "c.jsonl", {"id": "a", "text": "x"})
    (tmp_path / "tree").mkdir()
    file = tmp_path / "tree/a.py"
    file.write_text("x")

    def now(settings=DocumentSettings()):
        return DocumentStream([path, tmp_path / "tree"], settings).fingerprint()

    prints = [now()]
    assert now() == prints[0]
    assert now(SKIP) == prints[0]  # a build that stopped at a bad record goes on with skip
    prints.append(now(DocumentSettings(title_field="x")))
    file.write_text("xy")
    prints.append(now())
    (tmp_path / "tree/b.py").write_text("x")
    prints.append(now())
    os.utime(path, ns=(0, 1))
    prints.append(now())
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize("name", ["a b (1) #1%20 ünï 東京.jsonl", "-x.jsonl", "quote'\".jsonl"])
def test_file_names_are_no_patterns_or_addresses(tmp_path, monkeypatch, name):
    save(tmp_path / name, {"id": "a", "text": "x"}, {"id": "a", "text": "y"})
    monkeypatch.chdir(tmp_path)
    for source in (name, tmp_path / name, f"./{name}"):
        assert error_of(source).startswith(f"{source}, line 2: ")


# Source trees


def test_the_users_patterns_reach_the_trees_and_the_fingerprint(tmp_path):
    for name in ("a.py", "vendor/b.js", "docs/c.md", "docs/d.md", ".gitignore"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("docs/c.md" if name == ".gitignore" else "x")

    def ids(**settings):
        return [row["doc_id"] for row in read(tmp_path, **settings)]

    assert ids() == ["a.py", "docs/d.md"]
    assert ids(include=("vendor/",), exclude=("d.md",)) == ["a.py", "vendor/b.js"]
    prints = [
        DocumentStream([tmp_path], DocumentSettings(**settings)).fingerprint()
        for settings in ({}, {"include": ("vendor/",)}, {"exclude": ("vendor/",)}, {"include": ("nothing",)})
    ]
    assert len(set(prints)) == 4
    for settings in ({"include": ("",)}, {"exclude": ("# a",)}, {"include": "docs"}):
        with pytest.raises(ConfigError, match=r"--(in|ex)clude "):
            DocumentSettings(**settings)


def test_units_of_a_tree_stand_beside_metadata_of_other_sources(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.md").write_text("# One\n\nx\n\n# Two\n\ny\n")
    path = save(tmp_path / "c.jsonl", {"id": "a", "text": "x", "year": 1})
    tree, other = rows_of(DocumentStream([tmp_path / "tree", path]))
    assert [unit["section"] for unit in tree["units"]] == ["One", "Two"]
    assert "units" not in other or other["units"] is None
    assert other["year"] == 1


def test_files_that_have_not_changed_are_passed_over_unread(tmp_path, monkeypatch):
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text(f"{name} = 1")
    digests = {row["doc_id"]: row["digest"] for row in read(tmp_path)}
    (tmp_path / "b.py").write_text("changed")
    stream = DocumentStream([tmp_path])
    stream.leave_out({**digests, "gone.py": digests["a.py"]})
    taken = []
    monkeypatch.setattr(module, "text_of", lambda path, data, **how: taken.append(data) or Skipped(path, "x"))
    assert rows_of(stream) == []
    assert taken == [b"changed"]
    assert stream.unchanged == {"a.py", "c.py"}
    monkeypatch.undo()
    assert [row["doc_id"] for row in rows_of(stream)] == ["b.py"]
    with pytest.raises(DataError, match=r"no file of .* is in the index"):
        stream.leave_out({"other.py": "0"})
    with pytest.raises(ConfigError, match=r"c.jsonl is no folder of files"):
        DocumentStream([tmp_path, save(tmp_path / "c.jsonl", {"id": "a", "text": "x"})]).leave_out(digests)


def test_two_files_of_one_id_are_given_by_the_folder_above(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(f"of {name}")
    message = error_of(tmp_path / "a", tmp_path / "b")
    assert "b/README.md: id 'README.md' came before, in " in message
    assert "give the folder above both" in message and "--on-bad" not in message
    assert {row["doc_id"] for row in read(tmp_path)} == {"a/README.md", "b/README.md"}
    save(tmp_path / "c.jsonl", {"id": "README.md", "text": "x"})
    message = error_of(tmp_path / "a", tmp_path / "c.jsonl")
    assert "c.jsonl, line 1: id 'README.md' came before, " in message and "--on-bad skip" in message


def test_what_is_left_out_is_named_once_to_who_asks_for_more(tmp_path, caplog):
    caplog.set_level("INFO", "retrieval")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.png").write_text("x")
    (tmp_path / "tree/a.txt").write_text("x")
    (tmp_path / "c.jsonl").write_text('{"id": "a.txt", "text": "x"}\n{"id": "b"}\n')
    stream = DocumentStream([tmp_path / "tree", tmp_path / "c.jsonl"], DocumentSettings(on_bad="skip"))
    assert len(rows_of(stream)) == 1
    told = sorted(message.replace(f"{tmp_path}/", "") for message in caplog.messages)
    assert told[0] == "left out c.jsonl, line 1: id 'a.txt' came before, in tree/a.txt"
    assert told[1].startswith("left out c.jsonl, line 2: ")
    assert told[2:] == ["left out tree/a.png: not a text or source file"]

"""Parts of fixed size, and the rows that an index stores of a part."""

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retrieval.chunking import PassageVectors
from retrieval.passages import as_rows, cut_parts


def documents(texts: Sequence[str]) -> pa.Table:
    columns = [[f"d{i}" for i in range(len(texts))], [""] * len(texts), texts]
    schema = pa.schema([(name, pa.string()) for name in ("doc_id", "title", "text")])
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=schema)


def batches(table: pa.Table, cuts: Sequence[int]) -> list[pa.RecordBatch]:
    """Cut a table into batches at the given rows; empty ones are among them."""
    edges = [0, *sorted(min(cut, table.num_rows) for cut in cuts), table.num_rows]
    whole = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return [whole[0].slice(start, end - start) for start, end in itertools.pairwise(edges)]


@given(
    texts=st.lists(st.sampled_from(["", "a", "éé", "x" * 9, "y" * 30]), max_size=25),
    cuts=st.lists(st.integers(0, 25), max_size=6),
    most=st.integers(1, 7),
    size=st.integers(1, 40),
)
def test_parts_are_cut_where_the_documents_say(texts: list[str], cuts: list[int], most: int, size: int) -> None:
    table = documents(texts)
    expected: list[list[str]] = [[]]
    held = 0
    for row in table.to_pylist():
        expected[-1].append(row["text"])
        held += sum(len(value.encode()) for value in row.values())
        if len(expected[-1]) == most or held >= size:
            expected.append([])
            held = 0
    parts = list(cut_parts(batches(table, cuts), most, size))
    assert [part["text"].to_pylist() for part in parts] == [part for part in expected if part]
    if parts:
        assert pa.concat_tables(parts).equals(table)


def test_batches_of_other_columns_make_one_part() -> None:
    one = pa.record_batch({"doc_id": ["a"], "title": [""], "text": ["x"], "year": [1]})
    two = pa.record_batch({"doc_id": ["b"], "title": [""], "text": ["y"], "tag": ["t"]})
    (part,) = cut_parts([one, two], 10, 100)
    assert part.to_pylist() == [
        {"doc_id": "a", "title": "", "text": "x", "year": 1, "tag": None},
        {"doc_id": "b", "title": "", "text": "y", "year": None, "tag": "t"},
    ]


def test_a_row_for_each_passage_and_one_for_a_document_without() -> None:
    table = documents(["", "one two", " ", "three", ""]).append_column("year", pa.array([1, 2, 3, 4, 5]))
    found = PassageVectors(
        parent=np.array([1, 1, 3]),
        start=np.array([0, 4, 0]),
        end=np.array([3, 7, 5]),
        vectors=np.array([[1, 0], [0, 1], [1, 1]], np.float32),
    )
    rows, vectors, empty = as_rows(table, found, 2)
    assert empty == 3
    assert vectors.tolist() == [[0, 0], [1, 0], [0, 1], [0, 0], [1, 1], [0, 0]]
    assert rows.select(["doc_id", "text", "passage", "start", "end", "year"]).to_pylist() == [
        {"doc_id": "d0", "text": "", "passage": None, "start": 0, "end": 0, "year": 1},
        {"doc_id": "d1", "text": "one", "passage": 0, "start": 0, "end": 3, "year": 2},
        {"doc_id": "d1", "text": "two", "passage": 1, "start": 4, "end": 7, "year": 2},
        {"doc_id": "d2", "text": " ", "passage": None, "start": 0, "end": 0, "year": 3},
        {"doc_id": "d3", "text": "three", "passage": 0, "start": 0, "end": 5, "year": 4},
        {"doc_id": "d4", "text": "", "passage": None, "start": 0, "end": 0, "year": 5},
    ]


def test_documents_that_are_all_empty_are_all_kept() -> None:
    nothing = np.empty(0, np.int64)
    found = PassageVectors(parent=nothing, start=nothing, end=nothing, vectors=np.empty((0, 3), np.float32))
    rows, vectors, empty = as_rows(documents(["", " "]), found, 3)
    assert (rows.num_rows, vectors.shape, empty) == (2, (2, 3), 2)


def test_a_long_document_is_not_repeated_for_each_of_its_passages() -> None:
    """As passages of 1,000 characters, 4 MB of text times 4,000 rows would be more than Arrow or memory holds."""
    text = "word " * 800_000
    start = np.arange(0, len(text), 1000)
    parent = np.zeros(len(start), np.int64)
    found = PassageVectors(parent=parent, start=start, end=start + 1000, vectors=np.ones((len(start), 2), np.float32))
    before = pa.total_allocated_bytes()
    table, _, empty = as_rows(documents([text]), found, 2)
    assert pa.total_allocated_bytes() - before < 5 * len(text)
    assert (table.num_rows, empty) == (4000, 0)
    assert "".join(table["text"].to_pylist()) == text
    assert table.column_names == ["doc_id", "title", "text", "passage", "start", "end"]
    assert table["passage"].to_pylist() == list(range(4000))

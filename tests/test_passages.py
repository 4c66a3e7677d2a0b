"""Parts of fixed size, and the rows that an index stores of a part."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.chunking import PassageVectors
from retrieval.encoder import BiEncoder, EncoderSettings
from retrieval.errors import DataError
from retrieval.index.reader import Index
from retrieval.indexing import add_documents, build_index, compact_index
from retrieval.passages import EncodedPassages, as_rows, cut_parts
from retrieval.retriever import Retriever
from retrieval.units import UNITS, UNITS_TYPE, Unit, units_column


def documents(texts: Sequence[str]) -> pa.Table:
    columns = [[f"d{i}" for i in range(len(texts))], [""] * len(texts), texts]
    schema = pa.schema([(name, pa.string()) for name in ("doc_id", "title", "text")])
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=schema)


def batches(table: pa.Table, cuts: Sequence[int]) -> list[pa.RecordBatch]:
    """Cut a table into batches at the given rows; empty ones are among them."""
    edges = [0, *sorted(min(cut, table.num_rows) for cut in cuts), table.num_rows]
    whole = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return [whole[0].slice(start, end - start) for start, end in itertools.pairwise(edges)]


@settings(deadline=None)
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


LONG = "\n".join(f"    line {n} of the second function, with some words" for n in range(30))
CODE = f"import os\n\ndef f():\n    return 1\n\ndef g():\n{LONG}\n"


def cut(text: str, *parts: tuple[str, str, str]) -> list[Unit]:
    """Units of a text: what each begins with, its section and kind; each ends where the next begins."""
    starts = [text.index(part) for part, _, _ in parts]
    ends = [start + len(text[start:end].rstrip()) for start, end in itertools.pairwise([*starts, len(text)])]
    names = [part[1:] for part in parts]
    return [
        Unit(start=s, end=e, section=section, kind=kind)
        for s, e, (section, kind) in zip(starts, ends, names, strict=True)
    ]


FUNCTIONS = (("import", "", "code"), ("def f", "f", "function"), ("def g", "g", "function"))


def with_units(texts: Sequence[str], units: Sequence[Sequence[Unit] | None]) -> pa.Table:
    table = documents(texts).append_column(pa.field(UNITS, UNITS_TYPE), units_column(units))
    return table.set_column(1, "title", pa.array([f"d{n}.py" for n in range(len(texts))]))


def write(path: Path, table: pa.Table) -> Path:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def encoder(tiny: Any, **settings: Any) -> BiEncoder:
    return BiEncoder.load(tiny("mean"), settings=EncoderSettings(**settings))


def rows_of(table: pa.Table, model: BiEncoder) -> list[dict[str, Any]]:
    found = EncodedPassages(model).passages(table, lambda share: None)
    rows, vectors, _ = as_rows(table, found, model.dim)
    assert len(vectors) == rows.num_rows
    return rows.to_pylist()


def test_no_passage_crosses_the_border_of_a_unit(tiny: Any) -> None:
    model = encoder(tiny, max_length=60, overlap=8)
    table = with_units(["plain " * 100, CODE, ""], [None, cut(CODE, *FUNCTIONS), []])
    rows = rows_of(table, model)
    assert {row["doc_id"] for row in rows} == {"d0", "d1", "d2"}
    assert "units" not in rows[0]
    code = [row for row in rows if row["doc_id"] == "d1"]
    assert [row["passage"] for row in code] == list(range(len(code)))
    assert [row["section"] for row in code[:3]] == ["", "f", "g"]
    assert {row["section"] for row in code[3:]} == {"g"} and len(code) > 5
    assert {row["title"] for row in code} == {"d1.py", "d1.py > f", "d1.py > g"}
    lines = CODE.split("\n")
    for row in code:
        assert row["text"] == CODE[row["start"] : row["end"]]
        assert row["text"] in "\n".join(lines[row["start_line"] - 1 : row["end_line"]])
        assert row["text"].split("\n")[0] in lines[row["start_line"] - 1]
        assert row["text"].split("\n")[-1] in lines[row["end_line"] - 1]
    for row in rows:
        if row["doc_id"] != "d1":
            assert (row["section"], row["kind"], row["start_line"], row["end_line"]) == (None, None, None, None)
            assert row["title"] == f"{row['doc_id']}.py"


def test_a_unit_is_encoded_as_a_document_of_its_own(tiny: Any) -> None:
    model = encoder(tiny)
    table = with_units([CODE], [cut(CODE, *FUNCTIONS)])
    found = EncodedPassages(model).passages(table, lambda share: None)
    alone = model.encode_documents(["d0.py > f"], ["def f():\n    return 1"])
    assert np.array_equal(found.vectors[1], alone.vectors[0])


def test_blank_units_are_no_passages_and_blank_documents_keep_their_row(tiny: Any) -> None:
    text = "a\n \n\u200b\nb"
    units = cut(text, ("a", "A", "section"), (" ", "blank", "section"), ("b", "B", "section"))
    rows = rows_of(with_units([text, " "], [units, cut(" ", (" ", "", "text"))]), encoder(tiny))
    assert [(row["doc_id"], row["section"], row["start_line"]) for row in rows] == [
        ("d0", "A", 1),
        ("d0", "B", 4),
        ("d1", None, None),  # its title is what is searched
    ]


def test_cells_and_pages_have_no_lines(tiny: Any) -> None:
    text = "one\ntwo"
    units = cut(text, ("one", "cell 1", "cell"), ("two", "page 2", "page"))
    rows = rows_of(with_units([text], [units]), encoder(tiny))
    assert [(row["section"], row["kind"], row["start_line"], row["end_line"]) for row in rows] == [
        ("cell 1", "cell", None, None),
        ("page 2", "page", None, None),
    ]


def test_an_error_names_the_document_not_the_unit(tiny: Any) -> None:
    table = with_units(["short", CODE], [None, cut(CODE, *FUNCTIONS)])
    with pytest.raises(DataError, match="document 'd1' "):
        rows_of(table, encoder(tiny, max_length=60, on_long="error"))


def test_ready_made_vectors_ignore_units(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.arrow", with_units([CODE, "x"], [cut(CODE, *FUNCTIONS), None]))
    np.save(tmp_path / "v.npy", np.eye(2, dtype=np.float32))
    build_index(corpus, tmp_path / "index", vectors=tmp_path / "v.npy")
    (hit, _) = Retriever.open(tmp_path / "index").search(np.array([1, 0], np.float32))
    assert (hit.text, hit.section, hit.start_line, hit.metadata) == (CODE, None, None, {})


def test_hits_say_which_part_of_a_document_they_are(tmp_path: Path, tiny: Any) -> None:
    table = with_units([CODE, "x"], [cut(CODE, *FUNCTIONS), None])
    table = table.append_column("digest", pa.array(["0f", "1e"])).append_column("lang", pa.array(["python", "none"]))
    build_index(write(tmp_path / "corpus.arrow", table), tmp_path / "index", model=tiny("mean"))
    plain = write(tmp_path / "plain.arrow", documents(["some prose"]).set_column(0, "doc_id", pa.array(["p"])))
    add_documents(plain, tmp_path / "index")
    for _ in range(2):
        hits = {hit.doc_id: hit for hit in Retriever.open(tmp_path / "index").search("return 1")}
        assert (hits["d0"].section, hits["d0"].kind) in {("f", "function"), ("g", "function"), ("", "code")}
        assert hits["d0"].metadata == {"lang": "python"}
        assert hits["d0"].to_dict()["start_line"] == hits["d0"].start_line
        assert (hits["p"].section, hits["p"].kind, hits["p"].end_line) == (None, None, None)
        compact_index(tmp_path / "index")


def test_metadata_that_is_called_as_a_units_column_stays_metadata(tmp_path: Path, tiny: Any) -> None:
    table = documents(["x"]).append_column("kind", pa.array(["k"])).append_column("digest", pa.array(["d"]))
    table = table.append_column("units", pa.array(["u"]))
    build_index(write(tmp_path / "plain.arrow", table), tmp_path / "index", model=tiny("mean"))
    (hit,) = Retriever.open(tmp_path / "index").search("x")
    assert hit.metadata == {"kind": "k", "digest": "d", "units": "u"} and hit.kind is None
    units = with_units([CODE], [cut(CODE, *FUNCTIONS)]).set_column(0, "doc_id", pa.array(["tree"]))
    both = [tmp_path / "plain.arrow", write(tmp_path / "tree.arrow", units)]
    with pytest.raises(DataError, match=r"'units' is metadata of some documents.*rename the metadata"):
        build_index(both, tmp_path / "other", model=tiny("mean"))
    write(tmp_path / "plain.arrow", table.drop_columns("units"))
    with pytest.raises(DataError, match=r"'kind' is metadata of some documents.*rename the metadata"):
        build_index(both, tmp_path / "other", model=tiny("mean"))
    with pytest.raises(DataError, match=r"'kind' is metadata of some documents.*rename the metadata"):
        add_documents(both[1], tmp_path / "index")
    assert not (tmp_path / "other").exists()
    assert Index.open(tmp_path / "index").manifest.documents == 1


TREE = {
    "plain.py": "import os\n\n\ndef f():\n    return 1\n",
    "windows.py": "import os\r\n\r\n\r\ndef f():\r\n    return 1\r\n",
    "no end.js": "// é😀\nfunction f() { return '東京' }",
    "long.go": "package a\n\nfunc f() {\n" + "".join(f"\tcall({n}, {n})\n" for n in range(200)) + "}\n",
    "broken.c": "int f( {\n  return 1;\n\n}}}\nint g(void) { return 2; }\n",
    "form feed.py": "\n\n\x0cclass A:\n\x0c    def f(self):\n\n\n        return '\u2028\x85'\n\n\n\n",
    "one line.rs": "fn a() {} fn b() {} struct C; impl C { fn d() {} }",
    "data.json": "{\n" + "".join(f'  "key {n}": {n},\n' for n in range(300)) + '  "last": 1\n}\n',
    "guide.md": "before\n\n# One\n\n" + "a word or two\n" * 200 + "\n## Two\n\n\n\nlast\n\n\n",
    "bom.py": "\ufeffdef f(): pass\n",
}


def test_the_lines_of_a_hit_are_those_of_the_file(tmp_path: Path, tiny: Any) -> None:
    for name, text in TREE.items():
        (tmp_path / "tree").mkdir(exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(text.encode())
    build_index(tmp_path / "tree", tmp_path / "index", model=tiny("mean"))
    rows = [row for batch in Index.open(tmp_path / "index").documents() for row in batch.to_pylist()]
    assert {row["doc_id"] for row in rows} == set(TREE)
    for row in rows:
        lines = (tmp_path / "tree" / row["doc_id"]).read_bytes().decode("utf-8-sig").split("\n")
        found = "\n".join(lines[row["start_line"] - 1 : row["end_line"]])
        assert row["text"] in found, row
        first, last = found.split("\n")[0], found.split("\n")[-1]
        assert row["text"].split("\n")[0] in first and row["text"].split("\n")[-1] in last
    assert len(rows) > 60
    assert {row["kind"] for row in rows} >= {"function", "method", "class", "code", "section", "text"}

"""From documents to an index: reports, changes, vectors of one's own, standard input."""

import io
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from worlds import add, build, records, unit, write_corpus

from retrieval import (
    ConfigError,
    DataError,
    DocumentSettings,
    EncoderSettings,
    IndexMismatchError,
    IndexSettings,
    Retriever,
    add_documents,
    build_index,
    compact_index,
    delete_documents,
)
from retrieval.chunking import PassageVectors
from retrieval.cli import main
from retrieval.index.manifest import Manifest
from retrieval.index.reader import Index
from retrieval.indexing import Progress

LONG = " ".join(f"word {i * i % 97} of {i}." for i in range(200))
DOCUMENTS: list[dict[str, Any]] = [
    *({"_id": f"d{i}", "text": f"Note {i}: level {i * 37 % 11}.", "year": 2000 + i} for i in range(9)),
    {"_id": "void", "title": "\u200b", "text": "", "year": 1},
    {"_id": "long", "title": "Long", "text": LONG, "year": 2},
    {"_id": "titled", "title": "Only a title", "text": " ", "year": 3},
]


def write(path: Path, documents: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


def answers(path: Path) -> list[list[dict[str, object]]]:
    queries = ["Note 3: level 1.", "Only a title", "word 9 of 3.", "level"]
    return [[hit.to_dict() for hit in hits] for hits in Retriever.open(path).search_many(queries, 100)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus.jsonl", DOCUMENTS)


def test_a_report_counts_what_was_done(corpus: Path, tmp_path: Path, tiny: Any) -> None:
    calls: list[Progress] = []
    report = build_index(corpus, tmp_path / "index", model=tiny("mean"), progress=calls.append)
    assert (report.documents, report.index_documents, report.empty) == (12, 12, 1)
    assert report.passages == report.index_passages > 13  # the long one is several
    assert report.cut["texts_windowed"] == 1
    assert report.cut["texts_encoded"] + report.cut.get("texts_reused", 0) == report.passages - report.empty
    assert (report.kept, report.rejected, report.replaced, report.recall_at_10) == (0, 0, 0, None)
    assert report.index_type == "flat"
    assert report.seconds > 0
    assert json.loads(json.dumps(report.to_dict()))["documents"] == 12
    assert [call.stage for call in calls] == ["documents"] * (len(calls) - 1) + ["commit"]
    assert len(calls) > 3  # within the only part, too
    for one, next_one in itertools.pairwise(calls):
        assert one.documents <= next_one.documents and (one.share or 0) <= (next_one.share or 0) <= 1
    assert [(call.documents, call.share) for call in (calls[0], calls[-1])] == [(0, 0.0), (12, 1.0)]


def test_add_and_upsert_end_where_a_fresh_build_does(corpus: Path, tmp_path: Path, tiny: Any) -> None:
    build_index(corpus, tmp_path / "fresh", model=tiny("mean"))
    expected = answers(tmp_path / "fresh")
    old = [{**document, "text": f"Old {document['_id']}"} for document in DOCUMENTS]
    first, rest = write(tmp_path / "1.jsonl", [*DOCUMENTS[:4], *old[4:8]]), write(tmp_path / "2.jsonl", DOCUMENTS[8:])
    build_index(first, tmp_path / "index", model=tiny("mean"))
    added = add_documents(rest, tmp_path / "index")
    assert (added.documents, added.replaced, added.index_documents, added.empty) == (4, 0, 12, 1)
    assert answers(tmp_path / "index") != expected
    with pytest.raises(DataError, match=r"line 5: id 'd4' is already in the index"):
        add_documents(corpus, tmp_path / "index")
    changed = write(tmp_path / "3.jsonl", DOCUMENTS[4:8])
    upserted = add_documents([changed], tmp_path / "index", upsert=True)
    assert (upserted.documents, upserted.replaced, upserted.index_documents) == (4, 4, 12)
    assert answers(tmp_path / "index") == expected
    again = add_documents(corpus, tmp_path / "index", upsert=True)
    assert (again.documents, again.replaced, again.index_documents) == (12, 12, 12)
    assert again.index_passages == Index.open(tmp_path / "fresh").manifest.passages
    assert answers(tmp_path / "index") == expected
    compact_index(tmp_path / "index")
    assert answers(tmp_path / "index") == expected
    assert Index.open(tmp_path / "index").manifest.empty == 1


def test_an_index_encodes_what_is_added_as_it_was_built(tmp_path: Path, tiny: Any) -> None:
    one, two = write(tmp_path / "1.jsonl", DOCUMENTS[:6]), write(tmp_path / "2.jsonl", DOCUMENTS[6:])
    encoding = EncoderSettings(
        pooling="cls", max_length=40, overlap=3, document_prompt="note: ", query_prompt="find: ", on_long="truncate"
    )
    build_index([one, two], tmp_path / "fresh", model=tiny("mean"), encoding=encoding)
    build_index(one, tmp_path / "index", model=tiny("mean"), encoding=encoding)
    assert add_documents(two, tmp_path / "index").cut["texts_truncated"] == 1
    assert answers(tmp_path / "index") == answers(tmp_path / "fresh")
    build_index(one, tmp_path / "other", model=tiny("mean"))
    assert answers(tmp_path / "other")[0][0]["score"] != answers(tmp_path / "index")[0][0]["score"]


def test_another_model_cannot_add(corpus: Path, tmp_path: Path, tiny: Any) -> None:
    build_index(corpus, tmp_path / "index", model=tiny("mean"))
    more = write(tmp_path / "more.jsonl", [{"_id": "new", "text": "new"}])
    for name in ("other", "dim48"):
        with pytest.raises(IndexMismatchError, match=f"made with mean.*given is {name}"):
            add_documents(more, tmp_path / "index", model=tiny(name))
    assert Index.open(tmp_path / "index").manifest.generation == 1


def test_an_empty_document_is_kept_and_never_found(corpus: Path, tmp_path: Path, tiny: Any) -> None:
    build_index(corpus, tmp_path / "index", model=tiny("mean"))
    index = Index.open(tmp_path / "index")
    assert index.manifest.empty == 1
    assert [index.passage(int(row))["text"] for row in index.find(["void"])] == [""]
    found = {hit["doc_id"] for hits in answers(tmp_path / "index") for hit in hits}
    assert found == {document["_id"] for document in DOCUMENTS} - {"void"}
    assert delete_documents(["void", "nobody"], tmp_path / "index").unknown == ["nobody"]
    assert Index.open(tmp_path / "index").manifest.empty == 0


def test_bad_records_can_be_left_out_and_are_listed(tmp_path: Path, tiny: Any) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"_id": "a", "text": "A"}\n{"_id": "b"\n{"_id": "a", "text": "B"}\n{"_id": "c"}\n')
    rejects = tmp_path / "rejects.jsonl"
    with pytest.raises(DataError, match=r"c\.jsonl, line 2"):
        build_index(corpus, tmp_path / "index", model=tiny("mean"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.jsonl"]
    skip = DocumentSettings(on_bad="skip")
    report = build_index(corpus, tmp_path / "index", model=tiny("mean"), documents=skip, rejects=rejects)
    assert (report.documents, report.rejected) == (1, 3)
    listed = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert sorted(entry["line"] for entry in listed) == [2, 3, 4]
    assert all(entry["file"] == str(corpus) and entry["reason"] for entry in listed)
    report = add_documents(corpus, tmp_path / "index", documents=DocumentSettings(on_bad="skip"), upsert=True)
    assert (report.documents, report.replaced, report.index_documents) == (1, 1, 1)


def test_standard_input_is_a_corpus(corpus: Path, tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    build_index(corpus, tmp_path / "fresh", model=tiny("mean"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
    calls: list[Progress] = []
    assert build_index("-", tmp_path / "index", model=tiny("mean"), progress=calls.append).documents == 12
    assert {call.share for call in calls} == {None}
    assert answers(tmp_path / "index") == answers(tmp_path / "fresh")


def test_several_sources_are_one_corpus(corpus: Path, tmp_path: Path, tiny: Any) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "read me.md").write_text("Read this first.")
    report = build_index([corpus, tmp_path / "docs"], tmp_path / "index", model=tiny("mean"))
    assert report.documents == 13
    hit = Retriever.open(tmp_path / "index").search("read me.md Read this first.", 1, mode="dense")[0]
    assert (hit.doc_id, hit.title) == ("read me.md", "read me.md")
    assert hit.score == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"index_type": "nonsense"}, "--index-type nonsense"),
        ({"vector_dtype": "int8"}, "int8.*expected auto, float32 or float16"),
        ({"metric": "euclid"}, "euclid: expected cosine or dot"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_any_work(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    corpus, vectors = write_corpus(tmp_path, records(5), unit(5))
    with pytest.raises(ConfigError, match=message):
        build_index(corpus, tmp_path / "index", vectors=vectors, settings=IndexSettings(**settings))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.jsonl", "c.npy"]


class Lopsided:
    """An encoder of one's own that says cosine and gives rows of any length."""

    dim = 2
    metric = "cosine"
    identity = {"name": "lopsided", "sha256": "1"}  # noqa: RUF012
    notices: dict[str, int] = {}  # noqa: RUF012

    def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
        rows = np.arange(len(texts))
        return PassageVectors(parent=rows, start=rows * 0, end=rows * 0 + 1, vectors=self.encode_queries(texts))

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[text.count("a"), text.count("b")] for text in texts], np.float32)


def test_a_cosine_is_a_cosine_with_any_encoder(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", [{"_id": text, "text": text} for text in ("a", "bbbbbbb", "aaaabbb")])
    build_index(corpus, tmp_path / "index", encoder=Lopsided())
    hits = Retriever.open(tmp_path / "index", encoder=Lopsided(), mode="dense").search("aaaaabbbbb")
    assert [hit.doc_id for hit in hits] == ["aaaabbb", "bbbbbbb", "a"]
    assert [hit.score for hit in hits] == pytest.approx([0.989949, 0.707107, 0.707107], abs=1e-6)
    zero = write(tmp_path / "zero.jsonl", [{"_id": "z", "text": "zero"}])
    with pytest.raises(DataError, match=r"lopsided.*document 'z'.* is zero"):
        add_documents(zero, tmp_path / "index", encoder=Lopsided())


def parquet(path: Path, ids: Sequence[Any], vectors: Any, **more: Any) -> Path:
    pyarrow.parquet.write_table(pa.table({"id": ids, "embedding": vectors, **more}), path)
    return path


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16(), 16)])
def test_vectors_from_parquet_equal_those_from_numpy(tmp_path: Path, kind: pa.DataType) -> None:
    vectors = unit(300).astype(np.float16).astype(np.float32)
    corpus, file = write_corpus(tmp_path, records(300), vectors)
    column = pa.array(list(vectors.astype(kind.value_type.to_pandas_dtype())), kind)
    table = parquet(tmp_path / "v.parquet", [f"d{i}" for i in range(300)], column, text=["t"] * 300)
    build_index(corpus, tmp_path / "1", vectors=file)
    report = build_index(corpus, tmp_path / "2", vectors=table)
    assert (report.documents, report.passages, report.index_type) == (300, 300, "flat")
    found = [Retriever.open(tmp_path / name).search_many(unit(5, 9), 20) for name in "12"]
    assert found[0] == found[1]
    build_index(table, tmp_path / "3", vectors=table)  # one file as both
    hits = Retriever.open(tmp_path / "3").search(unit(5, 9)[0], 20)
    assert [(hit.doc_id, hit.score, hit.metadata) for hit in hits] == [(h.doc_id, h.score, {}) for h in found[0][0]]


def test_the_vectors_column_can_be_named(tmp_path: Path) -> None:
    vectors = [list(map(float, row)) for row in unit(3)]
    corpus, _ = write_corpus(tmp_path, records(3), unit(3))
    table = parquet(tmp_path / "v.parquet", ["d0", "d1", "d2"], vectors, other=[[1.0, 2.0]] * 3)
    with pytest.raises(DataError, match=r"one list column of floats \(or --vector-field\).*other"):
        build_index(corpus, tmp_path / "index", vectors=table)
    for name in ("id", "nothing"):
        with pytest.raises(DataError, match="list column of floats"):
            build_index(corpus, tmp_path / "index", vectors=table, settings=IndexSettings(vector_field=name))
    build_index(corpus, tmp_path / "index", vectors=table, settings=IndexSettings(vector_field="embedding"))
    assert Retriever.open(tmp_path / "index").search(unit(3)[1], 1)[0].doc_id == "d1"


ROWS = [list(map(float, row)) for row in unit(4)]
IDS = ["d0", "d1", "d2", "d3"]


@pytest.mark.parametrize(
    ("ids", "rows", "message"),
    [
        (["d0", "d2", "d1", "d3"], ROWS, r"v\.parquet row 2: id 'd2' where the corpus has 'd1'.*same order"),
        (IDS, [*ROWS[:2], [float("nan")] * 16, ROWS[3]], "document 'd2' holds NaN or infinity"),
        (IDS, [*ROWS[:2], [None] * 16, ROWS[3]], "document 'd2' holds NaN or infinity"),
        (IDS, [*ROWS[:3], [0.0] * 16], "document 'd3' is zero"),
        (IDS[:3], ROWS[:3], "3 vectors and the corpus more documents: none is left for document 'd3'"),
        ([*IDS, "d4"], [*ROWS, ROWS[0]], "5 vectors, the corpus only 4 documents"),
        (IDS, [*ROWS[:3], ROWS[3][:5]], r"v\.parquet row 4: a vector of 5 values for document 'd3'"),
        (IDS, [*ROWS[:3], None], r"v\.parquet row 4: no vector for document 'd3'"),
        (IDS, [[], *ROWS[1:]], r"v\.parquet row 1: a vector of 0 values for document 'd0'"),
        (IDS, [None] * 4, r"v\.parquet row 1: no vector for document 'd0'"),
        ([], [], r"v\.parquet: no vectors"),
    ],
)
def test_vectors_that_do_not_fit_the_documents(tmp_path: Path, ids: list[str], rows: Any, message: str) -> None:
    corpus, _ = write_corpus(tmp_path, records(4), unit(4))
    table = parquet(tmp_path / "v.parquet", pa.array(ids, pa.string()), pa.array(rows, pa.list_(pa.float64())))
    with pytest.raises(DataError, match=message):
        build_index(corpus, tmp_path / "index", vectors=table)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no array",
        b"\x93NUMPY\x01\x00v\x00",
        np.arange(5.0),
        np.array([["a"]]),
        np.zeros((0, 16)),
        np.zeros((3, 0)),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".txt"])
def test_files_that_hold_no_vectors(tmp_path: Path, content: Any, suffix: str) -> None:
    corpus, _ = write_corpus(tmp_path, records(3), unit(3))
    file = tmp_path / f"v{suffix}"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        with file.open("wb") as stream:
            np.save(stream, content)
    with pytest.raises(DataError, match=rf"v\{suffix}") as caught:
        build_index(corpus, tmp_path / "index", vectors=file)
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="no such file"):
        build_index(corpus, tmp_path / "index", vectors=tmp_path / "nothing.npy")


def test_damaged_vector_files_are_one_line(tmp_path: Path) -> None:
    corpus, file = write_corpus(tmp_path, records(2000), unit(2000))
    table = parquet(tmp_path / "v.parquet", [f"d{i}" for i in range(2000)], [list(row) for row in unit(2000)])
    for damaged in (file, table):
        data = damaged.read_bytes()
        damaged.write_bytes(data[: len(data) // 2])
        with pytest.raises(DataError, match=damaged.name):
            build_index(corpus, tmp_path / "index", vectors=damaged)
    middle = len(data) // 2
    table.write_bytes(data[:middle] + bytes(2000) + data[middle + 2000 :])
    with pytest.raises(DataError, match=table.name):
        build_index(corpus, tmp_path / "index", vectors=table)


def test_numbers_too_large_for_float32_are_named(tmp_path: Path) -> None:
    corpus, file = write_corpus(tmp_path, records(3), unit(3))
    np.save(file, np.array([[1.0, 2.0], [1e300, 0.0], [1.0, 1.0]]))
    with pytest.raises(DataError, match="document 'd1' holds NaN or infinity"):
        build_index(corpus, tmp_path / "index", vectors=file)


def test_vectors_need_every_document(tmp_path: Path) -> None:
    corpus, file = write_corpus(tmp_path, records(3), unit(3))
    with pytest.raises(ConfigError, match="--on-bad skip does not go with --vectors"):
        build_index(corpus, tmp_path / "index", vectors=file, documents=DocumentSettings(on_bad="skip"))


def test_added_vectors_have_the_index_dimension(tmp_path: Path) -> None:
    build(tmp_path, 5)
    with pytest.raises(IndexMismatchError, match=r"7 dimensions, the index .* 16"):
        add(tmp_path, records(2, 10), unit(2, dim=7))
    with pytest.raises(ConfigError, match=r"ready-made vectors.*--vectors"):
        add_documents(write(tmp_path / "new.jsonl", [{"_id": "n", "text": "n"}]), tmp_path / "index")


def test_dot_products_keep_their_length(tmp_path: Path) -> None:
    corpus, file = write_corpus(tmp_path, records(3), np.array([[3, 4], [0, 1], [10, 0]], np.int16))
    build_index(corpus, tmp_path / "dot", vectors=file, settings=IndexSettings(metric="dot"))
    hits = Retriever.open(tmp_path / "dot").search(np.array([1, 1]))
    assert [(hit.doc_id, hit.score) for hit in hits] == [("d2", 10.0), ("d0", 7.0), ("d1", 1.0)]
    build_index(corpus, tmp_path / "cosine", vectors=file)
    hits = Retriever.open(tmp_path / "cosine").search(np.array([5, 0]))
    assert [(hit.doc_id, round(hit.score, 6)) for hit in hits] == [("d2", 1.0), ("d0", 0.6), ("d1", 0.0)]


def test_a_build_that_stopped_at_a_bad_record_goes_on_when_it_may_skip(tmp_path: Path) -> None:
    documents = [{"_id": f"d{i}", "text": "a" * (i % 7 + 1) + "b" + " " * 900} for i in range(30_000)]
    corpus = write(tmp_path / "c.jsonl", documents)
    with corpus.open("a") as end:
        end.write("{broken\n")
    with pytest.raises(DataError, match="line 30001"):
        build_index(corpus, tmp_path / "index", encoder=Lopsided())
    report = build_index(corpus, tmp_path / "index", encoder=Lopsided(), documents=DocumentSettings(on_bad="skip"))
    assert report.kept >= 2048
    assert (report.rejected, report.index_documents) == (1, 30_000)
    build_index(write(tmp_path / "sound.jsonl", documents), tmp_path / "fresh", encoder=Lopsided())
    for name in ("documents.arrow", "vectors.faiss"):
        one, other = (next((tmp_path / index).rglob(name)).read_bytes() for index in ("index", "fresh"))
        assert one == other


def test_a_document_that_the_encoder_refuses_is_named_by_its_id(tmp_path: Path, tiny: Any) -> None:
    corpus = write(tmp_path / "c.jsonl", [{"_id": "fine", "text": "a"}, {"_id": "too/long", "text": LONG}])
    with pytest.raises(DataError, match=r"^document 'too/long' .* has .* tokens, the limit is 128"):
        build_index(corpus, tmp_path / "index", model=tiny("mean"), encoding=EncoderSettings(on_long="error"))


def test_arguments_of_another_kind_are_refused_and_nothing_is_deleted(tmp_path: Path) -> None:
    path = build(tmp_path, 20)
    with pytest.raises(ConfigError, match="doc_ids is the string 'd1'"):
        delete_documents("d1", path)
    with pytest.raises(DataError, match="id 1 is int; ids are strings, '1' for this one"):
        delete_documents([1], path)  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="corpus holds a dict"):
        build_index([{"_id": "a"}], tmp_path / "new")  # type: ignore[list-item]
    retriever = Retriever.open(path)
    for query in (None, 5, ["a", "b"]):
        with pytest.raises(ConfigError, match="expected a text or a vector"):
            retriever.search(query)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a query is int"):
        retriever.search_many([5])  # type: ignore[list-item]
    for k in ("5", 5.0, 0, None):
        with pytest.raises(ConfigError, match="k is"):
            retriever.search(unit(1)[0], k)  # type: ignore[arg-type]
    assert len(retriever.search(unit(1)[0], 50)) == 20


def test_a_column_that_changes_its_type_is_told(tmp_path: Path) -> None:
    build(tmp_path, 20)
    report = add(tmp_path, [{"_id": "x", "text": "t", "year": "MMXX"}], unit(1, 3))
    assert [n for n in report.notices if "column year is string here and int64 in the index" in n]
    assert not any("column" in n for n in add(tmp_path, [{"_id": "y", "text": "t"}], unit(1, 4)).notices)


def test_recall_is_measured_on_passages_that_have_a_text(tmp_path: Path) -> None:
    class Halves(Lopsided):
        """Every second document has no text."""

        def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
            rows = np.flatnonzero([bool(text) for text in texts])
            angles = rows * 0.01
            vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
            return PassageVectors(parent=rows, start=rows * 0, end=rows * 0 + 1, vectors=vectors)

    corpus = write(tmp_path / "c.jsonl", [{"_id": f"d{i}", "text": "a" * (i % 2)} for i in range(200)])
    report = build_index(corpus, tmp_path / "index", encoder=Halves(), settings=IndexSettings(index_type="hnsw"))
    assert report.empty == 100
    assert report.recall_at_10 == pytest.approx(1.0, abs=0.05)


def test_optimize_and_info_tell_the_recall_and_the_parameters(tmp_path: Path) -> None:
    path = build(tmp_path, 1000)
    run = CliRunner()
    done = run.invoke(main, ["optimize", str(path), "--index-type", "hnsw", "--min-recall", ".9"])
    made = Manifest.read(path).approximate
    assert done.exit_code == 0 and made is not None
    told = f"search: HNSW16_SQ8, efSearch {made.parameters['efSearch']}, candidates 32; recall@10 "
    assert told in done.stderr.replace("\n", " ")
    facts = json.loads(run.invoke(main, ["info", str(path), "--json"]).stdout)
    assert facts["search"] == f"HNSW16_SQ8 efSearch {made.parameters['efSearch']}, candidates 32"
    assert facts["recall@10"] == f"{made.recall_at_10} on 50 of its passages, 0.9 asked for"
    assert facts["search bytes"] == made.file.bytes
    missed = run.invoke(main, ["optimize", str(path), "--index-type", "PQ1x2", "--memory-limit", "1KiB"])
    assert "above --memory-limit 1,024" in missed.stderr.replace("\n", " ")
    assert run.invoke(main, ["optimize", str(path), "--index-type", "auto"]).stderr.strip() == "search: exact"


@pytest.mark.parametrize(
    ("given", "expected"),
    [("800", 800), ("2GB", 2 * 10**9), ("1.5 GiB", 3 * 2**29), ("500m", 5 * 10**8), ("7kb", 7000), ("9B", 9)],
)
def test_sizes_have_units(given: str, expected: int, tmp_path: Path) -> None:
    path = build(tmp_path, 5)
    assert CliRunner().invoke(main, ["optimize", str(path), "--memory-limit", given]).exit_code == 0
    assert Manifest.read(path).memory_limit == expected


@pytest.mark.parametrize("given", ["", "GB", "-1", "0", "2 XB", "1e3"])
def test_what_is_no_size_is_refused(given: str, tmp_path: Path) -> None:
    path = build(tmp_path, 5)
    refused = CliRunner().invoke(main, ["optimize", str(path), "--memory-limit", given])
    assert refused.exit_code in (1, 2) and Manifest.read(path).generation == 1

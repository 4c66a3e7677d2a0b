"""Searching an index: against brute force, at ties, with filters, across segments, in threads and after a fork."""

import multiprocessing
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow.compute as pc
import pytest
from worlds import DIM, add, brute_force, build, records, unit, write_corpus

from retrieval import DataError, IndexMismatchError, IndexSettings, Retriever, build_index, delete_documents
from retrieval.chunking import PassageVectors
from retrieval.index.reader import Index


def ids(hits):  # type: ignore[no-untyped-def]
    return [hit.doc_id for hit in hits]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_flat_equals_brute_force(tmp_path: Path, dtype: str) -> None:
    retriever = Retriever.open(build(tmp_path, 700, vector_dtype=dtype))
    stored = unit(700)
    if dtype == "float16":
        stored = stored.astype("<f2").astype(np.float32)
    known = {f"d{i}": v for i, v in enumerate(stored)}
    for query, hits in zip(unit(30, 5), retriever.search_many(unit(30, 5), 9), strict=True):
        assert [(h.doc_id, h.score) for h in hits] == brute_force(known, query, 9)


def test_ties_are_ordered_by_id_and_a_shorter_list_is_a_prefix(tmp_path: Path) -> None:
    vectors = unit(400)
    vectors[50:350] = vectors[50]  # 300 equal documents, far more than one fetch
    corpus, file = write_corpus(tmp_path, records(400), vectors)
    build_index(corpus, tmp_path / "index", vectors=file)
    retriever = Retriever.open(tmp_path / "index")
    expected = sorted((f"d{i}" for i in range(50, 350)), reverse=True)
    for k in (1, 3, 6, 120, 300):
        assert ids(retriever.search(vectors[50], k)) == expected[:k]
    together = retriever.search_many(np.stack([vectors[50]] + [vectors[0]] * 25), 6)
    assert ids(together[0]) == expected[:6]


def test_one_query_answers_the_same_alone_and_in_a_batch(tmp_path: Path) -> None:
    retriever = Retriever.open(build(tmp_path, 800))
    queries = unit(60, 3)
    together = retriever.search_many(queries, 12)
    assert together == [retriever.search(query, 12) for query in queries]


@pytest.mark.parametrize("index_type", ["flat", "hnsw", "ivf"])
@pytest.mark.parametrize("share", [0.01, 0.5])
def test_filters_act_inside_the_search(tmp_path: Path, index_type: str, share: float) -> None:
    retriever = Retriever.open(build(tmp_path, 2000, index_type=index_type))
    limit = 1900 + int(100 * share)
    passing = {f"d{i}": v for i, v in enumerate(unit(2000)) if 1900 + i % 100 < limit}
    for query in unit(5, 8):
        hits = retriever.search(query, 10, where=pc.field("year") < limit)
        assert len(hits) == 10
        assert all(hit.metadata["year"] < limit for hit in hits)
        best = [doc_id for doc_id, _ in brute_force(passing, query, 10)]
        assert len(set(ids(hits)) & set(best)) >= (10 if index_type == "flat" or share == 0.01 else 8)


@pytest.mark.parametrize("index_type", ["hnsw", "ivf"])
@pytest.mark.parametrize("added", [0, 100])
def test_a_filter_that_passes_only_far_documents_does_not_starve_the_result(
    tmp_path: Path, index_type: str, added: int
) -> None:
    """Two clusters: the filter passes the one, the query lies in the other, so the index looks in the wrong place."""
    vectors = 0.3 * unit(6000)
    vectors[:4000, 0] += 5
    vectors[4000:, 1] += 5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    docs = [{"_id": f"d{i}", "text": "x", "far": i >= 4000} for i in range(6000)]
    first = 6000 - added
    corpus, file = write_corpus(tmp_path, docs[:first], vectors[:first])
    build_index(corpus, tmp_path / "index", vectors=file, settings=IndexSettings(index_type=index_type))
    if added:  # these are searched exactly beside the index, and must not hide that it came back short
        add(tmp_path, docs[first:], vectors[first:])
    retriever = Retriever.open(tmp_path / "index")
    far = {f"d{i}": v for i, v in enumerate(vectors) if i >= 4000}
    found = retriever.search_many(np.stack([vectors[0], vectors[5000]]), 10, where=pc.field("far"))
    assert [(h.doc_id, h.score) for h in found[0]] == brute_force(far, vectors[0], 10)
    assert len(found[1]) == 10
    assert len(retriever.search(vectors[0], 5900)) == 5900


def test_a_filter_that_does_not_fit_is_one_clear_line(tmp_path: Path) -> None:
    retriever = Retriever.open(build(tmp_path, 20))
    with pytest.raises(DataError, match=r"(?s)does not fit.*colour.*there are .*year \(int64\)"):
        retriever.search(unit(1)[0], where=pc.field("colour") == "red")
    with pytest.raises(DataError, match="does not fit"):
        retriever.search(unit(1)[0], where=pc.field("year") == "red")
    with pytest.raises(DataError, match="gives int64, not true or false"):
        retriever.search(unit(1)[0], where=pc.field("year"))
    with pytest.raises(DataError, match=r"no column is called colour .*; there are .*year \(int64\)"):
        retriever.search(unit(1)[0], where="colour = 'red'")
    with pytest.raises(DataError, match=r"b'year > 3' is no predicate; expected SQL"):
        retriever.search(unit(1)[0], where=b"year > 3")  # type: ignore[arg-type]


def test_a_filter_in_sql_is_evaluated_once_for_an_open_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path, 300)
    delete_documents(["d0"], path)
    retriever = Retriever.open(path)
    expected = ids(retriever.search(unit(1)[0], 300, where=pc.field("year") < 1910))
    assert "d0" not in expected and len(expected) == 29
    assert ids(retriever.search(unit(1)[0], 300, where="year < 1910")) == expected
    with monkeypatch.context() as patch:
        patch.setattr("retrieval.index.reader.passing", None)
        assert ids(retriever.search(unit(1)[0], 300, where="year < 1910")) == expected
    for year in range(1900, 1920):  # more than are kept
        assert len(retriever.search(unit(1)[0], 300, where=f"year < {year}")) == max(0, 3 * (year - 1900) - 1)


def test_a_column_that_only_later_segments_have_is_null_before(tmp_path: Path) -> None:
    build(tmp_path, 20)
    add(tmp_path, [{"_id": "new", "text": "t", "colour": "red"}], unit(1, 77))
    retriever = Retriever.open(tmp_path / "index")
    assert ids(retriever.search(unit(1)[0], where=pc.field("colour") == "red")) == ["new"]
    assert len(retriever.search(unit(1)[0], 50, where=pc.field("colour").is_null())) == 20


def test_a_document_with_more_passages_than_one_fetch_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Document `big` has 900 passages that all beat the 50 other documents."""
    monkeypatch.setattr("retrieval.index.reader._MAX_FETCH", 64)
    monkeypatch.setattr("retrieval.index.reader._SCORED_AT_ONCE", 100)
    monkeypatch.setattr("retrieval.index.reader._RESULTS_AT_ONCE", 300)
    query = np.eye(DIM, dtype=np.float32)[0]
    others = unit(50, 3)
    big = query + 0.01 * unit(900, 4)
    vectors = np.concatenate([big / np.linalg.norm(big, axis=1, keepdims=True), others])

    class Encoder:
        dim, metric = DIM, "cosine"
        identity: ClassVar = {"name": "fake", "sha256": "0"}
        notices: ClassVar[dict[str, int]] = {}

        def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
            parent = np.concatenate([np.zeros(900, np.int64), np.arange(1, 51)])
            return PassageVectors(parent=parent, start=0 * parent, end=0 * parent + 1, vectors=vectors)

        def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
            raise NotImplementedError

    docs = [{"_id": "big", "text": "x"}, *records(50)]
    corpus, _ = write_corpus(tmp_path, docs, vectors)
    build_index(corpus, tmp_path / "index", encoder=Encoder())
    known = {f"d{i}": vector for i, vector in enumerate(others)}
    for hits in Retriever.open(tmp_path / "index", encoder=Encoder()).search_many(np.stack([query] * 5), 10):
        assert hits[0].doc_id == "big"
        assert [(h.doc_id, h.score) for h in hits[1:]] == brute_force(known, query, 9)


def test_more_than_there_is(tmp_path: Path) -> None:
    retriever = Retriever.open(build(tmp_path, 3))
    for k in (3, 4, 1000, 10**7):
        assert len(retriever.search(unit(1)[0], k)) == 3
    assert [len(hits) for hits in retriever.search_many(unit(25, 2), 10)] == [3] * 25
    assert retriever.search_many([]) == []


def test_an_index_all_of_whose_documents_were_deleted_finds_nothing(tmp_path: Path) -> None:
    path = build(tmp_path, 5)
    delete_documents([f"d{i}" for i in range(5)], path)
    assert Retriever.open(path).search_many(unit(25), 1) == [[]] * 25


def test_a_query_of_another_dimension_or_without_direction(tmp_path: Path) -> None:
    retriever = Retriever.open(build(tmp_path, 5))
    with pytest.raises(IndexMismatchError, match="has 16 dimensions"):
        retriever.search(np.ones(8, np.float32))
    with pytest.raises(DataError, match="query vector 1 is zero"):
        retriever.search(np.zeros(16, np.float32))
    with pytest.raises(DataError, match="NaN"):
        retriever.search(np.full(16, np.nan, np.float32))


def test_a_vector_of_any_length_is_brought_to_a_cosine(tmp_path: Path) -> None:
    retriever = Retriever.open(build(tmp_path, 50))
    assert retriever.search(unit(50)[7] * 1000, 1)[0].score == pytest.approx(1.0, abs=1e-6)


def test_threads_get_the_answers_of_one(tmp_path: Path) -> None:
    retriever = Retriever.open(build(tmp_path, 1000))
    queries = unit(20, 4)
    expected = [retriever.search(query, 5) for query in queries]
    failures: list[int] = []

    def work() -> None:
        failures.extend(n for n, query in enumerate(queries) if retriever.search(query, 5) != expected[n])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def _search_in_child(path: str, query: np.ndarray, retriever: Retriever, queue: object) -> None:
    queue.put(ids(retriever.search_many(np.stack([query] * 30), 3)[0]))  # type: ignore[attr-defined]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_by_somebody_else_still_answers(tmp_path: Path) -> None:
    path = build(tmp_path, 2000)
    retriever = Retriever.open(path)
    query = unit(1, 6)[0]
    expected = ids(retriever.search_many(np.stack([query] * 30), 3)[0])  # OpenMP's threads run now
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_search_in_child, args=(str(path), query, retriever, queue))
    child.start()
    try:
        assert queue.get(timeout=60) == expected
    finally:
        child.kill()
        child.join()


def test_cells_come_back_as_they_were(tmp_path: Path) -> None:
    docs = [
        {"_id": 7, "title": None, "text": "a\u2028b", "tags": ["x", {"y": None}], "n": 2**60},
        {"_id": "007", "title": " T ", "text": "c", "tags": "plain", "extra": True},
    ]
    corpus, file = write_corpus(tmp_path, docs, unit(2))
    build_index(corpus, tmp_path / "index", vectors=file)
    first, second = sorted(Retriever.open(tmp_path / "index").search(unit(1)[0]), key=lambda hit: -len(hit.text))
    assert (first.doc_id, first.title, first.text) == ("7", "", "a\u2028b")
    assert first.metadata == {"tags": ["x", {"y": None}], "n": 2**60, "extra": None}
    assert (second.doc_id, second.metadata["tags"], second.metadata["extra"]) == ("007", "plain", True)


def test_opening_writes_nothing_and_maps(tmp_path: Path) -> None:
    path = build(tmp_path, 100)
    before = sorted((p, p.stat().st_mtime_ns) for p in path.rglob("*"))
    Index.open(path, verify=True)
    assert sorted((p, p.stat().st_mtime_ns) for p in path.rglob("*")) == before


def test_a_filter_on_a_column_of_mixed_types_is_refused_and_asking_for_presence_is_not(tmp_path: Path) -> None:
    docs = [{"_id": "a", "text": "x", "c": "red"}, {"_id": "b", "text": "x", "c": 3}, {"_id": "d", "text": "c"}]
    corpus, file = write_corpus(tmp_path, docs, unit(3))
    build_index(corpus, tmp_path / "index", vectors=file)
    retriever = Retriever.open(tmp_path / "index")
    with pytest.raises(DataError, match=r"cannot look into c: .*JSON text"):
        retriever.search(unit(1)[0], where=pc.field("c") == "red")
    assert ids(retriever.search(unit(1)[0], where="c->>'$' = 'red'")) == ["a"]
    assert len(retriever.search(unit(1)[0], where=pc.field("c").is_valid())) == 2
    assert ids(retriever.search(unit(1)[0], where=pc.field("text") == "c")) == ["d"]

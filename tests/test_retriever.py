"""Text queries from end to end, with tiny random models: what holds for every encoder and every reranker."""

import datetime
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from retrieval import (
    BiEncoder,
    ConfigError,
    CrossEncoder,
    DataError,
    Hit,
    IndexMismatchError,
    IndexSettings,
    ModelError,
    Retriever,
    build_index,
)
from retrieval.chunking import PassageVectors, joined

WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "karst"]
LONG = " ".join(f"{WORDS[i * 7 % 11]} {WORDS[i * 5 % 11]} {i}." for i in range(120))  # several windows of 128 tokens
DOCUMENTS: list[dict[str, Any]] = [
    {"_id": "copper", "text": "Copper conducts heat better than iron does.", "year": 1990},
    {"_id": "ferry", "title": "Timetable", "text": "A ferry crosses the strait twice a day.", "year": 2001},
    {"_id": "mean", "text": "def mean(values): return sum(values) / len(values)", "year": 2020},
    {"_id": "weaver", "text": "Which bird builds a hanging nest?  The weaver.", "year": 2020},
    {"_id": "cherry", "text": "Überraschend früh blühte der Kirschbaum – 桜 が 咲く.", "year": 1990},
    {"_id": "twin-a", "text": "Two of a kind.", "year": 1},
    {"_id": "twin-b", "text": "Two of a kind.", "year": 2},
    {"_id": "void", "text": " \u200b", "year": 3},
    {"_id": "long", "title": "Trees", "text": LONG, "year": 2010},
    {"_id": "longer", "text": LONG + " " + LONG.upper(), "year": 2011},
]
QUERIES = ["heat", "when does the ferry leave", "Two of a kind.", "fjord 77", "", "x" * 300, "桜", "def f(): pass"]


def write(folder: Path, documents: Sequence[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return corpus


@pytest.fixture(scope="module")
def path(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("retriever")
    build_index(write(folder, DOCUMENTS), folder / "index", model=tiny("mean"))
    return folder / "index"


@pytest.fixture(scope="module")
def retriever(path: Path) -> Retriever:
    return Retriever.open(path)


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if len(d["text"]) < 100 and d["_id"] != "void"])
def test_an_exact_copy_scores_one_and_is_first(retriever: Retriever, document: dict[str, Any]) -> None:
    hits = retriever.search(joined(document.get("title", ""), document["text"]), 3, mode="dense")
    assert hits[0].score == pytest.approx(1.0, abs=1e-5)
    assert hits[0].text == document["text"]
    best = [hit.doc_id for hit in hits if hit.score == hits[0].score]
    assert best == (["twin-b", "twin-a"] if document["_id"].startswith("twin") else [document["_id"]])


def test_every_document_scores_as_its_best_window(retriever: Retriever, tiny: Any) -> None:
    encoder = BiEncoder.load(tiny("mean"))
    found = encoder.encode_documents([d.get("title", "") for d in DOCUMENTS], [d["text"] for d in DOCUMENTS])
    query = encoder.encode_queries(["fjord 77"])[0]
    scores = found.vectors.astype(np.float64) @ query.astype(np.float64)  # (passages,)
    expected = {}
    for row, document in enumerate(DOCUMENTS):
        mine = np.flatnonzero(found.parent == row)
        if len(mine):
            best = mine[np.argmax(scores[mine])]
            span = slice(found.start[best], found.end[best])
            expected[document["_id"]] = (scores[best], document["text"][span], span.start, span.stop, best - mine[0])
    hits = retriever.search("fjord 77", 100, mode="dense")
    assert max(np.bincount(found.parent)) > 2, "no document has several windows"
    assert [hit.doc_id for hit in hits] == sorted(expected, key=lambda d: (expected[d][0], d), reverse=True)
    for hit in hits:
        score, *where = expected[hit.doc_id]
        assert hit.score == pytest.approx(score, abs=1e-6)
        assert [hit.text, hit.start, hit.end, hit.passage] == where


def test_hits_are_numbered_and_carry_what_the_corpus_said(retriever: Retriever) -> None:
    hits = retriever.search("ferry", 100)
    assert [hit.rank for hit in hits] == list(range(1, len(DOCUMENTS)))  # all but the empty one
    known = {d["_id"]: d for d in DOCUMENTS}
    for hit in hits:
        assert hit.metadata == {"year": known[hit.doc_id]["year"]}
        assert hit.title == known[hit.doc_id].get("title", "")
        assert (hit.retrieval_score, hit.rerank_score, hit.rerank_probability) == (hit.score, None, None)
        assert type(hit.score) is float


@pytest.mark.parametrize("reranker", [None, "cross1"])
def test_a_query_alone_is_answered_as_in_a_batch_to_the_bit(path: Path, tiny: Any, reranker: str | None) -> None:
    retriever = Retriever.open(path, reranker=None if reranker is None else tiny(reranker))
    together = retriever.search_many(QUERIES, 4)
    assert together == [retriever.search(query, 4) for query in QUERIES]
    assert together[::-1] == retriever.search_many(QUERIES[::-1], 4)


def test_blank_queries_are_named_and_have_no_hits(retriever: Retriever, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="retrieval"):
        found = retriever.search_many(["", "heat", " \u200b\t"], 2, names=["q1", "q2", "q3"])
    assert [len(hits) for hits in found] == [0, 2, 0]
    assert "no hits for 2 empty queries: q1, q3" in caplog.text
    caplog.clear()
    assert retriever.search("") == []
    assert retriever.search_many([]) == []
    assert "no hits for 1 empty query: 1" in caplog.text


@pytest.mark.parametrize("model", ["cross1", "cross2"])
def test_a_reranker_orders_the_first_hits_and_no_others(path: Path, tiny: Any, model: str) -> None:
    retriever = Retriever.open(path, reranker=tiny(model))
    query = "when does the ferry leave"
    first = retriever.search(query, 5, rerank=False)
    hits = retriever.search(query, 3, rerank_depth=5)
    scores = CrossEncoder.load(tiny(model)).score([(query, joined(hit.title, hit.text)) for hit in first])
    known = {hit.doc_id: (hit.score, float(score)) for hit, score in zip(first, scores, strict=True)}
    assert len(hits) == 3
    assert [hit.doc_id for hit in hits] == sorted(known, key=lambda d: (known[d][1], d), reverse=True)[:3]
    for hit in hits:
        assert (hit.retrieval_score, hit.rerank_score) == known[hit.doc_id]
        assert hit.score == hit.rerank_score
        assert hit.rerank_probability == pytest.approx(1 / (1 + np.exp(-hit.score)), abs=1e-6)
        assert {type(hit.score), type(hit.retrieval_score), type(hit.rerank_probability)} == {float}
    assert first == Retriever.open(path).search(query, 5)


def test_the_depth_is_at_least_k(path: Path, tiny: Any) -> None:
    retriever = Retriever.open(path, reranker=tiny("cross1"))
    shallow = retriever.search("heat", 4, rerank_depth=1)
    assert shallow == retriever.search("heat", 4, rerank_depth=4)
    assert all(hit.rerank_score is not None for hit in shallow)


def test_the_stages_can_be_called_one_after_the_other(path: Path, tiny: Any) -> None:
    retriever = Retriever.open(path, reranker=tiny("cross1"))
    first = retriever.search("heat", 5, rerank=False)
    assert retriever.rerank("heat", first) == retriever.search("heat", 5, rerank_depth=5)
    assert retriever.rerank("heat", first[::-1][:2]) == retriever.rerank("heat", first[-2:])  # their order is no matter
    assert retriever.rerank("heat", []) == []
    with pytest.raises(ConfigError, match=r"rerank needs a reranker"):
        Retriever.open(path).rerank("heat", first)


class Length:
    """The least that a reranker needs."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return np.array([len(passage) for _, passage in pairs]) / 10


def test_a_reranker_of_ones_own_needs_a_score(path: Path) -> None:
    hits = Retriever.open(path, reranker=Length()).search("heat", 3)
    assert [hit.score for hit in hits] == sorted((len(joined(h.title, h.text)) / 10 for h in hits), reverse=True)
    assert hits[0].rerank_probability == pytest.approx(1 / (1 + np.exp(-hits[0].score)), abs=1e-6)
    assert Retriever.open(path, reranker=Length()).facts()["reranker"] == "Length"
    with pytest.raises(ConfigError, match=r"reranker int: expected an object with score\(pairs\)"):
        Retriever.open(path, reranker=7)  # type: ignore[arg-type]


def test_reranking_needs_a_reranker_and_a_text(path: Path, tiny: Any, retriever: Retriever) -> None:
    with pytest.raises(ConfigError, match=r"rerank=True needs a reranker"):
        retriever.search("heat", rerank=True)
    vector = retriever.encoder.encode_queries(["heat"])[0]
    reranking = Retriever.open(path, reranker=tiny("cross1"))
    with pytest.raises(ConfigError, match=r"reads texts.*rerank=False"):
        reranking.search(vector)
    assert reranking.search(vector, 4, rerank=False) == retriever.search("heat", 4, mode="dense")


@pytest.mark.parametrize("bad", [{"k": 0}, {"k": -1}, {"rerank_depth": 0}])
def test_numbers_out_of_range_are_refused(retriever: Retriever, bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        retriever.search("heat", **bad)


def test_queries_of_another_kind_are_refused(retriever: Retriever) -> None:
    with pytest.raises(ConfigError, match="use search for one"):
        retriever.search_many("heat")
    with pytest.raises(IndexMismatchError, match="has 32 dimensions"):
        retriever.search(np.ones(31, np.float32))
    with pytest.raises(DataError, match="query vector 1 is zero"):
        retriever.search(np.zeros(32, np.float32))
    with pytest.raises(DataError, match="NaN"):
        retriever.search(np.full(32, np.nan, np.float32))


@pytest.mark.parametrize("name", ["other", "dim48", "prompts"])
def test_another_model_is_refused_and_both_are_named(path: Path, tiny: Any, name: str) -> None:
    with pytest.raises(IndexMismatchError, match=rf"made with mean .*the model given is {name}") as caught:
        Retriever.open(path, model=tiny(name))
    assert "rebuild the index" in str(caught.value)
    with pytest.raises(IndexMismatchError, match=rf"made with mean .*the model given is {name}"):
        Retriever.open(path, encoder=BiEncoder.load(tiny(name)))


def test_a_model_that_moved_is_given_by_its_place_and_must_be_the_same(tiny: Any, tmp_path: Path) -> None:
    home = tmp_path / "home" / "mean"
    shutil.copytree(tiny("mean"), home)
    build_index(write(tmp_path, DOCUMENTS[:4]), tmp_path / "index", model=home)
    before = Retriever.open(tmp_path / "index").search("heat", 4)
    moved = tmp_path / "away"
    home.rename(moved)
    with pytest.raises(ModelError, match=r"made with mean.*does not exist.*--model") as caught:
        Retriever.open(tmp_path / "index")
    assert str(home) in str(caught.value)
    assert Retriever.open(tmp_path / "index", model=moved).search("heat", 4) == before
    shutil.copytree(tiny("other"), home)
    with pytest.raises(IndexMismatchError, match="the model given is mean with other weights"):
        Retriever.open(tmp_path / "index")
    with pytest.raises(ModelError, match="nowhere"):
        Retriever.open(tmp_path / "index", model=tmp_path / "nowhere")


def test_a_model_that_takes_less_is_another_model_and_no_wrong_setting(tiny: Any, tmp_path: Path) -> None:
    build_index(write(tmp_path, DOCUMENTS[:2]), tmp_path / "index", model=tiny("long"))
    with pytest.raises(IndexMismatchError, match=r"made with long .*the model given is mean"):
        Retriever.open(tmp_path / "index", model=tiny("mean"))


def test_a_reranker_that_is_none_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such model"):
        Retriever.open(path, reranker=tmp_path / "nowhere")


class Letters:
    """An encoder of one's own: counts of letters, at unit length."""

    dim = 26
    metric = "cosine"
    identity = {"name": "letters", "sha256": "one"}  # noqa: RUF012
    notices: dict[str, int] = {}  # noqa: RUF012

    def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
        rows = np.arange(len(texts))
        ends = np.array([len(text) for text in texts], np.int64)
        return PassageVectors(parent=rows, start=rows * 0, end=ends, vectors=self.encode_queries(texts))

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        counts = [[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts]
        vectors = np.array(counts, np.float32).reshape(-1, 26)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class Brevity:
    """A reranker of one's own: the shorter passage is better."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return np.array([-len(passage) for _, passage in pairs], np.float32)

    def probability(self, scores: np.ndarray) -> np.ndarray:
        return np.exp(scores)


def test_an_encoder_and_a_reranker_of_ones_own(tmp_path: Path) -> None:
    documents = [{"_id": text, "text": text} for text in ("aab", "abb", "bbbbbb", "aabaab")]
    build_index(write(tmp_path, documents), tmp_path / "index", encoder=Letters())
    retriever = Retriever.open(tmp_path / "index", encoder=Letters(), mode="dense")
    hits = retriever.search("BAA", 10)
    assert [(hit.doc_id, round(hit.score, 4)) for hit in hits] == [
        ("aabaab", 1.0),
        ("aab", 1.0),
        ("abb", 0.8),
        ("bbbbbb", 0.4472),
    ]
    reranked = Retriever.open(tmp_path / "index", encoder=Letters(), reranker=Brevity()).search(
        "baa", 3, rerank_depth=3
    )
    assert [(hit.doc_id, hit.score) for hit in reranked] == [("abb", -3.0), ("aab", -3.0), ("aabaab", -6.0)]
    assert reranked[0].rerank_probability == pytest.approx(np.exp(-3.0))
    other = Letters()
    other.identity = {"name": "letters", "sha256": "two"}
    with pytest.raises(IndexMismatchError, match="letters with other weights"):
        Retriever.open(tmp_path / "index", encoder=other)
    with pytest.raises(ModelError, match=r"made with letters.*--model"):
        Retriever.open(tmp_path / "index")


class Broken(Brevity):
    """A reranker that gives something else than a finite score for each pair."""

    def __init__(self, scores: Any) -> None:
        self._scores = scores

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return np.array(self._scores, np.float32)


@pytest.mark.parametrize("scores", [[1.0], [1.0, float("nan"), 2.0], [[1.0, 2.0, 3.0]]])
def test_a_reranker_of_ones_own_is_not_trusted_blindly(path: Path, scores: Any) -> None:
    retriever = Retriever.open(path, reranker=Broken(scores))
    with pytest.raises(ModelError, match=r"reranker gave .*expected 3 finite scores"):
        retriever.search("heat", 3, rerank_depth=3)


def test_odd_metadata_from_parquet_reaches_json(tmp_path: Path) -> None:
    moment = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "id": pa.array([7, 8], pa.int64()),
            "text": ["aab", "abb"],
            "day": pa.array([datetime.date(2024, 2, 29), None]),
            "moment": pa.array([moment, None], pa.timestamp("us", tz="UTC")),
            "raw": pa.array([b"\x00\xff", None]),
            "number": pa.array([float("nan"), 1.5]),
            "list": pa.array([[1, 2], None]),
            "struct": pa.array([{"a": b"x", "b": None}, None]),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "c.parquet")
    build_index(tmp_path / "c.parquet", tmp_path / "index", encoder=Letters())
    hits = Retriever.open(tmp_path / "index", encoder=Letters()).search("aab")
    bodies = [json.loads(json.dumps(hit.to_dict(), allow_nan=False)) for hit in hits]
    first = bodies[0]["metadata"]
    assert bodies[0]["doc_id"] == "7"
    assert first["day"] == "2024-02-29"
    assert datetime.datetime.fromisoformat(first["moment"]) == moment
    assert (first["raw"], first["number"], first["list"]) == ("AP8=", None, [1, 2])
    assert first["struct"] == {"a": "eA==", "b": None}
    assert bodies[1]["metadata"] == {**dict.fromkeys(first), "number": 1.5}
    assert isinstance(hits[0], Hit)
    assert hits[0].metadata["day"] == datetime.date(2024, 2, 29)


def test_an_index_of_ready_made_vectors_answers_texts_when_the_model_is_given(tiny: Any, tmp_path: Path) -> None:
    corpus = write(tmp_path, DOCUMENTS[:4])
    encoder = BiEncoder.load(tiny("mean"))
    texts = [document["text"] for document in DOCUMENTS[:4]]
    np.save(tmp_path / "v.npy", encoder.encode_documents(["", "Timetable", "", ""], texts).vectors)
    build_index(corpus, tmp_path / "by-model", model=tiny("mean"))
    build_index(corpus, tmp_path / "ready", vectors=tmp_path / "v.npy")
    build_index(corpus, tmp_path / "named", vectors=tmp_path / "v.npy", model=tiny("mean"))
    expected = Retriever.open(tmp_path / "by-model").search("heat", 4)
    assert Retriever.open(tmp_path / "named").search("heat", 4) == expected
    assert Retriever.open(tmp_path / "ready", model=tiny("mean")).search("heat", 4) == expected
    ready = Retriever.open(tmp_path / "ready")
    expected = Retriever.open(tmp_path / "by-model").search("heat", 4, mode="dense")
    assert ready.search(encoder.encode_queries(["heat"])[0], 4) == expected
    with pytest.raises(ConfigError, match=r"ready-made vectors.*--model"):
        ready.search("heat", mode="dense")
    with pytest.raises(IndexMismatchError, match=r"ready-made vectors \(32 dimensions\).*dim48 \(48\)"):
        Retriever.open(tmp_path / "ready", model=tiny("dim48")).search("heat")
    with pytest.raises(IndexMismatchError, match=r"made with mean .*the model given is other"):
        Retriever.open(tmp_path / "named", model=tiny("other"))


def test_texts_are_searched_by_keywords_where_no_model_encodes_them(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = np.eye(4, 32, dtype=np.float32)
    np.save(tmp_path / "v.npy", vectors)
    corpus = write(tmp_path, DOCUMENTS[:4])
    build_index(corpus, tmp_path / "ready", vectors=tmp_path / "v.npy")
    ready = Retriever.open(tmp_path / "ready")
    assert ready.search(vectors[2], 1)[0].doc_id == "mean" and not caplog.records
    assert ready.search("ferry heat", mode="lexical") and not caplog.records  # as asked for
    found = [ready.search("ferry heat") for _ in range(2)]
    assert [hit.doc_id for hit in found[0]] == ["copper", "ferry"] and found[0] == found[1]
    assert found[0] == ready.search("ferry heat", mode="lexical") and ready.facts()["mode"] == "lexical"
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # once
    assert "keywords alone" in caplog.text and "--model" in caplog.text
    with pytest.raises(ConfigError, match=r"ready-made vectors.*--model"):
        ready.search("ferry", mode="hybrid")
    build_index(corpus, tmp_path / "bare", vectors=tmp_path / "v.npy", settings=IndexSettings(lexical=False))
    with pytest.raises(ConfigError, match=r"ready-made vectors.*--model"):
        Retriever.open(tmp_path / "bare").search("ferry")


def test_an_index_of_shortened_vectors_is_asked_and_grows_with_such(tiny: Any, tmp_path: Path) -> None:
    from retrieval import EncoderSettings, add_documents

    corpus = write(tmp_path, DOCUMENTS[:3])
    build_index(corpus, tmp_path / "index", model=tiny("mean"), encoding=EncoderSettings(dim=8))
    (tmp_path / "more").mkdir()
    add_documents(write(tmp_path / "more", DOCUMENTS[3:5]), tmp_path / "index")
    retriever = Retriever.open(tmp_path / "index")
    assert (retriever.index.dim, retriever.encoder.dim) == (8, 8)
    for document in DOCUMENTS[:5]:
        hit = retriever.search(joined(document.get("title", ""), document["text"]), 1, mode="dense")[0]
        assert (hit.doc_id, round(hit.score, 6)) == (document["_id"], 1)

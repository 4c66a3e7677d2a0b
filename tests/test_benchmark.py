import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.errors import ConfigError, DataError, MissingDependencyError
from retrieval.eval import beir
from retrieval.eval.beir import write_benchmark
from retrieval.eval.benchmark import Benchmark, Card, Document, assemble, assemble_held, choose_split
from retrieval.eval.layouts import LAYOUTS

DOCUMENTS = (
    Document(doc_id="d1", text="red apple", metadata={"url": "http://x", "year": 1999}),
    Document(doc_id="d2", text="green pear", title="Fruit"),
    Document(doc_id="d3", text="red apple"),
)
QUERIES = {"q1": "apple", "q2": "pear", "q3": "never judged"}
QRELS = {"q2": {"d2": 1}, "q1": {"d1": 2, "d3": 0}}
CARD = Card(name="fruit", split="test", direction="word -> fruit", licence="CC0", notes=("made by hand",))


def fruit() -> Benchmark:
    return assemble("here", CARD, QUERIES, QRELS, lambda: iter(DOCUMENTS))


def test_queries_without_judgements_are_left_out_and_counted() -> None:
    benchmark = fruit()
    assert list(benchmark.queries) == ["q1", "q2"]  # in the order of the queries, not of the judgements
    assert (benchmark.card.queries, benchmark.card.judgements) == (2, 3)


def test_documents_in_memory_are_counted() -> None:
    card = assemble_held("here", CARD, QUERIES, QRELS, DOCUMENTS).card
    assert (card.documents, card.duplicates, card.queries) == (3, 1, 2)
    assert card.notes == ("made by hand", "documents with the text of an earlier one, not right for its query: 1")
    assert assemble_held("here", CARD, QUERIES, QRELS, DOCUMENTS[:2]).card.notes == ("made by hand",)


def test_judged_queries_without_text_are_an_error_that_counts_them() -> None:
    with pytest.raises(DataError, match=r"here: query 'q2' and 1 more of split 'test' has judgements but no text"):
        assemble("here", CARD, {}, QRELS, lambda: iter(DOCUMENTS))
    with pytest.raises(DataError, match=r"query 'q2' of split 'test' has"):
        assemble("here", CARD, {"q1": "apple"}, QRELS, lambda: iter(DOCUMENTS))


@pytest.mark.parametrize(
    ("there", "split", "chosen"),
    [(["dev", "test"], None, "test"), (["dev"], None, "dev"), (["dev", "train"], "train", "train")],
)
def test_the_split_is_the_one_asked_for_or_test_or_the_only_one(
    there: list[str], split: str | None, chosen: str
) -> None:
    assert choose_split("x", there, split) == chosen


def test_a_split_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(DataError, match="x: no split 'test'; there are: dev, train"):
        choose_split("x", ["train", "dev", "dev"], "test")
    with pytest.raises(DataError, match="x: name a split; there are: dev, train"):
        choose_split("x", ["train", "dev"], None)
    with pytest.raises(DataError, match="there are: none"):
        choose_split("x", [], None)


def test_a_saved_benchmark_comes_back(tmp_path: Path) -> None:
    fruit().save(tmp_path / "out")
    again = Benchmark.load(tmp_path / "out")
    assert list(again.corpus()) == list(DOCUMENTS)
    assert list(again.corpus()) == list(DOCUMENTS)  # anew at each call
    assert list(again.queries.items()) == [("q1", "apple"), ("q2", "pear")]
    assert {name: dict(grades) for name, grades in again.qrels.items()} == QRELS
    assert list(again.qrels) == list(QRELS)
    assert again.card == Card(
        name="fruit",
        split="test",
        direction="word -> fruit",
        licence="CC0",
        notes=("made by hand",),
        documents=3,
        queries=2,
        judgements=3,
        duplicates=1,
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "benchmark.json",
        "corpus.jsonl",
        "queries.jsonl",
        "qrels",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n"), min_size=1, max_size=5)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)


@st.composite
def benchmarks(draw: st.DrawFn) -> Benchmark:
    doc_ids = draw(st.lists(IDS, unique=True, min_size=1, max_size=6))
    documents = [
        Document(
            doc_id=doc_id,
            text=draw(TEXTS),
            title=draw(TEXTS),
            metadata=draw(st.dictionaries(TEXTS, VALUES, max_size=3)),
        )
        for doc_id in doc_ids
    ]
    queries = draw(st.dictionaries(IDS, TEXTS, min_size=1, max_size=5))
    judged = draw(st.lists(st.sampled_from(sorted(queries)), unique=True, min_size=1))
    grades = st.dictionaries(st.sampled_from(doc_ids) | IDS, st.integers(-2, 4), min_size=1, max_size=4)
    return assemble("here", CARD, queries, {name: draw(grades) for name in judged}, lambda: iter(documents))


@settings(max_examples=200, deadline=None)
@given(benchmark=benchmarks())
def test_whatever_is_saved_comes_back(tmp_path_factory: pytest.TempPathFactory, benchmark: Benchmark) -> None:
    folder = tmp_path_factory.mktemp("saved") / "out"
    benchmark.save(folder)
    again = Benchmark.load(folder)
    documents = list(benchmark.corpus())
    assert list(again.corpus()) == documents
    assert list(again.queries.items()) == list(benchmark.queries.items())
    assert [(name, dict(grades)) for name, grades in again.qrels.items()] == list(benchmark.qrels.items())
    assert again.card.duplicates == len(documents) - len({document.text for document in documents})


def test_several_splits_share_a_folder(tmp_path: Path) -> None:
    qrels = {"train": {"q1": {"d1": 1}}, "dev": {"q2": {"d2": 1, "d1": 0}}}
    card = write_benchmark(tmp_path / "out", iter(DOCUMENTS), QUERIES, qrels, CARD)
    assert (card.split, card.queries, card.judgements) == ("train, dev", 2, 3)
    assert (card.documents, card.duplicates) == (3, 1)
    assert list(Benchmark.load(tmp_path / "out", "dev").queries) == ["q2"]
    with pytest.raises(DataError, match="no split 'test'; there are: dev, train"):
        Benchmark.load(tmp_path / "out", "test")
    record = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert record["splits"] == {"train": {"queries": 1, "judgements": 1}, "dev": {"queries": 1, "judgements": 2}}


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConfigError, match="is there already and not an empty folder"):
        fruit().save(tmp_path)
    with pytest.raises(ConfigError, match="is there already"):
        fruit().save(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "x"


def test_an_empty_folder_is_filled_and_a_missing_parent_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    fruit().save(tmp_path / "empty")
    fruit().save(tmp_path / "deep" / "er")
    assert Benchmark.load(tmp_path / "empty").card == Benchmark.load(tmp_path / "deep" / "er").card


def broken(*documents: Any) -> Iterator[Document]:
    for document in documents:
        if isinstance(document, BaseException):
            raise document
        yield document


@pytest.mark.parametrize(
    ("documents", "queries", "qrels", "message"),
    [
        ([DOCUMENTS[0], DOCUMENTS[0]], QUERIES, QRELS, "document id 'd1' occurs twice"),
        ([Document(doc_id="", text="x")], QUERIES, QRELS, "document 1: its id is empty"),
        ([Document(doc_id="a", text="\ud800")], QUERIES, QRELS, "document 'a' cannot be written"),
        ([Document(doc_id="a", text="", metadata={"x": {1, 2}})], QUERIES, QRELS, "document 'a' cannot be written"),
        ([], QUERIES, QRELS, "no documents to write"),
        (DOCUMENTS, {"q1": "\udfff", "q2": ""}, QRELS, "query 'q1' cannot be written"),
        (DOCUMENTS, {"q1": "apple"}, QRELS, "query 'q2' has judgements but no text"),
        (DOCUMENTS, {"a\tb": "apple"}, {"a\tb": {"d1": 1}}, "does not fit a TSV"),
        (DOCUMENTS, QUERIES, {"q1": {"d\n": 1}}, "does not fit a TSV"),
        (DOCUMENTS, QUERIES, {"q1": {"\ud800": 1}}, "does not fit a TSV"),
        (DOCUMENTS, QUERIES, {"q1": {}}, "no judgements of query 'q1'"),
        (DOCUMENTS, QUERIES, {}, "split 'test': no judgements"),
        ([DOCUMENTS[0], DataError("line 2: bad")], QUERIES, QRELS, "line 2: bad"),
    ],
)
def test_what_the_files_cannot_hold_is_refused_and_nothing_is_left(
    tmp_path: Path, documents: Any, queries: Any, qrels: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        write_benchmark(tmp_path / "out", broken(*documents), queries, {"test": qrels}, CARD)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("split", ["", "../x", "a/b", ".hidden"])
def test_a_split_that_is_no_file_name_is_refused(tmp_path: Path, split: str) -> None:
    with pytest.raises(DataError, match="expected a name that a file can have"):
        write_benchmark(tmp_path / "out", DOCUMENTS, QUERIES, {split: QRELS}, CARD)


def test_no_split_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no split to write"):
        write_benchmark(tmp_path / "out", DOCUMENTS, QUERIES, {}, CARD)


def test_equal_hashes_of_different_ids_are_no_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beir, "hash", lambda text: 7, raising=False)
    write_benchmark(tmp_path / "out", DOCUMENTS, QUERIES, {"test": QRELS}, CARD)
    with pytest.raises(DataError, match="'d2' occurs twice"):
        write_benchmark(tmp_path / "two", [*DOCUMENTS, DOCUMENTS[1]], QUERIES, {"test": QRELS}, CARD)


@pytest.mark.parametrize(
    "name", ["./beir/scifact", "~/data", "no such folder", "/nowhere/here", "a/b.jsonl", "", "a//b"]
)
def test_what_looks_like_a_path_is_looked_up_nowhere(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in ("ir_datasets", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match="no such file or folder"):
        Benchmark.load(name)
    with pytest.raises(DataError, match="no such file or folder"):
        Benchmark.load(Path("nowhere/scifact"))


def test_names_too_long_or_with_nulls_are_no_crash() -> None:
    for name in ("x" * 5000, "a\0b"):
        with pytest.raises(DataError):
            Benchmark.load(name)


def test_a_name_that_is_nothing_says_what_it_could_have_been() -> None:
    with pytest.raises(DataError, match="neither a folder nor an id of ir_datasets"):
        Benchmark.load("no-such-benchmark")
    with pytest.raises(
        DataError, match="owner/no-such-name: neither a folder, nor an id of ir_datasets, nor a data set"
    ):
        Benchmark.load("owner/no-such-name")


def test_without_ir_datasets_a_name_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "retrieve-rerank\[eval\]"'):
        Benchmark.load("beir/scifact/test")


def test_a_folder_of_no_layout_is_answered_with_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(DataError, match="not in a layout that is known") as caught:
        Benchmark.load(tmp_path)
    assert all(layout.looks in str(caught.value) for layout in LAYOUTS.values())
    with pytest.raises(DataError, match="not in a layout"):
        Benchmark.load(tmp_path / "readme.txt")


def test_a_layout_can_be_named(tmp_path: Path) -> None:
    fruit().save(tmp_path / "out")
    assert Benchmark.load(tmp_path / "out", layout="beir").card.queries == 2
    with pytest.raises(ConfigError, match="layout 'bier': expected auto or one of codesearchnet"):
        Benchmark.load(tmp_path / "out", layout="bier")


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=lambda layout: layout.name)
def test_every_layout_answers_for_a_folder_and_a_file(tmp_path: Path, layout: Any) -> None:
    (tmp_path / "file.jsonl").write_text("{}\n")
    assert layout.recognises(tmp_path) is False
    assert layout.recognises(tmp_path / "file.jsonl") is False

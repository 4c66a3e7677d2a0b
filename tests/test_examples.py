"""Examples: every layout, what is refused and how, round trips, judgements."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.errors import ConfigError, DataError
from retrieval.training.examples import Example, examples_of, read_examples, write_examples

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
FULL = Example(
    query="capital of France",
    query_id="q1",
    positives=("Paris", "The city of Paris"),
    positive_ids=("p1", "p2"),
    positive_scores=(2.5, 1.0),
    negatives=("Berlin",),
    negative_ids=("b",),
    negative_scores=(-3.0,),
)


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(*records: object, name: str = "train.jsonl") -> Path:
        path = tmp_path / name
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(list(records)), path)
        else:
            path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return path

    return write


LAYOUTS = {
    "ours": {
        "query": "capital of France",
        "query_id": "q1",
        "positives": ["Paris", "The city of Paris"],
        "positive_ids": ["p1", "p2"],
        "positive_scores": [2.5, 1],
        "negatives": ["Berlin"],
        "negative_ids": ["b"],
        "negative_scores": [-3.0],
    },
    "ours, scores together": {
        "query": "capital of France",
        "qid": "q1",
        "positives": ["Paris", "The city of Paris"],
        "positive_ids": ["p1", "p2"],
        "negative": "Berlin",
        "negative_id": "b",
        "scores": [2.5, 1.0, -3.0],
    },
    "tevatron": {
        "query_id": "q1",
        "query": "capital of France",
        "positive_passages": [
            {"docid": "p1", "title": "", "text": "Paris"},
            {"docid": "p2", "title": "The city", "text": "of Paris"},
        ],
        "negative_passages": [{"docid": "b", "title": None, "text": "Berlin"}],
        "scores": [2.5, 1.0, -3.0],
    },
    "tevatron, ids": {
        "query_id": "q1",
        "query_text": "capital of France",
        "positive_document_ids": ["p1", "p2"],
        "negative_document_ids": ["b"],
        "pos_scores": [2.5, 1.0],
        "neg_scores": [-3],
    },
    "flagembedding": {
        "query": "capital of France",
        "query_id": "q1",
        "pos": ["Paris", "The city of Paris"],
        "positive_ids": ["p1", "p2"],
        "neg": ["Berlin"],
        "negative_ids": ["b"],
        "pos_scores": [2.5, 1.0],
        "neg_scores": [-3.0],
    },
}


@pytest.mark.parametrize("name", ["train.jsonl", "train.parquet"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_holds_the_same_example(file: Any, layout: str, name: str) -> None:
    texts = {"p1": "Paris", "p2": "The city of Paris", "b": "Berlin"}
    assert read_examples(file(LAYOUTS[layout], name=name), texts) == [FULL]


@pytest.mark.parametrize("name", ["train.jsonl", "train.parquet"])
def test_rows_of_sentence_transformers(file: Any, name: str) -> None:
    rows = [
        {"anchor": "one", "positive": "yes", "negative_10": "k", "negative_2": "b", "negative_1": "a"},
        {"anchor": "two", "positive": "yes", "negative_10": None, "negative_2": None, "negative_1": "a"},
    ]
    first, second = read_examples(file(*rows, name=name))
    assert first == Example(query="one", positives=("yes",), negatives=("a", "b", "k"))
    assert second == Example(query="two", positives=("yes",), negatives=("a",))


def test_scores_of_a_tuple_and_of_a_pair(file: Any) -> None:
    pair, several = read_examples(
        file(
            {"anchor": "one", "positive": "yes", "score": 0.25},
            {"anchor": "two", "positive": "yes", "negative": "no", "negative_1": "never", "score": [3, -1, -2]},
        )
    )
    assert (pair.positive_scores, pair.negative_scores) == ((0.25,), ())
    assert (several.positive_scores, several.negative_scores) == ((3.0,), (-1.0, -2.0))


def test_labelled_rows_become_one_example_for_each_query(file: Any, caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"query": "one", "positive": "no", "label": 0},
        {"query": "two", "passage": "never", "label": False},
        {"query": "one", "positive": "yes", "label": 1},
        {"query": "one", "positive": "perhaps", "label": 1.0},
        {"query": "three", "docs": ["a", "b", "c"], "labels": [0, 1, 0]},
    ]
    assert read_examples(file(*rows)) == [
        Example(query="one", positives=("yes", "perhaps"), negatives=("no",)),
        Example(query="three", positives=("b",), negatives=("a", "c")),
    ]
    assert "left out: 1 query without a text labelled 1" in caplog.text


def test_equal_queries_without_labels_stay_apart(file: Any) -> None:
    rows = [{"query": "q", "positive": "one"}, {"query": "q", "positive": "two"}]
    assert [example.positives for example in read_examples(file(*rows))] == [("one",), ("two",)]


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (
            {"query": "q", "positives": "Paris"},
            "'positives' is 'Paris'; expected a list of texts; put it into brackets",
        ),
        ({"query": "q", "pos": "Paris", "neg": []}, "'pos' is 'Paris'; expected a list"),
        ({"query": "q", "pos": ["Paris"], "neg": "Berlin"}, "'neg' is 'Berlin'; expected a list"),
        ({"query": "q", "positive": ["Paris"]}, "'positive' is ['Paris']; expected a text"),
        ({"query": "q", "positive": "P", "negative_1": ["B"]}, "'negative_1' is ['B']; expected a text"),
        ({"query": "q", "positive_passages": "Paris"}, "'positive_passages' is 'Paris'; expected a list"),
        ({"query": "q", "positive_passages": ["Paris"]}, "passage 1 is 'Paris'; expected an object"),
        ({"query": "q", "positive_passages": [{"docid": "1"}]}, "passage 1 is {'docid': '1'}; expected an object"),
        ({"query": "q", "positive_passages": [{"text": "P", "title": 7}]}, "the title is 7"),
        ({"query": "q", "positive_passages": [{"text": "P", "docid": "1"}, {"text": "Q"}]}, "1 of 2 passages"),
        ({"query": "q", "positive_document_ids": "p1"}, "'positive_document_ids' is 'p1'; expected a list of ids"),
        ({"query": "q", "positive_document_ids": ["p1", "p9"]}, "no document 'p9' among the 1"),
        ({"query": "q", "positives": ["P"], "positive_ids": ["a", "b"]}, "2 ids for 1 positives"),
        ({"query": "q", "positives": ["P"], "positive_ids": [1.5]}, "'positive_ids' is 1.5; expected an id"),
        ({"query": "q", "pos": ["P"], "neg": ["a", "b"], "neg_scores": [1]}, "'neg_scores': 1 scores for 2 texts"),
        ({"query": "q", "pos": ["P"], "neg": ["a"], "scores": [1]}, "'scores': 1 scores for 2 texts"),
        ({"query": "q", "positive": "P", "negative": "N", "score": 0.5}, "'score': 1 scores for 2 texts"),
        ({"query": "q", "pos": ["P"], "pos_scores": ["1"]}, "'pos_scores' holds '1'; expected finite numbers"),
        ({"query": "q", "pos": ["P"], "pos_scores": [float("nan")]}, "'pos_scores' holds nan"),
        ({"query": "q", "pos": ["P"], "pos_scores": [10**400]}, "'pos_scores' holds 1000"),
        ({"query": "q", "pos": ["P"], "pos_scores": [True]}, "'pos_scores' holds True"),
        ({"query": "q", "pos": ["P"], "pos_scores": [1], "scores": [1]}, "'scores' beside scores"),
        ({"query": "q", "positives": []}, "no positives; keys found: query, positives; expected query"),
        ({"query": "q", "negatives": ["b"]}, "no positives; keys found: query, negatives; expected query"),
        ({"query": "q", "positives": None}, "no positives"),
        ({"positives": ["P"]}, "no query; keys found: positives; expected query (or anchor)"),
        ({}, "no query; keys found: none"),
        ({"query": "q", "positives": ["P", " "]}, "'positives', text 2 is blank"),
        ({"query": "q", "positives": ["P", None]}, "'positives', text 2 is None; expected a text"),
        ({"query": "q", "negatives": [7], "positive": "P"}, "'negatives', text 1 is 7; expected a text"),
        ({"query": "", "positive": "P"}, "'query' is blank"),
        ({"query": ["q"], "positive": "P"}, "'query' is ['q']; expected a text"),
        ({"query": "q\ud800", "positive": "P"}, "'query' holds half a surrogate pair"),
        ({"query": "q", "query_id": 1.5, "positive": "P"}, "'query_id' is 1.5; expected an id"),
        ({"query": "q", "positive": "P", "pos": ["Q"]}, "both 'positive' and 'pos'"),
        ({"query": "q", "anchor": "q", "positive": "P"}, "both 'query' and 'anchor'"),
        ({"query": "q", "positive": "P", "label": 2}, "'label' is 2; expected 0 or 1"),
        ({"query": "q", "positive": "P", "label": "1"}, "'label' is '1'; expected 0 or 1"),
        ({"query": "q", "label": 1}, "'label' without 'positive'"),
        ({"query": "q", "labels": [1]}, "'labels' without 'docs'"),
        ({"query": "q", "docs": ["a", "b"], "labels": [1]}, "1 labels for 2 docs"),
        ({"query": "q", "docs": "ab", "labels": [1, 0]}, "'docs' is 'ab'; expected a list"),
    ],
)
def test_what_is_refused_is_named_with_its_line(file: Any, record: dict[str, Any], complaint: str) -> None:
    path = file({"query": "fine", "positive": "text"}, record)
    with pytest.raises(DataError) as error:
        read_examples(path, {"p1": "Paris"})
    assert str(error.value).startswith(f"{path}, line 2: ")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_numbers_at_the_end_of_names_may_be_of_any_length(file: Any) -> None:
    names = ["negative", "negative_0", "negative_1", "negative_9", "negative_10", "negative_" + "1" * 5000]
    record = {"query": "q", "positive": "P", **{name: f"text {number}" for number, name in enumerate(names)}}
    (example,) = read_examples(file(dict(reversed(record.items()))))
    assert example.negatives == tuple(f"text {number}" for number in range(len(names)))


def test_ids_without_texts_say_what_is_missing(file: Any) -> None:
    with pytest.raises(DataError, match="line 1: ids without texts; give the documents' texts"):
        read_examples(file({"query": "q", "positive_document_ids": [7]}))
    assert read_examples(file({"query": "q", "positive_document_ids": [7]}), {"7": "seven"})[0].positive_ids == ("7",)


def test_a_row_of_parquet_is_named(file: Any) -> None:
    path = file({"query": "q", "positive": "P"}, {"query": "q", "positive": None}, name="t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet, row 2: no positives"):
        read_examples(path)


def test_parquet_with_bytes_that_are_no_text(tmp_path: Path) -> None:
    bad = pa.StringArray.from_buffers(2, *pa.array([b"good", b"b\xffd"]).buffers()[1:])
    pq.write_table(pa.table({"query": bad, "positive": ["one", "two"]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="rows 1 to 2: a string that is not UTF-8"):
        read_examples(tmp_path / "t.parquet")


@pytest.mark.parametrize("content", ["", "\n\n", '{"query": "q", "positive": "P", "label": 0}\n'])
def test_no_example_at_all(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(DataError, match="no examples in it; expected query"):
        read_examples(tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b'[{"query": "q"}]', "line 1: expected a JSON object"), (b"{", "line 1: not JSON"), (b'{"a": "\xff"}', "UTF-8")],
)
def test_lines_that_are_no_records(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "t.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        read_examples(tmp_path / "t.jsonl")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("t.jsonl", "t.parquet"):
        with pytest.raises(DataError, match=rf"{name}: cannot be read"):
            read_examples(tmp_path / name)


def test_fields_without_a_meaning_are_named_once(file: Any, caplog: pytest.LogCaptureFixture) -> None:
    record = {"query": "q", "pos": ["P"], "prompt": "Find: ", "type": "x", "neg": None}
    with caplog.at_level(logging.WARNING):
        read_examples(file(record, record))
    assert [r.getMessage().split(": ", 1)[1] for r in caplog.records] == ["fields that are not used: prompt, type"]


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map("x".__add__)


@st.composite
def _examples(draw: Any) -> Example:
    sides: dict[str, Any] = {}
    for side, least in (("positive", 1), ("negative", 0)):
        texts = tuple(draw(st.lists(_TEXTS, min_size=least, max_size=3)))
        sides[f"{side}s"] = texts
        if texts and draw(st.booleans()):
            sides[f"{side}_ids"] = tuple(draw(_TEXTS) for _ in texts)
        if texts and draw(st.booleans()):
            sides[f"{side}_scores"] = tuple(draw(st.floats(allow_nan=False, allow_infinity=False)) for _ in texts)
    return Example(query=draw(_TEXTS), query_id=draw(st.just("") | _TEXTS), **sides)


@given(st.lists(_examples(), min_size=1, max_size=4))
def test_what_is_written_is_read_again(examples: list[Example]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name in ("train.jsonl", "train.jsonl.gz"):
            write_examples(Path(folder, name), examples)
            assert read_examples(Path(folder, name)) == examples


def test_the_same_examples_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_examples(tmp_path / name, [FULL])
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    line = gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes())
    assert json.loads(line) == LAYOUTS["ours"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_examples(path, [FULL])
    for bad in (
        Example(query="q", positives=("P",), positive_scores=(float("nan"),)),
        Example(query="q", positives=("\ud800",)),
    ):
        with pytest.raises(DataError, match="the example of query 'q' does not fit JSON"):
            write_examples(path, [FULL, bad])
    assert read_examples(path) == [FULL]
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.jsonl"]


def test_formats_that_are_not_written(tmp_path: Path) -> None:
    for name in ("t.jsonl.zst", "t.parquet"):
        with pytest.raises(ConfigError, match="written as JSONL"):
            write_examples(tmp_path / name, [FULL])
    with pytest.raises(DataError, match="there is no folder"):
        write_examples(tmp_path / "none" / "t.jsonl", [FULL])


def test_examples_of_judgements(caplog: pytest.LogCaptureFixture) -> None:
    queries = {"1": "one", "2": "two", "3": "three", "4": " ", "5": "five"}
    qrels = {"1": {"a": 2, "b": 0, "c": 1}, "2": {"a": -1}, "3": {"gone": 1}, "4": {"a": 1}}
    examples = examples_of(queries, qrels, {"a": "A", "b": "B", "c": "C"})
    assert examples == [
        Example(query="one", query_id="1", positives=("A", "C"), positive_ids=("a", "c"), positive_scores=(2.0, 1.0))
    ]
    assert "4 queries without a positive, 1 relevant document without text" in caplog.text
    plain = examples_of({"1": "one"}, {"1": {"a": 1, "c": 1}}, {"a": "A", "c": "C"})
    assert plain[0].positive_scores == ()
    with pytest.raises(DataError, match="none of 1 queries"):
        examples_of({"1": "one"}, {}, {})


@pytest.mark.skipif(not CASES.is_dir(), reason="the handed cases (../shared/cases) are not here")
class TestHandedCases:
    def test_tn03_a_string_in_place_of_a_list(self) -> None:
        with pytest.raises(DataError, match=r"line 1: 'pos' is 'Paris is the capital'; expected a list of texts; put"):
            read_examples(CASES / "TN03" / "train.jsonl")

    def test_tn03_an_empty_list_of_negatives(self, tmp_path: Path) -> None:
        second = (CASES / "TN03" / "train.jsonl").read_text().splitlines()[1]
        (tmp_path / "t.jsonl").write_text(second)
        assert read_examples(tmp_path / "t.jsonl") == [Example(query="capital of Germany", positives=("Berlin",))]

    def test_tn03_keys_that_are_not_known(self) -> None:
        with pytest.raises(DataError, match="line 1: no query; keys found: question, answer; expected query"):
            read_examples(CASES / "TN03" / "train_badkey.jsonl")

"""Re-ordering a run of any system, with a reranker whose scores can be worked out by hand."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from worlds import build

from retrieval.errors import DataError
from retrieval.reranking import passages_of, rerank_run, within_depth


class CommonWords:
    """Scores a pair by the number of words that both texts hold."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        self.asked += pairs
        return np.array([len(set(q.split()) & set(p.split())) for q, p in pairs], np.float32)

    def probability(self, scores: np.ndarray) -> np.ndarray:
        return scores / 10


RUN = {"q1": {"a": 9.0, "b": 8.0, "c": 7.0, "d": 6.0, "e": 5.0}, "q2": {"b": 0.5, "a": 0.5}}
QUERIES = {"q1": "red green blue", "q2": "red", "q3": "never asked"}
TEXTS = {"a": ["nothing"], "b": ["red"], "c": ["red", "red green blue", ""], "d": ["red green"], "e": ["red"]}


def test_golden() -> None:
    found = rerank_run(RUN, QUERIES, TEXTS, CommonWords())
    assert list(found["q1"]) == ["c", "d", "e", "b", "a"]
    assert found == {
        "q1": {"c": 3.0, "d": 2.0, "e": 1.0, "b": 1.0, "a": 0.0},  # e before b: the larger id
        "q2": {"b": 1.0, "a": 0.0},
    }


def test_the_tail_below_the_depth_keeps_its_order_below_the_rest() -> None:
    reranker = CommonWords()
    found = rerank_run(RUN, QUERIES, TEXTS, reranker, depth=2)
    assert found["q1"] == {"b": 1.0, "a": 0.0, "c": -1.0, "d": -2.0, "e": -3.0}
    assert found["q2"] == {"b": 1.0, "a": 0.0}
    assert len(reranker.asked) == 4
    assert rerank_run(RUN, QUERIES, TEXTS, CommonWords(), depth=1)["q2"] == {"b": 1.0, "a": 0.0}


def test_the_depth_cuts_by_the_total_order() -> None:
    tied = {"q1": {"9": 1.0, "10": 1.0, "11": 1.0, "x": 0.0}}
    assert within_depth(tied, 2) == {"9", "11"}
    assert within_depth(RUN, 1) == {"a", "b"}
    assert within_depth({}, 5) == set()


def test_only_the_texts_within_the_depth_are_needed() -> None:
    needed = {doc_id: TEXTS[doc_id] for doc_id in within_depth(RUN, 2)}
    assert rerank_run(RUN, QUERIES, needed, CommonWords(), depth=2)["q1"]["b"] == 1.0


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({**RUN, "q9": {"a": 1.0}}, r"query 'q9' of the run is not among the queries"),
        ({**RUN, "q3": {"zz": 1.0}}, r"document 'zz' \(query 'q3'\) of the run is not in the corpus"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_scored(run: dict[str, dict[str, float]], message: str) -> None:
    reranker = CommonWords()
    with pytest.raises(DataError, match=message):
        rerank_run(run, QUERIES, TEXTS, reranker)
    assert reranker.asked == []


def test_a_query_without_documents_stays_one() -> None:
    assert rerank_run({"q1": {}}, QUERIES, TEXTS, CommonWords()) == {"q1": {}}
    assert rerank_run({}, QUERIES, TEXTS, CommonWords()) == {}


def test_texts_from_a_corpus_have_the_title_in_front(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(
        '{"id": 1, "title": " T ", "text": "one"}\n{"id": "2", "text": "two"}\n{"id": "3", "title": "x", "text": ""}\n'
    )
    assert passages_of({"1", "2", "3", "9"}, corpus) == {"1": ["T one"], "2": ["two"], "3": ["x"]}
    assert passages_of(["2"], str(corpus)) == {"2": ["two"]}


def test_texts_from_an_index(tmp_path: Path) -> None:
    path = build(tmp_path, 20)
    assert passages_of({"d3", "d19", "zz"}, path) == {"d3": ["text 3"], "d19": ["text 19"]}

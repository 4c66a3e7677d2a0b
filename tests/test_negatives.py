"""Mining: what never becomes a negative, thresholds and windows by hand, the cross-encoder, determinism, files."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrieval.chunking import joined
from retrieval.errors import ConfigError, DataError, ModelError
from retrieval.ranking import Hit
from retrieval.training.examples import Example, read_examples
from retrieval.training.negatives import MiningResult, MiningSettings, mine_negatives, write_mined

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
ALL = MiningSettings(ratio=None)  # no threshold


class Searching:
    """A search with a fixed result for each query: documents with scores."""

    def __init__(self, results: Mapping[str, Mapping[str, float]], texts: Mapping[str, str] | None = None) -> None:
        self.results = results
        self.texts = texts
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        self.asked.append(tuple(queries))
        return [
            [self._hit(doc_id, rank, score) for rank, (doc_id, score) in enumerate(self.results[query].items(), 1)][:k]
            for query in queries
        ]

    def _hit(self, doc_id: str, rank: int, score: float) -> Hit:
        text = f"text of {doc_id}" if self.texts is None else self.texts[doc_id]
        return Hit(doc_id=doc_id, rank=rank, score=score, retrieval_score=score, text=text)


class Judge:
    """A cross-encoder that finds its logits in the text, as in `text (1.5)`; counts the pairs it reads."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        self.pairs += pairs
        return np.array([float(re.findall(r"\((.*)\)", text)[0]) for _, text in pairs], np.float32)


def ids(result: MiningResult) -> list[tuple[str, ...]]:
    return [example.negative_ids for example in result.examples]


def one(scores: Mapping[str, float], settings: MiningSettings, positives: Sequence[str] = ("p",)) -> MiningResult:
    """Mine for a single query."""
    texts = {doc_id: f"text of {doc_id}" for doc_id in positives}
    qrels = {"1": dict.fromkeys(positives, 1)}
    return mine_negatives({"1": "query"}, qrels, Searching({"query": scores}), texts=texts, settings=settings)


RANKED = {"a": 1.0, "p": 0.9, "b": 0.875, "c": 0.8, "d": 0.5, "e": 0.1}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (MiningSettings(ratio=None), ("a", "b", "c", "d", "e")),
        (MiningSettings(ratio=None, per_query=2), ("a", "b")),
        (MiningSettings(ratio=None, first_rank=2, last_rank=4), ("b", "c")),  # ranks count the positive
        (MiningSettings(ratio=None, first_rank=5), ("d", "e")),
        (MiningSettings(), ("c", "d", "e")),  # 0.95 * 0.9 = 0.855
        (MiningSettings(ratio=0.98), ("b", "c", "d", "e")),  # 0.882
        (MiningSettings(ratio=1), ("b", "c", "d", "e")),  # what scores above the positive is left out
        (MiningSettings(ratio=None, margin=0), ("b", "c", "d", "e")),
        (MiningSettings(ratio=None, margin=0.2), ("d", "e")),  # at most 0.7
        (MiningSettings(ratio=0.5, margin=0.2), ("e",)),  # at most 0.45
    ],
)
def test_windows_and_thresholds(settings: MiningSettings, expected: tuple[str, ...]) -> None:
    result = one(RANKED, settings)
    assert ids(result) == [expected]
    first = result.examples[0]
    assert first.negatives == tuple(f"text of {doc_id}" for doc_id in expected)
    assert (first.query, first.query_id, first.positives, first.positive_ids) == (
        "query",
        "1",
        ("text of p",),
        ("p",),
    )
    assert first.positive_scores == first.negative_scores == ()  # the search is no teacher


def test_a_ratio_below_zero_is_a_lower_score() -> None:
    assert ids(one({"p": -1.0, "a": -1.04, "b": -1.06}, MiningSettings())) == [("b",)]
    assert ids(one({"a": 0.1, "p": 0.0, "b": 0.0, "c": -0.1}, MiningSettings())) == [("b", "c")]


def test_the_best_positive_counts_also_behind_the_window() -> None:
    scores = {"a": 0.9, "b": 0.7, "c": 0.6, "p": 0.5, "q": 0.4}
    settings = MiningSettings(last_rank=3, depth=5, ratio=1)
    result = one(scores, settings, ["q", "p"])
    assert ids(result) == [()] and result.short == 1
    assert result.dropped == {"ratio": 3}
    shallow = one(scores, MiningSettings(last_rank=3, depth=3, ratio=1), ["q", "p"])
    assert ids(shallow) == [("a", "b", "c")]  # nothing to compare with
    assert shallow.without_threshold == 1 and result.without_threshold == 0


def test_what_was_dropped_is_counted() -> None:
    texts = {
        "p": "Paris",
        "p2": "PARIS ",
        "self": "capital  of FRANCE",
        "b": "Berlin",
        "b2": " berlin",
        "empty": " ",
        "r": "Rome",
    }
    scores = {"p2": 0.9, "p": 0.8, "self": 0.7, "b": 0.6, "b2": 0.5, "empty": 0.4, "r": 0.3}
    result = mine_negatives(
        {"1": "capital of France", "2": "unjudged", "3": " "},
        {"1": {"p": 1, "r": 0}, "3": {"p": 1}},
        Searching({"capital of France": scores}, texts),
        texts=texts,
        settings=ALL,
    )
    assert ids(result) == [("b", "r")]  # judged not relevant: a fine negative
    assert result.dropped == {"equal text": 2, "positive": 1, "repeated text": 1, "no text": 1}
    assert (result.queries, result.unusable, result.asked, result.short, result.negatives) == (3, 2, 1, 1, 2)


def test_queries_that_are_equal_share_what_is_relevant() -> None:
    queries = {"1": "capital of France", "2": "Capital of  France", "3": "capital of France"}
    qrels = {"1": {"a": 1}, "2": {"b": 2}, "3": {"c": 1}}
    scores = dict.fromkeys("abcde", 0.5)
    search = Searching(dict.fromkeys(queries.values(), scores))
    result = mine_negatives(queries, qrels, search, texts={d: f"text of {d}" for d in "abc"}, settings=ALL)
    assert ids(result) == [("d", "e")] * 3
    assert [example.positive_ids for example in result.examples] == [("a",), ("b",), ("c",)]
    assert search.asked == [("capital of France", "Capital of  France")]


def test_a_document_relevant_to_an_equal_query_is_no_positive_of_its_own() -> None:
    queries, qrels = {"1": "q", "2": "q"}, {"1": {"a": 1, "b": 0}, "2": {"b": 1}}
    result = mine_negatives(queries, qrels, Searching({"q": dict.fromkeys("abc", 0.5)}), settings=ALL)
    assert [example.positive_ids for example in result.examples] == [("a",), ("b",)]
    assert ids(result) == [("c",), ("c",)]


def test_passages_of_a_document_keep_their_texts() -> None:
    def search(queries: Sequence[str], k: int) -> list[list[Hit]]:
        return [
            [Hit(doc_id=d, rank=1, score=1, retrieval_score=1, text=f"{d}, part {part}", passage=part) for d in "pn"]
            for part, _ in enumerate(queries)
        ]

    result = mine_negatives({"1": "one", "2": "two"}, {"1": {"p": 1}, "2": {"p": 1}}, search, settings=ALL)
    assert [(e.positives, e.negatives) for e in result.examples] == [
        (("p, part 0",), ("n, part 0",)),
        (("p, part 1",), ("n, part 1",)),
    ]


def test_a_score_at_the_threshold_is_kept() -> None:
    scores = {"p": 1.0, "a": 0.75, "b": 0.5}
    assert ids(one(scores, MiningSettings(ratio=None, margin=0.25))) == [("a", "b")]
    assert ids(one(scores, MiningSettings(ratio=0.75))) == [("a", "b")]


def test_a_positive_that_was_found_is_the_passage_found() -> None:
    hits = [
        Hit(doc_id="p", rank=1, score=2, retrieval_score=2, title="T", text="its best passage", passage=3),
        Hit(doc_id="n", rank=2, score=1, retrieval_score=1, title="", text="the whole of p"),
        Hit(doc_id="m", rank=3, score=1, retrieval_score=1, title="T", text="another", passage=1),
    ]
    result = mine_negatives(
        {"1": "q"},
        {"1": {"p": 1, "far": 1, "gone": 1}},
        lambda _, k: [hits[:k]],
        texts={"p": "the whole of p", "far": "F"},
    )
    assert result.examples == [
        Example(
            query="q",
            query_id="1",
            positives=(joined("T", "its best passage"), "F"),
            positive_ids=("p", "far"),
            negatives=("T another",),
            negative_ids=("m",),
        )
    ]


def test_a_query_without_text_of_a_positive_has_no_example() -> None:
    queries, qrels = {"1": "one", "2": "two"}, {"1": {"gone": 1}, "2": {"p": 1}}
    search = Searching({"one": {"a": 1.0}, "two": {"p": 1.0, "a": 0.5}})
    result = mine_negatives(queries, qrels, search)
    assert [example.query_id for example in result.examples] == ["2"]
    assert (result.unusable, result.asked, result.without_threshold) == (1, 1, 0)


def test_nothing_to_mine() -> None:
    with pytest.raises(DataError, match="none of 1 queries has a text and a relevant document"):
        mine_negatives({"1": "one"}, {"1": {"p": 0}}, Searching({}))


JUDGED = {"p": "p (2.0)", "a": "a (3.0)", "b": "b (1.5)", "c": "c (0.0)", "d": "d (-1.0)", "e": "e (-2.0)"}


@pytest.mark.parametrize(
    ("margin", "expected", "read"),
    [(0.0, ("b", "c"), "pabc"), (1.0, ("c", "d"), "pabcd"), (2.5, ("d", "e"), "pabcde"), (9.0, (), "pabcde")],
)
def test_the_cross_encoder_drops_what_it_takes_for_relevant(margin: float, expected: Any, read: str) -> None:
    judge = Judge()
    result = mine_negatives(
        {"1": "q"},
        {"1": {"p": 1}},
        Searching({"q": dict.fromkeys("apbcde", 0.5)}, JUDGED),
        settings=MiningSettings(ratio=None, per_query=2, reranker_margin=margin),
        reranker=judge,
    )
    assert ids(result) == [expected]
    logits = [float(JUDGED[doc_id][3:-1]) for doc_id in expected]
    assert result.examples[0].positive_scores == (2.0,)
    assert result.examples[0].negative_scores == tuple(logits)
    assert "".join(text[0] for _, text in judge.pairs) == read  # and no candidate more than it needs
    assert result.dropped["cross-encoder"] == len(read) - 1 - len(expected)
    assert len(expected) == 2 or (result.short == 1 and result.false_negatives is None)


def test_the_cross_encoder_serves_many_queries_at_once() -> None:
    names = {f"query {number}": number for number in range(600)}
    search = Searching(
        {query: dict.fromkeys("paebcd"[: 1 + number % 6], 0.5) for query, number in names.items()}, JUDGED
    )
    qrels = {query: {"p": 1} for query in names}
    result = mine_negatives(
        {query: query for query in names}, qrels, search, settings=MiningSettings(per_query=3), reranker=Judge()
    )
    expected = [(), (), ("e",), ("e", "b"), ("e", "b", "c"), ("e", "b", "c")]
    without = MiningSettings(per_query=3, ratio=None)
    again = mine_negatives({q: q for q in names}, qrels, search, settings=without, reranker=Judge())
    assert ids(again) == [expected[number % 6] for number in names.values()]
    assert ids(result) == [()] * 600  # all score as the positive does: none keeps 95 % of it
    assert [len(chunk) for chunk in search.asked[:3]] == [256, 256, 88]


def test_a_cross_encoder_that_gives_no_numbers() -> None:
    class Broken(Judge):
        def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
            return np.full(len(pairs), np.nan, np.float32)

    with pytest.raises(ModelError, match="NaN"):
        mine_negatives({"1": "q"}, {"1": {"p": 1}}, Searching({"q": {"p": 1.0}}), reranker=Broken())


def test_the_estimate() -> None:
    # Without a cross-encoder: what scores at or above the best positive, here a of a, b, c, d, e.
    assert one(RANKED, ALL).false_negatives == pytest.approx(0.2)
    assert one(RANKED, MiningSettings(ratio=1)).false_negatives == 0
    # A positive that is not among the hits scores below all of them.
    assert one({"a": 1.0, "b": 0.5}, MiningSettings()).false_negatives == 1
    assert one({"p": 1.0}, MiningSettings()).false_negatives is None
    # With one: the mean probability; 1 / (1 + e^-1.5) = .8176, of 0 it is .5.
    result = mine_negatives(
        {"1": "q"},
        {"1": {"p": 1}},
        Searching({"q": dict.fromkeys("apbc", 0.5)}, JUDGED),
        settings=MiningSettings(ratio=None, per_query=2),
        reranker=Judge(),
    )
    assert result.false_negatives == pytest.approx((0.817574 + 0.5) / 2, abs=1e-5)
    assert result.facts()["estimated false negatives"] == "65.9%"


@pytest.mark.parametrize("sampling", ["top", "random"])
def test_the_order_of_queries_does_not_matter(sampling: Any) -> None:
    draw = random.Random(5)
    documents = [f"d{number}" for number in range(40)]
    queries = {str(number): f"query {number % 300}" for number in range(400)}
    qrels = {query_id: dict.fromkeys(draw.sample(documents, 2), 1) for query_id in queries}
    results = {
        f"query {n}": {d: 1 - rank / 100 for rank, d in enumerate(draw.sample(documents, 30))} for n in range(300)
    }
    texts = {doc_id: f"text of {doc_id}" for doc_id in documents}
    settings = MiningSettings(sampling=sampling, per_query=4, seed=3)
    mined = []
    for order in (list(queries), sorted(queries, reverse=True)):
        some = {query_id: queries[query_id] for query_id in order}
        result = mine_negatives(some, qrels, Searching(results), texts=texts, settings=settings)
        mined.append({example.query_id: example for example in result.examples})
        assert list(mined[-1]) == order
        assert result.data == mine_negatives(queries, qrels, Searching(results), texts=texts).data
    assert mined[0] == mined[1]
    for example in mined[0].values():
        judged = {d for q, grades in qrels.items() if queries[q] == example.query for d in grades}
        assert not judged & set(example.negative_ids)
        assert len(set(example.negative_ids)) == len(example.negative_ids) <= 4


def test_a_random_choice_follows_its_seed() -> None:
    scores = {"p": 1.0, **{f"d{number}": 0.5 for number in range(40)}}
    chosen = [ids(one(scores, MiningSettings(sampling="random", seed=seed)))[0] for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert all(len(set(some)) == 5 for some in chosen)
    assert ids(one(scores, MiningSettings()))[0] == ("d0", "d1", "d2", "d3", "d4")


def test_progress_counts_different_queries() -> None:
    seen: list[tuple[int, int]] = []
    queries = {str(number): f"query {number % 300}" for number in range(400)}
    search = Searching({f"query {number}": {"p": 1.0} for number in range(300)})
    mine_negatives(
        queries,
        {query_id: {"p": 1} for query_id in queries},
        search,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(256, 300), (300, 300)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_query": 0},
        {"first_rank": 0},
        {"first_rank": 51},
        {"last_rank": 101},
        {"margin": -0.1},
        {"margin": float("nan")},
        {"margin": float("inf")},
        {"reranker_margin": float("nan")},
        {"reranker_margin": float("inf")},
        {"ratio": 0.0},
        {"ratio": 1.1},
        {"sampling": "best"},
    ],
)
def test_settings_that_mean_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        MiningSettings(**wrong)


def test_files_say_where_negatives_come_from(tmp_path: Path) -> None:
    result = one(RANKED, MiningSettings())
    write_mined(tmp_path / "train.jsonl.gz", result, {"index": "my-index"})
    assert read_examples(tmp_path / "train.jsonl.gz") == result.examples
    body = json.loads((tmp_path / "train.jsonl.gz.provenance.json").read_text())
    assert body["index"] == "my-index"
    assert body["settings"]["ratio"] == 0.95
    assert body["dropped"] == {"positive": 1, "ratio": 2}
    assert (body["queries"], body["examples"], body["negatives"], body["false_negatives"]) == (1, 1, 3, 0)
    assert len(body["queries_and_judgements_sha256"]) == 64
    other = mine_negatives({"1": "query"}, {"1": {"p": 2}}, Searching({"query": RANKED}))
    assert other.data != result.data


@pytest.mark.skipif(not CASES.is_dir(), reason="the handed cases (../shared/cases) are not here")
def test_tn01_no_copy_of_a_positive() -> None:
    """The rows of train.jsonl, judged by text; the search finds everything for every query."""
    corpus = {
        (record := json.loads(line))["_id"]: record["text"]
        for line in (CASES / "TN01" / "corpus.jsonl").read_text().splitlines()
    }
    rows = [json.loads(line) for line in (CASES / "TN01" / "train.jsonl").read_text().splitlines()]
    queries = {str(number): row["query"] for number, row in enumerate(rows)}
    texts = {**corpus, "city": "The city of Paris"}  # a positive that is not in the corpus
    by_text = {text: doc_id for doc_id, text in reversed(texts.items())}
    qrels = {str(number): {by_text[row["positive"]]: 1} for number, row in enumerate(rows)}
    scores = {doc_id: 1 - rank / 10 for rank, doc_id in enumerate(corpus)}
    result = mine_negatives(
        queries,
        qrels,
        Searching(dict.fromkeys(queries.values(), scores), texts),
        texts=texts,
        settings=MiningSettings(per_query=2, ratio=None),
    )
    assert ids(result) == [("b", "r"), ("b", "r"), ("p1", "r"), ("b", "r")]
    for example in result.examples:
        assert len(set(example.negatives)) == 2
        assert example.query not in example.negatives

"""Metrics: values worked by hand, trec_eval's own code as the oracle, and what must never change a number."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.errors import ConfigError, DataError
from retrieval.eval.metrics import evaluate

LOG3 = 1 / math.log2(3)  # the discount of rank 2
TREC_EVAL = {
    "ndcg": "ndcg",
    "ndcg@5": "ndcg_cut_5",
    "ndcg@10": "ndcg_cut_10",
    "ndcg@100": "ndcg_cut_100",
    "mrr": "recip_rank",
    "map": "map",
    "map@10": "map_cut_10",
    "recall@5": "recall_5",
    "recall@100": "recall_100",
    "precision@5": "P_5",
    "precision@10": "P_10",
    "hit_rate@5": "success_5",
    "r-precision": "Rprec",
    "bpref": "bpref",
}


def means(qrels, run, metrics="ndcg@10,mrr@10,map@10,recall@10", **options):
    return list(evaluate(qrels, run, metrics, **options).means().values())


# ---------------------------------------------------------------- values by hand


def test_a_binary_ranking():
    # relevant at ranks 1 and 3 of 2: DCG 1 + 1/2, ideal 1 + 1/log2(3); AP (1 + 2/3) / 2
    got = means({"q": {"a": 1, "c": 1}}, {"q": {"a": 3, "b": 2, "c": 1}})
    assert got == pytest.approx([1.5 / (1 + LOG3), 1, (1 + 2 / 3) / 2, 1])


def test_gain_is_linear_for_ndcg_and_exponential_for_ndcg_burges():
    qrels, run = {"q": {"a": 3, "b": 1}}, {"q": {"b": 2.0, "a": 1.0}}
    assert means(qrels, run, "ndcg@10,ndcg_burges@10") == pytest.approx(
        [(1 + 3 * LOG3) / (3 + LOG3), (1 + 7 * LOG3) / (7 + LOG3)]
    )


def test_a_relevance_level_decides_what_counts():
    qrels, run = {"q": {"a": 1, "b": 2}}, {"q": {"a": 2.0, "b": 1.0}}
    assert means(qrels, run, "mrr@10,mrr@10-l2,precision@1") == [1.0, 0.5, 1.0]
    assert means(qrels, run, "mrr@10,mrr@10-l3", relevance_level=2) == [0.5, 0.0]


def test_negative_grades_are_not_relevant():
    got = means({"q": {"a": -1, "b": 1, "c": 2}}, {"q": {"a": 3, "b": 2, "c": 1}})
    assert got == pytest.approx([(LOG3 + 1) / (2 + LOG3), 1 / 2, (1 / 2 + 2 / 3) / 2, 1])


def test_equal_scores_are_ordered_by_doc_id_descending():
    for order in ("abc", "cba", "bca"):
        scores = evaluate({"q": {"a": 1}}, {"q": dict.fromkeys(order, 1.0)}, "mrr,ndcg@2,recall@1")
        assert scores.means() == {"mrr": 1 / 3, "ndcg@2": 0.0, "recall@1": 0.0}
        assert scores.counts.tied == {1: 1, 2: 1}


def test_cut_offs_cut_the_ideal_list_too():
    qrels = {"p": {"k": 1}, "q": {f"d{n:02}": 1 for n in range(15)}}
    run = {"p": {chr(97 + n): 20.0 - n for n in range(11)}, "q": {f"d{n:02}": 20.0 - n for n in range(12)}}
    assert means(qrels, run, "mrr@10 mrr ndcg@10 map@10 recall@10") == pytest.approx(
        [1 / 2, (1 / 11 + 1) / 2, 1 / 2, 10 / 15 / 2, 10 / 15 / 2]
    )


def test_bpref_where_nothing_is_judged_not_relevant():
    # every relevant document that is found counts fully: trec_eval's rule; the formula would divide by zero
    assert means({"q": {"a": 1, "b": 1}}, {"q": {"x": 2.0, "a": 1.0}}, "bpref") == [0.5]


# ---------------------------------------------------------------- what is counted


def test_queries_without_hits_or_relevant_documents_score_zero_and_are_counted(caplog):
    qrels = {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 0}, "d": {"x": 1}}
    scores = evaluate(qrels, {"a": {"x": 1.0}, "b": {}, "c": {"x": 1.0}, "z": {"x": 1.0}}, "mrr@10,bpref")
    assert scores.by_query("mrr@10") == {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0}
    assert scores.mean("bpref") == 0.25
    counts = scores.counts
    assert (counts.queries, counts.without_hits, counts.without_relevant, counts.unjudged) == (
        4,
        ("b", "d"),
        ("c",),
        ("z",),
    )
    said = " ".join(counts.notices())
    assert "2 judged queries have no hits, counted as 0: b, d" in said
    assert "1 judged query has no relevant document" in said
    assert "1 query has no judgements" in said


def test_an_empty_run_scores_zero():
    scores = evaluate({"q": {"a": 1}}, {}, "ndcg@10")
    assert (scores.mean("ndcg@10"), scores.counts.without_hits) == (0.0, ("q",))


def test_judged_documents_outside_the_corpus_lower_recall_and_are_counted():
    scores = evaluate({"q": {"a": 1, "zz": 1}, "p": {"zz": 1}}, {"q": {"a": 1.0}}, "recall@10", doc_ids={"a", "b"})
    assert (scores.by_query("recall@10"), scores.counts.missing_documents) == ({"q": 0.5, "p": 0.0}, 1)


def test_identical_ids_are_left_out_only_on_request_and_only_for_their_own_query():
    qrels, run = {"q1": {"d": 1}, "q2": {"q1": 1}}, {"q1": {"q1": 2.0, "d": 1.0}, "q2": {"q1": 2.0, "q2": 3.0}}
    raw = evaluate(qrels, run, "mrr")
    assert (raw.means(), raw.counts.identical_ids, raw.counts.ignored_identical) == ({"mrr": 0.5}, 2, False)
    without = evaluate(qrels, run, "mrr", ignore_identical_ids=True)
    assert (without.means(), without.counts.identical_ids) == ({"mrr": 1.0}, 2)
    assert run["q1"] == {"q1": 2.0, "d": 1.0}  # what was given stays as it was


def test_scores_are_ready_for_json():
    scores = evaluate({"q": {"a": 1}}, {"q": {"b": 2, "a": 1}}, "RR@10,P_1")
    assert json.loads(json.dumps(scores.to_dict(), allow_nan=False)) == {
        "means": {"mrr@10": 0.5, "precision@1": 0.0},
        "confidence_interval_95": {"mrr@10": [0.0, 1.0], "precision@1": [0.0, 1.0]},
        "by_query": {"q": {"mrr@10": 0.5, "precision@1": 0.0}},
        "counts": {
            "queries": 1,
            "without_hits": [],
            "without_relevant": [],
            "unjudged": [],
            "missing_documents": None,
            "identical_ids": 0,
            "ignored_identical": False,
            "tied": {},
        },
    }
    tied = evaluate({"q": {"a": 1}}, {"q": dict.fromkeys("abc", 1)}, "mrr@1,map@2")
    assert json.loads(json.dumps(tied.to_dict()))["counts"]["tied"] == {"1": 1, "2": 1}
    assert scores.mean("recip_rank_10") == 0.5
    with pytest.raises(ConfigError, match="mrr@5 was not evaluated; there are mrr@10, precision@1"):
        scores.mean("mrr@5")


# ---------------------------------------------------------------- oracle


def random_pairs(seed, queries):
    """Judgements -1..3 and runs with many ties, missing queries, queries without judged hits, 1 to 59 hits.

    Scores fit single precision, which trec_eval reads.
    """
    rng = np.random.default_rng(seed)
    qrels, run = {}, {}
    for number in range(queries):
        docs = [f"d{n}" for n in rng.permutation(60)[: rng.integers(1, 60)]]
        scores = rng.integers(0, 8, len(docs)) / 4 if number % 3 else rng.random(len(docs))
        if number % 17:
            run[f"q{number}"] = dict(zip(docs, scores.astype(np.float32).tolist(), strict=True))
        judged = rng.permutation(60)[: rng.integers(1, 30)].tolist()
        qrels[f"q{number}"] = {f"d{n}": int(rng.integers(-1, 4)) for n in judged}
    return qrels, run


def test_two_thousand_random_queries_agree_with_trec_eval():
    qrels, run = random_pairs(0, 2000)
    families = {name.rstrip("0123456789").rstrip("_") for name in TREC_EVAL.values()}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, families).evaluate(run)
    assert len(theirs) < 2000  # it leaves out queries without hits
    ours = evaluate(qrels, run, list(TREC_EVAL))
    for name, their_name in TREC_EVAL.items():
        expected = [theirs[query_id][their_name] if query_id in theirs else 0.0 for query_id in qrels]
        assert np.abs(ours.of(name) - expected).max() <= 1e-9, name
        assert 0 < ours.mean(name) < 1


@settings(deadline=None, max_examples=50)
@given(
    docs=st.lists(st.text(min_size=1, max_size=3), unique=True, min_size=1, max_size=20),
    data=st.data(),
)
def test_the_order_of_the_input_changes_nothing(docs, data):
    scores = data.draw(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.5]), min_size=len(docs), max_size=len(docs)))
    qrels = {"q": {doc_id: data.draw(st.integers(-1, 2)) for doc_id in docs}}
    pairs = list(zip(docs, scores, strict=True))
    again = data.draw(st.permutations(pairs))
    metrics = "ndcg@3,mrr,map@5,recall@2,bpref"
    assert means(qrels, {"q": dict(pairs)}, metrics) == means(qrels, {"q": dict(again)}, metrics)


def test_metrics_asked_for_together_and_alone_are_equal():
    qrels, run = random_pairs(1, 40)
    together = evaluate(qrels, run, list(TREC_EVAL))
    for name in TREC_EVAL:
        assert evaluate(qrels, run, name).of(name).tolist() == together.of(name).tolist()


# ---------------------------------------------------------------- refusals, and ranx's habits


@pytest.mark.parametrize(
    ("qrels", "run", "words"),
    [
        ({}, {}, "no judgements"),
        ({"q": {"a": 1}}, {"p": {"a": 1.0}}, r"no query in common: 'q' .*'p'"),
        ({"q": {"a": 0.5}}, {"q": {"a": 1.0}}, r"'q', document 'a': the grade 0\.5"),
        ({"q": {"a": math.nan}}, {"q": {"a": 1.0}}, "grade nan"),
        ({"q": {"a": math.inf}}, {"q": {"a": 1.0}}, "grade inf"),
        ({"q": {"a": None}}, {"q": {"a": 1.0}}, "grade None"),
        ({"q": {"a": "1"}}, {"q": {"a": 1.0}}, "grade '1'"),
        ({"q": {"a": 10**400}}, {"q": {"a": 1.0}}, "too large to be a gain"),
        ({"q": {"a": 1}}, {"q": {"a": 1.0, "b": math.nan}}, "'q', document 'b': the score is not a number"),
        ({"q": {"a": 1}}, {"q": {"b": np.float32(1), "a": math.nan}}, "'q', document 'a': the score is not a number"),
        ({"q": {"a": 1}}, {"q": {"a": None}}, "'q', document 'a': the score is not a number"),
        ({"q": {"a": 1}}, {"q": {"a": "1.0"}}, "'q', document 'a': the score is not a number"),
    ],
)
def test_what_cannot_be_scored_is_named(qrels, run, words):
    with pytest.raises(DataError, match=words):
        evaluate(qrels, run)


@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int32, np.float16, np.float32, int, float])
def test_scores_may_be_numbers_of_any_kind(kind):
    assert means({"q": {"a": 1}}, {"q": {"a": kind(3), "b": kind(1)}}, "mrr") == [1.0]
    assert means({"q": {"a": 1}}, {"q": {"a": 2**63 + 2**12, "b": kind(1)}}, "mrr") == [1.0]


def test_grades_that_an_exponential_gain_cannot_hold_are_refused():
    qrels, run = {"q": {"a": 2000, "b": 1}}, {"q": {"b": 2.0, "a": 1.0}}
    assert means(qrels, run, "ndcg@10") == pytest.approx([(1 + 2000 * LOG3) / (2000 + LOG3)])
    with pytest.raises(DataError, match=r"ndcg_burges@10: 2\^grade is no number for grades above 1000"):
        evaluate(qrels, run, "ndcg_burges@10")


def test_a_query_whose_only_hit_is_itself_has_none():
    scores = evaluate({"q": {"a": 1}, "p": {"a": 1}}, {"q": {"q": 1.0}, "p": {"a": 1.0}}, ignore_identical_ids=True)
    assert scores.counts.without_hits == ("q",)


def test_notices_keep_strange_ids_on_one_line():
    scores = evaluate({"a\n\x1b[31m": {"x": 1}, "b": {"x": 1}}, {"b": {"x": 1.0}}, "mrr")
    (notice,) = scores.counts.notices()
    assert notice.isprintable() and "\\x1b" in notice


def test_an_unknown_metric_is_named_before_anything_is_read():
    with pytest.raises(ConfigError, match="no metric 'mpa'"):
        evaluate({}, {}, "mpa")


def test_threads_may_evaluate_at_the_same_time():
    # ranx alone ends the process here (numba's workqueue layer)
    qrels, run = random_pairs(2, 30)
    expected = evaluate(qrels, run, "ndcg@10").values.tolist()
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(evaluate(qrels, run, "ndcg@10").values.tolist() == expected for _ in range(20))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


def test_only_what_is_asked_for_is_compiled_and_that_is_announced(tmp_path):
    code = (
        "import logging; logging.basicConfig()\n"
        "from retrieval.eval.metrics import evaluate\n"
        "evaluate({'q': {'a': 1}}, {'q': {'a': 1.0}}, 'mrr')\n"
    )
    kernel = "ranx's mrr for this machine (numba keeps it): some seconds, only this time"
    said = f"WARNING:retrieval.eval.metrics:compiling {kernel}"
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PATH": ""}
    for expected in ([said], []):
        ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert ran.stderr.splitlines() == expected
    compiled = {path.name.split(".")[0] for path in tmp_path.rglob("*.nbi")}
    assert "reciprocal_rank" in compiled
    assert not compiled & {"ndcg", "average_precision", "recall"}

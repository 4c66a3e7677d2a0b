"""Metric names: every common spelling in, one out."""

from __future__ import annotations

import pytest

from retrieval.errors import ConfigError
from retrieval.eval.measures import Measure, parse_measure, parse_measures


@pytest.mark.parametrize(
    ("canonical", "spellings"),
    [
        ("ndcg@10", "ndcg@10 nDCG@10 NDCG@10 ndcg_cut_10 ndcg_cut.10 ndcg_at_10 nDCG(dcg='log2')@10"),
        ("ndcg", "ndcg nDCG"),
        ("ndcg_burges@20", "ndcg_burges@20 nDCG(dcg='exp-log2')@20"),
        ("mrr", "mrr MRR RR recip_rank"),
        ("mrr@10", "mrr@10 RR@10 MRR@10 mrr_at_10"),
        ("recall@1000", "recall@1000 R@1000 recall_1000 recall.1000 Recall@1000"),
        ("precision@5", "precision@5 P@5 P_5 P.5 precision_at_5"),
        ("map", "map AP MAP"),
        ("map@100", "map@100 AP@100 map_cut_100 map_at_100"),
        ("hit_rate@1", "hit_rate@1 Success@1 success_1 accuracy@1 hit@1"),
        ("r-precision", "r-precision Rprec R_precision"),
        ("bpref", "bpref Bpref"),
        ("mrr@10-l2", "mrr@10-l2 RR(rel=2)@10"),
        ("r-precision-l2", "Rprec(rel=2) r-precision-l2"),
        ("ndcg@10-l2", "ndcg@10-l2"),
    ],
)
def test_every_spelling_gives_one_name(canonical, spellings):
    assert [str(parse_measure(spelling)) for spelling in spellings.split()] == [canonical] * len(spellings.split())
    assert parse_measure(canonical) == parse_measure(str(parse_measure(canonical)))


def test_several_names_come_in_one_text_or_many_and_each_once():
    assert parse_measures("ndcg@10, mrr@10 nDCG@10") == (Measure("ndcg", 10), Measure("mrr", 10))
    assert parse_measures(["RR@10,P(rel=2)@5", "mrr@10"], level=3) == (
        Measure("mrr", 10, 3),
        Measure("precision", 5, 2),
    )


def test_measures_stay_as_they_are():
    assert parse_measures([Measure("mrr", 10, 1), "map"], level=2) == (Measure("mrr", 10, 1), Measure("map", 0, 2))


def test_a_level_for_all_leaves_ndcg_alone():
    # as trec_eval's -l: the track's usual "nDCG graded, all others from grade 2"
    names = parse_measures("ndcg@10 ndcg_burges ndcg@5-l3 map mrr-l3", level=2)
    assert list(map(str, names)) == ["ndcg@10", "ndcg_burges", "ndcg@5-l3", "map-l2", "mrr-l3"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ndgc@10", r"did you mean ndcg\?\); expected one of ndcg"),
        ("ndcg@", "no metric"),
        ("ndcg@0", "at least 1"),
        ("ndcg@-1", "no metric"),
        ("ndcg@10@5", "no metric"),
        ("precision@99999999999999999999", "no metric"),
        ("ndcg@" + "9" * 5000, "no metric"),
        ("bpref@10", "no cut-off"),
        ("precision", "needs a cut-off"),
        ("mrr@10-l0", "at least 1"),
        ("ndcg(rel=2)@10", "parameter"),
        ("P(dcg='log2')@10", "parameter"),
        ("", "no metric"),
        ("n\u2460dcg", "no metric"),
    ],
)
def test_a_wrong_name_says_what_there_is(name, words):
    with pytest.raises(ConfigError, match=words):
        parse_measures([name])

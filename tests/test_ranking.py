"""The ranking rules: one total order, MaxP, hits as JSON."""

import datetime
import decimal
import functools
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.ranking import Candidate, Hit, best_passages, followed, ordered, ranked

CANDIDATES = st.lists(
    st.builds(
        Candidate,
        score=st.sampled_from([-1.5, -0.0, 0.0, 0.25, 0.5, 1.0]),
        doc_id=st.sampled_from(["", "2", "10", "a", "B", "é", "\U0001f40d"]),
        passage=st.integers(0, 3),
        row=st.just(0),
    ),
    max_size=30,
)


def test_documents_that_follow_stay_below_in_their_order_whatever_the_scores() -> None:
    for last in (0.5, -3.0, 1e17, -1e17, 1e300):
        scores = followed({"b": last, "a": last + 1}, ["z", "c", "y"])
        assert [doc_id for doc_id, _ in ranked(scores)][-3:] == ["z", "c", "y"]
        assert scores["b"] == last
    assert list(followed({}, "ab")) == ["a", "b"]


def before(one: Candidate, other: Candidate) -> int:
    """The rule as DESIGN words it, spelled out: -1 if `one` stands first, 1 if `other` does, 0 if they are equal."""
    if one.score != other.score:
        return -1 if one.score > other.score else 1
    if one.doc_id != other.doc_id:
        return -1 if one.doc_id > other.doc_id else 1
    return (one.passage > other.passage) - (one.passage < other.passage)


@given(CANDIDATES)
def test_the_order_is_the_rule_and_depends_on_nothing_else(candidates: list[Candidate]) -> None:
    found = ordered(candidates)
    assert found == sorted(candidates, key=functools.cmp_to_key(before))
    assert found == ordered(reversed(candidates)) == ordered(found)


@given(CANDIDATES, st.integers(0, 30))
def test_a_document_stands_where_its_best_passage_does(candidates: list[Candidate], k: int) -> None:
    best = best_passages(candidates)
    assert len({c.doc_id for c in best}) == len(best) == len({c.doc_id for c in candidates})
    assert best == ordered(best)
    for kept in best:
        mine = [c for c in candidates if c.doc_id == kept.doc_id]
        assert all(before(kept, other) <= 0 for other in mine)
    assert best_passages(ordered(candidates)[:k]) == best[: len(best_passages(ordered(candidates)[:k]))]


def test_trec_eval_breaks_ties_by_the_larger_id() -> None:
    """trec_eval sorts equal scores by docno, descending, as strings: "9" before "10", lower case before upper case."""
    scores = {"10": 2.0, "9": 2.0, "a": 2.0, "B": 2.0, "first": 3.0, "last": -1.0}
    given_order = [Candidate(score=s, doc_id=d, passage=0, row=0) for d, s in scores.items()]
    for shuffled in itertools.permutations(given_order):
        assert [c.doc_id for c in ordered(shuffled)] == ["first", "a", "B", "9", "10", "last"]


def test_the_earlier_of_two_equal_passages_stands_for_the_document() -> None:
    twice = [Candidate(score=1.0, doc_id="d", passage=p, row=p) for p in (4, 1, 3)]
    assert best_passages(twice) == [twice[1]]


def test_a_hit_becomes_json_whatever_its_metadata_holds() -> None:
    metadata = {
        "day": datetime.date(2024, 2, 29),
        "moment": datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC),
        "bytes": b"\x00\xff",
        "price": decimal.Decimal("1.10"),
        "nan": float("nan"),
        "list": [float("inf"), 1.5, None, {"deep": (b"", True)}],
        "pause": datetime.timedelta(seconds=90),
        "big": 2**70,
        "none": None,
    }
    hit = Hit(doc_id="007", rank=1, score=0.5, retrieval_score=0.5, metadata=metadata)
    back = json.loads(json.dumps(hit.to_dict(), allow_nan=False))
    assert back["metadata"] == {
        "day": "2024-02-29",
        "moment": "2024-02-29T12:30:00+00:00",
        "bytes": "AP8=",
        "price": "1.10",
        "nan": None,
        "list": [None, 1.5, None, {"deep": ["", True]}],
        "pause": "0:01:30",
        "big": 2**70,
        "none": None,
    }
    assert (back["doc_id"], back["rank"], back["rerank_score"]) == ("007", 1, None)
    assert metadata["bytes"] == b"\x00\xff"


def test_a_hit_cannot_be_changed() -> None:
    hit = Hit(doc_id="d", rank=1, score=0.5, retrieval_score=0.5)
    with pytest.raises(AttributeError):
        hit.rank = 2  # type: ignore[misc]

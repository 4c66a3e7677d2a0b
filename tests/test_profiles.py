import numpy as np
import pytest

from retrieval.errors import ConfigError
from retrieval.eval.measures import parse_measures
from retrieval.eval.profiles import PROFILES, get_profile, pool_notices, pools


def qrels_of(count: int) -> dict[str, dict[str, int]]:
    return {f"q{n}": {f"d{n}": 1, f"no{n}": 0} for n in range(count)}


def test_every_metric_of_a_profile_has_its_one_spelling() -> None:
    for profile in PROFILES.values():
        assert tuple(map(str, parse_measures(profile.metrics))) == profile.metrics


def test_a_metric_never_looks_deeper_than_the_hits_asked_for() -> None:
    for profile in PROFILES.values():
        deepest = max(measure.k for measure in parse_measures(profile.metrics))
        assert profile.depth is None or deepest <= profile.depth


def test_an_unknown_profile_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no scoring profile 'csn'; expected one of csn-999, codexglue, coir"):
        get_profile("csn")
    assert get_profile("coir") is PROFILES["coir"]


def test_a_pool_holds_the_relevant_documents_of_its_batch() -> None:
    qrels = qrels_of(10)
    found = pools(qrels, 3)
    assert len(found) == 9  # the tenth query is alone in the last batch
    batches = {pool: [name for name in found if found[name] == pool] for pool in found.values()}
    assert len(batches) == 3
    for pool, names in batches.items():
        assert pool == {f"d{name[1:]}" for name in names}


def test_batches_are_those_of_codesearchnets_program() -> None:
    before = np.random.get_state()
    np.random.seed(0)  # as the program does, with the global generator
    rows = np.arange(2500)
    np.random.shuffle(rows)
    np.random.set_state(before)
    found = pools(qrels_of(2500), 1000)
    assert set(found) == {f"q{row}" for row in rows[:2000]}
    assert found[f"q{rows[0]}"] == {f"d{row}" for row in rows[:1000]}
    assert found[f"q{rows[1999]}"] == {f"d{row}" for row in rows[1000:2000]}


def test_the_shuffle_stays_as_it_is() -> None:
    assert list(pools(qrels_of(6), 6)) == ["q5", "q2", "q1", "q3", "q0", "q4"]


def test_fewer_queries_than_a_batch_are_one_pool() -> None:
    found = pools(qrels_of(4), 1000)
    assert len(found) == 4
    assert set(found.values()) == {frozenset({"d0", "d1", "d2", "d3"})}


def test_no_queries_give_no_pools() -> None:
    assert pools({}, 1000) == {}


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="a pool of 0 queries"):
        pools(qrels_of(3), 0)


def test_what_is_not_scored_is_told() -> None:
    assert pool_notices(2000, 1000) == []
    assert pool_notices(2217, 1000) == ["not scored: 217 queries in the last, smaller batch"]
    (notice,) = pool_notices(999, 1000)
    assert "only 999 queries" in notice and "no number to compare" in notice
    assert 2217 - len(pools(qrels_of(2217), 1000)) == 217

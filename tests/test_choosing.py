"""Choosing an approximate index: tuned on some passages, proved on others, exact search where nothing will do."""

import numpy as np
import pytest

from retrieval.errors import ConfigError
from retrieval.index import approximate as a
from retrieval.index import choosing as c


def unit(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    array = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


class Source:
    def __init__(self, array: np.ndarray) -> None:
        self.array, self.rows, self.dim = array, len(array), array.shape[1]

    def blocks(self, block_rows: int):  # type: ignore[no-untyped-def]
        yield from (self.array[i : i + block_rows] for i in range(0, self.rows, block_rows))

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.array[rows]


def recall_outside(index: a.ApproximateIndex, array: np.ndarray, queries: np.ndarray) -> float:
    """Recall@10 by numpy, candidates rescored, of queries that are no passages."""
    shares = []
    for query, (_, rows) in zip(queries, index.search(queries, index.candidates), strict=True):
        best = np.argsort(-(array @ query))[:10]
        top = rows[np.argsort(-(array[rows] @ query))[:10]]
        shares.append(len(np.intersect1d(top, best)) / 10)
    return float(np.mean(shares))


def everything(source: Source) -> np.ndarray:
    return np.arange(source.rows)


@pytest.mark.parametrize("index_type", ["hnsw", "ivf", "ivfsq"])
def test_the_recall_that_is_told_is_that_of_queries_from_outside(index_type: str) -> None:
    array = unit(8000, 24)
    choice = c.choose(Source(array), everything(Source(array)), c.Wanted(index_type=index_type, min_recall=0.95))
    assert choice.index is not None and not [n for n in choice.notices if "recall" in n]
    assert choice.index.rows == 8000
    assert 0.95 <= choice.recall < 0.995  # no farther than needed
    assert recall_outside(choice.index, array, unit(500, 24, 9)) == pytest.approx(choice.recall, abs=0.02)


def test_tuning_and_proof_see_other_queries_and_neither_is_in_the_index() -> None:
    source = Source(unit(3000, 16))
    searchable = np.arange(0, 3000, 2)
    samples = c.Samples(source, searchable)
    rows = [samples[number].rows for number in range(4)]
    assert [len(some) for some in rows] == [75] * 4
    assert len(np.unique(np.concatenate(rows))) == 300 and np.isin(np.concatenate(rows), searchable).all()
    inside = np.setdiff1d(np.arange(3000), samples.rows)
    scores = source.array[rows[1]] @ source.array[inside].T
    assert samples[1].least == pytest.approx(np.sort(scores, axis=1)[:, -10], abs=1e-6)


def test_a_sample_that_falls_short_is_tuned_on_and_another_one_proves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(unit(4000, 24))
    samples = c.Samples(source, everything(source))
    built = a.ApproximateIndex.build("HNSW16_SQ8", source, without=samples.rows)
    tuned: list[list[int]] = []
    tune = c.tune

    def noted(index, source, seen, min_recall):  # type: ignore[no-untyped-def]
        tuned.append([next(n for n in range(4) if samples[n] is one) for one in seen])
        reached = tune(index, source, seen, min_recall)
        if len(seen) == 1:
            index.parameters.update(efSearch=10, candidates=10)  # as if the first sample were easier than all others
        return reached

    monkeypatch.setattr(c, "tune", noted)
    proof = c.prove(built, source, samples, 0.9)
    assert tuned[:2] == [[0], [0, 1]]
    assert proof.recall >= 0.9 and built.parameters["efSearch"] > 4
    assert proof.recall == pytest.approx(float(c.found_shares(built, source, samples[len(tuned)]).mean()))


def test_tuning_takes_the_least_that_reaches_the_recall() -> None:
    source = Source(unit(6000, 32))
    samples = c.Samples(source, everything(source))
    built = a.ApproximateIndex.build("IVF60,Flat", source, without=samples.rows)
    assert c.tune(built, source, [samples[0]], 0.9)
    chosen = built.parameters["nprobe"]
    assert 1 < chosen < 60 and built.parameters["candidates"] == 32
    shares = c.found_shares(built, source, samples[0])
    assert shares.mean() - shares.std() / len(shares) ** 0.5 >= 0.9
    built.parameters["nprobe"] = chosen - max(1, chosen // 8) - 1
    shares = c.found_shares(built, source, samples[0])
    assert shares.mean() - shares.std() / len(shares) ** 0.5 < 0.9


def test_coarse_codes_have_more_candidates_rescored_until_they_do() -> None:
    source = Source(unit(4000, 16))
    samples = c.Samples(source, everything(source))
    built = a.ApproximateIndex.build("PQ4x4", source, without=samples.rows)
    assert c.tune(built, source, [samples[0]], 0.9)
    assert 100 < built.parameters["candidates"] <= 2048
    assert c.found_shares(built, source, samples[1]).mean() > 0.85


def test_auto_is_exact_where_nothing_reaches_the_recall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a, "EXACT_NUMBERS", 0)
    monkeypatch.setattr(a, "_AUTO", ("IVF8,PQ1x4", "PQ1x2"))
    monkeypatch.setattr(c, "_MOST_CANDIDATES", 64)
    source = Source(unit(3000, 16))
    choice = c.choose(source, everything(source), c.Wanted())
    assert choice.index is None and choice.factory == ""
    first, second, last = choice.notices
    assert first.startswith("IVF8,PQ1x4 reaches recall@10 0.") and first.endswith("below --min-recall 0.99")
    assert second.startswith("PQ1x2 reaches") and last.endswith("search is exact")


def test_auto_goes_on_to_what_is_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a, "EXACT_NUMBERS", 0)
    monkeypatch.setattr(a, "_AUTO", ("PQ1x2", "ivf"))
    monkeypatch.setattr(c, "_MOST_CANDIDATES", 64)
    source = Source(unit(3000, 16))
    choice = c.choose(source, everything(source), c.Wanted(min_recall=0.95))
    assert choice.factory == "IVF76,Flat" and choice.recall >= 0.95
    assert choice.notices[0].startswith("PQ1x2 reaches")


def test_a_named_type_is_kept_with_a_notice_though_it_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c, "_MOST_CANDIDATES", 64)
    source = Source(unit(3000, 16))
    choice = c.choose(source, everything(source), c.Wanted(index_type="IVF8,PQ1x2", memory_limit=1000))
    assert choice.index is not None and choice.recall < 0.99
    assert [n.split(" ", 1)[1].split(" ")[0] for n in choice.notices] == ["reaches", "has"]
    assert choice.notices[1].endswith("bytes, above --memory-limit 1,000")


def test_auto_is_exact_where_nothing_fits_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a, "EXACT_NUMBERS", 0)
    source = Source(unit(1000, 16))
    choice = c.choose(source, everything(source), c.Wanted(memory_limit=1000))
    assert choice.index is None
    assert choice.notices == ["no approximate index fits in --memory-limit 1,000 bytes: search is exact"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_recall": 0.0}, "--min-recall 0.0: expected a share"),
        ({"min_recall": 1.01}, "--min-recall 1.01: expected a share"),
        ({"memory_limit": 0}, "--memory-limit 0: expected a number of bytes"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        c.Wanted(**settings)  # type: ignore[arg-type]


def test_a_handful_of_passages_is_searched_exactly() -> None:
    source = Source(unit(19, 16))
    choice = c.choose(source, everything(source), c.Wanted(index_type="hnsw"))
    assert choice.index is None and choice.notices == ["HNSW16_SQ8 for 19 passages: search is exact"]


def test_equal_passages_are_as_good_as_each_other() -> None:
    """Of 40 equal neighbours any 10 are the best: which ones a graph finds says nothing about it."""
    array = np.repeat(unit(50, 16), 40, axis=0)
    choice = c.choose(Source(array), np.arange(len(array)), c.Wanted(index_type="IVF8,Flat"))
    assert choice.recall == 1.0

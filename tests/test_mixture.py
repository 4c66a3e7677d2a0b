"""Mixtures: the formula by hand, files, the fit, and that a retriever, a run and an evaluation order by them."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import write_corpus

from retrieval import Retriever, build_index, evaluate, evaluate_retriever, rerank_run
from retrieval.errors import ConfigError, DataError, ModelError
from retrieval.eval.benchmark import Benchmark
from retrieval.hybrid import standardised
from retrieval.matching import combined, mixed
from retrieval.mixture import MIXTURE_FILE, JudgedList, Mixture, fit_mixture
from retrieval.models import fingerprint
from retrieval.reranker import CrossEncoder, RerankSettings
from retrieval.reranking import passages_of

CPU = RerankSettings(device="cpu")

# ---------------------------------------------------------------- the formula


def test_the_formula_by_hand() -> None:
    # mean 2, deviation sqrt(2/3): z is -1.224745, 0, 1.224745; logits / 2 are 2, 0, -1
    found = Mixture(weight=0.25, temperature=2.0).combine(np.array([1.0, 2.0, 3.0]), np.array([4, 0, -2], np.float32))
    np.testing.assert_allclose(found, [1.5 - math.sqrt(1.5) / 4, 0, -0.75 + math.sqrt(1.5) / 4], rtol=1e-12)
    assert found.dtype == np.float64


def test_by_default_the_logits_to_the_bit() -> None:
    logits = np.array([0.1, -3.3333333, 2e-7], np.float32)
    found = Mixture().combine(np.array([3.0, 1.0, 2.0]), logits)
    assert found.tolist() == logits.astype(float).tolist()


def test_weight_one_is_the_first_stage() -> None:
    found = Mixture(weight=1.0, temperature=3.0).combine(np.array([1.0, 5.0, 3.0]), np.array([9.0, -9.0, 0.0]))
    np.testing.assert_allclose(found, [-math.sqrt(1.5), math.sqrt(1.5), 0], atol=1e-12)


def test_a_reranker_that_sees_little_difference_changes_little() -> None:
    """Logits are not brought to one spread: .001 apart, they turn no order round."""
    found = Mixture(weight=0.1).combine(np.array([0.9, 0.8, 0.7]), np.array([0.0, 0.001, 0.002]))
    assert found.tolist() == sorted(found, reverse=True)


@pytest.mark.parametrize("scores", [[0.1] * 3, [7.0], [], [1e308, 1e308], [math.inf, math.inf], [5e-324, 0.0]])
def test_scores_without_a_spread_count_for_nothing(scores: list[float]) -> None:
    logits = np.arange(len(scores), dtype=float)
    found = Mixture(weight=0.5).combine(np.array(scores), logits)
    np.testing.assert_array_equal(found, logits / 2)


@pytest.mark.parametrize("size", [1e-300, 1e-3, 1.0, 1e300, 8e307])
def test_scores_of_any_size_have_deviation_one(size: float) -> None:
    z = standardised(np.array([2.0, -2.0, 1.0]) * size)
    assert z.mean() == pytest.approx(0, abs=1e-12) and z.std() == pytest.approx(1)
    np.testing.assert_allclose(z, standardised(np.array([2.0, -2.0, 1.0])))


def test_a_small_difference_of_large_scores_is_seen() -> None:
    np.testing.assert_array_equal(standardised(np.array([1e15, 1e15 + 1])), [-1, 1])


def test_infinite_scores_count_as_the_extreme_finite_ones() -> None:
    found = standardised(np.array([math.inf, 3.0, 1.0, -math.inf]))
    np.testing.assert_array_equal(found, [1, 1, -1, -1])
    np.testing.assert_array_equal(standardised(np.array([math.inf, -math.inf])), [1, -1])


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-50, 50)), min_size=1, max_size=12), st.randoms())
def test_the_order_of_the_candidates_is_no_matter(pairs: list[tuple[float, float]], random: Any) -> None:
    mixture = Mixture(weight=0.4, temperature=1.7)

    def scores(some: Sequence[tuple[float, float]]) -> list[float]:
        found: list[float] = mixture.combine(np.array([a for a, _ in some]), np.array([b for _, b in some])).tolist()
        return found

    before = dict(zip(pairs, scores(pairs), strict=True))
    random.shuffle(pairs)
    assert dict(zip(pairs, scores(pairs), strict=True)) == before  # to the bit


@pytest.mark.parametrize(
    ("scores", "said"), [([1.0, math.nan], "1 of 2 retrieval scores are not a number"), ([1.0], r"expected \(n,\)")]
)
def test_what_cannot_be_mixed(scores: list[float], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Mixture(weight=0.5).combine(np.array(scores), np.zeros(2))


@pytest.mark.parametrize(
    "values", [{"weight": 1.1}, {"weight": -0.1}, {"weight": math.nan}, {"temperature": 0.0}, {"temperature": math.inf}]
)
def test_values_out_of_range(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        Mixture(**values)


# ---------------------------------------------------------------- files


def test_a_saved_mixture_comes_back(tmp_path: Path) -> None:
    saved = Mixture(weight=0.7, temperature=1 / 3, notes={"queries": 12})
    saved.save(tmp_path)
    assert Mixture.load(tmp_path) == saved
    assert [path.name for path in tmp_path.iterdir()] == [MIXTURE_FILE]
    assert Mixture.load(tmp_path / "nowhere") == Mixture()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"format": 1, "weight": 0.5', "damaged"),
        (b"\xff\xfe", "damaged"),
        (b"[]", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b'{"format": 1, "weight": 0.5}', "damaged"),
        (b'{"weight": 0.5, "temperature": 1}', "damaged"),
        (b'{"format": 1, "weight": null, "temperature": 1}', "damaged"),
        (b'{"format": 1, "weight": "0.5", "temperature": 1}', "damaged"),
        (b'{"format": 1, "weight": true, "temperature": 1}', "damaged"),
        (b'{"format": 1, "weight": NaN, "temperature": 1}', "damaged"),
        (b'{"format": 1, "weight": 1.5, "temperature": 1}', "damaged"),
        (b'{"format": 1, "weight": 0.5, "temperature": 0}', "damaged"),
        (b'{"format": 1, "weight": 0.5, "temperature": ' + b"9" * 400 + b"}", "damaged"),
        (b'{"format": 1, "weight": 0.5, "temperature": 1, "notes": "x"}', "damaged"),
        (b'{"format": 2, "weight": 0.5, "temperature": 1}', "format 2; this version reads 1"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / MIXTURE_FILE).write_bytes(content)
    with pytest.raises(ModelError, match=said) as caught:
        Mixture.load(tmp_path)
    assert MIXTURE_FILE in str(caught.value)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_is_there_and_no_file_is_not_passed_over(tmp_path: Path, make: Any) -> None:
    make(tmp_path / MIXTURE_FILE)
    with pytest.raises(ModelError, match=f"{MIXTURE_FILE} cannot be read"):
        Mixture.load(tmp_path)


# ---------------------------------------------------------------- the fit


def lists(queries: int, trust: float, *, size: float = 3.0, candidates: int = 30, seed: int = 0) -> list[JudgedList]:
    """Queries whose relevance is trust * z + (1 - trust) * logit / size, and both scores: the mixture is planted."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(queries):
        first, logits = rng.normal(0.4, 0.1, candidates), rng.normal(-2, size, candidates)
        truth = trust * standardised(first) + (1 - trust) * logits / size
        best = np.argsort(-truth)[:5]
        ids = [f"d{n}" for n in range(candidates)]
        found.append(JudgedList.of(ids, first, logits, {ids[n]: 5 - place for place, n in enumerate(best)}))
    return found


def ndcg(some: Sequence[JudgedList], mixture: Mixture) -> float:
    """The mean, by the evaluation's own metric; every relevant document is a candidate here."""
    qrels, run = {}, {}
    for number, one in enumerate(some):
        scores = mixture.combine(one.retrieval_scores, one.logits).tolist()
        run[f"q{number}"] = dict(zip(one.doc_ids, scores, strict=True))
        grades = zip(one.doc_ids, one.gains, strict=True)
        qrels[f"q{number}"] = {doc_id: int(grade) for doc_id, grade in grades if grade}
    return evaluate(qrels, run, "ndcg@10").means()["ndcg@10"]


@pytest.mark.parametrize("trust", [0.0, 0.3, 0.7, 1.0])
def test_it_finds_what_the_judgements_were_made_with(trust: float) -> None:
    some = lists(100, trust)
    fitted = fit_mixture({"all": some})
    assert fitted.weight == pytest.approx(trust, abs=0.051)
    assert trust in (0, 1) or fitted.temperature == pytest.approx(3, rel=0.1)
    figures: Any = fitted.notes["fitted_on"]
    assert figures["all"]["queries"] == 100
    assert figures["all"]["mixed"] == pytest.approx(ndcg(some, fitted), abs=1e-9)
    assert figures["all"]["first_stage"] == pytest.approx(ndcg(some, Mixture(weight=1.0)), abs=1e-9)
    assert figures["all"]["cross_encoder"] == pytest.approx(ndcg(some, Mixture()), abs=1e-9)
    assert json.loads(json.dumps(fitted.notes)) == fitted.notes
    assert fitted == fit_mixture({"all": some})


def test_a_cross_encoder_alone_is_the_mixture_without_a_file() -> None:
    fitted = fit_mixture({"all": lists(30, 0.0)})
    assert (fitted.weight, fitted.temperature) == (0.0, 1.0)
    assert fit_mixture({"all": lists(30, 0.0)}, least=0.1).weight == 0.1


def test_the_floor_is_kept() -> None:
    """One domain would be best served by the cross-encoder, which costs the other one something."""
    groups = {"one": lists(60, 0.05), "two": lists(60, 0.95, seed=1)}

    def lost(mixture: Mixture) -> float:
        figures: Any = mixture.notes["fitted_on"]
        return max(figures[name]["first_stage"] - figures[name]["mixed"] for name in groups)

    free = fit_mixture(groups)
    bound = fit_mixture(groups, floor=0.02)
    assert lost(free) > 0.1
    assert lost(bound) <= 0.02 and free.weight < bound.weight < 1
    assert bound.notes["floor"] == 0.02


def test_where_every_mixture_loses_the_first_stage_stays() -> None:
    upside_down = [
        replace(one, logits=-10 * standardised(one.retrieval_scores)) for one in lists(20, 1.0)
    ]  # ten times, so that even the largest weight below 1 does harm
    fitted = fit_mixture({"all": upside_down}, weights=[0, 0.3])
    assert (fitted.weight, fitted.notes["floor"]) == (1.0, None)
    assert fit_mixture({"all": upside_down}, floor=0.0, weights=[0, 0.3]).weight == 1.0


def test_equal_gains_take_the_largest_weight() -> None:
    helped = JudgedList.of(["a", "b"], [0.6, 0.4], [0.0, 8.0], {"b": 1})  # b is first up to some weight
    tried = [0.0, 0.1, 0.2, 0.9]
    assert fit_mixture({"all": [helped]}, weights=tried).weight == 0.2
    same = JudgedList.of(["a", "b"], [0.6, 0.4], [5.0, -5.0], {"a": 1})
    assert fit_mixture({"all": [same]}).weight == 1.0


def test_documents_that_were_not_found_count_in_the_ideal_and_ties_go_by_id() -> None:
    # equal scores: "b" before "a"; b has grade 1 of 1 + 3 / log2(3) ... best order of a third document: 3, 1
    one = JudgedList.of(["a", "b"], [0.5, 0.5], [1.0, 1.0], {"b": 1, "missing": 3, "never": -1})
    figures: Any = fit_mixture({"all": [one]}).notes["fitted_on"]
    assert figures["all"]["first_stage"] == pytest.approx(1 / (3 + 1 / math.log2(3)))
    assert figures["all"]["cross_encoder"] == figures["all"]["first_stage"]


def test_queries_with_nothing_to_score_are_counted() -> None:
    nothing = JudgedList.of([], [], [], {"x": 1})
    unjudged = JudgedList.of(["a"], [1.0], [2.0], {"a": 0})
    figures: Any = fit_mixture({"all": [nothing, unjudged]}).notes["fitted_on"]
    assert figures["all"] == {"queries": 2, "first_stage": 0.0, "cross_encoder": 0.0, "mixed": 0.0}


def test_domains_count_alike_however_many_queries_they_have() -> None:
    groups = {"large": lists(90, 1.0), "small": lists(10, 0.0, seed=1)}
    assert fit_mixture(groups).weight == fit_mixture({**groups, "large": lists(20, 1.0)}).weight < 0.9
    assert fit_mixture({"pooled": [*groups["large"], *groups["small"]]}).weight > 0.9


def test_a_fit_of_a_thousand_queries_takes_seconds() -> None:
    groups = {f"domain {n}": lists(200, 0.5, candidates=100, seed=n) for n in range(5)}
    start = time.perf_counter()
    fit_mixture(groups, floor=0.01)
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize(
    ("groups", "options", "error", "said"),
    [
        ({}, {}, DataError, "needs judged queries; given {}"),
        ({"a": []}, {}, DataError, "given {'a': 0}"),
        ({"a": lists(1, 0.5)}, {"floor": -0.1}, ConfigError, "floor is -0.1"),
        ({"a": lists(1, 0.5)}, {"floor": math.nan}, ConfigError, "floor is nan"),
        ({"a": lists(1, 0.5)}, {"least": 2.0}, ConfigError, "expected 0 to 1"),
        ({"a": lists(1, 0.5)}, {"least": -1.0, "weights": [-0.5]}, ConfigError, "expected 0 to 1"),
        ({"a": lists(1, 0.5)}, {"weights": [3.0]}, ConfigError, "expected 0 to 1"),
    ],
)
def test_what_cannot_be_fitted(groups: Any, options: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        fit_mixture(groups, **options)


@pytest.mark.parametrize(
    ("scores", "logits", "said"),
    [([1.0], [1.0, 2.0], "2 candidates with arrays"), ([1.0, 2.0], [1.0, math.inf], "1 of 2 logits are not finite")],
)
def test_lists_that_are_none(scores: list[float], logits: list[float], said: str) -> None:
    with pytest.raises(DataError, match=said):
        JudgedList.of(["a", "b"], scores, logits, {})


# ---------------------------------------------------------------- in use

DOCUMENTS = {f"d{n}": f"{'ferry ' * (n % 4)}copper {'heat ' * (n % 3)}number {n}" for n in range(12)}
QUERIES = {"q1": "copper and heat", "q2": "when does the ferry leave"}
QRELS = {"q1": {"d2": 2, "d5": 1}, "q2": {"d3": 1}}


@pytest.fixture(scope="module")
def index(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    corpus, _ = write_corpus(folder, [{"_id": d, "text": text} for d, text in DOCUMENTS.items()], np.zeros((1, 1)))
    build_index(corpus, folder / "index", model=tiny("mean"))
    return folder / "index"


@pytest.fixture
def model(tiny: Any, tmp_path: Path) -> Path:
    """A cross-encoder's folder to put a mixture in."""
    shutil.copytree(tiny("cross1"), tmp_path / "model")
    return tmp_path / "model"


def test_hits_are_ordered_by_the_mixture_and_say_both_scores(index: Path, model: Path) -> None:
    plain = Retriever.open(index, reranker=model)
    mixture = Mixture(weight=0.5, temperature=0.002)
    mixture.save(model)
    retriever = Retriever.open(index, reranker=model)
    for query in QUERIES.values():
        first = retriever.search(query, 8, rerank=False)
        assert first == plain.search(query, 8, rerank=False)
        logits = {hit.doc_id: hit for hit in plain.search(query, 8, rerank_depth=8)}
        expected = dict(
            zip(
                [hit.doc_id for hit in first],
                mixture.combine(
                    np.array([hit.retrieval_score for hit in first]),
                    np.array([logits[hit.doc_id].score for hit in first]),
                ).tolist(),
                strict=True,
            )
        )
        hits = retriever.search(query, 3, rerank_depth=8)
        assert {hit.doc_id: hit.score for hit in hits} == {hit.doc_id: expected[hit.doc_id] for hit in hits}
        order = sorted(expected, key=lambda doc_id: (expected[doc_id], doc_id), reverse=True)
        assert [(hit.rank, hit.doc_id) for hit in hits] == list(enumerate(order[:3], 1))
        assert order != list(logits) and order != [hit.doc_id for hit in first]
        for hit in hits:
            known = logits[hit.doc_id]
            for name in ("retrieval_score", "rerank_score", "rerank_probability"):
                assert getattr(hit, name) == getattr(known, name)
            assert type(hit.score) is float
        assert retriever.rerank(query, first[::-1]) == retriever.search(query, 8, rerank_depth=8)
        assert retriever.rerank(query, retriever.rerank(query, first)) == retriever.rerank(query, first)
        alone = retriever.rerank(query, first[:1])[0]
        assert alone.score == pytest.approx(0.5 / 0.002 * logits[alone.doc_id].score)
        assert retriever.rerank(query, []) == []


def test_a_query_alone_is_answered_as_in_a_batch_and_the_depth_is_at_least_k(index: Path, model: Path) -> None:
    Mixture(weight=0.5, temperature=0.002).save(model)
    retriever = Retriever.open(index, reranker=model)
    queries = [*QUERIES.values(), "", "number 7"]
    assert retriever.search_many(queries, 4) == [retriever.search(query, 4) for query in queries]
    assert retriever.search(queries[0], 4, rerank_depth=1) == retriever.search(queries[0], 4, rerank_depth=4)


def test_a_file_that_says_nothing_changes_nothing(index: Path, model: Path) -> None:
    before = Retriever.open(index, reranker=model).search_many(list(QUERIES.values()), 5)
    Mixture().save(model)
    assert Retriever.open(index, reranker=model).search_many(list(QUERIES.values()), 5) == before


def test_a_run_and_a_retriever_agree(index: Path, model: Path) -> None:
    Mixture(weight=0.5, temperature=0.002).save(model)
    retriever = Retriever.open(index, reranker=model)
    found = dict(zip(QUERIES, retriever.search_many(list(QUERIES.values()), 12, rerank=False), strict=True))
    run = {query_id: {hit.doc_id: hit.score for hit in hits} for query_id, hits in found.items()}
    again = rerank_run(run, QUERIES, passages_of(DOCUMENTS, index), CrossEncoder.load(model, settings=CPU), depth=6)
    for query_id, hits in found.items():
        head = retriever.rerank(QUERIES[query_id], hits[:6])
        assert list(again[query_id].items())[:6] == [(hit.doc_id, hit.score) for hit in head]
        assert list(again[query_id])[6:] == [hit.doc_id for hit in hits[6:]]


class Words:
    """Counts the words that both texts hold, and is mixed with the first stage."""

    mixture = Mixture(weight=0.5)

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return np.array([len(set(q.split()) & set(p.split())) for q, p in pairs], np.float32)


def test_a_run_of_any_system_by_hand() -> None:
    """Scores as large as a run may hold; the best passage's logit counts."""
    run = {"q": {"a": math.inf, "b": 1e308, "c": -1e308, "d": -math.inf}, "none": {}}
    texts = {"a": ["x"], "b": ["x", "red blue", "red"], "c": ["red"], "d": ["red green blue"]}
    found = rerank_run(run, {"q": "red green blue", "none": "x"}, texts, Words(), depth=3)
    # z of the first three: a and b at 1e308, c at -1e308; mean 1/3, deviation sqrt(8/9): .7071, .7071, -1.4142
    half = math.sqrt(0.5) / 2
    assert found["q"] == {
        "b": pytest.approx(half + 1),
        "a": pytest.approx(half),
        "c": pytest.approx(0.5 - 2 * half),
        "d": pytest.approx(-0.5 - 2 * half),  # made up, below the last one
    }
    assert list(found["q"]) == ["b", "a", "c", "d"] and found["none"] == {}


def test_an_evaluation_shows_both_stages(index: Path, model: Path, tmp_path: Path) -> None:
    Mixture(weight=1.0).save(model)
    bench = tmp_path / "bench"
    (bench / "qrels").mkdir(parents=True)
    for name, some in (("corpus", DOCUMENTS), ("queries", QUERIES)):
        (bench / f"{name}.jsonl").write_text("".join(json.dumps({"_id": i, "text": t}) + "\n" for i, t in some.items()))
    rows = [f"{q}\t{d}\t{grade}" for q, grades in QRELS.items() for d, grade in grades.items()]
    (bench / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    benchmark = Benchmark.load(bench, "test")
    retriever = Retriever.open(index, reranker=model)
    found = evaluate_retriever(retriever, benchmark, "ndcg@10")
    first, second = found.systems
    assert second.name == "reranked" and second.scores.means() == first.scores.means()
    assert {q: list(hits) for q, hits in first.run.items()} == {q: list(hits) for q, hits in second.run.items()}
    assert found.facts["reranker"].endswith(", mixed: 1 first stage")
    # and a mixture in between gives what the retriever's own hits score
    Mixture(weight=0.4, temperature=0.002).save(model)
    retriever = Retriever.open(index, reranker=model)
    between = evaluate_retriever(retriever, benchmark, "ndcg@10").systems[1]
    run = {q: {hit.doc_id: hit.score for hit in retriever.search(text, 10)} for q, text in QUERIES.items()}
    assert between.scores.means() == evaluate(QRELS, run, "ndcg@10").means()
    assert list(between.run["q1"]) != list(first.run["q1"])


def test_a_mixture_is_part_of_the_model(model: Path) -> None:
    plain = CrossEncoder.load(model, settings=CPU)
    assert plain.mixture == Mixture() and mixed(plain) == ""
    before = fingerprint(model)
    Mixture(weight=0.7, temperature=2.0).save(model)
    loaded = CrossEncoder.load(model, settings=CPU)
    assert loaded.mixture == Mixture(weight=0.7, temperature=2.0) and mixed(loaded) == "mixed: 0.7 first stage"
    assert loaded.identity["sha256"] == fingerprint(model) != before
    pairs = [("heat", "copper"), ("heat", "ferry")]
    np.testing.assert_array_equal(loaded.score(pairs), plain.score(pairs))
    (model / MIXTURE_FILE).write_text("{}")
    with pytest.raises(ModelError, match="damaged"):
        CrossEncoder.load(model, settings=CPU)


class Odd(Words):
    """A mixture of one's own that gives something else than a number for each."""

    def __init__(self, given: Any) -> None:
        self.mixture = self  # type: ignore[assignment]  # anything with combine will do
        self._given = given

    def combine(self, retrieval_scores: np.ndarray, logits: np.ndarray) -> np.ndarray:
        return np.array(self._given)


@pytest.mark.parametrize("given", [[1.0], [1.0, math.nan]])
def test_a_mixture_of_ones_own_is_not_trusted_blindly(given: list[float]) -> None:
    with pytest.raises(ModelError, match="expected 2 finite numbers"):
        combined(Odd(given), [0.1, 0.2], np.zeros(2))
    np.testing.assert_array_equal(combined(Odd([3, 4]), [0.1, 0.2], np.zeros(2)), [3.0, 4.0])
    assert mixed(Odd([1])) == ""


def test_a_cautious_fit_takes_more_first_stage_where_the_best_is_hardly_better() -> None:
    rng = np.random.default_rng(5)
    doc_ids = [f"d{number:02}" for number in range(30)]

    def judged(help_of_second: float) -> JudgedList:
        good = int(rng.integers(30))
        first, second = rng.normal(size=30), rng.normal(size=30)
        first[good] += 1.5
        second[good] += help_of_second
        return JudgedList.of(doc_ids, first, second, {doc_ids[good]: 1})

    slight = {"slight": [judged(0.6) for _ in range(60)]}
    assert 1 > fit_mixture(slight, cautious=True).weight > fit_mixture(slight).weight
    strong = {"strong": [judged(6.0) for _ in range(400)]}
    found: Any = fit_mixture(strong, cautious=True).notes["fitted_on"]
    assert found["strong"]["mixed"] > 0.99  # where it is surely better, caution costs nothing
    useless = {"useless": [judged(-1.0) for _ in range(100)]}
    assert fit_mixture(useless, cautious=True).weight == 1

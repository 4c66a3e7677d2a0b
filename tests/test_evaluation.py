"""Evaluations: two stages of a retriever side by side, pools, finished runs; and the commands that print them."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from retrieval import Hit, Retriever, build_index
from retrieval.cli import main
from retrieval.errors import ConfigError, DataError
from retrieval.eval.benchmark import Benchmark, Card
from retrieval.eval.evaluation import evaluate_runs
from retrieval.eval.profiles import Profile
from retrieval.eval.stages import evaluate_retriever
from retrieval.runs import read_run

LOG3 = 1 / math.log2(3)


@dataclass
class Fake:
    """Finds the documents listed for a query, in that order; re-orders them by name, ascending."""

    lists: Mapping[str, Sequence[str]]
    reranker: object | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)
    reranked: list[int] = field(default_factory=list)
    pools: list[str] = field(default_factory=list)

    @property
    def documents(self) -> int:
        return len(self._all())

    def _all(self) -> set[str]:
        return {doc_id for found in self.lists.values() for doc_id in found}

    def holds(self, doc_ids: Collection[str]) -> set[str]:
        return self._all() & set(doc_ids)

    def facts(self) -> dict[str, str]:
        return {"index": "a fake"}

    def search(self, query: str, k: int = 10, *, where: Any = None, rerank: bool | None = None) -> list[Hit]:
        assert rerank is (None if self.reranker is None else False)
        self.asked.append((query, k))
        self.pools.append(str(where))
        found = [d for d in self.lists[query] if where is None or f'"{d}"' in str(where)]
        return [Hit(doc_id=d, rank=n, score=1 / n, retrieval_score=1 / n, text=d) for n, d in enumerate(found[:k], 1)]

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        self.reranked.append(len(hits))
        order = sorted(hits, key=lambda hit: hit.doc_id)
        return [replace(hit, rank=n, score=-float(n)) for n, hit in enumerate(order, 1)]


def no_corpus() -> Iterator[Any]:
    return iter(())


def benchmark(qrels: Mapping[str, Mapping[str, int]], **card: Any) -> Benchmark:
    queries = {query_id: f"text of {query_id}" for query_id in qrels}
    return Benchmark(card=Card(name="b", split="test", **card), queries=queries, qrels=qrels, corpus=no_corpus)


def fake(lists: Mapping[str, str], **options: Any) -> Fake:
    return Fake({f"text of {query_id}": found.split() for query_id, found in lists.items()}, **options)


# ---------------------------------------------------------------- stages


def test_both_stages_are_scored_and_compared_query_by_query() -> None:
    retriever = fake({"p": "c b a", "q": "a b c", "r": "z y"}, reranker=object())
    done: list[tuple[int, int]] = []
    found = evaluate_retriever(
        retriever,
        benchmark({"p": {"a": 1}, "q": {"c": 1, "zz": 1}, "r": {"z": 1}}, direction="text -> letters"),
        "mrr@10,recall@2",
        rerank_depth=2,
        progress=lambda *now: done.append(now),
    )
    first, second = found.systems
    assert (first.name, second.name) == ("first stage", "reranked")
    assert first.scores.by_query("mrr@10") == {"p": 1 / 3, "q": 1 / 3, "r": 1.0}
    # only the first two are re-ordered: p: b c | a, q: a b | c, r: y z
    assert second.scores.by_query("mrr@10") == {"p": 1 / 3, "q": 1 / 3, "r": 1 / 2}
    assert list(second.run["p"]) == ["b", "c", "a"]
    assert second.run["p"]["a"] < second.run["p"]["c"]
    assert retriever.reranked == [1, 2, 2, 2]  # the first loads the model
    # an ideal order of the first two finds r at once, and no more
    assert found.ceiling == {"mrr@10": (1 / 3 + 1 / 3 + 1) / 3, "recall@2": 1 / 3}
    (mrr,) = found.comparisons  # recall@2 is the same whatever the order of the first two
    assert (mrr.metric, mrr.baseline, mrr.system, mrr.wins, mrr.ties, mrr.losses) == (
        "mrr@10",
        "first stage",
        "reranked",
        0,
        2,
        1,
    )
    assert first.recall == {1: 1 / 3, 2: 1 / 3}  # nothing is deeper than three hits
    assert [len(seconds) for seconds in second.seconds.values()] == [3, 3]
    assert list(first.seconds) == ["retrieve"]
    assert all(spent >= 0 for seconds in second.seconds.values() for spent in seconds)
    assert done == [(1, 3), (2, 3), (3, 3)]
    assert found.facts["index"] == "a fake"
    assert (found.facts["re-ordered hits"], found.facts["hits for each query"]) == ("2", "5")
    assert found.facts["direction"] == "text -> letters"
    assert "1 judged document is not in the corpus and can never be found" in found.notices
    assert found.queries["p"] == "text of p"
    json.dumps(found.to_dict(), allow_nan=False)


def test_one_stage_has_no_comparison_but_a_ceiling() -> None:
    found = evaluate_retriever(fake({"q": "b a"}), benchmark({"q": {"a": 1}}), "ndcg@10")
    assert found.facts["hits that a ceiling re-orders"] == "2"
    assert [system.name for system in found.systems] == ["first stage"]
    assert found.systems[0].scores.means() == {"ndcg@10": pytest.approx(LOG3)}
    assert (found.ceiling, found.comparisons) == ({"ndcg@10": 1.0}, ())


@dataclass
class Least:
    """No more than an evaluation needs: a search."""

    found: Sequence[str]
    asked: int = 0

    def search(self, query: str, k: int = 10) -> list[Hit]:
        self.asked = k
        return [Hit(doc_id=d, rank=n, score=-n, retrieval_score=-n) for n, d in enumerate(self.found[:k], 1)]


def test_a_search_is_all_that_is_needed() -> None:
    found = evaluate_retriever(Least(["b", "a"]), benchmark({"q": {"a": 1, "zz": 1}}), "mrr")
    assert found.systems[0].scores.means() == {"mrr": 0.5}
    assert found.systems[0].scores.counts.missing_documents is None  # it does not say what it holds
    with pytest.raises(ConfigError, match="profile codexglue ranks all documents, whose number is not known; give k"):
        evaluate_retriever(Least("a"), benchmark({"q": {"a": 1}}), profile="codexglue")


def test_as_many_hits_are_asked_for_as_the_metrics_need() -> None:
    judged = benchmark({"q": {"a": 1}})
    for metrics, k, expected in (
        ("ndcg@10", None, 100),
        ("recall@300", None, 300),
        ("ndcg@10", 20, 20),
        ("map,ndcg@10", None, 1000),
        ("map", 50, 50),
    ):
        retriever = Least("a")
        evaluate_retriever(retriever, judged, metrics, k=k)
        assert retriever.asked == expected
    with pytest.raises(ConfigError, match="k is 5, but a metric looks at 10 hits"):
        evaluate_retriever(Least("a"), judged, "ndcg@10,mrr@3", k=5)
    with pytest.raises(ConfigError, match="rerank_depth is 0"):
        evaluate_retriever(Least("a"), judged, "ndcg@10", rerank_depth=0)


def test_what_a_metric_does_not_see_is_said() -> None:
    many = " ".join(f"d{n:04}" for n in range(2000))
    judged = benchmark({"q": {"d0000": 1, "d1500": 1}})
    found = evaluate_retriever(fake({"q": many}), judged, "map,recall@10,recall@500")
    assert "map without a cut-off: the first 1,000 hits of each query count (-k)" in found.notices
    assert "recall@500: of only 2,000 documents, which makes it easy" in found.notices
    assert found.systems[0].scores.mean("map") == 0.5
    deeper = evaluate_retriever(fake({"q": many}), judged, "map", k=2000)
    assert deeper.systems[0].scores.mean("map") == pytest.approx((1 + 2 / 1501) / 2)
    assert deeper.notices == ()
    # of a long list only what counts is kept: all down to the last judged document
    assert len(deeper.systems[0].run["q"]) == 1501


def test_an_index_of_other_documents_is_refused_before_the_first_query() -> None:
    retriever = fake({"q": "a b"})
    with pytest.raises(DataError, match=r"none of the judged documents \(2\) can be found, such as 'x'"):
        evaluate_retriever(retriever, benchmark({"q": {"y": 1, "x": 1}}), "mrr")
    assert retriever.asked == []


def test_the_first_query_is_asked_once_more_before_the_clock_runs() -> None:
    retriever = fake({"p": "a", "q": "a"})
    evaluate_retriever(retriever, benchmark({"p": {"a": 1}, "q": {"a": 1}}), "mrr")
    assert [query for query, _ in retriever.asked] == ["text of p", "text of p", "text of q"]


def test_hits_with_the_query_s_own_id_leave_before_the_cut_and_the_reranker() -> None:
    retriever = fake({"q": "q b a"}, reranker=object())
    judged = benchmark({"q": {"a": 1}})
    found = evaluate_retriever(retriever, judged, "mrr@10", k=10, ignore_identical_ids=True)
    assert [system.scores.mean("mrr@10") for system in found.systems] == [1 / 2, 1.0]
    assert (retriever.asked[-1][1], retriever.reranked[1:]) == (11, [2])
    assert "1 hit left out, with the id of the query" in found.notices
    assert "Hits that have the id of their query are left out." in found.rules
    kept = evaluate_retriever(fake({"q": "q b a"}), judged, "mrr@10")
    assert kept.systems[0].scores.mean("mrr@10") == 1 / 3
    assert any("has the id of the query" in notice for notice in kept.notices)


# ---------------------------------------------------------------- profiles


def test_a_pool_limits_what_a_query_is_ranked_against() -> None:
    lists = {"p": "x q1 p1", "q": "x p1 q1"}
    profile = Profile(name="small", metrics=("mrr",), pool=2, about="pools of two")
    retriever = fake(lists)
    found = evaluate_retriever(retriever, benchmark({"p": {"p1": 1}, "q": {"q1": 1}}), profile=profile)
    assert found.systems[0].scores.by_query("mrr") == {"p": 1 / 2, "q": 1 / 2}  # x is in no pool
    assert found.facts["profile"] == "small: pools of two"
    assert "is_in(doc_id" in retriever.pools[-1]


def test_the_card_s_profile_applies_unless_metrics_are_given() -> None:
    judged = benchmark({"q": {"a": 1}}, profile="codexglue")
    retriever = fake({"q": "b c a"})
    found = evaluate_retriever(retriever, judged)
    assert found.systems[0].scores.means() == {"mrr": 1 / 3}
    assert retriever.asked[-1][1] == 3  # all documents
    assert evaluate_retriever(fake({"q": "a"}), judged, "ndcg@5").systems[0].scores.metrics == ("ndcg@5",)
    with pytest.raises(ConfigError, match="no scoring profile 'coirr'"):
        evaluate_retriever(fake({"q": "a"}), judged, profile="coirr")


# ---------------------------------------------------------------- runs


def test_a_profile_applies_to_runs_too() -> None:
    qrels = {"p": {"p1": 1}, "q": {"q1": 1}}
    runs = {"a": {"p": {"x": 3.0, "q1": 2.0, "p1": 1.0}, "q": {"x": 3.0, "q1": 2.0}}}
    assert evaluate_runs(qrels, runs, "mrr").systems[0].scores.by_query("mrr") == {"p": 1 / 3, "q": 1 / 2}
    profile = Profile(name="small", metrics=("mrr",), pool=2, about="pools of two")
    found = evaluate_runs(qrels, runs, profile=profile)
    assert found.systems[0].scores.by_query("mrr") == {"p": 1 / 2, "q": 1.0}  # x is in no pool
    assert (
        evaluate_runs({"p": {"a": 1}}, {"a": {"p": {"p": 2.0, "a": 1.0}}}, profile="coir")
        .systems[0]
        .scores.mean("ndcg@10")
        == 1.0
    )  # as BEIR does, without the query itself


def test_a_level_in_a_name_stays_under_another_level_for_all() -> None:
    qrels, runs = {"q": {"a": 1, "b": 2}}, {"one": {"q": {"a": 2.0, "b": 1.0}}}
    found = evaluate_runs(qrels, runs, "mrr@10-l1,mrr@10,ndcg@10", relevance_level=2).systems[0]
    assert found.scores.means() == {
        "mrr@10": 1.0,
        "mrr@10-l2": 0.5,
        "ndcg@10": pytest.approx((1 + 2 * LOG3) / (2 + LOG3)),
    }
    assert found.recall == {1: 0.0, 2: 1.0}  # of what is relevant at that level


def test_a_metric_that_looks_deeper_than_a_run_is_told() -> None:
    found = evaluate_runs({"q": {"a": 1}}, {"one": {"q": {"a": 1.0, "b": 0.5}}}, "ndcg@2,recall@10")
    assert found.notices == ("one: recall@10 sees no more than 2 hits, the most of any query",)


def test_runs_are_compared_with_the_first() -> None:
    qrels = {"p": {"a": 1}, "q": {"b": 1}}
    runs = {"one": {"p": {"b": 2.0, "a": 1.0}}, "two": {"p": {"a": 1.0}, "q": {"b": 1.0}}, "three": {"q": {"b": 1.0}}}
    found = evaluate_runs(qrels, runs, "mrr")
    assert [(c.baseline, c.system, c.difference) for c in found.comparisons] == [
        ("one", "two", 0.75),
        ("one", "three", 0.25),
    ]
    assert "one: 1 judged query has no hits, counted as 0: q" in found.notices
    assert len(evaluate_runs(qrels, runs, "mrr", all_pairs=True).comparisons) == 3
    with pytest.raises(ConfigError, match="no run"):
        evaluate_runs(qrels, {}, "mrr")


# ---------------------------------------------------------------- the commands, on a real index


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny: Any) -> Path:
    folder = tmp_path_factory.mktemp("evaluation")
    docs = {
        f"d{n}": f"number {n} of the {word} kind"
        for n, word in enumerate(["amber", "birch", "cedar", "delta", "ember"])
    }
    beir = folder / "bench"
    (beir / "qrels").mkdir(parents=True)
    (beir / "corpus.jsonl").write_text("".join(json.dumps({"_id": i, "text": t}) + "\n" for i, t in docs.items()))
    queries = {f"q{n}": text for n, text in enumerate(docs.values())} | {"unjudged": "nothing"}
    (beir / "queries.jsonl").write_text("".join(json.dumps({"_id": i, "text": t}) + "\n" for i, t in queries.items()))
    rows = "".join(f"q{n}\td{n}\t1\n" for n in range(5))
    (beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}q0\tlost\t1\n")
    (beir / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t1\n")
    build_index([beir], folder / "index", model=tiny("mean"))
    return folder


def run(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_an_index_is_evaluated_on_a_benchmark(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "my.run"
    ran = run(
        *("evaluate", "--index", folder / "index", "--benchmark", folder / "bench"),
        *("-m", "mrr@10", "-m", "recall@10", "--json", "--output-run", out),
    )
    body = json.loads(ran.stdout)
    (system,) = body["systems"]
    # a query that is a document's text finds it first; one of q0's two documents is not there
    assert system["means"] == {"mrr@10": 1.0, "recall@10": 0.9}
    assert system["counts"]["missing_documents"] == 1
    assert body["facts"]["split"] == "test"
    assert {q: next(iter(hits)) for q, hits in read_run(out).items()} == {f"q{n}": f"d{n}" for n in range(5)}
    assert "5 queries, 25 hits, written to" in ran.stderr
    # the run that was written scores the same, with the judgements alone
    again = run("evaluate", folder / "bench/qrels/test.tsv", out, "-m", "mrr@10,recall@10")
    assert again.stdout == "mrr@10\t1.0000\nrecall@10\t0.9000\n"


def test_queries_and_judgements_may_be_files(folder: Path) -> None:
    files = (folder / "bench/qrels/dev.tsv", "--queries", folder / "bench/queries.jsonl")
    body = json.loads(run("evaluate", *files, "--index", folder / "index", "-m", "recall@10", "--json").stdout)
    assert body["systems"][0]["means"] == {"recall@10": 1.0}


def test_a_reranker_is_shown_beside_the_first_stage(folder: Path, tmp_path: Path, tiny: Any) -> None:
    page, out = tmp_path / "report.html", tmp_path / "second.run"
    ran = run(
        *("evaluate", "--index", folder / "index", "--benchmark", folder / "bench", "-m", "mrr@10"),
        *("--reranker", tiny("cross1"), "--report", page, "--output-run", out),
    )
    assert "first stage" in ran.stdout
    assert "reranked" in ran.stdout
    assert re.search(r"note: 1 judged document is not in the corpus", ran.stderr)
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    expected = Retriever.open(folder / "index", reranker=tiny("cross1")).search("number 1 of the birch kind", 100)
    assert read_run(out)["q1"] == {hit.doc_id: hit.score for hit in expected}


def test_a_split_that_is_not_there_lists_those_that_are(folder: Path) -> None:
    ran = run("evaluate", "--index", folder / "index", "--benchmark", folder / "bench", "--split", "train", code=1)
    assert "dev, test" in ran.stderr


def test_runs_are_compared_and_fused(folder: Path, tmp_path: Path) -> None:
    one, two, fused = tmp_path / "one.run", tmp_path / "two.run", tmp_path / "fused.run"
    one.write_text("q1 Q0 d2 1 2 t\nq1 Q0 d1 2 1 t\n")
    two.write_text("q1 Q0 d1 1 9 t\nq1 Q0 d3 2 8 t\n")
    qrels = folder / "bench/qrels/dev.tsv"
    ran = run("compare", qrels, one, two, "-m", "mrr", "--json")
    (row,) = json.loads(ran.stdout)["comparisons"]
    assert (row["baseline"], row["system"], row["difference"], row["losses"]) == ("one.run", "two.run", -1.0, 1)
    run("fuse", one, two, "--output", fused, "--weights", "2,1")
    assert read_run(fused)["q1"] == {
        "d2": pytest.approx(2 / 61),
        "d1": pytest.approx(2 / 62 + 1 / 61),
        "d3": pytest.approx(1 / 62),
    }
    assert "one.run" in run("compare", qrels, one, two, "-m", "mrr").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "qrels"], "give QRELS and RUN"),
        (["evaluate", "qrels", "run", "--reranker", "x"], "--reranker does nothing with QRELS and RUN"),
        (["evaluate", "qrels", "run", "--rerank-depth", "5"], "--rerank-depth does nothing with QRELS and RUN"),
        (["evaluate", "--index", "i"], "--index and --benchmark; or QRELS"),
        (["evaluate", "qrels", "run", "--index", "i"], "not QRELS and RUN and --index"),
        (["evaluate", "qrels", "--index", "i", "--benchmark", "b"], "not QRELS and --index and --benchmark"),
        (["evaluate", "qrels", "--index", "i", "--queries", "q", "--split", "s"], "--split does nothing with QRELS"),
        (["evaluate", "qrels", "run", "--by-query", "--json"], "--by-query prints lines"),
        (["make-benchmark", "src", "out", "--split", "dev"], "--split does nothing without --layout"),
        (["make-benchmark", "src", "out", "--layout", "beir", "--name", "x"], "--name does nothing with --layout"),
        (["fuse", "a", "b", "--output", "c", "--normalization", "sum"], "does nothing with --method rrf"),
        (["fuse", "a", "b", "--output", "c", "--method", "wsum", "--rrf-k", "1"], "does nothing with --method wsum"),
        (["fuse", "a", "--output", "c"], "at least two runs"),
        (["compare", "qrels", "run"], "at least two runs"),
        (["compare", "qrels", "a/run", "b/run", "a/run"], "given twice"),
        (["fuse", "a", "b", "--output", "c", "--weights", "1;2"], "expected numbers"),
    ],
)
def test_wrong_use_is_told_before_anything_is_read(arguments: list[str], words: str) -> None:
    assert words in run(*arguments, code=2).stderr


def test_no_command_writes_over_what_it_reads_or_where_it_cannot(folder: Path, tmp_path: Path) -> None:
    qrels, one, two = folder / "bench/qrels/dev.tsv", tmp_path / "one.run", tmp_path / "two.run"
    for path in (one, two):
        path.write_text("q1 Q0 d2 1 2 t\n")
    index = ("--index", folder / "index", "--benchmark", folder / "bench")
    for arguments, words in (
        (["evaluate", qrels, one, "--report", one], "is read or written"),
        (["evaluate", qrels, one, "--report", qrels], "is read or written"),
        (["compare", qrels, one, two, "--report", two], "is read or written"),
        (["fuse", one, two, "--output", one], "is read or written"),
        (
            ["evaluate", *index, "--report", tmp_path / "r", "--output-run", tmp_path / "r"],
            "is read or written",
        ),
        (["evaluate", *index, "--report", tmp_path / "nowhere/r.html"], "there is no folder"),
        (["evaluate", *index, "--output-run", tmp_path / "a.zst"], "plain or as .gz"),
        (["evaluate", *index, "--output-run", tmp_path / "a", "--run-tag", "a b"], "one word"),
    ):
        ran = run(*arguments, code=1)
        assert words in ran.stderr, arguments
        assert ran.stdout == ""
    assert one.read_text() == "q1 Q0 d2 1 2 t\n"


def test_runs_may_come_and_go_by_standard_streams(folder: Path, tmp_path: Path) -> None:
    qrels, one = folder / "bench/qrels/dev.tsv", tmp_path / "one.run"
    one.write_text("q1 Q0 d2 1 2 t\n")
    command = [sys.executable, "-c", "from retrieval.cli import main; main()"]
    fuse = subprocess.run([*command, "fuse", one, one, "--output", "-"], capture_output=True, check=True)
    assert fuse.stdout.startswith(b"q1 Q0 d2 1 ")
    ran = subprocess.run(
        [*command, "evaluate", qrels, "-", "-m", "mrr"], input=fuse.stdout, capture_output=True, check=True
    )
    assert ran.stdout == b"mrr\t1.0000\n"


def test_an_unreadable_metric_or_file_is_one_line(folder: Path, tmp_path: Path) -> None:
    qrels = folder / "bench/qrels/dev.tsv"
    (tmp_path / "a.run").write_text("other Q0 d1 1 2 t\n")
    assert "no metric 'ndgc'" in run("evaluate", qrels, tmp_path / "a.run", "-m", "ndgc", code=1).stderr
    assert "no query in common" in run("evaluate", qrels, tmp_path / "a.run", code=1).stderr
    assert "nowhere.run" in run("evaluate", qrels, tmp_path / "nowhere.run", code=1).stderr


def test_values_by_query_are_printed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("q1 Q0 d1 1 2 t\nq1 Q0 d2 2 1 t\n")
    ran = run("evaluate", folder / "bench/qrels/dev.tsv", tmp_path / "a.run", "-m", "RR@10", "--by-query")
    assert ran.stdout == "mrr@10\t0.5000\nq1\tmrr@10\t0.5000\n"


def test_a_finished_run_compiles_no_more_than_its_metrics(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("q1 Q0 d1 1 2 t\n")
    command = [sys.executable, "-c", "from retrieval.cli import main; main()"]
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PATH": ""}
    files = (folder / "bench/qrels/dev.tsv", tmp_path / "a.run")
    ran = subprocess.run([*command, "evaluate", *files, "-m", "mrr"], env=environment, capture_output=True, check=True)
    assert ran.stdout == b"mrr\t0.0000\n" and b"recall" not in ran.stderr
    assert not list((tmp_path / "cache").rglob("recall*"))


def test_a_settings_file_may_list_metrics(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("q1 Q0 d1 1 2 t\nq1 Q0 d2 2 1 t\n")
    (tmp_path / "s.toml").write_text('[evaluate]\nmetric = ["mrr@1", "mrr"]\n')
    files = (folder / "bench/qrels/dev.tsv", tmp_path / "a.run")
    assert run("--config", tmp_path / "s.toml", "evaluate", *files).stdout == "mrr@1\t0.0000\nmrr\t0.5000\n"


def test_a_source_tree_becomes_a_benchmark_and_another_layout_a_beir_folder(folder: Path, tmp_path: Path) -> None:
    body = "\n".join(f"    total += {n} * value" for n in range(4))
    for n in range(12):
        documented = f'def f{n}(value):\n    """Add {n} multiples of a value to zero, step {n}."""\n'
        code = f"{documented}    total = {n}\n{body}\n    return total\n"
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / f"m{n}.py").write_text(code)
    ran = run("make-benchmark", tmp_path / "src", tmp_path / "mined", "--json")
    assert json.loads(ran.stdout)["documents"] == 12
    assert Benchmark.load(tmp_path / "mined").card.name == "src"
    run("make-benchmark", folder / "bench", tmp_path / "copy", "--layout", "auto", "--split", "dev")
    assert Benchmark.load(tmp_path / "copy", "dev").qrels == {"q1": {"d2": 1}}
    ran = run("make-benchmark", folder / "bench", tmp_path / "copy", "--layout", "beir", "--split", "dev", code=1)
    assert "is there already" in ran.stderr
    with pytest.raises(DataError, match="no split"):
        Benchmark.load(tmp_path / "copy", "test")

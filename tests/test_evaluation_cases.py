"""Inputs of public bug reports on runs, judgements and benchmarks, handed as `shared/cases`, against the product.

A test is named after its case; expected values were worked out by hand, with trec_eval's rule for equal scores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from retrieval import Benchmark, DataError, Retriever, evaluate_retriever
from retrieval.cli import main

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason="the handed cases (../shared/cases from the repository root) are not here"
)
METRICS = "mrr@10,ndcg@10,map@10,recall@10"
LOG3, LOG6 = 1 / math.log2(3), 1 / math.log2(6)


def retrieve(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def scores(case: str, metrics: str = METRICS, run: str = "run.txt", *options: str) -> tuple[list[float], str]:
    """Means of a case's run, in the order of the metrics, and what was said on stderr."""
    files = (CASES / case / "qrels.txt", CASES / case / run)
    ran = retrieve("evaluate", *files, "-m", metrics, "--json", *options)
    body = json.loads(ran.stdout)
    assert all(0 <= value <= 1 for value in body["systems"][0]["means"].values())
    return list(body["systems"][0]["means"].values()), ran.stderr + "; ".join(body["notices"] + body["rules"])


def about(*values: float) -> Any:
    return pytest.approx(list(values), abs=1e-6)


@pytest.fixture
def index(tiny: Any, tmp_path: Path) -> Iterator[Any]:
    def build(corpus: Path, *options: object) -> Path:
        retrieve("build-index", corpus, tmp_path / "idx", "--model", tiny("mean"), *options)
        return tmp_path / "idx"

    yield build


def test_jl01_a_byte_order_mark_loses_no_query() -> None:
    assert scores("JL01")[0] == about(1, 1, 1, 1)


def test_jl04_ids_that_are_numbers(index: Any) -> None:
    case = CASES / "JL04"
    files = (case / "qrels.txt", "--queries", case / "queries.jsonl", "--index", index(case / "corpus.jsonl"))
    body = json.loads(retrieve("evaluate", *files, "-m", "mrr@10,ndcg@10", "--json").stdout)
    assert body["systems"][0]["means"] == {"mrr@10": 1.0, "ndcg@10": 1.0}


def test_pq03_integer_ids_of_a_parquet_file(index: Any) -> None:
    case = CASES / "PQ03"
    built = index(case / "int64.parquet", "--id-field", "id", "--text-field", "text")
    ran = retrieve(
        "evaluate", case / "qrels.txt", "--queries", case / "queries.jsonl", "--index", built, "-m", "mrr@10"
    )
    assert "1.0000" in ran.stdout


def test_tr01_any_blanks_between_columns() -> None:
    assert scores("TR01")[0] == about(0.75, (1 + LOG3) / 2, 0.75, 1)


def test_tr02_equal_scores_have_one_order() -> None:
    expected = about((1 / 3 + 1 / 2 + 1) / 3, (1 / 2 + LOG3 + 1) / 3, (1 / 3 + 1 / 2 + 1) / 3, 1)
    assert scores("TR02")[0] == expected
    assert scores("TR02", run="run_shuffled.txt")[0] == expected


def test_tr04_negative_grades_are_not_relevant() -> None:
    first = (LOG3 + 1) / (2 + LOG3)
    assert scores("TR04")[0] == about(0.5, (first + LOG3) / 2, ((1 / 2 + 2 / 3) / 2 + 1 / 2) / 2, 1)


def test_tr05_two_gains_have_two_names() -> None:
    found, said = scores("TR05")
    assert found == about(1, (1 + 3 / 2 + 2 * LOG6) / (3 + 2 * LOG3 + 1 / 2), (1 + 2 / 3 + 3 / 5) / 3, 1)
    assert "ndcg has linear gain" in said
    found, said = scores("TR05", "mrr@10-l2,ndcg_burges@10")
    assert found == about(1 / 3, 0.602649)
    assert "ndcg_burges has exponential gain" in said


def test_tr07_a_judged_query_without_results_counts() -> None:
    found, said = scores("TR07")
    assert found == about(0.5, 0.5, 0.5, 0.5)
    assert "1 judged query has no hits, counted as 0: q2" in said


def test_tr09_a_judged_document_outside_the_corpus(index: Any) -> None:
    expected = about(1, 1 / (1 + LOG3), 0.5, 0.5)
    assert scores("TR09")[0] == expected
    case = CASES / "TR09"
    files = (case / "qrels.txt", "--queries", case / "queries.jsonl", "--index", index(case / "corpus.jsonl"))
    ran = retrieve("evaluate", *files, "-m", METRICS)
    assert "1 judged document is not in the corpus" in ran.stderr
    body = json.loads(retrieve("evaluate", *files, "-m", METRICS, "--json").stdout)
    assert list(body["systems"][0]["means"].values()) == expected


def test_tr10_a_document_twice_keeps_its_best_score() -> None:
    found, said = scores("TR10")
    assert found == about(1, 1 / (1 + LOG3), 0.5, 0.5)
    assert "its best score was kept" in said


def test_tr12_a_query_without_a_relevant_document() -> None:
    found, said = scores("TR12")
    third = (1 + 1 / 2) / (1 + LOG3)
    assert found[:3] == about(0.5, (LOG3 + third) / 3, (1 / 2 + (1 + 2 / 3) / 2) / 3)
    assert "1 judged query has no relevant document" in said


def test_tr14_scores_decide_not_ranks() -> None:
    assert scores("TR14")[0][:2] == about(1, 1)


def test_tr16_a_query_that_is_a_document() -> None:
    found, said = scores("TR16")
    assert found[:2] == about(0.5, LOG3)
    assert "1 hit has the id of the query: kept" in said
    found, said = scores("TR16", METRICS, "run.txt", "--ignore-identical-ids")
    assert found[:2] == about(1, 1)
    assert "Hits that have the id of their query are left out." in said


def test_tr17_conflicting_judgements() -> None:
    case = CASES / "TR17"
    ran = retrieve("evaluate", case / "qrels.txt", case / "run.txt", code=1)
    (message,) = ran.stderr.splitlines()
    assert "lines 1 and 3" in message and "'d1'" in message and "'q1'" in message


def test_tr17_an_exact_repeat_is_taken_once(tmp_path: Path) -> None:
    case = CASES / "TR17"
    lines = [line for line in (case / "qrels.txt").read_text().splitlines() if line.startswith("q2")]
    assert len(lines) == 2
    (tmp_path / "qrels.txt").write_text("\n".join(lines))
    ran = retrieve("evaluate", tmp_path / "qrels.txt", case / "run.txt", "-m", METRICS)
    assert [line.split("\t")[1] for line in ran.stdout.splitlines()] == ["1.0000"] * 4
    assert "1 lines repeat an earlier judgement" in ran.stderr


def test_tr18_cut_offs() -> None:
    found, _ = scores("TR18", "mrr@10,mrr,ndcg@10,map@10,recall@10")
    assert found == about(0.5, (1 / 11 + 1) / 2, 0.5, 10 / 15 / 2, 10 / 15 / 2)


def test_be01_splits_of_a_beir_folder(index: Any) -> None:
    case = CASES / "BE01"
    built = index(case)
    asked = ("evaluate", "--index", built, "--benchmark", case, "-m", "mrr@10", "--json", "--split")
    (message,) = retrieve(*asked, "test", code=1).stderr.splitlines()
    assert "dev, train" in message
    for split in ("train", "dev"):
        (system,) = json.loads(retrieve(*asked, split).stdout)["systems"]
        assert (system["means"], system["counts"]["queries"]) == ({"mrr@10": 1.0}, 1)
    retriever = Retriever.open(built)  # one object, both splits
    for split, query in (("dev", "q2"), ("train", "q1")):
        found = evaluate_retriever(retriever, Benchmark.load(case, split), "mrr@10")
        assert found.systems[0].scores.by_query("mrr@10") == {query: 1.0}
    with pytest.raises(DataError, match="dev, train"):
        Benchmark.load(case)


def test_tb01_annotations_with_line_breaks_in_cells(tmp_path: Path) -> None:
    rows = 'Language,Query,GitHubUrl,Relevance,Notes\nPython,read a file,https://x/a#L1,3,"two\nlines, ""quoted"""\n'
    (tmp_path / "annotationStore.csv").write_text(rows + "Python,read a file,https://x/b#L2,0,\n")
    benchmark = Benchmark.load(tmp_path, "python")
    assert list(benchmark.qrels.values()) == [{"https://x/a#L1": 3, "https://x/b#L2": 0}]

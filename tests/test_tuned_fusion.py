"""Learning the weight of keyword search: what is chosen, by which queries, what is kept, and the command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from wordbag import Lengths, WordBag, sentences

from retrieval import IndexSettings, Retriever, build_index
from retrieval.cli import main
from retrieval.errors import ConfigError, DataError
from retrieval.eval.benchmark import Benchmark
from retrieval.hybrid import Fusion
from retrieval.index.reader import Index
from retrieval.indexing import set_fusion
from retrieval.tuned_fusion import learn_fusion, tune_fusion

DOCUMENTS, QUERIES = 120, 40


def write_benchmark(folder: Path, texts: Sequence[str], queries: Sequence[str]) -> Path:
    """A benchmark whose query q<n> is answered by the document d<n>."""
    (folder / "qrels").mkdir(parents=True)
    for name, mark, some in (("corpus", "d", texts), ("queries", "q", queries)):
        lines = [json.dumps({"_id": f"{mark}{number}", "text": text}) for number, text in enumerate(some)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    rows = [f"q{number}\td{number}\t1" for number in range(len(queries))]
    (folder / "qrels" / "dev.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = sentences(DOCUMENTS)
    return write_benchmark(
        tmp_path_factory.mktemp("b") / "b", texts, [" ".join(text.split()[3:7]) for text in texts[:QUERIES]]
    )


def opened(benchmark: Path, folder: Path, encoder: WordBag, weight: float | None = None) -> Retriever:
    build_index(benchmark / "corpus.jsonl", folder / "index", encoder=encoder)
    if weight is not None:
        set_fusion(folder / "index", Fusion(weight=weight))
    return Retriever.open(folder / "index", encoder=encoder)


def test_a_better_weight_is_learnt_and_stored(benchmark: Path, tmp_path: Path) -> None:
    retriever = opened(benchmark, tmp_path, Lengths(), weight=0.0)
    found = tune_fusion(retriever, Benchmark.load(benchmark, "dev"))
    means = {system.name: system.scores.means()["ndcg@10"] for system in found.evaluation.systems}
    assert means["now"] == means["dense"] < 0.5 < means["tuned"]
    assert means["lexical"] == pytest.approx(1)
    assert found.kept and found.decisive.difference == pytest.approx(means["tuned"] - means["now"])
    assert Index.open(tmp_path / "index").fusion == found.learnt
    assert found.learnt.weight > 0.1 and "40 queries" in found.learnt.origin
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_three_modes_are_what_a_retriever_finds(benchmark: Path, tmp_path: Path) -> None:
    retriever = opened(benchmark, tmp_path, WordBag(), weight=0.3)
    judged = Benchmark.load(benchmark, "dev")
    found = learn_fusion(retriever, judged)
    for name, mode in (("now", "hybrid"), ("dense", "dense"), ("lexical", "lexical")):
        run = next(system.run for system in found.evaluation.systems if system.name == name)
        for query_id, text in judged.queries.items():
            hits = retriever.search(text, k=10, mode=mode)  # type: ignore[arg-type]
            assert list(run[query_id])[:10] == [hit.doc_id for hit in hits]


def test_nothing_is_stored_where_nothing_is_gained(benchmark: Path, tmp_path: Path) -> None:
    retriever = opened(benchmark, tmp_path, Lengths(), weight=1.0)
    found = tune_fusion(retriever, Benchmark.load(benchmark, "dev"), always=True)
    assert not found.kept and found.learnt.weight == 1.0  # of equal weights the nearest
    assert Index.open(tmp_path / "index").manifest.generation == retriever.index.manifest.generation


def test_a_gain_on_the_same_queries_alone_counts_for_nothing(tmp_path: Path) -> None:
    """Queries answered at random: some weight is always best on them, on others it is not."""
    texts = sentences(60)
    draw = np.random.default_rng(3)
    queries = [" ".join(texts[number].split()[:3]) for number in draw.permutation(60)]
    folder = write_benchmark(tmp_path / "b", texts, queries)
    retriever = opened(folder, tmp_path, WordBag(), weight=0.5)
    found = learn_fusion(retriever, Benchmark.load(folder, "dev"))
    assert not found.better and found.decisive.p_randomization > 0.05
    assert abs(found.decisive.difference) < 0.05


def test_a_gain_that_may_be_chance_is_stored_only_on_demand(benchmark: Path, tmp_path: Path) -> None:
    """Two queries won prove nothing: signs by chance do as well every other time."""
    retriever = opened(benchmark, tmp_path, Lengths(), weight=0.0)
    judged = Benchmark.load(benchmark, "dev")
    few = replace(judged, **{name: dict(list(getattr(judged, name).items())[:2]) for name in ("queries", "qrels")})
    found = tune_fusion(retriever, few)
    assert (found.decisive.wins, found.decisive.losses, found.decisive.p_randomization) == (2, 0, 0.5)
    assert found.learnt.weight > 0 and not found.better and not found.kept
    assert Index.open(tmp_path / "index").fusion.weight == 0
    found = tune_fusion(retriever, few, always=True)
    assert found.kept and not found.better
    assert Index.open(tmp_path / "index").fusion == found.learnt


def test_a_query_is_answered_by_a_weight_of_other_folds(benchmark: Path, tmp_path: Path) -> None:
    retriever = opened(benchmark, tmp_path, Lengths(), weight=0.0)
    judged = Benchmark.load(benchmark, "dev")
    two = replace(
        judged,
        queries={name: judged.queries[name] for name in ("q0", "q1")},
        qrels={"q0": judged.qrels["q0"], "q1": {"d99": 1}},  # no weight finds it
    )
    found = learn_fusion(retriever, two)
    tuned = next(system for system in found.evaluation.systems if system.name == "tuned")
    assert found.folds == 2
    assert tuned.scores.of("ndcg@10")[0] < 0.5  # chosen by q1, which all weights serve alike: the present one stays
    assert found.learnt.weight > 0


def test_what_cannot_be_learnt_from(benchmark: Path, tmp_path: Path) -> None:
    retriever = opened(benchmark, tmp_path, WordBag())
    judged = Benchmark.load(benchmark, "dev")
    one = replace(judged, queries={"q0": judged.queries["q0"]}, qrels={"q0": {"d0": 1}})
    with pytest.raises(DataError, match="1 judged query"):
        learn_fusion(retriever, one)
    strange = replace(judged, qrels={name: {"x": 1} for name in judged.qrels})
    with pytest.raises(DataError, match=r"none of the judged documents \(1\)"):
        learn_fusion(retriever, strange)
    build_index(
        benchmark / "corpus.jsonl", tmp_path / "dense", encoder=WordBag(), settings=IndexSettings(lexical=False)
    )
    with pytest.raises(ConfigError, match="keyword part"):
        learn_fusion(Retriever.open(tmp_path / "dense", encoder=WordBag()), judged)


def test_the_command(benchmark: Path, tmp_path: Path, tiny: Any) -> None:
    index = str(tmp_path / "index")
    build_index(benchmark / "corpus.jsonl", index, model=tiny("mean"))
    set_fusion(index, Fusion(weight=0.0))
    call = ["tune-fusion", index, "--benchmark", str(benchmark)]
    told = CliRunner().invoke(main, call)
    assert told.exit_code == 0, told.output
    assert [line.split()[0] for line in told.stdout.splitlines()[1:]] == ["now", "dense", "lexical", "tuned"]
    assert "from now on, it was 0" in told.stderr
    assert "no test any more" not in told.stderr
    again = CliRunner().invoke(main, [*call, "--json"])
    report = json.loads(again.stdout)
    assert not report["kept"] and report["before"]["weight"] == report["learnt"]["weight"] > 0
    assert "stays" in again.stderr


def test_the_command_says_what_is_not_proven_and_what_is_no_test_any_more(
    benchmark: Path, tmp_path: Path, tiny: Any
) -> None:
    texts = sentences(DOCUMENTS)
    folder = write_benchmark(tmp_path / "b", texts, [" ".join(text.split()[3:7]) for text in texts[:3]])
    (folder / "qrels" / "dev.tsv").rename(folder / "qrels" / "test.tsv")
    index = str(tmp_path / "index")
    build_index(folder / "corpus.jsonl", index, model=tiny("mean"))
    set_fusion(index, Fusion(weight=0.0))
    call = ["tune-fusion", index, "--benchmark", str(folder), "--split", "test"]
    told = CliRunner().invoke(main, call).stderr.splitlines()
    assert told[-2].startswith("the weight of keywords stays 0: 0.")
    assert "not proven better; by cross-validation in 3 folds, ndcg@10 +" in told[-2] and "--keep always" in told[-2]
    assert told[-1].startswith("note: figures on these queries are no test any more")
    assert Index.open(index).fusion.weight == 0
    always = CliRunner().invoke(main, [*call, "--keep", "always"])
    assert "from now on, it was 0, though it is not proven better: by" in always.stderr
    assert Index.open(index).fusion.weight > 0

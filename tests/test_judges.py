"""Judging rerankers on searched hits, and the mixture that a tuning fits on them."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrieval import CrossEncoder, Retriever, build_index, evaluate
from retrieval.eval.benchmark import Benchmark
from retrieval.heldout import split_queries
from retrieval.judges import by_reranking
from retrieval.mixture import MIXTURE_FILE, Mixture, fit_mixture
from retrieval.models import fingerprint
from retrieval.reranker import RerankSettings
from retrieval.tuner import TuningSettings
from retrieval.tuning import TuningReport, tune

CPU = RerankSettings(device="cpu")
COMMON = ["copper", "conducts", "heat", "better", "than", "iron", "does", "silver", "is", "a", "ferry", "crosses"]
RARE = [f"{a}{b}" for a in ("zor", "mik", "pla", "wun") for b in ("ble", "dax", "fip", "gon", "hul", "jat")]


def phrase(word: str, seed: str, noise: int) -> str:
    rng = random.Random(seed)
    words = [*rng.choices(COMMON, k=noise), word]
    rng.shuffle(words)
    return " ".join(words)


def write(folder: Path, splits: Mapping[str, int]) -> Path:
    """A BEIR folder: of each split, so many queries for each rare word, which share it with one document."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{n}", "text": phrase(word, f"document {n}", 9)} for n, word in enumerate(RARE)]
    queries = []
    for split, copies in splits.items():
        rows = ["query-id\tcorpus-id\tscore"]
        for n, word in enumerate(RARE):
            for copy in range(copies):
                queries.append({"_id": f"{split}-{n}-{copy}", "text": phrase(word, f"{split} {n} {copy}", 3)})
                rows.append(f"{split}-{n}-{copy}\td{n}\t1")
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    for name, records in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.fixture(scope="module")
def world(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a benchmark, `bench`, and an index of its documents, `index`."""
    root = tmp_path_factory.mktemp("judges")
    write(root / "bench", {"train": 3, "dev": 1, "test": 1})
    build_index(root / "bench", root / "index", model=tiny("mean"))
    return root


def test_what_a_mixture_is_fitted_on_is_what_a_retriever_orders(world: Path, tiny: Any, tmp_path: Path) -> None:
    """The fit's figures are those of the same queries asked with the mixture that it chose."""
    benchmark = Benchmark.load(world / "bench", "dev")
    judged = by_reranking(Retriever.open(world / "index", mode="dense"), benchmark, "ndcg@10", depth=12, settings=CPU)
    lists = judged.mixable(CrossEncoder.load(tiny("cross1"), settings=CPU))
    assert 0 < len(lists) == len(judged.examples) < len(benchmark.queries)  # those with a relevant hit
    asked = {str(example.query_id) for example in judged.examples}
    folder = tmp_path / "model"
    shutil.copytree(tiny("cross1"), folder)
    between = fit_mixture({"dev": lists}, weights=[0.4, 0.5, 0.6])
    figures: Any = between.notes["fitted_on"]
    for name, mixture in (("cross_encoder", Mixture()), ("first_stage", Mixture(weight=1.0)), ("mixed", between)):
        mixture.save(folder)
        retriever = Retriever.open(world / "index", mode="dense", reranker=folder)
        run = {
            query_id: {hit.doc_id: hit.score for hit in retriever.search(text, 12, rerank_depth=12)}
            for query_id, text in benchmark.queries.items()
            if query_id in asked
        }
        found = evaluate({query_id: benchmark.qrels[query_id] for query_id in run}, run, "ndcg@10").means()
        assert found["ndcg@10"] == pytest.approx(figures["dev"][name], abs=1e-9)
    assert judged.judge(tiny("cross1")).keys() == {"ndcg@10"}


SETTINGS = TuningSettings(what="reranker", learning_rate=0.01, max_steps=4, batch_size=16, depth=12, keep="always")


def tuned(world: Path, tiny: Any, out: Path, **options: Any) -> TuningReport:
    return tune(world / "index", world / "bench", out, settings=SETTINGS, reranker_from=tiny("mean"), **options)


def test_a_tuned_reranker_carries_a_mixture_fitted_on_the_selection(world: Path, tiny: Any, tmp_path: Path) -> None:
    report = tuned(world, tiny, tmp_path / "out")
    folder = tmp_path / "out" / "reranker"
    mixture = Mixture.load(folder)
    assert (folder / MIXTURE_FILE).is_file() and 0.1 <= mixture.weight <= 1
    assert list(mixture.notes["fitted_on"]) == ["bench, dev"]  # type: ignore[call-overload]  # notes are any JSON
    assert report.training["reranker"]["mixture"]["weight"] == mixture.weight
    # it is the one that a fit on the selection gives
    selection = split_queries(world / "bench").selection
    judged = by_reranking(Retriever.open(world / "index", mode="dense"), selection, "ndcg@10", depth=12, settings=CPU)
    lists = judged.mixable(CrossEncoder.load(folder, settings=CPU))
    again = fit_mixture({"bench, dev": lists}, least=0.1)
    assert again == mixture
    # the proof asked what is kept, mixture included
    retriever = Retriever.open(world / "index", mode="dense", reranker=folder)
    proof = Benchmark.load(world / "bench", "test")
    run = {
        query_id: {hit.doc_id: hit.score for hit in retriever.search(text, 12, rerank_depth=12)}
        for query_id, text in proof.queries.items()
    }
    mean = evaluate(proof.qrels, run, "ndcg@10").means()["ndcg@10"]
    assert report.proofs[0].decisive.system_mean == pytest.approx(mean)
    assert "mixed: " in report.proofs[0].evaluation.facts["reranker"]


def test_a_tuning_stopped_before_or_after_the_fit_ends_with_the_same_reranker(
    world: Path, tiny: Any, tmp_path: Path
) -> None:
    tuned(world, tiny, tmp_path / "whole")
    whole = fingerprint(tmp_path / "whole" / "reranker")
    for number, last in enumerate(("fitting how much the first stage counts", "asking the new reranker")):
        told: list[str] = []

        def stop(stage: str, share: float | None, last: str = last) -> None:
            if stage.startswith(last):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tuned(world, tiny, tmp_path / f"stopped-{number}", progress=stop)
        report = tuned(
            world, tiny, tmp_path / f"stopped-{number}", progress=lambda stage, share, told=told: told.append(stage)
        )
        assert "training the reranker" not in told
        assert ("fitting how much the first stage counts" in told) == (number == 0)  # fitted once
        assert fingerprint(tmp_path / f"stopped-{number}" / "reranker") == whole
        assert 0.1 <= report.training["reranker"]["mixture"]["weight"] <= 1


def test_too_few_queries_fit_no_mixture(world: Path, tiny: Any, tmp_path: Path) -> None:
    few = tmp_path / "few"
    shutil.copytree(world / "bench", few)
    rows = (few / "qrels" / "dev.tsv").read_text().splitlines()
    (few / "qrels" / "dev.tsv").write_text("\n".join(rows[:5]) + "\n")
    report = tune(world / "index", few, tmp_path / "out", settings=SETTINGS, reranker_from=tiny("mean"))
    assert not (tmp_path / "out" / "reranker" / MIXTURE_FILE).exists()
    assert "mixture" not in report.training["reranker"]
    assert any("it is not mixed with the first stage" in notice for notice in report.notices)
    scores = [hit.score for hit in Retriever.open(world / "index", reranker=tmp_path / "out" / "reranker").search("a")]
    assert np.isfinite(scores).all()

"""What `retrieve tune` gains on a collection's test split, and what the tuned encoder loses on others, for some seeds.

    python tests/benchmarks/tuned_encoders.py COLLECTIONS WORK [--tuned nl2bash,conala] [--others scifact,cosqa]
                                              [--seeds 0,1,2] [--dtype bfloat16]

COLLECTIONS holds folders in BEIR's layout; without it the script says so and ends. What is made lies in WORK and is not
made again, so a stopped run goes on. --dtype is that of the indexes of the other collections, for old and new alike.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from retrieval import BiEncoder, Retriever, build_index
from retrieval.encoder import EncoderSettings
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.evaluation import evaluate_runs
from retrieval.tuning import TuningSettings, tune

Run = dict[str, dict[str, float]]


def run_of(name: str, model: Path | None, options: argparse.Namespace) -> Run:
    """The first hundred hits of an encoder on a test split, kept as JSON."""
    label = "default" if model is None else "-".join(model.parts[-2:-1])
    kept = options.work / "runs" / f"{name}-{label}.json"
    if not kept.exists():
        folder, index = options.collections / name, options.work / "indexes" / f"{name}-{label}"
        encoder = BiEncoder.load(model, settings=EncoderSettings(dtype=options.dtype))
        if not index.exists():
            index.parent.mkdir(parents=True, exist_ok=True)
            build_index(folder / "corpus.jsonl", index, encoder=encoder)
        queries = Benchmark.load(folder, "test").queries
        found = Retriever.open(index, encoder=encoder).search_many(list(queries.values()), 100, mode="dense")
        kept.parent.mkdir(parents=True, exist_ok=True)
        hits = {query: {hit.doc_id: hit.score for hit in some} for query, some in zip(queries, found, strict=True)}
        kept.write_text(json.dumps(hits))
    run: Run = json.loads(kept.read_text())
    return run


def tuned(name: str, seed: int, options: argparse.Namespace) -> Path:
    """Tune on a collection's training queries, or take what was tuned."""
    out, index = options.work / f"{name}-{seed}", options.work / "indexes" / f"{name}-default-float32"
    if not index.exists():
        index.parent.mkdir(parents=True, exist_ok=True)
        build_index(options.collections / name / "corpus.jsonl", index)
    if not out.exists():
        started = time.monotonic()
        tune(index, options.collections / name, out, settings=TuningSettings(seed=seed))
        (out / "seconds").write_text(f"{time.monotonic() - started:.0f}")
    report = json.loads((out / "report.json").read_text())
    row = next(row for row in report["proofs"][0]["comparisons"] if row["metric"] == "ndcg@10")
    seconds = (out / "seconds").read_text()
    print(f"{name}, seed {seed}: {show(row)}, {seconds} s", flush=True)
    return out / "encoder"


def show(row: dict[str, float]) -> str:
    """Both means of a comparison, their difference and its p."""
    return "{baseline_mean:.4f} -> {system_mean:.4f} ({difference:+.4f}, p {p_randomization:.2g})".format(**row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--tuned", default="conala,nl2bash")
    parser.add_argument("--others", default="humaneval,cosqa,cranfield,scifact")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    if not options.collections.is_dir():
        sys.exit(f"{options.collections}: no such folder; nothing is measured")
    for seed in map(int, options.seeds.split(",")):
        for name in options.tuned.split(","):
            encoder = tuned(name, seed, options)
            for other in filter(None, options.others.split(",")):
                runs = {"old": run_of(other, None, options), "new": run_of(other, encoder, options)}
                qrels = Benchmark.load(options.collections / other, "test").qrels
                row = evaluate_runs(qrels, runs, "ndcg@10", curve=False).to_dict()["comparisons"][0]
                print(f"    {other}: {show(row)}", flush=True)


if __name__ == "__main__":
    main()

"""What a reranker makes of the first stage, on whole test splits of public collections, with paired tests.

    python tests/benchmarks/two_stages.py COLLECTIONS WORK [--reranker M] [--only scifact,cosqa] [--dtype bfloat16]
                                          [--mode hybrid]

COLLECTIONS holds folders in BEIR's layout; without it the script says so and ends. Indexes of the default encoder are
made once, in WORK; so are both scores of each hit, one JSON file for each collection and set of weights, so that a
stopped run goes on and another mixture costs nothing. The TREC Deep Learning collections have a stored run of BM25,
whose first 100 hits are re-ordered. p is the randomisation test's, not corrected for the number of collections.
"""

import argparse
import functools
import json
import sys
from pathlib import Path

import numpy as np

from retrieval import CrossEncoder, Mixture, Retriever, build_index
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.evaluation import evaluate_runs
from retrieval.files import sha256
from retrieval.models import resolve
from retrieval.qrels import read_qrels
from retrieval.queries import read_queries
from retrieval.ranking import followed, ranked
from retrieval.reranker import RerankSettings
from retrieval.reranking import passages_of, rerank_run, within_depth
from retrieval.runs import read_run

DENSE = ("conala", "nl2bash", "scifact", "codenn-python", "cosqa", "humaneval", "cranfield")
STORED = ("trec-dl-2019", "trec-dl-2020")
DEPTH = 100

Run = dict[str, dict[str, float]]


class Alone:
    """A cross-encoder without its mixture."""

    def __init__(self, reranker: CrossEncoder) -> None:
        self.score = reranker.score


def searched(folder: Path, work: Path, reranker: Alone, mode: str) -> tuple[Run, Run]:
    """The first hits of the test queries with the default encoder, and the logits of these."""
    benchmark = Benchmark.load(folder, "test")
    index = work / "indexes" / folder.name
    if not index.exists():
        index.parent.mkdir(parents=True, exist_ok=True)
        build_index(folder / "corpus.jsonl", index)
    retriever = Retriever.open(index, reranker=reranker)
    found = retriever.search_many(list(benchmark.queries.values()), DEPTH, mode=mode, rerank_depth=DEPTH)
    hits = dict(zip(benchmark.queries, found, strict=True))
    first = {name: {hit.doc_id: hit.retrieval_score for hit in some} for name, some in hits.items()}
    return first, {name: {hit.doc_id: hit.score for hit in some} for name, some in hits.items()}


def stored(folder: Path, reranker: Alone) -> tuple[Run, Run]:
    """A stored run, and the logits of its first hits."""
    run = read_run(folder / "runs" / "bm25.trec")
    head = {name: dict(ranked(scores)[:DEPTH]) for name, scores in run.items()}
    texts = passages_of(within_depth(head, DEPTH), folder / "corpus.jsonl")
    return run, rerank_run(head, read_queries(folder / "queries.jsonl"), texts, reranker, depth=DEPTH)


def mixed(first: Run, logits: Run, mixture: Mixture) -> Run:
    """Both scores mixed; hits below the depth follow in their old order."""
    again = {}
    for name, scores in logits.items():
        rest = [doc_id for doc_id, _ in ranked(first[name]) if doc_id not in scores]
        both = mixture.combine(np.array([first[name][doc_id] for doc_id in scores]), np.array(list(scores.values())))
        again[name] = followed(dict(ranked(dict(zip(scores, both.tolist(), strict=True)))), rest)
    return again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--reranker", default="minilm-reranker")
    parser.add_argument("--only", default=",".join(STORED + DENSE))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--mode", default="dense", choices=("dense", "lexical", "hybrid"), help="of the first stage")
    options = parser.parse_args()
    if not options.collections.is_dir():
        sys.exit(f"{options.collections}: no such folder; nothing is measured")
    folder = resolve(options.reranker).folder
    made, mixture = sha256(folder / "model.safetensors")[:12], Mixture.load(folder)
    print(f"reranked: {mixture.weight:.2f} of the first stage's score; alone: none of it")
    print(f"{'':16} queries  first  reranked  alone   difference  interval           p       wins-ties-losses")
    for name in options.only.split(","):
        mode = "" if options.mode == "dense" or name in STORED else f"-{options.mode}"
        kept = options.work / "scores" / f"{name}-{made}-{options.dtype}{mode}.json"
        if not kept.exists():
            reranker = Alone(CrossEncoder.load(options.reranker, settings=RerankSettings(dtype=options.dtype)))
            place = options.collections / name
            run = functools.partial(searched, work=options.work, mode=options.mode)
            runs = stored(place, reranker) if name in STORED else run(place, reranker=reranker)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(runs))
        first, logits = json.loads(kept.read_text())
        qrels = read_qrels(options.collections / name / "qrels" / "test.tsv")
        systems = {"first": first, "reranked": mixed(first, logits, mixture), "alone": mixed(first, logits, Mixture())}
        rows = evaluate_runs(qrels, systems, "ndcg@10", curve=False).to_dict()["comparisons"]
        row, alone = rows[0], rows[1]["system_mean"]
        print(
            f"{name:16} {row['queries']:7,} {row['baseline_mean']:6.4f} {row['system_mean']:9.4f} {alone:6.4f} "
            f"{row['difference']:+12.4f}  {row['low']:+.4f} to {row['high']:+.4f}  {row['p_randomization']:.2g}  "
            f"{row['wins']}-{row['ties']}-{row['losses']}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""What a reranker makes of the first stage, on whole test splits of public collections, with paired tests.

    python tests/benchmarks/two_stages.py COLLECTIONS WORK [--reranker M] [--only scifact,cosqa] [--dtype bfloat16]

COLLECTIONS holds folders in BEIR's layout; without it the script says so and ends. Indexes of the default encoder are
made once, in WORK; so are results, one JSON file for each collection and reranker, so that a stopped run goes on. The
TREC Deep Learning collections have a stored run of BM25, whose first 100 hits are re-ordered.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from retrieval import CrossEncoder, Retriever, build_index
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.evaluation import evaluate_runs
from retrieval.models import fingerprint, resolve
from retrieval.qrels import read_qrels
from retrieval.queries import read_queries
from retrieval.reranker import RerankSettings
from retrieval.reranking import passages_of, rerank_run, within_depth
from retrieval.runs import read_run

DENSE = ("conala", "nl2bash", "scifact", "codenn-python", "cosqa", "humaneval", "cranfield")
STORED = ("trec-dl-2019", "trec-dl-2020")
DEPTH = 100

Runs = dict[str, dict[str, dict[str, float]]]


def dense(folder: Path, work: Path, reranker: CrossEncoder) -> tuple[dict[str, dict[str, int]], Runs]:
    """Judgements and both stages' runs, the first being the default encoder's."""
    benchmark = Benchmark.load(folder, "test")
    index = work / "indexes" / folder.name
    if not index.exists():
        index.parent.mkdir(parents=True, exist_ok=True)
        build_index(folder / "corpus.jsonl", index)
    retriever = Retriever.open(index, reranker=reranker)
    found = retriever.search_many(list(benchmark.queries.values()), DEPTH, rerank_depth=DEPTH)
    hits = dict(zip(benchmark.queries, found, strict=True))
    first = {name: {hit.doc_id: hit.retrieval_score for hit in some} for name, some in hits.items()}
    second = {name: {hit.doc_id: hit.score for hit in some} for name, some in hits.items()}
    alone = {name: {hit.doc_id: float(hit.rerank_score or 0) for hit in some} for name, some in hits.items()}
    return dict(benchmark.qrels), {"first stage": first, "reranked": second, "cross-encoder alone": alone}


def stored(folder: Path, reranker: CrossEncoder) -> tuple[dict[str, dict[str, int]], Runs]:
    """Judgements, the stored run, and what the reranker makes of it."""
    run = read_run(folder / "runs" / "bm25.trec")
    texts = passages_of(within_depth(run, DEPTH), folder / "corpus.jsonl")
    queries = read_queries(folder / "queries.jsonl")
    again = rerank_run(run, queries, texts, reranker, depth=DEPTH)
    return read_qrels(folder / "qrels" / "test.tsv"), {"first stage": run, "reranked": again}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--reranker", default="minilm-reranker")
    parser.add_argument("--only", default=",".join(STORED + DENSE))
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    if not options.collections.is_dir():
        sys.exit(f"{options.collections}: no such folder; nothing is measured")
    reranker = CrossEncoder.load(options.reranker, settings=RerankSettings(dtype=options.dtype))
    made = fingerprint(resolve(options.reranker).folder)[:12]
    print(f"{'':16} queries  first  reranked  alone   difference  interval           p       wins-ties-losses")
    for name in options.only.split(","):
        kept = options.work / "results" / f"{name}-{made}-{options.dtype}.json"
        if not kept.exists():
            started = time.perf_counter()
            folder = options.collections / name
            qrels, runs = stored(folder, reranker) if name in STORED else dense(folder, options.work, reranker)
            result = evaluate_runs(qrels, runs, "ndcg@10", curve=False).to_dict()
            result["seconds"] = time.perf_counter() - started
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(result))
        rows = json.loads(kept.read_text())["comparisons"]
        row, alone = rows[0], rows[1]["system_mean"] if len(rows) > 1 else float("nan")
        print(
            f"{name:16} {row['queries']:7,} {row['baseline_mean']:6.4f} {row['system_mean']:9.4f} {alone:6.4f} "
            f"{row['difference']:+12.4f}  {row['low']:+.4f} to {row['high']:+.4f}  {row['p_randomization']:.2g}  "
            f"{row['wins']}-{row['ties']}-{row['losses']}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""How fast a query's hundred passages are re-ordered, next to sentence-transformers' CrossEncoder.predict.

    python tests/benchmarks/reranking.py [--data ../shared/data/scifact,../shared/data/trec-dl-2019] [--rounds 5]
                                         [--ours="OPTIONS" ...] [--model minilm-reranker] [--depth 100]
                                         [--threads 2] [--judged N] [--max-length N]

--data are folders in BEIR's layout with a test split; those that are not there are left out. Candidates are of
runs/bm25.trec in the folder where it has one, else the default encoder's. --ours are settings, each time it is given
another row: by default the automatic choice, "--runtime torch --dtype float32", which computes what the other one
does, and "--dtype int8". All run in one process on the CPU, in turn, after a warm-up with another query's passages;
each round is one query. Ratios are medians over rounds of theirs to ours.

nDCG@10 is of the cross-encoder's scores alone, over the test split's first --judged queries (default: all, which takes
an hour for scifact); --judged 0 leaves it out. Ours reads what is too long in windows, the other one cuts it: for equal
work give all of them the same --max-length, above that of the longest pair. Ratios also depend on the processor: what
computes bfloat16 in hardware is faster by ours alone, since the other one computes in float32.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from processes import limit_threads
from variants import settings

from retrieval import CrossEncoder, RerankSettings, Retriever, build_index, evaluate, read_qrels, read_queries, read_run

Pairs = list[tuple[str, str]]
Score = Callable[[Pairs], np.ndarray]


@dataclass(frozen=True)
class Candidates:
    """A collection's judged queries, each with the texts that a first stage found, by id."""

    name: str
    qrels: Mapping[str, Mapping[str, int]]
    queries: Mapping[str, str]
    texts: Mapping[str, Mapping[str, str]]

    def pairs(self, query_id: str) -> Pairs:
        return [(self.queries[query_id], text) for text in self.texts[query_id].values()]


def candidates(folder: Path, depth: int) -> Candidates:
    qrels = read_qrels(folder / "qrels" / "test.tsv")
    queries = {one: text for one, text in read_queries(folder / "queries.jsonl").items() if one in qrels}
    corpus = {}
    with (folder / "corpus.jsonl").open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            corpus[record["_id"]] = f"{record.get('title', '')} {record['text']}".strip()
    path = folder / "runs" / "bm25.trec"
    run = read_run(path) if path.exists() else first_stage(folder, queries, depth)
    best = {one: sorted(run[one], key=run[one].__getitem__, reverse=True)[:depth] for one in queries}
    texts = {one: {doc_id: corpus[doc_id] for doc_id in doc_ids} for one, doc_ids in best.items()}
    return Candidates(folder.name, qrels, queries, texts)


def first_stage(folder: Path, queries: Mapping[str, str], depth: int) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as name:
        build_index(folder / "corpus.jsonl", Path(name) / "index")
        retriever = Retriever.open(Path(name) / "index", mode="dense")
        found = retriever.search_many(list(queries.values()), depth, names=list(queries))
    return {one: {hit.doc_id: hit.score for hit in hits} for one, hits in zip(queries, found, strict=True)}


def measure(sides: Mapping[str, Score], found: Candidates, rounds: int) -> None:
    """Time one query a round, and print the table."""
    warm, *timed = list(found.queries)[: rounds + 1]
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    scores: dict[str, list[np.ndarray]] = {side: [] for side in sides}
    for score in sides.values():
        score(found.pairs(warm))
    for query_id in timed:
        for side, score in sides.items():
            started = time.perf_counter()
            scores[side].append(score(found.pairs(query_id)))
            seconds[side].append(time.perf_counter() - started)
    peer = next(iter(sides))
    print(f"\n{found.name}: {len(found.pairs(warm))} passages of a query, {len(timed)} rounds in turn")
    print(f"{'':52}seconds: median  least  most  ratio (rounds)      largest difference of a score")
    for side, took in seconds.items():
        ratios = [theirs / ours for theirs, ours in zip(seconds[peer], took, strict=True)]
        difference = max(np.abs(a - b).max() for a, b in zip(scores[peer], scores[side], strict=True))
        print(
            f"{side:60}{statistics.median(took):7.2f}{min(took):7.2f}{max(took):6.2f}"
            f"{statistics.median(ratios):7.2f} ({min(ratios):.2f} to {max(ratios):.2f}){difference:14.1e}",
            flush=True,
        )


def judge(sides: Mapping[str, Score], found: Candidates, most: int | None) -> None:
    """Score all candidates of the judged queries, and print nDCG@10."""
    queries = list(found.queries)[:most]
    qrels = {one: found.qrels[one] for one in queries}
    print(f"\n{found.name}: nDCG@10 of {len(queries)} queries")
    for side, score in sides.items():
        run = {one: dict(zip(found.texts[one], score(found.pairs(one)).tolist(), strict=True)) for one in queries}
        print(f"{side:60}{evaluate(qrels, run, 'ndcg@10').means()['ndcg@10']:7.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data/scifact,../shared/data/trec-dl-2019")
    parser.add_argument("--ours", action="append", help="Settings of ours.")
    parser.add_argument("--model", default="minilm-reranker")
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--judged", type=int)
    parser.add_argument("--max-length", type=int, help="Tokens of a pair; default: the model's own limit.")
    options = parser.parse_args()
    folders = [Path(name) for name in options.data.split(",")]
    for folder in (one for one in folders if not one.is_dir()):
        print(f"{folder} is left out: no such folder")
    limit_threads(options.threads)
    import torch
    from sentence_transformers import CrossEncoder as Peer

    from retrieval.models import resolve

    variants = options.ours or ["", "--runtime torch --dtype float32", "--dtype int8"]
    model = str(resolve(options.model).folder)
    peer = Peer(model, device="cpu", local_files_only=True, max_length=options.max_length)
    for folder in filter(Path.is_dir, folders):
        found = candidates(folder, options.depth)
        if len(found.queries) <= options.rounds:
            sys.exit(f"{folder} has {len(found.queries)} queries; --rounds must be fewer")
        sides: dict[str, Score] = {
            "CrossEncoder.predict": lambda pairs: peer.predict(pairs, activation_fn=torch.nn.Identity())
        }
        for one in variants:  # int8 takes its ranges of numbers from the first pairs, so anew for each collection
            chosen: dict[str, Any] = {"device": "cpu", "max_length": options.max_length, **settings(one)}
            reranker = CrossEncoder.load(options.model, settings=RerankSettings(**chosen))
            sides[f"retrieval {one}".strip()] = reranker.score
        measure(sides, found, options.rounds)
        if options.judged != 0:
            judge(sides, found, options.judged)


if __name__ == "__main__":
    main()

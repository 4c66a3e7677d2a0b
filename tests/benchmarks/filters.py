"""Recall and time of filtered search, for each type of index.

    python tests/benchmarks/filters.py [--passages 100000] [--queries 100] [--types flat,hnsw,ivf] [--folder DIR]

The vectors are made here: unit vectors around 2,000 random centres on a random 64-dimensional subspace of 384
dimensions, with a little noise in all of them; queries are further points of the same kind. From 1 % to 90 % of the
passages pass, chosen in three ways: `random`, which has nothing to do with the vectors; `near`, where those pass that
lie furthest along some direction, as the queries do; `far`, where the queries lie at the other end, among passages
that do not pass. Recall is measured against brute force in numpy over the passages that pass; times are of single
queries, after the first, which also evaluates the predicate. Ends with an error where hits are missing, where flat is
not exact or recall@10 is below .95.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from retrieval import IndexSettings, Retriever, build_index

K, SHARES, WAYS = 10, (1, 10, 25, 50, 90), ("random", "near", "far")
LEAST_RECALL = 0.95


@dataclass(frozen=True, kw_only=True)
class World:
    """Vectors (n, dim) float32, queries (q, dim), and for each way to choose a number from 0 to 99 for each passage."""

    vectors: np.ndarray
    queries: np.ndarray
    along: dict[str, np.ndarray]
    query_place: np.ndarray  # (q,) from 0 to 1: where the queries lie along the direction


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was measured of one index and one filter."""

    share: int
    way: str
    recall: float
    exact: bool
    fewest: int
    first_ms: float
    query_ms: float


def make(passages: int, queries: int, dim: int = 384, seed: int = 0) -> World:
    rng = np.random.default_rng(seed)
    basis = rng.standard_normal((64, dim)).astype(np.float32)
    centres = rng.standard_normal((2000, 64)).astype(np.float32)

    def points(count: int) -> np.ndarray:
        inner = centres[rng.integers(0, 2000, count)] + 0.7 * rng.standard_normal((count, 64)).astype(np.float32)
        block = inner @ basis + 0.5 * rng.standard_normal((count, dim)).astype(np.float32)
        return block / np.linalg.norm(block, axis=1, keepdims=True)

    vectors, direction = points(passages), basis[0] / np.linalg.norm(basis[0])
    place = vectors @ direction
    rank = np.empty(passages, np.int64)
    rank[np.argsort(place)] = np.arange(passages)
    along = rank * 100 // passages
    candidates = points(20 * queries)
    quantile = np.searchsorted(np.sort(place), candidates @ direction) / passages
    return World(
        vectors=vectors,
        queries=candidates,
        along={"random": rng.permutation(along), "near": along, "far": 99 - along},
        query_place=quantile,
    )


def build(world: World, folder: Path, kind: str) -> Retriever:
    """Build an index of the world's vectors, with a column for each way to choose."""
    corpus, file = folder / "corpus.jsonl", folder / "vectors.npy"
    if not corpus.exists():
        np.save(file, world.vectors)
        columns = {name: values.tolist() for name, values in world.along.items()}
        with corpus.open("w") as sink:
            for i in range(len(world.vectors)):
                record = {"_id": f"d{i}", "text": f"passage {i}", **{name: some[i] for name, some in columns.items()}}
                sink.write(json.dumps(record) + "\n")
    build_index(corpus, folder / kind, vectors=file, settings=IndexSettings(index_type=kind))
    return Retriever.open(folder / kind)


def measure(world: World, retriever: Retriever, way: str, share: int, queries: int) -> Row:
    """Ask queries that lie at the lower end of the direction (or anywhere, for `random`)."""
    lowest = np.argsort(world.query_place)
    asked = world.queries[:queries] if way == "random" else world.queries[lowest[:queries]]
    where = f"{way} < {share}"
    start = time.perf_counter()
    retriever.search(asked[0], K, where=where)
    first = time.perf_counter() - start
    start = time.perf_counter()
    found = [[hit.doc_id for hit in retriever.search(query, K, where=where)] for query in asked]
    seconds = time.perf_counter() - start
    rows = np.flatnonzero(world.along[way] < share)
    scores = asked.astype(np.float64) @ world.vectors[rows].astype(np.float64).T  # (q, passing)
    best = np.argsort(-scores, axis=1)[:, :K]
    expected = [[f"d{rows[at]}" for at in line] for line in best]
    same = [len(set(one) & set(other)) / K for one, other in zip(found, expected, strict=True)]
    return Row(
        share=share,
        way=way,
        recall=float(np.mean(same)),
        exact=found == expected,
        fewest=min(map(len, found)),
        first_ms=first * 1e3,
        query_ms=seconds / len(asked) * 1e3,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--types", default="flat,hnsw,ivf")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    world = make(options.passages, options.queries)
    failures = []
    print(f"{options.passages:,} passages, {options.queries} queries a line, k = {K}")
    print(f"{'type':<6}{'pass':>6}  {'chosen':<8}{'recall@10':>10}{'fewest hits':>13}{'first ms':>10}{'query ms':>10}")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for kind in options.types.split(","):
            retriever = build(world, Path(name), kind)
            for share in SHARES:
                for way in WAYS:
                    row = measure(world, retriever, way, share, options.queries)
                    numbers = f"{row.recall:>10.3f}{row.fewest:>13}{row.first_ms:>10.1f}{row.query_ms:>10.2f}"
                    print(f"{kind:<6}{share:>4} %  {way:<8}{numbers}", flush=True)
                    if row.fewest < K or row.recall < LEAST_RECALL or (kind == "flat" and not row.exact):
                        failures.append(f"{kind}, {share} %, {way}")
    if failures:
        raise SystemExit("falls short: " + "; ".join(failures))


if __name__ == "__main__":
    main()

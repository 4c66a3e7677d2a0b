"""What approximate indexes over ready-made vectors give and cost, beside hnswlib and usearch; how builds grow.

    python tests/benchmarks/scale.py [--types flat,hnsw,ivf,ivfsq,ivfpq] [--peers hnswlib,usearch] [--passages 1000000]
                                     [--vectors FILE.npy --queries FILE.npy] [--rounds 5] [--min-recall .99]
    python tests/benchmarks/scale.py --sizes 10000,31623,100000,316228,1000000

The first form prints a table. Queries are asked one at a time, on one thread, through `Index.search`, whose hits carry
their ids; a peer gives numbers. Rounds go through all kinds in turn, and the median counts. A peer looks as far as it
must to reach the recall of our hnsw. The second form builds exact indexes, and fits the exponent of time over size.

Without --vectors they are made here: points around random centres on a random 64-dimensional subspace, a little noise
in all dimensions. `sentence_vectors.py` makes real ones, which are harder to search. Each step is a process of its own;
memory is its peak resident size, for a search what it adds to the imports, mapped pages that were read included.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

# Peak resident memory of this program. Linux hands ru_maxrss of the parent down to a child, so VmHWM is read there.
PRELUDE = """
import json, pathlib, sys, time
import numpy as np
def peak_mb():
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS
def answers(search, queries):
    start = time.perf_counter()
    found = [search(query) for query in queries]
    return found, len(queries) / (time.perf_counter() - start)
def recall(found, best):
    return float(np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(found, best)]))
"""
BUILD = """
from retrieval import IndexSettings, build_index
corpus, vectors, index, kind, least = sys.argv[1:]
start = time.monotonic()
report = build_index(corpus, index, vectors=vectors, settings=IndexSettings(index_type=kind, min_recall=float(least)),
                     overwrite=True)
print(json.dumps({"seconds": time.monotonic() - start, "told": report.recall_at_10, "peak_mb": peak_mb(),
                  "what": report.index_type, "notices": report.notices}))
"""
SEARCH = """
from retrieval.index.reader import Index
from retrieval.index.vectors import faiss
faiss()
folder, queries, best = sys.argv[1], np.load(sys.argv[2]), np.load(sys.argv[3])
before = peak_mb()
index = Index.open(folder)
def search(query):
    return [int(hit.doc_id[1:]) for hit in index.search(query[None], 10)[0]]
answers(search, queries[:20])
found, rate = answers(search, queries)
made = index.manifest.approximate
held = made.file.bytes if made else 0
print(json.dumps({"rate": rate, "recall": recall(found, best), "mb": peak_mb() - before, "held": held,
                  "what": str(made.parameters) if made else ""}))
"""
PEERS = {
    "hnswlib": """
import hnswlib
def build(vectors, file):
    index = hnswlib.Index("ip", vectors.shape[1])
    index.init_index(len(vectors), M=16, ef_construction=200)
    index.add_items(vectors, num_threads=2)
    index.save_index(file)
def load(file, dim):
    index = hnswlib.Index("ip", dim)
    index.load_index(file)
    index.set_num_threads(1)
    return index, index.set_ef, lambda query: index.knn_query(query, k=10)[0][0]
""",
    "usearch": """
from usearch.index import Index
def build(vectors, file):
    index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32")
    index.add(np.arange(len(vectors)), vectors, threads=2)
    index.save(file)
def load(file, dim):
    index = Index(ndim=dim, metric="ip", dtype="f32")
    index.load(file)
    def beam(value):
        index.expansion_search = value
    return index, beam, lambda query: index.search(query, 10, threads=1).keys
""",
}
PEERS["usearch-f16"] = PEERS["usearch"].replace('"f32"', '"f16"')
PEERS["usearch-i8"] = PEERS["usearch"].replace('"f32"', '"i8"')
PEER_BUILD = """
vectors, file = np.load(sys.argv[1], mmap_mode="r"), sys.argv[2]
start = time.monotonic()
build(vectors, file)
print(json.dumps({"seconds": time.monotonic() - start, "peak_mb": peak_mb()}))
"""
PEER_SEARCH = """
file, queries, best, aim, beam = sys.argv[1], np.load(sys.argv[2]), np.load(sys.argv[3]), *map(float, sys.argv[4:])
before = peak_mb()
index, look, search = load(file, queries.shape[1])
def reached(value):
    look(value)
    return recall(answers(search, queries)[0], best)
low, high = 5, int(beam) or 10
if not beam:
    while reached(high) < aim and high < 4096:
        low, high = high, 2 * high
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) >= aim else (middle, high)
look(high)
found, rate = answers(search, queries)
print(json.dumps({"rate": rate, "recall": recall(found, best), "mb": peak_mb() - before, "beam": high,
                  "held": pathlib.Path(file).stat().st_size, "what": f"ef {high}"}))
"""


def make_vectors(file: Path, queries: Path, passages: int, dim: int) -> None:
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((64, dim)).astype(np.float32)
    centres = rng.standard_normal((2000, 64)).astype(np.float32)

    def some(count: int) -> np.ndarray:
        points = centres[rng.integers(0, 2000, count)] + 0.7 * rng.standard_normal((count, 64)).astype(np.float32)
        block = points @ basis + 0.5 * rng.standard_normal((count, dim)).astype(np.float32)
        return block / np.linalg.norm(block, axis=1, keepdims=True)

    vectors = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(passages, dim))
    for start in range(0, passages, 50_000):
        count = min(50_000, passages - start)
        vectors[start : start + count] = some(count)
    vectors.flush()
    np.save(queries, some(1000))


def make_corpus(file: Path, passages: int) -> None:
    with file.open("w") as sink:
        for i in range(passages):
            print(json.dumps({"_id": f"d{i}", "text": f"passage number {i}, of about forty characters"}), file=sink)


def best_rows(file: Path, queries: np.ndarray) -> np.ndarray:
    """Rows of the 10 best of each query, (q, 10), by reading all vectors once."""
    vectors = np.load(file, mmap_mode="r")
    scores, rows = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
    for start in range(0, len(vectors), 20_000):
        new = queries @ vectors[start : start + 20_000].T
        top = np.argpartition(-new, min(10, new.shape[1] - 1), axis=1)[:, :10]
        scores, rows = np.hstack([scores, np.take_along_axis(new, top, axis=1)]), np.hstack([rows, top + start])
        best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        scores, rows = np.take_along_axis(scores, best, axis=1), np.take_along_axis(rows, best, axis=1)
    return rows


def run(code: str, *arguments: object, threads: int = 0) -> dict:
    command = [sys.executable, "-c", PRELUDE + code, *map(str, arguments)]
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout)


def table(options: argparse.Namespace, folder: Path) -> None:
    file, queries, corpus, best = (folder / n for n in ("v.npy", "q.npy", "corpus.jsonl", "best.npy"))
    if options.vectors:
        np.save(file, np.load(options.vectors, mmap_mode="r")[: options.passages])
        np.save(queries, np.load(options.queries)[: options.query_count])
    else:
        make_vectors(file, queries, options.passages, options.dim)
    passages, dim = np.load(file, mmap_mode="r").shape
    make_corpus(corpus, passages)
    np.save(best, best_rows(file, np.load(queries)))
    kinds = options.types.split(",")
    peers = [name for name in options.peers.split(",") if name]
    for name in list(peers):
        if importlib.util.find_spec(name.split("-")[0]) is None:
            print(f"{name} is not installed: left out")
            peers.remove(name)
    print(f"{passages:,} passages x {dim}", flush=True)
    built = {}
    for kind in kinds:
        built[kind] = run(BUILD, corpus, file, folder / kind, kind, options.min_recall)
        notes = "; ".join(built[kind]["notices"])
        told = built[kind]["told"]
        print(f"built {kind}: {built[kind]['what']}, recall told {told or 'exact'} {notes}", flush=True)
    for name in peers:
        built[name] = run(PEERS[name] + PEER_BUILD, file, folder / f"{name}.index")
        print(f"built {name}", flush=True)
    rounds: dict[str, list[dict]] = {name: [] for name in built}
    for _ in range(options.rounds):
        for kind in kinds:
            rounds[kind].append(run(SEARCH, folder / kind, queries, best, threads=1))
        aim = rounds["hnsw"][0]["recall"] if "hnsw" in rounds else options.min_recall
        for name in peers:
            beam = rounds[name][0]["beam"] if rounds[name] else 0
            code = PEERS[name] + PEER_SEARCH
            rounds[name].append(run(code, folder / f"{name}.index", queries, best, aim, beam, threads=1))
    print(f"{'':<12} {'recall@10':>9} {'queries/s':>9} {'build s':>8} {'peak MB':>8} {'B/vector':>8} {'search MB':>9}")
    for name, found in rounds.items():
        rate = statistics.median(one["rate"] for one in found)
        print(
            f"{name:<12} {found[0]['recall']:>9.4f} {rate:>9.0f} {built[name]['seconds']:>8.1f} "
            f"{built[name]['peak_mb']:>8.0f} {found[0]['held'] / passages:>8.0f} {found[0]['mb']:>9.0f}  "
            f"{built[name].get('what', '')} {found[0]['what']}"
        )


def growth(options: argparse.Namespace, folder: Path) -> None:
    sizes = [int(size) for size in options.sizes.split(",")]
    seconds: list[float] = []
    for size in sizes:
        file, corpus = folder / "v.npy", folder / "corpus.jsonl"
        make_vectors(file, folder / "q.npy", size, options.dim)
        make_corpus(corpus, size)
        runs = [run(BUILD, corpus, file, folder / "index", "flat", 0.99) for _ in range(options.rounds)]
        seconds.append(statistics.median(one["seconds"] for one in runs))
        peak = statistics.median(one["peak_mb"] for one in runs)
        print(f"{size:>9,} passages x {options.dim}: {seconds[-1]:8.2f} s, peak {peak:5.0f} MB", flush=True)
    exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    print(f"exponent of time over size: {exponent:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--query-count", type=int, default=1000)
    parser.add_argument("--types", default="flat,hnsw,ivf,ivfsq,ivfpq")
    parser.add_argument("--peers", default="hnswlib,usearch")
    parser.add_argument("--min-recall", type=float, default=0.99)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", help="Of exact indexes whose growth is fitted instead.")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if (options.vectors is None) != (options.queries is None):
        parser.error("--vectors and --queries go together")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        (growth if options.sizes else table)(options, Path(name))


if __name__ == "__main__":
    main()

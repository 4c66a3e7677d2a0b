"""Time and memory of building and opening an index over ready-made vectors.

    python tests/benchmarks/scale.py [--passages 1000000] [--dim 384] [--types flat,hnsw,ivf] [--folder DIR]

The vectors are made here: points around random centres on a random 64-dimensional subspace, a little noise in all
dimensions. Each step is a process of its own; memory is its peak resident size, for opening also what it adds to the
imports. Prints one table.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

# Peak resident memory of this program. Linux hands ru_maxrss of the parent down to a child, so VmHWM is read there.
PEAK = """
def peak_mb():
    import pathlib, resource, sys
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS
"""
BUILD = """
import json, sys, time
from retrieval import IndexSettings, build_index
corpus, vectors, index, kind = sys.argv[1:]
start = time.monotonic()
report = build_index(corpus, index, vectors=vectors, settings=IndexSettings(index_type=kind), overwrite=True)
print(json.dumps({"seconds": time.monotonic() - start, "recall": report.recall_at_10,
                  "peak_mb": peak_mb()}))
"""
OPEN = """
import json, sys, time
import numpy as np
import pyarrow.compute
from retrieval.index.reader import Index
from retrieval.index.vectors import faiss
faiss()
imports = peak_mb()
start = time.monotonic()
index = Index.open(sys.argv[1])
opened = time.monotonic() - start
memory = peak_mb() - imports
queries = np.load(sys.argv[2])
index.search(queries[:1], 10)
start = time.monotonic()
for query in queries:
    index.search(query[None], 10)
query_ms = (time.monotonic() - start) / len(queries) * 1e3
print(json.dumps({"open_seconds": opened, "open_mb": memory, "query_ms": query_ms}))
"""


def make(folder: Path, passages: int, dim: int) -> tuple[Path, Path]:
    """Write the corpus and its vectors in blocks; return their paths."""
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((64, dim)).astype(np.float32)
    centres = rng.standard_normal((2000, 64)).astype(np.float32)
    corpus, file = folder / "corpus.jsonl", folder / "vectors.npy"
    vectors = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(passages, dim))
    with corpus.open("w") as sink:
        for start in range(0, passages, 50_000):
            count = min(50_000, passages - start)
            points = centres[rng.integers(0, 2000, count)] + 0.7 * rng.standard_normal((count, 64)).astype(np.float32)
            block = points @ basis + 0.5 * rng.standard_normal((count, dim)).astype(np.float32)
            vectors[start : start + count] = block / np.linalg.norm(block, axis=1, keepdims=True)
            for i in range(start, start + count):
                print(json.dumps({"_id": f"d{i}", "text": f"passage number {i}, of about forty characters"}), file=sink)
    vectors.flush()
    np.save(folder / "queries.npy", vectors[rng.integers(0, passages, 100)])
    return corpus, file


def run(code: str, *arguments: object) -> dict[str, float]:
    command = [sys.executable, "-c", PEAK + code, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--types", default="flat,hnsw,ivf")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        corpus, vectors = make(folder, options.passages, options.dim)
        print(f"{options.passages:,} passages x {options.dim}, float32")
        print(
            f"{'type':<6} {'build s':>8} {'peak MB':>8} {'recall@10':>9} {'open s':>7} {'open MB':>8} {'query ms':>8}"
        )
        for kind in options.types.split(","):
            built = run(BUILD, corpus, vectors, folder / "index", kind)
            opened = run(OPEN, folder / "index", folder / "queries.npy")
            recall = "exact" if built["recall"] is None else f"{built['recall']:.3f}"
            print(
                f"{kind:<6} {built['seconds']:>8.1f} {built['peak_mb']:>8.0f} {recall:>9} "
                f"{opened['open_seconds']:>7.3f} {opened['open_mb']:>8.0f} {opened['query_ms']:>8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""How fast and lean runs are read and written, next to a loop that only splits the lines, ranx and pytrec_eval.

    python tests/benchmarks/runs.py [--queries 7000] [--hits 1000] [--documents 2000000] [--rounds 2]

It makes the run in a temporary folder. Every reading runs in a process of its own, all of them in turn; the best
round counts. Times are of the processor, so that a busy machine matters less. Memory is the process's peak while it
reads, less what it had taken when all was imported. The peers read the first tenth (they need too much memory).
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def write_trec(path: Path, queries: int, hits: int, documents: int) -> None:
    rng = random.Random(7)
    with path.open("w") as file:
        for query in range(queries):
            doc_ids = rng.sample(range(documents), hits)
            scores = sorted((rng.random() * 20 for _ in doc_ids), reverse=True)
            rows = enumerate(zip(doc_ids, scores, strict=True), 1)
            file.writelines(
                f"{query + 100_000} Q0 {doc_id + 1_000_000} {rank} {score:.12f} bm25-rm3\n"
                for rank, (doc_id, score) in rows
            )


def split_lines(path: str) -> None:
    with Path(path).open() as file:
        for line in file:
            line.split()


def reader(name: str):
    if name == "ours":
        from retrieval.runs import read_run

        return read_run
    if name == "ranx":
        from ranx import Run

        return lambda path: Run.from_file(path, kind="trec")
    if name == "pytrec_eval":
        import pytrec_eval

        return lambda path: pytrec_eval.parse_run(Path(path).open())
    return split_lines


def measure(name: str, path: str) -> None:
    read = reader(name)
    if name == "ranx":
        from ranx import Run

        Run.from_dict({"q": {"d": 1.0}})  # it compiles
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    result = read(path)
    measured = {
        "read": time.process_time() - started,
        "mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }
    if name == "ours":
        from retrieval.runs import write_run

        started = time.process_time()
        write_run(f"{path}.again", result)
        measured["write"] = time.process_time() - started
        Path(f"{path}.again").unlink()
    print(json.dumps(measured))


def best(name: str, path: Path, rounds: int) -> dict[str, float] | None:
    found = []
    for _ in range(rounds):
        command = [sys.executable, __file__, "--measure", name, str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return None
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: min(measured[key] for measured in found) for key in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=7000)
    parser.add_argument("--hits", type=int, default=1000)
    parser.add_argument("--documents", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--measure", nargs=2, metavar=("READER", "FILE"))
    arguments = parser.parse_args()
    if arguments.measure:
        measure(*arguments.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        for queries, names in (
            (arguments.queries, ["split lines", "ours"]),
            (max(arguments.queries // 10, 1), ["split lines", "ours", "pytrec_eval", "ranx"]),
        ):
            path = Path(folder) / "a.run"
            write_trec(path, queries, arguments.hits, arguments.documents)
            print(f"{queries:,} queries x {arguments.hits:,} hits, {path.stat().st_size / 1e6:,.0f} MB")
            plain = None
            for name in names:
                measured = best(name, path, arguments.rounds)
                if measured is None:
                    print(f"  {name:12}  not there")
                    continue
                plain = plain or measured
                writing = f", write {measured['write']:.2f} s" if "write" in measured else ""
                ratio = measured["read"] / plain["read"]
                print(f"  {name:12}  read {measured['read']:6.2f} s ({ratio:.1f}x), {measured['mb']:6,.0f} MB{writing}")


if __name__ == "__main__":
    main()

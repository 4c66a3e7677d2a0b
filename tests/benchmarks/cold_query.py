"""How long one question from a cold start takes, next to the same script in other tools.

    python tests/benchmarks/cold_query.py [--data ../shared/data/scifact] [--ours="OPTIONS" ...] [--build="OPTIONS"]
                                          [--rounds 7] [--threads 2] [--documents N] [--only TOOL,...]

Indexes of --data, a folder in BEIR's layout, are made first, which is not timed; without it the script says so and
ends. Then every tool is asked one query a round, in turn, each a process of its own that loads the model, opens the
index, encodes, searches and prints: cold is the process, not the disk, as each was asked once before. --ours are
further options of `retrieve query`, each time it is given another row; by default three: the vectors alone, as all
the others search; with keywords; and as it comes, with its reranker, which no other one has. --build are those of
`retrieve build-index`. Ratios are medians over rounds of theirs to ours.

At the end it says which heavy modules ours had imported, asked in a further process.
"""

import argparse
import os
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import peers
from build_index import Corpus, available, print_ratios, program, retrieve
from processes import Measured, limit_threads, run

HEAVY = ("torch", "transformers", "sentence_transformers", "ranx", "openvino", "faiss", "pandas", "scipy")
WHICH = f"""
import sys
from retrieval.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(", ".join(name for name in {HEAVY} if name in sys.modules) or "none", file=sys.stderr)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/scifact"))
    parser.add_argument("--ours", action="append", help="Options of `retrieve query`.")
    parser.add_argument("--build", default="", help="Options of `retrieve build-index`.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--documents", type=int, help="Only the first so many, to try the script.")
    parser.add_argument("--only", default=",".join(peers.MODULES), help="The other tools to measure.")
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"{options.data}: no such folder; nothing is measured")
    limit_threads(options.threads)
    os.environ["HF_HUB_OFFLINE"] = "1"
    from retrieval.models import resolve

    model = resolve().folder
    variants = options.ours or ["--mode dense --reranker none", "--reranker none", ""]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(work / "cache")
        corpus = Corpus(options.data, options.documents, work)
        text = next(iter(corpus.queries.values()))
        index = work / "ours"
        retrieve("build-index", corpus.path, index, "--device", "cpu", *shlex.split(options.build))
        words = {one: [index, text, "--device", "cpu", *shlex.split(one)] for one in variants}
        sides: dict[str, Callable[[], Measured]] = {
            f"retrieve query {one}".strip(): partial(retrieve, "query", *words[one]) for one in variants
        }
        ours = list(sides)
        for tool in available(options.only):
            program("build", tool, corpus.path, model, work / tool)
            sides[f"{tool} {peers.version(tool)}"] = partial(program, "query", tool, work / tool, model, text)
        measured: dict[str, list[Measured]] = {side: [] for side in sides}
        for ask in sides.values():
            ask()
        for _ in range(options.rounds):
            for side, ask in sides.items():
                measured[side].append(ask())
        imported = [run([sys.executable, "-c", WHICH, "query", *words[one]]).errors.split("\n")[-2] for one in variants]
    print(f"{len(corpus.doc_ids):,} documents, {options.threads} threads, {options.rounds} rounds in turn; {text!r}")
    print(f"\n{'':52}seconds: median  least  most   peak MB")
    for side, asked in measured.items():
        seconds = [one.seconds for one in asked]
        spread = f"{statistics.median(seconds):7.2f}{min(seconds):7.2f}{max(seconds):6.2f}"
        print(f"{side:60}{spread}{statistics.median(one.peak_mb for one in asked):10.0f}")
    print_ratios(ours, [side for side in sides if side not in ours], measured)
    print(f"\nimported, of {', '.join(HEAVY)}:")
    for side, modules in zip(ours, imported, strict=True):
        print(f"{side:60}{modules}")


if __name__ == "__main__":
    main()

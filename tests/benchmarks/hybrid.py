"""What keywords add to vectors, on public collections: each side, both as a build weighs them, both as queries teach.

    python tests/benchmarks/hybrid.py COLLECTIONS WORK [--only scifact,cosqa] [--dtype bfloat16] [--queries 500]

COLLECTIONS holds folders in BEIR's layout; without it the script says so and ends. Indexes of the default encoder are
made once, in WORK. nDCG@10; `untuned` has the weight that the build measured on passages alone, `tuned` answers each
query by the weight that is best on the other four fifths of the queries. Differences of `untuned` are to the better of
the two sides, those of `tuned` to `untuned`, with 95 % intervals; p is the randomisation test's, not corrected for the
number of collections.
"""

import argparse
import sys
from pathlib import Path

from retrieval import EncoderSettings, Retriever, build_index
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.comparison import Comparison, compare
from retrieval.heldout import limited
from retrieval.tuned_fusion import learn_fusion

SPLITS = {
    **dict.fromkeys(("scifact", "cranfield", "cosqa", "nl2bash", "conala", "codenn-python", "humaneval"), "test"),
    "cmrc2018": "dev",
    "xquad-zh": "test",
}


def opened(folder: Path, work: Path, dtype: str) -> Retriever:
    """An index of the default encoder, made if it is not there."""
    index = work / "indexes" / folder.name
    if not index.exists():
        index.parent.mkdir(parents=True, exist_ok=True)
        build_index(folder / "corpus.jsonl", index, encoding=EncoderSettings(dtype=dtype))
    return Retriever.open(index, dtype=dtype)


def shown(row: Comparison) -> str:
    interval = f"{row.low:+.4f} to {row.high:+.4f}"
    return f"{row.system_mean:7.4f}  {row.difference:+10.4f}  {interval}  {row.p_randomization:7.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", default=",".join(SPLITS))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--queries", type=int, default=10**9, help="At most so many of each collection.")
    options = parser.parse_args()
    if not options.collections.is_dir():
        sys.exit(f"{options.collections}: no such folder; nothing is measured")
    print(f"{'':42}untuned{'':47}tuned")
    tested = "ndcg@10  difference  interval              p"
    print(f"{'':14} queries  dense   BM25 weight  {tested}  {tested}  best weight")
    for name in options.only.split(","):
        folder = options.collections / name
        retriever = opened(folder, options.work, options.dtype)
        found = learn_fusion(retriever, limited(Benchmark.load(folder, SPLITS[name]), options.queries))
        scores = {system.name: system.scores for system in found.evaluation.systems}
        means = {system: next(iter(some.means().values())) for system, some in scores.items()}
        better = max(("dense", "lexical"), key=means.__getitem__)
        (untuned,) = compare({better: scores[better], "now": scores["now"]})
        (tuned,) = compare({"now": scores["now"], "tuned": scores["tuned"]})
        print(
            f"{name:14} {untuned.queries:7,} {means['dense']:6.4f} {means['lexical']:6.4f} {found.before.weight:6.2f}  "
            f"{shown(untuned)}  {shown(tuned)}  {found.learnt.weight:11.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

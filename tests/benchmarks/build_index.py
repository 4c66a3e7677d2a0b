"""How fast and lean a corpus is indexed, next to sentence-transformers with FAISS, LangChain with FAISS, and txtai.

    python tests/benchmarks/build_index.py [--data ../shared/data/scifact] [--ours="OPTIONS" ...] [--rounds 5]
                                           [--threads 2] [--documents N] [--only TOOL,...]

--data is a folder in BEIR's layout with a test split; without it the script says so and ends. All have the default
encoder's weights and run on the CPU (peers.py holds the other tools' programs; those not installed are left out).
--ours are further options of `retrieve build-index`, each time it is given another row: by default one row without any
and one with --no-lexical, as no other tool makes a part for keywords. It does more in another way too: it reads long
texts in windows, where the others cut them; --on-long truncate cuts them as well.

Every build is a process of its own, measured from its start to its end, all of them in turn. Rows of ours begin with an
empty cache, so the first round converts the model too; it counts as any other one, and is shown. nDCG@10 is of the
test split's queries, asked of each index by its own tool: by vectors, of ours also as it answers by default (without
its reranker). Ratios are medians over rounds of theirs to ours: above 1 in time we are faster, in memory leaner.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import peers
from processes import Measured, limit_threads, run

Run = dict[str, dict[str, float]]  # score by document by query


def retrieve(command: str, *words: object) -> Measured:
    return run([Path(sysconfig.get_path("scripts"), "retrieve"), command, *words])


def program(action: str, tool: str, *words: object) -> Measured:
    return run([sys.executable, Path(__file__).with_name("peers.py"), action, tool, *words])


def available(tools: str) -> list[str]:
    """Those of some tools that are installed; says which are not."""
    lacking = {tool: peers.missing(tool) for tool in tools.split(",")}
    for tool, modules in lacking.items():
        if modules:
            print(f"{tool} is left out: {', '.join(modules)} not installed (pip install -e '.[peers]')")
    return [tool for tool, modules in lacking.items() if not modules]


class Corpus:
    """A collection's documents, the first so many of them, and the judged queries that these can answer."""

    def __init__(self, data: Path, documents: int | None, work: Path) -> None:
        from retrieval import read_qrels, read_queries

        self.path, self.queries_path = work / "corpus.jsonl", work / "queries.jsonl"
        with (data / "corpus.jsonl").open(encoding="utf-8") as source, self.path.open("w", encoding="utf-8") as target:
            lines = list(islice(source, documents))
            target.writelines(lines)
        self.doc_ids = {json.loads(line)["_id"] for line in lines}
        judged = read_qrels(data / "qrels" / "test.tsv")
        self.qrels = {query: grades for query, grades in judged.items() if self.doc_ids & grades.keys()}
        texts = read_queries(data / "queries.jsonl")
        self.queries = {query: texts[query] for query in self.qrels}
        with self.queries_path.open("w", encoding="utf-8") as target:
            target.writelines(json.dumps({"_id": one, "text": text}) + "\n" for one, text in self.queries.items())


class Ours:
    def __init__(self, options: str, work: Path, number: int) -> None:
        self.name = f"retrieve {options}".strip()
        self._options, self._index = shlex.split(options), work / f"ours-{number}"
        self._cache = work / f"cache-{number}"

    def build(self, corpus: Corpus) -> Measured:
        shutil.rmtree(self._index, ignore_errors=True)
        os.environ["XDG_CACHE_HOME"] = str(self._cache)
        return retrieve("build-index", corpus.path, self._index, "--device", "cpu", *self._options)

    def runs(self, corpus: Corpus) -> dict[str, Run]:
        from retrieval import read_run

        os.environ["XDG_CACHE_HOME"] = str(self._cache)
        modes = ["dense"] if "--no-lexical" in self._options else ["dense", "auto"]
        found = {}
        for mode in modes:
            output = self._index.with_suffix(f".{mode}.trec")
            how = ("-k", peers.K, "--mode", mode, "--reranker", "none", "--device", "cpu", "--output", output)
            retrieve("query", self._index, "--queries", corpus.queries_path, *how)
            found[mode] = read_run(output)
        return found


class Theirs:
    def __init__(self, tool: str, model: Path, work: Path) -> None:
        self.name = f"{tool} {peers.version(tool)}"
        self._tool, self._model, self._index = tool, model, work / tool

    def build(self, corpus: Corpus) -> Measured:
        shutil.rmtree(self._index, ignore_errors=True)
        return program("build", self._tool, corpus.path, self._model, self._index)

    def runs(self, corpus: Corpus) -> dict[str, Run]:
        asked = program("query", self._tool, self._index, self._model, *corpus.queries.values())
        return {"dense": dict(zip(corpus.queries, map(json.loads, asked.output.splitlines()), strict=True))}


def print_rows(measured: Mapping[str, list[Measured]], quality: Mapping[str, dict[str, float]]) -> None:
    print(f"\n{'':44}seconds: median  least  most  first   peak MB  nDCG@10: vectors  default")
    for name, builds in measured.items():
        seconds = [one.seconds for one in builds]
        spread = f"{statistics.median(seconds):7.1f}{min(seconds):7.1f}{max(seconds):6.1f}{seconds[0]:7.1f}"
        peak = statistics.median(one.peak_mb for one in builds)
        default = quality[name].get("auto")
        shown = "" if default is None else f"{default:9.4f}"
        print(f"{name:52}{spread}{peak:10.0f}{quality[name]['dense']:18.4f}{shown}")


def print_ratios(ours: list[str], theirs: list[str], measured: Mapping[str, list[Measured]]) -> None:
    print("\ntheirs to ours: seconds, peak memory")
    print(f"{'':52}" + "".join(f"{name:>30}" for name in theirs))
    for name in ours:
        cells = []
        for other in theirs:
            pairs = list(zip(measured[other], measured[name], strict=True))
            seconds = statistics.median(their.seconds / our.seconds for their, our in pairs)
            memory = statistics.median(their.peak_mb / our.peak_mb for their, our in pairs)
            cells.append(f"{seconds:.2f}, {memory:.2f}")
        print(f"{name:52}" + "".join(f"{cell:>30}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/scifact"))
    parser.add_argument("--ours", action="append", help='Options of `retrieve build-index`, "" for none.')
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--documents", type=int, help="Only the first so many, to try the script.")
    parser.add_argument("--only", default=",".join(peers.MODULES), help="The other tools to measure.")
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"{options.data}: no such folder; nothing is measured")
    limit_threads(options.threads)
    os.environ["HF_HUB_OFFLINE"] = "1"
    from retrieval.models import resolve

    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        corpus = Corpus(options.data, options.documents, work)
        ours = [Ours(one, work, number) for number, one in enumerate(options.ours or ["", "--no-lexical"])]
        theirs = [Theirs(tool, resolve().folder, work) for tool in available(options.only)]
        sides = [*ours, *theirs]
        measured: dict[str, list[Measured]] = {side.name: [] for side in sides}
        for number in range(options.rounds):
            for side in sides:
                measured[side.name].append(side.build(corpus))
                print(f"round {number + 1}: {measured[side.name][-1].seconds:6.1f} s  {side.name}", flush=True)
        runs = {side.name: side.runs(corpus) for side in sides}
    from retrieval import evaluate

    quality = {
        name: {mode: evaluate(corpus.qrels, run, "ndcg@10").means()["ndcg@10"] for mode, run in found.items()}
        for name, found in runs.items()
    }
    print(
        f"\n{options.data.name}: {len(corpus.doc_ids):,} documents, {len(corpus.queries)} queries, "
        f"{options.threads} threads, {options.rounds} rounds in turn"
    )
    print_rows(measured, quality)
    print_ratios([side.name for side in ours], [side.name for side in theirs], measured)


if __name__ == "__main__":
    main()

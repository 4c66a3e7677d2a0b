"""Rebuild the default reranker: collect pairs, mine candidates, filter, train, mix with the first stage.

    python data/default_reranker.py --data COLLECTIONS --work FOLDER collect
    python data/default_reranker.py --data COLLECTIONS --work FOLDER train
    python data/default_reranker.py --data COLLECTIONS --work FOLDER mix OUT

`default_reranker.toml` beside this file names all that it is made of. `collect` downloads the distributions named
there with pip, builds an index of each source with the default encoder, and writes `examples.jsonl` and
`collected.json` (what came from where, what was removed and why); a source that is done is not done again. `train`
trains, and goes on where it was stopped. `mix` fits probabilities, and how the scores are mixed with the first stage's,
and writes the model's folder.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import logging
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from retrieval import BiEncoder, CrossEncoder, IndexSettings, Retriever, build_index
from retrieval.calibration import expected_calibration_error, fit_calibration
from retrieval.chunking import joined
from retrieval.encoder import EncoderSettings
from retrieval.eval.benchmark import Benchmark, Card, Document, assemble_held
from retrieval.eval.mining import make_benchmark
from retrieval.files import sha256
from retrieval.mixture import JudgedList, Mixture, fit_mixture
from retrieval.reranker import RerankSettings
from retrieval.training.cross_encoder import CrossEncoderTraining, train_cross_encoder
from retrieval.training.examples import Example, read_examples, write_examples
from retrieval.training.negatives import MiningSettings, mine_negatives

RECIPE = Path(__file__).with_suffix(".toml")
RUN = 6  # words in a row that make two texts alike
ALIKE = 0.5  # share of a text's runs that occur in held-out texts

_FIRST_LOG = "log-first-phase.jsonl"

Recipe = Mapping[str, Any]


def main() -> None:
    """Do one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public collections")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is made on the way")
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("collect", help="make examples.jsonl")
    steps.add_parser("train", help="train on examples.jsonl")
    steps.add_parser("mix", help="fit the mixture and write the model").add_argument("out", type=Path)
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    recipe = tomllib.loads(given.recipe.read_text(encoding="utf-8"))
    given.work.mkdir(parents=True, exist_ok=True)
    if given.step == "collect":
        collect(recipe, given.data, given.work)
    elif given.step == "train":
        train(recipe, given.work)
    else:
        mix(recipe, given.data, given.work, given.out)


# Collecting


class HeldOut:
    """What evaluations ask and find, so that nothing of it is trained on."""

    def __init__(self, data: Path, whole: Iterable[str], splits: Iterable[str]) -> None:
        """Read the collections: queries and judged texts of splits, all texts of whole ones."""
        self._queries: set[tuple[str, ...]] = set()
        self._texts: set[tuple[str, ...]] = set()
        self._runs: set[int] = set()
        for name in whole:
            queries, texts = _everything(data / name)
            self._add(queries, texts)
        for entry in splits:
            name, split = entry.split("/")
            benchmark = Benchmark.load(data / name, split)
            wanted = {doc_id for grades in benchmark.qrels.values() for doc_id, grade in grades.items() if grade > 0}
            texts = [one.text for one in benchmark.corpus() if one.doc_id in wanted] if name != "qmsum" else []
            self._add(benchmark.queries.values(), texts)

    def why_not(self, query: str, text: str) -> str:
        """Say why a pair may not be trained on; empty if it may."""
        if _bag(query) in self._queries:
            return "the query is one of a held-out set"
        words = tuple(_words(text))
        if words in self._texts:
            return "the text is one of a held-out set"
        runs = _runs(words)
        if runs and sum(run in self._runs for run in runs) > ALIKE * len(runs):
            return "the text is much like one of a held-out set"
        return ""

    def _add(self, queries: Iterable[str], texts: Iterable[str]) -> None:
        self._queries.update(map(_bag, queries))
        for text in texts:
            words = tuple(_words(text))
            self._texts.add(words)
            self._runs.update(_runs(words))


def collect(recipe: Recipe, data: Path, work: Path) -> None:
    """Write examples.jsonl and collected.json."""
    encoder = first_stage(recipe)
    held_out = HeldOut(data, recipe["held_out"]["whole"], recipe["held_out"]["splits"])
    examples: list[Example] = []
    facts: dict[str, Any] = {}
    for name, most, load in [*_collections(recipe, data), *_functions(recipe, work)]:
        place = work / "sources" / name
        if not (place / "facts.json").exists():
            found, counts = _source(load(), most, encoder, held_out, recipe, place)
            write_examples(place / "examples.jsonl", found)
            (place / "facts.json").write_text(json.dumps(counts))
        facts[name] = json.loads((place / "facts.json").read_text())
        examples += read_examples(place / "examples.jsonl")
        print(name, json.dumps(facts[name]), flush=True)
    write_examples(work / "examples.jsonl", examples)
    (work / "collected.json").write_text(json.dumps({"sources": facts, "examples": len(examples)}, indent=1))
    print(f"{len(examples):,} examples")


def first_stage(recipe: Recipe) -> BiEncoder:
    """The default encoder, reading no more of a document than the recipe says."""
    settings = EncoderSettings(max_length=recipe["mining"]["tokens"], on_long="truncate", dtype="bfloat16")
    return BiEncoder.load(None, settings=settings)


def _source(
    benchmark: Benchmark, most: int | None, encoder: BiEncoder, held_out: HeldOut, recipe: Recipe, place: Path
) -> tuple[list[Example], dict[str, int]]:
    """Filter a source's queries, find candidates for them, and let the first stage teach."""
    mining = recipe["mining"]
    shutil.rmtree(place, ignore_errors=True)
    benchmark.save(place / "benchmark")
    texts = {one.doc_id: joined(one.title, one.text) for one in benchmark.corpus()}
    counts: Counter[str] = Counter(queries=len(benchmark.queries))
    qrels: dict[str, Mapping[str, int]] = {}
    for query_id in _smallest(benchmark.queries, most):
        query, grades = benchmark.queries[query_id], benchmark.qrels[query_id]
        good = [doc_id for doc_id, grade in grades.items() if grade > 0 and texts.get(doc_id, "").strip()]
        reasons = [held_out.why_not(query, texts[doc_id]) for doc_id in good]
        if any(reasons):
            counts[next(filter(None, reasons))] += 1
        elif good:
            qrels[query_id] = dict.fromkeys(good, 1)
    build_index(place / "benchmark", place / "index", encoder=encoder, settings=IndexSettings(lexical=False))
    retriever = Retriever.open(place / "index", encoder=encoder)
    queries = {query_id: benchmark.queries[query_id] for query_id in qrels}
    settings = MiningSettings(
        per_query=mining["negatives"],
        last_rank=mining["last_rank"],
        ratio=None,
        sampling="random",
        seed=recipe["seed"],
    )
    found = mine_negatives(queries, qrels, partial(retriever.search_many, rerank=False), texts=texts, settings=settings)
    examples = _taught([one for one in found.examples if one.negatives], encoder, recipe, place.name)
    shutil.rmtree(place / "index")
    return examples, dict(counts, examples=len(examples))


def _taught(examples: Sequence[Example], encoder: BiEncoder, recipe: Recipe, source: str) -> list[Example]:
    """Give examples their targets: the first stage's cosines, put right where an answer is known."""
    scale, bonus = recipe["mining"]["teacher_scale"], recipe["mining"]["positive_bonus"]
    queries = _rows(example.query for example in examples)
    texts = _rows(text for example in examples for text in example.positives + example.negatives)
    asked = encoder.encode_queries(list(queries))  # (queries, dim) float32
    found = encoder.encode_documents([""] * len(texts), list(texts)).vectors  # (texts, dim) float32
    taught = []
    for example in examples:
        rows = [texts[text] for text in example.positives + example.negatives]
        scores = (scale * found[rows] @ asked[queries[example.query]]).round(3).tolist()
        count = len(example.positives)
        least = round(sum(scores[count:]) / len(scores[count:]), 3)
        taught.append(
            replace(
                example,
                query_id=f"{source}/{example.query_id}",
                positive_scores=tuple(max(score, least) + bonus for score in scores[:count]),
                negative_scores=tuple(scores[count:]),
            )
        )
    return taught


def _rows(texts: Iterable[str]) -> dict[str, int]:
    """Number different texts, in their order."""
    return {text: row for row, text in enumerate(dict.fromkeys(texts))}


def _collections(recipe: Recipe, data: Path) -> Iterator[tuple[str, int | None, Callable[[], Benchmark]]]:
    for source in recipe["source"]:
        yield source["name"], source.get("most"), partial(_collection, source, data)


def _collection(source: Mapping[str, Any], data: Path) -> Benchmark:
    """A collection's split; of one that is held back in part, the part that trains."""
    folder = data / source["name"]
    if source.get("pairs"):
        return _paired(folder, source.get("split"))
    benchmark = Benchmark.load(folder, source["split"])
    return only(benchmark, lambda name: not _is_held_back(name)) if source.get("held_back") else benchmark


def _paired(folder: Path, split: str | None) -> Benchmark:
    """A benchmark of pairs.jsonl: its texts are the corpus, those not labelled 0 are relevant."""
    queries: dict[str, str] = {}
    documents: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for pair in _lines(folder / "pairs.jsonl"):
        if split in (None, pair.get("split")):
            query_id = queries.setdefault(pair["query"], f"q{len(queries)}")
            doc_id = documents.setdefault(pair["positive"], f"d{len(documents)}")
            qrels.setdefault(query_id, {})[doc_id] = int(pair.get("score", 1))
    texts = [Document(doc_id=doc_id, text=text) for text, doc_id in documents.items()]
    names = {query_id: query for query, query_id in queries.items()}
    return assemble_held(folder, Card(name=folder.name, split=split or "all"), names, qrels, texts)


def _functions(recipe: Recipe, work: Path) -> Iterator[tuple[str, int | None, Callable[[], Benchmark]]]:
    for distribution in recipe["functions"]["distributions"]:
        yield f"functions/{distribution.partition('==')[0]}", None, partial(_distribution, distribution, work)


def _distribution(distribution: str, work: Path) -> Benchmark:
    """The functions of a wheel, those queries of them that train."""
    name, _, version = distribution.partition("==")
    wheels = work / "wheels"
    pattern = f"{re.sub('[-_.]+', '_', name)}-{version}-*.whl"
    if not list(wheels.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", str(wheels), distribution], check=True)
    tree = work / "trees" / name
    with zipfile.ZipFile(next(wheels.glob(pattern))) as packed:
        packed.extractall(tree, [one for one in packed.namelist() if one.endswith(".py")])
    made = work / "functions" / name
    shutil.rmtree(made, ignore_errors=True)
    made.parent.mkdir(exist_ok=True)
    make_benchmark(tree, made, name=name)
    shutil.rmtree(tree)
    return Benchmark.load(made, "train" if (made / "qrels" / "train.tsv").exists() else "test")


# Training


def train(recipe: Recipe, work: Path) -> None:
    """Train in two phases; the last model is kept, since nothing of the development queries may choose one."""
    examples = read_examples(work / "examples.jsonl")
    phase = recipe["training"]
    common = {"seed": recipe["seed"], "calibration": "none", **phase["common"]}
    begun = work / "begun"
    if not begun.exists():
        with contextlib.suppress(EnoughError):
            train_cross_encoder(
                examples,
                work / "first-phase",
                settings=CrossEncoderTraining(**common, **phase["first"]),
                evaluate=_keep(begun, phase["first_ends"]),
                progress=_tell,
            )
    report = train_cross_encoder(
        examples,
        work / "model",
        model=begun,
        settings=CrossEncoderTraining(**common, **phase["second"]),
        sources={"recipe": RECIPE.name, "first phase": phase["first"]},
        progress=_tell,
    )
    print(report)


class EnoughError(Exception):
    """The first phase has come as far as it goes."""


def _keep(place: Path, end: int) -> Callable[[Path], dict[str, float]]:
    """Keep the model of a step, and end the training there: a judge that prefers what is newer."""

    def judge(folder: Path) -> dict[str, float]:
        step = int(folder.name.rpartition("-")[2])
        if step == end:
            shutil.copytree(folder, place)
            shutil.copyfile(folder.parent / "log.jsonl", place / _FIRST_LOG)
            raise EnoughError
        return {"step": float(step)}

    return judge


def _tell(share: float) -> None:
    print(f"{share:.1%}", flush=True)


def only(benchmark: Benchmark, keeps: Callable[[str], bool]) -> Benchmark:
    """A benchmark with some of its queries."""
    queries = {query_id: text for query_id, text in benchmark.queries.items() if keeps(query_id)}
    return replace(benchmark, queries=queries, qrels={query_id: benchmark.qrels[query_id] for query_id in queries})


def mix(recipe: Recipe, data: Path, work: Path, out: Path) -> None:
    """Fit probabilities and the mixture on the development queries, and write the model's folder."""
    settings = recipe["mixture"]
    reranker = CrossEncoder.load(work / "model", settings=RerankSettings(dtype="bfloat16"))
    groups = development(recipe, data, work)
    made = sha256(work / "model" / "model.safetensors")[:12]
    lists = {name: _judged(some, reranker, work / "development" / name / made) for name, some in groups.items()}
    fitting = [one for some in lists.values() for one in some[::2]]
    measured = [one for some in lists.values() for one in some[1::2]]
    (scores, relevant), (others, truth) = _pooled(fitting), _pooled(measured)
    calibration = fit_calibration(scores, relevant)
    error = expected_calibration_error(calibration.probability(others), truth)
    mixture = fit_mixture(lists, floor=settings["floor"], least=settings["least"], cautious=True)
    if out.exists():
        shutil.rmtree(out)
    shutil.copytree(work / "model", out)
    shutil.copyfile(work / "begun" / _FIRST_LOG, out / _FIRST_LOG)
    replace(calibration, notes={"method": "platt", "ece": error, "pairs_fitted": len(scores)}).save(out)
    mixture.save(out)
    collected = json.loads((work / "collected.json").read_text())
    _finish_card(out / "README.md", recipe, collected, mixture, error)
    print(json.dumps({"ece": error, "weight": mixture.weight, "temperature": mixture.temperature}))
    print(json.dumps(mixture.notes, indent=1))


def _finish_card(card: Path, recipe: Recipe, collected: Mapping[str, Any], mixture: Mixture, error: float) -> None:
    """Say on the model's card what it was made of, and what was fitted after the training."""
    text, _, _ = card.read_text(encoding="utf-8").partition("\n## Calibration")
    title = text.index("\n# ")
    text = f"{text[:title]}\n# {card.parent.name}{text[text.index(chr(10), title + 1) :]}"
    text = text.replace("trained from begun.", "trained in two phases from all-MiniLM-L6-v2.")
    origins = {source["name"]: (source["origin"], source["licence"]) for source in recipe["source"]}
    data = []
    for name, counts in collected["sources"].items():
        origin, licence = origins.get(name, ("functions of this distribution", "see default_reranker.toml"))
        removed = sum(count for reason, count in counts.items() if "held-out" in reason)
        data.append((name, origin, licence, counts["examples"], removed))
    fitted: Any = mixture.notes["fitted_on"]
    figures = [
        (name, one["queries"], *(f"{one[stage]:.4f}" for stage in ("first_stage", "cross_encoder", "mixed")))
        for name, one in fitted.items()
    ]
    phases = recipe["training"]
    parts = [
        text,
        "## Phases",
        f"{phases['first_ends']} of {phases['first']['max_steps']} steps from the default encoder, all-MiniLM-L6-v2 "
        f"(`{_FIRST_LOG}`), then {phases['second']['max_steps']} steps in which the learning rate falls to zero: the "
        "second phase is what is told above.",
        "## Sources",
        "Queries taken, and those removed since they ask or answer what a held-out set does.",
        _markdown(("", "from", "licence", "queries", "removed"), data),
        "## Fitted after the training",
        f"Hits are ordered by {mixture.weight:.2f} of the first stage's score, standardised over the candidates, and "
        f"{1 - mixture.weight:.2f} of the logit / {mixture.temperature:.4g} (`mixture.json`). nDCG@10 of the "
        "development queries that this was fitted on, so it flatters:",
        _markdown(("", "queries", "first stage", "cross-encoder alone", "mixed"), figures),
        "Probabilities (`calibration.json`) were fitted on half of these queries, by Platt's method; their expected "
        f"calibration error on the other half is {error:.3f}.",
    ]
    card.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")


def _markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def development(recipe: Recipe, data: Path, work: Path) -> dict[str, list[dict[str, Any]]]:
    """The first stage's hits of development queries, by collection; searched once."""
    found = {}
    for source in recipe["development"]:
        place = work / "development" / source["name"]
        if not (place / "hits.jsonl").exists():
            benchmark = Benchmark.load(data / source["name"], source["split"])
            chosen = set(_smallest(benchmark.queries, recipe["mixture"]["queries"]))
            benchmark = only(benchmark, chosen.__contains__)
            shutil.rmtree(place, ignore_errors=True)
            benchmark.save(place / "benchmark")
            plain, bf16 = IndexSettings(lexical=False), EncoderSettings(dtype="bfloat16")
            build_index(place / "benchmark", place / "index", encoding=bf16, settings=plain)
            hits = Retriever.open(place / "index", dtype="bfloat16").search_many(
                list(benchmark.queries.values()), recipe["mixture"]["depth"]
            )
            with (place / "partial").open("w", encoding="utf-8") as stream:
                for query_id, some in zip(benchmark.queries, hits, strict=True):
                    entry = {"query": benchmark.queries[query_id], "grades": benchmark.qrels[query_id]}
                    entry["hits"] = [[hit.doc_id, hit.score, joined(hit.title, hit.text)] for hit in some]
                    stream.write(json.dumps(entry) + "\n")
            (place / "partial").rename(place / "hits.jsonl")
        found[source["name"]] = list(_lines(place / "hits.jsonl"))
    return found


def _judged(entries: Sequence[Mapping[str, Any]], reranker: CrossEncoder, kept: Path) -> list[JudgedList]:
    """Score the hits of some queries, once."""
    if not kept.exists():
        pairs = [(entry["query"], text) for entry in entries for _, _, text in entry["hits"]]
        kept.write_text(json.dumps(reranker.score(pairs).tolist()))
    logits = iter(json.loads(kept.read_text()))
    lists = []
    for entry in entries:
        doc_ids, scores, _ = zip(*entry["hits"], strict=True)
        lists.append(JudgedList.of(doc_ids, scores, [next(logits) for _ in doc_ids], entry["grades"]))
    return lists


def _pooled(lists: Sequence[JudgedList]) -> tuple[np.ndarray, np.ndarray]:
    """Logits (n,) of all candidates, and whether they are relevant (n,) bool."""
    return np.concatenate([one.logits for one in lists]), np.concatenate([one.gains > 0 for one in lists])


# Reading


def _everything(folder: Path) -> tuple[list[str], list[str]]:
    """All queries and texts of a collection, whatever its splits."""
    queries, texts = [], []
    for name, where in (("queries.jsonl", queries), ("corpus.jsonl", texts)):
        if (folder / name).exists():
            where += [one["text"] for one in _lines(folder / name)]
    if (folder / "pairs.jsonl").exists():
        for pair in _lines(folder / "pairs.jsonl"):
            queries.append(pair["query"])
            texts.append(pair["positive"])
    return queries, texts


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


def _bag(text: str) -> tuple[str, ...]:
    """The different words of a text: equal whatever their order."""
    return tuple(sorted(set(_words(text))))


def _runs(words: Sequence[str]) -> set[int]:
    return {hash(words[start : start + RUN]) for start in range(len(words) - RUN + 1)}


def _is_held_back(query_id: str) -> bool:
    return int(_digest(query_id), 16) % 10 == 0


def _smallest(query_ids: Iterable[str], most: int | None) -> list[str]:
    return sorted(query_ids, key=_digest)[:most]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    main()

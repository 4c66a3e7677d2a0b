"""Which judged queries train a model, which choose among its checkpoints, and which prove that it is better."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from retrieval.chunking import is_blank
from retrieval.errors import DataError
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.layouts import LAYOUTS

_DEVELOPMENT = ("dev", "valid", "validation")
_ADVICE = "`retrieve make-benchmark` finds some in a source tree"


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The queries of a benchmark, in three parts that share no query text.

    Attributes:
        training: Those to learn from.
        selection: Those that choose among checkpoints; may be empty.
        proof: Those that old and new are compared by.
        facts: Where each part comes from, in words.
        dropped: Queries left out of training or selection since their text is one of another part.
    """

    training: Benchmark
    selection: Benchmark
    proof: Benchmark
    facts: Mapping[str, str]
    dropped: int


def split_queries(benchmark: str | Path, *, split: str = "train", layout: str = "auto") -> Splits:
    """Divide a benchmark's queries.

    Training has the split `split`. The proof has test, else dev, else a fifth of that split. Selection has dev where
    the proof has not, else a tenth of that split. The SHA-256 of a query's id decides which part of a split it
    belongs to, so that more queries move none. Texts are equal that differ only in case and blanks.

    Args:
        benchmark: As in `Benchmark.load`.
        split: Whose queries train; it is not taken for another part as a whole.
        layout: As in `Benchmark.load`.

    Raises:
        DataError: No such split, no query to train with, or none for the proof.
    """
    _require_judgements(Path(benchmark), layout)
    try:
        train = Benchmark.load(benchmark, split, layout=layout)
    except DataError as error:
        if not _absent(split, error):
            raise
        if split != "test" and _optional(benchmark, ("test",), split, layout):
            remedy = "--split test trains with most of test's, and holds a fifth of them out"
        else:
            remedy = f"name their split (--split), or {_ADVICE}"
        raise DataError(f"{error}; queries to train with are needed: {remedy}") from None
    test, dev = (_optional(benchmark, names, split, layout) for names in (("test",), _DEVELOPMENT))
    proof, selection = test or dev, dev if test else None
    if proof is None:
        proof, train = _divided(train, (0, 1), f"a fifth of {split}")
    if selection is None:
        selection, train = _divided(train, (2,), f"a tenth of {split}")
    facts = {"training": split, "selection": selection.card.split, "proof": proof.card.split}
    held = _texts(proof)
    kept = _without(selection, held)
    trained = _without(train, held | _texts(kept))
    dropped = len(selection.queries) + len(train.queries) - len(kept.queries) - len(trained.queries)
    for part, what in ((trained, "to train with"), (proof, "for the proof")):
        if not any(grade > 0 for grades in part.qrels.values() for grade in grades.values()):
            raise DataError(f"{benchmark}: no query with a relevant document is left {what}; {_ADVICE}")
    return Splits(training=trained, selection=kept, proof=proof, facts=facts, dropped=dropped)


def limited(benchmark: Benchmark, most: int) -> Benchmark:
    """Return at most so many of a benchmark's queries, those whose id has the smallest SHA-256."""
    chosen = set(sorted(benchmark.queries, key=_digest)[:most])
    return _filtered(benchmark, lambda query_id: query_id in chosen)


def _require_judgements(folder: Path, layout: str) -> None:
    """Refuse a folder that is no benchmark, such as a corpus alone, with what is missing in it."""
    if layout == "auto" and folder.is_dir() and not any(known.recognises(folder) for known in LAYOUTS.values()):
        raise DataError(
            f"{folder}: no judgements in it that are known; to tune, queries are needed (queries.jsonl) and which "
            f"documents answer them (qrels/train.tsv): {_ADVICE}"
        )


def _optional(source: str | Path, names: tuple[str, ...], taken: str, layout: str) -> Benchmark | None:
    """Load the first of these splits that is there, and not taken."""
    for name in names:
        try:
            if name != taken:
                return Benchmark.load(source, name, layout=layout)
        except DataError as error:
            if not _absent(name, error):  # a split that is there and damaged
                raise
    return None


def _absent(split: str, error: DataError) -> bool:
    """Whether an error says that a benchmark has no such split."""
    return f"no split {split!r}" in str(error)


def _divided(benchmark: Benchmark, buckets: tuple[int, ...], name: str) -> tuple[Benchmark, Benchmark]:
    """Return the queries of some of ten buckets, as a split of another name, and the others."""
    inside = {query_id for query_id in benchmark.queries if int(_digest(query_id), 16) % 10 in buckets}
    part = _filtered(benchmark, lambda query_id: query_id in inside)
    part = replace(part, card=replace(part.card, split=name))
    return part, _filtered(benchmark, lambda query_id: query_id not in inside)


def _without(benchmark: Benchmark, texts: set[str]) -> Benchmark:
    return _filtered(benchmark, lambda query_id: _normal(benchmark.queries[query_id]) not in texts)


def _filtered(benchmark: Benchmark, keeps: Callable[[str], bool]) -> Benchmark:
    queries = {query_id: text for query_id, text in benchmark.queries.items() if keeps(query_id)}
    qrels = {query_id: grades for query_id, grades in benchmark.qrels.items() if query_id in queries}
    card = replace(benchmark.card, queries=len(queries), judgements=sum(map(len, qrels.values())))
    return replace(benchmark, card=card, queries=queries, qrels=qrels)


def _texts(benchmark: Benchmark) -> set[str]:
    return {_normal(text) for text in benchmark.queries.values() if not is_blank(text)}


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())


def _digest(query_id: str) -> str:
    return hashlib.sha256(query_id.encode()).hexdigest()

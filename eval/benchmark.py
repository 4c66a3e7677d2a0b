"""Benchmarks: documents, queries, judgements and the identity card that says what a number on them means.

A layout is a way in which benchmarks lie on a disk. `LAYOUTS` lists them; each is served by a module of
functions, imported only when a benchmark is loaded:

    recognises(path: Path) -> bool                          # a look at names, and at one first line at most
    load(path: Path, split: str | None) -> Benchmark

A module that serves several layouts names the part in its functions: `recognises_advtest` and `load_advtest`
are what `Layout(name="advtest", module="retrieval.eval.codexglue", part="advtest", ...)` calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from retrieval.errors import DataError

CARD_FILE = "benchmark.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A document of a benchmark; `metadata` holds its further fields."""

    doc_id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Card:
    """The identity card of a benchmark: what a number on it means.

    Attributes:
        name: of the benchmark.
        split: whose queries and judgements these are.
        direction: what is searched with what, `text -> code`, `question -> passage`.
        pool: what each query is ranked against.
        title: what the title field holds, and whether it is searched.
        profile: the scoring profile that published numbers use, see `retrieval.eval.profiles`.
        source: where it comes from.
        licence: of its data.
        documents: in the corpus; None where they were not counted.
        queries: judged queries of the split.
        judgements: of the split.
        duplicates: documents whose text equals an earlier document's; None where they were not counted.
        notes: further facts: what was removed, dropped, chosen.
    """

    name: str
    split: str
    direction: str = ""
    pool: str = "the whole corpus"
    title: str = ""
    profile: str = ""
    source: str = ""
    licence: str = ""
    documents: int | None = None
    queries: int = 0
    judgements: int = 0
    duplicates: int | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the card as JSON holds it."""
        return asdict(self) | {"notes": list(self.notes)}


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A judged collection, of which one split is evaluated.

    Attributes:
        card: what a number on it means.
        queries: text by query_id, the judged queries of the split, in the order of their file.
        qrels: grade by doc_id, by query_id.
        corpus: opens the documents anew at each call, and streams them.
    """

    card: Card
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    corpus: Callable[[], Iterator[Document]]

    @classmethod
    def load(cls, source: str | Path, split: str | None = None, *, layout: str = "auto") -> Benchmark:
        """Load a benchmark."""
        raise NotImplementedError

    def save(self, folder: str | Path) -> None:
        """Write the benchmark as a BEIR folder with its card."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A way in which benchmarks lie on a disk.

    Attributes:
        name: what `layout=` calls it.
        module: serves it; imported when it is asked.
        looks: what is found there, for the message of a folder that no layout recognises.
        part: the suffix of its functions where a module serves several layouts.
    """

    name: str
    module: str
    looks: str
    part: str = ""

    def recognises(self, path: Path) -> bool:
        """Tell whether a folder or file looks like this layout."""
        return cast(bool, self._function("recognises")(path))

    def load(self, path: Path, split: str | None) -> Benchmark:
        """Load a split of the benchmark at `path`."""
        return cast(Benchmark, self._function("load")(path, split))

    def _function(self, name: str) -> Callable[..., object]:
        found = getattr(import_module(self.module), f"{name}_{self.part}" if self.part else name)
        return cast(Callable[..., object], found)


# The most specific first: a folder is given to the first that recognises it.
LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout(
            name="codesearchnet",
            module="retrieval.eval.codesearchnet",
            looks="<language>/final/jsonl/<split>/<language>_<split>_0.jsonl.gz",
        ),
        Layout(
            name="codesearchnet-challenge",
            module="retrieval.eval.codesearchnet",
            part="challenge",
            looks="annotationStore.csv beside the functions it judges",
        ),
        Layout(
            name="cosqa",
            module="retrieval.eval.cosqa",
            looks="cosqa-retrieval-<split>-*.json and code_idx_map.txt",
        ),
        Layout(
            name="advtest",
            module="retrieval.eval.codexglue",
            part="advtest",
            looks="train.jsonl, valid.jsonl, test.jsonl with docstring_tokens and function_tokens or code_tokens",
        ),
        Layout(
            name="webquery",
            module="retrieval.eval.codexglue",
            part="webquery",
            looks="test_webquery.json with doc and code",
        ),
        Layout(
            name="mbpp",
            module="retrieval.eval.programs",
            part="mbpp",
            looks="mbpp.jsonl with task_id, text and code",
        ),
        Layout(
            name="humaneval",
            module="retrieval.eval.programs",
            part="humaneval",
            looks="HumanEval.jsonl(.gz) with task_id, prompt and canonical_solution",
        ),
        Layout(
            name="hub",
            module="retrieval.eval.coir",
            looks="Parquet or JSONL in corpus/, queries/ and qrels/, or in <name>-queries-corpus and <name>-qrels",
        ),
        Layout(
            name="beir",
            module="retrieval.eval.beir",
            looks="queries.jsonl, qrels/<split>.tsv and corpus.jsonl",
        ),
    )
}


def choose_split(place: str | Path, there: list[str], split: str | None) -> str:
    """Return the split to take: the one asked for, else `test`, else the only one.

    Args:
        place: the benchmark, for the message.
        there: the splits that it has.
        split: the one asked for.

    Raises:
        DataError: it is not there, or none was asked for and there are several; lists those that are there.
    """
    if split is None:
        if "test" in there:
            return "test"
        if len(there) == 1:
            return there[0]
    elif split in there:
        return split
    listed = ", ".join(sorted(there)) or "none"
    if split is None:
        raise DataError(f"{place}: name a split; there are: {listed}")
    raise DataError(f"{place}: no split {split!r}; there are: {listed}")

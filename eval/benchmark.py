"""Benchmarks: documents, queries, judgements and the identity card that says what a number on them means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from retrieval.errors import ConfigError, DataError
from retrieval.eval.sources import Census
from retrieval.formats import kind_of
from retrieval.lines import shown

NO_TITLES = "no titles: a function's name stands in its code"  # of a card

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)*")


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
        """Load a benchmark from a copy on this machine, from ir_datasets or from the hub.

        Args:
            source: a folder or file; else an id of ir_datasets, such as `beir/scifact/test`; else the name of a
                data set on the hub, `owner/name`. What looks like a path is looked up nowhere.
            split: whose queries and judgements; None: `test` if it is there, else the only one.
            layout: one of `retrieval.eval.layouts.LAYOUTS`; `auto`: the first that recognises the folder.

        Raises:
            DataError: nothing is there, it cannot be read, or it has no such split (the message lists them).
            ConfigError: no such layout.
            MissingDependencyError: a name was given, and ir_datasets is not installed.
        """
        from retrieval.eval.layouts import LAYOUTS, layout_of  # its readers make benchmarks, and so import this module

        if layout != "auto" and layout not in LAYOUTS:
            raise ConfigError(f"layout {layout!r}: expected auto or one of {', '.join(LAYOUTS)}")
        path = Path(source)
        if source and _exists(path):
            return (layout_of(path) if layout == "auto" else LAYOUTS[layout]).load(path, split)
        if isinstance(source, Path) or kind_of(source) or not _NAME.fullmatch(source):
            raise DataError(f"{shown(str(source), 1000)}: no such file or folder")
        return _by_name(source, split)

    @classmethod
    def from_files(cls, queries: str | Path, qrels: str | Path) -> Benchmark:
        """Make a benchmark of a file of queries and one of judgements, to evaluate an index that is there.

        Raises:
            DataError: one of them cannot be read, or a judged query has no text.
        """
        from retrieval.qrels import read_qrels
        from retrieval.queries import read_queries

        def no_corpus() -> Iterator[Document]:
            raise DataError(f"{queries}: queries and judgements only, without documents")

        card = Card(name=Path(queries).name, split=Path(qrels).name)
        return assemble(queries, card, read_queries(queries), read_qrels(qrels), no_corpus)

    def save(self, folder: str | Path) -> Card:
        """Write a BEIR folder with `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv` and the card, at once.

        Returns:
            The card, with all counts.

        Raises:
            ConfigError: something is in the way.
            DataError: it cannot be written, or does not fit the files; nothing is left behind.
        """
        from retrieval.eval.beir import write_benchmark

        return write_benchmark(folder, self.corpus(), self.queries, {self.card.split: self.qrels}, self.card)


def assemble(
    place: str | Path,
    card: Card,
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    corpus: Callable[[], Iterator[Document]],
) -> Benchmark:
    """Make a benchmark of its parts: queries without a judgement are left out, the card gets its counts.

    Args:
        place: where it comes from, for the message.
        card: its counts of queries and judgements are replaced.
        queries: text by query_id, of all queries, in the order of their file.
        qrels: of one split.
        corpus: opens the documents anew at each call.

    Raises:
        DataError: judged queries have no text; gives their number and the first.
    """
    lost = [query_id for query_id in qrels if query_id not in queries]
    if lost:
        others = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise DataError(
            f"{place}: query {lost[0]!r}{others} of split {card.split!r} has judgements but no text among the queries"
        )
    judged = {query_id: text for query_id, text in queries.items() if query_id in qrels}
    counted = replace(card, queries=len(judged), judgements=sum(map(len, qrels.values())))
    return Benchmark(card=counted, queries=judged, qrels=qrels, corpus=corpus)


def assemble_held(
    place: str | Path,
    card: Card,
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    documents: Sequence[Document],
) -> Benchmark:
    """Make a benchmark as `assemble` does, of documents in memory; the card gets their counts too, and what they mean.

    Args:
        place: as for `assemble`.
        card: its counts are replaced; a note on repeated documents is added.
        queries: as for `assemble`.
        qrels: as for `assemble`.
        documents: the corpus.

    Raises:
        DataError: as `assemble`.
    """
    census = Census()
    for document in documents:
        census.add(document.text)
    notes = (*card.notes, *census.notes())
    card = replace(card, documents=census.documents, duplicates=census.duplicates, notes=notes)
    return assemble(place, card, queries, qrels, lambda: iter(documents))


def choose_split(place: str | Path, there: Iterable[str], split: str | None) -> str:
    """Return the split to take: the one asked for, else `test`, else the only one.

    Args:
        place: the benchmark, for the message.
        there: the splits that it has.
        split: the one asked for.

    Raises:
        DataError: it is not there, or none was asked for and there are several; lists those that are there.
    """
    names = sorted(set(there))
    if split is None:
        if "test" in names:
            return "test"
        if len(names) == 1:
            return names[0]
    elif split in names:
        return split
    listed = ", ".join(names) or "none"
    if split is None:
        raise DataError(f"{place}: name a split; there are: {listed}")
    raise DataError(f"{place}: no split {split!r}; there are: {listed}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long for the file system, or with a null character
        return False


def _by_name(name: str, split: str | None) -> Benchmark:
    """Load what is no path: an id of ir_datasets, or a data set on the hub."""
    from retrieval.eval.hub import load_by_name
    from retrieval.eval.irdatasets import knows, load

    if knows(name):
        return load(name, split)
    if name.count("/") == 1:
        return load_by_name(name, split)
    raise DataError(f"{name}: neither a folder nor an id of ir_datasets (a data set on the hub is owner/name)")

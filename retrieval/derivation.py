"""A benchmark derived from documents that nobody has judged: their parts, asked for by title, heading or docstring."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from retrieval.counts import many
from retrieval.errors import DataError
from retrieval.eval.beir import write_benchmark
from retrieval.eval.benchmark import Card, Document
from retrieval.eval.leaks import key
from retrieval.eval.mining import SPLITS, split_of
from retrieval.files import atomic_write
from retrieval.reassembly import titles_and_texts
from retrieval.structure import KINDS, Part, parts_of

LEAST = {"train": 50, "test": 20}
"""Queries that a tuning needs."""

MOST = {"train": 20_000, "dev": 1_000, "test": 1_000}
"""Queries that it makes use of; what is trained for an hour on a CPU sees no more of them."""

CAVEAT = "a proof on such pairs is not a proof on your users' queries"
_COUNTS = "derivation.json"


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """What was made of the structure of documents.

    Attributes:
        documents: Documents looked at.
        parts: Documents of the benchmark.
        pairs: Queries by kind, see `retrieval.structure.KINDS`; each has one relevant part.
        splits: Queries by split.
        left_out: Parts that are no documents of the benchmark, by reason.
        no_query: Parts that nothing asks for, by reason.
    """

    documents: int = 0
    parts: int = 0
    pairs: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    no_query: Mapping[str, int] = field(default_factory=dict)

    def sentence(self) -> str:
        """Say what the pairs are, and what they do not prove."""
        counts = ", ".join(f"{count:,} {kind}" for kind, count in self.pairs.items())
        return f"pairs were made from the documents' structure: {counts}; {CAVEAT}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for `json.dumps`."""
        return asdict(self)


def derive(corpus: str | Path, folder: str | Path, *, name: str) -> Derivation:
    """Write a benchmark of the parts of documents: a BEIR folder with splits, and what was counted beside its card.

    All pairs of a document are in one split, drawn by the SHA-256 of its id: 80 % train, 10 % dev, 10 % test, at most
    `MOST`, those whose SHA-256 is the smallest. Parts that equal an earlier one are left out, as are queries that ask
    for several parts, and headings of one or two words that several sections have. The documents are read twice, so
    that memory holds the queries, but no texts.

    Args:
        corpus: A file that `reassembly.write_documents` made.
        folder: The folder to make; where there is one that this call made before, it is read.
        name: Of the benchmark.

    Raises:
        DataError: Fewer pairs than `LEAST`; says what was found, and what to do.
    """
    counts = Path(folder).with_name(_COUNTS)
    if Path(folder).exists():
        return Derivation(**json.loads(counts.read_text()))
    seen = _Parts(corpus)
    asked = _settled(seen)
    chosen = _chosen(asked, seen.no_query)
    found = Derivation(
        documents=seen.documents,
        parts=seen.parts,
        pairs={kind: sum(one.kind == kind for some in chosen.values() for one in some) for kind in KINDS},
        splits={split: len(some) for split, some in chosen.items()},
        left_out=_sorted(seen.left_out),
        no_query=_sorted(seen.no_query),
    )
    if any(found.splits[split] < least for split, least in LEAST.items()):
        raise DataError(_too_few(name, found))
    with atomic_write(counts) as stream:
        stream.write(json.dumps(found.to_dict()).encode())
    write_benchmark(
        folder,
        (Document(doc_id=part.doc_id, text=part.text) for _, part in _Parts(corpus)),
        {one.query_id: one.query for some in chosen.values() for one in some},
        {split: {one.query_id: {one.doc_id: 1} for one in some} for split, some in chosen.items() if some},
        _card(name, found),
    )
    return found


class _Asked(NamedTuple):
    """A part that something asks for."""

    source: str  # the id of its document
    doc_id: str
    kind: str
    query: str
    heading: str

    @property
    def query_id(self) -> str:
        """Not the part's id: tools leave out hits with the id of their query."""
        return f"q:{self.doc_id}"


class _Parts:
    """The parts of a file's documents that equal no earlier one, with the id of the document, and counts."""

    def __init__(self, corpus: str | Path) -> None:
        self._corpus = corpus
        self.documents = self.parts = 0
        self.left_out: Counter[str] = Counter()
        self.no_query: Counter[str] = Counter()

    def __iter__(self) -> Iterator[tuple[str, Part]]:
        marks: set[int] = set()
        for doc_id, title, text in titles_and_texts(self._corpus):
            self.documents += 1
            for part in parts_of(doc_id, title, text):
                if part.left_out or part.mark in marks:
                    self.left_out[part.left_out or "equal to an earlier text"] += 1
                    continue
                marks.add(part.mark)
                self.parts += 1
                if part.no_query:
                    self.no_query[part.no_query] += 1
                yield doc_id, part


def _settled(seen: _Parts) -> list[_Asked]:
    """Collect what is asked for by a query of its own."""
    found = [_Asked(source, one.doc_id, one.kind, one.query, one.heading) for source, one in seen if one.query]
    keys = [key(one.query) for one in found]
    queries, headings = Counter(keys), Counter(one.heading for one in found)
    kept: list[_Asked] = []
    for words, one in zip(keys, found, strict=True):
        if queries[words] > 1:
            seen.no_query["query shared with another text"] += 1
        elif one.heading and headings[one.heading] > 1:
            seen.no_query["short heading that several sections have"] += 1
        else:
            kept.append(one)
    return kept


def _chosen(asked: Sequence[_Asked], no_query: Counter[str]) -> dict[str, list[_Asked]]:
    """Draw the splits, by document."""
    found: dict[str, list[_Asked]] = {split: [] for split in SPLITS}
    for one in asked:
        found[split_of(one.source)].append(one)
    for split, some in found.items():
        if len(some) > MOST[split]:
            no_query[f"more than the {MOST[split]:,} queries of {split} that are used"] += len(some) - MOST[split]
            first = set(sorted((one.query_id for one in some), key=_digest)[: MOST[split]])
            found[split] = [one for one in some if one.query_id in first]
    return found


def _digest(query_id: str) -> str:
    return sha256(query_id.encode()).hexdigest()


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    """The largest counts first, equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _listed(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{count:,} {reason}" for reason, count in counts.items()) or "none"


def _too_few(name: str, found: Derivation) -> str:
    splits = ", ".join(f"{count:,} {split}" for split, count in found.splits.items())
    least = ", ".join(f"{number} {split}" for split, number in LEAST.items())
    return (
        f"{name}: too few pairs to tune with: {_listed(found.pairs)} of {many(found.documents, 'document')} ({splits}; "
        f"at least {least}); nothing asks for other parts: {_listed(found.no_query)}; parts left out: "
        f"{_listed(found.left_out)}. Give judged queries (--benchmark; of source code, `retrieve make-benchmark` makes "
        "some), or index documents with titles or headings"
    )


def _card(name: str, found: Derivation) -> Card:
    return Card(
        name=name,
        split="test",
        direction="title, heading or docstring -> text",
        title="no titles: they are queries",
        source=f"the structure of {many(found.documents, 'document')}",
        licence="that of the documents",
        notes=(
            found.sentence(),
            f"parts without a query: {_listed(found.no_query)}",
            f"parts left out: {_listed(found.left_out)}",
            "splits by document (SHA-256 of its id: 80 % train, 10 % dev, 10 % test) over one corpus for all",
        ),
    )

"""Choosing an approximate index: the first that reaches a recall, which queries prove that its tuning did not see.

Queries are passages that are not in the index yet: a graph finds the neighbours of its own nodes too easily (measured:
recall .98 where texts from outside got .94). They are added when all is measured.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retrieval.counts import many
from retrieval.errors import ConfigError
from retrieval.index.approximate import ApproximateIndex, VectorSource, blocks_without, plans
from retrieval.index.vectors import exact_scores, nearest

log = logging.getLogger(__name__)

_SAMPLE = 500  # queries of a sample, at most; in small indexes a twentieth of the passages
_SAMPLES = 4  # the first is tuned on, the next one proves it; where that fails, it is tuned on too, and so on
_DEPTH = 10  # recall is that of the 10 best
_MOST_CANDIDATES = 2048
_LEAST_CANDIDATES = 32
_LEAST_ROWS = 20  # enough that each sample has a passage, and most are in the index
_SAME_RECALL = 0.01
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What an approximate index has to be.

    Attributes:
        index_type: auto, flat, hnsw, ivf, ivfsq, ivfpq or a FAISS factory string.
        min_recall: Share of the 10 best passages that has to be found.
        memory_limit: Bytes that searching may hold beyond the mapped vectors, or None.
    """

    index_type: str = "auto"
    min_recall: float = 0.99
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.min_recall <= 1:
            raise ConfigError(f"--min-recall {self.min_recall}: expected a share above 0, up to 1")
        if self.memory_limit is not None and self.memory_limit <= 0:
            raise ConfigError(f"--memory-limit {self.memory_limit}: expected a number of bytes above 0")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was chosen.

    Attributes:
        index: The index with its parameters, or None for exact search.
        factory: Its FAISS factory string, "" without one.
        recall: Recall@10 on queries that the tuning did not see.
        queries: How many these were.
        notices: Lines that the user should see.
    """

    index: ApproximateIndex | None
    factory: str = ""
    recall: float = 1.0
    queries: int = 0
    notices: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Passages that serve as queries.

    Attributes:
        rows: Which they are, (s,) int64.
        least: Of each the score of its 10th best neighbour in the index, (s,) float32, or of its last one.
        neighbours: How many these are.
    """

    rows: np.ndarray
    least: np.ndarray
    neighbours: int


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A recall, and how many queries it was measured on."""

    recall: float
    queries: int


def choose(source: VectorSource, searchable: np.ndarray, wanted: Wanted) -> Choice:
    """Build, tune and measure what fits, and return the first that reaches the recall; with `auto` else exact search.

    A type that was named is kept also when it misses the recall or the memory, with a notice.

    Args:
        source: The vectors.
        searchable: Rows that can be found, (n,) int64.
        wanted: The type, the least recall, and the memory.

    Raises:
        ConfigError: An index type that is none, or that cannot be built from so many vectors.
    """
    named = wanted.index_type.lower() != "auto"
    notices: list[str] = []
    tried = plans(wanted.index_type, rows=source.rows, dim=source.dim, memory_limit=wanted.memory_limit)
    if not tried:
        notices.append(f"no approximate index fits in --memory-limit {wanted.memory_limit:,} bytes: search is exact")
    samples = Samples(source, searchable)
    for one in tried:
        notices += [one.notice] if one.notice else []
        if one.factory is None:
            return Choice(index=None, notices=notices)
        if len(searchable) < _LEAST_ROWS:
            few = many(len(searchable), "passage")
            return Choice(index=None, notices=[f"{one.factory} for {few}: search is exact"])
        log.info("building %s over %d passages", one.factory, source.rows)
        index = ApproximateIndex.build(one.factory, source, without=samples.rows)
        proof = prove(index, source, samples, wanted.min_recall)
        index.add(source.take(samples.rows), samples.rows)
        short = _shortcomings(index, proof, wanted)
        notices += [f"{one.factory} {what}" for what in short]
        if named or not short:
            return Choice(index=index, factory=one.factory, recall=proof.recall, queries=proof.queries, notices=notices)
    if tried:
        notices.append("no approximate index does what was asked for: search is exact")
    return Choice(index=None, notices=notices)


def _shortcomings(index: ApproximateIndex, proof: Proof, wanted: Wanted) -> list[str]:
    found = []
    if proof.recall < wanted.min_recall:
        seen = many(proof.queries, "passage")
        found.append(f"reaches recall@10 {proof.recall:.4f} on {seen}, below --min-recall {wanted.min_recall}")
    if wanted.memory_limit is not None and index.bytes > wanted.memory_limit:
        found.append(f"has {index.bytes:,} bytes, above --memory-limit {wanted.memory_limit:,}")
    return found


class Samples:
    """Disjoint samples of the passages that can be found; neighbours are searched when a sample is first needed."""

    def __init__(self, source: VectorSource, searchable: np.ndarray) -> None:
        """Draw four samples from the rows `searchable`, (n,) int64."""
        self._source = source
        size = min(_SAMPLE, math.ceil(len(searchable) / 20))
        drawn = np.random.default_rng(0).permutation(searchable)[: _SAMPLES * size]
        self._rows = [np.sort(rows) for rows in np.array_split(drawn, _SAMPLES)]
        self._known: dict[int, Sample] = {}
        self.rows = np.sort(drawn)

    def __getitem__(self, number: int) -> Sample:
        """Return a sample."""
        if number not in self._known:
            rows = self._rows[number]
            queries = self._source.take(rows)
            found = nearest(blocks_without(self._source, self.rows), queries, _DEPTH)
            least = [exact_scores(q, self._source.take(near)).min() for q, near in zip(queries, found, strict=True)]
            self._known[number] = Sample(rows=rows, least=np.array(least, np.float32), neighbours=found.shape[1])
        return self._known[number]


def prove(index: ApproximateIndex, source: VectorSource, samples: Samples, min_recall: float) -> Proof:
    """Tune an index on some queries, and measure its recall on others.

    Where these tell that it falls short, they are tuned on too, and others again measure it.
    """
    seen: list[Sample] = []
    for number in range(_SAMPLES - 1):
        seen.append(samples[number])
        reached = tune(index, source, seen, min_recall)
        shares = found_shares(index, source, samples[number + 1])
        recall = float(shares.mean())
        if recall >= min_recall or not reached:
            break
    return Proof(recall=recall, queries=len(shares))


def found_shares(index: ApproximateIndex, source: VectorSource, sample: Sample) -> np.ndarray:
    """Of each query's 10 best neighbours tell the share that is found, (s,) float64; the candidates are rescored.

    What scores as high as the 10th best is as good as that one.
    """
    queries = source.take(sample.rows)
    found = index.search(queries, min(index.candidates, index.rows))
    shares = []
    for query, (_, rows), least in zip(queries, found, sample.least, strict=True):
        scores = exact_scores(query, source.take(rows))
        count = np.count_nonzero(scores >= least - _ROUNDING)
        shares.append(min(1.0, count / sample.neighbours))
    return np.array(shares)


def tune(index: ApproximateIndex, source: VectorSource, samples: Sequence[Sample], min_recall: float) -> bool:
    """Set how many candidates are rescored, and nprobe or efSearch, each to the least that reaches a recall.

    Reached is a recall when the mean is a standard error above it. Where that is out of reach, the least value stays
    that is within .01 of the best, since looking further would cost time for nothing.

    Returns:
        Whether the recall is reached.
    """
    beam = index.beam()
    if beam:
        index.parameters[beam.name] = beam.ample
    most = min(_MOST_CANDIDATES, index.rows)
    reached = _set_least(index, "candidates", _LEAST_CANDIDATES, most, source, samples, min_recall)
    if beam:
        reached = _set_least(index, beam.name, beam.first, beam.most, source, samples, min_recall)
    return reached


def _set_least(
    index: ApproximateIndex,
    name: str,
    first: int,
    most: int,
    source: VectorSource,
    samples: Sequence[Sample],
    aim: float,
) -> bool:
    """Double a parameter until the aim is reached, then halve the step back to the least that does."""
    known: dict[int, float] = {}

    def at(value: int) -> float:
        """Recall with this value, less its standard error."""
        if value not in known:
            index.parameters[name] = value
            shares = np.concatenate([found_shares(index, source, sample) for sample in samples])
            known[value] = float(shares.mean() - shares.std() / len(shares) ** 0.5)
        return known[value]

    value = min(first, most)
    while at(value) < aim and value < most:
        value = min(2 * value, most)
    reached = at(value) >= aim
    enough = aim if reached else max(known.values()) - _SAME_RECALL
    high = min(value for value, recall in known.items() if recall >= enough)
    low = max((value for value in known if value < high), default=high)
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (low, middle) if at(middle) >= enough else (middle, high)
    index.parameters[name] = high
    return reached

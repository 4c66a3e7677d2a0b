"""Reading an index: opening one generation of it, searching its vectors, fetching its rows."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrieval.errors import ConfigError, IndexFormatError
from retrieval.files import require_utf8
from retrieval.filters import Where, passing
from retrieval.hybrid import Fusion
from retrieval.index.approximate import ApproximateIndex
from retrieval.index.gpu import GpuLists, GpuRows, on_gpus
from retrieval.index.lexical import RARE, Keywords, Postings, best_rows
from retrieval.index.manifest import Manifest, unreadable
from retrieval.index.mapped import sound
from retrieval.index.segment import Raw, Rows, Segment, merged
from retrieval.index.vectors import checked, exact_scores
from retrieval.ranking import Candidate, Span, best_passages, ordered
from retrieval.terms import TERMS_VERSION, QueryTerms
from retrieval.units import UNIT_FIELDS

_OPEN_TRIES = 20  # a writer may commit, and remove what is no longer listed, while a reader opens
_QUERIES_AT_ONCE = 256
_MAX_FETCH = 65_536  # passages fetched for one query when that many tie at the cut; more only to find k documents
_RESULTS_AT_ONCE = 2**24  # scores and rows of one call of FAISS, 12 bytes each
_SCORED_AT_ONCE = 65_536  # vectors held in float64
_EXACT_BELOW = 0.2  # share of rows that pass a filter below which an approximate index is not worth asking

_POOL = 100  # documents of each side whose scores are mixed; more if more are asked for
_MIXED = ("dense_score", "lexical_score", "named")
_SPANS = 3  # further passages of a hit's document
_SPAN = ("start", "end", "text", *(field.name for field in UNIT_FIELDS))

_FILTERS_KEPT = 8  # masks of filters, a byte a passage each

Group = Literal["document", "passage"]
Asked = np.ndarray | Sequence[str]
"""A query's vector (dim,) float32, or its terms."""


class Index:
    """One generation of an index, mapped. Safe to use from several threads; later commits do not touch it."""

    def __init__(self, path: Path, manifest: Manifest, *, verify: bool = False) -> None:
        """Open the files that `manifest` lists (see `open`)."""
        self.path = path
        self.manifest = manifest
        self.dim = manifest.dim
        self.rows = Rows(
            [
                Segment(path, entry, dim=manifest.dim, dtype=manifest.vector_dtype, verify=verify)
                for entry in manifest.segments
            ],
            dim=manifest.dim,
        )
        self._deleted = _read_deleted(path, manifest, verify=verify)
        self._postings = [
            Postings(path, entry.lexical, rows=entry.rows, verify=verify)
            for entry in manifest.segments
            if entry.lexical
        ]
        self._passing: dict[str, np.ndarray] = {}
        self._exact: Rows | GpuRows = self.rows
        self._approximate: ApproximateIndex | None = None
        self._covered = 0
        if entry := manifest.approximate:
            self._covered = sum(s.rows for s in manifest.segments if s.id in entry.segments)
            self._approximate = ApproximateIndex.open(entry.file.check(path, verify=verify), entry.parameters)
            if self._approximate.rows != self._covered:
                raise IndexFormatError(f"{path / entry.file.path}: covers other rows than listed; rebuild the index")

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = False) -> Index:
        """Open the newest generation of the index at `path`; nothing is written.

        Args:
            path: The index folder.
            verify: Hash every file, also those larger than 16 MiB.

        Raises:
            IndexFormatError: No index there, a damaged or missing file, a newer format.
            ConfigError: A name that is not UTF-8.
        """
        path = Path(path).expanduser()
        require_utf8(path)
        manifest = Manifest.read(path)
        for _ in range(_OPEN_TRIES):
            try:
                return cls(path, manifest, verify=verify)
            except (IndexFormatError, OSError) as error:
                newest = Manifest.read(path)
                if newest.generation == manifest.generation:
                    if isinstance(error, OSError):
                        raise unreadable(path, error) from error
                    raise
                manifest = newest
        raise IndexFormatError(f"{path} changes faster than it can be opened; try again")

    def use_gpus(self, memory: Mapping[int, int]) -> None:
        """Search by vectors on GPUs from here on, where FAISS has some that can hold what is searched (see `gpu`).

        Args:
            memory: Free bytes of each GPU that may be used, by its number.
        """
        entry, half = self.manifest.approximate, self.manifest.vector_dtype == "float16"
        held = on_gpus(
            self.rows, self._approximate, memory, half=half, file_bytes=entry.file.bytes if entry else 0, what=self.path
        )
        if isinstance(held, GpuLists):
            self._approximate = held
        elif held is not None:
            self._exact, self._approximate, self._covered = held, None, 0

    @functools.cached_property
    def live(self) -> np.ndarray | None:
        """Rows that a search may return, (rows,) bool: neither deleted nor without text; None when that is all."""
        if self._deleted is None and all(s.without_text is None for s in self.rows.segments):
            return None
        mask = np.ones(self.rows.rows, bool)
        for start, segment in zip(self.rows.starts, self.rows.segments, strict=False):
            if segment.without_text is not None:
                mask[start : start + segment.rows] = ~segment.without_text
        if self._deleted is not None:
            mask[self._deleted] = False
        return mask

    @property
    def deleted_rows(self) -> np.ndarray:
        """Tombstones: global rows, sorted, (d,) int64."""
        return np.empty(0, np.int64) if self._deleted is None else self._deleted

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The columns of all segments; where their types differ, those of the first."""
        fields: dict[str, pa.Field] = {}
        for segment in self.rows.segments:
            for field in segment.schema:
                fields.setdefault(field.name, field)
        return pa.schema(list(fields.values()))

    @functools.cached_property
    def without_keywords(self) -> str:
        """Why there is no keyword search, and the way out; "" where there is."""
        made = [entry.lexical for entry in self.manifest.segments]
        if self.manifest.lexical is None:
            return f"{self.path} has no keyword part; `retrieve compact` makes it"
        if not self.manifest.lexical:
            return f"{self.path} was built without its keyword part; rebuild it, without --no-lexical"
        if others := {entry.terms_version for entry in made if entry} - {TERMS_VERSION}:
            return (
                f"the keyword part of {self.path} is of version {min(others)} and this release reads {TERMS_VERSION}; "
                "`retrieve compact` makes it anew"
            )
        return ""

    def require_keywords(self) -> None:
        """Refuse an index that cannot be searched by keywords.

        Raises:
            ConfigError: Says why, and the way out.
        """
        if self.without_keywords:
            raise ConfigError(self.without_keywords)

    @functools.cached_property
    def _keywords(self) -> Keywords:
        self.require_keywords()
        return Keywords(self._postings, self.live)

    @property
    def fusion(self) -> Fusion:
        """How the scores of both sides are mixed: as the index says, or by the default."""
        return self.manifest.fusion or Fusion()

    def search(
        self, queries: np.ndarray, k: int, *, where: Where | None = None, group: Group = "document"
    ) -> list[list[Candidate]]:
        """Find the k best documents of each query by vectors, in the total order of `ranking`.

        Args:
            queries: (q, dim) float32, unit rows under cosine.
            k: Documents for each query; fewer are returned when fewer pass.
            where: A predicate on columns.
            group: Whether a document stands once, by its best passage, or k passages are found, each by itself.

        Raises:
            DataError: Queries of another dimension or with NaN; a predicate that does not fit the columns.
        """
        queries = checked(queries, self.dim, what="query vectors")
        allowed = self._allowed(where)
        return self._by_vectors(queries, k, allowed, group)

    def search_lexical(
        self,
        queries: Sequence[Sequence[str]],
        k: int,
        *,
        where: Where | None = None,
        group: Group = "document",
    ) -> list[list[Candidate]]:
        """Find the k best documents of each query by its terms (BM25), in the total order of `ranking`.

        Args:
            queries: The terms of each query (see `retrieval.terms`); passages without any of them are no hits.
            k: As in `search`, like the rest.
            where: A predicate on columns; statistics are those of all live passages.
            group: Whether a document stands once.

        Raises:
            ConfigError: The index has no keyword part.
            DataError: A predicate that does not fit the columns.
        """
        allowed = self._allowed(where)
        return [self._by_terms(self._keywords.scores(query), k, allowed, group) for query in queries]

    def search_hybrid(
        self,
        queries: np.ndarray,
        terms: Sequence[QueryTerms],
        k: int,
        *,
        where: Where | None = None,
        group: Group = "document",
        fusion: Fusion | None = None,
    ) -> list[list[Candidate]]:
        """Find the k best documents of each query by both sides.

        The best of each side (100, or k if that is more), by their best passages, are one pool. Each passage in it
        gets its score on both sides, and these are mixed.

        Args:
            queries: (q, dim) float32, unit rows under cosine.
            terms: The terms of each of them.
            k: As in `search`, like the rest.
            where: A predicate on columns.
            group: Whether a document stands once.
            fusion: How scores are mixed; None: as the index says.

        Raises:
            ConfigError: The index has no keyword part.
            DataError: Queries of another dimension or with NaN; a predicate that does not fit the columns.
        """
        queries = checked(queries, self.dim, what="query vectors")
        allowed, fusion = self._allowed(where), fusion or self.fusion
        return [ordered_by(fusion, pool, group)[:k] for pool in self._pools(queries, terms, k, allowed, group)]

    def pools(
        self,
        queries: np.ndarray,
        terms: Sequence[QueryTerms],
        k: int,
        *,
        where: Where | None = None,
        group: Group = "document",
    ) -> Iterator[Pool]:
        """Return what `search_hybrid` orders: each query's passages with the scores of both sides, not mixed yet."""
        queries = checked(queries, self.dim, what="query vectors")
        return self._pools(queries, terms, k, self._allowed(where), group)

    def _pools(
        self,
        queries: np.ndarray,
        terms: Sequence[QueryTerms],
        k: int,
        allowed: np.ndarray | None,
        group: Group,
    ) -> Iterator[Pool]:
        depth = max(k, _POOL)
        by_vectors = self._by_vectors(queries, depth, allowed, group)
        for query, near, asked in zip(queries, by_vectors, terms, strict=True):
            scores = self._keywords.scores(asked.terms)
            pool = {one.row: one for one in [*near, *self._by_terms(scores, depth, allowed, group)]}
            defining = self._defining(asked.defined, allowed)
            pool |= {row: self._candidate(0.0, row) for row in defining.tolist() if row not in pool}
            rows = np.array(sorted(pool), np.int64)
            named = self._keywords.named(asked.names, rows) + 2 * np.isin(rows, defining)
            found = (self._dense_scores(query, rows), scores[rows], named)
            columns = (part.tolist() for part in (rows, *found))
            yield Pool(
                candidates=[
                    replace(pool[row], dense_score=dense, lexical_score=lexical, named=named)
                    for row, dense, lexical, named in zip(*columns, strict=True)
                ],
                is_name=asked.is_name,
            )

    def _defining(self, names: Sequence[str], allowed: np.ndarray | None) -> np.ndarray:
        """Return the rows that define a name which few rows define, (n,) int64."""
        found = [np.empty(0, np.int64)]
        for name in names:
            rows = [s.defining(name) + start for s, start in zip(self.rows.segments, self.rows.starts, strict=False)]
            some = np.concatenate([found[0], *rows])
            some = some if allowed is None else some[allowed[some]]
            if len(some) <= RARE:
                found.append(some)
        return np.unique(np.concatenate(found))

    def _by_vectors(
        self, queries: np.ndarray, k: int, allowed: np.ndarray | None, group: Group
    ) -> list[list[Candidate]]:
        available = self.rows.rows if allowed is None else int(allowed.sum())
        results: list[list[Candidate]] = [[] for _ in queries]
        pending = list(range(len(queries))) if available else []
        per_document = (
            max(1.0, self.manifest.passages / max(1, self.manifest.documents)) if group == "document" else 1.0
        )
        fetch = min(available, int(k * min(per_document, 8.0)) + 16)
        while pending:
            unfinished = []
            at_once = max(1, min(_QUERIES_AT_ONCE, _RESULTS_AT_ONCE // fetch))
            for start in range(0, len(pending), at_once):
                chunk = pending[start : start + at_once]
                for query, raw in zip(chunk, self._raw(queries[chunk], fetch, allowed, available), strict=True):
                    results[query], complete = self._rank(queries[query], raw, k, group)
                    most = available if len(results[query]) < k else min(available, _MAX_FETCH)
                    if not complete and fetch < most:
                        unfinished.append(query)
            pending = unfinished
            fetch = min(available, fetch * 4)
        return results

    def _by_terms(self, scores: np.ndarray, k: int, allowed: np.ndarray | None, group: Group) -> list[Candidate]:
        """Order the rows that have a score, (rows,) float64, and may be found; the k best are settled."""
        matching = np.flatnonzero(scores)
        if allowed is not None:
            matching = matching[allowed[matching]]
        return self._best(scores[matching], matching, k, group, by_terms=True)

    def _best(
        self, scores: np.ndarray, rows: np.ndarray, k: int, group: Group, *, by_terms: bool = False
    ) -> list[Candidate]:
        """Of rows (n,) with scores (n,) find the first k in the total order; no more cells are read than that takes."""
        fetch = k
        while True:
            at = best_rows(scores, np.arange(len(rows)), fetch)
            pairs = zip(scores[at].tolist(), rows[at].tolist(), strict=True)
            found = _grouped([self._candidate(score, row, by_terms=by_terms) for score, row in pairs], group)
            if len(found) >= k or len(at) == len(rows):
                return found[:k]
            fetch *= 4

    def spans(
        self, found: Sequence[Sequence[Candidate]], asked: Sequence[Asked], *, where: Where | None = None
    ) -> list[list[tuple[Span, ...]]]:
        """Find the next best passages of documents that a search found (see `Hit.spans`).

        Args:
            found: For each query candidates, each the best passage of its document.
            asked: What the passages of each query are scored by; of terms they hold one at least.
            where: The predicate of the search.

        Returns:
            For each candidate at most three, best first.
        """
        if self.manifest.passages == self.manifest.documents:
            return [[() for _ in some] for some in found]  # a passage each
        allowed = self._allowed(where)
        return [self._spans_of(some, by, allowed) if some else [] for some, by in zip(found, asked, strict=True)]

    def _spans_of(self, found: Sequence[Candidate], asked: Asked, allowed: np.ndarray | None) -> list[tuple[Span, ...]]:
        if isinstance(asked, np.ndarray):
            return [self._spans(one, allowed, functools.partial(self._dense_scores, asked)) for one in found]
        scores = self._keywords.scores(asked)
        holding = scores > 0 if allowed is None else allowed & (scores > 0)
        return [self._spans(one, holding, scores.__getitem__) for one in found]

    def _spans(
        self, best: Candidate, allowed: np.ndarray | None, score: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[Span, ...]:
        """Tell the next best passages of a document; `score` gives numbers (n,) for global rows (n,)."""
        rows = self._others(best)
        if allowed is not None:
            rows = rows[allowed[rows]]
        scores = score(rows)
        seen, spans = {self.passage(best.row).get("section")}, []
        for at in np.argsort(-scores, kind="stable").tolist():
            passage = self.passage(int(rows[at]))
            section = passage.get("section")
            if section and section in seen:
                continue
            seen.add(section)
            spans.append(Span(score=float(scores[at]), **{name: passage[name] for name in _SPAN if name in passage}))
            if len(spans) == _SPANS:
                break
        return tuple(spans)

    def _others(self, candidate: Candidate) -> np.ndarray:
        """Return the global rows of a document's other passages, which stand around this one, (n,) int64."""
        segment, local = self.rows.locate(candidate.row)
        first = local - candidate.passage
        if not 0 <= first <= local:
            raise segment.damaged()

        def is_other(count: int) -> bool:
            """Whether passage `count` is another document's, which all that follow are then too."""
            return first + count >= segment.rows or segment.cells(first + count, ("passage",)) != [count]

        low, step = candidate.passage, 1
        while not is_other(low + step):
            low, step = low + step, step * 2
        count = bisect.bisect_left(range(low + step), True, lo=low + 1, key=is_other)
        return candidate.row - candidate.passage + np.delete(np.arange(count), candidate.passage)

    def _allowed(self, where: Where | None) -> np.ndarray | None:
        """Rows that pass a filter and may be found, (rows,) bool, or None for all; SQL is evaluated once."""
        if where is None:
            return self.live
        known = self._passing.get(where) if isinstance(where, str) else None
        if known is not None:
            return known
        mask = passing(where, self.rows.segments, place=self.path)
        mask = mask if self.live is None else mask & self.live
        if isinstance(where, str):
            if len(self._passing) >= _FILTERS_KEPT:
                self._passing.clear()
            self._passing[where] = mask
        return mask

    def _raw(self, queries: np.ndarray, fetch: int, allowed: np.ndarray | None, available: int) -> list[Raw]:
        """The first stage's own answer: for each query about `fetch` scores and global rows, best first."""
        covered = None if allowed is None else allowed[: self._covered]
        passing = self._covered if covered is None else int(covered.sum())
        if self._approximate is None or passing == 0 or available < _EXACT_BELOW * self.rows.rows:
            return self._exact.search(queries, fetch, allowed)
        least, fetch = min(fetch, passing), max(fetch, self._approximate.candidates)
        wanted = min(fetch, passing)
        if covered is None:
            raws, least = self._approximate.search(queries, wanted), wanted
        else:
            # As many as hold `wanted` that pass, and a quarter more, if those that pass lie anywhere. Where fewer are
            # among a query's neighbours, they lie farther away than the index looks well, or at all.
            asked = min(self._covered, math.ceil(1.25 * wanted * self._covered / passing))
            found = self._approximate.search(queries, asked, wider=asked / wanted)
            raws = [(scores[covered[rows]], rows[covered[rows]]) for scores, rows in found]
            least = max(least, math.ceil(0.75 * wanted))
        short = [number for number, (_, rows) in enumerate(raws) if len(rows) < least]
        if self._covered < self.rows.rows:
            tail = self._exact.search(queries, fetch, allowed, first_row=self._covered)
            # Not cut: a lossy index's scores do not compare with exact ones.
            raws = [merged([a, b], len(a[1]) + fetch) for a, b in zip(raws, tail, strict=True)]
        if short:
            for number, raw in zip(short, self._exact.search(queries[short], fetch, allowed), strict=True):
                raws[number] = raw
        return raws

    def _rank(self, query: np.ndarray, raw: Raw, k: int, group: Group) -> tuple[list[Candidate], bool]:
        """Rescore exactly, order, group; and say whether the fetched rows settle the first k."""
        scores, rows = raw
        exact, longest = self._scored(query, rows)
        ranked = self._best(exact, rows, k, group)
        if len(ranked) < k:
            return ranked, False
        if self._approximate is not None:
            return ranked, True
        # What was not fetched scores at most the last fetched score, within the rounding of that.
        rounding = self._exact.rounding * float(np.linalg.norm(query)) * longest
        return ranked, ranked[k - 1].score > float(scores[-1]) + rounding

    def _dense_scores(self, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self._scored(query, rows)[0]

    def _scored(self, query: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
        """Score rows (n,) exactly as (n,) float32, some at a time, and tell the length of the longest vector."""
        scores, longest = np.empty(len(rows), np.float32), 0.0
        for start in range(0, len(rows), _SCORED_AT_ONCE):
            some = slice(start, start + _SCORED_AT_ONCE)
            vectors = self.rows.take(rows[some])
            scores[some] = exact_scores(query, vectors)
            longest = max(longest, float(np.linalg.norm(vectors, axis=1).max()))
        return scores, longest

    def _candidate(self, score: float, row: int, *, by_terms: bool = False) -> Candidate:
        segment, local = self.rows.locate(row)
        doc_id, passage = segment.cells(local, ("doc_id", "passage"))
        dense, lexical = (None, score) if by_terms else (score, None)
        return Candidate(score=score, doc_id=doc_id, passage=passage, row=row, dense_score=dense, lexical_score=lexical)

    def passage(self, row: int) -> dict[str, Any]:
        """Return a row's doc_id, title, text, passage, start and end."""
        segment, local = self.rows.locate(row)
        return segment.passage(local)

    def metadata(self, row: int) -> dict[str, object]:
        """Return a row's further columns, as the corpus had them."""
        segment, local = self.rows.locate(row)
        return segment.metadata(local)

    def find(self, doc_ids: Sequence[str] | pa.Array) -> np.ndarray:
        """Return the rows of the given documents that are not deleted, sorted, (n,) int64."""
        wanted = pa.array(doc_ids, pa.string())
        found = [
            np.flatnonzero(pc.is_in(segment.column("doc_id"), value_set=wanted).to_numpy()) + start
            for start, segment in zip(self.rows.starts, self.rows.segments, strict=False)
        ]
        rows = np.concatenate([np.empty(0, np.int64), *found])
        return rows if self._deleted is None else np.setdiff1d(rows, self._deleted, assume_unique=True)

    def facts(self, *, verified: bool) -> dict[str, Any]:
        """Return what `retrieve info` shows; `verified` says whether every file was hashed on opening."""
        manifest = self.manifest
        encoder = manifest.encoder
        size = sum(file.bytes for file in manifest.files())
        facts: dict[str, Any] = {
            "index": str(self.path),
            "generation": manifest.generation,
            "documents": manifest.documents,
            "passages": manifest.passages,
            "documents without text": manifest.empty,
            "deleted passages": len(self.deleted_rows),
            "segments": len(manifest.segments),
            "bytes": size,
            "vectors": f"{manifest.dim} x {manifest.vector_dtype}, {manifest.metric}",
            "index type": manifest.index_type,
            "search": "exact",
            "columns": ", ".join(field.name for field in self.schema),
            "encoder": "none: ready-made vectors" if encoder is None else encoder.get("name"),
        }
        if approximate := manifest.approximate:
            settings = ", ".join(f"{name} {value}" for name, value in approximate.parameters.items())
            facts["search"] = f"{approximate.factory} {settings}".strip()
            facts["recall@10"] = (
                f"{approximate.recall_at_10} on {approximate.recall_sample} of its passages, "
                f"{manifest.min_recall} asked for"
            )
            facts["search bytes"] = approximate.file.bytes
        facts["keyword search"] = f"none: {self.without_keywords}" if self.without_keywords else "BM25"
        if not self.without_keywords:
            facts["fusion"] = ", ".join(f"{name} {value}" for name, value in asdict(self.fusion).items())
        facts |= {f"encoder {name}": value for name, value in (encoder or {}).items() if name != "name"}
        facts |= {f"text {name}": value for name, value in manifest.text.items()}
        if manifest.trees:
            facts["folders"] = "; ".join(f"{tree.name}, {tree.patterns}" for tree in manifest.trees)
        facts["files"] = "all hashes right" if verified else "sizes right; --verify reads and hashes all"
        return facts

    def documents(self, columns: Container[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the passages that are not deleted, in order; a batch without deleted rows stays mapped.

        Args:
            columns: Those that are wanted, where there are such; None for all.
        """
        for _, batch, keep in self._kept(self.schema.names if columns is None else columns):
            yield batch if keep.all() else batch.filter(pa.array(keep))

    def batches(self) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """Yield the same, each batch (n rows) with its vectors (n, dim) float32."""
        for start, batch, keep in self._kept(self.schema.names):
            vectors = self.rows.take(start + np.flatnonzero(keep))
            yield batch if keep.all() else batch.filter(pa.array(keep)), vectors

    def _kept(self, columns: Container[str]) -> Iterator[tuple[int, pa.RecordBatch, np.ndarray]]:
        """Yield the batches with the global row of each one's first and which rows are not deleted, if any."""
        start = 0
        for batch in (batch for segment in self.rows.segments for batch in segment.selected(columns)):
            keep = np.ones(batch.num_rows, bool)
            first, last = np.searchsorted(self.deleted_rows, [start, start + batch.num_rows])
            keep[self.deleted_rows[first:last] - start] = False
            if keep.any():
                yield start, batch, keep
            start += batch.num_rows

    def first_passages(self, rows: np.ndarray) -> list[int | None]:
        """Of some rows, the passage numbers of those that begin a document: 0, or None for one without text."""
        numbers = (segment.cells(local, ("passage",))[0] for segment, local in map(self.rows.locate, rows.tolist()))
        return [number for number in numbers if not number]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """The passages that a hybrid search orders, each with the scores of both sides, and what kind of query it was."""

    candidates: list[Candidate]
    is_name: bool


def ordered_by(fusion: Fusion, pool: Pool, group: Group = "document") -> list[Candidate]:
    """Mix the scores of a query's pool, and order it: each document by its best passage, or all passages."""
    columns = (np.array([getattr(one, name) for one in pool.candidates], np.float64) for name in _MIXED)
    scores = fusion.combine(*columns, is_name=pool.is_name).tolist()
    return _grouped([replace(one, score=score) for one, score in zip(pool.candidates, scores, strict=True)], group)


def _grouped(candidates: Sequence[Candidate], group: Group) -> list[Candidate]:
    return best_passages(candidates) if group == "document" else ordered(candidates)


def _read_deleted(path: Path, manifest: Manifest, *, verify: bool) -> np.ndarray | None:
    if manifest.deleted is None:
        return None
    file = manifest.deleted.file.check(path, verify=verify)
    with sound(file):
        rows = np.load(file, allow_pickle=False)
    of_kind = rows.dtype == np.int64 and rows.shape == (manifest.deleted.rows,)
    if not of_kind or (np.diff(rows, prepend=-1, append=manifest.rows) <= 0).any():
        raise IndexFormatError(f"{file} holds no sorted list of {manifest.deleted.rows} rows; rebuild the index")
    return rows  # type: ignore[no-any-return]

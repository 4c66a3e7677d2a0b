"""The retriever: an open index, the model that encodes its queries, and a reranker if there is one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from retrieval.chunking import is_blank, joined
from retrieval.counts import many
from retrieval.encoder import BiEncoder, EncoderSettings
from retrieval.errors import ConfigError, IndexMismatchError
from retrieval.highlight import highlights
from retrieval.index.reader import Asked, Group, Index, Pool
from retrieval.matching import (
    Encoder,
    Reranker,
    combined,
    find_model,
    load_encoder,
    mixed,
    probability,
    require_same_model,
    scored,
)
from retrieval.models import fingerprint
from retrieval.ranking import Candidate, Hit, Span, ordered
from retrieval.runtime import cuda_memory
from retrieval.shipped import AUTO, choose_reranker
from retrieval.terms import query_terms
from retrieval.vectorfile import unit_rows

if TYPE_CHECKING:
    from retrieval.filters import Where

log = logging.getLogger(__name__)

_QUERIES_AT_ONCE = 256

_First = tuple[Sequence[Candidate], Asked]  # what the first stage found, and what its hits' spans are scored by

Mode = Literal["auto", "dense", "lexical", "hybrid"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""By vectors, by keywords, by both; `auto` is hybrid for texts where the index has a keyword part, else dense; lexical
for texts on an index of ready-made vectors with a keyword part, where no model is given."""


class Retriever:
    """Answers queries from one generation of an index. Safe to use from several threads."""

    def __init__(
        self,
        index: Index,
        *,
        encoder: Encoder | None = None,
        model: str | Path | None = None,
        reranker: Reranker | None = None,
        mode: Mode = "auto",
        run: EncoderSettings = EncoderSettings(),
    ) -> None:
        """Put the parts together; `open` does it from paths. `run` says how the encoder runs."""
        self.index = index
        self.reranker = reranker
        self.mode = mode
        self._encoder = encoder
        self._model, self._run = model, run
        self._settled(mode)
        self._said_keywords = False
        self._lock = threading.Lock()
        if encoder is not None:
            require_same_model(index.manifest, encoder, index.path)
        if reranker is not None and not callable(getattr(reranker, "score", None)):
            raise ConfigError(f"reranker {type(reranker).__name__}: expected an object with score(pairs)")

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        model: str | Path | None = None,
        encoder: Encoder | None = None,
        reranker: str | Path | Reranker | None = None,
        mode: Mode = "auto",
        device: str = "auto",
        dtype: str = "auto",
        runtime: str = "auto",
        trust_remote_code: bool = False,
        verify: bool = False,
    ) -> Retriever:
        """Open an index. The encoder is checked now and loaded when the first text is searched.

        Args:
            path: The index folder.
            model: Only needed where the index's model lies elsewhere now (it must be the same one), or where the
                index holds ready-made vectors.
            encoder: An encoder of your own instead.
            reranker: A cross-encoder's folder or hub name, or an object whose `score(pairs)` scores (query, passage)
                pairs; `auto` for the one that comes with the installation where the index's passages are English
                or code (see `retrieval.shipped`), else none; None for one stage.
            mode: How searches find hits where they do not say: dense (by vectors), lexical (by keywords, without any
                encoder), hybrid (by both), or auto: hybrid where the index has a keyword part, else dense; lexical for
                texts where it has one and nothing says which model encodes them.
            device: auto, cpu, cuda, cuda:N or mps. A CUDA device that is named also gets the vectors to search, where
                FAISS is a build for GPUs: copying them takes as long as reading them.
            dtype: auto, float32, bfloat16 or float16.
            runtime: auto, torch or openvino: what runs the models.
            trust_remote_code: Run Python code that comes with a model.
            verify: Hash every file of the index, also large ones.

        Raises:
            ConfigError: No such mode, or one that needs a keyword part which the index does not have.
            IndexFormatError: No index there, or a damaged one.
            IndexMismatchError: Another model than the index's.
            ModelError: A model cannot be found or loaded.
        """
        running: Any = {"device": device, "dtype": dtype, "runtime": runtime, "trust_remote_code": trust_remote_code}
        index = Index.open(path, verify=verify)
        if device.startswith("cuda") and mode != "lexical":
            index.use_gpus(cuda_memory(device))
        if encoder is None and mode != "lexical":
            _check_identity(index, model)
        if isinstance(reranker, str) and reranker == AUTO:
            choice = choose_reranker(index)
            reranker = choice.reranker
            log.info("reranker: %s", reranker or choice.reason or "none comes with the installation")
        if isinstance(reranker, str | Path):
            from retrieval.reranker import CrossEncoder, RerankSettings

            settings = RerankSettings(**running)
            reranker = CrossEncoder.load(reranker, settings=settings)
        run = EncoderSettings(**running)
        return cls(index, encoder=encoder, model=model, reranker=reranker, mode=mode, run=run)

    @property
    def encoder(self) -> Encoder:
        """The encoder, loaded on first use.

        Raises:
            ConfigError: The index holds ready-made vectors and no model was given.
            ModelError: The model cannot be loaded.
        """
        with self._lock:
            if self._encoder is None:
                encoder = load_encoder(self.index.manifest, self.index.path, self._model, self._run)
                require_same_model(self.index.manifest, encoder, self.index.path)
                self._encoder = encoder
        return self._encoder

    @property
    def documents(self) -> int:
        """How many documents the index holds."""
        return self.index.manifest.documents

    def holds(self, doc_ids: Collection[str]) -> set[str]:
        """Return which of these documents the index holds."""
        rows = self.index.find(list(doc_ids))
        return {self.index.passage(int(row))["doc_id"] for row in rows}

    def facts(self) -> dict[str, str]:
        """Say what answers: the index, how it is searched, the models; for reports."""
        index = self.index.facts(verified=False)
        mode = self._settled(self.mode)
        counts = (many(index[f"{what}s"], what) for what in ("document", "passage"))
        facts = {
            "index": ", ".join((self.index.path.name, *counts)),
            "search": ", recall@10 ".join(str(index[name]) for name in ("search", "recall@10") if name in index),
            "mode": f"hybrid, {index['fusion']}" if mode == "hybrid" else mode,
            "vectors": index["vectors"],
            "encoder": _named(self.index.manifest.encoder or {"name": index["encoder"]}),
            "long documents": str(self.index.manifest.text.get("on_long", "")),
        }
        if self.reranker is not None:
            name = _named(getattr(self.reranker, "identity", {"name": type(self.reranker).__name__}))
            facts["reranker"] = ", ".join(filter(None, (name, mixed(self.reranker))))
        return {name: value for name, value in facts.items() if value}

    def search(
        self,
        query: str | np.ndarray,
        k: int = 10,
        *,
        mode: Mode | None = None,
        where: Where | None = None,
        group: Group = "document",
        rerank: bool | None = None,
        rerank_depth: int = 100,
    ) -> list[Hit]:
        """Find the k best documents for a query.

        Args:
            query: A text, or a vector (dim,).
            k: How many; fewer are returned where fewer documents pass.
            mode: auto, dense, lexical or hybrid (see `open`); None: as the retriever was opened.
            where: A predicate on columns: SQL such as `lang = 'python' and year >= 2020`, or a pyarrow expression.
            group: A document stands once, by its best passage (`document`), or each `passage` is a hit by itself.
            rerank: Whether the cross-encoder re-orders the first hits; None: if there is one.
            rerank_depth: How many hits it sees, at least k.

        Returns:
            Hits by score descending, then doc_id descending. An empty query has none. Where the reranker has a
            mixture (see `retrieval.mixture`), the score of a hit depends on the other hits within the depth. So does a
            hybrid score, on the best 100 of each side (on the best k, if that is more).

        Raises:
            ConfigError: k or rerank_depth below 1, `rerank` without a reranker, a vector with one, or a mode or a group
                that there is not, or that does not fit the index or the query.
            DataError: A vector that is zero or not finite, or a predicate that does not fit the columns.
            IndexMismatchError: A vector of another dimension, or another model than the index's.
            ModelError: The model cannot be loaded, or a model gives something else than finite numbers.
        """
        if not isinstance(query, str | np.ndarray):
            raise ConfigError(f"query is {type(query).__name__}; expected a text or a vector (numpy array)")
        queries: Sequence[str] | np.ndarray = [query] if isinstance(query, str) else query[None]
        return self.search_many(
            queries, k, mode=mode, where=where, group=group, rerank=rerank, rerank_depth=rerank_depth
        )[0]

    def search_many(
        self,
        queries: Sequence[str] | np.ndarray,
        k: int = 10,
        *,
        mode: Mode | None = None,
        where: Where | None = None,
        group: Group = "document",
        rerank: bool | None = None,
        rerank_depth: int = 100,
        names: Sequence[str] | None = None,
    ) -> list[list[Hit]]:
        """Find the k best documents for each query; each is answered as if it were alone.

        Args:
            queries: Texts, or vectors (q, dim).
            k: As in `search`, like the rest.
            mode: How hits are found.
            where: A predicate on columns.
            group: What a hit is.
            rerank: Whether to re-order the first hits.
            rerank_depth: How many hits are re-ordered, at least k.
            names: What notices call the queries, such as their ids; None: their numbers, from 1.
        """
        for name, number in (("k", k), ("rerank_depth", rerank_depth)):
            if not isinstance(number, int | np.integer) or number < 1:
                raise ConfigError(f"{name} is {number!r}; expected a whole number of at least 1")
        if rerank and self.reranker is None:
            raise ConfigError("rerank=True needs a reranker: Retriever.open(path, reranker=MODEL)")
        if isinstance(queries, np.ndarray) and self.reranker is not None and rerank is not False:
            raise ConfigError("a reranker reads texts: search with a text, or with rerank=False")
        if isinstance(queries, str):
            raise ConfigError("search_many takes a list of queries; use search for one")
        if not isinstance(queries, np.ndarray):
            for query in queries:
                if not isinstance(query, str):
                    raise ConfigError(
                        f"a query is {type(query).__name__}; expected texts, or an array (q, dim) of vectors"
                    )
        if group not in get_args(Group):
            raise ConfigError(f"group is {group!r}; expected one of {', '.join(get_args(Group))}")
        settled = self._settled(mode or self.mode, vectors=isinstance(queries, np.ndarray))
        if isinstance(queries, np.ndarray):
            queries = self._comparable(queries)
        elif settled == "lexical" and (mode or self.mode) == "auto" and not self._said_keywords:
            self._said_keywords = True
            log.warning(
                "%s was made of ready-made vectors without a model: texts are searched by keywords alone (lexical); "
                "give --model to search by both",
                self.index.path,
            )
        reranker = None if rerank is False else self.reranker
        depth = k if reranker is None else max(k, rerank_depth)
        results: list[list[Hit]] = []
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[start : start + _QUERIES_AT_ONCE]
            first = self._found(some, depth, settled, where, group)
            found = [self._hits(candidates) for candidates, _ in first]
            if reranker is not None and not isinstance(some, np.ndarray):
                found = [hits[:k] for hits in self._reranked(reranker, some, found)]
            if group == "document":
                found = self._spanned(found, first, where)
            results += found
        if not isinstance(queries, np.ndarray):
            names = names or [str(number) for number in range(1, len(queries) + 1)]
            blank = [name for name, text in zip(names, queries, strict=True) if is_blank(text)]
            if blank:
                log.warning("no hits for %s: %s", many(len(blank), "empty query"), _listed(blank))
        return results

    def pools(self, queries: Sequence[str]) -> Iterator[Pool]:
        """Yield, for each text, the passages that a hybrid search orders, each with the scores of both sides.

        Args:
            queries: Texts, none of them blank.

        Raises:
            ConfigError: The index has no keyword part.
            ModelError: The model cannot be loaded.
        """
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[start : start + _QUERIES_AT_ONCE]
            vectors = self._comparable(self.encoder.encode_queries(some))
            yield from self.index.pools(vectors, [query_terms(text) for text in some], 1)

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Re-order hits of `search` with the cross-encoder: the second stage by itself.

        Args:
            query: The text that the hits answer.
            hits: Any hits with texts; each keeps its `retrieval_score`, which a mixture looks at.

        Returns:
            All of them, by the cross-encoder's score descending, then doc_id descending. Where it has a mixture, by
            the mixed score, which depends on all of the hits.

        Raises:
            ConfigError: The retriever has no reranker.
            ModelError: The reranker, or its mixture, gives something else than finite scores.
        """
        if self.reranker is None:
            raise ConfigError("rerank needs a reranker: Retriever.open(path, reranker=MODEL)")
        return next(self._reranked(self.reranker, [query], [hits]))

    def highlight(self, query: str, hits: Sequence[Hit], *, mode: Mode | None = None) -> list[Span | None]:
        """Find the sentence of each hit, or the few lines of code, that answer a query best.

        Args:
            query: The text that the hits answer.
            hits: Hits of `search`.
            mode: As in `search`: with lexical the query's terms decide, else the encoder, which reads all sentences of
                all hits in one go.

        Returns:
            For each hit the place of the piece in its document, its text and its score; None where nothing fits.

        Raises:
            ConfigError: A mode that there is not, or that does not fit the index.
            ModelError: The model cannot be loaded.
        """
        by_terms = self._settled(mode or self.mode) == "lexical"
        return highlights(query, hits, None if by_terms else self.encoder)

    def _settled(self, mode: Mode, *, vectors: bool = False) -> Mode:
        """Say what `auto` is for texts, or for `vectors`.

        Raises:
            ConfigError: No such mode, or one that the index has no part for, or that vectors do not fit.
        """
        if mode not in MODES:
            raise ConfigError(f"mode is {mode!r}; expected one of {', '.join(MODES)}")
        if mode == "auto":
            if vectors or self.index.without_keywords:
                return "dense"
            readable = self._encoder is not None or self._model is not None or self.index.manifest.encoder is not None
            return "hybrid" if readable else "lexical"
        if mode != "dense":
            if vectors:
                raise ConfigError(f"mode {mode} reads texts: search with a text, or with mode dense")
            self.index.require_keywords()
        return mode

    def _found(
        self, queries: Sequence[str] | np.ndarray, k: int, mode: Mode, where: Where | None, group: Group
    ) -> list[_First]:
        """Ask the first stage; queries without content find nothing."""
        if isinstance(queries, np.ndarray):
            return list(zip(self.index.search(queries, k, where=where, group=group), queries, strict=True))
        asked = [position for position, text in enumerate(queries) if not is_blank(text)]
        found: list[_First] = [((), ()) for _ in queries]
        if not asked:
            return found
        texts = [queries[position] for position in asked]
        words = [] if mode == "dense" else [query_terms(text) for text in texts]
        by: list[Asked] = [one.terms for one in words]
        if mode == "lexical":
            candidates = self.index.search_lexical([one.terms for one in words], k, where=where, group=group)
        else:
            vectors = self._comparable(self.encoder.encode_queries(texts))
            if mode == "dense":
                by = list(vectors)
                candidates = self.index.search(vectors, k, where=where, group=group)
            else:
                if (weight := self.index.fusion.weight) <= 0.5:
                    pairs = zip(words, vectors, strict=True)
                    by = [one.terms if one.is_name and weight else vector for one, vector in pairs]
                candidates = self.index.search_hybrid(vectors, words, k, where=where, group=group)
        for position, some, its in zip(asked, candidates, by, strict=True):
            found[position] = some, its
        return found

    def _comparable(self, vectors: np.ndarray) -> np.ndarray:
        """Check query vectors, and bring them to unit length under cosine: (q, dim) float32."""
        vectors = np.asarray(vectors, np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != self.index.dim:
            raise IndexMismatchError(
                f"query vectors of shape {vectors.shape}; the index {self.index.path} has {self.index.dim} dimensions"
            )
        if self.index.manifest.metric == "cosine":
            vectors = unit_rows(vectors, lambda row: f"query vector {row + 1}")
        return vectors

    def _reranked(
        self, reranker: Reranker, queries: Sequence[str], found: Sequence[Sequence[Hit]]
    ) -> Iterator[list[Hit]]:
        pairs = [
            (query, joined(hit.title, hit.text)) for query, hits in zip(queries, found, strict=True) for hit in hits
        ]
        logits = scored(reranker, pairs)
        chances = probability(reranker, logits)
        start = 0
        for hits in found:
            here = slice(start, start + len(hits))
            start = here.stop
            scores = combined(reranker, [hit.retrieval_score for hit in hits], logits[here])
            columns = (part.tolist() for part in (scores, logits[here].astype(float), chances[here]))
            again = ordered(
                replace(hit, score=score, rerank_score=logit, rerank_probability=chance)
                for hit, score, logit, chance in zip(hits, *columns, strict=True)
            )
            yield [replace(hit, rank=rank) for rank, hit in enumerate(again, 1)]

    def _hits(self, candidates: Sequence[Candidate]) -> list[Hit]:
        """Read what was found; its further passages follow when it is settled which hits are returned."""
        return [
            Hit(
                rank=rank,
                score=one.score,
                retrieval_rank=rank,
                retrieval_score=one.score,
                dense_score=one.dense_score,
                lexical_score=one.lexical_score,
                metadata=self.index.metadata(one.row),
                **self.index.passage(one.row),
            )
            for rank, one in enumerate(candidates, 1)
        ]

    def _spanned(self, found: Sequence[Sequence[Hit]], first: Sequence[_First], where: Where | None) -> list[list[Hit]]:
        """Add their further passages to the hits that are returned of what the first stage found."""
        kept = []
        for hits, (candidates, _) in zip(found, first, strict=True):
            known = {one.doc_id: one for one in candidates}
            kept.append([known[hit.doc_id] for hit in hits])
        spans = self.index.spans(kept, [asked for _, asked in first], where=where)
        return [
            [replace(hit, spans=some) for hit, some in zip(hits, its, strict=True)]
            for hits, its in zip(found, spans, strict=True)
        ]


def _check_identity(index: Index, model: str | Path | None) -> None:
    """Compare hashes before anything heavy is loaded; only a model to refuse is loaded, to name its dimension.

    Raises:
        IndexMismatchError: The model that would encode queries is not the one that encoded the documents.
    """
    if index.manifest.encoder is not None:
        found = find_model(index.manifest, index.path, model)
        if fingerprint(found.folder) != index.manifest.encoder.get("sha256"):
            other = BiEncoder.load(found.folder if found.path else found.name)  # with its own settings: it differs
            require_same_model(index.manifest, other, index.path)


def _named(identity: Mapping[str, Any]) -> str:
    """Name a model, with the beginning of its hash where that is known."""
    known = f" (sha256 {str(identity['sha256'])[:12]})" if identity.get("sha256") else ""
    return f"{identity['name']}{known}"


def _listed(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

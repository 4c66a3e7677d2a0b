"""Re-ordering a run that any system made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from retrieval.chunking import joined
from retrieval.documents import DocumentSettings, DocumentStream
from retrieval.errors import DataError
from retrieval.index.manifest import MANIFEST
from retrieval.index.reader import Index
from retrieval.matching import Reranker, combined, scored
from retrieval.ranking import followed, ranked


def rerank_run(
    run: Mapping[str, Mapping[str, float]],
    queries: Mapping[str, str],
    texts: Mapping[str, Sequence[str]],
    reranker: Reranker,
    *,
    depth: int = 100,
) -> dict[str, dict[str, float]]:
    """Re-order a run made by any system.

    Where the reranker has a mixture, the run's scores count too, brought to mean 0 and deviation 1 over the documents
    within the depth: a document's new score then depends on the others.

    Args:
        run: Scores by query_id and doc_id.
        queries: Texts by query_id.
        texts: For each document within the depth its passages; the best one counts.
        reranker: The cross-encoder.
        depth: How many documents of each query are scored. The others follow in their old order.

    Returns:
        Score by doc_id, by query_id, best first; scores of documents below the depth are made up so that the
        order is kept.

    Raises:
        DataError: A query or a document of the run has no text.
        ModelError: The reranker, or its mixture, gives something else than finite scores.
    """
    heads, tails = {}, {}
    for query_id, scores in run.items():  # all of it before the first pair is scored, which may take hours
        if query_id not in queries:
            raise DataError(
                f"query {query_id!r} of the run is not among the queries; give the queries it was made with"
            )
        first_stage = [doc_id for doc_id, _ in ranked(scores)]
        heads[query_id], tails[query_id] = first_stage[:depth], first_stage[depth:]
        for doc_id in heads[query_id]:
            if not texts.get(doc_id):
                raise DataError(f"document {doc_id!r} (query {query_id!r}) of the run is not in the corpus")
    results: dict[str, dict[str, float]] = {}
    for query_id, head in heads.items():
        pairs = [(queries[query_id], text) for doc_id in head for text in texts[doc_id]]
        logits = iter(scored(reranker, pairs).tolist())
        best = np.array([max(next(logits) for _ in texts[doc_id]) for doc_id in head], np.float64)
        mixed = combined(reranker, [run[query_id][doc_id] for doc_id in head], best)
        again = ranked(dict(zip(head, mixed.tolist(), strict=True)))
        results[query_id] = followed(dict(again), tails[query_id])
    return results


def within_depth(run: Mapping[str, Mapping[str, float]], depth: int) -> set[str]:
    """Return the documents that `rerank_run` needs the texts of."""
    return {doc_id for scores in run.values() for doc_id, _ in ranked(scores)[:depth]}


def passages_of(
    doc_ids: Collection[str], source: str | Path, *, documents: DocumentSettings = DocumentSettings()
) -> dict[str, list[str]]:
    """Collect the texts that a reranker reads, title in front.

    Args:
        doc_ids: The documents wanted.
        source: An index folder (each document's passages) or a corpus (each document as one text).
        documents: How a corpus is read.

    Returns:
        The passages of each document that was found.
    """
    source = Path(source).expanduser()
    texts: dict[str, list[str]] = {}
    if (source / MANIFEST).exists():
        index = Index.open(source)
        for row in index.find(list(doc_ids)):
            passage = index.passage(int(row))
            texts.setdefault(passage["doc_id"], []).append(joined(passage["title"], passage["text"]))
        return texts
    for batch in DocumentStream([source], documents):
        columns = (batch[name].to_pylist() for name in ("doc_id", "title", "text"))
        texts.update(
            (doc_id, [joined(title, text)]) for doc_id, title, text in zip(*columns, strict=True) if doc_id in doc_ids
        )
    return texts

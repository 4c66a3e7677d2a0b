"""Benchmarks by their id in ir_datasets: any that has documents, queries and judgements.

What a document or query says is ir_datasets' own `default_text`; a title is kept apart from the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from retrieval.errors import DataError, MissingDependencyError
from retrieval.eval.benchmark import Benchmark, Card, Document, assemble, choose_split


def knows(name: str) -> bool:
    """Tell whether a name is an id of ir_datasets.

    Raises:
        MissingDependencyError: ir_datasets is not installed.
    """
    return _dataset(name) is not None


def load(name: str, split: str | None) -> Benchmark:
    """Load a benchmark by its id, `beir/scifact/test`, or by the id above it and a split, `beir/scifact` and `test`.

    Raises:
        DataError: no such id or split, no judgements, queries or documents in it, or it cannot be fetched.
        MissingDependencyError: ir_datasets is not installed.
    """
    own = _dataset(name)
    if own is None:
        raise DataError(f"{name}: no such id in ir_datasets")
    label = name.rpartition("/")[2]
    if _is_judged(own) and split in (None, label):
        chosen, dataset = label, own
    else:
        below = {key.removeprefix(f"{name}/"): found for key, found in _below(name)}
        chosen = choose_split(f"ir_datasets {name}", below or ([label] if _is_judged(own) else []), split)
        dataset = below[chosen]
    if not dataset.has_docs():
        raise DataError(f"ir_datasets {name}: it has no documents")
    with _fetching(name):
        qrels = _qrels(name, dataset.qrels_iter())
        queries = {query.query_id: _text(name, query) for query in dataset.queries_iter() if query.query_id in qrels}
    card = Card(name=name, split=chosen.replace("/", "-"), source="ir_datasets")
    return assemble(f"ir_datasets {name}", card, queries, qrels, partial(_corpus, name, dataset))


def _registry() -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise MissingDependencyError(
            'a benchmark by name needs ir_datasets: pip install "retrieve-rerank[eval]" (or give the path of a folder)'
        ) from None
    return ir_datasets.registry


def _dataset(name: str) -> Any | None:
    try:
        return _registry()[name]
    except KeyError:
        return None


def _below(name: str) -> Iterator[tuple[str, Any]]:
    """List the judged data sets whose id continues the one given."""
    registry = _registry()
    for key in list(registry):
        if key.startswith(f"{name}/") and _is_judged(dataset := registry[key]):
            yield key, dataset


def _is_judged(dataset: Any) -> bool:
    return bool(dataset.has_qrels() and dataset.has_queries())


def _qrels(name: str, judgements: Iterable[Any]) -> dict[str, dict[str, int]]:
    """Read judgements; a document judged more than once (for each subtopic, say) keeps its best grade."""
    qrels: dict[str, dict[str, int]] = {}
    for judgement in judgements:
        if type(judgement.relevance) is not int:
            raise DataError(
                f"ir_datasets {name}: the grade of document {judgement.doc_id!r} for query {judgement.query_id!r} "
                f"is {judgement.relevance!r}; expected a whole number"
            )
        grades = qrels.setdefault(judgement.query_id, {})
        grades[judgement.doc_id] = max(judgement.relevance, grades.get(judgement.doc_id, judgement.relevance))
    if not qrels:
        raise DataError(f"ir_datasets {name}: no judgements in it")
    return qrels


def _corpus(name: str, dataset: Any) -> Iterator[Document]:
    with _fetching(name):
        for document in dataset.docs_iter():
            title = getattr(document, "title", None) or ""
            text = _text(name, document)
            if title and text.startswith(title):  # default_text puts the title first
                text = text[len(title) :].lstrip()
            url = getattr(document, "url", None)
            yield Document(
                doc_id=document.doc_id,
                title=title,
                text=text,
                metadata={"url": url} if url else {},
            )


def _text(name: str, record: Any) -> str:
    """Return what a document or query says."""
    if hasattr(record, "default_text"):
        return str(record.default_text())
    if hasattr(record, "text"):
        return str(record.text)
    raise DataError(
        f"ir_datasets {name}: {type(record).__name__} names no text of its own (fields: {', '.join(record._fields)}); "
        "load a copy of the data in its own layout"
    )


@contextmanager
def _fetching(name: str) -> Iterator[None]:
    """Turn what goes wrong while ir_datasets downloads and reads into one line."""
    try:
        yield
    except (OSError, EOFError, RuntimeError) as error:
        raise DataError(f"ir_datasets {name}: cannot be fetched or read: {str(error).partition(chr(10))[0]}") from error

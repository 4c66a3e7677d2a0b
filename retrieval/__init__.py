"""Two-stage retrieval on your own corpora.

    from retrieval import Retriever, build_index

    build_index("docs/", "my-index")
    for hit in Retriever.open("my-index").search("how do I rotate the log files?"):
        print(hit.rank, hit.score, hit.doc_id, hit.text)

Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from retrieval.errors import (
    ConfigError,
    DataError,
    IndexFormatError,
    IndexLockedError,
    IndexMismatchError,
    MissingDependencyError,
    ModelError,
    RetrievalError,
)

if TYPE_CHECKING:
    from retrieval.documents import DocumentSettings, DocumentStream
    from retrieval.encoder import BiEncoder, EncoderSettings
    from retrieval.eval.benchmark import Benchmark, Card, Document
    from retrieval.eval.comparison import Comparison, compare
    from retrieval.eval.evaluation import Evaluation, System, evaluate_runs
    from retrieval.eval.metrics import Scores, evaluate
    from retrieval.eval.mining import make_benchmark
    from retrieval.eval.report import html_report, markdown_report
    from retrieval.eval.stages import evaluate_retriever
    from retrieval.fusion import fuse
    from retrieval.indexing import (
        BuildReport,
        IndexSettings,
        add_documents,
        build_index,
        compact_index,
        delete_documents,
        optimize_index,
        preview_sync,
        sync_documents,
    )
    from retrieval.mixture import JudgedList, Mixture, fit_mixture
    from retrieval.qrels import read_qrels
    from retrieval.queries import read_queries
    from retrieval.ranking import Hit
    from retrieval.reranker import CrossEncoder, RerankSettings
    from retrieval.reranking import rerank_run
    from retrieval.retriever import Retriever
    from retrieval.runs import read_run, write_run

__version__ = "0.1.0"

__all__ = [
    "Benchmark",
    "BiEncoder",
    "BuildReport",
    "Card",
    "Comparison",
    "ConfigError",
    "CrossEncoder",
    "DataError",
    "Document",
    "DocumentSettings",
    "DocumentStream",
    "EncoderSettings",
    "Evaluation",
    "Hit",
    "IndexFormatError",
    "IndexLockedError",
    "IndexMismatchError",
    "IndexSettings",
    "JudgedList",
    "MissingDependencyError",
    "Mixture",
    "ModelError",
    "RerankSettings",
    "RetrievalError",
    "Retriever",
    "Scores",
    "System",
    "__version__",
    "add_documents",
    "build_index",
    "compact_index",
    "compare",
    "delete_documents",
    "evaluate",
    "evaluate_retriever",
    "evaluate_runs",
    "fit_mixture",
    "fuse",
    "html_report",
    "make_benchmark",
    "markdown_report",
    "optimize_index",
    "preview_sync",
    "read_qrels",
    "read_queries",
    "read_run",
    "rerank_run",
    "sync_documents",
    "write_run",
]

_HOMES = {
    "Benchmark": "eval.benchmark",
    "BiEncoder": "encoder",
    "BuildReport": "indexing",
    "Card": "eval.benchmark",
    "Comparison": "eval.comparison",
    "CrossEncoder": "reranker",
    "Document": "eval.benchmark",
    "DocumentSettings": "documents",
    "DocumentStream": "documents",
    "EncoderSettings": "encoder",
    "Evaluation": "eval.evaluation",
    "Hit": "ranking",
    "IndexSettings": "indexing",
    "JudgedList": "mixture",
    "Mixture": "mixture",
    "RerankSettings": "reranker",
    "Retriever": "retriever",
    "Scores": "eval.metrics",
    "System": "eval.evaluation",
    "add_documents": "indexing",
    "build_index": "indexing",
    "compact_index": "indexing",
    "compare": "eval.comparison",
    "delete_documents": "indexing",
    "evaluate": "eval.metrics",
    "evaluate_retriever": "eval.stages",
    "evaluate_runs": "eval.evaluation",
    "fit_mixture": "mixture",
    "fuse": "fusion",
    "html_report": "eval.report",
    "make_benchmark": "eval.mining",
    "markdown_report": "eval.report",
    "optimize_index": "indexing",
    "read_qrels": "qrels",
    "read_queries": "queries",
    "read_run": "runs",
    "rerank_run": "reranking",
    "preview_sync": "indexing",
    "sync_documents": "indexing",
    "write_run": "runs",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

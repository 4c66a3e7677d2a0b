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
    from retrieval.eval.benchmark import Benchmark
    from retrieval.eval.comparison import Comparison, compare
    from retrieval.eval.evaluation import Evaluation, evaluate_retriever, evaluate_runs
    from retrieval.eval.metrics import Scores, evaluate
    from retrieval.eval.mining import make_benchmark
    from retrieval.fusion import fuse
    from retrieval.indexing import (
        BuildReport,
        IndexSettings,
        add_documents,
        build_index,
        compact_index,
        delete_documents,
    )
    from retrieval.qrels import read_qrels
    from retrieval.queries import read_queries
    from retrieval.ranking import Hit
    from retrieval.reranker import CrossEncoder, RerankSettings
    from retrieval.retriever import Retriever
    from retrieval.runs import read_run, write_run

__version__ = "0.1.0"

__all__ = [
    "Benchmark",
    "BiEncoder",
    "BuildReport",
    "Comparison",
    "ConfigError",
    "CrossEncoder",
    "DataError",
    "DocumentSettings",
    "DocumentStream",
    "EncoderSettings",
    "Evaluation",
    "Hit",
    "IndexFormatError",
    "IndexLockedError",
    "IndexMismatchError",
    "IndexSettings",
    "MissingDependencyError",
    "ModelError",
    "RerankSettings",
    "RetrievalError",
    "Retriever",
    "Scores",
    "__version__",
    "add_documents",
    "build_index",
    "compact_index",
    "compare",
    "delete_documents",
    "evaluate",
    "evaluate_retriever",
    "evaluate_runs",
    "fuse",
    "make_benchmark",
    "read_qrels",
    "read_queries",
    "read_run",
    "write_run",
]

_HOMES = {
    "Benchmark": "eval.benchmark",
    "BiEncoder": "encoder",
    "BuildReport": "indexing",
    "Comparison": "eval.comparison",
    "CrossEncoder": "reranker",
    "DocumentSettings": "documents",
    "DocumentStream": "documents",
    "EncoderSettings": "encoder",
    "Evaluation": "eval.evaluation",
    "Hit": "ranking",
    "IndexSettings": "indexing",
    "RerankSettings": "reranker",
    "Retriever": "retriever",
    "Scores": "eval.metrics",
    "add_documents": "indexing",
    "build_index": "indexing",
    "compact_index": "indexing",
    "compare": "eval.comparison",
    "delete_documents": "indexing",
    "evaluate": "eval.metrics",
    "evaluate_retriever": "eval.evaluation",
    "evaluate_runs": "eval.evaluation",
    "fuse": "fusion",
    "make_benchmark": "eval.mining",
    "read_qrels": "qrels",
    "read_queries": "queries",
    "read_run": "runs",
    "write_run": "runs",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

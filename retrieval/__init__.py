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
    from retrieval.indexing import (
        BuildReport,
        IndexSettings,
        add_documents,
        build_index,
        compact_index,
        delete_documents,
    )
    from retrieval.ranking import Hit
    from retrieval.reranker import CrossEncoder, RerankSettings
    from retrieval.retriever import Retriever

__version__ = "0.1.0"

__all__ = [
    "BiEncoder",
    "BuildReport",
    "ConfigError",
    "CrossEncoder",
    "DataError",
    "DocumentSettings",
    "DocumentStream",
    "EncoderSettings",
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
    "__version__",
    "add_documents",
    "build_index",
    "compact_index",
    "delete_documents",
]

_HOMES = {
    "BiEncoder": "encoder",
    "BuildReport": "indexing",
    "CrossEncoder": "reranker",
    "DocumentSettings": "documents",
    "DocumentStream": "documents",
    "EncoderSettings": "encoder",
    "Hit": "ranking",
    "IndexSettings": "indexing",
    "RerankSettings": "reranker",
    "Retriever": "retriever",
    "add_documents": "indexing",
    "build_index": "indexing",
    "compact_index": "indexing",
    "delete_documents": "indexing",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Small corpora with ready-made vectors, and a brute-force retriever to compare with."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retrieval import BuildReport, IndexSettings, add_documents, build_index

DIM = 16


def unit(rows: int, seed: int = 0, dim: int = DIM) -> np.ndarray:
    array = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def write_corpus(
    folder: Path, records: Sequence[Mapping[str, Any]], vectors: np.ndarray, name: str = "c"
) -> list[Path]:
    """Write records and vectors; return the two paths."""
    corpus, file = folder / f"{name}.jsonl", folder / f"{name}.npy"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    np.save(file, vectors)
    return [corpus, file]


def records(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"_id": f"d{i}", "text": f"text {i}", "year": 1900 + i % 100} for i in range(start, start + count)]


def build(folder: Path, count: int = 500, *, index_type: str = "flat", seed: int = 0, **options: Any) -> Path:
    """Build `folder/index` over `count` documents with random unit vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus, vectors = write_corpus(folder, records(count), unit(count, seed))
    settings = IndexSettings(index_type=index_type, **options)
    build_index(corpus, folder / "index", vectors=vectors, settings=settings, overwrite=True)
    return folder / "index"


def add(folder: Path, docs: Sequence[Mapping[str, Any]], vectors: np.ndarray, **options: Any) -> BuildReport:
    corpus, file = write_corpus(folder, docs, vectors, "more")
    return add_documents(corpus, folder / "index", vectors=file, **options)


def brute_force(vectors: Mapping[str, np.ndarray], query: np.ndarray, k: int) -> list[tuple[str, float]]:
    """Score every document in float64, order by score then doc_id, both descending."""
    scored = [(float(np.float32(v.astype(np.float64) @ query.astype(np.float64))), i) for i, v in vectors.items()]
    return [(doc_id, score) for score, doc_id in sorted(scored, reverse=True)[:k]]

"""Filtered search of every kind of index: as exact as without a filter, whatever the filter has to do with the vectors.

A smaller version of tests/benchmarks/filters.py.
"""

import numpy as np
import pytest
from worlds import brute_force, write_corpus

from retrieval import IndexSettings, Retriever, build_index

ROWS, DIM, K = 5000, 48, 10


def points(count: int, seed: int) -> np.ndarray:
    """Unit vectors around 200 centres."""
    centres = np.random.default_rng(0).standard_normal((200, DIM))
    rng = np.random.default_rng(seed)
    array = (centres[rng.integers(0, 200, count)] + 0.5 * rng.standard_normal((count, DIM))).astype(np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


VECTORS = points(ROWS, 1)
ALONG = np.argsort(np.argsort(VECTORS[:, 0])) * 100 // ROWS
COLUMNS = {"chance": np.random.default_rng(2).permutation(ALONG), "near": ALONG, "far": 99 - ALONG}


@pytest.fixture(scope="module", params=["flat", "hnsw", "ivf"])
def retriever(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Retriever:
    folder = tmp_path_factory.mktemp(request.param)
    docs = [{"_id": f"d{i}", "text": "x"} | {name: int(some[i]) for name, some in COLUMNS.items()} for i in range(ROWS)]
    corpus, file = write_corpus(folder, docs, VECTORS)
    build_index(corpus, folder / "index", vectors=file, settings=IndexSettings(index_type=request.param))
    return Retriever.open(folder / "index")


@pytest.mark.parametrize("share", [1, 10, 25, 50, 90])
@pytest.mark.parametrize("way", ["chance", "near", "far"])
def test_filtered_hits_are_those_of_brute_force(retriever: Retriever, way: str, share: int) -> None:
    queries = points(1000, 3)
    queries = queries[:40] if way == "chance" else queries[np.argsort(queries[:, 0])[:40]]
    passing = {f"d{i}": VECTORS[i] for i in np.flatnonzero(COLUMNS[way] < share)}
    found = retriever.search_many(queries, K, where=f"{way} < {share}")
    expected = [brute_force(passing, query, K) for query in queries]
    assert all(len(hits) == K for hits in found)
    if retriever.index.manifest.approximate is None:
        assert [[(hit.doc_id, hit.score) for hit in hits] for hits in found] == expected
    shares = [
        len({hit.doc_id for hit in hits} & {doc_id for doc_id, _ in best}) / K
        for hits, best in zip(found, expected, strict=True)
    ]
    assert np.mean(shares) >= 0.95


def test_as_many_hits_as_pass(retriever: Retriever) -> None:
    for k in (1, 49, 50, 51, 4000, 4500, 6000):
        for way, share in (("far", 1), ("near", 90)):
            hits = retriever.search(VECTORS[0], k, where=f"{way} < {share}")
            assert len(hits) == min(k, ROWS * share // 100)
            assert all(hit.metadata[way] < share for hit in hits)  # type: ignore[operator]


def test_a_filter_acts_inside_keyword_search(retriever: Retriever) -> None:
    for k, where, count in ((3, "far < 1", 3), (100, "far < 1", 50), (100, "far < 1 and near < 1", 0)):
        hits = retriever.search("x", k, mode="lexical", where=where)
        assert len(hits) == count and all(hit.metadata["far"] == 0 for hit in hits)

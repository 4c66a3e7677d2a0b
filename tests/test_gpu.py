"""GPUs: what decides whether they search, from plain numbers; merging, filters and limits, with the CPU's FAISS indexes
in the places of a GPU's; and, where there is a GPU, the same hits from it."""

import itertools
import logging
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from worlds import DIM, add, build, records, unit, write_corpus

from retrieval import (
    BiEncoder,
    ConfigError,
    CrossEncoder,
    EncoderSettings,
    IndexSettings,
    RerankSettings,
    Retriever,
    build_index,
    delete_documents,
)
from retrieval.index import gpu
from retrieval.index.reader import Index
from retrieval.index.vectors import faiss
from retrieval.runtime import auto_dtype, choose_dtype, cuda_memory, use_flash_attention

GIB = 2**30
needs_faiss = pytest.mark.skipif(faiss().get_num_gpus() == 0, reason="FAISS finds no GPU (faiss-cpu, or no device)")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")


def free_memory() -> dict[int, int]:
    return cuda_memory("cuda") if torch.cuda.is_available() else dict.fromkeys(range(faiss().get_num_gpus()), 8 * GIB)


class HalfQueries:
    """A flat index with the rounding of queries, and the limit, that a GPU's has which holds float16."""

    def __init__(self, vectors: np.ndarray) -> None:
        self._index = faiss().IndexFlatIP(vectors.shape[1])
        self._index.add(vectors)
        self.ntotal = self._index.ntotal

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        if k > 2048:
            raise RuntimeError(f"GPU index only supports min/max-K selection up to 2048 (requested {k})")
        return self._index.search(queries.astype(np.float16).astype(np.float32), k)  # type: ignore[no-any-return]


def on_parts(index: Index, *, parts: int = 3) -> Index:
    """Search an open index as one is searched whose rows are on two GPUs, in parts."""
    half = index.manifest.vector_dtype == "float16"
    held = []
    for number, some in enumerate(np.array_split(np.arange(index.rows.rows), parts)):
        vectors = index.rows.take(some)
        if half:
            flat: Any = HalfQueries(vectors)
        else:
            flat = faiss().IndexFlatIP(index.dim)
            flat.add(vectors)
        held.append(gpu.Part(first=int(some[0]), index=flat, gpu=number % 2))
    index._exact = gpu.GpuRows(index.rows, held, half=half)
    index._approximate, index._covered = None, 0
    return index


def listed(path: Path, queries: np.ndarray, k: int, index: Index | None = None, **more: Any) -> list[Any]:
    retriever = Retriever(index or Index.open(path))
    return [[(hit.doc_id, hit.score) for hit in hits] for hits in retriever.search_many(queries, k, **more)]


# --- what decides -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "memory", "expected"),
    [
        ([GIB, GIB], {0: 8 * GIB}, [0, 0]),
        ([GIB, GIB, GIB], {0: 8 * GIB, 1: 8 * GIB}, [0, 1, 0]),
        ([GIB, GIB], {3: 8 * GIB, 5: 12 * GIB}, [5, 5]),  # the one with more room, by its own number
        ([5 * GIB], {0: 8 * GIB}, None),  # a quarter stays for models, and 1.5 GiB for FAISS: 4.5 GiB
        ([4 * GIB + GIB // 2], {0: 8 * GIB}, [0]),
        ([3 * GIB] * 2, {0: 8 * GIB}, None),
        ([0], {0: GIB}, None),
    ],
)
def test_parts_go_where_there_is_room_or_nowhere(
    sizes: list[int], memory: dict[int, int], expected: list[int] | None
) -> None:
    assert gpu.placed(sizes, memory) == expected


@pytest.mark.parametrize(
    ("capability", "dtype"), [(None, "float32"), ((7, 5), "float32"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")]
)
def test_bfloat16_is_chosen_where_the_device_computes_in_it(capability: tuple[int, int] | None, dtype: str) -> None:
    assert auto_dtype(capability) == dtype


def test_the_cpu_is_no_gpu() -> None:
    assert choose_dtype("auto", "cpu") == "float32"
    assert cuda_memory("cpu") == {}
    assert use_flash_attention(torch.nn.Linear(1, 1), device="cpu", dtype="bfloat16") is False


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused_when_the_index_is_opened(tmp_path: Path) -> None:
    path = build(tmp_path)
    for device in ("cuda", "cuda:1"):
        with pytest.raises(ConfigError, match=f"device '{device}' is not available here; use auto or cpu"):
            Retriever.open(path, device=device)


@pytest.mark.skipif(faiss().get_num_gpus() > 0, reason="FAISS finds a GPU here")
def test_faiss_without_gpus_changes_nothing_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = build(tmp_path)
    index = Index.open(path)
    with caplog.at_level(logging.INFO, logger="retrieval"):
        index.use_gpus({0: 80 * GIB})
    assert "the CPU searches the vectors, for FAISS finds 0 GPUs" in caplog.text
    assert index._exact is index.rows
    assert listed(path, unit(5, 1), 7, index) == listed(path, unit(5, 1), 7)


def test_what_does_not_fit_is_not_begun() -> None:
    """No FAISS object of a GPU is made before the memory is known to do."""
    rows: Any = type("Rows", (), {"rows": 10**9, "dim": 384})
    assert gpu.GpuRows.on(rows, {0: 80 * GIB, 1: 80 * GIB}, half=True) is None


# --- merging, filters, limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("index_type", ["flat", "hnsw"])
def test_hits_are_those_of_exact_search(tmp_path: Path, dtype: str, index_type: str) -> None:
    path = build(tmp_path, 3000, vector_dtype=dtype)
    other = path if index_type == "flat" else build(tmp_path / "other", 3000, vector_dtype=dtype, index_type="hnsw")
    index = on_parts(Index.open(other))
    for k in (1, 10, 500):
        assert listed(other, unit(20, 1), k, index) == listed(path, unit(20, 1), k)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_ties_and_near_ties_are_ordered_as_on_the_cpu(tmp_path: Path, dtype: str) -> None:
    """600 documents whose scores lie within float16's rounding of each other, and 300 equal ones."""
    vectors = unit(2000)
    vectors[100:700] = vectors[100] + 2e-5 * unit(600, 9)
    vectors[1000:1300] = vectors[1000]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    corpus, file = write_corpus(tmp_path, records(2000), vectors)
    settings = IndexSettings(vector_dtype=dtype)  # type: ignore[arg-type]
    build_index(corpus, tmp_path / "index", vectors=file, settings=settings)
    path = tmp_path / "index"
    for k in (5, 40, 320):
        assert listed(path, vectors[[100, 1000]], k, on_parts(Index.open(path))) == listed(
            path, vectors[[100, 1000]], k
        )


def test_queries_of_any_length_find_the_same_in_float16(tmp_path: Path) -> None:
    """Under the dot product a query may be beyond float16's range, or below its least number."""
    index = on_parts(Index.open(build(tmp_path, 1500, vector_dtype="float16")))
    queries = unit(3, 2)
    for scale in (1e-9, 1.0, 1e9):
        found = index._exact.search(queries * np.float32(scale), 10)
        expected = index.rows.search(queries * np.float32(scale), 10)
        for (scores, rows), (least, best) in zip(found, expected, strict=True):
            assert set(rows) == set(best)
            assert np.allclose(scores, least, atol=6e-4 * scale)
    assert [len(rows) for _, rows in index._exact.search(np.zeros((1, DIM), np.float32), 10)] == [10]


def test_a_score_is_off_by_no_more_than_is_said() -> None:
    queries, vectors = unit(200, 3, 384), unit(500, 4, 384).astype(np.float16).astype(np.float32)
    scale = np.abs(queries).max(axis=1, keepdims=True)
    rounded = (queries / scale).astype(np.float16).astype(np.float64) * scale
    off = np.abs((rounded - queries) @ vectors.T.astype(np.float64))
    assert off.max() < 6e-4 * np.linalg.norm(vectors, axis=1).max()


@pytest.mark.parametrize("share", [3, 60, 99])
def test_filters_and_tombstones_starve_no_result(tmp_path: Path, share: int) -> None:
    path = build(tmp_path, 3000)
    add(tmp_path, records(200, 3000), unit(200, 7))
    delete_documents([f"d{i}" for i in range(0, 3200, 3)], path)
    where = pc.field("year") < 1900 + share
    index = on_parts(Index.open(path), parts=5)
    for k in (3, 30, 5000):
        assert listed(path, unit(10, 1), k, index) == listed(path, unit(10, 1), k)
        assert listed(path, unit(10, 1), k, index, where=where) == listed(path, unit(10, 1), k, where=where)


def test_a_filter_that_passes_only_far_rows_is_answered_by_the_cpu(tmp_path: Path) -> None:
    index = on_parts(Index.open(build(tmp_path, 4000)))
    query = unit(1, 1)
    scores = index.rows.take(np.arange(4000)) @ query[0]
    allowed = scores < np.median(scores)  # none of the 25 that a GPU is asked for
    (found,), (expected,) = (side.search(query, 10, allowed) for side in (index._exact, index.rows))
    assert np.array_equal(np.sort(found[1]), np.sort(expected[1]))
    assert allowed[found[1]].all()


def test_more_rows_than_a_gpu_returns_are_found_by_the_cpu(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = on_parts(Index.open(build(tmp_path, 7000, vector_dtype="float16")))
    assert isinstance(index._exact, gpu.GpuRows)
    (found,) = index._exact.search(unit(1, 1), gpu.MOST + 1)
    assert len(found[1]) == gpu.MOST + 1
    assert listed(tmp_path, unit(2, 1), 3000, index) == listed(tmp_path / "index", unit(2, 1), 3000)
    assert caplog.text == ""  # the GPU was not asked in vain


def test_a_gpu_that_fails_is_said_and_the_cpu_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = on_parts(Index.open(build(tmp_path)))

    class Full:
        ntotal = 500

        def search(self, queries: np.ndarray, k: int) -> None:
            raise RuntimeError("Error in virtual void allocMemory at x.cpp:1: Error: 'err == cudaSuccess' failed")

    index._exact = gpu.GpuRows(index.rows, [gpu.Part(first=0, index=Full(), gpu=0)], half=False)
    assert listed(tmp_path, unit(2, 1), 5, index) == listed(tmp_path / "index", unit(2, 1), 5)
    assert "a GPU could not search, the CPU did: 'err == cudaSuccess' failed" in caplog.text


def _rows_in_child(index: Index, queue: Any) -> None:
    held = index._exact
    assert isinstance(held, gpu.GpuRows)
    queue.put((held._turns.take(lambda: 1), [rows.tolist() for _, rows in held.search(unit(2, 1), 4)]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_touch_the_gpu(tmp_path: Path) -> None:
    index = on_parts(Index.open(build(tmp_path)))
    expected = [rows.tolist() for _, rows in index.rows.search(unit(2, 1), 4)]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_rows_in_child, args=(index, queue))
    child.start()
    try:
        assert queue.get(timeout=60) == (None, expected)
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("index_type", ["ivf", "ivfsq"])
def test_lists_give_the_hits_of_the_index_that_they_are_a_copy_of(
    tmp_path: Path, index_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path, 4000, index_type=index_type)
    delete_documents([f"d{i}" for i in range(0, 4000, 9)], path)
    index = Index.open(path)
    assert index._approximate is not None
    copy = faiss().deserialize_index(faiss().serialize_index(index._approximate._index))
    index._approximate = gpu.GpuLists(index._approximate, copy, gpus=1)
    for k in (3, 40, 3000):
        assert listed(path, unit(9, 1), k, index) == listed(path, unit(9, 1), k)
    copy.reset()  # whoever asks the copy finds nothing now
    (found,) = index._approximate.search(unit(1, 1), 20)
    assert len(found[1]) == 0
    monkeypatch.setattr(gpu, "MOST", 19)
    (found,) = index._approximate.search(unit(1, 1), 20)
    assert len(found[1]) == 20


# --- texts without padding --------------------------------------------------------------------------------------------


def _text_by_text(  # type: ignore[no-untyped-def]
    module, query, key, value, attention_mask, scaling=None, dropout=0.0, **borders
):
    """What flash attention computes for texts in a row: (1, heads, tokens, size), each text by itself."""
    ends = borders["cu_seq_lens_q"].tolist()
    parts = [
        torch.nn.functional.scaled_dot_product_attention(*(x[:, :, a:b] for x in (query, key, value)), scale=scaling)
        for a, b in itertools.pairwise(ends)
    ]
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


@pytest.mark.parametrize("name", ["mean", "cls", "noprompt", "bert", "roberta"])
def test_unpadded_texts_are_fed_as_sentence_transformers_feeds_them(tiny: Any, name: str) -> None:
    transformers = pytest.importorskip("transformers", minversion="5.0")
    model: Any = BiEncoder.load(tiny(name), settings=EncoderSettings(device="cpu", runtime="torch"))._model
    first = model._modules[0]
    if not hasattr(first, "unpad_inputs"):
        pytest.skip("this sentence-transformers pads always")
    texts = ["A ferry crosses the strait.", "Copper conducts heat better than iron does; silver is better still.", "x"]
    tokens = [np.array(one.ids, np.int32) for one in model.tokenize(texts)]
    padded = np.vstack([model.forward([one]) for one in tokens])
    assert model._unpadded(tokens) is None
    # as sentence-transformers does where flash attention is there
    transformers.AttentionInterface.register("flash_text_by_text", _text_by_text)
    first.auto_model.config._attn_implementation = "flash_text_by_text"
    first.data_collator = transformers.DataCollatorWithFlattening(
        return_seq_idx=True, return_flash_attn_kwargs=True, return_position_ids=True
    )
    names = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"}
    if first.model_forward_params is not None:
        first.model_forward_params |= names
    first._flatten_position_offset, first.can_flatten_inputs = first._infer_flatten_position_offset(), True
    ours, theirs = model._unpadded(tokens), first.preprocess(texts)
    theirs.pop("modality", None)
    assert ours.keys() == theirs.keys() == names | {"input_ids", "position_ids"}
    for key, value in ours.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(theirs[key])), key
    model.device = "cpu:0"  # the way of a GPU: batches of several lengths
    assert np.allclose(model.forward(tokens), padded, atol=1e-5)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@needs_faiss
@pytest.mark.parametrize("index_type", ["flat", "hnsw"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_gpu_gives_the_hits_of_exact_search(tmp_path: Path, dtype: str, index_type: str) -> None:
    exact = build(tmp_path, 20_000, vector_dtype=dtype)
    path = exact if index_type == "flat" else build(tmp_path / "b", 20_000, vector_dtype=dtype, index_type=index_type)
    index = Index.open(path)
    index.use_gpus(free_memory())
    assert isinstance(index._exact, gpu.GpuRows)
    for k in (1, 10, 1000, 3000):
        assert listed(path, unit(50, 1), k, index) == listed(exact, unit(50, 1), k)
    where = pc.field("year") < 1950
    assert listed(path, unit(50, 1), 10, index, where=where) == listed(exact, unit(50, 1), 10, where=where)


@needs_faiss
@pytest.mark.parametrize("index_type", ["ivf", "ivfsq", "ivfpq"])
def test_a_gpu_finds_what_the_lists_find_on_the_cpu(tmp_path: Path, index_type: str) -> None:
    path = build(tmp_path, 20_000, index_type=index_type)
    index = Index.open(path)
    index.use_gpus(free_memory())
    assert isinstance(index._approximate, gpu.GpuLists)
    pairs = zip(listed(path, unit(200, 1), 10, index), listed(path, unit(200, 1), 10), strict=True)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in pairs]) > 0.98


@needs_faiss
def test_rows_are_sharded_over_all_gpus(tmp_path: Path) -> None:
    index = Index.open(build(tmp_path, 5000))
    memory = free_memory()
    index.use_gpus(memory)
    assert isinstance(index._exact, gpu.GpuRows)
    assert index._exact.gpus == len(memory)


@needs_cuda
@pytest.mark.parametrize("name", ["mean", "cls", "dense", "bert", "roberta", "mpnet"])
def test_vectors_of_a_gpu_are_those_of_the_cpu(tiny: Any, name: str) -> None:
    texts = [f"{'the weaver builds a hanging nest ' * (i % 9)} {i}" for i in range(200)]
    here = BiEncoder.load(tiny(name), settings=EncoderSettings(device="cpu", runtime="torch"))
    expected = here.encode_queries(texts)
    for dtype, least in (("float32", 0.9999), ("auto", 0.99)):
        there = BiEncoder.load(tiny(name), settings=EncoderSettings(device="cuda", dtype=dtype))
        found = there.encode_queries(texts)
        assert (found * expected).sum(axis=1).min() > least, (dtype, there.settings.dtype)


@needs_cuda
def test_pairs_score_on_a_gpu_as_on_the_cpu(tiny: Any) -> None:
    pairs = [(f"query {i}", "copper conducts heat " * (1 + i % 7)) for i in range(100)]
    here = CrossEncoder.load(tiny("cross1"), settings=RerankSettings(device="cpu", runtime="torch")).score(pairs)
    there = CrossEncoder.load(tiny("cross1"), settings=RerankSettings(device="cuda", dtype="float32")).score(pairs)
    assert np.allclose(here, there, atol=1e-3)

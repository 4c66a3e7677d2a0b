"""FAISS behind its guard: bytes, exactness, selectors, refusals."""

import io
from pathlib import Path

import numpy as np
import pytest

from retrieval.errors import ConfigError, DataError, IndexFormatError
from retrieval.index import approximate as a
from retrieval.index import vectors as v


def unit(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    array = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def flat_file(path: Path, array: np.ndarray, dtype: str = "float32") -> v.FlatVectors:
    with path.open("wb") as sink:
        v.write_vectors(sink, np.array_split(array, 3), rows=len(array), dim=array.shape[1], dtype=dtype)
    return v.FlatVectors(path, rows=len(array), dim=array.shape[1], dtype=dtype)


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_streamed_file_is_the_one_faiss_writes(rows: int) -> None:
    array = unit(rows, 24)
    sink = io.BytesIO()
    v.write_vectors(sink, np.array_split(array, 4), rows=rows, dim=24, dtype="float32")
    index = v.faiss().IndexFlatIP(24)
    index.add(array)
    assert sink.getvalue() == v.faiss().serialize_index(index).tobytes()


def test_float16_codes_are_ieee_halves_behind_faiss_own_header() -> None:
    array = unit(500, 24)
    sink = io.BytesIO()
    v.write_vectors(sink, [array], rows=500, dim=24, dtype="float16")
    index = v.faiss().IndexScalarQuantizer(24, v.faiss().ScalarQuantizer.QT_fp16, v.faiss().METRIC_INNER_PRODUCT)
    index.add(array)
    theirs = v.faiss().serialize_index(index).tobytes()
    header = len(theirs) - 500 * 24 * 2
    assert sink.getvalue()[:header] == theirs[:header]
    assert sink.getvalue()[header:] == array.astype("<f2").tobytes()


def test_float16_refuses_what_does_not_fit() -> None:
    with pytest.raises(DataError, match="65504"):
        v.write_vectors(io.BytesIO(), [np.full((1, 4), 1e6, np.float32)], rows=1, dim=4, dtype="float16")


def test_write_refuses_another_number_of_rows() -> None:
    with pytest.raises(DataError, match="2 vectors were given where 3"):
        v.write_vectors(io.BytesIO(), [unit(2, 4)], rows=3, dim=4, dtype="float32")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_flat_search_equals_numpy(tmp_path: Path, dtype: str) -> None:
    array, queries = unit(3000, 32), unit(40, 32, 1)
    flat = flat_file(tmp_path / "v.faiss", array, dtype)
    stored = array.astype("<f2").astype(np.float32) if dtype == "float16" else array
    allowed = np.random.default_rng(2).random(3000) < 0.3
    for mask in (None, allowed):
        scores, rows = flat.search(queries, 10, mask)
        truth = queries @ stored.T
        if mask is not None:
            truth[:, ~mask] = -np.inf
        assert np.allclose(scores, -np.sort(-truth, axis=1)[:, :10], atol=1e-5)
        assert np.allclose(np.take_along_axis(truth, rows, axis=1), scores, atol=1e-5)
    assert np.array_equal(flat.take(np.array([2999, 0, 7])), stored[[2999, 0, 7]])
    assert np.array_equal(flat.block(10, 20), stored[10:20])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3), np.float32), r"shape \(2, 3\), expected \(n, 4\)"),
        (np.zeros(4, np.float32), "shape"),
        (np.array([["a"] * 4]), "dtype"),
        (np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]], np.float32), "row 1 holds NaN"),
        (np.array([[0, 0, 0, np.inf]], np.float32), "row 0 holds NaN or an infinite"),
    ],
)
def test_guard_refuses_what_faiss_would_take_badly(array: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        v.checked(array, 4, what="queries")


def test_guard_takes_other_layouts() -> None:
    fortran = np.asfortranarray(unit(8, 4).astype(np.float64))
    array = v.checked(fortran, 4, what="x")
    assert array.dtype == np.float32 and array.flags.c_contiguous
    assert np.allclose(array, fortran)


def test_exact_scores_do_not_depend_on_neighbours() -> None:
    array, query = unit(257, 384), unit(1, 384, 5)[0]
    array[[3, 100, 256]] = array[40]
    together = v.exact_scores(query, array)
    alone = np.concatenate([v.exact_scores(query, row[None]) for row in array])
    assert np.array_equal(together, alone)
    assert together[3] == together[100] == together[256] == together[40]


def test_a_file_that_is_no_index_is_named(tmp_path: Path) -> None:
    (tmp_path / "v.faiss").write_bytes(b"not an index")
    with pytest.raises(IndexFormatError, match=r"v\.faiss"):
        v.FlatVectors(tmp_path / "v.faiss", rows=1, dim=4, dtype="float32")
    flat_file(tmp_path / "w.faiss", unit(5, 4))
    with pytest.raises(IndexFormatError, match=r"w\.faiss holds 5 vectors, expected 6"):
        v.FlatVectors(tmp_path / "w.faiss", rows=6, dim=4, dtype="float32")
    for dim, dtype in ((4, "float16"), (5, "float32")):
        with pytest.raises(IndexFormatError, match=rf"w\.faiss: no {dtype} vectors of {dim} dimensions"):
            v.FlatVectors(tmp_path / "w.faiss", rows=5, dim=dim, dtype=dtype)


class Source:
    def __init__(self, array: np.ndarray) -> None:
        self.array, self.rows, self.dim = array, len(array), array.shape[1]

    def blocks(self, block_rows: int):  # type: ignore[no-untyped-def]
        yield from (self.array[i : i + block_rows] for i in range(0, self.rows, block_rows))

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.array[rows]


@pytest.mark.parametrize(
    "factory",
    ["HNSW16,Flat", "IVF16,Flat", "PCA16,IVF8,Flat", "IVF8,SQ8", "SQ8", "IVF8,SQ8,RFlat", "PQ8x4", "IVF4,PQ8x4"],
)
def test_every_kind_of_index_finds_rows_once_read_from_disk_too(tmp_path: Path, factory: str) -> None:
    source = Source(unit(2000, 32))
    built = a.ApproximateIndex.build(factory, source)
    with (tmp_path / "a.faiss").open("wb") as sink:
        built.write(sink)
    queries = unit(6, 32, 9)
    for index in (built, a.ApproximateIndex.open(tmp_path / "a.faiss", {})):
        for query, (_, rows) in zip(queries, index.search(queries, 50), strict=True):
            best = np.argsort(-(source.array @ query))[:10]
            assert len(rows) == len(set(rows.tolist())) == 50
            assert len(np.intersect1d(rows, best)) >= 2  # the codes of some are very coarse


def test_ivf_never_returns_fillers() -> None:
    built = a.ApproximateIndex.build("IVF16,Flat", Source(unit(1000, 8)))
    built.parameters["nprobe"] = 1
    for scores, rows in built.search(unit(3, 8, 4), 100):
        assert 0 < len(rows) < 100
        assert (rows >= 0).all() and (scores >= -1.001).all()


@pytest.mark.parametrize(
    ("index_type", "rows", "factory", "notice"),
    [
        ("FLAT", 10**7, None, None),
        ("hnsw", 5, "HNSW16_SQ8", None),
        ("ivf", 5, None, "ivf needs at least 78 passages and the index has 5: exact search is used"),
        ("ivf", 1000, "IVF25,Flat", "ivf with 25 lists instead of 126: 1,000 passages, 39 needed per list"),
        ("ivf", 10**6, "IVF4000,Flat", None),
        ("ivfsq", 10**6, "IVF4000,SQ8", None),
        (
            "ivfpq",
            100,
            None,
            "ivfpq needs at least 9984 passages and the index has 100: exact search is used",
        ),
        ("ivfpq", 10**6, "IVF4000,PQ96x8", None),
        ("IVF7,SQ8", 5, "IVF7,SQ8", None),
    ],
)
def test_plan(index_type: str, rows: int, factory: str | None, notice: str | None) -> None:
    plan = a.plan(index_type, rows=rows, dim=384)
    assert (plan.factory, plan.notice) == (factory, notice)


@pytest.mark.parametrize(
    ("rows", "dim", "memory_limit", "expected"),
    [
        (200_000, 384, None, [None]),
        (200_001, 384, None, ["HNSW16_SQ8", "IVF1789,SQ8", "IVF1789,PQ96x8"]),
        (50_000, 1536, None, [None]),
        (50_001, 1536, None, ["HNSW16_SQ8", "IVF894,SQ8", "IVF894,PQ384x8"]),
        (10**6, 384, 500 * 10**6, ["IVF4000,SQ8", "IVF4000,PQ96x8"]),
        (10**6, 384, 200 * 10**6, ["IVF4000,PQ96x8"]),
        (10**6, 384, 10**6, []),
    ],
)
def test_auto_tries_what_fits_the_memory(
    rows: int, dim: int, memory_limit: int | None, expected: list[str | None]
) -> None:
    assert [one.factory for one in a.plans("auto", rows=rows, dim=dim, memory_limit=memory_limit)] == expected


@pytest.mark.parametrize("index_type", ["hnsw", "ivf", "ivfsq"])
def test_bytes_of_a_passage_are_known_before_it_is_built(index_type: str) -> None:
    plan = a.plan(index_type, rows=6000, dim=64)
    built = a.ApproximateIndex.build(plan.factory or "", Source(unit(6000, 64)))
    sink = io.BytesIO()
    built.write(sink)
    assert built.bytes == len(sink.getvalue()) == pytest.approx(6000 * (plan.bytes_each or 0), rel=0.03)


def test_nearest_equals_numpy_whatever_the_blocks() -> None:
    array, queries = unit(500, 16), unit(7, 16, 1)
    blocks = [(np.arange(0, 3), array[:3]), (np.arange(3, 300), array[3:300]), (np.arange(400, 500), array[400:])]
    allowed = np.r_[0:300, 400:500]
    expected = allowed[np.argsort(-(queries @ array[allowed].T), axis=1)[:, :10]]
    assert np.array_equal(v.nearest(blocks, queries, 10), expected)
    assert v.nearest(blocks[:1], queries, 10).shape == (7, 3)


def test_rows_left_out_are_found_once_they_are_added() -> None:
    source = Source(unit(500, 16))
    left_out = np.array([0, 7, 499])
    built = a.ApproximateIndex.build("HNSW16_SQ8", source, without=left_out)
    assert built.rows == 497
    assert all(rows[0] != row for row, (_, rows) in zip(left_out, built.search(source.take(left_out), 5), strict=True))
    built.add(source.take(left_out), left_out)
    for row, (_, rows) in enumerate(built.search(source.array, 5)):
        assert rows[0] == row


def test_a_type_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="--index-type best"):
        a.plan("best", rows=10, dim=8)


@pytest.mark.parametrize("part", ["HNSW0", "HNSW00", "HNSW1", "HNSW1_SQ8", "IVF2_HNSW0", "NSG0", "RR0", "PCAR0"])
def test_a_type_that_would_crash_faiss_is_refused_before_it_is_tried(part: str) -> None:
    with pytest.raises(ConfigError, match=f"--index-type {part},Flat: a part of size 0"):
        a.plan(f"{part},Flat", rows=300, dim=8)


@pytest.mark.parametrize("factory", ["HNSW10,Flat", "HNSW100,Flat", "IVF100,PQ4x08", "PCAR4,Flat"])
def test_sizes_with_a_zero_in_them_are_sizes(factory: str) -> None:
    assert a.plan(factory, rows=300, dim=8).factory == factory


def test_scores_beyond_float32_are_refused() -> None:
    big = np.full((2, 4), 1e30, np.float32)
    with pytest.raises(DataError, match="scale down the vectors"):
        v.exact_scores(big[0], big)


def test_a_type_that_cannot_be_built_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 10 passages"):
        a.ApproximateIndex.build("IVF64,Flat", Source(unit(10, 8)))


@pytest.mark.parametrize(("factory", "name"), [("IVF60,Flat", "nprobe"), ("HNSW16_SQ8", "efSearch")])
def test_whoever_asks_for_more_looks_at_more(factory: str, name: str) -> None:
    array = unit(6000, 16)
    built = a.ApproximateIndex.build(factory, Source(array))
    built.parameters[name] = 8
    query = unit(1, 16, 9)
    best = np.argsort(-(array @ query[0]))
    shares = [len(np.intersect1d(built.search(query, k)[0][1], best[:k])) / k for k in (128, 512)]
    assert shares[1] > shares[0] > 0.5

"""What a GPU gives: encoding, re-ordering, and searching vectors, beside sentence-transformers and the CPU.

    python tests/benchmarks/gpu.py [--texts 20000] [--pairs 5000] [--passages 1000000] [--queries 1024] [--dim 384]
                                   [--rounds 5] [--seconds 450] [--device cuda]

It prints one table, in under 8 minutes on one large GPU: each of its three parts ends its rounds early, though never
before the first, when its share of --seconds is over. Sides of a part run in turn, in one process, after a warm-up.
Ratios are medians over rounds of the first side's time to this one's; what is left out, and why, stands below.

Texts are pieces of 20 to 300 words of the running Python's library (their first 30 words beside a query), models the
default encoder and reranker. Vectors are made up (see scale.py): points around random centres, of which the 100
nearest of each query are searched, in batches of 256, and one by one. Quality is the least cosine between a text's
vector and sentence-transformers' in float32, the 95th percentile of differences of logits (ours reads the few pairs in
windows that theirs cuts), and recall@10 against exact search on the CPU in float16. CAGRA, which only builds of FAISS
with cuVS have, is measured here and used nowhere else: it needs all rows on the GPU, and where they are, exact search
has them too.
"""

import argparse
import random
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scale import make_vectors

from retrieval import BiEncoder, CrossEncoder, EncoderSettings, RerankSettings
from retrieval.index.approximate import ApproximateIndex
from retrieval.index.gpu import GpuLists, GpuRows
from retrieval.index.segment import Raw
from retrieval.index.vectors import FlatVectors, faiss, write_vectors
from retrieval.models import resolve
from retrieval.runtime import cuda_memory

DEPTH = 100
BATCH = 256
PROBES = 32
SINGLE = 64  # queries asked one by one


@dataclass(frozen=True)
class Line:
    """One line of the table: `rate` is things a second, `ratio` is to the part's first side."""

    what: str
    rate: float
    ratio: float
    quality: str
    more: str = ""


def in_turn(
    sides: Mapping[str, Callable[[], Any]], rounds: int, seconds: float
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Run all sides in turn, round by round, and return their times and last results."""
    took: dict[str, list[float]] = {side: [] for side in sides}
    found: dict[str, Any] = {}
    end = time.monotonic() + seconds
    for number in range(rounds):
        if number and time.monotonic() > end:
            print(f"time is over after {number} rounds of {', '.join(sides)}", flush=True)
            break
        for side, run in sides.items():
            started = time.perf_counter()
            found[side] = run()
            took[side].append(time.perf_counter() - started)
    return took, found


def ratio(took: Mapping[str, list[float]], side: str) -> float:
    first = next(iter(took.values()))
    return statistics.median(theirs / ours for theirs, ours in zip(first, took[side], strict=True))


def make_texts(count: int) -> list[str]:
    rng = random.Random(7)
    texts: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        words = [word for word in path.read_text(encoding="utf-8", errors="replace").split() if len(word) <= 30]
        while words and len(texts) < count:
            size = rng.randint(20, 300)
            texts.append(" ".join(words[:size]))
            words = words[size:]
    if len(texts) < count:
        print(f"only {len(texts):,} texts in this Python's library", flush=True)
    return texts


def encoding(texts: list[str], device: str, rounds: int, seconds: float) -> list[Line]:
    import torch
    from sentence_transformers import SentenceTransformer

    folder = str(resolve().folder)
    sides: dict[str, Callable[[list[str]], np.ndarray]] = {}
    for dtype in ("float32", "bfloat16"):
        options = {"dtype": getattr(torch, dtype)}
        peer = SentenceTransformer(folder, device=device, model_kwargs=options, local_files_only=True)
        sides[f"sentence-transformers {dtype}"] = lambda some, peer=peer: np.asarray(peer.encode(some), np.float32)
    for dtype in ("float32", "auto"):
        ours = BiEncoder.load(settings=EncoderSettings(device=device, dtype=dtype, runtime="torch", on_long="truncate"))
        name = f"retrieval {ours.settings.dtype}" + " (auto)" * (dtype == "auto")
        sides[name] = lambda some, ours=ours: ours.encode_documents([""] * len(some), some).vectors
    for encode in sides.values():
        encode(sorted(texts, key=len)[:: max(1, len(texts) // 512)])
    took, found = in_turn(
        {side: lambda encode=encode: encode(texts) for side, encode in sides.items()}, rounds, seconds
    )
    exact = next(iter(found.values()))
    return [
        Line(
            what=f"encode, texts: {side}",
            rate=len(texts) / statistics.median(took[side]),
            ratio=ratio(took, side),
            quality=f"cosine {_cosines(exact, found[side]).min():.6f}",
        )
        for side in sides
    ]


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)  # bfloat16 is not quite unit


def reranking(texts: list[str], count: int, device: str, rounds: int, seconds: float) -> list[Line]:
    import torch
    from sentence_transformers import CrossEncoder as Peer

    model = "minilm-reranker"
    texts = [
        " ".join(text.split()[:30]) for text in texts
    ]  # that fit beside a query: ours would read all of longer ones
    queries = [" ".join(text.split()[:8]) for text in texts[: max(1, count // DEPTH)]]
    pairs = [(query, text) for query in queries for text in random.Random(query).sample(texts, min(DEPTH, len(texts)))][
        :count
    ]
    sides: dict[str, Callable[[list[tuple[str, str]]], np.ndarray]] = {}
    for dtype in ("float32", "bfloat16"):
        options = {"dtype": getattr(torch, dtype)}
        peer = Peer(str(resolve(model).folder), device=device, model_kwargs=options, local_files_only=True)
        sides[f"CrossEncoder.predict {dtype}"] = lambda some, peer=peer: peer.predict(
            some, activation_fn=torch.nn.Identity()
        ).astype(np.float32)
    for dtype in ("float32", "auto"):
        ours = CrossEncoder.load(model, settings=RerankSettings(device=device, dtype=dtype, runtime="torch"))
        sides[f"retrieval {ours.identity['dtype']}" + " (auto)" * (dtype == "auto")] = ours.score
    for score in sides.values():
        score(sorted(pairs, key=lambda pair: len(pair[1]))[:: max(1, len(pairs) // 256)])
    runs = {side: lambda score=score: score(pairs) for side, score in sides.items()}
    took, found = in_turn(runs, rounds, seconds)
    exact = next(iter(found.values()))
    return [
        Line(
            what=f"re-order, pairs: {side}",
            rate=len(pairs) / statistics.median(took[side]),
            ratio=ratio(took, side),
            quality=f"logit {np.quantile(np.abs(exact - found[side]), 0.95):.1e}",
        )
        for side in sides
    ]


class Vectors:
    """Vectors in a file, as a segment of an index has them; looks like `Rows`."""

    def __init__(self, folder: Path, rows: int, dim: int) -> None:
        self.rows, self.dim = rows, dim
        make_vectors(folder / "vectors.npy", folder / "queries.npy", rows, dim)
        self.array = np.load(folder / "vectors.npy", mmap_mode="r")
        with (folder / "vectors.faiss").open("wb") as sink:
            write_vectors(sink, self.blocks(65_536), rows=rows, dim=dim, dtype="float16")
        self._flat = FlatVectors(folder / "vectors.faiss", rows=rows, dim=dim, dtype="float16")

    def blocks(self, block_rows: int) -> Any:
        return (np.asarray(self.array[i : i + block_rows]) for i in range(0, self.rows, block_rows))

    def take(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.array[rows])

    def search(self, queries: np.ndarray, k: int, allowed: None = None, *, first_row: int = 0) -> list[Raw]:
        return list(zip(*self._flat.search(queries, k, allowed), strict=True))


Search = Callable[[np.ndarray], np.ndarray]


def searches(vectors: Vectors, memory: Mapping[int, int]) -> tuple[dict[str, Search], dict[str, str]]:
    """What searches, by name, giving rows (q, DEPTH); and what each took to make, or why it is left out."""
    sides: dict[str, Search] = {}
    told: dict[str, str] = {}

    def try_side(name: str, make: Callable[[], Search]) -> None:
        started = time.perf_counter()
        try:
            sides[name] = make()
            told[name] = f"{time.perf_counter() - started:.1f} s to make"
        except (AttributeError, RuntimeError) as error:
            told[name] = f"left out: {' '.join(str(error).split())[-300:]}"

    def flat(half: bool) -> Search:
        rows: Any = vectors
        held = GpuRows.on(rows, memory, half=half)
        if held is None:
            raise RuntimeError("does not fit into the GPU")
        return lambda queries: _rows(held.search(queries, DEPTH))

    def lists(on_gpu: bool) -> Search:
        if not on_gpu:
            made.append(ApproximateIndex.build(f"IVF{round(4 * vectors.rows**0.5)},SQ8", vectors))
            made[0].parameters["nprobe"] = PROBES
        index = GpuLists.on(made[0], memory, file_bytes=made[0].bytes) if on_gpu else made[0]
        if index is None:
            raise RuntimeError("does not fit into the GPU")
        return lambda queries: _rows(index.search(queries, DEPTH))

    def cagra() -> Search:
        module = faiss()
        config = module.GpuIndexCagraConfig()
        config.device = min(memory)
        index = module.GpuIndexCagra(module.StandardGpuResources(), vectors.dim, module.METRIC_INNER_PRODUCT, config)
        index.train(np.ascontiguousarray(vectors.array))
        graphs.append(index)
        parameters = module.SearchParametersCagra()
        parameters.itopk_size = 128  # at least as many as are asked for
        return lambda queries: index.search(queries, DEPTH, params=parameters)[1]

    def portable() -> Search:
        module = faiss()
        index = module.index_gpu_to_cpu(graphs[0])
        parameters = module.SearchParametersHNSW(efSearch=128)
        return lambda queries: index.search(queries, DEPTH, params=parameters)[1]

    made: list[ApproximateIndex] = []
    graphs: list[Any] = []
    try_side("CPU, flat float16, mapped", lambda: lambda queries: _rows(vectors.search(queries, DEPTH)))
    if memory:
        try_side("GPU, flat float16", lambda: flat(True))
        try_side("GPU, flat float32", lambda: flat(False))
    try_side(f"CPU, IVF SQ8, nprobe {PROBES}", lambda: lists(False))
    if memory:
        try_side(f"GPU, IVF SQ8, nprobe {PROBES}", lambda: lists(True))
        if hasattr(faiss(), "GpuIndexCagra"):
            try_side("GPU, CAGRA, itopk 128", cagra)
            if graphs:
                try_side("CPU, CAGRA's graph as HNSW, efSearch 128", portable)
        else:
            told["GPU, CAGRA"] = "left out: this build of FAISS has no cuVS"
    return sides, told


def _rows(raws: list[Raw]) -> np.ndarray:
    rows = np.full((len(raws), DEPTH), -1, np.int64)
    for place, (_, found) in zip(rows, raws, strict=True):
        place[: len(found)] = found[:DEPTH]
    return rows


def searching(
    vectors: Vectors, queries: np.ndarray, memory: Mapping[int, int], rounds: int, seconds: float
) -> tuple[list[Line], list[str]]:
    end = time.monotonic() + seconds
    sides, told = searches(vectors, memory)

    def batches(search: Search) -> np.ndarray:
        return np.vstack([search(queries[i : i + BATCH]) for i in range(0, len(queries), BATCH)])

    for search in sides.values():
        search(queries[:BATCH])
        search(queries[:1])
    took, found = in_turn(
        {side: lambda search=search: batches(search) for side, search in sides.items()}, rounds, end - time.monotonic()
    )
    alone, _ = in_turn(
        {
            side: lambda search=search: [search(queries[i : i + 1]) for i in range(min(SINGLE, len(queries)))]
            for side, search in sides.items()
        },
        1,
        0,
    )
    exact = next(iter(found.values()))[:, :10]
    lines = []
    for side in sides:
        shares = [len(np.intersect1d(a, b)) / 10 for a, b in zip(exact, found[side][:, :10], strict=True)]
        lines.append(
            Line(
                what=f"search, queries: {side}",
                rate=len(queries) / statistics.median(took[side]),
                ratio=ratio(took, side),
                quality=f"recall {np.mean(shares):.4f}",
                more=f"{1000 * alone[side][0] / min(SINGLE, len(queries)):.2f} ms alone, {told[side]}",
            )
        )
    return lines, [f"{name}: {why}" for name, why in told.items() if name not in sides]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=5_000)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=450)
    parser.add_argument("--device", default="cuda", help="cuda; cpu tries out the script itself.")
    options = parser.parse_args()
    started = time.monotonic()
    import torch

    if options.device != "cpu" and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device here: nothing is measured")
    memory = {number: free for number, free in cuda_memory(options.device).items() if number < faiss().get_num_gpus()}
    left_out = [] if memory else ["search on the GPU: FAISS finds none (faiss-cpu, or a build without CUDA)"]
    texts = make_texts(options.texts)
    lines = encoding(texts, options.device, options.rounds, 0.25 * options.seconds)
    lines += reranking(texts, options.pairs, options.device, options.rounds, 0.15 * options.seconds)
    with tempfile.TemporaryDirectory() as name:
        vectors = Vectors(Path(name), options.passages, options.dim)
        queries = np.load(Path(name) / "queries.npy")[: options.queries]
        rest = options.seconds - (time.monotonic() - started)
        found, why = searching(vectors, queries, memory, options.rounds, rest)
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    print(f"\n{device}, {torch.get_num_threads()} threads; torch {torch.__version__}, FAISS {faiss().__version__}")
    print(f"{len(texts):,} texts, {options.pairs:,} pairs, {options.passages:,} x {options.dim} vectors")
    print(f"{'':64}{'a second':>12}{'ratio':>9}  quality")
    for line in lines + found:
        print(f"{line.what:64}{line.rate:12,.0f}{line.ratio:9.2f}  {line.quality:18}{line.more}".rstrip())
    for one in left_out + why:
        print(f"left out: {one}" if not one.startswith("left out") else one)
    print(f"{time.monotonic() - started:.0f} s in all")


if __name__ == "__main__":
    main()

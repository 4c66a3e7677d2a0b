"""How fast pairs are scored, next to sentence-transformers' CrossEncoder.predict on the same pairs.

    python tests/benchmarks/reranking.py [--queries 4] [--depth 50] [--rounds 5] [--batch-tokens N]
                                         [--threads N]

Both have the default encoder's weights under a fresh head, in float32 on the CPU. Passages are 5 to 120
made-up words, some 300 tokens at most. They run in turn, in one process, and the median round counts: on a
busy machine trust the ratio only, and use one thread. The scores may differ by rounding only.
"""

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from retrieval.models import resolve
from retrieval.reranker import CrossEncoder, RerankSettings

Pairs = list[tuple[str, str]]


def make_pairs(queries: int, depth: int) -> Pairs:
    rng = random.Random(7)
    syllables = ["ba", "ke", "li", "mo", "nu", "ra", "sti", "tor", "ven", "qua", "phi"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(2_000)]

    def text(least: int, most: int) -> str:
        return " ".join(rng.choices(words, k=rng.randint(least, most)))

    return [(query, text(5, 120)) for query in [text(3, 12) for _ in range(queries)] for _ in range(depth)]


def make_cross_encoder(folder: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    default = resolve().folder
    torch.manual_seed(1)
    network = AutoModelForSequenceClassification.from_pretrained(default, num_labels=1)
    torch.nn.init.normal_(network.classifier.weight, std=0.5)
    network.save_pretrained(folder)
    for path in default.glob("*token*"):
        shutil.copy(path, folder)
    shutil.copy(default / "vocab.txt", folder)


def timed(score: Callable[[Pairs], np.ndarray], pairs: Pairs) -> tuple[float, np.ndarray]:
    started = time.perf_counter()
    scores = score(pairs)
    return time.perf_counter() - started, scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=4)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-tokens", type=int)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    pairs = make_pairs(arguments.queries, arguments.depth)
    with tempfile.TemporaryDirectory() as name:
        import torch
        from sentence_transformers import CrossEncoder as Peer

        if arguments.threads:
            torch.set_num_threads(arguments.threads)
        folder = Path(name) / "cross"
        make_cross_encoder(folder)
        settings = RerankSettings(device="cpu", dtype="float32", batch_tokens=arguments.batch_tokens)
        ours = CrossEncoder.load(folder, settings=settings)
        peer = Peer(str(folder), device="cpu", local_files_only=True)
        sides: dict[str, Callable[[Pairs], np.ndarray]] = {
            "ours": ours.score,
            "peer": lambda some: peer.predict(some, activation_fn=torch.nn.Identity(), show_progress_bar=False),
        }
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        results: dict[str, np.ndarray] = {}
        for score in sides.values():
            score(pairs[:8])  # warm up
        for _ in range(arguments.rounds):
            for side, score in sides.items():
                took, results[side] = timed(score, pairs)
                seconds[side].append(took)
    rates = {side: len(pairs) / statistics.median(times) for side, times in seconds.items()}
    ratios = [peer / ours for ours, peer in zip(seconds["ours"], seconds["peer"], strict=True)]
    print(f"{len(pairs)} pairs, median of {arguments.rounds} rounds in turn, {torch.get_num_threads()} threads")
    print(f"retrieval              {rates['ours']:7.1f} pairs/s")
    print(f"sentence-transformers  {rates['peer']:7.1f} pairs/s")
    print(f"ratio {statistics.median(ratios):.2f} (rounds {min(ratios):.2f} to {max(ratios):.2f})")
    print(f"largest difference of a score {np.abs(results['ours'] - results['peer']).max():.1e}")


if __name__ == "__main__":
    main()

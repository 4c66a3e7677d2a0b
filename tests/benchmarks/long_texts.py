"""How fast texts of very different lengths are encoded, next to SentenceTransformer.encode with its defaults.

    python tests/benchmarks/long_texts.py [--long ../shared/data/qmsum] [--short ../shared/data/trec-dl-2019]
                                          [--meetings 200] [--texts 5000] [--ours="OPTIONS" ...] [--rounds 5]
                                          [--threads 2]

The model is made here: a ModernBERT of 12 layers, 384 wide, for 8,192 tokens, with random weights, mean pooling and
the default encoder's tokenizer. Texts are the first --meetings of --long and --texts of --short, folders in BEIR's
layout, shuffled; without them the script says so and ends. Longer ones are cut at 8,192 tokens by both sides. --ours
are settings, each time it is given another row. All run in one process on the CPU, in turn, after a warm-up. Ratios
are medians over rounds of theirs to ours; the least cosine is that between our vector of a text and theirs.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
from processes import limit_threads
from variants import settings

from retrieval import BiEncoder, EncoderSettings

POSITIONS = 8_192


def texts_of(folder: Path, most: int) -> list[str]:
    with (folder / "corpus.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in islice(lines, most)]


def make_model(folder: Path) -> None:
    """Write a random ModernBERT as a sentence-transformers folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoTokenizer, ModernBertConfig, ModernBertModel

    from retrieval.models import resolve

    tokenizer = AutoTokenizer.from_pretrained(resolve().folder)
    tokenizer.model_max_length = POSITIONS
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        intermediate_size=576,
        num_hidden_layers=12,
        num_attention_heads=6,
        max_position_embeddings=POSITIONS,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        bos_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    torch.manual_seed(1)
    ModernBertModel(config).save_pretrained(folder / "bare")
    tokenizer.save_pretrained(folder / "bare")
    transformer = Transformer(str(folder / "bare"), max_seq_length=POSITIONS)
    pooling = Pooling(384, pooling_mode="mean")
    model = SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu", local_files_only=True)
    model.save(str(folder / "model"), create_model_card=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", type=Path, default=Path("../shared/data/qmsum"))
    parser.add_argument("--short", type=Path, default=Path("../shared/data/trec-dl-2019"))
    parser.add_argument("--meetings", type=int, default=200)
    parser.add_argument("--texts", type=int, default=5_000)
    parser.add_argument("--ours", action="append", help="Settings of ours.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for folder in (options.long, options.short):
        if not folder.is_dir():
            sys.exit(f"{folder}: no such folder; nothing is measured")
    limit_threads(options.threads)
    texts = texts_of(options.long, options.meetings) + texts_of(options.short, options.texts)
    random.Random(7).shuffle(texts)
    from sentence_transformers import SentenceTransformer

    with tempfile.TemporaryDirectory() as name:
        make_model(Path(name))
        folder = Path(name) / "model"
        peer = SentenceTransformer(str(folder), device="cpu")
        sides: dict[str, Callable[[list[str]], np.ndarray]] = {"SentenceTransformer.encode": peer.encode}
        for one in options.ours or [""]:
            encoder = BiEncoder.load(
                folder, settings=EncoderSettings(device="cpu", on_long="truncate", **settings(one))
            )
            label = f"retrieval {one}".strip() + f" ({encoder.settings.runtime}, {encoder.settings.dtype})"
            sides[label] = lambda some, encoder=encoder: encoder.encode_documents([""] * len(some), some).vectors
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        vectors: dict[str, np.ndarray] = {}
        for encode in sides.values():
            encode(sorted(texts, key=len)[:32])
        for number in range(options.rounds):
            for side, encode in sides.items():
                started = time.perf_counter()
                vectors[side] = encode(texts)
                seconds[side].append(time.perf_counter() - started)
                print(f"round {number + 1}: {seconds[side][-1]:7.1f} s  {side}", flush=True)
    theirs = next(iter(sides))
    print(f"\n{len(texts):,} texts, {options.threads} threads, {options.rounds} rounds in turn")
    print(f"{'':52}seconds: median  least  most  ratio (rounds)    least cosine")
    for side, took in seconds.items():
        ratios = [their / our for their, our in zip(seconds[theirs], took, strict=True)]
        cosines = np.einsum("ij,ij->i", vectors[theirs], vectors[side])  # (n, dim), (n, dim) -> (n,)
        print(
            f"{side:60}{statistics.median(took):7.1f}{min(took):7.1f}{max(took):6.1f}"
            f"{statistics.median(ratios):7.2f} ({min(ratios):.2f} to {max(ratios):.2f}){cosines.min():10.6f}"
        )


if __name__ == "__main__":
    main()

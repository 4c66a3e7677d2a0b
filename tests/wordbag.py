"""Encoders of a few lines, one that reads any text word by word and one that does not, and texts for them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from retrieval.chunking import PassageVectors

DIM = 64


class WordBag:
    """Adds up a random vector for each word: reads any text, word by word."""

    dim, metric = DIM, "cosine"
    identity: Mapping[str, Any] = {"name": "word bag", "sha256": "0" * 64}
    notices: Mapping[str, int] = {}

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        found = np.stack([sum((self.word(word) for word in text.split()), np.zeros(DIM)) for text in texts])
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)

    def word(self, word: str) -> np.ndarray:
        return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIM)

    def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
        rows, ends = np.arange(len(texts)), np.array([len(text) for text in texts])
        vectors = self.encode_queries([f"{title} {text}" for title, text in zip(titles, texts, strict=True)])
        return PassageVectors(parent=rows, start=0 * rows, end=ends, vectors=vectors)


class Lengths(WordBag):
    """Sees of each word how long it is, as an encoder sees a script that it does not know."""

    def word(self, word: str) -> np.ndarray:
        return super().word(f"{len(word)}")


def sentences(count: int, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(f"w{'x' * int(n % 4)}{n}" for n in draw.integers(0, 3000, size=30)) for _ in range(count)]

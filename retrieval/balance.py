"""How much keywords shall count beside vectors in an index that has no judged queries, measured on its own passages.

Keyword search works alike in every language, an encoder only where it was trained. So some words in a row are taken
from each of some passages, such that no other passage of a sample holds all of them: keyword search finds it by
construction. How often the vectors tell it from a hundred others says whether the encoder reads this text at all. On
development sets that was 81 % and more of English and code, 28 % and less of scripts that the encoder does not know.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retrieval.chunking import joined
from retrieval.hybrid import FOREIGN, USUAL, Fusion
from retrieval.matching import Encoder
from retrieval.terms import UNSPACED, terms

log = logging.getLogger(__name__)

SAMPLE = 1000
"""Passages that are looked at."""

_QUERIES = 256
_FEWEST = 32  # queries, and documents to tell apart, that say something
_LEAST_WORDS, _MOST_WORDS = 6, 12  # of a passage to take a query from; of a query
_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")
_OTHERS = 100  # passages that the right one is told from
_READS_NOTHING, _READS = 0.35, 0.6  # how often it is, between which the weight changes


@dataclass(frozen=True, kw_only=True)
class SampledPassage:
    """A passage with its vector (dim,), as the index stores them."""

    doc_id: str
    title: str
    text: str
    vector: np.ndarray


def untuned_fusion(encoder: Encoder, sample: Sequence[SampledPassage]) -> Fusion | None:
    """Choose the weight of keyword search.

    Args:
        encoder: Encodes up to 256 short queries.
        sample: Passages from all over the index; `SAMPLE` of them are enough.

    Returns:
        None where there are too few documents to say anything.
    """
    queries, sources = _queries(sample)
    if min(len(queries), len({one.doc_id for one in sample})) < _FEWEST:
        return None
    vectors = np.asarray(encoder.encode_queries(queries), np.float32)
    scores = vectors @ np.stack([one.vector for one in sample]).T  # (queries, sample)
    own = scores[np.arange(len(queries)), sources]
    documents = np.array([one.doc_id for one in sample])
    others = documents[sources][:, None] != documents[None, :]  # not the other windows of the same document
    count = others.sum(axis=1)
    below = ((scores < own[:, None]) & others).sum(axis=1) / count
    told = float((below ** np.minimum(count, _OTHERS)).mean())  # the chance that none of so many is above
    weight = float(np.interp(told, [_READS_NOTHING, _READS], [FOREIGN, USUAL]))
    origin = f"measured: by some words of {len(queries)} passages, vectors tell {told:.0%} from up to {_OTHERS} others"
    log.info("weight of keywords %.2f, %s", weight, origin)
    return Fusion(weight=round(weight, 2), origin=origin)


def _queries(sample: Sequence[SampledPassage]) -> tuple[list[str], list[int]]:
    """Take queries from passages spread over the sample, one each; and say from which."""
    texts = [joined(one.title, one.text) for one in sample]
    held = [frozenset(terms(text)) for text in texts]
    draw = np.random.default_rng(0)
    queries: list[str] = []
    sources: list[int] = []
    for number in draw.permutation(len(sample)).tolist():
        words = list(_WORD.finditer(texts[number]))
        if len(words) < _LEAST_WORDS:
            continue
        size = min(_MOST_WORDS, len(words) // 3)
        first = int(draw.integers(len(words) - size + 1))
        query = texts[number][words[first].start() : words[first + size - 1].end()]
        asked = set(terms(query))
        doc_id = sample[number].doc_id
        others = (own for one, own in zip(sample, held, strict=True) if one.doc_id != doc_id)
        if asked and not any(asked <= other for other in others):
            queries.append(query)
            sources.append(number)
        if len(queries) == _QUERIES:
            break
    return queries, sources

"""The reranker that comes with the installation: which indexes it is used for when none is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from retrieval.chunking import joined
from retrieval.index.reader import Index
from retrieval.language import judge
from retrieval.models import DEFAULT_RERANKER, default_reranker

AUTO = "auto"
"""In place of a reranker's name: the default one where it fits, else none."""

_SAMPLE = 200  # passages


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Which reranker an index gets where none is named.

    Attributes:
        reranker: The default one's name, or None.
        reason: Why none; "" where there is one, or where the installation has none to choose.
    """

    reranker: str | None
    reason: str = ""


def choose_reranker(index: Index) -> Choice:
    """Take the default reranker for an index whose passages are English or code, by a sample of them."""
    if default_reranker() is None:
        return Choice(reranker=None)
    reason = misfit(sampled(index))
    return Choice(reranker=None if reason else DEFAULT_RERANKER, reason=reason)


def misfit(texts: Iterable[str]) -> str:
    """Say why the default reranker is not for some texts, such as a sample of a corpus; "" where it is."""
    found = judge(texts)
    if found.readable:
        return ""
    guess = f" ({found.language}?)" if found.language else ""
    return f"about {found.foreign:.0%} of the text is not English{guess}"


def sampled(index: Index, most: int = _SAMPLE) -> Iterator[str]:
    """Yield passages, title in front, at equal distances in the index; the same ones each time.

    Args:
        index: An open index; only these passages are read.
        most: How many; deleted rows and documents without text are not among them.
    """
    rows = np.arange(index.rows.rows) if index.live is None else np.flatnonzero(index.live)  # (n,) int64
    chosen = rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]
    for row in chosen.tolist():
        passage = index.passage(row)
        yield joined(passage["title"], passage["text"])

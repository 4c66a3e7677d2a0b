"""Scoring profiles: the rules by which published numbers were computed, under one name each.

Read in the evaluators of CodeSearchNet (Husain et al., 2019), CodeXGLUE (Lu et al., 2021), CoIR (Li et al., 2024),
BEIR (Thakur et al., 2021), MTEB (Muennighoff et al., 2022) and trec_eval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from retrieval.counts import many
from retrieval.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How a benchmark is scored.

    Attributes:
        name: of the profile.
        metrics: names of metrics; the first is the one that is published.
        pool: queries whose relevant documents make one pool, see `pools`; None: the whole corpus.
        depth: hits needed for each query; None: all documents of the pool.
        ignore_identical_ids: whether a hit with the query's own id is left out.
        about: the rules in a sentence.
    """

    name: str
    metrics: tuple[str, ...]
    pool: int | None = None
    depth: int | None = None
    ignore_identical_ids: bool = False
    about: str


def _at(*cuts: int, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}@{k}" for name in names for k in cuts)


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            name="csn-999",
            metrics=("mrr",),
            pool=1000,
            about="MRR of the right function among 999 distractors: shuffled queries in batches of 1,000, each batch's "
            "relevant documents being its pool; a smaller last batch is left out",
        ),
        Profile(
            name="codexglue",
            metrics=("mrr",),
            about="MRR over all documents",
        ),
        Profile(
            name="coir",
            metrics=("ndcg@10", *_at(10, names=("map", "recall", "precision")), "recall@100"),
            depth=1000,
            ignore_identical_ids=True,
            about="nDCG@10 over the whole corpus, computed as BEIR does: a hit with the query's own id is left out",
        ),
        Profile(
            name="mteb",
            metrics=tuple(
                dict.fromkeys(
                    ("ndcg@10", *_at(1, 3, 5, 10, 20, 100, 1000, names=("ndcg", "map", "recall", "precision", "mrr")))
                )
            ),
            depth=1000,
            about="nDCG@10 over the whole corpus, and MTEB's other cut-offs; a hit with the query's own id counts, but "
            "for the few tasks that leave it out (ArguAna, Quora, ...: --ignore-identical-ids)",
        ),
        Profile(
            name="trec",
            metrics=(
                *("map", "r-precision", "bpref", "mrr"),
                *_at(5, 10, 15, 20, 30, 100, 200, 500, 1000, names=("precision",)),
                *("ndcg@10", "recall@100", "recall@1000"),
            ),
            depth=1000,
            about="what trec_eval prints by itself, over 1,000 hits, and the track's nDCG@10 and recall",
        ),
    )
}


def get_profile(name: str) -> Profile:
    """Return a profile by name.

    Raises:
        ConfigError: no such profile.
    """
    if name not in PROFILES:
        raise ConfigError(f"no scoring profile {name!r}; expected one of {', '.join(PROFILES)}")
    return PROFILES[name]


def pools(qrels: Mapping[str, Mapping[str, int]], size: int) -> dict[str, frozenset[str]]:
    """Give each query the documents it is ranked against, as CodeSearchNet does.

    The queries, in the order of `qrels`, are shuffled by NumPy's legacy generator with seed 0 and cut into batches of
    `size`; the pool of a batch are the relevant documents of its queries. The last batch is left out where it is
    smaller; fewer queries than `size` are one batch. So with the rows of CodeSearchNet in their own order, and none
    missing, the batches are those of the original.

    One thing differs on purpose: the original's program ranks the batch's queries for each function, where its paper,
    and this pool, ranks functions for each query.

    Args:
        qrels: grade by document, by query. Documents with a grade of 1 or more are relevant.
        size: queries a batch.

    Returns:
        Ids of the pool by query; queries that are left out are not in it.

    Raises:
        ConfigError: a batch of less than one query.
    """
    if size < 1:
        raise ConfigError(f"a pool of {size} queries; expected at least 1")
    order = np.arange(len(qrels))
    np.random.RandomState(0).shuffle(order)
    query_ids = list(qrels)
    shuffled = [query_ids[int(at)] for at in order]
    size = min(size, len(shuffled))
    found: dict[str, frozenset[str]] = {}
    for start in range(0, len(shuffled) - size + 1, max(size, 1)):
        batch = shuffled[start : start + size]
        pool = frozenset(doc_id for query_id in batch for doc_id, grade in qrels[query_id].items() if grade > 0)
        found |= dict.fromkeys(batch, pool)
    return found


def pool_notices(queries: int, size: int) -> list[str]:
    """Say what `pools` does with a number of queries that is no multiple of the size.

    Args:
        queries: number of judged queries.
        size: queries a batch, as given to `pools`.
    """
    if queries < size:
        pool = f"only {many(queries, 'query')}: one pool of them all, not of {size:,}"
        return [f"{pool}; no number to compare with published ones"]
    left_out = queries % size
    return [f"not scored: {many(left_out, 'query')} in the last, smaller batch"] if left_out else []

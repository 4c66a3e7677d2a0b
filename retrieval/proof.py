"""Whether a new model is better than the old one: both are asked the same queries, and compared in pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from retrieval.eval.benchmark import Benchmark
from retrieval.eval.comparison import Comparison
from retrieval.eval.evaluation import Evaluation, compared
from retrieval.eval.profiles import get_profile
from retrieval.eval.stages import evaluate_retriever
from retrieval.retriever import Retriever

METRIC = "ndcg@10"
"""The metric that decides whether a model is kept."""

_METRICS = (METRIC, "mrr@10", "recall@100")


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Old and new on the same queries.

    Attributes:
        what: encoder (the old index against the new one) or reranker (the first stage against its re-ordering).
        held_out: Whether these are the held-out queries, which decide; else another benchmark's.
        evaluation: Two systems, `old` and `new`, and their paired tests.
    """

    what: str
    held_out: bool
    evaluation: Evaluation

    @property
    def decisive(self) -> Comparison:
        """The row of the metric that decides."""
        return next(row for row in self.evaluation.comparisons if row.metric == METRIC)

    @property
    def better(self) -> bool:
        """Whether the new one is better, and not by chance (randomisation test)."""
        return self.decisive.better

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for `json.dumps`."""
        rows = [row.to_dict() for row in self.evaluation.comparisons]
        return {
            "what": self.what,
            "benchmark": self.evaluation.title,
            "held_out": self.held_out,
            "comparisons": rows,
            "notices": list(self.evaluation.notices),
        }


def prove(
    what: str,
    old: Retriever | None,
    new: Retriever,
    benchmark: Benchmark,
    *,
    held_out: bool,
    depth: int,
    progress: Callable[[str, float | None], None],
) -> Proof:
    """Ask old and new the same queries.

    Args:
        what: encoder or reranker.
        old: What answered before; None: the first stage of `new`.
        new: What is to be better.
        benchmark: Whose queries are asked.
        held_out: Whether this decides.
        depth: Hits that a reranker re-orders.
        progress: Hears who is asked, and the share of the queries that is done.

    Raises:
        DataError: None of the judged documents is in an index.
    """
    ignore = bool(benchmark.card.profile) and get_profile(benchmark.card.profile).ignore_identical_ids

    def asked(retriever: Retriever, name: str) -> Evaluation:
        stage = f"asking the {name} {what}: {benchmark.card.name}, {benchmark.card.split}"
        return evaluate_retriever(
            retriever,
            benchmark,
            _METRICS,
            k=max(100, depth),
            rerank_depth=depth,
            ignore_identical_ids=ignore,
            progress=lambda done, total: progress(stage, done / total),
        )

    after = asked(new, "new")
    before = after if old is None else asked(old, "old")
    systems = (replace(before.systems[0], name="old"), replace(after.systems[-1], name="new"))
    return Proof(
        what=what, held_out=held_out, evaluation=replace(after, systems=systems, comparisons=compared(systems))
    )

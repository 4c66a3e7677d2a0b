"""What an evaluation found: systems, their scores, and how they compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from retrieval.eval.comparison import Comparison
from retrieval.eval.metrics import Scores


@dataclass(frozen=True, kw_only=True)
class System:
    """One ranking of the same queries: a first stage, its re-ordering, or a run from elsewhere.

    Attributes:
        name: What tables call it.
        scores: By metric and query.
        recall: Mean recall by depth (1, 2, 5, 10, ... hits); empty where it was not computed.
        seconds: For each stage ("retrieve", "rerank") the seconds of each query; empty for a finished run.
    """

    name: str
    scores: Scores
    recall: Mapping[int, float] = field(default_factory=dict)
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Systems on the same queries, side by side.

    Attributes:
        title: One line.
        facts: What was evaluated and by which rules, as a person reads it.
        systems: At least one; the first is the baseline.
        comparisons: Paired tests, a row for each metric and pair of systems.
        ceiling: By metric, what an ideal re-ordering of the first stage's candidates would reach.
        queries: Text by query_id; may be empty.
        notices: Sentences on what a reader should know before trusting a number.
    """

    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    systems: tuple[System, ...]
    comparisons: tuple[Comparison, ...] = ()
    ceiling: Mapping[str, float] = field(default_factory=dict)
    queries: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

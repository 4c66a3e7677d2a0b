"""Whether one system is better than another: paired tests over the same queries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One system against a baseline, by one metric, paired over the same queries."""

    metric: str
    baseline: str
    system: str
    queries: int
    baseline_mean: float
    system_mean: float
    difference: float
    low: float
    high: float
    effect_size: float
    p_student: float
    p_randomization: float
    p_student_holm: float
    p_randomization_holm: float
    wins: int
    ties: int
    losses: int

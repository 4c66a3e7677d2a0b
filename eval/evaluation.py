"""Systems on the same queries, side by side; and finished runs, scored and compared."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from retrieval.counts import many
from retrieval.errors import ConfigError
from retrieval.eval.comparison import Comparison, compare
from retrieval.eval.measures import Measure, parse_measures
from retrieval.eval.metrics import DEFAULT_METRICS, Scores, evaluate
from retrieval.eval.profiles import Profile, get_profile, pool_notices, pools

DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # of the curve of recall


@dataclass(frozen=True, kw_only=True)
class System:
    """One ranking of the same queries: a first stage, its re-ordering, or a run from elsewhere.

    Attributes:
        name: What tables call it.
        scores: By metric and query.
        run: Score by doc_id, by query_id.
        recall: Mean recall by depth (1, 2, 5, 10, ... hits).
        seconds: For each stage ("retrieve", "rerank") the seconds of each query; empty for a finished run.
    """

    name: str
    scores: Scores
    run: Mapping[str, Mapping[str, float]] = field(default_factory=dict, repr=False)
    recall: Mapping[int, float] = field(default_factory=dict)
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Systems on the same queries, side by side.

    Attributes:
        title: One line.
        facts: What was evaluated, as a person reads it.
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

    @property
    def rules(self) -> tuple[str, ...]:
        """By which rules the numbers were made, in sentences."""
        scores = self.systems[0].scores
        names = {metric.partition("@")[0].partition("-l")[0] for metric in scores.metrics}
        own = "are left out" if scores.counts.ignored_identical else "count like any other"
        gains = {
            "ndcg": "ndcg has linear gain, the grade itself, as in trec_eval.",
            "ndcg_burges": "ndcg_burges has exponential gain, 2^grade - 1.",
        }
        return (
            "Hits are ordered by score, the highest first; equal scores by doc_id, descending, as trec_eval does.",
            "Every judged query counts in the mean: one without hits, or without a relevant document, counts as 0. "
            "Queries without judgements are left out.",
            "Documents without a judgement, and those with a negative grade, are not relevant.",
            f"Hits that have the id of their query {own}.",
            *(sentence for name, sentence in gains.items() if name in names),
            "Confidence intervals are of the mean over queries, by Student's t; they are not cut at 0 and 1.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all of it but the runs, for `json.dumps`."""
        return {
            "title": self.title,
            "facts": dict(self.facts),
            "rules": list(self.rules),
            "systems": [_system_dict(system) for system in self.systems],
            "comparisons": [comparison.to_dict() for comparison in self.comparisons],
            "ceiling": dict(self.ceiling),
            "notices": list(self.notices),
        }


def evaluate_runs(
    qrels: Mapping[str, Mapping[str, int]],
    runs: Mapping[str, Mapping[str, Mapping[str, float]]],
    metrics: str | Iterable[str] | None = None,
    *,
    profile: str | Profile | None = None,
    relevance_level: int = 1,
    ignore_identical_ids: bool | None = None,
    all_pairs: bool = False,
    title: str = "",
    facts: Mapping[str, str] | None = None,
    curve: bool = True,
) -> Evaluation:
    """Score finished runs, and compare them where there are several.

    Args:
        qrels: Grade by doc_id, by query_id.
        runs: By name; the first is the baseline of the others.
        metrics: As in `evaluate`; None: the profile's.
        profile: Rules that published numbers use, by name (see `retrieval.eval.profiles`).
        relevance_level: As in `evaluate`.
        ignore_identical_ids: As in `evaluate`; None: as the profile says.
        all_pairs: Compare every two runs, not only each with the first.
        title: Of the report.
        facts: What the report says of the judgements and runs, such as their files.
        curve: Compute recall by depth, for a report; without it, only the metrics are compiled.

    Raises:
        ConfigError: No such metric or profile, or no run.
        DataError: See `evaluate`.
    """
    if not runs:
        raise ConfigError("no run to evaluate")
    rules = Rules.choose(metrics, profile, relevance_level, ignore_identical_ids)
    judged, pool, notices = rules.pooled(qrels)
    if pool:
        runs = {
            name: {q: {d: score for d, score in hits.items() if d in pool[q]} for q, hits in run.items() if q in pool}
            for name, run in runs.items()
        }
    systems = tuple(rules.system(name, judged, run, curve=curve) for name, run in runs.items())
    return Evaluation(
        title=title or " and ".join(runs),
        facts={**(facts or {}), **rules.facts()},
        systems=systems,
        comparisons=compared(systems, all_pairs),
        notices=(*notices, *_shallow(rules.measures, systems), *counted(systems)),
    )


def _shallow(measures: Sequence[Measure], systems: Sequence[System]) -> Iterator[str]:
    """Say which runs hold fewer hits than a metric looks at."""
    for system in systems:
        longest = max(map(len, system.run.values()), default=0)
        deep = [str(measure) for measure in measures if measure.k > longest]
        if deep and longest:
            yield f"{system.name}: {', '.join(deep)} sees no more than {many(longest, 'hit')}, the most of any query"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """By what an evaluation scores: metrics, what is relevant, pools; chosen by a profile or one by one.

    Attributes:
        measures: The metrics.
        relevance_level: The smallest relevant grade, for the counts.
        ignore_identical_ids: Whether hits with their query's id are left out.
        profile: Where the rules come from, or None.
    """

    measures: tuple[Measure, ...]
    relevance_level: int
    ignore_identical_ids: bool
    profile: Profile | None

    @classmethod
    def choose(
        cls,
        metrics: str | Iterable[str] | None,
        profile: str | Profile | None,
        relevance_level: int,
        ignore_identical_ids: bool | None,
    ) -> Rules:
        """Take what is given, and the rest from the profile.

        Raises:
            ConfigError: No such metric or profile.
        """
        chosen = get_profile(profile) if isinstance(profile, str) else profile
        names = metrics or (DEFAULT_METRICS if chosen is None else chosen.metrics)
        if ignore_identical_ids is None:
            ignore_identical_ids = chosen is not None and chosen.ignore_identical_ids
        return cls(
            measures=parse_measures(names, relevance_level),
            relevance_level=relevance_level,
            ignore_identical_ids=ignore_identical_ids,
            profile=chosen,
        )

    def pooled(
        self, qrels: Mapping[str, Mapping[str, int]]
    ) -> tuple[Mapping[str, Mapping[str, int]], Mapping[str, Collection[str]], list[str]]:
        """Return the judgements that are scored, the documents each query is ranked among ({}: all), and notices."""
        if self.profile is None or self.profile.pool is None:
            return qrels, {}, []
        pool = pools(qrels, self.profile.pool)
        scored = {query_id: grades for query_id, grades in qrels.items() if query_id in pool}
        return scored, pool, pool_notices(len(qrels), self.profile.pool)

    def scores(
        self,
        qrels: Mapping[str, Mapping[str, int]],
        run: Mapping[str, Mapping[str, float]],
        metrics: Iterable[str | Measure] | None = None,
        held: Collection[str] | None = None,
    ) -> Scores:
        """Score a run by the metrics of the rules, or by others."""
        return evaluate(
            qrels,
            run,
            metrics or self.measures,
            relevance_level=self.relevance_level,
            ignore_identical_ids=self.ignore_identical_ids,
            doc_ids=held,
        )

    def system(
        self,
        name: str,
        qrels: Mapping[str, Mapping[str, int]],
        run: Mapping[str, Mapping[str, float]],
        held: Collection[str] | None = None,
        seconds: Mapping[str, Sequence[float]] | None = None,
        *,
        curve: bool = True,
    ) -> System:
        """Score a run, by the metrics and by recall at every depth."""
        recall: dict[int, float] = {}
        if curve:
            longest = max((len(hits) for query_id, hits in run.items() if query_id in qrels), default=0)
            depths = [depth for depth in DEPTHS if depth <= max(longest, 1)]
            found = self.scores(qrels, run, [Measure("recall", depth, self.relevance_level) for depth in depths])
            recall = dict(zip(depths, found.values.mean(axis=1).tolist(), strict=True))
        scores = self.scores(qrels, run, held=held)
        return System(name=name, scores=scores, run=run, recall=recall, seconds=seconds or {})

    def facts(self) -> dict[str, str]:
        """Say what is not plain from the metrics' names."""
        facts = {} if self.profile is None else {"profile": f"{self.profile.name}: {self.profile.about}"}
        if self.relevance_level != 1:
            facts["relevant"] = f"grade {self.relevance_level} and above, where a metric does not say"
        return facts


def compared(
    systems: Sequence[System], all_pairs: bool = False, metrics: Sequence[str] | None = None
) -> tuple[Comparison, ...]:
    """Compare systems where there are several, by all metrics or by some."""
    if len(systems) < 2 or metrics == []:
        return ()
    return compare({system.name: system.scores for system in systems}, metrics, all_pairs=all_pairs)


def counted(systems: Sequence[System]) -> tuple[str, ...]:
    """Say what the counts hold; where systems differ, by name."""
    said = {system.name: system.scores.counts.notices() for system in systems}
    common = [line for line in next(iter(said.values())) if all(line in lines for lines in said.values())]
    own = [f"{name}: {line}" for name, lines in said.items() for line in lines if line not in common]
    return (*common, *own)


def _system_dict(system: System) -> dict[str, Any]:
    return {
        "name": system.name,
        **system.scores.to_dict(),
        "recall": {str(depth): value for depth, value in system.recall.items()},
        "seconds": {
            stage: {"median": float(np.median(spent)), "p95": float(np.percentile(spent, 95)), "sum": float(sum(spent))}
            for stage, spent in system.seconds.items()
        },
    }

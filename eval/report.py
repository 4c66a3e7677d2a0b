"""The report of an evaluation: one self-contained page of HTML with plots, or the same as text without.

The same evaluation gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from retrieval import __version__
from retrieval.eval.comparison import Comparison, differences
from retrieval.eval.evaluation import Evaluation, System
from retrieval.eval.markup import MISSING, clean, cut, fixed, milliseconds, probability, signed
from retrieval.eval.metrics import Counts
from retrieval.eval.page import Bullets, Cell, Figures, Section, Table, html_page, markdown_page, text_page
from retrieval.eval.plots import Estimate, difference_plot, latency_plot, metric_plot, recall_plot

SIGNIFICANT = 0.05
SHOWN_QUERIES = 10  # that gained and lost most, each
SHOWN_TEXT = 240  # half-width characters of a query's text


def html_report(evaluation: Evaluation) -> str:
    """Return a page of HTML with plots, which needs nothing from elsewhere."""
    return html_page(evaluation.title, _subtitle(evaluation), _sections(evaluation))


def markdown_report(evaluation: Evaluation) -> str:
    """Return the page as Markdown, without plots."""
    return markdown_page(evaluation.title, _subtitle(evaluation), _sections(evaluation))


def text_report(evaluation: Evaluation) -> str:
    """Return the numbers for a terminal: what was found, without facts, notices, counts and rules."""
    return text_page(_findings(evaluation))


def _subtitle(evaluation: Evaluation) -> str:
    queries, systems = evaluation.systems[0].scores.counts.queries, len(evaluation.systems)
    names = "1 system" if systems == 1 else f"{systems} systems"
    return f"{_many(queries, 'judged query', 'judged queries')} · {names} · retrieve-rerank {__version__}"


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _sections(evaluation: Evaluation) -> Iterator[Section]:
    if evaluation.facts:
        facts = [(name[:1].upper() + name[1:], value) for name, value in evaluation.facts.items()]
        yield Section("What was evaluated", [Table((), facts, words=2)])
    if evaluation.notices:
        yield Section("Before you trust these numbers", [Bullets(evaluation.notices)], aside=True)
    results, *others = _findings(evaluation)
    yield results
    plots = list(_plots(evaluation))
    if plots:
        yield Section("Plots", [Figures(plots)])
    yield from others
    yield _counts(evaluation)
    yield Section("Rules", [Bullets(evaluation.rules)])


def _findings(evaluation: Evaluation) -> Iterator[Section]:
    yield _results(evaluation)
    if evaluation.comparisons:
        yield _comparisons(evaluation)
    for system in evaluation.systems[1:]:
        yield from _extremes(evaluation, system)
    yield from _recall(evaluation)
    yield from _times(evaluation)


# ---------------------------------------------------------------- results


def _metrics(evaluation: Evaluation) -> tuple[str, ...]:
    return evaluation.systems[0].scores.metrics


def _estimate(system: System, metric: str) -> Estimate:
    if metric not in system.scores.metrics:
        return Estimate(math.nan)
    values = system.scores.of(metric)
    if len(values) < 2 or not np.isfinite(values).all():
        return Estimate(float(values.mean()) if len(values) else math.nan)
    interval = system.scores.interval(metric)
    return Estimate(float(values.mean()), interval.low, interval.high)


def _results(evaluation: Evaluation) -> Section:
    baseline = evaluation.systems[0].name
    tests = {(row.system, row.metric): row for row in evaluation.comparisons if row.baseline == baseline}
    metrics = _metrics(evaluation)
    estimates = {m: [_estimate(system, m) for system in evaluation.systems] for m in metrics}
    best = {metric: _best(row) for metric, row in estimates.items()}
    rows: list[list[Cell | str]] = []
    for place, system in enumerate(evaluation.systems):
        cells = (_score(estimates[m][place], best[m], tests.get((system.name, m))) for m in metrics)
        rows.append([_name(system.name), *cells])
    if evaluation.ceiling:
        cells = (Cell(fixed(evaluation.ceiling.get(m, math.nan))) for m in metrics)
        rows.append([Cell("ceiling", title="What an ideal re-ordering of the candidates would reach"), *cells])
    parts: list[str | Table] = [Table(("System", *metrics), rows)]
    legend = "Mean over the judged queries ± half the width of its 95 % confidence interval (Student's t)."
    legend += " The best of each metric is bold." if len(evaluation.systems) > 1 else ""
    if tests:
        count = _many(len(evaluation.comparisons), "comparison", "comparisons")
        legend += (
            f" ▲ and ▼: significantly better or worse than {_short(baseline)} by the paired t-test,"
            f" p\u00a0<\u00a0{SIGNIFICANT} after Holm's correction for {count}."
        )
    if evaluation.ceiling:
        legend += f" Ceiling: what an ideal re-ordering of the candidates of {_short(baseline)} would reach."
    return Section("Results", [*parts, legend])


def _short(name: str) -> str:
    return cut(clean(name), 60)


def _name(name: str) -> Cell:
    return Cell(_short(name), title=name if _short(name) != name else "")


def _best(row: Sequence[Estimate]) -> float:
    """Return the best value as it is printed; NaN, which equals nothing, for a single one."""
    values = [round(x.value, 4) for x in row if math.isfinite(x.value)]
    return max(values) if len(values) > 1 else math.nan


def _score(estimate: Estimate, best: float, test: Comparison | None) -> Cell:
    note = f"±{fixed((estimate.high - estimate.low) / 2)}" if estimate.bounded else ""
    mark, title = "", ""
    if test is not None:
        title = f"p = {probability(test.p_student_holm)} (paired t-test, Holm)"
        if test.p_student_holm < SIGNIFICANT and test.difference:
            mark = "▲" if test.difference > 0 else "▼"
    # the mark stands in front, so that the digits of a column stay below each other
    return Cell(f"{mark} {fixed(estimate.value)}".strip(), note, title, bold=round(estimate.value, 4) == best)


# ---------------------------------------------------------------- comparisons


def _comparisons(evaluation: Evaluation) -> Section:
    first = evaluation.systems[0].name
    against_first = all(row.baseline == first for row in evaluation.comparisons)
    rows = [
        (
            row.metric,
            _name(row.system) if against_first else Cell(f"{_short(row.system)} − {_short(row.baseline)}"),
            signed(row.difference),
            f"{signed(row.low)} to {signed(row.high)}",
            signed(row.effect_size, 2),
            Cell(probability(row.p_student_holm), title=f"uncorrected: {probability(row.p_student)}"),
            Cell(probability(row.p_randomization_holm), title=f"uncorrected: {probability(row.p_randomization)}"),
            f"{row.wins:,} / {row.ties:,} / {row.losses:,}",
        )
        for row in evaluation.comparisons
    ]
    header = (
        "Metric",
        "System",
        "Difference",
        "95 % interval",
        "Effect size",
        "p (t-test)",
        "p (randomisation)",
        "Better / same / worse",
    )
    legend = (
        "Difference: mean over the queries of system − baseline, with its 95 % confidence interval (Student's t)."
        " Effect size: Cohen's d_z, the mean difference divided by its standard deviation over the queries."
        " p: two-sided, of the paired t-test and of Fisher's randomisation test, each after Holm's correction for"
        f" {_many(len(rows), 'comparison', 'comparisons')}. Better / same / worse: queries."
    )
    heading = f"Comparison with {_short(first)}" if against_first else "Comparison of every two systems"
    return Section(heading, [Table(header, rows, words=2), legend])


def _extremes(evaluation: Evaluation, system: System) -> Iterator[Section]:
    """Yield the queries that gained and lost most by the first metric, where any did."""
    baseline, metric = evaluation.systems[0], _metrics(evaluation)[0]
    changes = differences(baseline.scores, system.scores, metric)
    one, other = baseline.scores.by_query(metric), system.scores.by_query(metric)
    texts = 1 if evaluation.queries else 0  # columns
    header = ("Query", "Id", _short(baseline.name), _short(system.name), "Difference")[1 - texts :]
    tables = []
    for caption, chosen in (
        ("Gained most", [change for change in changes[:SHOWN_QUERIES] if change[1] > 0]),
        ("Lost most", [change for change in changes[: -SHOWN_QUERIES - 1 : -1] if change[1] < 0]),
    ):
        rows = [
            (_query(evaluation, query_id), query_id, fixed(one[query_id]), fixed(other[query_id]), signed(change))
            for query_id, change in chosen
        ]
        if rows:
            tables.append(Table(header, [row[1 - texts :] for row in rows], words=1 + texts, caption=caption))
    if tables:
        yield Section(f"Queries that changed most: {metric}, {_short(system.name)}", tables)


def _query(evaluation: Evaluation, query_id: str) -> Cell:
    text = clean(evaluation.queries.get(query_id, "")).strip()
    shown = cut(text, SHOWN_TEXT)
    return Cell(shown or MISSING, title=text if shown != text else "")


# ---------------------------------------------------------------- plots, and their numbers


def _plots(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield a caption and an SVG for each plot that there is data for."""
    systems, metrics = evaluation.systems, _metrics(evaluation)
    estimates = {m: [_estimate(system, m) for system in systems] for m in metrics}
    if any(math.isfinite(estimate.value) for row in estimates.values() for estimate in row):
        ceiling = {m: value for m, value in evaluation.ceiling.items() if math.isfinite(value)}
        plot = metric_plot([system.name for system in systems], estimates, ceiling)
        yield "Mean and its 95 % confidence interval", plot
    baseline, names = systems[0], [system.name for system in systems]
    for place, system in enumerate(systems[1:], 1):
        changes = differences(baseline.scores, system.scores, metrics[0])
        labels = [
            f"{q}: {cut(clean(evaluation.queries[q]), 160)}" if q in evaluation.queries else q for q, _ in changes
        ]
        plot = difference_plot(metrics[0], names, place, [change for _, change in changes], labels)
        yield f"{metrics[0]} by query: {_short(system.name)} − {_short(baseline.name)}", plot
    curves = {s.name: {depth: r for depth, r in s.recall.items() if math.isfinite(r)} for s in systems}
    if any(curves.values()):
        deepest = max(curves[baseline.name], default=0)
        highest = curves[baseline.name][deepest] if evaluation.ceiling and deepest else None
        caption = "Recall by depth"
        if highest is not None:
            caption += f"; ceiling: all {deepest:,} hits of {_short(baseline.name)}"
        yield caption, recall_plot(curves, highest)
    seconds = {system.name: _seconds(system) for system in systems}
    if any(seconds.values()):
        yield "Time per query, by stage", latency_plot(seconds)


def _seconds(system: System) -> dict[str, Sequence[float]]:
    """Return the stages that were timed, and their total where there are several."""
    stages = {stage: [x for x in values if math.isfinite(x)] for stage, values in system.seconds.items()}
    timed: dict[str, Sequence[float]] = {stage: values for stage, values in stages.items() if values}
    if len(timed) > 1 and len({len(values) for values in timed.values()}) == 1:
        timed["total"] = np.sum(list(timed.values()), axis=0).tolist()
    return timed


def _recall(evaluation: Evaluation) -> Iterator[Section]:
    systems = [system for system in evaluation.systems if system.recall]
    depths = sorted({depth for system in systems for depth in system.recall})
    if depths:
        rows: list[list[Cell | str]] = [
            [_name(s.name), *(fixed(s.recall.get(depth, math.nan)) for depth in depths)] for s in systems
        ]
        yield Section("Recall by depth", [Table(("System", *(f"{depth:,}" for depth in depths)), rows)])


def _times(evaluation: Evaluation) -> Iterator[Section]:
    rows: list[list[Cell | str]] = []
    for system in evaluation.systems:
        for stage, values in _seconds(system).items():
            median, high = np.quantile(values, (0.5, 0.95)).tolist()
            numbers = (milliseconds(x) for x in (float(np.mean(values)), median, high, max(values)))
            rows.append([_name(system.name), stage, f"{len(values):,}", *numbers])
    if rows:
        header = ("System", "Stage", "Queries", "Mean", "Median", "95th percentile", "Maximum")
        yield Section("Time per query, in milliseconds", [Table(header, rows, words=2)])


# ---------------------------------------------------------------- counts and rules


def _counts(evaluation: Evaluation) -> Section:
    counts = [system.scores.counts for system in evaluation.systems]
    rows: list[list[Cell | str]] = [["Judged queries", *(f"{c.queries:,}" for c in counts)]]
    for label, lists in (
        ("… without hits; they count as 0", [c.without_hits for c in counts]),
        ("… without a relevant document; they count as 0", [c.without_relevant for c in counts]),
        ("Queries without judgements; left out", [c.unjudged for c in counts]),
    ):
        rows.append([label, *(Cell(f"{len(ids):,}", title=cut(", ".join(ids[:20]), 400)) for ids in lists)])
    missing = ["not known" if c.missing_documents is None else f"{c.missing_documents:,}" for c in counts]
    rows.append(["Judged documents that the corpus lacks", *missing])
    rows.append(["Hits with the query's own id", *(_identical(c) for c in counts)])
    for depth in sorted({depth for c in counts for depth in c.tied}):
        rows.append([f"Queries with a tie at the cut after {depth:,}", *(f"{c.tied.get(depth, 0):,}" for c in counts)])
    return Section("Counts", [Table(("", *(_short(s.name) for s in evaluation.systems)), rows)])


def _identical(counts: Counts) -> str:
    if not counts.identical_ids:
        return "0"
    return f"{counts.identical_ids:,} ({'left out' if counts.ignored_identical else 'counted'})"

"""The report of an evaluation: one self-contained page of HTML with plots, or the same as text without.

The same evaluation gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from retrieval import __version__
from retrieval.counts import many
from retrieval.eval.comparison import SIGNIFICANT, Comparison, differences
from retrieval.eval.evaluation import Evaluation, System
from retrieval.eval.markup import MISSING, clean, cut, fixed, milliseconds, probability, signed
from retrieval.eval.metrics import Counts
from retrieval.eval.page import Beside, Bullets, Cell, Figures, Section, Table, html_page, markdown_page, text_page
from retrieval.eval.plots import difference_plot, latency_plot, metric_plot, recall_plot

MOST_METRICS = 8  # of a plot; tables have all
_REORDERED = ("re-ordered hits", "hits that a ceiling re-orders")  # facts: how many hits


@dataclass(frozen=True, kw_only=True, slots=True)
class _Form:
    """How much a form of the report shows.

    Attributes:
        terminal: Whether it is what a command prints: no bold, no lists of queries for each of many systems.
        queries: How many that gained most, that lost most, or that scored worst.
        text: Half-width characters of a query's text.
    """

    terminal: bool
    queries: int
    text: int


_PAGE = _Form(terminal=False, queries=10, text=160)
_TERMINAL = _Form(terminal=True, queries=5, text=48)


def html_report(evaluation: Evaluation) -> str:
    """Return a page of HTML with plots, which needs nothing from elsewhere."""
    return html_page(evaluation.title, _subtitle(evaluation), _sections(evaluation))


def markdown_report(evaluation: Evaluation) -> str:
    """Return the page as Markdown, without plots."""
    return markdown_page(evaluation.title, _subtitle(evaluation), _sections(evaluation))


def text_report(evaluation: Evaluation) -> str:
    """Return the numbers for a terminal: what was found, without facts, notices, counts and rules."""
    return text_page(_findings(evaluation, _TERMINAL))


def _subtitle(evaluation: Evaluation) -> str:
    queries = many(evaluation.systems[0].scores.counts.queries, "judged query")
    return f"{queries} · {many(len(evaluation.systems), 'system')} · retrieve-rerank {__version__}"


def _sections(evaluation: Evaluation) -> Iterator[Section]:
    if evaluation.facts:
        facts = [(name[:1].upper() + name[1:], value) for name, value in evaluation.facts.items()]
        yield Section("What was evaluated", [Table((), facts, words=2)])
    if evaluation.notices:
        yield Section("Before you trust these numbers", [Bullets(evaluation.notices)], aside=True)
    results, *others = _findings(evaluation, _PAGE)
    yield results
    yield Section("Plots", [Figures(list(_plots(evaluation)))])
    yield from others
    yield _counts(evaluation)
    yield Section("Rules", [Bullets(evaluation.rules)])


def _findings(evaluation: Evaluation, form: _Form) -> Iterator[Section]:
    """Yield what was found, the conclusion first."""
    yield _results(evaluation, form)
    if evaluation.comparisons:
        yield _comparisons(evaluation)
    others = evaluation.systems[1:]
    if not others:
        yield from _worst(evaluation, form)
    elif form.terminal and len(others) > 1:
        yield Section("Queries that changed most", ["They are listed in the page that --report writes."])
    else:
        for system in others:
            yield from _changes(evaluation, system, form)
    yield from _recall(evaluation)
    yield from _times(evaluation)


# ---------------------------------------------------------------- results


def _metrics(evaluation: Evaluation) -> tuple[str, ...]:
    return evaluation.systems[0].scores.metrics


def _results(evaluation: Evaluation, form: _Form) -> Section:
    systems, metrics, baseline = evaluation.systems, _metrics(evaluation), evaluation.systems[0].name
    tests = {(row.system, row.metric): row for row in evaluation.comparisons if row.baseline == baseline}
    best = {metric: fixed(max(s.scores.mean(metric) for s in systems)) for metric in metrics if len(systems) > 1}
    rows: list[list[Cell | str]] = [
        [_name(s.name), *(_score(s, metric, best.get(metric, ""), tests.get((s.name, metric))) for metric in metrics)]
        for s in systems
    ]
    legend = "Mean over the judged queries ± half the width of its 95 % confidence interval (Student's t)."
    if systems[0].scores.counts.queries == 1:
        legend = "Values of the only judged query, which says nothing of the spread: the interval is all from 0 to 1."
    if best and not form.terminal:
        legend += " The best of each metric is bold."
    if tests:
        count = many(len(evaluation.comparisons), "comparison")
        legend += (
            f" ▲ and ▼: significantly better or worse than {_the(baseline)} by the paired t-test,"
            f" p\u00a0<\u00a0{SIGNIFICANT} after Holm's correction for {count}."
        )
    if evaluation.ceiling:
        ceiling = evaluation.ceiling
        cells = (fixed(ceiling[metric]) if metric in ceiling else MISSING for metric in metrics)
        rows.append([_ceiling(evaluation), *cells])
        legend += f" Ideal re-ordering: no reranker of these hits of {_the(baseline)} scores more."
    return Section("Results", [Table(("System", *metrics), rows, turned="Metric"), legend])


def _ceiling(evaluation: Evaluation) -> str:
    """Say of what the ceiling is one."""
    depth = next((evaluation.facts[name] for name in _REORDERED if name in evaluation.facts), None)
    return f"ideal re-ordering of the {'candidates' if depth is None else f'first {depth} hits'}"


def _short(name: str) -> str:
    return cut(clean(name), 60)


def _the(name: str) -> str:
    """Return a system's name as a sentence has it."""
    return "the first stage" if name == "first stage" else _short(name)


def _name(name: str) -> Cell:
    return Cell(_short(name), title=name if _short(name) != name else "")


def _score(system: System, metric: str, best: str, test: Comparison | None) -> Cell:
    value, interval = fixed(system.scores.mean(metric)), system.scores.interval(metric)
    note = f"±{fixed((interval.high - interval.low) / 2)}" if system.scores.counts.queries > 1 else ""
    mark, title = "", ""
    if test is not None:
        title = f"p = {probability(test.p_student_holm)} (paired t-test, Holm)"
        if test.p_student_holm < SIGNIFICANT and test.difference:
            mark = "▲ " if test.difference > 0 else "▼ "
    # the mark stands in front, so that the digits of a column stay below each other
    return Cell(mark + value, note, title, bold=value == best)


# ---------------------------------------------------------------- comparisons


def _comparisons(evaluation: Evaluation) -> Section:
    comparisons, first = evaluation.comparisons, evaluation.systems[0].name
    against_first = all(row.baseline == first for row in comparisons)
    names = [
        _name(row.system) if against_first else Cell(f"{_short(row.system)} − {_short(row.baseline)}")
        for row in comparisons
    ]
    several = len({name.text for name in names}) > 1
    rows: list[list[Cell | str]] = [
        [
            row.metric,
            *([name] if several else ()),
            signed(row.difference),
            f"{signed(row.low)} to {signed(row.high)}",
            signed(row.effect_size, 2),
            Cell(probability(row.p_student_holm), title=f"uncorrected: {probability(row.p_student)}"),
            Cell(probability(row.p_randomization_holm), title=f"uncorrected: {probability(row.p_randomization)}"),
            f"{row.wins:,} / {row.ties:,} / {row.losses:,}",
        ]
        for name, row in zip(names, comparisons, strict=True)
    ]
    words = ("Metric", "System") if several else ("Metric",)
    numbers = ("Difference", "95 % interval", "Effect size", "p (t-test)", "p (random)", "Better/same/worse")
    legend = (
        "Difference: mean over the queries of system − baseline, with its 95 % confidence interval (Student's t)."
        " Effect size: Cohen's d_z, the mean difference divided by its standard deviation over the queries."
        " p: two-sided, of the paired t-test and of Fisher's randomisation test, each after Holm's correction for"
        f" {many(len(rows), 'comparison')}. Better, same, worse: queries."
    )
    heading = "Comparison of every two systems"
    if against_first:
        heading = f"Comparison{'' if several else f' of {_short(comparisons[0].system)}'} with {_the(first)}"
    return Section(heading, [Table((*words, *numbers), rows, words=len(words)), legend])


def _changes(evaluation: Evaluation, system: System, form: _Form) -> Iterator[Section]:
    """Yield the queries that gained and lost most by the first metric, where any did."""
    baseline, metric = evaluation.systems[0], _metrics(evaluation)[0]
    changes = differences(baseline.scores, system.scores, metric)
    one, other = baseline.scores.by_query(metric), system.scores.by_query(metric)
    header = (_short(baseline.name), _short(system.name), "Difference")
    tables = []
    for caption, chosen in (
        ("Gained most", [change for change in changes[: form.queries] if change[1] > 0]),
        ("Lost most", [change for change in changes[: -form.queries - 1 : -1] if change[1] < 0]),
    ):
        rows = [(Cell(q), (fixed(one[q]), fixed(other[q]), signed(change))) for q, change in chosen]
        if rows:
            tables.append(_by_query(evaluation, form, header, rows, caption))
    if tables:
        yield Section(f"Queries that changed most: {metric}, {_short(system.name)}", [Beside(tables)])


def _worst(evaluation: Evaluation, form: _Form) -> Iterator[Section]:
    """Yield where to look first: the queries of a single system with the lowest values of the first metric."""
    scores, metric = evaluation.systems[0].scores, _metrics(evaluation)[0]
    values = scores.by_query(metric)
    worst = sorted((q for q, value in values.items() if value < 1), key=values.__getitem__)[: form.queries]
    if not worst:
        return
    marks = dict.fromkeys(scores.counts.without_relevant, "(nothing is relevant)")
    marks |= dict.fromkeys(scores.counts.without_hits, "(no hits)")
    rows = [(Cell(q, marks.get(q, "")), [fixed(values[q])]) for q in worst]
    zeros = sum(not value for value in values.values())
    more = f"{zeros:,} of {len(values):,} queries score 0; these are the first of the judgements."
    legend = [more] if zeros > len(worst) else []
    yield Section(f"Queries that scored worst: {metric}", [_by_query(evaluation, form, (metric,), rows), *legend])


def _by_query(
    evaluation: Evaluation,
    form: _Form,
    header: Sequence[str],
    rows: Sequence[tuple[Cell, Sequence[str]]],
    caption: str = "",
) -> Table:
    """Return a table of (query id, numbers), with the query in front where texts are known."""
    known = 1 if evaluation.queries else 0  # columns
    table: list[list[Cell | str]] = [
        [*([_query(evaluation, query_id.text, form)] if known else ()), query_id, *numbers]
        for query_id, numbers in rows
    ]
    return Table(("Query", "Id", *header)[1 - known :], table, words=1 + known, caption=caption)


def _query(evaluation: Evaluation, query_id: str, form: _Form) -> Cell:
    text = clean(evaluation.queries.get(query_id, "")).strip()
    shown = cut(text, form.text)
    return Cell(shown or MISSING, title=text if shown != text else "")


# ---------------------------------------------------------------- plots, and their numbers


def _plots(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield a caption and an SVG for each plot that there is data for."""
    systems, metrics = evaluation.systems, _metrics(evaluation)
    scores, plotted = {system.name: system.scores for system in systems}, metrics[:MOST_METRICS]
    caption = "Mean and its 95 % confidence interval"
    caption += f": the first {len(plotted)} of {len(metrics)} metrics" if plotted != metrics else ""
    yield caption, metric_plot(scores, plotted, evaluation.ceiling, _ceiling(evaluation))
    baseline, names = systems[0], [system.name for system in systems]
    for place, system in enumerate(systems[1:], 1):
        changes = differences(baseline.scores, system.scores, metrics[0])
        labels = [
            f"{q}: {cut(clean(evaluation.queries[q]), 160)}" if q in evaluation.queries else q for q, _ in changes
        ]
        plot = difference_plot(metrics[0], names, place, [change for _, change in changes], labels)
        yield f"{metrics[0]} by query: {_short(system.name)} − {_short(baseline.name)}", plot
    seconds = {system.name: _seconds(system) for system in systems}
    if any(seconds.values()):
        yield "Time per query, by stage", latency_plot(seconds)
    curves = {system.name: system.recall for system in systems}
    if any(curves.values()):
        yield "Recall by depth", recall_plot(curves)


def _seconds(system: System) -> dict[str, Sequence[float]]:
    """Return the stages that were timed, and their total where there are several."""
    timed = {stage: values for stage, values in system.seconds.items() if len(values)}
    if len(timed) > 1 and len({len(values) for values in timed.values()}) == 1:
        timed["total"] = np.sum(list(timed.values()), axis=0).tolist()
    return timed


def _recall(evaluation: Evaluation) -> Iterator[Section]:
    systems = [system for system in evaluation.systems if system.recall]
    depths = sorted({depth for system in systems for depth in system.recall})
    if depths:
        rows: list[list[Cell | str]] = [
            [_name(s.name), *(fixed(s.recall[depth]) if depth in s.recall else MISSING for depth in depths)]
            for s in systems
        ]
        header = ("System", *(f"{depth:,}" for depth in depths))
        yield Section("Recall by depth", [Table(header, rows)])


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

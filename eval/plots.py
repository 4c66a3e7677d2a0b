"""The plots of an evaluation, as SVG: plain numbers in, a complete SVG document out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from retrieval.eval import svg
from retrieval.eval.markup import columns, cut, fixed, milliseconds, signed
from retrieval.eval.metrics import Scores
from retrieval.eval.svg import CHARACTER, WIDTH, Scale, group, line, marker, number, text, tooltip

ROW = 18  # user units
PLOT = 210  # height of the area of bars by query and of curves, user units
MOST_BARS = 240  # of a plot by query; more queries share bars


def metric_plot(
    systems: Mapping[str, Scores],
    metrics: Sequence[str],
    ceiling: Mapping[str, float] | None = None,
    ceiling_of: str = "ideal re-ordering",
) -> str:
    """Plot each metric's mean and confidence interval, a row for each system.

    Args:
        systems: Scores by name, at least one.
        metrics: Which of theirs, at least one.
        ceiling: By metric, what an ideal re-ordering reaches.
        ceiling_of: What the legend says of it.
    """
    ceiling = {name: value for name, value in (ceiling or {}).items() if name in metrics}
    entries = [(group(at, line(-9, 0, 9, 0, width=2), marker(at, 0, 0)), name) for at, name in enumerate(systems)]
    if ceiling:
        entries.append((group("ink", line(0, -8, 0, 8, width=1.5, dash="3 2")), ceiling_of))
    key, top = svg.legend(entries)
    top += 8
    intervals = [scores.interval(name) for scores in systems.values() for name in metrics]
    values = [end for x in intervals for end in (x.low, x.high)] + list(ceiling.values())
    marks = svg.ticks(min(values), max(values))
    left = min(max(columns(name) for name in metrics), 22) * CHARACTER + 22
    scale = Scale(marks[0], marks[-1], left, WIDTH - 66)
    height = len(systems) * ROW + 14
    rows = [
        _metric_rows(systems, name, scale, top + place * height, ceiling.get(name))
        for place, name in enumerate(metrics)
    ]
    bottom = top + len(metrics) * height
    axis = svg.x_axis(scale, marks, top, bottom, "mean over queries, with 95 % confidence interval")
    spoken = "; ".join(
        f"{metric}: " + ", ".join(f"{name} {_estimate(scores, metric)}" for name, scores in systems.items())
        for metric in metrics
    )
    return svg.figure("Metrics by system", spoken, bottom + 44, key, axis, *rows)


def _estimate(scores: Scores, metric: str) -> str:
    interval = scores.interval(metric)
    between = f"95 % confidence interval {fixed(interval.low)} to {fixed(interval.high)}"
    return f"{fixed(scores.mean(metric))}, {between}"


def _metric_rows(systems: Mapping[str, Scores], metric: str, scale: Scale, top: float, ceiling: float | None) -> str:
    height = len(systems) * ROW + 14
    parts = [group("grid", line(0, top, WIDTH, top))]
    parts.append(group("ink", text(0, top + height / 2, metric, bold=True, limit=22)))
    if ceiling is not None:
        at = scale(ceiling)
        title = tooltip(f"{metric}: an ideal re-ordering reaches {fixed(ceiling)}")
        parts.append(group("ink", title, line(at, top + 3, at, top + height - 3, width=1.5, dash="3 2")))
    best = fixed(max(scores.mean(metric) for scores in systems.values())) if len(systems) > 1 else ""
    for index, (system, scores) in enumerate(systems.items()):
        y = top + 7 + (index + 0.5) * ROW
        mean, interval = scores.mean(metric), scores.interval(metric)
        low, high = scale(interval.low), scale(interval.high)
        whisker = line(low, y, high, y, width=2) + line(low, y - 3, low, y + 3) + line(high, y - 3, high, y + 3)
        name = tooltip(f"{system}: {metric} {_estimate(scores, metric)}")
        parts.append(group("ink", text(WIDTH, y, fixed(mean), anchor="end", bold=fixed(mean) == best)))
        parts.append(group(index, name, whisker, marker(index, scale(mean), y)))
    return "".join(parts)


def difference_plot(
    metric: str, systems: Sequence[str], place: int, differences: Sequence[float], labels: Sequence[str]
) -> str:
    """Plot each query's difference to the first system, from the greatest gain to the greatest loss.

    A bar has the colour of the system that is better.

    Args:
        metric: Its name.
        systems: Names, the baseline first.
        place: Which system is compared with the first.
        differences: One for each query, finite.
        labels: What a tooltip says of each query.
    """
    values = np.asarray(differences, dtype=np.float64)
    order = np.argsort(-values, kind="stable").tolist()
    values = values[order]
    wins, losses = int((values > 0).sum()), int((values < 0).sum())
    counts = (
        (place, "▲", wins, "better"),
        ("muted", "=", len(values) - wins - losses, "same"),
        (0, "▼", losses, "worse"),
    )
    key, top = svg.legend(
        [(group(kind, text(0, 0, sign, anchor="middle")), f"{count:,} {word}") for kind, sign, count, word in counts]
    )
    top += 10
    bottom = top + PLOT
    mean = float(values.mean())
    # an axis somewhat longer than the mean's line is far leaves room for its name
    marks = svg.ticks(min(values[-1], mean * 1.2, 0.0), max(values[0], mean * 1.2, 0.0), 8)
    left = _gutter(marks)
    vertical, horizontal = Scale(marks[0], marks[-1], bottom, top), Scale(0, len(values), left, WIDTH)
    y = vertical(mean)
    # the mean's name stands where no bars are: a positive mean's above the losses, a negative one's below the gains
    at, anchor, shift = (WIDTH, "end", -10) if mean >= 0 else (left, "start", 12)
    parts = (
        svg.y_axis(vertical, marks, left, WIDTH),
        *_bars(values, [labels[row] for row in order], place, horizontal, vertical),
        group("ink", line(left, vertical(0), WIDTH, vertical(0), width=1.2)),
        group("ink", line(left, y, WIDTH, y, dash="5 3")),
        group("ink", text(at, y + shift, f"mean {signed(mean)}", anchor=anchor, bold=True)),
        group("muted", text((left + WIDTH) / 2, bottom + 16, _sorted_by(len(values)), anchor="middle")),
    )
    spoken = ", ".join(f"{count} {word}" for _, _, count, word in counts) + f"; mean difference {signed(mean)}"
    title = f"{metric} by query: {systems[place]} minus {systems[0]}"
    return svg.figure(title, spoken, bottom + 30, key, *parts)


def _sorted_by(queries: int) -> str:
    return "1 query" if queries == 1 else f"{queries:,} queries, sorted by difference"


def _gutter(marks: Sequence[float]) -> float:
    """Return the room that the numbers of a vertical axis take."""
    return max(columns(f"{mark:g}") for mark in marks) * CHARACTER + 14


def _bars(values: np.ndarray, labels: Sequence[str], place: int, horizontal: Scale, vertical: Scale) -> tuple[str, str]:
    """Return the bars of sorted differences, gains and losses; a bar of several queries shows the greatest one."""
    total = len(values)
    edges = np.linspace(0, total, min(total, MOST_BARS) + 1).round().astype(int).tolist()
    gap = 0.15 if total <= 60 else 0.0
    overlap = 0.0 if gap else 0.5  # without it, rounding to pixels leaves hairlines between bars
    zero = vertical(0)
    gains: list[str] = []
    losses: list[str] = []
    for start, stop in itertools.pairwise(edges):
        first, last = float(values[start]), float(values[stop - 1])
        value = first if first >= -last else last
        left = horizontal(start + gap / 2)
        right = min(horizontal(stop - gap / 2) + overlap, WIDTH)
        y = vertical(value)
        # a bar without height still has a tooltip, around the zero line
        top, height, fill = (
            (min(y, zero), abs(y - zero), "") if value else (zero - 3, 6.0, ' fill="none" pointer-events="all"')
        )
        several = f"{stop - start} queries, {signed(first)} to {signed(last)}, the first: "
        title = f"{several if stop - start > 1 else ''}{cut(labels[start], 160)}: {signed(first)}"
        box = f'x="{number(left)}" y="{number(top)}" width="{number(right - left)}" height="{number(height)}"'
        (gains if value > 0 else losses).append(f"<rect {box}{fill}>{tooltip(title)}</rect>")
    shapes = ("".join(bars) for bars in (gains, losses))
    upper, lower = (f'<g fill="currentColor" shape-rendering="crispEdges">{bars}</g>' for bars in shapes)
    return group(place, upper), group(0, lower)


def recall_plot(curves: Mapping[str, Mapping[int, float]]) -> str:
    """Plot recall against depth, on a logarithmic axis, a line for each system.

    Args:
        curves: By system its recall by depth (in hits, from 1), at least one. An empty one keeps its system's colour
            and is not drawn.
    """
    drawn = [(at, name, sorted(curve.items())) for at, (name, curve) in enumerate(curves.items()) if curve]
    entries = [
        (group(at, line(-11, 0, 11, 0, width=2, dash=svg.dash(at)), marker(at, 0, 0)), name) for at, name, _ in drawn
    ]
    key, top = svg.legend(entries)
    top += 10
    bottom = top + PLOT
    values = [recall for _, _, curve in drawn for _, recall in curve]
    marks = svg.ticks(min(values), max(values))
    depths = sorted({depth for _, _, curve in drawn for depth, _ in curve})
    left = _gutter(marks)
    vertical = Scale(marks[0], marks[-1], bottom, top)
    horizontal = Scale(depths[0], depths[-1], left + 10, WIDTH - 20, log=True)
    axis = svg.x_axis(horizontal, _apart(depths, horizontal), top, bottom, "depth (hits)")
    parts = [axis, svg.y_axis(vertical, marks, left, WIDTH)]
    for at, name, curve in drawn:
        points = [(horizontal(depth), vertical(recall)) for depth, recall in curve]
        dots = (
            marker(at, x, y, f"{name}: recall@{depth} {fixed(recall)}")
            for (x, y), (depth, recall) in zip(points, curve, strict=True)
        )
        parts.append(group(at, svg.polyline(points, width=2, dash=svg.dash(at)), *dots))
    spoken = "; ".join(f"{name}: " + ", ".join(f"{fixed(r)} at {d}" for d, r in curve) for _, name, curve in drawn)
    return svg.figure("Recall by depth", spoken, bottom + 44, key, *parts)


def _apart(depths: Sequence[int], scale: Scale) -> list[int]:
    """Return the depths whose numbers have room side by side, the deepest first of all."""
    shown = [depths[-1]]
    for depth in depths[-2::-1]:
        room = (columns(f"{depth:,}") + columns(f"{shown[0]:,}")) / 2 * CHARACTER + 6
        if scale(shown[0]) - scale(depth) >= room:
            shown.insert(0, depth)
    return shown


def latency_plot(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Plot median and 95th percentile of the time a query takes, a bar for each system and stage.

    Args:
        seconds: By system and stage the seconds of each query. A system without stages keeps its colour and is not
            drawn.
    """
    rows = [
        (at, system, stage, *np.quantile(values, (0.5, 0.95)).tolist())
        for at, (system, stages) in enumerate(seconds.items())
        for stage, values in stages.items()
    ]
    drawn = [at for at, stages in enumerate(seconds.values()) if stages]
    key, top = svg.legend([(_swatch(drawn, ""), "median"), (_swatch(drawn, _LIGHT), "95th percentile")])
    marks = svg.ticks(0.0, max(high for *_, high in rows) * 1000 or 1.0, 5)
    left = min(max(columns(stage) for _, _, stage, _, _ in rows), 20) * CHARACTER + 12
    scale = Scale(0, marks[-1], left, WIDTH - 160)
    names = (text(x, top + 14, name, anchor="end") for x, name in ((WIDTH - 78, "median"), (WIDTH, "95th pct.")))
    parts = [group("muted", *names)]
    y = first = top + 28
    for (at, system), bars in itertools.groupby(rows, key=lambda row: row[:2]):
        parts.append(group("ink", text(0, y + 10, system, bold=True, limit=int((WIDTH - 160) / CHARACTER))))
        y += 22
        for _, _, stage, median, high in bars:
            parts.append(_latency_row(at, system, stage, median, high, y + ROW / 2, scale))
            y += ROW + 4
        y += 8
    axis = svg.x_axis(scale, marks, first, y, "milliseconds per query")
    spoken = "; ".join(_latency(*row) for _, *row in rows)
    return svg.figure("Time per query, by stage", spoken, y + 44, axis, key, *parts)


_LIGHT = ' fill-opacity="0.35"'


def _swatch(series: Sequence[int], opacity: str) -> str:
    """Return a legend's symbol in the colours of several series, side by side."""
    wide = 22 / len(series)
    return "".join(
        group(
            colour,
            f'<rect x="{number(-11 + place * wide)}" y="-5" width="{number(wide)}" height="10" fill="currentColor"'
            f"{opacity}/>",
        )
        for place, colour in enumerate(series)
    )


def _latency(system: str, stage: str, median: float, high: float) -> str:
    return f"{system}, {stage}: median {milliseconds(median)} ms, 95th percentile {milliseconds(high)} ms"


def _latency_row(colour: int, system: str, stage: str, median: float, high: float, y: float, scale: Scale) -> str:
    bars = (
        f'<rect x="{number(scale.start)}" y="{number(y - ROW / 2 + 2)}"'
        f' width="{number(scale(value * 1000) - scale.start)}" height="{ROW - 4}" fill="currentColor"{opacity}/>'
        for value, opacity in ((high, _LIGHT), (median, ""))
    )
    words = (
        text(scale.start - 8, y, stage, anchor="end", limit=20),
        text(WIDTH - 78, y, milliseconds(median), anchor="end"),
        text(WIDTH, y, milliseconds(high), anchor="end"),
    )
    return group("ink", *words) + group(colour, tooltip(_latency(system, stage, median, high)), *bars)

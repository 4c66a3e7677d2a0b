"""The parts that plots are made of: scales, ticks, axes, markers, legends, and the SVG around them.

Every plot is a complete SVG document with its colours as presentation attributes, so that it can be taken out of the
page into a file or a paper; the page's style sheet only replaces the colours in dark mode, by class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from retrieval.eval.markup import clean, columns, cut, html_text

WIDTH = 520  # user units; a unit is about a pixel on a wide screen
FONT = 13  # user units
CHARACTER = 7.8  # user units a character takes, on the wide side
LEGEND_ROW = 20
_FONTS = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Style:
    """How a series looks: never by its colour alone."""

    light: str
    dark: str
    dash: str
    marker: str  # path around 0, 0


# Colours tell apart under the common forms of colour blindness and have a contrast above 3 with their background.
STYLES = (
    Style("#0067a5", "#5bb8f5", "", "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0Z"),
    Style("#cf4a00", "#ff9152", "7 3", "M-4.2-4.2H4.2V4.2H-4.2Z"),
    Style("#007d5c", "#3ecfa0", "2 3", "M0-5.5L5.2 4.2H-5.2Z"),
    Style("#9a3d92", "#e293d8", "9 3 2 3", "M0-6L5 0L0 6L-5 0Z"),
    Style("#7d6200", "#e6c34a", "4 2", "M0 5.5L5.2-4.2H-5.2Z"),
    Style("#4d5560", "#b5bdc9", "1 2", "M-5-1.6H-1.6V-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5Z"),
)
INK, MUTED, GRID = ("#1c2128", "#e6e9ee"), ("#59626d", "#a0a8b4"), ("#dfe3e8", "#333b46")


def dark_colours() -> str:
    """Return the style rules that give plots their colours on a dark page."""
    rules = [(f"c{number}", style.dark) for number, style in enumerate(STYLES)]
    rules += [("ink", INK[1]), ("muted", MUTED[1]), ("grid", GRID[1])]
    return "".join(f"svg .{name}{{color:{colour}}}" for name, colour in rules)


def number(value: float) -> str:
    """Return a coordinate with at most two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


@dataclass(frozen=True, slots=True)
class Scale:
    """From values (low to high) to user units (start to end), linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return where a value lies; the middle where the scale has no extent."""
        if self.high == self.low:
            return (self.start + self.end) / 2
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return two to `most` round values, evenly spaced, from at or below `low` to at or above `high`."""
    if high - low <= 1e-9 * max(1, abs(low), abs(high)):
        margin = abs(low) * 0.1 if abs(low) > 1e-3 else 0.5
        low, high = low - margin, low + margin
    span = high - low
    for exponent in range(math.floor(math.log10(span)) - 1, math.floor(math.log10(span)) + 2):
        for base in (1, 2, 2.5, 5):
            step = base * 10.0**exponent
            first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
            if last - first < most:
                return [float(f"{count * step:.12g}") for count in range(first, last + 1)]
    return [low, high]


def group(colour: int | str, *parts: str) -> str:
    """Return parts that share a colour: a series' number, or ink, muted or grid."""
    if isinstance(colour, int):
        name, light = f"c{colour % len(STYLES)}", STYLES[colour % len(STYLES)].light
    else:
        name, light = colour, {"ink": INK, "muted": MUTED, "grid": GRID}[colour][0]
    return f'<g class="{name}" color="{light}">{"".join(parts)}</g>'


def dash(series: int) -> str:
    """Return the dashes of a series' line."""
    return STYLES[series % len(STYLES)].dash


def line(x1: float, y1: float, x2: float, y2: float, *, width: float = 1, dash: str = "") -> str:
    """Return a straight line in the colour of its group."""
    return polyline([(x1, y1), (x2, y2)], width=width, dash=dash)


def polyline(points: Sequence[tuple[float, float]], *, width: float = 1, dash: str = "") -> str:
    """Return a line through points in the colour of its group."""
    path = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="M{path}" stroke="currentColor" stroke-width="{number(width)}"{dashes}/>'


def text(x: float, y: float, content: str, *, anchor: str = "start", bold: bool = False, limit: int = 200) -> str:
    """Return one line of text with its middle at `y`, in its group's colour, cut to `limit` half-width characters."""
    weight = ' font-weight="600"' if bold else ""
    content = clean(content)
    shown = cut(content, limit)
    whole = tooltip(content) if shown != content else ""
    # dominant-baseline is not known to every program that a plot is taken to
    return (
        f'<text x="{number(x)}" y="{number(y + FONT * 0.35)}" text-anchor="{anchor}"{weight}'
        f' fill="currentColor">{whole}{html_text(shown)}</text>'
    )


def marker(series: int, x: float, y: float, title: str = "") -> str:
    """Return a series' marker; beyond as many series as there are styles it is hollow."""
    fill = "currentColor" if series < len(STYLES) else "none"
    return (
        f'<path transform="translate({number(x)} {number(y)})" d="{STYLES[series % len(STYLES)].marker}" fill="{fill}"'
        f' stroke="currentColor">{tooltip(title)}</path>'
    )


def tooltip(content: str) -> str:
    """Return what a browser shows under the pointer."""
    return f"<title>{html_text(content)}</title>" if content else ""


def legend(entries: Sequence[tuple[str, str]]) -> tuple[str, float]:
    """Return a legend of (symbol drawn around 0, 0; label), and its height.

    Entries flow into rows; a label takes at most the plot's width.
    """
    parts, x, y = [], 0.0, 0.0
    limit = int((WIDTH - 30) / CHARACTER)
    for symbol, label in entries:
        width = 28 + min(columns(label), limit) * CHARACTER + 16
        if x and x + width - 16 > WIDTH:
            x, y = 0.0, y + LEGEND_ROW
        words = group("ink", text(18, 0, label, limit=limit))
        parts.append(f'<g transform="translate({number(x + 12)} {number(y + 9)})">{symbol}{words}</g>')
        x += width
    return "".join(parts), (y + LEGEND_ROW if parts else 0.0)


def x_axis(scale: Scale, at: Iterable[float], top: float, bottom: float, label: str) -> str:
    """Return vertical grid lines, their numbers below and the axis' name under these: 42 units below `bottom`."""
    at = list(at)
    middle = (scale.start + scale.end) / 2
    return (
        group("grid", *(line(scale(value), top, scale(value), bottom) for value in at))
        + group("muted", *(text(scale(value), bottom + 13, f"{value:,g}", anchor="middle") for value in at))
        + group("muted", text(middle, bottom + 32, label, anchor="middle"))
    )


def y_axis(scale: Scale, at: Iterable[float], left: float, right: float) -> str:
    """Return horizontal grid lines and their numbers to the left."""
    at = list(at)
    labels = (text(left - 8, scale(value), f"{value:g}".replace("-", "−"), anchor="end") for value in at)
    return group("grid", *(line(left, scale(value), right, scale(value)) for value in at)) + group("muted", *labels)


def figure(title: str, description: str, height: float, *parts: str) -> str:
    """Return the SVG document of a plot, with what a screen reader says of it."""
    name = html_text(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {number(height)}" role="img" aria-label="{name}"'
        f' font-family="{_FONTS}" font-size="{FONT}" fill="none"><title>{name}</title>'
        f"<desc>{html_text(description)}</desc>{''.join(parts)}</svg>"
    )

"""The curve of a training run as a small SVG picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _MARGIN = 640, 320, 48  # pixels
_POINTS = 100  # the loss is averaged into at most so many points


def loss_curve(records: Sequence[Mapping[str, Any]]) -> str:
    """Draw loss (line) and first metric (dots) of a run over its steps, each on its own scale.

    Args:
        records: Lines of a training log: of steps (`step`, `loss`) and of evaluations (`step`, `metrics`).

    Returns:
        An SVG document.
    """
    losses = [(float(record["step"]), float(record["loss"])) for record in records if "loss" in record]
    rated = [record for record in records if record.get("metrics")]
    metrics = [(float(record["step"]), float(next(iter(record["metrics"].values())))) for record in rated]
    size = max(1, -(-len(losses) // _POINTS))
    groups = [losses[start : start + size] for start in range(0, len(losses), size)]
    line = [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]
    last = max((step for step, _ in [*losses, *metrics]), default=1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_WIDTH // 2}" y="{_HEIGHT - 12}" text-anchor="middle">step (of {last:.0f})</text>',
    ]
    if line:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _placed(line, last))
        parts.append(f'<polyline points="{points}" fill="none" stroke="#1f5fa8" stroke-width="1.5"/>')
        parts += _scale([value for _, value in line], "loss", "#1f5fa8", left=True)
    if metrics:
        name = next(iter(rated[0]["metrics"]))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#b3541e"/>' for x, y in _placed(metrics, last)]
        parts += _scale([value for _, value in metrics], name, "#b3541e", left=False)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _placed(points: Sequence[tuple[float, float]], last: float) -> list[tuple[float, float]]:
    """Points (step, value) in pixels."""
    lowest, highest = min(value for _, value in points), max(value for _, value in points)
    width, height = _WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN
    return [
        (
            _MARGIN + width * step / max(last, 1.0),
            _HEIGHT - _MARGIN - height * ((value - lowest) / (highest - lowest) if highest > lowest else 0.5),
        )
        for step, value in points
    ]


def _scale(values: Sequence[float], name: str, colour: str, *, left: bool) -> list[str]:
    """The name of a scale and its two ends."""
    x, anchor = (_MARGIN - 4, "end") if left else (_WIDTH - _MARGIN + 4, "start")
    ends = [(max(values), _MARGIN + 4), (min(values), _HEIGHT - _MARGIN + 4)]
    title_x, title_anchor = (8, "start") if left else (_WIDTH - 8, "end")
    return [
        f'<text x="{title_x}" y="20" fill="{colour}" text-anchor="{title_anchor}">{escape(name)}</text>',
        *(f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}">{value:.3g}</text>' for value, y in ends),
    ]

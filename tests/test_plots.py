"""Plots: positions worked out by hand, what is drawn for whom, and that every plot is sound XML."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.counts import many
from retrieval.eval import svg
from retrieval.eval.markup import clean, cut, fixed, html_text, markdown_text, milliseconds, probability, signed
from retrieval.eval.metrics import Counts, Scores
from retrieval.eval.plots import difference_plot, latency_plot, metric_plot, recall_plot
from retrieval.eval.svg import Scale

SVG = "{http://www.w3.org/2000/svg}"


def parsed(plot: str) -> ElementTree.Element:
    root = ElementTree.fromstring(plot)
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    assert root.get("aria-label") == root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc")
    return root


def words(root: ElementTree.Element) -> list[str]:
    return ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]


def tooltips(root: ElementTree.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}title")][1:]


def bars(root: ElementTree.Element) -> list[tuple[float, ...]]:
    return [tuple(float(node.get(n, "")) for n in ("x", "y", "width", "height")) for node in root.iter(f"{SVG}rect")]


def markers(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Where the markers of the data are, not those of the legend."""
    found = []
    for node in root.iter(f"{SVG}path"):
        at = re.match(r"translate\((\S+) (\S+)\)", node.get("transform", ""))
        if at and at.groups() != ("0", "0"):
            found.append((float(at[1]), float(at[2])))
    return found


# ---------------------------------------------------------------- scales and ticks


def test_scales():
    assert [Scale(0, 2, 100, 300)(x) for x in (0, 0.5, 2)] == [100, 150, 300]
    assert [Scale(0, 2, 300, 100)(x) for x in (0, 0.5, 2)] == [300, 250, 100]  # upwards
    log = Scale(1, 100, 0, 200, log=True)
    assert [log(x) for x in (1, 10, 100)] == pytest.approx([0, 100, 200])
    assert Scale(5, 5, 0, 200)(5) == Scale(5, 5, 0, 200, log=True)(5) == 100


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.42, 0.58, [0.4, 0.45, 0.5, 0.55, 0.6]),
        (-0.57, 0.59, [-1, -0.5, 0, 0.5, 1]),
        (0, 113, [0, 25, 50, 75, 100, 125]),
        (0, 0, [-0.5, -0.25, 0, 0.25, 0.5]),
        (0.5, 0.5, [0.45, 0.475, 0.5, 0.525, 0.55]),
    ],
)
def test_ticks(low, high, expected):
    assert svg.ticks(low, high) == expected


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.integers(3, 10))
def test_ticks_hold_the_data(low, span, most):
    marks = svg.ticks(low, low + span, most)
    assert 2 <= len(marks) <= most and marks == sorted(set(marks))
    tolerance = 1e-6 * max(1, abs(low), span)
    assert marks[0] <= low + tolerance and marks[-1] >= low + span - tolerance


# ---------------------------------------------------------------- the plots


def scores(metric: str, *values: float) -> Scores:
    ids = tuple(map(str, range(len(values))))
    return Scores(metrics=(metric,), query_ids=ids, values=np.array([values]), counts=Counts(queries=len(ids)))


def test_metrics_by_system():
    systems = {"one": scores("ndcg@10", 0.25), "two": scores("ndcg@10", 0.75, 0.75)}  # from 0 to 1; no width
    root = parsed(metric_plot(systems, ["ndcg@10"], {"ndcg@10": 0.8, "mrr": 0.9}, "best of 10 hits"))
    # from 0 at 7 characters of 7.8 and 22 to 1 at 520 - 66; rows of 18 below a legend of 20 and margins of 8 and 7
    left, right = 7 * 7.8 + 22, 454
    assert markers(root) == [
        (pytest.approx(left + 0.25 * (right - left), abs=0.01), 20 + 8 + 7 + 9),
        (pytest.approx(left + 0.75 * (right - left), abs=0.01), 20 + 8 + 7 + 27),
    ]
    paths = [node.get("d") for node in root.iter(f"{SVG}path")]
    at = svg.number(left + 0.75 * (right - left))
    assert f"M{svg.number(left)} 44L{svg.number(right)} 44" in paths and f"M{at} 62L{at} 62" in paths
    assert "one: ndcg@10 0.2500, 95 % confidence interval 0.0000 to 1.0000" in tooltips(root)
    assert "ndcg@10: an ideal re-ordering reaches 0.8000" in tooltips(root) and "best of 10 hits" in words(root)
    assert not any("mrr" in name for name in tooltips(root))
    bold = ["".join(node.itertext()) for node in root.iter(f"{SVG}text") if node.get("font-weight")]
    assert bold == ["ndcg@10", "0.7500"]


def test_a_single_system_is_not_the_best():
    root = parsed(metric_plot({"one": scores("mrr", 0.5)}, ["mrr"]))
    assert ["".join(node.itertext()) for node in root.iter(f"{SVG}text") if node.get("font-weight")] == ["mrr"]


def test_differences_by_query():
    root = parsed(difference_plot("mrr", ["old", "new"], 1, [-0.5, 0.0, 1.0, 0.5], ["a", "b", "c", "d"]))
    # values from -0.5 to 1 in seven or fewer steps of 0.25; 210 units high below a legend of 20 and 10
    left = 5 * 7.8 + 14  # "-0.25"
    wide = (520 - left) / 4
    zero = 30 + 210 * 1 / 1.5
    expected = [(0, zero - 140, 140), (1, zero - 70, 70), (2, zero - 3, 6), (3, zero, 70)]
    assert bars(root) == [
        tuple(pytest.approx(x, abs=0.01) for x in (left + (place + 0.075) * wide, top, 0.85 * wide, height))
        for place, top, height in expected
    ]
    assert tooltips(root) == ["c: +1.0000", "d: +0.5000", "b: 0.0000", "a: −0.5000"]
    assert {"2 better", "1 same", "1 worse", "mean +0.2500"} <= set(words(root))


def test_many_queries_share_bars():
    values = [(3500 - place) / 7000 for place in range(7000)]
    plot = difference_plot("ndcg@10", ["old", "new"], 1, values, [f"query {'x' * 300} {n}" for n in range(7000)])
    root = parsed(plot)
    assert len(bars(root)) == 240 and len(plot) < 120_000
    assert {"3,500 better", "1 same", "3,499 worse"} <= set(words(root))
    # the axis goes from -0.6 to 0.6
    assert bars(root)[0][1] == 47.5  # the greatest gain is seen, not the mean of 29
    assert tooltips(root)[0].startswith("29 queries, +0.5000 to +0.4960, the first: query xxx")


@pytest.mark.parametrize("values", [[0.0], [0.0] * 3, [-0.25] * 2, [1.0], [1e-9, -1.0]])
def test_few_or_equal_differences(values):
    root = parsed(difference_plot("mrr", ["old", "new"], 1, values, ["a"] * len(values)))
    height = float(root.get("viewBox", "").split()[-1])
    assert len(bars(root)) == len(values)
    assert all(top >= 30 and top + tall <= height for _, top, _, tall in bars(root) if tall != 6)
    named = next(node for node in root.iter(f"{SVG}text") if "mean" in (node.text or ""))
    assert 30 < float(named.get("y", "")) < height - 20  # below the legend, above the axis' name


def test_recall_by_depth():
    root = parsed(recall_plot({"one": {1: 0.2, 100: 1.0, 10: 0.6}, "none": {}, "two": {10: 0.4}}))
    # 0.2 to 1 over 210 units; 1 to 100 from the numbers' gutter (3 characters and 14) and 10 more to 520 - 20
    left = 3 * 7.8 + 24
    assert markers(root) == [
        (pytest.approx(left, abs=0.01), 240),
        (pytest.approx((left + 500) / 2, abs=0.01), pytest.approx(135)),
        (pytest.approx(500), 30),
        (pytest.approx((left + 500) / 2, abs=0.01), pytest.approx(187.5)),
    ]
    assert "one: recall@10 0.6000" in tooltips(root)
    assert "none" not in words(root)
    assert [node.get("class") for node in root.iter(f"{SVG}g") if (node.get("class") or "")[0:1] == "c"][-1] == "c2"


def test_numbers_of_depths_do_not_overlap():
    root = parsed(recall_plot({"one": {depth: depth / 1000 for depth in range(1, 1001)}}))
    named = [n for n in root.iter(f"{SVG}text") if n.get("text-anchor") == "middle" and (n.text or "")[:1].isdigit()]
    assert [n.text for n in named][-1] == "1,000"
    ends = [(float(n.get("x", "")), len(n.text or "") * 7.8 / 2) for n in named]
    assert all(x - half > before + wide for (before, wide), (x, half) in itertools.pairwise(ends))


def test_time_by_stage():
    seconds = {
        "one": {"retrieve": [0.010] * 100},
        "none": {},
        "two": {"retrieve": [0.010] * 100, "rerank": [0.1] * 90 + [0.2] * 10},
    }
    root = parsed(latency_plot(seconds))
    assert bars(root)[:4] == [(-11, -5, 11, 10), (0, -5, 11, 10)] * 2  # the legend's, in the colours of the bars
    colours = [n.get("class") for n in root.iter(f"{SVG}g") if n.find(f"{SVG}rect") is not None]
    assert colours == ["c0", "c2", "c0", "c2", "c0", "c2", "c2"]
    left, right = 8 * 7.8 + 12, 360
    assert [width for _, _, width, _ in bars(root)[4:]] == pytest.approx(
        [(right - left) * share for share in (0.05, 0.05, 0.05, 0.05, 1.0, 0.5)], abs=0.01
    )
    assert "two, rerank: median 100 ms, 95th percentile 200 ms" in tooltips(root)
    assert words(root).count("retrieve") == 2 and "10.0" in words(root)


def test_text_from_users_is_escaped():
    name = '<script>&"\x00\ud800\u202e' + "长" * 200
    plots = [
        metric_plot({name: scores(name, 0.5)}, [name], {name: 1.0}, name),
        difference_plot(name, [name, name], 1, [0.5], [name]),
        recall_plot({name: {1: 0.5}}),
        latency_plot({name: {name: [0.5]}}),
    ]
    for plot in plots:
        parsed(plot)
        plot.encode()
        assert "<script" not in plot and "\x00" not in plot
    for text in words(parsed(plots[2])):
        assert len(text) - len(name) < 80


def test_more_systems_than_styles_differ():
    names = [f"run {n}" for n in range(9)]
    root = parsed(recall_plot({name: {1: 0.1, 10: 0.5} for name in names}))
    looks = {
        (node.get("d"), node.get("fill"))
        for node in root.iter(f"{SVG}path")
        if node.get("transform") == "translate(0 0)"
    }
    assert len(looks) == 9


# ---------------------------------------------------------------- text and numbers


def test_numbers():
    assert [fixed(x) for x in (0.50584, -0.00001, -0.25)] == ["0.5058", "0.0000", "−0.2500"]
    assert [signed(x) for x in (0.25, -0.25, 0.00001, 0.0)] == ["+0.2500", "−0.2500", "0.0000", "0.0000"]
    assert [probability(x) for x in (0.04999, 0.00001, 0.0, 1.0)] == ["0.0500", "<0.0001", "<0.0001", "1.0000"]
    times = [milliseconds(x) for x in (0.000123, 0.0123, 0.0999, 1.2345, 61)]
    assert times == ["0.12", "12.3", "99.9", "1,234", "61,000"]
    assert [many(n, "hit", "hits") for n in (0, 1, 1234)] == ["0 hits", "1 hit", "1,234 hits"]


def test_text_is_made_safe():
    assert clean("a\tb\r\nc\x07\ud800\u202ed\ufffe") == "a b c\ufffd\ufffdd\ufffd"
    assert html_text("""<a href="x">'&""") == "&lt;a href=&quot;x&quot;&gt;&#x27;&amp;"
    assert markdown_text("a|b *c* _d_ `e` <f> [g](h) $i$ \\\n& ~j~") == (
        r"a\|b \*c\* \_d\_ \`e\` &lt;f&gt; \[g\](h) \$i\$ \\ &amp; \~j\~"
    )


@given(st.text(), st.integers(1, 30))
def test_a_cut_fits(text, limit):
    from retrieval.eval.markup import columns

    short = cut(text, limit)
    assert columns(short) <= limit
    assert short == text or (short.endswith("…") and columns(text) > limit)

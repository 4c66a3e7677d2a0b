"""The report: what stands in it, that nothing from users breaks it, and how Chromium opens it."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import re
import select
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrieval.eval.comparison import compare
from retrieval.eval.evaluation import Evaluation, System
from retrieval.eval.metrics import Counts, Scores
from retrieval.eval.report import html_report, markdown_report, text_report

METRICS = ("ndcg@10", "mrr@10", "recall@100")
DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
NASTY = '<script>alert("x")</script> & |pipe| \x07\ud800\u202e `code` *b* $m$'
LONG = "bm25-k1-0.9-b-0.4-rm3-then-a-cross-encoder-of-many-layers-" * 4


def scores(values: np.ndarray, **counts: Any) -> Scores:
    ids = tuple(f"q{number}" for number in range(values.shape[1]))
    return Scores(metrics=METRICS, query_ids=ids, values=values, counts=Counts(queries=len(ids), **counts))


def made(names: tuple[str, ...] = ("first stage", "reranked"), queries: int = 300, seed: int = 3) -> Evaluation:
    """An evaluation with all there can be in one, of made-up numbers."""
    rng = np.random.default_rng(seed)
    base = rng.beta(1.2, 1.0, (len(METRICS), queries))
    systems = []
    for place, name in enumerate(names):
        changed = (rng.random(queries) < 0.7) * rng.normal(0.05 * place, 0.2, base.shape) if place else 0
        systems.append(
            System(
                name=name,
                scores=scores(np.clip(base + changed, 0, 1), without_hits=("q0",), tied={10: 3}),
                recall={depth: 1 - 0.7 * (1 + depth) ** -0.4 / (1 + place) for depth in DEPTHS},
                seconds={
                    stage: rng.lognormal(mean, 0.3, queries).tolist()
                    for stage, mean in (("retrieve", -4.4), ("rerank", -2.9))[: 1 + bool(place)]
                },
            )
        )
    return Evaluation(
        title="A benchmark, test split",
        facts={"benchmark": "a benchmark", "split": "test"},
        systems=tuple(systems),
        comparisons=compare({s.name: s.scores for s in systems}, permutations=999) if len(systems) > 1 else (),
        ceiling={"ndcg@10": 0.87, "mrr@10": 0.91, "recall@100": 0.93},
        queries={f"q{n}": f"how does query {n} end" for n in range(queries)},
        notices=("1 judged query has no hits, counted as 0: q0",),
    )


class Page(HTMLParser):
    """Headings, tables by heading, attributes, and text of a page; fails on tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.rows: dict[str, list[list[str]]] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "link"):
            self.open.append(tag)
        if tag == "h2":
            self.headings.append("")
        elif tag == "tr":
            self.rows.setdefault(self.headings[-1], []).append([])
        elif tag in ("td", "th"):
            self.rows[self.headings[-1]][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.text += data
        if "h2" in self.open:
            self.headings[-1] += data
        elif "td" in self.open or "th" in self.open:
            self.rows[self.headings[-1]][-1][-1] += data


def cells(page: str, heading: str) -> list[list[str]]:
    """The rows of a Markdown table under a heading."""
    part = page.split(f"## {heading}")[1].split("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


# ---------------------------------------------------------------- what it says


def small() -> Evaluation:
    """Three queries whose numbers can be worked out by hand."""
    old = np.array([[0.0, 0.5, 1.0], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0]])
    new = np.array([[1.0, 0.5, 0.75], [0.25, 0.25, 0.25], [1.0, 1.0, 1.0]])
    systems = (
        System(name="old", scores=scores(old, unjudged=("x",), identical_ids=4, ignored_identical=True)),
        System(name="new", scores=scores(new, missing_documents=2)),
    )
    return Evaluation(title="Small", systems=systems, comparisons=compare({s.name: s.scores for s in systems}))


def test_results_and_comparison():
    page = Page(html_report(small()))
    # half the interval of 0, 0.5, 1: t(0.975, 2) = 4.3027, times 0.5 / sqrt(3)
    assert page.rows["Results"] == [
        ["System", *METRICS],
        ["old", "0.5000 ±1.2421", "0.5000 ±0.0000", "1.0000 ±0.0000"],
        ["new", "0.7500 ±0.6210", "▼ 0.2500 ±0.0000", "1.0000 ±0.0000"],
    ]
    header, ndcg, mrr, recall = page.rows["Comparison of new with old"]
    assert header[:2] == ["Metric", "Difference"] and len(header) == len(ndcg) == 7
    # changes 1, 0, -0.25: standard deviation 0.6614; all four patterns of the two signs are as large or 0.75
    assert ndcg[:4] == ["ndcg@10", "+0.2500", "−1.3931 to +1.8931", "+0.38"] and ndcg[-1] == "1 / 1 / 1"
    assert mrr[1:5] == ["−0.2500", "−0.2500 to −0.2500", "0.00", "<0.0001"] and mrr[-1] == "0 / 0 / 3"
    assert recall[1:] == ["0.0000", "0.0000 to 0.0000", "0.00", "1.0000", "1.0000", "0 / 3 / 0"]
    assert "paired t-test, p\u00a0<\u00a00.05 after Holm's correction for 3 comparisons" in page.text


def test_queries_that_changed_most():
    page = Page(html_report(replace(small(), queries={"q0": "first", "q2": "third"})))
    assert page.rows["Queries that changed most: ndcg@10, new"] == [
        ["Query", "Id", "old", "new", "Difference"],
        ["first", "q0", "0.0000", "1.0000", "+1.0000"],
        ["Query", "Id", "old", "new", "Difference"],
        ["third", "q2", "1.0000", "0.7500", "−0.2500"],
    ]
    rows = Page(html_report(small())).rows["Queries that changed most: ndcg@10, new"]  # without their texts
    assert rows[:2] == [["Id", "old", "new", "Difference"], ["q0", "0.0000", "1.0000", "+1.0000"]]


def test_counts_and_rules():
    page = Page(html_report(small()))
    assert page.rows["Counts"] == [
        ["", "old", "new"],
        ["Judged queries", "3", "3"],
        ["… without hits; they count as 0", "0", "0"],
        ["… without a relevant document; they count as 0", "0", "0"],
        ["Queries without judgements; left out", "1", "0"],
        ["Judged documents that the corpus lacks", "not known", "2"],
        ["Hits with the query's own id", "4 (left out)", "0"],
    ]
    for rule in ("equal scores by doc_id, descending", "ndcg has linear gain", "without hits", "are left out"):
        assert rule in page.text
    assert "ndcg_burges" not in page.text  # was not asked for


def test_a_plot_without_data_is_left_out_with_its_heading():
    page = html_report(small())
    assert page.count("<svg") == page.count("<figcaption") == 2  # metrics, differences
    for heading in ("Recall by depth", "Time per query", "What was evaluated", "Before you trust"):
        assert heading not in page and heading not in markdown_report(small())
    assert html_report(made()).count("<svg") == 4
    one = Page(html_report(made(("bm25",))))
    assert not any("Comparison" in h or "changed" in h for h in one.headings)
    assert html_report(made(("bm25",))).count("<svg") == 3
    assert not [a for a in one.attributes if a[0] == "strong"] and "is bold" not in one.text


def test_markdown_has_the_same_tables():
    evaluation = made()
    page, markdown = Page(html_report(evaluation)), markdown_report(evaluation)
    assert [h for h in page.headings if h != "Plots"] == re.findall(r"(?m)^## (.*)$", markdown)
    assert "<" not in markdown.replace("&lt;", "")
    for heading in (
        "Results",
        "Recall by depth",
        "Time per query, in milliseconds",
        "Counts",
        "Comparison of reranked with the first stage",
    ):
        rows = cells(markdown, heading)
        del rows[1]  # the rule below the header
        assert [[cell.replace("**", "").replace("\\_", "_") for cell in row] for row in rows] == page.rows[heading]
    assert re.search(r"\*\*(▲ )?0\.\d{4}\*\* ±0\.\d{4}", markdown)


def wide(names: tuple[str, ...], metrics: int = 31, queries: int = 20) -> Evaluation:
    """An evaluation by more metrics than fit beside each other."""
    rng = np.random.default_rng(5)
    named = tuple(f"ndcg@{k}" for k in range(1, metrics + 1))
    ids = tuple(f"q{n}" for n in range(queries))
    systems = tuple(
        System(
            name=name,
            scores=Scores(
                metrics=named, query_ids=ids, values=rng.random((metrics, queries)), counts=Counts(queries=queries)
            ),
        )
        for name in names
    )
    return Evaluation(title="Wide", systems=systems, ceiling=dict.fromkeys(named, 0.9))


def test_many_metrics_are_rows():
    page = Page(html_report(wide(("old", "new"))))
    rows = page.rows["Results"]
    assert rows[0] == ["Metric", "old", "new", "ideal re-ordering of the candidates"] and len(rows) == 32
    assert rows[1][0] == "ndcg@1" and all(row[3] == "0.9000" for row in rows[1:])
    assert "Mean and its 95 % confidence interval: the first 8 of 31 metrics" in page.text
    assert [row[0] for row in cells(markdown_report(wide(("old", "new"))), "Results")[2:]] == [
        row[0] for row in rows[1:]
    ]
    for metrics, corner in ((6, "System"), (7, "Metric")):
        assert Page(html_report(wide(("old", "new"), metrics))).rows["Results"][0][0] == corner
        assert cells(markdown_report(wide(("old", "new"), metrics)), "Results")[0][0] == corner
    many = Page(html_report(wide(tuple("abcdefgh"), 7))).rows["Results"]  # 9 columns would not be fewer
    assert many[0][0] == "System" and len(many) == 10


def test_a_terminal_has_100_columns():
    for metrics, corner in ((4, "System"), (5, "Metric"), (31, "Metric")):
        lines = text_report(wide(("old", "new"), metrics)).split("\n\n")[0].splitlines()
        assert lines[1].startswith(corner) and max(map(len, lines)) <= 100
    lines = text_report(wide(tuple("abcdefgh"), 7)).splitlines()  # neither fits; the narrower one
    assert lines[1].startswith("System ")
    for names in (("first stage",), ("first stage", "reranked")):
        evaluation = replace(made(names), queries={f"q{n}": "very long " * 90 for n in range(300)})
        assert max(map(len, text_report(evaluation).splitlines())) <= 100


def test_a_ceiling_says_of_what():
    for fact in ("re-ordered hits", "hits that a ceiling re-orders"):
        evaluation = replace(made(), facts={fact: "1,000"})
        for page in (html_report(evaluation), markdown_report(evaluation), text_report(evaluation)):
            assert "ideal re-ordering of the first 1,000 hits" in page and "of the first stage" in page
    assert "ideal" not in html_report(replace(made(), ceiling={}))


def test_text_has_the_findings():
    text = text_report(made())
    headings = [part.splitlines()[0] for part in text.split("\n\n")]
    assert [heading for heading in headings if heading.split()[0] not in ("Mean", "Difference:", "Lost")] == [
        "Results",
        "Comparison of reranked with the first stage",
        "Queries that changed most: ndcg@10, reranked",
        "Recall by depth",
        "Time per query, in milliseconds",
    ]
    assert text.startswith("Results\nSystem ") and "bold" not in text
    results = text.split("\n\n")[0].splitlines()
    assert len({len(line) for line in results[1:]}) == 1  # numbers below each other
    changes = text.split("changed most: ndcg@10, reranked\n")[1].split("Recall by depth")[0]
    assert len(re.findall(r"(?m)^how does query", changes)) == 10  # 5 each
    several = text_report(made(("a", "b", "c")))
    assert "--report" in several and "Gained" not in several and "--report" not in text


def test_queries_that_scored_worst():
    values = np.array([[0.5, 0.0, 1.0, 0.25, 0.0]] * 3)
    system = System(name="bm25", scores=scores(values, without_hits=("q1",), without_relevant=("q4",)))
    evaluation = Evaluation(title="One", systems=(system,), queries={"q1": "first", "q3": "third"})
    assert Page(html_report(evaluation)).rows["Queries that scored worst: ndcg@10"] == [
        ["Query", "Id", "ndcg@10"],
        ["first", "q1 (no hits)", "0.0000"],
        ["–", "q4 (nothing is relevant)", "0.0000"],
        ["third", "q3", "0.2500"],
        ["–", "q0", "0.5000"],
    ]
    rows = cells(markdown_report(replace(evaluation, queries={})), "Queries that scored worst")
    assert rows[0] == ["Id", "ndcg@10"] and rows[2] == ["q1 (no hits)", "0.0000"]
    zero = Evaluation(title="One", systems=(System(name="bm25", scores=scores(np.zeros((3, 30)))),))
    for page, shown in ((markdown_report(zero), 10), (text_report(zero), 5)):
        part = page.split("scored worst: ndcg@10")[1]
        assert "30 of 30 queries score 0" in part and len(re.findall(r"(?m)^(?:\| )?q\d+ ", part)) == shown
    assert "scored worst" not in text_report(
        Evaluation(title="", systems=(System(name="b", scores=scores(np.ones((3, 2)))),))
    )
    assert "scored worst" not in html_report(made())


def test_all_pairs_name_both_systems():
    evaluation = made(("a", "b", "c"), 20)
    pairs = compare({s.name: s.scores for s in evaluation.systems}, all_pairs=True, permutations=99)
    page = Page(html_report(replace(evaluation, comparisons=pairs)))
    rows = page.rows["Comparison of every two systems"]
    assert [row[1] for row in rows[1:4]] == ["b − a", "c − a", "c − b"]


def test_the_same_evaluation_gives_the_same_bytes():
    assert html_report(made()) == html_report(made())
    assert html_report(made()) != html_report(made(seed=4))


# ---------------------------------------------------------------- what users bring


def nasty() -> Evaluation:
    evaluation = made((NASTY, LONG), 50)
    queries = {f"q{n}": (NASTY, "كيف يعمل؟", "very long " * 9000, "")[n % 4] for n in range(50)}
    facts, notices = {NASTY: NASTY}, (NASTY, "a\n- b")
    return replace(evaluation, title=NASTY, facts=facts, queries=queries, notices=notices)


def test_text_from_users_is_escaped():
    page = html_report(nasty())
    page.encode()
    parsed = Page(page)
    assert not [tag for tag, *_ in parsed.attributes if tag == "script"] and "<script" not in page
    assert parsed.text.count('<script>alert("x")</script> & |pipe|') > 10
    assert not re.search("[\x00-\x08\ud800-\udfff\u202e]", page)
    longest = max(value for _, name, value in parsed.attributes if name == "title")
    assert longest.startswith("very long") and len(longest) <= 2000  # the whole text, within reason, in a tooltip
    assert len(page) < 200_000
    markdown = markdown_report(nasty())
    markdown.encode()
    assert "<script" not in markdown and r"\|pipe\|" in markdown and r"\`code\`" in markdown
    header, *_, _ceiling = cells(markdown, "Results")
    assert len(header) == 4 and all(len(row) == 4 for row in cells(markdown, "Results"))
    assert "\n- b" not in markdown
    assert NASTY[:30] in text_report(nasty())


@pytest.mark.parametrize(("names", "queries"), [(("a", "b"), 1), (("a",), 1), (("a", "b", "c", "d", LONG), 40)])
def test_other_sizes(names, queries):
    page = Page(html_report(made(names, queries)))
    assert len(page.rows["Results"]) == len(names) + 2
    assert markdown_report(made(names, queries)) and text_report(made(names, queries))


def test_thousands_of_queries_make_a_small_page():
    page = html_report(made(queries=7000))
    assert len(page.encode()) < 200_000 and "7,000 judged queries" in page


def test_nothing_comes_from_elsewhere():
    for evaluation in (made(), nasty()):
        page = html_report(evaluation)
        parsed = Page(page)
        links = [
            value for _, name, value in parsed.attributes if name in ("src", "href", "xlink:href", "data", "action")
        ]
        assert links == ["data:,"] and "url(" not in page and "@import" not in page
        assert not [a for a in parsed.attributes if a[1].startswith("on")]
        assert [value for _, name, value in parsed.attributes if "//" in value and name != "xmlns"] == []


# ---------------------------------------------------------------- in a browser


class Browser:
    """Headless Chromium, spoken to over a pipe in the DevTools protocol."""

    def __init__(self, program: str, home: Path) -> None:
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        self._numbers, self._pending = itertools.count(1), b""
        (reads, self._out), (self._in, writes) = os.pipe(), os.pipe()
        log = os.open(home / "log.txt", os.O_WRONLY | os.O_CREAT)
        # Chromium reads from descriptor 3 and writes to 4; copies above these are not overwritten on the way
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (reads, writes, log, log)]
        switches = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
        self._pid = os.posix_spawn(
            program,
            [program, *switches, f"--user-data-dir={home}", "--remote-debugging-pipe"],
            os.environ,
            setpgroup=0,
            file_actions=[(os.POSIX_SPAWN_DUP2, end, at) for end, at in zip(ends, (3, 4, 1, 2), strict=True)],
        )
        for end in (reads, writes, log, *ends):
            os.close(end)

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setScrollbarsHidden", hidden=True)

    def _message(self) -> dict[str, Any]:
        until = time.monotonic() + 60
        while b"\0" not in self._pending:
            if not select.select([self._in], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            block = os.read(self._in, 1 << 20)
            if not block:
                raise EOFError("Chromium ended")
            self._pending += block
        message, _, self._pending = self._pending.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        request = {"id": number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self._out, json.dumps(request).encode() + b"\0")
        while (message := self._message()).get("id") != number:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def show(self, page: Path, width: int, scheme: str) -> None:
        """Open a page; the events since are in `events`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def said(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event["method"] in methods]

    def value(self, script: str) -> Any:
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def close(self) -> None:
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._in)
        os.close(self._out)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    programs = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    program = next(programs, None)
    if program is None:
        pytest.skip("neither chromium nor google-chrome is installed")
    browser = Browser(program, tmp_path_factory.mktemp("chromium"))
    try:
        browser.attach()
        yield browser
    finally:
        browser.close()


# Elements of plots that reach out of their plot, and words of a plot that overlap
_PLOTS = """[...document.querySelectorAll("figure svg")].map(plot => {
  const box = plot.getBoundingClientRect(), inner = plot.getBBox();
  const words = [...plot.querySelectorAll("text")].map(node => [node.textContent, node.getBoundingClientRect()]);
  const shapes = [...plot.querySelectorAll("path,rect,text")];
  const overlaps = [];
  words.forEach(([one, a], i) => words.slice(i + 1).forEach(([two, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const along = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && along > 4) overlaps.push(one + " / " + two);
  }));
  return {width: box.width, height: box.height, inner: [inner.width, inner.height], overlaps,
    outside: shapes.filter(node => {
      const s = node.getBoundingClientRect();
      return s.left < box.left - 1 || s.right > box.right + 1 || s.top < box.top - 1 || s.bottom > box.bottom + 1;
    }).map(node => node.outerHTML), shapes: shapes.length, colour: getComputedStyle(
      plot.querySelector(".c0")).color};
})"""


@pytest.mark.parametrize(
    ("evaluation", "plots"),
    [
        (made(), 4),
        (made(queries=7000), 4),
        (made(queries=1), 4),
        (made(("bm25",)), 3),
        (wide(("old", "new")), 2),
        (made(("a", "b.trec", "a run of a third system", "d", LONG), 60), 7),
        (nasty(), 4),
    ],
    ids=["two systems", "7000 queries", "1 query", "1 system", "31 metrics", "five systems", "nasty"],
)
def test_chromium_shows_it(browser, tmp_path, evaluation, plots):
    path = tmp_path / "report.html"
    path.write_text(html_report(evaluation), encoding="utf-8")
    colours = set()
    for width, scheme in ((1200, "light"), (1200, "dark"), (400, "light")):
        browser.show(path, width, scheme)
        found = browser.value(_PLOTS)
        assert browser.said("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []
        requests = [event["request"]["url"] for event in browser.said("Network.requestWillBeSent")]
        assert {url for url in requests if not url.startswith("data:")} == {path.as_uri()}
        assert len(found) == plots
        for plot in found:
            assert plot["width"] > 300 and plot["height"] > 60 and min(plot["inner"]) > 60 and plot["shapes"] > 10
            assert plot["outside"] == [] and plot["overlaps"] == []
        assert browser.value("document.documentElement.scrollWidth") == width  # only tables scroll, on their own
        colours.add((scheme, browser.value("getComputedStyle(document.body).backgroundColor"), found[0]["colour"]))
    assert colours == {
        ("light", "rgb(255, 255, 255)", "rgb(0, 103, 165)"),
        ("dark", "rgb(20, 24, 30)", "rgb(91, 184, 245)"),
    }


def test_gains_and_losses_stand_side_by_side_where_there_is_room(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html_report(made()), encoding="utf-8")
    tops = "[...document.querySelectorAll('.beside .table')].map(table => table.getBoundingClientRect().top)"
    for width, rows in ((1200, 1), (400, 2)):
        browser.show(path, width, "light")
        found = browser.value(tops)
        assert len(found) == 2 and len(set(found)) == rows


def test_the_browser_would_notice(browser, tmp_path):
    """A broken page does not pass the checks above."""
    page = html_report(made())
    path = tmp_path / "broken.html"
    path.write_text(page.replace("</main>", '<script>alert(1)</script><img src="http://127.0.0.1:9/x.png"></main>'))
    browser.show(path, 1200, "light")
    assert len(browser.said("Log.entryAdded", "Runtime.exceptionThrown")) >= 2
    path.write_text(page.replace('font-size="13"', 'font-size="40"'))
    browser.show(path, 1200, "light")
    assert sum(len(plot["overlaps"] + plot["outside"]) for plot in browser.value(_PLOTS)) > 4

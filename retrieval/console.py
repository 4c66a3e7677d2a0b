"""What the command line prints: hits on stdout; reports, notices and progress on stderr."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

import click

from retrieval.counts import many
from retrieval.highlight import highlights
from retrieval.ranking import Hit, Span
from retrieval.units import CODE_KINDS

if TYPE_CHECKING:
    from retrieval.eval.mining import MiningReport
    from retrieval.indexing import BuildReport, Progress

_SNIPPET = 240  # characters of a passage in a table
_CODE_LINES = 8  # of a passage that is code
_WIDTH = 100  # characters of a line of it
_INDENT = " " * 13
_EVERY = 30.0  # seconds between lines that say how things stand
_ON, _OFF = "\x0e", "\x0f"  # begin and end of what is in bold, while lines are wrapped


def say(line: str) -> None:
    """Print a line for people, on stderr."""
    click.echo(line, err=True)


def hits_table(
    query: str, hits: Sequence[Hit], *, name: str | None = None, spans: Sequence[Span | None] | None = None
) -> Iterator[str]:
    """Yield the lines that show the hits of one query to a person; re-ordered ones with where they came from.

    Of a long passage the beginning is shown, or the part that `spans` say, in bold; without these the part that holds
    most of the query's terms. The document's next best passages follow, a line each.
    """
    if name is not None:
        yield click.style(f"{name}: {_line(query)}", bold=True)
    if not hits:
        yield "no hits"
    for hit, span in zip(hits, highlights(query, hits, None) if spans is None else spans, strict=True):
        title = f"  {_line(hit.title)}" if hit.title else ""
        before = click.style(f"  [{_first_stage(hit)}]", dim=True) if hit.rerank_score is not None else ""
        yield f"{hit.rank:>3}  {hit.score:.4f}  {click.style(_place(hit), fg='cyan')}{title}{before}"
        best = range(0) if span is None else range(span.start - hit.start, span.end - hit.start)
        shown = _code if hit.kind in CODE_KINDS else _prose
        yield from shown(hit.text, best, bold=spans is not None)
        for other in hit.spans:
            yield _INDENT + click.style(_also(other), dim=True)


def _place(hit: Hit) -> str:
    """Where a hit is found: its document, and the lines of the file."""
    lines = f":{hit.start_line}-{hit.end_line}" if hit.start_line is not None else ""
    return _line(hit.doc_id) + lines


def _also(span: Span) -> str:
    """One line that says what else of a document was found: the lines, the name or else the beginning."""
    lines = "" if span.start_line is None else f"lines {span.start_line}-{span.end_line}  "
    return _shortened(f"also {lines}{_line(span.section or span.text)}", _WIDTH)


def _prose(text: str, best: range, *, bold: bool) -> Iterator[str]:
    """The beginning of a text, or from its best part on, where that comes later."""
    first = best.start if best and best.stop > _SNIPPET else 0
    parts = [_line(text[first : best.start]), _line(text[max(first, best.start) : best.stop]), _line(text[best.stop :])]
    if bold and best:
        parts[1] = f"{_ON}{parts[1]}{_OFF}"
    marked = " ".join(filter(None, parts))
    wrapped = textwrap.wrap(_shortened("…" * bool(first) + marked, _SNIPPET), width=_WIDTH - len(_INDENT))
    inside = False
    for line in wrapped:
        shown = ""
        for piece in re.split(f"([{_ON}{_OFF}])", line):
            if piece in (_ON, _OFF):
                inside = piece == _ON
            elif piece:
                shown += click.style(piece, bold=True) if inside else piece
        yield _INDENT + shown


def _code(text: str, best: range, *, bold: bool) -> Iterator[str]:
    """The first lines of code, or the first and the best, without blank ones, as they are indented among each other."""
    lines, start = [], 0
    for line in text.split("\n"):
        inside = max(start, best.start) < min(start + len(line), best.stop)
        if line.strip():
            lines.append((line.expandtabs(4).rstrip(), inside))
        start += len(line) + 1
    marked = [number for number, (_, inside) in enumerate(lines) if inside]
    shown = list(range(min(_CODE_LINES, len(lines))))
    if marked and marked[-1] >= _CODE_LINES:
        shown = [0, *range(max(1, marked[0]), min(marked[0] + _CODE_LINES - 1, len(lines)))]
    dedented = textwrap.dedent("\n".join(lines[number][0] for number in shown)).split("\n")
    before = -1
    for number, line in zip(shown, dedented, strict=True):
        if number > before + 1:
            yield f"{_INDENT}…"
        before = number
        line = "".join(c if c.isprintable() else " " for c in line)
        line = line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"
        yield _INDENT + (click.style(line, bold=True) if bold and lines[number][1] else line)
    if before < len(lines) - 1:
        yield f"{_INDENT}…"


def _first_stage(hit: Hit) -> str:
    rank = "" if hit.retrieval_rank is None else f"rank {hit.retrieval_rank}, "
    return f"first stage: {rank}{hit.retrieval_score:.4f}"


def hits_json(
    query_id: str, query: str | None, hits: Sequence[Hit], *, spans: Sequence[Span | None] | None = None
) -> str:
    """Return the hits of one query as one line of JSON, with `spans`, if given, as `highlight` of each.

    All `start` and `end` are characters of the document's text.
    """
    shown = [hit.to_dict() for hit in hits]
    if spans is not None:
        for one, span in zip(shown, spans, strict=True):
            one["highlight"] = None if span is None else asdict(span)
    body = {"query_id": query_id, "query": query, "hits": shown}
    return json.dumps(body, ensure_ascii=False, allow_nan=False)


def _line(text: str) -> str:
    """One line without characters that would move the cursor or colour the terminal."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def report(done: str, result: BuildReport) -> None:
    """Print what a build or a change did, with all counts."""
    rate = (result.documents - result.kept) / max(result.seconds, 1e-9)
    passages = f" as {many(result.passages, 'passage')}" if result.passages != result.documents else ""
    written = many(result.documents, "document")
    say(f"{done} {written}{passages} in {result.seconds:.1f} s ({_rate(rate)} documents/s)")
    lines = {
        f"{many(result.kept, 'document')} kept from an unfinished build": result.kept,
        f"{many(result.replaced, 'document')} replaced": result.replaced,
        f"{many(result.empty, 'document')} without text (kept, never found)": result.empty,
        f"{many(result.rejected, 'bad record')} left out": result.rejected,
        **{
            f"{many(count, 'file or folder', 'files and folders')} skipped ({reason})": count
            for reason, count in sorted(result.skipped_files.items())
        },
        **{_cut(name, count): count for name, count in sorted(result.cut.items()) if name != "texts_encoded"},
    }
    for line, count in lines.items():
        if count:
            say(f"  {line}")
    for notice in result.notices:
        say(f"  note: {notice}")
    recall = "" if result.recall_at_10 is None else f", recall@10 {result.recall_at_10:.3f} against exact search"
    held = f"{many(result.index_documents, 'document')}, {many(result.index_passages, 'passage')}"
    say(f"the index holds {held}; search: {result.index_type}{recall}")


def _cut(name: str, count: int) -> str:
    """Say what one of an encoder's counts is."""
    texts = many(count, "text")
    told = {
        "texts_windowed": f"{texts} in windows, longer than the encoder reads (documents, or functions and sections)",
        "texts_truncated": f"{texts} truncated, longer than the encoder reads",
        "texts_reused": f"{many(count, 'passage')} not encoded again, equal to another",
        "titles_truncated": f"{many(count, 'title')} truncated",
    }
    return told.get(name) or f"{name.replace('_', ' ')}: {count:,}"


def _rate(rate: float) -> str:
    return f"{rate:,.1f}" if rate < 10 else f"{rate:,.0f}"


def mined(result: MiningReport) -> None:
    """Print what became of a source tree, with all counts."""
    say(f"{many(result.functions, 'function')} in {many(result.files, 'file')}, {result.seconds:.1f} s")
    say(f"{many(result.documents, 'document')}, {result.undocumented:,} without documentation")
    say(f"queries: {', '.join(f'{count:,} {split}' for split, count in result.pairs.items())}")
    for what, counts in (
        ("no document", result.left_out),
        ("no query", result.no_query),
        ("not looked at", result.skipped),
    ):
        for reason, count in counts.items():
            say(f"  {count:,} {what} ({reason})")
    for line in (*result.unparsed, *result.notices):
        say(f"  note: {line}")


@contextlib.contextmanager
def _told(state: Callable[[], str]) -> Iterator[None]:
    """Say how things stand twice a minute, for a log; `state` is asked each time."""
    over, started = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(_EVERY):
            say(f"{state()} after {time.monotonic() - started:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


@contextlib.contextmanager
def progress() -> Iterator[Callable[[Progress], None]]:
    """Show how a build goes, with rate and time left; a line now and then if stderr is no terminal."""
    stage, started = "loading", 0.0

    def staged(now: Progress) -> str:
        nonlocal stage, started
        started = started or time.monotonic()
        seconds = time.monotonic() - started
        rate = (now.documents - now.kept) / seconds if seconds > 0 else 0.0
        stage = "finishing" if now.stage == "commit" else f"{many(now.documents, 'document')}, {_rate(rate)}/s"
        return stage

    if not sys.stderr.isatty():

        def note(now: Progress) -> None:
            staged(now)

        with _told(lambda: stage):
            yield note
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(stage, total=None)

        def show(now: Progress) -> None:
            total = None if now.share is None else 1.0
            bar.update(task, description=staged(now), total=total, completed=now.share or 0.0)

        yield show


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a sign of life while something of unknown length is done; a line now and then if stderr is no terminal."""
    if not sys.stderr.isatty():
        with _told(lambda: f"{what} ..."):
            yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many of a known number are done; a line now and then if stderr is no terminal."""
    if not sys.stderr.isatty():
        share = 0.0

        def count(done: int, total: int) -> None:
            nonlocal share
            share = done / total

        with _told(lambda: f"{what}: {100 * share:.0f} %"):
            yield count
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines to stdout, or to an open text file."""
    for line in lines:
        click.echo(line, file=stream)


def print_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print names and values, aligned, or as JSON."""
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False, indent=1))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {value}")

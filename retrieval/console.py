"""What the command line prints: hits on stdout; reports, notices and progress on stderr."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from retrieval.counts import many
from retrieval.ranking import Hit, Span
from retrieval.units import CODE_KINDS

if TYPE_CHECKING:
    from retrieval.eval.mining import MiningReport
    from retrieval.indexing import BuildReport, Progress

_SNIPPET = 240  # characters of a passage in a table
_CODE_LINES = 8  # of a passage that is code
_WIDTH = 100  # characters of a line of it
_INDENT = " " * 13
_ON, _OFF = "\x0e", "\x0f"  # begin and end of what is in bold, while lines are wrapped


def say(line: str) -> None:
    """Print a line for people, on stderr."""
    click.echo(line, err=True)


def hits_table(
    query: str, hits: Sequence[Hit], *, name: str | None = None, spans: Sequence[Span | None] | None = None
) -> Iterator[str]:
    """Yield the lines that show the hits of one query to a person; re-ordered ones with where they came from.

    `spans` are what to show in bold of each hit's text.
    """
    if name is not None:
        yield click.style(f"{name}: {_line(query)}", bold=True)
    if not hits:
        yield "no hits"
    for hit, span in zip(hits, spans or [None] * len(hits), strict=True):
        title = f"  {_line(hit.title)}" if hit.title else ""
        before = click.style(f"  [{_first_stage(hit)}]", dim=True) if hit.rerank_score is not None else ""
        yield f"{hit.rank:>3}  {hit.score:.4f}  {click.style(_place(hit), fg='cyan')}{title}{before}"
        bold = range(0) if span is None else range(span.start, span.end)
        yield from _code(hit.text, bold) if hit.kind in CODE_KINDS else _prose(hit.text, bold)


def _place(hit: Hit) -> str:
    """Where a hit is found: its document, and the lines of the file."""
    lines = f":{hit.start_line}-{hit.end_line}" if hit.start_line is not None else ""
    return _line(hit.doc_id) + lines


def _prose(text: str, bold: range) -> Iterator[str]:
    """The beginning of a text, or from what is in bold on, where that comes later."""
    first = bold.start if bold and bold.stop > _SNIPPET else 0
    parts = [_line(text[first : bold.start]), _line(text[max(first, bold.start) : bold.stop]), _line(text[bold.stop :])]
    marked = parts[2] if not bold else " ".join(filter(None, (parts[0], f"{_ON}{parts[1]}{_OFF}", parts[2])))
    wrapped = textwrap.wrap(_shortened("…" * bool(first) + marked), width=_WIDTH - len(_INDENT))
    inside = False
    for line in wrapped:
        shown = ""
        for piece in re.split(f"([{_ON}{_OFF}])", line):
            if piece in (_ON, _OFF):
                inside = piece == _ON
            elif piece:
                shown += click.style(piece, bold=True) if inside else piece
        yield _INDENT + shown


def _code(text: str, bold: range) -> Iterator[str]:
    """The first lines of code, and those in bold, blank ones left out, as they are indented among each other."""
    lines, start = [], 0
    for line in text.split("\n"):
        inside = max(start, bold.start) < min(start + len(line), bold.stop)
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
        yield _INDENT + (click.style(line, bold=True) if lines[number][1] else line)
    if before < len(lines) - 1:
        yield f"{_INDENT}…"


def _first_stage(hit: Hit) -> str:
    rank = "" if hit.retrieval_rank is None else f"rank {hit.retrieval_rank}, "
    return f"first stage: {rank}{hit.retrieval_score:.4f}"


def hits_json(
    query_id: str, query: str | None, hits: Sequence[Hit], *, spans: Sequence[Span | None] | None = None
) -> str:
    """Return the hits of one query as one line of JSON, with `spans`, if given, as `highlight` of each."""
    shown = [hit.to_dict() for hit in hits]
    if spans is not None:
        for one, span in zip(shown, spans, strict=True):
            one["highlight"] = None if span is None else [span.start, span.end]
    body = {"query_id": query_id, "query": query, "hits": shown}
    return json.dumps(body, ensure_ascii=False, allow_nan=False)


def _line(text: str) -> str:
    """One line without characters that would move the cursor or colour the terminal."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))


def _shortened(text: str) -> str:
    return text if len(text) <= _SNIPPET else text[: _SNIPPET - 1].rstrip() + "…"


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
def progress() -> Iterator[Callable[[Progress], None] | None]:
    """Show how a build goes, with rate and time left, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("loading", total=None)
        started: list[float] = []

        def show(now: Progress) -> None:
            if not started:
                started.append(bar.get_time())
            seconds = bar.get_time() - started[0]
            rate = (now.documents - now.kept) / seconds if seconds > 0 else 0.0
            stage = "finishing" if now.stage == "commit" else f"{now.documents:,} documents, {_rate(rate)}/s"
            total = None if now.share is None else 1.0
            bar.update(task, description=stage, total=total, completed=now.share or 0.0)

        yield show


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a sign of life while something of unknown length is done, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show how many of a known number are done, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield None
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

"""Tuning a model on a user's own judged queries, with proof: tune."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from retrieval.commands.options import check_outputs, chosen
from retrieval.counts import many

if TYPE_CHECKING:
    from retrieval.proof import Proof
    from retrieval.tuning import TuningReport


@click.command("tune")
@click.argument("index")
@click.argument("out")
@click.option(
    "--benchmark",
    help="Judged queries of INDEX's documents, as `retrieve evaluate` has them.  [default: pairs from their structure]",
)
@click.option("--split", default="train", show_default=True, help="Of the benchmark: the queries to train with.")
@click.option("--layout", default="auto", show_default=True, help="Of the benchmark, where it is not recognised.")
@click.option(
    "--what",
    type=click.Choice(["encoder", "reranker", "both"]),
    default="encoder",
    show_default=True,
    help="The model that finds, a model that re-orders, or one after the other.",
)
@click.option(
    "--negatives", type=click.IntRange(min=0), help="Hard negatives of a query; default: 1, for a reranker 5."
)
@click.option("--epochs", type=float, help="Times that all training queries are seen; default: see --max-steps.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Default: those of an epoch, but from 60 to 200.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Default: 128 at most, for a reranker 16.")
@click.option("--learning-rate", type=float, help="Default: 1e-4, for a reranker 5e-5.")
@click.option(
    "--interpolation",
    type=float,
    default=0.3,
    show_default=True,
    help="Share of what was learnt in the new encoder's weights, up to 1; less loses less on other texts.",
)
@click.option(
    "--max-length",
    type=click.IntRange(min=1),
    help="Tokens of a training input; default: 128, for a reranker what the model takes.",
)
@click.option("--depth", type=click.IntRange(min=10), default=100, show_default=True, help="Hits that are re-ordered.")
@click.option("--also", multiple=True, help="A further benchmark: what does a kept model lose there? Takes its time.")
@click.option(
    "--keep",
    type=click.Choice(["better", "always"]),
    default="better",
    show_default=True,
    help="Keep a new model if its ndcg@10 is higher with p < 0.05, or always.",
)
@click.option("--model", help="Where the index's model lies now, if it moved.")
@click.option("--reranker-from", help="Model that a reranker starts from.  [default: the embedded encoder]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is drawn.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
@click.option("--trust-remote-code", is_flag=True, help="Run Python code that comes with a model.")
@click.option("--report", type=click.Path(), help="Write old and new on the held-out queries as a page of HTML.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
def tune_command(
    index: str, out: str, benchmark: str | None, also: Sequence[str], report: str | None, as_json: bool, **options: Any
) -> None:
    """Tune the model of INDEX on your judged queries, and prove on others that it is better.

    Mines hard negatives with INDEX, trains, builds a new index with the new model, and asks old and new the held-out
    queries. OUT, a new folder, gets what is better: encoder and index, reranker; and report.json in any case. INDEX is
    only read. Held out are the split test, else dev, else a fifth of the queries of --split. A command that was
    stopped goes on when it is repeated.

    Without --benchmark, pairs are made from the structure of INDEX's documents: title and body, heading and section,
    docstring and code. Old and new are then asked for parts of documents, with titles, headings and docstrings of
    other documents: that proves something of these, not of what your users ask.

    \b
    retrieve tune my-index tuned --benchmark my-benchmark
    retrieve tune my-index tuned --benchmark my-benchmark --what both --also other-benchmark --report proof.html
    retrieve tune my-index tuned
    retrieve query tuned/index "how do I rotate the log files?"
    """
    from retrieval.tuning import TuningSettings, tune

    check_outputs([report], [index, benchmark, *also])
    with _stages() as tell:
        result = tune(
            index,
            benchmark,
            out,
            settings=TuningSettings(**chosen(options, TuningSettings)),
            model=options["model"],
            reranker_from=options["reranker_from"],
            also=also,
            split=options["split"],
            layout=options["layout"],
            progress=tell,
        )
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False, allow_nan=False))
    else:
        click.echo("\n".join(_table(result.proofs)))
    _say(result)
    if report is not None:
        _write_pages(result, report)


@contextmanager
def _stages() -> Iterator[Callable[[str, float | None], None]]:
    """Say on stderr what is being done, once each; with a bar and the time left where stderr is a terminal."""
    from retrieval.console import counting, say

    told: list[str] = []
    with ExitStack() as bar:
        show: list[Callable[[int, int], None]] = []

        def tell(stage: str, share: float | None) -> None:
            if stage not in told[-1:]:
                bar.close()  # each stage has a bar of its own: the time left is guessed from its own pace
                show.clear()
                told.append(stage)
                say(stage)
            if share is not None:
                if not show:
                    show.append(bar.enter_context(counting("in all of this step")))
                show[0](round(1000 * share), 1000)

        yield tell


def _table(proofs: Sequence[Proof]) -> Iterator[str]:
    """Yield the lines of the proof: a row for each benchmark and metric."""
    head = ("", "metric", "old", "new", "difference", "95 % interval", "raw p", "raw p (t)", "wins-ties-losses")
    rows = [head]
    for proof in proofs:
        name = f"{proof.what}: {proof.evaluation.title}{'' if proof.held_out else ' (also)'}"
        for row in proof.evaluation.comparisons:
            rows.append(
                (
                    name,
                    row.metric,
                    f"{row.baseline_mean:.4f}",
                    f"{row.system_mean:.4f}",
                    f"{row.difference:+.4f}",
                    f"{row.low:+.4f} to {row.high:+.4f}",
                    f"{row.p_randomization:.2g}",
                    f"{row.p_student:.2g}",
                    f"{row.wins}-{row.ties}-{row.losses}",
                )
            )
            name = ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for line in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


_FEW = 50  # held-out queries that prove only large differences


def _say(result: TuningReport) -> None:
    from retrieval.console import say

    counts = ", ".join(
        f"{result.queries[name]:,} for {name} ({where})" for name, where in sorted(result.splits.items())
    )
    say(f"queries: {counts}; {result.queries['dropped']:,} left out, their text is among the others")
    for notice in result.notices:
        say(f"note: {notice}")
    if (made := result.structure) is not None:
        say(f"{many(made.parts, 'part')} of {many(made.documents, 'document')}")
        for state, reasons in (("without a query", made.no_query), ("left out", made.left_out)):
            for reason, count in reasons.items():
                say(f"  {count:,} {state} ({reason})")
    for what, kept in result.kept.items():
        proof = next(proof for proof in result.proofs if proof.what == what and proof.held_out)
        row = proof.decisive
        found = f"{row.metric} {row.difference:+.4f} (p {row.p_randomization:.2g})"
        if kept:
            say(f"the new {what} is {'better' if proof.better else 'kept, though not proven better'}: {found}")
        else:
            say(f"the new {what} is not proven better and was not kept: {found}; go on with what you have")
        if row.queries < _FEW:
            few = many(row.queries, "held-out query proves", "held-out queries prove")
            say(f"note: {few} little; judge more, some hundreds are usual")
    say(f"{result.seconds:.0f} s; {'written to' if any(result.kept.values()) else 'report.json is in'} {result.out}")
    if result.kept.get("encoder"):
        say(f"next: retrieve query {result.out}/index QUERY")
    if result.kept.get("reranker"):
        say(f"next: --reranker {result.out}/reranker")


def _write_pages(result: TuningReport, path: str) -> None:
    """Write a page for the proof on held-out queries; where there are two, one each."""
    from pathlib import Path

    from retrieval.console import say
    from retrieval.eval.report import html_report
    from retrieval.files import atomic_write

    held_out = [proof for proof in result.proofs if proof.held_out]
    for proof in held_out:
        own = Path(path)
        if len(held_out) > 1:
            own = own.with_name(f"{own.stem}-{proof.what}{own.suffix}")
        with atomic_write(own) as stream:
            stream.write(html_report(proof.evaluation).encode())
        say(f"report written to {own}")


COMMANDS: tuple[click.Command, ...] = (tune_command,)

"""How much keywords count beside vectors in an index: tune-fusion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from retrieval.commands.options import DEVICE

if TYPE_CHECKING:
    from retrieval.tuned_fusion import LearntFusion


@click.command("tune-fusion")
@click.argument("index")
@click.option(
    "--benchmark", required=True, help="Judged queries of INDEX's documents, as `retrieve evaluate` has them."
)
@click.option("--split", default="dev", show_default=True, help="Of the benchmark: the queries to learn from.")
@click.option("--layout", default="auto", show_default=True, help="Of the benchmark, where it is not recognised.")
@click.option(
    "--keep",
    type=click.Choice(["better", "always"]),
    default="better",
    show_default=True,
    help="Store a weight if its ndcg@10 is higher with p < 0.05, or always.",
)
@click.option("--model", help="Encoder, where the index's own moved.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
@DEVICE
def tune_fusion_command(
    index: str, benchmark: str, split: str, layout: str, keep: str, as_json: bool, **options: Any
) -> None:
    """Learn from judged queries how much keywords count beside vectors in hybrid searches of INDEX.

    Weights are tried on four fifths of the queries and judged on the last fifth, in turn. Where that is better than
    the weight that INDEX has, and not by chance, the weight that is best on all queries is stored in it.

    \b
    retrieve tune-fusion my-index --benchmark my-benchmark --split dev
    retrieve evaluate --index my-index --benchmark my-benchmark --split test
    """
    from retrieval.console import counting, say
    from retrieval.eval.benchmark import Benchmark
    from retrieval.retriever import Retriever
    from retrieval.tuned_fusion import tune_fusion

    judged = Benchmark.load(benchmark, split, layout=layout)
    retriever = Retriever.open(index, mode="hybrid", **options)
    with counting("queries") as show:
        found = tune_fusion(retriever, judged, always=keep == "always", progress=show)
    if as_json:
        click.echo(json.dumps(found.to_dict(), ensure_ascii=False, allow_nan=False))
    else:
        click.echo("\n".join(_table(found)))
    for notice in found.evaluation.notices:
        say(f"note: {notice}")
    say(_outcome(found))
    if judged.card.split == "test":
        say("note: figures on these queries are no test any more: the weight was chosen by them")


def _outcome(found: LearntFusion) -> str:
    """Say what was found, and what was stored."""
    old, new, row = found.before.weight, found.learnt.weight, found.decisive
    gain = f"by cross-validation in {found.folds} folds, ndcg@10 {row.difference:+.4f} (p {row.p_randomization:.2g})"
    if found.kept:
        unproven = "" if found.better else ", though it is not proven better"
        return f"the weight of keywords is {new:g} from now on, it was {old:g}{unproven}: {gain}"
    if new == old:
        return f"the weight of keywords stays {old:g}: no other is better on these queries"
    return (
        f"the weight of keywords stays {old:g}: {new:g}, the best on all queries, is not proven better; {gain}; "
        "--keep always stores it"
    )


def _table(found: LearntFusion) -> Iterator[str]:
    """Yield the lines of what was compared: each system against the index as it was."""
    weights = {"now": f"{found.before.weight:g}", "dense": "0", "lexical": "1", "tuned": "of other folds"}
    rows = [("", "weight", "ndcg@10", "difference", "95 % interval", "raw p", "wins-ties-losses")]
    tests = {row.system: row for row in found.evaluation.comparisons}
    for system in found.evaluation.systems:
        mean = f"{next(iter(system.scores.means().values())):.4f}"
        if (row := tests.get(system.name)) is None:
            rows.append((system.name, weights[system.name], mean, "", "", "", ""))
        else:
            rows.append(
                (
                    system.name,
                    weights[system.name],
                    mean,
                    f"{row.difference:+.4f}",
                    f"{row.low:+.4f} to {row.high:+.4f}",
                    f"{row.p_randomization:.2g}",
                    f"{row.wins}-{row.ties}-{row.losses}",
                )
            )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for line in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


COMMANDS: tuple[click.Command, ...] = (tune_fusion_command,)

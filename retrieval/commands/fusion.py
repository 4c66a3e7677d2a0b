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
@click.option("--model", help="Encoder, where the index's own moved.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
@DEVICE
def tune_fusion_command(index: str, benchmark: str, split: str, layout: str, as_json: bool, **options: Any) -> None:
    """Learn from judged queries how much keywords count beside vectors in hybrid searches of INDEX.

    Weights are tried on four fifths of the queries and judged on the last fifth, in turn. Where that gains anything
    over the weight that INDEX has, the weight that is best on all queries is stored in it.

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
        found = tune_fusion(retriever, judged, progress=show)
    if as_json:
        click.echo(json.dumps(found.to_dict(), ensure_ascii=False, allow_nan=False))
    else:
        click.echo("\n".join(_table(found)))
    for notice in found.evaluation.notices:
        say(f"note: {notice}")
    old, new = found.before.weight, found.learnt.weight
    gain = f"by cross-validation in {found.folds} folds, ndcg@10 {found.gain:+.4f}"
    if found.kept:
        say(f"the weight of keywords is {new:g} from now on, it was {old:g}: {gain}")
    elif new == old:
        say(f"the weight of keywords stays {old:g}: no other is better on these queries")
    else:
        say(f"the weight of keywords stays {old:g}: learning it gains nothing ({gain}; best on all queries: {new:g})")


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

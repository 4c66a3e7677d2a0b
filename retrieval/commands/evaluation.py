"""Measuring: evaluate, compare, make-benchmark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval.commands.options import DEVICE, together

if TYPE_CHECKING:
    from retrieval.eval.evaluation import Evaluation

_METRICS = together(
    click.option(
        "-m",
        "--metric",
        "metrics",
        multiple=True,
        help="ndcg@10, mrr@10, recall@100, map, precision@5, hit_rate@1, r-precision, bpref, ndcg_burges@10 ...; in "
        "any common spelling, several with commas or repeated. [default: ndcg@10, mrr@10, recall@100]",
    ),
    click.option(
        "--relevance-level",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="The smallest grade that is relevant; a metric may have its own: mrr@10-l2.",
    ),
    click.option(
        "--ignore-identical-ids/--keep-identical-ids",
        default=None,
        help="Leave out hits whose id is their query's. [default: keep them, unless a profile says otherwise]",
    ),
)
_REPORTS = together(
    click.option(
        "--format",
        "form",
        type=click.Choice(["table", "markdown", "json"]),
        default="table",
        show_default=True,
        help="Of what is printed on stdout.",
    ),
    click.option("--json", "form", flag_value="json", help="The same as --format json."),
    click.option("--report", type=click.Path(), help="Write a page of HTML with tables and plots to this file."),
)


@click.command("evaluate")
@click.argument("qrels", required=False)
@click.argument("run", required=False)
@_METRICS
@click.option("--by-query", is_flag=True, help="Print the values of every query, too.")
@click.option("--index", help="Ask this index instead of reading a RUN.")
@click.option(
    "--benchmark",
    help="Queries and judgements for --index: a folder (BEIR, CoIR, CodeSearchNet, CoSQA, CodeXGLUE, MBPP, HumanEval), "
    "an ir_datasets id or a hub name.",
)
@click.option("--split", help="Of the benchmark.  [default: test, or the only one]")
@click.option(
    "--layout", default="auto", show_default=True, help="Of the benchmark's files, where it is not recognised."
)
@click.option("--queries", type=click.Path(), help="Queries for --index with QRELS, instead of --benchmark.")
@click.option("--profile", help="Rules of published numbers: csn-999, codexglue, coir, mteb or trec.")
@click.option("-k", "--k", type=click.IntRange(min=1), help="Hits for each query; default: what the metrics need.")
@click.option("--model", help="Encoder, where the index's own moved.")
@click.option("--reranker", help="Cross-encoder (folder or hub name): its order is compared with the first stage's.")
@click.option("--rerank-depth", type=click.IntRange(min=1), default=100, show_default=True, help="Hits it re-orders.")
@click.option("--output-run", type=click.Path(), help="Write the run of --index (the re-ordered one) to this file.")
@click.option("--run-tag", default="retrieve", show_default=True, help="Its last column.")
@_REPORTS
@DEVICE
def evaluate_command(qrels: str | None, run: str | None, index: str | None, form: str, **options: Any) -> None:
    """Score a RUN against judgements (QRELS), or an index on a benchmark, both stages side by side.

    Runs: TREC, MS MARCO TSV, JSONL, Parquet, JSON. Judgements: TREC, BEIR TSV, JSONL, Parquet, JSON.

    \b
    retrieve evaluate qrels.txt my.run -m ndcg@10 -m mrr@10
    retrieve evaluate --index my-index --benchmark my-benchmark --split test
    retrieve evaluate --index my-index --benchmark my-benchmark --reranker ./my-reranker --report report.html
    retrieve evaluate qrels.tsv --index my-index --queries queries.jsonl
    """
    if index is None:
        if qrels is None or run is None:
            raise click.UsageError("give QRELS and RUN, or --index with --benchmark (or with QRELS and --queries)")
        for name in ("benchmark", "split", "queries", "profile", "k", "model", "reranker", "output_run"):
            if options[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --index")
        evaluation = _of_run(qrels, run, options)
    else:
        if run is not None or (options["benchmark"] is None) == (qrels is None or options["queries"] is None):
            raise click.UsageError("--index takes either --benchmark, or QRELS and --queries; and no RUN")
        evaluation = _of_index(qrels, index, options)
    _print(evaluation, form, options["report"], brief=index is None, by_query=options["by_query"])


def _of_run(qrels: str, run: str, options: Mapping[str, Any]) -> Evaluation:
    from retrieval.eval.evaluation import evaluate_runs
    from retrieval.qrels import read_qrels
    from retrieval.runs import read_run

    title = f"{Path(run).name} on {Path(qrels).name}"
    return evaluate_runs(read_qrels(qrels), {run: read_run(run)}, title=title, **_scoring(options))


def _scoring(options: Mapping[str, Any]) -> dict[str, Any]:
    from retrieval.eval.metrics import DEFAULT_METRICS

    return {
        "metrics": options["metrics"] or DEFAULT_METRICS,
        "relevance_level": options["relevance_level"],
        "ignore_identical_ids": bool(options["ignore_identical_ids"]),
    }


def _of_index(qrels: str | None, index: str, options: Mapping[str, Any]) -> Evaluation:
    from retrieval.console import counting
    from retrieval.eval.benchmark import Benchmark
    from retrieval.eval.evaluation import evaluate_retriever
    from retrieval.retriever import Retriever

    if qrels is None:
        benchmark = Benchmark.load(options["benchmark"], options["split"], layout=options["layout"])
    else:
        benchmark = Benchmark.from_files(options["queries"], qrels)
    retriever = Retriever.open(
        index, **{name: options[name] for name in ("model", "reranker", "device", "dtype", "trust_remote_code")}
    )
    with counting("queries") as show:
        evaluation = evaluate_retriever(
            retriever,
            benchmark,
            options["metrics"] or None,
            progress=show,
            **{
                name: options[name]
                for name in ("profile", "k", "rerank_depth", "relevance_level", "ignore_identical_ids")
            },
        )
    if options["output_run"] is not None:
        _write_run(options["output_run"], evaluation.systems[-1].run, options["run_tag"])
    return evaluation


def _write_run(path: str, run: Mapping[str, Mapping[str, float]], tag: str) -> None:
    from retrieval.console import say
    from retrieval.ranking import ranked
    from retrieval.runs import write_run

    write_run(path, {query_id: ranked(hits) for query_id, hits in run.items()}, tag)
    say(f"{len(run):,} queries, {sum(map(len, run.values())):,} hits, written to {path}")


@click.command("compare")
@click.argument("qrels")
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@_METRICS
@click.option("--all-pairs", is_flag=True, help="Compare every two runs, not only each with the first.")
@_REPORTS
def compare_command(qrels: str, runs: Sequence[str], form: str, report: str | None, **options: Any) -> None:
    """Compare RUNs with the first of them: paired tests, intervals, queries won and lost.

    Two-sided Student's t and randomisation tests, corrected by Holm's method for all rows that are printed.

    \b
    retrieve compare qrels.txt old.run new.run
    retrieve compare qrels.txt bm25.run dense.run fused.run -m ndcg@10 --all-pairs --report compared.html
    """
    from retrieval.eval.evaluation import evaluate_runs
    from retrieval.qrels import read_qrels
    from retrieval.runs import read_run

    if len(runs) < 2:
        raise click.UsageError("give at least two runs; `retrieve evaluate` scores one")
    named = dict(zip(_names(runs), runs, strict=True))
    evaluation = evaluate_runs(
        read_qrels(qrels),
        {name: read_run(path) for name, path in named.items()},
        all_pairs=options["all_pairs"],
        title=f"{len(runs)} runs on {Path(qrels).name}",
        **_scoring(options),
    )
    _print(evaluation, form, report)


def _names(runs: Sequence[str]) -> list[str]:
    """Call runs by their files' names, where these differ."""
    names = [Path(run).name for run in runs]
    names = names if len(set(names)) == len(names) else list(runs)
    if len(set(names)) < len(names):
        raise click.UsageError("a run is given twice")
    return names


@click.command("make-benchmark")
@click.argument("source")
@click.argument("out")
@click.option("--split", help="Of a SOURCE that is a benchmark already.  [default: test, or the only one]")
@click.option("--layout", default="auto", show_default=True, help="source, for a source tree; or a benchmark's.")
@click.option("--name", help="On the identity card.  [default: the source's]")
@click.option("--licence", default="", help="On the identity card of a source tree.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
def make_benchmark_command(source: str, out: str, as_json: bool, **options: Any) -> None:
    """Make a benchmark of your own code: OUT, a BEIR folder with queries, functions and an identity card.

    SOURCE is a source tree (Python for now): what a function's documentation says becomes a query, the function without
    it the document to find. Files are split into train, dev and test. Or SOURCE is a benchmark in another layout (see
    `retrieve evaluate --help`), which becomes a BEIR folder that `build-index` reads.

    \b
    retrieve make-benchmark path/to/repository my-benchmark
    retrieve build-index my-benchmark my-index
    retrieve evaluate --index my-index --benchmark my-benchmark
    """
    from retrieval.console import print_facts, say
    from retrieval.eval.benchmark import Benchmark, layout_of
    from retrieval.eval.mining import make_benchmark

    layout, folder = options["layout"], Path(source)
    if layout != "source" and (layout != "auto" or not folder.is_dir() or layout_of(folder) is not None):
        card = Benchmark.load(source, options["split"], layout=layout).save(out)
        say(f"{out}: {card.queries:,} queries, {card.documents or 0:,} documents of {card.name}, split {card.split}")
        if as_json:
            click.echo(json.dumps(card.to_dict(), ensure_ascii=False))
        return
    report = make_benchmark(source, out, name=options["name"] or "", licence=options["licence"])
    print_facts(report.to_dict(), as_json=as_json)
    say(f"{out}: build an index of it, then `retrieve evaluate --index INDEX --benchmark {out}`")


def _print(
    evaluation: Evaluation, form: str, report: str | None, *, brief: bool = False, by_query: bool = False
) -> None:
    from retrieval.console import say
    from retrieval.eval.report import html_report, markdown_report, text_report
    from retrieval.files import atomic_write

    if report is not None:
        with atomic_write(report) as stream:
            stream.write(html_report(evaluation).encode())
    for notice in evaluation.notices if form == "table" else ():
        say(f"note: {notice}")
    if form == "json":
        click.echo(json.dumps(evaluation.to_dict(), ensure_ascii=False, allow_nan=False))
        return
    if form == "markdown":
        click.echo(markdown_report(evaluation), nl=False)
    elif brief:
        click.echo("\n".join(f"{name}\t{value:.4f}" for name, value in evaluation.systems[0].scores.means().items()))
    else:
        click.echo(text_report(evaluation), nl=False)
    if by_query:
        for system in evaluation.systems:
            for name in system.scores.metrics:
                click.echo("\n".join(f"{q}\t{name}\t{v:.4f}" for q, v in system.scores.by_query(name).items()))
    if report is not None:
        say(f"report written to {report}")


COMMANDS: tuple[click.Command, ...] = (evaluate_command, compare_command, make_benchmark_command)

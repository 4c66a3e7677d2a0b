"""Measuring: evaluate, compare, make-benchmark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval.commands.options import (
    DEVICE,
    MODE,
    check_outputs,
    open_retriever,
    reranker_options,
    set_by_user,
    standard_stream,
    together,
)
from retrieval.counts import many

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
        help="The smallest grade that is relevant, for all metrics but nDCG, which goes by grades; a metric may have "
        "its own: mrr@10-l2.",
    ),
    click.option(
        "--profile",
        help="Rules of published numbers: csn-999 (MRR among 999 distractors), codexglue (MRR over all documents), "
        "coir and mteb (nDCG@10 and more), trec (trec_eval's set).  [default: the benchmark's own, if no -m]",
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
@click.option("--split", help="Split of the benchmark.  [default: test, or the only one]")
@click.option("--layout", default="auto", show_default=True, help="Layout of the benchmark, if not recognised.")
@click.option("--queries", type=click.Path(), help="Queries for --index with QRELS, instead of --benchmark.")
@click.option("-k", "--k", type=click.IntRange(min=1), help="Hits for each query; default: what the metrics need.")
@MODE
@click.option("--model", help="Encoder, where the index's own moved.")
@reranker_options("none")  # what is measured is what was asked for
@click.option("--output-run", type=click.Path(), help="Write the run of --index, re-ordered if there is a reranker.")
@click.option("--run-tag", default="retrieve", show_default=True, help="Last column of that run.")
@_REPORTS
@DEVICE
def evaluate_command(qrels: str | None, run: str | None, index: str | None, form: str, **options: Any) -> None:
    """Score a RUN against judgements (QRELS), or an index on a benchmark, both stages side by side.

    Runs: TREC, MS MARCO TSV, JSONL, Parquet, JSON, or - for standard input. Judgements: TREC, BEIR TSV, JSONL, Parquet,
    JSON. A finished run is printed as lines of metric and value, or as a page with --format markdown or --report.

    \b
    retrieve evaluate qrels.txt my.run -m ndcg@10 -m mrr@10
    retrieve evaluate --index my-index --benchmark my-benchmark --split test
    retrieve evaluate --index my-index --benchmark my-benchmark --reranker ./my-reranker --report report.html
    retrieve evaluate qrels.tsv --index my-index --queries queries.jsonl
    """
    from retrieval.runs import check_target

    sources = {"QRELS": qrels, "RUN": run, "--index": index} | {f"--{n}": options[n] for n in ("benchmark", "queries")}
    mode = tuple(name for name, value in sources.items() if value is not None)
    if mode not in _MODES:
        raise click.UsageError(
            f"give {'; or '.join(' and '.join(names) for names in _MODES)}; not {' and '.join(mode)}"
        )
    unused = set_by_user(*_MODES[mode])
    if unused:
        raise click.UsageError(f"{unused[0]} does nothing with {' and '.join(mode)}")
    if options["by_query"] and form != "table":
        raise click.UsageError(f"--by-query prints lines, which --format {form} has no place for (json has all values)")
    if options["output_run"] is not None:
        check_target(options["output_run"], options["run_tag"])
    check_outputs(
        [options["report"], options["output_run"]], [qrels, run, options["queries"], index, options["benchmark"]]
    )
    if index is None:
        paged = form != "table" or options["report"] is not None
        evaluation = _of_run(str(qrels), str(run), options, curve=paged)
    else:
        evaluation = _of_index(qrels, index, options)
    _print(evaluation, form, options["report"], brief=index is None, by_query=options["by_query"])
    if options["output_run"] is not None:  # last: what was found is printed, should an id not fit a run
        _write_run(evaluation.systems[-1].run, options["output_run"], options["run_tag"])


# What can be evaluated, and the options that then do nothing.
_MODES: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("QRELS", "RUN"): (
        *("split", "layout", "k", "mode", "model", "reranker", "rerank_depth", "output_run", "run_tag"),
        *("device", "dtype", "runtime", "trust_remote_code"),
    ),
    ("--index", "--benchmark"): (),
    ("QRELS", "--index", "--queries"): ("split", "layout"),
}


def _of_run(qrels: str, run: str, options: Mapping[str, Any], *, curve: bool) -> Evaluation:
    from retrieval.eval.evaluation import evaluate_runs
    from retrieval.qrels import read_qrels
    from retrieval.runs import read_run

    title = f"{Path(run).name} on {Path(qrels).name}"
    found = read_run(standard_stream(run, "/dev/stdin"))
    facts = {"judgements": qrels, "run": run}
    runs = {Path(run).name: found}
    return evaluate_runs(read_qrels(qrels), runs, title=title, facts=facts, curve=curve, **_rules(options))


def _rules(options: Mapping[str, Any]) -> dict[str, Any]:
    names = ("profile", "relevance_level", "ignore_identical_ids")
    return {"metrics": options["metrics"] or None, **{name: options[name] for name in names}}


def _of_index(qrels: str | None, index: str, options: Mapping[str, Any]) -> Evaluation:
    from retrieval.console import counting
    from retrieval.eval.benchmark import Benchmark
    from retrieval.eval.stages import evaluate_retriever

    if qrels is None:
        benchmark = Benchmark.load(options["benchmark"], options["split"], layout=options["layout"])
    else:
        benchmark = Benchmark.from_files(options["queries"], qrels)
    retriever = open_retriever(index, options)
    with counting("queries") as show:
        return evaluate_retriever(
            retriever,
            benchmark,
            k=options["k"],
            rerank_depth=options["rerank_depth"],
            progress=show,
            **_rules(options),
        )


def _write_run(run: Mapping[str, Mapping[str, float]], path: str, tag: str) -> None:
    from retrieval.console import say
    from retrieval.runs import write_run

    write_run(standard_stream(path, "/dev/stdout"), run, tag)
    say(f"{many(len(run), 'query')}, {many(sum(map(len, run.values())), 'hit')}, written to {path}")


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
    check_outputs([report], [qrels, *runs])
    named = dict(zip(_names(runs), runs, strict=True))
    evaluation = evaluate_runs(
        read_qrels(qrels),
        {name: read_run(standard_stream(path, "/dev/stdin")) for name, path in named.items()},
        all_pairs=options["all_pairs"],
        title=f"{len(runs)} runs on {Path(qrels).name}",
        facts={"judgements": qrels, "runs": ", ".join(runs)},
        **_rules(options),
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
@click.option("--layout", help="Convert SOURCE, a benchmark in this layout (or auto), instead of mining it.")
@click.option("--split", help="Split of that benchmark.  [default: test, or the only one]")
@click.option("--name", help="Name of a mined benchmark on its card.  [default: the folder's]")
@click.option("--licence", help="Licence of the code, for the card of a mined benchmark.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
def make_benchmark_command(source: str, out: str, as_json: bool, **options: Any) -> None:
    """Make a benchmark of your own code: OUT, a BEIR folder with queries, functions and an identity card.

    SOURCE is a source tree, in any of twelve languages: what a function's documentation says becomes a query, the
    function without it the document to find. Files are split into train, dev and test.

    With --layout, SOURCE is a benchmark already (a folder, an ir_datasets id or a hub name, see `retrieve evaluate
    --help`), and becomes a BEIR folder that `build-index` reads.

    \b
    retrieve make-benchmark path/to/repository my-benchmark
    retrieve build-index my-benchmark my-index
    retrieve evaluate --index my-index --benchmark my-benchmark
    """
    from retrieval.console import mined, say

    unused = set_by_user("split") if options["layout"] is None else set_by_user("name", "licence")
    if unused:
        raise click.UsageError(
            f"{unused[0]} does nothing {'without' if options['layout'] is None else 'with'} --layout"
        )
    report: Any
    if options["layout"] is None:
        from retrieval.eval.mining import make_benchmark

        report = make_benchmark(source, out, name=options["name"] or "", licence=options["licence"] or "")
        mined(report)
    else:
        from retrieval.eval.benchmark import Benchmark

        report = Benchmark.load(source, options["split"], layout=options["layout"]).save(out)
        queries, documents = many(report.queries, "query"), many(report.documents, "document")
        say(f"{queries} and {documents} of {report.name}, {report.split}")
    say(f"written to {out}; next: retrieve build-index {out} INDEX")
    say(f"                 and: retrieve evaluate --index INDEX --benchmark {out}")
    if options["layout"] is None:
        split = "" if report.pairs.get("train") else " --split test"
        say(f"                 and: retrieve tune INDEX TUNED --benchmark {out}{split}")
    if as_json:
        click.echo(json.dumps(report.to_dict()))


def _print(
    evaluation: Evaluation, form: str, report: str | None, *, brief: bool = False, by_query: bool = False
) -> None:
    from retrieval.console import say
    from retrieval.eval.report import html_report, markdown_report
    from retrieval.files import atomic_write

    if form == "json":
        click.echo(json.dumps(evaluation.to_dict(), allow_nan=False))
    elif form == "markdown":
        click.echo(markdown_report(evaluation), nl=False)
    else:
        _print_lines(evaluation, brief=brief, by_query=by_query)
    if report is not None:
        with atomic_write(report) as stream:
            stream.write(html_report(evaluation).encode())
        say(f"report written to {report}")


_FACT = 160  # characters of a fact on a terminal


def _print_lines(evaluation: Evaluation, *, brief: bool, by_query: bool) -> None:
    from retrieval.console import say
    from retrieval.eval.report import text_report

    for name, value in () if brief else evaluation.facts.items():
        say(f"{name}: {value if len(value) <= _FACT else value[:_FACT] + ' ... (in --report)'}")
    for notice in evaluation.notices:
        say(f"note: {notice}")
    if brief:
        click.echo("\n".join(f"{name}\t{value:.4f}" for name, value in evaluation.systems[0].scores.means().items()))
    else:
        click.echo(text_report(evaluation), nl=False)
    if by_query:
        for system in evaluation.systems:
            for name in system.scores.metrics:
                click.echo("\n".join(f"{q}\t{name}\t{v:.4f}" for q, v in system.scores.by_query(name).items()))


COMMANDS: tuple[click.Command, ...] = (evaluate_command, compare_command, make_benchmark_command)

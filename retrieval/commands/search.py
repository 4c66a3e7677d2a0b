"""Asking an index, and making runs of runs: query, rerank, fuse."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from retrieval.commands.options import (
    DEVICE,
    FIELDS,
    MODE,
    check_outputs,
    chosen,
    document_settings,
    is_index,
    open_retriever,
    reranker_options,
    set_by_user,
    standard_stream,
)
from retrieval.counts import many
from retrieval.fusion import METHODS, NORMALIZATIONS

if TYPE_CHECKING:
    from retrieval.ranking import Hit, Span

_MANY = 20  # queries whose re-ordering takes a CPU about a minute


@click.command("query")
@click.argument("index")
@click.argument("text", required=False)
@click.option("--queries", type=click.Path(), help="File of queries (JSONL or TSV with ids), or - for standard input.")
@click.option(
    "--vectors", type=click.Path(), help="File of query vectors instead of texts: .npy, or .parquet with ids."
)
@click.option("-k", "--k", type=click.IntRange(min=1), default=10, show_default=True, help="Hits for each query.")
@MODE
@click.option(
    "--group",
    type=click.Choice(["document", "passage"]),
    default="document",
    show_default=True,
    help="Show each document once, by its best passage, or each passage as a hit of its own.",
)
@click.option(
    "--where",
    help="Search only documents that pass this predicate on their columns, in SQL: lang = 'python' and year >= 2020. "
    "`retrieve info` lists the columns; of one kept as JSON text, ask meta->>'$.field'.",
)
@click.option(
    "--highlight",
    is_flag=True,
    help="Show each hit's best sentence, or lines of code, in bold; in JSON as highlight, an object like those of "
    "spans. All start and end in JSON are characters of the document's text, not of the hit's.",
)
@click.option("--model", help="Encoder, where the index's own moved, or for an index of ready-made vectors.")
@reranker_options("auto")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl", "trec"]),
    help="Default: table, and trec with --output.",
)
@click.option("--json", "form", flag_value="jsonl", help="The same as --format jsonl: a line of JSON for each query.")
@click.option("--output", type=click.Path(), help="Write to this file instead of stdout.")
@click.option("--run-tag", default="retrieve", show_default=True, help="Last column of a TREC run.")
@DEVICE
def query_command(index: str, text: str | None, queries: str | None, vectors: str | None, **options: Any) -> None:
    """Search INDEX for TEXT, for each line of standard input (-), or for a file of queries.

    Where INDEX holds English text or code, the first hits are re-ordered by the reranker that comes with the
    installation. On a CPU that takes seconds a query: --reranker none leaves it out, --rerank-depth 20 takes a fifth.

    \b
    retrieve query my-index "parse a JSON file"
    retrieve query my-index "parse a JSON file" --reranker none
    retrieve query my-index ENOENT --mode lexical --highlight
    retrieve query my-index "parse a JSON file" --where "year >= 2020 and lang in ('go', 'rust')"
    retrieve query my-index --queries queries.jsonl -k 100 --format trec --output my.run
    echo "parse a JSON file" | retrieve query my-index - --json
    """
    from retrieval.console import waiting
    from retrieval.vectorfile import read_query_vectors

    if text is not None and is_index(text) and not is_index(index):
        raise click.UsageError(f"INDEX comes first: retrieve query {shlex.join([text, index])}")
    if sum(given is not None for given in (text, queries, vectors)) != 1:
        raise click.UsageError("give one of TEXT, --queries and --vectors")
    if options["group"] == "passage" and _form(options) == "trec":
        raise click.UsageError("a TREC run has no place for passages: --group passage needs --format table or jsonl")
    if options["highlight"] and (vectors is not None or _form(options) == "trec"):
        raise click.UsageError("--highlight needs texts as queries, and --format table or jsonl")
    check_outputs([options["output"]], [index, queries, vectors])
    shown: Mapping[str, str | None]
    asked: Any  # texts or vectors
    if vectors is None:
        shown = _queries(text, queries)
        asked = list(shown.values())
    else:
        names, asked = read_query_vectors(vectors)
        shown = dict.fromkeys(names)
        if options["reranker"] == "auto":  # a reranker reads texts
            options["reranker"] = "none"
    with waiting("loading models, searching"):
        retriever = open_retriever(index, options)
        _say_slow(retriever, len(shown), options)
        how = {name: options[name] for name in ("where", "group", "rerank_depth")}
        found = retriever.search_many(asked, options["k"], names=list(shown), **how)
        spans = None
        if options["highlight"]:
            spans = {name: retriever.highlight(asked[at], found[at]) for at, name in enumerate(shown)}
    named = dict(zip(shown, found, strict=True))
    _write_hits(
        shown,
        named,
        spans,
        alone=text not in (None, "-"),
        form=_form(options),
        output=options["output"],
        tag=options["run_tag"],
    )
    _say_cut(retriever)


def _form(options: Mapping[str, Any]) -> str:
    return options["form"] or ("trec" if options["output"] else "table")


def _queries(text: str | None, queries: str | None) -> dict[str, str]:
    from retrieval.chunking import is_blank
    from retrieval.queries import read_lines, read_queries

    if queries is not None:
        return read_queries(sys.stdin.buffer if queries == "-" else queries)
    lines = read_lines(sys.stdin.buffer) if text == "-" else [text or ""]
    if all(is_blank(line) for line in lines):
        raise click.UsageError("no queries: nothing but blanks was given")
    return {str(number): line for number, line in enumerate(lines, 1)}


def _write_hits(
    queries: Mapping[str, str | None],
    found: Mapping[str, Sequence[Hit]],
    spans: Mapping[str, Sequence[Span | None]] | None,
    *,
    alone: bool,
    form: str,
    output: str | None,
    tag: str,
) -> None:
    from retrieval.console import hits_json, hits_table, print_lines, say
    from retrieval.files import atomic_write
    from retrieval.runs import write_run

    bold = spans or dict.fromkeys(found)
    text = io.BytesIO()
    if form == "trec":
        write_run(text, {name: {hit.doc_id: hit.score for hit in hits} for name, hits in found.items()}, tag)
        lines = text.getvalue().decode().splitlines()
    elif form == "jsonl":
        lines = [hits_json(name, queries[name], hits, spans=bold[name]) for name, hits in found.items()]
    else:
        lines = [
            line
            for name, hits in found.items()
            for line in hits_table(queries[name] or "", hits, name=None if alone else name, spans=bold[name])
        ]
        lines = lines if output is None else [click.unstyle(line) for line in lines]
    if output is None:
        print_lines(lines)
        return
    with atomic_write(output) as stream:
        stream.writelines(line.encode() + b"\n" for line in lines)
    say(f"{many(len(found), 'query')}, {many(sum(map(len, found.values())), 'hit')}, written to {output} ({form})")


def _say_slow(retriever: Any, queries: int, options: Mapping[str, Any]) -> None:
    """Say what takes the time of many queries, where nobody asked for it."""
    from retrieval.console import say

    if retriever.reranker is not None and queries >= _MANY and not set_by_user("reranker"):
        hits = many(max(options["k"], options["rerank_depth"]), "hit")
        say(f"note: the first {hits} of {queries:,} queries are re-ordered; --reranker none is much quicker")


def _say_cut(retriever: Any) -> None:
    """Counts of what the reranker had to cut; the encoder warns of cut queries itself."""
    from retrieval.console import say

    counts = getattr(retriever.reranker, "notices", {})
    for name in ("pairs_windowed", "queries_truncated"):
        if counts.get(name):
            say(f"{name.replace('_', ' ')} for the reranker: {counts[name]:,}")


@click.command("rerank")
@click.argument("corpus")
@click.argument("run")
@click.option("--queries", required=True, type=click.Path(), help="The run's queries (JSONL or TSV with ids).")
@click.option(
    "--reranker",
    help="Cross-encoder: a folder or a hub name.  [default: the one that comes with the installation, for English "
    "text and code]",
)
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Documents re-ordered for each query; those below follow in their old order, with scores made up for it.",
)
@click.option("--output", required=True, type=click.Path(), help="The new run.")
@click.option("--run-tag", default="retrieve", show_default=True, help="Last column of the new run.")
@click.option("--max-length", type=click.IntRange(min=1), help="Tokens of a pair; default: the model's limit.")
@click.option("--batch-tokens", type=click.IntRange(min=1), help="Tokens of a batch; default: by device.")
@FIELDS
@DEVICE
def rerank_command(corpus: str, run: str, queries: str, output: str, **options: Any) -> None:
    """Re-order RUN, made by any system, with a cross-encoder; texts come from CORPUS, or an index.

    \b
    retrieve rerank corpus.jsonl bm25.run --queries queries.tsv --output reranked.run
    retrieve rerank my-index bm25.run --queries queries.tsv --reranker ./my-reranker --output reranked.run
    """
    from retrieval.console import say, waiting
    from retrieval.mixture import MIXTURE_FILE
    from retrieval.models import DEFAULT_RERANKER, resolve
    from retrieval.queries import read_queries
    from retrieval.reranker import CrossEncoder, RerankSettings
    from retrieval.reranking import passages_of, rerank_run, within_depth
    from retrieval.runs import check_target, read_run, write_run

    check_target(output, options["run_tag"])
    check_outputs([output], [run, queries, corpus])
    unnamed = options["reranker"] in (None, "auto")
    model = DEFAULT_RERANKER if unnamed else options["reranker"]
    resolve(model)  # what cannot be found is told before a corpus is read
    first, texts_of_queries = read_run(run), read_queries(queries)
    documents = document_settings(options)
    texts = passages_of(within_depth(first, options["depth"]), corpus, documents=documents)
    if unnamed:
        _say_misfit(list(texts.values()))
    reranker = CrossEncoder.load(model, settings=RerankSettings(**chosen(options, RerankSettings)))
    if reranker.mixture.weight:
        shares = f"{reranker.mixture.weight:.2f} first stage and {1 - reranker.mixture.weight:.2f} reranker"
        say(f"note: scores mix {shares}, as the model's {MIXTURE_FILE} says")
    with waiting("re-ordering"):
        results = rerank_run(first, texts_of_queries, texts, reranker, depth=options["depth"])
    write_run(output, results, options["run_tag"])
    cut = {name: count for name, count in reranker.notices.items() if count}
    counts = ", ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in sorted(cut.items()))
    say(f"{many(len(results), 'query')} re-ordered, written to {output}{'; ' if counts else ''}{counts}")


def _say_misfit(texts: Sequence[Sequence[str]]) -> None:
    """Say where the default reranker cannot do well; a sample of the documents (each its passages) tells."""
    from retrieval.console import say
    from retrieval.shipped import misfit

    if reason := misfit(passages[0] for passages in texts[:: max(1, len(texts) // 200)]):
        say(f"note: {reason}; the default reranker reads English and code, --reranker MODEL names another")


@click.command("fuse")
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="rrf",
    show_default=True,
    help="Reciprocal ranks, or a weighted sum of normalised scores.",
)
@click.option("--weights", help="One for each run, with commas: 1,0.5.  [default: equal]")
@click.option(
    "--normalization",
    type=click.Choice(NORMALIZATIONS),
    default="min-max",
    show_default=True,
    help="How wsum makes scores comparable, query by query.",
)
@click.option(
    "--rrf-k",
    type=click.IntRange(min=0),
    default=60,
    show_default=True,
    help="For rrf: the larger, the less the first ranks count.",
)
@click.option("-k", "--k", type=click.IntRange(min=1), help="Documents kept for each query; default: all.")
@click.option("--output", required=True, type=click.Path(), help="The new run, or - for standard output.")
@click.option("--run-tag", default="fused", show_default=True, help="Last column of the new run.")
def fuse_command(runs: Sequence[str], weights: str | None, output: str, run_tag: str, **options: Any) -> None:
    """Merge RUNs of the same queries, such as a lexical and a dense one, into one.

    \b
    retrieve fuse bm25.run dense.run --output fused.run
    retrieve fuse bm25.run dense.run --method wsum --normalization zmuv --weights 0.2,1 --output fused.run
    """
    from retrieval.console import say
    from retrieval.fusion import fuse
    from retrieval.runs import read_run, write_run

    unused = set_by_user("normalization" if options["method"] == "rrf" else "rrf_k")
    if unused:
        raise click.UsageError(f"{unused[0]} does nothing with --method {options['method']}")
    if len(runs) < 2:
        raise click.UsageError("give at least two runs")
    try:
        shares = None if weights is None else [float(weight) for weight in weights.split(",")]
    except ValueError:
        raise click.UsageError(f"--weights {weights}: expected numbers with commas between") from None
    check_outputs([output], runs)
    fused = fuse([read_run(standard_stream(run, "/dev/stdin")) for run in runs], weights=shares, **options)
    write_run(standard_stream(output, "/dev/stdout"), fused, run_tag)
    hits = many(sum(map(len, fused.values())), "hit")
    say(f"{len(runs)} runs fused: {many(len(fused), 'query')}, {hits}, written to {output}")


COMMANDS = (query_command, rerank_command, fuse_command)

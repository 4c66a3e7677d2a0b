"""The command line. Every command parses, calls one function of the library and prints."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retrieval import __version__
from retrieval.errors import ConfigError, RetrievalError

if TYPE_CHECKING:
    from retrieval.ranking import Hit

F = TypeVar("F", bound=Callable[..., Any])


class _Failure(click.ClickException):
    """An error on purpose: one line on stderr, exit 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {' '.join(self.message.split())}", err=True)


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RetrievalError as error:
            raise _Failure(str(error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read us has left; click knows what to do
                raise
            where = f"{error.filename}: " if error.filename else ""
            raise _Failure(f"{where}{(error.strerror or str(error)).lower()}") from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="retrieve")
@click.option("--config", type=click.Path(), help="TOML file of options, a table for each command: [build-index] ...")
@click.option("-v", "--verbose", is_flag=True, help="Say more on stderr.")
@click.pass_context
def main(ctx: click.Context, config: str | None, verbose: bool) -> None:
    """Search your own documents: build an index, query it, rerank.

    \b
    retrieve build-index docs/ my-index
    retrieve query my-index "how do I rotate the log files?"
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr, force=True)
    logging.getLogger("retrieval").setLevel(logging.INFO if verbose else logging.WARNING)
    if config is not None:
        ctx.default_map = _defaults(config)


def _defaults(path: str) -> dict[str, dict[str, Any]]:
    from retrieval.config import read_settings

    settings = read_settings(path)
    for command, options in settings.items():
        if command not in main.commands:
            raise ConfigError(f"{path}: there is no command {command!r}; there are {', '.join(main.commands)}")
        named = {name.lstrip("-").replace("-", "_"): option for option in _settable(command) for name in option.opts}
        for name in options.keys() - named.keys():
            raise ConfigError(f"{path}: `retrieve {command}` has no option --{name.replace('_', '-')}")
        for name, value in options.items():
            if isinstance(value, list | dict):
                raise ConfigError(f"{path}: {name} of [{command}] is {value!r}; expected one value")
        settings[command] = {str(named[name].name): value for name, value in options.items()}
    return settings


def _settable(command: str) -> list[click.Option]:
    """A command's options that a settings file may hold: not those that are another's short form."""
    options = [option for option in main.commands[command].params if isinstance(option, click.Option)]
    return [option for option in options if not isinstance(option.flag_value, str)]


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_DEVICE = _options(
    click.option("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps.", show_default=True),
    click.option("--dtype", default="auto", help="auto, float32, bfloat16 or float16.", show_default=True),
    click.option("--trust-remote-code", is_flag=True, help="Run Python code that comes with the model."),
)
_FIELDS = _options(
    click.option("--id-field", help="Field that holds the id; default: _id, id, doc_id, docid or docno."),
    click.option("--title-field", help="Field that holds the title; default: title."),
    click.option("--text-field", help="Field that holds the text; default: text, contents, document_text or body."),
    click.option("--encoding", default="utf-8", help="Of JSONL, CSV and TSV.", show_default=True),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether a table's first row names its columns; default: look.",
    ),
)
_READING = _options(
    _FIELDS,
    click.option(
        "--on-bad",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="A bad or duplicate record stops the command, or is counted and left out.",
    ),
    click.option("--rejects", type=click.Path(), help="Write what was left out to this file, with reasons."),
)


def _document_settings(options: Mapping[str, Any]) -> Any:
    from retrieval.documents import DocumentSettings

    return DocumentSettings(
        **{f.name: options[f.name] for f in dataclasses.fields(DocumentSettings) if f.name in options}
    )


@main.command("build-index")
@click.argument("corpus", nargs=-1, required=True)
@click.argument("index")
@click.option("--model", help="Encoder: a folder or a hub name.  [default: the embedded all-MiniLM-L6-v2]")
@click.option(
    "--index-type",
    default="auto",
    show_default=True,
    help="auto (exact up to 200,000 passages, HNSW above), flat, hnsw, ivf, ivfpq or a FAISS factory string.",
)
@click.option(
    "--vector-dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="Of the vectors on disk.",
)
@click.option(
    "--on-long",
    type=click.Choice(["window", "truncate", "error"]),
    default="window",
    show_default=True,
    help="A document longer than the encoder's limit is windowed, cut, or an error.",
)
@click.option("--overlap", type=click.IntRange(min=0), help="Tokens that neighbouring windows share.")
@click.option("--pooling", help="Of a plain Hugging Face encoder: mean, cls, max, lasttoken ...")
@click.option("--query-prompt", help="Put before every query; default: the model's own.")
@click.option("--document-prompt", help="Put before every document; default: the model's own.")
@click.option("--max-length", type=click.IntRange(min=1), help="Tokens of a passage; default: the model's limit.")
@click.option("--batch-tokens", type=click.IntRange(min=1), help="Tokens of a batch; default: by device.")
@click.option("--vectors", type=click.Path(), help="Ready-made vectors (.npy in corpus order, or .parquet with ids).")
@click.option("--vector-field", help="The vectors' column in a Parquet file.")
@click.option(
    "--metric",
    type=click.Choice(["cosine", "dot"]),
    default="cosine",
    show_default=True,
    help="Of ready-made vectors.",
)
@_READING
@_DEVICE
@click.option("--overwrite", is_flag=True, help="Replace an index that is there, once the new one is complete.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
def build_index_command(corpus: Sequence[str], index: str, as_json: bool, **options: Any) -> None:
    """Build INDEX, a new folder, over one or more CORPUS sources.

    A CORPUS is a JSONL, CSV, TSV, Parquet or Arrow file, a BEIR folder, any other folder (one document a text file),
    a text file, or - for JSONL on standard input. A build that was stopped goes on when the command is repeated.

    \b
    retrieve build-index docs/ my-index
    retrieve build-index corpus.jsonl.gz my-index --model ./my-encoder --index-type hnsw
    retrieve build-index ids.tsv my-index --vectors embeddings.npy
    """
    from retrieval.console import progress
    from retrieval.encoder import EncoderSettings
    from retrieval.indexing import IndexSettings, build_index

    with progress() as show:
        result = build_index(
            corpus,
            index,
            model=options["model"],
            vectors=options["vectors"],
            documents=_document_settings(options),
            encoding=EncoderSettings(**_chosen(options, EncoderSettings)),
            settings=IndexSettings(**_chosen(options, IndexSettings)),
            overwrite=options["overwrite"],
            rejects=options["rejects"],
            progress=show,
        )
    _report("indexed", result, as_json)


def _chosen(options: Mapping[str, Any], settings: Any) -> dict[str, Any]:
    return {f.name: options[f.name] for f in dataclasses.fields(settings) if f.name in options}


def _report(done: str, result: Any, as_json: bool) -> None:
    from retrieval.console import report

    report(done, result)
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False))


@main.command("add")
@click.argument("corpus", nargs=-1, required=True)
@click.argument("index")
@click.option("--upsert", is_flag=True, help="Replace documents whose id is in the index already.")
@click.option("--model", help="Where the index's model lies now, if it moved.")
@click.option("--batch-tokens", type=click.IntRange(min=1), help="Tokens of a batch; default: by device.")
@click.option("--vectors", type=click.Path(), help="Ready-made vectors, for an index made of such.")
@click.option("--vector-field", help="The vectors' column in a Parquet file.")
@_READING
@_DEVICE
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
def add_command(corpus: Sequence[str], index: str, as_json: bool, **options: Any) -> None:
    """Add the documents of CORPUS sources to INDEX, encoded as its others were.

    \b
    retrieve add new.jsonl my-index
    retrieve add changed.jsonl my-index --upsert
    """
    from retrieval.console import progress
    from retrieval.encoder import EncoderSettings
    from retrieval.indexing import add_documents

    named = ("model", "upsert", "vectors", "vector_field", "rejects")
    with progress() as show:
        result = add_documents(
            corpus,
            index,
            documents=_document_settings(options),
            encoding=EncoderSettings(**_chosen(options, EncoderSettings)),
            progress=show,
            **{name: options[name] for name in named},
        )
    _report("added", result, as_json)


@main.command("delete")
@click.argument("index")
@click.argument("doc_ids", nargs=-1, metavar="[ID]...")
@click.option("--ids", type=click.Path(), help="File with one id a line, or - for standard input.")
def delete_command(index: str, doc_ids: Sequence[str], ids: str | None) -> None:
    """Delete documents from INDEX by id. Ids that are not there are counted.

    \b
    retrieve delete my-index guide/old.md guide/older.md
    retrieve delete my-index --ids gone.txt
    """
    from retrieval.console import say
    from retrieval.indexing import delete_documents
    from retrieval.runs import read_lines

    if not doc_ids and ids is None:
        raise click.UsageError("give ids, or --ids FILE")
    listed = [] if ids is None else read_lines(sys.stdin.buffer if ids == "-" else ids)
    result = delete_documents([*doc_ids, *listed], index)
    shown = ", ".join(repr(doc_id) for doc_id in result.unknown[:5])
    unknown = f"; {len(result.unknown)} ids are not in the index: {shown}" if result.unknown else ""
    say(f"deleted {result.deleted} documents{unknown}; the index holds {result.index_documents:,} documents")


@main.command("compact")
@click.argument("index")
def compact_command(index: str) -> None:
    """Rewrite INDEX without deleted documents, as one segment. Answers stay the same.

    \b
    retrieve compact my-index
    """
    from retrieval.console import say
    from retrieval.indexing import compact_index

    manifest = compact_index(index)
    say(f"compacted: {manifest.documents:,} documents, {manifest.passages:,} passages in one segment")


@main.command("info")
@click.argument("index")
@click.option("--verify", is_flag=True, help="Read and hash every file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info_command(index: str, verify: bool, as_json: bool) -> None:
    """Say what INDEX holds, how it was made, and (--verify) whether it is sound.

    \b
    retrieve info my-index --verify
    """
    from retrieval.console import print_facts
    from retrieval.index.reader import Index

    print_facts(Index.open(index, verify=verify).facts(verified=verify), as_json=as_json)


@main.command("query")
@click.argument("index")
@click.argument("text", required=False)
@click.option("--queries", type=click.Path(), help="File of queries (JSONL or TSV with ids), or - for standard input.")
@click.option(
    "--vectors", type=click.Path(), help="File of query vectors instead of texts: .npy, or .parquet with ids."
)
@click.option("-k", "--k", type=click.IntRange(min=1), default=10, show_default=True, help="Hits for each query.")
@click.option("--model", help="Encoder, where the index's own moved, or for an index of ready-made vectors.")
@click.option(
    "--reranker",
    default="none",
    show_default=True,
    help="Cross-encoder (folder or hub name) that re-orders the hits.",
)
@click.option(
    "--rerank-depth",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Hits it re-orders, at least k.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl", "trec"]),
    help="Default: table, and trec with --output.",
)
@click.option("--json", "form", flag_value="jsonl", help="The same as --format jsonl: a line of JSON for each query.")
@click.option("--output", type=click.Path(), help="Write to this file instead of stdout.")
@click.option("--run-tag", default="retrieve", show_default=True, help="Last column of a TREC run.")
@_DEVICE
def query_command(index: str, text: str | None, queries: str | None, vectors: str | None, **options: Any) -> None:
    """Search INDEX for TEXT, for each line of standard input (-), or for a file of queries.

    \b
    retrieve query my-index "parse a JSON file"
    retrieve query my-index --queries queries.jsonl -k 100 --format trec --output my.run
    echo "parse a JSON file" | retrieve query my-index - --json
    """
    from retrieval.retriever import Retriever
    from retrieval.vectorfile import read_query_vectors

    if sum(given is not None for given in (text, queries, vectors)) != 1:
        raise click.UsageError("give one of TEXT, --queries and --vectors")
    shown: Mapping[str, str | None]
    asked: Any  # texts or vectors
    if vectors is None:
        shown = _queries(text, queries)
        asked = list(shown.values())
    else:
        names, asked = read_query_vectors(vectors)
        shown = dict.fromkeys(names)
    reranker = None if options["reranker"] == "none" else options["reranker"]
    retriever = Retriever.open(
        index,
        model=options["model"],
        reranker=reranker,
        **{name: options[name] for name in ("device", "dtype", "trust_remote_code")},
    )
    found = retriever.search_many(asked, options["k"], rerank_depth=options["rerank_depth"], names=list(shown))
    _write_hits(shown, dict(zip(shown, found, strict=True)), alone=text not in (None, "-"), **options)
    _say_cut(retriever)


def _queries(text: str | None, queries: str | None) -> dict[str, str]:
    from retrieval.chunking import is_blank
    from retrieval.runs import read_lines, read_queries

    if queries is not None:
        return read_queries(sys.stdin.buffer if queries == "-" else queries)
    lines = read_lines(sys.stdin.buffer) if text == "-" else [text or ""]
    if all(is_blank(line) for line in lines):
        raise click.UsageError("no queries: nothing but blanks was given")
    return {str(number): line for number, line in enumerate(lines, 1)}


def _write_hits(
    queries: Mapping[str, str | None],
    found: Mapping[str, Sequence[Hit]],
    *,
    alone: bool,
    form: str | None,
    output: str | None,
    run_tag: str,
    **_: Any,
) -> None:
    from retrieval.console import hits_json, hits_table, print_lines, say
    from retrieval.files import atomic_write
    from retrieval.runs import write_run

    form = form or ("trec" if output else "table")
    text = io.BytesIO()
    if form == "trec":
        write_run(text, {name: [(hit.doc_id, hit.score) for hit in hits] for name, hits in found.items()}, run_tag)
        lines = text.getvalue().decode().splitlines()
    elif form == "jsonl":
        lines = [hits_json(name, queries[name], hits) for name, hits in found.items()]
    else:
        lines = [
            line
            for name, hits in found.items()
            for line in hits_table(queries[name] or "", hits, name=None if alone else name)
        ]
        lines = lines if output is None else [click.unstyle(line) for line in lines]
    if output is None:
        print_lines(lines)
        return
    with atomic_write(output) as stream:
        stream.writelines(line.encode() + b"\n" for line in lines)
    say(f"{len(found):,} queries, {sum(map(len, found.values())):,} hits, written to {output} ({form})")


def _say_cut(retriever: Any) -> None:
    """Counts of what the reranker had to cut; the encoder warns of cut queries itself."""
    from retrieval.console import say

    counts = getattr(retriever.reranker, "notices", {})
    for name in ("pairs_windowed", "queries_truncated"):
        if counts.get(name):
            say(f"{counts[name]:,} {name.replace('_', ' ')} for the reranker")


@main.command("rerank")
@click.argument("corpus")
@click.argument("run")
@click.option("--queries", required=True, type=click.Path(), help="The run's queries (JSONL or TSV with ids).")
@click.option("--reranker", required=True, help="Cross-encoder: a folder or a hub name.")
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Documents re-ordered for each query; those below follow in their old order, with scores made up for it.",
)
@click.option("--output", required=True, type=click.Path(), help="The new run.")
@click.option("--run-tag", default="retrieve", show_default=True, help="Its last column.")
@click.option("--max-length", type=click.IntRange(min=1), help="Tokens of a pair; default: the model's limit.")
@click.option("--batch-tokens", type=click.IntRange(min=1), help="Tokens of a batch; default: by device.")
@_FIELDS
@_DEVICE
def rerank_command(corpus: str, run: str, queries: str, output: str, **options: Any) -> None:
    """Re-order RUN, made by any system, with a cross-encoder; texts come from CORPUS, or an index.

    \b
    retrieve rerank corpus.jsonl bm25.run --queries queries.tsv --reranker ./my-reranker --output reranked.run
    """
    from retrieval.console import say
    from retrieval.reranker import CrossEncoder, RerankSettings
    from retrieval.reranking import passages_of, rerank_run, within_depth
    from retrieval.runs import read_queries, read_run, write_run

    if Path(output).exists() and Path(output).samefile(run):
        raise ConfigError(f"--output {output} is the run itself; give another file")
    first, texts_of_queries = read_run(run), read_queries(queries)
    documents = _document_settings(options)
    texts = passages_of(within_depth(first, options["depth"]), corpus, documents=documents)
    reranker = CrossEncoder.load(options["reranker"], settings=RerankSettings(**_chosen(options, RerankSettings)))
    results = rerank_run(first, texts_of_queries, texts, reranker, depth=options["depth"])
    write_run(output, results, options["run_tag"])
    cut = {name: count for name, count in reranker.notices.items() if count}
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(cut.items()))
    say(f"{len(results):,} queries re-ordered, written to {output}{'; ' if counts else ''}{counts}")


@main.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(as_json: bool) -> None:
    """Look at the installation: versions, FAISS and GPU, threads, the default encoder, the network setting.

    \b
    retrieve doctor
    """
    from retrieval.console import print_facts
    from retrieval.doctor import examine

    facts = examine()
    print_facts(facts, as_json=as_json)
    if facts["problems"] != "none":
        raise ConfigError(f"the installation has problems: {facts['problems']}")

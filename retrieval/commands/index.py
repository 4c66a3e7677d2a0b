"""Making and changing an index: build-index, add, delete, compact, optimize, info."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval.commands.options import DEVICE, READING, chosen, document_settings, is_index, set_by_user
from retrieval.counts import many

if TYPE_CHECKING:
    from retrieval.indexing import SyncPreview

WORKERS = click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that encode, each with a model of its own: on several GPUs one for each, or on many cores.",
)


def _bytes(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Return bytes: 2GB is 2 * 10**9 and 2GiB is 2 * 2**30."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(?:([kmgt])(i?)b?|b)?", value.strip().lower())
    if found is None:
        raise click.BadParameter(f"{value!r} is no size; expected a number of bytes, or one like 500MB or 1.5GiB")
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(unit or " "))


def approximate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say what an approximate index has to be."""
    for option in (
        click.option(
            "--memory-limit",
            metavar="SIZE",
            callback=_bytes,
            help="Memory that searching may hold beyond the mapped vectors, like 2GB; auto chooses by it.",
        ),
        click.option(
            "--min-recall",
            type=click.FloatRange(0, 1, min_open=True),
            default=0.99,
            show_default=True,
            help="Share of the 10 best passages that an approximate index has to find, measured on some of its own.",
        ),
        click.option(
            "--index-type",
            default="auto",
            show_default=True,
            help="auto (exact up to 200,000 passages of 384 numbers, above that the first of hnsw, ivfsq and ivfpq "
            "to reach --min-recall within --memory-limit), flat, hnsw, ivf, ivfsq, ivfpq or a FAISS factory string.",
        ),
    ):
        command = option(command)
    return command


@click.command("build-index")
@click.argument("corpus", nargs=-1, required=True)
@click.argument("index")
@click.option("--model", help="Encoder: a folder or a hub name.  [default: the embedded all-MiniLM-L6-v2]")
@approximate_options
@click.option(
    "--vector-dtype",
    type=click.Choice(["auto", "float32", "float16"]),
    default="auto",
    show_default=True,
    help="Of the vectors on disk; auto: float32 for up to 100,000 passages, float16 above.",
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
@click.option("--dim", type=click.IntRange(min=1), help="Of a Matryoshka model: keep the first numbers of each vector.")
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
@click.option(
    "--lexical/--no-lexical",
    default=True,
    show_default=True,
    help="Make a part for keyword search (BM25), which hybrid search, the default of a query, needs.",
)
@READING
@DEVICE
@WORKERS
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

    _check_order(corpus, index)
    with progress() as show:
        result = build_index(
            corpus,
            index,
            model=options["model"],
            vectors=options["vectors"],
            documents=document_settings(options),
            encoding=EncoderSettings(**chosen(options, EncoderSettings)),
            settings=IndexSettings(**chosen(options, IndexSettings)),
            workers=options["workers"],
            overwrite=options["overwrite"],
            rejects=options["rejects"],
            progress=show,
        )
    _report("indexed", result, as_json)


def _check_order(corpus: Sequence[str], index: str) -> None:
    """Refuse an index that stands first, where the sources belong."""
    first, last = Path(corpus[0]), Path(index)
    taken = last.is_file() or (last.is_dir() and any(last.iterdir()))
    if taken and not is_index(index) and (is_index(corpus[0]) or not (first.exists() or corpus[0] == "-")):
        right = shlex.join([*corpus[1:], index, corpus[0]])
        what = "an index" if is_index(corpus[0]) else "not there"
        context = click.get_current_context()
        options = [one.name for one in context.command.params if isinstance(one, click.Option) and one.name]
        command = f"{context.info_name} [OPTIONS]" if set_by_user(*options) else context.info_name
        raise click.UsageError(f"{first} is {what}, {last} is no index; INDEX comes last: retrieve {command} {right}")


def _report(done: str, result: Any, as_json: bool) -> None:
    from retrieval.console import report

    report(done, result)
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False))


@click.command("add")
@click.argument("corpus", nargs=-1, required=True)
@click.argument("index")
@click.option("--upsert", is_flag=True, help="Replace documents whose id is in the index already.")
@click.option(
    "--sync",
    is_flag=True,
    help="CORPUS is the folders that INDEX was made of: encode files that are new or changed, delete documents whose "
    "files are gone.",
)
@click.option("--dry-run", is_flag=True, help="With --sync: list what would be done, and do nothing.")
@click.option(
    "--max-deletes",
    type=click.IntRange(min=0),
    help="With --sync: documents that may be deleted.  [default: half of those from folders; 0 where CORPUS is other "
    "folders than INDEX was made of]",
)
@click.option("--model", help="Where the index's model lies now, if it moved.")
@click.option("--batch-tokens", type=click.IntRange(min=1), help="Tokens of a batch; default: by device.")
@click.option("--vectors", type=click.Path(), help="Ready-made vectors, for an index made of such.")
@click.option("--vector-field", help="The vectors' column in a Parquet file.")
@READING
@DEVICE
@WORKERS
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
def add_command(corpus: Sequence[str], index: str, as_json: bool, **options: Any) -> None:
    """Add the documents of CORPUS sources to INDEX, encoded as its others were.

    \b
    retrieve add new.jsonl my-index
    retrieve add changed.jsonl my-index --upsert
    retrieve add --sync path/to/repository my-index
    retrieve add --sync --dry-run path/to/repository my-index
    """
    from retrieval.console import progress, say
    from retrieval.encoder import EncoderSettings
    from retrieval.indexing import add_documents, preview_sync, sync_documents

    _check_order(corpus, index)
    sync = options["sync"]
    if not sync and (others := set_by_user("dry_run", "max_deletes")):
        raise click.UsageError(f"only with --sync: {', '.join(others)}")
    if sync and (others := set_by_user("upsert", "vectors", "vector_field")):
        raise click.UsageError(f"--sync compares folders of files: it does not go with {', '.join(others)}")
    if options["dry_run"]:
        found = preview_sync(corpus, index, documents=document_settings(options), max_deletes=options["max_deletes"])
        _preview(found, as_json)
        return
    named = ["model", "workers", "rejects", *(["max_deletes"] if sync else ["upsert", "vectors", "vector_field"])]
    with progress() as show:
        result = (sync_documents if sync else add_documents)(
            corpus,
            index,
            documents=document_settings(options),
            encoding=EncoderSettings(**chosen(options, EncoderSettings)),
            progress=show,
            **{name: options[name] for name in named},
        )
    if sync:
        counts = {"unchanged": result.unchanged, "changed": result.replaced, "vanished": result.vanished}
        counts["new"] = result.documents - result.replaced
        say(f"files: {', '.join(f'{count:,} {what}' for what, count in counts.items())}")
    _report("encoded" if sync else "added", result, as_json)


def _preview(found: SyncPreview, as_json: bool) -> None:
    from retrieval.console import say
    from retrieval.lines import shown

    if as_json:
        click.echo(json.dumps(asdict(found), ensure_ascii=False))
    kinds = {"new": found.new, "changed": found.changed, "vanished": found.vanished}
    for kind, doc_ids in kinds.items():
        for doc_id in () if as_json else doc_ids:
            click.echo(f"{kind} {shown(doc_id, len(doc_id))}")
    say(f"files: {found.unchanged:,} unchanged, {', '.join(f'{len(ids):,} {kind}' for kind, ids in kinds.items())}")
    for notice in found.notices:
        say(notice)
    if found.refusal:
        say(f"this would be refused: {found.refusal}")
    say("nothing was changed")


@click.command("delete")
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
    from retrieval.queries import read_lines

    if not doc_ids and ids is None:
        raise click.UsageError("give ids, or --ids FILE")
    listed = [] if ids is None else read_lines(sys.stdin.buffer if ids == "-" else ids)
    result = delete_documents([*doc_ids, *listed], index)
    shown = ", ".join(repr(doc_id) for doc_id in result.unknown[:5])
    unknown = f"; {many(len(result.unknown), 'id')} not in the index: {shown}" if result.unknown else ""
    left = many(result.index_documents, "document")
    say(f"deleted {many(result.deleted, 'document')}{unknown}; the index holds {left}")


@click.command("compact")
@click.argument("index")
def compact_command(index: str) -> None:
    """Rewrite INDEX without deleted documents, as one segment. Answers stay the same.

    \b
    retrieve compact my-index
    """
    from retrieval.console import say
    from retrieval.indexing import compact_index

    manifest = compact_index(index)
    say(f"compacted: {many(manifest.documents, 'document')}, {many(manifest.passages, 'passage')} in one segment")


@click.command("optimize")
@click.argument("index")
@approximate_options
def optimize_command(index: str, index_type: str, min_recall: float, memory_limit: int | None) -> None:
    """Change the index type of INDEX; nothing is encoded again.

    \b
    retrieve optimize my-index --index-type hnsw
    retrieve optimize my-index --min-recall .95 --memory-limit 500MB
    """
    from retrieval.console import say
    from retrieval.indexing import optimize_index

    manifest = optimize_index(index, index_type=index_type, min_recall=min_recall, memory_limit=memory_limit)
    if made := manifest.approximate:
        settings = ", ".join(f"{name} {value}" for name, value in made.parameters.items())
        say(f"search: {made.factory}, {settings}; recall@10 {made.recall_at_10:.3f}, {made.file.bytes:,} bytes")
    else:
        say("search: exact")


@click.command("info")
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
    from retrieval.shipped import choose_reranker

    found = Index.open(index, verify=verify)
    choice = choose_reranker(found)
    used = choice.reranker or (f"none: {choice.reason}" if choice.reason else "none comes with the installation")
    print_facts({**found.facts(verified=verify), "default reranker": used}, as_json=as_json)


COMMANDS = (build_index_command, add_command, delete_command, compact_command, optimize_command, info_command)

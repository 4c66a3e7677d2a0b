"""Options that several commands share, and the settings they make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retrieval.errors import ConfigError
from retrieval.index.manifest import MANIFEST

if TYPE_CHECKING:
    from retrieval.retriever import Retriever

_BENCHMARK_FILES = ("benchmark", "corpus", "queries")  # of BEIR's layout and ours; beside them users keep their own

F = TypeVar("F", bound=Callable[..., Any])


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Make one decorator of several options."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


DEVICE = together(
    click.option("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps.", show_default=True),
    click.option("--dtype", default="auto", help="auto, float32, bfloat16, float16 or int8.", show_default=True),
    click.option(
        "--runtime",
        default="auto",
        help="auto, torch or openvino; auto takes OpenVINO on a CPU for models of 16 MiB and more.",
        show_default=True,
    ),
    click.option("--trust-remote-code", is_flag=True, help="Run Python code that comes with the model."),
)
FIELDS = together(
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
READING = together(
    FIELDS,
    click.option(
        "--include",
        multiple=True,
        metavar="PATTERN",
        help="Of a folder: read what matches, though it is ignored, hidden, vendored or generated; as in .gitignore.",
    ),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="Of a folder: leave out what matches."),
    click.option(
        "--on-bad",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="A bad or duplicate record stops the command, or is counted and left out.",
    ),
    click.option("--rejects", type=click.Path(), help="Write what was left out to this file, with reasons."),
)


def reranker_options(default: str) -> Callable[[F], F]:
    """Make the options of the second stage, with the reranker that is taken where none is named."""
    return together(
        click.option(
            "--reranker",
            default=default,
            show_default=True,
            help="Cross-encoder (folder or hub name) that re-orders the hits. auto: the one that comes with the "
            "installation, where the index holds English text or code; none: hits stay as they were found, at once.",
        ),
        click.option(
            "--rerank-depth",
            type=click.IntRange(min=1),
            default=100,
            show_default=True,
            help="How many hits it re-orders; on a CPU a hundred take seconds, ten a tenth of that.",
        ),
    )


MODE = click.option(
    "--mode",
    type=click.Choice(["auto", "dense", "lexical", "hybrid"]),  # retriever.MODES, which is slow to import
    default="auto",
    show_default=True,
    help="How hits are found: by vectors (dense), by keywords (lexical, BM25), or by both; auto is hybrid where the "
    "index has a keyword part.",
)


def open_retriever(index: str, options: Mapping[str, Any]) -> Retriever:
    """Open an index with the models that a command's options name; say so if there is no reranker that fits."""
    from retrieval.console import say
    from retrieval.retriever import Retriever
    from retrieval.shipped import AUTO, choose_reranker

    wanted = options["reranker"]
    retriever = Retriever.open(
        index,
        model=options["model"],
        reranker=None if wanted == "none" else wanted,
        mode=options["mode"],
        **{name: options[name] for name in ("device", "dtype", "runtime", "trust_remote_code")},
    )
    if wanted == AUTO and retriever.reranker is None and (reason := choose_reranker(retriever.index).reason):
        say(
            f"note: hits are not re-ordered, as the default reranker reads English and code, and {reason}; "
            "--reranker MODEL names another, --reranker none ends this note"
        )
    return retriever


def document_settings(options: Mapping[str, Any]) -> Any:
    """Make the settings of reading documents from a command's options."""
    from retrieval.documents import DocumentSettings

    return DocumentSettings(**chosen(options, DocumentSettings))


def chosen(options: Mapping[str, Any], settings: Any) -> dict[str, Any]:
    """Pick the options that a settings dataclass has."""
    return {f.name: options[f.name] for f in dataclasses.fields(settings) if f.name in options}


def is_index(path: str) -> bool:
    """Whether a place is an index; what cannot be looked at is none."""
    try:
        return (Path(path) / MANIFEST).is_file()
    except OSError:  # a text may be too long for a name
        return False


def standard_stream(path: str, device: str) -> str:
    """Let `-` stand for a standard stream: `/dev/stdin` or `/dev/stdout`."""
    return device if path == "-" else path


def check_outputs(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Refuse, before any work, a file to write that is one to read or part of a folder to read, or no file.

    Raises:
        ConfigError: Two names of one file, a file of an index or a benchmark that is read, a folder, or no such folder.
    """
    read = [Path(path) for path in inputs if path not in (None, "-") and Path(path).exists()]
    for output in (Path(path) for path in outputs if path not in (None, "-")):
        for path in read:
            same = output.samefile(path) if output.exists() and path.exists() else output.resolve() == path.resolve()
            if same and not output.is_char_device():
                raise ConfigError(f"{output} is read or written by this command already; give another file")
            if _is_part(output.resolve(), path.resolve()):
                raise ConfigError(f"{output} is part of {path}, which this command reads; give another file")
        if output.is_dir():
            raise ConfigError(f"{output} is a folder; give the name of a file")
        if not output.parent.is_dir():
            raise ConfigError(f"{output}: there is no folder {output.parent}")
        read.append(output)


def _is_part(output: Path, folder: Path) -> bool:
    """Whether a file lies in an index, or is one that a benchmark's folder consists of."""
    if folder not in output.parents:
        return False
    if (folder / MANIFEST).exists():
        return True
    names = output.relative_to(folder).parts
    return output.exists() and (names[0] == "qrels" or names[0].partition(".")[0] in _BENCHMARK_FILES)


def set_by_user(*names: str) -> list[str]:
    """Return those of the running command's options that the user set, also in a settings file, as `--option`."""
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    options = {p.name: p.opts[-1] for p in context.command.params}
    return [options[name] for name in names if context.get_parameter_source(name) is not default]

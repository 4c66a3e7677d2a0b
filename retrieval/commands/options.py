"""Options that several commands share, and the settings they make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

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
    click.option("--dtype", default="auto", help="auto, float32, bfloat16 or float16.", show_default=True),
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
        "--on-bad",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="A bad or duplicate record stops the command, or is counted and left out.",
    ),
    click.option("--rejects", type=click.Path(), help="Write what was left out to this file, with reasons."),
)


def document_settings(options: Mapping[str, Any]) -> Any:
    """Make the settings of reading documents from a command's options."""
    from retrieval.documents import DocumentSettings

    return DocumentSettings(**chosen(options, DocumentSettings))


def chosen(options: Mapping[str, Any], settings: Any) -> dict[str, Any]:
    """Pick the options that a settings dataclass has."""
    return {f.name: options[f.name] for f in dataclasses.fields(settings) if f.name in options}

"""Documented functions as a benchmark: the documentation is the query, the code without it is the document.

The query is cut as the official scripts cut it, since published numbers are compared; `summaries` is for new
benchmarks, and chooses what reads like a query.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from retrieval.eval.docstrings import without_docstring
from retrieval.eval.leaks import occurs
from retrieval.eval.sources import Census, Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Documented:
    """A function of CodeSearchNet's fields.

    Attributes:
        doc_id: of its code.
        query_id: of its documentation.
        text: its code without its docstring.
        query: the first paragraph of its documentation; empty without one.
        by_tokens: whether the text is the function's tokens, joined by blanks.
        leaks: whether the words of the query stand in the text all the same.
        metadata: further fields of the document.
    """

    doc_id: str
    query_id: str
    text: str
    query: str
    by_tokens: bool
    leaks: bool
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_record(
        cls, record: Record, doc_id: str, *, query_id: str = "", python: bool, keep: Iterable[str] = ()
    ) -> Documented:
        """Make a function of its record.

        Raises:
            DataError: a field is missing, or the docstring cannot be cut out and there are no tokens.
        """
        query = documentation(record)
        text, by_tokens = code_without_docstring(record, query, python=python)
        return cls(
            doc_id=doc_id,
            query_id=query_id or f"{doc_id}#query",
            text=text,
            query=query,
            by_tokens=by_tokens,
            leaks=occurs(query, text),
            metadata={name: record.fields[name] for name in keep if isinstance(record.fields.get(name), str)},
        )


def documentation(record: Record) -> str:
    """Return the query of a function: the tokens of its documentation's first paragraph, as the official scripts.

    Where there are no tokens, the first paragraph itself; empty without documentation.
    """
    if record.has("docstring_tokens"):
        return record.words("docstring_tokens").strip()
    first = re.split(r"\n\s*\n", record.text("docstring").strip(), maxsplit=1)[0]
    return " ".join(first.split())


def code_without_docstring(record: Record, query: str, *, python: bool) -> tuple[str, bool]:
    """Take the docstring out of a function's code, and say whether that took its tokens.

    Only Python's documentation lies inside the code. Where it cannot be cut out, or the query still stands in
    the code, the function's tokens are taken, which hold no docstring.

    Raises:
        DataError: a field is missing, or the docstring cannot be cut out and there are no tokens.
    """
    code = record.text("code", "function")
    tokens = record.words("code_tokens", "function_tokens") if record.has("code_tokens", "function_tokens") else ""
    if python:
        try:
            code = without_docstring(code)
        except ValueError as error:
            if not tokens:
                raise record.error(f"{error}, and there are no 'code_tokens' to take instead") from None
            return tokens, True
    if tokens and occurs(query, code) and not occurs(query, tokens):
        return tokens, True
    return code, False


@dataclass(frozen=True, slots=True)
class Judged:
    """The queries of a split, each with its one right function, and what was counted on the way."""

    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    census: Census
    counts: Counter[str]

    def notes(self, *, python: bool) -> tuple[str, ...]:
        """Say what a query and a document are, and what was found."""
        removed = "with the docstring cut out" if python else "which holds no documentation comment"
        notes = [
            "query: the documentation's first paragraph, as docstring_tokens joined by blanks (the official queries)",
            f"document: the function's code as written, {removed} (the official baselines read code_tokens)",
        ]
        told = {
            "tokens": "documents that are code_tokens joined by blanks, as no docstring could be cut out of the code",
            "leaks": "documents that hold the words of their own query, in a comment, a name or a string",
            "silent": "functions without documentation, which are in the pool without a query",
            "repeated": "queries with the text of an earlier one, of which each has one right function",
        }
        notes += [f"{what}: {self.counts[key]}" for key, what in told.items() if self.counts[key]]
        return (*notes, *self.census.notes())


def judged(functions: Iterable[Documented]) -> Judged:
    """Make queries and judgements of functions, one at a time; their code is not kept."""
    found = Judged({}, {}, Census(), Counter())
    queries: set[int] = set()
    for function in functions:
        found.census.add(function.text)
        found.counts["tokens"] += function.by_tokens
        found.counts["leaks"] += function.leaks
        if not function.query:
            found.counts["silent"] += 1
            continue
        found.counts["repeated"] += hash(function.query) in queries
        queries.add(hash(function.query))
        found.queries[function.query_id] = function.query
        found.qrels[function.query_id] = {function.doc_id: 1}
    return found

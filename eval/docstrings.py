"""The docstring of a Python function in its source text: finding it, reading it, cutting it out.

Only the header and the docstring are looked at, token by token, never the body. So code of Python 2, cut code
and code with a broken body is served too, as published records hold it. `functions` reads whole files with `ast`, which
would refuse such code.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

_LAYOUT = (tokenize.NEWLINE, tokenize.NL, tokenize.COMMENT, tokenize.INDENT)
_END = (tokenize.NEWLINE, tokenize.COMMENT, tokenize.ENDMARKER)
_NO_TEXT = re.compile("[bf]", re.IGNORECASE)  # bytes and formatted strings are no docstrings


@dataclass(frozen=True, slots=True)
class Span:
    """Where a docstring stands: characters `start` to `end` of the code, quotes included."""

    start: int
    end: int


def find_docstring(code: str, name: str = "") -> Span | None:
    """Find the docstring of a function.

    Args:
        code: the source of a function, of any indentation, or a module with functions in it.
        name: of the function; the first one without it.

    Returns:
        Its span, None where the function has no docstring, or there is no such function.

    Raises:
        ValueError: the code cannot be read up to the end of the docstring.
    """
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    try:
        found = _docstring_tokens(tokens, name)
    except (tokenize.TokenError, SyntaxError) as error:  # an IndentationError is a SyntaxError
        raise ValueError(f"its docstring cannot be found ({error.args[0]})") from None
    if not found:
        return None
    offsets = [0, *accumulate(len(line) + 1 for line in code.split("\n"))]
    (first, start), (last, end) = found[0].start, found[-1].end
    return Span(offsets[first - 1] + start, offsets[last - 1] + end)


def _docstring_tokens(tokens: Iterator[tokenize.TokenInfo], name: str) -> list[tokenize.TokenInfo]:
    """Take the tokens of the docstring, several where strings stand side by side; none where there is none."""
    for token in tokens:
        if token.type == tokenize.NAME and token.string == "def":
            called = next(tokens, token)
            if not name or called.string == name:
                break
    depth = 0
    for token in tokens:
        if token.type != tokenize.OP:
            continue
        depth += (token.string in "([{") - (token.string in ")]}")
        if token.string == ":" and not depth:
            break
    strings: list[tokenize.TokenInfo] = []
    for token in tokens:
        if token.type == tokenize.STRING and not _NO_TEXT.search(_prefix(token.string)):
            strings.append(token)
        elif strings or token.type not in _LAYOUT:
            return strings if token.type in _END or token.string == ";" else []
    return strings


def _prefix(literal: str) -> str:
    return literal[: min(literal.find(quote) for quote in "\"'" if quote in literal)]


def read_docstring(code: str, name: str = "") -> str:
    """Return the text of a function's docstring, without its indentation; empty where there is none.

    Args:
        code: as for `find_docstring`.
        name: as for `find_docstring`.

    Raises:
        ValueError: the code cannot be read up to the end of the docstring, or the docstring holds a broken escape.
    """
    span = find_docstring(code, name)
    if span is None:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown escape such as \d stays as it is
        try:
            value = ast.literal_eval(f"({code[span.start : span.end]})")
        except SyntaxError as error:
            raise ValueError(f"its docstring cannot be read ({error.msg})") from None
    return inspect.cleandoc(value)


def without_docstring(code: str, name: str = "") -> str:
    """Cut the docstring of a function out of its code; nothing else changes.

    Whole lines go where the docstring has them for itself. A function of nothing but a docstring keeps its
    header alone. Docstrings of functions within the function stay.

    Args:
        code: as for `find_docstring`.
        name: as for `find_docstring`.

    Raises:
        ValueError: the code cannot be read up to the end of the docstring.
    """
    span = find_docstring(code, name)
    if span is None:
        return code
    line = code.rfind("\n", 0, span.start) + 1
    rest = code[span.end :]
    if not code[line : span.start].strip() and (match := re.match(r"[ \t;]*\r?(?:\n|\Z)", rest)):
        return code[:line] + rest[match.end() :]
    return code[: span.start] + rest.lstrip(" \t;")

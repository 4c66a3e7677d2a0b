"""The functions of a Python file, each as its code without documentation and its documentation without code.

A language is a function from a file's text to `Function`s; those of others than Python are in `commented`. This one
works on the syntax tree: documentation is cut out of the source text by position, and what is left is parsed again
and compared with the tree without it, so that a cut is exact or the function is left out. Published records, which may
not parse and may not be left out, are for `docstrings`.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from retrieval.errors import DataError

MIN_STATEMENTS = 3  # in a function's body, those in its blocks included, documentation not
KEPT_SPECIAL = ("__init__", "__call__")  # other `__name__` methods say by their name what they do

_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_BLANK_LINES = re.compile(rb"(?:[ \t\f]*\n)*")
_TEST_NAME = re.compile(r"test(_|[A-Z]|$)")
_RULER = re.compile(r"#{4,}|#[#:\s]*(?:[^\w\s]\W*$|[-=#*~_+]{3,})")  # without a word, or starting like `---- `
_PRAGMA = re.compile(
    r"!|-\*-|(?:type|fmt|isort|mypy|pylint|pyright|flake8|ruff|yapf|cython|cspell|coding|vim?)\s*:|"
    r"(?:noqa|nosec|pragma|pyre|pyrefly|pytype|codespell|region|endregion|@\w+)\b",
    re.IGNORECASE,
)
NOTE = re.compile(  # a comment that says something else than what the function does
    r"copyright|\(c\)\s*\d|\blicen[sc]ed?\b|\bSPDX\b|all rights reserved|https?://|\berror:|\bsignature of\b|^note\b|"
    r"n't\b|\b(?:do|does|is) not\b|\bno longer\b|\bwork ?around\b|\b(?:adapted|taken|copied|borrowed) from\b",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Function:
    """A function or method of a source file.

    Attributes:
        name: Its qualified name, such as `Class.method`.
        start_line: The first line of its code in the file, decorators included, from 1.
        end_line: Its last line.
        code: Its source without documentation and without the indentation of its surroundings; empty where
            `left_out` says why.
        documentation: What documents it: the docstring, or else the comment above; empty if there is none.
        fingerprint: Equal for functions whose code differs in layout, comments and documentation only.
        left_out: Why it is no document; empty for those that are.
    """

    name: str
    start_line: int
    end_line: int
    code: str = ""
    documentation: str = ""
    fingerprint: str = ""
    left_out: str = ""


def python_functions(text: str) -> list[Function]:
    """Find the functions and methods of a Python file, also under `if`, `try` and `with`, not those in functions.

    Raises:
        DataError: The text is not Python that this interpreter can parse; says where.
    """
    source = _Source(text)
    tree = _parsed(source.text)
    return [_function(source, place) for place in _places(tree)]


@dataclass(frozen=True, slots=True)
class _Place:
    """A definition, its qualified name, and the line on which the code before it ends."""

    node: _Definition
    name: str
    after: int


class _Source:
    """A text and its bytes: the syntax tree counts columns in bytes of UTF-8, and lines at `\\n` only."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")  # as Python's own tokenizer does
        self.lines = self.text.split("\n")
        self.data = self.text.encode()
        self._starts = [0, *(match.end() for match in re.finditer(b"\n", self.data))]

    def start(self, node: ast.expr | ast.stmt) -> int:
        """The first byte of a node, for a function or class that of its first decorator."""
        decorators: Sequence[ast.expr] = getattr(node, "decorator_list", ())
        if decorators:
            return self.data.rfind(b"@", 0, self.start(decorators[0]))
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.stmt) -> int:
        """The byte after the last one of a statement."""
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def line_start(self, offset: int) -> int:
        """The first byte of the line that a byte lies on."""
        return self.data.rfind(b"\n", 0, offset) + 1

    def line_end(self, offset: int) -> int:
        """Where the line of a byte ends: at its `\\n`, or at the end of the file."""
        end = self.data.find(b"\n", offset)
        return len(self.data) if end < 0 else end

    def line_number(self, offset: int) -> int:
        """The number of a byte's line, from 1."""
        return self.data.count(b"\n", 0, offset) + 1


def _parsed(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes, `is` with a literal: not our code
            return ast.parse(text)
    except SyntaxError as error:
        raise DataError(f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise DataError(str(error) or "too deeply nested") from None


def _places(tree: ast.Module) -> list[_Place]:
    """List the functions outside of functions, in the order of the file."""
    found: list[_Place] = []
    pending: list[tuple[list[ast.stmt], str, int]] = [(tree.body, "", 0)]
    while pending:  # no recursion: a chain of `elif`s nests as deep as it is long
        body, prefix, after = pending.pop()
        for node in body:
            if isinstance(node, _Definition):
                found.append(_Place(node, prefix + node.name, after))
            else:
                inner = f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix
                pending += [(block, inner, node.lineno) for block in _blocks(node)]
            after = node.end_lineno or node.lineno
    return sorted(found, key=lambda place: (place.node.lineno, place.node.col_offset))


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    parts = [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]
    for part in (node, *parts):
        yield from (getattr(part, name) for name in ("body", "orelse", "finalbody") if getattr(part, name, None))


def _function(source: _Source, place: _Place) -> Function:
    node = place.node
    start = source.start(node)
    documentation = _docstring(node) or _comment_above(source, source.line_number(start), place.after)
    found = Function(
        name=place.name,
        start_line=source.line_number(start),
        end_line=node.end_lineno or node.lineno,
        documentation=documentation,
        left_out=_why_left_out(node, bool(documentation)),
    )
    if found.left_out:
        return found
    code = _code(source, node, start)
    fingerprint = _fingerprint(node)
    if code is None or fingerprint != _fingerprint_of(code):
        return replace(found, left_out="layout from which documentation cannot be cut exactly")
    return replace(found, code=code, fingerprint=fingerprint)


def _why_left_out(node: _Definition, documented: bool) -> str:
    """Say why a function is no document, as far as its own tree shows; empty for the others."""
    # `overload`, `typing.overload`, `name.setter`: no other kind of expression matters here
    names = [getattr(decorator, "attr", getattr(decorator, "id", "")) for decorator in node.decorator_list]
    if "overload" in names:
        return "overload: a signature without a body"
    if not documented and {"setter", "deleter"}.intersection(names):
        return "setter or deleter of a property without documentation"
    if node.name.startswith("__") and node.name.endswith("__") and node.name not in KEPT_SPECIAL:
        return "special method"
    if _TEST_NAME.match(node.name):
        return "test function"
    if sum(isinstance(inner, ast.stmt) for inner in _without_documentation(node)) - 1 < MIN_STATEMENTS:
        return f"trivial: fewer than {MIN_STATEMENTS} statements"
    return ""


def _strings(node: ast.AST) -> int:
    """Count the strings at the head of a function's or class's body: its documentation."""
    if not isinstance(node, _Documented):
        return 0
    count = 0
    for statement in node.body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
            break
        count += 1
    return count


def _docstring(node: _Definition) -> str:
    return inspect.cleandoc(ast.get_docstring(node, clean=False) or "")


def _without_documentation(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without its documentation; where nothing else was in a body, a `pass` stands."""
    pending: list[ast.AST] = [node]
    while pending:
        inner = pending.pop()
        yield inner
        children = list(ast.iter_child_nodes(inner))
        if strings := _strings(inner):
            body: list[ast.stmt] = inner.body  # type: ignore[attr-defined]
            at = children.index(body[0])
            children[at : at + strings] = [ast.Pass()] if strings == len(body) else []
        pending += children


def _fingerprint(node: ast.AST) -> str:
    """Hash a tree without documentation and positions; expressions may nest deeper than `ast.dump` can go."""
    parts: list[str] = []
    for inner in _without_documentation(node):
        parts.append(type(inner).__name__)
        strings = _strings(inner)
        for name in inner._fields:
            value = getattr(inner, name, None)
            if isinstance(value, list):
                kept = value[strings:] if name == "body" and strings else value
                kept = kept if kept or name != "body" else [ast.Pass()]
                parts += ["-" if isinstance(item, ast.AST) else repr(item) for item in kept]
                parts.append("]")
            elif isinstance(value, int) and not isinstance(value, bool):
                parts.append(hex(value))  # decimal digits have a limit
            else:
                parts.append("-" if isinstance(value, ast.AST) else repr(value))
    return sha256("\n".join(parts).encode("utf-8", "backslashreplace")).hexdigest()


def _fingerprint_of(code: str) -> str:
    """The fingerprint of the one function that a text holds; empty if it is none, or still has documentation."""
    try:
        body = _parsed(code).body
    except DataError:
        return ""
    if len(body) != 1 or any(_strings(inner) for inner in ast.walk(body[0])):
        return ""
    return _fingerprint(body[0])


def _code(source: _Source, node: _Definition, start: int) -> str | None:
    """The source lines of a function without documentation and indentation; None where its layout is too odd."""
    first = source.line_start(start)
    kept: list[bytes] = []
    at = start
    for begin, end, instead in sorted(_cuts(source, node)):
        kept += [source.data[at:begin], instead]
        at = end
    kept.append(source.data[at : source.line_end(source.end(node))])
    indent = source.data[first:start].decode()
    return _dedented(b"".join(kept).decode().rstrip(), indent.rpartition("\f")[2])


def _cuts(source: _Source, node: ast.AST) -> Iterator[tuple[int, int, bytes]]:
    """Yield what to cut out of the bytes of a file, and what to put in its place."""
    for inner in ast.walk(node):
        strings = _strings(inner)
        if not strings or not isinstance(inner, _Documented):
            continue
        start, end = source.start(inner.body[0]), source.end(inner.body[strings - 1])
        if strings == len(inner.body):
            yield start, end, b"pass"
            continue
        following = source.start(inner.body[strings])
        first, line_end = source.line_start(start), source.line_end(end)
        alone = not source.data[first:start].strip() and line_end < following
        if alone and not source.data[end:line_end].rstrip().endswith(b"\\"):
            blank = _BLANK_LINES.match(source.data, line_end + 1)
            yield first, blank.end() if blank else line_end + 1, b""
        else:  # on one line with other code: what follows takes its place
            yield start, following, b""


def _dedented(code: str, indent: str) -> str | None:
    """Take an indentation off all lines but the first, and those within strings; None where tokens cannot tell."""
    if not indent:
        return code
    fixed: set[int] = set()
    if '"""' in code or "'''" in code or "\\\n" in code:
        try:
            for token in tokenize.generate_tokens(io.StringIO(indent + code).readline):
                fixed.update(range(token.start[0], token.end[0]))  # rows from 1: all of the token's but its first
        except (tokenize.TokenError, SyntaxError):
            return None
    lines = code.split("\n")
    for row in range(1, len(lines)):
        if row not in fixed:
            lines[row] = lines[row].removeprefix(indent)  # a line that has less continues one, or is a comment
    return "\n".join(lines)


def _comment_above(source: _Source, line: int, after: int) -> str:
    """The prose of the comment lines that end right above a line; empty where they are something else.

    Rulers and pragmas are no prose; what stands above a ruler belongs to a section, not to the function. Licences,
    code, and notes to fellow programmers (why something does not work, where it comes from, links) say something else.
    """
    indent = _indent(source.lines[line - 1])
    block: list[str] = []
    for text in reversed(source.lines[after : line - 1]):
        if not text.lstrip().startswith("#") or _indent(text) != indent:
            break
        if _RULER.match(text.strip()[:200]):
            break
        words = text.strip().lstrip("#:")
        if not _PRAGMA.match(words.strip()):
            block.append(words)
    comment = textwrap.dedent("\n".join(reversed(block))).strip()
    code = sum(_is_code(line.strip()) for line in block)
    return "" if NOTE.search(comment) or _is_code(comment) or code * 2 >= len(block) else comment


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _is_code(line: str) -> bool:
    """Whether a comment, or a line of one, is a statement or the head of one: code that was commented out."""
    for text in (line, f"{line} pass"):
        try:
            body = _parsed(text).body
        except DataError:
            continue
        return any(_acts(node) for node in body)
    return False


def _acts(node: ast.stmt) -> bool:
    """Whether a statement is more than words: `words` and `Note: words` are statements too."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return not isinstance(node, ast.AnnAssign) or node.value is not None

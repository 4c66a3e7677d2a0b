"""The functions of a source file in any language with a grammar, documented by the comments above them.

What `functions` does for Python's docstrings. Documentation stands outside of a function here, so nothing has to be
cut out of its code but comments between attributes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from retrieval.errors import DataError
from retrieval.eval.functions import MIN_STATEMENTS, NOTE, Function
from retrieval.grammars import missing_grammar
from retrieval.syntax import Definition, Source, definitions, parsed

if TYPE_CHECKING:
    from tree_sitter import Node

_TEST_NAME = re.compile(r"(?:[tT]est|Benchmark|Fuzz|Example)(?:_|[A-Z]|$)")
# Blocks, by what grammars call them: what lies directly in one is a statement, and so is what is called one.
_BLOCK = re.compile(
    r"(?:\w+_)?(?:block|body)|compound_statement|body_statement|statement_list|then|else|do|do_group|ensure|rescue"
)
_STATEMENT = re.compile(r"\w+_(?:statement|declaration)")
_NO_STATEMENT = re.compile(r"\w*(?:parameter|comment)\w*|\w+_(?:clause|declarator)")
_DOCUMENTING = re.compile(r"/\*[*!]|//[/!]")  # elsewhere a comment may be about something else
_BY_CONVENTION = frozenset({".go", ".rb"})  # where plain comments are documentation
_PRAGMA = re.compile(
    r"#!|(?:/[/*]+|#+)[!\s]*(?:@ts-|@\w+-ignore|go:|\+build|nolint|(?:eslint|tslint|jshint|jslint|prettier|istanbul|"
    r"rubocop|shellcheck|phpcs|clang-format|codecov)\b|(?:pragma|region|endregion|NOSONAR|frozen_string_literal)\b)",
    re.IGNORECASE,
)
_REMINDER = re.compile(r"(?:todo|fixme|xxx|hack|nb|cf)\b", re.IGNORECASE)
_CODE_LINE = re.compile(r".*[;{}]\s*$|\s*[\w.$:>-]+\(.*\)\s*$")
_SUMMARY = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)
_REFERENCE = re.compile(
    r"""<(?:see|seealso|paramref|typeparamref)\s[^>]*?(?:cref|name|langword)="(?:\w:)?([^">]*)"\s*/?>"""
)
_PARAGRAPH = re.compile(r"</?(?:p|ul|ol|li|pre|blockquote|table|dl|para|remarks|example|param|returns)\b[^>]*>")
_TAG = re.compile(r"</?[a-zA-Z][^>]*>")
_INLINE = re.compile(r"\{@(?:link|linkplain|code|literal|value|see)\s+([^}|]*)(?:\|([^}]*))?\}")
_INHERITED = re.compile(r"\{?@inheritdoc\}?", re.IGNORECASE)
_BRIEF = re.compile(r"^(\s*)[@\\](?:brief|short|summary|description|desc|details)\b[ \t]*", re.MULTILINE)
_COMMAND = re.compile(r"^(\s*)\\(?=[a-z]+\b)", re.MULTILINE)  # Doxygen's, as `@`


def commented_functions(text: str, suffix: str) -> list[Function]:
    """Find the functions and methods of a file, but for those in functions.

    Args:
        text: Of the file.
        suffix: Says its language.

    Raises:
        DataError: Its language has no grammar here, or it takes too long to parse.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    source = parsed(text, suffix)
    if source is None:
        missing = missing_grammar(suffix)
        raise DataError(f"needs the grammar of {missing}" if missing else "takes too long to parse")
    found = [one for one in definitions(source) if one.kind in ("function", "method")]
    return [_function(source, one, suffix) for one in found]


def _function(source: Source, one: Definition, suffix: str) -> Function:
    kept = [note for note in one.notes if not _is_comment(note)]  # attributes, decorators
    start = source.at(kept[0].start_byte) if kept else one.start
    documentation = documentation_of([_text(source, note) for note in one.notes if _is_comment(note)], suffix)
    code, left_out = _code(source, one, kept), _why_left_out(source, one)
    return Function(
        name=one.name,
        start_line=source.text.count("\n", 0, start) + 1,
        end_line=source.text.count("\n", 0, one.end) + 1,
        code="" if left_out else code,
        documentation=documentation,
        fingerprint="" if left_out else _fingerprint(source, one),
        left_out=left_out,
    )


def _why_left_out(source: Source, one: Definition) -> str:
    name = re.split(r"::|\.", one.name)[-1]
    body = _body(one.node)
    if body is None:
        return "signature without a body"
    if one.node.has_error:
        return "syntax that cannot be parsed"
    if _TEST_NAME.match(name):
        return "test function"
    if _statements(body) < MIN_STATEMENTS:
        return f"trivial: fewer than {MIN_STATEMENTS} statements"
    return ""


def _body(node: Node) -> Node | None:
    """The body of a function, which may be the value of a variable, or be exported; the outermost comes first."""
    pending = [node]
    while pending:
        inner = pending.pop(0)
        if body := inner.child_by_field_name("body"):
            return body
        pending += inner.named_children
    return None


def _statements(body: Node) -> int:
    """Count the statements of a body, those in its blocks included."""
    count = 0
    pending = [(body, False)]
    while pending:
        node, in_block = pending.pop()
        block = bool(_BLOCK.fullmatch(node.type))
        if not block and not _NO_STATEMENT.fullmatch(node.type):
            count += in_block or bool(_STATEMENT.fullmatch(node.type))
        pending += [(child, block) for child in node.named_children]
    return count


def _is_comment(node: Node) -> bool:
    return "comment" in node.type


def _text(source: Source, node: Node) -> str:
    return source.text[source.at(node.start_byte) : source.at(node.end_byte)].rstrip()


def _code(source: Source, one: Definition, kept: Sequence[Node]) -> str:
    """The source of a function with its attributes, without the indentation of its surroundings."""
    line = source.text.rfind("\n", 0, one.start) + 1
    before = source.text[line : one.start]
    indent = before[: len(before) - len(before.lstrip())]
    fixed = _rows_in_strings(one.node)
    first = one.node.start_point[0]
    lines = source.text[one.start : one.end].split("\n")
    lines[1:] = [text if first + row in fixed else text.removeprefix(indent) for row, text in enumerate(lines[1:], 1)]
    return "\n".join([*(_text(source, note) for note in kept), *lines])


def _rows_in_strings(node: Node) -> set[int]:
    """The rows that begin within a string, whose blanks belong to it."""
    rows: set[int] = set()
    for inner in _nodes(node):
        if ("string" in inner.type or "heredoc" in inner.type) and inner.end_point[0] > inner.start_point[0]:
            rows.update(range(inner.start_point[0] + 1, inner.end_point[0] + 1))
    return rows


def _nodes(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        inner = pending.pop()
        yield inner
        pending += inner.children


def _fingerprint(source: Source, one: Definition) -> str:
    """Hash a function's text without comments and blanks."""
    parts: list[bytes] = []
    at = one.node.start_byte
    comments = sorted((n.start_byte, n.end_byte) for n in _nodes(one.node) if _is_comment(n))
    for start, end in [*comments, (one.node.end_byte, one.node.end_byte)]:
        parts.append(source.data[at:start])
        at = max(at, end)
    return sha256(b"".join(b"".join(parts).split())).hexdigest()


def documentation_of(comments: Sequence[str], suffix: str = "") -> str:
    """Return what comments that stand directly above a function say of it, without their signs and markup.

    Of several the last block counts: lines of `//`, `///` or `#` that follow each other are one. Rulers and pragmas are
    no prose. Where comments are not for documentation by their signs or by the language's convention, licences, links,
    notes and code that was commented out are none.
    """
    block: list[str] = []
    lone = False  # whether the block is one `/* ... */`
    for comment in reversed([line for one in comments for line in _single(one)]):
        lone = comment.startswith("/*")
        if block and (lone or _is_ruler(comment)):
            break
        if _is_ruler(comment) or _PRAGMA.match(comment):
            continue
        block.insert(0, comment)
        if lone:
            break
    if not block:
        return ""
    text = "\n".join(map(_without_signs, block))
    if not (_DOCUMENTING.match(block[-1]) or suffix in _BY_CONVENTION) and _is_note(text):
        return ""
    return _without_markup(text)


def _single(comment: str) -> list[str]:
    """Some grammars make one comment of several lines of `//` or `#`."""
    return [comment] if comment.startswith("/*") else [line.strip() for line in comment.split("\n")]


def _is_ruler(comment: str) -> bool:
    return not comment.startswith("/*") and not re.search(r"\w", comment) and len(comment) > 3


def _without_signs(comment: str) -> str:
    if not comment.startswith("/*"):
        return re.sub(r"^(?://[/!]*<?|#+)", "", comment)
    lines = comment.removeprefix("/*").removesuffix("*/").lstrip("*!").split("\n")
    return "\n".join([lines[0], *(re.sub(r"^\s*\*+(?=\s|$)|^[\s*=-]*$", "", line) for line in lines[1:])])


def _is_note(text: str) -> bool:
    """Whether a comment says something else than what the function does, or is code that was commented out."""
    if NOTE.search(text) or _REMINDER.match(text.strip()):
        return True
    lines = [line for line in text.split("\n") if line.strip()]
    return sum(bool(_CODE_LINE.match(line)) for line in lines) * 2 >= len(lines)


def _without_markup(text: str) -> str:
    """Take off what Javadoc, JSDoc, PHPDoc, Doxygen and C#'s XML add to prose."""
    if summary := _SUMMARY.search(text):
        text = summary[1]
    text = _INHERITED.sub("", _REFERENCE.sub(r"\1", text))
    text = _INLINE.sub(lambda link: (link[2] or link[1]).strip(), text)
    text = _TAG.sub("", _PARAGRAPH.sub("\n\n", text))
    text = _COMMAND.sub(r"\1@", _BRIEF.sub(r"\1", text))
    return textwrap.dedent(text.strip("\n")).strip()

"""Source code by its syntax: where its functions, methods and classes are, with tree-sitter.

A language is a grammar and a query that names its definitions. Everything else (what they are called, the comments
above them, what lies between them, where a long one is cut) is the same for all languages.
"""

from __future__ import annotations

import bisect
import functools
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from retrieval.units import Unit, visible

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Query, Tree

LONGEST = (
    750  # characters of a unit: six in seven such pieces of code take fewer than 256 tokens of the default encoder
)
_SCRAP = 24  # visible characters of code between definitions that are no unit of their own
_STEPS = 5_000  # a parser's, of a hundred operations each; ordinary code takes one for 300 bytes, a hopeless text more
_STEP_BYTES = 50  # than `_STEPS` and one for so many bytes
_CLOSES = re.compile(r"(?:\W|\b(?:end|fi|done|esac|endif)\b)*")
_PARAMETERS = re.compile(r"<[^<>]*(?:<[^<>]*>[^<>]*)*>(?=::)")  # of a template whose member is defined
_BLANKS = b" \t\r\n\f\v"
_ATTACHED = frozenset({"decorator", "attribute_item"})  # belong to what follows them, as comments do


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language.

    Attributes:
        name: What people call it.
        module: The Python module of its grammar.
        query: Captures of definitions: `@function`, `@class`, `@part` (of a class that is defined elsewhere) and
            `@scope` (of names alone), each with its `@name` and perhaps its `@owner` (the class of a method that is
            written outside of it); `@above` are comments and what else belongs to the definition below it.
        entry: The function of the module that gives the grammar.
        separator: Between the names of a qualified name.
    """

    name: str
    module: str
    query: str
    entry: str = "language"
    separator: str = "."


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, method or class of a text, outside of functions. Offsets are characters.

    Attributes:
        name: Its qualified name: the names of what it lies in, and its own.
        kind: function, method, class, or `part` of a class.
        above: Where the comments, decorators and attributes directly above it begin; `start` where there are none.
        start: Its first character.
        end: The character after its last one.
    """

    name: str
    kind: str
    above: int
    start: int
    end: int


_PYTHON = """
(function_definition name: (_) @name) @function
(decorated_definition definition: (function_definition name: (_) @name)) @function
(class_definition name: (_) @name) @class
(decorated_definition definition: (class_definition name: (_) @name)) @class
(comment) @above
"""
_JAVASCRIPT = """
(function_declaration name: (_) @name) @function
(generator_function_declaration name: (_) @name) @function
(export_statement declaration: (function_declaration name: (_) @name)) @function
(export_statement declaration: (generator_function_declaration name: (_) @name)) @function
(method_definition name: (_) @name) @function
(pair key: (_) @name value: [(function_expression) (arrow_function)]) @function
(lexical_declaration
  . (variable_declarator name: (identifier) @name value: [(function_expression) (arrow_function)]) .) @function
(export_statement declaration: (lexical_declaration
  . (variable_declarator name: (identifier) @name value: [(function_expression) (arrow_function)]) .)) @function
(variable_declaration
  . (variable_declarator name: (identifier) @name value: [(function_expression) (arrow_function)]) .) @function
(expression_statement (assignment_expression
  left: [(identifier) (member_expression)] @name right: [(function_expression) (arrow_function)])) @function
(class_declaration name: (_) @name) @class
(export_statement declaration: (class_declaration name: (_) @name)) @class
(comment) @above
(decorator) @above
"""
_OF_JAVASCRIPT = """
(field_definition property: (_) @name value: [(function_expression) (arrow_function)]) @function
"""
_OF_TYPESCRIPT = """
(function_signature name: (_) @name) @function
(export_statement declaration: (function_signature name: (_) @name)) @function
(public_field_definition name: (_) @name value: [(function_expression) (arrow_function)]) @function
(abstract_class_declaration name: (_) @name) @class
(export_statement declaration: (abstract_class_declaration name: (_) @name)) @class
(interface_declaration name: (_) @name) @class
(export_statement declaration: (interface_declaration name: (_) @name)) @class
(enum_declaration name: (_) @name) @class
(export_statement declaration: (enum_declaration name: (_) @name)) @class
(internal_module name: (_) @name) @scope
(module name: (_) @name) @scope
"""
_JAVA = """
(method_declaration name: (_) @name) @function
(constructor_declaration name: (_) @name) @function
(compact_constructor_declaration name: (_) @name) @function
(class_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @class
(enum_declaration name: (_) @name) @class
(record_declaration name: (_) @name) @class
(annotation_type_declaration name: (_) @name) @class
(line_comment) @above
(block_comment) @above
"""
_GO = """
(function_declaration name: (_) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: (_) @owner)) name: (_) @name) @function
(type_declaration . (type_spec name: (_) @name type: [(struct_type) (interface_type)]) .) @class
(comment) @above
"""
_RUST = """
(function_item name: (_) @name) @function
(function_signature_item name: (_) @name) @function
(macro_definition name: (_) @name) @function
(struct_item name: (_) @name) @class
(enum_item name: (_) @name) @class
(union_item name: (_) @name) @class
(trait_item name: (_) @name) @class
(impl_item type: (_) @name) @part
(mod_item name: (_) @name body: (_)) @scope
(line_comment) @above
(block_comment) @above
(attribute_item) @above
"""
_C = """
(function_definition declarator: (_) @name) @function
(struct_specifier name: (_) @name body: (_)) @class
(union_specifier name: (_) @name body: (_)) @class
(enum_specifier name: (_) @name body: (_)) @class
(declaration type: [
  (struct_specifier name: (_) @name body: (_)) (union_specifier name: (_) @name body: (_))
  (enum_specifier name: (_) @name body: (_))]) @class
(type_definition type: [
  (struct_specifier name: (_) @name body: (_)) (union_specifier name: (_) @name body: (_))
  (enum_specifier name: (_) @name body: (_))]) @class
(type_definition type: [
  (struct_specifier !name body: (_)) (union_specifier !name body: (_)) (enum_specifier !name body: (_))]
  . declarator: (type_identifier) @name) @class
(comment) @above
"""
_OF_CPP = """
(template_declaration (function_definition declarator: (_) @name)) @function
(class_specifier name: (_) @name body: (_)) @class
(declaration type: (class_specifier name: (_) @name body: (_))) @class
(template_declaration [
  (class_specifier name: (_) @name body: (_)) (struct_specifier name: (_) @name body: (_))
  (union_specifier name: (_) @name body: (_))]) @class
(namespace_definition name: (_) @name) @scope
"""
_C_SHARP = """
(method_declaration name: (_) @name) @function
(constructor_declaration name: (_) @name) @function
(destructor_declaration name: (_) @name) @function
(operator_declaration operator: _ @name) @function
(local_function_statement name: (_) @name) @function
(property_declaration name: (_) @name accessors: (accessor_list (accessor_declaration body: (_)))) @function
(class_declaration name: (_) @name) @class
(struct_declaration name: (_) @name) @class
(record_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @class
(enum_declaration name: (_) @name) @class
(namespace_declaration name: (_) @name) @scope
(comment) @above
"""
_RUBY = """
(method name: (_) @name) @function
(singleton_method name: (_) @name) @function
(class name: (_) @name) @class
(module name: (_) @name) @class
(comment) @above
"""
_PHP = """
(function_definition name: (_) @name) @function
(method_declaration name: (_) @name) @function
(class_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @class
(trait_declaration name: (_) @name) @class
(enum_declaration name: (_) @name) @class
(namespace_definition name: (_) @name body: (_)) @scope
(comment) @above
"""
_BASH = """
(function_definition name: (_) @name) @function
(comment) @above
"""
_GRAMMARS = {
    ".py .pyi .pyw": Grammar("Python", "tree_sitter_python", _PYTHON),
    ".js .jsx .mjs .cjs": Grammar("JavaScript", "tree_sitter_javascript", _JAVASCRIPT + _OF_JAVASCRIPT),
    ".ts .mts .cts": Grammar(
        "TypeScript", "tree_sitter_typescript", _JAVASCRIPT + _OF_TYPESCRIPT, entry="language_typescript"
    ),
    ".tsx": Grammar("TypeScript", "tree_sitter_typescript", _JAVASCRIPT + _OF_TYPESCRIPT, entry="language_tsx"),
    ".java": Grammar("Java", "tree_sitter_java", _JAVA),
    ".go": Grammar("Go", "tree_sitter_go", _GO),
    ".rs": Grammar("Rust", "tree_sitter_rust", _RUST, separator="::"),
    ".c": Grammar("C", "tree_sitter_c", _C),
    ".h .cc .cpp .cxx .hh .hpp .hxx .inl .cu .cuh": Grammar("C++", "tree_sitter_cpp", _C + _OF_CPP, separator="::"),
    ".cs": Grammar("C#", "tree_sitter_c_sharp", _C_SHARP),
    ".rb": Grammar("Ruby", "tree_sitter_ruby", _RUBY, separator="::"),
    ".php": Grammar("PHP", "tree_sitter_php", _PHP, entry="language_php", separator="::"),
    ".sh .bash": Grammar("Bash", "tree_sitter_bash", _BASH),
}
_BY_SUFFIX = {suffix: grammar for suffixes, grammar in _GRAMMARS.items() for suffix in suffixes.split()}


def grammar_of(suffix: str) -> Grammar | None:
    """Return the grammar of a file by its suffix (`.py`), None where there is none."""
    return _BY_SUFFIX.get(suffix.lower())


def missing_grammar(suffix: str) -> str | None:
    """Say which language is not installed that a suffix stands for, and what to do; None where nothing is missing."""
    grammar = grammar_of(suffix)
    if grammar is None or _loaded(grammar) is not None:
        return None
    return f'{grammar.name} (pip install "retrieve-rerank[code]")'


@dataclass(frozen=True, slots=True)
class _Loaded:
    language: Language
    query: Query


@functools.cache
def _loaded(grammar: Grammar) -> _Loaded | None:
    """Load a grammar; None where it is not installed."""
    try:
        from tree_sitter import Language, Query

        language = Language(getattr(importlib.import_module(grammar.module), grammar.entry)())
    except ImportError:
        return None
    return _Loaded(language, Query(language, grammar.query))


class Source:
    """A text that was parsed. tree-sitter counts bytes; whatever leaves this class counts characters."""

    def __init__(self, text: str, grammar: Grammar, tree: Tree, data: bytes) -> None:
        self.text = text
        self.grammar = grammar
        self.tree = tree
        self.data = data
        self._characters: np.ndarray | None = None
        if not text.isascii():
            begins = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80  # not a continuation byte
            self._characters = np.concatenate([[0], np.cumsum(begins)])

    def at(self, offset: int) -> int:
        """Return the character that a byte belongs to."""
        return offset if self._characters is None else int(self._characters[offset])

    def line_start(self, offset: int) -> int:
        """Return the first byte of a byte's line."""
        return self.data.rfind(b"\n", 0, offset) + 1

    def begins_line(self, offset: int) -> bool:
        """Whether nothing but blanks stands before a byte on its line."""
        return not self.data[self.line_start(offset) : offset].strip()

    def last_visible(self, offset: int, least: int = 0) -> int:
        """Return where the blanks before a byte begin, but not what lies before `least`."""
        while offset > least and self.data[offset - 1] in _BLANKS:
            offset -= 1
        return offset


def parsed(text: str, suffix: str) -> Source | None:
    """Parse a text, whatever it holds; what is no code of its language gives errors in the tree, not here.

    Returns:
        None where no grammar covers the suffix, it is not installed, or the text is not worth the time that it takes.
    """
    grammar = grammar_of(suffix)
    loaded = _loaded(grammar) if grammar else None
    if grammar is None or loaded is None:
        return None
    from tree_sitter import Parser

    # A lone carriage return ends a line too; the text keeps its length.
    data = re.sub(r"\r(?!\n)", "\n", text).encode("utf-8", "surrogatepass")
    steps = iter(range(_STEPS + len(data) // _STEP_BYTES))
    try:  # steps, not seconds: the same text gives the same units on any machine
        tree = Parser(loaded.language).parse(
            lambda offset, point: data[offset:], progress_callback=lambda offset, error: next(steps, None) is None
        )
    except ValueError:  # cancelled
        return None
    return Source(text, grammar, tree, data)


def definitions(source: Source) -> list[Definition]:
    """Find the functions, methods and classes of a text, but for those within functions, in the order of the text.

    Of those that lie in each other the outer one comes first.
    """
    found, above = _captured(source)
    inside: list[tuple[_Found, str]] = []  # what the next one lies in, and its qualified name
    definitions: list[Definition] = []
    for one in found:
        while inside and inside[-1][0].end <= one.start:
            inside.pop()
        outer = inside[-1] if inside else None
        if outer and outer[0].kind == "function":
            continue
        name = source.grammar.separator.join(filter(None, (outer[1] if outer else "", one.owner, one.name)))
        inside.append((one, name))
        if one.kind == "scope":
            continue
        of_class = one.owner or "::" in one.name or (outer is not None and outer[0].kind in ("class", "part"))
        start = _with_above(source, one.start, above)
        definitions.append(
            Definition(
                name=name,
                kind="method" if one.kind == "function" and of_class else one.kind,
                above=source.at(start),
                start=source.at(one.start),
                end=source.at(one.end),
            )
        )
    return definitions


@dataclass(frozen=True, slots=True)
class _Found:
    """A captured definition; offsets are bytes."""

    start: int
    end: int
    kind: str
    name: str
    owner: str


def _captured(source: Source) -> tuple[list[_Found], dict[int, int]]:
    """The definitions of a tree, outer ones first, and what belongs to the one below it: its end, its start."""
    from tree_sitter import QueryCursor

    loaded = _loaded(source.grammar)
    matches = [] if loaded is None else QueryCursor(loaded.query).matches(source.tree.root_node)
    found: dict[int, _Found] = {}  # by where the name stands: a wrapper (`export`, decorators) is matched beside it
    above: dict[int, int] = {}
    for _, captures in matches:
        kind = next(name for name in captures if name not in ("name", "owner"))
        node = captures[kind][0]
        if kind == "above":
            above[source.last_visible(node.end_byte, node.start_byte)] = node.start_byte
            continue
        named = captures["name"][0]
        known = found.get(named.start_byte)
        if known is None or node.end_byte - node.start_byte > known.end - known.start:
            owner = _name(source, captures["owner"][0]) if "owner" in captures else ""
            end = node.end_byte + source.data.startswith(b";", node.end_byte)
            one = _Found(node.start_byte, end, kind, _name(source, named), owner)
            found[named.start_byte] = one
    return sorted(found.values(), key=lambda one: (one.start, -one.end)), above


def _name(source: Source, node: Node) -> str:
    """What a definition is called: of a C declarator, a receiver or a type with parameters the name alone."""
    while inner := node.child_by_field_name("declarator") or node.child_by_field_name("type"):
        node = inner
    if node.type in ("reference_declarator", "pointer_type", "parenthesized_declarator"):
        return _name(source, node.named_children[-1]) if node.named_children else ""
    text = source.data[node.start_byte : node.end_byte].decode("utf-8", "replace")
    return _PARAMETERS.sub("", " ".join(text.split())).strip("\"'`")


def _with_above(source: Source, start: int, above: Mapping[int, int]) -> int:
    """Where a definition begins with what stands directly above it: on lines of its own, no blank line between."""
    first = at = start
    while True:
        if source.begins_line(at):
            first = source.line_start(at)
        end = source.last_visible(at)
        if end not in above or source.data.count(b"\n", end, at) > 1:
            return first
        at = above[end]


def code_units(text: str, suffix: str) -> list[Unit] | None:
    """Cut code into functions, methods, classes, and what lies between them.

    A method is no part of its class's unit, a function within a function is one of the outer's. Decorators and the
    comment directly above belong to a definition. A unit is called by its qualified name; what lies between is called
    by the class that it lies in. What is longer than `LONGEST` is cut where a statement begins, so that the pieces
    fit, as far as there is such a place. Every visible character lies in exactly one unit.

    Args:
        text: Of the file.
        suffix: Of its name, such as `.py`.

    Returns:
        Units in order; none for a blank text; None where no grammar covers the suffix, or none is installed.
    """
    source = parsed(text, suffix)
    if source is None:
        return None
    borders = _borders(source)
    units = _together(_without_scraps(text, _tiles(source)))
    return [piece for unit in units for piece in _pieces(text, unit, borders)]


def _tiles(source: Source) -> list[Unit]:
    """Units that cover a text, of any length; blank ones are left out."""
    units: list[Unit] = []
    at = 0
    inside = [_Level(len(source.text), "", "code")]

    def cover(end: int, section: str, kind: str) -> bool:
        nonlocal at
        start, stop = visible(source.text, at, end)
        at = max(at, end)
        if stop > start:
            units.append(Unit(start=start, end=stop, section=section, kind=kind))
        return stop > start

    def leave_those_before(start: int) -> None:
        while len(inside) > 1 and inside[-1].end <= start:
            inside[-1].cover(cover, inside[-1].end)
            inside.pop()

    for one in definitions(source):
        leave_those_before(one.start)
        inside[-1].cover(cover, one.above)
        if one.kind in ("function", "method"):
            cover(one.end, one.name, one.kind)
        else:
            inside.append(_Level(one.end, one.name, "class" if one.kind == "class" else "code"))
    leave_those_before(len(source.text))
    inside[0].cover(cover, len(source.text))
    return units


@dataclass(slots=True)
class _Level:
    """A class or the file, as far as it is not its functions; what comes first in a class is the class."""

    end: int
    section: str
    kind: str

    def cover(self, cover: Callable[[int, str, str], bool], end: int) -> None:
        if cover(end, self.section, self.kind):
            self.kind = "code"


def _without_scraps(text: str, units: Sequence[Unit]) -> list[Unit]:
    """Join code of a few characters with its neighbour: what closes something to that before, else to that after."""
    kept: list[Unit] = []
    start = None  # of a scrap that waits for the next unit
    for unit, following in zip_longest(units, units[1:]):
        if start is not None:
            unit, start = replace(unit, start=start), None
        scrap = text[unit.start : unit.end]
        if unit.kind != "code" or len("".join(scrap.split())) > _SCRAP:
            kept.append(unit)
        elif following is not None and (
            not kept or (following.section.startswith(unit.section) and not _CLOSES.fullmatch(scrap))
        ):
            start = unit.start
        elif kept:
            kept[-1] = replace(kept[-1], end=unit.end)
        else:
            kept.append(unit)
    return kept


def _together(units: Sequence[Unit]) -> list[Unit]:
    """Join neighbours of one name, such as overloads or a property's getter and setter, where they fit one unit."""
    kept: list[Unit] = []
    for unit in units:
        last = kept[-1] if kept else None
        if last and (last.section, last.kind) == (unit.section, unit.kind) and unit.end - last.start <= LONGEST:
            kept[-1] = replace(last, end=unit.end)
        else:
            kept.append(unit)
    return kept


@dataclass(frozen=True, slots=True)
class _Border:
    """A place where a long unit may be cut: the beginning of a line, and how deep in the tree it is."""

    at: int
    depth: int


def _borders(source: Source) -> list[_Border]:
    """Where statements (and entries of lists, cases, members) begin that lie in something long, in order."""
    depths: dict[int, int] = {}
    pending = [(source.tree.root_node, 0)]
    while pending:
        node, depth = pending.pop()
        if node.end_byte - node.start_byte <= LONGEST // 3:  # it stays whole
            continue
        held = -1  # the end of a comment that stays with what follows it
        for child in node.children:
            pending.append((child, depth + 1))
            start = child.start_byte
            if not child.is_named or not source.begins_line(start):
                continue
            if held < 0 or source.data.count(b"\n", held, start) > 1:
                line = source.line_start(start)
                depths[line] = min(depth, depths.get(line, depth))
            stays = "comment" in child.type or child.type in _ATTACHED
            held = source.last_visible(child.end_byte, start) if stays else -1
    return [_Border(source.at(line), depth) for line, depth in sorted(depths.items())]


def _pieces(text: str, unit: Unit, borders: Sequence[_Border]) -> Iterator[Unit]:
    """Cut a unit into pieces of about one length, at the outermost of the borders that leave a piece short enough."""
    start = unit.start
    while (length := unit.end - start) > LONGEST:
        share = -(-length // -(-length // LONGEST))  # of the fewest pieces that it takes
        low = bisect.bisect_right(borders, start + share // 2, key=lambda border: border.at)
        high = bisect.bisect_right(borders, min(start + LONGEST, unit.end - 1), key=lambda border: border.at)
        if low < high:
            cut = min(borders[low:high], key=lambda border: (border.depth, abs(border.at - start - share))).at
        elif high < len(borders) and borders[high].at < unit.end:
            cut = borders[high].at
        else:
            break
        yield replace(unit, start=start, end=visible(text, start, cut)[1])
        start = cut
    yield replace(unit, start=start)

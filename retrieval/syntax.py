"""Source code by its syntax: where its functions, methods and classes are, with tree-sitter.

A language is a grammar and a query that names its definitions. Everything else (what they are called, the comments
above them, what lies between them, where a long one is cut) is the same for all languages.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from retrieval.grammars import Grammar, grammar_of, loaded
from retrieval.units import Unit, visible

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

LONGEST = (
    750  # characters of a unit: six in seven such pieces of code take fewer than 256 tokens of the default encoder
)
_SCRAP = 24  # visible characters of code between definitions that are no unit of their own
_STEPS = 5_000  # a parser's, of a hundred operations each; ordinary code takes one for 300 bytes, a hopeless text more
_STEP_BYTES = 50  # than `_STEPS` and one for so many bytes
_CLOSES = re.compile(r"(?:\W|\b(?:end|fi|done|esac|endif)\b)*")
_PARAMETERS = re.compile(r"<[^<>]*(?:<[^<>]*>[^<>]*)*>(?=::)")  # of a template whose member is defined
_BLANKS = b" \t\r\n\f\v"
_BLANKS_OF_LINE = b" \t\r\f\v"
_INDENT = 64  # bytes before a node that are looked at first
_SIGNS = 1_000  # in a row that are part of nothing; a query looks past all of them from each
_ATTACHED = frozenset({"decorator", "attribute_item"})  # belong to what follows them, as comments do


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, method or class of a text, outside of functions. Offsets are characters.

    Attributes:
        name: Its qualified name: the names of what it lies in, and its own.
        kind: function, method, class, or `part` of a class.
        above: Where the line begins on which the comments, decorators and attributes directly above it begin.
        start: Its first character.
        end: The character after its last one.
        node: Its node in the tree.
        notes: The nodes of what stands directly above it, in order.
    """

    name: str
    kind: str
    above: int
    start: int
    end: int
    node: Node
    notes: Sequence[Node]


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
        start, width = offset, _INDENT  # no more is looked at than need be: a line may be as long as the file
        while start and not (before := self.data[max(0, start - width) : start].rstrip(_BLANKS_OF_LINE)):
            start, width = max(0, start - width), 2 * width
        return not start or before.endswith(b"\n")

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
    ready = loaded(grammar) if grammar else None
    if grammar is None or ready is None:
        return None
    from tree_sitter import Parser

    shown = re.sub(r"\r(?!\n)", "\n", text)  # a lone carriage return ends a line too; offsets stay
    if grammar.unread:
        shown = grammar.unread.sub(lambda match: match[1] + " " * len(match[2]), shown)
    data = shown.encode("utf-8", "surrogatepass")
    steps = iter(range(_STEPS + len(data) // _STEP_BYTES))
    try:  # steps, not seconds: the same text gives the same units on any machine
        tree = Parser(ready.language).parse(
            lambda offset, point: data[offset:], progress_callback=lambda offset, error: next(steps, None) is None
        )
    except ValueError:  # cancelled
        return None
    return None if _is_hopeless(tree) else Source(text, grammar, tree, data)


def _is_hopeless(tree: Tree) -> bool:
    """Whether so much of a broken text stands outside of all syntax that a query would take minutes."""
    pending = [tree.root_node] if tree.root_node.has_error else []
    while pending:
        signs = 0
        for child in pending.pop().children:
            signs = 0 if child.is_named else signs + 1
            if signs > _SIGNS:
                return True
            if child.end_byte - child.start_byte > _SIGNS:
                pending.append(child)
    return False


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
        notes = _above(source, one.start, above)
        starts = [*(note.start_byte for note in notes), one.start]
        first = next(filter(source.begins_line, starts), None)
        definitions.append(
            Definition(
                name=name,
                kind="method" if one.kind == "function" and of_class else one.kind,
                above=source.at(starts[0] if first is None else source.line_start(first)),
                start=source.at(one.start),
                end=source.at(one.end),
                node=one.node,
                notes=notes,
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
    node: Node


def _captured(source: Source) -> tuple[list[_Found], dict[int, Node]]:
    """The definitions of a tree, outer ones first, and what may belong to one below it, by where it ends."""
    from tree_sitter import QueryCursor

    ready = loaded(source.grammar)
    matches = [] if ready is None else QueryCursor(ready.query).matches(source.tree.root_node)
    found: dict[int, _Found] = {}  # by where the name stands: a wrapper (`export`, decorators) is matched beside it
    above: dict[int, Node] = {}
    for _, captures in matches:
        kind = next(name for name in captures if name not in ("name", "owner"))
        node = captures[kind][0]
        if kind == "above":
            above[source.last_visible(node.end_byte, node.start_byte)] = node
            continue
        named = captures["name"][0]
        known = found.get(named.start_byte)
        if known is None or node.end_byte - node.start_byte > known.end - known.start:
            owner = _name(source, captures["owner"][0]) if "owner" in captures else ""
            end = node.end_byte + source.data.startswith(b";", node.end_byte)
            one = _Found(node.start_byte, end, kind, _name(source, named), owner, node)
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


def _above(source: Source, start: int, above: Mapping[int, Node]) -> list[Node]:
    """What stands directly above a definition, no blank line between; what has code before it on its line does not.

    On the definition's own line it does: `class A { /** Adds. */ int add() {`.
    """
    found: list[Node] = []
    at = start
    while True:
        end = source.last_visible(at)
        if end not in above or source.data.count(b"\n", end, at) > 1:
            break
        found.append(above[end])
        at = above[end].start_byte
    while found and not source.begins_line(found[-1].start_byte):
        if b"\n" not in source.data[source.last_visible(found[-1].end_byte) : start]:
            break
        found.pop()
    return found[::-1]


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

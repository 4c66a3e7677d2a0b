"""Headings inside a text: where its sections begin, in Markdown, reStructuredText, AsciiDoc, wiki and plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LINES = re.compile(r"\r?\n")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MARKED = re.compile(r"(#{1,6}|={1,6})[ \t]+(\S.*?)(?:[ \t]+[#=]+)?[ \t]*")
_RULE = re.compile(r"([=\-~^*+#\"'`:._])\1{2,}[ \t]*")
_NUMBERED = re.compile(r"(\d+(?:\.\d+)+)\.?[ \t]+(\S.*[^\s.:;,?!])[ \t]*")
_CAPITALS = re.compile(r"[A-Z][A-Z0-9 ,'&/()-]*[A-Z0-9)][ \t]*")
_FRONT_MATTER = re.compile(
    r"(?:---[ \t]*\r?\n(?P<yaml>(?:.*\n){0,200}?)(?:---|\.\.\.)|\+\+\+[ \t]*\r?\n(?P<toml>(?:.*\n){0,200}?)\+\+\+)"
    r"[ \t]*(?:\r?\n|$)"
)
# A line of prose, between what may be rules.
_NO_YAML = re.compile(r"^(?![\w\"'].*?:(?:\s|$)|[ \t#\]}]|-(?:\s|$)|\r?$)", re.MULTILINE)
_ENTRY = r"^{}[ \t]*[:=][ \t]*((?:\"\"\"[\s\S]*?\"\"\"|.*)(?:\n[ \t]+\S.*)*)"  # with the lines that go on with it
_TITLE, _DESCRIPTION = (re.compile(_ENTRY.format(name), re.MULTILINE) for name in ("title", "description"))
_TABLE = re.compile(r"^\[", re.MULTILINE)  # of TOML: what follows is of something else
_QUOTED = re.compile(r"""(["']{3}|["'])(.*)\1\s*(?:#.*)?""")
_NOTHING = ("~", "null", "Null", "NULL")
_BLOCK = re.compile(r"^ [>|][-+\d]*\s|\s#.*")  # a sign of YAML's for a text of several lines, a remark
_TEMPLATE = re.compile(r"\{[{%]|<%")
_TARGET = re.compile(r"\.\. _.*:[ \t]*|<a (?:name|id)=[^>]*>(?:</a>)?[ \t]*")  # links that point at a heading
_WORD = re.compile(r"\w")
_LONGEST = 200  # characters of a heading
_PLAIN_WORDS = 10  # of a heading that nothing but its looks tells
_PLAIN_LEVEL = 50  # of headings in capitals, below all that are marked


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A head of YAML between `---`, or of TOML between `+++`, that a text begins with.

    Attributes:
        end: The character after it.
        title: The value of `title`; empty without one.
        description: Where the value of `description` begins and ends; both 0 without one.
    """

    end: int
    title: str
    description: tuple[int, int]


def front_matter(text: str) -> FrontMatter | None:
    """Find the head of a text, None where it has none."""
    head = _FRONT_MATTER.match(text)
    if head is None or (head["toml"] is None and _NO_YAML.search(head["yaml"])):
        return None
    first, last = head.span("yaml" if head["toml"] is None else "toml")
    table = _TABLE.search(text[first:last])
    fields = text[: first + table.start() if table else last]
    title, description = _TITLE.search(fields, first), _DESCRIPTION.search(fields, first)
    return FrontMatter(
        head.end(), as_title(_value(title[1])) if title else "", description.span(1) if description else (0, 0)
    )


def _value(written: str) -> str:
    """Return a value of YAML or TOML without quotes and remarks, on one line."""
    line = " ".join(written.split())
    if quoted := _QUOTED.fullmatch(line):
        return quoted[2].replace('\\"', '"').replace("''", "'")
    value = _BLOCK.sub("", f" {line} ").strip()
    unsaid = value in _NOTHING or value.startswith(("*", "&", "!", "[", "{"))  # what only YAML can tell
    return "" if unsaid else value


def as_title(text: str) -> str:
    """Return what a document calls itself on one line; empty for a text, or a template, that is no title."""
    title = " ".join(text.split())
    return "" if len(title) > _LONGEST or _TEMPLATE.search(title) else title


@dataclass(frozen=True, slots=True)
class Section:
    """What stands under a heading, up to the next heading of any level.

    Attributes:
        heading: As written, without the marks that make it one; empty for what stands before the first heading.
        level: Of the heading: a section is part of the last one before it with a smaller level. 0 before the first.
        text: Without blanks around it.
    """

    heading: str
    level: int
    text: str


def sections(text: str, *, markdown: bool = False) -> list[Section]:
    """Cut a text at its headings.

    Headings are lines with `#` or `=` in front, and lines underlined (and maybe overlined) with a run of one
    punctuation mark at least as long; also, standing alone between blank lines, numbered ones of two levels or more
    (`2.1 Tides`) and short ones in capitals. A heading stands at the beginning of a line, after a blank line or another
    heading, not in a fenced block. Front matter is left out.

    Args:
        text: The text.
        markdown: It is Markdown for sure, where a line with `#` in front needs no blank line before it.

    Returns:
        Section 0 is what stands before the first heading, also where that is nothing.
    """
    head = front_matter(text)
    lines = _LINES.split(text[head.end :] if head else text)
    found = list(_headings(lines, markdown))
    ends = [heading.first for heading in found] + [len(lines)]
    result = [Section("", 0, _joined(lines[: ends[0]]))]
    for heading, end in zip(found, ends[1:], strict=True):
        result.append(Section(heading.text, heading.level, _joined(lines[heading.after : end])))
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a text, from a heading (or the beginning) to the next one.

    Attributes:
        start: Its first character, that of the heading's line.
        body: The character after the heading.
        end: The character after the stretch, where the next one starts.
        level: Of the heading, as in `Section`; 0 before the first.
        path: The headings that it is under, outermost first, its own last.
    """

    start: int
    body: int
    end: int
    level: int
    path: tuple[str, ...]


def spans(text: str, *, markdown: bool = False) -> list[Span]:
    """Cut a text at its headings (see `sections`) into stretches that cover all of it, front matter included.

    Args:
        text: The text.
        markdown: As for `sections`.

    Returns:
        Span 0 begins with the text and has no heading; it may be empty.
    """
    head = front_matter(text)
    offset = head.end if head else 0
    starts = [offset, *(offset + line.end() for line in _LINES.finditer(text[offset:])), len(text)]
    found = list(_headings(_LINES.split(text[offset:]), markdown))
    ends = [starts[heading.first] for heading in found] + [len(text)]
    result = [Span(start=0, body=0, end=ends[0], level=0, path=())]
    above: list[_Heading] = []
    for heading, end in zip(found, ends[1:], strict=True):
        while above and above[-1].level >= heading.level:
            above.pop()
        above.append(heading)
        path = tuple(one.text for one in above)
        start, body = starts[heading.first], min(starts[heading.after], end)
        result.append(Span(start=start, body=body, end=end, level=heading.level, path=path))
    return result


@dataclass(frozen=True, slots=True)
class _Heading:
    text: str
    level: int
    first: int  # its first line
    after: int  # the line after its last one


def _headings(lines: Sequence[str], markdown: bool) -> Iterator[_Heading]:
    styles: dict[str, int] = {}  # levels of underlines, in the order of their first use, as in reStructuredText
    fence = ""
    free = True  # a heading may begin: after a blank line or a heading
    number = 0
    while number < len(lines):
        line = lines[number]
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        begins = not fence and not mark and (free or (markdown and line.startswith("#")))
        heading = _heading(lines, number, styles) if begins else None
        if heading is not None:
            yield heading
            number = heading.after
        else:
            free = not fence and (not line.strip() or bool(_TARGET.fullmatch(line)))
            number += 1


def _heading(lines: Sequence[str], number: int, styles: dict[str, int]) -> _Heading | None:
    """Return the heading that begins at a line, if one does."""
    line = lines[number]
    if not line or line[0].isspace() or len(line) > _LONGEST:
        return None
    if (marked := _MARKED.fullmatch(line)) and _WORD.search(marked[2]):
        return _Heading(marked[2], len(marked[1]), number, number + 1)
    following = [*lines[number + 1 : number + 3], "", ""]
    over = _RULE.fullmatch(line)
    if over and _is_underlined(following[0].strip(), following[1]) and following[1].rstrip() == line.rstrip():
        level = styles.setdefault(over[1] * 2, len(styles) + 1)
        return _Heading(following[0].strip(), level, number, number + 3)
    if over is None and _is_underlined(line.rstrip(), following[0]):
        level = styles.setdefault(following[0][0], len(styles) + 1)
        return _Heading(line.rstrip(), level, number, number + 2)
    return None if following[0].strip() else _plain_heading(line, number)


def _is_underlined(text: str, under: str) -> bool:
    return (
        bool(text) and not _RULE.fullmatch(text) and bool(_RULE.fullmatch(under)) and len(under.rstrip()) >= len(text)
    )


def _plain_heading(line: str, number: int) -> _Heading | None:
    """Return a line that stands alone as a heading, if it looks like one."""
    if len(line.split()) > _PLAIN_WORDS:
        return None
    if numbered := _NUMBERED.fullmatch(line):
        return _Heading(numbered[2], numbered[1].count(".") + 1, number, number + 1)
    return _Heading(line.rstrip(), _PLAIN_LEVEL, number, number + 1) if _CAPITALS.fullmatch(line) else None


def _joined(lines: Sequence[str]) -> str:
    """Join lines, without the targets of links at their end, which name the next heading."""
    end = len(lines)
    while end and (not lines[end - 1].strip() or _TARGET.fullmatch(lines[end - 1])):
        end -= 1
    return "\n".join(lines[:end]).strip()

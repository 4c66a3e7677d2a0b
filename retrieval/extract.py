"""From the bytes of a file to its text and the units of it: code, prose by heading, notebooks by cell, HTML, PDF.

The text of code and prose is the file's own, character by character; of notebooks, HTML and PDF it is made.
"""

from __future__ import annotations

import codecs
import importlib.util
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from retrieval.headings import as_title, front_matter, spans
from retrieval.suffixes import HTML_SUFFIXES, MARKDOWN_SUFFIXES, PROSE_SUFFIXES, suffix_of
from retrieval.syntax import code_units
from retrieval.units import Unit

NO_PDF = 'PDF (pip install "retrieve-rerank[pdf]")'

_PATH = " > "
_NOT_PROSE = re.compile(r"cmakelists\.txt|robots\.txt|.*(requirements|constraints).*\.txt", re.IGNORECASE)
_BYTE_ORDER_MARKS = (  # the longer first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CODING_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263
_UTF8 = re.compile(r"utf[-_]?8", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset=[\"']?([-\w.]+)", re.IGNORECASE)
_META_BYTES = 2048  # of an HTML file that are looked at for it


class NoText(ValueError):  # noqa: N818 (it becomes a reason, not an error)
    """A file that holds no text that can be used; its message says why."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The text of a file; `encoding` is what it was decoded as, empty where its bytes are no text."""

    text: str
    encoding: str


@dataclass(frozen=True, slots=True)
class Extract:
    """The text of a document and the units that it consists of."""

    text: str
    units: list[Unit]


def byte_order_mark(data: bytes) -> tuple[bytes, str] | None:
    """Return the byte order mark that some bytes begin with, and the encoding that it stands for."""
    return next((mark for mark in _BYTE_ORDER_MARKS if data.startswith(mark[0])), None)


def decoded(data: bytes, suffix: str) -> Decoded | None:
    """Decode a file by its byte order mark, its coding cookie, as UTF-8, by its HTML head, or else byte by byte.

    Args:
        data: The whole file.
        suffix: Of its name, in lower case. Without one it is taken for text only where it is UTF-8.

    Returns:
        None where it is no text.
    """
    if marked := byte_order_mark(data):
        mark, encoding = marked
        try:
            text = data[len(mark) :].decode(encoding)
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else Decoded(text, encoding.removesuffix("-le").removesuffix("-be"))
    candidates = ["utf-8"]
    if suffix in (".py", ".pyw", ".pyi"):
        cookies = map(_CODING_COOKIE.match, data.split(b"\n", 2)[:2])
        named = [cookie[1].decode() for cookie in cookies if cookie][:1]
        candidates[:0] = [encoding for encoding in named if not _UTF8.fullmatch(encoding)]
    elif suffix in HTML_SUFFIXES and (charset := _META_CHARSET.search(data[:_META_BYTES])):
        candidates.append(charset[1].decode())  # UTF-8 was tried by then
    if suffix:
        candidates += ["cp1252", "latin-1"]
    for encoding in candidates:
        try:
            text = data.decode(encoding)
            if encoding != "utf-8":
                text.encode()  # a cookie may name an escape encoding, which can make half a surrogate pair
            return Decoded(text, encoding)
        except (UnicodeError, LookupError):
            continue
    return None


def own_units(name: str, text: str) -> list[Unit]:
    """Cut a text that is its file's own into units that cover it.

    Args:
        name: Of the file.
        text: Of the file.
    """
    suffix = suffix_of(name)
    is_prose = suffix in PROSE_SUFFIXES or (not suffix and name.isupper())  # README, INSTALL
    if is_prose and not _NOT_PROSE.fullmatch(name):
        return _sections(text, suffix in MARKDOWN_SUFFIXES)
    return code_units(text, suffix) or [_whole(text)]


def _whole(text: str) -> Unit:
    return Unit(start=0, end=len(text), section="", kind="text")


def _sections(text: str, markdown: bool) -> list[Unit]:
    """One unit a heading; a heading with nothing under it but deeper headings goes to the first of these.

    Of Markdown's front matter only the description is a unit; its title stands above all headings.
    """
    head = front_matter(text) if markdown else None
    found = spans(text, markdown=markdown)
    if len(found) == 1 and head is None:
        return [_whole(text)]
    title, start, description = (head.title, head.end, head.description) if head else ("", 0, (0, 0))
    units = [Unit(start=description[0], end=description[1], section=title, kind="section")]
    for span, following in zip(found, [*found[1:], None], strict=True):
        bare = not text[max(start, span.body) : span.end].strip()
        if following is not None and bare and following.level > span.level:
            continue
        units.append(Unit(start=start, end=span.end, section=_PATH.join(_below(title, span.path)), kind="section"))
        start = span.end
    return [unit for unit in units if text[unit.start : unit.end].strip()] or [_whole(text)]


def _below(title: str, path: Sequence[str]) -> Sequence[str]:
    """Put a title above headings, unless it is the first of them."""
    return path if not title or title.casefold() in (heading.casefold() for heading in path[:1]) else (title, *path)


def notebook(text: str) -> Extract:
    """Join what people wrote in a Jupyter notebook (code and prose, no outputs); each cell is a unit.

    A unit is called by the headings that it is under, of the prose above it, and its number among all cells.

    Raises:
        NoText: It is no notebook.
    """
    try:
        found: Any = json.loads(text)
        # Format 3 keeps the cells in work sheets, code as `input`, and headings as cells of their own.
        sheets = found["worksheets"] if "cells" not in found else [found]
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
        kinds = [cell.get("cell_type") for cell in cells]
        given = [cell.get("source", cell.get("input", "")) for cell in cells]
        sources = [source if isinstance(source, str) else "".join(source) for source in given]
        "".join(sources).encode()  # JSON can hold half a surrogate pair, which is no text
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise NoText("broken notebook") from None
    joined = _Joined()
    outline = _Outline()
    for number, (kind, source) in enumerate(zip(kinds, sources, strict=True), 1):
        found_spans = spans(source, markdown=True)[1:] if kind == "markdown" else []
        for span in found_spans[:1]:
            outline.enter(span.path[-1], span.level)
        joined.add(source, _PATH.join([*outline.path, f"cell {number}"]), "cell")
        for span in found_spans[1:]:
            outline.enter(span.path[-1], span.level)
    return joined.extract()


class _Outline:
    """The headings that hold at a place."""

    def __init__(self) -> None:
        self._above: list[tuple[int, str]] = []

    def enter(self, heading: str, level: int) -> None:
        while self._above and self._above[-1][0] >= level:
            self._above.pop()
        self._above.append((level, heading))

    @property
    def path(self) -> list[str]:
        return [heading for _, heading in self._above]


class _Joined:
    """A text that is put together of units, with a blank line between them."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._units: list[Unit] = []

    def add(self, text: str, section: str, kind: str) -> None:
        """Add a unit, unless nothing of it is visible."""
        if text.strip():
            start = self._units[-1].end + len("\n\n") if self._units else 0
            self._units.append(Unit(start=start, end=start + len(text), section=section, kind=kind))
            self._texts.append(text)

    def extract(self) -> Extract:
        return Extract("\n\n".join(self._texts), self._units)


_UNSEEN = ("script", "style", "nav", "template", "noscript", "svg", "iframe", "button", "select")
_INLINE_TAGS = """
a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark math q rp rt ruby s samp
small span strike strong sub sup time tt u var wbr
"""
_INLINE = frozenset(_INLINE_TAGS.split())
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLANKS = re.compile(r"[ \t\r\n\f\v]+")
_LINE_ENDS = re.compile(r" +\n")
_MANY_LINES = re.compile(r"\n{3,}")
_MARKED_SECTION = re.compile(r"<!\[(?!CDATA\[)(?:[^<>]*>)?")  # of SGML; to a browser it is a comment


def html(text: str) -> Extract:
    """Take the text out of a page, without scripts, styles and navigation; what stands under a heading is a unit.

    What stands under no heading of the first level is under the page's title, or that of its front matter.
    """
    from bs4 import BeautifulSoup, ParserRejectedMarkup

    head = front_matter(text)
    text = text[head.end :] if head else text
    with warnings.catch_warnings(action="ignore"):  # that this looks like XML, a file name or an address
        try:
            page = BeautifulSoup(text, "html.parser")
        except ParserRejectedMarkup:
            page = BeautifulSoup(_MARKED_SECTION.sub("", text), "html.parser")
    for tag in page(_UNSEEN):
        tag.decompose()
    joined = _Joined()
    outline = _Outline()
    if title := (head and head.title) or as_title(page.title.get_text() if page.title else ""):
        outline.enter(title, 1)
    section = _PATH.join(outline.path)
    parts: list[str] = []

    def finish() -> None:
        body = _LINE_ENDS.sub("\n", "".join(parts)).rstrip().strip("\n")
        joined.add(_MANY_LINES.sub("\n\n", body), section, "page")
        parts.clear()

    for level, part in _page_parts(page):
        if level:
            finish()
            outline.enter(" ".join(part.split()), level)
            section = _PATH.join(outline.path)
            part = f"{part.strip()}\n\n"
        parts.append(part)
    finish()
    return joined.extract()


def _page_parts(page: Any) -> Iterator[tuple[int, str]]:
    """Yield the visible text of a page in pieces, headings with their level, other pieces with 0."""
    from bs4 import CData, NavigableString, Tag
    from bs4.element import PreformattedString

    pending: list[Any] = [page]  # what is still to come, the next at the end; a text is yielded as it is
    written = "\n"  # the last piece, to see whether a blank is one too many
    while pending:
        node = pending.pop()
        if isinstance(node, Tag):
            if node.name in _HEADINGS:
                if heading := node.get_text(" ", strip=True).rstrip(" ¶"):
                    written = "\n"
                    yield _HEADINGS[node.name], heading
                else:
                    pending.append("\n")
            elif node.name == "pre":
                pending.append(f"\n{node.get_text()}\n")
            elif node.name == "br":
                pending.append("\n")
            else:
                before = after = "" if node.name in _INLINE else "\n"
                if node.name in ("td", "th"):
                    before, after = "", " "
                pending += [after, *reversed(node.contents), before]
            continue
        if isinstance(node, NavigableString):
            if isinstance(node, PreformattedString) and not isinstance(node, CData):  # comments, declarations
                continue
            node = _BLANKS.sub(" ", str(node))
            if written.endswith(("\n", " ")):
                node = node.removeprefix(" ")
        if node:
            written = node
            yield 0, node


def has_pdf() -> bool:
    """Tell whether the library that reads PDF files is installed."""
    return importlib.util.find_spec("pypdf") is not None


def pdf(data: bytes) -> Extract:
    """Take the text out of a PDF file; each page is a unit.

    Raises:
        NoText: It is locked, broken, or holds pictures only; or the library is not installed.
    """
    if not has_pdf():
        raise NoText(NO_PDF)
    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it has a warning for every oddity of a file
    joined = _Joined()
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):  # many are, with a password that is empty
            raise NoText("encrypted PDF")
        for number, page in enumerate(reader.pages, 1):
            text = page.extract_text().encode("utf-8", "replace").decode()
            joined.add(_LINE_ENDS.sub("\n", text).strip(), f"page {number}", "page")
    except NoText:
        raise
    except DependencyError:
        raise NoText("encrypted PDF (pip install cryptography)") from None
    except Exception:  # of any type: what a broken file does to the library is not foreseen there
        raise NoText("broken PDF") from None
    found = joined.extract()
    if not found.units:
        raise NoText("PDF without text")
    return found

"""A folder of text, Markdown and source files: which of them are documents, and what their text is.

The walk follows no link and opens nothing but regular files; whatever it leaves out, it names with a reason.
"""

import codecs
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Prose may put a paragraph, or a whole text, on one line; in code such lines are a machine's.
_PROSE = ".txt .text .md .markdown .mdx .rst .adoc .asciidoc .org .tex .textile .wiki"
_CODE = """
.py .pyi .pyw .pyx .pxd .ipynb .r .jl .m .mm .lua .pl .pm .t .rb .php .tcl .groovy .gradle .raku
.c .h .cc .cpp .cxx .hh .hpp .hxx .inl .cu .cuh .cl .zig .d .nim .v .sv .vhd .vhdl .asm .s
.java .kt .kts .scala .sc .clj .cljs .cljc .edn .cs .fs .fsx .vb .swift .dart .go .rs
.js .jsx .mjs .cjs .ts .tsx .mts .cts .vue .svelte .astro .coffee .elm .purs
.hs .lhs .ml .mli .re .res .ex .exs .erl .hrl .lisp .lsp .cl .el .scm .rkt .f .for .f90 .f95 .f03
.pas .pp .ada .adb .ads .cob .cbl .sol .move .cairo .proto .thrift .graphql .gql .sql .prql
.sh .bash .zsh .fish .ksh .bat .cmd .ps1 .psm1 .awk .sed .vim .nix .dockerfile .mk .mak .cmake .bzl .bazel
.html .htm .xhtml .xml .xsd .xsl .css .scss .sass .less .styl .jinja .j2 .tmpl .hbs .ejs .erb
.json .json5 .jsonc .yaml .yml .toml .ini .cfg .conf .properties .tf .tfvars .hcl
"""
_DATA = ".jsonl .ndjson .csv .tsv .parquet .arrow .feather .ipc"
PROSE_SUFFIXES = frozenset(_PROSE.split())
CODE_SUFFIXES = frozenset(_CODE.split())
DATA_SUFFIXES = frozenset(_DATA.split())
LEFT_OUT_FOLDERS = frozenset({"__pycache__", "node_modules", "bower_components", "site-packages"})
_LEFT_OUT_BY_CONTENTS = {"virtual environment": {"pyvenv.cfg"}, "index": {"manifest.json", "segments"}}

HEAD_BYTES = 8192
CONTROL_SHARE = 0.1  # more control characters than this in the head of a file: no text
LONG_LINE = 5_000  # characters
LONG_MEAN = 250  # characters a line; minified code lies far above it, code with one long literal below

_BYTE_ORDER_MARKS = (  # the longer first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CODING_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263
_ODD_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Tab, line ends, form feed, backspace and escape occur in texts.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")) + b"\x7f"


@dataclass(frozen=True, slots=True)
class Found:
    """A file that may be a document.

    Attributes:
        path: where it is.
        doc_id: the path from the root of its tree, with `/`.
        size: bytes.
        changed: time of its last change, nanoseconds.
    """

    path: str
    doc_id: str
    size: int
    changed: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or folder that is left out, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file; `encoding` is what it was decoded as."""

    text: str
    encoding: str


def walk(root: str | Path) -> Iterator[Found | Skipped]:
    """Lists a folder and those below it, sorted by the code points of the path, without following links."""
    pending: list[Iterator[Found | Skipped | tuple[str, str]]] = [_entries(os.fspath(root), "")]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif isinstance(entry, tuple):
            pending.append(_entries(*entry))
        else:
            yield entry


def _entries(folder: str, prefix: str) -> Iterator[Found | Skipped | tuple[str, str]]:
    """Lists one folder: files, what is left out, and (path, id prefix) of the folders to enter."""
    try:
        with os.scandir(folder) as scan:
            entries = [(entry, _status(entry)) for entry in scan]
    except OSError as error:
        yield Skipped(folder, _why(error))
        return
    names = {entry.name for entry, _ in entries}
    for why, marks in _LEFT_OUT_BY_CONTENTS.items():
        if prefix and marks <= names:
            yield Skipped(folder, why)
            return
    # A folder sorts as its contents do, with the slash: `a.txt` comes before `a/b`.
    entries.sort(key=lambda item: item[0].name + "/" * (item[1] is not None and stat.S_ISDIR(item[1].st_mode)))
    for entry, status in entries:
        if status is None:
            yield Skipped(entry.path, "vanished")
            continue
        mode = status.st_mode
        if reason := _left_out(entry, mode):
            yield Skipped(entry.path, reason)
        elif stat.S_ISDIR(mode):
            yield entry.path, f"{prefix}{entry.name}/"
        else:
            yield Found(entry.path, prefix + entry.name, status.st_size, status.st_mtime_ns)


def _status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _left_out(entry: "os.DirEntry[str]", mode: int) -> str | None:
    """Says why a directory entry is no document and no folder to enter, None where it may be one."""
    name = entry.name
    if stat.S_ISLNK(mode):
        return "symbolic link"
    if _ODD_NAME.search(name):
        return "file name with a line break, a control character or bytes that are no text"
    if stat.S_ISDIR(mode):
        if name.startswith("."):
            return "hidden folder"
        if name in LEFT_OUT_FOLDERS:
            return "folder of caches or dependencies"
        return None
    if not stat.S_ISREG(mode):
        return "not a regular file"
    if name.startswith("."):
        return "hidden file"
    suffixes = Path(name.lower()).suffixes
    if DATA_SUFFIXES.intersection(suffixes[-2:]):
        return "data file (give it as a corpus itself)"
    return None if is_text_name(name) else "not a text or source file"


def is_text_name(name: str) -> bool:
    """Tells whether a file may be text by its name: a known suffix, or none at all (Makefile, LICENSE)."""
    suffix = Path(name.lower()).suffix
    return not suffix or suffix in PROSE_SUFFIXES or suffix in CODE_SUFFIXES


def read_text(path: str | Path) -> TextFile | Skipped:
    """Reads one file of a tree, or says why it is no document."""
    path = os.fspath(path)
    suffix = Path(path.lower()).suffix
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (Path would not take every name that scandir gives)
            data = file.read(HEAD_BYTES)
            if data and _is_binary(data):
                return Skipped(path, "binary")
            data += file.read()
    except OSError as error:
        return Skipped(path, _why(error))
    if b"\0" in data and not _byte_order_mark(data):
        return Skipped(path, "binary")
    found = _decode(data, suffix)
    if found is None:
        return Skipped(path, "binary" if suffix else "no suffix, and not UTF-8 text")
    if suffix == ".ipynb" and found.text.strip():
        cells = _notebook_cells(found.text)
        if cells is None:
            return Skipped(path, "broken notebook")
        found = TextFile(cells, found.encoding)
    if not found.text.strip():
        return Skipped(path, "empty")
    if suffix in CODE_SUFFIXES and suffix != ".ipynb" and _is_minified(found.text):
        return Skipped(path, "minified")
    return found


def _is_binary(head: bytes) -> bool:
    if _byte_order_mark(head):
        return False
    return b"\0" in head or len(head) - len(head.translate(None, _CONTROL)) > CONTROL_SHARE * len(head)


def _byte_order_mark(data: bytes) -> tuple[bytes, str] | None:
    return next((mark for mark in _BYTE_ORDER_MARKS if data.startswith(mark[0])), None)


def _decode(data: bytes, suffix: str) -> TextFile | None:
    """Decodes a file by its byte order mark, its coding cookie, as UTF-8, or else byte by byte."""
    if marked := _byte_order_mark(data):
        mark, encoding = marked
        try:
            text = data[len(mark) :].decode(encoding)
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else TextFile(text, encoding.removesuffix("-le").removesuffix("-be"))
    candidates = ["utf-8"]
    if suffix in (".py", ".pyw", ".pyi"):
        cookies = map(_CODING_COOKIE.match, data.split(b"\n", 2)[:2])
        candidates[:0] = [cookie[1].decode() for cookie in cookies if cookie][:1]
    if suffix:  # a file without a suffix is taken for text only where it is UTF-8
        candidates += ["cp1252", "latin-1"]
    for encoding in candidates:
        try:
            text = data.decode(encoding)
            if encoding != "utf-8":
                text.encode()  # a cookie may name an escape encoding, which can make half a surrogate pair
            return TextFile(text, encoding)
        except (UnicodeError, LookupError):
            continue
    return None


def _is_minified(text: str) -> bool:
    lines = text.split("\n")
    return len(text) > LONG_MEAN * len(lines) and max(map(len, lines)) > LONG_LINE


def _notebook_cells(text: str) -> str | None:
    """Joins what people wrote in a Jupyter notebook (code and prose, no outputs); None where it is none."""
    try:
        notebook: Any = json.loads(text)
        # Format 3 keeps the cells in work sheets, and code as `input`.
        sheets = notebook["worksheets"] if "cells" not in notebook else [notebook]
        cells = [cell.get("source", cell.get("input", "")) for sheet in sheets for cell in sheet["cells"]]
        sources = [cell if isinstance(cell, str) else "".join(cell) for cell in cells]
        joined = "\n\n".join(source for source in sources if source.strip())
        joined.encode()  # JSON can hold half a surrogate pair, which is no text
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return joined


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()

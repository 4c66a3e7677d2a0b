"""A folder of text, Markdown and source files: which of them are documents, and what their text is.

The walk follows no link and opens nothing but regular files; whatever it leaves out, it names with a reason. A link to
a file of the tree is left out too: the file itself is there.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from retrieval.chunking import is_blank
from retrieval.errors import ConfigError
from retrieval.extract import NoText, byte_order_mark, decoded, html, notebook, own_units, pdf
from retrieval.ignore import IgnoreFiles, Patterns, ways_to
from retrieval.suffixes import (
    CODE_SUFFIXES,
    DATA_SUFFIXES,
    HTML_SUFFIXES,
    MARKDOWN_SUFFIXES,
    NOTEBOOK,
    PDF,
    is_text_name,
    suffix_of,
)
from retrieval.units import Unit

_DEPENDENCIES = frozenset(
    {"__pycache__", "node_modules", "bower_components", "jspm_packages", "site-packages", "dist-packages"}
)
_VENDOR_NAMES = """
_vendor _vendored vendored third_party third-party thirdparty 3rdparty 3rd_party 3rd-party extern externals godeps
"""
_VENDORED = frozenset(_VENDOR_NAMES.split())
# A package may be called so too: one that holds code itself, where tools for dependencies put folders only.
_MAYBE_VENDORED = frozenset({"vendor", "vendors"})
_PACKAGE_SUFFIXES = frozenset({".py", ".java", ".kt", ".scala", ".cs", ".go", ".rs", ".swift"})
# Of folders that are left out whatever they are called, by what lies in them: all of these names.
_MARKS = {
    "virtual environment": ({"pyvenv.cfg"}, {"conda-meta"}),
    "index": ({"manifest.json", "segments"},),
    "folder of caches or dependencies": ({"CACHEDIR.TAG"},),
    "build output": ({"CMakeCache.txt"}, {".rustc_info.json"}, {"maven-status"}, {"build.ninja", "meson-info"}),
    "vendored folder": ({"Manifest.lock", "Target Support Files"},),  # of CocoaPods
}
# Folders that a build tool makes beside the file that says what to build; one that holds what people write is kept.
_OF_PYTHON = ("pyproject.toml", "setup.py", "setup.cfg")
_OF_GRADLE = ("build.gradle", "build.gradle.kts")
_BUILT_BESIDE = {
    "target": frozenset({"Cargo.toml", "pom.xml", "build.sbt", "project.clj"}),
    "dist": frozenset({"package.json", *_OF_PYTHON}),
    "build": frozenset({"package.json", "CMakeLists.txt", "meson.build", *_OF_PYTHON, *_OF_GRADLE}),
    "_build": frozenset({"conf.py", "mix.exs", "dune-project"}),
    "site": frozenset({"mkdocs.yml"}),
    "_site": frozenset({"_config.yml"}),
}
_WRITTEN = _PACKAGE_SUFFIXES | MARKDOWN_SUFFIXES | {".rst", ".adoc"}
_OLD_ENVIRONMENTS = ({"bin", "lib"}, {"Scripts", "Lib"})  # without pyvenv.cfg
_ENVIRONMENT_NAMES = frozenset({"venv", "env", "virtualenv"})
_PACKAGE_RECORDS = (".egg-info", ".dist-info")
_LOCK_FILES = frozenset({"package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "packages.lock.json"})
_GENERATED_NAME = re.compile(
    r".*(_pb2(_grpc)?\.pyi?|\.pb\.(go|cc|h|swift|gw\.go)|_generated\.\w+|\.generated\.\w+|\.g\.(dart|cs)|"
    r"\.designer\.cs|\.freezed\.dart)",
    re.IGNORECASE,
)
_MINIFIED_NAME = re.compile(r".*[.-]min\.(js|mjs|cjs|css)", re.IGNORECASE)
_GENERATED = re.compile(
    r"@generated\b|\bDO NOT (?:EDIT|MODIFY)\b|"
    r"(?i:\bdo not (?:edit|modify)(?: (?:this file|manually|by hand|directly)\b|[.!]))|"
    r"(?i:^\W*(?:(?:this|the) (?:[\w.]+ ){1,3}(?:is|was|has been) |(?:source )?(?:code |file )?)"
    r"(?:(?:auto|machine)[- ]?generated|(?:automatically )?generated (?:by|from|with|using|automatically))\b)"
)
_COMMENT = re.compile(r"\s*(?:#|//|/?\*|--|;|%|<!--|\"\"\"|\(\*)")
_HEAD_LINES = 15  # of a file, in which it says that it was generated
_HEAD_LINE = 200  # characters of such a line

HEAD_BYTES = 8192
CONTROL_SHARE = 0.1  # more control characters than this in the head of a file: no text
LONG_LINE = 5_000  # characters
LONG_MEAN = 250  # characters a line; minified code lies far above it, code with one long literal below

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
        wanted: whether the user asked for it: it is read even where it was generated.
    """

    path: str
    doc_id: str
    size: int
    changed: int
    wanted: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or folder that is left out, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file, what it was decoded as (empty where it is no text itself), and its units if asked for."""

    text: str
    encoding: str
    units: Sequence[Unit] | None = None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user wants of trees beyond the rules, as patterns from the root in gitignore's syntax.

    `exclude` wins over `include`, and that over all rules but those on links, special files, and what is no text. As in
    git, what lies in a folder that is left out is not looked at, but on the way to a pattern with a `/` within.
    """

    include: Patterns
    exclude: Patterns
    ways: Patterns

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str]) -> Wishes:
        """Read the patterns.

        Raises:
            ConfigError: One is none.
        """
        for option, patterns in (("--include", include), ("--exclude", exclude)):
            for pattern in patterns:
                if not Patterns([pattern]):
                    raise ConfigError(f"{option} {pattern!r} is no pattern; expected one as in .gitignore: docs/*.md")
        return cls(Patterns(include), Patterns(exclude), ways_to(include))


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder to list.

    Attributes:
        path: where it is.
        prefix: what ids in it begin with.
        beside: the names of what lies beside it, its own included.
        ignored: the ignore files above it.
        wanted: whether the user asked for all that is in it.
        barred: why nothing in it is a document that the user did not ask for; empty where that is not so.
    """

    path: str
    prefix: str
    ignored: IgnoreFiles
    beside: Collection[str] = ()
    wanted: bool = False
    barred: str = ""


def walk(root: str | Path, wishes: Wishes | None = None) -> Iterator[Found | Skipped]:
    """Lists a folder and those below it, sorted by the code points of the path, without following links.

    Left out are what `.gitignore` files say (up to the root of the repository that the folder is in), hidden files and
    folders, dependencies, what a build made, and what is no text by its name.
    """
    start = os.fspath(root)
    wishes = wishes or Wishes.of((), ())
    pending = [_entries(_Folder(start, "", IgnoreFiles.above(start)), wishes)]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif isinstance(entry, _Folder):
            pending.append(_entries(entry, wishes))
        else:
            yield entry


def _entries(folder: _Folder, wishes: Wishes) -> Iterator[Found | Skipped | _Folder]:
    """Lists one folder: files, what is left out, and the folders to enter."""
    try:
        with os.scandir(folder.path) as scan:
            entries = [(entry, _status(entry)) for entry in scan]
    except OSError as error:
        yield Skipped(folder.path, _why(error))
        return
    names = {entry.name for entry, _ in entries}
    if folder.prefix and not folder.barred and (reason := _left_out_by_contents(folder, names)):
        if not folder.wanted and not wishes.ways.decision(folder.prefix.removesuffix("/"), folder=True):
            yield Skipped(folder.path, reason)
            return
        folder = replace(folder, barred=reason)
    folder = replace(folder, ignored=folder.ignored.within(folder.path, folder.prefix, names))
    # A folder sorts as its contents do, with the slash: `a.txt` comes before `a/b`.
    entries.sort(key=lambda item: item[0].name + "/" * _is_folder(item[1]))
    for entry, status in entries:
        if isinstance(status, str):
            yield Skipped(entry.path, status)
        else:
            yield _judged(entry, status, folder, names, wishes)


def _status(entry: os.DirEntry[str]) -> os.stat_result | str:
    """Look at an entry, or say why that cannot be done."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return "vanished"
    except OSError as error:
        return _why(error)


def _is_folder(status: os.stat_result | str) -> bool:
    return not isinstance(status, str) and stat.S_ISDIR(status.st_mode)


def _judged(
    entry: os.DirEntry[str], status: os.stat_result, folder: _Folder, names: Collection[str], wishes: Wishes
) -> Found | Skipped | _Folder:
    """Decide on one entry of a folder that holds these names: to be read, to be entered, or left out."""
    name, doc_id = entry.name, folder.prefix + entry.name
    is_folder = stat.S_ISDIR(status.st_mode)
    if reason := _never(name, status.st_mode):
        return Skipped(entry.path, reason)
    if wishes.exclude.decision(doc_id, folder=is_folder):
        return Skipped(entry.path, "--exclude")
    decision = wishes.include.decision(doc_id, folder=is_folder)
    wanted = (folder.wanted if decision is None else decision) and name != ".git"
    reason = folder.barred or _left_out(name, is_folder)
    if not reason and folder.ignored.leaves_out(doc_id, folder=is_folder):
        reason = "ignored by .gitignore"
    if is_folder and (wanted or not reason or wishes.ways.decision(doc_id, folder=True)):
        return _Folder(entry.path, f"{doc_id}/", folder.ignored, names, wanted, reason)
    if reason and not wanted:
        return Skipped(entry.path, reason)
    return Found(entry.path, doc_id, status.st_size, status.st_mtime_ns, wanted)


def _never(name: str, mode: int) -> str:
    """Say why an entry is no document whatever the user wants; empty where it may be one."""
    if stat.S_ISLNK(mode):
        return "symbolic link"
    if _ODD_NAME.search(name):
        return "file name with a line break, a control character or bytes that are no text"
    return "" if stat.S_ISDIR(mode) or stat.S_ISREG(mode) else "not a regular file"


def _left_out(name: str, is_folder: bool) -> str:
    """Say why an entry is left out by its name; empty where it is not."""
    lower = name.lower()
    if is_folder:
        if name.startswith("."):
            return "hidden folder"
        if lower in _DEPENDENCIES:
            return "folder of caches or dependencies"
        if lower.endswith(_PACKAGE_RECORDS):
            return "build output"
        return "vendored folder" if lower in _VENDORED else ""
    if name.startswith("."):
        return "hidden file"
    suffixes = Path(lower).suffixes
    if DATA_SUFFIXES.intersection(suffixes[-2:]):
        return "data file (give it as a corpus itself)"
    if not is_text_name(name):
        return "not a text or source file"
    if lower in _LOCK_FILES:
        return "lock file"
    if _MINIFIED_NAME.fullmatch(name):
        return "minified"
    return "generated file" if _GENERATED_NAME.fullmatch(name) else ""


def _left_out_by_contents(folder: _Folder, names: Collection[str]) -> str:
    """Say why a folder is left out by what is in it; empty where it is not."""
    for why, sets in _MARKS.items():
        if any(marks <= set(names) for marks in sets):
            return why
    own_name = folder.prefix.split("/")[-2].lower()
    if own_name in _MAYBE_VENDORED and not any(Path(name).suffix in _PACKAGE_SUFFIXES for name in names):
        return "vendored folder"
    if own_name in _ENVIRONMENT_NAMES and any(marks <= set(names) for marks in _OLD_ENVIRONMENTS):
        return "virtual environment"
    beside = _BUILT_BESIDE.get(own_name, frozenset()).intersection(folder.beside)
    if beside and not any(suffix_of(name) in _WRITTEN for name in names):
        return f"build output beside {min(beside)}"
    made = own_name == "build" and any(name.startswith("bdist.") for name in names)  # setuptools
    return "build output" if made else ""


def read_bytes(path: str | Path, *, follow: bool = False) -> bytes | Skipped:
    """Reads the bytes of one file of a tree, or says why it is no document; a binary file is left after its head.

    What became a link or a pipe since the folder was listed is left out, as it would be by the walk.

    Args:
        path: where it is.
        follow: whether it may be a link, since the user named it.
    """
    path = os.fspath(path)
    more = os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)  # a pipe without a writer would be waited for
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | more)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Skipped(path, "not a regular file")
            data = file.read(HEAD_BYTES)
            if data and not path.lower().endswith(PDF) and _is_binary(data):
                return Skipped(path, "binary")
            return data + file.read()
    except OSError as error:
        return Skipped(path, "symbolic link" if error.errno == errno.ELOOP else _why(error))


def read_text(path: str | Path, *, wanted: bool = False, follow: bool = False) -> TextFile | Skipped:
    """Reads one file of a tree, or says why it is no document; see `read_bytes` and `text_of`."""
    data = read_bytes(path, follow=follow)
    return data if isinstance(data, Skipped) else text_of(path, data, wanted=wanted)


def text_of(path: str | Path, data: bytes, *, wanted: bool = False, units: bool = False) -> TextFile | Skipped:
    """Takes the text out of one file of a tree, or says why it is no document.

    Args:
        path: where it is.
        data: what is in it.
        wanted: whether it is read even where it was generated.
        units: whether it is cut into units.
    """
    path = os.fspath(path)
    try:
        return _text_of(Path(path).name, data, wanted, units)
    except NoText as reason:
        return Skipped(path, str(reason))


def _text_of(name: str, data: bytes, wanted: bool, units: bool) -> TextFile:
    suffix = suffix_of(name)
    if suffix == PDF:
        made = pdf(data)
        if is_blank(made.text):
            raise NoText("PDF without text")
        return TextFile(made.text, "", made.units)
    if b"\0" in data and not byte_order_mark(data):
        raise NoText("binary")
    found = decoded(data, suffix)
    if found is None:
        raise NoText("binary" if suffix else "no suffix, and not UTF-8 text")
    if is_blank(found.text):
        raise NoText("empty")
    if not wanted and suffix in CODE_SUFFIXES and _is_generated(found.text):
        raise NoText("generated file")
    if suffix == NOTEBOOK or suffix in HTML_SUFFIXES:
        made = notebook(found.text) if suffix == NOTEBOOK else html(found.text)
        if is_blank(made.text):
            raise NoText("empty")
        return TextFile(made.text, found.encoding, made.units)
    if not wanted and suffix in CODE_SUFFIXES and _is_minified(found.text):
        raise NoText("minified")
    return TextFile(found.text, found.encoding, own_units(name, found.text) if units else None)


def digest_of(data: bytes) -> str:
    """Returns the SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _is_binary(head: bytes) -> bool:
    if byte_order_mark(head):
        return False
    return b"\0" in head or len(head) - len(head.translate(None, _CONTROL)) > CONTROL_SHARE * len(head)


def _is_minified(text: str) -> bool:
    lines = text.split("\n")
    return len(text) > LONG_MEAN * len(lines) and max(map(len, lines)) > LONG_LINE


def _is_generated(text: str) -> bool:
    """Tells whether a comment in the first lines says that a program wrote the file."""
    head = (line[:_HEAD_LINE] for line in text.split("\n", _HEAD_LINES)[:_HEAD_LINES])
    return any(_COMMENT.match(line) and _GENERATED.search(line) for line in head)


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()

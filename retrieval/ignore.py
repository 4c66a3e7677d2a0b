"""What `.gitignore` files leave out: every level of them, as git reads them.

pathspec turns a pattern into a regular expression; which file's patterns hold where, and which of them wins, is decided
here. Only patterns count: a file that git tracks although it is ignored is left out all the same. Known to differ from
git are two oddities: a slash in a set of characters (`[a/]`), and two stars that touch other characters (`a**/b`).
"""

from __future__ import annotations

import codecs
import functools
import os
import re
import stat
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

GITIGNORE = ".gitignore"
_REPOSITORY = ".git"
_EXCLUDE = f"{_REPOSITORY}/info/exclude"
_LONGEST = 8192  # bytes of a pattern: every one of a path's escaped; a longer one is no pattern of a path
_ESCAPED = re.compile(r"(?:\\.|[^\\])*", re.DOTALL)
_STARS = re.compile(r"\*{3,}")
_NAME = re.compile(r"[\w.-]+")  # of a path or in a pattern, where it stands for itself
_SUFFIX = re.compile(r"\.[\w-]+\Z")
# In a regular expression of pathspec's: a star, and what stands between it and the next one of the same name.
_STAR = r"\[\^/\]\*"
_MANY_STARS = re.compile(f"(?:{_STAR}){{2,}}")
_ONE = r"\[\^/\](?!\*)|\[(?!\^/\])\^?\]?(?:\\.|[^\]\\])*\]|\\.|[^\\\[(/]"  # of anything but a star or a slash
_TO_NEXT_STAR = re.compile(f"{_STAR}((?:{_ONE})++)(?={_STAR})", re.DOTALL)
_CLASSES = {
    "[:alnum:]": "a-zA-Z0-9",
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:space:]": r" \t\n\r\f\v",
    "[:upper:]": "A-Z",
    "[:xdigit:]": "0-9a-fA-F",
}


@dataclass(frozen=True, slots=True)
class _Rule:
    """One pattern; it answers for what it matches itself, not for what lies below that."""

    leaves_out: bool
    folders_only: bool
    regex: re.Pattern[str]

    def matches(self, path: str, folder: bool) -> bool:
        if self.folders_only and not folder:
            return False
        match = self.regex.search(path)
        # pathspec's only group is the slash behind a folder that the pattern matched, with the path below it.
        return match is not None and match.lastgroup is None


def _rule(line: str) -> _Rule | None:
    """Read one line; None for a comment, and for a pattern that matches nothing in git."""
    trimmed = line.rstrip(" ")
    if len(trimmed) > _LONGEST:
        return None
    if not _ESCAPED.fullmatch(trimmed) and trimmed != line:  # a blank that is escaped stays
        trimmed += " "
    if not trimmed or line.startswith("#") or not _ESCAPED.fullmatch(trimmed):
        return None
    negated = trimmed.startswith("!")
    body = trimmed.removeprefix("!")
    folders_only = body.endswith("/")
    body = body.removesuffix("/")
    if not body:
        return None
    if body[0] in "!#":
        body = f"\\{body}"
    if body[-1].isspace() and body[-2:-1] != "\\":  # pathspec would trim what git does not
        body = f"{body[:-1]}[{body[-1]}]"
    body = _STARS.sub("**", body)  # to git they are all the same, as long as they are more than one
    for name, members in _CLASSES.items():
        body = body.replace(name, members)
    try:
        found, _ = GitIgnoreSpecPattern.pattern_to_regex(body)
        # In git no set of characters holds the slash.
        with warnings.catch_warnings(action="ignore"):  # of a bracket within brackets
            regex = None if found is None else re.compile(_straight(found).replace("[^", "[^/"))
    except (GitIgnorePatternError, re.error):
        return None
    return None if regex is None else _Rule(not negated, folders_only, regex)


def _straight(regex: str) -> str:
    """Make a star take the first place that fits and never another: what is left for the next one is the longest.

    Else a name that a pattern of many stars nearly matches is tried in all ways that it could be shared among them.
    """
    return _TO_NEXT_STAR.sub(r"(?>[^/]*?\1)", _MANY_STARS.sub("[^/]*", regex))


def _octets(text: str) -> str:
    """Return a text with one character a byte: git matches bytes, so that `?` is no `é`."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


class _Line:
    """A line of an ignore file, which becomes a rule when it is first asked: of thousands most never are."""

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text

    @functools.cached_property
    def rule(self) -> _Rule | None:
        return _rule(self.text)


def _end(pattern: str) -> str:
    """Return the name, or else the `.suffix`, that whatever a pattern matches has; empty where neither is certain."""
    name = pattern.rstrip(" ").removeprefix("!").removesuffix("/").rpartition("/")[2]
    found = _NAME.fullmatch(name) or _SUFFIX.search(name)
    return found[0] if found else ""


class Patterns:
    """Patterns in gitignore's syntax, the last one that matches decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Read patterns, one a line; what is no pattern in git is left out."""
        self._lines: dict[str, list[_Line]] = {}  # by how the names end that they can match
        for number, line in enumerate(map(_octets, lines)):
            self._lines.setdefault(_end(line), []).append(_Line(number, line))

    def __bool__(self) -> bool:
        """Whether there is any."""
        return any(line.rule for lines in self._lines.values() for line in lines)

    def decision(self, path: str, *, folder: bool) -> bool | None:
        """Say whether a path is matched (True), taken out again by a `!` pattern (False), or neither (None).

        Args:
            path: From the folder that the patterns stand in, with `/`.
            folder: Whether it is one. What lies below a matched folder is for the caller to treat like it.
        """
        path = _octets(path)
        name = path.rpartition("/")[2]
        suffix = _SUFFIX.search(name)
        ends = {"", name, suffix[0] if suffix else ""}
        lines = [line for end in ends for line in self._lines.get(end, ())]
        lines.sort(key=lambda line: line.number, reverse=True)
        rules = (line.rule for line in lines)
        return next((rule.leaves_out for rule in rules if rule and rule.matches(path, folder)), None)


def ways_to(patterns: Sequence[str]) -> Patterns:
    """Return patterns of the folders on the way to what some patterns with a `/` within match."""

    def folders() -> Iterator[str]:
        for pattern in patterns:
            parts = pattern.strip("/").split("/")[:-1]
            for number, part in enumerate(parts, 1):
                yield f"/{'/'.join(parts[:number])}/"
                if part == "**":
                    break

    return Patterns(line for line in folders() if not line.startswith("/!"))


@dataclass(frozen=True, slots=True)
class _Level:
    start: int  # characters of a path, from the repository's root, that lie before its folder
    patterns: Patterns


@dataclass(frozen=True, slots=True)
class IgnoreFiles:
    """The ignore files that hold in a folder: its own and those above it, up to the root of its repository."""

    location: str = ""  # of the tree within its repository: empty, or with a slash at its end
    levels: tuple[_Level, ...] = ()  # the last one that decides wins

    @classmethod
    def above(cls, root: str) -> IgnoreFiles:
        """Return those that hold in a tree because of the folders above it.

        There are none where the tree is in no repository, or is ignored itself: whoever names an ignored folder wants
        what is in it.
        """
        tree = Path(os.path.realpath(root))
        top = next((folder for folder in (tree, *tree.parents) if os.path.lexists(folder / _REPOSITORY)), tree)
        found, location = cls(), ""
        for name in tree.relative_to(top).parts:
            found = found._with(top / location, len(location))
            if found.leaves_out(location + name, folder=True):
                return cls()
            location += f"{name}/"
        return replace(found, location=location)

    def within(self, folder: str, prefix: str, names: Collection[str]) -> IgnoreFiles:
        """Return those that hold in a folder of the tree; a repository in a repository begins anew.

        Args:
            folder: Where it is.
            prefix: Its path from the tree's root, with a slash at its end; empty for the root.
            names: What is in it.
        """
        if GITIGNORE not in names and _REPOSITORY not in names:
            return self
        above = replace(self, levels=()) if prefix and _REPOSITORY in names else self
        return above._with(Path(folder), len(self.location + prefix))

    def _with(self, folder: Path, start: int) -> IgnoreFiles:
        found = (_read(folder / _EXCLUDE), _read(folder / GITIGNORE))
        return replace(self, levels=(*self.levels, *(_Level(start, patterns) for patterns in found if patterns)))

    def leaves_out(self, doc_id: str, *, folder: bool) -> bool:
        """Tell whether a file or folder is ignored whose parents are not."""
        path = self.location + doc_id
        decisions = (level.patterns.decision(path[level.start :], folder=folder) for level in reversed(self.levels))
        return next((decision for decision in decisions if decision is not None), False)


def _read(file: Path) -> Patterns:
    """Read an ignore file; one that is no regular file, or may not be read, has no patterns, as in git."""
    try:
        data = file.read_bytes() if stat.S_ISREG(file.lstat().st_mode) else b""
    except OSError:
        data = b""
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    return Patterns(line.removesuffix("\r") for line in text.split("\n"))

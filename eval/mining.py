"""A benchmark out of anybody's source tree: what documents a function is the query, its bare code the answer.

The idea is that of CodeSearchNet (Husain et al., 2019), with stricter rules: equal functions and shared summaries
are left out, no answer holds its query, and a file is in one split only.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from time import perf_counter
from typing import Any
from urllib.parse import quote

from retrieval.counts import many
from retrieval.errors import DataError
from retrieval.eval.beir import check_free, write_benchmark
from retrieval.eval.benchmark import NO_TITLES, Card, Document
from retrieval.eval.commented import commented_functions
from retrieval.eval.functions import Function, python_functions
from retrieval.eval.leaks import key, occurs
from retrieval.eval.summaries import Summary, summary
from retrieval.grammars import missing_grammar
from retrieval.tree import Skipped, read_text, walk

SPLITS = ("train", "dev", "test")
MIN_FILES = 50  # with a query; a tree with fewer is all test


@dataclass(frozen=True, slots=True)
class Language:
    """A language that functions are mined from.

    Attributes:
        name: Goes into the metadata of each document.
        functions: Finds the functions of a file's text; raises DataError where it cannot.
    """

    name: str
    functions: Callable[[str], Sequence[Function]]


def _commented(name: str, suffixes: str) -> dict[str, Language]:
    """Make the entries of a language that has a grammar, by suffix."""
    return {
        suffix: Language(name, functools.partial(commented_functions, suffix=suffix)) for suffix in suffixes.split()
    }


LANGUAGES: Mapping[str, Language] = {  # by suffix
    ".py": Language("python", python_functions),
    **_commented("javascript", ".js .jsx .mjs .cjs"),
    **_commented("typescript", ".ts .tsx .mts .cts"),
    **_commented("java", ".java"),
    **_commented("go", ".go"),
    **_commented("rust", ".rs"),
    **_commented("c", ".c"),
    **_commented("cpp", ".h .cc .cpp .cxx .hh .hpp .hxx"),
    **_commented("csharp", ".cs"),
    **_commented("ruby", ".rb"),
    **_commented("php", ".php"),
    **_commented("bash", ".sh .bash"),
}

_TEST_FOLDERS = frozenset({"test", "tests", "__tests__"})
_TEST_FILE = re.compile(r"test_.*|.*[._-](?:tests?|spec)\.\w+|tests?\.\w+|conftest\.py|.*Tests?\.(?:java|cs|php)")


@dataclass(frozen=True, kw_only=True)
class MiningReport:
    """What became of a source tree.

    Attributes:
        files: Source files that functions were looked for in.
        functions: Functions and methods found in them.
        documents: Functions in the corpus.
        undocumented: Documents without a documentation; they are there to be told apart, as in real life.
        pairs: Queries by split; each has one relevant document.
        left_out: Functions that are no documents, by reason.
        no_query: Documents whose documentation is no query, by reason.
        skipped: Files and folders of the tree that were not looked at, by reason.
        unparsed: Files that are not of their language, with the reason; also counted in `skipped`.
        notices: What a reader should know before trusting a number.
        seconds: Wall-clock time of it all.
    """

    files: int
    functions: int
    documents: int
    undocumented: int
    pairs: Mapping[str, int]
    left_out: Mapping[str, int] = field(default_factory=dict)
    no_query: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    unparsed: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON holds it."""
        counts = ("pairs", "left_out", "no_query", "skipped")
        lists = ("unparsed", "notices")
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return plain | {name: dict(plain[name]) for name in counts} | {name: list(plain[name]) for name in lists}


def make_benchmark(
    repository: str | Path,
    out: str | Path,
    *,
    name: str = "",
    licence: str = "",
    progress: Callable[[int], None] | None = None,
) -> MiningReport:
    """Write a benchmark of a source tree: a BEIR folder with an identity card.

    A document is a function or method without its documentation, with an empty title (its name is in its code).
    A query is the first paragraph of the documentation, see `retrieval.eval.summaries`. The splits are drawn by
    file, from the SHA-256 of its path: 80 % train, 10 % dev, 10 % test. The same tree gives the same bytes.

    No documents: test and generated files; trivial, test and special functions, overloads; functions whose code
    equals an earlier one's. Documents, but no queries: those without documentation; whose summary is unusable,
    is shared with another document (in any case and spacing), or occurs in the code.

    Args:
        repository: A folder; links are not followed, hidden and dependency folders not entered.
        out: The folder to make; one that is there has to be empty.
        name: Of the benchmark; empty: the name of the repository's folder.
        licence: Of the sources, for the card.
        progress: Called with the number of source files read so far.

    Raises:
        ConfigError: `out` exists and is not an empty folder.
        DataError: `repository` is no folder, or nothing in it makes a pair; says what was seen.
    """
    started = perf_counter()
    root, folder = Path(repository), Path(out)
    if not root.is_dir():
        raise DataError(
            f"{root}: {'not a folder' if root.exists() else 'no such folder'}; expected the folder of a source tree"
        )
    check_free(folder)  # before the work, as mining takes its time
    tree = _Tree(root, progress or (lambda files: None))
    mined = _settled(_unequal(tree))
    pairs, notices = _drawn([item for item in mined if not item.no_query])
    no_query = _sorted(Counter(item.no_query for item in mined if item.no_query))
    if not any(pairs.values()):
        raise DataError(f"{root}: no documented functions to make a benchmark of ({tree.seen(no_query)})")
    report = MiningReport(
        files=tree.files,
        functions=tree.functions,
        documents=len(mined),
        undocumented=sum(not item.function.documentation for item in mined),
        pairs={split: len(pairs[split]) for split in SPLITS},
        left_out=_sorted(tree.left_out),
        no_query=no_query,
        skipped=_sorted(tree.skipped),
        unparsed=tuple(tree.unparsed),
        notices=notices,
    )
    write_benchmark(
        folder,
        (item.document() for item in mined),
        {item.query_id: item.summary.text for item in mined if not item.no_query},
        {split: {item.query_id: {item.doc_id: 1} for item in pairs[split]} for split in SPLITS if pairs[split]},
        _card(name or root.resolve().name, licence, report),
    )
    return replace(report, seconds=perf_counter() - started)


@dataclass(frozen=True, slots=True)
class _Item:
    """A document to be: a function, where it is, and what it is asked for with."""

    path: str
    language: str
    function: Function
    doc_id: str
    summary: Summary
    no_query: str = ""

    @property
    def query_id(self) -> str:
        """Not the document's id: tools leave out hits with the id of their query."""
        return f"q:{self.doc_id}"

    def document(self) -> Document:
        found = self.function
        metadata = {"path": self.path, "symbol": found.name, "start_line": found.start_line}
        metadata |= {"end_line": found.end_line, "language": self.language}
        return Document(doc_id=self.doc_id, text=found.code, metadata=metadata)


class _Tree:
    """The functions of a source tree's files, and the counts of all that is not among them."""

    def __init__(self, root: Path, progress: Callable[[int], None]) -> None:
        self._root = root
        self._progress = progress
        self.files = self.functions = 0
        self.skipped: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.unparsed: list[str] = []

    def __iter__(self) -> Iterator[tuple[str, Language, Function]]:
        for path, language, text in self._texts():
            try:
                functions = language.functions(text)
            except DataError as error:
                self.skipped[f"not {language.name} that can be parsed"] += 1
                self.unparsed.append(f"{path}: {error}")
                continue
            self.files += 1
            self._progress(self.files)
            self.functions += len(functions)
            for function in functions:
                if function.left_out:
                    self.left_out[function.left_out] += 1
                else:
                    yield path, language, function

    def _texts(self) -> Iterator[tuple[str, Language, str]]:
        """Yield path, language and text of the files that people wrote, tests excepted."""
        for entry in walk(self._root):
            if isinstance(entry, Skipped):
                self.skipped[entry.reason] += 1
                continue
            path = PurePosixPath(entry.doc_id)
            language = LANGUAGES.get(path.suffix.lower())
            if language is None:
                self.skipped["no language that functions are mined from"] += 1
            elif language.name != "python" and (missing := missing_grammar(path.suffix)):
                self.skipped[f"no grammar of {missing}"] += 1
            elif _TEST_FOLDERS.intersection(path.parts[:-1]) or _TEST_FILE.fullmatch(path.name):
                self.skipped["test file"] += 1
            elif isinstance(text := read_text(entry.path), Skipped):
                self.skipped[text.reason] += 1
            else:
                yield entry.doc_id, language, text.text

    def seen(self, no_query: Mapping[str, int]) -> str:
        """Say what was found, for the message that it is not enough."""
        parts = [f"{many(self.files, 'source file')} read", f"{many(self.functions, 'function')} in them"]
        for what, counts in (("skipped", self.skipped), ("left out", self.left_out), ("without a query", no_query)):
            parts += [f"{count} {what}: {reason}" for reason, count in _sorted(counts).items()]
        return ", ".join(parts)


def _unequal(tree: _Tree) -> list[_Item]:
    """Give each function an id and leave out those that equal one of an earlier path or line."""
    fingerprints: set[str] = set()
    doc_ids: set[str] = set()
    items: list[_Item] = []
    for path, language, function in tree:
        if function.fingerprint in fingerprints:
            tree.left_out["equal to an earlier function"] += 1
            continue
        fingerprints.add(function.fingerprint)
        doc_id = f"{fitting(path)}#{function.name}"
        if doc_id in doc_ids:
            doc_id += f"@{function.start_line}"
        doc_ids.add(doc_id)
        items.append(_Item(path, language.name, function, doc_id, summary(function.documentation)))
    return items


def fitting(path: str) -> str:
    """Write a path so that it fits one column of a TREC run and ends at the first `#`; reversible."""
    return "".join(quote(char, safe="") if char.isspace() or char in "%#\ufeff" else char for char in path)


def _settled(items: Sequence[_Item]) -> list[_Item]:
    """Say of each document why its summary is no query, if it is none."""
    keys = [key(item.summary.text) for item in items]
    shared = Counter(words for words, item in zip(keys, items, strict=True) if not item.summary.unusable)

    def why(item: _Item, words: str) -> str:
        if not item.function.documentation:
            return "no documentation"
        if item.summary.unusable:
            return item.summary.unusable
        if shared[words] > 1:
            return "summary shared with another document"
        return "summary occurs in the code" if occurs(item.summary.text, item.function.code) else ""

    return [replace(item, no_query=why(item, words)) for item, words in zip(items, keys, strict=True)]


def _drawn(items: Sequence[_Item]) -> tuple[dict[str, list[_Item]], tuple[str, ...]]:
    """Draw the splits, by file, and say what is odd about them."""
    splits = {path: split_of(path) for path in dict.fromkeys(item.path for item in items)}
    notices: list[str] = []
    if len(splits) < MIN_FILES or "test" not in splits.values():
        splits = dict.fromkeys(splits, "test")
        few = f"{many(len(splits), 'file')}, fewer than {MIN_FILES}"
        notices.append(f"queries come from {few}: all are in test, none in train and dev")
    elif missing := [split for split in SPLITS if split not in splits.values()]:
        notices.append(f"no file fell into {' and '.join(missing)}")
    return {split: [item for item in items if splits[item.path] == split] for split in SPLITS}, tuple(notices)


def split_of(path: str) -> str:
    """Draw the split of all that comes from one file: 80 % train, 10 % dev, 10 % test."""
    number = int.from_bytes(sha256(path.encode()).digest()[:8], "big") % 10
    return SPLITS[max(0, number - 7)]  # 0 to 7: train, 8: dev, 9: test


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    """The largest counts first, equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _card(name: str, licence: str, report: MiningReport) -> Card:
    def listed(counts: Mapping[str, int]) -> str:
        return "; ".join(f"{count} {reason}" for reason, count in counts.items()) or "none"

    return Card(
        name=name,
        split="test",
        direction="text -> code",
        title=NO_TITLES,
        source=f"mined from {many(report.files, 'source file')} of {name}",
        licence=licence or "that of the sources",
        notes=(
            "query: the first paragraph of a function's docstring, or else of the comment above it",
            "document: a function or method without documentation; the one that the query documented is relevant",
            f"{report.documents} of {report.functions} functions are documents, {report.undocumented} of them had no "
            "documentation and are there to be told apart",
            f"functions left out: {listed(report.left_out)}",
            f"documents without a query: {listed(report.no_query)}",
            f"files and folders skipped: {listed(report.skipped)}",
            "splits by file (SHA-256 of its path: 80 % train, 10 % dev, 10 % test) over one corpus for all",
            *report.notices,
        ),
    )

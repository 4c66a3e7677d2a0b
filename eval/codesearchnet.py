"""CodeSearchNet (Husain and others, 2019): functions of open source projects, searched by their documentation.

The official layout is `<language>/final/jsonl/<split>/<language>_<split>_<n>.jsonl.gz`; flat folders of such
files, and of `<split>.jsonl`, are read as well. The Challenge is `annotationStore.csv`: 99 queries whose results
experts judged, in six languages, from 0 (irrelevant) to 3 (exact).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retrieval.errors import DataError
from retrieval.eval.benchmark import Benchmark, Card, Document, choose_split
from retrieval.eval.docstrings import occurs, without_docstring
from retrieval.eval.sources import Census, Record, find_file, first_record, read_lines
from retrieval.formats import read_file
from retrieval.lines import Rows

SOURCE = "CodeSearchNet, github.com/github/CodeSearchNet"
LICENCE = "each function under the licence of its project (<language>_licenses.pkl lists them); the collection: MIT"
_PLACES = ("*", "*/*", "jsonl/*/*", "final/jsonl/*/*", "*/final/jsonl/*/*", "*/*/final/jsonl/*/*")
_PART = re.compile(r"(?P<language>\w+)_(?P<split>train|valid|test)_(?P<part>\d+)\.jsonl(?:\.gz)?")
_WHOLE = re.compile(r"(?P<split>train|valid|test)\.jsonl(?:\.gz)?")
_ANNOTATIONS = "annotationStore.csv"
_KEPT = ("repo", "path", "func_name", "url")

_Files = dict[str, dict[str, dict[int, Path]]]  # by language, split and part


def recognises(path: Path) -> bool:
    """Tell whether there are files of CodeSearchNet at a path."""
    return not recognises_challenge(path) and bool(_found(path))


def load(path: Path, split: str | None) -> Benchmark:
    """Load a split of one language.

    Raises:
        DataError: there is none, there are several languages, the split is not there, or a file is broken.
    """
    found = _found(path)
    if not found:
        raise DataError(f"{path}: no file of CodeSearchNet; expected <language>_<split>_<n>.jsonl.gz")
    if len(found) > 1:
        listed = ", ".join(sorted(found))
        raise DataError(f"{path}: several languages ({listed}); give the folder of one of them")
    ((language, splits),) = found.items()
    split = choose_split(path, list(splits), split)
    parts = splits[split]
    files = [parts[part] for part in sorted(parts)]
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    census = Census()
    counts: Counter[str] = Counter()
    texts: set[int] = set()
    for function in _functions(files, language):
        census.add(function.text)
        counts["tokens"] += function.by_tokens
        counts["leaks"] += function.leaks
        if not function.query:
            counts["silent"] += 1
            continue
        counts["repeated"] += hash(function.query) in texts
        texts.add(hash(function.query))
        query_id = f"{function.doc_id}#query"
        queries[query_id] = function.query
        qrels[query_id] = {function.doc_id: 1}
    if not queries:
        raise DataError(f"{path}: no function with documentation in split {split!r}")
    missing = sorted(set(range(max(parts) + 1)) - set(parts))
    notes = (*_notes(counts, language), *census.notes(), *(f"part {part} of the split is missing" for part in missing))
    card = Card(
        name=f"CodeSearchNet {language}",
        split=split,
        direction="documentation -> code",
        pool="all functions of the split; csn-999 ranks each function among 999 others",
        title="no titles: a function's name stands in its code",
        profile="csn-999",
        source=SOURCE,
        licence=LICENCE,
        documents=census.documents,
        queries=len(queries),
        judgements=len(queries),
        duplicates=census.duplicates,
        notes=notes,
    )

    def corpus() -> Iterator[Document]:
        for function in _functions(files, language):
            yield Document(doc_id=function.doc_id, text=function.text, metadata=function.metadata)

    return Benchmark(card=card, queries=queries, qrels=qrels, corpus=corpus)


def _found(path: Path) -> _Files:
    """Find the files by language, split and part.

    Raises:
        DataError: a part is there twice.
    """
    found: _Files = {}
    for file in [path] if path.is_file() else (file for place in _PLACES for file in path.glob(f"{place}.jsonl*")):
        if named := _PART.fullmatch(file.name):
            language, part = named["language"], int(named["part"])
        elif named := _WHOLE.fullmatch(file.name):
            record = first_record(file)
            # With an `idx` it is CodeXGLUE's AdvTest.
            if record is None or not record.has("code") or not record.has("docstring") or record.has("idx"):
                continue
            language, part = str(record.fields.get("language", file.parent.name)), 0
        else:
            continue
        parts = found.setdefault(language, {}).setdefault(named["split"], {})
        if parts.setdefault(part, file) != file:
            raise DataError(f"{file} and {parts[part]} are the same part of {language} {named['split']}; remove one")
    return found


@dataclass(frozen=True, slots=True)
class _Function:
    doc_id: str
    text: str
    query: str
    by_tokens: bool  # its text is its tokens
    leaks: bool  # its query stands in its text
    metadata: Mapping[str, Any]


def _functions(files: Iterable[Path], language: str) -> Iterator[_Function]:
    """Read the functions of a split, with the same ids each time."""
    seen: set[int] = set()
    for file in files:
        for record in read_lines(file):
            url = record.fields.get("url")
            doc_id = url if isinstance(url, str) and url and url.split() == [url] else ""
            if not doc_id or hash(doc_id) in seen:
                doc_id = f"{file.name}#{record.number}"
            seen.add(hash(doc_id))
            query = documentation(record)
            code = searchable(record, query, python=language == "python")
            metadata = {name: record.fields[name] for name in _KEPT if isinstance(record.fields.get(name), str)}
            yield _Function(doc_id, code.text, query, code.by_tokens, code.leaks, metadata)


def documentation(record: Record) -> str:
    """Return the query of a function: the tokens of its documentation's first paragraph, as the official script.

    Where there are no tokens, the first paragraph itself; empty without documentation.
    """
    if record.has("docstring_tokens"):
        return record.words("docstring_tokens").strip()
    first = re.split(r"\n\s*\n", record.text("docstring").strip(), maxsplit=1)[0]
    return " ".join(first.split())


@dataclass(frozen=True, slots=True)
class Searchable:
    """The text of a function that is searched.

    Attributes:
        text: its code without its docstring.
        by_tokens: whether that is its tokens, joined by blanks.
        leaks: whether its query stands in it all the same.
    """

    text: str
    by_tokens: bool
    leaks: bool


def searchable(record: Record, query: str, *, python: bool) -> Searchable:
    """Take the docstring out of a function's code.

    Only Python's documentation lies inside the code. Where it cannot be cut out, or the query still stands in
    the code, the function's tokens are taken, which hold no docstring.

    Raises:
        DataError: a field is missing, or the docstring cannot be cut out and there are no tokens.
    """
    code = record.text("code", "function")
    tokens = record.words("code_tokens", "function_tokens") if record.has("code_tokens", "function_tokens") else ""
    if python:
        try:
            code = without_docstring(code)
        except ValueError as error:
            if not tokens:
                raise record.error(f"{error}, and there are no 'code_tokens' to take instead") from None
            return Searchable(tokens, True, occurs(query, tokens))
    leaks = occurs(query, code)
    if leaks and tokens and not occurs(query, tokens):
        return Searchable(tokens, True, False)
    return Searchable(code, False, leaks)


def _notes(counts: Counter[str], language: str) -> tuple[str, ...]:
    """Say what a query and a document are, and what was found."""
    removed = "with the docstring cut out" if language == "python" else "which holds no documentation comment"
    notes = [
        "query: the documentation's first paragraph, as docstring_tokens joined by blanks (the official queries)",
        f"document: the function's code as written, {removed} (the official baselines read code_tokens)",
    ]
    if counts["tokens"]:
        notes.append(f"{counts['tokens']} documents are code_tokens joined by blanks: no docstring could be cut out")
    if counts["leaks"]:
        notes.append(f"{counts['leaks']} documents hold the words of their own query, in a comment or a string")
    if counts["silent"]:
        notes.append(f"{counts['silent']} functions without documentation are in the pool, without a query")
    if counts["repeated"]:
        notes.append(f"{counts['repeated']} queries repeat the text of an earlier one; each has one right function")
    return tuple(notes)


def recognises_challenge(path: Path) -> bool:
    """Tell whether the judgements of the Challenge are at a path."""
    return find_file(path, _ANNOTATIONS) is not None


def load_challenge(path: Path, split: str | None) -> Benchmark:
    """Load the judgements of one language; the splits are the languages.

    Raises:
        DataError: there are no judgements, the language is not there, or the file is broken.
    """
    file = find_file(path, _ANNOTATIONS)
    if file is None:
        raise DataError(f"{path}: no {_ANNOTATIONS} there")
    texts: dict[str, str] = {}
    ratings: dict[str, dict[str, dict[str, list[int]]]] = {}  # by language, query and function
    for record in _rows(file):
        query = " ".join(record.text("Query").split())
        query_id = query.lower().replace(" ", "_")
        if not query_id or texts.setdefault(query_id, query).lower() != query.lower():
            raise record.error(f"the query {query!r} cannot be told from another, or is empty")
        url, language = record.text("GitHubUrl"), record.text("Language").lower()
        if url.split() != [url]:
            raise record.error(f"the GitHubUrl {url!r} is no address")
        ratings.setdefault(language, {}).setdefault(query_id, {}).setdefault(url, []).append(_grade(record))
    language = choose_split(file, list(ratings), split)
    # A mean halfway between two grades counts as the upper one.
    graded = {
        query_id: {url: int(sum(given) / len(given) + 0.5) for url, given in judged.items()}
        for query_id, judged in ratings[language].items()
    }
    qrels = {query_id: judged for query_id, judged in graded.items() if any(judged.values())}
    means = [given for judged in ratings[language].values() for given in judged.values() if len(given) > 1]
    broken = sum(sum(given) % len(given) > 0 for given in means)
    card = Card(
        name=f"CodeSearchNet Challenge {language}",
        split=language,
        direction="query -> code",
        pool="the functions beside the judgements; the official pool is <language>_dedupe_definitions_v2",
        title="no titles: a function's name stands in its code",
        source=SOURCE,
        licence="MIT",
        queries=len(qrels),
        judgements=sum(map(len, qrels.values())),
        notes=(
            "grades 0 to 3; published figures are nDCG with exponential gain over the whole ranking: ndcg_burges",
            "published figures often leave unjudged functions out of the ranking before they count ranks",
            f"{len(means)} functions were rated more than once: the mean counts, and of these {broken} were rounded",
            f"{len(graded) - len(qrels)} queries without a relevant function left out, as in the official script",
            "document: the function's code with the docstring cut out",
        ),
    )
    queries = {query_id: texts[query_id] for query_id in qrels}
    return Benchmark(card=card, queries=queries, qrels=qrels, corpus=lambda: _pool(file, language))


def _rows(file: Path) -> Iterator[Record]:
    for rows in read_file(str(file), "csv", header=True):
        if isinstance(rows, Rows):
            if rows.faults:
                raise DataError(f"{file}, line {rows.faults[0].number}: {rows.faults[0].reason}")
            yield from (Record(file, "line", *row) for row in zip(rows.numbers, rows.records, strict=True))


def _grade(record: Record) -> int:
    grade = record.text("Relevance")
    if grade.strip() not in ("0", "1", "2", "3"):
        raise record.error(f"the Relevance is {grade!r}; expected a whole number from 0 to 3")
    return int(grade)


def _pool(file: Path, language: str) -> Iterator[Document]:
    """Open the functions beside the judgements."""
    files = sorted(other for other in file.parent.glob("*.jsonl*") if other.name.endswith((".jsonl", ".jsonl.gz")))
    if not files:
        raise DataError(
            f"{file.parent}: no functions to search beside {file.name}; put JSON lines with url, code and language "
            "there (the official definitions are pickles, which are not read: a pickle can run code)"
        )
    return _documents(files, language)


def _documents(files: Iterable[Path], language: str) -> Iterator[Document]:
    seen: set[int] = set()
    for file in files:
        for record in read_lines(file):
            if str(record.fields.get("language", language)).lower() != language:
                continue
            url = record.text("url")
            if hash(url) in seen:
                raise record.error(f"the url {url!r} came before; remove one")
            seen.add(hash(url))
            yield Document(doc_id=url, text=searchable(record, "", python=language == "python").text)

"""CodeSearchNet (Husain and others, 2019): functions of open source projects, searched by their documentation.

The official layout is `<language>/final/jsonl/<split>/<language>_<split>_<n>.jsonl.gz`; flat folders of such
files, and of `<split>.jsonl`, are read as well. The Challenge is `annotationStore.csv`: 99 queries whose results
experts judged, in six languages, from 0 (irrelevant) to 3 (exact).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from retrieval.errors import DataError
from retrieval.eval.benchmark import NO_TITLES, Benchmark, Card, Document, assemble, choose_split
from retrieval.eval.documented import Documented, code_without_docstring, judged
from retrieval.eval.sources import Record, find_file, first_record, read_records

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
    collected = judged(_functions(files, language))
    if not collected.queries:
        raise DataError(f"{path}: no function with documentation in split {split!r}")
    missing = sorted(set(range(max(parts) + 1)) - set(parts))
    gaps = (f"part {part} of the split is missing" for part in missing)
    card = Card(
        name=f"CodeSearchNet {language}",
        split=split,
        direction="documentation -> code",
        pool="all functions of the split; csn-999 ranks each function among 999 others",
        title=NO_TITLES,
        profile="csn-999",
        source=SOURCE,
        licence=LICENCE,
        documents=collected.census.documents,
        duplicates=collected.census.duplicates,
        notes=(*collected.notes(python=language == "python"), *gaps),
    )

    def corpus() -> Iterator[Document]:
        for function in _functions(files, language):
            yield Document(doc_id=function.doc_id, text=function.text, metadata=function.metadata)

    return assemble(path, card, collected.queries, collected.qrels, corpus)


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


def _functions(files: Iterable[Path], language: str) -> Iterator[Documented]:
    """Read the functions of a split, with the same ids each time."""
    seen: set[int] = set()
    for file in files:
        for record in read_records(file):
            url = record.fields.get("url")
            doc_id = url if isinstance(url, str) and url and url.split() == [url] else ""
            if not doc_id or hash(doc_id) in seen:
                doc_id = f"{file.name}#{record.number}"
            seen.add(hash(doc_id))
            yield Documented.from_record(record, doc_id, python=language == "python", keep=_KEPT)


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
    for record in read_records(file, "csv", header=True):
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
    dropped = len(graded) - len(qrels)
    broken = sum(sum(given) % len(given) > 0 for given in means)
    card = Card(
        name=f"CodeSearchNet Challenge {language}",
        split=language,
        direction="query -> code",
        pool="the functions beside the judgements; the official pool is <language>_dedupe_definitions_v2",
        title=NO_TITLES,
        source=SOURCE,
        licence="MIT",
        notes=(
            "grades 0 to 3; published figures are nDCG with exponential gain over the whole ranking: ndcg_burges",
            "published figures often leave unjudged functions out of the ranking before they count ranks",
            f"functions rated several times, of which the mean counts: {len(means)}; means rounded: {broken}",
            f"queries without a grade above 0 once rounded, left out (the official script: before): {dropped}",
            "document: the function's code with the docstring cut out",
        ),
    )
    return assemble(file, card, texts, qrels, lambda: _pool(file, language))


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
        for record in read_records(file):
            if str(record.fields.get("language", language)).lower() != language:
                continue
            url = record.text("url")
            if hash(url) in seen:
                raise record.error(f"the url {url!r} came before; remove one")
            seen.add(hash(url))
            text, _ = code_without_docstring(record, "", python=language == "python")
            yield Document(doc_id=url, text=text)

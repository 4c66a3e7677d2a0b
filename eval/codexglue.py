"""CodeXGLUE (Lu and others, 2021): AdvTest and WebQueryTest, its two tasks of code search.

AdvTest is CodeSearchNet's Python with the names in its test code replaced: `train.jsonl`, `valid.jsonl`, `test.jsonl`,
each query with one right function. WebQueryTest is an array of labelled pairs of a web query and a function.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from retrieval.errors import DataError
from retrieval.eval.benchmark import NO_TITLES, Benchmark, Card, Document, assemble, assemble_held, choose_split
from retrieval.eval.documented import Documented, judged
from retrieval.eval.sources import Record, find_file, first_record, read_array, read_records

SOURCE = "CodeXGLUE, github.com/microsoft/CodeXGLUE"
LICENCE = "data C-UDA, code MIT"
_SPLITS = ("train", "valid", "test")
_PAIRS = {"test": "test_webquery.json", "dev": "cosqa-dev.json", "train": "cosqa-train.json"}
_CODE = ("code", "function")
_ANSWERS = "webquery_answers.txt"


def recognises_advtest(path: Path) -> bool:
    """Tell whether a folder holds a split of AdvTest, by the first record of one."""
    record = next((record for file in _advtest_files(path).values() if (record := first_record(file))), None)
    return record is not None and record.has("idx") and record.has("docstring_tokens") and record.has(*_CODE)


def load_advtest(path: Path, split: str | None) -> Benchmark:
    """Load a split of AdvTest; its ids are the official ones: `url` for a query, `idx` for a code.

    Raises:
        DataError: the split is not there, or its file is broken.
    """
    files = _advtest_files(path)
    split = choose_split(path, list(files), split)
    file = files[split]
    found = judged(_advtest_functions(file))
    card = Card(
        name="CodeXGLUE AdvTest",
        split=split,
        direction="documentation -> code",
        pool="all functions of the split",
        title=NO_TITLES,
        profile="codexglue",
        source=SOURCE,
        licence=LICENCE,
        documents=found.census.documents,
        duplicates=found.census.duplicates,
        notes=(
            *found.notes(python=True),
            "names of functions and variables are as in the file: the official valid and test splits replace them",
        ),
    )

    def corpus() -> Iterator[Document]:
        return (Document(doc_id=function.doc_id, text=function.text) for function in _advtest_functions(file))

    return assemble(file, card, found.queries, found.qrels, corpus)


def _advtest_files(path: Path) -> dict[str, Path]:
    found = {split: find_file(path, f"{split}.jsonl", f"{split}.jsonl.gz") for split in _SPLITS}
    return {split: file for split, file in found.items() if file}


def _advtest_functions(file: Path) -> Iterator[Documented]:
    places: dict[int, int] = {}  # the line of an idx
    urls: set[int] = set()
    for record in read_records(file):
        idx = record.whole("idx")
        if places.setdefault(idx, record.number) != record.number:
            raise record.error(f"idx {idx} came before, on line {places[idx]}")
        url = record.text("url") if record.has("url") else ""
        query_id = url if url.split() == [url] and hash(url) not in urls else ""
        urls.add(hash(url))
        yield Documented.from_record(record, str(idx), query_id=query_id, python=True)


def recognises_webquery(path: Path) -> bool:
    """Tell whether the labelled pairs of WebQueryTest, or of CoSQA's first task, are at a path."""
    return bool(_webquery_files(path))


def load_webquery(path: Path, split: str | None) -> Benchmark:
    """Load the labelled pairs as a search: equal queries are one query, equal codes one document.

    Raises:
        DataError: the split is not there, its file is broken, or nothing says which pairs are right.
    """
    files = _webquery_files(path)
    split = choose_split(path, list(files), split)
    file = files[split]
    records = read_array(file)
    labels = _labels(file, records)
    query_ids: dict[str, str] = {}
    doc_ids: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    repeated = conflicting = 0
    first: dict[str, Record] = {}
    for record in records:
        idx, label = record.text("idx"), labels[record.number]
        if first.setdefault(idx, record) is not record:
            raise record.error(f"idx {idx!r} came before, in record {first[idx].number}")
        query_id = query_ids.setdefault(record.text("doc", "query"), idx)
        doc_id = doc_ids.setdefault(record.text("code"), f"{idx}#code")
        grades = qrels.setdefault(query_id, {})
        repeated += doc_id in grades
        conflicting += grades.get(doc_id, label) != label
        grades[doc_id] = max(label, grades.get(doc_id, 0))
    right = sum(any(grades.values()) for grades in qrels.values())
    notes = [
        "the official task classifies pairs; here each query searches all codes, of which few are judged for it",
        f"labelled pairs: {len(records)}; with an earlier code, one document: {len(records) - len(doc_ids)}",
        "document: a function with its docstring, as in the file; the queries are web searches",
        f"queries without a right code: {len(qrels) - right}",
    ]
    if repeated:
        notes.append(f"pairs that came before: {repeated}; with the other label, of which 1 counts: {conflicting}")
    card = Card(
        name="CodeXGLUE WebQueryTest" if split == "test" else "CoSQA labelled pairs",
        split=split,
        direction="web query -> Python function",
        pool="the distinct codes of the split",
        title=NO_TITLES,
        source=SOURCE,
        licence=LICENCE,
        notes=tuple(notes),
    )
    queries = {query_id: query for query, query_id in query_ids.items()}
    documents = [Document(doc_id=doc_id, text=code) for code, doc_id in doc_ids.items()]
    return assemble_held(file, card, queries, qrels, documents)


def _webquery_files(path: Path) -> dict[str, Path]:
    found = {split: find_file(path, name) for split, name in _PAIRS.items()}
    return {split: file for split, file in found.items() if file}


def _labels(file: Path, records: list[Record]) -> dict[int, int]:
    """Return the label of each record by its number: of its own, or from the answers beside the file."""
    answers: dict[str, Record] = {}
    beside = file.parent / _ANSWERS
    if not any(record.has("label") for record in records):
        if not beside.is_file():
            raise DataError(
                f"{file}: no labels: its records have no 'label', and there is no {beside.name} beside it "
                "(idx, a tab, 0 or 1 on each line); without them nothing is judged"
            )
        answers = {row.text("_id"): row for row in read_records(beside, "tsv", header=False)}
    labels: dict[int, int] = {}
    for record in records:
        if answers and record.text("idx") not in answers:
            raise record.error(f"no label for {record.text('idx')!r} in {beside}")
        given = answers[record.text("idx")] if answers else record
        labels[record.number] = given.whole("text" if answers else "label")
        if labels[record.number] not in (0, 1):
            raise given.error(f"the label is {labels[record.number]}; expected 0 or 1")
    return labels

"""Benchmarks in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv`; read, and written with a card.

A folder without a corpus still has queries and judgements, to evaluate an index that is there already.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.documents import DocumentStream, plain
from retrieval.errors import ConfigError, DataError
from retrieval.eval.benchmark import Benchmark, Card, Document, assemble, choose_split
from retrieval.eval.sources import read_json
from retrieval.files import sync_folder, writing
from retrieval.formats import kind_of
from retrieval.lines import is_encodable
from retrieval.qrels import read_qrels
from retrieval.queries import read_queries

CARD_FILE = "benchmark.json"
_PACKED = ("", ".gz", ".zst")
_QUERIES = [f"queries{suffix}{packed}" for suffix in (".jsonl", ".tsv") for packed in _PACKED]
# Where a split has several files, the first kind wins.
_QRELS = [f"{suffix}{packed}" for suffix in (".tsv", ".trec", ".txt", ".jsonl") for packed in _PACKED]
_FILE_NAME = re.compile(r"\w[\w.+-]*")
_PER_SPLIT = ("split", "queries", "judgements")  # what a card in a file cannot say for all splits


def recognises(path: Path) -> bool:
    """Tell whether a folder has queries and judgements where BEIR has them."""
    return path.is_dir() and _queries_file(path) is not None and bool(_splits(path))


def load(path: Path, split: str | None) -> Benchmark:
    """Load one split of a BEIR folder; its queries are those with a judgement.

    Raises:
        DataError: no such split (lists those that are there), or a file that cannot be read.
    """
    files = _splits(path)
    split = choose_split(f"{path}/qrels", files, split)
    queries = _queries_file(path)
    if queries is None:
        raise DataError(f"{path}: no {_QUERIES[0]} in it")
    card = _read_card(path, split)
    return assemble(path, card, read_queries(queries), read_qrels(files[split]), partial(_corpus, path))


def read_documents(sources: Sequence[Path]) -> Iterator[Document]:
    """Stream the documents of corpus files; their further fields become metadata, those of `metadata` as well.

    Raises:
        DataError: a record that cannot be used, or an id that occurs twice; names file and line.
    """
    for batch in DocumentStream(sources):
        doc_ids, titles, texts = (column.to_pylist() for column in batch.columns[:3])
        names = batch.schema.names[3:]
        further = [
            [plain(cell, batch.schema.field(name)) for cell in column]
            for name, column in zip(names, batch.columns[3:], strict=True)
        ]
        for row, (doc_id, title, text) in enumerate(zip(doc_ids, titles, texts, strict=True)):
            metadata = {name: column[row] for name, column in zip(names, further, strict=True)}
            nested = metadata.pop("metadata", None)
            metadata = {name: value for name, value in metadata.items() if value is not None}
            metadata |= nested if isinstance(nested, dict) else {} if nested is None else {"metadata": nested}
            yield Document(doc_id=doc_id, title=title, text=text, metadata=metadata)


def write_benchmark(
    folder: str | Path,
    documents: Iterable[Document],
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, Mapping[str, int]]],
    card: Card,
) -> Card:
    """Write a BEIR folder with a card: one corpus, the queries of all splits, and judgements by split.

    It is made beside its place and renamed, so it is whole or absent.

    Args:
        folder: must not exist, or be empty.
        documents: the corpus; streamed, in 16 bytes of memory a document.
        queries: text by query_id, in the order of the file.
        qrels: grade by doc_id, by query_id, by split.
        card: what the benchmark is; its counts are replaced.

    Returns:
        The card with the counts of all splits together; duplicates are told by a 64-bit hash of the text.

    Raises:
        ConfigError: something is in the way.
        DataError: a part that the files cannot hold, or a place that cannot be written; nothing is left behind.
    """
    place = Path(folder).resolve()
    judged = _check(queries, qrels)
    with _staged(place) as staging:
        documents_written, duplicates = _write_corpus(staging / "corpus.jsonl", documents)
        card = replace(
            card,
            split=", ".join(qrels),
            documents=documents_written,
            duplicates=duplicates,
            queries=len(judged),
            judgements=sum(len(grades) for split in qrels.values() for grades in split.values()),
        )
        with (staging / "queries.jsonl").open("wb") as stream:
            stream.writelines(_line({"_id": name, "text": text}, f"query {name!r}") for name, text in queries.items())
        (staging / "qrels").mkdir()
        for split, judgements in qrels.items():
            with (staging / "qrels" / f"{split}.tsv").open("wb") as stream:
                stream.writelines(_judgement_lines(judgements))
        (staging / CARD_FILE).write_text(_card_text(card, qrels), encoding="utf-8", errors="backslashreplace")
    return card


def check_free(folder: Path) -> None:
    """Refuse a place that a benchmark cannot take: it has to be free, or an empty folder, and not the one we are in.

    Raises:
        ConfigError: something is in the way.
        DataError: the place cannot be looked at.
    """
    with writing(folder):
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        if taken or folder.resolve() == Path.cwd():
            raise ConfigError(f"{folder} is there already and not an empty folder; give another one")


def _queries_file(path: Path) -> Path | None:
    return next((path / name for name in _QUERIES if (path / name).is_file()), None)


def _splits(path: Path) -> dict[str, Path]:
    """Find the files of judgements by split."""
    found: dict[str, Path] = {}
    for suffix in reversed(_QRELS):
        found |= {file.name.removesuffix(suffix): file for file in sorted((path / "qrels").glob(f"*{suffix}"))}
    return found


def _corpus(path: Path) -> Iterator[Document]:
    """Open the corpus; the error of a missing one comes with the call, not with the first document."""
    found = sorted(file for file in path.glob("corpus.*") if kind_of(file.name) and file.is_file())
    if not found:
        raise DataError(f"{path}: no corpus in it (corpus.jsonl); it can only evaluate an index that is there already")
    return read_documents(found[:1])


def _read_card(path: Path, split: str) -> Card:
    """Read our card of a folder, or make one of what the folder shows."""
    file = path / CARD_FILE
    record = read_json(file) if file.exists() else {}
    if not isinstance(record, dict):
        raise DataError(f"{file}: expected a JSON object with the facts of the benchmark")
    values: dict[str, Any] = {"name": path.resolve().name, "split": split}
    for field in fields(Card):
        if field.name in _PER_SPLIT or field.name not in record:
            continue
        value = record[field.name]
        if field.name in ("documents", "duplicates"):
            fits, expected = value is None or type(value) is int, "a whole number or null"
        elif field.name == "notes":
            fits = isinstance(value, list) and all(isinstance(note, str) for note in value)
            value, expected = tuple(value) if fits else value, "a list of strings"
        else:
            fits, expected = isinstance(value, str), "a string"
        if not fits:
            raise DataError(f"{file}: {field.name!r} is {value!r:.80}; expected {expected}")
        values[field.name] = value
    return Card(**values)


def _card_text(card: Card, qrels: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str:
    record = {name: value for name, value in card.to_dict().items() if name not in _PER_SPLIT}
    record["splits"] = {
        split: {"queries": len(judgements), "judgements": sum(map(len, judgements.values()))}
        for split, judgements in qrels.items()
    }
    return json.dumps(record, ensure_ascii=False, indent=2) + "\n"


def _check(queries: Mapping[str, str], qrels: Mapping[str, Mapping[str, Mapping[str, int]]]) -> set[str]:
    """Refuse what the files cannot hold, and return the judged queries of all splits."""
    judged: set[str] = set()
    if not qrels:
        raise DataError("no split to write; expected judgements by split")
    for split, judgements in qrels.items():
        if not _FILE_NAME.fullmatch(split):
            raise DataError(f"split {split!r}: expected a name that a file can have, of letters, digits and . + - _")
        if not judgements or not all(judgements.values()):
            bare = next((name for name, grades in judgements.items() if not grades), None)
            raise DataError(f"split {split!r}: no judgements" + (f" of query {bare!r}" if bare is not None else ""))
        if lost := [query_id for query_id in judgements if query_id not in queries]:
            raise DataError(f"split {split!r}: query {lost[0]!r} has judgements but no text ({len(lost)} in all)")
        judged.update(judgements)
    return judged


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """Give an empty folder that takes the place of `folder` when the block ends without an error."""
    check_free(folder)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = folder.parent / f".{folder.name}.{os.getpid()}.tmp"
        staging.mkdir()
        try:
            yield staging
            staging.rename(folder)  # takes the place of an empty folder too
            sync_folder(folder.parent)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise


def _write_corpus(file: Path, documents: Iterable[Document]) -> tuple[int, int]:
    """Write the documents; return their number and that of repeated texts."""
    ids, texts = array("q"), array("q")  # hashes
    with file.open("wb") as stream:
        for document in documents:
            record: dict[str, Any] = {"_id": document.doc_id, "title": document.title, "text": document.text}
            if document.metadata:
                record["metadata"] = dict(document.metadata)
            if not document.doc_id:
                raise DataError(f"document {len(ids) + 1}: its id is empty")
            stream.write(_line(record, f"document {document.doc_id!r}"))
            ids.append(hash(document.doc_id))
            texts.append(hash(document.text))
    if not ids:
        raise DataError("no documents to write")
    if repeated := _repeated_id(file, ids):
        raise DataError(f"document id {repeated!r} occurs twice")
    return len(texts), len(texts) - len(np.unique(texts))


def _repeated_id(file: Path, hashes: array[int]) -> str | None:
    """Find an id that was written twice; equal hashes are confirmed by the ids themselves."""
    values, counts = np.unique(hashes, return_counts=True)
    suspects = set(values[counts > 1].tolist())
    if suspects:
        seen: set[str] = set()
        with file.open("rb") as stream:
            for line in stream:
                doc_id = json.loads(line)["_id"]
                if doc_id in seen:
                    return str(doc_id)
                if hash(doc_id) in suspects:
                    seen.add(doc_id)
    return None


def _line(record: Mapping[str, Any], what: str) -> bytes:
    try:
        return (json.dumps(record, ensure_ascii=False) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{what} cannot be written as JSON: {error}") from None


def _judgement_lines(judgements: Mapping[str, Mapping[str, int]]) -> Iterator[bytes]:
    yield b"query-id\tcorpus-id\tscore\n"
    for query_id, grades in judgements.items():
        for doc_id, grade in grades.items():
            for name in (query_id, doc_id):
                if not _fits_cell(name):
                    raise DataError(
                        f"id {name!r} does not fit a TSV of judgements (empty, a tab, a line end, no UTF-8)"
                    )
            yield f"{query_id}\t{doc_id}\t{int(grade)}\n".encode()


def _fits_cell(name: str) -> bool:
    return bool(name) and not any(sign in name for sign in "\t\r\n") and is_encodable(name)

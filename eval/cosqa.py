"""CoSQA (Huang and others, 2021): web queries and the Python functions that answer them, in its retrieval split.

`code_idx_map.txt` is a JSON object of code and its index: the pool. `cosqa-retrieval-<split>-<n>.json` are arrays
of pairs: `doc` is the query, `retrieval_idx` the index of the code, `label` 1 where the code answers it.
"""

from __future__ import annotations

import re
from pathlib import Path

from retrieval.errors import DataError
from retrieval.eval.benchmark import NO_TITLES, Benchmark, Card, Document, assemble_held, choose_split
from retrieval.eval.sources import Record, read_array, read_json

_POOL = "code_idx_map.txt"
_PAIRS = re.compile(r"cosqa-retrieval-(?P<split>train|dev|test)-\d+\.json")


def recognises(path: Path) -> bool:
    """Tell whether a folder holds CoSQA's pool and a split of its pairs."""
    return (path / _POOL).is_file() and bool(_files(path))


def load(path: Path, split: str | None) -> Benchmark:
    """Load a split.

    Raises:
        DataError: a file is missing or broken, the split is not there, or a pair points to no code.
    """
    files = _files(path)
    split = choose_split(path, list(files), split)
    codes = _codes(path / _POOL)
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    first: dict[str, Record] = {}
    differ = 0
    for record in read_array(files[split]):
        query_id, doc_id = record.text("idx"), str(record.whole("retrieval_idx", "code_idx"))
        if first.setdefault(query_id, record) is not record:
            raise record.error(f"idx {query_id!r} came before, in record {first[query_id].number}")
        if doc_id not in codes:
            raise record.error(f"no code has index {doc_id} in {_POOL}")
        label = record.whole("label") if record.has("label") else 1
        if label not in (0, 1):
            raise record.error(f"the label is {label}; expected 0 or 1")
        queries[query_id] = record.text("doc", "query")
        qrels[query_id] = {doc_id: label}
        differ += record.has("code") and record.text("code") != codes[doc_id]
    wrong = sum(not any(judged.values()) for judged in qrels.values())
    notes = ["document: a function with its docstring, as in the official pool; the queries are web searches"]
    if wrong:
        notes.append(f"queries without a right code, since their only pair has label 0: {wrong}")
    if differ:
        notes.append(f"pairs with another code than the pool has under their index, which counts: {differ}")
    card = Card(
        name="CoSQA",
        split=split,
        direction="web query -> Python function",
        pool="all codes of code_idx_map.txt, those of the other splits among them",
        title=NO_TITLES,
        profile="codexglue",
        source="CoSQA, github.com/Jun-jie-Huang/CoCLR",
        licence="data C-UDA, code MIT",
        notes=tuple(notes),
    )
    documents = [Document(doc_id=doc_id, text=code) for doc_id, code in codes.items()]
    return assemble_held(path, card, queries, qrels, documents)


def _files(path: Path) -> dict[str, Path]:
    """Find the file of each split; those with rewritten queries have longer names and are left."""
    found: dict[str, Path] = {}
    for file in sorted(path.glob("cosqa-retrieval-*.json")):
        if named := _PAIRS.fullmatch(file.name):
            if named["split"] in found:
                raise DataError(f"{file} and {found[named['split']]} are the same split; remove one")
            found[named["split"]] = file
    return found


def _codes(file: Path) -> dict[str, str]:
    """Read the pool: code by index. The object's keys are the codes, so it is read as pairs: a key may repeat."""
    pairs = read_json(file, tuple)
    if not isinstance(pairs, tuple):
        raise DataError(f"{file}: a JSON object of code and index was expected")
    codes: dict[str, str] = {}
    for number, (code, index) in enumerate(pairs, 1):
        record = Record(file, "entry", number, {"code": code, "index": index})
        doc_id = str(record.whole("index"))
        if doc_id in codes:
            raise record.error(f"index {doc_id} is taken by an earlier code")
        codes[doc_id] = record.text("code")
    return codes

"""Benchmarks as they lie on the Hugging Face hub, in copies on this machine or fetched by name.

CoIR, MTEB and BEIR store documents, queries and judgements as Parquet or JSONL files, in parts, and say by the names
of folders and files which is which:

    corpus/corpus-00000-of-00001.parquet  queries/queries-00000-of-00001.parquet  data/test-00000-of-00001.parquet
    corpus/test-00000-of-00001.parquet    queries/test-00000-of-00001.parquet     qrels/test-00000-of-00001.parquet
    go-corpus/corpus-*.parquet            go-queries/queries-*.parquet            go-qrels/test-*.parquet
    corpus.jsonl                          queries.jsonl                           qrels/test.jsonl
    cosqa-queries-corpus/data/corpus-*.parquet and queries-*.parquet beside cosqa-qrels/data/test-*.parquet

All of it may lie one folder deeper, not more: a source tree that holds a benchmark somewhere is none itself. Where
one folder holds several benchmarks (`go-...`, `java-...`), their splits are called `go-test`, `java-test`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from retrieval.errors import DataError
from retrieval.eval.beir import read_documents
from retrieval.eval.benchmark import Benchmark, Card, Document, assemble, choose_split
from retrieval.qrels import read_qrels

logger = logging.getLogger(__name__)

_SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz")
_DEPTH = 3  # folders below the one given
_PART = re.compile(r"-\d+-of-\d+(-[0-9a-f]+)?$")
_ROLE = re.compile(r"(?:(?P<config>.+)-)?(?P<role>corpus|queries|query|qrels|default)")
_PAIR = re.compile(r"(?P<base>.+?)-(queries-corpus|qrels)")
_TIMEOUT = 5.0  # seconds until a hub that does not answer counts as unreachable


@dataclass(frozen=True, slots=True)
class _File:
    """A data file: its role (`corpus`, `queries`, `qrels`), benchmark and split, empty where the names say none."""

    path: Path
    role: str
    config: str
    split: str


def recognises(path: Path) -> bool:
    """Tell whether a folder has queries and judgements where data sets on the hub have them."""
    return path.is_dir() and {"queries", "qrels"} <= {file.role for root in _roots(path) for file in _files(root)}


def load(path: Path, split: str | None) -> Benchmark:
    """Load one split; its queries are those with a judgement.

    Args:
        path: a copy of the data set; of two that belong together, either, or the folder that holds both.
        split: `test`, or `go-test` where there are several benchmarks.

    Raises:
        DataError: no such split (lists those that are there), or a file that cannot be read.
    """
    return _load(_roots(path), split, _base(path.resolve().name))


def load_by_name(name: str, split: str | None) -> Benchmark:
    """Fetch a data set of the hub, `owner/name`, into its cache, and load it.

    A name that stands for two data sets (`<name>-queries-corpus` and `<name>-qrels`) fetches both.

    Raises:
        DataError: not on the hub, or the hub cannot be reached; or as `load`.
    """
    base = _base(name)
    own = _fetched(name)
    if own is not None and not _is_half(own):
        benchmark = Benchmark.load(own, split)
    else:
        documents, judgements = f"{base}-queries-corpus", f"{base}-qrels"
        wanted = [documents, judgements] if own is None else [documents if name == judgements else judgements]
        roots = [root for root in (own, *(_fetched(half) for half in wanted if half != name)) if root is not None]
        if not roots:
            raise DataError(
                f"{name}: neither a folder, nor an id of ir_datasets, nor a data set that can be reached on the hub"
            )
        benchmark = _load(roots, split, base)
    return replace(benchmark, card=replace(benchmark.card, name=base, source=f"huggingface.co/datasets/{name}"))


def _load(roots: Sequence[Path], split: str | None, name: str) -> Benchmark:
    files = [file for root in roots for file in _files(root)]
    judged = [file for file in files if file.role == "qrels"]
    several = len({file.config for file in judged}) > 1
    labels = {file: f"{file.config}-{file.split}" if several and file.config else file.split for file in judged}
    place = " and ".join(map(str, roots))
    split = choose_split(place, labels.values(), split)
    chosen = [file for file in judged if labels[file] == split]
    qrels = _qrels([file.path for file in chosen])
    queries = _of_split(files, "queries", chosen[0], place)
    corpus = _of_split(files, "corpus", chosen[0], place)
    if not queries:
        raise DataError(f"{place}: no queries for split {split!r} (queries/*.parquet or .jsonl)")
    return assemble(place, Card(name=name, split=split), _texts(queries), qrels, partial(_corpus, place, corpus))


def _of_split(files: Sequence[_File], role: str, judged: _File, place: str) -> list[Path]:
    """Find the files of documents or queries that belong to judgements: those of their split, or those of all."""
    fitting = [file for file in files if file.role == role and file.config == judged.config]
    by_split: dict[str, list[Path]] = {}
    for file in fitting:
        by_split.setdefault(file.split, []).append(file.path)
    if judged.split in by_split:
        return by_split[judged.split]
    if len(by_split) > 1:
        raise DataError(
            f"{place}: the {role} is there for {', '.join(sorted(by_split))}, and not for split {judged.split!r}"
        )
    return next(iter(by_split.values()), [])


def _qrels(files: Sequence[Path]) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for file in files:
        for query_id, grades in read_qrels(file).items():
            known = qrels.setdefault(query_id, {})
            for doc_id, grade in grades.items():
                if known.setdefault(doc_id, grade) != grade:
                    raise DataError(
                        f"{file}: document {doc_id!r} of query {query_id!r} has grade {grade} here and "
                        f"{known[doc_id]} in an earlier part; keep one of them"
                    )
    return qrels


def _texts(files: Sequence[Path]) -> dict[str, str]:
    return {document.doc_id: document.text for document in read_documents(files)}


def _corpus(place: str, files: Sequence[Path]) -> Iterator[Document]:
    if not files:
        raise DataError(f"{place}: no corpus in it; it can only evaluate an index that is there already")
    return read_documents(files)


def _base(name: str) -> str:
    """Take off what tells the two data sets of one benchmark apart."""
    return match["base"] if (match := _PAIR.fullmatch(name)) else name


def _roots(path: Path) -> list[Path]:
    """Return the folder, and where it holds half of a benchmark, the one beside it with the other half."""
    path = path.resolve()
    if not _is_half(path):
        return [path]
    base = path.parent / _base(path.name)
    others = [base.with_name(f"{base.name}-queries-corpus"), base, base.with_name(f"{base.name}-qrels")]
    if path == others[-1]:
        return [path, *[other for other in others[:2] if other.is_dir()][:1]]
    return [path, *[other for other in others[2:] if other.is_dir()]]


def _is_half(path: Path) -> bool:
    """Tell whether a folder has judgements only, or documents and queries only."""
    roles = {file.role for file in _files(path)}
    return bool(roles) and not {"queries", "qrels"} <= roles


def _files(root: Path) -> list[_File]:
    """List the data files below a folder with what their names say."""
    found: list[_File] = []
    for folder, folders, names in os.walk(root):
        inner = Path(folder).relative_to(root).parts
        folders[:] = sorted(name for name in folders if _is_entered([*inner, name]))
        for name in sorted(names):
            suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), None)
            if suffix and (file := _described(Path(folder, name), [*inner, name.removesuffix(suffix)])):
                found.append(file)
    return found


def _is_entered(folders: Sequence[str]) -> bool:
    """Tell whether files are looked for in a folder: in each at the top, further down only where roles are named."""
    if folders[-1].startswith(".") or len(folders) > _DEPTH:
        return False
    return len(folders) == 1 or any(_ROLE.fullmatch(name) or _PAIR.fullmatch(name) for name in folders[:2])


def _described(path: Path, names: Sequence[str]) -> _File | None:
    """Read role, benchmark and split off the names of a file and its folders; None where they say no role."""
    role = config = ""
    splits: list[str] = []
    for name in reversed([*names[:-1], _PART.sub("", names[-1])]):
        if name == "data" or name.isdecimal():  # numbers are parts, as the hub's own conversion calls them
            continue
        if name.endswith("-queries-corpus"):
            config = config or _base(name)
        elif match := _ROLE.fullmatch(name):
            role, config = role or match["role"], config or match["config"] or ""
        elif not role:
            splits.append(name)
    if len(splits) > 1:
        return None
    role = {"": "qrels", "default": "qrels", "query": "queries"}.get(role, role)
    return _File(path, role, config, splits[0] if splits else "test" if role == "qrels" else "")


def _fetched(name: str) -> Path | None:
    """Return the folder of a data set: from the local cache, else downloaded; None where it cannot be had."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError, LocalEntryNotFoundError
    from huggingface_hub.utils import HFValidationError

    patterns = [f"*{suffix}" for suffix in _SUFFIXES]
    try:
        return Path(snapshot_download(name, repo_type="dataset", local_files_only=True, allow_patterns=patterns))
    except HFValidationError:
        return None
    except LocalEntryNotFoundError:
        logger.info("data set %s is not in the local cache; asking the hub", name)
    try:
        return Path(snapshot_download(name, repo_type="dataset", etag_timeout=_TIMEOUT, allow_patterns=patterns))
    except (HTTPError, OSError) as error:
        logger.info("data set %s cannot be fetched: %s", name, error)
        return None

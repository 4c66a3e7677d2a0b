"""The manifest: what an index consists of, and the commit point of every change.

A reader sees the files that `manifest.json` lists and no others. The file carries a checksum of itself, and for each
other file its size and SHA-256. Nothing in an index is a pickle.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from retrieval.errors import IndexFormatError
from retrieval.files import atomic_write, sha256
from retrieval.hybrid import Fusion
from retrieval.index.parsed import parsed
from retrieval.index.vectors import VectorDtype
from retrieval.units import TreeEntry

FORMAT = "retrieve-rerank index"
FORMAT_VERSION = 2
_READABLE = (1, 2)  # 1 has no keyword part
MANIFEST = "manifest.json"
METRICS = ("cosine", "dot")
_HASH_ALWAYS = 16 * 2**20  # bytes; larger files are hashed on request
_WITHIN = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)  # a path that does not leave the index
_MOST = 2**31 - 1  # that FAISS takes as a parameter


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file of the index: path relative to the index, size in bytes, SHA-256."""

    path: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if not _WITHIN.fullmatch(self.path):
            raise ValueError(f"the path {self.path!r:.80} is none within the index")

    def check(self, folder: Path, *, verify: bool) -> Path:
        """Return the file's full path after looking at its size, and at its hash if it is small or `verify` is set.

        Raises:
            IndexFormatError: It is missing or not what the manifest says.
        """
        path = folder / self.path
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise IndexFormatError(f"{path} is missing; restore it or rebuild the index") from None
        if size != self.bytes:
            raise IndexFormatError(f"{path} has {size} bytes, expected {self.bytes}; restore it or rebuild the index")
        if (verify or size <= _HASH_ALWAYS) and sha256(path) != self.sha256:
            raise IndexFormatError(f"{path} is damaged (wrong SHA-256); restore it or rebuild the index")
        return path


@dataclass(frozen=True, kw_only=True)
class LexicalEntry:
    """The keyword part of a segment: postings and lengths, and the rules that made its terms."""

    terms_version: int
    terms: FileEntry
    lengths: FileEntry


@dataclass(frozen=True, kw_only=True)
class SegmentEntry:
    """One segment: its rows are passages, in the order of their documents."""

    id: str
    rows: int
    documents: FileEntry
    vectors: FileEntry
    lexical: LexicalEntry | None = None

    def files(self) -> Iterator[FileEntry]:
        """Every file of the segment."""
        yield self.documents
        yield self.vectors
        if self.lexical:
            yield self.lexical.terms
            yield self.lexical.lengths


@dataclass(frozen=True, kw_only=True)
class ApproximateEntry:
    """The approximate index, over all rows of `segments`; rows of later segments are searched exactly."""

    factory: str
    segments: list[str]
    parameters: dict[str, int]
    recall_at_10: float
    recall_sample: int
    file: FileEntry


@dataclass(frozen=True, kw_only=True)
class DeletedEntry:
    """The tombstones: global rows, sorted."""

    rows: int
    file: FileEntry


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One generation of an index.

    Attributes:
        generation: Counts the commits, from 1.
        dim: Dimension of the vectors.
        metric: cosine or dot.
        vector_dtype: float32 or float16.
        index_type: What the user asked for (`auto`, `flat`, ..., or a factory string).
        encoder: Identity of the model that encoded the documents, or None for ready-made vectors of unknown origin.
        text: How text was made: joining of the title, windows, overlap.
        documents: Live documents.
        passages: Live passages (rows less tombstones).
        empty: Live documents without searchable text: kept, never found.
        segments: In the order of global rows.
        deleted: Tombstones, or None.
        approximate: The approximate index, or None for exact search.
        lexical: Whether segments have a keyword part; None in indexes of format 1, which had none.
        fusion: How the scores of both sides are mixed (see `retrieval.hybrid`); None: by the default.
        min_recall: Recall@10 that was asked of an approximate index.
        memory_limit: Bytes that searching may hold beyond the mapped vectors, or None.
        trees: The folders whose files are documents of the index, and how they were chosen; None: not known.
    """

    generation: int
    dim: int
    metric: str
    vector_dtype: VectorDtype
    index_type: str
    encoder: dict[str, Any] | None
    text: dict[str, Any]
    documents: int
    passages: int
    empty: int
    segments: list[SegmentEntry] = field(default_factory=list)
    deleted: DeletedEntry | None = None
    approximate: ApproximateEntry | None = None
    lexical: bool | None = None
    fusion: Fusion | None = None
    min_recall: float = 0.99
    memory_limit: int | None = None
    trees: list[TreeEntry] | None = None

    def __post_init__(self) -> None:
        ids = [segment.id for segment in self.segments]
        paths = [file.path for file in self.files()]
        rows = self.rows - (self.deleted.rows if self.deleted else 0)
        covered = self.approximate.segments if self.approximate else []
        parameters = self.approximate.parameters.values() if self.approximate else []
        rules = {
            "metric is cosine or dot": self.metric in METRICS,
            "generation, dim, min_recall and memory_limit are above 0": 0
            not in (self.generation, self.dim, self.min_recall, self.memory_limit),
            "encoder.name is a text": self.encoder is None or isinstance(self.encoder.get("name"), str),
            "each segment has an id of its own": len(set(ids)) == len(ids),
            "each file is listed once": len(set(paths)) == len(paths),
            "all segments have a keyword part where lexical is true, and else none": all(
                (segment.lexical is not None) == bool(self.lexical) for segment in self.segments
            ),
            "passages are the rows less the deleted ones": self.passages == rows,
            "a document has a passage or more": bool(self.documents) == bool(rows) and self.documents <= rows,
            "empty documents are some of the documents": self.empty <= self.documents,
            "approximate.segments are the first segments": covered == ids[: len(covered)],
            f"generation and dim are at most {_MOST}": max(self.generation, self.dim) <= _MOST,
            f"approximate.parameters are from 1 to {_MOST}": all(1 <= value <= _MOST for value in parameters),
        }
        for rule, kept in rules.items():
            if not kept:
                raise ValueError(f"it is not so that {rule}")

    @property
    def rows(self) -> int:
        """Rows of all segments, deleted ones included."""
        return sum(segment.rows for segment in self.segments)

    def files(self) -> Iterator[FileEntry]:
        """Every file but the manifest itself."""
        for segment in self.segments:
            yield from segment.files()
        if self.deleted:
            yield self.deleted.file
        if self.approximate:
            yield self.approximate.file

    def write(self, folder: Path) -> None:
        """Commit: replace the manifest in `folder` atomically."""
        body = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        body["checksum"] = _checksum(body)
        with atomic_write(folder / MANIFEST) as stream:
            stream.write(_encoded(body, indent=1) + b"\n")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of an index.

        Raises:
            IndexFormatError: No index, a damaged manifest, or one of a newer format.
        """
        path = folder / MANIFEST
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            why = _no_index(folder)
            if path.exists():  # a first build was published between our two looks
                return cls.read(folder)
            raise IndexFormatError(why) from None
        except OSError as error:
            raise unreadable(path, error) from error
        try:
            body = json.loads(data)
            if body.pop("format") != FORMAT:
                raise ValueError("another format")
            version, checksum = body.pop("format_version"), body.pop("checksum", None)
            whole = checksum == _checksum({"format": FORMAT, "format_version": version, **body})
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            raise IndexFormatError(f"{path} is damaged or not ours; restore it or rebuild the index") from None
        if version not in _READABLE:
            raise IndexFormatError(
                f"{path} has format_version {version!r} and this release reads up to {FORMAT_VERSION}; "
                "update retrieve-rerank or rebuild the index"
            )
        if not whole:
            raise IndexFormatError(f"{path} is damaged (wrong checksum); restore it or rebuild the index")
        try:
            return parsed(cls, body)  # type: ignore[no-any-return]
        except ValueError as error:
            raise IndexFormatError(f"{path} is wrong: {error}; restore it or rebuild the index") from error


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(_encoded(body, sort_keys=True, separators=(",", ":"))).hexdigest()


def _encoded(body: dict[str, Any], **layout: Any) -> bytes:
    """Write JSON; a folder's name that is not UTF-8 stays what it is."""
    return json.dumps(body, ensure_ascii=False, **layout).encode(errors="surrogatepass")


def staging_folder(path: Path) -> Path:
    """Where a first build of the index `path` works: beside it, so that one rename publishes it."""
    return path.with_name(f".{path.name}.building")


def unreadable(path: Path, error: OSError) -> IndexFormatError:
    """Turn an operating system's refusal to read a file of an index (permission, a broken disk) into one line."""
    reason = (error.strerror or str(error)).lower()
    return IndexFormatError(f"{error.filename or path} cannot be read: {reason}; correct that or rebuild the index")


def _no_index(folder: Path) -> str:
    if not folder.exists():
        if staging_folder(folder).exists():
            return f"no index at {folder}: its build is not finished; repeat the build command, it resumes"
        return f"no index at {folder}: no such folder; make one with `retrieve build-index`"
    if not folder.is_dir():
        return f"{folder} is a file, not an index folder"
    return f"{folder} is not an index: it holds no {MANIFEST}; rebuild it, or give the folder of an index"

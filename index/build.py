"""Writing an index: parts as they come, one commit at the end.

A first build works in a hidden folder beside the index and becomes it by one rename. A change of an existing index
works in `.building` inside it, moves its new files into place and replaces the manifest. A killed writer leaves whole
parts behind; the same call finds them and goes on after the last one.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrieval.columns import unify
from retrieval.counts import many
from retrieval.errors import ConfigError, IndexFormatError
from retrieval.files import atomic_write, sync_folder, sync_parents, writing
from retrieval.hybrid import Fusion
from retrieval.index.choosing import Wanted, choose
from retrieval.index.lexical import write_lexical
from retrieval.index.manifest import (
    MANIFEST,
    METRICS,
    ApproximateEntry,
    DeletedEntry,
    Manifest,
    SegmentEntry,
    staging_folder,
)
from retrieval.index.parsed import parsed
from retrieval.index.place import check_target, clean, lock, next_generation, remove
from retrieval.index.reader import Index
from retrieval.index.segment import Rows, Segment, write_file, write_segment
from retrieval.index.vectors import VectorDtype, WantedDtype, checked, fits_float16
from retrieval.units import TreeEntry

log = logging.getLogger(__name__)

_STALE_SHARE = 0.1  # of the rows, not yet in the approximate index, before it is built anew
FLOAT32_ROWS = 100_000
"""Passages up to which an index whose vectors' dtype is left open keeps float32."""


@dataclass(frozen=True, kw_only=True)
class IndexSpec:
    """What all vectors of an index have in common.

    Attributes:
        dim: Dimension.
        metric: cosine (unit rows) or dot.
        vector_dtype: float32 or float16; auto until a commit knows how many passages there are.
        approximate: The index type, and what is asked of it.
        encoder: Identity of the model, or None.
        text: How text was made.
        lexical: Whether there is a keyword part; None in indexes of a release without, for which compacting makes one.
        fusion: How the scores of keyword search and of vectors are mixed; None: by the default.
        trees: The folders that documents come from, and how their files are chosen; None: not known.

    Raises:
        ConfigError: An encoder of another metric, or without a name.
    """

    dim: int
    metric: str
    vector_dtype: WantedDtype = "auto"
    approximate: Wanted = field(default_factory=Wanted)
    encoder: dict[str, Any] | None = None
    text: dict[str, Any]
    lexical: bool | None = True
    fusion: Fusion | None = None
    trees: list[TreeEntry] | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ConfigError(f"the metric is {self.metric!r}; expected {' or '.join(METRICS)}")
        if self.encoder is not None and not isinstance(self.encoder.get("name"), str):
            raise ConfigError("the encoder's identity has no name, by which the index could remember it")

    @classmethod
    def of(cls, manifest: Manifest) -> IndexSpec:
        """Return the spec of an existing index."""
        return cls(
            dim=manifest.dim,
            metric=manifest.metric,
            vector_dtype=manifest.vector_dtype,
            approximate=Wanted(
                index_type=manifest.index_type,
                min_recall=manifest.min_recall,
                memory_limit=manifest.memory_limit,
            ),
            encoder=manifest.encoder,
            text=manifest.text,
            lexical=manifest.lexical,
            fusion=manifest.fusion,
            trees=manifest.trees,
        )


@dataclass(frozen=True, kw_only=True)
class Part:
    """Documents that are safely in the staging folder: a checkpoint."""

    segment: SegmentEntry
    documents: int
    empty: int

    @classmethod
    def read(cls, path: Path) -> Part:
        """Read a checkpoint's entry.

        Raises:
            ValueError: It is none.
        """
        return parsed(cls, json.loads(path.read_bytes()))  # type: ignore[no-any-return]


class Writer:
    """One change of an index, under its lock. Made by `writing_index`; used as `add`, `delete`, `commit`."""

    def __init__(self, path: Path, base: Index | None, spec: IndexSpec, *, generation: int) -> None:
        """Choose the staging folder (see `writing_index`).

        Args:
            path: The index folder.
            base: The generation whose documents the change keeps, or None for a new index.
            spec: Of the index to be.
            generation: The one that a commit will make; above 1 the index exists.
        """
        self.path = path
        self.base = base
        self.spec = spec
        self.generation = generation
        self.staging = staging_folder(path) if generation == 1 else path / ".building"
        self.parts: list[Part] = []
        self.notices: list[str] = []
        self._deleted: list[np.ndarray] = []
        self._repeatable = False

    @property
    def present(self) -> Index:
        """The generation that is being changed.

        Raises:
            IndexFormatError: The index is being made new.
        """
        if self.base is None:
            raise IndexFormatError(f"{self.path} is being made new: it has no documents yet")
        return self.base

    def resume(self, inputs: str | None) -> None:
        """Take over the whole parts of an unfinished build of the same inputs and settings; drop any others.

        Args:
            inputs: Fingerprint of the documents; None for inputs that cannot be read again.
        """
        self._repeatable = inputs is not None
        # The index type and the keyword part are no part of this: they are made when all vectors are there.
        settings = {
            **asdict(replace(self.spec, approximate=Wanted(), lexical=None)),
            "inputs": inputs,
            "generation": self.generation,
        }
        marker = self.staging / "build.json"
        wanted = json.dumps(settings, sort_keys=True).encode()
        if inputs is not None and marker.exists() and marker.read_bytes() == wanted:
            self.parts = list(self._whole_parts())
        else:
            if self._part_folders():
                self.notices.append("an unfinished build of other inputs or settings was discarded")
            self._discard()
        with writing(self.staging):
            self.staging.mkdir(parents=True, exist_ok=True)
        for leftover in ("segments", "ann", "deleted", MANIFEST):  # of a commit that was cut short
            remove(self.staging / leftover)
        for part in self._part_folders()[len(self.parts) :]:
            remove(part)
        with atomic_write(marker) as stream:
            stream.write(wanted)

    def _part_folders(self) -> list[Path]:
        return sorted((self.staging / "parts" / "segments").glob("*"))

    def _whole_parts(self) -> Iterator[Part]:
        folder = self.staging / "parts"
        for number in range(len(self._part_folders())):
            try:
                part = Part.read(folder / f"{number:06d}.json")
                for file in part.segment.files():
                    file.check(folder, verify=True)
            except (OSError, ValueError):  # IndexFormatError is a ValueError
                return
            yield part

    def kept_ids(self) -> Iterator[pa.Array]:
        """Yield the doc_id of every document in the parts taken over, in order, a part at a time."""
        for part in self.parts:
            segment = self._open_part(part)
            passage = segment.column("passage")
            first = pc.or_(pc.is_null(passage), pc.equal(pc.fill_null(passage, 0), 0))
            yield segment.column("doc_id").filter(first).combine_chunks()

    def _open_part(self, part: Part) -> Segment:
        return Segment(self.staging / "parts", part.segment, dim=self.spec.dim, dtype=self._part_dtype)

    @property
    def _part_dtype(self) -> VectorDtype:
        return "float32" if self.spec.vector_dtype == "auto" else self.spec.vector_dtype

    def add(self, passages: pa.RecordBatch | pa.Table, vectors: np.ndarray, *, documents: int, empty: int) -> None:
        """Write the passages of some documents as one checkpoint.

        Args:
            passages: n rows with doc_id, title, text, passage (null for a document without searchable text), start,
                end and metadata.
            vectors: (n, dim) float32, unit rows under cosine; zeros for documents without searchable text.
            documents: How many documents they are.
            empty: How many of them are without searchable text.

        Raises:
            DataError: Vectors that do not fit, or a place that cannot be written.
        """
        vectors = checked(vectors, self.spec.dim, what="vectors")
        number = f"{len(self.parts):06d}"
        folder = self.staging / "parts"
        table = pa.Table.from_batches([passages]) if isinstance(passages, pa.RecordBatch) else passages
        segment = write_segment(
            folder,
            number,
            schema=table.schema,
            batches=table.combine_chunks().to_batches(max_chunksize=8192),
            blocks=[vectors],
            rows=table.num_rows,
            dim=self.spec.dim,
            dtype=self._part_dtype,
        )
        part = Part(segment=segment, documents=documents, empty=empty)
        with atomic_write(folder / f"{number}.json") as stream:  # from here on the part counts
            stream.write(json.dumps(asdict(part)).encode())
        self.parts.append(part)

    def delete(self, rows: np.ndarray) -> None:
        """Mark rows of the present generation as deleted, from the commit on."""
        self._deleted.append(rows)

    def sample(self, most: int) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        """Yield up to so many of the new passages, evenly spaced, each as a row and its vector (dim,) float32."""
        total = sum(part.segment.rows for part in self.parts)
        wanted = np.unique(np.linspace(0, max(0, total - 1), min(most, total)).astype(np.int64))
        first = 0
        for part in self.parts:
            here = wanted[(wanted >= first) & (wanted < first + part.segment.rows)] - first
            if len(here):
                rows = Rows([self._open_part(part)], dim=self.spec.dim)
                for row, vector in zip(here.tolist(), rows.take(here), strict=True):
                    yield rows.segments[0].passage(row), vector
            first += part.segment.rows

    def set_trees(self, trees: list[TreeEntry] | None) -> None:
        """Remember from the commit on that documents come from these folders."""
        self.spec = replace(self.spec, trees=trees)

    def set_fusion(self, fusion: Fusion | None) -> None:
        """Mix the scores of both sides in this way from the commit on; None: by the default."""
        self.spec = replace(self.spec, fusion=fusion)

    def commit(self) -> Manifest:
        """Publish everything at once.

        Raises:
            ConfigError: The index type cannot be built from these vectors.
            DataError: A place that cannot be written.
        """
        self._notice_other_types()
        old = [] if self.base is None else list(self.base.manifest.segments)
        new = [self._merged()] if self.parts else []
        return self._publish(old, new)

    def _notice_other_types(self) -> None:
        """Say which columns have another type than in the documents that are there: filters on them stop working."""
        if self.base is None or not self.parts:
            return
        there = {field.name: field for field in self.base.schema}
        for column in unify([self._open_part(part).schema for part in self.parts]):
            known = there.get(column.name, column)
            unify([pa.schema([known]), pa.schema([column])])  # refuses metadata beside a column of ours
            if known.type != column.type and not {pa.null()} & {known.type, column.type}:
                self.notices.append(
                    f"column {column.name} is {column.type} here and {known.type} in the index: "
                    "filters on it will be refused"
                )

    def compact(self) -> Manifest:
        """Rewrite the live rows into one segment, free of tombstones, and publish it."""
        base = self.present
        for file in base.manifest.files():
            file.check(base.path, verify=True)  # the copy gets new hashes: damage would look sound in it
        rows = base.rows.rows - len(base.deleted_rows)
        segment = write_segment(
            self.staging,
            self._segment_id,
            schema=unify([segment.schema for segment in base.rows.segments]) if base.rows.segments else pa.schema([]),
            batches=base.documents(),
            blocks=(vectors for _, vectors in base.batches()),
            rows=rows,
            dim=self.spec.dim,
            dtype=self._vector_dtype,
        )
        self._deleted = []
        self.spec = replace(self.spec, lexical=self.spec.lexical is not False)
        return self._publish([], [self._with_terms(segment)] if rows else [], keep_counts=True)

    def optimize(self, wanted: Wanted) -> Manifest:
        """Build another approximate index over the present vectors, or none, and publish it; nothing else changes."""
        self.spec = replace(self.spec, approximate=wanted)
        return self._publish(list(self.present.manifest.segments), [], anew=True)

    @property
    def _segment_id(self) -> str:
        return f"{self.generation:06d}"

    def _merged(self) -> SegmentEntry:
        """Copy all parts into one segment; one part is open at a time, so memory does not grow with the corpus."""
        schema = unify([self._open_part(part).schema for part in self.parts])

        def batches() -> Iterator[pa.RecordBatch]:
            for part in self.parts:
                yield from self._open_part(part).batches

        entry = write_segment(
            self.staging,
            self._segment_id,
            schema=schema,
            batches=batches(),
            blocks=self._blocks(),
            rows=sum(part.segment.rows for part in self.parts),
            dim=self.spec.dim,
            dtype=self._vector_dtype,
        )
        return self._with_terms(entry)

    def _blocks(self) -> Iterator[np.ndarray]:
        for part in self.parts:
            yield from Rows([self._open_part(part)], dim=self.spec.dim).blocks(8192)

    @functools.cached_property
    def _vector_dtype(self) -> VectorDtype:
        """The dtype of the vectors on disk; where it is left open, float16 for many, if it holds them."""
        if self.spec.vector_dtype != "auto":
            return self.spec.vector_dtype
        if sum(part.segment.rows for part in self.parts) <= FLOAT32_ROWS:
            return "float32"
        fits = self.spec.metric == "cosine" or all(fits_float16(block) for block in self._blocks())
        return "float16" if fits else "float32"

    def _with_terms(self, entry: SegmentEntry) -> SegmentEntry:
        """Write the keyword part of a new segment, where the index has one."""
        if not self.spec.lexical:
            return entry
        log.info("counting the terms of %d passages", entry.rows)
        batches = self._open_new(entry).batches
        return replace(entry, lexical=write_lexical(self.staging, entry.id, batches))

    def _open_new(self, entry: SegmentEntry) -> Segment:
        return Segment(self.staging, entry, dim=self.spec.dim, dtype=self._vector_dtype)

    def _publish(
        self, old: list[SegmentEntry], new: list[SegmentEntry], *, keep_counts: bool = False, anew: bool = False
    ) -> Manifest:
        segments = old + new
        deleted = self._all_deleted() if old else np.empty(0, np.int64)
        documents, empty, passages = self._counts(segments, deleted, keep=keep_counts)
        approximate = None if anew else self._still_good(old, new)
        approximate = approximate or self._approximate(old, new)
        manifest = Manifest(
            generation=self.generation,
            dim=self.spec.dim,
            metric=self.spec.metric,
            vector_dtype=self._vector_dtype,
            index_type=self.spec.approximate.index_type,
            min_recall=self.spec.approximate.min_recall,
            memory_limit=self.spec.approximate.memory_limit,
            encoder=self.spec.encoder,
            text=self.spec.text,
            documents=documents,
            passages=passages,
            empty=empty,
            segments=segments,
            deleted=self._write_deleted(deleted) if len(deleted) else None,
            approximate=approximate,
            lexical=self.spec.lexical,
            fusion=self.spec.fusion,
            trees=self.spec.trees,
        )
        with writing(self.path):
            self._move_into_place(manifest)
        return manifest

    def _all_deleted(self) -> np.ndarray:
        before = self.present.deleted_rows
        return np.unique(np.concatenate([before, *self._deleted]))

    def _counts(self, segments: Sequence[SegmentEntry], deleted: np.ndarray, *, keep: bool) -> tuple[int, ...]:
        documents = sum(part.documents for part in self.parts)
        empty = sum(part.empty for part in self.parts)
        if self.base is not None:
            gone = np.setdiff1d(deleted, self.base.deleted_rows) if not keep else np.empty(0, np.int64)
            firsts = self.base.first_passages(gone)  # one a document, which is deleted whole
            documents += self.base.manifest.documents - len(firsts)
            empty += self.base.manifest.empty - firsts.count(None)
        return documents, empty, sum(segment.rows for segment in segments) - len(deleted)

    def _write_deleted(self, deleted: np.ndarray) -> DeletedEntry:
        def fill(sink: BinaryIO) -> None:
            np.save(sink, deleted, allow_pickle=False)

        name = f"deleted/{self._segment_id}.npy"
        return DeletedEntry(rows=len(deleted), file=write_file(self.staging, name, fill))

    def _still_good(self, old: list[SegmentEntry], new: list[SegmentEntry]) -> ApproximateEntry | None:
        """The present approximate index, if it covers nothing that is gone, and little is new."""
        present = None if self.base is None else self.base.manifest.approximate
        if present is None or not set(present.segments) <= {segment.id for segment in old}:
            return None
        total = sum(segment.rows for segment in old + new)
        covered = sum(segment.rows for segment in old if segment.id in present.segments)
        return present if total - covered <= _STALE_SHARE * total else None

    def _approximate(self, old: list[SegmentEntry], new: list[SegmentEntry]) -> ApproximateEntry | None:
        opened = [] if self.base is None else [s for s in self.base.rows.segments if s.id in {e.id for e in old}]
        rows = Rows([*opened, *map(self._open_new, new)], dim=self.spec.dim)
        if rows.rows == 0:
            return None
        searchable = np.concatenate(
            [np.arange(s.rows) + o if s.without_text is None else np.flatnonzero(~s.without_text) + o
             for s, o in zip(rows.segments, rows.starts, strict=False)]
        )  # fmt: skip
        choice = choose(rows, searchable, self.spec.approximate)
        self.notices += choice.notices
        if choice.index is None:
            return None
        return ApproximateEntry(
            factory=choice.factory,
            segments=[segment.id for segment in old + new],
            parameters=choice.index.parameters,
            recall_at_10=round(choice.recall, 4),
            recall_sample=choice.queries,
            file=write_file(self.staging, f"ann/{self._segment_id}.faiss", choice.index.write),
        )

    def _move_into_place(self, manifest: Manifest) -> None:
        if self.generation == 1:
            manifest.write(self.staging)
            self.staging.rename(self.path)
            sync_folder(self.path.parent)
        else:
            for entry in manifest.files():
                source, target = self.staging / entry.path, self.path / entry.path
                if source.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    source.replace(target)
                    sync_parents(self.path, entry.path)
            manifest.write(self.path)
        clean(self.path, manifest)

    def _discard(self) -> None:
        with writing(self.staging):
            remove(self.staging)

    def abandon(self, error: BaseException) -> None:
        """After an error: keep whole parts for the next try, remove the folder if there are none to be used."""
        if self.parts and self._repeatable:
            kept = many(sum(part.documents for part in self.parts), "document")
            log.warning("encoded and kept: %s; repeat the command to go on after them", kept)
        else:
            if isinstance(error, KeyboardInterrupt):
                log.warning("stopped before the first checkpoint: nothing is kept")
            remove(self.staging)


@contextlib.contextmanager
def writing_index(
    path: Path,
    *,
    spec: IndexSpec | None = None,
    inputs: str | None = None,
    overwrite: bool = False,
) -> Iterator[Writer]:
    """Open an index for one change, alone.

    With `spec` the index is made new: `path` must not exist, or `overwrite` is set and the present index answers until
    the commit. Without it the present index is changed.

    Args:
        path: The index folder.
        spec: Of a new index, or None to change the one there.
        inputs: Fingerprint of the documents that will be added; an unfinished build with the same one is resumed.
        overwrite: Whether an index may be there already.

    Raises:
        ConfigError: `path` is in the way.
        IndexFormatError: No index to change.
        IndexLockedError: Another process is writing.
        DataError: The folder cannot be written.
    """
    if spec is None:
        Manifest.read(path)  # where there is no index, not even a lock is made
    with contextlib.ExitStack() as stack:
        exists = lock(stack, path)
        if spec is not None:
            check_target(path, overwrite=overwrite)
            writer = Writer(path, None, spec, generation=next_generation(path) if exists else 1)
        else:
            base = Index.open(path)
            generation = base.manifest.generation + 1
            writer = Writer(path, base, IndexSpec.of(base.manifest), generation=generation)
        try:
            writer.resume(inputs)
            yield writer
        except BaseException as error:
            writer.abandon(error)
            raise
        if not writer.parts:  # perhaps nothing to commit was found, and what a killed writer left is still there
            with writing(writer.staging):
                remove(writer.staging)
                if writer.base is not None:
                    clean(path, Manifest.read(path))

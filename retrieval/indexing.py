"""From documents to an index: read, encode, write, commit; and changing one."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retrieval.balance import SAMPLE, SampledPassage, untuned_fusion
from retrieval.chunking import PassageVectors
from retrieval.counts import many
from retrieval.documents import DocumentSettings, DocumentStream
from retrieval.encoder import BiEncoder, EncoderSettings
from retrieval.errors import ConfigError, DataError, IndexMismatchError
from retrieval.hybrid import Fusion
from retrieval.index.approximate import plans
from retrieval.index.build import IndexSpec, Writer, writing_index
from retrieval.index.choosing import Wanted
from retrieval.index.manifest import Manifest
from retrieval.index.place import check_target
from retrieval.index.reader import Index
from retrieval.index.vectors import WantedDtype
from retrieval.lines import shown
from retrieval.matching import Encoder, load_encoder, require_same_model
from retrieval.passages import EncodedPassages, PassageSource, ReadyPassages, as_rows, cut_parts
from retrieval.units import DIGEST, TreeEntry, is_own, matched
from retrieval.vectorfile import VectorFile
from retrieval.workers import Behind, Part, ahead, check_workers, passages_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """How an index is built.

    Attributes:
        index_type: auto, flat, hnsw, ivf, ivfsq, ivfpq or a FAISS factory string.
        min_recall: Share of the 10 best passages that an approximate index has to find. `auto` takes the first that
            does, and searches exactly where none does; a named type is kept, with a notice.
        memory_limit: Bytes that searching may hold beyond the mapped vectors, likewise; None for any number.
        vector_dtype: float32, float16 for half the size, or auto: float32 up to 100,000 passages and float16 above.
        metric: Of ready-made vectors: cosine (they are brought to unit length) or dot.
        vector_field: Name of the vectors' column in a Parquet file; None where only one column fits.
        lexical: Whether the index gets a part for keyword and hybrid search.
    """

    index_type: str = "auto"
    min_recall: float = 0.99
    memory_limit: int | None = None
    vector_dtype: WantedDtype = "auto"
    metric: str = "cosine"
    vector_field: str | None = None
    lexical: bool = True

    def __post_init__(self) -> None:
        if self.vector_dtype not in ("auto", "float32", "float16"):
            raise ConfigError(f"--vector-dtype {self.vector_dtype}: expected auto, float32 or float16")
        _ = self.approximate  # refuses what is no recall and no size
        if self.metric not in ("cosine", "dot"):
            raise ConfigError(f"--metric {self.metric}: expected cosine or dot")

    @property
    def approximate(self) -> Wanted:
        """What is asked of an approximate index."""
        return Wanted(index_type=self.index_type, min_recall=self.min_recall, memory_limit=self.memory_limit)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a build stands.

    Attributes:
        documents: Documents written so far, kept ones included.
        kept: Of those, taken over from an unfinished build.
        share: Of the inputs' bytes that were read, 0 to 1, or None where the size is not known.
        stage: `documents`, then `commit`.
    """

    documents: int
    kept: int
    share: float | None
    stage: str


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build or a change did. Counts are of this call; `index_documents` and `index_passages` of the index.

    Attributes:
        documents: Documents written.
        passages: Passages written.
        empty: Documents without searchable text: kept, never found.
        kept: Documents taken over from an unfinished build.
        rejected: Bad or duplicate records left out (`on_bad="skip"`).
        replaced: Documents that were replaced, by an upsert or since their files changed.
        unchanged: Documents of trees that were compared, and left as they are.
        vanished: Documents deleted because their files are no longer there.
        skipped_files: Files of a folder that were left out, by reason.
        cut: What the encoder windowed, truncated or reused, by kind.
        index_documents: Documents in the index now.
        index_passages: Passages in the index now.
        index_type: What searches use: `flat` or a FAISS factory string.
        recall_at_10: Of an approximate index against exact search, else None.
        seconds: Wall time from the first document to the commit; loading a model comes before.
        notices: Lines that the user should see.
    """

    documents: int
    passages: int
    empty: int
    kept: int = 0
    rejected: int = 0
    replaced: int = 0
    unchanged: int = 0
    vanished: int = 0
    skipped_files: Mapping[str, int] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)
    index_documents: int
    index_passages: int
    index_type: str
    recall_at_10: float | None
    seconds: float
    notices: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able data."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def build_index(
    corpus: str | Path | Sequence[str | Path],
    path: str | Path,
    *,
    model: str | Path | None = None,
    encoder: Encoder | None = None,
    vectors: str | Path | None = None,
    documents: DocumentSettings = DocumentSettings(),
    encoding: EncoderSettings = EncoderSettings(),
    settings: IndexSettings = IndexSettings(),
    workers: int = 1,
    overwrite: bool = False,
    rejects: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> BuildReport:
    """Build an index over a corpus.

    An unfinished build of the same inputs and settings is resumed. Until the end nothing is to be seen at `path`, or
    the index that is there keeps answering.

    Args:
        corpus: One or more sources: a file (JSONL, CSV, TSV, Parquet, Arrow, text), a folder, or `-`.
        path: The index folder to make.
        model: A model folder or hub name; None for the embedded default.
        encoder: An encoder of your own instead.
        vectors: Ready-made vectors instead: a .npy file with a row for each document, or Parquet with ids.
        documents: How documents are read.
        encoding: How they are encoded.
        settings: How the index is made.
        workers: Processes that encode, each with a model of its own on its share of the cores, or of the CUDA devices
            (device cuda or auto); 1: this process does. The index is the same.
        overwrite: Replace an index at `path`, once the new one is complete.
        rejects: With `on_bad="skip"`: where the rejected records go, with reasons, as JSONL.
        progress: Called as documents are encoded and written.

    Raises:
        ConfigError: Settings that do not fit, or `path` is taken.
        DataError: Documents that cannot be used (file, line and remedy are named), or a place that cannot be written.
        ModelError: The model cannot be used.
        IndexLockedError: Another process is writing to `path`.
    """
    path = Path(path).expanduser()
    check_target(path, overwrite=overwrite)  # before a model is loaded; under the lock it is looked at again
    if vectors is not None:
        ready = VectorFile.open(vectors, column=settings.vector_field)
        documents = ready.document_settings(documents)
    stream = DocumentStream(_sources(corpus), documents)
    if rejects is not None:
        stream.check_apart(rejects)
    inputs = stream.fingerprint() if vectors is None else _joint(stream.fingerprint(), ready.fingerprint())
    if vectors is not None:
        spec = _vector_spec(ready, model, encoder, encoding, settings)
        source: PassageSource = ReadyPassages(ready, cosine=spec.metric == "cosine")
    else:
        if encoding.dtype == "int8" and encoding.calibration is None and inputs is not None:
            encoding = replace(encoding, calibration=hashlib.sha256(inputs.encode()).hexdigest()[:16])
        encoder = encoder or BiEncoder.load(model, settings=encoding)
        spec = _encoder_spec(encoder, encoding, settings)
        source = EncodedPassages(encoder)
    spec = replace(spec, trees=stream.trees)
    check_workers(source, workers)
    plans(settings.index_type, rows=10**9, dim=spec.dim)  # a factory string that FAISS does not know fails now
    with writing_index(path, spec=spec, inputs=inputs, overwrite=overwrite) as writer:
        measured = encoder if vectors is None and settings.lexical else None
        return _fill(writer, stream, source, workers=workers, rejects=rejects, progress=progress, balanced_for=measured)


def add_documents(
    corpus: str | Path | Sequence[str | Path],
    path: str | Path,
    *,
    model: str | Path | None = None,
    encoder: Encoder | None = None,
    vectors: str | Path | None = None,
    upsert: bool = False,
    documents: DocumentSettings = DocumentSettings(),
    encoding: EncoderSettings = EncoderSettings(),
    vector_field: str | None = None,
    workers: int = 1,
    rejects: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> BuildReport:
    """Add documents to an index, encoded as its others were.

    Args:
        corpus: As in `build_index`.
        path: The index folder.
        model: Only needed where the index's model lies elsewhere now; it must be the same one.
        encoder: The encoder of your own that the index was built with.
        vectors: Ready-made vectors, for an index made of such.
        upsert: Replace documents whose id is in the index already, instead of refusing them.
        documents: How documents are read.
        encoding: How the encoder runs (device, dtype, batch_tokens, trust_remote_code); the rest is the index's.
        vector_field: Name of the vectors' column in a Parquet file.
        workers: As in `build_index`.
        rejects: Where rejected records go.
        progress: Called as documents are encoded and written.

    Raises:
        DataError: As in `build_index`; and an id that is in the index already, without `upsert`.
        IndexMismatchError: Another model than the index's.
        IndexFormatError: No index at `path`, or a damaged one.
        IndexLockedError: Another process is writing to `path`.
    """
    path = Path(path).expanduser()
    manifest = Manifest.read(path)
    if vectors is not None:
        ready = VectorFile.open(vectors, column=vector_field)
        documents = ready.document_settings(documents)
        if ready.dim != manifest.dim:
            raise IndexMismatchError(f"{vectors} has {ready.dim} dimensions, the index {path} {manifest.dim}")
        source: PassageSource = ReadyPassages(ready, cosine=manifest.metric == "cosine")
    else:
        source = _encoded(manifest, path, model, encoder, encoding)
    check_workers(source, workers)
    stream = DocumentStream(_sources(corpus), documents, trees=manifest.trees)
    if rejects is not None:
        stream.check_apart(rejects)
    inputs = _joint(stream.fingerprint(), str(upsert), ready.fingerprint() if vectors is not None else "")
    with _changing(path, manifest, inputs) as writer:
        if not upsert:
            for batch in writer.present.documents(["doc_id"]):
                stream.also_known(batch["doc_id"])
        outdated = writer.kept_ids if upsert else None
        if (known := writer.spec.trees) is not None:
            before = matched(stream.trees, known, moved=False)
            for tree, one in zip(stream.trees, before, strict=True):
                if one is not None and tree.patterns != one.patterns:
                    name = shown(tree.name)
                    writer.notices.append(f"--sync will choose files of {name} by {one.patterns}, as before")
            writer.set_trees(known + [tree for tree, one in zip(stream.trees, before, strict=True) if one is None])
        return _fill(writer, stream, source, workers=workers, rejects=rejects, progress=progress, outdated=outdated)


def sync_documents(
    trees: str | Path | Sequence[str | Path],
    path: str | Path,
    *,
    model: str | Path | None = None,
    encoder: Encoder | None = None,
    documents: DocumentSettings = DocumentSettings(),
    encoding: EncoderSettings = EncoderSettings(),
    max_deletes: int | None = None,
    workers: int = 1,
    rejects: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> BuildReport:
    """Bring an index up to date with the folders that it was made of, in one commit.

    Only files that are new or have other bytes are read further and encoded; a document whose file is gone, or is no
    longer read, is deleted. Documents that came from other sources stay. The result answers as a new index would, but
    for the weight of keywords in hybrid search, which stays as it is. `preview_sync` says what would be done.

    Args:
        trees: All folders that files of the index came from.
        path: The index folder.
        model: As in `add_documents`, like the others.
        encoder: See there.
        documents: How files are chosen. Without patterns each folder is read by those that it was read by before; new
            ones are remembered.
        encoding: See there.
        max_deletes: Documents that may be deleted. None: half of those that came from folders, and none where these
            are not the folders that the index was made of, by their places or their names.
        workers: See there.
        rejects: See there.
        progress: See there.

    Raises:
        ConfigError: A source is no folder, or more documents would be deleted than may be; nothing is changed.
        DataError: No file of the folders is in the index; a new file has the id of a document from elsewhere; and as
            in `add_documents`.
        IndexMismatchError: Another model than the index's.
        IndexFormatError: No index at `path`, or a damaged one.
        IndexLockedError: Another process is writing to `path`.
    """
    path = Path(path).expanduser()
    manifest = Manifest.read(path)
    source = _encoded(manifest, path, model, encoder, encoding)
    check_workers(source, workers)
    stream = DocumentStream(_sources(trees), documents, trees=manifest.trees, moved=True)
    if rejects is not None:
        stream.check_apart(rejects)
    gone: set[str] = set()
    with _changing(path, manifest, _joint(stream.fingerprint(), "sync")) as writer:
        digests = _split_by_origin(writer.present, stream)
        known = writer.present.manifest.trees
        notices = _other_trees(stream, known)
        gone_at_once = stream.leave_out(digests, chosen_anew=bool(notices))
        if too_many := _too_many_deletes(known, stream, len(gone_at_once), len(digests), max_deletes):
            raise ConfigError(too_many)  # before anything is encoded
        writer.notices += notices
        writer.set_trees(stream.trees)

        def outdated() -> Iterator[pa.Array]:
            fresh: set[str] = set()
            for ids in writer.kept_ids():
                fresh.update(ids.to_pylist())
                yield ids
            gone.update(stream.vanished(fresh))
            if too_many := _too_many_deletes(known, stream, len(gone), len(digests), max_deletes):
                raise ConfigError(too_many)
            yield pa.array(sorted(gone), pa.string())

        report = _fill(writer, stream, source, workers=workers, rejects=rejects, progress=progress, outdated=outdated)
    replaced = report.replaced - len(gone)
    return replace(report, unchanged=len(stream.unchanged), vanished=len(gone), replaced=replaced)


@dataclass(frozen=True, kw_only=True)
class SyncPreview:
    """What `sync_documents` would do: ids of documents that are new, changed or vanished, sorted.

    Attributes:
        new: Would be added.
        changed: Would be replaced.
        vanished: Would be deleted.
        unchanged: How many would stay as they are.
        notices: What is other than at the last time: folders, patterns.
        refusal: Why it would not be done, or None.
    """

    new: list[str]
    changed: list[str]
    vanished: list[str]
    unchanged: int
    notices: list[str]
    refusal: str | None


def preview_sync(
    trees: str | Path | Sequence[str | Path],
    path: str | Path,
    *,
    documents: DocumentSettings = DocumentSettings(),
    max_deletes: int | None = None,
) -> SyncPreview:
    """Say what `sync_documents` would do. Changed files are read; nothing is encoded or changed.

    Args:
        trees: As in `sync_documents`, like the others.
        path: The index folder.
        documents: See there.
        max_deletes: See there.

    Raises:
        ConfigError: A source is no folder.
        DataError: No file of the folders is in the index, or a file that cannot be used.
        IndexFormatError: No index at `path`, or a damaged one.
    """
    index = Index.open(Path(path).expanduser())
    stream = DocumentStream(_sources(trees), documents, trees=index.manifest.trees, moved=True)
    digests = _split_by_origin(index, stream)
    notices = _other_trees(stream, index.manifest.trees)
    stream.leave_out(digests, chosen_anew=bool(notices))
    fresh = {doc_id for batch in stream for doc_id in batch["doc_id"].to_pylist()}
    vanished = stream.vanished(fresh)
    return SyncPreview(
        new=sorted(fresh - digests.keys()),
        changed=sorted(fresh & digests.keys()),
        vanished=sorted(vanished),
        unchanged=len(stream.unchanged),
        notices=notices,
        refusal=_too_many_deletes(index.manifest.trees, stream, len(vanished), len(digests), max_deletes),
    )


def _too_many_deletes(
    known: list[TreeEntry] | None, stream: DocumentStream, count: int, total: int, most: int | None
) -> str | None:
    """Say why so many of all documents that came from folders should not be deleted, if that is so."""
    same = known is not None and len(known) == len(stream.trees) and None not in matched(stream.trees, known)
    if count <= (most if most is not None else total // 2 if same else 0):
        return None
    would = f"{many(count, 'document')} of {total:,} would be deleted: no file of {_listed(stream.trees)} is theirs"
    if most is not None or same:
        return f"{would}; if they are to go, say --max-deletes {count} (--dry-run lists them)"
    made = f"was made of {_listed(known)}" if known is not None else "does not say which folders it was made of"
    return f"{would}; the index {made}: give all of them, or --max-deletes {count} (--dry-run lists what would go)"


def _other_trees(stream: DocumentStream, known: list[TreeEntry] | None) -> list[str]:
    """Say what is new about the folders that files come from, and about how they are chosen."""
    if known is None:
        return ["the index does not say which folders it was made of; from now on it does"]
    found = []
    before = matched(stream.trees, known)
    if None in before or len(known) != len(stream.trees):
        found.append(f"the index was made of {_listed(known)}; given now: {_listed(stream.trees)}")
    for tree, one in zip(stream.trees, before, strict=True):
        if one is not None and tree.patterns != one.patterns:
            found.append(f"files of {shown(tree.name)} are chosen by {tree.patterns}; before: {one.patterns}")
    return found


def _listed(trees: Sequence[TreeEntry]) -> str:
    return " and ".join(sorted(shown(tree.name) for tree in trees)) or "no folder"


def _split_by_origin(index: Index, stream: DocumentStream) -> dict[str, str]:
    """Return the digests of an index's files by id; ids from other sources count as taken in the stream."""
    digests: dict[str, str] = {}
    for batch in index.documents():
        names = batch.schema.names
        if DIGEST in names and "kind" in names and is_own(batch.schema.field("kind")):  # else it is metadata
            of_tree = pc.and_(pc.is_valid(batch["kind"]), pc.is_valid(batch[DIGEST]))
            files = batch.select(["doc_id", DIGEST]).filter(of_tree)
            digests.update(zip(files["doc_id"].to_pylist(), files[DIGEST].to_pylist(), strict=True))
            stream.also_known(batch["doc_id"].filter(pc.invert(of_tree)))
        else:
            stream.also_known(batch["doc_id"])
    return digests


def _encoded(
    manifest: Manifest, path: Path, model: str | Path | None, encoder: Encoder | None, encoding: EncoderSettings
) -> EncodedPassages:
    """Prepare to encode documents as those of an index were."""
    source = EncodedPassages(encoder or load_encoder(manifest, path, model, encoding))
    require_same_model(manifest, source.encoder, path)
    return source


@contextlib.contextmanager
def _changing(path: Path, manifest: Manifest, inputs: str | None) -> Iterator[Writer]:
    """Open an index for one change; it must still be of the kind that `manifest` says."""
    with writing_index(path, inputs=inputs) as writer:
        kinds = (IndexSpec.of(one) for one in (writer.present.manifest, manifest))
        now, before = (replace(kind, fusion=None, trees=None) for kind in kinds)  # what may have changed meanwhile
        if now != before:
            raise IndexMismatchError(f"{path} was replaced by an index of another kind meanwhile; repeat the command")
        yield writer


@dataclass(frozen=True, kw_only=True)
class DeleteReport:
    """What a deletion did: documents deleted, and ids that were not in the index."""

    deleted: int
    unknown: list[str]
    index_documents: int


def delete_documents(doc_ids: Iterable[str], path: str | Path) -> DeleteReport:
    """Delete documents by id; unknown ids are reported, not an error.

    Raises:
        ConfigError: One string instead of a list.
        DataError: An id that is no string.
        IndexFormatError: No index at `path`, or a damaged one.
        IndexLockedError: Another process is writing to `path`.
    """
    if isinstance(doc_ids, str):
        raise ConfigError(f"doc_ids is the string {doc_ids!r}; give a list of ids")
    wanted = list(dict.fromkeys(doc_ids))
    for doc_id in wanted:
        if not isinstance(doc_id, str):
            raise DataError(f"id {doc_id!r} is {type(doc_id).__name__}; ids are strings, {str(doc_id)!r} for this one")
    with writing_index(Path(path).expanduser()) as writer:
        base = writer.present
        rows = base.find(wanted)
        found = {base.passage(int(row))["doc_id"] for row in rows}
        manifest = base.manifest
        if found:
            writer.delete(rows)
            manifest = writer.commit()
        _warn(writer.notices)
    unknown = [doc_id for doc_id in wanted if doc_id not in found]
    return DeleteReport(deleted=len(found), unknown=unknown, index_documents=manifest.documents)


def compact_index(path: str | Path) -> Manifest:
    """Rewrite the index's live rows into one segment and build its approximate index anew; answers stay the same.

    Raises:
        IndexFormatError: No index at `path`, or a damaged one.
        IndexLockedError: Another process is writing to `path`.
    """
    with writing_index(Path(path).expanduser()) as writer:
        manifest = writer.compact()
        _warn(writer.notices)
    return manifest


def optimize_index(
    path: str | Path, *, index_type: str = "auto", min_recall: float = 0.99, memory_limit: int | None = None
) -> Manifest:
    """Change the type of an index: its approximate index is made anew, from the vectors it holds, in one commit.

    Args:
        path: The index folder.
        index_type: As in `IndexSettings`, like the rest.
        min_recall: See there.
        memory_limit: See there.

    Raises:
        ConfigError: No index type, recall or size.
        IndexFormatError: No index at `path`, or a damaged one.
        IndexLockedError: Another process is writing to `path`.
    """
    wanted = Wanted(index_type=index_type, min_recall=min_recall, memory_limit=memory_limit)
    with writing_index(Path(path).expanduser()) as writer:
        manifest = writer.optimize(wanted)
        _warn(writer.notices)
    return manifest


def set_fusion(path: str | Path, fusion: Fusion | None) -> Manifest:
    """Say how the index's hybrid search mixes the scores of keywords and of vectors; None: by the default.

    Raises:
        ConfigError: The index has no keyword part.
        IndexFormatError: No index at `path`, or a damaged one.
        IndexLockedError: Another process is writing to `path`.
    """
    with writing_index(Path(path).expanduser()) as writer:
        writer.present.require_keywords()
        writer.set_fusion(fusion)
        return writer.commit()


def _warn(notices: Sequence[str]) -> None:
    """Say what a change without a report has to say."""
    for notice in notices:
        log.warning("%s", notice)


def _sources(corpus: str | Path | Sequence[str | Path]) -> list[str | Path]:
    sources = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    for source in sources:
        if not isinstance(source, str | Path):
            raise ConfigError(
                f"corpus holds a {type(source).__name__}; expected paths: write documents from memory to a JSONL file"
            )
    return sources


def _joint(*parts: str | None) -> str | None:
    return None if None in parts else "+".join(str(part) for part in parts)


def _encoder_spec(encoder: Encoder, encoding: EncoderSettings, settings: IndexSettings) -> IndexSpec:
    return IndexSpec(
        dim=encoder.dim,
        metric=encoder.metric,
        vector_dtype=settings.vector_dtype,
        approximate=settings.approximate,
        encoder=dict(encoder.identity),
        text={"title": "title, a space, text", "on_long": encoding.on_long, "overlap": encoding.overlap},
        lexical=settings.lexical,
    )


def _vector_spec(
    ready: VectorFile,
    model: str | Path | None,
    encoder: Encoder | None,
    encoding: EncoderSettings,
    settings: IndexSettings,
) -> IndexSpec:
    """Ready-made vectors, with the identity of the model that made them if the user names it."""
    metric, identity = settings.metric, None
    if encoder is None and model is not None:
        encoder = BiEncoder.load(model, settings=encoding)
    if encoder is not None:
        if encoder.dim != ready.dim:
            raise IndexMismatchError(
                f"{ready.path} has {ready.dim} dimensions, the model {encoder.identity.get('name')} has {encoder.dim}"
            )
        metric, identity = encoder.metric, dict(encoder.identity)
    return IndexSpec(
        dim=ready.dim,
        metric=metric,
        vector_dtype=settings.vector_dtype,
        approximate=settings.approximate,
        encoder=identity,
        text={"title": "unknown: vectors were ready-made"},
        lexical=settings.lexical,
    )


def _fill(
    writer: Writer,
    stream: DocumentStream,
    source: PassageSource,
    *,
    workers: int,
    rejects: str | Path | None,
    progress: ProgressCallback | None,
    outdated: Callable[[], Iterable[pa.Array]] | None = None,
    balanced_for: Encoder | None = None,
) -> BuildReport:
    """Read, encode and write documents, delete those with the ids that `outdated` gives in the end, and commit."""
    started = time.monotonic()
    kept = sum(part.documents for part in writer.parts)
    source.skip(kept)
    done = kept
    share = 0.0  # of the input, up to the end of the last part

    def report(stage: str, under_way: Sequence[tuple[Part, float]] = ()) -> None:
        if progress is not None:
            documents = done + sum(int(within * part.documents.num_rows) for part, within in under_way)
            now = share + sum(within * (part.last - part.first) for part, within in under_way)
            known = stream.share_read is not None
            progress(Progress(documents=documents, kept=kept, share=min(1.0, now) if known else None, stage=stage))

    report("documents")
    parts = _parts(stream, writer, source)
    if stream.share_read is not None:  # nobody can end a thread that waits for standard input
        parts = ahead(parts)
    found = passages_of(source, parts, workers=workers, heard=functools.partial(report, "documents"))
    with Behind() as behind, contextlib.closing(parts), contextlib.closing(found):
        for part, passages in found:
            behind.do(functools.partial(_write, writer, part.documents, passages))
            done += part.documents.num_rows
            share = part.last
    source.finish()
    cut = source.cut()  # before a sample of queries is encoded, too
    if rejects is not None:
        stream.write_rejects(rejects)
    report("commit")
    if balanced_for is not None:
        writer.set_fusion(_measured(writer, balanced_for))
    before = writer.base.manifest.documents if writer.base else 0
    deleted = [writer.present.find(ids) for ids in outdated()] if outdated else []
    for rows in deleted:
        writer.delete(rows)
    changed = writer.parts or any(map(len, deleted)) or writer.spec.trees != writer.present.manifest.trees
    manifest = writer.commit() if changed else writer.present.manifest
    written = sum(part.documents for part in writer.parts)
    return BuildReport(
        documents=written,
        passages=sum(part.segment.rows for part in writer.parts),
        empty=sum(part.empty for part in writer.parts),
        kept=kept,
        rejected=stream.counts.rejected,
        replaced=before + written - manifest.documents,
        skipped_files=dict(stream.counts.skipped_files),
        cut=cut,
        index_documents=manifest.documents,
        index_passages=manifest.passages,
        index_type=manifest.approximate.factory if manifest.approximate else "flat",
        recall_at_10=manifest.approximate.recall_at_10 if manifest.approximate else None,
        seconds=time.monotonic() - started,
        notices=[*stream.notices, *writer.notices],
    )


def _parts(stream: DocumentStream, writer: Writer, source: PassageSource) -> Generator[Part, None, None]:
    """Yield the documents after those of the parts taken over."""
    first = 0.0
    for documents in cut_parts(_after_kept(stream, writer), source.part_documents, source.part_bytes):
        last = stream.share_read or 0.0
        yield Part(documents=documents, first=first, last=last)
        first = last


def _write(writer: Writer, documents: pa.Table, found: PassageVectors) -> None:
    """Write the passages of a part."""
    passages, vectors, empty = as_rows(documents, found, writer.spec.dim)
    writer.add(passages, vectors, documents=documents.num_rows, empty=empty)


def _measured(writer: Writer, encoder: Encoder) -> Fusion | None:
    """How the scores of keyword search and of vectors are mixed in the index to be; None: by the default."""
    sample = [
        SampledPassage(doc_id=row["doc_id"], title=row["title"], text=row["text"], vector=vector)
        for row, vector in writer.sample(SAMPLE)
        if row["passage"] is not None
    ]
    return untuned_fusion(encoder, sample)


def _after_kept(stream: DocumentStream, writer: Writer) -> Iterator[pa.RecordBatch]:
    """Yield the documents after those of the parts taken over, which are read again and compared by id."""
    batches = iter(stream)
    rest: pa.RecordBatch | None = None
    for kept in writer.kept_ids():
        while len(kept):
            if rest is None or rest.num_rows == 0:
                rest = next(batches, None)
            count = 0 if rest is None else min(len(kept), rest.num_rows)
            if rest is None or not rest["doc_id"].slice(0, count).equals(kept.slice(0, count)):
                raise DataError(f"the inputs changed since this build was begun; remove {writer.staging} and repeat it")
            kept, rest = kept.slice(count), rest.slice(count)
    if rest is not None and rest.num_rows:
        yield rest
    yield from batches

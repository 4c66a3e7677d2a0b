"""A stream of documents from files, folders and standard input.

Every batch has `doc_id`, `title` and `text` (strings, never null) and the metadata columns of its records; that of a
source tree has the languages of its files as metadata `lang`, their units (`retrieval.units`) and their digests.
Batches differ in their metadata: `unify` and `conform` give them one schema, `plain` gives a value back.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrieval.chunking import is_blank
from retrieval.columns import conform, is_json, metadata_name, plain, unify
from retrieval.counts import many
from retrieval.duplicates import KnownIds, Piece, Repeats
from retrieval.errors import ConfigError, DataError
from retrieval.formats import KINDS, STANDARD_INPUT, Columns, kind_of, read_file, shown_file
from retrieval.grammars import grammar_of, loaded
from retrieval.lines import COMPRESSIONS, shown
from retrieval.records import DOCUMENT_FIELDS, Documents, DocumentSettings, RecordReader, from_columns
from retrieval.rejects import DocumentCounts, ReadingLog, Reject
from retrieval.suffixes import is_text_name, language_of, suffix_of
from retrieval.tree import (
    Found,
    Skipped,
    TextFile,
    Wishes,
    digest_of,
    read_bytes,
    read_text,
    text_of,
    walk,
)
from retrieval.units import DIGEST, UNITS, UNITS_TYPE, TreeEntry, matched, units_column

__all__ = [
    "DocumentCounts",
    "DocumentSettings",
    "DocumentStream",
    "Reject",
    "conform",
    "is_json",
    "plain",
    "unify",
]

LANGUAGE = "lang"  # of a file of a folder, such as `python`; metadata, so that other sources may have it too
BATCH_BYTES = 1 << 24  # a batch ends early when it holds as much
_CORPUS_NAMES = ("corpus.jsonl", "corpus.jsonl.gz", "corpus.jsonl.zst", "corpus.parquet")
_HEAD = 32  # characters looked at before the whole text is
_WORD = re.compile(r"\w").search


@dataclass(frozen=True, slots=True)
class _Source:
    """A source: its name as given, the file or folder to read, its kind (`tree`, `file` or a format), and of a tree how
    files are chosen."""

    name: str
    path: str
    kind: str
    tree: TreeEntry | None = None


def _source(given: str | Path) -> _Source:
    """Finds out what a source is.

    Raises:
        DataError: it does not exist, or is nothing that can be read.
    """
    name = os.fspath(given)
    if name == STANDARD_INPUT:
        return _Source(name, name, "jsonl")
    path = Path(name)
    if path.is_dir():
        for corpus in _CORPUS_NAMES:
            if (path / corpus).is_file():
                return _Source(name, str(path / corpus), kind_of(corpus) or "jsonl")
        return _Source(name, name, "tree")
    if not path.exists():
        raise DataError(f"{shown_file(name)}: no such file or folder")
    if not path.is_file():
        raise DataError(f"{shown_file(name)}: not a regular file; pass - to read JSONL from standard input")
    if kind := kind_of(path.name):
        return _Source(name, name, kind)
    text = Skipped(name, "") if not is_text_name(path.name) else read_text(path, wanted=True, follow=True)
    if isinstance(text, Skipped):
        known = f"{' '.join(KINDS)} (JSONL, CSV and TSV also with {' '.join(COMPRESSIONS)})"
        why = f": {text.reason}" if text.reason else ""
        raise DataError(f"{shown_file(name)}: no corpus file{why}; expected {known}, a text file or a folder")
    return _Source(name, name, "file")


def _with_trees(
    sources: Sequence[_Source], settings: DocumentSettings, known: Sequence[TreeEntry], *, moved: bool
) -> list[_Source]:
    """Says how the files of folders are chosen: as the settings say, or else as they were in `known`."""
    places = {source: Path(os.path.realpath(source.path)) for source in sources if source.kind == "tree"}
    trees = [
        TreeEntry(
            name=place.name,
            key=hashlib.sha256(os.fsencode(place)).hexdigest()[:16],
            include=list(settings.include),
            exclude=list(settings.exclude),
        )
        for place in places.values()
    ]
    if not settings.include and not settings.exclude:
        before = matched(trees, known, moved=moved)
        if moved and len(trees) == len(known) == 1:
            before = list(known)  # it may have another name now
        trees = [
            tree if one is None else replace(tree, include=one.include, exclude=one.exclude)
            for tree, one in zip(trees, before, strict=True)
        ]
    by_source = dict(zip(places, trees, strict=True))
    return [replace(source, tree=by_source.get(source)) for source in sources]


def _wishes(tree: TreeEntry) -> Wishes:
    return Wishes.of(tree.include, tree.exclude)


class DocumentStream:
    """The documents of several sources, batch by batch.

    A source is a JSONL, CSV, TSV, Parquet or Arrow file, a folder with such a `corpus` file (BEIR), any other
    folder (one document a text file), one text file, or `-` (JSONL on standard input). Every iteration reads
    the sources anew, except standard input. Memory does not grow with the corpus, but for eight bytes an id.

    Args:
        sources: at least one.
        settings: how they are read.
        batch_rows: documents a batch, at most.
        trees: how folders were read before; they are read so again, where `settings` has no patterns.
        moved: whether a folder may lie elsewhere now, and be known by its name.

    Raises:
        DataError: a source does not exist or is of no known kind.
        ConfigError: no source, or one given twice.
    """

    def __init__(
        self,
        sources: Sequence[str | Path],
        settings: DocumentSettings = DocumentSettings(),
        *,
        batch_rows: int = 1024,
        trees: Sequence[TreeEntry] | None = None,
        moved: bool = False,
    ) -> None:
        self.settings = settings
        self._batch_rows = batch_rows
        self._sources = _with_trees([_source(source) for source in sources], settings, trees or (), moved=moved)
        self._known = KnownIds()
        self._log = ReadingLog(settings.on_bad)
        self._input_read = False
        self._sizes = [0] * len(self._sources)  # bytes
        self._digests: Mapping[str, str] = {}
        self._chosen_anew = False
        self.unchanged: set[str] = set()  # ids of files that were left out as `leave_out` says
        if not self._sources:
            raise ConfigError("no corpus given; expected files, folders or -")
        real = [path if path == STANDARD_INPUT else os.path.realpath(path) for path in (s.path for s in self._sources)]
        for number, path in enumerate(real):
            if path in real[:number]:
                raise ConfigError(f"{shown_file(self._sources[number].name)}: given twice as a corpus")

    @property
    def counts(self) -> DocumentCounts:
        """What became of the input, up to now or in the last iteration."""
        return self._log.counts

    @property
    def rejects(self) -> list[Reject]:
        """The first 1,000 records and files left out; `write_rejects` has all."""
        return self._log.rejects

    @property
    def notices(self) -> list[str]:
        """What the user should know: columns renamed or kept as JSON text, files in another encoding."""
        return self._log.notices

    @property
    def share_read(self) -> float | None:
        """How much of the sources' bytes was read, 0 to 1; None where standard input is among them."""
        return None if any(source.path == STANDARD_INPUT for source in self._sources) else self._log.share

    def write_rejects(self, path: str | Path) -> None:
        """Writes all rejects as JSON lines: file, line or row, reason.

        Raises:
            DataError: the file cannot be written.
        """
        self._log.write_rejects(path)

    def check_apart(self, path: str | Path) -> None:
        """Refuses a place to write that is one of the sources.

        Raises:
            ConfigError: it is; the source would be lost.
        """
        if os.path.realpath(path) in (os.path.realpath(s.path) for s in self._sources if s.path != STANDARD_INPUT):
            raise ConfigError(f"{shown_file(os.fspath(path))} is a corpus and would be overwritten; give another file")

    def also_known(self, doc_ids: pa.Array | pa.ChunkedArray) -> None:
        """Makes ids of an index count as taken: a document with one of them is a bad record."""
        self._known.add(doc_ids)

    @property
    def trees(self) -> list[TreeEntry]:
        """How the folders among the sources are read."""
        return [source.tree for source in self._sources if source.tree is not None]

    def leave_out(self, digests: Mapping[str, str], *, chosen_anew: bool = False) -> set[str]:
        """Makes the stream pass over files that have not changed.

        Args:
            digests: SHA-256, in hexadecimal digits, by doc_id.
            chosen_anew: whether files are chosen by other patterns than those of `digests` were: then the texts of
                all are looked at, for one may have been wanted though it is generated.

        Returns:
            Those ids that no file has any more; reading may tell that others are no documents now.

        Raises:
            ConfigError: a source is no tree.
            DataError: no file has such an id.
        """
        for source in self._sources:
            if source.kind != "tree":
                raise ConfigError(f"{shown_file(source.name)} is no folder of files, which is what --sync compares")
        gone = digests.keys() - {file.doc_id for source in self._sources for file in self._files(source)}
        if len(gone) == len(digests):
            names = ", ".join(shown_file(source.name) for source in self._sources)
            raise DataError(
                f"no file of {names} is in the index; give the folders that it was made of, "
                "or rebuild it with `retrieve build-index --overwrite` if none of their files is left"
            )
        self._digests, self._chosen_anew = digests, chosen_anew
        return gone

    def vanished(self, fresh: Set[str]) -> set[str]:
        """Says which of the ids that `leave_out` was given are no documents any more, after an iteration.

        Args:
            fresh: ids of the documents that it yielded.

        Raises:
            DataError: one of them is also that of a file that has not changed.
        """
        if twice := fresh & self.unchanged:
            raise _in_two_folders(min(twice))
        return self._digests.keys() - fresh - self.unchanged

    def fingerprint(self) -> str | None:
        """Identifies the input by names, sizes, times of change and settings; None with standard input.

        `on_bad` is no part of it: a build that stopped at a bad record goes on with `skip`.
        """
        settings = {name: value for name, value in asdict(self.settings).items() if name != "on_bad"}  # same documents
        entries: list[object] = [settings, self._batch_rows]
        for source in self._sources:
            if source.path == STANDARD_INPUT:
                return None
            entries.append((source.kind, source.name, source.tree and asdict(source.tree)))
            entries += [(file.doc_id, file.size, file.changed) for file in self._files(source)]
        return hashlib.sha256(json.dumps(entries).encode()).hexdigest()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        log = self._log = ReadingLog(self.settings.on_bad)
        if any(source.path == STANDARD_INPUT for source in self._sources):
            if self._input_read:
                raise DataError("standard input can be read only once; save it to a file to read it again")
            self._input_read = True
        self._sizes = [sum(file.size for file in self._files(source)) for source in self._sources]
        self.unchanged = set()
        again = ReadingLog(self.settings.on_bad, silent=True)
        repeats = Repeats(self._known, log, lambda: self._pieces(again, whole=False))
        columns: dict[str, pa.Field] = {}
        filled: set[int] = set()
        for piece in self._pieces(log, whole=True):
            documents = repeats.removed_from(piece)
            if not documents.batch.num_rows:
                continue
            filled.add(piece.source)
            _note_columns(documents, columns, log)
            log.counts.documents += documents.batch.num_rows
            log.counts.empty += _count_empty(documents.batch)
            yield documents.batch
        self._note_sources_without(filled, log)

    def _note_sources_without(self, filled: set[int], log: ReadingLog) -> None:
        """Says which sources gave no document; if none did, and none is unchanged, that is an error."""
        if self._digests and self.unchanged:
            return
        bare = [shown_file(source.path) for n, source in enumerate(self._sources) if n not in filled]
        if filled:
            for name in bare:
                log.notice(f"no documents in {name}")
            return
        why = [f"{many(log.counts.rejected, 'bad record')} left out"] if log.counts.rejected else []
        why += [f"{count} skipped: {reason}" for reason, count in sorted(log.counts.skipped_files.items())]
        if log.rejects and log.counts.rejected:
            first = log.rejects[0]
            why.append(f"the first: {first.reason}")
        raise DataError(f"no documents in {', '.join(bare)}{' (' + '; '.join(why) + ')' if why else ''}")

    def _pieces(self, log: ReadingLog, *, whole: bool) -> Iterator[Piece]:
        """Reads the sources; without `whole`, all but standard input, which cannot be read again."""
        for number, source in enumerate(self._sources):
            if source.path == STANDARD_INPUT and not whole:
                continue
            pieces = self._tree_pieces if source.kind in ("tree", "file") else self._file_pieces
            yield from pieces(number, source, log)
            log.share = self._share(number, self._sizes[number])

    def _share(self, number: int, read: float) -> float:
        """How much of all sources was read after `read` bytes of one."""
        return (sum(self._sizes[:number]) + read) / max(sum(self._sizes), 1)

    def _file_pieces(self, number: int, source: _Source, log: ReadingLog) -> Iterator[Piece]:
        settings = self.settings
        reader = RecordReader(settings)
        unit = "row" if source.kind in ("parquet", "arrow") else "line"
        for item in read_file(
            source.path,
            source.kind,
            encoding=settings.encoding,
            header=settings.header,
            given=settings.given,
            drop=settings.drop_fields,
            batch_rows=self._batch_rows,
        ):
            try:
                if isinstance(item, Columns):
                    documents, faults = from_columns(item, settings)
                else:
                    documents, faults = None, reader.take(item)
            except DataError as error:
                raise DataError(f"{shown_file(source.path)}: {error}") from None
            log.share = self._share(number, item.share * self._sizes[number])
            log.bad(number, source.path, unit, faults)
            if documents is not None:
                yield Piece(documents, number, unit, source.path)
            while len(reader) >= self._batch_rows or (reader.size >= BATCH_BYTES and len(reader)):
                yield Piece(reader.cut(self._batch_rows), number, unit, source.path)
        if len(reader):
            yield Piece(reader.cut(self._batch_rows), number, unit, source.path)
        if reader.fields is not None and settings.title_field and not reader.title_seen and unit == "line":
            log.notice(f"{shown_file(source.path)}: no record has a title in {settings.title_field!r}")

    def _tree_pieces(self, number: int, source: _Source, log: ReadingLog) -> Iterator[Piece]:
        found = walk(source.path, _wishes(source.tree)) if source.tree else self._files(source)
        batch = _TreeBatch()
        read = 0
        for file in found:
            if isinstance(file, Skipped):
                log.skipped(file.path, file.reason)
                continue
            data = read_bytes(file.path, follow=source.kind == "file")
            read += file.size
            log.share = self._share(number, min(read, self._sizes[number]))
            if isinstance(data, Skipped):
                log.skipped(data.path, data.reason)
                continue
            digest = digest_of(data) if source.tree else None  # a file that was given by itself is of no folder
            same = digest is not None and self._digests.get(file.doc_id) == digest
            if same and not self._chosen_anew:
                self._unchanged(file.doc_id)
                continue
            result = text_of(file.path, data, wanted=file.wanted, units=True)
            if isinstance(result, Skipped):
                log.skipped(result.path, result.reason)
                continue
            if same:
                self._unchanged(file.doc_id)
                continue
            if result.encoding not in ("utf-8", ""):
                log.encodings[result.encoding] += 1
            if (grammar := grammar_of(suffix_of(file.path))) is not None and loaded(grammar) is None:
                log.uncut.add(grammar.name)
            batch.add(file, result, digest)
            if len(batch.files) >= self._batch_rows or batch.size >= BATCH_BYTES:
                yield Piece(batch.documents(), number, "", batch.files)
                batch = _TreeBatch()
        if batch.files:
            yield Piece(batch.documents(), number, "", batch.files)

    def _unchanged(self, doc_id: str) -> None:
        if doc_id in self.unchanged:
            raise _in_two_folders(doc_id)
        self.unchanged.add(doc_id)

    def _files(self, source: _Source) -> list[Found]:
        """Lists the files of a source that would be read.

        Raises:
            DataError: the source is gone.
        """
        if source.path == STANDARD_INPUT:
            return []
        if source.tree:
            return [file for file in walk(source.path, _wishes(source.tree)) if isinstance(file, Found)]
        path = Path(source.path)
        try:
            status = path.stat()
        except OSError as error:
            raise DataError(f"{shown_file(source.path)}: {(error.strerror or str(error)).lower()}") from error
        return [Found(source.path, path.name, status.st_size, status.st_mtime_ns, wanted=True)]


def _in_two_folders(doc_id: str) -> DataError:
    """Says that an id is not one document's."""
    return DataError(f"id {doc_id!r} is in two of the folders; index them by their common parent")


class _TreeBatch:
    """Files that become one batch; a file's own name is the title, since it often says what the file is about."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.size = 0  # characters
        self._ids: list[str] = []
        self._texts: list[TextFile] = []
        self._digests: list[str | None] = []

    def add(self, file: Found, text: TextFile, digest: str | None) -> None:
        self.files.append(file.path)
        self.size += len(text.text)
        self._ids.append(file.doc_id)
        self._texts.append(text)
        self._digests.append(digest)

    def documents(self) -> Documents:
        titles = [doc_id.rpartition("/")[2] for doc_id in self._ids]
        languages = [language_of(doc_id) for doc_id in self._ids]
        strings = (self._ids, titles, [text.text for text in self._texts], languages, self._digests)
        *arrays, digests = (pa.array(values, pa.string()) for values in strings)
        units = units_column([text.units for text in self._texts])
        more = [pa.field(LANGUAGE, pa.string()), pa.field(UNITS, UNITS_TYPE), pa.field(DIGEST, pa.string())]
        schema = pa.schema([*DOCUMENT_FIELDS, *more])
        batch = pa.RecordBatch.from_arrays([*arrays, units, digests], schema=schema)
        return Documents(batch, np.zeros(len(self.files), dtype=np.int64), [])


def _note_columns(documents: Documents, known: dict[str, pa.Field], log: ReadingLog) -> None:
    """Notes metadata that got another name, or that is kept as JSON text."""
    for name in documents.metadata:
        if (column := metadata_name(name)) != name:
            log.notice(f"metadata {shown(name)!r} is kept as {shown(column)!r}")
    fields = list(documents.batch.schema)[len(DOCUMENT_FIELDS) :]
    met = unify([pa.schema(list(known.values())), pa.schema(fields)])
    for field in met:
        if is_json(field):
            log.notice(f"metadata {shown(field.name)!r} is kept as JSON text (objects, lists or mixed types)")
        known[field.name] = field


def _count_empty(batch: pa.RecordBatch) -> int:
    """Counts documents without a visible character in title and text; no search can find them."""
    columns = [batch.column("text"), batch.column("title")]
    heads = [pc.utf8_slice_codeunits(column, 0, _HEAD).to_pylist() for column in columns]
    # Nearly every document has a letter near its beginning; only the others are worth a closer look.
    bare = [row for row, (text, title) in enumerate(zip(*heads, strict=True)) if not _WORD(text) and not _WORD(title)]
    return sum(all(is_blank(column[row].as_py()) for column in columns) for row in bare)

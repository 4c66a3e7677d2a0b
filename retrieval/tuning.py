"""Tuning: a model learns from a user's own judged queries, and is kept only if it is proven better.

    mine hard negatives -> train -> build an index with the new model -> compare old and new on held-out queries

The work is done in a hidden sibling of the target, `.NAME.tuning`, and renamed at the end. A call that was interrupted
goes on there when it is repeated; another call discards it. The index that is there is only read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retrieval.chunking import joined
from retrieval.documents import DocumentSettings
from retrieval.encoder import POOLINGS, BiEncoder, EncoderSettings
from retrieval.errors import ConfigError
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.comparison import Comparison
from retrieval.eval.evaluation import Evaluation, compared
from retrieval.eval.profiles import get_profile
from retrieval.eval.stages import evaluate_retriever
from retrieval.files import atomic_write, sync_folder, writer_lock, writing
from retrieval.heldout import Splits, limited, split_queries
from retrieval.index.build import IndexSpec
from retrieval.indexing import IndexSettings, build_index
from retrieval.judges import by_reranking, by_search
from retrieval.matching import find_model
from retrieval.models import fingerprint, resolve
from retrieval.reassembly import READING, fingerprint_of, write_documents
from retrieval.reranker import CrossEncoder, RerankSettings
from retrieval.retriever import Retriever
from retrieval.training.bi_encoder import BiEncoderTraining, train_bi_encoder
from retrieval.training.cross_encoder import CrossEncoderTraining, train_cross_encoder
from retrieval.training.examples import Example, examples_of, read_examples, write_examples
from retrieval.training.negatives import MiningSettings, mine_negatives, write_mined
from retrieval.training.run import TrainingReport

METRIC = "ndcg@10"
"""The metric that decides whether a model is kept."""

WHAT = ("encoder", "reranker", "both")
KEEP = ("better", "always")

_METRICS = (METRIC, "mrr@10", "recall@100")
_SIGNIFICANT = 0.05
_STEPS = (60, 200)  # least and most, where nothing is said
_MOST_EPOCHS = 10  # that the least number of steps may come to
_LENGTH = 128  # tokens of a bi-encoder's training inputs
_CHECKPOINTS = 4
_DEVELOPMENT_DOCUMENTS = 5_000
_DEVELOPMENT_HITS = 20
_ENCODER_QUERIES, _RERANKER_QUERIES = 300, 60  # that choose among checkpoints
_CALIBRATED = 10  # queries that a calibration needs

Stage = Callable[[str, float | None], None]
"""Hears what is being done and, where it is known, which share of it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TuningSettings:
    """How a model is tuned; None leaves the choice to the kind of model and the number of queries.

    Attributes:
        what: One of `WHAT`.
        negatives: Hard negatives of a query; None: 1 for the encoder, 5 for the reranker. 0: none (encoder only).
        epochs: Times that all training queries are seen.
        max_steps: Steps instead. Without both: an epoch, but from 60 (at most 10 epochs) to 200 steps.
        batch_size: Rows of a step; None: 128 for the encoder, fewer with less than 1,280 of them, 16 for the reranker.
        learning_rate: The highest one; None: 1e-4 for the encoder, 5e-5 for the reranker.
        max_length: Tokens of a training input; None: 128 for the encoder, what the model takes for the reranker.
        depth: Hits that a reranker re-orders.
        keep: One of `KEEP`.
        seed: Of all that is drawn.
        device: auto, cpu, cuda or mps.
        trust_remote_code: Run Python code that comes with a model.
    """

    what: str = "encoder"
    negatives: int | None = None
    epochs: float | None = None
    max_steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    max_length: int | None = None
    depth: int = 100
    keep: str = "better"
    seed: int = 0
    device: str = "auto"
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("what", WHAT), ("keep", KEEP)):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; expected {', '.join(allowed)}")
        least = 0 if self.what == "encoder" else 1
        if self.negatives is not None and self.negatives < least:
            raise ConfigError(f"negatives is {self.negatives}; expected at least {least} for {self.what}")
        if self.depth < 10:
            raise ConfigError(f"depth is {self.depth}; expected at least 10, the hits that {METRIC} looks at")
        self.training(BiEncoderTraining, 1, 1)  # refuses what no training takes

    def training(self, kind: type[Any], rows: int, negatives: int) -> Any:
        """Return a trainer's settings for a number of rows.

        Raises:
            ConfigError: A number that is out of range.
        """
        encoder = kind is BiEncoderTraining
        batch = self.batch_size or (min(128, max(16, rows // 10)) if encoder else 16)
        steps = self.max_steps
        if steps is None and self.epochs is None:
            epoch = math.ceil(rows / min(batch, rows))
            steps = min(max(epoch, min(_STEPS[0], _MOST_EPOCHS * epoch)), _STEPS[1])
        rate = self.learning_rate if self.learning_rate is not None else 1e-4 if encoder else 5e-5
        return kind(
            epochs=1.0 if self.epochs is None else self.epochs,
            max_steps=steps,
            batch_size=batch if self.batch_size is None else self.batch_size,
            learning_rate=rate,
            max_length=self.max_length,
            negatives=negatives,
            evaluate_every=None if steps is None else max(1, math.ceil(steps / _CHECKPOINTS)),
            seed=self.seed,
            device=self.device,
            trust_remote_code=self.trust_remote_code,
        )


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Old and new on the same queries.

    Attributes:
        what: encoder (the old index against the new one) or reranker (the first stage against its re-ordering).
        held_out: Whether these are the held-out queries, which decide; else another benchmark's.
        evaluation: Two systems, `old` and `new`, and their paired tests.
    """

    what: str
    held_out: bool
    evaluation: Evaluation

    @property
    def decisive(self) -> Comparison:
        """The row of the metric that decides."""
        return next(row for row in self.evaluation.comparisons if row.metric == METRIC)

    @property
    def better(self) -> bool:
        """Whether the new one is better, and not by chance (randomisation test)."""
        return self.decisive.difference > 0 and self.decisive.p_randomization < _SIGNIFICANT

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for `json.dumps`."""
        rows = [row.to_dict() for row in self.evaluation.comparisons]
        return {
            "what": self.what,
            "benchmark": self.evaluation.title,
            "held_out": self.held_out,
            "comparisons": rows,
            "notices": list(self.evaluation.notices),
        }


@dataclass(frozen=True, kw_only=True)
class TuningReport:
    """What a tuning came to.

    Attributes:
        out: The folder: `encoder` and `index`, `reranker`, as far as they were kept; `report.json` always.
        kept: For each model that was trained, whether it was kept.
        proofs: Old and new, on the held-out queries and on further benchmarks.
        queries: Numbers of queries by part: training, selection, proof, dropped.
        splits: Where each part of the queries comes from.
        training: Figures of the training of each model.
        notices: What a reader should know.
        seconds: Wall time of this call.
    """

    out: Path
    kept: Mapping[str, bool]
    proofs: tuple[Proof, ...]
    queries: Mapping[str, int]
    splits: Mapping[str, str]
    training: Mapping[str, Mapping[str, Any]]
    notices: tuple[str, ...] = ()
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for `json.dumps`."""
        body = {name: dict(getattr(self, name)) for name in ("kept", "queries", "splits", "training")}
        proofs = [proof.to_dict() for proof in self.proofs]
        return {
            "out": str(self.out),
            **body,
            "proofs": proofs,
            "notices": list(self.notices),
            "seconds": self.seconds,
        }


def tune(
    index: str | Path,
    benchmark: str | Path,
    out: str | Path,
    *,
    settings: TuningSettings = TuningSettings(),
    model: str | Path | None = None,
    reranker_from: str | Path | None = None,
    also: Sequence[str | Path] = (),
    layout: str = "auto",
    progress: Stage | None = None,
) -> TuningReport:
    """Tune the models of an index on judged queries, and keep what is proven better.

    Args:
        index: The index folder; it is only read.
        benchmark: Queries and judgements of its documents, as in `Benchmark.load`; `split_queries` divides them.
        out: The folder to make.
        settings: What is tuned, and how.
        model: Only needed where the index's model lies elsewhere now.
        reranker_from: Encoder or cross-encoder that a reranker starts from; None: the default encoder.
        also: Further benchmarks, to show what a model that is kept lost elsewhere; takes the time of two indexes each.
        layout: Of `benchmark`.
        progress: Hears what is being done.

    Raises:
        ConfigError: `out` is taken, an index without a model, or settings that do not fit.
        DataError: No judgements to train with or to prove with.
        ModelError: A model cannot be loaded or trained.
        IndexLockedError: Another process tunes into `out`.
    """
    started = time.monotonic()
    place = Path(out).expanduser().absolute()
    if place.exists() or place.is_symlink():
        raise ConfigError(f"{out} exists; give another folder")
    old = Retriever.open(index, model=model, device=settings.device, trust_remote_code=settings.trust_remote_code)
    if old.index.manifest.encoder is None:
        raise ConfigError(f"{index} was made of ready-made vectors: there is no model of it to tune")
    splits = split_queries(benchmark, layout=layout)
    others = [Benchmark.load(one) for one in also]
    start = fingerprint(resolve(reranker_from).folder) if settings.what != "encoder" else None
    judged = [[dict(part.queries), dict(part.qrels)] for part in (splits.training, splits.selection, splits.proof)]
    identity = {
        "settings": {**asdict(settings), "keep": None},
        "index": fingerprint_of(old.index),
        "queries": hashlib.sha256(json.dumps(judged).encode()).hexdigest(),
        "reranker_from": start,
        "also": [one.card.to_dict() for one in others],
    }
    with _workshop(place, identity) as folder:
        job = _Job(place, folder, old, model, splits, settings, progress or (lambda stage, share: None))
        job.read_documents()
        if settings.what != "reranker":
            job.tune_encoder(others)
        if settings.what != "encoder":
            job.tune_reranker(others, reranker_from)
        report = job.report(started)
        _publish(job, report)
    return report


@contextlib.contextmanager
def _workshop(place: Path, identity: Mapping[str, Any]) -> Iterator[Path]:
    """Give the working folder of a target: a new one, or that of an interrupted call with the same inputs."""
    with writing(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    folder, marker = place.parent / f".{place.name}.tuning", "identity.json"
    with writer_lock(place.parent / f".{place.name}.tuning.lock", what=place):
        text = json.dumps(identity, sort_keys=True)
        if folder.exists() and not ((folder / marker).is_file() and (folder / marker).read_text() == text):
            logger.warning("%s belongs to a tuning with other settings or data and is discarded", folder)
            shutil.rmtree(folder)
        with writing(folder):
            (folder / "result").mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / marker) as stream:
            stream.write(text.encode())
        try:
            yield folder
        except BaseException:
            if not any((folder / "result").iterdir()):  # there is nothing to go on from
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _publish(job: _Job, report: TuningReport) -> None:
    """Put what is kept in place of the target, at once."""
    result = job.folder / "result"
    with writing(job.place):
        for what, kept in report.kept.items():
            for name in () if kept else ("encoder", "index") if what == "encoder" else ("reranker",):
                shutil.rmtree(result / name)
        with atomic_write(result / "report.json") as stream:
            stream.write(json.dumps(report.to_dict(), ensure_ascii=False, indent=1).encode() + b"\n")
        result.rename(job.place)
        sync_folder(job.place.parent)
        shutil.rmtree(job.folder)


@dataclass
class _Job:
    """A tuning under way."""

    place: Path
    folder: Path
    old: Retriever
    model: str | Path | None  # where the index's model lies now
    splits: Splits
    settings: TuningSettings
    tell: Stage
    proofs: list[Proof] = field(default_factory=list)
    kept: dict[str, bool] = field(default_factory=dict)
    training: dict[str, dict[str, Any]] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.corpus = self.folder / "documents.arrow"
        self.result = self.folder / "result"
        self.first = self.old  # the first stage that a reranker re-orders

    def read_documents(self) -> None:
        """Write the index's documents as a corpus, and remember those that are relevant to training queries."""
        self.tell("reading the index's documents", None)
        counts = self.folder / "documents.json"
        if not counts.exists():
            found = write_documents(self.old.index, self.corpus)
            with atomic_write(counts) as stream:
                stream.write(json.dumps(asdict(found)).encode())
        if blanks := json.loads(counts.read_text())["blanks"]:
            self.notices.append(f"{blanks:,} documents: blanks between their passages are not kept as they were")
        if self.old.index.manifest.text.get("on_long") == "truncate":
            self.notices.append("the index holds no more than the beginning of documents that were truncated")
        wanted = {doc for grades in self.splits.training.qrels.values() for doc, grade in grades.items() if grade > 0}
        names = ("doc_id", "title", "text")
        for batch in self._documents(wanted):
            columns = (batch.column(f"document {name.removeprefix('doc_')}").to_pylist() for name in names)
            self.texts |= {doc_id: joined(title, text) for doc_id, title, text in zip(*columns, strict=True)}

    def _documents(self, wanted: set[str]) -> Iterator[pa.RecordBatch]:
        values = pa.array(sorted(wanted), pa.string())
        with pa.ipc.open_file(pa.memory_map(str(self.corpus))) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                yield batch.filter(pc.is_in(batch.column("document id"), value_set=values))

    def examples(self, retriever: Retriever, name: str, negatives: int) -> list[Example]:
        """Mine negatives with an index, once."""
        path, queries, qrels = self.folder / f"{name}.jsonl", self.splits.training.queries, self.splits.training.qrels
        if not path.exists():
            if negatives:
                result = mine_negatives(
                    queries,
                    qrels,
                    lambda texts, k: retriever.search_many(texts, k, rerank=False),
                    texts=self.texts,
                    settings=MiningSettings(per_query=negatives, seed=self.settings.seed),
                    progress=lambda done, total: self.tell("mining hard negatives", done / total),
                )
                write_mined(path, result)
            else:
                write_examples(path, examples_of(queries, qrels, self.texts))
        return read_examples(path)

    def tune_encoder(self, others: Sequence[Benchmark]) -> None:
        """Train the index's model, build an index with it, and compare."""
        manifest, old = self.old.index.manifest, self.old.encoder
        made_with = manifest.encoder or {}
        negatives = 1 if self.settings.negatives is None else self.settings.negatives
        examples = self.examples(self.old, "encoder", negatives)
        encoding = EncoderSettings(
            query_prompt=made_with.get("query_prompt"),
            document_prompt=made_with.get("document_prompt"),
            max_length=made_with.get("max_length"),
            on_long=manifest.text.get("on_long", "window"),
            overlap=manifest.text.get("overlap"),
            device=self.settings.device,
            trust_remote_code=self.settings.trust_remote_code,
        )
        folder = self.result / "encoder"
        if not folder.exists():
            settings = self.settings.training(BiEncoderTraining, sum(len(e.positives) for e in examples), negatives)
            length = self.settings.max_length or min(_LENGTH, made_with.get("max_length") or _LENGTH)
            prompts = {name: made_with.get(name) for name in ("query_prompt", "document_prompt")}
            found = find_model(manifest, self.old.index.path, self.model)
            pooling = made_with.get("pooling")
            trained = train_bi_encoder(
                examples,
                folder,
                model=found.folder if found.path else found.name,
                pooling=pooling if pooling in POOLINGS else None,
                settings=replace(settings, max_length=length, **prompts),
                evaluate=self._encoder_judge(encoding),
                sources=self._sources(),
                progress=lambda share: self.tell("training the encoder", share),
            )
            self._note("encoder", trained)
        encoder = self._served(folder, encoding)
        index = self.result / "index"
        if not index.exists():
            self.tell("building the new index", None)
            build_index(
                [self.corpus],
                index,
                encoder=encoder,
                documents=READING,
                encoding=encoding,
                settings=IndexSettings(
                    index_type=manifest.index_type, vector_dtype=IndexSpec.of(manifest).vector_dtype
                ),
                progress=lambda now: self.tell("building the new index", now.share),
            )
        new = Retriever.open(index, encoder=encoder)
        self._prove("encoder", self.old, new, self.splits.proof, held_out=True)
        if not self._keeps("encoder"):
            return
        self.first = new
        for number, other in enumerate(others):
            before, after = (
                Retriever.open(self._index_of(other, number, name, one, encoding), encoder=one)
                for name, one in (("old", old), ("new", encoder))
            )
            self._prove("encoder", before, after, other, held_out=False)

    def tune_reranker(self, others: Sequence[Benchmark], start: str | Path | None) -> None:
        """Train a cross-encoder on the hits of the first stage, and compare its order with theirs."""
        negatives = 5 if self.settings.negatives is None else self.settings.negatives
        folder, first = self.result / "reranker", self.first
        running = RerankSettings(device=self.settings.device, trust_remote_code=self.settings.trust_remote_code)
        if not folder.exists():
            examples = self.examples(first, "reranker", negatives)
            settings = self.settings.training(CrossEncoderTraining, sum(len(e.positives) for e in examples), negatives)
            judge, hits = None, []
            if self.splits.selection.queries:
                self.tell("searching development queries", None)
                some = limited(self.splits.selection, _RERANKER_QUERIES)
                judged = by_reranking(first, some, METRIC, depth=self.settings.depth, settings=running)
                judge, hits = judged.judge, judged.examples
            if len(hits) < _CALIBRATED:
                self.notices.append(
                    f"the reranker's probabilities are not calibrated: {len(hits)} development queries have relevant "
                    f"hits, {_CALIBRATED} are needed"
                )
                settings, hits = replace(settings, calibration="none"), []
            trained = train_cross_encoder(
                examples,
                folder,
                model=start,
                settings=settings,
                evaluate=judge,
                development=hits,
                sources=self._sources(),
                progress=lambda share: self.tell("training the reranker", share),
            )
            self._note("reranker", trained)
        reranker = CrossEncoder.load(folder, settings=running)
        both = Retriever(first.index, encoder=first.encoder, reranker=reranker)
        self._prove("reranker", None, both, self.splits.proof, held_out=True)
        if not self._keeps("reranker"):
            return
        encoder = first.encoder
        for number, other in enumerate(others):
            name = "old" if first is self.old else "new"
            index = self._index_of(other, number, name, encoder, getattr(encoder, "settings", EncoderSettings()))
            both = Retriever.open(index, encoder=encoder, reranker=reranker)
            self._prove("reranker", None, both, other, held_out=False)

    def _encoder_judge(self, encoding: EncoderSettings) -> Any:
        """Judge checkpoints by a search of what is relevant, what was found, and a sample of the other documents."""
        benchmark = limited(self.splits.selection, _ENCODER_QUERIES)
        if not benchmark.queries:
            return None
        corpus = self.corpus
        if self.old.documents > _DEVELOPMENT_DOCUMENTS:
            self.tell("collecting development documents", None)
            corpus = self.folder / "development.arrow"
            found = self.old.search_many(list(benchmark.queries.values()), _DEVELOPMENT_HITS, rerank=False)
            wanted = {hit.doc_id for hits in found for hit in hits}
            wanted |= {doc_id for grades in benchmark.qrels.values() for doc_id in grades}
            self._sample(corpus, wanted, every=math.ceil(self.old.documents / _DEVELOPMENT_DOCUMENTS))
        return by_search(corpus, benchmark, METRIC, documents=READING, encoding=encoding)

    def _sample(self, path: Path, wanted: set[str], every: int) -> None:
        values = pa.array(sorted(wanted), pa.string())
        position = 0
        with (
            pa.ipc.open_file(pa.memory_map(str(self.corpus))) as reader,
            atomic_write(path) as stream,
            pa.ipc.new_file(stream, reader.schema) as writer,
        ):
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                named = pc.is_in(batch.column("document id"), value_set=values).to_pylist()
                keep = [name or (position + row) % every == 0 for row, name in enumerate(named)]
                position += batch.num_rows
                writer.write_batch(batch.filter(pa.array(keep, pa.bool_())))

    def _served(self, folder: Path, encoding: EncoderSettings) -> BiEncoder:
        """Load the new model; indexes remember where it will lie."""
        encoder = BiEncoder.load(folder, settings=encoding)
        encoder.identity["path"] = str(self.place / "encoder")
        return encoder

    def _index_of(self, other: Benchmark, number: int, name: str, encoder: Any, encoding: EncoderSettings) -> Path:
        """Build an index of another benchmark's documents, once."""
        corpus, index = self.folder / f"also-{number}", self.folder / f"also-{number}-{name}"
        if not corpus.exists():
            other.save(corpus)
        if not index.exists():
            stage = f"indexing {other.card.name} with the {name} model"
            build_index(
                [corpus],
                index,
                encoder=encoder,
                documents=DocumentSettings(),
                encoding=encoding,
                progress=lambda now: self.tell(stage, now.share),
            )
        return index

    def _prove(self, what: str, old: Retriever | None, new: Retriever, benchmark: Benchmark, *, held_out: bool) -> None:
        """Ask old and new the same queries; without `old` the two stages of `new`."""
        ignore = bool(benchmark.card.profile) and get_profile(benchmark.card.profile).ignore_identical_ids

        def asked(retriever: Retriever, name: str) -> Evaluation:
            stage = f"{name} {what} on {benchmark.card.name}, {benchmark.card.split}"
            return evaluate_retriever(
                retriever,
                benchmark,
                _METRICS,
                k=max(100, self.settings.depth),
                rerank_depth=self.settings.depth,
                ignore_identical_ids=ignore,
                progress=lambda done, total: self.tell(stage, done / total),
            )

        after = asked(new, "new")
        before = after if old is None else asked(old, "old")
        systems = (replace(before.systems[0], name="old"), replace(after.systems[-1], name="new"))
        evaluation = replace(after, systems=systems, comparisons=compared(systems))
        self.proofs.append(Proof(what=what, held_out=held_out, evaluation=evaluation))

    def _keeps(self, what: str) -> bool:
        kept = self.settings.keep == "always" or self.proofs[-1].better
        self.kept[what] = kept
        return kept

    def _sources(self) -> dict[str, object]:
        card = self.splits.training.card
        return {"examples": f"{card.name}, {card.split}", "queries": len(self.splits.training.queries)}

    def _note(self, what: str, trained: TrainingReport) -> None:
        """Remember figures of a training, also for a call that goes on after it."""
        figures = {name: getattr(trained, name) for name in ("steps", "best_step", "loss", "seconds", "tokens")}
        with atomic_write(self.folder / f"{what}.json") as stream:
            stream.write(json.dumps({**figures, "metrics": dict(trained.metrics)}).encode())

    def report(self, started: float) -> TuningReport:
        """Sum up."""
        for what in self.kept:
            if (self.folder / f"{what}.json").exists():
                self.training[what] = json.loads((self.folder / f"{what}.json").read_text())
        parts = {name: len(getattr(self.splits, name).queries) for name in ("training", "selection", "proof")}
        return TuningReport(
            out=self.place,
            kept=self.kept,
            proofs=tuple(self.proofs),
            queries={**parts, "dropped": self.splits.dropped},
            splits=self.splits.facts,
            training=self.training,
            notices=tuple(self.notices),
            seconds=time.monotonic() - started,
        )

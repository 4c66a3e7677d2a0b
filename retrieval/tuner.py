"""A tuning under way: mine, train, build, compare, for the encoder and for the reranker."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from retrieval.counts import many
from retrieval.documents import DocumentSettings
from retrieval.encoder import POOLINGS, BiEncoder, EncoderSettings
from retrieval.errors import ConfigError
from retrieval.eval.benchmark import Benchmark
from retrieval.files import atomic_write
from retrieval.heldout import Splits, limited
from retrieval.index.build import IndexSpec
from retrieval.index.manifest import Manifest
from retrieval.indexing import IndexSettings, build_index
from retrieval.judges import HitsJudge, by_reranking, by_search
from retrieval.matching import find_model
from retrieval.mixture import fit_mixture
from retrieval.proof import METRIC, Proof, prove
from retrieval.ranking import Hit
from retrieval.reassembly import READING, read_texts, write_documents_once, write_sample
from retrieval.reranker import CrossEncoder, RerankSettings
from retrieval.retriever import Retriever
from retrieval.training.bi_encoder import BiEncoderTraining, train_bi_encoder
from retrieval.training.cross_encoder import CrossEncoderTraining, train_cross_encoder
from retrieval.training.examples import Example, examples_of, read_examples, write_examples
from retrieval.training.negatives import MiningSettings, mine_negatives, write_mined
from retrieval.training.run import TrainingReport

WHAT = ("encoder", "reranker", "both")
KEEP = ("better", "always")

_STEPS = (60, 200)  # least and most, where nothing is said
_MOST_EPOCHS = 10  # that the least number of steps may come to
_LENGTH = 128  # tokens of a bi-encoder's training inputs
_CHECKPOINTS = 3
_DEVELOPMENT_DOCUMENTS = 1_000  # every checkpoint encodes them: what is relevant, what was found, and a sample
_DEVELOPMENT_HITS = 5
_SAMPLED = 0.4  # share of them
_ENCODER_QUERIES, _RERANKER_QUERIES = 100, 60  # that choose among checkpoints
_CALIBRATED = 10  # queries that a calibration needs, or a mixture
_LEAST_FIRST = 0.1  # share of the first stage that a tuned reranker leaves it at least

Stage = Callable[[str, float | None], None]
"""Hears what is being done and, where it is known, which share of it."""


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
        interpolation: How far the new encoder's weights lie from the old ones towards what was learnt, above 0, up to
            1. A third of the way keeps most of the gain, and loses next to nothing on texts of other kinds.
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
    interpolation: float = 0.3
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
        more = {"interpolation": self.interpolation} if encoder else {}
        return kind(
            **more,
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


def encoding_of(manifest: Manifest, settings: TuningSettings) -> EncoderSettings:
    """Return how the documents of an index were encoded, for other documents or another model."""
    made_with = manifest.encoder or {}
    return EncoderSettings(
        query_prompt=made_with.get("query_prompt"),
        document_prompt=made_with.get("document_prompt"),
        max_length=made_with.get("max_length"),
        on_long=manifest.text.get("on_long", "window"),
        overlap=manifest.text.get("overlap"),
        device=settings.device,
        trust_remote_code=settings.trust_remote_code,
    )


def shape_of(manifest: Manifest) -> IndexSettings:
    """Return how an index was made, for another one of its kind."""
    spec = IndexSpec.of(manifest)
    return IndexSettings(
        index_type=spec.approximate.index_type,
        min_recall=spec.approximate.min_recall,
        memory_limit=spec.approximate.memory_limit,
        vector_dtype=spec.vector_dtype,
        lexical=bool(spec.lexical),
    )


@dataclass
class Job:
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
    index: Path | None = None  # where the new index is built; None: in the result
    minable: Callable[[str, Hit], bool] | None = None  # hits of a query that mining may see; None: all

    def __post_init__(self) -> None:
        self.corpus = self.folder / "documents.arrow"
        self.result = self.folder / "result"
        self.first = self.old  # the first stage that a reranker re-orders
        self._hits: HitsJudge | None = None

    def read_documents(self) -> None:
        """Write the index's documents as a corpus, and remember those that are relevant to training queries."""
        self.tell("reading the index's documents", None)
        if blanks := write_documents_once(self.old.index, self.corpus).blanks:
            self.notices.append(f"{many(blanks, 'document')}: blanks between passages are not kept as they were")
        if self.old.index.manifest.text.get("on_long") == "truncate":
            self.notices.append("the index holds no more than the beginning of documents that were truncated")
        wanted = {doc for grades in self.splits.training.qrels.values() for doc, grade in grades.items() if grade > 0}
        self.texts = read_texts(self.corpus, wanted)

    def examples(self, retriever: Retriever, name: str, negatives: int) -> list[Example]:
        """Mine negatives with an index, once."""
        path, queries, qrels = self.folder / f"{name}.jsonl", self.splits.training.queries, self.splits.training.qrels
        if not path.exists():
            if negatives:
                result = mine_negatives(
                    queries,
                    qrels,
                    lambda texts, k: self._candidates(retriever, texts, k),
                    texts=self.texts,
                    settings=MiningSettings(per_query=negatives, seed=self.settings.seed),
                    progress=lambda done, total: self.tell("mining hard negatives", done / total),
                )
                write_mined(path, result)
            else:
                write_examples(path, examples_of(queries, qrels, self.texts))
        return read_examples(path)

    def _candidates(self, retriever: Retriever, texts: Sequence[str], k: int) -> list[list[Hit]]:
        """Search for negatives among what may be some."""
        found, allowed = retriever.search_many(texts, k, rerank=False), self.minable
        if allowed is None:
            return found
        return [[hit for hit in hits if allowed(text, hit)] for text, hits in zip(texts, found, strict=True)]

    def tune_encoder(self, others: Sequence[Benchmark]) -> None:
        """Train the index's model, build an index with it, and compare."""
        manifest, old = self.old.index.manifest, self.old.encoder
        made_with = manifest.encoder or {}
        negatives = 1 if self.settings.negatives is None else self.settings.negatives
        examples = self.examples(self.old, "encoder", negatives)
        encoding = encoding_of(manifest, self.settings)
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
        index = self.index or self.result / "index"
        if not index.exists():
            self.tell("building the new index", None)
            build_index(
                [self.corpus],
                index,
                encoder=encoder,
                documents=READING,
                encoding=encoding,
                settings=shape_of(manifest),
                progress=lambda now: self.tell("building the new index", now.share),
            )
        new = Retriever.open(index, encoder=encoder, mode="dense")
        self._prove("encoder", self.old, new, self.splits.proof, held_out=True)
        if not self._keeps("encoder"):
            return
        self.first = new
        for number, other in enumerate(others):
            before, after = (
                Retriever.open(self._index_of(other, number, name, one, encoding), encoder=one, mode="dense")
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
                development = self._development(first, running)
                judge, hits = development.judge, development.examples
            if len(hits) < _CALIBRATED:
                self.notices.append(
                    f"the reranker's probabilities are not calibrated, and it is not mixed with the first stage: "
                    f"{many(len(hits), 'development query')} with relevant hits, {_CALIBRATED} are needed"
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
        self._mix(folder, first, running)
        reranker = CrossEncoder.load(folder, settings=running)
        both = Retriever(first.index, encoder=first.encoder, reranker=reranker, mode="dense")
        self._prove("reranker", None, both, self.splits.proof, held_out=True)
        if not self._keeps("reranker"):
            return
        encoder = first.encoder
        for number, other in enumerate(others):
            name = "old" if first is self.old else "new"
            index = self._index_of(other, number, name, encoder, getattr(encoder, "settings", EncoderSettings()))
            both = Retriever.open(index, encoder=encoder, reranker=reranker, mode="dense")
            self._prove("reranker", None, both, other, held_out=False)

    def _development(self, first: Retriever, running: RerankSettings) -> HitsJudge:
        """Search the queries that choose among a reranker's checkpoints, once."""
        if self._hits is None:
            self.tell("searching development queries", None)
            some = limited(self.splits.selection, _RERANKER_QUERIES)
            self._hits = by_reranking(first, some, METRIC, depth=self.settings.depth, settings=running)
        return self._hits

    def _mix(self, folder: Path, first: Retriever, running: RerankSettings) -> None:
        """Fit how much the first stage counts, and put it into the reranker's folder; once, also over several calls.

        The queries are few, and the checkpoint was chosen by them, so they speak too well of the reranker. The first
        stage keeps a share at least, which decides where the reranker sees next to no difference.
        """
        notes = self.folder / "reranker.json"
        figures = json.loads(notes.read_text()) if notes.exists() else {}
        if "mixture" in figures or not self.splits.selection.queries:
            return
        development = self._development(first, running)
        if len(development.examples) < _CALIBRATED:
            return
        self.tell("fitting how much the first stage counts", None)
        lists = development.mixable(CrossEncoder.load(folder, settings=running))
        card = self.splits.selection.card
        mixture = fit_mixture({f"{card.name}, {card.split}": lists}, least=_LEAST_FIRST)
        mixture.save(folder)
        if figures:
            figures["mixture"] = {"weight": mixture.weight, "temperature": mixture.temperature, **mixture.notes}
            with atomic_write(notes) as stream:
                stream.write(json.dumps(figures).encode())

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
            write_sample(
                self.corpus, corpus, wanted, every=math.ceil(self.old.documents / (_SAMPLED * _DEVELOPMENT_DOCUMENTS))
            )
        return by_search(corpus, benchmark, METRIC, documents=READING, encoding=encoding)

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
        self.proofs.append(
            prove(what, old, new, benchmark, held_out=held_out, depth=self.settings.depth, progress=self.tell)
        )

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

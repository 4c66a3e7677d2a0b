"""Tuning: a model learns from a user's own judged queries, and is kept only if it is proven better.

    mine hard negatives -> train -> build an index with the new model -> compare old and new on held-out queries

Without judged queries, the structure of the documents stands in for them (see `derivation`): all of this is then done
with an index of the documents' parts, and the documents themselves are indexed at the end, with a model that is kept.

The work is done in a hidden sibling of the target, `.NAME.tuning`, and renamed at the end. A call that was interrupted
goes on there when it is repeated; another call discards it. The index that is there is only read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from retrieval.derivation import Derivation, derive
from retrieval.errors import ConfigError
from retrieval.eval.benchmark import Benchmark
from retrieval.files import atomic_write, require_utf8, sync_folder, writer_lock, writing
from retrieval.heldout import Splits, split_queries
from retrieval.indexing import build_index
from retrieval.models import fingerprint, resolve
from retrieval.proof import Proof
from retrieval.ranking import Hit
from retrieval.reassembly import READING, fingerprint_of, write_documents_once
from retrieval.retriever import Retriever
from retrieval.structure import source_of
from retrieval.tuner import Job, Stage, TuningSettings, encoding_of, shape_of

__all__ = ["TuningReport", "TuningSettings", "tune"]

logger = logging.getLogger(__name__)

_NOT_KEPT = "-not-kept"
_WHOLE = "whole.arrow"  # the documents of the index, where `documents.arrow` are their parts


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
        structure: What the queries were made of, where they were not given.
        notices: What a reader should know.
        seconds: Wall time of this call.
    """

    out: Path
    kept: Mapping[str, bool]
    proofs: tuple[Proof, ...]
    queries: Mapping[str, int]
    splits: Mapping[str, str]
    training: Mapping[str, Mapping[str, Any]]
    structure: Derivation | None = None
    notices: tuple[str, ...] = ()
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for `json.dumps`."""
        body = {name: dict(getattr(self, name)) for name in ("kept", "queries", "splits", "training")}
        proofs = [proof.to_dict() for proof in self.proofs]
        return {
            "out": str(self.out),
            **body,
            "structure": None if self.structure is None else self.structure.to_dict(),
            "proofs": proofs,
            "notices": list(self.notices),
            "seconds": self.seconds,
        }


def tune(
    index: str | Path,
    benchmark: str | Path | None,
    out: str | Path,
    *,
    settings: TuningSettings = TuningSettings(),
    model: str | Path | None = None,
    reranker_from: str | Path | None = None,
    also: Sequence[str | Path] = (),
    split: str = "train",
    layout: str = "auto",
    progress: Stage | None = None,
) -> TuningReport:
    """Tune the models of an index on judged queries, or on the structure of its documents; keep what is proven better.

    Args:
        index: The index folder; it is only read.
        benchmark: Queries and judgements of its documents, as in `Benchmark.load`; `split_queries` divides them. None:
            pairs are made from titles, headings and docstrings. A proof on them is none on what users ask.
        out: The folder to make.
        settings: What is tuned, and how.
        model: Only needed where the index's model lies elsewhere now.
        reranker_from: Encoder or cross-encoder that a reranker starts from; None: the default encoder.
        also: Further benchmarks, to show what a model that is kept lost elsewhere; takes the time of two indexes each.
        split: Of `benchmark`: the queries to train with.
        layout: Of `benchmark`.
        progress: Hears what is being done.

    Raises:
        ConfigError: `out` is taken, an index without a model, or settings that do not fit.
        DataError: No judgements to train with or to prove with, or too little structure to make some.
        ModelError: A model cannot be loaded or trained.
        IndexLockedError: Another process tunes into `out`.
    """
    started = time.monotonic()
    place = Path(out).expanduser().absolute()
    if place.exists() or place.is_symlink():
        raise ConfigError(f"{out} exists; give another folder")
    require_utf8(place)
    if Path(index).expanduser().resolve() in place.resolve().parents:
        raise ConfigError(f"{out} lies in the index {index}, which is only read; give another folder")
    old = Retriever.open(
        index, model=model, mode="dense", device=settings.device, trust_remote_code=settings.trust_remote_code
    )
    if old.index.manifest.encoder is None:
        raise ConfigError(f"{index} was made of ready-made vectors: there is no model of it to tune")
    if benchmark is None and (split, layout) != ("train", "auto"):
        raise ConfigError(f"split {split!r}, layout {layout!r}: of which benchmark? none is given")
    splits = None if benchmark is None else split_queries(benchmark, split=split, layout=layout)
    others = [Benchmark.load(one) for one in also]
    start = fingerprint(resolve(reranker_from).folder) if settings.what != "encoder" else None
    identity = {
        "settings": {**asdict(settings), "keep": None},
        "index": fingerprint_of(old.index),
        "queries": "structure" if splits is None else _digest(splits),
        "reranker_from": start,
        "also": [one.card.to_dict() for one in others],
    }
    tell: Stage = progress or (lambda stage, share: None)
    with _workshop(place, identity) as folder:
        structure = None if splits is not None else _derived(old, folder, settings, tell)
        if splits is not None:
            job = Job(place, folder, old, model, splits, settings, tell)
        else:
            job = _job_on_parts(place, folder, old, model, settings, tell)
        job.read_documents()
        if settings.what != "reranker":
            job.tune_encoder(others)
        if settings.what != "encoder":
            job.tune_reranker(others, reranker_from)
        if structure is not None:
            job.notices.insert(0, structure.sentence())
            if job.kept.get("encoder"):
                _index_documents(job, old)
        report = _report(job, structure, started)
        _publish(job, report)
    return report


def _digest(splits: Splits) -> str:
    """SHA-256 of queries and judgements."""
    judged = [[dict(part.queries), dict(part.qrels)] for part in (splits.training, splits.selection, splits.proof)]
    return hashlib.sha256(json.dumps(judged).encode()).hexdigest()


def _derived(whole: Retriever, folder: Path, settings: TuningSettings, tell: Stage) -> Derivation:
    """Make a benchmark, `pairs`, of the parts of an index's documents, and an index of it, `parts`; once."""
    tell("reading the index's documents", None)
    corpus = folder / _WHOLE
    write_documents_once(whole.index, corpus)
    tell("making pairs from their structure", None)
    found = derive(corpus, folder / "pairs", name=f"structure of {whole.index.path.resolve().name}")
    if not (folder / "parts").exists():
        tell("indexing their parts", None)
        build_index(
            [folder / "pairs"],
            folder / "parts",
            encoder=whole.encoder,
            encoding=encoding_of(whole.index.manifest, settings),
            settings=shape_of(whole.index.manifest),
            progress=lambda now: tell("indexing their parts", now.share),
        )
    return found


def _job_on_parts(
    place: Path, folder: Path, whole: Retriever, model: str | Path | None, settings: TuningSettings, tell: Stage
) -> Job:
    """Make a tuning of what `_derived` made."""
    splits = split_queries(folder / "pairs")
    old = Retriever.open(folder / "parts", encoder=whole.encoder, mode="dense")
    training = splits.training
    answers = {training.queries[query_id]: set(grades) for query_id, grades in training.qrels.items()}

    def minable(query: str, hit: Hit) -> bool:
        """Other parts of the document that answers a query may answer it too."""
        relevant = answers[query]
        return hit.doc_id in relevant or source_of(hit.doc_id) not in map(source_of, relevant)

    return Job(place, folder, old, model, splits, settings, tell, index=folder / "parts-new", minable=minable)


def _index_documents(job: Job, whole: Retriever) -> None:
    """Build the index of the documents themselves with the new model."""
    if not (job.result / "index").exists():
        stage = "building the new index of the documents"
        job.tell(stage, None)
        build_index(
            [job.folder / _WHOLE],
            job.result / "index",
            encoder=job.first.encoder,
            documents=READING,
            encoding=encoding_of(whole.index.manifest, job.settings),
            settings=shape_of(whole.index.manifest),
            progress=lambda now: job.tell(stage, now.share),
        )


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
            for left in folder.glob(f"*{_NOT_KEPT}"):  # by a call that was killed while it published
                left.rename(folder / "result" / left.name.removesuffix(_NOT_KEPT))
        with atomic_write(folder / marker) as stream:
            stream.write(text.encode())
        try:
            yield folder
        except BaseException:
            if not any((folder / "result").iterdir()) and not (folder / "pairs").exists():  # nothing to go on from
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _report(job: Job, structure: Derivation | None, started: float) -> TuningReport:
    """Sum up."""
    for what in job.kept:
        if (job.folder / f"{what}.json").exists():
            job.training[what] = json.loads((job.folder / f"{what}.json").read_text())
    parts = {name: len(getattr(job.splits, name).queries) for name in ("training", "selection", "proof")}
    return TuningReport(
        out=job.place,
        kept=job.kept,
        proofs=tuple(job.proofs),
        queries={**parts, "dropped": job.splits.dropped},
        splits=job.splits.facts,
        training=job.training,
        structure=structure,
        notices=tuple(job.notices),
        seconds=time.monotonic() - started,
    )


def _publish(job: Job, report: TuningReport) -> None:
    """Put what is kept in place of the target, at once."""
    result = job.folder / "result"
    with writing(job.place):
        for what, kept in report.kept.items():
            for name in () if kept else ("encoder", "index") if what == "encoder" else ("reranker",):
                if (result / name).exists():  # an index of parts is not there
                    (result / name).rename(job.folder / f"{name}{_NOT_KEPT}")  # whole or away, whenever we are killed
        with atomic_write(result / "report.json") as stream:
            stream.write(json.dumps(report.to_dict(), ensure_ascii=False, indent=1).encode() + b"\n")
        result.rename(job.place)
        sync_folder(job.place.parent)
        shutil.rmtree(job.folder)

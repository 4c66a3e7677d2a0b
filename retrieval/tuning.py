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
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from retrieval.errors import ConfigError
from retrieval.eval.benchmark import Benchmark
from retrieval.files import atomic_write, sync_folder, writer_lock, writing
from retrieval.heldout import split_queries
from retrieval.models import fingerprint, resolve
from retrieval.proof import Proof
from retrieval.reassembly import fingerprint_of
from retrieval.retriever import Retriever
from retrieval.tuner import Job, Stage, TuningSettings

__all__ = ["TuningReport", "TuningSettings", "tune"]

logger = logging.getLogger(__name__)


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
    split: str = "train",
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
        split: Of `benchmark`: the queries to train with.
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
    if Path(index).expanduser().resolve() in place.resolve().parents:
        raise ConfigError(f"{out} lies in the index {index}, which is only read; give another folder")
    old = Retriever.open(index, model=model, device=settings.device, trust_remote_code=settings.trust_remote_code)
    if old.index.manifest.encoder is None:
        raise ConfigError(f"{index} was made of ready-made vectors: there is no model of it to tune")
    splits = split_queries(benchmark, split=split, layout=layout)
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
        job = Job(place, folder, old, model, splits, settings, progress or (lambda stage, share: None))
        job.read_documents()
        if settings.what != "reranker":
            job.tune_encoder(others)
        if settings.what != "encoder":
            job.tune_reranker(others, reranker_from)
        report = _report(job, started)
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


def _report(job: Job, started: float) -> TuningReport:
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
        notices=tuple(job.notices),
        seconds=time.monotonic() - started,
    )


def _publish(job: Job, report: TuningReport) -> None:
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

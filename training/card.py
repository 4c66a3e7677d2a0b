"""The card of a trained model: what it was made from, how, and what came out."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from retrieval.training.run import TrainingReport, TrainingSettings

_PACKAGES = ("retrieve-rerank", "torch", "transformers", "sentence-transformers")


def model_card(
    report: TrainingReport,
    *,
    kind: str,
    start: str,
    start_sha256: str,
    data_sha256: str,
    examples: int,
    settings: TrainingSettings,
    sources: Mapping[str, object],
    history: Sequence[Mapping[str, Any]],
) -> str:
    """Write the card of a model, as Markdown.

    Args:
        report: What the training came to.
        kind: bi-encoder or cross-encoder.
        start: Name of the model that the training started from.
        start_sha256: Its fingerprint.
        data_sha256: Hash of the examples.
        examples: Their number.
        settings: The run's settings.
        sources: Where the examples come from.
        history: The training's log.
    """
    evaluations = [record for record in history if "metrics" in record]
    data = {"examples": examples, "SHA-256 of the examples": data_sha256, **report.notices, **sources}
    training = {
        "started from": start,
        "its SHA-256": start_sha256,
        "steps": report.steps,
        "kept step": report.best_step,
        "tokens": report.tokens,
        "seconds in steps": round(report.seconds, 1),
        "loss (mean of the last tenth)": f"{report.loss:.4f}",
    }
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    parts = [
        "---",
        "library_name: sentence-transformers",
        f"pipeline_tag: {'sentence-similarity' if kind == 'bi-encoder' else 'text-ranking'}",
        "---",
        "",
        f"# {report.out.name}",
        "",
        f"A {kind} for retrieval, trained from {start}. Log: `log.jsonl`, curve: `loss.svg`.",
        *_table("Data", data),
        *_table("Training", training),
    ]
    if evaluations:
        names = list(evaluations[0]["metrics"])
        parts += ["", "## Development figures", "", f"| step | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
        for record in evaluations:
            figures = " | ".join(f"{record['metrics'].get(name, float('nan')):.4f}" for name in names)
            kept = " (kept)" if record["step"] == report.best_step else ""
            parts.append(f"| {record['step']}{kept} | {figures} |")
    parts += [*_table("Settings", asdict(settings)), *_table("Versions", versions)]
    return "\n".join(parts) + "\n"


def _table(title: str, rows: Mapping[str, object]) -> list[str]:
    lines = [f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items()]
    return ["", f"## {title}", "", "| | |", "|---|---|", *lines]


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")

"""What `retrieve doctor` tells: whether this installation can work, and with what."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from retrieval import __version__
from retrieval.counts import many
from retrieval.errors import RetrievalError
from retrieval.models import DEFAULT_MODEL, DEFAULT_RERANKER, default_reranker, resolve

_PACKAGES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "openvino",
    "nncf",
    "pyarrow",
    "numpy",
    "ranx",
)


def examine() -> dict[str, str]:
    """Return names and findings; `problems` is "none" or says what to do."""
    problems: list[str] = []
    facts = {
        "retrieve-rerank": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    facts |= {name: _version(name) for name in _PACKAGES}
    facts["faiss"] = _faiss(problems)
    facts["device"], facts["threads"] = _torch(problems)
    facts["default encoder"] = _default_encoder(problems)
    facts["default reranker"] = _default_reranker(problems)
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    facts["model hub"] = "off (HF_HUB_OFFLINE is set)" if offline else "asked when a hub name is given"
    facts["problems"] = "; ".join(problems) or "none"
    return facts


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _faiss(problems: list[str]) -> str:
    from retrieval.index.vectors import faiss

    found = {name: _version(name) for name in ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu12", "faiss-gpu-cuvs")}
    installed = [f"{name} {version}" for name, version in found.items() if version != "not installed"]
    if len(installed) > 1:
        problems.append(f"{' and '.join(installed)} share one module: uninstall all, then install one")
    try:
        module = faiss()
    except RetrievalError as error:
        problems.append(str(error))
        return "not installed"
    gpus = module.get_num_gpus() if hasattr(module, "get_num_gpus") else 0
    threads = many(module.omp_get_max_threads(), "thread")
    return f"{' and '.join(installed) or module.__version__}, {many(gpus, 'GPU')}, {threads}"


def _torch(problems: list[str]) -> tuple[str, str]:
    try:
        from retrieval.runtime import choose_device, load_torch

        return choose_device("auto"), f"{load_torch().get_num_threads()} of {many(os.cpu_count() or 1, 'core')}"
    except (ImportError, OSError) as error:
        problems.append(f"torch cannot be imported: {error}")
        return "unknown", "unknown"


def _default_encoder(problems: list[str]) -> str:
    try:
        return f"{DEFAULT_MODEL} found, hash right ({resolve(None).folder})"
    except RetrievalError as error:
        problems.append(str(error))
        return "not usable"


def _default_reranker(problems: list[str]) -> str:
    if default_reranker() is None:
        return "none comes with this installation"
    try:
        return f"{DEFAULT_RERANKER} found, hash right ({resolve(DEFAULT_RERANKER).folder})"
    except RetrievalError as error:
        problems.append(str(error))
        return "not usable"

"""Fixtures shared by all tests."""

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retrieval import models

os.environ["HF_HUB_OFFLINE"] = "1"  # tests ask no hub; set before anything imports huggingface_hub
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="retrieve-cache-")  # converted models, of these tests alone
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def _load_tiny() -> Any:
    """tests/tiny.py as a module called ``tiny``: under importlib mode the folder is not on sys.path."""
    if "tiny" not in sys.modules:
        spec = importlib.util.spec_from_file_location("tiny", Path(__file__).with_name("tiny.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["tiny"] = module
        spec.loader.exec_module(module)
    return sys.modules["tiny"]


_load_tiny()
sys.path.append(str(Path(__file__).parent))  # worlds.py and others, under importlib mode


@pytest.fixture(autouse=True)
def _no_default_reranker(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests ask the first stage alone unless they say otherwise; `shipped` puts a reranker in place."""
    monkeypatch.setattr(models, "_packaged_reranker", lambda: tmp_path_factory.getbasetemp() / "no-reranker")


@pytest.fixture
def shipped(_no_default_reranker: None, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny cross-encoder as the one that comes with the installation."""
    folder: Path = tiny("cross1")
    monkeypatch.setattr(models, "_packaged_reranker", lambda: folder)
    monkeypatch.setattr(models, "DEFAULT_RERANKER_SHA256", None)
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes tiny random models by name: ``tiny("mean")`` is the folder of one; see tests/tiny.py."""
    return _load_tiny().TinyModels(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Runs commands in processes of their own; see tests/forked.py."""
    from forked import Processes

    running = Processes(tmp_path_factory.mktemp("processes"))
    with running.server:
        yield running
        assert running.server.stdin
        running.server.stdin.close()

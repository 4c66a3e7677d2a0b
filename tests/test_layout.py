"""One import package over four folders: packaging, links and imports agree (see CONTRIBUTING.md)."""

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import retrieval
from retrieval.models import DEFAULT_RERANKER

ROOT = Path(__file__).parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
PACKAGES = {name: SETUPTOOLS["package-dir"].get(name, name.replace(".", "/")) for name in SETUPTOOLS["packages"]}
FOLDERS = {name: folder for name, folder in SETUPTOOLS["package-dir"].items() if name != "retrieval"}
HEAVY = ("torch", "transformers", "sentence_transformers", "faiss", "ranx")
NOT_OURS = {"tests", "build", "dist", "demo"}


def modules_after(code):
    """Run code in a fresh interpreter in the repository; return the names in sys.modules afterwards."""
    code = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout.splitlines()[-1]))


def test_every_folder_with_an_init_is_packaged_once():
    found = [
        init.parent.relative_to(ROOT).as_posix()
        for top in ROOT.iterdir()
        if top.is_dir() and not top.name.startswith(".") and top.name not in NOT_OURS
        for init in top.rglob("__init__.py")
        if not any(folder.is_symlink() for folder in init.parents)  # newer Pythons' rglob follows links
    ]
    assert sorted(found) == sorted(PACKAGES.values())


def test_links_and_mapping_agree():
    links = {f"retrieval.{path.name}": path for path in (ROOT / "retrieval").iterdir() if path.is_symlink()}
    assert sorted(links) == sorted(FOLDERS)
    for name, path in links.items():
        assert path.readlink() == Path("..") / FOLDERS[name], f"{path} has to be a relative link"
        assert path.resolve() == (ROOT / FOLDERS[name]).resolve()


@pytest.mark.parametrize("folder", FOLDERS.values())
def test_linked_folders_are_flat(folder):
    below = {path.name for path in (ROOT / folder).iterdir() if path.is_dir()}
    assert below <= {"__pycache__", DEFAULT_RERANKER}  # a model is data of its package, and no package


def test_the_weights_are_packaged_file_by_file():
    (pattern,) = SETUPTOOLS["package-data"]["retrieval.weights"]
    assert pattern == f"{DEFAULT_RERANKER}/*"
    folder = ROOT / PACKAGES["retrieval.weights"] / DEFAULT_RERANKER
    assert [path for path in folder.rglob("*") if path.is_dir()] == []  # the pattern would not take what is below


def test_importing_everything_claims_no_name_but_retrieval():
    code = (
        "import importlib, pkgutil, retrieval\n"
        "names = [module.name for module in pkgutil.walk_packages(retrieval.__path__, 'retrieval.')]\n"
        "for name in names: importlib.import_module(name)"
    )
    modules = modules_after(code)
    sources = {
        f"{name}.{path.stem}"
        for name, folder in PACKAGES.items()
        for path in (ROOT / folder).glob("*.py")
        if not path.stem.startswith("__")
    }
    assert sources <= modules
    assert not {"index", "training", "eval"} & modules


@pytest.mark.parametrize("module", ["retrieval", "retrieval.cli"])
def test_import_is_light(module):
    assert not set(HEAVY) & modules_after(f"import {module}")


def test_public_names_are_sorted_and_importable():
    assert retrieval.__all__ == sorted(set(retrieval.__all__))
    for name in retrieval.__all__:
        assert getattr(importlib.import_module("retrieval"), name) is not None

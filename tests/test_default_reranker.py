"""The recipe of the default reranker, on collections made here."""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from retrieval.calibration import CALIBRATION_FILE
from retrieval.mixture import Mixture
from retrieval.reranker import CrossEncoder
from retrieval.training.examples import read_examples

SCRIPT = Path(__file__).parents[1] / "data" / "default_reranker.py"
BIRDS = [
    "heron",
    "wren",
    "plover",
    "kestrel",
    "avocet",
    "dipper",
    "gannet",
    "siskin",
    "twite",
    "whimbrel",
    "knot",
    "rook",
]


@pytest.fixture(scope="module")
def recipe_script() -> ModuleType:
    return loaded(SCRIPT)


def loaded(script: Path) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sentence(bird: str) -> str:
    return f"The {bird} was counted at the northern weir by two observers early on a cold {bird} morning in May."


def lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def nest(bird: str) -> str:
    return f"A nest of twigs under the old bridge belongs to some {bird}, which raises its young there every spring."


def collection(folder: Path, splits: dict[str, list[str]], text: Callable[[str], str] = sentence) -> None:
    birds = [bird for some in splits.values() for bird in some]
    lines(folder / "corpus.jsonl", [{"_id": bird, "title": "", "text": text(bird)} for bird in birds])
    lines(folder / "queries.jsonl", [{"_id": f"q-{bird}", "text": f"where was the {bird} seen"} for bird in birds])
    (folder / "qrels").mkdir()
    for split, some in splits.items():
        rows = ["query-id\tcorpus-id\tscore", *(f"q-{bird}\t{bird}\t1" for bird in some)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(rows) + "\n")


def test_the_recipe_names_each_source_once_and_trains_on_no_held_out_split(recipe_script: ModuleType) -> None:
    import tomllib

    recipe = tomllib.loads(recipe_script.RECIPE.read_text())
    named = [source["name"] for source in recipe["source"]]
    assert len(named) == len(set(named))
    trained = {f"{source['name']}/{source.get('split')}" for source in recipe["source"]}
    assert not trained & set(recipe["held_out"]["splits"])
    assert not set(named) & set(recipe["held_out"]["whole"])


def test_what_fits_the_mixture_is_not_trained_on_and_what_is_measured_is_neither(recipe_script: ModuleType) -> None:
    import tomllib

    recipe = tomllib.loads(recipe_script.RECIPE.read_text())
    whole, splits = set(recipe["held_out"]["whole"]), set(recipe["held_out"]["splits"])
    fitted = {f"{source['name']}/{source['split']}" for source in recipe["development"]}
    halved = {f"{one['name']}/{one['split']}" for one in recipe["source"] if one.get("held_back")}
    for source in recipe["development"]:
        name = f"{source['name']}/{source['split']}"
        assert source["name"] in whole or name in splits or (source.get("held_back") and name in halved), name
    benchmark = loaded(SCRIPT.parents[1] / "tests" / "benchmarks" / "two_stages.py")
    for name in benchmark.DENSE + benchmark.STORED:
        assert name in whole or f"{name}/test" in splits, name
        assert f"{name}/test" not in fitted


def test_what_a_held_out_set_asks_or_holds_is_not_trained_on(recipe_script: ModuleType, tmp_path: Path) -> None:
    collection(tmp_path / "whole", {"test": ["heron", "wren"]})
    collection(tmp_path / "split", {"train": ["plover"], "test": ["kestrel"]})
    held_out = recipe_script.HeldOut(tmp_path, ["whole"], ["split/test"])
    other = "Concrete sets by hydration, and gains strength for weeks while it is kept wet and warm enough."
    assert held_out.why_not("Where was the heron SEEN?", other) == "the query is one of a held-out set"
    assert held_out.why_not("seen the kestrel: where was", other) == "the query is one of a held-out set"
    assert held_out.why_not("a bird", sentence("wren").upper()) == "the text is one of a held-out set"
    assert held_out.why_not("a bird", sentence("wren") + " And so on.") == "the text is much like one of a held-out set"
    assert held_out.why_not("where was the plover seen", other) == ""
    assert held_out.why_not("a bird", other + " " + other + sentence("wren")) == ""  # less than half of it


def test_the_recipe_makes_a_reranker(
    recipe_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, work, out = tmp_path / "data", tmp_path / "work", tmp_path / "out"
    collection(data / "birds", {"train": BIRDS[:8]})
    collection(data / "nests", {"dev": BIRDS[8:]}, nest)
    pairs = [
        {"query": f"call of the {bird}", "positive": f"A {bird} calls.", "score": n % 2} for n, bird in enumerate(BIRDS)
    ]
    lines(data / "labelled" / "pairs.jsonl", pairs)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        """
        seed = 0
        [mining]
        negatives = 3
        last_rank = 5
        tokens = 32
        teacher_scale = 20
        positive_bonus = 3
        [training]
        first_ends = 2
        [training.common]
        loss = "kl"
        negatives = 2
        batch_size = 2
        max_length = 48
        half = true
        [training.first]
        max_steps = 4
        evaluate_every = 1
        [training.second]
        max_steps = 1
        learning_rate = 1e-5
        [[source]]
        name = "birds"
        origin = "the weir"
        licence = "CC0"
        split = "train"
        most = 5
        [[source]]
        name = "labelled"
        origin = "nowhere"
        licence = "CC0"
        pairs = true
        [functions]
        distributions = []
        [held_out]
        whole = []
        splits = ["nests/dev"]
        [mixture]
        queries = 3
        depth = 10
        floor = 0.005
        least = 0.2
        [[development]]
        name = "nests"
        split = "dev"
        """
    )
    for step in (["collect"], ["train"], ["mix", str(out)]):
        given = ["x", "--data", str(data), "--work", str(work), "--recipe", str(recipe), *step]
        monkeypatch.setattr(sys, "argv", given)
        recipe_script.main()
    examples = read_examples(work / "examples.jsonl")
    assert sorted({example.query_id.split("/")[0] for example in examples}) == ["birds", "labelled"]
    assert sum(example.query_id.startswith("birds/") for example in examples) == 5
    for example in examples:
        least = sum(example.negative_scores) / len(example.negative_scores)
        assert all(score >= least + 3 - 0.01 for score in example.positive_scores)
    collected = json.loads((work / "collected.json").read_text())
    assert collected["examples"] == len(examples)
    assert (out / CALIBRATION_FILE).exists()
    assert Mixture.load(out).weight >= 0.2
    card = (out / "README.md").read_text()
    assert "# out\n" in card and "| birds | the weir | CC0 | 5 | 0 |" in card
    assert "| nests | 3 |" in card and "plain sigmoid" not in card
    assert CrossEncoder.load(out).score([("where was the heron seen", sentence("heron"))]).shape == (1,)

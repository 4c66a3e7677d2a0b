"""The commands that make models better: mine-negatives, train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from retrieval import CrossEncoder, build_index
from retrieval.cli import main
from retrieval.commands.negatives import mine_negatives_command
from retrieval.errors import ConfigError, DataError, RetrievalError
from retrieval.training.examples import read_examples

TEXTS = {f"d{number}": f"{word} {number % 7} of the harbour" for number, word in enumerate(["ferry", "bird"] * 20)}
QUERIES = {f"q{number}": f"which ferry {number}" for number in range(12)}
QRELS = {query_id: {f"d{number}": 1, f"d{number + 20}": 0} for number, query_id in enumerate(QUERIES)}


@pytest.fixture(scope="module")
def world(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a benchmark, `bench`, and an index of its corpus, `index`."""
    root = tmp_path_factory.mktemp("mining")
    bench = root / "bench"
    (bench / "qrels").mkdir(parents=True)
    lines = [{"_id": doc_id, "title": "", "text": text} for doc_id, text in TEXTS.items()]
    (bench / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    lines = [{"_id": query_id, "text": text} for query_id, text in QUERIES.items()]
    (bench / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [f"{query_id}\t{doc_id}\t{grade}" for query_id, grades in QRELS.items() for doc_id, grade in grades.items()]
    (bench / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    build_index(bench / "corpus.jsonl", root / "index", model=tiny("mean"))
    return root


def mine(world: Path, out: Path, *options: object, code: int = 0) -> Result:
    arguments = [world / "index", "--benchmark", world / "bench", out, *options]
    result = CliRunner().invoke(mine_negatives_command, [str(argument) for argument in arguments])
    assert result.exit_code == code or isinstance(result.exception, RetrievalError), (result.output, result.exception)
    return result


def test_mining_writes_examples_and_where_they_come_from(world: Path, tmp_path: Path) -> None:
    out = tmp_path / "train.jsonl"
    ran = mine(world, out, "-n", 3, "--ratio", 1)
    examples = read_examples(out)
    assert [example.query_id for example in examples] == list(QUERIES)
    for number, example in enumerate(examples):
        positive = f"d{number}"
        assert (example.query, example.positives) == (QUERIES[example.query_id], (TEXTS[positive],))
        assert len(example.negatives) <= 3
        assert not {TEXTS[positive], example.query} & set(example.negatives)
        assert example.negatives == tuple(TEXTS[doc_id] for doc_id in example.negative_ids)
    assert any(example.negatives for example in examples)
    assert "estimated false negatives" in ran.stdout
    assert f"{out}: 12 examples" in ran.stderr
    body = json.loads(Path(f"{out}.provenance.json").read_text())
    assert body["benchmark"]["split"] == "train"
    assert body["index"]["documents"] == 40 and len(body["index"]["sha256"]) == 64
    assert len(body["encoder"]["sha256"]) == 64 and "reranker" not in body
    assert body["settings"]["per_query"] == 3 and body["settings"]["ratio"] == 1


def test_mining_twice_gives_the_same_bytes(world: Path, tmp_path: Path) -> None:
    written = []
    for name in ("one", "two"):
        mine(world, tmp_path / f"{name}.jsonl", "--sampling", "random", "--seed", 7)
        paths = (tmp_path / f"{name}.jsonl", tmp_path / f"{name}.jsonl.provenance.json")
        written.append([path.read_bytes() for path in paths])
    assert written[0] == written[1]


def test_a_reranker_is_the_teacher(world: Path, tmp_path: Path, tiny: Any) -> None:
    out = tmp_path / "train.jsonl.gz"
    ran = mine(world, out, "--reranker", tiny("cross1"), "--json", "--ratio", 1)
    examples = read_examples(out)
    first = next(example for example in examples if example.negatives)
    logits = CrossEncoder.load(tiny("cross1")).score(
        [(first.query, text) for text in first.positives + first.negatives]
    )
    assert first.positive_scores + first.negative_scores == pytest.approx(logits.tolist(), abs=1e-6)
    for example in examples:
        assert all(score <= max(example.positive_scores) for score in example.negative_scores)
    assert json.loads(ran.stdout)["examples"] == 12
    assert json.loads(Path(f"{out}.provenance.json").read_text())["reranker"]["name"] == "cross1"


def test_a_target_that_cannot_be_written_is_refused_first(world: Path, tmp_path: Path) -> None:
    assert isinstance(mine(world, tmp_path / "train.parquet").exception, ConfigError)
    missing = mine(world, tmp_path / "none" / "train.jsonl", "--benchmark", "nowhere")
    assert isinstance(missing.exception, DataError) and "no folder" in str(missing.exception)
    assert "is a folder" in str(mine(world, tmp_path).exception)


def test_no_command_writes_into_an_index_or_over_a_benchmark_that_it_reads(world: Path, tmp_path: Path) -> None:
    run_file = tmp_path / "a.run"
    run_file.write_text("q1 Q0 d1 1 1 t\n")
    before = {path: path.read_bytes() for path in sorted(world.rglob("*")) if path.is_file()}
    index, bench = world / "index", world / "bench"
    queries = ("--queries", bench / "queries.jsonl")
    link = tmp_path / "link"
    link.symlink_to(index)
    for out in (
        index / "manifest.json",
        index / "new",
        link / "new",
        bench / "corpus.jsonl",
        bench / "qrels/train.tsv",
    ):
        for command in (
            ["mine-negatives", index, out, "--benchmark", bench],
            ["rerank", bench if bench in out.parents else link, run_file, *queries, "--output", out],
            ["evaluate", "--index", index, "--benchmark", bench, "--report", out],
            ["tune", index, tmp_path / "tuned", "--benchmark", bench, "--report", out],
        ):
            assert "reads; give another file" in run(*command, code=1).stderr, command
    assert "give another file" in run("query", index, "ferry", "--output", index / "manifest.json", code=1).stderr
    assert before == {path: path.read_bytes() for path in sorted(world.rglob("*")) if path.is_file()}


def test_a_margin_of_a_reranker_needs_one(world: Path, tmp_path: Path) -> None:
    ran = run("mine-negatives", world / "index", tmp_path / "a", "--benchmark", "b", "--reranker-margin", 1, code=2)
    assert "--reranker-margin does nothing with --reranker none" in ran.stderr


def test_a_split_that_is_not_there(world: Path, tmp_path: Path) -> None:
    ran = mine(world, tmp_path / "train.jsonl", "--split", "test")
    assert "there are: train" in str(ran.exception)
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_cross(world: Path, tmp_path: Path) -> None:
    ran = mine(world, tmp_path / "train.jsonl", "--first-rank", 60)
    assert "first_rank, last_rank and depth are 60, 50 and 100" in str(ran.exception)


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def mined(world: Path) -> Path:
    (world / "bench" / "qrels" / "dev.tsv").write_text((world / "bench" / "qrels" / "train.tsv").read_text())
    mine(world, world / "train.jsonl", "-n", 2, "--ratio", 1)
    return world / "train.jsonl"


def test_a_bi_encoder_is_trained_judged_by_a_real_search_and_serves(
    world: Path, mined: Path, tmp_path: Path, tiny: Any
) -> None:
    out = tmp_path / "encoder"
    ran = run(
        *("train", "bi-encoder", mined, out, "--model", tiny("mean"), "--epochs", 2, "--batch-size", 4),
        *("--learning-rate", 0.01, "--development", world / "bench"),
    )
    assert "6 steps in" in ran.stderr and "ndcg@10" in ran.stderr
    build_index([world / "bench"], tmp_path / "index", model=out)
    asked = ("evaluate", "--index", tmp_path / "index", "--benchmark", world / "bench", "--split", "dev")
    evaluated = run(*asked, "--mode", "dense", "--json")
    means = json.loads(evaluated.stdout)["systems"][0]["means"]
    # what the training said of the model that it kept is what an evaluation of that model says
    kept = [line for line in ran.stderr.splitlines() if line.startswith("kept")]
    assert kept[0].endswith(f"ndcg@10 {means['ndcg@10']:.4f}")
    records = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if "loss" in record] == [1, 2, 3, 4, 5, 6]


def test_a_cross_encoder_is_trained_judged_on_an_index_s_hits_and_serves(
    world: Path, mined: Path, tmp_path: Path, tiny: Any
) -> None:
    out = tmp_path / "reranker"
    ran = run(
        *("train", "cross-encoder", mined, out, "--model", tiny("mean"), "--max-steps", 4, "--batch-size", 3),
        *("--development", world / "bench", "--index", world / "index", "--depth", 10),
    )
    said = ran.stderr
    assert "4 steps in" in said and "ece" in said
    ran = run(
        *("evaluate", "--index", world / "index", "--benchmark", world / "bench", "--split", "dev", "-m", "ndcg@10"),
        *("--reranker", out, "--rerank-depth", 10, "-k", 10, "--json"),
    )
    second = json.loads(ran.stdout)["systems"][1]["means"]["ndcg@10"]
    (kept,) = [line for line in said.splitlines() if line.startswith("kept")]
    assert f"ndcg@10 {second:.4f}" in kept


def test_a_benchmark_is_examples_too_and_settings_may_come_from_a_file(
    world: Path, mined: Path, tmp_path: Path, tiny: Any
) -> None:
    settings = tmp_path / "train.toml"
    settings.write_text(f'[train.bi-encoder]\nmodel = "{tiny("mean")}"\nmax-steps = 2\nbatch-size = 5\n')
    ran = run("--config", settings, "train", "bi-encoder", world / "bench", tmp_path / "encoder")
    assert "2 steps in" in ran.stderr
    settings.write_text("[train.bi-encoder]\nmax-stepz = 2\n")
    ran = run("--config", settings, "train", "bi-encoder", world / "bench", tmp_path / "other", code=1)
    assert "`retrieve bi-encoder` has no option --max-stepz" in ran.stderr
    settings.write_text("[train.encoder]\nmax-steps = 2\n")
    ran = run("--config", settings, "train", "bi-encoder", world / "bench", tmp_path / "other", code=1)
    assert "no command 'encoder'; there are bi-encoder, cross-encoder" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["bi-encoder", "nowhere.jsonl", "out"], 1, "nowhere.jsonl"),
        (["bi-encoder", "nowhere.jsonl", "out", "--matryoshka", "32;16"], 2, "expected numbers with commas"),
        (["bi-encoder", "nowhere.jsonl", "out", "--loss", "triplet"], 1, "infonce"),
        (["cross-encoder", "nowhere.jsonl", "out", "--development", "b"], 2, "--development and --index go together"),
    ],
)
def test_wrong_use_of_train_is_one_line(arguments: list[str], code: int, words: str) -> None:
    assert words in run("train", *arguments, code=code).stderr

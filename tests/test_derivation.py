"""A benchmark out of unjudged documents, and `tune` without a benchmark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from retrieval import Retriever, build_index
from retrieval.cli import main
from retrieval.derivation import Derivation, derive
from retrieval.errors import ConfigError, DataError
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.leaks import occurs
from retrieval.eval.mining import split_of
from retrieval.index.reader import Index
from retrieval.tuning import TuningSettings, tune

SYLLABLES = ["zor", "mik", "pla", "wun", "tef", "gar", "hib", "lox", "nud", "vek"]
TEXT = "It is moved away at midnight and an empty one takes its place, says"


def word(number: int) -> str:
    return "".join(SYLLABLES[int(digit)] for digit in f"{number:03}")


def titled(count: int, start: int = 0) -> list[dict[str, str]]:
    numbers = range(start, start + count)
    return [{"_id": f"d{n}", "title": f"Rotating the {word(n)}", "text": f"{TEXT} {word(n)}."} for n in numbers]


def arrow(folder: Path, records: Sequence[Mapping[str, str]]) -> Path:
    """Write documents as `write_documents` does, several batches of them."""
    names = {"document id": "_id", "document title": "title", "document text": "text"}
    table = pa.table({name: [record.get(field, "") for record in records] for name, field in names.items()})
    with pa.ipc.new_file(folder / "whole.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    return folder / "whole.arrow"


def derived(folder: Path, records: Sequence[Mapping[str, str]]) -> Derivation:
    return derive(arrow(folder, records), folder / "pairs", name="structure of test")


def parts(folder: Path) -> dict[str, Benchmark]:
    return {split: Benchmark.load(folder / "pairs", split) for split in ("train", "dev", "test")}


def test_a_benchmark_of_titles(tmp_path: Path) -> None:
    found = derived(tmp_path, titled(300))
    assert dict(found.pairs) == {"title -> body": 300, "heading -> section": 0, "docstring -> code": 0}
    assert found.documents == found.parts == 300 and not found.left_out and not found.no_query
    corpus = {document.doc_id: document for document in parts(tmp_path)["test"].corpus()}
    assert len(corpus) == 300 and {document.title for document in corpus.values()} == {""}
    for split, benchmark in parts(tmp_path).items():
        assert len(benchmark.queries) == found.splits[split] > 15
        for query_id, text in benchmark.queries.items():
            (doc_id,) = benchmark.qrels[query_id]
            assert query_id == f"q:{doc_id}" and split_of(doc_id.removesuffix("#0")) == split
            assert not occurs(text, corpus[doc_id].text) and corpus[doc_id].text.endswith(f"{text.split()[-1]}.")
    notes = parts(tmp_path)["test"].card.notes
    assert "300 title -> body" in notes[0] and "not a proof on your users' queries" in notes[0]


def test_it_is_made_once_and_to_the_same_bytes(tmp_path: Path) -> None:
    found = derived(tmp_path, titled(300))
    before = {path.name: path.read_bytes() for path in (tmp_path / "pairs").rglob("*") if path.is_file()}
    (tmp_path / "whole.arrow").unlink()
    assert derive(tmp_path / "whole.arrow", tmp_path / "pairs", name="structure of test") == found
    (tmp_path / "again").mkdir()
    derived(tmp_path / "again", titled(300))
    again = {path.name: path.read_bytes() for path in (tmp_path / "again" / "pairs").rglob("*") if path.is_file()}
    assert again == before


def test_more_documents_move_no_pair_to_another_split(tmp_path: Path) -> None:
    splits: list[dict[str, str]] = []
    for count in (300, 400):
        (tmp_path / str(count)).mkdir()
        derived(tmp_path / str(count), titled(count))
        splits.append({q: split for split, one in parts(tmp_path / str(count)).items() for q in one.queries})
    assert splits[0].items() < splits[1].items()


def test_all_pairs_of_a_document_are_in_one_split(tmp_path: Path) -> None:
    heads = [
        f"\n\n## Cleaning the {word(n + 500)}\n\nA brush is all it takes to do so, says {word(n)}." for n in range(99)
    ]
    records = [{**one, "_id": f"{one['_id']}.md"} for one in titled(200)]
    records = [{**one, "text": one["text"] + "".join(heads[n % 33 :: 33]) + word(n)} for n, one in enumerate(records)]
    records = [
        {**one, "text": one["text"].replace("Cleaning", f"Cleaning {n}x{word(n)}")} for n, one in enumerate(records)
    ]
    found = derived(tmp_path, records)
    assert found.pairs["title -> body"] == 200 and found.pairs["heading -> section"] > 200
    sources = {split: {q.rpartition("#")[0] for q in one.queries} for split, one in parts(tmp_path).items()}
    assert not (
        sources["train"] & sources["test"] | sources["train"] & sources["dev"] | sources["dev"] & sources["test"]
    )


def test_what_is_no_pair_is_counted(tmp_path: Path) -> None:
    more = [
        {"_id": "same", "title": "Rotating the same", "text": f"{TEXT} {word(7)}!"},  # d7's text
        {"_id": "s1", "title": "Of many things", "text": f"One {TEXT} a."},
        {"_id": "s2", "title": "of many, things", "text": f"Two {TEXT} b."},
        {"_id": "h1", "title": "First book", "text": f"Three {TEXT} c.\n\n# Sails\n\nFour {TEXT} d."},
        {"_id": "h2", "title": "Second book", "text": f"Five {TEXT} e.\n\n# Sails\n\nSix {TEXT} f."},
        {"_id": "none", "text": f"Seven {TEXT} g."},
        {"_id": "blank", "title": "Of an empty page", "text": " "},
        {
            "_id": "a.py",
            "text": 'def f(a):\n    """Look for a file in a folder."""\n    a = a + 1\n    a = a + 2\n    return a\n',
        },
    ]
    found = derived(tmp_path, titled(300) + more)
    assert dict(found.pairs) == {"title -> body": 300, "heading -> section": 0, "docstring -> code": 1}
    assert dict(found.left_out) == {"equal to an earlier text": 1, "no text": 1}
    assert dict(found.no_query) == {
        "fewer than 3 words": 2,
        "query shared with another text": 2,
        "short heading that several sections have": 2,
        "neither title nor heading": 1,
    }
    assert (found.documents, found.parts) == (308, 308)


def test_no_more_than_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.derivation.MOST", {"train": 60, "dev": 1_000, "test": 21})
    found = derived(tmp_path, titled(300))
    assert (found.splits["train"], found.splits["test"], found.parts) == (60, 21, 300)
    assert any("more than the 60 queries of train" in reason for reason in found.no_query)


def test_too_little_structure_is_told_with_the_remedy(tmp_path: Path) -> None:
    plain = [{"_id": f"d{n}", "text": f"{word(n)} {TEXT} {n}."} for n in range(30)]
    with pytest.raises(DataError) as caught:
        derived(tmp_path, plain + titled(40, 500))
    message = str(caught.value)
    assert "40 title -> body; 0 heading -> section; 0 docstring -> code of 70 documents" in message
    assert "at least 50 train, 20 test" in message and "30 neither title nor heading" in message
    assert "Give judged queries (--benchmark" in message and "make-benchmark" in message and "\n" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["whole.arrow"]


# Tuning


@pytest.fixture(scope="module")
def world(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of documents with titles, `index`, and one without, `plain`."""
    import torch

    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("structure")
    for name, records in (("index", titled(300)), ("plain", [{**one, "title": ""} for one in titled(30)])):
        (root / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        build_index(root / f"{name}.jsonl", root / name, model=tiny("mean"))
    return root


QUICK = TuningSettings(learning_rate=1e-3, max_steps=2, batch_size=8, keep="always")


def test_tune_without_a_benchmark(world: Path, tmp_path: Path) -> None:
    report = tune(world / "index", None, tmp_path / "out", settings=QUICK)
    assert report.kept == {"encoder": True} and report.structure is not None
    assert report.structure.pairs["title -> body"] == 300
    assert report.queries["proof"] == report.structure.splits["test"]
    (proof,) = report.proofs
    assert proof.held_out and proof.evaluation.title == "structure of index, test"
    # old and new were asked for bodies without titles; what is kept is an index of the documents themselves
    old, new = (Index.open(path) for path in (world / "index", tmp_path / "out" / "index"))
    hit = Retriever.open(tmp_path / "out" / "index").search("Rotating the pla", k=1)[0]
    assert hit.doc_id.startswith("d") and "#" not in hit.doc_id and hit.title.startswith("Rotating the")
    assert (new.manifest.documents, new.manifest.text) == (old.manifest.documents, old.manifest.text)
    assert "not a proof on your users' queries" in report.notices[0]
    body = json.loads((tmp_path / "out" / "report.json").read_text())
    assert body["structure"]["pairs"]["title -> body"] == 300 and "300 title -> body" in body["notices"][0]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["encoder", "index", "report.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_model_that_is_no_better_leaves_a_report(world: Path, tmp_path: Path) -> None:
    settings = TuningSettings(learning_rate=1e-9, max_steps=1, batch_size=8)
    assert tune(world / "index", None, tmp_path / "out", settings=settings).kept == {"encoder": False}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.json"]


def test_a_reranker_is_proven_on_the_parts(world: Path, tiny: Any, tmp_path: Path) -> None:
    settings = TuningSettings(what="reranker", max_steps=1, batch_size=4, negatives=1, depth=10, keep="always")
    report = tune(world / "index", None, tmp_path / "out", settings=settings, reranker_from=tiny("cross1"))
    assert report.kept == {"reranker": True} and report.proofs[0].evaluation.title == "structure of index, test"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "reranker"]


@pytest.mark.parametrize("stage", ["indexing their parts", "building the new index of the documents"])
def test_a_stopped_call_goes_on(world: Path, tmp_path: Path, stage: str) -> None:
    told: list[str] = []

    def stop(now: str, share: float | None) -> None:
        if now == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(world / "index", None, tmp_path / "out", settings=QUICK, progress=stop)
    made = [tmp_path / ".out.tuning" / name for name in ("whole.arrow", "pairs/corpus.jsonl", "pairs/queries.jsonl")]
    before = [path.stat().st_mtime_ns for path in made]

    def listen(now: str, share: float | None) -> None:
        told.append(now)
        assert [path.stat().st_mtime_ns for path in made] == before

    report = tune(world / "index", None, tmp_path / "out", settings=QUICK, progress=listen)
    assert report.kept == {"encoder": True} and report.structure is not None
    assert ("training the encoder" in told) == (stage == "indexing their parts")
    assert Index.open(tmp_path / "out" / "index").manifest.documents == 300
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_no_structure_leaves_nothing_behind(world: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"structure of plain: too few pairs .* 30 neither title nor heading"):
        tune(world / "plain", None, tmp_path / "out", settings=QUICK)
    with pytest.raises(ConfigError, match="split 'test', layout 'auto': of which benchmark"):
        tune(world / "index", None, tmp_path / "out", split="test")
    assert list(tmp_path.iterdir()) == []


def test_other_parts_of_a_document_are_no_negatives(world: Path, tiny: Any, tmp_path: Path) -> None:
    text = "{0}{1}\n\n# Cleaning of {1}\n\n{0}a {1}\n\n# Painting of {1}\n\n{0}b {1}"
    records = [{**one, "text": text.format(TEXT, word(n))} for n, one in enumerate(titled(300))]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    build_index(tmp_path / "c.jsonl", tmp_path / "index", model=tiny("mean"))

    def stop(now: str, share: float | None) -> None:
        if now == "training the encoder":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path / "index", None, tmp_path / "out", settings=QUICK, progress=stop)
    lines = (tmp_path / ".out.tuning" / "encoder.jsonl").read_text().splitlines()
    examples = [json.loads(line) for line in lines]
    assert len(examples) > 500 and sum(len(one.get("negatives", [])) for one in examples) > 100
    for one in examples:
        sources = {doc_id.rpartition("#")[0] for doc_id in one["positive_ids"]}
        assert not sources & {doc_id.rpartition("#")[0] for doc_id in one.get("negative_ids", [])}


def test_the_command_says_what_it_did(world: Path, tmp_path: Path) -> None:
    arguments = [
        "tune",
        world / "index",
        tmp_path / "out",
        "--max-steps",
        1,
        "--batch-size",
        8,
        "--learning-rate",
        1e-9,
    ]
    ran = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert ran.exit_code == 0, ran.output
    assert "encoder: structure of index, test" in ran.stdout
    assert "making pairs from their structure" in ran.stderr
    assert "300 title -> body, 0 heading -> section, 0 docstring -> code" in ran.stderr
    assert "not a proof on your users' queries" in ran.stderr and "300 parts of 300 documents" in ran.stderr

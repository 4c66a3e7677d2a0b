"""`tune`: what is kept and what not, which queries prove it, and documents put together again."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from retrieval import BiEncoder, EncoderSettings, IndexSettings, Retriever, build_index, delete_documents
from retrieval.cli import main
from retrieval.columns import plain
from retrieval.documents import DocumentSettings, DocumentStream
from retrieval.errors import ConfigError, DataError
from retrieval.heldout import limited, split_queries
from retrieval.index.reader import Index
from retrieval.reassembly import READING, Reassembly, documents_of, read_texts, write_documents, write_sample
from retrieval.tuning import TuningReport, TuningSettings, tune

NOISE = ["copper", "conducts", "heat", "better", "than", "iron", "does", "silver", "is", "a", "ferry", "crosses"]
RARE = [f"{a}{b}" for a in ("zor", "mik", "pla", "wun", "tef") for b in ("ble", "dax", "fip", "gon", "hul", "jat")]


def phrase(word: str, seed: str, noise: int) -> str:
    rng = random.Random(seed)
    words = [*rng.choices(NOISE, k=noise), word]
    rng.shuffle(words)
    return " ".join(words)


def write_benchmark(
    folder: Path,
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    splits: Mapping[str, Mapping[str, str]],
) -> Path:
    """Write a BEIR folder; each query of a split has one relevant document."""
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": doc_id, "title": "", "text": text}) for doc_id, text in documents.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"_id": query_id, "text": text}) for query_id, text in queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    for split, relevant in splits.items():
        rows = [f"{query_id}\t{doc_id}\t1" for query_id, doc_id in relevant.items()]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


def toy(folder: Path) -> Path:
    """Queries that share one rare word with their document, among common words."""
    documents = {f"d{n}": phrase(word, f"document {n}", 12) for n, word in enumerate(RARE)}
    queries: dict[str, str] = {}
    splits: dict[str, dict[str, str]] = {}
    for split, copies in (("train", 6), ("dev", 1), ("test", 2)):
        for n, word in enumerate(RARE):
            for copy in range(copies):
                query_id = f"{split}-{n}-{copy}"
                queries[query_id] = phrase(word, query_id, 4)
                splits.setdefault(split, {})[query_id] = f"d{n}"
    return write_benchmark(folder, documents, queries, splits)


@pytest.fixture(scope="module")
def world(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a learnable benchmark, `bench`, and an index of its documents, `index`."""
    import torch

    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("tuning")
    toy(root / "bench")
    build_index(root / "bench", root / "index", model=tiny("mean"))
    return root


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


LEARNS = TuningSettings(learning_rate=0.01, max_steps=40, batch_size=60)
LEARNS_NOTHING = TuningSettings(learning_rate=1e-9, max_steps=1, batch_size=8)


def test_a_better_model_is_kept_with_its_index(world: Path, tmp_path: Path) -> None:
    before = files(world / "index")
    report = tune(world / "index", world / "bench", tmp_path / "out", settings=LEARNS)
    assert files(world / "index") == before
    assert report.kept == {"encoder": True}
    (proof,) = report.proofs
    assert proof.held_out and proof.better and proof.decisive.queries == 60
    # the figures are those of an evaluation of the two indexes by itself, and the index finds its own model
    arguments = ("evaluate", "--benchmark", world / "bench", "--mode", "dense", "-m", "ndcg@10", "--json", "--index")
    for index, mean in (
        (world / "index", proof.decisive.baseline_mean),
        (tmp_path / "out" / "index", proof.decisive.system_mean),
    ):
        assert json.loads(run(*arguments, index).stdout)["systems"][0]["means"]["ndcg@10"] == pytest.approx(mean)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["encoder", "index", "report.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert json.loads((tmp_path / "out" / "report.json").read_text())["kept"] == {"encoder": True}
    assert report.queries == {"training": 180, "selection": 30, "proof": 60, "dropped": 0}


def test_a_model_that_is_no_better_is_not_kept(world: Path, tmp_path: Path) -> None:
    report = tune(world / "index", world / "bench", tmp_path / "out", settings=LEARNS_NOTHING, also=[world / "bench"])
    assert report.kept == {"encoder": False}
    assert len(report.proofs) == 1 and not report.proofs[0].better  # nothing is asked elsewhere
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_call_killed_while_it_publishes_trains_nothing_again(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Path.rename

    def killed(self: Path, target: Path) -> Path:
        if Path(target) == tmp_path / "out":
            raise KeyboardInterrupt
        return really(self, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", killed)
        tune(world / "index", world / "bench", tmp_path / "out", settings=LEARNS_NOTHING)
    monkeypatch.setattr("retrieval.tuner.train_bi_encoder", None)
    assert tune(world / "index", world / "bench", tmp_path / "out", settings=LEARNS_NOTHING).kept == {"encoder": False}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_difference_that_may_be_chance_is_no_proof(world: Path, tmp_path: Path) -> None:
    """Two held-out queries that both win: the smallest p of the randomisation test is 1/2."""
    relevant = {f"test-{n}-0": f"d{n}" for n in range(30)}
    few = write_benchmark(
        tmp_path / "few",
        {f"d{n}": phrase(word, f"document {n}", 12) for n, word in enumerate(RARE)},
        {f"{part}-{n}-0": phrase(RARE[n], f"{part}-{n}-0", 4) for part in ("train", "test") for n in range(30)},
        {"train": {f"train-{n}-0": f"d{n}" for n in range(30)}, "test": dict(list(relevant.items())[:2])},
    )
    report = tune(world / "index", few, tmp_path / "out", settings=LEARNS)
    row = report.proofs[0].decisive
    assert row.queries == 2 and row.p_randomization >= 0.5
    assert report.kept == {"encoder": False}


def test_always_keeps_what_is_no_better(world: Path, tmp_path: Path) -> None:
    settings = TuningSettings(learning_rate=1e-9, max_steps=1, negatives=0, keep="always")
    report = tune(world / "index", world / "bench", tmp_path / "out", settings=settings, also=[world / "bench"])
    assert report.kept == {"encoder": True}
    assert not report.proofs[0].better
    assert [proof.held_out for proof in report.proofs] == [True, False]
    # the benchmark beside is the same documents and queries here, through indexes of its own
    assert report.proofs[1].decisive.baseline_mean == pytest.approx(report.proofs[0].decisive.baseline_mean)
    assert Retriever.open(tmp_path / "out" / "index").search(RARE[3])


def test_encoder_then_reranker(world: Path, tiny: Any, tmp_path: Path) -> None:
    settings = TuningSettings(what="both", learning_rate=0.01, max_steps=4, batch_size=16, depth=10, keep="always")
    report = tune(
        world / "index",
        world / "bench",
        tmp_path / "out",
        settings=settings,
        reranker_from=tiny("mean"),
        also=[world / "bench"],
    )
    assert [(proof.what, proof.held_out) for proof in report.proofs] == [
        ("encoder", True),
        ("encoder", False),
        ("reranker", True),
        ("reranker", False),
    ]
    # the reranker's first stage is the new index
    assert report.proofs[2].decisive.baseline_mean == pytest.approx(report.proofs[0].decisive.system_mean)
    assert report.proofs[3].decisive.system_mean == pytest.approx(report.proofs[2].decisive.system_mean)
    found = Retriever.open(tmp_path / "out" / "index", reranker=tmp_path / "out" / "reranker").search(RARE[3])
    assert found[0].rerank_probability is not None
    assert report.training["reranker"]["metrics"]["ece"] <= 1 and not report.notices  # calibrated on 30 queries


def test_a_stopped_call_goes_on(world: Path, tmp_path: Path) -> None:
    told: list[str] = []

    def stop(stage: str, share: float | None) -> None:
        if stage == "building the new index":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(world / "index", world / "bench", tmp_path / "out", settings=LEARNS, progress=stop)
    assert not (tmp_path / "out").exists()
    again = tune(
        world / "index",
        world / "bench",
        tmp_path / "out",
        settings=LEARNS,
        progress=lambda stage, share: told.append(stage),
    )
    assert "training the encoder" not in told and "mining hard negatives" not in told
    assert again.training["encoder"]["steps"] == 40 and again.kept == {"encoder": True}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_another_call_discards_what_was_left(world: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def stop(stage: str, share: float | None) -> None:
        if stage == "building the new index":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(world / "index", world / "bench", tmp_path / "out", settings=LEARNS, progress=stop)
    report = tune(world / "index", world / "bench", tmp_path / "out", settings=LEARNS_NOTHING)
    assert "discarded" in caplog.text and report.training["encoder"]["steps"] == 1


def test_the_index_s_settings_are_kept(world: Path, tiny: Any, tmp_path: Path) -> None:
    encoding = EncoderSettings(max_length=24, overlap=3, query_prompt="ask: ", document_prompt="text: ")
    settings = IndexSettings(index_type="flat", min_recall=0.9, memory_limit=10**9, vector_dtype="float16")
    build_index(world / "bench", tmp_path / "index", model=tiny("mean"), encoding=encoding, settings=settings)
    made = TuningSettings(max_steps=1, keep="always")
    tune(tmp_path / "index", world / "bench", tmp_path / "out", settings=made)
    old, new = (Index.open(path).manifest for path in (tmp_path / "index", tmp_path / "out" / "index"))
    assert (new.index_type, new.vector_dtype, new.text) == (old.index_type, old.vector_dtype, old.text)
    assert (new.min_recall, new.memory_limit) == (old.min_recall, old.memory_limit) == (0.9, 10**9)
    assert (new.documents, new.passages) == (old.documents, old.passages) and new.passages > new.documents
    assert old.encoder is not None and new.encoder is not None
    for name in ("query_prompt", "document_prompt", "max_length", "pooling"):
        assert new.encoder[name] == old.encoder[name]
    assert BiEncoder.load(tmp_path / "out" / "encoder").settings.query_prompt == "ask: "


def run(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_the_command_prints_the_proof(world: Path, tmp_path: Path) -> None:
    command = ("tune", world / "index", "--benchmark", world / "bench", "--learning-rate", 0.01, "--batch-size", 60)
    ran = run(*command, tmp_path / "out", "--max-steps", 40, "--report", tmp_path / "proof.html")
    head, first, *others = ran.stdout.splitlines()
    assert head.split()[:4] == ["metric", "old", "new", "difference"]
    assert first.startswith("encoder: bench, test") and "ndcg@10" in first and len(others) == 2
    assert "the new encoder is better: ndcg@10 +" in ran.stderr
    assert "<html" in (tmp_path / "proof.html").read_text()
    ran = run(*command, tmp_path / "none", "--max-steps", 1, "--learning-rate", 1e-9, "--json")
    assert json.loads(ran.stdout)["kept"] == {"encoder": False}
    assert "not proven better and was not kept" in ran.stderr


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--benchmark", "{bench}", "--what", "reranker", "--negatives", "0"], 1, "expected at least 1 for reranker"),
        (["--benchmark", "{bench}", "--learning-rate", "-1"], 1, "learning_rate is -1.0"),
        (["--benchmark", "nowhere-at-all/x.jsonl"], 1, "nowhere-at-all/x.jsonl: no such file or folder"),
        (["--benchmark", "{bench}", "--also", "nowhere-at-all/x.jsonl"], 1, "nowhere-at-all"),
        (["--benchmark", "{bench}", "--report", "nowhere-at-all/x.html"], 1, "there is no folder nowhere-at-all"),
        (["--benchmark", "{bench}", "--keep", "never"], 2, "'never' is not one of"),
    ],
)
def test_wrong_use_is_one_line(world: Path, tmp_path: Path, options: Sequence[str], code: int, words: str) -> None:
    given = [option.format(bench=world / "bench") for option in options]
    ran = run("tune", world / "index", tmp_path / "out", *given, code=code)
    assert words in ran.stderr and (code == 2 or len(ran.stderr.splitlines()) == 1)
    assert list(tmp_path.iterdir()) == []


def test_each_step_has_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the time left is guessed from the pace of the step alone."""
    from retrieval.commands.tune import _stages

    seen: list[object] = []

    @contextlib.contextmanager
    def counting(what: str) -> Iterator[Any]:
        seen.append("open")
        yield lambda done, total: seen.append(done / total)
        seen.append("close")

    monkeypatch.setattr("retrieval.console.counting", counting)
    with _stages() as tell:
        for stage, share in (("read", None), ("mine", 0.5), ("mine", 1.0), ("train", None), ("train", 0.25)):
            tell(stage, share)
    assert seen == ["open", 0.5, 1.0, "close", "open", 0.25, "close"]


def test_refusals(world: Path, tmp_path: Path) -> None:
    from worlds import build

    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="out exists; give another folder"):
        tune(world / "index", world / "bench", tmp_path / "out")
    with pytest.raises(ConfigError, match="lies in the index"):
        tune(world / "index", world / "bench", world / "index" / "tuned")
    with pytest.raises(ConfigError, match="ready-made vectors: there is no model"):
        tune(build(tmp_path / "vectors", 20), world / "bench", tmp_path / "other")
    only = write_benchmark(tmp_path / "only", {"d0": "x"}, {"q": "y"}, {"test": {"q": "d0"}})
    with pytest.raises(DataError, match=r"no split 'train'; there are: test; .* --split test trains with most"):
        tune(world / "index", only, tmp_path / "other")
    with pytest.raises(DataError, match=r"no split 'dev'; there are: train; .* `retrieve make-benchmark`"):
        split_queries(bench(tmp_path / "one", "train", count=3), split="dev")
    (tmp_path / "only" / "queries.jsonl").unlink()
    with pytest.raises(DataError, match=r"no judgements in it .* \(qrels/train.tsv\): `retrieve make-benchmark`"):
        tune(world / "index", only, tmp_path / "other")
    assert not list(tmp_path.glob(".*"))


# Splits


def bench(folder: Path, *splits: str, count: int = 400) -> Path:
    queries = {f"{split}{n}": f"query {split} {n}" for split in splits for n in range(count)}
    relevant = {split: {f"{split}{n}": "d0" for n in range(count)} for split in splits}
    return write_benchmark(folder, {"d0": "text"}, queries, relevant)


def test_a_benchmark_with_a_test_split_alone(tmp_path: Path) -> None:
    found = split_queries(bench(tmp_path / "bench", "test"), split="test")
    facts = {"training": "test", "selection": "a tenth of test", "proof": "a fifth of test"}
    assert dict(found.facts) == facts
    assert len(found.training.queries) > 250 and not set(found.training.queries) & set(found.proof.queries)


@pytest.mark.parametrize(
    ("there", "selection", "proof"),
    [
        (("train", "dev", "test"), "dev", "test"),
        (("train", "valid", "test"), "valid", "test"),
        (("train", "test"), "a tenth of train", "test"),
        (("train", "dev"), "a tenth of train", "dev"),
        (("train",), "a tenth of train", "a fifth of train"),
    ],
)
def test_where_held_out_queries_come_from(tmp_path: Path, there: Sequence[str], selection: str, proof: str) -> None:
    found = split_queries(bench(tmp_path / "bench", *there))
    assert dict(found.facts) == {"training": "train", "selection": selection, "proof": proof}
    parts = [found.training, found.selection, found.proof]
    ids = [set(part.queries) for part in parts]
    assert all(ids) and not (ids[0] & ids[1] | ids[0] & ids[2] | ids[1] & ids[2])
    assert all(set(part.qrels) == set(part.queries) for part in parts)
    assert found.dropped == 0 and sum(map(len, ids)) == 400 * len(there)
    for part, said, share in ((found.selection, selection, 0.1), (found.proof, proof, 0.2)):
        if "of train" in said:
            assert 0.7 * share < len(part.queries) / 400 < 1.3 * share
    assert len(limited(found.training, 7).queries) == 7


def test_more_queries_move_none(tmp_path: Path) -> None:
    fewer, more = (split_queries(bench(tmp_path / str(count), "train", count=count)) for count in (200, 400))
    for name in ("training", "selection", "proof"):
        old = set(getattr(fewer, name).queries)
        assert old == {q for q in getattr(more, name).queries if int(q.removeprefix("train")) < 200}


def test_no_query_text_is_in_two_parts(tmp_path: Path) -> None:
    queries = {
        "t0": "How do I rotate  a file",
        "t1": "open a file",
        "t2": "close a file",
        "t3": "how do i ROTATE a file ",
        "v0": "Open a File",
        "v1": "rename a file",
        "v2": "how do I rotate a file",
        "e0": "how do I rotate a file",
    }
    splits = {
        "train": {f"t{n}": "d0" for n in range(4)},
        "dev": {f"v{n}": "d0" for n in range(3)},
        "test": {"e0": "d0"},
    }
    found = split_queries(write_benchmark(tmp_path / "bench", {"d0": "text"}, queries, splits))
    assert [set(part.queries) for part in (found.training, found.selection, found.proof)] == [
        {"t2"},
        {"v0", "v1"},
        {"e0"},
    ]
    assert found.dropped == 4


def test_no_query_is_left_to_train_with(tmp_path: Path) -> None:
    splits = {"train": {"t": "d0"}, "test": {"e": "d0"}}
    folder = write_benchmark(tmp_path / "bench", {"d0": "text"}, {"t": "same", "e": "Same"}, splits)
    with pytest.raises(DataError, match="no query with a relevant document is left to train with"):
        split_queries(folder)


def test_a_damaged_split_is_not_an_absent_one(tmp_path: Path) -> None:
    folder = bench(tmp_path / "bench", "train", "dev")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\tmuch\n")
    with pytest.raises(DataError, match=r"test\.tsv, line 2"):
        split_queries(folder)


# Documents out of an index

LONG = " ".join(f"{word}-{n}" + ("\n\n" if n % 7 == 0 else "\t ") for n, word in enumerate(NOISE * 9)).strip()
RECORDS: list[dict[str, Any]] = [
    {"_id": "a", "title": "A title", "text": LONG, "year": 1999, "tags": ["x", "y"], "start": 3},
    {"_id": "b", "text": "short", "year": None, "title_": "t", "tags": {"k": [1, None]}, "passage": "p"},
    {"_id": "c", "text": "", "tags": "plain"},
    {"_id": "d", "title": "only a title", "text": " ", "end": 2.5},
    {"_id": "e", "text": "Überraschend früh blühte der Kirschbaum in Łódź – 桜が咲く. " * 20 + "!", "doc_id": "raw"},
    {"_id": "f", "text": "last", "document id": "no clash, it is metadata"},
]


def table_of(corpus: Path, settings: DocumentSettings) -> list[dict[str, Any]]:
    rows = []
    for batch in DocumentStream([corpus], settings):
        for row in batch.to_pylist():
            cells = {name: plain(value, batch.schema.field(name)) for name, value in row.items()}
            rows.append({name: value for name, value in cells.items() if value is not None})
    return rows


def indexed(tmp_path: Path, model: Path, records: Sequence[Mapping[str, Any]], **encoding: Any) -> Path:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    build_index(corpus, tmp_path / "index", model=model, encoding=EncoderSettings(**encoding))
    return corpus


def test_documents_come_back_as_they_were(tmp_path: Path, tiny: Any) -> None:
    records = [{k: v for k, v in record.items() if k != "document id"} for record in RECORDS]
    corpus = indexed(tmp_path, tiny("mean"), records, max_length=40, overlap=8)
    index = Index.open(tmp_path / "index")
    assert index.manifest.passages > len(records) + 10
    found = write_documents(index, tmp_path / "again.arrow")
    assert found == Reassembly(documents=len(records), blanks=0)
    assert table_of(tmp_path / "again.arrow", READING) == table_of(corpus, DocumentSettings())
    delete_documents(["a", "f"], tmp_path / "index")
    write_documents(Index.open(tmp_path / "index"), tmp_path / "fewer.arrow")
    kept = [row for row in table_of(corpus, DocumentSettings()) if row["doc_id"] not in ("a", "f")]
    assert table_of(tmp_path / "fewer.arrow", READING) == kept


def test_passages_of_a_document_in_several_batches(tmp_path: Path, tiny: Any, monkeypatch: Any) -> None:
    records = [{"_id": f"d{n}", "text": LONG[n * 40 :].strip()} for n in range(8)]
    corpus = indexed(tmp_path, tiny("mean"), records, max_length=40)
    whole = Index.documents

    def cut(self: Index) -> Any:
        for batch in whole(self):
            yield from (batch.slice(start, 3) for start in range(0, batch.num_rows, 3))

    monkeypatch.setattr(Index, "documents", cut)
    table = pa.Table.from_batches(documents_of(Index.open(tmp_path / "index")))
    assert table["document text"].to_pylist() == [record["text"] for record in records]
    assert table_of(corpus, DocumentSettings())[0]["text"] == table["document text"][0].as_py()


def test_a_sample_has_what_was_asked_for_and_some_others(tmp_path: Path, tiny: Any) -> None:
    indexed(tmp_path, tiny("mean"), [{"_id": f"d{n:02}", "title": f"T{n}", "text": f"text {n}"} for n in range(40)])
    write_documents(Index.open(tmp_path / "index"), tmp_path / "all.arrow")
    write_sample(tmp_path / "all.arrow", tmp_path / "some.arrow", {"d07", "d13", "none"}, every=10)
    rows = table_of(tmp_path / "some.arrow", READING)
    assert [row["doc_id"] for row in rows] == ["d00", "d07", "d10", "d13", "d20", "d30"]
    assert read_texts(tmp_path / "all.arrow", ["d13", "none"]) == {"d13": "T13 text 13"}


def test_checkpoints_of_a_large_corpus_are_judged_on_a_sample(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.tuner._DEVELOPMENT_DOCUMENTS", 10)
    monkeypatch.setattr("retrieval.tuner._DEVELOPMENT_HITS", 1)
    monkeypatch.setattr("retrieval.tuner._ENCODER_QUERIES", 3)
    sizes: list[int] = []

    def stop(stage: str, share: float | None) -> None:
        if stage == "building the new index":
            (sample,) = tmp_path.glob(".out.tuning/development.arrow")
            sizes.append(len(table_of(sample, READING)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(world / "index", world / "bench", tmp_path / "out", settings=LEARNS, progress=stop)
    assert 4 <= sizes[0] <= 10  # every 8th of 30 (of 10 documents 0.4), 3 relevant ones, 3 hits


def test_windows_that_do_not_touch_are_counted(tmp_path: Path, tiny: Any) -> None:
    indexed(tmp_path, tiny("bert"), [{"_id": "a", "text": LONG}, {"_id": "b", "text": "s"}], max_length=20, overlap=0)
    found = write_documents(Index.open(tmp_path / "index"), tmp_path / "again.arrow")
    assert found == Reassembly(documents=2, blanks=1)
    text = table_of(tmp_path / "again.arrow", READING)[0]["text"]
    assert len(text) == len(LONG) and text.split() == LONG.split()


def test_numbers_that_settings_refuse() -> None:
    for given in ({"what": "all"}, {"keep": "never"}, {"depth": 5}, {"negatives": -1}, {"max_steps": 0}):
        with pytest.raises(ConfigError):
            TuningSettings(**given)  # type: ignore[arg-type]


def test_steps_when_nothing_is_said() -> None:
    from retrieval.training.bi_encoder import BiEncoderTraining

    steps = {rows: TuningSettings().training(BiEncoderTraining, rows, 1).max_steps for rows in (30, 300, 10_000, 10**6)}
    assert steps == {30: 20, 300: 60, 10_000: 79, 10**6: 200}


def test_the_report_is_json(world: Path, tmp_path: Path) -> None:
    report = tune(world / "index", world / "bench", tmp_path / "out", settings=LEARNS_NOTHING)
    assert isinstance(report, TuningReport)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["splits"]["proof"] == "test"

"""OpenVINO: the vectors of torch, the same bits in any company, a cache that heals, no torch once converted."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import FAMILIES

from retrieval import graphs
from retrieval.encoder import BiEncoder, EncoderSettings
from retrieval.errors import ConfigError, ModelError
from retrieval.indexing import build_index
from retrieval.models import DEFAULT_RERANKER, default_reranker, fingerprint, resolve
from retrieval.reranker import CrossEncoder, RerankSettings
from retrieval.sentence_graph import SentenceGraph

if importlib.util.find_spec("openvino") is None:  # not importorskip, which would import it with its telemetry
    pytest.skip("OpenVINO is not installed", allow_module_level=True)
needs_nncf = pytest.mark.skipif(importlib.util.find_spec("nncf") is None, reason="NNCF is not installed")

TEXTS = [
    "Copper conducts heat better than iron does.",
    "ferry",
    "",
    "def mean(values): return sum(values) / len(values)",
    "Łódź – 桜 が 咲く.",
]


def encoder(folder: Path | None, **settings: Any) -> BiEncoder:
    return BiEncoder.load(folder, settings=EncoderSettings(**{"runtime": "openvino", **settings}))


def bits(vectors: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in vectors]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("name", [*FAMILIES, "mean", "cls", "dense", "dot", "plain", "prompts"])
def test_vectors_are_those_of_torch(name: str, tiny: Any) -> None:
    try:
        ours = encoder(tiny(name), dtype="float32")
    except ModelError as error:
        pytest.fail(f"not converted: {error}")
    torch = encoder(tiny(name), runtime="torch")
    np.testing.assert_allclose(ours.encode_queries(TEXTS), torch.encode_queries(TEXTS), atol=2e-5)
    long = " ".join(TEXTS * 20)
    found, expected = (one.encode_documents(["a title"] * 2, [long, TEXTS[0]]) for one in (ours, torch))
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=2e-5)
    assert (found.start.tolist(), found.end.tolist()) == (expected.start.tolist(), expected.end.tolist())
    assert ours.settings.runtime == ours.identity["runtime"] == "openvino"


def test_a_window_longer_than_the_local_attention(tiny: Any) -> None:
    long = " ".join(f"{TEXTS[0]} {number}" for number in range(300))  # beyond 1,100 tokens
    ours, torch = (encoder(tiny("long"), runtime=runtime, dtype="float32") for runtime in ("openvino", "torch"))
    np.testing.assert_allclose(ours.encode_queries([long]), torch.encode_queries([long]), atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_a_text_has_the_same_bits_alone_and_in_any_batch(dtype: str) -> None:
    ours = encoder(None, dtype=dtype)
    texts = [" ".join(TEXTS[:4] * (1 + number % 5))[: 7 * number + 1] for number in range(90)]
    together = bits(ours.encode_queries(texts))
    assert bits(ours.encode_documents([""] * 90, texts).vectors) == together
    assert [bits(ours.encode_queries([text]))[0] for text in texts[::7]] == together[::7]
    assert bits(encoder(None, dtype=dtype, batch_tokens=64).encode_queries(texts)) == together


def test_bfloat16_is_close_and_chosen_where_the_processor_has_it() -> None:
    expected = "bfloat16" if graphs.has_bfloat16() else "float32"
    ours = encoder(None)
    assert ours.settings.dtype == ours.identity["dtype"] == expected
    cosines = (ours.encode_queries(TEXTS) * encoder(None, runtime="torch").encode_queries(TEXTS)).sum(axis=1)
    assert cosines.min() > 0.9995


def test_threads_are_limited_as_for_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ours = encoder(None)
    ours.encode_queries(TEXTS * 9)
    assert isinstance(ours._model, SentenceGraph)
    network = ours._model._graph._network(False)
    assert (network.get_property("INFERENCE_NUM_THREADS"), ours._model.workers) == (1, 1)


def test_auto_takes_openvino_for_large_models_on_the_processor(tiny: Any) -> None:
    assert encoder(None, runtime="auto", device="cpu").settings.runtime == "openvino"
    assert encoder(tiny("mean"), runtime="auto").settings.runtime == "torch"
    assert encoder(None, runtime="auto", device="cpu", dtype="float16").settings.runtime == "torch"


@pytest.mark.parametrize("settings", [{"dtype": "float16"}, {"trust_remote_code": True}])
def test_settings_that_contradict_each_other(settings: dict[str, Any], tiny: Any) -> None:
    with pytest.raises(ConfigError, match="runtime openvino"):
        encoder(tiny("mean"), **settings)


def test_names_of_runtimes_are_checked(tiny: Any) -> None:
    with pytest.raises(ConfigError, match="unknown runtime 'onnx'; expected one of auto, torch, openvino"):
        encoder(tiny("mean"), runtime="onnx")


def test_a_model_that_cannot_be_converted(
    tiny: Any, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its pooling leaves out prompts, which a graph does not know."""
    monkeypatch.setattr("retrieval.runtime._WORTH_CONVERTING", 0)
    with pytest.raises(ModelError, match="is not run by OpenVINO: its pooling leaves out prompts"):
        encoder(tiny("noprompt"))
    auto = encoder(tiny("noprompt"), runtime="auto", device="cpu")
    assert auto.settings.runtime == "torch"
    assert [record.getMessage() for record in caplog.records if "OpenVINO" in record.getMessage()] == [
        "model noprompt is not run by OpenVINO: its pooling leaves out prompts; torch runs it "
        "(--runtime torch ends this note)"
    ]


def test_a_graph_that_disagrees_is_refused_and_remembered(cache: Path) -> None:
    import torch

    class Fickle(torch.nn.Module):
        """Does something else with long inputs, which a trace of a short one does not show."""

        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
            values = input_ids.float()
            return values if input_ids.shape[1] < 9 else -values

    class NoTokenizer:
        def save(self, path: str) -> None:
            Path(path).write_text("{}")

    def probe(length: int) -> graphs.Probe:
        ids = np.arange(1, 1 + 2 * length).reshape(2, length)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        return graphs.Probe(inputs=inputs, output=Fickle()(torch.from_numpy(ids)).numpy())

    cached, padding = graphs.Cached("test", "0" * 64), graphs.Padding(token=0, most=None)
    with pytest.raises(ModelError, match=r"does not agree with torch \(-1\.0000\)"):
        cached.convert(Fickle().eval(), [probe(5), probe(12)], NoTokenizer(), {}, padding=padding, per_row=True)
    again = graphs.Cached("test", "0" * 64)
    assert "does not agree" in again.facts["refused"]
    assert [path.name for path in again.folder.parent.iterdir()] == [again.folder.name]  # nothing is left over


def test_a_model_that_padding_disturbs_is_not_padded(tiny: Any, tmp_path: Path) -> None:
    """Padding that sees nothing but padding in its local attention gives NaN, which spoils all that attends to it."""
    folder = shutil.copytree(tiny("long"), tmp_path / "narrow")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "local_attention": 8}))
    narrow, wide = encoder(folder, dtype="float32"), encoder(tiny("long"), dtype="float32")
    for ours, padded in ((narrow, False), (wide, True)):
        facts = graphs.Cached("bi-encoder", str(ours.identity["sha256"])).facts
        assert (facts["padding"] is not None) == padded
    torch = encoder(folder, runtime="torch")
    texts = [" ".join(TEXTS * number) for number in range(1, 30)]
    np.testing.assert_allclose(narrow.encode_queries(texts), torch.encode_queries(texts), atol=2e-5)


@pytest.mark.parametrize("damage", ["shorter", "missing", "no facts", "broken facts"])
def test_a_damaged_graph_is_made_again(damage: str, tiny: Any, cache: Path) -> None:
    before = encoder(tiny("mean")).encode_queries(TEXTS)
    cached = graphs.Cached("bi-encoder", fingerprint(tiny("mean")))
    if damage == "shorter":
        os.truncate(cached.folder / "model.bin", 10)
    elif damage == "missing":
        (cached.folder / "model.xml").unlink()
    elif damage == "no facts":
        (cached.folder / "graph.json").unlink()
    else:
        (cached.folder / "graph.json").write_text("{")
    assert bits(encoder(tiny("mean")).encode_queries(TEXTS)) == bits(before)


def test_a_cache_that_cannot_be_written(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"is not run by OpenVINO: .*Not a directory"):
        encoder(tiny("mean"))


def test_other_weights_have_another_graph(tiny: Any, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(tiny("mean"), folder)
    first = encoder(folder).encode_queries(TEXTS)
    shutil.rmtree(folder)
    shutil.copytree(tiny("other"), folder)
    assert np.abs(encoder(folder).encode_queries(TEXTS) - first).max() > 1e-3


def test_once_converted_neither_torch_nor_transformers_is_imported() -> None:
    encoder(None)
    code = (
        "import sys; from retrieval.encoder import BiEncoder\n"
        "vectors = BiEncoder.load().encode_queries(['how do tides work'])\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'openvino_telemetry', 'ranx'}\n"
        "print(sorted(name for name in heavy if sys.modules.get(name)), vectors.shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[] (1, 384)\n", "")


def test_a_query_on_the_command_line_imports_nothing_heavy(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": str(row), "text": text}) + "\n" for row, text in enumerate(TEXTS)))
    build_index(corpus, tmp_path / "index")
    code = (
        "import sys; from retrieval.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'openvino_telemetry', 'ranx', 'duckdb', 'pandas'}\n"
        "print(sorted(name for name in heavy if sys.modules.get(name)), file=sys.stderr)"
    )
    asked = ["query", str(tmp_path / "index"), "which metal conducts heat?", "-k", "1", "--reranker", "none"]
    done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True, check=True)
    assert "Copper conducts heat" in done.stdout
    assert done.stderr == "[]\n"


def test_the_stored_tokenizer_is_that_of_transformers() -> None:
    from transformers import AutoTokenizer

    ours = encoder(None)
    theirs = AutoTokenizer.from_pretrained(str(resolve().folder), local_files_only=True)
    odd = [
        "café café ﬁne ＦＵＬＬ Ⅻ ½ ß İı",
        "a\u200bb\u00adc\ufeffd\u2028e\x00f\x7f",
        "नमस्ते สวัสดี 안녕하세요 桜が咲く 👩‍👩‍👧‍👦 🇩🇪",
        "́̂̃ combining first",
        "snake_case camelCase x+=1;\t\r\n  tabs",
        "\ue000\U0010ffff\U0001f9ff",
        "word" * 300,
    ]
    for text, one in zip(odd, ours._model.tokenize(odd), strict=True):
        assert one.ids == theirs.encode(text, add_special_tokens=False, truncation=False, verbose=False), text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_answers() -> None:
    ours = encoder(None)
    expected = ours.encode_queries(TEXTS * 9)
    child = os.fork()
    if child == 0:
        cosines = (ours.encode_queries(TEXTS * 9) * expected).sum(axis=1)  # OpenVINO would hang there; torch answers
        os._exit(0 if cosines.min() > 0.9995 else 1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the forked child hangs")


def test_facts_are_plain(tiny: Any) -> None:
    encoder(tiny("mean"))
    cached = graphs.Cached("bi-encoder", fingerprint(tiny("mean")))
    facts = json.loads((cached.folder / "graph.json").read_text())
    assert facts["agreement"]["float32"] > 0.99999
    assert set(facts["files"]) == {"model.xml", "model.bin", "tokenizer.json"}


def test_graphs_that_were_not_used_for_longest_go(tiny: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_KEPT", 2)
    for name in ("mean", "cls"):
        encoder(tiny(name))
    folders = {name: graphs.Cached("bi-encoder", fingerprint(tiny(name))).folder for name in ("mean", "cls", "other")}
    os.utime(folders["cls"] / "graph.json", (1, 1))
    encoder(tiny("other"))
    assert {name for name, folder in folders.items() if folder.exists()} == {"mean", "other"}


# cross-encoders

PAIRS = [(query, passage) for query in ("which metal", "a ferry over the strait") for passage in TEXTS]


def reranker(folder: Path | str, **settings: Any) -> CrossEncoder:
    return CrossEncoder.load(folder, settings=RerankSettings(**{"runtime": "openvino", **settings}))


@pytest.mark.parametrize("family", [*FAMILIES, "cross1", "cross2"])
def test_logits_are_those_of_torch(family: str, tiny: Any, tmp_path: Path) -> None:
    folder = tiny(family)
    if family in FAMILIES:
        import torch
        from transformers import AutoConfig, AutoModelForSequenceClassification

        folder = Path(shutil.copytree(folder, tmp_path / "cross"))
        torch.manual_seed(7)
        config = AutoConfig.from_pretrained(folder, num_labels=1, initializer_range=0.3)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    pairs = [*PAIRS, ("which metal", " ".join(TEXTS * 20))]
    ours, torch_model = reranker(folder, dtype="float32"), reranker(folder, runtime="torch")
    np.testing.assert_allclose(ours.score(pairs), torch_model.score(pairs), atol=2e-5)
    assert {**ours.identity, "runtime": "torch"} == torch_model.identity
    with pytest.raises(ConfigError, match=r"reads at most 12[89] tokens"):
        reranker(folder, max_length=1000)


def test_the_default_reranker_in_any_batch_and_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # of the fixture that hides it
    if default_reranker() is None:
        pytest.skip("no default reranker in this checkout")
    ours, torch_model = reranker(DEFAULT_RERANKER), reranker(DEFAULT_RERANKER, runtime="torch")
    scores = ours.score(PAIRS)
    assert [ours.score([pair])[0] for pair in PAIRS] == scores.tolist()
    np.testing.assert_allclose(scores, torch_model.score(PAIRS), atol=0.05)
    code = (
        "import sys; from retrieval.reranker import CrossEncoder\n"
        f"scores = CrossEncoder.load({DEFAULT_RERANKER!r}).score([('which metal', 'copper')])\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'openvino_telemetry', 'ranx'}\n"
        "print(sorted(name for name in heavy if sys.modules.get(name)), scores.shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[] (1,)\n", "")


# int8


@needs_nncf
def test_documents_in_int8(caplog: pytest.LogCaptureFixture) -> None:
    words = " ".join(TEXTS).split()
    texts = [" ".join(words[start : start + 3 + start % 17]) for start in range(20)] * 2
    exact = encoder(None, dtype="float32").encode_documents([""] * 40, texts).vectors
    ours = encoder(None, dtype="int8", calibration="test-documents")
    found = ours.encode_documents([""] * 40, texts).vectors
    assert 0.98 < (found * exact).sum(axis=1).mean() < 0.99995  # close, and not the same graph
    assert bits(ours.encode_documents([""], texts[5:6]).vectors) == bits(found[5:6])
    again = encoder(None, dtype="int8", calibration="test-documents")  # by its name, whatever comes first
    assert bits(again.encode_documents([""], texts[7:8]).vectors) == bits(found[7:8])
    assert bits(ours.encode_queries(texts)) == bits(encoder(None).encode_queries(texts))  # queries stay exact
    assert (ours.identity["dtype"], ours.identity["calibration"]) == ("int8", "test-documents")


def test_int8_is_openvinos_alone(tiny: Any) -> None:
    with pytest.raises(ConfigError, match="dtype int8 needs OpenVINO"):
        encoder(tiny("mean"), runtime="torch", dtype="int8")
    with pytest.raises(ConfigError, match="dtype int8 needs OpenVINO"):
        reranker(tiny("cross1"), runtime="torch", dtype="int8")


@needs_nncf
def test_pairs_in_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # of the fixture that hides the default reranker
    if default_reranker() is None:
        pytest.skip("no default reranker in this checkout")
    ours, exact = reranker(DEFAULT_RERANKER, dtype="int8"), reranker(DEFAULT_RERANKER, dtype="auto")
    few = [("which metal conducts heat best?", text) for text in TEXTS]
    assert ours.score(few).tolist() == exact.score(few).tolist()  # too few to take ranges from
    words = " ".join(TEXTS).split()
    pairs = [*few, *(("a ferry", " ".join(words[start % 20 : start % 20 + 9 + start // 20])) for start in range(40))]
    found, expected = ours.score(pairs), exact.score(pairs)
    assert found.tolist() != expected.tolist()
    assert np.corrcoef(found, expected)[0, 1] > 0.98
    assert ours.score(few).tolist() == found[: len(few)].tolist()
    assert reranker(DEFAULT_RERANKER, dtype="int8").score(pairs).tolist() == found.tolist()

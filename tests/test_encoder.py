import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import FAMILIES, LIMIT

from retrieval.encoder import BiEncoder, EncoderSettings
from retrieval.errors import ConfigError, DataError, ModelError
from retrieval.models import resolve
from retrieval.runtime import quiet_loading

TITLES = ["", "Ferries", "  Birds \n", "", "Copper"]
TEXTS = ["def mean(values): ...", "The ferry crosses at noon.", "A weaver builds a hanging nest", "x", ""]
JOINED = [TEXTS[0], "Ferries The ferry crosses at noon.", "Birds A weaver builds a hanging nest", "x", "Copper"]


@pytest.fixture(scope="module")
def load(tiny: Any) -> Any:
    """Loads an encoder by its tiny name, once for each settings."""

    @cache
    def loaded(name: str | None, **settings: Any) -> BiEncoder:
        folder = None if name is None else tiny(name)
        return BiEncoder.load(folder, settings=EncoderSettings(**{"device": "cpu", **settings}))

    return loaded


def reference(folder: Path, texts: list[str], *, prompt: str | None = None, unit: bool = True) -> np.ndarray:
    """What sentence-transformers gives."""
    from sentence_transformers import SentenceTransformer

    with quiet_loading():
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    vectors = model.encode(texts, prompt=prompt, normalize_embeddings=unit, show_progress_bar=False)
    return np.asarray(vectors)


def words(count: int, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    return " ".join(rng.choice(["ferry", "copper", "nest", "of", "heat", "värme", "0", "桜"], count))


# equal to sentence-transformers


@pytest.mark.parametrize("name", [*FAMILIES, "mean", "cls", "dim48", "dense", "plain", "long"])
def test_vectors_are_those_of_sentence_transformers(name: str, load: Any, tiny: Any) -> None:
    encoder = load(name)
    expected = reference(tiny(name), JOINED)
    found = encoder.encode_documents(TITLES, TEXTS)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_queries(JOINED), expected, atol=1e-5)
    assert found.parent.tolist() == [0, 1, 2, 3, 4]
    assert found.start.tolist() == [0] * 5
    assert found.end.tolist() == [len(text) for text in TEXTS]
    assert (found.vectors.dtype, encoder.dim) == (np.float32, expected.shape[1])
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-6)


def test_the_default_model_too(load: Any) -> None:
    expected = reference(resolve().folder, JOINED)
    for runtime in ("torch", "openvino"):
        encoder = load(None, runtime=runtime, dtype="float32")
        np.testing.assert_allclose(encoder.encode_documents(TITLES, TEXTS).vectors, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["prompts", "noprompt"])
def test_prompts_of_the_model(name: str, load: Any, tiny: Any) -> None:
    encoder = load(name)
    queries = reference(tiny(name), JOINED, prompt="search: ")
    documents = reference(tiny(name), JOINED, prompt="passage: ")
    assert np.abs(queries - documents).max() > 1e-4  # the prompts do something here
    np.testing.assert_allclose(encoder.encode_queries(JOINED), queries, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_documents(TITLES, TEXTS).vectors, documents, atol=1e-5)
    assert (encoder.identity["query_prompt"], encoder.identity["document_prompt"]) == ("search: ", "passage: ")


def test_prompts_of_the_user_win(load: Any, tiny: Any) -> None:
    encoder = load("prompts", query_prompt="ask ", document_prompt="")
    np.testing.assert_allclose(
        encoder.encode_queries(JOINED), reference(tiny("mean"), JOINED, prompt="ask "), atol=1e-5
    )
    np.testing.assert_allclose(
        encoder.encode_documents(TITLES, TEXTS).vectors, reference(tiny("mean"), JOINED), atol=1e-5
    )


@pytest.mark.parametrize("name", ["mean", "plain"])
def test_pooling_of_the_user_wins(name: str, load: Any, tiny: Any) -> None:
    encoder = load(name, pooling="cls")
    np.testing.assert_allclose(encoder.encode_queries(JOINED), reference(tiny("cls"), JOINED), atol=1e-5)
    assert encoder.identity["pooling"] == "cls"


def test_the_first_numbers_of_a_vector_alone(load: Any, tiny: Any) -> None:
    short = reference(tiny("mean"), JOINED, unit=False)[:, :8]
    encoder = load("mean", dim=8)
    expected = short / np.linalg.norm(short, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode_queries(JOINED), expected, atol=1e-5)
    assert (encoder.dim, encoder.identity["dim"], encoder.identity["model_dim"]) == (8, 8, 32)
    np.testing.assert_allclose(
        load("dot", dim=8).encode_queries(JOINED), reference(tiny("dot"), JOINED, unit=False)[:, :8], atol=1e-5
    )
    with pytest.raises(ConfigError, match="dim 33 is more than model mean gives: 32"):
        load("mean", dim=33)


def test_dot_product_is_not_normalised(load: Any, tiny: Any) -> None:
    encoder = load("dot")
    np.testing.assert_allclose(encoder.encode_queries(JOINED), reference(tiny("dot"), JOINED, unit=False), atol=1e-5)
    assert (encoder.metric, encoder.identity["normalize"]) == ("dot", False)


@pytest.mark.parametrize("name", ["mean", "bert", "albert", "roberta"])
def test_truncated_documents_are_cut_as_sentence_transformers_does(name: str, load: Any, tiny: Any) -> None:
    encoder = load(name, on_long="truncate", max_length=100)
    long = words(300)
    model_input = reference_truncated(tiny(name), ["Ferries " + long], 100)
    found = encoder.encode_documents(["Ferries"], [long])
    np.testing.assert_allclose(found.vectors, model_input, atol=1e-5)
    assert found.start.tolist() == [0]
    assert 0 < found.end[0] < len(long)
    assert encoder.notices["texts_truncated"] == 1


def reference_truncated(folder: Path, texts: list[str], limit: int) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    with quiet_loading():
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    model.max_seq_length = limit
    return np.asarray(model.encode(texts, normalize_embeddings=True, show_progress_bar=False))


# the same bits alone and in company


BATCHED = ["a", "", "ferry", "which bird?", *(words(count, count) for count in (1, 2, 3, 5, 8, 8, 13)), words(300)]


@pytest.mark.parametrize("name", [*(f for f in FAMILIES if f != "mpnet"), "mean", "cls", "dense", "dim48", None])
def test_a_query_has_the_same_bits_alone_and_in_a_batch(name: str | None, load: Any) -> None:
    encoder = load(name)
    together = encoder.encode_queries(BATCHED)
    for row, query in enumerate(BATCHED):
        assert np.array_equal(encoder.encode_queries([query])[0], together[row]), query
    assert np.array_equal(encoder.encode_queries(BATCHED[::-1])[::-1], together)


def test_mpnet_has_nearly_the_same_bits(load: Any) -> None:
    """MPNet differed in a last bit in two of five runs of all tests, and in none of 1,300 tries to see why."""
    encoder = load("mpnet")
    together = encoder.encode_queries(BATCHED)
    for row, query in enumerate(BATCHED):
        assert np.abs(encoder.encode_queries([query])[0] - together[row]).max() < 1e-6, query
    assert np.abs(encoder.encode_queries(BATCHED[::-1])[::-1] - together).max() < 1e-6


@pytest.mark.parametrize("name", ["mean", "bert", None])
def test_documents_have_the_same_bits_in_any_batch(name: str | None, load: Any) -> None:
    texts = [words(count, count) for count in (1, 3, 3, 20, 21, 60, 90, 200, 400, 20)]
    whole = load(name).encode_documents([""] * len(texts), texts)
    parts = [load(name, batch_tokens=64).encode_documents([""], [text]).vectors for text in texts]
    assert np.array_equal(whole.vectors, np.concatenate(parts))


def test_equal_texts_are_encoded_once(tiny: Any) -> None:
    encoder = BiEncoder.load(tiny("mean"))
    found = encoder.encode_documents(["", "", ""], ["nest", "copper", "nest"])
    assert np.array_equal(found.vectors[0], found.vectors[2])
    assert (encoder.notices["texts_encoded"], encoder.notices["texts_reused"]) == (2, 1)


# long texts


def test_windows_are_the_vectors_of_their_parts(load: Any) -> None:
    encoder = load("mean", overlap=16)
    long = words(300)
    found = encoder.encode_documents(["Nests"], [long])
    assert len(found.parent) > 2
    parts = [long[start:end] for start, end in zip(found.start, found.end, strict=True)]
    again = encoder.encode_documents(["Nests"] * len(parts), parts)
    np.testing.assert_allclose(found.vectors, again.vectors, atol=1e-5)
    covered = {at for start, end in zip(found.start, found.end, strict=True) for at in range(start, end)}
    assert all(long[at] == " " for at in set(range(len(long))) - covered)
    assert (found.start[1:] < found.end[:-1]).all()  # neighbours overlap


def test_passages_keep_document_order_and_blank_documents_have_none(load: Any) -> None:
    texts = ["nest", "", "\u200b \n", words(300), "copper"]
    found = load("mean").encode_documents(["", " ", "", "", ""], texts)
    assert sorted(set(found.parent.tolist())) == [0, 3, 4]
    assert (np.diff(found.parent) >= 0).all()
    assert found.parent.tolist().count(3) > 1


def test_nothing_at_all(load: Any) -> None:
    encoder = load("mean")
    assert encoder.encode_documents([], []).vectors.shape == (0, 32)
    assert encoder.encode_documents([""], [""]).vectors.shape == (0, 32)
    assert encoder.encode_queries([]).shape == (0, 32)


def test_a_long_title_leaves_room_for_the_text(tiny: Any) -> None:
    encoder = BiEncoder.load(tiny("mean"))
    found = encoder.encode_documents([words(400)] * 3, [words(200), "nest", ""])
    assert encoder.notices["titles_truncated"] == 3
    assert found.parent.tolist().count(0) < 12  # three quarters of each window are text
    assert found.parent.tolist()[-2:] == [1, 2]
    assert (found.start[-2], found.end[-2]) == (0, 4)


def test_too_long_can_be_an_error(load: Any) -> None:
    encoder = load("mean", on_long="error")
    encoder.encode_documents(["", ""], ["short", "also short"])
    with pytest.raises(DataError, match=rf"document 2 .*has \d+ tokens, the limit is {LIMIT}.*--on-long"):
        encoder.encode_documents(["", ""], ["short", words(300)])


def test_queries_are_cut_and_counted(tiny: Any, caplog: pytest.LogCaptureFixture) -> None:
    encoder = BiEncoder.load(tiny("mean"))
    vectors = encoder.encode_queries([words(400), "nest", words(300)])
    np.testing.assert_allclose(vectors[0], reference(tiny("mean"), [words(400)])[0], atol=1e-5)
    assert encoder.notices["queries_truncated"] == 2
    assert [record.getMessage() for record in caplog.records] == [f"2 of 3 queries cut at {LIMIT} tokens"]


def test_six_thousand_tokens_fit_a_long_model(load: Any) -> None:
    encoder = load("long")
    text = words(3000)
    tokens = len(encoder._model.tokenize([text])[0].ids)
    assert 6000 < tokens < 8190
    found = encoder.encode_documents([""], [text])
    assert found.parent.tolist() == [0]
    assert found.end.tolist() == [len(text)]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_limit_of_every_family_can_be_used_in_full(name: str, load: Any) -> None:
    encoder = load(name)
    assert encoder.identity["max_length"] == LIMIT
    assert np.isfinite(encoder.encode_queries([words(400)])).all()


def test_positions_count_from_the_padding_id_in_the_roberta_line(tiny: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("roberta"), tmp_path / "roberta"))
    stated = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(stated | {"model_max_length": 100_000}))
    encoder = BiEncoder.load(folder)
    assert encoder.identity["max_length"] == LIMIT + 2 - 1  # 130 positions, padding id 0
    assert np.isfinite(encoder.encode_queries([words(400)])).all()


# settings and models that cannot be used


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": LIMIT + 1}, "more than model mean takes: 128 tokens"),
        ({"max_length": 2}, "too small"),
        ({"max_length": 32, "query_prompt": words(40)}, "must leave room"),
        ({"overlap": 65}, "more than half"),
        ({"device": "tpu"}, "unknown device"),
        ({"device": "cuda:99"}, "not available here"),
        ({"dtype": "int3"}, "unknown dtype"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], message: str, load: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        load("mean", **settings)


@pytest.mark.parametrize(
    "settings", [{"pooling": "median"}, {"on_long": "cut"}, {"max_length": 0}, {"batch_tokens": 0}, {"overlap": -1}]
)
def test_settings_that_fit_no_model(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        EncoderSettings(**settings)


def test_a_plain_folder_pools_by_mean_with_one_warning(tiny: Any, load: Any, caplog: pytest.LogCaptureFixture) -> None:
    encoder = BiEncoder.load(tiny("plain"))
    assert encoder.identity["pooling"] == "mean"
    assert [record.getMessage() for record in caplog.records] == [
        "model plain does not say how it pools; mean pooling is assumed (--pooling)"
    ]
    caplog.clear()
    load("plain", pooling="mean")
    assert not caplog.records


def test_identity_is_json_and_tells_models_apart(load: Any, tiny: Any) -> None:
    one = load("mean").identity
    assert json.loads(json.dumps(one)) == one
    assert set(one) == {
        "name", "sha256", "dim", "model_dim", "metric", "pooling", "query_prompt", "document_prompt", "max_length",
        "normalize", "runtime", "dtype", "calibration", "path",
    }  # fmt: skip
    assert one["path"] == str(tiny("mean").resolve())
    assert load("other").identity["sha256"] != one["sha256"]
    assert load(None).identity["path"] is None


def broken(tiny: Any, tmp_path: Path, value: float) -> Path:
    """A model whose embedding of one token is not a number."""
    from safetensors.numpy import load_file, save_file

    folder = Path(shutil.copytree(tiny("mean"), tmp_path / "broken"))
    weights = load_file(folder / "model.safetensors")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    weights["embeddings.tok_embeddings.weight"][vocabulary["z"]] = value
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_not_a_number_names_model_and_text(tiny: Any, tmp_path: Path) -> None:
    encoder = BiEncoder.load(broken(tiny, tmp_path, float("nan")))
    with pytest.raises(ModelError, match=r"model broken gave NaN.*query 3, 'zz'"):
        encoder.encode_queries(["nest", "nest", "zz"])
    with pytest.raises(ModelError, match=r"model broken gave NaN.*document 2"):
        encoder.encode_documents(["", ""], ["nest", "zz"])


def test_damaged_weights(tiny: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("mean"), tmp_path / "damaged"))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"model damaged .* cannot be loaded"):
        BiEncoder.load(folder)


def test_a_distance_is_no_similarity(tiny: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("mean"), tmp_path / "euclid"))
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"similarity_fn_name": "euclidean"}))
    with pytest.raises(ModelError, match="euclidean"):
        BiEncoder.load(folder)


def test_half_a_surrogate_pair_is_a_data_error(load: Any) -> None:
    with pytest.raises(DataError, match="no valid Unicode"):
        load("mean").encode_queries(["nest", "a\ud800b"])


def test_titles_and_texts_must_match(load: Any) -> None:
    with pytest.raises(DataError, match="2 titles for 1 texts"):
        load("mean").encode_documents(["", ""], ["nest"])


# number formats, memory, processes


def test_bfloat16_is_close_to_float32(load: Any) -> None:
    exact, coarse = load("mean").encode_queries(JOINED), load("mean", dtype="bfloat16").encode_queries(JOINED)
    assert coarse.dtype == np.float32
    assert ((exact * coarse).sum(axis=1) > 0.99).all()
    np.testing.assert_allclose(np.linalg.norm(coarse, axis=1), 1, atol=1e-6)


def test_batches_shrink_when_memory_runs_out(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    encoder = BiEncoder.load(tiny("mean"))
    texts = [f"ferry {number}" for number in range(40)]
    expected = encoder.encode_queries(texts)
    whole, sizes = encoder._model.forward, []

    def small_memory(tokens: list[np.ndarray], **more: Any) -> np.ndarray:
        sizes.append(len(tokens))
        if len(tokens) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return whole(tokens, **more)

    monkeypatch.setattr(encoder._model, "forward", small_memory)
    assert np.array_equal(encoder.encode_queries(texts), expected)
    assert len([size for size in sizes if size > 6]) <= 4  # the lesson is kept for later batches
    assert "out of memory" in caplog.text


def test_one_text_that_memory_does_not_hold(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = BiEncoder.load(tiny("mean"))

    def no_memory(tokens: list[np.ndarray], **more: Any) -> np.ndarray:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(encoder._model, "forward", no_memory)
    with pytest.raises(ModelError, match=r"out of memory on one text of \d+ tokens"):
        encoder.encode_queries(["nest", "ferry"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_answers(load: Any) -> None:
    encoder = load(None)
    encoder.encode_queries([words(100, seed) for seed in range(20)])  # starts the thread pools
    child = os.fork()
    if child == 0:
        vectors = encoder.encode_queries([words(100, seed) for seed in range(20, 30)])
        os._exit(0 if np.isfinite(vectors).all() else 1)
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


def test_loading_is_quiet(tiny: Any) -> None:
    code = textwrap.dedent("""
        import sys
        from retrieval.encoder import BiEncoder, EncoderSettings
        BiEncoder.load(sys.argv[1]).encode_queries(["nest"])
        BiEncoder.load(sys.argv[2], settings=EncoderSettings(pooling="cls")).encode_queries(["nest"])
    """)
    command = [sys.executable, "-c", code, str(tiny("mean")), str(tiny("plain"))]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "")


def test_weights_that_the_files_do_not_hold_are_warned_about(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from safetensors.torch import load_file, save_file

    BiEncoder.load(tiny("mean"))
    assert "random" not in caplog.text
    folder = tmp_path / "half"
    shutil.copytree(tiny("mean"), folder)
    weights = load_file(folder / "model.safetensors")
    gone = next(name for name in weights if "layers.1" in name)
    save_file({k: v for k, v in weights.items() if k != gone}, folder / "model.safetensors", metadata={"format": "pt"})
    BiEncoder.load(folder)
    assert "1 of its weights are not in its files" in caplog.text

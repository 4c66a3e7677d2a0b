"""The cross-encoder: the peer's scores, whole queries, best windows, the same bits in any batch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny as makers

from retrieval.errors import ConfigError, DataError, ModelError
from retrieval.reranker import CrossEncoder, RerankSettings, relevant_label

SETTINGS = RerankSettings(device="cpu")
QUERIES = ["which metal conducts heat best", "early cherry blossom", "ferry", ""]
PASSAGES = [*makers.SENTENCES, "", "heat", "  two  blanks ", "x" * 40]
PAIRS = [(query, passage) for query in QUERIES for passage in PASSAGES]


@pytest.fixture(scope="session")
def cross(tiny) -> Any:
    """Loads a cross-encoder by the name of its tiny model."""
    loaded: dict[str, CrossEncoder] = {}

    def cross(name: str) -> CrossEncoder:
        if name not in loaded:
            loaded[name] = CrossEncoder.load(tiny(name), settings=SETTINGS)
        return loaded[name]

    return cross


def make_cross_family(tiny: Any, family: str) -> Path:
    """A cross-encoder of a family: the plain encoder's shape and tokenizer, a head with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    folder = tiny.root / f"{family}-cross"
    if not folder.exists():
        shutil.copytree(tiny(family), folder)
        torch.manual_seed(7)
        config = AutoConfig.from_pretrained(folder, num_labels=1, initializer_range=0.3)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    return folder


def peer_logits(folder: Path, pairs: list[tuple[str, str]]) -> np.ndarray:
    """sentence-transformers' logits, (n,) or (n, 2)."""
    import torch
    from sentence_transformers import CrossEncoder as Peer

    peer = Peer(str(folder), device="cpu", local_files_only=True)
    return peer.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)


# ---------------------------------------------------------------- oracle


@pytest.mark.parametrize("name", ["cross1", "cross2"])
def test_scores_are_those_of_sentence_transformers(tiny, cross, name):
    expected = peer_logits(tiny(name), PAIRS)
    if name == "cross2":
        expected = expected[:, 1] - expected[:, 0]
    scores = cross(name).score(PAIRS)
    assert scores.dtype == np.float32 and scores.shape == (len(PAIRS),)
    assert np.ptp(scores) > 1e-3  # equal constants would agree too
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize("family", makers.FAMILIES)
def test_every_family_scores_as_in_sentence_transformers(tiny, family):
    folder = make_cross_family(tiny, family)
    model = CrossEncoder.load(folder, settings=SETTINGS)
    scores = model.score(PAIRS)
    assert np.ptp(scores) > 1e-2
    np.testing.assert_allclose(scores, peer_logits(folder, PAIRS), rtol=1e-5, atol=1e-5)
    assert np.isfinite(model.score([("which metal", "copper " * 400)])).all()  # windows up to the last position
    assert model.notices["pairs_windowed"] == 1


def test_a_folder_saved_by_sentence_transformers_is_the_same_model(tiny, cross, tmp_path):
    from sentence_transformers import CrossEncoder as Peer

    peer = Peer(str(tiny("cross1")), device="cpu", local_files_only=True)
    peer.prompts, peer.default_prompt_name = {"search": "find: "}, "search"
    peer.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    assert (tmp_path / "saved" / "modules.json").is_file()
    saved = CrossEncoder.load(tmp_path / "saved", settings=SETTINGS)
    prompted = [("find: " + query, passage) for query, passage in PAIRS]
    np.testing.assert_array_equal(saved.score(PAIRS), cross("cross1").score(prompted))
    np.testing.assert_allclose(saved.score(PAIRS), peer_logits(tmp_path / "saved", PAIRS), atol=1e-5)
    assert saved.identity["prompt"] == "find: "
    json.dumps(saved.identity)


# ---------------------------------------------------------------- the same bits


@pytest.mark.parametrize("name", ["cross1", "cross2", "bert"])  # bert has a pooler between body and head
def test_a_pair_has_the_same_bits_alone_and_in_any_batch(tiny, name):
    folder = tiny(name) if name != "bert" else make_cross_family(tiny, name)
    model = CrossEncoder.load(folder, settings=SETTINGS)
    words = " ".join(makers.SENTENCES).split()
    pairs = [(" ".join(words[i : i + 3]), " ".join(words[i : i + 1 + i % 7])) for i in range(60)]
    together = model.score(pairs)
    alone = np.concatenate([model.score([pair]) for pair in pairs])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(model.score(pairs[::-1])[::-1], together)
    small = CrossEncoder.load(folder, settings=RerankSettings(device="cpu", batch_tokens=40))
    np.testing.assert_array_equal(small.score(pairs), together)


def test_equal_pairs_are_read_once(tiny):
    model = CrossEncoder.load(tiny("cross1"), settings=SETTINGS)
    pairs = [("a ferry", "copper"), ("copper", "a ferry"), ("a ferry", "copper")]
    seen: list[int] = []
    scores = model.score(pairs, progress=seen.append)
    assert scores[0] == scores[2] != scores[1]
    assert model.notices == {
        "pairs_scored": 2,
        "pairs_reused": 1,
        "pairs_windowed": 0,
        "queries_truncated": 0,
    }
    assert sum(seen) == 3


# ---------------------------------------------------------------- long texts


def test_a_long_passage_counts_with_its_best_window(tiny):
    model = CrossEncoder.load(tiny("cross1"), settings=RerankSettings(device="cpu", max_length=40))
    query, passage = "heat and copper", " ".join(makers.SENTENCES)
    score = model.score([(query, passage), (query, "silver")])
    assert model.notices["pairs_windowed"] == 1 and model.notices["queries_truncated"] == 0
    # by hand: [CLS] query [SEP] window [SEP], windows of what fits, a quarter shared, the last at the end
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny("cross1"))
    network = AutoModelForSequenceClassification.from_pretrained(tiny("cross1")).eval()
    head = [
        tokenizer.cls_token_id,
        *tokenizer(query, add_special_tokens=False).input_ids,
        tokenizer.sep_token_id,
    ]
    body = tokenizer(passage, add_special_tokens=False, verbose=False).input_ids
    size = 40 - len(head) - 1
    step = size - size // 4
    starts = [*range(0, len(body) - size, step), len(body) - size]
    assert len(starts) > 3
    import torch

    inputs = torch.tensor([[*head, *body[s : s + size], tokenizer.sep_token_id] for s in starts])
    with torch.inference_mode():
        logits = network(input_ids=inputs).logits[:, 0].numpy()
    assert np.ptp(logits) > 1e-4
    np.testing.assert_allclose(score[0], logits.max(), atol=1e-6)


def test_windows_cover_a_passage_and_fit(tiny):
    from transformers import AutoTokenizer

    from retrieval.pairs import PairTokens

    tokenizer = AutoTokenizer.from_pretrained(tiny("bert"))
    tokens = PairTokens.of(tokenizer, max_length=20, model="bert")
    query, passage = "copper", " ".join(makers.SENTENCES)
    wanted = tokenizer(passage, add_special_tokens=False, verbose=False)["input_ids"]
    pieces, cut = tokens.pieces([(query, passage), ("b", "a")])
    assert cut == 0 and [piece.first for piece in pieces].count(True) == 2
    covered: list[int] = []
    for piece in pieces[:-1]:
        assert piece.length <= 20
        window = piece.passage.tolist()
        at = next(at for at in range(len(covered) + 1) if wanted[at : at + len(window)] == window)
        covered = covered[:at] + window
    assert covered == wanted
    # a pair that fits is laid out as by the tokenizer itself, types and all
    batch = tokens.batch(pieces[-1:])
    expected = tokenizer("b", "a")
    assert {key: value[0].tolist() for key, value in batch.items()} == dict(expected)


def test_a_long_query_leaves_room_for_the_passage(tiny, caplog):
    model = CrossEncoder.load(tiny("cross1"), settings=SETTINGS)
    query = "where is " + "really " * 300 + "the ferry"
    scores = model.score([(query, "red " * 200), (query, "green " * 200), (query, "short")])
    assert len(set(scores.tolist())) == 3
    assert model.notices["queries_truncated"] == 1
    assert model.notices["pairs_windowed"] == 2
    assert "1 of the queries cut" in caplog.text and "128 tokens" in caplog.text


def test_a_query_is_cut_no_further_than_it_must(tiny):
    from transformers import AutoTokenizer

    from retrieval.pairs import PairTokens

    tokenizer = AutoTokenizer.from_pretrained(tiny("cross1"))
    tokens = PairTokens.of(tokenizer, max_length=43, model="cross1")  # room for 40 tokens

    def zeros(n: int) -> str:
        return " ".join("0" * n)

    ids = tokenizer(zeros(60), add_special_tokens=False)["input_ids"]
    assert len(ids) == 60
    for passage, kept in [(1, 39), (3, 37), (10, 30), (90, 30)]:
        pieces, cut = tokens.pieces([(zeros(60), zeros(passage))])
        assert cut == 1
        assert [piece.query.tolist() for piece in pieces] == [ids[:kept]] * len(pieces)
    pieces, cut = tokens.pieces([(zeros(36), zeros(4))])  # more than three quarters, but it fits
    assert cut == 0 and [piece.length for piece in pieces] == [43]


# ---------------------------------------------------------------- labels and probabilities


@pytest.mark.parametrize(
    ("names", "label"),
    [
        ({0: "LABEL_0"}, None),
        ({0: "LABEL_0", 1: "LABEL_1"}, 1),
        ({0: "relevant", 1: "not_relevant"}, 0),
        ({0: "Non-Relevant", 1: "Relevant"}, 1),
        ({0: "true", 1: "false"}, 0),
        ({0: "positive", 1: "NEGATIVE"}, 0),
        ({0: "yes", 1: "no"}, 0),
        ({0: "irrelevant", 1: "relevant"}, 1),
        ({0: "notable", 1: "north"}, 1),
    ],
)
def test_the_relevant_label_is_found_by_its_name(names, label):
    assert relevant_label(names) == label


def test_a_model_whose_first_label_is_relevant_is_turned_round(tiny, cross, tmp_path):
    shutil.copytree(tiny("cross2"), tmp_path / "turned")
    config = json.loads((tmp_path / "turned" / "config.json").read_text())
    config["id2label"], config["label2id"] = {"0": "yes", "1": "no"}, {"yes": 0, "no": 1}
    (tmp_path / "turned" / "config.json").write_text(json.dumps(config))
    turned = CrossEncoder.load(tmp_path / "turned", settings=SETTINGS)
    assert turned.identity["relevant_label"] == 0
    np.testing.assert_array_equal(turned.score(PAIRS), -cross("cross2").score(PAIRS))


def test_probabilities_are_float32_and_do_not_overflow(cross):
    values = cross("cross1").probability(np.array([0.0, 1.0, -1.0, 200.0, -200.0, -80.0], dtype=np.float32))
    assert values.dtype == np.float32
    np.testing.assert_allclose(values[:5], [0.5, 0.7310586, 0.2689414, 1.0, 0.0], rtol=1e-6)
    assert values[5] == pytest.approx(1.804851e-35, rel=1e-5)
    assert cross("cross1").probability(np.empty(0)).shape == (0,)


def test_the_probability_of_two_labels_is_their_softmax(tiny, cross):
    import torch

    expected = torch.softmax(torch.tensor(peer_logits(tiny("cross2"), PAIRS)), dim=1)[:, 1].numpy()
    scores = cross("cross2").score(PAIRS)
    np.testing.assert_allclose(cross("cross2").probability(scores), expected, atol=1e-5)


def test_bfloat16_keeps_the_head_exact(tiny, cross):
    model = CrossEncoder.load(tiny("cross1"), settings=RerankSettings(device="cpu", dtype="bfloat16"))
    scores = model.score(PAIRS)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, cross("cross1").score(PAIRS), atol=0.02)
    assert len(set(scores.tolist())) > 0.9 * len(set(PAIRS))


# ---------------------------------------------------------------- edges and bad input


def test_nothing_gives_nothing(cross):
    scores = cross("cross1").score([])
    assert scores.shape == (0,) and scores.dtype == np.float32


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (("q", None), ["pair 1", "passage", "None"]),
        ((None, "p"), ["pair 1", "query", "None"]),
        (("q", "a", "b"), ["pair 1", "(query, passage)"]),
        ("qp", ["pair 1", "(query, passage)", "'qp'"]),
        (("q", "\ud800"), ["pair 1", "passage"]),
    ],
)
def test_what_is_no_pair_of_strings_is_refused(cross, pair, words):
    with pytest.raises(DataError) as caught:
        cross("cross1").score([("q", "p"), pair])
    for word in words:
        assert word in str(caught.value)


def test_models_that_are_no_reranker_are_refused(tiny, tmp_path):
    makers.make_cross_encoder(tmp_path / "cross3", labels=3)
    with pytest.raises(ModelError, match=r"model cross3 has 3 labels; a reranker needs 1 or 2"):
        CrossEncoder.load(tmp_path / "cross3", settings=SETTINGS)
    with pytest.raises(ModelError, match=r"plain is no cross-encoder: it has no weights for "):
        CrossEncoder.load(tiny("plain"), settings=SETTINGS)  # transformers would invent a head
    with pytest.raises(ModelError, match=r"mean has the modules Transformer, Pooling"):
        CrossEncoder.load(tiny("mean"), settings=SETTINGS)
    with pytest.raises(ModelError, match="no such model"):
        CrossEncoder.load("./nowhere", settings=SETTINGS)


def test_damaged_weights_and_nan_are_named(tiny, tmp_path):
    from safetensors.torch import load_file, save_file

    broken = Path(shutil.copytree(tiny("cross1"), tmp_path / "broken"))
    weights = load_file(broken / "model.safetensors")
    weights["classifier.weight"][:] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"model broken gave NaN .* the pair 'which way' / 'north'"):
        CrossEncoder.load(broken, settings=SETTINGS).score([("which way", "north")])
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"model broken cannot be loaded"):
        CrossEncoder.load(broken, settings=SETTINGS)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "config_sentence_transformers.json"])
def test_damaged_files_of_a_model_are_a_model_error(tiny, tmp_path, name):
    broken = Path(shutil.copytree(tiny("cross1"), tmp_path / "broken"))
    (broken / name).write_text('{"half": ')
    with pytest.raises(ModelError, match=r"broken"):
        CrossEncoder.load(broken, settings=SETTINGS)


def test_lengths_beyond_the_model_or_below_any_use_are_refused(tiny):
    with pytest.raises(ConfigError, match=r"max_length 129: model cross1 reads at most 128 tokens"):
        CrossEncoder.load(tiny("cross1"), settings=RerankSettings(device="cpu", max_length=129))
    with pytest.raises(ConfigError, match=r"max_length 6 .* at least 7"):
        CrossEncoder.load(tiny("cross1"), settings=RerankSettings(device="cpu", max_length=6))
    with pytest.raises(ConfigError, match="batch_tokens"):
        RerankSettings(batch_tokens=0)

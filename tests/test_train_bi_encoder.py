"""Bi-encoder training: losses by hand and against sentence-transformers', gradients, masks, resumption, the result."""

import json
import logging
import math
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from tiny import FAMILIES, LONG_LIMIT, make_plain

from retrieval.encoder import BiEncoder, EncoderSettings
from retrieval.errors import ConfigError, DataError, MissingDependencyError, ModelError
from retrieval.models import ResolvedModel
from retrieval.sentence_model import load_sentence_model
from retrieval.training.bi_encoder import BiEncoderTraining, train_bi_encoder
from retrieval.training.candidates import CandidateBatches
from retrieval.training.examples import Example
from retrieval.training.loop import autocast, prepare
from retrieval.training.losses import LEFT_OUT, CandidateLoss, infonce, kl_divergence, margin_mse

NAN = math.nan
BASIC = {"device": "cpu", "batch_size": 8, "learning_rate": 1e-3, "precision": "float32"}


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def examples(count=20, **more):
    return [
        Example(
            query=f"which number is {n} times {n}, and why" if n % 3 else f"{n} times {n}?",
            positives=(f"{n * n} is {n} times {n}",),
            negatives=(
                f"{n * n} is a number",
                f"{n + 1} times {n + 1} is {(n + 1) ** 2}",
                "no number at all " * (n % 4),
            ),
            **more,
        )
        for n in range(1, count + 1)
    ]


def shared_positive():
    return [
        Example(query=f"question {n}", positives=("the one shared answer",)) for n in ("one", "two", "three", "four")
    ]


def load(folder, pooling=None):
    return load_sentence_model(
        ResolvedModel(name="m", folder=folder), device="cpu", dtype="float32", pooling=pooling, trust_remote_code=False
    )


def batches_of(some, model, *, negatives=1, taught=False, **settings):
    return CandidateBatches(
        some,
        model=model,
        settings=BiEncoderTraining(**(BASIC | settings)),
        negatives=negatives,
        query_prompt=model.spec.query_prompt or "",
        document_prompt=model.spec.document_prompt or "",
        taught=taught,
    )


def columns(inputs):
    """A step's inputs as a loss takes them: those of the queries, those of the texts."""
    return [
        {key.removeprefix(name): value for key, value in inputs.items() if key.startswith(name)}
        for name in ("query_", "text_")
    ]


def loss_over(model, **more):
    given = {"kind": "infonce", "metric": "cosine", "temperature": 0.05, "micro_tokens": 60, "direct_tokens": 0}
    return CandidateLoss(model, **(given | more))


def gradients(model, compute):
    """Loss, and gradients of all parameters as one vector."""
    model.zero_grad()
    loss = compute()
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone()


def weights(folder):
    from safetensors.torch import load_file

    return load_file(str(folder / "model.safetensors"))


def same_weights(left, right):
    left, right = weights(left), weights(right)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def logged(folder, name):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if name in line]


# --- losses


def test_infonce_by_hand():
    scores = torch.tensor([[0.0, math.log(2), math.log(5)], [math.log(3), 0.0, math.log(4)]])
    all_in = torch.tensor([[1, 0, 0], [0, 1, 0]])
    # row 1: 1 of 1 + 2 + 5; row 2: 1 of 3 + 1 + 4
    assert infonce(scores, all_in, None).item() == pytest.approx(math.log(8) + math.log(8), abs=1e-6)
    masked = torch.tensor([[1, 0, LEFT_OUT], [LEFT_OUT, 1, LEFT_OUT]])
    assert infonce(scores, masked, None).item() == pytest.approx(math.log(3), abs=1e-6)


def test_distillation_by_hand():
    scores = torch.tensor([[3.0, 1.0, 9.0], [0.0, 2.0, 5.0]])
    relations = torch.tensor([[1, 0, 0], [0, 1, 0]])
    teacher = torch.tensor([[4.0, 1.0, NAN], [NAN, 1.0, 2.0]])
    # margins: teacher 3 and -1, student 2 and -3
    assert margin_mse(scores, relations, teacher).item() == pytest.approx((3 - 2) ** 2 + (-1 + 3) ** 2)
    log2, log3 = math.log(2), math.log(3)
    rated = torch.tensor([[log2, 0.0, NAN]])  # the teacher says 2/3, 1/3; the student 1/4, 3/4; the third is not rated
    found = kl_divergence(torch.tensor([[0.0, log3, 50.0]]), torch.tensor([[1, 0, 0]]), rated).item()
    assert found == pytest.approx(2 / 3 * math.log(8 / 3) + 1 / 3 * math.log(4 / 9), abs=1e-6)


class Given(torch.nn.Module):
    """A model whose inputs are its vectors."""

    def forward(self, features):
        return features


def test_losses_are_those_of_sentence_transformers_where_these_fit():
    from sentence_transformers.sentence_transformer.losses import (
        DistillKLDivLoss,
        MarginMSELoss,
        MultipleNegativesRankingLoss,
    )

    generator = torch.Generator().manual_seed(3)
    vectors = [torch.randn(4, 6, generator=generator) for _ in range(4)]  # queries, positives, two negatives each
    given = [{"sentence_embedding": one} for one in vectors]
    relations = torch.cat([torch.eye(4), torch.zeros(4, 8)], dim=1)
    reps = [[vectors[0]], [torch.cat(vectors[1:])]]
    theirs = MultipleNegativesRankingLoss(Given(), scale=20.0)(given, None)
    ours = loss_over(Given()).calculate_loss(reps, relations[None])
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)

    scores = torch.randn(4, 3, generator=generator)  # of the positive and the two negatives
    teacher = torch.full((4, 12), NAN)
    for row in range(4):
        teacher[row, [row, 4 + row, 8 + row]] = scores[row]
    labels = torch.stack([relations, teacher])
    for kind, loss in (("margin-mse", MarginMSELoss(Given())), ("kl", DistillKLDivLoss(Given(), temperature=1.0))):
        theirs = loss(given, scores)
        ours = loss_over(Given(), kind=kind, metric="dot", temperature=1.0).calculate_loss(reps, labels)
        assert ours.item() == pytest.approx(theirs.item(), rel=1e-5), kind


def test_scores_in_several_blocks_give_the_same(monkeypatch):
    generator = torch.Generator().manual_seed(5)
    queries, texts = torch.randn(7, 6, generator=generator), torch.randn(9, 6, generator=generator)
    relations = torch.cat([torch.eye(7), torch.zeros(7, 2)], dim=1)
    teacher = torch.randn(7, 9, generator=generator)
    teacher[relations == 0] = torch.where(teacher[relations == 0] > 0, teacher[relations == 0], NAN)
    for kind in ("infonce", "margin-mse", "kl"):
        found = []
        for rows in (1024, 3):
            monkeypatch.setattr("retrieval.training.losses._ROWS", rows)
            given = [[queries.clone().requires_grad_()], [texts.clone().requires_grad_()]]
            loss = loss_over(Given(), kind=kind).calculate_loss(
                given, torch.stack([relations, teacher]), with_backward=True
            )
            found.append((loss, given[0][0].grad, given[1][0].grad))
        for one, other in zip(*found, strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-6), kind


@pytest.mark.parametrize("name", ["prompts", "noprompt", "dense", "dot"])
def test_cached_gradients_are_those_of_one_big_batch(tiny, name):
    model = load(tiny(name))
    inputs = batches_of(examples(24), model, batch_size=24)[0]
    relations = inputs["label"][0]
    model.model.train()

    def big_batch():
        queries, texts = (model.model(dict(column))["sentence_embedding"] for column in columns(inputs))
        if name != "dot":
            queries, texts = (torch.nn.functional.normalize(one, dim=-1) for one in (queries, texts))
        scores = queries @ texts.T / 0.05
        return infonce(scores, relations, None) / len(scores)

    expected, gradient = gradients(model.model, big_batch)
    for direct in (0, 10**9):  # the cache, and activations kept
        loss = loss_over(model.model, metric=model.spec.metric, direct_tokens=direct)
        found, ours = gradients(model.model, lambda loss=loss: 0.5 * loss(columns(inputs), inputs["label"]))
        assert 2 * found == pytest.approx(expected, rel=1e-5)
        assert torch.linalg.norm(2 * ours - gradient) <= 1e-5 * torch.linalg.norm(gradient)


def test_matryoshka_is_the_sum_over_lengths(tiny):
    from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss

    model = load(tiny("mean"))
    inputs = batches_of(examples(12), model, batch_size=12)[0]

    def plain():
        queries, texts = (model.model(dict(column))["sentence_embedding"] for column in columns(inputs))
        total = 0
        for length in (32, 8):
            left, right = (torch.nn.functional.normalize(one[:, :length], dim=-1) for one in (queries, texts))
            total = total + infonce(left @ right.T / 0.05, inputs["label"][0], None) / len(left)
        return total

    expected, gradient = gradients(model.model, plain)
    for direct in (0, 10**9):
        loss = MatryoshkaLoss(model.model, loss_over(model.model, direct_tokens=direct), [32, 8])
        found, ours = gradients(model.model, lambda loss=loss: loss(columns(inputs), inputs["label"]))
        assert found == pytest.approx(expected, rel=1e-5)
        assert torch.linalg.norm(ours - gradient) <= 1e-5 * torch.linalg.norm(gradient)


def test_precision_is_what_the_settings_say(tiny):
    model = load(tiny("mean"))
    inputs = batches_of(examples(12), model, batch_size=12)[0]
    found = {}
    for precision in ("float32", "bfloat16"):
        chosen = autocast(BiEncoderTraining(precision=precision), "cpu")
        for direct in (0, 10**9):
            loss = loss_over(model.model, direct_tokens=direct, autocast=chosen)
            _, found[precision, direct] = gradients(
                model.model, lambda loss=loss: loss(columns(inputs), inputs["label"])
            )
    exact = found["float32", 0]
    for direct in (0, 10**9):
        error = torch.linalg.norm(found["bfloat16", direct] - exact) / torch.linalg.norm(exact)
        assert 1e-4 < error < 0.1
    assert torch.allclose(found["bfloat16", 0], found["bfloat16", 10**9], rtol=1e-3, atol=1e-5)


def test_gradient_checkpointing_gives_the_same_gradients(tiny):
    found = []
    for checkpointing in (False, True):
        model = load(tiny("mean"))
        prepare(model.model[0].auto_model, BiEncoderTraining(gradient_checkpointing=checkpointing))
        inputs = batches_of(examples(8), model)[0]
        model.model.train()
        loss = loss_over(model.model)
        found.append(gradients(model.model, lambda loss=loss, inputs=inputs: loss(columns(inputs), inputs["label"])))
    assert found[0][0] == found[1][0]
    assert torch.allclose(found[0][1], found[1][1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", [*FAMILIES, "plain"])
def test_dropout_is_what_the_settings_say(tiny, name):
    model = load(tiny(name), pooling="mean").model
    before = model[0].auto_model.config.to_dict()
    inputs = columns(batches_of(examples(4), load(tiny(name), pooling="mean"))[0])[1]
    for dropout in (0.0, 0.5):
        prepare(model[0].auto_model, BiEncoderTraining(dropout=dropout))
        model.train()
        twice = [model(dict(inputs))["sentence_embedding"].detach() for _ in range(2)]
        assert torch.equal(*twice) == (dropout == 0.0)
    assert model[0].auto_model.config.to_dict() == before


# --- batches


def test_four_equal_positives_leave_nothing_to_learn(tiny):
    model = load(tiny("mean"))
    inputs = batches_of(shared_positive(), model, batch_size=4)[0]
    assert inputs["label"].shape == (1, 4, 1)
    loss = loss_over(model.model)(columns(inputs), inputs["label"])
    assert loss.item() == 0.0
    # the fault that this avoids: each text a column of its own, and a negative of the other rows
    vectors = model.model(columns(inputs)[1])["sentence_embedding"].detach()
    queries = model.model(columns(inputs)[0])["sentence_embedding"].detach()
    unmasked = loss_over(model.model).calculate_loss([[queries], [vectors.repeat(4, 1)]], torch.eye(4)[None])
    assert unmasked.item() == pytest.approx(math.log(4), abs=1e-6)


def test_what_answers_a_query_is_no_negative_of_it(tiny):
    model = load(tiny("mean"))
    some = [
        Example(query="q", positives=("a", "b"), negatives=("n", "c")),
        Example(query="q", positives=("c",)),
        Example(query="r", positives=("d",), negatives=("a", "d")),
    ]
    batches = batches_of(some, model, batch_size=4, negatives=9)
    assert batches.counts["negatives_that_are_positives"] == 2
    assert batches.counts["rows"] == 4
    labels = batches[0]["label"][0]
    assert labels.shape == (4, 5)  # a, b, c, d, n
    assert sorted((int((row == 1).sum()), int((row == LEFT_OUT).sum())) for row in labels) == [(1, 0)] + [(1, 2)] * 3


def test_each_row_is_seen_once_an_epoch_in_another_order(tiny):
    some = examples(10)
    model = load(tiny("mean"))
    batches = batches_of(some, model, batch_size=4, epochs=3, negatives=0)
    assert len(batches) == 8  # 30 rows
    seen = [int(mask.sum()) for step in range(8) for mask in batches[step]["query_attention_mask"]]
    lengths = sorted(len(one.ids) + model.spec.frame.size for one in model.tokenize([e.query for e in some]))
    assert len(seen) == 30
    assert sorted(seen) == sorted(lengths * 3)
    chosen = [row for step in range(8) for _, row in batches._chosen(step)]
    orders = [chosen[:10], chosen[10:20], chosen[20:]]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert all(one != other for one, other in combinations(orders, 2))
    assert len(batches_of(some, model, batch_size=4, max_steps=5)) == 5
    assert len(batches_of(some, model, batch_size=400, epochs=2)) == 2  # as many rows as there are


def test_a_batch_depends_on_its_number_alone(tiny):
    model = load(tiny("mean"))
    first, second = (batches_of(examples(10), model, batch_size=4, epochs=3) for _ in range(2))
    forward = [first[step] for step in range(8)]
    for step in reversed(range(8)):
        again = second[step]
        assert forward[step].keys() == again.keys()
        assert all(torch.equal(forward[step][name], again[name]) for name in again)
    assert not torch.equal(
        batches_of(examples(10), model, seed=1)[0]["query_input_ids"][:, 1:6], forward[0]["query_input_ids"][:, 1:6]
    )
    with pytest.raises(IndexError):
        first[8]


def test_negatives_take_turns(tiny):
    model = load(tiny("mean"))
    one = [Example(query="q", positives=("a",), negatives=("n", "nn n", "nnn nnnn nnn"))]
    batches = batches_of(one, model, batch_size=1, epochs=3)
    lengths = [set(batches[epoch]["text_attention_mask"].sum(dim=1).tolist()) for epoch in range(3)]
    assert len({max(some) for some in lengths}) == 3


@pytest.mark.parametrize("name", ["prompts", "noprompt", "dense", "cls"])
def test_texts_are_read_as_the_encoder_reads_them(tiny, name):
    long = "a long text that has to be cut somewhere " * 20
    some = [Example(query="what is long?", positives=(long,)), Example(query=long, positives=("short",))]
    model, encoder = load(tiny(name)), BiEncoder.load(tiny(name), settings=EncoderSettings(on_long="truncate"))
    batches = batches_of(some, model, batch_size=2)
    assert (batches.counts["queries_cut"], batches.counts["texts_cut"]) == (1, 1)
    queries, texts = columns(batches[0])
    for ours, theirs in (
        (queries, encoder.encode_queries([long, "what is long?"])),
        (texts, encoder.encode_documents(["", ""], [long, "short"]).vectors),
    ):
        with torch.no_grad():
            vectors = model.model(ours)["sentence_embedding"]
        vectors = torch.nn.functional.normalize(vectors, dim=-1).numpy()
        np.testing.assert_allclose(vectors, theirs, atol=1e-5)


def test_nothing_to_train_with(tiny):
    model = load(tiny("mean"))
    with pytest.raises(DataError, match="0 examples give nothing"):
        batches_of([], model)
    with pytest.raises(DataError, match=r"3 examples give nothing .* scores of positives"):
        batches_of(examples(3), model, taught=True)
    with pytest.raises(DataError, match="no valid Unicode"):
        batches_of([Example(query="\ud800", positives=("a",))], model)
    halves = [*examples(2), *examples(1, positive_scores=(3.0,), negative_scores=(1.0, 2.0, 0.0))]
    assert batches_of(halves, model, taught=True).counts["rows_without_scores"] == 2


# --- training


def test_trained_model_is_the_one_served(tiny, tmp_path):
    from sentence_transformers import SentenceTransformer

    report = train_bi_encoder(
        examples(), tmp_path / "out", model=tiny("prompts"), settings=BiEncoderTraining(epochs=2, **BASIC)
    )
    assert (report.steps, report.best_step, report.resumed_from) == (5, 5, 0)
    assert not list(tmp_path.glob(".*"))
    encoder = BiEncoder.load(tmp_path / "out")
    vectors = encoder.encode_queries(["how many"])
    assert encoder.settings.query_prompt == "search: "
    assert encoder.settings.max_length == BiEncoder.load(tiny("prompts")).settings.max_length
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(["how many"], prompt_name="query")
    np.testing.assert_allclose(vectors, theirs / np.linalg.norm(theirs), atol=1e-5)
    assert not np.allclose(vectors, BiEncoder.load(tiny("prompts")).encode_queries(["how many"]), atol=1e-3)
    for name in ("config.json", "1_Pooling/config.json", "modules.json"):
        trained, before = (json.loads((folder / name).read_text()) for folder in (tmp_path / "out", tiny("prompts")))
        if isinstance(trained, dict):
            trained.pop("use_cache", None)  # the trainer's, of no meaning in an encoder
        assert trained == before, name
    assert len(logged(tmp_path / "out", "loss")) == 5
    assert all(logged(tmp_path / "out", "tokens"))
    assert report.tokens == sum(logged(tmp_path / "out", "tokens"))
    assert "| kept step | 5 |" in (tmp_path / "out" / "README.md").read_text()
    assert (tmp_path / "out" / "loss.svg").read_text().startswith("<svg")


def test_training_lowers_the_loss(tiny, tmp_path):
    settings = BiEncoderTraining(max_steps=40, **BASIC)
    train_bi_encoder(examples(8), tmp_path / "out", model=tiny("mean"), settings=settings)
    losses = logged(tmp_path / "out", "loss")
    assert sum(losses[-4:]) < 0.5 * sum(losses[:4])


def test_four_equal_positives_are_trained_on_and_change_nothing(tiny, tmp_path):
    settings = BiEncoderTraining(**(BASIC | {"batch_size": 4, "weight_decay": 0.0, "warmup": 0.0}))
    report = train_bi_encoder(shared_positive(), tmp_path / "out", model=tiny("mean"), settings=settings)
    assert (report.steps, report.loss, report.notices["rows"]) == (1, 0.0, 4)
    assert same_weights(tmp_path / "out", tiny("mean"))


def test_best_model_by_the_first_figure_is_kept(tiny, tmp_path):
    figures = iter([0.3, 0.7, 0.5])
    seen = []

    def evaluate(folder):
        seen.append(weights(folder))
        return {"first": next(figures), "second": float(len(seen))}

    settings = BiEncoderTraining(max_steps=7, evaluate_every=3, **BASIC)
    report = train_bi_encoder(examples(), tmp_path / "out", model=tiny("mean"), settings=settings, evaluate=evaluate)
    assert len(seen) == 3
    assert (report.best_step, report.metrics) == (6, {"first": 0.7, "second": 2.0})
    kept = weights(tmp_path / "out")
    assert all(torch.equal(kept[name], seen[1][name]) for name in kept)
    assert logged(tmp_path / "out", "metrics")[2] == {"first": 0.5, "second": 3.0}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| 6 (kept) | 0.7000 | 2.0000 |" in card


def test_interpolated_weights_lie_between_those_at_the_start_and_those_learnt(tiny, tmp_path):
    served = []

    def evaluate(folder):
        served.append(weights(folder))
        return {"figure": float(len(served))}

    settings = BiEncoderTraining(max_steps=6, evaluate_every=3, **BASIC)
    train_bi_encoder(examples(), tmp_path / "whole", model=tiny("mean"), settings=settings)
    part = replace(settings, interpolation=0.25)
    train_bi_encoder(examples(), tmp_path / "part", model=tiny("mean"), settings=part, evaluate=evaluate)
    start, learnt, kept = (weights(folder) for folder in (tiny("mean"), tmp_path / "whole", tmp_path / "part"))
    for name, value in kept.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, 0.75 * start[name] + 0.25 * learnt[name], atol=1e-7, rtol=1e-5)
    assert all(torch.equal(kept[name], served[-1][name]) for name in kept)
    assert logged(tmp_path / "whole", "loss") == logged(tmp_path / "part", "loss")


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ConfigError, match=r"interpolation is .*; expected a share above 0, up to 1"):
        BiEncoderTraining(interpolation=share)


class StopError(Exception):
    pass


def stopping_at(share):
    def progress(done):
        if done >= share:
            raise StopError

    return progress


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_interrupted_training_ends_with_the_same_weights(tiny, tmp_path, dropout, caplog):
    settings = BiEncoderTraining(epochs=3, evaluate_every=2, dropout=dropout, interpolation=0.5, **BASIC)  # 8 steps
    whole = train_bi_encoder(examples(), tmp_path / "whole", model=tiny("mean"), settings=settings)
    for share in (0.6, 0.8):  # after step 5, so at checkpoint 4; after step 7
        with pytest.raises(StopError):
            train_bi_encoder(
                examples(), tmp_path / "parts", model=tiny("mean"), settings=settings, progress=stopping_at(share)
            )
        assert not (tmp_path / "parts").exists()
    parts = train_bi_encoder(examples(), tmp_path / "parts", model=tiny("mean"), settings=settings)
    assert parts.resumed_from == 6
    assert "taken up after step 4" in caplog.text
    assert same_weights(tmp_path / "whole", tmp_path / "parts")
    for name in ("step", "loss", "learning_rate", "tokens"):
        assert logged(tmp_path / "whole", name) == logged(tmp_path / "parts", name)
    assert (whole.steps, whole.loss, whole.tokens) == (parts.steps, parts.loss, parts.tokens)


def test_interrupted_evaluation_is_made_up_for(tiny, tmp_path):
    calls = []

    def evaluate(folder):
        calls.append(sorted(weights(folder)))
        if len(calls) in (2, 5):
            raise StopError
        return {"figure": float(len(calls))}

    settings = BiEncoderTraining(epochs=3, evaluate_every=4, **BASIC)
    given = {"model": tiny("mean"), "settings": settings, "evaluate": evaluate}
    with pytest.raises(StopError):  # in the last evaluation, of step 8
        train_bi_encoder(examples(), tmp_path / "out", **given)
    report = train_bi_encoder(examples(), tmp_path / "out", **given)
    assert (len(calls), report.resumed_from, report.best_step) == (3, 8, 8)
    assert logged(tmp_path / "out", "metrics") == [{"figure": 1.0}, {"figure": 3.0}]


def test_other_settings_or_data_start_anew(tiny, tmp_path, caplog):
    settings = BiEncoderTraining(epochs=3, evaluate_every=2, **BASIC)
    with pytest.raises(StopError):
        train_bi_encoder(examples(), tmp_path / "out", model=tiny("mean"), settings=settings, progress=stopping_at(0.6))
    report = train_bi_encoder(examples(19), tmp_path / "out", model=tiny("mean"), settings=settings)
    assert report.resumed_from == 0
    assert "other settings or data" in caplog.text


def test_memory_that_runs_out_makes_micro_batches_smaller(tiny, tmp_path, monkeypatch, caplog):
    settings = BiEncoderTraining(max_steps=3, micro_tokens=256, **BASIC)
    train_bi_encoder(examples(), tmp_path / "whole", model=tiny("mean"), settings=settings)
    embed, room = CandidateLoss.embed_minibatch, 32

    def narrow(self, sentence_feature, begin, end, with_grad, *args, **more):
        if with_grad and begin and int(sentence_feature["attention_mask"][begin:end].sum()) > room:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return embed(self, sentence_feature, begin, end, with_grad, *args, **more)

    monkeypatch.setattr(CandidateLoss, "embed_minibatch", narrow)
    for name, direct in (("direct", None), ("cached", 0)):
        caplog.clear()
        changed = BiEncoderTraining(max_steps=3, micro_tokens=128, direct_tokens=direct, **BASIC)
        train_bi_encoder(examples(), tmp_path / name, model=tiny("mean"), settings=changed)
        assert "32 tokens at once from here on" in caplog.text
        left, right = weights(tmp_path / "whole"), weights(tmp_path / name)
        assert all(torch.allclose(left[key], right[key], atol=1e-4) for key in left)
    room = -1
    with pytest.raises(ModelError, match="out of memory on one text"):
        train_bi_encoder(examples(), tmp_path / "none", model=tiny("mean"), settings=changed)


def test_memory_that_kept_activations_fill_is_made_free(tiny, tmp_path, monkeypatch, caplog):
    settings = BiEncoderTraining(max_steps=3, **BASIC)
    train_bi_encoder(examples(), tmp_path / "whole", model=tiny("mean"), settings=settings)
    embed = CandidateLoss.embed_minibatch

    def keeping(self, sentence_feature, begin, end, with_grad, *args, **more):
        if with_grad and self.direct_tokens:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return embed(self, sentence_feature, begin, end, with_grad, *args, **more)

    monkeypatch.setattr(CandidateLoss, "embed_minibatch", keeping)
    train_bi_encoder(examples(), tmp_path / "full", model=tiny("mean"), settings=settings)
    assert caplog.text.count("out of memory") == 1
    left, right = weights(tmp_path / "whole"), weights(tmp_path / "full")
    assert all(torch.allclose(left[key], right[key], atol=1e-4) for key in left)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_from_a_plain_encoder(tiny, tmp_path, family):
    settings = BiEncoderTraining(max_steps=2, **BASIC)
    train_bi_encoder(examples(8), tmp_path / "out", model=tiny(family), pooling="cls", settings=settings)
    encoder = BiEncoder.load(tmp_path / "out")
    assert encoder.identity["pooling"] == "cls"
    assert encoder.settings.max_length == BiEncoder.load(tiny(family)).settings.max_length
    assert not np.allclose(
        encoder.encode_queries(["abc"]),
        BiEncoder.load(tiny(family), settings=EncoderSettings(pooling="cls")).encode_queries(["abc"]),
        atol=1e-4,
    )


def test_a_modernbert_base_trains_on_8192_positions(tmp_path):
    make_plain(tmp_path / "base", positions=LONG_LIMIT)
    long = [Example(query=f"{n} of them", positives=(f"{n} " * 9000,)) for n in ("one", "two")]
    settings = BiEncoderTraining(**(BASIC | {"precision": "bfloat16", "gradient_checkpointing": True}))
    report = train_bi_encoder(long, tmp_path / "out", model=tmp_path / "base", pooling="mean", settings=settings)
    assert report.tokens > 2 * LONG_LIMIT
    assert report.notices["texts_cut"] == 2
    assert math.isfinite(report.loss)
    assert BiEncoder.load(tmp_path / "out").settings.max_length == LONG_LIMIT


def test_prompts_given_are_saved(tiny, tmp_path):
    settings = BiEncoderTraining(max_steps=1, query_prompt="ask: ", document_prompt="", **BASIC)
    train_bi_encoder(examples(8), tmp_path / "out", model=tiny("prompts"), settings=settings)
    served = BiEncoder.load(tmp_path / "out").settings
    assert (served.query_prompt, served.document_prompt or "") == ("ask: ", "")


def test_max_length_of_training_is_not_the_models(tiny, tmp_path):
    settings = BiEncoderTraining(max_steps=1, max_length=12, **BASIC)
    report = train_bi_encoder(examples(8), tmp_path / "out", model=tiny("mean"), settings=settings)
    assert report.notices["queries_cut"] > 0
    assert BiEncoder.load(tmp_path / "out").settings.max_length == BiEncoder.load(tiny("mean")).settings.max_length


@pytest.mark.parametrize("loss", ["margin-mse", "kl"])
def test_distillation_brings_the_student_closer_on_pairs_it_has_not_seen(tiny, tmp_path, loss):
    words = [
        "copper",
        "iron",
        "silver",
        "ferry",
        "strait",
        "harbour",
        "weaver",
        "nest",
        "grass",
        "leaves",
        "tests",
        "values",
    ]
    generator = np.random.default_rng(0)

    def teacher(query, text):  # counts words in common
        return 2.0 * len(set(query.split()) & set(text.split()))

    def example():
        query = " ".join(generator.choice(words, 3, replace=False))
        texts = [" ".join(generator.choice(words, 3, replace=False)) for _ in range(4)]
        scores = [teacher(query, text) for text in texts]
        best = int(np.argmax(scores))
        rest = [place for place in range(4) if place != best and texts[place] != texts[best]]
        return Example(
            query=query,
            positives=(texts[best],),
            negatives=tuple(texts[place] for place in rest),
            positive_scores=(scores[best],),
            negative_scores=tuple(scores[place] for place in rest),
        )

    train, held_out = [example() for _ in range(200)], [example() for _ in range(60)]

    def error(folder):
        model = load(folder)
        batches = batches_of(held_out, model, batch_size=60, negatives=3, taught=True)
        with torch.no_grad():
            return loss_over(model.model, kind=loss)(columns(batches[0]), batches[0]["label"]).item()

    settings = BiEncoderTraining(loss=loss, negatives=3, **(BASIC | {"epochs": 6, "batch_size": 16}))
    train_bi_encoder(train, tmp_path / "out", model=tiny("mean"), settings=settings)
    assert error(tmp_path / "out") < 0.8 * error(tiny("mean"))


# --- refusals


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": "triplet"}, "unknown loss"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"negatives": -1}, "negatives is -1"),
        ({"loss": "kl", "negatives": 0}, "negatives is 0; expected at least 1"),
        ({"lora_rank": 0}, "lora_rank is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
    ],
)
def test_settings_that_cannot_be_used(given, said):
    with pytest.raises(ConfigError, match=said):
        BiEncoderTraining(**given)


def test_settings_that_do_not_fit_the_model(tiny, tmp_path):
    for name, more, said in (
        ("mean", {"max_length": 4000}, "max_length 4000 is more than model mean takes: 128"),
        ("mean", {"max_length": 2}, "leaves no room"),
        ("mean", {"matryoshka": (16, 64)}, "expected 1 to 32"),
        ("dot", {"matryoshka": (16,)}, "need a model of cosines"),
        ("mean", {"device": "cuda:3"}, "cuda"),
    ):
        settings = BiEncoderTraining(**(BASIC | more))
        with pytest.raises(ConfigError, match=said):
            train_bi_encoder(examples(4), tmp_path / "out", model=tiny(name), settings=settings)
    with pytest.raises(ConfigError, match="unknown pooling"):
        train_bi_encoder(examples(4), tmp_path / "out", model=tiny("plain"), pooling="middle")
    assert not (tmp_path / "out").exists()


def test_missing_packages_are_named(tiny, tmp_path, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "accelerate" else found(name))
    with pytest.raises(MissingDependencyError, match=r"training needs accelerate.*retrieve-rerank\[train\]"):
        train_bi_encoder(examples(4), tmp_path / "out", model=tiny("mean"))
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "retrieval.training.losses", None)  # importing it fails
    with pytest.raises(MissingDependencyError, match="sentence-transformers 6"):
        train_bi_encoder(examples(4), tmp_path / "out", model=tiny("mean"), settings=BiEncoderTraining(**BASIC))
    monkeypatch.undo()
    monkeypatch.setattr("retrieval.training.adapters.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="LoRA needs peft"):
        train_bi_encoder(
            examples(4), tmp_path / "out", model=tiny("mean"), settings=BiEncoderTraining(lora_rank=4, **BASIC)
        )


def test_lora_is_merged_into_what_is_saved(tiny, tmp_path):
    pytest.importorskip("peft")
    settings = BiEncoderTraining(max_steps=4, lora_rank=4, **BASIC)
    train_bi_encoder(examples(), tmp_path / "out", model=tiny("mean"), settings=settings)
    before, after = weights(tiny("mean")), weights(tmp_path / "out")
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert not any("norm" in name or "embed" in name for name in changed)


def test_a_loss_that_is_no_number_stops_the_training(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(
        __import__("retrieval.training.losses", fromlist=["LOSSES"]).LOSSES,
        "infonce",
        lambda scores, relations, teacher: scores.sum() * NAN,
    )
    with pytest.raises(ModelError, match="the loss is nan at step 1"):
        train_bi_encoder(examples(), tmp_path / "out", model=tiny("mean"), settings=BiEncoderTraining(**BASIC))


def test_weights_that_the_last_step_made_useless_are_not_kept(tiny, tmp_path):
    settings = BiEncoderTraining(**{**BASIC, "learning_rate": 1e300}, max_steps=1, warmup=0.0)
    with pytest.raises(ModelError, match="is not finite after step 1; lower the learning rate"):
        train_bi_encoder(examples(), tmp_path / "out", model=tiny("mean"), settings=settings)
    assert list(tmp_path.iterdir()) == []


def test_what_is_cut_is_said(tiny, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    long = [Example(query="q", positives=("many words " * 200,)), Example(query="r", positives=("few",))]
    train_bi_encoder(long, tmp_path / "out", model=tiny("mean"), settings=BiEncoderTraining(**BASIC))
    assert "texts cut: 1" in caplog.text

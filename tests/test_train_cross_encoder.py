"""Training of cross-encoders: inputs as in serving, exact list-wise gradients, resuming, families, distillation."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny as makers
import torch

from retrieval.calibration import Calibration, expected_calibration_error
from retrieval.errors import ConfigError, DataError, ModelError
from retrieval.models import resolve
from retrieval.pairs import PairTokens
from retrieval.reranker import CrossEncoder, RerankSettings
from retrieval.training.classifier import save_classifier, start_classifier
from retrieval.training.cross_encoder import CrossEncoderTraining, train_cross_encoder
from retrieval.training.examples import Example
from retrieval.training.list_loss import ListLoss
from retrieval.training.lists import ListBatches, TextList, lists_of
from retrieval.training.rank_losses import LOSSES, Judged

WORDS = ["ferry", "copper", "heat", "bird", "nest", "cherry", "silver", "iron", "harbour", "tests"]
CPU = RerankSettings(device="cpu")
QUICK = CrossEncoderTraining(
    device="cpu", precision="float32", learning_rate=2e-3, batch_size=8, negatives=3, max_steps=4
)


def made(count: int, negatives: int = 5) -> list[Example]:
    """Examples that can be learned: the text that answers has the query's word."""
    found = []
    for number in range(count):
        word, *others = np.roll(WORDS, -number)[: negatives + 1].tolist()
        found.append(
            Example(
                query=f"where is {word}",
                positives=(f"the {word} is here, {number}",),
                negatives=tuple(f"the {other} is here, {number}" + " so" * (number % 5) for other in others),
            )
        )
    return found


def batches_of(lists: list[TextList], folder: Path, **changes: Any) -> ListBatches:
    start = start_classifier(resolve(folder))
    asked = {"steps": 3, "size": 2, "negatives": 9, "windows": 1, "seed": 0, "max_length": start.max_length} | changes
    tokens = PairTokens.of(
        start.tokenizer, max_length=asked.pop("max_length"), model="tiny", prompt=asked.pop("prompt", "")
    )
    return ListBatches(lists, tokens, **asked)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


# ---------------------------------------------------------------- lists


def test_more_positives_make_more_lists():
    example = Example(query="q", positives=("a", "b", "c"), negatives=("x",))
    lists, left_out = lists_of([example], loss="listwise", positives=2)
    assert [one.texts for one in lists] == [("a", "b", "x"), ("c", "x")] and left_out == 0
    assert [one.relevance for one in lists] == [(1.0, 1.0), (1.0,)]


def test_scores_of_positives_alone_are_grades_and_of_both_a_teachers():
    graded = Example(query="q", positives=("a", "b"), positive_scores=(3.0, 1.0), negatives=("x",))
    taught = replace(graded, negative_scores=(-1.0,))
    (one,), _ = lists_of([graded], loss="lambda", positives=2)
    assert one.relevance == (3.0, 1.0) and one.teacher == ()
    (one,), _ = lists_of([taught], loss="margin-mse", positives=2)
    assert one.relevance == (1.0, 1.0) and one.teacher == (3.0, 1.0, -1.0)


@pytest.mark.parametrize(("loss", "kept"), [("pointwise", 3), ("listwise", 1), ("pairwise", 2), ("lambda", 2)])
def test_lists_without_a_contrast_are_left_out_and_counted(loss, kept):
    examples = [
        Example(query="q", positives=("a",)),
        Example(query="q", positives=("a", "b"), positive_scores=(2.0, 1.0)),
        Example(query="q", positives=("a",), negatives=("x",)),
    ]
    lists, left_out = lists_of(examples, loss=loss, positives=2)
    assert (len(lists), left_out) == (kept, 3 - kept)


@pytest.mark.parametrize(
    ("example", "loss", "said"),
    [
        (Example(query="q", positives=("a",)), "listwise", "expected negatives; mine them first"),
        (
            Example(query="why", positives=("a",), negatives=("b",)),
            "kl",
            r"example 1 \(why\) has no scores of a teacher",
        ),
        (Example(query="q", query_id="7", positives=("a",), positive_scores=(0.0,)), "lambda", r"\(7\).*grade <= 0"),
    ],
)
def test_what_cannot_be_learned_from_is_an_error(example, loss, said):
    with pytest.raises(DataError, match=said):
        lists_of([example], loss=loss, positives=1)


# ---------------------------------------------------------------- batches


def test_a_batch_depends_on_its_number_alone(tiny):
    lists, _ = lists_of(made(7), loss="listwise", positives=1)
    first = batches_of(lists, tiny("bert"), negatives=2, steps=9)
    second = batches_of(lists, tiny("bert"), negatives=2, steps=9)
    forth, back = [first[step] for step in range(9)], [second[step] for step in reversed(range(9))][::-1]
    for one, other in zip(forth, back, strict=True):
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert first.notices == second.notices and first.notices["pairs"] == 9 * 2 * 3
    with pytest.raises(IndexError):
        first[9]


def test_an_epoch_sees_every_list_once_and_draws_other_negatives(tiny):
    lists, _ = lists_of(made(6), loss="listwise", positives=1)
    batches = batches_of(lists, tiny("bert"), negatives=2, steps=6)
    epochs = [[batches._drawn(place) for place in range(start, start + 6)] for start in (0, 6)]
    for epoch in epochs:
        assert sorted(one.texts[0] for one in epoch) == sorted(one.texts[0] for one in lists)
        for one in epoch:
            whole = next(every for every in lists if every.query == one.query)
            assert len(set(one.texts)) == 3 and set(one.texts) <= set(whole.texts)
    assert [one.query for one in epochs[0]] != [one.query for one in epochs[1]]
    assert {one.texts for one in epochs[0]} != {one.texts for one in epochs[1]}


@pytest.mark.parametrize("name", ["cross1", "cross2", "bert"])
def test_what_is_trained_is_what_is_served(tiny, tmp_path, name):
    """Scores of a step's inputs are those of the reranker: windows, long queries, prompt, token types."""
    start = start_classifier(resolve(tiny(name)), labels=None if name != "bert" else 1, max_length=40, prompt="find: ")
    start.network.classifier.weight.data *= 100 if name == "bert" else 1  # a fresh head's scores are nearly equal
    save_classifier(start, tmp_path / "model")
    example = Example(
        query="where is the ferry",
        positives=(" ".join(makers.SENTENCES),),
        negatives=("copper", "", "bird " * 60),
    )
    long = Example(query="really " * 80, positives=("a",), negatives=("bird " * 60,))
    lists, _ = lists_of([example, long], loss="pointwise", positives=1)
    batches = batches_of(lists, tmp_path / "model", windows=99, max_length=40, prompt="find: ", steps=1)
    inputs = batches[0]
    start.network.eval()
    loss = ListLoss(
        start.network,
        kind="pointwise",
        relevant=1 if name == "cross2" else None,
        micro_tokens=64,
        with_types=batches.with_types,
    )
    seen = []
    loss._loss = lambda scores, judged: seen.append((scores.detach(), judged)) or scores.sum(dim=1)
    loss(inputs)
    pairs = [(one.query, text) for place in (0, 1) for one in [batches._drawn(place)] for text in one.texts]
    expected = CrossEncoder.load(tmp_path / "model", settings=CPU).score(pairs)
    found = torch.cat([scores[judged.present] for scores, judged in seen]).numpy()
    np.testing.assert_allclose(np.sort(found), np.sort(expected), atol=1e-5)
    assert np.ptp(expected) > 1e-3 and batches.notices["pairs_cut"] == 0 and batches.notices["queries_cut"] == 1
    # with one window the rest of a passage is not read, and that is counted
    short = batches_of(lists, tmp_path / "model", max_length=40, steps=1)
    assert short[0]["windows"].shape == (6, 1) and short.notices["pairs_cut"] == 3


# ---------------------------------------------------------------- gradients


def plain_gradient(network: Any, kind: str, inputs: Mapping[str, torch.Tensor], relevant: int | None) -> list[Any]:
    """The gradient by the book: all pieces in one batch, one loss, one backward pass."""
    network.zero_grad()
    logits = network(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
    scores = logits[:, 0] if relevant is None else logits[:, relevant] - logits[:, 1 - relevant]
    rows = [
        [
            scores[[piece for piece in inputs["windows"][pair].tolist() if piece >= 0]].max()
            if pair >= 0
            else torch.zeros(())
            for pair in row
        ]
        for row in inputs["slots"].tolist()
    ]
    matrix = torch.stack([torch.stack(row) for row in rows])
    judged = Judged(relevance=inputs["relevance"], teacher=inputs["teacher"], present=inputs["slots"] >= 0)
    loss = LOSSES[kind](matrix, judged).mean()
    loss.backward()
    return [loss.detach(), *(value.grad.clone() for value in network.parameters())]


@pytest.mark.parametrize("micro", [24, 120, 4096])  # again for each list, some lists at a time, all at once
@pytest.mark.parametrize(("kind", "name"), [*((kind, "cross1") for kind in LOSSES), ("listwise", "cross2")])
def test_gradients_are_those_of_one_big_batch(tiny, kind, name, micro):
    examples = [
        Example(
            query=f"query {n}",
            positives=("red " * n,),
            negatives=tuple("blue " * k for k in range(1, 4 + n)),
            positive_scores=(float(n),),
            negative_scores=tuple(map(float, range(3 + n))),
        )
        for n in range(1, 6)
    ]
    lists, _ = lists_of(examples, loss=kind, positives=1)
    inputs = batches_of(lists, tiny(name), size=5, max_length=16, windows=2)[0]
    network = start_classifier(resolve(tiny(name))).network.eval()
    for value in network.parameters():  # scores that differ: margins of nearly equal ones have few digits
        value.data *= 4 if value.ndim == 2 else 1
    relevant = 1 if name == "cross2" else None
    expected = plain_gradient(network, kind, inputs, relevant)
    loss = ListLoss(network, kind=kind, relevant=relevant, micro_tokens=micro, with_types=False)
    network.zero_grad()
    value = loss(inputs)
    value.backward()  # as the trainer does; adds nothing
    found = [value.detach(), *(parameter.grad for parameter in network.parameters())]
    ours, theirs = (torch.cat([one.flatten() for one in values]) for values in (found, expected))
    assert theirs[1:].norm() > 1e-3
    assert (ours - theirs).norm() < 1e-5 * theirs[1:].norm()


def test_what_is_computed_again_drops_the_same_values(tiny):
    lists, _ = lists_of(made(2), loss="listwise", positives=1)
    inputs = batches_of(lists, tiny("bert"), steps=1)[0]
    network = start_classifier(resolve(tiny("bert"))).network.train()
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.4
    loss = ListLoss(network, kind="listwise", relevant=None, micro_tokens=16, with_types=True)
    plain, seen = loss._scores, []
    loss._scores = lambda inputs, rows, longest: (
        seen.append((rows.tolist(), plain(inputs, rows, longest))) or seen[-1][1]
    )
    loss(inputs)
    first = {str(rows): scores for rows, scores in seen if not scores.requires_grad}
    again = {str(rows): scores.detach() for rows, scores in seen if scores.requires_grad}
    assert len(first) > 3 and first.keys() == again.keys()
    assert all(torch.equal(first[rows], again[rows]) for rows in first)
    assert not torch.equal(plain(inputs, np.array([0]), 9), plain(inputs, np.array([0]), 9))  # it does drop


def test_the_head_computes_in_float32(tiny):
    network = start_classifier(resolve(tiny("bert"))).network
    loss = ListLoss(
        network,
        kind="listwise",
        relevant=None,
        micro_tokens=64,
        with_types=True,
        autocast=lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    )
    lists, _ = lists_of(made(2), loss="listwise", positives=1)
    inputs = batches_of(lists, tiny("bert"), steps=1)[0]
    inside: list[torch.dtype] = []
    network.bert.encoder.layer[0].intermediate.dense.register_forward_hook(lambda *args: inside.append(args[2].dtype))
    scores = loss._scores(inputs, np.arange(8), 20)
    assert inside == [torch.bfloat16] and scores.dtype == torch.float32
    assert (scores.bfloat16().float() != scores).any()  # more digits than bfloat16 has
    loss(inputs)
    assert all(value.grad.dtype == torch.float32 for value in network.parameters() if value.grad is not None)


# ---------------------------------------------------------------- models


@pytest.mark.parametrize("family", [*makers.FAMILIES, "plain", "mean", "dense", "cross1", "cross2"])
def test_every_family_trains_and_loads_here_and_there(tiny, tmp_path, family):
    from sentence_transformers import CrossEncoder as Peer

    out = tmp_path / "model"
    report = train_cross_encoder(made(8), out, model=tiny(family), settings=replace(QUICK, max_steps=2))
    assert report.steps == 2 and np.isfinite(report.loss)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    assert {path.suffix for path in out.iterdir()} <= {
        ".json",
        ".jsonl",
        ".safetensors",
        ".md",
        ".svg",
        ".txt",
        ".model",
    }
    pairs = [(one.query, text) for one in made(3) for text in one.positives + one.negatives]
    scores = CrossEncoder.load(out, settings=CPU).score(pairs)
    peer = Peer(str(out), device="cpu", local_files_only=True)
    theirs = peer.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    theirs = theirs[:, 1] - theirs[:, 0] if family == "cross2" else theirs
    assert np.ptp(scores) > 1e-4  # equal constants would agree too
    np.testing.assert_allclose(scores, theirs, atol=max(1e-6, 0.01 * np.ptp(scores)))


@pytest.mark.parametrize("labels", [1, 2])
def test_training_finds_what_answers(tiny, tmp_path, labels):
    settings = replace(QUICK, labels=labels, max_steps=30)
    report = train_cross_encoder(
        made(80), tmp_path / "m", model=tiny("mean"), settings=settings, development=made(99)[80:]
    )
    model = CrossEncoder.load(tmp_path / "m", settings=CPU)
    assert model.identity["labels"] == labels and model.identity["relevant_label"] == (1 if labels == 2 else None)
    assert report.metrics["mrr"] > 0.9
    scores = model.score([(one.query, text) for one in made(99)[80:] for text in one.positives + one.negatives])
    assert (scores.reshape(-1, 6).argmax(axis=1) == 0).mean() > 0.8


def test_a_long_modernbert_trains_at_its_full_length(tiny, tmp_path):
    start = " ".join(makers.SENTENCES)
    long = [replace(one, positives=(start * 20 + one.positives[0],), negatives=one.negatives[:1]) for one in made(2)]
    settings = replace(QUICK, batch_size=1, max_steps=2)
    report = train_cross_encoder(long, tmp_path / "m", model=tiny("long"), settings=settings)
    assert CrossEncoder.load(tmp_path / "m", settings=CPU).identity["max_length"] == makers.LONG_LIMIT
    assert report.notices["pairs_cut"] == 0 and report.tokens > 4000 and np.isfinite(report.loss)


def test_fresh_weights_come_from_the_seed_and_leave_the_callers_alone(tiny):
    torch.manual_seed(99)
    state = torch.get_rng_state()
    heads = [
        start_classifier(resolve(tiny("plain")), labels=2, seed=seed).network.classifier.weight for seed in (5, 5, 6)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])


def test_a_cross_encoder_keeps_its_head_unless_the_labels_change(tiny):
    kept = start_classifier(resolve(tiny("cross2"))).network
    assert torch.equal(kept.classifier.weight.detach(), weights(tiny("cross2"))["classifier.weight"])
    fresh = start_classifier(resolve(tiny("cross2")), labels=1).network
    assert fresh.classifier.weight.shape[0] == 1 and fresh.config.id2label == {0: "relevant"}


def test_missing_weights_are_no_fresh_start(tiny, tmp_path):
    import shutil

    from safetensors.torch import save_file

    shutil.copytree(tiny("plain"), tmp_path / "broken")
    rest = {name: value for name, value in weights(tiny("plain")).items() if not name.startswith("layers.1.")}
    save_file(rest, tmp_path / "broken" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"no weights for .*layers\.1\."):
        start_classifier(resolve(tmp_path / "broken"))


def test_limit_and_prompt_are_served_as_trained(tiny, tmp_path):
    from sentence_transformers import CrossEncoder as Peer

    settings = replace(QUICK, max_length=48, prompt="find: ")
    train_cross_encoder(made(8), tmp_path / "m", model=tiny("cross1"), settings=settings)
    model = CrossEncoder.load(tmp_path / "m", settings=CPU)
    assert (model.identity["max_length"], model.identity["prompt"]) == (48, "find: ")
    peer = Peer(str(tmp_path / "m"), device="cpu", local_files_only=True)
    theirs = peer.predict([("ferry", "copper")], activation_fn=torch.nn.Identity(), show_progress_bar=False)
    np.testing.assert_allclose(model.score([("ferry", "copper")]), theirs, atol=1e-5)
    again = start_classifier(resolve(tmp_path / "m"))
    assert (again.max_length, again.prompt) == (48, "find: ")


def test_half_precision_weights(tiny, tmp_path):
    for half in (False, True):
        train_cross_encoder(made(8), tmp_path / f"{half}", model=tiny("mean"), settings=replace(QUICK, half=half))
    whole, halves = weights(tmp_path / "False"), weights(tmp_path / "True")
    assert {value.dtype for value in whole.values()} == {torch.float32}
    assert {value.dtype for value in halves.values()} == {torch.float16}
    assert all(torch.equal(whole[name].half(), halves[name]) for name in whole)
    pairs = [("where is copper", "the copper"), ("where is copper", "the ferry")]
    scores = [CrossEncoder.load(tmp_path / f"{half}", settings=CPU).score(pairs) for half in (False, True)]
    np.testing.assert_allclose(*scores, atol=1e-2)


# ---------------------------------------------------------------- resuming


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("where", ["step", "evaluation"])
def test_an_interrupted_training_ends_with_the_same_weights(tiny, tmp_path, where, dropout):
    settings = replace(QUICK, max_steps=9, evaluate_every=3, dropout=dropout, negatives=2)
    calls = {"step": 0, "evaluation": 0}

    def stopping(kind: str, at: int) -> None:
        calls[kind] += 1
        if where == kind and calls[kind] == at:
            raise StoppedError

    def evaluate(folder: Path) -> dict[str, float]:
        stopping("evaluation", 2)
        return {"made-up": float(calls["evaluation"])}

    def train(out: Path) -> Any:
        return train_cross_encoder(
            made(20),
            out,
            model=tiny("bert"),
            settings=settings,
            evaluate=evaluate,
            progress=lambda _: stopping("step", 5),
        )

    with pytest.raises(StoppedError):
        train(tmp_path / "interrupted")
    assert not (tmp_path / "interrupted").exists()
    resumed = train(tmp_path / "interrupted")
    assert resumed.resumed_from in (3, 6) and resumed.steps == 9
    calls["step"] = calls["evaluation"] = 100
    train(tmp_path / "undisturbed")
    one, other = weights(tmp_path / "interrupted"), weights(tmp_path / "undisturbed")
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    curves = [
        [json.loads(line).get("loss") for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("interrupted", "undisturbed")
    ]
    assert curves[0] == curves[1] and len([loss for loss in curves[0] if loss]) == 9


def test_memory_that_runs_out_changes_nothing_but_the_micro_batch(tiny, tmp_path, monkeypatch, caplog):
    settings = replace(QUICK, loss="pointwise")  # no weight without a gradient, whose noise Adam would magnify
    results = {}
    for limit in (10**9, 200):
        plain = ListLoss._scores

        def scores(self: Any, inputs: Any, rows: Any, longest: int, limit: int = limit, plain: Any = plain) -> Any:
            if len(rows) * int(longest) > limit:
                raise torch.OutOfMemoryError("out of memory")
            return plain(self, inputs, rows, longest)

        with monkeypatch.context() as patched:
            patched.setattr(ListLoss, "_scores", scores)
            train_cross_encoder(made(8), tmp_path / f"{limit}", model=tiny("mean"), settings=settings)
        results[limit] = weights(tmp_path / f"{limit}")
    assert "out of memory" in caplog.text
    for name, value in results[200].items():
        torch.testing.assert_close(value, results[10**9][name], rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- distillation, calibration


@pytest.mark.parametrize("loss", ["margin-mse", "kl"])
def test_distillation_lowers_the_error_against_the_teacher_on_held_out_pairs(tiny, tmp_path, loss):
    train_cross_encoder(made(80), tmp_path / "teacher", model=tiny("mean"), settings=replace(QUICK, max_steps=30))
    teacher = CrossEncoder.load(tmp_path / "teacher", settings=CPU)

    def taught(examples: list[Example]) -> list[Example]:
        found = []
        for one in examples:
            good, *bad = teacher.score([(one.query, text) for text in one.positives + one.negatives]).tolist()
            found.append(replace(one, positive_scores=(good,), negative_scores=tuple(bad)))
        return found

    def error(folder: Path) -> float:
        """Mean squared error of the margins."""
        model = CrossEncoder.load(folder, settings=CPU)
        errors = []
        for one in taught(made(120)[80:]):
            scores = model.score([(one.query, text) for text in one.positives + one.negatives])
            theirs = np.array([*one.positive_scores, *one.negative_scores])
            errors.append((scores[0] - scores[1:]) - (theirs[0] - theirs[1:]))
        return float(np.mean(np.square(errors)))

    start = start_classifier(resolve(tiny("other")))
    save_classifier(start, tmp_path / "before")
    settings = replace(QUICK, loss=loss, max_steps=40)
    train_cross_encoder(taught(made(80)), tmp_path / "student", model=tiny("other"), settings=settings)
    assert error(tmp_path / "student") < 0.3 * error(tmp_path / "before")


def test_the_calibration_is_measured_on_queries_it_did_not_see(tiny, tmp_path):
    noisy = []
    for number, one in enumerate(made(60)):
        noisy.append(replace(one, query=f"{one.query} {number}"))
    settings = replace(QUICK, max_steps=20, seed=3)
    report = train_cross_encoder(made(80), tmp_path / "m", model=tiny("mean"), settings=settings, development=noisy)
    fitted = Calibration.load(tmp_path / "m")
    assert fitted.notes["ece"] == report.metrics["ece"] < report.metrics["ece_before"] == fitted.notes["ece_before"]
    assert fitted.notes["pairs_fitted"] == fitted.notes["pairs_measured"] == 30 * 6 and fitted.notes["bins"] == 15
    # the same number from the served model: the halves are a permutation's even and odd places
    model = CrossEncoder.load(tmp_path / "m", settings=CPU)
    names = sorted({one.query for one in noisy})
    side = dict(zip(names, np.random.default_rng(3).permutation(60) % 2, strict=True))
    unseen = [one for one in noisy if side[one.query]]
    chances = model.probability(
        model.score([(one.query, text) for one in unseen for text in one.positives + one.negatives])
    )
    relevant = np.tile([True] + [False] * 5, 30)
    assert expected_calibration_error(chances, relevant) == pytest.approx(report.metrics["ece"])
    assert f"{report.metrics['ece']:.4f}" in (tmp_path / "m" / "README.md").read_text()


@pytest.mark.parametrize("kind", ["temperature", "none"])
def test_other_calibrations(tiny, tmp_path, kind):
    settings = replace(QUICK, calibration=kind)
    report = train_cross_encoder(made(8), tmp_path / "m", model=tiny("mean"), settings=settings, development=made(10))
    fitted = Calibration.load(tmp_path / "m")
    assert (tmp_path / "m" / "calibration.json").exists() == (kind == "temperature") == ("ece" in report.metrics)
    assert fitted.bias == 0 and (kind == "none") == (fitted == Calibration())
    assert ("Calibration\n\nNone" in (tmp_path / "m" / "README.md").read_text()) == (kind == "none")


def test_development_examples_that_cannot_calibrate(tiny, tmp_path):
    steps: list[float] = []
    bare = [replace(one, negatives=()) for one in made(4)]
    for some, said in ((bare, "2 texts are relevant and 0 are not"), (made(1), "other half has 0")):
        with pytest.raises(DataError, match=rf"cannot calibrate.*{said}.*set calibration to none"):
            train_cross_encoder(
                made(8), tmp_path / "m", model=tiny("mean"), settings=QUICK, development=some, progress=steps.append
            )
    assert not steps and not list(tmp_path.iterdir())  # told before hours of training, not after


# ---------------------------------------------------------------- settings, notices


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loss": "hinge"}, "unknown loss 'hinge'; expected one of pointwise, pairwise"),
        ({"calibration": "isotonic"}, "unknown calibration 'isotonic'"),
        ({"labels": 3}, "labels is 3; expected 1 or 2"),
        ({"windows": 0}, "windows is 0"),
        ({"negatives": 0}, "negatives is 0"),
    ],
)
def test_settings_that_do_not_go(changes, said):
    with pytest.raises(ConfigError, match=said):
        replace(QUICK, **changes)


def test_lengths_beyond_the_model_are_refused(tiny, tmp_path):
    with pytest.raises(ConfigError, match="max_length 500: model mean reads at most 128 tokens"):
        train_cross_encoder(made(8), tmp_path / "m", model=tiny("mean"), settings=replace(QUICK, max_length=500))


def test_what_is_cut_is_said(tiny, tmp_path, caplog):
    long = [replace(one, positives=("so " * 300,)) for one in made(4)] + [Example(query="q", positives=("a",))]
    with caplog.at_level(logging.WARNING):
        report = train_cross_encoder(long, tmp_path / "m", model=tiny("mean"), settings=replace(QUICK, max_steps=1))
    assert report.notices["pairs_cut"] == 4 and report.notices["lists_left_out"] == 1
    assert "pairs cut: 4" in caplog.text and "lists left out: 1" in caplog.text

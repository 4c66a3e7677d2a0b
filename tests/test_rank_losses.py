"""List-wise losses: values worked by hand, and sentence-transformers' own losses as oracles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from retrieval.training.rank_losses import LOSSES, Judged, kl, lambda_loss, listwise, margin_mse, pairwise, pointwise


def judged(relevance: list[list[float]], teacher: list[list[float]] | None = None) -> Judged:
    grades = torch.tensor(relevance, dtype=torch.float32)
    taught = torch.zeros_like(grades) if teacher is None else torch.tensor(teacher, dtype=torch.float32)
    return Judged(relevance=grades, teacher=taught, present=torch.ones_like(grades, dtype=torch.bool))


ONE = judged([[1, 0, 0]])
SCORES = torch.tensor([[math.log(2), 0.0, math.log(3)]])


# ---------------------------------------------------------------- by hand


def test_pointwise_by_hand():
    # sigmoids 2/3, 1/2, 3/4: -(ln 2/3 + ln 1/2 + ln 1/4) / 3 = ln 12 / 3
    assert pointwise(SCORES, ONE).tolist() == pytest.approx([math.log(12) / 3])


def test_pairwise_by_hand():
    # log(1 + 1/2) and log(1 + 3/2): ln(3/2 * 5/2) / 2
    assert pairwise(SCORES, ONE).tolist() == pytest.approx([math.log(15 / 4) / 2])


def test_listwise_by_hand():
    # e^s = 2, 1, 3: -ln(2 / 6)
    assert listwise(SCORES, ONE).tolist() == pytest.approx([math.log(3)])
    # Two relevant: each against the irrelevant one alone: -(ln 2/5 + ln 1/4) / 2
    assert listwise(SCORES, judged([[1, 1, 0]])).tolist() == pytest.approx([math.log(10) / 2])


def test_lambda_by_hand():
    # Ranks 2, 3, 1; gains 1, 0, 0 (maxDCG 1). Discounts D(r) = log2(1 + r): 1, log2 3, 2.
    near = 1 / math.log2(2) - 1 / math.log2(3)  # both others are one rank away
    first = (10 * near + abs(1 / math.log2(3) - 1 / 2)) * math.log2(3 / 2)  # against the one at rank 3
    second = (10 * near + abs(1 / math.log2(3) - 1)) * math.log2(5 / 2)  # against the one at rank 1
    assert lambda_loss(SCORES, ONE).tolist() == pytest.approx([(first + second) / 2])


def test_margin_mse_by_hand():
    scores, known = torch.tensor([[3.0, 1.0, 0.0]]), judged([[1, 0, 0]], [[9.0, 5.0, 7.0]])
    # margins 2 and 3 against 4 and 2
    assert margin_mse(scores, known).tolist() == pytest.approx([(4 + 1) / 2])
    # a constant added to all scores changes nothing
    assert margin_mse(scores + 7, known).tolist() == pytest.approx([2.5])


def test_kl_by_hand():
    known = judged([[1, 0]], [[math.log(3), 0.0]])  # 3/4, 1/4 against 1/2, 1/2
    assert kl(torch.zeros(1, 2), known).tolist() == pytest.approx([0.75 * math.log(1.5) + 0.25 * math.log(0.5)])
    assert kl(torch.tensor([[math.log(3) + 5, 5.0]]), known).tolist() == pytest.approx([0.0], abs=1e-6)


# ---------------------------------------------------------------- what holds for all


@pytest.mark.parametrize("name", LOSSES)
def test_absent_items_change_neither_loss_nor_gradient(name):
    rng = np.random.default_rng(1)
    short = judged([[2, 1, 0, 0]], [rng.normal(size=4).tolist()])
    scores = torch.tensor(rng.normal(size=(1, 4)), dtype=torch.float32, requires_grad=True)
    loss = LOSSES[name](scores, short)
    loss.sum().backward()
    other = torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0]])
    padded = Judged(
        relevance=torch.cat([torch.nn.functional.pad(short.relevance, (0, 2)), other]),
        teacher=torch.cat([torch.nn.functional.pad(short.teacher, (0, 2)), other]),
        present=torch.tensor([[True] * 4 + [False] * 2, [True] * 6]),
    )
    wide = torch.cat([torch.nn.functional.pad(scores.detach(), (0, 2), value=9.0), other]).requires_grad_()
    both = LOSSES[name](wide, padded)
    assert both.shape == (2,)
    assert float(both[0].detach()) == pytest.approx(float(loss.detach()), rel=1e-6)
    both[0].backward()
    torch.testing.assert_close(wide.grad[:1, :4], scores.grad)
    assert torch.isfinite(wide.grad).all() and not wide.grad[0, 4:].any() and not wide.grad[1].any()


@pytest.mark.parametrize("name", ["pairwise", "listwise", "lambda", "pointwise"])
def test_a_step_along_the_gradient_lifts_the_relevant_item(name):
    scores = torch.zeros(1, 4, requires_grad=True)
    LOSSES[name](scores, judged([[0, 0, 1, 0]])).sum().backward()
    assert scores.grad.argmin() == 2 and scores.grad[0, 2] < 0


@pytest.mark.parametrize("name", LOSSES)
def test_huge_scores_stay_finite(name):
    scores = torch.tensor([[-1e4, 1e4, 0.0]], requires_grad=True)
    loss = LOSSES[name](scores, judged([[1, 0, 0]], [[1.0, 0.0, 0.5]]))
    loss.sum().backward()
    assert torch.isfinite(loss).all() and torch.isfinite(scores.grad).all()


# ---------------------------------------------------------------- oracles


class Scored(torch.nn.Module):
    """Stands in for a CrossEncoder: its scores of the pairs (q, "0"), (q, "1"), ... are given."""

    num_labels, device = 1, torch.device("cpu")

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = scores

    def preprocess(self, pairs: list[tuple[str, str]], **_: Any) -> dict[str, torch.Tensor]:
        return {"places": torch.tensor([int(text) for _, text in pairs])}

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"scores": self.scores[features["places"]]}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["pairwise", "lambda"])
def test_losses_are_those_of_sentence_transformers(name, seed):
    losses = pytest.importorskip("sentence_transformers.cross_encoder.losses")
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.normal(0, 2, 6), dtype=torch.float32)
    grades = rng.permutation([3.0, 1.0, 0, 0, 2.0, 0]).tolist()
    kind, unit = (losses.RankNetLoss, math.log(2)) if name == "pairwise" else (losses.LambdaLoss, 1.0)  # theirs: bits
    theirs = kind(Scored(scores))([["q"], [[str(place) for place in range(6)]]], [torch.tensor(grades)])
    assert float(LOSSES[name](scores[None], judged([grades]))) == pytest.approx(unit * float(theirs), rel=1e-5)

"""Losses over lists: the scores that a cross-encoder gives one query's texts, against what is known of them.

sentence-transformers has most of these, bound to models with one label and to its own reading of texts; here they
are functions of scores alone, so that a list's scores may come out of several micro-batches and of either kind of
head. Each returns a number per list; a step's loss is their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from retrieval.runtime import load_torch

_MU = 10.0  # weight of the second part of NDCG-Loss2++, as its authors chose
_EPSILON = 1e-10


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What is known of the texts of some lists, as tensors of one shape (lists, items).

    Attributes:
        relevance: float32: 0 for a text that does not answer, above for one that does: 1, or its grade.
        teacher: float32: a teacher's scores; 0 where there are none.
        present: bool: False where a list has fewer items.
    """

    relevance: Any
    teacher: Any
    present: Any


def pointwise(scores: Any, judged: Judged) -> Any:
    """Binary cross-entropy of each score's sigmoid, monoBERT's loss (Nogueira and Cho 2019).

    Args:
        scores: (lists, items) float32.
        judged: What is known.

    Returns:
        (lists,) float32, the mean over a list's items. Of a head with two labels, whose scores are log-odds,
        this is the cross-entropy of its softmax.
    """
    relevant = (judged.relevance > 0).float()
    losses = load_torch().nn.functional.binary_cross_entropy_with_logits(scores, relevant, reduction="none")
    return _mean(losses, judged.present)


def pairwise(scores: Any, judged: Judged) -> Any:
    """The mean of log(1 + exp(s_j - s_i)) over pairs where i is more relevant than j: RankNet (Burges et al. 2005)."""
    losses = load_torch().nn.functional.softplus(-_differences(scores))  # (lists, items, items)
    return _mean(losses, _better(judged))


def listwise(scores: Any, judged: Judged) -> Any:
    """Cross-entropy of the softmax over one relevant item and all irrelevant ones, averaged over the relevant.

    With one relevant item this is ListNet's top-one loss (Cao et al. 2007) and the loss of contrastive training.
    """
    torch = load_torch()
    relevant = judged.present & (judged.relevance > 0)
    others = scores.masked_fill(relevant | ~judged.present, -torch.inf)  # (lists, items)
    rest = torch.logsumexp(others, dim=1, keepdim=True)  # (lists, 1); -inf without irrelevant items
    return _mean(torch.logaddexp(scores, rest) - scores, relevant)


def lambda_loss(scores: Any, judged: Judged) -> Any:
    """NDCG-Loss2++ of the LambdaLoss framework (Wang et al. 2018, equations 13 to 17).

    RankNet's loss, in bits, with each pair weighted by what exchanging the two would change of nDCG: with gains
    G = (2^relevance - 1) / maxDCG and discounts D(r) = log2(1 + r) of the ranks by score,
    |G_i - G_j| * (mu * |1/D(|r_i - r_j|) - 1/D(|r_i - r_j| + 1)| + |1/D(r_i) - 1/D(r_j)|).
    """
    torch = load_torch()
    masked = scores.detach().masked_fill(~judged.present, -torch.inf)
    order = masked.argsort(dim=1, descending=True, stable=True)
    ranks = order.argsort(dim=1) + 1  # (lists, items) from 1
    gains = torch.where(judged.present, torch.exp2(judged.relevance) - 1, 0.0)
    places = torch.arange(1, scores.shape[1] + 1, device=scores.device)
    best = (gains.sort(dim=1, descending=True).values / torch.log2(1.0 + places)).sum(dim=1, keepdim=True)
    gains = gains / best.clamp(min=_EPSILON)
    apart = (ranks[:, :, None] - ranks[:, None, :]).abs().clamp(min=1)  # an item and itself are no pair
    near = (1 / torch.log2(1.0 + apart) - 1 / torch.log2(2.0 + apart)).abs()
    discount = 1 / torch.log2(1.0 + ranks)
    weights = _differences(gains).abs() * (_MU * near + _differences(discount).abs())
    losses = torch.nn.functional.softplus(-_differences(scores)) / torch.log(torch.tensor(2.0))
    return _mean(weights * losses, _better(judged))


def margin_mse(scores: Any, judged: Judged) -> Any:
    """Squared error of the margins of more over less relevant items to the teacher's (Hofstätter et al. 2020)."""
    losses = (_differences(scores) - _differences(judged.teacher)).square()
    return _mean(losses, _better(judged))


def kl(scores: Any, judged: Judged) -> Any:
    """Kullback-Leibler divergence D(teacher || scores) of the softmaxes over a list (Hinton et al. 2015)."""
    torch = load_torch()
    lowest = torch.finfo(scores.dtype).min
    ours = torch.log_softmax(scores.masked_fill(~judged.present, lowest), dim=1)
    theirs = torch.log_softmax(judged.teacher.masked_fill(~judged.present, lowest), dim=1)
    return torch.where(judged.present, theirs.exp() * (theirs - ours), 0.0).sum(dim=1)


LOSSES: Mapping[str, Callable[[Any, Judged], Any]] = {
    "pointwise": pointwise,
    "pairwise": pairwise,
    "listwise": listwise,
    "lambda": lambda_loss,
    "margin-mse": margin_mse,
    "kl": kl,
}
"""Losses by the names that settings use."""

DISTILLING = ("margin-mse", "kl")
"""Those that learn from a teacher's scores."""


def _differences(values: Any) -> Any:
    return values[:, :, None] - values[:, None, :]  # (lists, items) -> (lists, i, j): value i minus value j


def _better(judged: Judged) -> Any:
    """Pairs (lists, i, j) of present items where i is more relevant than j."""
    both = judged.present[:, :, None] & judged.present[:, None, :]
    return both & (_differences(judged.relevance) > 0)


def _mean(values: Any, wanted: Any) -> Any:
    """The mean of the wanted values of each list; 0 where there are none."""
    values, wanted = values.flatten(1), wanted.flatten(1)
    return load_torch().where(wanted, values, 0.0).sum(dim=1) / wanted.sum(dim=1).clamp(min=1)

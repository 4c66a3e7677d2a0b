"""The loss of bi-encoders: queries against all texts of a batch, of any number, with gradients cached.

What sentence-transformers' losses lack: rows with different numbers of candidates, texts that several rows share
(embedded once), and candidates that are left out because they answer the query too. Its gradient cache (Gao, Zhang,
Han, Callan 2021) does the rest. This module imports torch; import it in a function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any

import torch
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from torch import nn
from torch.nn.functional import log_softmax, normalize

POSITIVE, NEGATIVE, LEFT_OUT = 1, 0, -1
"""What a text is to a query, as `CandidateLoss` takes it."""

_ROWS = 1024  # queries that are compared with all texts at once

Score = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""Takes scores, relations and a teacher's scores (NaN where unknown), all (rows, texts); returns the summed loss."""


def infonce(scores: torch.Tensor, relations: torch.Tensor, teacher: torch.Tensor | None) -> torch.Tensor:
    """Softmax over the positive and all negatives (van den Oord, Li, Vinyals 2018, equation 4), summed over rows."""
    allowed = scores.masked_fill(relations == LEFT_OUT, -torch.inf)
    return (allowed.logsumexp(dim=1) - scores[relations == POSITIVE]).sum()


def kl_divergence(scores: torch.Tensor, relations: torch.Tensor, teacher: torch.Tensor | None) -> torch.Tensor:
    """Kullback-Leibler divergence of teacher and student over each row's rated texts, summed over rows."""
    if teacher is None:
        raise ValueError("this loss needs a teacher's scores")
    unknown = teacher.isnan()
    wanted = log_softmax(teacher.masked_fill(unknown, -torch.inf), dim=1).masked_fill(unknown, 0)
    found = log_softmax(scores.masked_fill(unknown, -torch.inf), dim=1).masked_fill(unknown, 0)
    return (wanted.exp().masked_fill(unknown, 0) * (wanted - found)).sum()


def margin_mse(scores: torch.Tensor, relations: torch.Tensor, teacher: torch.Tensor | None) -> torch.Tensor:
    """Squared difference of teacher's and student's margins (Hofstätter et al. 2020, equation 2), summed over pairs.

    A margin is the score of the row's positive less that of another rated text.
    """
    if teacher is None:
        raise ValueError("this loss needs a teacher's scores")
    positive = relations == POSITIVE
    error = (scores[positive] - teacher[positive])[:, None] - (scores - teacher)
    return error[rated_pairs(relations, teacher)].square().sum()


def rated_pairs(relations: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Where a rated text stands that is not the row's positive, (rows, texts) bool."""
    return ~teacher.isnan() & (relations != POSITIVE)


LOSSES: dict[str, Score] = {"infonce": infonce, "margin-mse": margin_mse, "kl": kl_divergence}


class CandidateLoss(CachedLossMixin, nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A loss over queries and all texts of a batch.

    The labels are (1, queries, texts) relations, `POSITIVE` exactly once in a row, or (2, queries, texts): relations
    and a teacher's scores, NaN where there is none.

    Attributes:
        micro_tokens: Tokens embedded at once, padding not counted.
        direct_tokens: Batches of at most so many tokens keep their activations instead of computing them twice.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        kind: str,
        metric: str,
        temperature: float,
        micro_tokens: int,
        direct_tokens: int,
        autocast: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        """Make the loss.

        Args:
            model: A SentenceTransformer.
            kind: A key of `LOSSES`.
            metric: cosine or dot.
            temperature: What similarities are divided by.
            micro_tokens: See the attributes.
            direct_tokens: See the attributes.
            autocast: Makes the context of one micro-batch.
        """
        super().__init__()
        self.model = model
        self.score, self._per_pair = LOSSES[kind], kind == "margin-mse"
        self.metric, self.temperature, self.autocast = metric, temperature, autocast
        self.mini_batch_size = _ROWS  # not used beside a budget of tokens
        self.micro_tokens, self.direct_tokens = micro_tokens, direct_tokens

    @property
    def mini_batch_num_tokens(self) -> int:
        """The cache's name for `micro_tokens`."""
        return self.micro_tokens

    def embed_minibatch(self, *args: Any, **more: Any) -> Any:
        """Embed one micro-batch, as the cache does, in a precision context of its own."""
        with self.autocast():
            return super().embed_minibatch(*args, **more)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: torch.Tensor) -> torch.Tensor:
        """The loss of a batch; the backward pass runs when its gradient is asked for.

        Args:
            sentence_features: Those of the queries and those of the texts.
            labels: See the class.
        """
        features = list(sentence_features)
        tokens = sum(int(column["attention_mask"].sum()) for column in features)
        if tokens > self.direct_tokens or not torch.is_grad_enabled():
            return self.forward_cached(features, labels)
        embedded = [
            [part for part, _ in self.embed_minibatch_iter(column, with_grad=True, copy_random_state=False)]
            for column in features
        ]
        leaves = [[part.detach().requires_grad_() for part in column] for column in embedded]
        loss = self.calculate_loss(leaves, labels, with_backward=True).detach().requires_grad_()
        loss.register_hook(partial(_backward, embedded=[*chain(*embedded)], leaves=[*chain(*leaves)]))
        return loss

    def calculate_loss(
        self, reps: list[list[torch.Tensor]], labels: torch.Tensor | None = None, *, with_backward: bool = False
    ) -> torch.Tensor:
        """The loss from the vectors of queries and texts, given in micro-batches.

        Args:
            reps: Vectors of the queries, and of the texts, each (some, dim).
            labels: See the class.
            with_backward: Compute the vectors' gradients too.
        """
        if labels is None:
            raise ValueError("this loss needs labels")
        queries, texts = torch.cat(reps[0]).float(), torch.cat(reps[1]).float()
        relations, teacher = labels[0], labels[1] if len(labels) > 1 else None
        terms = len(queries)
        if self._per_pair and teacher is not None:
            terms = max(1, int(rated_pairs(relations, teacher).sum()))
        total = queries.new_zeros(())
        for start in range(0, len(queries), _ROWS):
            rows = slice(start, start + _ROWS)
            left, right = queries[rows], texts
            if self.metric == "cosine":
                left, right = normalize(left, dim=-1), normalize(right, dim=-1)
            scores = left @ right.T / self.temperature  # (rows, dim) @ (dim, texts) -> (rows, texts)
            part = self.score(scores, relations[rows], None if teacher is None else teacher[rows]) / terms
            if with_backward:
                part.backward()
                part = part.detach()
            total = total + part
        return total


def _backward(gradient: torch.Tensor, *, embedded: list[torch.Tensor], leaves: list[torch.Tensor]) -> None:
    """Carry the gradients of the vectors on into the model."""
    kept = [(part, leaf.grad * gradient) for part, leaf in zip(embedded, leaves, strict=True) if leaf.grad is not None]
    torch.autograd.backward([part for part, _ in kept], [grad.to(part.dtype) for part, grad in kept])

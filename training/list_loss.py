"""The gradient of a list-wise loss out of micro-batches of pairs.

Pairs of a few lists are sorted by length and scored in micro-batches, so that little is padded; the loss sees whole
lists. Where a list is too long for its activations to be kept, its scores come first, without a graph, and each
micro-batch is computed again with the gradient that its scores have (GradCache: Gao, Zhang, Han and Callan 2021).
This module imports torch; import it in a function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from retrieval.batching import token_batches
from retrieval.training.rank_losses import LOSSES, Judged

_KEPT = 4  # micro-batches whose activations are kept at once

Context = Callable[[], contextlib.AbstractContextManager[Any]]
"""Makes the context that a forward pass runs in."""


class ListLoss(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A loss over lists, as `ListBatches` makes them; its call leaves the gradients in the network.

    Attributes:
        micro_tokens: Tokens computed at once, padding included.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        kind: str,
        relevant: int | None,
        micro_tokens: int,
        with_types: bool,
        autocast: Context = contextlib.nullcontext,
    ) -> None:
        """Make the loss, and let the network compute in the context from here on, its head in float32.

        Args:
            network: A sequence classifier of transformers with one or two labels.
            kind: A key of `LOSSES`.
            relevant: Of two labels the one that means relevant.
            micro_tokens: See the attributes.
            with_types: Whether the network takes token types.
            autocast: Makes the context of one micro-batch.
        """
        super().__init__()
        self.micro_tokens = micro_tokens
        self._network, self._loss = network, LOSSES[kind]
        self._relevant, self._with_types = relevant, with_types
        _surround(network, autocast)

    def forward(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Add a step's gradients to the network's.

        Args:
            inputs: The tensors of a step.

        Returns:
            The mean loss of the lists, a scalar whose own backward pass does nothing more.
        """
        lengths = inputs["attention_mask"].sum(dim=1).cpu().numpy()  # (pieces,)
        windows, slots = inputs["windows"].cpu().numpy(), inputs["slots"].cpu().numpy()
        total = torch.zeros((), device=inputs["relevance"].device)
        for rows in self._groups(lengths, windows, slots):
            pairs = slots[rows][slots[rows] >= 0]  # of these lists, in order
            pieces = windows[pairs][windows[pairs] >= 0]  # of these pairs, in order
            judged = Judged(
                relevance=inputs["relevance"][rows],
                teacher=inputs["teacher"][rows],
                present=inputs["slots"][rows] >= 0,
            )
            best = _filled(windows[pairs] >= 0)  # (pairs, w) into the group's pieces
            places = _filled(slots[rows] >= 0)  # (lists, items) into the group's pairs

            def loss(values: Any, best: Any = best, places: Any = places, judged: Judged = judged) -> Any:
                scores = _taken(values, best, -torch.inf).amax(dim=1)  # (pairs,)
                return self._loss(_taken(scores, places, 0.0), judged).sum() / len(slots)

            total += self._backward(inputs, pieces, lengths[pieces], loss)
        return total.requires_grad_()

    def _groups(self, lengths: np.ndarray, windows: np.ndarray, slots: np.ndarray) -> list[np.ndarray]:
        """Lists to compute together, (lists,) rows of `slots` each: of similar length, and no more than fit."""
        by_pair = np.where(windows >= 0, lengths[windows], 0)  # (pairs, w)
        by_list = np.where((slots >= 0)[..., None], by_pair[slots], 0)  # (lists, items, w)
        tokens = by_list.sum(axis=(1, 2))
        order = np.argsort(-by_list.max(axis=(1, 2)), kind="stable")
        groups: list[list[int]] = []
        used = 0
        for row in order.tolist():
            used += int(tokens[row])
            if not groups or used > _KEPT * self.micro_tokens:
                groups.append([])
                used = int(tokens[row])
            groups[-1].append(row)
        return [np.array(group) for group in groups]

    def _backward(self, inputs: Mapping[str, torch.Tensor], pieces: np.ndarray, lengths: np.ndarray, loss: Any) -> Any:
        """Leave the gradients of a loss over some pieces' scores in the network; return the loss.

        Args:
            inputs: The tensors of a step.
            pieces: (n,) rows of the inputs.
            lengths: (n,) tokens of these.
            loss: Takes their scores (n,) to a scalar.
        """
        parts = token_batches(lengths, self.micro_tokens, same_length=False)
        order = torch.from_numpy(np.argsort(np.concatenate(parts))).to(inputs["relevance"].device)
        calls = [partial(self._scores, inputs, pieces[part], lengths[part].max()) for part in parts]
        if int(lengths.sum()) <= _KEPT * self.micro_tokens:
            value = loss(torch.cat([call() for call in calls])[order])  # from the parts' order to the pieces'
            value.backward()
            return value.detach()
        draws = torch.randint(2**31, (len(parts),)).tolist()  # so that both passes drop the same values
        with torch.no_grad():
            scores = torch.cat([_seeded(call, draw) for call, draw in zip(calls, draws, strict=True)])[order]
        value = loss(scores.requires_grad_())
        value.backward()
        for call, draw, part in zip(calls, draws, parts, strict=True):
            _seeded(call, draw).backward(scores.grad[torch.from_numpy(part).to(scores.device)])
        return value.detach()

    def _scores(self, inputs: Mapping[str, torch.Tensor], rows: np.ndarray, longest: int) -> Any:
        """The network's scores of some pieces: (n,) float32."""
        names = ["input_ids", "attention_mask"] + ["token_type_ids"] * self._with_types
        index = torch.from_numpy(rows).to(inputs["input_ids"].device)
        logits = self._network(**{name: inputs[name][index, : int(longest)] for name in names}).logits.float()
        if self._relevant is None:
            return logits[:, 0]
        return logits[:, self._relevant] - logits[:, 1 - self._relevant]


def _surround(network: Any, autocast: Context) -> None:
    """Let the layers below the head compute in a context, each call in its own, and the head in float32.

    In bfloat16 a logit has three digits, too few to tell good passages apart, and margins are differences.
    """
    base = network.base_model
    plain = base.forward

    def forward(*args: Any, **inputs: Any) -> Any:
        with autocast():
            return plain(*args, **inputs)

    base.forward = forward
    for child in network.children():
        if child is not base:
            child.register_forward_pre_hook(lambda _, args: tuple(value.float() for value in args))


def _seeded(call: Callable[[], torch.Tensor], seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return call()


def _filled(present: np.ndarray) -> np.ndarray:
    """Number the places that are taken, row by row, from 0; -1 elsewhere."""
    numbers = np.full(present.shape, -1, dtype=np.int64)
    numbers[present] = np.arange(int(present.sum()))
    return numbers


def _taken(values: Any, places: np.ndarray, empty: float) -> Any:
    """Values (n,) at places, of any shape; `empty` where a place is -1."""
    index = torch.from_numpy(places).to(values.device)
    return values[index.clamp(min=0)].masked_fill(index < 0, empty)

"""Cutting texts of known lengths into batches by a token budget."""

from collections.abc import Sequence

import numpy as np


def token_batches(lengths: Sequence[int] | np.ndarray, budget: int, *, same_length: bool) -> list[np.ndarray]:
    """Cut texts into batches of at most ``budget`` tokens, padding counted, longest texts first.

    Args:
        lengths: Tokens of each text, special tokens included.
        budget: Tokens a batch may hold; a longer text is a batch of its own.
        same_length: Whether a batch may hold texts of one length only, so that none is padded.

    Returns:
        Arrays of positions in ``lengths``, (batch,) int64; each position occurs once. Texts of equal length
        keep their order.

    Raises:
        ValueError: The budget is not positive.
    """
    if budget < 1:
        raise ValueError(f"a batch needs a budget of at least 1 token, got {budget}")
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    batches: list[np.ndarray] = []
    start = 0
    while start < len(order):
        longest = int(sizes[order[start]])
        stop = min(len(order), start + max(1, budget // max(1, longest)))
        if same_length:  # descending order: the first shorter text ends the batch
            run = sizes[order[start:stop]]
            stop = start + int(np.count_nonzero(run == longest))
        batches.append(order[start:stop])
        start = stop
    return batches


def padded_lengths(lengths: np.ndarray, most: int | None) -> np.ndarray:
    """Lengths up to which texts are padded where compiling for every single one would cost more than padding does.

    At most eight lie between a power of two and the next, so an eighth is added at most, and never more than 31 tokens.

    Args:
        lengths: Tokens of each text, (n,) int64, at least 1.
        most: The longest input that there may be, or None.

    Returns:
        (n,) int64; that of a text depends on its own length only.
    """
    octave = np.frexp(lengths.astype(np.float64))[1] - 1
    step = 1 << np.clip(octave - 3, 0, 5).astype(np.int64)
    padded = -(-lengths // step) * step
    capped = padded if most is None else np.maximum(lengths, np.minimum(padded, most))
    return np.asarray(capped)


def filled(rows: np.ndarray, length: int, minimum: int) -> np.ndarray:
    """Repeat the rows of a batch until it holds at least ``minimum`` tokens.

    Matrix products of very few rows take other kernels than large ones and round differently; a batch
    that is filled up gives each text the bits that it has in any other batch.

    Args:
        rows: Positions of texts of one length, (batch,).
        length: Tokens of each text.
        minimum: Tokens wanted.

    Returns:
        The rows followed by repetitions, (m,) with ``m * length >= minimum``; drop the surplus results.
    """
    wanted = -(-minimum // max(1, length))
    return np.resize(rows, wanted) if len(rows) < wanted else rows

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.batching import filled, padded_lengths, token_batches

LENGTHS = st.lists(st.integers(0, 50), max_size=80)


def test_batches_by_hand() -> None:
    padded = token_batches([3, 10, 4, 10, 2], 20, same_length=False)
    assert [batch.tolist() for batch in padded] == [[1, 3], [2, 0, 4]]  # 2 * 10, then 3 * 4 with padding
    exact = token_batches([3, 10, 4, 10, 3], 9, same_length=True)
    assert [batch.tolist() for batch in exact] == [[1], [3], [2], [0, 4]]


@given(lengths=LENGTHS, budget=st.integers(1, 200), same_length=st.booleans())
def test_batches_hold_every_text_once_within_budget(lengths: list[int], budget: int, same_length: bool) -> None:
    batches = token_batches(lengths, budget, same_length=same_length)
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        sizes = [lengths[row] for row in batch]
        assert len(batch) == 1 or len(batch) * max(sizes) <= budget
        assert not same_length or len(set(sizes)) == 1


def test_no_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 token"):
        token_batches([1], 0, same_length=True)


@given(count=st.integers(1, 40), length=st.integers(0, 40), minimum=st.integers(1, 64))
def test_filling_keeps_the_rows_in_front(count: int, length: int, minimum: int) -> None:
    rows = np.arange(count)
    more = filled(rows, length, minimum)
    assert more[:count].tolist() == rows.tolist()
    assert len(more) * max(1, length) >= minimum
    assert set(more.tolist()) == set(rows.tolist())


@given(lengths=st.lists(st.integers(1, 20_000), min_size=1), most=st.none() | st.integers(1, 20_000))
def test_padded_lengths_are_few_and_little_longer(lengths: list[int], most: int | None) -> None:
    exact = np.array([min(length, most or length) for length in lengths])
    padded = padded_lengths(exact, most)
    assert ((padded >= exact) & (padded <= exact * 9 / 8) & (padded < exact + 32)).all()
    assert most is None or padded.max() <= most
    assert padded.tolist() == [int(padded_lengths(exact[row : row + 1], most)[0]) for row in range(len(exact))]


def test_padded_lengths_of_an_octave_are_eight() -> None:
    assert len(set(padded_lengths(np.arange(129, 257), None).tolist())) == 8
    assert padded_lengths(np.array([0, 1, 15, 17, 33, 129, 257, 513]), 512).tolist() == [
        0,
        1,
        15,
        18,
        36,
        144,
        288,
        513,
    ]

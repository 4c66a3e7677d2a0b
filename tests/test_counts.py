"""Numbers with the words for what they count."""

import pytest

from retrieval.counts import many


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("document",), "0 documents"),
        (1, ("document",), "1 document"),
        (1234567, ("judged document",), "1,234,567 judged documents"),
        (1, ("empty query",), "1 empty query"),
        (2, ("empty query",), "2 empty queries"),
        (1, ("query has", "queries have"), "1 query has"),
        (3, ("query has", "queries have"), "3 queries have"),
    ],
)
def test_one_and_several(count: int, words: tuple[str, ...], said: str) -> None:
    assert many(count, *words) == said

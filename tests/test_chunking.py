import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.chunking import is_blank, windows


def word_tokens(text: str) -> np.ndarray:
    """Offsets of pieces of up to three letters, as a subword tokenizer would cut words."""
    spans = [
        (start, min(start + 3, word.end()))
        for word in re.finditer(r"\S+", text)
        for start in range(word.start(), word.end(), 3)
    ]
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


def test_windows_by_hand() -> None:
    # 12 words of one token each; windows of 5 share at least 1; the last one reaches back to hold 5 as well
    text = "a b c d e f g h i j k l"
    found = windows(text, word_tokens(text), limit=5, overlap=1)
    assert [text[one.start_char : one.end_char] for one in found] == ["a b c d e", "e f g h i", "h i j k l"]
    assert [(one.start_token, one.end_token) for one in found] == [(0, 5), (4, 9), (7, 12)]


def test_windows_keep_words_whole() -> None:
    text = "alphabet letters number nothing whatever remains standing"  # words of 2 and 3 tokens
    found = windows(text, word_tokens(text), limit=8, overlap=2)
    words = set(text.split())
    assert len(found) > 1
    for one in found:
        assert set(text[one.start_char : one.end_char].split()) <= words


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("a b c. d e\n\nf g\nh. i j k l m n o p", "e"),  # the blank line, though a line and a sentence end later
        ("a b c d. e f\ng h. i j k l m n o p", "f"),  # the line, though a sentence ends later
        ("a b c d e f g. h i j k l m n o p", "g."),  # the sentence
        ('a b c d e (f "g!") h i j k l m n o p', '"g!")'),
        ("a b c d e f g h i j k l m n o p", "i"),  # the word
        ("a\n\nb c. d\n\n e f g h i j k l m n o p", "i"),  # no border in the first half is reason enough
    ],
)
def test_a_window_ends_at_the_best_border(text: str, end: str) -> None:
    first, *_ = windows(text, word_tokens(text), limit=9, overlap=3)
    assert text[: first.end_char].split()[-1] == end


def test_windows_of_text_without_blanks_end_at_sentences() -> None:
    text = "私は東京へ行く。雨が降る！傘はある？" * 6
    offsets = np.array([[at, at + 1] for at in range(len(text))])
    found = windows(text, offsets, limit=20, overlap=4)
    assert {text[one.end_char - 1] for one in found} <= set("。！？")


def test_one_endless_word_is_cut_at_tokens() -> None:
    text = "x" * 300
    found = windows(text, word_tokens(text), limit=16, overlap=4)
    assert max(one.end_token - one.start_token for one in found) == 16
    assert found[-1].end_char == 300
    assert all(later.start_token == earlier.end_token - 4 for earlier, later in pairwise(found[:-1]))


def test_characters_of_several_tokens_stay_whole() -> None:
    # byte-level tokenizers give each character of this script three tokens with the same offsets
    text = "東京都庁舎" * 8
    offsets = np.repeat([[at, at + 1] for at in range(len(text))], 3, axis=0)
    for one in windows(text, offsets, limit=10, overlap=2):
        assert one.start_token % 3 == 0
        assert one.end_token % 3 == 0


def test_blanks_that_belong_to_tokens_are_outside_the_window() -> None:
    text = "one two three four"
    offsets = np.array([[0, 3], [3, 7], [7, 13], [13, 18]])  # as byte-level BPE counts: the blank and its word
    found = windows(text, offsets, limit=2, overlap=0)
    assert [text[one.start_char : one.end_char] for one in found] == ["one two", "three four"]


@given(
    text=st.text(alphabet="ab \n字é", max_size=200),
    limit=st.integers(1, 40),
    overlap=st.integers(0, 30),
)
def test_windows_cover_every_token(text: str, limit: int, overlap: int) -> None:
    offsets = word_tokens(text)
    found = windows(text, offsets, limit=limit, overlap=overlap)
    covered = {token for one in found for token in range(one.start_token, one.end_token)}
    assert covered == set(range(len(offsets)))
    for one in found:
        assert 0 < one.end_token - one.start_token <= limit
        assert one.start_char == offsets[one.start_token][0]
        assert one.end_char == offsets[one.end_token - 1][1]
    for earlier, later in pairwise(found):
        assert earlier.start_token < later.start_token <= earlier.end_token < later.end_token
    if len(offsets) <= limit:
        assert len(found) == min(1, len(offsets))


@given(words=st.integers(30, 400), limit=st.integers(4, 60))
def test_the_last_window_is_no_tail(words: int, limit: int) -> None:
    text = "w " * words
    found = windows(text, word_tokens(text), limit=limit, overlap=limit // 8)
    assert found[-1].end_token - found[-1].start_token == min(limit, words)


def test_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="limit >= 1"):
        windows("a", np.array([[0, 1]]), limit=0, overlap=0)


@pytest.mark.parametrize("text", ["", " \t\n", "\u200b", "\ufeff\u200d\u00ad", "\x00\x1f"])
def test_nothing_to_search(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", "7", "+", "!", "東", "\u200b.", "🙂", "\u0301"])
def test_something_to_search(text: str) -> None:
    assert not is_blank(text)

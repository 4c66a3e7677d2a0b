"""Sentences: borders in prose of several languages, and that nothing is lost."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.sentences import sentences


def parts(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("Tides rise (twice a day.) They fall.", ["Tides rise (twice a day.)", "They fall."]),
        ("Wait... what? Yes.", ["Wait... what?", "Yes."]),
        ("A moon\npulls the sea.\nIt rises.", ["A moon\npulls the sea.", "It rises."]),
        ("Title without stop\n\nFirst sentence. Second one.", ["Title without stop", "First sentence.", "Second one."]),
        (
            "Dr. Smith et al. Fig. 3 shows it. J. R. Doe agrees.",
            ["Dr. Smith et al. Fig. 3 shows it.", "J. R. Doe agrees."],
        ),
        ("It costs 3.50 in v1.2 of os.path today. Then I. Then you.", None),
        ("In 2020. Later.", ["In 2020.", "Later."]),
        ("1. Mix. 2. Stir.", ["1. Mix.", "2. Stir."]),
        ("Needs:\n- salt\n- fresh water\n* time", ["Needs:", "- salt", "- fresh water", "* time"]),
        ("1. salt\n2) water", ["1. salt", "2) water"]),
        ("月球引起潮汐。太阳也有作用！真的吗？是的", ["月球引起潮汐。", "太阳也有作用！", "真的吗？", "是的"]),
        ("「潮が満ちる。」と言った。次の文。", None),
        ("क्या हाल है। ठीक है।", ["क्या हाल है।", "ठीक है।"]),
        ("  \n\n ", []),
        ("", []),
    ],
)
def test_borders(text: str, expected: list[str] | None) -> None:
    found = parts(text)
    if expected is None:
        assert 2 <= len(found) <= 3
    else:
        assert found == expected


def test_a_list_item_number_is_no_sentence() -> None:
    assert parts("Steps. 1. Mix it well. 2. Stir.") == ["Steps.", "1. Mix it well.", "2. Stir."]


@given(st.text(alphabet=st.sampled_from("aB1 .!?。\n-\"'()…é桜")))
def test_sentences_are_in_order_and_cover_everything(text: str) -> None:
    spans = sentences(text)
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(start < end for start, end in spans)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    assert all(part == part.strip() for part in parts(text))


def test_a_long_text_takes_no_time() -> None:
    texts = (
        "a" * 500_000,
        "." * 500_000,
        "a. " * 200_000,
        "\n" * 300_000,
        " \n" * 300_000,
        '."' * 200_000,
        "Dr. " * 200_000,
        "\n-" * 200_000,
    )
    for text in texts:
        sentences(text)

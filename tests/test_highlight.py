"""Highlighting: the piece of a hit that answers the query, by vectors and by terms, in prose and in code."""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import unit, write_corpus

from retrieval import ConfigError, Retriever, build_index
from retrieval.chunking import PassageVectors
from retrieval.encoder import BiEncoder
from retrieval.highlight import highlights, pieces
from retrieval.ranking import Hit

TIDES = (
    "The sea rises and falls twice a day. The moon pulls the water towards it. "
    "Near the coast a strong wind changes the height, too. Dr. Kelvin built a machine that foretold the tides."
)
CODE = '''def load(path):
    """Read a JSON file."""
    with open(path) as stream:
        return json.load(stream)


def save(path, value):
    with open(path, "w") as stream:
        json.dump(value, stream)
'''


def hit(text: str, kind: str | None = None) -> Hit:
    return Hit(doc_id="d", rank=1, score=1.0, retrieval_score=1.0, text=text, kind=kind)


def shown(query: str, *hits: Hit, encoder: Any = None) -> list[str | None]:
    spans = highlights(query, hits, encoder)
    found = [None if span is None else one.text[span.start : span.end] for one, span in zip(hits, spans, strict=True)]
    assert found == [None if span is None else span.text for span in spans]  # these hits start where their documents do
    return found


def test_the_best_sentence_by_terms() -> None:
    other = hit("There is nothing of that in here. The machines of Kelvin are in a museum.")
    assert shown("Kelvin's tide machine", hit(TIDES), other) == [
        "Dr. Kelvin built a machine that foretold the tides.",
        "The machines of Kelvin are in a museum.",
    ]
    assert shown("moon", hit(TIDES), other, hit("")) == ["The moon pulls the water towards it.", None, None]
    assert shown(" ? ", hit(TIDES)) == [None]
    assert shown("moon") == []


def test_a_rare_term_counts_more_than_a_frequent_one() -> None:
    texts = [f"The water of well number {n} is cold and clear in winter." for n in range(9)]
    assert shown("water quake", hit(" ".join([*texts, "A quake shook the whole town in winter."]))) == [
        "A quake shook the whole town in winter."
    ]


def test_the_best_sentence_of_chinese_text() -> None:
    text = "海水每天涨落两次，人们很早就知道这一点。月球的引力吸引海水，使它升高。沿海的强风也会改变海面的高度。"
    assert shown("月球引力", hit(text)) == ["月球的引力吸引海水，使它升高。"]


def test_the_best_lines_of_code() -> None:
    expected = 'def save(path, value):\n    with open(path, "w") as stream:\n        json.dump(value, stream)'
    assert shown("json dump", hit(CODE, "code")) == [expected]
    assert shown("json dump", hit(CODE)) == [expected]  # nobody says that it is code, and it looks like it
    assert shown("read", hit(CODE, "function")) == [CODE[: CODE.index("\n\n")]]


def test_a_highlight_counts_characters_and_lines_of_the_document_as_the_hit_does() -> None:
    document = "# one\n# two\n" + CODE
    one = Hit(
        doc_id="d",
        rank=1,
        score=1.0,
        retrieval_score=1.0,
        text=CODE,
        start=len(document) - len(CODE),
        end=len(document),
        section="io",
        kind="code",
        start_line=3,
        end_line=9,
    )
    (span,) = highlights("json dump", [one], None)
    assert span is not None and span.text.startswith("def save") and document[span.start : span.end] == span.text
    assert (span.section, span.kind, span.start_line, span.end_line) == ("io", "code", 9, 11)
    assert document.split("\n")[span.start_line - 1 : span.end_line] == span.text.split("\n")  # type: ignore[operator]


def test_vectors_find_the_sentence_that_is_the_query(tiny: Any) -> None:
    encoder = BiEncoder.load(tiny("mean"))
    sentences = [TIDES[start:end] for start, end in pieces(TIDES, code=False)]
    assert len(sentences) == 4
    for sentence in sentences:
        (span,) = highlights(sentence, [hit(TIDES)], encoder)
        assert span is not None and TIDES[span.start : span.end] == sentence
        assert span.score == pytest.approx(1.0, abs=1e-5)
    group = CODE[: CODE.index("\n\n")]
    assert shown(group, hit(TIDES), hit(CODE, "code"), encoder=encoder)[1] == group


def test_an_encoder_of_ones_own_is_asked_once_and_need_not_give_unit_vectors() -> None:
    calls: list[int] = []

    class Encoder:
        dim, metric = 2, "cosine"
        identity: dict[str, Any] = {}  # noqa: RUF012
        notices: dict[str, int] = {}  # noqa: RUF012

        def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
            calls.append(len(texts))
            vectors = np.array([[len(text), 0.1 if "moon" in text else len(text)] for text in texts], np.float32)
            numbers = np.arange(len(texts))
            return PassageVectors(parent=numbers, start=0 * numbers, end=0 * numbers, vectors=vectors)

        def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
            return np.array([[3, 0]] * len(texts), np.float32)

    assert shown("x", hit(TIDES), hit(TIDES), encoder=Encoder()) == ["The moon pulls the water towards it."] * 2
    assert calls == [8]


def test_short_pieces_go_with_the_next_and_long_ones_are_cut() -> None:
    text = "Abstract. The sea rises and falls twice a day. " + "Word " * 300
    parts = [text[start:end] for start, end in pieces(text, code=False)]
    assert parts[0] == "Abstract. The sea rises and falls twice a day."
    assert all(len(part) <= 400 for part in parts) and len(parts) == 5
    assert [len("x" * 1000), *(end - start for start, end in pieces("x" * 1000, code=True))] == [1000, 400, 400, 200]


@pytest.mark.parametrize("code", [False, True])
def test_time_grows_with_a_text_without_borders_and_not_with_its_square(code: bool) -> None:
    start = time.process_time()
    assert len(pieces("桜" * 10_000_000, code=code)) == 25_000
    assert time.process_time() - start < 10  # half a minute and more where each cut copies what follows


@given(st.text(alphabet=st.sampled_from("aB .。\n\t-({;桜")), st.booleans())
def test_pieces_are_in_order_and_cover_everything(text: str, code: bool) -> None:
    spans = pieces(text, code=code)
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(start < end for start, end in spans)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


def test_a_retriever_highlights_by_terms_without_any_model(tmp_path: Path) -> None:
    corpus, file = write_corpus(tmp_path, [{"_id": "a", "text": TIDES}, {"_id": "b", "text": "Salt."}], unit(2))
    build_index(corpus, tmp_path / "index", vectors=file)
    retriever = Retriever.open(tmp_path / "index", mode="lexical")
    hits = retriever.search("moon water", 1)
    (span,) = retriever.highlight("moon water", hits)
    assert span is not None and hits[0].text[span.start : span.end] == "The moon pulls the water towards it."
    assert retriever.highlight("zebra", hits) == [None]
    with pytest.raises(ConfigError, match="ready-made vectors"):
        retriever.highlight("moon", hits, mode="dense")
    with pytest.raises(ConfigError, match="mode is 'best'"):
        retriever.highlight("moon", hits, mode="best")  # type: ignore[arg-type]

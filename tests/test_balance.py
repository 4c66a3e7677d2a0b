"""The weight of keyword search before anybody has judged: encoders that read the documents, and some that do not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from wordbag import DIM, Lengths, WordBag, sentences
from worlds import unit, write_corpus

from retrieval import IndexSettings, add_documents, build_index
from retrieval.balance import SampledPassage, untuned_fusion
from retrieval.hybrid import FOREIGN, USUAL, Fusion
from retrieval.index.reader import Index


def sample(texts: Sequence[str], encoder: WordBag, documents: int | None = None) -> list[SampledPassage]:
    return [
        SampledPassage(doc_id=f"d{number % (documents or len(texts))}", title="", text=text, vector=vector)
        for number, (text, vector) in enumerate(zip(texts, encoder.encode_queries(texts), strict=True))
    ]


def weight(fusion: Fusion | None) -> float:
    assert fusion is not None
    return fusion.weight


def test_an_encoder_that_reads_the_documents_gets_the_most() -> None:
    found = untuned_fusion(WordBag(), sample(sentences(200), WordBag()))
    assert weight(found) == USUAL
    assert found == untuned_fusion(WordBag(), sample(sentences(200), WordBag()))


def test_one_that_does_not_gets_little() -> None:
    found = untuned_fusion(Lengths(), sample(sentences(200), Lengths()))
    assert weight(found) == FOREIGN
    assert found is not None and found.origin.startswith("measured")


def test_one_in_between_gets_something_in_between() -> None:
    class Half(WordBag):
        def word(self, word: str) -> np.ndarray:
            noise = np.random.default_rng(len(word)).standard_normal(DIM)
            return super().word(word) + 1.5 * noise

    assert USUAL < weight(untuned_fusion(Half(), sample(sentences(300), Half()))) < FOREIGN


def test_chinese_is_cut_by_characters() -> None:
    draw = np.random.default_rng(1)
    texts = ["".join(map(chr, draw.integers(0x4E00, 0x4E00 + 2000, size=60).tolist())) for _ in range(100)]

    class Characters(WordBag):
        def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
            return super().encode_queries([" ".join(text) for text in texts])

    assert weight(untuned_fusion(Characters(), sample(texts, Characters()))) == USUAL


def test_other_windows_of_a_document_are_no_competitors() -> None:
    texts = sentences(60)
    assert weight(untuned_fusion(WordBag(), sample([*texts, *texts, *texts], WordBag(), documents=60))) == USUAL


@pytest.mark.parametrize("texts", [[], sentences(20), ["a b c"] * 200, ["w1 w2 w3 w4 w5 w6 w7"] * 200])
def test_too_little_to_say_anything(texts: list[str]) -> None:
    assert untuned_fusion(WordBag(), sample(texts, WordBag()) if texts else []) is None


def corpus(folder: Path, count: int) -> Path:
    lines = [json.dumps({"_id": f"d{number}", "text": text}) + "\n" for number, text in enumerate(sentences(count))]
    (folder / "c.jsonl").write_text("".join(lines))
    return folder / "c.jsonl"


def test_a_build_stores_what_it_measured(tmp_path: Path) -> None:
    build_index(corpus(tmp_path, 200), tmp_path / "index", encoder=Lengths())
    index = Index.open(tmp_path / "index")
    assert index.fusion.weight == FOREIGN
    (tmp_path / "more.jsonl").write_text('{"_id": "more", "text": "w1 w2"}\n')
    add_documents(tmp_path / "more.jsonl", tmp_path / "index", encoder=Lengths())
    assert Index.open(tmp_path / "index").fusion == index.fusion


def test_without_keywords_or_an_encoder_nothing_is_measured(tmp_path: Path) -> None:
    settings = IndexSettings(lexical=False)
    build_index(corpus(tmp_path, 200), tmp_path / "dense", encoder=Lengths(), settings=settings)
    assert Index.open(tmp_path / "dense").manifest.fusion is None
    records = [{"_id": f"d{number}", "text": text} for number, text in enumerate(sentences(200))]
    documents, vectors = write_corpus(tmp_path, records, unit(200), "ready")
    build_index(documents, tmp_path / "ready", vectors=vectors)
    assert Index.open(tmp_path / "ready").manifest.fusion is None

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import ENGLISH, OTHERS
from worlds import write_corpus

from retrieval import Retriever, build_index, delete_documents
from retrieval.index.reader import Index
from retrieval.models import DEFAULT_RERANKER
from retrieval.shipped import Choice, choose_reranker, sampled


def opened(folder: Path, texts: list[str], title: str = "") -> Index:
    """An index of ready-made vectors over some texts."""
    documents = [{"_id": f"d{number}", "title": title, "text": text} for number, text in enumerate(texts)]
    corpus, vectors = write_corpus(folder, documents, np.eye(len(texts), dtype=np.float32))
    build_index(corpus, folder / "index", vectors=vectors)
    return Index.open(folder / "index")


def test_english_gets_the_default_reranker(tmp_path: Path, shipped: Path) -> None:
    assert choose_reranker(opened(tmp_path, ENGLISH)) == Choice(reranker=DEFAULT_RERANKER)


@pytest.mark.parametrize("language", ["German", "Chinese"])
def test_another_language_gets_none_and_the_reason(language: str, tmp_path: Path, shipped: Path) -> None:
    choice = choose_reranker(opened(tmp_path, OTHERS[language] * 3))
    assert choice.reranker is None
    assert choice.reason.startswith("about ")
    assert choice.reason.endswith(f"% of the text is not English ({language}?)")


def test_without_a_shipped_reranker_there_is_nothing_to_choose(tmp_path: Path) -> None:
    assert choose_reranker(opened(tmp_path, OTHERS["Chinese"])) == Choice(reranker=None)


def test_the_sample_is_spread_and_the_same_each_time(tmp_path: Path) -> None:
    index = opened(tmp_path, [str(number) for number in range(101)], title="T")
    few = list(sampled(index, 5))
    assert few == ["T 0", "T 25", "T 50", "T 75", "T 100"]
    assert list(sampled(index, 5)) == few
    assert len(list(sampled(index, 200))) == 101


def test_what_is_deleted_or_blank_does_not_count(tmp_path: Path, shipped: Path) -> None:
    opened(tmp_path, [*ENGLISH, "", *OTHERS["Chinese"] * 4, " \n"])
    index = tmp_path / "index"
    assert choose_reranker(Index.open(index)).reranker is None
    delete_documents([f"d{number}" for number in range(len(ENGLISH) + 1, len(ENGLISH) + 13)], index)
    assert [text for text in sampled(Index.open(index)) if text.strip()] == ENGLISH
    assert choose_reranker(Index.open(index)).reranker == DEFAULT_RERANKER
    delete_documents([f"d{number}" for number in range(len(ENGLISH))], index)
    assert choose_reranker(Index.open(index)).reranker == DEFAULT_RERANKER


def test_the_library_takes_it_when_asked(tmp_path: Path, shipped: Path, tiny: Any) -> None:
    for name, texts in (("english", ENGLISH), ("german", OTHERS["German"])):
        lines = [json.dumps({"_id": str(number), "text": text}) + "\n" for number, text in enumerate(texts)]
        (tmp_path / name).with_suffix(".jsonl").write_text("".join(lines), encoding="utf-8")
        build_index((tmp_path / name).with_suffix(".jsonl"), tmp_path / name, model=tiny("mean"))
    assert Retriever.open(tmp_path / "english").reranker is None
    retriever = Retriever.open(tmp_path / "english", reranker="auto")
    hits = retriever.search("the tide", 5)
    assert retriever.facts()["reranker"].startswith(DEFAULT_RERANKER)
    assert sorted(hit.retrieval_rank or 0 for hit in hits) == [1, 2, 3, 4, 5]
    assert [hit.retrieval_rank for hit in hits] != [1, 2, 3, 4, 5]
    again = retriever.rerank("the tide", hits)
    assert [(hit.doc_id, hit.retrieval_rank) for hit in again] == [(hit.doc_id, hit.retrieval_rank) for hit in hits]
    assert Retriever.open(tmp_path / "german", reranker="auto").reranker is None

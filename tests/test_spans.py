"""A hit's further passages: which they are, what they say, and that only returned hits get them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wordbag import WordBag

from retrieval import Hit, IndexSettings, Retriever, build_index
from retrieval.chunking import PassageVectors
from retrieval.hybrid import Fusion
from retrieval.index.reader import Index
from retrieval.indexing import set_fusion

CODE = '''"""Clusters."""

class Clusters:
    """Groups of points."""

    def fit(self, points):
        """Move the centres."""
        centres = start(points)  # amber centres
        for step in range(100):
            centres = moved(centres, points)
        return centres

    def predict(self, points):
        return nearest(self.centres, points)


def start(points):
    """Choose the first centres far apart: amber centres."""
    return spread(points)


def spread(points):
    return amber
'''


class Lines(WordBag):
    """Encodes a line at a time, as an encoder with a short limit would."""

    def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
        parent, start, end = [], [], []
        for row, text in enumerate(texts):
            place = 0
            for line in text.split("\n"):
                if line.strip():
                    parent.append(row)
                    start.append(place)
                    end.append(place + len(line))
                place += len(line) + 1
        vectors = self.encode_queries([texts[row][s:e] for row, s, e in zip(parent, start, end, strict=True)])
        columns = [np.array(column, np.int64) for column in (parent, start, end)]
        return PassageVectors(parent=columns[0], start=columns[1], end=columns[2], vectors=vectors)


class Backwards:
    """Orders hits against the alphabet of their texts."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        ranks = {text: rank for rank, text in enumerate(sorted({text for _, text in pairs}, reverse=True))}
        return np.array([ranks[text] for _, text in pairs], np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spans")
    (folder / "tree").mkdir()
    (folder / "tree" / "clusters.py").write_text(CODE, encoding="utf-8")
    for name in ("a", "b", "c", "d"):
        (folder / "tree" / f"{name}.txt").write_text(f"amber {name}\nof centres {name}\nor not\n", encoding="utf-8")
    build_index(folder / "tree", folder / "index", encoder=Lines())
    return folder / "index"


def best(path: Path, query: str, **options: Any) -> Hit:
    hits = Retriever.open(path, encoder=Lines()).search(query, **options)
    return next(hit for hit in hits if hit.doc_id == "clusters.py")


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_the_sibling_that_a_hit_hides_is_named_with_its_lines_and_text(path: Path, mode: Any) -> None:
    hit = best(path, "centres = start(points) # amber centres", mode=mode)
    assert (hit.section, hit.start_line, hit.end_line) == ("Clusters.fit", 8, 8)
    found = {span.section: span for span in hit.spans}
    span = found["start"]
    assert span.kind == "function" and CODE[span.start : span.end] == span.text
    assert span.text in CODE.split("\n")[span.start_line - 1] and span.start_line == span.end_line  # type: ignore[operator]
    assert json.loads(json.dumps(hit.to_dict()))["spans"][hit.spans.index(span)] == {
        "start": span.start,
        "end": span.end,
        "score": span.score,
        "text": span.text,
        "section": "start",
        "kind": "function",
        "start_line": span.start_line,
        "end_line": span.end_line,
    }


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
@pytest.mark.parametrize("query", ["amber centres", "centres points", "return nearest"])
def test_spans_are_of_other_sections_each_once_by_its_best_passage(path: Path, mode: Any, query: str) -> None:
    retriever = Retriever.open(path, encoder=Lines())
    scored_by = "lexical" if mode == "lexical" else "dense"
    every = [
        one for one in retriever.search(query, 100, mode=scored_by, group="passage") if one.doc_id == "clusters.py"
    ]
    hit = best(path, query, mode=mode)
    firsts = {one.section: one for one in reversed(every)}  # the best of each comes last, and stays
    expected = sorted((one for name, one in firsts.items() if name != hit.section), key=lambda one: -one.score)
    assert len(expected) >= 2
    assert [(s.section, s.text, s.score) for s in hit.spans] == [(e.section, e.text, e.score) for e in expected[:3]]


def test_passages_of_a_text_without_names_are_all_spans(path: Path) -> None:
    hits = Retriever.open(path, encoder=Lines()).search("amber a", mode="dense")
    hit = next(hit for hit in hits if hit.doc_id == "a.txt")
    assert (hit.text, [span.text for span in hit.spans]) == ("amber a", ["of centres a", "or not"])
    assert [(span.start_line, span.end_line) for span in hit.spans] == [(2, 2), (3, 3)]


def test_spans_pass_the_filter(path: Path) -> None:
    spans = best(path, "amber centres", mode="dense", where="kind = 'method'").spans
    assert [span.section for span in spans] == ["Clusters.predict"]


def test_spans_are_worked_out_for_returned_hits_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    spans = Index.spans

    def counting(self: Index, found: Sequence[Any], *args: Any, **named: Any) -> list[Any]:
        counts.append(sum(map(len, found)))
        return spans(self, found, *args, **named)

    monkeypatch.setattr(Index, "spans", counting)
    retriever = Retriever.open(path, encoder=Lines(), reranker=Backwards())
    first = {hit.doc_id: hit for hit in retriever.search("amber centres", 5, rerank=False)}
    hits = retriever.search("amber centres", 2)
    assert counts == [5, 2]
    assert [hit.doc_id for hit in hits] != list(first)[:2]  # it did re-order
    assert all(hit.spans and hit.spans == first[hit.doc_id].spans for hit in hits)
    assert retriever.search("amber centres", 2, group="passage")[0].spans == () and counts == [5, 2]


def test_terms_score_the_spans_where_they_weigh_more(path: Path) -> None:
    query = "amber centres points"
    by_terms, by_vectors = (best(path, query, mode=mode).spans for mode in ("lexical", "dense"))
    assert by_terms != by_vectors
    assert best(path, query, mode="hybrid").spans == by_vectors
    try:
        set_fusion(path, Fusion(weight=0.9))
        hit = best(path, query, mode="hybrid")
        assert hit.section == best(path, query, mode="lexical").section and hit.spans == by_terms
    finally:
        set_fusion(path, None)


@pytest.mark.parametrize(("weight", "by_terms"), [(0.2, True), (0.0, False)])
def test_the_spans_of_a_name_hold_it_where_keywords_count(path: Path, weight: float, by_terms: bool) -> None:
    try:
        set_fusion(path, Fusion(weight=weight))
        spans = best(path, "centres", mode="hybrid").spans
    finally:
        set_fusion(path, None)
    assert spans and all("centres" in span.text for span in spans) == by_terms


def test_a_batch_with_blank_queries_and_no_keyword_part_has_the_spans_of_each_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CODE, encoding="utf-8")
    settings = IndexSettings(lexical=False)
    build_index(tmp_path / "a.py", tmp_path / "index", encoder=Lines(), settings=settings)
    retriever = Retriever.open(tmp_path / "index", encoder=Lines())
    queries = ["amber centres", " ", "points"]
    assert retriever.search_many(queries) == [retriever.search(query) for query in queries]
    assert [[len(hit.spans) for hit in hits] for hits in retriever.search_many(queries)] == [[3], [], [3]]


def test_a_highlight_stands_where_the_hit_stands(path: Path) -> None:
    retriever = Retriever.open(path, encoder=Lines(), mode="lexical")
    hits = retriever.search("spread points", 1)
    moved = [replace(hit, start=hit.start + 1000) for hit in hits]
    (span,), (further,) = retriever.highlight("spread", hits), retriever.highlight("spread", moved)
    assert span is not None and further is not None
    assert CODE[span.start : span.end] == span.text and further.start == span.start + 1000

"""Keyword and hybrid search: against BM25 worked out by hand and by bm25s, after any changes, in every mode."""

import json
import math
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import DIM, unit, write_corpus

from retrieval import (
    ConfigError,
    IndexFormatError,
    IndexSettings,
    Retriever,
    add_documents,
    build_index,
    compact_index,
    delete_documents,
    evaluate_retriever,
)
from retrieval.chunking import PassageVectors, joined
from retrieval.cli import main
from retrieval.eval.benchmark import Benchmark, Card
from retrieval.hybrid import Fusion
from retrieval.index import lexical
from retrieval.index.build import writing_index
from retrieval.index.lexical import Postings, _binary, _numbers, best_rows, write_lexical
from retrieval.index.manifest import MANIFEST, Manifest
from retrieval.index.reader import Index, ordered_by
from retrieval.indexing import set_fusion
from retrieval.terms import K1, B, terms

MIXED = Fusion(weight=0.3)
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "parse_json", "日本"]


class Sentences:
    """An encoder whose passages are the sentences of a text, each a random vector of its own."""

    dim, metric = DIM, "cosine"
    identity: Mapping[str, Any] = {"name": "sentences", "sha256": "0"}
    notices: Mapping[str, int] = {}

    def encode_documents(self, titles: Sequence[str], texts: Sequence[str]) -> PassageVectors:
        parent, start, end, vectors = [], [], [], []
        for row, (title, text) in enumerate(zip(titles, texts, strict=True)):
            place = 0
            for sentence in text.split(". "):
                if sentence.strip():
                    parent.append(row)
                    start.append(place)
                    end.append(place + len(sentence))
                    vectors.append(self._vector(joined(title, sentence)))
                place += len(sentence) + 2
        columns = [np.array(column, np.int64) for column in (parent, start, end)]
        found = np.array(vectors, np.float32).reshape(-1, DIM)
        return PassageVectors(parent=columns[0], start=columns[1], end=columns[2], vectors=found)

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([self._vector(text) for text in texts], np.float32).reshape(-1, DIM)

    def _vector(self, text: str) -> np.ndarray:
        return unit(1, seed=sum(map(ord, text)))[0]


def write(path: Path, documents: Mapping[str, str]) -> Path:
    lines = [json.dumps({"_id": i, "text": text, "size": len(text)}) + "\n" for i, text in documents.items()]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def made(folder: Path, documents: Mapping[str, str], name: str = "index") -> Path:
    build_index(write(folder / "c.jsonl", documents), folder / name, encoder=Sentences(), overwrite=True)
    return folder / name


def opened(path: Path, **options: Any) -> Retriever:
    return Retriever.open(path, encoder=Sentences(), **options)


def passages(documents: Mapping[str, str]) -> list[tuple[str, int, str]]:
    """Doc_id, number and text of each passage that is searched."""
    found = []
    for doc_id, text in documents.items():
        sentences = [sentence for sentence in text.split(". ") if sentence.strip()]
        found += [(doc_id, number, sentence) for number, sentence in enumerate(sentences)]
    return found


def bm25(documents: Mapping[str, str], query: str) -> list[tuple[str, int, float]]:
    """Score every passage by the formula, keep each document's best, order: doc_id, passage, score."""
    counted = [(doc_id, number, Counter(terms(text))) for doc_id, number, text in passages(documents)]
    mean = sum(counts.total() for *_, counts in counted) / max(1, len(counted))
    scored = []
    for doc_id, number, counts in counted:
        score = 0.0
        for term in terms(query):
            held = sum(term in other for *_, other in counted)
            idf = math.log(1 + (len(counted) - held + 0.5) / (held + 0.5))
            norm = K1 * (1 - B + B * counts.total() / mean) if mean else 1.0
            score += idf * counts[term] / (counts[term] + norm)
        if score:
            scored.append((doc_id, number, score))
    best: dict[str, tuple[str, int, float]] = {}
    for entry in sorted(scored, key=lambda e: (-round(e[2], 9), e[1])):
        best.setdefault(entry[0], entry)
    return sorted(best.values(), key=lambda e: (round(e[2], 9), e[0]), reverse=True)


def answers(path: Path, queries: Sequence[str], k: int, **options: Any) -> list[list[Any]]:
    found = opened(path).search_many(queries, k, **options)
    return [[(hit.doc_id, hit.passage, hit.text, hit.score, hit.spans) for hit in hits] for hits in found]


texts = st.lists(st.sampled_from([*WORDS, "amber. ", "cedar. "]), max_size=8).map(" ".join)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.dictionaries(st.sampled_from("abcdefg"), texts, min_size=1, max_size=3)),
        st.tuples(st.just("delete"), st.sets(st.sampled_from("abcdefg"), min_size=1, max_size=2)),
        st.tuples(st.just("compact"), st.none()),
    ),
    max_size=4,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=st.dictionaries(st.sampled_from("abcdefg"), texts, min_size=1), steps=changes)
def test_a_changed_index_answers_as_the_formula_and_to_the_bit_as_a_fresh_build(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, str], steps: list[tuple[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("changes")
    path, held = made(folder, first), dict(first)
    for what, arguments in steps:
        if what == "upsert":
            add_documents(write(folder / "more.jsonl", arguments), path, encoder=Sentences(), upsert=True)
            held = {**{i: text for i, text in held.items() if i not in arguments}, **arguments}
        elif what == "delete":
            delete_documents(sorted(arguments), path)
            held = {i: text for i, text in held.items() if i not in arguments}
        else:
            compact_index(path)
    queries = ["amber", "cedar birch cedar", "parse json 日本", "fjord unheard of", "unheard of", "?"]
    for query, hits in zip(queries, answers(path, queries, 100, mode="lexical"), strict=True):
        expected = bm25(held, query)
        assert [hit[:2] for hit in hits] == [entry[:2] for entry in expected]
        assert [hit[3] for hit in hits] == pytest.approx([entry[2] for entry in expected])
    if held:
        fresh = made(folder, held, "fresh")
        for one in (path, fresh):
            set_fusion(one, MIXED)
        for mode in ("lexical", "hybrid"):
            for group in ("document", "passage"):
                options = {"mode": mode, "group": group}
                assert answers(path, queries, 3, **options) == answers(fresh, queries, 3, **options)


@pytest.fixture(scope="module")
def corpus() -> dict[str, str]:
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, 401)
    words = np.array([f"word{number}" for number in range(400)])

    def text() -> str:
        sentences = [
            " ".join(rng.choice(words, rng.integers(1, 12), p=shares / shares.sum())) for _ in range(rng.integers(1, 4))
        ]
        return ". ".join(sentences)

    return {f"d{number}": text() for number in range(600)}


@pytest.fixture(scope="module")
def path(corpus: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("lexical"), corpus)


QUERIES = ["word3 word77", "word0", "word399 word12 word12 word250", "word1 nothing", "nothing", "", "word5. word6"]


def test_scores_are_those_of_bm25s(path: Path, corpus: dict[str, str]) -> None:
    bm25s = pytest.importorskip("bm25s")
    peer = bm25s.BM25(method="lucene", k1=K1, b=B)
    found = [text for _, _, text in passages(corpus)]
    peer.index([terms(text) for text in found], show_progress=False)
    index = Index.open(path)
    for query in QUERIES[:4]:
        known = [term for term in terms(query) if term in peer.vocab_dict]
        assert index._keywords.scores(terms(query)) == pytest.approx(peer.get_scores(known), abs=1e-5)


def test_a_file_of_postings_made_in_many_runs_is_that_of_one(
    path: Path, corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical, "_RUN_TERMS", 100)
    monkeypatch.setattr(lexical, "_MERGED_AT_ONCE", 7)
    other = made(tmp_path, corpus)
    for name in ("terms.arrow", "lengths.npy"):
        assert (other / "segments/000001" / name).read_bytes() == (path / "segments/000001" / name).read_bytes()
    assert not list(other.rglob("runs.arrow"))
    monkeypatch.setattr(lexical, "_BATCH_TERMS", 13)
    in_batches = made(tmp_path, corpus, "batches")
    assert answers(in_batches, QUERIES, 9, mode="lexical") == answers(path, QUERIES, 9, mode="lexical")


@given(st.lists(st.lists(st.integers(0, 2**40), max_size=5), max_size=5))
def test_integers_survive_their_encoding(groups: list[list[int]]) -> None:
    values = np.array([value for group in groups for value in group], np.int64)
    column = _binary(values, np.array([len(group) for group in groups], np.int64))
    assert [_numbers(cell.as_buffer()).tolist() for cell in column] == groups
    assert [lexical._number(value) for value in values.tolist()] == [
        _binary(np.array([value]), np.array([1]))[0].as_py() for value in values.tolist()
    ]


def test_postings_are_found_and_nothing_else(tmp_path: Path) -> None:
    texts = ["b a a", "", "c", "a", "a a a"] + ["z"] * 300 + ["a " * 700, "日本 \U0001f600 é"]
    batch = pa.record_batch({"title": [""] * len(texts), "text": texts, "passage": [0] * len(texts)})
    postings = Postings(tmp_path, write_lexical(tmp_path, "s", [batch]), rows=len(texts))
    for word in sorted({term for text in texts for term in terms(text)} | {"", "aa", "0", "zz", "\U0010ffff"}):
        rows, frequency = postings.find(word)
        counts = {row: Counter(terms(text))[word] for row, text in enumerate(texts)}
        assert dict(zip(rows.tolist(), frequency.tolist(), strict=True)) == {r: n for r, n in counts.items() if n}
    assert postings.lengths.tolist() == [len(terms(text)) for text in texts]


@given(st.lists(st.integers(0, 5), min_size=1), st.integers(1, 8))
def test_the_best_rows_are_enough_and_hold_all_that_tie(scores: list[int], count: int) -> None:
    rows = best_rows(np.array(scores, float), np.arange(len(scores)), count)
    ranked = sorted(scores, reverse=True)
    assert sorted(rows.tolist()) == [r for r, s in enumerate(scores) if s >= ranked[:count][-1]]


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
@pytest.mark.parametrize("group", ["document", "passage"])
def test_a_shorter_list_is_a_prefix_and_one_query_answers_as_in_a_batch(path: Path, mode: Any, group: Any) -> None:
    retriever = opened(path)
    together = retriever.search_many(QUERIES, 100, mode=mode, group=group)
    for query, hits in zip(QUERIES, together, strict=True):
        for k in (1, 3, 6, 50):
            assert retriever.search(query, k, mode=mode, group=group) == hits[:k]
        places = [(hit.doc_id, hit.passage) if group == "passage" else hit.doc_id for hit in hits]
        assert len(set(places)) == len(hits)
        order = [(hit.score, hit.doc_id, -hit.passage) for hit in hits]
        assert order == sorted(order, reverse=True)


def test_ties_at_the_cut_are_ordered_by_id(tmp_path: Path) -> None:
    retriever = opened(made(tmp_path, {f"d{number:03d}": "amber" for number in range(300)}))
    expected = [f"d{number:03d}" for number in range(299, -1, -1)]
    for k in (1, 7, 120, 300, 1000):
        assert [hit.doc_id for hit in retriever.search("amber", k, mode="lexical")] == expected[:k]


def test_a_filter_acts_inside_and_leaves_scores_as_they_are(path: Path) -> None:
    retriever = opened(path)
    everything = retriever.search("word3 word77", 1000, mode="lexical")
    limit = sorted(hit.metadata["size"] for hit in everything)[len(everything) // 3]
    for where in (pc.field("size") <= limit, f"size <= {limit}"):
        hits = retriever.search("word3 word77", 1000, mode="lexical", where=where)
        expected = [hit for hit in everything if hit.metadata["size"] <= limit]
        assert [(hit.doc_id, hit.score) for hit in hits] == [(hit.doc_id, hit.score) for hit in expected]
        mixed = retriever.search("word3 word77", 40, mode="hybrid", where=where)
        assert len(mixed) == 40 and all(hit.metadata["size"] <= limit for hit in mixed)
    assert retriever.search("word3", mode="lexical", where=pc.field("size") < 0) == []
    assert retriever.search("word3", mode="hybrid", where=pc.field("size") < 0) == []


def test_a_hybrid_score_mixes_both_sides_of_the_pool(path: Path, corpus: dict[str, str]) -> None:
    retriever, query = opened(path), "word3 word77 word77"
    by_vectors, by_terms = (
        {(hit.doc_id, hit.passage): hit.score for hit in retriever.search(query, 5000, mode=mode, group="passage")}
        for mode in ("dense", "lexical")
    )
    near, matching = retriever.search(query, 100, mode="dense"), retriever.search(query, 100, mode="lexical")
    pool = sorted({(hit.doc_id, hit.passage) for hit in [*near, *matching]})
    dense = np.array([by_vectors[place] for place in pool])
    words = np.array([by_terms.get(place, 0.0) for place in pool])
    holding = [
        {(doc_id, number) for doc_id, number, text in passages(corpus) if name in terms(text)}
        for name in ("word3", "word77")
    ]
    rare = [places for places in holding if 0 < len(places) <= 10]
    assert rare
    named = np.array([sum(place in places for places in rare) / len(rare) for place in pool])
    mixed = dict(zip(pool, retriever.index.fusion.combine(dense, words, named).tolist(), strict=True))
    best: dict[str, float] = {}
    for (doc_id, _), score in mixed.items():
        best[doc_id] = max(score, best.get(doc_id, -math.inf))
    hits = retriever.search(query, 100, mode="hybrid")
    assert [hit.doc_id for hit in hits] == sorted(best, key=lambda d: (best[d], d), reverse=True)[:100]
    for hit in hits:
        place = (hit.doc_id, hit.passage)
        assert (hit.score, hit.retrieval_score) == (pytest.approx(mixed[place]),) * 2
        assert hit.dense_score == by_vectors[place]
        assert hit.lexical_score == by_terms.get(place, 0.0)


def test_a_rare_name_is_found_whatever_the_vectors_say(tmp_path: Path) -> None:
    """Vectors are random here: of 401 documents that hold words of the query one holds the name."""
    documents = {f"d{number:03d}": f"where is note {number} used" for number in range(400)}
    documents |= {"e": "We call parseHttpDate.", "f": "parse http date apart", "rare": "of perihelion"}
    documents |= {f"common{number}": f"calls open_file {number}" for number in range(11)}
    index = made(tmp_path, documents)
    set_fusion(index, Fusion())
    retriever = opened(index)
    for query, found in (("parseHttpDate", "e"), ("perihelion", "rare")):
        assert retriever.search(query, 1)[0].doc_id == found
    asked = "where is parseHttpDate used"
    (pool,) = retriever.pools([asked])
    assert {one.doc_id: one.named for one in pool.candidates if one.named} == {"e": 1}
    assert retriever.search(asked, 1)[0].doc_id == "e"
    (pool,) = retriever.pools(["where is open_file used"])
    assert {one.named for one in pool.candidates} == {0.0}  # so many hold it that it is no rare name
    (pool,) = retriever.pools(["parseHttpDate or open_file or unheard_of"])
    assert {one.doc_id for one in pool.candidates if one.named} == {"e"}
    assert (
        ordered_by(Fusion(weight=0), pool)[0].doc_id
        == max(pool.candidates, key=lambda one: one.dense_score or 0).doc_id
    )


def test_hits_say_which_sides_were_asked(path: Path) -> None:
    retriever = opened(path)
    for mode, sides in (("dense", (True, False)), ("lexical", (False, True)), ("hybrid", (True, True))):
        hit = retriever.search("word3 word77", 1, mode=mode)[0]
        assert (hit.dense_score is not None, hit.lexical_score is not None) == sides
        assert hit.score == {"dense": hit.dense_score, "lexical": hit.lexical_score}.get(mode, hit.score)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_spans_are_the_documents_next_best_passages(tmp_path: Path, mode: Any) -> None:
    documents = {
        "long": ". ".join(["cedar", "amber amber amber", "birch", "amber amber cedar", "amber", "amber cedar birch"]),
        "short": "amber. cedar",
        "one": "amber",
        "void": " ",
    }
    path = made(tmp_path, documents)
    delete_documents(["one"], path)
    retriever = opened(path)
    every = retriever.search("amber cedar", 100, mode="lexical" if mode == "lexical" else "dense", group="passage")
    for hit in retriever.search("amber cedar", 10, mode=mode):
        others = [o for o in every if o.doc_id == hit.doc_id and o.passage != hit.passage][:3]
        found = [(s.start, s.end, s.score, s.text) for s in hit.spans]
        assert found == [(o.start, o.end, o.score, o.text) for o in others]
        json.dumps(hit.to_dict())
    assert all(hit.spans == () for hit in every)


def test_threads_get_the_answers_of_one(path: Path) -> None:
    retriever = opened(path)
    expected = {mode: retriever.search_many(QUERIES, 9, mode=mode) for mode in ("lexical", "hybrid")}
    fresh = opened(path)
    failures: list[Any] = []

    def work() -> None:
        for mode, found in expected.items():
            failures.extend(
                query for query, hits in zip(QUERIES, found, strict=True) if fresh.search(query, 9, mode=mode) != hits
            )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_auto_is_hybrid_for_texts_and_dense_for_vectors(path: Path, tmp_path: Path) -> None:
    retriever = opened(path)
    query = "word3 word77"
    assert retriever.search(query) == retriever.search(query, mode="auto") == retriever.search(query, mode="hybrid")
    vector = Sentences().encode_queries([query])[0]
    assert retriever.search(vector) == retriever.search(query, mode="dense")
    assert retriever.facts()["mode"].startswith("hybrid, weight ")
    assert opened(path, mode="lexical").search(query) == retriever.search(query, mode="lexical")
    assert opened(path, mode="lexical").facts()["mode"] == "lexical"
    for mode in ("lexical", "hybrid"):
        with pytest.raises(ConfigError, match=f"mode {mode} reads texts"):
            retriever.search(vector, mode=mode)
    with pytest.raises(ConfigError, match="mode is 'bm25'; expected one of auto, dense, lexical, hybrid"):
        retriever.search(query, mode="bm25")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mode is 'bm25'"):
        opened(path, mode="bm25")
    with pytest.raises(ConfigError, match="group is 'file'; expected one of document, passage"):
        retriever.search(query, group="file")  # type: ignore[arg-type]
    plain = tmp_path / "plain"
    build_index(
        write(tmp_path / "c.jsonl", {"a": "amber"}), plain, encoder=Sentences(), settings=IndexSettings(lexical=False)
    )
    assert not list(plain.rglob("terms.arrow"))
    assert opened(plain).search("amber") == opened(plain).search("amber", mode="dense")
    assert opened(plain).facts()["mode"] == "dense"
    for mode in ("lexical", "hybrid"):
        with pytest.raises(ConfigError, match="built without its keyword part; rebuild it, without --no-lexical"):
            opened(plain, mode=mode)
    compact_index(plain)  # what was declined is not made
    with pytest.raises(ConfigError, match="without --no-lexical"):
        opened(plain).search("amber", mode="lexical")


def test_keyword_search_needs_neither_the_model_nor_torch(tiny: Any, tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", {"a": "amber birch", "b": "cedar"})
    build_index(corpus, tmp_path / "index", model=tiny("mean"))
    body = json.loads((tmp_path / "index" / MANIFEST).read_text())
    manifest = Manifest.read(tmp_path / "index")
    assert manifest.encoder is not None
    manifest.encoder.update(
        {key: "/nowhere/else" for key, value in body["encoder"].items() if value == str(tiny("mean"))}
    )
    manifest.write(tmp_path / "index")
    code = (
        "import sys; from retrieval import Retriever; "
        f"hits = Retriever.open({str(tmp_path / 'index')!r}, mode='lexical').search('amber'); "
        "print([hit.doc_id for hit in hits], {'torch', 'transformers'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['a'] set()"


def test_ready_made_vectors_and_texts_that_hold_nothing(tmp_path: Path) -> None:
    docs = [{"_id": "a", "title": "Amber", "text": ""}, {"_id": "b", "text": "birch"}, {"_id": "c", "text": ""}]
    corpus, vectors = write_corpus(tmp_path, docs, unit(3))
    build_index(corpus, tmp_path / "index", vectors=vectors)
    retriever = Retriever.open(tmp_path / "index", encoder=Sentences())
    assert [hit.doc_id for hit in retriever.search("amber", mode="lexical")] == ["a"]
    empty, vectors = write_corpus(tmp_path, [{"_id": "a", "text": ""}], unit(1), "empty")
    build_index(empty, tmp_path / "empty", vectors=vectors)
    retriever = Retriever.open(tmp_path / "empty", encoder=Sentences())
    assert retriever.search("amber", mode="lexical") == []
    assert [hit.doc_id for hit in retriever.search("amber", mode="hybrid")] == ["a"]
    delete_documents(["a"], tmp_path / "empty")
    compact_index(tmp_path / "empty")
    assert Retriever.open(tmp_path / "empty", encoder=Sentences()).search("amber") == []


def test_a_reranker_works_behind_every_mode(path: Path) -> None:
    class Length:
        def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
            return np.array([len(passage) for _, passage in pairs], float)

    retriever = opened(path, reranker=Length())
    for mode in ("dense", "lexical", "hybrid"):
        first = retriever.search("word3 word77", 20, mode=mode, rerank=False)
        again = retriever.search("word3 word77", 5, mode=mode, rerank_depth=20)
        expected = sorted(first, key=lambda hit: (len(hit.text), hit.doc_id), reverse=True)[:5]
        assert [hit.doc_id for hit in again] == [hit.doc_id for hit in expected]
        assert [hit.retrieval_score for hit in again] == [hit.score for hit in expected]


def test_an_index_of_another_release_opens_and_compacting_gives_it_its_keywords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = {"a": "amber birch", "b": "cedar"}
    path, expected = made(tmp_path, documents), answers(made(tmp_path, documents, "new"), ["amber"], 5)
    body = json.loads((path / MANIFEST).read_text())
    for name in ("lexical", "fusion", "checksum", "format", "format_version"):
        del body[name]
    del body["segments"][0]["lexical"]
    from retrieval.index import manifest as module

    body = {"format": module.FORMAT, "format_version": 1, **body}
    (path / MANIFEST).write_text(json.dumps({**body, "checksum": module._checksum(body)}))
    by_vectors = opened(tmp_path / "new").search("amber", mode="dense")
    assert [hit.doc_id for hit in opened(path).search("amber")] == [hit.doc_id for hit in by_vectors]
    with pytest.raises(ConfigError, match="has no keyword part; `retrieve compact` makes it"):
        opened(path).search("amber", mode="lexical")
    with pytest.raises(ConfigError, match="`retrieve compact` makes it"):
        set_fusion(path, Fusion(weight=0.5))
    add_documents(write(tmp_path / "more.jsonl", {"c": "delta"}), path, encoder=Sentences())
    with pytest.raises(ConfigError, match="has no keyword part"):
        opened(path, mode="hybrid")
    delete_documents(["c"], path)
    compact_index(path)
    assert answers(path, ["amber"], 5) == expected
    monkeypatch.setattr("retrieval.index.reader.TERMS_VERSION", 999)
    with pytest.raises(ConfigError, match=r"is of version .* and this release reads 999; `retrieve compact`"):
        opened(path).search("amber", mode="lexical")
    assert opened(path).facts()["mode"] == "dense"


def test_the_mixture_is_a_setting_of_the_index(path: Path, tmp_path: Path) -> None:
    documents = {"a": "amber birch", "b": "cedar", "c": "amber. delta"}
    path = made(tmp_path, documents)
    delete_documents(["b"], path)
    before = opened(path)
    answered = before.search("amber")
    unset, keywords = Index.open(path).fusion, Fusion(weight=1.0)
    manifest = set_fusion(path, keywords)
    assert (manifest.generation, manifest.fusion) == (3, keywords)
    assert before.search("amber") == answered
    after = opened(path)
    assert Index.open(path, verify=True).fusion == keywords != unset
    assert after.facts()["mode"].startswith("hybrid, weight 1.0")
    order = [hit.doc_id for hit in after.search("amber")]
    assert order == [hit.doc_id for hit in after.search("amber", mode="lexical")]
    compact_index(path)
    add_documents(write(tmp_path / "more.jsonl", {"d": "delta"}), path, encoder=Sentences())
    assert Index.open(path).fusion == keywords
    set_fusion(path, None)
    assert Index.open(path).fusion == Fusion()
    assert Manifest.read(path).documents == 3


def test_a_build_that_is_stopped_while_terms_are_counted_goes_on_and_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = {f"d{number}": f"amber {WORDS[number % 9]}" for number in range(50)}
    expected = made(tmp_path, documents)
    calls = 0

    def stopped(text: str) -> list[str]:
        nonlocal calls
        calls += 1
        if calls == 30:
            raise KeyboardInterrupt
        return terms(text)

    with monkeypatch.context() as patch:
        patch.setattr(lexical, "terms", stopped)
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path, documents, "other")
    assert not (tmp_path / "other").exists() and (tmp_path / ".other.building").exists()
    report = build_index(tmp_path / "c.jsonl", tmp_path / "other", encoder=Sentences())
    assert report.kept == 50
    for file in expected.rglob("*.*"):
        if file.is_file():
            assert (tmp_path / "other" / file.relative_to(expected)).read_bytes() == file.read_bytes()


def test_a_damaged_keyword_part_is_named(path: Path, tmp_path: Path) -> None:
    path = made(tmp_path, {"a": "amber"})
    for name in ("terms.arrow", "lengths.npy"):
        file = path / "segments/000001" / name
        data = file.read_bytes()
        for damaged in (b"", data[:-3], data[:-1] + bytes([data[-1] ^ 1])):
            file.write_bytes(damaged)
            with pytest.raises(IndexFormatError, match=rf"{name} .*rebuild"):
                Index.open(path)
        file.write_bytes(data)
    other = made(tmp_path, {"b": "amber", "c": "birch"}, "other")
    with writing_index(path) as writer:
        entry = writer.present.manifest.segments[0].lexical
    assert entry is not None
    with pytest.raises(IndexFormatError, match=r"lengths.npy holds no list of 2 lengths"):
        Postings(path, entry, rows=2)
    Index.open(other)


def test_damage_that_no_hash_was_compared_for_is_named_and_never_ends_the_process(tmp_path: Path) -> None:
    """Files above 16 MiB are not hashed on opening; Arrow follows any offset, and numpy parses any header."""
    words = [f"word{n} " * (1 + n % 3) for n in range(40)]
    path = made(tmp_path, {f"d{n}": " ".join(words[n % 7 :: 3]) for n in range(60)})
    entry = Manifest.read(path).segments[0].lexical
    assert entry is not None
    script = """
import dataclasses, hashlib, pathlib, random, sys
from collections import Counter
from retrieval import IndexFormatError
from retrieval.index.lexical import Keywords, Postings
from retrieval.index.manifest import Manifest

folder = pathlib.Path(sys.argv[1])
entry = Manifest.read(folder).segments[0].lexical
found, draw = Counter(), random.Random(0)
for name in ("terms", "lengths"):
    file = folder / getattr(entry, name).path
    data = file.read_bytes()
    for n in range(1500):
        damaged = bytearray(data)
        for place in range(at := draw.randrange(len(data)), min(len(data), at + draw.choice([1, 1, 8]))):
            damaged[place] ^= draw.randrange(256)
        file.write_bytes(damaged)
        known = dataclasses.replace(getattr(entry, name), sha256=hashlib.sha256(damaged).hexdigest())
        try:
            Keywords([Postings(folder, dataclasses.replace(entry, **{name: known}), rows=60)], None).scores(
                [f"word{n}" for n in range(40)]
            )
            found[name, "answered"] += 1
        except IndexFormatError as error:
            assert file.name in str(error) and "rebuild" in str(error)
            found[name, "refused"] += 1
    file.write_bytes(data)
assert min(found[name, what] for name in ("terms", "lengths") for what in ("answered", "refused")) > 20, found
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_command_asks_in_every_mode(path: Path, tmp_path: Path, tiny: Any) -> None:
    corpus = write(tmp_path / "c.jsonl", {"a": "amber. birch", "b": "cedar", "c": "amber amber"})
    runner, index = CliRunner(), str(tmp_path / "index")
    build_index(corpus, index, model=tiny("mean"))

    def asked(*arguments: str) -> Any:
        result = runner.invoke(main, ["query", index, "amber", "--json", *arguments])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["hits"]

    assert [hit["doc_id"] for hit in asked("--mode", "lexical")] == ["c", "a"]
    assert asked() == asked("--mode", "hybrid") != asked("--mode", "dense")
    refused = runner.invoke(main, ["query", index, "amber", "--group", "passage", "--format", "trec"])
    assert refused.exit_code == 2 and "TREC run has no place for passages" in refused.output
    shown = runner.invoke(main, ["info", index])
    assert "BM25" in shown.stdout
    runner.invoke(
        main, ["build-index", str(corpus), index, "--no-lexical", "--overwrite", "--model", str(tiny("mean"))]
    )
    refused = runner.invoke(main, ["query", index, "amber", "--mode", "lexical"])
    assert refused.exit_code == 1 and "built without its keyword part" in refused.output


def test_an_evaluation_says_its_mode(path: Path, corpus: dict[str, str]) -> None:
    doc_id, text = next(iter(corpus.items()))
    benchmark = Benchmark(
        card=Card(name="one", split="test"), queries={"q": text}, qrels={"q": {doc_id: 1}}, corpus=lambda: iter(())
    )
    for mode, fact in (("lexical", "lexical"), ("auto", "hybrid, weight")):
        found = evaluate_retriever(opened(path, mode=mode), benchmark, "ndcg@10")
        assert found.facts["mode"].startswith(fact)

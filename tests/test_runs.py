"""Runs: what is read, what is refused, and that a written run keeps its order."""

from __future__ import annotations

import gzip
import io
import logging
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.errors import ConfigError, DataError
from retrieval.runs import read_run, write_run


@pytest.fixture
def put(tmp_path: Path):
    def put(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.tsv.*[Nn]o such file"):
        read_run(tmp_path / "nowhere.tsv")
    with pytest.raises(DataError, match="directory"):
        read_run(tmp_path)


def test_a_run_of_any_blanks_and_order_is_read(put):
    content = (
        b"\xef\xbb\xbfq1   Q0  d1   7   9.5   sys  \r\nq2 Q0 e1 1 3e-1 sys\n\r\n\n"
        b"q1\tQ0\td2\tx\t-1E+2\tsys\r\nq2 Q0 d\xc2\xa0d 1 inf s"
    )
    expected = {"q1": {"d1": 9.5, "d2": -100.0}, "q2": {"e1": 0.3, "d\u00a0d": math.inf}}
    assert read_run(put("a.run", content)) == expected
    assert read_run(put("a.run.gz", gzip.compress(content))) == expected


def test_a_repeated_document_keeps_its_best_score_and_is_counted_once(put, caplog):
    path = put("a.run", "q Q0 d 1 1 s\nq Q0 e 2 9 s\nq Q0 d 3 3 s\nq Q0 d 4 2 s\np Q0 d 1 5 s\n")
    with caplog.at_level(logging.WARNING):
        assert read_run(path) == {"q": {"d": 3.0, "e": 9.0}, "p": {"d": 5.0}}
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 2 lines repeat a document of the same query; its best score was kept"
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("q Q0 d 1 2.0", ["5 columns", "expected 6"]),
        ("q Q0 d 1 2.0 my tag", ["7 columns"]),
        ("q Q0 d 1 high tag", ["'high'", "not a number"]),
        ("q Q0 d 1 nan tag", ["'nan'", "not a number"]),
        ("q Q0 d 1 1_0 tag", ["'1_0'", "not a number"]),
    ],
)
def test_unusable_run_lines_are_refused_with_their_place(put, line, words):
    with pytest.raises(DataError) as caught:
        read_run(put("a.run", f"q Q0 c 1 3.0 tag\n\n{line}\n"))
    for word in [*words, "a.run, line 3"]:
        assert word in str(caught.value)


def test_an_empty_run_is_empty(put):
    assert read_run(put("a.run", "\n")) == {}


_id = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
    lambda text: text.split() == [text] and not text.startswith("\ufeff")
)
_scores = st.one_of(
    st.floats(allow_nan=False),
    st.sampled_from([0.1, math.nextafter(0.1, 1), 1.0, -0.0, 0.0, 5e-324, 1e22, math.inf]),
)


@given(st.dictionaries(_id, st.dictionaries(_id, _scores, min_size=1), max_size=5), st.booleans())
def test_a_run_comes_back_as_it_was_written(tmp_path_factory, run, packed):
    path = tmp_path_factory.mktemp("runs") / ("a.run.gz" if packed else "a.run")
    results = {
        query_id: sorted(scores.items(), key=lambda hit: (hit[1], hit[0]), reverse=True)
        for query_id, scores in run.items()
    }
    write_run(path, results, "tag")
    again = read_run(path)
    assert again == run
    # ordering the scores that were read gives the order that was written, ties included
    for query_id, hits in results.items():
        ordered = sorted(again[query_id].items(), key=lambda hit: (hit[1], hit[0]), reverse=True)
        assert [doc_id for doc_id, _ in ordered] == [doc_id for doc_id, _ in hits]


def test_a_written_run_is_what_trec_eval_reads():
    stream = io.BytesIO()
    write_run(stream, {"q1": [("b", 2.5), ("a", 2.5), ("c", 1e-9)], "q2": [], "7": [("x", 3)]}, "mine")
    assert stream.getvalue().decode() == (
        "q1 Q0 b 1 2.5 mine\nq1 Q0 a 2 2.5 mine\nq1 Q0 c 3 1e-09 mine\n7 Q0 x 1 3.0 mine\n"
    )


def test_a_packed_run_has_the_same_bytes_every_time(tmp_path):
    for name in ("a.gz", "b.gz"):
        write_run(tmp_path / name, {"q": [("d", 1.0)]})
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ({"q": [("a b", 1.0)]}, ["document id 'a b'", "blanks"]),
        ({"q 1": [("a", 1.0)]}, ["query id 'q 1'", "blanks"]),
        ({"q": [("a\u3000b", 1.0)]}, ["document id"]),
        ({"q": [("", 1.0)]}, ["document id ''"]),
        ({"\ufeffq": [("a", 1.0)]}, ["query id"]),
        ({"q": [("\ud800", 1.0)]}, ["document id"]),
        ({"q": [("a", math.nan)]}, ["'q'", "'a'", "not a number"]),
        ({"q": [("a", 1.0), ("b", 2.0)]}, ["rank 2 ('b', 2.0) belongs before rank 1"]),
        ({"q": [("a", 1.0), ("b", 1.0)]}, ["rank 2 ('b', 1.0) belongs before rank 1"]),
        ({"q": [("a", 3.0), ("b", 2.0), ("a", 1.0)]}, ["'a' occurs twice"]),
    ],
)
def test_what_a_run_cannot_hold_is_refused_and_the_old_file_stays(tmp_path, results, words):
    path = tmp_path / "a.run"
    path.write_text("before")
    with pytest.raises(DataError) as caught:
        write_run(path, {"p": [("z", 1.0)], **results})
    for word in words:
        assert word in str(caught.value)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("tag", ["", "my tag", "tag\n"])
def test_a_tag_is_one_word(tag):
    with pytest.raises(ConfigError, match="run tag"):
        write_run(io.BytesIO(), {}, tag)

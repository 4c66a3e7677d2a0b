"""Runs: what is read, what is refused, and that a written run keeps its order."""

from __future__ import annotations

import gzip
import io
import logging
import math
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval import lines, runs
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
        ("q Q0 d 1 \u0661 tag", ["'\u0661'", "not a number"]),
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
    write_run(path, run, "tag")
    again = read_run(path)
    assert again == run
    # the lines stand in the total order
    for query_id, hits in again.items():
        assert list(hits) == sorted(hits, key=lambda doc_id: (run[query_id][doc_id], doc_id), reverse=True)


def test_a_written_run_is_what_trec_eval_reads():
    stream = io.BytesIO()
    write_run(stream, {"q1": {"c": 1e-9, "a": 2.5, "b": 2.5}, "q2": {}, "7": {"x": 3}}, "mine")
    assert stream.getvalue().decode() == (
        "q1 Q0 b 1 2.5 mine\nq1 Q0 a 2 2.5 mine\nq1 Q0 c 3 1e-09 mine\n7 Q0 x 1 3.0 mine\n"
    )


def test_a_packed_run_has_the_same_bytes_every_time(tmp_path):
    for name in ("a.gz", "b.gz"):
        write_run(tmp_path / name, {"q": {"d": 1.0}})
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ({"q": {"a b": 1.0}}, ["document id 'a b'", "blanks"]),
        ({"q 1": {"a": 1.0}}, ["query id 'q 1'", "blanks"]),
        ({"q": {"a\u3000b": 1.0}}, ["document id"]),
        ({"q": {"": 1.0}}, ["document id ''"]),
        ({"\ufeffq": {"a": 1.0}}, ["query id"]),
        ({"q": {"\ud800": 1.0}}, ["document id"]),
        ({"q": {"a": math.nan}}, ["'q'", "'a'", "not a number"]),
    ],
)
def test_what_a_run_cannot_hold_is_refused_and_the_old_file_stays(tmp_path, results, words):
    path = tmp_path / "a.run"
    path.write_text("before")
    with pytest.raises(DataError) as caught:
        write_run(path, {"p": {"z": 1.0}, **results})
    for word in words:
        assert word in str(caught.value)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("tag", ["", "my tag", "tag\n"])
def test_a_tag_is_one_word(tag):
    with pytest.raises(ConfigError, match="run tag"):
        write_run(io.BytesIO(), {}, tag)


def test_a_large_run_is_written_as_a_small_one(tmp_path):
    hits = {f"d{n}": 1 / n for n in range(2000, 0, -1)}
    write_run(tmp_path / "a.run", {"q": hits, "p": {"d1": 1}}, "t")
    expected = [f"q Q0 d{n} {n} {1 / n!r} t" for n in range(1, 2001)] + ["p Q0 d1 1 1.0 t"]
    assert (tmp_path / "a.run").read_text().splitlines() == expected
    with pytest.raises(ConfigError, match=r"a\.run\.zst"):
        write_run(tmp_path / "a.run.zst", {})


# ---------------------------------------------------------------- quick and careful reading of tables


_BLANKS = "\x1c\x1d\x1e\x1f\u00a0\u0085\u1680\u2003\u2028\u202f\u205f\u3000"  # of Unicode, not of trec_eval
_ODD_LINES = [
    b"", b"  ", b"\t", b"\x0b", b"\r", b"q Q0 d 1 2.0 s\r", b"q Q0 d 1 2.0 s\r\r", b"q\rQ0 d 1 2.0 s",
    b"q\x0bQ0\x0cd 1 2.0 s", b" q Q0 d 1 2.0 s ", b"q Q0 d 1 2.0", b"q Q0 d 1 2.0 s t", b"2.0 s q Q0 d 1",
    b"q Q0 d\x1ce 1 2.0 s", b"q Q0 d\x00e 1 2.0 s", b"q Q0 \x00 1 2.0 s", b"q Q0 d 1 2.0 s \x00 q",
    *(f"q Q0 d{blank}e 1 2.0 s".encode() for blank in _BLANKS),
    *(f"q Q0 d{blank}1 2.0 s".encode() for blank in _BLANKS),
    "q\u00e9 Q0 d\u00e9 1 2.0 \u65e5".encode(), b"q Q0 d 1 2.0 \xff", b"q Q0 d\xe9 1 2.0 s",
    *(f"q_1 Q0 d_1 1 {score} s_1".encode() for score in ("10", "x", "nan", "inf", "-inf", "1_0", "\u0661")),
    b"q Q0 d 1 2.0\ns q Q0 d 1 2.0 s", b"q Q0 d 1 2.0 s \x00 q Q0 d 1 2.0 s\n\nQ0 d 1 2.0 s",
]  # fmt: skip
_plain_lines = st.builds(
    lambda query, document, score: f"{query} Q0 {document} 1 {score!r} s".encode(),
    st.sampled_from(["q", "p", "7"]),
    st.sampled_from(["d", "e", "f", "g"]),
    st.floats(-5, 5),
)


def _outcome(path):
    try:
        return [(query_id, list(scores.items())) for query_id, scores in read_run(path).items()]
    except DataError as error:
        return str(error)


@pytest.mark.parametrize("odd", _ODD_LINES)
def test_an_odd_line_in_a_block_gives_what_it_gives_alone(put, monkeypatch, odd):
    path = put("a.run", b"q Q0 z 1 0.5 s\n" + odd + b"\np Q0 y 1 0.25 s\n")
    block = _outcome(path)
    monkeypatch.setattr(runs, "_quick", lambda *_: None)
    assert block == _outcome(path)


@settings(deadline=None)
@given(st.lists(st.one_of(_plain_lines, _plain_lines, st.sampled_from(_ODD_LINES)), max_size=12), st.integers(1, 90))
def test_blocks_read_at_once_give_what_single_lines_give(tmp_path_factory, content, block_bytes):
    path = tmp_path_factory.mktemp("runs") / "a.run"
    path.write_bytes(b"q Q0 z 1 0.5 s\n" + b"\n".join(content))
    whole = _outcome(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block_bytes)
        assert _outcome(path) == whole
        patch.setattr(runs, "_quick", lambda *_: None)
        assert _outcome(path) == whole


def test_blanks_that_only_str_split_sees_are_known():
    unsure = {character for character in map(chr, range(0xD800)) if len(f"a{character}b".split()) > 1}
    unsure -= set(" \t\n\r\x0b\x0c")
    assert {character for character in map(chr, range(0xE000, 0x110000)) if character.isspace()} == set()
    assert {c for c in unsure if c.encode() in runs._UNSURE or runs._blanks(f"é{c}é".encode())} == unsure
    assert not any(runs._blanks(character.encode()) for character in map(chr, range(0xD800)) if character not in unsure)


def test_the_usual_file_is_read_a_block_at_a_time(put, monkeypatch):
    monkeypatch.setattr(runs, "_careful", None)
    content = "q  Q0 d 1 2.5 s\nq\tQ0\td\u00e9_1\t2  -1e3 tag \r\np Q0 d 1 inf s"
    assert read_run(put("a.run", content)) == {"q": {"d": 2.5, "d\u00e9_1": -1000.0}, "p": {"d": math.inf}}
    assert read_run(put("a.tsv", "q\td\t1\r\nq\te\t2\r\n")) == {"q": {"d": 1.0, "e": 0.5}}


def test_ids_are_kept_as_trec_eval_keeps_them(put):
    content = "q Q0 a\x1cb 1 5 s\nq Q0 c\u00a0d 2 4 s\nq Q0 007 3 3 s\nq Q0 e\x00f 4 2 s\nq Q0 \u3000 5 1 s\n"
    assert list(read_run(put("a.run", content))["q"]) == ["a\x1cb", "c\u00a0d", "007", "e\x00f", "\u3000"]


def test_equal_ids_share_one_string_until_there_are_many(put, monkeypatch):
    path = put("a.run", "".join(f"q{q} Q0 doc{d} 1 2 s\n" for q in range(3) for d in range(4)))
    assert len({id(doc_id) for scores in read_run(path).values() for doc_id in scores}) == 4
    monkeypatch.setattr(runs, "_SHARED_IDS", 3)
    expected = {f"q{q}": {f"doc{d}": 2.0 for d in range(4)} for q in range(3)}
    run = read_run(path)
    assert run == expected
    assert len({id(doc_id) for scores in run.values() for doc_id in scores}) == 12


def test_a_query_id_may_look_like_json(put):
    assert read_run(put("a.run", '{ Q0 d 1 2 s\n{"a":1} Q0 d 1 2 s\n')) == {"{": {"d": 2.0}, '{"a":1}': {"d": 2.0}}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_run_is_read_from_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"\n\nq Q0 d 1 2 s\n",))
    writer.start()
    assert read_run(pipe) == {"q": {"d": 2.0}}
    writer.join()


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_damaged_compressed_run_is_refused_with_the_last_good_line(put, suffix):
    content = "".join(f"q Q0 doc{n} 1 {n} s\n" for n in range(100_000)).encode()
    packed = gzip.compress(content, mtime=0) if suffix == ".gz" else pa.compress(content, "zstd", asbytes=True)
    assert len(read_run(put(f"a.run{suffix}", packed))["q"]) == 100_000
    for damaged in (packed[:-9], packed[: len(packed) // 2], b"no archive" * 9):
        with pytest.raises(DataError, match=rf"a\.run\{suffix}: the compressed file is damaged after line \d+: "):
            read_run(put(f"a.run{suffix}", damaged))
    with pytest.raises(DataError, match=r"after line [1-9]\d{3}"):
        read_run(put(f"a.run{suffix}", packed[:-9]))


# ---------------------------------------------------------------- MS MARCO


def test_msmarco_ranks_become_scores(put, caplog):
    path = put("run.tsv", "1\t10\t1\r\n1\t11\t2\n2\t10\t3\n2\ta b\t1\n\n1\t10\t4\n1\t12\t4\n1\t11\t1\n")
    with caplog.at_level(logging.WARNING):
        run = read_run(path)
    assert run == {"1": {"10": 1.0, "11": 1.0, "12": 0.25}, "2": {"10": 1 / 3, "a b": 1.0}}
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 2 lines repeat a document of the same query; its best score was kept"
    ]
    assert read_run(put("run.tsv.gz", gzip.compress(b"1\t10\t1\n1\t11\t2\n"))) == {"1": {"10": 1.0, "11": 0.5}}
    many = {"q": {f"d{rank}": 1 / rank for rank in range(1, 3001)}}
    assert read_run(put("run.tsv", "".join(f"q\td{rank}\t{rank}\n" for rank in range(1, 3001)))) == many


def test_msmarco_ranks_with_scores(put, caplog):
    assert read_run(put("run.tsv", "q\td\t1\t9.5\nq\te\t2\t-1\n")) == {"q": {"d": 9.5, "e": -1.0}}
    assert read_run(put("run.tsv", "0\t0\t1\t9.5\n")) == {"0": {"0": 9.5}}
    assert not caplog.records


def test_a_score_in_place_of_a_rank_is_noticed(put, caplog):
    with caplog.at_level(logging.WARNING):
        read_run(put("run.tsv", "q\td\t12\nq\te\t7\np\td\t1\n"))
    assert "1 query without a rank 1" in caplog.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("q\td\t1\nq\te\t0\n", ["line 2", "rank '0'", "whole number from 1"]),
        ("q\td\t1\nq\te\t-1\n", ["line 2", "rank '-1'"]),
        ("q\td\t1\nq\te\t1.5\n", ["line 2", "rank '1.5'"]),
        ("q\td\tfirst\n", ["line 1", "rank 'first'"]),
        ("qid\tpid\trank\nq\td\t1\n", ["line 1", "rank 'rank'"]),
        ("q\td\t1\nq\te\n", ["line 2", "2 columns", "expected 3: query_id doc_id rank"]),
        ("q\td\t1\nq\t\t2\n", ["line 2", "expected 3"]),
        ("q\td\t1\nq e\t2\n", ["line 2", "2 columns"]),
        ("q\td\t1\t9\nq\te\tx\t8\n", ["line 2", "rank 'x'"]),
        ("q\td\t1\t9\nq\te\t2\tx\n", ["line 2", "score 'x'"]),
        ("q\t0\td7\t1\n", ["q\\t0\\td7", "looks like judgements"]),
        ("q\t0\t77\t1\n", ["looks like judgements"]),
        ("q d 1\n", ["line 1", "3 columns", "expected 6"]),
        ("q 0 d 1\n", ["line 1", "4 columns", "expected 6"]),
    ],
)  # fmt: skip
def test_unusable_msmarco_lines_are_refused_with_their_place(put, content, words):
    with pytest.raises(DataError) as caught:
        read_run(put("run.tsv", content))
    for word in [*words, "run.tsv"]:
        assert word in str(caught.value)

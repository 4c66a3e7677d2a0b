"""Inputs of public bug reports, handed to the project as `shared/cases` beside the checkout, against the product.

A test is named after its case. The models are random, so what is asked holds for every encoder: a query that
equals a document's text finds it first, with a cosine of 1.
"""

import csv
import io
import json
import logging
import math
import os
import pickletools
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from forked import Processes, public_folder

from retrieval import CrossEncoder, DataError, Retriever
from retrieval.cli import main
from retrieval.index.manifest import Manifest
from retrieval.index.reader import Index
from retrieval.qrels import read_qrels
from retrieval.queries import read_queries
from retrieval.ranking import Candidate, ordered
from retrieval.runs import read_run

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason="the handed cases (../shared/cases from the repository root) are not here"
)
ONE = pytest.approx(1.0, abs=1e-5)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """The command line sets logging up for its own process; here the next test would inherit a closed stream."""
    root, ours = logging.getLogger(), logging.getLogger("retrieval")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tiny models gain nothing from threads, and on a busy machine these wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def retrieve(*arguments: object, stdin: bytes | None = None, code: int = 0) -> Result:
    """Run the command line in this process; a traceback is raised here."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def refused(*arguments: object, stdin: bytes | None = None) -> str:
    """Run a command that must fail: exit 1, nothing on stdout, one line of error, which is returned."""
    result = retrieve(*arguments, stdin=stdin, code=1)
    *others, message = result.stderr.splitlines()
    assert result.stdout == ""
    assert message.startswith("error: ")
    assert not any(line.startswith(("error", "Traceback")) for line in others)
    return message


def build(corpus: Path, work: Path, model: Path, *options: object) -> tuple[Path, str]:
    """Build an index in an empty folder; return it and what was said."""
    index = work / "idx"
    return index, retrieve("build-index", corpus, index, "--model", model, *options).stderr


def ask(index: Path, *arguments: object, stdin: bytes | None = None) -> dict[str, list[dict[str, Any]]]:
    """Hits by query id, found by vectors: the cases speak of cosines."""

    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    lines = retrieve("query", index, *arguments, "--mode", "dense", "--json", stdin=stdin).stdout.split("\n")
    answers = [json.loads(line, parse_constant=no_constant) for line in lines if line]
    return {answer["query_id"]: answer["hits"] for answer in answers}


def hits(index: Path, text: str, k: int, *options: object) -> list[dict[str, Any]]:
    return ask(index, text, "-k", k, *options)["1"]


def ids(found: Sequence[dict[str, Any]]) -> list[str]:
    return [hit["doc_id"] for hit in found]


def first(index: Path, text: str) -> tuple[str, float]:
    (hit,) = hits(index, text, 1)
    return hit["doc_id"], hit["score"]


def stored(index: Path) -> dict[str, str]:
    """Texts by id, in the index's order; every row has a vector of its own."""
    opened = Index.open(index)
    texts: dict[str, str] = {}
    rows = 0
    for batch, vectors in opened.batches():
        assert len(vectors) == batch.num_rows
        rows += batch.num_rows
        texts.update(zip(batch["doc_id"].to_pylist(), batch["text"].to_pylist(), strict=True))
    assert rows == opened.manifest.passages == opened.rows.rows
    return texts


def records(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().decode("utf-8-sig").split("\n")
    return [json.loads(line) for line in lines if line.strip()]


def texts(path: Path) -> dict[str, str]:
    return {str(record["_id"]): record["text"] for record in records(path)}


def ranks(scores: dict[str, float], grades: dict[str, int]) -> list[int]:
    """Ranks of the relevant documents, by the project's own order."""
    order = ordered(Candidate(score=s, doc_id=d, passage=0, row=0) for d, s in scores.items())
    return [rank for rank, c in enumerate(order, 1) if grades.get(c.doc_id, 0) > 0]


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# Corpora as JSONL


def test_jl01_byte_order_mark(tiny: Any, tmp_path: Path) -> None:
    case = CASES / "JL01"
    assert (case / "corpus.jsonl").read_bytes().startswith(b"\xef\xbb\xbf")
    index, _ = build(case / "corpus.jsonl", tmp_path, tiny("mean"))
    assert list(stored(index)) == ["a", "b", "c"]
    assert first(index, texts(case / "corpus.jsonl")["a"]) == ("a", ONE)
    qrels, run, queries = (
        read_qrels(case / "qrels.txt"),
        read_run(case / "run.txt"),
        read_queries(case / "queries.jsonl"),
    )
    assert list(qrels) == list(run) == list(queries) == ["q1", "q2"]
    assert [ranks(run[q], qrels[q]) for q in qrels] == [[1], [1]]
    found = ask(index, "--queries", case / "queries.jsonl", "-k", 1)
    assert {query: ids(hits) for query, hits in found.items()} == {"q1": ["a"], "q2": ["c"]}


def test_jl02_unicode_line_separators(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "JL02" / "corpus.jsonl"
    index, _ = build(corpus, tmp_path, tiny("mean"))
    expected = texts(corpus)
    assert expected["d1"][5] == "\u2028"
    assert stored(index) == expected
    assert list(expected) == ["d1", "d2", "d3", "d4"]
    found = hits(index, expected["d4"], 4)
    assert found[0]["doc_id"] == "d4" and found[0]["score"] == ONE
    assert {hit["doc_id"]: hit["text"] for hit in found} == expected


def test_jl03_duplicate_ids(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "JL03" / "corpus.jsonl"
    message = refused("build-index", corpus, tmp_path / "idx", "--model", tiny("mean"))
    assert "'a'" in message and "corpus.jsonl" in message
    assert "line 1" in message and "line 3" in message
    assert list(tmp_path.iterdir()) == []
    index, said = build(corpus, tmp_path, tiny("mean"), "--on-bad", "skip")
    assert "1 bad record left out" in said
    by_text = {record["text"]: record["_id"] for record in records(corpus)}
    assert list(stored(index)) == ["a", "b", "c"]
    for text in ("yellow banana", "green pear"):
        found = hits(index, text, 4)
        assert (found[0]["doc_id"], found[0]["score"]) == (by_text[text], ONE)
        assert sorted(ids(found)) == ["a", "b", "c"]


def test_jl04_ids_that_are_numbers(tiny: Any, tmp_path: Path) -> None:
    case = CASES / "JL04"
    index, _ = build(case / "corpus.jsonl", tmp_path, tiny("mean"))
    assert list(stored(index)) == ["1", "2", "10", "9007199254740993"]
    run = tmp_path / "run.txt"
    retrieve("query", index, "--queries", case / "queries.jsonl", "--format", "trec", "--output", run)
    qrels, found = read_qrels(case / "qrels.txt"), read_run(run)
    assert list(found) == list(qrels) == ["1", "2"]
    assert [ranks(found[q], qrels[q]) for q in qrels] == [[1], [1]]
    clash = case / "corpus_clash.jsonl"
    message = refused("build-index", clash, tmp_path / "clash", "--model", tiny("mean"))
    assert "'1'" in message and "line 1" in message and "line 2" in message
    index = tmp_path / "clash"
    retrieve("build-index", clash, index, "--model", tiny("mean"), "--on-bad", "skip")
    assert list(stored(index)) == ["1", "01"]


def test_jl05_missing_title_or_text(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "JL05" / "corpus.jsonl"
    message = refused("build-index", corpus, tmp_path / "idx", "--model", tiny("mean"))
    assert "line 3" in message and "line 5" in message
    assert list(tmp_path.iterdir()) == []
    index, said = build(corpus, tmp_path, tiny("mean"), "--on-bad", "skip")
    assert "2 bad records left out" in said
    found = hits(index, records(corpus)[0]["text"], 5)
    assert (found[0]["doc_id"], found[0]["score"]) == ("d1", ONE)
    assert sorted(ids(found)) == ["d1", "d2", "d4"]
    for hit in found:
        assert not {"none", "null", "nan"} & set(f"{hit['title']} {hit['text']}".lower().split())


def test_jl06_empty_documents_shift_nothing(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "JL06" / "corpus.jsonl"
    index, said = build(corpus, tmp_path, tiny("mean"))
    expected = texts(corpus)
    assert stored(index) == expected and len(expected) == 6
    assert "3 documents without text (kept, never found)" in said
    for doc_id in ("d1", "d4", "d6"):
        assert first(index, expected[doc_id]) == (doc_id, ONE)
    assert sorted(ids(hits(index, expected["d1"], 6))) == ["d1", "d4", "d6"]


def test_jl09_metadata_of_changing_type(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "JL09" / "corpus.jsonl"
    index, said = build(corpus, tmp_path, tiny("mean"))
    assert "note: " in said and "metadata" in said
    given = {record["_id"]: record for record in records(corpus)}
    found = hits(index, given["d2"]["text"], 5)
    assert found[0]["doc_id"] == "d2" and len(found) == 5
    for hit in found:
        assert hit["metadata"] == {"metadata": given[hit["doc_id"]]["metadata"]}, hit["doc_id"]


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("corpus.jsonl", 3, ["JSON"]),
        ("corpus_mid.jsonl", 2, ["JSON"]),
        ("corpus_nokey.jsonl", 2, ["_id", "docno", "contents"]),
    ],
)
def test_jl11_broken_lines_are_named(tiny: Any, tmp_path: Path, name: str, line: int, words: list[str]) -> None:
    message = refused("build-index", CASES / "JL11" / name, tmp_path / "idx", "--model", tiny("mean"))
    assert f"{name}, line {line}:" in message
    assert all(word in message for word in words)
    assert list(tmp_path.iterdir()) == []


# Tables and columns

_FIELDS = ("--id-field", "id", "--text-field", "text")


def test_tb01_quoted_cells(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "TB01" / "corpus.csv"
    rows = list(csv.DictReader(io.StringIO(corpus.read_bytes().decode(), newline="")))
    index, _ = build(corpus, tmp_path, tiny("mean"), *_FIELDS)
    found = stored(index)
    assert list(found) == ["d1", "d2", "d3", "d4"]
    assert found == {row["id"]: row["text"] for row in rows}
    assert found["d2"].split("\n") == ["def f(x):", '    return "x, y"', ""]
    assert "<td>" in found["d3"]
    top = hits(index, found["d4"], 4)
    assert (top[0]["doc_id"], top[0]["score"]) == ("d4", ONE)
    assert {hit["doc_id"]: hit["metadata"] for hit in top} == {row["id"]: {"notes": row["notes"]} for row in rows}


def test_tb02_a_quote_in_tsv_is_a_character(tiny: Any, tmp_path: Path) -> None:
    case = CASES / "TB02"
    index, _ = build(case / "corpus.tsv", tmp_path, tiny("mean"))
    rows = dict(line.split("\t") for line in (case / "corpus.tsv").read_text().splitlines())
    assert stored(index) == rows and len(rows) == 6
    found = ask(index, "--queries", case / "queries.tsv", "-k", 1)
    assert list(found) == ["q1", "q2", "q3"]
    assert (found["q3"][0]["doc_id"], found["q3"][0]["score"]) == ("3", ONE)
    asked = dict(line.split("\t") for line in (case / "queries.tsv").read_text().splitlines())
    assert read_queries(case / "queries.tsv") == asked


def test_tb04_no_cell_is_anything_but_text(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "TB04" / "corpus.csv"
    index, _ = build(corpus, tmp_path, tiny("mean"), *_FIELDS)
    rows = [line.split(",") for line in corpus.read_text().splitlines()[1:]]
    assert list(stored(index).items()) == [(doc_id, text) for doc_id, text in rows]
    assert [doc_id for doc_id, _ in rows] == ["007", "7", "1e5", "NA", "True", "0012", "9007199254740993", "null"]
    found = hits(index, dict(rows)["0012"], 8)
    assert (found[0]["doc_id"], found[0]["score"]) == ("0012", ONE)
    assert len(found) == 8


def test_tb06_other_encodings(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "TB06" / "corpus.csv"
    message = refused("build-index", corpus, tmp_path / "idx", "--model", tiny("mean"), *_FIELDS)
    assert "corpus.csv, line 2" in message and "0xe9" in message and "--encoding" in message
    assert list(tmp_path.iterdir()) == []
    index, _ = build(corpus, tmp_path, tiny("mean"), *_FIELDS, "--encoding", "cp1252")
    expected = dict(line.split(",") for line in corpus.read_bytes().decode("cp1252").splitlines()[1:])
    assert stored(index) == expected
    assert expected["d1"] == "café \u201csmart\u201d quotes" and expected["d2"] == "naïve Größe"


def test_tb06_the_locale_decides_nothing(tmp_path: Path) -> None:
    script = (
        "import json, sys\n"
        "from retrieval.documents import DocumentSettings, DocumentStream\n"
        "stream = DocumentStream([sys.argv[1]], DocumentSettings(encoding=sys.argv[2]))\n"
        "print(json.dumps([text for batch in stream for text in batch['text'].to_pylist()]))\n"
    )
    utf8 = tmp_path / "utf8.csv"
    expected = (CASES / "TB06" / "corpus.csv").read_bytes().decode("cp1252")
    utf8.write_bytes(expected.encode())
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    for corpus, encoding in ((CASES / "TB06" / "corpus.csv", "cp1252"), (utf8, "utf-8")):
        command = [sys.executable, "-c", script, corpus, encoding]
        printed = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
        assert json.loads(printed) == [line.split(",")[1] for line in expected.splitlines()[1:]]


def test_pq01_odd_column_types(tiny: Any, tmp_path: Path) -> None:
    case = CASES / "PQ01"
    (tmp_path / "twin").mkdir()
    index, _ = build(case / "corpus.parquet", tmp_path, tiny("mean"), *_FIELDS)
    twin, _ = build(case / "twin.jsonl", tmp_path / "twin", tiny("mean"))
    expected = texts(case / "twin.jsonl")
    assert list(stored(index).items()) == list(stored(twin).items()) == list(expected.items())
    assert len(expected) == 6
    ours, theirs = hits(index, expected["d4"], 6), hits(twin, expected["d4"], 6)
    assert (ours[0]["doc_id"], ours[0]["score"]) == ("d4", ONE)
    assert [(hit["doc_id"], hit["text"]) for hit in ours] == [(hit["doc_id"], hit["text"]) for hit in theirs]
    assert [hit["score"] for hit in ours] == pytest.approx([hit["score"] for hit in theirs], abs=1e-6)
    languages = {row["id"]: row["lang"] for row in pq.read_table(case / "corpus.parquet").to_pylist()}
    assert {hit["doc_id"]: hit["metadata"]["lang"] for hit in ours} == languages
    view = tmp_path / "view"
    retrieve("build-index", case / "corpus_view.parquet", view, "--model", tiny("mean"))
    assert list(stored(view).items()) == list(expected.items())[:3]


def test_pq03_integer_ids_stay_integers(tiny: Any, tmp_path: Path) -> None:
    case = CASES / "PQ03"
    index, _ = build(case / "int64.parquet", tmp_path, tiny("mean"), *_FIELDS)
    assert list(stored(index)) == ["1", "2", "9007199254740993"]
    qrels, found = read_qrels(case / "qrels.txt"), ask(index, "--queries", case / "queries.jsonl")
    assert {query: ids(found[query])[0] for query in qrels} == {q: next(iter(grades)) for q, grades in qrels.items()}
    shutil.rmtree(index)
    message = refused("build-index", case / "int64_null.parquet", index, "--model", tiny("mean"), *_FIELDS)
    assert "int64_null.parquet, row 2" in message
    index, said = build(case / "int64_null.parquet", tmp_path, tiny("mean"), *_FIELDS, "--on-bad", "skip")
    assert list(stored(index)) == ["1", "9007199254740993"] and "1 bad record left out" in said
    message = refused("build-index", case / "float64.parquet", tmp_path / "f", "--model", tiny("mean"), *_FIELDS)
    assert "float64.parquet" in message and "double" in message
    assert not (tmp_path / "f").exists()


# Folders of source files


def test_rc01_odd_files_of_a_repository(tiny: Any, tmp_path: Path) -> None:
    repository = CASES / "RC01" / "repo"
    rejects = tmp_path / "rejects.jsonl"
    index, said = build(repository, tmp_path, tiny("mean"), "--rejects", rejects)
    found = stored(index)
    assert set(found) == {
        "Makefile", "latin1.py", "nb/demo.ipynb", "sp ace/ünï cödé.md", "src/good.py", "utf16.txt", "win/crlf.bat",
    }  # fmt: skip
    assert "café" in found["latin1.py"]
    assert found["utf16.txt"] == (repository / "utf16.txt").read_bytes().decode("utf-16")
    assert "train_model" in found["nb/demo.ipynb"] and "iVBOR" not in "".join(found.values())
    assert "\ufffd" not in "".join(found.values())
    reasons = {Path(reject["file"]).name: reject["reason"] for reject in records(rejects)}
    assert reasons == {
        "binary.py": "binary", "empty.py": "empty", "blank.md": "empty",
        "broken.ipynb": "broken notebook", "app.min.js": "minified",
    }  # fmt: skip
    for reason in reasons.values():
        assert f" skipped ({reason})" in said
    question = (repository / "src" / "good.py").read_text().splitlines()[0]
    assert "src/good.py" in ids(hits(index, question, 7))


def test_rc02_links_and_pipes(tiny: Any, tmp_path: Path) -> None:
    subprocess.run(["sh", CASES / "RC02" / "setup.sh", tmp_path / "rc02"], check=True)
    repository = tmp_path / "rc02" / "repo"
    assert stat.S_ISFIFO((repository / "pipe.py").stat().st_mode)
    started = time.monotonic()
    index, said = build(repository, tmp_path, tiny("mean"))
    assert time.monotonic() - started < 30
    assert list(stored(index)) == ["pkg/a.py", "pkg/sub/b.py"]
    canary = (tmp_path / "rc02" / "outside" / "secret.py").read_text().strip()
    assert all(canary not in hit["text"] for hit in hits(index, canary, 10))
    assert (
        "6 files and folders skipped (symbolic link)" in said
        and "1 file or folder skipped (not a regular file)" in said
    )


def test_rc04_ignore_files_of_every_level(tiny: Any, tmp_path: Path) -> None:
    subprocess.run(["sh", CASES / "RC04" / "setup.sh", tmp_path / "rc04"], check=True)
    index, said = build(tmp_path / "rc04", tmp_path, tiny("mean"))
    assert list(stored(index)) == ["core/deps/y.py", "core/lib/z.py"]  # .log is no suffix of texts
    assert "2 files and folders skipped (ignored by .gitignore)" in said
    index = tmp_path / "wanted"
    retrieve("build-index", tmp_path / "rc04", index, "--model", tiny("mean"), "--include", "keep.log")
    assert list(stored(index)) == ["core/deps/y.py", "core/lib/z.py", "logs/keep.log"]


# Edges of an index


def test_ix01_fewer_documents_than_asked_for(tiny: Any, tmp_path: Path) -> None:
    case = CASES / "IX01"
    index, _ = build(case / "corpus.jsonl", tmp_path, tiny("mean"))
    text = texts(case / "corpus.jsonl")["a"]
    found = hits(index, text, 10)
    assert (found[0]["doc_id"], found[0]["score"]) == ("a", ONE)
    assert sorted(ids(found)) == ["a", "b", "c"]
    assert all(-1.00001 <= hit["score"] <= 1.00001 for hit in found)
    for k in ("0", "-1"):
        assert retrieve("query", index, text, "--k", k, code=2).stdout == ""
    batch = ask(index, "--queries", case / "queries.jsonl", "-k", 10)
    assert len(batch) == 25
    assert all(answer == found for answer in batch.values())


@pytest.mark.parametrize("name", ["empty.jsonl", "blank.jsonl", "header_only.csv", "empty.parquet", "folder"])
def test_ix02_nothing_to_index(tiny: Any, tmp_path: Path, name: str) -> None:
    message = refused("build-index", CASES / "IX02" / name, tmp_path / "idx", "--model", tiny("mean"))
    assert "no documents in" in message and name in message
    assert list(tmp_path.iterdir()) == []


def test_ix02_an_empty_index_has_no_hits(tiny: Any, tmp_path: Path) -> None:
    index, _ = build(CASES / "IX01" / "corpus.jsonl", tmp_path, tiny("mean"))
    retrieve("delete", index, "a", "b", "c")
    queries = list(texts(CASES / "IX02" / "queries.jsonl").values())
    assert len(queries) == 25
    for _ in ("deleted", "compacted"):
        retriever = Retriever.open(index)
        assert retriever.search_many(queries, 1) == [[]] * 25
        assert retriever.index.manifest.documents == 0
        retrieve("compact", index)


@pytest.mark.parametrize("kind", ["flat", "ivf", "ivfpq", "hnsw"])
def test_ix04_fewer_documents_than_centroids(tiny: Any, tmp_path: Path, kind: str) -> None:
    corpus = CASES / "IX04" / "corpus.jsonl"
    index, said = build(corpus, tmp_path, tiny("mean"), "--index-type", kind)
    if kind.startswith("ivf"):
        assert "5 passages" in said and "exact" in said
    found = hits(index, texts(corpus)["d2"], 5)
    assert (found[0]["doc_id"], found[0]["score"]) == ("d2", ONE)
    assert sorted(ids(found)) == ["d0", "d1", "d2", "d3", "d4"]


def test_ix05_ties_have_one_order(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "IX05" / "corpus.jsonl"
    index, _ = build(corpus, tmp_path, tiny("mean"))
    text = texts(corpus)["dup0"]
    six = hits(index, text, 6)
    assert ids(six) == ["dup5", "dup4", "dup3", "dup2", "dup1", "dup0"]
    assert len({hit["score"] for hit in six}) == 1 and six[0]["score"] == ONE
    assert hits(index, text, 3) == six[:3]
    batch = ask(index, "-", "-k", 6, stdin=f"{text}\n".encode() * 25)
    assert len(batch) == 25 and all(answer == six for answer in batch.values())


def test_ix07_a_model_of_another_dimension(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "IX07" / "corpus.jsonl"
    index, _ = build(corpus, tmp_path, tiny("mean"))
    text = texts(corpus)["a"]
    message = refused("query", index, text, "-k", 3, "--model", tiny("dim48"))
    assert all(part in message for part in ("mean", "32", "dim48", "48"))
    message = refused("query", index, text, "-k", 3, "--model", tiny("other"))  # same dimension, other weights
    assert "mean" in message and "other" in message
    assert first(index, text) == ("a", ONE)


def test_ix10_damage_is_named(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "IX10" / "corpus.jsonl"
    index, _ = build(corpus, tmp_path, tiny("mean"))
    retrieve("delete", index, "b")  # so that there is a file of deleted rows
    text = texts(corpus)["a"]
    sound = hits(index, text, 3)
    assert ids(sound) in (["a", "c"], ["c", "a"]) and len(tree(index)) == 6
    command = [sys.executable, CASES / "IX10" / "damage.py", index, tmp_path / "bad"]
    copies = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(copies) == 6 * 4
    for copy in map(Path, copies):
        message = refused("query", copy, text, "-k", 3)
        (name,) = [path for path in tree(index) if copy.name.startswith(path.replace("/", "_"))]
        assert name in message, copy.name
        assert "rebuild" in message, message


def test_ix12_no_file_of_an_index_is_run(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = CASES / "IX12" / "corpus.jsonl"
    index, _ = build(corpus, tmp_path, tiny("mean"))
    text = texts(corpus)["a"]
    sound = hits(index, text, 1)
    for path, data in tree(index).items():
        with pytest.raises(ValueError):
            pickletools.dis(data, out=io.StringIO())
        assert not path.endswith((".pkl", ".pickle", ".joblib", ".pt"))
    command = [sys.executable, CASES / "IX12" / "plant.py", index, tmp_path / "evil"]
    copies = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(copies) == len(tree(index)) + 9
    for copy in map(Path, copies):
        if copy.name.startswith("extra_"):
            assert hits(copy, text, 1) == sound
        else:
            assert "rebuild" in refused("query", copy, text, "-k", 1)
    assert not (tmp_path / "pickle_was_executed.marker").exists()


def test_ix15_names_with_blanks_and_letters(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (corpus,) = (CASES / "IX15").rglob("*.jsonl")
    assert not corpus.name.isascii() and " " in str(corpus) and "%20" in corpus.name
    text = texts(corpus)["a"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copyfile(corpus, tmp_path / "-c.jsonl")
    for source, index in [
        (str(corpus), str(tmp_path / "íñdex öf 東京")),
        (os.path.relpath(corpus, tmp_path), "relative #1%20"),
        (str(corpus), f"{tmp_path}/slash/"),
        (str(corpus), "~/of home"),
        ("-c.jsonl", "-index"),
    ]:
        retrieve("build-index", "--model", tiny("mean"), "--", source, index)
        found = retrieve("query", "--json", "-k", "1", "--mode", "dense", "--", index, text).stdout
        (hit,) = json.loads(found)["hits"]
        assert (hit["doc_id"], hit["score"]) == ("a", ONE)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"-c.jsonl", "íñdex öf 東京", "relative #1%20", "slash", "of home", "-index"}


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@pytest.mark.parametrize("model", ["mean", "dot"])
def test_ix17_a_cosine_is_a_cosine(tiny: Any, tmp_path: Path, model: str, kind: str) -> None:
    corpus = CASES / "IX17" / "corpus.jsonl"
    index, _ = build(corpus, tmp_path, tiny(model), "--index-type", kind)
    asked = texts(corpus)["a"]
    found = hits(index, asked, 4)
    scores = [hit["score"] for hit in found]
    assert len(scores) == 4 and scores == sorted(scores, reverse=True)
    facts = json.loads(retrieve("info", index, "--json").stdout)
    metric = "cosine" if model == "mean" else "dot"
    assert facts["encoder metric"] == metric and metric in facts["vectors"]
    if metric == "cosine":
        assert all(-1.00001 <= score <= 1.00001 for score in scores)
        assert (found[0]["doc_id"], scores[0]) == ("a", ONE)
    else:
        opened = Index.open(index)
        vectors = np.concatenate([block for _, block in opened.batches()]).astype(np.float64)
        best = vectors @ vectors[0]  # passage 0 is the document that the query equals
        assert scores[0] == pytest.approx(best.max(), rel=1e-5)


# The life of an index in processes of its own


def test_ix09_killed_builds(tiny: Any, tmp_path: Path, processes: Processes) -> None:
    for count in (100, 400):
        maker = [sys.executable, CASES / "IX09" / "make_corpus.py", str(count)]
        (tmp_path / f"{count}.jsonl").write_bytes(subprocess.run(maker, capture_output=True, check=True).stdout)
    old, new = texts(tmp_path / "100.jsonl"), texts(tmp_path / "400.jsonl")
    work = tmp_path / "work"
    work.mkdir()
    index, _ = build(tmp_path / "100.jsonl", work, tiny("mean"))
    before = tree(index)
    command = ("build-index", tmp_path / "400.jsonl", "--model", tiny("mean"))
    killed = 0
    for changes in (1, 2, 3, 4, 6, 8):
        code = processes(*command, index, "--overwrite", watch=work, changes=changes)
        assert code in (0, -signal.SIGKILL), processes.stderr
        killed += code != 0
        found = hits(index, new["d333"], 5)
        committed = tree(index)["manifest.json"] != before["manifest.json"]  # where the build was quicker this time
        assert committed or before.items() <= tree(index).items()
        expected = new if committed else old
        assert stored(index) == expected
        assert len(found) == 5 and all(expected[hit["doc_id"]] == hit["text"] for hit in found)
    assert killed >= 3
    assert processes(*command, work / "fresh", watch=work, changes=3) == -signal.SIGKILL
    assert "no index" in refused("query", work / "fresh", new["d1"])
    for path in (index, work / "fresh"):
        assert processes(*command, path, "--overwrite") == 0, processes.stderr
        assert stored(path) == new
        assert first(path, new["d333"]) == ("d333", ONE)
        assert set(tree(path)) == {"manifest.json", *(file.path for file in Manifest.read(path).files())}
    assert sorted(path.name for path in work.iterdir()) == ["fresh", "idx"]
    assert "--overwrite" in refused(*command, index)


def test_ix14_read_only_places(tiny: Any, processes: Processes) -> None:
    case = CASES / "IX14"
    text = texts(case / "corpus.jsonl")["a"]
    with public_folder() as (work, user):
        model = shutil.copytree(tiny("mean"), work / "model")
        for path in model.rglob("*"):
            path.chmod(path.stat().st_mode | 0o444)
        index = work / "idx"
        command = ("build-index", case / "corpus.jsonl", "--model", model)
        assert processes(*command, index, user=user) == 0, processes.stderr
        for path in [index, *index.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
        work.chmod(0o555)
        before = tree(work)
        asked = ("query", index, text, "-k", 1, "--mode", "dense", "--reranker", "none", "--json")
        assert processes(*asked, user=user) == 0, processes.stderr
        (hit,) = json.loads(processes.stdout)["hits"]
        assert (hit["doc_id"], hit["score"]) == ("a", ONE)
        assert tree(work) == before
        # A corpus with a broken line: that it is not complained of shows that nothing was read or encoded yet.
        broken = ("build-index", CASES / "JL11" / "corpus_mid.jsonl", "--model", model)
        for place in (work / "new", index / "inside", index):
            assert processes(*broken, place, "--overwrite", user=user) == 1
            assert processes.stderr.count("\n") == 1 and processes.stderr.startswith("error: ")
            assert "permission denied" in processes.stderr.lower() and str(work) in processes.stderr
        assert tree(work) == before
        work.chmod(0o755)


def test_ix14_full_disk(tiny: Any, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        corpus = tmp_path / "c.jsonl"
        corpus.write_text("".join(json.dumps({"_id": i, "text": f"text {i}"}) + "\n" for i in range(2000)))
        message = refused("build-index", corpus, disk / "idx", "--model", tiny("mean"))
        assert "no space left" in message.lower() and str(disk) in message
        assert not (disk / "idx").exists()
    finally:
        subprocess.run(["umount", disk], check=True)


# Queries


def test_qe01_queries_without_tokens(tiny: Any, tmp_path: Path) -> None:
    case = CASES / "QE01"
    index, _ = build(case / "corpus.jsonl", tmp_path, tiny("mean"))
    run = tmp_path / "run.txt"
    asked = ("query", index, "--queries", case / "queries.jsonl", "-k", 1, "--mode", "dense")
    result = retrieve(*asked, "--output", run)
    assert read_run(run) == {"q1": {"a": ONE}, "q5": {"c": ONE}}
    (warning,) = [line for line in result.stderr.splitlines() if "empty" in line]
    assert all(name in warning for name in ("q2", "q3", "q6"))
    found = ask(index, "--queries", case / "queries.jsonl", "-k", 1)
    assert {query: ids(hits) for query, hits in found.items()} == {
        "q1": ["a"], "q2": [], "q3": [], "q4": [], "q5": ["c"], "q6": [],
    }  # fmt: skip
    assert retrieve("query", index, "", "-k", 1, code=2).stdout == ""
    retriever = Retriever.open(index)
    assert retriever.search_many([]) == []
    assert retriever.search("") == []


def test_qe02_input_beyond_the_limit(tiny: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    case = CASES / "QE02"
    index, said = build(case / "corpus.jsonl", tmp_path, tiny("mean"))
    assert "1 text in windows" in said
    question = (case / "long_query.txt").read_text()
    result = retrieve("query", index, "-", "-k", 2, "--json", stdin=question.encode())
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("WARNING")]
    assert "1 " in warning and "128" in warning
    tokenizer = AutoTokenizer.from_pretrained(tiny("mean"))
    tokens = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    head = question[: tokens["offset_mapping"][125][1]]
    assert tokenizer(head, add_special_tokens=False)["input_ids"] == tokens["input_ids"][:126]
    same = retrieve("query", index, "-", "-k", 2, "--json", stdin=head.encode())
    assert json.loads(same.stdout)["hits"] == json.loads(result.stdout)["hits"]
    assert "WARNING" not in same.stderr
    limit = refused("build-index", case / "corpus.jsonl", tmp_path / "i", "--model", tiny("mean"), "--max-length", 129)
    assert "129" in limit and "128" in limit


def test_qe04_pooling_is_the_models_own(tiny: Any, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    corpus = CASES / "QE04" / "corpus.jsonl"
    index, said = build(corpus, tmp_path, tiny("cls"))
    assert "WARNING" not in said
    vectors = np.concatenate([block for _, block in Index.open(index).batches()])
    model = SentenceTransformer(str(tiny("cls")), device="cpu", local_files_only=True)
    expected = model.encode(list(texts(corpus).values()), normalize_embeddings=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    plain, said = build(corpus, tmp_path / "plain", tiny("plain"))
    (warning,) = [line for line in said.splitlines() if line.startswith("WARNING")]
    assert "mean" in warning
    assert json.loads(retrieve("info", plain, "--json").stdout)["encoder pooling"] == "mean"


def test_qe04_no_such_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def download(*_: object, **__: object) -> None:
        raise AssertionError("asked the hub")

    corpus = CASES / "QE04" / "corpus.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(huggingface_hub, "snapshot_download", download)
        message = refused("build-index", corpus, tmp_path / "idx", "--model", "./no/such/dir")
    assert "no such model" in message and "./no/such/dir" in message
    started = time.monotonic()
    message = refused("build-index", corpus, tmp_path / "idx", "--model", "models/typo")
    assert time.monotonic() - started < 10
    assert "models/typo" in message and "neither a folder nor a hub model" in message
    assert list(tmp_path.iterdir()) == []


def test_qe05_queries_from_standard_input(tiny: Any, tmp_path: Path, processes: Processes) -> None:
    case = CASES / "QE05"
    index, _ = build(case / "corpus.jsonl", tmp_path, tiny("mean"))
    lines = (case / "crlf.txt").read_bytes()
    assert b"\r\n\r\n" in lines
    said = retrieve("query", index, "-", "-k", 1, "--mode", "dense", "--json", stdin=lines).stdout
    answers = [json.loads(line) for line in said.splitlines()]
    assert [answer["query"] for answer in answers] == [line for line in lines.decode().split("\r\n") if line]
    assert [(a["hits"][0]["doc_id"], a["hits"][0]["score"]) for a in answers] == [("a", ONE), ("c", ONE)]
    message = refused("query", index, "-", "-k", 1, stdin=(case / "latin1.txt").read_bytes())
    assert "line 1" in message and "0xe9" in message
    result = CliRunner().invoke(main, ["query", str(index), "-"], input=b"")
    assert result.exit_code == 2 and "no queries" in result.stderr and result.stdout == ""
    code = processes("query", index, texts(case / "corpus.jsonl")["a"], "-k", 3, reader=False)
    assert "Traceback" not in processes.stderr and "Exception" not in processes.stderr, processes.stderr
    assert code in (0, 1, -signal.SIGPIPE)


def test_qe07_two_openmp_runtimes(tiny: Any, tmp_path: Path) -> None:
    orders = CASES / "QE07" / "orders.py"
    product = (
        "import os, sys\n"
        "from retrieval.cli import main\n"
        "corpus, index, model, reranker = sys.argv[1:]\n"
        "main(['build-index', corpus, index, '--model', model], standalone_mode=False)\n"
        "main(['query', index, 'red', '--json', '--reranker', reranker], standalone_mode=False)\n"
        "assert os.environ['KMP_DUPLICATE_LIB_OK'] == 'FALSE'\n"
    )
    arguments = [CASES / "QE10" / "corpus.jsonl", tmp_path / "idx", tiny("mean"), tiny("cross1")]
    environment = {**os.environ, "KMP_DUPLICATE_LIB_OK": "FALSE"}  # scikit-learn sets it where it is not set
    for command, lines in (
        ([orders], 2),
        ([orders, "faiss", "torch"], 2),
        (["-c", product, *arguments], 1),
    ):
        done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == lines and "OMP: " not in done.stderr


def test_qe10_results_are_plain_json(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "QE10" / "corpus.jsonl"
    index, _ = build(corpus, tmp_path, tiny("mean"))
    text = texts(corpus)["a"]
    retriever = Retriever.open(index, reranker=tiny("cross1"))
    for rerank in (False, True):
        found = retriever.search(text, 3, rerank=rerank)
        assert [hit.rank for hit in found] == [1, 2, 3]
        for hit in found:
            assert json.loads(json.dumps(hit.to_dict(), allow_nan=False)) == hit.to_dict()
            numbers = [hit.score, hit.retrieval_score]
            numbers += [hit.rerank_score, hit.rerank_probability] if rerank else []
            assert all(type(number) is float for number in numbers)
            assert type(hit.doc_id) is str and type(hit.rank) is int
    assert [hit["rank"] for hit in hits(index, text, 3)] == [1, 2, 3]


# Reranking


@pytest.mark.parametrize("labels", [1, 2])
def test_rk01_cross_encoders_of_one_and_two_labels(tiny: Any, tmp_path: Path, labels: int) -> None:
    corpus = CASES / "RK01" / "corpus.jsonl"
    index, _ = build(corpus, tmp_path, tiny("mean"))
    model = tiny(f"cross{labels}")
    text = texts(corpus)["a"]
    found = hits(index, text, 3, "--reranker", model)
    scores = [hit["score"] for hit in found]
    assert sorted(ids(found)) == ["a", "b", "c"] and scores == sorted(scores, reverse=True)
    assert scores == [hit["rerank_score"] for hit in found]
    expected = _probabilities(model, text, [hit["text"] for hit in found])
    assert [hit["rerank_probability"] for hit in found] == pytest.approx(expected, abs=1e-5)


def _probabilities(model: Path, query: str, passages: list[str]) -> list[float]:
    """What transformers says: of two labels the probability of label 1, of one its sigmoid."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForSequenceClassification.from_pretrained(model).eval()
    with torch.inference_mode():
        rows = [network(**tokenizer(query, text, return_tensors="pt")).logits[0].double() for text in passages]
    return [float(row.softmax(0)[1] if len(row) == 2 else row.sigmoid()[0]) for row in rows]


def test_rk03_nothing_to_rerank(tiny: Any, tmp_path: Path) -> None:
    corpus = CASES / "RK03" / "corpus.jsonl"
    index, _ = build(corpus, tmp_path, tiny("mean"))
    text = texts(corpus)["a"]
    reranker = CrossEncoder.load(tiny("cross1"))
    assert reranker.score([]).shape == (0,)
    assert np.isfinite(reranker.score([(text, ""), (text, text)])).all()
    with pytest.raises(DataError, match="passage is None"):
        reranker.score([(text, None)])  # type: ignore[list-item]
    found = hits(index, text, 3, "--reranker", tiny("cross1"), "--rerank-depth", 50)
    assert len(found) == 3 and all(math.isfinite(hit["rerank_score"]) for hit in found)
    retrieve("delete", index, "a", "b", "c")
    assert Retriever.open(index, reranker=reranker).search(text, 3) == []


def test_rk04_pairs_beyond_the_limit(tiny: Any, tmp_path: Path) -> None:
    case = CASES / "RK04"
    index, _ = build(case / "corpus.jsonl", tmp_path, tiny("mean"))
    reranked = ("--reranker", tiny("cross1"), "--json", "-k", 3)
    long = (case / "long_query.txt").read_bytes()
    said = retrieve("query", index, "-", *reranked, stdin=long)
    found = json.loads(said.stdout)["hits"]
    assert sorted(ids(found)) == ["d1", "d2", "d3"]
    assert len({hit["score"] for hit in found}) > 1
    assert "queries truncated for the reranker" in said.stderr
    # Read whole, a document is longer than the limit: its windows are scored, and counted.
    queries, run, output = tmp_path / "q.tsv", tmp_path / "first.run", tmp_path / "second.run"
    queries.write_text("q\tred apple\n")
    run.write_text("".join(f"q Q0 d{i} {i} {4 - i} t\n" for i in (1, 2, 3)))
    options = ("--queries", queries, "--reranker", tiny("cross1"), "--output", output)
    said = retrieve("rerank", case / "corpus.jsonl", run, *options)
    assert "pairs windowed: 2" in said.stderr
    assert sorted(read_run(output)["q"]) == ["d1", "d2", "d3"]
    short = retrieve("query", index, "red apple", *reranked)
    assert "truncated" not in short.stderr and len(json.loads(short.stdout)["hits"]) == 3

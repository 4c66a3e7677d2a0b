"""The judged collection in data/tides holds together; data/stdlib_corpus.py tells the truth."""

import ast
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

DATA = Path(__file__).parent.parent / "data"
TIDES = DATA / "tides"
SPLITS = ("test", "dev")


def read_jsonl(path):
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_qrels(split):
    header, *rows = (TIDES / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "query-id\tcorpus-id\tscore"
    return [(query_id, doc_id, int(score)) for query_id, doc_id, score in (row.split("\t") for row in rows)]


@pytest.fixture(scope="module")
def passages():
    return read_jsonl(TIDES / "corpus.jsonl")


@pytest.fixture(scope="module")
def queries():
    return read_jsonl(TIDES / "queries.jsonl")


@pytest.fixture(scope="module")
def stdlib(tmp_path_factory):
    """Return the documents of this Python's standard library, and what the script said."""
    out = tmp_path_factory.mktemp("corpus") / "stdlib.jsonl"
    command = [sys.executable, "-W", "error", str(DATA / "stdlib_corpus.py"), str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert [path.name for path in out.parent.iterdir()] == ["stdlib.jsonl"]  # no temporary file stays behind
    assert ran.stdout == ""
    return read_jsonl(out), ran.stderr


def test_passages_are_whole_and_of_the_promised_size(passages):
    assert len(passages) == 90
    assert len({passage["_id"] for passage in passages}) == len(passages)
    assert len({passage["text"] for passage in passages}) == len(passages)
    for passage in passages:
        assert set(passage) == {"_id", "title", "text"}
        assert passage["title"].strip()
        assert 50 <= len(passage["text"].split()) <= 130, passage["_id"]


def test_queries_have_ids_and_words_of_their_own(passages, queries):
    assert len({query["_id"] for query in queries}) == len(queries) == 36
    for query in queries:
        text = query["text"].casefold().rstrip("?")
        assert not any(text in f"{p['title']} {p['text']}".casefold() for p in passages), query


def test_each_query_is_judged_in_one_split_and_has_an_answer(queries):
    judged = {split: {query_id for query_id, _, _ in read_qrels(split)} for split in SPLITS}
    assert not judged["test"] & judged["dev"]
    assert judged["test"] | judged["dev"] == {query["_id"] for query in queries}
    answered = {query_id for split in SPLITS for query_id, _, score in read_qrels(split) if score == 3}
    assert answered == {query["_id"] for query in queries}


@pytest.mark.parametrize("split", SPLITS)
def test_judgements_point_to_passages_and_stand_once(passages, split):
    rows = read_qrels(split)
    assert {doc_id for _, doc_id, _ in rows} <= {passage["_id"] for passage in passages}
    assert {score for _, _, score in rows} == {0, 1, 2, 3}
    assert len({(query_id, doc_id) for query_id, doc_id, _ in rows}) == len(rows)


def test_readme_states_the_true_counts(passages, queries):
    judgements = sum(len(read_qrels(split)) for split in SPLITS)
    readme = (TIDES / "README.md").read_text(encoding="utf-8")
    assert f"{len(passages)} short passages" in readme
    assert f"{len(queries)} queries and {judgements} graded judgements" in readme


def test_stdlib_documents_are_many_unique_and_ordered(stdlib):
    documents, said = stdlib
    names = [document["_id"] for document in documents]
    assert len(names) > 2_000
    assert names == sorted(set(names))
    assert f"{len(names)} documents" in said
    assert not any(part.startswith("_") for name in names for part in name.split("."))
    assert all(len(document["text"]) >= 20 for document in documents)


def test_stdlib_lines_are_those_of_the_definitions(stdlib):
    documents, _ = stdlib
    root = Path(sysconfig.get_path("stdlib"))
    from_source = [document for document in documents if document["source"]]
    assert len(from_source) > 1_500
    for document in from_source[::25]:
        lines = (root / document["source"]).read_bytes().decode("utf-8").splitlines()
        name = document["_id"].rpartition(".")[2]
        assert f" {name}" in " " + lines[document["line"] - 1], document["_id"]
        assert lines[document["line"] - 1].split()[0] in ("def", "class", "async"), document["_id"]
    assert all(document["line"] == 0 for document in documents if not document["source"])


def test_stdlib_documents_say_what_python_says(stdlib):
    documents = {document["_id"]: document for document in stdlib[0]}
    dumps = documents["json.dumps"]
    assert dumps["title"].startswith("json.dumps(obj, *, skipkeys=False, ensure_ascii=True")
    assert dumps["text"].startswith("Serialize ``obj`` to a JSON formatted ``str``")
    assert (dumps["module"], dumps["kind"], dumps["source"]) == ("json", "function", "json/__init__.py")
    assert documents["os.path.join"]["title"] == "os.path.join(a, *p)"  # defined in posixpath
    assert documents["asyncio.gather"]["kind"] == "function"  # re-exported from asyncio.tasks
    assert documents["pathlib.Path"]["kind"] == "class"  # from 3.13 on in a private module
    assert documents["builtins.str.split"]["title"] == "str.split(sep=None, maxsplit=-1)"  # compiled
    assert documents["textwrap.TextWrapper.fill"]["kind"] == "method"


def test_stdlib_titles_are_calls_without_self_or_addresses(stdlib):
    for document in stdlib[0]:
        if document["kind"] != "function":  # email.iterators.walk(self) is one
            assert "(self" not in document["title"], document["_id"]
        assert " at 0x" not in document["title"], document["_id"]


def test_stdlib_corpus_does_not_depend_on_the_hash_seed(stdlib, tmp_path):
    out = tmp_path / "again.jsonl"
    command = [sys.executable, str(DATA / "stdlib_corpus.py"), str(out)]
    subprocess.run(command, env={"PYTHONHASHSEED": "1234"}, capture_output=True, check=True, timeout=120)
    assert read_jsonl(out) == stdlib[0]


def test_stdlib_corpus_into_a_missing_folder_is_one_line(tmp_path):
    out = tmp_path / "missing" / "stdlib.jsonl"
    command = [sys.executable, str(DATA / "stdlib_corpus.py"), str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [f"{out}: cannot be written: {out.parent} is not a folder"]


def test_stdlib_corpus_needs_only_the_standard_library():
    tree = ast.parse((DATA / "stdlib_corpus.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names

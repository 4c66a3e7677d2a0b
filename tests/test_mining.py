"""A source tree becomes a benchmark: what gets in, what is left out and counted, and how it is split."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from retrieval.errors import ConfigError, DataError
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.mining import MIN_FILES, make_benchmark

CODE = "    a = {0}\n    b = a\n    return b\n"


def function(name, doc, number=None):
    return f'def {name}():\n    """{doc}"""\n' + CODE.format(number or repr(name))


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


@pytest.fixture
def repository(tmp_path):
    return tree(
        tmp_path / "repository", {f"m{n:02}.py": function(f"f{n}", f"Count up to number {n}.") for n in range(60)}
    )


def written(folder):
    """The folder, read again without our own readers: documents, queries, judgements by split."""
    lines = [json.loads(line) for line in (folder / "corpus.jsonl").read_bytes().decode().split("\n")[:-1]]
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_bytes().decode().split("\n")[:-1]]
    qrels = {}
    for file in sorted((folder / "qrels").iterdir()):
        header, *rows = file.read_text().split("\n")[:-1]
        assert header == "query-id\tcorpus-id\tscore"
        qrels[file.stem] = [tuple(row.split("\t")) for row in rows]
    assert len({line["_id"] for line in lines}) == len(lines)
    assert len({query["_id"] for query in queries}) == len(queries)
    return {line["_id"]: line for line in lines}, {query["_id"]: query["text"] for query in queries}, qrels


def check_promises(folder):
    """What every benchmark of ours keeps, looked at from outside. Returns the number of pairs by split."""
    documents, queries, qrels = written(folder)
    pairs = [(query, doc, split) for split, rows in qrels.items() for query, doc, score in rows if score == "1"]
    assert len(pairs) == sum(map(len, qrels.values())) == len(queries)
    assert {query for query, _, _ in pairs} == set(queries)
    assert len({doc for _, doc, _ in pairs}) == len(pairs)
    splits_of_file, texts = {}, set()
    for query, doc, split in pairs:
        splits_of_file.setdefault(documents[doc]["metadata"]["path"], set()).add(split)
        flat = " ".join(documents[doc]["text"].split()).lower()
        assert " ".join(queries[query].split()).lower() not in flat
        assert queries[query].lower() not in texts
        texts.add(queries[query].lower())
    assert all(len(splits) == 1 for splits in splits_of_file.values())
    for document in documents.values():
        (node,) = ast.parse(document["text"]).body
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                assert ast.get_docstring(inner) is None
        assert document["title"] == ""
        assert len(document["_id"].split()) == 1
    return {split: len(rows) for split, rows in qrels.items()}


def test_a_benchmark_is_a_beir_folder_with_a_card(tmp_path, repository):
    report = make_benchmark(repository, tmp_path / "out", licence="MIT")
    assert check_promises(tmp_path / "out") == dict(report.pairs)
    assert sum(report.pairs.values()) == report.documents == report.functions == report.files == 60
    assert min(report.pairs.values()) > 0 and report.notices == ()
    documents, queries, _ = written(tmp_path / "out")
    assert documents["m07.py#f7"] == {
        "_id": "m07.py#f7",
        "title": "",
        "text": "def f7():\n" + CODE.format("'f7'").rstrip(),
        "metadata": {"path": "m07.py", "symbol": "f7", "start_line": 1, "end_line": 5, "language": "python"},
    }
    assert queries["q:m07.py#f7"] == "Count up to number 7."
    benchmark = Benchmark.load(tmp_path / "out")
    assert (benchmark.card.name, benchmark.card.licence, benchmark.card.split) == ("repository", "MIT", "test")
    assert benchmark.card.documents == 60 and benchmark.card.duplicates == 0
    assert benchmark.card.queries == len(benchmark.queries) == report.pairs["test"]
    assert str(tmp_path) not in (tmp_path / "out/benchmark.json").read_text()
    assert json.loads(json.dumps(report.to_dict()))["pairs"] == dict(report.pairs)


def test_the_same_tree_gives_the_same_bytes(tmp_path, repository):
    make_benchmark(repository, tmp_path / "one")
    moved = shutil.copytree(repository, tmp_path / "elsewhere" / "repository")
    code = "import sys; from retrieval.eval.mining import make_benchmark as m; m(sys.argv[1], sys.argv[2])"
    command = [sys.executable, "-c", code, str(moved), str(tmp_path / "two")]
    subprocess.run(command, check=True, env={"PYTHONHASHSEED": "7", "PATH": ""})
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 6
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_file_more_moves_no_other_file_to_another_split(tmp_path, repository):
    make_benchmark(repository, tmp_path / "one")
    tree(repository, {"a/new.py": function("new", "Something else altogether.")})
    make_benchmark(repository, tmp_path / "two")
    before, after = (
        {query: split for split, rows in written(tmp_path / name)[2].items() for query, _, _ in rows}
        for name in ("one", "two")
    )
    assert before.items() < after.items()


def test_a_small_tree_is_all_test(tmp_path):
    root = tree(
        tmp_path / "r", {f"m{n}.py": function(f"f{n}", f"Count up to number {n}.") for n in range(MIN_FILES - 1)}
    )
    report = make_benchmark(root, tmp_path / "out")
    assert report.pairs == {"train": 0, "dev": 0, "test": MIN_FILES - 1}
    assert "all are in test" in report.notices[0]
    assert check_promises(tmp_path / "out") == {"test": MIN_FILES - 1}
    assert report.notices[0] in Benchmark.load(tmp_path / "out").card.notes


def test_functions_without_a_usable_summary_are_documents_only(tmp_path):
    root = tree(
        tmp_path / "r",
        {
            "a.py": function("good", "A good summary.")
            + function("one", "The shared  summary!")
            + function("short", "Too short.")
            + "def bare():\n" + CODE.format(1)
            + function("leak", "Tell what is said.", "1  # tell what\n    # is said\n"),
            "b.py": function("two", "the SHARED summary"),
        },
    )  # fmt: skip
    report = make_benchmark(root, tmp_path / "out")
    documents, queries, _ = written(tmp_path / "out")
    assert list(queries.values()) == ["A good summary."]
    assert list(documents) == [f"a.py#{name}" for name in ("good", "one", "short", "bare", "leak")] + ["b.py#two"]
    assert report.no_query == {
        "summary shared with another document": 2,
        "fewer than 3 words": 1,
        "no documentation": 1,
        "summary occurs in the code": 1,
    }
    assert report.undocumented == 1
    check_promises(tmp_path / "out")


def test_one_odd_function_does_not_stop_the_others(tmp_path):
    body = "\n".join(f"    total += {n} * value" for n in range(4))
    deep = "+".join(["1"] * 900)
    odd = (
        f'@register({deep})\ndef one(value):\n    """Add up the first of all things."""\n    total = 1\n{body}\n'
        f'    return total\n\n\ndef two(value):\n    """Add \\ud800 up to the second thing."""\n    total = 2\n{body}\n'
        "    return total\n"
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "odd.py").write_text(odd)
    report = make_benchmark(tmp_path / "src", tmp_path / "out")
    assert (report.documents, sum(report.pairs.values())) == (2, 1)
    assert report.no_query == {"no Unicode text": 1}


def test_of_equal_functions_the_first_in_path_order_stays(tmp_path):
    copies = {name: function("f", doc, 1) for name, doc in {"b.py": "Second of all.", "a.py": "First of all."}.items()}
    copies["c.py"] = function("g", "Third of all.", 1)  # another name, another function
    report = make_benchmark(tree(tmp_path / "r", copies), tmp_path / "out")
    assert list(written(tmp_path / "out")[0]) == ["a.py#f", "c.py#g"]
    assert report.left_out == {"equal to an earlier function": 1}


def test_tests_generated_and_broken_files_are_counted(tmp_path):
    good = function("good", "A good summary.")
    other = function("other", "Another good summary.")
    root = tree(
        tmp_path / "r",
        {
            "latest.py": good,
            "tests/x.py": other, "a/test/x.py": other, "test_x.py": other, "x_test.py": other, "conftest.py": other,
            "x_pb2.py": other, "gen1.py": "# Code generated by a tool\n" + other,
            "gen2.py": "# -*- coding: utf-8 -*-\n\n# This file is auto-generated.\n" + other,
            "gen3.py": '"""DO NOT EDIT this."""\n' + other,
            "old.py": "print 'x'\n", "empty.py": "", "readme.md": "x", "bin.py": b"\0\1",
            ".hidden/x.py": other, "site-packages/x.py": other,
        },
    )  # fmt: skip
    report = make_benchmark(root, tmp_path / "out")
    assert list(written(tmp_path / "out")[0]) == ["latest.py#good"]
    assert report.skipped == {
        "test file": 5, "generated file": 4, "binary": 1, "empty": 1, "folder of caches or dependencies": 1,
        "hidden folder": 1, "no language that functions are mined from": 1, "not python that can be parsed": 1,
    }  # fmt: skip
    assert len(report.unparsed) == 1 and report.unparsed[0].startswith("old.py: line 1: ")
    assert report.files == 1


def test_a_root_may_be_called_like_a_folder_of_tests_or_dependencies(tmp_path):
    root = tree(tmp_path / "site-packages" / "tests", {"a.py": function("good", "A good summary.")})
    assert make_benchmark(root, tmp_path / "out").pairs["test"] == 1


def test_ids_are_unique_and_fit_a_run(tmp_path):
    twice = "if x:\n" + function("f", "One of both.", 1).replace("def", "    def").replace("\n    ", "\n        ")
    text = twice + "else:\n    def f():\n        'Other of both.'\n        a = 2\n        return a, a;a\n"
    root = tree(tmp_path / "r", {"ä b%#\u00a0c.py": text})
    make_benchmark(root, tmp_path / "out")
    documents, _, _ = written(tmp_path / "out")
    assert list(documents) == ["ä%20b%25%23%C2%A0c.py#f", "ä%20b%25%23%C2%A0c.py#f@8"]
    assert {document["metadata"]["path"] for document in documents.values()} == {"ä b%#\u00a0c.py"}
    check_promises(tmp_path / "out")


def test_nothing_to_mine_is_an_error_that_says_what_was_seen(tmp_path):
    root = tree(
        tmp_path / "r", {"a.py": "def f():\n    return 1\n", "b.py": "def g():\n" + CODE.format(1), "c.txt": "x"}
    )
    with pytest.raises(DataError) as error:
        make_benchmark(root, tmp_path / "out")
    message = str(error.value)
    for part in (
        "2 functions in them",
        "1 left out: trivial",
        "1 without a query: no documentation",
        "1 skipped: no language",
    ):
        assert part in message
    assert "\n" not in message and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["missing", "file.py"])
def test_a_repository_that_is_no_folder_is_refused(tmp_path, name):
    (tmp_path / "file.py").write_text("x = 1\n")
    with pytest.raises(DataError, match="expected the folder"):
        make_benchmark(tmp_path / name, tmp_path / "out")


def test_what_is_there_stays_and_nothing_is_half_written(tmp_path, repository, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(ConfigError, match="not an empty folder"):
        make_benchmark(repository, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
    (tmp_path / "out" / "mine.txt").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("retrieval.eval.beir._judgement_lines", lambda judgements: [1])  # fails in the midst of writing
        with pytest.raises(TypeError):
            make_benchmark(repository, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "repository"]
    assert make_benchmark(repository, tmp_path / "out").documents == 60  # an empty folder is taken


def test_progress_counts_files(tmp_path, repository):
    seen = []
    make_benchmark(repository, tmp_path / "out", progress=seen.append)
    assert seen == list(range(1, 61))


def test_a_real_package_keeps_the_promises(tmp_path):
    """Hypothesis, as it is installed wherever these tests run."""
    hypothesis = pytest.importorskip("hypothesis")
    report = make_benchmark(Path(hypothesis.__file__).parent, tmp_path / "out")
    assert check_promises(tmp_path / "out") == dict(report.pairs)
    assert sum(report.pairs.values()) > 100
    assert report.functions == report.documents + sum(report.left_out.values())
    assert report.documents == sum(report.pairs.values()) + sum(report.no_query.values())


def test_functions_of_all_languages_are_mined(tmp_path):
    body = "{{\n  a({0});\n  b({0});\n  return c({0});\n}}\n"
    files = {
        "src/a.js": "/** Loads the page of a user. */\nfunction load(x) " + body.format(1),
        "src/b.ts": "class B {\n/** Saves the page of a user. */\nsave(x: number) " + body.format(2) + "}\n",
        "A.java": "class A {\n/** Opens the door of a house. */\nint open(int x) " + body.format(3) + "}\n",
        "a.go": "package a\n\n// Close shuts the door of a house.\nfunc Close(x int) int "
        + body.format(4).replace(";", ""),
        "lib.rs": "/// Paints the door of a house.\nfn paint(x: i32) -> i32 " + body.format(5),
        "a.c": "/* Sells the door of a house. */\nint sell(int x) " + body.format(6),
        "a.hpp": "/// Rents the door of a house.\nint rent(int x) " + body.format(7),
        "A.cs": "class A {\n/// <summary>Buys the door.</summary>\nint Buy(int x) " + body.format(8) + "}\n",
        "a.rb": "# Draws the door of a house.\ndef draw(x)\n  a(9)\n  b(9)\n  c(9)\nend\n",
        "a.php": "<?php\n/** Moves the door of a house. */\nfunction move($x) " + body.format(10),
        "a.sh": "# Lists the doors of a house.\nlist() {\n  a 11\n  b 11\n  c 11\n}\n",
        "a.py": function("hide", "Hide the door of a house."),
        # none of these
        "src/a.test.js": "/** Loads the page of a test. */\nfunction other(x) " + body.format(12),
        "b_test.go": "package a\n\n// Tests the door of a house.\nfunc Other(x int) int "
        + body.format(13).replace(";", ""),
        "ATest.java": "class A {\n/** Tests the door of a house. */\nint test(int x) " + body.format(14) + "}\n",
        "a.pb.go": "package a\n\n// Reads the door of a house.\nfunc Read(x int) int "
        + body.format(15).replace(";", ""),
        "b.js": "/* eslint-disable */\n// Code generated by a program. DO NOT EDIT.\nfunction made(x) "
        + body.format(16),
        "c.js": "/** Loads the page of a user, again. */\nfunction load(x) " + body.format(1) + "// as above\n",
    }
    report = make_benchmark(tree(tmp_path / "tree", files), tmp_path / "out")
    documents, queries, _ = written(tmp_path / "out")
    languages = [
        "bash",
        "c",
        "cpp",
        "csharp",
        "go",
        "java",
        "javascript",
        "php",
        "python",
        "ruby",
        "rust",
        "typescript",
    ]
    assert sorted(document["metadata"]["language"] for document in documents.values()) == languages
    assert len(documents) == len(queries) == 12 and report.left_out == {"equal to an earlier function": 1}
    assert report.skipped == {"generated file": 2, "test file": 3}
    assert queries["q:a.go#Close"] == "Close shuts the door of a house."
    assert queries["q:A.cs#A.Buy"] == "Buys the door."
    for query_id, query in queries.items():
        assert query not in documents[query_id.removeprefix("q:")]["text"]
    assert documents["src/b.ts#B.save"]["metadata"]["start_line"] == 3

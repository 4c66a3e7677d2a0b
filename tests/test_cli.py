"""The command line, in process: every command, its errors, and what goes to stdout and to stderr."""

import json
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from sentences import OTHERS
from worlds import unit

import retrieval
from retrieval import cli
from retrieval.index.reader import Index
from retrieval.mixture import Mixture
from retrieval.runs import read_run

COMMANDS = sorted(cli.main.commands)
DOCUMENTS = [
    {"_id": "copper", "text": "Copper conducts heat better than iron does."},
    {"_id": "ferry", "title": "Timetable", "text": "A ferry crosses the strait twice a day."},
    {"_id": "a b", "text": "An id with a blank."},
    {"_id": "void", "text": ""},
]


@pytest.fixture(autouse=True)
def _own_log_handlers() -> Iterator[None]:
    """The command line replaces the root logger's handlers; the other tests get theirs back."""
    root, ours = logging.getLogger(), logging.getLogger("retrieval")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def run(*arguments: object, stdin: str | bytes = "", code: int = 0) -> Result:
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception  # a bug: the command line shows its traceback
    assert result.exit_code == code, result.output
    return result


def fails(*arguments: object, stdin: str = "") -> str:
    """Run what must end with exit 1, nothing on stdout and one line on stderr, which is returned."""
    result = run(*arguments, stdin=stdin, code=1)
    assert result.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n", result.stderr), result.stderr
    return result.stderr


def write(path: Path, documents: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def index(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that no test changes."""
    folder = tmp_path_factory.mktemp("cli")
    retrieval.build_index(write(folder / "c.jsonl", DOCUMENTS), folder / "index", model=tiny("mean"))
    return folder / "index"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "c.jsonl", DOCUMENTS)


@pytest.fixture
def vectors(tmp_path: Path, corpus: Path) -> Path:
    """A small index of ready-made vectors, which costs no model."""
    np.save(tmp_path / "v.npy", unit(4))
    retrieval.build_index(corpus, tmp_path / "index", vectors=tmp_path / "v.npy")
    return tmp_path / "index"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example_that_it_accepts(command: str) -> None:
    text = run(command, "--help").stdout
    examples = re.findall(rf"retrieve {command}( .*)?$", text.partition("Options:")[0], re.MULTILINE)
    assert examples
    for example in examples:
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', example)]
        cli.main.commands[command].make_context(command, words)
    assert run(command, "-h").stdout == text


def test_the_group_lists_its_commands_and_its_version() -> None:
    text = run("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command}  +\S", text, re.MULTILINE)
    assert run("--version").stdout == f"retrieve, version {retrieval.__version__}\n"
    run("no-such-command", code=2)


def test_options_have_help_and_dashes() -> None:
    groups = [command.commands for command in cli.main.commands.values() if isinstance(command, click.Group)]
    for name, command in [pair for commands in (cli.main.commands, *groups) for pair in commands.items()]:
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, (name, option.name)
                assert all("_" not in text for text in option.opts)


def test_build_index_reports_to_stderr_and_json_to_stdout(corpus: Path, tmp_path: Path, tiny: Any) -> None:
    result = run("build-index", corpus, tmp_path / "index", "--model", tiny("mean"))
    assert result.stdout == ""
    assert "indexed 4 documents" in result.stderr
    assert "1 document without text (kept, never found)" in result.stderr
    assert "the index holds 4 documents, 4 passages; search: flat" in result.stderr
    assert "is an index already; give --overwrite" in fails("build-index", corpus, tmp_path / "index")
    result = run("build-index", corpus, tmp_path / "index", "--model", tiny("cls"), "--overwrite", "--json")
    assert json.loads(result.stdout)["index_documents"] == 4
    assert Index.open(tmp_path / "index").manifest.encoder["name"] == "cls"  # type: ignore[index]


def test_build_index_from_standard_input(corpus: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", unit(4))
    run("build-index", "-", tmp_path / "index", "--vectors", tmp_path / "v.npy", stdin=corpus.read_text())
    assert Index.open(tmp_path / "index").manifest.documents == 4


def test_build_index_leaves_bad_records_out_on_request(tmp_path: Path, tiny: Any) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"_id": "a", "text": "A"}\n{"_id": "b"\n')
    assert "c.jsonl, line 2" in fails("build-index", corpus, tmp_path / "index", "--model", tiny("mean"))
    options = ("--model", tiny("mean"), "--on-bad", "skip", "--rejects", tmp_path / "bad.jsonl")
    assert "1 bad record left out" in run("build-index", corpus, tmp_path / "index", *options).stderr
    assert json.loads((tmp_path / "bad.jsonl").read_text())["line"] == 2


def test_build_index_errors(corpus: Path, tmp_path: Path, tiny: Any) -> None:
    index = tmp_path / "index"
    assert "no such model" in fails("build-index", corpus, index, "--model", "./nothing")
    assert "no such file or folder" in fails("build-index", tmp_path / "no", index, "--model", tiny("mean"))
    assert "--index-type" in fails("build-index", corpus, index, "--model", tiny("mean"), "--index-type", "tree")
    assert "pooling" in fails("build-index", corpus, index, "--model", tiny("mean"), "--pooling", "sum")
    for wrong in (["--on-long", "drop"], ["--max-length", "0"], ["--vector-dtype", "int8"], ["--no-such-option"]):
        assert "Usage:" in run("build-index", corpus, index, *wrong, code=2).stderr
    run("build-index", index, code=2)
    assert not index.exists()


def test_add_and_delete_and_compact_and_info(tmp_path: Path, corpus: Path, tiny: Any) -> None:
    index = tmp_path / "index"
    run("build-index", corpus, index, "--model", tiny("mean"))
    more = write(tmp_path / "more.jsonl", [{"_id": "new", "text": "N"}, {"_id": "copper", "text": "C"}])
    assert "id 'copper' is already in the index (--upsert" in fails("add", more, index)
    result = run("add", more, index, "--upsert", "--json")
    assert json.loads(result.stdout)["replaced"] == 1
    assert "1 document replaced" in result.stderr
    result = run("delete", index, "new", "nobody")
    assert result.stdout == ""
    assert "deleted 1 document; 1 id not in the index: 'nobody'; the index holds 4 documents" in result.stderr
    (tmp_path / "ids.txt").write_text("a b\r\n\nvoid\n")
    assert "deleted 2 documents; the index" in run("delete", index, "--ids", tmp_path / "ids.txt").stderr
    assert "deleted 1 document;" in run("delete", index, "--ids", "-", stdin="ferry\n").stderr
    assert "compacted: 1 document, 1 passage in one segment" in run("compact", index).stderr
    facts = json.loads(run("info", index, "--json").stdout)
    assert (facts["documents"], facts["deleted passages"], facts["segments"]) == (1, 0, 1)
    shown = run("info", index, "--verify").stdout
    assert re.search(r"^files +all hashes right$", shown, re.MULTILINE)
    assert re.search(r"^encoder +mean$", shown, re.MULTILINE)


def test_commands_on_an_index_need_one(tmp_path: Path, corpus: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for command in (["add", corpus], ["query"], ["info"], ["compact"], ["delete"]):
        more = {"query": ["text"], "delete": ["id"]}.get(str(command[0]), [])
        assert f"no index at {nowhere}" in fails(*command, nowhere, *more)
    assert not nowhere.exists()
    assert "Usage:" in run("delete", nowhere, code=2).stderr
    assert "no-file: cannot be read: No such file" in fails("delete", nowhere, "--ids", tmp_path / "no-file")


def test_query_shows_a_table_to_people(index: Path) -> None:
    result = run("query", index, "Timetable A ferry crosses the strait twice a day.", "-k", 2, "--mode", "dense")
    lines = result.stdout.splitlines()
    assert lines[0] == "  1  1.0000  ferry  Timetable"
    assert lines[1].strip() == "A ferry crosses the strait twice a day."
    assert result.stderr == ""
    named = run("query", index, "-", "-k", 1, stdin="ferry\r\n\n heat\n").stdout
    assert re.findall(r"^\d: .*$", named, re.MULTILINE) == ["1: ferry", "2: heat"]


def test_query_gives_json_to_machines(index: Path) -> None:
    lines = run("query", index, "-", "--json", "-k", 1, stdin="heat\nAn id with a blank.\n").stdout.splitlines()
    bodies = [json.loads(line) for line in lines]
    assert [(body["query_id"], body["query"]) for body in bodies] == [("1", "heat"), ("2", "An id with a blank.")]
    assert bodies[1]["hits"][0]["doc_id"] == "a b"
    assert run("query", index, "heat", "--format", "jsonl").stdout == run("query", index, "heat", "--json").stdout


def test_query_with_a_filter(index: Path) -> None:
    asked = ("query", index, "ferry", "--reranker", "none", "--json")
    found = json.loads(run(*asked, "--where", "title = 'Timetable' or doc_id like 'a%'").stdout)["hits"]
    assert sorted(hit["doc_id"] for hit in found) == ["a b", "ferry"]
    assert json.loads(run(*asked, "--where", "title = 'x'").stdout)["hits"] == []
    assert "no column is called year" in fails(*asked, "--where", "year > 3")
    assert "it is empty" in fails(*asked, "--where", "")


@pytest.mark.parametrize("mode", ["dense", "lexical"])
def test_query_highlights_the_best_sentence(index: Path, mode: str) -> None:
    sentence = "Copper conducts heat better than iron does."
    asked = ("query", index, sentence, "--reranker", "none", "--mode", mode, "--highlight")
    best = json.loads(run(*asked, "--json").stdout)["hits"][0]
    assert best["doc_id"] == "copper" and best["highlight"]["text"] == sentence
    table = CliRunner().invoke(cli.main, [str(one) for one in asked], color=True)
    assert f"\x1b[1m{sentence}\x1b[0m" in table.stdout
    assert "--highlight needs texts" in run(*asked, "--format", "trec", code=2).stderr
    assert "--highlight needs texts" in run("query", index, "--vectors", "x.npy", "--highlight", code=2).stderr


def test_query_writes_a_run(index: Path, tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text("q1\tferry\nq2\t \nq3\theat\n")
    output = tmp_path / "my.run"
    result = run("query", index, "--queries", tmp_path / "q.tsv", "-k", 1, "--output", output, "--run-tag", "mine")
    assert result.stdout == ""
    assert "WARNING: no hits for 1 empty query: q2\n" in result.stderr
    assert f"3 queries, 2 hits, written to {output} (trec)" in result.stderr
    assert [line.split()[0] for line in output.read_text().splitlines()] == ["q1", "q3"]
    assert {line.split()[-1] for line in output.read_text().splitlines()} == {"mine"}
    to_stdout = run("query", index, "--queries", tmp_path / "q.tsv", "-k", 1, "--format", "trec", "--run-tag", "mine")
    assert to_stdout.stdout == output.read_text()


def test_output_is_whole_or_absent(index: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("before")
    assert "'a b' does not fit a TREC run" in fails("query", index, "blank", "--output", output)
    assert "run tag" in fails("query", index, "heat", "-k", 1, "--output", output, "--run-tag", "two words")
    nowhere = ("rerank", "no-corpus", "no.run", "--queries", "no.tsv", "--output", output)
    assert "run tag" in fails(*nowhere, "--run-tag", "two words")  # before anything is read
    assert output.read_text() == "before"
    assert "there is no folder" in fails("query", index, "heat", "--json", "--output", tmp_path / "no" / "out")
    assert "is a folder" in fails("query", index, "heat", "--json", "--output", tmp_path)
    run("query", index, "heat", "--format", "table", "--output", output)
    assert "copper" in output.read_text()
    assert "\x1b" not in output.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_query_usage(index: Path, tmp_path: Path) -> None:
    for wrong in (
        ["heat", "-k", 0],
        ["heat", "--rerank-depth", 0],
        ["heat", "--format", "xml"],
        ["heat", "--queries", "q.tsv"],
        [],
        [""],
    ):
        result = run("query", index, *wrong, code=2)
        assert result.stdout == ""
        assert "Usage: main query" in result.stderr
    for nothing in ("", "\n", " \n\u200b\n"):
        assert "no queries" in run("query", index, "-", stdin=nothing, code=2).stderr
    assert "no queries in it" in fails("query", index, "--queries", "-", stdin="")
    assert "cannot be read" in fails("query", index, "--queries", tmp_path / "no.tsv")


def test_arguments_that_changed_places(index: Path, corpus: Path, tmp_path: Path) -> None:
    told = run("query", "two words", index, code=2).stderr
    assert f"INDEX comes first: retrieve query {index} 'two words'\n" in told
    new, tree = tmp_path / "new", tmp_path / "tree"
    tree.mkdir()
    write(tree / "c.jsonl", DOCUMENTS)
    for last in (corpus, tree):
        told = run("build-index", new, last, code=2).stderr
        assert f"{new} is not there, {last} is no index; INDEX comes last: retrieve build-index {last} {new}\n" in told
        told = run("build-index", index, corpus, last, code=2).stderr
        assert f"{index} is an index, {last} is no index; INDEX comes last: retrieve build-index {corpus}" in told
    told = run("add", "--upsert", index, corpus, code=2).stderr
    assert f"INDEX comes last: retrieve add [OPTIONS] {corpus} {index}\n" in told
    assert "no such file or folder" in fails("build-index", tmp_path / "typo", new)
    assert "holds other files and is no index" in fails("build-index", corpus, tree)
    assert "holds other files and is no index" in fails("build-index", "-", tree)


def test_what_begins_with_a_dash_stands_after_two(index: Path) -> None:
    for text in ("--foo", "-foo", "--where is it"):
        told = run("query", index, text, code=2).stderr
        assert "No such option" in told and "TEXT that begins with a dash stands after --:" in told
        assert json.loads(run("query", index, "--json", "--", text).stdout)["query"] == text
    assert "Usage: main delete" in (told := run("delete", index, "--foo", code=2).stderr)
    assert "delete INDEX -- ID\n" in told
    assert "dash" not in run("info", index, "--foo", code=2).stderr


def test_the_package_is_a_command() -> None:
    for module in ("retrieval", "retrieval.cli"):
        done = subprocess.run([sys.executable, "-m", module, "info", "no-index"], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: no index at no-index")
    done = subprocess.run([sys.executable, "-m", "retrieval", "query", "x", "--foo"], capture_output=True, text=True)
    assert "Usage: retrieve query" in done.stderr and done.returncode == 2


def test_query_with_another_model_or_a_reranker(index: Path, tiny: Any) -> None:
    assert "made with mean" in fails("query", index, "heat", "--model", tiny("other"))
    assert "no such model" in fails("query", index, "heat", "--reranker", "./nothing")
    plain = json.loads(run("query", index, "heat", "--json").stdout)["hits"]
    reranked = json.loads(run("query", index, "heat", "--json", "--reranker", tiny("cross1")).stdout)["hits"]
    assert {hit["doc_id"]: hit["score"] for hit in plain} == {h["doc_id"]: h["retrieval_score"] for h in reranked}
    assert [hit["score"] for hit in reranked] == sorted((hit["rerank_score"] for hit in reranked), reverse=True)
    assert run("query", index, "heat", "--reranker", "none").stdout == run("query", index, "heat").stdout


@pytest.fixture(scope="module")
def chinese(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chinese")
    documents = [{"_id": str(number), "text": text} for number, text in enumerate(OTHERS["Chinese"])]
    retrieval.build_index(write(folder / "c.jsonl", documents), folder / "index", model=tiny("mean"))
    return folder / "index"


def test_query_takes_the_default_reranker_where_it_fits(index: Path, shipped: Path, tmp_path: Path) -> None:
    plain = run("query", index, "heat", "--json", "--reranker", "none")
    assert plain.stderr == ""
    for chosen in ((), ("--reranker", "auto"), ("--reranker", "minilm-reranker"), ("--reranker", shipped)):
        result = run("query", index, "heat", "--json", *chosen)
        hits = json.loads(result.stdout)["hits"]
        assert result.stderr == ""
        assert [hit["score"] for hit in hits] == sorted((hit["rerank_score"] for hit in hits), reverse=True)
        before = {hit["doc_id"]: (hit["rank"], hit["score"]) for hit in json.loads(plain.stdout)["hits"]}
        assert {hit["doc_id"]: (hit["retrieval_rank"], hit["retrieval_score"]) for hit in hits} == before
    (tmp_path / "none.toml").write_text('[query]\nreranker = "none"\n')
    assert run("--config", tmp_path / "none.toml", "query", index, "heat", "--json").stdout == plain.stdout


def test_query_says_why_the_default_reranker_is_not_used(chinese: Path, shipped: Path, tiny: Any) -> None:
    result = run("query", chinese, "-", "--json", stdin="\n".join(OTHERS["Chinese"]))
    assert re.fullmatch(
        r"note: hits are not re-ordered, as .* not English \(Chinese\?\); [^\n]*none[^\n]*\n", result.stderr
    )
    none = run("query", chinese, "-", "--json", "--reranker", "none", stdin="\n".join(OTHERS["Chinese"]))
    assert (none.stdout, none.stderr) == (result.stdout, "")
    named = run("query", chinese, OTHERS["Chinese"][0], "--json", "--reranker", "minilm-reranker")
    assert named.stderr == ""
    assert json.loads(named.stdout)["hits"][0]["rerank_score"] is not None


def test_query_without_a_default_reranker_is_silent(index: Path, chinese: Path) -> None:
    for path in (index, chinese):
        result = run("query", path, "heat", "--json")
        assert result.stderr == ""
        assert json.loads(result.stdout)["hits"][0]["rerank_score"] is None
    assert "does not come with this installation" in fails("query", index, "heat", "--reranker", "minilm-reranker")


def test_query_with_vectors_asks_no_default_reranker(vectors: Path, shipped: Path, tmp_path: Path, tiny: Any) -> None:
    np.save(tmp_path / "q.npy", unit(1))
    for chosen in ((), ("--reranker", "auto")):
        result = run("query", vectors, "--vectors", tmp_path / "q.npy", "--json", *chosen)
        assert result.stderr == ""
        assert json.loads(result.stdout)["hits"][0]["rerank_score"] is None
    asked = ("query", vectors, "--vectors", tmp_path / "q.npy", "--reranker", "minilm-reranker")
    assert "a reranker reads texts" in fails(*asked)


def test_query_says_what_takes_the_time_of_many_queries(index: Path, shipped: Path) -> None:
    many = "\n".join(f"query {number}" for number in range(20))
    said = run("query", index, "-", "--json", "--rerank-depth", 30, stdin=many).stderr
    assert said == "note: the first 30 hits of 20 queries are re-ordered; --reranker none is much quicker\n"
    for asked, stdin in ((("--reranker", "auto"), many), (("--reranker", "none"), many), ((), "one\ntwo")):
        assert run("query", index, "-", "--json", *asked, stdin=stdin).stderr == ""


def test_a_table_shows_where_a_hit_was_in_the_first_stage(index: Path, shipped: Path) -> None:
    hits = json.loads(run("query", index, "heat", "--json").stdout)["hits"]
    shown = run("query", index, "heat").stdout
    expected = [f"  {h['rank']}  {h['score']:.4f}  {h['doc_id']}" for h in hits]
    heads = [line for line in shown.splitlines() if re.match(r" +\d+  -?\d", line)]
    for hit, begin, line in zip(hits, expected, heads, strict=True):
        assert line.startswith(begin)
        assert line.endswith(f"[first stage: rank {hit['retrieval_rank']}, {hit['retrieval_score']:.4f}]")
    assert "first stage" not in run("query", index, "heat", "--reranker", "none").stdout


def test_evaluate_measures_one_stage_unless_asked(index: Path, shipped: Path, tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text("q1\theat\nq2\tferry\n")
    (tmp_path / "qrels.txt").write_text("q1 0 copper 1\nq2 0 ferry 1\n")
    command = ("evaluate", tmp_path / "qrels.txt", "--index", index, "--queries", tmp_path / "q.tsv", "--json")
    for chosen, systems in (((), 1), (("--reranker", "auto"), 2)):
        assert len(json.loads(run(*command, *chosen).stdout)["systems"]) == systems


def test_info_says_whether_the_default_reranker_is_used(
    index: Path, chinese: Path, shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(path: Path) -> str:
        return str(json.loads(run("info", path, "--json").stdout)["default reranker"])

    assert told(index) == "minilm-reranker"
    assert re.fullmatch(r"none: about \d+% of the text is not English \(Chinese\?\)", told(chinese))
    monkeypatch.setattr("retrieval.models._packaged_reranker", lambda: shipped / "no")
    assert told(chinese) == "none comes with the installation"


def test_query_with_vectors(vectors: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", unit(4)[[1, 0]])
    lines = run("query", vectors, "--vectors", tmp_path / "q.npy", "--json", "-k", 1).stdout.splitlines()
    bodies = [json.loads(line) for line in lines]
    assert [(b["query_id"], b["query"], b["hits"][0]["doc_id"]) for b in bodies] == [
        ("1", None, "ferry"),
        ("2", None, "copper"),
    ]
    assert "ready-made vectors without a model" in fails("query", vectors, "a text", "--mode", "dense")
    by_keywords = run("query", vectors, "ferry", "--json")
    assert [hit["doc_id"] for hit in json.loads(by_keywords.stdout)["hits"]] == ["ferry"]
    assert re.fullmatch(r"WARNING: [^\n]* keywords alone [^\n]*\n", by_keywords.stderr)
    np.save(tmp_path / "wrong.npy", unit(2, dim=3))
    assert "has 16 dimensions" in fails("query", vectors, "--vectors", tmp_path / "wrong.npy")
    np.save(tmp_path / "none.npy", unit(4)[:0])
    assert "no vectors in it" in fails("query", vectors, "--vectors", tmp_path / "none.npy")
    np.save(tmp_path / "nan.npy", np.array([[0.0] * 15 + [1.0], [np.nan] * 16]))
    assert "row 2 holds NaN" in fails("query", vectors, "--vectors", tmp_path / "nan.npy")


def test_rerank_a_run(index: Path, corpus: Path, tmp_path: Path, tiny: Any) -> None:
    (tmp_path / "q.tsv").write_text("q1\theat\n")
    (tmp_path / "my.run").write_text("q1 Q0 ferry 1 9 x\nq1 Q0 copper 2 8 x\nq1 Q0 void 3 7 x\n")
    options = ("--queries", tmp_path / "q.tsv", "--reranker", tiny("cross1"), "--depth", 2, "--run-tag", "again")
    runs = []
    for source in (corpus, index):
        result = run("rerank", source, tmp_path / "my.run", *options, "--output", tmp_path / "new.run")
        assert result.stdout == ""
        assert "1 query re-ordered" in result.stderr
        runs.append((tmp_path / "new.run").read_bytes())
    assert runs[0] == runs[1]
    scores = read_run(tmp_path / "new.run")["q1"]
    assert set(scores) == {"ferry", "copper", "void"}
    assert min(scores, key=scores.__getitem__) == "void"
    (tmp_path / "my.run").write_text("q1 Q0 nobody 1 9 x\n")
    message = fails("rerank", corpus, tmp_path / "my.run", *options, "--output", tmp_path / "new.run")
    assert "document 'nobody' (query 'q1') of the run is not in the corpus" in message
    assert (tmp_path / "new.run").read_bytes() == runs[1]
    run("rerank", corpus, tmp_path / "my.run", code=2)


def test_rerank_takes_the_default_reranker(
    index: Path, chinese: Path, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.tsv").write_text("q1\theat\n")
    (tmp_path / "my.run").write_text("q1 Q0 ferry 1 9 x\nq1 Q0 copper 2 8 x\n")
    (tmp_path / "other.run").write_text("q1 Q0 0 1 9 x\nq1 Q0 1 2 8 x\n")
    command = ("rerank", index, tmp_path / "my.run", "--queries", tmp_path / "q.tsv", "--output", tmp_path / "out")
    named = run(*command, "--reranker", shipped)
    assert "note" not in named.stderr
    expected = read_run(tmp_path / "out")
    assert run(*command).stderr == named.stderr
    assert read_run(tmp_path / "out") == expected
    foreign = ("rerank", chinese, tmp_path / "other.run", *command[3:])
    assert "% of the text is not English (Chinese?); the default reranker reads" in run(*foreign).stderr
    assert "note" not in run(*foreign, "--reranker", shipped).stderr
    monkeypatch.setattr("retrieval.models._packaged_reranker", lambda: shipped / "no")
    message = fails("rerank", tmp_path / "no-such-corpus", *command[2:])  # told before the corpus is read
    assert "does not come with this installation; name a cross-encoder" in message


def test_rerank_says_that_scores_are_mixed(index: Path, tiny: Any, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny("cross1"), tmp_path / "model"))
    Mixture(weight=0.7).save(model)
    (tmp_path / "q.tsv").write_text("q1\theat\n")
    (tmp_path / "my.run").write_text("q1 Q0 ferry 1 9 x\nq1 Q0 copper 2 8 x\n")
    command = ("rerank", index, tmp_path / "my.run", "--queries", tmp_path / "q.tsv", "--output", tmp_path / "out")
    said = run(*command, "--reranker", model).stderr
    assert "note: scores mix 0.70 first stage and 0.30 reranker, as the model's mixture.json says\n" in said


def test_settings_from_a_file(index: Path, tmp_path: Path) -> None:
    file = tmp_path / "retrieve.toml"
    file.write_text('[query]\nk = 1\nformat = "jsonl"\nrun-tag = "t"\n[build-index]\nindex-type = "hnsw"\n')
    assert len(json.loads(run("--config", file, "query", index, "heat").stdout)["hits"]) == 1
    assert len(json.loads(run("--config", file, "query", index, "heat", "-k", 2).stdout)["hits"]) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[query]\nkk = 1", "`retrieve query` has no option --kk"),
        ("[query]\nindex = 'x'", "`retrieve query` has no option --index"),
        ("[queries]\nk = 1", "there is no command 'queries'; there are build-index"),
        ("k = 1", "k stands outside a table"),
        ("[query", "cannot be read as TOML"),
        ("[query]\nk = [1]", "k of [query] is [1]; expected one value"),
        ("[query]\nmodel = {a = 1}", "model of [query] is {'a': 1}; expected one value"),
        ("[query]\nmodel = true", "model of [query] is True; expected one value, a text"),
        ("[query]\nk = 2.9", "k of [query] is 2.9; expected one value, a whole number"),
        ("[query]\nk = true", "k of [query] is True; expected one value, a whole number"),
        ("[query]\nmodel = 1979-05-27", "expected one value, a text"),
        ("[query]\noutput = 3", "output of [query] is 3; expected one value, a text"),
        ("[query]\ntrust-remote-code = 1", "expected one value, true or false"),
        ("[train.bi-encoder]\nepochs = true", "expected one value, a number"),
        ("[tune]\nalso = 'bench'", "also of [tune] is 'bench'; expected a list, each value a text"),
        ("[tune]\nalso = [['bench']]", "expected a list, each value a text"),
        ("[query]\nk = " + "[" * 3000, "cannot be read as TOML"),
    ],
)
def test_settings_that_cannot_be(index: Path, tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "retrieve.toml"
    file.write_text(content)
    assert message in fails("--config", file, "query", index, "heat")


def test_a_settings_file_is_held_to_the_same_limits(index: Path, tmp_path: Path) -> None:
    assert "cannot be read as TOML" in fails("--config", tmp_path / "no.toml", "query", index, "heat")
    file = tmp_path / "retrieve.toml"
    for wrong in ("k = 0", "k = 'many'", "format = 'xml'"):
        file.write_text(f"[query]\n{wrong}")
        assert "Usage:" in run("--config", file, "query", index, "heat", code=2).stderr


def test_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = json.loads(run("doctor", "--json").stdout)
    assert facts["problems"] == "none"
    assert facts["retrieve-rerank"] == retrieval.__version__
    assert "hash right" in facts["default encoder"]
    assert facts["default reranker"] == "none comes with this installation"
    monkeypatch.setattr("retrieval.models.DEFAULT_WEIGHTS_SHA256", "0" * 64)
    broken = run("doctor", code=1)
    assert re.search(r"^default encoder +not usable$", broken.stdout, re.MULTILINE)
    assert re.fullmatch(r"error: the installation has problems: [^\n]*SHA-256[^\n]*\n", broken.stderr)


def test_doctor_looks_at_the_default_reranker(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(run("doctor", "--json").stdout)["default reranker"].startswith(
        "minilm-reranker found, hash right"
    )
    monkeypatch.setattr("retrieval.models.DEFAULT_RERANKER_SHA256", "0" * 64)
    broken = run("doctor", code=1)
    assert re.search(r"^default reranker +not usable$", broken.stdout, re.MULTILINE)
    assert "is not the published minilm-reranker" in broken.stderr


def test_verbose_says_more_of_ours_and_nothing_of_others(index: Path) -> None:
    run("-v", "query", index, "heat")
    assert logging.getLogger("retrieval.index").isEnabledFor(logging.INFO)
    assert not logging.getLogger("another.package").isEnabledFor(logging.INFO)
    run("query", index, "heat")
    assert not logging.getLogger("retrieval.index").isEnabledFor(logging.INFO)


def test_a_bug_is_no_clean_failure(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.index.reader.Index.facts", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("info", index)


def test_what_the_operating_system_refuses_is_one_line(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 300)
    corpus = write(tmp_path / "c.jsonl", DOCUMENTS)
    for arguments in (
        ("build-index", long, tmp_path / "index"),
        ("build-index", corpus, long),
        ("build-index", corpus, tmp_path / "index", "--vectors", f"{long}.npy"),
        ("add", corpus, long),
        ("query", long, "x"),
        ("info", long),
    ):
        assert "file name too long" in fails(*arguments)
    assert [p.name for p in tmp_path.iterdir()] == ["c.jsonl"]


def test_a_corpus_is_not_overwritten_by_its_rejects(tmp_path: Path, tiny: Any) -> None:
    corpus = write(tmp_path / "corpus.jsonl", [*DOCUMENTS, {"_id": "no text"}])
    (tmp_path / "link").symlink_to(corpus)
    before = corpus.read_bytes()
    for source, rejects in ((corpus, corpus), (corpus, tmp_path / "link"), (tmp_path, corpus)):
        options = ("--model", tiny("mean"), "--on-bad", "skip", "--rejects", rejects)
        assert "would be overwritten" in fails("build-index", source, tmp_path / "index", *options)
    assert corpus.read_bytes() == before
    assert not (tmp_path / "index").exists()

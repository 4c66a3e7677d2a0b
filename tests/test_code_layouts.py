"""Code-search benchmarks, each on a miniature in the layout of its authors."""

import csv
import gzip
import json
import tracemalloc

import pytest

from retrieval.errors import DataError
from retrieval.eval.benchmark import Benchmark

URL = "https://example.org/owner/repo/blob/1a2b/src/tank.py"


def function(n, *, name="fill", doc="Fill the tank up to the mark.", body="    pump(level)", **fields):
    """A record of CodeSearchNet's fields, with a docstring in its code."""
    record = {
        "repo": "owner/repo",
        "path": "src/tank.py",
        "func_name": name,
        "language": "python",
        "code": f'def {name}(level):\n    """{doc}\n\n    Args:\n        level: in litres\n    """\n{body}',
        "code_tokens": ["def", name, "(", "level", ")", ":", *body.split()],
        "docstring": f"{doc}\n\n    Args:\n        level: in litres",
        "docstring_tokens": doc.replace(".", " .").split(),
        "partition": "test",
        "url": f"{URL}#L{n}-L{n + 5}",
    }
    return {key: value for key, value in (record | fields).items() if value is not None}


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return path


def official(root, records, *, language="python", split="test", part=0):
    """A part in the place that the official archive gives it."""
    folder = root / language / "final" / "jsonl" / split
    return write_lines(folder / f"{language}_{split}_{part}.jsonl.gz", records)


def documents(benchmark):
    return {document.doc_id: document.text for document in benchmark.corpus()}


def notes(benchmark):
    return " | ".join(benchmark.card.notes)


# CodeSearchNet


def test_codesearchnet_takes_the_docstring_out(tmp_path):
    official(tmp_path, [function(1), function(9, name="drain", doc="Let all water out!", body="    pump(-level)")])
    benchmark = Benchmark.load(tmp_path / "python")
    first, second = f"{URL}#L1-L6", f"{URL}#L9-L14"
    assert documents(benchmark) == {
        first: "def fill(level):\n    pump(level)",
        second: "def drain(level):\n    pump(-level)",
    }
    assert benchmark.queries == {
        f"{first}#query": "Fill the tank up to the mark .",
        f"{second}#query": "Let all water out!",
    }
    assert benchmark.qrels == {f"{first}#query": {first: 1}, f"{second}#query": {second: 1}}
    card = benchmark.card
    assert (card.name, card.split, card.profile) == ("CodeSearchNet python", "test", "csn-999")
    assert (card.documents, card.queries, card.judgements, card.duplicates) == (2, 2, 2, 0)
    assert next(benchmark.corpus()).metadata["func_name"] == "fill"
    assert documents(benchmark) == documents(benchmark)  # opened anew


def test_codesearchnet_reads_python_2(tmp_path):
    body = "    print 'at', `level`\n    exec 'pump()'"
    official(tmp_path, [function(1, body=body)])
    assert documents(Benchmark.load(tmp_path)) == {f"{URL}#L1-L6": f"def fill(level):\n{body}"}


def test_codesearchnet_takes_tokens_where_the_docstring_cannot_be_cut(tmp_path):
    broken = 'def fill(level):\n    """Fill the tank up'
    official(tmp_path, [function(1, code=broken), function(20)])
    benchmark = Benchmark.load(tmp_path)
    assert documents(benchmark)[f"{URL}#L1-L6"] == "def fill ( level ) : pump(level)"
    assert "no docstring could be cut out of the code: 1" in notes(benchmark)


def test_codesearchnet_without_code_and_tokens_names_line_and_reason(tmp_path):
    broken = function(1, code='def fill(level):\n    """Fill', code_tokens=None)
    official(tmp_path, [function(30), broken])
    with pytest.raises(
        DataError, match=r"python_test_0\.jsonl\.gz, line 2: its docstring cannot be found .*code_tokens"
    ):
        Benchmark.load(tmp_path)


def test_a_string_that_is_a_docstring_to_codesearchnet_only_is_left_out_by_the_tokens(tmp_path):
    code = 'def fill(level):\n    pump(level)\n    """Fill the tank up to the mark."""'
    official(tmp_path, [function(1, code=code)])
    benchmark = Benchmark.load(tmp_path)
    assert documents(benchmark)[f"{URL}#L1-L6"] == "def fill ( level ) : pump(level)"
    assert "words of their own query" not in notes(benchmark)


def test_a_query_in_a_comment_of_its_document_is_counted(tmp_path):
    official(tmp_path, [function(1, body="    # Fill the tank, up to the mark\n    pump(level)"), function(20)])
    benchmark = Benchmark.load(tmp_path)
    assert "words of their own query, in a comment, a name or a string: 1" in notes(benchmark)
    assert "# Fill the tank" in documents(benchmark)[f"{URL}#L1-L6"]


def test_equal_functions_and_equal_queries_are_counted_and_kept(tmp_path):
    official(tmp_path, [function(1), function(9), function(20, body="    other()")])
    benchmark = Benchmark.load(tmp_path)
    assert (benchmark.card.documents, benchmark.card.duplicates, benchmark.card.queries) == (3, 1, 3)
    assert "queries with the text of an earlier one, of which each has one right function: 2" in notes(benchmark)
    assert "documents with the text of an earlier one, not right for its query: 1" in notes(benchmark)


def test_ids_without_a_url_of_their_own_are_places(tmp_path):
    official(tmp_path, [function(1), function(1, name="b"), function(1, url="a b"), function(1, url=None)])
    ids = list(documents(Benchmark.load(tmp_path)))
    assert ids == [f"{URL}#L1-L6", *(f"python_test_0.jsonl.gz#{line}" for line in (2, 3, 4))]
    assert not any(" " in doc_id for doc_id in ids)


def test_a_function_without_documentation_stays_in_the_pool(tmp_path):
    official(tmp_path, [function(1), function(9, docstring="", docstring_tokens=[])])
    benchmark = Benchmark.load(tmp_path)
    assert (benchmark.card.documents, benchmark.card.queries) == (2, 1)
    assert "functions without documentation, which are in the pool without a query: 1" in notes(benchmark)


def test_other_languages_hold_no_docstring_and_stay_as_they_are(tmp_path):
    code = 'function fill(level) {\n  "use strict";\n  pump(level);\n}'
    official(tmp_path, [function(1, language="javascript", code=code)], language="javascript")
    assert list(documents(Benchmark.load(tmp_path)).values()) == [code]


def test_parts_come_in_the_order_of_their_numbers(tmp_path):
    for part in (10, 2, 0):
        official(tmp_path, [function(part, doc=f"Number {part} it is.")], part=part)
    benchmark = Benchmark.load(tmp_path)
    assert [text.split()[1] for text in benchmark.queries.values()] == ["0", "2", "10"]
    assert "part 1 of the split is missing" in notes(benchmark)


def test_splits_are_chosen_and_listed(tmp_path):
    official(tmp_path, [function(1)], split="train")
    official(tmp_path, [function(9)], split="valid")
    assert Benchmark.load(tmp_path / "python", "valid").card.split == "valid"
    with pytest.raises(DataError, match="name a split; there are: train, valid"):
        Benchmark.load(tmp_path / "python")
    with pytest.raises(DataError, match="no split 'dev'; there are: train, valid"):
        Benchmark.load(tmp_path / "python", "dev")


def test_several_languages_are_listed(tmp_path):
    official(tmp_path, [function(1)])
    official(tmp_path, [function(1, language="go")], language="go")
    with pytest.raises(DataError, match=r"several languages \(go, python\); give the folder of one"):
        Benchmark.load(tmp_path)
    assert Benchmark.load(tmp_path / "go").card.name == "CodeSearchNet go"


@pytest.mark.parametrize("inside", [".", "python", "python/final", "python/final/jsonl", "python/final/jsonl/test"])
def test_any_folder_above_the_files_will_do(tmp_path, inside):
    official(tmp_path, [function(1)])
    assert Benchmark.load(tmp_path / inside).card.documents == 1


@pytest.mark.parametrize("name", ["python_test_0.jsonl", "test.jsonl", "test.jsonl.gz", "python/test.jsonl"])
def test_flat_folders_are_read(tmp_path, name):
    write_lines(tmp_path / name, [function(1)])
    assert Benchmark.load(tmp_path).card.name == "CodeSearchNet python"


def test_a_part_that_is_there_twice_is_refused(tmp_path):
    part = official(tmp_path, [function(1)])
    write_lines(part.with_suffix(""), [function(1)])
    with pytest.raises(DataError, match="are the same part of python test; remove one"):
        Benchmark.load(tmp_path)


def test_a_damaged_archive_is_named(tmp_path):
    part = official(tmp_path, [function(n, doc=f"Number {n * 7919} of many.") for n in range(300)])
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"python_test_0\.jsonl\.gz: cannot be read; it is truncated"):
        Benchmark.load(tmp_path)
    part.write_bytes(gzip.compress(b'{"code": "\xff"}\n'))
    with pytest.raises(DataError, match=r"python_test_0\.jsonl\.gz, line 1: byte 0xff .* is not utf-8; convert"):
        Benchmark.load(tmp_path)


def test_missing_and_mistyped_fields_are_named(tmp_path):
    official(tmp_path, [function(1), {"code": "x", "docstring": None, "url": "u"}])
    with pytest.raises(DataError, match=r"line 2: no 'docstring' \(found: code, docstring, url\)"):
        Benchmark.load(tmp_path)
    official(tmp_path, [function(1, docstring_tokens=["a", 1])])
    with pytest.raises(DataError, match="line 1: 'docstring_tokens' is a list; expected a list of strings"):
        Benchmark.load(tmp_path)
    official(tmp_path, [function(1, code=["x"])])
    with pytest.raises(DataError, match="line 1: 'code' is a list; expected a string"):
        Benchmark.load(tmp_path)


def test_the_code_of_a_split_is_never_held_together(tmp_path):
    body = f"    pump('{'a' * 64_000}')"  # 64 kB of code a function, 19 MB in all
    official(tmp_path, [function(n * 10, doc=f"Fill tank {n}.", body=body, code_tokens=["x"]) for n in range(300)])
    Benchmark.load(tmp_path)  # imports
    tracemalloc.start()
    benchmark = Benchmark.load(tmp_path)
    assert sum(1 for _ in benchmark.corpus()) == 300
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6_000_000


def test_a_saved_codesearchnet_is_the_same_benchmark(tmp_path):
    official(tmp_path / "csn", [function(1), function(9, name="drain", doc="Let it out.")])
    benchmark = Benchmark.load(tmp_path / "csn")
    benchmark.save(tmp_path / "saved")
    again = Benchmark.load(tmp_path / "saved")
    assert (again.queries, again.qrels, documents(again)) == (benchmark.queries, benchmark.qrels, documents(benchmark))
    assert again.card.profile == "csn-999"


# The Challenge


def annotations(path, rows, header=("Language", "Query", "GitHubUrl", "Relevance", "Notes")):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        csv.writer(stream, lineterminator="\r\n").writerows([header, *rows])
    return path


RATED = [
    ("Python", "fill a tank", "u/1", 3, 'a cell, of "two"\nlines'),
    ("Python", "Fill a tank", "u/1", 2, ""),  # 2.5, halfway: 3
    ("Python", "fill a tank", "u/2", 0, ""),
    ("Python", "fill a tank", "u/2", 1, ""),
    ("Python", "fill a tank", "u/2", 0, ""),  # 1/3: 0
    ("Python", "open  the valve?", "u/3", 1, ""),
    ("Python", "nothing fits", "u/3", 0, ""),
    ("Go", "fill a tank", "u/4", 2, ""),
]


def test_challenge_means_are_rounded_and_counted(tmp_path):
    annotations(tmp_path / "annotationStore.csv", RATED)
    benchmark = Benchmark.load(tmp_path, "python")
    assert benchmark.qrels == {"fill_a_tank": {"u/1": 3, "u/2": 0}, "open_the_valve?": {"u/3": 1}}
    assert benchmark.queries == {"fill_a_tank": "fill a tank", "open_the_valve?": "open the valve?"}
    assert "rated several times, of which the mean counts: 2; means rounded: 2" in notes(benchmark)
    assert "queries without a grade above 0 once rounded, left out (the official script: before): 1" in notes(benchmark)
    assert "ndcg_burges" in notes(benchmark)
    assert benchmark.card.documents is None


def test_challenge_splits_are_languages(tmp_path):
    file = annotations(tmp_path / "annotationStore.csv", RATED)
    assert Benchmark.load(file, "go").qrels == {"fill_a_tank": {"u/4": 2}}
    with pytest.raises(DataError, match="name a split; there are: go, python"):
        Benchmark.load(file)
    with pytest.raises(DataError, match="no split 'test'; there are: go, python"):
        Benchmark.load(file, "test")


def test_challenge_pool_is_what_lies_beside_it(tmp_path):
    file = annotations(tmp_path / "annotationStore.csv", RATED)
    benchmark = Benchmark.load(file, "python")
    with pytest.raises(DataError, match=r"no functions to search beside annotationStore\.csv"):
        benchmark.corpus()
    write_lines(tmp_path / "python_test_0.jsonl.gz", [function(1, url="u/1"), function(9, url="u/2", language="go")])
    tokens = {"function": "def f():\n    '''Doc.'''\n    y", "url": "u/3", "function_tokens": ["def"]}
    write_lines(tmp_path / "more.jsonl", [tokens])
    assert documents(Benchmark.load(tmp_path, "python")) == {
        "u/3": "def f():\n    y",
        "u/1": "def fill(level):\n    pump(level)",
    }
    write_lines(tmp_path / "again.jsonl", [function(1, url="u/1")])
    with pytest.raises(DataError, match=r"python_test_0\.jsonl\.gz, line 1: the url 'u/1' came before"):
        list(Benchmark.load(tmp_path, "python").corpus())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("Go", "x", "u/1", "2.5", ""), r"line 2: the Relevance is '2\.5'; expected a whole number from 0 to 3"),
        (("Go", "x", "u/1", "4", ""), "line 2: the Relevance is '4'"),
        (("Go", "x", "u 1", "1", ""), "line 2: the GitHubUrl 'u 1' is no address"),
        (("Go", " ", "u/1", "1", ""), "line 2: the query '' cannot be told"),
        (("Go", "\udce9", "u/1", "1", ""), "line 2: byte 0xe9 .* is not utf-8; convert the file"),
        (("Go", "x", "u/1"), "line 2: 3 cells where 5 columns were expected"),
    ],
)
def test_broken_annotations_are_named(tmp_path, row, reason):
    with pytest.raises(DataError, match=reason):
        Benchmark.load(annotations(tmp_path / "annotationStore.csv", [row]), "go")


def test_annotations_without_a_column_are_named(tmp_path):
    file = annotations(tmp_path / "annotationStore.csv", [("Go", "x", "u/1")], ("Language", "Query", "GitHubUrl"))
    with pytest.raises(DataError, match=r"line 2: no 'Relevance' \(found: Language, Query, GitHubUrl\)"):
        Benchmark.load(file)


# CoSQA

POOL = {'def a():\n    """Doc a."""\n    return 1': 0, "def b(): return 2": 1, "def c(): return 3": 7}


def pair(n, index, **fields):
    return {"idx": f"cosqa-train-{n}", "doc": f"python ask {n}", "label": 1, "retrieval_idx": index} | fields


def cosqa(folder, *, pool=POOL, **splits):
    write_json(folder / "code_idx_map.txt", pool)
    for split, pairs in splits.items():
        write_json(folder / f"cosqa-retrieval-{split}-{len(pairs)}.json", pairs)
    return folder


def test_cosqa_pool_is_the_whole_map(tmp_path):
    shown = pair(6, 0, code="def other(): pass", label=0)
    benchmark = Benchmark.load(cosqa(tmp_path, test=[pair(5, 7), shown], dev=[pair(8, 1)]))
    assert benchmark.queries == {"cosqa-train-5": "python ask 5", "cosqa-train-6": "python ask 6"}
    assert benchmark.qrels == {"cosqa-train-5": {"7": 1}, "cosqa-train-6": {"0": 0}}
    assert documents(benchmark) == {str(index): code for code, index in POOL.items()}
    assert benchmark.card.documents == 3
    assert benchmark.card.profile == "codexglue"
    assert "queries without a right code, since their only pair has label 0: 1" in notes(benchmark)
    assert "under their index, which counts: 1" in notes(benchmark)
    assert Benchmark.load(tmp_path, "dev").qrels == {"cosqa-train-8": {"1": 1}}
    with pytest.raises(DataError, match="no split 'train'; there are: dev, test"):
        Benchmark.load(tmp_path, "train")


def test_cosqa_with_rewritten_queries_beside_it(tmp_path):
    cosqa(tmp_path, train=[pair(1, 1)])
    write_json(tmp_path / "cosqa-retrieval-train-19604-qra-switch-28624.json", [pair(2, 7)])
    assert list(Benchmark.load(tmp_path).queries) == ["cosqa-train-1"]


def test_a_code_that_repeats_in_the_map_is_two_documents(tmp_path):
    cosqa(tmp_path, test=[pair(1, 1)])
    (tmp_path / "code_idx_map.txt").write_text('{"x": 0, "y": 1, "x": 2}')
    benchmark = Benchmark.load(tmp_path)
    assert documents(benchmark) == {"0": "x", "1": "y", "2": "x"}
    assert benchmark.card.duplicates == 1


@pytest.mark.parametrize(
    ("pool", "pairs", "reason"),
    [
        (POOL, [pair(1, 1), pair(2, 5)], "record 2: no code has index 5"),
        (POOL, [pair(1, 1), pair(1, 7)], "record 2: idx 'cosqa-train-1' came before, in record 1"),
        (POOL, [pair(1, 1, label=2)], "record 1: the label is 2; expected 0 or 1"),
        (POOL, [pair(1, "x")], "record 1: 'retrieval_idx' is 'x'; expected a whole number"),
        (POOL, [{"idx": "a", "retrieval_idx": 1}], r"record 1: no 'doc' or 'query' \(found: idx, retrieval_idx\)"),
        (POOL, {"idx": "a"}, "a JSON array was expected, not an object"),
        (POOL, ["a"], "record 1: a JSON object was expected, not a string"),
        (POOL, [pair(1, 1, doc="\ud800")], "record 1: 'doc' holds half a surrogate pair"),
        ({"a": 1, "b": 1}, [pair(1, 1)], r"code_idx_map\.txt, entry 2: index 1 is taken"),
        (["a"], [pair(1, 1)], r"code_idx_map\.txt: a JSON object of code and index was expected"),
    ],
)
def test_broken_cosqa_is_named(tmp_path, pool, pairs, reason):
    cosqa(tmp_path, pool=pool, test=pairs)
    with pytest.raises(DataError, match=reason):
        Benchmark.load(tmp_path)


def test_broken_json_is_named_with_its_line(tmp_path):
    cosqa(tmp_path, test=[pair(1, 1)])
    (tmp_path / "code_idx_map.txt").write_bytes(b'{"a": 0,\n"b": 1,\n}')
    with pytest.raises(DataError, match=r"code_idx_map\.txt, line 3: not JSON"):
        Benchmark.load(tmp_path)
    (tmp_path / "code_idx_map.txt").write_bytes(b'{"a": 0,\n"\xe9": 1}')
    with pytest.raises(DataError, match=r"code_idx_map\.txt, line 2: byte 0xe9 at position 2 is not UTF-8"):
        Benchmark.load(tmp_path)


# CodeXGLUE


def adv(idx, **fields):
    """A record of AdvTest's test split, where names are replaced and `code` is called `function`."""
    record = function(idx * 10, name="Func", doc=f"Fill tank {idx}.", **fields)
    record |= {"idx": idx, "function": record.pop("code"), "function_tokens": record.pop("code_tokens", None)}
    return {key: value for key, value in record.items() if value is not None}


def test_advtest_has_its_official_ids(tmp_path):
    write_lines(tmp_path / "test.jsonl", [adv(4), adv(0)])
    write_lines(tmp_path / "train.jsonl", [function(1, idx=0)])
    benchmark = Benchmark.load(tmp_path)
    assert benchmark.queries == {f"{URL}#L40-L45": "Fill tank 4 .", f"{URL}#L0-L5": "Fill tank 0 ."}
    assert benchmark.qrels == {f"{URL}#L40-L45": {"4": 1}, f"{URL}#L0-L5": {"0": 1}}
    assert documents(benchmark) == dict.fromkeys(("4", "0"), "def Func(level):\n    pump(level)")
    assert (benchmark.card.profile, benchmark.card.duplicates) == ("codexglue", 1)
    train = Benchmark.load(tmp_path, "train")
    assert documents(train) == {"0": "def fill(level):\n    pump(level)"}
    with pytest.raises(DataError, match="no split 'valid'; there are: test, train"):
        Benchmark.load(tmp_path, "valid")


def test_advtest_queries_that_share_a_url_stay_apart(tmp_path):
    write_lines(tmp_path / "test.jsonl", [adv(1), adv(2) | {"url": f"{URL}#L10-L15"}, adv(3) | {"url": ""}])
    assert list(Benchmark.load(tmp_path).queries) == [f"{URL}#L10-L15", "2#query", "3#query"]


def test_advtest_with_an_idx_twice_is_refused(tmp_path):
    write_lines(tmp_path / "test.jsonl", [adv(1), adv(1)])
    with pytest.raises(DataError, match=r"test\.jsonl, line 2: idx 1 came before, on line 1"):
        Benchmark.load(tmp_path)


def web(n, query, code, label=None):
    return {"idx": f"webquery-test-{n}", "doc": query, "code": code} | ({} if label is None else {"label": label})


PAIRS = [("open it", "def a(): 1", 1), ("open it", "def b(): 2", 0), ("shut it", "def a(): 1", 0)]


def test_webquery_equal_texts_are_one(tmp_path):
    pairs = [*PAIRS, ("open it", "def b(): 2", 1), ("open it", "def a(): 1", 0)]
    write_json(tmp_path / "test_webquery.json", [web(n, *row) for n, row in enumerate(pairs, 1)])
    benchmark = Benchmark.load(tmp_path)
    assert benchmark.queries == {"webquery-test-1": "open it", "webquery-test-3": "shut it"}
    assert benchmark.qrels == {
        "webquery-test-1": {"webquery-test-1#code": 1, "webquery-test-2#code": 1},
        "webquery-test-3": {"webquery-test-1#code": 0},
    }
    assert documents(benchmark) == {"webquery-test-1#code": "def a(): 1", "webquery-test-2#code": "def b(): 2"}
    assert "labelled pairs: 5; with an earlier code, one document: 3" in notes(benchmark)
    assert "queries without a right code: 1" in notes(benchmark)
    assert "pairs that came before: 2; with the other label, of which 1 counts: 2" in notes(benchmark)


def test_webquery_without_labels_says_so(tmp_path):
    write_json(tmp_path / "test_webquery.json", [web(n, *row[:2]) for n, row in enumerate(PAIRS, 1)])
    with pytest.raises(DataError, match=r"test_webquery\.json: no labels: .*webquery_answers\.txt"):
        Benchmark.load(tmp_path)
    answers = tmp_path / "webquery_answers.txt"
    answers.write_text("webquery-test-1\t1\nwebquery-test-2\t0\n")
    with pytest.raises(DataError, match="record 3: no label for 'webquery-test-3'"):
        Benchmark.load(tmp_path)
    answers.write_text("webquery-test-1\t1\nwebquery-test-2\t0\nwebquery-test-3\t0\n")
    assert Benchmark.load(tmp_path).qrels["webquery-test-1"]["webquery-test-1#code"] == 1
    answers.write_text("webquery-test-1\t1\nwebquery-test-2\t2\nwebquery-test-3\t0\n")
    with pytest.raises(DataError, match=r"webquery_answers\.txt, line 2: the label is 2"):
        Benchmark.load(tmp_path)


# MBPP and HumanEval


def task(number, text="Write a function to fill it.", code="def fill(n):\r\n    return n", **fields):
    return {"text": text, "code": code, "task_id": number, "test_list": ["assert fill(1)"]} | fields


def test_mbpp_is_split_by_number_and_searched_whole(tmp_path):
    write_lines(tmp_path / "mbpp.jsonl", [task(n) for n in (1, 10, 11, 510, 511, 600, 601, 974)])
    ids = {split: list(Benchmark.load(tmp_path, split).queries) for split in ("prompt", None, "validation", "train")}
    assert ids == {
        "prompt": ["MBPP/1", "MBPP/10"],
        None: ["MBPP/11", "MBPP/510"],
        "validation": ["MBPP/511", "MBPP/600"],
        "train": ["MBPP/601", "MBPP/974"],
    }
    benchmark = Benchmark.load(tmp_path / "mbpp.jsonl")
    assert benchmark.card.split == "test"
    assert (benchmark.card.documents, benchmark.card.duplicates) == (8, 7)
    assert documents(benchmark)["MBPP/1#code"] == "def fill(n):\n    return n"
    assert benchmark.qrels["MBPP/11"] == {"MBPP/11#code": 1}
    with pytest.raises(DataError, match="no split 'dev'; there are: prompt, test, train, validation"):
        Benchmark.load(tmp_path, "dev")


def test_mbpp_sanitized_and_its_leaks(tmp_path):
    leak = task(12, text=None, prompt="Fill the tank.", code="# fill the tank\nx")
    write_json(tmp_path / "sanitized-mbpp.json", [leak])
    benchmark = Benchmark.load(tmp_path)
    assert benchmark.queries == {"MBPP/12": "Fill the tank."}
    assert "words of their own query, in a comment, a name or a string: 1" in notes(benchmark)


def test_mbpp_with_a_task_twice_is_refused(tmp_path):
    write_lines(tmp_path / "mbpp.jsonl", [task(11), task(11)])
    with pytest.raises(DataError, match=r"mbpp\.jsonl, line 2: task_id 11 came before"):
        Benchmark.load(tmp_path)


PROMPT = '''from typing import List


def level() -> int:
    """ A helper. """
    return 1


def fill(tanks: List[int]) -> int:
    """ Fill the tanks, and say
    how much it took.%s
    """
'''


def problem(examples, number=0, **fields):
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": PROMPT % examples,
        "entry_point": "fill",
        "canonical_solution": "    return sum(tanks)\n",
        "test": "",
    } | fields


@pytest.mark.parametrize(
    "examples",
    ["", "\n    >>> fill([1])\n    1", "\n\n    Examples:\n    fill([1]) == 1", "\n    For example\n    fill([]) -> 0"],
)
@pytest.mark.parametrize("name", ["HumanEval.jsonl", "HumanEval.jsonl.gz"])
def test_humaneval_query_is_the_prose(tmp_path, examples, name):
    write_lines(tmp_path / name, [problem(examples)])
    benchmark = Benchmark.load(tmp_path)
    assert benchmark.queries == {"HumanEval/0": "Fill the tanks, and say\nhow much it took."}
    before, header = PROMPT.split('    """ Fill')[0].rsplit("def", 1)
    assert documents(benchmark) == {"HumanEval/0#code": f"{before}def{header}    return sum(tanks)"}
    assert (benchmark.card.documents, benchmark.card.split) == (1, "test")
    with pytest.raises(DataError, match="no split 'train'; there are: test"):
        Benchmark.load(tmp_path, "train")


def test_humaneval_of_nothing_but_examples_keeps_them(tmp_path):
    prompt = 'def fill(n):\n    """>>> fill(1)\n    1"""\n'
    write_lines(tmp_path / "HumanEval.jsonl", [problem("", prompt=prompt)])
    assert Benchmark.load(tmp_path).queries == {"HumanEval/0": ">>> fill(1)\n1"}


def test_humaneval_without_a_docstring_is_named(tmp_path):
    write_lines(tmp_path / "HumanEval.jsonl", [problem(""), problem("", 1, entry_point="empty")])
    with pytest.raises(DataError, match=r"line 2: 'prompt': the function 'empty' has no docstring"):
        Benchmark.load(tmp_path)
    write_lines(tmp_path / "HumanEval.jsonl", [problem("", prompt='def fill(n):\n    """open')])
    with pytest.raises(DataError, match=r"line 1: 'prompt': its docstring cannot be found"):
        Benchmark.load(tmp_path)


def test_every_card_says_what_a_number_means(tmp_path):
    official(tmp_path / "csn", [function(1)])
    annotations(tmp_path / "challenge" / "annotationStore.csv", RATED)
    cosqa(tmp_path / "cosqa", test=[pair(1, 1)])
    write_lines(tmp_path / "adv" / "test.jsonl", [adv(1)])
    write_json(tmp_path / "web" / "test_webquery.json", [web(1, "a", "b", 1)])
    write_lines(tmp_path / "mbpp" / "mbpp.jsonl", [task(11)])
    write_lines(tmp_path / "he" / "HumanEval.jsonl", [problem("")])
    for name in ("csn", "challenge", "cosqa", "adv", "web", "mbpp", "he"):
        benchmark = Benchmark.load(tmp_path / name, "python" if name == "challenge" else None)
        card = benchmark.card
        assert all((card.direction, card.pool, card.title, card.source, card.licence, card.notes)), name
        assert card.queries == len(benchmark.queries) == len(benchmark.qrels) > 0
        ids = [*benchmark.queries, *(doc_id for judged in benchmark.qrels.values() for doc_id in judged)]
        assert not any(set(one) & set(" \t\n") for one in ids)
        assert not set(benchmark.queries) & {doc_id for judged in benchmark.qrels.values() for doc_id in judged}

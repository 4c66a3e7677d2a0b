"""Filters: what passes, what is refused and how it is told, and that a predicate can do nothing but look at a row."""

import subprocess
import sys
import threading
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retrieval.columns import JSON_TEXT
from retrieval.errors import DataError
from retrieval.filters import passing

TABLE = pa.table(
    {
        "doc_id": ["a", "b", "c", "d"],
        "lang": ["python", "python", "go", None],
        "year": pa.array([2019, 2021, None, 2023], pa.int64()),
        "score": [0.5, float("nan"), None, -1.0],
        "tags": [["x", "y"], [], None, ["y"]],
        "day": pa.array([date(2020, 1, 31), date(2024, 2, 29), None, date(1999, 12, 31)]),
        "done": [True, False, None, True],
        "nothing": pa.nulls(4),
        "meta": pa.array(['{"n": 1, "lang": "py"}', '"red"', None, "[1, 2]"]),
        "odd name": [1, 2, 3, 4],
    }
)
TABLE = TABLE.set_column(8, pa.field("meta", pa.string(), metadata=JSON_TEXT), TABLE["meta"])


def found(where: str | pc.Expression, *segments: pa.Table) -> str:
    """The ids of the rows that pass."""
    tables = segments or (TABLE,)
    mask = passing(where, tables, place="the index")
    ids = [doc_id for table in tables for doc_id in table["doc_id"].to_pylist()]
    assert mask.dtype == bool and mask.shape == (len(ids),)
    return "".join(doc_id for doc_id, passes in zip(ids, mask, strict=True) if passes)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("lang = 'python' and year >= 2020", "b"),
        ("lang = 'python' or year >= 2020", "abd"),
        ("not lang = 'python'", "c"),
        ("lang is null", "d"),
        ("LANG = 'go'", "c"),
        ("lang = 'with select -- /* $' or lang = 'it''s (' or year = - - -2019", ""),
        ("lang in ('go', 'rust')", "c"),
        ("lang like 'py%' and lang not like '%x'", "ab"),
        ("lang ilike 'PY%'", "ab"),
        ("regexp_matches(lang, '^[gp]')", "abc"),
        ("year between 2019 and 2021", "ab"),
        ("year + 1 = 2020", "a"),
        ("score > 0", "ab"),  # in SQL, NaN is larger than any number
        ("score > 0 and not isnan(score)", "a"),
        ("'x' in tags", "a"),
        ("list_contains(tags, 'y')", "ad"),
        ("len(tags) = 0", "b"),
        ("day >= '2020-01-01'", "ab"),
        ("day < date '2020-01-01' or year(day) = 2024", "bd"),
        ("day > date '2020-01-01' + interval 30 days", "b"),
        ("done", "ad"),
        ("not done", "b"),
        ("nothing is null", "abcd"),
        ("nothing = 'x'", ""),
        ("nothing", ""),
        ("null", ""),
        ("true", "abcd"),
        ('"odd name" > 3', "d"),
        ("case when year is null then lang = 'go' else year > 2022 end", "cd"),
        ("coalesce(year, 0) = 0", "c"),
        ("upper(lang) = 'GO'", "c"),
        ("try_cast(lang as int) is null", "abcd"),
        ("meta->>'$.lang' = 'py'", "a"),
        ("meta->>'$' = 'red'", "b"),
        ("json_extract(meta, '$.n')::int = 1", "a"),
        ("json_array_length(meta) = 2", "d"),
        ("meta is not null", "abd"),
    ],
)
def test_what_passes(where: str, expected: str) -> None:
    assert found(where) == expected


def test_an_expression_of_pyarrow_passes_the_same() -> None:
    assert found((pc.field("lang") == "python") & (pc.field("year") >= 2020)) == "b"
    assert found(pc.field("year").is_null()) == "c"
    assert found(pc.field("meta").is_valid()) == "abd"
    assert found(pc.scalar(True)) == "abcd"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("colour = 'red'", "no column is called colour"),
        ('lang = "python"', r"no column is called python \(texts stand in single quotes, 'like this'\)"),
        ("year = 'red'", "Could not convert string 'red' to INT64"),
        ("lang > 3", "Cannot compare"),
        ("lang::int > 3", "Could not convert string 'python' to INT32"),
        ("year", "it gives int64, not true or false"),
        ("lang", "it gives string, not true or false"),
        ("year > ", "syntax error"),
        ("year > 3)", r"syntax error at or near \"\)\""),
        ("lang = 'python", "unterminated"),
        ("year > 3 /* so", r"/\* is not allowed"),
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("-- nothing", "-- is not allowed"),
        ("meta = 'red'", r"meta holds objects, .* kept as JSON text: ask meta->>'\$'"),
        ("meta.lang = 'py'", "kept as JSON text"),
        ("lower(meta) = 'red'", "kept as JSON text"),
        ("meta->'$.n' = 1", "-> and lambdas are not allowed in a filter, ->> is"),
        ("json_extract(lang, '$.a') = 'x'", "Malformed JSON"),
        ("contains(year, 'x')", "No function matches"),
        ("year > 99999999999999999999999999999999999999999::int", "out of range"),
        ("lang = '\ud800'", "utf-8|UTF-8"),
        ("year > 2000\x00", "no column|syntax"),
        ("a" * 5000, "no column is called a"),
        (pc.field("colour") == "red", "No match for FieldRef.Name.colour"),
        (pc.field("year") == "red", ""),
        (pc.field("year"), "it gives int64, not true or false"),
        (pc.field("meta") == "red", r"cannot look into meta: .*JSON text; SQL can, with meta->>"),
    ],
)
def test_what_does_not_fit_is_one_line_with_the_columns(where: str | pc.Expression, reason: str) -> None:
    with pytest.raises(DataError, match=rf"(?s)^the filter .*does not fit the index: .*{reason}") as caught:
        passing(where, [TABLE], place="the index")
    line = str(caught.value)
    assert "\n" not in line and "lang (string), year (int64)" in line and "meta (JSON text)" in line
    assert "Error" not in line and len(line) < 900


@pytest.mark.parametrize("where", [None, 3, b"year > 3", ["year > 3"]])
def test_what_is_no_predicate(where: object) -> None:
    with pytest.raises(DataError, match="is no predicate; expected SQL"):
        passing(where, [TABLE], place="the index")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "where",
    [
        "year > 3; drop table passages",
        "year > 3; select 1",
        "year > 3;",
        "true union select true",
        "true group by year",
        "true order by year",
        "true limit 1",
        "true qualify true",
        "true window w as ()",
        "true using sample 1",
        "true) from passages where (true",
        "true), (false",
        "exists (select * from read_csv('{file}'))",
        "(select count(*) from read_text('{file}')) > 0",
        "year in (select 2019)",
        "year = any(select 2019)",
        "(from '{file}') is null",
        "read_text('{file}') is null",
        "copy passages to '{file}'",
        "attach '{file}'",
        "pragma database_list",
        "install httpfs",
        "load '{file}'",
        "set threads = 9",
        "(select count(*) from range(10000000000) a, range(10000000000) b) > 0",
        "(with recursive t(n) as (select 1 union all select n + 1 from t) select max(n) from t) > 0",
        "len(range(100000000000)) > 0",
        "len(generate_series(1, 100000000000)) > 0",
        "len(repeat(lang, 1000000000)) > 0",
        "len(rpad(lang, 1000000000, 'x')) > 0",
        "len(replace(lang, 'o', 'oooooooooooooooooo')) > 0",
        "len(format('{{:1000000000d}}', year)) > 0",
        "len(list_transform([1, 2], x -> x)) > 0",
        "len([x for x in tags]) > 0",
        "count(*) > 0",
        "sum(year) > 0",
        "row_number() over () > 1",
        "unnest(tags) = 'x'",
        "random() < 0.5",
        "now() > day",
        "nextval('s') > 0",
        "getvariable('x') is null",
        "current_setting('threads') = '1'",
        "current_date > day",
        "system.main.repeat(lang, 3) = 'x'",
        "lang.repeat(3) = 'x'",
        "year = $1",
        "year = ?",
        "* is null",
        "columns(*) is null",
        "#1 = 'a'",
        "default",
    ],
)
def test_a_predicate_can_only_look_at_a_row(where: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("secret\n")
    with pytest.raises(DataError, match="does not fit the index") as caught:
        passing(where.format(file=file), [TABLE], place="the index")
    assert "secret" not in str(caught.value)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["secret\n"]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "not " * 100_000 + "done",
        "+".join("1" * 5000) + " > 0",
        "+".join(["year"] * 500) + " > 0",  # too deep for Python's JSON, not for DuckDB
        "tags" + ".x" * 5000 + " = 1",
        "- " * 10_000,
        "(with a as " * 10,
        "'\\' = e'\\'' or (WITH a as " * 10,
        "case when " * 2000,
        "lower(" * 5000 + "lang",
        "'" * 9999,
    ],
)
def test_a_predicate_of_any_depth_is_refused_and_not_a_crash(text: str) -> None:
    with pytest.raises(DataError, match=r"does not fit the index: .*") as caught:
        passing(text, [TABLE], place="the index")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("kind", ["int[10000][20]", "INT[3]", "struct(a int[9])", "integer array[5]"])
def test_a_short_predicate_cannot_ask_for_arrays_of_millions_a_row(kind: str) -> None:
    with pytest.raises(DataError, match="fixed size"):
        found(f"try_cast(tags as {kind}) is null")
    assert found("cast(tags as varchar[]) is null") == "c"


def test_a_long_list_is_no_problem() -> None:
    assert found(f"year in ({','.join(map(str, range(2020, 7000)))})") == "bd"
    assert found(" or ".join(f"year = {year}" for year in range(2020, 2900))) == "bd"


def test_segments_are_as_if_all_rows_had_been_read_at_once() -> None:
    newer = pa.table({"doc_id": ["e", "f"], "year": [2020.5, None], "lang": [7, 8], "colour": ["red", None]})
    assert found("year > 2020", TABLE, newer) == "bde"
    assert found("colour = 'red'", newer, TABLE) == "e"
    assert found("colour is null and year is not null", TABLE, newer) == "abd"
    assert found(pc.field("colour").is_null(), TABLE, newer) == "abcdf"
    assert found(pc.field("year") > 2020, TABLE, newer) == "bde"
    assert found("lang->>'$' = 'go' or (lang->>'$')::varchar = '7'", TABLE, newer) == "ce"
    for where in ("lang = 'go'", pc.field("lang") == "go"):  # text here, numbers there
        with pytest.raises(DataError, match=r"(?s)lang.*JSON text.*there are .*lang \(JSON text\)"):
            passing(where, [TABLE, newer], place="the index")


def test_names_in_upper_and_lower_case() -> None:
    table = pa.table({"doc_id": ["a", "b"], "Year": [1, 2], "year": [2, 1], "Lang": ["x", "y"]})
    assert found("year = 1", table) == "b"
    assert found('"Year" = 1', table) == "a"
    assert found("lang = 'x'", table) == "a"
    for where in ("YEAR = 1", '"Year" = year'):
        with pytest.raises(DataError, match="differ in upper and lower case only"):
            passing(where, [table], place="the index")


def test_a_column_called_as_something_of_ours() -> None:
    table = pa.table({"doc_id": ["a", "b"], "passages": [{"x": 1}, {"x": 2}], "keep": [1, 2], "current_date": [1, 2]})
    assert found("passages.x = 2", table) == "b"
    assert found("keep = 1 and current_date = 1", table) == "a"


def test_no_rows_and_no_segments() -> None:
    assert found("year > 3", TABLE.slice(0, 0)) == ""
    assert passing("year > 3", [], place="the index").shape == (0,)


def test_times_are_in_utc_whatever_the_machine_thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    times = pa.array([0, 3600], pa.timestamp("s", "UTC"))
    table = pa.table({"doc_id": ["a", "b"], "time": times})
    assert found("time > '1970-01-01 00:30:00'", table) == "b"
    assert found("hour(time) = 0", table) == "a"


def test_every_type_is_answered_or_refused() -> None:
    """Whatever a Parquet file brings: a type that cannot be asked is told as such."""
    arrays = {
        "decimal": pa.array([1, 2], pa.decimal128(10, 2)),
        "wide": pa.array([1, 2], pa.decimal256(60, 2)),
        "half": pa.array(np.array([1, 2], np.float16)),
        "big": pa.array([1, 2**64 - 1], pa.uint64()),
        "bytes": pa.array([b"a", b"b"]),
        "duration": pa.array([1, 2], pa.duration("s")),
        "time": pa.array([1, 2], pa.time64("ns")),
        "pairs": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "nested": pa.array([{"x": {"y": 1}}, {"x": None}]),
        "view": pa.array(["a", "b"], pa.string_view()),
        "kinds": pa.array(["a", "b"]).dictionary_encode(),
    }
    table = pa.table({"doc_id": ["a", "b"], **arrays})
    answered = 0
    for name in arrays:
        try:
            assert found(f"{name} is not null", table) == "ab"
            answered += 1
        except DataError as error:
            assert "does not fit" in str(error)
    assert answered >= len(arrays) - 2
    assert found("nested.x.y = 1 and big < 5 and kinds = 'a' and decimal = 1", table) == "a"


def test_threads_do_not_meet() -> None:
    failures: list[str] = []

    def work(where: str, expected: str) -> None:
        for _ in range(5):
            if found(where) != expected:
                failures.append(where)

    cases = [("year > 2020", "bd"), ("lang = 'go'", "c"), ("done", "ad"), ("meta->>'$.n' = '1'", "a")]
    threads = [threading.Thread(target=work, args=case) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_only_a_filter_in_sql_loads_duckdb() -> None:
    code = (
        "import sys, pyarrow as pa, pyarrow.compute as pc, retrieval.filters as f\n"
        "table = pa.table({'n': [1, 2]})\n"
        "f.passing(pc.field('n') > 1, [table], place='x')\n"
        "assert 'duckdb' not in sys.modules\n"
        "assert f.passing('n > 1', [table], place='x').tolist() == [False, True]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)

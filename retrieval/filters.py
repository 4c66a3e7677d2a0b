"""Filters: which rows pass a predicate, given as SQL text or as a pyarrow expression.

SQL is evaluated by DuckDB, cut down to what looks at one row at a time. DuckDB's own parser gives the tree of a
predicate, and only what is listed here may stand in it: no subquery, no aggregate, no lambda, no function that reads
anything but the row, makes a long value of a short one, or answers differently another time. So a predicate is safe to
take from others, costs time in proportion to rows and its own length, and its answer can be kept.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrieval.columns import conform, is_json, unify
from retrieval.errors import DataError

Where: TypeAlias = str | pc.Expression

_SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # a table's name never means a variable of ours
    "threads": "1",
}
_SELECT = "SELECT 1 WHERE "
_QUOTED = re.compile(r"'(?:[^']|'')*'|" r'"(?:[^"]|"")*"')
# What hides quotes from us, and what DuckDB's parser takes time and memory without bound for.
_BARRED = re.compile(r"--|/\*|\$|\be''|\b(?:with|select)\b|(?:[-+]\s*){9}", re.IGNORECASE)
_DEEPEST = 100  # brackets within brackets
_LONGEST_NAME = 20  # names in `a.b.c`: DuckDB's time grows with their square
_EXPRESSIONS = "BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION OPERATOR TYPE"
_OF_JSON = (
    "->> json_array_length json_contains json_exists json_extract json_extract_path json_extract_path_text "
    "json_extract_string json_keys json_type json_valid json_value"
)
_OF_ALL = (
    "+ - * / // % ^ ** & | ~ << >> || @> <@ && ^@ ~~ !~~ ~~* !~~* ~~~ like_escape ilike_escape "
    "abs ceil ceiling floor greatest isfinite isinf isnan least mod power pow round sign sqrt trunc "
    "concat contains ends_with instr lcase left len length lower ltrim nullif position prefix regexp_extract "
    "regexp_full_match regexp_matches right row rtrim split_part starts_with str_split string_split strip_accents "
    "strlen strpos substr substring suffix trim ucase unicode upper "
    "century date_diff date_part date_sub date_trunc datediff datepart datetrunc day dayname dayofmonth dayofweek "
    "dayofyear decade epoch epoch_ms hour isodow isoyear last_day make_date make_timestamp minute month monthname "
    "quarter second strftime strptime to_days to_hours to_minutes to_months to_seconds to_weeks to_years "
    "try_strptime week weekday weekofyear year yearweek "
    "array_contains array_extract array_has array_has_all array_has_any array_length cardinality list_contains "
    "list_extract list_has list_has_all list_has_any list_position list_value map_contains map_extract "
    "struct_extract struct_pack typeof"
)
_NODES, _JSON_FUNCTIONS = frozenset(_EXPRESSIONS.split()), frozenset(_OF_JSON.split())
_FUNCTIONS = _JSON_FUNCTIONS | frozenset(_OF_ALL.split())
_PRESENCE = ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL")
_SHOWN = 200  # characters of a predicate, and of what is wrong with it, in a message


class Columns(Protocol):
    """A table, or what gives one of some of its columns."""

    @property
    def schema(self) -> pa.Schema:
        """Of all columns."""

    def select(self, names: list[str]) -> pa.Table:
        """Return some columns."""


def passing(where: Where, segments: Sequence[Columns], *, place: object) -> np.ndarray:
    """Evaluate a predicate on rows.

    Args:
        where: SQL such as `lang = 'python' and year >= 2020`, or `pyarrow.compute.field("year") >= 2020`.
        segments: Tables whose columns may differ. A column that one lacks is null there; where types differ, the
            column is what it would be had all rows been read at once.
        place: What messages call the whole.

    Returns:
        (rows,) bool, in order; a row for which the predicate is null does not pass.

    Raises:
        DataError: No such column, types that do not fit, bad syntax, no predicate, or more than a predicate may do.
    """
    if not isinstance(where, Where):
        raise DataError(f'the filter {where!r} is no predicate; expected SQL, "year >= 2020", or a pyarrow expression')
    if not segments:
        return np.empty(0, bool)
    schema = unify([segment.schema for segment in segments])
    try:
        if isinstance(where, str):
            return _by_sql(where, segments, schema)
        return _by_expression(where, segments, schema)
    except _MisfitError as error:
        given, reason = (text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..." for text in (str(where), str(error)))
        columns = ", ".join(f"{field.name} ({'JSON text' if is_json(field) else field.type})" for field in schema)
        raise DataError(
            f"the filter {given!r} does not fit {place}: {reason}; there are {columns}"
        ) from error.__cause__


class _MisfitError(Exception):
    """Why a predicate cannot be evaluated."""


def _by_sql(where: str, segments: Sequence[Columns], schema: pa.Schema) -> np.ndarray:
    import duckdb

    try:
        where.encode()  # half of a surrogate pair is told in the same way by every version of DuckDB
        with duckdb.connect(config=_SETTINGS) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET lock_configuration = true")
            names = _needed(_parsed(connection, where), schema)
            table = _columns(segments, schema, names or schema.names[:1])
            relation = connection.from_arrow(table).query("passages", f"SELECT ({where}\n) FROM passages")
            return _mask(relation.to_arrow_table().column(0))
    except (duckdb.Error, UnicodeError) as error:
        line = next(iter(str(error).splitlines()), "")
        raise _MisfitError(re.sub(r"^\w[\w ]* Error: ", "", line).rstrip("!. ")) from error


def _mask(answers: pa.ChunkedArray) -> np.ndarray:
    """Turn a predicate's answers into (rows,) bool."""
    if not pa.types.is_boolean(answers.type) and answers.null_count < max(1, len(answers)):
        raise _MisfitError(f"it gives {answers.type}, not true or false")
    return pc.fill_null(answers.cast(pa.bool_()), False).to_numpy()  # type: ignore[no-any-return]


def _columns(segments: Sequence[Columns], schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    """Put some columns of all segments under each other; what needs no conversion is not copied."""
    wanted = pa.schema([schema.field(name) for name in names])
    batches = [
        conform(batch, wanted)
        for segment in segments
        for batch in segment.select([name for name in names if name in segment.schema.names]).to_batches()
    ]
    return pa.Table.from_batches(batches, wanted)


def _parsed(connection: Any, where: str) -> dict[str, Any]:
    """Return the tree of a predicate, as DuckDB's parser sees it, if it is one expression and nothing else."""
    if not where.strip():
        raise _MisfitError("it is empty")
    bare = _QUOTED.sub("''", where)
    if barred := _BARRED.search(bare):
        raise _MisfitError(f"{barred[0].lower()} is not allowed in a filter")
    if max(itertools.accumulate((c in "([{") - (c in ")]}") for c in bare)) > _DEEPEST:
        raise _MisfitError(f"more than {_DEEPEST} brackets within each other")
    try:
        tree, template = (
            json.loads(connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [_SELECT + text]).fetchall()[0][0])
            for text in (where, "true")
        )
    except RecursionError as error:  # DuckDB's own limit lies beyond that of Python's JSON
        raise _MisfitError("too many operators or parts within each other") from error
    if tree["error"]:
        raise _MisfitError(tree["error_message"])
    statements = [statement["node"] for statement in tree["statements"]]
    root: dict[str, Any] = statements[0].pop("where_clause", None)
    del template["statements"][0]["node"]["where_clause"]
    if statements != [statement["node"] for statement in template["statements"]]:
        raise _MisfitError("more than a predicate, which is what stands after WHERE in SQL, up to its end")
    return root


def _needed(root: dict[str, Any], schema: pa.Schema) -> list[str]:
    """Name the columns that a predicate looks at; refuse what may not stand in one."""
    needed: dict[str, None] = {}
    for node, parent in _nodes(root):
        if node["class"] not in _NODES:
            if node["class"] == "LAMBDA":
                raise _MisfitError("-> and lambdas are not allowed in a filter, ->> is")
            raise _MisfitError(f"a {node['class'].lower()} is not allowed in a filter")
        if node["class"] == "FUNCTION" and (node["function_name"] not in _FUNCTIONS or node.get("schema")):
            raise _MisfitError(f"the function {node['function_name']} is not known, or not allowed in a filter")
        if node["class"] == "TYPE" and node["type_name"].lower() == "array":
            raise _MisfitError("arrays of a fixed size, as in int[3], are not allowed in a filter, int[] is")
        if node["class"] == "COLUMN_REF":
            if len(node["column_names"]) > _LONGEST_NAME:
                raise _MisfitError(f"more than {_LONGEST_NAME} names joined by dots")
            name = node["column_names"][0]
            columns = [name] if name in schema.names else [n for n in schema.names if n.lower() == name.lower()]
            if not columns:
                raise _MisfitError(f"no column is called {name} (texts stand in single quotes, 'like this')")
            needed |= dict.fromkeys(columns)
            asked = parent.get("function_name") in _JSON_FUNCTIONS or parent.get("type") in _PRESENCE
            if is_json(schema.field(columns[0])) and not asked:
                raise _MisfitError(
                    f"{name} holds objects, lists or values of several types, kept as JSON text: "
                    f"ask {name}->>'$' or {name}->>'$.field'"
                )
    if len({name.lower() for name in needed}) < len(needed):
        raise _MisfitError("SQL cannot tell columns apart that differ in upper and lower case only")
    return list(needed)


def _nodes(root: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield every expression of a tree with the one that it is a part of."""
    pending: list[tuple[Any, dict[str, Any]]] = [(root, {})]
    while pending:
        part, parent = pending.pop()
        if isinstance(part, dict):
            if "class" in part:
                yield part, parent
                parent = part
            pending += [(value, parent) for value in part.values()]
        elif isinstance(part, list):
            pending += [(value, parent) for value in part]


def _by_expression(where: pc.Expression, segments: Sequence[Columns], schema: pa.Schema) -> np.ndarray:
    import pyarrow.dataset

    mixed = [field.name for field in schema if is_json(field) and _asks_for(where, field.name)]
    if mixed:
        raise _MisfitError(
            f"it cannot look into {', '.join(mixed)}: objects, lists or values of several types, kept as JSON text; "
            f"SQL can, with {mixed[0]}->>'$.field'"
        )
    names = [name for name in schema.names if name in str(where)]
    table = _columns(segments, schema, names or schema.names[:1])
    try:
        return _mask(pyarrow.dataset.dataset(table).to_table(columns={"keep": where})["keep"])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError) as error:
        raise _MisfitError(str(error).splitlines()[0]) from error


def _asks_for(where: pc.Expression, column: str) -> bool:
    """Whether a predicate needs a column's values, not only whether there are any."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', str(where))  # without string literals
    text = re.sub(r"\b(is_null|is_valid)\(\w+", "", text)
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", text) is not None

"""Metadata as Arrow columns: a type that loses nothing, and one schema for batches that differ.

Strings, booleans, integers and floats keep their type. What has no single such type (objects, lists, a type
that changes from record to record) is kept as JSON text, in a string column whose field metadata is
`{b"retrieval": b"json"}`; `plain` turns such a cell back into the value it was.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retrieval.errors import DataError
from retrieval.units import UNITS_TYPE, is_own

MARK = b"retrieval"
JSON_TEXT = {MARK: b"json"}
# Integers beyond 2**53: such a column cannot become float64 without loss.
WIDE_INTEGERS = {MARK: b"wide"}
_EXACT_IN_FLOAT64 = 1 << 53

_RESERVED = re.compile(r"(doc_id|title|text|passage|start|end)_*")


def metadata_name(name: str) -> str:
    """Names the column that keeps a metadata field: the field's own name, or `title_` for a second `title`.

    A reserved name, with any underscores behind it, gets one more. So no two fields can meet in one column,
    and the name does not depend on the record.
    """
    return f"{name}_" if _RESERVED.fullmatch(name) else name


def is_json(field: pa.Field) -> bool:
    """Tells whether a column holds JSON text of its values."""
    return (field.metadata or {}).get(MARK) == JSON_TEXT[MARK]


def as_python(cell: pa.Scalar) -> Any:
    """Turns an Arrow scalar into a Python value; what Python has no value for becomes Arrow's text of it.

    Such are times with nanoseconds (where pandas is not installed), and dates beyond the year 9999.
    """
    try:
        return cell.as_py()
    except (ValueError, OverflowError):  # of pyarrow, whose own errors are ValueErrors too
        pass
    if isinstance(cell, pa.StructScalar):
        return {name: as_python(value) for name, value in cell.items()}
    if isinstance(cell, pa.MapScalar):
        return [(as_python(entry["key"]), as_python(entry["value"])) for entry in cell.values]
    if isinstance(cell, pa.ListScalar):
        return [as_python(value) for value in cell.values]
    try:
        return cell.cast(pa.string()).as_py()
    except pa.ArrowException:  # a time zone that is not known
        return str(cell.value)


def plain(value: Any, field: pa.Field) -> Any:
    """Turns a cell (an Arrow scalar or what `as_py` made of it) into the value of the record it came from."""
    if isinstance(value, pa.Scalar):
        value = as_python(value)
    return json.loads(value) if is_json(field) and value is not None else value


def from_values(name: str, values: Sequence[Any]) -> tuple[pa.Field, pa.Array]:
    """Makes a column of Python values as JSON or CSV gives them; None is null."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.field(name, pa.null()), pa.nulls(len(values))
    if kinds == {str}:
        return pa.field(name, pa.string()), pa.array(values, pa.string())
    if kinds == {bool}:
        return pa.field(name, pa.bool_()), pa.array(values, pa.bool_())
    if kinds == {int} and all(v is None or -(1 << 63) <= v < 1 << 63 for v in values):
        array = pa.array(values, pa.int64())
        return field_of(name, array), array
    if kinds == {float} or (
        kinds == {int, float} and all(type(v) is not int or abs(v) <= _EXACT_IN_FLOAT64 for v in values)
    ):
        floats = [None if v is None else float(v) for v in values]
        return pa.field(name, pa.float64()), pa.array(floats, pa.float64())
    return pa.field(name, pa.string(), metadata=JSON_TEXT), _json_array(values)


def field_of(name: str, array: pa.Array, json_text: bool = False) -> pa.Field:
    """Describes a column, with the marks that `unify` and `plain` go by."""
    mark = JSON_TEXT if json_text else None
    if pa.types.is_integer(array.type):
        bounds = pc.min_max(array)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and max(-low, high) > _EXACT_IN_FLOAT64:
            mark = WIDE_INTEGERS
    return pa.field(name, array.type, metadata=mark)


def normal(array: pa.Array) -> pa.Array:
    """Gives a column its plain type: dictionaries, views and large variants are storage, not meaning."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    target = _normal_type(array.type)
    if target == array.type:
        return array
    try:
        return array.cast(target)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return array  # an exotic nesting that Arrow cannot cast: kept as it is


def _normal_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return _normal_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_normal_type(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([f.with_type(_normal_type(f.type)) for f in kind])
    return kind


def unify(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Finds the schema that holds every column of `schemas`; `conform` brings a batch to it.

    A column of one type keeps it; nulls take any type; integers and floats meet in int64 or float64 where
    no value changes; anything else that differs becomes JSON text. Columns come in order of appearance.

    Raises:
        DataError: metadata has the name of a column that an index keeps for itself of a source tree's files.
    """
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            known = fields.get(field.name)
            fields[field.name] = field.with_nullable(True) if known is None else _meet(known, field)
    return pa.schema(list(fields.values()))


def _meet(one: pa.Field, other: pa.Field) -> pa.Field:
    """Finds the field that both fit into."""
    if pa.types.is_null(one.type):
        return other.with_nullable(True)
    if pa.types.is_null(other.type):
        return one
    if is_own(one) != is_own(other) or (one.type == UNITS_TYPE) != (other.type == UNITS_TYPE):
        raise taken(one.name)
    wide = WIDE_INTEGERS[MARK] in ((one.metadata or {}).get(MARK), (other.metadata or {}).get(MARK))
    if is_json(one) or is_json(other):
        return pa.field(one.name, pa.string(), metadata=JSON_TEXT)
    if one.type == other.type:
        return one.with_metadata(WIDE_INTEGERS) if wide else one
    number = _common_number(one.type, other.type, wide)
    if number is None:
        return pa.field(one.name, pa.string(), metadata=JSON_TEXT)
    return pa.field(one.name, number, metadata=WIDE_INTEGERS if wide else None)


def taken(name: str) -> DataError:
    """Makes the error of documents whose metadata has the name of a column for the units of others."""
    return DataError(
        f"{name!r} is metadata of some documents, and of others (files of a source tree) it says which part of the "
        "file a passage is; rename the metadata, or make two indexes"
    )


def _common_number(one: pa.DataType, other: pa.DataType, wide: bool) -> pa.DataType | None:
    types = pa.types
    if pa.uint64() in (one, other) or not all(types.is_integer(t) or types.is_floating(t) for t in (one, other)):
        return None
    if types.is_integer(one) and types.is_integer(other):
        return pa.int64()
    return None if wide else pa.float64()


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Brings a batch to a schema that `unify` made from its own and others; a column it lacks is null.

    Raises:
        DataError: the schema lacks a column of the batch, or cannot hold its values exactly.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if extra := set(batch.schema.names) - set(schema.names):
        raise DataError(f"no column for {', '.join(sorted(extra))} in a schema of {', '.join(schema.names)}")
    arrays = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            arrays.append(_converted(batch.column(at), batch.schema.field(at), field))
        except pa.ArrowException as error:
            raise DataError(f"column {field.name!r} does not fit type {field.type}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _converted(array: pa.Array, have: pa.Field, want: pa.Field) -> pa.Array:
    if is_json(want):
        return array if is_json(have) else _json_array([as_python(cell) for cell in array])
    return array if have.type == want.type else array.cast(want.type, safe=True)


def _json_array(values: Sequence[Any]) -> pa.Array:
    # `default` meets only what no JSON file holds: dates, decimals of a Parquet column that differs.
    texts = [None if v is None else json.dumps(v, ensure_ascii=False, default=str) for v in values]
    return pa.array(texts, pa.string())

"""Metadata columns: exact values back, whatever batches of other types come beside them."""

import datetime
import decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.columns import conform, field_of, from_values, is_json, metadata_name, normal, plain, unify
from retrieval.errors import DataError

BIG = 9007199254740993  # 2**53 + 1: the first integer that float64 cannot hold


def batch(**columns):
    fields, arrays = zip(*(from_values(name, values) for name, values in columns.items()), strict=True)
    return pa.RecordBatch.from_arrays(list(arrays), schema=pa.schema(fields))


def values(record_batch, name):
    return [plain(cell, record_batch.schema.field(name)) for cell in record_batch.column(name)]


def same(one, other):
    """Equal, with equal types all the way down: 1, 1.0 and True are three values."""
    return repr(one) == repr(other)


@pytest.mark.parametrize(
    ("given_values", "kind"),
    [
        (["a", None, ""], pa.string()),
        (["2020-01-01", "7"], pa.string()),
        ([1, None, BIG], pa.int64()),
        ([-(2**63), 2**63 - 1], pa.int64()),
        ([True, None], pa.bool_()),
        ([1.5, float("inf")], pa.float64()),
        ([None, None], pa.null()),
    ],
)
def test_one_type_keeps_it(given_values, kind):
    field, array = from_values("x", given_values)
    assert array.type == kind
    assert same([plain(cell, field) for cell in array], given_values)


@pytest.mark.parametrize(
    "given_values",
    [
        [{"n": 1, "src": {"page": 3}}, {"tags": ["x", None]}, None, "plain", ""],
        [[1, 2], []],
        [1, "1", True, 1.0, None],
        [True, 1],
        [BIG, 0.5],
        [2**63],
        [{"b": 1, "a": BIG}],
    ],
)
def test_what_has_no_single_type_comes_back_exactly(given_values):
    field, array = from_values("x", given_values)
    assert is_json(field)
    assert same([plain(cell, field) for cell in array], given_values)
    assert same([plain(cell, field) for cell in array.to_pylist()], given_values)


def test_integers_and_floats_meet_in_floats_where_that_is_exact():
    field, array = from_values("x", [1, 0.5, None, 2**53])
    assert field.type == pa.float64()
    assert array.to_pylist() == [1.0, 0.5, None, 2.0**53]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.lists(json_values, min_size=1, max_size=4), min_size=1, max_size=4))
def test_batches_of_any_types_meet_in_one_schema_without_loss(parts):
    batches = [batch(x=part) for part in parts] + [batch(other=[1])]
    schema = unify([b.schema for b in batches])
    for record_batch, part in zip(batches, [*parts, [None]], strict=True):
        fitted = conform(record_batch, schema)
        assert fitted.schema.equals(schema, check_metadata=True)
        for got, wanted in zip(values(fitted, "x"), part, strict=True):
            # An integer may have become the float that equals it; nothing else may change.
            as_float = float(wanted) if type(wanted) is int and type(got) is float and abs(wanted) <= 2**53 else wanted
            assert same(got, as_float)


def test_a_wide_integer_is_remembered_after_its_batch_is_gone():
    schemas = [batch(x=[BIG]).schema, batch(x=[1]).schema]
    merged = unify([unify(schemas), unify(schemas[::-1])])
    assert is_json(unify([merged, batch(x=[0.5]).schema]).field("x"))
    assert unify([batch(x=[1]).schema, batch(x=[0.5]).schema]).field("x").type == pa.float64()


def test_numbers_of_different_width_meet_and_everything_else_becomes_json_text():
    def met(one, other):
        return unify([pa.schema([pa.field("x", one)]), pa.schema([pa.field("x", other)])]).field("x")

    assert met(pa.int8(), pa.int64()).type == pa.int64()
    assert met(pa.float32(), pa.int32()).type == pa.float64()
    assert met(pa.null(), pa.date32()).type == pa.date32()
    for one, other in [
        (pa.string(), pa.int64()),
        (pa.bool_(), pa.int64()),
        (pa.uint64(), pa.int64()),
        (pa.date32(), pa.string()),
    ]:
        assert is_json(met(one, other))
        assert is_json(met(other, one))


def test_dates_and_decimals_can_still_meet_strings():
    day, amount = datetime.date(2020, 1, 2), decimal.Decimal("1.10")
    dates = pa.RecordBatch.from_pydict({"d": [day], "n": [amount]})
    schema = unify([dates.schema, batch(d=["x"], n=["y"]).schema])
    fitted = conform(dates, schema)
    assert values(fitted, "d") == ["2020-01-02"]
    assert values(fitted, "n") == ["1.10"]


def test_a_schema_that_cannot_hold_a_batch_is_an_error():
    with pytest.raises(DataError, match="no column for y"):
        conform(batch(x=[1], y=[2]), batch(x=[1]).schema)
    with pytest.raises(DataError, match="'x' does not fit"):
        conform(batch(x=[BIG]), pa.schema([pa.field("x", pa.float64())]))


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
        (pa.array(["a"], pa.large_string()).dictionary_encode(), pa.string()),
        (pa.array(["a"], pa.large_string()), pa.string()),
        (pa.array(["a"], pa.string_view()), pa.string()),
        (pa.array([["a"]], pa.large_list(pa.large_string())), pa.list_(pa.string())),
        (
            pa.array([{"a": ["x"]}], pa.struct([("a", pa.list_(pa.large_string()))])),
            pa.struct([("a", pa.list_(pa.string()))]),
        ),
        (pa.array([1, None], pa.int32()), pa.int32()),
        (pa.array([datetime.date(2020, 1, 1)]), pa.date32()),
    ],
)
def test_storage_variants_become_the_plain_type_with_the_same_values(array, kind):
    assert normal(array).type == kind
    assert normal(array).to_pylist() == array.to_pylist()


def test_reserved_names_move_aside_and_never_meet():
    names = ["passage", "passage_", "start", "doc_id", "title", "title__", "_id", "passages", "text_x", ""]
    moved = [metadata_name(name) for name in names]
    assert moved == [
        "passage_",
        "passage__",
        "start_",
        "doc_id_",
        "title_",
        "title___",
        "_id",
        "passages",
        "text_x",
        "",
    ]
    assert len(set(moved)) == len(names)


def test_a_null_integer_column_has_no_width():
    assert field_of("x", pa.array([None], pa.int64())).metadata is None
    assert field_of("x", pa.array([-(2**63)], pa.int64())).metadata is not None


_BEYOND = [
    pa.array([1]).cast(pa.timestamp("ns")),
    pa.array([1]).cast(pa.timestamp("ns", "Europe/Berlin")),
    pa.array([1]).cast(pa.timestamp("s", "Mars/Olympus")),
    pa.array([1 << 62]).cast(pa.timestamp("us")),
    pa.array([-(1 << 62)]).cast(pa.timestamp("s")),
    pa.array([(1 << 31) - 1], pa.int32()).cast(pa.date32()),
    pa.array([123_456_789]).cast(pa.duration("ns")),
    pa.array([1 << 62]).cast(pa.duration("s")),
    pa.array([1]).cast(pa.time64("ns")),
]


@pytest.mark.parametrize("array", _BEYOND, ids=lambda array: str(array.type))
def test_values_that_python_has_no_type_for_are_given_back_as_text(array):
    field = pa.field("m", array.type)
    text = plain(array[0], field)
    assert text
    nested = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], array), pa.array([3])], ["a", "b"])
    assert plain(nested[0], pa.field("m", nested.type)) == {"a": [text], "b": 3}
    assert plain(pa.MapArray.from_arrays([0, 1], pa.array(["k"]), array)[0], field) == [("k", text)]
    schema = unify([pa.schema([field]), pa.schema([pa.field("m", pa.string())])])
    (cell,) = conform(pa.RecordBatch.from_arrays([array], schema=pa.schema([field])), schema)["m"]
    assert plain(cell, schema.field("m")) == str(text)

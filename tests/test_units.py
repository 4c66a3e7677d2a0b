"""Units of documents: their column, the titles and the lines of their passages."""

import numpy as np
import pyarrow as pa

from retrieval.units import (
    UNIT_FIELDS,
    UNITS_TYPE,
    Unit,
    is_own,
    line_numbers,
    titled,
    units_column,
    units_of,
    untitled,
)


def test_units_survive_their_column() -> None:
    units = [
        [Unit(start=0, end=4, section="f", kind="function"), Unit(start=4, end=9, section="", kind="code")],
        None,
        [],
    ]
    column = units_column(units)
    assert column.type == UNITS_TYPE
    assert units_of(column) == units


def test_a_passage_is_titled_by_document_and_unit() -> None:
    assert titled("frame.py", "DataFrame.merge") == "frame.py > DataFrame.merge"
    assert titled("frame.py", "") == "frame.py"
    assert titled(" ", "Install") == "Install"
    assert titled("", "") == ""


def test_lines_are_counted_at_line_feeds_only() -> None:
    text = "a😀\nb\r\n\u2028c\n\nlast"
    found = line_numbers(text, np.array([0, 3, 6, len(text) - 4, 9]), np.array([2, 7, 8, len(text), 9]))
    assert found[0].tolist() == [1, 2, 3, 5, 4]
    assert found[1].tolist() == [1, 3, 3, 5, 4]
    assert found[0].dtype == found[1].dtype == np.int32


def test_a_passage_that_ends_with_its_line_break_ends_on_that_line() -> None:
    first, last = line_numbers("ab\ncd\n", np.array([0]), np.array([3]))
    assert (first.tolist(), last.tolist()) == ([1], [1])


def test_a_documents_title_is_read_off_its_passages() -> None:
    for title in ("frame.py", "", "A > B", "Install"):
        for section in ("DataFrame.merge", "Guide > Install", "", "Install"):
            assert untitled(titled(title, section), section) == title
    assert untitled("a title > with a sign", None) == "a title > with a sign"


def test_own_columns_are_told_from_metadata_of_the_same_name() -> None:
    assert all(map(is_own, UNIT_FIELDS))
    assert not is_own(pa.field("kind", pa.string()))
    assert not is_own(pa.field("kind", pa.string(), metadata={b"retrieval": b"json"}))

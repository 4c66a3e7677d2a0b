"""Units of documents: their column, the titles and the lines of their passages."""

import numpy as np

from retrieval.units import UNITS_TYPE, Unit, line_numbers, titled, units_column, units_of


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

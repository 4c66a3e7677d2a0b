"""CSV by RFC 4180 and TSV without quoting: cells as written, headers, positions of faults."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.errors import DataError
from retrieval.tables import read_table


def table(data, delimiter=",", **options):
    """Records by line, and reasons by line."""
    records, faults = {}, {}
    for rows in read_table(io.BytesIO(data), delimiter, **options):
        records |= dict(zip(rows.numbers, rows.records, strict=True))
        faults |= {fault.number: fault.reason for fault in rows.faults}
    return records, faults


def test_quoted_cells_hold_commas_quotes_and_line_breaks_and_rows_know_their_line():
    data = b'id,text\r\na,"x, ""y""\r\nz\n"\r\n\r\nb,\xe2\x80\xa8<td>\r\nc,"last'
    records, faults = table(data + b'"')
    assert records == {
        2: {"id": "a", "text": 'x, "y"\r\nz\n'},
        6: {"id": "b", "text": "\u2028<td>"},
        7: {"id": "c", "text": "last"},
    }
    assert not faults


def test_nothing_is_guessed_from_the_words_in_a_cell():
    words = ["007", "NA", "null", "None", "nan", "1e5", "True", "2020-01-01", " padded ", ""]
    data = "id,text\n" + "".join(f"{n},{word}\n" for n, word in enumerate(words))
    records, _ = table(data.encode())
    assert [record["text"] for record in records.values()] == words


def test_a_quote_in_a_tsv_is_a_character():
    records, faults = table(b'1\t"opens\n2\tsize 6" pipe\n3\t"both"\r\n4\t\n', "\t")
    assert [record["text"] for record in records.values()] == ['"opens', 'size 6" pipe', '"both"', ""]
    assert not faults


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"x", "1 cell where 2 columns were expected"),
        (b"x,y,z", "3 cells where 2"),
        (b'x,"a"b', "not valid CSV"),
        (b"x,a\rb", "carriage return"),
        (b"x,caf\xe9", "byte 0xe9 at byte 6 of the line is not utf-8"),
        (b'x,"one\ncaf\xe9"', "line 4: byte 0xe9"),
    ],
)
def test_a_bad_row_is_named_by_the_line_it_starts_on_and_the_next_row_is_read(row, reason):
    records, faults = table(b"id,text\na,1\n" + row + b"\nb,2\n")
    assert [record["id"] for record in records.values()] == ["a", "b"]
    assert list(faults) == [3]
    assert reason in faults[3]


def test_a_quote_that_is_never_closed_is_named_where_it_opens():
    records, faults = table(b'id,text\na,1\nb,"open\nc,3\nd,4\n')
    assert list(records) == [2]
    assert list(faults) == [3]
    assert "never closed" in faults[3]


def test_a_bad_tsv_row_is_named():
    records, faults = table(b"id\ttext\na\t1\nb\nc\t\xff\nd\t4\n", "\t")
    assert [record["id"] for record in records.values()] == ["a", "d"]
    assert "1 cell where 2 columns" in faults[3]
    assert "0xff at byte 3" in faults[4]


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        (b"1\tone\n2\ttwo\n", {}, [{"_id": "1", "text": "one"}, {"_id": "2", "text": "two"}]),
        (b"1\tt\tone\n", {}, [{"_id": "1", "title": "t", "text": "one"}]),
        (b"\xef\xbb\xbfdocid\tlang\tbody\n1\ten\tx\n", {}, [{"docid": "1", "lang": "en", "body": "x"}]),
        (b"id\ttext\n", {"header": False}, [{"_id": "id", "text": "text"}]),
        (b"key\tvalue\n1\tx\n", {"header": True}, [{"key": "1", "value": "x"}]),
        (b"key\tvalue\n1\tx\n", {"given": ["key"]}, [{"key": "1", "value": "x"}]),
    ],
)
def test_a_header_is_a_first_row_with_a_known_id_name_unless_told(data, options, expected):
    assert list(table(data, "\t", **options)[0].values()) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"key,text\n1,x\n", "line 1: a header without a known id column .*key, text.*--id-field"),
        (b"1,2,3,4\n", "line 1: 4 columns and no header.*--header"),
        (b"only\n", "line 1: 1 column and no header"),
        (b"id,a,a\n1,2,3\n", "line 1: two columns are called 'a'"),
        (b"\nid,caf\xe9\n", "line 2: byte 0xe9"),
    ],
)
def test_columns_that_cannot_be_named_are_an_error(data, reason):
    with pytest.raises(DataError, match=reason):
        table(data)


def test_a_cell_may_be_large():
    text = "word " * 200_000
    assert table(f'id,text\n1,"{text}"\n'.encode())[0][2]["text"] == text


cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.lists(st.tuples(cells, cells), max_size=8), st.sampled_from(["\r\n", "\n"]))
def test_what_the_csv_module_writes_is_read_back(rows, end):
    target = io.StringIO(newline="")
    writer = csv.writer(target, quoting=csv.QUOTE_ALL, lineterminator=end)
    writer.writerows([("id", "text"), *rows])
    records, faults = table(target.getvalue().encode())
    assert [tuple(record.values()) for record in records.values()] == rows
    assert not faults

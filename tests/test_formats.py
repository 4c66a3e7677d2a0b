"""JSONL, Parquet and Arrow files as raw records: positions, strictness, compression, damage."""

import gzip
import io
import json

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval import lines
from retrieval.errors import ConfigError, DataError
from retrieval.formats import Columns, kind_of, read_file, read_jsonl
from retrieval.lines import Rows, check_encoding, numbered_lines, shown

EMOJI = "\N{GRINNING FACE}"


def jsonl(data, encoding="utf-8"):
    """All rows of a JSONL text as (records by line, reasons by line)."""
    records, faults = {}, {}
    for rows in read_jsonl(io.BytesIO(data), encoding):
        assert isinstance(rows, Rows)
        records |= dict(zip(rows.numbers, rows.records, strict=True))
        faults |= {fault.number: fault.reason for fault in rows.faults}
    return records, faults


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.jsonl", "jsonl"),
        ("a.JSON", "jsonl"),
        ("a.ndjson.gz", "jsonl"),
        ("x.y.csv.zst", "csv"),
        ("collection.tsv", "tsv"),
        ("a.parquet", "parquet"),
        ("a.feather", "arrow"),
        ("a.parquet.gz", None),
        ("a.gz", None),
        ("a.txt", None),
        ("jsonl", None),
    ],
)
def test_the_suffix_names_the_format(name, kind):
    assert kind_of(name) == kind


def test_lines_end_at_line_feeds_only():
    separators = "\u2028\u2029\x85\x0b\x0c\x1c"
    text = json.dumps({"t": separators}, ensure_ascii=False)
    records, faults = jsonl(f"{text}\r\n\n  \t\r\n{text}".encode())
    assert records == {1: {"t": separators}, 4: {"t": separators}}
    assert not faults


def test_a_byte_order_mark_is_no_part_of_the_first_record_but_stays_elsewhere():
    records, faults = jsonl(b'\xef\xbb\xbf{"a": 1}\n{"a": "\xef\xbb\xbf"}\n')
    assert records == {1: {"a": 1}, 2: {"a": "\ufeff"}}
    assert not faults


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": "cut', "Unterminated string at column 7"),
        (b"{'a': 1}", "column 2"),
        (b'{"a": 1} {"b": 2}', "Extra data at column 10"),
        (b'{"a": 1},', "column 9"),
        (b"[1, 2]", "not a list"),
        (b"3", "not a number"),
        (b"null", "not null"),
        (b"true", "not a boolean"),
        (b'{"a": "caf\xe9"}', "byte 0xe9 at byte 11 of the line is not utf-8"),
        (b'{"a": "\xed\xa0\x80"}', "byte 0xed at byte 8"),  # half a surrogate pair as UTF-8 bytes
        (b'{"a": "\\ud83d"}', "\\ud83d at column 8 is half a surrogate pair"),
        (b'{"a": "\\ud83d\\ude00 \\uDE00"}', "\\uDE00 at column 21"),
        (b'{"\\udc00": 1}', "\\udc00 at column 3"),
        (b'{"a": ' + b"[" * 100_000, "too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "too many digits"),
        (b'{"a": "\t"}', "Invalid control character at column 8"),
    ],
)
def test_a_broken_line_is_named_and_its_neighbours_are_kept(line, reason):
    records, faults = jsonl(b'{"n": 1}\n' + line + b'\n{"n": 3}\n')
    assert records == {1: {"n": 1}, 3: {"n": 3}}
    assert list(faults) == [2]
    assert reason in faults[2]


def test_escaped_pairs_and_escaped_backslashes_are_no_half_pairs():
    records, faults = jsonl(b'{"a": "\\ud83d\\ude00", "b": "\\\\ud83d", "c": "\\u00e9"}\n')
    assert records == {1: {"a": EMOJI, "b": "\\ud83d", "c": "é"}}
    assert not faults


@pytest.mark.parametrize("block", [1, 2, 7, 64])
def test_block_borders_change_nothing(monkeypatch, block):
    data = "\n".join(json.dumps({"n": n, "t": "é" * n}, ensure_ascii=False) for n in range(40)).encode()
    whole = jsonl(data)
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    assert jsonl(data) == whole
    assert len(whole[0]) == 40


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))), st.integers(1, 9))
def test_cutting_lines_equals_splitting_the_whole(texts, block):
    data = "\n".join(texts).encode()
    original, lines.BLOCK_BYTES = lines.BLOCK_BYTES, block
    try:
        blocks = list(numbered_lines(io.BytesIO(data), "utf-8"))
    finally:
        lines.BLOCK_BYTES = original
    cut = [line for _, block_lines in blocks for line in block_lines]
    expected = data.removeprefix(b"\xef\xbb\xbf") if block >= 3 else data
    assert b"\n".join(cut) == (expected[:-1] if expected.endswith(b"\n") else expected)
    numbers = [number + at for number, block_lines in blocks for at in range(len(block_lines))]
    assert numbers == list(range(1, len(cut) + 1))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "cp1252", "latin-1", "utf-8-sig", "gb18030"])
def test_another_encoding_gives_the_same_records(monkeypatch, encoding):
    monkeypatch.setattr(lines, "BLOCK_BYTES", 5)  # cuts characters in two
    text = "".join(json.dumps({"t": t}, ensure_ascii=False) + "\r\n" for t in ("café", "Größe", "x y"))
    records, faults = jsonl(text.encode(encoding), encoding)
    assert [record["t"] for record in records.values()] == ["café", "Größe", "x y"]
    assert not faults


def test_bytes_that_are_not_of_a_wide_encoding_are_an_error_naming_the_option(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    with pytest.raises(DataError, match=r"a\.jsonl: not utf-16 near byte \d+ .*--encoding"):
        list(read_file(str(path), "jsonl", encoding="utf-16"))


@pytest.mark.parametrize("name", ["utf-9", "base64", "", "a\0b"])
def test_an_encoding_that_is_none_is_refused(name):
    with pytest.raises(ConfigError, match="--encoding"):
        check_encoding(name)


def test_gzip_and_zstandard_are_read_by_their_suffix(tmp_path):
    data = b"".join(b'{"n": %d}\n' % n for n in range(50_000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data[:100_000]) + gzip.compress(data[100_000:]))  # two members
    with pa.output_stream(str(tmp_path / "a.jsonl.zst"), compression="zstd") as target:
        target.write(data)
    for name in ("a.jsonl.gz", "a.jsonl.zst"):
        records = [record for rows in read_file(str(tmp_path / name), "jsonl") for record in rows.records]
        assert records == [{"n": n} for n in range(50_000)]


def test_a_file_cut_short_is_an_error_naming_it(tmp_path):
    data = "".join(json.dumps({"n": n, "t": str(n) * 20}) + "\n" for n in range(5_000)).encode()
    table = pa.table({"id": [str(n) for n in range(5_000)]})
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    pq.write_table(table, tmp_path / "a.parquet")
    pyarrow.feather.write_feather(table, str(tmp_path / "a.feather"), compression="uncompressed")
    with pa.output_stream(str(tmp_path / "a.jsonl.zst"), compression="zstd") as target:
        target.write(data)
    with pa.ipc.new_stream(str(tmp_path / "s.arrow"), table.schema) as writer:
        writer.write_table(table)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for keep in (len(whole) * 3 // 4, 20, 0):
            path.write_bytes(whole[:keep])
            kind = kind_of(path.name)
            if keep == 0 and kind == "jsonl":
                continue  # an empty file holds nothing, compressed or not
            with pytest.raises(DataError, match=rf"{path.name}: .*truncated, damaged or of another format"):
                list(read_file(str(path), kind))


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    for name in ("no.jsonl", "no.parquet", "no.arrow", "no.csv"):
        with pytest.raises(DataError, match=rf"{name}: cannot be read \(No such file"):
            list(read_file(str(tmp_path / name), kind_of(name)))


def test_parquet_rows_are_numbered_across_row_groups_and_dropped_columns_stay_unread(tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(
        pa.table({"id": list(range(10)), "vector": [[0.5] * 3] * 10, "v": list("abcdefghij")}),
        path,
        row_group_size=4,
    )
    items = list(read_file(path, "parquet", batch_rows=3, drop=["vector"]))
    assert all(isinstance(item, Columns) and item.batch.schema.names == ["id", "v"] for item in items)
    firsts = [(item.first, item.batch.column("id")[0].as_py()) for item in items]
    assert all(first == value + 1 for first, value in firsts)
    assert sum(item.batch.num_rows for item in items) == 10


@pytest.mark.parametrize("stream", [False, True])
def test_arrow_files_and_streams_are_cut_to_size(tmp_path, stream):
    path = str(tmp_path / "a.arrow")
    table = pa.table({"id": list(range(10))})
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    items = list(read_file(path, "arrow", batch_rows=3))
    assert [(item.first, item.batch.num_rows) for item in items] == [(1, 3), (4, 3), (7, 1), (8, 3)]
    assert [value for item in items for value in item.batch.column(0).to_pylist()] == list(range(10))


def test_what_the_caller_does_between_two_items_is_not_blamed_on_the_file(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    with pytest.raises(OSError, match=r"^mine$"):
        for _ in read_file(str(path), "jsonl"):
            raise OSError("mine")


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_a_name_in_a_message_stays_on_one_line(name):
    assert len(shown(name).splitlines()) <= 1
    shown(name).encode()

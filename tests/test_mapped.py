"""Files above 16 MiB are not hashed on opening: what is damaged in them is refused by name, or is another text."""

import datetime
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds import unit, write_corpus

from retrieval import DataError, IndexFormatError, build_index, delete_documents
from retrieval.index.manifest import Manifest
from retrieval.index.reader import Index

ROWS = 600


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index with columns of many types, none of whose files is hashed on opening."""
    numbers = range(ROWS)
    table = pa.table(
        {
            "_id": [f"d{n}" for n in numbers],
            "title": [f"title {n % 7}" for n in numbers],
            "text": [f"text {n} {'wörd ' * (n % 9)}" for n in numbers],
            "year": [1900 + n % 100 for n in numbers],
            "tags": [[f"tag{n}"] * (n % 3) for n in numbers],
            "at": [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=n) for n in numbers],
            "of": [{"name": f"n{n}", "share": n / 3} for n in numbers],
            "half": pa.array([n if n % 2 else None for n in numbers], pa.int32()),
        }
    )
    pq.write_table(table, tmp_path / "c.parquet")
    _, vectors = write_corpus(tmp_path, [], unit(ROWS))
    build_index(tmp_path / "c.parquet", tmp_path / "index", vectors=vectors)
    delete_documents(["d3"], tmp_path / "index")
    monkeypatch.setattr("retrieval.index.manifest._HASH_ALWAYS", 0)
    return tmp_path / "index"


def file(path: Path, name: str) -> Path:
    return next(path.rglob(name))


DAMAGE = """
import pathlib, random, sys
import numpy as np
import pyarrow.compute as pc
from retrieval import IndexFormatError
from retrieval.index import manifest
from retrieval.index.reader import Index

path, name, first, last, times = pathlib.Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
manifest._HASH_ALWAYS = 0
file = next(path.rglob(name))
data = file.read_bytes()
queries = np.random.default_rng(5).standard_normal((3, 16)).astype(np.float32)
counts, draw = {"refused": 0, "answered": 0}, random.Random(0)

def ask():
    index = Index.open(path)
    for found in index.search(queries, 10):
        for one in found:
            index.passage(one.row), index.metadata(one.row)
    index.search(queries, 5, where=(pc.field("half") > 50) & (pc.field("title") == "title 3"))
    index.find(["d5", "d77"])
    index.search_lexical([["text"]], 5)
    for row in range(0, index.rows.rows, 37):
        index.passage(row), index.metadata(row)
    list(index.documents())

ask()
for _ in range(times):
    damaged = bytearray(data)
    at = draw.randrange(first, last or len(data))
    for place in range(at, min(len(data), at + draw.choice([1, 1, 2, 8]))):
        damaged[place] = draw.choice([0, 255, draw.randrange(256), damaged[place] ^ 1 << draw.randrange(8)])
    file.write_bytes(damaged)
    try:
        ask()
        counts["answered"] += 1
    except IndexFormatError as error:
        assert file.name in str(error) and "rebuild" in str(error), error
        counts["refused"] += 1
file.write_bytes(data)
print(counts["answered"], counts["refused"])
"""


def outcomes(path: Path, name: str, first: int, last: int, times: int) -> tuple[int, int]:
    """Damage a file of an index again and again, and ask it in every way; how often it answered, and refused."""
    command = [sys.executable, "-c", DAMAGE, str(path), name, *map(str, (first, last, times))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    answered, refused = map(int, done.stdout.split())
    return answered, refused


def test_no_damage_of_documents_ends_the_process(path: Path) -> None:
    size = file(path, "documents.arrow").stat().st_size
    footer = int.from_bytes(file(path, "documents.arrow").read_bytes()[-10:-6], "little") + 10
    for first, last in ((0, 3000), (size - footer, 0), (0, 0)):  # headers, the footer, all of it
        answered, refused = outcomes(path, "documents.arrow", first, last, 80)
        assert min(answered, refused) > 5


def test_a_header_of_vectors_that_says_something_else_is_refused(path: Path) -> None:
    answered, refused = outcomes(path, "vectors.faiss", 0, 45, 80)
    assert refused > 30 and answered > 0  # FAISS leaves some bytes of it unused


def damage(path: Path, before: bytes, after: bytes, *, last: bool = False) -> Path:
    name = file(path, "documents.arrow")
    data = name.read_bytes()
    assert len(before) == len(after) and before in data
    at = data.rindex(before) if last else data.index(before)
    name.write_bytes(data[:at] + after + data[at + len(before) :])
    return name


def test_a_column_that_lost_its_name_is_refused_when_the_index_is_opened(path: Path) -> None:
    for last in (False, True):  # the schema stands at both ends
        name = damage(path, b"doc_id", b"doc_ie", last=last)
        with pytest.raises(IndexFormatError, match=r"documents\.arrow is damaged"):
            Index.open(path)
        damage(path, b"doc_ie", b"doc_id", last=last)
    assert Index.open(path).rows.rows == ROWS
    with pa.OSFile(str(name), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("x", pa.int64())])):
        pass
    entry = Manifest.read(path).segments[0].documents
    name.write_bytes(name.read_bytes().ljust(entry.bytes, b"\0"))
    with pytest.raises(IndexFormatError, match=r"documents\.arrow"):
        Index.open(path)


def test_text_that_is_none_is_told_where_it_is_read(path: Path) -> None:
    damage(path, b"text 17 w", b"text 17\xff ")
    index = Index.open(path)
    assert index.passage(16)["doc_id"] == "d16"
    for read in (
        lambda: index.passage(17),
        lambda: list(index.documents()),
        lambda: index.search(unit(1), 3, where="text like 'a%'"),
    ):
        with pytest.raises(IndexFormatError, match=r"documents\.arrow is damaged"):
            read()
    assert len(list(index.documents(["doc_id"]))) == 1
    assert index.find(["d17"]).tolist() == [17]


def test_offsets_that_lead_away_are_told_where_they_are_followed(path: Path) -> None:
    starts = np.cumsum([0, *(len(f"d{n}") for n in range(ROWS))], dtype=np.int32)
    away = starts.copy()
    away[300] = -(2**31)
    damage(path, starts.tobytes(), away.tobytes())
    index = Index.open(path)
    for read in (lambda: index.passage(0), lambda: index.search(unit(1), 3), lambda: index.find(["d5"])):
        with pytest.raises(IndexFormatError, match=r"documents\.arrow is damaged"):
            read()
    with pytest.raises(DataError, match="no column is called"):  # an error of the query stays one
        index.search(unit(1), 3, where="colour = 'red'")


def test_a_passage_that_counts_beyond_its_document_is_told(path: Path) -> None:
    manifest = Manifest.read(path)
    replace(manifest, documents=manifest.documents - 1).write(path)  # as if one had several passages
    name = file(path, "documents.arrow")
    data = pa.py_buffer(name.read_bytes())
    numbers = pa.ipc.open_file(data).get_batch(0)["passage"].buffers()[1]
    damaged = bytearray(data)
    at = numbers.address - data.address + 4 * 5
    for number in (6, 10**9, -1):
        damaged[at : at + 4] = number.to_bytes(4, "little", signed=True)
        name.write_bytes(damaged)
        index, query = Index.open(path), unit(6)[5:]
        found = index.search(query, 3)
        with pytest.raises(IndexFormatError, match=r"documents\.arrow is damaged"):
            index.spans(found, list(query))

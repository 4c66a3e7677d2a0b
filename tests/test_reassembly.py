"""Documents with units out of an index: put together again, they give the same passages."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retrieval.encoder import EncoderSettings
from retrieval.index.reader import Index
from retrieval.indexing import build_index
from retrieval.reassembly import READING, Reassembly, write_documents
from retrieval.units import UNITS, UNITS_TYPE, Unit, units_column

BODY = "\n\n".join(f"    line {n} of a long function\r\n        indented more" for n in range(20))
TEXT = f"\n\n  import os\n\n\ndef f():\n    return 1\n\n\n\ndef g():\n{BODY}\n\n# the end\n"
PAGES = "first page " * 60 + "\n\nsecond page"


def at(text: str, part: str, section: str, kind: str) -> Unit:
    start = text.index(part)
    return Unit(start=start, end=start + len(part), section=section, kind=kind)


UNITS_OF = {
    "code": [
        at(TEXT, "import os", "", "code"),
        at(TEXT, "def f():\n", "A.f", "function"),
        at(TEXT, "    return 1", "A.f", "function"),  # another piece of the same function
        at(TEXT, f"def g():\n{BODY}", "A.g", "function"),
        at(TEXT, "# the end", "", "code"),
    ],
    "pages": [at(PAGES, "first page " * 60, "page 1", "page"), at(PAGES, "second page", "page 2", "page")],
    "plain": None,
    "empty": [],
}


def written(path: Path) -> Path:
    texts = {"code": TEXT, "pages": PAGES, "plain": "one two " * 100, "empty": ""}
    columns = [
        pa.array(list(texts)),
        pa.array(["a.py", "", "A > title", ""]),
        pa.array(list(texts.values())),
        units_column([UNITS_OF[name] for name in texts]),
        pa.array(["0f", "1e", None, "2d"]),
    ]
    fields = [(name, pa.string()) for name in ("id", "title", "text", "digest")]
    schema = pa.schema([*fields[:3], (UNITS, UNITS_TYPE), fields[3]])
    with pa.ipc.new_file(path, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return path


def rows_of(index: Path) -> list[dict[str, Any]]:
    return [row for batch in Index.open(index).documents() for row in batch.to_pylist()]


@pytest.mark.parametrize("overlap", [0, 8])
def test_the_documents_of_an_index_give_the_same_passages_again(tmp_path: Path, tiny: Any, overlap: int) -> None:
    encoding = EncoderSettings(max_length=60, overlap=overlap)
    build_index(written(tmp_path / "corpus.arrow"), tmp_path / "one", model=tiny("mean"), encoding=encoding)
    index = Index.open(tmp_path / "one")
    assert index.manifest.passages > 15
    found = write_documents(index, tmp_path / "again.arrow")
    assert found == Reassembly(documents=4, blanks=1 if overlap else 2)  # where lines are unknown
    build_index(tmp_path / "again.arrow", tmp_path / "two", model=tiny("mean"), encoding=encoding, documents=READING)
    before, after = rows_of(tmp_path / "one"), rows_of(tmp_path / "two")
    assert [row["doc_id"] for row in before if row["passage"] is None] == ["empty"]
    if overlap:
        assert after == before
    else:  # where a unit's last two windows overlap and the others do not, they alone are taken together
        assert [row for row in after if row["start_line"]] == [row for row in before if row["start_line"]]
    with pa.ipc.open_file(tmp_path / "again.arrow") as reader:
        table = reader.read_all()
    assert table["document title"].to_pylist() == ["a.py", "", "A > title", ""]
    assert table["digest"].to_pylist() == ["0f", "1e", None, "2d"]
    text = table["document text"].to_pylist()[0]
    assert table["document text"].to_pylist()[1].endswith("page\n\n\nsecond page")
    assert len(text) == len(TEXT.rstrip()) and text.split() == TEXT.split()
    if overlap:
        assert text.split("\n") == TEXT.rstrip().split("\n")
    assert text.count("\n") == TEXT.rstrip().count("\n")


def test_front_matter_comes_back_as_blanks_and_lines_keep_their_numbers(tmp_path: Path, tiny: Any) -> None:
    (tmp_path / "tree").mkdir()
    head = "---\ntitle: Moon\ntags: x\ndescription: Why the sea comes.\nweight: 1\n---\n"
    (tmp_path / "tree/a.md").write_text(f"{head}## Ebb\n\nIt goes.\n")
    (tmp_path / "tree/b.md").write_text(head.replace("description", "about"))
    build_index(tmp_path / "tree", tmp_path / "one", model=tiny("mean"))
    before = rows_of(tmp_path / "one")
    assert [(row["title"], row["text"], row["start_line"]) for row in before] == [
        ("a.md > Moon", "Why the sea comes.", 4),
        ("a.md > Moon > Ebb", "## Ebb\n\nIt goes.", 7),
        ("b.md", head.replace("description", "about").rstrip(), 1),  # there is nothing else
    ]
    write_documents(Index.open(tmp_path / "one"), tmp_path / "again.arrow")
    build_index(tmp_path / "again.arrow", tmp_path / "two", model=tiny("mean"), documents=READING)
    assert rows_of(tmp_path / "two") == before

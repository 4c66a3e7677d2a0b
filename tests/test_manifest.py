"""A manifest whose checksum is right and whose content cannot be: refused by name when an index is opened."""

import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from worlds import DIM, add, build, records, unit

from retrieval import ConfigError, IndexFormatError, delete_documents
from retrieval.hybrid import Fusion
from retrieval.index.build import IndexSpec
from retrieval.index.manifest import MANIFEST, FileEntry, Manifest, _checksum
from retrieval.index.parsed import parsed
from retrieval.index.reader import Index
from retrieval.indexing import set_fusion
from retrieval.units import TreeEntry

FREE = ("encoder", "text")  # objects with whatever entries


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with everything that a manifest may tell of; its one problem is that vectors were ready-made."""
    folder = tmp_path_factory.mktemp("manifests")
    path = build(folder, 500, index_type="hnsw", memory_limit=10**9)
    add(folder, records(20, start=500), unit(20, 5))
    delete_documents(["d1", "d2"], path)
    set_fusion(path, Fusion(weight=0.3))
    manifest = Manifest.read(path)
    encoder = {"name": "some model", "sha256": "0" * 64}
    replace(manifest, encoder=encoder, trees=[TreeEntry(name="src", key="0", include=["*.py"], exclude=[])]).write(path)
    return path


@pytest.fixture
def body(path: Path) -> Iterator[Any]:
    """What its manifest says, to be changed; the file is put back afterwards."""
    data = (path / MANIFEST).read_bytes()
    yield json.loads(data)
    (path / MANIFEST).write_bytes(data)


def write(path: Path, body: dict[str, Any]) -> None:
    body = {name: entry for name, entry in body.items() if name != "checksum"}
    (path / MANIFEST).write_text(json.dumps({**body, "checksum": _checksum(body)}))


def refusal(path: Path, body: dict[str, Any]) -> str:
    write(path, body)
    with pytest.raises(IndexFormatError) as caught:
        Index.open(path)
    message = str(caught.value)
    assert str(path) in message and "rebuild the index" in message and "\n" not in message
    return message


def places(entry: Any) -> Iterator[tuple[Any, Any]]:
    """Every object or list of some JSON with each of its keys."""
    keys = entry.keys() if isinstance(entry, dict) else range(len(entry)) if isinstance(entry, list) else ()
    for key in keys:
        yield entry, key
        if key not in FREE:
            yield from places(entry[key])


def test_the_index_itself_opens_and_comes_back_as_it_was(path: Path, body: Any) -> None:
    manifest = Manifest.read(path)
    assert manifest.deleted and manifest.approximate and manifest.fusion and manifest.trees and manifest.memory_limit
    assert len(manifest.segments) == 2 and all(segment.lexical for segment in manifest.segments)
    assert (manifest.fusion.weight, manifest.trees[0].include, manifest.min_recall) == (0.3, ["*.py"], 0.99)
    assert len(Index.open(path, verify=True).deleted_rows) == 2
    write(path, body)
    assert Manifest.read(path) == manifest


WRONG: list[Any] = [None, True, "text", "", -1, 1.5, math.nan, math.inf, [], [[]], {}, {"": 0}]


def test_another_type_anywhere_is_named(path: Path, body: Any) -> None:
    """Each value of a manifest is replaced by one of every other type."""
    optional = {"deleted", "approximate", "fusion", "memory_limit", "trees", "encoder", "lexical"}
    tried = 0
    for at, (owner, key) in enumerate(list(places(body))):
        right = owner[key]
        for wrong in WRONG:
            alike = type(wrong) is type(right) or (type(right) is float and wrong is True)
            if key in ("format", "format_version", "checksum", *FREE) or (wrong is None and key in optional):
                continue
            if alike and not (isinstance(wrong, int | float) and not 0 <= wrong <= 1):
                continue  # of the right type: what it says may be right
            changed = copy.deepcopy(body)
            place, name = list(places(changed))[at]
            place[name] = wrong
            message = refusal(path, changed)
            assert MANIFEST in message and str(key) in message, (key, wrong, message)
            tried += 1
    assert tried > 500


def test_a_field_that_is_missing_or_not_known_is_named(path: Path, body: Any) -> None:
    with_default = {"lexical", "fusion", "weight", "origin", "min_recall", "memory_limit", "trees", "segments"}
    with_default |= {"deleted", "approximate", *body["approximate"]["parameters"]}
    tried = set()
    for at, (owner, key) in enumerate(list(places(body))):
        if not isinstance(owner, dict) or key in with_default or key in ("format", "format_version", "checksum"):
            continue
        changed = copy.deepcopy(body)
        place, name = list(places(changed))[at]
        right = place.pop(name)
        assert f"{key} is missing" in refusal(path, changed)
        place |= {name: right, "n\new": 1}
        assert r"'n\new' is not known" in refusal(path, changed)
        tried.add(key)
    assert {"generation", "text", "id", "rows", "documents", "sha256", "terms_version", "factory", "include"} < tried


def test_an_older_release_wrote_fewer_fields(path: Path, body: Any) -> None:
    for name in ("fusion", "min_recall", "memory_limit", "trees"):
        del body[name]
    del body["deleted"], body["approximate"]
    write(path, {**body, "passages": 520, "documents": 520})
    manifest = Index.open(path).manifest
    assert (manifest.fusion, manifest.min_recall, manifest.memory_limit, manifest.trees) == (None, 0.99, None, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b["fusion"].update(weight=1.01), r"fusion\.weight is 1\.01, expected a number from 0 to 1"),
        (lambda b: b["fusion"].update(weight=math.nan), r"fusion\.weight is nan"),
        (lambda b: b.update(min_recall=2), "min_recall is 2, expected"),
        (lambda b: b.update(min_recall=0), "min_recall .* above 0"),
        (lambda b: b.update(memory_limit=0), "memory_limit are above 0"),
        (lambda b: b.update(generation=0), "generation, .* above 0"),
        (lambda b: b.update(dim=0), "dim, .* above 0"),
        (lambda b: b.update(dim=DIM + 1), r"vectors\.faiss: no float32 vectors of 17 dimensions"),
        (lambda b: b.update(metric="l2"), "metric is cosine or dot"),
        (lambda b: b.update(vector_dtype="int8"), "vector_dtype is 'int8', expected float32 or float16"),
        (lambda b: b.update(vector_dtype="float16"), r"vectors\.faiss: no float16 vectors of 16 dimensions"),
        (lambda b: b["encoder"].pop("name"), r"encoder\.name is a text"),
        (lambda b: b.update(encoder=[]), r"encoder is \[\], expected an object"),
        (lambda b: b.update(text="joined"), "text is 'joined', expected an object"),
        (lambda b: b.update(documents=519), "a document has a passage or more"),
        (lambda b: b.update(documents=0), "a document has a passage or more"),
        (lambda b: b.update(passages=519), "passages are the rows less the deleted ones"),
        (lambda b: b.update(empty=519), "empty documents are some"),
        (lambda b: b["segments"][1].update(rows=21), "passages are the rows"),
        (lambda b: (b["segments"][1].update(rows=21), b.update(passages=519)), "holds 20 vectors, expected 21"),
        (lambda b: b["deleted"].update(rows=521), "passages are the rows"),
        (lambda b: (b["deleted"].update(rows=3), b.update(passages=517, documents=517)), "no sorted list of 3 rows"),
        (lambda b: b["segments"][0].update(lexical=None), "keyword part where lexical is true"),
        (lambda b: b.update(lexical=False), "keyword part where lexical is true"),
        (lambda b: b.update(lexical=None), "keyword part where lexical is true"),
        (lambda b: b["segments"][1].update(id=b["segments"][0]["id"]), "an id of its own"),
        (lambda b: b["segments"].reverse(), r"approximate\.segments are the first segments"),
        (lambda b: b["approximate"].update(segments=["000009"]), r"approximate\.segments"),
        (lambda b: b["approximate"].update(segments=[]), "covers other rows than listed"),
        (lambda b: b["approximate"]["segments"].append("000002"), "covers other rows than listed"),
        (lambda b: b["approximate"]["parameters"].update(efSearch=0), "parameters are from 1 to"),
        (lambda b: b["approximate"]["parameters"].update(efSearch=2**31), "parameters are from 1 to"),
        (lambda b: b["segments"][0].update(documents=b["segments"][1]["documents"]), "each file is listed once"),
        (lambda b: b["segments"][0].update(documents=b["segments"][0].pop("vectors")), "vectors is missing"),
        (lambda b: b["trees"][0].update(include="*.py"), r"trees\[0\]\.include is '\*\.py', expected a list"),
    ],
)
def test_what_cannot_be_is_told(path: Path, body: Any, change: Callable[[Any], None], message: str) -> None:
    change(body)
    told = refusal(path, body)
    assert re.search(message, told), told


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../index/manifest.json", "segments/../../x", "", ".", "a//b", "a\\b", "C:x", "a\0b", "\ud800"],
)
def test_a_file_lies_within_the_index(path: Path, body: Any, name: str) -> None:
    body["segments"][0]["vectors"]["path"] = name
    assert r"segments[0].vectors: the path" in refusal(path, body)
    with pytest.raises(ValueError, match="none within the index"):
        FileEntry(path=name, bytes=1, sha256="")


@dataclass(frozen=True, kw_only=True)
class Part:
    kind: Literal["a", "b"] | None = None
    names: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Whole:
    parts: dict[str, list[Part]]
    free: Any = None
    sure: bool = True


def test_any_dataclass_comes_out_of_json_as_it_was() -> None:
    whole = {"parts": {"x": [{"kind": "b"}, {"names": ["n"]}], "y": []}, "free": [1, None]}
    expected = Whole(parts={"x": [Part(kind="b"), Part(names=["n"])], "y": []}, free=[1, None])
    assert parsed(Whole, whole) == expected
    whole["parts"]["x"][0]["kind"] = "c"  # type: ignore[index,call-overload]
    with pytest.raises(ValueError, match=r"^parts\['x'\]\[0\]\.kind is 'c', expected a or b$"):
        parsed(Whole, whole)
    with pytest.raises(ValueError, match=r"^all of it is \[\], expected an object$"):
        parsed(Whole, [])
    with pytest.raises(ValueError, match=r"^sure is 1, expected true or false$"):
        parsed(Whole, {"parts": {}, "sure": 1})


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": ' + "[" * 100_000, "[]", "3", "\xff", ""])
def test_no_manifest_at_all(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_bytes(text.encode("latin-1"))
    with pytest.raises(IndexFormatError, match=r"manifest\.json is damaged or not ours"):
        Manifest.read(tmp_path)


def test_a_folder_whose_name_is_not_utf_8_is_remembered(path: Path, body: Any) -> None:
    tree = TreeEntry(name="caf\udce9", key="0", include=[], exclude=[])  # as Python has a Latin-1 name
    replace(Manifest.read(path), trees=[tree]).write(path)
    assert Manifest.read(path).trees == [tree]


def test_an_encoder_that_an_index_could_not_remember_is_refused_before_it_encodes() -> None:
    with pytest.raises(ConfigError, match="metric is 'l2'; expected cosine or dot"):
        IndexSpec(dim=DIM, metric="l2", text={})
    with pytest.raises(ConfigError, match="identity has no name"):
        IndexSpec(dim=DIM, metric="dot", text={}, encoder={"sha256": "0"})

"""What a name is defined by stands before what mentions it, in hybrid search of source code."""

from pathlib import Path

import pytest
from test_spans import Lines

from retrieval import Retriever, build_index, delete_documents
from retrieval.hybrid import Fusion
from retrieval.index.reader import Group
from retrieval.indexing import set_fusion

USES = "".join(
    f"def use{number}(points):\n    return Clusters(spread_out(points), Clusters)\n\n\n" for number in range(9)
)
FILES = {
    "defined.py": (
        '"""Module."""\n\n\nclass Clusters:\n    """Groups.\n\n    Of points, far apart.\n    """\n\n'
        "    def fit(self):\n        return self\n\n    def __len__(self):\n        return 1\n\n\n"
        "def spread_out(points):\n    return points\n"
    ),
    "uses.py": USES,
    "more.py": USES.replace("use", "more"),
    "notes.md": "# Clusters\n\nClusters, Clusters, Clusters of spread_out spread_out.\n",
    "many.py": "".join(
        f"class Kind{number}:\n    def __len__(self):\n        return {number}\n\n\n" for number in range(12)
    ),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("definitions")
    (folder / "tree").mkdir()
    for name, text in FILES.items():
        (folder / "tree" / name).write_text(text, encoding="utf-8")
    build_index(folder / "tree", folder / "index", encoder=Lines())
    set_fusion(folder / "index", Fusion())
    return folder / "index"


@pytest.mark.parametrize(
    ("query", "section", "line"),
    [
        ("Clusters", "Clusters", 1),
        ("class Clusters", "Clusters", 1),
        ("Clusters()", "Clusters", 1),
        ("fit", "Clusters.fit", 10),
        ("Clusters.fit", "Clusters.fit", 10),
        ("def spread_out", "spread_out", 17),
        ("where is spread_out defined?", "spread_out", 17),
    ],
)
def test_a_definition_comes_first(path: Path, query: str, section: str, line: int) -> None:
    groups: tuple[Group, ...] = ("document", "passage")
    for group in groups:
        hit = Retriever.open(path, encoder=Lines()).search(query, 5, group=group)[0]
        assert (hit.doc_id, hit.section, hit.start_line) == ("defined.py", section, line)


def test_names_that_many_define_and_weights_and_filters_are_respected(path: Path, tmp_path: Path) -> None:
    retriever = Retriever.open(path, encoder=Lines())
    (pool,) = retriever.pools(["__len__"])
    assert all(one.named < 1 for one in pool.candidates)  # thirteen classes have one
    (pool,) = retriever.pools(["Clusters"])
    defining = [one for one in pool.candidates if one.named >= 1]
    assert [(one.doc_id, retriever.index.passage(one.row)["section"]) for one in defining] == [
        ("defined.py", "Clusters")
    ]
    hits = retriever.search("Clusters", 5, where="lang = 'markdown'")
    assert [hit.doc_id for hit in hits] == ["notes.md"]
    assert retriever.search("Clusters", 5, mode="lexical")[0].doc_id != "defined.py"


def test_a_deleted_definition_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for name, text in FILES.items():
        (tmp_path / "tree" / name).write_text(text, encoding="utf-8")
    build_index(tmp_path / "tree", tmp_path / "index", encoder=Lines())
    delete_documents(["defined.py"], tmp_path / "index")
    hits = Retriever.open(tmp_path / "index", encoder=Lines()).search("Clusters", 20)
    assert hits and all(hit.doc_id != "defined.py" for hit in hits)

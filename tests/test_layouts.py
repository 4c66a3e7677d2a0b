"""Miniatures of what is published, written in each layout."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retrieval.errors import DataError
from retrieval.eval import hub, irdatasets
from retrieval.eval.benchmark import Benchmark, Document

SHARED = Path(__file__).parents[2] / "shared"


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def jsonl(path: Path, *records: Mapping[str, Any]) -> Path:
    return write(path, *map(json.dumps, records))


def parquet(path: Path, **columns: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def beir(folder: Path, *splits: str, corpus: str | None = "corpus.jsonl", queries: str = "queries.jsonl") -> Path:
    if corpus:
        jsonl(
            folder / corpus,
            {"_id": "d1", "title": "", "text": "red apple", "metadata": {"url": "http://x"}},
            {"_id": "d2", "title": "Fruit", "text": "green pear", "year": 1999},
        )
    jsonl(folder / queries, {"_id": "q2", "text": "pear"}, {"_id": "q1", "text": "apple"}, {"_id": "q3", "text": "no"})
    for split in splits:
        write(folder / "qrels" / f"{split}.tsv", "query-id\tcorpus-id\tscore", "q1\td1\t2", "q2\td2\t1", "q2\td1\t0")
    return folder


DOCUMENTS = [
    Document(doc_id="d1", text="red apple", metadata={"url": "http://x"}),
    Document(doc_id="d2", text="green pear", title="Fruit", metadata={"year": 1999}),
]


class TestBeir:
    def test_a_split_has_its_judged_queries_in_the_order_of_their_file(self, tmp_path: Path) -> None:
        benchmark = Benchmark.load(beir(tmp_path / "fruit", "test"))
        assert list(benchmark.queries.items()) == [("q2", "pear"), ("q1", "apple")]
        assert benchmark.qrels == {"q1": {"d1": 2}, "q2": {"d2": 1, "d1": 0}}
        assert list(benchmark.corpus()) == DOCUMENTS
        card = benchmark.card
        assert (card.name, card.split, card.queries, card.judgements) == ("fruit", "test", 2, 3)

    @pytest.mark.parametrize("queries", ["queries.jsonl", "queries.jsonl.gz"])
    @pytest.mark.parametrize("corpus", ["corpus.jsonl", "corpus.jsonl.gz"])
    def test_files_may_be_compressed(self, tmp_path: Path, corpus: str, queries: str) -> None:
        benchmark = Benchmark.load(beir(tmp_path / "fruit", "dev", corpus=corpus, queries=queries))
        assert benchmark.card.split == "dev"
        assert list(benchmark.corpus()) == DOCUMENTS

    def test_of_two_corpus_files_one_is_taken(self, tmp_path: Path) -> None:
        folder = beir(tmp_path / "fruit", "test")
        beir(folder, corpus="corpus.jsonl.gz")
        assert list(Benchmark.load(folder).corpus()) == DOCUMENTS

    def test_judgements_may_be_compressed_or_in_trecs_format(self, tmp_path: Path) -> None:
        folder = beir(tmp_path / "fruit")
        write(folder / "qrels" / "dev.tsv.gz", "query-id\tcorpus-id\tscore", "q1\td1\t2")
        write(folder / "qrels" / "test.trec", "q2 0 d2 3")
        assert Benchmark.load(folder, "dev").qrels == {"q1": {"d1": 2}}
        assert Benchmark.load(folder).qrels == {"q2": {"d2": 3}}

    def test_a_missing_split_is_answered_with_those_there_are(self, tmp_path: Path) -> None:
        folder = beir(tmp_path / "fruit", "train", "dev")
        with pytest.raises(DataError, match=r"fruit/qrels: no split 'test'; there are: dev, train"):
            Benchmark.load(folder, "test")
        with pytest.raises(DataError, match="name a split; there are: dev, train"):
            Benchmark.load(folder)

    def test_without_a_corpus_the_error_comes_when_it_is_asked_for(self, tmp_path: Path) -> None:
        benchmark = Benchmark.load(beir(tmp_path / "fruit", "test", corpus=None))
        assert len(benchmark.queries) == 2
        with pytest.raises(DataError, match=r"fruit: no corpus in it"):
            benchmark.corpus()

    def test_a_judged_query_without_text_is_named(self, tmp_path: Path) -> None:
        folder = beir(tmp_path / "fruit")
        write(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore", "q1\td1\t2", "q9\td1\t2")
        with pytest.raises(DataError, match="query 'q9' of split 'test' has judgements but no text"):
            Benchmark.load(folder)

    def test_a_repeated_document_names_both_lines(self, tmp_path: Path) -> None:
        folder = beir(tmp_path / "fruit", "test")
        jsonl(folder / "corpus.jsonl", {"_id": "d1", "text": "a"}, {"_id": "d1", "text": "b"})
        with pytest.raises(DataError, match=r"line 2: id 'd1' came before, in .*line 1"):
            list(Benchmark.load(folder).corpus())

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", r"benchmark\.json: not JSON: .* at column 2"),
            ('{"name": "fruit",\n}', r"benchmark\.json, line 2: not JSON: .* at column 1"),
            ("[]", "expected a JSON object"),
            ('{"documents": "many"}', "'documents' is 'many'; expected a whole number or null"),
            ('{"notes": "one"}', "'notes' is 'one'; expected a list of strings"),
            ('{"licence": 4}', "'licence' is 4; expected a string"),
        ],
    )
    def test_a_broken_card_names_its_field(self, tmp_path: Path, text: str, message: str) -> None:
        folder = beir(tmp_path / "fruit", "test")
        write(folder / "benchmark.json", text)
        with pytest.raises(DataError, match=message):
            Benchmark.load(folder)

    def test_a_card_may_begin_with_a_byte_order_mark(self, tmp_path: Path) -> None:
        folder = beir(tmp_path / "fruit", "test")
        (folder / "benchmark.json").write_bytes(b'\xef\xbb\xbf{"licence": "CC0"}')
        assert Benchmark.load(folder).card.licence == "CC0"

    def test_a_card_of_a_later_release_is_read(self, tmp_path: Path) -> None:
        folder = beir(tmp_path / "fruit", "test")
        write(folder / "benchmark.json", '{"licence": "CC0", "weather": "fine", "queries": 99}')
        card = Benchmark.load(folder).card
        assert (card.name, card.licence, card.queries) == ("fruit", "CC0", 2)

    @pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not here")
    def test_handed_case(self) -> None:
        case = SHARED / "cases" / "BE01"
        with pytest.raises(DataError, match="no split 'test'; there are: dev, train"):
            Benchmark.load(case, "test")
        train, dev = Benchmark.load(case, "train"), Benchmark.load(case, "dev")
        assert (dict(train.queries), dict(dev.queries)) == ({"q1": "red apple"}, {"q2": "blue plum"})
        assert list(train.corpus()) == list(dev.corpus())
        assert next(train.corpus()).metadata == {"url": "http://x"}

    @pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
    @pytest.mark.parametrize("folder", sorted((SHARED / "data").glob("*/qrels")), ids=lambda path: path.parent.name)
    def test_the_shared_collections(self, folder: Path) -> None:
        meta = json.loads((folder.parent / "meta.json").read_text())
        for split, counts in meta["qrels"].items():
            card = Benchmark.load(folder.parent, split).card
            assert (card.queries, card.judgements) == (counts["queries"], counts["rows"])


def coir(folder: Path, form: str) -> Path:
    """Writes one small benchmark the way it is published: of CoIR (two data sets, or one), MTEB, or in JSONL."""
    corpus = {
        "_id": ["d1", "d2"],
        "text": ["def a(): pass", "def b(): pass"],
        "title": ["", "b"],
        "language": ["py"] * 2,
    }
    queries = {"_id": ["q1", "q2", "q3"], "text": ["first", "second", "third"], "partition": ["test", "test", "train"]}
    test = {"query-id": ["q2", "q1"], "corpus-id": ["d2", "d1"], "score": [1, 1]}
    train = {"query-id": ["q3"], "corpus-id": ["d2"], "score": [1]}
    if form == "pair":
        parquet(folder / "mini-queries-corpus/data/corpus-00000-of-00001-6ab5c5eda798a0f9.parquet", **corpus)
        parquet(folder / "mini-queries-corpus/data/queries-00000-of-00001-37cf369ef664f0a0.parquet", **queries)
        parquet(folder / "mini-qrels/data/test-00000-of-00001-0d2c6b2b6b1e7a55.parquet", **test)
        parquet(folder / "mini-qrels/data/train-00000-of-00001.parquet", **train)
        return folder
    if form == "converted pair":
        parquet(folder / "mini-queries-corpus/default/corpus/0000.parquet", **corpus)
        parquet(folder / "mini-queries-corpus/default/queries/0000.parquet", **queries)
        parquet(folder / "mini-qrels/default/test/0000.parquet", **test)
        parquet(folder / "mini-qrels/default/train/0000.parquet", **train)
        return folder
    folder /= "mini"
    if form == "one":
        parquet(folder / "corpus/corpus-00000-of-00001.parquet", **corpus)
        parquet(folder / "queries/queries-00000-of-00001.parquet", **queries)
        parquet(folder / "data/test-00000-of-00001.parquet", **test)
        parquet(folder / "data/train-00000-of-00001.parquet", **train)
    elif form == "mteb":
        for split, judgements in (("test", test), ("train", train)):
            parquet(folder / f"corpus/{split}-00000-of-00001.parquet", **corpus)
            parquet(folder / f"queries/{split}-00000-of-00001.parquet", **queries)
            parquet(folder / f"qrels/{split}-00000-of-00001.parquet", **judgements)
        parquet(folder / "top_ranked/test-00000-of-00001.parquet", **{"query-id": ["q1"], "corpus-ids": [["d1"]]})
    elif form == "converted":
        parquet(folder / "corpus/corpus/0000.parquet", **corpus)
        parquet(folder / "queries/queries/0000.parquet", **queries)
        parquet(folder / "default/test/0000.parquet", **test)
        parquet(folder / "default/train/0000.parquet", **train)
    elif form == "jsonl":
        jsonl(folder / "corpus.jsonl", *rows(corpus))
        jsonl(folder / "queries.jsonl", *rows(queries))
        jsonl(folder / "qrels/test.jsonl", *rows(test))
        jsonl(folder / "qrels/train.jsonl", *rows(train))
    return folder


def rows(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


FORMS = ["pair", "converted pair", "one", "mteb", "converted", "jsonl"]


class TestHub:
    @pytest.mark.parametrize("form", FORMS)
    def test_every_published_form_gives_the_same(self, tmp_path: Path, form: str) -> None:
        folder = coir(tmp_path, form)
        benchmark = Benchmark.load(folder)
        assert dict(benchmark.queries) == {"q1": "first", "q2": "second"}
        assert benchmark.qrels == {"q2": {"d2": 1}, "q1": {"d1": 1}}
        assert list(benchmark.corpus()) == [
            Document(doc_id="d1", text="def a(): pass", metadata={"language": "py"}),
            Document(doc_id="d2", text="def b(): pass", title="b", metadata={"language": "py"}),
        ]
        assert (benchmark.card.split, benchmark.card.queries, benchmark.card.judgements) == ("test", 2, 2)
        assert dict(Benchmark.load(folder, "train").queries) == {"q3": "third"}
        with pytest.raises(DataError, match="no split 'dev'; there are: test, train"):
            Benchmark.load(folder, "dev")

    def test_it_may_lie_a_folder_deeper(self, tmp_path: Path) -> None:
        assert coir(tmp_path, "mteb") == tmp_path / "mini"
        assert dict(Benchmark.load(tmp_path).queries) == {"q1": "first", "q2": "second"}

    @pytest.mark.parametrize("half", ["mini-queries-corpus", "mini-qrels"])
    def test_either_half_finds_the_other_beside_it(self, tmp_path: Path, half: str) -> None:
        benchmark = Benchmark.load(coir(tmp_path, "pair") / half)
        assert (benchmark.card.name, len(benchmark.queries), len(list(benchmark.corpus()))) == ("mini", 2, 2)

    def test_judgements_may_lie_beside_a_plain_name(self, tmp_path: Path) -> None:
        jsonl(tmp_path / "mini/corpus.jsonl.gz", {"_id": "d1", "text": "a"})
        jsonl(tmp_path / "mini/queries.jsonl.gz", {"_id": "q1", "text": "b"})
        write(tmp_path / "mini-qrels/test.tsv", "query-id\tcorpus-id\tscore", "q1\td1\t1")
        for name in ("mini", "mini-qrels"):
            assert Benchmark.load(tmp_path / name).qrels == {"q1": {"d1": 1}}

    def test_several_benchmarks_in_one_folder_have_splits_of_their_own(self, tmp_path: Path) -> None:
        for language, number in (("go", 1), ("java", 2)):
            parquet(tmp_path / f"{language}-corpus/corpus-00000-of-00001.parquet", _id=["d"], text=[f"code {number}"])
            parquet(tmp_path / f"{language}-queries/queries-00000-of-00001.parquet", _id=["q"], text=[language])
            judgements = {"query-id": ["q"], "corpus-id": ["d"], "score": [number]}
            parquet(tmp_path / f"{language}-qrels/test-00000-of-00001.parquet", **judgements)
        java = Benchmark.load(tmp_path, "java-test")
        assert (java.queries, java.qrels, next(java.corpus()).text) == ({"q": "java"}, {"q": {"d": 2}}, "code 2")
        with pytest.raises(DataError, match="name a split; there are: go-test, java-test"):
            Benchmark.load(tmp_path)

    def test_parts_are_read_as_one(self, tmp_path: Path) -> None:
        for part in range(2):
            parquet(tmp_path / f"corpus/corpus-0000{part}-of-00002.parquet", _id=[part], text=[f"text {part}"])
            parquet(tmp_path / f"queries/queries-0000{part}-of-00002.parquet", _id=[f"00{part}"], text=[f"ask {part}"])
            judgements = {"query-id": [f"00{part}"], "corpus-id": [part], "score": [1]}
            parquet(tmp_path / f"qrels/test-0000{part}-of-00002.parquet", **judgements)
        benchmark = Benchmark.load(tmp_path)
        assert [document.doc_id for document in benchmark.corpus()] == ["0", "1"]
        assert benchmark.qrels == {"000": {"0": 1}, "001": {"1": 1}}

    def test_parts_that_contradict_each_other_are_an_error(self, tmp_path: Path) -> None:
        folder = coir(tmp_path, "one")
        judgements = {"query-id": ["q2"], "corpus-id": ["d2"], "score": [0]}
        parquet(folder / "data/test-00001-of-00002.parquet", **judgements)
        with pytest.raises(DataError, match="document 'd2' of query 'q2' has grade 0 here and 1 in an earlier part"):
            Benchmark.load(folder)

    def test_documents_of_other_splits_are_not_taken(self, tmp_path: Path) -> None:
        folder = coir(tmp_path, "mteb")
        (folder / "corpus/test-00000-of-00001.parquet").rename(folder / "corpus/dev-00000-of-00001.parquet")
        with pytest.raises(DataError, match="the corpus is there for dev, train, and not for split 'test'"):
            Benchmark.load(folder)

    def test_judgements_without_queries_or_documents(self, tmp_path: Path) -> None:
        folder = coir(tmp_path, "one")
        (folder / "corpus/corpus-00000-of-00001.parquet").unlink()
        with pytest.raises(DataError, match="mini: no corpus in it"):
            Benchmark.load(folder).corpus()
        (folder / "queries/queries-00000-of-00001.parquet").unlink()
        with pytest.raises(DataError, match="no queries for split 'test'"):
            Benchmark.load(folder, layout="hub")

    @pytest.mark.parametrize("name", ["owner/mini", "owner/mini-queries-corpus", "owner/mini-qrels"])
    @pytest.mark.parametrize("form", ["pair", "one"])
    def test_a_name_is_found_in_the_cache_of_the_hub(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, name: str
    ) -> None:
        if form == "one" and name != "owner/mini":
            pytest.skip("that data set has one name")
        source = coir(tmp_path / "made", form)
        cache = tmp_path / "cache"
        for folder in source.iterdir() if form == "pair" else [source]:
            stored = cache / f"datasets--owner--{folder.name}"
            write(stored / "refs/main", "0" * 40)
            (stored / "refs/main").write_text("0" * 40)
            (stored / "snapshots").mkdir()
            folder.rename(stored / "snapshots" / ("0" * 40))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
        monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(cache))
        benchmark = Benchmark.load(name)
        assert dict(benchmark.queries) == {"q1": "first", "q2": "second"}
        assert benchmark.card.name == "owner/mini"
        assert benchmark.card.source == f"huggingface.co/datasets/{name}"
        assert len(list(benchmark.corpus())) == 2

    def test_a_source_tree_with_a_benchmark_in_it_is_none(self, tmp_path: Path) -> None:
        beir(tmp_path / "data/fruit", "test")
        coir(tmp_path / "tests/data", "mteb")
        coir(tmp_path / "tests/data", "pair")
        assert not hub.recognises(tmp_path)
        assert hub.recognises(tmp_path / "data")
        assert hub.recognises(tmp_path / "tests/data")

    def test_a_source_tree_is_no_benchmark(self, tmp_path: Path) -> None:
        deep = ("a/b/c/d/queries.jsonl", "a/b/c/d/qrels.jsonl")
        for name in ("corpus/readme.md", "tests/data/train.jsonl", "src/queries/x.py", *deep):
            write(tmp_path / name, "{}")
        assert not hub.recognises(tmp_path)


class PaperDoc(NamedTuple):
    doc_id: str
    title: str
    abstract: str
    url: str

    def default_text(self) -> str:
        return f"{self.title} {self.abstract}"


class CodeDoc(NamedTuple):
    doc_id: str
    code: str


@pytest.fixture
def registered(tmp_path: Path) -> Iterator[str]:
    """Registers a data set made of ir_datasets' own formats, and takes it out again."""
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import GenericQuery, TrecQrels, TsvDocs, TsvQueries
    from ir_datasets.util import LocalDownload

    papers = write(tmp_path / "docs.tsv", "007\tApples\tare red\thttp://x", "8\t\tpears\t")
    code = write(tmp_path / "code.tsv", "1\tdef f()")
    queries = write(tmp_path / "queries.tsv", "1\tapples", "2\tpears", "3\tnot judged")
    files = {
        "test": write(tmp_path / "test.qrels", "2 0 8 1", "1 0 007 2"),
        "dev/small": write(tmp_path / "dev.qrels", "1 0 007 3", "1 0 007 1", "1 0 gone -1"),
    }
    docs = TsvDocs(LocalDownload(papers), doc_cls=PaperDoc)
    asked = TsvQueries(LocalDownload(queries), query_cls=GenericQuery)
    registry = ir_datasets.registry
    made = {"mini-papers": Dataset(docs, asked)}
    made |= {f"mini-papers/{name}": Dataset(docs, asked, TrecQrels(LocalDownload(p), {})) for name, p in files.items()}
    made["mini-code"] = Dataset(
        TsvDocs(LocalDownload(code), doc_cls=CodeDoc), asked, TrecQrels(LocalDownload(files["test"]), {})
    )
    made["mini-bare"] = Dataset(asked, TrecQrels(LocalDownload(files["test"]), {}))
    for name, dataset in made.items():
        registry.register(name, dataset)
    yield "mini-papers"
    for name in made:
        del registry._registered[name]


class TestIrDatasets:
    def test_an_id_is_a_benchmark(self, registered: str) -> None:
        benchmark = Benchmark.load(f"{registered}/test")
        assert list(benchmark.queries.items()) == [("1", "apples"), ("2", "pears")]
        assert benchmark.qrels == {"2": {"8": 1}, "1": {"007": 2}}
        for _ in range(2):
            assert list(benchmark.corpus()) == [
                Document(doc_id="007", title="Apples", text="are red", metadata={"url": "http://x"}),
                Document(doc_id="8", text=" pears"),
            ]
        card = benchmark.card
        assert (card.name, card.split, card.queries, card.source) == (f"{registered}/test", "test", 2, "ir_datasets")

    def test_a_split_can_stand_beside_the_id_above(self, registered: str) -> None:
        assert Benchmark.load(registered).card.split == "test"
        dev = Benchmark.load(registered, "dev/small")
        assert (dev.card.split, dev.qrels) == ("dev-small", {"1": {"007": 3, "gone": -1}})  # the best of two grades
        assert Benchmark.load(f"{registered}/test", "test").card.queries == 2
        with pytest.raises(DataError, match="no split 'train'; there are: dev/small, test"):
            Benchmark.load(registered, "train")
        with pytest.raises(DataError, match="no split 'dev'; there are: test"):
            Benchmark.load(f"{registered}/test", "dev")

    def test_it_can_be_saved(self, registered: str, tmp_path: Path) -> None:
        benchmark = Benchmark.load(registered, "dev/small")
        benchmark.save(tmp_path / "out")
        again = Benchmark.load(tmp_path / "out")
        assert (again.queries, again.qrels) == (benchmark.queries, benchmark.qrels)
        assert list(again.corpus()) == list(benchmark.corpus())

    def test_documents_without_a_text_of_their_own_are_refused(self, registered: str) -> None:
        benchmark = Benchmark.load("mini-code")
        with pytest.raises(DataError, match=r"CodeDoc names no text of its own \(fields: doc_id, code\)"):
            list(benchmark.corpus())

    def test_judgements_without_documents_are_refused(self, registered: str) -> None:
        with pytest.raises(DataError, match="mini-bare: it has no documents"):
            Benchmark.load("mini-bare")

    def test_a_file_that_is_gone_is_one_line(self, registered: str, tmp_path: Path) -> None:
        (tmp_path / "queries.tsv").unlink()
        with pytest.raises(DataError, match=f"ir_datasets {registered}/test: cannot be fetched or read"):
            Benchmark.load(f"{registered}/test")

    def test_an_unknown_id_is_refused(self) -> None:
        assert not irdatasets.knows("mini-papers/test")
        with pytest.raises(DataError, match="no such id in ir_datasets"):
            irdatasets.load("mini-papers/test", None)

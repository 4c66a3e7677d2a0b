"""What judges a model while it is trained: a search of development documents, or a re-ordering of an index's hits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from retrieval.chunking import joined
from retrieval.documents import DocumentSettings
from retrieval.encoder import BiEncoder, EncoderSettings
from retrieval.eval.benchmark import Benchmark
from retrieval.eval.metrics import evaluate
from retrieval.eval.stages import evaluate_retriever
from retrieval.indexing import IndexSettings, build_index
from retrieval.matching import scored
from retrieval.mixture import JudgedList
from retrieval.reranker import CrossEncoder, RerankSettings
from retrieval.retriever import Retriever
from retrieval.training.examples import Example

Judge = Callable[[Path], Mapping[str, float]]


def by_search(
    corpus: Path, benchmark: Benchmark, metric: str, *, documents: DocumentSettings, encoding: EncoderSettings
) -> Judge:
    """Judge encoders by a search of all documents of a corpus, through a real index.

    Args:
        corpus: As `build_index` takes it.
        benchmark: Whose queries are asked.
        metric: The figure.
        documents: How the corpus is read.
        encoding: How its documents are encoded.
    """

    def judge(folder: Path) -> dict[str, float]:
        encoder = BiEncoder.load(folder, settings=replace(encoding, runtime="torch"))  # a checkpoint is not converted
        with tempfile.TemporaryDirectory() as place:
            index = Path(place) / "index"
            settings = IndexSettings(lexical=False)
            build_index([corpus], index, encoder=encoder, documents=documents, encoding=encoding, settings=settings)
            found = evaluate_retriever(Retriever.open(index, encoder=encoder), benchmark, metric)
        return found.systems[0].scores.means()

    return judge


@dataclass(frozen=True, kw_only=True)
class HitsJudge:
    """Judges cross-encoders by what they make of the same hits.

    Attributes:
        judge: Takes a model's folder.
        examples: The hits of each query that has relevant and other ones among them, to calibrate on.
        mixable: Scores the hits of these queries with a cross-encoder, to fit a mixture on.
    """

    judge: Judge
    examples: list[Example]
    mixable: Callable[[CrossEncoder], list[JudgedList]]


def by_reranking(
    retriever: Retriever, benchmark: Benchmark, metric: str, *, depth: int, settings: RerankSettings
) -> HitsJudge:
    """Judge cross-encoders by a re-ordering of the first hits, which are searched once.

    Args:
        retriever: The first stage.
        benchmark: Whose queries are asked.
        metric: The figure.
        depth: Hits that are re-ordered.
        settings: How cross-encoders run.
    """
    found = retriever.search_many(list(benchmark.queries.values()), depth, rerank=False)
    hits = dict(zip(benchmark.queries, found, strict=True))
    examples = []
    for query_id, some in hits.items():
        grades = benchmark.qrels[query_id]
        good = tuple(joined(hit.title, hit.text) for hit in some if grades.get(hit.doc_id, 0) > 0)
        bad = tuple(joined(hit.title, hit.text) for hit in some if grades.get(hit.doc_id, 0) <= 0)
        if good and bad:
            examples.append(
                Example(query=benchmark.queries[query_id], query_id=query_id, positives=good, negatives=bad)
            )

    def judge(folder: Path) -> dict[str, float]:
        second = Retriever(
            retriever.index, reranker=CrossEncoder.load(folder, settings=replace(settings, runtime="torch"))
        )
        run = {
            query_id: {hit.doc_id: hit.score for hit in second.rerank(benchmark.queries[query_id], some)}
            for query_id, some in hits.items()
        }
        return evaluate(benchmark.qrels, run, metric).means()

    asked = {example.query_id for example in examples}

    def mixable(reranker: CrossEncoder) -> list[JudgedList]:
        lists = []
        for query_id, some in hits.items():
            if query_id in asked:
                pairs = [(benchmark.queries[query_id], joined(hit.title, hit.text)) for hit in some]
                ids, first = [hit.doc_id for hit in some], [hit.retrieval_score for hit in some]
                lists.append(JudgedList.of(ids, first, scored(reranker, pairs), benchmark.qrels[query_id]))
        return lists

    return HitsJudge(judge=judge, examples=examples, mixable=mixable)

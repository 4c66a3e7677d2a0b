"""Examples to train with: mine-negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retrieval.commands.options import DEVICE, check_outputs, chosen, open_retriever, set_by_user
from retrieval.counts import many

if TYPE_CHECKING:
    from retrieval.eval.benchmark import Benchmark
    from retrieval.retriever import Retriever


@click.command("mine-negatives")
@click.argument("index")
@click.argument("out", type=click.Path())
@click.option("--benchmark", required=True, help="Queries and judgements, as `retrieve evaluate` takes them.")
@click.option("--split", default="train", show_default=True, help="Of the benchmark.")
@click.option("--layout", default="auto", show_default=True, help="Of the benchmark, where it is not recognised.")
@click.option(
    "-n", "--negatives", "per_query", type=click.IntRange(min=1), default=5, show_default=True, help="For each query."
)
@click.option(
    "--first-rank", type=click.IntRange(min=1), default=1, show_default=True, help="First rank they are taken from."
)
@click.option("--last-rank", type=click.IntRange(min=1), default=50, show_default=True, help="Last rank.")
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Hits in which the positive's score is looked for.",
)
@click.option("--margin", type=float, help="Negatives score at least this much less than the positive.")
@click.option(
    "--ratio",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.95,
    show_default=True,
    help="Negatives score at most this share of the positive's score; 1: no more than the positive.",
)
@click.option(
    "--sampling",
    type=click.Choice(["top", "random"]),
    default="top",
    show_default=True,
    help="The best of what is left, or a random choice of it.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random choice.")
@click.option("--model", help="Encoder, where the index's own moved.")
@click.option(
    "--reranker",
    default="none",
    show_default=True,
    help="Cross-encoder (folder or hub name): drops what it takes for relevant, adds scores. auto: the one that comes "
    "with the installation, where the index holds English text or code.",
)
@click.option(
    "--reranker-margin",
    type=float,
    default=0.0,
    show_default=True,
    help="It scores negatives at least this much (logits) less than the positive.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
@DEVICE
def mine_negatives_command(index: str, out: str, as_json: bool, **options: Any) -> None:
    """Mine hard negatives: documents that INDEX finds for a query, although they do not answer it.

    Writes examples to train with to OUT (.jsonl or .jsonl.gz), and where they come from to OUT.provenance.json. A
    negative is never judged relevant for its query, nor has it the text of a positive. The report ends with an
    estimate of how many negatives are relevant all the same.

    \b
    retrieve mine-negatives my-index train.jsonl --benchmark my-benchmark --split train
    retrieve mine-negatives my-index train.jsonl --benchmark my-benchmark --first-rank 10 --sampling random
    retrieve mine-negatives my-index train.jsonl --benchmark my-benchmark --reranker ./my-reranker
    """
    from retrieval.console import counting, print_facts, say
    from retrieval.eval.benchmark import Benchmark
    from retrieval.training.examples import check_target
    from retrieval.training.negatives import MiningSettings, mine_negatives, write_mined

    check_target(out)
    check_outputs([out, f"{out}.provenance.json"], [index, options["benchmark"]])
    if options["reranker"] == "none" and (unused := set_by_user("reranker_margin")):
        raise click.UsageError(f"{unused[0]} does nothing with --reranker none")
    settings = MiningSettings(**chosen(options, MiningSettings))
    benchmark = Benchmark.load(options["benchmark"], options["split"], layout=options["layout"])
    retriever = open_retriever(index, {**options, "mode": "dense"})  # scores are compared with the positive's
    with counting("queries") as show:
        result = mine_negatives(
            benchmark.queries,
            benchmark.qrels,
            lambda queries, k: retriever.search_many(queries, k, rerank=False),
            texts=relevant_texts(benchmark),
            settings=settings,
            reranker=retriever.reranker,
            progress=show,
        )
    write_mined(out, result, _provenance(benchmark, retriever))
    print_facts(result.facts(), as_json=as_json)
    say(f"{out}: {many(len(result.examples), 'example')}; {out}.provenance.json says where they come from")


def _provenance(benchmark: Benchmark, retriever: Retriever) -> dict[str, Any]:
    """Say what negatives come from: data, index and models, by name and hash."""
    from retrieval.reassembly import fingerprint_of

    manifest, card = retriever.index.manifest, benchmark.card
    models = {"encoder": manifest.encoder, "reranker": getattr(retriever.reranker, "identity", None)}
    return {
        "benchmark": {name: getattr(card, name) for name in ("name", "split", "source", "licence")},
        "index": {
            "name": retriever.index.path.name,
            "generation": manifest.generation,
            "documents": manifest.documents,
            "sha256": fingerprint_of(retriever.index),
        },
        **{
            name: {"name": identity["name"], "sha256": identity["sha256"]}
            for name, identity in models.items()
            if identity is not None
        },
    }


def relevant_texts(benchmark: Benchmark) -> dict[str, str]:
    """Read what the judged documents say, without keeping the rest of the corpus."""
    from retrieval.chunking import joined

    wanted = {doc_id for grades in benchmark.qrels.values() for doc_id, grade in grades.items() if grade > 0}
    return {
        document.doc_id: joined(document.title, document.text)
        for document in benchmark.corpus()
        if document.doc_id in wanted
    }


COMMANDS: tuple[click.Command, ...] = (mine_negatives_command,)

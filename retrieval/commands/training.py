"""Training: train bi-encoder, train cross-encoder."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval.commands.options import together
from retrieval.counts import many

if TYPE_CHECKING:
    from retrieval.eval.benchmark import Benchmark
    from retrieval.judges import Judge
    from retrieval.training.examples import Example
    from retrieval.training.run import TrainingReport

_COMMON = together(
    click.option("--model", help="Model to start from: a folder or a hub name.  [default: the embedded encoder]"),
    click.option("--split", default="train", show_default=True, help="Split of EXAMPLES that are benchmarks."),
    click.option(
        "--development",
        help="Benchmark that judges the model at intervals; the best is kept. cross-encoder: with --index.",
    ),
    click.option("--development-split", default="dev", show_default=True, help="Split of that benchmark."),
    click.option("--epochs", type=float, help="Times that all examples are seen; default: 1."),
    click.option("--max-steps", type=click.IntRange(min=1), help="Batches to train for, instead of --epochs."),
    click.option("--batch-size", type=click.IntRange(min=1), help="Rows of one step."),
    click.option("--learning-rate", type=float, help="The highest one, after the warm-up."),
    click.option("--schedule", help="linear, cosine or constant.  [default: linear]"),
    click.option("--warmup", type=float, help="Share of the steps in which the learning rate rises.  [default: 0.1]"),
    click.option("--weight-decay", type=float, help="Of AdamW.  [default: 0.01]"),
    click.option("--dropout", type=float, help="Share of values that are dropped.  [default: 0]"),
    click.option("--max-length", type=click.IntRange(min=1), help="Tokens of an input.  [default: the model's limit]"),
    click.option("--micro-tokens", type=click.IntRange(min=1), help="Tokens computed at once.  [default: by device]"),
    click.option("--precision", help="auto, float32 or bfloat16.  [default: auto]"),
    click.option("--gradient-checkpointing/--no-gradient-checkpointing", default=None, help="Less memory, more time."),
    click.option("--negatives", type=click.IntRange(min=0), help="Negatives of its example that a row brings along."),
    click.option("--evaluate-every", type=click.IntRange(min=1), help="Steps between checkpoints; default: an epoch."),
    click.option("--seed", type=int, help="Of all that is drawn.  [default: 0]"),
    click.option("--device", help="auto, cpu, cuda or mps.  [default: auto]"),
    click.option("--trust-remote-code", is_flag=True, default=None, help="Run Python code that comes with the model."),
    click.option("--overwrite", is_flag=True, help="Replace a model at OUT when the new one is complete."),
)


@click.group("train")
def train_group() -> None:
    """Train a model on examples: `bi-encoder` (finds) or `cross-encoder` (re-orders).

    EXAMPLES are files as `retrieve mine-negatives` writes them, in the layouts of sentence-transformers, Tevatron or
    FlagEmbedding, or benchmarks (folders) with judgements for --split. An interrupted training goes on when the
    command is repeated. The model's folder holds a card, a log and a curve of the loss.

    \b
    retrieve train bi-encoder train.jsonl my-encoder --development my-benchmark
    retrieve train cross-encoder train.jsonl my-reranker
    """


@train_group.command("bi-encoder")
@click.argument("examples", nargs=-1, required=True)
@click.argument("out")
@_COMMON
@click.option("--pooling", help="Of a plain encoder: mean, cls, max, lasttoken ...")
@click.option("--loss", help="infonce, or margin-mse or kl with a teacher's scores.  [default: infonce]")
@click.option("--temperature", type=float, help="Similarities are divided by it.  [default: 0.05 for cosines]")
@click.option("--matryoshka", help="Lengths that vectors may be cut to later, with commas: 256,128,64.")
@click.option("--lora-rank", type=click.IntRange(min=1), help="Train adapters of this rank only; needs peft.")
@click.option(
    "--interpolation",
    type=float,
    help="Share of what was learnt in the weights that are saved, the rest is the model that training starts from; "
    "less loses less on other texts.  [default: 1]",
)
@click.option("--query-prompt", help="Put before every query, and stored in the model.")
@click.option("--document-prompt", help="Put before every document, and stored in the model.")
def train_bi_encoder_command(examples: Sequence[str], out: str, pooling: str | None, **options: Any) -> None:
    """Train the model that makes an index's vectors.

    \b
    retrieve train bi-encoder train.jsonl my-encoder
    retrieve train bi-encoder my-benchmark my-encoder --split train --development my-benchmark
    """
    from retrieval.training.bi_encoder import BiEncoderTraining, train_bi_encoder

    if options["matryoshka"] is not None:
        try:
            options["matryoshka"] = tuple(int(length) for length in options["matryoshka"].split(","))
        except ValueError:
            raise click.UsageError(f"--matryoshka {options['matryoshka']}: expected numbers with commas") from None
    settings = BiEncoderTraining(**_given(options, BiEncoderTraining))
    learned = _examples(examples, options["split"])
    with _search_judge(options, learned) as judge, _progress() as show:
        report = train_bi_encoder(
            learned,
            out,
            model=options["model"],
            pooling=pooling,
            settings=settings,
            evaluate=judge,
            sources={"examples": ", ".join(examples)},
            overwrite=options["overwrite"],
            progress=show,
        )
    _say(report)


@train_group.command("cross-encoder")
@click.argument("examples", nargs=-1, required=True)
@click.argument("out")
@_COMMON
@click.option("--index", help="Index whose hits --development re-orders; probabilities are calibrated on them, too.")
@click.option("--depth", type=click.IntRange(min=1), default=100, show_default=True, help="Hits that it re-orders.")
@click.option(
    "--loss",
    help="listwise, pairwise, pointwise or lambda; margin-mse or kl with a teacher's scores.  [default: listwise]",
)
@click.option("--labels", type=click.IntRange(1, 2), help="Of the head.  [default: 1, or the model's]")
@click.option("--prompt", help="Put before every query, and stored in the model.")
@click.option("--half", is_flag=True, default=None, help="Write the weights as float16.")
@click.option("--calibration", help="platt, temperature or none.  [default: platt]")
def train_cross_encoder_command(
    examples: Sequence[str], out: str, index: str | None, depth: int, **options: Any
) -> None:
    """Train the model that re-orders hits, monoBERT.

    \b
    retrieve train cross-encoder train.jsonl my-reranker
    retrieve train cross-encoder train.jsonl my-reranker --development my-benchmark --index my-index
    """
    from retrieval.training.cross_encoder import CrossEncoderTraining, train_cross_encoder

    if (index is None) != (options["development"] is None):
        raise click.UsageError("--development and --index go together: an index's hits are re-ordered")
    settings = CrossEncoderTraining(**_given(options, CrossEncoderTraining))
    learned = _examples(examples, options["split"])
    judge: Judge | None = None
    calibrating: Sequence[Example] = ()
    if index is not None:
        from retrieval.console import waiting
        from retrieval.judges import by_reranking
        from retrieval.proof import METRIC
        from retrieval.reranker import RerankSettings
        from retrieval.retriever import Retriever

        running = _running(options)
        benchmark = _development(options, learned)
        with waiting("searching the development queries"):
            hits = by_reranking(
                Retriever.open(index, **running), benchmark, METRIC, depth=depth, settings=RerankSettings(**running)
            )
        judge, calibrating = _told(hits.judge), hits.examples
    with _progress() as show:
        report = train_cross_encoder(
            learned,
            out,
            model=options["model"],
            settings=settings,
            evaluate=judge,
            development=calibrating,
            sources={"examples": ", ".join(examples)},
            overwrite=options["overwrite"],
            progress=show,
        )
    _say(report)


def _given(options: Mapping[str, Any], settings: Any) -> dict[str, Any]:
    """Pick the settings that were given; the rest keep their defaults."""
    names = [field.name for field in dataclasses.fields(settings)]
    return {name: options[name] for name in names if options.get(name) is not None}


def _running(options: Mapping[str, Any]) -> dict[str, Any]:
    """Pick what says where models run, and whether their code may; the judge runs as the training does."""
    return {name: options[name] for name in ("device", "trust_remote_code") if options[name] is not None}


def _examples(sources: Sequence[str], split: str) -> list[Example]:
    from retrieval.commands.negatives import relevant_texts
    from retrieval.eval.benchmark import Benchmark
    from retrieval.training.examples import examples_of, read_examples

    found: list[Example] = []
    for source in sources:
        if Path(source).is_dir():
            benchmark = Benchmark.load(source, split)
            found += examples_of(benchmark.queries, benchmark.qrels, relevant_texts(benchmark))
        else:
            found += read_examples(source)
    return found


def _development(options: Mapping[str, Any], learned: Sequence[Example]) -> Benchmark:
    """Load the benchmark that judges; say so if its queries are trained on, too."""
    from retrieval.console import say
    from retrieval.eval.benchmark import Benchmark

    benchmark = Benchmark.load(options["development"], options["development_split"])
    trained = {example.query for example in learned}
    if both := sum(query in trained for query in benchmark.queries.values()):
        say(
            f"note: trained on, too: {both:,} of {many(len(benchmark.queries), 'development query')}; "
            "figures on them flatter, and say nothing of other queries"
        )
    return benchmark


def _told(judge: Judge) -> Judge:
    """Say each figure when it is known: a judgement may take longer than the training between two of them."""
    from retrieval.console import say

    def told(folder: Path) -> Mapping[str, float]:
        step = folder.name.rpartition("-")[2]
        say(f"judging the model of step {step}")
        figures = judge(folder)
        say(f"step {step}: {', '.join(f'{name} {value:.4f}' for name, value in figures.items())}")
        return figures

    return told


@contextmanager
def _search_judge(options: Mapping[str, Any], learned: Sequence[Example]) -> Iterator[Judge | None]:
    """Judge an encoder by a search of the whole development corpus; None without one."""
    if options["development"] is None:
        yield None
        return
    from retrieval.documents import DocumentSettings
    from retrieval.encoder import EncoderSettings
    from retrieval.judges import by_search
    from retrieval.proof import METRIC

    benchmark = _development(options, learned)
    with tempfile.TemporaryDirectory() as place:
        benchmark.save(Path(place) / "corpus")
        judge = by_search(
            Path(place) / "corpus",
            benchmark,
            METRIC,
            documents=DocumentSettings(),
            encoding=EncoderSettings(**_running(options)),
        )
        yield _told(judge)


@contextmanager
def _progress() -> Iterator[Callable[[float], None]]:
    from retrieval.console import counting

    with counting("training") as show:
        yield lambda share: show(round(1000 * share), 1000)


def _say(report: TrainingReport) -> None:
    from retrieval.console import say

    figures = ", ".join(f"{name} {value:.4f}" for name, value in report.metrics.items())
    taken_up = f", taken up at step {report.resumed_from:,}" if report.resumed_from else ""
    work = f"{many(report.steps, 'step')} in {report.seconds:.0f} s, {many(report.tokens, 'token')}"
    say(f"{work}{taken_up}; loss {report.loss:.4f}")
    say(f"kept: the model of step {report.best_step:,}{': ' if figures else ''}{figures}")
    for name, count in report.notices.items():
        if count:
            say(f"  {name.replace('_', ' ')}: {count:,}")
    say(f"written to {report.out}")


COMMANDS: tuple[click.Command, ...] = (train_group,)

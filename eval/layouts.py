"""The layouts: ways in which benchmarks lie on a disk, each with the two functions that serve it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from retrieval.errors import DataError
from retrieval.eval import beir, codesearchnet, codexglue, cosqa, hub, programs
from retrieval.eval.benchmark import Benchmark


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A way in which benchmarks lie on a disk.

    Attributes:
        name: what `layout=` calls it.
        recognises: tells whether a folder or file looks like it, from names and one first line at most.
        load: loads a split of the benchmark at a path.
        looks: what is found there, for the message of a folder that no layout recognises.
    """

    name: str
    recognises: Callable[[Path], bool]
    load: Callable[[Path, str | None], Benchmark]
    looks: str


# The most specific first: a folder is given to the first that recognises it.
LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout(
            name="codesearchnet",
            recognises=codesearchnet.recognises,
            load=codesearchnet.load,
            looks="<language>/final/jsonl/<split>/<language>_<split>_0.jsonl.gz",
        ),
        Layout(
            name="codesearchnet-challenge",
            recognises=codesearchnet.recognises_challenge,
            load=codesearchnet.load_challenge,
            looks="annotationStore.csv beside the functions it judges",
        ),
        Layout(
            name="cosqa",
            recognises=cosqa.recognises,
            load=cosqa.load,
            looks="cosqa-retrieval-<split>-*.json and code_idx_map.txt",
        ),
        Layout(
            name="advtest",
            recognises=codexglue.recognises_advtest,
            load=codexglue.load_advtest,
            looks="train.jsonl, valid.jsonl, test.jsonl with docstring_tokens and function_tokens or code_tokens",
        ),
        Layout(
            name="webquery",
            recognises=codexglue.recognises_webquery,
            load=codexglue.load_webquery,
            looks="test_webquery.json with doc and code",
        ),
        Layout(
            name="mbpp",
            recognises=programs.recognises_mbpp,
            load=programs.load_mbpp,
            looks="mbpp.jsonl with task_id, text and code",
        ),
        Layout(
            name="humaneval",
            recognises=programs.recognises_humaneval,
            load=programs.load_humaneval,
            looks="HumanEval.jsonl(.gz) with task_id, prompt and canonical_solution",
        ),
        Layout(
            name="beir",
            recognises=beir.recognises,
            load=beir.load,
            looks="queries.jsonl, qrels/<split>.tsv and corpus.jsonl",
        ),
        Layout(
            name="hub",
            recognises=hub.recognises,
            load=hub.load,
            looks="Parquet or JSONL in corpus/, queries/ and qrels/, or in <name>-queries-corpus and <name>-qrels",
        ),
    )
}


def layout_of(path: Path) -> Layout:
    """Find the layout of a folder or file.

    Raises:
        DataError: it is in none; says what each looks like.
    """
    for layout in LAYOUTS.values():
        if layout.recognises(path):
            return layout
    known = "; ".join(f"{layout.name}: {layout.looks}" for layout in LAYOUTS.values())
    raise DataError(f"{path}: not in a layout that is known. {known}")

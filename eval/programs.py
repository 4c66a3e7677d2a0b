"""MBPP (Austin and others, 2021) and HumanEval (Chen and others, 2021): small Python programs found by their task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from retrieval.errors import DataError
from retrieval.eval.benchmark import NO_TITLES, Benchmark, Card, Document, assemble_held, choose_split
from retrieval.eval.docstrings import read_docstring, without_docstring
from retrieval.eval.leaks import occurs
from retrieval.eval.sources import Record, find_file, read_array, read_records

_MBPP = ("mbpp.jsonl", "mbpp.jsonl.gz", "sanitized-mbpp.json")
_MBPP_SPLITS = {"prompt": range(1, 11), "test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}
_HUMANEVAL = ("HumanEval.jsonl", "HumanEval.jsonl.gz")
# A doctest prompt, or a line that only announces examples.
_EXAMPLES = re.compile(r"^[ \t]*(?:>>>|(?:for )?examples?(?: \d+)?[ \t]*:?[ \t]*$)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Task:
    task_id: str
    query: str
    code: str


def recognises_mbpp(path: Path) -> bool:
    """Tell whether MBPP's file is at a path."""
    return find_file(path, *_MBPP) is not None


def load_mbpp(path: Path, split: str | None) -> Benchmark:
    """Load a split of MBPP, as its authors cut it by task number; the pool has the codes of all splits.

    Raises:
        DataError: the file or the split is not there, or a record is broken.
    """
    file = find_file(path, *_MBPP)
    if file is None:
        raise DataError(f"{path}: none of {', '.join(_MBPP)} there")
    numbered: dict[int, _Task] = {}
    for record in read_array(file) if file.suffix == ".json" else read_records(file):
        number = record.whole("task_id")
        if number in numbered:
            raise record.error(f"task_id {number} came before")
        code = record.text("code").replace("\r\n", "\n")
        numbered[number] = _Task(f"MBPP/{number}", record.text("text", "prompt").strip(), code.strip("\n"))
    there = [name for name, numbers in _MBPP_SPLITS.items() if any(number in numbers for number in numbered)]
    split = choose_split(file, there, split)
    card = Card(
        name="MBPP" if file.name != _MBPP[-1] else "MBPP sanitized",
        split=split,
        direction="task description -> Python program",
        pool="the programs of all splits",
        title="no titles",
        source="MBPP, github.com/google-research/google-research/tree/master/mbpp",
        licence="CC BY 4.0",
        notes=(
            "query: the task's description, without its tests; document: the reference program, lines ended by \\n",
            "split by task_id: 1-10 prompt, 11-510 test, 511-600 validation, 601-974 train",
        ),
    )
    numbers = _MBPP_SPLITS[split]
    return _benchmark(
        file, card, list(numbered.values()), [task for number, task in numbered.items() if number in numbers]
    )


def recognises_humaneval(path: Path) -> bool:
    """Tell whether HumanEval's file is at a path."""
    return find_file(path, *_HUMANEVAL) is not None


def load_humaneval(path: Path, split: str | None) -> Benchmark:
    """Load HumanEval; all of it is the split `test`.

    Raises:
        DataError: the file or the split is not there, or a record is broken.
    """
    file = find_file(path, *_HUMANEVAL)
    if file is None:
        raise DataError(f"{path}: none of {', '.join(_HUMANEVAL)} there")
    split = choose_split(file, ["test"], split)
    tasks: dict[str, _Task] = {}
    for record in read_records(file):
        task = _humaneval_task(record)
        if tasks.setdefault(task.task_id, task) is not task:
            raise record.error(f"task_id {task.task_id!r} came before")
    card = Card(
        name="HumanEval",
        split=split,
        direction="docstring -> Python function",
        pool="all solutions",
        title=NO_TITLES,
        source="HumanEval, github.com/openai/human-eval",
        licence="MIT",
        notes=(
            "query: the docstring up to its first doctest or the line that announces examples; examples that are "
            "written in other ways stay",
            "document: the prompt without that docstring, and the reference solution",
        ),
    )
    return _benchmark(file, card, list(tasks.values()), list(tasks.values()))


def _humaneval_task(record: Record) -> _Task:
    prompt = record.text("prompt")
    name = record.text("entry_point")
    try:
        documentation = read_docstring(prompt, name)
        code = without_docstring(prompt, name)
    except ValueError as error:
        raise record.error(f"'prompt': {error}") from None
    if not documentation:
        raise record.error(f"'prompt': the function {name!r} has no docstring there")
    examples = _EXAMPLES.search(documentation)
    prose = documentation[: examples.start()].strip() if examples else documentation.strip()
    solution = record.text("canonical_solution")
    return _Task(record.text("task_id"), prose or documentation, f"{code.rstrip()}\n{solution.rstrip()}".strip("\n"))


def _benchmark(place: Path, card: Card, tasks: Sequence[_Task], asked: Iterable[_Task]) -> Benchmark:
    """Complete a card, and make a benchmark of the tasks, of which some are the queries."""
    queries = {task.task_id: task.query for task in asked}
    if leaks := sum(occurs(task.query, task.code) for task in asked):
        note = f"documents that hold the words of their own query, in a comment, a name or a string: {leaks}"
        card = replace(card, notes=(*card.notes, note))
    qrels = {query_id: {f"{query_id}#code": 1} for query_id in queries}
    documents = [Document(doc_id=f"{task.task_id}#code", text=task.code) for task in tasks]
    return assemble_held(place, card, queries, qrels, documents)

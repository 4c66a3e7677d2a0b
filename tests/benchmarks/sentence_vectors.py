"""Vectors of many real sentences: for measuring approximate indexes, which behave better on vectors made up.

    python tests/benchmarks/sentence_vectors.py FOLDER [--data ../shared/data] [--documentation FOLDER ...]
                                                [--passages 1000000] [--queries 10000] [--dtype auto]
                                                [--runtime auto] [--count]

The sentences are distinct, of 3 to 40 words, in an order drawn by a fixed seed. They come from the collections in
--data, from the docstrings of the running Python's library and packages, and from the documentation on this machine
(README files, change logs, manual pages), so another machine has others. --count says how many there are and ends.

The default encoder writes FOLDER/vectors.npy and FOLDER/queries.npy, float32 rows, and FOLDER/sentences.txt holds the
sentences, those of the vectors first. A run that was stopped goes on where it was, if the settings are the same.
"""

import argparse
import ast
import gzip
import hashlib
import importlib.util
import json
import math
import random
import re
import sys
import sysconfig
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from retrieval import BiEncoder, EncoderSettings
from retrieval.sentences import sentences

BLOCK = 8_192  # sentences between two checkpoints
LARGEST = 20_000_000  # bytes of a file that is read
TEXT_FIELDS = ("title", "text", "query", "positive", "negative")
TEXT_SUFFIXES = {"", ".txt", ".md", ".rst", ".html", ".debian", *(f".{n}" for n in range(1, 10))}
MANUAL = re.compile(r"\.\d\w*$")
WORD = re.compile(r"[^\W\d_]{2,}")
ROFF = re.compile(r"\\(?:f\[[^]]*\]|f\(..|f.|s[-+]?\d|[&|^%/,:])")


def collections(folder: Path) -> Iterator[str]:
    """Texts of the documents, queries and pairs below a folder."""
    for path in sorted(folder.rglob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                yield from (record[field] for field in TEXT_FIELDS if isinstance(record.get(field), str))


def docstrings() -> Iterator[str]:
    """Docstrings of the running Python's library and packages, and the packages' descriptions."""
    roots = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")}
    for path in sorted({path for root in roots for path in root.rglob("*") if path.suffix in (".py", ".md", ".rst")}):
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix != ".py":
            yield prose(text, path)
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def documentation(folder: Path) -> Iterator[str]:
    """Text files below a folder, also compressed ones; of manuals those in English."""
    for path in sorted(folder.rglob("*")):
        inner = Path(path.stem) if path.suffix == ".gz" else path
        translated = "man" in path.parts and path.parent.parent.name != "man"
        if translated or path.is_symlink() or not path.is_file():
            continue
        if inner.suffix.lower() not in TEXT_SUFFIXES or path.stat().st_size > LARGEST:
            continue
        data = path.read_bytes()
        try:
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        except (OSError, UnicodeDecodeError):
            continue
        yield prose(text, inner)


def prose(text: str, path: Path) -> str:
    """What people read of a file."""
    if path.suffix == ".html":
        from bs4 import BeautifulSoup

        parser = "lxml" if importlib.util.find_spec("lxml") else "html.parser"  # ten times as fast
        return BeautifulSoup(text, parser).get_text("\n")
    if MANUAL.search(path.name):
        text = "\n".join("" if line[:1] in (".", "'") else line for line in text.split("\n"))
        return ROFF.sub("", text).replace("\\-", "-").replace("\\", "")
    return text


def short_sentences(text: str) -> Iterator[str]:
    for start, end in sentences(text):
        words = text[start:end].split()
        if 3 <= len(words) <= 40:
            sentence = " ".join(words)
            if sentence.isprintable() and len(WORD.findall(sentence)) >= max(3, len(words) // 2):
                yield sentence


def gather(options: argparse.Namespace, enough: float) -> list[str]:
    """Distinct sentences in a seeded order; says how many each source has that no earlier one had.

    Once there are enough no further source is read.
    """
    sources = [(str(options.data), collections(options.data)), ("docstrings and packages", docstrings())]
    sources += [(str(folder), documentation(folder)) for folder in options.documentation]
    found: dict[str, None] = {}
    for name, texts in sources:
        if len(found) >= enough:
            break
        before = len(found)
        for text in texts:
            found.update(dict.fromkeys(short_sentences(text)))
        print(f"{len(found) - before:>9,} sentences of {name}", flush=True)
    print(f"{len(found):>9,} distinct sentences of 3 to 40 words")
    shuffled = sorted(found)
    random.Random(7).shuffle(shuffled)
    return shuffled


def fixed_sentences(options: argparse.Namespace) -> list[str]:
    """The sentences of an earlier run in the folder, or those gathered now, which are stored there."""
    path = options.folder / "sentences.txt"
    wanted = options.passages + options.queries
    if not path.exists():
        found = gather(options, wanted)
        if len(found) < wanted:
            sys.exit(f"{wanted:,} are wanted; name more texts with --documentation, or fewer --passages")
        options.folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text("\n".join(found[:wanted]) + "\n", encoding="utf-8")
        partial.replace(path)
    kept = path.read_text(encoding="utf-8").split("\n")[:-1]
    if len(kept) != wanted:
        sys.exit(f"{path} holds {len(kept):,} sentences, {wanted:,} are wanted; take another folder or delete that one")
    return kept


class Checkpoint:
    """How many rows of a file of vectors are written; the file is made anew where its encoder or size is another."""

    def __init__(self, path: Path, rows: int, encoder: BiEncoder, settings: dict[str, str]) -> None:
        self._state, self._facts = path.with_suffix(".json"), {"rows": rows, "dim": encoder.dim, **settings}
        state = json.loads(self._state.read_text()) if path.exists() and self._state.exists() else {}
        self.done = state.pop("done", 0) if state else 0
        if state != self._facts:
            self.done = 0
        mode = "r+" if self.done else "w+"
        self.vectors = np.lib.format.open_memmap(path, mode=mode, dtype=np.float32, shape=(rows, encoder.dim))

    def add(self, block: np.ndarray) -> None:
        self.vectors[self.done : self.done + len(block)] = block
        self.vectors.flush()
        self.done += len(block)
        partial = self._state.with_suffix(".partial")
        partial.write_text(json.dumps({**self._facts, "done": self.done}))
        partial.replace(self._state)


def encode(texts: list[str], checkpoint: Checkpoint, encoder: BiEncoder) -> None:
    started, before = time.monotonic(), checkpoint.done
    while checkpoint.done < len(texts):
        block = texts[checkpoint.done : checkpoint.done + BLOCK]
        checkpoint.add(encoder.encode_documents([""] * len(block), block).vectors)
        rate = (checkpoint.done - before) / (time.monotonic() - started)
        left = (len(texts) - checkpoint.done) / rate / 60
        print(f"{checkpoint.done:>9,} of {len(texts):,}, {rate:,.0f} sentences/s, {left:.0f} min left", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--documentation", type=Path, nargs="*", default=[Path("/usr/share/doc"), Path("/usr/share/man")]
    )
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--count", action="store_true", help="Only count the sentences.")
    options = parser.parse_args()
    if options.count:
        gather(options, math.inf)
        return
    texts = fixed_sentences(options)
    # a sentence is one row, even one of very long words
    settings = {"dtype": options.dtype, "runtime": options.runtime, "device": "cpu", "on_long": "truncate"}
    encoder = BiEncoder.load(settings=EncoderSettings(**settings))
    settings["sentences"] = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    for name, some in (("queries", texts[options.passages :]), ("vectors", texts[: options.passages])):
        encode(some, Checkpoint(options.folder / f"{name}.npy", len(some), encoder, settings), encoder)


if __name__ == "__main__":
    main()

"""How fast JSONL becomes record batches, next to a plain loop over json.loads on the same file.

    python tests/benchmarks/reading.py [FILE] [--mb 50] [--rounds 3]

Without FILE it writes one: titles, texts of 180 words on average, an integer and a string of metadata. Both
sides run in turn, in one process; the best round counts. Times are of the processor, so that a busy machine
matters less.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from retrieval.documents import DocumentStream


def write_corpus(path: Path, megabytes: int) -> None:
    rng = random.Random(7)
    syllables = ["ba", "ke", "li", "mo", "nu", "ra", "sti", "tor", "ven", "zé", "qua", "phi"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 5))) for _ in range(20_000)]
    written = number = 0
    with path.open("wb") as file:
        while written < megabytes * 1_000_000:
            record = {
                "_id": f"d{number}",
                "title": " ".join(rng.choices(words, k=8)),
                "text": " ".join(rng.choices(words, k=rng.randint(60, 300))),
                "year": rng.randint(1900, 2025),
                "source": rng.choice(words),
            }
            written += file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            number += 1


def read_plainly(path: Path) -> int:
    with path.open(encoding="utf-8", newline="\n") as file:
        return sum(len(json.loads(line)["text"]) > 0 for line in file)


def read_stream(path: Path) -> int:
    return sum(batch.num_rows for batch in DocumentStream([path]))


def seconds_of(function: Callable[[Path], int], path: Path) -> float:
    started = time.process_time()
    function(path)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--mb", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder, "corpus.jsonl")
        if arguments.file is None:
            write_corpus(path, arguments.mb)
        megabytes = path.stat().st_size / 1e6
        times: dict[str, list[float]] = {"json.loads": [], "DocumentStream": []}
        documents = read_stream(path)
        for _ in range(arguments.rounds):
            times["json.loads"].append(seconds_of(read_plainly, path))
            times["DocumentStream"].append(seconds_of(read_stream, path))
        print(f"{documents} documents, {megabytes:.1f} MB")
        for name, seconds in times.items():
            print(f"{name:>15}: {megabytes / min(seconds):6.1f} MB/s")
        print(f"{'ratio':>15}: {min(times['json.loads']) / min(times['DocumentStream']):.2f}")


if __name__ == "__main__":
    main()

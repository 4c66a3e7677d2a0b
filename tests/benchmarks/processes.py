"""Whole processes, measured from outside: wall time and peak memory."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_INTERVAL = 0.02  # seconds between two looks at the memory


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a process took. ``peak_mb`` is 2^20 bytes resident, with its children's; NaN where there is no /proc."""

    seconds: float
    peak_mb: float
    output: str
    errors: str


def limit_threads(threads: int) -> None:
    """Let this process and those it starts use so many cores, where the system can say so."""
    os.environ |= {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def run(command: Sequence[object]) -> Measured:
    """Run a command to its end; exits with what it said if it fails.

    Peak memory is VmHWM of /proc, read while it runs: Linux hands ru_maxrss of a parent down to its children. Of a
    process with children it is the sum of all peaks, which is at least what they held at one time.
    """
    words = [str(word) for word in command]
    # Packages are installed with their bytecode; a checkout's is written at its first run, if that is not forbidden.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(words, stdout=output, stderr=errors, env=environment)
        watch = _Watch(process.pid)
        status = process.wait()
        seconds = time.perf_counter() - started
        peak = watch.stop()
        for file in (output, errors):
            file.seek(0)
        measured = Measured(seconds=seconds, peak_mb=peak, output=output.read(), errors=errors.read())
    if status:
        sys.exit(f"{' '.join(words)[:300]} ended with {status}:\n{measured.errors[-2000:]}")
    return measured


class _Watch:
    """Reads a process's peak memory until it is stopped."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._peaks: dict[int, int] = {}  # kB by process
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> float:
        self._ended.set()
        self._thread.join()
        return sum(self._peaks.values()) / 1024 if self._peaks else float("nan")

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL):
            pending = [self._process]
            for process in pending:
                try:
                    status = Path(f"/proc/{process}/status").read_text()
                    children = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
                except OSError:  # it ended
                    continue
                pending += [int(child) for text in children for child in text.split()]
                if "VmHWM:" in status:  # not of one that ended and was not waited for
                    self._peaks[process] = int(status.split("VmHWM:")[1].split()[0])

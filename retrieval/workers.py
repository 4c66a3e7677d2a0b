"""Encoding side by side: the next part is read and the last one written meanwhile, and processes share the work.

Parts come back in the order in which they were read, and so do errors, whoever is faster.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import logging.handlers
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar, cast

import pyarrow as pa

from retrieval.chunking import PassageVectors
from retrieval.encoder import BiEncoder, EncoderSettings
from retrieval.errors import ConfigError, ModelError, RetrievalError
from retrieval.passages import EncodedPassages, PassageSource
from retrieval.runtime import load_torch
from retrieval.units import UNITS

_READ = ("doc_id", "title", "text", UNITS)  # what an encoder and its messages read of documents

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Documents that are encoded and written together, and the shares of the input, 0 to 1, between which they lie."""

    documents: pa.Table
    first: float
    last: float


Heard = Callable[[Sequence[tuple[Part, float]]], None]
"""Told which share is done of each part that is being encoded."""


def ahead(items: Iterable[T]) -> Generator[T, None, None]:
    """Yield items, each of which a thread took while the caller was busy with the one before."""
    iterator = iter(items)
    end: Any = object()
    item = next(iterator, end)
    with ThreadPoolExecutor(1, "reading") as pool:
        while item is not end:
            coming = pool.submit(next, iterator, end)
            yield item
            item = coming.result()


class Behind:
    """Does one thing after the other in a thread; an error comes with the next thing, or at the end."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "writing")
        self._running: Future[None] | None = None

    def __enter__(self) -> Behind:
        return self

    def do(self, work: Callable[[], None]) -> None:
        """Begin some work, once what was begun before is done."""
        self._wait()
        self._running = self._pool.submit(work)

    def _wait(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait()  # its error is the earlier one
        finally:
            self._pool.shutdown()


def check_workers(source: PassageSource, workers: int) -> None:
    """Refuse worker processes for what they cannot do.

    Raises:
        ConfigError: No such number, or what is to be done cannot be handed to a process.
    """
    if workers < 1:
        raise ConfigError(f"workers is {workers}; expected 1 or more")
    if workers == 1:
        return
    if not isinstance(source, EncodedPassages):
        raise ConfigError(f"workers is {workers}, but ready-made vectors are not encoded; leave --workers out")
    encoder = source.encoder
    if not isinstance(encoder, BiEncoder):
        raise ConfigError(
            f"workers is {workers}, but an encoder of your own cannot be sent to other processes; "
            "use workers=1, or give a model folder instead"
        )
    if encoder.settings.dtype == "int8" and encoder.settings.calibration is None:
        raise ConfigError(f"workers is {workers}, but int8 of this input goes with one process; leave --workers out")


def passages_of(
    source: PassageSource, parts: Iterable[Part], *, workers: int, heard: Heard
) -> Generator[tuple[Part, PassageVectors], None, None]:
    """Yield parts with their passages, in order.

    Args:
        source: What makes the passages.
        parts: Documents; errors of reading them are raised when it is their turn.
        workers: Processes that encode, each with a model of its own; 1: this process does.
        heard: Called as parts get done; without a part once the caller is done with it.

    Raises:
        RetrievalError: A worker process died; and as the source does.
    """
    if workers == 1:
        for part in parts:
            yield part, source.passages(part.documents, _alone(part, heard))
            heard([])
        return
    source = cast(EncodedPassages, source)  # see `check_workers`
    pool = _Pool(cast(BiEncoder, source.encoder), workers)
    try:
        for part, found, counts in pool.run(iter(parts), heard):
            source.count(counts)
            yield part, found
    finally:
        pool.close()


def _alone(part: Part, heard: Heard) -> Callable[[float], None]:
    return lambda share: heard([(part, share)])


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What a worker process is to be.

    Attributes:
        model: Where its model lies.
        sha256: The model's fingerprint.
        settings: Of the encoder.
        cores: The processor's cores that it computes on; none leaves them to the system.
        level: What its log is to hold.
    """

    model: str
    sha256: str
    settings: EncoderSettings
    cores: Sequence[int]
    level: int


@dataclass(frozen=True, kw_only=True)
class _Done:
    """A part's passages, or the error that it ended with, and the encoder's counts."""

    number: int
    found: PassageVectors | Exception
    counts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class _Share:
    """How much of a part is encoded, 0 to 1."""

    number: int
    done: float


class _Pool:
    """Worker processes, and which part each of them has."""

    def __init__(self, encoder: BiEncoder, count: int) -> None:
        self._inbox: queue.SimpleQueue[tuple[_Worker, Any]] = queue.SimpleQueue()
        self._first_alone = encoder.settings.dtype == "int8"  # ranges of numbers are taken from the first part
        self._workers: list[_Worker] = []
        try:
            for job in _jobs(encoder, count):
                self._workers.append(_Worker(job, self._inbox))
        except BaseException:
            self.close()
            raise

    def run(self, parts: Iterator[Part], heard: Heard) -> Iterator[tuple[Part, PassageVectors, dict[str, int]]]:
        """Yield parts with their passages and counts, in order; at most two parts a worker are under way."""
        under_way: dict[int, tuple[Part, float]] = {}  # by number, with the share that is done
        results: dict[int, _Done] = {}
        numbers = itertools.count()
        following: int | None = next(numbers)  # the next part to be read; None after the last
        due = 0
        while True:
            while following is not None and len(under_way) < 2 * len(self._workers):
                if self._first_alone and following > 0 and due == 0:
                    break
                worker = min(self._workers, key=lambda one: len(one.parts))
                try:
                    part = next(parts, None)
                except Exception as error:  # the parts before it come first
                    results[following] = _Done(number=following, found=error, counts={})
                    part = None
                if part is None:
                    following = None
                    break
                under_way[following] = part, 0.0
                worker.send(following, part)
                following = next(numbers)
            if due in results:
                done = results.pop(due)
                if isinstance(done.found, Exception):
                    raise done.found
                part, _ = under_way.pop(due)
                due += 1
                yield part, done.found, done.counts
                heard(list(under_way.values()))
                continue
            if not under_way:
                return
            worker, message = self._inbox.get()
            if isinstance(message, _Share):
                under_way[message.number] = under_way[message.number][0], message.done
                heard(list(under_way.values()))
            elif isinstance(message, _Done):
                worker.parts.pop(message.number, None)
                results[message.number] = message
            elif message is not None:
                logging.getLogger(message.name).handle(message)
            else:
                gone = worker.died()
                for number in worker.parts or ([] if following is None else [following]):
                    results[number] = _Done(number=number, found=gone, counts={})
                following = None

    def close(self) -> None:
        """End all workers; what they were doing is lost."""
        for worker in self._workers:
            worker.end()


class _Worker:
    """A process that encodes parts.

    Attributes:
        parts: Those that it was given and has not encoded, by number, in order.
    """

    def __init__(self, job: _Job, inbox: queue.SimpleQueue[tuple[_Worker, Any]]) -> None:
        """Start it; what it says is put into `inbox`, and None when it is gone."""
        self.parts: dict[int, Part] = {}
        environment = dict(os.environ)
        program = ["import os, sys", f"sys.path[:] = {sys.path!r}", "from retrieval.workers import work", "work()"]
        if job.cores:
            environment["OMP_NUM_THREADS"] = str(len(job.cores))
            if hasattr(os, "sched_setaffinity"):  # before any library makes its threads
                program.insert(1, f"os.sched_setaffinity(0, {list(job.cores)})")
        self._process = subprocess.Popen(
            [sys.executable, "-c", "\n".join(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C in a terminal is for us, who end it then
        )
        self._stdin, self._stdout = cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout)
        self._listener = threading.Thread(target=self._listen, args=(inbox,), daemon=True)
        self._listener.start()
        self._write(job)

    def send(self, number: int, part: Part) -> None:
        """Give it a part to encode."""
        self.parts[number] = part
        names = [name for name in _READ if name in part.documents.column_names]
        self._write((number, part.documents.select(names)))

    def _write(self, message: object) -> None:
        try:
            pickle.dump(message, self._stdin, pickle.HIGHEST_PROTOCOL)
            self._stdin.flush()
        except OSError:  # it is gone, as the inbox will say
            pass

    def _listen(self, inbox: queue.SimpleQueue[tuple[_Worker, Any]]) -> None:
        try:
            while True:
                inbox.put((self, pickle.load(self._stdout)))
        except (EOFError, OSError, pickle.UnpicklingError, ValueError):  # it ended, perhaps within a message
            inbox.put((self, None))

    def died(self) -> RetrievalError:
        """Say for people that it is gone."""
        status = self._process.wait()
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        first = next(iter(self.parts.values()), None)
        doing = "" if first is None else f" while it encoded documents from {first.documents['doc_id'][0].as_py()!r} on"
        return RetrievalError(
            f"worker process {self._process.pid} {how}{doing}; "
            "repeat the command, with fewer workers (--workers) if memory ran out"
        )

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # of what could not be written
                stream.close()


def _jobs(encoder: BiEncoder, count: int) -> Iterator[_Job]:
    """Divide the machine: CUDA devices in turn, or the cores of the processor."""
    settings = encoder.settings
    devices = [settings.device]
    if settings.device == "cuda":
        devices = [f"cuda:{number}" for number in range(load_torch().cuda.device_count())]
    cores: list[int] = []
    if settings.device == "cpu":
        cores = (
            sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
        )
    for number in range(count):
        share = cores[number * len(cores) // count : (number + 1) * len(cores) // count]
        yield _Job(
            model=str(encoder.identity["path"] or encoder.identity["name"]),
            sha256=str(encoder.identity["sha256"]),
            settings=replace(settings, device=devices[number % len(devices)]),
            cores=share or [cores[number % len(cores)]] if cores else [],
            level=logging.getLogger("retrieval").getEffectiveLevel(),
        )


def work() -> None:
    """Be a worker process: read a job and then parts from standard input, and answer on standard output."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # what some library prints is no answer
    alone = threading.Lock()

    def say(message: object) -> None:
        try:
            with alone:
                pickle.dump(message, outgoing, pickle.HIGHEST_PROTOCOL)
                outgoing.flush()
        except OSError:  # nobody listens any more
            os._exit(1)

    job: _Job = pickle.load(incoming)
    inbox: queue.SimpleQueue[tuple[int, pa.Table]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(incoming, inbox), daemon=True).start()
    encoder = _load(job)  # what it has to say was said by the process that started this one
    log = logging.getLogger("retrieval")
    log.setLevel(job.level)
    log.addHandler(_Forwarding(say))
    while True:
        number, documents = inbox.get()
        if isinstance(encoder, Exception):
            say(_Done(number=number, found=encoder, counts={}))
            continue
        source = EncodedPassages(encoder)
        try:
            found: PassageVectors | Exception = source.passages(documents, functools.partial(_tell, say, number))
        except Exception as error:
            found = _sendable(error)
        say(_Done(number=number, found=found, counts=source.cut()))


def _tell(say: Callable[[object], None], number: int, done: float) -> None:
    say(_Share(number=number, done=done))


def _receive(incoming: BinaryIO, inbox: queue.SimpleQueue[tuple[int, pa.Table]]) -> None:
    """Read parts ahead, so that whoever sends them need not wait; end the process with the one that started it."""
    try:
        while True:
            inbox.put(pickle.load(incoming))
    finally:
        os._exit(0)


def _load(job: _Job) -> BiEncoder | Exception:
    """Load the model, or say why that failed."""
    try:
        encoder = BiEncoder.load(job.model, settings=job.settings)
        if encoder.identity["sha256"] != job.sha256:
            raise ModelError(f"model {job.model} was changed meanwhile; repeat the command")
    except Exception as error:
        return _sendable(error)
    return encoder


def _sendable(error: Exception) -> Exception:
    """The error itself if it is one of ours, else one that says the same: not every error can be sent."""
    return error if isinstance(error, RetrievalError) else RuntimeError("".join(traceback.format_exception(error)))


class _Forwarding(logging.handlers.QueueHandler):
    """Hands records of the log to a function, ready to be sent."""

    def __init__(self, say: Callable[[object], None]) -> None:
        super().__init__(queue.SimpleQueue())
        self._say = say

    def enqueue(self, record: logging.LogRecord) -> None:
        self._say(record)

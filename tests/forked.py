"""The command line in processes of its own, forked from one that has imported everything."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NOBODY = 65534

_SERVER = """
import gc, json, os, signal, sys, time
import faiss, sentence_transformers  # now, so that a child starts at once
import transformers.models.modernbert.modeling_modernbert
import retrieval.indexing, retrieval.retriever, retrieval.sentence_model
from retrieval.cli import main

def names(folder):
    return list(os.walk(folder))

gc.freeze()  # a child need not collect what it inherits before it ends

for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(order["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 2)
        if order["reader"]:
            os.dup2(os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 1)
        else:
            reading, writing = os.pipe()
            os.close(reading)
            os.dup2(writing, 1)
        if order["user"]:
            os.setgroups([])
            os.setgid(order["user"])
            os.setuid(order["user"])
        os.environ.pop("HOME", None)
        main(order["arguments"])
    status, changes, seen = None, order["changes"], names(order["watch"])
    while changes and status is None:
        time.sleep(0.001)
        ended, code = os.waitpid(child, os.WNOHANG)
        status = code if ended else None
        if names(order["watch"]) != seen:
            changes, seen = changes - 1, names(order["watch"])
    if order["changes"] and status is None:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1] if status is None else status
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Processes:
    """Runs commands, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stdout, self.stderr = "", ""
        self.server = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, *arguments: object, user: int = 0, watch: Path | None = None, changes: int = 0, reader: bool = True
    ) -> int:
        """Return the exit code, negative for a signal.

        It is killed when files in the folder `watch` came, went or were renamed for the `changes`-th time.
        Without a `reader` its stdout is a closed pipe.
        """
        order = {
            "arguments": [str(argument) for argument in arguments],
            "user": user,
            "watch": str(watch or ""),
            "changes": changes,
            "reader": reader,
            "output": str(self.folder / "output"),
            "errors": str(self.folder / "errors"),
        }
        assert self.server.stdin and self.server.stdout
        (self.folder / "output").write_text("")
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        code = int(self.server.stdout.readline())
        self.stdout = (self.folder / "output").read_text()
        self.stderr = (self.folder / "errors").read_text()
        return code


@contextlib.contextmanager
def public_folder() -> Iterator[tuple[Path, int]]:
    """A folder of an ordinary user's, and that user; tmp_path is closed to others."""
    user = _NOBODY if os.getuid() == 0 else 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if user:
            os.chown(folder, user, user)
        yield folder, user
        for path in folder.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)

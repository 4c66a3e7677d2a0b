"""The program: `retrieve`, or `python -m retrieval`."""

import atexit
import gc

gc.disable()  # what is imported stays: to look for garbage in it, now and at the end, took a seventh of a cold query
from retrieval.cli import main  # noqa: E402

gc.freeze()
gc.enable()
atexit.register(gc.freeze)


def run() -> None:
    """Run the command line."""
    main(prog_name="retrieve")


if __name__ == "__main__":
    run()

"""The program: `retrieve`, or `python -m retrieval`."""

import atexit
import gc


def run() -> None:
    """Run the command line.

    What is imported stays; to look for garbage in it, now and at the end, took a seventh of a cold query.
    """
    gc.disable()
    from retrieval.cli import main

    gc.freeze()
    gc.enable()
    atexit.register(gc.freeze)
    main(prog_name="retrieve")


if __name__ == "__main__":
    run()

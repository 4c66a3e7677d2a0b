"""`python -m retrieval` is the command `retrieve`."""

from retrieval.cli import main

if __name__ == "__main__":
    main(prog_name="retrieve")

"""How things stand, said line by line where stderr is no terminal."""

import time

import pytest

from retrieval.console import counting, progress, waiting
from retrieval.indexing import Progress


def test_where_stderr_is_no_terminal_lines_say_how_things_stand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(least: int) -> list[str]:
        """The lines said so far, once there are as many."""
        said = ""
        for _ in range(1000):
            said += capsys.readouterr().err
            if said.count("\n") >= least:
                break
            time.sleep(0.01)
        return said.splitlines()

    monkeypatch.setattr("retrieval.console._EVERY", 0.01)
    with counting("queries") as show:
        assert lines(1)[0] == "queries: 0 % after 0 s"
        show(1, 4)
        assert "queries: 25 % after 0 s" in lines(2)
    with waiting("searching"):
        assert lines(1)[0] == "searching ... after 0 s"
    with progress() as told:
        assert lines(1)[0] == "loading after 0 s"
        told(Progress(documents=1, kept=0, share=None, stage="documents"))
        assert lines(2)[-1].startswith("1 document, ")
        told(Progress(documents=2, kept=0, share=1.0, stage="commit"))
        assert lines(2)[-1].startswith("finishing after ")
    assert capsys.readouterr().err.count("\n") <= 1
    time.sleep(0.05)
    assert capsys.readouterr().err == ""  # nothing is said any more
    monkeypatch.setattr("retrieval.console._EVERY", 30.0)
    with counting("queries") as show, waiting("searching"):
        show(1, 4)
    assert capsys.readouterr().err == ""  # nor of what is quick

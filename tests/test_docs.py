"""The documentation is true: every command and every example in it runs, every command is in it."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from retrieval.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def home(tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the README's names mean something."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "my-reranker").symlink_to(tiny("cross1"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "today.md").write_text("# Today\n\nThe tide was very low this morning.\n")
    (tmp_path / "my-project").symlink_to(ROOT / "index")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_of_the_readme_works(home: Path) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.strip()]
    assert len(lines) > 12
    for line in lines:
        before, _, command = line.rpartition("|")
        given = shlex.split(before)[1] + "\n" if before else None
        program, *arguments = shlex.split(command)
        assert program == "retrieve"
        result = CliRunner().invoke(main, arguments, input=given)
        assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"


def test_every_python_example_of_the_readme_works(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = blocks("python")
    assert len(examples) == 3
    for example in examples:
        exec(compile(example, "README.md", "exec"), {})
    first = capsys.readouterr().out.splitlines()
    assert len([line for line in first if re.match(r"\d \d\.\d+ ", line)]) == 3


def test_every_command_is_in_the_readme() -> None:
    assert [name for name in main.commands if f"retrieve {name}" not in README] == []


def test_links_of_the_documentation_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"

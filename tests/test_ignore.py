"""Ignore files of every level, compared with git itself."""

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from retrieval.ignore import IgnoreFiles, Patterns, ways_to

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def ignored(root, found=None, folder="", prefix=""):
    """Paths from the root that are left out or not; what lies below an ignored folder is not looked at."""
    found = IgnoreFiles.above(str(root)) if found is None else found
    here = Path(root, folder)
    found = found.within(str(here), prefix, {path.name for path in here.iterdir()})
    answers = {}
    for path in sorted(here.iterdir()):
        if path.name == ".git":
            continue
        name = prefix + path.name
        answers[name] = found.leaves_out(name, folder=path.is_dir())
        if path.is_dir() and not answers[name]:
            answers |= ignored(root, found, name, f"{name}/")
    return answers


def write(root, files):
    for name, text in files.items():
        path = Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def left_out(root):
    return {name for name, answer in ignored(root).items() if answer}


def git_says(repository, names):
    given = "\0".join(names).encode()
    command = ["git", "-C", str(repository), "check-ignore", "-z", "--stdin", "-v", "-n", "--no-index"]
    fields = subprocess.run(command, input=given, capture_output=True).stdout.decode().split("\0")[:-1]
    answers = [fields[at : at + 4] for at in range(0, len(fields), 4)]
    return {name: bool(source) and not pattern.startswith("!") for source, _, pattern, name in answers}


NAMES = ["a", "b", "ab", "abc", "foo", "bar.py", "x y", "!z", "#c", "a.txt", "é", "sp ", "b]"]
PIECES = ["a", "b", "ab", "foo", "bar", ".py", "*", "?", "/", "/", "!", "#", "é", "\t", " ", ".txt", "\\#", "\\ "]
PIECES += ["[ab]", "[!a]", "[^b]", "[a-c]", "[[:alpha:]]", "**/", "/**", "/**/", "***/", "[", "]"]


@needs_git
@pytest.mark.parametrize("seed", range(40))
def test_a_tree_of_random_patterns_is_read_as_git_reads_it(tmp_path, seed):
    chance = random.Random(seed)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    folders = [tmp_path]
    for _ in range(8):
        folders.append(chance.choice(folders) / chance.choice(NAMES))
        folders[-1].mkdir(exist_ok=True)
    for folder in folders:
        for name in chance.sample(NAMES, 4):
            if not (folder / name).exists():
                (folder / name).touch()

    def pattern():
        pieces = [chance.choice(PIECES) for _ in range(chance.randint(1, 4))]
        return "".join(pieces)

    for folder in (tmp_path, *chance.sample(folders, 3)):
        lines = [pattern() for _ in range(chance.randint(1, 5))]
        (folder / ".gitignore").write_bytes(chance.choice(["\n", "\r\n"]).join(lines).encode())
    (tmp_path / ".git/info").mkdir(exist_ok=True)
    (tmp_path / ".git/info/exclude").write_text(pattern())
    ours = ignored(tmp_path)
    assert ours == git_says(tmp_path, list(ours))
    for folder in folders[1:]:  # a folder of the repository, given as the tree
        name = folder.relative_to(tmp_path).as_posix()
        if ours.get(name) is False:
            below = {f"{name}/{path}": answer for path, answer in ignored(folder).items()}
            assert below.items() <= ours.items()


def test_the_deepest_file_wins_and_its_last_pattern(tmp_path):
    write(
        tmp_path,
        {
            ".gitignore": "build/\n*.log\n/top.txt\n# *.md\n\\#odd.txt\n",
            "cap/.gitignore": "/deps/\n",
            "logs/.gitignore": "!keep.log\n",
            "src/.gitignore": "/*\n!/kept/\n",
            **dict.fromkeys(["cap/deps/x", "core/deps/y", "build/out", "logs/a.log", "logs/keep.log", "x.md"], ""),
            **dict.fromkeys(["top.txt", "sub/top.txt", "#odd.txt", "src/gone.py", "src/kept/a.py"], ""),
            "src/kept/b.log": "",  # the folder is taken in again, not what another file says of what is in it
        },
    )
    assert left_out(tmp_path) == {
        "cap/deps",
        "build",
        "logs/a.log",
        "top.txt",
        "#odd.txt",
        "src/.gitignore",
        "src/gone.py",
        "src/kept/b.log",
    }


def test_folders_above_count_up_to_the_root_of_the_repository(tmp_path):
    write(tmp_path, {".gitignore": "*\n", "r/.git/HEAD": "", "r/.gitignore": "*.log\n/a/b/c.txt\nhidden/\n"})
    write(tmp_path, {"r/.git/info/exclude": "*.tmp\n", "r/a/.gitignore": "!kept.log\n"})
    write(tmp_path, dict.fromkeys(["r/a/b/c.txt", "r/a/b/d.txt", "r/a/b/x.log", "r/a/b/kept.log", "r/a/b/y.tmp"], ""))
    assert left_out(tmp_path / "r/a/b") == {"c.txt", "x.log", "y.tmp"}
    write(tmp_path, {"r/hidden/x/a.log": "", "r/hidden/x/.gitignore": "*.py", "r/hidden/x/b.py": ""})
    assert left_out(tmp_path / "r/hidden/x") == {"b.py"}  # who names an ignored folder wants what is in it
    shutil.rmtree(tmp_path / "r/.git")
    assert left_out(tmp_path / "r/a/b") == set()  # no repository: no folder above is looked at


def test_a_repository_within_begins_anew(tmp_path):
    write(tmp_path, {".git/HEAD": "", ".gitignore": "*.txt\n", "sub/.git/HEAD": "", "sub/.git/info/exclude": "b.md\n"})
    write(tmp_path, dict.fromkeys(["a.txt", "sub/a.txt", "sub/b.md", "b.md"], ""))
    assert left_out(tmp_path) == {"a.txt", "sub/b.md"}


def test_an_ignore_file_that_is_a_link_a_folder_or_odd_does_no_harm(tmp_path):
    write(tmp_path, {"rules": "*\n", "a/x.py": "", "b/x.py": "", "c/x.py": "", "d/x.py": ""})
    (tmp_path / "a/.gitignore").symlink_to("../rules")
    (tmp_path / "b/.gitignore").mkdir()
    (tmp_path / "c/.gitignore").write_bytes(b"\xef\xbb\xbfx.py\n\xff\xfe[\n[z-a]\nfoo\\\n[[a]\n")
    assert left_out(tmp_path) == {"c/x.py"}


def test_patterns_answer_for_what_they_match_itself():
    patterns = Patterns(["vendor/", "*.py", "!keep.py", "/docs/*.md"])
    assert patterns.decision("a/vendor", folder=True) is True
    assert patterns.decision("vendor", folder=False) is None
    assert patterns.decision("vendor/a.c", folder=False) is None
    assert patterns.decision("x/keep.py", folder=False) is False
    assert patterns.decision("docs/a.md", folder=False) is True
    assert patterns.decision("x/docs/a.md", folder=False) is None
    assert not Patterns(["", "# a", "/", "foo\\", "   "])


def test_patterns_of_many_stars_or_endless_length_take_no_time():
    started = time.process_time()
    near = Patterns([f"{'*a' * 12}b", "a**" * 9 + "c", f"*{'?' * 120}*x*y", "*[ab]*[!c]*\\**.py"])
    assert near.decision("a" * 250, folder=False) is None
    assert near.decision(f"{'a' * 250}b", folder=False) is True
    assert near.decision("xaxbx*x.py", folder=False) is True
    assert not Patterns([f"x{' ' * 10**5}x", "a" * 10**6, "[" * 10**5, "\\" * 10**6])
    assert Patterns([f"x{' ' * 10**6}"]).decision("x", folder=False) is True
    assert [Patterns([f"x\\{' ' * n}"]).decision("x ", folder=False) for n in range(4)] == [None, True, True, True]
    assert time.process_time() - started < 2


def test_the_ways_to_a_pattern_are_the_folders_above_it():
    ways = ways_to(["third_party/*/src/", "vendor/", "!a/b", "deep/**/x"])
    found = {name for name in ("third_party", "third_party/x", "third_party/x/src", "vendor", "a", "deep", "deep/q/r")
             if ways.decision(name, folder=True)}  # fmt: skip
    assert found == {"third_party", "third_party/x", "deep", "deep/q/r"}


def test_of_thousands_of_patterns_only_those_are_tried_that_can_match_by_the_end_of_the_name():
    started = time.process_time()
    lines = [f"{kind}{n}{end}" for n in range(20_000) for kind, end in (("name", ""), ("/src/n", ".txt"), ("*.s", "/"))]
    patterns = Patterns([*lines, "!name7", "*[.]s1", "*.s2.gz", "nam*8"])
    names = ["x/name5", "name7", "src/n9.txt", "n9.txt", "x.s1", "x.s3", "x.s2.gz", "x.gz", "name8", "other"] * 20
    answers = [patterns.decision(name, folder=False) for name in names]
    assert answers == [True, False, True, None, True, None, True, None, True, None] * 20
    assert patterns.decision("a/x.s3", folder=True) is True
    assert time.process_time() - started < 2  # a second and more would go into each of the parsing and the asking

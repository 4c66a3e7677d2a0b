"""Folders of files: what is walked, what is left out and why, how bytes become text."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from retrieval.tree import Found, Skipped, TextFile, read_text, walk


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def listed(root):
    """Ids found, and reasons by path from the root."""
    found, skipped = [], {}
    for entry in walk(root):
        if isinstance(entry, Found):
            found.append(entry.doc_id)
            assert Path(entry.path).is_file()
        else:
            skipped[os.path.relpath(entry.path, root)] = entry.reason
    return found, skipped


def text_of(tmp_path, name, data):
    write(tmp_path, {name: data})
    return read_text(tmp_path / name)


def test_paths_come_in_order_of_their_code_points_with_slashes(tmp_path):
    names = ["b.py", "a/b.py", "a.txt", "a/B.py", "a-b/x.md", "a/ünï cödé.md", "a/c/d.go", "Z.rs", "Makefile"]
    write(tmp_path, dict.fromkeys(names, "x"))
    assert listed(tmp_path)[0] == sorted(names)


def test_what_is_no_document_is_left_out_with_a_reason(tmp_path):
    write(
        tmp_path,
        dict.fromkeys(
            [
                "keep.py",
                ".git/config",
                ".hidden.py",
                "sub/.github/x.md",
                "__pycache__/a.py",
                "node_modules/m/i.js",
                "env/pyvenv.cfg",
                "env/lib/x.py",
                "idx/manifest.json",
                "idx/segments/0/x.txt",
                "image.png",
                "rows.jsonl",
                "rows.csv.gz",
                "archive.tar",
            ],
            "x",
        ),
    )
    found, skipped = listed(tmp_path)
    assert found == ["keep.py"]
    assert skipped == {
        ".git": "hidden folder",
        ".hidden.py": "hidden file",
        "sub/.github": "hidden folder",
        "__pycache__": "folder of caches or dependencies",
        "node_modules": "folder of caches or dependencies",
        "env": "virtual environment",
        "idx": "index",
        "image.png": "not a text or source file",
        "archive.tar": "not a text or source file",
        "rows.jsonl": "data file (give it as a corpus itself)",
        "rows.csv.gz": "data file (give it as a corpus itself)",
    }


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
def test_links_are_not_followed_and_pipes_not_opened(tmp_path):
    root = tmp_path / "root"
    write(tmp_path, {"root/a.py": "x", "root/sub/b.py": "y", "outside/secret.py": "CANARY"})
    (root / "loop").symlink_to(".")
    (root / "sub/up").symlink_to("..")
    (root / "out").symlink_to("../outside")
    (root / "leak.py").symlink_to("../outside/secret.py")
    (root / "gone.py").symlink_to("missing.py")
    (root / "copy.py").symlink_to("a.py")
    os.mkfifo(root / "pipe.py")
    found, skipped = listed(root)
    assert found == ["a.py", "sub/b.py"]
    assert skipped.pop("pipe.py") == "not a regular file"
    assert set(skipped) == {"loop", "sub/up", "out", "leak.py", "gone.py", "copy.py"}
    assert set(skipped.values()) == {"symbolic link"}
    (tmp_path / "link").symlink_to("root")
    assert listed(tmp_path / "link")[0] == found  # the root itself is what the user named


@pytest.mark.skipif(sys.platform != "linux", reason="file names of arbitrary bytes")
def test_odd_file_names_are_left_out(tmp_path):
    (tmp_path / "good\u00a0name.md").write_text("x")
    for name in (b"new\nline.py", b"tab\t.py", b"bytes\xff.py", "sep\u2028.py".encode()):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("x")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/folder\xfe")).mkdir()
    found, skipped = listed(tmp_path)
    assert found == ["good\u00a0name.md"]
    assert len(skipped) == 5
    assert all(reason.startswith("file name with") for reason in skipped.values())


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_what_may_not_be_read_is_left_out(tmp_path):
    write(tmp_path, dict.fromkeys(["a.py", "secret.py", "closed/b.py"], "x"))
    (tmp_path / "secret.py").chmod(0)
    (tmp_path / "closed").chmod(0)
    tmp_path.chmod(0o755)
    # Root may read everything, so it becomes somebody else; the folders above are closed to others, so the
    # walk starts where the process stands.
    program = """if True:
    import os
    from retrieval.tree import Found, read_text, walk
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    for entry in walk("."):
        result = read_text(entry.path) if isinstance(entry, Found) else entry
        print(entry.path, getattr(result, "reason", "read"))
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    (tmp_path / "closed").chmod(0o755)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "./a.py read",
        "./closed permission denied",
        "./secret.py permission denied",
    ]


def test_a_folder_that_vanished_is_left_out(tmp_path):
    entries = list(walk(tmp_path / "gone"))
    assert entries == [Skipped(str(tmp_path / "gone"), "no such file or directory")]


TEXT = "# café\nprint('Größe')\n"


@pytest.mark.parametrize(
    ("name", "data", "encoding"),
    [
        ("a.py", TEXT.encode(), "utf-8"),
        ("a.py", b"\xef\xbb\xbf" + TEXT.encode(), "utf-8"),
        ("a.txt", TEXT.encode("utf-16"), "utf-16"),
        ("a.txt", b"\xfe\xff" + TEXT.encode("utf-16-be"), "utf-16"),
        ("a.txt", TEXT.encode("utf-32"), "utf-32"),
        ("a.c", TEXT.encode("cp1252"), "cp1252"),
        ("a.c", b"\x81" + TEXT.encode("latin-1"), "latin-1"),  # cp1252 has no 0x81
        ("Makefile", TEXT.encode(), "utf-8"),
    ],
)
def test_text_is_decoded_and_the_encoding_told(tmp_path, name, data, encoding):
    result = text_of(tmp_path, name, data)
    assert result.encoding == encoding
    assert result.text.removeprefix("\x81") == TEXT


def test_a_python_file_says_its_encoding_itself(tmp_path):
    source = "#!/usr/bin/python\n# -*- coding: koi8-r -*-\nx = 'привет'\n"
    assert text_of(tmp_path, "a.py", source.encode("koi8-r")) == TextFile(source, "koi8-r")
    for cookie in ("no-such-codec", "base64", "unicode_escape"):
        strange = f"# coding: {cookie}\nx = '\\ud800é'\n".encode()
        assert text_of(tmp_path, "a.py", strange) == TextFile(strange.decode(), "utf-8")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.py", b"import os\x00\x01\x02", "binary"),
        ("a.py", b"x = 1\n" * 5000 + b"\x00", "binary"),  # beyond the head
        ("a.txt", bytes(range(1, 32)) * 10, "binary"),
        ("a.txt", b"\xff\xfea", "binary"),  # half a UTF-16 character
        ("LICENSE", TEXT.encode("latin-1"), "no suffix, and not UTF-8 text"),
        ("a.py", b"", "empty"),
        ("a.md", b" \n\t\r\n\xef\xbb\xbf".strip(b"\xef\xbb\xbf"), "empty"),
        ("a.md", b"\xef\xbb\xbf\n", "empty"),
        ("app.js", b"var a=1;" * 2000, "minified"),
        ("a.ipynb", b"{not json", "broken notebook"),
        ("a.ipynb", b"[]", "broken notebook"),
        ("a.ipynb", b'{"cells": [3]}', "broken notebook"),
        ("a.ipynb", b'{"cells": [{"source": ["\\ud800"]}]}', "broken notebook"),
        ("a.ipynb", b'{"cells": [{"outputs": ["x"]}]}', "empty"),
    ],
)
def test_a_file_that_holds_no_text_is_left_out_with_a_reason(tmp_path, name, data, reason):
    assert text_of(tmp_path, name, data) == Skipped(str(tmp_path / name), reason)


def test_long_lines_are_minified_code_only_where_they_are_most_of_a_code_file(tmp_path):
    long_line = "word " * 2000
    assert isinstance(text_of(tmp_path, "book.txt", long_line), TextFile)
    assert isinstance(text_of(tmp_path, "README", long_line), TextFile)
    code = "".join(f"value_{n} = {n}\n" for n in range(1000)) + f"TABLE = '{long_line}'\n"
    assert isinstance(text_of(tmp_path, "table.py", code), TextFile)
    assert text_of(tmp_path, "table.js", f"{long_line}\n{long_line}").reason == "minified"


def test_a_notebook_is_its_source_cells(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {"cell_type": "code", "source": "x = 1", "outputs": [{"data": {"image/png": "iVBOR" * 3000}}]},
        {"cell_type": "code", "source": []},
    ]
    result = text_of(tmp_path, "a.ipynb", json.dumps({"nbformat": 4, "cells": cells}))
    assert result.text == "# Title\nwords\n\nx = 1"
    old = {
        "nbformat": 3,
        "worksheets": [{"cells": [{"cell_type": "code", "input": ["y = 2"], "outputs": []}]}],
    }
    assert text_of(tmp_path, "b.ipynb", json.dumps(old)).text == "y = 2"

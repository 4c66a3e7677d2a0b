"""Folders of files: what is walked, what is left out and why, how bytes become text."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval import tree as module
from retrieval.errors import ConfigError
from retrieval.extract import NO_PDF
from retrieval.tree import Found, Skipped, TextFile, Wishes, read_text, walk


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def listed(root, include=(), exclude=()):
    """Ids found, and reasons by path from the root."""
    found, skipped = [], {}
    for entry in walk(root, Wishes.of(include, exclude)):
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


VENDORED = ["third_party/x/a.c", "lib/_vendor/b.py", "pkg/externals/__init__.py", "vendor/golang.org/x.go"]


def test_what_others_wrote_or_a_build_made_is_left_out(tmp_path):
    marked = {
        "target/CACHEDIR.TAG": "", "target/debug/a.rs": "", "cmake/CMakeCache.txt": "", "cmake/a.c": "",
        "build/bdist.linux-x86_64/a.py": "", "build/lib/a.py": "", "conda/conda-meta/x.json": "", "conda/a.py": "",
        "java/maven-status/x.txt": "", "a.egg-info/SOURCES.txt": "", "b-1.0.dist-info/METADATA.txt": "",
        "ios/Pods/Manifest.lock": "", "ios/Pods/Target Support Files/a.txt": "",
    }  # fmt: skip
    write(tmp_path, {**dict.fromkeys(VENDORED, "x"), **marked, "vendor/modules.txt": "", "vendor/LICENSE": ""})
    assert listed(tmp_path) == (
        [],
        {
            "third_party": "vendored folder",
            "lib/_vendor": "vendored folder",
            "pkg/externals": "vendored folder",
            "vendor": "vendored folder",
            "ios/Pods": "vendored folder",
            "target": "folder of caches or dependencies",
            "cmake": "build output",
            "build": "build output",
            "java": "build output",
            "a.egg-info": "build output",
            "b-1.0.dist-info": "build output",
            "conda": "virtual environment",
        },
    )


def test_folders_that_only_have_such_a_name_are_kept(tmp_path):
    names = [
        "src/build/lib/a.py", "dist/a.py", "out/b.c", "target/a.go", "external/a.js", "deps/x.py", "packages/a/b.ts",
        "shop/vendor/models.py", "shop/vendor/tests/a.py", "com/shop/vendors/Vendor.java", "pods/a.go", "env/a.py",
        "CACHEDIR.TAG/a.md",
    ]  # fmt: skip
    write(tmp_path, dict.fromkeys(names, "x"))
    assert listed(tmp_path)[0] == sorted(names)


def test_what_a_build_tool_makes_beside_its_file_is_left_out_without_a_mark(tmp_path):
    built = {
        "rust/Cargo.toml": "rust/target/debug/a.rs", "java/pom.xml": "java/target/classes/a.txt",
        "js/package.json": "js/dist/bundle.js", "web/package.json": "web/Build/static/a.js",
        "py/pyproject.toml": "py/build/lib/a.py", "old/setup.py": "old/dist/a.txt", "c/CMakeLists.txt": "c/build/a.c",
        "kt/build.gradle.kts": "kt/build/reports/a.html", "docs/conf.py": "docs/_build/html/a.html",
        "mk/mkdocs.yml": "mk/site/index.html",
    }  # fmt: skip
    venvs = {"venv/bin/activate": "x", "venv/lib/a.py": "x", "win/env/Scripts/a.py": "x", "win/env/Lib/a.py": "x"}
    write(tmp_path, {**dict.fromkeys([*built, *built.values()], "x"), **venvs})
    found, skipped = listed(tmp_path)
    assert found == sorted(built)
    expected = {"/".join(out.split("/")[:2]): f"build output beside {Path(tool).name}" for tool, out in built.items()}
    assert skipped == {**expected, "venv": "virtual environment", "win/env": "virtual environment"}
    assert "js/dist/bundle.js" in listed(tmp_path, include=["dist/"])[0]
    assert listed(tmp_path / "js/dist")[0] == ["bundle.js"]  # the user named it


def test_a_folder_called_so_that_people_write_in_is_kept(tmp_path):
    names = [
        "package.json", "pyproject.toml", "build/guide.md", "build/x.js", "dist/notes.rst", "sub/dist/a.js",
        "sub/target/a.txt", "src/build/__init__.py", "src/setup.py", "go/Cargo.toml", "go/target/a.go", "site/a.html",
        "lib/venv/bin/a.py",
    ]  # fmt: skip
    write(tmp_path, dict.fromkeys(names, "x"))
    assert listed(tmp_path) == (sorted(names), {})


GENERATED = [
    ("a.go", "// Code generated by protoc-gen-go. DO NOT EDIT.\npackage a\n"),
    ("a.py", "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n# Generated by Django 4.2 on 2024-01-01\nx = 1\n"),
    ("a.py", '"""\nUser wrote this.\n"""\n# This file was auto-generated; do not edit by hand.\n'),
    ("a.ts", "/* eslint-disable */\n/**\n * @generated\n */\nexport {}\n"),
    ("a.h", "/* Automatically generated from types.def */\n"),
    ("a.c", "// The lexer tables has been generated by flex\n"),
    ("a.sql", "-- do not modify this file\n"),
    ("a.yaml", "# DO NOT MODIFY\n"),
    ("a.xml", "<!-- machine-generated -->\n"),
]


@pytest.mark.parametrize(("name", "text"), GENERATED)
def test_a_generated_file_says_so_in_a_comment_of_its_first_lines(tmp_path, name, text):
    assert module.text_of(tmp_path / name, text.encode()) == Skipped(str(tmp_path / name), "generated file")
    assert isinstance(module.text_of(tmp_path / name, text.encode(), wanted=True), TextFile)
    assert isinstance(module.text_of(tmp_path / name, b"\n" * 15 + text.encode()), TextFile)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "# Reads the tokens generated by the lexer.\n"),
        ("a.py", "# Handles auto-generated ids\n"),
        ("a.py", 'HEADER = "DO NOT EDIT"\n'),
        ("a.py", "# do not modify the list while it is read\n"),
        ("a.md", "<!-- generated by hand, do not edit this file -->\n"),
        ("a.rs", "//! A generator of generated code\n"),
    ],
)
def test_a_file_that_only_speaks_of_generating_is_kept(tmp_path, name, text):
    assert isinstance(module.text_of(tmp_path / name, text.encode()), TextFile)


def test_files_are_generated_or_minified_by_their_names_too(tmp_path):
    reasons = {
        "a_pb2.py": "generated file", "a_pb2_grpc.pyi": "generated file", "a.pb.go": "generated file",
        "a.generated.ts": "generated file", "m.g.dart": "generated file", "Form1.Designer.cs": "generated file",
        "app.min.js": "minified", "x-min.css": "minified", "package-lock.json": "lock file",
        "pnpm-lock.yaml": "lock file",
    }  # fmt: skip
    kept = ["admin.js", "generated.py", "min.js", "package.json", "pb2.py"]
    write(tmp_path, dict.fromkeys([*reasons, *kept], "x"))
    assert listed(tmp_path) == (kept, reasons)


def test_ignore_files_of_all_levels_are_honoured(tmp_path):
    write(
        tmp_path,
        {
            ".gitignore": "build/\n*.log.txt\n", "cap/.gitignore": "/deps/\n", "logs/.gitignore": "!keep.log.txt\n",
            **dict.fromkeys(["cap/deps/x.py", "core/deps/y.py", "core/lib/z.py", "build/out.py"], "x"),
            **dict.fromkeys(["logs/a.log.txt", "logs/keep.log.txt"], "x"),
        },
    )  # fmt: skip
    found, skipped = listed(tmp_path)
    assert found == ["core/deps/y.py", "core/lib/z.py", "logs/keep.log.txt"]
    ignored = sorted(name for name, reason in skipped.items() if reason == "ignored by .gitignore")
    assert ignored == ["build", "cap/deps", "logs/a.log.txt"]


def test_the_users_patterns(tmp_path):
    names = [
        "a.py", "docs/a.md", "docs/b.md", "third_party/mine/a.c", "third_party/mine/sub/b.c", "third_party/other/c.c",
        "gone/a.py", "gone/b.py", "node_modules/x/a.js", "node_modules/x/b.js", ".github/ci.yml", ".hidden/x.py",
        "app.min.js", "notes.log", "rows.csv",
    ]  # fmt: skip
    write(tmp_path, {**dict.fromkeys(names, "x"), ".gitignore": "gone/\n"})
    usual = ["a.py", "docs/a.md", "docs/b.md"]

    def more(*patterns):
        return [name for name in listed(tmp_path, include=patterns)[0] if name not in usual]

    assert listed(tmp_path)[0] == usual
    assert more("third_party/") == ["third_party/mine/a.c", "third_party/mine/sub/b.c", "third_party/other/c.c"]
    assert more("third_party/mine/") == ["third_party/mine/a.c", "third_party/mine/sub/b.c"]
    assert more("/third_party/*/sub/", "/gone/a.py") == ["gone/a.py", "third_party/mine/sub/b.c"]
    assert more("*.js") == ["app.min.js"]  # in a folder that is left out nothing is looked at
    assert more("node_modules/**/a.js") == ["node_modules/x/a.js"]
    assert more(".github/", "*.log", "*.csv") == [".github/ci.yml", "notes.log", "rows.csv"]
    assert more("third_party/", "!*.c") == []
    found, skipped = listed(tmp_path, include=["docs/", "third_party/mine/"], exclude=["docs/b.md", "sub/"])
    assert found == ["a.py", "docs/a.md", "third_party/mine/a.c"]
    assert skipped["docs/b.md"] == skipped["third_party/mine/sub"] == "--exclude"
    assert skipped["third_party/other"] == "vendored folder"
    assert listed(tmp_path, exclude=["*", "!*/", "!*.md"])[0] == ["docs/a.md", "docs/b.md"]
    for bad in ("", "# a", "/", "a\\"):
        with pytest.raises(ConfigError, match=r"--include .* is no pattern"):
            Wishes.of([bad], [])


def test_what_is_asked_for_may_still_be_a_link_or_binary(tmp_path):
    write(tmp_path, {"vendor/a.c": "x", "vendor/b.bin": b"\0\1", ".git/config": "x"})
    (tmp_path / "vendor/l.c").symlink_to("a.c")
    found, skipped = listed(tmp_path, include=["vendor/", ".git/", "*.bin"])
    assert found == ["vendor/a.c", "vendor/b.bin"]
    assert skipped == {"vendor/l.c": "symbolic link", ".git": "hidden folder"}
    assert read_text(tmp_path / "vendor/b.bin", wanted=True).reason == "binary"


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


def odd_names():
    parts = st.binary(min_size=1, max_size=40).filter(lambda name: not {0, ord("/")} & set(name))
    return parts.filter(lambda name: name not in (b".", b".."))


@pytest.mark.skipif(sys.platform != "linux", reason="file names of arbitrary bytes")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(odd_names(), st.sampled_from("fdlp"), st.integers(0, 5)), max_size=12))
def test_no_name_ends_the_walk_or_hides_its_neighbours(entries):
    with tempfile.TemporaryDirectory() as root:
        folders, made = [Path(root)], set()
        for name, kind, where in entries:
            path = folders[where % len(folders)] / os.fsdecode(name)
            if path in made:
                continue
            made.add(path)
            if kind == "d":
                path.mkdir()
                folders.append(path)
            elif kind == "l":
                path.symlink_to(path.name)
            elif kind == "p":
                os.mkfifo(path)
            else:
                path.write_bytes(name)
        for folder in folders:
            (folder / "usual.py").write_text("x = 1")
        seen = {Path(entry.path): entry for entry in walk(root)}
        closed = {path for path, entry in seen.items() if isinstance(entry, Skipped)}
        assert made <= {*seen, *folders} | {path for path in made if closed & set(path.parents)}
        for folder in folders:
            assert folder / "usual.py" in seen or closed & {folder, *folder.parents}
        for entry in seen.values():
            if isinstance(entry, Found):
                entry.doc_id.encode()
                read_text(entry.path)


@pytest.mark.skipif(sys.platform != "linux", reason="the longest path is the system's")
def test_a_path_of_any_length_hides_nothing_else(tmp_path):
    write(tmp_path, {"a.py": "x", "zz.py": "y"})
    here = os.open(tmp_path, os.O_RDONLY)
    name = "long" * 50
    for depth in range(30):  # 6,000 characters: deeper than a path can say
        os.close(os.open("at.py", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
        del depth
    os.close(here)
    try:
        found, skipped = listed(tmp_path)
    finally:
        subprocess.run(["rm", "-r", str(tmp_path / name)], check=True)
    assert found[0] == "a.py"
    assert found[-1] == "zz.py"
    assert len(found) == 2 + sum(len(str(tmp_path)) + depth * (len(name) + 1) + 7 < 4096 for depth in range(1, 30)) + 1
    assert set(skipped.values()) == {"file name too long"}


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
    for cookie in ("no-such-codec", "base64", "unicode_escape", "utf8", "UTF-8"):
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
        ("a.py", "\u200b\n\ufeff".encode(), "empty"),
        ("a.html", b"<p>&#8203;&shy;</p>", "empty"),
        ("a.ipynb", b'{"cells": [{"source": "\\u200b"}]}', "empty"),
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


def test_pages_and_pdf_files_become_their_text(tmp_path, monkeypatch):
    write(
        tmp_path, {"a.html": "<h1>Tides</h1>" + "<p>word</p>" * 1000, "b.htm": "<script>x</script>", "c.pdf": b"%PDF"}
    )
    assert listed(tmp_path)[0] == ["a.html", "b.htm", "c.pdf"]
    page = read_text(tmp_path / "a.html")  # one line, yet not minified code
    assert page.text.startswith("Tides\n\nword\n")
    assert [(unit.section, unit.kind) for unit in page.units] == [("Tides", "page")]
    assert read_text(tmp_path / "b.htm").reason == "empty"
    assert read_text(tmp_path / "c.pdf").reason in ("broken PDF", NO_PDF)
    monkeypatch.setattr("retrieval.extract.has_pdf", lambda: False)
    assert read_text(tmp_path / "c.pdf").reason == NO_PDF


def test_the_units_of_a_file_are_made_where_they_are_asked_for(tmp_path):
    data = b"# One\n\nx\n\n## Two\n\ny\n"
    assert module.text_of(tmp_path / "a.md", data).units is None
    units = module.text_of(tmp_path / "a.md", data, units=True).units
    assert [(unit.section, unit.kind) for unit in units] == [("One", "section"), ("One > Two", "section")]
    cells = json.dumps({"cells": [{"cell_type": "code", "source": "x = 1"}]}).encode()
    assert [unit.section for unit in module.text_of(tmp_path / "a.ipynb", cells).units] == ["cell 1"]

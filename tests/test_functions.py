"""Functions of Python files: what is found, how documentation is cut out, which are left out, which are equal."""

import argparse
import ast
import inspect
import textwrap
import typing
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.errors import DataError
from retrieval.eval.functions import python_functions

BODY = "    a = 1\n    b = 2\n    return a + b\n"


def only(text):
    (found,) = python_functions(text)
    assert not found.left_out, found.left_out
    return found


def code_of(text):
    return only(text).code


def test_functions_are_found_with_names_lines_and_decorators():
    text = (
        "import x\n\n\n@x.one\n@x.two(\n    3\n)\nasync def f():\n" + BODY + "\n"
        "class A:\n    class B:\n        def m(self):\n" + textwrap.indent(BODY, "        ") + "\n"
        "try:\n    import y\nexcept ImportError:\n    def g():\n" + textwrap.indent(BODY, "    ") + "else:\n"
        "    if x:\n        pass\n    elif y:\n        def h():\n" + textwrap.indent(BODY, "        ") + "\n"
        "match x:\n    case 1:\n        def i():\n" + textwrap.indent(BODY, "        ") + "\n"
        "def outer():\n    def inner():\n" + textwrap.indent(BODY, "    ") + "    return inner\n"
    )
    found = python_functions(text)
    assert [item.name for item in found] == ["f", "A.B.m", "g", "h", "i", "outer"]
    lines = text.split("\n")
    for item in found:
        expected = textwrap.dedent("\n".join(lines[item.start_line - 1 : item.end_line]))
        assert item.code == expected
    assert found[0].start_line == 4


REST = "    x = a\n    y = x\n    return y"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('def f(a):\n    """Doc."""\n' + REST, "def f(a):\n" + REST),
        ('def f(a):\n    """Doc\n\n    more.\n    """\n\n\n    # why\n' + REST, "def f(a):\n    # why\n" + REST),
        ('def f(a): "Doc."; x = a; y = x; return y\n', "def f(a): x = a; y = x; return y"),
        ('def f(a):\n    "Doc."; x = a\n    y = x; return y\n', "def f(a):\n    x = a\n    y = x; return y"),
        ('def f(a):\n    "Doc.";\n' + REST, "def f(a):\n" + REST),
        ('def f(a): \\\n    "Doc."; x = a; y = x; return y\n', "def f(a): \\\n    x = a; y = x; return y"),
        ('def f(a):\n    "Doc " \\\n    "goes on."\n' + REST, "def f(a):\n" + REST),
        ('def f(a):\n    ("Doc "\n     "goes on.")  # noqa: D400\n' + REST, "def f(a):\n" + REST),
        ('def f(a):\n    "Doc." \\\n\n' + REST, "def f(a):\n" + REST),
        ('def f(a):\n    """Doc."""\n    """More."""\n' + REST, "def f(a):\n" + REST),
        ('def f(é="ü"): """Döc ☃."""; ñ = "ß"; y = ñ; return y\n', 'def f(é="ü"): ñ = "ß"; y = ñ; return y'),
        (('def f(a):\n    """Doc\n    more."""\n' + REST).replace("\n", "\r\n"), "def f(a):\n" + REST),
        (('def f(a):\n    """Doc."""\n' + REST).replace("\n", "\r"), "def f(a):\n" + REST),
        (
            'class A:\n\tdef f(a):\n\t\t"""Doc."""\n\t\tx = a\n\t\ty = x\n\t\treturn y\n',
            "def f(a):\n\tx = a\n\ty = x\n\treturn y",
        ),
        (
            'x = 1\n\f\ndef f(a):\n    """Doc."""\n\f\n    x = a\n    y = "\x0c\u2028\x85"\n    return y\n',
            'def f(a):\n    x = a\n    y = "\x0c\u2028\x85"\n    return y',
        ),
        (
            'class A:\n    @ (d)\n    def f(a): "Doc."; x = a; y = x; return y\n',
            "@ (d)\ndef f(a): x = a; y = x; return y",
        ),
        ('\f@d\n\fdef f(a):\n    """Doc."""\n' + REST, "@d\n\fdef f(a):\n" + REST),
        (  # the strings of a method keep their lines as they are; comments and open brackets may stand further left
            'class A:\n    def f(a):\n        "Doc."\n        x = """\n  one\n        two"""\n# low\n'
            "        y = [\n  1]\n        return y\n",
            'def f(a):\n    x = """\n  one\n        two"""\n# low\n    y = [\n  1]\n    return y',
        ),
        (  # documentation of what lies inside goes as well; an empty body gets a `pass`
            'def f(a):\n    class E(Exception):\n        """Doc of E."""\n'
            '    def g():\n        """Doc of g."""\n        return 1\n'
            '    def h(): "Doc of h."\n    return E, g, h\n',
            "def f(a):\n    class E(Exception):\n        pass\n    def g():\n        return 1\n"
            "    def h(): pass\n    return E, g, h",
        ),
        (
            'def f(a):\n    """Doc."""\n    @a\n    def g():\n        return 1\n    return g, "Doc."\n',
            'def f(a):\n    @a\n    def g():\n        return 1\n    return g, "Doc."',
        ),
    ],
)
def test_documentation_is_cut_out_exactly(text, code):
    found = only(text)
    assert found.code == code
    assert not code.count("Döc")


def without_documentation(node):
    """The oracle: documentation taken out of the tree, not out of the text."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            while inner.body and ast.get_docstring(inner, clean=False) is not None:
                del inner.body[0]
                inner.body = inner.body or [ast.Pass()]
    return ast.dump(node)


def check_all(text):
    found = python_functions(text)
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name, node.end_lineno] = node
    for item in found:
        assert "layout" not in item.left_out
        if not item.left_out:
            (node,) = ast.parse(item.code).body
            original = names[item.name.rpartition(".")[2], item.end_line]
            assert item.documentation or not ast.get_docstring(original)
            assert ast.dump(node) == without_documentation(original)
    return found


@pytest.mark.parametrize("module", [argparse, inspect, typing, textwrap, ast])
def test_code_is_the_tree_without_documentation(module):
    found = check_all(Path(module.__file__).read_text(encoding="utf-8"))
    assert sum(not item.left_out for item in found) > 4


documentation = st.sampled_from(
    ['"""Doc é."""', "'Doc'", '"""Doc\n  x\n"""', "('Doc'\n'x')", '"D" \\\n "oc"', "r'''Doc\\d'''", "", '"";"b"']
)
separator = st.sampled_from(
    [";", " ; ", "; \\\n  ", " \\\n;", "\n", ";\n", " # é ; x\n", ";  # c \\\n", "\n\n# c\n\f\n", " \\\n\n"]
)
following = st.sampled_from(["a = '''\n    é\n'''", "b = f'{1}' \\\n  '\\\n  x'", "c = [\n1]", "d = 'ü'"])


@given(st.data(), st.sampled_from(["", "    ", "\t", "  \t"]), st.integers(0, 2), st.sampled_from(["\n", "\r\n", "\r"]))
@settings(max_examples=300, deadline=None)
def test_odd_layouts_are_cut_exactly(data, indent, depth, newline):
    inner = indent * depth + (indent or " ")
    text, doc = "", data.draw(documentation)
    parts = ([doc] if doc else []) + data.draw(st.lists(following, min_size=3, max_size=4))
    one_line = data.draw(st.booleans())
    for number, part in enumerate(parts):
        gap = data.draw(separator) if number < len(parts) - 1 else "\n"
        fresh = (not text and not one_line) or (text.endswith("\n") and not text.endswith("\\\n"))
        text += (inner if fresh else "") + part + gap
    head = "".join(f"{indent * level}class C{level}:\n" for level in range(depth if indent else 0))
    level = indent * depth if indent else ""
    text = (head + f"{level}@d\n{level}def f(é='é'):" + (" " if one_line else "\n") + text).replace("\n", newline)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError:
        return
    check_all(text)


def test_what_is_no_document_is_left_out_with_its_reason():
    def reason(text):
        return [item.left_out for item in python_functions(text)]

    assert reason('def f():\n    """Doc."""\n    a = 1\n    return a\n') == ["trivial: fewer than 3 statements"]
    assert reason("def f():\n    for a in b:\n        c\n        d\n") == [""]  # blocks count what they hold
    assert reason("def f():\n    def g():\n        'Doc.'\n    return g\n") == [
        ""
    ]  # a pass stands for the documentation
    assert reason("@typing.overload\ndef f():\n" + BODY) == ["overload: a signature without a body"]
    setter = "    @f.setter\n    def f(self, v):\n{}        a = 1\n        b = 2\n        c = 3\n"
    assert "setter" in reason("class A:\n" + setter.format(""))[0]
    assert reason("class A:\n" + setter.format("        'Sets f.'\n")) == [""]
    assert reason("def __repr__(s):\n" + BODY) == ["special method"]
    assert reason("def __init__(s):\n" + BODY + "def __call__(s):\n" + BODY) == ["", ""]
    assert reason("def test_x():\n" + BODY + "def testX():\n" + BODY + "def testing():\n" + BODY) == [
        "test function", "test function", "",
    ]  # fmt: skip
    assert all(not item.code for item in python_functions("def test_x():\n" + BODY))


@pytest.mark.parametrize(
    "text", ["def f(:\n", "print 'x'\n", "def f():\n\tif x:\n        y\n", "(" * 5000 + ")" * 5000]
)
def test_what_does_not_parse_is_an_error_of_one_line(text):
    with pytest.raises(DataError) as error:
        python_functions(text)
    assert "\n" not in str(error.value)


def test_warnings_about_the_code_stay_inside():
    assert code_of('def f():\n    a = "\\d"\n    b = a is 1\n    return b\n')  # warnings are errors in these tests


def test_expressions_and_chains_may_be_long():
    long = "def f():\n    a = 1\n    b = 2\n    return " + " + ".join(["'x'"] * 300) + "\n"
    assert code_of(long)
    chain = "if x == 0:\n    pass\n" + "".join(
        f"elif x == {n}:\n    def f{n}():\n        {n}; 2; 3\n" for n in range(60)
    )
    assert len(python_functions(chain)) == 60
    assert code_of(f"def f():\n    a = 0x{'f' * 5000}\n    b = a\n    return b\n")  # more digits than decimals may have


def test_equal_functions_have_equal_fingerprints():
    first = only('def f(a):\n    """One."""\n    x = a\n    # why\n    y = x\n    return "s"\n')
    second = only("def f( a ):\n    'Two.'\n    x = (a)\n\n    y = x\n    return 's'\n")
    assert first.fingerprint == second.fingerprint
    others = [first.fingerprint]
    for head, body in (
        ("def g(a)", "x = a\n    y = x\n    return 's'\n"),
        ("async def f(a)", "x = a\n    y = x\n    return 's'\n"),
        ("def f(a, /)", "x = a\n    y = x\n    return 's'\n"),
        ("def f(a, *, b=1)", "x = a\n    y = x\n    return 's'\n"),
        ("def f(a, *, b=True)", "x = a\n    y = x\n    return 's'\n"),
        ("def f(a)", "x = a\n    y = x\n    return 't'\n"),
        ("def f(a)", "x = a\n    y = x\n    return b's'\n"),
        ("def f(a)", "x = y = a\n    y\n    return 's'\n"),
        ("def f(a)", "if x:\n        x = a\n        y = x\n    return 's'\n"),
        ("def f(a)", "if x:\n        x = a\n    y = x\n    return 's'\n"),
    ):
        others.append(only(f"{head}:\n    {body}").fingerprint)
    assert len(set(others)) == len(others)
    nested = [only(f"def f():\n    if a:\n        b; c\n{indent}d\n").fingerprint for indent in ("    ", "        ")]
    assert nested[0] != nested[1]


@pytest.mark.parametrize(
    ("above", "documentation"),
    [
        ("# Adds two numbers\n# and returns them.\n", "Adds two numbers\nand returns them."),
        ("#: Adds two numbers.\n", "Adds two numbers."),
        ("# Adds two numbers.\n#\n# And more.\n", "Adds two numbers.\n\nAnd more."),
        ("# Adds two numbers.\n\n", ""),  # a blank line: it belongs to no function
        ("  # Adds two numbers.\n", ""),  # of another block
        ("x = 1  # Adds two numbers.\n", ""),
        ("x = '''\n# Adds two numbers.'''\n", ""),
        ("# ------\n# Arithmetics of all kinds\n# ------\n", ""),
        ("# --- Arithmetics of all kinds ---\n", ""),
        ("######## Arithmetics ########\n# Adds two numbers.\n", "Adds two numbers."),
        ("#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n# Adds two numbers.\n", "Adds two numbers."),
        ("# Adds two numbers.\n# type: ignore\n# noqa: D103\n# pylint: disable=all\n", "Adds two numbers."),
        ("# Copyright 2020 by somebody\n# All rights reserved.\n", ""),
        ("# Licensed under the terms of Somebody\n", ""),
        ("# x = compute(y)\n# return x\n", ""),
        ("# for x in y:\n#     try:\n#         z(x)\n#     except E: pass\n", ""),
        ("# z(\n#     a,\n#     b,\n# )\n", ""),
        ("# Note that numpy adds otherwise: see the bug\n", ""),
        ("# torch doesn't add two numbers of other types\n", ""),
        ("# Adapted from the adder of scipy\n", ""),
        ("# Adds two numbers, see https://example.org/adds\n", ""),
        ("# error: Incompatible return value type\n", ""),
        ("# Note: words are no statement\n", ""),
        ("# Words: are no statement\n", "Words: are no statement"),
    ],
)
def test_the_comment_above_documents_what_has_no_docstring(above, documentation):
    found = only(above + "@d\ndef f():\n" + BODY)
    assert found.documentation == documentation
    assert found.code == "@d\ndef f():\n" + BODY.rstrip()
    assert found.start_line == above.count("\n") + 1
    assert only(above + "def f():\n    'Doc.'\n" + BODY).documentation == "Doc."
    method = only(textwrap.indent(f"\n{above}def f():\n{BODY}", "    ").replace("\n", "class A:\n", 1))
    assert "'''" in above or method.documentation == documentation

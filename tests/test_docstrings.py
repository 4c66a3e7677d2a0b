import ast
import inspect
import warnings
from pathlib import Path

import pytest

from retrieval.eval.docstrings import find_docstring, read_docstring, without_docstring


def test_a_docstring_is_cut_out_and_nothing_else():
    code = 'def f(a):\n    """One.\n\n    Two.\n    """\n    # One. Two.\n    return """One."""\n'
    assert without_docstring(code) == 'def f(a):\n    # One. Two.\n    return """One."""\n'
    assert read_docstring(code) == "One.\n\nTwo."


@pytest.mark.parametrize(
    ("code", "doc", "rest"),
    [
        ("def f(a='):', *, b={1: 2}) -> d[1:2]:\n  'x'\n  y", "x", "def f(a='):', *, b={1: 2}) -> d[1:2]:\n  y"),
        ("async def f():\n    r'''\\d x'''\n    y", "\\d x", "async def f():\n    y"),
        ("@a(b=':')\ndef f(): 'x'; y()", "x", "@a(b=':')\ndef f(): y()"),
        ("def f():\n    # before\n\n    'a' \"b\"\n    y", "ab", "def f():\n    # before\n\n    y"),
        ("    def f(self):\n        u'x \\'y\\''\n        y", "x 'y'", "    def f(self):\n        y"),
        ('def f():\n    """says ""hi"" \\""" and goes"""\n    y', 'says ""hi"" """ and goes', "def f():\n    y"),
        ("def f():\r\n    'x'\r\n    y\r\n", "x", "def f():\r\n    y\r\n"),
        ("def f():\n    'x'", "x", "def f():\n"),
        ("def f():\n    'x'  # why\n    y", "x", "def f():\n    # why\n    y"),
        ("def f(a, (b, c)):\n    'x'\n    print b, `c`, 0777\n  exec 'd'", "x", None),
        ("def f():\n    'a %s' % b\n    y", "", None),
        ("def f():\n    b'x'\n    f'y'", "", None),
        ("def f():\n    y\n    'x'", "", None),
        ("x = 1", "", None),
    ],
)
def test_docstrings_in_every_dress(code, doc, rest):
    assert read_docstring(code) == doc
    if rest is None:
        rest = code.replace("    'x'\n", "") if doc else code
    assert without_docstring(code) == rest


def test_a_docstring_is_found_by_the_name_of_its_function():
    code = "def f():\n    'of f'\n    return 1\n\n\ndef g():\n    'of g'\n"
    assert read_docstring(code, "g") == "of g"
    assert without_docstring(code, "g") == "def f():\n    'of f'\n    return 1\n\n\ndef g():\n"
    assert find_docstring(code, "h") is None


def test_a_docstring_that_never_ends_is_told():
    with pytest.raises(ValueError, match="docstring cannot be found"):
        without_docstring('def f():\n    """never ends\n    return 1')


def test_docstrings_of_the_standard_library_are_those_that_python_sees():
    checked = 0
    for module in ("argparse", "ast", "inspect", "textwrap", "typing", "zipfile"):
        source = Path(inspect.getsourcefile(__import__(module))).read_text(encoding="utf-8")
        lines = source.split("\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or len(node.body) < 2:
                continue
            code = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            assert read_docstring(code) == (ast.get_docstring(node) or "")
            cut = ast.parse(f"if 1:\n{without_docstring(code)}" if node.col_offset else without_docstring(code))
            bare = cut.body[0].body[0] if node.col_offset else cut.body[0]
            expected = node.body[1:] if ast.get_docstring(node) is not None else node.body
            assert [ast.dump(line) for line in bare.body] == [ast.dump(line) for line in expected]
            checked += 1
    assert checked > 400

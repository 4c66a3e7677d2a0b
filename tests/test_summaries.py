"""Summaries: what of a documentation becomes a query, and what cannot be one."""

import pytest

from retrieval.eval.summaries import MAX_WORDS, MIN_WORDS, summary

LONG = " ".join(["word"] * MAX_WORDS)


@pytest.mark.parametrize(
    ("documentation", "text"),
    [
        ("Add two numbers.", "Add two numbers."),
        ("\n  Add two\n  numbers\tand\n  more.\n\n  Not this.", "Add two numbers and more."),
        ("Add two numbers.\n:param a: one\n:returns: sum", "Add two numbers."),
        ("Add two numbers.\n@param a one", "Add two numbers."),
        ("Add two numbers.\n>>> add(1, 2)\n3", "Add two numbers."),
        ("Add two numbers.\nArgs:\n    a: one", "Add two numbers."),
        ("Add two numbers.\nParameters\n----------\na : int", "Add two numbers."),
        ("Add two numbers.\nreturns a number, always", "Add two numbers. returns a number, always"),
        ("Add two numbers.\n.. deprecated:: 1.0", "Add two numbers."),
        (".. versionadded:: 1.0\n   In haste.\n\nAdd two numbers.", "Add two numbers."),
        ("Add two numbers:\n- a\n- b", "Add two numbers:"),
        ("Add two numbers:\n1. a\n2. b", "Add two numbers:"),
        ("Add two numbers\n===============\n\nMore.", "Add two numbers"),
        ("add(a, b=None) -> int\n\nAdd two numbers.", "Add two numbers."),
        ("Add two numbers (of any kind)", "Add two numbers (of any kind)"),
        ("Add :class:`~pkg.mod.Number` to :func:`pkg.f` in ``x`` and **y**.", "Add Number to pkg.f in x and y."),
        ("Add :class:`a number <pkg.Number>` to `this thing <https://example.org>`_.", "Add a number to this thing."),
        ("Internal -- add two numbers.", "add two numbers."),
        (f"Add two numbers. {LONG.capitalize()}", "Add two numbers."),
        ("计算两个数字的总和", "计算两个数字的总和"),
        ("Löse für ß", "Löse für ß"),
        ("Deprecate a function with a warning.", "Deprecate a function with a warning."),
        ("Seed of the generator.", "Seed of the generator."),
    ],
)
def test_the_first_paragraph_without_markup_is_the_summary(documentation, text):
    found = summary(documentation)
    assert (found.text, found.unusable) == (text, "")


@pytest.mark.parametrize(
    ("documentation", "reason"),
    [
        ("", "no prose"),
        ("Parameters\n----------\na : int", "no prose"),
        ("Args:\n    a: one", "no prose"),
        (":param a: one two three", "no prose"),
        ("a : int or None, one of them\nb : int", "no prose"),
        (">>> add(1, 2)\n3", "no prose"),
        ("Add numbers.", f"fewer than {MIN_WORDS} words"),
        ("Add 1 + 2 == 3.", f"fewer than {MIN_WORDS} words"),
        (f"Add {LONG}.", f"more than {MAX_WORDS} words"),
        ("Return %(klass)s with two numbers.", "template"),
        ("{name} of the two numbers.", "template"),
        ("See the base class for all.", "says nothing"),
        ("See :meth:`Base.add` of old.", "says nothing"),
        ("Same as add, but faster.", "says nothing"),
        ("Deprecated since the last release.", "says nothing"),
        ("This function is deprecated since long.", "says nothing"),
        ("TODO: write some words here.", "says nothing"),
        ("Note: only for arrays of numbers.", "says nothing"),
        ("For internal use only.", "says nothing"),
        ("Alias of another function.", "says nothing"),
        ("A simple helper function.", "says nothing"),
        ("Initialize self. See help(type(self)) for accurate signature.", "says nothing"),
    ],
)
def test_what_is_no_query_says_why(documentation, reason):
    assert summary(documentation).unusable.startswith(reason)

"""Headings of several markups, and what only looks like one."""

import pytest

from retrieval.headings import sections, spans

MARKDOWN = """---
title: unseen
---
Before all.

# Rotating the logs

Why we do it.
## By hand #
Call it.

```sh

# not a heading
```
### Deep
[x]: y
"""

RST = """
======
Tables
======

A table has rows.

.. _of-rows:

Of the rows
-----------
Rows are many.

Of the cells
------------

Parts
^^^^^
A cell has none.

Columns
-------
"""


def outline(text, **how):
    return [(found.level, found.heading, found.text) for found in sections(text, **how)]


def test_markdown():
    assert outline(MARKDOWN, markdown=True) == [
        (0, "", "Before all."),
        (1, "Rotating the logs", "Why we do it."),
        (2, "By hand", "Call it.\n\n```sh\n\n# not a heading\n```"),
        (3, "Deep", "[x]: y"),
    ]
    # of a text that may be anything, a comment in a script
    assert [heading for _, heading, _ in outline(MARKDOWN)] == ["", "Rotating the logs"]


def test_restructuredtext():
    assert outline(RST) == [
        (0, "", ""),
        (1, "Tables", "A table has rows."),
        (2, "Of the rows", "Rows are many."),
        (2, "Of the cells", ""),
        (3, "Parts", "A cell has none."),
        (2, "Columns", ""),
    ]


def test_other_markups_and_line_ends():
    assert outline("== Tides ==\r\nThey come.\r\n\r\n=== Ebb ===\r\nThey go.") == [
        (0, "", ""),
        (2, "Tides", "They come."),
        (3, "Ebb", "They go."),
    ]
    assert outline("A\n\n2.1 Of the moon\n\nIt pulls.\n\nSEE ALSO\n\nThe sun.") == [
        (0, "", "A"),
        (2, "Of the moon", "It pulls."),
        (50, "SEE ALSO", "The sun."),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no heading\n# in the middle of a paragraph",
        "#hashtag and ##more",
        "    # indented code\n\n    Title\n    =====",
        "a longer line than its rule\n---",
        "=====  =====\nA      B\n=====  =====",
        "-----\n\ntext\n\n-----",
        "1. a list\n\n2. of two\n\nUSA?\n\nA",
        "~~~\n\n# fenced\n\nfenced\n------\n~~~\n",
        "````\n```\n\n# still fenced\n",
        "2.1 is what it costs to send a letter, they said.\n\n",
    ],
)
def test_no_heading(text):
    assert [found.heading for found in sections(text)] == [""]
    assert sections(text)[0].text == text.strip()


@pytest.mark.parametrize("markdown", [True, False])
@pytest.mark.parametrize("text", [MARKDOWN, MARKDOWN.replace("\n", "\r\n"), RST, "", "# a", "# a\n", "a\n\n# b\n"])
def test_spans_are_the_sections_with_their_places(text, markdown):
    found = spans(text, markdown=markdown)
    assert [found[0].start, *(span.end for span in found)] == [*(span.start for span in found), len(text)]
    assert all(span.start <= span.body <= span.end for span in found)
    expected = sections(text, markdown=markdown)
    assert [span.level for span in found] == [section.level for section in expected]
    assert ["".join(span.path[-1:]) for span in found] == [section.heading for section in expected]
    for span, section in zip(found[1:], expected[1:], strict=True):
        assert section.heading in text[span.start : span.body]
        assert "".join(text[span.body : span.end].split()).startswith("".join(section.text.split()))


def test_the_path_of_a_span():
    assert [span.path for span in spans(RST)] == [
        (),
        ("Tables",),
        ("Tables", "Of the rows"),
        ("Tables", "Of the cells"),
        ("Tables", "Of the cells", "Parts"),
        ("Tables", "Columns"),
    ]

"""From files to texts and units: what each unit is called and that none of the text is lost."""

import importlib.util
import io
import json
import time

import pytest

from retrieval.extract import NO_PDF, NoText, decoded, has_pdf, html, notebook, own_units, pdf

needs_pdf = pytest.mark.skipif(not has_pdf(), reason="pypdf is not installed")


def shown(found):
    """Section and text of each unit of something extracted."""
    return [(unit.section, found.text[unit.start : unit.end]) for unit in found.units]


def sections(name, text):
    units = own_units(name, text)
    assert [units[0].start, *(unit.end for unit in units)] == [*(unit.start for unit in units), len(text)]
    return [(unit.kind, unit.section, text[unit.start : unit.end]) for unit in units]


# Prose


def test_markdown_by_heading_with_the_path_of_headings():
    text = "---\nlang: en\n---\nBefore.\n\n# Guide\n\n## Install\n\nRun it.\n### Linux\napt\n## Use\n\n## Last\nx"
    assert sections("a.md", text) == [
        ("section", "", "Before.\n\n"),
        ("section", "Guide > Install", "# Guide\n\n## Install\n\nRun it.\n"),  # a title with nothing under it
        ("section", "Guide > Install > Linux", "### Linux\napt\n"),
        ("section", "Guide > Use", "## Use\n\n"),
        ("section", "Guide > Last", "## Last\nx"),
    ]


HEAD = """---
title: "The moon's \\"pull\\""  # of Hugo
nested:
  title: not this
tags: [a, b]
description: >-
  Why the sea
  comes and goes.
---
"""
DESCRIPTION = ("section", 'The moon\'s "pull"', ">-\n  Why the sea\n  comes and goes.")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_title_of_front_matter_stands_above_all_headings_and_its_description_is_a_unit(end):
    text = f"{HEAD}\n## Ebb\n\nIt goes.\n\n# Flood\n\nIt comes.\n".replace("\n", end)
    title = DESCRIPTION[1]
    found = [(unit.section, text[unit.start : unit.end].strip()) for unit in own_units("a.md", text)]
    assert found == [
        (title, DESCRIPTION[2].replace("\n", end)),
        (f"{title} > Ebb", f"## Ebb{end}{end}It goes."),
        (f"{title} > Flood", f"# Flood{end}{end}It comes."),
    ]


def unit_texts(name, text):
    return [(unit.section, text[unit.start : unit.end].strip()) for unit in own_units(name, text)]


def test_front_matter_of_yaml_and_toml_is_no_prose():
    toml = '+++\ntitle = "Spring"\ndescription = """\nHigh\nwater"""\n[more]\ntitle = "x"\n+++\n'
    assert unit_texts("a.md", f"{toml}Text.") == [("Spring", '"""\nHigh\nwater"""'), ("Spring", "Text.")]
    assert unit_texts("a.md", "---\ntitle: spring\n---\n# Spring\nText.") == [("Spring", "# Spring\nText.")]
    assert unit_texts("a.md", "---\nog:url: x\n# a remark\nlang:\n- en\n---\nText.") == [("", "Text.")]
    for nothing in ("'{{ page }}'", "# TODO", "~", "null", "*alias", "[broken"):
        assert unit_texts("a.md", f"---\ntitle: {nothing}\n...\nText.") == [("", "Text.")]
    assert unit_texts("a.md", "---\ntitle: Alone\n---\n") == [("", "---\ntitle: Alone\n---")]  # nothing else to find


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "---\n\nAs they say: no head.\nMore prose\n\n---\n\nText."),
        ("a.md", "---\ntitle: never ended\n"),
        ("a.md", " ---\ntitle: not at the beginning\n---\n"),
        ("a.txt", "---\ntitle: of another kind\n---\nText."),
    ],
)
def test_what_only_looks_like_front_matter_is_text(name, text):
    assert sections(name, text) == [("text", "", text)]


def test_restructuredtext_asciidoc_and_files_without_a_suffix():
    text = "Tables\n======\r\n\r\nMany.\n\nRows\n----\nFew.\n"
    rows = text.index("Rows")
    expected = [("section", "Tables", text[:rows]), ("section", "Tables > Rows", text[rows:])]
    assert sections("a.rst", text) == expected
    assert sections("README", text) == expected
    assert sections("a.adoc", "= A\n\nx\n\n== B\n\ny") == [
        ("section", "A", "= A\n\nx\n\n"),
        ("section", "A > B", "== B\n\ny"),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "no heading\n"),
        ("a.txt", "\n\nplain\n"),
        ("Makefile", "# a comment\n\nall:\n"),
        ("CMakeLists.txt", "# a comment\n\nproject(x)\n"),
        ("dev-requirements.txt", "# for tests\n\npytest\n"),
        ("a.ini", "# a comment\n\n[x]\n"),
    ],
)
def test_what_has_no_headings_is_one_unit(name, text):
    assert sections(name, text) == [("text", "", text)]


# Notebooks


def cell(kind, source, **more):
    return {"cell_type": kind, "source": source, **more}


def test_a_notebook_by_cell_under_its_headings():
    cells = [
        cell("code", "import x"),
        cell("markdown", ["# Study\n", "\n", "Why.\n", "\n", "## Data\n", "\n", "Where."]),
        cell("code", ["load()\n", "show()"], outputs=[{"data": {"image/png": "iVBOR" * 100}}]),
        cell("code", []),
        cell("markdown", "Prose without a heading"),
        cell("markdown", "## Fit\n"),
        cell("raw", "# no heading"),
        cell("markdown", "# End"),
    ]
    assert shown(notebook(json.dumps({"nbformat": 4, "cells": cells}))) == [
        ("cell 1", "import x"),
        ("Study > cell 2", "# Study\n\nWhy.\n\n## Data\n\nWhere."),
        ("Study > Data > cell 3", "load()\nshow()"),
        ("Study > Data > cell 5", "Prose without a heading"),
        ("Study > Fit > cell 6", "## Fit\n"),
        ("Study > Fit > cell 7", "# no heading"),
        ("End > cell 8", "# End"),
    ]


def test_a_notebook_of_format_3():
    old = {"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["y = 2"], "outputs": []}]}]}
    assert shown(notebook(json.dumps(old))) == [("cell 1", "y = 2")]


@pytest.mark.parametrize(
    "text",
    [
        "{not json",
        "[]",
        "3",
        "[" * 100_000,
        '{"cells": 3}',
        '{"cells": [3]}',
        '{"cells": [{"source": [3]}]}',
        '{"cells": [{"source": ["\\ud800"]}]}',
        '{"cells": [{"source": "x"}, []]}',
    ],
)
def test_a_broken_notebook(text):
    with pytest.raises(NoText, match="broken notebook"):
        notebook(text)


# HTML

PAGE = """<!DOCTYPE html><html><head><title>Tides  of
the sea</title><style>p {color: red}</style><script>if (a < b) {}</script></head><body>
<nav><a href="/">Home</a></nav><!-- unseen -->
<p>An <b>intro</b>duction,<br>two&nbsp;lines &amp; more
wrapped.</p>
<h1>Guide<a class="headerlink" href="#g">¶</a></h1><h2>Ebb</h2><div>One</div>two
<pre>
def ebb():
    return "&lt;low&gt;"
</pre><ul><li>a<li>b</ul>
<table><tr><td>r1</td><td>c2</td></tr><tr><td>r2</td></tr></table>
<h2> </h2><h2>Flood</h2><p>Last.
"""


def test_html_by_heading_without_what_is_no_text():
    assert shown(html(PAGE)) == [
        ("Tides of the sea", "Tides of the sea\n\nAn introduction,\ntwo\xa0lines & more wrapped."),
        ("Guide", "Guide"),
        ("Guide > Ebb", 'Ebb\n\nOne\ntwo\n\ndef ebb():\n    return "<low>"\n\na\nb\n\nr1 c2\n\nr2'),
        ("Guide > Flood", "Flood\n\nLast."),
    ]


def test_a_page_without_a_heading_of_the_first_level_is_called_by_its_title():
    page = "<title>Tides\n of the sea</title><p>All.</p><h2>Ebb</h2><p>It goes.</p>"
    called = [unit.section for unit in html(page).units]
    assert called == ["Tides of the sea", "Tides of the sea > Ebb"]
    front = f"---\ntitle: Moon\nlayout: none\n---\n{page}"
    assert shown(html(front))[1] == ("Moon > Ebb", "Ebb\n\nIt goes.") and "layout" not in html(front).text
    assert [unit.section for unit in html("<title>{{ title }}</title><p>x").units] == [""]
    assert [unit.section for unit in html("<svg><title>drawing</title></svg><p>x").units] == [""]


@pytest.mark.parametrize(
    "text", ["", "<", "<![", "<!DOCTYPE", "a.txt", "http://x.y/z", "<?xml version='1.0'?><p>", "<style><h1>", "<!--"]
)
def test_odd_html_is_no_error_and_no_warning(text):
    found = html(text)
    assert [unit.end - unit.start for unit in found.units] == [len(found.text)] * len(found.units)


@pytest.mark.parametrize("marked", ["<![a]>", "<![%foo;[x]]>", "<![ foo", "<![if]><![a", "<![&a]>"])
def test_a_marked_section_that_html_does_not_have_costs_no_text(marked):
    found = html(f"<h1>Tides</h1><p>Spring.</p>{marked}<p>Neap.</p><![CDATA[Slack.]]>")
    assert [word in found.text for word in ("Tides", "Spring.", "Neap.", "Slack.")] == [True] * 4


def test_html_of_any_depth_takes_no_time():
    started = time.process_time()
    assert html("<div>" * 20_000 + "deep").text == "deep"
    assert html("<h1>" * 20_000).text == ""
    assert time.process_time() - started < 10


def test_html_says_its_encoding_in_its_head():
    data = '<html><head><meta charset="koi8-r"></head>привет'.encode("koi8-r")
    assert decoded(data, ".html").encoding == "koi8-r"
    assert "привет" in decoded(data, ".html").text
    assert decoded('<meta charset="koi8-r">é'.encode(), ".html").encoding == "utf-8"  # what it is wins
    assert decoded(b'<meta charset="no-such-thing">\xe9', ".htm").encoding == "cp1252"


# PDF


def pdf_of(*pages, password=None):
    """A PDF file with a line of text on each page, drawn in a standard font."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    kind = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = writer._add_object(DictionaryObject({NameObject(k): NameObject(v) for k, v in kind.items()}))
    for text in pages:
        page = writer.add_blank_page(200, 200)
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    if password is not None:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


@needs_pdf
def test_a_pdf_by_page():
    found = pdf(pdf_of("Neap tides", "", "Spring tides"))
    assert shown(found) == [("page 1", "Neap tides"), ("page 3", "Spring tides")]
    assert {unit.kind for unit in found.units} == {"page"}
    assert shown(pdf(pdf_of("open", password=""))) == [("page 1", "open")]  # locked without a password


@needs_pdf
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lambda: pdf_of("secret", password="x"), "encrypted PDF"),
        (lambda: pdf_of(""), "PDF without text"),
        (lambda: b"", "broken PDF"),
        (lambda: b"%PDF-1.7\nnothing", "broken PDF"),
        (lambda: pdf_of("text")[:300], "broken PDF"),
    ],
)
def test_a_pdf_that_cannot_be_read_says_why(data, reason, capfd):
    with pytest.raises(NoText) as error:
        pdf(data())
    assert str(error.value) == reason
    assert capfd.readouterr().err == ""


def test_without_the_library_a_pdf_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoText) as error:
        pdf(b"%PDF-1.7")
    assert str(error.value) == NO_PDF == 'PDF (pip install "retrieve-rerank[pdf]")'

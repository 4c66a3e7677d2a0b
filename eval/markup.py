"""Users' text and numbers as HTML, SVG and Markdown may show them."""

from __future__ import annotations

import html
import re
import unicodedata

MISSING = "–"
_BLANKS = re.compile("[\t\n\v\f\r\x85\u2028\u2029]+")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # neither XML nor UTF-8 holds all of these
_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")  # would reorder the text of the page around them
_MARKDOWN = re.compile(r"[\\`*_\[\]|~$]")


def clean(text: str) -> str:
    """Return text on one line, with a replacement character for all that a page cannot hold."""
    return _UNPRINTABLE.sub("\ufffd", _DIRECTIONS.sub("", _BLANKS.sub(" ", text)))


def cut(text: str, limit: int) -> str:
    """Return at most `limit` half-width characters of the text; an ellipsis says that there was more."""
    if len(text) * 2 <= limit:
        return text
    used = 0
    for at, character in enumerate(text):
        used += columns(character)
        if used > limit:
            kept = text[:at]
            while columns(kept) >= limit:
                kept = kept[:-1]
            return kept.rstrip() + "…"
    return text


def html_text(text: str) -> str:
    """Return text as element content or as a quoted attribute of HTML and SVG."""
    return html.escape(clean(text))


def markdown_text(text: str) -> str:
    """Return text that GitHub's Markdown shows as it is, in a table's cell too."""
    return _MARKDOWN.sub(r"\\\g<0>", clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def columns(text: str) -> int:
    """Return the width of a text in half-width characters."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def fixed(value: float, digits: int = 4) -> str:
    """Return a number with as many decimals, never as -0."""
    text = f"{value:.{digits}f}"
    return (text[1:] if float(text) == 0 and text[0] == "-" else text).replace("-", "−")


def signed(value: float, digits: int = 4) -> str:
    """Return a difference, with its sign unless it rounds to zero."""
    text = fixed(value, digits)
    return "+" + text if value > 0 and float(text) else text


def probability(value: float) -> str:
    """Return a p value."""
    return "<0.0001" if 0 <= value < 0.00005 else fixed(value)


def milliseconds(seconds: float) -> str:
    """Return seconds in milliseconds, with three significant digits below a thousand."""
    value = seconds * 1000
    return f"{value:,.0f}" if value >= 99.95 else fixed(value, 1 if value >= 9.995 else 2)

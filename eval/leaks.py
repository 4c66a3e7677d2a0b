"""Whether a query stands in the document that it should find: then the search for it says nothing."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")


def occurs(query: str, text: str) -> bool:
    """Tell whether the words of a query stand in a text one after the other, whatever is between them."""
    words = key(query)
    return bool(words.strip()) and words in key(text)


def key(text: str) -> str:
    """Return the words of a text: equal whatever its case, blanks, underscores, comment signs and punctuation."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "

"""Numbers with the words for what they count, for people."""

from __future__ import annotations


def many(count: int, one: str, several: str = "") -> str:
    """Return a count with the words for one or for several: `1 query`, `1,234 queries`.

    Args:
        count: How many.
        one: What one is called.
        several: What several are called; "": as `one`, with the plural's ending.
    """
    if not several:
        several = f"{one[:-1]}ies" if one.endswith("y") else f"{one}s"
    return f"{count:,} {one if count == 1 else several}"

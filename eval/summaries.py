"""Summaries: the sentence or two of a function's documentation that could be a query for it.

For new benchmarks, which may leave functions out; the queries of published ones are fixed, see `documented`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from retrieval.lines import is_encodable

MIN_WORDS = 3
MAX_WORDS = 60
_LOOKED_AT = 4_000  # characters of a documentation; far more than a query of MAX_WORDS takes

# Two characters of a script without blanks count as a word.
_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]{1,2}|[^\W\d_]+")
_SECTION = re.compile(
    r"(?:\*\*)?(?:args?|arguments?|attributes?|authors?|examples?|inputs?|keywords?|methods?|notes?|other|outputs?|"
    r"param(?:eter)?s?|raises?|references?|returns?|see|todo|usage|warn(?:ing)?s?|yields?)(?: [a-z]+)?[\s:*]*",
    re.IGNORECASE,
)
_UNDERLINE = re.compile(r"([-=~^*#\"'`+_.])\1{2,}\s*")
_SIGNATURE = re.compile(r"[\w.]+\(.*\)\s*(?:->.*)?:?|[\w.]+\(.*\)\s*--\s.*")
_END = re.compile(  # what a line starts with where the prose of a paragraph ends
    r":\w[\w ,*\[\].|]*:(?:\s|$)|@\w+|>>>|\.\.\s|\.\. ?\w|[-*+•]\s|\d+[.)]\s|\(?[a-z\d]\)\s|```|\||\w+ : \w"
)
_ROLE = re.compile(r":[A-Za-z][\w:+-]*:`(~?)([^`<]*?)\s*(?:<[^`]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`]*>`__?")
_PREFIX = re.compile(r"^(?:internal|private|helper)(?: use only)?\.? ?(?::|--?|–|—) ", re.IGNORECASE)
_MARKS = re.compile(r"`+_{0,2}|\*\*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_TEMPLATE = re.compile(r"%\(\w+\)s|%s|\{\w*\}")
_SAYS_NOTHING = re.compile(
    r"(?:please )?(?:see|refer to|cf\.?)\b|(?:this (?:function|method) is )?(?:now )?deprecated\b|"
    r"(?:(?:does )?the )?same as\b|(?:an? )?alias(?:es)? (?:of|for|to)\b|(?:for )?(?:internal|private) use\b|"
    r"note:|todo\b|fixme\b|xxx\b|hack\b|not (?:yet )?implemented\b|docstring\b|inherit(?:s|ed)? (?:doc|from)|"
    r"initiali[sz]e self\b|(?:an? )?(?:internal|private|small|simple|little)? ?helper (?:function|method)?\.?$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a documentation says first; `unusable` says why it is no query, empty if it is one."""

    text: str
    unusable: str = ""


def summary(documentation: str) -> Summary:
    """Take the first paragraph of a documentation as a query.

    Signatures at the head are passed over; section headers, field lists, lists, directives and examples end it.
    Markup (roles, links, backquotes, bold) is taken off, blanks become one. Of a paragraph of more than
    `MAX_WORDS` words the first sentence is taken.

    Unusable are: fewer than `MIN_WORDS` words, more than `MAX_WORDS`, templates whose text is put in at run time,
    and what says nothing of the function itself ("See ...", "Same as ...", "Deprecated ...", "TODO ...").
    """
    text = plain(" ".join(_first_paragraph(documentation[:_LOOKED_AT])))
    if not is_encodable(text):
        return Summary(text="", unusable="no Unicode text")
    if count_words(text) > MAX_WORDS:
        text = _SENTENCE_END.split(text, maxsplit=1)[0]
    if not text:
        return Summary(text, "no prose before the first section, field or example")
    if count_words(text) < MIN_WORDS:
        return Summary(text, f"fewer than {MIN_WORDS} words")
    if count_words(text) > MAX_WORDS:
        return Summary(text, f"more than {MAX_WORDS} words in the first sentence")
    if _TEMPLATE.search(text):
        return Summary(text, "template")
    if _SAYS_NOTHING.match(text):
        return Summary(text, "says nothing of the function itself")
    return Summary(text)


def _first_paragraph(documentation: str) -> list[str]:
    """The lines of the first paragraph that is prose; empty if sections, fields or examples come first."""
    taken: list[str] = []
    skipping = False  # within a directive or behind a signature
    lines = documentation.split("\n")
    for number, line in enumerate(lines):
        text = line.strip()
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if not text:
            if taken:
                break
            skipping = False
        elif skipping and not taken:
            continue
        elif _UNDERLINE.fullmatch(text):
            if taken:
                break
        elif _is_section(text, following):
            break
        elif not taken and (_SIGNATURE.fullmatch(text) or text.startswith(("..", ":orphan:"))):
            skipping = text.startswith("..")
        elif _END.match(text):
            break
        else:
            taken.append(text)
    return taken


def _is_section(text: str, following: str) -> bool:
    """Whether a line is the header of a section: `Parameters` above a line of dashes, `Args:`."""
    return bool(_SECTION.fullmatch(text) and (text.rstrip("*").endswith(":") or _UNDERLINE.fullmatch(following)))


def plain(text: str) -> str:
    """Take the markup of a docstring off and make all blanks one."""
    text = _ROLE.sub(lambda role: role[2].rpartition(".")[2] if role[1] else role[2], text)
    return _PREFIX.sub("", " ".join(_MARKS.sub("", _LINK.sub(r"\1", text)).split()))


def count_words(text: str) -> int:
    """Count the words of a query, as `MIN_WORDS` and `MAX_WORDS` have them; a number is none."""
    return len(_WORD.findall(text))

"""The structure of a document: its parts, and for each what a document says it is: title, heading or docstring.

Where nobody has judged queries, these stand in for them: a title asks for its body, a heading for its section, the
docstring of a function for its code. A part holds none of them, so that it has to be found by what it says itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePosixPath

from retrieval.errors import DataError
from retrieval.eval.functions import Function
from retrieval.eval.leaks import key, occurs
from retrieval.eval.mining import LANGUAGES, fitting
from retrieval.eval.summaries import MAX_WORDS, MIN_WORDS, count_words, plain, summary
from retrieval.headings import Section, sections
from retrieval.suffixes import CODE_SUFFIXES, MARKDOWN_SUFFIXES, PROSE_SUFFIXES, suffix_of

TITLE, HEADING, DOCSTRING = "title -> body", "heading -> section", "docstring -> code"
KINDS = (TITLE, HEADING, DOCSTRING)
MIN_TEXT_WORDS = 8  # of a part that answers a query

_MARKS = 100  # characters that are looked at besides the words of a repeated title
_LONGEST = 1_000  # characters of a title that is looked at for markup, which takes the square of them

_DEFINITION = re.compile(r"^[ \t]*(?:async +)?def +\w+ *\(", re.MULTILINE)
_NUMBER = re.compile(r"^(?:\d+(?:\.\d+)*[.)]?|[A-Z]\.\d+(?:\.\d+)*)\s+")
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])?")
_ATTRIBUTES = re.compile(r"\s*\{[#.:][^}]*\}\s*$")
_SAYS_NOTHING = frozenset(
    key(heading)
    for heading in """
    abstract/acknowledgements/acknowledgments/advanced/appendix/arguments/attributes/authors/background/basic usage/
    basics/bibliography/body/caveats/changelog/classes/code/comments/conclusion/conclusions/configuration/contact/
    content/contents/contributing/contributors/copyright/credits/data/definition/definitions/demo/description/details/
    discussion/documentation/example/examples/example usage/external links/faq/features/functions/further reading/
    general/getting started/help/history/how it works/important/in this section/index/info/information/intro/
    introduction/keyword arguments/license/licence/limitations/links/methods/misc/miscellaneous/more information/name/
    next steps/note/notes/options/other/other parameters/outline/output/overview/parameters/params/prerequisites/
    properties/quick start/quickstart/raises/references/related/related work/remarks/requirements/resources/results/
    return value/return values/returns/see also/sources/status/summary/support/synopsis/syntax/table of contents/
    tips/title/toc/todo/troubleshooting/type/types/usage/versions/warning/warnings/what s next/yields
    """.replace("\n", "").split("/")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of a document, to be a document of its own.

    Attributes:
        doc_id: `<id of the document>#<number or function>`, with signs in the former that do not fit a run escaped.
        text: Without title, heading, docstring.
        mark: 64 bits, equal for equal words, or equal code.
        left_out: Why it is no document; empty for those that are.
        kind: One of `KINDS`.
        query: What asks for it; empty where `no_query` says why.
        heading: The words of a heading of fewer than `MIN_WORDS`, which has the headings above it in its query.
        no_query: Why nothing asks for it.
    """

    doc_id: str
    text: str = ""
    mark: int = 0
    left_out: str = ""
    kind: str = ""
    query: str = ""
    heading: str = ""
    no_query: str = ""


def parts_of(doc_id: str, title: str, text: str) -> list[Part]:
    """Cut a document into parts that do not overlap.

    Those of Python code (by the suffix of the id, or without a known one by what it parses as) are its functions, of
    other code and of a text without headings there is one; else what stands before the first heading, which is then the
    body that the title asks for, and the sections, each up to the next heading of any level.

    A heading of fewer than `MIN_WORDS` is asked with those above it, the title included. Queries that occur in their
    part, word by word, are none, but for a title or heading that the part merely begins with: there it is cut off.

    Args:
        doc_id: Of the document.
        title: Of the document; may be empty. The name of a file, the last part of its id, is none.
        text: Of the document.
    """
    if title == PurePosixPath(doc_id).name:
        title = ""
    suffix = suffix_of(doc_id)
    functions = _functions(suffix, text)
    if any(not function.left_out for function in functions):
        return list(_of_functions(fitting(doc_id), functions))
    whole = [Section("", 0, text.strip())]
    found = whole if suffix in CODE_SUFFIXES else sections(text, markdown=suffix in MARKDOWN_SUFFIXES)
    if len(found) > 1 and not found[0].text and title.strip() and key(found[1].heading) == key(title):
        found[:2] = [replace(found[1], heading="", level=0)]
    return list(_of_sections(fitting(doc_id), title, found))


def source_of(doc_id: str) -> str:
    """Return what the ids of the parts of one document begin with, of the id of a part."""
    return doc_id.rpartition("#")[0]


def _functions(suffix: str, text: str) -> Sequence[Function]:
    """Find the functions of a text, if it is code of a language whose functions can be found."""
    language = LANGUAGES.get(suffix)
    if language is None:
        if suffix in CODE_SUFFIXES or suffix in PROSE_SUFFIXES or not _DEFINITION.search(text):
            return ()
        language = LANGUAGES[".py"]
    try:
        return language.functions(text)
    except DataError:
        return ()


def _of_functions(source: str, functions: Sequence[Function]) -> Iterator[Part]:
    names: set[str] = set()
    for function in functions:
        name = function.name if function.name not in names else f"{function.name}@{function.start_line}"
        names.add(name)
        part = Part(doc_id=f"{source}#{name}", text=function.code, left_out=function.left_out, kind=DOCSTRING)
        if function.left_out:
            yield part
            continue
        found = summary(function.documentation)
        why = found.unusable or ("query occurs in its text" if occurs(found.text, function.code) else "")
        why = why if function.documentation else "no docstring"
        mark = int(function.fingerprint[:16], 16)
        yield replace(part, mark=mark, query="" if why else found.text, no_query=why)


def _of_sections(source: str, title: str, found: Sequence[Section]) -> Iterator[Part]:
    above: list[Section] = []  # the headings that a section is under
    for number, section in enumerate(found):
        while above and above[-1].level >= section.level:
            above.pop()
        words = _clean(section.heading) if section.heading else ""
        path = [*([_clean(title)] if title.strip() else []), *(one.heading for one in above)]
        part = _asked(f"{source}#{number}", section, words, path)
        if section.heading:
            above.append(replace(section, heading=words))
        if part.text or part.query or section.heading or (title.strip() and number == 0):
            yield part


def _asked(doc_id: str, section: Section, heading: str, path: Sequence[str]) -> Part:
    """Make a part of a section: heading as it is asked, and the title and headings above it, outermost first."""
    kind = HEADING if section.heading else TITLE
    query = heading if section.heading else "".join(path[:1])
    short = ""
    if kind == HEADING and count_words(query) < MIN_WORDS:
        short = key(heading)
        for words in reversed(path):
            query = f"{words} {query}"
            if count_words(query) >= MIN_WORDS:
                break
    text = _without_repeat(query, section.text) if query else section.text
    part = Part(doc_id=doc_id, text=text, mark=_mark(text), left_out="" if text else "no text", kind=kind)
    why = _no_query(query, text, heading)
    return replace(part, query="" if why else query, heading=short, no_query=why)


def _no_query(query: str, text: str, heading: str) -> str:
    if not query:
        return "neither title nor heading"
    if heading and key(heading) in _SAYS_NOTHING:
        return "heading that says nothing of its section"
    if count_words(query) < MIN_WORDS:
        return f"fewer than {MIN_WORDS} words"
    if count_words(query) > MAX_WORDS:
        return f"more than {MAX_WORDS} words"
    if len(text.split(maxsplit=MIN_TEXT_WORDS)) < MIN_TEXT_WORDS and count_words(text) < MIN_TEXT_WORDS:
        return f"text of fewer than {MIN_TEXT_WORDS} words"
    return "query occurs in its text" if occurs(query, text) else ""


def _clean(heading: str) -> str:
    """Take markup and numbers off a heading or title; one of that many characters is none, whatever it is made of."""
    if len(heading) > _LONGEST:
        return heading.strip()
    text = _NUMBER.sub("", _LINK.sub(r"\1", _ATTRIBUTES.sub("", heading.strip())))
    return plain(text.replace("¶", " ")).strip(" *_#:")


def _without_repeat(query: str, text: str) -> str:
    """Take a query off the beginning of a text, where it stands there by itself: as a line or a sentence."""
    if not key(query).strip() or not key(text[: 2 * len(query) + _MARKS]).startswith(key(query)):
        return text
    words = r"[\W_]+".join(map(re.escape, key(query).split()))
    repeat = rf"[\W_]*{words}(?:[ \t]*[.:;!?*)\]]+(?=\s|$)|[ \t]+[-–—]+(?=\s)|[ \t]*(?=\n|$))\s*"
    match = re.match(repeat, text, re.IGNORECASE)
    return text[match.end() :] if match else text


def _mark(text: str) -> int:
    return int.from_bytes(sha256(key(text).encode()).digest()[:8], "big")

"""A page of headings, paragraphs, tables and plots, written as HTML, as Markdown or for a terminal.

The HTML is one file that needs nothing from elsewhere and runs no script; its content security policy says so to the
browser. The others have all but the plots.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from retrieval.eval.markup import clean, columns, cut, html_text, markdown_text
from retrieval.eval.svg import dark_colours

_TOOLTIP = 2000  # half-width characters
_TERMINAL_TEXT = 60  # half-width characters of a cell of words
_TERMINAL = 100  # half-width characters of a line
_COLUMNS = 7  # of a table on a page, if it can be turned


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: What it shows.
        note: Shown smaller, behind the text.
        title: What a tooltip says; Markdown leaves it out.
        bold: Whether it stands out.
    """

    text: str
    note: str = ""
    title: str = ""
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; a string is a plain cell.

    Attributes:
        header: A name for each column; none at all for a table of names and values.
        rows: As long as the header.
        words: How many columns, from the left, are text; the others are numbers.
        caption: What it shows; may be empty.
        turned: What heads the first column where rows and columns change places because there are more columns than
            fit; empty: they never do.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    words: int = 1
    caption: str = ""
    turned: str = ""

    def turn(self) -> Table:
        """Return the table with rows and columns changed."""
        names, *columns = zip(self.header, *self.rows, strict=True)
        header = (self.turned, *(name if isinstance(name, str) else name.text for name in names[1:]))
        return replace(self, header=header, rows=columns, turned="")

    def on_page(self) -> Table:
        """Return the table as it stands on a page: turned, where it is wide and not as long."""
        wide = len(self.header) > _COLUMNS and len(self.rows) + 1 < len(self.header)
        return self.turn() if self.turned and wide else self


@dataclass(frozen=True, slots=True)
class Beside:
    """Tables that stand side by side where there is room."""

    tables: Sequence[Table]


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Figures:
    """Plots with a caption each: (caption, SVG)."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what follows it; a string is a paragraph."""

    heading: str
    parts: Sequence[str | Table | Beside | Bullets | Figures]
    aside: bool = False  # stands out from the page


def html_page(title: str, subtitle: str, sections: Iterable[Section]) -> str:
    """Return a self-contained HTML document."""
    body = "\n".join(_html_section(section) for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html_text(cut(clean(title), 200))}</title>
<link rel="icon" href="data:,">
<style>{_STYLE}@media screen and (prefers-color-scheme:dark){{{dark_colours()}}}
</style>
</head>
<body>
<main>
<h1 dir="auto">{html_text(cut(clean(title), 200))}</h1>
<p class="subtitle">{html_text(subtitle)}</p>
{body}
</main>
</body>
</html>
"""


def _html_section(section: Section) -> str:
    parts = "\n".join(_html_part(part) for part in section.parts)
    kind = ' class="aside"' if section.aside else ""
    return f"<section{kind}>\n<h2>{html_text(section.heading)}</h2>\n{parts}\n</section>"


def _html_part(part: str | Table | Beside | Bullets | Figures) -> str:
    if isinstance(part, str):
        return f"<p>{html_text(part)}</p>"
    if isinstance(part, Bullets):
        return "<ul>" + "".join(f'<li dir="auto">{html_text(item)}</li>' for item in part.items) + "</ul>"
    if isinstance(part, Figures):
        plots = (f"<figure><figcaption>{html_text(caption)}</figcaption>{svg}</figure>" for caption, svg in part.items)
        return '<div class="figures">\n' + "\n".join(plots) + "\n</div>"
    if isinstance(part, Beside):
        return '<div class="beside">\n' + "\n".join(map(_html_table, part.tables)) + "\n</div>"
    return _html_table(part.on_page())


def _html_table(part: Table) -> str:
    caption = f"<caption>{html_text(part.caption)}</caption>" if part.caption else ""
    header = ""
    if part.header:
        names = (
            f'<th scope="col"{"" if place < part.words else _NUMBER}>{html_text(name)}</th>'
            for place, name in enumerate(part.header)
        )
        header = f"<thead><tr>{''.join(names)}</tr></thead>"
    rows = "\n".join(f"<tr>{''.join(_html_cells(row, part.words))}</tr>" for row in part.rows)
    kind = "" if part.header else ' class="facts"'
    # the wrapper scrolls where the table is wider than the screen; a keyboard can reach it
    return f'<div class="table" tabindex="0"><table{kind}>{caption}{header}<tbody>\n{rows}\n</tbody></table></div>'


_NUMBER = ' class="number"'


def _html_cells(row: Sequence[Cell | str], words: int) -> Iterable[str]:
    for place, cell in enumerate(row):
        cell = Cell(cell) if isinstance(cell, str) else cell
        inner = html_text(cell.text)
        inner = f"<strong>{inner}</strong>" if cell.bold else inner
        inner += f" <small>{html_text(cell.note)}</small>" if cell.note else ""
        title = f' title="{html_text(cut(clean(cell.title), _TOOLTIP))}"' if cell.title else ""
        kind = ' dir="auto"' if place < words else _NUMBER
        yield f'<th scope="row"{kind}{title}>{inner}</th>' if place == 0 else f"<td{kind}{title}>{inner}</td>"


def markdown_page(title: str, subtitle: str, sections: Iterable[Section]) -> str:
    """Return the page as Markdown, without its plots."""
    blocks = [f"# {markdown_text(cut(clean(title), 200))}", markdown_text(subtitle)]
    for section in sections:
        parts = [_markdown_part(part) for part in section.parts if not isinstance(part, Figures)]
        blocks += [f"## {markdown_text(section.heading)}", *parts] if parts else []
    return "\n\n".join(blocks) + "\n"


def _markdown_part(part: str | Table | Beside | Bullets) -> str:
    if isinstance(part, str):
        return markdown_text(part)
    if isinstance(part, Bullets):
        return "\n".join(f"- {markdown_text(item)}" for item in part.items)
    if isinstance(part, Beside):
        return "\n\n".join(map(_markdown_part, part.tables))
    part = part.on_page()
    header = part.header or ["", ""]
    rules = ["---" if place < part.words else "---:" for place in range(len(header))]
    rows = [
        [markdown_text(name) for name in header],
        rules,
        *([_markdown_cell(cell) for cell in row] for row in part.rows),
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{markdown_text(part.caption)}\n\n{table}" if part.caption else table


def _markdown_cell(cell: Cell | str) -> str:
    cell = Cell(cell) if isinstance(cell, str) else cell
    text = markdown_text(cell.text)
    return (f"**{text}**" if cell.bold and text else text) + (f" {markdown_text(cell.note)}" if cell.note else "")


def text_page(sections: Iterable[Section]) -> str:
    """Return sections for a terminal, without plots, in columns of equal width."""
    blocks = []
    for section in sections:
        parts = [_text_part(part) for part in section.parts if not isinstance(part, Figures)]
        blocks += ["\n".join((clean(section.heading), parts[0])), *parts[1:]] if parts else []
    return "\n\n".join(blocks) + "\n"


def _text_part(part: str | Table | Beside | Bullets) -> str:
    if isinstance(part, str):
        return textwrap.fill(clean(part), _TERMINAL)
    if isinstance(part, Bullets):
        return "\n".join(textwrap.fill(clean(f"- {item}"), _TERMINAL, subsequent_indent="  ") for item in part.items)
    if isinstance(part, Beside):
        return "\n\n".join(map(_text_part, part.tables))
    lines = _text_lines(part)
    if part.turned and _width(lines) > _TERMINAL:
        lines = min(lines, _text_lines(part.turn()), key=_width)
    return "\n".join(([clean(part.caption)] if part.caption else []) + lines)


def _width(lines: Sequence[str]) -> int:
    return max(map(columns, lines))


def _text_lines(part: Table) -> list[str]:
    rows = [[clean(name) for name in part.header]] if part.header else []
    rows += [[_text_cell(cell, place < part.words) for place, cell in enumerate(row)] for row in part.rows]
    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text + " " * (width - columns(text)) if place < part.words else " " * (width - columns(text)) + text
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _text_cell(cell: Cell | str, words: bool) -> str:
    text = cell if isinstance(cell, str) else f"{cell.text} {cell.note}".rstrip()
    return cut(clean(text), _TERMINAL_TEXT) if words else clean(text)


_STYLE = """
:root{color-scheme:light dark;--ink:#1c2128;--muted:#59626d;--line:#d4d9e0;--faint:#eef1f4;--page:#fff;
--note:#fff8e6;--edge:#c98a00;--rule:#f0e2bd}
@media screen and (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--muted:#a0a8b4;--line:#3a424d;--faint:#222831;
--page:#14181e;--note:#2a2413;--edge:#d9a520;--rule:#453b1f}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:1rem/1.5 system-ui,-apple-system,"Segoe UI",
"Helvetica Neue",Arial,sans-serif;overflow-wrap:anywhere}
main{max-width:1240px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:1.25rem;line-height:1.3;margin:44px 0 12px}
p{margin:8px 0;max-width:78ch}
.subtitle,caption,small{color:var(--muted)}
.aside{background:var(--note);border-left:4px solid var(--edge);padding:12px 20px;margin:28px 0 0;border-radius:2px}
.aside h2{margin:0 0 4px;font-size:1rem}
.aside ul{list-style:none;padding:0;margin:0}.aside li{padding:6px 0;margin:0;max-width:none}
.aside li+li{border-top:1px solid var(--rule)}
ul{margin:8px 0;padding-left:22px}
li{margin:3px 0;max-width:90ch}
.table{overflow-x:auto;margin:12px 0 20px}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;overflow-wrap:break-word}
table{border-bottom:1.5px solid var(--ink);border-top:1.5px solid var(--ink)}
caption{text-align:left;padding:0 0 8px;font-size:.9rem}
th,td{padding:6px 18px 6px 0;text-align:left;vertical-align:top;font-weight:400}
th:last-child,td:last-child{padding-right:4px}
thead th{font-weight:600;border-bottom:1px solid var(--ink);vertical-align:bottom}
tbody tr+tr>*{border-top:1px solid var(--faint)}
tbody th{min-width:8em;max-width:44em}td[dir]{min-width:7em}
.number{text-align:right;white-space:nowrap}
thead .number{white-space:normal}
.facts th{color:var(--muted)}
small{font-size:.85em}
.beside{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:0 48px}
.beside th,.beside td{padding-right:14px}
.beside td[dir]{min-width:3em}
.figures{columns:2 440px;column-gap:48px;margin:16px 0 -12px}.figures:has(figure:only-child){columns:auto}
figure{margin:0;padding:0 0 24px;break-inside:avoid}
figcaption{font-size:.95rem;font-weight:600;margin:0 0 12px;line-height:1.4}
figure svg{display:block;width:100%;max-width:720px;height:auto}
@media (max-width:520px){main{padding:20px 16px 40px}h1{font-size:1.5rem}figure svg{font-size:14px}}
@media print{:root{font-size:10pt}main{max-width:none;padding:0}.table{overflow:visible}tr{break-inside:avoid}
.figures{columns:2;column-gap:24px}h2{break-after:avoid}}
"""

"""What a file is by its name: code, prose or data, and the language that it is written in."""

from __future__ import annotations

from pathlib import PurePosixPath

# The suffixes of each language. `.h` is taken for C++, whose grammar reads C too.
_CODE = """
ada .ada .adb .ads | asm .asm .s | astro .astro | awk .awk | bash .sh .bash .zsh .ksh | batch .bat .cmd | c .c |
cairo .cairo | clojure .clj .cljs .cljc .edn | cmake .cmake | cobol .cob .cbl | coffeescript .coffee |
cpp .h .cc .cpp .cxx .hh .hpp .hxx .inl | csharp .cs | css .css | cuda .cu .cuh | d .d | dart .dart |
dockerfile .dockerfile | ejs .ejs | elisp .el | elixir .ex .exs | elm .elm | erb .erb | erlang .erl .hrl | fish .fish |
fortran .f .for .f90 .f95 .f03 | fsharp .fs .fsx | go .go | graphql .graphql .gql | groovy .groovy .gradle |
handlebars .hbs | haskell .hs .lhs | hcl .tf .tfvars .hcl | html .html .htm .xhtml | ini .ini .cfg .conf |
java .java | javascript .js .jsx .mjs .cjs | jinja .jinja .j2 .tmpl | json .json .json5 .jsonc | julia .jl |
jupyter .ipynb | kotlin .kt .kts | less .less | lisp .lisp .lsp .cl | lua .lua | makefile .mk .mak | move .move |
nim .nim | nix .nix | objc .m .mm | ocaml .ml .mli | pascal .pas .pp | perl .pl .pm .t | php .php |
powershell .ps1 .psm1 | properties .properties | prql .prql | protobuf .proto | purescript .purs |
python .py .pyi .pyw .pyx .pxd | r .r | racket .rkt | raku .raku | reason .re | rescript .res | ruby .rb | rust .rs |
sass .sass | scala .scala .sc | scheme .scm | scss .scss | sed .sed | solidity .sol | sql .sql | starlark .bzl .bazel |
stylus .styl | svelte .svelte | swift .swift | tcl .tcl | thrift .thrift | toml .toml |
typescript .ts .tsx .mts .cts | vb .vb | verilog .v .sv | vhdl .vhd .vhdl | vim .vim | vue .vue |
xml .xml .xsd .xsl | yaml .yaml .yml | zig .zig
"""
_PROSE = """
asciidoc .adoc .asciidoc | markdown .md .markdown .mdx | org .org | rst .rst | tex .tex | textile .textile | wiki .wiki
"""
_DATA = ".jsonl .ndjson .csv .tsv .parquet .arrow .feather .ipc"


def _by_suffix(table: str) -> dict[str, str]:
    entries = (entry.split() for entry in table.split("|"))
    return {suffix: language for language, *suffixes in entries for suffix in suffixes}


_CODE_LANGUAGES, _PROSE_LANGUAGES = _by_suffix(_CODE), _by_suffix(_PROSE)
CODE_SUFFIXES = frozenset(_CODE_LANGUAGES)
# Prose may put a paragraph, or a whole text, on one line; in code such lines are a machine's.
PROSE_SUFFIXES = frozenset({*_PROSE_LANGUAGES, ".txt", ".text"})
DATA_SUFFIXES = frozenset(_DATA.split())
MARKDOWN_SUFFIXES = frozenset({".md", ".markdown", ".mdx"})
_BARE_NAMES = frozenset({"dockerfile", "makefile"})  # of files without a suffix that say their language
HTML_SUFFIXES = frozenset({".html", ".htm", ".xhtml"})
NOTEBOOK, PDF = ".ipynb", ".pdf"


def suffix_of(name: str) -> str:
    """Return the last suffix of a name or path in lower case, with its dot; empty where there is none."""
    return PurePosixPath(name).suffix.lower()


def language_of(name: str) -> str | None:
    """Return the language of a file by its name or path, in lower case; None for plain text and what is not known."""
    bare = PurePosixPath(name).name.lower()
    suffix = suffix_of(name)
    return bare if bare in _BARE_NAMES else _CODE_LANGUAGES.get(suffix) or _PROSE_LANGUAGES.get(suffix)


def is_text_name(name: str) -> bool:
    """Tell whether a file may be text by its name: a known suffix, or none at all (Makefile, LICENSE)."""
    suffix = suffix_of(name)
    return not suffix or suffix in PROSE_SUFFIXES or suffix in CODE_SUFFIXES or suffix == PDF

"""Write the documentation of the running Python's standard library as a corpus: one JSON document a line.

    python data/stdlib_corpus.py OUT.jsonl

A document is a public function, class, method or property with a docstring of its own:

    {"_id": "json.dumps", "title": "json.dumps(obj, *, skipkeys=False, ...)", "text": "Serialize ...",
     "module": "json", "kind": "function", "line": 183, "source": "json/__init__.py"}

`line` counts from 1 in the file `source` below the library's folder; for compiled code `line` is 0 and
`source` is empty. Python sources are parsed, never imported, since importing some of them opens browsers or
prints poems; compiled modules can only be imported, and are. A name that a package re-exports from a part of
itself, or from a private module, stands once, under the shortest name that users import.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import re
import sys
import sysconfig
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MIN_TEXT = 20  # characters; a shorter docstring says no more than the name
# For methods and properties, but not of builtins: list.append is short and worth finding.
MIN_MEMBER_TEXT = 50
JOKES = "antigravity this"
TOOLS = "distutils ensurepip idlelib lib2to3 pydoc pydoc_data turtledemo venv"
INSIDES = "ast bdb curses dis pdb pickletools symtable"  # their docstrings are grammar, opcodes, keys
DROWNING = "tkinter turtle"  # 800 methods of one kind would drown the rest
# from Python 3.12 or 3.13
REMOVED = """aifc asynchat asyncore audioop cgi cgitb chunk crypt imghdr imp mailcap msilib nis nntplib
    ossaudiodev pipes smtpd sndhdr spwd sre_compile sre_constants sre_parse sunau telnetlib uu xdrlib"""
REACHED_THROUGH_OS = "genericpath nt ntpath nturl2path posix"
TERMINAL = "readline"  # changes the terminal when imported
EXAMPLES = "xxlimited xxlimited_35 xxsubtype"
SKIPPED = set(" ".join([JOKES, TOOLS, INSIDES, DROWNING, REMOVED, REACHED_THROUGH_OS, TERMINAL, EXAMPLES]).split())
SKIPPED_PARTS = {"test", "tests", "__main__"}
PUBLIC_NAMES = {"posixpath": "os.path"}
# No underscore, yet users know their names from os and os.path.
PRIVATE_HOMES = {"genericpath", "nt", "posix"}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, kw_only=True)
class Document:
    """One line of the corpus; the fields are described at the top of this file."""

    name: str
    title: str
    text: str
    module: str
    kind: str
    line: int
    source: str

    def as_json(self) -> str:
        """Return the document as one line of JSON."""
        fields = {"_id": self.name, "title": self.title, "text": self.text}
        metadata = {"module": self.module, "kind": self.kind, "line": self.line, "source": self.source}
        return json.dumps(fields | metadata, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class Source:
    """One parsed module: what it defines and what it takes from elsewhere, at its top level."""

    name: str
    path: str
    is_package: bool
    definitions: dict[str, Definition]
    imports: list[tuple[str, str]]  # (module, name or *); what gets another name is for the module's own use
    all_names: set[str] | None  # the literals of __all__, where there are any


@dataclass(frozen=True, kw_only=True)
class Found:
    """Where a public name leads: to a definition in a source, or to an object of a compiled module."""

    source: Source | None = None
    node: Definition | None = None
    value: Any = None

    @property
    def key(self) -> tuple[object, ...]:
        """Identity: two public names with the same key are the same thing."""
        if self.source is not None and self.node is not None:
            return (self.source.name, self.node.name)
        return (id(self.value),)


class Library:
    """The standard library of the running Python, read from its sources."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._paths = dict(_source_files(root))
        self._read: dict[str, Source | None] = {}
        self.unreadable = 0

    def public_modules(self) -> list[str]:
        """Names of the modules, Python or compiled, whose own names are public."""
        compiled = [name for name in sys.stdlib_module_names if name not in self._paths and _is_compiled(name)]
        names = [*self._paths, *compiled]
        return sorted(n for n in names if not SKIPPED.intersection(n.split(".")) and not _is_private(n))

    def source(self, module: str) -> Source | None:
        """Return the parsed module, or None if it has no readable Python source."""
        if module not in self._read:
            path = self._paths.get(module)
            self._read[module] = None if path is None else self._parse(module, path)
        return self._read[module]

    def _parse(self, module: str, path: Path) -> Source | None:
        try:
            with tokenize.open(path) as file:
                tree = ast.parse(file.read())
        except (SyntaxError, UnicodeDecodeError):
            self.unreadable += 1
            return None
        is_package = path.name == "__init__.py"
        package = module if is_package else module.rpartition(".")[0]
        definitions: dict[str, Definition] = {}
        imports: list[tuple[str, str]] = []
        all_names: set[str] = set()
        for node in _top_level(tree.body):
            if isinstance(node, ast.ImportFrom):
                home = _absolute(node, package)
                imports += [(home, alias.name) for alias in node.names if alias.asname in (None, alias.name)]
            elif isinstance(node, Definition):
                known = definitions.get(node.name)
                if known is None or (ast.get_docstring(known) is None and ast.get_docstring(node)):
                    definitions[node.name] = node
            else:
                all_names |= _all_literals(node)
        return Source(
            name=module,
            path=path.relative_to(self.root).as_posix(),
            is_package=is_package,
            definitions=definitions,
            imports=imports,
            all_names=all_names or None,
        )

    def names(self, module: str, seen: frozenset[str] = frozenset()) -> set[str]:
        """Public names of a module: what it defines, and what it re-exports (see `_exports`)."""
        source = self.source(module)
        if source is None:
            compiled = _compiled(module)
            return {name for name in dir(compiled) if not name.startswith("_")} if compiled else set()
        names = {name for name in source.definitions if not source.all_names or name in source.all_names}
        for home, name in source.imports:
            if home not in seen and _exports(source, home):
                names |= self._starred(home, seen | {module}) if name == "*" else {name}
        return {name for name in names if not name.startswith("_")}

    def _starred(self, module: str, seen: frozenset[str]) -> set[str]:
        source = self.source(module)
        return source.all_names if source and source.all_names else self.names(module, seen)

    def find(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> Found | None:
        """Follow a name to its definition, Python source first; None for constants and dead ends."""
        source = self.source(module)
        if source is None:
            value = getattr(_compiled(module), name, None)
            return Found(value=value) if isinstance(value, type) or inspect.isbuiltin(value) else None
        if name in source.definitions:
            return Found(source=source, node=source.definitions[name])
        candidates = [
            self.find(home, name, seen | {module})
            for home, imported in source.imports
            if imported in (name, "*") and home not in seen and _exports(source, home)
        ]
        found = [c for c in candidates if c is not None]
        return min(found, key=lambda c: c.source is None, default=None)


def _source_files(root: Path) -> Iterator[tuple[str, Path]]:
    for top in sorted(sys.stdlib_module_names):  # not all of root: site-packages may lie below it
        for path in [root / f"{top}.py", *sorted((root / top).rglob("*.py"))]:
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if path.is_file() and not SKIPPED_PARTS.intersection(parts):
                yield ".".join(parts), path


def _top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements in order, going into if, try and with: definitions for other platforms count too."""
    for node in body:
        if isinstance(node, ast.If) and "__main__" in ast.dump(node.test):
            continue
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _top_level(node.body)
            for handler in getattr(node, "handlers", []):
                yield from _top_level(handler.body)
            yield from _top_level(getattr(node, "orelse", []))
        else:
            yield node


def _all_literals(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if not any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
        return set()
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    base = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _exports(source: Source, home: str) -> bool:
    """Whether names that `source` imports from `home` are meant to be used as names of `source`."""
    if _is_private(home) or home in PRIVATE_HOMES:
        return home != "__future__"
    return source.is_package and home.startswith(source.name + ".")


def _is_private(module: str) -> bool:
    return any(part.startswith("_") for part in module.split("."))


def _is_compiled(module: str) -> bool:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    if spec is None or module in SKIPPED - PRIVATE_HOMES:
        return False
    return spec.origin == "built-in" or isinstance(spec.loader, importlib.machinery.ExtensionFileLoader)


@cache
def _compiled(module: str) -> Any:
    if "." in module or not _is_compiled(module):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # modules that later releases drop
            return importlib.import_module(module)
    except ImportError:  # built without the system library it needs
        return None


def _clean(docstring: str | None, shortest: int) -> str | None:
    lines = [line.rstrip() for line in inspect.cleandoc(docstring or "").splitlines()]
    text = "\n".join(lines).strip()
    return text if len(text) >= shortest else None


def source_documents(name: str, module: str, node: Definition, source: Source) -> Iterator[Document]:
    """Yield the documents of one definition: itself, and for a class its public members."""
    in_class = name.count(".") > module.count(".") + 1
    text = _clean(ast.get_docstring(node), MIN_MEMBER_TEXT if in_class else MIN_TEXT)
    if text is not None:
        yield Document(
            name=name,
            title=name + _signature(node, in_class),
            text=text,
            module=module,
            kind=_kind(node, in_class),
            line=node.lineno,
            source=source.path,
        )
    if isinstance(node, ast.ClassDef):
        for member in _top_level(node.body):
            if isinstance(member, Definition) and not member.name.startswith("_"):
                yield from source_documents(f"{name}.{member.name}", module, member, source)


def _decorators(node: Definition) -> set[str]:
    return {ast.unparse(d).rpartition(".")[2] for d in node.decorator_list}


def _kind(node: Definition, in_class: bool) -> str:
    if isinstance(node, ast.ClassDef):
        return "class"
    if not in_class:
        return "function"
    return "property" if _decorators(node) & {"property", "cached_property", "setter"} else "method"


def _signature(node: Definition, in_class: bool) -> str:
    if isinstance(node, ast.ClassDef):
        for maker in ("__init__", "__new__"):
            for member in _top_level(node.body):
                if isinstance(member, ast.FunctionDef) and member.name == maker:
                    return _arguments(member.args, drop_first=True)
        return ""
    if _kind(node, in_class) == "property":
        return ""
    return _arguments(node.args, drop_first=in_class and "staticmethod" not in _decorators(node))


def _arguments(args: ast.arguments, drop_first: bool) -> str:
    """Return `(a, b=1, *, c)`: names and defaults, without annotations."""
    for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
        if arg is not None:
            arg.annotation = None
    for defaults in (args.defaults, args.kw_defaults):
        defaults[:] = [ast.Constant(value=...) if _is_sentinel(d) else d for d in defaults]  # type: ignore[misc]
    text = ast.unparse(args)
    if drop_first and (args.posonlyargs or args.args):
        text = re.sub(r"^\w+(, /)?(, )?", "", text)
    return f"({text})"


def _is_sentinel(default: ast.expr | None) -> bool:
    return isinstance(default, ast.Name) and default.id.startswith("_")


def compiled_documents(name: str, module: str, value: Any) -> Iterator[Document]:
    """Yield the documents of a compiled object: itself, and for a class its own public members."""
    raw = value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__
    is_member = name.count(".") > module.count(".") + 1
    shortest = MIN_MEMBER_TEXT if is_member and module != "builtins" else MIN_TEXT
    text = _clean(raw, shortest) if isinstance(raw, str) else None
    if text is not None:
        yield Document(
            name=name,
            title=(name.removeprefix("builtins.")) + _compiled_signature(value, is_member),
            text=text,
            module=module,
            kind=_compiled_kind(value, is_member),
            line=0,
            source="",
        )
    if isinstance(value, type):
        for key, member in vars(value).items():
            documented = callable(member) or isinstance(member, classmethod | staticmethod)
            documented = documented or inspect.isdatadescriptor(member)
            if documented and not isinstance(member, type) and not key.startswith("_"):
                yield from compiled_documents(f"{name}.{key}", module, member)


def _compiled_kind(value: Any, is_member: bool) -> str:
    if isinstance(value, type):
        return "class"
    if not is_member:
        return "function"
    return "property" if inspect.isdatadescriptor(value) else "method"


def _compiled_signature(value: Any, is_member: bool) -> str:
    if is_member and inspect.isdatadescriptor(value):
        return ""
    text = getattr(value, "__text_signature__", None) or (getattr(value, "__doc__", None) or "").partition("\n")[0]
    shown = re.match(r"[\w.]*(\(.*?\))(?: |$)", " ".join(text.split()))
    if shown is None:
        return ""
    without_self = re.sub(r"^\(\$?(self|type|module|cls)\b(, /)?(, )?", "(", shown[1])
    return re.sub(r"\$\w+(, /)?(, )?", "", without_self).replace("<unrepresentable>", "...")


def corpus(library: Library) -> list[Document]:
    """Return all documents, one a name, sorted by name."""
    homes: dict[tuple[object, ...], tuple[str, str, Found]] = {}
    for module in library.public_modules():
        for name in sorted(library.names(module)):
            found = library.find(module, name)
            if found is None:
                continue
            shown = PUBLIC_NAMES.get(module, module)
            known = homes.get(found.key)
            if known is None or _preference(shown, name) < _preference(known[0], known[1]):
                homes[found.key] = (shown, name, found)
    documents: dict[str, Document] = {}
    for module, name, found in homes.values():
        qualified = f"{module}.{name}"
        if found.source is not None and found.node is not None:
            members = source_documents(qualified, module, found.node, found.source)
        else:
            members = compiled_documents(qualified, module, found.value)
        for document in members:
            documents.setdefault(document.name, document)
    return sorted(documents.values(), key=lambda document: document.name)


def _preference(module: str, name: str) -> tuple[bool, int, str, str]:
    return (module != "builtins", module.count("."), module, name)


def write(documents: Sequence[Document], out: Path) -> None:
    """Write the corpus beside `out` first and rename it, so that `out` is never half a file."""
    part = out.with_name(out.name + ".part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(document.as_json() + "\n" for document in documents)
            file.flush()
            os.fsync(file.fileno())
        part.replace(out)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def main() -> int:
    """Write the corpus and print its counts on standard error."""
    parser = argparse.ArgumentParser(description="Write the standard library's documentation as a JSONL corpus.")
    parser.add_argument("out", type=Path, metavar="OUT.jsonl", help="file to write; replaced if it exists")
    out: Path = parser.parse_args().out
    if not out.parent.is_dir():
        print(f"{out}: cannot be written: {out.parent} is not a folder", file=sys.stderr)
        return 1
    library = Library(Path(sysconfig.get_path("stdlib")))
    documents = corpus(library)
    if not documents:
        print(f"{library.root}: no Python sources of the standard library found there", file=sys.stderr)
        return 1
    try:
        write(documents, out)
    except OSError as error:
        print(f"{out}: cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(d.kind for d in documents).items()))
    modules = len({d.module for d in documents})
    print(f"{out}: {len(documents)} documents of {modules} modules ({kinds})", file=sys.stderr)
    if library.unreadable:
        print(f"{library.unreadable} source files could not be parsed and were left out", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

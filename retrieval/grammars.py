"""The grammars of programming languages: for each a wheel of its own, and a query for its definitions."""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Query


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language.

    Attributes:
        name: What people call it.
        module: The Python module of its grammar.
        query: Captures of definitions: `@function`, `@class`, `@part` (of a class that is defined elsewhere) and
            `@scope` (of names alone), each with its `@name` and perhaps its `@owner` (the class of a method that is
            written outside of it); `@above` are comments and what else belongs to the definition below it.
        entry: The function of the module that gives the grammar.
        separator: Between the names of a qualified name.
        unread: What to hide from the parser: the second group of each match.
    """

    name: str
    module: str
    query: str
    entry: str = "language"
    separator: str = "."
    unread: re.Pattern[str] | None = None


# A macro before a class's name (`class EXPORT Name {`) makes a grammar take the class for a function.
_MACRO = re.compile(
    r"(\b(?:class|struct|union)\s+)([A-Z][A-Z0-9_]+(?:\([^()]*\))?)(?=\s+\w+(?:<[^<>;{]*>)?\s*(?:final\s*)?(?::[^:]|\{))"
)
_PYTHON = """
(function_definition name: (_) @name) @function
(decorated_definition definition: (function_definition name: (_) @name)) @function
(class_definition name: (_) @name) @class
(decorated_definition definition: (class_definition name: (_) @name)) @class
(comment) @above
"""
_JAVASCRIPT = """
(function_declaration name: (_) @name) @function
(generator_function_declaration name: (_) @name) @function
(export_statement declaration: (function_declaration name: (_) @name)) @function
(export_statement declaration: (generator_function_declaration name: (_) @name)) @function
(method_definition name: (_) @name) @function
(pair key: (_) @name value: [(function_expression) (arrow_function)]) @function
(lexical_declaration
  . (variable_declarator name: (identifier) @name value: [(function_expression) (arrow_function)]) .) @function
(export_statement declaration: (lexical_declaration
  . (variable_declarator name: (identifier) @name value: [(function_expression) (arrow_function)]) .)) @function
(variable_declaration
  . (variable_declarator name: (identifier) @name value: [(function_expression) (arrow_function)]) .) @function
(expression_statement (assignment_expression
  left: [(identifier) (member_expression)] @name right: [(function_expression) (arrow_function)])) @function
(class_declaration name: (_) @name) @class
(export_statement declaration: (class_declaration name: (_) @name)) @class
(comment) @above
(decorator) @above
"""
_OF_JAVASCRIPT = """
(field_definition property: (_) @name value: [(function_expression) (arrow_function)]) @function
"""
_OF_TYPESCRIPT = """
(function_signature name: (_) @name) @function
(export_statement declaration: (function_signature name: (_) @name)) @function
(public_field_definition name: (_) @name value: [(function_expression) (arrow_function)]) @function
(abstract_class_declaration name: (_) @name) @class
(export_statement declaration: (abstract_class_declaration name: (_) @name)) @class
(interface_declaration name: (_) @name) @class
(export_statement declaration: (interface_declaration name: (_) @name)) @class
(enum_declaration name: (_) @name) @class
(export_statement declaration: (enum_declaration name: (_) @name)) @class
(internal_module name: (_) @name) @scope
(module name: (_) @name) @scope
"""
_JAVA = """
(method_declaration name: (_) @name) @function
(constructor_declaration name: (_) @name) @function
(compact_constructor_declaration name: (_) @name) @function
(class_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @class
(enum_declaration name: (_) @name) @class
(record_declaration name: (_) @name) @class
(annotation_type_declaration name: (_) @name) @class
(line_comment) @above
(block_comment) @above
"""
_GO = """
(function_declaration name: (_) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: (_) @owner)) name: (_) @name) @function
(type_declaration . (type_spec name: (_) @name type: [(struct_type) (interface_type)]) .) @class
(comment) @above
"""
_RUST = """
(function_item name: (_) @name) @function
(function_signature_item name: (_) @name) @function
(macro_definition name: (_) @name) @function
(struct_item name: (_) @name) @class
(enum_item name: (_) @name) @class
(union_item name: (_) @name) @class
(trait_item name: (_) @name) @class
(impl_item type: (_) @name) @part
(mod_item name: (_) @name body: (_)) @scope
(line_comment) @above
(block_comment) @above
(attribute_item) @above
"""
_C = """
(function_definition declarator: (_) @name) @function
(struct_specifier name: (_) @name body: (_)) @class
(union_specifier name: (_) @name body: (_)) @class
(enum_specifier name: (_) @name body: (_)) @class
(declaration type: [
  (struct_specifier name: (_) @name body: (_)) (union_specifier name: (_) @name body: (_))
  (enum_specifier name: (_) @name body: (_))]) @class
(type_definition type: [
  (struct_specifier name: (_) @name body: (_)) (union_specifier name: (_) @name body: (_))
  (enum_specifier name: (_) @name body: (_))]) @class
(type_definition type: [
  (struct_specifier !name body: (_)) (union_specifier !name body: (_)) (enum_specifier !name body: (_))]
  . declarator: (type_identifier) @name) @class
(comment) @above
"""
_OF_CPP = """
(template_declaration (function_definition declarator: (_) @name)) @function
(class_specifier name: (_) @name body: (_)) @class
(declaration type: (class_specifier name: (_) @name body: (_))) @class
(template_declaration [
  (class_specifier name: (_) @name body: (_)) (struct_specifier name: (_) @name body: (_))
  (union_specifier name: (_) @name body: (_))]) @class
(namespace_definition name: (_) @name) @scope
"""
_C_SHARP = """
(method_declaration name: (_) @name) @function
(constructor_declaration name: (_) @name) @function
(destructor_declaration name: (_) @name) @function
(operator_declaration operator: _ @name) @function
(local_function_statement name: (_) @name) @function
(property_declaration name: (_) @name accessors: (accessor_list (accessor_declaration body: (_)))) @function
(class_declaration name: (_) @name) @class
(struct_declaration name: (_) @name) @class
(record_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @class
(enum_declaration name: (_) @name) @class
(namespace_declaration name: (_) @name) @scope
(comment) @above
"""
_RUBY = """
(method name: (_) @name) @function
(singleton_method name: (_) @name) @function
(class name: (_) @name) @class
(module name: (_) @name) @class
(comment) @above
"""
_PHP = """
(function_definition name: (_) @name) @function
(method_declaration name: (_) @name) @function
(class_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @class
(trait_declaration name: (_) @name) @class
(enum_declaration name: (_) @name) @class
(namespace_definition name: (_) @name body: (_)) @scope
(comment) @above
"""
_BASH = """
(function_definition name: (_) @name) @function
(comment) @above
"""
_GRAMMARS = {
    ".py .pyi .pyw": Grammar("Python", "tree_sitter_python", _PYTHON),
    ".js .jsx .mjs .cjs": Grammar("JavaScript", "tree_sitter_javascript", _JAVASCRIPT + _OF_JAVASCRIPT),
    ".ts .mts .cts": Grammar(
        "TypeScript", "tree_sitter_typescript", _JAVASCRIPT + _OF_TYPESCRIPT, entry="language_typescript"
    ),
    ".tsx": Grammar("TypeScript", "tree_sitter_typescript", _JAVASCRIPT + _OF_TYPESCRIPT, entry="language_tsx"),
    ".java": Grammar("Java", "tree_sitter_java", _JAVA),
    ".go": Grammar("Go", "tree_sitter_go", _GO),
    ".rs": Grammar("Rust", "tree_sitter_rust", _RUST, separator="::"),
    ".c": Grammar("C", "tree_sitter_c", _C, unread=_MACRO),
    ".h .cc .cpp .cxx .hh .hpp .hxx .inl .cu .cuh": Grammar(
        "C++", "tree_sitter_cpp", _C + _OF_CPP, separator="::", unread=_MACRO
    ),
    ".cs": Grammar("C#", "tree_sitter_c_sharp", _C_SHARP),
    ".rb": Grammar("Ruby", "tree_sitter_ruby", _RUBY, separator="::"),
    ".php": Grammar("PHP", "tree_sitter_php", _PHP, entry="language_php", separator="::"),
    ".sh .bash": Grammar("Bash", "tree_sitter_bash", _BASH),
}
INSTALL = 'pip install "retrieve-rerank[code]"'
_BY_SUFFIX = {suffix: grammar for suffixes, grammar in _GRAMMARS.items() for suffix in suffixes.split()}


def grammar_of(suffix: str) -> Grammar | None:
    """Return the grammar of a file by its suffix (`.py`), None where there is none."""
    return _BY_SUFFIX.get(suffix.lower())


def missing_grammar(suffix: str) -> str | None:
    """Say which language is not installed that a suffix stands for, and what to do; None where nothing is missing."""
    grammar = grammar_of(suffix)
    if grammar is None or loaded(grammar) is not None:
        return None
    return f"{grammar.name} ({INSTALL})"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A grammar that is installed, and its query."""

    language: Language
    query: Query


@functools.cache
def loaded(grammar: Grammar) -> Loaded | None:
    """Load a grammar; None where it is not installed."""
    try:
        from tree_sitter import Language, Query

        language = Language(getattr(importlib.import_module(grammar.module), grammar.entry)())
    except ImportError:
        return None
    return Loaded(language, Query(language, grammar.query))

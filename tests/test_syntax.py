"""Units of code: each language's definitions, what lies between, long ones, and texts that are hardly code."""

import re
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.grammars import grammar_of, missing_grammar
from retrieval.syntax import LONGEST, code_units, definitions, parsed
from retrieval.units import Unit

SUFFIXES = [".py", ".js", ".jsx", ".ts", ".tsx", ".java", ".go", ".rs", ".c", ".h", ".cpp", ".cs", ".rb", ".php", ".sh"]


def units_of(text: str, suffix: str) -> list[Unit]:
    units = code_units(text, suffix)
    assert units is not None
    check(text, units)
    return units


def check(text: str, units: list[Unit]) -> None:
    """What always holds: every visible character lies in exactly one unit, and none begins or ends with blank lines."""
    at = 0
    for unit in units:
        assert not text[at : unit.start].strip()
        part = text[unit.start : unit.end]
        assert part == part.rstrip() and part.strip() and not re.match(r"[ \t]*\n", part)
        assert not text[text.rfind("\n", 0, unit.start) + 1 : unit.start].strip() or "\n" not in text[at : unit.start]
        at = unit.end
    assert not text[at:].strip()


def outline(text: str, suffix: str) -> list[str]:
    """`kind section: first line` of each unit."""
    return [f"{u.kind} {u.section}: {text[u.start : u.end].split(chr(10))[0].strip()}" for u in units_of(text, suffix)]


LANGUAGES = {
    "a.py": (
        """
        import os
        LIMIT = {"a": 1, "b": 2}

        # above
        @cached
        async def f(x):
            \"\"\"Doc.\"\"\"
            def inner(): pass
            return inner

        class A(B):
            \"\"\"Doc of A.\"\"\"
            field = 1
            @property
            def x(self): return 1
            @x.setter
            def x(self, value): pass
            also_a_field: int = 2 + 3 + 4 + 5 + 6
            class Inner:
                def y(self): return 2

        if os:
            def g(): return 1
        """,
        [
            "code : import os",
            "function f: # above",
            "class A: class A(B):",
            "method A.x: @property",
            "code A: also_a_field: int = 2 + 3 + 4 + 5 + 6",
            "class A.Inner: class Inner:",
            "method A.Inner.y: def y(self): return 2",
            "function g: if os:",
        ],
    ),
    "a.js": (
        """
        'use strict'; import x from 'a-module';
        /** Adds. */
        export function add(a, b) { return a + b; }
        const mul = (a, b) => a * b;
        module.exports.sub = function (a, b) { return a - b; };
        export default class Foo extends Bar {
          #x = 1;
          static async *all() { yield 1; }
          // doc
          handler = () => { return 1; };
        }
        (function () { function inner() { return <a>b</a>; } })();
        """,
        [
            "code : 'use strict'; import x from 'a-module';",
            "function add: /** Adds. */",
            "function mul: const mul = (a, b) => a * b;",
            "function module.exports.sub: module.exports.sub = function (a, b) { return a - b; };",
            "class Foo: export default class Foo extends Bar {",
            "method Foo.all: static async *all() { yield 1; }",
            "method Foo.handler: // doc",
            "function inner: (function () { function inner() { return <a>b</a>; } })();",
        ],
    ),
    "a.ts": (
        """
        /** A point. */
        export interface Point { x: number }
        export abstract class Foo<T> {
          private x = 1;
          // doc
          @Input() @Other
          name(): string { return 'a'; }
          abstract y(): void;
        }
        namespace A.B { export const f = (x: number): number => x; }
        function over(a: string): void;
        function over(a: any): void { }
        """,
        [
            "class Point: /** A point. */",
            "class Foo: export abstract class Foo<T> {",
            "method Foo.name: // doc",
            "function A.B.f: namespace A.B { export const f = (x: number): number => x; }",
            "function over: function over(a: string): void;",
        ],
    ),
    "A.java": (
        """
        package a.b; import java.util.List;
        /** Doc of A. */
        @Deprecated
        public class A<T> {
            private int x = 1;
            /** Makes it. */
            public A() { x = 2; }
            @Override public String toString() { return "A"; }
            interface I { void g(); }
            record R(int a) { R { assert a > 0; } }
        }
        """,
        [
            "code : package a.b; import java.util.List;",
            "class A: /** Doc of A. */",
            "method A.A: /** Makes it. */",
            'method A.toString: @Override public String toString() { return "A"; }',
            "class A.I: interface I {",
            "method A.I.g: void g(); }",
            "class A.R: record R(int a) {",
            "method A.R.R: R { assert a > 0; } }",
        ],
    ),
    "a.go": (
        """
        package a

        // Reader reads.
        type Reader[T any] struct { x int }

        // Read it
        // well.
        func (r *Reader[T]) Read(p []byte) (n int, err error) { return 0, nil }
        func Map[K comparable](m map[K]int) {}
        """,
        [
            "class Reader: package a",
            "method Reader.Read: // Read it",
            "function Map: func Map[K comparable](m map[K]int) {}",
        ],
    ),
    "a.rs": (
        """
        use std::fmt; use std::collections::HashMap;

        /// A point.
        /// In a plane.
        #[derive(Debug)]
        pub struct Point<T> { x: T }
        impl<T: Copy> fmt::Display for Point<T> {
            /// Shows it.
            #[inline]
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result { Ok(()) }
        }
        mod inner { pub fn f() {} }
        """,
        [
            "code : use std::fmt; use std::collections::HashMap;",
            "class Point: /// A point.",
            "code Point: impl<T: Copy> fmt::Display for Point<T> {",
            "method Point::fmt: /// Shows it.",
            "function inner::f: mod inner { pub fn f() {} }",
        ],
    ),
    "a.c": (
        """
        #include <stdio.h>
        #include <stdlib.h>

        /** A point. */
        typedef struct { int x; } point;
        struct node { struct node *next; };
        #ifdef A
        /* Adds. */
        static int add(int a, int b)
        {
            return a + b;
        }
        #endif
        char **names(void) { return 0; }
        """,
        [
            "code : #include <stdio.h>",
            "class point: /** A point. */",
            "class node: struct node { struct node *next; };",
            "function add: #ifdef A",
            "function names: char **names(void) { return 0; }",
        ],
    ),
    "a.hpp": (
        """
        namespace a { namespace b::c {
        /// A class.
        template <typename T>
        class Foo : public Bar<T> {
         public:
          Foo() : x_(1) {}
          bool operator==(const Foo& o) const { return true; }
         private:
          int x_; float y_; double z_; char w_;
        };
        template <typename T> int& Foo<T>::at(int i) { return x_; }
        } }
        """,
        [
            "code : namespace a { namespace b::c {",
            "class a::b::c::Foo: /// A class.",
            "method a::b::c::Foo::Foo: Foo() : x_(1) {}",
            "method a::b::c::Foo::operator==: bool operator==(const Foo& o) const { return true; }",
            "code a::b::c::Foo: private:",
            "method a::b::c::Foo::at: template <typename T> int& Foo<T>::at(int i) { return x_; }",
        ],
    ),
    "a.cs": (
        """
        namespace A {
        /// <summary>Doc.</summary>
        [Serializable]
        public class Foo<T> : Bar {
            public int Prop { get; set; }
            /// <summary>Makes.</summary>
            public Foo() { }
            public async Task<int> RunAsync(int a) { return await F(); }
        }
        }
        """,
        [
            "class A.Foo: namespace A {",
            "method A.Foo.Foo: /// <summary>Makes.</summary>",
            "method A.Foo.RunAsync: public async Task<int> RunAsync(int a) { return await F(); }",
        ],
    ),
    "a.rb": (
        """
        module A
          # A class.
          class B < C
            attr_reader :x
            # Makes one.
            def initialize(x)
              @x = x
            end
            def self.make = new(1)
          end
        end
        """,
        [
            "class A: module A",
            "class A::B: # A class.",
            "method A::B::initialize: # Makes one.",
            "method A::B::make: def self.make = new(1)",
        ],
    ),
    "a.php": (
        """
        <html><?php
        namespace A\\B;
        /** Doc of C. */
        #[Attr]
        final class C extends D {
            private $x = 1;
            /** Makes. */
            public function __construct(private int $y) { $this->x = 1; }
        }
        // Adds.
        function add($a, $b) { return $a + $b; }
        """,
        [
            "class C: <html><?php",
            "method C::__construct: /** Makes. */",
            "function add: // Adds.",
        ],
    ),
    "a.sh": (
        """
        #!/bin/bash
        set -euo pipefail; shopt -s nullglob
        # Says hello.
        hello() {
          echo "hello $1"
        }
        function bye { echo bye; }
        """,
        ["code : #!/bin/bash", "function hello: # Says hello.", "function bye: function bye { echo bye; }"],
    ),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_definitions_of_each_language_are_units(name: str) -> None:
    text, expected = LANGUAGES[name]
    text = textwrap.dedent(text)
    suffix = "." + name.split(".")[1]
    assert outline(text, suffix) == expected
    for other in (text.replace("\n", "\r\n"), text.replace("\n", "\r")):
        found = units_of(other, suffix)
        assert [f"{u.kind} {u.section}" for u in found] == [
            line.partition(":")[0] for line in expected if ":" in line
        ] or ([(u.kind, u.section) for u in found] == [(u.kind, u.section) for u in units_of(text, suffix)])


def test_what_has_no_grammar_is_none() -> None:
    assert code_units("x", ".lua") is None and missing_grammar(".lua") is None
    assert grammar_of(".PY") is grammar_of(".py") and missing_grammar(".py") is None
    assert code_units("", ".py") == [] and code_units(" \n\t\n", ".py") == []


def test_a_comment_belongs_to_a_definition_only_directly_above_it() -> None:
    text = (
        "x = 'some more words here'  # about x\ndef f(): pass\n\n# apart from all that follows below\n\ndef g(): pass\n"
    )
    assert outline(text, ".py") == [
        "code : x = 'some more words here'  # about x",
        "function f: def f(): pass",
        "code : # apart from all that follows below",
        "function g: def g(): pass",
    ]


def test_a_comment_on_the_line_of_a_definition_belongs_to_it_after_other_code_too() -> None:
    text = "class A { int some = 1, other = 2; /** Adds. */ int add() { return 1; } }\n"
    assert outline(text, ".java") == [
        "class A: class A { int some = 1, other = 2;", "method A.add: /** Adds. */ int add() { return 1; } }",
    ]  # fmt: skip
    above = {".java": "class A { int b; // of b\n int c() { return 1; } }", ".rs": "use a; /// of a\nfn c() {}\n"}
    for suffix, text in above.items():
        source = parsed(text, suffix)
        assert source and [one.notes for one in definitions(source)][-1] == []


def test_macros_before_the_name_of_a_class_are_passed_over() -> None:
    text = (
        "namespace a {\nclass MY_EXPORT(1) Foo final : public Bar {\n  void f() {}\n};\nstruct EXPORTED Baz {\n"
        "  int x;\n  int g() { return x; }\n};\nstruct POINT origin = {1, 2};\n}\n"
    )
    assert [(u.kind, u.section) for u in units_of(text, ".h")] == [
        ("class", "a::Foo"),
        ("method", "a::Foo::f"),
        ("class", "a::Baz"),
        ("method", "a::Baz::g"),
        ("code", ""),
    ]


def test_offsets_are_characters() -> None:
    text = "# é😀 ω\n\n\ndef größe():\n    return '桜'\n\n\ndef 東(x):\n    return 1\n"
    found = units_of(text, ".py")
    assert [(u.section, text[u.start : u.end]) for u in found][-2:] == [
        ("größe", "# é😀 ω\n\n\ndef größe():\n    return '桜'"),
        ("東", "def 東(x):\n    return 1"),
    ]


def test_a_long_function_is_cut_where_statements_begin() -> None:
    def block(name: str) -> str:
        return f"    # about {name}\n    if {name}:\n" + "".join(f"        {name}_{n} = call({n})\n" for n in range(12))

    body = "".join(block(name) for name in ("one", "two", "three", "four"))
    text = f'def f(a):\n    """Doc."""\n{body}    return a\n'
    found = units_of(text, ".py")
    assert len(found) == 2 and {(u.section, u.kind) for u in found} == {("f", "function")}
    assert max(u.end - u.start for u in found) <= LONGEST
    assert text[found[1].start :].startswith("    # about three\n")


def test_what_cannot_be_cut_stays_long_and_its_neighbours_do_not() -> None:
    text = f"def f():\n    x = '''{'words ' * 400}'''\n    return x\n\ndef g():\n    return 1\n"
    found = units_of(text, ".py")
    assert [u.section for u in found] == ["f", "f", "g"]
    assert found[0].end - found[0].start > LONGEST


def test_data_is_cut_between_its_entries() -> None:
    text = "TABLE = [\n" + "".join(f'    ("key {n}", {n}),\n' for n in range(200)) + "]\n"
    found = units_of(text, ".py")
    assert len(found) > 4 and all(u.end - u.start <= LONGEST for u in found)
    assert all(text[u.start : u.end].count("(") == text[u.start : u.end].count(")") for u in found)


JUNK = {
    "brackets": "x = " + "[" * 10_000 + "]" * 10_000,
    "open": "f(" * 5_000,
    "conflict": "def f():\n<<<<<<< HEAD\n    a = 1\n=======\n    a = 2\n>>>>>>> b\n    return a\n\ndef g(:\n    pass\n",
    "prose": "The ferry crosses the strait twice a day, and the harbour master notes who comes. " * 200,
    "unclosed": '"""' + "abc def\n" * 500,
    "blanks": "\ufeff\x0c \x00\n\u2028\x85",
    "surrogate": "def f():\n    return '\ud800'\n",
    "chain": "if a: pass\n" + "elif b: pass\n" * 3_000,
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", JUNK)
def test_any_text_gives_units(suffix: str, name: str) -> None:
    text = JUNK[name]
    units = code_units(text, suffix)
    if units is not None:  # else it was given up
        assert "".join("".join(text[u.start : u.end].split()) for u in units) == "".join(text.split())


def test_broken_code_keeps_its_sound_functions() -> None:
    found = {u.section for u in units_of(JUNK["conflict"], ".py")}
    assert {"f", "g"} & found


PIECES = [
    "def f(x):",
    "class A:",
    "    return 1",
    "\n",
    "{",
    "}",
    "(",
    ")",
    "/* a */",
    "# b",
    "// c",
    "é😀",
    '"',
    ";",
    "\t",
    "fn f() {}",
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60), st.sampled_from(SUFFIXES))
def test_every_visible_character_lies_in_one_unit(pieces: list[str], suffix: str) -> None:
    units_of("".join(pieces), suffix)


def test_a_text_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def f(): pass\n" * 5_000
    assert len(units_of(text, ".py")) > 90
    monkeypatch.setattr("retrieval.syntax._STEPS", 10)
    monkeypatch.setattr("retrieval.syntax._STEP_BYTES", 10**9)
    assert code_units(text, ".py") is None


def test_a_large_file_takes_seconds_at_most() -> None:
    text = "".join(f"def f{n}(a, b):\n    '''Doc of {n}.'''\n    return [a, b, {n}]\n\n\n" for n in range(20_000))
    assert len(text) > 1_000_000
    assert len(units_of(text, ".py")) == 20_000


@pytest.mark.parametrize("suffix", [".py", ".js", ".java"])
def test_a_heap_of_signs_is_given_up(suffix: str) -> None:
    started = time.process_time()
    assert code_units("(" * 60_000, suffix) is None
    assert time.process_time() - started < 5


def test_a_line_as_long_as_the_file_takes_seconds_at_most() -> None:
    started = time.process_time()
    text = "function f(){};" * 40_000
    units = code_units(text, ".js")
    assert units and (units[0].start, units[-1].end) == (0, len(text))
    assert time.process_time() - started < 10
    units = code_units(f"{' ' * 10_000}/* why */ function f(){{}}\n\n\n  let x = 1; /* g */\nfunction g(){{}}\n", ".js")
    assert units is not None and [unit.section for unit in units] == ["f", "g"]


def test_threads_do_not_disturb_each_other() -> None:
    texts = {name: textwrap.dedent(text) for name, (text, _) in LANGUAGES.items()}
    found: dict[tuple[str, int], Any] = {}

    def work(number: int) -> None:
        for name, text in texts.items():
            found[name, number] = code_units(text * 20, "." + name.split(".")[1])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, text in texts.items():
        alone = code_units(text * 20, "." + name.split(".")[1])
        assert all(found[name, number] == alone for number in range(4))


def test_without_the_extra_it_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "tree_sitter.py").write_text("raise ImportError('not installed')")
    shown = "code_units('x = 1', '.py'), missing_grammar('.py'), missing_grammar('.md')"
    code = f"from retrieval.grammars import missing_grammar; from retrieval.syntax import code_units; print({shown})"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown == 'None Python (pip install "retrieve-rerank[code]") None\n'

"""Functions of other languages than Python: found, told from their documentation, left out, compared."""

import textwrap

import pytest

from retrieval.errors import DataError
from retrieval.eval.commented import commented_functions, documentation_of
from retrieval.eval.functions import Function
from retrieval.eval.summaries import summary

SOURCES = {
    ".js": (
        """
        /**
         * Adds {@link Point points} to a `Set`.
         *
         * @param {Point} a first
         */
        export const add = async (a, b) => {
          const c = a + b;
          log(c);
          return c; // not undefined
        };
        """,
        "Adds Point points to a Set.",
        "add",
    ),
    ".ts": (
        """
        class Shop {
          /** Opens the shop for a day. */
          @Logged()
          async open(day: Day): Promise<void> {
            const text = `first
              second`;
            await this.unlock(day);
            this.state = text;
          }
        }
        """,
        "Opens the shop for a day.",
        "Shop.open",
    ),
    ".java": (
        """
        public class A<T> {
            /**
             * Returns the <b>largest</b> of some {@code values}.
             * <p>Second paragraph.
             * @return it
             */
            @Nullable
            // eslint-disable-line
            public int largest(int... values) {
                int best = 0;
                for (int value : values) { best = Math.max(best, value); }
                return best;
            }
        }
        """,
        "Returns the largest of some values.",
        "A.largest",
    ),
    ".go": (
        """
        package a

        // Read copies what is left into p.
        // It does not block.
        //
        //go:noinline
        func (r *Reader) Read(p []byte) (int, error) {
        \tn := copy(p, r.rest)
        \tr.rest = r.rest[n:]
        \treturn n, nil
        }
        """,
        "Read copies what is left into p. It does not block.",
        "Reader.Read",
    ),
    ".rs": (
        """
        impl<T> Point<T> {
            /// Moves a point by a vector.
            #[inline]
            /// In place.
            pub fn shift(&mut self, by: &T) -> bool {
                let before = self.x;
                self.x += by;
                before != self.x
            }
        }
        """,
        "Moves a point by a vector. In place.",
        "Point::shift",
    ),
    ".c": (
        """
        /*
         * Counts the lines of a file
         */
        static int count(FILE *file)
        {
            int lines = 0, c;
            while ((c = getc(file)) != EOF)
                lines += c == '\\n';
            return lines;
        }
        """,
        "Counts the lines of a file",
        "count",
    ),
    ".cpp": (
        """
        namespace a {
        //! @brief Finds the nearest neighbour
        //! @param x where
        template <class T>
        int Tree<T>::nearest(const T& x) const {
          auto node = root();
          descend(node, x);
          return node->id;
        }
        }
        """,
        "Finds the nearest neighbour",
        "a::Tree::nearest",
    ),
    ".cs": (
        """
        class Shop {
            /// <summary>
            /// Sells an item to a <see cref="T:Customer"/>.
            /// </summary>
            /// <param name="item">What.</param>
            [Logged]
            public async Task<bool> SellAsync(Item item) {
                var price = item.Price;
                await Pay(price);
                return true;
            }
        }
        """,
        "Sells an item to a Customer.",
        "Shop.SellAsync",
    ),
    ".rb": (
        """
        module Shop
          # Gives the change in as few coins as possible.
          #
          # @param cents [Integer]
          def self.change(cents)
            coins = []
            each { |coin| coins << coin }
            coins.sort
          end
        end
        """,
        "Gives the change in as few coins as possible.",
        "Shop::change",
    ),
    ".php": (
        """
        <?php
        class Cart {
            /**
             * Empties the cart of a customer.
             *
             * @return void
             */
            #[Pure]
            public function clear(int $customer) {
                $items = $this->items[$customer];
                unset($this->items[$customer]);
                return $items;
            }
        }
        """,
        "Empties the cart of a customer.",
        "Cart::clear",
    ),
    ".sh": (
        """
        #!/bin/bash
        # Copies a folder to the backup host.
        backup() {
          local host=$1
          rsync -a "$2" "$host:"
          echo "done"
        }
        """,
        "Copies a folder to the backup host.",
        "backup",
    ),
}


def source_of(suffix: str) -> str:
    return textwrap.dedent(SOURCES[suffix][0]).strip("\n") + "\n"


def only(text: str, suffix: str) -> Function:
    (found,) = commented_functions(text, suffix)
    assert not found.left_out, found.left_out
    return found


@pytest.mark.parametrize("suffix", SOURCES)
def test_a_function_is_told_from_its_documentation(suffix: str) -> None:
    text = source_of(suffix)
    found = only(text, suffix)
    _, query, name = SOURCES[suffix]
    assert found.name == name
    assert summary(found.documentation).text == query and not summary(found.documentation).unusable
    assert query[:12] not in found.code and not found.code.startswith((" ", "\t", "/*", "//", "# "))
    lines = text.split("\n")
    assert lines[found.start_line - 1].strip() == found.code.split("\n")[0].strip()
    assert lines[found.end_line - 1].strip() == found.code.split("\n")[-1].strip()


@pytest.mark.parametrize("suffix", SOURCES)
def test_layout_comments_and_documentation_make_no_other_function(suffix: str) -> None:
    text = source_of(suffix)
    found = only(text, suffix)
    assert only(text.replace("\n", "\r\n").replace("  ", "    "), suffix).fingerprint == found.fingerprint
    if suffix in (".js", ".go", ".c", ".rb", ".sh"):  # the others' code is no file by itself
        assert only(found.code, suffix).fingerprint == found.fingerprint
    changed = text.replace("lines", "rows").replace("before", "old").replace("text", "words").replace("price", "cost")
    for old, new in (("best", "most"), ("rest", "left"), ("coins", "money"), ("node", "leaf"), ("items", "goods")):
        changed = changed.replace(old, new)
    changed = changed.replace("c = a + b", "c = a - b").replace("$host:", "$host:/")
    assert only(changed, suffix).fingerprint != found.fingerprint


BODY = "{ g(x); if (x > 1) { return x; }; return x; }"
AMONG_CODE = {  # what stands before a function, the function, what stands behind it
    ".js": ("class A {", f"f(x) {BODY}", "}"),
    ".ts": ("class A {", f"f(x: number): number {BODY}", "}"),
    ".java": ("public class A {", f"public int f(int x) {BODY}", "}"),
    ".cs": ("class A {", f"int f(int x) {BODY}", "}"),
    ".c": ("int a;", f"int f(int x) {BODY}", ""),
    ".cpp": ("class A {", f"int f(int x) {BODY}", "};"),
    ".go": ("package a;", f"func f(x int) int {BODY}", ""),
    ".rs": ("use a;", f"fn f(x: i32) -> i32 {BODY}", ""),
    ".php": ("<?php class A {", f"function f($x) {BODY}", "}"),
}


@pytest.mark.parametrize("suffix", AMONG_CODE)
@pytest.mark.parametrize(
    "layout", ["{}\n\t{}\n\t{}\n{}\n", "{}\r\n  {}\r\n  {}\r\n{}", "{}\n  {} {}\n{}", "{} {} {} {}\n"]
)
def test_a_comment_of_one_line_documents_what_follows_it(suffix: str, layout: str) -> None:
    before, code, behind = AMONG_CODE[suffix]
    for comment in ("/** Adds one to the number. */", "/* Adds one to the number. */"):
        found = only(layout.format(before, comment, code, behind), suffix)
        assert (found.code, found.documentation) == (code, "Adds one to the number.")


def test_indentation_goes_but_not_that_of_strings() -> None:
    code = only(source_of(".ts"), ".ts").code
    assert code.startswith("@Logged()\nasync open(day: Day): Promise<void> {\n  const text = `first\n")
    assert "\n      second`;\n  await" in code


@pytest.mark.parametrize(
    ("text", "suffix", "why"),
    [
        ("/** Adds. */\nfunction add(a, b) { return a + b; }", ".js", "trivial: fewer than 3 statements"),
        ("interface A { /** Adds it up. */ int add(int a); }", ".java", "signature without a body"),
        ("func TestAdd(t *testing.T) {\n\ta()\n\tb()\n\tc()\n}", ".go", "test function"),
        ("int f(void) { a(); b(); c( = ; d(); }", ".c", "syntax that cannot be parsed"),
    ],
)
def test_what_is_no_document(text: str, suffix: str, why: str) -> None:
    (found,) = commented_functions(text, suffix)
    assert (found.left_out, found.code, found.fingerprint) == (why, "", "")


def test_statements_are_counted_in_blocks_as_well() -> None:
    three = "function f(a) {\n  if (a) {\n    g(a);\n    return 1;\n  }\n}\n"
    assert only(three, ".js").name == "f"
    assert only("def f(a)\n  if a\n    g(a)\n    h(a)\n  end\nend\n", ".rb").name == "f"
    assert commented_functions("fn f(a: i32, b: i32, c: i32) -> i32 { g(|x: i32, y: i32| x + y) }", ".rs")[0].left_out


@pytest.mark.parametrize(
    ("comments", "suffix", "documentation"),
    [
        (["// Adds two numbers.", "// Slowly."], ".js", "Adds two numbers.\n Slowly."),
        (["// ------- Section -------", "// ----------", "// Adds."], ".c", "Adds."),
        (["// old();", "// add(a, b);"], ".js", ""),
        (["// Copyright 2020 Somebody"], ".js", ""),
        (["// see https://example.org/a"], ".js", ""),
        (["// See https://example.org/a for the format."], ".go", "See https://example.org/a for the format."),
        (["/* Old. */", "/** New. */"], ".java", "New."),
        (["/** Doc. */", "// eslint-disable-next-line no-eval"], ".js", "Doc."),
        (["/*****************\n * Adds.\n *****************/"], ".c", "Adds."),
        (["/** {@inheritDoc} */"], ".java", ""),
        (["/// Adds.\n/// More."], ".rs", "Adds.\n More."),
        (["/**\n * \\brief Adds.\n * \\param a first\n */"], ".cpp", "Adds.\n @param a first"),
        (["#!/bin/bash"], ".sh", ""),
        ([], ".js", ""),
    ],
)
def test_what_comments_say(comments: list[str], suffix: str, documentation: str) -> None:
    found = documentation_of(comments, suffix)
    assert [line.strip() for line in found.split("\n")] == [line.strip() for line in documentation.split("\n")]


def test_what_cannot_be_read_is_said() -> None:
    with pytest.raises(DataError, match="too long"):
        commented_functions("x", ".lua")


@pytest.mark.parametrize("suffix", SOURCES)
def test_an_empty_file_has_none(suffix: str) -> None:
    assert commented_functions("", suffix) == []

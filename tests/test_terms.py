"""Terms of keyword search: words, identifiers, numbers, scripts, and texts that nobody wrote."""

from __future__ import annotations

import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.terms import query_terms, terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The weights are loaded; how?", "weight load"),
        ("Café NAÏVE Straße ŁÓDŹ", "cafe naiv strass łodz"),
        ("cafe\u0301", "cafe"),
        ("ＡＢＣ ﬁle", "abc file"),  # full width, a ligature
        ("file\u200bname", "file name"),
        ("", ""),
        (" .. -- ()", ""),
    ],
)
def test_words(text: str, found: str) -> None:
    assert terms(text) == found.split()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("is_valid toJSON", "is_valid is valid tojson to json"),
        ("HTTPServer2", "httpserver2 http server 2"),
        ("getUserId", "getuserid get user id"),
        ("get_user_id", "get_user_id get user id"),
        ("MAX_VALUES", "max_values max valu"),
        ("__init__", "__init__ init"),
        ("userIDs", "userids user id"),
        ("parseXMLString", "parsexmlstring pars xml string"),
        ("os.path.join", "os.path.join os path join"),
        ("self.getUserId()", "self.getuserid self getuserid get user id"),
        ("src/read_me.py", "src read_me.py read_me read me py"),
        ("v1.2.3", "v1.2.3 v1 v 1 2 3"),
        ("ORA-00942", "ora 00942"),
        ("utf8", "utf8 utf 8"),
        ("größe_2", "grosse_2 gross 2"),
    ],
)
def test_an_identifier_gives_the_whole_and_its_parts(text: str, found: str) -> None:
    assert terms(text) == found.split()


def test_the_whole_is_not_stemmed() -> None:
    assert terms("load_classes") == ["load_classes", "load", "class"]


def test_a_name_is_found_by_any_way_of_writing_its_parts() -> None:
    asked = set(terms("get user id"))
    for written in ("getUserId", "get_user_id", "GET_USER_ID", "user.getId", "get-user-id"):
        assert asked <= set(terms(written))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("中文分词", "中 文 分 词 中文 文分 分词"),
        ("在2015年", "在 2015 年"),
        ("用pandas读", "用 panda 读"),
        ("カタカナ", "カ タ カ ナ カタ タカ カナ"),
        ("ｶﾞ", "ガ"),  # half width, with its voicing mark
        ("한국어", "한 국 어 한국 국어"),
        ("हिन्दी", "हिन्दी"),  # vowel signs belong to the word
        ("привет, мир", "привет мир"),
    ],
)
def test_scripts(text: str, found: str) -> None:
    assert terms(text) == found.split()


def test_composed_and_decomposed_texts_give_the_same_terms() -> None:
    for text in ("Škoda Résumé", "한국어", "がぎぐ"):
        assert terms(unicodedata.normalize("NFD", text)) == terms(unicodedata.normalize("NFC", text))


@given(st.text())
def test_any_text_has_terms(text: str) -> None:
    found = terms(text)
    assert found == terms(text)
    assert all(0 < len(term) <= 64 and not term.isspace() for term in found)


def test_encoded_data_gives_no_endless_term() -> None:
    assert max(map(len, terms("Ab9" * 100_000))) <= 64


def test_threads_share_nothing() -> None:
    texts = [f"connections_{number} loadedClasses{number} running" for number in range(2_000)]
    alone = [terms(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(terms, texts)) == alone


def test_speed() -> None:
    text = " ".join(
        f"the quick getUserId_{number % 500} of os.path.join(reader, {number % 900})" for number in range(20_000)
    )
    terms(text[:50_000])
    begun = time.process_time()
    terms(text)
    assert len(text) / (time.process_time() - begun) > 300_000  # characters a second; some MB on an idle machine


@pytest.mark.parametrize(
    ("query", "names", "is_name"),
    [
        ("where is getUserId used", "getuserid", False),
        ("os.path.join of MAX_VALUES", "os.path.join max_values", False),
        ("perihelion", "", True),
        ("rate-limit-window", "", True),
        (" src/main_window.py\n", "main_window.py", True),
        ("how does it work", "", False),
        ("の", "", False),
        ("大沙东站在哪里", "", False),  # a sentence
        ("HTTP2是什么", "http2", False),
        ("", "", False),
        ("--", "", False),
    ],
)
def test_names_of_a_query(query: str, names: str, is_name: bool) -> None:
    found = query_terms(query)
    assert (found.terms, found.is_name) == (terms(query), is_name)
    assert found.names == names.split()


@pytest.mark.parametrize(
    ("query", "defined"),
    [
        ("Console", ["Console"]),
        (" class  Console ", ["Console"]),
        ("def add_row()", ["add_row"]),
        ("Table.add_row", ["Table.add_row"]),
        ("where is getUserId used by add_row", ["getUserId", "add_row"]),
        ("how tides rise", []),
        ("def", ["def"]),
        ("a-b", []),
        ("东站", ["东站"]),
    ],
)
def test_what_a_query_may_ask_the_definition_of(query: str, defined: list[str]) -> None:
    assert query_terms(query).defined == defined

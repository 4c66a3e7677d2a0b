from retrieval.eval.leaks import key, occurs


def test_words_of_a_query_are_found_whatever_is_between_them() -> None:
    assert occurs("Fill the tank .", "# fill(the) TANK now")
    assert not occurs("fill the tank", "fill the tanks")
    assert not occurs("...", "...")


def test_a_name_with_underscores_holds_its_words() -> None:
    assert occurs("Fill the tank.", "def fill_the_tank(): pass")
    assert not occurs("Fill the tank.", "def fillTheTank(): pass")


def test_texts_that_read_alike_have_one_key() -> None:
    assert key("The shared  summary!") == key("the_SHARED\n# summary")
    assert key("Straße 9") == key("STRASSE, 9") != key("Straße")

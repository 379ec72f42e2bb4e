"""Questions as queries: terms, phrases, tokens."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.archive.local.database import title_words
from backstory.archive.query import Clause, IndexText, analyzer, index_text, parse_query, tokens


def phrases(text: str) -> list[tuple[str, ...]]:
    return [phrase for clause in parse_query(text).clauses for phrase in clause.alternatives]


class TestParseQuery:
    """Words are clauses, words of several parts are phrases, stop words never decide."""

    def test_words(self) -> None:
        assert phrases("ClickHouse migration") == [("clickhouse",), ("click", "house"), ("migration",)]

    def test_stop_words_are_dropped(self) -> None:
        assert phrases("how do I fix the build") == [("fix",), ("build",)]

    def test_only_stop_words_are_kept(self) -> None:
        assert phrases("to be or not to be") == [("to",), ("be",), ("or",), ("not",)]

    def test_paths_are_phrases(self) -> None:
        assert phrases("src/auth/token.py") == [("src", "auth", "token", "py")]

    def test_snake_case_is_a_phrase(self) -> None:
        assert phrases("user_name") == [("user", "name")]

    def test_camel_case_is_whole_and_in_parts(self) -> None:
        assert phrases("getUserName") == [("getusername",), ("get", "user", "name")]

    def test_capitals_in_a_row(self) -> None:
        assert phrases("HTTPServerError") == [("httpservererror",), ("http", "server", "error")]

    def test_quotes_are_exact(self) -> None:
        assert parse_query('"to be" token').clauses == (Clause((("to", "be"),), quoted=True), Clause((("token",),)))

    @pytest.mark.parametrize("text", ['("to be")', '"to be", token', '"to be": token', '検索"to be"検索', "“to be”s"])
    def test_quotes_beside_punctuation_and_other_scripts(self, text: str) -> None:
        assert Clause((("to", "be"),), quoted=True) in parse_query(text).clauses

    @pytest.mark.parametrize(
        "text",
        ['<b style="to be">', '{"to be":"not to be"}', '{"a": "to be"}', 'raise("to be")', "f'\"to be\"'", '["to be"]'],
    )
    def test_quotes_of_code_are_punctuation(self, text: str) -> None:
        """A pasted line is found where a number in it differs."""
        assert not parse_query(text).is_quoted

    def test_an_unclosed_quote_is_punctuation(self) -> None:
        assert phrases('say "hello') == [("say",), ("hello",)]

    def test_scripts_without_spaces_are_phrases_of_characters(self) -> None:
        assert phrases("数据库 エラー") == [("数", "据", "库"), ("エ", "ラ", "ー")]

    def test_korean_is_split_by_syllable(self) -> None:
        """A word is found with any particle that is joined to it, in composed and in decomposed form."""
        for text in ("데이터를", unicodedata.normalize("NFD", "데이터를")):
            assert phrases(text) == [("데", "이", "터", "를")]
            assert tokens(text) == ["데", "이", "터", "를"]

    def test_nothing_but_punctuation(self) -> None:
        assert parse_query("?!… --").clauses == ()

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        query = parse_query(text)
        assert all(phrase for clause in query.clauses for phrase in clause.alternatives)
        assert len(query.clauses) <= 48


class TestIndexText:
    """The index gets the text, separable, and the parts of its camelCase words."""

    def test_parts(self) -> None:
        assert index_text("call getUserName(x) or parseURLPath")[1] == "get User Name parse URL Path"

    def test_plain_words_have_no_parts(self) -> None:
        assert index_text("Plain words ALL CAPS snake_case") == ("Plain words ALL CAPS snake_case", "")

    def test_each_word_once(self) -> None:
        assert index_text("fooBar fooBar")[1] == "foo Bar"

    def test_characters_without_spaces_are_separated(self) -> None:
        assert tokens("错误x") == ["错", "误", "x"]

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        spaced, _ = index_text(text.encode("utf-8", "replace").decode())
        assert isinstance(spaced, str)

    @given(st.lists(st.text() | st.text("aB \\\\ntéé\u0301数"), min_size=1))
    def test_of_several_texts(self, texts: list[str]) -> None:
        """It is that of the texts as lines of one."""
        texts = [text.encode("utf-8", "replace").decode() for text in texts]
        joined = IndexText.joined([IndexText.of(text) for text in texts])
        assert (joined.spaced, joined.parts) == index_text("\n".join(texts))


class TestTitleWords:
    """The words of a title are those that the analyzer of the index gives, by whichever way."""

    @given(st.text(st.characters(max_codepoint=127)) | st.text(), st.sampled_from(("", "…")))
    def test_any_title(self, title: str, end: str) -> None:
        title = title.encode("utf-8", "replace").decode() + end
        assert title_words(title) == " ".join(analyzer().analyze(" ".join(index_text(title))))

    def test_long_words(self) -> None:
        assert title_words(f"{'x' * 79} {'y' * 80} {'z' * 81} fooBar…") == " ".join(
            analyzer().analyze(f"{'x' * 79} {'y' * 80} {'z' * 81} fooBar foo Bar")
        )

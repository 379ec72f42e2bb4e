"""The tokens that the ClickHouse engine finds events by."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from backstory.archive.clickhouse.common import COMMON, cover, term_of_pair
from backstory.archive.clickhouse.documents import GAP, STEM, event_document, splitter, text_tokens
from backstory.archive.query import STEMMERS, index_text
from backstory.model import EventType

ASCII = st.text(st.characters(codec="ascii"), max_size=200)


class TestTokens:
    """Texts of ASCII alone are split by a faster way, with the same result."""

    @given(ASCII)
    def test_words(self, text: str) -> None:
        spaced, parts = index_text(text)
        expected = splitter().analyze(spaced)
        assert text_tokens(text) == ([*expected, GAP, *splitter().analyze(parts)] if parts else expected)

    @given(ASCII)
    def test_stems(self, text: str) -> None:
        """Each word has one, in its language."""
        document = event_document(text, EventType.USER_INPUT, is_body=True)
        stems = [stem.removeprefix(STEM) for stem in document.stems.split("\n") if stem]
        languages = [splitter(language).analyze(index_text(text)[0]) for language in STEMMERS]
        assert any(each == stems for each in languages)

    def test_the_beginning_is_stemmed(self) -> None:
        """Of a long text, as much as in the local engine."""
        document = event_document("walking " * 99 + "running " + "jumping " * 99, EventType.USER_INPUT, is_body=True)
        assert document.stems.split("\n") == [*[f"{STEM}walk"] * 99, f"{STEM}run"]

    def test_a_body_of_ascii_is_split_by_the_server(self) -> None:
        """The parts of camelCase words follow its words behind a gap."""
        assert event_document("a getName", EventType.TOOL_RESPONSE, is_body=True)[:2] == (True, "\nget\nname")
        assert event_document("a b", EventType.TOOL_CALL, is_body=False)[:2] == (False, "a\nb")
        assert event_document("é b", EventType.TOOL_RESPONSE, is_body=True)[:2] == (False, "e\nb")

    def test_other_scripts_and_long_words(self) -> None:
        assert text_tokens("Straße getUserName 数据") == [
            "strasse",
            "getusername",
            "数",
            "据",
            GAP,
            "get",
            "user",
            "name",
        ]
        assert text_tokens("a " + "b" * 80) == ["a"]
        assert event_document("anything", EventType.UNKNOWN, is_body=True)[:2] == (False, "")


class TestPairs:
    def test_a_phrase(self) -> None:
        """Pairs stand for the words that they have; other words for themselves."""
        assert cover(("the",)) == ("the",)
        assert cover(("of", "the", "needle", "in", "hay", "is", "a", "file")) == (
            *("of the", "needle", "in", "hay", "is a", "a file"),
        )
        assert cover(("needle", "hay")) == ("needle", "hay")
        assert cover(("the", "the", "the")) == ("the the", "the the")

    def test_the_numbers_of_words_are_stored(self) -> None:
        """A word that is added needs a migration, and no other one may get its number."""
        assert (term_of_pair("the of"), term_of_pair("the")) == (4098, 0)
        assert len(set(COMMON)) == len(COMMON)
        assert hashlib.sha256(" ".join(COMMON).encode()).hexdigest().startswith("df4bc471c1842d8a")

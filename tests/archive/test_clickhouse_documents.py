"""The tokens that the ClickHouse engine finds events by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
        document = event_document(text, EventType.USER_INPUT)
        stems = [token for token in document.lines.split("\n") if token.startswith(STEM)]
        languages = [splitter(language).analyze(index_text(text)[0]) for language in STEMMERS]
        assert [stem.removeprefix(STEM) for stem in stems] in languages
        assert document.stem_count == len(stems)

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
        assert event_document("anything", EventType.UNKNOWN).lines == ""

"""Excerpts: the part that matches, or the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.archive.query import parse_query
from backstory.egress import egress
from backstory.toolsets.history.answers import Excerpt
from backstory.toolsets.history.snippet import HEAD_CHARS, MAX_CHARS, heads, snippets

FILLER = "lorem ipsum dolor sit amet consectetur "


# Of these, texts are put together that have secrets and hostile characters at any place.
PIECES = st.one_of(
    st.sampled_from([FILLER, "word ", "\n\n    ", "\t", "\x1b[31m", "\x1b]0;title", "\x07", "\u200b", "schön "]),
    st.sampled_from(["ghp_", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "password = ", '"hunter2hunter2" ', "api_key="]),
    st.sampled_from(["https://bot:", "s3cr3tPa55", "@example.com ", "Bearer ", "eyJhbGciOiJIUzI1NiJ9", ".eyJ", "."]),
    st.sampled_from(
        ["-----BEGIN PRIVATE KEY-----\n", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw\n", "-----END PRIVATE KEY-----"]
    ),
    st.integers(1, 700).map(lambda length: "x" * length),
    st.integers(1, 90).map(lambda count: "so it is " * count),
    st.text(max_size=5),
)


def head(text: str, *, more: bool = False) -> Excerpt:
    return heads([(text, more)], egress)[0]


def shown(text: str, query: str) -> Excerpt:
    return snippets([text], parse_query(query), list)[0]


class TestSnippet:
    def test_a_short_text_is_shown_whole(self) -> None:
        """On one line, whitespace folded, and not truncated."""
        assert shown("one\n\n  two\tthree ", "two") == Excerpt("one two three", False)

    def test_an_empty_text(self) -> None:
        """Nothing to show, nothing cut."""
        assert shown("", "two") == Excerpt("", False)

    def test_a_window_around_the_match(self) -> None:
        """The match is in it, it is short enough, whole words only, an ellipsis exactly where it is cut."""
        for before, after in product((0, 3, 40, 1000), repeat=2):
            text = FILLER * before + "the needle is here " + FILLER * after
            excerpt = shown(text, "needle")
            inner = excerpt.text.strip("…")

            assert "the needle is here" in inner
            assert len(excerpt.text) <= MAX_CHARS
            assert set(inner.split()) <= set(text.split())
            assert inner in " ".join(text.split())
            assert excerpt.text.startswith("…") is not text.startswith(inner)
            assert excerpt.text.endswith("…") is not text.strip().endswith(inner)
            assert excerpt.truncated is (inner != text.strip())

    def test_the_region_with_the_most_terms_wins(self) -> None:
        """Not the first occurrence of one of them."""
        text = "migration " + FILLER * 30 + "the migration order broke the schema view " + FILLER * 30 + " schema"
        assert "the migration order broke the schema view" in shown(text, "schema migration order").text

    def test_a_rare_term_beats_common_ones(self) -> None:
        """In a text that has the others on every line."""
        text = "cargo test passed\n" * 5000 + "cargo test failure in the parser\n" + "cargo test passed\n" * 5000
        assert "failure in the parser" in shown(text, "cargo test failure").text

    def test_terms_that_are_everywhere(self) -> None:
        """Any place is as good as another."""
        assert shown("cargo test " * 5000, "cargo test").text.startswith("cargo test")

    def test_words_before_parts_of_words(self) -> None:
        """`art` is looked for as a word; only where there is none it may be part of one."""
        assert "modern art" in shown("part cart smart " + FILLER * 30 + "modern art " + FILLER * 30, "art").text
        assert "getUserName" in shown(FILLER * 30 + "call getUserName() " + FILLER * 30, "user name").text

    def test_an_exact_phrase(self) -> None:
        """The phrase itself, not a place where its words are near one another."""
        scattered = "order of the view, by ordinal column "
        text = scattered + FILLER * 30 + "the ordinal column view order " + FILLER * 30
        assert "the ordinal column view order" in shown(text, '"column view order"').text

    def test_a_path(self) -> None:
        """Found across its separators."""
        text = "src and auth and token " + FILLER * 30 + "see src/auth/token.py, line 3 " + FILLER * 30
        assert "src/auth/token.py" in shown(text, "src/auth/token.py").text

    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("前面的文字" * 200 + "错误处理失败了" + "后面的内容" * 200, "错误处理"),
            ("слово " * 300 + "ОШИБКА подключения " + "слово " * 300, "ошибка подключения"),
            ("คำ " * 300 + "ข้อผิดพลาด " + "คำ " * 300, "ข้อผิดพลาด"),
            ("İ" * 5000 + " needle", "needle"),
            ("İ " * 500 + " needle", "needle"),
        ],
    )
    def test_other_scripts(self, text: str, query: str) -> None:
        """With and without spaces, and where lower case is longer than upper case."""
        excerpt = shown(text, query)
        assert query in excerpt.text.lower()
        assert len(excerpt.text) <= MAX_CHARS

    def test_text_without_spaces(self) -> None:
        """Cut where it must be."""
        assert len(shown("x" * 5000 + "needle" + "y" * 5000, "needle").text) == MAX_CHARS

    def test_no_match_shows_the_beginning(self) -> None:
        """Rather than nothing."""
        assert shown("alpha " + FILLER * 30, "zebra").text.startswith("alpha lorem")

    def test_a_term_longer_than_the_window(self) -> None:
        """It is cut like everything else."""
        path = "/".join(["directory" * 7] * 6)
        excerpt = shown(FILLER * 30 + path + " " + FILLER * 30, path)
        assert len(excerpt.text) <= MAX_CHARS
        assert "directory" in excerpt.text

    @given(st.text(max_size=2000), st.text(min_size=1, max_size=40))
    def test_any_text_and_any_question(self, text: str, query: str) -> None:
        """Never longer than allowed, one line, and truncated says whether all is there."""
        excerpt = shown(text, query)
        assert len(excerpt.text) <= MAX_CHARS
        assert excerpt.text == " ".join(excerpt.text.split())
        assert excerpt.truncated or excerpt.text == " ".join(text.split())

    @given(st.lists(st.lists(PIECES, max_size=30).map(lambda p: "needle ".join(p)), max_size=4))
    def test_nothing_is_uncovered_by_reading_only_the_neighbourhood(self, texts: list[str]) -> None:
        """A snippet is a part of what the whole text looks like once it was made fit to be shown."""
        for text, excerpt in zip(texts, snippets(texts, parse_query("needle hunter2hunter2"), egress), strict=True):
            line = " ".join(egress(text).split())
            assert excerpt.text.strip("…") in line
            assert excerpt.truncated is (excerpt.text.strip("…") != line.strip("…"))
            assert len(excerpt.text) <= MAX_CHARS

    def test_two_megabytes(self) -> None:
        """Only the neighbourhood of the match is redacted, which takes most of the time."""
        redacted: list[str] = []

        def egress_some(texts: Sequence[str]) -> list[str]:
            redacted.extend(texts)
            return egress(texts)

        text = FILLER * 50_000 + "the needle is here " + FILLER * 1000
        query = parse_query("needle here lorem src/auth/token.py")
        assert "needle" in snippets([text], query, egress_some)[0].text
        assert sum(map(len, redacted)) < 20_000


class TestSecrets:
    SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n"

    def test_a_cut_never_uncovers_one(self) -> None:
        """Wherever the window ends, the text was redacted before it was cut."""
        for offset in range(0, 400, 7):
            text = FILLER * 300 + "needle " + "x" * offset + f" {self.SECRET} " + FILLER * 300
            assert "ghp_" not in snippets([text], parse_query("needle"), egress)[0].text
            assert "ghp_" not in head("y" * offset + f" {self.SECRET} " + FILLER * 30).text
            torn = ("y " * offset + self.SECRET)[: HEAD_CHARS + offset % 20]
            assert "ghp_" not in head(torn, more=True).text or self.SECRET[:30] not in torn

    @pytest.mark.parametrize("name", ["api_key = ", "Authorization: Bearer ", "password:\n'"])
    def test_a_long_value_before_the_match(self, name: str) -> None:
        """It is recognised as a secret by its name, which is not near the match."""
        for length in range(100, 1200, 33):
            value = ("a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8" * 40)[:length]
            text = FILLER * 100 + name + value + "' needle " + FILLER * 100
            (excerpt,) = snippets([text], parse_query("needle"), egress)
            assert "a1B2" not in excerpt.text
            assert "[redacted:" in excerpt.text

    def test_a_secret_behind_another_one(self) -> None:
        """The text between it and the match shrinks when it is redacted."""
        for length in range(440, 1100, 20):
            secret, token = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEYab", "IQoJb3JpZ2luX2Vj" + "a1B2" * (length // 4)
            keys = f'"SecretAccessKey": "{secret}",\n    "SessionToken": "{token}",\n    "Expiration": "2026-01-01"'
            text = f"{FILLER * 60}\n{{\n    {keys}\n}}\n{FILLER * 60}"
            (excerpt,) = snippets([text], parse_query("Expiration"), egress)
            assert "Expiration" in excerpt.text
            assert not any(secret[start : start + 8] in excerpt.text for start in range(33))

    @pytest.mark.parametrize("blanks", [1, 500, 512, 540, 600])
    def test_a_secret_before_much_white_space(self, blanks: int) -> None:
        secret = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        text = f"{FILLER * 60}{secret}{' ' * blanks}needle {FILLER * 60}"
        (excerpt,) = snippets([text], parse_query("needle"), egress)
        assert not any(secret[start : start + 8] in excerpt.text for start in range(32))

    def test_a_secret_in_a_text_without_spaces(self) -> None:
        part = "a1B2c3D4" * 70
        token = f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{part}"
        text = '{"access_token":"' + token + '","expires_in":3600,"rows":[' + '{"a":1},' * 400 + "0]}"
        (excerpt,) = snippets([text], parse_query("expires_in"), egress)
        assert "expires_in" in excerpt.text
        assert "a1B2c3D4" not in excerpt.text

    def test_a_match_inside_a_private_key(self) -> None:
        """The key is recognised by its beginning, some thousand characters before."""
        key = f"-----BEGIN PRIVATE KEY-----\n{self.KEY_LINE * 45}needle\n{self.KEY_LINE * 5}-----END PRIVATE KEY-----"
        text = FILLER * 200 + key + FILLER * 200
        assert "MIIEvQ" not in snippets([text], parse_query("needle"), egress)[0].text


class TestHead:
    def test_a_short_text(self) -> None:
        """Shown whole."""
        assert head("two\nlines") == Excerpt("two lines", False)

    def test_a_long_text(self) -> None:
        """Its beginning, whole words, an ellipsis."""
        excerpt = head(FILLER * 30)
        assert excerpt.truncated
        assert len(excerpt.text) <= MAX_CHARS
        assert (FILLER * 30).startswith(excerpt.text.removesuffix("…"))
        assert excerpt.text.removesuffix("…").split()[-1] in FILLER.split()

    def test_a_text_that_is_itself_only_a_beginning(self) -> None:
        """It is truncated, however short it looks."""
        assert head("a b c torn", more=True) == Excerpt("a b c…", True)

    def test_a_single_word(self) -> None:
        """Is not dropped for being torn."""
        assert head("x" * 600).text == "x" * (MAX_CHARS - 2) + "…"

    def test_much_white_space(self) -> None:
        """Does not make it shorter than it could be."""
        excerpt = head("wide " + " \n" * 3000 + FILLER * 30)
        assert excerpt.text.startswith("wide lorem ipsum")
        assert len(excerpt.text) > MAX_CHARS - 40

    @pytest.mark.parametrize("size", [100, 500, 4000, 20_000, 60_000])
    def test_after_a_private_key(self, size: int) -> None:
        """The text goes on after it, however long the key is."""
        key = "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n" + ("lQdGBGZ1k2u\n" * (size // 12))
        text = f"this is my key:\n{key}-----END PGP PRIVATE KEY BLOCK-----\nplease " + FILLER * 30
        assert head(text).text.startswith("this is my key: [redacted:private-key] please lorem ipsum")

    @given(st.lists(st.lists(PIECES, max_size=12).map("".join), max_size=4))
    def test_nothing_is_lost_by_reading_only_the_beginning(self, texts: list[str]) -> None:
        """The head equals the beginning of the whole text after egress."""
        for text, excerpt in zip(texts, heads([(text, False) for text in texts], egress), strict=True):
            line = " ".join(egress(text).split())
            beginning = excerpt.text.removesuffix("…")
            assert line.startswith(beginning)
            assert excerpt.truncated is (beginning != line)
            assert len(beginning) >= MAX_CHARS - 42 or not excerpt.truncated
            assert not excerpt.truncated or len(line) > MAX_CHARS

"""Normalised names, token estimates and ranges of name prefixes."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from backstory.toolsets.capsules.capsule import normalise, prefix_end, tokens_estimate


class TestNormalise:
    CASES = (
        ("StartupA", "startupa"),
        ("  My Project  ", "my project"),
        ("LOUD_NAME", "loud_name"),
        ("a\t\n b\u00a0\u3000c", "a b c"),
        ("ÉCLAIR", "éclair"),
        ("ΟΔΟΣ", "οδος"),
        ("", ""),
        (" \t", ""),
    )

    def test_examples(self) -> None:
        """Trimmed, lowercase in any script, one space between words."""
        for raw, norm in self.CASES:
            assert normalise(raw) == norm

    @given(st.text())
    def test_is_stable(self, raw: str) -> None:
        """Normalising again changes nothing, and spacing or case around it neither."""
        norm = normalise(raw)

        assert normalise(norm) == norm
        assert normalise(f" \t{raw}\n ") == norm
        assert "  " not in norm
        assert norm == norm.strip()

    @given(st.lists(st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1)))
    def test_spacing_is_all_the_same(self, words: list[str]) -> None:
        assert normalise("\t ".join(words).upper()) == " ".join(words).lower()


class TestTokensEstimate:
    @given(st.integers(0, 5000))
    def test_is_words_times_1_3_rounded_up(self, words: int) -> None:
        assert tokens_estimate("w " * words) == math.ceil(words * 13 / 10)


class TestPrefixEnd:
    @given(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")))
    def test_bounds_exactly_what_starts_with_it(self, prefix: str, other: str) -> None:
        """In the order SQLite compares, which is that of UTF-8."""
        end = prefix_end(prefix)

        def between(name: str) -> bool:
            encoded = name.encode()
            return prefix.encode() <= encoded and (end is None or encoded < end.encode())

        assert between(prefix + other)
        assert between(other) == other.startswith(prefix)

"""Cursors: bound to their question, and not to be made up."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.toolsets.history.types import BadCursor, make_cursor, read_cursor


class TestCursor:
    @given(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(codec="utf-8")))
    def test_comes_back_as_it_was(self, number: int, id: str) -> None:
        """For the same question."""
        assert read_cursor(make_cursor((number, id), "list", 1, None), "list", 1, None) == (number, id)

    @pytest.mark.parametrize("question", [("list", 1), ("list", 2, None), ("open", 1, None), ("list", 1, "None"), ()])
    def test_another_question(self, question: tuple[object, ...]) -> None:
        """Is recognised as another one, also where its text is the same."""
        with pytest.raises(BadCursor, match="another request"):
            read_cursor(make_cursor((1, "x"), "list", 1, None), *question)

    @given(st.text(max_size=60))
    def test_anything_else(self, text: str) -> None:
        """Is refused with what to do."""
        with pytest.raises(BadCursor, match="next_cursor"):
            read_cursor(text, "list")

    @pytest.mark.parametrize("position", [[2**64 - 1, "x"], ["x", 1], [1], [1, "x", 2], [1.5, "x"]])
    def test_a_forged_position(self, position: list[object]) -> None:
        """Neither types nor numbers that a database would choke on."""
        encoded = msgspec.msgpack.encode([b"x" * 16, position])
        with pytest.raises(BadCursor):
            read_cursor(base64.urlsafe_b64encode(encoded).decode().rstrip("="), "list")

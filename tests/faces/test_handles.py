"""Short handles for sessions and turns."""

from __future__ import annotations

from typing import cast

import pytest

from backstory.archive.base import Archive, SessionRow, SessionsRequest
from backstory.faces.words import AmbiguousHandle, find_id, handle
from backstory.model import event_id, session_id, turn_id

RANDOM = "claude-code/6f0c1a2b-1111-4222-8333-444455556666"
HELPER = f"{RANDOM}/agent-a1b2c3"
OTHER = "claude-code/6f0caaaa-1111-4222-8333-444455556666"
TIMED = "codex/019f1d64-a048-7e10-8a4d-fd6b9e9d7b34"
NAMED = "goose/20260131_2"


class FakeArchive:
    def sessions(self, request: SessionsRequest) -> list[SessionRow]:
        return [SessionRow(key=key, source=key.split("/")[0]) for key in (RANDOM, HELPER, OTHER, TIMED, NAMED)]


ARCHIVE = cast(Archive, FakeArchive())


class TestHandle:
    def test_is_short_and_finds_its_way_back(self) -> None:
        """As many characters as tell sessions apart, for every way agents name sessions."""
        for key, short in [
            (RANDOM, "6f0c1a2b"),
            (HELPER, "6f0c1a2b/agent-a1b2c3"),
            (TIMED, "019f1d64-a048"),
            (NAMED, "20260131_2"),
        ]:
            assert handle(session_id(key)) == short, key
            assert find_id(ARCHIVE, short) == session_id(key), key
            assert handle(turn_id(key, 12)) == f"{short}:12", key
            assert find_id(ARCHIVE, f"{short}:12") == turn_id(key, 12), key

    def test_leaves_what_egress_would_change_encoded(self) -> None:
        """Programs choose the ids of live sessions and of telemetry; a terminal shows neither secrets nor escapes."""
        for native in ("a \x1b[31mred", "a\u202eb", "gh" + "p_" + "a1B2" * 9):
            assert handle(session_id(f"otel/{native}")) == session_id(f"otel/{native}")
            assert handle(turn_id(f"otel/{native}", 2)) == turn_id(f"otel/{native}", 2)

    def test_leaves_events_as_they_are(self) -> None:
        """Their ids are short already."""
        assert handle(event_id(bytes(16))) == event_id(bytes(16))


class TestFindId:
    def test_full_ids_pass(self) -> None:
        """Known or not: the tool decides."""
        for full in [session_id(RANDOM), turn_id(TIMED, 3), event_id(bytes(16)), session_id("x/y")]:
            assert find_id(ARCHIVE, full) == full, full

    def test_takes_any_unique_beginning(self) -> None:
        """With or without the agent's name; a subagent's session never stands in the way of its parent's."""
        for given in [RANDOM, RANDOM.split("/")[1], "claude-code/6f0c1", "6f0c1", "6f0c1a2b-1111"]:
            assert find_id(ARCHIVE, given) == session_id(RANDOM), given

    def test_ambiguous(self) -> None:
        """Nothing is guessed; the sessions are named."""
        with pytest.raises(
            AmbiguousHandle,
            match=r"'6f0c' matches 2 sessions.*: claude-code/6f0c1a2b.*6f0caaaa",
        ):
            find_id(ARCHIVE, "6f0c:1")

    def test_what_is_no_text_is_unknown(self) -> None:
        """Arguments of a command may be any bytes; SQLite refuses what is not Unicode."""
        archive = cast(Archive, None)
        for text in ("\udcff", "6f0c\udcff:2"):
            assert find_id(archive, text) == text

    def test_unknown_comes_back_as_it_is(self) -> None:
        """So that the tool says what it says of any bad id."""
        for given in ["", "/", "codex/", "none", "codex/6f0c1", "6f0c1a2b/agent-a1b2c3/x", "6f0c1:0"]:
            assert find_id(ARCHIVE, given) == given, given

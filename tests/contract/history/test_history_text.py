"""Answers are data: nothing hostile, nothing secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from history_world import NOON, SCRIPTS, SECRET, Call, event_of, session_of, turn_of

from backstory.config import Settings
from backstory.model import rfc3339

MARK = "[redacted:github-token]"
EVERYWHERE: list[tuple[str, dict[str, Any]]] = [
    ("search_sessions", {"query": "deploy token quickly"}),
    ("search_sessions", {"query": "gh release create", "event_types": ["tool_call"]}),
    ("open", {"id": session_of(SCRIPTS)}),
    ("open", {"id": turn_of(SCRIPTS, 3)}),
    ("open", {"id": event_of(SCRIPTS, 3, 1)}),
    ("open", {"id": event_of(SCRIPTS, 3, 2)}),
    ("list_sessions", {"start_datetime": rfc3339(NOON), "end_datetime": "2027-01-01T00:00:00Z"}),
]


class TestSecrets:
    @pytest.mark.parametrize(("tool", "arguments"), EVERYWHERE)
    def test_redacted_wherever_they_would_show(self, call: Call, tool: str, arguments: dict[str, Any]) -> None:
        """Titles, snippets, summaries, texts and arguments."""
        answer = str(call(tool, arguments))
        assert SECRET not in answer
        assert SECRET[4:20] not in answer
        assert MARK in answer

    def test_in_arguments(self, call: Call) -> None:
        """The structure stays, the secret goes."""
        content = call("open", id=event_of(SCRIPTS, 3, 2))["data"]["content"]
        assert content["arguments"] == {"command": f"GH_TOKEN={MARK} gh release create"}
        assert MARK in content["text"]

    def test_shown_when_the_setting_says_so(self, altered: Callable[..., Call]) -> None:
        """It is the owner's machine."""
        call = altered(Settings(redact="off"))
        assert SECRET in call("open", id=event_of(SCRIPTS, 3, 1))["data"]["content"]["text"]

    def test_the_query_is_echoed_as_typed(self, call: Call) -> None:
        """The words of the caller are not history."""
        assert call("search_sessions", query=SECRET)["request"]["query"] == SECRET


class TestHostileText:
    def test_nothing_acts_on_the_reader_unseen(self, call: Call) -> None:
        """Terminal escapes and bidi controls are stripped, with redaction on or off."""
        text = call("open", id=event_of(SCRIPTS, 3, 3))["data"]["content"]["text"]
        assert text == "released in red and backwards"

    def test_also_without_redaction(self, altered: Callable[..., Call]) -> None:
        """Showing secrets does not mean obeying them."""
        call = altered(Settings(redact="off"))
        assert call("open", id=event_of(SCRIPTS, 3, 3))["data"]["content"]["text"] == "released in red and backwards"

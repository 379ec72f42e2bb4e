"""Rows as the contract shows them."""

from __future__ import annotations

from typing import Any

import pytest

from backstory.archive.base import EventRow, SessionRow, TurnRow
from backstory.model import EventType
from backstory.toolsets.history.views import UNTITLED, Views

VIEWS = Views("egress")


def line(**fields: Any) -> str:
    row = EventRow(uid=bytes(16), session="codex/a", turn=1, ordinal=1, ts=0, **fields)
    return VIEWS.event_lines([row], TurnRow(session="codex/a", ordinal=1))[0].summary


class TestSummaries:
    @pytest.mark.parametrize(
        ("tool", "arguments", "summary"),
        [
            ("Bash", {"command": "ls"}, "ls"),
            ("Bash", {"command": "git  status\n--short", "timeout": 3}, "git status --short"),
            ("shell", {"command": ["bash", "-lc", "cargo test"], "workdir": "/x"}, "bash -lc cargo test"),
            ("exec_command", {"cmd": "make -j"}, "make -j"),
            ("editor", {"command": "view", "path": "/x"}, 'editor(command="view", path="/x")'),
            ("odd", {"command": {"a": 1}}, "odd(command={a: 1})"),
            ("odd", {"command": " "}, 'odd(command=" ")'),
            ("Read", {"file_path": "/x/y.py"}, 'Read(file_path="/x/y.py")'),
            ("now", None, "now()"),
        ],
    )
    def test_calls(self, tool: str, arguments: Any, summary: str) -> None:
        """A command is shown as it is, any other call with its arguments."""
        assert line(type=EventType.TOOL_CALL, tool=tool, arguments=arguments) == summary

    def test_texts(self) -> None:
        """The beginning, on one line."""
        assert line(type=EventType.REASONING, text="first\nsecond") == "first second"


class TestTitles:
    @pytest.mark.parametrize("title", ["", "  \n", "\u202e", "\x1b[31m\x1b[0m"])
    def test_never_empty(self, title: str) -> None:
        """Also not when nothing is left of it."""
        assert VIEWS.title(SessionRow(key="codex/a", source="codex", title=title)) == UNTITLED

    def test_one_line(self) -> None:
        """Of readable length."""
        title = VIEWS.title(SessionRow(key="codex/a", source="codex", title="a\nb " + "c " * 1000))
        assert title.startswith("a b c")
        assert len(title) <= 320

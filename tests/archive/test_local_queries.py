"""The number of SQL statements that a tool call costs in the local archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstory.library import Library
from tests.transcripts import Transcript

WINDOW = {"start_datetime": "2020-01-01T00:00:00Z", "end_datetime": "2100-01-01T00:00:00Z"}


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    for name in ("one", "two", "three"):
        talk = Transcript(name)
        for turn in range(5):
            talk.prompt(f"question {turn}").call("Bash", {"command": "make"}, "done").answer(f"answer {turn}")
        talk.write(tmp_path)
    with Library(tmp_path / "backstory", agents_home=tmp_path, environ={}) as library:
        library.sync()
        library.search("question")  # opens the connection
        yield library


def statements(library: Library, tool: str, **arguments: Any) -> list[str]:
    """The statements by which a call reads tables of archive.db. Whether anything was committed since the last call is
    asked without reading one."""
    seen: list[str] = []
    connection = library.archive._db  # type: ignore[attr-defined]
    connection.set_trace_callback(seen.append)
    try:
        answer = library.call(tool, arguments)
    finally:
        connection.set_trace_callback(None)
    assert "error" not in answer
    beside = ("--", "PRAGMA data_version")  # a virtual table's own ones begin with dashes
    return [statement for statement in seen if not statement.startswith(beside)]


class TestStatements:
    """One or two per call: the state of the sync is read again only after a commit."""

    def test_open(self, library: Library) -> None:
        hit = library.search("answer")["data"]["results"][0]["open"]
        session, turn, event = hit["session_id"], hit["turn_id"], hit["event_id"]
        assert len(statements(library, "open", id=session)) == 2
        assert len(statements(library, "open", id=session, limit=2, event_types=["tool_call"])) == 2
        assert len(statements(library, "open", id=session, around=turn)) == 2
        assert len(statements(library, "open", id=session, around=event)) == 2
        assert len(statements(library, "open", id=turn)) == 2
        assert len(statements(library, "open", id=turn, around=event, before=1)) == 2
        assert len(statements(library, "open", id=event)) == 1
        assert len(statements(library, "open", id=event, before=2)) == 2

    def test_search_sessions(self, library: Library) -> None:
        hit = library.search("answer")["data"]["results"][0]["open"]
        # One asks for the ids of equals, one for titles.
        assert len(statements(library, "search_sessions", query="question")) <= 3
        assert len(statements(library, "search_sessions", query="answer 3", within_id=hit["turn_id"])) <= 2
        assert len(statements(library, "search_sessions", query="question", source="claude-code", project="home")) <= 3

    def test_list_sessions(self, library: Library) -> None:
        assert len(statements(library, "list_sessions", **WINDOW)) == 1
        assert len(statements(library, "list_sessions", **WINDOW, limit=1, source="claude-code")) == 1

    def test_conversations(self, library: Library) -> None:
        session = library.call("list_conversations")["conversations"][0]["session_id"]
        assert len(statements(library, "search_conversations", query="question")) <= 3
        assert len(statements(library, "read_turn", session_id=session, turn_number=0)) == 3
        assert len(statements(library, "read_conversation", session_id=session)) == 3


class TestPlans:
    """Every lookup of a session and of what is beside it uses an index."""

    def test_no_scans(self, library: Library) -> None:
        hit = library.search("answer")["data"]["results"][0]["open"]
        connection = library.archive._db  # type: ignore[attr-defined]
        for id in (hit["session_id"], hit["turn_id"], hit["event_id"]):
            for statement in statements(library, "open", id=id, **({"before": 1} if id.startswith("event") else {})):
                plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
                scanned = {step.split()[1] for step in plan if step.startswith("SCAN")}
                # Small tables, and rows that were found by an index.
                assert {name for name in scanned if not name.startswith("(subquery")} <= {"CONSTANT", "stale", "forget"}

"""Every row of the contract's matrices has a test, and no test claims a row that is not there."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import get_args

from backstory.model import EVENT_TYPES
from backstory.toolsets.base import Toolset
from backstory.toolsets.history.types import ErrorCode

MODULES = ("test_history_search", "test_history_list", "test_history_open", "test_history_traversal")

MATRIX = {
    "search_sessions": (
        "query only",
        "query + n_hits",
        "query + event_types",
        "query + within_id=session",
        "query + within_id=turn",
        "query + within_id=session + event_types",
        "query + within_id=turn + event_types",
        "query + within_id=event",
        "blank query",
        "unknown within_id",
        "malformed within_id",
        "empty event_types",
        "unsupported event_types value",
        "n_hits < 1",
        "n_hits > 50",
        "non-integer n_hits",
    ),
    "list_sessions": (
        "start_datetime + end_datetime",
        "range + limit",
        "range + cursor",
        "range + mode",
        "range + sort=asc",
        "missing datetime",
        "datetime without timezone",
        "end_datetime <= start_datetime",
        "unknown field",
        "invalid mode or sort",
        "cursor with changed filter or sort",
    ),
    "open": (
        "id=session",
        "id=turn",
        "id=event",
        "missing id",
        "blank id",
        "malformed id",
        "well-formed unknown id",
    ),
}

PATHS = (
    "Search hit to event: search_sessions(...).data.results[].open.event_id",
    "Search hit to turn: search_sessions(...).data.results[].open.turn_id",
    "Search hit to session: search_sessions(...).data.results[].open.session_id",
    "Listed session to session: list_sessions(...).data.sessions[].open.session_id",
    "Event to parent turn: open(event).data.traversal.turn_id",
    "Event to parent session: open(event).data.traversal.session_id",
    "Event to adjacent event: open(event).data.traversal.previous_event_id and next_event_id",
    "Event to adjacent turn: open(event).data.traversal.previous_turn_id and next_turn_id",
    "Turn to parent session: open(turn).data.traversal.session_id",
    "Turn to adjacent turn: open(turn).data.traversal.previous_turn_id and next_turn_id",
    "Turn to first and last event: open(turn).data.traversal.first_event_id and last_event_id",
    "Session to contained turns: open(session).data.turns[].id",
)


def covered() -> set[str]:
    rows: set[str] = set()
    for name in MODULES:
        for _, group in inspect.getmembers(import_module(name), inspect.isclass):
            for title, test in inspect.getmembers(group, inspect.isfunction):
                if title.startswith("test_"):
                    rows.update(getattr(test, "covers", ()))
    return rows


class TestManifest:
    def test_every_row_is_covered_and_every_cover_is_a_row(self) -> None:
        """The permutation matrix and the traversal paths, both ways."""
        required = {f"{tool}: {row}" for tool, rows in MATRIX.items() for row in rows} | set(PATHS)
        assert covered() == required


class TestDocumentation:
    def test_every_argument_type_and_error_is_documented(self, history: Toolset) -> None:
        """docs/history.md names them all."""
        path = Path(__file__).parents[3] / "docs" / "history.md"
        arguments = [name for tool in history.tools for name in tool.input_schema["properties"]]
        text = path.read_text("utf-8")
        for name in (*arguments, *EVENT_TYPES, *get_args(ErrorCode), *(tool.name for tool in history.tools)):
            assert f"`{name}`" in text or f'"{name}"' in text or f"## {name}" in text, name

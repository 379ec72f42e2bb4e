"""The frame of every answer: envelope, targets, deadlines, warnings, failures, and the declarations of the tools."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from history_world import DAY, MIGRATION, NOON, SCRIPTS, Call, event_of, session_of, turn_of, uid

from backstory.archive import open_engine
from backstory.archive.base import (
    Archive,
    ArchiveError,
    Batch,
    DeadlineExceeded,
    EventRow,
    OpenedSession,
    SearchRequest,
    SessionRow,
    SessionsRequest,
    SyncState,
    TurnRow,
)
from backstory.config import Settings
from backstory.model import EventRef, EventType, rfc3339
from backstory.toolsets.base import Toolset, received
from backstory.toolsets.history.service import History

REQUESTS: dict[str, dict[str, Any]] = {
    "search_sessions": {"query": "migration"},
    "open": {"id": session_of(MIGRATION)},
    "list_sessions": {"start_datetime": rfc3339(NOON), "end_datetime": rfc3339(NOON + DAY)},
}
DEEP: dict[str, Any] = {"query": "x"}
for _ in range(50_000):
    DEEP = {"query": DEEP}


def boom(*_: Any) -> Any:
    raise RuntimeError("SELECT secret FROM internals")


@pytest.mark.parametrize("tool", REQUESTS)
class TestEnvelope:
    def test_success(self, call: Call, tool: str) -> None:
        """Exactly the contract's fields, in its order, with a measured time."""
        answer = call(tool, REQUESTS[tool])
        assert list(answer) == ["schema_version", "tool", "request", "data", "warnings", "performance"]
        performance = answer["performance"]
        assert list(performance) == ["elapsed_ms", "sla_target_ms", "met_sla"]
        assert isinstance(performance["elapsed_ms"], int)
        assert performance["met_sla"] is (performance["elapsed_ms"] <= performance["sla_target_ms"])

    def test_error(self, call: Call, tool: str) -> None:
        """Exactly the contract's fields, in its order."""
        answer = call(tool, {"nonsense": [1, {"a": None}]})
        assert list(answer) == ["schema_version", "tool", "request", "error", "warnings", "performance"]
        assert list(answer["error"]) == ["code", "message", "details"]
        assert answer["schema_version"] == "moraine.mcp.error.v1"
        assert answer["tool"] == tool
        assert answer["request"] == {"nonsense": [1, {"a": None}]}

    def test_the_text_of_an_answer_is_its_object(self, history: Toolset, tool: str) -> None:
        """Both are there for clients that read only one, and neither is flagged as an error."""
        handler = next(each.handler for each in history.tools if each.name == tool)
        assert handler(REQUESTS[tool]).is_error is False
        assert handler({}).is_error is False

    @pytest.mark.parametrize(
        "arguments", [None, [], "query", 7, {"query": "\ud800"}, {"\udcff": 1}, {"id": object()}, {1: 2}, DEEP]
    )
    def test_whatever_comes_is_answered(self, history: Toolset, tool: str, arguments: Any) -> None:
        """Handlers never raise, not even for what JSON could not carry."""
        handler = next(each.handler for each in history.tools if each.name == tool)
        reply = handler(arguments)
        assert reply.data["error"]["code"] == "invalid_request"
        assert "field" in reply.data["error"]["details"]

    def test_a_failing_archive(self, altered: Callable[..., Call], tool: str, caplog: pytest.LogCaptureFixture) -> None:
        """An internal error, concise, without internals; these are in the log."""
        methods = dict.fromkeys(("search", "open", "sessions"), boom)
        answer = altered(**methods)(tool, **REQUESTS[tool])
        assert answer["error"]["code"] == "internal_error"
        assert "SELECT" not in str(answer)
        assert len(answer["error"]["message"]) < 120
        assert answer["request"] == REQUESTS[tool]
        assert f"{tool}: RuntimeError" in caplog.text

    def test_an_archive_that_says_why(self, altered: Callable[..., Call], tool: str) -> None:
        """The reason is for the reader, and reaches the reader."""

        def refuse(*_: Any) -> Any:
            raise ArchiveError("the archive was written by a newer Backstory; update this one")

        methods = dict.fromkeys(("search", "open", "sessions"), refuse)
        error = altered(**methods)(tool, **REQUESTS[tool])["error"]
        assert error["code"] == "internal_error"
        assert "update this one" in error["message"]

    def test_declaration(self, history: Toolset, tool: str) -> None:
        """Read-only, with a flat input schema that accepts defaults and nulls, and an output schema."""
        declared = next(each for each in history.tools if each.name == tool)
        assert declared.read_only
        assert not declared.destructive
        assert declared.input_schema["type"] == "object"
        assert declared.input_schema["additionalProperties"] is False
        assert "$ref" not in str(declared.input_schema)
        assert all(field["description"] for field in declared.input_schema["properties"].values())
        jsonschema.Draft202012Validator.check_schema(declared.input_schema)
        jsonschema.Draft202012Validator.check_schema(declared.output_schema or {})
        jsonschema.validate(REQUESTS[tool], declared.input_schema)
        optional = set(declared.input_schema["properties"]) - set(declared.input_schema["required"])
        jsonschema.validate({**REQUESTS[tool], **dict.fromkeys(optional)}, declared.input_schema)
        assert declared.output_schema is not None
        assert declared.output_schema["type"] == "object"


@pytest.mark.parametrize("tool", REQUESTS)
class TestRefusedRequests:
    @pytest.mark.parametrize(
        "given",
        [
            {"query": "x" * 200_000, "id": "y" * 200_000},
            {"nonsense" * 50_000: 1},
            {"n_hits": list(range(100_000))},
            {"within_id": session_of("codex/" + "x" * 50_000), "query": "x"},
            {"id": session_of("codex/" + "x" * 50_000)},
            {"project": "p" * 200_000, "source": "s" * 200_000},
            {"event_types": ["e" * 200_000], "query": "x"},
        ],
        ids=["texts", "name", "list", "scope", "id", "filters", "type"],
    )
    def test_are_repeated_in_part(self, call: Call, tool: str, given: dict[str, Any]) -> None:
        """At most 4 KiB of what came, message and details included."""
        answer = call(tool, {**given, **({"bad": 1} if tool == "list_sessions" else {})})

        assert "error" in answer
        echoed = {"request": answer["request"], **answer["error"]}
        assert len(msgspec.json.encode(echoed)) < 4096 + 200

    @pytest.mark.parametrize("field", ["n_hits", "limit", "before"])
    def test_numbers_as_strings(self, history: Toolset, call: Call, tool: str, field: str) -> None:
        """Some clients send them; they are refused, with a message that says why."""
        declared = next(each for each in history.tools if each.name == tool)
        if field in declared.input_schema["properties"]:
            error = call(tool, {**REQUESTS[tool], field: "1"})["error"]
            assert (error["code"], error["details"]) == ("invalid_request", {"field": field})
            assert f"{field} must be an integer from" in error["message"]
            assert "sent as a string" in error["message"]


class TestFilters:
    @pytest.mark.parametrize("field", ["project", "source"])
    def test_may_not_be_endless(self, call: Call, field: str) -> None:
        """They come back in the canonical request."""
        error = call("search_sessions", {"query": "x", field: "y" * 4097})["error"]
        assert error["message"] == f"{field} must be at most 4096 characters"


class TestInstructions:
    def test_they_are_short_and_name_every_tool(self, history: Toolset) -> None:
        """Agents carry them in every prompt."""
        assert len(history.instructions) <= 1200
        assert all(tool.name in history.instructions for tool in history.tools)


class TestTargets:
    @pytest.mark.parametrize(
        ("documents", "target"),
        [(0, 750), (100_000, 750), (100_001, 1500), (500_000, 1500), (500_001, 2500), (5_000_000, 2500)],
    )
    def test_search_by_the_number_of_documents(
        self, archive: Archive, altered: Callable[..., Call], documents: int, target: int
    ) -> None:
        """The P95 of the contract's table."""

        def search(request: SearchRequest) -> Any:
            found = archive.search(request)
            found.documents = documents
            return found

        call = altered(search=search)
        assert call("search_sessions", query="migration")["performance"]["sla_target_ms"] == target
        scoped = call("search_sessions", query="migration", within_id=turn_of(MIGRATION, 1))
        assert scoped["performance"]["sla_target_ms"] == 300

    @pytest.mark.parametrize(("count", "target"), [(100, 500), (101, 1500)])
    def test_open_session_by_the_number_of_turns(self, altered: Callable[..., Call], count: int, target: int) -> None:
        """Up to a hundred turns, and above."""
        session = SessionRow(key=MIGRATION, source="codex", turn_count=count)
        turns = [TurnRow(session=MIGRATION, ordinal=number + 1) for number in range(count)]
        opened = OpenedSession(
            session=session, turns=turns, total=count, previous=None, next=None, parent=None, children=[]
        )
        call = altered(open=lambda ref, part: opened)
        answer = call("open", id=session_of(MIGRATION))
        assert answer["performance"]["sla_target_ms"] == target
        assert len(answer["data"]["turns"]) == count

    def test_arguments_refused_after_the_scope_is_known(self, call: Call) -> None:
        """They report the target of that scope."""
        answer = call("search_sessions", query="x", within_id=turn_of(MIGRATION, 1), n_hits=0)
        assert answer["performance"]["sla_target_ms"] == 300


class TestDeadlines:
    def test_search_gives_the_archive_five_seconds(self, archive: Archive, altered: Callable[..., Call]) -> None:
        """The deadline is on the clock the archive reads."""
        given: list[float | None] = []

        def search(request: SearchRequest) -> Any:
            given.append(request.deadline)
            return archive.search(request)

        with received(now := time.monotonic()):
            altered(search=search)("search_sessions", query="migration")
        assert given == [now + 5]

    @pytest.mark.parametrize(("days", "seconds"), [(1, 2), (29, 2), (30, 3), (300, 3)])
    def test_list_gives_the_archive_two_or_three(self, altered: Callable[..., Call], days: int, seconds: int) -> None:
        """Two seconds typically, three for a broad window."""
        given: list[float | None] = []

        def sessions(request: SessionsRequest) -> Any:
            given.append(request.deadline)
            return []

        window = {"start_datetime": rfc3339(NOON), "end_datetime": rfc3339(NOON + days * DAY)}
        with received(now := time.monotonic()):
            altered(sessions=sessions)("list_sessions", **window)
        assert given == [now + seconds]

    @pytest.mark.parametrize(
        ("tool", "method", "seconds"), [("search_sessions", "search", 5), ("list_sessions", "sessions", 2)]
    )
    def test_too_late(self, altered: Callable[..., Call], tool: str, method: str, seconds: int) -> None:
        """When the archive gives up, the error has the deadline."""

        def late(*_: Any) -> Any:
            raise DeadlineExceeded

        answer = altered(**{method: late})(tool, **REQUESTS[tool])
        assert answer["error"]["code"] == "deadline_exceeded"
        assert answer["error"]["details"] == {"deadline_ms": seconds * 1000}
        assert f"{seconds} seconds" in answer["error"]["message"]

    def test_time_counts_from_receipt(self, history: Toolset, monkeypatch: pytest.MonkeyPatch) -> None:
        """Waiting for a thread is part of the time measured, and of the time there is."""
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now)
        handler = next(each.handler for each in history.tools if each.name == "search_sessions")
        with received(now - 2):
            waited = handler({"query": "migration"}).data
        with received(now - 6):
            late = handler({"query": "migration"}).data

        assert waited["performance"]["elapsed_ms"] == 2000
        assert waited["performance"]["met_sla"] is False
        assert late["error"]["code"] == "deadline_exceeded"
        assert late["performance"]["elapsed_ms"] == 6000

    def test_an_answer_after_the_deadline_is_none(
        self, archive: Archive, altered: Callable[..., Call], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also when the archive itself did not notice."""
        now = time.monotonic()

        def search(request: SearchRequest) -> Any:
            found = archive.search(SearchRequest(query=request.query, types=request.types))
            monkeypatch.setattr(time, "monotonic", lambda: now + 60)
            return found

        answer = altered(search=search)("search_sessions", query="migration")
        assert answer["error"]["code"] == "deadline_exceeded"
        assert answer["performance"]["met_sla"] is False
        assert answer["performance"]["elapsed_ms"] > 5000


class TestRedactions:
    @pytest.mark.parametrize(
        ("tool", "arguments", "count"),
        [
            ("open", {"id": event_of(SCRIPTS, 3, 1)}, 2),
            ("open", {"id": event_of(SCRIPTS, 3, 2)}, 2),
            ("open", {"id": turn_of(SCRIPTS, 3)}, 4),
            ("open", {"id": event_of(MIGRATION, 1, 1)}, 0),
            ("search_sessions", {"query": "deploy token quickly", "n_hits": 1}, 2),
            ("list_sessions", {"start_datetime": rfc3339(NOON + 3 * DAY), "end_datetime": rfc3339(NOON + 4 * DAY)}, 1),
        ],
    )
    def test_are_counted(self, call: Call, tool: str, arguments: dict[str, Any], count: int) -> None:
        """Here of a title and of what is shown; the text of a call repeats its arguments and counts once."""
        answer = call(tool, arguments)
        said = [warning for warning in answer["warnings"] if "redacted" in warning]
        plural = "s were" if count > 1 else " was"
        assert said == ([f"{count} secret{plural} redacted in this answer."] if count else [])

    def test_nothing_is_said_where_nothing_is_redacted(self, altered: Callable[..., Call]) -> None:
        """Also of texts that were redacted by others before."""
        call = altered(Settings(redact="off"))
        assert call("open", id=event_of(SCRIPTS, 3, 1))["warnings"] == []


@pytest.mark.parametrize("tool", REQUESTS)
class TestWarnings:
    def test_none_when_all_is_indexed(self, call: Call, tool: str) -> None:
        """An empty list."""
        assert call(tool, REQUESTS[tool])["warnings"] == []

    def test_the_first_sync_is_running(self, altered: Callable[..., Call], tool: str) -> None:
        """Said in one sentence, with how far it is."""
        state = SyncState(started_at=NOON, files_total=900, files_done=120)
        (warning,) = altered(sync_state=lambda: state)(tool, **REQUESTS[tool])["warnings"]
        assert "first sync is still running: 120 of 900" in warning

    def test_nothing_was_ever_synced(self, altered: Callable[..., Call], tool: str) -> None:
        """Also said, differently."""
        (warning,) = altered(sync_state=SyncState)(tool, **REQUESTS[tool])["warnings"]
        assert "has not started" in warning

    def test_a_later_sync_is_no_reason_to_warn(self, altered: Callable[..., Call], tool: str) -> None:
        """The archive has been complete once."""
        state = SyncState(started_at=NOON, files_total=9, files_done=1, first_finished_at=NOON - DAY)
        assert altered(sync_state=lambda: state)(tool, **REQUESTS[tool])["warnings"] == []

    def test_the_index_is_behind(self, altered: Callable[..., Call], tool: str) -> None:
        """It concerns searching, and nothing else."""
        state = SyncState(first_finished_at=NOON, index_behind=True)
        warnings = altered(sync_state=lambda: state)(tool, **REQUESTS[tool])["warnings"]
        assert len(warnings) == (1 if tool == "search_sessions" else 0)

    def test_what_is_not_found_yet(self, altered: Callable[..., Call], tool: str) -> None:
        """An error carries the warning too: it may be found later."""
        state = SyncState(started_at=NOON, files_total=900, files_done=120)
        unknown = {
            "open": {"id": session_of("codex/later")},
            "search_sessions": {"query": "x", "within_id": session_of("codex/later")},
        }
        if tool in unknown:
            answer = altered(sync_state=lambda: state)(tool, **unknown[tool])
            assert answer["error"]["code"] == "not_found"
            assert len(answer["warnings"]) == 1


class TestBrokenRows:
    def test_an_event_without_its_turn(self, tmp_path: Path) -> None:
        """It is an internal error with a hint, not a crash."""
        archive = open_engine("local", tmp_path)
        event = EventRow(uid=uid(MIGRATION, 1, 1), session="codex/x", turn=1, ordinal=1, type=EventType.SYSTEM, ts=NOON)
        writer = archive.writer()
        writer.write(Batch(sessions=[SessionRow(key="codex/x", source="codex", event_count=1)], events=[event]))
        writer.close()
        error = History(lambda: archive, Settings()).open({"id": event_of(MIGRATION, 1, 1)}).data["error"]
        archive.close()
        assert error["code"] == "internal_error"
        assert "doctor" in error["message"]

    @pytest.mark.parametrize(("depth", "shown"), [(60, "core"), (500, "core"), (5000, "Bash(")])
    def test_arguments_nested_without_end(
        self, archive: Archive, altered: Callable[..., Call], depth: int, shown: str
    ) -> None:
        """JSON that few readers could follow is given as text."""
        deep: Any = "core"
        for _ in range(depth):
            deep = [deep]
        found = archive.open(EventRef(uid(SCRIPTS, 3, 2)))
        assert found is not None
        event = found.event
        event.arguments, event.text = {"deep": deep}, ""
        content = altered(open=lambda ref, part: found)("open", id=event_of(SCRIPTS, 3, 2))["data"]["content"]
        assert shown in content["text"]
        assert content["arguments"] == (event.arguments if depth == 60 else content["text"])

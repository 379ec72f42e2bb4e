"""open, rule by rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from history_world import (
    ANSWER,
    ECHOES,
    HELPER,
    MIGRATION,
    MONITOR,
    OUTPUT,
    PROMPT,
    SCRIPTS,
    STOPPED,
    Call,
    covers,
    event_of,
    session_of,
    turn_of,
    uid,
)

from backstory.archive.base import Archive, EventRow, OpenedTurn, Part
from backstory.model import EventRef, EventType, TurnRef


def opened(call: Call, id: str, **more: Any) -> dict[str, Any]:
    answer = call("open", id=id, **more)
    assert answer["schema_version"] == "moraine.mcp.open.v1", answer
    assert answer["tool"] == "open"
    data: dict[str, Any] = answer["data"]
    return data


class TestSession:
    @covers("open: id=session")
    def test_shows_the_session_and_all_its_turns(self, call: Call) -> None:
        """Metadata with the contract's fields, one compact line for each turn, in order."""
        answer = call("open", id=session_of(MIGRATION))
        data = answer["data"]

        assert answer["request"] == {"id": session_of(MIGRATION)}
        assert answer["performance"]["sla_target_ms"] == 500
        assert list(data) == ["kind", "session", "turns", "traversal"]
        assert data["kind"] == "session"
        assert data["session"] == {
            "id": session_of(MIGRATION),
            "title": "Fix ClickHouse schema migration failure",
            "source": "codex",
            "started_at": "2026-04-29T12:00:00.000Z",
            "updated_at": "2026-04-29T12:00:09.000Z",
            "completed": True,
            "turn_count": 2,
            "event_count": 10,
        }
        assert [turn["ordinal"] for turn in data["turns"]] == [1, 2]

    def test_a_turn_in_the_list(self, call: Call) -> None:
        """The prompt, the end, tools and types in the order first seen."""
        first = opened(call, session_of(MIGRATION))["turns"][0]
        assert first == {
            "id": turn_of(MIGRATION, 1),
            "ordinal": 1,
            "completed": True,
            "terminal_event_id": event_of(MIGRATION, 1, 8),
            "event_count": 8,
            "started_at": "2026-04-29T12:00:00.000Z",
            "updated_at": "2026-04-29T12:00:07.000Z",
            "user_input": {"event_id": event_of(MIGRATION, 1, 1), "text": PROMPT, "truncated": False},
            "final_response": {"event_id": event_of(MIGRATION, 1, 8), "text": ANSWER, "truncated": False},
            "tools_called": ["exec_command", "apply_patch"],
            "event_types": ["user_input", "reasoning", "tool_call", "tool_response", "assistant_response"],
            "open": {"turn_id": turn_of(MIGRATION, 1), "terminal_event_id": event_of(MIGRATION, 1, 8)},
        }

    def test_an_incomplete_turn_invents_nothing(self, call: Call) -> None:
        """No terminal event, no final response, and the session is not completed either."""
        data = opened(call, session_of(MONITOR))
        last = data["turns"][-1]
        assert data["session"]["completed"] is False
        assert (last["completed"], last["terminal_event_id"], last["final_response"]) == (False, None, None)
        assert last["open"] == {"turn_id": turn_of(MONITOR, 2), "terminal_event_id": None}

    def test_other_endings_have_no_final_response(self, call: Call) -> None:
        """An interrupted turn is completed, by the event that ended it."""
        turn = opened(call, session_of(STOPPED))["turns"][0]
        assert (turn["completed"], turn["final_response"]) == (True, None)
        assert turn["terminal_event_id"] == event_of(STOPPED, 1, 5)

    def test_neighbours(self, call: Call) -> None:
        """The sessions before and after it in the same project and source, null at the ends."""
        assert opened(call, session_of(MIGRATION))["traversal"] == {
            "previous_session_id": None,
            "next_session_id": None,
        }
        assert opened(call, session_of(MONITOR))["traversal"] == {
            "previous_session_id": None,
            "next_session_id": session_of(HELPER),
        }

    def test_links_between_a_session_and_its_subagents(self, call: Call) -> None:
        """Both ways, and only where there are any."""
        assert opened(call, session_of(MONITOR))["links"] == {"child_session_ids": [session_of(HELPER)]}
        assert opened(call, session_of(HELPER))["links"] == {"parent_session_id": session_of(MONITOR)}
        assert "links" not in opened(call, session_of(MIGRATION))


class TestTurn:
    @covers("open: id=turn")
    def test_shows_the_turn_and_all_its_events(self, call: Call) -> None:
        """Metadata, a summary, one line for each event in order, and where to go from here."""
        answer = call("open", id=turn_of(MIGRATION, 1))
        data = answer["data"]

        assert answer["performance"]["sla_target_ms"] == 300
        assert list(data) == ["kind", "turn", "session", "summary", "events", "traversal"]
        assert data["kind"] == "turn"
        assert data["turn"] == {
            "id": turn_of(MIGRATION, 1),
            "session_id": session_of(MIGRATION),
            "ordinal": 1,
            "completed": True,
            "terminal_event_id": event_of(MIGRATION, 1, 8),
            "event_count": 8,
            "started_at": "2026-04-29T12:00:00.000Z",
            "updated_at": "2026-04-29T12:00:07.000Z",
        }
        assert data["session"] == {
            "id": session_of(MIGRATION),
            "title": "Fix ClickHouse schema migration failure",
            "source": "codex",
        }
        assert data["summary"] == {
            "user_input": {"event_id": event_of(MIGRATION, 1, 1), "text": PROMPT, "truncated": False},
            "final_response": {"event_id": event_of(MIGRATION, 1, 8), "text": ANSWER, "truncated": False},
            "tools_called": ["exec_command", "apply_patch"],
            "event_types": ["user_input", "reasoning", "tool_call", "tool_response", "assistant_response"],
        }
        assert [event["id"] for event in data["events"]] == [event_of(MIGRATION, 1, n) for n in range(1, 9)]
        assert [event["ordinal"] for event in data["events"]] == list(range(1, 9))
        assert data["traversal"] == {
            "session_id": session_of(MIGRATION),
            "previous_turn_id": None,
            "next_turn_id": turn_of(MIGRATION, 2),
            "first_event_id": event_of(MIGRATION, 1, 1),
            "last_event_id": event_of(MIGRATION, 1, 8),
        }

    def test_events_in_the_list(self, call: Call) -> None:
        """Calls show their command, responses their tool; the last one is terminal."""
        events = opened(call, turn_of(MIGRATION, 1))["events"]
        assert events[2] == {
            "id": event_of(MIGRATION, 1, 3),
            "ordinal": 3,
            "type": "tool_call",
            "timestamp": "2026-04-29T12:00:02.000Z",
            "terminal": False,
            "tool_name": "exec_command",
            "model": None,
            "summary": "cargo test --workspace --locked",
            "truncated": False,
        }
        assert (events[3]["tool_name"], events[3]["summary"]) == ("exec_command", " ".join(OUTPUT.split()))
        assert events[4]["summary"] == 'apply_patch("*** Begin Patch *** End Patch")'
        assert [event["terminal"] for event in events] == [False] * 7 + [True]
        assert events[7]["model"] == "gpt-5"

    def test_long_texts_are_cut(self, call: Call) -> None:
        """Full payloads belong to events."""
        event = opened(call, turn_of(SCRIPTS, 2))["events"][1]
        assert event["truncated"] is True
        assert event["summary"].endswith("…")
        assert len(event["summary"]) <= 320

    def test_an_incomplete_turn(self, call: Call) -> None:
        """As in the contract's example."""
        data = opened(call, turn_of(MONITOR, 2))
        assert (data["turn"]["completed"], data["turn"]["terminal_event_id"]) == (False, None)
        assert data["summary"]["final_response"] is None
        assert data["summary"]["tools_called"] == ["Task"]
        assert data["summary"]["event_types"] == ["user_input", "tool_call"]
        assert data["traversal"]["previous_turn_id"] == turn_of(MONITOR, 1)
        assert data["traversal"]["next_turn_id"] is None


class TestEvent:
    @covers("open: id=event")
    def test_shows_the_event_in_full(self, call: Call) -> None:
        """Metadata, content and where to go from here."""
        answer = call("open", id=event_of(MIGRATION, 1, 1))
        data = answer["data"]

        assert answer["performance"]["sla_target_ms"] == 200
        assert data == {
            "kind": "event",
            "event": {
                "id": event_of(MIGRATION, 1, 1),
                "session_id": session_of(MIGRATION),
                "turn_id": turn_of(MIGRATION, 1),
                "ordinal": 1,
                "type": "user_input",
                "timestamp": "2026-04-29T12:00:00.000Z",
                "terminal": False,
                "model": None,
                "originating_model": None,
                "tool_name": None,
            },
            "content": {"format": "text", "text": PROMPT, "truncated": False},
            "session": {
                "id": session_of(MIGRATION),
                "title": "Fix ClickHouse schema migration failure",
                "source": "codex",
            },
            "turn": {"id": turn_of(MIGRATION, 1), "ordinal": 1, "completed": True},
            "traversal": {
                "session_id": session_of(MIGRATION),
                "turn_id": turn_of(MIGRATION, 1),
                "previous_event_id": None,
                "next_event_id": event_of(MIGRATION, 1, 2),
                "previous_turn_id": None,
                "next_turn_id": turn_of(MIGRATION, 2),
            },
        }

    def test_a_tool_call(self, call: Call) -> None:
        """Name, arguments as data, and a rendering people can read."""
        data = opened(call, event_of(MIGRATION, 1, 3))
        assert data["content"] == {
            "format": "tool_call",
            "tool_name": "exec_command",
            "arguments": {"cmd": "cargo test --workspace --locked", "workdir": "/home/ada/src/store"},
            "text": 'exec_command(cmd="cargo test --workspace --locked", workdir="/home/ada/src/store")',
            "truncated": False,
        }
        assert data["event"]["tool_name"] == "exec_command"
        assert (data["event"]["model"], data["event"]["originating_model"]) == (None, "gpt-5")

    @pytest.mark.parametrize(
        ("kind", "recorded", "shown"),
        [
            ("user_input", ("m", "m"), (None, None)),
            ("assistant_response", ("m", None), ("m", "m")),
            ("assistant_response", ("m", "m"), ("m", "m")),
            ("assistant_response", (None, None), (None, None)),
            ("reasoning", ("m", None), ("m", "m")),
            ("tool_call", ("m", "m"), (None, "m")),
            ("tool_call", ("m", None), (None, "m")),
            ("tool_response", (None, "m"), (None, "m")),
            ("tool_response", (None, None), (None, None)),
        ],
    )
    def test_models(
        self,
        archive: Archive,
        altered: Callable[..., Call],
        kind: str,
        recorded: tuple[str | None, str | None],
        shown: tuple[str | None, str | None],
    ) -> None:
        """The model that wrote it and the one that caused it, whatever an older archive has recorded; in the turn's
        list the writer."""
        found = archive.open(EventRef(uid(MIGRATION, 1, 1))), archive.open(TurnRef(MIGRATION, 1))
        assert found[0] is not None
        assert found[1] is not None
        event = found[0].event
        event.type, (event.model, event.originating_model) = EventType(kind), recorded
        found[1].events = [event]
        call = altered(open=lambda ref, part: found[isinstance(ref, TurnRef)])

        header = call("open", id=event_of(MIGRATION, 1, 1))["data"]["event"]
        (line,) = call("open", id=turn_of(MIGRATION, 1))["data"]["events"]

        assert (header["model"], header["originating_model"]) == shown
        assert line["model"] == shown[0]

    def test_a_tool_response(self, call: Call) -> None:
        """Name, exit code and the whole output with its line breaks."""
        content = opened(call, event_of(MIGRATION, 1, 4))["content"]
        assert content == {
            "format": "tool_response",
            "tool_name": "exec_command",
            "exit_code": 101,
            "text": OUTPUT,
            "truncated": False,
        }

    def test_a_tool_response_without_an_exit_code(self, call: Call) -> None:
        """Null, and whether it failed when the agent recorded that."""
        content = opened(call, event_of(MIGRATION, 1, 6))["content"]
        assert (content["exit_code"], content["failed"]) == (None, False)

    @pytest.mark.parametrize(
        ("key", "turn", "ordinal", "kind"),
        [
            (MIGRATION, 1, 2, "reasoning"),
            (STOPPED, 1, 1, "system"),
            (STOPPED, 1, 3, "compaction"),
            (STOPPED, 1, 4, "unknown"),
            (STOPPED, 1, 5, "runtime"),
        ],
    )
    def test_every_other_type_is_text(self, call: Call, key: str, turn: int, ordinal: int, kind: str) -> None:
        """Also those that are never found can be opened."""
        data = opened(call, event_of(key, turn, ordinal))
        assert data["event"]["type"] == kind
        assert data["content"]["format"] == "text"
        assert data["content"]["text"]

    def test_the_whole_text_whatever_its_length(self, call: Call) -> None:
        """Nothing is cut, and it is said that nothing is."""
        content = opened(call, event_of(SCRIPTS, 2, 2))["content"]
        assert content["truncated"] is False
        assert len(content["text"]) > 140_000
        assert "the needlework pattern was found in drawer seven" in content["text"]

    def test_a_call_that_started_a_subagent_links_to_it(self, call: Call) -> None:
        """From the call to the session it started."""
        links = opened(call, event_of(MONITOR, 2, 2))["links"]
        assert links == {"child_session_ids": [session_of(HELPER)]}


class TestRefusals:
    @covers("open: missing id")
    @pytest.mark.parametrize("arguments", [{}, {"id": None}, {"id": 5}, {"id": ["x"]}])
    def test_missing_id(self, call: Call, arguments: dict[str, Any]) -> None:
        """Missing, or not a string."""
        answer = call("open", arguments)
        assert answer["error"]["code"] == "invalid_request"
        assert answer["error"]["details"] == {"field": "id"}
        assert answer["request"] == arguments

    @covers("open: blank id")
    @pytest.mark.parametrize("id", ["", " ", "\n"])
    def test_blank_id(self, call: Call, id: str) -> None:
        """Nothing to open."""
        assert call("open", id=id)["error"]["code"] == "invalid_request"

    @covers("open: malformed id")
    @pytest.mark.parametrize(
        "id",
        [
            "not-a-valid-id",
            "session:",
            "turn:abc",
            "event:AAAA",
            "event:evt_1",
            "session:c2Vzcy0x",
            "capsule:abc",
            f"{session_of(MIGRATION)}==",
            f"{turn_of(MIGRATION, 1)}\n",
            turn_of(MIGRATION, 1).replace(":1", ":01"),
            turn_of(MIGRATION, 1).upper(),
            event_of(MIGRATION, 1, 1)[:-1] + "_",
            "x" * 100_000,
            "event:evt_" + "0" * 100_000,
            "event:☃",
        ],
    )
    def test_malformed_id(self, call: Call, id: str) -> None:
        """As in the contract's example, word for word."""
        answer = call("open", id=id)
        assert answer["error"] == {
            "code": "invalid_id",
            "message": "id is not a valid Moraine MCP ID",
            "details": {"field": "id"},
        }
        assert answer["request"] == {"id": id} or (len(id) > 4096 and len(answer["request"]["id"]) < 4096)
        assert answer["performance"]["sla_target_ms"] == 200

    @covers("open: well-formed unknown id")
    @pytest.mark.parametrize(
        ("id", "kind", "target"),
        [
            (session_of("codex/nobody"), "session", 500),
            (turn_of(MIGRATION, 3), "turn", 300),
            (turn_of("codex/nobody", 1), "turn", 300),
            (event_of("codex/nobody", 1, 1), "event", 200),
            ("event:evt_01J9DOESNOTEXIST000000000000", "event", 200),
            ("turn:turn_01J9Q3P4V8BN7XM9G2K6Q1W3E4", "turn", 300),
            ("session:ses_01J9Q3N7W6F9A8K2M4V5R6T7Y8", "session", 500),
        ],
    )
    def test_unknown_id(self, call: Call, id: str, kind: str, target: int) -> None:
        """As in the contract's example: not found, with the ID and the target of its kind. So are the IDs of the
        contract's examples, and those that differ from an ID of ours in their last bits."""
        answer = call("open", id=id)
        assert answer["error"] == {"code": "not_found", "message": f"{kind} not found", "details": {"id": id}}
        assert answer["performance"]["sla_target_ms"] == target

    def test_unknown_field(self, call: Call) -> None:
        """Named."""
        answer = call("open", id=session_of(MIGRATION), full=True)
        assert answer["error"]["code"] == "invalid_request"
        assert answer["error"]["details"]["field"] == "full"


class TestPartsOfTheWhole:
    """Beyond the contract: opening a part of a long session or turn."""

    def test_pages_of_events(self, call: Call) -> None:
        """Every event once, in order, whatever the size of the page."""
        seen: list[int] = []
        cursor = None
        while True:
            data = opened(call, turn_of(ECHOES, 1), limit=25, **({"cursor": cursor} if cursor else {}))
            seen += [event["ordinal"] for event in data["events"]]
            assert data["page"]["count"] == len(data["events"])
            assert data["page"]["total"] == 61
            assert data["traversal"]["last_event_id"] == event_of(ECHOES, 1, 61)
            cursor = data["page"]["next_cursor"]
            if cursor is None:
                break
        assert seen == list(range(1, 62))

    def test_pages_of_turns(self, call: Call) -> None:
        """A cursor alone goes on with pages of a usual size."""
        first = opened(call, session_of(MIGRATION), limit=1)
        assert [turn["ordinal"] for turn in first["turns"]] == [1]
        second = call("open", id=session_of(MIGRATION), cursor=first["page"]["next_cursor"])
        assert [turn["ordinal"] for turn in second["data"]["turns"]] == [2]
        assert second["data"]["page"] == {"count": 1, "total": 2, "next_cursor": None}
        assert second["request"]["limit"] == 50

    def test_around_an_event(self, call: Call) -> None:
        """So many before and after it; by default five each."""
        near = opened(call, turn_of(ECHOES, 1), around=event_of(ECHOES, 1, 30), before=2, after=0)
        assert [event["ordinal"] for event in near["events"]] == [28, 29, 30]
        answer = call("open", id=turn_of(ECHOES, 1), around=event_of(ECHOES, 1, 2))
        assert [event["ordinal"] for event in answer["data"]["events"]] == [1, 2, 3, 4, 5, 6, 7]
        assert (answer["request"]["before"], answer["request"]["after"]) == (5, 5)

    @pytest.mark.parametrize(
        ("request_", "at_most"),
        [
            ({"id": turn_of(ECHOES, 1), "limit": 5}, 6),
            ({"id": turn_of(ECHOES, 1), "around": event_of(ECHOES, 1, 30), "before": 2, "after": 1}, 4),
            ({"id": event_of(ECHOES, 1, 30), "before": 2, "after": 1}, 4),
        ],
    )
    def test_no_more_is_read_than_shown(
        self, archive: Archive, altered: Callable[..., Call], request_: dict[str, Any], at_most: int
    ) -> None:
        """And one more, to know whether there is one: a turn may have a hundred thousand events."""
        read: list[EventRow] = []

        def open_(ref: TurnRef, part: Part) -> OpenedTurn | None:
            found = archive.open(ref, part)
            assert found is not None
            read.extend(found.events)
            return found

        answer = altered(open=open_)("open", **request_)
        assert "error" not in answer
        assert 0 < len(read) <= at_most

    @pytest.mark.parametrize("around", [turn_of(MIGRATION, 2), event_of(MIGRATION, 2, 1)])
    def test_around_a_turn(self, call: Call, around: str) -> None:
        """Named by itself or by one of its events."""
        data = opened(call, session_of(MIGRATION), around=around, before=0)
        assert [turn["ordinal"] for turn in data["turns"]] == [2]

    def test_events_of_some_types(self, call: Call) -> None:
        """The canonical request has each type once, in the canonical order."""
        types = ["tool_response", "tool_call", "tool_call"]
        answer = call("open", id=turn_of(MIGRATION, 1), event_types=types)
        assert answer["request"]["event_types"] == ["tool_call", "tool_response"]
        assert [event["ordinal"] for event in answer["data"]["events"]] == [3, 4, 5, 6, 7]

    def test_turns_with_some_types(self, call: Call) -> None:
        """Those that have at least one event of them."""
        data = opened(call, session_of(MIGRATION), event_types=["tool_call", "unknown"])
        assert [turn["ordinal"] for turn in data["turns"]] == [1]

    def test_an_event_with_its_neighbours(self, call: Call) -> None:
        """One line each, and the event itself among them."""
        data = opened(call, event_of(MIGRATION, 1, 4), before=1, after=2)
        assert [event["ordinal"] for event in data["events"]] == [3, 4, 5, 6]
        assert "events" not in opened(call, event_of(MIGRATION, 1, 4))

    @pytest.mark.parametrize(
        ("id", "more", "field"),
        [
            (session_of(MIGRATION), {"before": 3}, "before"),
            (session_of(MIGRATION), {"limit": 0}, "limit"),
            (session_of(MIGRATION), {"limit": 501}, "limit"),
            (session_of(MIGRATION), {"limit": "3"}, "limit"),
            (session_of(MIGRATION), {"cursor": "nonsense"}, "cursor"),
            (session_of(MIGRATION), {"event_types": []}, "event_types"),
            (session_of(MIGRATION), {"event_types": ["nonsense"]}, "event_types"),
            (session_of(MIGRATION), {"around": "nonsense"}, "around"),
            (session_of(MIGRATION), {"around": session_of(MIGRATION)}, "around"),
            (session_of(MIGRATION), {"around": turn_of(MONITOR, 1)}, "around"),
            (session_of(MIGRATION), {"around": turn_of(MIGRATION, 9)}, "around"),
            (session_of(MIGRATION), {"around": turn_of(MIGRATION, 1), "limit": 3}, "limit"),
            (turn_of(MIGRATION, 1), {"around": event_of(MIGRATION, 2, 1)}, "around"),
            (turn_of(MIGRATION, 1), {"around": turn_of(MIGRATION, 1)}, "around"),
            (turn_of(MIGRATION, 1), {"around": event_of("codex/nobody", 1, 1)}, "around"),
            (turn_of(MIGRATION, 1), {"around": event_of(MIGRATION, 1, 1), "before": 201}, "before"),
            (event_of(MIGRATION, 1, 1), {"around": event_of(MIGRATION, 1, 2)}, "around"),
            (event_of(MIGRATION, 1, 1), {"limit": 3}, "limit"),
            (event_of(MIGRATION, 1, 1), {"after": -1}, "after"),
            (event_of(MIGRATION, 1, 1), {"event_types": ["reasoning"]}, "event_types"),
        ],
    )
    def test_refusals(self, call: Call, id: str, more: dict[str, Any], field: str) -> None:
        """Arguments that exclude each other are refused with the name of the field."""
        assert call("open", id=id, **more)["error"]["details"]["field"] == field

    def test_a_cursor_of_another_question(self, call: Call) -> None:
        """It holds for the same ID and types only."""
        cursor = opened(call, turn_of(ECHOES, 1), limit=5)["page"]["next_cursor"]
        for id, more in ((turn_of(MIGRATION, 1), {}), (turn_of(ECHOES, 1), {"event_types": ["user_input"]})):
            answer = call("open", id=id, cursor=cursor, **more)
            assert answer["error"]["details"]["field"] == "cursor"

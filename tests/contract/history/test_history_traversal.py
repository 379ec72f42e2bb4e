"""Moving through history by the IDs that answers carry, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from history_world import ECHOES, MIGRATION, MONITOR, NOON, STOPPED, Call, covers, event_of, session_of, turn_of

from backstory.model import rfc3339


def opened(call: Call, id: str) -> dict[str, Any]:
    data: dict[str, Any] = call("open", id=id)["data"]
    return data


class TestFromAHit:
    @covers(
        "Search hit to event: search_sessions(...).data.results[].open.event_id",
        "Search hit to turn: search_sessions(...).data.results[].open.turn_id",
        "Search hit to session: search_sessions(...).data.results[].open.session_id",
    )
    @pytest.mark.parametrize("kind", ["event", "turn", "session"])
    def test_to_all_three(self, call: Call, kind: str) -> None:
        """Every hit's IDs open what they say."""
        answer = call("search_sessions", query="migration config zebra echo", n_hits=50)
        for hit in answer["data"]["results"]:
            data = opened(call, hit["open"][f"{kind}_id"])
            assert data["kind"] == kind
            assert data[kind]["id"] == hit[kind]["id"] == hit["open"][f"{kind}_id"]


class TestFromAList:
    @covers("Listed session to session: list_sessions(...).data.sessions[].open.session_id")
    def test_to_the_session(self, call: Call) -> None:
        """Every listed session opens, with the same counts."""
        answer = call("list_sessions", start_datetime=rfc3339(0), end_datetime=rfc3339(2 * NOON), limit=50)
        for entry in answer["data"]["sessions"]:
            session = opened(call, entry["open"]["session_id"])["session"]
            assert session == {name: entry["session"][name] for name in session}


class TestFromAnEvent:
    @covers(
        "Event to parent turn: open(event).data.traversal.turn_id",
        "Event to parent session: open(event).data.traversal.session_id",
    )
    def test_to_its_parents(self, call: Call) -> None:
        """The turn and the session it is in."""
        references = opened(call, event_of(MIGRATION, 1, 4))["traversal"]
        assert opened(call, references["turn_id"])["turn"]["id"] == turn_of(MIGRATION, 1)
        assert opened(call, references["session_id"])["session"]["id"] == session_of(MIGRATION)

    @covers("Event to adjacent event: open(event).data.traversal.previous_event_id and next_event_id")
    def test_to_its_neighbours(self, call: Call) -> None:
        """From the first to the last and back, through every event of the turn; null at the ends."""
        there, back = [], []
        id: str | None = event_of(MIGRATION, 1, 1)
        while id:
            there.append(id)
            id = opened(call, id)["traversal"]["next_event_id"]
        id = there[-1]
        while id:
            back.append(id)
            id = opened(call, id)["traversal"]["previous_event_id"]
        assert there == [event_of(MIGRATION, 1, ordinal) for ordinal in range(1, 9)]
        assert back == there[::-1]

    @covers("Event to adjacent turn: open(event).data.traversal.previous_turn_id and next_turn_id")
    def test_to_the_turns_beside_its_own(self, call: Call) -> None:
        """Across the border of a turn, and back."""
        references = opened(call, event_of(MIGRATION, 1, 8))["traversal"]
        assert references["previous_turn_id"] is None
        following = opened(call, references["next_turn_id"])
        first = opened(call, following["traversal"]["first_event_id"])
        assert first["traversal"]["previous_turn_id"] == turn_of(MIGRATION, 1)
        assert first["traversal"]["previous_event_id"] is None


class TestFromATurn:
    @covers("Turn to parent session: open(turn).data.traversal.session_id")
    def test_to_its_session(self, call: Call) -> None:
        """The session lists the turn."""
        references = opened(call, turn_of(MONITOR, 2))["traversal"]
        session = opened(call, references["session_id"])
        assert turn_of(MONITOR, 2) in [turn["id"] for turn in session["turns"]]

    @covers("Turn to adjacent turn: open(turn).data.traversal.previous_turn_id and next_turn_id")
    def test_to_its_neighbours(self, call: Call) -> None:
        """There and back, null at the ends."""
        first = opened(call, turn_of(MONITOR, 1))["traversal"]
        second = opened(call, first["next_turn_id"])["traversal"]
        assert (first["previous_turn_id"], second["next_turn_id"]) == (None, None)
        assert second["previous_turn_id"] == turn_of(MONITOR, 1)

    @covers("Turn to first and last event: open(turn).data.traversal.first_event_id and last_event_id")
    def test_to_its_ends(self, call: Call) -> None:
        """They are the ends of its list."""
        data = opened(call, turn_of(STOPPED, 1))
        first = opened(call, data["traversal"]["first_event_id"])
        last = opened(call, data["traversal"]["last_event_id"])
        assert first["event"]["id"] == data["events"][0]["id"]
        assert last["event"]["id"] == data["events"][-1]["id"]
        assert first["traversal"]["previous_event_id"] is None
        assert last["traversal"]["next_event_id"] is None


class TestFromASession:
    @covers("Session to contained turns: open(session).data.turns[].id")
    @pytest.mark.parametrize("key", [MIGRATION, MONITOR, STOPPED, ECHOES])
    def test_to_its_turns_and_their_events(self, call: Call, key: str) -> None:
        """Every turn opens, and together they have as many events as the session says."""
        data = opened(call, session_of(key))
        assert len(data["turns"]) == data["session"]["turn_count"]
        events = [event for turn in data["turns"] for event in opened(call, turn["id"])["events"]]
        assert len(events) == data["session"]["event_count"]
        assert len({event["id"] for event in events}) == len(events)

    def test_to_the_sessions_beside_it(self, call: Call) -> None:
        """And back."""
        following = opened(call, session_of(MONITOR))["traversal"]["next_session_id"]
        assert opened(call, following)["traversal"]["previous_session_id"] == session_of(MONITOR)


class TestDiscovery:
    def test_from_a_vague_question_to_the_whole_story(self, call: Call) -> None:
        """Search, the event, its turn, its session, and on to the next turn: the contract's end-to-end path."""
        hit = call("search_sessions", query="why did the schema migration fail")["data"]["results"][0]
        event = opened(call, hit["open"]["event_id"])
        turn = opened(call, event["traversal"]["turn_id"])
        session = opened(call, turn["traversal"]["session_id"])
        following = opened(call, turn["traversal"]["next_turn_id"])

        assert session["session"]["title"] == "Fix ClickHouse schema migration failure"
        assert "migration ordering" in turn["summary"]["final_response"]["text"]
        assert following["turn"]["ordinal"] == 2

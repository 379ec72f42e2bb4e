"""search_sessions, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from history_world import (
    ECHOES,
    MIGRATION,
    MONITOR,
    NOON,
    OUTPUT,
    SCRIPTS,
    STOPPED,
    Call,
    covers,
    event_of,
    session_of,
    turn_of,
)

DEFAULT_TYPES = ["user_input", "assistant_response", "tool_response"]


def ids(answer: dict[str, Any]) -> list[str]:
    return [hit["id"] for hit in answer["data"]["results"]]


class TestDefaults:
    @covers("search_sessions: query only")
    def test_a_query_alone_searches_everything_with_the_defaults(self, call: Call) -> None:
        """All sessions, the three default types, ten hits; the canonical request says so and has no other fields."""
        answer = call("search_sessions", query="  ClickHouse schema migration  ")

        assert answer["schema_version"] == "moraine.mcp.search_sessions.v1"
        assert answer["tool"] == "search_sessions"
        assert answer["request"] == {
            "query": "ClickHouse schema migration",
            "within_id": None,
            "event_types": DEFAULT_TYPES,
            "n_hits": 10,
        }
        assert answer["data"]["limit"] == 10
        assert answer["data"]["result_count"] == len(answer["data"]["results"])
        assert set(ids(answer)) >= {event_of(MIGRATION, 1, 1), event_of(MIGRATION, 1, 8)}
        assert answer["warnings"] == []

    @covers("search_sessions: query only")
    def test_nulls_are_the_defaults(self, call: Call) -> None:
        """Null says the same as leaving out, also for the arguments beyond the contract."""
        nothing = dict.fromkeys(("within_id", "event_types", "n_hits", "project", "source", "since", "until"))
        assert (
            call("search_sessions", query="migration", **nothing)["request"]
            == call("search_sessions", query="migration")["request"]
        )

    def test_noisy_types_are_left_out(self, call: Call) -> None:
        """Reasoning, calls, compactions, system and runtime events are found only when asked for."""
        assert ids(call("search_sessions", query="zebra")) == [event_of(STOPPED, 1, 2)]
        assert ids(call("search_sessions", query="probably breaks")) == []

    def test_no_hits_is_success(self, call: Call) -> None:
        """An empty list, not an error."""
        answer = call("search_sessions", query="xyzzyplugh", n_hits=5)
        assert answer["data"] == {"result_count": 0, "limit": 5, "truncated": False, "results": []}

    @pytest.mark.parametrize("query", ["!!!", "?", "…", '""', "\x00"])
    def test_a_query_without_words_finds_nothing(self, call: Call, query: str) -> None:
        """It is a valid query all the same."""
        assert call("search_sessions", query=query)["data"]["results"] == []


class TestHits:
    def test_a_hit_has_the_contracts_shape(self, call: Call) -> None:
        """Every field, with the parents' own counts and states."""
        answer = call("search_sessions", query="store-client failures", event_types=["tool_response"])
        hit = answer["data"]["results"][0]

        event, turn, session = event_of(MIGRATION, 1, 4), turn_of(MIGRATION, 1), session_of(MIGRATION)
        assert 0 < hit.pop("score") <= 1
        assert hit == {
            "rank": 1,
            "id": event,
            "event": {
                "id": event,
                "type": "tool_response",
                "timestamp": "2026-04-29T12:00:03.000Z",
                "ordinal": 4,
                "terminal": False,
            },
            "turn": {"id": turn, "ordinal": 1, "completed": True, "event_count": 8},
            "session": {
                "id": session,
                "title": "Fix ClickHouse schema migration failure",
                "source": "codex",
                "started_at": "2026-04-29T12:00:00.000Z",
                "updated_at": "2026-04-29T12:00:09.000Z",
                "completed": True,
            },
            "snippet": {"text": " ".join(OUTPUT.split()), "truncated": False},
            "open": {"event_id": event, "turn_id": turn, "session_id": session},
        }

    def test_terminal_events_say_so(self, call: Call) -> None:
        """The answer that ended its turn is marked."""
        hit = call("search_sessions", query="Updated the migration ordering")["data"]["results"][0]
        assert (hit["id"], hit["event"]["terminal"]) == (event_of(MIGRATION, 1, 8), True)

    def test_titles_are_never_empty(self, call: Call) -> None:
        """A session without a title gets one."""
        hit = call("search_sessions", query="zebra herds")["data"]["results"][0]
        assert hit["session"]["title"] == "Untitled session"

    def test_long_texts_show_the_match(self, call: Call) -> None:
        """A window around the match, at most 320 characters, cut between words."""
        hit = call("search_sessions", query="needlework drawer")["data"]["results"][0]
        text = hit["snippet"]["text"]

        assert "the needlework pattern was found in drawer seven" in text
        assert len(text) <= 320
        assert text.startswith("…")
        assert text.endswith("…")
        assert hit["snippet"]["truncated"] is True

    @pytest.mark.parametrize(("query", "ordinal"), [("ошибка подключения", 1), ("数据库连接", 2), ("密码错误", 2)])
    def test_any_script(self, call: Call, query: str, ordinal: int) -> None:
        """Questions in other scripts are answered, and the snippet shows the match."""
        hit = call("search_sessions", query=query)["data"]["results"][0]
        assert hit["id"] == event_of(SCRIPTS, 1, ordinal)
        assert query in hit["snippet"]["text"]


class TestRanking:
    @covers("search_sessions: query + n_hits")
    @pytest.mark.parametrize("n_hits", [1, 2, 25, 26, 49, 50])
    def test_as_many_hits_as_asked_for(self, call: Call, n_hits: int) -> None:
        """Exactly that many while there are more, and it is said that there are."""
        answer = call("search_sessions", query="echo location pulse", n_hits=n_hits)

        assert answer["data"]["result_count"] == len(answer["data"]["results"]) == n_hits
        assert answer["data"]["limit"] == answer["request"]["n_hits"] == n_hits
        assert answer["data"]["truncated"] is True
        assert [hit["rank"] for hit in answer["data"]["results"]] == list(range(1, n_hits + 1))

    def test_order(self, call: Call) -> None:
        """Best score first, then the newest, then by id; and the same every time."""
        answer = call("search_sessions", query="echo location pulse", n_hits=50)
        hits = answer["data"]["results"]
        expected = sorted(hits, key=lambda hit: hit["id"])
        expected.sort(key=lambda hit: (hit["score"], hit["event"]["timestamp"]), reverse=True)

        assert hits == expected
        assert len({hit["id"] for hit in hits}) == 50
        assert ids(call("search_sessions", query="echo location pulse", n_hits=50)) == ids(answer)

    def test_scores_are_normalised(self, call: Call) -> None:
        """Above zero, at most one, falling."""
        scores = [hit["score"] for hit in call("search_sessions", query="migration tests config")["data"]["results"]]
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score <= 1 for score in scores)


class TestEventTypes:
    @covers("search_sessions: query + event_types")
    @pytest.mark.parametrize(("kind", "ordinal"), [("system", 1), ("user_input", 2), ("compaction", 3), ("runtime", 5)])
    def test_exactly_the_types_asked_for(self, call: Call, kind: str, ordinal: int) -> None:
        """Nothing of another type slips in."""
        answer = call("search_sessions", query="zebra", event_types=[kind])
        assert ids(answer) == [event_of(STOPPED, 1, ordinal)]
        assert answer["request"]["event_types"] == [kind]

    def test_tool_calls_are_found_by_their_arguments(self, call: Call) -> None:
        """Commands and paths, and the snippet shows the call."""
        answer = call(
            "search_sessions", query='"cargo test --workspace" /home/ada/src/store', event_types=["tool_call"]
        )
        hit = answer["data"]["results"][0]
        assert hit["id"] == event_of(MIGRATION, 1, 3)
        assert hit["snippet"]["text"].startswith('exec_command(cmd="cargo test --workspace --locked"')

    def test_all_eight_searchable_types(self, call: Call) -> None:
        """Unknown events are never found."""
        supported = ["runtime", "system", "compaction", "tool_response", "tool_call", "reasoning", "assistant_response"]
        answer = call("search_sessions", query="zebra", event_types=[*supported, "user_input", "system"])
        assert answer["request"]["event_types"] == [
            "user_input",
            "assistant_response",
            "reasoning",
            "tool_call",
            "tool_response",
            "compaction",
            "system",
            "runtime",
        ]
        assert sorted(ids(answer)) == sorted(event_of(STOPPED, 1, ordinal) for ordinal in (1, 2, 3, 5))


class TestScope:
    @covers("search_sessions: query + within_id=session")
    def test_only_that_session(self, call: Call) -> None:
        """With the default types, and the target of a session."""
        answer = call("search_sessions", query="config migration", within_id=session_of(MONITOR))
        assert {hit["session"]["id"] for hit in answer["data"]["results"]} == {session_of(MONITOR)}
        assert answer["request"]["within_id"] == session_of(MONITOR)
        assert answer["request"]["event_types"] == DEFAULT_TYPES
        assert answer["performance"]["sla_target_ms"] == 500

    @covers("search_sessions: query + within_id=turn")
    def test_only_that_turn(self, call: Call) -> None:
        """With the default types, and the target of a turn."""
        answer = call("search_sessions", query="validation", within_id=turn_of(MIGRATION, 2))
        assert set(ids(answer)) == {event_of(MIGRATION, 2, 1), event_of(MIGRATION, 2, 2)}
        assert answer["request"]["event_types"] == DEFAULT_TYPES
        assert answer["performance"]["sla_target_ms"] == 300

    @covers("search_sessions: query + within_id=session + event_types")
    def test_only_that_session_and_those_types(self, call: Call) -> None:
        """Both filters hold."""
        scope = session_of(MIGRATION)
        answer = call("search_sessions", query="cargo", within_id=scope, event_types=["tool_call"])
        assert set(ids(answer)) == {event_of(MIGRATION, 1, 3), event_of(MIGRATION, 1, 7)}

    @covers("search_sessions: query + within_id=turn + event_types")
    def test_only_that_turn_and_those_types(self, call: Call) -> None:
        """Both filters hold."""
        scope = turn_of(MIGRATION, 1)
        answer = call("search_sessions", query="cargo test failure", within_id=scope, event_types=["tool_response"])
        assert ids(answer) == [event_of(MIGRATION, 1, 4)]
        answer = call("search_sessions", query="validation", within_id=scope, event_types=["user_input"])
        assert ids(answer) == []

    def test_a_scope_without_matches_is_empty(self, call: Call) -> None:
        """Not an error, and nothing from outside."""
        for scope in (session_of(ECHOES), turn_of(MIGRATION, 2)):
            assert call("search_sessions", query="zebra", within_id=scope)["data"]["results"] == []


class TestRefusals:
    def refused(self, answer: dict[str, Any], code: str, field: str) -> str:
        assert answer["schema_version"] == "moraine.mcp.error.v1"
        assert answer["tool"] == "search_sessions"
        assert answer["error"]["code"] == code
        assert answer["error"]["details"]["field"] == field
        message: str = answer["error"]["message"]
        return message

    @covers("search_sessions: blank query")
    @pytest.mark.parametrize("query", ["", " ", "\n\t ", "\u3000"])
    def test_blank_query(self, call: Call, query: str) -> None:
        """As in the contract's example, word for word; the request is echoed as it was given."""
        answer = call("search_sessions", query=query)
        assert self.refused(answer, "invalid_request", "query") == "query must be a non-empty string"
        assert answer["error"]["details"] == {"field": "query"}
        assert answer["request"] == {"query": query}
        assert answer["warnings"] == []
        assert answer["performance"]["sla_target_ms"] == 750
        assert answer["performance"]["met_sla"] is True

    @pytest.mark.parametrize("query", [None, 7, ["a"], {"a": 1}, True])
    def test_query_of_another_type(self, call: Call, query: Any) -> None:
        """Nothing is made a string that is none."""
        self.refused(call("search_sessions", query=query), "invalid_request", "query")

    def test_missing_query(self, call: Call) -> None:
        """The field is named."""
        self.refused(call("search_sessions", {}), "invalid_request", "query")

    def test_query_length(self, call: Call) -> None:
        """4096 characters are accepted, counted after trimming; one more is not."""
        assert "error" not in call("search_sessions", query=" " + "ä" * 4096 + " ")
        assert "4096" in self.refused(call("search_sessions", query="a" * 4097), "invalid_request", "query")

    @covers("search_sessions: query + within_id=event")
    @pytest.mark.parametrize("event", [event_of(MIGRATION, 1, 1), "event:evt_01J9Q3Q2C4TD9K7F8M1N5R6P2A"])
    def test_within_an_event(self, call: Call, event: str) -> None:
        """Refused with the contract's sentence, whether or not the event is there."""
        answer = call("search_sessions", query="x", within_id=event)
        message = self.refused(answer, "invalid_request", "within_id")
        assert message == "within_id accepts session and turn IDs, not event IDs"

    @covers("search_sessions: unknown within_id")
    @pytest.mark.parametrize(
        ("unknown", "message"),
        [
            (session_of("codex/nobody"), "session not found"),
            (turn_of("codex/nobody", 1), "turn not found"),
            (turn_of(MIGRATION, 3), "turn not found"),
            ("session:ses_01J9Q3N7W6F9A8K2M4V5R6T7Y8", "session not found"),
            ("turn:turn_01J9Q3P4V8BN7XM9G2K6Q1W3E4", "turn not found"),
        ],
    )
    def test_unknown_within_id(self, call: Call, unknown: str, message: str) -> None:
        """Well-formed, but nothing is there."""
        answer = call("search_sessions", query="x", within_id=unknown)
        assert self.refused(answer, "not_found", "within_id") == message
        assert answer["error"]["details"]["id"] == unknown

    @covers("search_sessions: malformed within_id")
    @pytest.mark.parametrize(
        "malformed",
        ["", " ", "x", "session:", "session:!!!", session_of(MIGRATION) + "=", f" {session_of(MIGRATION)}", "turn:a:0"],
    )
    def test_malformed_within_id(self, call: Call, malformed: str) -> None:
        """Whatever is not exactly one of our IDs."""
        answer = call("search_sessions", query="x", within_id=malformed)
        assert self.refused(answer, "invalid_id", "within_id") == "id is not a valid Moraine MCP ID"

    @covers("search_sessions: empty event_types")
    def test_empty_event_types(self, call: Call) -> None:
        """No types at all is not a question."""
        self.refused(call("search_sessions", query="x", event_types=[]), "invalid_request", "event_types")

    @pytest.mark.parametrize("types", ["user_input", [3], [None], {"user_input": True}])
    def test_event_types_of_another_shape(self, call: Call, types: Any) -> None:
        """A list of names, nothing else; the field is the argument's name."""
        self.refused(call("search_sessions", query="x", event_types=types), "invalid_request", "event_types")

    @covers("search_sessions: unsupported event_types value")
    @pytest.mark.parametrize("name", ["debug_trace", "unknown", "USER_INPUT", "", " user_input"])
    def test_unsupported_event_type(self, call: Call, name: str) -> None:
        """As in the contract's example, with the types that there are."""
        answer = call("search_sessions", query="migration", event_types=["user_input", name])
        message = self.refused(answer, "unsupported_event_type", "event_types")
        assert message == f"unsupported event type: {name}"
        assert answer["error"]["details"]["supported"] == [
            "user_input",
            "assistant_response",
            "reasoning",
            "tool_call",
            "tool_response",
            "compaction",
            "system",
            "runtime",
        ]
        assert answer["request"] == {"query": "migration", "event_types": ["user_input", name]}

    @covers("search_sessions: n_hits < 1")
    @pytest.mark.parametrize("n_hits", [0, -1, -(2**70)])
    def test_too_few_hits(self, call: Call, n_hits: int) -> None:
        """At least one."""
        self.refused(call("search_sessions", query="x", n_hits=n_hits), "invalid_request", "n_hits")

    @covers("search_sessions: n_hits > 50")
    @pytest.mark.parametrize("n_hits", [51, 1000, 2**70])
    def test_too_many_hits(self, call: Call, n_hits: int) -> None:
        """At most fifty."""
        self.refused(call("search_sessions", query="x", n_hits=n_hits), "invalid_request", "n_hits")

    @covers("search_sessions: non-integer n_hits")
    @pytest.mark.parametrize("n_hits", [3.5, "3", True, [3], {}])
    def test_hits_that_are_no_integer(self, call: Call, n_hits: Any) -> None:
        """Nothing is rounded or converted."""
        self.refused(call("search_sessions", query="x", n_hits=n_hits), "invalid_request", "n_hits")

    def test_unknown_field(self, call: Call) -> None:
        """Named, with the fields that there are."""
        message = self.refused(call("search_sessions", query="x", limit=3), "invalid_request", "limit")
        assert "n_hits" in message

    @pytest.mark.parametrize(
        ("arguments", "field"),
        [
            ({"query": " ", "n_hits": "3"}, "n_hits"),
            ({"query": " ", "nonsense": 1}, "nonsense"),
            ({"query": " ", "within_id": "x", "event_types": [], "n_hits": 0}, "query"),
            ({"query": "x", "within_id": "x", "event_types": [], "n_hits": 0}, "within_id"),
            ({"query": "x", "event_types": [], "n_hits": 0}, "event_types"),
            ({"query": "x", "n_hits": 0}, "n_hits"),
        ],
    )
    def test_order_of_checks(self, call: Call, arguments: dict[str, Any], field: str) -> None:
        """Shape, query, within_id, event_types, n_hits: the first that fails is reported."""
        assert call("search_sessions", arguments)["error"]["details"]["field"] == field


class TestBeyondTheContract:
    def test_project(self, call: Call) -> None:
        """Part of the project's path, in any case; echoed when given."""
        answer = call("search_sessions", query="config migration zebra", project="SRC/Monitor")
        assert {hit["session"]["id"] for hit in answer["data"]["results"]} == {session_of(MONITOR)}
        assert answer["request"]["project"] == "SRC/Monitor"

    def test_source(self, call: Call) -> None:
        """One agent only."""
        answer = call("search_sessions", query="config migration", source="claude-code")
        assert {hit["session"]["source"] for hit in answer["data"]["results"]} == {"claude-code"}

    def test_a_source_that_is_not_there(self, call: Call) -> None:
        """No hits, and a hint at what there is."""
        answer = call("search_sessions", query="migration", source="clod-code")
        assert answer["data"]["results"] == []
        assert answer["warnings"] == [
            "The archive has no sessions of the source clod-code. It has: claude-code, codex."
        ]

    def test_since_and_until(self, call: Call) -> None:
        """From the first moment on, and before the second; echoed in UTC."""
        window = {"since": "2026-04-29T14:00:03+02:00", "until": "2026-04-29T12:00:07Z"}
        answer = call("search_sessions", query="cargo migration", **window)
        assert ids(answer) == [event_of(MIGRATION, 1, 4)]
        assert answer["request"]["since"] == "2026-04-29T12:00:03.000Z"
        assert answer["request"]["until"] == "2026-04-29T12:00:07.000Z"
        assert NOON == 1_777_464_000_000

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("project", " "),
            ("project", 3),
            ("source", ""),
            ("since", "yesterday"),
            ("since", ""),
            ("until", "2026-04-29T12:00:00"),
            ("until", 1777464000),
        ],
    )
    def test_refusals(self, call: Call, field: str, value: Any) -> None:
        """A value that cannot be understood is refused, not guessed."""
        answer = call("search_sessions", query="x", **{field: value})
        assert answer["error"]["code"] == "invalid_request"
        assert answer["error"]["details"]["field"] == field

    def test_until_before_since(self, call: Call) -> None:
        """A window has an inside."""
        answer = call("search_sessions", query="x", since="2026-04-30T00:00:00Z", until="2026-04-30T00:00:00Z")
        assert answer["error"]["details"]["field"] == "until"

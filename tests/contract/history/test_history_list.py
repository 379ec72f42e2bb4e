"""list_sessions, rule by rule."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from string import ascii_letters
from typing import Any

import pytest
from history_world import DAY, LISTED, MIGRATION, MONITOR, NOON, Call, build, covers, event, session_of

from backstory.archive import open_engine
from backstory.archive.base import Batch, SyncState
from backstory.config import Settings
from backstory.model import rfc3339
from backstory.toolsets.history.service import History
from backstory.toolsets.history.tools import toolset

FIRST = NOON - 60 * DAY
TALKS = {"start_datetime": rfc3339(FIRST), "end_datetime": rfc3339(FIRST + 24 * DAY)}


def keys(answer: dict[str, Any]) -> list[str]:
    return [entry["id"] for entry in answer["data"]["sessions"]]


def window(start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"start_datetime": rfc3339(start), "end_datetime": rfc3339(end), **more}


class TestDefaults:
    @covers("list_sessions: start_datetime + end_datetime")
    def test_a_window_lists_what_overlaps_it(self, call: Call) -> None:
        """Newest first, twenty at most; the canonical request has the defaults and times in UTC."""
        times = {"start_datetime": "2026-02-28T13:00:00.5+01:00", "end_datetime": "2026-03-24t12:00:00z"}
        answer = call("list_sessions", times)

        assert answer["schema_version"] == "moraine.mcp.list_sessions.v1"
        assert answer["tool"] == "list_sessions"
        assert answer["request"] == {
            "start_datetime": "2026-02-28T12:00:00.500Z",
            "end_datetime": "2026-03-24T12:00:00.000Z",
            "limit": 20,
            "cursor": None,
            "mode": None,
            "sort": "desc",
        }
        assert answer["data"]["result_count"] == 20
        assert answer["data"]["limit"] == 20
        assert answer["data"]["truncated"] is True
        assert answer["data"]["next_cursor"]
        assert keys(answer)[0] == session_of(LISTED[-1])

    def test_a_session_has_the_contracts_shape(self, call: Call) -> None:
        """Compact metadata and the ID to open, nothing of what was said."""
        answer = call("list_sessions", window(NOON, NOON + 1000))
        assert answer["data"]["sessions"] == [
            {
                "rank": 1,
                "id": session_of(MIGRATION),
                "session": {
                    "id": session_of(MIGRATION),
                    "title": "Fix ClickHouse schema migration failure",
                    "source": "codex",
                    "started_at": "2026-04-29T12:00:00.000Z",
                    "updated_at": "2026-04-29T12:00:09.000Z",
                    "completed": True,
                    "turn_count": 2,
                    "event_count": 10,
                    "mode": "tool_calling",
                    "session_slug": "fix-migration",
                    "session_summary": "Migration ordering fixed.",
                },
                "open": {"session_id": session_of(MIGRATION)},
            }
        ]
        assert answer["data"]["truncated"] is False
        assert answer["data"]["next_cursor"] is None

    def test_what_is_not_known_is_null(self, call: Call) -> None:
        """Slug and summary; never the title."""
        session = call("list_sessions", window(FIRST, FIRST + 1))["data"]["sessions"][0]["session"]
        assert (session["session_slug"], session["session_summary"]) == (None, None)
        assert session["title"] == "Talk 0"

    def test_an_empty_window(self, call: Call) -> None:
        """Success without sessions."""
        answer = call("list_sessions", window(0, 1))
        assert answer["data"] == {
            "result_count": 0,
            "limit": 20,
            "truncated": False,
            "sessions": [],
            "next_cursor": None,
        }

    @pytest.mark.parametrize(
        ("start", "end", "found"),
        [
            (NOON + 9000, NOON + 9001, True),  # updated exactly at the start: inclusive
            (NOON + 9001, NOON + 9002, False),
            (NOON - 1, NOON, False),  # started exactly at the end: exclusive
            (NOON - 1, NOON + 1, True),
            (NOON + 4000, NOON + 4001, True),  # the window lies inside the session
        ],
    )
    def test_boundaries(self, call: Call, start: int, end: int, found: bool) -> None:
        """updated_at >= start and started_at < end."""
        assert (keys(call("list_sessions", window(start, end))) == [session_of(MIGRATION)]) is found

    @pytest.mark.parametrize("end", ["9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999999Z"])
    def test_until_the_end_of_time(self, call: Call, end: str) -> None:
        answer = call("list_sessions", start_datetime="0001-01-01T00:00:00Z", end_datetime=end)
        assert answer["request"]["end_datetime"] == "9999-12-31T23:59:59.999Z"
        assert answer["data"]["result_count"] == 20

    def test_fractions_below_a_millisecond(self, call: Call) -> None:
        """Neither end lets in what is outside."""
        late = {"start_datetime": "2026-04-29T12:00:09.0001Z", "end_datetime": "2026-04-29T12:00:10Z"}
        assert keys(call("list_sessions", late)) == []
        early = {"start_datetime": "2026-04-29T11:00:00Z", "end_datetime": "2026-04-29T12:00:00.0001Z"}
        assert keys(call("list_sessions", early)) == [session_of(MIGRATION)]


class TestPages:
    @covers("list_sessions: range + limit")
    @pytest.mark.parametrize("limit", [1, 23, 24, 50])
    def test_at_most_so_many(self, call: Call, limit: int) -> None:
        """And it is said whether there are more."""
        answer = call("list_sessions", {**TALKS, "limit": limit})
        assert len(keys(answer)) == min(limit, 24)
        assert answer["data"]["truncated"] is (limit < 24)
        assert (answer["data"]["next_cursor"] is not None) is (limit < 24)

    @covers("list_sessions: range + cursor")
    @pytest.mark.parametrize("sort", ["desc", "asc"])
    @pytest.mark.parametrize("limit", [1, 5, 11])
    def test_every_session_once(self, call: Call, limit: int, sort: str) -> None:
        """Page by page the same list as at once, also where two were updated at the same moment."""
        whole = keys(call("list_sessions", {**TALKS, "limit": 50, "sort": sort}))
        seen: list[str] = []
        cursor = None
        while True:
            answer = call("list_sessions", {**TALKS, "limit": limit, "sort": sort, "cursor": cursor})
            assert answer["request"]["cursor"] == cursor
            assert [entry["rank"] for entry in answer["data"]["sessions"]] == list(range(1, len(keys(answer)) + 1))
            seen += keys(answer)
            cursor = answer["data"]["next_cursor"]
            if cursor is None:
                break
        assert seen == whole
        assert len(set(seen)) == 24

    @covers("list_sessions: range + sort=asc")
    def test_oldest_first(self, call: Call) -> None:
        """By updated_at, then ID; descending is the reverse."""
        ascending = call("list_sessions", {**TALKS, "limit": 50, "sort": "asc"})
        entries = [(entry["session"]["updated_at"], entry["id"]) for entry in ascending["data"]["sessions"]]
        assert entries == sorted(entries)
        assert keys(call("list_sessions", {**TALKS, "limit": 50})) == keys(ascending)[::-1]

    def test_the_same_moment_written_differently(self, call: Call) -> None:
        """A cursor is bound to the window, not to how it was spelled; the limit may change."""
        first = call("list_sessions", {**TALKS, "limit": 5})
        again = {
            "start_datetime": TALKS["start_datetime"].replace(".000Z", "+00:00"),
            "end_datetime": TALKS["end_datetime"],
            "cursor": first["data"]["next_cursor"],
            "limit": 2,
        }
        assert keys(call("list_sessions", again)) == keys(call("list_sessions", {**TALKS, "limit": 7}))[5:]

    @covers("list_sessions: cursor with changed filter or sort")
    @pytest.mark.parametrize(
        "change",
        [
            {"start_datetime": rfc3339(FIRST + 1)},
            {"end_datetime": rfc3339(FIRST + 25 * DAY)},
            {"mode": "chat"},
            {"sort": "asc"},
            {"project": "talks"},
            {"source": "claude-code"},
        ],
    )
    def test_a_cursor_of_another_question(self, call: Call, change: dict[str, str]) -> None:
        """Refused: the next page of something else would be nonsense."""
        cursor = call("list_sessions", {**TALKS, "limit": 5})["data"]["next_cursor"]
        answer = call("list_sessions", {**TALKS, "cursor": cursor, **change})
        assert answer["error"]["code"] == "invalid_request"
        assert answer["error"]["details"]["field"] == "cursor"

    @pytest.mark.parametrize("cursor", ["", "nonsense", "AAAA", "====", "x" * 10_000, 7, True])
    def test_not_a_cursor(self, call: Call, cursor: Any) -> None:
        """Refused, never a crash."""
        answer = call("list_sessions", {**TALKS, "cursor": cursor})
        assert answer["error"]["code"] == "invalid_request"
        assert answer["error"]["details"]["field"] == "cursor"

    def test_a_cursor_that_is_not_as_it_was_returned(self, call: Call) -> None:
        """Text that stands for the same data is no cursor either: with padding, or with other bits behind the data."""
        cursor = call("list_sessions", {**TALKS, "limit": 5})["data"]["next_cursor"]
        padding = "=" * (-len(cursor) % 4)
        same = [cursor[:-1] + ending for ending in ascii_letters if ending != cursor[-1]]
        same = [text for text in same if urlsafe_b64decode(text + padding) == urlsafe_b64decode(cursor + padding)]
        for changed in (f"{cursor}=", f" {cursor}", f"{cursor}\n", *same):
            answer = call("list_sessions", {**TALKS, "cursor": changed})
            assert answer["error"]["details"]["field"] == "cursor"

    def test_sessions_that_arrive_between_two_pages(self, tmp_path: Any) -> None:
        """Neither repeat nor hide another."""
        archive = open_engine("local", tmp_path / "home")
        writer = archive.writer()
        writer.recover()
        talk = [[event("user_input", "hello")]]
        for number in range(4):
            writer.write(build(f"codex/{number}", talk, start=NOON + number * 1000))
        writer.write(Batch(sync=SyncState(first_finished_at=NOON)))
        tools = {tool.name: tool.handler for tool in toolset(History(lambda: archive, Settings())).tools}
        first = tools["list_sessions"](window(NOON, NOON + DAY, limit=2)).data
        for number, start in (("new", NOON + 9000), ("between", NOON + 1500), ("old", NOON + 500)):
            writer.write(build(f"codex/{number}", talk, start=start))
        cursor = first["data"]["next_cursor"]
        second = tools["list_sessions"](window(NOON, NOON + DAY, limit=9, cursor=cursor)).data
        writer.close()
        archive.close()

        assert keys(first) == [session_of("codex/3"), session_of("codex/2")]
        assert keys(second) == [session_of(f"codex/{name}") for name in ("between", "1", "old", "0")]


class TestFilters:
    @covers("list_sessions: range + mode")
    @pytest.mark.parametrize("mode", ["chat", "tool_calling", "mcp_internal", "web_search"])
    def test_only_that_mode(self, call: Call, mode: str) -> None:
        """Each of the four."""
        answer = call("list_sessions", {**TALKS, "mode": mode})
        assert {entry["session"]["mode"] for entry in answer["data"]["sessions"]} == {mode}
        assert len(keys(answer)) == 6
        assert answer["request"]["mode"] == mode

    def test_project_and_source(self, call: Call) -> None:
        """Beyond the contract; echoed when given."""
        wide = window(FIRST, NOON + 30 * DAY)
        answer = call("list_sessions", {**wide, "project": "Src/MONITOR", "source": "claude-code"})
        assert session_of(MONITOR) in keys(answer)
        assert len(keys(answer)) == 2
        assert (answer["request"]["project"], answer["request"]["source"]) == ("Src/MONITOR", "claude-code")


class TestTargets:
    @pytest.mark.parametrize(
        ("request_", "target"),
        [
            (window(NOON, NOON + 1000), 300),
            (window(NOON, NOON + 1000, mode="tool_calling"), 300),
            (window(0, 30 * DAY - 1), 300),
            (window(0, 30 * DAY), 1000),
            (window(0, 30 * DAY, mode="chat"), 1200),
            ({**TALKS, "limit": 3}, 1000),
            ({**TALKS, "limit": 3, "mode": "chat"}, 1200),
        ],
    )
    def test_the_target_that_applies(self, call: Call, request_: dict[str, Any], target: int) -> None:
        """Typical, broad (thirty days, or a next page), and broad with a mode."""
        assert call("list_sessions", request_)["performance"]["sla_target_ms"] == target


class TestRefusals:
    def refused(self, call: Call, arguments: dict[str, Any], field: str) -> str:
        answer = call("list_sessions", arguments)
        assert answer["schema_version"] == "moraine.mcp.error.v1"
        assert answer["error"]["code"] == "invalid_request"
        assert answer["error"]["details"]["field"] == field
        assert answer["request"] == arguments
        assert answer["performance"]["sla_target_ms"] == 300
        message: str = answer["error"]["message"]
        return message

    @covers("list_sessions: missing datetime")
    @pytest.mark.parametrize("field", ["start_datetime", "end_datetime"])
    def test_missing_datetime(self, call: Call, field: str) -> None:
        """Both are required, and null is not a time."""
        without = {name: value for name, value in TALKS.items() if name != field}
        self.refused(call, without, field)
        self.refused(call, {**TALKS, field: None}, field)

    @covers("list_sessions: datetime without timezone")
    @pytest.mark.parametrize("field", ["start_datetime", "end_datetime"])
    @pytest.mark.parametrize(
        "text", ["2026-03-10T12:00:00", "2026-03-10", "2026-03-10T12:00:00.000", "2026-03-10T12:00:00 "]
    )
    def test_datetime_without_timezone(self, call: Call, field: str, text: str) -> None:
        """The offset is never guessed; the message shows what is accepted."""
        assert "offset or Z" in self.refused(call, {**TALKS, field: text}, field)

    @pytest.mark.parametrize(
        "text", ["", "now", "1777464000", "2026-02-30T00:00:00Z", "2026-03-10T25:00:00Z", "2026-03-10T12:00:00+25:00"]
    )
    def test_not_a_datetime(self, call: Call, text: str) -> None:
        """Neither words nor days that do not exist."""
        self.refused(call, {**TALKS, "start_datetime": text}, "start_datetime")

    @covers("list_sessions: end_datetime <= start_datetime")
    @pytest.mark.parametrize("end", [FIRST, FIRST - 1])
    def test_end_not_after_start(self, call: Call, end: int) -> None:
        """An empty or reversed window."""
        self.refused(call, window(FIRST, end), "end_datetime")

    @covers("list_sessions: unknown field")
    def test_unknown_field(self, call: Call) -> None:
        """Named."""
        self.refused(call, {**TALKS, "offset": 3}, "offset")

    @covers("list_sessions: invalid mode or sort")
    @pytest.mark.parametrize(
        ("field", "value"),
        [("mode", "talking"), ("mode", ""), ("mode", 1), ("sort", "newest"), ("sort", "DESC"), ("sort", False)],
    )
    def test_invalid_mode_or_sort(self, call: Call, field: str, value: Any) -> None:
        """One of the values that there are."""
        self.refused(call, {**TALKS, field: value}, field)

    @pytest.mark.parametrize("limit", [0, -1, 51, 2.5, "5", True])
    def test_invalid_limit(self, call: Call, limit: Any) -> None:
        """An integer from 1 to 50."""
        self.refused(call, {**TALKS, "limit": limit}, "limit")

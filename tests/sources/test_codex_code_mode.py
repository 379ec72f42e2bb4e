"""Rollouts of Codex 0.166: scripts that call tools, agents with sealed tasks, turns that end in other ways."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from codex_rollout import Rollout, answers, events, feed, feed_with_restarts, texts
from codex_shelf import Shelf, of_tool, shelve

from backstory.library import Library
from backstory.model import EventType
from backstory.sources.base import Usage
from tests.archive_world import usage_of

FOLDER = Path(__file__).parent / "codex" / "code_mode_2026"
ROOT, CHILD = (f"01a0c001-0000-7000-8000-0000000000{name}" for name in ("a0", "a1"))
CALL, RESPONSE = EventType.TOOL_CALL, EventType.TOOL_RESPONSE


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    folder = tmp_path / "home" / ".codex" / "sessions" / "2026" / "10" / "20"
    folder.mkdir(parents=True)
    for path in FOLDER.glob("*.jsonl"):
        (folder / path.name).write_bytes(path.read_bytes())
    yield from shelve(tmp_path, tmp_path / "home")


class TestScripts:
    """The calls that a script makes are calls of their own."""

    def test_calls_and_responses(self, shelf: Shelf) -> None:
        calls, responses = shelf.events(ROOT, CALL), shelf.events(ROOT, RESPONSE)
        assert Counter(call.call_id for call in calls) == Counter(response.call_id for response in responses)
        assert max(Counter(call.call_id for call in calls).values()) == 1
        command = of_tool(calls, "exec_command")[0]
        assert command.arguments == {"command": ["/bin/bash", "-lc", "wc -l carts.csv"], "cwd": "/home/mira/shop"}
        assert command.extra == {"script": "call_a1"}
        patch = of_tool(calls, "apply_patch")[0]
        assert patch.arguments["changes"] == {
            "/home/mira/shop/carts.md": {"type": "add", "content": "There are 42 carts.\n"}
        }
        assert of_tool(calls, "mcp__notes__find")[0].arguments == {"about": "carts"}
        assert of_tool(responses, "mcp__notes__find")[0].text == "Nobody wrote about carts before."

    def test_exit_codes(self, shelf: Shelf) -> None:
        commands = of_tool(shelf.events(ROOT, RESPONSE), "exec_command")
        assert [(row.exit_code, row.failed) for row in commands[:2]] == [(0, False), (3, True)]
        assert of_tool(shelf.events(ROOT, RESPONSE), "exec")[2].failed is None

    def test_a_call_that_the_model_made_itself_is_not_told_twice(self, shelf: Shelf) -> None:
        dates = [row for row in shelf.events(ROOT) if row.call_id == "call_e1"]
        assert [row.type for row in dates] == [CALL, RESPONSE]
        assert dates[1].exit_code == 0

    def test_outputs_are_found_once(self, shelf: Shelf) -> None:
        """The script's own output repeats those of its calls; only what it adds is left."""
        assert [row.tool for row in shelf.find('"cart 7 is wrong"', RESPONSE)] == ["exec_command"]
        assert [row.tool for row in shelf.find("nobody wrote")] == ["mcp__notes__find"]
        assert [row.tool for row in shelf.find('"There are 42 of them"')] == ["exec"]

    def test_scripts_stay_visible(self, shelf: Shelf) -> None:
        scripts = of_tool(shelf.events(ROOT, CALL), "exec")
        assert "text(r);" in scripts[0].arguments["input"]

    def test_calls_belong_to_the_model_call_that_wrote_the_script(self, shelf: Shelf) -> None:
        by_call = {row.call_id: row.usage_key for row in shelf.events(ROOT, CALL)}
        assert by_call["exec-0001"] == by_call["call_a1"] != by_call["call_a2"]
        assert by_call["exec-0002"] == by_call["exec-0003"] == by_call["call_a2"]
        known = {usage.key for usage in usage_of(shelf.archive, f"codex/{ROOT}")}
        assert {key for key in by_call.values() if key} <= known

    def test_lines_that_were_cut_out_of_a_long_output(self) -> None:
        """Scripts often print parts of what their calls returned, or all of it with something in between."""
        rollout = Rollout()
        output = "\n".join(f"line {number} of the log" for number in range(40))
        printed = "line 1 of the log\nline 2 of the log\n… 30 lines …\nline 39 of the log\nthat is all"
        items = feed(
            [
                rollout.meta(),
                rollout.context("t1"),
                rollout.user_item("look"),
                rollout.item("custom_tool_call", name="exec", call_id="call_1", input="text(...)"),
                rollout.turn_item("CommandExecution", id="exec-1", command=["cat"], aggregated_output=output),
                rollout.item("custom_tool_call_output", call_id="call_1", output=[{"text": printed}]),
            ]
        )
        assert texts(items, RESPONSE) == [output, "…\n… 30 lines …\n…\nthat is all"]


class TestEndings:
    def test_turns(self, shelf: Shelf) -> None:
        """What was asked, how each turn ended, and that a compaction on request is no turn."""
        turns = shelf.turns(ROOT)
        prompts = [row.text for row in shelf.events(ROOT, EventType.USER_INPUT)]
        assert prompts == [
            "Count the carts, note the number, and look for older notes",
            "<environment_context> is what this prompt begins with. Check the totals",
            "Let somebody else look, and watch the log meanwhile",
            "Never mind. What is the date?",
        ]
        answer, runtime = EventType.ASSISTANT_RESPONSE, EventType.RUNTIME
        assert [turn.terminal_type for turn in turns] == [answer, answer, runtime, answer]
        assert shelf.session(ROOT).completed

    def test_what_ends_after_its_turn(self, shelf: Shelf) -> None:
        """A command that outlives its turn belongs to it, and neither opens it again nor ends up in the next one."""
        calls = [[row.call_id for row in shelf.archive.events(t.session, t.ordinal)] for t in shelf.turns(ROOT)]
        assert [name for name in calls[2] if name and name.startswith("exec-")] == [
            "exec-0005", "exec-0005", "exec-0006", "exec-0006",
        ]  # fmt: skip
        assert "exec-0006" not in calls[3]

    def test_a_final_answer_without_the_end_of_its_task(self) -> None:
        rollout = Rollout()
        records = [rollout.meta(), rollout.started("t1"), rollout.user_item("date?")]
        said = {"role": "assistant", "content": [{"text": "Monday."}]}
        final = rollout.item("message", phase="final_answer", **said)
        assert [event.ends_turn for event in events(feed([*records, final]))][-1] is True
        assert not events(feed([*records, rollout.item("message", phase="commentary", **said)]))[-1].ends_turn

    def test_only_a_later_form_says_that_an_answer_is_final(self) -> None:
        rollout = Rollout()
        records = [rollout.meta(), rollout.started("t1"), rollout.user_item("date?"), rollout.answer_event("Monday.")]
        records.append(rollout.item("message", phase="final_answer", role="assistant", content=[{"text": "Monday."}]))
        items = feed(records)
        assert answers(items) == ["Monday."]
        assert type(items[-1]).__name__ == "TurnEnd"
        assert items == feed_with_restarts(records)

    def test_summaries_appear_once(self, shelf: Shelf) -> None:
        compactions = shelf.events(ROOT, EventType.COMPACTION)
        assert [row.text.rpartition("\n")[2] for row in compactions] == [
            "SUMMARY cart 7 is wrong.",
            "SUMMARY carts were counted.",
        ]
        assert not [row for row in shelf.events(ROOT) if "SUMMARY" in row.text and row not in compactions]


class TestTokens:
    def test_each_model_call_once(self, shelf: Shelf) -> None:
        """`token_usage_record` and `token_count` tell the same."""
        usage = usage_of(shelf.archive, f"codex/{ROOT}")
        assert [row.input_tokens for row in sorted(usage, key=lambda row: row.ts)] == [
            1152, 1455, 1657, 1960, 1859, 1253, 2465, 1152, 1455, 1152,
        ]  # fmt: skip

    def test_either_record_alone_counts(self) -> None:
        rollout = Rollout()
        start = [rollout.meta(), rollout.started("t1"), rollout.user_item("go")]
        record = rollout.record("token_usage_record", usage={"input_tokens": 100, "output_tokens": 1})
        first, second = rollout.tokens(100, 100), rollout.tokens(50, 150)
        spent = [item.input_tokens for item in feed([*start, record, first, second]) if isinstance(item, Usage)]
        assert spent == [100, 50]


class TestAgents:
    def test_title_and_link(self, shelf: Shelf) -> None:
        session = shelf.session(CHILD)
        assert (session.title, session.parent) == ("/root/second_look", f"codex/{ROOT}")

    def test_sealed_tasks(self, shelf: Shelf) -> None:
        """A task that cannot be read is a turn without a prompt; its cipher is shown nowhere."""
        assert shelf.events(CHILD, EventType.USER_INPUT) == []
        assert [turn.completed for turn in shelf.turns(CHILD)] == [True, True]
        assert not any("cipher" in row.text for row in shelf.events(CHILD))
        assert shelf.events(CHILD)[0].text.startswith("Message Type: NEW_TASK")

    def test_a_nickname_stands_in_for_a_title(self, tmp_path: Path) -> None:
        """Until there is a prompt."""
        rollout = Rollout()
        spawn = {"subagent": {"thread_spawn": {"parent_thread_id": ROOT, "agent_nickname": "Ada"}}}
        records = [rollout.meta(source=spawn), rollout.started("t1")]
        path = tmp_path / "home" / ".codex" / "sessions" / "rollout.jsonl"
        library = Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={})
        titles = []
        for record in (rollout.answer_item("Hello"), rollout.user_item("Say hello")):
            records.append(record)
            write(path, records)
            library.sync()
            titles.append(Shelf(library).session(records[0]["payload"]["id"]).title)
        library.close()
        assert titles == ["Ada", "Say hello"]


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


class TestThreadHistory:
    """Codex's own database knows of turns that were cut off; the rollout does not."""

    TURN = "01a0c001-1111-7000-8000-000000000009"

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "home" / ".codex" / "sessions" / "rollout.jsonl"
        write(path, self.records())
        return path

    def records(self) -> list[dict[str, Any]]:
        rollout = Rollout()
        records = [rollout.meta(ROOT), rollout.started(self.TURN), rollout.user_item("go"), rollout.answer_item("I do")]
        return [{**record, "ordinal": number} for number, record in enumerate(records)]

    def note(self, path: Path, status: str, following: int = 4, journal: str = "delete") -> sqlite3.Connection:
        database = sqlite3.connect(path.parents[1] / "thread_history_1.sqlite", isolation_level=None)
        database.executescript(
            f"""
            PRAGMA journal_mode={journal};
            CREATE TABLE thread_turns (thread_id TEXT, turn_id TEXT, status TEXT, rollout_end_ordinal INTEGER);
            CREATE TABLE thread_history_projection_state (thread_id TEXT, next_rollout_ordinal INTEGER);
            INSERT INTO thread_turns VALUES ('{ROOT}', '{self.TURN}', '{status}', NULL);
            INSERT INTO thread_history_projection_state VALUES ('{ROOT}', {following});
            """
        )
        return database

    def endings(self, path: Path, tmp_path: Path) -> list[tuple[EventType | None, int]]:
        library = Library(tmp_path / "backstory", agents_home=path.parents[2], environ={})
        library.sync()
        turns = Shelf(library).turns(ROOT)
        library.close()
        return [(turn.terminal_type, turn.event_count) for turn in turns]

    def test_interrupted(self, path: Path, tmp_path: Path) -> None:
        self.note(path, "interrupted").close()
        assert self.endings(path, tmp_path) == [(EventType.RUNTIME, 3)]
        assert sorted(entry.name for entry in path.parents[1].iterdir()) == ["sessions", "thread_history_1.sqlite"]

    def test_noticed_when_the_next_turn_begins(self, path: Path, tmp_path: Path) -> None:
        assert self.endings(path, tmp_path) == [(None, 2)]
        self.note(path, "interrupted", following=6, journal="wal").close()
        rollout = Rollout()
        rollout.seconds = 100
        later = [rollout.started("t2"), rollout.user_item("go on")]
        write(path, [*self.records(), *({**record, "ordinal": 4 + n} for n, record in enumerate(later))])
        assert self.endings(path, tmp_path)[0] == (EventType.RUNTIME, 3)

    @pytest.mark.parametrize("status", ["completed", "inProgress"])
    def test_other_states_say_nothing(self, path: Path, tmp_path: Path, status: str) -> None:
        self.note(path, status).close()
        assert self.endings(path, tmp_path) == [(None, 2)]

    def test_a_database_that_is_ahead_is_not_believed(self, path: Path, tmp_path: Path) -> None:
        self.note(path, "interrupted", following=5).close()
        assert self.endings(path, tmp_path) == [(None, 2)]

    def test_a_database_that_is_locked_is_not_waited_for(self, path: Path, tmp_path: Path) -> None:
        with closing(self.note(path, "interrupted", journal="wal")) as database:
            database.execute("BEGIN EXCLUSIVE")
            database.execute("UPDATE thread_turns SET status = 'completed'")
            assert self.endings(path, tmp_path) == [(EventType.RUNTIME, 3)]

    @pytest.mark.parametrize("content", [b"", b"SQLite format 3\0 and then nothing", b"\0" * 8192])
    def test_a_broken_database(self, path: Path, tmp_path: Path, content: bytes) -> None:
        (path.parents[1] / "thread_history_1.sqlite").write_bytes(content)
        assert self.endings(path, tmp_path) == [(None, 2)]

"""Parts of one call or one turn are one span or one tree, in whatever order and files they were written."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstory.archive.spans import Window
from backstory.ingest.projection import TurnProjection
from tests.traces_world import World
from tests.transcripts import Transcript, stable_uuid


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.library.close()


def tools(world: World, name: str = "Bash") -> list[dict[str, Any]]:
    found = world.call("search_spans", filters=[{"field": "name", "operator": "eq", "value": name}], sortOrder="asc")
    items: list[dict[str, Any]] = found["items"]
    return items


def in_order(talk: Transcript) -> None:
    """Let the times of the records follow their order."""
    for record, time in zip(talk.records, sorted(record["timestamp"] for record in talk.records), strict=True):
        record["timestamp"] = time


class TestToolCalls:
    """A call and its result are one span."""

    def talk(self) -> Transcript:
        return Transcript("one").prompt("go").call("Bash", {"command": "ls"}, "a.txt").answer("done")

    def result_first(self) -> Transcript:
        talk = self.talk()
        talk.records[1], talk.records[2] = talk.records[2], talk.records[1]
        return talk

    def check(self, world: World, spans: list[dict[str, Any]]) -> None:
        (span,) = spans
        assert (span["data"]["input"], span["data"]["output"]) == ({"command": "ls"}, "a.txt")
        assert span["status"] == "success"

    def test_the_result_first(self, world: World) -> None:
        world.sync(self.result_first())
        self.check(world, tools(world))
        assert len(world.spans(world.traces()[0])) == 4

    def test_the_result_first_and_the_call_with_the_next_sync(self, world: World) -> None:
        talk = self.result_first()
        rest, talk.records = talk.records[2:], talk.records[:2]
        world.sync(talk)
        assert len(world.spans(world.traces()[0])) == 2
        talk.records += rest
        world.sync(talk)
        self.check(world, tools(world))
        assert len(world.spans(world.traces()[0])) == 4

    @pytest.mark.parametrize("steps", [1, 2])
    def test_one_turn_later(self, world: World, steps: int) -> None:
        talk = self.talk()
        talk.prompt("and also this")
        talk.records.insert(2, talk.records.pop())
        in_order(talk)
        if steps == 2:
            records, talk.records = talk.records, talk.records[:3]
            world.sync(talk)
            talk.records = records
        world.sync(talk)
        self.check(world, tools(world))
        first, second = world.traces()
        assert tools(world)[0]["traceId"] == first["id"]
        assert [span["name"] for span in world.spans(second)] == ["turn", "chat claude-sonnet-4-5"]
        (_, _, bash) = world.spans(first)
        assert bash["data"]["output"] == "a.txt"
        assert bash["data"]["metadata"]["eventId"].startswith("event:")

    @pytest.mark.parametrize("steps", [1, 2])
    def test_one_turn_earlier(self, world: World, steps: int) -> None:
        talk = self.result_first()
        talk.prompt("and also this")
        talk.records.insert(2, talk.records.pop())
        in_order(talk)
        if steps == 2:
            records, talk.records = talk.records, talk.records[:2]
            world.sync(talk)
            talk.records = records
        world.sync(talk)
        self.check(world, tools(world))
        assert [len(world.spans(trace)) for trace in world.traces()] == [1, 4]

    def test_a_second_result_is_not_lost(self, world: World) -> None:
        talk = self.talk().prompt("next")
        again = json.loads(json.dumps(talk.records[2]))
        again |= {"uuid": stable_uuid("again"), "timestamp": talk.records[-1]["timestamp"]}
        again["message"]["content"][0]["content"] = "b.txt"
        talk.records.append(again)
        world.sync(talk)
        first, second = world.traces()
        assert [span["data"].get("output") for span in world.spans(first)][2] == "a.txt"
        assert [span["data"].get("output") for span in world.spans(second)] == [None, "b.txt"]


class TestSubagentsInProgressRecords:
    """Old transcripts tell of a subagent in records of progress, without its last words: it ends with its Task."""

    def parent(self, *, answered: bool) -> Transcript:
        talk = Transcript("main").prompt("explore")
        talk.call("Task", {"prompt": "look around", "description": "look", "subagent_type": "x"}, "nothing here")
        call = talk.records[1]["message"]["content"][0]["id"]
        child = Transcript("child", start_ms=1_780_000_001_100).prompt("look around")
        child.call("Grep", {"pattern": "x"}, "3 files")
        for number, inner in enumerate(child.records):
            inner["timestamp"] = f"2026-05-28T20:26:42.{100 + number}Z"
            data = {"type": "agent_progress", "agentId": "a1", "message": inner}
            record = {key: talk.records[1][key] for key in ("cwd", "sessionId", "version", "gitBranch", "timestamp")}
            record |= {
                "type": "progress",
                "uuid": stable_uuid("progress", number),
                "parentToolUseID": call,
                "data": data,
            }
            talk.records.insert(2 + number, record)
        talk.records[-1]["toolUseResult"] = {"agentId": "a1", "status": "completed"}
        if not answered:
            talk.records.pop()
        return talk

    def subagent(self, world: World) -> dict[str, Any]:
        (trace,) = world.traces()
        return next(span for span in world.spans(trace) if span["name"] == "look")

    def test_it_ends_with_its_task(self, world: World) -> None:
        world.sync(self.parent(answered=True).answer("I looked."))
        (trace,) = world.traces()
        (task,) = tools(world, "Task")
        child = self.subagent(world)
        assert (child["status"], child["endTime"]) == ("success", task["endTime"])
        assert child["parentId"] == task["id"]
        assert trace["status"] == "success"

    def test_it_runs_as_long_as_its_task_does(self, world: World) -> None:
        world.sync(self.parent(answered=False))
        assert self.subagent(world)["status"] == "pending"
        world.sync(self.parent(answered=True).answer("I looked."))
        assert self.subagent(world)["status"] == "success"


class TestLooseUsage:
    """The cost of Claude Code's own runs counts, also where nothing else is left of their session."""

    def write(self, world: World, *, answers: int = 2) -> None:
        helper = Transcript("gone")
        for number in range(answers):
            helper.answer(f"guess {number}")
            helper.records[-1]["requestId"] = f"req_helper_{number}"
        folder = helper.path(world.agents).with_suffix("") / "subagents"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "agent-aprompt_suggestion-a1b2c3.jsonl").write_text(helper.text(), "utf-8")

    def spent(self, world: World) -> tuple[int, int]:
        lines = world.library.archive.spans.usage(Window())
        tokens = sum(line.input_tokens + line.output_tokens for line in lines)
        assert sum(trace["totalTokens"] for trace in world.traces()) == tokens
        return sum(line.calls for line in lines), tokens

    def test_alone(self, world: World) -> None:
        self.write(world)
        world.sync()
        assert self.spent(world) == (2, 230)

    def test_after_everything_else(self, world: World) -> None:
        world.sync(Transcript("one").prompt("go").answer("done"))
        self.write(world)
        world.sync()
        assert self.spent(world) == (3, 345)
        self.write(world, answers=5)
        world.sync()
        assert self.spent(world) == (6, 690)

    def test_when_time_is_short(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Projecting stops when its time is up, and goes on later; this does not lose what belongs to no turn."""
        follow = TurnProjection.follow
        monkeypatch.setattr(TurnProjection, "follow", lambda self, newest, deadline: follow(self, newest, 0.0))
        self.write(world)
        world.sync(Transcript("one").prompt("go").answer("done"))
        for _ in range(3):
            world.sync()
        assert self.spent(world) == (3, 345)

    def test_the_session_has_turns_after_all(self, world: World) -> None:
        self.write(world)
        world.sync()
        world.sync(Transcript("gone").prompt("go").answer("done", stop=None))
        assert len(world.traces()) == 1
        assert self.spent(world)[0] == 3

    def test_nothing_new_writes_nothing(self, world: World) -> None:
        self.write(world)
        world.sync()
        database = sqlite3.connect(world.library.home / "traces.db")
        before = database.execute("PRAGMA data_version").fetchone()
        world.sync()
        assert database.execute("PRAGMA data_version").fetchone() == before
        database.close()

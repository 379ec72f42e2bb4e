"""Turns as traces: how long the agent worked, which part of it was a person's, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from backstory.archive.spans import Window
from backstory.model import rfc3339
from tests.traces_world import START, World
from tests.transcripts import Transcript, stable_uuid

HOUR = 3_600_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.library.close()


def later(record: dict[str, Any], record_before: dict[str, Any], ms: int) -> None:
    """Give a record the time of another one, and some more."""
    then = datetime.fromisoformat(record_before["timestamp"]).timestamp() * 1000
    record["timestamp"] = rfc3339(round(then) + ms)


class Rollout:
    """A session as Codex writes it: records with a time each."""

    def __init__(self, name: str) -> None:
        self.id = stable_uuid(name)
        self.lines: list[str] = []
        self.add(0, "session_meta", id=self.id, cwd="/home/dev/shop", cli_version="0.120.0")

    def add(self, at: int, kind: str, **payload: Any) -> Rollout:
        self.lines.append(json.dumps({"timestamp": rfc3339(START + at), "type": kind, "payload": payload}))
        return self

    def event(self, at: int, kind: str, **payload: Any) -> Rollout:
        return self.add(at, "event_msg", type=kind, **payload)

    def message(self, at: int, role: str, text: str) -> Rollout:
        content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
        return self.add(at, "response_item", type="message", role=role, content=content)

    def prompt(self, at: int, turn: str, text: str) -> Rollout:
        self.event(at, "task_started", turn_id=turn).add(at, "turn_context", turn_id=turn, model="gpt-5.2")
        return self.message(at, "user", text).event(at, "user_message", message=text)

    def write(self, world: World) -> None:
        path = world.agents / ".codex/sessions/2026/01/01" / f"rollout-2026-01-01T00-00-00-{self.id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.lines) + "\n", "utf-8")


class TestLatency:
    """The time of a turn runs from its prompt to the last thing the agent did."""

    def test_a_command_hours_later(self, world: World) -> None:
        talk = Transcript("one").prompt("go").answer("done")
        talk.prompt(
            "<command-name>/exit</command-name><command-message>exit</command-message><command-args></command-args>"
        )
        later(talk.records[2], talk.records[1], 21 * HOUR)
        world.sync(talk)
        (trace,) = world.traces()
        root = world.spans(trace)[0]
        assert trace["latency"] == 1000
        assert root["endTime"] - root["startTime"] == 1000

    def test_the_context_of_the_next_turn(self, world: World) -> None:
        rollout = Rollout("codex").prompt(1000, "t1", "first").message(4000, "assistant", "done")
        rollout.event(4000, "task_complete", turn_id="t1", last_agent_message="done")
        rollout.message(9 * HOUR, "user", "<environment_context>\n<cwd>/tmp</cwd>\n</environment_context>")
        rollout.prompt(9 * HOUR + 5, "t2", "second").message(9 * HOUR + 1005, "assistant", "done again")
        rollout.event(9 * HOUR + 1005, "task_complete", turn_id="t2", last_agent_message="done again")
        rollout.write(world)
        world.sync()
        assert [trace["latency"] for trace in world.traces()] == [3000, 1000]

    def test_what_the_client_recorded_before_the_prompt(self, world: World) -> None:
        talk = Transcript("one").prompt("<session-start-hook>ready</session-start-hook>").prompt("go").answer("done")
        talk.records[0] |= {"isMeta": True}
        later(talk.records[0], talk.records[1], -2 * HOUR)
        world.sync(talk)
        assert [trace["latency"] for trace in world.traces()] == [1000]

    def test_a_compaction_hours_later(self, world: World) -> None:
        talk = Transcript("one").prompt("go").answer("done")
        talk.prompt("This session is being continued from a previous conversation that ran out of context.")
        talk.records[2] |= {"isCompactSummary": True}
        later(talk.records[2], talk.records[1], 5 * HOUR)
        world.sync(talk)
        (trace,) = world.traces()
        assert trace["latency"] == 1000
        assert "compaction" in {span["name"] for span in world.spans(trace)}

    def test_unfinished(self, world: World) -> None:
        talk = Transcript("one").prompt("go").call("Bash", {"command": "ls"}, "a").answer("and now", stop="tool_use")
        world.sync(talk)
        (trace,) = world.traces()
        assert (trace["status"], trace["latency"]) == ("pending", 3000)
        assert "endTime" not in world.spans(trace)[0]
        assert (
            world.call("search_traces", filters=[{"field": "latency", "operator": "gte", "value": 3000}])["total"] == 1
        )


class TestWaiting:
    """The time in which the agent waited for a person does not count as time of the tool."""

    def ask(self, tool: str, **fields: Any) -> Transcript:
        talk = Transcript("one").prompt("go").call(tool, {"x": 1}, "yes").answer("done")
        talk.records[2] |= fields
        for record in talk.records[2:]:
            later(record, talk.records[1], HOUR)
        return talk

    @pytest.mark.parametrize("tool", ["AskUserQuestion", "ExitPlanMode"])
    def test_questions(self, world: World, tool: str) -> None:
        world.sync(self.ask(tool))
        (trace,) = world.traces()
        root, _, question, _ = world.spans(trace)
        assert question["endTime"] - question["startTime"] == HOUR
        assert question["data"]["metadata"]["waitingMs"] == root["data"]["metadata"]["waitingMs"] == HOUR
        assert [(use.name, use.milliseconds) for use in world.library.archive.spans.stats(Window(), "tool")] == [
            (tool, 0)
        ]
        found = world.call("search_spans", filters=[{"field": "data.metadata.waitingMs", "operator": "gt", "value": 1}])
        assert found["total"] == 2

    def test_a_permission(self, world: World) -> None:
        decision = {"decision": "accept", "source": "user_temporary"}
        world.sync(self.ask("WebFetch", permissionDecision=decision, toolUseResult={"durationMs": 1500}))
        fetch = world.spans(world.traces()[0])[2]
        assert fetch["data"]["metadata"]["waitingMs"] == HOUR - 1500

    def test_a_refused_permission(self, world: World) -> None:
        world.sync(self.ask("Bash", permissionDecision={"decision": "reject", "source": "user_reject"}))
        assert world.spans(world.traces()[0])[2]["data"]["metadata"]["waitingMs"] == HOUR

    def test_nobody_was_asked(self, world: World) -> None:
        world.sync(self.ask("Bash", permissionDecision={"decision": "accept", "source": "config"}))
        (trace,) = world.traces()
        assert all("waitingMs" not in span["data"].get("metadata", {}) for span in world.spans(trace))

    def test_codex(self, world: World) -> None:
        rollout = Rollout("codex").prompt(0, "t1", "go")
        call = {"type": "function_call", "name": "request_user_input", "arguments": "{}", "call_id": "c1"}
        rollout.add(1000, "response_item", **call)
        rollout.add(HOUR, "response_item", type="function_call_output", call_id="c1", output="yes")
        rollout.message(HOUR + 1, "assistant", "done").write(world)
        world.sync()
        question = next(span for span in world.spans(world.traces()[0]) if span["name"] == "request_user_input")
        assert question["data"]["metadata"]["waitingMs"] == HOUR - 1000


class TestInterrupts:
    """A turn that a person interrupted is an error, never a success."""

    def statuses(self, world: World) -> list[str]:
        return [trace["status"] for trace in world.traces()]

    def test_claude_code(self, world: World) -> None:
        talk = Transcript("one").prompt("go").answer("working", stop=None).prompt("[Request interrupted by user]")
        world.sync(talk)
        (trace,) = world.traces()
        root, _, marker = world.spans(trace)
        assert trace["status"] == root["status"] == marker["status"] == "error"
        assert marker["name"] == "interrupt"
        assert trace["latency"] == 2000
        world.sync(talk.prompt("go on").answer("done"))
        assert self.statuses(world) == ["error", "success"]

    def test_mid_stream(self, world: World) -> None:
        talk = Transcript("one").prompt("go").answer("wor", stop=None).prompt("again").answer("done")
        talk.records[1]["isAbortedMidStream"] = True
        world.sync(talk)
        assert self.statuses(world) == ["error", "success"]

    def test_codex(self, world: World) -> None:
        rollout = Rollout("codex").prompt(0, "t1", "go").message(1000, "assistant", "working")
        rollout.event(2000, "turn_aborted", turn_id="t1", reason="interrupted")
        rollout.prompt(HOUR, "t2", "on").message(HOUR + 1, "assistant", "done")
        rollout.event(HOUR + 2, "task_complete", turn_id="t2", last_agent_message="done").write(world)
        world.sync()
        assert self.statuses(world) == ["error", "success"]
        assert world.traces()[0]["latency"] == 2000

    def test_after_the_answer(self, world: World) -> None:
        world.sync(Transcript("one").prompt("go").answer("done").prompt("[Request interrupted by user]"))
        assert self.statuses(world) == ["success"]

    def test_a_failed_task(self, world: World) -> None:
        rollout = Rollout("codex").prompt(0, "t1", "go")
        rollout.event(2000, "task_complete", turn_id="t1", error={"message": "stream disconnected"}).write(world)
        world.sync()
        assert self.statuses(world) == ["error"]

"""Turns of transcripts as traces: what becomes a span, with which times, states, tokens and money."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from backstory.library import Library
from backstory.prices import Tokens, price
from tests.archive_world import turn_row
from tests.traces_world import World, caller
from tests.transcripts import Transcript, stable_uuid


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.library.close()


class TestTurns:
    """A turn is a trace: its prompt is the name, its model and tool calls are the spans."""

    def test_spans(self, world: World) -> None:
        talk = Transcript("one").prompt("list  the\nfiles").call("Bash", {"command": "ls"}, "a.txt").answer("One file.")
        world.sync(talk)
        (trace,) = world.traces()
        root, *rest = world.spans(trace)
        assert trace["name"] == "list the files"
        assert trace["status"] == "success"
        assert trace["latency"] == 3000
        assert (root["name"], root["parentId"], root["data"]["input"]) == ("turn", None, "list  the\nfiles")
        assert root["data"]["output"] == "One file."
        assert root["data"]["metadata"]["project"] == "/home/dev/shop"
        names = ["chat claude-sonnet-4-5", "Bash", "chat claude-sonnet-4-5"]
        assert [span["name"] for span in rest] == names
        assert all(span["parentId"] == root["id"] for span in rest)
        chat, bash, last = rest
        assert chat["data"]["toolCalls"][0]["name"] == "Bash"
        assert chat["data"]["metadata"]["stopReason"] == "tool_use"
        assert (bash["data"]["input"], bash["data"]["output"]) == ({"command": "ls"}, "a.txt")
        assert bash["endTime"] - bash["startTime"] == 1000
        assert last["data"]["output"] == "One file."

    def test_the_id_is_the_turn(self, world: World) -> None:
        world.sync(Transcript("one").prompt("hello").answer("hi"))
        (trace,) = world.traces()
        opened = turn_row(world.library.archive, "claude-code/" + stable_uuid("one"), 1)
        assert opened is not None
        assert trace["id"].startswith("turn:")
        span = world.spans(trace)[1]
        assert span["data"]["metadata"]["eventId"].startswith("event:")

    def test_a_failed_tool_is_an_error(self, world: World) -> None:
        world.sync(Transcript("one").prompt("x").call("Bash", {"command": "false"}, "no", failed=True).answer("failed"))
        (trace,) = world.traces()
        assert trace["status"] == "error"
        assert [span["status"] for span in world.spans(trace)] == ["success", "success", "error", "success"]

    def test_pending_until_it_ends(self, world: World) -> None:
        talk = Transcript("one").prompt("go").call("Bash", {"command": "ls"}, "a")
        world.sync(talk)
        assert world.traces()[0]["status"] == "pending"
        assert world.traces()[0]["latency"] == 2000
        assert "endTime" not in world.spans(world.traces()[0])[0]
        talk.prompt("next").answer("done")
        world.sync(talk)
        assert [trace["status"] for trace in world.traces()] == ["success", "success"]

    def test_growing_keeps_the_ids(self, world: World) -> None:
        talk = Transcript("one").prompt("go").call("Bash", {"command": "ls"}, "a")
        world.sync(talk)
        before = {span["id"] for span in world.spans(world.traces()[0])}
        world.sync(talk.call("Read", {"file_path": "b"}, "b").answer("done"))
        after = {span["id"] for span in world.spans(world.traces()[0])}
        assert before < after
        assert len(after) == len(before) + 3

    def test_nothing_new_changes_nothing(self, world: World) -> None:
        world.sync(Transcript("one").prompt("go").answer("done"))
        database = sqlite3.connect(world.library.home / "traces.db")
        before = list(database.execute("SELECT * FROM span ORDER BY id"))
        world.sync()
        assert list(database.execute("SELECT * FROM span ORDER BY id")) == before
        database.close()

    def test_markers(self, world: World) -> None:
        talk = Transcript("one").prompt("go").answer("working", stop=None)
        talk.prompt("[Request interrupted by user]")
        world.sync(talk)
        assert ("interrupt", "EVENT") in {(s["name"], s["data"]["type"]) for s in world.spans(world.traces()[0])}


class TestUsage:
    """Tokens are counted once for each message, cache reads priced on their own."""

    def test_tokens_and_cost(self, world: World) -> None:
        world.sync(Transcript("one").prompt("go").call("Bash", {"command": "ls"}, "a").answer("done"))
        (trace,) = world.traces()
        cost = price("claude-sonnet-4-5", Tokens(110, 5, 100), 1_780_000_000_000)
        assert trace["totalTokens"] == 2 * 115
        assert trace["totalCost"] == pytest.approx(2 * (cost or 0))
        chat = world.spans(trace)[1]["data"]
        assert (chat["inputTokens"], chat["outputTokens"]) == (110, 5)
        assert chat["metadata"]["cacheReadTokens"] == 100
        assert chat["metadata"]["costSource"] == "computed"

    def test_writes_for_an_hour_are_told_apart(self, world: World) -> None:
        talk = Transcript("one").prompt("go").answer("done")
        talk.records[1]["message"]["usage"] |= {
            "cache_creation_input_tokens": 300,
            "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
        }
        world.sync(talk)
        chat = world.spans(world.traces()[0])[1]["data"]
        assert chat["inputTokens"] == 410
        assert chat["metadata"]["cacheWriteTokens"] == 300
        assert chat["metadata"]["cacheWrite1hTokens"] == 200
        assert chat["totalCost"] == price("claude-sonnet-4-5", Tokens(410, 5, 100, 100, 200), 1_780_000_000_000)
        filters = [{"field": "data.metadata.cacheWrite1hTokens", "operator": "gte", "value": 200}]
        assert world.call("search_spans", filters=filters)["total"] == 1

    def test_a_message_in_several_records(self, world: World) -> None:
        talk = Transcript("one").prompt("go").answer("one", stop=None).answer("two")
        for record in talk.records[1:]:
            record["message"]["id"], record["requestId"] = "msg_same", "req_same"
        world.sync(talk)
        assert world.traces()[0]["totalTokens"] == 115

    def test_unpriced_is_absent(self, world: World) -> None:
        talk = Transcript("one").prompt("go").answer("done")
        talk.records[1]["message"]["model"] = "nobody-knows-1"
        world.sync(talk)
        assert "totalCost" not in world.traces()[0]
        assert "totalCost" not in world.spans(world.traces()[0])[1]["data"]

    def test_a_reported_cost_wins(self, world: World) -> None:
        talk = Transcript("one").prompt("go").answer("done")
        talk.records[1]["costUSD"] = 1.25
        world.sync(talk)
        assert world.traces()[0]["totalCost"] == 1.25
        assert world.spans(world.traces()[0])[1]["data"]["metadata"]["costSource"] == "reported"


def write_subagent(
    world: World, parent: Transcript, name: str, child: Transcript | None = None, *, upto: int | None = None
) -> None:
    """A subagent's transcript in a file of its own, as Claude Code keeps it."""
    call = parent.records[1]["message"]["content"][0]["id"]
    parent.records[2]["toolUseResult"] = {"agentId": name, "status": "completed", "content": []}
    parent.records[2]["message"]["content"][0]["tool_use_id"] = call
    if child is None:
        child = Transcript(f"sub {name}", start_ms=1_780_000_001_500).prompt("look around").answer("nothing here")
    for record in child.records:
        record |= {"isSidechain": True, "agentId": name, "sessionId": parent.id}
    folder = parent.path(world.agents).with_suffix("") / "subagents"
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in child.records[:upto])
    (folder / f"agent-{name}.jsonl").write_text(lines, "utf-8")


class TestSubagents:
    """A subagent is a subtree of the call that started it, and its tokens are part of that trace."""

    def parent(self) -> Transcript:
        talk = Transcript("main").prompt("explore")
        talk.call("Task", {"prompt": "look around", "description": "look", "subagent_type": "x"}, "nothing here")
        return talk.answer("I looked.")

    def test_below_its_call(self, world: World) -> None:
        parent = self.parent()
        write_subagent(world, parent, "a1b2c3d")
        world.sync(parent)
        (trace,) = world.traces()
        spans = {span["id"]: span for span in world.spans(trace)}
        chats = [span for span in spans.values() if span["name"].startswith("chat")]
        inner = [span for span in chats if spans[span["parentId"]]["parentId"] is not None]
        assert len(chats) == 3
        assert len(inner) == 1
        assert spans[spans[inner[0]["parentId"]]["parentId"]]["name"] == "Task"
        assert trace["totalTokens"] == 3 * 115

    def test_in_any_order(self, world: World) -> None:
        """Read before the transcript of its parent, it first stands alone, and then moves."""
        parent = self.parent()
        write_subagent(world, parent, "a1b2c3d")
        world.sync()
        assert len(world.traces()) == 1
        world.sync(parent)
        (trace,) = world.traces()
        assert len(world.spans(trace)) == 6
        assert trace["totalTokens"] == 3 * 115

    def test_growing_with_its_parent(self, world: World) -> None:
        """Turns that were read before their parent came move, too."""
        parent = self.parent()
        write_subagent(world, parent, "a1b2c3d", upto=1)
        world.sync()
        write_subagent(world, parent, "a1b2c3d")
        world.sync(parent)
        (trace,) = world.traces()
        assert len(world.spans(trace)) == 6
        assert trace["totalTokens"] == 3 * 115

    def test_with_those_that_it_started(self, world: World) -> None:
        """A subagent that moves below its call takes its own subagents along."""
        child, parent = Transcript("child").prompt("look around"), self.parent()
        child.call("Task", {"prompt": "look there", "description": "look", "subagent_type": "x"}, "nothing there")
        write_subagent(world, child.answer("nothing here"), "b1b2c3d")
        write_subagent(world, parent, "a1b2c3d", child)
        folder = parent.path(world.agents).with_suffix("") / "subagents"
        child.path(world.agents).with_suffix("").joinpath("subagents", "agent-b1b2c3d.jsonl").rename(
            folder / "agent-b1b2c3d.jsonl"
        )
        world.sync()
        assert [trace["totalTokens"] for trace in world.traces()] == [3 * 115]
        world.sync(parent)
        (trace,) = world.traces()
        assert len(world.spans(trace)) == 10
        assert trace["totalTokens"] == 5 * 115


class TestKeepingUp:
    """Traces follow the archive: for archives from before they existed, after a crash, and whatever happens to them."""

    def test_retroactively(self, world: World) -> None:
        world.sync(Transcript("one").prompt("go").answer("done"))
        world.library.close()
        for path in world.library.home.glob("traces.db*"):
            path.unlink()
        world.library = Library(world.library.home, agents_home=world.agents, environ={})
        world.call = caller(world.library.archive)
        world.sync()
        assert len(world.traces()) == 1

    def test_other_rules_make_everything_again(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.sync(Transcript("one").prompt("go").answer("done"))
        before = world.spans(world.traces()[0])
        monkeypatch.setattr("backstory.ingest.projection._VERSION", 99)
        world.sync()
        assert world.spans(world.traces()[0]) == before

    def test_a_record_that_lost_its_last_commits(self, world: World) -> None:
        """After a power cut the numbers of changes are given again; what they stand for now is projected."""
        world.sync(Transcript("one").prompt("go").answer("done"))
        database = sqlite3.connect(world.library.home / "traces.db")
        database.execute("UPDATE meta SET value = 1000 WHERE name = 'change'")
        database.commit()
        database.close()
        world.sync(Transcript("two").prompt("more").answer("done"))
        assert {trace["name"] for trace in world.traces()} == {"go", "more"}

    def test_broken_traces_do_not_stop_the_archive(self, world: World) -> None:
        world.sync(Transcript("one").prompt("go").answer("done"))
        database = sqlite3.connect(world.library.home / "traces.db")
        database.execute("DROP TABLE span")
        database.commit()
        database.close()
        world.sync(Transcript("two").prompt("more").answer("done"))
        assert world.library.archive.counts().sessions == 2

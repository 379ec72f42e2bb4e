"""A call that a transcript and telemetry both report is one span, with what each knows, whichever comes first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import permutations
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from backstory.archive.spans import Window
from backstory.ingest.telemetry import Receiver
from tests.traces_world import World
from tests.transcripts import Transcript, stable_uuid

NOW = 1_780_000_000_000
TRACE = "ab" * 16
INTERACTION, REQUEST, TOOL, WAITING, ANSWER = range(1, 6)


class TwinWorld(World):
    """Transcripts on disk, and a receiver of telemetry."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        archive = self.library.archive
        self.receiver = Receiver(archive, self.library.home, "egress")

    def send_spans(self, service: str, *spans: dict[str, Any]) -> None:
        resource = {"attributes": pairs({"service.name": service})}
        body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": list(spans)}]}]}
        assert self.receiver.take_spans(json.dumps(body).encode(), "json").rejected == 0

    def send_logs(self, service: str, *records: dict[str, Any]) -> None:
        resource = {"attributes": pairs({"service.name": service})}
        body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": list(records)}]}]}
        assert self.receiver.take_logs(json.dumps(body).encode(), "json").rejected == 0

    def find(self, field: str, value: Any, operator: str = "eq") -> list[dict[str, Any]]:
        filters = [{"field": field, "operator": operator, "value": value}]
        items: list[dict[str, Any]] = self.call("search_spans", filters=filters, sortOrder="asc")["items"]
        return items

    def everything(self) -> dict[str, Any]:
        """All that the tools and the usage report show, without what depends on the order of arrival: whether the
        session was known when its telemetry came."""
        spans = self.call("search_spans", limit=200, sortBy="id")["items"]
        traces = sorted(self.traces(), key=itemgetter("id"))
        for span in spans:
            span["data"]["metadata"] = {
                name: value
                for name, value in span["data"].get("metadata", {}).items()
                if name not in ("sessionId", "source")
            }
        usage = self.library.archive.spans.usage(Window())
        totals = [(line.calls, line.input_tokens, line.output_tokens, line.cost, line.model) for line in usage]
        trees = [[span["data"] | {"metadata": {}} for span in self.spans(trace)] for trace in traces]
        return {"spans": spans, "traces": traces, "usage": sorted(totals, key=str), "trees": trees}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TwinWorld]:
    world = TwinWorld(tmp_path)
    yield world
    world.library.close()


def pairs(table: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    return [{"key": key, "value": {kinds[type(given)]: given}} for key, given in table.items()]


def span(number: int, parent: int, name: str, start: int, end: int, **facts: Any) -> dict[str, Any]:
    above = {"parentSpanId": f"{parent:016x}"} if parent else {}
    times = {"startTimeUnixNano": str((NOW + start) * 10**6), "endTimeUnixNano": str((NOW + end) * 10**6)}
    facts = {key.replace("__", "."): given for key, given in facts.items()}
    return {"traceId": TRACE, "spanId": f"{number:016x}", **above, "name": name, **times, "attributes": pairs(facts)}


def record(event: str, at: int, **facts: Any) -> dict[str, Any]:
    facts = {"event.name": event, **{key.replace("__", "."): given for key, given in facts.items()}}
    ids = {"traceId": TRACE, "spanId": f"{INTERACTION:016x}"}
    return {"timeUnixNano": str((NOW + at) * 10**6), **ids, "body": {"stringValue": event}, "attributes": pairs(facts)}


def talk(name: str = "one") -> Transcript:
    """Records at 1, 2, 3 and 4 s: a prompt, a call of Bash, its result, an answer."""
    return Transcript(name).prompt("list the files").call("Bash", {"command": "ls"}, "a.txt").answer("One file.")


TOKENS = {"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 100, "model": "claude-sonnet-4-5"}


def claude_spans(transcript: Transcript) -> list[dict[str, Any]]:
    call = transcript.records[1]["message"]["content"][0]["id"]
    own = {"session__id": transcript.id}
    tool = {"tool_name": "Bash", "gen_ai__operation__name": "execute_tool", "gen_ai__tool__call__id": call, **own}
    return [
        span(
            REQUEST, INTERACTION, "claude_code.llm_request", 1100, 1900, request_id="req_1", ttft_ms=80, **TOKENS, **own
        ),
        span(WAITING, TOOL, "claude_code.tool.blocked_on_user", 2100, 2600, tool_use_id=call, **own),
        span(TOOL, INTERACTION, "claude_code.tool", 2050, 2950, sandbox="strict", **tool),
        span(ANSWER, INTERACTION, "claude_code.llm_request", 3100, 3900, request_id="req_3", **TOKENS, **own),
        span(INTERACTION, 0, "claude_code.interaction", 1000, 4000, **own),
    ]


def claude_logs(transcript: Transcript) -> list[dict[str, Any]]:
    own = {"session__id": transcript.id}
    call = transcript.records[1]["message"]["content"][0]["id"]
    return [
        record("api_request", 1900, request_id="req_1", cost_usd=0.25, **TOKENS, **own),
        record("tool_result", 2950, tool_name="Bash", tool_use_id=call, success="true", duration_ms="350", **own),
        record("api_request", 3900, request_id="req_3", cost_usd=0.5, **TOKENS, **own),
    ]


def send_all(world: TwinWorld, transcript: Transcript) -> None:
    world.send_spans("claude-code", *claude_spans(transcript))
    world.send_logs("claude-code", *claude_logs(transcript))


class TestOneSpan:
    """Of both reports there is one span, in the trace of the turn."""

    def test_with_what_each_knows(self, world: TwinWorld) -> None:
        world.sync(talk())
        send_all(world, talk())
        root, chat, bash, answer = world.spans(next(t for t in world.traces() if t["id"].startswith("turn:")))
        assert (chat["name"], chat["startTime"] - NOW, chat["endTime"] - NOW) == ("chat claude-sonnet-4-5", 1100, 1900)
        assert chat["data"]["toolCalls"][0]["name"] == "Bash"
        assert chat["data"]["attributes"]["ttft_ms"] == 80
        assert (chat["data"]["totalCost"], chat["data"]["metadata"]["costSource"]) == (0.25, "reported")
        assert chat["data"]["inputTokens"] == 110
        assert (bash["name"], bash["startTime"] - NOW, bash["endTime"] - NOW) == ("Bash", 2000, 3000)
        assert (bash["data"]["input"], bash["data"]["output"]) == ({"command": "ls"}, "a.txt")
        assert bash["data"]["attributes"]["sandbox"] == "strict"
        assert bash["data"]["metadata"]["waitingMs"] == root["data"]["metadata"]["waitingMs"] == 500
        assert answer["data"]["output"] == "One file."
        assert [use.milliseconds for use in world.library.archive.spans.stats(Window(), "tool")] == [500]

    def test_found_once(self, world: TwinWorld) -> None:
        world.sync(talk())
        send_all(world, talk())
        assert [found["name"] for found in world.find("data.type", "GENERATION")] == ["chat claude-sonnet-4-5"] * 2
        (found,) = world.find("data.attributes.sandbox", "strict")
        assert (found["name"], found["data"]["output"]) == ("Bash", "a.txt")
        (found,) = world.find("data.metadata.request_id", "req_1")
        assert found["traceId"].startswith("turn:")
        by_model = world.call(
            "search_traces", filters=[{"field": "data.model", "operator": "contains", "value": "son"}]
        )
        assert [trace["id"][:5] for trace in by_model["items"]] == ["turn:"]

    def test_counted_once(self, world: TwinWorld) -> None:
        world.sync(talk())
        send_all(world, talk())
        usage = world.library.archive.spans.usage(Window())
        assert sum(line.calls for line in usage) == 2
        assert sum(line.input_tokens + line.output_tokens for line in usage) == 2 * 115
        assert sum(line.cost or 0 for line in usage) == 0.75
        listed = world.call("list_traces", sessionId=talk().id)["traces"]
        assert len(listed) == 2
        assert [trace.get("totalTokens", 0) for trace in listed if trace["id"] == TRACE] == [0]
        assert sum(trace.get("totalTokens", 0) for trace in listed) == 2 * 115
        assert sum(trace.get("totalCost", 0) for trace in listed) == 0.75

    def test_the_trace_that_was_sent(self, world: TwinWorld) -> None:
        """It keeps its form, and points at the span that shows the call."""
        world.sync(talk())
        send_all(world, talk())
        spans = {entry["id"]: entry for entry in world.call("get_trace", traceId=TRACE)["trace"]["spans"]}
        waiting, tool = spans[f"{WAITING:016x}"], spans[f"{TOOL:016x}"]
        assert (waiting["parentId"], tool["parentId"]) == (tool["id"], f"{INTERACTION:016x}")
        assert sum(entry["data"].get("inputTokens", 0) for entry in spans.values()) == 0
        place = tool["data"]["metadata"]["shownBy"]
        (shown,) = world.find("id", place["spanId"])
        assert (shown["traceId"], shown["name"]) == (place["traceId"], "Bash")

    def test_a_call_that_only_telemetry_knows(self, world: TwinWorld) -> None:
        world.sync(talk())
        send_all(world, talk())
        world.send_logs("claude-code", record("api_request", 1500, request_id="req_x", session__id=talk().id, **TOKENS))
        assert sum(line.calls for line in world.library.archive.spans.usage(Window())) == 3
        assert sum(trace.get("totalTokens", 0) for trace in world.traces()) == 3 * 115

    @pytest.mark.parametrize("telemetry_first", [False, True])
    @pytest.mark.parametrize("without", ["transcript", "telemetry"])
    def test_without_ids(self, world: TwinWorld, without: str, telemetry_first: bool) -> None:
        """Where one of the two does not tell the ids of its model calls, their tokens and the time decide."""
        transcript, spans, logs = talk(), claude_spans(talk()), claude_logs(talk())
        for entry in transcript.records if without == "transcript" else [*spans, *logs]:
            entry.pop("requestId", None)
            if without == "telemetry":
                entry["attributes"] = [pair for pair in entry["attributes"] if pair["key"] != "request_id"]
        if not telemetry_first:
            world.sync(transcript)
        world.send_spans("claude-code", *spans)
        world.send_logs("claude-code", *logs)
        world.sync(transcript)
        names = ["chat claude-sonnet-4-5"] * 2
        assert [found["name"] for found in world.find("data.type", "GENERATION")] == names
        assert sum(trace.get("totalTokens", 0) for trace in world.traces()) == 2 * 115
        assert sum(line.calls for line in world.library.archive.spans.usage(Window())) == 2
        first, second = world.find("data.type", "GENERATION")
        assert (first["data"]["totalCost"], second["data"]["totalCost"]) == (0.25, 0.5)

    def test_the_same_ids_in_another_session(self, world: TwinWorld) -> None:
        world.sync(talk("another"))
        send_all(world, talk())
        assert len(world.find("data.type", "GENERATION")) == 6
        assert sum(line.calls for line in world.library.archive.spans.usage(Window())) == 4

    def test_a_tool_that_the_transcript_does_not_end(self, world: TwinWorld) -> None:
        whole = talk()
        begun = talk()
        begun.records = begun.records[:2]
        world.sync(begun)
        send_all(world, whole)
        (bash,) = world.find("name", "Bash")
        assert (bash["status"], bash["endTime"] - NOW) == ("success", 2950)


STEPS = ("begun", "whole", "spans", "logs")
ORDERS = [order for order in permutations(STEPS) if order.index("begun") < order.index("whole")]


def take(world: TwinWorld, *steps: str) -> None:
    """Let parts of the same work arrive, in this order."""
    begun = talk()
    begun.records = begun.records[:3]
    for step in steps:
        match step:
            case "begun":
                world.sync(begun)
            case "whole":
                world.sync(talk().prompt("more").answer("done"))
            case "spans":
                world.send_spans("claude-code", *claude_spans(talk()))
            case "logs":
                world.send_logs("claude-code", *claude_logs(talk()))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    world = TwinWorld(tmp_path_factory.mktemp("expected"))
    take(world, "whole", "spans", "logs")
    everything = world.everything()
    world.library.close()
    return everything


class TestAnyOrder:
    """Whatever comes first, and whatever comes again, the end is the same."""

    @pytest.mark.parametrize("order", ORDERS, ids="-".join)
    def test_orders(self, world: TwinWorld, order: tuple[str, ...], expected: dict[str, Any]) -> None:
        take(world, *order)
        assert world.everything() == expected

    def test_again(self, world: TwinWorld, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """Sent again, and projected again from the beginning."""
        take(world, "spans", "whole", "logs", "spans", "logs")
        assert world.everything() == expected
        monkeypatch.setattr("backstory.ingest.projection._VERSION", 99)
        world.sync(Transcript("other").prompt("x").answer("y"))
        world.send_logs("claude-code", *claude_logs(talk()))
        assert len(world.find("data.attributes.sandbox", "strict")) == 1
        assert len([s for s in world.find("data.type", "GENERATION") if s["data"].get("attributes")]) == 2

    def test_a_subagent_that_moves(self, world: TwinWorld) -> None:
        """Its telemetry has the id of its parent's session; its turn moves to the parent's trace."""
        parent = Transcript("main").prompt("explore")
        parent.call("Task", {"prompt": "look", "description": "look"}, "nothing").answer("I looked.")
        child = Transcript("sub", start_ms=NOW).prompt("look").answer("nothing")
        child.records[1]["requestId"] = "req_child"
        for entry in child.records:
            entry |= {"isSidechain": True, "agentId": "a1b2c3d", "sessionId": parent.id}
        parent.records[2]["toolUseResult"] = {"agentId": "a1b2c3d", "status": "completed", "content": []}
        folder = parent.path(world.agents).with_suffix("") / "subagents"
        folder.mkdir(parents=True)
        (folder / "agent-a1b2c3d.jsonl").write_text(child.text(), "utf-8")
        world.sync()
        world.send_logs(
            "claude-code", record("api_request", 1900, request_id="req_child", session__id=parent.id, **TOKENS)
        )
        assert [found["name"] for found in world.find("data.metadata.request_id", "req_child")] == [
            "chat claude-sonnet-4-5"
        ]
        world.sync(parent)
        (found,) = world.find("data.metadata.request_id", "req_child")
        assert found["data"]["output"] == "nothing"
        turn = next(trace for trace in world.traces() if trace["id"] == found["traceId"])
        assert (turn["name"], turn["totalTokens"]) == ("explore", 3 * 115)
        assert sum(trace.get("totalTokens", 0) for trace in world.traces()) == 3 * 115


class TestCodex:
    """Codex gives its model calls no id in telemetry: its token counts tell which call it is."""

    def write(self, world: TwinWorld, session: str) -> None:
        def line(at: int, kind: str, **payload: Any) -> str:
            seconds, millis = divmod(NOW + at, 1000)
            stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"
            return json.dumps({"timestamp": stamp, "type": kind, "payload": payload})

        usage = {"input_tokens": 1152, "cached_input_tokens": 100, "output_tokens": 57, "reasoning_output_tokens": 7}
        second = {**usage, "input_tokens": 1455}
        item = "response_item"
        lines = [
            line(0, "session_meta", id=session, cwd="/home/dev/shop"),
            line(1000, "turn_context", turn_id="t1", model="gpt-5.2"),
            line(1000, item, type="message", role="user", content=[{"type": "input_text", "text": "go"}]),
            line(2000, item, type="function_call", name="exec_command", arguments='{"cmd": "ls"}', call_id="call_1"),
            line(2001, "event_msg", type="token_count", info={"last_token_usage": usage}),
            line(3000, item, type="function_call_output", call_id="call_1", output="a.txt"),
            line(4000, item, type="message", role="assistant", content=[{"type": "output_text", "text": "done"}]),
            line(4001, "event_msg", type="token_count", info={"last_token_usage": second}),
            line(4002, "event_msg", type="task_complete", turn_id="t1", last_agent_message="done"),
        ]
        path = world.agents / ".codex/sessions/2026/05/28" / f"rollout-2026-05-28T00-00-00-{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", "utf-8")

    def send(self, world: TwinWorld, session: str) -> None:
        def completed(at: int, count: int) -> dict[str, Any]:
            facts = {"conversation__id": session, "model": "gpt-5.2", "event__kind": "response.completed"}
            counts = {"output_token_count": "57", "cached_token_count": 100, "reasoning_token_count": 7}
            return record("codex.sse_event", at, input_token_count=str(count), **counts, **facts)

        tool = {"tool_name": "exec_command", "call_id": "call_1", "duration_ms": "82", "success": "true"}
        done = record("codex.tool_result", 2990, conversation__id=session, arguments="{}", output="a.txt", **tool)
        world.send_logs("codex_exec", completed(1990, 1152), done, completed(3990, 1455))

    def test_spans_that_learn_their_session_later(self, world: TwinWorld) -> None:
        """Those that report usage do not name the conversation; one around them does, when it ends."""
        session = stable_uuid("codex")
        self.write(world, session)
        world.sync()
        counts = {"input": 1152, "output": 57, "cache_read__input": 100}
        usage = {f"gen_ai__usage__{name}_tokens": count for name, count in counts.items()}
        usage |= {"codex__usage__reasoning_output_tokens": 7}
        world.send_spans("codex_exec", span(2, 1, "handle_responses", 1100, 1990, **usage))
        assert len(world.find("data.type", "GENERATION")) == 3
        world.send_spans("codex_exec", span(1, 0, "session_task.turn", 1000, 4000, conversation__id=session))
        first, _ = world.find("data.type", "GENERATION")
        assert (first["name"], first["startTime"] - NOW) == ("chat gpt-5.2", 1100)
        assert sum(trace.get("totalTokens", 0) for trace in world.traces()) == 1152 + 1455 + 2 * 57

    @pytest.mark.parametrize("telemetry_first", [False, True])
    def test_one_span(self, world: TwinWorld, telemetry_first: bool) -> None:
        session = stable_uuid("codex")
        if telemetry_first:
            self.send(world, session)
        self.write(world, session)
        world.sync()
        if not telemetry_first:
            self.send(world, session)
        assert [found["name"] for found in world.find("data.type", "GENERATION")] == ["chat gpt-5.2"] * 2
        assert len(world.find("name", "exec_command")) == 1
        assert sum(trace.get("totalTokens", 0) for trace in world.traces()) == 1152 + 1455 + 2 * 57
        assert sum(line.calls for line in world.library.archive.spans.usage(Window())) == 2

    @pytest.mark.parametrize("order", list(permutations(("spans", "logs", "transcript"))), ids="-".join)
    def test_a_subagent(self, world: TwinWorld, order: tuple[str, ...]) -> None:
        """Its spans lie in the trace of the session that started it and do not name theirs; its log records do."""
        session = stable_uuid("child")
        usage = {"output_tokens": 57, "cache_read__input_tokens": 100}
        spans = [
            span(number, 10, "handle_responses", at, at + 5, codex__usage__reasoning_output_tokens=7,
                 **{f"gen_ai__usage__{name}": count for name, count in {"input_tokens": tokens, **usage}.items()})
            for number, at, tokens in ((11, 2010, 1152), (12, 4010, 1455))
        ]  # fmt: skip
        spans.append(span(10, 0, "session_task.turn", 500, 5000, conversation__id="parent", model="gpt-5.2"))
        for name in order:
            if name == "spans":
                world.send_spans("codex_exec", *({**entry, "traceId": "cd" * 16} for entry in spans))
            elif name == "logs":
                self.send(world, session)
            else:
                self.write(world, session)
                world.sync()
        assert sum(line.calls for line in world.library.archive.spans.usage(Window())) == 2
        assert sum(trace.get("totalTokens", 0) for trace in world.traces()) == 1152 + 1455 + 2 * 57


class TestForgetting:
    """Of a forgotten session nothing stays, also not in the spans that showed its calls."""

    def forget(self, world: TwinWorld, key: str) -> None:
        archive = world.library.archive
        archive.forget(key, remember=True, wipe=False)
        writer = archive.writer()
        writer.recover()
        writer.close()

    def test_what_telemetry_told(self, world: TwinWorld) -> None:
        take(world, "spans", "logs", "whole")
        self.forget(world, f"otel/{talk().id}")
        assert world.find("data.attributes.sandbox", "strict") == []
        (bash,) = world.find("name", "Bash")
        assert "attributes" not in bash["data"]
        assert sum(trace["totalTokens"] for trace in world.traces()) == 3 * 115

    def test_what_the_transcript_told(self, world: TwinWorld) -> None:
        take(world, "spans", "logs", "whole")
        self.forget(world, f"claude-code/{talk().id}")
        (trace,) = world.traces()
        assert (trace["id"], trace["totalTokens"], trace["totalCost"]) == (TRACE, 2 * 115, 0.75)
        assert len(world.find("name", "claude_code.llm_request")) == 2
        assert all("shownBy" not in entry["data"].get("metadata", {}) for entry in world.spans(trace))

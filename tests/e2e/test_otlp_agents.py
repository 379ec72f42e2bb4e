"""Telemetry of Claude Code and Codex, made up in the shapes they send: spans and log records of the same calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from served import Served, eventually

JSON = {"content-type": "application/json"}
NOW_NS = 1_767_225_600_000_000_000
Bodies = list[tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("agents")) as served:
        yield served


def value(given: Any) -> dict[str, Any]:
    if isinstance(given, list):
        return {"arrayValue": {"values": [value(item) for item in given]}}
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    return {kinds[type(given)]: given}


def attributes(table: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(given)} for key, given in table.items()]


def at(milliseconds: int) -> str:
    return str(NOW_NS + milliseconds * 1_000_000)


def span(trace: str, number: int, parent: int, name: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    above = {"parentSpanId": f"{parent:016x}"} if parent else {}
    return {
        "traceId": trace, "spanId": f"{number:016x}", **above, "name": name, "kind": 1,
        "startTimeUnixNano": at(start), "endTimeUnixNano": at(end),
        **more, "attributes": attributes(more.get("attributes", {})),
    }  # fmt: skip


def spans_body(service: str, scope: str, *spans: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    resource = {"attributes": attributes({"service.name": service, "host.arch": "amd64", "os.type": "linux"})}
    return "/v1/traces", {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": scope}, "spans": spans}]}]
    }


def logs_body(service: str, scope: str, *records: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    resource = {"attributes": attributes({"service.name": service})}
    return "/v1/logs", {
        "resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": {"name": scope}, "logRecords": records}]}]
    }


def send(server: Served, bodies: Bodies) -> None:
    for path, body in bodies:
        reply = httpx.post(f"{server.url}{path}", content=json.dumps(body).encode(), headers=JSON, timeout=60)
        assert (reply.status_code, reply.json()) == (200, {})


def search(server: Served, words: str, **options: Any) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = server.tool("search_sessions", {"query": words, **options})["data"]["results"]
    return results


def claude_code(trace: str, session: str, word: str) -> Bodies:
    """A turn with a tool call: two model calls, each reported by a span and by a log record."""
    own = {"user.id": "u1", "session.id": session, "terminal.type": "xterm"}
    spans_own = {**own, "gen_ai.provider.name": "anthropic", "gen_ai.conversation.id": session}

    def request(number: int, id: str, start: int, **usage: Any) -> dict[str, Any]:
        facts = {
            **spans_own, "span.type": "llm_request", "model": "claude-opus-4-8", "gen_ai.system": "anthropic",
            "gen_ai.request.model": "claude-opus-4-8", "success": True, "attempt": 1, "request_id": id,
            "gen_ai.response.id": id, "stop_reason": "tool_use", "gen_ai.response.finish_reasons": ["tool_use"],
            **usage,
        }  # fmt: skip
        events = [
            {"name": "gen_ai.request.attempt", "timeUnixNano": at(start), "attributes": attributes({"attempt": 1})}
        ]
        return span(trace, number, 1, "claude_code.llm_request", start, start + 100, attributes=facts, events=events)

    def record(name: str, time: int, **facts: Any) -> dict[str, Any]:
        return {
            "timeUnixNano": at(time), "observedTimeUnixNano": at(time), "traceId": trace, "spanId": f"{1:016x}",
            "body": value(f"claude_code.{name}"),
            "attributes": attributes({**own, "event.name": name, "prompt.id": "p1", **facts}),
        }  # fmt: skip

    tool = {"tool_use_id": "toolu_1", "tool_name": "Bash"}
    command = f"echo {word}command && ls"
    first = {"input_tokens": 1000, "output_tokens": 50, "cache_read_tokens": 300, "cache_creation_tokens": 50}
    second = {"input_tokens": 1010, "output_tokens": 40, "cache_read_tokens": 600, "cache_creation_tokens": 0}
    output = {"bash_command": command, "output": f"{word}output"}
    prompt = f"Say {word}prompt from the shell"
    return [
        spans_body(
            "claude-code", "com.anthropic.claude_code.tracing",
            request(3, f"req_{word}_1", 400, **first),
            span(
                trace, 5, 4, "claude_code.tool.execution", 520, 640,
                attributes={**spans_own, "tool_use_id": "toolu_1", "gen_ai.tool.call.id": "toolu_1"},
            ),
            span(
                trace, 4, 1, "claude_code.tool", 510, 650,
                attributes={
                    **spans_own, **tool, "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "Bash",
                    "gen_ai.tool.call.id": "toolu_1", "full_command": command,
                },
                events=[{"name": "tool.output", "timeUnixNano": at(640), "attributes": attributes(output)}],
            ),
            request(6, f"req_{word}_2", 700, **second),
            span(
                trace, 1, 0, "claude_code.interaction", 0, 900,
                attributes={**spans_own, "gen_ai.operation.name": "invoke_agent", "user_prompt": prompt},
            ),
        ),
        logs_body(
            "claude-code", "com.anthropic.claude_code.events",
            record("user_prompt", 10, prompt=prompt),
            record("api_request", 500, model="claude-opus-4-8", cost_usd=0.25, request_id=f"req_{word}_1", **first),
            record("assistant_response", 500, response=f"Working on {word}answer.", request_id=f"req_{word}_1"),
            record(
                "tool_result", 645, **tool, success="true", duration_ms="120", request_id=f"req_{word}_1",
                tool_input=json.dumps({"command": command}), tool_parameters=json.dumps({"bash_command": "echo"}),
            ),
            record("api_request", 800, model="claude-opus-4-8", cost_usd=0.5, request_id=f"req_{word}_2", **second),
        ),
    ]  # fmt: skip


def codex(trace: str, session: str, word: str) -> Bodies:
    """A turn with a tool call. Log records name their event in an attribute; the protocol's name is a source line.
    Those of the stream have no trace; spans that report usage have no conversation."""
    log = {"conversation.id": session, "app.version": "0.166.0", "originator": "codex_exec", "model": "gpt-5"}

    def record(line: str, name: str, time: int, traced: bool = True, **facts: Any) -> dict[str, Any]:
        ids = {"traceId": trace, "spanId": f"{2:016x}"} if traced else {}
        return {
            "timeUnixNano": at(time), "observedTimeUnixNano": at(time), "severityNumber": 9, "severityText": "INFO",
            **ids, "eventName": f"event otel/src/{line}",
            "attributes": attributes({"event.name": name, **facts, **log}),
        }  # fmt: skip

    def responses(number: int, time: int, **usage: Any) -> dict[str, Any]:
        facts = {f"gen_ai.usage.{name.replace('__', '.')}_tokens": count for name, count in usage.items()}
        reasoning = {"codex.usage.reasoning_output_tokens": 7, "codex.usage.total_tokens": 1}
        return span(
            trace, number, 3, "handle_responses", time, time + 7, attributes={"thread.id": 4, **facts, **reasoning}
        )

    def completed(time: int, input: int, output: int, cached: int, written: int) -> dict[str, Any]:
        return record(
            "events/session_telemetry.rs:1132", "codex.sse_event", time, traced=False,
            **{"event.kind": "response.completed"}, input_token_count=str(input), output_token_count=str(output),
            cached_token_count=cached, cache_write_token_count=written, reasoning_token_count=7,
        )  # fmt: skip

    arguments = json.dumps({"cmd": f"echo {word}command"})
    return [
        spans_body(
            "codex_exec", "codex_exec",
            responses(10, 100, input=1152, output=57, cache_read__input=100, cache_write__input=50),
            responses(11, 300, input=1455, output=47, cache_read__input=400, cache_write__input=0),
            span(
                trace, 12, 2, "exec_command", 150, 260,
                attributes={"tool_name": "exec_command", "call_id": "exec-1", "codex.tool.phase": "dispatch", **log},
            ),
            span(trace, 3, 2, "try_run_sampling_request", 90, 110, attributes={"model": "gpt-5"}),
            span(trace, 2, 0, "session_task.turn", 0, 400, attributes={"model": "gpt-5", "conversation.id": session}),
        ),
        logs_body(
            "codex_exec", "codex_otel.log_only",
            record("events/session_telemetry.rs:1179", "codex.user_prompt", 5, prompt=f"Say {word}prompt"),
            completed(90, 1152, 57, 100, 50),
            record(
                "tool_result.rs:54", "codex.tool_result", 255, tool_name="exec_command", call_id="exec-1",
                duration_ms="82", success="true", arguments=arguments, output=f"Output:\n{word}output\n",
            ),
            completed(290, 1455, 47, 400, 0),
        ),
    ]  # fmt: skip


def generations(server: Served, trace: str) -> list[dict[str, Any]]:
    filters = [{"field": "data.type", "operator": "eq", "value": "GENERATION"}]
    items: list[dict[str, Any]] = server.tool(
        "search_spans", {"traceId": trace, "filters": filters, "sortOrder": "asc"}
    )["items"]
    return items


@pytest.mark.parametrize("backwards", [False, True], ids=["spans-first", "logs-first"])
class TestClaudeCode:
    """Spans and log records of one request are one call."""

    def test_counts_once(self, server: Served, backwards: bool) -> None:
        word, trace = ("wombat", "a1" * 16) if backwards else ("quokka", "a2" * 16)
        bodies = claude_code(trace, f"session-{word}", word)
        send(server, bodies[::-1] if backwards else bodies)
        send(server, bodies)  # exporters send again
        found = server.tool("get_trace", {"traceId": trace})["trace"]
        assert found["name"] == f"Say {word}prompt from the shell"
        assert found["totalTokens"] == (1350 + 50) + (1610 + 40)
        assert found["totalCost"] == 0.75
        spans = {entry["name"]: entry["data"] for entry in found["spans"]}
        assert spans["claude_code.llm_request"]["totalCost"] == 0.5
        assert spans["claude_code.llm_request"]["metadata"]["costSource"] == "reported"
        assert spans["claude_code.llm_request"]["attributes"]["input_tokens"] == 1010

    def test_tool_output(self, server: Served, backwards: bool) -> None:
        """The output of a tool is in its span and is found by search. The turn has the call once, although a span and a
        log record report it."""
        word, trace = ("numbat", "a3" * 16) if backwards else ("bilby", "a4" * 16)
        bodies = claude_code(trace, f"session-{word}", word)
        send(server, bodies[::-1] if backwards else bodies)
        filters = [{"field": "name", "operator": "eq", "value": "claude_code.tool"}]
        (tool,) = server.tool("search_spans", {"traceId": trace, "filters": filters})["items"]
        assert tool["data"]["output"] == f"{word}output"
        # The two bodies may be read in two syncs, the answer in the second; nothing of the first appears again then.
        eventually(lambda: search(server, f"{word}answer"))
        (hit,) = eventually(lambda: search(server, f"{word}output", event_types=["tool_response"]))
        opened = server.tool("open", {"id": hit["open"]["turn_id"]})["data"]
        kinds = sorted(event["type"] for event in opened["events"])
        assert kinds == ["assistant_response", "tool_call", "tool_response", "user_input"]


@pytest.mark.parametrize("backwards", [False, True], ids=["spans-first", "logs-first"])
class TestCodex:
    """Spans and log records with the same numbers of tokens are one call, although they are in different traces."""

    def test_counts_once(self, server: Served, backwards: bool) -> None:
        word, trace = ("dunnart", "b1" * 16) if backwards else ("potoroo", "b2" * 16)
        bodies = codex(trace, f"session-{word}", word)
        send(server, bodies[::-1] if backwards else bodies)
        traces = server.tool("list_traces", {"sessionId": f"session-{word}"})["traces"]
        assert sum(found.get("totalTokens", 0) for found in traces) == (1152 + 57) + (1455 + 47)
        turn = next(found for found in traces if found["id"] == trace)
        assert (turn["name"], turn["totalTokens"]) == (f"Say {word}prompt", (1152 + 57) + (1455 + 47))
        first, second = generations(server, trace)
        assert (first["data"]["model"], second["data"]["model"]) == ("gpt-5", "gpt-5")
        assert first["data"]["metadata"]["cacheWriteTokens"] == 50
        assert turn["totalCost"] == pytest.approx(first["data"]["totalCost"] + second["data"]["totalCost"])

    def test_prompts_and_tools(self, server: Served, backwards: bool) -> None:
        """The attribute `event.name` says what a record is; the protocol's own name is kept beside it."""
        word, trace = ("bettong", "b3" * 16) if backwards else ("quoll", "b4" * 16)
        bodies = codex(trace, f"session-{word}", word)
        send(server, bodies[::-1] if backwards else bodies)
        spans = server.tool("get_trace", {"traceId": trace})["trace"]["spans"]
        prompt = next(entry["data"] for entry in spans if entry["name"] == "codex.user_prompt")
        assert prompt["input"] == f"Say {word}prompt"
        assert prompt["attributes"]["otel.event_name"] == "event otel/src/events/session_telemetry.rs:1179"
        outputs = [entry["data"].get("output") for entry in spans if entry["name"] == "exec_command"]
        assert f"Output:\n{word}output\n" in outputs
        assert eventually(lambda: search(server, f"{word}prompt"))
        assert eventually(lambda: search(server, f"{word}output", event_types=["tool_response"]))

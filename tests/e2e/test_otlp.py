"""OpenTelemetry over HTTP, sent by the real SDK and by hand to a real server."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from served import Served, eventually

from backstory.model import session_id

PROTOBUF, JSON = {"content-type": "application/x-protobuf"}, {"content-type": "application/json"}
TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"
NOW_NS = 1_767_225_600_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("otlp")) as served:
        yield served


def post(server: Served, path: str, body: Any, headers: dict[str, str]) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{server.url}{path}", content=content, headers=headers, timeout=60)


def span(**fields: Any) -> dict[str, Any]:
    times = {"startTimeUnixNano": str(NOW_NS), "endTimeUnixNano": str(NOW_NS + 5_000_000)}
    return {"traceId": TRACE, "spanId": SPAN, "name": "work", **times, **fields}


def spans_body(*spans: dict[str, Any], service: str = "by-hand") -> dict[str, Any]:
    resource = {"attributes": attributes({"service.name": service})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "t"}, "spans": list(spans)}]}]}


def logs_body(*records: dict[str, Any], service: str) -> dict[str, Any]:
    resource = {"attributes": attributes({"service.name": service})}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": list(records)}]}]}


def attributes(table: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    return [{"key": key, "value": {kinds[type(value)]: value}} for key, value in table.items()]


def exported(server: Served, name: str, **options: Any) -> str:
    """Spans of the real SDK; gives the id of their trace."""
    provider = TracerProvider(resource=Resource.create({"service.name": "sdk"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{server.url}/v1/traces", **options)))
    tracer = provider.get_tracer("tests")
    with tracer.start_as_current_span(name) as root:
        root.set_attribute("user.tier", "gold")
        with tracer.start_as_current_span("chat gpt-4o") as chat:
            chat.set_attributes(
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "gpt-4o",
                    "gen_ai.usage.input_tokens": 1000,
                    "gen_ai.usage.output_tokens": 100,
                }
            )
        with tracer.start_as_current_span("tool") as tool:
            tool.set_status(Status(StatusCode.ERROR, "broke"))
    provider.shutdown()
    return f"{root.get_span_context().trace_id:032x}"


class TestSdk:
    """The real exporters deliver, compressed or not, and what they send becomes a trace."""

    @pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
    def test_spans(self, server: Served, compression: Compression) -> None:
        trace = server.tool("get_trace", {"traceId": exported(server, "job", compression=compression)})["trace"]
        assert (trace["name"], trace["status"], trace["totalTokens"]) == ("job", "error", 1100)
        assert trace["totalCost"] == pytest.approx(0.0035)
        root, chat, tool = trace["spans"]
        assert [chat["parentId"], tool["parentId"]] == [root["id"], root["id"]]
        assert (chat["data"]["type"], chat["data"]["model"]) == ("GENERATION", "gpt-4o")
        assert tool["data"]["metadata"]["statusMessage"] == "broke"
        assert root["data"]["attributes"]["user.tier"] == "gold"

    def test_everything_is_kept(self, server: Served) -> None:
        """Links, kind, scope, resource: what the SDK sends by itself, and what only some use."""
        resource = Resource.create({"service.name": "sdk", "host.name": "box", "process.pid": 42, "os.type": "linux"})
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{server.url}/v1/traces")))
        tracer = provider.get_tracer("my.scope", "1.2", attributes={"team": "red"})
        with tracer.start_as_current_span("before") as before:
            pass
        link = Link(before.get_span_context(), {"reason": "follows"})
        facts = {
            "gen_ai.request.model": "gpt-4o", "gen_ai.response.model": "gpt-4o-2024-08-06", "events": "mine",
            "gen_ai.usage.input_tokens": "many", "retries": [1, 2],
        }  # fmt: skip
        with tracer.start_as_current_span("after", kind=SpanKind.CLIENT, links=[link], attributes=facts) as after:
            after.add_event("retry", {"why": "timeout"})
            after.set_status(Status(StatusCode.OK))
        provider.shutdown()
        trace = f"{after.get_span_context().trace_id:032x}"
        (span,) = server.tool("get_trace", {"traceId": trace})["trace"]["spans"]
        linked = f"{before.get_span_context().trace_id:032x}"
        shown = span["data"]["attributes"]
        assert shown["otel.links"][0]["traceId"] == linked
        assert shown["otel.links"][0]["attributes"] == {"reason": "follows"}
        assert shown["otel.events"][0]["attributes"] == {"why": "timeout"}
        assert shown["otel.scope.attributes"] == {"team": "red"}
        assert span["data"]["model"] == "gpt-4o-2024-08-06"
        asked = {
            "otel.kind": "CLIENT", "otel.scope.name": "my.scope", "otel.scope.version": "1.2", "host.name": "box",
            "otel.status_code": "OK", "process.pid": 42, "os.type": "linux", "telemetry.sdk.language": "python",
            "gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": "many", "events": "mine",
            "otel.scope.attributes.team": "red", "retries": "[1,2]",
        }  # fmt: skip
        for name, value in asked.items():
            filters = [{"field": f"data.attributes.{name}", "operator": "eq", "value": value}]
            assert server.tool("search_spans", {"filters": filters, "traceId": trace})["total"] == 1, name
        filters = [{"field": "data.attributes.otel.links", "operator": "contains", "value": linked}]
        assert server.tool("search_spans", {"filters": filters})["total"] == 1

    def test_custom_attributes_are_found(self, server: Served) -> None:
        trace = exported(server, "find me")
        for field in ("data.attributes.user.tier", "data.metadata.user.tier"):
            filters = [{"field": field, "operator": "eq", "value": "gold"}]
            page = server.tool("search_spans", {"filters": filters, "traceId": trace})
            assert page["total"] == 1

    def test_logs(self, server: Served) -> None:
        provider = LoggerProvider(resource=Resource.create({"service.name": "claude-code"}))
        provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{server.url}/v1/logs")))
        logger = provider.get_logger("com.anthropic.claude_code.events")
        facts = {
            "session.id": "sdk-session", "event.name": "api_request", "model": "claude-haiku-4-5", "cost_usd": 0.25,
            "input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 100, "duration_ms": 2000,
        }  # fmt: skip
        logger.emit(
            LogRecord(
                timestamp=time.time_ns(),
                severity_number=SeverityNumber.INFO,
                body="claude_code.api_request",
                attributes=facts,
            )
        )
        provider.shutdown()
        (trace,) = server.tool("list_traces", {"sessionId": "sdk-session"})["traces"]
        assert trace["totalCost"] == 0.25
        assert trace["totalTokens"] == 115
        assert trace["latency"] == 2000


class TestGenAiLogs:
    """Messages that instrumentations send as log records of the GenAI conventions become events of their session."""

    def turns(self, server: Served, session: str, *events: tuple[str, int, Any, dict[str, Any]]) -> list[list[str]]:
        """Sends (name, span, body, attributes) of each event; the types and texts of the session's turns."""
        batch = BatchLogRecordProcessor(OTLPLogExporter(f"{server.url}/v1/logs"))
        provider = LoggerProvider(resource=Resource.create({"service.name": "shop", "session.id": session}))
        provider.add_log_record_processor(batch)
        logger = provider.get_logger("opentelemetry.instrumentation.openai_v2")
        for at, (name, span_id, body, facts) in enumerate(events):
            place = SpanContext(int("4f" * 16, 16), span_id, is_remote=False, trace_flags=TraceFlags(1))
            logger.emit(
                LogRecord(
                    timestamp=NOW_NS + at * 1_000_000,
                    context=set_span_in_context(NonRecordingSpan(place)),
                    event_name=name,
                    body=body,
                    attributes=facts,
                )
            )
        provider.shutdown()
        query = {"query": "flumph", "event_types": ["user_input", "assistant_response"]}
        hits = eventually(
            lambda: [
                hit
                for hit in server.tool("search_sessions", query)["data"]["results"]
                if hit["session"]["id"] == session_id(f"otel/{session}")
            ]
        )
        opened = server.tool("open", {"id": hits[0]["session"]["id"]})["data"]["turns"]
        turns = [server.tool("open", {"id": turn["id"]})["data"]["events"] for turn in opened]
        return [[f"{event['type']}: {event['summary']}" for event in events] for events in turns]

    def test_events_of_messages(self, server: Served) -> None:
        """Each call sends the conversation again: the same words are two events if they are twice in it."""
        call = {"id": "c1", "type": "function", "function": {"name": "stock", "arguments": '{"item": "flumph"}'}}
        first: list[tuple[str, int, Any, dict[str, Any]]] = [
            ("gen_ai.system.message", 1, {"content": "You keep a shop."}, {}),
            ("gen_ai.user.message", 1, {"content": "Any flumph left?"}, {}),
            ("gen_ai.choice", 1, {"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}, {}),
        ]
        second: list[tuple[str, int, Any, dict[str, Any]]] = [
            *[(name, 2, body, facts) for name, _, body, facts in first[:2]],
            ("gen_ai.assistant.message", 2, {"tool_calls": [call]}, {}),
            ("gen_ai.tool.message", 2, {"id": "c1", "content": "3"}, {}),
            ("gen_ai.choice", 2, {"index": 0, "message": {"role": "assistant", "content": "Three."}}, {}),
        ]
        third = [
            *[(name, 3, body, facts) for name, _, body, facts in second[:4]],
            ("gen_ai.assistant.message", 3, {"content": "Three."}, {}),
            ("gen_ai.user.message", 3, {"content": "Any flumph left?"}, {}),
            ("gen_ai.choice", 3, {"index": 0, "message": {"content": "Still three."}}, {}),
        ]
        assert self.turns(server, "shop-1", *first, *second, *third) == [
            [
                "system: You keep a shop.",
                "user_input: Any flumph left?",
                'tool_call: stock(item="flumph")',
                "tool_response: 3",
                "assistant_response: Three.",
            ],
            ["user_input: Any flumph left?", "assistant_response: Still three."],
        ]

    def test_an_event_of_a_call(self, server: Served) -> None:
        said = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-5",
            "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "More flumph?"}]}],
            "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "Tomorrow."}]}],
        }
        turns = self.turns(server, "shop-2", ("gen_ai.client.inference.operation.details", 4, None, said))
        assert turns == [["user_input: More flumph?", "assistant_response: Tomorrow."]]


class TestPydanticAi:
    """A run of a real agent framework with a test model: one trace, tokens counted once, a session to search."""

    def test_run(self, server: Served) -> None:
        from pydantic_ai import Agent
        from pydantic_ai.models.instrumented import InstrumentationSettings
        from pydantic_ai.models.test import TestModel

        provider = TracerProvider(resource=Resource.create({"service.name": "pydantic"}))
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{server.url}/v1/traces")))
        agent = Agent(TestModel(custom_output_text="it will be sunny in Xanthippopolis"), name="weatherman")
        agent.instrument = InstrumentationSettings(tracer_provider=provider)

        @agent.tool_plain
        def forecast(city: str) -> str:
            return f"clear skies over {city}"

        run = asyncio.run(agent.run("what will the weather be?"))
        provider.shutdown()
        filters = [{"field": "name", "operator": "eq", "value": "invoke_agent weatherman"}]
        (item,) = server.tool("search_traces", {"filters": filters})["items"]
        assert item["totalTokens"] == run.usage.input_tokens + run.usage.output_tokens
        names = [span["name"] for span in server.tool("get_trace", {"traceId": item["id"]})["trace"]["spans"]]
        assert names == ["invoke_agent weatherman", "chat test", "execute_tool forecast", "chat test"]

        def found() -> Any:
            return server.tool("search_sessions", {"query": "Xanthippopolis"})["data"]["results"]

        (hit,) = eventually(found)
        assert hit["session"]["source"] == "otel"
        opened = server.tool("open", {"id": hit["open"]["turn_id"]})["data"]
        kinds = [event["type"] for event in opened["events"]]
        assert kinds == ["user_input", "tool_call", "tool_response", "assistant_response"]
        # Its spans are its trace already: it is not projected again.
        assert server.tool("list_traces", {"sessionId": hit["session"]["id"]})["count"] == 1


class TestJavaScript:
    """Requests of `@opentelemetry/exporter-trace-otlp-http`: JSON in chunks, numbers as numbers, texts cut anywhere."""

    def test_spans(self, server: Served) -> None:
        trace, root, chat = "7c6ae848f1eb2756ac7820038720a5b5", "7ef5d3a606f97e41", "fec4bfab5c68e64b"
        counts = {"droppedAttributesCount": 0, "droppedEventsCount": 0, "droppedLinksCount": 0}
        rest = {"kind": 1, "events": [], "links": [], "status": {"code": 0}, "flags": 257, **counts}
        messages = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "where is the wombat"}]}])
        facts = [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
            {"key": "gen_ai.request.model", "value": {"stringValue": "gpt-5"}},
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": 1200}},
            {"key": "gen_ai.usage.output_tokens", "value": {"intValue": 34}},
            {"key": "gen_ai.input.messages", "value": {"stringValue": messages}},
            {"key": "session.id", "value": {"stringValue": "node-session"}},
            {"key": "half", "value": {"stringValue": "cut \ud83d"}},
            {"key": "tags", "value": {"arrayValue": {"values": [{"stringValue": "a"}, {"stringValue": "b"}]}}},
        ]
        stamp = {"attributes": [], "name": "retry", "timeUnixNano": str(NOW_NS), "droppedAttributesCount": 0}
        link = {"attributes": [], "spanId": root, "traceId": trace, "droppedAttributesCount": 0, "flags": 257}
        details = {"attributes": facts, "events": [stamp], "links": [link], "status": {"code": 2, "message": "boom"}}
        spans = [
            span(traceId=trace, spanId=chat, parentSpanId=root, **{**rest, **details}),
            span(traceId=trace, spanId=root, **rest),
        ]
        body = json.dumps(spans_body(*spans)).encode()
        reply = httpx.post(f"{server.url}/v1/traces", content=iter([body[:500], body[500:]]), headers=JSON)
        assert (reply.status_code, reply.content) == (200, b"{}")
        answer = server.tool("get_trace", {"traceId": trace})["trace"]
        assert (answer["status"], answer["totalTokens"]) == ("error", 1234)
        data = answer["spans"][1]["data"]
        assert data["attributes"]["half"] == "cut \ufffd"
        assert data["attributes"]["tags"] == ["a", "b"]
        assert data["attributes"]["events"][0]["name"] == "retry"
        assert eventually(lambda: server.tool("search_sessions", {"query": "wombat"})["data"]["results"])


class TestProtocol:
    """Types, codings, limits and replies as the protocol wants them."""

    def test_empty_replies(self, server: Served) -> None:
        reply = post(server, "/v1/traces", b"", PROTOBUF)
        assert (reply.status_code, reply.content) == (200, b"")
        assert reply.headers["content-type"] == "application/x-protobuf"
        for path, body in (("/v1/traces", spans_body(span())), ("/v1/logs", {"resourceLogs": []})):
            reply = post(server, path, body, {"content-type": "application/json; charset=utf-8"})
            assert (reply.status_code, reply.json()) == (200, {})

    def test_gzip_json(self, server: Served) -> None:
        body = gzip.compress(json.dumps(spans_body(span(name="zipped", traceId="ab" * 16))).encode())
        assert post(server, "/v1/traces", body, {**JSON, "content-encoding": "gzip"}).status_code == 200
        assert server.tool("get_trace", {"traceId": "ab" * 16})["trace"]["name"] == "zipped"

    @pytest.mark.parametrize(
        ("body", "headers", "status"),
        [
            (b"\xff\xff\xff", PROTOBUF, 400),
            (b"{", JSON, 400),
            (b"[]", JSON, 400),
            (b'{"resourceSpans": 5}', JSON, 400),
            (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}', JSON, 400),
            (b"{}", {"content-type": "text/plain"}, 415),
            (b"{}", {}, 415),
            (b"{}", {**JSON, "content-encoding": "br"}, 415),
            (b"no gzip", {**JSON, "content-encoding": "gzip"}, 400),
            (gzip.compress(b"{}", mtime=0)[:-3], {**JSON, "content-encoding": "gzip"}, 400),
        ],
    )
    def test_refusals(self, server: Served, body: bytes, headers: dict[str, str], status: int) -> None:
        reply = post(server, "/v1/traces", body, headers)
        assert reply.status_code == status
        if headers == JSON:
            assert reply.json()["message"]

    def test_too_large(self, server: Served) -> None:
        """More than 64 MB, as it comes or after it is unpacked."""
        packed = gzip.compress(b" " * (65 << 20), compresslevel=1)
        for body, headers in ((b" " * ((64 << 20) + 1), JSON), (packed, {**JSON, "content-encoding": "gzip"})):
            reply = post(server, "/v1/traces", body, headers)
            assert reply.status_code == 413
            assert reply.json()["message"]

    def test_many_members(self, server: Served) -> None:
        """The cost of a body of very many gzip members grows with its length, not with its square."""
        member = gzip.compress(b"", mtime=0)
        parts = [gzip.compress(part, mtime=0) for part in (b'{"resource', b'Spans": [', b"]}")]
        body = member * (1 << 17) + parts[0] + member + parts[1] + parts[2] + member * (1 << 17)
        reply = post(server, "/v1/traces", body, {**JSON, "content-encoding": "gzip"})
        assert (reply.status_code, reply.json()) == (200, {})

    def test_partial_success(self, server: Served) -> None:
        good, bad = span(traceId="cd" * 16), span(traceId="00" * 16)
        reply = post(server, "/v1/traces", spans_body(good, bad, span(spanId="ab")), JSON)
        assert reply.status_code == 200
        assert reply.json()["partialSuccess"]["rejectedSpans"] == "2"
        assert server.tool("get_trace", {"traceId": "cd" * 16})["trace"]["spans"]
        request = ExportTraceServiceRequest()
        request.resource_spans.add().scope_spans.add().spans.add().name = "no ids"
        reply = post(server, "/v1/traces", request.SerializeToString(), PROTOBUF)
        assert ExportTraceServiceResponse.FromString(reply.content).partial_success.rejected_spans == 1

    def test_resent_is_the_same(self, server: Served) -> None:
        trace = "ef" * 16
        for name in ("first", "second"):
            facts = attributes({"user_id": name})
            for _ in range(2):
                post(server, "/v1/traces", spans_body(span(traceId=trace, name=name, attributes=facts)), JSON)
        (only,) = server.tool("get_trace", {"traceId": trace})["trace"]["spans"]
        assert only["name"] == "second"
        for value, count in (("first", 0), ("second", 1)):
            filters = [{"field": "data.metadata.user_id", "operator": "eq", "value": value}]
            assert server.tool("search_spans", {"filters": filters, "traceId": trace})["total"] == count

    def test_children_first(self, server: Served) -> None:
        """An unknown parent makes a root, until the parent comes."""
        trace, parent = "12" * 16, "aa" * 8
        post(server, "/v1/traces", spans_body(span(traceId=trace, name="child", parentSpanId=parent)), JSON)
        before = server.tool("get_trace", {"traceId": trace})["trace"]
        assert (before["name"], before["spans"][0]["parentId"]) == ("child", None)
        post(server, "/v1/traces", spans_body(span(traceId=trace, spanId=parent, name="parent")), JSON)
        after = server.tool("get_trace", {"traceId": trace})["trace"]
        assert after["name"] == "parent"
        assert {entry["parentId"] for entry in after["spans"]} == {None, parent}

    def test_usage_counts_once(self, server: Served) -> None:
        trace = "34" * 16
        usage = attributes({"gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": 100})
        chain = [("a1" * 8, ""), ("a2" * 8, "a1" * 8), ("a3" * 8, "a2" * 8), ("a4" * 8, "a2" * 8)]
        for own, parent in reversed(chain):
            facts = usage if own != "a2" * 8 else []
            body = spans_body(span(traceId=trace, spanId=own, parentSpanId=parent, attributes=facts))
            post(server, "/v1/traces", body, JSON)
        assert server.tool("get_trace", {"traceId": trace})["trace"]["totalTokens"] == 200

    def test_no_end_is_pending(self, server: Served) -> None:
        post(server, "/v1/traces", spans_body(span(traceId="56" * 16, endTimeUnixNano="0")), JSON)
        trace = server.tool("get_trace", {"traceId": "56" * 16})["trace"]
        assert (trace["status"], "latency" in trace) == ("pending", False)

    def test_parents_in_a_circle(self, server: Served) -> None:
        one = span(
            traceId="78" * 16, spanId="b1" * 8, parentSpanId="b2" * 8, attributes=attributes({"input_tokens": 1})
        )
        two = span(
            traceId="78" * 16, spanId="b2" * 8, parentSpanId="b1" * 8, attributes=attributes({"input_tokens": 1})
        )
        assert post(server, "/v1/traces", spans_body(one, two), JSON).status_code == 200
        assert len(server.tool("get_trace", {"traceId": "78" * 16})["trace"]["spans"]) == 2


def log(name: str, at: int, **facts: Any) -> dict[str, Any]:
    given_facts = {key.replace("__", "."): value for key, value in facts.items()}
    return {
        "timeUnixNano": str(NOW_NS + at * 1_000_000),
        "body": {"stringValue": name},
        "attributes": attributes({"event.name": name.partition(".")[2], **given_facts}),
    }


class TestAgentLogs:
    """Log events of agents become spans of their session, and what was said is found by search."""

    def test_codex(self, server: Served) -> None:
        records = [
            log("codex.user_prompt", 0, conversation__id="cx-1", prompt="please quuxify the frobnicator"),
            log(
                "codex.sse_event", 900, conversation__id="cx-1", event__kind="response.completed", model="gpt-5",
                input_token_count="500", cached_token_count="400", output_token_count="20", reasoning_token_count="8",
            ),
            log(
                "codex.tool_result", 2000, conversation__id="cx-1", tool_name="shell", call_id="c1", duration_ms="150",
                success="false", arguments='{"command": ["quux"]}', output="quux: not found",
            ),
            log("codex.agent_response", 3000, conversation__id="cx-1", response="There is no quuxifier here."),
        ]  # fmt: skip
        assert post(server, "/v1/logs", logs_body(*records, service="codex_cli_rs"), JSON).json() == {}
        (trace,) = server.tool("list_traces", {"sessionId": "cx-1"})["traces"]
        assert (trace["name"], trace["status"]) == ("please quuxify the frobnicator", "error")
        assert trace["totalTokens"] == 520
        spans = {entry["name"]: entry for entry in server.tool("get_trace", {"traceId": trace["id"]})["trace"]["spans"]}
        assert spans["shell"]["endTime"] - spans["shell"]["startTime"] == 150
        assert spans["shell"]["data"]["input"] == {"command": ["quux"]}
        assert spans["codex.sse_event"]["data"]["metadata"]["cacheReadTokens"] == 400
        hits = eventually(lambda: server.tool("search_sessions", {"query": "quuxify frobnicator"})["data"]["results"])
        assert hits[0]["session"]["title"] == "please quuxify the frobnicator"
        assert eventually(lambda: server.tool("search_sessions", {"query": "quuxifier"})["data"]["results"])

    def test_claude_code(self, server: Served) -> None:
        """A user decides whether Claude Code sends texts; those that it leaves out are marked and not indexed."""
        records = [
            log("claude_code.user_prompt", 0, session__id="cc-1", prompt__id="p1", prompt="<REDACTED>"),
            log("claude_code.user_prompt", 10, session__id="cc-1", prompt__id="p2", prompt="rename the gizmotron"),
            log("claude_code.assistant_response", 20, session__id="cc-1", prompt__id="p1", response="<REDACTED>"),
            log(
                "claude_code.assistant_response", 30, session__id="cc-1", prompt__id="p2", model="claude-opus-4-8",
                response="The gizmotron is a widgetron now.", response_length="33",
            ),
        ]  # fmt: skip
        assert post(server, "/v1/logs", logs_body(*records, service="claude-code"), JSON).json() == {}
        named, _ = server.tool("list_traces", {"sessionId": "cc-1"})["traces"]
        assert named["name"] == "rename the gizmotron"
        spans = server.tool("get_trace", {"traceId": named["id"]})["trace"]["spans"]
        assert spans[1]["data"]["output"] == "The gizmotron is a widgetron now."
        hits = eventually(lambda: server.tool("search_sessions", {"query": "widgetron"})["data"]["results"])
        assert hits[0]["session"]["title"] == "rename the gizmotron"
        assert not server.tool("search_sessions", {"query": "REDACTED"})["data"]["results"]

    def test_gemini(self, server: Served) -> None:
        records = [
            log("gemini_cli.user_prompt", 0, session__id="g-1", prompt_id="p1", prompt="hello gemini"),
            log(
                "gemini_cli.api_response", 500, session__id="g-1", prompt_id="p1", model="gemini-2.5-pro",
                duration_ms=400, input_token_count=100, output_token_count=10, cached_content_token_count=0,
                thoughts_token_count=5, total_token_count=115, response_text="hello human",
            ),
            log("gemini_cli.user_prompt", 9000, session__id="g-1", prompt_id="p2", prompt="bye"),
        ]  # fmt: skip
        post(server, "/v1/logs", logs_body(*records, service="gemini-cli"), JSON)
        traces = server.tool("list_traces", {"sessionId": "g-1"})["traces"]
        assert [trace["name"] for trace in traces] == ["bye", "hello gemini"]
        assert traces[1]["totalTokens"] == 110

    def test_a_log_of_a_trace(self, server: Served) -> None:
        trace = "9a" * 16
        post(server, "/v1/traces", spans_body(span(traceId=trace)), JSON)
        record = {**log("retry", 1), "traceId": trace, "spanId": SPAN, "severityNumber": 17}
        post(server, "/v1/logs", logs_body(record, service="x"), JSON)
        spans = server.tool("get_trace", {"traceId": trace})["trace"]["spans"]
        assert [(entry["data"]["type"], entry["parentId"]) for entry in spans] == [("SPAN", None), ("EVENT", SPAN)]
        assert spans[1]["status"] == "error"

    def test_a_log_of_nothing(self, server: Served) -> None:
        reply = post(server, "/v1/logs", logs_body(log("plain", 1), service="x"), JSON)
        assert reply.json()["partialSuccess"]["rejectedLogRecords"] == "1"


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)
WORDS = [
    "resourceSpans",
    "scopeSpans",
    "spans",
    "attributes",
    "traceId",
    "spanId",
    "name",
    "key",
    "value",
    "stringValue",
]


class TestFuzz:
    """No body, however broken, is answered with anything but a reply of the protocol."""

    @given(st.binary(max_size=300))
    def test_bytes(self, server: Served, body: bytes) -> None:
        for path in ("/v1/traces", "/v1/logs"):
            assert post(server, path, body, PROTOBUF).status_code in (200, 400)

    @given(st.dictionaries(st.sampled_from(WORDS), values, max_size=4), st.dictionaries(st.text(max_size=9), values))
    def test_json(self, server: Served, fields: dict[str, Any], facts: dict[str, Any]) -> None:
        pairs = [{"key": key, "value": {"stringValue": value}} for key, value in facts.items()]
        try:
            body = json.dumps(spans_body(span(attributes=pairs, **fields) | fields)).encode()
        except (TypeError, UnicodeEncodeError):
            return
        assert post(server, "/v1/traces", body, JSON).status_code in (200, 400)

    def test_the_server_is_well(self, server: Served) -> None:
        assert post(server, "/v1/traces", json.dumps(spans_body(span())).encode(), JSON).status_code == 200
        assert server.tool("list_traces", {"limit": 1})["count"] == 1
        assert "Traceback" not in server.stderr

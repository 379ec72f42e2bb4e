"""Traces at scale: receiving spans, filtering a million of them, reading one large trace.

    python -m bench.traces [--spans N] [--home FOLDER]

Spans are made up: traces of twenty with an agent, model calls and tool calls, each with ten attributes. They are
posted to a server of their own as OTLP bodies of 500, one after the other, as an exporter sends them. Every query is
asked several times; the median counts.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from backstory.ingest.telemetry import Receiver
from backstory.library import Library
from backstory.toolsets.base import Toolset
from bench.live import server

_PER_TRACE = 20
_PER_BODY = 500
_START_NS = 1_767_225_600_000_000_000
_MODELS = ("claude-opus-4-5", "claude-haiku-4-5", "gpt-5.2", "gemini-2.5-pro")
_TOOLS = ("Bash", "Read", "Edit", "Grep", "WebFetch")


def bodies(spans: int, per_trace: int = _PER_TRACE, seed: int = 7) -> Iterator[bytes]:
    """OTLP bodies with so many spans in all."""
    source = random.Random(seed)
    made = 0
    while made < spans:
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        _set(resource.resource, {"service.name": "bench", "deployment.environment": source.choice(("dev", "prod"))})
        scope = resource.scope_spans.add()
        for _ in range(min(_PER_BODY, spans - made)):
            _add_span(scope, made, per_trace, source)
            made += 1
        yield request.SerializeToString()


def _id(number: int) -> bytes:
    """All over the place, as the ids of exporters are."""
    return ((number + 1) * 0x9E37_79B9_7F4A_7C15 % (1 << 64)).to_bytes(8, "big")


def _add_span(scope: Any, number: int, per_trace: int, source: random.Random) -> None:
    trace, place = divmod(number, per_trace)
    span = scope.spans.add()
    span.trace_id = _id(trace) * 2
    span.span_id = _id(number)
    start = _START_NS + number * 50_000_000
    span.start_time_unix_nano = start
    span.end_time_unix_nano = start + source.randrange(1_000_000, 30_000_000_000)
    attributes: dict[str, Any] = {
        "user_id": f"user-{source.randrange(50_000)}",
        "request.id": f"{source.getrandbits(64):016x}",
        "thread.id": source.randrange(64),
        "retries": source.randrange(4),
        "score": source.random(),
        "region": source.choice(("eu", "us", "ap")),
    }
    if place == 0:
        span.name = "invoke_agent bench"
        attributes["gen_ai.operation.name"] = "invoke_agent"
    else:
        span.parent_span_id = _id(trace * per_trace)
        if place % 2:
            model = source.choice(_MODELS)
            span.name = f"chat {model}"
            attributes |= {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": model,
                "gen_ai.usage.input_tokens": source.randrange(100, 100_000),
                "gen_ai.usage.output_tokens": source.randrange(10, 4_000),
            }
        else:
            span.name = source.choice(_TOOLS)
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": span.name}
    if source.random() < 0.01:
        span.status.code = 2
    _set(span, attributes)


def _set(target: Any, attributes: dict[str, Any]) -> None:
    for key, value in attributes.items():
        pair = target.attributes.add()
        pair.key = key
        if isinstance(value, str):
            pair.value.string_value = value
        elif isinstance(value, int):
            pair.value.int_value = value
        else:
            pair.value.double_value = value


def _filter(field: str, operator: str, value: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


INDEXED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("status eq error", _filter("status", "eq", "error")),
    ("data.type eq GENERATION", _filter("data.type", "eq", "GENERATION")),
    ("data.model contains haiku", _filter("data.model", "contains", "haiku")),
    ("name eq Bash", _filter("name", "eq", "Bash")),
    ("data.inputTokens gt 99,900", _filter("data.inputTokens", "gt", 99_900)),
    ("data.inputTokens gt 1,000", _filter("data.inputTokens", "gt", 1_000)),
    ("data.outputTokens lte 12", _filter("data.outputTokens", "lte", 12)),
    ("data.totalCost gt 0.5", _filter("data.totalCost", "gt", 0.5)),
    ("startTime gte (the last percent)", _filter("startTime", "gte", 0)),
    ("parentId eq", _filter("parentId", "eq", _id(0).hex())),
    ("id eq", _filter("id", "eq", _id(4242).hex())),
    ("status ne success", _filter("status", "ne", "success")),
)
ARBITRARY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("data.metadata.user_id eq", _filter("data.metadata.user_id", "eq", "user-12345")),
    ("data.metadata.user_id contains", _filter("data.metadata.user_id", "contains", "R-4999")),
    ("data.attributes.request.id eq (one)", _filter("data.attributes.request.id", "eq", "0123456789abcdef")),
    ("data.metadata.score gt 0.9999", _filter("data.metadata.score", "gt", 0.9999)),
    ("data.metadata.region eq eu", _filter("data.metadata.region", "eq", "eu")),
    ("data.metadata.retries gte 3", _filter("data.metadata.retries", "gte", 3)),
    ("data.metadata.nothing eq", _filter("data.metadata.nothing", "eq", "x")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--home", type=Path, help="where to keep it; what is there already is used")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        if not (home / "traces.db").exists():
            _receive(home, options.spans)
        with Library(home, agents_home=home / "none", environ={}) as library:
            _run(library, options.spans)


def _run(library: Library, count: int) -> None:
    receiver = Receiver(library.archive, library.home, "off")
    tools = library.toolset("traces")
    size = (library.home / "traces.db").stat().st_size
    print(f"traces.db: {size / 1e6:,.0f} MB")
    last = _START_NS // 1_000_000 + count * 50
    for title, queries in (("indexed", INDEXED), ("arbitrary", ARBITRARY)):
        medians = []
        for name, query in queries:
            given = query if query["value"] != 0 else {**query, "value": last - count // 2}
            median, total = _measure(tools, "search_spans", {"filters": [given]})
            medians.append(median)
            print(f"  {name:40} {median:8.1f} ms   total {total}")
        print(f"{title}: P50 {statistics.median(medians):.1f} ms, slowest {max(medians):.1f} ms")
    for body in bodies(10_000, per_trace=10_000, seed=1):
        request = ExportTraceServiceRequest.FromString(body)
        for span in request.resource_spans[0].scope_spans[0].spans:
            span.trace_id = b"\xff" * 16
        receiver.take_spans(request.SerializeToString(), "protobuf")
    median, _ = _measure(tools, "get_trace", {"traceId": "ff" * 16})
    print(f"get_trace of 10,000 spans: {median:.0f} ms")


def _receive(home: Path, count: int) -> None:
    took = 0.0
    with server(home) as url, httpx.Client(base_url=url.replace("ws", "http", 1), timeout=60) as client:
        for number, body in enumerate(bodies(count)):
            started = time.perf_counter()
            reply = client.post("/v1/traces", content=body, headers={"content-type": "application/x-protobuf"})
            took += time.perf_counter() - started
            reply.raise_for_status()
            done = min((number + 1) * _PER_BODY, count)
            if done % 100_000 == 0:
                print(f"  {done:>9,} spans received, {done / took:,.0f} a second")
    print(f"received {count:,} spans: {count / took:,.0f} a second")


def _measure(tools: Toolset, tool: str, arguments: dict[str, Any], times: int = 5) -> tuple[float, Any]:
    taken, answer = [], dict[str, Any]()
    for _ in range(times):
        started = time.perf_counter()
        answer = _call(tools, tool, arguments)
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken), answer.get("total", "more")


def _call(tools: Toolset, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    tool = next(tool for tool in tools.tools if tool.name == name)
    reply = tool.handler(arguments)
    if reply.is_error:
        raise SystemExit(reply.text)
    return reply.data


if __name__ == "__main__":
    main()

"""Nothing of a span is lost: what was sent is in the answer of get_trace, and is found by filters."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from backstory.archive import open_engine
from backstory.config import Settings
from backstory.ingest.telemetry import Receiver
from backstory.library import Library
from backstory.model import turn_id
from backstory.sources.otel.attributes import METADATA, SLOTS
from backstory.sources.otel.otlp import Encoding
from tests.examples import examples
from tests.traces_world import START, Call, caller

OWN = ("project", "source", "sessionId", "exitCode", "stopReason", "cacheReadTokens", "totalTokens", "statusMessage")
FIELDS = ("events", "links", "kind", "otel.kind", "otel.links", "otel.events", "otel.scope.name", "service.name")
WHERE_TAKEN = {
    "model": "data.model",
    "input_tokens": "data.inputTokens",
    "output_tokens": "data.outputTokens",
    "cost": "data.totalCost",
    "stop_reason": "data.metadata.stopReason",
    "cache_read": "data.metadata.cacheReadTokens",
    "cache_write": "data.metadata.cacheWriteTokens",
    "cache_write_1h": "data.metadata.cacheWrite1hTokens",
    "reasoning": "data.metadata.reasoningTokens",
}


class World:
    def __init__(self, folder: Path) -> None:
        self.archive = open_engine("local", folder)
        self.receiver = Receiver(self.archive, folder, "off")
        self.call: Call = caller(self.archive, Settings(redact="off"))
        self.numbers = itertools.count(1)

    def data(self, span: dict[str, Any], encoding: Encoding) -> tuple[str, dict[str, Any]]:
        """Send a span; gives its trace's id and what get_trace says of it."""
        trace = f"{next(self.numbers):032x}"
        body = as_json(span, trace) if encoding == "json" else as_protobuf(span, trace)
        taken = self.receiver.take_spans(body, encoding)
        assert (taken.rejected, taken.message) == (0, "")
        (found,) = self.call("get_trace", traceId=trace)["trace"]["spans"]
        return trace, found

    def finds(self, trace: str, field: str, value: Any, operator: str = "eq") -> bool:
        filters = [{"field": field, "operator": operator, "value": value}]
        answer = self.call("search_spans", traceId=trace, filters=filters)
        return bool(answer.get("total") == 1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("lossless"))
    yield world
    world.archive.close()


# Spans in both encodings


def any_value(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [any_value(item) for item in value]}}
    return {"kvlistValue": {"values": pairs(value)}}


def pairs(table: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in table.items()]


def as_json(span: dict[str, Any], trace: str) -> bytes:
    own = {
        "traceId": trace, "spanId": "00" * 7 + "01", "name": span["name"], "startTimeUnixNano": str(START * 1_000_000),
        "endTimeUnixNano": str((START + 5) * 1_000_000), "kind": span["kind"], "traceState": span["state"],
        "attributes": pairs(span["attributes"]), "status": {"code": span["code"], "message": span["message"]},
        "events": [
            {"name": name, "timeUnixNano": str(START * 1_000_000), "attributes": pairs(table)}
            for name, table in span["events"]
        ],
        "links": [
            {"traceId": link, "spanId": "ab" * 8, "attributes": pairs(table)} for link, table in span["links"]
        ],
    }  # fmt: skip
    scope = {"scope": {"name": span["scope"], "version": span["version"]}, "spans": [own]}
    body = {"resourceSpans": [{"resource": {"attributes": pairs(span["resource"])}, "scopeSpans": [scope]}]}
    return json.dumps(body).encode()


def as_protobuf(span: dict[str, Any], trace: str) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    put(resource.resource.attributes, span["resource"])
    scope = resource.scope_spans.add()
    scope.scope.name, scope.scope.version = span["scope"], span["version"]
    own = scope.spans.add()
    own.trace_id, own.span_id, own.name = bytes.fromhex(trace), bytes(7) + b"\1", span["name"]
    own.start_time_unix_nano, own.end_time_unix_nano = START * 1_000_000, (START + 5) * 1_000_000
    own.kind, own.trace_state = span["kind"], span["state"]
    own.status.code, own.status.message = span["code"], span["message"]
    put(own.attributes, span["attributes"])
    for name, table in span["events"]:
        event = own.events.add()
        event.name, event.time_unix_nano = name, START * 1_000_000
        put(event.attributes, table)
    for target, table in span["links"]:
        link = own.links.add()
        link.trace_id, link.span_id = bytes.fromhex(target), b"\xab" * 8
        put(link.attributes, table)
    return bytes(request.SerializeToString())


def put(target: Any, table: dict[str, Any]) -> None:
    for key, value in table.items():
        pair = target.add()
        pair.key = key
        put_value(pair.value, value)


def put_value(target: Any, value: Any) -> None:
    match value:
        case None:
            pass
        case bool():
            target.bool_value = value
        case int():
            target.int_value = value
        case float():
            target.double_value = value
        case str():
            target.string_value = value
        case list():
            target.array_value.SetInParent()
            for item in value:
                put_value(target.array_value.values.add(), item)
        case _:
            target.kvlist_value.SetInParent()
            put(target.kvlist_value.values, value)


# Any span

texts = st.text("abcXYZ äß€😀0123456789{}[]\"'.-", max_size=12)
numbers = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False, allow_infinity=False))
scalars = st.one_of(texts, numbers, st.booleans(), st.integers(0, 2000))
keys = st.text("abc.XY", min_size=1, max_size=5)
values = st.recursive(
    st.one_of(st.none(), scalars),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=6,
)
names = st.one_of(
    st.sampled_from(sorted(SLOTS)),
    st.sampled_from([prefix + name for prefix in METADATA for name in (*OWN, "team", "a.b")]),
    st.sampled_from([*OWN, *FIELDS, "metadata", "metadata.", "gen_ai.operation.name"]),
    st.sampled_from([f"{prefix}{number}.{part}" for prefix in ("gen_ai.prompt.", "llm.output_messages.")
                     for number in (0, 1) for part in ("role", "content", "content.x")]),
    keys,
)  # fmt: skip
tables = st.dictionaries(names, values, max_size=8)
spans = st.fixed_dictionaries(
    {
        "name": st.text("abc ", max_size=5),
        "kind": st.integers(0, 5),
        "state": st.sampled_from(["", "vendor=1"]),
        "code": st.integers(0, 2),
        "message": st.sampled_from(["", "it broke"]),
        "attributes": tables,
        "resource": st.dictionaries(
            st.sampled_from(["service.name", "host.name", "os.type", "process.pid", "telemetry.sdk.name", "project"]),
            scalars,
            max_size=3,
        ),
        "events": st.lists(
            st.tuples(
                st.sampled_from(["retry", "gen_ai.user.message", "gen_ai.choice", "tool.output", "exception"]),
                st.dictionaries(st.sampled_from(["content", "output", "message", "x"]), scalars, max_size=2),
            ),
            max_size=3,
        ),
        "links": st.lists(st.tuples(st.sampled_from(["cd" * 16, "ef" * 16]), tables), max_size=2),
        "scope": st.sampled_from(["", "my.scope"]),
        "version": st.sampled_from(["", "1.2"]),
    }
)


def decoded(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    except ValueError:
        return value


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same kind: True is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True) or (
        isinstance(one, float) and type(other) in (int, float) and one == other
    )


def holds(tree: Any, value: Any) -> bool:
    if same(tree, value):
        return True
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return any(holds(item, value) for item in inner)


def place_of(data: dict[str, Any], name: str, value: Any) -> str | None:
    """Where an attribute is shown: the field to ask for it; "" where no field can be asked for."""
    metadata, attributes = data.get("metadata", {}), data.get("attributes", {})
    for own in (name, f"otel.{name}", f"otel.otel.{name}"):
        if own in attributes and same(attributes[own], value):
            return f"data.attributes.{own}"
    for prefix in METADATA:
        suffix = name.removeprefix(prefix)
        if name.startswith(prefix) and suffix in metadata and same(metadata[suffix], value):
            return f"data.metadata.{suffix}"
    slot = SLOTS[name][0] if name in SLOTS else ""
    if slot in WHERE_TAKEN:
        _, _, path = WHERE_TAKEN[slot].partition(".")
        shown = metadata.get(path[9:]) if path.startswith("metadata.") else data.get(path)
        if same(shown, value) or (slot in ("cost", "stop_reason") and value in (shown, [shown])):
            return WHERE_TAKEN[slot]
    if name == "metadata" and isinstance(decoded(value), dict):
        return "" if all(same(metadata.get(key), item) for key, item in decoded(value).items()) else None
    texts = [data.get("input"), data.get("output"), data.get("toolCalls")]
    return "" if any(holds(text, value) or holds(text, decoded(value)) for text in texts) else None


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
class TestLossless:
    """Any span, with names of every convention, of our own facts and of the protocol's fields."""

    @given(spans)
    @settings(max_examples=examples(2))
    def test_any_span(self, world: World, encoding: Encoding, span: dict[str, Any]) -> None:
        trace, found = world.data(span, encoding)
        data = found["data"]
        sent = {**span["resource"], **span["attributes"]}
        for name, value in [*span["attributes"].items(), *span["resource"].items()]:
            place = place_of(data, name, value)
            assert place is not None, (name, value, data)
            if place and type(value) in (str, int, float, bool):
                assert world.finds(trace, place, value), (place, value, data)
        attributes = data.get("attributes", {})
        shown = {"otel.kind": span["kind"], "otel.trace_state": span["state"], "otel.links": span["links"]}
        shown |= {"otel.scope.name": span["scope"], "otel.scope.version": span["version"], "events": span["events"]}
        for name, value in shown.items():
            own = [key for key in attributes if key.removeprefix("otel.") == name.removeprefix("otel.") or key == name]
            assert not value or own, (name, attributes)
        for event, table in span["events"]:
            assert holds(attributes, event)
            for value in table.values():
                assert holds(data, value) or holds(data, decoded(value)), (event, value, data)
        for link, table in span["links"]:
            assert holds(attributes, link)
            assert not table or holds(attributes, table)
            field = "data.attributes.otel.links" if "otel.links" not in sent else "data.attributes.otel.otel.links"
            assert world.finds(trace, field, link, "contains")
        if span["message"]:
            assert holds(data["metadata"], "it broke")

    def test_the_end_of_a_name(self, world: World, encoding: Encoding) -> None:
        """A name that is too long to sort by is an attribute as a whole."""
        _, found = world.data({**EMPTY, "name": "n" * 5000}, encoding)
        assert found["name"] == "n" * 999 + "…"
        assert found["data"]["attributes"]["otel.name"] == "n" * 5000

    def test_a_name_that_is_cut_within_a_secret(self, world: World, encoding: Encoding) -> None:
        """Egress recognises what is left of it."""
        token = "gh" + "p_" + "a1B2" * 9
        trace, _ = world.data({**EMPTY, "name": f"{'n' * 980} {token}"}, encoding)
        (found,) = caller(world.archive, Settings())("get_trace", traceId=trace)["trace"]["spans"]
        assert found["name"] == f"{'n' * 980} [redacted:cut-token]…"

    @pytest.mark.parametrize("depth", [9, 25])
    def test_any_depth(self, world: World, encoding: Encoding, depth: int) -> None:
        value: Any = "at the bottom"
        for _ in range(depth):
            value = {"x": value}
        trace, found = world.data({**EMPTY, "attributes": {"deep": value, "metadata.deep": value}}, encoding)
        assert found["data"]["attributes"]["deep"] == value
        path = ".x" * depth
        for field in (f"data.attributes.deep{path}", f"data.metadata.deep{path}"):
            assert world.finds(trace, field, "at the bottom")
            assert not world.finds(trace, field + ".x", "at the bottom")

    def test_numbers_that_json_cannot_say(self, world: World, encoding: Encoding) -> None:
        if encoding == "json":
            span = {**EMPTY, "attributes": {}}
            body = as_json(span, "77" * 16).replace(
                b'"attributes": [], "status"',
                b'"attributes": [{"key": "a", "value": {"doubleValue": "NaN"}}, {"key": "b", "value": {"doubleValue": '
                b'"-Infinity"}}], "status"',
            )
            world.receiver.take_spans(body, encoding)
            (found,) = world.call("get_trace", traceId="77" * 16)["trace"]["spans"]
        else:
            _, found = world.data({**EMPTY, "attributes": {"a": float("nan"), "b": float("-inf")}}, encoding)
        assert found["data"]["attributes"] == {"a": "NaN", "b": "-Infinity"}


EMPTY: dict[str, Any] = {
    "name": "x", "kind": 0, "state": "", "code": 0, "message": "", "attributes": {}, "resource": {}, "events": [],
    "links": [], "scope": "", "version": "",
}  # fmt: skip


class TestMetadata:
    """Metadata may be named like our own facts; what was sent goes before them."""

    SENT: ClassVar = {"project": "apollo", "source": "crm", "sessionId": "mine", "exitCode": 7, "stopReason": "tired"}

    def test_names_of_ours(self, world: World) -> None:
        own = {"session.id": "s-1", "cwd": "/home/ada", "gen_ai.response.finish_reasons": ["stop"]}
        custom = {f"langfuse.trace.metadata.{name}": value for name, value in self.SENT.items()}
        trace, found = world.data(
            {**EMPTY, "attributes": {**own, **custom}, "resource": {"service.name": "svc"}}, "json"
        )
        metadata = found["data"]["metadata"]
        assert {name: metadata[name] for name in self.SENT} == self.SENT
        assert found["data"]["attributes"]["gen_ai.response.finish_reasons"] == ["stop"]
        other, plain = world.data({**EMPTY, "attributes": own, "resource": {"service.name": "svc"}}, "json")
        assert plain["data"]["metadata"]["project"] == "/home/ada"
        for name, value in self.SENT.items():
            assert world.finds(trace, f"data.metadata.{name}", value)
            assert not world.finds(other, f"data.metadata.{name}", value)
            assert world.finds(other, f"data.metadata.{name}", value, "ne")
            assert not world.finds(trace, f"data.metadata.{name}", value, "ne")
        # Ours yields where something was sent, and only there.
        assert world.finds(other, "data.metadata.project", "/home/ada")
        assert not world.finds(trace, "data.metadata.project", "/home/ada")
        assert world.finds(other, "data.metadata.source", "svc")

    def test_sorted_by_what_was_sent(self, world: World) -> None:
        traces = [
            world.data({**EMPTY, "attributes": {"metadata.project": name, "cwd": "/same", "batch": 7}}, "protobuf")[0]
            for name in ("c", "a", "b")
        ]
        filters = [{"field": "data.attributes.batch", "operator": "eq", "value": 7}]
        page = world.call("search_spans", filters=filters, sortBy="data.metadata.project", sortOrder="asc")
        assert [item["traceId"] for item in page["items"]] == [traces[1], traces[2], traces[0]]

    def test_a_fact_that_was_sent_no_more(self, world: World) -> None:
        """A span that is sent again without its own `project` shows ours."""
        trace = "99" * 16
        for table in ({"metadata.project": "apollo", "cwd": "/home/ada"}, {"cwd": "/home/ada"}):
            world.receiver.take_spans(as_json({**EMPTY, "attributes": table}, trace), "json")
        assert world.finds(trace, "data.metadata.project", "/home/ada")
        assert not world.finds(trace, "data.metadata.project", "apollo")


class TestPaths:
    def test_too_many_parts(self, world: World) -> None:
        """Refused at once, whichever tool is asked."""
        field = "data.metadata" + ".a" * 3000
        given = [{"field": field, "operator": "eq", "value": "x"}]
        for tool in ("search_spans", "search_traces"):
            answer = world.call(tool, filters=given)
            assert answer["code"] == "INVALID_QUERY"
            assert len(json.dumps(answer)) < 1000
        assert world.call("search_spans", sortBy=field)["code"] == "INVALID_QUERY"


class TestExcerpts:
    """search_spans bounds everything of a span that has no end, and says so."""

    def test_long_attributes(self, world: World) -> None:
        long = {"text": "x" * 5000, "list": ["y" * 600, "z" * 600], "short": "s", "metadata.note": "n" * 2000}
        trace, found = world.data({**EMPTY, "attributes": long}, "json")
        assert found["data"]["attributes"]["text"] == "x" * 5000
        (item,) = world.call("search_spans", traceId=trace)["items"]
        data = item["data"]
        assert data["attributes"]["text"] == "x" * 1000 + "…"
        assert data["attributes"]["list"].startswith('["yyy')
        assert data["attributes"]["short"] == "s"
        assert data["metadata"]["note"] == "n" * 1000 + "…"
        assert data["metadata"]["truncated"] is True

    def test_many_attributes(self, world: World) -> None:
        many = {f"name{number}": "x" * 900 for number in range(500)}
        calls = json.dumps([{"name": "t", "arguments": "y" * 5000}] * 300)
        trace, found = world.data({**EMPTY, "attributes": {**many, "ai.response.toolCalls": calls}}, "json")
        assert len(found["data"]["attributes"]) == 500
        (item,) = world.call("search_spans", traceId=trace)["items"]
        assert len(json.dumps(item)) < 50_000
        assert item["data"]["metadata"]["truncated"] is True

    def test_short_ones_are_whole(self, world: World) -> None:
        trace, found = world.data({**EMPTY, "attributes": {"a": {"b": [1, 2]}, "c": None}}, "json")
        (item,) = world.call("search_spans", traceId=trace)["items"]
        assert item["data"]["attributes"] == found["data"]["attributes"] == {"a": {"b": [1, 2]}, "c": None}
        assert "truncated" not in item["data"].get("metadata", {})


class TestRedaction:
    """With `redact = "ingest"` no file of the home has a secret that was received."""

    def test_at_ingest(self, tmp_path: Path) -> None:
        secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        said = [{"role": "user", "content": f"use {secret}"}]
        call = {"type": "tool_call", "id": "c1", "name": "Bash", "arguments": {"command": f"curl -u {secret}"}}
        answered = [{"role": "assistant", "parts": [call]}]
        table = {
            "session.id": "demo",
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(said),
            "gen_ai.output.messages": json.dumps(answered),
        }
        span = {
            "traceId": "ab" * 16, "spanId": "cd" * 8, "name": f"chat {secret}", "attributes": pairs(table),
            "startTimeUnixNano": str(START * 1_000_000), "endTimeUnixNano": str((START + 5) * 1_000_000),
        }  # fmt: skip
        body = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
        archive = open_engine("local", tmp_path)
        Receiver(archive, tmp_path, "ingest").take_spans(json.dumps(body).encode(), "json")
        archive.close()
        (lines,) = (tmp_path / "otel").iterdir()
        assert lines.read_text().count("[redacted:") == 2
        for path in tmp_path.rglob("*"):
            assert path.is_dir() or secret.encode() not in path.read_bytes()


class TestToolResponses:
    """A response that names its call by id only has the name of the tool and the model that called it."""

    @pytest.mark.parametrize("syncs", [1, 2])
    def test_named_by_their_calls(self, tmp_path: Path, syncs: int) -> None:
        library = Library(tmp_path / "home", agents_home=tmp_path / "agents", environ={})
        receiver = Receiver(library.archive, library.home, "egress")
        prompt = {"role": "user", "parts": [{"type": "text", "content": "count the flumphs"}]}
        call = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "stock", "arguments": {}}]}
        response = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "three"}]}
        answer = {"role": "assistant", "parts": [{"type": "text", "content": "There are three."}]}
        for number, (model, told, said) in enumerate(
            [("gpt-5", [prompt], [call]), ("gpt-5-mini", [prompt, call, response], [answer])]
        ):
            facts = {
                "session.id": "shop",
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": model,
                "gen_ai.input.messages": json.dumps(told),
                "gen_ai.output.messages": json.dumps(said),
            }
            start = (START + number * 1000) * 1_000_000
            span = {"traceId": "5d" * 16, "spanId": f"{number + 1:016x}", "startTimeUnixNano": start}
            span |= {"endTimeUnixNano": start + 1_000_000, "attributes": pairs(facts)}
            receiver.take_spans(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode(), "json")
            if number + 1 >= 3 - syncs:
                library.sync()
        events = library.call("open", {"id": turn_id("otel/shop", 1)})["data"]["events"]
        assert [(event["type"], event["tool_name"]) for event in events] == [
            ("user_input", None),
            ("tool_call", "stock"),
            ("tool_response", "stock"),
            ("assistant_response", None),
        ]
        opened = library.call("open", {"id": events[2]["id"]})["data"]
        assert (opened["event"]["originating_model"], opened["content"]["tool_name"]) == ("gpt-5", "stock")
        library.close()

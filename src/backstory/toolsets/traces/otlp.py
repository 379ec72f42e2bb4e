"""OTLP bodies, protobuf or JSON, as plain spans and log records."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

__all__ = [
    "Encoding",
    "LogRecord",
    "RawSpan",
    "Undecodable",
    "decode_logs",
    "decode_spans",
    "empty_reply",
    "partial_reply",
]

Encoding = Literal["protobuf", "json"]
Attributes = dict[str, Any]

_MAX_DEPTH = 16
_PLAIN = frozenset(("string_value", "bool_value", "int_value", "double_value"))
# Milliseconds up to the year 9999: what is beyond was never a time.
_MAX_MS = 253_402_300_799_000


class Undecodable(ValueError):
    """Not an OTLP body; the message says why."""


class RawSpan(Struct):
    """A span as it was sent. Ids are bytes of any length here: whoever takes them checks."""

    resource: Attributes
    scope: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start: int
    end: int
    attributes: Attributes
    events: list[tuple[str, int, Attributes]]
    failed: bool
    message: str


class LogRecord(Struct):
    resource: Attributes
    scope: str
    trace_id: bytes
    span_id: bytes
    time: int
    severity: int
    event: str
    body: Any
    attributes: Attributes


def decode_spans(body: bytes, encoding: Encoding) -> list[RawSpan]:
    return list(_spans_of_protobuf(body) if encoding == "protobuf" else _spans_of_json(body))


def decode_logs(body: bytes, encoding: Encoding) -> list[LogRecord]:
    return list(_logs_of_protobuf(body) if encoding == "protobuf" else _logs_of_json(body))


def empty_reply(encoding: Encoding) -> bytes:
    return b"" if encoding == "protobuf" else b"{}"


def partial_reply(encoding: Encoding, kind: Literal["spans", "logs"], rejected: int, message: str) -> bytes:
    """The reply that says some were not taken, and why."""
    if encoding == "json":
        name = "rejectedSpans" if kind == "spans" else "rejectedLogRecords"
        # int64 is a string in the JSON of protobuf.
        return msgspec.json.encode({"partialSuccess": {name: str(rejected), "errorMessage": message}})
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    if kind == "spans":
        spans = ExportTraceServiceResponse()
        spans.partial_success.rejected_spans = rejected
        spans.partial_success.error_message = message
        return bytes(spans.SerializeToString())
    logs = ExportLogsServiceResponse()
    logs.partial_success.rejected_log_records = rejected
    logs.partial_success.error_message = message
    return bytes(logs.SerializeToString())


# Protobuf


def _parse(message: Any, body: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        message.ParseFromString(body)
    except (DecodeError, ValueError, RecursionError) as error:
        raise Undecodable(f"the body is not the protobuf of an export request: {error}") from None
    return message


def _spans_of_protobuf(body: bytes) -> Iterator[RawSpan]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for resource_spans in _parse(ExportTraceServiceRequest(), body).resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope.name
            for span in scope_spans.spans:
                yield RawSpan(
                    resource,
                    scope,
                    span.trace_id,
                    span.span_id,
                    span.parent_span_id,
                    span.name,
                    _milliseconds(span.start_time_unix_nano),
                    _milliseconds(span.end_time_unix_nano),
                    _attributes(span.attributes),
                    [
                        (event.name, _milliseconds(event.time_unix_nano), _attributes(event.attributes))
                        for event in span.events
                    ],
                    span.status.code == 2,
                    span.status.message,
                )


def _logs_of_protobuf(body: bytes) -> Iterator[LogRecord]:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    for resource_logs in _parse(ExportLogsServiceRequest(), body).resource_logs:
        resource = _attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                yield LogRecord(
                    resource,
                    scope_logs.scope.name,
                    record.trace_id,
                    record.span_id,
                    _milliseconds(record.time_unix_nano or record.observed_time_unix_nano),
                    record.severity_number,
                    record.event_name,
                    _value(record.body),
                    _attributes(record.attributes),
                )


def _attributes(pairs: Any) -> Attributes:
    # There are many, most are texts or numbers, and asking for one is as fast as asking which it is.
    return {
        pair.key: (value := pair.value).string_value or value.int_value or value.double_value or _value(value)
        for pair in pairs
    }


def _value(value: Any, depth: int = _MAX_DEPTH) -> Any:
    kind = value.WhichOneof("value")
    if kind in _PLAIN:
        return getattr(value, kind)
    if kind is None or not depth:
        return None
    if kind == "array_value":
        return [_value(item, depth - 1) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _value(pair.value, depth - 1) for pair in value.kvlist_value.values}
    return base64.b64encode(value.bytes_value).decode("ascii") if kind == "bytes_value" else None


# JSON: ids are hex, int64 is a string or a number, unknown fields are passed over.


def _load(body: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        data = _mended(body)
        if data is None:
            raise Undecodable(f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise Undecodable("the body is not a JSON object")
    return data


def _mended(body: bytes) -> Any:
    """JavaScript cuts texts in the middle of a character, to half a surrogate pair: no reason to lose the rest."""
    if b"\\u" not in body:
        return None
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False, allow_nan=False)
        return msgspec.json.decode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError):
        return None


def _spans_of_json(body: bytes) -> Iterator[RawSpan]:
    for resource_spans in _list(_load(body), "resourceSpans"):
        resource = _pairs(_dict(resource_spans, "resource"), "attributes")
        for scope_spans in _list(resource_spans, "scopeSpans"):
            scope = _text(_dict(scope_spans, "scope"), "name")
            for span in _list(scope_spans, "spans"):
                status = _dict(span, "status")
                yield RawSpan(
                    resource,
                    scope,
                    _hex(span, "traceId"),
                    _hex(span, "spanId"),
                    _hex(span, "parentSpanId"),
                    _text(span, "name"),
                    _milliseconds(_integer(span, "startTimeUnixNano")),
                    _milliseconds(_integer(span, "endTimeUnixNano")),
                    _pairs(span, "attributes"),
                    [
                        (
                            _text(event, "name"),
                            _milliseconds(_integer(event, "timeUnixNano")),
                            _pairs(event, "attributes"),
                        )
                        for event in _list(span, "events")
                    ],
                    status.get("code") in (2, "2", "STATUS_CODE_ERROR"),
                    _text(status, "message"),
                )


def _logs_of_json(body: bytes) -> Iterator[LogRecord]:
    for resource_logs in _list(_load(body), "resourceLogs"):
        resource = _pairs(_dict(resource_logs, "resource"), "attributes")
        for scope_logs in _list(resource_logs, "scopeLogs"):
            scope = _text(_dict(scope_logs, "scope"), "name")
            for record in _list(scope_logs, "logRecords"):
                time = _integer(record, "timeUnixNano") or _integer(record, "observedTimeUnixNano")
                yield LogRecord(
                    resource,
                    scope,
                    _hex(record, "traceId"),
                    _hex(record, "spanId"),
                    _milliseconds(time),
                    _integer(record, "severityNumber"),
                    _text(record, "eventName"),
                    _json_value(record.get("body")),
                    _pairs(record, "attributes"),
                )


def _dict(table: dict[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name) or {}
    if not isinstance(value, dict):
        raise Undecodable(f"{name} is not an object")
    return value


def _list(table: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = table.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Undecodable(f"{name} is not a list of objects")
    return value


def _text(table: dict[str, Any], name: str) -> str:
    value = table.get(name) or ""
    if not isinstance(value, str):
        raise Undecodable(f"{name} is not a text")
    return value


def _integer(table: dict[str, Any], name: str) -> int:
    value = table.get(name) or 0
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise Undecodable(f"{name} is not a whole number") from None


def _hex(table: dict[str, Any], name: str) -> bytes:
    try:
        return bytes.fromhex(_text(table, name))
    except ValueError:
        raise Undecodable(f"{name} is not hexadecimal") from None


def _pairs(table: dict[str, Any], name: str) -> Attributes:
    return {_text(pair, "key"): _json_value(pair.get("value")) for pair in _list(table, name)}


def _json_value(value: Any, depth: int = _MAX_DEPTH) -> Any:
    if not isinstance(value, dict) or not depth:
        return None
    for kind, inner in value.items():
        match kind:
            case "stringValue" | "bytesValue":
                return inner if isinstance(inner, str) else None
            case "boolValue":
                return inner if isinstance(inner, bool) else None
            case "intValue":
                return _integer(value, kind)
            case "doubleValue":
                return float(inner) if isinstance(inner, int | float) else None
            case "arrayValue":
                return [_json_value(item, depth - 1) for item in _list(_dict(value, kind), "values")]
            case "kvlistValue":
                pairs = _list(_dict(value, kind), "values")
                return {_text(pair, "key"): _json_value(pair.get("value"), depth - 1) for pair in pairs}
    return None


def _milliseconds(nanoseconds: int) -> int:
    return min(max(nanoseconds, 0) // 1_000_000, _MAX_MS)

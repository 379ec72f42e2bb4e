"""OTLP bodies, in protobuf and in JSON: decoding, and the replies to them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from .records import (
    KINDS,
    MAX_DEPTH,
    Attributes,
    LogRecord,
    RawEvent,
    RawSpan,
    Undecodable,
    finite,
    link_fields,
    log_fields,
    milliseconds,
    sender_fields,
    span_fields,
)

Encoding = Literal["protobuf", "json"]

_PLAIN = frozenset(("string_value", "bool_value", "int_value"))
_SPAN_KINDS = {f"SPAN_KIND_{name}": number for number, name in enumerate(KINDS)}
_STATUS_CODES = {"STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}


def decode_spans(body: bytes, encoding: Encoding) -> list[RawSpan]:
    return list(_read_spans(body) if encoding == "protobuf" else _read_json_spans(body))


def decode_logs(body: bytes, encoding: Encoding) -> list[LogRecord]:
    return list(_read_logs(body) if encoding == "protobuf" else _read_json_logs(body))


def empty_reply(encoding: Encoding) -> bytes:
    return b"" if encoding == "protobuf" else b"{}"


def partial_reply(encoding: Encoding, kind: Literal["spans", "logs"], rejected: int, message: str) -> bytes:
    """The reply with the number of rejected records, and the reason."""
    if encoding == "json":
        name = "rejectedSpans" if kind == "spans" else "rejectedLogRecords"
        # int64 is a string in the JSON of protobuf.
        return msgspec.json.encode({"partialSuccess": {name: str(rejected), "errorMessage": message}})
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    # The reply for logs has the same fields under the same numbers.
    reply = ExportTraceServiceResponse()
    reply.partial_success.rejected_spans = rejected
    reply.partial_success.error_message = message
    return bytes(reply.SerializeToString())


# Protobuf


def _parse(message: Any, body: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        message.ParseFromString(body)
    except (DecodeError, ValueError, RecursionError) as error:
        raise Undecodable(f"the body is not the protobuf of an export request: {error}") from None
    return message


def _read_spans(body: bytes) -> Iterator[RawSpan]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for resource_spans in _parse(ExportTraceServiceRequest(), body).resource_spans:
        for scope_spans in resource_spans.scope_spans:
            sender, service = _sender(resource_spans, scope_spans)
            for span in scope_spans.spans:
                status = span.status
                yield RawSpan(
                    sender,
                    service,
                    span.trace_id,
                    span.span_id,
                    span.parent_span_id,
                    span.name,
                    milliseconds(span.start_time_unix_nano),
                    milliseconds(span.end_time_unix_nano),
                    _attributes(span.attributes),
                    [_event(event) for event in span.events],
                    status.code == 2,
                    status.message,
                    span_fields(
                        span.kind,
                        status.code,
                        span.trace_state,
                        span.flags,
                        [_link(link) for link in span.links],
                        (span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count),
                    ),
                )


def _event(event: Any) -> RawEvent:
    dropped = event.dropped_attributes_count
    return RawEvent(
        event.name,
        milliseconds(event.time_unix_nano),
        _attributes(event.attributes),
        {"droppedAttributesCount": dropped} if dropped else {},
    )


def _link(link: Any) -> Attributes:
    return link_fields(
        link.trace_id.hex(),
        link.span_id.hex(),
        link.trace_state,
        _attributes(link.attributes),
        link.flags,
        link.dropped_attributes_count,
    )


def _read_logs(body: bytes) -> Iterator[LogRecord]:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    for resource_logs in _parse(ExportLogsServiceRequest(), body).resource_logs:
        for scope_logs in resource_logs.scope_logs:
            sender, service = _sender(resource_logs, scope_logs)
            for record in scope_logs.log_records:
                yield LogRecord(
                    sender,
                    service,
                    record.trace_id,
                    record.span_id,
                    milliseconds(record.time_unix_nano or record.observed_time_unix_nano),
                    record.severity_number,
                    record.event_name,
                    _value(record.body),
                    _attributes(record.attributes),
                    log_fields(
                        record.severity_number, record.severity_text, record.flags, record.dropped_attributes_count
                    ),
                )


def _sender(resource_part: Any, scope_part: Any) -> tuple[Attributes, str | None]:
    resource, scope = resource_part.resource, scope_part.scope
    return sender_fields(
        _attributes(resource.attributes),
        (resource.dropped_attributes_count, resource_part.schema_url),
        _attributes(scope.attributes),
        (scope.name, scope.version, scope.dropped_attributes_count, scope_part.schema_url),
    )


def _attributes(pairs: Any) -> Attributes:
    # There are many, most are texts or numbers, and asking for one is as fast as asking which it is.
    return {
        pair.key: (value := pair.value).string_value or value.int_value or value.double_value or _value(value)
        for pair in pairs
    }


def _value(value: Any, depth: int = MAX_DEPTH) -> Any:
    kind = value.WhichOneof("value")
    if kind in _PLAIN:
        return getattr(value, kind)
    if kind == "double_value":
        return finite(value.double_value)
    if kind == "array_value":
        return [_value(item, depth - 1) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _value(pair.value, depth - 1) for pair in value.kvlist_value.values}
    return base64.b64encode(value.bytes_value).decode("ascii") if kind == "bytes_value" else None


# JSON: ids are hex, int64 is a string or a number, unknown fields are passed over


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
    """Decode a body with lone surrogates, which JavaScript leaves where it cuts a text; None if it is not JSON."""
    if b"\\u" not in body:
        return None
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False, allow_nan=False)
        return msgspec.json.decode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError):
        return None


def _read_json_spans(body: bytes) -> Iterator[RawSpan]:
    for resource_spans in _list(_load(body), "resourceSpans"):
        for scope_spans in _list(resource_spans, "scopeSpans"):
            sender, service = _json_sender(resource_spans, scope_spans)
            for span in _list(scope_spans, "spans"):
                status = _dict(span, "status")
                code = _enumerated(status.get("code"), _STATUS_CODES)
                yield RawSpan(
                    sender,
                    service,
                    _hex(span, "traceId"),
                    _hex(span, "spanId"),
                    _hex(span, "parentSpanId"),
                    _text(span, "name"),
                    milliseconds(_integer(span, "startTimeUnixNano")),
                    milliseconds(_integer(span, "endTimeUnixNano")),
                    _pairs(span, "attributes"),
                    [_json_event(event) for event in _list(span, "events")],
                    code == 2,
                    _text(status, "message"),
                    span_fields(
                        _enumerated(span.get("kind"), _SPAN_KINDS),
                        code,
                        _text(span, "traceState"),
                        _integer(span, "flags"),
                        [_json_link(link) for link in _list(span, "links")],
                        (
                            _integer(span, "droppedAttributesCount"),
                            _integer(span, "droppedEventsCount"),
                            _integer(span, "droppedLinksCount"),
                        ),
                    ),
                )


def _json_event(event: dict[str, Any]) -> RawEvent:
    dropped = _integer(event, "droppedAttributesCount")
    return RawEvent(
        _text(event, "name"),
        milliseconds(_integer(event, "timeUnixNano")),
        _pairs(event, "attributes"),
        {"droppedAttributesCount": dropped} if dropped else {},
    )


def _json_link(link: dict[str, Any]) -> Attributes:
    return link_fields(
        _hex(link, "traceId").hex(),
        _hex(link, "spanId").hex(),
        _text(link, "traceState"),
        _pairs(link, "attributes"),
        _integer(link, "flags"),
        _integer(link, "droppedAttributesCount"),
    )


def _read_json_logs(body: bytes) -> Iterator[LogRecord]:
    for resource_logs in _list(_load(body), "resourceLogs"):
        for scope_logs in _list(resource_logs, "scopeLogs"):
            sender, service = _json_sender(resource_logs, scope_logs)
            for record in _list(scope_logs, "logRecords"):
                time = _integer(record, "timeUnixNano") or _integer(record, "observedTimeUnixNano")
                severity = _integer(record, "severityNumber")
                yield LogRecord(
                    sender,
                    service,
                    _hex(record, "traceId"),
                    _hex(record, "spanId"),
                    milliseconds(time),
                    severity,
                    _text(record, "eventName"),
                    _json_value(record.get("body")),
                    _pairs(record, "attributes"),
                    log_fields(
                        severity,
                        _text(record, "severityText"),
                        _integer(record, "flags"),
                        _integer(record, "droppedAttributesCount"),
                    ),
                )


def _json_sender(resource_part: dict[str, Any], scope_part: dict[str, Any]) -> tuple[Attributes, str | None]:
    resource, scope = _dict(resource_part, "resource"), _dict(scope_part, "scope")
    dropped = _integer(scope, "droppedAttributesCount")
    return sender_fields(
        _pairs(resource, "attributes"),
        (_integer(resource, "droppedAttributesCount"), _text(resource_part, "schemaUrl")),
        _pairs(scope, "attributes"),
        (_text(scope, "name"), _text(scope, "version"), dropped, _text(scope_part, "schemaUrl")),
    )


def _enumerated(value: Any, names: dict[str, int]) -> int:
    """A number, also as a text, or the name of one."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else names.get(value, 0)
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


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


def _json_value(value: Any, depth: int = MAX_DEPTH) -> Any:
    """The plain value of an AnyValue. A value of another shape is kept as it came."""
    if not isinstance(value, dict):
        return value
    for kind, inner in value.items():
        match kind:
            case "intValue":
                return _integer(value, kind)
            case "doubleValue":
                return _double(inner)
            case "arrayValue" | "kvlistValue" if not depth:
                return msgspec.json.encode(inner).decode()
            case "arrayValue":
                return [_json_value(item, depth - 1) for item in _list(_dict(value, kind), "values")]
            case "kvlistValue":
                pairs = _list(_dict(value, kind), "values")
                return {_text(pair, "key"): _json_value(pair.get("value"), depth - 1) for pair in pairs}
            case "stringValue" | "boolValue" | "bytesValue":
                return inner
    return value or None


def _double(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value  # also "NaN" and "Infinity", which are texts
    try:
        return finite(float(value))
    except OverflowError:
        return value

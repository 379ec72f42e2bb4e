"""OTLP bodies: decoding, and the replies to them. Bodies in JSON are decoded by `otlp_json`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from . import otlp_json
from .records import (
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


def decode_spans(body: bytes, encoding: Encoding) -> list[RawSpan]:
    return list(_read_spans(body) if encoding == "protobuf" else otlp_json.read_spans(body))


def decode_logs(body: bytes, encoding: Encoding) -> list[LogRecord]:
    return list(_read_logs(body) if encoding == "protobuf" else otlp_json.read_logs(body))


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


def empty_reply(encoding: Encoding) -> bytes:
    return b"" if encoding == "protobuf" else b"{}"


def partial_reply(encoding: Encoding, kind: Literal["spans", "logs"], rejected: int, message: str) -> bytes:
    """The reply with the number of rejected records, and the reason."""
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

"""Spans and log records of OTLP, decoded from any encoding.

Fields that the shape of a span has no place for become attributes whose names begin with `otel.`, so that nothing that
was sent is lost.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from msgspec import Struct

Attributes = dict[str, Any]
SpanType = Literal["EVENT", "GENERATION", "SPAN"]

# What is nested deeper is kept as JSON text.
MAX_DEPTH = 100
KINDS = ("", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
# Milliseconds up to the year 9999: what is beyond was never a time.
_MAX_MS = 253_402_300_799_000


class Undecodable(ValueError):
    """Not an OTLP body; the message has the reason."""


class RawEvent(NamedTuple):
    """An event of a span. `rest` are fields beside those that every event has."""

    name: str
    time: int
    attributes: Attributes
    rest: Attributes


class RawSpan(Struct):
    """A span as it was sent. Ids are bytes of any length here: the receiver checks them."""

    sender: Attributes
    """Attributes of the resource and facts about the scope, one object for all spans of the scope."""
    service: str | None
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start: int
    end: int
    attributes: Attributes
    events: list[RawEvent]
    failed: bool
    message: str
    rest: Attributes
    """The other fields that are set, under names that begin with `otel.`."""


class LogRecord(Struct):
    sender: Attributes
    service: str | None
    trace_id: bytes
    span_id: bytes
    time: int
    severity: int
    event: str
    body: Any
    attributes: Attributes
    rest: Attributes


def span_fields(
    kind: int, status: int, state: str, flags: int, links: list[Attributes], dropped: tuple[int, int, int]
) -> Attributes:
    rest: Attributes = {}
    if kind:
        rest["otel.kind"] = KINDS[kind] if 0 <= kind < len(KINDS) else kind
    if status == 1:
        rest["otel.status_code"] = "OK"
    if state:
        rest["otel.trace_state"] = state
    if flags:
        rest["otel.flags"] = flags
    if links:
        rest["otel.links"] = links
    if any(dropped):
        for name, count in zip(("attributes", "events", "links"), dropped, strict=True):
            if count:
                rest[f"otel.dropped_{name}_count"] = count
    return rest


def log_fields(severity: int, text: str, flags: int, dropped: int) -> Attributes:
    names = ("otel.severity_number", "otel.severity_text", "otel.flags", "otel.dropped_attributes_count")
    return {name: value for name, value in zip(names, (severity, text, flags, dropped), strict=True) if value}


def link_fields(trace: str, span: str, state: str, attributes: Attributes, flags: int, dropped: int) -> dict[str, Any]:
    link: dict[str, Any] = {"traceId": trace, "spanId": span}
    more = {"traceState": state, "attributes": attributes, "flags": flags, "droppedAttributesCount": dropped}
    return link | {name: value for name, value in more.items() if value}


def sender_fields(
    resource: Attributes,
    about_resource: tuple[int, str],
    scope_attributes: Attributes,
    about_scope: tuple[str, str, int, str],
) -> tuple[Attributes, str | None]:
    """Attributes of all spans of a scope, and the name of the service."""
    name, version, dropped, schema = about_scope
    more = {
        "otel.scope.name": name,
        "otel.scope.version": version,
        "otel.scope.attributes": scope_attributes,
        "otel.scope.dropped_attributes_count": dropped,
        "otel.scope.schema_url": schema,
        "otel.resource.dropped_attributes_count": about_resource[0],
        "otel.resource.schema_url": about_resource[1],
    }
    service = resource.get("service.name")
    given = {name: value for name, value in more.items() if value}
    return with_fields(resource, given), service if isinstance(service, str) and service else None


def with_fields(attributes: Attributes, fields: Attributes) -> Attributes:
    """Attributes and fields in one table. An attribute keeps its name; a field of that name gets another `otel.`."""
    if fields.keys().isdisjoint(attributes):
        return {**attributes, **fields}
    merged = dict(attributes)
    for name, value in fields.items():
        # By their texts: True and 1 are equal, but not the same value.
        while name in merged and repr(merged[name]) != repr(value):
            name = f"otel.{name}"
        merged.setdefault(name, value)
    return merged


def finite(number: float) -> float | str:
    """JSON has no infinity. The JSON of protobuf writes it as a text."""
    if math.isfinite(number):
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def milliseconds(nanoseconds: int) -> int:
    return min(max(nanoseconds, 0) // 1_000_000, _MAX_MS)

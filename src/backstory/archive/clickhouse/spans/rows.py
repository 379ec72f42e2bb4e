"""Rows of the tables `span` and `trace` as structs, and as the structs of `archive/spans.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...calls import CallFacts
from ...spans import (
    MAX_VALUE_CHARS,
    SPAN_TYPES,
    STATUSES,
    EventRange,
    Origin,
    SpanRow,
    TraceRow,
    within_integers,
)
from ...spantexts import EventsOf, flatten
from ..server import Server, encode

Key = tuple[str, int]
"""Trace and id of a span."""

_decode = msgspec.json.Decoder().decode


class StoredTrace(Struct, kw_only=True):
    uid: str
    version: int = 0
    name: str | None = None
    named: bool = False
    """The name was sent; else it is that of the first root."""
    status: int = 2
    start: int = 0
    updated: int = 0
    latency: int | None = None
    cost: float | None = None
    tokens: int | None = None
    spans: int = 0
    session: str | None = None
    native: str | None = None
    """The agent's own id of the session."""
    source: str | None = None
    project: str | None = None
    dataset_run: str | None = None
    projected: bool = False
    deleted: bool = False

    def add_origin(self, origin: Origin) -> None:
        """Take over the fields that are given."""
        self.named = self.named or origin.name is not None
        for name in ("name", "session", "source", "project", "dataset_run"):
            if (given := getattr(origin, name)) is not None:
                setattr(self, name, given)
        self.native = self.session.partition("/")[2] if self.session else None

    @property
    def origin(self) -> Origin:
        return Origin(session=self.session, source=self.source, project=self.project, dataset_run=self.dataset_run)

    def row(self) -> TraceRow:
        fields = {name: getattr(self, name) for name in TraceRow.__struct_fields__ if name not in ("id", "status")}
        return TraceRow(id=self.uid, status=STATUSES[self.status], **fields)


class StoredSpan(Struct, kw_only=True):
    """`session` is empty for a span that was received. Facts (metadata, attributes) and content (input, output, tool
    calls) are JSON; both are empty where only the outline was read."""

    trace: str
    uid: int
    version: int = 0
    parent: int | None = None
    name: str
    type: int
    status: int
    start: int
    end: int | None = None
    model: str | None = None
    input: int | None = None
    output: int | None = None
    total: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    cost: float | None = None
    cost_reported: bool = False
    stop_reason: str | None = None
    exit_code: int | None = None
    waiting: int | None = None
    call: str | None = None
    alias: str | None = None
    logged: bool = False
    cause: int | None = None
    session: str = ""
    turn: int = 0
    first: int | None = None
    last: int | None = None
    last_turn: int | None = None
    scope: int | None = None
    """The number that the reports of a session's calls have in common (`calls.call_scope`)."""
    counts: bool = True
    """Its usage counts: no other span reports the same."""
    twin_trace: str | None = None
    """The key of the span that shows the call which this one reports."""
    twin: int | None = None
    deleted: bool = False
    facts: str = ""
    content: str = ""

    @property
    def key(self) -> Key:
        return self.trace, self.uid

    @property
    def reports_usage(self) -> bool:
        return not self.input is self.output is self.total is self.cost is None

    @property
    def events_of(self) -> EventsOf[str] | None:
        """None for a span that was received."""
        return EventsOf(self.session, self.turn, self.first, self.last, self.last_turn) if self.session else None

    def call_facts(self) -> CallFacts:
        fields = {name: getattr(self, name) for name in CallFacts.__struct_fields__}
        return CallFacts(**{**fields, "type": SPAN_TYPES[self.type], "status": STATUSES[self.status]})

    def row(self, parents: Mapping[Key, Any], trace: StoredTrace) -> SpanRow:
        """Without the texts of its events. An unknown parent makes a root."""
        facts = _decode(self.facts) if self.facts else {}
        input, output, tool_calls = _decode(self.content) if self.content else (None, None, None)
        fields = {name: getattr(self, name) for name in _SAME_FIELDS}
        fields |= {theirs: getattr(self, ours) for theirs, ours in _RENAMED.items()}
        if self.parent is not None and (self.trace, self.parent) not in parents:
            fields["parent"] = None
        return SpanRow(
            **fields,
            type=SPAN_TYPES[self.type],
            status=STATUSES[self.status],
            events=EventRange(self.first, self.last, self.last_turn) if self.session else None,
            metadata=facts.get("metadata", {}),
            attributes=facts.get("attributes", {}),
            input=input,
            output=output,
            tool_calls=tool_calls or [],
            origin=trace.origin,
        )


_RENAMED = {
    "id": "uid",
    "input_tokens": "input",
    "output_tokens": "output",
    "total_tokens": "total",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "cache_write_1h_tokens": "cache_write_1h",
    "reasoning_tokens": "reasoning",
}
_SAME_FIELDS = (
    "trace", "parent", "name", "start", "end", "model", "cost", "cost_reported", "stop_reason", "exit_code", "waiting",
    "call", "alias", "logged", "cause",
)  # fmt: skip
_TEXTS = ("facts", "content")
TRACE_COLUMNS = StoredTrace.__struct_fields__
SPAN_COLUMNS = StoredSpan.__struct_fields__
SPAN = ", ".join(f"s.{name}" for name in SPAN_COLUMNS)
SPAN_OUTLINE = ", ".join("''" if name in _TEXTS else f"s.{name}" for name in SPAN_COLUMNS)
TRACE = ", ".join(f"t.{name}" for name in TRACE_COLUMNS)


def stored_span(span: SpanRow, version: int) -> StoredSpan:
    fields = {name: getattr(span, name) for name in _SAME_FIELDS}
    fields |= {ours: getattr(span, theirs) for theirs, ours in _RENAMED.items()}
    events = span.events or EventRange()
    return StoredSpan(
        **fields,
        version=version,
        type=SPAN_TYPES.index(span.type),
        status=STATUSES.index(span.status),
        first=events.first,
        last=events.last,
        last_turn=events.last_turn,
        facts=facts_text(span.metadata, span.attributes),
        content=content_text(span.input, span.output, span.tool_calls),
    )


def facts_text(metadata: Mapping[str, Any], attributes: Mapping[str, Any]) -> str:
    if not metadata and not attributes:
        return ""
    return encode({"metadata": _finite(metadata), "attributes": _finite(attributes)})


def content_text(input: Any, output: Any, tool_calls: Sequence[Any]) -> str:
    return "" if input is output is None and not tool_calls else encode((input, output, tool_calls))


def _finite(value: Any) -> Any:
    """The value with a text in place of every NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def marked(value: Any) -> str:
    """A value of an attribute as it is stored for comparison: `s` and a text, `n` and a number, `b` and a boolean."""
    if isinstance(value, str):
        return "s" + value[:MAX_VALUE_CHARS]
    return ("b" if isinstance(value, bool) else "n") + encode(
        value if isinstance(value, bool) else within_integers(value)
    )


def write_spans(server: Server, spans: Iterable[StoredSpan]) -> None:
    rows = []
    for span in spans:
        leaves = [
            (f"{prefix}.{path}", marked(value))
            for prefix, table in (_decode(span.facts) if span.facts else {}).items()
            for path, value in flatten(table)
        ]
        paths, values = [path for path, _ in leaves], [value for _, value in leaves]
        rows.append([*(getattr(span, name) for name in SPAN_COLUMNS), paths, values])
    server.insert_by_month("span", (*SPAN_COLUMNS, "paths", "values"), rows, "start")


def write_traces(server: Server, traces: Iterable[StoredTrace]) -> None:
    server.insert("trace", TRACE_COLUMNS, [[getattr(trace, name) for name in TRACE_COLUMNS] for trace in traces])


def read_spans(server: Server, traces: Iterable[str], *, texts: bool = False) -> list[StoredSpan]:
    """All spans of some traces."""
    columns = SPAN if texts else SPAN_OUTLINE
    rows = server.rows_of(f"SELECT {columns} FROM span s FINAL WHERE s.trace IN %(names)s", traces)
    return [StoredSpan(**dict(zip(SPAN_COLUMNS, row, strict=True))) for row in rows]


def read_spans_at(server: Server, keys: Iterable[Key]) -> dict[Key, StoredSpan]:
    """Spans by their keys, with texts."""
    sql = f"SELECT {SPAN} FROM span s FINAL WHERE (s.trace, s.uid) IN %(names)s"
    found = (StoredSpan(**dict(zip(SPAN_COLUMNS, row, strict=True))) for row in server.rows_of(sql, list(keys)))
    return {span.key: span for span in found}


def known_keys(server: Server, keys: Iterable[Key]) -> set[Key]:
    """Those of the keys that spans have."""
    sql = "SELECT s.trace, s.uid FROM span s FINAL WHERE (s.trace, s.uid) IN %(names)s"
    return {(trace, uid) for trace, uid in server.rows_of(sql, list(keys))}


def read_traces(server: Server, uids: Iterable[str]) -> dict[str, StoredTrace]:
    rows = server.rows_of(f"SELECT {TRACE} FROM trace t FINAL WHERE t.uid IN %(names)s", uids)
    found = (StoredTrace(**dict(zip(TRACE_COLUMNS, row, strict=True))) for row in rows)
    return {trace.uid: trace for trace in found}

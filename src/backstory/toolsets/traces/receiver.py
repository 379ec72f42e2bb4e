"""Spans and logs as they are received: understood, put into the store, and their sessions kept."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from msgspec import Struct

from ...archive.base import Archive
from ...archive.spans import Origin, SpanRow
from ...model import EventType, digest
from ...otelfiles import Line
from ...redact import Mode, egress_value
from .attributes import Meaning, decoded, interpret
from .logs import read_log
from .messages import Said, said_in
from .otlp import Encoding, LogRecord, RawSpan, decode_logs, decode_spans
from .sessions import Sessions, TelemetrySession

__all__ = ["Receiver", "Taken"]

_SERVICE = "service.name"
# What the sender says of itself on every span, and nobody asks for.
_DULL = ("telemetry.sdk.", "process.", "host.", "os.")
_CLAUDE = "claude-code"
_NOTHING_NEW = (None,) * 5
_NO_MESSAGES: dict[str, list[Any]] = {"input": [], "output": []}


class Taken(Struct, frozen=True):
    rejected: int = 0
    message: str = ""


class _Batch(Struct):
    spans: list[SpanRow] = []
    origins: dict[str, Origin] = {}
    lines: dict[TelemetrySession, list[Line]] = {}
    rejected: int = 0
    message: str = ""
    resources: dict[int, dict[str, Any]] = {}

    def resource(self, given: dict[str, Any]) -> dict[str, Any]:
        """What a sender says of itself, which is the same object for all its spans."""
        found = self.resources.get(id(given))
        if found is None:
            found = self.resources[id(given)] = _worth_keeping(given)
        return found

    def reject(self, message: str) -> None:
        self.rejected += 1
        self.message = self.message or message


class Receiver:
    """Any thread may call it. Raises Undecodable for what is not OTLP, and the store's errors."""

    def __init__(self, archive: Archive, sessions: Sessions, redact: Mode) -> None:
        self._archive = archive
        self._sessions = sessions
        self._redact = redact

    def take_spans(self, body: bytes, encoding: Encoding) -> Taken:
        batch = _Batch(lines=defaultdict(list))
        for raw in decode_spans(body, encoding):
            self._take_span(batch, raw)
        return self._keep(batch)

    def take_logs(self, body: bytes, encoding: Encoding) -> Taken:
        batch = _Batch(lines=defaultdict(list))
        for record in decode_logs(body, encoding):
            self._take_log(batch, record)
        return self._keep(batch)

    def _keep(self, batch: _Batch) -> Taken:
        if self._redact == "ingest":
            for span in batch.spans:
                span.input, span.output = egress_value(span.input), egress_value(span.output)
                span.attributes, span.metadata = egress_value(span.attributes), egress_value(span.metadata)
        self._archive.spans.put(batch.spans, batch.origins)
        for session, lines in batch.lines.items():
            self._sessions.append(session, lines)
        return Taken(batch.rejected, batch.message)

    def _take_span(self, batch: _Batch, raw: RawSpan) -> None:
        if not _is_id(raw.trace_id, 16) or not _is_id(raw.span_id, 8):
            batch.reject("a span needs a trace id of 16 bytes and a span id of 8 bytes, not all zero")
            return
        if not raw.start:
            batch.reject("a span needs a start time")
            return
        service = _text(raw.resource.get(_SERVICE))
        attributes = {**batch.resource(raw.resource), **raw.attributes}
        attributes.pop("logfire.json_schema", None)  # about the others, and long
        messages = _gather_events(raw, attributes) if raw.events else _NO_MESSAGES
        meaning = interpret(attributes, raw.start, cache_beside_input=service == _CLAUDE)
        meaning.input = messages["input"] or None if meaning.input is None else meaning.input
        meaning.output = messages["output"] or None if meaning.output is None else meaning.output
        parent = _number(raw.parent_id) if any(raw.parent_id) else None
        span = _row(raw.trace_id.hex(), _number(raw.span_id), raw.name or "span", raw.start, meaning)
        span.parent = None if parent == span.id else parent
        span.end = max(raw.end, raw.start) if raw.end else None
        span.status = "error" if raw.failed else "success" if raw.end else "pending"
        if raw.message:
            span.metadata["statusMessage"] = raw.message
        batch.spans.append(span)
        self._join(batch, span, meaning, service)
        # Model calls tell what was said; so does what is around them, when it is all there is.
        if meaning.session is not None and (meaning.type == "GENERATION" or span.parent is None):
            self._remember(batch, meaning, service, _said(meaning), raw.end or raw.start)

    def _take_log(self, batch: _Batch, record: LogRecord) -> None:
        service = _text(record.resource.get(_SERVICE))
        attributes = {**batch.resource(record.resource), **record.attributes}
        log = read_log(record, attributes)
        meaning = interpret(attributes, record.time, cache_beside_input=service == _CLAUDE)
        if _is_id(record.trace_id, 16):
            trace = record.trace_id.hex()
        elif meaning.session is not None:
            # No trace to belong to: what answers one prompt is one, where agents tell which.
            trace = digest("logs", service or "", meaning.session, log.prompt_id or "").hex()
        else:
            batch.reject("a log record needs a trace id, or a session or conversation id")
            return
        if not record.time:
            batch.reject("a log record needs a time")
            return
        identity = digest(
            trace, log.name, str(record.time), repr(record.body), repr(sorted(record.attributes.items(), key=str))
        )
        span = _row(trace, _number(identity[:8]), log.name, record.time - log.duration, meaning)
        span.type = "GENERATION" if meaning.tokens is not None else log.type
        span.parent = _number(record.span_id) if _is_id(record.span_id, 8) else None
        span.end = record.time
        span.status = "error" if log.failed else "success"
        if log.body is not None and span.input is None and span.output is None:
            span.output = log.body
        batch.spans.append(span)
        self._join(batch, span, meaning, service, log.title)
        if meaning.session is not None and log.said is not None:
            self._remember(batch, meaning, service, log.said(meaning), record.time)

    def _join(
        self, batch: _Batch, span: SpanRow, meaning: Meaning, service: str | None, title: str | None = None
    ) -> None:
        before = batch.origins.get(span.trace)
        news = (meaning.session, meaning.project, meaning.dataset_run, meaning.trace_name, title)
        if before is not None and news == _NOTHING_NEW:
            return
        before = before or Origin()
        session = self._session(meaning, service)
        batch.origins[span.trace] = Origin(
            name=before.name or meaning.trace_name or title,
            session=before.session or (session.key if session else None),
            source=before.source or (session.key.partition("/")[0] if session and not session.kept else service),
            project=before.project or meaning.project,
            dataset_run=before.dataset_run or meaning.dataset_run,
        )

    def _remember(self, batch: _Batch, meaning: Meaning, service: str | None, said: list[Said], ts: int) -> None:
        session = self._session(meaning, service)
        if session is not None and session.kept:
            batch.lines[session] += self._sessions.lines(session, said, ts, meaning.model, meaning.project)

    def _session(self, meaning: Meaning, service: str | None) -> TelemetrySession | None:
        return self._sessions.find(meaning.session, service) if meaning.session is not None else None


def _said(meaning: Meaning) -> list[Said]:
    said = said_in(meaning.input, EventType.USER_INPUT)
    answer = said_in(meaning.output, EventType.ASSISTANT_RESPONSE)
    if meaning.tool_calls and not any(entry.type is EventType.TOOL_CALL for entry in answer):
        answer += said_in([{"role": "assistant", "tool_calls": meaning.tool_calls}], EventType.ASSISTANT_RESPONSE)
    # Agents tell the whole conversation, and its last word once more as their result.
    return said if answer == said[-len(answer) :] else said + answer


def _row(trace: str, id: int, name: str, start: int, meaning: Meaning) -> SpanRow:
    tokens = meaning.tokens
    return SpanRow(
        trace=trace,
        id=id,
        name=name[:1000],
        type=meaning.type,
        start=start,
        model=meaning.model,
        input_tokens=tokens.input if tokens else None,
        output_tokens=tokens.output if tokens else None,
        cache_read_tokens=tokens.cache_read or None if tokens else None,
        cache_write_tokens=(tokens.cache_write_5m + tokens.cache_write_1h) or None if tokens else None,
        cache_write_1h_tokens=tokens.cache_write_1h or None if tokens else None,
        reasoning_tokens=meaning.reasoning,
        cost=meaning.cost,
        cost_reported=meaning.cost_reported,
        stop_reason=meaning.stop_reason,
        metadata=meaning.metadata,
        attributes=meaning.rest,
        input=meaning.input,
        output=meaning.output,
        tool_calls=meaning.tool_calls,
    )


def _worth_keeping(resource: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in resource.items() if not name.startswith(_DULL)}


def _gather_events(raw: RawSpan, attributes: dict[str, Any]) -> dict[str, list[Any]]:
    """Messages that come as a span's events; other events stay with the attributes."""
    messages: dict[str, list[Any]] = {"input": [], "output": []}
    others = []
    for name, time, event in raw.events:
        if name.startswith("gen_ai.") and name.endswith(".message"):
            messages["input"].append({"role": name.split(".")[1], **_decoded(event)})
        elif name == "gen_ai.choice":
            message = decoded(event.get("message"))
            messages["output"].append(
                {"role": "assistant", **(message if isinstance(message, dict) else _decoded(event))}
            )
        elif name in ("gen_ai.content.prompt", "gen_ai.content.completion"):
            side, key = ("input", "gen_ai.prompt") if name.endswith("prompt") else ("output", "gen_ai.completion")
            messages[side].append(decoded(event.get(key)))
        else:
            others.append({"name": name, "time": time, "attributes": event})
    if others:
        attributes["events"] = others
    return messages


def _decoded(event: dict[str, Any]) -> dict[str, Any]:
    return {name: decoded(value) for name, value in event.items()}


def _is_id(data: bytes, length: int) -> bool:
    return len(data) == length and any(data)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None

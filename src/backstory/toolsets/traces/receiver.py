"""Spans and logs as they are received: understood, put into the store, and their sessions kept."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
from msgspec import Struct

from ...archive.base import Archive
from ...archive.spans import Origin, SpanRow
from ...egress import Mode, egress
from ...model import EventType, call_by_tokens, digest
from ...otelfiles import Line
from .attributes import Meaning, interpret
from .events import take_events
from .logs import read_log
from .messages import Said, said_in
from .otlp import Encoding, decode_logs, decode_spans
from .records import LogRecord, RawSpan, with_fields
from .sessions import Sessions, TelemetrySession, agent_of

__all__ = ["Receiver", "Taken"]

_CLAUDE, _CODEX = "claude-code", "codex"
_MAX_NAME_CHARS = 1_000
_WAITING = ".blocked_on_user"  # how Claude Code names a span in which it waits for a person
_NOTHING_NEW = (None,) * 5


class Taken(Struct, frozen=True):
    rejected: int = 0
    message: str = ""


class _Batch(Struct):
    spans: list[SpanRow] = []
    origins: dict[str, Origin] = {}
    lines: dict[TelemetrySession, list[Line]] = {}
    rejected: int = 0
    message: str = ""
    session_starts: dict[str, int] = {}
    """When the span that tells the session of a trace started: a subagent's may come before its parent's."""

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
                span.input, span.output = egress(span.input), egress(span.output)
                span.attributes, span.metadata = egress(span.attributes), egress(span.metadata)
                span.tool_calls = egress(span.tool_calls)
        self._archive.spans.put(batch.spans, batch.origins)
        for session, lines in batch.lines.items():
            # Spans come when they end: a prompt after the work it started.
            self._sessions.append(session, sorted(lines, key=lambda line: line.ts))
        return Taken(batch.rejected, batch.message)

    def _take_span(self, batch: _Batch, raw: RawSpan) -> None:
        if not _is_id(raw.trace_id, 16) or not _is_id(raw.span_id, 8):
            batch.reject("a span needs a trace id of 16 bytes and a span id of 8 bytes, not all zero")
            return
        if not raw.start:
            batch.reject("a span needs a start time")
            return
        agent = agent_of(raw.service)
        attributes = _all_attributes(raw)
        meaning = interpret(attributes, raw.start, cache_beside_input=agent == _CLAUDE)
        if agent == _CODEX and meaning.tokens is not None:
            meaning.type = "GENERATION"  # Codex names the model on spans around it
        output = take_events(raw, meaning) if raw.events else None
        span = _row(raw.trace_id.hex(), _number(raw.span_id), raw.name, raw.start, meaning)
        parent = _number(raw.parent_id) if _is_id(raw.parent_id, 8) else None
        if parent != span.id:
            span.parent = parent
        span.end = max(raw.end, raw.start) if raw.end else None
        span.status = "error" if raw.failed else "success" if raw.end else "pending"
        _name_call(span, attributes, meaning, agent)
        if agent == _CLAUDE and raw.name.endswith(_WAITING) and span.end is not None:
            span.waiting = span.end - span.start
        if raw.message:
            span.metadata = with_fields(span.metadata, {"statusMessage": raw.message})
        batch.spans.append(span)
        self._join(batch, span, meaning, raw.service)
        if meaning.session is None:
            return
        if output is not None:
            self._remember(batch, meaning, raw.service, output.said(attributes, span.call), raw.end or raw.start)
        elif meaning.type == "GENERATION" or span.parent is None:
            # Model calls tell what was said; so does what is around them, when it is all there is.
            time = raw.start if meaning.output is None else raw.end or raw.start
            self._remember(batch, meaning, raw.service, _said(meaning), time)

    def _take_log(self, batch: _Batch, record: LogRecord) -> None:
        service, agent = record.service, agent_of(record.service)
        attributes = with_fields(with_fields(record.attributes, record.sender), record.rest)
        log = read_log(record, attributes)
        meaning = interpret(attributes, record.time, cache_beside_input=agent == _CLAUDE)
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
        if span.type == "GENERATION":
            _name_call(span, attributes, meaning, agent)
        else:
            span.call = log.call
        span.logged = True
        if log.body is not None:
            if span.input is None and span.output is None:
                span.output = log.body
            else:
                span.attributes = with_fields(span.attributes, {"otel.body": log.body})
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
        first = batch.session_starts.get(span.trace)
        if session is not None and (first is None or span.start < first):
            batch.session_starts[span.trace] = span.start
            before = msgspec.structs.replace(before, session=session.key)
        batch.origins[span.trace] = Origin(
            name=before.name or meaning.trace_name or title,
            session=before.session,
            source=before.source or agent_of(service) or service,
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
        name=name[:_MAX_NAME_CHARS] or "span",
        type=meaning.type,
        start=start,
        model=meaning.model,
        input_tokens=tokens.input if tokens else None,
        output_tokens=tokens.output if tokens else None,
        total_tokens=meaning.total_tokens,
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


def _all_attributes(raw: RawSpan) -> dict[str, Any]:
    attributes = with_fields(raw.attributes, raw.sender)
    if raw.rest:
        attributes = with_fields(attributes, raw.rest)
    if len(raw.name) > _MAX_NAME_CHARS:
        attributes = with_fields(attributes, {"otel.name": raw.name})
    if raw.parent_id and (raw.parent_id == raw.span_id or not _is_id(raw.parent_id, 8)):
        attributes = with_fields(attributes, {"otel.parent_span_id": raw.parent_id.hex()})
    return attributes


def _name_call(span: SpanRow, attributes: dict[str, Any], meaning: Meaning, agent: str | None) -> None:
    """Give a span the id of the call that it reports, if it reports a whole one."""
    if meaning.type == "GENERATION":
        call = attributes.get("request_id") or attributes.get("gen_ai.response.id")
        if agent is not None and (tokens := meaning.tokens) is not None:
            written = tokens.cache_write_5m + tokens.cache_write_1h
            span.alias = call_by_tokens(agent, tokens.input, tokens.output, tokens.cache_read, written)
        if agent == _CODEX:
            call = None  # its log records have none
    elif attributes.get("gen_ai.operation.name") == "execute_tool":
        call = attributes.get("gen_ai.tool.call.id")
    else:
        call = attributes.get("call_id") if "codex.tool.phase" in attributes else None
    if isinstance(call, str) and 0 < len(call) <= _MAX_NAME_CHARS:
        span.call = call
    else:
        span.call, span.alias = span.alias, None


def _is_id(data: bytes, length: int) -> bool:
    return len(data) == length and any(data)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)

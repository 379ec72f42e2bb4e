"""Receiving telemetry: spans and log records become rows of spans, and their messages events of sessions."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..archive.base import Archive
from ..archive.spans import Origin, SpanRow
from ..config import make_private_folder
from ..egress import Mode, egress
from ..model import call_by_tokens, digest, session_mark
from ..sources.otel import FOLDER, Line, session_file
from ..sources.otel.attributes import Meaning, interpret
from ..sources.otel.messages import Message, conversation, read_log, take_events
from ..sources.otel.otlp import Encoding, decode_logs, decode_spans
from ..sources.otel.records import LogRecord, RawSpan, with_fields

_CLAUDE, _CODEX = "claude-code", "codex"
_MAX_NAME_CHARS = 1_000
_WAITING = ".blocked_on_user"  # the end of the name of a span in which Claude Code waits for a person
_NOTHING_NEW = (None,) * 5
_OWN = "otel"
# Service name of an agent -> the source of its transcripts.
_AGENTS = {
    "claude-code": "claude-code",
    "claude_code": "claude-code",
    "gemini-cli": "gemini-cli",
    "qwen-code": "qwen-code",
}
_MAX_ID_CHARS = 1_000
_MAX_SESSIONS = 1_000
_MAX_FILE_NAME_CHARS = 250


Seen = dict[tuple[str, ...], int]
"""The number of earlier messages with the same content in a call."""


class TelemetrySession(Struct, frozen=True):
    """A session that telemetry names. `native` is the agent's own id."""

    key: str
    native: str
    kept: bool
    """Its messages are kept in a file: no transcript has them."""


@lru_cache(maxsize=256)
def agent_of(service: str | None) -> str | None:
    """The source of an agent's transcripts, by the name of the service that sends its telemetry."""
    name = (service or "").lower()
    # codex_exec, codex_cli_rs, codex-app-server: each of Codex' programs has a name of its own.
    return "codex" if name.startswith("codex") else _AGENTS.get(name)


class TelemetrySessions:
    """The sessions of telemetry, and the files with their messages."""

    def __init__(self, archive: Archive, home: Path) -> None:
        self._archive = archive
        self._home = home
        make_private_folder(home / FOLDER)
        self._lock = threading.Lock()
        self._written: OrderedDict[str, set[str]] = OrderedDict()

    def find(self, native: str, service: str | None) -> TelemetrySession | None:
        """The session of an agent that is in the archive, or one of our own under the same id."""
        native = native.strip().encode("utf-8", "replace").decode()
        if not native or len(native) > _MAX_ID_CHARS:
            return None
        agent = agent_of(service)
        if agent is not None:
            key = f"{agent}/{native}"
            if self._archive.session(key) is not None or self._archive.forgotten([session_mark(key)]):
                return TelemetrySession(key, native, False)
        return TelemetrySession(
            f"{_OWN}/{native}", native, len(session_file(self._home, native).name) <= _MAX_FILE_NAME_CHARS
        )

    def lines(
        self,
        session: TelemetrySession,
        messages: list[Message],
        ts: int,
        model: str | None,
        cwd: str | None,
        seen: Seen,
    ) -> list[Line]:
        """One line for each message. Calls repeat the messages before them: the same words at the same place of the
        conversation are the same event."""
        lines = []
        for entry in messages:
            arguments = "" if entry.arguments is None else msgspec.json.encode(entry.arguments).decode()
            content: tuple[str, ...] = (entry.type, entry.call or "")
            if not (entry.once and entry.call):
                content = (entry.type, entry.text, entry.tool or "", entry.call or "", arguments)
            seen[content] = seen.get(content, -1) + 1
            uid = digest(_OWN, session.native, *content, str(seen[content])).hex()
            lines.append(
                Line(uid, ts, entry.type, entry.text, entry.tool, entry.call, entry.arguments, model, entry.failed, cwd)
            )
        return lines

    def append(self, session: TelemetrySession, lines: list[Line]) -> None:
        """Whole lines in one write: other processes may append to the same file."""
        if self._archive.forgotten([session_mark(session.key)]):
            return
        lines = self._news(session, lines)
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        if not data:
            return
        path = session_file(self._home, session.native)
        with self._lock, os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
            file.write(data)

    def _news(self, session: TelemetrySession, lines: list[Line]) -> list[Line]:
        """The lines that this process has not written yet. Every call repeats its whole conversation; a line that
        stands in the file twice counts once."""
        with self._lock:
            written = self._written.setdefault(session.native, set())
            self._written.move_to_end(session.native)
            if len(self._written) > _MAX_SESSIONS:
                self._written.popitem(last=False)
            news = [line for line in lines if line.uid not in written]
            written.update(line.uid for line in lines)
            return list({line.uid: line for line in reversed(news)}.values())[::-1]


class Taken(Struct, frozen=True):
    """The result for one body: the number of rejected records, and the reason of the first."""

    rejected: int = 0
    message: str = ""


class _Batch(Struct):
    """The rows that one body becomes."""

    spans: list[SpanRow] = []
    origins: dict[str, Origin] = {}
    lines: dict[TelemetrySession, list[Line]] = {}
    seen: dict[tuple[str, int], Seen] = {}
    """By trace and span: the log records of a span are the messages of one call."""
    rejected: int = 0
    message: str = ""
    session_starts: dict[str, int] = {}
    """The start of the span that gave a trace its session: a span of a subagent may come before that of its parent."""

    def reject(self, message: str) -> None:
        self.rejected += 1
        self.message = self.message or message


def _redact(batch: _Batch) -> None:
    for span in batch.spans:
        span.name = egress(span.name)
        span.input, span.output = egress(span.input), egress(span.output)
        span.attributes, span.metadata = egress(span.attributes), egress(span.metadata)
        span.tool_calls = egress(span.tool_calls)
    for trace, origin in batch.origins.items():
        batch.origins[trace] = msgspec.structs.replace(origin, name=egress(origin.name))
    for lines in batch.lines.values():
        for line in lines:
            line.text, line.arguments = egress(line.text), egress(line.arguments)


class Receiver:
    """Takes OTLP bodies, in any thread. Raises Undecodable for other bodies, and the errors of the archive."""

    def __init__(self, archive: Archive, home: Path, redact: Mode) -> None:
        self._archive = archive
        self._sessions = TelemetrySessions(archive, home)
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
            _redact(batch)
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
            self._add_messages(
                batch, meaning, raw.service, output.messages(attributes, span.call), raw.end or raw.start, {}
            )
        elif meaning.type == "GENERATION" or span.parent is None:
            # Model calls have the messages. Where there are none, the root has.
            time = raw.start if meaning.output is None else raw.end or raw.start
            self._add_messages(batch, meaning, raw.service, conversation(meaning), time, {})

    def _take_log(self, batch: _Batch, record: LogRecord) -> None:
        service, agent = record.service, agent_of(record.service)
        attributes = with_fields(with_fields(record.attributes, record.sender), record.rest)
        log = read_log(record, attributes)
        meaning = interpret(attributes, record.time, cache_beside_input=agent == _CLAUDE)
        if _is_id(record.trace_id, 16):
            trace = record.trace_id.hex()
        elif meaning.session is not None:
            # Without a trace, the records of one prompt are one, where agents name the prompt.
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
        if meaning.session is not None and log.messages is not None:
            seen = {} if span.parent is None else batch.seen.setdefault((trace, span.parent), {})
            self._add_messages(batch, meaning, service, log.messages(meaning), record.time, seen)

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

    def _add_messages(
        self, batch: _Batch, meaning: Meaning, service: str | None, messages: list[Message], ts: int, seen: Seen
    ) -> None:
        session = self._session(meaning, service)
        if session is not None and session.kept:
            batch.lines[session] += self._sessions.lines(session, messages, ts, meaning.model, meaning.project, seen)

    def _session(self, meaning: Meaning, service: str | None) -> TelemetrySession | None:
        return self._sessions.find(meaning.session, service) if meaning.session is not None else None


def _row(trace: str, id: int, name: str, start: int, meaning: Meaning) -> SpanRow:
    tokens = meaning.tokens
    return SpanRow(
        trace=trace,
        id=id,
        name=_short(name) or "span",
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


def _short(name: str) -> str:
    """A name with an ellipsis where it is cut: by that egress recognises what is left of a secret."""
    return name if len(name) <= _MAX_NAME_CHARS else f"{name[: _MAX_NAME_CHARS - 1]}…"


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

"""Rows of the record as the archive's structs, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ...model import EVENT_TYPES, UID_BYTES, EventType, session_id
from ..base import EventRow, ExchangeRow, FileRow, SessionRow, TurnRow, UsageRow
from ..render import render_call
from .bodies import Bodies

__all__ = [
    "EVENT_COLUMNS",
    "EXCHANGE_COLUMNS",
    "FILE_COLUMNS",
    "INSERT_EVENT",
    "REPLACE_EVENT",
    "SESSION_COLUMNS",
    "TURN_COLUMNS",
    "UPSERT_EXCHANGE",
    "UPSERT_FILE",
    "UPSERT_SESSION",
    "UPSERT_TURN",
    "UPSERT_USAGE",
    "USAGE_COLUMNS",
    "event_values",
    "exchange_values",
    "file_values",
    "read_event",
    "read_exchange",
    "read_file",
    "read_session",
    "read_text",
    "read_turn",
    "read_usage",
    "session_values",
    "split_uids",
    "turn_values",
    "usage_values",
]

Values = tuple[Any, ...]

SESSION_COLUMNS = (
    "key", "source", "title", "title_rank", "summary", "slug", "folder", "cwd", "last_cwd", "branch", "version",
    "parent", "parent_call", "forked_from", "started_at", "updated_at", "turn_count", "event_count", "completed",
    "mode", "first_at", "last_at", "exchange_count", "provisional",
)  # fmt: skip
TURN_COLUMNS = (
    "ordinal", "turn_key", "started_at", "updated_at", "event_count", "prompt", "terminal", "terminal_type",
    "candidate", "last_answer", "tools", "types", "started_work",
)  # fmt: skip
EVENT_COLUMNS = (
    "uid", "turn", "ordinal", "type", "ts", "tool", "model", "originating_model", "usage", "body", "facts",
)  # fmt: skip
EXCHANGE_COLUMNS = ("number", "ts", "user", "user_text", "said")
USAGE_COLUMNS = (
    "key", "turn", "ts", "model", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_5m_tokens",
    "cache_write_1h_tokens", "reasoning_tokens", "cost", "stop_reason", "request",
)  # fmt: skip
FILE_COLUMNS = (
    "path", "source", "session", "inode", "size", "mtime_ns", "offset", "prefix", "state", "errors", "last_error",
    "missing",
)  # fmt: skip


def _upsert(table: str, columns: Sequence[str], key: Sequence[str]) -> str:
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    updates = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
    return f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT ({', '.join(key)}) DO UPDATE SET {updates}"


UPSERT_SESSION = _upsert("session", ("id", "public_id", *SESSION_COLUMNS), ("key",))
UPSERT_TURN = _upsert("turn", ("session", "change", *TURN_COLUMNS), ("session", "ordinal"))
UPSERT_EXCHANGE = _upsert("exchange", ("session", "change", *EXCHANGE_COLUMNS), ("session", "number"))
UPSERT_FILE = _upsert("file", FILE_COLUMNS, ("path",))
INSERT_EVENT = (
    "INSERT INTO event (id, uid, session, turn, ordinal, type, ts, project, tool, model, originating_model, usage, "
    "body, facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
REPLACE_EVENT = (
    "UPDATE event SET id = ?1, type = ?6, ts = ?7, project = coalesce(?8, project), tool = ?9, model = ?10, "
    "originating_model = ?11, usage = ?12, body = ?13, facts = ?14 WHERE uid = ?2"
)
_GROWING = tuple(name for name in USAGE_COLUMNS if name.endswith("_tokens"))
UPSERT_USAGE = (
    f"INSERT INTO usage (key, session, {', '.join(USAGE_COLUMNS[1:])}) VALUES (?{', ?' * len(USAGE_COLUMNS)}) "
    f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = max({name}, excluded.{name})' for name in _GROWING)}, "
    "cost = coalesce(excluded.cost, cost), stop_reason = coalesce(excluded.stop_reason, stop_reason), "
    "model = coalesce(excluded.model, model), request = coalesce(excluded.request, request)"
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class _Facts(msgspec.Struct, omit_defaults=True):
    """What few events have; kept as one small JSON text."""

    call: str | None = None
    exit: int | None = None
    failed: bool | None = None
    extra: dict[str, Any] | None = None


_NO_FACTS = _Facts()
_decode_facts = msgspec.json.Decoder(_Facts).decode


def session_values(row: SessionRow) -> Values:
    return (session_id(row.key), *(getattr(row, name) for name in SESSION_COLUMNS))


def read_session(values: Sequence[Any]) -> SessionRow:
    row = SessionRow(**dict(zip(SESSION_COLUMNS, values, strict=True)))
    row.completed, row.provisional = bool(row.completed), bool(row.provisional)
    return row


def turn_values(session: int, change: int, row: TurnRow) -> Values:
    return (
        session, change, row.ordinal, row.turn_key, row.started_at, row.updated_at, row.event_count, row.prompt,
        row.terminal, None if row.terminal_type is None else row.terminal_type.code, row.candidate, row.last_answer,
        _encode(row.tools).decode(), "".join(str(kind.code) for kind in row.types),
        int(row.started_work),
    )  # fmt: skip


def read_turn(session: str, values: Sequence[Any]) -> TurnRow:
    row = TurnRow(session=session, **dict(zip(TURN_COLUMNS, values, strict=True)))
    row.terminal_type = None if values[7] is None else EVENT_TYPES[values[7]]
    row.tools = _read_tools(values[10])
    row.types = _read_types(values[11])
    row.started_work = bool(row.started_work)
    return row


# Turns are much alike: the same few combinations come again and again.


@lru_cache(maxsize=1024)
def _read_tools(names: str) -> tuple[str, ...]:
    return tuple(_decode(names))


@lru_cache(maxsize=1024)
def _read_types(codes: str) -> tuple[EventType, ...]:
    return tuple(EVENT_TYPES[int(code)] for code in codes)


def event_values(id: int, session: int, project: int | None, row: EventRow, bodies: Bodies) -> Values:
    if row.type is EventType.TOOL_CALL:
        body = None if row.arguments is None else bodies.pack(_encode(row.arguments).decode())
    else:
        body = bodies.pack(row.text)
    facts = None
    if row.call_id is not None or row.exit_code is not None or row.failed is not None or row.extra:
        facts = _encode(_Facts(row.call_id, row.exit_code, row.failed, row.extra)).decode()
    return (
        id, row.uid, session, row.turn, row.ordinal, row.type.code, row.ts, project, row.tool, row.model,
        row.originating_model, row.usage_key, body, facts,
    )  # fmt: skip


def read_event(session: str, values: Sequence[Any], bodies: Bodies) -> EventRow:
    uid, turn, ordinal, type_code, ts, tool, model, originating_model, usage, body, facts_text = values
    facts = _decode_facts(facts_text) if facts_text else _NO_FACTS
    kind = EVENT_TYPES[type_code]
    text, arguments = bodies.unpack(body), None
    if kind is EventType.TOOL_CALL:
        arguments = _decode(text) if text else None
        text = render_call(tool, arguments)
    return EventRow(
        uid=uid, session=session, turn=turn, ordinal=ordinal, type=kind, ts=ts, text=text, tool=tool,
        call_id=facts.call, model=model, originating_model=originating_model, arguments=arguments,
        exit_code=facts.exit, failed=facts.failed, usage_key=usage, extra=facts.extra,
    )  # fmt: skip


def read_text(kind: EventType, tool: str | None, body: str | bytes | None, bodies: Bodies) -> str:
    text = bodies.unpack(body)
    return render_call(tool, _decode(text) if text else None) if kind is EventType.TOOL_CALL else text


def exchange_values(session: int, change: int, row: ExchangeRow, bodies: Bodies) -> Values:
    text = None if row.user_text is None else bodies.pack(row.user_text)
    return (session, change, row.number, row.ts, row.user, text, bytes(row.said))


def read_exchange(session: str, values: Sequence[Any], bodies: Bodies) -> ExchangeRow:
    row = ExchangeRow(session=session, **dict(zip(EXCHANGE_COLUMNS, values, strict=True)))
    row.user_text = None if row.user_text is None else bodies.unpack(row.user_text)
    row.said = bytearray(row.said)
    return row


def split_uids(said: bytes) -> list[bytes]:
    return [said[start : start + UID_BYTES] for start in range(0, len(said), UID_BYTES)]


def usage_values(session: int, row: UsageRow) -> Values:
    return (row.key, session, *(getattr(row, name) for name in USAGE_COLUMNS[1:]))


def read_usage(session: str, values: Sequence[Any]) -> UsageRow:
    return UsageRow(session=session, **dict(zip(USAGE_COLUMNS, values, strict=True)))


def file_values(row: FileRow) -> Values:
    state = None if row.state is None else _encode(row.state).decode()
    return (
        row.path, row.source, row.session, row.inode, row.size, row.mtime_ns, row.offset, row.prefix, state,
        row.errors, row.last_error, int(row.missing),
    )  # fmt: skip


def read_file(values: Sequence[Any]) -> FileRow:
    row = FileRow(**dict(zip(FILE_COLUMNS, values, strict=True)))
    row.state = None if values[8] is None else _decode(values[8])
    row.missing = bool(row.missing)
    return row

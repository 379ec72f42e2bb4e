"""Rows of the record as the archive's structs, and back. Values are bound in the order of the columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from ...model import EVENT_TYPES, EventType, session_id
from ...toolcalls import render_call
from ..base import EventRow, ExchangeRow, FileRow, SessionRow, TurnRow, UsageRow
from .bodies import Bodies, Pack

Values = tuple[Any, ...]
_CALL = EventType.TOOL_CALL
_CODES = {kind: kind.code for kind in EVENT_TYPES}

SESSION_COLUMNS = (
    "key", "source", "title", "title_rank", "summary", "slug", "folder", "cwd", "last_cwd", "project", "branch",
    "version", "parent", "parent_call", "forked_from", "started_at", "updated_at", "turn_count", "event_count",
    "completed", "mode", "first_at", "last_at", "exchange_count", "provisional", "user", "machine",
)  # fmt: skip
TURN_COLUMNS = (
    "ordinal", "turn_key", "started_at", "updated_at", "event_count", "prompt", "terminal", "terminal_type",
    "candidate", "last_answer", "tools", "types", "started_work",
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


class EventValues(NamedTuple):
    """The columns of an event, as they are selected."""

    uid: bytes
    turn: int
    ordinal: int
    type: int
    ts: int
    tool: str | None
    model: str | None
    originating_model: str | None
    usage: bytes | None
    facts: str | None
    body: str | bytes | None


EVENT_COLUMNS = EventValues._fields


def columns(alias: str, names: Iterable[str]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)


def split(values: Sequence[Any], *groups: Sequence[str]) -> list[Sequence[Any]]:
    """The values of a row by groups of columns, and after those the rest."""
    parts, start = [], 0
    for group in groups:
        parts.append(values[start : start + len(group)])
        start += len(group)
    return [*parts, values[start:]]


def _insert(table: str, names: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def _upsert(table: str, names: Sequence[str], key: Sequence[str]) -> str:
    updates = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    return f"{_insert(table, names)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {updates}"


UPSERT_SESSION = _upsert("session", ("id", "public_id", *SESSION_COLUMNS), ("key",))
UPSERT_TURN = _upsert("turn", ("session", "change", *TURN_COLUMNS), ("session", "ordinal"))
UPSERT_EXCHANGE = _upsert("exchange", ("session", "change", *EXCHANGE_COLUMNS), ("session", "number"))
UPSERT_FILE = _upsert("file", FILE_COLUMNS, ("path",))
_EVENT_VALUES = ("id", "session", "project", *EVENT_COLUMNS)
INSERT_EVENT = _insert("event", _EVENT_VALUES)
_PLACES = {name: f"?{number}" for number, name in enumerate(_EVENT_VALUES, 1)}
REPLACE_EVENT = (
    f"UPDATE event SET id = {_PLACES['id']}, project = coalesce({_PLACES['project']}, project), "
    + ", ".join(f"{name} = {_PLACES[name]}" for name in EVENT_COLUMNS if name not in ("uid", "turn", "ordinal"))
    + f" WHERE uid = {_PLACES['uid']}"
)
UPSERT_USAGE = (
    _insert("usage", ("session", *USAGE_COLUMNS))
    + " ON CONFLICT (key) DO UPDATE SET "
    + ", ".join(f"{name} = max({name}, excluded.{name})" for name in USAGE_COLUMNS if name.endswith("_tokens"))
    + "".join(f", {name} = coalesce(excluded.{name}, {name})" for name in ("cost", "stop_reason", "model", "request"))
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class _Facts(msgspec.Struct, omit_defaults=True):
    """Fields that few events have; kept as one small JSON text."""

    call: str | None = None
    exit: int | None = None
    failed: bool | None = None
    extra: dict[str, Any] | None = None


_NO_FACTS = _Facts()
_decode_facts = msgspec.json.Decoder(_Facts).decode


def has_failed(facts: str) -> bool:
    """True if the facts of an event are those of a tool call that failed."""
    known = _decode_facts(facts)
    return bool(known.failed or known.exit)


_session_fields = attrgetter(*SESSION_COLUMNS)
_turn_fields = attrgetter(*TURN_COLUMNS)
_usage_fields = attrgetter(*USAGE_COLUMNS)
_file_fields = attrgetter(*FILE_COLUMNS)
_TERMINAL_TYPE, _TOOLS, _TYPES = map(TURN_COLUMNS.index, ("terminal_type", "tools", "types"))
_STATE = FILE_COLUMNS.index("state")


def session_values(id: int, row: SessionRow) -> Values:
    return id, session_id(row.key), *_session_fields(row)


def read_session(values: Sequence[Any]) -> SessionRow:
    row = SessionRow(**dict(zip(SESSION_COLUMNS, values, strict=True)))
    row.completed, row.provisional = bool(row.completed), bool(row.provisional)
    return row


def turn_values(session: int, change: int, row: TurnRow) -> Values:
    values = [*_turn_fields(row)]
    values[_TERMINAL_TYPE] = None if row.terminal_type is None else row.terminal_type.code
    values[_TOOLS] = _encode(row.tools).decode()
    values[_TYPES] = "".join([str(kind.code) for kind in row.types])
    return session, change, *values


def read_turn(session: str, values: Sequence[Any]) -> TurnRow:
    given = dict(zip(TURN_COLUMNS, values, strict=True))
    row = TurnRow(session=session, **given)
    row.terminal_type = None if given["terminal_type"] is None else EVENT_TYPES[given["terminal_type"]]
    row.tools = _read_tools(given["tools"])
    row.types = _read_types(given["types"])
    row.started_work = bool(row.started_work)
    return row


# Turns are much alike: the same few combinations come again and again.


@lru_cache(maxsize=1024)
def _read_tools(names: str) -> tuple[str, ...]:
    return tuple(_decode(names))


@lru_cache(maxsize=1024)
def _read_types(codes: str) -> tuple[EventType, ...]:
    return tuple(EVENT_TYPES[int(code)] for code in codes)


def event_values(id: int, session: int, project: int | None, row: EventRow, pack: Pack) -> Values:
    if row.type is _CALL:
        body = None if row.arguments is None else pack(_encode(row.arguments).decode())
    else:
        body = pack(row.text)
    facts = None
    if row.call_id is not None or row.exit_code is not None or row.failed is not None or row.extra:
        facts = _encode(_Facts(row.call_id, row.exit_code, row.failed, row.extra)).decode()
    return (
        id,
        session,
        project,
        row.uid,
        row.turn,
        row.ordinal,
        _CODES[row.type],
        row.ts,
        row.tool,
        row.model,
        row.originating_model,
        row.usage_key,
        facts,
        body,
    )


def read_event(session: str, values: Sequence[Any], bodies: Bodies) -> EventRow:
    stored = EventValues(*values)
    facts = _decode_facts(stored.facts) if stored.facts else _NO_FACTS
    kind = EVENT_TYPES[stored.type]
    text, arguments = bodies.unpack(stored.body), None
    if kind is _CALL:
        arguments = _decode(text) if text else None
        text = render_call(stored.tool, arguments)
    return EventRow(
        uid=stored.uid,
        session=session,
        turn=stored.turn,
        ordinal=stored.ordinal,
        type=kind,
        ts=stored.ts,
        text=text,
        tool=stored.tool,
        call_id=facts.call,
        model=stored.model,
        originating_model=stored.originating_model,
        arguments=arguments,
        exit_code=facts.exit,
        failed=facts.failed,
        usage_key=stored.usage,
        extra=facts.extra,
    )


def exchange_values(session: int, change: int, row: ExchangeRow, bodies: Bodies) -> Values:
    text = None if row.user_text is None else bodies.pack(row.user_text)
    return session, change, row.number, row.ts, row.user, text, bytes(row.said)


def read_exchange(session: str, values: Sequence[Any], bodies: Bodies) -> ExchangeRow:
    row = ExchangeRow(session=session, **dict(zip(EXCHANGE_COLUMNS, values, strict=True)))
    row.user_text = None if row.user_text is None else bodies.unpack(row.user_text)
    row.said = bytearray(row.said)
    return row


def usage_values(session: int, row: UsageRow) -> Values:
    return session, *_usage_fields(row)


def read_usage(session: str, values: Sequence[Any]) -> UsageRow:
    # All of them are read when the traces of an archive are made.
    key, turn, ts, model, input, output, cache_read, cache_write_5m, cache_write_1h, reasoning, cost, stop, request = (
        values
    )
    return UsageRow(
        key=key,
        session=session,
        turn=turn,
        ts=ts,
        model=model,
        input_tokens=input,
        output_tokens=output,
        cache_read_tokens=cache_read,
        cache_write_5m_tokens=cache_write_5m,
        cache_write_1h_tokens=cache_write_1h,
        reasoning_tokens=reasoning,
        cost=cost,
        stop_reason=stop,
        request=request,
    )


def file_values(row: FileRow) -> Values:
    values = [*_file_fields(row)]
    values[_STATE] = None if row.state is None else _encode(row.state).decode()
    return tuple(values)


def read_file(values: Sequence[Any]) -> FileRow:
    # There may be tens of thousands, which are all read by every sync.
    path, source, session, inode, size, mtime_ns, offset, prefix, state, errors, last_error, missing = values
    return FileRow(
        path=path,
        source=source,
        session=session,
        inode=inode,
        size=size,
        mtime_ns=mtime_ns,
        offset=offset,
        prefix=prefix,
        state=None if state is None else _decode(state),
        errors=errors,
        last_error=last_error,
        missing=bool(missing),
    )

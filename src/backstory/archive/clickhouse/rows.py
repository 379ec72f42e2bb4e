"""Rows of the tables as the archive's structs, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...model import EVENT_TYPES, EventType, session_id
from ...toolcalls import render_call
from ..base import EventRow, ExchangeRow, FileRow, SessionRow, TurnRow, UsageRow
from ..exchanges import split_uids
from ..query import without_marks
from .documents import event_document, title_stems
from .server import encode

SESSION_COLUMNS = SessionRow.__struct_fields__
TURN_COLUMNS = (
    "session", "ordinal", "turn_key", "started_at", "updated_at", "event_count", "prompt", "terminal", "terminal_type",
    "candidate", "last_answer", "tools", "types", "started_work",
)  # fmt: skip
EVENT_COLUMNS = (
    "session", "turn", "ordinal", "uid", "type", "ts", "tool", "model", "originating_model", "usage_key", "facts",
)  # fmt: skip
"""Without the text, which is in the column `body`."""
ROW_DIGESTS = ("uid", "usage_key", "prompt", "terminal", "candidate", "last_answer")
"""Columns that are hexadecimal digits in a row as JSON."""
EXCHANGE_COLUMNS = ("session", "number", "ts", "user", "user_text", "said")
USAGE_COLUMNS = UsageRow.__struct_fields__
FILE_COLUMNS = tuple(name for name in FileRow.__struct_fields__ if name != "names")  # those are in the state

Values = list[Any]
_decode = msgspec.json.Decoder().decode
_session_decoder = msgspec.json.Decoder(SessionRow)


class _Facts(Struct, omit_defaults=True):
    """Fields that few events have; kept as one small JSON text."""

    call: str | None = None
    exit: int | None = None
    failed: bool | None = None
    extra: dict[str, Any] | None = None


_NO_FACTS = _Facts()
_facts_decoder = msgspec.json.Decoder(_Facts)


def decode_facts(text: str) -> _Facts:
    return _facts_decoder.decode(text) if text else _NO_FACTS


class Codec(Struct, frozen=True):
    """The columns of a table that a struct is written to, with the functions that give their values."""

    table: str
    names: tuple[str, ...]
    values: Callable[[Any, int], Values]
    """Of a row and its version."""


def columns(alias: str, names: Sequence[str]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)


def _session_values(row: SessionRow, version: int) -> Values:
    own = [getattr(row, name) for name in SESSION_COLUMNS]
    return [*own, version, session_id(row.key), title_stems(row.title)]


def decode_row(text: str) -> dict[str, Any]:
    """The column `row` of a table."""
    values: dict[str, Any] = _decode(text)
    for name in ROW_DIGESTS:
        if values.get(name) is not None:
            values[name] = bytes.fromhex(values[name])
    return values


def read_session(values: Sequence[Any]) -> SessionRow:
    (row,) = values
    return _session_decoder.decode(row)


def _turn_values(row: TurnRow, version: int) -> Values:
    values: dict[str, Any] = {name: getattr(row, name) for name in TURN_COLUMNS}
    values["terminal_type"] = None if row.terminal_type is None else row.terminal_type.code
    values["tools"] = list(row.tools)
    values["types"] = [kind.code for kind in row.types]
    return [*values.values(), version]


def read_turn(values: Sequence[Any]) -> TurnRow:
    (text,) = values
    row = TurnRow(**decode_row(text))
    row.terminal_type = None if row.terminal_type is None else EVENT_TYPES[int(row.terminal_type)]
    row.tools = tuple(row.tools)
    row.types = tuple(EVENT_TYPES[int(code)] for code in row.types)
    return row


def text_of(row: EventRow) -> str:
    """The text that an event shows and is found by."""
    return render_call(row.tool, row.arguments) if row.type is EventType.TOOL_CALL else row.text


def event_values(row: EventRow, version: int, number: int, project: str) -> Values:
    """The values of an event and those that it is found by. `number` is that of the event among those of its
    version."""
    body = row.text
    if row.type is EventType.TOOL_CALL:
        body = "" if row.arguments is None else encode(row.arguments)
    facts = ""
    if row.call_id is not None or row.exit_code is not None or row.failed is not None or row.extra:
        facts = encode(_Facts(row.call_id, row.exit_code, row.failed, row.extra))
    text = without_marks(text_of(row))
    document = event_document(text, row.type, is_body=text is body)
    return [
        row.session, row.turn, row.ordinal, row.uid, row.type.code, row.ts, row.tool, row.model, row.originating_model,
        row.usage_key, facts, body, version, number, row.session.partition("/")[0], project, *document,
    ]  # fmt: skip


EVENT_WRITTEN = (
    *EVENT_COLUMNS, "body", "version", "number", "source", "project", "is_plain", "lines", "stem_lines",
)  # fmt: skip


def read_event(values: Sequence[Any]) -> EventRow:
    """From a row and the text of an event."""
    row, text = values
    given = decode_row(row)
    facts = decode_facts(given["facts"])
    kind, arguments = EVENT_TYPES[given["type"]], None
    if kind is EventType.TOOL_CALL:
        arguments = _decode(text) if text else None
        text = render_call(given["tool"], arguments)
    return EventRow(
        uid=given["uid"],
        session=given["session"],
        turn=given["turn"],
        ordinal=given["ordinal"],
        type=kind,
        ts=given["ts"],
        text=text,
        tool=given["tool"],
        call_id=facts.call,
        model=given["model"],
        originating_model=given["originating_model"],
        arguments=arguments,
        exit_code=facts.exit,
        failed=facts.failed,
        usage_key=given["usage_key"],
        extra=facts.extra,
    )


def exchange_values(row: ExchangeRow, version: int, tokens: list[str]) -> Values:
    said = split_uids(row.said)
    return [row.session, row.number, row.ts, row.user, row.user_text, said, version, "\n".join(tokens)]


EXCHANGE_WRITTEN = (*EXCHANGE_COLUMNS, "version", "lines")


def read_exchange(values: Sequence[Any]) -> ExchangeRow:
    row = ExchangeRow(**dict(zip(EXCHANGE_COLUMNS, values, strict=True)))
    row.said = bytearray(b"".join(row.said))  # type: ignore[arg-type]
    return row


def read_usage(values: Sequence[Any]) -> UsageRow:
    return UsageRow(**dict(zip(USAGE_COLUMNS, values, strict=True)))


def file_values(row: FileRow, version: int, machine: str) -> Values:
    values = msgspec.structs.asdict(row)
    values["prefix"] = row.prefix.hex()
    values["state"] = None if row.state is None else encode(row.state)
    return [*(values[name] for name in FILE_COLUMNS), version, machine]


FILE_WRITTEN = (*FILE_COLUMNS, "version", "machine")


def read_file(values: Sequence[Any]) -> FileRow:
    given = dict(zip(FILE_COLUMNS, values, strict=True))
    given["prefix"] = bytes.fromhex(given["prefix"])
    given["state"] = None if given["state"] is None else _decode(given["state"])
    return FileRow(**given)


SESSIONS = Codec("session", (*SESSION_COLUMNS, "version_of_row", "public_id", "title_stems"), _session_values)
TURNS = Codec("turn", (*TURN_COLUMNS, "version"), _turn_values)

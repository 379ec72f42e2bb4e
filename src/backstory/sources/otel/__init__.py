"""OpenTelemetry: OTLP bodies and the meaning of their attributes, and the sessions that telemetry reports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ...model import EventType, file_name, session_of_file
from ..base import Event, Item, Lookup, Parser, Source, Transcript
from ..parsing import Call, remember

FOLDER = "otel"
"""Below Backstory's home."""
_MAX_CALLS = 512


class Line(Struct, omit_defaults=True):
    """One event of such a session, as a line of its file."""

    uid: str
    ts: int
    type: EventType
    text: str = ""
    tool: str | None = None
    call: str | None = None
    arguments: Any = None
    model: str | None = None
    failed: bool | None = None
    cwd: str | None = None


def session_file(home: Path, session: str) -> Path:
    """The file of a session, below Backstory's home."""
    return home / FOLDER / file_name(session)


class Otel(Source):
    """The source of these sessions. It has no roots: the files lie in Backstory's home, which the library adds."""

    name = "otel"

    def accepts(self, path: Path) -> bool:
        return path.parent.name == FOLDER and session_of_file(path.name) is not None

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        session = session_of_file(path.name)
        return Transcript(source=self.name, path=path, session=session) if session else None

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Lines(msgspec.convert(state or {}, _State))


class _State(Struct, omit_defaults=True):
    calls: dict[str, Call] = {}
    """The latest tool calls, by their ids: a response often has no more than the id."""


class _Lines:
    def __init__(self, state: _State) -> None:
        self._state = state

    def parse(self, record: Any) -> Iterable[Item]:
        line = msgspec.convert(record, Line)
        of_model = line.type in (EventType.ASSISTANT_RESPONSE, EventType.REASONING, EventType.TOOL_CALL)
        tool, caller = line.tool, line.model if line.type is EventType.TOOL_CALL else None
        if line.type is EventType.TOOL_CALL and line.call and tool:
            remember(self._state.calls, line.call, Call(tool, caller), _MAX_CALLS)
        elif line.type is EventType.TOOL_RESPONSE and (call := self._state.calls.get(line.call or "")):
            tool, caller = tool or call.tool, call.model
        yield Event(
            uid=bytes.fromhex(line.uid),
            type=line.type,
            text=line.text,
            ts=line.ts,
            starts_turn=line.type is EventType.USER_INPUT,
            may_end_turn=line.type is EventType.ASSISTANT_RESPONSE,
            tool=tool,
            call_id=line.call,
            model=line.model if of_model else None,
            originating_model=caller,
            arguments=line.arguments,
            failed=line.failed,
            cwd=line.cwd,
        )

    def finish(self) -> Iterable[Item]:
        return ()

    def state(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self._state)
        return plain

"""What telemetry tells of sessions: which one it is about, and what was said in it."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path

import msgspec

from ...archive.base import Archive
from ...config import make_private_folder
from ...model import digest, session_mark
from ...otelfiles import FOLDER, Line, file_name
from .messages import Said

__all__ = ["Sessions", "TelemetrySession", "agent_of"]

_OWN = "otel"
# How agents name their service -> the source that reads their transcripts.
_AGENTS = {
    "claude-code": "claude-code",
    "claude_code": "claude-code",
    "gemini-cli": "gemini-cli",
    "qwen-code": "qwen-code",
}
_MAX_ID_CHARS = 1_000
_SESSIONS_AT_HAND = 1_000
_MAX_NAME_CHARS = 250  # what file systems take


class TelemetrySession(msgspec.Struct, frozen=True):
    key: str
    native: str
    kept: bool
    """Whether what is said in it has to be kept: no transcript tells it better."""


@lru_cache(maxsize=256)
def agent_of(service: str | None) -> str | None:
    """The source of an agent's transcripts, by the name of the service that sends its telemetry."""
    name = (service or "").lower()
    # codex_exec, codex_cli_rs, codex-app-server: each of Codex' programs has a name of its own.
    return "codex" if name.startswith("codex") else _AGENTS.get(name)


class Sessions:
    def __init__(self, archive: Archive, home: Path) -> None:
        self._archive = archive
        self._folder = make_private_folder(home / FOLDER)
        self._lock = threading.Lock()
        self._told: OrderedDict[str, set[str]] = OrderedDict()

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
        return TelemetrySession(f"{_OWN}/{native}", native, len(file_name(native)) <= _MAX_NAME_CHARS)

    def lines(
        self, session: TelemetrySession, said: list[Said], ts: int, model: str | None, cwd: str | None
    ) -> list[Line]:
        """One line for each thing said. Calls repeat what was said before them: the same words in the same place of the
        conversation are the same event."""
        seen: dict[tuple[str, ...], int] = {}
        lines = []
        for entry in said:
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
        path = self._folder / file_name(session.native)
        with self._lock, os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
            file.write(data)

    def _news(self, session: TelemetrySession, lines: list[Line]) -> list[Line]:
        """Every call of a conversation tells all of it again. What is told twice counts once anyway; this keeps the
        files short, for the sessions at hand."""
        with self._lock:
            told = self._told.setdefault(session.native, set())
            self._told.move_to_end(session.native)
            if len(self._told) > _SESSIONS_AT_HAND:
                self._told.popitem(last=False)
            news = [line for line in lines if line.uid not in told]
            told.update(line.uid for line in lines)
            return list({line.uid: line for line in reversed(news)}.values())[::-1]

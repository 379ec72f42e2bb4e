"""The source: finds Claude Code's transcripts and describes each before it is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ...model import parse_time
from ..base import Lookup, Parser, Source, Transcript
from ..content import readable
from ..decoding import records_on
from .children import HelperParser, holds_displaced
from .content import Part, split_prompt
from .kinds import SKIPPED_RECORDS, TITLES
from .layout import (
    Projects,
    agent_id,
    agent_session,
    desktop_session,
    is_helper,
    is_session_id,
    is_transcript_name,
    session_folder,
)

_NAME = "claude-code"
_MAX_LOOK_AHEAD = 8 << 20
# A first record may have a book or images in it: it is looked at to its end, as far as any line is read.
_MAX_LINE = 64 << 20
_TAIL = 64 << 10
_TIMESTAMP = re.compile(rb'"timestamp":\s?"([0-9T:.+Z-]{19,35})"')
_LATER = 1 << 50  # beyond any time in milliseconds
_METADATA = {*SKIPPED_RECORDS, *TITLES, "cost-state", "queue-operation", "pr-link", "worktree-state", "relocated"}
_TYPE_FIRST = b'{"type":"'
_BOOKKEEPING = tuple(f'{{"type":"{kind}",'.encode() for kind in SKIPPED_RECORDS)
_SNAPSHOT = b'"attachment":{"type":"prompt_snapshot"'
_SNAPSHOT_WITHIN = 256
_ASKED = (Part.PROMPT, Part.TASK, Part.SHELL)
_PROBE = b"/usage"
_PROBES = {_PROBE.decode(), "/status", "/cost", "/exit", "/quit"}


class ClaudeCode(Source):
    name = _NAME

    def __init__(self) -> None:
        self._projects = Projects()

    def accepts(self, path: Path) -> bool:
        return is_transcript_name(path)

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        if path.suffix == ".json":
            return _describe_export(path, head)
        first = _First(path, head)
        is_whole = _is_whole(path, head)
        if not first.ours or _is_foreign_helper(path, first.records, head if is_whole else b""):
            return None
        session, parent = _identity(path, first)
        begun, ended = _time(first.opening), _last_time(_tail(path, head, is_whole=is_whole))
        family = str(first.opening.get("uuid") or session)
        if desktop_session(path):  # one conversation of the app goes on over several transcripts
            family = session
        elif parent is None and (earlier := _earliest_part(self._projects.parts_of(path))):
            family = str(earlier.get("uuid") or session)
        helps = is_helper(path)
        copied = first.is_copy or parent is not None or helps or _is_renamed(path, first)
        return Transcript(
            source=_NAME,
            path=path,
            session=session,
            parent=parent,
            begun=begun,
            folder=None if parent else session_folder(path).parent.name,
            family=family,
            # Copies share their first record, so they come in the order in which they ended: who forks a conversation
            # goes on with the fork. Parts of one session come in the order in which they began.
            rank=(begun + _LATER * copied, f"{ended:015d} {session}"),
            feeds=helps and holds_displaced(path),
            after=(first.forked_from,) if first.forked_from else (),
        )

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        if is_helper(transcript.path):
            return HelperParser()
        # Looking for new transcripts does not need the parser.
        from .parser import ClaudeCodeParser

        return ClaudeCodeParser(transcript, state, self._projects)

    def skips(self, line: bytes) -> bool:
        """Bookkeeping, which is most of the bytes that Claude Code writes since 2.1.300 or so.

        A key of another record on the same line (a writer that died left its line open) makes it worth decoding; in
        texts the quotes are escaped.
        """
        if line.startswith(_TYPE_FIRST) and line.startswith(_BOOKKEEPING):
            return b'"parentUuid":' not in line and line.count(b'"sessionId":') < 2
        return line.find(_SNAPSHOT, 0, _SNAPSHOT_WITHIN) >= 0 and line.count(b'"parentUuid":') == 1

    def records(self, path: Path) -> Iterator[Any] | None:
        if path.suffix != ".json":
            return None
        return iter(msgspec.json.decode(path.read_bytes(), type=_Export).loglines)

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        return ()


class _Export(Struct):
    """A session downloaded from Claude Code on the web."""

    loglines: list[Any]


class _First:
    """The beginning of a transcript: its session, its opening record, the session it was forked from."""

    def __init__(self, path: Path, head: bytes) -> None:
        self.ours = False
        self.opening: dict[str, Any] = {}
        """The first record with a uuid: forks copy it, so it names the family."""
        self.session: str | None = None
        self.forked_from: str | None = None
        self._prepared = 0
        """The latest time above the opening."""
        self.records: list[dict[str, Any]] = []
        for record in _leading(path, head):
            if record.get("type") == "session_meta":  # Codex, Qoder: the rest may look alike
                return
            self.records.append(record)
            self.ours = self.ours or _is_ours(record)
            if self.session is None and isinstance(session := record.get("sessionId"), str) and session:
                self.session = session
            if not self.opening and not isinstance(record.get("uuid"), str):
                self._prepared = max(self._prepared, _time(record))
            if not self.opening and isinstance(record.get("uuid"), str):
                self.opening = record
                origin = record.get("forkedFrom")
                if isinstance(origin, dict) and isinstance(session := origin.get("sessionId"), str):
                    self.forked_from = session
            if self.ours and self.opening:
                break

    @property
    def is_copy(self) -> bool:
        """True when the opening is a copy of another session's, by its own fields or by its time: what Claude Code
        wrote above the opening when it began the file is later than the opening."""
        is_background = self.opening.get("sessionKind") == "bg"
        return self.forked_from is not None or is_background or 0 < _time(self.opening) < self._prepared


def _leading(path: Path, head: bytes) -> Iterator[dict[str, Any]]:
    """The records at the beginning, out of the head as far as it goes."""
    end = head.rfind(b"\n") + 1
    yield from _decoded(BytesIO(head[:end]))  # the first few lines are enough for most
    try:
        with path.open("rb") as file:
            file.seek(end)
            while file.tell() < end + _MAX_LOOK_AHEAD and (line := file.readline(_MAX_LINE)):
                yield from _decoded([line])
    except OSError:  # described from its head alone
        yield from _decoded([head[end:]])


def _decoded(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        yield from records_on(line)


def _is_ours(record: dict[str, Any]) -> bool:
    """Other agents write JSON lines too, some with the same types: the shape of a message decides."""
    kind = record.get("type")
    if kind in ("user", "assistant"):
        message = record.get("message")
        return isinstance(message, dict) and "content" in message
    if kind == "summary":
        return "leafUuid" in record
    if kind in ("system", "attachment", "progress"):
        return "sessionId" in record and ("isSidechain" in record or "userType" in record)
    return isinstance(kind, str) and kind in _METADATA and ("sessionId" in record or "messageId" in record)


def _identity(path: Path, first: _First) -> tuple[str, str | None]:
    """The session a transcript belongs to, and the one that started it.

    The name of the file decides, for forks carry records of other sessions. Helpers belong to the session they help.
    """
    desktop = desktop_session(path)
    agent = agent_id(path)
    if desktop:
        root = desktop.name
    elif "subagents" in path.parts[:-1]:
        root = session_folder(path).name
    elif agent is None and is_session_id(path.stem):
        root = path.stem
    else:
        root = first.session or path.stem
        if agent is None and first.opening.get("isSidechain") is True:
            named = first.opening.get("agentId")  # a subagent's transcript under another name
            agent = named if isinstance(named, str) else None
    if agent is None or is_helper(path):
        return root, None
    return agent_session(root, agent), root


def _is_renamed(path: Path, first: _First) -> bool:
    """True for a transcript under the name of one session with the opening of another: a copy of a file, or of records
    as they were."""
    if not is_session_id(path.stem) or desktop_session(path):
        return False
    return bool(first.opening.get("sessionId", path.stem) != path.stem)


def _earliest_part(parts: list[Path]) -> dict[str, Any] | None:
    """The opening record of the part that began first, when the session stands in the folders of several projects."""
    if len(parts) == 1:
        return None
    openings = [_First(part, b"").opening for part in parts]
    return min(openings, key=lambda opening: (_time(opening), str(opening.get("uuid") or "")))


def _time(record: dict[str, Any]) -> int:
    return parse_time(record.get("timestamp")) or 0


def _is_whole(path: Path, head: bytes) -> bool:
    """True if the head is all of the file."""
    try:
        return path.stat().st_size <= len(head)
    except OSError:
        return True


def _tail(path: Path, head: bytes, *, is_whole: bool) -> bytes:
    if is_whole:
        return head[-_TAIL:]
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read(_TAIL)
    except OSError:
        return head


def _last_time(tail: bytes) -> int:
    stamps: list[bytes] = _TIMESTAMP.findall(tail)
    if len(set(map(len, stamps))) == 1 and b"".join(stamps).count(b"Z") == len(stamps):
        # Of one form, they are ordered as their texts are.
        latest = parse_time(max(stamps).decode())
        if latest is not None:
            return latest
    times = [moment for stamp in stamps if (moment := parse_time(stamp.decode()))]
    return max(times, default=0)


def _is_foreign_helper(path: Path, records: list[dict[str, Any]], whole: bytes) -> bool:
    """Headless sessions other tools run for themselves: claude-mem's observers, which summarise what other sessions do
    (thousands of them, with everything said twice), and probes that ask for `/usage` and leave. `whole` is the file,
    where it is small."""
    if any("claude-mem-observer-sessions" in folder for folder in path.parts[:-1]):
        return True
    if any("/.claude-mem/observer-sessions" in str(record.get("cwd") or "").replace("\\", "/") for record in records):
        return True
    return _PROBE in whole and _only_probes(whole)


def _only_probes(transcript: bytes) -> bool:
    asked = False
    for record in _decoded(BytesIO(transcript)):
        message = record.get("message")
        if not isinstance(message, dict):
            continue
        if record.get("type") == "assistant" and message.get("model") != "<synthetic>":
            return False
        if record.get("type") == "user" and not record.get("isMeta"):
            for piece in split_prompt(readable(message.get("content"))):
                if piece.part in _ASKED or (piece.part is Part.COMMAND and piece.text not in _PROBES):
                    return False
                asked = asked or piece.text == _PROBE.decode()
    return asked


def _describe_export(path: Path, head: bytes) -> Transcript | None:
    if not re.match(rb'\s*\{\s*"loglines"\s*:', head):
        return None
    return Transcript(source=_NAME, path=path, session=path.stem, family=path.stem)

"""Cursor: transcripts of its agent, one file per session, and chats of its editor, in a database.

Transcripts are `projects/<slug>/agent-transcripts/<session>.jsonl`, or `<session>/<session>.jsonl`, and the older
`.txt`. Subagents lie in `subagents/` beside their session. Records have no ids, models or tokens, and mostly no times
but those that Cursor puts before a prompt. Calls have no ids either: results follow in their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec

from ..model import EventType, digest, parse_time
from .base import Item, Lookup, Parser, Source, Stored, Transcript, TurnEnd
from .content import blocks_of, inside, is_unknown, readable, spoken
from .cursor_editor import STORE, Bubbles, changes_in, sessions_in
from .database import open_database
from .decoding import begun_at, decode_or_none, head_records
from .fields import Payload, mapping_of, text_of
from .parsing import PendingMemory, RecordParser, restored

_FOLDER = "agent-transcripts"
_MARKER = re.compile(r"^(user|assistant):[ \t]*$", re.MULTILINE)
# Before a prompt: "<timestamp>Sunday, Aug 2, 2026, 3:51 AM (UTC-7)</timestamp>", also (UTC+5:30) and (UTC).
_TIMESTAMP = re.compile(
    r"\s*<timestamp>\w+, ([A-Z][a-z]{2})\w* (\d{1,2}), (\d{4}), (\d{1,2}):(\d\d)\s([AP])M"
    r" \(UTC(?:([+-])(\d{1,2})(?::(\d\d))?)?\)</timestamp>\s*"
)
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_NOTIFICATION = "<system_notification>"
# Stands in an answer for a thought that Cursor leaves out.
_WITHHELD = "[REDACTED]"
# In a transcript of text, a part of an answer. What belongs to it is indented.
_PART = re.compile(r"\[(Thinking|Tool call|Tool result)\][ \t]*(.*)")
_ARGUMENT = re.compile(r"(\w+)(?:=|:(?: |$))(.*)")
_CALLS = {"tool_use", "tool_call", "tool-call"}
_RESULTS = {"tool_result", "tool-result"}


class Cursor(Source):
    name = "cursor"

    def accepts(self, path: Path) -> bool:
        return path.name == STORE or (path.suffix in (".jsonl", ".txt") and _FOLDER in path.parts)

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records: list[Payload] = []
        if path.suffix == ".jsonl":
            records = list(head_records(path, head))
            if not any("role" in record or "message" in record for record in records):
                return None
        elif not _MARKER.search(head.decode("utf-8", "replace")) or _has_newer(path):
            return None
        parent = path.parent.parent.name if path.parent.name == "subagents" else None
        return Transcript(
            source=self.name,
            path=path,
            session=path.stem,
            parent=None if parent == _FOLDER else parent,
            begun=begun_at(records, "timestamp") or next(filter(None, map(_asked_at, records)), 0),
        )

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        if transcript.path.name.startswith(STORE):
            return Bubbles(transcript)
        return CursorParser(transcript, restored(PendingMemory, state))

    def records(self, path: Path) -> Iterator[Any] | None:
        if path.suffix != ".txt":
            return None
        pieces = _MARKER.split(path.read_text("utf-8", "replace"))
        return iter(
            [
                {"role": role, "message": {"content": _parts_of(text) if role == "assistant" else text.strip()}}
                for role, text in zip(pieces[1::2], pieces[2::2], strict=True)
                if text.strip()
            ]
        )

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        return sessions_in(path) if path.name == STORE else None

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        return changes_in(path, session, since)


class CursorParser(RecordParser[PendingMemory]):
    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("timestamp"))
        if self.memory.count == 1:
            self._note_chat()
        self.memory.model = text_of(record, "model") or self.memory.model
        self.note(parent=self.transcript.parent)
        # Without ids, a record is identified by its place and what it says. A transcript of text is always read whole.
        growing = self.transcript.path.suffix == ".txt"
        content = "" if growing else digest(msgspec.json.encode(record).decode()).hex()
        identity = f"{self.transcript.session} {self.memory.count} {content}"
        role, message = text_of(record, "role"), mapping_of(record, "message")
        if "turn_ended" in (record.get("type"), record.get("event")):
            self._read_end(record, identity)
        elif role == "assistant":
            self._read_answer(message, identity, growing)
        elif role in ("user", "tool"):
            self._read_user(message, identity, growing)
        elif role != "system":
            self.add_unknown(record, identity)

    def finish(self) -> Iterable[Item]:
        self.reset()
        self._note_chat()
        return [*self.items, TurnEnd(provisional=True)]

    def _note_chat(self) -> None:
        """Title and model stand in the database of the chat, whose messages cannot be read."""
        path = self.transcript.path
        folder = next((parent.parent for parent in path.parents if parent.name == "projects"), path.parent)
        for store in folder.glob(f"chats/*/{self.transcript.session}/store.db"):
            with suppress(OSError, ValueError), open_database(store) as database:
                row = database.execute("SELECT value FROM meta WHERE key = '0'").fetchone()
                about = mapping_of(decode_or_none(bytes.fromhex(row["value"])) if row else None)
                self.note(title=text_of(about, "name"), title_rank=2)
                model = text_of(about, "lastUsedModel")
                self.memory.model = self.memory.model or (None if model == "default" else model)

    def _read_end(self, record: Payload, identity: str) -> None:
        status = text_of(record, "status") or "success"
        if status == "success":
            self.end_turn()
        else:
            extra = {"interrupted": True} if status in ("aborted", "cancelled") else None
            text = f"Turn ended: {text_of(record, 'error') or status}"
            self.add(EventType.RUNTIME, text, identity, ends_turn=True, extra=extra)

    def _read_user(self, message: Payload, identity: str, growing: bool) -> None:
        said: list[Any] = []
        for number, block in enumerate(blocks_of(message.get("content")) or ()):
            if isinstance(block, dict) and text_of(block, "type") in _RESULTS:
                self._read_result(block, identity, str(number), growing)
            else:
                said.append(block)
        ts, text = _dated("\n".join(text for block in said if (text := spoken([block]).strip())))
        self.ts = self.ts or ts
        if text.startswith(_NOTIFICATION):
            self.add(EventType.SYSTEM, text, identity, "context")
            text = ""
        start = text.find("<user_query>")
        if start >= 0:
            context, text = text[:start].strip(), inside(text[start:], "user_query") or ""
            if context:
                self.add(EventType.SYSTEM, context, identity, "context")
        if text:
            self.add_prompt(text, identity, "prompt", replaces=growing)
        self.add_unknown_blocks(said, identity)

    def _read_result(self, block: Payload, identity: str, part: str, growing: bool) -> None:
        pending = self.memory.pending
        call_id = text_of(block, "tool_use_id", "tool_call_id")
        if call_id not in pending and pending:
            call_id = pending[0]
        if call_id in pending:
            pending.remove(call_id)
        failed = block.get("is_error")
        failed = failed if isinstance(failed, bool) else None
        text = readable(block.get("content"))
        tool = text_of(block, "name")
        self.add_response(text, call_id, identity, part, tool=tool, failed=failed, replaces=growing)

    def _read_answer(self, message: Payload, identity: str, growing: bool) -> None:
        blocks = [block for block in blocks_of(message.get("content")) or () if isinstance(block, dict)]
        kinds = [text_of(block, "type") for block in blocks]
        calls, results = ([n for n, kind in enumerate(kinds) if kind in named] for named in (_CALLS, _RESULTS))
        asks = calls[-1:] > results[-1:]
        for number, block in enumerate(blocks):
            part, kind = str(number), kinds[number]
            if kind in _CALLS:
                call_id = text_of(block, "id", "toolCallId") or f"{self.memory.count}.{number}"
                self.memory.await_result(call_id)
                tool = text_of(block, "name", "toolName") or "unknown"
                self.add_call(tool, call_id, block.get("input", block.get("args")), identity, part, replaces=growing)
            elif kind in _RESULTS:
                self._read_result(block, identity, part, growing)
            elif kind in ("thinking", "reasoning"):
                if text := text_of(block, "thinking", "text"):
                    self.add_reasoning(text, identity, part, replaces=growing)
            elif is_unknown(block):
                self.add_unknown(block, identity, part).replaces = growing
            elif text := readable(block).removesuffix(_WITHHELD).rstrip():
                self.add_answer(text, identity, part, may_end_turn=not asks, replaces=growing)


def _has_newer(path: Path) -> bool:
    """True if a newer version goes on with a transcript of text in another file."""
    name = f"{path.stem}.jsonl"
    return path.with_name(name).exists() or (path.with_name(path.stem) / name).exists()


def _asked_at(record: Payload) -> int | None:
    return _dated(readable(mapping_of(record, "message").get("content")))[0]


def _dated(text: str) -> tuple[int | None, str]:
    """The time that stands before a prompt, and the text after it."""
    found = _TIMESTAMP.match(text)
    if found is None or found[1] not in _MONTHS:
        return None, text
    day, year, hour, minute = map(int, found.group(2, 3, 4, 5))
    ahead = timedelta(hours=int(found[8] or 0), minutes=int(found[9] or 0)) * (-1 if found[7] == "-" else 1)
    try:
        hour = hour % 12 + 12 * (found[6] == "P")
        moment = datetime(year, _MONTHS.index(found[1]) + 1, day, hour, minute, tzinfo=timezone(ahead))
    except ValueError:
        return None, text
    return parse_time(moment.isoformat()), text[found.end() :]


def _parts_of(text: str) -> list[Payload]:
    """An answer in a transcript of text, as the blocks that newer versions write."""
    blocks: list[Payload] = []
    kind, head, lines = "", "", list[str]()
    for line in (*text.strip().splitlines(), "[Thinking]"):  # which ends the last part
        marker = _PART.match(line)
        if marker is None and (not kind or not line.strip() or line[0].isspace()):
            lines.append(line)
            continue
        body = dedent("\n".join(lines)).strip()
        match kind:
            case "Thinking":
                blocks.append({"type": "thinking", "thinking": f"{head}\n{body}".strip()})
            case "Tool call":
                blocks.append({"type": "tool_use", "name": head, "input": _arguments_of(body)})
            case "Tool result":
                blocks.append({"type": "tool_result", "name": head, "content": body})
            case _ if body:
                blocks.append({"type": "text", "text": body})
        kind, head, lines = (marker[1], marker[2], []) if marker else ("", "", [line])
    return blocks


def _arguments_of(text: str) -> Any:
    """JSON, or a line for each argument; a line without a name belongs to the one before it."""
    decoded = decode_or_none(text)
    if isinstance(decoded, dict):
        return decoded
    found: dict[str, str] = {}
    name = "input"
    for line in text.splitlines():
        if argument := _ARGUMENT.match(line):
            name = argument[1]
            found[name] = argument[2]
        else:
            found[name] = f"{found[name]}\n{line}" if name in found else line
    return found

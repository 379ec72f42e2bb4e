"""Agent transcripts: `projects/<slug>/agent-transcripts/<session>.jsonl`, or `<session>/<session>.jsonl`, and the older
`.txt`. Subagents lie in `subagents/` beside their session.

Records have no ids and mostly no times, models or tokens. Calls have no ids either: results follow in their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from ...model import EventType, digest, parse_time
from ..base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from ..content import blocks_of, inside, readable
from ..decoding import begun_at, head_records
from ..fields import Payload, mapping_of, text_of
from ..parsing import Memory, RecordParser, restored

_FOLDER = "agent-transcripts"
_MARKER = re.compile(r"^(user|assistant):[ \t]*$", re.MULTILINE)
_CALLS = {"tool_use", "tool_call", "tool-call"}
_RESULTS = {"tool_result", "tool-result"}
_MAX_PENDING = 256


class Cursor(Source):
    name = "cursor"

    def accepts(self, path: Path) -> bool:
        return path.suffix in (".jsonl", ".txt") and _FOLDER in path.parts

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records: list[Payload] = []
        if path.suffix == ".jsonl":
            records = list(head_records(path, head))
            if not any("role" in record or "message" in record for record in records):
                return None
        elif not _MARKER.search(head.decode("utf-8", "replace")):
            return None
        parent = path.parent.parent.name if path.parent.name == "subagents" else None
        return Transcript(
            source=self.name,
            path=path,
            session=path.stem,
            parent=None if parent == _FOLDER else parent,
            begun=begun_at(records, "timestamp"),
        )

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return CursorParser(transcript, restored(CursorMemory, state))

    def records(self, path: Path) -> Iterator[Any] | None:
        if path.suffix != ".txt":
            return None
        pieces = _MARKER.split(path.read_text("utf-8", "replace"))
        return iter(
            [
                {"role": role, "message": {"content": text.strip()}}
                for role, text in zip(pieces[1::2], pieces[2::2], strict=True)
                if text.strip()
            ]
        )

    def resume(self, session: str) -> tuple[str, ...] | None:
        return ("cursor-agent", f"--resume={session}")


class CursorMemory(Memory):
    pending: list[str] = field(default_factory=list)
    """The ids of the calls that wait for their results."""


class CursorParser(RecordParser[CursorMemory]):
    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("timestamp"))
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
        return (TurnEnd(provisional=True),)

    def _read_end(self, record: Payload, identity: str) -> None:
        status = text_of(record, "status") or "success"
        if status == "success":
            self.end_turn()
        else:
            extra = {"interrupted": True} if status in ("aborted", "cancelled") else None
            text = f"Turn ended: {text_of(record, 'error') or status}"
            self.add(EventType.RUNTIME, text, identity, ends_turn=True, extra=extra)

    def _read_user(self, message: Payload, identity: str, growing: bool) -> None:
        spoken: list[str] = []
        for number, block in enumerate(blocks_of(message.get("content")) or ()):
            if isinstance(block, dict) and text_of(block, "type") in _RESULTS:
                self._read_result(block, identity, str(number))
            elif text := readable(block).strip():
                spoken.append(text)
        text = "\n".join(spoken)
        start = text.find("<user_query>")
        if start >= 0:
            context, text = text[:start].strip(), inside(text[start:], "user_query") or ""
            if context:
                self.add(EventType.SYSTEM, context, identity, "context")
        if text:
            self.add_prompt(text, identity, "prompt", replaces=growing)

    def _read_result(self, block: Payload, identity: str, part: str) -> None:
        pending = self.memory.pending
        call_id = text_of(block, "tool_use_id", "tool_call_id")
        if call_id not in pending and pending:
            call_id = pending[0]
        if call_id in pending:
            pending.remove(call_id)
        failed = block.get("is_error")
        failed = failed if isinstance(failed, bool) else None
        text = readable(block.get("content"))
        self.add_response(text, call_id, identity, part, tool=text_of(block, "name"), failed=failed)

    def _read_answer(self, message: Payload, identity: str, growing: bool) -> None:
        blocks = [block for block in blocks_of(message.get("content")) or () if isinstance(block, dict)]
        asks = any(text_of(block, "type") in _CALLS for block in blocks)
        for number, block in enumerate(blocks):
            part, kind = str(number), text_of(block, "type")
            if kind in _CALLS:
                call_id = text_of(block, "id", "toolCallId") or f"{self.memory.count}.{number}"
                self.memory.pending = [*self.memory.pending[1 - _MAX_PENDING :], call_id]
                tool = text_of(block, "name", "toolName") or "unknown"
                self.add_call(tool, call_id, block.get("input", block.get("args")), identity, part)
            elif kind in ("thinking", "reasoning"):
                if text := text_of(block, "thinking", "text"):
                    self.add_reasoning(text, identity, part)
            elif text := readable(block):
                self.add_answer(text, identity, part, may_end_turn=not asks, replaces=growing)

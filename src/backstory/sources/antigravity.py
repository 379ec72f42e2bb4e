"""Antigravity: `brain/<session>/.system_generated/logs/transcript.jsonl`, a log of steps.

Steps of the planner have the calls; steps of other types follow, one for each call, with what it gave. Some versions
write `transcript_full.jsonl` beside it, without the cuts that `truncated_fields` names: it is read instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .content import exit_code_in, inside, readable
from .decoding import begun_at, head_records
from .fields import Payload, arguments_of, list_of, only_mappings, text_of
from .parsing import PendingMemory, RecordParser, restored

_EXIT_CODE = re.compile(r"exit code:? (\d{1,5})", re.IGNORECASE)
_FULL, _SHORT = "transcript_full.jsonl", "transcript.jsonl"
_AROUND = ("ADDITIONAL_METADATA", "USER_SETTINGS_CHANGE")
_MODEL = re.compile(r"`Model Selection` from .{0,80}? to ([^\n]{1,80}?)\.?\s*$", re.MULTILINE)
_COMPACTIONS = {"CHECKPOINT"}
_SKIPPED = {"CONVERSATION_HISTORY", "EPHEMERAL_MESSAGE"}


class Antigravity(Source):
    name = "antigravity"

    def accepts(self, path: Path) -> bool:
        return path.name in (_FULL, _SHORT) and path.parent.name == "logs"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(path, head))
        if not any("source" in record and "created_at" in record for record in records):
            return None
        if path.name == _SHORT and path.with_name(_FULL).exists():
            return None
        session = path.parent.parent.parent.name
        return Transcript(source=self.name, path=path, session=session, begun=begun_at(records, "created_at"))

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return AntigravityParser(transcript, restored(PendingMemory, state))


class AntigravityParser(RecordParser[PendingMemory]):
    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("created_at"))
        # Steps are numbered, but the numbers begin anew at times.
        identity = (
            f"{self.transcript.session} {record.get('step_index')} {record.get('created_at')} {self.memory.count}"
        )
        source, kind = (text_of(record, "source") or "").upper(), text_of(record, "type") or ""
        text = readable(record.get("content"))
        if kind == "USER_INPUT" or (not kind and source.startswith("USER")):
            self._read_user(text, identity)
        elif kind == "PLANNER_RESPONSE" or (not kind and source == "MODEL"):
            self._read_answer(record, text, identity)
        elif kind in _COMPACTIONS:
            self.add(EventType.COMPACTION, text, identity)
        elif kind in _SKIPPED:
            return
        elif source == "SYSTEM":
            if text:
                self.add(EventType.SYSTEM, text, identity)
        else:
            self._read_step(record, kind, text, identity)

    def finish(self) -> Iterable[Item]:
        return (TurnEnd(provisional=True),)

    def _read_user(self, text: str, identity: str) -> None:
        if found := _MODEL.search(text):
            self.memory.model = found[1]
        for tag in _AROUND:
            start, end = text.find(f"<{tag}>"), text.rfind(f"</{tag}>")
            if 0 <= start < end:
                text = text[:start] + text[end + len(tag) + 3 :]
        request = inside(text, "USER_REQUEST")
        if prompt := (text.strip() if request is None else request):
            self.add_prompt(prompt, identity)

    def _read_answer(self, record: Payload, text: str, identity: str) -> None:
        calls = only_mappings(record.get("tool_calls"))
        if thought := text_of(record, "thinking"):
            self.add_reasoning(thought, identity, "thinking")
        if text:
            self.add_answer(text, identity, "answer", may_end_turn=not calls)
        for number, call in enumerate(calls):
            self._call(call, identity, number)

    def _call(self, call: Payload, identity: str, number: int) -> str:
        call_id = f"{self.memory.count}.{number}"
        self.memory.await_result(call_id)
        arguments = arguments_of(call.get("args"))
        if isinstance(arguments, dict):
            arguments = {name: _unquoted(value) for name, value in arguments.items()}
        self.add_call(text_of(call, "name") or "unknown", call_id, arguments, identity, str(number))
        return call_id

    def _read_step(self, record: Payload, kind: str, text: str, identity: str) -> None:
        """A step that did something: the result of a call, or both in one."""
        for number, call in enumerate(list_of(record.get("tool_calls"))):
            if isinstance(call, dict):
                self._call(call, identity, number)
        status = (text_of(record, "status") or "").upper()
        call_id = self.memory.pending.pop(0) if self.memory.pending else None
        self.add_response(
            text,
            call_id,
            identity,
            "result",
            tool=None if call_id else kind.lower(),
            exit_code=exit_code_in(text, _EXIT_CODE) if kind == "RUN_COMMAND" else None,
            failed=status in ("ERROR", "FAILED", "CANCELED", "CANCELLED"),
        )


def _unquoted(value: Any) -> Any:
    """An argument, which is written as JSON in a string."""
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        return arguments_of(value[1:-1])
    return value

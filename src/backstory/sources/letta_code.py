"""Letta Code with its local backend: `lc-local-backend/conversations/<conversation>/messages.jsonl` below `~/.letta`.

The lines are entries of Pi. A message that changes is written again under its own id, which replaces the earlier one.
Conversations on a Letta server are not on this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..model import parse_time
from .base import Event, Item, Lookup, Parser, Source, Transcript
from .decoding import begun_at, head_records, read_mapping
from .fields import Payload, mapping_of, text_of
from .parsing import Memory, restored, version_of, with_news
from .pi import PiParser

_CONVERSATION = "conversation.json"


class LettaCode(Source):
    name = "letta-code"

    def accepts(self, path: Path) -> bool:
        return path.name == "messages.jsonl" and path.parent.parent.name == "conversations"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(path, head))
        if not records or not ("type" in records[0] or "role" in records[0]):
            return None
        header = records[0] if records[0].get("type") == "session" else {}
        known = read_mapping(path.with_name(_CONVERSATION))
        session = text_of(header, "id") or text_of(known, "id") or path.parent.name
        return Transcript(source=self.name, path=path, session=session, begun=begun_at(records, "timestamp"))

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return LettaParser(transcript, restored(Memory, state))

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        return with_news(read, _CONVERSATION)

    def resume(self, session: str) -> tuple[str, ...] | None:
        return ("letta", "--conversation", session)


class LettaParser(PiParser):
    def read(self, record: Payload) -> None:
        if "role" in record and "type" not in record:  # the first format: a message without an entry around it
            record = {"type": "message", "timestamp": record.get("timestamp"), "message": record}
        self.ts = parse_time(record.get("timestamp"))
        message = mapping_of(record, "message")
        name = text_of(message, "id")
        if record.get("type") == "message" and name:
            self._read_message(message, f"{self.transcript.session} {name}")
        else:
            super().read(record)
        for item in self.items:
            if isinstance(item, Event):
                item.replaces = True

    def finish(self) -> Iterable[Item]:
        self.reset()
        path = self.transcript.path.with_name(_CONVERSATION)
        self.memory.beside = version_of(path)
        self.note(title=text_of(read_mapping(path), "summary"), title_rank=2)
        return self.items

"""iFlow CLI (`~/.iflow/projects/<slug>/<session>.jsonl`) and Qoder (`~/.qoder/projects/<slug>/transcript/`): they write
records in the shape of Claude Code: an envelope around a message of Anthropic's API."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .content import function_response, readable
from .decoding import begun_at, head_records
from .fields import Payload, mapping_of, text_of
from .messages import MessageParser
from .parsing import Memory, restored, tokens_of, with_cached

_EXIT_CODE = re.compile(r"^Exit Code: (\d{1,5})$", re.MULTILINE | re.IGNORECASE)
_SKIPPED = {"session_meta", "progress", "summary", "file-history-snapshot"}


class IFlow(Source):
    name = "iflow"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".jsonl"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(path, head))
        first = next((record for record in records if "sessionId" in record and "uuid" in record), {})
        session = text_of(first, "sessionId")
        if session is None:
            return None
        begun = begun_at(records, "timestamp")
        return Transcript(source=self.name, path=path, session=session, begun=begun)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return EnvelopeParser(transcript, restored(Memory, state))


class Qoder(IFlow):
    name = "qoder"


class EnvelopeParser(MessageParser[Memory]):
    exit_code = _EXIT_CODE

    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("timestamp"))
        self.note(cwd=text_of(record, "cwd"), branch=text_of(record, "gitBranch"), version=text_of(record, "version"))
        identity = text_of(record, "uuid") or f"{self.transcript.session} {self.memory.count}"
        kind, message = text_of(record, "type"), mapping_of(record, "message")
        if kind == "user" and record.get("isMeta") is True:
            self.add(EventType.SYSTEM, readable(message.get("content")), identity)
        elif kind == "user":
            self.read_user(message.get("content"), identity)
        elif kind == "assistant":
            self.memory.model = text_of(message, "model") or self.memory.model
            self.read_answer(message.get("content"), identity, self._read_usage(message, identity))
        elif kind == "system":
            if text := readable(record.get("content")):
                self.add(EventType.SYSTEM, text, identity)
        elif kind not in _SKIPPED:
            self.add_unknown(record, identity)

    def finish(self) -> Iterable[Item]:
        return (TurnEnd(provisional=True),)

    def result_text(self, content: Any) -> str:
        response = mapping_of(content, "responseParts", "functionResponse")
        return function_response(response.get("response")) if response else readable(content)

    def _read_usage(self, message: Payload, identity: str) -> bytes | None:
        tokens = tokens_of(
            message.get("usage"),
            input_tokens="input_tokens",
            output_tokens="output_tokens",
            cache_read_tokens="cache_read_input_tokens",
            cache_write_5m_tokens="cache_creation_input_tokens",
        )
        if not tokens:
            return None
        name = text_of(message, "id") or identity
        return self.add_usage(self.transcript.session, name, **with_cached(tokens))

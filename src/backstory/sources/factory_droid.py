"""Factory Droid: `sessions/<slug>/<session>.jsonl` below `~/.factory`, with model and tokens in a file beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .decoding import begun_at, head_records, read_mapping
from .fields import Payload, mapping_of, text_of
from .messages import MessageParser
from .parsing import Memory, restored, tokens_of, version_of, with_cached, with_news

_EXIT_CODE = re.compile(r"(?:\[Process exited with code |\(exit code: )(\d{1,5})[\])]")
_SETTINGS = "*.settings.json"


class FactoryDroid(Source):
    name = "factory-droid"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".jsonl"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(path, head))
        if not records or records[0].get("type") != "session_start":
            return None
        session = text_of(records[0], "id") or path.stem
        parent = text_of(records[0], "callingSessionId", "parentSessionId")
        begun = begun_at(records, "timestamp")
        return Transcript(source=self.name, path=path, session=session, parent=parent, begun=begun)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return DroidParser(transcript, restored(Memory, state))

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        return with_news(read, _SETTINGS)


class DroidParser(MessageParser[Memory]):
    exit_code = _EXIT_CODE

    def __init__(self, transcript: Transcript, memory: Memory) -> None:
        super().__init__(transcript, memory)
        self._settings = transcript.path.with_suffix(".settings.json")
        # Old versions name the model only there.
        memory.model = memory.model or text_of(read_mapping(self._settings), "model")

    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("timestamp"))
        identity = text_of(record, "id") or f"{self.transcript.session} {self.memory.count}"
        kind = record.get("type")
        if kind == "message":
            message = mapping_of(record, "message")
            if message.get("role") == "assistant":
                self.memory.model = text_of(message, "modelId", "model") or self.memory.model
                self.read_answer(message.get("content"), identity)
            else:
                self.read_user(message.get("content"), identity)
        elif kind == "session_start":
            title = text_of(record, "sessionTitle", "title")
            rank = 3 if record.get("isSessionTitleManuallySet") is True else 2
            version = record.get("version")
            self.note(
                cwd=text_of(record, "cwd"),
                title=title,
                title_rank=rank,
                version=version if isinstance(version, str) else None,
                parent=self.transcript.parent,
                parent_call=text_of(record, "callingToolUseId"),
            )
        elif kind == "agent_turn_outcome":
            self._read_outcome(record)
        elif kind == "compaction_state":
            self.add(EventType.COMPACTION, text_of(record, "summaryText", "summary") or "", identity)
        elif kind not in ("todo_state", "session_end"):
            self.add_unknown(record, identity)

    def finish(self) -> Iterable[Item]:
        """The tokens are known for the session as a whole: they count for its first turn."""
        self.reset()
        self.memory.beside = version_of(self._settings)
        settings = read_mapping(self._settings)
        tokens = tokens_of(
            settings.get("tokenUsage"),
            input_tokens="inputTokens",
            output_tokens="outputTokens",
            cache_read_tokens="cacheReadTokens",
            cache_write_5m_tokens="cacheCreationTokens",
            reasoning_tokens="thinkingTokens",
        )
        if tokens and self.memory.count > 1:
            model = text_of(settings, "model") or self.memory.model
            self.add_usage(
                self.transcript.session,
                **with_cached(tokens),
                model=model,
                ts=self.transcript.begun or None,
                by_time=True,
            )
        return [*self.items, TurnEnd(provisional=True)]

    def _read_outcome(self, record: Payload) -> None:
        reason = text_of(record, "reason") or "completed"
        if reason == "completed":
            self.end_turn()
            return
        extra = {"interrupted": True} if reason in ("cancelled", "interrupted", "aborted", "user_cancelled") else None
        identity = (text_of(record, "turnId") or self.transcript.session, "outcome", str(self.memory.count))
        self.add(EventType.RUNTIME, f"Turn ended: {reason}", *identity, ends_turn=True, extra=extra)

"""Factory Droid: `sessions/<slug>/<session>.jsonl` below `~/.factory`, with the model and the tokens in a file beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .content import count_images, exit_code_in, readable, split_reminders
from .fields import Payload, mapping_of, text_of
from .parsing import Memory, RecordParser, begun_at, head_records, read_json, restored, tokens_of, version_of, with_news

_EXIT_CODE = re.compile(r"(?:\[Process exited with code |\(exit code: )(\d{1,5})[\])]")
_SETTINGS = "*.settings.json"


class FactoryDroid(Source):
    name = "factory-droid"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".jsonl"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(head))
        if not records or records[0].get("type") != "session_start":
            return None
        session = text_of(records[0], "id") or path.stem
        parent = text_of(records[0], "callingSessionId", "parentSessionId")
        begun = begun_at(records, "timestamp")
        return Transcript(
            source=self.name, path=path, session=session, parent=parent, begun=begun, folder=path.parent.name
        )

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return DroidParser(transcript, restored(Memory, state))

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        return with_news(read, _SETTINGS)

    def resume(self, session: str) -> tuple[str, ...] | None:
        return ("droid", "--resume", session)


class DroidParser(RecordParser[Memory]):
    def __init__(self, transcript: Transcript, memory: Memory) -> None:
        super().__init__(transcript, memory)
        self._settings = transcript.path.with_suffix(".settings.json")
        # Old versions name the model only there.
        memory.model = memory.model or text_of(read_json(self._settings), "model")

    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("timestamp"))
        identity = text_of(record, "id") or f"{self.transcript.session} {self.memory.count}"
        kind = record.get("type")
        if kind == "message":
            message = mapping_of(record, "message")
            if message.get("role") == "assistant":
                self._read_answer(message, identity)
            else:
                self._read_user(message, identity)
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
        self.items = []
        self.memory.beside = version_of(self._settings)
        settings = read_json(self._settings)
        tokens = tokens_of(
            settings.get("tokenUsage"),
            input_tokens="inputTokens",
            output_tokens="outputTokens",
            cache_read_tokens="cacheReadTokens",
            cache_write_5m_tokens="cacheCreationTokens",
            reasoning_tokens="thinkingTokens",
        )
        if tokens and self.memory.count > 1:
            cached = tokens.get("cache_read_tokens", 0) + tokens.get("cache_write_5m_tokens", 0)
            tokens["input_tokens"] = tokens.get("input_tokens", 0) + cached
            model = text_of(settings, "model") or self.memory.model
            self.add_usage(self.transcript.session, **tokens, model=model, ts=self.transcript.begun or None)
        return [*self.items, TurnEnd(provisional=True)]

    def _read_outcome(self, record: Payload) -> None:
        reason = text_of(record, "reason") or "completed"
        if reason == "completed":
            self.end_turn()
            return
        extra = {"interrupted": True} if reason in ("cancelled", "interrupted", "aborted", "user_cancelled") else None
        identity = (text_of(record, "turnId") or self.transcript.session, "outcome", str(self.memory.count))
        self.add(EventType.RUNTIME, f"Turn ended: {reason}", *identity, ends_turn=True, extra=extra)

    def _read_user(self, message: Payload, identity: str) -> None:
        content = message.get("content")
        spoken: list[Any] = []
        for number, block in enumerate(content if isinstance(content, list) else [content]):
            if isinstance(block, dict) and block.get("type") == "tool_result":
                text = readable(block.get("content"))
                failed = block.get("is_error")
                self.add_response(
                    text,
                    text_of(block, "tool_use_id"),
                    identity,
                    str(number),
                    exit_code=exit_code_in(text, _EXIT_CODE),
                    failed=failed if isinstance(failed, bool) else None,
                )
            else:
                spoken.append(block)
        text, reminders = split_reminders(readable(spoken))
        if text:
            images = count_images(spoken)
            self.add_prompt(text, identity, "prompt", extra={"images": images} if images else None)
        for number, reminder in enumerate(reminders):
            self.add(EventType.SYSTEM, reminder, identity, f"reminder {number}")

    def _read_answer(self, message: Payload, identity: str) -> None:
        self.memory.model = text_of(message, "modelId", "model") or self.memory.model
        content = message.get("content")
        blocks = content if isinstance(content, list) else [content]
        asks = any(isinstance(block, dict) and block.get("type") == "tool_use" for block in blocks)
        for number, block in enumerate(blocks):
            part, kind = str(number), block.get("type") if isinstance(block, dict) else "text"
            if kind == "tool_use":
                tool = text_of(block, "name") or "unknown"
                self.add_call(tool, text_of(block, "id"), block.get("input"), identity, part)
            elif kind in ("thinking", "redacted_thinking"):
                if text := text_of(block, "thinking"):
                    self.add_reasoning(text, identity, part)
            elif text := readable(block):
                self.add_answer(text, identity, part, may_end_turn=not asks)

"""Qwen Code, a fork of Gemini CLI: messages of Gemini's API in the envelope of Claude Code (uuid, parentUuid, cwd ...).

They are in `projects/<slug>/chats/<session>.jsonl` below `~/.qwen`, and in `subagents/<session>/` beside `chats`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .content import exit_code_in, function_response, is_unknown_part, part_text, parts_text
from .decoding import begun_at, head_records, read_mapping
from .fields import Payload, list_of, mapping_of, only_mappings, text_of
from .parsing import Memory, RecordParser, restored, tokens_of

_EXIT_CODE = re.compile(r"^Exit Code: (\d{1,5})$", re.MULTILINE)
_TYPES = {"user", "assistant", "tool_result", "system"}
_NOT_TYPED = {"notification", "cron"}
_SKIPPED = {"ui_telemetry", "attribution_snapshot", "file_history_snapshot", "session_artifact_snapshot"}
# Half of all lines: what the records of messages and tools have, too.
_TELEMETRY = (b'"subtype":"ui_telemetry"', b'"subtype":"attribution_snapshot"')


class QwenCode(Source):
    name = "qwen-code"

    def accepts(self, path: Path) -> bool:
        if path.suffix != ".jsonl":
            return False
        return path.parent.name == "chats" or path.parent.parent.name == "subagents"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(path, head))
        first = next((record for record in records if text_of(record, "type") in _TYPES), {})
        if "sessionId" not in first or "uuid" not in first:
            return None
        parent = path.parent.name if path.parent.parent.name == "subagents" else None
        session = f"{parent}/{path.stem}" if parent else text_of(first, "sessionId") or path.stem
        begun = begun_at(records, "timestamp")
        return Transcript(source=self.name, path=path, session=session, parent=parent, begun=begun)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return QwenParser(transcript, restored(QwenMemory, state))

    def skips(self, line: bytes) -> bool:
        return any(line.find(mark, 0, 600) >= 0 for mark in _TELEMETRY) and line.count(b'"parentUuid":') == 1


class QwenMemory(Memory):
    answer: tuple[str, int] = ("", 0)
    """The uuid of the latest answer, and its parts so far: they may be in several records with that uuid."""


class QwenParser(RecordParser[QwenMemory]):
    def __init__(self, transcript: Transcript, memory: QwenMemory) -> None:
        super().__init__(transcript, memory)
        self._meta = read_mapping(transcript.path.with_suffix(".meta.json")) if transcript.parent else {}
        # The records of subagents do not name their model.
        memory.model = memory.model or text_of(mapping_of(self._meta, "persistedCliFlags"), "model")

    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("timestamp"))
        self.note(
            cwd=text_of(record, "cwd"),
            branch=text_of(record, "gitBranch"),
            version=text_of(record, "version"),
            parent=self.transcript.parent,
        )
        identity = text_of(record, "uuid") or f"{self.transcript.session} {self.memory.count}"
        kind = record.get("type")
        if kind == "user":
            self._read_user(record, identity)
        elif kind == "assistant":
            self._read_answer(record, identity)
        elif kind == "tool_result":
            self._read_result(record, identity)
        elif kind == "system":
            self._read_system(record, identity)
        else:
            self.add_unknown(record, identity)

    def finish(self) -> Iterable[Item]:
        self.reset()
        self.note(title=text_of(self._meta, "description"), title_rank=2, parent_call=text_of(self._meta, "toolUseId"))
        return [*self.items, TurnEnd(provisional=True)]

    def _read_user(self, record: Payload, identity: str) -> None:
        payload = mapping_of(record, "systemPayload")
        text = (text_of(payload, "displayText") or parts_text(mapping_of(record, "message").get("parts"))).strip()
        typed = text_of(record, "subtype") not in _NOT_TYPED and record.get("provenance") in (None, "real_user")
        if text and typed:
            self.add_prompt(text, identity, "prompt")
        elif text:
            self.add(EventType.SYSTEM, text, identity, "prompt")
        self.add_unknown_blocks(mapping_of(record, "message").get("parts"), identity, unknown=is_unknown_part)
        if context := text_of(payload, "hookContext"):
            self.add(EventType.SYSTEM, context, identity, "hook")

    def _read_answer(self, record: Payload, identity: str) -> None:
        self.memory.model = text_of(record, "model") or self.memory.model
        usage = mapping_of(record, "usageMetadata")
        key = None
        if tokens := tokens_of(
            usage,
            input_tokens="promptTokenCount",
            output_tokens="candidatesTokenCount",
            cache_read_tokens="cachedContentTokenCount",
            reasoning_tokens="thoughtsTokenCount",
        ):
            # Some providers count thoughts among the candidates, some beside them: the total knows.
            total = tokens_of(usage, total="totalTokenCount").get("total", 0)
            spent = total - tokens.get("input_tokens", 0)
            tokens["output_tokens"] = max(tokens.get("output_tokens", 0), spent)
            key = self.add_usage(identity, **tokens)
        parts = only_mappings(mapping_of(record, "message").get("parts"))
        asks = any("functionCall" in part for part in parts)
        uuid, first = self.memory.answer if self.memory.answer[0] == identity else (identity, 0)
        self.memory.answer = uuid, first + len(parts)
        for number, part in enumerate(parts, first):
            call = part.get("functionCall")
            if isinstance(call, dict):
                call_id = text_of(call, "id")
                tool = text_of(call, "name") or "unknown"
                self.add_call(tool, call_id, call.get("args"), identity, str(number), usage_key=key)
            elif part.get("thought"):
                if thought := text_of(part, "text"):
                    self.add_reasoning(thought, identity, str(number), usage_key=key)
            elif text := part_text(part):
                self.add_answer(text, identity, str(number), usage_key=key, may_end_turn=not asks)
            elif is_unknown_part(part):
                self.add_unknown(part, identity, str(number))

    def _read_result(self, record: Payload, identity: str) -> None:
        result = mapping_of(record, "toolCallResult")
        status, display = text_of(result, "status"), result.get("resultDisplay")
        for number, part in enumerate(list_of(mapping_of(record, "message").get("parts"))):
            response = mapping_of(part, "functionResponse")
            if not response:
                continue
            names = list(filter(None, (text_of(response, "id"), text_of(result, "callId"))))
            call_id = next((name for name in names if name in self.memory.calls), names[0] if names else None)
            text = function_response(response.get("response"))
            self.add_response(
                text,
                call_id,
                identity,
                str(number),
                tool=text_of(response, "name"),
                exit_code=exit_code_in(text, _EXIT_CODE),
                failed=None if status is None else status != "success",
                extra=self._facts(result, display, call_id),
            )

    def _facts(self, result: Payload, display: Any, call_id: str | None) -> dict[str, Any] | None:
        facts: dict[str, Any] = {}
        duration = result.get("durationMs")
        if isinstance(duration, int | float) and duration > 0:
            facts["duration_ms"] = duration
        if text_of(display, "type") == "task_execution" and (name := text_of(display, "subagentName")):
            facts["child_session"] = f"{self.transcript.session}/agent-{name}-{call_id}"
        return facts or None

    def _read_system(self, record: Payload, identity: str) -> None:
        kind, payload = text_of(record, "subtype") or "", mapping_of(record, "systemPayload")
        if kind == "custom_title":
            rank = 3 if payload.get("titleSource") == "manual" else 2
            self.note(title=text_of(payload, "customTitle"), title_rank=rank)
        elif kind == "slash_command":
            if payload.get("phase") != "result" and (text := text_of(payload, "rawCommand")):
                self.add(EventType.SYSTEM, text, identity, "command")
        elif kind == "chat_compression":
            info = mapping_of(payload, "info")
            tokens = f"{info.get('originalTokenCount')} tokens to {info.get('newTokenCount')}"
            self.add(EventType.COMPACTION, f"The conversation was compressed: {tokens}.", identity, "compression")
        elif kind == "rewind":
            self.add(EventType.RUNTIME, "The conversation was rewound.", identity, "rewind")
        elif kind not in _SKIPPED:
            self.add_unknown(record, identity)

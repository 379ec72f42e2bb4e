"""Kimi: `wire.jsonl` of Kimi Code (`sessions/wd_*/<session>/agents/<agent>`) and of kimi-cli before it.

Kimi Code writes every message up to three times: as the prompt of a turn or an event of the loop, as a message of the
context, as a message of the agent. The first one is read; a message of the context where it is the only one. A subagent
has a file of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .content import exit_code_in, is_unknown, readable, spoken
from .decoding import begun_at, head_records, read_mapping
from .fields import Payload, arguments_of, list_of, mapping_of, text_of
from .parsing import Memory, RecordParser, restored, tokens_of, version_of, with_cached, with_news

_EXIT_CODE = re.compile(r"exit code:? (\d{1,5})\.?\s*$", re.IGNORECASE)
_COUNTS: dict[str, str | tuple[str, ...]] = {
    "input_tokens": ("inputOther", "input_other"),
    "output_tokens": "output",
    "cache_read_tokens": ("inputCacheRead", "input_cache_read"),
    "cache_write_5m_tokens": ("inputCacheCreation", "input_cache_creation"),
}
# Copies of messages, and what is asked of the model again and again.
_SKIPPED_LINES = (b'{"type":"llm.', b'{"type":"token_counting.')
_STATE = "../../state.json"
# Types of records, or their beginnings, that repeat what others say or only keep books.
_SKIPPED = (
    "agent.",  # copies of messages, and of the ends of turns
    "file_history.",
    "full_compaction.",  # `context.apply_compaction` has the summary
    "llm.tools_snapshot",
    "metadata",
    "permission.",
    "plan_mode.",
    "plugin.",
    "prompt.completed",
    "runtime.",
    "subagent.",  # but for `subagent.spawned`: the subagent's own file has the rest
    "token_counting.",
    "tools.",
    "usage.record",  # the end of the step has the tokens
)
_WIRE_SKIPPED = ("Approval", "Compaction", "MCP", "Step", "Hook", "ToolCallPart")


class Kimi(Source):
    name = "kimi-cli"

    def accepts(self, path: Path) -> bool:
        return path.name == "wire.jsonl"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(path, head))
        if not records or not ("type" in records[0] or "message" in records[0]):
            return None
        session, parent = _identity(path)
        begun = begun_at(records, "time", "created_at", "timestamp")
        return Transcript(source=self.name, path=path, session=session, parent=parent, begun=begun)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return KimiParser(transcript, restored(KimiMemory, state))

    def skips(self, line: bytes) -> bool:
        return line.startswith(_SKIPPED_LINES) and b'"llm.request"' not in line[:24]

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        return with_news((entry for entry in read if "agents/main/" in entry[0]), _STATE)


def _identity(path: Path) -> tuple[str, str | None]:
    """The session of a file, and the one that started it."""
    agent, holder = path.parent.name, path.parent.parent
    if holder.name == "agents":
        session = holder.parent.name
        if agent == "main":
            return session, None
        above = text_of(mapping_of(read_mapping(holder.parent / "state.json"), "agents", agent), "parentAgentId")
        return f"{session}/{agent}", session if above in (None, "main") else f"{session}/{above}"
    if holder.name == "subagents":
        return f"{holder.parent.name}/{agent}", holder.parent.name
    return agent, None


class KimiMemory(Memory):
    prompts: int = 0
    """Prompts that are not yet repeated as messages of the context."""
    has_answer: bool = False
    """Something was said since the latest prompt: a message of the context repeats it."""


class KimiParser(RecordParser[KimiMemory]):
    def __init__(self, transcript: Transcript, memory: KimiMemory) -> None:
        super().__init__(transcript, memory)
        self._root = transcript.session.partition("/")[0]
        self._handlers = {
            "config.update": self._read_settings,
            "profile.bind": self._read_settings,
            "llm.request": self._read_request,
            "turn.prompt": self._read_prompt,
            "turn.steer": self._read_prompt,
            "turn.cancel": self._read_cancel,
            "turn.ended": self._read_ended,
            "context.append_message": self._read_context,
            "context.append_loop_event": self._read_loop,
            "context.apply_compaction": self._read_compaction,
            "subagent.spawned": self._read_spawned,
        }
        self._events = {
            "content.part": self._read_part,
            "tool.call": self._read_call,
            "tool.result": self._read_result,
            "step.end": self._read_step,
        }

    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("time", record.get("timestamp", record.get("created_at"))))
        identity = f"{self.transcript.session} {self.memory.count}"
        if self.memory.count == 1:
            self._note_state()
        message = record.get("message")
        if "type" not in record and isinstance(message, dict):
            self._read_wire(message, identity)
        elif handler := self._handlers.get(text_of(record, "type") or ""):
            handler(record, identity)
        elif not (text_of(record, "type") or "").startswith(_SKIPPED):
            self.add_unknown(record, identity)

    def finish(self) -> Iterable[Item]:
        self.reset()
        self._note_state()
        return [*self.items, TurnEnd(provisional=True)]

    def _note_state(self) -> None:
        """The title and the folder of the session, from files beside it."""
        path = self.transcript.path
        if path.parent.parent.name == "agents" and path.parent.name == "main":
            state = path.parent / _STATE
            self.memory.beside = version_of(state)
            about = read_mapping(state)
            rank = 3 if about.get("isCustomTitle") is True else 2
            self.note(cwd=text_of(about, "cwd", "workDir"), title=text_of(about, "title"), title_rank=rank)
        elif path.parent.parent.name not in ("agents", "subagents"):
            self.note(cwd=_legacy_folder(path))

    # ---- Kimi Code

    def _read_settings(self, record: Payload, identity: str) -> None:
        self.memory.model = text_of(record, "modelAlias") or self.memory.model
        cwd = text_of(record, "cwd") or text_of(mapping_of(record, "environmentDisclosure"), "cwd")
        self.note(cwd=cwd, parent=self.transcript.parent)

    def _read_request(self, record: Payload, identity: str) -> None:
        self.memory.model = text_of(record, "model") or self.memory.model

    def _read_prompt(self, record: Payload, identity: str) -> None:
        text = spoken(record.get("input")).strip()
        kind = text_of(mapping_of(record, "origin"), "kind") or "user"
        # A subagent is spoken to by its parent: that is its conversation.
        if text and (kind == "user" or (self.transcript.parent and kind == "system_trigger")):
            self._ask(text, identity)
            self.memory.prompts += 1
        elif text:
            self.add(EventType.SYSTEM, text, identity)
        self.add_unknown_blocks(record.get("input"), identity)

    def _read_context(self, record: Payload, identity: str) -> None:
        message = mapping_of(record, "message")
        kind, role = text_of(mapping_of(message, "origin"), "kind"), message.get("role")
        content = message.get("content")
        if role == "user" and kind not in (None, "user", "system_trigger"):
            if text := readable(content).strip():
                self.add(EventType.SYSTEM, text, identity)
        elif role == "user" and self.memory.prompts:
            self.memory.prompts -= 1
        elif (role == "user" and kind is None) or (role == "assistant" and not self.memory.has_answer):
            if text := spoken(content).strip():
                if role == "user":
                    self._ask(text, identity)
                else:
                    self.add_answer(text, identity, may_end_turn=True)
            self.add_unknown_blocks(content, identity)

    def _ask(self, text: str, identity: str) -> None:
        self.add_prompt(text, identity)
        self.memory.has_answer = False

    def _read_loop(self, record: Payload, identity: str) -> None:
        event = mapping_of(record, "event")
        kind = text_of(event, "type") or ""
        if handler := self._events.get(kind):
            handler(event, text_of(event, "uuid") or identity)
        elif kind != "step.begin":
            self.add_unknown(event, identity)

    def _read_part(self, event: Payload, identity: str) -> None:
        key = self.usage_key(text_of(event, "stepUuid") or identity)
        self._say(mapping_of(event, "part"), identity, key)

    def _say(self, part: Payload, identity: str, key: bytes | None = None) -> None:
        if text := text_of(part, "think") or (text_of(part, "text") if part.get("type") == "think" else None):
            self.add_reasoning(text, identity, usage_key=key)
        elif is_unknown(part):
            self.add_unknown(part, identity)
        elif text := readable(part):
            self.add_answer(text, identity, usage_key=key, may_end_turn=True)
            self.memory.has_answer = True

    def _read_call(self, event: Payload, identity: str) -> None:
        step, call_id = text_of(event, "stepUuid"), text_of(event, "toolCallId")
        key = self.usage_key(step or identity)
        # Older versions take the id of the call for its uuid. Another session may have the same, such as `Bash_0`.
        named = (step or self.transcript.session, identity) if identity == call_id else (identity,)
        tool = text_of(event, "name", "toolName") or "unknown"
        self.add_call(tool, call_id, arguments_of(event.get("args", event.get("input"))), *named, usage_key=key)

    def _read_result(self, event: Payload, identity: str) -> None:
        call_id, result = text_of(event, "toolCallId"), mapping_of(event, "result")
        facts: dict[str, Any] = {}
        duration = result.get("durationMs")
        if isinstance(duration, int | float) and duration > 0:
            facts["duration_ms"] = duration
        child = next((name for name, about in self.memory.facts.items() if about.get("parent_call") == call_id), None)
        if child and call_id:
            facts["child_session"] = child
        output = readable(result.get("output", event.get("output")))
        self._respond(output, call_id, result.get("isError"), identity, facts)

    def _respond(self, text: str, call_id: str | None, failed: Any, identity: str, facts: dict[str, Any]) -> None:
        self.add_response(
            text,
            call_id,
            "result",
            identity,
            exit_code=exit_code_in(text[-200:], _EXIT_CODE),
            failed=failed is True,
            extra=facts or None,
        )

    def _read_step(self, event: Payload, identity: str) -> None:
        reason = text_of(event, "finishReason")
        self._spend(event.get("usage"), identity, stop_reason=reason, request=text_of(event, "messageId"))
        if reason in ("end_turn", "stop", "completed"):
            self.end_turn()

    def _spend(self, usage: Any, identity: str, **more: Any) -> None:
        if tokens := tokens_of(usage, **_COUNTS):
            self.add_usage(identity, **with_cached(tokens), **more)

    def _read_ended(self, record: Payload, identity: str) -> None:
        reason = text_of(record, "reason") or "completed"
        if reason == "completed":
            self.end_turn()
        else:
            extra = {"interrupted": True} if reason in ("cancelled", "aborted", "interrupted") else None
            self.add(EventType.RUNTIME, f"Turn ended: {reason}", identity, ends_turn=True, extra=extra)

    def _read_cancel(self, record: Payload, identity: str) -> None:
        self.add(EventType.RUNTIME, "Turn cancelled", identity, ends_turn=True, extra={"interrupted": True})

    def _read_compaction(self, record: Payload, identity: str) -> None:
        self.add(EventType.COMPACTION, text_of(record, "summary", "contextSummary") or "", identity)

    def _read_spawned(self, record: Payload, identity: str) -> None:
        if child := text_of(record, "subagentId"):
            self.session = f"{self._root}/{child}"
            call = text_of(record, "parentToolCallId")
            title = text_of(record, "description", "subagentName")
            self.note(parent=self.transcript.session, parent_call=call, title=title, title_rank=2)

    # ---- kimi-cli

    def _read_wire(self, message: Payload, identity: str) -> None:
        kind, payload = text_of(message, "type") or "", mapping_of(message, "payload")
        if kind == "TurnBegin":
            if text := spoken(payload.get("user_input")).strip():
                self.add_prompt(text, identity)
            self.add_unknown_blocks(payload.get("user_input"), identity)
        elif kind == "ContentPart":
            self._say(payload, identity)
        elif kind == "ToolCall":
            function = mapping_of(payload, "function")
            arguments = arguments_of(function.get("arguments"))
            self.add_call(text_of(function, "name") or "unknown", text_of(payload, "id"), arguments, identity)
        elif kind == "ToolResult":
            result = mapping_of(
                payload,
                "return_value",
            )
            text = readable(result.get("output")) or text_of(result, "message") or ""
            self._respond(text, text_of(payload, "tool_call_id"), result.get("is_error"), identity, {})
        elif kind == "StatusUpdate":
            name = text_of(payload, "message_id")
            call = f"{self.transcript.session} {name}" if name else identity
            self._spend(payload.get("token_usage"), call, request=name)
        elif kind == "TurnEnd":
            self.end_turn()
        elif kind in ("StepInterrupted", "TurnInterrupted"):
            self._read_cancel(payload, identity)
        elif kind == "SubagentEvent":
            self._read_nested(payload, identity)
        elif not kind.startswith(_WIRE_SKIPPED):
            self.add_unknown(message, identity)

    def _read_nested(self, payload: Payload, identity: str) -> None:
        """An event of a subagent that has no file of its own."""
        child = text_of(payload, "agent_id", "task_tool_call_id")
        event = payload.get("event")
        if child is None or not isinstance(event, dict):
            return
        if (self.transcript.path.parent / "subagents" / child / "wire.jsonl").exists():
            return
        self.session = f"{self._root}/{child}"
        self.note(parent=self.transcript.session, parent_call=text_of(payload, "task_tool_call_id"))
        self._read_wire(event, identity)


def _legacy_folder(path: Path) -> str | None:
    """The working directory: the folder of a project is named by its digest, and a list has the directories."""
    project = path.parent.parent.name
    for folder in list_of(read_mapping(path.parent.parent.parent.parent / "kimi.json").get("work_dirs")):
        name = text_of(folder, "path")
        if name and hashlib.md5(name.encode(), usedforsecurity=False).hexdigest() == project:
            return name
    return None

"""Grok Build: `sessions/<directory>/<session>/updates.jsonl` below `~/.grok`, the log of the Agent Client Protocol.

Sessions without that log have `chat_history.jsonl` alone, which Grok Build derives from it, without times and tokens.
A message may come as several chunks, which make one event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .content import exit_code_in, inside, raw_text, readable, split_reminders
from .decoding import begun_at, head_records, read_mapping
from .fields import Payload, integer, mapping_of, only_mappings, remote_address, text_of
from .messages import read_completion
from .parsing import Memory, RecordParser, restored, tokens_of, version_of, with_news

_UPDATES, _HISTORY, _SUMMARY = "updates.jsonl", "chat_history.jsonl", "summary.json"
_EXIT = re.compile(r"^exit: (\d{1,5})$", re.MULTILINE)
_TICKS_PER_DOLLAR = 1e10
_CHUNKS = {
    "user_message_chunk": EventType.USER_INPUT,
    "agent_message_chunk": EventType.ASSISTANT_RESPONSE,
    "agent_thought_chunk": EventType.REASONING,
}
_SKIPPED = {
    "available_commands_update": "a list",
    "background_tasks": "a list",
    "config_option_update": "a setting",
    "current_mode_update": "a setting",
    "plan": "the call that made it has it",
    "session_info_update": "the summary beside the log has it",
    "usage_update": "the end of the turn has the tokens",
}
_INJECTED = ("user_info", "system-reminder", "rules", "git_status", "project_layout")
_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_tokens": "cachedReadTokens",
    "cache_write_5m_tokens": "cacheCreationTokens",
    "reasoning_tokens": "reasoningTokens",
}


class GrokBuild(Source):
    name = "grok-build"

    def accepts(self, path: Path) -> bool:
        return path.name in (_UPDATES, _HISTORY)

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(path, head))
        own = ("params",) if path.name == _UPDATES else ("type", "role")
        if not any(name in record for record in records for name in own):
            return None
        if path.name == _HISTORY and path.with_name(_UPDATES).exists():
            return None
        summary = read_mapping(path.with_name(_SUMMARY))
        parent, forked_from = _origin(summary)
        begun = begun_at((mapping_of(record, "params", "_meta") for record in records), "agentTimestampMs")
        return Transcript(
            source=self.name,
            path=path,
            session=text_of(mapping_of(summary, "info"), "id") or path.parent.name,
            parent=parent,
            begun=begun or begun_at(records, "timestamp") or begun_at([summary], "created_at"),
            after=(forked_from,) if forked_from else (),
        )

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        kind = UpdatesParser if transcript.path.name == _UPDATES else HistoryParser
        return kind(transcript, restored(GrokMemory, state))

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        return with_news(read, _SUMMARY)


def _origin(summary: Payload) -> tuple[str | None, str | None]:
    """The session that started this one, and the one it was forked from."""
    origin = text_of(summary, "parent_session_id")
    return (origin, None) if summary.get("session_kind") == "subagent" else (None, origin)


class GrokMemory(Memory):
    """Also the message that may go on: its kind, its stream, its identity, its time and its text so far."""

    kind: str = ""
    stream: str = ""
    identity: str = ""
    begun: int | None = None
    text: str = ""


class GrokParser(RecordParser[GrokMemory]):
    def finish(self) -> Iterable[Item]:
        self.reset()
        self.note_summary()
        return [*self.items, TurnEnd(provisional=True)]

    def note_summary(self) -> None:
        path = self.transcript.path.with_name(_SUMMARY)
        self.memory.beside = version_of(path)
        summary = read_mapping(path)
        self.memory.model = self.memory.model or text_of(summary, "current_model_id")
        parent, forked_from = _origin(summary)
        remotes = summary.get("git_remotes")
        title = text_of(summary, "generated_title")
        self.note(
            cwd=text_of(mapping_of(summary, "info"), "cwd"),
            branch=text_of(summary, "head_branch"),
            remote=next(filter(None, map(remote_address, remotes if isinstance(remotes, list) else ())), None),
            title=title or text_of(summary, "session_summary"),
            title_rank=2 if title else 1,
            parent=parent,
            forked_from=forked_from,
        )


class UpdatesParser(GrokParser):
    def read(self, record: Payload) -> None:
        params = mapping_of(record, "params")
        update, meta = mapping_of(params, "update"), mapping_of(params, "_meta")
        self.ts = parse_time(meta.get("agentTimestampMs")) or parse_time(record.get("timestamp"))
        if self.memory.count == 1:
            self.note_summary()
        # The ids of events begin anew with each run.
        event = text_of(meta, "eventId")
        place = f"{event} {self.ts}" if event else str(self.memory.count)
        identity = f"{self.transcript.session} {place}"
        kind = text_of(update, "sessionUpdate") or ""
        if kind in _CHUNKS:
            self._read_chunk(kind, update, meta, identity)
            return
        self._flush()
        if kind == "tool_call":
            self._read_call(update, identity)
        elif kind == "tool_call_update":
            self._read_result(update, identity)
        elif kind == "turn_completed":
            self._read_end(update, identity)
        elif kind not in _SKIPPED:
            self.add_unknown({"type": kind, **update}, identity)

    def finish(self) -> Iterable[Item]:
        """A message that is not complete counts as it is, and is replaced when it goes on."""
        self.reset()
        self._say()
        said = self.items
        return [*said, *super().finish()]

    def _read_chunk(self, kind: str, update: Payload, meta: Payload, identity: str) -> None:
        memory, text = self.memory, readable(update.get("content"))
        inner = mapping_of(update, "_meta")
        stream = f"{meta.get('promptId')} {meta.get('streamStartMs')} {inner.get('promptIndex')}"
        if (memory.kind, memory.stream) != (kind, stream):
            self._flush()
            memory.kind, memory.stream, memory.identity, memory.begun = kind, stream, identity, self.ts
        memory.model = text_of(inner, "modelId") or memory.model
        memory.text += text

    def _flush(self) -> None:
        self._say()
        self.memory.kind = self.memory.stream = self.memory.text = ""

    def _say(self) -> None:
        memory = self.memory
        if not memory.text.strip():
            return
        ts, self.ts = self.ts, memory.begun
        kind = _CHUNKS[memory.kind]
        if kind is not EventType.USER_INPUT:
            ends = kind is EventType.ASSISTANT_RESPONSE
            model = memory.model
            self.add(kind, memory.text, memory.identity, replaces=True, model=model, may_end_turn=ends)
        elif prompt := _typed(memory.text):
            self.add_prompt(prompt, memory.identity, replaces=True)
        else:
            self.add(EventType.SYSTEM, memory.text, memory.identity, replaces=True)
        self.ts = ts

    def _read_call(self, update: Payload, identity: str) -> None:
        tool = text_of(mapping_of(update, "_meta", "x.ai/tool"), "name") or text_of(update, "title") or "unknown"
        self.add_call(tool, text_of(update, "toolCallId"), update.get("rawInput"), identity)

    def _read_result(self, update: Payload, identity: str) -> None:
        status, output = text_of(update, "status"), mapping_of(update, "rawOutput")
        if status not in ("completed", "failed", "cancelled"):
            return
        blocks = only_mappings(update.get("content"))
        text = "\n".join(readable(block.get("content")) for block in blocks if block.get("type") == "content")
        applied = mapping_of(output, "EditsApplied")
        text = text or text_of(applied, "tool_output_for_prompt") or text_of(output, "output_for_prompt") or ""
        if not text and output:
            text = raw_text({name: value for name, value in output.items() if name != "output"})
        exit_code = integer(output.get("exit_code"))
        self.add_response(text, text_of(update, "toolCallId"), identity, exit_code=exit_code, failed=status == "failed")

    def _read_end(self, update: Payload, identity: str) -> None:
        usage = mapping_of(update, "usage")
        ticks = usage.get("costUsdTicks")
        cost = ticks / _TICKS_PER_DOLLAR if isinstance(ticks, int | float) and ticks > 0 else None
        models = mapping_of(usage, "modelUsage") or {self.memory.model or "": usage}
        for model, counts in models.items():
            if tokens := tokens_of(counts, **_COUNTS):
                name = text_of(update, "prompt_id") or identity
                share = cost if len(models) == 1 else None
                self.add_usage(self.transcript.session, name, model, model=model or None, cost=share, **tokens)
        reason = text_of(update, "stop_reason") or "end_turn"
        if reason in ("end_turn", "max_tokens", "refusal"):
            self.end_turn()
        else:
            extra = {"interrupted": True} if reason == "cancelled" else None
            self.add(EventType.RUNTIME, f"Turn ended: {reason}", identity, ends_turn=True, extra=extra)


class HistoryParser(GrokParser):
    def read(self, record: Payload) -> None:
        if self.memory.count == 1:
            self.note_summary()
        self.memory.model = text_of(record, "model_id") or self.memory.model
        identity = f"{self.transcript.session} history {self.memory.count}"
        kind = text_of(record, "type", "role") or ""
        text = readable(record.get("content"))
        if kind == "user":
            self._read_user(record, text, identity)
        elif kind == "assistant":
            read_completion(self, record, identity)
        elif kind in ("tool_result", "tool"):
            self.add_response(text, text_of(record, "tool_call_id"), identity, exit_code=exit_code_in(text[:40], _EXIT))
        elif kind == "reasoning":
            if thought := readable(record.get("summary")):
                self.add_reasoning(thought, identity)
        elif kind == "backend_tool_call":
            call = mapping_of(record, "kind")
            self.add_call(text_of(call, "tool_type") or "unknown", text_of(call, "id"), call.get("action"), identity)
        elif kind != "system":
            self.add_unknown(record, identity)

    def _read_user(self, record: Payload, text: str, identity: str) -> None:
        synthetic = text_of(record, "synthetic_reason")
        prompt = _typed(text) if synthetic in (None, "interjection") else ""
        if prompt:
            self.add_prompt(prompt, identity)
        elif text.strip():
            self.add(EventType.SYSTEM, text, identity)


def _typed(text: str) -> str:
    """The prompt without what Grok Build puts around it."""
    query = inside(text, "user_query")
    return query if query is not None else split_reminders(text, _INJECTED)[0]

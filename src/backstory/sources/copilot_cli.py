"""Copilot CLI: `session-state/<session>/events.jsonl` below `~/.copilot`; in older versions `<session>.jsonl`.

The events of subagents stand in the file of the session that started them, marked by `agentId` (older versions: only by
the call that started them). They are sessions of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from ..model import EventType, digest, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .content import exit_code_in, readable
from .decoding import begun_at, head_records, read_file
from .fields import Payload, integer, mapping_of, only_mappings, remote_address, text_of
from .parsing import Memory, RecordParser, restored, tokens_of, version_of, with_news

_EXIT_CODE = re.compile(r"exit(?:ed with| with)? (?:exit )?code (\d{1,5})>")
_GITHUB = "github.com"
_BOOKKEEPING = (b'{"type":"hook.', b'{"type":"system.message"')
# Types of events, or their beginnings, that repeat what others say or only keep books.
_SKIPPED = (
    "assistant.turn_start",
    "hook.",
    "session.compaction_start",
    "session.context_changed",
    "session.mode_changed",
    "session.usage_checkpoint",
    "subagent.",  # but for `subagent.started`: the events of the subagent have the rest
    "system.message",  # the system prompt
    "tool.execution_progress",
    "tool.execution_partial_result",
)
_SETTINGS = re.compile(r"^(name|user_named): ?(.*)$", re.MULTILINE)
_WORKSPACE = "workspace.yaml"
_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_tokens": "cacheReadTokens",
    "cache_write_5m_tokens": "cacheWriteTokens",
    "reasoning_tokens": "reasoningTokens",
}


class CopilotCli(Source):
    name = "copilot-cli"

    def accepts(self, path: Path) -> bool:
        return path.name == "events.jsonl" or (path.suffix == ".jsonl" and path.parent.name == "session-state")

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(path, head))
        if not records or "." not in str(records[0].get("type")) or "data" not in records[0]:
            return None
        named = text_of(mapping_of(records[0], "data"), "sessionId")
        by_path = path.parent.name if path.name == "events.jsonl" else path.stem
        return Transcript(source=self.name, path=path, session=named or by_path, begun=begun_at(records, "timestamp"))

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return CopilotParser(transcript, restored(CopilotMemory, state))

    def skips(self, line: bytes) -> bool:
        return line.startswith(_BOOKKEEPING) and line.count(b'"parentId":') == 1

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        return with_news(read, _WORKSPACE)


class CopilotMemory(Memory):
    spent: dict[str, dict[str, int]] = field(default_factory=dict)
    """The tokens of the session and its subagents so far, by model."""
    asks: dict[str, bool] = field(default_factory=dict)
    """By session: the last message of the model has tool calls."""
    thought: str = ""
    """A digest of the latest thought that has an event of its own."""


class CopilotParser(RecordParser[CopilotMemory]):
    def __init__(self, transcript: Transcript, memory: CopilotMemory) -> None:
        super().__init__(transcript, memory)
        self._handlers = {
            "session.start": self._read_start,
            "session.resume": self._read_start,
            "session.model_change": self._read_model,
            "session.auto_mode_resolved": self._read_model,
            "session.usage_record": self._read_usage,
            "session.shutdown": self._read_shutdown,
            "session.compaction_complete": self._read_compaction,
            "session.truncation": self._read_truncation,
            "session.info": self._read_notice,
            "session.warning": self._read_notice,
            "session.error": self._read_notice,
            "session.title_changed": self._read_title,
            "user.message": self._read_user,
            "assistant.message": self._read_answer,
            "assistant.reasoning": self._read_thought,
            "assistant.turn_end": self._read_turn_end,
            "tool.execution_start": self._read_call,
            "tool.execution_complete": self._read_response,
            "subagent.started": self._read_child,
            "abort": self._read_abort,
            "system.notification": self._read_notification,
        }

    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("timestamp"))
        data = mapping_of(record, "data")
        kind = text_of(record, "type") or ""
        child = text_of(record, "agentId") or text_of(data, "parentToolCallId")
        if child is None and kind == "subagent.started":
            child = text_of(data, "toolCallId")
        self.session = f"{self.transcript.session}/{child}" if child else None
        identity = text_of(record, "id") or f"{self.transcript.session} {self.memory.count}"
        if handler := self._handlers.get(kind):
            handler(data, identity)
        elif not kind.startswith(_SKIPPED):
            self.add_unknown(record, identity)

    def finish(self) -> Iterable[Item]:
        self.reset()
        workspace = self.transcript.path.with_name(_WORKSPACE)
        self.memory.beside = version_of(workspace)
        try:
            settings = dict(_SETTINGS.findall(read_file(workspace).decode()))
        except (OSError, ValueError):
            settings = {}
        title = _scalar(settings.get("name", ""))
        self.note(title=title or None, title_rank=3 if settings.get("user_named") == "true" else 1)
        return [*self.items, TurnEnd(provisional=True)]

    # ---- the session

    def _read_start(self, data: Payload, identity: str) -> None:
        context = mapping_of(data, "context")
        self.memory.model = text_of(data, "selectedModel") or self.memory.model
        host, repository = text_of(context, "repositoryHost") or _GITHUB, text_of(context, "repository")
        self.note(
            cwd=text_of(context, "cwd"),
            branch=text_of(context, "branch"),
            remote=remote_address(f"https://{host}/{repository}") if repository else None,
            version=text_of(data, "copilotVersion"),
        )

    def _read_model(self, data: Payload, identity: str) -> None:
        if self.session is None:
            self.memory.model = text_of(data, "newModel", "chosenModel") or self.memory.model

    def _read_title(self, data: Payload, identity: str) -> None:
        self.note(title=text_of(data, "title"), title_rank=2)

    def _read_child(self, data: Payload, identity: str) -> None:
        title = text_of(data, "agentDescription", "agentDisplayName", "agentName")
        call = text_of(data, "toolCallId")
        above = self.memory.facts.get("", {})
        shared = {name: above.get(name) for name in ("cwd", "branch", "remote", "version")}
        self.note(parent=self.transcript.session, parent_call=call, title=title, title_rank=2, **shared)

    def _read_notice(self, data: Payload, identity: str) -> None:
        if text := text_of(data, "message"):
            self.add(EventType.RUNTIME, text, identity)

    def _read_notification(self, data: Payload, identity: str) -> None:
        if text := text_of(data, "content"):
            self.add(EventType.SYSTEM, text, identity)

    def _read_compaction(self, data: Payload, identity: str) -> None:
        text = text_of(data, "summaryContent", "summary") or "The conversation was compacted."
        self.add(EventType.COMPACTION, text, identity)

    def _read_truncation(self, data: Payload, identity: str) -> None:
        removed = integer(data.get("tokensRemovedDuringTruncation")) or integer(data.get("droppedTokens"))
        self.add(EventType.COMPACTION, f"The conversation was truncated by {removed} tokens.", identity)

    def _read_abort(self, data: Payload, identity: str) -> None:
        reason = text_of(data, "reason") or "aborted"
        self.add(EventType.RUNTIME, f"Aborted: {reason}", identity, ends_turn=True, extra={"interrupted": True})

    # ---- the conversation

    def _read_user(self, data: Payload, identity: str) -> None:
        text, source = (text_of(data, "content") or "").strip(), text_of(data, "source") or ""
        if not text:
            return
        if source.startswith(("skill", "system")) or text.startswith("<skill-context"):
            self.add(EventType.SYSTEM, text, identity)
            return
        attachments = data.get("attachments")
        extra = {"attachments": len(attachments)} if isinstance(attachments, list) and attachments else None
        self.add_prompt(text, identity, extra=extra)

    def _read_thought(self, data: Payload, identity: str) -> None:
        """A thought that was written before its message, which may have it, too."""
        if text := text_of(data, "content"):
            self.memory.thought = digest(text).hex()
            self.add_reasoning(text, identity)

    def _read_answer(self, data: Payload, identity: str) -> None:
        model = text_of(data, "model")
        if self.session is None:
            self.memory.model = model or self.memory.model
        requests = only_mappings(data.get("toolRequests"))
        self.memory.asks[self.session or ""] = bool(requests)
        call = self._call_of(data, identity)
        key = None
        if tokens := tokens_of(data, output_tokens="outputTokens"):  # since 1.0.100 or so a record of its own has all
            key = self.add_usage(call, model=model or self.memory.model, **tokens)
            self._spend(model or self.memory.model or "", tokens)
        elif text_of(data, "apiCallId"):
            key = self.usage_key(call)
        more = {"usage_key": key, "model": model or self.memory.model}
        text = text_of(data, "reasoningText")
        if text and digest(text).hex() != self.memory.thought:
            self.add_reasoning(text, identity, "reasoning", **more)
        if text := readable(data.get("content")):
            self.add_answer(text, identity, "answer", may_end_turn=not requests, **more)
        for number, request in enumerate(requests):
            tool = text_of(request, "name") or "unknown"
            self.add_call(tool, text_of(request, "toolCallId"), request.get("arguments"), identity, str(number), **more)

    def _read_turn_end(self, data: Payload, identity: str) -> None:
        if not self.memory.asks.get(self.session or "", True):
            self.end_turn()

    def _read_call(self, data: Payload, identity: str) -> None:
        """A call that starts. The message of the model has it, too, except in some versions."""
        call_id = text_of(data, "toolCallId")
        if call_id is None or call_id in self.memory.calls:
            return
        server, tool = text_of(data, "mcpServerName"), text_of(data, "mcpToolName")
        name = text_of(data, "toolName") or (f"mcp__{server}__{tool}" if server and tool else "unknown")
        self.add_call(name, call_id, data.get("arguments"), identity)

    def _read_response(self, data: Payload, identity: str) -> None:
        result, error = data.get("result"), mapping_of(data, "error")
        text = text_of(error, "message") or readable(result.get("content") if isinstance(result, dict) else result)
        success, call_id = data.get("success"), text_of(data, "toolCallId")
        exit_code = integer(mapping_of(data, "shellExecution").get("exitCode"))
        child = text_of(mapping_of(data, "toolTelemetry", "restrictedProperties"), "agent_id")
        self.add_response(
            text,
            call_id,
            identity,
            originating_model=text_of(data, "model"),
            exit_code=exit_code_in(text[-200:], _EXIT_CODE) if exit_code is None else exit_code,
            failed=not success if isinstance(success, bool) else None,
            extra={"child_session": f"{self.transcript.session}/{child}"} if child else None,
        )

    # ---- tokens

    def _read_usage(self, data: Payload, identity: str) -> None:
        usage = mapping_of(data, "usage")
        if tokens := tokens_of(usage, **_COUNTS):
            model = text_of(usage, "model") or self.memory.model
            self.add_usage(self._call_of(usage, identity), model=model, **tokens)
            self._spend(model or "", tokens)

    def _call_of(self, data: Payload, identity: str) -> str:
        """The name of a model call. Ids of some servers, such as `chatcmpl-842` of Ollama's, come again in others."""
        call = text_of(data, "apiCallId")
        return f"{self.transcript.session} {call}" if call else identity

    def _read_shutdown(self, data: Payload, identity: str) -> None:
        """The totals of the session since its beginning, by model: the tokens that no other record has."""
        for model, metrics in mapping_of(data, "modelMetrics").items():
            total = tokens_of(mapping_of(metrics, "usage"), **_COUNTS)
            spent = self.memory.spent.get(model, {})
            rest = {name: count - spent.get(name, 0) for name, count in total.items() if count > spent.get(name, 0)}
            if rest:
                self.add_usage(identity, model, model=model, **rest)
                self._spend(model, rest)

    def _spend(self, model: str, tokens: dict[str, int]) -> None:
        spent = self.memory.spent.setdefault(model, {})
        for name, count in tokens.items():
            spent[name] = spent.get(name, 0) + count


def _scalar(text: str) -> str:
    """A scalar of YAML on one line."""
    text = text.strip()
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if text.startswith('"'):
        try:
            return str(msgspec.json.decode(text))
        except ValueError:
            return text
    return "" if text in ("null", "~", "|", ">", "|-", ">-") else text

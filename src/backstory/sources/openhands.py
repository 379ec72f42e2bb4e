"""OpenHands: a folder for each conversation, with a state that is rewritten and a file for each event."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Transcript
from .content import texts_of
from .decoding import decode_or_none, encode, read_document, read_or_none
from .fields import Payload, integer, mapping_of, mappings_of, text_of
from .parsing import StatelessParser, Writer

_FINISH = "finish"


class OpenHands(Source):
    name = "openhands"

    def gathers(self, folder: Path) -> bool:
        return folder.parent.name == "conversations"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return Transcript(source=self.name, path=path, session=path.name) if (path / "events").is_dir() else None

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Conversation(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        yield {"state": mapping_of(read_or_none(path / "base_state.json"))}
        for event in sorted((path / "events").glob("event-*.json")):
            try:
                yield read_document(event)
            except ValueError:
                yield None


class _Conversation(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._model: str | None = None
        self._usage: dict[str, Payload] = {}

    def parse(self, record: Payload) -> Iterator[Item]:
        if "state" in record:
            yield self._begin(record["state"])
            return
        ts = parse_time(record.get("timestamp"))
        write = self.writer(text_of(record, "id") or encode(record), ts=ts, model=self._model)
        yield from self._tokens(write, text_of(record, "llm_response_id"))
        match record.get("kind"):
            case "MessageEvent":
                yield from self._message(write, record)
            case "ActionEvent":
                yield from self._action(write, record)
            case "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent":
                yield self._observation(write, record)
            case "SystemPromptEvent" | "ConversationStateUpdateEvent" | "Condensation" | "CondensationRequest":
                if summary := text_of(record, "summary"):
                    yield write.event("summary", EventType.COMPACTION, summary)
            case "PauseEvent":
                yield write.event("pause", EventType.RUNTIME, "paused", ends_turn=True, extra={"interrupted": True})
            case "ConversationErrorEvent":
                yield write.event("error", EventType.RUNTIME, text_of(record, "detail", "code") or "", ends_turn=True)
            case _ if "system_prompt" in record:
                pass
            case _:
                yield write.event("raw", EventType.UNKNOWN, encode(record))

    def _begin(self, state: Payload) -> Item:
        """The tokens of a model call are in the state, under the id of the response that its events name."""
        self._model = text_of(mapping_of(state, "agent", "llm"), "model")
        for metrics in mapping_of(state, "stats", "usage_to_metrics").values():
            calls, costs = (mappings_of(mapping_of(metrics).get(name)) for name in ("token_usages", "costs"))
            # A cost has no id: it is that of the call in its place, if each call has one.
            each = costs if len(costs) == len(calls) else [{}] * len(calls)
            for call, cost in zip(calls, each, strict=True):
                self._usage[text_of(call, "response_id") or ""] = {**call, "cost": cost.get("cost")}
        return About(cwd=text_of(mapping_of(state, "workspace"), "working_dir"), title=text_of(state, "title"))

    def _tokens(self, write: Writer, response: str | None) -> Iterator[Item]:
        call = self._usage.get(response or "")
        if call is None or response is None:
            return
        counted = self.writer(response, ts=write.ts, model=text_of(call, "model") or self._model)
        read, written = integer(call.get("cache_read_tokens")) or 0, integer(call.get("cache_write_tokens")) or 0
        usage = counted.usage(
            fresh=(integer(call.get("prompt_tokens")) or 0) - read - written,
            output=call.get("completion_tokens"),
            cache_read=read,
            cache_write=written,
            reasoning=call.get("reasoning_tokens"),
            cost=call.get("cost"),
            request=response,
        )
        write.usage_key = counted.usage_key
        yield from usage

    def _message(self, write: Writer, record: Payload) -> Iterator[Item]:
        message = mapping_of(record, "llm_message")
        text = texts_of(message.get("content"))
        if record.get("source") == "user":
            yield write.prompt("prompt", text)
            return
        if thought := text_of(message, "reasoning_content"):
            yield write.thought("thought", thought)
        if text and record.get("source") == "agent":
            yield write.answer("text", text, ends_turn=True)
        elif text:
            yield write.event("text", EventType.SYSTEM, text)

    def _action(self, write: Writer, record: Payload) -> Iterator[Item]:
        if thought := text_of(record, "reasoning_content"):
            yield write.thought("thought", thought)
        if text := texts_of(record.get("thought")):
            yield write.answer("text", text)
        tool, action = text_of(record, "tool_name") or "unknown", mapping_of(record, "action")
        if tool == _FINISH:
            yield write.answer("finish", text_of(action, "message") or "", ends_turn=True)
            return
        given = decode_or_none(text_of(mapping_of(record, "tool_call"), "arguments"))
        arguments = {name: value for name, value in (given or action).items() if name not in ("kind", "security_risk")}
        yield write.call("call", tool, text_of(record, "tool_call_id"), arguments)

    def _observation(self, write: Writer, record: Payload) -> Item:
        seen = mapping_of(record, "observation")
        text = texts_of(seen.get("content")) or text_of(record, "error", "rejection_reason") or ""
        exit_code = integer(seen.get("exit_code"))
        exit_code = None if exit_code == -1 else exit_code  # it is not known
        failed = seen.get("is_error") is True or bool(exit_code) or record["kind"] != "ObservationEvent"
        cwd = text_of(mapping_of(seen, "metadata"), "working_dir")
        tool, call_id = text_of(record, "tool_name"), text_of(record, "tool_call_id")
        return write.result("result", tool, call_id, text, exit_code=exit_code, failed=failed, cwd=cwd)

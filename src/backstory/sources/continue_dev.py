"""Continue: one JSON document for each session, rewritten with each message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Transcript
from .content import command_exit_code
from .decoding import decode_or_none, read_document, read_or_none
from .fields import Payload, integer, list_of, local_path, mapping_of, mappings_of, text_of
from .parsing import StatelessParser, Writer

_PLACEHOLDERS = ("Untitled Session", "New Session")
_FINISHED = {"done", "errored", "canceled"}


class Continue(Source):
    name = "continue"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".json" and path.name != "sessions.json"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        """The index beside it has the time when it began: messages have none."""
        if b'"history"' not in head and b'"sessionId"' not in head:
            return None
        listed = read_or_none(path.with_name("sessions.json"))
        entries = map(mapping_of, listed) if isinstance(listed, list) else ()
        entry = next((entry for entry in entries if entry.get("sessionId") == path.stem), {})
        created = entry.get("dateCreated")
        begun = parse_time(int(created) if isinstance(created, str) and created.isdecimal() else created)
        return Transcript(source=self.name, path=path, session=path.stem, begun=begun or 0)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Session(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        document = mapping_of(read_document(path))
        yield {"session": document}
        for index, entry in enumerate(mappings_of(document.get("history"))):
            yield {"entry": entry, "index": index, "model": text_of(document, "chatModelTitle")}


class _Session(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            session = record["session"]
            title = text_of(session, "title")
            folder = text_of(session, "workspaceDirectory")
            yield About(
                title=None if title in _PLACEHOLDERS else title,
                title_rank=2,
                cwd=local_path(folder) if folder else None,
            )
            return
        entry = record["entry"]
        message = mapping_of(entry, "message")
        usage = mapping_of(message, "usage")
        model = text_of(usage, "model") or record["model"]
        write = self.writer(text_of(message, "id") or str(record["index"]), model=model)
        text = _text(message.get("content"))
        match message.get("role"):
            case "user":
                yield write.prompt("prompt", text)
            case "assistant":
                yield from self._answer(write, entry, message, text)
            case "thinking":
                if text:
                    yield write.thought("thought", text)
            case "system":
                yield write.event("text", EventType.SYSTEM, text)
            case "tool":  # the state of the call has the same output
                pass
            case role:
                raise ValueError(f"a message of the role {role!r}")

    def _answer(self, write: Writer, entry: Payload, message: Payload, text: str) -> Iterator[Item]:
        usage = mapping_of(message, "usage")
        read = integer(mapping_of(usage, "prompt_tokens_details").get("cached_tokens")) or 0
        cents = usage.get("cost_cents")
        yield from write.usage(
            fresh=(integer(usage.get("prompt_tokens") or usage.get("promptTokens")) or 0) - read,
            output=usage.get("completion_tokens") or usage.get("completionTokens"),
            cache_read=read,
            reasoning=mapping_of(usage, "completion_tokens_details").get("reasoning_tokens"),
            cost=cents / 100 if isinstance(cents, int | float) else None,
        )
        if thought := text_of(mapping_of(entry, "reasoning"), "text"):
            yield write.thought("thought", thought)
        states = entry.get("toolCallStates")
        states = {text_of(state, "toolCallId"): state for state in states} if isinstance(states, list) else {}
        calls = mappings_of(message.get("toolCalls"))
        if text:
            yield write.answer("text", text, may_end_turn=not calls)
        for number, call in enumerate(calls):
            call_id, function = text_of(call, "id"), mapping_of(call, "function")
            tool, state = text_of(function, "name") or "unknown", mapping_of(states.get(call_id))
            given = mapping_of(state, "parsedArgs") or decode_or_none(text_of(function, "arguments"))
            yield write.call(f"call {number}", tool, call_id, function.get("arguments") if given is None else given)
            if state.get("status") in _FINISHED:
                texts = [text_of(part, "content") or "" for part in list_of(state.get("output"))]
                result = "\n".join(texts)
                exit_code = command_exit_code(result, tool)
                failed = state["status"] != "done" or bool(exit_code)
                yield write.result(f"result {number}", tool, call_id, result, exit_code=exit_code, failed=failed)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(text for part in content if (text := text_of(part, "text")))
    return content if isinstance(content, str) else ""

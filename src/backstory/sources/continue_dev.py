"""Continue, and Kiro's editor, which is a relative: one JSON document for each session, rewritten with each message.

An index beside the documents has the time when each session began: messages have none. Kiro has a folder for each
workspace. An answer in it is often a placeholder that names an execution. What the agent said and did is in the log of
that: a document of its own, in a folder that is named after the digest of the workspace.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Transcript
from .content import command_exit_code, texts_of
from .decoding import decode_or_none, encode, read_document, read_or_none
from .fields import Payload, integer, list_of, local_path, mapping_of, mappings_of, text_of
from .parsing import StatelessParser, Writer

_INDEX = "sessions.json"
_PLACEHOLDERS = ("Untitled Session", "New Session")
_FINISHED = {"done", "errored", "canceled"}
_EXECUTION = re.compile(rb'"executionId"\s*:\s*"([^"]{1,100})"')
_HEAD_BYTES = 512
# Steps of Kiro's agent that are no tools.
_INNER = {"intentClassification"}


class Continue(Source):
    name = "continue"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".json" and path.name != _INDEX

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        if b'"history"' not in head and b'"sessionId"' not in head:
            return None
        return Transcript(source=self.name, path=path, session=path.stem, begun=_begun(path))

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
        text = texts_of(message.get("content"))
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


def _entry(path: Path) -> Payload:
    """The line of a session in the index beside it."""
    entries = map(mapping_of, list_of(read_or_none(path.with_name(_INDEX))))
    return next((entry for entry in entries if entry.get("sessionId") == path.stem), {})


def _begun(path: Path) -> int:
    created = _entry(path).get("dateCreated")
    return parse_time(int(created) if isinstance(created, str) and created.isdecimal() else created) or 0


class KiroIde(Source):
    name = "kiro-ide"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".json" and path.name != _INDEX and path.parent.parent.name == "workspace-sessions"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return Transcript(source=self.name, path=path, session=path.stem, begun=_begun(path))

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _KiroSession(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        document = mapping_of(read_document(path))
        workspace = text_of(document, "workspaceDirectory") or text_of(_entry(path), "workspaceDirectory")
        yield {"session": document, "workspace": workspace}
        logs = _executions(path, workspace) if workspace else {}
        for index, entry in enumerate(mappings_of(document.get("history"))):
            log = logs.get(text_of(entry, "executionId") or "")
            actions = mappings_of(mapping_of(read_or_none(log)).get("actions")) if log else []
            yield {"entry": entry, "index": index, "actions": actions}


def _executions(path: Path, workspace: str) -> dict[str, Path]:
    """The logs of a workspace, by the ids of their executions."""
    folder = path.parents[2] / hashlib.sha256(workspace.encode()).hexdigest()[:32]
    found = {}
    for log in filter(Path.is_file, folder.glob("*/*")):
        try:
            with log.open("rb") as stream:
                identity = _EXECUTION.search(stream.read(_HEAD_BYTES))
        except OSError:
            continue
        if identity:
            found[identity[1].decode("utf-8", "replace")] = log
    return found


class _KiroSession(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            yield About(title=text_of(record["session"], "title"), title_rank=2, cwd=text_of(record, "workspace"))
            return
        message = mapping_of(record["entry"], "message")
        write = self.writer(text_of(message, "id") or str(record["index"]))
        text = texts_of(message.get("content"))
        match message.get("role"):
            case "user":
                yield write.prompt("prompt", text)
            case "assistant":
                yield from self._answer(write, record["actions"], text)
            case "tool":  # the log of the execution has the same output
                pass
            case _:
                yield write.event("raw", EventType.UNKNOWN, encode(record["entry"]))

    def _answer(self, write: Writer, actions: list[Payload], text: str) -> Iterator[Item]:
        said = [number for number, action in enumerate(actions) if action.get("actionType") == "say"]
        if not said and text:
            yield write.answer("text", text, may_end_turn=True)
        for number, action in enumerate(actions):
            ts = parse_time(action.get("emittedAt"))
            output, kind = action.get("output"), text_of(action, "actionType") or "unknown"
            shown = text_of(output, "message", "output")
            if kind == "say":
                if shown:
                    is_last = number == len(actions) - 1
                    yield write.answer(f"action {number}", shown, ts=ts, may_end_turn=is_last)
            elif kind not in _INNER:
                call_id = text_of(action, "actionId") or str(number)
                yield write.call(f"action {number}", kind, call_id, action.get("input"), ts=ts)
                if output is not None:
                    code = integer(mapping_of(output).get("exitCode"))
                    failed = None if code is None else code != 0
                    text = shown or encode(output)
                    yield write.result(f"output {number}", kind, call_id, text, ts=ts, exit_code=code, failed=failed)

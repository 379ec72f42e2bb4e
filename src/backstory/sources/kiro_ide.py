"""Kiro's editor: one JSON document for each session, rewritten with each message, in a folder for each workspace.

An answer in it is often a placeholder that names an execution. What the agent said and did is in the log of that: a
document of its own, in a folder that is named after the digest of the workspace.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Transcript
from .decoding import encode, read_document, read_or_none
from .fields import Payload, integer, list_of, mapping_of, mappings_of, text_of
from .parsing import StatelessParser, Writer

_SESSIONS, _INDEX = "workspace-sessions", "sessions.json"
_EXECUTION = re.compile(rb'"executionId"\s*:\s*"([^"]{1,100})"')
_HEAD_BYTES = 512
# Steps of the agent that are no tools.
_INNER = {"intentClassification"}


class KiroIde(Source):
    name = "kiro-ide"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".json" and path.name != _INDEX and path.parent.parent.name == _SESSIONS

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        """The index beside it has the time when it began: messages have none."""
        entry = _entry(path)
        created = entry.get("dateCreated")
        begun = parse_time(int(created) if isinstance(created, str) and created.isdecimal() else created)
        return Transcript(source=self.name, path=path, session=path.stem, begun=begun or 0)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Session(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        document = mapping_of(read_document(path))
        workspace = text_of(document, "workspaceDirectory") or text_of(_entry(path), "workspaceDirectory")
        yield {"session": document, "workspace": workspace}
        logs = _executions(path, workspace) if workspace else {}
        for index, entry in enumerate(mappings_of(document.get("history"))):
            log = logs.get(text_of(entry, "executionId") or "")
            actions = mappings_of(mapping_of(read_or_none(log)).get("actions")) if log else []
            yield {"entry": entry, "index": index, "actions": actions}


def _entry(path: Path) -> Payload:
    """The line of a session in the index of its workspace."""
    entries = map(mapping_of, list_of(read_or_none(path.with_name(_INDEX))))
    return next((entry for entry in entries if entry.get("sessionId") == path.stem), {})


def _executions(path: Path, workspace: str) -> dict[str, Path]:
    """The logs of a workspace, by the ids of their executions."""
    folder = path.parents[2] / hashlib.sha256(workspace.encode()).hexdigest()[:32]
    found = {}
    for log in folder.glob("*/*"):
        try:
            with log.open("rb") as stream:
                identity = _EXECUTION.search(stream.read(_HEAD_BYTES))
        except OSError:
            continue
        if identity:
            found[identity[1].decode("utf-8", "replace")] = log
    return found


class _Session(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            yield About(title=text_of(record["session"], "title"), title_rank=2, cwd=record["workspace"])
            return
        message = mapping_of(record["entry"], "message")
        write = self.writer(text_of(message, "id") or str(record["index"]))
        text = _text(message.get("content"))
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


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(text_of(block, "text") or "" for block in mappings_of(content) if block.get("type") == "text")

"""Drives the Claude Code source as ingest does, and makes records, for the tests beside this file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from backstory.model import EventType
from backstory.sources.base import About, Event, Item, Transcript
from backstory.sources.claude_code.source import ClaudeCode

HEAD = 64 * 1024
SESSION = "0c0ffee0-0000-4000-8000-00000000000a"


def describe(path: Path) -> Transcript | None:
    with path.open("rb") as file:
        return ClaudeCode().describe(path, file.read(HEAD))


def load(path: Path) -> list[Any]:
    """The records of a file. Lines that are not JSON are ingest's business, not the source's."""
    records = ClaudeCode().records(path)
    if records is not None:
        return list(records)
    decoded = []
    for line in path.read_bytes().split(b"\n"):
        try:
            decoded.append(msgspec.json.decode(line))
        except msgspec.DecodeError:
            continue
    return decoded


def write(path: Path, records: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return path


def transcript(path: Path = Path(f"/nowhere/projects/-x/{SESSION}.jsonl"), **more: Any) -> Transcript:
    return Transcript(source="claude-code", path=path, **{"session": SESSION, **more})


def feed(records: Iterable[Any], of: Transcript | None = None) -> list[Item]:
    parser = ClaudeCode().parser(of or transcript(), None, lambda session: frozenset())
    items = [item for record in records for item in parser.parse(record)]
    return [*items, *parser.finish()]


def feed_with_restarts(records: Iterable[Any], of: Transcript | None = None) -> list[Item]:
    """A new parser for every record, from the state of the one before as the archive keeps it."""
    state = None
    items: list[Item] = []
    for record in records:
        parser = ClaudeCode().parser(of or transcript(), state, lambda session: frozenset())
        items += parser.parse(record)
        state = msgspec.json.decode(msgspec.json.encode(parser.state()))
    return [*items, *ClaudeCode().parser(of or transcript(), state, lambda session: frozenset()).finish()]


def events(items: Iterable[Item], *kinds: EventType, session: str | None = None) -> list[Event]:
    """The events of a session (None: the file's own), of some types or all, as they read in the end."""
    found: list[Event] = []
    for item in items:
        if isinstance(item, Event) and item.session == session:
            if item.replaces:
                found[[event.uid for event in found].index(item.uid)] = item
            else:
                found.append(item)
    return [event for event in found if not kinds or event.type in kinds]


def prompts(items: Iterable[Item], session: str | None = None) -> list[str]:
    """The prompts: events that start turns."""
    return [event.text for event in events(items, session=session) if event.starts_turn]


def titles(items: Iterable[Item], session: str | None = None) -> list[tuple[str, int]]:
    abouts = [item for item in items if isinstance(item, About) and item.session == session]
    return [(about.title, about.title_rank) for about in abouts if about.title]


class Records:
    """Makes records in the shape of real ones: each the child of the one before, a second later."""

    def __init__(self, session: str = SESSION, **envelope: Any) -> None:
        self._envelope = {"isSidechain": False, "userType": "external", "cwd": "/home/ada/shop", "sessionId": session}
        self._envelope |= {"version": "2.1.160", "gitBranch": "main", **envelope}
        self._count = 0
        self._last: str | None = None

    def record(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._count += 1
        uuid = f"{self._count:08d}-{self._envelope['sessionId'][-4:]}"
        stamp = f"2026-03-01T10:{self._count // 60:02d}:{self._count % 60:02d}.000Z"
        made = {"parentUuid": self._last, **self._envelope, "type": kind, "uuid": uuid, "timestamp": stamp, **fields}
        self._last = made["uuid"]
        return made

    def user(self, content: Any, **fields: Any) -> dict[str, Any]:
        return self.record("user", message={"role": "user", "content": content}, **fields)

    def result(self, call: str, content: Any, *, error: bool | None = None, **fields: Any) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": call, "content": content}
        return self.user([block if error is None else {**block, "is_error": error}], **fields)

    def assistant(
        self, *blocks: Any, stop: str | None = None, message: dict[str, Any] | None = None, **fields: Any
    ) -> Any:
        content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        made = {"id": f"msg_{self._count + 1}", "role": "assistant", "model": "claude-opus-4-8", "content": content}
        made |= {"stop_reason": stop, **(message or {})}
        return self.record("assistant", message=made, **{"requestId": f"req_{self._count + 1}", **fields})

    def system(self, subtype: str, **fields: Any) -> dict[str, Any]:
        return self.record("system", subtype=subtype, **fields)

    def attachment(self, kind: str, **fields: Any) -> dict[str, Any]:
        return self.record("attachment", attachment={"type": kind, **fields})

    def progress(self, agent: str, call: str, inner: dict[str, Any]) -> dict[str, Any]:
        kept = ("type", "message", "uuid", "timestamp", "requestId", "toolUseResult")
        nested = {name: inner[name] for name in kept if name in inner}
        data = {"type": "agent_progress", "agentId": agent, "message": nested, "normalizedMessages": [], "prompt": "?"}
        return self.record("progress", data=data, toolUseID="agent_msg", parentToolUseID=call)

    def queue(self, operation: str, content: str | None = None) -> dict[str, Any]:
        self._count += 1
        stamp = f"2026-03-01T10:{self._count // 60:02d}:{self._count % 60:02d}.000Z"
        made = {"type": "queue-operation", "operation": operation, "timestamp": stamp, "sessionId": SESSION}
        return made if content is None else {**made, "content": content}


def call(name: str, id: str = "toolu_1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}

"""Drives the Codex source as ingest does, for the tests beside this file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from backstory.model import EventType
from backstory.sources.base import Event, Item, Lookup, Transcript
from backstory.sources.codex import Codex

HEAD = 64 * 1024
SESSION = "019ee001-0000-7000-8000-00000000000a"


def nothing_known(session: str) -> frozenset[str]:
    return frozenset()


def describe(path: Path) -> Transcript | None:
    with path.open("rb") as file:
        return Codex().describe(path, file.read(HEAD))


def load(path: Path) -> list[Any]:
    """The records of a file. Lines that are not JSON are ingest's business, not the source's."""
    records = Codex().records(path)
    if records is not None:
        return list(records)
    decoded = []
    for line in path.read_bytes().split(b"\n"):
        try:
            decoded.append(msgspec.json.decode(line))
        except msgspec.DecodeError:
            continue
    return decoded


def read(path: Path, lookup: Lookup = nothing_known) -> list[Item]:
    transcript = describe(path)
    assert transcript is not None
    return feed(load(path), transcript, lookup)


def feed(records: Iterable[Any], transcript: Transcript | None = None, lookup: Lookup = nothing_known) -> list[Item]:
    parser = Codex().parser(transcript or made_up(), None, lookup)
    items: list[Item] = []
    for record in records:
        items += parser.parse(record)
    return [*items, *parser.finish()]


def feed_with_restarts(
    records: Iterable[Any], transcript: Transcript | None = None, lookup: Lookup = nothing_known
) -> list[Item]:
    """The same, but every record is read by a new parser that has only the saved state of the one before."""
    state: dict[str, Any] | None = None
    items: list[Item] = []
    for record in records:
        parser = Codex().parser(transcript or made_up(), state, lookup)
        items += parser.parse(record)
        state = msgspec.json.decode(msgspec.json.encode(parser.state()))
    return [*items, *Codex().parser(transcript or made_up(), state, lookup).finish()]


def made_up(**fields: Any) -> Transcript:
    return Transcript(**{"source": "codex", "path": Path("rollout.jsonl"), "session": SESSION, **fields})


class Rollout:
    """Writes records in the shapes of Codex, one second apart."""

    def __init__(self) -> None:
        self.seconds = 0

    def record(self, kind: str, /, **payload: Any) -> dict[str, Any]:
        self.seconds += 1
        minutes, seconds = divmod(self.seconds, 60)
        return {"timestamp": f"2026-06-18T09:{minutes:02d}:{seconds:02d}.000Z", "type": kind, "payload": payload}

    def item(self, kind: str, /, **payload: Any) -> dict[str, Any]:
        return self.record("response_item", type=kind, **payload)

    def event(self, kind: str, /, **payload: Any) -> dict[str, Any]:
        return self.record("event_msg", type=kind, **payload)

    def turn_item(self, kind: str, /, **item: Any) -> dict[str, Any]:
        return self.event("item_completed", thread_id=SESSION, turn_id="turn-1", item={"type": kind, **item})

    def meta(self, session: str = SESSION, **payload: Any) -> dict[str, Any]:
        return self.record("session_meta", **{"id": session, "cwd": "/home/mira/shop", **payload})

    def context(self, turn: str | None = None, model: str = "gpt-5.5", cwd: str = "/home/mira/shop") -> dict[str, Any]:
        return self.record("turn_context", **({"turn_id": turn} if turn else {}), model=model, cwd=cwd)

    def started(self, turn: str) -> dict[str, Any]:
        return self.event("task_started", turn_id=turn)

    def complete(self, turn: str, last: str | None = None, **payload: Any) -> dict[str, Any]:
        return self.event("task_complete", turn_id=turn, last_agent_message=last, **payload)

    def user_item(self, *texts: str, **payload: Any) -> dict[str, Any]:
        content = [{"type": "input_text", "text": text} for text in texts]
        return self.item("message", role="user", content=content, **payload)

    def user_event(self, text: str, **payload: Any) -> dict[str, Any]:
        return self.event("user_message", message=text, **payload)

    def answer_item(self, text: str) -> dict[str, Any]:
        return self.item("message", role="assistant", content=[{"type": "output_text", "text": text}])

    def answer_event(self, text: str) -> dict[str, Any]:
        return self.event("agent_message", message=text)

    def call(self, call_id: str = "call_1", name: str = "exec_command", **arguments: Any) -> dict[str, Any]:
        encoded = msgspec.json.encode(arguments).decode()
        return self.item("function_call", name=name, arguments=encoded, call_id=call_id)

    def output(self, output: Any, call_id: str = "call_1") -> dict[str, Any]:
        return self.item("function_call_output", call_id=call_id, output=output)

    def tokens(self, last: int | None, total: int | None) -> dict[str, Any]:
        info = {}
        if last is not None:
            info["last_token_usage"] = {"input_tokens": last, "output_tokens": 1}
        if total is not None:
            info["total_token_usage"] = {"input_tokens": total, "output_tokens": 1}
        return self.event("token_count", info=info)


def events(items: Iterable[Item], *types: EventType) -> list[Event]:
    return [item for item in items if isinstance(item, Event) and (not types or item.type in types)]


def texts(items: Iterable[Item], *types: EventType) -> list[str]:
    return [event.text for event in events(items, *types)]


def prompts(items: Iterable[Item]) -> list[str]:
    return texts(items, EventType.USER_INPUT)


def answers(items: Iterable[Item]) -> list[str]:
    return texts(items, EventType.ASSISTANT_RESPONSE)

"""Warp: conversations with its agent in one database. Messages are protocol buffers, of which the texts are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript
from .database import has_table, open_database
from .decoding import decode_or_none
from .fields import Payload, list_of, mapping_of, text_of
from .parsing import StatelessParser

# Field numbers of a task, of a message in it, and of the parts of a message.
_DESCRIPTION, _MESSAGE = 2, 5
_ID, _USER, _AGENT, _REQUEST, _TIME = 1, 2, 3, 13, 14
_TEXT, _SECONDS = 1, 1


class Warp(Source):
    name = "warp"

    def accepts(self, path: Path) -> bool:
        return path.name == "warp.sqlite"

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Conversation(transcript)

    def sessions(self, path: Path) -> Iterator[Stored]:
        with open_database(path) as database:
            if not has_table(database, "ai_queries"):
                return
            counts = (
                "SELECT conversation_id AS id, count(*) AS count, max(start_ts) AS updated FROM ai_queries GROUP BY 1"
            )
            found = {row["id"]: (row["count"], parse_time(row["updated"]) or 0) for row in database.execute(counts)}
            if has_table(database, "agent_tasks"):
                query = "SELECT conversation_id AS id, sum(length(task)) AS bytes, max(last_modified_at) AS updated"
                for row in database.execute(f"{query} FROM agent_tasks GROUP BY 1"):
                    count, updated = found.get(row["id"], (0, 0))
                    found[row["id"]] = (count + row["bytes"], max(updated, parse_time(row["updated"]) or 0))
        for session, (version, updated) in found.items():
            yield Stored(session=session, updated=updated, version=version)

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        with open_database(path) as database:
            queries = database.execute(
                "SELECT exchange_id, start_ts, input, working_directory, model_id FROM ai_queries"
                " WHERE conversation_id = ? ORDER BY id",
                (session,),
            ).fetchall()
            tasks = []
            if has_table(database, "agent_tasks"):
                query = "SELECT task FROM agent_tasks WHERE conversation_id = ? ORDER BY id"
                tasks = [row["task"] for row in database.execute(query, (session,))]
        asked = {row["exchange_id"]: dict(row) for row in queries}
        messages = [message for task in tasks for message in _messages(task)]
        for message in sorted(messages, key=lambda message: message["ts"] or 0):
            yield {"message": message, "query": asked.get(message["request"], {})}
        answered = {message["request"] for message in messages}
        for identity, found in asked.items():
            if identity not in answered:  # before there were tasks, only prompts were kept
                yield {"message": None, "query": found}


class _Conversation(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        message, query = record["message"], record["query"]
        model, cwd = text_of(query, "model_id"), text_of(query, "working_directory")
        if cwd:
            yield About(cwd=cwd)
        if message is None:
            texts = [_typed(mapping_of(entry)) for entry in list_of(decode_or_none(text_of(query, "input")))]
            write = self.writer(str(query["exchange_id"]), ts=parse_time(query.get("start_ts")))
            if text := "\n".join(filter(None, texts)):
                yield write.prompt("prompt", text)
            return
        write = self.writer(message["id"], ts=message["ts"], model=model, cwd=cwd)
        if message["user"]:
            yield write.prompt("prompt", message["user"])
        if message["agent"]:
            yield write.answer("text", message["agent"], may_end_turn=True)


def _typed(entry: Payload) -> str:
    return text_of(entry, "query") or text_of(mapping_of(entry, "Query"), "text", "query") or ""


def _messages(task: bytes) -> Iterator[Payload]:
    for data in _values(task, _MESSAGE):
        ts = next((parse_time(value) for time in _values(data, _TIME) for value in _numbers(time, _SECONDS)), None)
        yield {
            "id": _first_text(data, _ID),
            "request": _first_text(data, _REQUEST),
            "ts": ts,
            "user": "\n".join(_first_text(part, _TEXT) for part in _values(data, _USER)),
            "agent": "\n".join(_first_text(part, _TEXT) for part in _values(data, _AGENT)),
        }


# Protocol buffers


def _first_text(data: bytes, field: int) -> str:
    return next((value.decode("utf-8", "replace") for value in _values(data, field)), "")


def _values(data: bytes, field: int) -> Iterator[bytes]:
    return (value for number, value in _fields(data) if number == field and isinstance(value, bytes))


def _numbers(data: bytes, field: int) -> Iterator[int]:
    return (value for number, value in _fields(data) if number == field and isinstance(value, int))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers as they are, everything with a length as bytes. Raises ValueError."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                value, position = _varint(data, position)
                yield tag >> 3, value
            case 2:
                length, position = _varint(data, position)
                if position + length > len(data):
                    raise ValueError("a field of a message is cut off")
                yield tag >> 3, data[position : position + length]
                position += length
            case 1:
                position += 8
            case 5:
                position += 4
            case kind:
                raise ValueError(f"a field of the wire type {kind}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
    raise ValueError("a number in a message is cut off")

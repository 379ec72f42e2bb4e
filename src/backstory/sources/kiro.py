"""Kiro's CLI: a JSON Lines file with a document beside it for each session, or, before that, one database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript
from .database import columns, open_database
from .decoding import decode, decode_or_none, encode, read_or_none
from .fields import Payload, integer, list_of, mapping_of, mappings_of, text_of
from .parsing import StatelessParser, Writer


class Kiro(Source):
    name = "kiro"

    def accepts(self, path: Path) -> bool:
        return path.name == "data.sqlite3" or (path.suffix == ".jsonl" and path.parent.name == "cli")

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return Transcript(source=self.name, path=path, session=path.stem)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Conversation(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        about = mapping_of(read_or_none(path.with_suffix(".json")))
        yield {"session": about}
        turns = list_of(mapping_of(about, "session_state", "conversation_metadata").get("user_turn_metadatas"))
        *lines, torn = path.read_bytes().split(b"\n")
        prompts = 0
        for index, line in enumerate((*lines, torn if decode_or_none(torn) else b"")):
            if not line.strip():
                continue
            if not (record := mapping_of(decode_or_none(line))):
                yield None  # an error of that line alone
                continue
            yield {"line": record, "index": index}
            if record.get("kind") == "Prompt":
                if prompts < len(turns):
                    yield {"turn": mapping_of(turns[prompts]), "index": prompts}
                prompts += 1
        for index in range(prompts, len(turns)):  # of prompts that a compaction took out
            yield {"turn": mapping_of(turns[index]), "index": index}

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        return _sessions(path) if path.suffix == ".sqlite3" else None

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        with open_database(path) as database:
            for table, identity, _ in _tables(database):
                row = database.execute(f"SELECT key, value FROM {table} WHERE {identity} = ?", (session,)).fetchone()
                if row is None:
                    continue
                conversation = mapping_of(decode(row["value"]))
                yield {"session": {"cwd": row["key"]}}
                for index, entry in enumerate(mappings_of(conversation.get("history"))):
                    yield {"exchange": entry, "index": index}
                return


class _Table(NamedTuple):
    """A table of conversations, with its column for the id of one, and whether it has the times of their changes."""

    name: str
    identity: str
    has_times: bool


def _tables(database: sqlite3.Connection) -> Iterator[_Table]:
    for name in ("conversations_v2", "conversations"):
        if known := columns(database, name):
            identity = "conversation_id" if "conversation_id" in known else "key"
            yield _Table(name, identity, "updated_at" in known)


def _sessions(path: Path) -> Iterator[Stored]:
    with open_database(path) as database:
        for table, identity, has_times in _tables(database):
            if not has_times:
                for session, size in database.execute(f"SELECT {identity}, length(value) FROM {table}").fetchall():
                    yield Stored(session=str(session), updated=0, version=size or 0)
                continue
            # Times and ids are both in an index. In the table they stand around the conversations, which SQLite would
            # read to get past them.
            times = dict(database.execute(f"SELECT rowid, updated_at FROM {table}").fetchall())
            for row, session in database.execute(f"SELECT rowid, {identity} FROM {table}").fetchall():
                time = times.get(row)
                yield Stored(session=str(session), updated=parse_time(time) or 0, version=integer(time) or 0)


class _Conversation(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._model: str | None = None

    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            session = record["session"]
            info = mapping_of(session, "session_state", "rts_model_state", "model_info")
            self._model = text_of(info, "model_id")
            yield About(title=text_of(session, "title"), title_rank=2, cwd=text_of(session, "cwd"))
        elif "turn" in record:
            turn = record["turn"]
            write = self.writer(f"turn {record['index']}", model=self._model)
            yield from write.usage(fresh=turn.get("input_token_count"), output=turn.get("output_token_count"))
        elif "exchange" in record:
            yield from self._exchange(record["exchange"], record["index"])
        else:
            yield from self._line(record["line"], record["index"])

    # JSON Lines

    def _line(self, line: Payload, index: int) -> Iterator[Item]:
        data = mapping_of(line, "data")
        ts = parse_time(mapping_of(data, "meta").get("timestamp"))
        identity = text_of(data, "message_id") or str(index)
        write = self.writer(identity, ts=ts, model=self._model)
        parts = mappings_of(data.get("content"))
        match line.get("kind"):
            case "Prompt":
                texts = [part["data"] for part in parts if isinstance(part.get("data"), str)]
                yield write.prompt("prompt", "\n".join(texts))
            case "AssistantMessage":
                yield from self._answer(write, parts)
            case "ToolResults":
                for number, part in enumerate(parts):
                    yield self._result(write, str(number), mapping_of(part, "data"))
            case "Compaction":
                yield write.event("summary", EventType.COMPACTION, text_of(data, "summary") or "")
            case _:
                yield write.event("raw", EventType.UNKNOWN, encode(line))

    def _answer(self, write: Writer, parts: list[Payload]) -> Iterator[Item]:
        calls = any(part.get("kind") == "toolUse" for part in parts)
        for number, part in enumerate(parts):
            name, data = str(number), part.get("data")
            match part.get("kind"):
                case "text" if isinstance(data, str) and data:
                    yield write.answer(name, data, may_end_turn=not calls)
                case "thinking":
                    if thought := text_of(data, "text"):
                        yield write.thought(name, thought)
                case "toolUse":
                    call_id, tool = text_of(data, "toolUseId") or "", text_of(data, "name") or "unknown"
                    self.tools[call_id] = tool
                    write.model = text_of(data, "modelId") or write.model
                    yield write.call(name, tool, call_id, mapping_of(data).get("input"))
                case "text" | "image":
                    pass
                case _:
                    yield write.event(name, EventType.UNKNOWN, encode(part))

    def _result(self, write: Writer, part: str, data: Payload) -> Item:
        call_id = text_of(data, "toolUseId", "tool_use_id") or ""
        texts = [_result_text(mapping_of(entry)) for entry in list_of(data.get("content"))]
        text = "\n".join(texts)
        failed = str(data.get("status", "success")).lower() != "success"
        return write.text_result(part, self.tools.get(call_id), call_id, text, failed=failed)

    # The database

    def _exchange(self, exchange: Payload, index: int) -> Iterator[Item]:
        user, answer = mapping_of(exchange, "user"), mapping_of(exchange, "assistant")
        metadata = mapping_of(exchange, "request_metadata")
        asked = self.writer(f"{index} user", ts=parse_time(user.get("timestamp")))
        place = mapping_of(user, "env_context", "env_state")
        if cwd := text_of(place, "current_working_directory"):
            yield About(cwd=cwd)
        content = mapping_of(user, "content")
        if prompt := text_of(mapping_of(content, "Prompt"), "prompt"):
            yield asked.prompt("prompt", prompt)
        for number, result in enumerate(mappings_of(mapping_of(content, "ToolUseResults").get("tool_use_results"))):
            yield self._result(asked, str(number), result)
        ts = parse_time(metadata.get("stream_end_timestamp_ms"))
        model = text_of(metadata, "model_id") or self._model
        kind, message = next(iter(answer.items()), ("", {}))
        write = self.writer(text_of(message, "message_id") or f"{index} answer", ts=ts, model=model)
        if text := text_of(message, "content"):
            yield write.answer("text", text, ends_turn=kind == "Response")
        for number, call in enumerate(mappings_of(mapping_of(message).get("tool_uses"))):
            call_id, tool = text_of(call, "id") or "", text_of(call, "name") or "unknown"
            self.tools[call_id] = tool
            yield write.call(f"call {number}", tool, call_id, call.get("args"))


def _result_text(entry: Payload) -> str:
    data = entry.get("data")
    if isinstance(data, str):
        return data
    for value in (entry.get("Text"), entry.get("text")):
        if isinstance(value, str):
            return value
    return encode(data if data is not None else entry)

"""Goose: one database with all sessions (since 1.10), or one JSON Lines file for each (before)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript, Usage
from .database import columns, has_table, open_database, pages, row_of, turn_start
from .decoding import decode_or_none, encode
from .fields import Payload, integer, list_of, mapping_of, text_of
from .parsing import StatelessParser, Writer

_SESSION_FIELDS = (
    "id name description working_dir updated_at model_config_json parent_session_id "
    "accumulated_input_tokens accumulated_output_tokens accumulated_cost "
    "accumulated_cache_read_tokens accumulated_cache_write_tokens"
).split()
_COUNTS = "input_tokens output_tokens cost cache_read_tokens cache_write_tokens".split()
_IS_PROMPT = "role = 'user' AND content_json NOT LIKE '%\"toolResponse\"%'"


class Goose(Source):
    name = "goose"

    def accepts(self, path: Path) -> bool:
        return path.name == "sessions.db" or path.suffix == ".jsonl"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return Transcript(source=self.name, path=path, session=path.stem)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Conversation(transcript)

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        return _sessions(path) if path.suffix == ".db" else None

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        """Messages are only added. New ones are read from the prompt of their turn on."""
        with open_database(path) as database:
            about = row_of(database, "sessions", session, _SESSION_FIELDS)
            model = text_of(decode_or_none(about.get("model_config_json")), "model_name")
            start = turn_start(database, session, since, prompts=_IS_PROMPT)
            yield {"session": about}
            identity = "message_id" if "message_id" in columns(database, "messages") else "NULL AS message_id"
            query = (
                f"SELECT id, {identity}, role, content_json, created_timestamp, metadata_json FROM messages"
                " WHERE session_id = :session AND id > :after ORDER BY id LIMIT :limit"
            )
            for message in pages(database, query, {"session": session}, after=start - 1):
                yield {
                    "id": message["message_id"] or str(message["id"]),
                    "role": message["role"],
                    "created": message["created_timestamp"],
                    "content": decode_or_none(message["content_json"]),
                    "metadata": decode_or_none(message["metadata_json"]),
                    "model": model,
                }
            ledger = _ledger(database, session)
            for row in ledger:
                yield {"call": row, "model": row["model"] or model}
            first = "SELECT min(created_timestamp) FROM messages WHERE session_id = ? AND role = 'user'"
            begun = database.execute(first, (session,)).fetchone()[0]
            rest = {
                name: _number(about.get(f"accumulated_{name}")) - sum(_number(row[name]) for row in ledger)
                for name in _COUNTS
            }
            yield {"totals": rest, "model": model, "begun": begun}


def _ledger(database: sqlite3.Connection, session: str) -> list[dict[str, Any]]:
    """The model calls of a session, which Goose notes since schema 15, together with the totals of the session. What
    was counted before is carried forward as one row, which is left to the totals."""
    known = columns(database, "usage_ledger")
    if not known:
        return []
    fields = ["id", "created_timestamp", "model", *_COUNTS]
    chosen = ", ".join(name if name in known else f"NULL AS {name}" for name in fields)
    carried = "AND cost_source IS NOT 'carried_forward'" if "cost_source" in known else ""
    query = f"SELECT {chosen} FROM usage_ledger WHERE session_id = ? {carried} ORDER BY id"
    return [dict(row) for row in database.execute(query, (session,))]


def _sessions(path: Path) -> Iterator[Stored]:
    with open_database(path) as database:
        if not has_table(database, "sessions"):
            return
        newest = "SELECT session_id, max(id) AS newest FROM messages GROUP BY session_id"
        versions = {row["session_id"]: row["newest"] for row in database.execute(newest)}
        parent = "parent_session_id" if "parent_session_id" in columns(database, "sessions") else "NULL"
        counted = "SELECT session_id, count(*) AS calls FROM usage_ledger GROUP BY session_id"
        has_ledger = has_table(database, "usage_ledger")
        calls = {row["session_id"]: row["calls"] for row in database.execute(counted)} if has_ledger else {}
        for row in database.execute(f"SELECT id, updated_at, {parent} AS parent FROM sessions").fetchall():
            version = versions.get(row["id"]) or 0
            # Goose's times have seconds: a model call that is noted after its message shows in the milliseconds.
            updated = (parse_time(row["updated_at"]) or 0) + calls.get(row["id"], 0) % 1_000
            yield Stored(session=str(row["id"]), updated=updated, version=version, parent=row["parent"])


class _Conversation(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            yield _about(record["session"])
        elif "totals" in record:
            yield from self._totals(record)
        elif "call" in record:
            call = record["call"]
            write = self.writer(f"call {call['id']}", ts=parse_time(call["created_timestamp"]), model=record["model"])
            yield from _usage(write, call)
        elif "role" not in record:  # the first line of a JSON Lines file
            yield _about(record)
        else:
            yield from self._message(record)

    def _message(self, record: Payload) -> Iterator[Item]:
        role, metadata = record["role"], mapping_of(record, "metadata")
        ts = parse_time(record.get("created"))
        model = text_of(metadata, "model") or text_of(record, "model")
        identity = text_of(record, "id") or f"{record.get('created')} {encode(record.get('content'))}"
        write = self.writer(identity, ts=ts, model=model)
        blocks = list_of(record.get("content"))
        hidden = metadata.get("userVisible") is False
        texts: list[str] = []
        asks = any(mapping_of(block).get("type") in ("toolRequest", "frontendToolRequest") for block in blocks)
        for number, block in enumerate(map(mapping_of, blocks)):
            part = str(number)
            text = text_of(block, "text") or ""
            match block.get("type"):
                case "text" if role == "user" and not hidden:
                    texts.append(text)
                case "text" if hidden:
                    yield write.event(part, EventType.COMPACTION if role == "user" else EventType.SYSTEM, text)
                case "text" if text:
                    # A tool request of the same answer is a row of its own, which takes the end back.
                    yield write.answer(part, text, may_end_turn=not asks)
                case "thinking" | "redactedThinking" | "reasoning":
                    thought = text_of(block, "thinking", "text", "data")
                    if thought and block["type"] != "redactedThinking":
                        yield write.thought(part, thought)
                case "toolRequest" | "frontendToolRequest":
                    yield self._call(write, part, block)
                case "toolResponse":
                    yield self._result(write, part, block)
                case "image" | "document" | "text":
                    pass
                case (
                    "summarizationRequested" | "contextLengthExceeded" | "systemNotification" | "notification" | "error"
                ):
                    yield write.event(part, EventType.RUNTIME, text_of(block, "msg", "message", "text") or "")
                case "toolConfirmationRequest" | "actionRequired" | "conversationCompacted":
                    yield write.event(part, EventType.RUNTIME, text_of(block, "msg", "prompt") or encode(block))
                case _:
                    yield write.event(part, EventType.UNKNOWN, encode(block))
        if texts:
            yield write.prompt("prompt", "\n".join(texts))

    def _call(self, write: Writer, part: str, block: Payload) -> Item:
        call = mapping_of(block, "toolCall")
        value = mapping_of(call, "value") or call
        call_id, tool = text_of(block, "id") or text_of(call, "id") or "", text_of(value, "name") or "unknown"
        self.tools[call_id] = tool
        arguments = value.get("arguments")
        error = text_of(call, "error")
        return write.call(part, tool, call_id, {"error": error} if error and arguments is None else arguments)

    def _result(self, write: Writer, part: str, block: Payload) -> Item:
        result = mapping_of(block, "toolResult")
        value = result.get("value", result)
        parts = value if isinstance(value, list) else mapping_of(value).get("content")
        texts = [text_of(entry, "text") or "" for entry in list_of(parts)]
        text = "\n".join(filter(None, texts)) or text_of(result, "error") or ""
        exit_code = integer(mapping_of(value, "structuredContent").get("exit_code"))
        failed = result.get("status") == "error" or mapping_of(value).get("isError") is True or bool(exit_code)
        call_id = text_of(block, "id", "toolCallId") or ""
        return write.result(part, self.tools.get(call_id), call_id, text, exit_code=exit_code, failed=failed)

    def _totals(self, record: Payload) -> Iterator[Item]:
        """The tokens that Goose counted for the session and not for one model call: they count at its first turn."""
        if (begun := parse_time(record.get("begun"))) is not None:
            yield from _usage(self.writer(ts=begun, model=record.get("model")), mapping_of(record, "totals"))


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0


def _usage(write: Writer, counts: Payload) -> list[Usage]:
    """Goose counts what was read from the cache and written to it as input, too."""
    read, written = (max(_number(counts.get(f"cache_{name}_tokens")), 0) for name in ("read", "write"))
    fresh = max(_number(counts.get("input_tokens")) - read - written, 0)
    output = max(_number(counts.get("output_tokens")), 0)
    return write.usage(
        by_time=True, fresh=fresh, output=output, cache_read=read, cache_write=written, cost=counts.get("cost")
    )


def _about(session: Payload) -> About:
    title = text_of(session, "name", "description")
    return About(
        title=None if title in ("CLI Session", "New Chat") else title,
        title_rank=2,
        cwd=text_of(session, "working_dir"),
        parent=text_of(session, "parent_session_id"),
    )

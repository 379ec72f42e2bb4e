"""Hermes: one database with all sessions, one more for each profile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript
from .content import texts_of
from .database import columns, has_table, open_database, pages, row_of, turn_start
from .decoding import decode_or_none
from .fields import Payload, integer, list_of, mapping_of, text_of
from .parsing import StatelessParser, Writer

_SESSION_FIELDS = (
    "title cwd model parent_session_id started_at ended_at input_tokens output_tokens cache_read_tokens "
    "cache_write_tokens reasoning_tokens estimated_cost_usd actual_cost_usd"
).split()
_MESSAGE_FIELDS = (
    "id role content tool_call_id tool_calls tool_name timestamp finish_reason reasoning reasoning_content compacted"
).split()


class Hermes(Source):
    name = "hermes"

    def accepts(self, path: Path) -> bool:
        return path.name == "state.db"

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Conversation(transcript)

    def sessions(self, path: Path) -> Iterator[Stored]:
        with open_database(path) as database:
            if not has_table(database, "sessions"):
                return
            # The index on session and time has all three.
            newest = "SELECT session_id, max(id) AS newest, max(timestamp) AS ts FROM messages GROUP BY session_id"
            messages = {row["session_id"]: row for row in database.execute(newest)}
            ended = "ended_at" if "ended_at" in columns(database, "sessions") else "NULL"
            query = f"SELECT id, parent_session_id, started_at, {ended} AS ended_at FROM sessions"
            for row in database.execute(query).fetchall():
                latest = messages.get(row["id"])
                times = [row["started_at"], row["ended_at"], latest["ts"] if latest else None]
                yield Stored(
                    session=str(row["id"]),
                    updated=max(parse_time(time) or 0 for time in times),
                    version=latest["newest"] if latest else 0,
                    parent=row["parent_session_id"],
                )

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        """Messages are only added. New ones are read from the prompt of their turn on."""
        with open_database(path) as database:
            about = row_of(database, "sessions", session, _SESSION_FIELDS)
            yield {"session": about}
            start = turn_start(database, session, since, prompts="role = 'user'")
            known = columns(database, "messages")
            names = ", ".join(name for name in _MESSAGE_FIELDS if name in known)
            query = f"SELECT {names} FROM messages WHERE session_id = :session AND id > :after ORDER BY id LIMIT :limit"
            for message in pages(database, query, {"session": session}, after=start - 1):
                yield {"message": dict(message), "model": about.get("model")}
            first = "SELECT min(timestamp) FROM messages WHERE session_id = ? AND role = 'user'"
            yield {"totals": about, "begun": database.execute(first, (session,)).fetchone()[0]}


class _Conversation(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            about = record["session"]
            yield About(
                title=text_of(about, "title"),
                title_rank=2,
                cwd=text_of(about, "cwd"),
                parent=text_of(about, "parent_session_id"),
            )
        elif "totals" in record:
            yield from self._totals(record["totals"], parse_time(record["begun"]))
        else:
            yield from self._message(record["message"], record["model"])

    def _message(self, message: Payload, model: str | None) -> Iterator[Item]:
        ts = parse_time(message.get("timestamp"))
        write = self.writer(str(message["id"]), ts=ts, model=model)
        text = _text(message.get("content"))
        match message.get("role"):
            case "user":
                yield write.prompt("prompt", text)
            case "assistant":
                yield from self._answer(write, message, text)
            case "tool":
                yield self._result(write, message, text)
            case "system" | "session_meta":
                kind = EventType.COMPACTION if message.get("compacted") else EventType.SYSTEM
                yield write.event("text", kind, text)
            case role:
                yield write.event("raw", EventType.UNKNOWN, f'{{"type":"{role}"}} {text}')

    def _answer(self, write: Writer, message: Payload, text: str) -> Iterator[Item]:
        if thought := text_of(message, "reasoning", "reasoning_content"):
            yield write.thought("thought", thought)
        finish = message.get("finish_reason")
        calls = list_of(decode_or_none(message.get("tool_calls")))
        if text:
            ends = not calls and finish not in (None, "tool_calls")
            yield write.answer("text", text, ends_turn=ends, may_end_turn=not calls)
        for number, call in enumerate(calls):
            function = mapping_of(call, "function")
            call_id, tool = text_of(call, "id", "call_id") or str(number), text_of(function, "name") or "unknown"
            self.tools[call_id] = tool
            arguments = function.get("arguments")
            given = decode_or_none(arguments) if isinstance(arguments, str) else arguments
            yield write.call(f"call {number}", tool, call_id, arguments if given is None else given)

    def _result(self, write: Writer, message: Payload, text: str) -> Item:
        """A command answers with JSON of its output, exit code and error; other tools with JSON of their own."""
        call_id = text_of(message, "tool_call_id") or ""
        answer = mapping_of(decode_or_none(text))
        exit_code = integer(answer.get("exit_code"))
        error = text_of(answer, "error")
        if "output" in answer and isinstance(answer["output"], str):
            text = "\n".join(filter(None, (answer["output"], error)))
        failed = bool(exit_code) or error is not None
        tool = text_of(message, "tool_name") or self.tools.get(call_id)
        return write.result("result", tool, call_id, text, exit_code=exit_code, failed=failed)

    def _totals(self, totals: Payload, begun: int | None) -> Iterator[Item]:
        """Hermes keeps the tokens of a session, not those of its model calls: they count at its first turn."""
        if begun is None:
            return
        write = self.writer(ts=begun, model=text_of(totals, "model"))
        yield from write.usage(
            by_time=True,
            fresh=totals.get("input_tokens"),
            output=totals.get("output_tokens"),
            cache_read=totals.get("cache_read_tokens"),
            cache_write=totals.get("cache_write_tokens"),
            reasoning=totals.get("reasoning_tokens"),
            cost=totals.get("actual_cost_usd") or totals.get("estimated_cost_usd"),
        )


def _text(content: Any) -> str:
    """A text, or JSON of the parts of a message with images."""
    if not isinstance(content, str):
        return ""
    parts = decode_or_none(content) if content.startswith('[{"type"') else None
    return texts_of(parts) if isinstance(parts, list) else content

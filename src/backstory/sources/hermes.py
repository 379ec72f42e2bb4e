"""Hermes: one database with all sessions, one more for each profile.

A compaction writes the first and the last messages of a session again, as new rows around its summary: in the session
itself, or in one that goes on from it. A branch begins with all messages of its session. Only originals are read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript
from .content import texts_of
from .database import columns, has_table, open_database, pages, row_of, turn_start
from .decoding import decode_or_none
from .fields import Payload, integer, list_of, mapping_of, text_of
from .parsing import StatelessParser, Writer

_SESSION_FIELDS = (
    "title cwd git_branch model model_config parent_session_id started_at ended_at input_tokens output_tokens "
    "cache_read_tokens cache_write_tokens reasoning_tokens estimated_cost_usd actual_cost_usd"
).split()
_MESSAGE_FIELDS = (
    "id role content tool_call_id tool_calls tool_name timestamp finish_reason reasoning reasoning_content"
).split()


# How a summary begins, and what stands before one in the first message that was kept.
_SUMMARY = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")
_SUMMARY_WITHIN = "[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]"
_MOST_FIRST = 32
_KEY_CHARS = 400
# In a version, beside the number of the latest message: a title is given without a message.
_TITLE_BITS = 1


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
            known = columns(database, "sessions")
            names = ", ".join(name if name in known else f"NULL AS {name}" for name in _LISTED)
            rows = {row["id"]: dict(row) for row in database.execute(f"SELECT {names} FROM sessions")}
            for row in rows.values():
                latest, above = messages.get(row["id"]), row["parent_session_id"]
                times = [row["started_at"], row["ended_at"], latest["ts"] if latest else None]
                yield Stored(
                    session=str(row["id"]),
                    updated=max(parse_time(time) or 0 for time in times),
                    version=(latest["newest"] if latest else 0) << _TITLE_BITS | bool(row["title"]),
                    parent=None if _goes_on(row, rows.get(above, {})) else above,
                )

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        """Messages are only added. New ones are read from the prompt of their turn on."""
        with open_database(path) as database:
            about = row_of(database, "sessions", session, _SESSION_FIELDS)
            above = text_of(about, "parent_session_id")
            goes_on = _goes_on(about, row_of(database, "sessions", above, _LISTED) if above else {})
            yield {"session": about, "goes_on": goes_on}
            since = replace(since, version=since.version >> _TITLE_BITS) if since else None
            copies = _copies(database, session, above if goes_on else None)
            prompts = "role = 'user'" + (f" AND id NOT IN ({', '.join(map(str, copies))})" if copies else "")
            start = turn_start(database, session, since, prompts=prompts)
            known = columns(database, "messages")
            names = ", ".join(name for name in _MESSAGE_FIELDS if name in known)
            query = f"SELECT {names} FROM messages WHERE session_id = :session AND id > :after ORDER BY id LIMIT :limit"
            for message in pages(database, query, {"session": session}, after=start - 1):
                if message["id"] not in copies:
                    yield {"message": dict(message), "model": about.get("model")}
            first = "SELECT min(timestamp) FROM messages WHERE session_id = ? AND role = 'user'"
            yield {"totals": about, "begun": database.execute(first, (session,)).fetchone()[0]}


_LISTED = ("id", "parent_session_id", "started_at", "ended_at", "end_reason", "title", "model_config")


def _goes_on(session: Payload, above: Payload) -> bool:
    """True for a session that goes on from the one that it names as its parent: after a compaction, or as a branch.
    Others were started by that one."""
    settings = mapping_of(decode_or_none(session.get("model_config")))
    begun, ended = parse_time(session.get("started_at")), parse_time(above.get("ended_at"))
    if "_branched_from" in settings or "_delegate_from" in settings:
        return "_branched_from" in settings
    return above.get("end_reason") in ("compression", "branched") and (begun or 0) >= (ended or 0)


class _Row(NamedTuple):
    id: int
    key: tuple[Any, ...]
    """The values that a message shares with its copy, whose outputs may be shortened."""
    is_summary: bool


def _rows(database: sqlite3.Connection, session: str) -> Iterator[_Row]:
    query = "SELECT id, role, content, tool_call_id, tool_calls FROM messages WHERE session_id = ? ORDER BY id"
    for id, role, content, call_id, calls in database.execute(query, (session,)):
        text = content if isinstance(content, str) else ""
        called = [text_of(mapping_of(call), "id", "call_id") for call in list_of(decode_or_none(calls))]
        said = () if call_id or called or role == "system" else (len(text), text[:_KEY_CHARS])
        yield _Row(id, (role, call_id, *called, *said), _is_summary(role, text))


def _is_summary(role: Any, text: str) -> bool:
    return role in ("user", "assistant") and (text.startswith(_SUMMARY) or _SUMMARY_WITHIN in text)


def _copies(database: sqlite3.Connection, session: str, above: str | None) -> set[int]:
    """The rows of a session that repeat others, of itself or of the session that it goes on from."""
    if above is None:
        if "active" not in columns(database, "messages"):
            return set()
        put_away = "SELECT 1 FROM messages WHERE session_id = ? AND active = 0 LIMIT 1"
        if database.execute(put_away, (session,)).fetchone() is None:
            return set()
    before = [*_rows(database, above)] if above else []
    rows = [*before, *_rows(database, session)]
    begin = len(before)
    copies = {*range(begin, begin + _alike(rows, begin, 0, begin))}
    for place, row in enumerate(rows):
        if row.is_summary:
            first = _first_kept(rows, place, min(_MOST_FIRST, place // 2))
            last = _last_kept(rows, place + 1, place - first)
            copies |= {*range(place - first, place), *range(place + 1, place + 1 + last)}
    return {rows[place].id for place in copies if place >= begin}


def _first_kept(rows: Sequence[_Row], end: int, most: int) -> int:
    """The number of rows before `end` that are the first ones again."""
    return next(count for count in range(most, -1, -1) if _alike(rows, end - count, 0, count) == count)


def _last_kept(rows: Sequence[_Row], start: int, end: int) -> int:
    """The number of rows from `start` on that are the last ones before `end` again."""
    most = min(end, len(rows) - start)
    return next(count for count in range(most, -1, -1) if _alike(rows, start, end - count, count) == count)


def _alike(rows: Sequence[_Row], start: int, other: int, most: int) -> int:
    """The number of rows from `start` on that are the same messages as those from `other` on."""
    pairs = zip(range(start, min(start + most, len(rows))), range(other, len(rows)), strict=False)
    return next(
        (place - start for place, copy in pairs if rows[place].key != rows[copy].key), min(most, len(rows) - start)
    )


class _Conversation(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            about = record["session"]
            above, goes_on = text_of(about, "parent_session_id"), record["goes_on"]
            yield About(
                title=text_of(about, "title"),
                title_rank=2,
                cwd=text_of(about, "cwd"),
                branch=text_of(about, "git_branch"),
                parent=None if goes_on else above,
                forked_from=above if goes_on else None,
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
            case role if _is_summary(role, text):
                yield write.event("text", EventType.COMPACTION, text)
            case "user":
                yield write.prompt("prompt", text)
            case "assistant":
                yield from self._answer(write, message, text)
            case "tool":
                yield self._result(write, message, text)
            case "system" | "session_meta":
                yield write.event("text", EventType.SYSTEM, text)
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

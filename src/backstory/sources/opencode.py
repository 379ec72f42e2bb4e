"""OpenCode and Kilo: sessions, messages and parts, in a database or, before that, in a tree of JSON files."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Event, Item, Lookup, Parser, Source, Stored, Transcript, TurnEnd, Usage
from .cline import Task, describe_task, task_records
from .database import has_table, open_database, row_of
from .decoding import decode_or_none, encode, read_or_none
from .fields import Payload, integer, mapping_of, text_of
from .parsing import StatelessParser, Writer

_PLACEHOLDER_TITLES = ("New session - ", "Child session - ")
_SESSION_FIELDS = ("title", "directory", "version", "parent_id", "slug")
# Bookkeeping of a step: snapshots, and tokens that the message has, too.
_SILENT_PARTS = ("step-start", "step-finish", "snapshot", "patch")
# A table of newer versions, which is to take the place of the two others.
_COMING = "session_message"
_RAN = {"completed", "error"}
_NAME = re.compile(r"\w[\w-]*")
# The parts of so many messages are in memory at once: a query for each message would take as long as all else.
_PAGE_MESSAGES = 8
_GIVEN = "(SELECT value FROM json_each(?))"
# JSON is decoded from bytes, without a text of it in between.
_BYTES = "CAST(data AS BLOB)"


class OpenCode(Source):
    name = "opencode"
    command = "opencode"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".db"

    def gathers(self, folder: Path) -> bool:
        return folder.name == "storage" and folder.parent.name == self.command

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Records(transcript)

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        return _tree_sessions(path) if path.is_dir() else _sessions(path)

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        return _tree_changes(path, session, since) if path.is_dir() else _changes(path, session, since)


class Kilo(OpenCode):
    """Kilo's CLI is a relative of OpenCode, its extension was one of Cline's."""

    name = "kilo"
    command = "kilo"

    def gathers(self, folder: Path) -> bool:
        return folder.parent.name == "tasks" or super().gathers(folder)

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return describe_task(self.name, path) if path.parent.name == "tasks" else None

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        if transcript.path.parent.name == "tasks":
            return Task(transcript)
        return super().parser(transcript, state, lookup)

    def records(self, path: Path) -> Iterator[Any] | None:
        return task_records(path)

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        return None if path.parent.name == "tasks" else super().sessions(path)


# The database


def _sessions(path: Path) -> Iterator[Stored]:
    """`event_sequence`, which newer versions have, counts every change of a session. Elsewhere the number of its parts
    has to do, which the index on their sessions gives without a look at the parts."""
    with open_database(path) as database:
        if not has_table(database, "session"):
            return
        if has_table(database, "event_sequence"):
            count = "SELECT aggregate_id AS id, seq AS count FROM event_sequence"
        else:
            count = "SELECT session_id AS id, count(*) AS count FROM part GROUP BY session_id"
        counts = Counter({row["id"]: row["count"] for row in database.execute(count)})
        if has_table(database, _COMING):
            for row in database.execute(f"SELECT session_id AS id, count(*) AS count FROM {_COMING} GROUP BY 1"):
                counts[row["id"]] += row["count"]
        for row in database.execute("SELECT id, parent_id, time_updated FROM session").fetchall():
            yield Stored(
                session=str(row["id"]),
                updated=parse_time(row["time_updated"]) or 0,
                version=integer(counts.get(row["id"])) or 0,
                parent=row["parent_id"],
            )


def _changes(path: Path, session: str, since: Stored | None) -> Iterator[Payload]:
    with open_database(path) as database:
        yield {"session": row_of(database, "session", session, _SESSION_FIELDS)}
        messages = _messages(database, session, since)
        for start in range(0, len(messages), _PAGE_MESSAGES):
            yield from _read(database, messages[start : start + _PAGE_MESSAGES])
        if has_table(database, _COMING):
            query = (
                f"SELECT id, type, data FROM {_COMING} WHERE session_id = ? AND (type = 'user' OR time_updated >= ?)"
                " ORDER BY time_created, id"
            )
            for message in database.execute(query, (session, since.updated if since else 0)).fetchall():
                yield _as_before(message["id"], message["type"], mapping_of(decode_or_none(message["data"])))


def _as_before(identity: str, kind: str, data: Payload) -> Payload:
    """A message of the coming format, which has its parts in itself, as a message with parts."""
    if kind == "user":
        return {"id": identity, "message": {**data, "role": "user"}, "parts": [(identity, {**data, "type": "text"})]}
    content = data.get("content")
    if kind != "assistant" or not isinstance(content, list):
        return {"id": identity, "message": {"role": kind}, "parts": []}
    parts = []
    for number, part in enumerate(map(mapping_of, content)):
        if part.get("type") == "tool":
            part = {**part, "tool": text_of(part, "name", "tool"), "callID": text_of(part, "callID", "id")}
        parts.append((f"{identity}/{number}", part))
    model = mapping_of(data, "model")
    message = {**data, "role": "assistant", "modelID": text_of(model, "id", "modelID") or data.get("modelID")}
    return {"id": identity, "message": message, "parts": parts}


def _messages(database: sqlite3.Connection, session: str, since: Stored | None) -> list[str]:
    """The ids of the messages to read, in their order: of those that changed, also the prompts they answer."""
    order = "SELECT id FROM message WHERE session_id = ? ORDER BY time_created, id"
    everything = [row["id"] for row in database.execute(order, (session,))]
    if since is None:
        return everything
    changed = {
        row["id"]
        for row in database.execute(
            "SELECT id FROM message WHERE session_id = ?1 AND time_updated >= ?2"
            " UNION SELECT message_id FROM part WHERE session_id = ?1 AND time_updated >= ?2",
            (session, since.updated),
        )
    }
    prompts = {text_of(data, "parentID") for _, data in _data(database, [*changed])}
    return [message for message in everything if message in changed or message in prompts]


def _read(database: sqlite3.Connection, messages: list[str]) -> Iterator[Payload]:
    """Messages with their parts."""
    data = dict(_data(database, messages))
    parts: dict[str, list[tuple[str, Any]]] = {message: [] for message in messages}
    query = f"SELECT message_id, id, {_BYTES} FROM part WHERE message_id IN {_GIVEN} ORDER BY message_id, id"
    for message, identity, part in database.execute(query, (encode(messages),)):
        parts[message].append((identity, decode_or_none(part)))
    for message, found in parts.items():
        yield {"id": message, "message": data.get(message), "parts": found}


def _data(database: sqlite3.Connection, messages: list[str]) -> Iterator[tuple[str, Any]]:
    query = f"SELECT id, {_BYTES} FROM message WHERE id IN {_GIVEN}"
    for message, data in database.execute(query, (encode(messages),)):
        yield message, decode_or_none(data)


# The tree: session/<project>/<session>.json, message/<session>/<message>.json, part/<message>/<part>.json. Files are
# mostly, and folders always, named by the ids in the files.


def _tree_sessions(storage: Path) -> Iterator[Stored]:
    for path in storage.glob("session/*/*.json"):
        (session, about), files = _identified(path), [path]
        for message in storage.glob(f"message/{session}/*.json"):
            files += [message, *_parts_of(storage, message)]
        parent = text_of(about, "parentID")
        yield Stored(session=session, updated=_latest(files), version=len(files), parent=parent)


def _tree_changes(storage: Path, session: str, since: Stored | None) -> Iterator[Payload]:
    likely = sorted(storage.glob("session/*/*.json"), key=lambda path: path.stem != session)
    yield {"session": next((about for name, about in map(_identified, likely) if name == session), {})}
    messages = sorted(storage.glob(f"message/{session}/*.json"))
    changed: set[str | None] = set()
    for path in messages:
        if since is None or _latest([path, *_parts_of(storage, path)]) >= since.updated:
            identity, message = _identified(path)
            changed |= {identity, text_of(message, "parentID")}
    for path in messages:
        identity, message = _identified(path)
        if identity in changed:
            yield {"id": identity, "message": message, "parts": list(map(_identified, _parts_of(storage, path)))}


def _identified(path: Path) -> tuple[str, Any]:
    """The document in a file, after its id, which names a folder."""
    document = read_or_none(path)
    identity = text_of(document, "id") or ""
    return identity if _NAME.fullmatch(identity) else path.stem, document


def _parts_of(storage: Path, message: Path) -> list[Path]:
    folder = storage / "part" / message.stem
    if not folder.is_dir():
        folder = storage / "part" / _identified(message)[0]
    return sorted(folder.glob("*.json"))


def _latest(paths: Iterable[Path]) -> int:
    return max((path.stat().st_mtime_ns // 1_000_000 for path in paths if path.exists()), default=0)


# The records


class _Records(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            yield _about(record["session"])
            return
        message = mapping_of(record, "message")
        match message.get("role"):
            case "user":
                yield from self._prompt(record, message)
            case "assistant":
                yield from self._answer(record, message)
            case _:
                write = Writer(self.source, str(record.get("id")))
                yield write.event("raw", EventType.UNKNOWN, encode(message))

    def _prompt(self, record: Payload, message: Payload) -> Iterator[Item]:
        """Parts that OpenCode adds for the model (`synthetic`) are context, which follows the prompt."""
        ts = parse_time(mapping_of(message, "time").get("created"))
        texts: list[str] = []
        files: list[str] = []
        others: list[Item] = []
        for identity, part in record["parts"]:
            write = Writer(self.source, identity, ts=ts)
            text = text_of(part, "text") or ""
            match mapping_of(part).get("type"):
                case "text" if part.get("synthetic") or part.get("ignored"):
                    others.append(write.event("text", EventType.SYSTEM, text))
                case "text":
                    texts.append(_unquoted(text))
                case "file":
                    files.append(text_of(part, "filename", "url") or "")
                case "compaction":
                    others.append(write.event("text", EventType.RUNTIME, "compaction requested"))
                case "agent" | "subtask" | None:
                    texts.append(text_of(part, "prompt", "name") or "")
                case _:
                    others.append(write.event("raw", EventType.UNKNOWN, encode(part)))
        if texts or files:
            write = Writer(self.source, record["id"], ts=ts)
            extra = {"files": [file for file in files if not file.startswith("data:")]} if files else None
            yield write.prompt("prompt", "\n".join(filter(None, texts)), turn_key=text_of(record, "id"), extra=extra)
        yield from others

    def _answer(self, record: Payload, message: Payload) -> Iterator[Item]:
        times = mapping_of(message, "time")
        created = parse_time(times.get("created"))
        model = text_of(message, "modelID") or text_of(mapping_of(message, "model"), "modelID", "id")
        cwd = text_of(mapping_of(message, "path"), "cwd")
        usage = _usage(Writer(self.source, record["id"], ts=created, model=model), message)
        is_summary = message.get("summary") is True
        ends = message.get("finish") not in (None, "tool-calls", "unknown") and "completed" in times
        for identity, part in record["parts"]:
            part = mapping_of(part)
            if part.get("type") in _SILENT_PARTS:
                continue
            write = Writer(self.source, identity, ts=created, model=model, cwd=cwd)
            for item in _part(write, part, is_summary=is_summary):
                if isinstance(item, Event):
                    item.usage_key = usage[0].key if usage else None
                yield item
        yield from usage
        if error := mapping_of(message, "error"):
            write = Writer(self.source, record["id"], ts=parse_time(times.get("completed")) or created)
            text = text_of(mapping_of(error, "data"), "message") or text_of(error, "name") or "error"
            stopped = error.get("name") == "MessageAbortedError"
            extra = {"interrupted": True} if stopped else None
            yield write.event("error", EventType.RUNTIME, text, ends_turn=True, extra=extra)
        elif ends:
            yield TurnEnd()


def _about(session: Payload) -> About:
    title = text_of(session, "title")
    if title and title.startswith(_PLACEHOLDER_TITLES):
        title = None
    return About(
        title=title,
        title_rank=2,
        slug=text_of(session, "slug"),
        cwd=text_of(session, "directory"),
        version=text_of(session, "version"),
        parent=text_of(session, "parent_id", "parentID"),
    )


def _part(write: Writer, part: Payload, *, is_summary: bool) -> Iterator[Item]:
    if part.get("type") == "tool":  # most of them, and the largest
        yield from _tool(write, part)
        return
    text = text_of(part, "text") or ""
    ts = parse_time(mapping_of(part, "time").get("start"))
    at: Payload = {"ts": ts} if ts else {}
    match part.get("type"):
        case "text" if text:
            kind = EventType.COMPACTION if is_summary else EventType.ASSISTANT_RESPONSE
            yield write.event("text", kind, text, **at)
        case "reasoning" if text:
            yield write.event("text", EventType.REASONING, text, **at)
        case "retry":
            error = mapping_of(part, "error")
            text = text_of(mapping_of(error, "data"), "message") or text_of(error, "name") or "retry"
            yield write.event("text", EventType.RUNTIME, text)
        case "text" | "reasoning" | "file" | "agent" | "subtask" | "compaction":
            pass
        case _:
            yield write.event("raw", EventType.UNKNOWN, encode(part))


def _tool(write: Writer, part: Payload) -> Iterator[Item]:
    """Call and result are one part. A tool `invalid` stands for a call that the model made wrongly."""
    state = mapping_of(part, "state")
    metadata, times = mapping_of(state, "metadata"), mapping_of(state, "time")
    tool, call_id = text_of(part, "tool") or "unknown", text_of(part, "callID")
    start, end = parse_time(times.get("start")), parse_time(times.get("end"))
    child = text_of(metadata, "sessionId")
    extra: Payload = {"child_session": child} if child else {}
    yield write.call("call", tool, call_id, mapping_of(state, "input"), ts=start, extra=extra or None)
    if child:
        yield About(session=child, parent_call=call_id)
    if state.get("status") not in _RAN:
        return
    exit_code = integer(metadata.get("exit"))
    failed = state.get("status") == "error" or tool == "invalid" or bool(exit_code)
    if start and end:
        extra = {**extra, "duration_ms": end - start}
    text = text_of(state, "output", "error") or ""
    result = {"exit_code": exit_code, "failed": failed, "extra": extra or None}
    yield write.result("result", tool, call_id, text, ts=end or start, **result)


def _usage(write: Writer, message: Payload) -> list[Usage]:
    tokens = mapping_of(message, "tokens")
    cache = mapping_of(tokens, "cache")
    reasoning = integer(tokens.get("reasoning")) or 0
    return write.usage(
        fresh=tokens.get("input"),
        output=(integer(tokens.get("output")) or 0) + reasoning,
        cache_read=cache.get("read"),
        cache_write=cache.get("write"),
        reasoning=reasoning,
        cost=message.get("cost"),
        ts=parse_time(mapping_of(message, "time").get("completed")),
        stop_reason=text_of(message, "finish"),
    )


def _unquoted(text: str) -> str:
    """`opencode run` stores the prompt as a JSON string."""
    if len(text) > 1 and text.startswith('"') and text.rstrip().endswith('"'):
        inner = decode_or_none(text)
        if isinstance(inner, str):
            return inner
    return text

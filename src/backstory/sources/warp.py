"""Warp: conversations with its agent in one database. Messages are protocol buffers, of which the known fields are
read."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript
from .database import has_table, open_database
from .decoding import decode_or_none
from .fields import Payload, integer, list_of, mapping_of, only_mappings, text_of
from .parsing import StatelessParser, Writer

_MOST_TOKENS = 1 << 40
# Tokens that Warp, the user's own key and the user's own service were asked for.
_TOKENS = ("warp_tokens", "byok_tokens", "custom_endpoint_tokens")


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
                # Added up here: SQLite would sort the tasks with all that is in them.
                query = "SELECT conversation_id AS id, length(task) AS bytes, last_modified_at AS updated"
                for row in database.execute(f"{query} FROM agent_tasks"):
                    count, updated = found.get(row["id"], (0, 0))
                    found[row["id"]] = (count + row["bytes"], max(updated, parse_time(row["updated"]) or 0))
            abouts = _abouts(database)
        for session, (version, updated) in found.items():
            about = abouts.get(session, {})
            parent = text_of(about, "parent_conversation_id")
            # Warp may name the parent and count the tokens after the messages.
            version += (parent is not None) + _tokens(about)
            yield Stored(session=session, updated=updated, version=version, parent=parent)

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
                tasks = [read_message(row["task"], _TASK) for row in database.execute(query, (session,))]
            about = _abouts(database, session).get(session, {})
        # A conversation has the name of its first task, which starts the others.
        yield {"title": next(filter(None, (text_of(task, "description") for task in tasks)), None)}
        asked = {row["exchange_id"]: dict(row) for row in queries}
        messages = [message for task in tasks for message in _messages(task)]
        for message in sorted(messages, key=lambda message: integer(message["time"].get("seconds")) or 0):
            yield {"message": message, "query": asked.get(text_of(message, "request"), {})}
        answered = {text_of(message, "request") for message in messages}
        for identity, found in asked.items():
            if identity not in answered:  # before there were tasks, only prompts were kept
                yield {"message": {}, "query": found}
        yield {"tokens": _tokens(about)}


def _abouts(database: sqlite3.Connection, session: str | None = None) -> dict[str, Payload]:
    """Facts about each conversation as a whole, or about one."""
    if not has_table(database, "agent_conversations"):
        return {}
    query = "SELECT conversation_id, conversation_data FROM agent_conversations"
    query += " WHERE ?1 IS NULL OR conversation_id = ?1"
    return {row[0]: mapping_of(decode_or_none(row[1])) for row in database.execute(query, (session,))}


def _tokens(about: Payload) -> int:
    """The tokens of a conversation so far, of all models."""
    usage = only_mappings(mapping_of(about, "conversation_usage_metadata").get("token_usage"))
    total = sum(max(integer(each.get(name)) or 0, 0) for each in usage for name in _TOKENS)
    return min(total, _MOST_TOKENS)


class _Conversation(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._model: str | None = None

    def parse(self, record: Payload) -> Iterator[Item]:
        if "title" in record:
            yield About(title=text_of(record, "title"), title_rank=2)
            return
        if "tokens" in record:
            # Of these totals neither a model's price nor the share of what was read from a cache is known.
            yield from self.writer().usage(fresh=record["tokens"])
            return
        message, query = record["message"], record["query"]
        self._model = text_of(mapping_of(message, "model"), "id") or text_of(query, "model_id") or self._model
        cwd = text_of(query, "working_directory")
        if cwd:
            yield About(cwd=cwd)
        asked = text_of(query, "exchange_id") or ""
        if not message:
            texts = [
                text_of(entry, "query") or text_of(mapping_of(entry, "Query"), "text", "query")
                for entry in map(mapping_of, list_of(decode_or_none(text_of(query, "input"))))
            ]
            if typed := "\n".join(filter(None, texts)):
                yield self.writer(asked, ts=parse_time(query.get("start_ts"))).prompt("prompt", typed)
            return
        ts = parse_time(mapping_of(message, "time").get("seconds"))
        write = self.writer(text_of(message, "id") or asked, ts=ts, model=self._model, cwd=cwd)
        if prompt := text_of(mapping_of(message, "user"), "query"):
            # The query is there before the message is: both are the prompt of the exchange.
            yield (self.writer(asked, ts=ts, cwd=cwd) if asked else write).prompt("prompt", prompt)
        elif thought := text_of(mapping_of(message, "reasoning"), "text"):
            yield write.thought("thought", thought)
        elif text := text_of(mapping_of(message, "agent"), "text"):
            yield write.answer("text", text, may_end_turn=True)
        elif summary := text_of(mapping_of(message, "summary", "conversation"), "text"):
            yield write.event("summary", EventType.COMPACTION, summary)
        elif broken := text_of(message, "broken"):
            yield self.writer(broken).event("raw", EventType.UNKNOWN, broken)
        elif "call" in message:
            yield self._call(write, mapping_of(message, "call"))
        elif "result" in message:
            yield self._result(write, mapping_of(message, "result"))

    def _call(self, write: Writer, call: Payload) -> Item:
        tool = _kind_of(call)
        arguments = mapping_of(call, tool)
        if tool == _MCP:
            tool, arguments = text_of(arguments, "name") or tool, mapping_of(arguments, "args")
        call_id = text_of(call, "id") or ""
        self.tools[call_id] = tool
        return write.call("call", tool, call_id, arguments)

    def _result(self, write: Writer, result: Payload) -> Item:
        kind, call_id = _kind_of(result), text_of(result, "id") or ""
        found = mapping_of(result, kind)
        finished = mapping_of(found, "finished")
        exit_code = integer(finished.get("exit_code", 0) if "finished" in found else found.get("exit_code"))
        canceled = kind == _CANCELED
        failed = canceled or "error" in found or "denied" in found or bool(exit_code)
        text = "\n".join(_texts({name: value for name, value in found.items() if name != "command"}))
        return write.result(
            "result",
            self.tools.get(call_id) or (None if canceled else kind),
            call_id,
            text or ("canceled" if canceled else ""),
            exit_code=exit_code,
            failed=failed,
            extra={"interrupted": True} if canceled else None,
        )


def _messages(task: Payload) -> Iterator[Payload]:
    """The messages of a task. One that cannot be decoded does not keep the others from being read; one without a time
    has that of the message before it."""
    time: Payload = {"seconds": 0}
    for data in task.get("messages", ()):
        try:
            message = read_message(data, _MESSAGE)
        except ValueError:
            message = {"broken": data.hex()}
        time = mapping_of(message, "time") or time
        yield {**message, "time": time}


def _kind_of(part: Payload) -> str:
    """The name of the tool, which is the field that a call or a result has beside its id."""
    return next((name for name in part if name != "id"), "unknown")


def _texts(value: Any) -> Iterator[str]:
    """All texts in a result, in their order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


# Protocol buffers. A shape has the names of fields by their numbers, with the function that reads a value which has a
# length. `[]` after a name marks a field that may come more than once.

Shape = dict[int, tuple[str, Callable[[bytes], Any]]]


def read_message(data: bytes, shape: Shape) -> Payload:
    """The fields of a message that are in the shape. Raises ValueError for data that is cut off."""
    found: Payload = {}
    for number, value in _fields(data):
        if number not in shape:
            continue
        name, read = shape[number]
        value = read(value) if isinstance(value, bytes) else value
        if name.endswith("[]"):
            found.setdefault(name[:-2], []).append(value)
        else:
            found[name] = value
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                value, position = _varint(data, position)
                yield tag >> 3, value - (1 << 64) if value >> 63 else value
            case 1 if position + 8 <= len(data):
                yield tag >> 3, struct.unpack_from("<d", data, position)[0]
                position += 8
            case 2:
                length, position = _varint(data, position)
                if position + length > len(data):
                    raise ValueError("a field of a message is cut off")
                yield tag >> 3, data[position : position + length]
                position += length
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


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _in(shape: Shape) -> Callable[[bytes], Payload]:
    return lambda data: read_message(data, shape)


def _named(*names: str) -> Callable[[bytes], Payload]:
    """The reader of a message whose first fields are texts."""
    return _in({number: (name, _text) for number, name in enumerate(names, 1)})


def _json_object(data: bytes) -> Payload:
    entries = read_message(data, {1: ("entries[]", _in({1: ("key", _text), 2: ("value", _json_value)}))})
    return {entry.get("key", ""): entry.get("value") for entry in entries.get("entries", ())}


def _json_value(data: bytes) -> Any:
    kinds: Shape = {2: ("number", _text), 3: ("text", _text), 4: ("bool", _text), 5: ("object", _json_object)}
    kinds[6] = ("list", lambda inner: read_message(inner, {1: ("values[]", _json_value)}).get("values", []))
    for kind, value in read_message(data, kinds).items():
        return bool(value) if kind == "bool" else value
    return None


_MCP, _CANCELED = "call_mcp_tool", "canceled"
_FILE = _named("path", "content")
_ERROR = ("error", _named("message"))
_CALL: Shape = {
    1: ("id", _text),
    2: ("run_shell_command", _named("command")),
    3: ("search_codebase", _named("query", "path_filters[]", "codebase_path")),
    4: ("server", _named()),
    5: ("read_files", _in({1: ("files[]", _named("name"))})),
    6: (
        "apply_file_diffs",
        _in(
            {
                1: ("summary", _text),
                2: ("diffs[]", _named("file_path", "search", "replace")),
                3: ("new_files[]", _named("file_path", "content")),
                4: ("deleted_files[]", _named("file_path")),
                5: ("updates[]", _named("file_path", "move_to")),
            }
        ),
    ),
    7: ("suggest_plan", _named("summary")),
    9: ("grep", _named("queries[]", "path")),
    10: ("file_glob", _named("patterns[]", "path")),
    11: ("read_mcp_resource", _named("uri")),
    12: (_MCP, _in({1: ("name", _text), 2: ("args", _json_object)})),
    13: ("write_to_long_running_shell_command", _in({1: ("input", _text), 3: ("command_id", _text)})),
    15: ("file_glob", _named("patterns[]", "path")),
    19: ("subagent", _named("task_id", "payload")),
    20: ("read_documents", _in({1: ("documents[]", _named("document_id"))})),
    21: ("edit_documents", _in({1: ("diffs[]", _named("document_id", "search", "replace"))})),
    22: ("create_documents", _in({1: ("documents[]", _named("content", "title"))})),
    23: ("read_shell_command_output", _named("command_id")),
    26: ("read_skill", _named("skill_path", "skill_id", "name")),
    28: ("fetch_conversation", _named("conversation_id")),
    29: ("start_agent", _named("name", "prompt")),
    30: ("send_message_to_agent", _named("addresses[]", "subject", "message")),
}
_FINISHED = ("finished", _in({1: ("output", _text), 2: ("exit_code", _text)}))


def _or_error(found: tuple[str, Callable[[bytes], Any]]) -> Callable[[bytes], Payload]:
    """The reader of a result, or of the error in its place."""
    return _in({1: found, 2: _ERROR})


_FILES = ("found", _in({1: ("files[]", _FILE)}))
_ANY_FILES = ("any", _in({1: ("files[]", _in({6: ("text", _FILE)}))}))
_PATHS = ("found", _in({1: ("files[]", _named("file_path"))}))
_CHANGED = _in({2: ("files[]", _in({1: ("file", _FILE)})), 3: ("deleted[]", _named("file_path"))})
_RESOURCE = _in({2: ("text", _named("content"))})
_PART = _in({1: ("text", _named("text")), 3: ("resource", _RESOURCE)})
_RESULT: Shape = {
    1: ("id", _text),
    2: (
        "run_shell_command",
        _in({1: ("output", _text), 2: ("exit_code", _text), 3: ("command", _text), 5: _FINISHED, 6: ("denied", _text)}),
    ),
    3: ("search_codebase", _or_error(_FILES)),
    4: ("server", _named()),
    5: ("read_files", _in({1: _FILES, 2: _ERROR, 3: _ANY_FILES})),
    6: ("apply_file_diffs", _or_error(("applied", _CHANGED))),
    9: ("grep", _or_error(_PATHS)),
    10: ("file_glob", _or_error(("found", _named("files")))),
    14: (_CANCELED, _named()),
    15: ("read_mcp_resource", _or_error(("found", _in({1: ("contents[]", _RESOURCE)})))),
    16: (_MCP, _or_error(("found", _in({1: ("results[]", _PART)})))),
    17: ("write_to_long_running_shell_command", _in({2: _FINISHED, 3: ("error", _named())})),
    19: ("file_glob", _or_error(_PATHS)),
    23: ("subagent", _named("payload")),
    27: ("read_shell_command_output", _in({1: ("command", _text), 3: _FINISHED, 4: ("error", _named())})),
    30: ("read_skill", _or_error(("found", _in({1: ("content", _FILE)})))),
    33: ("start_agent", _or_error(("found", _named("agent_id")))),
}
_MESSAGE: Shape = {
    1: ("id", _text),
    2: ("user", _named("query")),
    3: ("agent", _named("text")),
    4: ("call", _in(_CALL)),
    5: ("result", _in(_RESULT)),
    13: ("request", _text),
    14: ("time", _in({1: ("seconds", _text)})),
    15: ("reasoning", _named("text")),
    16: ("summary", _in({1: ("conversation", _named("text"))})),
    25: ("model", _named("id")),
}
_TASK: Shape = {2: ("description", _text), 5: ("messages[]", bytes)}

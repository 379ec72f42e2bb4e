"""The editors of Cursor and Windsurf: chats in the database `state.vscdb`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import digest, parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript
from .content import command_exit_code
from .database import has_table, open_database
from .decoding import decode_or_none, encode, read_or_none
from .fields import Payload, integer, list_of, local_path, mapping_of, mappings_of, text_of
from .parsing import StatelessParser, Writer

STORE = "state.vscdb"
_USER = 1
_OVER = {"completed", "error", "cancelled", "rejected"}
_KEYS = ("workbench.panel.aichat.view.aichat.chatdata", "aiChat.chatdata")


# Cursor's editor: one key-value table for all conversations. A bubble, which is one part of a message, is a value.


def sessions_in(path: Path) -> Iterator[Stored]:
    """Writing a value gives its row a new number, so that the index on the keys shows what changed, and no value of a
    database that may have many gigabytes is read."""
    with open_database(path) as database:
        if not has_table(database, "cursorDiskKV"):
            return
        bubbles = "key >= 'bubbleId:' || c.id || ':' AND key < 'bubbleId:' || c.id || ';'"
        query = (
            f"SELECT id, max(newest, ifnull((SELECT max(rowid) FROM cursorDiskKV WHERE {bubbles}), 0)) FROM"
            " (SELECT substr(key, 14) AS id, rowid AS newest FROM cursorDiskKV"
            " WHERE key >= 'composerData:' AND key < 'composerData;') c"
        )
        found = database.execute(query).fetchall()
    for session, version in found:
        yield Stored(session=session, updated=0, version=version)


def changes_in(path: Path, session: str, since: Stored | None) -> Iterator[Payload]:
    with open_database(path) as database:
        composer = mapping_of(_value(database, f"composerData:{session}"))
        yield {"composer": composer}
        inline = composer.get("conversation")
        if isinstance(inline, list) and inline:
            yield from ({"bubble": mapping_of(bubble), "composer": None} for bubble in inline)
            return
        headers = composer.get("fullConversationHeadersOnly")
        headers = mappings_of(headers)
        prompt: str | None = None
        for header in headers:
            identity = text_of(header, "bubbleId") or ""
            key = f"bubbleId:{session}:{identity}"
            if header.get("type") == _USER:
                prompt = key
            row = database.execute("SELECT rowid FROM cursorDiskKV WHERE key = ?", (key,)).fetchone()
            if row is None or (since is not None and row["rowid"] <= since.version):
                continue
            if prompt is not None and prompt != key:
                yield {"bubble": mapping_of(_value(database, prompt))}
            prompt = None
            yield {"bubble": mapping_of(_value(database, key))}


def _value(database: sqlite3.Connection, key: str) -> Any:
    row = database.execute("SELECT value FROM cursorDiskKV WHERE key = ?", (key,)).fetchone()
    return decode_or_none(row["value"]) if row else None


class Bubbles(StatelessParser):
    """Turns bubbles into items."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._begun: int | None = None

    def parse(self, record: Payload) -> Iterator[Item]:
        if "bubble" not in record:
            yield from self._about(record["composer"])
            return
        bubble = record["bubble"]
        model = text_of(mapping_of(bubble, "modelInfo"), "modelName")
        cwd = text_of(bubble, "workspaceProjectDir")
        ts = parse_time(bubble.get("createdAt")) or self._begun
        identity = text_of(bubble, "bubbleId") or encode(bubble)
        write = Writer("cursor", identity, ts=ts, model=None if model == "default" else model, cwd=cwd)
        text = text_of(bubble, "text", "rawText")
        if bubble.get("type") == _USER:
            if text:
                yield write.prompt("prompt", text)
            return
        tokens = mapping_of(bubble, "tokenCount")
        yield from write.usage(fresh=tokens.get("inputTokens"), output=tokens.get("outputTokens"))
        if thought := text_of(mapping_of(bubble, "thinking"), "text"):
            yield write.thought("thought", thought)
        if call := mapping_of(bubble, "toolFormerData"):
            yield from _tool(write, call)
        if text:
            over = "turnDurationMs" in bubble
            yield write.answer("text", text, ends_turn=over, may_end_turn=not over)

    def _about(self, composer: Payload) -> Iterator[Item]:
        self._begun = parse_time(composer.get("createdAt"))
        place = mapping_of(composer, "workspaceIdentifier", "uri")
        yield About(title=text_of(composer, "name"), title_rank=2, cwd=text_of(place, "fsPath", "path"))


def _tool(write: Writer, call: Payload) -> Iterator[Item]:
    """A call with its result. Both are JSON in strings, sometimes twice."""
    tool, status = text_of(call, "name") or "unknown", call.get("status")
    call_id = (text_of(call, "toolCallId") or "").partition("\n")[0] or None
    given = mapping_of(_decoded(call.get("rawArgs"))) or _decoded(call.get("params"))
    started = parse_time(mapping_of(call, "additionalData").get("startedAtMs"))
    yield write.call("call", tool, call_id, given, ts=started)
    if status not in _OVER:
        return
    result, error = _decoded(call.get("result")), _decoded(call.get("error"))
    text = text_of(result, "output", "contents", "content") or (result if isinstance(result, str) else "")
    if not text and result:
        text = encode(result)
    message = text_of(error, "modelVisibleErrorMessage", "clientVisibleErrorMessage")
    message = message or (error if isinstance(error, str) else "")
    text = "\n".join(filter(None, (text, message)))
    exit_code = integer(mapping_of(result).get("exitCodeV2", mapping_of(result).get("exitCode")))
    if exit_code is None and status == "error":
        exit_code = command_exit_code(f"{text_of(error, 'clientVisibleErrorMessage') or ''} {text}", tool)
    failed = status != "completed" or bool(exit_code)
    yield write.result("result", tool, call_id, text, exit_code=exit_code, failed=failed)


def _decoded(value: Any) -> Any:
    for _ in range(2):
        if not isinstance(value, str):
            break
        inner = decode_or_none(value)
        if inner is None:
            break
        value = inner
    return value


# Windsurf: the chats of a workspace in one value of its database. Cascade's own store is encrypted.


class Windsurf(Source):
    name = "windsurf"

    def accepts(self, path: Path) -> bool:
        return path.name == STORE

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Chat(transcript)

    def sessions(self, path: Path) -> Iterator[Stored]:
        """The value has neither times nor counters: a digest of a chat shows that it changed."""
        for identity, tab in _tabs(path):
            version = int.from_bytes(digest(encode(tab))[:6], "big")
            yield Stored(session=identity, updated=parse_time(tab.get("lastSendTime")) or 0, version=version)

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        folder = text_of(read_or_none(path.with_name("workspace.json")), "folder")
        for identity, tab in _tabs(path):
            if identity == session:
                yield {"tab": tab, "folder": folder}
                for index, bubble in enumerate(list_of(tab.get("bubbles"))):
                    yield {"bubble": mapping_of(bubble), "index": index}


def _tabs(path: Path) -> Iterator[tuple[str, Payload]]:
    with open_database(path) as database:
        if not has_table(database, "ItemTable"):
            return
        found = [
            row["value"]
            for key in _KEYS
            for row in database.execute("SELECT value FROM ItemTable WHERE key = ?", (key,)).fetchall()
        ]
    for value in found:
        for tab in mappings_of(mapping_of(decode_or_none(value)).get("tabs")):
            if (identity := text_of(tab, "tabId")) and tab.get("bubbles"):
                yield identity, tab


class _Chat(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        if "tab" in record:
            folder = record["folder"]
            title = text_of(record["tab"], "chatTitle")
            yield About(title=title, title_rank=2, cwd=local_path(folder) if folder else None)
            return
        bubble = record["bubble"]
        identity = text_of(bubble, "id") or str(record["index"])
        write = self.writer(identity, ts=parse_time(bubble.get("timestamp")))
        if text := text_of(bubble, "text", "rawText"):
            is_user = bubble.get("type") in ("user", 1)
            yield write.prompt("text", text) if is_user else write.answer("text", text, may_end_turn=True)

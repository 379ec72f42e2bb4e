"""Windsurf: the chats of a workspace in one value of its database. Cascade's own store is encrypted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import digest, parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript
from .database import has_table, open_database
from .decoding import decode_or_none, encode, read_or_none
from .fields import Payload, list_of, local_path, mapping_of, mappings_of, text_of
from .parsing import StatelessParser

_KEYS = ("workbench.panel.aichat.view.aichat.chatdata", "aiChat.chatdata")


class Windsurf(Source):
    name = "windsurf"

    def accepts(self, path: Path) -> bool:
        return path.name == "state.vscdb"

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

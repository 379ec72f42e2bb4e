"""Prompts and tool calls of recorded agents with databases and rewritten files, counted a second time from their raw
rows, in the plainest way, and compared with the archive. Their tokens are compared in `test_stores_recordings`.

The counts share no code with the sources and know nothing of sessions, turns or state.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backstory.archive.base import SessionsRequest
from backstory.library import Library
from backstory.model import EventType

pytestmark = pytest.mark.corpus


class Count(NamedTuple):
    prompts: int
    calls: int


def documents(home: Path, pattern: str) -> Iterator[Any]:
    for path in sorted(home.glob(pattern)):
        yield json.loads(path.read_bytes())


def rows(home: Path, pattern: str, query: str) -> Iterator[Any]:
    for path in home.glob(pattern):
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            yield from database.execute(query).fetchall()


def opencode(home: Path) -> Count:
    pattern = ".local/share/*/*.db"
    messages = [json.loads(data) for (data,) in rows(home, pattern, "SELECT data FROM message")]
    parts = [json.loads(data) for (data,) in rows(home, pattern, "SELECT data FROM part")]
    return Count(sum(message["role"] == "user" for message in messages), sum(part["type"] == "tool" for part in parts))


def goose(home: Path) -> Count:
    pattern = ".local/share/goose/sessions/sessions.db"
    found = rows(home, pattern, "SELECT role, content_json FROM messages")
    kinds = Counter((role, block["type"]) for role, content in found for block in json.loads(content))
    return Count(kinds["user", "text"], kinds["assistant", "toolRequest"])


def hermes(home: Path) -> Count:
    found = list(rows(home, ".hermes/state.db", "SELECT role, tool_calls FROM messages"))
    return Count(sum(role == "user" for role, _ in found), sum(len(json.loads(calls)) for _, calls in found if calls))


def openclaw(home: Path) -> Count:
    pattern = ".openclaw/agents/*/agent/openclaw-agent.sqlite"
    events = [
        json.loads(event) for (event,) in rows(home, pattern, "SELECT event_json FROM transcript_events") if event
    ]
    messages = [event["message"] for event in events if event["type"] == "message"]
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return Count(
        sum(message["role"] == "user" for message in messages), sum(block["type"] == "toolCall" for block in blocks)
    )


def openhands(home: Path) -> Count:
    kinds = Counter(
        (event["kind"], event["source"]) for event in documents(home, ".openhands/conversations/*/events/*.json")
    )
    return Count(kinds["MessageEvent", "user"], kinds["ActionEvent", "agent"])


def continue_dev(home: Path) -> Count:
    chats = documents(home, ".continue/sessions/*-*.json")
    messages = [entry["message"] for chat in chats for entry in chat["history"]]
    return Count(
        sum(message["role"] == "user" for message in messages),
        sum(len(message.get("toolCalls") or ()) for message in messages),
    )


def auggie(home: Path) -> Count:
    exchanges = [e["exchange"] for chat in documents(home, ".augment/sessions/*.json") for e in chat["chatHistory"]]
    nodes = [node for exchange in exchanges for node in exchange["response_nodes"]]
    return Count(sum(bool(each.get("request_message")) for each in exchanges), sum(node["type"] == 5 for node in nodes))


def cline(home: Path) -> Count:
    chats = documents(home, ".cline/data/sessions/*/*.messages.json")
    messages = [message for chat in chats for message in (chat if isinstance(chat, list) else chat["messages"])]
    kinds = Counter((message["role"], block["type"]) for message in messages for block in message["content"])
    return Count(kinds["user", "text"], kinds["assistant", "tool_use"])


COUNTS: dict[str, Callable[[Path], Count]] = {
    "opencode": opencode,
    "kilo": opencode,
    "goose": goose,
    "hermes": hermes,
    "openclaw": openclaw,
    "openhands": openhands,
    "continue": continue_dev,
    "auggie": auggie,
    "cline": cline,
}


class TestCounts:
    """The archive has as many prompts and tool calls as the files."""

    @pytest.mark.parametrize("source", COUNTS)
    def test_prompts_and_calls(self, source: str, corpus: Path, tmp_path: Path) -> None:
        home = corpus / "agents" / source / "home"
        if not home.is_dir():
            pytest.skip("no recording among the real transcripts")
        with Library(tmp_path, agents_home=home, environ={"BACKSTORY_SOURCES": source}) as library:
            assert library.sync().errors == 0
            archive = library.archive
            turns = [turn for row in archive.sessions(SessionsRequest()) for turn in archive.turns(row.key)]
            types = Counter(event.type for turn in turns for event in archive.events(turn.session, turn.ordinal))
        assert Count(types[EventType.USER_INPUT], types[EventType.TOOL_CALL]) == COUNTS[source](home)
        assert types[EventType.USER_INPUT] > 0

"""Samples of other programs for agents with databases and rewritten files: each is read without an error, and has as
many prompts, calls and output tokens as a second count from the raw rows, which shares no code with the sources."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zstandard

from backstory.archive.base import SessionsRequest
from backstory.library import Library
from backstory.model import EventType
from tests.archive_world import usage_of

pytestmark = pytest.mark.corpus

_CTX = "ctxrs+ctx/tests/fixtures/provider-history"
_DEJA = "vshulcz+deja-vu/fixtures/registry"
_VSCODE = ".config/Code/User/globalStorage"


class Count(NamedTuple):
    prompts: int
    calls: int
    output: int = 0


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        return database.execute(query).fetchall()


def crush(path: Path) -> Count:
    messages = [(role, json.loads(parts)) for role, parts in rows(path, "SELECT role, parts FROM messages")]
    users = sum(role == "user" for role, _ in messages)
    # Only a session with a prompt has a turn that tokens can count for.
    asked = "(SELECT session_id FROM messages WHERE role = 'user')"
    ((output,),) = rows(path, f"SELECT sum(completion_tokens) FROM sessions WHERE id IN {asked}")
    return Count(users, sum(part["type"] == "tool_call" for _, parts in messages for part in parts), output)


def zed(path: Path) -> Count:
    found = Counter[str]()
    for kind, data in rows(path, "SELECT data_type, data FROM threads"):
        text = zstandard.ZstdDecompressor().decompress(data, 1 << 20).decode() if kind == "zstd" else data
        thread = json.loads(text)
        found["output"] += (thread.get("cumulative_token_usage") or {}).get("output_tokens", 0)
        for message in thread["messages"]:
            found["prompts"] += isinstance(message, dict) and ("User" in message or message.get("role") == "user")
        found["calls"] += text.count('"ToolUse"') + text.count('"input":') * ('"tool_uses"' in text)
    return Count(found["prompts"], found["calls"], found["output"])


def warp(path: Path) -> Count:
    """Messages are binary: the ids in them that end in the name of a call are counted."""
    tasks = b"".join(task for (task,) in rows(path, "SELECT task FROM agent_tasks ORDER BY id"))
    prompts = sum(1 for (text,) in rows(path, "SELECT input FROM ai_queries") if text.startswith("["))
    return Count(prompts, len(set(re.findall(rb"valid-call-[a-z-]+|(?:reuse|semantic)-call|warp-msg-tool-\d", tasks))))


def goose(path: Path) -> Count:
    blocks = [
        (role, block)
        for role, content in rows(path, "SELECT role, content_json FROM messages")
        for block in json.loads(content)
    ]
    kinds = Counter((role, block["type"]) for role, block in blocks)
    return Count(kinds["user", "text"], kinds["assistant", "toolRequest"], -1)


def opencode(path: Path) -> Count:
    messages = [json.loads(data) for (data,) in rows(path, "SELECT data FROM message")]
    parts = [json.loads(data) for (data,) in rows(path, "SELECT data FROM part")]
    tokens = [message.get("tokens") or {} for message in messages]
    kinds = [kind for (kind,) in rows(path, "SELECT type FROM session_message")]
    return Count(
        sum(message["role"] == "user" for message in messages) + kinds.count("user"),
        sum(part["type"] == "tool" for part in parts),
        sum(each.get("output", 0) + each.get("reasoning", 0) for each in tokens),
    )


def tasks(folder: Path) -> Count:
    """Tasks of Cline's extension and its relatives."""
    found = Counter[str]()
    for task in folder.glob("**/tasks/*") if folder.name != "tasks" else folder.iterdir():
        names = ("api_conversation_history.json", "claude_messages.json")
        path = next(path for name in names if (path := task / name).exists())
        for message in json.loads(path.read_bytes()):
            content = message["content"]
            blocks = [{"type": "text"}] if isinstance(content, str) else content
            found["prompts"] += message["role"] == "user" and any(block["type"] == "text" for block in blocks)
            found["calls"] += sum(block["type"] == "tool_use" for block in blocks)
    # Tokens are read from the records of requests, which these samples do not have.
    return Count(found["prompts"], found["calls"])


def cline(folder: Path) -> Count:
    chats = [json.loads(path.read_bytes()) for path in folder.glob("*/*.messages.json")]
    messages = [message for chat in chats for message in (chat if isinstance(chat, list) else chat["messages"])]
    kinds = Counter((message["role"], block["type"]) for message in messages for block in message["content"])
    output = sum((message.get("metrics") or {}).get("outputTokens", 0) for message in messages)
    return Count(kinds["user", "text"], kinds["assistant", "tool_use"], output)


def goose_files(folder: Path) -> Count:
    records = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    kinds = Counter((record["role"], block["type"]) for record in records for block in record.get("content", ()))
    return Count(kinds["user", "text"], kinds["assistant", "toolRequest"], -1)


def auggie(folder: Path) -> Count:
    exchanges = [e["exchange"] for path in folder.iterdir() for e in json.loads(path.read_bytes())["chatHistory"]]
    nodes = [node for exchange in exchanges for node in exchange.get("response_nodes") or ()]
    asked = [
        exchange.get("request_message") or any(node["type"] == 0 for node in exchange.get("request_nodes") or ())
        for exchange in exchanges
    ]
    return Count(sum(map(bool, asked)), sum(node["type"] == 5 for node in nodes), -1)


def kiro(folder: Path) -> Count:
    records = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    blocks = [block for record in records for block in record["data"].get("content", ())]
    turns = [turn for path in folder.glob("*.json") for turn in _turns(json.loads(path.read_bytes()))]
    return Count(
        sum(record["kind"] == "Prompt" for record in records),
        sum(block["kind"] == "toolUse" for block in blocks),
        sum(turn.get("output_token_count") or 0 for turn in turns),
    )


def _turns(session: Any) -> list[Any]:
    state = session.get("session_state") or {}
    return list((state.get("conversation_metadata") or {}).get("user_turn_metadatas") or ())


def kiro_database(path: Path) -> Count:
    history = [
        entry for (value,) in rows(path, "SELECT value FROM conversations_v2") for entry in json.loads(value)["history"]
    ]
    uses = [entry["assistant"].get("ToolUse") or {} for entry in history]
    prompts = sum("Prompt" in entry["user"]["content"] for entry in history)
    return Count(prompts, sum(len(use.get("tool_uses", ())) for use in uses))


def aider(path: Path) -> Count:
    return Count(sum(line.startswith("#### ") for line in path.read_text().splitlines()), 0)


def openclaw(folder: Path) -> Count:
    paths = [path for path in folder.glob("*/sessions/*.jsonl") if ".checkpoint." not in path.name]
    records = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    messages = [record["message"] for record in records if record["type"] == "message"]
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    output = sum((message.get("usage") or {}).get("output", 0) for message in messages)
    prompts = sum(message["role"] == "user" for message in messages)
    return Count(prompts, sum(block["type"] == "toolCall" for block in blocks), output)


class Sample(NamedTuple):
    """A file or folder, the source that reads it and the place that it is read from. -1 tokens are not compared."""

    path: str
    source: str
    place: str
    count: Callable[[Path], Count]


_GOOSE, _WARP = ".local/share/goose/sessions", ".local/state/warp-terminal/warp.sqlite"
SAMPLES = (
    Sample(f"{_CTX}/crush/v1/crush.db", "crush", "proj/.crush/crush.db", crush),
    Sample(f"{_CTX}/zed/v1/threads.db", "zed", ".local/share/zed/threads/threads.db", zed),
    Sample(f"{_DEJA}/zed/zed.sql", "zed", ".local/share/zed/threads/threads.db", zed),
    Sample(f"{_CTX}/warp/v1/warp.sqlite", "warp", _WARP, warp),
    Sample(f"{_CTX}/warp/v1/warp-mcp.sqlite", "warp", _WARP, warp),
    Sample(f"{_CTX}/goose/v14/sessions.db", "goose", f"{_GOOSE}/sessions.db", goose),
    Sample(f"{_CTX}/goose/v15/sessions.db", "goose", f"{_GOOSE}/sessions.db", goose),
    Sample(f"{_DEJA}/goose/sessions", "goose", _GOOSE, goose_files),
    Sample(f"{_CTX}/kilo/kilo.db", "kilo", ".local/share/kilo/kilo.db", opencode),
    Sample(f"{_CTX}/auggie/v0.32.0/sessions", "auggie", ".augment/sessions", auggie),
    Sample(f"{_CTX}/roo/storage/tasks", "roo-code", f"{_VSCODE}/rooveterinaryinc.roo-cline/tasks", tasks),
    Sample(f"{_DEJA}/roo/tasks", "roo-code", f"{_VSCODE}/rooveterinaryinc.roo-cline/tasks", tasks),
    Sample(f"{_CTX}/cline/data", "cline", f"{_VSCODE}/saoudrizwan.claude-dev", tasks),
    Sample(f"{_DEJA}/cline/legacy", "cline", f"{_VSCODE}/saoudrizwan.claude-dev", tasks),
    Sample(f"{_DEJA}/cline/modern/sessions", "cline", ".cline/data/sessions", cline),
    Sample("eric-tramel+moraine/fixtures/kiro", "kiro", ".kiro/sessions/cli", kiro),
    Sample(
        "kenn-io+agentsview/internal/parser/testdata/kiro_sqlite/standard_payload.json",
        "kiro",
        ".local/share/kiro-cli/data.sqlite3",
        kiro_database,
    ),
    Sample(f"{_DEJA}/aider/.aider.chat.history.md", "aider", "proj/.aider.chat.history.md", aider),
    Sample(f"{_DEJA}/openclaw/agents", "openclaw", ".openclaw/agents", openclaw),
)


def put(original: Path, target: Path) -> None:
    """Copy a sample to its place; SQL becomes the database that it builds, and a conversation of Kiro a row of one."""
    target.parent.mkdir(parents=True)
    if original.is_dir():
        shutil.copytree(original, target)
    elif original.suffix == ".sql" or target.suffix == ".sqlite3":
        with closing(sqlite3.connect(target)) as database, database:
            if original.suffix == ".sql":
                database.executescript(original.read_text())
            else:
                database.execute("CREATE TABLE conversations_v2 (key, conversation_id, value, created_at, updated_at)")
                row = ("/home/ann/demo", "one", original.read_text(), 1, 2)
                database.execute("INSERT INTO conversations_v2 VALUES (?, ?, ?, ?, ?)", row)
    else:
        shutil.copy(original, target)


class TestSamples:
    """Samples of other programs are read without an error, and completely."""

    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: "/".join(Path(sample.path).parts[-3:]))
    def test_prompts_calls_and_tokens(self, sample: Sample, corpus: Path, tmp_path: Path) -> None:
        original, home = corpus / "fixtures" / sample.path, tmp_path / "home"
        if not original.exists():
            pytest.skip("no samples among the real transcripts")
        put(original, home / sample.place)
        for path in (home, *home.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        (tmp_path / "backstory").mkdir()
        (tmp_path / "backstory/config.toml").write_text(f'[extra_roots]\naider = ["{home / "proj"}"]\n')
        if sample.source == "crush":
            listed = home / ".local/share/crush/projects.json"
            listed.parent.mkdir(parents=True)
            listed.write_text(json.dumps({"projects": [{"path": os.fspath(home / "proj"), "data_dir": ".crush"}]}))
        environ = {"BACKSTORY_SOURCES": sample.source}
        with Library(tmp_path / "backstory", agents_home=home, environ=environ) as library:
            assert library.sync().errors == 0
            archive = library.archive
            sessions = archive.sessions(SessionsRequest(start=0, end=1 << 50, limit=99))
            turns = [turn for row in sessions for turn in archive.turns(row.key)]
            types = Counter(event.type for turn in turns for event in archive.events(turn.session, turn.ordinal))
            output = sum(usage.output_tokens for row in sessions for usage in usage_of(archive, row.key))
        expected = sample.count(home / sample.place)
        found = Count(types[EventType.USER_INPUT], types[EventType.TOOL_CALL], output if expected.output >= 0 else -1)
        assert found == expected
        assert sum(types.values()) > 0

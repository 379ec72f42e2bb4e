"""Recordings of real agents that keep databases or rewritten files, driven by a scripted model: its script is known.

Task n asks for tools; the model thinks `THOUGHT-n`, says `Working on TASK-n` and ends with `MARKER-n`. Task 2 has a
command that exits with 3. Tokens are compared with a straightforward count of the raw files.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backstory.archive.base import EventRow, SessionRow, SessionsRequest, TurnRow
from backstory.library import Library
from backstory.model import EventType
from tests.archive_world import usage_of

pytestmark = pytest.mark.corpus

CALL, RESPONSE = EventType.TOOL_CALL, EventType.TOOL_RESPONSE
Tokens = tuple[int, int]
"""All input tokens, and all output tokens."""


def rows(path: Path, query: str) -> list[Any]:
    database = sqlite3.connect(path)
    found = database.execute(query).fetchall()
    database.close()
    return found


def opencode_tokens(home: Path) -> Tokens:
    path = next(home.glob(".local/share/*/*.db"))
    messages = [json.loads(data) for (data,) in rows(path, "SELECT data FROM message")]
    tokens = [message["tokens"] for message in messages if "tokens" in message]
    return (
        sum(entry["input"] + entry["cache"]["read"] + entry["cache"]["write"] for entry in tokens),
        sum(entry["output"] + entry["reasoning"] for entry in tokens),
    )


def goose_tokens(home: Path) -> Tokens:
    query = "SELECT sum(accumulated_input_tokens), sum(accumulated_output_tokens) FROM sessions"
    return tuple(rows(home / ".local/share/goose/sessions/sessions.db", query)[0])  # type: ignore[return-value]


def hermes_tokens(home: Path) -> Tokens:
    query = "SELECT sum(input_tokens + cache_read_tokens + cache_write_tokens), sum(output_tokens) FROM sessions"
    return tuple(rows(home / ".hermes/state.db", query)[0])  # type: ignore[return-value]


def cline_tokens(home: Path) -> Tokens:
    usage = [
        json.loads(path.read_text())["metadata"]["usage"] for path in home.glob(".cline/data/sessions/*/*[!s].json")
    ]
    return sum(entry["inputTokens"] for entry in usage), sum(entry["outputTokens"] for entry in usage)


def continue_tokens(home: Path) -> Tokens:
    usage = [json.loads(path.read_text())["usage"] for path in home.glob(".continue/sessions/*-*.json")]
    return sum(entry["promptTokens"] for entry in usage), sum(entry["completionTokens"] for entry in usage)


def openhands_tokens(home: Path) -> Tokens:
    states = [json.loads(path.read_text()) for path in home.glob(".openhands/conversations/*/base_state.json")]
    usage = [state["stats"]["usage_to_metrics"]["agent"]["accumulated_token_usage"] for state in states]
    return sum(entry["prompt_tokens"] for entry in usage), sum(entry["completion_tokens"] for entry in usage)


def auggie_tokens(home: Path) -> Tokens:
    chats = [json.loads(path.read_text()) for path in home.glob(".augment/sessions/*.json")]
    nodes = [node for chat in chats for entry in chat["chatHistory"] for node in entry["exchange"]["response_nodes"]]
    usage = [node["token_usage"] for node in nodes if "token_usage" in node]
    read, written = "cache_read_input_tokens", "cache_creation_input_tokens"
    return sum(u["input_tokens"] + u[read] + u[written] for u in usage), sum(u["output_tokens"] for u in usage)


def openclaw_tokens(home: Path) -> Tokens:
    path = home / ".openclaw/agents/main/agent/openclaw-agent.sqlite"
    entries = [json.loads(data) for (data,) in rows(path, "SELECT event_json FROM transcript_events") if data]
    usage = [entry["message"]["usage"] for entry in entries if "usage" in entry.get("message", {})]
    return sum(u["input"] + u["cacheRead"] + u["cacheWrite"] for u in usage), sum(u["output"] for u in usage)


class Recorded(NamedTuple):
    source: str
    tasks: tuple[int, ...]
    tokens: Callable[[Path], Tokens]
    model: str | None = "rig-model"
    child: bool = False
    thinks: bool = True
    """Thoughts are written down."""
    exit_code: int | None = 3
    """The exit code of the command that fails; OpenHands loses it with its shell."""


RECORDED = (
    Recorded("opencode", (1, 2, 3), opencode_tokens, child=True),
    Recorded("kilo", (1, 2, 3), opencode_tokens, child=True),
    Recorded("goose", (1, 2), goose_tokens),
    Recorded("hermes", (1, 2), hermes_tokens),
    Recorded("cline", (1, 2), cline_tokens),
    Recorded("continue", (1, 2), continue_tokens, thinks=False),
    Recorded("openhands", (1, 2), openhands_tokens, "openai/rig-model", exit_code=None),
    Recorded("auggie", (1, 2), auggie_tokens, None),
    Recorded("openclaw", (1, 2), openclaw_tokens),
)


class Recording(NamedTuple):
    recorded: Recorded
    home: Path
    library: Library
    turns: dict[int, tuple[SessionRow, TurnRow, list[EventRow]]]
    children: list[SessionRow]

    def events(self, task: int, *types: EventType) -> list[EventRow]:
        return [event for event in self.turns[task][2] if event.type in types]


@pytest.fixture(scope="module", params=RECORDED, ids=lambda recorded: recorded.source)
def recording(
    request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recording]:
    recorded: Recorded = request.param
    original = corpus / "agents" / recorded.source / "home"
    if not original.is_dir():
        pytest.skip("no recordings among the real transcripts")
    folder = tmp_path_factory.mktemp(recorded.source)
    home = folder / "home"
    shutil.copytree(original, home)
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    environ = {"BACKSTORY_SOURCES": recorded.source, "BACKSTORY_REDACT": "off"}
    library = Library(folder / "backstory", agents_home=home, environ=environ)
    report = library.sync()
    assert report.errors == 0
    assert library.sync().files == 0
    turns, children = {}, []
    for session in library.archive.sessions(SessionsRequest(start=0, end=1 << 50, limit=100)):
        for turn in library.archive.turns(session.key):
            events = library.archive.events(session.key, turn.ordinal)
            (prompt,) = [event.text for event in events if event.type is EventType.USER_INPUT]
            if prompt.startswith("TASK-"):
                turns[int(prompt[5])] = (session, turn, events)
            else:
                assert prompt.startswith("SUBTASK-3 ")
                children.append(session)
    yield Recording(recorded, home, library, turns, children)
    library.close()


class TestRecording:
    """Everything that the script made the agent do is in the archive."""

    def test_every_prompt_is_a_turn_that_ended_with_its_answer(self, recording: Recording) -> None:
        assert sorted(recording.turns) == list(recording.recorded.tasks)
        for task, (session, turn, events) in recording.turns.items():
            answers = [event.text for event in events if event.type is EventType.ASSISTANT_RESPONSE]
            assert answers[-1] == f"MARKER-{task} The answer is ready."
            assert turn.completed
            assert session.cwd == "/home/dev/demo"

    def test_calls_and_results(self, recording: Recording) -> None:
        assert [event.failed for event in recording.events(1, RESPONSE)] == [False]
        assert "hello-from-tool-1" in recording.events(1, RESPONSE)[0].text
        assert "echo hello-from-tool-1 && ls" in recording.events(1, CALL)[0].text
        calls, results = recording.events(2, CALL), recording.events(2, RESPONSE)
        assert [call.call_id for call in calls] == [result.call_id for result in results]
        assert [call.tool for call in calls] == [result.tool for result in results]
        assert results[1].exit_code == recording.recorded.exit_code
        assert "about-to-fail-2" in calls[1].text

    def test_models_and_thoughts(self, recording: Recording) -> None:
        for task in recording.turns:
            by_model = recording.events(task, EventType.ASSISTANT_RESPONSE, EventType.REASONING, CALL)
            assert {event.model for event in by_model} == {recording.recorded.model}
            thoughts = [event.text for event in recording.events(task, EventType.REASONING)]
            assert bool(thoughts) is recording.recorded.thinks
            assert all(f"THOUGHT-{task}" in thought for thought in thoughts)

    def test_tokens(self, recording: Recording) -> None:
        """They agree with a straightforward count."""
        archive = recording.library.archive
        sessions = archive.sessions(SessionsRequest(start=0, end=1 << 50, limit=100))
        usage = [row for session in sessions for row in usage_of(archive, session.key)]
        counted = (sum(row.input_tokens for row in usage), sum(row.output_tokens for row in usage))
        assert counted == recording.recorded.tokens(recording.home)

    def test_children(self, recording: Recording) -> None:
        assert bool(recording.children) is recording.recorded.child
        for child in recording.children:
            (call,) = recording.events(3, CALL)
            assert (child.parent, child.parent_call) == (recording.turns[3][0].key, call.call_id)

    def test_nothing_is_unknown(self, recording: Recording) -> None:
        """No record of these versions is of an unknown type."""
        events = [event for _, _, events in recording.turns.values() for event in events]
        assert [event.text for event in events if event.type is EventType.UNKNOWN] == []


class TestAider:
    """Aider's history is Markdown in the project."""

    def test_two_runs(self, corpus: Path, tmp_path: Path) -> None:
        demo = corpus / "agents" / "aider" / "home" / "demo"
        if not demo.is_dir():
            pytest.skip("no recordings among the real transcripts")
        (tmp_path / "config.toml").write_text(f'sources = ["aider"]\n[extra_roots]\naider = ["{demo}"]\n')
        with Library(tmp_path, agents_home=tmp_path, environ={}) as library:
            assert library.sync().errors == 0
            sessions = library.archive.sessions(SessionsRequest(start=0, end=1 << 50, limit=9, ascending=True))
            assert [session.title[:6] for session in sessions] == ["TASK-1", "TASK-2"]
            assert all(session.completed for session in sessions)
            assert [row.output_tokens for session in sessions for row in usage_of(library.archive, session.key)] == [
                93,
                93,
            ]

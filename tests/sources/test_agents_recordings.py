"""Recordings of real agents that were driven by a scripted model, which says exactly what must be found.

Task n asks for tools, step by step; the model thinks `THOUGHT-n`, says `Working on TASK-n`, and ends with `MARKER-n`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from backstory.archive.base import EventRow, SessionRow, TurnRow
from backstory.library import Library
from backstory.model import EventType

pytestmark = pytest.mark.corpus


class Recorded(NamedTuple):
    source: str
    tasks: tuple[int, ...]
    model: str = "rig-model"
    child: bool = False
    folder: str | None = None
    branch: bool = True
    """The agent writes down the branch."""


RECORDED = (
    Recorded("gemini-cli", (1, 2, 3), "gemini-3.8-flash", branch=False),
    Recorded("qwen-code", (1, 2, 3), child=True),
    Recorded("copilot-cli", (1, 2, 3), child=True),
    Recorded("pi", (1, 2, 3, 4), branch=False),
    Recorded("oh-my-pi", (1, 2), branch=False),
    Recorded("kimi-cli", (1, 2, 3), child=True, folder="kimi-code", branch=False),
    Recorded("factory-droid", (1, 2), "custom:Rig-0", branch=False),
    Recorded("grok-build", (1, 2)),
    Recorded("gptme", (1, 2), "local/rig-model", branch=False),
    Recorded("mistral-vibe", (1, 2, 3), branch=False),
)
OF_MODEL = (EventType.ASSISTANT_RESPONSE, EventType.REASONING, EventType.TOOL_CALL)


class Recording:
    def __init__(self, recorded: Recorded, library: Library) -> None:
        self.recorded = recorded
        archive = library.archive
        rows = archive._db.execute("SELECT key FROM session")  # type: ignore[attr-defined]
        self.sessions = [row for (key,) in rows if (row := archive.session(key))]
        self.turns: dict[int, tuple[SessionRow, TurnRow, list[EventRow]]] = {}
        self.children: list[tuple[SessionRow, TurnRow, list[EventRow]]] = []
        for session in self.sessions:
            for turn in archive.turns(session.key):
                events = archive.events(session.key, turn.ordinal)
                (prompt,) = of(events, EventType.USER_INPUT)
                if prompt.text.startswith("TASK-"):
                    self.turns[int(prompt.text[5])] = (session, turn, events)
                else:
                    assert prompt.text.startswith("SUBTASK-3 ")
                    self.children.append((session, turn, events))
        self.usage = archive._db.execute(  # type: ignore[attr-defined]
            "SELECT input_tokens, output_tokens, cache_read_tokens, model FROM usage"
        ).fetchall()

    @property
    def everything(self) -> list[tuple[SessionRow, TurnRow, list[EventRow]]]:
        return [*self.turns.values(), *self.children]

    def of_all(self, *types: EventType) -> list[EventRow]:
        return [event for _, _, events in self.everything for event in of(events, *types)]


def of(events: list[EventRow], *types: EventType) -> list[EventRow]:
    return [event for event in events if event.type in types]


@pytest.fixture(scope="module", params=RECORDED, ids=lambda recorded: recorded.source)
def recording(request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    recorded: Recorded = request.param
    home = corpus / "agents" / (recorded.folder or recorded.source) / "home"
    if not home.is_dir():
        pytest.skip(f"no recording of {recorded.source}")
    library = Library(tmp_path_factory.mktemp("backstory"), agents_home=home, environ={})
    report = library.sync()
    assert (report.errors, report.skipped) == (0, 0)
    return Recording(recorded, library)


class TestRecording:
    def test_sessions(self, recording: Recording) -> None:
        """A turn for each task, all of them over, in sessions that know their folder."""
        assert sorted(recording.turns) == list(recording.recorded.tasks)
        turns = sum(session.turn_count for session in recording.sessions)
        assert turns == len(recording.recorded.tasks) + recording.recorded.child
        assert all(session.key.startswith(f"{recording.recorded.source}/") for session in recording.sessions)
        assert all(turn.completed for _, turn, _ in recording.everything)
        assert all(str(session.cwd).endswith("/demo") for session in recording.sessions)
        if recording.recorded.branch:
            assert {session.branch for session in recording.sessions if not session.parent} == {"feature/rig"}

    def test_nothing_is_unknown(self, recording: Recording) -> None:
        """Every record has a meaning or a reason to be skipped."""
        assert recording.of_all(EventType.UNKNOWN) == []

    def test_answers(self, recording: Recording) -> None:
        """A thought and a remark before each call, the marker at the end, all by the model."""
        for number, (_, turn, events) in recording.turns.items():
            answers = of(events, EventType.ASSISTANT_RESPONSE)
            assert [event.text for event in answers[:-1]] == [
                f"Working on TASK-{number}, step {step}." for step in range(1, len(answers))
            ]
            assert answers[-1].text == f"MARKER-{number} The answer is ready."
            assert turn.response == answers[-1].uid
            assert len(of(events, EventType.REASONING)) == len(answers)
            assert all(f"THOUGHT-{number} " in event.text for event in of(events, EventType.REASONING))
        assert {event.model for event in recording.of_all(*OF_MODEL)} == {recording.recorded.model}

    def test_tools(self, recording: Recording) -> None:
        """Every call has its arguments and its response, by the tool's name and the model that called."""
        for number, (_, _, events) in recording.turns.items():
            calls, responses = of(events, EventType.TOOL_CALL), of(events, EventType.TOOL_RESPONSE)
            assert [event.call_id for event in calls] == [event.call_id for event in responses]
            assert [event.tool for event in calls] == [event.tool for event in responses]
            assert {event.originating_model for event in (*calls, *responses)} <= {recording.recorded.model}
            assert all(event.model == recording.recorded.model for event in calls)
            commands = {
                str(argument): response
                for call, response in zip(calls, responses, strict=True)
                for argument in (call.arguments or {}).values()
            }
            if number == 1:
                assert f"hello-from-tool-{number}\nREADME.md" in commands["echo hello-from-tool-1 && ls"].text
                assert commands["echo hello-from-tool-1 && ls"].exit_code in (None, 0)
            elif number == 2:
                failed = commands["echo about-to-fail-2 >&2; exit 3"]
                assert failed.exit_code == 3
                assert "about-to-fail-2" in failed.text
                assert "/home/dev/demo/note-2.txt" in commands

    def test_tokens(self, recording: Recording) -> None:
        """For each model call: input 1050 and one for each item, 100 read from the cache for each earlier item; output
        47, and 10 for each tool call."""
        calls = len(recording.of_all(EventType.ASSISTANT_RESPONSE))
        tools = len(recording.of_all(EventType.TOOL_CALL))
        given, output, read = (sum(row[place] for row in recording.usage) for place in range(3))
        assert output == 47 * calls + 10 * tools
        assert read == 100 * (given - read - 1051 * calls)
        assert {row[3] for row in recording.usage} == {recording.recorded.model}

    def test_child(self, recording: Recording) -> None:
        """A subagent is a session of its own, below the call that started it, and ends with its answer."""
        assert len(recording.children) == recording.recorded.child
        for session, turn, events in recording.children:
            parent, _, of_parent = recording.turns[3]
            (started,) = of(of_parent, EventType.TOOL_CALL)
            (handed_back,) = of(of_parent, EventType.TOOL_RESPONSE)
            assert (session.parent, session.parent_call) == (parent.key, started.call_id)
            assert f"{recording.recorded.source}/{(handed_back.extra or {})['child_session']}" == session.key
            assert "hello-from-tool-3\n" in of(events, EventType.TOOL_RESPONSE)[0].text
            last = of(events, EventType.ASSISTANT_RESPONSE)[-1]
            assert (last.text, last.uid) == ("CHILD-3 The answer is ready.", turn.response)

    def test_times(self, recording: Recording) -> None:
        """The times of the turns are those of the recording, in the order of the tasks."""
        started = [turn.started_at for _, turn, _ in (recording.turns[task] for task in recording.recorded.tasks)]
        assert started == sorted(started)
        assert all(turn.updated_at - turn.started_at < 60_000 for _, turn, _ in recording.everything)

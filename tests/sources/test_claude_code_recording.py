"""A recording of Claude Code 2.1.325, driven by a scripted model that says exactly what must be found.

Task n asks for tools, step by step; the model thinks `THOUGHT-n`, says `Working on TASK-n`, and ends with `MARKER-n`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from backstory.archive.base import EventRow, SessionRow, TurnRow
from backstory.library import Library
from backstory.model import EventType

MODEL = "claude-opus-5-5"
OF_MODEL = (EventType.ASSISTANT_RESPONSE, EventType.REASONING)
# The tools of each task with what they were called with, in order.
SAY = "echo hello-from-tool-{n} && ls"
FAIL = "echo about-to-fail-{n} >&2; exit 3"
TASKS: dict[int, list[tuple[str, str, str]]] = {
    1: [("Bash", "command", SAY)],
    2: [("Write", "file_path", "/home/dev/demo/note-{n}.txt"), ("Bash", "command", FAIL)],
    3: [("Agent", "prompt", "SUBTASK-{n} Say hello from the child. [use: shell]")],
    4: [("Bash", "command", SAY)],
    5: [("Bash", "command", "echo started; sleep 60")],
    6: [("Bash", "command", SAY)],
    7: [("Bash", "command", SAY), ("Write", "file_path", "/home/dev/demo/note-{n}.txt")],
    8: [
        ("ToolSearch", "query", "select:mcp__backstory__search_sessions"),
        ("mcp__backstory__search_sessions", "query", "MARKER-2"),
    ],
    9: [],
    10: [("Bash", "command", SAY), ("Write", "file_path", "/home/dev/demo/note-{n}.txt")],
    11: [("Bash", "command", FAIL)],
    12: [("Bash", "command", SAY)],
}
INTERRUPTED = {4, 5, 12}

pytestmark = pytest.mark.corpus


class Recording:
    def __init__(self, library: Library) -> None:
        self.library = library
        rows = library.archive._db.execute("SELECT key FROM session")  # type: ignore[attr-defined]
        self.sessions = [row for (key,) in rows if (row := library.archive.session(key))]
        self.turns: dict[int, tuple[SessionRow, TurnRow, list[EventRow]]] = {}
        for session in self.sessions:
            for turn in library.archive.turns(session.key):
                events = library.archive.events(session.key, turn.ordinal)
                prompt = next(event.text for event in events if event.uid == turn.prompt)
                if prompt.startswith("TASK-"):
                    self.turns[int(prompt[5:].split()[0])] = (session, turn, events)
                else:
                    self.child = (session, turn, events)


@pytest.fixture(scope="module")
def recording(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    home = corpus / "agents" / "claude-code" / "home"
    if not home.is_dir():
        pytest.skip("no recording of Claude Code")
    library = Library(tmp_path_factory.mktemp("backstory"), agents_home=home, environ={})
    report = library.sync()
    assert (report.errors, report.skipped) == (0, 0)
    return Recording(library)


def of(events: list[EventRow], *types: EventType) -> list[EventRow]:
    return [event for event in events if event.type in types]


class TestWhole:
    def test_sessions_and_turns(self, recording: Recording) -> None:
        """Eight conversations and a child, with a turn for each task: the fork has only its own."""
        assert sorted(recording.turns) == list(TASKS)
        assert len(recording.sessions) == 9
        assert sum(session.turn_count for session in recording.sessions) == len(TASKS) + 1
        assert all(session.completed for session in recording.sessions)

    def test_nothing_is_unknown(self, recording: Recording) -> None:
        """Every record has a meaning or a reason to be skipped."""
        kinds = Counter(event.type for _, _, events in recording.turns.values() for event in events)
        assert kinds[EventType.UNKNOWN] == 0

    def test_compaction(self, recording: Recording) -> None:
        """A boundary and a summary, and the command as the client's."""
        session, _, events = recording.turns[6]
        boundary, summary = of(events, EventType.COMPACTION)
        assert boundary.text == "Conversation compacted"
        assert "SUMMARY The user asked for a hello" in summary.text
        assert of(events, EventType.SYSTEM)[0].text == "/compact"
        assert session.title == "named by hand"


@pytest.mark.parametrize("n", TASKS)
class TestTasks:
    def test_calls_and_responses(self, recording: Recording, n: int) -> None:
        """Every tool with its arguments and what it answered, by the model that called it."""
        _, _, events = recording.turns[n]
        calls = of(events, EventType.TOOL_CALL)
        expected = [(tool, value.format(n=n)) for tool, _, value in TASKS[n]]
        fields = [field for _, field, _ in TASKS[n]]
        assert [(call.tool, call.arguments[field]) for call, field in zip(calls, fields, strict=True)] == expected
        responses = {event.call_id: event for event in of(events, EventType.TOOL_RESPONSE)}
        assert list(responses) == [call.call_id for call in calls]
        for event in calls:
            response = responses[event.call_id]
            assert (response.tool, response.originating_model) == (event.tool, MODEL)
            assert event.originating_model == MODEL
            command = (event.arguments or {}).get("command", "")
            if "exit 3" in command:
                assert (response.exit_code, response.failed) == (3, True)
                assert f"about-to-fail-{n}" in response.text
            elif "hello-from-tool" in command:
                assert (response.exit_code, response.failed) == (None, False)
                assert response.text.startswith(f"hello-from-tool-{n}\nREADME.md")

    def test_prompt_thoughts_and_answers(self, recording: Recording, n: int) -> None:
        """The prompt once; a thought and a remark before each call; the marker at the end."""
        _, turn, events = recording.turns[n]
        assert len(of(events, EventType.USER_INPUT)) == 1
        answers = of(events, EventType.ASSISTANT_RESPONSE)
        # Two tools in one message (task 7) have one remark.
        remarks = [event for event in answers if event.text.startswith(f"Working on TASK-{n}, step")]
        assert len(remarks) == (1 if n == 7 else len(TASKS[n]))
        assert all(event.text.startswith(f"THOUGHT-{n} ") for event in of(events, EventType.REASONING))
        assert all(event.model == MODEL for event in of(events, *OF_MODEL))
        if n not in INTERRUPTED:
            assert answers[-1].text == f"MARKER-{n} The answer is ready."
            assert turn.response == answers[-1].uid

    def test_ending(self, recording: Recording, n: int) -> None:
        """Every turn is over: by its answer, or by the interrupt, which is no answer."""
        _, turn, events = recording.turns[n]
        assert turn.completed
        if n in INTERRUPTED:
            assert turn.response is None
            last = next(event for event in events if event.uid == turn.terminal)
            assert last.text.startswith("[Request interrupted by user")

    def test_time(self, recording: Recording, n: int) -> None:
        """A turn lasts as long as it did: the slow ones were stopped after 12 seconds, all else took less than 4."""
        _, turn, _ = recording.turns[n]
        assert turn.updated_at - turn.started_at < (12_000 if n in INTERRUPTED else 4_000)


class TestChild:
    def test_child(self, recording: Recording) -> None:
        """A session of its own, below the call that started it, and completed."""
        session, turn, events = recording.child
        parent, _, of_parent = recording.turns[3]
        (started,) = of(of_parent, EventType.TOOL_CALL)
        assert (session.parent, session.parent_call) == (parent.key, started.call_id)
        assert of(events, EventType.TOOL_RESPONSE)[0].text.startswith("hello-from-tool-3\n")
        assert of(events, EventType.ASSISTANT_RESPONSE)[-1].text == "CHILD-3 The answer is ready."
        assert turn.response == of(events, EventType.ASSISTANT_RESPONSE)[-1].uid
        (handed_back,) = of(of_parent, EventType.TOOL_RESPONSE)
        assert handed_back.extra is not None
        assert f"claude-code/{handed_back.extra['child_session']}" == session.key


class TestTraces:
    def test_status_and_tokens(self, recording: Recording) -> None:
        """An interrupted turn is an error, a completed one a success; a compaction counts with the turn before it."""
        yielded = recording.library.call("list_traces", {})["traces"]
        traces = {int(trace["name"][5:].split()[0]): trace for trace in yielded}
        assert sorted(traces) == list(TASKS)
        for n, trace in traces.items():
            failed = n in INTERRUPTED or any("exit 3" in value for _, _, value in TASKS[n])
            assert trace["status"] == ("error" if failed else "success")
        assert traces[6]["totalTokens"] == (1354 + 57) + (1657 + 47) + (1758 + 40)


class TestTokens:
    def test_every_call_of_the_model(self, recording: Recording) -> None:
        """Input 1000 and one for each item, 100 read from the cache for each earlier item, 50 written to it; output 40,
        10 for each tool and 7 for the thought; 1 where the answer was cut off. The compaction's call has no thought."""
        db = recording.library.archive._db  # type: ignore[attr-defined]
        calls = Counter(
            event.usage_key
            for _, _, events in [*recording.turns.values(), recording.child]
            for event in of(events, EventType.TOOL_CALL)
        )
        said = {event.usage_key for _, _, events in [*recording.turns.values(), recording.child] for event in events}
        rows = db.execute(
            "SELECT key, input_tokens, output_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, "
            "stop_reason, model, cost FROM usage"
        ).fetchall()
        cut_off = compactions = 0
        for key, given, output, read, written, hour, reason, model, cost in rows:
            assert (model, written, hour) == (MODEL, 50, 0)
            assert read == 100 * (given - read - written - 1001)
            if key not in said:
                compactions += 1
                assert (output, round(cost, 6)) == (40, 0.005222)
            elif reason is None:
                cut_off += 1
                assert output == 1
            else:
                assert output == 40 + 10 * calls[key] + 7
        assert (len(rows), cut_off, compactions) == (28, 2, 1)

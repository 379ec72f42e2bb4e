"""A recording of Codex 0.166, driven by a scripted model: everything it did is known beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from codex_shelf import Shelf, of_tool, shelve

from backstory.model import EventType
from tests.archive_world import children_of, event_row, usage_of

pytestmark = pytest.mark.corpus

CALL, RESPONSE = EventType.TOOL_CALL, EventType.TOOL_RESPONSE
RECORDED = {
    "01a1e722-3e79-7fe0-8d5c-f596d360dfda": [1, 2],
    "01a1e722-719e-7300-a67a-8b82f219a54c": [3],
    "01a1e722-8e3b-7542-86b4-e653594e39ed": [4],
    "01a1e722-c89d-77f3-b424-2d330f2804ff": [5],
    "01a1e723-06f0-7dc3-81f3-c2c80e7f32d4": [6],
    "01a1e723-1ed6-7192-a882-d4ee7c778e69": [7],
    "01a1e723-380d-7333-871d-73b9af98b5fb": [8],
    "01a1e723-660e-75e1-802b-212e7990b801": [9],
    "01a1e723-a8a4-79e3-8bf7-22c855f2a4d0": [10, 11, 12],
}
RECORDED_CHILD = "01a1e722-76d8-7370-8d59-e556d6d1ace3"
INTERRUPTED = {4, 5, 12}
COMMANDS = {5: "echo started; sleep 60", 8: "sleep 8; echo rested", 11: "echo about-to-fail-11 >&2; exit 3"}


@pytest.fixture(scope="module")
def shelf(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    home = corpus / "agents" / "codex" / "home"
    if not home.is_dir():
        pytest.skip("no recordings among the real transcripts")
    yield from shelve(tmp_path_factory.mktemp("recorded"), home)


class TestRecording:
    """A recording of Codex 0.166, driven by a scripted model."""

    def test_nothing_is_unknown(self, shelf: Shelf) -> None:
        for name in (*RECORDED, RECORDED_CHILD):
            assert [row.text for row in shelf.events(name, EventType.UNKNOWN)] == []

    @pytest.mark.parametrize("name", RECORDED)
    def test_prompts_and_endings(self, shelf: Shelf, name: str) -> None:
        turns, tasks = shelf.turns(name), RECORDED[name]
        prompts = [row.text for row in shelf.events(name, EventType.USER_INPUT)]
        assert [prompt.split()[0] for prompt in prompts] == [f"TASK-{task}" for task in tasks]
        assert len(turns) == len(tasks)
        for turn, task in zip(turns, tasks, strict=True):
            last = event_row(shelf.archive, turn.terminal or b"")
            assert last is not None
            expected = "Turn aborted: interrupted" if task in INTERRUPTED else f"MARKER-{task} The answer is ready."
            assert last.text == expected
        assert shelf.session(name).completed

    @pytest.mark.parametrize("name", RECORDED)
    def test_commands(self, shelf: Shelf, name: str) -> None:
        for turn, task in zip(shelf.turns(name), RECORDED[name], strict=True):
            rows = shelf.archive.events(turn.session, turn.ordinal)
            calls = {row.call_id: row for row in rows if row.type is CALL}
            responses = {row.call_id: row for row in rows if row.type is RESPONSE}
            assert calls.keys() == responses.keys()
            commands = [row for row in calls.values() if row.tool == "exec_command"]
            if task in (2, 3):
                continue
            missing = COMMANDS.get(task, f"echo hello-from-tool-{task} && ls")
            assert missing in (commands[0].arguments.get("cmd") or commands[0].arguments["command"])
            output = responses[commands[0].call_id]
            assert {5: "started", 8: "rested", 11: "about-to-fail-11"}.get(
                task, f"hello-from-tool-{task}"
            ) in output.text
            assert output.exit_code == {5: -1, 11: 3}.get(task, 0)

    def test_patch_and_failure(self, shelf: Shelf) -> None:
        name = next(iter(RECORDED))
        calls, responses = shelf.events(name, CALL), shelf.events(name, RESPONSE)
        (patch,) = of_tool(calls, "apply_patch")
        assert list(patch.arguments["changes"]) == ["/home/dev/demo/note-2.txt"]
        failure = of_tool(responses, "exec_command")[1]
        assert (failure.text, failure.exit_code, failure.failed) == ("about-to-fail-2\n", 3, True)
        old = of_tool(shelf.events("01a1e723-06f0-7dc3-81f3-c2c80e7f32d4", RESPONSE), "exec_command")[1]
        assert (old.exit_code, old.failed) == (3, True)

    @pytest.mark.parametrize("name", ["01a1e723-380d-7333-871d-73b9af98b5fb", "01a1e723-660e-75e1-802b-212e7990b801"])
    def test_mcp(self, shelf: Shelf, name: str) -> None:
        (call,) = of_tool(shelf.events(name, CALL), "mcp__backstory__search_sessions")
        (response,) = of_tool(shelf.events(name, RESPONSE), "mcp__backstory__search_sessions")
        assert call.arguments == {"query": "MARKER-2"}
        assert "schema_version" in response.text
        assert response.failed is False

    def test_outputs_are_found_once(self, shelf: Shelf) -> None:
        found = shelf.find("hello-from-tool-10", RESPONSE)
        assert [row.tool for row in found if "hello-from-tool-10" in row.text] == ["exec_command"]

    def test_child(self, shelf: Shelf) -> None:
        parent = "01a1e722-719e-7300-a67a-8b82f219a54c"
        session = shelf.session(RECORDED_CHILD)
        assert (session.title, session.parent, session.completed) == ("/root/child_3", f"codex/{parent}", True)
        assert [row.key for row in children_of(shelf.archive, f"codex/{parent}")] == [session.key]
        assert [row.text for row in shelf.events(RECORDED_CHILD, EventType.ASSISTANT_RESPONSE)][-1].startswith(
            "CHILD-3"
        )
        assert not any("SUBTASK-3 Say" in row.text for row in shelf.events(RECORDED_CHILD))
        (spawn,) = of_tool(shelf.events(parent, RESPONSE), "collaboration.spawn_agent")
        assert spawn.extra == {"child_session": RECORDED_CHILD}
        assert session.parent_call == spawn.call_id

    def test_compaction(self, shelf: Shelf) -> None:
        for name in ("01a1e723-1ed6-7192-a882-d4ee7c778e69", "01a1e723-a8a4-79e3-8bf7-22c855f2a4d0"):
            yielded = [row for row in shelf.events(name) if "SUMMARY The user asked" in row.text]
            assert [row.type for row in yielded] == [EventType.COMPACTION]

    def test_models(self, shelf: Shelf) -> None:
        for name, tasks in RECORDED.items():
            model = "gpt-5.4" if tasks[0] in (6, 9) else "gpt-6.1-sol"
            said = shelf.events(name, EventType.ASSISTANT_RESPONSE, EventType.REASONING)
            assert {row.model for row in said} == {model}
            assert {row.originating_model for row in shelf.events(name, CALL, RESPONSE)} == {model}

    @pytest.mark.parametrize("name", [*RECORDED, RECORDED_CHILD])
    def test_tokens(self, shelf: Shelf, name: str) -> None:
        """Every model call once, with what the model said it took: 1000 and some in, 40 and 10 for each call out."""
        usage = sorted(usage_of(shelf.archive, f"codex/{name}"), key=lambda row: row.ts)
        calls = Counter(row.usage_key for row in shelf.events(name, CALL) if not (row.extra or {}).get("script"))
        thoughts = Counter(row.usage_key for row in shelf.events(name, EventType.REASONING))
        for row in usage:
            assert row.cache_read_tokens % 100 == 0
            assert 1050 <= row.input_tokens - row.cache_read_tokens <= 1100
            assert row.reasoning_tokens == 7 * thoughts[row.key]
            assert row.output_tokens == 40 + 10 * calls[row.key] + row.reasoning_tokens
        assert sum(calls.values()) == sum(calls[row.key] for row in usage)

    def test_title(self, shelf: Shelf) -> None:
        assert shelf.session("01a1e723-a8a4-79e3-8bf7-22c855f2a4d0").title == "Hello tool check"
        assert shelf.session(next(iter(RECORDED))).title.startswith("TASK-1 ")

"""Tools of a rollout: calls joined with responses, exit codes, failures."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from codex_rollout import Rollout, events, feed, feed_with_restarts

from backstory.model import EventType
from backstory.sources.base import Event

CALL, RESPONSE = EventType.TOOL_CALL, EventType.TOOL_RESPONSE


def read(*records: Any) -> list[Event]:
    items = feed(records)
    assert feed_with_restarts(records) == items
    return events(items)


def respond(output: Any) -> Event:
    """The response to a call that put out this."""
    rollout = Rollout()
    return read(rollout.call(), rollout.output(output))[-1]


class TestCalls:
    def test_join(self) -> None:
        """A response carries the tool and the model of its call, even when the model has changed since."""
        rollout = Rollout()
        _, second, response, late = read(
            rollout.context("turn-1", "gpt-5.5"),
            rollout.call("call_1", "exec_command", cmd="ls"),
            rollout.call("call_2", "view_image", path="/tmp/a.png"),
            rollout.context("turn-1", "gpt-5.5-mini"),
            rollout.output("a", "call_2"),
            rollout.output("b", "call_1"),
        )
        assert (second.tool, second.model, second.originating_model) == ("view_image", "gpt-5.5", "gpt-5.5")
        assert (response.tool, response.originating_model, response.call_id) == ("view_image", "gpt-5.5", "call_2")
        assert (late.tool, late.originating_model, late.model) == ("exec_command", "gpt-5.5", None)

    def test_arguments(self) -> None:
        """Arguments are a mapping where they are one, else what was written."""
        rollout = Rollout()
        written = ['{"cmd":"ls"}', {"cmd": "ls"}, "not json", "[1]", None]
        calls = read(
            *(rollout.item("function_call", name="f", arguments=arguments, call_id="c") for arguments in written)
        )
        assert [call.arguments for call in calls] == [{"cmd": "ls"}, {"cmd": "ls"}, "not json", "[1]", None]
        assert {call.text for call in calls} == {""}

    def test_free_text(self) -> None:
        """Custom tools take text, such as a patch."""
        patch = "*** Begin Patch\n*** End Patch"
        (call,) = read(Rollout().item("custom_tool_call", name="apply_patch", input=patch, call_id="c"))
        assert (call.tool, call.arguments) == ("apply_patch", {"input": patch})

    def test_local_shell(self) -> None:
        """The provider's own shell: what was run, without the environment."""
        action = {"type": "exec", "command": ["ls"], "working_directory": "/x", "env": {"KEY": "v"}, "user": None}
        (call,) = read(Rollout().item("local_shell_call", call_id="c", action=action))
        assert (call.tool, call.arguments) == ("local_shell", {"command": ["ls"], "working_directory": "/x"})

    def test_older_items(self) -> None:
        """Some versions had other names for calls and responses, and no ids."""
        rollout = Rollout()
        call, response = read(
            rollout.item("tool_call", function={"name": "run"}, arguments={"command": "ls"}),
            rollout.item("tool_result", name="run", result={"stdout": "a", "stderr": "", "exitCode": 0}),
        )
        assert (call.tool, call.arguments, call.call_id) == ("run", {"command": "ls"}, None)
        assert (response.tool, response.text, response.exit_code) == ("run", "a", 0)

    @pytest.mark.parametrize(
        ("namespace", "name", "full"),
        [
            (None, "exec_command", "exec_command"),
            ("mcp__deepwiki", "ask_question", "mcp__deepwiki__ask_question"),
            ("mcp__codex_apps__github", "_fetch_pr", "mcp__codex_apps__github_fetch_pr"),
            ("mcp__backstory__", "open", "mcp__backstory__open"),
            ("codex_app", "read_thread", "codex_app.read_thread"),
        ],
    )
    def test_names(self, namespace: str | None, name: str, full: str) -> None:
        """Tools of MCP servers have the name the model knows them by."""
        (call,) = read(Rollout().item("function_call", name=name, namespace=namespace, arguments="{}", call_id="c"))
        assert call.tool == full


class TestOutputs:
    @pytest.mark.parametrize(
        ("output", "text", "exit_code", "failed"),
        [
            ("plain", "plain", None, None),
            ('{"output":"hi\\n","metadata":{"exit_code":3,"duration_seconds":0.1}}', "hi\n", 3, True),
            ('{"metadata":{"exit_code":0},"output":"hi"}', "hi", 0, False),
            ('{"output": {"nested": 1}}', '{"output": {"nested": 1}}', None, None),
            ('{"output": torn', '{"output": torn', None, None),
            ("Exit code: 0\nWall time: 0 seconds\nOutput:\nok", None, 0, False),
            ("Chunk ID: a\nWall time: 1 seconds\nProcess exited with code -9\nOutput:\nx", None, -9, True),
            ("Chunk ID: a\nProcess running with session ID 7\nOutput:\nExit code: 1", None, None, None),
            ("the log says\nExit code: 1", None, None, None),
            ("aborted by user after 2.1s", None, None, True),
            ("apply_patch verification failed: Failed to find expected lines", None, None, True),
            ("write_stdin failed: Unknown process id 7", None, None, True),
            ({"content": "ok", "success": True}, "ok", None, False),
            ({"content": [{"type": "input_text", "text": "ok"}], "success": False}, "ok", None, True),
            ({"stdout": "out", "stderr": "err", "exitCode": 2}, "out\nerr", 2, True),
            ({"type": "input_text", "text": "one"}, "one", None, None),
            ([{"type": "input_text", "text": "a"}, {"type": "input_image"}, "b"], "a\n[image]\nb", None, None),
            ({"rows": 3}, '{"rows":3}', None, None),
            (None, "", None, None),
            (7, "7", None, None),
        ],
    )  # fmt: skip
    def test_forms(self, output: Any, text: str | None, exit_code: int | None, failed: bool | None) -> None:
        """Whatever the shape, the whole output is readable and the exit code is found where it is one."""
        response = respond(output)
        assert response.text == (output if text is None else text)
        assert (response.exit_code, response.failed) == (exit_code, failed)

    def test_long_output(self) -> None:
        """Nothing is cut."""
        output = "Chunk ID: a\nProcess exited with code 0\nOutput:\n" + "x" * 3_000_000
        assert respond(output).text == output

    def test_without_a_call(self) -> None:
        """A response whose call is not there is kept."""
        (response,) = read(Rollout().output("late", "call_9"))
        assert (response.text, response.tool, response.call_id) == ("late", None, "call_9")

    def test_tool_search(self) -> None:
        """Of a search for tools, the tools found; not their schemas."""
        rollout = Rollout()
        group = {"name": "mcp__files", "tools": [{"name": "read", "description": "Reads", "parameters": {"x": 1}}]}
        call, response = read(
            rollout.item("tool_search_call", call_id="c", arguments={"query": "read files"}),
            rollout.item("tool_search_output", call_id="c", tools=[group, {"name": "plain", "description": "P"}, 3]),
        )
        assert (call.tool, call.arguments) == ("tool_search", {"query": "read files"})
        assert (response.tool, response.text) == ("tool_search", "mcp__files__read: Reads\nplain: P")


class TestReports:
    def test_facts_for_the_response(self) -> None:
        """The report of a call adds what its output does not say, and is no event."""
        rollout = Rollout()
        _, response = read(
            rollout.item("custom_tool_call", name="apply_patch", input="p", call_id="c"),
            rollout.event("patch_apply_end", call_id="c", success=False, changes={"/x/a.py": {"type": "update"}}),
            rollout.item("custom_tool_call_output", call_id="c", output="could not write"),
        )
        assert (response.failed, response.extra) == (True, {"files": ["/x/a.py"]})

    def test_exit_code(self) -> None:
        """An exit code may stand in the report alone."""
        rollout = Rollout()
        _, response = read(
            rollout.call(),
            rollout.event("exec_command_end", call_id="call_1", exit_code=4, duration={"secs": 2, "nanos": 5_000_000}),
            rollout.output("no trace of it"),
        )
        assert (response.exit_code, response.failed, response.extra) == (4, True, {"duration_ms": 2005})

    def test_late_report(self) -> None:
        """A report after the response is not another call."""
        rollout = Rollout()
        done = rollout.event("exec_command_end", call_id="call_1", command=["ls"], exit_code=0, aggregated_output="a")
        assert [event.type for event in read(rollout.call(), rollout.output("a"), done)] == [CALL, RESPONSE]

    @pytest.mark.parametrize(
        ("name", "payload", "tool", "arguments", "text", "failed"),
        [
            (
                "exec_command_end",
                {"command": ["ls"], "cwd": "/x", "exit_code": 1, "stdout": "out", "stderr": "err"},
                "exec_command",
                {"command": ["ls"], "cwd": "/x"},
                "out\nerr",
                True,
            ),
            (
                "mcp_tool_call_end",
                {
                    "invocation": {"server": "ctx", "tool": "search", "arguments": {"query": "q"}},
                    "result": {"Ok": {"content": [{"type": "text", "text": "found"}], "isError": False}},
                },
                "mcp__ctx__search",
                {"query": "q"},
                "found",
                False,
            ),
            (
                "mcp_tool_call_end",
                {"invocation": {"server": "ctx", "tool": "search", "arguments": None}, "result": {"Err": "timeout"}},
                "mcp__ctx__search",
                None,
                "timeout",
                True,
            ),
            (
                "mcp_tool_call_end",
                {"invocation": {"server": "c", "tool": "t"}, "result": {"Ok": {"structuredContent": {"n": 1}}}},
                "mcp__c__t",
                None,
                '{"n":1}',
                False,
            ),
            (
                "patch_apply_end",
                {"success": True, "stdout": "ok", "changes": {"a": {}}},
                "apply_patch",
                {"changes": {"a": {}}},
                "ok",
                False,
            ),
            (
                "dynamic_tool_call_response",
                {"tool": "pick", "arguments": {"n": 1}, "content_items": [{"text": "one"}], "success": True},
                "pick",
                {"n": 1},
                "one",
                False,
            ),
            ("view_image_tool_call", {"path": "/a.png"}, "view_image", {"path": "/a.png"}, "[image]", None),
            (
                "collab_waiting_end",
                {"statuses": {"a": "done"}},
                "wait_agent",
                {},
                '{"a":"done"}',
                None,
            ),
        ],
    )
    def test_of_a_call_that_no_other_record_reports(
        self, name: str, payload: Any, tool: str, arguments: Any, text: str, failed: bool | None
    ) -> None:
        """It is then the call and the response."""
        rollout = Rollout()
        report = rollout.event(name, call_id="c", **payload)
        call, response = read(report)
        assert (call.type, call.tool, call.arguments) == (CALL, tool, arguments)
        assert (response.type, response.tool, response.text, response.failed) == (RESPONSE, tool, text, failed)
        assert len(read(report, report)) == 2

    def test_turn_items(self) -> None:
        """The third form of a report is not a third call."""
        rollout = Rollout()
        records = [
            rollout.turn_item("CommandExecution", id="c", command=["ls"], exit_code=0, aggregated_output="a"),
            rollout.event("exec_command_end", call_id="c", command=["ls"], exit_code=0, aggregated_output="a"),
        ]
        assert [event.type for event in read(*records)] == [CALL, RESPONSE]
        assert [event.type for event in read(rollout.call("c"), *records, rollout.output("a", "c"))] == [CALL, RESPONSE]

    def test_users_own_command(self) -> None:
        """A command of the user is not the agent's: a message mentions it."""
        assert read(Rollout().event("exec_command_end", call_id="c", command=["ls"], source="user_shell")) == []


class TestWebSearch:
    ACTION = {"type": "search", "query": "tantivy bm25", "queries": ["tantivy bm25", "tantivy score"]}  # noqa: RUF012

    def test_mirrored(self) -> None:
        """Both forms are one call; no id joins them, but the question does."""
        rollout = Rollout()
        item = rollout.item("web_search_call", status="completed", action=self.ACTION)
        event = rollout.event("web_search_end", call_id="ws_1", query="tantivy bm25", action=self.ACTION)
        for records in ([item, event], [event, item]):
            call, response = read(*records)
            assert (call.tool, call.arguments) == ("web_search", self.ACTION)
            assert (response.type, response.call_id) == (RESPONSE, call.call_id)
        assert [event.type for event in read(event, item, event, item)] == [CALL, RESPONSE] * 2

    def test_without_results(self) -> None:
        """A search that has ended has a response, although its results are not written; a running one has none."""
        rollout = Rollout()
        for status, failed in (("completed", None), ("failed", True)):
            _, response = read(rollout.item("web_search_call", status=status, action=self.ACTION))
            assert (response.tool, response.text, response.failed) == ("web_search", "", failed)
        (call,) = read(rollout.item("web_search_call", status="in_progress", action=self.ACTION))
        assert call.type is CALL

    def test_results(self) -> None:
        """Results, where they are written, are the response."""
        rollout = Rollout()
        result = {"title": "BM25", "url": "https://example.invalid", "snippet": "A ranking."}
        _, response = read(
            rollout.turn_item(
                "Extension", id="x", query="q", action={"type": "search", "queries": ["q"]}, results=[result]
            )
        )
        assert (response.tool, response.text) == ("web_search", "BM25\nhttps://example.invalid\nA ranking.")


class TestImages:
    def test_generated(self) -> None:
        """The prompt and where the image went; never the image."""
        rollout = Rollout()
        item = rollout.item("image_generation_call", id="ig", status="completed", revised_prompt="a cat", result="QUJD")
        event = rollout.event(
            "image_generation_end", call_id="ig", status="completed", revised_prompt="a cat", result="QUJD",
            saved_path="/tmp/cat.png",
        )  # fmt: skip
        call, response = read(event, item)
        assert (call.tool, call.arguments) == ("image_generation", {"prompt": "a cat"})
        assert response.text == "/tmp/cat.png"
        assert len(read(item, event)) == 2
        assert b"QUJD" not in msgspec.json.encode(read(item, event))


class TestSpawnedAgents:
    def test_output_names_the_child(self) -> None:
        """The response of spawn_agent links the child's session."""
        rollout = Rollout()
        _, response = read(
            rollout.call("c", "spawn_agent", message="review"), rollout.output('{"agent_id":"child-1"}', "c")
        )
        assert response.extra == {"child_session": "child-1"}

    @pytest.mark.parametrize(
        ("name", "payload"),
        [
            ("collab_agent_spawn_end", {"call_id": "c", "new_thread_id": "child-1", "status": "running"}),
            ("sub_agent_activity", {"event_id": "c", "agent_thread_id": "child-1", "kind": "started"}),
        ],
    )
    def test_report_names_the_child(self, name: str, payload: Any) -> None:
        """So does a report that comes before it."""
        rollout = Rollout()
        _, response = read(
            rollout.call("c", "spawn_agent", message="review"),
            rollout.event(name, **payload),
            rollout.output("running", "c"),
        )
        assert response.extra == {"child_session": "child-1"}

    def test_activity_of_its_own(self) -> None:
        """An activity that belongs to no open call is a note of the runtime."""
        (note,) = read(
            Rollout().event("sub_agent_activity", event_id="x", agent_thread_id="child-1", kind="interrupted")
        )
        assert (note.type, note.text, note.extra) == (
            EventType.RUNTIME,
            "Agent child-1 interrupted",
            {"child_session": "child-1"},
        )

"""Tool responses: named by their tool, complete, and with how the tool ended."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from claude_code_transcript import (
    SESSION,
    Records,
    call,
    events,
    feed,
    feed_with_restarts,
    titles,
    transcript,
    write,
)

from backstory.library import Library
from backstory.model import EventType
from backstory.sources.base import Event
from backstory.sources.claude_code.source import ClaudeCode


def respond(
    content: Any, path: Path | None = None, *, tool: str = "Bash", error: bool | None = None, **fields: Any
) -> Event:
    """The response to a call of a tool."""
    r = Records()
    records = [r.assistant(call(tool)), r.result("toolu_1", content, error=error, **fields)]
    return events(feed(records, transcript(path) if path else None), EventType.TOOL_RESPONSE)[0]


class TestResponses:
    def test_named_by_the_call(self) -> None:
        """A response carries the tool and the model of its call, also when it comes in a later read."""
        r = Records()
        records = [r.assistant(call("Read")), r.result("toolu_1", "text")]
        for items in (feed(records), feed_with_restarts(records)):
            yielded = events(items)[-1]
            assert (yielded.tool, yielded.call_id, yielded.originating_model) == ("Read", "toolu_1", "claude-opus-4-8")
            assert (yielded.model, yielded.failed) == (None, False)

    def test_response_without_its_call(self) -> None:
        """A response whose call is not in the transcript has no tool; its id is not made its name."""
        (yielded,) = events(feed([Records().result("toolu_9", "text")]))
        assert (yielded.tool, yielded.call_id, yielded.text) == (None, "toolu_9", "text")

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            ("plain", "plain"),
            ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
            ([{"type": "image", "source": {}}], "[image]"),
            ([{"type": "tool_reference", "tool_name": "Grep"}], "[tool Grep]"),
            (["a", None, {"type": "text", "text": "b"}], "a\nb"),
            (None, ""),
            ({"type": "text", "text": "a"}, "a"),
        ],
    )
    def test_readable_content(self, content: Any, text: str) -> None:
        """The text is yielded for each shape of the content."""
        assert respond(content).text == text

    def test_empty_content(self) -> None:
        """Where the content is empty the output beside it is yielded."""
        result = {"stdout": "out", "stderr": "err", "interrupted": False}
        assert respond("", toolUseResult=result).text == "out\nerr"
        assert respond("", toolUseResult="Error: no such file").text == "Error: no such file"

    @pytest.mark.parametrize(
        ("content", "error", "result", "code"),
        [
            ("Exit code 127\nnot found", True, "Error: Exit code 127\nnot found", 127),
            ("Exit code 1", True, None, 1),
            ("Exit code 1 is what it printed", False, {"stdout": "..."}, None),
            ("done", False, {"stdout": "done", "exitCode": 0}, 0),
            ("done", False, {"task": {"task_id": "b1", "exitCode": 2}}, 2),
            ("# Page", False, {"bytes": 9, "code": 200, "codeText": "OK"}, None),
            ("boom", True, None, None),
        ],
    )
    def test_exit_codes(self, content: str, error: bool, result: Any, code: int | None) -> None:
        """The exit code is yielded where it was recorded, and not guessed; an HTTP status is none."""
        yielded = respond(content, error=error, toolUseResult=result)
        assert (yielded.exit_code, yielded.failed) == (code, error)

    def test_facts(self) -> None:
        """The duration and the interrupt are kept."""
        assert respond("x", toolUseResult={"durationMs": 12, "interrupted": True}).extra == {
            "duration_ms": 12,
            "interrupted": True,
        }

    def test_calls_that_are_never_answered(self) -> None:
        """Open calls are forgotten, oldest first, before they fill the state."""
        r = Records()
        records = [r.assistant(call("Read", id=f"toolu_{n}")) for n in range(400)]
        yielded = events(
            feed([*records, r.result("toolu_0", "a"), r.result("toolu_399", "b")]), EventType.TOOL_RESPONSE
        )
        assert [event.tool for event in yielded] == [None, "Read"]


class TestSpilledOutput:
    NOTICE = (
        "<persisted-output>\nOutput too large (40KB). Full output saved to: {}\n\nPreview:\nfirst\n</persisted-output>"
    )

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        (tmp_path / "projects" / "-x" / SESSION / "tool-results").mkdir(parents=True)
        return tmp_path / "projects" / "-x" / f"{SESSION}.jsonl"

    def spill(self, path: Path, name: str, text: str) -> None:
        (path.with_suffix("") / "tool-results" / name).write_text(text)

    def test_whole_output(self, path: Path) -> None:
        """Output that was put into a file is yielded whole, though the recorded folder is another machine's."""
        self.spill(path, "b1.txt", "first\nlast")
        assert respond(self.NOTICE.format("/home/ada/elsewhere/tool-results/b1.txt"), path).text == "first\nlast"
        assert respond(self.NOTICE.format(r"C:\Users\ada\tool-results\b1.txt"), path).text == "first\nlast"
        assert respond("preview", path, toolUseResult={"persistedOutputPath": "/a/b1.txt"}).text == "first\nlast"

    def test_of_subagents(self, path: Path) -> None:
        """Subagents spill into the folder of their session."""
        self.spill(path, "b1.txt", "all of it")
        agent = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
        assert respond(self.NOTICE.format("/x/b1.txt"), agent).text == "all of it"

    def test_answers_of_mcp_tools(self, path: Path) -> None:
        """Spilled content blocks are yielded as their text."""
        self.spill(path, "b1.json", '[{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]')
        assert respond(self.NOTICE.format("/x/b1.json"), path).text == "one\ntwo"

    def test_file_is_gone(self, path: Path) -> None:
        """Without the file the fuller of what the record has is yielded."""
        notice = self.NOTICE.format("/x/b1.txt")
        assert respond(notice, path).text == notice
        assert respond(notice, path, toolUseResult={"stdout": "x" * 5000}).text == "x" * 5000

    @pytest.mark.parametrize(
        "name", ["..", ".", "../../secret.txt", "/etc/hostname", "link.txt", "pipe", "nul\0", "x" * 3000]
    )
    def test_nothing_outside_the_session(self, path: Path, name: str) -> None:
        """A record cannot make anything be read but plain files of its own session."""
        (path.parent / "secret.txt").write_text("secret")
        results = path.with_suffix("") / "tool-results"
        (results / "link.txt").symlink_to(path.parent / "secret.txt")
        os.mkfifo(results / "pipe")
        assert respond("seen", path, toolUseResult={"persistedOutputPath": name}).text == "seen"

    def test_size_is_bounded(self, path: Path) -> None:
        """No more than 8 MiB of a file are read, and the text says so."""
        self.spill(path, "big.txt", "x" * (9 << 20))
        text = respond("seen", path, toolUseResult={"persistedOutputPath": "big.txt"}).text
        assert text.endswith("x\n[cut here: the output is longer than 8 MiB]")
        assert len(text) < (8 << 20) + 100


class TestResponsesBeforeTheirCall:
    """Claude Code sometimes writes a result before the rest of the message that asked for it."""

    def records(self) -> list[Any]:
        r = Records()
        message = {"message": {"id": "msg_1"}, "requestId": "req_1"}
        return [
            r.user("go"),
            r.assistant({"type": "thinking", "thinking": "Hm."}, **message),
            r.result("toolu_1", "3 files", toolUseResult={"stdout": "3 files", "exitCode": 0}),
            r.assistant("I look.", **message),
            r.assistant(call("Bash", command="ls"), **message),
            r.result("toolu_1", "again"),
        ]

    def test_told_again_with_its_call(self) -> None:
        """The response has the name and the model of its call, in its own place, however the file is read."""
        items = feed(self.records())
        response = events(items, EventType.TOOL_RESPONSE)[0]
        assert (response.tool, response.originating_model) == ("Bash", "claude-opus-4-8")
        assert (response.text, response.exit_code, response.call_id) == ("3 files", 0, "toolu_1")
        assert [event.type for event in events(items)][:5] == [
            EventType.USER_INPUT,
            EventType.REASONING,
            EventType.TOOL_RESPONSE,
            EventType.ASSISTANT_RESPONSE,
            EventType.TOOL_CALL,
        ]
        assert items == feed_with_restarts(self.records())

    def test_in_the_archive(self, tmp_path: Path) -> None:
        """It is kept once, as it was yielded last, whether the file is read at once or as it grows."""
        rows = []
        for steps in ([6], [3, 6], [1, 2, 3, 4, 5, 6]):
            home = tmp_path / str(len(steps))
            path = home / ".claude" / "projects" / "-home-ada-shop" / f"{SESSION}.jsonl"
            with Library(home / "backstory", agents_home=home, environ={}) as library:
                for step in steps:
                    write(path, self.records()[:step])
                    library.sync()
                rows.append(library.archive.events(f"claude-code/{SESSION}", 1))
                turns = library.archive.turns(f"claude-code/{SESSION}")
            assert [turn.tools for turn in turns] == [("Bash",)]
        assert rows[0] == rows[1] == rows[2]
        assert [row.tool for row in rows[0]] == [None, None, "Bash", None, "Bash", "Bash"]

    def test_of_a_subagent(self) -> None:
        """A subagent's response before its call still gives it its title."""
        r = Records()
        result = r.result("toolu_1", "done", toolUseResult={"agentId": "a1"})
        items = feed([result, r.assistant(call("Task", description="Count views", prompt="count"))])
        assert titles(items, f"{SESSION}/agent-a1") == [("Count views", 2)]

    def test_bounded(self) -> None:
        """Responses whose call never comes, and very long ones, are not kept for ever."""
        r = Records()
        parser = ClaudeCode().parser(transcript(), None, lambda session: frozenset())
        for number in range(100):
            list(parser.parse(r.result(f"toolu_{number}", "x" * 300_000 if number % 2 else "y")))
        assert len(json.dumps(parser.state())) < 20_000
        list(parser.parse(r.user("go")))
        assert "early" not in parser.state()["main"]

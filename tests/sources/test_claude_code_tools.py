"""Tool responses: named by their tool, complete, and with how the tool ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from claude_code_transcript import SESSION, Records, call, events, feed, feed_with_restarts, transcript

from backstory.model import EventType
from backstory.sources.base import Event


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
            told = events(items)[-1]
            assert (told.tool, told.call_id, told.originating_model) == ("Read", "toolu_1", "claude-opus-4-8")
            assert (told.model, told.failed) == (None, False)

    def test_response_without_its_call(self) -> None:
        """A response whose call is not in the transcript has no tool; its id is not made its name."""
        (told,) = events(feed([Records().result("toolu_9", "text")]))
        assert (told.tool, told.call_id, told.text) == (None, "toolu_9", "text")

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
        """Whatever shape the content has, its text is told."""
        assert respond(content).text == text

    def test_empty_content(self) -> None:
        """Where the content is empty the output beside it is told."""
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
        """The exit code is told where it was recorded, and not guessed; an HTTP status is none."""
        told = respond(content, error=error, toolUseResult=result)
        assert (told.exit_code, told.failed) == (code, error)

    def test_facts(self) -> None:
        """How long it took and that it was interrupted are kept."""
        assert respond("x", toolUseResult={"durationMs": 12, "interrupted": True}).extra == {
            "duration_ms": 12,
            "interrupted": True,
        }

    def test_calls_that_are_never_answered(self) -> None:
        """Open calls are forgotten, oldest first, before they fill the state."""
        r = Records()
        records = [r.assistant(call("Read", id=f"toolu_{n}")) for n in range(400)]
        told = events(feed([*records, r.result("toolu_0", "a"), r.result("toolu_399", "b")]), EventType.TOOL_RESPONSE)
        assert [event.tool for event in told] == [None, "Read"]


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
        """Output that was put into a file is told whole, though the recorded folder is another machine's."""
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
        """Spilled content blocks are told as their text."""
        self.spill(path, "b1.json", '[{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]')
        assert respond(self.NOTICE.format("/x/b1.json"), path).text == "one\ntwo"

    def test_file_is_gone(self, path: Path) -> None:
        """Without the file the fuller of what the record has is told."""
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

"""Tool calls as text."""

from __future__ import annotations

from typing import Any

import pytest

from backstory.archive.query import tokens
from backstory.toolcalls import render_call


class TestRenderCall:
    @pytest.mark.parametrize(
        ("tool", "arguments", "text"),
        [
            ("exec_command", {"cmd": "cargo test", "workdir": "/x"}, 'exec_command(cmd="cargo test", workdir="/x")'),
            ("Read", {"offset": 3, "all": True, "to": None, "x": 1.5}, "Read(offset=3, all=true, to=null, x=1.5)"),
            ("Edit", {"edits": [{"old": "a", "new": ["b"]}]}, 'Edit(edits=[{old: "a", new: ["b"]}])'),
            ("apply_patch", "*** Begin", 'apply_patch("*** Begin")'),
            ("list", [1, "two"], 'list([1, "two"])'),
            ("now", {}, "now()"),
            ("now", None, "now()"),
            (None, {"a": 1}, "tool(a=1)"),
            ("say", {"text": 'a "b" \\c'}, 'say(text="a \\"b\\" \\\\c")'),
        ],
    )
    def test_reads_like_a_call(self, tool: str | None, arguments: Any, text: str) -> None:
        """Whatever the agent wrote as arguments."""
        assert render_call(tool, arguments) == text

    def test_line_breaks_stay(self) -> None:
        """Escaped, their letter would become part of the next word."""
        text = render_call("Write", {"content": "first\nsecond\tthird"})
        assert tokens(text) == ["write", "content", "first", "second", "third"]

    def test_long_arguments_stay(self) -> None:
        """In full: they are what is searched."""
        assert len(render_call("Write", {"content": "x" * 1_000_000})) > 1_000_000

    @pytest.mark.parametrize("depth", [10, 500, 100_000])
    def test_any_depth(self, depth: int) -> None:
        """Never a crash."""
        value: Any = "core"
        for _ in range(depth):
            value = [value]
        assert render_call("deep", value).startswith("deep(")

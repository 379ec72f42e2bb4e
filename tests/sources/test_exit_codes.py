"""Exit codes that an agent writes only in the text of a result."""

from __future__ import annotations

import pytest

from backstory.sources.content import command_exit_code


class TestCommandExitCode:
    @pytest.mark.parametrize(
        "text",
        [
            "Command exited with code 3",
            "[Command exited with code 3]\n\n[stderr]\nfailed",
            "Error (exit code 3): failed",
            "Command executed. Exit code: 3\nfailed",
            "<return-code>\n3\n</return-code>\n<output>\nfailed",
            "failed\n" * 500 + "exit_code=3",
        ],
    )
    def test_of_a_command(self, text: str) -> None:
        """It stands at the beginning or at the end."""
        assert command_exit_code(text, "execute_command") == 3

    @pytest.mark.parametrize("tool", ["read_file", "web_search", "editor", None])
    def test_of_other_tools(self, tool: str | None) -> None:
        """A file that speaks of exit codes has none."""
        assert command_exit_code("Exit code: 3 means that the test failed", tool) is None

    @pytest.mark.parametrize("text", ["", "all is well", "the exit was coded in 3 days", "exit code unknown"])
    def test_without_one(self, text: str) -> None:
        assert command_exit_code(text, "bash") is None

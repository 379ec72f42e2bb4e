"""The test of a server: really started, and a tool really called."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from backstory.setup.server import own_command, probe


class TestProbe:
    def test_this_installation(self, tmp_path: Path) -> None:
        """Its server starts and answers a search."""
        found = probe((*own_command(), "mcp"), {"HOME": str(tmp_path), "BACKSTORY_HOME": str(tmp_path / "home")})

        assert found.works, found.problem
        assert found.tools >= 10

    @pytest.mark.parametrize(
        ("command", "problem"),
        [
            (("/nowhere/backstory",), "cannot be started"),
            ((sys.executable, "-c", "import sys; sys.exit('no such module')"), "no such module"),
            ((sys.executable, "-c", "print('Welcome!')"), "does not answer"),
        ],
    )
    def test_a_server_that_does_not_work(self, command: tuple[str, ...], problem: str) -> None:
        """The reason is what it says last."""
        found = probe(command)

        assert not found.works
        assert problem in str(found.problem)


class TestOwnCommand:
    def test_is_absolute(self) -> None:
        """Agents have a search path of their own."""
        assert Path(own_command()[0]).is_absolute()

    @pytest.mark.parametrize(
        ("prefix", "program", "arguments"),
        [
            ("/home/dev/.cache/uv/archive-v0/x1y2", "uvx", ("backstory",)),
            ("/home/dev/.cache/pipx/ab12", "pipx", ("run", "backstory")),
            ("/Users/dev/Library/Caches/pipx/ab12", "pipx", ("run", "backstory")),
        ],
    )
    def test_environments_that_do_not_last(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, program: str, arguments: tuple[str, ...]
    ) -> None:
        """The program that makes them is named."""
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(sys, "prefix", prefix)

        assert own_command() == (str(tmp_path / program), *arguments)

    def test_a_virtual_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The script beside the interpreter, or the module where there is none."""
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        assert own_command() == (str(tmp_path / "python"), "-m", "backstory")

        (tmp_path / "backstory").touch()
        assert own_command() == (str(tmp_path / "backstory"),)

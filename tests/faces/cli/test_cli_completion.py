"""Shell completion for bash, zsh and fish."""

from __future__ import annotations

import subprocess
import sys

import pytest

from backstory.faces.cli.app import COMMANDS


def complete(shell: str, **variables: str) -> str:
    environ = {"_BACKSTORY_COMPLETE": shell, "PATH": "/usr/bin:/bin", **variables}
    done = subprocess.run([sys.executable, "-m", "backstory"], env=environ, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


class TestCompletion:
    @pytest.mark.parametrize("shell", ["zsh", "fish"])
    def test_scripts(self, shell: str) -> None:
        """They register the program with the shell."""
        assert "backstory" in complete(f"{shell}_source")

    def test_commands(self) -> None:
        """All that begin so."""
        found = complete("bash_complete", COMP_WORDS="backstory se", COMP_CWORD="1").split()

        assert found == [f"plain,{name}" for name in COMMANDS if name.startswith("se")]

    def test_commands_of_a_group_and_options(self) -> None:
        """One level deeper."""
        assert "plain,install" in complete("bash_complete", COMP_WORDS="backstory service ", COMP_CWORD="2")
        assert "plain,--since" in complete("bash_complete", COMP_WORDS="backstory search --s", COMP_CWORD="2")

"""The program as a whole: its help, its commands, and what becomes of errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from backstory import __version__
from backstory.archive.base import ArchiveBusy
from backstory.faces.cli.app import COMMANDS, program

from .conftest import Program, World

try:
    import pwd
except ImportError:  # Windows
    pwd = None  # type: ignore[assignment]

DETAILS = "with the details that BACKSTORY_DEBUG=1 shows"


def _inner(command: click.Command) -> Iterator[click.Command]:
    """The commands of a group and of its groups."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _inner(each)
    else:
        yield command


class TestHelp:
    def test_lists_every_command(self, backstory: Program) -> None:
        """With the same words the command itself begins its help with."""
        out = " ".join(backstory("--help").out.split())

        for name, (_, text) in COMMANDS.items():
            assert f" {name} {text}" in out

    def test_every_command_has_help_and_json(self, backstory: Program) -> None:
        """`--json` is on every command."""
        for name in COMMANDS:
            command = program.get_command(click.Context(program), name)
            assert command is not None

            assert backstory(name, "--help").code == 0
            for each in _inner(command):
                assert any("--json" in parameter.opts for parameter in each.params), each.name

    def test_bare_in_a_pipe(self, backstory: Program) -> None:
        """Help, not the status."""
        assert backstory() == backstory("--help")

    def test_help_as_a_command(self, backstory: Program) -> None:
        """The same as --help, for commands of a group too."""
        assert backstory("help") == backstory("--help")
        assert backstory("help", "search") == backstory("search", "--help")
        assert backstory("help", "traces", "show") == backstory("traces", "show", "--help")
        assert backstory("help", "nonsense").code == 2

    def test_version(self, backstory: Program) -> None:
        """Name and version."""
        assert backstory("--version") == (0, f"backstory {__version__}\n", "")


class TestHome:
    @pytest.mark.skipif(sys.platform == "win32", reason="Windows knows the home by other variables")
    def test_an_empty_variable(self) -> None:
        """It counts as none: the home is that of the account, not the root of the file system."""
        script = "from backstory.__main__ import main; main()"
        after = f"import atexit; atexit.register(lambda: print(__import__('pathlib').Path.home())); {script}"
        command = [sys.executable, "-c", after, "--version"]
        done = subprocess.run(command, env={**os.environ, "HOME": ""}, capture_output=True, text=True, check=True)
        assert done.stdout.split()[-1] == pwd.getpwuid(os.getuid()).pw_dir


class TestErrors:
    def test_unknown_command(self, backstory: Program) -> None:
        """Wrong usage, with what to do instead."""
        for name, hint in [
            ("serch", "did you mean search?"),
            ("kubernetes", "to look for it: backstory search kubernetes"),
        ]:
            assert backstory(name) == (2, "", f"error: no command {name!r}; {hint} (see backstory --help)\n"), name

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--json", "serch"),
            ("search", "--json"),
            ("search", "x", "--json", "-n", "many"),
            ("sessions", "--until", "garbage", "--json"),
            ("call", "--json", "search_sessions", "{half"),
            ("traces", "list", "--json", "--nonsense"),
        ],
    )
    def test_wrong_usage_with_json(self, backstory: Program, arguments: tuple[str, ...]) -> None:
        """The error is one JSON document on stderr, of the shape of other failures; stdout is for results."""
        result = backstory(*arguments)

        assert (result.code, result.out) == (2, "")
        plain = backstory(*(argument for argument in arguments if argument != "--json"))
        assert plain.err == f"error: {json.loads(result.err)['error']['message']}\n"

    def test_json_as_a_word(self, backstory: Program) -> None:
        """Behind `--` it is no option."""
        assert backstory("search", "-n", "many", "--", "--json").err.startswith("error: ")

    @pytest.mark.parametrize("group", ["traces", "capsule", "service"])
    def test_a_group_without_a_command(self, backstory: Program, group: str) -> None:
        """Wrong usage, with the help of the group and nothing else."""
        result = backstory(group)

        assert (result.code, result.out) == (2, "")
        assert result.err == backstory(group, "--help").out

    def test_broken_settings(
        self, world: World, backstory: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One line that names the setting; the same in JSON for scripts."""
        monkeypatch.setenv("BACKSTORY_HOME", str(tmp_path))
        (tmp_path / "config.toml").write_text("colour = 1\n")

        result = backstory("search", "x", "--json")

        assert result.code == 1
        assert "unknown field `colour`" in result.err
        assert result.err.count("\n") == 1
        assert result.json["error"]["message"] in result.err

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (ArchiveBusy("another process writes"), "another process writes"),
            (PermissionError(13, "Permission denied", "/x/archive.db"), "Permission denied: /x/archive.db"),
            (
                ZeroDivisionError("two\nlines"),
                f"unexpected ZeroDivisionError: two lines; please report this {DETAILS}",
            ),
        ],
    )
    def test_no_traceback(
        self, world: World, backstory: Program, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
    ) -> None:
        """Every exception becomes one line and exit code 1."""

        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("backstory.library.Library.search", fail)

        assert backstory("search", "x") == (1, "", f"error: {message}\n")
        assert json.loads(backstory("search", "x", "--json").out) == {
            "error": {"message": message.replace("two lines", "two\nlines")}
        }

    def test_debugging_shows_it(self, world: World, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """With BACKSTORY_DEBUG the error itself comes through."""
        monkeypatch.setenv("BACKSTORY_DEBUG", "1")
        monkeypatch.setattr("backstory.library.Library.search", lambda *_, **__: 1 / 0)

        with pytest.raises(ZeroDivisionError):
            backstory("search", "x")

    def test_interrupted(self, world: World, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C is 130, as shells expect, and no noise."""

        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("backstory.library.Library.search", interrupt)

        assert backstory("search", "x") == (130, "", "\n")


class TestStatus:
    def test_json(self, world: World, backstory: Program) -> None:
        """The contents of the archive, and a search that finds something."""
        status = backstory("--json").json

        assert status["agents"] == ["claude-code"]
        assert (status["sessions"], status["warnings"]) == (3, [])
        assert status["sessions_by_agent"] == {"claude-code": 3}
        assert status["last_sync"].endswith("Z")
        assert "login" in backstory("search", *status["sample_query"].split()).out

    def test_a_fresh_machine(self, backstory: Program) -> None:
        """Nothing there is a status too."""
        status = backstory("--json").json

        assert (status["agents"], status["sessions"], status["last_sync"], status["sample_query"]) == (
            [],
            0,
            None,
            None,
        )

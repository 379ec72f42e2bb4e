"""`backstory capsule ...`: flags, text, output and exit codes."""

from __future__ import annotations

import json
import os
import pty
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from backstory.faces.cli.app import run
from backstory.faces.cli.capsule import capsule
from backstory.library import Library
from tests.capsule_world import GOOD, HEADER, capsule_text, record
from tests.transcripts import Transcript

Search = Callable[..., str]


class Cli:
    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *arguments: str, text: str = "") -> Result:
        result = CliRunner().invoke(capsule, arguments, input=text)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def json(self, *arguments: str, text: str = "") -> dict[str, Any]:
        """The one document that a command prints with --json."""
        answer: dict[str, Any] = json.loads(self(*arguments, "--json", text=text).stdout)
        return answer


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("BACKSTORY_HOME", str(tmp_path))
    return Cli(tmp_path)


class TestMirrorsTheTools:
    def test_every_tool_is_a_command(self, tmp_path: Path) -> None:
        verbs = {
            tool.name.removeprefix("moss.").replace("_", "-") for tool in Library(tmp_path).toolset("capsules").tools
        }

        assert set(capsule.commands) == verbs

    def test_every_argument_is_a_flag(self, tmp_path: Path) -> None:
        """Under its own name; texts, queries and lists of references are given in other ways."""
        elsewhere = {"capsule_text", "content", "items", "query"}
        for tool in Library(tmp_path).toolset("capsules").tools:
            command = capsule.commands[tool.name.removeprefix("moss.").replace("_", "-")]
            flags = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
            expected = {
                f"--{name.replace('_', '-')}" for name in tool.input_schema["properties"] if name not in elsewhere
            }
            assert expected <= flags, tool.name


class TestText:
    def test_from_stdin(self, cli: Cli) -> None:
        """The text is stored to the last byte, line ends included."""
        text = GOOD.replace("\n", "\r\n") + "ü"
        stored = cli.json("store", "--name", "a", text=text)

        assert stored["created"] is True
        assert cli.json("fetch", "a", "--raw")["capsule_text"] == text

    def test_from_a_file(self, cli: Cli, tmp_path: Path) -> None:
        """Without a byte order mark; a file that cannot be read is an error."""
        file = tmp_path / "a.md"
        file.write_text("\ufeff" + GOOD, "utf-8")
        cli.json("store", "--name", "a", "--file", str(file))

        assert cli.json("fetch", "a")["capsule_text"] == GOOD
        missing = cli("store", "--file", str(tmp_path / "missing.md"))
        assert missing.exit_code == 2
        assert "missing.md" in missing.stderr
        file.write_bytes(b"\xff")
        assert "not UTF-8" in cli("store", "--file", str(file)).stderr

    def test_none_at_all(self, cli: Cli) -> None:
        result = cli("store", "--name", "a")

        assert result.exit_code == 2
        assert result.stderr.startswith("error: [INVALID_REQUEST] capsule_text")

    def test_update_of_labels_takes_no_text(self, cli: Cli) -> None:
        cli("store", "--name", "a", text=GOOD)
        cli("update", "a", "--title", "New", "--tags", "x, y", "--tags", "z")

        item = cli.json("fetch", "a")
        assert (item["title"], item["tags"], item["capsule_text"]) == ("New", ["x", "y", "z"], GOOD)

    def test_update_of_both(self, cli: Cli) -> None:
        cli("store", "--name", "a", text=GOOD)
        cli("update", "--name", "a", "--title", "New", text=capsule_text("other"))

        item = cli.json("fetch", "a")
        assert (item["title"], item["capsule_text"]) == ("New", capsule_text("other"))

    def test_append(self, cli: Cli) -> None:
        cli("store", "--name", "a", text=GOOD)
        cli("append", "a", "--section", "risks", "--content", "- one")
        cli("append", "a", "--section", "risks", text="- two\n")

        assert cli.json("fetch", "a")["capsule_text"].endswith("## Open questions\n- work\n- one\n- two\n")

    def run_in_terminal(self, home: Path, editor: str, *arguments: str) -> None:
        """With a terminal on stdin and this shell command as the editor."""
        script = home / "editor"
        script.write_text(f'#!/bin/sh\n{editor} "$1"\n')
        script.chmod(0o700)
        main, secondary = pty.openpty()
        environment = os.environ | {"EDITOR": str(script), "BACKSTORY_HOME": str(home)}
        code = "from backstory.faces.cli.capsule import capsule; capsule()"
        try:
            command = [sys.executable, "-c", code, *arguments]
            subprocess.run(command, stdin=secondary, env=environment, check=True, capture_output=True)
        finally:
            os.close(main)
            os.close(secondary)

    def test_from_the_editor(self, cli: Cli, tmp_path: Path) -> None:
        """The editor opens on a template with the six sections, or on the stored text."""
        self.run_in_terminal(tmp_path, "sed -i 's/<!-- what the work is for -->/To see/'", "store", "--name", "a")
        assert cli.json("fetch", "a")["capsule_text"].startswith("## Objective\nTo see\n")
        self.run_in_terminal(tmp_path, "sed -i 's/To see/To know/'", "update", "a")
        assert cli.json("fetch", "a")["capsule_text"].startswith("## Objective\nTo know\n")


class TestAddress:
    def test_flags_before_or_after(self, cli: Cli) -> None:
        """A reference is an id or a name, before or after the flags."""
        capsule_id = cli.json("store", "--name", "a", "--workspace", "W", text=GOOD)["id"]
        for arguments in (
            ("fetch", capsule_id),
            ("fetch", "--no-include-text", capsule_id),
            ("fetch", capsule_id, "--no-include-text"),
            ("fetch", "--id", capsule_id),
            ("fetch", "a", "--workspace", "w"),
            ("fetch", "--workspace", "w", "A"),
            ("fetch", "-w", "w", "--name", "a"),
        ):
            assert cli.json(*arguments)["id"] == capsule_id

    def test_two_are_ambiguous(self, cli: Cli) -> None:
        result = cli("fetch", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "--name", "a")

        assert result.exit_code == 2
        assert "[AMBIGUOUS_ADDRESSING]" in result.stderr
        assert cli("fetch", "b", "--name", "a").exit_code == 2

    def test_several(self, cli: Cli) -> None:
        """In their order; a missing one is an error on stderr and in the exit code."""
        ids = [cli.json("store", "--name", name, text=capsule_text(name))["id"] for name in "abc"]

        items = cli.json("fetch-many", ids[2], "a", "--name", "b")["items"]
        assert [item["name"] for item in items] == ["c", "a", "b"]
        result = cli("fetch-many", ids[0], "missing", "b")
        assert result.exit_code == 1
        assert result.stdout == f"{capsule_text('a')}\n---\n\n{capsule_text('b')}"
        hint = "(workspaces that hold capsules: default)"
        assert result.stderr == f"error: [NOT_FOUND] capsule not found: default/missing {hint}\n"


class TestOutput:
    def test_fetch_prints_the_text_alone(self, cli: Cli) -> None:
        cli("store", "--name", "a", text=GOOD)

        assert cli("fetch", "a").stdout == GOOD
        assert cli("latest", "--include-text").stdout == GOOD
        assert cli("history", "a", "--version", "1").stdout == GOOD

    def test_lists_are_lines_in_a_pipe(self, cli: Cli) -> None:
        """Each line has every value whole."""
        cli("store", "--name", "a", "--tags", "x,y", "--title", "A  rather\tlong title " + "x" * 200, text=GOOD)
        for command in (("list",), ("inventory",), ("inventory", "--tag", "x"), ("inventory", "--name-prefix", "A")):
            header, line = cli(*command).stdout.splitlines()
            assert header.split("\t")[0] == "name"
            assert line.split("\t")[:3] == ["a", "default", "A rather long title " + "x" * 200]
            assert "x, y" in line.split("\t")

    def test_nothing_hostile_reaches_the_terminal(self, cli: Cli) -> None:
        """Escape sequences in names and tags do not reach lists."""
        cli("store", "--name", "\x1b[31mred", "--tags", "\x1b]0;title\x07", text=GOOD)

        for command in ("inventory", "list", "search red"):
            assert "\x1b" not in cli(*command.split()).stdout

    def test_what_was_done(self, cli: Cli) -> None:
        capsule_id = cli.json("store", "--name", "a", text=GOOD)["id"]

        assert (
            cli("store", "--name", "a", "--mode", "replace", text=GOOD).stdout
            == f'replaced "a" in default ({capsule_id})\n'
        )
        assert cli("delete", "a").stdout == f"deleted ({capsule_id})\n"
        assert cli("restore", "a").stdout == f'restored "a" in default ({capsule_id})\n'
        assert cli("compose", "a", "--store-as", "b").stdout == f"## a\n\n{GOOD.strip()}\n"
        assert cli("purge").stdout == "No deleted capsules to purge\n"
        assert cli("export").stdout.startswith("2 capsules exported to ")
        assert "a\n  default/a" in cli("search", "work").stdout


class TestAsAPersonTypes:
    def test_an_absolute_path_is_allowed(self, cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> None:
        """On the command line a person decides where a backup goes; agents keep to the allowed folders."""
        backup = tmp_path_factory.mktemp("anywhere") / "backup.jsonl"
        cli("store", "--name", "a", text=GOOD)

        assert cli("export", "--path", str(backup)).exit_code == 0
        assert cli("import", str(backup), "--mode", "replace").exit_code == 0
        error = Library(cli.home).call("moss.export", {"path": str(backup)})["error"]
        assert error["code"] == "INVALID_REQUEST"
        assert str(cli.home / "exports") in error["message"]

    def test_the_order_of_fetch_many(self, cli: Cli) -> None:
        """Each is printed as often as it is named."""
        for name in ("a", "b"):
            cli("store", "--name", name, text=GOOD)

        assert [item["name"] for item in cli.json("fetch-many", "b", "a", "b")["items"]] == ["b", "a", "b"]

    def test_no_tags(self, cli: Cli) -> None:
        """An empty list of tags clears them."""
        cli("store", "--name", "a", "--tags", "x,y", text=GOOD)
        cli("update", "a", "--tags", "")

        assert "tags" not in cli.json("fetch", "a")


class TestStdin:
    """Commands as processes with different kinds of stdin."""

    def run(self, home: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        environ = {"PATH": os.environ["PATH"], "HOME": str(home), "BACKSTORY_HOME": str(home)}
        program = [sys.executable, "-m", "backstory", "capsule", *arguments]
        return subprocess.run(program, env=environ, capture_output=True, timeout=60, check=False, **options)

    def test_a_socket(self, tmp_path: Path) -> None:
        """The text is read from a socket, which Node gives to its children."""
        ours, theirs = socket.socketpair()
        ours.sendall(GOOD.encode())
        ours.close()
        with theirs:
            result = self.run(tmp_path, "store", "--name", "a", stdin=theirs.fileno())

        assert result.returncode == 0, result.stderr
        assert self.run(tmp_path, "fetch", "a", stdin=subprocess.DEVNULL).stdout.decode() == GOOD

    def test_closed(self, tmp_path: Path) -> None:
        """The message says that stdin is closed."""
        command = f"exec {shlex.quote(sys.executable)} -m backstory capsule store --name a <&-"
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "BACKSTORY_HOME": str(tmp_path)}
        result = subprocess.run(["sh", "-c", command], env=environ, capture_output=True, timeout=60, check=False)

        assert result.returncode == 2
        assert b"stdin is closed" in result.stderr

    def test_an_open_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        """An option gives the change, so the silent pipe is skipped with a note."""
        self.run(tmp_path, "store", "--name", "a", input=GOOD.encode())
        reader, writer = os.pipe()
        try:
            result = self.run(tmp_path, "update", "a", "--title", "New", stdin=reader)
        finally:
            os.close(reader)
            os.close(writer)

        assert result.returncode == 0, result.stderr
        assert b"stdin gave nothing" in result.stderr


class TestRaw:
    """Commands print redacted text; `--raw` prints it exactly as stored."""

    TOKEN = "ghp_" + "a1B2" * 9
    TEXT = f"{GOOD}token {TOKEN} \x1b[31mred\r\n"
    SHOWN = f"{GOOD}token [redacted:github-token] red\n"

    def test_is_the_exact_text(self, cli: Cli) -> None:
        """Without it a warning says what is not shown."""
        cli("store", "--name", "a", text=self.TEXT)
        for command in (
            ("fetch", "a"),
            ("fetch-many", "a"),
            ("latest", "--include-text"),
            ("history", "a", "--version", "1"),
        ):
            shown = cli(*command)
            assert shown.stdout == self.SHOWN
            assert shown.stderr.startswith("warning: 1 secret redacted and control or invisible characters removed")
            assert cli(*command, "--raw").stdout_bytes.decode() == self.TEXT, command

    def test_is_what_the_editor_gets(self, cli: Cli, tmp_path: Path) -> None:
        """An edit keeps the secret; editors write newlines."""
        cli("store", "--name", "a", text=self.TEXT)
        TestText().run_in_terminal(tmp_path, "sed -i 's/^token/The token/'", "update", "a")

        edited = self.TEXT.replace("\ntoken", "\nThe token").replace("\r\n", "\n")
        assert cli.json("fetch", "a", "--raw")["capsule_text"] == edited

    def test_a_redacted_text_is_not_stored(self, cli: Cli) -> None:
        cli("store", "--name", "a", text=self.TEXT)
        result = cli("update", "a", text=self.SHOWN)

        assert result.exit_code == 2
        assert "--raw" in result.stderr
        assert self.TOKEN in cli("fetch", "a", "--raw").stdout


class TestSearchOverEverything:
    @pytest.fixture
    def search(self, cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Search:
        monkeypatch.setenv("HOME", str(cli.home))
        Transcript("one").prompt("why does the parser fail").answer("a missing brace in the grammar").write(cli.home)

        def search(*arguments: str) -> str:
            capsys.readouterr()
            assert run(["search", *arguments]) == 0
            return capsys.readouterr().out

        return search

    def test_shows_capsules_after_the_hits(self, cli: Cli, search: Search) -> None:
        """Marked as such, with the command that fetches each; more than three are counted."""
        ids = [cli.json("store", "--name", f"n{number}", text=capsule_text("grammar"))["id"] for number in range(5)]
        hits, _, capsules = search("grammar").partition("capsule  n4\n")

        assert "a missing brace in the grammar" in hits
        assert "    default/n4 · just now\n" in capsules
        assert f"    backstory capsule fetch {ids[4]}\n" in capsules
        assert capsules.endswith("2 more capsules: --source capsules\n")

    def test_alone(self, cli: Cli, search: Search) -> None:
        """With `--source capsules`, or `--type capsule`; in JSON too."""
        for number in range(5):
            cli("store", "--name", f"n{number}", text=capsule_text("grammar"))
        for option in (("--source", "capsules"), ("--type", "capsule")):
            out = search("grammar", *option)
            assert out.count("capsule  n") == 5
            assert "missing brace" not in out
            answer = json.loads(search("grammar", *option, "--json"))
            assert answer["data"]["results"] == []
            assert len(answer["capsules"]) == 5
        assert json.loads(search("grammar", "--source", "claude-code", "--json"))["capsules"] == []

    def test_a_phrase_that_only_a_capsule_has(self, cli: Cli, search: Search) -> None:
        """The phrase is not searched again as words."""
        cli("store", "--name", "a", text=capsule_text("a grammar brace"))
        answer = json.loads(search("grammar brace", "--json"))

        assert [capsule["name"] for capsule in answer["capsules"]] == ["a"]
        assert answer["data"]["results"] == []


class TestErrors:
    CASES = (
        (("fetch", "missing"), "NOT_FOUND", 1),
        (("fetch",), "INVALID_REQUEST", 2),
        (("store", "--name", "a"), "NAME_ALREADY_EXISTS", 1),
        (("store", "--mode", "maybe"), "INVALID_REQUEST", 2),
        (("update", "a", "--title", "x", "--if-updated-at", "5"), "CONFLICT", 1),
        (("delete", "a", "--if-version", "9"), "CONFLICT", 1),
        (("append", "a"), "INVALID_REQUEST", 2),
        (("search",), "INVALID_REQUEST", 2),
        (("compose",), "INVALID_REQUEST", 2),
        (("import",), "INVALID_REQUEST", 2),
        (("import", "--path", "x.csv"), "INVALID_REQUEST", 2),
        (("export", "--path", "x.jsonl"), "INVALID_REQUEST", 2),
        (("purge", "--older-than-days", "-1"), "INVALID_REQUEST", 2),
    )

    def test_have_their_code(self, cli: Cli) -> None:
        """On stderr, and with --json also as the tool's answer on stdout."""
        cli("store", "--name", "a", text=GOOD)
        for arguments, code, exit_code in self.CASES:
            result = cli(*arguments, text=GOOD)

            assert result.exit_code == exit_code, arguments
            assert result.stderr.startswith(f"error: [{code}] ")
            assert result.stdout == ""
            assert cli.json(*arguments, text=GOOD)["error"]["code"] == code

    def test_thin_and_large(self, cli: Cli) -> None:
        assert "[CAPSULE_TOO_THIN]" in cli("store", text="thin").stderr
        assert "[CAPSULE_TOO_LARGE]" in cli("store", text="x" * 12_001).stderr
        assert cli("store", "--allow-thin", text="thin").exit_code == 0

    def test_import_failures(self, cli: Cli) -> None:
        """Problems in the data end with exit code 1."""
        exports = cli.home / "exports"
        exports.mkdir()
        file = exports / "in.jsonl"
        file.write_text("\n".join(json.dumps(line) for line in (HEADER, record(1), record(2, id=""))) + "\nnonsense\n")
        result = cli("import", "--path", str(file))

        assert result.exit_code == 1
        assert result.stdout == "0 capsules imported\n"
        first, second = result.stderr.splitlines()
        assert first.startswith("error: [INVALID_RECORD] line 3: ")
        assert second.startswith("error: [PARSE_ERROR] line 4: ")
        replaced = CliRunner().invoke(capsule, ["import", str(file), "--mode", "replace", "--json"])
        assert replaced.exit_code == 1
        assert json.loads(replaced.stdout)["imported"] == 1
        file.write_text(json.dumps(record(1)))
        assert cli("import", str(file)).exit_code == 0


class TestStart:
    def test_help_loads_nothing_heavy(self) -> None:
        """Help imports neither rich nor the store nor the tools."""
        code = (
            "import sys; from backstory.faces.cli.capsule import capsule; capsule(['--help'], standalone_mode=False);"
            "assert not {'rich', 'sqlite3', 'mcp', 'backstory.toolsets.capsules.tools'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    def test_it_is_a_group(self) -> None:
        assert isinstance(capsule, click.Group)
        assert capsule.name == "capsule"

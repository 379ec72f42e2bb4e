"""The program as a process: pipes, terminals, signals, and how fast it starts."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backstory.library import Library
from tests.e2e.served import eventually
from tests.examples import PATIENT
from tests.transcripts import Transcript

PROGRAM = [sys.executable, "-m", "backstory"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    for number in range(30):
        Transcript(f"session {number}").prompt(f"Tell me about wombat {number}").answer("It digs. " * 40).write(home)
    with opened(home) as library:
        library.sync()
    return home


def environment(home: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
        **PATIENT,
        **more,
    }


def run(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def in_terminal(home: Path, *arguments: str, columns: int = 80, code: int = 0, **more: str) -> str:
    """Run the program in a terminal and return the output of both streams."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        env=environment(home, COLUMNS=str(columns), **more),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # how a terminal whose other end is closed says so
            piece = b""
        if not piece:
            break
        written += piece
    os.close(ours)
    assert process.wait(timeout=60) == code
    return written.decode().replace("\r\n", "\n")


class TestPipes:
    def test_a_reader_that_has_seen_enough(self, home: Path) -> None:
        """`backstory search x | head -1` ends with exit code 0 and no error."""
        command = f'{sys.executable} -m backstory search wombat -n 50; echo "exit $?" >&2'
        result = subprocess.run(
            ["bash", "-c", f"set -o pipefail; ({command}) | head -1"],
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

        assert result.stdout.count("\n") == 1
        assert result.stderr == "exit 0\n"

    def test_a_closed_reader(self, home: Path) -> None:
        """Also when the pipe is closed from the start."""
        for arguments in (["search", "wombat", "-n", "50"], ["--help"]):
            reader, writer = os.pipe()
            os.close(reader)
            result = subprocess.run(
                [*PROGRAM, *arguments], env=environment(home), stdout=writer, stderr=subprocess.PIPE, check=False
            )
            os.close(writer)

            assert (result.returncode, result.stderr) == (0, b""), arguments

    def test_streams_that_are_closed(self, home: Path) -> None:
        """As some schedulers start a program."""
        for command, code in (("search wombat >&-", 0), ("call moss.list <&- 2>&-", 0), ("capsule store <&-", 2)):
            result = subprocess.run(
                ["bash", "-c", f"{sys.executable} -m backstory {command}"],
                env=environment(home),
                stderr=subprocess.PIPE,
                timeout=60,
                check=False,
            )
            assert (result.returncode, b"unexpected" in result.stderr) == (code, False), result.stderr

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    def test_output_that_cannot_be_written(self, home: Path) -> None:
        """One line on stderr, and the exit code of a failure."""
        for arguments in (["search", "wombat"], ["search", "wombat", "--json"]):
            with Path("/dev/full").open("wb") as full:
                result = subprocess.run(
                    [*PROGRAM, *arguments], env=environment(home), stdout=full, stderr=subprocess.PIPE, check=False
                )
            assert (result.returncode, result.stderr.count(b"\n")) == (1, 1), result.stderr

    def test_no_colours_and_no_hints(self, home: Path) -> None:
        """Output into a pipe is plain text in unwrapped lines."""
        result = run(home, "search", "digs", "-n", "1")

        assert "\x1b" not in result.stdout
        assert max(map(len, result.stdout.splitlines())) > 200
        assert result.stderr == ""

    def test_any_locale(self, home: Path) -> None:
        """A terminal without Unicode gets a stand-in, JSON stays UTF-8."""
        transcript = Transcript("unicode").prompt("wÖmbats — 🦡 日本").answer("Ja.")
        transcript.write(home)

        plain = run(home, "open", transcript.id, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        document = run(home, "open", transcript.id, "--json", PYTHONIOENCODING="ascii", PYTHONUTF8="0")

        assert (plain.returncode, plain.stderr) == (0, "")
        assert "w?mbats" in plain.stdout
        assert json.loads(document.stdout)["data"]["session"]["title"] == "wÖmbats — 🦡 日本"


class TestTerminal:
    def test_highlights_matches_and_says_what_to_do(self, home: Path) -> None:
        """Colours, folded lines and a hint for a person. No line of the result is longer than the terminal is wide,
        unless it is one word: ids can be copied."""
        written = in_terminal(home, "search", "digs", "-n", "3", columns=60)
        results = re.sub(r"\x1b\[[0-9;]*m", "", written).rpartition("\n\n")[0]

        assert "\x1b[1;33mdigs\x1b[0m" in written
        assert "read one: backstory open event:" in " ".join(written.split())
        assert all(len(line) <= 60 or " " not in line.strip() for line in results.splitlines())

    def test_no_color(self, home: Path) -> None:
        """NO_COLOR is honoured by results, hints and errors; a bare call shows a status and what to do next."""
        written = [
            in_terminal(home, "search", "wombat", "-n", "1", NO_COLOR="1"),
            in_terminal(home, NO_COLOR="1"),
            in_terminal(home, "nonsense", code=2, NO_COLOR="1"),
        ]

        assert all("\x1b[3" not in each and ";3" not in each for each in written)
        status = written[1]
        assert "claude-code" in status
        assert "last sync: " in status
        assert "backstory search " in status

    def test_a_terminal_without_escape_sequences(self, home: Path) -> None:
        for arguments, code in ((["search", "wombat", "-n", "1"], 0), (["sources"], 0), (["nonsense"], 2)):
            assert "\x1b" not in in_terminal(home, *arguments, code=code, TERM="dumb"), arguments

    def test_the_first_search_reads_everything_first(self, tmp_path: Path) -> None:
        """With a word about it; a search in a pipe says at its top when it is incomplete."""
        Transcript("x").prompt("Hello numbat").answer("Hi.").write(tmp_path)

        written = in_terminal(tmp_path, "search", "numbat", NO_COLOR="1")

        first, *rest = written.splitlines()
        assert first.startswith("Reading your agents' sessions for the first time.")
        assert any("Hello numbat" in line for line in rest)
        assert "first time" not in in_terminal(tmp_path, "search", "numbat")

    def test_no_agents(self, tmp_path: Path) -> None:
        """Status and sync say where was looked and what to do, as every search does."""
        for arguments in ([], ["sync"]):
            written = " ".join(in_terminal(tmp_path, *arguments, NO_COLOR="1").split())

            assert "Looked in: ~/.claude/projects," in written
            assert "name it under extra_roots in ~/.backstory/config.toml" in written

    def test_progress(self, home: Path, tmp_path: Path) -> None:
        """A bar while reading, on stderr; JSON on stdout stays alone."""
        Transcript("x").prompt("Hello").answer("Hi.").write(tmp_path)

        written = in_terminal(tmp_path, "sync")
        document = run(tmp_path, "sync", "--json")

        assert "Reading" in written
        assert "Indexing" in written
        assert "Read 2 events of 1 session from 1 file" in written
        assert json.loads(document.stdout)["events"] == 0
        assert document.stderr == ""


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`backstory watch` over a home with one transcript, which it has read."""
    Transcript("first").prompt("Hello").answer("Hi.").write(tmp_path)
    process = subprocess.Popen(
        [*PROGRAM, "watch"],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().endswith("2 events from 1 file\n")
        yield process
    finally:
        process.kill()
        process.communicate()


class TestWatch:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_reads_until_it_is_stopped(
        self, watching: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
    ) -> None:
        """New transcripts are found at once; a signal ends it cleanly and frees the lock."""
        Transcript("second").prompt("What is a numbat?").answer("It eats termites.").write(tmp_path)
        assert watching.stdout is not None
        assert watching.stdout.readline().endswith("2 events from 1 file\n")
        with opened(tmp_path) as library:
            found = library.search("termites")
            watching.send_signal(number)
            output, errors = watching.communicate(timeout=60)

            assert found["data"]["result_count"] == 1
            assert (watching.returncode, output, errors) == (0, "", "")
            assert library.sync().files == 0

    def test_a_signal_that_another_thread_receives(self, tmp_path: Path) -> None:
        """It does not interrupt the main thread, which handles it all the same."""
        script = """
import signal, sys, threading, time
from backstory.faces.cli.app import run
from backstory.library import Library

def watch(self, stop, on_change):
    main = threading.main_thread().ident
    while sys._current_frames()[main].f_code.co_name not in ("join", "_wait_for_tstate_lock"):
        time.sleep(0.01)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    stop.wait()

Library.watch = watch
sys.exit(run(["watch"]))
"""
        command = [sys.executable, "-c", script]
        assert subprocess.run(command, env=environment(tmp_path), timeout=60, check=False).returncode == 0

    def test_json(self, tmp_path: Path) -> None:
        """One document, at the end."""
        transcript = Transcript("first").prompt("Hello").answer("Hi.")
        transcript.write(tmp_path)
        process = subprocess.Popen(
            [*PROGRAM, "watch", "--json"], env=environment(tmp_path), stdout=subprocess.PIPE, text=True
        )
        with opened(tmp_path) as library:
            eventually(lambda: library.archive.counts().events)
        process.terminate()
        output, _ = process.communicate(timeout=60)

        assert json.loads(output)["events"] == 2


def opened(home: Path) -> Library:
    """The archive of a home, for looking at it from here."""
    return Library(home / ".backstory", agents_home=home, environ={})


class TestInterrupt:
    def test_a_command_stopped_with_ctrl_c(self, home: Path) -> None:
        """130, and nothing but the end of the line."""
        process = subprocess.Popen(
            [*PROGRAM, "call", "open"],
            env=environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Tests that run in the background of a shell inherit that it is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert process.stdin is not None
        # More than a pipe holds: it has been written when the command reads.
        process.stdin.write(b" " * (1 << 18))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)

        assert (process.returncode, output, errors.strip()) == (130, b"", b"")


class TestStart:
    def test_help_imports_nothing_heavy(self, home: Path) -> None:
        """Help loads no slow library."""
        script = (
            "import sys; from backstory.faces.cli.app import run; run(['--help']); run(['search', '--help']);"
            "print(sorted({'rich', 'msgspec', 'sqlite3', 'tantivy', 'mcp', 'asyncio', 'anyio', 'starlette', 'filelock'}"
            " & set(sys.modules)), file=sys.stderr)"
        )
        result = subprocess.run(
            [sys.executable, "-c", script], env=environment(home), capture_output=True, text=True, check=True
        )

        assert result.stderr == "[]\n"

    def test_json_needs_no_rich(self, home: Path) -> None:
        """A script does not wait for what only people see, nor for MCP."""
        script = (
            "import sys; from backstory.faces.cli.app import run; run(['search', 'wombat', '--json']);"
            "print(sorted({'rich', 'mcp', 'anyio', 'asyncio', 'starlette'} & set(sys.modules)), file=sys.stderr)"
        )
        result = subprocess.run(
            [sys.executable, "-c", script], env=environment(home), capture_output=True, text=True, check=True
        )

        assert result.stderr == "[]\n"

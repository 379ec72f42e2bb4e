"""A home that may be read but not written, as on a mounted backup."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from backstory.library import Library
from tests.transcripts import Transcript

_MOUNT = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


# Runs commands one after the other and prints the exit code and the output of each, as JSON.
_SCRIPT = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from backstory.faces.cli.app import run

def result(arguments):
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        code = run(arguments)
    return [code, *(stream.buffer.getvalue().decode() for stream in streams)]

print(json.dumps([result(arguments) for arguments in json.loads(sys.argv[1])]))
"""


def unwritable(home: Path, *program: str) -> list[str]:
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(home / ".backstory"), *program]


def environ(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}


class Result(NamedTuple):
    code: int
    out: str
    err: str


def run(home: Path, *commands: list[str], read_only: bool = True) -> list[Result]:
    """Commands in one process, with its folder mounted read-only in a namespace of its own: permissions do not stop
    root."""
    program = [sys.executable, "-c", _SCRIPT, json.dumps(commands)]
    if read_only:
        program = unwritable(home, *program)
    done = subprocess.run(program, env=environ(home), capture_output=True, text=True, timeout=60, check=False)
    return [Result(*each) for each in json.loads(done.stdout)] if done.returncode == 0 else []


@pytest.fixture(scope="module", params=["as it was left", "without what SQLite keeps beside a database"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    Transcript("one").prompt("Tell me about wombats").answer("They dig.").write(home)
    with Library(home / ".backstory", agents_home=home, environ={}) as library:
        library.sync()
        library.call("moss.store", {"name": "digging", "capsule_text": "wombats dig", "allow_thin": True})
        (home / "event").write_text(library.search("wombats")["data"]["results"][0]["id"])
    if "without" in request.param:
        for path in (home / ".backstory").glob("*.db"):
            # The last process to close a database removes them.
            database = sqlite3.connect(path)
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.close()
        assert not list((home / ".backstory").glob("*.db-*"))
    Transcript("two").prompt("Tell me about quolls").write(home)
    return home


@pytest.fixture(scope="module")
def results(home: Path) -> dict[str, Result]:
    """The results of all commands, by the command."""
    commands = {
        "search": ["search", "wombats", "--json"],
        "open": ["open", (home / "event").read_text(), "--json"],
        "search for newer": ["search", "quolls", "--json"],
        "sessions": ["sessions", "--since", "2020-01-01", "--json"],
        "status": ["--json"],
        "traces": ["call", "list_traces", "{}"],
        "capsules": ["capsule", "list", "--json"],
        "capsule": ["call", "moss.fetch", '{"name": "digging"}'],
        "store": ["call", "moss.store", '{"name": "more", "capsule_text": "x", "allow_thin": true}'],
        "sync": ["sync"],
        "reindex": ["reindex"],
        "doctor": ["doctor"],
    }
    found = run(home, *commands.values())
    if not found:
        pytest.skip("no namespaces here")
    return dict(zip(commands, found, strict=True))


@pytest.fixture(scope="module")
def server(home: Path, results: dict[str, Result]) -> Iterator[str]:
    """The address of `backstory serve`."""
    program = unwritable(home, sys.executable, "-m", "backstory", "serve", "--port", "0", "--json")
    with (
        (home / "log").open("w") as log,
        subprocess.Popen(program, env=environ(home), stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (home / "log").read_text()
            yield json.loads(line)["url"]
        finally:
            process.terminate()


def answer(result: Result) -> dict[str, Any]:
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


class TestReading:
    """Sessions in the archive are found, with a warning that nothing is added."""

    def test_search_and_open(self, results: dict[str, Result]) -> None:
        found = answer(results["search"])
        assert found["data"]["result_count"] == 1
        assert found["warnings"] == ["The archive can be read but not written, so newer sessions are missing in it."]
        assert answer(results["open"])["data"]["content"]["text"] == "Tell me about wombats"
        assert answer(results["search for newer"])["data"]["result_count"] == 0

    def test_lists(self, home: Path, results: dict[str, Result]) -> None:
        assert answer(results["sessions"])["data"]["result_count"] == 1
        status = answer(results["status"])
        assert status["sessions"] == 1
        assert status["warnings"] == [
            f"{home / '.backstory'} cannot be written to, so nothing new is read: run backstory doctor"
        ]
        assert len(answer(results["traces"])["traces"]) == 1

    def test_capsules(self, results: dict[str, Result]) -> None:
        assert [each["name"] for each in answer(results["capsules"])["items"]] == ["digging"]
        assert answer(results["capsule"])["capsule_text"] == "wombats dig"
        assert [each["name"] for each in answer(results["search"])["capsules"]] == ["digging"]


class TestServing:
    """The server starts and shows what is there; it refuses live sessions and everything else that it would write."""

    def test_reads(self, home: Path, server: str) -> None:
        found = httpx.post(f"{server}/api/tools/search_sessions", json={"query": "wombats"}).json()
        assert found["data"]["result_count"] == 1
        assert found["warnings"] == ["The archive can be read but not written, so newer sessions are missing in it."]
        for page in ("/?q=wombats", "/traces", "/usage", "/live", "/capsules", "/doctor"):
            assert httpx.get(server + page).status_code == 200
        log = (home / "log").read_text()
        assert f"live sessions are refused: cannot use {home / '.backstory' / 'live'}: Read-only file system" in log

    def test_refuses_to_write(self, server: str) -> None:
        for function in ("create", "list"):
            reply = httpx.post(f"{server}/session/{function}", json={})
            assert reply.status_code == 503
            assert "Read-only file system" in reply.json()["error"]["message"]
        capsule = {"name": "more", "capsule_text": "x", "allow_thin": True}
        assert "cannot be written" in httpx.post(f"{server}/api/tools/moss.store", json=capsule).text
        span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "x", "startTimeUnixNano": str(10**18)}
        batch = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
        reply = httpx.post(f"{server}/v1/traces", json=batch)
        assert reply.status_code == 503
        assert "cannot be written" in reply.json()["message"]


class TestWriting:
    """A command that would write says why it cannot."""

    @pytest.mark.parametrize("command", ["sync", "reindex"])
    def test_refused(self, home: Path, results: dict[str, Result], command: str) -> None:
        assert results[command].code == 1
        assert results[command].err == f"error: {home / '.backstory'} cannot be written to: check its permissions\n"

    def test_a_capsule(self, results: dict[str, Result]) -> None:
        assert results["store"].code == 1
        assert "cannot be written to" in results["store"].err

    def test_doctor(self, home: Path, results: dict[str, Result]) -> None:
        assert results["doctor"].code == 1
        assert f"✗ {home / '.backstory'} cannot be written to" in results["doctor"].out

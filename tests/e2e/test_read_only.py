"""A home that may be read but not written, as on a mounted backup."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.transcripts import Transcript

_MOUNT = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


def run(home: Path, *arguments: str, read_only: bool = True) -> subprocess.CompletedProcess[str]:
    """The program, with its folder mounted read-only in a namespace of its own: permissions do not stop root."""
    program = [sys.executable, "-m", "backstory", *arguments]
    if read_only:
        program = ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(home / ".backstory"), *program]
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    return subprocess.run(program, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module", params=["as it was left", "without what SQLite keeps beside a database"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    Transcript("one").prompt("Tell me about wombats").answer("They dig.").write(home)
    assert run(home, "sync", read_only=False).returncode == 0
    if run(home, "--version").returncode != 0:
        pytest.skip("no namespaces here")
    if "without" in request.param:
        for path in (home / ".backstory").glob("*.db"):
            # Whoever closes a database last takes them away.
            database = sqlite3.connect(path)
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.close()
        assert not list((home / ".backstory").glob("*.db-*"))
    Transcript("two").prompt("Tell me about quolls").write(home)
    return home


def answer(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


class TestReading:
    """What is there is found, with a warning that nothing is added."""

    def test_search_and_open(self, home: Path) -> None:
        found = answer(run(home, "search", "wombats", "--json"))
        assert found["data"]["result_count"] == 1
        assert found["warnings"] == ["The archive can be read but not written, so newer sessions are missing in it."]
        opened = answer(run(home, "open", found["data"]["results"][0]["id"], "--json"))
        assert opened["data"]["content"]["text"] == "Tell me about wombats"
        assert answer(run(home, "search", "quolls", "--json"))["data"]["result_count"] == 0

    def test_lists(self, home: Path) -> None:
        assert answer(run(home, "sessions", "--since", "2020-01-01", "--json"))["data"]["result_count"] == 1
        status = answer(run(home, "--json"))
        assert status["sessions"] == 1
        assert status["warnings"] == [
            f"{home / '.backstory'} cannot be written to, so nothing new is read: run backstory doctor"
        ]
        assert len(answer(run(home, "call", "list_traces", "{}"))["traces"]) == 1


class TestWriting:
    """What would write says why it cannot."""

    @pytest.mark.parametrize("command", ["sync", "reindex"])
    def test_refused(self, home: Path, command: str) -> None:
        result = run(home, command)
        assert result.returncode == 1
        assert result.stderr == f"error: {home / '.backstory'} cannot be written to: check its permissions\n"

    def test_doctor(self, home: Path) -> None:
        result = run(home, "doctor")
        assert result.returncode == 1
        assert f"✗ {home / '.backstory'} cannot be written to" in result.stdout

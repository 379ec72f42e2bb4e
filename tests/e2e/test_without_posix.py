"""Reading, searching and MCP without what only POSIX systems have, as on Windows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backstory.setup.server import probe
from tests.transcripts import Transcript

RUNNER = (sys.executable, str(Path(__file__).with_name("without_posix.py")))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    Transcript("numbat").prompt("What does a numbat eat?").answer("Termites → 白蟻.").write(tmp_path)
    return tmp_path


def run(home: Path, *arguments: str) -> str:
    # The encoding of a pipe on Windows.
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONIOENCODING": "cp1252"}
    done = subprocess.run([*RUNNER, *arguments], env=environ, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8" if "--json" in arguments else "cp1252")


class TestWithoutPosix:
    def test_every_module_can_be_imported(self, home: Path) -> None:
        """Also those of parts that do not work there: they say so when they are used."""
        imported = run(home).split()

        assert {"backstory.library", "backstory.faces.mcp", "backstory.sources.codex"} <= set(imported)

    def test_reads_and_searches(self, home: Path) -> None:
        """JSON is UTF-8; text for people has a stand-in for what the code page of a pipe lacks."""
        assert json.loads(run(home, "sync", "--json"))["sessions"] == 1
        assert "Termites ? ??." in run(home, "search", "termites")
        assert "Termites → 白蟻." in run(home, "search", "termites", "--json")

    def test_serves_mcp(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An agent can start the server and search."""
        monkeypatch.setenv("HOME", str(home))

        assert probe([*RUNNER, "mcp"]).problem is None

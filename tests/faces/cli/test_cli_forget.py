"""`forget`: a session is deleted everywhere, after a question, and is not read again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from backstory.model import SEARCHABLE_TYPES, turn_id
from tests.transcripts import Transcript

from .conftest import Program

SECRET = "xylophagous"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    talk().write(tmp_path)
    Transcript("other").prompt("Which port?").answer("Port 7717.").write(tmp_path)
    return tmp_path


def talk() -> Transcript:
    transcript = Transcript("secret").prompt(f"Tell me about {SECRET} beetles")
    return transcript.call("Bash", {"command": SECRET}, f"{SECRET} output " * 30).answer(f"They are {SECRET}.")


def check_gone(home: Path, backstory: Program) -> None:
    """At every exit, and in the bytes of every file."""
    transcript = talk()
    types = [option for kind in SEARCHABLE_TYPES for option in ("--type", str(kind))]
    result = backstory("search", SECRET, *types, "--json")
    assert result.code == 0, result.err
    assert result.json["data"]["results"] == []
    assert SECRET not in backstory("search", SECRET).out
    assert backstory("open", transcript.id).code == 1
    assert SECRET not in backstory("sessions", "--since", "2001-01-01", "--json").out
    assert SECRET not in backstory("traces", "list", "--since", "2001-01-01", "--json").out
    assert SECRET not in backstory("usage", "--by", "project", "--since", "2001-01-01", "--json").out
    conversations = backstory("call", "list_conversations", "{}").out + backstory(
        "call", "search_conversations", f'{{"query": "{SECRET}"}}'
    ).out.replace(f'"{SECRET}"', "")
    assert SECRET not in conversations
    assert "7717" in backstory("search", "port").out
    files = [path for path in (home / ".backstory").rglob("*") if path.is_file()]
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []


class TestForget:
    def test_it_is_gone_and_stays_gone(self, home: Path, backstory: Program) -> None:
        backstory("sync")
        transcript = talk()
        path = transcript.path(home)
        assert backstory("search", SECRET).code == 0
        before = path.read_bytes()

        result = backstory("forget", transcript.id[:8], "--yes")

        assert result.code == 0
        assert result.out.startswith(f"Delete claude-code/{transcript.id}: ")
        assert path.read_bytes() == before, "the agent's own files are left alone"
        check_gone(home, backstory)
        backstory("sync")
        os.utime(path, ns=(1, 1))
        check_gone(home, backstory)
        transcript.prompt(f"And {SECRET} moths?").write(home)
        backstory("sync")
        check_gone(home, backstory)
        shutil.copy(path, path.with_name("6f0c1a2b-0000-4000-8000-000000000000.jsonl"))
        path.with_name("moved.jsonl").write_bytes(before)
        path.unlink()
        backstory("sync")
        backstory("reindex")
        check_gone(home, backstory)

    def test_dry_run(self, home: Path, backstory: Program) -> None:
        backstory("sync")
        result = backstory("forget", talk().id, "--dry-run")
        assert result.out.startswith("Would delete claude-code/")
        answer = backstory("forget", talk().id, "--dry-run", "--json").json
        assert (answer["forgotten"], answer["sessions"][0]["turns"], answer["sessions"][0]["events"]) == (False, 1, 4)
        assert backstory("search", SECRET).code == 0

    def test_nobody_can_be_asked(self, home: Path, backstory: Program) -> None:
        backstory("sync")
        result = backstory("forget", talk().id)
        assert result.code == 2
        assert "--yes" in result.err
        assert SECRET in backstory("search", SECRET).out

    @pytest.mark.parametrize("wrong", ["nothing-like-this", "session:Y2xhdWRlLWNvZGUvbm9uZQ", "{turn}"])
    def test_what_is_no_session(self, home: Path, backstory: Program, wrong: str) -> None:
        backstory("sync")
        result = backstory("forget", wrong.format(turn=f"{talk().id}:1"), "--yes")
        assert result.code == 1
        assert result.err
        assert SECRET in backstory("search", SECRET).out

    def test_a_part_of_a_session(self, home: Path, backstory: Program) -> None:
        """A turn or an event, by any form of its id: it says which session has it."""
        backstory("sync")
        session = talk().id
        event = backstory("search", SECRET, "--json").json["data"]["results"][0]["event"]["id"]
        for part in (f"{session}:1", turn_id(f"claude-code/{session}", 1), event):
            result = backstory("forget", part, "--yes")
            says = f"error: {part} is a part of the session {session[:8]}; only whole sessions are deleted\n"
            assert (result.code, result.err) == (1, says)

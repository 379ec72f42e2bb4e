"""`backstory restore`: a purged session is written back to the byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from backstory.library import Library
from tests.ingest.opencode_writer import OpenCode
from tests.transcripts import Transcript

from .conftest import Program


@pytest.fixture
def transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Transcript:
    """A session that was read."""
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Transcript("purged", str(tmp_path / "shop")).prompt("Fix the checkout").answer("Fixed.")
    made.write(tmp_path)
    with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
        library.sync()
    return made


class TestRestore:
    def test_a_purged_session(self, tmp_path: Path, transcript: Transcript, backstory: Program) -> None:
        """Into the agent's folder, byte for byte, and it is read once."""
        path = transcript.path(tmp_path)
        data = path.read_bytes()
        path.unlink()
        path.parent.rmdir()
        assert backstory("sync").code == 0

        assert backstory("restore", transcript.id[:8]).code == 0
        assert path.read_bytes() == data
        assert backstory("sync", "--json").json["events"] == 0

    def test_by_a_part_of_the_session(self, transcript: Transcript, backstory: Program) -> None:
        """A turn or an event, as search shows them: the whole file."""
        event = backstory("search", "checkout", "--json").json["data"]["results"][0]["event"]["id"]
        for part in (f"{transcript.id[:8]}:1", event):
            assert backstory("restore", part, "--json").json["files"][0]["state"] == "there already", part

    def test_a_session_that_is_there(self, tmp_path: Path, transcript: Transcript, backstory: Program) -> None:
        """It stays as it is."""
        done = backstory("restore", transcript.id, "--json")

        assert (done.code, done.json["files"][0]["state"]) == (0, "there already")

    def test_a_file_that_differs(self, tmp_path: Path, transcript: Transcript, backstory: Program) -> None:
        """It is not overwritten; another folder can be given."""
        transcript.path(tmp_path).write_text("{}\n")

        assert backstory("restore", transcript.id).code == 1
        assert transcript.path(tmp_path).read_text() == "{}\n"
        assert backstory("restore", transcript.id, "--to", str(tmp_path / "new")).code == 0
        assert (tmp_path / "new" / f"{transcript.id}.jsonl").read_text() == transcript.text()

    def test_a_session_in_a_folder(self, tmp_path: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every file of it; with --to in the same order below the other folder."""
        monkeypatch.setenv("HOME", str(tmp_path))
        folder = tmp_path / ".openhands" / "conversations" / "4f1c"
        (folder / "events").mkdir(parents=True)
        (folder / "base_state.json").write_text('{"agent": {}}')
        said = {"role": "user", "content": [{"type": "text", "text": "Fix the checkout"}]}
        event = {"id": "1", "kind": "MessageEvent", "source": "user", "llm_message": said}
        (folder / "events" / "event-00000-1.json").write_text(json.dumps(event))
        before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.json")}
        assert backstory("sync").code == 0
        shutil.rmtree(folder)

        assert backstory("restore", "4f1c").code == 0
        assert {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.json")} == before
        new = tmp_path / "new"
        assert backstory("restore", "4f1c", "--to", str(new)).code == 0
        assert {path.relative_to(new): path.read_bytes() for path in new.rglob("*.json")} == before

    def test_a_session_in_a_database(self, tmp_path: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is written into databases of agents; the message says where, and what works instead."""
        monkeypatch.setenv("HOME", str(tmp_path))
        agent = OpenCode(tmp_path / ".local" / "share" / "opencode" / "opencode.db")
        agent.session("ses_1")
        agent.prompt("ses_1", 1, "Fix the checkout")
        agent.close()
        assert backstory("sync").code == 0

        done = backstory("restore", "ses_1")

        assert done.code == 1
        assert "OpenCode keeps many sessions in ~/.local/share/opencode/opencode.db" in done.err
        assert "resume --in AGENT" in done.err

    def test_dry_run(self, tmp_path: Path, transcript: Transcript, backstory: Program) -> None:
        """Nothing is written."""
        path = transcript.path(tmp_path)
        path.unlink()

        done = backstory("restore", transcript.id, "--dry-run")

        assert done.out.startswith("Would write: ~/.claude/projects/")
        assert not path.exists()

    def test_without_raw_records(self, tmp_path: Path, transcript: Transcript, backstory: Program) -> None:
        """The reason is named."""
        for part in tmp_path.glob(".backstory/raw.db*"):
            part.unlink()

        done = backstory("restore", transcript.id)

        assert done.code == 1
        assert "not kept" in done.err

    def test_a_fork_of_a_forgotten_session(self, tmp_path: Path, transcript: Transcript, backstory: Program) -> None:
        """Its bytes repeat what was forgotten: they are not kept, and the reason is named."""
        fork = transcript.forked("fork").prompt("Go on").answer("Gone on.")
        path = fork.write(tmp_path)
        assert backstory("sync").code == 0
        assert backstory("forget", transcript.id, "--yes").code == 0
        path.unlink()
        done = backstory("restore", fork.id)

        assert (done.code, path.exists()) == (1, False)
        assert "they repeat a session that was forgotten" in done.err

    def test_an_unknown_session(self, transcript: Transcript, backstory: Program) -> None:
        """An error."""
        assert backstory("restore", "nonsense").code == 1

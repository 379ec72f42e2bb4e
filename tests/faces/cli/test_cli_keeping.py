"""`sync`, `reindex`, `doctor`: keeping the archive, and looking after it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backstory import open_archive
from backstory.library import Library
from backstory.sources.otel import session_file
from tests.transcripts import Transcript

from .conftest import Program

DAY = 86_400


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for each test, with one transcript that was not read yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    Transcript("one").prompt("Which port?").answer("Port 7717.").write(tmp_path)
    return tmp_path


def set_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


class TestSync:
    def test_reads_what_is_new(self, home: Path, backstory: Program) -> None:
        """Ends with counts, bytes and seconds; the second time there is nothing."""
        first, second = backstory("sync"), backstory("sync")

        assert first.out.startswith("Read 2 events of 1 session from 1 file, 0.0 MB in ")
        assert second.out.startswith("Read 0 events of 0 sessions from 0 files, ")
        assert (first.code, first.err) == (0, "")

    def test_json(self, home: Path, backstory: Program) -> None:
        """The report as one document."""
        report = backstory("sync", "--json").json

        assert (report["events"], report["sessions"], report["files"], report["errors"]) == (2, 1, 1, 0)
        assert report["by_another_process"] is False
        assert report["bytes"] > 0

    def test_says_what_could_not_be_read(self, home: Path, backstory: Program) -> None:
        """The rest was read nevertheless."""
        with Transcript("one").path(home).open("a") as stream:
            stream.write("{broken}\n")

        assert "1 part could not be understood." in backstory("sync").out

    def test_while_another_process_reads(self, home: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """Waits for that process, and succeeds when it has read everything."""
        monkeypatch.setattr("backstory.faces.cli.sync._GRACE_SECONDS", 0.1)
        backstory("sync")
        library = open_archive()
        writer = library.archive.writer()
        try:
            assert backstory("sync").out.startswith("Up to date: another Backstory process")
            assert backstory("sync", "--json").json == {"by_another_process": True}
            assert backstory("search", "port").code == 0
        finally:
            writer.close()
            library.close()


class TestReindex:
    def test_builds_the_index_anew(self, home: Path, backstory: Program) -> None:
        """Counts what it indexed, and everything is found afterwards."""
        backstory("sync")

        assert backstory("reindex").out.startswith("Indexed 2 events in ")
        assert backstory("reindex", "--json").json["events"] == 2
        assert backstory("search", "port", "--json").json["data"]["result_count"] == 2

    def test_while_another_process_writes(self, home: Path, backstory: Program) -> None:
        """Only one can: a failure that says what to do."""
        library = open_archive()
        writer = library.archive.writer()
        try:
            result = backstory("reindex")
        finally:
            writer.close()
            library.close()

        assert result.code == 1
        assert "another Backstory process (mcp, watch or serve) writes the archive: stop it" in result.err


class TestDoctor:
    def test_a_healthy_archive(self, home: Path, backstory: Program) -> None:
        """Agents, counts, disk use, and no problems."""
        backstory("sync")

        result = backstory("doctor")

        assert result.code == 0
        assert "  claude-code  1 session\n    1 file · 0.0 MB · " in result.out
        assert "\n  not on this machine: codex" in result.out
        assert "1 session, 1 turn, 2 events" in result.out
        assert "last complete sync: just now" in result.out
        assert result.out.endswith("\nNo problems.\n")

    def test_json(self, home: Path, backstory: Program) -> None:
        """All of it as one document."""
        backstory("sync")

        found = backstory("doctor", "--json").json

        assert found["agents"][0]["files"] == 1
        assert found["archive"]["events"] == 2
        assert found["disk"]["archive.db"] > 0
        assert found["problems"] == []

    def test_before_the_first_sync(self, home: Path, backstory: Program) -> None:
        """A problem, with what to do about it."""
        result = backstory("doctor")

        assert result.code == 1
        assert "1 not read yet" in result.out
        assert "! not everything has been read yet\n    fix: run backstory sync" in result.out

    def test_no_agents(self, backstory: Program) -> None:
        """A machine without agents has nothing to remember yet."""
        assert "no agent found: none of claude-code," in backstory("doctor").out

    @pytest.mark.parametrize(
        ("damage", "says"),
        [
            (lambda path: path.write_bytes(b"no database " * 100), "✗ capsules.db is damaged"),
            (put_folder, "✗ The capsule store cannot be used"),
            (lambda path: set_version(path, 99), "✗ capsules.db was written by a newer Backstory"),
        ],
    )
    def test_a_capsule_store_that_cannot_be_used(
        self, home: Path, backstory: Program, damage: Callable[[Path], None], says: str
    ) -> None:
        """Is named with its cure; everything else goes on."""
        backstory("sync")
        with Library(home / ".backstory") as library:
            library.call("moss.store", {"capsule_text": "x", "allow_thin": True})
        damage(home / ".backstory" / "capsules.db")

        result = backstory("doctor")

        assert result.code == 1
        assert says in result.out

    def test_agents_that_are_not_read(self, home: Path, backstory: Program) -> None:
        """They are named with their number of sessions, and are no problem."""
        backstory("sync")
        for number in range(2):
            chat = home / ".mux" / "sessions" / str(number) / "chat.jsonl"
            chat.parent.mkdir(parents=True, exist_ok=True)
            chat.write_text("{}\n")

        result = backstory("doctor")

        assert result.code == 0
        assert "  Mux  2 sessions, not read\n" in result.out

    def test_a_database_that_is_damaged(self, home: Path, backstory: Program) -> None:
        """Sync tells of it, and permissions are not blamed."""
        database = home / ".local/share/opencode/opencode.db"
        database.parent.mkdir(parents=True)
        database.write_text("half of it " * 100)

        assert "1 part could not be understood." in backstory("sync").out
        result = backstory("doctor")

        assert result.code == 1
        assert f"✗ {database} cannot be read: file is not a database" in result.out
        assert "fix: put a whole copy there" in result.out

    def test_a_folder_that_cannot_be_read(
        self, home: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A problem with its cure. (Permissions do not stop root, so the refusal is made up.)"""
        backstory("sync")
        closed = Transcript("one").path(home).parent
        scandir = os.scandir

        def refuse(folder: Any = ".") -> Any:
            if str(folder) == str(closed.resolve()):
                raise PermissionError(13, "Permission denied", str(folder))
            return scandir(folder)

        monkeypatch.setattr(os, "scandir", refuse)

        result = backstory("doctor")

        assert result.code == 1
        assert f"✗ {closed.resolve()} cannot be read: Permission denied" in result.out
        assert "fix: let this user read it: chmod -R u+rX " in result.out

    def test_telemetry_is_shown_once_there_is_some(self, home: Path, backstory: Program) -> None:
        """Doctor looks where ingest reads, Backstory's own folders included."""
        backstory("sync")
        assert "otel" not in backstory("doctor").out
        session_file(home / ".backstory", "s-1").write_text("{}\n")

        assert "  otel  0 sessions\n    1 file" in backstory("doctor").out

    def test_broken_files(self, home: Path, backstory: Program) -> None:
        """Each with its last error."""
        path = Transcript("one").path(home)
        with path.open("a") as stream:
            stream.write("{broken}\n")
        backstory("sync")

        result = backstory("doctor")

        assert str(path) in result.out
        assert "1 error · " in result.out
        assert "1 transcript has parts that cannot be understood" in result.out

    def test_gone_files(self, home: Path, backstory: Program) -> None:
        """The archive keeps a transcript that its agent deleted, and doctor counts it."""
        backstory("sync")
        Transcript("one").path(home).unlink()
        backstory("sync")

        assert "Gone from disk, kept in the archive\n  1 transcript" in backstory("doctor").out
        assert backstory("search", "port", "--json").json["data"]["result_count"] == 2

    @pytest.mark.parametrize(
        ("settings", "age", "says"),
        [
            (None, 1, None),
            (None, 25, "after 30 days, the first in 5 days"),
            (None, 40, "after 30 days, the first the next time it starts"),
            ({"cleanupPeriodDays": 26}, 25, "after 26 days, the first tomorrow"),
            ({"cleanupPeriodDays": 3650}, 400, None),
            ({"cleanupPeriodDays": "x"}, 25, "after 30 days"),
            ([], 25, "after 30 days"),
            ('{"cleanupPeriodDays": 26}  // days', 25, "after 26 days, the first tomorrow"),
        ],
    )
    def test_what_claude_code_is_about_to_delete(
        self, home: Path, backstory: Program, settings: object, age: int, says: str | None
    ) -> None:
        """By Claude Code's own setting, and whether the archive has it."""
        then = time.time() - age * DAY
        os.utime(Transcript("one").path(home), (then, then))
        if settings is not None:
            text = settings if isinstance(settings, str) else json.dumps(settings)
            (home / ".claude" / "settings.json").write_text(text)

        before = backstory("doctor").out
        backstory("sync")
        after = backstory("doctor").out

        if says is None:
            assert "About to be deleted" not in after
        else:
            assert says in after
            assert "is about to delete 1 transcript that was not read yet" in before
            assert "1 transcript within a week; 1 of them is in the archive" in after
            assert "about to delete" not in after.partition("Problems")[2]

    def test_open_permissions(self, home: Path, backstory: Program) -> None:
        """Other users must not read the archive."""
        backstory("sync")
        (home / ".backstory").chmod(0o755)

        assert f"fix: chmod -R go-rwx {home}/.backstory" in backstory("doctor").out

    def test_broken_settings(self, home: Path, backstory: Program) -> None:
        """An error to fix, not a crash."""
        backstory("sync")
        (home / ".backstory" / "config.toml").write_text("redact = 'maybe'\n")

        result = backstory("doctor")

        assert result.code == 1
        assert "✗ " in result.out
        assert f"fix: edit {home}/.backstory/config.toml" in result.out

    def test_a_broken_archive(self, home: Path, backstory: Program) -> None:
        """Said once, with what to do; the rest is still shown, and capsules are there."""
        backstory("sync")
        for path in (home / ".backstory").glob("archive.db*"):
            path.write_bytes(b"not a database " * 1000)

        result = backstory("doctor")

        assert result.code == 1
        assert result.out.count(f"✗ {home}/.backstory/archive.db is damaged (file is not a database)") == 1
        assert backstory("capsule", "list").code == 0
        assert "fix: move it away and run backstory sync" in result.out
        assert "claude-code" in result.out

    def test_broken_raw_records(self, home: Path, backstory: Program) -> None:
        backstory("sync")
        for path in (home / ".backstory").glob("raw.db*"):
            path.write_bytes(b"not a database " * 1000)

        result = backstory("doctor")

        assert result.code == 1
        assert f"✗ {home}/.backstory/raw.db is damaged (file is not a database)" in result.out
        assert "fix: move it away and run backstory sync" in result.out

    def test_a_missing_index(self, home: Path, backstory: Program) -> None:
        """The index can be made again."""
        backstory("sync")
        shutil.rmtree(home / ".backstory" / "index")

        result = backstory("doctor")

        assert result.code == 1
        assert "fix: run backstory reindex" in result.out
        assert backstory("reindex").code == 0
        assert backstory("doctor").code == 0

"""The record's schema and the index' versions."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from backstory.archive import open_engine
from backstory.archive.base import ArchiveError
from backstory.archive.local import documents
from backstory.archive.local.database import FIRST_VERSION, MIGRATIONS
from backstory.archive.spans import Window
from backstory.library import Library
from tests.transcripts import Transcript

_VERSION = FIRST_VERSION + len(MIGRATIONS) - 1


class TestSchema:
    """Versioned by `user_version`; several processes may open a new home at once."""

    def test_version(self, tmp_path: Path) -> None:
        open_engine("local", tmp_path).close()
        database = sqlite3.connect(tmp_path / "archive.db")
        assert database.execute("PRAGMA user_version").fetchone() == (_VERSION,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        database.close()

    def test_a_newer_archive_is_refused(self, tmp_path: Path) -> None:
        open_engine("local", tmp_path).close()
        database = sqlite3.connect(tmp_path / "archive.db")
        database.execute(f"PRAGMA user_version = {_VERSION + 1}")
        database.close()
        with pytest.raises(ArchiveError, match="newer Backstory"):
            open_engine("local", tmp_path)

    def test_one_from_before_the_first_release_is_refused(self, tmp_path: Path) -> None:
        """And left as it is."""
        open_engine("local", tmp_path).close()
        for name in ("archive.db", "traces.db"):
            with closing(sqlite3.connect(tmp_path / name)) as database:
                (version,) = database.execute("PRAGMA user_version").fetchone()
                database.execute("PRAGMA user_version = 2")
            with pytest.raises(ArchiveError, match=f"{name} is of a Backstory before its first release"):
                open_engine("local", tmp_path).spans.usage(Window())
            with closing(sqlite3.connect(tmp_path / name)) as database:
                assert database.execute("PRAGMA user_version").fetchone() == (2,)
                database.execute(f"PRAGMA user_version = {version}")

    def test_many_first_starts(self, tmp_path: Path) -> None:
        code = "import sys; from pathlib import Path; from backstory.library import Library\n"
        code += "library = Library(Path(sys.argv[1])); library.catch_up(); print(library.archive.counts().events)"
        processes = [
            subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        assert [process.communicate(timeout=60)[0] for process in processes] == ["0\n"] * 4
        assert {process.returncode for process in processes} == {0}


class TestIndexVersions:
    """An index of another version answers until the new one is built beside it and swapped in."""

    def test_rebuilt(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = tmp_path / "home"
        Transcript("one").prompt("needle").write(home)
        with Library(tmp_path / "b", agents_home=home, environ={}) as library:
            library.sync()
        old = {path.name for path in (tmp_path / "b" / "index" / "events").iterdir()}
        newer = msgspec.structs.replace(documents.EVENTS, version=documents.EVENTS.version + 1)
        monkeypatch.setattr("backstory.archive.local.archive.EVENTS", newer)
        with Library(tmp_path / "b", agents_home=home, environ={}) as library:
            answer = library.search("needle")
            assert len(answer["data"]["results"]) == 1
            assert any("index" in warning for warning in answer["warnings"])
            library.sync()
            answer = library.search("needle")
            assert len(answer["data"]["results"]) == 1
            assert answer["warnings"] == []
        new = {path.name for path in (tmp_path / "b" / "index" / "events").iterdir()}
        assert new & old == {"current"}

    def test_not_readable_any_more(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An index that lacks a field of the new one does not answer, and says so."""
        home = tmp_path / "home"
        Transcript("one").prompt("needle").write(home)
        with Library(tmp_path / "b", agents_home=home, environ={}) as library:
            library.sync()
        version = documents.EVENTS.version + 1
        newer = msgspec.structs.replace(documents.EVENTS, version=version, readable_from=version)
        monkeypatch.setattr("backstory.archive.local.archive.EVENTS", newer)
        with Library(tmp_path / "b", agents_home=home, environ={}) as library:
            answer = library.search("needle")
            assert answer["data"]["results"] == []
            assert any("index" in warning for warning in answer["warnings"])
            library.sync()
            assert len(library.search("needle")["data"]["results"]) == 1

    def test_a_reader_follows_a_swap(self, tmp_path: Path) -> None:
        home = tmp_path / "home"
        Transcript("one").prompt("needle").write(home)
        with Library(tmp_path / "b", agents_home=home, environ={}) as reader:
            reader.sync()
            assert reader.search("needle")["data"]["results"]
            with Library(tmp_path / "b", agents_home=home, environ={}) as other:
                assert other.reindex() == 1
                Transcript("two").prompt("haystack").write(home)
                other.sync()
            assert reader.search("needle")["data"]["results"]
            assert reader.search("haystack")["data"]["results"]

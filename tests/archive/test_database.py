"""The record's schema and the index' versions."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import tantivy

from backstory.archive import open_engine
from backstory.archive.base import ArchiveError, FilesRequest
from backstory.archive.local import documents
from backstory.archive.local.database import MIGRATIONS
from backstory.library import Library
from backstory.model import DEFAULT_TYPES, EVENT_TYPES
from tests.transcripts import Transcript

# The version of archives whose files have no names.
_UNNAMED = 13


class TestSchema:
    """Versioned by `user_version`; several processes may open a new home at once."""

    def test_version(self, tmp_path: Path) -> None:
        open_engine("local", tmp_path).close()
        database = sqlite3.connect(tmp_path / "archive.db")
        assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        database.close()

    def test_files_of_an_older_archive_get_their_names(self, tmp_path: Path) -> None:
        """By the states that were kept with them: session, family, and the sessions that they may copy from."""
        database = sqlite3.connect(tmp_path / "archive.db")
        database.create_function("title_words", 1, str, deterministic=True)
        for migration in MIGRATIONS[:_UNNAMED]:
            database.executescript(migration)
        state = {"ancestors": ["a", 5], "standing": {"family": "f", "after": ["b"]}}
        rows = [("/t/1", "s", json.dumps(state)), ("/t/2", "t", "{}"), ("/t/3", "u", None), ("/t/4", "", None)]
        database.executemany("INSERT INTO file VALUES (?, 'codex', ?, 0, 0, 0, 0, x'', ?, 0, NULL, 0)", rows)
        database.execute(f"PRAGMA user_version = {_UNNAMED}")
        database.commit()
        database.close()

        with Library(tmp_path, environ={}) as library:
            assert {
                name: [row.path for row in library.archive.files(FilesRequest(source="codex", naming=name))]
                for name in ("s", "a", "b", "f", "t", "u", "5")
            } == {**{name: ["/t/1"] for name in "sabf"}, "t": ["/t/2"], "u": ["/t/3"], "5": []}

    def test_a_newer_archive_is_refused(self, tmp_path: Path) -> None:
        open_engine("local", tmp_path).close()
        database = sqlite3.connect(tmp_path / "archive.db")
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        database.close()
        with pytest.raises(ArchiveError, match="newer Backstory"):
            open_engine("local", tmp_path)

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

    def test_before_one_field(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The index of the version with a field for each group of types is searched until it is rebuilt."""
        home = tmp_path / "home"
        Transcript("one").prompt("find the needle").call("Bash", {"command": "needle"}, "").answer("a needle").write(
            home
        )
        with monkeypatch.context() as former:
            kind = msgspec.structs.replace(documents.EVENTS, version=3, build_schema=_former_schema)
            former.setattr("backstory.archive.local.archive.EVENTS", kind)
            former.setattr(documents.EventDocument, "entry", _former_entry)
            with Library(tmp_path / "b", agents_home=home, environ={}) as library:
                library.sync()
        with Library(tmp_path / "b", agents_home=home, environ={}) as library:
            assert len(library.search("needles find needle")["data"]["results"]) == 2
            assert len(library.search("needle", event_types=["tool_call"])["data"]["results"]) == 1
            library.sync()
            assert len(library.search("needles find needle")["data"]["results"]) == 2
            assert library.archive.sync_state().index_behind is False

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


def _former_schema(builder: tantivy.SchemaBuilder) -> None:
    builder.add_unsigned_field("id", fast=True)
    for name in documents.FORMER_FIELDS:
        builder.add_text_field(name, tokenizer_name="words", index_option="position")
    for name in ("session", "turn", "type", "project", "source"):
        builder.add_unsigned_field(name, indexed=True)
    builder.add_integer_field("ts", fast=True)


def _former_entry(document: documents.EventDocument) -> tantivy.Document:
    entry = tantivy.Document()
    entry.add_text("text" if EVENT_TYPES[document.type] in DEFAULT_TYPES else "rest", document.text)
    entry.add_unsigned("turn", documents.turn_number(document.session, document.turn))
    for name in ("id", "session", "type", "project", "source"):
        entry.add_unsigned(name, getattr(document, name))
    entry.add_integer("ts", document.ts)
    return entry

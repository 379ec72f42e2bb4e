"""Sessions that an agent keeps twice: in its database, and in a file that it writes beside it or had before."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backstory.library import Library
from tests.examples import PATIENT
from tests.sources.made_up_homes import Home, golden

_SESSION = "0c0ffee0-0000-4000-8000-000000000001"


class Cursor:
    """The home of a person who uses Cursor's editor, which writes a transcript without ids beside its database."""

    def __init__(self, home: Path) -> None:
        self.library = Library(home / ".backstory", agents_home=home, environ=PATIENT)
        self.database = home / ".config/Cursor/User/globalStorage/state.vscdb"
        self._transcript = home / f".cursor/projects/demo/agent-transcripts/{_SESSION}/{_SESSION}.jsonl"

    def put(self, key: str, value: object) -> None:
        self.database.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.database, isolation_level=None)) as database:
            schema = "(key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)"
            database.execute(f"CREATE TABLE IF NOT EXISTS cursorDiskKV {schema}")
            database.execute("INSERT INTO cursorDiskKV (key, value) VALUES (?, ?)", (key, json.dumps(value)))

    def store(self, *texts: str) -> None:
        """Write the session as a prompt and answers into the database, one bubble after the other."""
        headers = []
        for number, text in enumerate(texts):
            headers.append({"bubbleId": f"b{number}", "type": 2 if number % 2 else 1})
            bubble = {**headers[-1], "text": text, "createdAt": f"2026-01-02T03:04:0{number}.000Z"}
            self.put(f"bubbleId:{_SESSION}:b{number}", bubble)
        composer = {"name": "Imports", "createdAt": 1767323045000, "fullConversationHeadersOnly": headers}
        self.put(f"composerData:{_SESSION}", composer)

    def transcribe(self, *texts: str) -> None:
        self._transcript.parent.mkdir(parents=True, exist_ok=True)
        roles = ("user", "assistant")
        lines = [{"role": roles[number % 2], "message": {"content": text}} for number, text in enumerate(texts)]
        self._transcript.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def texts(self) -> list[list[str]]:
        archive, key = self.library.archive, f"cursor/{_SESSION}"
        return [[event.text for event in archive.events(key, turn.ordinal)] for turn in archive.turns(key)]


@pytest.fixture
def cursor(tmp_path: Path) -> Iterator[Cursor]:
    cursor = Cursor(tmp_path)
    yield cursor
    cursor.library.close()


class TestBoth:
    """The database has the messages with their ids: the file beside it adds nothing."""

    def test_whatever_comes_first(self, tmp_path: Path) -> None:
        """The archive holds the session as the database has it, once."""

        def store(cursor: Cursor) -> None:
            cursor.store("sort them", "Sorted.")

        def begin(cursor: Cursor) -> None:
            cursor.transcribe("sort them", "Sorted.")

        def go_on(cursor: Cursor) -> None:
            cursor.transcribe("sort them", "Sorted.", "thanks")

        orders: tuple[tuple[Callable[[Cursor], None], ...], ...] = (
            (store, begin, go_on),
            (begin, store, go_on),
            (begin, go_on, store),
        )
        for number, (first, second, third) in enumerate(orders):
            for syncs in range(4):
                cursor = Cursor(tmp_path / f"{number} {syncs}")
                first(cursor)
                if syncs & 1:
                    cursor.library.sync()
                second(cursor)
                if syncs & 2:
                    cursor.library.sync()
                third(cursor)
                assert cursor.library.sync().errors == 0
                assert cursor.texts() == [["sort them", "Sorted."]], (number, syncs)
                assert cursor.library.sync().files == 0
                cursor.library.close()

    def test_a_session_that_goes_on(self, cursor: Cursor) -> None:
        """What is new comes from the database, also while files are watched."""
        cursor.store("sort them", "Sorted.")
        cursor.transcribe("sort them", "Sorted.")
        cursor.library.sync()
        cursor.transcribe("sort them", "Sorted.", "and now?", "Done.")
        cursor.store("sort them", "Sorted.", "and now?", "Done.")
        cursor.library.catch_up()
        assert cursor.texts() == [["sort them", "Sorted."], ["and now?", "Done."]]

    def test_a_database_without_the_messages(self, cursor: Cursor) -> None:
        """Where it only knows that there is such a session, the file is read."""
        cursor.store()
        cursor.transcribe("sort them", "Sorted.")
        cursor.library.sync()
        assert cursor.texts() == [["sort them", "Sorted."]]


class TestBackups:
    def test_a_session_that_goes_on_from_a_backup(self, cursor: Cursor) -> None:
        """Messages that come after it are read, although their rows have lower numbers than those that were read."""
        cursor.store("sort them", "Sorted.")
        backup = cursor.database.read_bytes()
        for _ in range(20):
            cursor.store("sort them", "Sorted.")
        cursor.library.sync()
        cursor.database.write_bytes(backup)
        cursor.store("sort them", "Sorted.", "and now?", "Done.")
        cursor.library.sync()
        assert cursor.texts() == [["sort them", "Sorted."], ["and now?", "Done."]]


class TestFilesThatADatabaseTookIn:
    def test_sessions_of_goose(self, tmp_path: Path) -> None:
        """A file from before there was a database is left out where the database has its session."""
        home = Home("goose", tmp_path)
        folder = tmp_path / ".local/share/goose/sessions"
        shutil.copy(folder / "20250102_030405.jsonl", folder / "20260102_1.jsonl")
        home.library.sync()
        assert home.show() == golden("goose")
        home.library.close()

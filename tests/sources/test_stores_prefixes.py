"""Databases and rewritten files that are read while they are written end in the same archive as when they are read
whole."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from made_up_homes import Home, golden, statements

pytestmark = pytest.mark.usefixtures("utc")

_SESSION_TIME = """UPDATE session SET time_updated = max(time_created,
    ifnull((SELECT max(time_updated) FROM part WHERE session_id = session.id), 0),
    ifnull((SELECT max(time_updated) FROM message WHERE session_id = session.id), 0))"""
# Databases, and the SQL by which the agent itself keeps counters and times with every row that it writes.
DATABASES = {
    "crush": (
        """UPDATE sessions SET updated_at = max(created_at,
        ifnull((SELECT max(updated_at) FROM messages WHERE session_id = sessions.id), 0))""",
    ),
    "cursor": (),
    "goose": (),
    "hermes": (),
    "kilo": (_SESSION_TIME,),
    "kiro": ("UPDATE conversations_v2 SET updated_at = updated_at + 1",),
    "openclaw": (),
    "opencode": ("UPDATE event_sequence SET seq = seq + 1", _SESSION_TIME),
    "warp": (),
    "windsurf": (),
    "zed": (),
}
# Documents in the cells of a database: its table and column, and the lists in a document that grow.
CELLS = {
    "kiro": ("conversations_v2", "value", ("history",)),
    "windsurf": ("ItemTable", "value", ("tabs", 0, "bubbles")),
    "zed": ("threads", "data", ("messages",)),
}
DOCUMENTS = ("amp", "auggie", "claude-ai", "cline", "continue", "copilot-chat", "kilo", "roo-code")
LINES = ("aider", "copilot-chat", "goose", "kiro")
FILES = ("cline", "kilo", "opencode-tree", "openhands", "roo-code")
_LISTS = ("messages", "history", "chatHistory", "chat_messages", "requests")


class Growing:
    """A home whose databases get their rows one after the other."""

    def __init__(self, agent: str, folder: Path) -> None:
        self.home = Home(agent, folder, filled=False)
        self._touch = DATABASES[agent]
        self._rows: list[tuple[Path, str]] = []
        for path in self.home.paths():
            if path.suffix != ".sql":
                self.home.write(path)
                continue
            target = (folder / path).with_suffix("")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._rows += ((target, row) for row in statements((self.home.made_up / path).read_text("utf-8")))

    def __len__(self) -> int:
        return len(self._rows)

    def write(self, number: int) -> None:
        """Add a row, and what the agent changes with it."""
        target, row = self._rows[number]
        with closing(sqlite3.connect(target)) as database, database:
            database.execute(row)
            if not row.startswith("CREATE"):
                for statement in self._touch:
                    database.execute(statement)


# Every row costs a sync: those of the other databases are read one by one by `make test-slow`.
_ONE_BY_ONE = [
    agent if agent in ("crush", "opencode") else pytest.param(agent, marks=pytest.mark.slow) for agent in DATABASES
]


class TestGrowingDatabase:
    @pytest.mark.parametrize("agent", _ONE_BY_ONE)
    def test_rows_that_come_one_by_one(self, agent: str, tmp_path: Path) -> None:
        """A database that is read after each row ends in the same archive as one that is read whole."""
        growing = Growing(agent, tmp_path / "home")
        for number in range(len(growing)):
            growing.write(number)
            growing.home.library.sync()
        assert growing.home.show() == golden(agent)
        assert growing.home.library.sync().files == 0

    @pytest.mark.parametrize("agent", DATABASES)
    def test_a_prefix_and_the_rest(self, agent: str, tmp_path: Path) -> None:
        """A database that is read twice meanwhile, wherever that is, ends in the same archive."""
        growing = Growing(agent, tmp_path / "home")
        cuts = random.Random(agent).choices(range(len(growing)), k=2)
        for number in range(len(growing)):
            growing.write(number)
            if number in cuts:
                growing.home.library.sync()
        growing.home.library.sync()
        assert growing.home.show() == golden(agent)


@pytest.mark.parametrize("agent", CELLS)
class TestGrowingCell:
    def test_documents_that_grow_message_by_message(self, agent: str, tmp_path: Path) -> None:
        """A document in a database that is rewritten with each message ends in the same archive."""
        table, column, place = CELLS[agent]
        home = Home(agent, tmp_path / "home")
        stored = next(path for path in home.paths() if path.suffix == ".sql")
        with closing(sqlite3.connect((home.folder / stored).with_suffix(""))) as database:
            for rowid, value in database.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                for document in _prefixes(value, place):
                    with database:
                        database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (document, rowid))
                        for touch in DATABASES[agent]:
                            database.execute(touch)
                    home.library.sync()
        assert home.show() == golden(agent)


def _prefixes(value: object, place: tuple[str | int, ...]) -> Iterator[str]:
    if not isinstance(value, str):  # compressed
        return
    document = json.loads(value)
    entries = document
    for step in place:
        entries = entries[step]
    whole = list(entries)
    for cut in range(1, len(whole) + 1):
        entries[:] = whole[:cut]
        yield json.dumps(document)


@pytest.mark.parametrize("agent", DOCUMENTS)
class TestRewrittenDocument:
    def test_documents_that_grow_message_by_message(self, agent: str, tmp_path: Path) -> None:
        """A document that is rewritten with each message ends in the same archive as one that is read whole."""
        home = Home(agent, tmp_path / "home")
        for path in home.paths():
            target = home.folder / path
            document = json.loads(target.read_text("utf-8")) if path.suffix == ".json" else None
            for entries, cut in _growing(document):
                rest, entries[cut:] = entries[cut:], []
                target.write_text(json.dumps(document))
                home.library.sync()
                entries += rest
            if path.suffix != ".sql":
                home.write(path)
        home.library.sync()
        assert home.show() == golden(agent)


def _growing(document: object) -> Iterator[tuple[list[object], int]]:
    """The list of messages in a document, and the numbers of those that are there as it grows."""
    entries = document if isinstance(document, list) else None
    if isinstance(document, dict):
        entries = next((document[name] for name in _LISTS if isinstance(document.get(name), list)), None)
    for cut in range(1, len(entries or ())):
        assert entries is not None
        yield entries, cut


@pytest.mark.parametrize("agent", LINES)
class TestGrowingLines:
    def test_lines_that_come_one_by_one(self, agent: str, tmp_path: Path) -> None:
        """A text that is read again when it has grown ends in the same archive, whatever lines were there."""
        home = Home(agent, tmp_path / "home")
        for path in home.paths():
            if path.suffix not in (".md", ".jsonl"):
                continue
            lines = (home.made_up / path).read_bytes().splitlines(keepends=True)
            for cut in range(1, len(lines) + 1):
                (home.folder / path).write_bytes(b"".join(lines[:cut]))
                home.library.sync()
        assert home.show() == golden(agent)


@pytest.mark.parametrize("agent", FILES)
class TestGrowingFolder:
    def test_files_that_come_one_by_one(self, agent: str, tmp_path: Path) -> None:
        """A session of many files ends in the same archive, in whichever order they come."""
        home = Home(agent, tmp_path / "home", filled=False)
        for path in home.paths():
            home.write(path)
            home.library.sync()
        assert home.show() == golden(agent)


class TestTimesOfSeconds:
    """A store whose times have no fractions of a second."""

    def test_a_message_of_crush_that_grows_within_a_second(self, tmp_path: Path) -> None:
        """It is read as it is now, although neither its time nor the number of messages has changed."""
        home = Home("crush", tmp_path)
        home.library.sync()
        with closing(sqlite3.connect(tmp_path / "demo/.crush/crush.db", isolation_level=None)) as database:
            newest = "id = (SELECT id FROM messages WHERE session_id = 'crush-1' ORDER BY rowid DESC LIMIT 1)"
            grown = json.dumps([{"type": "text", "data": {"text": "And so it went on."}}])
            database.execute(f"UPDATE messages SET parts = ? WHERE {newest}", (grown,))
        assert "And so it went on." not in home.show()
        home.library.sync()
        assert "And so it went on." in home.show()
        home.library.close()

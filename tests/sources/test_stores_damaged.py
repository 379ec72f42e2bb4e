"""Databases and files that are damaged, cut, locked or open: each costs itself at most, and is left as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from made_up_homes import Home, golden
from store_files import AGENTS, STORES

pytestmark = pytest.mark.usefixtures("utc")

WITH_DATABASES = [agent for agent in AGENTS if list((STORES / agent).rglob("*.sql"))]
BROKEN = b'{"kind": "Prompt", "data": {"content\n'
DAMAGED = "x'28b52ffd" + 16 * "ff" + "'"


@pytest.fixture
def home(agent: str, tmp_path: Path) -> Iterator[Home]:
    home = Home(agent, tmp_path / "home")
    yield home
    home.library.close()


def databases(home: Home) -> list[Path]:
    return [home.folder / path.with_suffix("") for path in home.paths() if path.suffix == ".sql"]


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


@pytest.mark.parametrize("agent", WITH_DATABASES)
class TestDatabases:
    def test_one_that_is_still_copied(self, agent: str, home: Home) -> None:
        """What a part of it holds is not taken for all of it, wherever it ends."""
        whole = {path: path.read_bytes() for path in databases(home)}
        for share in (0.3, 0.9, 0.99):
            for path, data in whole.items():
                path.write_bytes(data[: int(len(data) * share)])
            assert home.library.sync().errors
        for path, data in whole.items():
            path.write_bytes(data)
        home.library.sync()
        assert home.show() == golden(agent)

    def test_one_that_is_locked(self, agent: str, home: Home) -> None:
        """It is read when it is free."""
        for path in databases(home):
            with closing(sqlite3.connect(path, isolation_level=None)) as database:
                database.execute("BEGIN EXCLUSIVE")
                assert home.library.sync().errors
        assert home.library.sync().errors == 0
        assert home.show() == golden(agent)

    def test_one_that_is_written(self, agent: str, home: Home) -> None:
        """Reading waits for no writer and keeps none from writing. Neither the database nor its log is touched."""
        (path,) = databases(home)
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = wal")
            database.execute("CREATE TABLE more (id)")
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO more VALUES (1)")
            files = [path, path.with_name(f"{path.name}-wal")]
            before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
            assert home.library.sync().errors == 0
            assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in files] == before
            assert home.show() == golden(agent)
            database.execute("COMMIT")


@pytest.mark.parametrize("agent", ["copilot-chat", "kiro"])
class TestLines:
    def test_one_that_is_no_json(self, agent: str, home: Home) -> None:
        """It is counted, and what follows it is read."""
        (path,) = (home.folder / path for path in home.paths() if path.suffix == ".jsonl")
        first, *rest = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join((first, BROKEN, *rest)))
        assert home.library.sync().errors == 1
        assert home.show() == golden(agent)


class TestCompressed:
    """Entries that are compressed."""

    @pytest.mark.parametrize("agent", ["openclaw"])
    def test_one_that_is_damaged(self, home: Home) -> None:
        """It is counted, and what follows it is read, like all other sessions."""
        for path in databases(home):
            execute(path, f"UPDATE transcript_events SET event_zstd = {DAMAGED} WHERE event_zstd IS NOT NULL")
        assert home.library.sync().errors == 1
        read, whole = home.show().splitlines(), golden("openclaw").splitlines()
        assert 0 < len(set(whole) - set(read)) < 5
        assert whole[-1] in read

    @pytest.mark.parametrize("agent", ["zed"])
    def test_a_document(self, home: Home) -> None:
        (path,) = databases(home)
        execute(path, f"UPDATE threads SET data = {DAMAGED} WHERE data_type = 'zstd'")
        assert home.library.sync().errors == 1
        assert home.library.archive.counts().sessions == 1


@pytest.mark.parametrize("agent", ["openhands"])
class TestFolders:
    """Sessions of many files."""

    def test_one_that_is_damaged(self, home: Home) -> None:
        """It is counted, and those after it are read."""
        event(home, "event-00003").write_bytes(b'{"id": "e3", "timest')
        assert home.library.sync().errors == 1
        read = set(home.show().splitlines())
        (lost,) = (line for line in golden("openhands").splitlines() if line not in read and "cwd" not in line)
        assert "mkdir: box exists" in lost

    def test_one_that_is_still_written(self, home: Home) -> None:
        """It is read when it is whole."""
        last = event(home, "event-00005")
        whole = last.read_bytes()
        last.write_bytes(whole[:50])
        assert home.library.sync().errors == 1
        last.write_bytes(whole)
        assert home.library.sync().errors == 0
        assert home.show() == golden("openhands")


def event(home: Home, name: str) -> Path:
    (path,) = (path for path in home.paths() if path.name.startswith(name))
    return home.folder / path

"""SQLite files: what every database of Backstory relies on."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from backstory.sqlite import (
    FULL_DISK,
    Readers,
    TimeoutExceeded,
    Unusable,
    connect,
    explain,
    prepare,
    remove,
    select_in,
    snapshot,
    time_limit,
    transaction,
)

TABLES = ("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)", "ALTER TABLE note ADD COLUMN at INTEGER")

PREPARE = """
import sys
from pathlib import Path
from backstory.sqlite import prepare
sys.stdin.readline()
prepare(Path(sys.argv[1]), ("CREATE TABLE one (id)", "CREATE TABLE two (id)"))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    prepare(tmp_path / "notes.db", TABLES)
    return tmp_path / "notes.db"


class TestPrepare:
    """A database is created, migrated or refused."""

    def test_a_new_one(self, path: Path) -> None:
        """It is private, in WAL mode and of the newest version."""
        assert path.stat().st_mode & 0o777 == 0o600
        with closing(connect(path, writable=False)) as db:
            assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert db.execute("PRAGMA user_version").fetchone() == (len(TABLES),)

    def test_an_older_one(self, tmp_path: Path) -> None:
        """It keeps its rows and gets the columns that it lacks."""
        old = tmp_path / "old.db"
        prepare(old, TABLES[:1])
        with closing(connect(old, writable=True)) as db:
            db.execute("INSERT INTO note VALUES (1, 'kept')")
        prepare(old, TABLES)
        with closing(connect(old, writable=False)) as db:
            assert db.execute("SELECT text, at FROM note").fetchall() == [("kept", None)]

    def test_a_newer_one(self, path: Path) -> None:
        """It is refused, and left alone."""
        with pytest.raises(Unusable, match=r"notes\.db was written by a newer Backstory"):
            prepare(path, TABLES[:1])

    def test_a_migration_that_fails(self, path: Path) -> None:
        """Nothing of it stays."""
        with pytest.raises(sqlite3.OperationalError):
            prepare(path, (*TABLES, "CREATE TABLE extra (id); CREATE TABLE note (id)"))
        with closing(connect(path, writable=False)) as db:
            assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'extra'").fetchall()

    def test_semicolons_that_end_no_statement(self, tmp_path: Path) -> None:
        script = """
        -- A comment; with a semicolon.
        CREATE TABLE note (text TEXT DEFAULT 'a;b');
        CREATE TRIGGER doubled AFTER INSERT ON note WHEN new.text <> 'x' BEGIN
            INSERT INTO note VALUES ('x'); UPDATE note SET text = 'y' WHERE text = 'x';
        END
        """
        prepare(tmp_path / "notes.db", (script,))
        with closing(connect(tmp_path / "notes.db", writable=True)) as db:
            db.execute("INSERT INTO note DEFAULT VALUES")
            assert db.execute("SELECT text FROM note").fetchall() == [("a;b",), ("y",)]

    def test_several_processes_at_once(self, tmp_path: Path) -> None:
        """All of them succeed, although the switch to WAL does not wait by itself."""
        command = [sys.executable, "-c", PREPARE, str(tmp_path / "shared.db")]
        processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
        errors = [process.communicate(b"go\n")[1] for process in processes]
        assert errors == [b""] * 4


class TestTransaction:
    def test_an_exception_rolls_back(self, path: Path) -> None:
        with closing(connect(path, writable=True)) as db:
            with pytest.raises(sqlite3.IntegrityError), transaction(db):
                db.executemany("INSERT INTO note (id) VALUES (?)", [(1,), (1,)])
            with transaction(db):
                db.execute("INSERT INTO note (text) VALUES ('kept')")
            assert db.execute("SELECT text FROM note").fetchall() == [("kept",)]

    def test_a_snapshot_does_not_see_later_commits(self, path: Path) -> None:
        with closing(connect(path, writable=True)) as writer, closing(connect(path, writable=False)) as reader:
            with snapshot(reader):
                assert reader.execute("SELECT count(*) FROM note").fetchone() == (0,)
                writer.execute("INSERT INTO note (text) VALUES ('new')")
                assert reader.execute("SELECT count(*) FROM note").fetchone() == (0,)
            assert reader.execute("SELECT count(*) FROM note").fetchone() == (1,)

    def test_a_statement_after_its_deadline(self, path: Path) -> None:
        """It is interrupted, and the connection stays usable."""
        endless = "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        with closing(connect(path, writable=False)) as db:
            with pytest.raises(TimeoutExceeded), time_limit(db, time.monotonic()):
                db.execute(endless).fetchone()
            assert db.execute("SELECT 1").fetchone() == (1,)


class TestReaders:
    def test_one_connection_per_thread(self, path: Path) -> None:
        readers = Readers(lambda: connect(path, writable=False))
        found = []
        threads = [threading.Thread(target=lambda: found.append(readers.connection)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert readers.connection is readers.connection
        assert len({id(connection) for connection in (*found, readers.connection)}) == 4
        readers.close()

    def test_a_replaced_file_is_opened_anew(self, path: Path) -> None:
        identity = [1]
        readers = Readers(lambda: connect(path, writable=False), lambda: identity[0])
        first = readers.connection
        identity[0] = 2
        assert readers.connection is not first
        readers.close()

    def test_closed_while_another_thread_reads(self, path: Path) -> None:
        """That thread reads to its end."""
        with closing(connect(path, writable=True)) as db, transaction(db):
            db.executemany("INSERT INTO note (text) VALUES (?)", [("x",)] * 5_000)
        readers = Readers(lambda: connect(path, writable=False))
        begun, closed = threading.Event(), threading.Event()
        counted: list[int] = []

        def read() -> None:
            rows = readers.connection.execute("SELECT id FROM note WHERE text = 'x'")
            next(rows)
            begun.set()
            closed.wait(60)
            counted.append(sum(1 for _ in rows))

        thread = threading.Thread(target=read)
        thread.start()
        begun.wait(60)
        readers.close()
        closed.set()
        thread.join()
        assert counted == [4_999]

    def test_an_answer_is_kept_until_another_connection_commits(self, path: Path) -> None:
        asked = []

        def count(db: sqlite3.Connection) -> int:
            asked.append(db)
            return int(db.execute("SELECT count(*) FROM note").fetchone()[0])

        readers = Readers(lambda: connect(path, writable=False))
        before = readers.read(count)
        assert readers.read(count) == before
        assert len(asked) == 1
        with closing(connect(path, writable=True)) as db, transaction(db):
            db.execute("INSERT INTO note (id) VALUES (77)")
            assert readers.read(count) == before
        assert readers.read(count) == before + 1
        readers.close()


class TestSmallThings:
    def test_many_keys(self, path: Path) -> None:
        """More than one statement may have as parameters."""
        with closing(connect(path, writable=True)) as db, transaction(db):
            db.executemany("INSERT INTO note (id) VALUES (?)", [(n,) for n in range(5_000)])
            assert len(select_in(db, "SELECT id FROM note WHERE id IN ({})", range(5_000))) == 5_000

    def test_pragmas(self, path: Path) -> None:
        with closing(connect(path, writable=True, pragmas={"synchronous": "FULL"})) as db:
            assert db.execute("PRAGMA synchronous").fetchone() == (2,)
            assert db.execute("PRAGMA secure_delete").fetchone() == (1,)

    def test_remove(self, path: Path) -> None:
        path.with_name("notes.db-wal").touch()
        remove(path)
        assert list(path.parent.iterdir()) == []

    def test_explain(self) -> None:
        full = sqlite3.OperationalError("database or disk is full")
        full.sqlite_errorcode = sqlite3.SQLITE_FULL
        assert explain(full, "the store") == FULL_DISK
        busy = sqlite3.OperationalError("database is locked")
        busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
        assert explain(busy, "the store") == "another process keeps the store locked (database is locked): try again"
        shared = sqlite3.OperationalError("disk I/O error")
        shared.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
        assert explain(shared, "the store") == FULL_DISK
        assert explain(KeyError("x"), "the store") is None

"""The store's files: private, migrated, and free of what was purged."""

from __future__ import annotations

import random
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from backstory.config import CapsuleSettings
from backstory.toolsets.capsules import store
from backstory.toolsets.capsules.requests import (
    DeleteInput,
    FetchInput,
    PurgeInput,
    SearchInput,
    StoreInput,
    UpdateInput,
)
from backstory.toolsets.capsules.service import Capsules
from backstory.toolsets.capsules.store import Store
from tests.capsule_world import GOOD

OLD = GOOD + "Call getUserName."


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def words(seed: int, count: int) -> list[str]:
    """Words that are in no other text."""
    numbers = random.Random(seed)
    return [f"zq{numbers.getrandbits(60):x}" for _ in range(count)]


class TestPermissions:
    def test_are_for_the_owner_only(self, tmp_path: Path, umask: None) -> None:
        """The database, its log files and its folder are private."""
        home = tmp_path / "home"
        capsules = Capsules(home)
        capsules.store(StoreInput(capsule_text=GOOD))

        files = {path.name: mode_of(path) for path in home.iterdir()}
        assert {"capsules.db", "capsules.db-wal", "capsules.db-shm"} <= set(files)
        assert set(files.values()) == {0o600}
        assert mode_of(home) == 0o700
        capsules.close()

    def test_are_mended(self, tmp_path: Path) -> None:
        """A database that was copied with other permissions becomes private."""
        with closing(Capsules(tmp_path)) as capsules:
            capsules.store(StoreInput(capsule_text=GOOD))
        (tmp_path / "capsules.db").chmod(0o644)
        with closing(Capsules(tmp_path)) as capsules:
            capsules.store(StoreInput(capsule_text=GOOD))
            assert {mode_of(path) for path in tmp_path.glob("capsules.db*")} == {0o600}

    @pytest.fixture
    def umask(self) -> object:
        import os

        before = os.umask(0)
        yield
        os.umask(before)


class TestPurge:
    @pytest.mark.parametrize("seed", range(3))
    def test_leaves_no_word_behind(self, tmp_path: Path, seed: int) -> None:
        """No file of the store has a word of a purged version, name or tag; other capsules keep theirs."""
        numbers = random.Random(seed)
        settings = CapsuleSettings(max_chars=100_000)
        secret, kept = words(seed, 40), words(seed + 1000, 40)

        def text(vocabulary: list[str]) -> str:
            size = numbers.choice((5, 200, 1500))
            return " ".join([*numbers.choices(vocabulary, k=size), *vocabulary])

        with closing(Capsules(tmp_path, settings)) as capsules:
            ids = {"secret": list[str](), "kept": list[str]()}
            for _ in range(60):
                kind, vocabulary = numbers.choice((("secret", secret), ("kept", kept)))
                capsule = capsules.store(
                    StoreInput(
                        capsule_text=text(vocabulary),
                        allow_thin=True,
                        name=f"{numbers.choice(vocabulary)} {numbers.random()}",
                        tags=[numbers.choice(vocabulary)],
                    )
                )
                ids[kind].append(capsule.id)
                other = numbers.choice(ids[kind])
                capsules.update(UpdateInput(id=other, capsule_text=text(vocabulary), allow_thin=True))
            for capsule_id in ids["secret"]:
                capsules.delete(DeleteInput(id=capsule_id))
            assert capsules.purge(PurgeInput()).purged == len(ids["secret"])
            found = b"".join(_read_elsewhere(path) for path in tmp_path.iterdir())

        assert [word for word in secret if word.encode() in found] == []
        assert all(word.encode() in found for word in kept)

    def test_what_others_still_read_is_cleared_by_the_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A purge beside a long reader says that text is left; the next purge removes it."""
        monkeypatch.setattr(store, "_SCRUB_MS", 20)
        (secret,) = words(7, 1)
        with closing(Capsules(tmp_path)) as capsules, closing(Store(tmp_path)) as other:
            capsules.store(StoreInput(capsule_text=secret, allow_thin=True, name="a"))
            capsules.delete(DeleteInput(name="a"))
            with other.reading() as reader:
                assert reader.workspaces(1) == []
                first = capsules.purge(PurgeInput())
            second = capsules.purge(PurgeInput())
            found = b"".join(_read_elsewhere(path) for path in tmp_path.iterdir())

        assert (first.purged, second.purged) == (1, 0)
        assert "purge again" in first.message
        assert "purge again" not in second.message
        assert secret.encode() not in found


def _read_elsewhere(path: Path) -> bytes:
    """A file's bytes. Reading it here would drop the locks this process holds on it."""
    import subprocess

    return subprocess.run(["cat", str(path)], check=True, capture_output=True).stdout


class TestSchema:
    def test_is_versioned(self, tmp_path: Path) -> None:
        """The file is in WAL mode, and names of live capsules have a unique index."""
        store_one(tmp_path)
        with closing(sqlite3.connect(tmp_path / "capsules.db")) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (len(store._MIGRATIONS),)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'active_names'").fetchone()
            assert sql.startswith("CREATE UNIQUE INDEX")
            assert "deleted_us IS NULL" in sql

    def test_a_failed_migration_leaves_nothing_half_done(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next start finds the version it had."""
        store_one(tmp_path)
        broken = "ALTER TABLE capsules ADD COLUMN extra TEXT; SELECT * FROM nowhere;"
        with monkeypatch.context() as patched:
            patched.setattr(store, "_MIGRATIONS", (*store._MIGRATIONS, broken))
            with pytest.raises(sqlite3.OperationalError), Store(tmp_path).reading():
                pass
        with closing(sqlite3.connect(tmp_path / "capsules.db")) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (len(store._MIGRATIONS),)
            columns = [row[1] for row in connection.execute("PRAGMA table_info(capsules)")]
            assert "extra" not in columns

    def test_of_every_earlier_version_is_migrated(self, tmp_path: Path) -> None:
        """A capsule of an earlier schema is fetched, found, changed and purged after the migration.

        One of the current schema is what a process leaves that is killed before it indexes the words anew.
        """
        for version in range(1, len(store._MIGRATIONS) + 1):
            home = tmp_path / str(version)
            home.mkdir()
            with closing(sqlite3.connect(home / "capsules.db")) as connection:
                for migration in store._MIGRATIONS[:version]:
                    connection.executescript(migration)
                insert_by_hand(connection, version)
                connection.execute(f"PRAGMA user_version = {version}")
            with closing(Capsules(home)) as capsules:
                assert capsules.fetch(FetchInput(name="a")).capsule_text == OLD
                assert capsules.fetch(FetchInput(name="a")).updated_at == 1_700_000_000
                for query in ("work", "getUserName", '"user name"'):
                    assert [item.name for item in capsules.search(SearchInput(query=query)).items] == ["a"]
                capsules.update(UpdateInput(name="a", title="New"))
                capsules.delete(DeleteInput(name="a"))
                assert capsules.purge(PurgeInput()).purged == 1
            with closing(sqlite3.connect(home / "capsules.db")) as connection:
                tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
                assert "changes" not in tables


def store_one(home: Path) -> None:
    with closing(Capsules(home)) as capsules:
        capsules.store(StoreInput(capsule_text=GOOD, name="a"))


def insert_by_hand(connection: sqlite3.Connection, version: int) -> None:
    """A capsule as an earlier version of Backstory wrote it."""
    values = {
        "row": 1,
        "id": "01HZZZZZZZZZZZZZZZZZZZZZ01",
        "workspace_raw": "default",
        "workspace_norm": "default",
        "name_raw": "a",
        "name_norm": "a",
        "title": "a",
        "capsule_chars": len(OLD),
        "tokens_estimate": 1,
        "allow_thin": 0,
        "version": 1,
        "created_at": 1_700_000_000,
        "updated_us": 1_700_000_000_000_000,
    } | ({"updated_at": 1_700_000_000} if version > 1 else {})
    places = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO capsules ({', '.join(values)}) VALUES ({places})", list(values.values()))
    connection.execute("INSERT INTO texts VALUES (1, ?)", [OLD])
    connection.execute("INSERT INTO words (rowid, name, title, tags, text) VALUES (1, 'a', 'a', '', ?)", [OLD])
    if version < 3:
        connection.execute("INSERT INTO changes (id) VALUES ('01HZZZZZZZZZZZZZZZZZZZZZ01')")
    connection.commit()

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
    PurgeInput,
    SearchInput,
    StoreInput,
    UpdateInput,
)
from backstory.toolsets.capsules.service import Capsules
from backstory.toolsets.capsules.store import Store
from tests.capsule_world import GOOD


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
            assert connection.execute("PRAGMA user_version").fetchone() == (store._VERSION,)
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
            patched.setattr(store, "_VERSION", store._VERSION + 1)
            with pytest.raises(sqlite3.OperationalError), Store(tmp_path).reading():
                pass
        with closing(sqlite3.connect(tmp_path / "capsules.db")) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (store._VERSION,)
            columns = [row[1] for row in connection.execute("PRAGMA table_info(capsules)")]
            assert "extra" not in columns

    def test_words_that_were_not_indexed_are(self, tmp_path: Path) -> None:
        """A process that is killed before it indexes the words anew leaves them to the next one."""
        with closing(Capsules(tmp_path)) as capsules:
            capsules.store(StoreInput(capsule_text=GOOD + "Call getUserName.", name="a"))
        with closing(sqlite3.connect(tmp_path / "capsules.db")) as connection:
            connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
            connection.execute("UPDATE state SET words_version = 0")
            connection.commit()
        with closing(Capsules(tmp_path)) as capsules:
            assert [item.name for item in capsules.search(SearchInput(query="getUserName")).items] == ["a"]


def store_one(home: Path) -> None:
    with closing(Capsules(home)) as capsules:
        capsules.store(StoreInput(capsule_text=GOOD, name="a"))

"""Moving in from Moss: its database, of either schema version, is read and left as it is."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.capsule_world import GOOD, World, handler_call, record

# As Moss creates them: first without the columns for workflows, later with them and a search index.
COLUMNS = """id TEXT PRIMARY KEY, workspace_raw TEXT NOT NULL, workspace_norm TEXT NOT NULL, name_raw TEXT,
    name_norm TEXT, title TEXT, capsule_text TEXT NOT NULL, capsule_chars INTEGER NOT NULL,
    tokens_estimate INTEGER NOT NULL, tags_json TEXT, source TEXT, {workflow} created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, deleted_at INTEGER"""
FIRST = COLUMNS.format(workflow="")
SECOND = COLUMNS.format(workflow="run_id TEXT, phase TEXT, role TEXT,")


def insert(connection: sqlite3.Connection, **fields: Any) -> None:
    row = record(**fields)
    row["tags_json"] = json.dumps(tags) if (tags := row.pop("tags")) is not None else None
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO capsules ({', '.join(row)}) VALUES ({marks})", list(row.values()))
    connection.commit()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "backstory", handler_call(tmp_path / "backstory"))


@pytest.fixture
def moss() -> Path:
    """The path of Moss' database."""
    path = Path("~/.moss/moss.db").expanduser()
    path.parent.mkdir(mode=0o700)
    return path


@pytest.fixture(params=[FIRST, SECOND], ids=["first schema", "second schema"])
def database(request: pytest.FixtureRequest, moss: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(moss)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"CREATE TABLE capsules ({request.param})")
        if request.param == SECOND:
            connection.execute("CREATE VIRTUAL TABLE capsules_fts USING fts5 (title, capsule_text)")
            connection.execute("PRAGMA user_version = 2")
        yield connection


class TestMovingIn:
    def test_everything_comes_along(self, world: World, database: sqlite3.Connection) -> None:
        """Live and deleted capsules, with their ids, names, tags and times."""
        insert(database, number=1, tags=["x", "y"], source="claude-code")
        insert(database, number=2, deleted_at=1_700_000_900)
        insert(database, number=3, name_raw=None, name_norm=None, title=None, workspace_raw="My Project")
        answer = world.ok("import", path="~/.moss/moss.db", format="moss-db")

        assert answer == {"imported": 3, "skipped": 0, "errors": []}
        first = world.ok("fetch", name="task 1")
        assert (first["id"], first["tags"], first["source"]) == (record(1)["id"], ["x", "y"], "claude-code")
        assert (first["created_at"], first["updated_at"]) == (record(1)["created_at"], record(1)["updated_at"])
        assert first["workspace_norm"] == "default"
        assert world.ok("fetch", id=record(2)["id"], include_deleted=True)["deleted_at"] == 1_700_000_900
        assert world.ok("fetch", id=record(3)["id"])["workspace"] == "My Project"
        again = world.ok("import", path="~/.moss/moss.db", format="moss-db")
        assert again == {"imported": 0, "skipped": 3, "errors": []}

    def test_nothing_of_theirs_is_written(self, world: World, database: sqlite3.Connection, moss: Path) -> None:
        """Neither the database nor its log files change; capsules that are only in the log are read."""
        insert(database, number=1)
        before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in moss.parent.iterdir()}
        assert world.ok("import", path=str(moss), format="moss-db")["imported"] == 1

        assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in moss.parent.iterdir()} == before

    def test_its_thin_capsules_can_be_allowed(self, world: World, database: sqlite3.Connection) -> None:
        """An argument allows thin capsules, which Moss does not mark."""
        insert(database, number=1, capsule_text="thin")
        insert(database, number=2)
        refused = world.ok("import", path="~/.moss/moss.db", format="moss-db")

        assert refused["imported"] == 0
        assert [(error["line"], error["code"]) for error in refused["errors"]] == [(1, "CAPSULE_TOO_THIN")]
        assert "allow_thin" in refused["errors"][0]["message"]
        assert world.ok("import", path="~/.moss/moss.db", format="moss-db", allow_thin=True)["imported"] == 2
        exported = Path(world.ok("export")["path"]).read_text("utf-8")
        assert exported.count('"allow_thin":true') == 1

    def test_a_bad_row_is_an_entry(self, world: World, database: sqlite3.Connection) -> None:
        insert(database, number=1)
        insert(database, number=2)
        insert(database, number=3)
        database.execute("UPDATE capsules SET tags_json = '[' WHERE name_raw = 'Task 1'")
        database.execute("UPDATE capsules SET capsule_text = X'FF00' WHERE name_raw = 'Task 2'")
        database.commit()
        answer = world.ok("import", path="~/.moss/moss.db", format="moss-db", mode="replace")

        assert answer["imported"] == 1
        assert [error["line"] for error in answer["errors"]] == [1, 2]


class TestWorkflow:
    def test_fields_of_the_second_schema(self, world: World, moss: Path) -> None:
        with closing(sqlite3.connect(moss)) as connection:
            connection.execute(f"CREATE TABLE capsules ({SECOND})")
            insert(connection, number=1, run_id="r", phase="p", role="q")
        world.ok("import", path=str(moss), format="moss-db")

        item = world.ok("fetch", name="task 1")
        assert (item["run_id"], item["phase"], item["role"]) == ("r", "p", "q")


class TestRefusals:
    def test_only_on_request(self, world: World, moss: Path) -> None:
        """A database is not an export, and Moss' folder is not an allowed one."""
        moss.write_bytes(b"")
        export = moss.with_name("backup.jsonl")
        export.write_text(json.dumps(record(1)))

        assert world.refused("import", path=str(moss))["details"]["field"] == "path"
        assert world.refused("import", path=str(export))["details"]["field"] == "path"
        assert world.refused("import", path="/elsewhere/moss.db", format="moss-db")["details"]["field"] == "path"

    @pytest.mark.parametrize("content", [b"", b"not a database at all" * 300, b"SQLite format 3\x00" + b"\x01" * 4000])
    def test_something_else(self, world: World, moss: Path, content: bytes) -> None:
        moss.write_bytes(content)
        error = world.refused("import", path=str(moss), format="moss-db")

        assert (error["code"], error["details"]) == ("INVALID_REQUEST", {"field": "path"})

    def test_another_database(self, world: World, moss: Path) -> None:
        with closing(sqlite3.connect(moss)) as connection:
            connection.execute("CREATE TABLE capsules (id, text)")

        assert "not a Moss database" in world.refused("import", path=str(moss), format="moss-db")["message"]

    def test_a_missing_one(self, world: World, moss: Path) -> None:
        error = world.refused("import", path=str(moss), format="moss-db")

        assert (error["code"], error["details"]) == ("NOT_FOUND", {"path": str(moss)})

    def test_a_symlink(self, world: World, moss: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.db"
        with closing(sqlite3.connect(other)) as connection:
            connection.execute(f"CREATE TABLE capsules ({FIRST})")
            insert(connection, number=1, capsule_text=GOOD)
        moss.symlink_to(other)

        assert "symlink" in world.refused("import", path=str(moss), format="moss-db")["message"]

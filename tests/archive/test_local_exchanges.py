"""The index of whole exchanges."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from backstory.archive import open_engine
from backstory.archive.base import Archive, ExchangesRequest
from backstory.archive.local.database import MIGRATIONS
from backstory.library import Library
from backstory.sqlite import prepare
from tests.conversation_world import Session
from tests.transcripts import Transcript


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def library(home: Path) -> Library:
    return Library(home / "backstory", agents_home=home, environ={})


def found(archive: Archive, query: str) -> list[tuple[str, int]]:
    hits = archive.exchanges(ExchangesRequest(query=query, limit=10))
    return [(hit.session.key, hit.row.number) for hit in hits]


def keep_record(source: Path, target: Path) -> None:
    """The record as it is in one folder, and nothing else of it, in the other."""
    target.mkdir(exist_ok=True)
    for path in target.glob("archive.db*"):
        path.unlink()
    for path in source.glob("archive.db*"):
        shutil.copy(path, target)


class TestGrowth:
    def test_a_turn_is_there_once(self, home: Path) -> None:
        """With all that was said until now, however often it was read on the way."""
        transcript = Transcript("one").prompt("alpha")
        with library(home) as reading:
            for number in range(5):
                transcript.answer(f"beta{number}", None).write(home)
                reading.sync()
                assert found(reading.archive, f"alpha beta{number}") == [(f"claude-code/{transcript.id}", 0)]
            reading.reindex()
            assert len(found(reading.archive, "alpha")) == 1


class TestRecovery:
    def test_the_index_outlived_the_record(self, home: Path) -> None:
        """After a power cut that cost the record its last commits, turns that come later are still found, and what is
        found is there."""
        transcript = Transcript("one").prompt("alpha").answer("beta")
        transcript.write(home)
        with library(home) as before:
            before.sync()
        keep_record(home / "backstory", home / "kept")
        path = transcript.prompt("lost").answer("gamma").write(home)
        with library(home) as cut:
            cut.sync()
            assert len(found(cut.archive, "lost")) == 1
        path.unlink()
        keep_record(home / "kept", home / "backstory")

        with library(home) as after:
            after.sync()
            assert found(after.archive, "lost") == []
            assert len(found(after.archive, "alpha")) == 1
            Transcript("two").prompt("delta").write(home)
            after.sync()
            assert len(found(after.archive, "delta")) == 1


class TestOlderArchives:
    """An archive from before there were exchanges."""

    @pytest.fixture
    def transcript(self, home: Path) -> Session:
        """A session whose exchanges are not its turns, in an archive of the version before."""
        session = Session("one").prompt("alpha").answer("first").user("Summary", isCompactSummary=True).answer("second")
        session.prompt("beta").call("Bash", {"command": "ls"}, "").answer("third").write(home)
        Session("other", "/srv").prompt("gamma").write(home)
        with library(home) as current:
            current.sync()
        as_before_exchanges(home / "backstory")
        return session

    def read(self, updated: Library, session: Session) -> list[tuple[str, str, int]]:
        part = updated.call("read_conversation", {"session_id": session.id})
        assert part["total_turns"] == len(part["turns"])
        return [(turn["user_text"], turn["assistant_text"], len(turn["tools_used"])) for turn in part["turns"]]

    def test_transcripts_are_read_again(self, home: Path, transcript: Session) -> None:
        (home / "backstory" / "index" / "turns" / "v3-1").mkdir(parents=True)
        with library(home) as updated:
            before = updated.archive.counts().events
            updated.sync()
            assert [path.name for path in (home / "backstory" / "index" / "turns").glob("v3*")] == []
            assert updated.archive.counts().events == before
            expected = [("alpha", "first", 0), ("Summary", "second", 0), ("beta", "third", 1)]
            assert self.read(updated, transcript) == expected
            assert found(updated.archive, "summary") == [(f"claude-code/{transcript.id}", 1)]
            assert [len(found(updated.archive, word)) for word in ("alpha", "third", "gamma")] == [1, 1, 1]
            assert updated.sync().files == 0

    def test_before_the_first_sync(self, home: Path, transcript: Session) -> None:
        """Until a transcript is read again, and where it is gone for good, the turns stand in."""
        with library(home) as updated:
            expected = [("alpha", "first\nsecond", 0), ("beta", "third", 1)]
            assert self.read(updated, transcript) == expected
            transcript.path(home).unlink()
            updated.sync()
            assert self.read(updated, transcript) == expected
            assert found(updated.archive, "second third") != []
            (listed,) = (
                conversation
                for conversation in updated.call("list_conversations", {})["conversations"]
                if conversation["session_id"] == transcript.id
            )
            assert (listed["turn_count"], listed["summary"]) == (2, "alpha")
            assert listed["first_timestamp"] == transcript.records[0]["timestamp"]

    def test_history_stays(self, home: Path, transcript: Session) -> None:
        """Turns and events are those that the older version made; what came since is read as ever."""
        record = sqlite3.connect(home / "backstory" / "archive.db")
        record.execute("DELETE FROM event WHERE type = 4")  # as if that version had not recorded it
        record.commit()
        record.close()
        transcript.prompt("delta").answer("fourth").write(home)
        with library(home) as updated:
            key = f"claude-code/{transcript.id}"
            before = [updated.archive.events(key, turn.ordinal) for turn in updated.archive.turns(key)]
            updated.sync()
            after = [updated.archive.events(key, turn.ordinal) for turn in updated.archive.turns(key)]
            assert after[:-1] == before
            assert [event.text for event in after[-1]] == ["delta", "fourth"]
            exchanges = [("Summary", "second", 0), ("beta", "third", 1), ("delta", "fourth", 0)]
            assert self.read(updated, transcript)[1:] == exchanges

    def test_fewer_than_before(self, home: Path, transcript: Session) -> None:
        """The transcript was rewritten meanwhile: its exchanges are those it has now."""
        with library(home) as updated:
            updated.reindex()
        transcript.records = transcript.records[:2]
        transcript.write(home)
        with library(home) as updated:
            updated.sync()
            assert self.read(updated, transcript) == [("alpha", "first", 0)]
            assert found(updated.archive, "third") == []
            # Not even in the index, where it would take the place of another on a page.
            assert updated.archive._exchanges.searcher().num_docs == 2  # type: ignore[attr-defined]

    def test_bytes_of_ids(self, home: Path, transcript: Session) -> None:
        """Ids are any bytes, zeros and halves of characters among them, and are kept as they are."""
        uids = [bytes([0, 255, 128, 192, *([number] * 12)]) for number in range(3)]
        record = sqlite3.connect(home / "backstory" / "archive.db")
        session = record.execute("SELECT session FROM turn WHERE ordinal = 2").fetchone()[0]
        rows = [(uid, session, number + 100) for number, uid in enumerate(uids)]
        record.executemany("INSERT INTO event (uid, session, turn, ordinal, type, ts) VALUES (?, ?, 2, ?, 1, 1)", rows)
        record.commit()
        record.close()
        open_engine("local", home / "backstory").close()
        record = sqlite3.connect(home / "backstory" / "archive.db")
        (said,) = record.execute("SELECT said FROM exchange WHERE session = ? AND number = 1", (session,)).fetchone()
        record.close()
        assert said[-48:] == b"".join(uids)


def as_before_exchanges(backstory: Path) -> None:
    """An archive as the version before would have left it: the same rows in its tables, without an index."""
    version = next(n for n, migration in enumerate(MIGRATIONS) if "CREATE TABLE exchange" in migration)
    current, old = backstory / "archive.db", backstory / "old.db"
    prepare(old, MIGRATIONS[:version])
    record = sqlite3.connect(old, isolation_level=None)
    record.execute("ATTACH ? AS now", (os.fspath(current),))
    for (table,) in record.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
        columns = ", ".join(name for _, name, *_ in record.execute(f"PRAGMA main.table_info({table})"))
        record.execute(f"DELETE FROM main.{table}")
        record.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM now.{table}")
    record.close()
    for path in backstory.glob("archive.db*"):
        path.unlink()
    old.rename(current)
    shutil.rmtree(backstory / "index")

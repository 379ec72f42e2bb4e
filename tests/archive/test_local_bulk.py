"""Writing much at once: a second process lets the index and the traces follow."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backstory.archive import open_engine
from backstory.archive.base import (
    Archive,
    Batch,
    EventRow,
    ExchangeRow,
    ExchangesRequest,
    Part,
    SearchRequest,
    SessionRow,
    TurnRow,
)
from backstory.archive.local import bulk, feed, index
from backstory.archive.local.archive import LocalArchive
from backstory.archive.local.documents import EventDocument, ExchangeDocument
from backstory.model import DEFAULT_TYPES, EventType, digest, turn_id
from tests.archive_world import PROJECTION

NOW = 1_780_000_000_000
MUCH = 1 << 30
KEY = "claude-code/s"

KILLED = """
import sys, time
from pathlib import Path
from tests.archive.test_local_bulk import MUCH, PROJECTION, batch
from backstory.archive import open_engine
archive = open_engine("local", Path(sys.argv[1]), PROJECTION)
writer = archive.writer()
writer.recover()
with writer.bulk(MUCH):
    for turn in range(1, 4):
        writer.write(batch(turn))
        writer.flush(wait=turn == 2)
    print("ready", flush=True)
    time.sleep(60)
"""


def batch(turn: int) -> Batch:
    """A turn with a prompt that only it has, and an answer that every turn has."""
    texts = [(EventType.USER_INPUT, f"question number{turn}"), (EventType.ASSISTANT_RESPONSE, "answered " * 40)]
    uids = [digest(str(turn), kind) for kind, _ in texts]
    turn_row = TurnRow(session=KEY, ordinal=turn, started_at=NOW, updated_at=NOW + 1, prompt=uids[0], terminal=uids[1])
    row = SessionRow(
        key=KEY,
        source="claude-code",
        title="t",
        folder="-f",
        started_at=NOW,
        updated_at=NOW,
        turn_count=turn,
        event_count=2,
        exchange_count=turn,
    )
    exchange = ExchangeRow(session=KEY, number=turn - 1, ts=NOW, user=uids[0], said=bytearray(uids[1]))
    return Batch(
        sessions=[row],
        turns=[turn_row],
        exchanges=[exchange],
        events=[
            EventRow(uid=uid, session=KEY, turn=turn, ordinal=ordinal, type=kind, ts=NOW + turn, text=text)
            for ordinal, (uid, (kind, text)) in enumerate(zip(uids, texts, strict=True), 1)
        ],
    )


def following() -> list[int]:
    """The processes that this one has started."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in children.read_text().split()]


def found(archive: Archive, query: str) -> int:
    return len(archive.search(SearchRequest(query=query, types=DEFAULT_TYPES)).hits)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return open_engine("local", tmp_path, PROJECTION)


class TestBulk:
    def test_everything_is_found(self, archive: Archive) -> None:
        """By words, by turn and as traces; and what is written afterwards too."""
        writer = archive.writer()
        writer.recover()
        with writer.bulk(MUCH):
            assert following()
            for turn in (1, 2, 3):
                writer.write(batch(turn))
            writer.flush()
            assert [found(archive, f"number{turn}") for turn in (1, 2, 3)] == [1, 1, 1]
        assert not following()
        writer.write(batch(4))
        writer.close()
        assert found(archive, "number4") == 1
        assert found(archive, "answered") == 4
        assert all(archive.spans.trace(turn_id(KEY, turn)) for turn in (1, 2, 3, 4))
        archive.close()

    @pytest.mark.parametrize("remembered", [0, 1 << 20])
    def test_an_exchange_that_grows(self, archive: Archive, monkeypatch: pytest.MonkeyPatch, remembered: int) -> None:
        """It is found once, by all that was said in it, whether its texts are still in memory or not."""
        monkeypatch.setattr(feed, "_RECENT_CHARS", remembered)
        writer = archive.writer()
        writer.recover()
        said = bytearray(digest("1", EventType.ASSISTANT_RESPONSE))
        for turn in (1, 2):
            writer.write(batch(turn))
        for number in range(3, 7):
            late = EventRow(
                uid=digest(f"late {number}"),
                session=KEY,
                turn=1,
                ordinal=number,
                type=EventType.ASSISTANT_RESPONSE,
                ts=NOW,
                text=f"late{number} getUserName",
            )
            said += late.uid
            grown = batch(1)
            exchange = msgspec.structs.replace(grown.exchanges[0], said=bytearray(said))
            writer.write(Batch(events=[late], turns=grown.turns, exchanges=[exchange]))
            writer._feed.feed()  # type: ignore[attr-defined] # as the second process does
        writer.close()
        for words in ("number1", "late3", "late6", "number1 late4 late5", "user name"):
            assert [hit.row.number for hit in archive.exchanges(ExchangesRequest(query=words, limit=20))][:1] == [0]
        hits = archive.exchanges(ExchangesRequest(query="question", limit=20))
        assert sorted(hit.row.number for hit in hits) == [0, 1]
        archive.close()

    def test_sessions_are_known(self, archive: Archive) -> None:
        """Those from before, those that are written meanwhile, and not those that are removed."""
        writer = archive.writer()
        writer.recover()
        writer.write(batch(1))
        other = "claude-code/other"
        with writer.bulk(MUCH):
            assert writer.session(KEY) is not None
            assert writer.session(other) is None
            assert not writer.turn_keys(other)
            row = SessionRow(key=other, source="claude-code", title="t", turn_count=1)
            writer.write(Batch(sessions=[row], turns=[TurnRow(session=other, ordinal=1, turn_key="k")]))
            assert writer.session(other) is not None
            assert writer.turn_keys(other) == {"k"}
            writer.write(Batch(removed=[other]))
            assert writer.session(other) is None
            assert not writer.turn_keys(other)
            assert writer.session(KEY) is not None
        writer.close()
        archive.close()

    def test_little_is_not_worth_a_process(self, archive: Archive) -> None:
        writer = archive.writer()
        writer.recover()
        with writer.bulk(1000):
            assert not following()
            writer.write(batch(1))
        writer.close()
        assert found(archive, "number1") == 1
        archive.close()

    def test_the_second_process_dies(self, archive: Archive, caplog: pytest.LogCaptureFixture) -> None:
        """Then the first one does its work."""
        writer = archive.writer()
        writer.recover()
        with writer.bulk(MUCH):
            writer.write(batch(1))
            writer.flush()
            (pid,) = following()
            os.kill(pid, signal.SIGKILL)
            writer.write(batch(2))
            writer.flush()
            assert found(archive, "number2") == 1
            writer.write(batch(3))
        writer.close()
        assert [found(archive, f"number{turn}") for turn in (1, 2, 3)] == [1, 1, 1]
        assert "one process alone" in caplog.text
        archive.close()

    def test_no_second_process_can_be_started(
        self, archive: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
        writer = archive.writer()
        writer.recover()
        with writer.bulk(MUCH):
            writer.write(batch(1))
        writer.close()
        assert found(archive, "number1") == 1
        archive.close()

    def test_the_writer_is_killed(self, tmp_path: Path) -> None:
        """The second process ends with it, so that another writer can take over."""
        command = [sys.executable, "-c", KILLED, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.kill()
        archive = open_engine("local", tmp_path, PROJECTION)
        writer = archive.writer()
        writer.recover()
        writer.write(batch(4))
        writer.close()
        assert [found(archive, f"number{turn}") for turn in (1, 2, 3, 4)] == [1, 1, 1, 1]
        archive.close()


def trace_indexes(home: Path) -> set[str]:
    with closing(sqlite3.connect(home / "traces.db")) as db:
        return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}


class TestTakingOver:
    def test_a_commit_of_the_second_process_at_its_end(
        self, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second process of a writer that was killed commits before the next writer has the index: no event is
        found twice."""
        writer = archive.writer()
        writer.recover()
        writer.write(batch(1))
        writer.flush()
        writer.write(batch(2))
        with monkeypatch.context() as killed:
            killed.setattr(feed.Feed, "flush", lambda _: False)
            writer.close()

        open_writer = index.Index.writer

        def after_a_commit(opened: index.Index) -> index.IndexWriter:
            monkeypatch.setattr(index.Index, "writer", open_writer)
            second = LocalArchive(tmp_path, None).feed()
            second.flush()
            second.close()
            return open_writer(opened)

        monkeypatch.setattr(index.Index, "writer", after_a_commit)
        writer = archive.writer()
        writer.recover()
        writer.write(batch(3))
        writer.close()
        assert [found(archive, f"number{turn}") for turn in (1, 2, 3)] == [1, 1, 1]
        archive.close()


class TestIndexesOfTraces:
    """The first load of many spans puts most indexes off to its end."""

    @pytest.fixture
    def all_indexes(self, archive: Archive, tmp_path: Path) -> set[str]:
        assert archive.spans.trace("none") is None  # which creates the file
        return trace_indexes(tmp_path)

    def test_they_are_created_at_the_end(self, archive: Archive, tmp_path: Path, all_indexes: set[str]) -> None:
        writer = archive.writer()
        writer.recover()
        with writer.bulk(MUCH):
            writer.write(batch(1))
            writer.flush()
            assert "span_start" in all_indexes - trace_indexes(tmp_path)
            assert archive.spans.trace(turn_id(KEY, 1))
        assert trace_indexes(tmp_path) == all_indexes
        with writer.bulk(MUCH):
            writer.write(batch(2))
            writer.flush()
            assert trace_indexes(tmp_path) == all_indexes
        writer.close()
        archive.close()

    def test_the_second_process_dies(self, archive: Archive, tmp_path: Path, all_indexes: set[str]) -> None:
        writer = archive.writer()
        writer.recover()
        with writer.bulk(MUCH):
            writer.write(batch(1))
            writer.flush()
            (pid,) = following()
            os.kill(pid, signal.SIGKILL)
        writer.close()
        assert trace_indexes(tmp_path) == all_indexes
        assert archive.sync_state().recovered
        archive.close()

    def test_the_writer_is_killed(self, archive: Archive, tmp_path: Path, all_indexes: set[str]) -> None:
        command = [sys.executable, "-c", KILLED, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.kill()
        assert trace_indexes(tmp_path) < all_indexes
        assert not archive.sync_state().recovered
        writer = archive.writer()
        writer.recover()
        writer.close()
        assert trace_indexes(tmp_path) == all_indexes
        archive.close()


class TestInterrupted:
    """A batch that was fed in part is taken back, so that nothing is found twice; also where much is fed, and the index
    is committed on the way."""

    @pytest.fixture(autouse=True, params=["", "much"])
    def volume(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        if request.param:
            monkeypatch.setattr(index, "_MAX_QUEUED_CHARS", 0)
            monkeypatch.setattr(feed, "_PAGE_BYTES", 0)
            monkeypatch.setattr(feed, "_PAGE_EXCHANGES", 1)

    @pytest.mark.parametrize("document", [EventDocument, ExchangeDocument])
    def test_a_flush(self, archive: Archive, monkeypatch: pytest.MonkeyPatch, document: type) -> None:
        writer = archive.writer()
        writer.recover()
        for turn in range(1, 6):
            writer.write(batch(turn))
        with monkeypatch.context() as broken:
            broken.setattr(document, "entry", interrupt_after(3, document.entry))  # type: ignore[attr-defined]
            with pytest.raises(KeyboardInterrupt):
                writer.flush()
        writer.close()
        assert [found(archive, f"number{turn}") for turn in range(1, 6)] == [1] * 5
        exchanges = archive.exchanges(ExchangesRequest(query="question", limit=20))
        assert sorted(hit.row.number for hit in exchanges) == [0, 1, 2, 3, 4]
        archive.close()

    @pytest.mark.parametrize("count", [2, 3, 4])
    def test_exchanges_of_one_commit(self, archive: Archive, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        """Those of a change are found together."""
        writer = archive.writer()
        writer.recover()
        writer.write(batch(1))
        first, *others = [batch(turn) for turn in range(2, 5)]
        for other in others:
            first.turns += other.turns
            first.events += other.events
            first.exchanges += other.exchanges
        first.sessions = others[-1].sessions
        writer.write(first)
        with monkeypatch.context() as broken:
            broken.setattr(ExchangeDocument, "entry", interrupt_after(count, ExchangeDocument.entry))
            with pytest.raises(KeyboardInterrupt):
                writer.flush()
        writer.close()
        exchanges = archive.exchanges(ExchangesRequest(query="question", limit=20))
        assert sorted(hit.row.number for hit in exchanges) == [0, 1, 2, 3]
        archive.close()

    def test_a_reindex(self, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
        writer = archive.writer()
        writer.recover()
        for turn in range(1, 6):
            writer.write(batch(turn))
        writer.flush()
        with monkeypatch.context() as broken:
            broken.setattr(EventDocument, "entry", interrupt_after(3, EventDocument.entry))
            with pytest.raises(KeyboardInterrupt):
                writer.recover(reindex=True)
        writer.close()
        assert [found(archive, f"number{turn}") for turn in range(1, 6)] == [1] * 5
        archive.close()


def interrupt_after(count: int, entry: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """As Ctrl-C does, in the middle of the work; only once."""
    left = [count]

    def interrupted(document: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return entry(document)

    return interrupted


class TestMeans:
    """A writer finds and keeps the same while much is written, although it works in other ways then."""

    def test_known_events_are_known(self, tmp_path: Path) -> None:
        """Also those of commits before, in an archive that was empty."""
        with closing(open_engine("local", tmp_path, PROJECTION)) as archive, closing(archive.writer()) as writer:
            writer.recover()
            with writer.bulk(MUCH):
                for turn in (1, 2):
                    writer.write(batch(turn))
                uids = tuple(row.uid for turn in (1, 2, 3) for row in batch(turn).events)
                known = {row.uid for row in writer.events(part=Part(uids=uids, texts=False))}
                assert known == set(uids[:4])
                assert writer.events(part=Part(uids=uids[4:])) == []

    def test_the_log_begins_anew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """While another process reads the record, and after one has read for longer."""
        monkeypatch.setattr(bulk, "_LOG_BYTES", 1)
        monkeypatch.setattr(bulk, "_BUSY_MS", 1)
        log = tmp_path / "archive.db-wal"
        with closing(open_engine("local", tmp_path, PROJECTION)) as archive, closing(archive.writer()) as writer:
            writer.recover()
            with writer.bulk(MUCH):
                with closing(sqlite3.connect(tmp_path / "archive.db")) as reader:
                    reader.execute("BEGIN")
                    reader.execute("SELECT count(*) FROM event").fetchone()
                    writer.write(batch(1))
                    held = log.stat().st_size
                    assert held > 1
                monkeypatch.setattr(bulk, "_BUSY_MS", 10_000)
                writer.write(batch(2))
                writer.flush()
                assert log.stat().st_size < held
            assert len(writer.turns(KEY)) == 2

"""Deleted sessions: their id and the numbers and types of their events are kept, and none of their words."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backstory.toolsets.live import journal, upkeep
from backstory.toolsets.live.index import Index, Session
from backstory.toolsets.live.journal import Change, Journal
from backstory.toolsets.live.types import SessionMeta
from tests.live_world import World, assistant, text, user

NewWorld = Callable[..., World]
SECRET = "xylophagous"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletions are finished without waiting for others."""
    monkeypatch.setattr(upkeep, "_GATHER_SECONDS", 0)


def holding(folder: Path, word: str) -> list[str]:
    """The files that hold a word, wherever in them."""
    return [path.name for path in sorted(folder.rglob("*")) if path.is_file() and word.encode() in path.read_bytes()]


def deleted(world: World) -> bool:
    """True if all deletions are finished, except in the archive."""
    store: Any = world.live._adapter._store  # type: ignore[attr-defined]
    return not store.index.deleted("log")


def fill(world: World, session_id: str, word: str) -> None:
    """Words in every place of a session that takes some."""
    about = {"title": f"{word} title", "description": f"{word} text", "metadata": {"owner": word, word: [1]}}
    world.call("ensure", session_id=session_id, **about)
    entry_id = world.append(session_id, assistant(f"the {word}"), origin={"from": word})
    world.call("update-message", session_id=session_id, entry_id=entry_id, content=text(f"{word}!"), origin={"o": word})
    world.call("append", session_id=session_id, custom={"custom_type": word, "data": {word: word}})
    world.call("append-many", session_id=session_id, messages=[user(f"{word} {number}") for number in range(3)])
    world.call("set-status", session_id=session_id, status="error", reason=f"because of {word}")
    world.call("set-meta", session_id=session_id, title=f"another {word}", metadata={"owner": f"{word} too"})


class TestNoWordsLeft:
    """After a deletion no file below the folder holds text, title or metadata of the session, free pages included."""

    @pytest.fixture(params=["in the home", "elsewhere"])
    def world(self, request: pytest.FixtureRequest, new_world: NewWorld, tmp_path: Path) -> World:
        where = {} if request.param == "in the home" else {"data_dir": str(tmp_path / "elsewhere")}
        return new_world(tmp_path / "home", {"adapter": {"name": "fs", "config": {"fsync": "off", **where}}})

    def test_at_once_and_after_a_restart(self, world: World, tmp_path: Path) -> None:
        fill(world, "s", SECRET)
        fill(world, "t", "nougat")
        store: Any = world.live._adapter._store  # type: ignore[attr-defined]
        world.run(store.upkeep.save())
        assert holding(tmp_path, SECRET)
        world.call("delete", session_id="s")
        world.until(lambda: deleted(world))
        assert holding(tmp_path, SECRET) == []
        world.reopen()
        assert holding(tmp_path, SECRET) == []
        assert holding(tmp_path, "nougat")
        assert world.said("t") == ["nougat!", "nougat 0", "nougat 1", "nougat 2"]

    def test_not_replayed_from_the_moment_of_the_deletion(self, world: World) -> None:
        """Also while the log still holds them."""
        fill(world, "s", SECRET)
        number = world.live.last_seq
        world.call("delete", session_id="s")
        assert SECRET not in str(world.events())
        assert len(world.events()) == number + 1

    def test_a_crash_right_after_the_deletion(self, world: World, tmp_path: Path) -> None:
        fill(world, "s", SECRET)
        world.call("delete", session_id="s")
        world.crash_and_reopen()
        world.until(lambda: deleted(world))
        assert holding(tmp_path, SECRET) == []
        assert SECRET not in str(world.events())

    def test_another_session_under_the_same_id(self, world: World, tmp_path: Path) -> None:
        fill(world, "s", SECRET)
        world.call("delete", session_id="s")
        fill(world, "s", "nougat")
        world.until(lambda: deleted(world))
        assert holding(tmp_path, SECRET) == []
        world.crash_and_reopen()
        assert world.said("s") == ["nougat!", "nougat 0", "nougat 1", "nougat 2"]
        assert "the nougat" in str(world.events())

    def test_piece_by_piece_as_other_instances_do_it(self, world: World, tmp_path: Path) -> None:
        """They store, delete and publish through the protocol of the store."""
        meta = {"session_id": "s", "title": SECRET, "description": "", "status": "idle", "metadata": {"owner": SECRET}}
        world.call("store::put-meta", meta={**meta, "created_at": 1, "updated_at": 1, "message_count": 0})
        entry = {"kind": "message", "id": "e", "timestamp": 1, "message": user(SECRET)}
        world.call("store::put-entry", session_id="s", entry=entry)

        def publish(kind: str, session_id: str, **payload: Any) -> dict[str, Any]:
            payload = {"session_id": session_id, "timestamp": 1, **payload}
            return {"trigger_type": f"session::{kind}", "payload": payload, "session_metadata": {"owner": SECRET}}

        added = [publish("message-added", name, message=user(f"{SECRET} of {name}")) for name in ("s", "t", "s")]
        world.call("store::publish-events", events=added)
        for kind in ("entries", "meta", "active-leaf"):
            world.call(f"store::delete-{kind}", session_id="s")
        live = world.bind("session::deleted", {"metadata": {"owner": SECRET}})
        world.call("store::publish-events", events=[publish("deleted", "s", words=SECRET)])
        world.until(lambda: deleted(world))
        assert len(live) == 1
        assert [(kind, payload["session_id"], payload.get("deleted")) for kind, payload in world.events()] == [
            ("message-added", "s", True),
            ("message-added", "t", None),
            ("message-added", "s", True),
            ("deleted", "s", None),
        ]
        data = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert f"{SECRET} of s".encode() not in data
        world.call("store::publish-events", events=[publish("deleted", "t")])
        world.until(lambda: deleted(world))
        assert holding(tmp_path, SECRET) == []

    def test_a_published_deletion_of_a_session_that_is_there(self, world: World) -> None:
        """It is an event and nothing else: what the log holds of the session may be needed after a crash."""
        fill(world, "s", "nougat")
        event = {"trigger_type": "session::deleted", "payload": {"session_id": "s", "timestamp": 1}}
        world.call("store::publish-events", events=[event])
        assert deleted(world)
        world.crash_and_reopen()
        assert world.said("s") == ["nougat!", "nougat 0", "nougat 1", "nougat 2"]
        assert "the nougat" in str(world.events())


class TestCutShort:
    """Blanking that was cut short is finished when the store is opened again, and no number is missing."""

    @pytest.mark.parametrize("new_part", ["beginning", "end"])
    def test_half_a_line(self, world: World, new_part: str) -> None:
        log = world.folder / ".store" / "journal" / "0000000000000000.jsonl"
        for session_id in ("t", "s"):
            world.call("ensure", session_id=session_id)
            world.append(session_id, user(f"{'much ' * 99}the quokka of {session_id}"))
        before = log.read_bytes()
        world.call("delete", session_id="s")
        world.close()
        after = log.read_bytes()
        middle = before.index(b"the quokka of s")
        first, second = (after, before) if new_part == "beginning" else (before, after)
        log.write_bytes(first[:middle] + second[middle : len(before)] + after[len(before) :])
        with closing(sqlite3.connect(world.folder / ".store" / "index.db")) as index:
            index.execute("INSERT INTO state VALUES ('log s', '5')")
            index.commit()
        world.live = world._start()
        world.until(lambda: deleted(world))
        assert [kind for kind, _ in world.events()] == [*["created", "message-added"] * 2, "deleted"]
        world.close()
        assert log.read_bytes() == after
        assert b"quokka of t" in after
        assert b"quokka of s" not in after


class TestFreePages:
    """Rows that SQLite moved from page to page before they were deleted are in none of the pages."""

    def test_many_sessions(self, tmp_path: Path) -> None:
        for seed in (3, 5, 6):  # each leaves a copy of a row in a page, at least with SQLite 3.40
            index = Index(tmp_path / f"{seed}.db")
            gone, kept = self.fill(index, random.Random(seed))
            assert index.wipe(session.id for session in gone)
            data = b"".join(path.read_bytes() for path in tmp_path.glob(f"{seed}.db*"))
            assert not [session.id for session in gone if self.word(session.id) in data]
            assert all(self.word(session.id) in data for session in kept)
            index.database.close()

    def word(self, session_id: str) -> bytes:
        return f"<{session_id}>".encode()

    def fill(self, index: Index, chance: random.Random) -> tuple[list[Session], list[Session]]:
        """Half of the sessions are deleted after their titles have grown and shrunk."""
        about = {"description": "", "status": "idle", "created_at": 1, "updated_at": 1, "message_count": 0}
        sessions: list[Session] = []
        for number in range(300):
            sessions.append(index.add_session(f"s{number}"))
            for session in (sessions[-1], *chance.choices(sessions, k=3)):
                title = "x" * chance.choice((5, 50, 300)) + f"<{session.id}>" + "x" * chance.choice((5, 300, 1000))
                index.save(session, SessionMeta(session_id=session.id, title=title, **about))  # type: ignore[arg-type]
                index.database.query("SELECT 1")
        chance.shuffle(sessions)
        for session in sessions[:150]:
            index.remove(session)
        return sessions[:150], sessions[150:]


class TestRotation:
    """The log goes on in another segment, and drops an old one, while sessions are blanked in it."""

    def add(self, log: Journal, session_id: str, words: str) -> None:
        change = Change(cause="added", events=1, session_id=session_id, time=1, origin={"words": words})
        log.append(change)

    def test_in_between(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal, "SEGMENT_BYTES", 2000)
        log = Journal(tmp_path / "journal")
        for number in range(40):
            self.add(log, "st"[number % 2], f"the quokka {number} " + "x" * 80)
            log.rotate()
        log.append(Change(cause="deleted", events=1, session_id="s", time=2))
        deletion = log.head
        segments = len(list((tmp_path / "journal").iterdir()))
        overwrite = journal._overwrite
        rotations = []

        def rotate_and_overwrite(path: Path, lines: Any) -> None:
            rotations.append(path)
            for number in range(20):
                self.add(log, "s", f"the numbat {number} " + "x" * 80)
            log.rotate()
            if len(rotations) == 2:
                log.trim(0, log.position)
                log.rotate()
            overwrite(path, lines)

        monkeypatch.setattr(journal, "_overwrite", rotate_and_overwrite)
        log.blank({"s": deletion})
        log.close()
        assert segments > 2
        assert len(rotations) == segments
        kept = b"".join(path.read_bytes() for path in (tmp_path / "journal").iterdir())
        assert b"numbat 19" in kept
        assert not any(b"quokka %d " % number in kept for number in range(0, 40, 2))
        again = Journal(tmp_path / "journal")
        changes = list(again.changes(None))
        assert [change.head for change in changes] == list(range(changes[0].head, again.head + 1))
        assert all(change.blank == (change.session_id == "s" and change.head < deletion) for change in changes)
        again.close()

"""The store on disk: its files, its one writer, and failures of the disk."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backstory.toolsets.live import LiveError, journal
from tests.live_world import World, assistant, text, user, words_of

NewWorld = Callable[..., World]
QUICK = {"adapter": {"name": "fs", "config": {"fsync": "off"}}}


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Writes beyond that fail half way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestFiles:
    """One file per session, one write per mutation, records that others can read."""

    def test_records(self, world: World) -> None:
        session_id = world.session(title="T")
        entry_id = world.append(session_id, user("a"))
        world.call("set-active-leaf", session_id=session_id, entry_id=entry_id)
        meta, entry, leaf, again = records(world.file(session_id))
        assert [record["type"] for record in (meta, entry, leaf, again)] == ["meta", "entry", "leaf", "meta"]
        assert meta["meta"]["message_count"] == 0
        assert entry["entry"] == world.call("get-message", session_id=session_id, entry_id=entry_id)["entry"]
        assert leaf["entry_id"] == entry_id
        assert again["meta"] == world.call("get", session_id=session_id)["meta"]
        assert entry["records"] == 3
        assert not {"records"} & (meta.keys() | leaf.keys() | again.keys())

    def test_are_private(self, world: World) -> None:
        session_id = world.session()
        world.call("fork", session_id=session_id, entry_id=world.append(session_id))
        modes = {path.stat().st_mode & 0o777 for path in world.folder.glob("*.jsonl")}
        assert modes == {0o600}
        assert world.folder.stat().st_mode & 0o777 == 0o700

    def test_id_is_the_file_name(self, world: World) -> None:
        session_id = world.session(title="T")
        world.close()
        world.file(session_id).rename(world.file("a%20b"))
        world.live = world._start()
        assert world.call("get", session_id=session_id) is None
        assert world.call("get", session_id="a b")["meta"]["session_id"] == "a b"


class TestForeignFiles:
    """Files of other writers are read as they are, with records of any order and kind."""

    def meta(self, **more: Any) -> dict[str, Any]:
        fields = {"session_id": "x", "title": "T", "description": "", "status": "idle"}
        return {**fields, "created_at": 1, "updated_at": 2, "message_count": 1, **more}

    def entry(self, name: str, parent: str | None, words: str, **more: Any) -> dict[str, Any]:
        return {"kind": "message", "id": name, "parent_id": parent, "timestamp": 5, "message": user(words), **more}

    def open(self, new_world: NewWorld, home: Path, *lines: Any) -> World:
        folder = home / "live"
        folder.mkdir(exist_ok=True)
        encoded = [line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode() for line in lines]
        (folder / "f.jsonl").write_bytes(b"\n".join(encoded) + b"\n")
        return new_world(config=QUICK)

    def test_append_and_commit_records(self, new_world: NewWorld, tmp_path: Path) -> None:
        world = self.open(
            new_world,
            tmp_path,
            {"type": "meta", "meta": self.meta()},
            {"type": "append", "entry": self.entry("a", None, "one"), "meta": self.meta(message_count=1)},
            {"type": "append", "entry": self.entry("b", "a", "two"), "meta": self.meta(message_count=2, title="U")},
            {"type": "commit", "entry_id": "b"},
        )
        assert world.said("f") == ["one", "two"]
        meta = world.call("get", session_id="f")["meta"]
        assert (meta["session_id"], meta["title"], meta["message_count"]) == ("f", "U", 2)
        assert world.call("get-message", session_id="f", entry_id="a")["entry"]["revision"] == 0

    def test_the_last_one_wins(self, new_world: NewWorld, tmp_path: Path) -> None:
        world = self.open(
            new_world,
            tmp_path,
            {"type": "leaf", "entry_id": "b"},
            {"type": "entry", "entry": self.entry("b", "a", "child first")},
            {"type": "meta", "meta": self.meta(title="old")},
            {"type": "entry", "entry": self.entry("a", None, "x")},
            {"type": "entry", "entry": self.entry("a", None, "parent", revision=3)},
            {"type": "meta", "meta": self.meta(title="new")},
        )
        assert world.said("f") == ["parent", "child first"]
        assert world.call("get", session_id="f")["meta"]["title"] == "new"
        update = world.call("update-message", session_id="f", entry_id="a", content=text("p"), expected_revision=3)
        assert update == {"updated": True, "revision": 4}

    def test_bad_lines_are_skipped_and_reported(self, new_world: NewWorld, tmp_path: Path) -> None:
        world = self.open(
            new_world,
            tmp_path,
            b"not json",
            {"type": "meta", "meta": self.meta()},
            b'{"type":"entry","entry":{"kind":"message","id":"half"}}',
            b"\xff\xfe",
            b"",
            {"type": "unheard-of"},
            {"type": "append", "entry": self.entry("a", None, "one"), "meta": self.meta()},
            {"type": "append", "entry": self.entry("z", "a", "bad meta"), "meta": {"title": 1}},
        )
        assert world.said("f") == ["one"]
        assert world.live.status()["problems"] == {"f.jsonl": "5 lines could not be read and were skipped"}
        world.append("f", user("two"))
        world.reopen()
        assert world.said("f") == ["one", "two"]

    def test_content_of_newer_writers_survives(self, new_world: NewWorld, tmp_path: Path) -> None:
        message = {**user(), "content": [{"type": "file", "attachment_id": "x"}], "priority": 1}
        entry = {"kind": "message", "id": "a", "timestamp": 5, "message": message}
        world = self.open(new_world, tmp_path, {"type": "append", "entry": entry, "meta": self.meta()})
        (item,) = world.call("messages", session_id="f")["messages"]
        assert item["message"] == message

    def test_parents_that_are_missing_or_go_in_circles(self, new_world: NewWorld, tmp_path: Path) -> None:
        world = self.open(
            new_world,
            tmp_path,
            {"type": "meta", "meta": self.meta()},
            {"type": "entry", "entry": self.entry("a", "b", "A")},
            {"type": "entry", "entry": self.entry("b", "a", "B")},
            {"type": "entry", "entry": self.entry("c", "gone", "C")},
            {"type": "leaf", "entry_id": "c"},
        )
        assert world.said("f") == ["C"]
        assert sorted(world.said("f", from_entry_id="a")) == ["A", "B"]

    def test_a_leaf_that_is_not_there(self, new_world: NewWorld, tmp_path: Path) -> None:
        world = self.open(new_world, tmp_path, {"type": "meta", "meta": self.meta()}, {"type": "leaf", "entry_id": "q"})
        assert world.said("f") == []

    def test_a_last_line_without_its_end(self, new_world: NewWorld, tmp_path: Path) -> None:
        world = self.open(new_world, tmp_path, {"type": "meta", "meta": self.meta()})
        world.close()
        path = world.folder / "f.jsonl"
        path.write_bytes(path.read_bytes() + json.dumps({"type": "meta", "meta": self.meta(title="whole")}).encode())
        world.live = world._start()
        assert world.call("get", session_id="f")["meta"]["title"] == "whole"
        world.append("f")
        world.reopen()
        assert world.call("get", session_id="f")["meta"]["title"] == "whole"

    def test_files_that_changed_while_nobody_looked(self, world: World) -> None:
        kept, gone, grown = world.session(title="kept"), world.session(), world.session(title="grown")
        world.append(grown, user("a"))
        world.close()
        world.file(gone).unlink()
        line = {"type": "append", "entry": self.entry("n", None, "new"), "meta": self.meta(title="more")}
        with world.file(grown).open("a") as file:
            file.write(json.dumps(line) + "\n")
        world.live = world._start()
        assert world.call("get", session_id=gone) is None
        assert world.call("get", session_id=kept) is not None
        assert world.said(grown) == ["new"]
        assert world.call("get", session_id=grown)["meta"]["title"] == "more"


class TestBadFiles:
    """One file that cannot be used is reported; the rest works."""

    def test_reported(self, world: World) -> None:
        session_id = world.session(title="good")
        world.close()
        (world.folder / "garbage.jsonl").write_bytes(b"\0\1\2" * 100)
        (world.folder / "%zz.jsonl").write_text("{}\n")
        (world.folder / "a folder.jsonl").mkdir()
        (world.folder / "lines.jsonl").write_text("x\ny\n")
        (world.folder / "empty.jsonl").touch()
        world.live = world._start()
        assert [meta["session_id"] for meta in world.call("list")["sessions"]] == [session_id]
        assert world.live.status()["problems"].keys() == {"garbage.jsonl", "%zz.jsonl", "lines.jsonl"}
        assert (world.folder / "garbage.jsonl").exists()
        assert not (world.folder / "empty.jsonl").exists()

    @pytest.mark.parametrize("spoilt", [b"\xff", b"\\ud800", b"\xc3"])
    def test_an_entry_that_cannot_be_read_back(self, world: World, spoilt: bytes) -> None:
        """It is skipped like any other line, and taken from the journal."""
        session_id = world.session(title="spoilt")
        for words in ("before", "spoil me", "after"):
            world.append(session_id, user(words))
        world.close()
        file = world.file(session_id)
        file.write_bytes(file.read_bytes().replace(b"spoil me", spoilt))
        world.live = world._start()
        assert world.said(session_id) == ["before", "spoil me", "after"]
        assert "1 line" in world.live.status()["problems"][file.name]
        world.append(session_id, user("on"))
        assert world.said(session_id) == ["before", "spoil me", "after", "on"]

    def test_a_spoilt_event(self, world: World) -> None:
        """The other events are delivered."""
        session_id = world.session()
        for words in ("before", "spoil me", "after"):
            world.append(session_id, user(words))
        world.close()
        log = next((world.folder / ".store" / "journal").iterdir())
        log.write_bytes(log.read_bytes().replace(b"spoil me", b"spoil\xff\xfe\xfd"))
        world.live = world._start()
        added = [words_of(payload) for kind, payload in world.events() if kind == "message-added"]
        assert added == ["before", "after"]

    def test_its_id_is_taken(self, world: World) -> None:
        world.close()
        (world.folder / "garbage.jsonl").write_bytes(b"\0\1\2")
        world.live = world._start()
        assert world.refused("ensure", session_id="garbage") == "storage"
        assert (world.folder / "garbage.jsonl").read_bytes() == b"\0\1\2"
        assert world.events() == []

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_unreadable(self, world: World) -> None:
        session_id, other = world.session(), world.session()
        world.append(session_id)
        world.close()
        world.file(session_id).chmod(0)
        os.utime(world.file(session_id))
        world.live = world._start()
        assert [meta["session_id"] for meta in world.call("list")["sessions"]] == [other]
        assert world.file(session_id).name in world.live.status()["problems"]


class TestFullDisk:
    """A write that fails is an error, nothing of it is seen, and when there is room again everything goes on."""

    def check(self, world: World, session_id: str, limit: int) -> None:
        start = world.live.last_seq
        before = (world.call("get", session_id=session_id), world.said(session_id), world.events(start))
        data = world.file(session_id).read_bytes()
        with no_file_longer_than(limit):
            assert world.refused("append", session_id=session_id, message=user("x" * 2000)) == "storage"
            assert world.refused("append-many", session_id=session_id, messages=[user("y" * 2000)] * 2) == "storage"
            assert (world.call("get", session_id=session_id), world.said(session_id), world.events(start)) == before
        assert world.file(session_id).read_bytes() == data
        world.append(session_id, user("room again"))
        world.crash_and_reopen()
        assert world.said(session_id) == [*before[1], "room again"]
        assert len(world.events(start)) == 1

    def test_in_the_journal(self, world: World) -> None:
        session_id = world.session()
        for number in range(3):
            world.append(session_id, user(f"{number}" * 100_000))
        log = next((world.folder / ".store" / "journal").iterdir())
        self.check(world, session_id, log.stat().st_size + 700)

    def test_in_the_file(self, world: World) -> None:
        session_id = world.session()
        for number in range(3):
            world.append(session_id, user(f"{number}" * 100_000))
        world.close()
        for path in (world.folder / ".store" / "journal").iterdir():
            path.unlink()
        world.live = world._start()
        self.check(world, session_id, world.file(session_id).stat().st_size + 700)

    def test_a_session_that_could_not_be_created(self, world: World) -> None:
        for number in range(4):
            world.append(world.session(), user(f"{number}" * 100_000))
        log = next((world.folder / ".store" / "journal").iterdir())
        with no_file_longer_than(log.stat().st_size + 20):
            assert world.refused("ensure", session_id="mine") == "storage"
            assert world.call("get", session_id="mine") is None
        assert not world.file("mine").exists()
        assert world.call("ensure", session_id="mine")["created"]

    def test_the_index_catches_up(self, world: World) -> None:
        session_id = world.session()
        world.append(session_id, user("a"))
        store: Any = world.live._adapter._store  # type: ignore[attr-defined]
        with no_file_longer_than(1000):
            assert not store.upkeep.save_index()
            assert world.said(session_id) == ["a"]
            assert len(world.call("list")["sessions"]) == 1
        assert store.upkeep.save_index()
        world.crash_and_reopen()
        assert world.said(session_id) == ["a"]


class TestFailedSync:
    """When the disk refuses to keep what it took, nothing more is promised."""

    def test_is_an_error_from_then_on(self, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        world = new_world()
        session_id = world.session()

        def fail(fd: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(journal, "_sync_data", fail)
        assert world.refused("append", session_id=session_id, message=user()) == "storage"
        monkeypatch.undo()
        assert world.refused("append", session_id=session_id, message=user()) == "storage"
        assert [kind for kind, _ in world.events()] == ["created"]
        world.crash_and_reopen()
        world.append(session_id, user("on"))
        assert world.said(session_id)[-1] == "on"


class TestOtherPrograms:
    """A file that another program changes while it is open is left alone; a torn write stops the store."""

    def test_changed_under_us(self, world: World) -> None:
        session_id, other = world.session(), world.session()
        world.append(session_id, user("a"))
        with world.file(session_id).open("a") as file:
            file.write("something else\n")
        data = world.file(session_id).read_bytes()
        assert world.refused("append", session_id=session_id, message=user("b")) == "storage"
        assert world.file(session_id).read_bytes() == data
        world.append(other, user("still works"))
        world.reopen()
        world.append(session_id, user("b"))
        assert world.said(session_id) == ["a", "b"]

    def test_a_write_that_cannot_be_taken_back(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        session_id = world.session()
        world.append(session_id, user("a" * 300_000))

        def refuse(fd: int, size: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        log = next((world.folder / ".store" / "journal").iterdir())
        with monkeypatch.context() as patch, no_file_longer_than(log.stat().st_size + 100):
            patch.setattr(os, "ftruncate", refuse)
            assert world.refused("append", session_id=session_id, message=user("b" * 500)) == "storage"
        assert world.refused("append", session_id=session_id, message=user("c")) == "storage"
        assert len(world.said(session_id)) == 1
        world.crash_and_reopen()
        world.append(session_id, user("d"))
        assert world.said(session_id)[1:] == ["d"]


class TestBrokenOff:
    """A caller that gives up does not leave half of anything."""

    @pytest.mark.parametrize("steps", range(6))
    def test_fork(self, world: World, steps: int) -> None:
        session_id = world.session()
        entry_id = world.append(session_id, user("a"))

        async def give_up() -> None:
            fork = {"session_id": session_id, "entry_id": entry_id}
            task = asyncio.create_task(world.live.call("session::fork", fork))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        world.run(give_up())
        world.reopen()
        for meta in world.call("list")["sessions"]:
            assert world.said(meta["session_id"]) == ["a"]
        assert len(world.events()) == 1 + len(world.call("list")["sessions"])


class TestLock:
    """A folder has one writer; a second one gets an error that names it."""

    def test_second_process(self, world: World) -> None:
        code = (
            "import asyncio, sys\nfrom pathlib import Path\nfrom backstory.toolsets.live import Live, LiveError\n"
            "try:\n    asyncio.run(Live(Path(sys.argv[1]), environ={}).start())\n"
            "except LiveError as error:\n    print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(world.home)], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.startswith("session/storage: ")
        assert f"process {os.getpid()}" in done.stdout
        assert done.stderr == ""

    def test_second_in_the_same_process(self, world: World, new_world: NewWorld) -> None:
        with pytest.raises(LiveError, match="in use by process"):
            new_world(config=QUICK)

    def test_is_free_afterwards(self, world: World) -> None:
        world.close()
        world.live = world._start()
        assert world.session()


class TestCompaction:
    """A file that is mostly superseded updates is replaced by one without them; nothing else changes."""

    def stream(self, world: World, session_id: str, updates: int = 160) -> str:
        entry_id = world.append(session_id, assistant(""))
        for number in range(updates):
            content = text(f"{number} " * 2000)
            world.call("update-message", session_id=session_id, entry_id=entry_id, content=content)
        return entry_id

    def test_shrinks(self, world: World) -> None:
        session_id = world.session(title="T")
        root = world.append(session_id, user("root"))
        world.append(session_id, user("left"))
        world.append(session_id, user("right"), parent_id=root)
        entry_id = self.stream(world, session_id)
        world.until(lambda: world.file(session_id).stat().st_size < 500_000)
        revision = world.call("get-message", session_id=session_id, entry_id=entry_id)["entry"]["revision"]
        assert revision == 160
        world.append(session_id, user("after"))
        before = (world.said(session_id), world.call("get", session_id=session_id), world.events())
        world.crash_and_reopen()
        assert (world.said(session_id), world.call("get", session_id=session_id), world.events()) == before
        assert before[0][:2] == ["root", "right"]
        assert before[0][-1] == "after"

    def test_cut_short_before_the_new_file_is_in_place(self, new_world: NewWorld) -> None:
        world = new_world(config=QUICK)
        session_id = world.session()
        self.stream(world, session_id, 20)
        data = world.file(session_id).read_bytes()
        before = world.said(session_id)
        store: Any = world.live._adapter._store  # type: ignore[attr-defined]
        world.run(store.compact(session_id))
        log = next((world.folder / ".store" / "journal").iterdir())
        change = json.loads(log.read_text().splitlines()[-1])
        compacted = world.file(session_id).read_bytes()
        assert change["cause"] == "compacted"
        assert len(compacted) < len(data) / 10
        world.crash()
        world.file(session_id).write_bytes(data)
        (world.folder / ".store" / "new" / change["file"]).write_bytes(compacted)
        world.live = world._start()
        assert world.file(session_id).read_bytes() == compacted
        assert world.said(session_id) == before

    def test_others_wait_for_it(self, world: World) -> None:
        session_id = world.session()
        self.stream(world, session_id, 30)
        store: Any = world.live._adapter._store  # type: ignore[attr-defined]

        async def both() -> None:
            call = world.live.call
            append = {"session_id": session_id, "message": user("meanwhile")}
            await asyncio.gather(store.compact(session_id), *(call("session::append", append) for _ in range(5)))

        world.run(both())
        assert world.said(session_id)[1:] == ["meanwhile"] * 5
        world.reopen()
        assert world.said(session_id)[1:] == ["meanwhile"] * 5


class TestUpkeep:
    """The journal is bounded, and what is deleted leaves the index."""

    def test_old_events_are_dropped(self, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal, "SEGMENT_BYTES", 100_000)
        world = new_world(config={"adapter": {"name": "fs", "config": {"fsync": "always", "replay_mb": 1}}})
        session_id = world.session()
        for number in range(40):
            world.append(session_id, user(f"{number}" * 25_000))
        store: Any = world.live._adapter._store  # type: ignore[attr-defined]
        world.run(store.upkeep.save())
        kept = sum(path.stat().st_size for path in (world.folder / ".store" / "journal").iterdir())
        assert 900_000 < kept < 1_200_000
        with pytest.raises(LiveError) as caught:
            world.bind("session::message-added", {"after": 0})
        assert caught.value.code == "invalid_cursor"
        got = world.bind("session::message-added", {"after": world.live.last_seq - 3})
        world.settle()
        assert len(got) == 3
        world.reopen()
        assert len(world.said(session_id)) == 40

    def test_rows_of_deleted_sessions(self, world: World) -> None:
        session_id = world.session()
        world.call("append-many", session_id=session_id, messages=[user()] * 20)
        world.call("delete", session_id=session_id)
        store: Any = world.live._adapter._store  # type: ignore[attr-defined]
        while store.index.collect():
            pass
        for table in ("entry", "branch", "tag", "garbage", "session"):
            assert store.index.database.query(f"SELECT count(*) FROM {table}").fetchone()[0] == 0

    @pytest.mark.parametrize("fsync", ["always", "interval", "off"])
    def test_settings_for_the_disk(self, new_world: NewWorld, fsync: str) -> None:
        world = new_world(config={"adapter": {"name": "fs", "config": {"fsync": fsync, "fsync_interval_ms": 5}}})
        session_id = world.session()
        world.append(session_id, user("a"))
        world.reopen()
        assert world.said(session_id) == ["a"]

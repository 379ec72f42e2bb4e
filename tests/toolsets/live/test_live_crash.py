"""Crashes: every mutation is there whole or not at all, wherever it was cut off."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backstory.toolsets.live import LiveError
from tests.live_world import World, assistant, text, user

NewWorld = Callable[..., World]
QUICK = {"adapter": {"name": "fs", "config": {"fsync": "off"}}}


def snapshot(world: World, session_id: str) -> Any:
    """All that can be read of a session."""
    return (
        world.call("get", session_id=session_id),
        world.call("store::list-entries", session_id=session_id),
        world.call("store::get-active-leaf", session_id=session_id),
    )


class Cut:
    """A session before and after its last mutation, and ways to put a part of that mutation on the disk."""

    def __init__(self, world: World, mutate: Callable[[World, str], Any]) -> None:
        self.world = world
        self.session_id = world.session(title="Ünïcödé")
        world.append(self.session_id, user("first \U0001f600"))
        world.reopen()
        self.journal = next((world.folder / ".store" / "journal").iterdir())
        self.file = world.file(self.session_id)
        self.before = snapshot(world, self.session_id)
        self.kept, self.logged = self.file.read_bytes(), self.journal.read_bytes()
        self.state = world.home / "state"
        shutil.copytree(world.folder / ".store", self.state)
        mutate(world, self.session_id)
        self.after = snapshot(world, self.session_id)
        self.written, self.log = self.file.read_bytes(), self.journal.read_bytes()
        world.crash()

    def reopen(self, data: bytes, log: bytes | None) -> Any:
        """The state with these bytes in the session's file and the journal; without a journal there is no index."""
        shutil.rmtree(self.world.folder / ".store")
        self.file.write_bytes(data)
        if log is not None:
            shutil.copytree(self.state, self.world.folder / ".store")
            self.journal.write_bytes(log)
        self.world.live = self.world._start()
        try:
            found = snapshot(self.world, self.session_id)
            self.world.append(self.session_id, user("goes on"))
            assert self.world.said(self.session_id)[-1] == "goes on"
            assert self.file.read_bytes().endswith(b"\n")
            return found
        finally:
            self.world.crash()


MUTATIONS: dict[str, Callable[[World, str], Any]] = {
    "append": lambda world, session_id: world.append(session_id, user("é\U0001f600")),
    "append-many": lambda world, session_id: world.call(
        "append-many", session_id=session_id, messages=[user("é"), assistant("\U0001f600")]
    ),
    "update-message": lambda world, session_id: world.call(
        "update-message", session_id=session_id, entry_id=world.entry_ids(session_id)[0], content=text("\U0001f600é")
    ),
    "set-status": lambda world, session_id: world.call("set-status", session_id=session_id, status="working"),
}


class TestCutAnywhere:
    """A write that was cut at any byte, also within a character, is completed from the journal or taken back."""

    @pytest.fixture(params=MUTATIONS)
    def cut(self, new_world: NewWorld, request: pytest.FixtureRequest) -> Cut:
        return Cut(new_world(config=QUICK), MUTATIONS[request.param])

    def lengths(self, before: bytes, after: bytes, step: int) -> Iterator[int]:
        yield from range(len(before), len(after), step)
        yield from (len(after) - 2, len(after) - 1, len(after))

    def test_the_file_alone(self, cut: Cut) -> None:
        for length in self.lengths(cut.kept, cut.written, 23):
            expected = cut.after if length >= len(cut.written) - 1 else cut.before
            assert cut.reopen(cut.written[:length], None) == expected, length

    def test_the_file_with_the_journal(self, cut: Cut) -> None:
        for length in self.lengths(cut.kept, cut.written, 41):
            assert cut.reopen(cut.written[:length], cut.log) == cut.after, length

    def test_the_journal(self, cut: Cut) -> None:
        for length in self.lengths(cut.logged, cut.log, 41):
            expected = cut.after if length == len(cut.log) else cut.before
            assert cut.reopen(cut.kept, cut.log[:length]) == expected, length

    @pytest.mark.slow
    def test_every_byte(self, cut: Cut) -> None:
        for length in range(len(cut.kept), len(cut.written) + 1):
            expected = cut.after if length >= len(cut.written) - 1 else cut.before
            assert cut.reopen(cut.written[:length], None) == expected, length
            assert cut.reopen(cut.written[:length], cut.log) == cut.after, length
        for length in range(len(cut.logged), len(cut.log) + 1):
            expected = cut.after if length == len(cut.log) else cut.before
            assert cut.reopen(cut.kept, cut.log[:length]) == expected, length


class TestAfterACrash:
    """Without a clean end nothing acknowledged is missing, in the files, the index or the events."""

    def test_everything_is_there(self, new_world: NewWorld) -> None:
        world = new_world()
        session_id = world.session(metadata={"owner": "u_1"})
        for number in range(5):
            world.append(session_id, user(f"{number}"))
        entry_id = world.append(session_id, assistant(""))
        world.call("update-message", session_id=session_id, entry_id=entry_id, content=text("done"))
        fork = world.call("fork", session_id=session_id, entry_id=entry_id)["session_id"]
        gone = world.session()
        world.call("delete", session_id=gone)
        before = (snapshot(world, session_id), snapshot(world, fork), world.events(), world.call("list"))
        world.crash_and_reopen()
        assert (snapshot(world, session_id), snapshot(world, fork), world.events(), world.call("list")) == before
        assert [meta["session_id"] for meta in world.call("list", metadata={"owner": "u_1"})["sessions"]]
        assert world.call("get", session_id=gone) is None

    def test_numbers_go_on(self, world: World) -> None:
        world.session()
        world.crash_and_reopen()
        world.session()
        assert [event.seq for event in world.run(world.live.replay(0))] == [1, 2]

    def test_a_lost_index_is_rebuilt(self, world: World) -> None:
        session_id = world.session()
        first = world.append(session_id, user("a"))
        world.append(session_id, user("b"))
        world.append(session_id, user("c"), parent_id=first)
        before = (snapshot(world, session_id), world.said(session_id))
        world.close()
        for path in (world.folder / ".store").glob("index.db*"):
            path.unlink()
        world.live = world._start()
        assert (snapshot(world, session_id), world.said(session_id)) == before

    def test_a_damaged_index_is_rebuilt(self, world: World) -> None:
        session_id = world.session()
        world.append(session_id, user("a"))
        world.close()
        (world.folder / ".store" / "index.db").write_bytes(b"this is no database" * 100)
        world.live = world._start()
        assert world.said(session_id) == ["a"]

    def test_the_whole_state_folder_may_be_lost(self, world: World) -> None:
        session_id = world.session()
        world.append(session_id, user("a"))
        seen = world.live.last_seq
        world.close()
        shutil.rmtree(world.folder / ".store")
        world.live = world._start()
        assert world.said(session_id) == ["a"]
        with pytest.raises(LiveError) as caught:  # its number will not be given to another event
            world.bind("session::message-added", {"after": seen})
        assert caught.value.code == "invalid_cursor"
        for number in range(10):
            world.append(session_id, user(f"{number}"))
        with pytest.raises(LiveError, match="no longer kept"):
            world.bind("session::message-added", {"after": seen})
        got = world.bind("session::message-added", {"after": world.live.last_seq - 10})
        world.settle()
        assert len(got) == 10

    def test_a_deleted_session_does_not_come_back(self, new_world: NewWorld) -> None:
        world = new_world()
        session_id = world.session()
        world.append(session_id)
        data = world.file(session_id).read_bytes()
        world.call("delete", session_id=session_id)
        world.crash()
        world.file(session_id).write_bytes(data)  # the journal got to the disk, the unlink did not
        world.live = world._start()
        assert world.call("get", session_id=session_id) is None
        assert not world.file(session_id).exists()

    def test_a_fork_is_completed(self, new_world: NewWorld) -> None:
        world = new_world()
        session_id = world.session()
        entry_id = world.append(session_id, user("a"))
        fork = world.call("fork", session_id=session_id, entry_id=entry_id)["session_id"]
        journal = next((world.folder / ".store" / "journal").iterdir())
        change = json.loads(journal.read_text().splitlines()[-1])
        world.crash()
        world.file(fork).rename(world.folder / ".store" / "new" / change["file"])
        world.live = world._start()
        assert world.said(fork) == ["a"]

    def test_a_fork_whose_index_came_first(self, new_world: NewWorld) -> None:
        world = new_world()
        session_id = world.session()
        entry_id = world.append(session_id, user("a"))
        store: Any = world.live._adapter._store  # type: ignore[attr-defined]
        replace = store.files.replace

        def crash(session: str, path: Path) -> None:
            store.upkeep.save_index()
            raise RuntimeError("killed here")

        store.files.replace = crash
        assert world.refused("fork", session_id=session_id, entry_id=entry_id) == "storage"
        store.files.replace = replace
        world.crash_and_reopen()
        (fork,) = {meta["session_id"] for meta in world.call("list")["sessions"]} - {session_id}
        assert world.said(fork) == ["a"]


KILLED = """
import asyncio, sys
from pathlib import Path
from backstory.toolsets.live import Live

def message(number):
    words = f"{number} \\u00fc\\U0001f600" * 20
    return {"role": "user", "content": [{"type": "text", "text": words}], "timestamp": 1}

async def main():
    live = Live(Path(sys.argv[1]), environ={})
    await live.start()

    async def call(function, **data):
        return await live.call(f"session::{function}", data)

    async def client():
        session_id = (await call("create"))["session_id"]
        print("session", session_id, 0, flush=True)
        for number in range(1_000_000):
            done = await call("append", session_id=session_id, message=message(number))
            print("entry", session_id, done["entry_id"], flush=True)
            if number % 3 == 0:
                many = await call("append-many", session_id=session_id, messages=[message(number)] * 3)
                for entry_id in many["entry_ids"]:
                    print("entry", session_id, entry_id, flush=True)
            if number % 5 == 0:
                change = {"entry_id": done["entry_id"], "content": message("changed")["content"]}
                await call("update-message", session_id=session_id, **change)
                print("updated", session_id, done["entry_id"], flush=True)
            if number % 7 == 0:
                fork = await call("fork", session_id=session_id, entry_id=done["entry_id"])
                print("forked", fork["session_id"], fork["meta"]["message_count"], flush=True)
            if number % 14 == 0:
                print("doomed", fork["session_id"], 0, flush=True)
                await call("delete", session_id=fork["session_id"])
                print("deleted", fork["session_id"], 0, flush=True)

    await asyncio.gather(*(client() for _ in range(4)))

asyncio.run(main())
"""


class TestKilled:
    """A process that is killed while it writes, synced to the disk, has lost nothing that it acknowledged."""

    def killed(self, home: Path, lines: int) -> list[list[str]]:
        """The lines that were acknowledged until the process was killed, after a number of them or a little later."""
        with subprocess.Popen([sys.executable, "-c", KILLED, str(home)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGKILL)
            said += process.stdout.read().splitlines(keepends=True)
        return [line.split() for line in said if line.endswith("\n")]

    def check(self, world: World, acknowledged: list[list[str]]) -> None:
        doomed = {session_id for what, session_id, _ in acknowledged if what == "doomed"}
        for what, session_id, value in acknowledged:
            if what == "deleted":
                assert world.call("get", session_id=session_id) is None
            elif session_id in doomed:
                continue
            elif what in ("entry", "updated"):
                entry = world.call("get-message", session_id=session_id, entry_id=value)["entry"]
                assert entry["revision"] >= (what == "updated")
            else:
                assert world.call("get", session_id=session_id)["meta"]["message_count"] >= int(value)
        sessions = self.sessions(world)
        for session_id, count in sessions.items():
            assert len(world.call("store::list-entries", session_id=session_id)["entries"]) == count
        added = [payload["entry_id"] for kind, payload in world.events() if kind == "message-added"]
        assert len(added) == len(set(added))
        assert {value for what, _, value in acknowledged if what == "entry"} <= set(added)
        world.close()
        for file in world.folder.glob("*.jsonl"):
            assert [json.loads(line)["type"] for line in file.read_bytes().splitlines()]

    def sessions(self, world: World) -> dict[str, int]:
        found, cursor = {}, None
        while True:
            page = world.call("list", limit=500, cursor=cursor)
            found |= {meta["session_id"]: meta["message_count"] for meta in page["sessions"]}
            if (cursor := page.get("next_cursor")) is None:
                return found

    def test_once(self, new_world: NewWorld, tmp_path: Path) -> None:
        acknowledged = self.killed(tmp_path, 40)
        self.check(new_world(), acknowledged)

    @pytest.mark.slow
    def test_again_and_again(self, new_world: NewWorld, tmp_path: Path) -> None:
        """Each time over what the one before has left."""
        acknowledged = []
        for number in range(30):
            acknowledged += self.killed(tmp_path, 1 + number * 17 % 211)
            if number % 5 == 0:
                self.check(new_world(), acknowledged)
        self.check(new_world(), acknowledged)

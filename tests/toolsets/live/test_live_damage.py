"""Session files that were changed or damaged while nothing ran: what the file or the journal holds is there."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backstory.faces.diagnosis import diagnose
from backstory.library import Library
from backstory.toolsets.live import recovery
from backstory.toolsets.live.files import read_problems, stamp_of
from tests.examples import examples
from tests.live_world import World, assistant, text, user

NewWorld = Callable[..., World]
QUICK = {"adapter": {"name": "fs", "config": {"fsync": "off"}}}


def store_of(world: World) -> Any:
    return world.live._adapter._store  # type: ignore[attr-defined]


def conversation(world: World, words: int = 6) -> str:
    """A session of that many messages, with a branch and an update among them."""
    session_id = world.session(title="T")
    first = world.append(session_id, user("0"))
    world.append(session_id, user("aside"))
    world.append(session_id, user("1"), parent_id=first)
    for number in range(2, words - 1):
        world.append(session_id, user(f"{number} \U0001f600 {'x' * 40 * number}"))
    answer = world.append(session_id, assistant(""))
    world.call("update-message", session_id=session_id, entry_id=answer, content=text("streamed"))
    return session_id


def lose_journal(world: World) -> None:
    shutil.rmtree(world.folder / ".store" / "journal")


def lose_state(world: World) -> None:
    shutil.rmtree(world.folder / ".store")


class TestEdited:
    """The index is rebuilt from a file whose content has changed, even with the same size and times."""

    def edited(self, world: World, session_id: str, old: bytes, new: bytes) -> None:
        """Write in place, as some editors and `cp` do: the inode stays."""
        world.close()
        path = world.file(session_id)
        data = path.read_bytes()
        assert old in data
        path.write_bytes(data.replace(old, new))
        world.live = world._start()

    def test_longer_in_the_middle(self, world: World) -> None:
        session_id = conversation(world)
        before = world.said(session_id)
        self.edited(world, session_id, b'"text":"1"', b'"text":"one, and a lot more than that"')
        after = ["one, and a lot more than that" if words == "1" else words for words in before]
        assert world.said(session_id) == after
        world.run(store_of(world).compact(session_id))
        assert world.said(session_id) == after
        world.reopen()
        assert world.said(session_id) == after

    def test_as_long_and_as_old_as_before(self, world: World) -> None:
        session_id = conversation(world)
        before = world.said(session_id)
        world.close()
        path = world.file(session_id)
        stat = path.stat()
        path.write_bytes(path.read_bytes().replace(b'"text":"1"', b'"text":"I"'))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        world.live = world._start()
        assert world.said(session_id) == ["I" if words == "1" else words for words in before]

    def test_within_one_tick_of_the_clock(self, world: World) -> None:
        """The times of a file do not tell whether it was changed just after the store was closed."""
        session_id = conversation(world)
        world.close()
        path = world.file(session_id)
        path.write_bytes(path.read_bytes().replace(b'"title":"T"', b'"title":"U"'))
        with closing(sqlite3.connect(world.folder / ".store" / "index.db")) as db, db:
            db.execute("UPDATE session SET stamp = ?", (stamp_of(path.stat()),))
        world.live = world._start()
        assert world.call("get", session_id=session_id)["meta"]["title"] == "U"
        assert "changed by another program" in world.live.status()["problems"][path.name]

    def test_a_restored_backup(self, world: World) -> None:
        session_id = conversation(world)
        world.close()
        backup = world.file(session_id).read_bytes()
        world.live = world._start()
        for number in range(5):
            world.append(session_id, user(f"later {number}"))
        before = (world.said(session_id), world.call("get", session_id=session_id))
        world.close()
        world.file(session_id).write_bytes(backup)
        world.live = world._start()
        assert (world.said(session_id), world.call("get", session_id=session_id)) == before
        assert "5 entries" in world.live.status()["problems"][world.file(session_id).name]
        world.run(store_of(world).compact(session_id))
        world.reopen()
        assert (world.said(session_id), world.call("get", session_id=session_id)) == before

    def test_an_unchanged_file_is_not_read_again(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        session_id, other = conversation(world), conversation(world)
        now = time.time_ns()
        with monkeypatch.context() as later:
            later.setattr(time, "time_ns", lambda: now + 10**10)
            world.close()
        with world.file(other).open("ab") as file:
            file.write(b"\n")
        read: list[str] = []
        original = recovery.Recovery._look_at

        def look_at(self: Any, session: str) -> None:
            read.append(session)
            original(self, session)

        monkeypatch.setattr(recovery.Recovery, "_look_at", look_at)
        world.live = world._start()
        assert read == [other]
        assert world.said(session_id) == world.said(other)

    def test_while_it_runs_it_is_not_compacted(self, world: World) -> None:
        session_id = conversation(world)
        path = world.file(session_id)
        data = path.read_bytes().replace(b'"text":"1"', b'"text":"I"')
        with path.open("r+b") as file:
            file.write(data)
        with pytest.raises(Exception, match="another program changed its file"):
            world.run(store_of(world).compact(session_id))
        assert path.read_bytes() == data

    def test_while_it_runs_no_other_entry_is_taken_for_it(self, world: World) -> None:
        session_id = world.session()
        first, second = world.append(session_id, user("a")), world.append(session_id, user("b"))
        data = world.file(session_id).read_bytes()
        swapped = data.replace(first.encode(), b"?" * len(first)).replace(second.encode(), first.encode())
        with world.file(session_id).open("r+b") as file:
            file.write(swapped)
        assert world.refused("get-message", session_id=session_id, entry_id=second) == "storage"


class TestPowerFailure:
    """A file whose end did not reach the disk is completed from the journal."""

    @pytest.mark.parametrize("crash", [False, True])
    @pytest.mark.parametrize("instead", [b"\0", b"\xff", b"x", b"\n", b'{"type":'])
    def test_the_right_length(self, new_world: NewWorld, instead: bytes, crash: bool) -> None:
        world = new_world(config=QUICK)
        session_id = world.session(title="T")
        size = world.file(session_id).stat().st_size
        for number in range(40):
            world.append(session_id, user(f"{number}"))
        before = (world.said(session_id), world.call("get", session_id=session_id))
        world.crash() if crash else world.close()
        data = world.file(session_id).read_bytes()
        tail = (instead * len(data))[: len(data) - size]
        world.file(session_id).write_bytes(data[:size] + tail)
        world.live = world._start()
        assert (world.said(session_id), world.call("get", session_id=session_id)) == before
        world.append(session_id, user("on"))
        world.reopen()
        assert world.said(session_id) == [*before[0], "on"]

    def test_the_index_was_written_and_the_file_was_not(
        self, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing about the file has changed but its content: after a restart of the machine that is looked at."""
        world = new_world(config=QUICK)
        session_id = conversation(world)
        before = world.said(session_id)
        world.run(store_of(world).upkeep.save())
        world.crash()
        path = world.file(session_id)
        data = path.read_bytes()
        path.write_bytes(data[:-300] + b"\0" * 300)
        monkeypatch.setattr(recovery, "stamp_of", lambda stat: stamp)
        (stamp,) = self.stamps(world)
        monkeypatch.setattr(recovery, "boot_id", lambda: "another")
        world.live = world._start()
        assert world.said(session_id) == before

    def stamps(self, world: World) -> list[str]:
        import sqlite3

        with sqlite3.connect(world.folder / ".store" / "index.db") as db:
            found = [row[0] for row in db.execute("SELECT stamp FROM session")]
        db.close()
        return found

    def test_a_damaged_journal_gives_what_follows_the_damage(self, world: World) -> None:
        session_id = world.session()
        for words in ("a", "b", "c"):
            world.append(session_id, user(words))
        head = world.live.last_seq
        world.crash()
        (log,) = (world.folder / ".store" / "journal").iterdir()
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join([*lines[:3], b"\0" * len(lines[3]), *lines[4:]]))
        world.live = world._start()
        assert world.live.last_seq == head
        assert world.said(session_id) == ["a", "b", "c"]

    def test_numbers_of_a_zeroed_journal_are_not_used_again(self, world: World) -> None:
        session_id = world.session()
        for words in ("a", "b", "c"):
            world.append(session_id, user(words))
        head = world.live.last_seq
        world.crash()
        (log,) = (world.folder / ".store" / "journal").iterdir()
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:3]) + b"\0" * len(b"".join(lines[3:])))
        world.live = world._start()
        assert world.live.last_seq >= head
        assert world.said(session_id) == ["a", "b", "c"]

    def test_a_session_that_was_made_again_is_not_mixed_with_the_old_one(self, new_world: NewWorld) -> None:
        world = new_world(config=QUICK)
        world.call("ensure", session_id="s")
        world.append("s", user("old"))
        old = world.file("s").read_bytes()
        world.call("delete", session_id="s")
        world.call("ensure", session_id="s")
        world.append("s", user("new"))
        world.crash()
        world.file("s").write_bytes(old)
        world.live = world._start()
        assert world.said("s") == ["new"]

    def test_a_lost_index_does_not_delete_again(self, new_world: NewWorld) -> None:
        """An old deletion in the journal does not apply to a file that was put there since."""
        world = new_world(config=QUICK)
        world.call("ensure", session_id="s")
        world.append("s", user("mine"))
        world.close()
        backup = world.file("s").read_bytes()
        world.live = world._start()
        world.call("delete", session_id="s")
        world.call("ensure", session_id="t")
        world.call("delete", session_id="t")
        world.call("ensure", session_id="t")
        world.append("t", user("again"))
        world.run(store_of(world).compact("t"))
        world.close()
        world.file("s").write_bytes(backup)
        for path in (world.folder / ".store").glob("index.db*"):
            path.unlink()
        world.live = world._start()
        assert world.said("s") == ["mine"]
        assert world.said("t") == ["again"]


class TestOneDamagedLine:
    """A line that nothing can restore is missing, and only that: what was said before it is still said before."""

    @pytest.mark.parametrize("spoilt", [b"\xff", b"\\ud800", b"\xc3", b"\0\0", b'","x'])
    def test_the_rest_is_there(self, world: World, spoilt: bytes) -> None:
        session_id = world.session(title="spoilt")
        for words in ("first", "before", "spoil me", "after", "last"):
            world.append(session_id, user(words))
        world.close()
        lose_journal(world)
        file = world.file(session_id)
        file.write_bytes(file.read_bytes().replace(b"spoil me", spoilt))
        world.live = world._start()
        assert world.said(session_id) == ["first", "before", "after", "last"]
        assert world.call("get", session_id=session_id)["meta"]["message_count"] == 4
        assert "1 line could not be read" in world.live.status()["problems"][file.name]
        world.append(session_id, user("on"))
        world.run(store_of(world).compact(session_id))
        world.close()
        lose_state(world)
        world.live = world._start()
        assert world.said(session_id) == ["first", "before", "after", "last", "on"]

    def test_the_last_one(self, world: World) -> None:
        session_id = world.session()
        for words in ("a", "b", "spoil me"):
            world.append(session_id, user(words))
        world.close()
        lose_state(world)
        file = world.file(session_id)
        file.write_bytes(file.read_bytes().replace(b"spoil me", b"\xff"))
        world.live = world._start()
        assert world.said(session_id) == ["a", "b"]

    def test_is_known_to_the_next_process(self, world: World) -> None:
        session_id = world.session()
        world.append(session_id, user("spoil me"))
        world.append(session_id, user("b"))
        world.close()
        lose_journal(world)
        file = world.file(session_id)
        file.write_bytes(file.read_bytes().replace(b"spoil me", b"\xff"))
        world.live = world._start()
        world.reopen()
        assert "1 line could not be read" in world.live.status()["problems"][file.name]
        assert "1 line could not be read" in read_problems(world.folder)[file.name]
        world.run(store_of(world).compact(session_id))
        world.reopen()
        assert read_problems(world.folder) == {}

    def test_what_is_nested_in_a_damaged_line_is_no_record(self, world: World) -> None:
        meta = {"type": "meta", "meta": {"session_id": "x", "title": "hostile", "description": "", "status": "idle"}}
        meta["meta"] |= {"created_at": 1, "updated_at": 2**60, "message_count": 1}  # type: ignore[operator]
        call = {"type": "function_call", "id": "c", "function_id": "f", "arguments": meta}
        session_id = world.session(title="mine")
        message = {**assistant(), "content": [*text("spoil me"), call]}
        world.append(session_id, message)
        world.close()
        lose_state(world)
        file = world.file(session_id)
        file.write_bytes(file.read_bytes().replace(b"spoil me", b"\xff"))
        world.live = world._start()
        assert world.call("get", session_id=session_id)["meta"]["title"] == "mine"


class Damage:
    """A damaged range of a file; its new content cannot be taken for a correction of a text."""

    def __init__(self, data: bytes, start: float, length: float, kind: str) -> None:
        self.start = int(start * len(data))
        self.end = len(data) if kind == "cut" else self.start + 1 + int(length * (len(data) - self.start))
        filler = {"zero": b"\0", "garbage": b"\xfe\xff", "lines": b"\n?", "cut": b""}[kind]
        self.data = (
            data[: self.start] + (filler * len(data))[: self.end - self.start if filler else 0] + data[self.end :]
        )

    def spares(self, start: int, end: int) -> bool:
        return end <= self.start or start >= self.end


Left = Literal["all", "no journal", "no state"]


class TestAnyRange:
    """Any range zeroed, overwritten or cut off: every entry that the journal has, or the file still has, is there."""

    @settings(max_examples=examples(0.6), suppress_health_check=list(HealthCheck))
    @given(
        left=st.sampled_from(["all", "no journal", "no state"]),
        start=st.floats(0, 0.999),
        length=st.floats(0, 1),
        kind=st.sampled_from(["zero", "garbage", "lines", "cut"]),
        crash=st.booleans(),
    )
    def test_nothing_is_lost(
        self, tmp_path_factory: pytest.TempPathFactory, left: Left, start: float, length: float, kind: str, crash: bool
    ) -> None:
        world = World(tmp_path_factory.mktemp("home"), QUICK)
        try:
            self.check(world, left, (start, length, kind), crash)
        finally:
            world.end()

    def check(self, world: World, left: Left, where: tuple[float, float, str], crash: bool) -> None:
        session_id, other = conversation(world), conversation(world)
        before, bystander = world.said(session_id), world.said(other)
        entries = {entry["id"]: entry for entry in world.call("store::list-entries", session_id=session_id)["entries"]}
        world.crash() if crash else world.close()
        path = world.file(session_id)
        data = path.read_bytes()
        damage = Damage(data, *where)
        path.write_bytes(damage.data)
        if left != "all":
            lose_journal(world) if left == "no journal" else lose_state(world)
        world.live = world._start()
        assert world.said(other) == bystander
        if left == "all":
            assert world.said(session_id) == before
            expected = set(entries)
        else:
            # Without an index a file that was cut off looks like an unfinished write.
            whole = where[2] == "cut" and (crash or left == "no state")
            expected = {entry_id for entry_id in entries if self.is_spared(data, entry_id, damage, whole=whole)}
            if not expected and world.call("get", session_id=session_id) is None:
                return
        found = {entry["id"]: entry for entry in world.call("store::list-entries", session_id=session_id)["entries"]}
        assert expected <= set(found)
        for entry_id in expected:
            assert found[entry_id]["message"] == entries[entry_id]["message"]
        if world.call("get", session_id=session_id) is None:
            assert path.name in world.live.status()["problems"]
            return
        world.append(session_id, user("on"))
        after = world.said(session_id)
        assert [words for words in after if words in before] == [words for words in before if words in after]
        world.run(store_of(world).compact(session_id))
        world.close()
        lose_state(world)
        world.live = world._start()
        assert world.said(session_id) == after

    def is_spared(self, data: bytes, entry_id: str, damage: Damage, *, whole: bool) -> bool:
        """True if the last line of an entry, or the whole mutation that wrote it, is unchanged."""
        offset, spared, lines = 0, False, data.splitlines(keepends=True)
        for number, line in enumerate(lines):
            record = json.loads(line)
            if record["type"] == "entry" and record["entry"]["id"] == entry_id:
                written = lines[number : number + record["records"]] if whole else [line]
                spared = damage.spares(offset, offset + len(b"".join(written)) - 1)
            offset += len(line)
        return spared


class TestHopeless:
    """A file of which nothing is left is named, and stays as it is; everything else works."""

    @pytest.mark.parametrize("data", [b"", b"\0" * 500, b"\xff" * 500, b"?\n" * 100])
    def test_without_a_journal(self, world: World, data: bytes, tmp_path: Path) -> None:
        session_id, other = conversation(world), conversation(world)
        world.close()
        lose_journal(world)
        world.file(session_id).write_bytes(data)
        world.live = world._start()
        assert world.said(session_id) == []
        assert "lost: " in world.live.status()["problems"][world.file(session_id).name]
        assert world.said(other)
        world.append(session_id, user("on"))
        world.reopen()
        assert world.said(session_id) == ["on"]


class TestDoctor:
    """`backstory doctor` names the files that are not whole."""

    def test_names_them(self, world: World) -> None:
        session_id = conversation(world)
        world.close()
        lose_journal(world)
        file = world.file(session_id)
        file.write_bytes(file.read_bytes().replace(b'"text":"1"', b'"text":\xff'))
        world.live = world._start()
        world.close()
        with Library(world.home, agents_home=world.home, environ={}) as library:
            messages = [problem.message for problem in diagnose(library).problems]
        assert any(str(file) in message and "1 line could not be read" in message for message in messages)

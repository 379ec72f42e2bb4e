"""A file system that is really full: a small one of its own, in memory, where it may be mounted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from backstory.toolsets.live import LiveError
from tests.live_world import World, assistant, text, user

NewWorld = Callable[..., World]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "backstory-test", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield folder
    # Lazily: what the world of the test has open goes after this.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Full:
    """Two sessions on a disk without room for anything more; `ballast` is what can be thrown off."""

    def __init__(self, disk: Path, new_world: NewWorld) -> None:
        self.ballast = disk / "ballast"
        self.ballast.write_bytes(b"x" * 500_000)
        self.world = new_world(disk / "home")
        self.acknowledged: dict[str, list[str]] = {self.world.session(): [] for _ in range(2)}
        self.first = next(iter(self.acknowledged))
        self.streamed = self.world.append(self.first, assistant(""))
        self.acknowledged[self.first].append(self.streamed)
        # More than the index takes when it is saved, which happens at any moment: a deletion makes room for both.
        for session_id, entries in self.acknowledged.items():
            entries.append(self.world.append(session_id, user("x" * 200_000)))
        # Until not even a little fits, in whichever of the files it is that has no room.
        for size in (20_000, 2_000, 1):
            for session_id, entries in self.acknowledged.items():
                while (entry_id := self.append(session_id, "x" * size)) is not None:
                    entries.append(entry_id)

    def append(self, session_id: str, words: str) -> str | None:
        try:
            return self.world.append(session_id, user(words))
        except LiveError as error:
            if error.code != "storage":
                raise
            return None

    def holds(self) -> bool:
        """Everything acknowledged is there, and nothing else."""
        stored = {session_id: self.world.entry_ids(session_id) for session_id in self.acknowledged}
        added = [payload["entry_id"] for kind, payload in self.world.events() if kind == "message-added"]
        return stored == self.acknowledged and sorted(added) == sorted(chain(*self.acknowledged.values()))


@pytest.fixture
def full(disk: Path, new_world: NewWorld) -> Full:
    return Full(disk, new_world)


class TestFullFileSystem:
    """Changes are refused with nothing of them seen; what was acknowledged is there, and goes on when there is room."""

    def test_nothing_is_lost(self, full: Full) -> None:
        assert full.holds()
        full.world.crash_and_reopen()
        assert full.holds()

    @pytest.mark.parametrize("crash", [False, True])
    def test_room_again(self, full: Full, crash: bool) -> None:
        if crash:
            full.world.crash()
        full.ballast.unlink()
        if crash:
            full.world.live = full.world._start()
        full.acknowledged[full.first].append(full.world.append(full.first, user("on")))
        assert full.holds()
        full.world.reopen()
        assert full.holds()

    def test_other_changes(self, full: Full) -> None:
        world, session_id, entry_id = full.world, full.first, full.streamed
        assert world.refused("create", title="x" * 5000) == "storage"
        assert world.refused("ensure", session_id="mine", title="x" * 5000) == "storage"
        assert world.refused("set-meta", session_id=session_id, title="x" * 5000) == "storage"
        assert world.refused("fork", session_id=session_id, entry_id=full.acknowledged[session_id][-1]) == "storage"
        content = text("x" * 5000)
        assert world.refused("update-message", session_id=session_id, entry_id=entry_id, content=content) == "storage"
        many = [user("x" * 5000)] * 2
        assert world.refused("append-many", session_id=session_id, messages=many) == "storage"
        assert full.holds()
        assert len(world.call("list")["sessions"]) == len(list(world.folder.glob("*.jsonl"))) == 2
        assert world.call("get-message", session_id=session_id, entry_id=entry_id)["entry"]["revision"] == 0

    def test_a_deletion_makes_room(self, full: Full) -> None:
        """It has to be logged first, for which room is kept."""
        other = list(full.acknowledged)[1]
        assert full.world.call("delete", session_id=other) == {"deleted": True}
        full.acknowledged[full.first].append(full.world.append(full.first, user("x" * 1_000)))
        full.world.crash_and_reopen()
        assert full.world.call("get", session_id=other) is None
        assert full.world.entry_ids(full.first) == full.acknowledged[full.first]

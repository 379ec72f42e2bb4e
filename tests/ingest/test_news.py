"""Before a search: whether there is anything to read, found out without the writer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstory.archive.base import ALL_FILES, Batch, EventRow, FileRow, FilesRequest, SyncState
from backstory.archive.local.writer import LocalWriter
from backstory.ingest.watch import Frontier, find_news
from backstory.library import Library
from backstory.model import EventType, session_id
from tests.archive_world import conversations
from tests.examples import PATIENT
from tests.transcripts import Transcript


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    agents = tmp_path / "agents"
    Transcript("one").prompt("an apple").answer("yes").write(agents)
    Transcript("two").prompt("a pear").answer("no").write(agents)
    with Library(tmp_path / "backstory", agents_home=agents, environ=PATIENT) as library:
        library.sync()
        yield library


def has_written(library: Library, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if catching up needed the writer."""
    took: list[bool] = []
    writer = library.archive.writer
    monkeypatch.setattr(library.archive, "writer", lambda: took.append(True) or writer())
    library.catch_up()
    return bool(took)


def found(library: Library, query: str) -> int:
    count: int = library.search(query)["data"]["result_count"]
    return count


class TestCatchingUp:
    """The writer is for those who have something to write."""

    def test_nothing_is_new(self, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not has_written(library, monkeypatch)
        assert found(library, "apple") == 1

    def test_a_new_transcript(self, library: Library, tmp_path: Path) -> None:
        Transcript("three").prompt("a cherry").write(tmp_path / "agents")
        library.catch_up()
        assert found(library, "cherry") == 1

    def test_a_transcript_that_has_grown(self, library: Library, tmp_path: Path) -> None:
        Transcript("one").prompt("an apple").answer("yes").prompt("a plum").write(tmp_path / "agents")
        library.catch_up()
        assert found(library, "plum") == 1

    def test_a_symlink_to_itself(
        self, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Is no transcript, and no reason not to read the others."""
        one = Transcript("one").path(tmp_path / "agents")
        (one.parent / "loop.jsonl").symlink_to("loop.jsonl")
        assert not has_written(library, monkeypatch)
        assert not caplog.records

    def test_a_transcript_that_is_gone(self, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is noted once; what was read of it stays."""
        Transcript("two").path(tmp_path / "agents").unlink()
        assert has_written(library, monkeypatch)
        assert library.archive.counts().files_missing == 1
        assert not has_written(library, monkeypatch)
        assert found(library, "pear") == 1

    def test_a_sync_that_was_cut_short(self, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        writer = library.archive.writer()
        writer.write(Batch(sync=SyncState(started_at=1, finished_at=None)))
        writer.close()
        assert has_written(library, monkeypatch)

    def test_a_writer_that_died(self, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before what it had committed could be found."""
        key = conversations(library.archive)[0].key
        writer = library.archive.writer()
        event = EventRow(
            uid=bytes(16), session=key, turn=1, ordinal=9, type=EventType.USER_INPUT, ts=1, text="a quince"
        )
        writer.write(Batch(events=[event]))
        writer._lock.release()  # type: ignore[attr-defined]
        assert found(library, "quince") == 0
        assert has_written(library, monkeypatch)
        assert found(library, "quince") == 1

    def test_traces_that_are_gone(self, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        library.close()
        for path in (tmp_path / "backstory").glob("traces.db*"):
            path.unlink()
        with Library(tmp_path / "backstory", agents_home=tmp_path / "agents", environ={}) as again:
            assert has_written(again, monkeypatch)
            assert again.call("list_traces")["count"] == 2


class TestCost:
    """The cost of a look does not depend on the number of files."""

    @pytest.fixture
    def agents(self, tmp_path: Path) -> Path:
        """An agents' home whose folders and files are a day old, the first ones in the order of paths the newest."""
        agents = tmp_path / "agents"
        for number in range(30):
            Transcript(f"s{number}", cwd=f"/p{number % 3}").prompt(f"number {number}").write(agents)
        self.age(agents)
        return agents

    @staticmethod
    def age(agents: Path) -> None:
        day_ago = time.time_ns() - 86_400 * 10**9
        for number, path in enumerate(sorted((*agents.rglob("*"), agents))):
            os.utime(path, ns=(day_ago, day_ago - number))

    @staticmethod
    def looked_at(library: Library, monkeypatch: pytest.MonkeyPatch, recent: int, older: int = 0) -> tuple[bool, int]:
        """The answer (is there news?), and the number of files and folders that were looked at."""
        looks: list[object] = []
        stat, scandir = os.stat, os.scandir
        with monkeypatch.context() as patch:
            root = str(library.agents_home / ".claude" / "projects")

            def counted(path: object) -> Any:
                if str(path).startswith(root):
                    looks.append(path)
                return path

            patch.setattr(os, "stat", lambda path, **more: stat(counted(path), **more))
            patch.setattr(os, "scandir", lambda path=".": scandir(counted(path)))
            news = find_news(
                library.archive,
                library.sources,
                library.roots,
                Frontier(library.home / "frontier"),
                recent=recent,
                older=older,
            )
        return news is None or bool(news), len(looks)

    @pytest.fixture
    def library(self, tmp_path: Path, agents: Path) -> Iterator[Library]:
        with Library(tmp_path / "backstory", agents_home=agents, environ=PATIENT) as library:
            library.sync()
            yield library

    def test_only_what_has_changed_is_read(
        self, library: Library, agents: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rows of other files are not, although a transcript may concern others."""
        asked: list[FilesRequest] = []
        files = LocalWriter.files

        def noted(writer: LocalWriter, request: FilesRequest = ALL_FILES) -> Iterator[FileRow]:
            asked.append(request)
            return files(writer, request)

        monkeypatch.setattr(LocalWriter, "files", noted)
        Transcript("new", cwd="/p1").prompt("something new").write(agents)
        Transcript("s7", cwd="/p1").prompt("number 7").prompt("a plum").write(agents)
        library.catch_up()

        assert found(library, "something new") == found(library, "plum") == 1
        assert asked
        assert [request for request in asked if request.paths is None and request.naming is None] == []

    def test_nothing_is_new(self, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        """Folders are looked at, not listed, and so many files as are asked for."""
        news, looks = self.looked_at(library, monkeypatch, recent=5)
        assert not news
        assert looks <= 5 + 4 + 4  # four folders, and the roots

    def test_a_new_file_among_many(self, library: Library, agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Transcript("new", cwd="/p1").prompt("something new").write(agents)
        assert self.looked_at(library, monkeypatch, recent=0)[0]

    def test_a_new_folder(self, library: Library, agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Transcript("new", cwd="/other").prompt("something new").write(agents)
        assert self.looked_at(library, monkeypatch, recent=0)[0]

    def test_a_file_that_is_gone(self, library: Library, agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Transcript("s7", cwd="/p1").path(agents).unlink()
        assert self.looked_at(library, monkeypatch, recent=0)[0]

    def test_another_file_in_a_folder(self, library: Library, agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is no transcript: there is nothing to read."""
        (Transcript("s7", cwd="/p1").path(agents).parent / "notes.txt").touch()
        assert not self.looked_at(library, monkeypatch, recent=0)[0]

    def test_an_old_file_that_grows(self, library: Library, agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is noticed by the sync that is due after an hour, if it is not among the files that are looked at."""
        path = Transcript("s7", cwd="/p1").path(agents)
        with path.open("a") as file:
            file.write("{}\n")
        assert not self.looked_at(library, monkeypatch, recent=0)[0]
        assert self.looked_at(library, monkeypatch, recent=50)[0]
        now = time.time_ns()
        for hours in (2, -2):  # a clock that was ahead at the last sync is set right
            with monkeypatch.context() as patch:
                patch.setattr(time, "time_ns", lambda at=now + hours * 3600 * 10**9: at)
                assert self.looked_at(library, monkeypatch, recent=0)[0]

    def test_older_files_in_turn(self, library: Library, agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each look goes on where the one before it ended, and none is at more files: of thirty, an old one that grows
        is noticed by the third look at ten, and by every third one from then on."""
        paths = sorted(agents.rglob("*.jsonl"))
        with paths[25].open("a") as file:
            file.write("{}\n")
        looks = [self.looked_at(library, monkeypatch, recent=1, older=10) for _ in range(8)]
        assert [number for number, (news, _) in enumerate(looks, 1) if news] == [3, 6]
        assert max(count for _, count in looks) <= 1 + 10 + 4 + 4

    def test_a_frontier_that_cannot_be_kept(
        self, library: Library, agents: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The look is at the first of the older files, every time."""
        (library.home / "frontier").mkdir()
        assert not self.looked_at(library, monkeypatch, recent=1, older=10)[0]
        with sorted(agents.rglob("*.jsonl"))[5].open("a") as file:
            file.write("{}\n")
        assert self.looked_at(library, monkeypatch, recent=1, older=10)[0]

    def test_several_searches(
        self, library: Library, agents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A session that is resumed after long is found within some searches, each by an archive opened anew."""
        monkeypatch.setitem(find_news.__kwdefaults__, "recent", 1)
        monkeypatch.setitem(find_news.__kwdefaults__, "older", 10)
        Transcript("s29", cwd="/p2").prompt("number 29").prompt("a quince at last").write(agents)
        hits = []
        for _ in range(3):
            with Library(tmp_path / "backstory", agents_home=agents, environ=PATIENT) as searching:
                searching.catch_up()
                hits.append(found(searching, "quince"))
        assert hits == [0, 0, 1]

    def test_a_forgotten_session(self, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        """The frontier, which may name its file, is forgotten with it."""
        self.looked_at(library, monkeypatch, recent=1, older=10)
        assert (library.home / "frontier").read_text()
        library.forget(session_id(conversations(library.archive)[0].key))
        assert not (library.home / "frontier").exists()

    def test_a_folder_that_had_just_changed(
        self, tmp_path: Path, agents: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its time is not trusted: a file that comes within the same tick is noticed."""
        folder = Transcript("s7", cwd="/p1").path(agents).parent
        os.utime(folder)
        now = folder.stat().st_mtime_ns
        with Library(tmp_path / "backstory", agents_home=agents, environ={}) as library:
            library.sync()
            Transcript("new", cwd="/p1").prompt("something new").write(agents)
            os.utime(folder, ns=(now, now))
            assert self.looked_at(library, monkeypatch, recent=0)[0]

    def test_nothing_is_looked_at_while_there_is_a_writer(
        self, library: Library, agents: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = library.archive.writer()
        monkeypatch.setattr(library, "_find_news", lambda: pytest.fail("the writer does that"))
        library.catch_up()
        writer.close()

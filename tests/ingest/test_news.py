"""Before a search: whether there is anything to read, found out without the writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backstory.archive.base import Batch, EventRow, SyncState
from backstory.library import Library
from backstory.model import EventType
from tests.archive_world import conversations
from tests.transcripts import Transcript


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    agents = tmp_path / "agents"
    Transcript("one").prompt("an apple").answer("yes").write(agents)
    Transcript("two").prompt("a pear").answer("no").write(agents)
    with Library(tmp_path / "backstory", agents_home=agents, environ={}) as library:
        library.sync()
        yield library


def has_written(library: Library, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether catching up needed the writer."""
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

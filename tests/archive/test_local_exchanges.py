"""The index of whole exchanges."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backstory.archive.base import Archive, ExchangesRequest
from backstory.library import Library
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

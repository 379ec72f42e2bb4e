"""Damaged files and full disks: errors that name the cause and what to do, in every face."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from backstory.archive.errors import explain
from backstory.archive.local import archive as local_archive
from backstory.archive.local.index import IndexDamaged, explained
from backstory.archive.spans import SpanRow
from backstory.faces.cli.app import run
from backstory.library import TOOLSETS, Library
from backstory.sqlite import FULL_DISK
from tests.transcripts import Transcript


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    Transcript("one").prompt("Tell me about wombats").answer("They dig. " * 50).write(tmp_path)
    with Library(tmp_path / ".backstory") as library:
        library.sync()
    return tmp_path


@pytest.fixture
def library(home: Path) -> Iterator[Library]:
    with Library(home / ".backstory") as library:
        yield library


def damage_index(home: Path, suffix: str) -> None:
    folder = home / ".backstory" / "index" / "events"
    for path in (folder / (folder / "current").read_text()).glob(f"*{suffix}"):
        # A new file in its place: threads of tantivy may have the old one mapped, and would end the process.
        damaged = path.with_name("damaged")
        damaged.write_bytes(path.read_bytes()[:-9])
        damaged.replace(path)


def message(library: Library) -> str:
    error = library.search("wombats")["error"]
    assert error["code"] == "internal_error"
    text: str = error["message"]
    return text


class TestDamagedIndex:
    """The index is made from the record: nothing is lost with it."""

    def test_searching(self, home: Path) -> None:
        """The error names the cure; opening works, and the next sync rebuilds the index."""
        for suffix in ("meta.json", ".term", ".idx", ".pos", ".fast", ".fieldnorm"):
            damage_index(home, suffix)
            with Library(home / ".backstory") as library:
                assert message(library).startswith(
                    "search_sessions failed: the search index is damaged: run backstory reindex, which loses nothing ("
                ), suffix
                listed = library.sessions("2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z")["data"]["sessions"]
                assert library.open(listed[0]["id"])["data"]["kind"] == "session"
                library.sync()
                assert library.search("wombats")["data"]["result_count"] == 1

    def test_commands(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """No traceback; the doctor knows it too, and `reindex` mends it."""
        damage_index(home, ".term")
        assert run(["search", "wombats"]) == 1
        assert "the search index is damaged: run backstory reindex" in capsys.readouterr().err
        assert run(["doctor"]) == 1
        assert "✗ the search index is damaged\n    fix: run backstory reindex" in capsys.readouterr().out
        assert run(["reindex"]) == 0
        assert run(["search", "wombats"]) == 0


class TestDamagedArchive:
    @pytest.mark.parametrize("kept", [0, 40, 5000])
    def test_from_the_beginning(self, home: Path, kept: int, capsys: pytest.CaptureFixture[str]) -> None:
        """The file is named, and what to do with it."""
        path = home / ".backstory" / "archive.db"
        for beside in path.parent.glob("archive.db-*"):
            beside.unlink()
        path.write_bytes(path.read_bytes()[:kept] + b"garbage" * 3000)
        for command in (["search", "wombats"], ["sync"], ["open", "x"], ["sessions"], ["reindex"], []):
            assert run([*command, "--json"]) == 1
            message = capsys.readouterr().err
            assert "archive.db is damaged" in message
            assert "move it away and run backstory sync" in message

    def test_while_it_is_open(self, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """MCP clients get the same message."""
        (tmp_path / "garbage.db").write_bytes(b"garbage" * 1000)

        def fail(*_: object) -> None:
            sqlite3.connect(tmp_path / "garbage.db").execute("SELECT * FROM event")

        monkeypatch.setattr(library.archive, "search", fail)
        assert message(library).startswith(
            "search_sessions failed: archive.db is damaged (file is not a database): move"
        )


def damage_traces(home: Path, kept: int) -> Path:
    path = home / ".backstory" / "traces.db"
    for beside in path.parent.glob("traces.db-*"):
        beside.unlink()
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:kept] + b"garbage!" * ((size - kept) // 8))
    return path


@pytest.mark.parametrize("kept", [0, 40, 4096, 4096 * 5])
class TestDamagedTraces:
    """A damaged traces.db takes nothing else with it."""

    ASKED: ClassVar = {
        "list_traces": {},
        "search_traces": {"filters": [{"field": "data.type", "operator": "eq", "value": "SPAN"}]},
        "search_spans": {"filters": [{"field": "data.metadata.x", "operator": "eq", "value": 1}]},
        "get_trace": {"traceId": "00" * 16},
    }

    def test_all_else_goes_on(self, home: Path, kept: int) -> None:
        damage_traces(home, kept)
        Transcript("two").prompt("Tell me about quolls").answer("They are spotted.").write(home)
        with Library(home / ".backstory", agents_home=home) as library:
            for name in TOOLSETS:
                assert library.toolset(name).tools
            library.sync()
            assert library.search("quolls")["data"]["result_count"] == 1
            assert "error" not in library.call("moss.list", {})

    def test_tools_say_so(self, home: Path, library: Library, kept: int) -> None:
        damage_traces(home, kept)
        for name, arguments in self.ASKED.items():
            answer = library.call(name, arguments)
            assert answer["code"] == "CONNECTION_FAILED"
            assert "traces.db is damaged" in answer["error"]

    def test_commands(self, home: Path, kept: int, capsys: pytest.CaptureFixture[str]) -> None:
        """The doctor names it and the cure; commands that need it fail with the same words, all others work."""
        damage_traces(home, kept)
        assert run(["search", "wombats"]) == 0
        assert run(["sync"]) == 0
        capsys.readouterr()
        assert run(["doctor", "--json"]) == 1
        (problem,) = [p for p in msgspec.json.decode(capsys.readouterr().out)["problems"] if "traces" in p["message"]]
        assert "traces.db is damaged" in problem["message"]
        assert problem["fix"].startswith("move it away and run backstory sync")
        for command in (["traces", "list"], ["usage"]):
            assert run(command) == 1
            assert "traces.db is damaged" in capsys.readouterr().err

    def test_the_cure(self, home: Path, library: Library, kept: int) -> None:
        """Works for processes that have it open, too."""
        before = library.call("list_traces", {})
        path = damage_traces(home, kept)
        library.call("list_traces", {})
        path.rename(path.with_name("damaged.db"))
        with Library(home / ".backstory", agents_home=home) as other:
            other.sync()
        assert library.call("list_traces", {}) == before
        library.archive.spans.put([SpanRow(trace="ab" * 16, id=1, name="new", start=1)], {})
        assert library.call("get_trace", {"traceId": "ab" * 16})["trace"]["name"] == "new"
        library.archive.spans.check()


class TestFullDisk:
    def test_the_record(self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """Batches that could be committed are there; the rest waits for room."""
        connect = local_archive.connect

        def small(path: Path, **options: Any) -> sqlite3.Connection:
            connection = connect(path, **options)
            connection.execute(f"PRAGMA max_page_count={path.stat().st_size // 4096}")
            return connection

        noise = " ".join(sha256(bytes(number)).hexdigest() for number in range(3_000))
        Transcript("two").prompt(f"quolls {noise}").answer("x").write(home)
        with monkeypatch.context() as patched:
            patched.setattr(local_archive, "connect", small)
            assert run(["sync"]) == 1
            assert FULL_DISK in capsys.readouterr().err
        assert run(["sync"]) == 0
        with Library(home / ".backstory") as library:
            assert library.search("quolls")["data"]["result_count"] == 1

    def test_other_ways_to_say_it(self) -> None:
        assert explain(OSError(errno.ENOSPC, "No space left on device")) == FULL_DISK
        assert explain(OSError(errno.ENOENT, "no such file")) is None
        assert explain(ValueError("x")) is None
        assert explain(sqlite3.ProgrammingError("closed")) is None

    def test_a_disk_that_fills_up_under_the_index(self) -> None:
        """Tantivy does not say why its thread ended: room comes first, or a new index would fail in the same way."""
        said = "An error occurred in a thread: 'An index writer was killed.. A worker thread encountered an error'"
        with (
            pytest.raises(IndexDamaged, match="cannot be written: make room if the disk is full, then run"),
            explained(),
        ):
            raise ValueError(said)

"""Keeping the archive live."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backstory.ingest import watch as watch_module
from backstory.library import Library
from tests.transcripts import Transcript

PATIENCE = 60.0


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fails when it does not."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < PATIENCE, "waited in vain"
        time.sleep(0.01)


class Watched:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        (self.home / ".claude" / "projects").mkdir(parents=True)
        self.library = Library(folder / "backstory", agents_home=self.home, environ={})
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.library.watch, args=(self.stop,))

    def start(self) -> None:
        self.thread.start()
        eventually(lambda: self.library.archive.sync_state().first_finished_at is not None)

    def finds(self, word: str) -> bool:
        return bool(self.library.search(word)["data"]["results"])


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.stop.set()
    watched.thread.join()
    watched.library.close()


class TestWatch:
    """Transcripts are found as agents write them, without anybody asking for a sync."""

    def test_what_was_there(self, watched: Watched) -> None:
        Transcript("old").prompt("ancient wisdom").write(watched.home)
        watched.start()
        eventually(lambda: watched.finds("ancient"))

    def test_appended_lines(self, watched: Watched) -> None:
        transcript = Transcript("one").prompt("first")
        path = transcript.write(watched.home)
        watched.start()
        for number in range(3):
            transcript.answer(f"appended{number}")
            with path.open("a") as file:
                file.write(transcript.text(start=len(transcript.records) - 1))
            eventually(lambda word=f"appended{number}": watched.finds(word))

    def test_a_new_project(self, watched: Watched) -> None:
        """The folder and the file in it come at once, before anybody can listen to the folder."""
        watched.start()
        for number in range(3):
            Transcript(f"new {number}", cwd=f"/home/dev/new{number}").prompt(f"greenfield{number}").write(watched.home)
            eventually(lambda word=f"greenfield{number}": watched.finds(word))

    def test_another_agent(self, watched: Watched) -> None:
        """A folder that was not there when the watch began."""
        watched.start()
        rollout = watched.home / ".codex" / "sessions" / "2026" / "01" / "02"
        rollout.mkdir(parents=True)
        name = "rollout-2026-01-02T03-04-05-0199c3a1-0000-7000-8000-000000000001.jsonl"
        message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "newcomer"}]}
        records = [
            {"type": "session_meta", "payload": {"id": "0199c3a1-0000-7000-8000-000000000001", "cwd": "/x"}},
            {"type": "response_item", "payload": message},
        ]
        stamped = ({"timestamp": "2026-01-02T03:04:05.000Z", **record} for record in records)
        (rollout / name).write_text("".join(json.dumps(record) + "\n" for record in stamped))
        eventually(lambda: watched.finds("newcomer"))

    @pytest.mark.parametrize("kind", [OSError, RuntimeError])
    def test_a_system_that_cannot_tell(
        self, watched: Watched, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
    ) -> None:
        """Without notifications (limits, odd file systems) it looks by itself."""

        def refuse(*_: object, **__: object) -> Iterator[set[object]]:
            raise kind("limit reached")
            yield

        monkeypatch.setattr("watchfiles.watch", refuse)
        monkeypatch.setattr(watch_module, "_POLL_SECONDS", 0.05)
        watched.start()
        Transcript("one").prompt("polled").write(watched.home)
        eventually(lambda: watched.finds("polled"))

    def test_folders_that_go_and_come(self, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch_module, "_RESCAN_SECONDS", 1.0)
        Transcript("one").prompt("before").write(watched.home)
        watched.start()
        shutil.rmtree(watched.home / ".claude")
        Transcript("two").prompt("afterwards").write(watched.home)
        eventually(lambda: watched.finds("afterwards"))
        assert watched.finds("before")

    def test_the_next_one_takes_over(self, watched: Watched) -> None:
        watched.start()
        other = Library(watched.library.home, agents_home=watched.home, environ={})
        stop = threading.Event()
        thread = threading.Thread(target=other.watch, args=(stop,))
        thread.start()
        watched.stop.set()
        watched.thread.join()
        Transcript("one").prompt("succession").write(watched.home)
        eventually(lambda: watched.finds("succession"))
        stop.set()
        thread.join()
        other.close()

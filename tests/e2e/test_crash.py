"""Whatever is killed when: an event is committed once."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backstory.archive import open_engine
from backstory.archive.base import ArchiveBusy, ExchangesRequest, SearchRequest
from backstory.library import Library
from backstory.model import SEARCHABLE_TYPES
from tests.archive_world import PROJECTION, Rewriting, exchanges_of, found, sync
from tests.transcripts import Transcript

_SESSIONS = 30
_TURNS = 40

_SYNC = "import sys; from pathlib import Path; from backstory.library import Library; Library(Path(sys.argv[1])).sync()"


def grow(home: Path, transcripts: list[Transcript], part: float) -> None:
    """Let every transcript be written up to some byte, as agents at work leave them."""
    for transcript in transcripts:
        path, data = transcript.path(home), transcript.text().encode()
        written = path.stat().st_size if path.exists() else 0
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data[written : int(part * len(data))])


def make_transcripts(words: int = 20) -> list[Transcript]:
    transcripts = []
    for number in range(_SESSIONS):
        transcript = Transcript(f"session {number}", cwd=f"/home/dev/project{number % 3}")
        for turn in range(_TURNS):
            transcript.prompt(f"question {turn} about topic{number}")
            transcript.call("Bash", {"command": f"make step{turn}"}, f"output {turn} " * words)
            transcript.answer(f"answer {turn} for topic{number}")
        transcripts.append(transcript)
    return transcripts


def start_sync(home: Path, folder: Path) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "HOME": str(home)}
    return subprocess.Popen([sys.executable, "-c", _SYNC, str(folder)], env=environ)


def check_whole(home: Path, folder: Path, transcripts: list[Transcript]) -> None:
    """Everything is there once: in the record, in the counts and in the index."""
    with Library(folder, agents_home=home, environ={}) as library:
        library.sync()
        for transcript in transcripts:
            key = f"claude-code/{transcript.id}"
            turns = library.archive.turns(key)
            assert [turn.ordinal for turn in turns] == list(range(1, _TURNS + 1))
            for turn in turns:
                events = library.archive.events(key, turn.ordinal)
                assert [event.ordinal for event in events] == [1, 2, 3, 4]
                assert turn.event_count == 4
                assert turn.completed
            session = library.archive.session(key)
            assert session is not None
            assert (session.turn_count, session.event_count) == (_TURNS, 4 * _TURNS)
            assert session.exchange_count == _TURNS
            topic = f"topic{transcripts.index(transcript)}"
            for number, exchange in enumerate(exchanges_of(library.archive, key)):
                assert (exchange.row.number, exchange.user_text) == (number, f"question {number} about {topic}")
                assert [event.text for event in exchange.said][1:] == [f"answer {number} for {topic}"]
                assert exchange.said[0].arguments == {"command": f"make step{number}"}
        events = _SESSIONS * _TURNS * 4
        assert library.archive.counts().events == events
        request = SearchRequest(query="topic7", types=SEARCHABLE_TYPES, limit=2 * _TURNS)
        found = library.archive.search(request)
        assert (len(found.hits), found.more, found.documents) == (2 * _TURNS, False, events)
        exchanges = library.archive.exchanges(ExchangesRequest(query="topic7", limit=2 * _TURNS))
        assert sorted(hit.row.number for hit in exchanges) == list(range(_TURNS))


class TestKill:
    """kill -9 during ingest, at random points, again and again on one archive, while the transcripts grow."""

    @pytest.mark.parametrize(
        ("kills", "words"),
        [
            (6, 20),
            pytest.param(50, 20, marks=pytest.mark.slow),
            pytest.param(10, 15_000, marks=pytest.mark.slow, id="so much that two processes index"),
        ],
    )
    def test_nothing_lost_nothing_doubled(self, tmp_path: Path, kills: int, words: int) -> None:
        home, folder = tmp_path / "home", tmp_path / "backstory"
        transcripts = make_transcripts(words)
        chance = random.Random(kills)
        acknowledged = 0
        for number in range(1, kills + 1):
            grow(home, transcripts, number / kills)
            process = start_sync(home, folder)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.1 + chance.random() * 0.7)
            process.kill()
            process.wait()
            with Library(folder, agents_home=home, environ={}) as library:
                events = library.archive.counts().events
            assert events >= acknowledged
            acknowledged = events
        check_whole(home, folder, transcripts)


_REWRITE = """
import sys
from pathlib import Path
from backstory.archive import open_engine
from tests.archive_world import PROJECTION, Rewriting, record, sync
archive, source = open_engine("local", Path(sys.argv[1]), PROJECTION), Rewriting(Path(sys.argv[2]))
for version in range(int(sys.argv[3]), 1_000_000):
    records = [record(f"r{n}", "answer" if n % 4 else "prompt", f"word{n}v{version}") for n in range(40)]
    source.save("s", *records)
    sync(archive, source)
    print(version, flush=True)
"""


class TestKillWhileReplacing:
    """kill -9 while an agent's records are rewritten and read again: each is found as it reads last, and only so."""

    @pytest.mark.parametrize("kills", [5, pytest.param(40, marks=pytest.mark.slow)])
    def test_nothing_stale_nothing_missing(self, tmp_path: Path, kills: int) -> None:
        folder, agent = tmp_path / "backstory", tmp_path / "agent"
        chance, version = random.Random(kills), 0
        for _ in range(kills):
            command = [sys.executable, "-c", _REWRITE, str(folder), str(agent), str(version)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline()
                time.sleep(chance.random() * 0.2)
                process.kill()
                version += 1 + sum(1 for _ in process.stdout)
            archive, source = open_engine("local", folder, PROJECTION), Rewriting(agent)
            sync(archive, source)
            current = [
                event.text
                for turn in archive.turns("claude-code/s")
                for event in archive.events(turn.session, turn.ordinal)
            ]
            assert len(current) == 40
            assert all(found(archive, text) == [text] for text in current)
            everything = archive.search(SearchRequest(query="word1", types=SEARCHABLE_TYPES))
            assert everything.documents == 40
            newest = int(current[0].partition("v")[2])
            assert [found(archive, f"word{n}v{old}") for n in (0, 1, 39) for old in range(newest)] == [[]] * 3 * newest
            assert archive.sync_state().recovered
            archive.close()


class TestWriters:
    """One writer at a time; when it goes, another takes over at once."""

    def test_two_at_once(self, tmp_path: Path) -> None:
        home, folder = tmp_path / "home", tmp_path / "backstory"
        transcripts = make_transcripts()
        grow(home, transcripts, 1)
        first, second = start_sync(home, folder), start_sync(home, folder)
        codes = {first.wait(timeout=60), second.wait(timeout=60)}
        assert 0 in codes
        check_whole(home, folder, transcripts)

    def test_a_second_writer_is_refused(self, tmp_path: Path) -> None:
        with (
            Library(tmp_path / "backstory", environ={}) as library,
            Library(tmp_path / "backstory", environ={}) as other,
        ):
            writer = library.archive.writer()
            with pytest.raises(ArchiveBusy):
                other.sync()
            writer.close()
            other.sync()

    def test_takeover_from_the_dead(self, tmp_path: Path) -> None:
        folder = tmp_path / "backstory"
        hold = (
            "import sys, time; from pathlib import Path; from backstory.library import Library\n"
            "w = Library(Path(sys.argv[1])).archive.writer(); print('held', flush=True); time.sleep(60)"
        )
        process = subprocess.Popen([sys.executable, "-c", hold, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with Library(folder, environ={}) as library:
            with pytest.raises(ArchiveBusy):
                library.archive.writer()
            process.kill()
            process.wait()
            process.stdout.close()
            library.archive.writer().close()

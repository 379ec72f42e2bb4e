"""Raw records: transcripts are kept as they were read, once, and can be put back to the byte."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from pathlib import Path

import pytest

from backstory.archive.base import ArchiveBusy
from backstory.library import Library
from backstory.model import session_id
from backstory.raw import PIECE_BYTES, RawStore
from tests.transcripts import Transcript


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def bodies(home: Path) -> int:
    with sqlite3.connect(home / "raw.db") as database:
        (count,) = database.execute("SELECT count(*) FROM body").fetchone()
    return int(count)


class TestRawStore:
    @pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7])
    def test_a_file_comes_back(self, tmp_path: Path, size: int) -> None:
        """Of any size."""
        file = tmp_path / "a.jsonl"
        file.write_bytes(noise(size))
        store = RawStore(tmp_path)
        store.keep(file, "codex", "a")

        assert b"".join(store.read(file)) == noise(size)
        assert store.files("codex", ["a"]) == [(file, "codex", "a", size)]
        store.close()

    def test_a_file_that_grows(self, tmp_path: Path) -> None:
        """Step by step, with no more pieces than it needs."""
        file = tmp_path / "a.jsonl"
        store = RawStore(tmp_path)
        whole = b""
        for step in range(7):
            whole += noise(PIECE_BYTES // 2 + 11, step)
            file.write_bytes(whole)
            store.keep(file, "codex", "a", from_start=step == 0)
            assert b"".join(store.read(file)) == whole

        assert bodies(tmp_path) == -(-len(whole) // PIECE_BYTES)
        store.close()

    def test_small_files_are_kept_together(self, tmp_path: Path) -> None:
        """With the next flush; one that is kept again meanwhile counts as it is then."""
        store, other = RawStore(tmp_path), RawStore(tmp_path)
        files = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "copy.jsonl")]
        for file in files:
            file.write_bytes(b"small")
            store.keep(file, "codex", file.stem)
        assert not other.paths()
        store.flush()
        assert other.paths() == {str(file) for file in files}
        assert bodies(tmp_path) == 1

        late = tmp_path / "late.jsonl"
        for data in (b"first", b"first and second"):
            late.write_bytes(data)
            store.keep(late, "codex", "late", from_start=data == b"first")
        store.flush()
        store.close()
        assert b"".join(other.read(late)) == b"first and second"
        other.close()

    def test_a_file_that_is_rewritten(self, tmp_path: Path) -> None:
        """The latest state counts, and nothing of the former one stays."""
        file = tmp_path / "a.json"
        store = RawStore(tmp_path)
        for data in (noise(3 * PIECE_BYTES), noise(PIECE_BYTES + 5, 2), b"{}"):
            file.write_bytes(data)
            store.keep(file, "cline", "a")
            assert b"".join(store.read(file)) == data

        assert bodies(tmp_path) == 1
        store.close()

    def test_copies_cost_nothing(self, tmp_path: Path) -> None:
        """The same bytes are stored once, and stay as long as one file has them."""
        store = RawStore(tmp_path)
        for name in ("a", "b"):
            (tmp_path / name).write_bytes(noise(2 * PIECE_BYTES))
            store.keep(tmp_path / name, "codex", name)

        assert bodies(tmp_path) == 2
        store.forget("codex", ["a"])
        assert b"".join(store.read(tmp_path / "b")) == noise(2 * PIECE_BYTES)
        store.forget("codex", ["b"])
        assert bodies(tmp_path) == 0
        store.close()

    def test_a_folder(self, tmp_path: Path) -> None:
        """Every file of it as it is now; a link, which may lead anywhere, is passed over."""
        folder = tmp_path / "session"
        (folder / "events").mkdir(parents=True)
        (folder / "state.json").write_bytes(b"{}")
        (folder / "events" / "1.json").write_bytes(noise(PIECE_BYTES + 1))
        (tmp_path / "secret").write_bytes(b"secret")
        (folder / "link").symlink_to(tmp_path / "secret")
        store = RawStore(tmp_path)
        store.keep_folder(folder, "openhands", "a")
        (folder / "events" / "1.json").rename(folder / "events" / "2.json")
        store.keep_folder(folder, "openhands", "a")

        assert store.paths() == {str(folder / "state.json"), str(folder / "events" / "2.json")}
        assert b"".join(store.read(folder / "events" / "2.json")) == noise(PIECE_BYTES + 1)
        assert bodies(tmp_path) == 3
        store.close()

    def test_is_private(self, tmp_path: Path) -> None:
        """Only its owner may read it."""
        (tmp_path / "a").write_bytes(b"text")
        store = RawStore(tmp_path)
        store.keep(tmp_path / "a", "codex", "a")
        store.close()

        assert (tmp_path / "raw.db").stat().st_mode & 0o077 == 0

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
    def test_a_home_that_can_only_be_read(self, tmp_path: Path) -> None:
        """Its records are read as they are."""
        file, home = tmp_path / "a.jsonl", tmp_path / "home"
        home.mkdir()
        file.write_bytes(noise(100))
        store = RawStore(home)
        store.keep(file, "codex", "a")
        store.flush()
        store.close()
        (home / "raw.db").chmod(0o400)
        home.chmod(0o500)

        store = RawStore(home)
        assert b"".join(store.read(file)) == noise(100)
        store.close()
        home.chmod(0o700)

    def test_names_that_are_not_text(self, tmp_path: Path) -> None:
        """A file name is bytes."""
        file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl"))
        file.write_bytes(b"{}")
        store = RawStore(tmp_path)
        store.keep(file, "codex", "a")

        assert store.paths() == {str(file)}
        store.close()


class TestLibrary:
    def open(self, home: Path, **environ: str) -> Library:
        return Library(home / ".backstory", agents_home=home, environ=environ)

    def test_sync_keeps_what_it_reads(self, tmp_path: Path) -> None:
        """Also what is appended later."""
        transcript = Transcript("a").prompt("One").answer("Two.")
        path = transcript.write(tmp_path)
        with self.open(tmp_path) as library:
            library.sync()
            transcript.prompt("Three").answer("Four.").write(tmp_path)
            library.sync()

            assert b"".join(library.raw.read(path)) == path.read_bytes()

    @pytest.mark.parametrize("environ", [{"BACKSTORY_KEEP_RAW": "false"}, {"BACKSTORY_REDACT": "ingest"}])
    def test_it_can_be_switched_off(self, tmp_path: Path, environ: dict[str, str]) -> None:
        """By its setting, and where secrets must not be stored."""
        Transcript("a").prompt("One").answer("Two.").write(tmp_path)
        with self.open(tmp_path, **environ) as library:
            library.sync()

        assert not (tmp_path / ".backstory/raw.db").exists()

    def test_what_was_read_before(self, tmp_path: Path) -> None:
        """A sync keeps it as soon as the setting is on."""
        path = Transcript("a").prompt("One").answer("Two.").write(tmp_path)
        with self.open(tmp_path, BACKSTORY_KEEP_RAW="false") as library:
            library.sync()
        with self.open(tmp_path) as library:
            library.sync()

            assert b"".join(library.raw.read(path)) == path.read_bytes()

    def test_what_was_read_in_between(self, tmp_path: Path) -> None:
        """The setting may be off for a while, after everything was kept."""
        Transcript("a").prompt("One").answer("Two.").write(tmp_path)
        with self.open(tmp_path) as library:
            library.sync()
        path = Transcript("b").prompt("Three").answer("Four.").write(tmp_path)
        with self.open(tmp_path, BACKSTORY_KEEP_RAW="false") as library:
            library.sync()
        with self.open(tmp_path) as library:
            library.sync()

            assert b"".join(library.raw.read(path)) == path.read_bytes()

    def test_what_could_not_be_kept(self, tmp_path: Path) -> None:
        """The next sync tries again."""
        paths = [Transcript(name).prompt("One").answer("Two.").write(tmp_path) for name in "ab"]
        with self.open(tmp_path) as library:
            library.sync()
            paths.append(Transcript("c").prompt("Three").answer("Four.").write(tmp_path))
            with sqlite3.connect(tmp_path / ".backstory/raw.db") as database:
                database.execute("CREATE TRIGGER full BEFORE INSERT ON body BEGIN SELECT RAISE(FAIL, 'full'); END")
            library.sync()
            assert library.raw.paths() == set(map(str, paths[:2]))
            database.execute("DROP TRIGGER full")
        with self.open(tmp_path) as library:
            library.sync()
            assert library.raw.paths() == set(map(str, paths))

    def test_a_folder_that_was_read_before(self, tmp_path: Path) -> None:
        """All its files are kept, once."""
        folder = tmp_path / ".openhands" / "conversations" / "4f1c"
        (folder / "events").mkdir(parents=True)
        (folder / "base_state.json").write_text("{}")
        event = {"id": "1", "kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": []}}
        (folder / "events" / "event-00000-1.json").write_text(json.dumps(event))
        with self.open(tmp_path, BACKSTORY_KEEP_RAW="false") as library:
            library.sync()
        with self.open(tmp_path) as library:
            library.sync()

            assert library.raw.paths() == {str(path) for path in folder.rglob("*") if path.is_file()}

    def test_forget_deletes_it(self, tmp_path: Path) -> None:
        """With everything else of the session."""
        transcript = Transcript("a").prompt("Wombat").answer("Two.")
        path = transcript.write(tmp_path)
        with self.open(tmp_path) as library:
            library.sync()
            library.forget(session_id(f"claude-code/{transcript.id}"))

            assert library.raw.files("claude-code", [transcript.id]) == []
            assert list(library.raw.read(path)) == []
            library.sync()
            assert library.raw.paths() == set()

    @pytest.mark.parametrize("read_before", [True, False])
    def test_forget_deletes_what_a_fork_repeats(self, tmp_path: Path, read_before: bool) -> None:
        """The bytes of a fork have the words of the original: they are not kept, whenever the fork is read or grows.
        Those of other sessions are."""
        original = Transcript("a").prompt("Wombat").answer("Two.")
        fork = original.forked("b").prompt("Own question").answer("Own answer.")
        other = Transcript("c").prompt("Three").answer("Four.").write(tmp_path)
        original.write(tmp_path)
        with self.open(tmp_path) as library:
            if read_before:
                fork.write(tmp_path)
            library.sync()
            library.forget(session_id(f"claude-code/{original.id}"))
            assert library.raw.paths() == {str(other)}
            fork.write(tmp_path)
            library.sync()
            fork.prompt("Later question").answer("Later answer.").write(tmp_path)
            assert library.sync().events == 2
            assert library.raw.paths() == {str(other)}
        with self.open(tmp_path, BACKSTORY_KEEP_RAW="false") as library:
            library.sync()
        with self.open(tmp_path) as library:
            library.sync()
            assert library.raw.paths() == {str(other)}

    def test_forget_deletes_it_before_it_waits(self, tmp_path: Path) -> None:
        """Another process that writes for long deletes the session later, but not the bytes."""
        transcript = Transcript("a").prompt("Wombat").answer("Two.")
        transcript.write(tmp_path)
        with self.open(tmp_path) as library:
            library.sync()
            writer = library.archive.writer()
            with pytest.raises(ArchiveBusy):
                library.forget(session_id(f"claude-code/{transcript.id}"), patience=0)
            writer.close()

            assert library.raw.paths() == set()

    def test_a_trouble_is_logged_once(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Not for each of thousands of transcripts."""
        for name in "abc":
            Transcript(name).prompt("One").answer("Two.").write(tmp_path)
        with self.open(tmp_path) as library:
            with sqlite3.connect(tmp_path / ".backstory/raw.db") as database:
                database.execute("CREATE TABLE body (other)")
            assert library.sync().sessions == 3

        assert caplog.text.count("raw records") == 1

    def test_a_damaged_store_does_not_stop_reading(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The session is read, with a warning."""
        Transcript("a").prompt("One").answer("Two.").write(tmp_path)
        (tmp_path / ".backstory").mkdir()
        (tmp_path / ".backstory/raw.db").write_bytes(b"not a database" * 100)
        with self.open(tmp_path) as library:
            assert library.sync().sessions == 1

        assert "raw records" in caplog.text

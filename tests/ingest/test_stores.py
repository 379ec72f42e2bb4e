"""Stores: databases with many sessions, which an agent writes while they are read."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backstory.archive.base import (
    ALL_FILES,
    EventRow,
    FileRow,
    FilesRequest,
    SearchRequest,
    SessionRow,
    SessionsRequest,
)
from backstory.archive.local.reading import Reading
from backstory.ingest.progress import SyncReport
from backstory.ingest.reading import Reading as FileReading
from backstory.ingest.scan import Changed, changed_files
from backstory.ingest.walk import named
from backstory.library import Library
from backstory.model import DEFAULT_TYPES, EventType, session_id
from backstory.sources import load_sources, opencode
from backstory.sources.base import Event
from tests.examples import PATIENT
from tests.ingest.opencode_writer import OpenCode

_PATIENCE = 60
_KIRO = """
CREATE TABLE conversations_v2 (key TEXT NOT NULL, conversation_id TEXT NOT NULL, value TEXT NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, PRIMARY KEY (key, conversation_id));
CREATE INDEX idx_conversations_v2_key_updated ON conversations_v2 (key, updated_at DESC);
CREATE INDEX idx_conversations_v2_updated_at ON conversations_v2 (updated_at DESC);
"""


class Machine:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.path = self.home / ".local" / "share" / "opencode" / "opencode.db"
        self.library = Library(folder / "backstory", agents_home=self.home, environ=PATIENT)

    def events(self, session: str) -> list[list[EventRow]]:
        archive, key = self.library.archive, f"opencode/{session}"
        return [archive.events(key, turn.ordinal) for turn in archive.turns(key)]

    def texts(self, session: str = "ses_1") -> list[list[str]]:
        return [[event.text for event in events] for events in self.events(session)]

    def finds(self, words: str) -> int:
        return len(self.library.archive.search(SearchRequest(query=words, types=DEFAULT_TYPES)).hits)

    def errors(self) -> list[str]:
        return [row.last_error or "" for row in self.library.archive.files() if row.errors]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.library.close()


@pytest.fixture
def agent(machine: Machine) -> Iterator[OpenCode]:
    agent = OpenCode(machine.path)
    yield agent
    agent.close()


def talk(agent: OpenCode, session: str, start: int = 0, turns: int = 1) -> None:
    if start == 0:
        agent.session(session)
    for number in range(turns):
        agent.prompt(session, start + 2 * number, f"question {start + 2 * number} of {session}")
        agent.answer(session, start + 2 * number + 1, f"answer {start + 2 * number + 1}", to=start + 2 * number)


def _kiro_value(*prompts: str) -> str:
    return json.dumps({"history": [{"user": {"content": {"Prompt": {"prompt": prompt}}}} for prompt in prompts]})


class TestWhatChanged:
    """A store costs what changed in it."""

    def test_new_rows_of_an_open_database_are_read(self, machine: Machine, agent: OpenCode) -> None:
        """Rows that are only in the write-ahead log are found, and go on with the session's turns."""
        talk(agent, "ses_1")
        machine.library.sync()
        agent.prompt("ses_1", 2, "and then?")
        machine.library.sync()
        assert machine.texts() == [["question 0 of ses_1", "answer 1"], ["and then?"]]
        assert machine.library.sync().files == 0

    def test_a_version_that_counts_no_changes(self, machine: Machine) -> None:
        """The number of parts and the time of the session show what is new."""
        agent = OpenCode(machine.path, counts=False)
        talk(agent, "ses_1")
        machine.library.sync()
        agent.prompt("ses_1", 2, "and then?")
        agent.answer("ses_1", 3, "Noth", to=2, done=False)
        machine.library.sync()
        agent.answer("ses_1", 3, "Nothing.", to=2)
        machine.library.sync()
        agent.close()
        assert machine.texts() == [["question 0 of ses_1", "answer 1"], ["and then?", "Nothing."]]

    def test_a_tree_of_files(self, machine: Machine) -> None:
        """A new file in the tree that came before the database is read with its message and the prompt of its turn."""
        storage = machine.path.parent / "storage"

        def write(path: str, **value: Any) -> None:
            (storage / path).parent.mkdir(parents=True, exist_ok=True)
            (storage / path).write_text(json.dumps(value))

        write("session/p/ses_1.json", id="ses_1", directory="/home/ann/demo")
        write("message/ses_1/msg_1.json", role="user", time={"created": 1767323045000})
        write("part/msg_1/prt_1.json", type="text", text="list it")
        machine.library.sync()
        write("message/ses_1/msg_2.json", role="assistant", parentID="msg_1", time={"created": 1767323046000})
        write("part/msg_2/prt_2.json", type="text", text="It is")
        machine.library.sync()
        write("part/msg_2/prt_2.json", type="text", text="It is empty.")
        assert machine.library.sync().files == 1
        assert machine.texts() == [["list it", "It is empty."]]

    def test_only_sessions_that_changed_are_read(self, machine: Machine, agent: OpenCode) -> None:
        """Of many sessions, the one with a new message is read."""
        for number in range(5):
            agent.session(f"ses_{number}")
            agent.prompt(f"ses_{number}", number, "hello")
        assert machine.library.sync().sessions == 5
        agent.prompt("ses_3", 90, "once more")
        report = machine.library.sync()
        assert (report.files, report.events) == (1, 1)

    def test_a_long_session_is_read_in_its_order(self, machine: Machine, agent: OpenCode) -> None:
        """Messages stand in the order of their times, their parts in that of their ids, however many there are."""
        agent.session("ses_1")
        for number in range(40):
            message = f"msg_{999 - number}"
            agent.message("ses_1", message, role="assistant", modelID="m")
            for index in (2, 1):
                agent.part("ses_1", message, f"prt_{999 - number}_{index}", type="text", text=f"{number}.{index}")
            agent.database.execute(
                f"UPDATE message SET time_created = {1_767_323_045_000 + number} WHERE id = '{message}'"
            )
        machine.library.sync()
        assert machine.texts() == [[f"{number}.{index}" for number in range(40) for index in (1, 2)]]

    def test_messages_that_did_not_change_are_not_read(
        self, machine: Machine, agent: OpenCode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a long session, the messages that changed and the prompts they answer are read."""
        talk(agent, "ses_1", turns=20)
        machine.library.sync()
        long_ago = "UPDATE {} SET time_updated = time_updated - 3600000"
        agent.database.execute(long_ago.format("message"))
        agent.database.execute(long_ago.format("part"))
        agent.answer("ses_1", 40, "a second answer", to=38)
        read: list[str] = []
        records = opencode._changes

        def counted(*given: object) -> Iterator[dict[str, object]]:
            for record in records(*given):  # type: ignore[arg-type]
                read.append(str(record.get("id")))
                yield record

        monkeypatch.setattr(opencode, "_changes", counted)
        machine.library.sync()
        assert read == ["None", "msg_0038", "msg_0040"]
        assert machine.texts()[-1] == ["question 38 of ses_1", "answer 39", "a second answer"]

    def test_one_new_message_among_many_sessions(
        self, machine: Machine, agent: OpenCode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of the files and sessions that are known, the rows of the changed one are loaded, and of the others only the
        stamps."""
        for number in range(100):
            agent.session(f"ses_{number}")
            agent.prompt(f"ses_{number}", number, "hello")
        machine.library.sync()
        machine.library.sync()
        loaded: list[FileRow | SessionRow] = []
        files, sessions = Reading.files, Reading.sessions

        def loaded_files(reading: Reading, request: FilesRequest = ALL_FILES) -> Iterator[FileRow]:
            rows = list(files(reading, request))
            loaded.extend([] if request.stamps else rows)
            return iter(rows)

        def loaded_sessions(reading: Reading, request: SessionsRequest) -> list[SessionRow]:
            rows = sessions(reading, request)
            loaded.extend([] if request.limit else rows)
            return rows

        monkeypatch.setattr(Reading, "files", loaded_files)
        monkeypatch.setattr(Reading, "sessions", loaded_sessions)
        agent.prompt("ses_3", 200, "once more")
        with Library(machine.library.home, agents_home=machine.home, environ=PATIENT) as library:
            assert library.sync().events == 1
        assert 0 < len(loaded) < 20

    def test_conversations_of_kiro_that_did_not_change_are_not_read(self, machine: Machine) -> None:
        """Not even to list them: what has become of a long conversation on the disk does not matter."""
        path = machine.home / ".local/share/kiro-cli/data.sqlite3"
        path.parent.mkdir(parents=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.executescript(_KIRO)
            for number, prompt in enumerate(("long " * 4_000, "short")):
                row = ("/home/ann/demo", f"kiro-{number}", _kiro_value(prompt), 1_767_323_045_000 + number)
                database.execute("INSERT INTO conversations_v2 VALUES (?, ?, ?, 0, ?)", row)
        assert machine.library.sync().sessions == 2
        data = bytearray(path.read_bytes())
        pages = [start for start in range(0, len(data), 4_096) if data[start : start + 4_096].count(b"long") > 800]
        assert len(pages) > 2
        for start in pages:
            data[start : start + 4_096] = b"\xff" * 4_096
        path.write_bytes(data)
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            change = (
                "UPDATE conversations_v2 SET value = ?, updated_at = updated_at + 10 WHERE conversation_id = 'kiro-1'"
            )
            database.execute(change, (_kiro_value("short", "one more"),))
        assert machine.library.sync().events == 1
        assert machine.errors() == []

    def test_a_sync_that_runs_out_of_time_goes_on_later(self, machine: Machine, agent: OpenCode) -> None:
        """Sessions that a sync did not come to are read by the next one, although the store has not changed."""
        talk(agent, "ses_1")
        report = machine.library.sync(budget=0)
        assert (report.events, report.skipped) == (0, 1)
        machine.library.sync()
        assert machine.texts() == [["question 0 of ses_1", "answer 1"]]

    def test_news_are_noticed_without_writing(self, machine: Machine, agent: OpenCode) -> None:
        """A search that finds nothing new does not sync, one that does reads it."""
        talk(agent, "ses_1")
        machine.library.sync()
        before = machine.library.archive.sync_state().started_at
        machine.library.catch_up()
        assert machine.library.archive.sync_state().started_at == before
        agent.prompt("ses_1", 2, "something new")
        machine.library.catch_up()
        assert machine.texts()[-1] == ["something new"]


class TestReplacedRows:
    """Rows that the agent changes in place."""

    def test_a_streamed_answer_is_found_as_it_is_now(self, machine: Machine, agent: OpenCode) -> None:
        """The event keeps its id; archive and index have its latest text, once."""
        agent.session("ses_1")
        agent.prompt("ses_1", 0, "tell me")
        agent.answer("ses_1", 1, "An aardvark", to=0, done=False)
        machine.library.sync()
        before = machine.events("ses_1")[0][1]
        assert machine.finds("aardvark") == 1
        agent.answer("ses_1", 1, "A zebra has stripes.", to=0)
        machine.library.sync()
        after = machine.events("ses_1")[0][1]
        assert (after.uid, after.text) == (before.uid, "A zebra has stripes.")
        assert machine.finds("zebra stripes") == 1
        assert machine.finds("aardvark") == 0
        assert machine.library.archive.turns("opencode/ses_1")[0].completed

    def test_a_tool_gets_its_result_later(self, machine: Machine, agent: OpenCode) -> None:
        """A call that was running has a response when the part has its output."""
        agent.session("ses_1")
        agent.prompt("ses_1", 0, "run it")
        agent.message("ses_1", "msg_0001", role="assistant", parentID="msg_0000")
        part = {"type": "tool", "tool": "bash", "callID": "c1"}
        agent.part("ses_1", "msg_0001", "prt_0001", **part, state={"status": "running", "input": {"command": "make"}})
        machine.library.sync()
        state = {"status": "completed", "input": {"command": "make"}, "output": "no rule", "metadata": {"exit": 2}}
        agent.part("ses_1", "msg_0001", "prt_0001", **part, state=state)
        machine.library.sync()
        _, call, response = machine.events("ses_1")[0]
        assert (call.type, response.type) == (EventType.TOOL_CALL, EventType.TOOL_RESPONSE)
        assert (response.exit_code, response.failed) == (2, True)

    def test_deleted_rows_stay_in_the_archive(self, machine: Machine, agent: OpenCode) -> None:
        """Events that were read are kept when the agent deletes a message, or a whole session."""
        talk(agent, "ses_1")
        machine.library.sync()
        agent.database.execute("DELETE FROM part WHERE message_id = 'msg_0001'")
        agent._changed("ses_1")
        machine.library.sync()
        assert machine.texts() == [["question 0 of ses_1", "answer 1"]]
        for table in ("session", "message", "part", "event_sequence"):
            agent.database.execute(f"DELETE FROM {table}")
        machine.library.sync()
        assert machine.texts() == [["question 0 of ses_1", "answer 1"]]
        assert [row.path for row in machine.library.archive.files() if row.missing] == [f"{machine.path}#ses_1"]


class TestNothingIsWritten:
    """Reading leaves the agent's folder as it is."""

    def test_a_closed_database(self, machine: Machine) -> None:
        """No log and no index of it appear beside a database that nobody has open."""
        agent = OpenCode(machine.path)
        talk(agent, "ses_1")
        agent.close()
        folder = machine.path.parent
        assert [path.name for path in folder.iterdir()] == ["opencode.db"]
        before = machine.path.stat()
        machine.library.sync()
        assert machine.texts() == [["question 0 of ses_1", "answer 1"]]
        assert [path.name for path in folder.iterdir()] == ["opencode.db"]
        assert (machine.path.stat().st_mtime_ns, machine.path.stat().st_size) == (before.st_mtime_ns, before.st_size)

    def test_an_open_database(self, machine: Machine, agent: OpenCode) -> None:
        """The log is not moved into the database, and the agent is not kept from writing."""
        talk(agent, "ses_1")
        log = machine.path.with_name("opencode.db-wal")
        before = (machine.path.stat().st_size, log.stat().st_size)
        machine.library.sync()
        assert (machine.path.stat().st_size, log.stat().st_size) == before
        agent.database.execute("BEGIN IMMEDIATE")
        agent.database.execute("COMMIT")


class TestTrouble:
    """A store that cannot be read is shown, and costs only itself."""

    def test_a_locked_database_is_read_when_it_is_free(self, machine: Machine) -> None:
        """While the agent holds an exclusive lock, the store waits; the next sync reads it."""
        agent = OpenCode(machine.path, mode="delete")
        talk(agent, "ses_1")
        agent.database.execute("BEGIN EXCLUSIVE")
        machine.library.sync()
        assert machine.errors() == ["cannot be read: database is locked"]
        agent.database.execute("COMMIT")
        agent.close()
        machine.library.sync()
        assert (machine.texts(), machine.errors()) == ([["question 0 of ses_1", "answer 1"]], [])

    @pytest.mark.parametrize("kept", [0, 10, 100, 5000])
    def test_a_half_copied_database(self, machine: Machine, kept: int) -> None:
        """A beginning of a database is an error at most; when the copy is complete, it is read."""
        agent = OpenCode(machine.path)
        talk(agent, "ses_1", turns=20)
        agent.close()
        whole = machine.path.read_bytes()
        machine.path.write_bytes(whole[:kept])
        machine.library.sync()
        machine.path.write_bytes(whole)
        machine.library.sync()
        assert (len(machine.texts()), machine.errors()) == (20, [])

    def test_a_log_that_was_copied_before_its_database(self, machine: Machine, agent: OpenCode, tmp_path: Path) -> None:
        """The log beside an empty file is left alone: both are read when the copy is complete."""
        talk(agent, "ses_1")
        copy = tmp_path / "other/.local/share/opencode/opencode.db"
        copy.parent.mkdir(parents=True)
        copy.touch()
        log = Path(shutil.copy(f"{machine.path}-wal", f"{copy}-wal"))
        before = log.read_bytes()
        with Library(tmp_path / "copies", agents_home=tmp_path / "other", environ=PATIENT) as library:
            library.sync()
            assert log.read_bytes() == before
            shutil.copy(machine.path, copy)
            library.sync()
            assert len(library.archive.turns("opencode/ses_1")) == 1

    def test_a_damaged_page(self, machine: Machine) -> None:
        """A database with garbage in it does not stop other agents' sessions."""
        agent = OpenCode(machine.path)
        talk(agent, "ses_1", turns=50)
        agent.close()
        data = bytearray(machine.path.read_bytes())
        data[4096 * 2 :] = b"\xff" * (len(data) - 4096 * 2)
        machine.path.write_bytes(data)
        other = machine.home / ".local" / "share" / "kilo" / "kilo.db"
        kilo = OpenCode(other)
        talk(kilo, "ses_1")
        kilo.close()
        machine.library.sync()
        assert machine.library.archive.session("kilo/ses_1") is not None
        assert machine.errors()

    def test_a_file_of_another_kind(self, machine: Machine) -> None:
        """A text under the name of a database is an error of that file."""
        machine.path.parent.mkdir(parents=True)
        machine.path.write_text("not a database " * 100)
        assert [machine.library.sync().errors for _ in range(2)] == [1, 1]
        assert machine.errors() == ["cannot be read: file is not a database"]

    def test_values_of_any_kind(self, machine: Machine, agent: OpenCode) -> None:
        """Nothing that stands in a column stops the rest of the session."""
        talk(agent, "ses_1")
        values = [None, 7, "no JSON", "[]", '"text"', "{}", b"\xff\xfe", '{"role": 3}', '{"type": "text", "text": 5}']
        values.append('{"type": "text", "text": "' + "\\ud800 \\u0000 " + 'hostile", "time": {"start": 1e400}}')
        values.append('{"type": "tool", "state": [], "tool": {}}')
        values.append('{"role": "assistant", "tokens": {"input": -9e99, "cache": 4}, "time": "noon", "error": "x"}')
        for number, value in enumerate(values, 100):
            row = (f"msg_{number}", "ses_1", number, -1 if number % 2 else "soon", value)
            agent.database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
            agent.database.execute(
                "INSERT INTO part VALUES (?, 'msg_0001', 'ses_1', 1, 1, ?)", (f"prt_{number}", value)
            )
        agent.database.execute("INSERT INTO session VALUES ('odd', 7, 8, x'ff', NULL, 'noon', 'late')")
        agent.database.execute("INSERT INTO event_sequence VALUES ('odd', 'many')")
        agent.prompt("ses_1", 9000, "still here")
        machine.library.sync()
        texts = [text for turn in machine.texts() for text in turn]
        assert {"question 0 of ses_1", "answer 1", "still here"} <= set(texts)
        assert machine.finds("hostile") == 1

    def test_another_process_writes_all_the_time(self, machine: Machine) -> None:
        """Whatever is read meanwhile, in the end every turn is there once, with the answer as it was written last."""
        turns = 60
        script = Path(__file__).with_name("opencode_writer.py")
        writer = subprocess.Popen([sys.executable, str(script), str(machine.path), str(turns)])
        while writer.poll() is None:
            machine.library.sync()
        assert writer.returncode == 0
        machine.library.sync()
        expected = [[f"question {turn}", f"answer answer answer {turn}"] for turn in range(turns)]
        assert machine.texts("ses_busy") == expected
        assert machine.errors() == []


class TestCopies:
    """Copies of a store, and backups that are put back."""

    def test_a_copy_elsewhere_adds_nothing(self, machine: Machine, tmp_path: Path) -> None:
        """A database that is read from two places gives its sessions once."""
        agent = OpenCode(machine.path)
        talk(agent, "ses_1", turns=3)
        agent.close()
        copies = tmp_path / "copies"
        copies.mkdir()
        shutil.copy(machine.path, copies / "opencode.db")
        (machine.library.home / "config.toml").write_text(f'[extra_roots]\nopencode = ["{copies}"]\n')
        library = Library(machine.library.home, agents_home=machine.home, environ={})
        assert library.sync().events == 6
        assert library.sync().files == 0
        assert [len(turn) for turn in machine.texts()] == [2, 2, 2]
        library.close()

    def test_a_backup_that_is_put_back(self, machine: Machine) -> None:
        """An older database in the place of the newer one takes nothing away and adds nothing."""
        agent = OpenCode(machine.path)
        talk(agent, "ses_1")
        agent.close()
        backup = machine.path.read_bytes()
        agent = OpenCode(machine.path)
        talk(agent, "ses_1", start=2)
        agent.close()
        machine.library.sync()
        machine.path.write_bytes(backup)
        assert machine.library.sync().events == 0
        assert machine.texts() == [["question 0 of ses_1", "answer 1"], ["question 2 of ses_1", "answer 3"]]

    def test_a_forgotten_session_stays_forgotten(self, machine: Machine, agent: OpenCode) -> None:
        """A session that was forgotten is not read again when the store changes."""
        talk(agent, "ses_1")
        agent.session("ses_2")
        agent.prompt("ses_2", 50, "keep me")
        machine.library.sync()
        machine.library.forget(session_id("opencode/ses_1"))
        talk(agent, "ses_1", start=2)
        machine.library.sync()
        assert machine.library.archive.session("opencode/ses_1") is None
        assert machine.texts("ses_2") == [["keep me"]]


class TestLive:
    """Stores while the archive is kept live."""

    def test_a_new_message_is_read_as_it_is_written(self, machine: Machine, agent: OpenCode) -> None:
        """A row in the write-ahead log of a database is noticed, although only the database is a root."""
        talk(agent, "ses_1")
        stop, read = threading.Event(), threading.Event()

        def on_change(report: SyncReport) -> None:
            if len(machine.texts()) > 1:
                read.set()

        watcher = threading.Thread(target=machine.library.watch, args=(stop, on_change))
        watcher.start()
        try:
            _wait_for(lambda: bool(machine.texts()))
            agent.prompt("ses_1", 2, "while it is watched")
            assert read.wait(_PATIENCE)
            assert machine.texts()[-1] == ["while it is watched"]
        finally:
            stop.set()
            watcher.join()

    def test_a_new_file_of_a_folder_that_is_one_session(self, machine: Machine) -> None:
        """An event that OpenHands writes as a file of its own is read with the folder it belongs to."""
        folder = machine.home / ".openhands" / "conversations" / "abc"
        (folder / "events").mkdir(parents=True)
        (folder / "base_state.json").write_text("{}")

        def say(number: int, text: str) -> None:
            message = {"role": "user", "content": [{"type": "text", "text": text}]}
            event = {"id": f"e{number}", "kind": "MessageEvent", "source": "user", "llm_message": message}
            (folder / "events" / f"event-{number:05}-e.json").write_text(json.dumps(event))

        def turns() -> int:
            return len(machine.library.archive.turns("openhands/abc"))

        say(0, "hello")
        stop = threading.Event()
        watcher = threading.Thread(target=machine.library.watch, args=(stop,))
        watcher.start()
        try:
            for number in (1, 2):
                _wait_for(lambda number=number: turns() == number)  # type: ignore[misc]
                say(number, "go on")
            _wait_for(lambda: turns() == 3)
        finally:
            stop.set()
            watcher.join()


def _wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


class TestRewrittenFiles:
    """Documents that are written anew with each message."""

    def test_records_that_did_not_change_give_their_prompts_alone(self, tmp_path: Path) -> None:
        """A prompt shows where the rest belongs; the events of unchanged records are not compared again."""
        path = tmp_path / "one.json"
        (source,) = load_sources(["continue"])
        history = [_entry("user", "hello"), _entry("assistant", "hi"), _entry("user", "and?")]
        known: dict[str, FileRow] = {}

        def read() -> list[str]:
            path.write_text(json.dumps({"sessionId": "one", "history": history}))
            (change,) = changed_files(source, named(source, [path]), known)
            assert isinstance(change, Changed)
            reading = FileReading(change, lambda session: frozenset(), {})
            items = [item for step in reading.steps() for item in step]
            row = reading.checkpoint(finished=True)
            known[row.path] = row
            return [item.text for item in items if isinstance(item, Event)]

        assert read() == ["hello", "hi", "and?"]
        history.append(_entry("assistant", "more"))
        assert read() == ["hello", "and?", "more"]
        history[1] = _entry("assistant", "hi again")
        assert read() == ["hello", "hi again", "and?"]


def _entry(role: str, text: str) -> dict[str, Any]:
    return {"message": {"role": role, "content": text}}

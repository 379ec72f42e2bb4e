"""Sync: what is read from transcripts that grow, tear, shrink, move and vanish."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from zstandard import compress

from backstory.archive.base import SessionsRequest
from backstory.ingest import pipeline, reading
from backstory.ingest.progress import SyncProgress
from backstory.library import Library
from backstory.model import EventType
from backstory.sources.claude_code.source import ClaudeCode
from tests.archive_world import conversations, usage_of
from tests.transcripts import Transcript

TIME = "2026-06-01T12:00:00.000Z"


class Machine:
    """A machine with agents on it, and Backstory."""

    def __init__(self, folder: Path, environ: dict[str, str] | None = None) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self._folder = folder
        self._environ = environ or {}
        self.library = self._open("backstory")

    def _open(self, name: str) -> Library:
        return Library(self._folder / name, agents_home=self.home, environ=self._environ)

    def sync_from_nothing(self, name: str) -> Library:
        library = self._open(name)
        library.sync()
        return library

    def texts(self, transcript: Transcript, library: Library | None = None) -> list[list[str]]:
        """The texts of a session, turn by turn."""
        archive = (library or self.library).archive
        key = f"claude-code/{transcript.id}"
        return [[event.text for event in archive.events(key, turn.ordinal)] for turn in archive.turns(key)]

    def uids(self, transcript: Transcript, library: Library | None = None) -> list[bytes]:
        archive = (library or self.library).archive
        key = f"claude-code/{transcript.id}"
        return [event.uid for turn in archive.turns(key) for event in archive.events(key, turn.ordinal)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.library.close()


def talk(name: str = "one", turns: int = 2) -> Transcript:
    transcript = Transcript(name)
    for number in range(1, turns + 1):
        transcript.prompt(f"question {number} of {name}").answer(f"answer {number} of {name}")
    return transcript


class TestGrowing:
    """A transcript that grows is read on from where reading stopped."""

    def test_first_sync(self, machine: Machine) -> None:
        transcript = talk()
        transcript.write(machine.home)
        report = machine.library.sync()
        assert (report.files, report.sessions, report.events, report.errors) == (1, 1, 4, 0)
        assert machine.texts(transcript) == [
            ["question 1 of one", "answer 1 of one"],
            ["question 2 of one", "answer 2 of one"],
        ]

    def test_an_unchanged_home_is_not_read_again(self, machine: Machine) -> None:
        talk().write(machine.home)
        machine.library.sync()
        report = machine.library.sync()
        assert (report.files, report.bytes, report.events) == (0, 0, 0)

    def test_appended_records(self, machine: Machine) -> None:
        transcript = talk()
        path = transcript.write(machine.home)
        machine.library.sync()
        size = path.stat().st_size
        transcript.prompt("one more thing").answer("done")
        with path.open("a") as file:
            file.write(transcript.text(start=4))
        report = machine.library.sync()
        assert (report.events, report.bytes) == (2, path.stat().st_size - size)
        assert machine.texts(transcript)[2] == ["one more thing", "done"]

    def test_byte_by_byte(self, machine: Machine) -> None:
        """Wherever the writer is when we look, nothing is lost and nothing doubled."""
        transcript = talk()
        path = transcript.path(machine.home)
        path.parent.mkdir(parents=True)
        data = transcript.text().encode()
        for cut in range(0, len(data) + 1, 97):
            path.write_bytes(data[:cut])
            machine.library.sync()
        path.write_bytes(data)
        machine.library.sync()
        assert [len(turn) for turn in machine.texts(transcript)] == [2, 2]
        assert machine.library.archive.counts().files_with_errors == 0

    def test_an_answer_that_is_still_coming_leaves_the_turn_open(self, machine: Machine) -> None:
        transcript = Transcript("one").prompt("do it").call("Bash", {"command": "ls"}, "a.txt")
        path = transcript.write(machine.home)
        machine.library.sync()
        session = machine.library.archive.session(f"claude-code/{transcript.id}")
        assert session is not None
        assert not session.completed
        transcript.answer("done")
        path.write_text(transcript.text())
        machine.library.sync()
        session = machine.library.archive.session(session.key)
        assert session is not None
        assert session.completed


class TestDamage:
    """A broken transcript costs that transcript's broken part only."""

    def test_a_broken_line_costs_itself(self, machine: Machine) -> None:
        transcript = talk()
        rows = transcript.text().splitlines()
        rows.insert(1, '{"type": "user", "message": ')
        path = transcript.path(machine.home)
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(rows) + "\n")
        report = machine.library.sync()
        assert report.errors == 1
        assert [len(turn) for turn in machine.texts(transcript)] == [2, 2]
        (broken,) = (file for file in machine.library.archive.files() if file.errors)
        assert broken.last_error is not None
        assert "not JSON" in broken.last_error

    def test_glued_lines_are_two_records(self, machine: Machine) -> None:
        transcript = talk()
        rows = transcript.text().splitlines()
        path = transcript.path(machine.home)
        path.parent.mkdir(parents=True)
        path.write_text(rows[0] + rows[1] + "\n" + "\n".join(rows[2:]))
        machine.library.sync()
        assert [len(turn) for turn in machine.texts(transcript)] == [2, 2]

    @pytest.mark.parametrize(("begin", "end"), [("", "\n"), ("", ""), ("\ufeff", "\n")])
    def test_a_transcript_on_one_line(self, machine: Machine, begin: str, end: str) -> None:
        """Its agent is recognised where every newline is missing."""
        transcript = talk()
        path = transcript.path(machine.home)
        path.parent.mkdir(parents=True)
        path.write_text(begin + transcript.text().replace("\n", "") + end)
        machine.library.sync()
        assert [len(turn) for turn in machine.texts(transcript)] == [2, 2]

    def test_one_bad_file_does_not_stop_the_rest(self, machine: Machine) -> None:
        good = talk("good")
        path = good.write(machine.home)
        bad = path.with_name("6f0c2f5e-8f1a-4b7e-9a55-0d3c1a2b4c5d.jsonl")
        bad.write_bytes(os.urandom(4096))
        gone = path.with_name("6f0c2f5e-8f1a-4b7e-9a55-0d3c1a2b4c5e.jsonl")
        gone.symlink_to(path.with_name("nowhere"))
        machine.library.sync()
        assert len(machine.texts(good)) == 2

    def test_compressed_files_that_are_damaged(self, machine: Machine) -> None:
        """One that is not compressed at all, and one with garbage at its end, are errors of theirs alone."""
        good = talk("good")
        good.write(machine.home)
        rollout = Path(__file__).parents[1] / "sources/codex/bare_lines_2025"
        content = next(rollout.glob("*.jsonl")).read_bytes()
        folder = machine.home / ".codex/sessions/2026/01/01"
        folder.mkdir(parents=True)
        for number, data in enumerate((content, compress(content) + b"garbage", compress(content))):
            name = f"rollout-2026-01-01T00-00-00-00000000-0000-4000-8000-{number:012}.jsonl.zst"
            (folder / name).write_bytes(data)
        assert machine.library.sync().errors == 2
        assert len(machine.texts(good)) == 2
        assert len(machine.library.archive.sessions(SessionsRequest(source="codex"))) == 1

    def test_names_that_are_not_utf8(self, machine: Machine) -> None:
        good, odd = talk("good"), talk("odd")
        path = good.write(machine.home)
        folder = path.parent.with_name(os.fsdecode(b"slug\xff"))
        try:
            folder.mkdir()
        except OSError:
            pytest.skip("this file system has no such names")
        (folder / os.fsdecode(b"\xfe.jsonl")).write_text(odd.text())
        machine.library.sync()
        assert len(machine.texts(good)) == len(machine.texts(odd)) == 2

    def test_facts_from_a_path_that_is_not_utf8(self, machine: Machine, tmp_path: Path) -> None:
        """gptme writes `~` for the home that its files are in."""
        logs = machine.home / os.fsdecode(b"\xff/.local/share/gptme/logs/talk")
        try:
            logs.mkdir(parents=True)
        except OSError:
            pytest.skip("this file system has no such names")
        (logs / "config.toml").write_text('[chat]\nworkspace = "~/demo"\n')
        (logs / "conversation.jsonl").write_text('{"role": "user", "content": "hello", "timestamp": 1780000000}\n')
        with Library(tmp_path / "other", agents_home=logs.parents[4], environ={}) as library:
            library.sync()
            (session,) = library.archive.sessions(SessionsRequest(source="gptme"))
        assert session.cwd == str(machine.home / "\ufffd/demo")

    def test_wild_values_do_not_break_the_archive(self, machine: Machine) -> None:
        transcript = Transcript("wild")
        transcript.prompt("nul \0 bell \a surrogate").answer("ok")
        text = transcript.text().replace("surrogate", "\\ud800")
        path = transcript.path(machine.home)
        path.parent.mkdir(parents=True)
        path.write_text(text)
        assert machine.library.sync().errors == 0
        assert machine.texts(transcript)[0][0] == "nul \0 bell \a \ufffd"

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ('"output_tokens": 5', '"output_tokens": 9223372036854775808'),
            ('"output_tokens": 5', '"output_tokens": -1'),
            ('"2026-05-28', f'"9{"9" * 400}'),
            ('"isSidechain": false', f'"isSidechain": 1{"0" * 400}'),
            ('"isSidechain": false', f'"isSidechain": 1{"0" * 5000}'),
            ('"isSidechain": false', '"isSidechain": NaN, "x": "\\ud83d"'),
            ('"interrupted": false', '"exitCode": 1000000000000000000000000000000'),
            ('"command": "ls"', f'"command": 1{"0" * 60}'),
        ],
    )
    def test_odd_numbers(self, machine: Machine, before: str, after: str) -> None:
        """One value that fits nowhere stops neither its own transcript nor the others."""
        odd = Transcript("odd").prompt("first").call("Bash", {"command": "ls"}, "a").answer("last")
        path = odd.path(machine.home)
        path.parent.mkdir(parents=True)
        assert before in odd.text()
        begin, _, end = odd.text().rpartition(before)
        path.write_text(begin + after + end)
        talk("fine").write(machine.home)
        machine.library.sync()
        assert len(machine.texts(talk("fine"))) == 2
        assert machine.texts(odd)[0][-1] == "last"

    @pytest.mark.parametrize("kind", [["user"], {"user": 1}])
    def test_a_first_record_of_no_type(self, machine: Machine, kind: object) -> None:
        """It stops neither its own transcript nor the others."""
        odd = Transcript("odd").prompt("first").answer("last")
        odd.records.insert(0, {**odd.records[0], "type": kind, "uuid": "odd"})
        odd.write(machine.home)
        talk("fine").write(machine.home)
        machine.library.sync()
        assert len(machine.texts(talk("fine"))) == 2
        assert machine.texts(odd)[-1][-1] == "last"

    def test_a_shape_that_a_source_did_not_foresee(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        """A transcript that its source fails to describe is counted as broken; the others are read."""
        odd = talk("odd").write(machine.home)
        describe = ClaudeCode.describe

        def fail(source: ClaudeCode, path: Path, head: bytes) -> object:
            if path == odd:
                raise TypeError("unhashable type")
            return describe(source, path, head)

        monkeypatch.setattr(ClaudeCode, "describe", fail)
        talk("fine").write(machine.home)
        report = machine.library.sync()
        assert (report.errors, len(machine.texts(talk("fine")))) == (1, 2)

    def test_what_is_no_file_is_not_waited_for(self, machine: Machine) -> None:
        path = talk().write(machine.home)
        os.mkfifo(path.with_name("6f0c2f5e-8f1a-4b7e-9a55-0d3c1a2b4c5d.jsonl"))
        assert machine.library.sync().files == 1

    def test_what_cannot_be_read_now_is_read_later(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Permissions and limits change without a trace on the file."""
        transcript = talk()
        transcript.write(machine.home)

        def refuse(path: Path) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        with monkeypatch.context() as patch:
            patch.setattr("backstory.ingest.scan.open_transcript", refuse)
            machine.library.sync()
        assert machine.library.archive.counts().files_with_errors == 1
        machine.library.sync()
        assert len(machine.texts(transcript)) == 2
        assert machine.library.archive.counts().files_with_errors == 0

    def test_gone_while_it_is_read(self, machine: Machine) -> None:
        gone, kept = talk("gone"), talk("kept")
        path = gone.write(machine.home)
        kept.write(machine.home)
        machine.library.sync(progress=lambda now: path.unlink(missing_ok=True))
        assert len(machine.texts(kept)) == 2

    def test_a_huge_line(self, machine: Machine) -> None:
        transcript = Transcript("huge").prompt("read it").call("Read", {"file_path": "/x"}, "needle " * 1_500_000)
        transcript.answer("read")
        transcript.write(machine.home)
        machine.library.sync()
        (turn,) = machine.texts(transcript)
        assert turn[2] == "needle " * 1_500_000

    def test_a_line_that_is_too_long(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is named as such and left out, with all that is inside of it."""
        monkeypatch.setattr(reading, "MAX_LINE_BYTES", 1 << 20)
        inside = Transcript("inside").prompt("not a record").records[0]
        transcript = Transcript("long").prompt("before")
        transcript.call("Read", {"inside": inside}, "x").prompt("after")
        transcript.records[1]["padding"] = "x" * (3 << 20)
        path = transcript.write(machine.home)
        report = machine.library.sync()
        (row,) = machine.library.archive.files()
        assert report.errors == 1
        assert str(row.last_error).startswith("a line is too long")
        assert row.offset == path.stat().st_size
        assert {"before", "after"} <= {text for turn in machine.texts(transcript) for text in turn}
        assert machine.texts(Transcript("inside")) == []

    def test_a_huge_prompt(self, machine: Machine) -> None:
        transcript = Transcript("huge prompt").prompt("needle " * 1_500_000).answer("read")
        transcript.write(machine.home)
        machine.library.sync()
        assert [len(text) for turn in machine.texts(transcript) for text in turn] == [len("needle " * 1_500_000), 4]


class TestRewriting:
    """Truncated, rewritten, replaced, copied and deleted files: nothing twice, nothing lost."""

    def test_rewound_and_grown_again(self, machine: Machine) -> None:
        transcript = talk(turns=3)
        path = transcript.write(machine.home)
        machine.library.sync()
        kept = transcript.records[:2]
        other = talk(turns=1)
        other.records = list(kept)
        other.prompt("another way").answer("fine")
        other.records[2]["uuid"], other.records[3]["uuid"] = "b" * 8, "c" * 8
        path.write_text(other.text())
        machine.library.sync()
        texts = machine.texts(transcript)
        assert [turn[0] for turn in texts] == [
            "question 1 of one",
            "question 2 of one",
            "question 3 of one",
            "another way",
        ]

    def test_rewritten_with_the_same_records(self, machine: Machine) -> None:
        transcript = talk()
        path = transcript.write(machine.home)
        machine.library.sync()
        path.write_text("".join(json.dumps(record, sort_keys=True) + "\n" for record in transcript.records))
        machine.library.sync()
        assert [len(turn) for turn in machine.texts(transcript)] == [2, 2]

    def test_replaced_by_another_file_of_the_same_size(self, machine: Machine) -> None:
        transcript = talk("one")
        path = transcript.write(machine.home)
        machine.library.sync()
        text = transcript.text().replace("question 2", "QUESTION 2")
        for record in transcript.records[2:]:
            text = text.replace(record["uuid"], record["uuid"][::-1])
        path.write_text(text)
        machine.library.sync()
        assert [turn[0] for turn in machine.texts(transcript)][-1] == "QUESTION 2 of one"

    def test_copied_to_another_folder(self, machine: Machine) -> None:
        transcript = talk()
        path = transcript.write(machine.home)
        machine.library.sync()
        copy = path.parent.with_name("-home-dev-elsewhere") / path.name
        copy.parent.mkdir()
        shutil.copy(path, copy)
        machine.library.sync()
        assert [len(turn) for turn in machine.texts(transcript)] == [2, 2]
        assert machine.library.archive.counts().sessions == 1

    def test_deleted_files_stay_in_the_archive(self, machine: Machine) -> None:
        transcript = talk()
        path = transcript.write(machine.home)
        machine.library.sync()
        path.unlink()
        machine.library.sync()
        assert len(machine.texts(transcript)) == 2
        assert machine.library.archive.counts().files_missing == 1
        transcript.write(machine.home)
        machine.library.sync()
        assert machine.library.archive.counts().files_missing == 0

    def test_a_fork_owns_only_what_it_adds(self, machine: Machine) -> None:
        """A resumed copy repeats the records of the original under a new session id."""
        original, fork = talk("original"), Transcript("fork", start_ms=1_780_000_060_000)
        fork.records = [{**record, "sessionId": fork.id} for record in original.records]
        fork.prompt("and now?").answer("something new")
        for transcript in (fork, original):
            transcript.write(machine.home)
        machine.library.sync()
        assert [len(turn) for turn in machine.texts(original)] == [2, 2]
        assert machine.texts(fork) == [["and now?", "something new"]]


class TestIdentity:
    """The same transcripts give the same ids, on any machine and in any order of arrival."""

    def test_indexed_again_from_nothing(self, machine: Machine) -> None:
        transcripts = [talk(name, turns=3) for name in ("a", "b", "c")]
        for transcript in transcripts:
            path = transcript.path(machine.home)
            path.parent.mkdir(parents=True, exist_ok=True)
            for line in transcript.text().splitlines():
                with path.open("a") as file:
                    file.write(line + "\n")
                machine.library.sync()
        again = machine.sync_from_nothing("again")
        for transcript in transcripts:
            assert machine.uids(transcript) == machine.uids(transcript, again)
            assert machine.texts(transcript) == machine.texts(transcript, again)
        again.close()

    def test_the_same_prompt_twice_is_two_events(self, machine: Machine) -> None:
        transcript = Transcript("twice").prompt("continue").answer("ok").prompt("continue").answer("ok")
        transcript.write(machine.home)
        machine.library.sync()
        assert machine.texts(transcript) == [["continue", "ok"], ["continue", "ok"]]
        assert len(set(machine.uids(transcript))) == 4


class TestSessions:
    """Session rows are kept up to date as events arrive."""

    @pytest.mark.parametrize(
        ("prompts", "title"),
        [
            (("/mode", "Fix the build"), "Fix the build"),
            (("/mode", "/model", "Fix the build", "Thanks"), "Fix the build"),
            (("/mode", "/model"), "/mode"),
            (("/review the cart", "Fix the build"), "/review the cart"),
            (("/etc/hosts", "Fix the build"), "/etc/hosts"),
        ],
    )
    def test_a_command_alone_is_a_title_only_as_long_as_there_is_no_other(
        self, machine: Machine, prompts: tuple[str, ...], title: str
    ) -> None:
        home = machine.home / ".pi/agent/sessions/--home-dev-shop--"
        home.mkdir(parents=True)
        records = [{"type": "session", "version": 3, "id": "one", "timestamp": TIME, "cwd": "/home/dev/shop"}]
        for number, prompt in enumerate(prompts):
            message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
            records.append({"type": "message", "id": str(number), "timestamp": TIME, "message": message})
            (home / "one.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
            machine.library.sync()
        session = machine.library.archive.session("pi/one")
        assert session is not None
        assert session.title == title

    def test_facts(self, machine: Machine) -> None:
        transcript = Transcript("facts").prompt("Fix the build\nplease").call("Bash", {"command": "make"}, "ok")
        transcript.answer("fixed")
        transcript.write(machine.home)
        machine.library.sync()
        session = machine.library.archive.session(f"claude-code/{transcript.id}")
        assert session is not None
        assert (session.title, session.turn_count, session.event_count) == ("Fix the build please", 1, 4)
        assert (session.cwd, session.branch, session.mode) == ("/home/dev/shop", "main", "tool_calling")
        (turn,) = machine.library.archive.turns(session.key)
        assert turn.tools == ("Bash",)
        assert turn.types == (
            EventType.USER_INPUT,
            EventType.TOOL_CALL,
            EventType.TOOL_RESPONSE,
            EventType.ASSISTANT_RESPONSE,
        )

    @pytest.mark.parametrize(
        ("tool", "mode"),
        [
            (None, "chat"),
            ("Bash", "tool_calling"),
            ("mcp__backstory__open", "mcp_internal"),
            ("mcp__moraine__search_sessions", "mcp_internal"),
            ("moss.fetch", "mcp_internal"),
            ("mcp__backstory__moss.fetch", "mcp_internal"),
            ("mcp__notes__moss_store", "mcp_internal"),
            ("WebFetch", "web_search"),
            ("SearchWeb", "web_search"),
            ("FetchURL", "web_search"),
            ("read_url_content", "web_search"),
            ("web-search", "web_search"),
            ("mcp__brave__brave_web_search", "web_search"),
            ("mcp__fetch__fetch", "web_search"),
            ("fetch_pr", "tool_calling"),
        ],
    )
    def test_mode(self, machine: Machine, tool: str | None, mode: str) -> None:
        transcript = Transcript("mode").prompt("go")
        if tool:
            transcript.call(tool, {}, "out")
        transcript.answer("done").write(machine.home)
        machine.library.sync()
        session = machine.library.archive.session(f"claude-code/{transcript.id}")
        assert session is not None
        assert session.mode == mode

    def test_usage_counts_once_per_message(self, machine: Machine) -> None:
        transcript = talk()
        transcript.write(machine.home)
        machine.library.sync()
        usage = usage_of(machine.library.archive, f"claude-code/{transcript.id}")
        assert [(row.turn, row.input_tokens, row.output_tokens, row.cache_read_tokens) for row in usage] == [
            (1, 110, 5, 100),
            (2, 110, 5, 100),
        ]


class TestRedaction:
    """With `redact = "ingest"` secrets never reach the disk."""

    def test_at_ingest(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, {"BACKSTORY_REDACT": "ingest"})
        secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        transcript = Transcript("secret").prompt(f"use {secret}").call("Bash", {"command": f"curl -u {secret}"}, secret)
        transcript.write(machine.home)
        machine.library.sync()
        assert secret not in json.dumps(machine.texts(transcript))
        machine.library.close()
        for path in machine.library.home.rglob("*"):
            assert path.is_dir() or secret.encode() not in path.read_bytes()

    def test_titles(self, tmp_path: Path) -> None:
        """The title and the summary that an agent gave to a session are redacted, too."""
        machine = Machine(tmp_path, {"BACKSTORY_REDACT": "ingest"})
        secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        transcript = Transcript("titled").prompt("hello")
        transcript.records.append({"type": "custom-title", "customTitle": f"On {secret}"})
        transcript.records.append({"type": "summary", "summary": f"About {secret}", "leafUuid": "x"})
        transcript.write(machine.home)
        machine.library.sync()
        (session,) = conversations(machine.library.archive)
        assert secret not in session.title + (session.summary or "")
        assert "redacted" in session.title


class TestBudget:
    """A sync that must be quick leaves the rest for the next one."""

    def test_time_is_up(self, machine: Machine) -> None:
        for number in range(5):
            talk(str(number)).write(machine.home)
        report = machine.library.sync(budget=-1)
        assert (report.files, report.skipped) == (0, 5)
        assert machine.library.archive.sync_state().first_finished_at is None
        assert machine.library.sync().files == 5
        assert machine.library.archive.sync_state().first_finished_at is not None

    def test_time_is_up_within_a_file(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        transcript = talk(turns=100)
        transcript.write(machine.home)
        now = time.monotonic()

        def commit(progress: SyncProgress) -> None:
            """The first commit takes all the time there is."""
            if progress.events:
                monkeypatch.setattr(time, "monotonic", lambda: now + 20)

        monkeypatch.setattr(pipeline, "_EVENTS_PER_COMMIT", 20)
        monkeypatch.setattr(reading, "_ITEMS_PER_STEP", 20)
        monkeypatch.setattr(time, "monotonic", lambda: now)
        report = machine.library.sync(budget=10, progress=commit)
        assert (report.files, report.skipped) == (0, 1)
        assert 0 < report.events < 200
        rest = machine.library.sync()
        assert (rest.files, rest.events) == (1, 200 - report.events)
        assert machine.texts(transcript)[76] == ["question 77 of one", "answer 77 of one"]
        assert len(machine.texts(transcript)) == 100

    def test_newest_first(self, machine: Machine) -> None:
        seen: list[str | None] = []
        for number, age in ((1, 500), (2, 100), (3, 900)):
            path = talk(str(number)).write(machine.home)
            os.utime(path, (1_780_000_000 - age, 1_780_000_000 - age))
        machine.library.sync(progress=lambda now: seen.append(now.current) if now.current not in seen else None)
        names = [Path(path).stem for path in seen if path]
        assert names == [talk(str(number)).id for number in (2, 1, 3)]


class TestPermissions:
    """Files of Backstory are readable by their owner only."""

    def test_files_and_folders(self, machine: Machine) -> None:
        talk().write(machine.home)
        machine.library.sync()
        machine.library.search("question")
        folder = machine.library.home
        assert folder.stat().st_mode & 0o777 == 0o700
        for path in folder.iterdir():
            # The index' files are made by tantivy; their folder keeps others out.
            assert path.stat().st_mode & 0o077 == 0, path


class TestAgentsFolders:
    """Nothing of the agents' is ever written."""

    def test_untouched(self, machine: Machine) -> None:
        talk().write(machine.home)
        before = {path: path.stat().st_mtime_ns for path in machine.home.rglob("*")}
        machine.library.sync()
        assert {path: path.stat().st_mtime_ns for path in machine.home.rglob("*")} == before

"""Where Codex keeps its rollouts and how one is recognised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from codex_rollout import HEAD, SESSION, Rollout, feed, nothing_known

from backstory.library import Library
from backstory.sources import load_sources
from backstory.sources.base import About
from backstory.sources.codex import Codex

PARENT = "019ee001-0000-7000-8000-0000000000ff"


def lines(*records: Any) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def named(session: str = SESSION) -> Path:
    return Path(f"/home/mira/.codex/sessions/2026/06/18/rollout-2026-06-18T09-00-00-{session}.jsonl")


class TestRoots:
    def test_home(self) -> None:
        """Sessions, archived sessions and those of TRAE's CLI, below the home."""
        roots = load_sources(["codex"])[0].roots(Path("/home/mira"), {})
        assert [str(root) for root in roots] == [
            "/home/mira/.codex/sessions",
            "/home/mira/.codex/archived_sessions",
            "/home/mira/.trae/cli/sessions",
        ]

    def test_codex_home(self) -> None:
        """CODEX_HOME moves them."""
        roots = load_sources(["codex"])[0].roots(Path("/home/mira"), {"CODEX_HOME": "/data/codex"})
        assert roots[:2] == [Path("/data/codex/sessions"), Path("/data/codex/archived_sessions")]


class TestAccepts:
    @pytest.mark.parametrize("name", ["rollout-x.jsonl", "rollout-x.jsonl.zst", "rollout-x.json", "other.jsonl"])
    def test_rollouts(self, name: str) -> None:
        """Plain, compressed and one-file rollouts."""
        assert Codex().accepts(Path("/s") / name)

    @pytest.mark.parametrize(
        "name", ["history.jsonl", "session_index.jsonl", "config.json", "state_5.sqlite", ".rollout-x.jsonl", "a.txt"]
    )
    def test_others(self, name: str) -> None:
        """Other files in the folder are not transcripts."""
        assert not Codex().accepts(Path("/s") / name)


class TestDescribe:
    def test_header(self) -> None:
        """The first header names the session, under any file name."""
        transcript = Codex().describe(named("someone-else"), lines(Rollout().meta()))
        assert transcript is not None
        assert (transcript.source, transcript.session, transcript.parent, transcript.after) == (
            "codex",
            SESSION,
            None,
            (),
        )
        assert transcript.family == SESSION

    def test_header_of_a_spawned_agent(self) -> None:
        """`session_id` names the first of a tree of agents, `id` this one; it is read after what it copies from."""
        spawn = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
        meta = Rollout().meta(session_id=PARENT, forked_from_id=PARENT, source=spawn)
        transcript = Codex().describe(named(), lines(meta))
        assert transcript is not None
        assert (transcript.session, transcript.parent, transcript.after) == (SESSION, PARENT, (PARENT,))
        assert transcript.family == PARENT

    def test_ranks_a_fork_after_its_original(self) -> None:
        """A family is ordered by the time its sessions started."""
        source = Codex()
        original = source.describe(named(PARENT), lines(Rollout().meta(PARENT, timestamp="2026-06-18T09:00:00Z")))
        fork = source.describe(named(), lines(Rollout().meta(forked_from_id=PARENT, timestamp="2026-06-19T09:00:00Z")))
        assert original is not None
        assert fork is not None
        assert original.family == fork.family
        assert original.rank < fork.rank

    def test_header_longer_than_the_head(self) -> None:
        """Instructions and tool lists can make the header longer than what is given; its beginning is enough."""
        meta = Rollout().meta(forked_from_id=PARENT, base_instructions={"text": "x" * HEAD, "id": "not me"})
        transcript = Codex().describe(named("someone-else"), lines(meta)[:HEAD])
        assert transcript is not None
        assert (transcript.session, transcript.after) == (SESSION, (PARENT,))

    def test_header_glued_to_the_next(self) -> None:
        """A missing newline does not give the session to the one it was copied from."""
        glued = b"\xef\xbb\xbf" + lines(Rollout().meta())[:-1] + lines(Rollout().meta(PARENT), Rollout().meta(PARENT))
        transcript = Codex().describe(named("someone-else"), glued)
        assert transcript is not None
        assert transcript.session == SESSION

    def test_no_header(self) -> None:
        """Without a header the id is the one in the file's name."""
        transcript = Codex().describe(named(), lines(Rollout().user_item("hello")))
        assert transcript is not None
        assert transcript.session == SESSION

    def test_name_without_an_id(self) -> None:
        """Else the name is the id, without its date and endings."""
        path = Path("/s/rollout-2026-01-02T03-04-05-codex-abc.jsonl.zst")
        transcript = Codex().describe(path, lines(Rollout().user_item("hello")))
        assert transcript is not None
        assert transcript.session == "codex-abc"

    def test_moved_to_the_archive(self) -> None:
        """A session is the same wherever its file lies and however it is packed."""
        head = lines(Rollout().meta())
        archived = Path(f"/home/mira/.codex/archived_sessions/rollout-2026-06-18T09-00-00-{SESSION}.jsonl.zst")
        sessions = {transcript.session for path in (named(), archived) if (transcript := Codex().describe(path, head))}
        assert sessions == {SESSION}

    def test_broken_first_line(self) -> None:
        """A line that is not JSON does not hide the header after it."""
        transcript = Codex().describe(named("other"), b'{"timestamp":"20\n' + lines(Rollout().meta()))
        assert transcript is not None
        assert transcript.session == SESSION

    @pytest.mark.parametrize(
        "head",
        [
            b"",
            b"\x00\xff\x00\n",
            b"[]\n[1]\n",
            b'{"session_id":"a","ts":1759848400,"text":"hi"}\n',
            b'{"ts":"2025-08-10T03:12:26.500Z","dir":"meta","kind":"session_start","cwd":"/x","model":"m"}\n',
            b'{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"hi"}}\n',
            b'{"id":"019e","thread_name":"Named","updated_at":"2026-06-18"}\n',
            b'{"name":"a package","version":"1"}\n',
        ],
        ids=["empty", "binary", "arrays", "history", "tui-log", "claude", "session-index", "package"],
    )
    def test_not_a_rollout(self, head: bytes) -> None:
        """Histories, logs, indexes and other agents' files are not rollouts, under any name."""
        assert Codex().describe(named(), head) is None

    def test_one_file_format(self) -> None:
        """The oldest format is one JSON document that begins with its session."""
        path = Path("/s/rollout-2025-05-01-0197b001-0000-4000-8000-00000000000e.json")
        head = b'{\n "session": {"timestamp": "2025-05-01T07:00:00Z", "id": "abc"},\n "items": [{"id": "not me"'
        transcript = Codex().describe(path, head)
        assert transcript is not None
        assert transcript.session == "abc"
        assert Codex().describe(path, b'{"items": []}') is None


class TestRecords:
    def test_jsonl(self) -> None:
        """Lines are read by ingest."""
        assert Codex().records(named()) is None

    def test_broken_document(self, tmp_path: Path) -> None:
        """A one-file rollout that is not one says so."""
        path = tmp_path / "rollout-x.json"
        path.write_text('{"session": {}, "items": [')
        with pytest.raises(ValueError, match="not valid JSON"):
            Codex().records(path)
        path.write_text("[]")
        with pytest.raises(ValueError, match="no list of items"):
            list(Codex().records(path) or ())


class TestTitles:
    def write(self, home: Path, *entries: Any) -> Path:
        folder = home / "sessions" / "2026"
        folder.mkdir(parents=True, exist_ok=True)
        (home / "session_index.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries) + "{torn")
        return folder / f"rollout-{SESSION}.jsonl"

    def test_index(self, tmp_path: Path) -> None:
        """The name the user gave a session stands in the index beside the sessions; the last one holds."""
        path = self.write(
            tmp_path,
            {"id": SESSION, "thread_name": "First"},
            {"id": SESSION, "thread_name": " Second "},
            {"id": PARENT, "thread_name": "Other"},
            ["junk"],
        )
        source = Codex()
        transcript = source.describe(path, lines(Rollout().meta()))
        assert transcript is not None
        parser = source.parser(transcript, None, nothing_known)
        assert list(parser.finish()) == [About(title="Second", title_rank=3)]
        assert list(source.parser(transcript, parser.state(), nothing_known).finish()) == []

    def test_a_name_given_at_last(self, tmp_path: Path) -> None:
        """A sync sees it, though the rollout has not changed; the next one has nothing to do."""
        folder = tmp_path / ".codex" / "sessions" / "2026"
        folder.mkdir(parents=True)
        rollout = Rollout()
        records = (rollout.meta(), rollout.started("t1"), rollout.user_item("Hello"), rollout.answer_item("Hi."))
        (folder / f"rollout-{SESSION}.jsonl").write_bytes(lines(*records))
        with Library(tmp_path / "backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            index = tmp_path / ".codex" / "session_index.jsonl"
            index.write_text(json.dumps({"id": SESSION, "thread_name": "Named at last"}) + "\n")

            assert library.sync().files == 1
            session = library.archive.session(f"codex/{SESSION}")
            assert session is not None
            assert session.title == "Named at last"
            assert library.sync().files == 0

    def test_index_that_grew(self, tmp_path: Path) -> None:
        """A new name is seen with the next read of the session."""
        path = self.write(tmp_path, {"id": SESSION, "thread_name": "First"})
        source = Codex()
        transcript = source.describe(path, lines(Rollout().meta()))
        assert transcript is not None
        state = source.parser(transcript, None, nothing_known).state()
        self.write(tmp_path, {"id": SESSION, "thread_name": "First"}, {"id": SESSION, "thread_name": "Renamed"})
        titles = list(source.parser(transcript, state, nothing_known).finish())
        assert titles == [About(title="Renamed", title_rank=3)]

    def test_record(self) -> None:
        """A rename is also a record; one of another session is not."""
        rollout = Rollout()
        items = feed(
            [
                rollout.event("thread_name_updated", thread_id=PARENT, thread_name="Other"),
                rollout.event("thread_name_updated", thread_id=SESSION, thread_name="Mine"),
                rollout.event("thread_name_updated", thread_id=SESSION, thread_name="Mine"),
            ]
        )
        assert items == [About(title="Mine", title_rank=3)]

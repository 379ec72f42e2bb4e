"""Places of transcripts, and the description of each before it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from claude_code_transcript import SESSION, Records, call, describe, events, feed, load, write

from backstory.sources import load_sources
from backstory.sources.base import Transcript
from backstory.sources.claude_code.source import ClaudeCode

OTHER = "0c0ffee0-0000-4000-8000-00000000000b"
HOME = Path("/home/ada")


def found(path: Path) -> Transcript:
    transcript = describe(path)
    assert transcript is not None
    return transcript


class TestRoots:
    def test_by_default(self) -> None:
        """The folders of Claude Code and of Claude Desktop, whether they exist or not."""
        roots = load_sources(["claude-code"])[0].roots(HOME, {})
        assert roots[:2] == [HOME / ".claude" / "projects", HOME / ".config" / "claude" / "projects"]
        assert HOME / "Library" / "Application Support" / "Claude" / "local-agent-mode-sessions" in roots
        assert HOME / ".config" / "Claude" / "local-agent-mode-sessions" in roots

    def test_configured(self) -> None:
        """`CLAUDE_CONFIG_DIR` may name several folders, below the home or of projects itself."""
        roots = load_sources(["claude-code"])[0].roots(HOME, {"CLAUDE_CONFIG_DIR": "/a, ~/b,/c/projects,"})
        assert roots[:3] == [Path("/a/projects"), HOME / "b" / "projects", Path("/c/projects")]
        assert HOME / ".claude" / "projects" in roots

    def test_on_windows(self, tmp_path: Path) -> None:
        """Claude Desktop may be installed as a package."""
        package = tmp_path / "Packages" / "AnthropicPBC.Claude_x" / "LocalCache" / "Roaming" / "Claude"
        package.mkdir(parents=True)
        roots = load_sources(["claude-code"])[0].roots(HOME, {"APPDATA": "/roaming", "LOCALAPPDATA": str(tmp_path)})
        assert Path("/roaming/Claude/local-agent-mode-sessions") in roots
        assert package / "local-agent-mode-sessions" in roots


class TestNames:
    @pytest.mark.parametrize(
        ("path", "accepted"),
        [
            (f".claude/projects/-x/{SESSION}.jsonl", True),
            (".claude/projects/-x/agent-a1b2c3.jsonl", True),
            (f".claude/projects/-x/{SESSION}/subagents/agent-a1b2c3.jsonl", True),
            (f".claude/projects/-x/{SESSION}/subagents/workflows/wf_1/agent-a1b2c3.jsonl", True),
            (f".claude/projects/-x/{SESSION}/subagents/workflows/wf_1/journal.jsonl", False),
            (f".claude/projects/-x/{SESSION}/subagents/agent-a1b2c3.meta.json", False),
            (f".claude/projects/-x/{SESSION}/tool-results/b1.jsonl", False),
            (f".claude/projects/-x/{SESSION}/tool-results/b1.json", False),
            (".claude/projects/-x/sessions-index.json", False),
            (".claude/projects/-x/memory/MEMORY.md", False),
            (".claude/history.jsonl", False),
            (f"Claude/local-agent-mode-sessions/a/b/local_1/.claude/projects/-x/{SESSION}.jsonl", True),
            ("Claude/local-agent-mode-sessions/a/b/local_1/audit.jsonl", False),
            ("Claude/local-agent-mode-sessions/a/b/local_1/notes.jsonl", False),
            ("Claude/local-agent-mode-sessions/a/b/local_1.json", False),
        ],
    )
    def test_accepted(self, path: str, accepted: bool) -> None:
        """Transcripts are distinguished from what lies beside them by their names."""
        assert ClaudeCode().accepts(HOME / path) is accepted


class TestContent:
    @pytest.mark.parametrize(
        "line",
        [
            '{"type":"session_meta","payload":{"id":"x"}}',
            '{"type":"session_meta","sessionId":"x","uuid":"u","cwd":"/"}\n{"type":"user","message":{"content":"hi"}}',
            '{"uuid":"q","sessionId":"x","type":"user","message":{"role":"user","parts":[{"text":"hi"}]}}',
            '{"role":"user","message":{"content":[{"type":"text","text":"hi"}]}}',
            '{"type":"session","version":3,"id":"x"}',
            "[1, 2]",
            "not JSON",
            "",
        ],
    )
    def test_other_agents_files(self, tmp_path: Path, line: str) -> None:
        """Files of other agents are left aside, under any name."""
        path = tmp_path / f"{SESSION}.jsonl"
        path.write_text(f"{line}\n")
        assert describe(path) is None

    @pytest.mark.parametrize(
        "record",
        [
            {"type": "summary", "summary": "x", "leafUuid": "y"},
            {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
            {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION},
            {"type": "user", "message": {"role": "user", "content": "hi"}},
        ],
    )
    def test_a_file_that_has_only_begun(self, tmp_path: Path, record: dict) -> None:
        """The first record of any kind is enough."""
        assert found(write(tmp_path / f"{SESSION}.jsonl", [record])).session == SESSION

    @pytest.mark.parametrize("size", [200_000, 9 << 20])
    def test_first_record_larger_than_the_head(self, tmp_path: Path, size: int) -> None:
        """A pasted book or pictures at the beginning do not hide what the file is."""
        record = Records().user("x" * size)
        assert found(write(tmp_path / f"{SESSION}.jsonl", [record])).family == record["uuid"]

    def test_broken_lines_before_it(self, tmp_path: Path) -> None:
        """Torn lines and lines that are no objects are passed over."""
        path = write(tmp_path / f"{SESSION}.jsonl", [42, "x", Records().user("hi")])
        path.write_bytes(b'{"type":"user","mess\n' + path.read_bytes())
        assert found(path).session == SESSION

    def test_from_the_head_alone(self) -> None:
        """A file that is gone by now is described by what was read of it."""
        head = b'{"type":"user","uuid":"u","timestamp":"2026-03-01T10:00:00Z","message":{"content":"hi"}}\n'
        transcript = ClaudeCode().describe(Path(f"/gone/{SESSION}.jsonl"), head)
        assert transcript is not None
        assert (transcript.session, transcript.family) == (SESSION, "u")

    def test_identity_is_the_name(self, tmp_path: Path) -> None:
        """The name of the file is the session's id; records may be copies from another."""
        assert found(write(tmp_path / f"{OTHER}.jsonl", [Records().user("hi")])).session == OTHER
        assert found(write(tmp_path / "saved.jsonl", [Records().user("hi")])).session == SESSION

    def test_export(self, tmp_path: Path) -> None:
        """A session exported as one document is read as well; other documents are not."""
        path = tmp_path / "saved.json"
        path.write_text('{ "loglines": [{"type": "user", "message": {"content": "hi"}}]}')
        assert found(path).session == "saved"
        assert [event.text for event in events(feed(load(path), found(path)))] == ["hi"]
        path.write_text('{"entries": []}')
        assert describe(path) is None

    def test_jsonl_is_read_by_lines(self) -> None:
        """Transcripts of lines are left to ingest, which reads them as they grow."""
        assert ClaudeCode().records(Path(f"{SESSION}.jsonl")) is None


class TestHeadlessSessions:
    def test_observers(self, tmp_path: Path) -> None:
        """Sessions in which claude-mem observes others are none of the person's."""
        observer = Records(cwd="/home/ada/.claude-mem/observer-sessions")
        assert describe(write(tmp_path / f"{SESSION}.jsonl", [observer.user("Observe.")])) is None
        slug = tmp_path / "projects" / "-home-ada--claude-mem-observer-sessions"
        assert describe(write(slug / f"{SESSION}.jsonl", [Records().user("Observe.")])) is None

    def test_probes(self, tmp_path: Path) -> None:
        """A session that only asked for `/usage` is a program's."""
        r = Records()
        usage = r.user("<command-name>/usage</command-name><command-args></command-args>")
        output = r.user("<local-command-stdout>Status dialog dismissed</local-command-stdout>")
        path = tmp_path / f"{SESSION}.jsonl"
        assert describe(write(path, [usage, output])) is None
        assert describe(write(path, [usage, output, r.user("hello")])) is not None
        assert describe(write(path, [r.user("<command-name>/clear</command-name>")])) is not None


class TestFamilies:
    def fork(self, tmp_path: Path, **fields: object) -> tuple[Transcript, Transcript]:
        """A session and a copy of it that went on."""
        r = Records()
        records = [r.user("go"), r.assistant("Done.", stop="end_turn")]
        copies = [{**record, "sessionId": OTHER, **fields} for record in records]
        copies.append({**r.user("and now?"), "sessionId": OTHER})
        folder = tmp_path / "projects" / "-x"
        return found(write(folder / f"{SESSION}.jsonl", records)), found(write(folder / f"{OTHER}.jsonl", copies))

    def test_forks_follow_their_original(self, tmp_path: Path) -> None:
        """A fork is of its original's family and is read after it."""
        original, copy = self.fork(tmp_path)
        assert original.family == copy.family
        assert original.rank < copy.rank

    def test_background_copies(self, tmp_path: Path) -> None:
        """A copy that runs in the background comes after the original, even if that goes on for longer."""
        original, _ = self.fork(tmp_path)
        _, copy = self.fork(tmp_path, sessionKind="bg")
        with original.path.open("a") as file:
            file.write('{"type":"user","timestamp":"2027-01-01T00:00:00.000Z","message":{"content":"more"}}\n')
        assert found(original.path).rank < copy.rank

    def test_copies_of_a_file(self, tmp_path: Path) -> None:
        """The session whose own records it holds comes before its copy under the name of another one."""
        records = [Records().user("go")]
        folder = tmp_path / "projects" / "-x"
        for session, name in ((SESSION, OTHER), (OTHER, SESSION)):
            said = [{**record, "sessionId": session} for record in records]
            original, copy = (found(write(folder / f"{stem}.jsonl", said)) for stem in (session, name))
            assert original.family == copy.family
            assert original.rank < copy.rank

    def test_forks_that_say_so(self, tmp_path: Path) -> None:
        """A fork that names its original is read after it."""
        original, copy = self.fork(tmp_path, forkedFrom={"sessionId": SESSION, "messageUuid": "m"})
        assert copy.after == (SESSION,)
        assert original.after == ()

    def test_one_session_in_several_folders(self, tmp_path: Path) -> None:
        """A session that changed its folder is one family, in the order in which its parts began."""
        r = Records()
        first = write(tmp_path / "projects" / "-x" / f"{SESSION}.jsonl", [r.user("go"), r.assistant("Done.")])
        second = write(tmp_path / "projects" / "-a" / f"{SESSION}.jsonl", [r.user("and here?")])
        assert found(first).session == found(second).session
        assert found(first).family == found(second).family
        assert found(first).rank < found(second).rank

    def test_desktop_sessions(self, tmp_path: Path) -> None:
        """All transcripts of a session of Claude Desktop are that one session."""
        folder = tmp_path / "local-agent-mode-sessions" / "a" / "local_1" / ".claude" / "projects" / "-x"
        r = Records()
        first = found(write(folder / f"{OTHER}.jsonl", [r.user("go")]))
        second = found(write(folder / f"{SESSION}.jsonl", [r.user("go on")]))
        assert first.session == second.session == "local_1"
        assert first.family == second.family
        assert first.rank < second.rank

    def test_rank_is_the_same_on_every_machine(self, tmp_path: Path) -> None:
        """Neither the folder nor the time of the file matters."""
        r = Records()
        records = [r.user("go"), r.assistant(call("Read"))]
        one, two = (found(write(tmp_path / place / "projects" / "-x" / f"{SESSION}.jsonl", records)) for place in "ab")
        assert (one.rank, one.family) == (two.rank, two.family)

"""Real transcripts, end to end: read without error, the same twice, and every id leads somewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backstory.library import Library
from backstory.model import EVENT_TYPES
from tests.archive_world import turn_row

EVER = {"start_datetime": "2001-01-01T00:00:00Z", "end_datetime": "2099-01-01T00:00:00Z"}


@pytest.fixture
def library(corpus_library: Library) -> Library:
    return corpus_library


def outline(library: Library) -> dict[str, list[tuple[bytes, ...]]]:
    """Every session with the ids of its events, turn by turn."""
    archive = library.archive
    keys = [key for (key,) in archive._db.execute("SELECT key FROM session WHERE event_count > 0")]  # type: ignore[attr-defined]
    return {
        key: [tuple(event.uid for event in archive.events(key, turn.ordinal)) for turn in archive.turns(key)]
        for key in keys
    }


@pytest.mark.corpus
class TestCorpus:
    def test_rows_agree_with_one_another(self, library: Library) -> None:
        """Counts kept incrementally are what a count from scratch gives."""
        archive = library.archive
        for key, turns in outline(library).items():
            session = archive.session(key)
            assert session is not None
            assert (session.turn_count, session.event_count) == (len(turns), sum(map(len, turns))), key
            assert session.title.strip() or session.turn_count == 0 or turn_row(archive, key, 1) is not None
            for row, uids in zip(archive.turns(key), turns, strict=True):
                events = archive.events(key, row.ordinal)
                assert [event.ordinal for event in events] == list(range(1, len(uids) + 1))
                assert row.types == tuple(dict.fromkeys(event.type for event in events))
                assert row.tools == tuple(dict.fromkeys(e.tool for e in events if e.type == "tool_call" and e.tool))
                assert {row.prompt, row.terminal} - {None} <= set(uids)

    def test_nothing_is_read_twice(self, library: Library) -> None:
        again = library.sync()
        assert (again.files, again.bytes) == (0, 0)

    @pytest.mark.slow
    @pytest.mark.parametrize("source", ["codex", "claude-code"])
    def test_indexed_again_from_nothing(self, library: Library, corpus: Path, tmp_path: Path, source: str) -> None:
        with Library(tmp_path, agents_home=corpus / "home", environ={"BACKSTORY_SOURCES": source}) as again:
            again.sync()
            expected = {key: turns for key, turns in outline(library).items() if key.startswith(f"{source}/")}
            assert outline(again) == expected

    def test_every_listed_session_opens(self, library: Library) -> None:
        cursor, seen = None, 0
        while True:
            page = library.call("list_sessions", {**EVER, "limit": 50, "cursor": cursor})["data"]
            for entry in page["sessions"]:
                opened = library.open(entry["open"]["session_id"])["data"]
                assert opened["session"]["title"]
                assert len(opened["turns"]) == entry["session"]["turn_count"]
                seen += 1
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert seen == library.archive.counts().sessions

    def test_what_was_said_is_found(self, library: Library) -> None:
        for query in ("pytest", "git commit", "TypeError", "/src/", "refactor the parser"):
            found = library.search(query, event_types=[kind for kind in EVENT_TYPES if kind != "unknown"])["data"]
            assert found["result_count"] == 10, query

    def test_odd_files_cost_only_their_broken_parts(self, corpus: Path, tmp_path: Path) -> None:
        """Rare shapes, old formats and logs, put where transcripts are expected."""
        projects = tmp_path / "home" / ".claude" / "projects" / "-odd"
        rollouts = tmp_path / "home" / ".codex" / "sessions" / "2026" / "01" / "01"
        for folder, agent in ((projects, "claude-code"), (rollouts, "codex")):
            folder.mkdir(parents=True)
            for number, path in enumerate(sorted((corpus / "odd" / agent).rglob("*.jsonl"))):
                name = f"00000000-0000-4000-8000-{number:012d}"
                prefix = "rollout-2026-01-01T00-00-00-" if agent == "codex" else ""
                shutil.copy(path, folder / f"{prefix}{name}.jsonl")
        with Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library:
            report = library.sync()
            counts = library.archive.counts()
        assert report.files > 10
        assert counts.sessions >= 10
        assert counts.files_with_errors <= 2

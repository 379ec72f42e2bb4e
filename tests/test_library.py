"""Backstory as a library, where its toolsets meet."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import backstory
from backstory import keeper
from backstory.config import ConfigError
from backstory.library import Library
from backstory.model import session_id
from tests.transcripts import Transcript

CAPSULE = "\n".join(
    f"## {name}\n- x\n"
    for name in ("Objective", "Current status", "Decisions", "Next actions", "Key locations", "Open questions")
)


class TestLibrary:
    """One object opens, syncs, searches and calls."""

    def test_the_sixty_seconds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        Transcript("one").prompt("why does the parser fail").answer("a missing brace").write(tmp_path)
        with backstory.open_archive(tmp_path / "backstory") as archive:
            assert archive.sync().events == 2
            hit = archive.search("missing brace")["data"]["results"][0]
            assert archive.open(hit["open"]["event_id"])["data"]["content"]["text"] == "a missing brace"
            listed = archive.sessions("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z")["data"]["sessions"]
            assert [entry["id"] for entry in listed] == [hit["session"]["id"]]
            assert archive.call("open", {"id": "nonsense"})["error"]["code"] == "invalid_id"

    def test_threads_that_sync_at_once(self, tmp_path: Path) -> None:
        """They take turns: each reads everything new, and none is told that another process writes."""
        Transcript("one").prompt("hello").answer("hi").write(tmp_path / "home")
        second: list[int] = []
        with Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library:
            other = threading.Thread(target=lambda: second.append(library.sync().events))

            def join_in(_: object) -> None:
                if other.ident is None:
                    other.start()
                    other.join(0.2)

            assert library.sync(progress=join_in).events == 2
            other.join()
        assert second == [0]

    def test_an_unknown_tool(self, tmp_path: Path) -> None:
        with backstory.open_archive(tmp_path) as archive, pytest.raises(KeyError):
            archive.call("no_such_tool", {})

    def test_roots_are_those_that_ingest_reads(self, tmp_path: Path) -> None:
        """Also folders of the settings, and the one of received telemetry: `doctor` shows what `sync` reads."""
        Transcript("one").prompt("hello").write(tmp_path / "home")
        more = tmp_path / "more"
        Transcript("two").prompt("hello").write(more)
        (tmp_path / "backstory").mkdir()
        config = f'[extra_roots]\nclaude-code = ["{more / ".claude" / "projects"}"]\n'
        (tmp_path / "backstory" / "config.toml").write_text(config)
        with Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library:
            roots = {root for source in library.sources for root in library.roots(source)}
            with library._ingest() as ingest:
                assert roots == set(ingest.roots())
            assert {more / ".claude" / "projects", tmp_path / "backstory" / "otel"} <= roots

    def test_conversations_wait_for_the_first_sync(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Their answers have no place for a warning that something is missing."""
        monkeypatch.setattr(keeper, "_FIRST_SYNC_SECONDS", 60.0)
        Transcript("one").prompt("hello").answer("hi").write(tmp_path / "home")
        with (
            Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library,
            Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as writing,
        ):
            library.expect_first_sync()
            reader = threading.Thread(target=writing.sync)
            reader.start()
            found = library.call("list_conversations", {})["conversations"]
            reader.join()
        assert [conversation["session_id"] for conversation in found] == [Transcript("one").id]

    def test_unknown_sources_in_the_settings(self, tmp_path: Path) -> None:
        """Refused with the file and the setting, not ignored."""
        for setting, text in (("sources", "sources = ['nope']"), ("extra_roots", "extra_roots = {nope = ['/x']}")):
            (tmp_path / "config.toml").write_text(text)
            with Library(tmp_path) as library, pytest.raises(ConfigError, match=f"config.toml .*{setting}: .*'nope'"):
                library.sync()

    def test_the_engine_is_a_setting(self, tmp_path: Path) -> None:
        with Library(tmp_path, environ={"BACKSTORY_ARCHIVE_ENGINE": "local"}) as library:
            assert library.archive.counts().sessions == 0
        with pytest.raises(ConfigError, match="ENGINE"):
            Library(tmp_path, environ={"BACKSTORY_ARCHIVE_ENGINE": "abacus"})

    def test_history_is_built_once(self, tmp_path: Path) -> None:
        """The methods of the library and the tools are the same object's."""
        with Library(tmp_path, environ={}) as library:
            assert library.tool("open").handler.__self__ is library._history  # type: ignore[attr-defined]

    def test_capsules_are_linked_from_their_session(self, tmp_path: Path) -> None:
        transcript = Transcript("one").prompt("distil this")
        transcript.write(tmp_path / "home")
        with Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library:
            library.sync()
            id = session_id(f"claude-code/{transcript.id}")
            assert "links" not in library.open(id)["data"]
            for name, session in (("ours", id), ("theirs", transcript.id), ("other", "elsewhere")):
                stored = {"capsule_text": CAPSULE, "name": name, "source_session": session}
                assert "id" in library.call("moss.store", stored)
            links = library.open(id)["data"]["links"]["capsules"]
            assert {link["name"] for link in links} == {"ours", "theirs"}

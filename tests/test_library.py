"""Backstory as a library, where its toolsets meet."""

from __future__ import annotations

from pathlib import Path

import pytest

import backstory
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

    def test_an_unknown_tool(self, tmp_path: Path) -> None:
        with backstory.open_archive(tmp_path) as archive, pytest.raises(KeyError):
            archive.call("no_such_tool", {})

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

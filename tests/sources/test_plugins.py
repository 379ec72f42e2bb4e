"""Sources of other packages, found by their entry points."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from backstory.library import Library
from backstory.sources import SOURCES, load_sources

MODULE = '''
from backstory.model import EventType, digest
from backstory.sources.base import Event, Source, Transcript


class Tiny(Source):
    """An agent that writes one JSON object per message to ~/.tiny/<session>.jsonl."""

    name = "tiny"

    def roots(self, home, environ):
        return [home / ".tiny"]

    def accepts(self, path):
        return path.suffix == ".jsonl"

    def describe(self, path, head):
        return Transcript(source=self.name, path=path, session=path.stem)

    def parser(self, transcript, state, lookup):
        return Messages(transcript.session)

    def resume(self, session):
        return ("tiny", "continue", session)


class Messages:
    def __init__(self, session):
        self.session = session

    def parse(self, record):
        kind = EventType.USER_INPUT if record["from"] == "user" else EventType.ASSISTANT_RESPONSE
        yield Event(
            uid=digest("tiny", self.session, record["id"]),
            type=kind,
            text=record["text"],
            starts_turn=kind is EventType.USER_INPUT,
            ends_turn=kind is EventType.ASSISTANT_RESPONSE,
        )

    def finish(self):
        return ()

    def state(self):
        return {}
'''


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, with one that has a source."""
    site = tmp_path / "site"
    info = site / "backstory_tiny-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: backstory-tiny\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[backstory.sources]\ntiny = backstory_tiny:Tiny\n")
    (site / "backstory_tiny.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("backstory_tiny", None)


class TestPlugins:
    def test_are_read_like_any_other(self, site: Path, tmp_path: Path) -> None:
        """Found, searched, opened and resumed."""
        folder = tmp_path / "home" / ".tiny"
        folder.mkdir(parents=True)
        messages = [
            {"id": "1", "from": "user", "text": "Where do bandicoots live?"},
            {"id": "2", "from": "agent", "text": "In Australia."},
        ]
        (folder / "s1.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))

        with Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library:
            library.sync()
            (hit,) = library.search("bandicoots")["data"]["results"]
            location = library.locate(hit["session"]["id"])

        assert hit["session"]["source"] == "tiny"
        assert hit["turn"]["completed"]
        assert location is not None
        assert location.resume == ("tiny", "continue", "s1")

    def test_can_be_chosen_by_name(self, site: Path) -> None:
        assert [source.name for source in load_sources(["codex", "tiny"])] == ["codex", "tiny"]
        assert [source.name for source in load_sources()] == [*SOURCES, "tiny"]

    def test_one_that_fails_is_left_out(self, site: Path, caplog: pytest.LogCaptureFixture) -> None:
        """With a warning; so is one that takes the name of another."""
        points = "[backstory.sources]\ntiny = backstory_tiny:Missing\ncodex = backstory_tiny:Tiny\n"
        (site / "backstory_tiny-1.0.dist-info" / "entry_points.txt").write_text(points)

        assert [source.name for source in load_sources()] == list(SOURCES)
        assert "the source tiny (backstory_tiny:Missing) cannot be loaded" in caplog.text
        assert "the source codex of backstory_tiny:Tiny is left out" in caplog.text

    def test_an_unknown_name(self, site: Path) -> None:
        with pytest.raises(ValueError, match=r"unknown source 'nope': the sources are claude-code, .*, tiny"):
            load_sources(["nope"])

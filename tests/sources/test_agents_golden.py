"""Made-up homes in the shape of real ones against the items they must give, for every agent that writes files.

After a deliberate change, `BACKSTORY_UPDATE_GOLDEN=1 pytest tests/sources/test_agents_golden.py` writes them anew; read
the difference.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest
from agents_world import (
    AGENTS,
    SAMPLES,
    archived,
    describe,
    events,
    plain,
    read,
    read_with_restarts,
    records_of,
    source_named,
    transcripts_in,
)


@pytest.mark.parametrize("agent", AGENTS)
class TestGolden:
    def test_items(self, agent: str) -> None:
        """A home gives exactly the items that were written down for it."""
        source, home = source_named(agent), SAMPLES / agent / "home"
        found = {}
        for path in transcripts_in(source, home):
            transcript = describe(source, path)
            assert transcript is not None
            about = {"session": transcript.session, "parent": transcript.parent, "begun": transcript.begun}
            found[str(path.relative_to(home))] = {**about, "items": plain(read(source, path), home)}
        golden = SAMPLES / agent / "golden.json"
        if os.environ.get("BACKSTORY_UPDATE_GOLDEN"):
            golden.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
        assert found == msgspec.json.decode(golden.read_bytes())

    def test_a_file_that_grows_record_by_record(self, agent: str) -> None:
        """It does not matter where reading stops and goes on."""
        source = source_named(agent)
        for path in transcripts_in(source, SAMPLES / agent / "home"):
            if source.records(path) is None:
                assert archived(read_with_restarts(source, path)) == archived(read(source, path)), path.name

    def test_identities(self, agent: str) -> None:
        """Two events of a home have one identity only where the agent wrote one thing twice."""
        source = source_named(agent)
        for path in transcripts_in(source, SAMPLES / agent / "home"):
            said: dict[bytes, tuple[object, ...]] = {}
            for event in events(read(source, path)):
                what = (event.type, event.session, event.tool, event.call_id)
                assert said.setdefault(event.uid, what) == what

    def test_a_copy_has_the_same_identities(self, agent: str, tmp_path: Path) -> None:
        """An identity depends on nothing but what the files say: a home that was moved gives the same."""
        source, home = source_named(agent), tmp_path / "home"
        shutil.copytree(SAMPLES / agent / "home", home)
        for path in transcripts_in(source, SAMPLES / agent / "home"):
            copied = events(read(source, home / path.relative_to(SAMPLES / agent / "home")))
            assert [event.uid for event in copied] == [event.uid for event in events(read(source, path))]

    def test_records_are_understood(self, agent: str) -> None:
        """Every record is one the source reads without complaint, but for the one that no agent wrote."""
        source = source_named(agent)
        for path in transcripts_in(source, SAMPLES / agent / "home"):
            assert records_of(source, path)
            unknown = [event.text for event in events(read(source, path)) if event.type == "unknown"]
            assert all("hologram" in text or "weather" in text for text in unknown)

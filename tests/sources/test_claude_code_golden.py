"""Whole made-up transcripts, in the shape of real ones of each era, against the items they must give.

After a deliberate change, `BACKSTORY_UPDATE_GOLDEN=1 pytest tests/sources/test_claude_code_golden.py` writes them anew;
read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from claude_code_transcript import describe, events, feed, feed_with_restarts, load

from backstory.sources.base import Item
from backstory.sources.claude_code import ClaudeCode

FOLDER = Path(__file__).parent / "claude_code"
TRANSCRIPTS = [
    path
    for path in sorted(FOLDER.rglob("*"))
    if path.is_file() and ".golden" not in path.suffixes and ClaudeCode().accepts(path)
]


def plain(item: Item) -> dict[str, Any]:
    """An item as JSON without the fields that say nothing."""
    built = msgspec.to_builtins(item)
    defaults = {field.name: field.default for field in msgspec.structs.fields(item)}
    said = {name: value for name, value in built.items() if value != defaults[name]}
    return {"item": type(item).__name__, **said}


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem[:20])
class TestGolden:
    def test_items(self, path: Path) -> None:
        """A transcript gives exactly the items that were written down for it."""
        items = [plain(item) for item in feed(load(path), describe(path))]
        golden = path.with_suffix(".golden.txt")
        if os.environ.get("BACKSTORY_UPDATE_GOLDEN"):
            golden.write_bytes(b"".join(msgspec.json.encode(item) + b"\n" for item in items))
        assert items == [msgspec.json.decode(line) for line in golden.read_bytes().splitlines()]

    def test_items_of_a_file_that_grows_record_by_record(self, path: Path) -> None:
        """It does not matter where reading stops and goes on."""
        records, transcript = load(path), describe(path)
        assert feed_with_restarts(records, transcript) == feed(records, transcript)

    def test_ids_are_unique(self, path: Path) -> None:
        """No two events of a transcript share an id."""
        uids = [event.uid for event in events(feed(load(path), describe(path)))]
        assert len(set(uids)) == len(uids)


class TestWholeHome:
    def test_transcripts_found(self) -> None:
        """Sessions, their subagents and helpers are transcripts; logs, titles and tool output beside them are not."""
        names = {path.relative_to(FOLDER).as_posix() for path in TRANSCRIPTS}
        assert len(names) == 11
        assert not [name for name in names if "audit" in name or "meta" in name or "tool-results" in name]

    def test_a_fork_repeats_the_events_of_its_original(self) -> None:
        """A fork's copies have the ids of the original's records; only what it adds is new."""
        folder = FOLDER / ".claude" / "projects" / "-home-ada-shop"
        original, fork = (next(folder.glob(f"{first}*.jsonl")) for first in ("1", "2"))
        told = {event.uid for event in events(feed(load(original), describe(original)))}
        new = [event.text for event in events(feed(load(fork), describe(fork))) if event.uid not in told]
        assert new == ["try it with decimals instead", "Done with decimals."]

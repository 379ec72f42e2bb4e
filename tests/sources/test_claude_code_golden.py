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

from backstory.library import Library
from backstory.sources.base import Item
from backstory.sources.claude_code.source import ClaudeCode

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


def rows(library: Library) -> list[Any]:
    """Everything that the archive keeps of all sessions."""
    archive = library.archive
    keys = [key for (key,) in archive._db.execute("SELECT key FROM session ORDER BY key")]  # type: ignore[attr-defined]
    usage = archive._db.execute("SELECT * FROM usage ORDER BY key").fetchall()  # type: ignore[attr-defined]
    kept: list[Any] = [[row[0], *row[3:]] for row in usage]
    for key in keys:
        kept += [archive.session(key), *archive.turns(key)]
        kept += [event for turn in archive.turns(key) for event in archive.events(key, turn.ordinal)]
    return kept


class TestWholeHome:
    @pytest.mark.parametrize("first", "36")
    def test_the_archive_is_the_same_however_a_file_grows(self, first: str, tmp_path: Path) -> None:
        """Reading after every record, each time to an end that was none, leaves what reading at once leaves."""
        original = next((FOLDER / ".claude" / "projects" / "-home-ada-shop").glob(f"{first}*.jsonl"))
        lines = original.read_bytes().splitlines(keepends=True)
        path = tmp_path / ".claude" / "projects" / "-home-ada-shop" / original.name
        path.parent.mkdir(parents=True)
        with Library(tmp_path / "grown", agents_home=tmp_path, environ={}) as grown:
            for number in range(len(lines)):
                path.write_bytes(b"".join(lines[: number + 1]))
                grown.sync()
            with Library(tmp_path / "at-once", agents_home=tmp_path, environ={}) as at_once:
                at_once.sync()
                assert rows(grown) == rows(at_once)

    def test_transcripts_found(self) -> None:
        """Sessions, their subagents and helpers are transcripts; logs, titles and tool output beside them are not."""
        names = {path.relative_to(FOLDER).as_posix() for path in TRANSCRIPTS}
        assert len(names) == 11
        assert not [name for name in names if "audit" in name or "meta" in name or "tool-results" in name]

    def test_a_fork_repeats_the_events_of_its_original(self) -> None:
        """A fork's copies have the ids of the original's records; only what it adds is new."""
        folder = FOLDER / ".claude" / "projects" / "-home-ada-shop"
        original, fork = (next(folder.glob(f"{first}*.jsonl")) for first in ("1", "2"))
        yielded = {event.uid for event in events(feed(load(original), describe(original)))}
        new = [event.text for event in events(feed(load(fork), describe(fork))) if event.uid not in yielded]
        assert new == ["try it with decimals instead", "Done with decimals."]

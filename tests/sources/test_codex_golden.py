"""Whole made-up rollouts, in the shape of real ones of each era, against the items they must give.

After a deliberate change, `BACKSTORY_UPDATE_GOLDEN=1 pytest tests/sources/test_codex_golden.py` writes them anew; read
the difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from codex_rollout import describe, feed, feed_with_restarts, load

from backstory.sources.base import Event, Item

FOLDER = Path(__file__).parent / "codex"
ROLLOUTS = sorted(path for path in FOLDER.glob("*/rollout-*") if ".golden" not in path.suffixes)


def inherited(session: str) -> frozenset[str]:
    """The turn keys that the archive has of a session after its file was read."""
    for path in ROLLOUTS:
        if session in path.name:
            transcript = describe(path)
            items = feed(load(path), transcript)
            return frozenset(item.turn_key for item in items if isinstance(item, Event) and item.turn_key)
    return frozenset()


def plain(items: list[Item]) -> list[dict[str, Any]]:
    """Items as JSON, without the fields that say nothing. Digests are numbered: which are the same is what counts."""
    numbers: dict[bytes, int] = {}
    written = []
    for item in items:
        said: dict[str, Any] = {"item": type(item).__name__}
        for field in msgspec.structs.fields(item):
            value = getattr(item, field.name)
            if field.name in ("key", "usage_key") and value:
                said[field.name] = numbers.setdefault(value, len(numbers) + 1)
            elif field.name != "uid" and value != field.default:
                said[field.name] = value
        written.append(said)
    return written


@pytest.mark.parametrize("path", ROLLOUTS, ids=lambda path: path.parent.name + path.stem[-3:])
class TestGolden:
    def test_items(self, path: Path) -> None:
        """A rollout gives exactly the items that were written down for it."""
        items = plain(feed(load(path), describe(path), inherited))
        golden = path.with_suffix(".golden.json")
        if os.environ.get("BACKSTORY_UPDATE_GOLDEN"):
            golden.write_bytes(msgspec.json.format(msgspec.json.encode(items), indent=1) + b"\n")
        assert items == msgspec.json.decode(golden.read_bytes())

    def test_items_of_a_file_that_grows_record_by_record(self, path: Path) -> None:
        """It does not matter where reading stops and goes on."""
        records, transcript = load(path), describe(path)
        assert feed_with_restarts(records, transcript, inherited) == feed(records, transcript, inherited)

    def test_ids_are_unique(self, path: Path) -> None:
        """No two events of a rollout share an id."""
        uids = [item.uid for item in feed(load(path), describe(path), inherited) if isinstance(item, Event)]
        assert len(set(uids)) == len(uids)

"""Values that no agent should write, anywhere in its records: the sync goes on, and the archive takes what is left."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from made_up_homes import Home
from store_files import AGENTS

from backstory.ingest.reading import Reading

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1 << 62,
    1e308,
    "",
    "x",
    "\x00\x1b[2J\u202e",
    "9" * 400,
    "2026-99-99T99:99:99Z",
    [],
    {},
    [[[{}]]],
    {"type": {"type": []}, "text": 5},
)


def mangled(value: Any, chance: random.Random, share: float) -> Any:
    """A copy in which some values, of any depth, are others."""
    if chance.random() < share:
        return chance.choice(HOSTILE)
    if isinstance(value, dict):
        return {name: mangled(inner, chance, share) for name, inner in value.items()}
    if isinstance(value, list):
        return [mangled(inner, chance, share) for inner in value]
    return value


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("seeds", [1, pytest.param(8, marks=pytest.mark.slow)])
class TestHostileRecords:
    def test_cost_themselves_at_most(
        self, agent: str, seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A sync of records with wrong values ends and can be searched."""
        records = Reading._records
        for share, seed in product((0.02, 0.1, 0.3), range(seeds)):
            chance = random.Random(f"{agent} {share} {seed}")
            home = Home(agent, tmp_path / f"{share} {seed}")

            def hostile(reading: Reading, chance: random.Random = chance, share: float = share) -> Iterable[Any] | None:
                found = records(reading)
                if found is None:
                    return None
                return ({name: mangled(value, chance, share) for name, value in record.items()} for record in found)

            monkeypatch.setattr(Reading, "_records", hostile)
            home.library.sync()
            home.library.search("the")
            home.show()
            monkeypatch.setattr(Reading, "_records", records)
            home.library.close()

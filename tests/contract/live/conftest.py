from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_world import World


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Makes worlds, which end with the test."""
    worlds: list[World] = []

    def make(home: Path = tmp_path, config: dict[str, Any] | None = None, **more: Any) -> World:
        worlds.append(World(home, config, **more))
        return worlds[-1]

    yield make
    for world in worlds:
        world.end()


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """Live sessions in an empty home, kept without waiting for the disk."""
    return new_world(config={"adapter": {"name": "fs", "config": {"fsync": "off"}}})

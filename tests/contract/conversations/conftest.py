from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conversation_world import World
from tests.engines import PrepareHome


@pytest.fixture
def world(tmp_path: Path, prepare_home: PrepareHome) -> Iterator[World]:
    prepare_home(tmp_path / "backstory")
    world = World(tmp_path)
    yield world
    world.library.close()

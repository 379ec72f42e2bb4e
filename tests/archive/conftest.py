"""The engine that the tests of the archive's protocol run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backstory.archive import open_engine
from backstory.archive.base import Archive
from tests.archive_world import PROJECTION


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Archive]:
    archive = open_engine("local", tmp_path / "backstory", PROJECTION)
    yield archive
    archive.close()

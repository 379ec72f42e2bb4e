"""The engines that the tests of the archive protocol run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backstory.archive import open_engine
from backstory.archive.base import Archive
from tests.archive_world import PROJECTION

# Another engine is one more line: its name, and a way to open a new archive of it for a test.
ENGINES: dict[str, Callable[[Path], Archive]] = {
    "local": lambda folder: open_engine("local", folder / "backstory", PROJECTION),
}


@pytest.fixture(scope="class", params=ENGINES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """An archive for a class whose tests only read it."""
    archive = ENGINES[request.param](tmp_path_factory.mktemp("shared"))
    yield archive
    archive.close()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Archive]:
    archive = ENGINES[request.param](tmp_path)
    yield archive
    archive.close()

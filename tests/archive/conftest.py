"""The engines that the tests of the archive protocol run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backstory.archive import open_engine
from backstory.archive.base import Archive

# Another engine is one more line: its name, and a way to open a new archive of it for a test.
ENGINES: dict[str, Callable[[Path], Archive]] = {
    "local": lambda folder: open_engine("local", folder / "backstory"),
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Archive]:
    archive = ENGINES[request.param](tmp_path)
    yield archive
    archive.close()

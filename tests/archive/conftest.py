"""The engines that the tests of the archive protocol run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backstory.archive.base import Archive
from tests.engines import ENGINES, home_preparer, open_home


@pytest.fixture(scope="class", params=ENGINES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """An archive for a class whose tests only read it."""
    with closing(open_home(home_preparer(request)(tmp_path_factory.mktemp("shared") / "backstory"))) as archive:
        yield archive


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Archive]:
    with closing(open_home(home_preparer(request)(tmp_path / "backstory"))) as archive:
        yield archive

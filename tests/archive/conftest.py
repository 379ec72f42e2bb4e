"""The engines that the tests of the archive protocol run on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backstory.archive import open_engine
from backstory.archive.base import Archive
from backstory.config import ClickHouseSettings
from tests.archive import clickhouse_server
from tests.archive_world import PROJECTION


@pytest.fixture(scope="session")
def clickhouse_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a ClickHouse server that the tests of this process share."""
    if reason := clickhouse_server.missing():
        pytest.skip(reason)
    with clickhouse_server.serving(tmp_path_factory.mktemp("clickhouse")) as url:
        yield url


def _open_local(request: pytest.FixtureRequest, folder: Path) -> Archive:
    return open_engine("local", folder / "backstory", PROJECTION)


def _open_clickhouse(request: pytest.FixtureRequest, folder: Path) -> Archive:
    """A database of its own for each test."""
    url = f"{request.getfixturevalue('clickhouse_url')}/test_{uuid.uuid4().hex}"
    return open_engine("clickhouse", folder / "backstory", PROJECTION, ClickHouseSettings(url=url))


# Another engine is one more line: its name, and a way to open a new archive of it for a test.
ENGINES: dict[str, Callable[[pytest.FixtureRequest, Path], Archive]] = {
    "local": _open_local,
    "clickhouse": _open_clickhouse,
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Archive]:
    archive = ENGINES[request.param](request, tmp_path)
    yield archive
    archive.close()

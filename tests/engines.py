"""The engines that tests run on, chosen by the settings of a home folder."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backstory.archive import open_engine
from backstory.archive.base import Archive
from backstory.config import load_settings
from tests.archive.clickhouse_server import missing

PROJECTION = "backstory.ingest.projection:TurnProjection"
# `make test` leaves out what needs chDB, which is large. Where it is not installed, nothing is collected for it.
ENGINES: list[Any] = ["local"]
if missing() is None:
    ENGINES.append(pytest.param("clickhouse", marks=pytest.mark.clickhouse))

PrepareHome = Callable[[Path], Path]
"""Writes the settings of a home folder, and returns the folder."""


def home_preparer(request: pytest.FixtureRequest) -> PrepareHome:
    """For a fixture with the parameters `ENGINES`. On ClickHouse, every home has a database of its own."""

    def prepare(home: Path) -> Path:
        if request.param == "clickhouse":
            url = f"{request.getfixturevalue('clickhouse_url')}/test_{uuid.uuid4().hex}"
            home.mkdir(parents=True, exist_ok=True)
            settings = f'[archive]\nengine = "clickhouse"\n\n[archive.clickhouse]\nurl = "{url}"\n'
            (home / "config.toml").write_text(settings, "utf-8")
        return home

    return prepare


def open_home(home: Path, projection: str | None = PROJECTION) -> Archive:
    settings = load_settings(home, {}).archive
    return open_engine(settings.engine, home, projection, settings.clickhouse)

"""Sharing with a ClickHouse server without a hub: the machine itself is the intake."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from ..archive import open_engine
from ..archive.base import Archive, ArchiveBusy
from ..config import ClickHouseSettings
from .intake import Intake
from .parcel import Parcel, Receipt
from .sharing import Projects

_ALL = Projects(("*",))


def open_database(home: Path, url: str, projection: str | None) -> Archive:
    """The archive of a team on a ClickHouse server. `home` has what belongs to this connection to it."""
    archive = open_engine("clickhouse", home / "team" / "server", projection, ClickHouseSettings(url=url))
    if archive.sync_state().first_finished_at is None:
        with suppress(ArchiveBusy):  # then another process opens its intake
            Intake(archive, archive.writer()).close()
    return archive


class DirectServer:
    """Writes to a database as a member. It is connected to and locked at the first use, until it is closed."""

    def __init__(self, home: Path, url: str, projection: str | None, user: str) -> None:
        self._home = home
        self._url = url
        self._projection = projection
        self._user = user
        self._archive: Archive | None = None
        self._intake: Intake | None = None

    def identity(self) -> str:
        parts = urlsplit(self._url)
        return f"clickhouse {parts.hostname}:{parts.port or 8123}{parts.path}"

    def push(self, parcel: Parcel) -> Receipt:
        return self._opened().push(parcel, self._user, _ALL)

    def forget(self, keys: list[str]) -> Receipt:
        return self._opened().forget(keys, self._user)

    def _opened(self) -> Intake:
        if self._intake is None:
            self._archive = open_database(self._home, self._url, self._projection)
            self._intake = Intake(self._archive, self._archive.writer())
        return self._intake

    def close(self) -> None:
        if self._intake is not None:
            self._intake.flush()
            self._intake.close()
        if self._archive is not None:
            self._archive.close()
        self._archive = self._intake = None

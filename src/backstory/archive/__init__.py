"""The archive: a small protocol (`base`), and the engines that implement it. `open_engine` is the only way to one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import ClickHouseSettings
    from .base import Archive
    from .changes import Journal


def open_engine(
    name: str, home: Path, projection: str | None = None, clickhouse: ClickHouseSettings | None = None
) -> Archive:
    """Open the archive below `home` with the engine of this name. Raises KeyError for an unknown one.

    `projection` names the `MakeProjection` (`module:object`) that its turns are projected to spans with; without it
    they have no traces. It is a name, so that a search does not import it and a second process can.
    """
    match name:
        case "local":
            from .local.archive import LocalArchive

            return LocalArchive(home, projection)
        case "clickhouse":
            from ..config import ClickHouseSettings
            from .clickhouse.archive import ClickHouseArchive

            settings = clickhouse or ClickHouseSettings()
            return ClickHouseArchive(
                home, settings.url, projection, keep_days=settings.keep_days, cluster=settings.cluster or None
            )
    raise KeyError(name)


def is_made(name: str, home: Path) -> bool:
    """False while there is no archive of this engine: a local one is made when it is opened."""
    return name != "local" or (home / "archive.db").exists()


def open_journal(home: Path) -> Journal:
    """The journal of the local archive below `home`, which exists."""
    from .local.changes import LocalJournal

    return LocalJournal(home)

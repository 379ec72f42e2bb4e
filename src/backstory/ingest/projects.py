"""The projects of sessions: each session gets the identity of the repository that its folder is in.

What the record itself says of the remote comes first, then the folder, as long as it is there, then what the archive
knows of the same folder. A session without any of these belongs to its folder.
"""

from __future__ import annotations

import time
from pathlib import Path, PurePath

from ..archive.base import Batch, Reader, SessionRow, SessionsRequest
from ..repository import find_repository, is_by_remote, remote_identity, root_identity

# For so few folders that are gone the sessions in them are looked up; there may be tens of thousands of others.
_FEW = 8
# A folder without a repository may get one.
_LOOK_AGAIN_SECONDS = 600.0


class Projects:
    """Looks into each folder once, for as long as the archive is written."""

    def __init__(self, known: Reader, home: Path) -> None:
        self._known = known
        self._home = home
        self._identities: dict[str, str | None] = {}
        self._looked_at: dict[str, float] = {}
        self._earlier: dict[str, str] | None = None
        self._gone = 0

    def complete(self, batch: Batch) -> None:
        """Fill in the projects of the sessions in a batch, and what was found out about their folders."""
        for row in batch.sessions:
            if row.cwd and not is_by_remote(row.project):
                row.project = self._identity(row.cwd, row.project, batch)

    def of_folders(self, rows: list[SessionRow]) -> Batch:
        """A batch with what can be found out about the folders of sessions that have no project yet."""
        batch = Batch()
        for row in rows:
            if row.cwd and row.project is None:
                self._identity(row.cwd, None, batch)
        return batch

    def _identity(self, cwd: str, known: str | None, batch: Batch) -> str | None:
        """The identity of a folder. `known` is the one that a session in it has."""
        found, now = self._identities.get(cwd), time.monotonic()
        if is_by_remote(found) or now < self._looked_at.get(cwd, -_LOOK_AGAIN_SECONDS) + _LOOK_AGAIN_SECONDS:
            return found or known
        self._looked_at[cwd] = now
        self._identities[cwd] = found = self._look_at(cwd, known or found)
        if found is not None and found != known:
            batch.projects[cwd] = found
        return found

    def _look_at(self, cwd: str, known: str | None) -> str | None:
        folder = Path(cwd)
        try:
            if not folder.is_dir():
                return known or self._remembered(cwd)
            repository = find_repository(folder, self._home) if folder.is_absolute() else None
            if repository is None:
                return known
            return remote_identity(repository) or known or self._named(root_identity(repository))
        except (OSError, ValueError):  # no access; a path that is none
            return known

    def _remembered(self, cwd: str) -> str | None:
        """The identity of a folder that is gone, as other sessions in it or above it have it."""
        places = (cwd, *map(str, PurePath(cwd).parents))
        self._gone += 1
        earlier = self._projects_in(places) if self._earlier is None and self._gone <= _FEW else self._projects_before()
        return next((name for place in places if (name := self._identities.get(place) or earlier.get(place))), None)

    def _named(self, identity: str | None) -> str | None:
        """An identity by the first commit, with the name that the archive has for the repository already: its folder
        may have been renamed."""
        if identity is None:
            return None
        root = identity[identity.rindex("@") :]
        names = (*self._projects_before().values(), *self._identities.values())
        return next((name for name in names if name and name.endswith(root)), identity)

    def _projects_before(self) -> dict[str, str]:
        if self._earlier is None:
            self._earlier = self._projects_in(None)
        return self._earlier

    def _projects_in(self, cwds: tuple[str, ...] | None) -> dict[str, str]:
        rows = self._known.sessions(SessionsRequest(empty=True, cwds=cwds, placed=True))
        return {row.cwd: row.project for row in rows if row.cwd and row.project}

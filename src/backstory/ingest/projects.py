"""The projects of sessions: each session gets the identity of the repository that its folder is in.

What the record itself says of the remote comes first, then the folder, as long as it is there, then what the archive
knows of the same folder. A session without any of these belongs to its folder.
"""

from __future__ import annotations

import time
from pathlib import Path, PurePath

from ..archive.base import Batch, Reader, SessionRow, SessionsRequest
from .repository import find_repository, is_by_remote, repository_identity

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

    def complete(self, batch: Batch) -> None:
        """Fill in the projects of the sessions in a batch, and what was found out about their folders."""
        for row in batch.sessions:
            if row.cwd and not is_by_remote(row.project):
                row.project = self._identity(row.cwd, batch) or row.project

    def of_folders(self, rows: list[SessionRow]) -> Batch:
        """A batch with what can be found out about the folders of sessions that have no project yet."""
        batch = Batch()
        for row in rows:
            if row.cwd and row.project is None:
                self._identity(row.cwd, batch)
        return batch

    def _identity(self, cwd: str, batch: Batch) -> str | None:
        known = self._identities.get(cwd)
        now = time.monotonic()
        if is_by_remote(known) or now < self._looked_at.get(cwd, -_LOOK_AGAIN_SECONDS) + _LOOK_AGAIN_SECONDS:
            return known
        self._looked_at[cwd] = now
        found = self._look_at(cwd)
        if found is not None and found != known:
            batch.projects[cwd] = found
        self._identities[cwd] = found
        return found

    def _look_at(self, cwd: str) -> str | None:
        folder = Path(cwd)
        try:
            if folder.is_dir():
                repository = find_repository(folder, self._home) if folder.is_absolute() else None
                return self._settled(repository_identity(repository)) if repository else None
        except (OSError, ValueError):  # no access; a NUL character
            return None
        return self._remembered(cwd)

    def _remembered(self, cwd: str) -> str | None:
        """The identity of a folder that is gone, as other sessions in it or above it have it."""
        earlier = self._projects_before()
        places = (cwd, *map(str, PurePath(cwd).parents))
        return next((earlier[place] for place in places if place in earlier), None)

    def _settled(self, identity: str | None) -> str | None:
        """The name that the archive already has for a repository without a remote, whose folder was renamed."""
        if identity is None or is_by_remote(identity):
            return identity
        root = identity[identity.rindex("@") :]
        return next((known for known in self._projects_before().values() if known.endswith(root)), identity)

    def _projects_before(self) -> dict[str, str]:
        if self._earlier is None:
            rows = self._known.sessions(SessionsRequest(empty=True))
            self._earlier = {row.cwd: row.project for row in rows if row.cwd and row.project}
        return {**self._earlier, **{cwd: name for cwd, name in self._identities.items() if name}}

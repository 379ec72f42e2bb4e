"""The repositories that projects were in, by which a project is found again after its folder has moved.

The identities of repositories with a remote are remembered by folder in `checkouts.json` below the home, while the
folders are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from .repository import branch_of, find_repository, remote_identity, worktrees_of

_MOST_NEIGHBOURS = 500


class Checkouts:
    """The checkouts of repositories that were seen."""

    def __init__(self, home: Path) -> None:
        self._path = home / "checkouts.json"

    def note(self, folders: Iterable[str]) -> None:
        """Remember the repositories of folders that are there."""
        known = self._load()
        found = dict(known)
        for folder in folders:
            repository = find_repository(Path(folder)) if Path(folder).is_dir() else None
            if repository is not None and (identity := remote_identity(repository)):
                found[str(repository.tree)] = identity
        if found != known:
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps(found, indent=1), "utf-8")
            part.replace(self._path)

    def find(self, folder: Path, branch: str | None) -> Path | None:
        """The place of a project whose folder is gone: a checkout of the same repository, best on the same branch."""
        known = self._load()
        lost = next((parent for parent in (folder, *folder.parents) if str(parent) in known), None)
        if lost is None:
            return None
        identity = known[str(lost)]
        same = {
            repository.tree: repository
            for place in self._places(lost, [Path(tree) for tree, other in known.items() if other == identity])
            if (repository := find_repository(place)) is not None and remote_identity(repository) == identity
        }
        best = next((one for one in same.values() if branch_of(one) == branch), next(iter(same.values()), None))
        if best is None:
            return None
        inner = best.tree / folder.relative_to(lost)
        return inner if inner.is_dir() else best.tree

    def _places(self, lost: Path, trees: list[Path]) -> Iterator[Path]:
        """Folders where the checkout may be: remembered ones, their worktrees, and those beside any of them."""
        there = [tree for tree in trees if tree.is_dir()]
        yield from there
        for tree in there:
            repository = find_repository(tree)
            if repository is not None:
                yield repository.common.parent
                yield from worktrees_of(repository)
        for folder in dict.fromkeys(tree.parent for tree in (lost, *there)):
            if folder.is_dir():
                neighbours = (path for path in sorted(folder.iterdir()) if (path / ".git").exists())
                yield from islice(neighbours, _MOST_NEIGHBOURS)

    def _load(self) -> dict[str, str]:
        try:
            known = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

"""Git checkouts of projects: which remote a folder belongs to, and where the project is after its folder has moved.

The remotes of folders are remembered in `checkouts.json` below the home while the folders are there. Git's own files
are read directly; it need not be installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

_ORIGIN = re.compile(r'\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)', re.MULTILINE)
_USER = re.compile(r"(?<=://)[^/\s]*@")
_MOST_NEIGHBOURS = 500


class Checkout(NamedTuple):
    root: Path
    remote: str | None
    """The address without user and password."""
    branch: str | None
    common: Path
    """The folder of the repository that all of its worktrees share."""


def checkout_of(folder: Path) -> Checkout | None:
    """The checkout that a folder lies in."""
    root = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)
    if root is None:
        return None
    try:
        git = root / ".git"
        if git.is_file():  # a worktree beside the repository
            git = (root / git.read_text("utf-8").removeprefix("gitdir:").strip()).resolve()
        shared = git / "commondir"
        common = (git / shared.read_text("utf-8").strip()).resolve() if shared.is_file() else git
        head = (git / "HEAD").read_text("utf-8").strip()
        origin = _ORIGIN.search((common / "config").read_text("utf-8", "replace"))
    except (OSError, ValueError):
        return None
    branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else None
    return Checkout(root, _address(origin[1]) if origin else None, branch, common)


def _address(url: str) -> str:
    """The address of a remote without user, password and query."""
    return _USER.sub("", url).partition("?")[0]


class Checkouts:
    """The checkouts that projects were in."""

    def __init__(self, home: Path) -> None:
        self._path = home / "checkouts.json"

    def note(self, folders: Iterable[str]) -> None:
        """Remember the remotes of folders that are there."""
        known = self._load()
        found = dict(known)
        for folder in folders:
            checkout = checkout_of(Path(folder)) if Path(folder).is_dir() else None
            if checkout is not None and checkout.remote:
                found[str(checkout.root)] = checkout.remote
        if found != known:
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps(found, indent=1), "utf-8")
            part.replace(self._path)

    def find(self, folder: Path, branch: str | None) -> Path | None:
        """The place of a project whose folder is gone: a checkout of the same remote, best on the same branch."""
        known = self._load()
        lost = next((parent for parent in (folder, *folder.parents) if str(parent) in known), None)
        if lost is None:
            return None
        remote = known[str(lost)]
        same = {
            checkout.root: checkout
            for place in self._places(lost, [Path(root) for root, other in known.items() if other == remote])
            if (checkout := checkout_of(place)) is not None and checkout.remote == remote
        }
        best = next((one for one in same.values() if one.branch == branch), next(iter(same.values()), None))
        if best is None:
            return None
        inner = best.root / folder.relative_to(lost)
        return inner if inner.is_dir() else best.root

    def _places(self, lost: Path, roots: list[Path]) -> Iterator[Path]:
        """Where the checkout may be: remembered ones of the remote, their worktrees, and folders beside any of them."""
        there = [root for root in roots if root.is_dir()]
        yield from there
        for root in there:
            checkout = checkout_of(root)
            if checkout is not None:
                yield checkout.common.parent
                yield from _worktrees(checkout.common)
        for folder in dict.fromkeys(root.parent for root in (lost, *there)):
            if folder.is_dir():
                neighbours = (path for path in sorted(folder.iterdir()) if (path / ".git").exists())
                yield from islice(neighbours, _MOST_NEIGHBOURS)

    def _load(self) -> dict[str, str]:
        try:
            known = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def _worktrees(common: Path) -> Iterator[Path]:
    for link in sorted(common.glob("worktrees/*/gitdir")):
        try:
            worktree = Path(link.read_text("utf-8").strip()).parent
        except (OSError, ValueError):
            continue
        if worktree.is_dir():
            yield worktree

"""Git repositories, read from the files in `.git`: the identity of one, its branch and its worktrees.

The identity is the same for all clones and worktrees, wherever they are. It is the address of the remote without
protocol, user and password (`github.com/acme/demo`), or for a repository without one the name of its folder and its
first commit (`demo@1f3a...`). Git itself runs only for the first commit, without a network, hooks or helpers, and not
for long.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from .sources.fields import remote_address

_MOST_BYTES = 256 << 10
_GIT_SECONDS = 2.0
_ROOT_CHARS = 12
# Clones of clones by path: remotes that are folders are followed so far.
_MOST_CLONES = 4
_MOST_NEIGHBOURS = 500
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_SAFE_GIT = ("git", "-c", "protocol.allow=never", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")


class Repository(NamedTuple):
    tree: Path
    """The folder of the working tree; of a bare repository, its own."""
    git: Path
    """The folder with the state of the working tree."""
    common: Path
    """The folder with the configuration, which worktrees share."""


def is_by_remote(identity: str | None) -> bool:
    """True for an identity that is the address of a remote, which no better one will replace."""
    return identity is not None and "@" not in identity


def find_repository(folder: Path, home: Path | None = None) -> Repository | None:
    """The repository that a folder is in. One whose working tree is the home of the user does not have the folders
    below it: it keeps configuration files."""
    for tree in (folder, *folder.parents):
        if tree == home and folder != home:
            return None
        if (repository := _at(tree)) is not None:
            return repository
    return None


def remote_identity(repository: Repository, *, clones: int = _MOST_CLONES) -> str | None:
    """The identity of a repository by its remote, or by that of the clone on this machine that it was cloned from."""
    for url in _remotes(repository.common / "config"):
        if (identity := remote_address(url)) is not None:
            return identity
        origin = _local_origin(repository, url)
        if origin is not None and clones:
            return remote_identity(origin, clones=clones - 1)
    return None


def root_identity(repository: Repository) -> str | None:
    """The identity of a repository by its name and first commit."""
    root = _root_commit(repository.common)
    return f"{_name(repository.common)}@{root[:_ROOT_CHARS]}" if root else None


def branch_of(repository: Repository) -> str | None:
    """The branch that is checked out, if one is."""
    head = (_read(repository.git / "HEAD") or "").strip()
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else None


def worktrees_of(repository: Repository) -> Iterator[Path]:
    """The folders of the working trees beside the main one that are there."""
    for link in sorted(repository.common.glob("worktrees/*/gitdir")):
        if pointer := _read(link):
            worktree = Path(pointer.strip()).parent
            if worktree.is_dir():
                yield worktree


class Checkouts:
    """The checkouts that projects were in, by which a project is found again after its folder has moved.

    The identities of repositories are remembered by folder in `checkouts.json` below the home, while the folders are
    there: by their remote, or by their first commit alone (`@1f3a...`), because the name goes with the folder.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / "checkouts.json"

    def note(self, folders: Iterable[str]) -> None:
        """Remember the repositories of folders that are there."""
        known = self._load()
        found = dict(known)
        for folder in folders:
            repository = find_repository(Path(folder)) if Path(folder).is_dir() else None
            if repository is None:
                continue
            tree = str(repository.tree)
            if identity := _lasting_identity(repository, known.get(tree)):
                found[tree] = identity
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
            if (repository := find_repository(place)) is not None and _lasting_identity(repository) == identity
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


def _lasting_identity(repository: Repository, before: str | None = None) -> str | None:
    """The identity that a repository keeps when it is moved. `before` is the one that it had."""
    by_remote = remote_identity(repository)
    if by_remote is not None or (before is not None and not is_by_remote(before)):
        return by_remote or before
    by_root = root_identity(repository)
    return by_root[by_root.rindex("@") :] if by_root else None


def _at(tree: Path) -> Repository | None:
    """The repository of a working tree. Its `.git` is a file in worktrees and submodules."""
    git = tree / ".git"
    if git.is_dir():
        return Repository(tree, git, git) if (git / "HEAD").exists() else None
    pointer = _read(git)
    if pointer is None or not pointer.startswith("gitdir:"):
        return None
    git = Path(os.path.normpath(tree / pointer.removeprefix("gitdir:").strip()))
    shared = _read(git / "commondir")
    common = Path(os.path.normpath(git / shared.strip() if shared else git))
    return Repository(tree, git, common) if (common / "HEAD").exists() else None


def _remotes(config: Path) -> Iterator[str]:
    """The URLs of the remotes, `origin` first."""
    parser = ConfigParser(strict=False, interpolation=None, allow_no_value=True, delimiters=("=",))
    try:
        parser.read_string(re.sub(r"^[ \t]+", "", _read(config) or "", flags=re.MULTILINE))
    except ConfigParserError:
        return
    remotes = [section for section in parser.sections() if section.startswith('remote "')]
    for remote in sorted(remotes, key=lambda section: (section != 'remote "origin"', section)):
        if url := parser.get(remote, "url", fallback=None):
            yield url.strip().strip('"')


def _local_origin(repository: Repository, url: str) -> Repository | None:
    """The repository on this machine that a remote names by its folder."""
    path = Path(url.removeprefix("file://"))
    folder = path if path.is_absolute() else repository.tree / path
    if not folder.name or ":" in url.partition("/")[0]:
        return None
    for place in (folder, folder.with_name(f"{folder.name}.git")):
        if (place / "HEAD").is_file() and (place / "objects").is_dir():  # bare
            return Repository(place, place, place)
    return _at(folder)


def _root_commit(common: Path) -> str | None:
    if (common / "shallow").exists():
        return None
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.environ.get("HOME", "/"),
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
    command = [*_SAFE_GIT, f"--git-dir={common}", "rev-list", "--max-parents=0", "HEAD"]
    try:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    commits = done.stdout.decode("ascii", "replace").split()
    return commits[-1] if commits and _COMMIT.fullmatch(commits[-1]) else None


def _name(common: Path) -> str:
    """The name of a repository, by the folder that it is in."""
    folder = common.parent if common.name == ".git" else common
    return re.sub(r"[^\w.-]", "-", folder.name.removesuffix(".git")) or "repository"


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # a NUL character in the path
        return None

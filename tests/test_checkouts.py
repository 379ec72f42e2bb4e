"""Git checkouts: a project is found again after its folder has moved."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from backstory.repository import Checkouts, branch_of, find_repository, remote_identity, worktrees_of

REMOTE = "https://ada:s@cret@example.com/acme/shop.git"
IDENTITY = "example.com/acme/shop"


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Dev", "-c", "user.email=dev@example.com", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "shop"
    (folder / "src").mkdir(parents=True)
    git(folder, "init")
    git(folder, "remote", "add", "origin", REMOTE)
    git(folder, "commit", "--allow-empty", "-m", "first")
    return folder


class TestRepository:
    """Working tree, identity, branch and worktrees of a repository are read from the files in `.git`."""

    def test_a_folder_in_a_repository(self, repository: Path) -> None:
        found = find_repository(repository / "src")
        assert found is not None
        assert (found.tree, remote_identity(found), branch_of(found)) == (repository, IDENTITY, "main")

    def test_a_worktree(self, repository: Path, tmp_path: Path) -> None:
        """It has the remote of its repository and a branch of its own."""
        git(repository, "worktree", "add", "-b", "fix", str(tmp_path / "fix"))
        found = find_repository(tmp_path / "fix")
        assert found is not None
        assert (remote_identity(found), branch_of(found), found.common) == (IDENTITY, "fix", repository / ".git")
        assert list(worktrees_of(found)) == [tmp_path / "fix"]

    def test_no_branch(self, repository: Path) -> None:
        git(repository, "checkout", "--detach")
        found = find_repository(repository)
        assert found is not None
        assert branch_of(found) is None

    @pytest.mark.parametrize("content", [None, "gitdir: /nowhere", "\x00"])
    def test_no_repository(self, tmp_path: Path, content: str | None) -> None:
        """None, also for what is broken."""
        if content is not None:
            (tmp_path / ".git").write_text(content)
        assert find_repository(tmp_path) is None


class TestCheckouts:
    def test_a_repository_that_was_renamed(self, repository: Path, tmp_path: Path) -> None:
        """The folder within it is found, too."""
        checkouts = Checkouts(tmp_path)
        checkouts.note([str(repository / "src")])
        repository.rename(repository.with_name("store"))

        found = Checkouts(tmp_path).find(repository / "src", "main")

        assert found == repository.with_name("store") / "src"

    def test_a_repository_without_a_remote(self, repository: Path, tmp_path: Path) -> None:
        """By its first commit; another one without a remote beside it is not taken for it."""
        git(repository, "remote", "remove", "origin")
        other = repository.with_name("other")
        other.mkdir()
        git(other, "init")
        git(other, "commit", "--allow-empty", "-m", "another first")
        checkouts = Checkouts(tmp_path)
        for _ in range(2):
            checkouts.note([str(repository / "src")])
        repository.rename(repository.with_name("store"))

        assert checkouts.find(repository / "src", "main") == repository.with_name("store") / "src"

    def test_another_clone(self, repository: Path, tmp_path: Path) -> None:
        """One by another protocol is a checkout of the same repository."""
        checkouts = Checkouts(tmp_path)
        checkouts.note([str(repository)])
        repository.rename(tmp_path / "gone")
        clone = tmp_path / "work" / "clone"
        clone.mkdir()
        git(clone, "init")
        git(clone, "remote", "add", "origin", "git@example.com:acme/shop.git")

        assert checkouts.find(repository, "main") == clone

    def test_a_worktree_that_was_moved(self, repository: Path, tmp_path: Path) -> None:
        """By its branch, wherever it is."""
        git(repository, "worktree", "add", "-b", "fix", str(tmp_path / "fix"))
        checkouts = Checkouts(tmp_path)
        checkouts.note([str(repository), str(tmp_path / "fix")])
        (tmp_path / "elsewhere").mkdir()
        git(repository, "worktree", "move", str(tmp_path / "fix"), str(tmp_path / "elsewhere" / "fix"))

        assert checkouts.find(tmp_path / "fix", "fix") == tmp_path / "elsewhere" / "fix"

    def test_a_worktree_that_was_removed(self, repository: Path, tmp_path: Path) -> None:
        """The repository itself."""
        git(repository, "worktree", "add", "-b", "fix", str(tmp_path / "fix"))
        checkouts = Checkouts(tmp_path)
        checkouts.note([str(repository), str(tmp_path / "fix")])
        git(repository, "worktree", "remove", str(tmp_path / "fix"))

        assert checkouts.find(tmp_path / "fix", "fix") == repository

    def test_another_project(self, repository: Path, tmp_path: Path) -> None:
        """A folder that was never seen, or a neighbour of another remote, is not taken for it."""
        other = tmp_path / "work" / "other"
        other.mkdir()
        git(other, "init")
        git(other, "remote", "add", "origin", "https://example.com/acme/other.git")
        checkouts = Checkouts(tmp_path)
        checkouts.note([str(repository)])
        repository.rename(tmp_path / "gone")

        assert checkouts.find(tmp_path / "unknown", "main") is None
        assert checkouts.find(repository, "main") is None

"""Sessions of one repository belong together, wherever its clones are and whichever agent worked there."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from backstory.archive.base import SearchRequest, SessionsRequest
from backstory.archive.spans import Window
from backstory.library import Library
from backstory.model import DEFAULT_TYPES
from backstory.repository import find_repository, remote_identity
from backstory.sources.fields import remote_address
from backstory.toolsets.traces.reports import folders_of, usage_report
from tests.sources.codex_rollout import SESSION, Rollout
from tests.transcripts import Transcript

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

REMOTE = "https://example.com/acme/demo.git"
IDENTITY = "example.com/acme/demo"


def git(folder: Path, *arguments: str) -> None:
    who = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.com"}
    who |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in who.items()}
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **who}
    subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **settings}, check=True, capture_output=True)


def repository(folder: Path, remote: str | None = REMOTE) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    if remote:
        git(folder, "remote", "add", "origin", remote)
    git(folder, "commit", "--quiet", "--allow-empty", "-m", f"first commit in {folder.name}")
    return folder


class World:
    """A home with agents, and folders that they worked in."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.code = folder / "code"
        self.code.mkdir()
        self.library = Library(folder / "backstory", agents_home=self.home, environ={})

    def claude(self, name: str, cwd: Path) -> None:
        Transcript(name, str(cwd)).prompt(f"Count the words of {name}").answer("Done.").write(self.home)

    def codex(self, cwd: Path, **git: str) -> None:
        write = Rollout()
        records = [
            write.meta(cwd=str(cwd), git=git),
            write.context(cwd=str(cwd)),
            write.user_item("Count the words"),
            write.answer_item("Done."),
        ]
        path = self.home / f".codex/sessions/2026/06/18/rollout-2026-06-18T09-00-00-{SESSION}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(record) + "\n" for record in records))

    def projects(self) -> set[str | None]:
        assert self.library.sync().errors == 0
        return {row.project for row in self.library.archive.sessions(SessionsRequest())}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class TestIdentity:
    """The sessions of a repository have one project."""

    def test_two_clones_in_different_folders(self, world: World) -> None:
        world.claude("one", repository(world.code / "one"))
        world.claude("two", repository(world.code / "elsewhere/two", "git@example.com:Acme/demo.git"))
        assert world.projects() == {IDENTITY}

    def test_a_clone_of_a_clone(self, world: World) -> None:
        origin = repository(world.code / "one")
        git(world.code, "clone", "--quiet", str(origin), "copy")
        world.claude("copy", world.code / "copy")
        assert world.projects() == {IDENTITY}

    def test_a_worktree_and_a_folder_inside(self, world: World) -> None:
        main = repository(world.code / "main")
        git(main, "worktree", "add", "--quiet", "../feature")
        inside = world.code / "feature/src"
        inside.mkdir()
        world.claude("main", main)
        world.claude("feature", inside)
        assert world.projects() == {IDENTITY}

    def test_a_renamed_folder_by_its_first_commit(self, world: World) -> None:
        before = repository(world.code / "before", remote=None)
        world.claude("before", before)
        (earlier,) = world.projects()
        world.claude("after", before.rename(world.code / "after"))
        assert world.projects() == {earlier}
        assert earlier is not None
        assert earlier.startswith("before@")

    def test_a_remote_that_is_added_later(self, world: World) -> None:
        folder = repository(world.code / "demo", remote=None)
        world.claude("first", folder)
        assert world.projects() != {IDENTITY}
        git(folder, "remote", "add", "origin", REMOTE)
        world.claude("second", folder)
        assert world.projects() == {IDENTITY}

    def test_two_agents_in_one_repository(self, world: World) -> None:
        folder = repository(world.code / "demo")
        world.claude("one", folder)
        world.codex(folder)
        assert world.projects() == {IDENTITY}

    def test_the_record_of_an_agent_on_another_machine(self, world: World) -> None:
        world.claude("here", repository(world.code / "demo"))
        world.codex(world.code / "not/here", repository_url="ssh://git@example.com:22/acme/demo")
        assert world.projects() == {IDENTITY}

    def test_a_deleted_folder_keeps_its_project(self, world: World) -> None:
        folder = repository(world.code / "demo")
        world.claude("before", folder)
        assert world.projects() == {IDENTITY}
        shutil.rmtree(folder)
        world.claude("found later", folder)
        world.claude("found inside", folder / "src")
        assert world.projects() == {IDENTITY}
        for number in range(12):  # more than are looked up one by one
            world.claude(f"found inside {number}", folder / f"src{number}")
        assert world.projects() == {IDENTITY}

    def test_without_git_a_session_belongs_to_its_folder(self, world: World) -> None:
        (world.code / "plain").mkdir()
        world.claude("plain", world.code / "plain")
        world.claude("gone", world.code / "gone")
        assert world.projects() == {None}

    def test_sessions_that_were_read_before_there_were_projects(self, world: World) -> None:
        world.claude("old", repository(world.code / "demo"))
        world.library.sync()
        with closing(sqlite3.connect(world.library.home / "archive.db")) as db, db:
            db.execute("UPDATE session SET project = NULL")
            db.execute("UPDATE meta SET value = json_remove(value, '$.has_projects') WHERE name = 'sync'")
        assert world.projects() == {IDENTITY}


class TestRemotes:
    """The address of a remote has nothing of a URL but host and path."""

    @pytest.mark.parametrize(
        "url",
        [
            "https://example.com/acme/demo",
            "https://ada:hunter2@example.com/Acme/Demo.git/",
            "https://x-access-token:ghp_0123456789abcdef@example.com:8443/acme/demo.git?token=abc#secret",
            "git@example.com:acme/demo.git",
            "example.com:acme/demo",
            "ssh://git:pass%40word@example.com:2222/acme/demo.git",
            "git+ssh://git@example.com/acme/demo",
        ],
    )
    def test_every_form_is_the_same(self, url: str) -> None:
        assert remote_address(url) == IDENTITY

    @pytest.mark.parametrize(
        "url",
        [
            *("", None, 7, "/srv/git/demo.git", "../demo", "C:\\code\\demo", "file:///srv/demo", "https://"),
            *("https://host", "https://[::1/acme/demo", "https://example.com/a b", "https://example.com/\x1b[31m/x"),
            "https://example.com/" + "x" * 400,
            *("https://example.com/..git", "https://example.com/.", "git@example.com:acme/../demo"),
        ],
    )
    def test_folders_and_garbage_are_none(self, url: object) -> None:
        assert remote_address(url) is None

    def test_credentials_are_nowhere_in_the_archive(self, world: World) -> None:
        secret = "ghp_0123456789abcdef0123456789abcdef0123"
        world.claude("one", repository(world.code / "demo", f"https://ada:{secret}@example.com/acme/demo.git"))
        world.codex(world.code / "demo", repository_url=f"https://{secret}@example.com/acme/demo.git")
        assert world.projects() == {IDENTITY}
        stored = [path.read_bytes() for path in world.library.home.rglob("*") if path.is_file()]
        assert not any(secret.encode() in content for content in stored)


class TestRepository:
    """Files in `.git` are read as data."""

    def test_a_broken_configuration(self, tmp_path: Path) -> None:
        folder = repository(tmp_path / "demo", remote=None)
        (folder / ".git/config").write_bytes(b'[remote "origin"\nurl\0= = \xff[')
        found = find_repository(folder, tmp_path)
        assert found is not None
        assert remote_identity(found) is None

    @pytest.mark.parametrize("content", [b"", b"gitdir: ", b"gitdir: /nowhere", b"\xff\xfe" * 100, b"gitdir: ."])
    def test_a_broken_git_file(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree/.git").write_bytes(content)
        assert find_repository(tmp_path / "tree", tmp_path) is None

    def test_two_clones_that_name_each_other(self, tmp_path: Path) -> None:
        one = repository(tmp_path / "one", str(tmp_path / "two"))
        repository(tmp_path / "two", str(one))
        found = find_repository(one, tmp_path)
        assert found is not None
        assert remote_identity(found) is None

    def test_configuration_files_in_the_home_are_no_project_of_the_folders_below(self, tmp_path: Path) -> None:
        home = repository(tmp_path / "home")
        (home / "work").mkdir()
        assert find_repository(home / "work", home) is None
        assert find_repository(home, home) is not None

    @pytest.mark.parametrize("url", ["/", "", "..", "nul\0character", "/proc/self/mem", "file:///", "\\\\host\\share"])
    def test_hostile_remotes_do_not_stop_a_sync(self, world: World, url: str) -> None:
        folder = repository(world.code / "demo", remote=None)
        with (folder / ".git/config").open("a") as config:
            config.write(f'[remote "origin"]\n\turl = {url}\n')
        world.claude("one", folder)
        (project,) = world.projects()
        # Git itself does not read the file with some of them.
        assert project is None or project.startswith("demo@")


class TestFilters:
    """A project is found by a part of its path or of its repository, and usage is added up by it."""

    @pytest.fixture
    def read(self, world: World) -> World:
        world.claude("one", repository(world.code / "one"))
        feature = world.code / "two/src"
        repository(world.code / "two")
        feature.mkdir()
        world.claude("two", feature)
        world.claude("three", world.code / "plain")
        world.library.sync()
        return world

    def test_sessions_and_search(self, read: World) -> None:
        """In any case, by a part of the path or of the remote."""
        archive = read.library.archive
        parts = {"ACME/demo": 2, "example.com": 2, "code/one": 1, "code/PLAIN": 1, "/code/": 3, "code/none": 0}
        for part, count in parts.items():
            assert len(archive.sessions(SessionsRequest(project=part))) == count, part
            found = archive.search(SearchRequest(query="count words", types=DEFAULT_TYPES, project=part))
            assert len({hit.session.key for hit in found.hits}) == count, part

    def test_usage(self, read: World) -> None:
        archive = read.library.archive
        report = usage_report(archive.spans, Window(), "project", archive.session)
        assert {line.name: line.calls for line in report.lines} == {IDENTITY: 2, str(read.code / "plain"): 1}

    def test_usage_of_a_repository(self, read: World) -> None:
        archive = read.library.archive
        window = Window(project="acme", folders=folders_of(archive, "acme"))
        assert usage_report(archive.spans, window, "project", archive.session).total.calls == 2

    def test_another_clone_is_preferred_like_the_own_folder(self, read: World) -> None:
        request = SearchRequest(query="count words", types=DEFAULT_TYPES, here=str(read.code / "one"), limit=10)
        hits = read.library.archive.search(request).hits
        assert {hit.session.cwd for hit in hits[:2]} == {str(read.code / "one"), str(read.code / "two/src")}

"""`backstory resume`: the command that continues a session, its folder, and handoffs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backstory.library import Library
from backstory.model import event_id, session_id
from tests.transcripts import Transcript

from .conftest import Program, Result


class Shop:
    """A project with a session of Claude Code, that was read."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "shop"
        self.folder.mkdir()
        for command in ("init -b main", "remote add origin https://example.com/acme/shop.git"):
            subprocess.run(["git", *command.split()], cwd=self.folder, check=True, capture_output=True)
        now = time.time_ns() // 1_000_000
        self.session = Transcript("resume", str(self.folder), start_ms=now - 3_600_000)
        self.session.prompt("Make the checkout total stable")
        self.session.call("Edit", {"file_path": "src/cart.py", "new_string": "x"}, "ok")
        self.session.answer("Decision: we snapshot the rates instead of locking.\nDone.")
        self.session.prompt("Now the docs, with ghp_" + "a1B2" * 9).answer("The docs are half done.")
        self.session.write(home)
        with Library(home / ".backstory", agents_home=home, environ={}) as library:
            library.sync()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Shop(tmp_path)
    monkeypatch.chdir(made.folder)
    return made


class TestChoose:
    def test_by(self, shop: Shop, backstory: Program) -> None:
        """Words, an id, a short one, that of a turn, or the folder."""
        full, short = session_id(f"claude-code/{shop.session.id}"), shop.session.id[:8]
        for words in (["checkout", "total"], [full], [short], [f"{short}:2"], []):
            done = backstory("resume", "--print", *words)

            assert (done.code, done.out) == (0, f"cd {shop.folder} && claude --resume {shop.session.id}\n"), words

    def test_by_an_event(self, shop: Shop, backstory: Program) -> None:
        """As search shows it. An id is never searched for as words, which find any session."""
        hit = backstory("search", "checkout", "--json").json["data"]["results"][0]["event"]["id"]

        assert backstory("resume", "--print", hit).out.endswith(f"claude --resume {shop.session.id}\n")
        other = event_id(bytes(16))
        done = backstory("resume", "--print", other)
        assert (done.code, done.out, other in done.err) == (1, "", True)

    def test_nothing_fits(self, shop: Shop, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """An error that says what to do."""
        monkeypatch.chdir("/")

        assert backstory("resume", "--print", "platypus").code == 1
        assert backstory("resume", "--print", "--in", "nonsense", "checkout").code == 2

    def test_json(self, shop: Shop, backstory: Program) -> None:
        """The parts of the command."""
        done = backstory("resume", "checkout", "--json")

        assert done.json["command"] == ["claude", "--resume", shop.session.id]
        assert done.json["folder"] == str(shop.folder)


class TestMoved:
    def test_the_folder_is_found(self, shop: Shop, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """By the git remote."""
        monkeypatch.chdir("/")
        shop.folder.rename(shop.home / "store")

        done = backstory("resume", "--print", shop.session.id[:8])

        assert done.out == f"cd {shop.home / 'store'} && claude --resume {shop.session.id}\n"


class TestStart:
    def run(self, shop: Shop, *arguments: str) -> Result:
        """Resume with a stand-in for the agent that prints its folder and arguments."""
        programs = shop.home / "bin"
        programs.mkdir(exist_ok=True)
        for name in ("claude", "codex"):
            (programs / name).write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n')
            (programs / name).chmod(0o755)
        environ = {"HOME": str(shop.home), "PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run(
            [sys.executable, "-m", "backstory", "resume", *arguments],
            capture_output=True,
            text=True,
            env=environ,
            cwd=shop.home,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def test_in_its_folder(self, shop: Shop) -> None:
        """The agent takes the place of this program."""
        done = self.run(shop, shop.session.id)

        assert done.out.splitlines() == [str(shop.folder), "--resume", shop.session.id]

    def test_a_purged_session(self, shop: Shop) -> None:
        """It is restored first, also to the folder of a project that has moved."""
        path = shop.session.path(shop.home)
        path.unlink()
        shop.folder.rename(shop.home / "store")

        assert self.run(shop, shop.session.id).code == 0
        moved = path.parent.with_name(path.parent.name.removesuffix("shop") + "store") / path.name
        assert moved.read_text() == shop.session.text()

    def test_in_another_agent(self, shop: Shop) -> None:
        """With a handoff: task, latest prompt, decisions, files and last state, and no secret."""
        done = self.run(shop, shop.session.id, "--in", "codex")

        assert done.out.startswith(f"{shop.folder}\nContinue the work of an earlier session of claude-code")
        for part in (
            "## Task\nMake the checkout total stable",
            "## Latest prompt\nNow the docs",
            "## Decisions\n- Decision: we snapshot the rates instead of locking.",
            "## Files\n- src/cart.py",
            "## Last state",
            "The docs are half done.",
            session_id(f"claude-code/{shop.session.id}"),
        ):
            assert part in done.out
        assert "ghp_" not in done.out

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backstory.faces.cli.app import run
from backstory.library import Library
from tests.transcripts import Transcript

HOUR_MS = 3_600_000


class World(NamedTuple):
    """A home with transcripts of an agent, all of them read."""

    home: Path
    backstory: Path
    login: Transcript
    cache: Transcript
    old: Transcript


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Program = Callable[..., Result]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("agents")
    now = int(time.time() * 1000)
    login = Transcript("login", start_ms=now - HOUR_MS * 5 // 2)
    login.prompt("The login test is flaky, find out why")
    login.call("Bash", {"command": "pytest tests/test_login.py"}, "FAILED test_login: token expired")
    login.answer("The clock of the token was an hour behind. Fixed in src/auth/token.py.")
    login.prompt("And the docs?").answer("The docs mention the clock now.")
    cache = Transcript("cache", "/home/dev/engine", start_ms=now - 49 * HOUR_MS)
    cache.prompt("Make the cache\nfaster").call("WebSearch", {"query": "lru cache"}, "many results").answer("Done.")
    old = Transcript("old", start_ms=now - 400 * 24 * HOUR_MS).prompt("An old question").answer("An old answer.")
    for transcript in (login, cache, old):
        transcript.write(home)
    backstory = home / ".backstory"
    with Library(backstory, agents_home=home, environ={}) as library:
        library.sync()
    return World(home, backstory, login, cache, old)


@pytest.fixture
def world(made: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("HOME", str(made.home))
    return made


@pytest.fixture
def backstory(capsys: pytest.CaptureFixture[str]) -> Program:
    """The program, called as from a pipe; gives exit code, stdout and stderr."""

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        code = run(arguments)
        return Result(code, *capsys.readouterr())

    return call

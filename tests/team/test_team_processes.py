"""Two laptops and a hub as processes, cut and killed at random: nothing is lost, nothing doubled, nothing leaks."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from backstory.archive import open_engine
from backstory.archive.base import Archive
from backstory.config import ClickHouseSettings
from backstory.team.access import Tokens
from tests.archive import clickhouse_server
from tests.archive_world import PROJECTION
from tests.e2e.served import PROGRAM, environment, run
from tests.team_world import SECRET, Laptop, only, project, stored
from tests.transcripts import Transcript

SHARED, PRIVATE = "/home/dev/shop", "/home/dev/diary"
_PATIENCE = 120.0


class Proxy:
    """The network between laptops and a hub. `cut` breaks every connection at once."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                self._open |= {client, server}
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open -= {source, sink}

    def cut(self) -> None:
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Program:
    """A command that runs until it is killed, and is started again."""

    def __init__(self, home: Path, *arguments: str, **more: str) -> None:
        self._home = home
        self._arguments = arguments
        self._more = more
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._home / "stderr").open("ab") as errors:
            self.process = subprocess.Popen(
                [*PROGRAM, *self._arguments],
                env=environment(self._home, **self._more),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def wait_for_line(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], _PATIENCE)
        assert ready, (self._home / "stderr").read_text()
        assert self.process.stdout.readline(), (self._home / "stderr").read_text()

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.process is not None:
            assert self.process.stdout is not None
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)
            self.process.wait(_PATIENCE)
            self.process.stdout.close()
            self.process = None


class World:
    """A hub, two laptops that keep their archives live and share them, and the network between."""

    def __init__(self, folder: Path, chance: random.Random, **engine: str) -> None:
        self.chance = chance
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        home = folder / "hub"
        (home / ".backstory").mkdir(parents=True)
        self.hub = Program(home, "serve", "--hub", "--port", str(port), **engine)
        self.network = Proxy(port)
        with closing(Tokens(home / ".backstory")) as tokens:
            settings: dict[str, Any] = {"url": f"http://127.0.0.1:{self.network.port}", "projects": [SHARED]}
            self.laptops = [
                Laptop(folder, name, token=tokens.create(name, ("read", "write"), ("*",))[1], **settings)
                for name in ("alice", "bob")
            ]
        self.watches = [Program(laptop.home, "watch") for laptop in self.laptops]
        self.talks = [
            [project(f"{laptop.name} {number}", SHARED if number % 3 else PRIVATE) for number in range(5)]
            for laptop in self.laptops
        ]

    @contextmanager
    def running(self) -> Iterator[None]:
        programs = [self.hub, *self.watches]
        try:
            for program in programs:
                program.start()
            self.hub.wait_for_line()
            yield
        finally:
            for program in programs:
                program.kill()
            self.network.close()

    def round(self, number: int) -> None:
        """Some work on the laptops, and one accident."""
        chance = self.chance
        for laptop, talks in zip(self.laptops, self.talks, strict=True):
            for talk in chance.sample(talks, 2):
                self._work(talk, number)
                _append(talk, laptop.home)
        time.sleep(chance.uniform(0.0, 0.6))
        accident = chance.choice((self.network.cut, self._kill_hub, self._kill_laptop, self._kill_laptop))
        accident()

    def _work(self, talk: Transcript, number: int) -> None:
        talk.prompt(f"question {number} in {talk.cwd} with {SECRET}")
        for step in range(self.chance.randrange(4)):
            talk.call("Bash", {"command": f"step {step}"}, f"output {number}")
        talk.answer(f"answer {number}")

    def _kill_hub(self) -> None:
        self.hub.kill()
        time.sleep(self.chance.uniform(0.0, 0.3))
        self.hub.start()
        self.hub.wait_for_line()

    def _kill_laptop(self) -> None:
        watch = self.chance.choice(self.watches)
        watch.kill()
        watch.start()

    def settle(self) -> None:
        """After the accidents, every laptop sends what is left."""
        for watch in self.watches:
            watch.kill()
        for laptop in self.laptops:
            pushed = run(laptop.home, "team", "push", "--json")
            assert pushed.returncode == 0, pushed.stderr
            status = run(laptop.home, "team", "status", "--json")
            assert '"state":"changed"' not in status.stdout
            assert '"state":"waiting"' not in status.stdout
        self.hub.kill(signal.SIGTERM)


def _append(talk: Transcript, home: Path) -> None:
    """Write the records that are new, as an agent does."""
    path = talk.path(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = len(path.read_text("utf-8").splitlines()) if path.exists() else 0
    with path.open("a", encoding="utf-8") as file:
        file.write(talk.text(written))


def check(archive: Archive, laptops: list[Laptop]) -> None:
    """The team has exactly what is shared: each session once, as on its laptop, with secrets redacted."""
    server = stored(archive)
    expected: set[str] = set()
    for laptop in laptops:
        with laptop.library() as library:
            own = stored(library.archive)
        keys = {key for key, row in own.sessions.items() if row.cwd == SHARED}
        expected |= keys
        theirs, mine = only(server, keys), only(own, keys)
        assert theirs.turns == mine.turns
        assert theirs.exchanges == mine.exchanges
        assert [event.uid for event in theirs.events] == [event.uid for event in mine.events]
        for event, original in zip(theirs.events, mine.events, strict=True):
            assert (event.turn, event.ordinal, event.type) == (original.turn, original.ordinal, original.type)
            assert event.text.replace("[redacted:github-token]", SECRET) == original.text
    assert set(server.sessions) == expected
    assert SECRET not in str(server)
    assert PRIVATE not in str(server)


def accidents(folder: Path, rounds: int, seed: int, **engine: str) -> World:
    world = World(folder, random.Random(seed), **engine)
    with world.running():
        for number in range(rounds):
            world.round(number)
        world.settle()
    return world


@contextmanager
def database(folder: Path) -> Iterator[str]:
    if reason := clickhouse_server.missing():
        pytest.skip(reason)
    with clickhouse_server.serving(folder) as url:
        yield f"{url}/team_{uuid.uuid4().hex}"


def on_clickhouse(folder: Path, rounds: int, seed: int) -> None:
    (folder / "clickhouse").mkdir()
    with database(folder / "clickhouse") as url:
        engine = {"BACKSTORY_ARCHIVE_ENGINE": "clickhouse", "BACKSTORY_ARCHIVE_CLICKHOUSE_URL": url}
        world = accidents(folder, rounds, seed, **engine)
        with closing(open_engine("clickhouse", folder / "reader", None, ClickHouseSettings(url=url))) as archive:
            check(archive, world.laptops)


@pytest.mark.slow
class TestLocalEngine:
    def test_rounds(self, tmp_path: Path) -> None:
        world = accidents(tmp_path, 20, seed=1)
        with closing(open_engine("local", tmp_path / "hub" / ".backstory", PROJECTION)) as archive:
            check(archive, world.laptops)


@pytest.mark.clickhouse
class TestClickHouse:
    def test_some_rounds(self, tmp_path: Path) -> None:
        on_clickhouse(tmp_path, 5, seed=2)

    @pytest.mark.slow
    def test_hundred_rounds(self, tmp_path: Path) -> None:
        on_clickhouse(tmp_path, 100, seed=3)

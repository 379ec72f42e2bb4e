"""Laptops with transcripts, and servers that they share with."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvicorn

from backstory.archive import open_engine
from backstory.archive.base import Archive, ExchangesRequest, Part, SessionsRequest
from backstory.faces.http.hub import Hub
from backstory.library import Library, Scope
from backstory.team.intake import Intake
from backstory.team.sharing import Parcel, Projects, Receipt
from tests.archive_world import PROJECTION
from tests.transcripts import Transcript, write_all

SECRET = "ghp_" + "a1B2" * 9
ALL = Projects(("*",))


class Laptop:
    """A home with Claude Code transcripts, and settings of a team."""

    def __init__(self, folder: Path, name: str, **team: Any) -> None:
        self.name = name
        self.home = folder / name
        self.backstory = self.home / ".backstory"
        self.backstory.mkdir(parents=True, mode=0o700)
        self.configure(**team)

    def configure(self, **team: Any) -> None:
        given = {"machine": f"{self.name}-laptop", "push_seconds": 0.1, **team}
        lines = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in given.items()]
        (self.backstory / "config.toml").write_text("\n".join(["[team]", *lines, ""]))

    def write(self, *transcripts: Transcript) -> None:
        write_all(self.home, transcripts)

    def library(self, scope: Scope = "local") -> Library:
        return Library(self.backstory, agents_home=self.home, environ={}, scope=scope)

    def sync(self) -> None:
        with self.library() as library:
            library.sync()

    def push(self, *, again: bool = False) -> Any:
        with self.library() as library:
            library.sync()
            return library.team.push(again=again)


def project(name: str, folder: str, *texts: str) -> Transcript:
    """A session in a project: prompts and answers in turn."""
    made = Transcript(name, folder)
    for number, text in enumerate(texts):
        _ = made.answer(text) if number % 2 else made.prompt(text)
    return made


class Stored(NamedTuple):
    """Everything that an archive has of some sessions, without what its engine adds."""

    sessions: dict[str, Any]
    turns: dict[tuple[str, int], Any]
    events: list[Any]
    exchanges: list[Any]


def stored(archive: Archive) -> Stored:
    sessions = {row.key: row for row in archive.sessions(SessionsRequest(empty=True))}
    turns = {(key, turn.ordinal): turn for key in sessions for turn in archive.turns(key, Part(usage=True))}
    events = [event for key, ordinal in turns for event in archive.events(key, ordinal)]
    exchanges = [each.row for key in sessions for each in archive.exchanges(ExchangesRequest(session=key, texts=False))]
    return Stored(
        sessions={key: msgspec.structs.replace(row, user=None, machine=None) for key, row in sessions.items()},
        turns=turns,
        events=sorted(events, key=lambda event: event.uid),
        exchanges=sorted(exchanges, key=lambda row: (row.session, row.number)),
    )


def only(everything: Stored, keys: set[str]) -> Stored:
    return Stored(
        {key: row for key, row in everything.sessions.items() if key in keys},
        {place: row for place, row in everything.turns.items() if place[0] in keys},
        [row for row in everything.events if row.session in keys],
        [row for row in everything.exchanges if row.session in keys],
    )


class Cut(ConnectionError):
    """The connection is cut."""


class CutServer:
    """A server in this process that fails at random: before a parcel is written, or before it is acknowledged."""

    def __init__(self, archive: Archive, member: str = "alice", chance: random.Random | None = None) -> None:
        self.archive = archive
        self.member = member
        self.chance = chance
        self.parcels: list[Parcel] = []
        self.name = "first"
        self.meanwhile: Callable[[], object] | None = None
        self.intake = Intake(archive, archive.writer())

    def identity(self) -> str:
        return self.name

    def push(self, parcel: Parcel) -> Receipt:
        self._cut()
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(parcel), type=Parcel)
        self.parcels.append(sent)
        if (happens := self.meanwhile) is not None:
            self.meanwhile = None
            happens()
        receipt = self.intake.push(msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Parcel), self.member, ALL)
        self._cut()
        return receipt

    def forget(self, keys: list[str]) -> Receipt:
        self._cut()
        receipt = self.intake.forget(keys, self.member)
        self._cut()
        return receipt

    def close(self) -> None:
        pass

    def _cut(self) -> None:
        if self.chance is not None and self.chance.random() < 0.4:
            raise Cut


class ServedHub:
    """A hub in a thread of this process, by default over the local engine."""

    def __init__(self, home: Path, port: int = 0, archive: Archive | None = None) -> None:
        home.mkdir(exist_ok=True, mode=0o700)
        self.archive = archive or open_engine("local", home, PROJECTION)
        self.hub = Hub(home, self.archive)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(self.hub.app(), log_config=None, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(30)

    def _run(self) -> None:
        async def serve() -> None:
            startup = self._server.startup

            async def announced(sockets: list[socket.socket] | None = None) -> None:
                await startup(sockets)
                self._ready.set()

            self._server.startup = announced  # type: ignore[method-assign]
            await self._server.serve(sockets=[self._socket])

        asyncio.run(serve())

    def token(
        self, member: str, rights: tuple[Any, ...] = ("read", "write"), projects: tuple[str, ...] = ("*",)
    ) -> str:
        return self.hub.tokens.create(member, rights, projects)[1]

    def settle(self) -> None:
        """Wait until everything that was received can be found."""
        self.hub._receiver.submit(lambda intake: intake.flush()).result(30)

    def close(self) -> None:
        if self._server.should_exit:
            return
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()
        self.hub.close()
        self.archive.close()


@contextmanager
def serving(home: Path, port: int = 0, archive: Archive | None = None) -> Iterator[ServedHub]:
    with closing(ServedHub(home, port, archive)) as hub:
        yield hub

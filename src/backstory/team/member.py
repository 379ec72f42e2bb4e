"""This machine as a member of a team: the server of its settings, pushing, taking back, and what is shared."""

from __future__ import annotations

import getpass
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ..archive import open_journal
from ..archive.base import Archive, Batch, SessionsRequest
from ..config import ConfigError, Settings, expand_home, user_home
from . import TeamError
from .courier import Courier, PushLock, Report, Server, keep_pushing
from .intake import DirectServer, open_database
from .outbox import Outbox, outbox_path
from .remote import HubClient, RemoteArchive
from .sharing import Sharing

_PATIENCE_SECONDS = 30.0
State = Literal["shared", "changed", "waiting", "refused", "kept", "lost", "withheld", "taken back"]


class SharedSession(Struct, kw_only=True):
    """A session that is, was or would be shared."""

    session: str
    title: str
    project: str | None
    state: State
    """`shared`; `changed`: there is more of it than the server has; `waiting` to be sent; `refused` by the server;
    `kept`: the server has it, the rules do not cover it any more; `lost`: the server had it, and has it no longer;
    `withheld`: to be taken back; `taken back`."""
    events: int
    """In the archive; `sent` of them are on the server."""
    sent: int
    since: int | None = None
    updated: int | None = None
    reason: str | None = None


class Status(Struct, kw_only=True):
    """Sharing with the team."""

    server: str | None
    projects: tuple[str, ...]
    agents: tuple[str, ...]
    since: str | None
    machine: str
    pushed_at: int | None
    error: str | None
    """Of the last push."""
    sessions: list[SharedSession]


class Member:
    """Raises ConfigError for settings that cannot be used, when they are."""

    def __init__(self, home: Path, settings: Settings, archive: Callable[[], Archive], projection: str) -> None:
        self._home = home
        self._settings = settings.team
        self._engine = settings.archive.engine
        self._archive = archive
        self._projection = projection

    @property
    def shares(self) -> bool:
        """True if there may be something to push or to take back: there is a server, and rules are or were set."""
        is_set = bool(self._settings.projects) or outbox_path(self._home).exists()
        return is_set and self.address is not None and self._engine == "local"

    @property
    def address(self) -> str | None:
        """The server, without a password."""
        if self._settings.clickhouse:
            scheme, _, rest = self._settings.clickhouse.partition("://")
            return f"{scheme}://{rest.rpartition('@')[2]}"
        return self._settings.url or None

    @property
    def machine(self) -> str:
        return self._settings.machine or socket.gethostname()

    @cached_property
    def _sharing(self) -> Sharing:
        return Sharing(self._settings)

    # The server

    def open_server(self) -> Server:
        if self._settings.clickhouse and not self._settings.url:
            user = self._settings.user or getpass.getuser()
            return DirectServer(self._home, self._settings.clickhouse, self._projection, user)
        return self.open_hub()

    def open_hub(self) -> HubClient:
        if self._settings.url and self._settings.clickhouse:
            raise ConfigError("team.url and team.clickhouse are both set: keep one")
        if not self._settings.url:
            raise ConfigError("no server of a team is set: set team.url, or team.clickhouse, in config.toml")
        return HubClient(self._settings.url, self._token())

    def _token(self) -> str:
        if self._settings.token or not self._settings.token_file:
            return self._settings.token
        path = expand_home(self._settings.token_file, user_home())
        try:
            return path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"team.token_file: {path} cannot be read: {error}") from None

    def open_archive(self) -> Archive:
        """The archive of the team, for reading. Settings that cannot be used are a TeamError, as tools answer it."""
        if self._settings.clickhouse and not self._settings.url:
            return open_database(self._home, self._settings.clickhouse, self._projection)
        try:
            return RemoteArchive(self.open_hub())
        except ConfigError as error:
            raise TeamError(str(error)) from None

    # Sharing

    @contextmanager
    def _courier(self) -> Iterator[Courier]:
        if self._engine != "local":
            raise TeamError("the archive of this machine is a ClickHouse server: it is shared as it is")
        archive = self._archive()
        with closing(Outbox(self._home)) as outbox, closing(open_journal(self._home)) as journal:
            yield Courier(archive, journal, outbox, self.open_server(), self._sharing, self.machine)

    def push(self, *, again: bool = False) -> Report:
        """Send what is due now. `again` compares everything with what was sent, and tries what was refused."""
        with self._courier() as courier, PushLock(self._home, _PATIENCE_SECONDS):
            with closing(Outbox(self._home)) as outbox:
                outbox.retry_refused()
                outbox.ask_again()
                if again:
                    with outbox.transaction():
                        outbox.begin_anew()
            return courier.push()

    def preview(self) -> Iterator[Batch]:
        """The rows that a push would send now."""
        with self._courier() as courier, PushLock(self._home, _PATIENCE_SECONDS):
            yield from courier.preview()

    @contextmanager
    def pushing(self) -> Iterator[None]:
        """Push in the background."""
        if not self.shares:
            yield
            return
        stop = threading.Event()
        pause = self._settings.push_seconds
        thread = threading.Thread(
            target=keep_pushing, args=(self._courier, self._home, stop, pause), name="backstory-team", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(2.0)

    def withhold(self, keys: Sequence[str]) -> None:
        """Keep sessions from being shared from now on; the next push takes them back from the server."""
        if self.address is None:
            return
        with closing(Outbox(self._home)) as outbox:
            outbox.withhold(keys)

    # Showing

    def status(self) -> Status:
        settings = self._settings
        rows = self._archive().sessions(SessionsRequest(empty=True))
        sessions = {row.key: row for row in rows}
        with closing(Outbox(self._home)) as outbox:
            withheld, shared, refused = outbox.withheld(), outbox.shared(), outbox.refused()
            due, sent, lost = outbox.due(), outbox.sent_events(), outbox.lost()
            pushed_at, error = outbox.value("pushed_at"), outbox.value("error")
        covered = self._sharing.covered(sessions, withheld)
        found = []
        for key in sorted(covered | shared.keys() | withheld.keys()):
            row = sessions.get(key)
            state: State
            if key in withheld:
                state = "withheld" if withheld[key].withdrawn_at is None else "taken back"
            elif key in lost:
                state = "lost"
            elif key not in covered:
                state = "kept"
            elif key in refused:
                state = "refused"
            elif key not in shared:
                state = "waiting"
            else:
                state = "changed" if key in due or (row and row.event_count > sent.get(key, 0)) else "shared"
            found.append(
                SharedSession(
                    session=key,
                    title=row.title if row else "",
                    project=(row.project or row.cwd) if row else None,
                    state=state,
                    events=row.event_count if row else 0,
                    sent=0 if key in lost else sent.get(key, 0),
                    since=shared[key].first_at if key in shared else None,
                    updated=shared[key].last_at if key in shared else None,
                    reason=refused[key].message if key in refused else None,
                )
            )
        return Status(
            server=self.address,
            projects=settings.projects,
            agents=settings.agents,
            since=settings.since or None,
            machine=self.machine,
            pushed_at=int(pushed_at) if pushed_at else None,
            error=error or None,
            sessions=found,
        )

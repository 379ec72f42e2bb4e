"""Backstory as a library: one object that opens an archive, keeps it up to date and calls its tools.

Every face (MCP, terminal, HTTP) is a thin layer over this.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec import Struct

from .config import ConfigError, Settings, home_folder, load_settings, make_private_folder
from .model import EVENT_TYPES, EventType
from .toolsets.base import Reply, Tool, Toolset

if TYPE_CHECKING:
    from .archive.base import Archive, SessionRow
    from .ingest.pipeline import Ingest, SyncProgress, SyncReport
    from .sources.base import Source
    from .toolsets.capsules.service import Capsules
    from .toolsets.history.service import History
    from .toolsets.history.types import CapsuleLink, ReadEvent

__all__ = ["TOOLSETS", "Library", "Location"]

TOOLSETS: tuple[str, ...] = ("history", "conversations", "capsules", "traces", "live")
_LOCK_POLL_SECONDS = 1.0
_RETRY_SECONDS = 5
_FIRST_SYNC_SECONDS = 5.0
_FIRST_SYNC_POLL_SECONDS = 0.02
_FORGET_SECONDS = 600.0
_READING_NICENESS = 5
_LIVE, _TELEMETRY, _CAPSULES = "live", "otel", "capsules"
# A name: only a process that writes imports it.
_PROJECTION = "backstory.ingest.projection:TurnProjection"
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Location(Struct, frozen=True, kw_only=True):
    """The project of a session, and the command that continues it."""

    source: str
    native_id: str
    """The agent's own session id."""
    project: str | None
    branch: str | None
    resume: tuple[str, ...] | None
    """The agent's command; it finds the session when it is run in the project's folder."""


class Library:
    """`home` is Backstory's own folder; agents' folders are found under `agents_home` and their own variables. Search
    prefers the project that the folder `here` belongs to a little."""

    def __init__(
        self,
        home: Path | None = None,
        *,
        agents_home: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        here: Path | None = None,
    ) -> None:
        self.home = make_private_folder(home if home is not None else home_folder(environ))
        self.settings: Settings = load_settings(self.home, environ)
        self.agents_home = agents_home or Path.home()
        self._environ = environ
        self._here = here
        self._toolsets: dict[tuple[str, str], Toolset] = {}
        self._watching_since = -math.inf

    @cached_property
    def archive(self) -> Archive:
        from .archive import open_engine

        settings = self.settings.archive
        return open_engine(settings.engine, self.home, _PROJECTION, settings.clickhouse)

    @cached_property
    def sources(self) -> list[Source]:
        from .sources import load_sources

        try:
            return load_sources(self.settings.sources)
        except ValueError as error:
            raise ConfigError(f"sources: {error}") from None

    def roots(self, source: Source) -> list[Path]:
        """The folders and files that a source's transcripts are read from: those that exist."""
        from .ingest.scan import existing_roots

        return existing_roots(source, self.agents_home, self._own_environ, self._extra_roots.get(source.name, ()))

    def looked_for(self, source: Source) -> list[Path]:
        """The folders and files where a source may have transcripts, existing or not."""
        extra = (Path(path).expanduser() for path in self._extra_roots.get(source.name, ()))
        return [*source.roots(self.agents_home, self._own_environ), *extra]

    def expected_roots(self) -> list[str]:
        """The folders where agents keep transcripts, existing or not."""
        from .sources import OWN_SOURCES

        agents = [source for source in self.sources if source.name not in OWN_SOURCES]
        return [str(root) for source in agents for root in source.roots(self.agents_home, self._own_environ)]

    # Keeping up to date

    def sync(
        self, *, progress: Callable[[SyncProgress], None] | None = None, budget: float | None = None
    ) -> SyncReport:
        """Read everything new, for at most `budget` seconds. Raises ArchiveBusy when another process writes."""
        with self._ingest() as ingest:
            return ingest.sync(progress=progress, deadline=None if budget is None else time.monotonic() + budget)

    def catch_up(self) -> None:
        """A short sync before an answer, unless another process already keeps the archive up to date.

        Failures are logged: what is in the archive can still be searched.
        """
        from .archive.base import ArchiveBusy
        from .archive.errors import explain

        state = self.archive.sync_state()
        if self.settings.catch_up_seconds <= 0 or state.index_behind or state.read_only:
            return
        try:
            if self._has_news():
                self.sync(budget=self.settings.catch_up_seconds)
        except ArchiveBusy:
            return
        except ConfigError:
            raise
        except Exception as error:
            _log.warning("new transcripts could not be read: %s", explain(error) or error)

    def _has_news(self) -> bool:
        from .ingest.scan import has_news

        return has_news(
            self.archive,
            self.sources,
            home=self.agents_home,
            environ=self._own_environ,
            extra_roots=self._extra_roots,
        )

    def watch(self, stop: threading.Event, on_change: Callable[[SyncReport], None] | None = None) -> None:
        """Keep the archive live until stopped. While another process does it, wait for its turn to end."""
        from .archive.base import ArchiveBusy
        from .archive.errors import explain
        from .ingest.watch import watch

        self.expect_first_sync()
        said = None
        while not stop.is_set():
            try:
                with self._ingest() as ingest:
                    watch(ingest, stop, on_change)
            except ArchiveBusy:
                stop.wait(_LOCK_POLL_SECONDS)
            except Exception as error:
                # A full disk or a broken folder may be mended; searches go on meanwhile.
                reason = explain(error) or str(error)
                if reason != said:
                    _log.warning("reading transcripts stopped, trying again every %d s: %s", _RETRY_SECONDS, reason)
                said = reason
                stop.wait(_RETRY_SECONDS)

    def give_way(self) -> None:
        """Lower the priority of this process, which reads transcripts, below that of searches and of interactive
        programs. On an idle machine it is as fast as before."""
        if hasattr(os, "nice"):
            os.nice(max(_READING_NICENESS - os.nice(0), 0))

    def expect_first_sync(self) -> None:
        """Note that a process, this one or another, begins to keep the archive live now."""
        self._watching_since = time.monotonic()

    def _await_first_sync(self) -> None:
        """Wait a moment for the first sync, for answers that have no place for a warning that they are incomplete."""
        until = self._watching_since + _FIRST_SYNC_SECONDS
        while time.monotonic() < until and self.archive.sync_state().first_finished_at is None:
            time.sleep(_FIRST_SYNC_POLL_SECONDS)

    def reindex(self) -> int:
        """Build the search index anew; gives the number of events in it."""
        writer = self.archive.writer()
        try:
            writer.recover(reindex=True)
        finally:
            writer.close()
        return self.archive.counts().documents

    # Forgetting

    def family(self, id: str) -> list[SessionRow]:
        """A session and those it started, which are forgotten with it. Raises LookupError when there is none."""
        from .ingest.forgetting import family_of
        from .model import InvalidId, SessionRef, parse_id

        try:
            ref = parse_id(id)
        except InvalidId:
            raise LookupError(f"{id} is not the id of a session") from None
        if not isinstance(ref, SessionRef):
            raise LookupError(f"{id} is a part of a session; only whole sessions can be forgotten")
        session = self.archive.session(ref.key)
        if session is None:
            raise LookupError(f"no session {ref.key} is in the archive")
        return family_of(self.archive, session)

    def forget(self, id: str, *, patience: float = _FORGET_SECONDS) -> list[SessionRow]:
        """Delete a session and those it started everywhere, for good; gives their rows.

        Their transcripts are not read again. Raises LookupError when there is no such session, and ArchiveBusy when
        another process writes and does not come to it in time; it is forgotten later then.
        """
        from .ingest.forgetting import have_forgotten
        from .sources.otel.source import session_file

        family = self.family(id)
        key = family[0].key
        source, _, native = key.partition("/")
        if source == _LIVE:
            from .toolsets.live.access import Portal

            portal = Portal(self.home, self._own_environ)
            portal.call("session::delete", {"session_id": native})
            portal.close()
        # A live session that is created anew under the same id is another one.
        self.archive.forget(key, remember=source != _LIVE)
        keys = {key}
        if source not in (_LIVE, _TELEMETRY):
            # The session as telemetry reported it before its transcript was read.
            keys.add(f"{_TELEMETRY}/{native}")
            self.archive.forget(f"{_TELEMETRY}/{native}")
        have_forgotten(self.archive, keys, patience)
        if source != _LIVE:
            session_file(self.home, native).unlink(missing_ok=True)
        return family

    def forget_live(self, session_id: str) -> None:
        """A live session was deleted: forget what the archive has of it, now or when its writer comes to it."""
        from .archive.base import ArchiveBusy
        from .ingest.forgetting import have_forgotten

        key = f"{_LIVE}/{session_id}"
        if not (self.home / "archive.db").exists():
            return
        # Also if it is not there: the writer may be about to commit it.
        self.archive.forget(key, remember=False, wipe=False)
        with suppress(ArchiveBusy):
            have_forgotten(self.archive, {key}, 0)

    @contextmanager
    def _ingest(self) -> Iterator[Ingest]:
        from .egress import egress
        from .ingest.pipeline import Ingest

        writer = self.archive.writer()
        try:
            writer.recover()
            yield Ingest(
                writer,
                self.sources,
                home=self.agents_home,
                environ=self._own_environ,
                extra_roots=self._extra_roots,
                redact=egress if self.settings.redact == "ingest" else None,
            )
        finally:
            writer.close()

    # Tools

    def toolset(self, name: str, *, pattern: str = "*") -> Toolset:
        """Raises KeyError for a name that is not in TOOLSETS. `pattern` selects the projects of `conversations`."""
        if (name, pattern) not in self._toolsets:
            self._toolsets[name, pattern] = self._load_toolset(name, pattern)
        return self._toolsets[name, pattern]

    def _load_toolset(self, name: str, pattern: str) -> Toolset:
        match name:
            case "history":
                from .toolsets.history.tools import toolset as history

                return history(self._history)
            case "conversations":
                from .toolsets.conversations.tools import toolset as conversations

                return conversations(self.archive, self.settings, pattern, until_ready=self._await_first_sync)
            case "capsules":
                from .toolsets.capsules.tools import toolset_of as capsules

                return capsules(self._capsules)
            case "traces":
                from .toolsets.traces.tools import toolset as traces

                return traces(self.archive, self.settings)
            case "live":
                from .toolsets.live.tools import toolset as live

                return live(self.home, self.settings, self._own_environ)
        raise KeyError(name)

    @property
    def _extra_roots(self) -> Mapping[str, tuple[str, ...]]:
        telemetry = self.home / "otel"
        if os.access(self.home, os.W_OK):
            make_private_folder(telemetry)
        return {"otel": (str(telemetry),), **self.settings.extra_roots}

    @property
    def _own_environ(self) -> Mapping[str, str]:
        """The environment with this home in it: sources find the live sessions below it."""
        return {**self._environ, "BACKSTORY_HOME": str(self.home)}

    @cached_property
    def _capsules(self) -> Capsules:
        from .toolsets.capsules.service import Capsules

        return Capsules(self.home, self.settings.capsules, self.settings.redact)

    def _capsules_of(self, key: str) -> list[CapsuleLink]:
        """The capsules of a session, which they name by its id, its key or the agent's own id."""
        from .model import session_id
        from .toolsets.history.types import CapsuleLink

        if not (self.home / "capsules.db").exists():
            return []
        names = (session_id(key), key, key.partition("/")[2])
        found = {capsule.id: capsule for name in names for capsule in self._capsules.of_session(name)}
        return [CapsuleLink(c.id, c.workspace, c.name, c.title) for c in found.values()]

    def tool(self, name: str) -> Tool:
        """A tool of any toolset, by its name or an alias. Raises KeyError when there is none."""
        for toolset in TOOLSETS:
            for tool in self.toolset(toolset).tools:
                if name == tool.name or name in tool.aliases:
                    return tool
        raise KeyError(name)

    def reply(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Reply:
        return self.tool(tool).handler(dict(arguments or {}))

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Any tool's structured result; errors are results too, as the tool's contract shapes them."""
        return self.reply(tool, arguments).data

    # The history tools, without the schemas of any

    def search(self, query: str, *, explain: bool = False, **options: Any) -> dict[str, Any]:
        """The answer of `search_sessions`, with matching capsules beside it: `source="capsules"` gives only those.

        Filters that capsules do not have (a session, event types, a project, another source) leave them out. `explain`
        adds to the data how the words were read, and for each hit the words and the evidence that made its score.
        """
        answer = self._history.search_sessions({"query": query, **options}, explain=explain).data
        if "error" not in answer:
            if options.get("source") == _CAPSULES:
                answer["warnings"] = []  # all of them are about sessions
            answer["capsules"] = self._matching_capsules(query, options, answer)
        return answer

    def _matching_capsules(self, query: str, options: Mapping[str, Any], answer: dict[str, Any]) -> list[Any]:
        """Capsules are in no index but that of their own store: to delete one there is to delete it everywhere."""
        given = {name for name, value in options.items() if value is not None}
        if given & {"within_id", "event_types", "project"} or options.get("source") not in (None, _CAPSULES):
            return []
        if not (self.home / "capsules.db").exists():
            return []
        from msgspec import to_builtins

        from .egress import egress
        from .model import parse_rfc3339
        from .toolsets.capsules.store import database_trouble

        since, until = (parse_rfc3339(options.get(name) or "") for name in ("since", "until"))
        try:
            found = self._capsules.matches(query, answer["data"]["limit"], since=since, until=until)
        except Exception as error:
            cause = database_trouble(error)
            if cause is None:
                raise
            answer["warnings"].append(f"Capsules were not searched: {cause}")
            return []
        matches: list[Any] = egress(to_builtins(found), self.settings.redact)
        return matches

    def open(self, id: str, **options: Any) -> dict[str, Any]:
        return self._history.open({"id": id, **options}).data

    def sessions(self, start_datetime: str, end_datetime: str, **options: Any) -> dict[str, Any]:
        window = {"start_datetime": start_datetime, "end_datetime": end_datetime}
        return self._history.list_sessions({**window, **options}).data

    def locate(self, id: str) -> Location | None:
        """The location of a session, by its id or the id of one of its turns."""
        from .model import EventRef, parse_id

        ref = parse_id(id)
        session = None if isinstance(ref, EventRef) else self.archive.session(ref.key)
        if session is None:
            return None
        source = next((source for source in self.sources if source.name == session.source), None)
        native_id = self.egress(session.key.partition("/")[2])
        return Location(
            source=session.source,
            native_id=native_id,
            project=self.egress(session.cwd or None),
            branch=self.egress(session.branch or None),
            resume=source.resume(native_id) if source and not session.parent else None,
        )

    def egress(self, value: T) -> T:
        """A value of the archive without secrets and hostile characters, for exits that no tool answers through."""
        from .egress import egress

        plain = egress(msgspec.to_builtins(value), self.settings.redact)
        return msgspec.convert(plain, type(value)) if isinstance(value, Struct) else cast("T", plain)

    def read_turn(self, id: str, types: Sequence[EventType] = EVENT_TYPES) -> list[ReadEvent]:
        """The events of a turn with their whole content; `open` gives the beginning of each."""
        from .model import TurnRef, parse_id

        ref = parse_id(id)
        return self._history.read_turn(ref, types) if isinstance(ref, TurnRef) else []

    @cached_property
    def _history(self) -> History:
        from .toolsets.history.service import History

        return History(self.archive, self.settings, self._capsules_of, here=self._here)

    def close(self) -> None:
        if "archive" in self.__dict__:
            self.archive.close()
        if "_capsules" in self.__dict__:
            self._capsules.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

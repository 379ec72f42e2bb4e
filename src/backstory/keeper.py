"""An archive with its sources: opens it, keeps it up to date with the transcripts, forgets sessions."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config import HUB_FILE, ConfigError, Settings, home_folder, load_settings, make_private_folder, user_home

if TYPE_CHECKING:
    from .archive.base import Archive, SessionRow
    from .ingest.pipeline import Ingest
    from .ingest.progress import SyncProgress, SyncReport
    from .ingest.watch import Frontier
    from .raw import Keeping, RawStore
    from .repository import Checkouts
    from .sources.base import Source
    from .team.member import Member

_LOCK_POLL_SECONDS = 1.0
_RETRY_SECONDS = 5
_FIRST_SYNC_SECONDS = 5.0
_FIRST_SYNC_POLL_SECONDS = 0.02
_FORGET_SECONDS = 600.0
_READING_NICENESS = 5
_LATEST_SESSIONS = 300
_LIVE, _TELEMETRY = "live", "otel"
# Given by name, so that only a process that writes imports it.
_PROJECTION = "backstory.ingest.projection:TurnProjection"
_log = logging.getLogger(__name__)


class Keeper:
    """`home` is Backstory's own folder; agents' folders are found under `agents_home` and their own variables."""

    def __init__(
        self, home: Path | None = None, *, agents_home: Path | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.home = make_private_folder(home if home is not None else home_folder(environ))
        self.settings: Settings = load_settings(self.home, environ)
        self.agents_home = agents_home.absolute() if agents_home else user_home()
        self._environ = environ
        self._syncing = threading.Lock()
        self._watching_since = -math.inf
        # Set when the news at the start of `watch` are read; None where this process does not watch.
        self._caught_up: threading.Event | None = None

    def close(self) -> None:
        if "archive" in self.__dict__:
            self.archive.close()
        if "raw" in self.__dict__:
            self.raw.close()

    @cached_property
    def archive(self) -> Archive:
        from .archive import open_engine

        settings = self.settings.archive
        return open_engine(settings.engine, self.home, _PROJECTION, settings.clickhouse)

    @property
    def is_made(self) -> bool:
        """False while there is no archive, as on a machine where nothing was read yet."""
        from .archive import is_made

        return is_made(self.settings.archive.engine, self.home)

    @cached_property
    def raw(self) -> RawStore:
        """The transcripts as they were read, by which a session that is gone can be put back."""
        from .raw import RawStore

        return RawStore(self.home)

    @cached_property
    def checkouts(self) -> Checkouts:
        """The git remotes of projects, by which one is found that has moved."""
        from .repository import Checkouts

        return Checkouts(self.home)

    @cached_property
    def team(self) -> Member:
        """This machine as a member of a team."""
        from .team.member import Member

        return Member(self.home, self.settings, lambda: self.archive, _PROJECTION)

    @cached_property
    def sources(self) -> list[Source]:
        from .sources import load_sources

        setting = "extra_roots"
        try:
            load_sources(self.settings.extra_roots)  # raises for an unknown name
            setting = "sources"
            return load_sources(self.settings.sources)
        except ValueError as error:
            file = self.home / "config.toml"
            raise ConfigError(f"{file} or BACKSTORY_* variables: {setting}: {error}") from None

    def roots(self, source: Source) -> list[Path]:
        """The folders and files that a source's transcripts are read from: those that exist."""
        from .ingest.walk import existing_roots

        return existing_roots(source, self.agents_home, self._own_environ, self._extra_roots.get(source.name, ()))

    def looked_for(self, source: Source) -> list[Path]:
        """The folders and files where a source may have transcripts, existing or not."""
        from .ingest.walk import named_roots

        return named_roots(source, self.agents_home, self._own_environ, self._extra_roots.get(source.name, ()))

    def expected_roots(self) -> list[str]:
        """The folders where agents keep transcripts, existing or not."""
        from .sources import OWN_SOURCES

        agents = [source for source in self.sources if source.name not in OWN_SOURCES]
        return [str(root) for source in agents for root in source.roots(self.agents_home, self._own_environ)]

    @contextmanager
    def _ingest(self) -> Iterator[Ingest]:
        from .archive.errors import ArchiveError
        from .ingest.pipeline import Ingest

        if self._is_hub:
            raise ArchiveError(
                f"{self.home} has the archive of a team: the sessions of this machine are not read into it"
            )
        writer = self.archive.writer()
        try:
            writer.recover()
            if not self._keeps_raw:
                self._keeping.pause()
            yield Ingest(
                writer,
                self.sources,
                self.roots,
                home=self.agents_home,
                redact=self._redact,
                keep=self._keeping if self._keeps_raw else None,
            )
            self._note_checkouts()
        finally:
            writer.close()

    @property
    def _redact(self) -> Callable[[Any], Any] | None:
        """Removes secrets from what is read, if the settings say so."""
        if self.settings.redact != "ingest":
            return None
        from .egress import egress

        return egress

    @property
    def _is_hub(self) -> bool:
        return (self.home / HUB_FILE).exists()

    @property
    def _keeps_raw(self) -> bool:
        """False where secrets are redacted before they are stored: raw records would have them all."""
        return self.settings.keep_raw and self.settings.redact != "ingest"

    @cached_property
    def _keeping(self) -> Keeping:
        from .raw import Keeping

        return Keeping(self.raw, self.home)

    def _note_checkouts(self) -> None:
        from .archive.base import SessionsRequest

        rows = self.archive.sessions(SessionsRequest(start=0, end=1 << 53, limit=_LATEST_SESSIONS))
        with suppress(OSError):  # a help for later, no part of the archive
            self.checkouts.note({row.cwd for row in rows if row.cwd})

    @cached_property
    def _extra_roots(self) -> Mapping[str, tuple[str, ...]]:
        telemetry = self.home / "otel"
        if os.access(self.home, os.W_OK):
            make_private_folder(telemetry)
        return {"otel": (str(telemetry),), **self.settings.extra_roots}

    @cached_property
    def _own_environ(self) -> Mapping[str, str]:
        """The environment with this home in it: sources find the live sessions below it."""
        return {**self._environ, "BACKSTORY_HOME": str(self.home)}

    # Keeping up to date

    def sync(
        self,
        *,
        progress: Callable[[SyncProgress], None] | None = None,
        budget: float | None = None,
        news: Sequence[Path] | None = None,
    ) -> SyncReport:
        """Read everything new, or these news, for at most `budget` seconds. Raises ArchiveBusy when another process
        writes; threads that call this at once take turns."""
        with self._syncing, self._ingest() as ingest:
            deadline = None if budget is None else time.monotonic() + budget
            if news is not None:
                return ingest.sync_paths(news, deadline=deadline)
            report = ingest.sync(progress=progress, deadline=deadline)
            if budget is None and self._keeps_raw:
                self._keeping.keep_rest(ingest.present(), unless=ingest.repeats_forgotten)
            return report

    def catch_up(self) -> None:
        """A short sync before an answer, unless another process already keeps the archive up to date.

        Failures are logged: what is in the archive can still be searched.
        """
        from .archive.base import ArchiveBusy
        from .archive.errors import explain

        if self.settings.catch_up_seconds <= 0:
            return
        try:
            state = self.archive.sync_state()
            if state.index_behind or state.read_only or state.writing or self._is_hub:
                return
            if (news := self._find_news()) != []:
                self.sync(budget=self.settings.catch_up_seconds, news=news)
        except ArchiveBusy:
            return
        except ConfigError:
            raise
        except Exception as error:
            _log.warning("new transcripts could not be read: %s", explain(error) or error)

    @cached_property
    def _frontier(self) -> Frontier:
        from .ingest.watch import Frontier

        return Frontier(self.home / "frontier")

    def _find_news(self) -> list[Path] | None:
        from .ingest.watch import find_news

        return find_news(self.archive, self.sources, self.roots, self._frontier)

    def watch(
        self, stop: threading.Event, on_change: Callable[[SyncReport], None] | None = None, *, rest: float = 0.0
    ) -> None:
        """Keep the archive live until stopped. While another process does it, wait for its turn to end.

        Where nothing is new at the start, reading begins after `rest` seconds: it would compete with first requests."""
        from .archive.base import ArchiveBusy
        from .archive.errors import explain

        caught_up = self.expect_watch()
        said = None
        while not stop.is_set():
            try:
                # Mostly nothing is new, or another process has read it: that is seen before the writer is imported.
                news = None if caught_up.is_set() else self._find_news()
                if news == []:
                    caught_up.set()
                    stop.wait(rest)
                from .ingest.watch import watch

                with self._ingest() as ingest, self._sharing():
                    watch(ingest, stop, on_change, news=news or (), on_first=caught_up.set)
            except ArchiveBusy:
                stop.wait(_LOCK_POLL_SECONDS)
            except Exception as error:
                # A full disk or a broken folder may be mended; searches go on meanwhile.
                reason = explain(error) or str(error)
                if reason != said:
                    _log.warning("reading transcripts stopped, trying again every %d s: %s", _RETRY_SECONDS, reason)
                said = reason
                stop.wait(_RETRY_SECONDS)

    def _sharing(self) -> AbstractContextManager[None]:
        """Share sessions with a team in the background, if the settings say so."""
        team = self.settings.team
        return self.team.pushing() if team.url or team.clickhouse else nullcontext()

    def expect_watch(self) -> threading.Event:
        """Note that this process is about to `watch`: answers wait a moment for the news, or warn that they lack them.
        Returns the event that ends this."""
        if self._caught_up is None:
            self.expect_first_sync()
            self._caught_up = threading.Event()
        return self._caught_up

    def await_news(self, seconds: float) -> None:
        """Wait until the news at the start of this process are read, but not for a first sync, which may take long."""
        from .archive.errors import ArchiveError

        with suppress(ArchiveError):  # the tool that is about to be called says why
            if self.is_behind() and self.archive.sync_state().first_finished_at is not None:
                self.expect_watch().wait(seconds)

    def is_behind(self) -> bool:
        """True as long as this process, which is to keep the archive live, has not read what was new at its start."""
        return self._caught_up is not None and not self._caught_up.is_set()

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

        return family_of(self.archive, id)

    def forget(self, id: str, *, patience: float = _FORGET_SECONDS) -> list[SessionRow]:
        """Delete a session and those it started everywhere, for good; gives their rows.

        Their transcripts are not read again. Raises LookupError when there is no such session, and ArchiveBusy when
        another process writes and does not come to it in time; it is forgotten later then.
        """
        from .ingest.forgetting import copies_of, delete_imported, have_forgotten
        from .sources.otel import session_file

        family = self.family(id)
        key = family[0].key
        source, _, native = key.partition("/")
        if source == _LIVE:
            from .toolsets.live.tools import Portal

            portal = Portal(self.home, self._own_environ)
            portal.call("session::delete", {"session_id": native})
            portal.close()
        if self.settings.team.url or self.settings.team.clickhouse:
            self.team.withhold([row.key for row in family])
        delete_imported(self.archive, self.home, family)
        # A live session that is created anew under the same id is another one.
        self.archive.forget(key, remember=source != _LIVE)
        keys = {key}
        if source not in (_LIVE, _TELEMETRY):
            # The session as telemetry reported it before its transcript was read.
            keys.add(f"{_TELEMETRY}/{native}")
            self.archive.forget(f"{_TELEMETRY}/{native}")
        kept = {row.key.partition("/")[2] for row in family} | copies_of(self.archive, family)
        # Before waiting, which may be in vain; the writer may have kept something again meanwhile.
        self.raw.forget(source, kept)
        have_forgotten(self.archive, keys, patience)
        self.raw.forget(source, kept)
        self._frontier.forget()
        if source != _LIVE:
            session_file(self.home, native).unlink(missing_ok=True)
        return family

    def forget_live(self, session_id: str) -> None:
        """A live session was deleted: forget what the archive has of it, now or when its writer comes to it."""
        from .archive.base import ArchiveBusy
        from .ingest.forgetting import have_forgotten

        key = f"{_LIVE}/{session_id}"
        if not self.is_made:
            return
        # Also if it is not there: the writer may be about to commit it.
        self.archive.forget(key, remember=False, wipe=False)
        with suppress(ArchiveBusy):
            have_forgotten(self.archive, {key}, 0)

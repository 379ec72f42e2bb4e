"""Writing to the server: rows in an order that a cut leaves harmless, and the deletion of sessions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import msgspec

from ...model import EventType, session_mark
from ..base import Batch, EventRow, ExchangeRow, ExchangesRequest, Part, SessionRow, SessionsRequest, TurnRow
from ..exchanges import split_uids, uids_of, without
from ..lock import WriterLock
from ..query import without_marks
from .documents import text_tokens
from .glances import Glances
from .reading import BY_UID, SESSION, TURN, Reading
from .rows import (
    EVENT_WRITTEN,
    EXCHANGE_WRITTEN,
    FILE_WRITTEN,
    SESSIONS,
    TURNS,
    USAGE_COLUMNS,
    Values,
    event_values,
    exchange_values,
    file_values,
    read_session,
    read_turn,
    text_of,
)
from .sending import Insert, SendingServer
from .server import Server, encode
from .spans.turns import TraceFeed
from .spans.writer import SpanWriter

_OF_SESSIONS = ("event", "document", "place", "turn", "exchange", "usage")
_OF_SESSION = "session = %(key)s"
# Of one call of `flush`; the rest is for the next.
_PROJECT_SECONDS = 5.0
_META = ("machine", "name", "version", "value")
# Folders that no session names any more.
_UNUSED = (
    "path NOT IN (SELECT project FROM event) "
    "AND path NOT IN (SELECT assumeNotNull(cwd) FROM session WHERE cwd IS NOT NULL) "
    "AND path NOT IN (SELECT assumeNotNull(folder) FROM session WHERE folder IS NOT NULL)"
)
_NUMBERED = "SELECT DISTINCT version, number FROM event WHERE session IN %(names)s"
_NUMBERS_AT_ONCE = 5_000
_KEPT = "arrayFilter((each, number) -> (version, number) NOT IN %(gone)s, {0}, numbers)"
_TAKE_OUT = (
    "UPDATE "
    + ", ".join(f"{name} = {_KEPT.format(name)}" for name in ("numbers", "frequencies", "sizes"))
    + " WHERE version IN %(versions)s, DELETE WHERE version IN %(versions)s AND empty(numbers)"
)


class ClickHouseWriter(Reading):
    """Holds the writer lock of this machine until it is closed. Other machines write at the same time: a row that two
    of them write is one row, by its key.

    ClickHouse has no transactions over tables. A batch is encoded as a whole before anything is sent, and its files,
    which say how far transcripts were read, come last: what a cut leaves out is read and written again.
    """

    def __init__(
        self, server: Server, machine: str, lock: WriterLock, spans: SpanWriter, traces: TraceFeed, glances: Glances
    ) -> None:
        super().__init__(server, machine)
        self._server: SendingServer = SendingServer(server)
        self._lock = lock
        self._spans = spans
        self._traces = traces
        self._glances = glances
        self._version = 0
        self._numbers = count(1)
        self._projects: set[str] = set()

    def write(self, batch: Batch) -> None:
        version = self._next_version()
        inserts = list(self._inserts(batch, version))
        if batch.removed:
            self._delete(batch.removed)
            self._spans.delete(batch.removed)
            self._glances.delete(batch.removed)
        self._server.send(inserts, version)
        self._glances.write(batch.sessions)
        self._projects.update(path for insert in inserts if insert.table == "project" for (path,) in insert.rows)

    def _arrival(self, events: Iterable[tuple[EventRow, int, str]]) -> Insert:
        """Of events with their versions and projects. The server makes the rows of four tables of them."""
        rows = [event_values(row, version, next(self._numbers), project) for row, version, project in events]
        return Insert("arrival", EVENT_WRITTEN, rows)

    def _inserts(self, batch: Batch, version: int) -> Iterator[Insert]:
        projects = {row.cwd for row in (*batch.events, *batch.replaced) if row.cwd}
        projects |= {row.folder for row in batch.sessions if row.folder}
        yield Insert("project", ("path",), [[path] for path in sorted(projects - self._projects)])
        repositories = {row.cwd: row.project for row in batch.sessions if row.cwd and row.project} | batch.projects
        named = [[path, version, identity] for path, identity in repositories.items()]
        yield Insert("repository", ("path", "version", "identity"), named)
        before = self._known_projects([row.uid for row in batch.replaced if not row.cwd])
        gone = self._names([row.uid for row in batch.replaced])
        # Events that are sent together have one version.
        if self._server.first is None:
            self._numbers = count(1)
        together = self._server.first or version
        events = [(row, together, row.cwd or "") for row in batch.events]
        events += [(row, version + 1, row.cwd or before.get(row.uid, "")) for row in batch.replaced]
        yield self._arrival(events)
        yield Insert("replaced", ("version", "number"), gone)
        yield Insert("exchange", EXCHANGE_WRITTEN, self._exchange_values(batch, version))
        usage = [[getattr(row, name) for name in USAGE_COLUMNS] for row in batch.usage]
        yield Insert("usage", USAGE_COLUMNS, usage)
        turns = [[*TURNS.values(row, version), self._machine] for row in (*batch.turns, *self._touched(batch))]
        yield Insert("turn", (*TURNS.names, "machine"), turns)
        yield Insert("session", SESSIONS.names, [SESSIONS.values(row, version) for row in self._identified(batch)])
        yield Insert("forgotten", ("mark",), [[digest] for digest in batch.forgotten])
        yield Insert("file", FILE_WRITTEN, [file_values(row, version, self._machine) for row in batch.files])
        if batch.folders is not None:
            yield Insert("meta", _META, [[self._machine, "folders", version, encode(batch.folders)]])
        if batch.sync is not None:
            # The other fields are computed when the state is read.
            stored = msgspec.structs.replace(
                batch.sync, index_behind=False, read_only=False, recovered=True, forgetting=(), writing=False
            )
            yield Insert("meta", _META, [[self._machine, "sync", version, encode(stored)]])

    def _touched(self, batch: Batch) -> Iterator[TurnRow]:
        """Turns that are written again as they are, because their traces change: those of usage that comes alone, and
        those of sessions whose parent is removed."""
        given = {(row.session, row.ordinal) for row in batch.turns}
        alone = {(row.session, max(row.turn, 1)) for row in batch.usage} - given
        of_usage = f"SELECT {TURN} FROM turn t FINAL WHERE (t.session, t.ordinal) IN %(names)s"
        of_children = (
            f"SELECT {TURN} FROM turn t FINAL "
            "WHERE t.session IN (SELECT key FROM session FINAL WHERE parent IN %(names)s)"
        )
        found = [*self._server.rows_of(of_usage, [*alone]), *self._server.rows_of(of_children, batch.removed)]
        for row in map(read_turn, found):
            if row.session not in batch.removed and (row.session, row.ordinal) not in given:
                yield row

    def _identified(self, batch: Batch) -> list[SessionRow]:
        """The sessions of a batch and those in its folders, with the identities of their repositories."""
        stored = self._server.rows_of(
            f"SELECT {SESSION} FROM session s FINAL WHERE s.cwd IN %(names)s", list(batch.projects), {}
        )
        found = (row for row in map(read_session, stored) if row.key not in batch.removed)
        known = {row.key: row for row in found if _is_unidentified(row)}
        return [
            msgspec.structs.replace(row, project=batch.projects[row.cwd])
            if row.cwd in batch.projects and _is_unidentified(row)
            else row
            for row in (known | {row.key: row for row in batch.sessions}).values()
        ]

    def _known_projects(self, uids: Sequence[bytes]) -> dict[bytes, str]:
        """The projects of events that are replaced: a record that does not name its folder keeps it."""
        rows = self._server.rows_in(f"SELECT e.uid, e.project FROM event e FINAL WHERE {BY_UID}", uids)
        return dict(rows)

    def _names(self, uids: Sequence[bytes]) -> list[Values]:
        """The names that postings have for events."""
        rows = self._server.rows_in(f"SELECT DISTINCT e.version, e.number FROM event e WHERE {BY_UID}", uids)
        return [list(row) for row in rows]

    def _exchange_values(self, batch: Batch, version: int) -> list[Values]:
        events = {row.uid: row for row in (*batch.events, *batch.replaced)}
        uids = {uid for row in batch.exchanges for uid in uids_of(row)}
        events |= {row.uid: row for row in self.events(part=Part(uids=tuple(uids - events.keys())))}
        texts = (without_marks(_exchange_text(row, events)) for row in batch.exchanges)
        return [
            exchange_values(row, version, text_tokens(text)) for row, text in zip(batch.exchanges, texts, strict=True)
        ]

    def _next_version(self) -> int:
        """Later writes win, of this writer and, by the clock, of others. A batch takes two numbers."""
        self._version = max(self._version + 2, time.time_ns())
        return self._version

    # What is written can be found at once

    def flush(self, *, wait: bool = True) -> None:
        """Only the traces are behind: an insert returns when its rows and their indexes are written. Traces are not
        made of what is being sent."""
        if wait or not self._server.is_sending:
            self._server.settle()
            self._traces.project(self._version, _PROJECT_SECONDS)

    @contextmanager
    def bulk(self, size: int) -> Iterator[None]:
        try:
            with self._server.in_background():
                yield
        except BaseException:
            self._projects.clear()  # some may not have been sent
            raise

    def recover(self, *, reindex: bool = False) -> None:
        if reindex:
            self._reindex()
        for key, remember, wipe in self._server.rows("SELECT key, remember, wipe FROM forget FINAL"):
            family = self._family(key)
            for member in family:
                if remember:
                    self._remember(member)
                self._delete_copies(member, wipe=wipe)
            self._delete_postings(family)
            self._delete(family, wipe=wipe)
            self._spans.delete(family, telemetry=True, remember=remember, wipe=wipe)
            for table in ("project", "repository"):
                self._server.delete(table, _UNUSED, {}, wipe=wipe)
            self._projects.clear()
            self._server.delete("forget", "key = %(key)s", {"key": key})
        self._glances.keep(self._still_there)
        self._traces.project(self._traces.newest(), _PROJECT_SECONDS)

    def _still_there(self, keys: Sequence[str]) -> list[str]:
        return [key for (key,) in self._server.rows_of("SELECT key FROM session FINAL WHERE key IN %(names)s", keys)]

    def _reindex(self) -> None:
        """Write all events and exchanges again, with the tokens that this version finds them by."""
        first = self._next_version()
        for (key,) in self._server.rows("SELECT DISTINCT session FROM event"):
            version, self._numbers = self._next_version(), count(1)
            for turn in self.turns(key):
                events = self.events(key, turn.ordinal)
                projects = self._known_projects([row.uid for row in events])
                arrival = self._arrival((row, version, projects.get(row.uid, "")) for row in events)
                self._server.send([arrival], version)
        for table in ("posting", "document", "replaced"):
            self._server.delete(table, "version < %(first)s", {"first": first})
        for (key,) in self._server.rows("SELECT DISTINCT session FROM exchange"):
            exchanges = self._exchange_rows(key)
            self._server.insert(
                "exchange", EXCHANGE_WRITTEN, self._exchange_values(Batch(exchanges=exchanges), self._next_version())
            )

    # Deleting

    def _family(self, key: str) -> list[str]:
        """A session and all that it started, directly or not."""
        family = [key]
        for member in family:
            family += [
                row.key for row in self.sessions(SessionsRequest(parent=member, empty=True)) if row.key not in family
            ]
        return family

    def _remember(self, key: str) -> None:
        digests = self._server.rows(
            "SELECT uid FROM event WHERE session = %(key)s "
            "UNION ALL SELECT key FROM usage FINAL WHERE session = %(key)s",
            {"key": key},
        )
        mark = session_mark(key)
        self._server.insert("forgotten", ("mark",), [[mark], *([digest] for (digest,) in digests)])
        turns = [[mark.hex(), turn_key] for turn_key in self.turn_keys(key)]
        self._server.insert("forgotten_turn", ("session", "turn_key"), turns)

    def _delete(self, keys: Sequence[str], *, wipe: bool = False) -> None:
        values = {"keys": tuple(keys), "files": tuple(tuple(key.split("/", 1)) for key in keys)}
        for table in _OF_SESSIONS:
            self._server.delete(table, "session IN %(keys)s", values, wipe=wipe)
        self._server.delete("file", "(source, session) IN %(files)s", values, wipe=wipe)
        self._server.delete("session", "key IN %(keys)s", values, wipe=wipe)

    def _delete_postings(self, keys: Sequence[str]) -> None:
        """Take the events of sessions out of the postings. A cut leaves the events, so that it is done again."""
        gone = [tuple(row) for row in self._server.rows_of(_NUMBERED, keys)]
        for start in range(0, len(gone), _NUMBERS_AT_ONCE):
            some = tuple(gone[start : start + _NUMBERS_AT_ONCE])
            values = {"gone": some, "versions": tuple({version for version, _ in some})}
            self._server.change("posting", _TAKE_OUT, values)

    def _delete_copies(self, key: str, *, wipe: bool) -> None:
        """Take the events of a session out of the exchanges of others (forks), which are numbered anew."""
        uids = {uid for (uid,) in self._server.rows("SELECT uid FROM event WHERE session = %(key)s", {"key": key})}
        forks = self._server.rows(
            "SELECT DISTINCT x.session FROM exchange x WHERE x.session <> %(key)s AND (x.user IN (SELECT e.uid FROM "
            "event e WHERE e.session = %(key)s) OR hasAny(x.said, (SELECT groupArray(e.uid) FROM event e WHERE "
            "e.session = %(key)s)))",
            {"key": key},
        )
        for (fork,) in forks:
            kept = [row for row in self._exchange_rows(fork) if without(row, uids)]
            for number, row in enumerate(kept):
                row.number = number
            session = self.session(fork)
            self._server.delete("exchange", _OF_SESSION, {"key": fork}, wipe=wipe)
            if session is None:
                continue
            times = [row.ts for row in kept]
            session.exchange_count = len(kept)
            session.first_at = min([session.started_at or min(times, default=0), *times])
            session.last_at = max([session.updated_at, *times])
            self.write(Batch(sessions=[session], exchanges=kept))

    def _exchange_rows(self, key: str) -> list[ExchangeRow]:
        return [found.row for found in self.exchanges(ExchangesRequest(session=key, texts=False))]

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._lock.release()


def _is_unidentified(row: SessionRow) -> bool:
    """True without an identity, or with one of a repository that had no remote, which has an `@`."""
    return row.project is None or "@" in row.project


def _exchange_text(row: ExchangeRow, events: dict[bytes, EventRow]) -> str:
    """An exchange is found by words spread over the user's text, the answers and the names of the tools."""
    said = [events[uid] for uid in split_uids(row.said) if uid in events]
    user = events.get(row.user) if row.user else None
    texts = [row.user_text if row.user_text is not None or user is None else text_of(user)]
    texts += [each.text for each in said if each.type is not EventType.TOOL_CALL]
    texts.append("tools: " + " ".join(sorted({each.tool or "" for each in said if each.type is EventType.TOOL_CALL})))
    return "\n".join(text or "" for text in texts)

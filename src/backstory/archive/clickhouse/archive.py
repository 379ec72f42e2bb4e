"""The archive on a ClickHouse server: the tables are the record and the index."""

from __future__ import annotations

import time
import uuid
from functools import cached_property
from pathlib import Path
from typing import Any

from ...config import make_private_folder
from ...files import replacing
from ...model import EVENT_TYPES, EventRef, EventType, Ref, SessionRef, TurnRef
from ..base import (
    Archive,
    ArchiveError,
    Counts,
    EventRow,
    Opened,
    OpenedEvent,
    OpenedSession,
    OpenedTurn,
    Part,
    SessionRow,
    SyncState,
    TurnRow,
)
from ..lock import WriterLock, is_held
from .glances import Glances
from .migrations import keep, migrate
from .reading import having, of_types
from .rows import read_event
from .search import Searching
from .server import Server, hexed
from .spans.store import ClickHouseSpans
from .spans.turns import TraceFeed
from .together import read_together
from .writer import ClickHouseWriter

_BESIDE = (
    "(SELECT key FROM session FINAL WHERE event_count > 0 AND source = %(source)s AND ifNull(cwd, '') = %(cwd)s "
    "AND (started_at, public_id) {} (%(started)s, %(id)s) ORDER BY started_at {order}, public_id {order} LIMIT 1)"
)
_CHILDREN = (
    "(SELECT arrayMap(c -> c.3, arraySort(groupArray((started_at, public_id, key)))) FROM session FINAL "
    "WHERE parent = %(key)s AND event_count > 0{})"
)
# The events at the places of a uid, and beside them, these without their texts.
_EVENT_WITH_NEIGHBOURS = (
    "SELECT e.row, if(e.uid = {0}, e.body, '') FROM event e FINAL WHERE (e.session, e.turn, e.ordinal) GLOBAL IN "
    "(SELECT session, turn, toUInt32(ordinal + arrayJoin([-1, 0, 1])) FROM place WHERE uid = {0})"
)


class ClickHouseArchive(Searching, Archive):
    """Opens (and creates) a database of a server. The home folder has the id of this machine and the writer lock."""

    def __init__(
        self,
        home: Path,
        url: str,
        projection: str | None = None,
        *,
        keep_days: int | None = None,
        cluster: str | None = None,
    ) -> None:
        self.home = make_private_folder(home)
        self._projection = projection
        server = Server(url, cluster)
        migrate(server)
        if keep_days is not None:
            keep(server, keep_days)
        super().__init__(server, _machine_id(home))

    def close(self) -> None:
        self._server.close()

    def writer(self) -> ClickHouseWriter:
        spans = self.spans.writer
        feed = TraceFeed(self._server, self._machine, spans, self._projection)
        return ClickHouseWriter(self._server, self._machine, WriterLock(self.home), spans, feed, Glances(self.home))

    @cached_property
    def spans(self) -> ClickHouseSpans:
        return ClickHouseSpans(self._server, self._events_between)

    def forget(self, key: str, *, remember: bool = True, wipe: bool = True) -> None:
        names = ("key", "version", "remember", "wipe")
        self._server.insert("forget", names, [(key, time.time_ns(), remember, wipe)])

    # Opening

    def _open(self, ref: Ref, part: Part) -> Opened | None:
        if isinstance(ref, SessionRef):
            return self._open_session(ref, part)
        return self._open_turn(ref, part) if isinstance(ref, TurnRef) else self._open_event(ref, part)

    def _open_session(self, ref: SessionRef, part: Part) -> OpenedSession | None:
        session = self.session(ref.key)
        if session is None:
            return None
        of_types = len(part.types) < len(EVENT_TYPES)
        previous, following, parent, children, total = self._server.row(
            f"SELECT {_BESIDE.format('<', order='DESC')}, {_BESIDE.format('>', order='ASC')}, "
            "(SELECT key FROM session FINAL WHERE key = %(parent)s LIMIT 1), "
            f"{_CHILDREN.format('')}, "
            f"(SELECT count() FROM turn t FINAL WHERE t.session = %(key)s AND {having(part.types)})",
            {
                "key": ref.key,
                "parent": session.parent or "",
                "source": session.source,
                "cwd": session.cwd or "",
                "started": session.started_at,
                "id": str(ref),
            },
        )
        return OpenedSession(
            session=session,
            turns=self.turns(ref.key, part),
            total=total if of_types else session.turn_count,
            previous=previous,
            next=following,
            parent=parent,
            children=children,
        )

    def _open_turn(self, ref: TurnRef, part: Part) -> OpenedTurn | None:
        around = self._turns_around(ref)
        if ref.ordinal not in around:
            return None
        turn, session = around[ref.ordinal]
        if part.heads:
            self._add_heads([turn], part.heads)
        total, first, last, count = self._server.row(
            f"SELECT countIf({of_types(part.types)}), argMin(e.uid, e.ordinal), argMax(e.uid, e.ordinal), count() "
            "FROM event e FINAL WHERE e.session = %(key)s AND e.turn = %(turn)s",
            {"key": ref.key, "turn": ref.ordinal},
        )
        return OpenedTurn(
            session=session,
            turn=turn,
            events=self.events(ref.key, ref.ordinal, part),
            total=total,
            first=first if count else None,
            last=last if count else None,
            has_previous=ref.ordinal - 1 in around,
            has_next=ref.ordinal + 1 in around,
        )

    def _turns_around(self, ref: TurnRef) -> dict[int, tuple[TurnRow, SessionRow]]:
        """A turn with the one before and the one after, by ordinal."""
        ordinals = range(max(ref.ordinal - 1, 0), ref.ordinal + 2)
        _, turns, sessions = read_together(self._server, [(ref.key, ordinal) for ordinal in ordinals])
        return {ordinal: (turn, sessions[key]) for (key, ordinal), turn in turns.items() if key in sessions}

    def _open_event(self, ref: EventRef, part: Part) -> OpenedEvent | None:
        beside = [read_event(row) for row in self._server.rows(_EVENT_WITH_NEIGHBOURS.format(hexed([ref.uid])))]
        event = next((each for each in beside if each.uid == ref.uid), None)
        if event is None:
            return None
        around = self._turns_around(TurnRef(event.session, event.turn))
        if event.turn not in around:
            if self.session(event.session) is None:
                return None
            raise ArchiveError("the turn of this event is missing; `backstory doctor` may tell why")
        uids = {each.ordinal: each.uid for each in beside if (each.session, each.turn) == (event.session, event.turn)}
        turn, session = around[event.turn]
        return OpenedEvent(
            session=session,
            turn=turn,
            event=event,
            events=[] if part.around is None else self.events(event.session, event.turn, part),
            previous=uids.get(event.ordinal - 1),
            next=uids.get(event.ordinal + 1),
            has_previous_turn=event.turn - 1 in around,
            has_next_turn=event.turn + 1 in around,
            children=self._started_by(event),
        )

    def _started_by(self, event: EventRow) -> list[str]:
        """The sessions that a call has started."""
        if event.call_id is None:
            return []
        started = _CHILDREN.format(" AND parent_call = %(call)s")
        (keys,) = self._server.row(f"SELECT {started}", {"key": event.session, "call": event.call_id})
        return list(keys)

    def _number(self, sql: str, **parameters: Any) -> int:
        row = self._server.row(sql, parameters)
        return int(row[0]) if row else 0

    # State

    def sync_state(self, *, folders: bool = False) -> SyncState:
        state = super().sync_state(folders=folders)
        state.writing = is_held(self.home)
        return state

    def counts(self) -> Counts:
        by_source = self._server.rows(
            "SELECT source, count(), sum(turn_count), sum(event_count) FROM session FINAL WHERE event_count > 0 "
            "GROUP BY source ORDER BY source"
        )
        files = self._server.row(
            "SELECT count(), countIf(errors > 0), countIf(missing) FROM file FINAL "
            "WHERE machine = %(machine)s AND (session <> '' OR errors > 0)",
            {"machine": self._machine},
        )
        assert files is not None
        return Counts(
            sessions=sum(row[1] for row in by_source),
            turns=sum(row[2] for row in by_source),
            events=sum(row[3] for row in by_source),
            documents=self._number(f"SELECT count() FROM event FINAL WHERE type <> {EventType.UNKNOWN.code}"),
            files=files[0],
            files_with_errors=files[1],
            files_missing=files[2],
            by_source={row[0]: row[1] for row in by_source},
            bytes=self._number(
                "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = %(database)s",
                database=self._server.database,
            ),
        )


def _machine_id(home: Path) -> str:
    """The id that the files of this home have on the server, made once."""
    path = home / "machine-id"
    if not path.exists():
        with replacing(path) as file:
            file.write(uuid.uuid4().hex.encode())
    return path.read_text("ascii")

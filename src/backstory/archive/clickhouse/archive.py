"""The archive on a ClickHouse server: the tables are the record and the index."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any, overload

from ...config import make_private_folder
from ...model import EVENT_TYPES, EventRef, SessionRef, TurnRef
from ..base import (
    EVERYTHING,
    ArchiveError,
    Counts,
    OpenedEvent,
    OpenedSession,
    OpenedTurn,
    Part,
    SessionRow,
    SessionsRequest,
    SyncState,
    TurnRow,
)
from ..lock import WriterLock, is_held
from ..spans import Spans
from .reading import having, of_types
from .schema import keep, migrate
from .search import Searching
from .server import Server
from .writer import ClickHouseWriter

_NO_TRACES = (
    "the ClickHouse engine keeps no traces in this version: use the local engine for traces, usage and statistics"
)


class ClickHouseArchive(Searching):
    """Opens (and creates) a database of a server. The home folder has the id of this machine and the writer lock."""

    def __init__(self, home: Path, url: str, *, keep_days: int | None = None, cluster: str | None = None) -> None:
        self.home = make_private_folder(home)
        server = Server(url, cluster)
        migrate(server)
        if keep_days is not None:
            keep(server, keep_days)
        super().__init__(server, _machine_id(home))

    def close(self) -> None:
        self._server.close()

    def writer(self) -> ClickHouseWriter:
        return ClickHouseWriter(self._server, self._machine, WriterLock(self.home))

    @property
    def spans(self) -> Spans:
        raise ArchiveError(_NO_TRACES)

    def forget(self, key: str, *, remember: bool = True, wipe: bool = True) -> None:
        names = ("key", "version", "remember", "wipe")
        self._server.insert("forget", names, [(key, time.time_ns(), remember, wipe)])

    # Opening

    @overload
    def open(self, ref: SessionRef, part: Part = EVERYTHING) -> OpenedSession | None: ...
    @overload
    def open(self, ref: TurnRef, part: Part = EVERYTHING) -> OpenedTurn | None: ...
    @overload
    def open(self, ref: EventRef, part: Part = EVERYTHING) -> OpenedEvent | None: ...
    def open(
        self, ref: SessionRef | TurnRef | EventRef, part: Part = EVERYTHING
    ) -> OpenedSession | OpenedTurn | OpenedEvent | None:
        if isinstance(ref, SessionRef):
            return self._open_session(ref, part)
        return self._open_turn(ref, part) if isinstance(ref, TurnRef) else self._open_event(ref, part)

    def _open_session(self, ref: SessionRef, part: Part) -> OpenedSession | None:
        session = self.session(ref.key)
        if session is None:
            return None
        total = session.turn_count
        if len(part.types) < len(EVENT_TYPES):
            total = self._number(
                f"SELECT count() FROM turn t FINAL WHERE t.session = %(key)s AND {having(part.types)}", key=ref.key
            )
        previous, following = self._beside(session)
        return OpenedSession(
            session=session,
            turns=self.turns(ref.key, part),
            total=total,
            previous=previous,
            next=following,
            parent=session.parent if session.parent and self.session(session.parent) else None,
            children=self._children(ref.key),
        )

    def _beside(self, session: SessionRow) -> tuple[str | None, str | None]:
        """The keys of the sessions before and after it, in the same project and source."""
        found = []
        for beyond, order in (("<", "DESC"), (">", "ASC")):
            row = self._server.row(
                "SELECT key FROM session FINAL WHERE event_count > 0 AND source = %(source)s "
                "AND ifNull(cwd, '') = %(cwd)s AND (started_at, public_id) "
                f"{beyond} (%(started)s, %(id)s) ORDER BY started_at {order}, public_id {order} LIMIT 1",
                {
                    "source": session.source,
                    "cwd": session.cwd or "",
                    "started": session.started_at,
                    "id": str(SessionRef(session.key)),
                },
            )
            found.append(row[0] if row else None)
        return found[0], found[1]

    def _children(self, key: str, call: str | None = None) -> list[str]:
        """The keys of the sessions that a session started, or one tool call of it."""
        request = SessionsRequest(parent=key, order="started_at", ascending=True)
        return [row.key for row in self.sessions(request) if call is None or row.parent_call == call]

    def _open_turn(self, ref: TurnRef, part: Part) -> OpenedTurn | None:
        session = self.session(ref.key)
        around = self._turns_around(ref, heads=part.heads)
        turn = around.get(ref.ordinal)
        if session is None or turn is None:
            return None
        place = {"key": ref.key, "turn": ref.ordinal}
        row = self._server.row(
            f"SELECT countIf({of_types(part.types)}), argMin(e.uid, e.ordinal), argMax(e.uid, e.ordinal), count() "
            "FROM event e FINAL WHERE e.session = %(key)s AND e.turn = %(turn)s",
            place,
        )
        assert row is not None
        total, first, last, count = row
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

    def _turns_around(self, ref: TurnRef, heads: int = 0) -> dict[int, TurnRow]:
        """A turn with the one before and the one after it, by ordinal."""
        part = Part(above=ref.ordinal - 2, below=ref.ordinal + 2, heads=heads)
        return {turn.ordinal: turn for turn in self.turns(ref.key, part)}

    def _open_event(self, ref: EventRef, part: Part) -> OpenedEvent | None:
        event = next(iter(self.events(part=Part(uids=(ref.uid,)))), None)
        session = None if event is None else self.session(event.session)
        if event is None or session is None:
            return None
        around = self._turns_around(TurnRef(event.session, event.turn))
        if event.turn not in around:
            raise ArchiveError("the turn of this event is missing; `backstory doctor` may tell why")
        near = Part(above=event.ordinal - 2, below=event.ordinal + 2, texts=False)
        beside = {row.ordinal: row.uid for row in self.events(event.session, event.turn, near)}
        return OpenedEvent(
            session=session,
            turn=around[event.turn],
            event=event,
            events=[] if part.around is None else self.events(event.session, event.turn, part),
            previous=beside.get(event.ordinal - 1),
            next=beside.get(event.ordinal + 1),
            has_previous_turn=event.turn - 1 in around,
            has_next_turn=event.turn + 1 in around,
            children=[] if event.call_id is None else self._children(event.session, event.call_id),
        )

    def _number(self, sql: str, **parameters: Any) -> int:
        row = self._server.row(sql, parameters)
        return int(row[0]) if row else 0

    # State

    def sync_state(self) -> SyncState:
        state = super().sync_state()
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
            documents=self._statistics().documents,
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
        new = path.with_suffix(".new")
        new.write_text(uuid.uuid4().hex, "ascii")
        new.replace(path)
    return path.read_text("ascii")

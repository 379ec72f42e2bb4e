"""Writing the archive: one process at a time, the record first, the index after it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...model import EVENT_TYPES, EventType
from ..base import ArchiveBusy, Batch, EventRow, FileRow, Place, SessionRow, SyncState, TurnRow
from ..render import render_call
from .bodies import Bodies, train_dictionary
from .documents import TURN_SOURCE, EventDocument, TurnDocument, turn_number
from .index import Index, IndexWriter
from .rows import (
    EVENT_COLUMNS,
    FILE_COLUMNS,
    SESSION_COLUMNS,
    TURN_COLUMNS,
    USAGE_COLUMNS,
    event_values,
    file_values,
    read_event,
    read_file,
    read_session,
    read_turn,
    session_values,
    turn_values,
    usage_values,
)

if TYPE_CHECKING:
    import filelock

    from .spans.projection import Projection
    from .spans.store import LocalSpans

__all__ = ["LocalWriter", "take_lock"]

_REFEED_ROWS = 2_000


def take_lock(home: Path) -> filelock.BaseFileLock:
    """The writer lock. It is the system's: it is free again the moment its holder dies."""
    import filelock

    lock = filelock.FileLock(home / "writer.lock", timeout=0, mode=0o600)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise ArchiveBusy("another Backstory process is writing the archive") from None
    return lock


def _upsert(table: str, columns: Sequence[str], key: Sequence[str]) -> str:
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    updates = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
    return f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT ({', '.join(key)}) DO UPDATE SET {updates}"


_UPSERT_SESSION = _upsert("session", ("public_id", *SESSION_COLUMNS), ("key",))
_UPSERT_TURN = _upsert("turn", ("session", "change", *TURN_COLUMNS), ("session", "ordinal"))
_UPSERT_FILE = _upsert("file", FILE_COLUMNS, ("path",))
_INSERT_EVENT = (
    "INSERT INTO event (id, uid, session, turn, ordinal, type, ts, project, tool, model, originating_model, usage, "
    "body, facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_GROWING = tuple(name for name in USAGE_COLUMNS if name.endswith("_tokens"))
_UPSERT_USAGE = (
    f"INSERT INTO usage (key, session, {', '.join(USAGE_COLUMNS[1:])}) VALUES (?{', ?' * len(USAGE_COLUMNS)}) "
    f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = max({name}, excluded.{name})' for name in _GROWING)}, "
    "cost = coalesce(excluded.cost, cost), stop_reason = coalesce(excluded.stop_reason, stop_reason), "
    "model = coalesce(excluded.model, model)"
)

# Traces show usage: the turn that has it, wherever the call was told again, has changed.
_TOUCH_TURN = (
    "UPDATE turn SET change = ?1 FROM usage u WHERE u.key = ?2 AND turn.session = u.session "
    "AND turn.ordinal = max(u.turn, 1) AND turn.change < ?1"
)
# Traces wait for nobody: what is left after this many seconds is projected with the next flush.
_PROJECT_SECONDS = 3.0


class LocalWriter:
    """Holds the writer lock until it is closed."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        events: Index,
        turns: Index,
        spans: LocalSpans,
        lock: filelock.BaseFileLock,
    ) -> None:
        self._db = connection
        self._events = events
        self._turns = turns
        self._spans = spans
        self._lock = lock
        self._bodies = Bodies(self._dictionary)
        self._session_ids: dict[str, int] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._next_event = 1 + self._scalar("SELECT max(id) FROM event")
        self._change = self._indexed_change = self._scalar("SELECT max(change) FROM turn")
        # Opened when first needed: a sync that finds nothing new should not pay for them.
        self._event_writer: IndexWriter | None = None
        self._turn_writer: IndexWriter | None = None
        self._unflushed = False
        self._projection: Projection | None = None
        self._projected = min(spans.projected, self._change)

    # Reading what is there, inside the writer's own view

    def files(self) -> dict[str, FileRow]:
        rows = self._db.execute(f"SELECT {', '.join(FILE_COLUMNS)} FROM file")
        return {row[0]: read_file(row) for row in rows}

    def session(self, key: str) -> SessionRow | None:
        row = self._db.execute(f"SELECT {', '.join(SESSION_COLUMNS)} FROM session WHERE key = ?", (key,)).fetchone()
        return read_session(row) if row else None

    def turn(self, key: str, ordinal: int) -> TurnRow | None:
        session = self._session_id(key)
        row = self._db.execute(
            f"SELECT {', '.join(TURN_COLUMNS)} FROM turn WHERE session = ? AND ordinal = ?", (session, ordinal)
        ).fetchone()
        return read_turn(key, row) if row else None

    def places(self, uids: Sequence[bytes]) -> dict[bytes, Place]:
        found: dict[bytes, Place] = {}
        for start in range(0, len(uids), 500):
            chunk = uids[start : start + 500]
            marks = ", ".join("?" * len(chunk))
            rows = self._db.execute(
                f"SELECT e.uid, s.key, e.turn FROM event e JOIN session s ON s.id = e.session WHERE e.uid IN ({marks})",
                chunk,
            )
            found.update((uid, Place(key, turn)) for uid, key, turn in rows)
        return found

    def turn_keys(self, key: str) -> frozenset[str]:
        rows = self._db.execute(
            "SELECT turn_key FROM turn WHERE session = ? AND turn_key IS NOT NULL", (self._session_id(key),)
        )
        return frozenset(turn_key for (turn_key,) in rows)

    # Writing

    def write(self, batch: Batch) -> None:
        new_dictionary = None
        if not self._bodies.trained and batch.events:
            new_dictionary = train_dictionary(event.text for event in batch.events)
        first_event = self._next_event
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if new_dictionary:
                self._db.execute("INSERT INTO meta (name, value) VALUES ('dictionary', ?)", (new_dictionary,))
                self._bodies.learn(new_dictionary)
            self._write_rows(batch)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            self._forget_uncommitted(first_event)
            raise
        if batch.events:
            self._feed(batch.events, first_event)
        self._unflushed |= bool(batch.events or batch.turns)

    def _write_rows(self, batch: Batch) -> None:
        db = self._db
        db.executemany(_UPSERT_SESSION, [session_values(row) for row in batch.sessions])
        events = []
        for row in batch.events:
            project = self._number("project", "path", row.cwd) if row.cwd else None
            events.append(event_values(self._next_event, self._session_id(row.session), project, row, self._bodies))
            self._next_event += 1
        db.executemany(_INSERT_EVENT, events)
        if batch.turns or batch.usage:
            self._change += 1
            turns = [turn_values(self._session_id(row.session), self._change, row) for row in batch.turns]
            db.executemany(_UPSERT_TURN, turns)
        db.executemany(_UPSERT_USAGE, [usage_values(self._session_id(row.session), row) for row in batch.usage])
        changed = {(row.session, row.ordinal) for row in batch.turns}
        touched = [row.key for row in batch.usage if (row.session, max(row.turn, 1)) not in changed]
        db.executemany(_TOUCH_TURN, [(self._change, key) for key in touched])
        db.executemany(_UPSERT_FILE, [file_values(row) for row in batch.files])

    def _forget_uncommitted(self, next_event: int) -> None:
        self._next_event = next_event
        self._session_ids.clear()
        self._numbers.clear()
        self._bodies = Bodies(self._dictionary)

    def _feed(self, events: list[EventRow], first_id: int) -> None:
        writer = self._open_events()
        for id, row in enumerate(events, first_id):
            if row.type is not EventType.UNKNOWN:
                document = EventDocument(
                    id,
                    render_call(row.tool, row.arguments) if row.type is EventType.TOOL_CALL else row.text,
                    self._session_id(row.session),
                    row.turn,
                    row.type.code,
                    self._number("project", "path", row.cwd) if row.cwd else 0,
                    self._number("source", "name", row.session.partition("/")[0]),
                    row.ts,
                )
                writer.add(document.entry())

    def flush(self) -> None:
        if self._unflushed:
            self._flush_index()
        if self._projected < self._change:
            self._project()

    def _project(self) -> None:
        """Let the traces follow."""
        if self._projection is None:
            from .spans.projection import Projection

            self._projection = Projection(
                self._db, self._spans, lambda body: self._bodies.unpack(body), self._projected
            )
        self._projected = self._projection.follow(self._change, time.monotonic() + _PROJECT_SECONDS)

    def _flush_index(self) -> None:
        self._open_events().commit()
        if self._feed_turns(self._open_turns(), self._indexed_change):
            self._open_turns().commit()
        self._indexed_change = self._change
        self._unflushed = False

    def recover(self) -> bool:
        """Bring the index to what the record has, after a writer that died or an update. True if it was behind."""
        if self._events.outdated or self._turns.outdated:
            self.rebuild_index()
            return True
        last_event = self._db.execute(
            "SELECT id FROM event WHERE type <> ? ORDER BY id DESC LIMIT 1", (EventType.UNKNOWN.code,)
        ).fetchone()
        committed, indexed = last_event[0] if last_event else 0, self._events.highest("id")
        if indexed > committed:  # the index outlived a power cut that the record's last commits did not
            self._open_events().delete_above("id", committed)
        for document in self._documents(indexed):
            self._open_events().add(document.entry())
        self._indexed_change = self._turns.highest("change")
        if self._indexed_change > self._change:  # likewise; what these turns were before is not in the index any more
            self._rebuild_turns()
        self._unflushed = indexed != committed or bool(self._changed_turns(self._indexed_change))
        behind = self._unflushed
        self.flush()
        return behind

    def rebuild_index(self) -> int:
        for writer in (self._event_writer, self._turn_writer):
            if writer is not None:
                writer.close()
        self._event_writer = self._turn_writer = None
        self._unflushed = False
        self._rebuild_turns()
        return self._events.build(self._feed_all)

    def _rebuild_turns(self) -> None:
        self._indexed_change = self._change
        self._turns.build(lambda writer: self._feed_turns(writer, 0))

    def _feed_all(self, writer: IndexWriter) -> int:
        count = 0
        for document in self._documents(0):
            writer.add(document.entry())
            count += 1
        return count

    def _feed_turns(self, writer: IndexWriter, after: int) -> int:
        """Turns grow: each takes the place of what was known of it."""
        changed = self._changed_turns(after)
        if after and changed:
            writer.delete("turn", [turn_number(session, ordinal) for session, ordinal, *_ in changed])
        for row in changed:
            writer.add(self._turn_document(*row).entry())
        return len(changed)

    def _open_events(self) -> IndexWriter:
        if self._event_writer is None:
            self._event_writer = self._events.writer()
        return self._event_writer

    def _open_turns(self) -> IndexWriter:
        if self._turn_writer is None:
            self._turn_writer = self._turns.writer()
        return self._turn_writer

    def _documents(self, after: int) -> Iterator[EventDocument]:
        """The searchable events above an id, in order, read in pages so that no transaction stays open."""
        columns = ", ".join(f"e.{name}" for name in EVENT_COLUMNS)
        while True:
            rows = self._db.execute(
                f"SELECT e.id, e.session, s.key, s.source, e.project, {columns} "
                "FROM event e JOIN session s ON s.id = e.session WHERE e.id > ? ORDER BY e.id LIMIT ?",
                (after, _REFEED_ROWS),
            ).fetchall()
            if not rows:
                return
            for id, session, key, source, project, *values in rows:
                if EVENT_TYPES[values[3]] is EventType.UNKNOWN:
                    continue
                row = read_event(key, values, self._bodies)
                number = self._number("source", "name", source)
                yield EventDocument(id, row.text, session, row.turn, row.type.code, project or 0, number, row.ts)
            after = rows[-1][0]

    def _changed_turns(self, after: int) -> list[tuple[int, int, int, str, int, str]]:
        """The turns that changed after `after`, of the sessions that are read turn by turn."""
        return self._db.execute(
            "SELECT t.session, t.ordinal, t.change, t.tools, t.started_at, s.folder FROM turn t "
            "JOIN session s ON s.id = t.session "
            "WHERE t.change > ? AND t.prompt IS NOT NULL AND s.source = ? AND s.folder IS NOT NULL "
            "AND s.parent IS NULL",
            (after, TURN_SOURCE),
        ).fetchall()

    def _turn_document(self, session: int, ordinal: int, change: int, tools: str, ts: int, folder: str) -> TurnDocument:
        bodies = self._db.execute(
            "SELECT body FROM event WHERE session = ? AND turn = ? AND type IN (?, ?) ORDER BY type, ordinal",
            (session, ordinal, EventType.USER_INPUT.code, EventType.ASSISTANT_RESPONSE.code),
        )
        texts = [self._bodies.unpack(body) for (body,) in bodies]
        texts.append("tools: " + " ".join(sorted(msgspec.json.decode(tools))))
        place = self._number("project", "path", folder)
        return TurnDocument(session, ordinal, change, "\n".join(texts), place, ts)

    def sync_state(self) -> SyncState:
        row = self._db.execute("SELECT value FROM meta WHERE name = 'sync'").fetchone()
        return msgspec.json.decode(row[0], type=SyncState) if row else SyncState()

    def set_sync_state(self, state: SyncState) -> None:
        self._set_meta("sync", msgspec.json.encode(state).decode())

    def close(self) -> None:
        try:
            self.flush()
            for writer in (self._event_writer, self._turn_writer):
                if writer is not None:
                    writer.close()
            self._db.execute("PRAGMA optimize")
        finally:
            if self._projection is not None:
                self._projection.close()
            self._db.close()
            self._lock.release()

    def _session_id(self, key: str) -> int:
        number = self._session_ids.get(key)
        if number is None:
            row = self._db.execute("SELECT id FROM session WHERE key = ?", (key,)).fetchone()
            if row is None:
                return 0
            number = self._session_ids[key] = row[0]
        return number

    def _number(self, table: str, column: str, name: str) -> int:
        number = self._numbers.get((table, name))
        if number is None:
            self._db.execute(f"INSERT INTO {table} ({column}) VALUES (?) ON CONFLICT DO NOTHING", (name,))
            number = self._scalar(f"SELECT id FROM {table} WHERE {column} = ?", name)
            self._numbers[table, name] = number
        return number

    def _dictionary(self) -> bytes | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = 'dictionary'").fetchone()
        return row[0] if row else None

    def _set_meta(self, name: str, value: int | str) -> None:
        self._db.execute(
            "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    def _scalar(self, sql: str, *parameters: object) -> int:
        row = self._db.execute(sql, parameters).fetchone()
        return int(row[0] or 0) if row else 0

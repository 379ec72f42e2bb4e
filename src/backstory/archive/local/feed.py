"""The search index, brought to the state of the record from wherever it was left."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...model import EventType
from ...sqlite import select_in, snapshot
from ...toolcalls import render_call
from ..base import ArchiveError
from .bodies import Bodies
from .database import highest, newest_change, stored_dictionary
from .documents import EventDocument, ExchangeDocument, turn_number
from .index import Index, IndexWriter
from .rows import has_failed, split_uids

if TYPE_CHECKING:
    from .spans.turns import TraceFeed

_PAGE_ROWS = 2_000
_PAGE_BYTES = 4 << 20
_PAGE_STALE = 200
_PAGE_EXCHANGES = 200
_CALL, _RESPONSE, _UNKNOWN = EventType.TOOL_CALL.code, EventType.TOOL_RESPONSE.code, EventType.UNKNOWN.code

_SELECT_EVENTS = f"""
SELECT e.id, e.session, e.turn, e.type, e.project, o.id, e.ts, e.tool, coalesce(e.originating_model, e.model),
    CASE WHEN e.type = {_RESPONSE} THEN e.facts END, e.body
FROM event e JOIN session s ON s.id = e.session JOIN source o ON o.name = s.source
WHERE e.id > ? ORDER BY e.id LIMIT ?
"""
_SELECT_STALE = "SELECT id, session, turn, event, key FROM stale WHERE id > ? ORDER BY id LIMIT ?"
_SELECT_EXCHANGES = """
SELECT x.session, x.number, x.change, x.ts, p.id, x.user, x.user_text, x.said
FROM exchange x JOIN session s ON s.id = x.session JOIN project p ON p.path = s.folder
WHERE x.{} ? ORDER BY x.change
"""
# Of tool calls only the tools are indexed.
_SELECT_PARTS = f"SELECT uid, type, tool, CASE WHEN type <> {_CALL} THEN body END FROM event WHERE uid IN ({{}})"


class _Exchange(NamedTuple):
    session: int
    number: int
    change: int
    ts: int
    folder: int
    user: bytes | None
    user_text: str | bytes | None
    said: bytes


class _Part(NamedTuple):
    """An event of an exchange."""

    type: int
    tool: str | None
    body: str | bytes | None


class Feed:
    """Feeds the index from the record. Used by one process at a time: the writer, or the process that works for it.

    `traces` follows the same record.
    """

    def __init__(self, record: sqlite3.Connection, events: Index, exchanges: Index, traces: TraceFeed) -> None:
        self._record = record
        self._events = events
        self._exchanges = exchanges
        self.traces = traces
        self._bodies = Bodies(lambda: stored_dictionary(record))
        self._fed_event: int | None = None
        self._fed_change = 0
        # Exchanges of sessions with higher numbers are not in the index.
        self._fed_session = 0
        self._deleted_stale = 0
        self._uncommitted = self._uncommitted_exchanges = False
        # Opened when first needed: a sync that finds nothing new should not pay for them.
        self._event_writer: IndexWriter | None = None
        self._exchange_writer: IndexWriter | None = None

    def feed(self) -> None:
        """Take in the events that were committed; they are found after the next flush."""
        with self._all_or_nothing():
            if self._fed_event is None:
                self._locate()
            self._delete_stale()
            for document in self._documents():
                self._uncommitted = True
                _add_event(self._open_events(), document)

    def flush(self) -> bool:
        """Make everything that was committed searchable. True if something was missing."""
        with self._all_or_nothing():
            self.feed()
            behind = self._uncommitted
            if self._uncommitted:
                self._open_events().commit()
                self._uncommitted = False
            newest = self._newest_change()
            if newest > self._fed_change and self._feed_exchanges(self._open_exchanges(), self._fed_change):
                behind = self._uncommitted_exchanges = True
            if self._uncommitted_exchanges:
                self._open_exchanges().commit()
                self._uncommitted_exchanges = False
            self._fed_change = newest
        return behind

    def rebuild(self) -> int:
        """New indexes from everything in the record, swapped in when complete. Returns the number of events."""
        self._close_index()
        with self._all_or_nothing():
            self._rebuild_exchanges()
            return self._events.build(self._feed_all)

    def close(self) -> None:
        """Without a flush: what was fed since the last one is missing in the index, and will be fed again."""
        with ExitStack() as parts:
            parts.callback(self._close_index)
            parts.callback(self.traces.close)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Roll back on an error: what was fed is fed again later, and would be found twice."""
        try:
            yield
        except BaseException:
            self._fed_event, self._deleted_stale = None, 0
            self._uncommitted = self._uncommitted_exchanges = False
            for writer in (self._event_writer, self._exchange_writer):
                if writer is not None:
                    with suppress(ArchiveError):  # the first error is the one to report
                        writer.rollback()
            raise

    def _locate(self) -> None:
        """Find where the index stands after a writer that died, a power cut, or an update."""
        if any(index.outdated or index.damaged for index in (self._events, self._exchanges)):
            self.rebuild()
            self._uncommitted = True
            return
        newest = self._record.execute(
            "SELECT id FROM event WHERE type <> ? ORDER BY id DESC LIMIT 1", (_UNKNOWN,)
        ).fetchone()
        committed = newest[0] if newest else 0
        indexed = self._events.highest("id", committed)
        if indexed > committed:  # the index outlived a power cut that the record's last commits did not
            self._open_events().delete_above("id", committed)
            self._uncommitted = True
        self._fed_event = min(indexed, committed)
        newest_change = self._newest_change()
        self._fed_change = self._exchanges.highest("change", newest_change)
        self._fed_session = self._newest_session()
        if self._fed_change > newest_change:  # likewise; what these exchanges were before is not in the index
            self._rebuild_exchanges()

    def _delete_stale(self) -> None:
        """Delete the documents of replaced events, which are fed under a new number, and of forgotten sessions."""
        while rows := self._record.execute(_SELECT_STALE, (self._deleted_stale, _PAGE_STALE)).fetchall():
            turns: dict[int, list[int]] = defaultdict(list)
            for _, session, turn, event, key in rows:
                if key is not None:  # its number is not given again
                    for writer in (self._open_events(), self._open_exchanges()):
                        writer.delete("session", [session])
                    self._uncommitted = self._uncommitted_exchanges = True
                elif not event:  # the exchanges of a session that are numbered anew, and fed again
                    self._feed_again(session)
                else:
                    turns[turn_number(session, turn)].append(event)
            if turns:
                self._open_events().delete_within("turn", turns, "id")
                self._uncommitted = True
            self._deleted_stale = rows[-1][0]

    def _documents(self) -> Iterator[EventDocument]:
        """The searchable events that were not fed yet, in order, read in pages so that no transaction stays open."""
        unpack = self._bodies.unpack
        while rows := self._page():
            for id, session, turn, kind, project, source, ts, tool, model, facts, body in rows:
                if kind != _UNKNOWN:
                    text = unpack(body)
                    if kind == _CALL:
                        text = render_call(tool, msgspec.json.decode(text) if text else None)
                    failed = facts is not None and has_failed(facts)
                    yield EventDocument(id, text, session, turn, kind, project or 0, source, ts, model, failed)
            self._fed_event = rows[-1][0]

    def _page(self) -> list[Any]:
        """The next rows: some thousand, or fewer large ones."""
        rows, size = [], 0
        for row in self._record.execute(_SELECT_EVENTS, (self._fed_event, _PAGE_ROWS)):
            rows.append(row)
            size += len(row[-1] or "")
            if size > _PAGE_BYTES:
                break
        return rows

    def _feed_all(self, writer: IndexWriter) -> int:
        self._fed_event, self._uncommitted = 0, False
        count = 0
        for document in self._documents():
            _add_event(writer, document)
            count += 1
        return count

    def _rebuild_exchanges(self) -> None:
        self._fed_change = self._newest_change()
        self._exchanges.build(lambda writer: self._feed_exchanges(writer, 0))

    def _feed_exchanges(self, writer: IndexWriter, after: int) -> int:
        """Exchanges grow: each takes the place of what was known of it. A commit on the way is at the end of a change,
        because `_locate` finds by the highest change what is missing."""
        with snapshot(self._record):
            newest = self._newest_session()
            rows = self._record.execute(_SELECT_EXCHANGES.format("change >"), (after,))
            count, change = 0, after
            for page in _pages(_Exchange(*row) for row in rows):
                if writer.is_full and page[0].change > change:
                    writer.commit()
                change = page[-1].change
                known = [turn_number(one.session, one.number) for one in page if one.session <= self._fed_session]
                if after and known:  # every part of the index is searched for them
                    writer.delete("exchange", known)
                self._add_exchanges(writer, page)
                count += len(page)
        self._fed_session = newest
        return count

    def _feed_again(self, session: int) -> None:
        """All exchanges of a session take the place of all that was known, also of those that have not changed."""
        self._open_exchanges().delete("session", [session])
        self._uncommitted_exchanges = True
        if self._fed_change:  # else all of them are about to be fed
            self._fed_session = max(self._fed_session, session)
            with snapshot(self._record):
                rows = self._record.execute(_SELECT_EXCHANGES.format("session ="), (session,)).fetchall()
                self._add_exchanges(self._open_exchanges(), [_Exchange(*row) for row in rows])

    def _add_exchanges(self, writer: IndexWriter, exchanges: Sequence[_Exchange]) -> None:
        uids = [uid for one in exchanges for uid in (*split_uids(one.said), *([one.user] if one.user else ()))]
        parts = {uid: _Part(*row) for uid, *row in select_in(self._record, _SELECT_PARTS, uids)}
        for one in exchanges:
            text = self._exchange_text(one, parts)
            document = ExchangeDocument(one.session, one.number, one.change, text, one.folder, one.ts)
            writer.add(document.entry(), len(text))

    def _exchange_text(self, exchange: _Exchange, found: Mapping[bytes, _Part]) -> str:
        unpack = self._bodies.unpack
        parts = [found[uid] for uid in split_uids(exchange.said) if uid in found]
        prompt = found.get(exchange.user) if exchange.user else None
        is_own = exchange.user_text is not None or prompt is None
        texts = [unpack(exchange.user_text if is_own or prompt is None else prompt.body)]
        texts += [unpack(part.body) for part in parts if part.type != _CALL]
        texts.append("tools: " + " ".join(sorted({part.tool or "" for part in parts if part.type == _CALL})))
        return "\n".join(texts)

    def _newest_change(self) -> int:
        return newest_change(self._record)

    def _newest_session(self) -> int:
        return highest(self._record, "session")

    def _open_events(self) -> IndexWriter:
        if self._event_writer is None:
            self._event_writer = self._events.writer()
        return self._event_writer

    def _open_exchanges(self) -> IndexWriter:
        if self._exchange_writer is None:
            self._exchange_writer = self._exchanges.writer()
        return self._exchange_writer

    def _close_index(self) -> None:
        with ExitStack() as writers:
            for writer in (self._event_writer, self._exchange_writer):
                if writer is not None:
                    writers.callback(writer.close)
            self._event_writer = self._exchange_writer = None


def _add_event(writer: IndexWriter, document: EventDocument) -> None:
    if writer.is_full:  # `_locate` finds by the highest number what is missing
        writer.commit()
    writer.add(document.entry(), len(document.text))


def _pages(exchanges: Iterable[_Exchange]) -> Iterator[list[_Exchange]]:
    """Exchanges of one change, so many that their events can be looked up at once."""
    for _, group in groupby(exchanges, key=attrgetter("change")):
        while page := list(islice(group, _PAGE_EXCHANGES)):
            yield page

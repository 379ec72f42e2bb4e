"""Feeding the search index: it follows the record from the last event that it has."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...model import EventType
from ...sqlite import select_in, snapshot
from ...toolcalls import render_call
from ..base import ArchiveError
from ..exchanges import split_uids
from ..query import IndexText, without_marks
from .bodies import Bodies
from .database import highest, newest_change, stored_dictionary
from .documents import EventDocument, ExchangeDocument, turn_number
from .index import Index, IndexWriter
from .rows import has_failed

if TYPE_CHECKING:
    from .spans.turns import TraceFeed

_PAGE_ROWS = 2_000
_PAGE_BYTES = 4 << 20
_PAGE_STALE = 200
_PAGE_EXCHANGES = 200
# Exchanges find the texts of the events that were fed last in memory: up to twice as many characters.
_RECENT_CHARS = 4 << 20
_CALL, _RESPONSE, _UNKNOWN = EventType.TOOL_CALL.code, EventType.TOOL_RESPONSE.code, EventType.UNKNOWN.code
# Types that are hardly ever part of an exchange.
_RARELY_SAID = frozenset((_RESPONSE, EventType.REASONING.code))
_Row = tuple[Any, ...]

_SELECT_EVENTS = f"""
SELECT e.id, e.session, e.turn, e.type, e.project, o.id, e.ts, e.tool, coalesce(e.originating_model, e.model),
    CASE WHEN e.type = {_RESPONSE} THEN e.facts END, e.uid, e.body
FROM event e JOIN session s ON s.id = e.session JOIN source o ON o.name = s.source
WHERE e.id > ? ORDER BY e.id LIMIT ?
"""
_SELECT_STALE = "SELECT id, session, turn, event, key FROM stale WHERE id > ? ORDER BY id LIMIT ?"
_SELECT_EXCHANGES = """
SELECT x.session, x.number, x.change, x.ts, p.id, x.user, x.user_text, x.said
FROM exchange x JOIN session s ON s.id = x.session JOIN project p ON p.path = s.folder
WHERE {} ORDER BY x.change
"""
_CHANGED, _OF_SESSION = "x.change > ? AND x.change <= ?", "x.session = ?"
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
    """An event of an exchange: the name of a tool that is called, or a text."""

    tool: str | None
    text: IndexText


_NO_TEXT = IndexText.of("")


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
        # The events that were fed last and may be part of exchanges, by uid, and those that were fed before them.
        self._recent: dict[bytes, _Part] = {}
        self._former: dict[bytes, _Part] = {}
        self._recent_chars = 0
        # Opened when first needed: a sync that finds nothing new should not pay for them.
        self._event_writer: IndexWriter | None = None
        self._exchange_writer: IndexWriter | None = None

    def feed(self) -> None:
        """Take in the events that were committed; they are found after the next flush."""
        with self._all_or_nothing():
            if self._fed_event is None:
                self._locate()
            self._delete_stale()
            while rows := self._page():
                self._uncommitted = True
                self._add_events(self._open_events(), rows)
                # An exchange of the latest change may grow with the next one: it waits, and is fed once.
                self._follow_exchanges(self._change_of(rows[-1]) - 1)

    def flush(self) -> bool:
        """Make everything that was committed searchable. True if something was missing."""
        with self._all_or_nothing():
            self.feed()
            behind = self._uncommitted
            if self._uncommitted:
                self._open_events().commit()
                self._uncommitted = False
            self._follow_exchanges(self._newest_change())
            if self._uncommitted_exchanges:
                behind = True
                self._open_exchanges().commit()
                self._uncommitted_exchanges = False
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
        if indexed < committed:
            # The second process of a writer that was killed may be about to commit. While this one writes, it cannot.
            self._open_events()
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

    def _add_events(self, writer: IndexWriter, rows: Sequence[_Row]) -> int:
        """Feed a page of events; those of an unknown type are not searchable. Returns the number of documents."""
        unpack, remember = self._bodies.unpack, self._remember
        count = 0
        for id, session, turn, kind, project, source, ts, tool, model, facts, uid, body in rows:
            if kind == _UNKNOWN:
                continue
            text = unpack(body)
            if kind == _CALL:
                text = render_call(tool, msgspec.json.decode(text) if text else None)
            indexed = _indexed(text)
            failed = facts is not None and has_failed(facts)
            document = EventDocument(id, text, indexed, session, turn, kind, project or 0, source, ts, model, failed)
            if writer.is_full:  # `_locate` finds by the highest number what is missing
                writer.commit()
            writer.add(document.entry(), len(text))
            if kind not in _RARELY_SAID:
                remember(uid, _Part(tool or "", _NO_TEXT) if kind == _CALL else _Part(None, indexed))
            count += 1
        self._fed_event = rows[-1][0]
        return count

    def _remember(self, uid: bytes, part: _Part) -> None:
        self._recent[uid] = part
        self._recent_chars += len(part.text.spaced)
        if self._recent_chars > _RECENT_CHARS:
            self._former, self._recent, self._recent_chars = self._recent, {}, 0

    def _change_of(self, row: _Row) -> int:
        """The change of an event's turn: that of the event, or a later one."""
        _, session, turn, *_ = row
        found = self._record.execute("SELECT change FROM turn WHERE session = ? AND ordinal = ?", (session, turn))
        return int((found.fetchone() or (0,))[0])

    def _page(self) -> list[_Row]:
        """The next events that were not fed: some thousand, or fewer large ones. They are read in pages so that no
        transaction stays open."""
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
        while rows := self._page():
            count += self._add_events(writer, rows)
        return count

    def _rebuild_exchanges(self) -> None:
        self._fed_change = newest = self._newest_change()
        self._exchanges.build(lambda writer: self._feed_exchanges(writer, 0, newest))

    def _follow_exchanges(self, until: int) -> None:
        """Feed the exchanges of the changes up to this one."""
        span = (self._fed_change, until)
        if until <= self._fed_change:
            return
        if self._record.execute("SELECT 1 FROM exchange WHERE change > ? AND change <= ? LIMIT 1", span).fetchone():
            self._uncommitted_exchanges = True
            self._feed_exchanges(self._open_exchanges(), *span)
        self._fed_change = until

    def _feed_exchanges(self, writer: IndexWriter, after: int, until: int) -> int:
        """Exchanges grow: each takes the place of what was known of it. A commit on the way is at the end of a change,
        because `_locate` finds by the highest change what is missing."""
        with snapshot(self._record):
            rows = self._record.execute(_SELECT_EXCHANGES.format(_CHANGED), (after, until))
            count, change, newest = 0, after, self._fed_session
            for page in _pages(_Exchange(*row) for row in rows):
                if writer.is_full and page[0].change > change:
                    writer.commit()
                change = page[-1].change
                known = [turn_number(one.session, one.number) for one in page if one.session <= self._fed_session]
                if after and known:  # every part of the index is searched for them
                    writer.delete("exchange", known)
                self._add_exchanges(writer, page)
                count += len(page)
                newest = max(newest, *[one.session for one in page])
        self._fed_session = newest
        return count

    def _feed_again(self, session: int) -> None:
        """All exchanges of a session take the place of all that was known, also of those that have not changed."""
        self._open_exchanges().delete("session", [session])
        self._uncommitted_exchanges = True
        if self._fed_change:  # else all of them are about to be fed
            self._fed_session = max(self._fed_session, session)
            with snapshot(self._record):
                rows = self._record.execute(_SELECT_EXCHANGES.format(_OF_SESSION), (session,)).fetchall()
                self._add_exchanges(self._open_exchanges(), [_Exchange(*row) for row in rows])

    def _add_exchanges(self, writer: IndexWriter, exchanges: Sequence[_Exchange]) -> None:
        recent, former = self._recent, self._former
        parts, others = dict[bytes, _Part](), list[bytes]()
        for one in exchanges:
            for uid in (*split_uids(one.said), *((one.user,) if one.user else ())):
                if (part := recent.get(uid) or former.get(uid)) is not None:
                    parts[uid] = part
                else:
                    others.append(uid)
        for uid, kind, tool, body in select_in(self._record, _SELECT_PARTS, others):
            text = _indexed(self._bodies.unpack(body))
            parts[uid] = _Part(tool or "", _NO_TEXT) if kind == _CALL else _Part(None, text)
        for one in exchanges:
            text = self._exchange_text(one, parts)
            document = ExchangeDocument(one.session, one.number, one.change, text, one.folder, one.ts)
            writer.add(document.entry(), len(text.spaced))

    def _exchange_text(self, exchange: _Exchange, found: Mapping[bytes, _Part]) -> IndexText:
        parts = [found[uid] for uid in split_uids(exchange.said) if uid in found]
        prompt = found.get(exchange.user) if exchange.user else None
        is_own = exchange.user_text is not None or prompt is None
        texts = [_indexed(self._bodies.unpack(exchange.user_text)) if is_own or prompt is None else prompt.text]
        texts += [part.text for part in parts if part.tool is None]
        texts.append(_tools(" ".join(sorted({part.tool for part in parts if part.tool is not None}))))
        return IndexText.joined(texts)

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


def _indexed(text: str) -> IndexText:
    return IndexText.of(without_marks(text))


@lru_cache(maxsize=1024)  # the same few combinations come again and again
def _tools(names: str) -> IndexText:
    return _indexed(f"tools: {names}")


def _pages(exchanges: Iterable[_Exchange]) -> Iterator[list[_Exchange]]:
    """Exchanges of one change, so many that their events can be looked up at once."""
    for _, group in groupby(exchanges, key=attrgetter("change")):
        while page := list(islice(group, _PAGE_EXCHANGES)):
            yield page

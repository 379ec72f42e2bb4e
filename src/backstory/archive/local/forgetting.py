"""Forgetting sessions: their rows are deleted, digests stay by which they are recognised, and the files are rewritten.

A request is a row of its own until all of it is done, so a process that dies on the way leaves it to the next writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...model import session_mark
from .bodies import Bodies, train_dictionary
from .database import highest, mark, newest_change, stored_dictionary
from .documents import FIELDS
from .index import Index, explained

if TYPE_CHECKING:
    import tantivy

__all__ = ["Request", "clean", "delete_requested", "request", "requested", "withdraw"]

_PAGE_ROWS = 1_000
_MIN_WORD_CHARS = 4
_WIPE, _WIPE_WITH_DICTIONARY = 1, 2

_FAMILY = """
WITH RECURSIVE family (key) AS (VALUES (?) UNION SELECT s.key FROM session s JOIN family f ON s.parent = f.key)
SELECT f.key, coalesce(s.id, 0) FROM family f LEFT JOIN session s ON s.key = f.key
"""
_UNUSED_PROJECTS = """
DELETE FROM project WHERE id NOT IN (SELECT project FROM event WHERE project IS NOT NULL)
AND path NOT IN (SELECT folder FROM session WHERE folder IS NOT NULL)
"""


class Request(NamedTuple):
    key: str
    remember: bool
    wipe: int


def request(db: sqlite3.Connection, key: str, *, remember: bool, wipe: bool) -> None:
    db.execute(
        "INSERT INTO forget (key, remember, wipe) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
        "remember = max(remember, excluded.remember), wipe = max(wipe, excluded.wipe)",
        (key, remember, wipe),
    )


def requested(db: sqlite3.Connection) -> list[Request]:
    rows = db.execute("SELECT key, remember, wipe FROM forget").fetchall()
    return [Request(key, bool(remember), wipe) for key, remember, wipe in rows]


def withdraw(db: sqlite3.Connection, requests: Iterable[Request]) -> None:
    """They are done."""
    db.executemany("DELETE FROM forget WHERE key = ?", [(request.key,) for request in requests])
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def delete_requested(db: sqlite3.Connection, requests: Iterable[Request], events: Index) -> None:
    """Delete the rows of the sessions and of those they started; index and traces follow by `stale`."""
    numbers = {
        "change": newest_change(db),
        **{f"highest {table}": highest(db, table) for table in ("event", "session")},
    }
    db.executemany("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", numbers.items())
    for key, remember, wipe in requests:
        family: list[tuple[str, int]] = db.execute(_FAMILY, (key,)).fetchall()
        if wipe == _WIPE and _is_in_dictionary(db, events, [session for _, session in family]):
            db.execute("UPDATE forget SET wipe = ? WHERE key = ?", (_WIPE_WITH_DICTIONARY, key))
        for member, session in family:
            if remember:
                _remember(db, member, session)
            _delete(db, member, session)
            db.execute(
                "INSERT INTO stale (session, turn, event, key, remember) VALUES (?, 0, 0, ?, ?)",
                (session, member, remember),
            )


def _remember(db: sqlite3.Connection, key: str, session: int) -> None:
    known = mark(session_mark(key))
    digests = db.execute(
        "SELECT uid FROM event WHERE session = ?1 UNION ALL SELECT key FROM usage WHERE session = ?1", (session,)
    )
    marks = [(known,), *((mark(digest),) for (digest,) in digests)]
    db.executemany("INSERT OR IGNORE INTO forgotten (mark) VALUES (?)", marks)
    db.execute(
        "INSERT OR IGNORE INTO forgotten_turn (session, turn_key) "
        "SELECT ?, turn_key FROM turn WHERE session = ? AND turn_key IS NOT NULL",
        (known, session),
    )


def _delete(db: sqlite3.Connection, key: str, session: int) -> None:
    source, _, native = key.partition("/")
    for table in ("event", "turn", "usage", "stale"):
        db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
    db.execute("DELETE FROM session WHERE id = ?", (session,))
    db.execute("DELETE FROM file WHERE source = ? AND session = ?", (source, native))


def _is_in_dictionary(db: sqlite3.Connection, events: Index, sessions: Sequence[int]) -> bool:
    """Whether the dictionary that texts are compressed with has a word that only these sessions have."""
    dictionary = stored_dictionary(db)
    snapshot = events.searcher()
    if dictionary is None or snapshot is None:
        return False
    analyze = events.analyzer.analyze
    learned = {word for word in analyze(dictionary.decode("utf-8", "replace")) if len(word) >= _MIN_WORD_CHARS}
    bodies = Bodies(lambda: dictionary)
    said: set[str] = set()
    for session in sessions:
        for (body,) in db.execute("SELECT body FROM event WHERE session = ?", (session,)):
            said.update(learned.intersection(analyze(bodies.unpack(body))))
    with explained():
        return any(_is_only_in(events.schema, snapshot, word, sessions) for word in said)


def _is_only_in(schema: tantivy.Schema, snapshot: tantivy.Searcher, word: str, sessions: Sequence[int]) -> bool:
    import tantivy

    either = [(tantivy.Occur.Should, tantivy.Query.term_query(schema, field, word, "basic")) for field in FIELDS]
    query = tantivy.Query.boolean_query(
        [
            (tantivy.Occur.Must, tantivy.Query.boolean_query(either)),
            (tantivy.Occur.MustNot, tantivy.Query.term_set_query(schema, "session", sessions)),
        ]
    )
    return not snapshot.search(query, 1, count=False).hits


def clean(db: sqlite3.Connection, requests: Iterable[Request]) -> None:
    """Remove what the sessions left in what all share: the dictionary, and the folders that no session names any more.
    The index knows folders by number, so it must be built anew."""
    if any(request.wipe == _WIPE_WITH_DICTIONARY for request in requests):
        _recompress(db)
    db.execute(_UNUSED_PROJECTS)


def _recompress(db: sqlite3.Connection) -> None:
    """Learn a new dictionary from the texts that are there, and compress all of them with it."""
    before = Bodies(lambda: stored_dictionary(db))
    latest = db.execute("SELECT body FROM event WHERE typeof(body) = 'blob' ORDER BY id DESC LIMIT ?", (_PAGE_ROWS,))
    dictionary = train_dictionary(before.unpack(body) for (body,) in latest.fetchall())
    after = Bodies(lambda: dictionary)
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("DELETE FROM meta WHERE name = 'dictionary'")
        if dictionary is not None:
            db.execute("INSERT INTO meta (name, value) VALUES ('dictionary', ?)", (dictionary,))
        last = 0
        while rows := db.execute(
            "SELECT id, body FROM event WHERE id > ? AND typeof(body) = 'blob' ORDER BY id LIMIT ?", (last, _PAGE_ROWS)
        ).fetchall():
            db.executemany(
                "UPDATE event SET body = ? WHERE id = ?", [(after.pack(before.unpack(body)), id) for id, body in rows]
            )
            last = rows[-1][0]
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise

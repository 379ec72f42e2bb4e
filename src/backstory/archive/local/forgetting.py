"""Forgetting sessions: their rows are deleted, digests stay by which they are recognised, and the files are rewritten.

A request is a row of its own until all of it is done, so a process that dies on the way leaves it to the next writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...model import session_mark
from ..exchanges import split_uids, without
from ..rows import ExchangeRow
from .bodies import Bodies, train_dictionary
from .database import highest, mark, newest_change, stored_dictionary
from .index import Index, explained

if TYPE_CHECKING:
    import tantivy

_PAGE_ROWS = 1_000
_MIN_WORD_CHARS = 4
_NEVER = 1 << 62
_WIPE, _WIPE_WITH_DICTIONARY = 1, 2
# The key of no session: telemetry of a session that is removed only to be read again stays.
_ANY = ""

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
    """Delete requests that are done."""
    db.executemany("DELETE FROM forget WHERE key = ?", [(request.key,) for request in requests])
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def delete_requested(db: sqlite3.Connection, requests: Iterable[Request], events: Index) -> None:
    """Delete the rows of the sessions and of those they started; index and traces follow by `stale`."""
    _keep_numbers(db)
    for key, remember, wipe in requests:
        family: list[tuple[str, int]] = db.execute(_FAMILY, (key,)).fetchall()
        if wipe == _WIPE and _is_in_dictionary(db, events, [session for _, session in family]):
            db.execute("UPDATE forget SET wipe = ? WHERE key = ?", (_WIPE_WITH_DICTIONARY, key))
        for member, session in family:
            if remember:
                _remember(db, member, session)
            _delete_copies(db, session)
            _delete(db, member, session)
            _follow(db, session, member, remember=remember)


def delete_sessions(db: sqlite3.Connection, keys: Iterable[str]) -> None:
    """Delete the rows of these sessions, which may come again; index and traces follow by `stale`. Those that they
    started change with them: their traces may lie elsewhere now."""
    _keep_numbers(db)
    change = newest_change(db) + 1
    db.execute("UPDATE meta SET value = ? WHERE name = 'change'", (change,))
    for key in keys:
        db.execute(
            "UPDATE turn SET change = ? WHERE session IN (SELECT id FROM session WHERE parent = ?)", (change, key)
        )
        found = db.execute("SELECT id FROM session WHERE key = ?", (key,)).fetchone()
        number = found[0] if found else 0
        _delete(db, key, number)
        _follow(db, number, _ANY, remember=False)


def _keep_numbers(db: sqlite3.Connection) -> None:
    """Record the highest numbers, so that those of deleted rows are not given again."""
    numbers = {
        "change": newest_change(db),
        **{f"highest {table}": highest(db, table) for table in ("event", "session")},
    }
    db.executemany("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", numbers.items())


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
    for table in ("event", "turn", "usage", "exchange"):
        db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
    db.execute("DELETE FROM stale WHERE session = ? AND key IS NULL", (session,))
    db.execute("DELETE FROM session WHERE id = ?", (session,))
    db.execute("DELETE FROM file WHERE source = ? AND session = ?", (source, native))


def _delete_copies(db: sqlite3.Connection, session: int) -> None:
    """Take the events of a session out of the exchanges of others (forks), which are numbered anew."""
    uids = {uid for (uid,) in db.execute("SELECT uid FROM event WHERE session = ?", (session,))}
    others = db.execute("SELECT session, user, said FROM exchange WHERE session <> ?", (session,))
    forks = {other for other, user, said in others if user in uids or not uids.isdisjoint(split_uids(said))}
    if not forks:
        return
    change = newest_change(db) + 1
    db.execute("UPDATE meta SET value = ? WHERE name = 'change'", (change,))
    for fork in forks:
        kept = _without(db, fork, uids)
        db.execute("DELETE FROM exchange WHERE session = ?", (fork,))
        db.executemany(
            "INSERT INTO exchange (session, number, change, ts, user, user_text, said) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(fork, number, change, *row) for number, row in enumerate(kept)],
        )
        times = [ts for ts, *_ in kept]
        db.execute(
            "UPDATE session SET exchange_count = ?, first_at = min(coalesce(nullif(started_at, 0), ?), ?), "
            "last_at = max(updated_at, ?) WHERE id = ?",
            (len(kept), min(times, default=0), min(times, default=_NEVER), max(times, default=0), fork),
        )
        db.execute("INSERT INTO stale (session, turn, event) VALUES (?, 0, 0)", (fork,))


def _without(db: sqlite3.Connection, session: int, uids: set[bytes]) -> list[tuple[Any, ...]]:
    """The exchanges of a session without these events; those of which nothing is left are left out."""
    kept = []
    for ts, user, user_text, said in db.execute(
        "SELECT ts, user, user_text, said FROM exchange WHERE session = ? ORDER BY number", (session,)
    ).fetchall():
        row = ExchangeRow(session="", number=0, ts=ts, user=user, said=bytearray(said))
        if without(row, uids):
            kept.append((ts, row.user, None if row.user is None else user_text, bytes(row.said)))
    return kept


def _follow(db: sqlite3.Connection, session: int, key: str, *, remember: bool) -> None:
    db.execute(
        "INSERT INTO stale (session, turn, event, key, remember) VALUES (?, 0, 0, ?, ?)", (session, key, remember)
    )


def _is_in_dictionary(db: sqlite3.Connection, events: Index, sessions: Sequence[int]) -> bool:
    """True if the compression dictionary has a word that only these sessions have."""
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

    query = tantivy.Query.boolean_query(
        [
            (tantivy.Occur.Must, tantivy.Query.term_query(schema, "text", word, "basic")),
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
    db.execute("INSERT INTO session_title (session_title) VALUES ('rebuild')")


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
        texts = db.execute(
            "SELECT session, number, user_text FROM exchange WHERE typeof(user_text) = 'blob'"
        ).fetchall()
        db.executemany(
            "UPDATE exchange SET user_text = ? WHERE session = ? AND number = ?",
            [(after.pack(before.unpack(text)), session, number) for session, number, text in texts],
        )
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise

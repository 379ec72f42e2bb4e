"""The record: archive.db, its tables and their migrations, and the numbers it gives to rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...model import EventType
from ...sqlite import Unusable, is_damage
from ..errors import ArchiveError
from ..query import analyzer, index_text, tokens
from ..rows import SyncState

if TYPE_CHECKING:
    import tantivy

_ANSWER, _CALL = EventType.ASSISTANT_RESPONSE.code, EventType.TOOL_CALL.code

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE source (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE project (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    public_id TEXT NOT NULL,
    source TEXT NOT NULL,
    title TEXT NOT NULL, title_rank INTEGER NOT NULL,
    summary TEXT, slug TEXT, folder TEXT, cwd TEXT, last_cwd TEXT, branch TEXT, version TEXT,
    parent TEXT, parent_call TEXT, forked_from TEXT,
    started_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    turn_count INTEGER NOT NULL, event_count INTEGER NOT NULL,
    completed INTEGER NOT NULL, mode TEXT NOT NULL
) STRICT;
CREATE INDEX session_window ON session (updated_at, public_id, started_at, mode, source) WHERE event_count > 0;
CREATE INDEX session_neighbours ON session (source, cwd, started_at, public_id) WHERE event_count > 0;
CREATE INDEX session_folder ON session (source, folder, updated_at) WHERE event_count > 0 AND folder IS NOT NULL;
CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL;

CREATE TABLE turn (
    session INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    change INTEGER NOT NULL,
    turn_key TEXT,
    started_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, event_count INTEGER NOT NULL,
    prompt BLOB, terminal BLOB, terminal_type INTEGER, candidate BLOB, last_answer BLOB,
    tools TEXT NOT NULL, types TEXT NOT NULL, started_work INTEGER NOT NULL,
    PRIMARY KEY (session, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX turn_change ON turn (change);

CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    uid BLOB NOT NULL UNIQUE,
    session INTEGER NOT NULL, turn INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    type INTEGER NOT NULL, ts INTEGER NOT NULL, project INTEGER,
    tool TEXT, model TEXT, originating_model TEXT, usage BLOB,
    body ANY, facts TEXT,
    UNIQUE (session, turn, ordinal)
) STRICT;

CREATE TABLE usage (
    key BLOB PRIMARY KEY,
    session INTEGER NOT NULL, turn INTEGER NOT NULL, ts INTEGER NOT NULL, model TEXT,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL, cache_write_5m_tokens INTEGER NOT NULL, cache_write_1h_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL, cost REAL, stop_reason TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_place ON usage (session, turn);

CREATE TABLE file (
    path TEXT PRIMARY KEY,
    source TEXT NOT NULL, session TEXT NOT NULL,
    inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    offset INTEGER NOT NULL, prefix BLOB NOT NULL,
    state TEXT, errors INTEGER NOT NULL, last_error TEXT, missing INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

# `said` is the uids of events, one after the other. Exchanges of an older archive are its turns, until the transcripts
# are read again from their start; where those are gone it stays so. (group_concat keeps the bytes of what it joins.)
_EXCHANGES = f"""
CREATE TABLE exchange (
    session INTEGER NOT NULL, number INTEGER NOT NULL,
    change INTEGER NOT NULL,
    ts INTEGER NOT NULL, user BLOB, user_text ANY, said BLOB NOT NULL,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX exchange_change ON exchange (change);

ALTER TABLE session ADD COLUMN first_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN last_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN exchange_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN provisional INTEGER NOT NULL DEFAULT 0;
UPDATE session SET first_at = started_at, last_at = updated_at WHERE event_count > 0;
DROP INDEX session_folder;
CREATE INDEX session_folder ON session (source, folder, last_at)
    WHERE folder IS NOT NULL AND parent IS NULL AND last_at > 0;

INSERT INTO exchange SELECT t.session, row_number() OVER (PARTITION BY t.session ORDER BY t.ordinal) - 1, t.change,
    t.started_at, t.prompt, NULL, CAST(coalesce((
        SELECT group_concat(CAST(uid AS TEXT), '') FROM (
            SELECT e.uid FROM event e WHERE e.session = t.session AND e.turn = t.ordinal
            AND e.type IN ({_ANSWER}, {_CALL}) ORDER BY e.ordinal)), '') AS BLOB)
    FROM turn t JOIN session s ON s.id = t.session
    WHERE s.source = 'claude-code' AND s.folder IS NOT NULL AND s.parent IS NULL
    AND (t.prompt IS NOT NULL OR t.types GLOB '*[{_ANSWER}{_CALL}]*');
UPDATE session SET provisional = 1, exchange_count = n
    FROM (SELECT session AS owner, count(*) AS n FROM exchange GROUP BY session) WHERE id = owner;
UPDATE file SET size = -1, prefix = x''
    WHERE source = 'claude-code' AND session <> '' AND path NOT GLOB '*/agent-*.jsonl'
"""

# One entry per version: what takes a database from that version to the next. Append only.
MIGRATIONS: tuple[str, ...] = (
    _TABLES,
    # What follows the record only reads it: names are numbered by the writer, with the session.
    """
    INSERT OR IGNORE INTO source (name) SELECT DISTINCT source FROM session;
    INSERT OR IGNORE INTO project (path) SELECT DISTINCT folder FROM session WHERE folder IS NOT NULL
    """,
    # The provider's id of a model call: by it telemetry and the transcript are known to report the same one.
    "ALTER TABLE usage ADD COLUMN request TEXT",
    # An event that is replaced gets a new number, and is fed to the index like a new one. Its former number waits here
    # until the index has deleted the document.
    """
    CREATE TABLE stale (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session INTEGER NOT NULL, turn INTEGER NOT NULL, event INTEGER NOT NULL
    ) STRICT
    """,
    # `forget` has the sessions that are to be forgotten, until they are. Of a forgotten one, `stale` has the key until
    # index and traces have followed. `forgotten` has the first eight bytes of the digests by which it and its events
    # are recognised, `forgotten_turn` the agent's own ids of its turns, by which copies of them are.
    """
    CREATE TABLE forget (key TEXT PRIMARY KEY, remember INTEGER NOT NULL, wipe INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE forgotten (mark INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE forgotten_turn (
        session INTEGER NOT NULL, turn_key TEXT NOT NULL, PRIMARY KEY (session, turn_key)
    ) STRICT, WITHOUT ROWID;
    ALTER TABLE stale ADD COLUMN key TEXT;
    ALTER TABLE stale ADD COLUMN remember INTEGER NOT NULL DEFAULT 0
    """,
    _EXCHANGES,
    # Titles are found by their words, and are evidence for the events of their sessions.
    """
    CREATE VIRTUAL TABLE session_title USING fts5 (
        title, content = 'session', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
    );
    CREATE TRIGGER title_added AFTER INSERT ON session BEGIN
        INSERT INTO session_title (rowid, title) VALUES (new.id, new.title);
    END;
    CREATE TRIGGER title_changed AFTER UPDATE OF title ON session WHEN old.title IS NOT new.title BEGIN
        INSERT INTO session_title (session_title, rowid, title) VALUES ('delete', old.id, old.title);
        INSERT INTO session_title (rowid, title) VALUES (new.id, new.title);
    END;
    CREATE TRIGGER title_removed AFTER DELETE ON session BEGIN
        INSERT INTO session_title (session_title, rowid, title) VALUES ('delete', old.id, old.title);
    END;
    INSERT INTO session_title (session_title) VALUES ('rebuild')
    """,
    # The identity of the repository of a session, and of the folders that events are in.
    """
    ALTER TABLE session ADD COLUMN project TEXT;
    ALTER TABLE project ADD COLUMN identity TEXT
    """,
    # By these a search that no writer serves sees what is new: folders by their times, files by the latest changes.
    """
    CREATE TABLE folder (
        path TEXT NOT NULL, source TEXT NOT NULL, mtime_ns INTEGER NOT NULL, PRIMARY KEY (path, source)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX file_time ON file (mtime_ns)
    """,
    # The origin of a session that was received for a team.
    """
    ALTER TABLE session ADD COLUMN user TEXT;
    ALTER TABLE session ADD COLUMN machine TEXT
    """,
    # Titles are split as the search index splits texts, so that those in scripts without spaces are found by word.
    """
    DROP TRIGGER title_added;
    DROP TRIGGER title_changed;
    DROP TRIGGER title_removed;
    DROP TABLE session_title;
    CREATE VIEW session_title_words AS SELECT id, title_words(title) AS title FROM session;
    CREATE VIRTUAL TABLE session_title USING fts5 (
        title, content = 'session_title_words', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
    );
    CREATE TRIGGER title_added AFTER INSERT ON session BEGIN
        INSERT INTO session_title (rowid, title) VALUES (new.id, title_words(new.title));
    END;
    CREATE TRIGGER title_changed AFTER UPDATE OF title ON session WHEN old.title IS NOT new.title BEGIN
        INSERT INTO session_title (session_title, rowid, title) VALUES ('delete', old.id, title_words(old.title));
        INSERT INTO session_title (rowid, title) VALUES (new.id, title_words(new.title));
    END;
    CREATE TRIGGER title_removed AFTER DELETE ON session BEGIN
        INSERT INTO session_title (session_title, rowid, title) VALUES ('delete', old.id, title_words(old.title));
    END;
    INSERT INTO session_title (session_title) VALUES ('rebuild')
    """,
    # All by which a change of a file shows, without its row, most of which is the state of a parser.
    """
    DROP INDEX file_time;
    CREATE INDEX file_stamp ON file (mtime_ns, source, inode, size, missing)
    """,
    # Few rows, which the projection looks for whenever it has caught up (`LocalRecord.loose_usage`).
    "CREATE INDEX usage_loose ON usage (session) WHERE turn = 0",
    # The names of files (`FileRow.names`). Those of files that are there are in the states that ingest kept with them.
    """
    CREATE TABLE file_name (path TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (path, name)) STRICT, WITHOUT ROWID;
    CREATE INDEX file_by_name ON file_name (name);
    CREATE TRIGGER file_removed AFTER DELETE ON file BEGIN
        DELETE FROM file_name WHERE path = old.path;
    END;
    INSERT OR IGNORE INTO file_name SELECT path, session FROM file WHERE session <> '';
    INSERT OR IGNORE INTO file_name SELECT path, state ->> '$.standing.family' FROM file
        WHERE state ->> '$.standing.family' IS NOT NULL;
    INSERT OR IGNORE INTO file_name SELECT f.path, n.value FROM file f, json_each(f.state, '$.standing.after') n;
    INSERT OR IGNORE INTO file_name SELECT f.path, n.value FROM file f, json_each(f.state, '$.ancestors') n
        WHERE n.type = 'text'
    """,
)


@contextmanager
def explained(path: Path, damaged: str) -> Iterator[None]:
    """Around the preparation of a database: turns what is wrong with it into messages that name the cure."""
    try:
        yield
    except Unusable as error:
        raise ArchiveError(str(error)) from None
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        raise ArchiveError(damaged.format(path, error)) from error


def title_words(title: str) -> str:
    """The words of a title, as queries have them. When this changes, a migration must rebuild `session_title`."""
    text = " ".join(index_text(title.rstrip("…")))  # which stands where a title was cut
    # The same words, but the analyzer takes a tenth of a millisecond, and there is a title for every session.
    return " ".join(tokens(text) if text.isascii() else _analyzer().analyze(text))


@cache
def _analyzer() -> tantivy.TextAnalyzer:
    return analyzer()


FUNCTIONS = {"title_words": title_words}
"""Needed by every connection that writes."""


def stored_dictionary(connection: sqlite3.Connection) -> bytes | None:
    """The dictionary that texts are compressed with; None before there are enough of them to train one."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'dictionary'").fetchone()
    return row[0] if row else None


def newest_change(connection: sqlite3.Connection) -> int:
    """The number of the last commit that changed turns, exchanges or usage. Usage may belong to no turn."""
    (newest,) = connection.execute(
        "SELECT max(coalesce((SELECT max(change) FROM turn), 0), "
        "coalesce((SELECT value FROM meta WHERE name = 'change'), 0))"
    ).fetchone()
    return int(newest)


def highest(connection: sqlite3.Connection, table: str) -> int:
    """The highest number ever given in a table, also to rows that were deleted: none is given twice."""
    row = connection.execute(
        f"SELECT max(coalesce((SELECT max(id) FROM {table}), 0), coalesce((SELECT value FROM meta WHERE name = ?), 0))",
        (f"highest {table}",),
    ).fetchone()
    return int(row[0])


def mark(digest: bytes) -> int:
    """The number that is stored for a digest: its first eight bytes."""
    return int.from_bytes(digest[:8], "big", signed=True)


class Followed(NamedTuple):
    """The last event, change and projected change that index and traces have: `meta.followed`."""

    event: int
    change: int
    projected: int


class Progress(NamedTuple):
    sync: SyncState
    recovered: bool
    """Index and traces have everything, and no request to forget is pending."""


_PROGRESS = """
SELECT (SELECT value FROM meta WHERE name = 'sync'), (SELECT value FROM meta WHERE name = 'followed'),
    coalesce((SELECT max(id) FROM event), 0), coalesce((SELECT max(change) FROM turn), 0),
    coalesce((SELECT value FROM meta WHERE name = 'change'), 0), EXISTS (SELECT 1 FROM stale),
    (SELECT json_group_array(key) FROM forget)
"""
_decode_sync = msgspec.json.Decoder(SyncState).decode
_decode_followed = msgspec.json.Decoder(Followed).decode


def progress_of(connection: sqlite3.Connection) -> Progress:
    sync, followed, event, change, other_change, stale, forgetting = connection.execute(_PROGRESS).fetchone()
    state = _decode_sync(sync) if sync else SyncState()
    state.forgetting = tuple(msgspec.json.decode(forgetting))
    reached = _decode_followed(followed) if followed else None
    recovered = (
        reached is not None
        and reached.event >= event
        and min(reached.change, reached.projected) >= max(change, other_change)
        and not stale
        and not state.forgetting
    )
    return Progress(state, recovered)

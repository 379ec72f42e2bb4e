"""The schema of traces.db. Traces have a file of their own, so that any process can receive spans."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from ....sqlite import connect, transaction
from ....sqlite import prepare as prepare_database
from ...errors import DAMAGED_TRACES
from ..database import explained
from .attributes import add_functions

QUARTER_MS = 900_000
# Rows of the table `usage`; the caller adds conditions and `USAGE_GROUPS`.
USAGE_OF_SPANS = f"""
SELECT s.trace, s.start / {QUARTER_MS} AS quarter, s.model, s.call IS NOT NULL AS named,
    min(s.start) AS first, max(s.start) AS last, count(*) AS calls,
    coalesce(sum(coalesce(s.input, s.total)), 0) AS input, coalesce(sum(s.output), 0) AS output,
    coalesce(sum(s.cache_read), 0) AS cache_read, coalesce(sum(s.cache_write), 0) AS cache_write,
    coalesce(sum(s.reasoning), 0) AS reasoning, sum(s.cost) AS cost, sum(s.cost IS NULL) AS unpriced
FROM span s WHERE s.counts AND s.twin IS NULL
    AND (s.input IS NOT NULL OR s.output IS NOT NULL OR s.total IS NOT NULL OR s.cost IS NOT NULL)
"""
USAGE_GROUPS = "GROUP BY 1, 2, 3, 4"

# `name` numbers what repeats: names of spans, models, stop reasons. `span.uid` is unique within its trace only.
# Projected spans point at the events they were made from: `session` and `turn` as in archive.db, `first` and `last` are
# ordinals, `cause` is the model call that asked for a tool. `host` is where a subagent's session was started.
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE path (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE trace (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    name TEXT, named INTEGER NOT NULL, status INTEGER NOT NULL, start INTEGER NOT NULL, updated INTEGER NOT NULL,
    latency INTEGER, cost REAL, tokens INTEGER,
    session TEXT, native TEXT, source TEXT, project TEXT, dataset_run TEXT,
    projected INTEGER NOT NULL
) STRICT;
CREATE INDEX trace_start ON trace (start);
CREATE INDEX trace_updated ON trace (updated);
CREATE INDEX trace_status ON trace (status, start);
CREATE INDEX trace_name ON trace (name) WHERE name IS NOT NULL;
CREATE INDEX trace_latency ON trace (latency) WHERE latency IS NOT NULL;
CREATE INDEX trace_cost ON trace (cost) WHERE cost IS NOT NULL;
CREATE INDEX trace_tokens ON trace (tokens) WHERE tokens IS NOT NULL;
CREATE INDEX trace_session ON trace (session, start) WHERE session IS NOT NULL;
CREATE INDEX trace_native ON trace (native, start) WHERE native IS NOT NULL;
CREATE INDEX trace_dataset_run ON trace (dataset_run, start) WHERE dataset_run IS NOT NULL;

CREATE TABLE span (
    id INTEGER PRIMARY KEY,
    trace INTEGER NOT NULL, uid INTEGER NOT NULL, parent INTEGER,
    name INTEGER NOT NULL, type INTEGER NOT NULL, status INTEGER NOT NULL,
    start INTEGER NOT NULL, end INTEGER, model INTEGER,
    input INTEGER, output INTEGER, cache_read INTEGER, cache_write INTEGER, cache_write_1h INTEGER,
    reasoning INTEGER,
    cost REAL, cost_reported INTEGER NOT NULL, counts INTEGER NOT NULL,
    stop_reason INTEGER, exit_code INTEGER,
    session INTEGER, turn INTEGER, first INTEGER, last INTEGER, cause INTEGER,
    UNIQUE (uid, trace)
) STRICT;
CREATE INDEX span_trace ON span (trace, start);
CREATE INDEX span_start ON span (start);
CREATE INDEX span_name ON span (name, start);
CREATE INDEX span_status ON span (status, start);
CREATE INDEX span_type ON span (type, start);
CREATE INDEX span_parent ON span (parent) WHERE parent IS NOT NULL;
CREATE INDEX span_end ON span (end) WHERE end IS NOT NULL;
CREATE INDEX span_model ON span (model, start) WHERE model IS NOT NULL;
CREATE INDEX span_input ON span (input) WHERE input IS NOT NULL;
CREATE INDEX span_output ON span (output) WHERE output IS NOT NULL;
CREATE INDEX span_cost ON span (cost) WHERE cost IS NOT NULL;

CREATE TABLE facts (span INTEGER PRIMARY KEY, data TEXT NOT NULL) STRICT;
CREATE TABLE content (span INTEGER PRIMARY KEY, input ANY, output ANY, tool_calls ANY) STRICT;
CREATE TABLE attribute (
    path INTEGER NOT NULL, span INTEGER NOT NULL, value ANY NOT NULL,
    PRIMARY KEY (path, span)
) STRICT, WITHOUT ROWID;

CREATE TABLE host (
    session INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL, turn INTEGER NOT NULL, uid INTEGER NOT NULL
) STRICT;
"""

# Receiving spans was slow for two reasons: a row for each attribute, and indexes on what comes in no order (ids,
# tokens, costs), where every span of a batch changes another page.
# Now one row has a path's values of many spans, as JSON lists without their brackets, so that they can be added to.
# Values of a span that was sent again stay there: for the spans in `resent`, `facts` decides.
# Indexes without an order lie in blocks of 8192 rows, so that a batch changes pages of the latest block only. SQLite
# searches them block by block (skip-scan), once ANALYZE has measured the blocks.
_FEWER_PAGES = """
CREATE TABLE part (
    id INTEGER PRIMARY KEY,
    path INTEGER NOT NULL, count INTEGER NOT NULL, spans TEXT NOT NULL, data TEXT NOT NULL
) STRICT;
CREATE TABLE resent (span INTEGER PRIMARY KEY) STRICT;
INSERT INTO part (path, count, spans, data)
    SELECT path, count(*), group_concat(span), group_concat(CASE typeof(value)
        WHEN 'blob' THEN iif(value = x'01', 'true', 'false')
        WHEN 'real' THEN iif(abs(value) < 9e999, printf('%!.17g', value), 'null')
        ELSE json_quote(value) END)
    FROM (SELECT path, span, value FROM attribute ORDER BY path, span) GROUP BY path, span / 512;
CREATE INDEX part_path ON part (path);
DROP TABLE attribute;

ALTER TABLE span RENAME TO old_span;
CREATE TABLE span (
    id INTEGER PRIMARY KEY,
    trace INTEGER NOT NULL, uid INTEGER NOT NULL, parent INTEGER,
    name INTEGER NOT NULL, type INTEGER NOT NULL, status INTEGER NOT NULL,
    start INTEGER NOT NULL, end INTEGER, model INTEGER,
    input INTEGER, output INTEGER, cache_read INTEGER, cache_write INTEGER, cache_write_1h INTEGER,
    reasoning INTEGER,
    cost REAL, cost_reported INTEGER NOT NULL, counts INTEGER NOT NULL,
    stop_reason INTEGER, exit_code INTEGER,
    session INTEGER, turn INTEGER, first INTEGER, last INTEGER, cause INTEGER,
    UNIQUE (trace, uid)
) STRICT;
INSERT INTO span SELECT * FROM old_span;
DROP TABLE old_span;
CREATE INDEX span_start ON span (start);
CREATE INDEX span_name ON span (name, start);
CREATE INDEX span_status ON span (status, start);
CREATE INDEX span_type ON span (type, start);
CREATE INDEX span_end ON span (end) WHERE end IS NOT NULL;
CREATE INDEX span_model ON span (model, start) WHERE model IS NOT NULL;
CREATE INDEX span_uid ON span (id >> 13, uid);
CREATE INDEX span_input ON span (id >> 13, input) WHERE input IS NOT NULL;
CREATE INDEX span_output ON span (id >> 13, output) WHERE output IS NOT NULL;
CREATE INDEX span_cost ON span (id >> 13, cost) WHERE cost IS NOT NULL;

DROP INDEX trace_latency;
DROP INDEX trace_cost;
DROP INDEX trace_tokens;
CREATE INDEX trace_latency ON trace (id >> 13, latency) WHERE latency IS NOT NULL;
CREATE INDEX trace_cost ON trace (id >> 13, cost) WHERE cost IS NOT NULL;
CREATE INDEX trace_tokens ON trace (id >> 13, tokens) WHERE tokens IS NOT NULL;
PRAGMA analysis_limit=1000;
ANALYZE;
"""

# `call` is the id of the call that a span reports: several reports of one call count once.
# `total` is a sum of tokens that came alone.
_CALLS = """
ALTER TABLE span ADD COLUMN total INTEGER;
ALTER TABLE span ADD COLUMN call TEXT;
ALTER TABLE span ADD COLUMN logged INTEGER NOT NULL DEFAULT 0;
CREATE INDEX span_call ON span (call) WHERE call IS NOT NULL
"""

# `waiting` is how long the agent waited for a person in a span, in milliseconds. `last_turn` is the turn of `last`,
# where that is another one. `twin` is the projected span that shows what a received one reports.
_TWINS = """
ALTER TABLE span ADD COLUMN waiting INTEGER;
ALTER TABLE span ADD COLUMN last_turn INTEGER;
ALTER TABLE span ADD COLUMN twin INTEGER;
CREATE INDEX span_twin ON span (twin) WHERE twin IS NOT NULL
"""
# `scope` is what the calls of a projected span's session have in common with the telemetry of that session.
_SCOPES = """
ALTER TABLE span ADD COLUMN scope INTEGER;
CREATE INDEX span_received_call ON span (call) WHERE session IS NULL AND call IS NOT NULL
"""
# `alias` is another name of the call, by its tokens: where one of two reports lacks its id.
_ALIASES = """
ALTER TABLE span ADD COLUMN alias TEXT;
CREATE INDEX span_alias ON span (alias) WHERE alias IS NOT NULL
"""
# Received spans have a scope, too. Without it the same tokens in many sessions make every search for twins a long one.
_CALLS_BY_SCOPE = """
DROP INDEX span_alias;
CREATE INDEX span_alias ON span (scope, alias) WHERE alias IS NOT NULL;
CREATE INDEX span_scoped_call ON span (scope, call) WHERE call IS NOT NULL
"""

# Digests of sessions that were forgotten, and of their traces that were received, as in archive.db.
_FORGOTTEN = "CREATE TABLE forgotten (mark INTEGER PRIMARY KEY) STRICT"

# `turn` has the place of each projected turn: its trace, and the uid of the span of the whole turn, whose parent is
# not of the same turn. `host` is gone: the place of a subagent follows from the record.
_TURNS = """
CREATE TABLE turn (
    session INTEGER NOT NULL, turn INTEGER NOT NULL, trace INTEGER NOT NULL, root INTEGER NOT NULL,
    PRIMARY KEY (session, turn)
) STRICT, WITHOUT ROWID;
INSERT OR REPLACE INTO turn SELECT s.session, s.turn, s.trace, s.uid FROM span s WHERE s.session IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM span p WHERE p.trace = s.trace AND p.uid = s.parent AND p.session = s.session
    AND p.turn = s.turn);
DROP TABLE host
"""

# `usage` adds up the model calls of a trace by quarter hour and model, so that a report over a year reads a row for a
# turn, not for a call. `named`: the calls are reported by name. It is written whenever a trace is added up.
_USAGE = f"""
CREATE TABLE usage (
    trace INTEGER NOT NULL, quarter INTEGER NOT NULL, model INTEGER, named INTEGER NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, calls INTEGER NOT NULL,
    input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
    reasoning INTEGER NOT NULL, cost REAL, unpriced INTEGER NOT NULL
) STRICT;
CREATE INDEX usage_trace ON usage (trace);
CREATE INDEX usage_quarter ON usage (quarter);
CREATE TRIGGER usage_of_deleted AFTER DELETE ON trace BEGIN DELETE FROM usage WHERE trace = old.id; END;
INSERT INTO usage {USAGE_OF_SPANS} {USAGE_GROUPS}
"""

# Calls are looked for by scope, or among received spans: no statement begins with this index.
_FEWER_INDEXES = "DROP INDEX IF EXISTS span_call"

_MIGRATIONS: tuple[str, ...] = (
    _TABLES,
    _FEWER_PAGES,
    _CALLS,
    _TWINS,
    _FORGOTTEN,
    _SCOPES,
    _ALIASES,
    _CALLS_BY_SCOPE,
    _TURNS,
    _USAGE,
    _FEWER_INDEXES,
)

# Of no use to the load itself, or without any row of it.
_DEFERRED = """
SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN ('span', 'trace', 'usage')
AND name NOT IN ('span_received_call', 'span_twin', 'trace_dataset_run', 'usage_trace')
"""
_INDEXES = "indexes"
"""The name in `meta` of the statements that create the indexes which a load has put off."""


def prepare(path: Path) -> None:
    with explained(path, DAMAGED_TRACES):
        # Another process may be at it, and a million spans take half a minute.
        prepare_database(path, _MIGRATIONS, busy_seconds=120)


def open_database(path: Path, *, writable: bool) -> sqlite3.Connection:
    connection = connect(path, writable=writable)
    add_functions(connection)
    connection.create_function("holds", 2, _holds, deterministic=True)
    return connection


def put_off_indexes(db: sqlite3.Connection) -> bool:
    """Drop the indexes that a first load of many spans would bring up to date for every one of them, at five times the
    price of creating them at its end. False if there are spans already."""
    with transaction(db):
        if db.execute("SELECT 1 FROM span LIMIT 1").fetchone() or lacks_indexes(db):
            return False
        found = db.execute(_DEFERRED).fetchall()
        statements = msgspec.json.encode([sql for _, sql in found]).decode()
        db.execute("INSERT INTO meta (name, value) VALUES (?, ?)", (_INDEXES, statements))
        for name, _ in found:
            db.execute(f"DROP INDEX {name}")
    return True


def create_indexes(db: sqlite3.Connection) -> None:
    """Create the indexes that were put off, by this process or by one that was killed. Each has a transaction of its
    own, so that no other process waits long."""
    while lacks_indexes(db):
        with transaction(db):
            (statements,) = db.execute("SELECT value FROM meta WHERE name = ?", (_INDEXES,)).fetchone()
            first, *rest = msgspec.json.decode(statements)
            db.execute(first)
            if rest:
                db.execute("UPDATE meta SET value = ? WHERE name = ?", (msgspec.json.encode(rest).decode(), _INDEXES))
            else:
                db.execute("DELETE FROM meta WHERE name = ?", (_INDEXES,))


def lacks_indexes(db: sqlite3.Connection) -> bool:
    """True from the beginning of a load until its indexes are created."""
    return db.execute("SELECT 1 FROM meta WHERE name = ?", (_INDEXES,)).fetchone() is not None


def _holds(text: object, part: str) -> bool:
    """Substring in any case, in any script: SQLite folds ASCII only."""
    return isinstance(text, str) and part in text.casefold()

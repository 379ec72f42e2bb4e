"""The capsule store, `capsules.db` in the home folder, shared by any number of processes and threads, and its search.

The search is by full text, in names, titles, tags and texts of any script.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from ...archive.query import index_text
from ...archive.stopwords import stop_words
from ...config import make_private_folder
from ...egress import Mode, egress
from ...sqlite import Unusable, connect, explain, is_damage, is_writable, prepare, transaction, version_of
from .capsule import SECOND, Capsule
from .rows import TEXT, WHOLE, Filters, Reader, Writer, decode

FILE = "capsules.db"
_DAMAGED = (
    f"{FILE} is damaged: restore it from a backup, or move it away and import an export (backstory capsule import FILE)"
)

# An import that is all or nothing may hold the write lock for minutes; others wait for it instead of failing.
_BUSY_SECONDS = 300.0
# The time that a purge waits for readers to leave the log. The next purge clears what this one cannot.
_SCRUB_MS = 5_000

_FIRST_SCHEMA = """
-- The text is kept apart: listing and counting stay within a small table.
CREATE TABLE capsules (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    workspace_raw TEXT NOT NULL,
    workspace_norm TEXT NOT NULL,
    name_raw TEXT,
    name_norm TEXT,
    title TEXT,
    capsule_chars INTEGER NOT NULL,
    tokens_estimate INTEGER NOT NULL,
    tags_json TEXT,
    source TEXT,
    run_id TEXT,
    phase TEXT,
    role TEXT,
    source_session TEXT,
    allow_thin INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    deleted_us INTEGER
);
CREATE TABLE texts (row INTEGER PRIMARY KEY, capsule_text TEXT NOT NULL);
CREATE UNIQUE INDEX active_names ON capsules (workspace_norm, name_norm)
    WHERE name_norm IS NOT NULL AND deleted_us IS NULL;
CREATE INDEX deleted_names ON capsules (workspace_norm, name_norm, deleted_us) WHERE deleted_us IS NOT NULL;
CREATE INDEX active_by_workspace ON capsules (workspace_norm, updated_us, id) WHERE deleted_us IS NULL;
CREATE INDEX active_by_time ON capsules (updated_us, id) WHERE deleted_us IS NULL;
CREATE INDEX all_by_workspace ON capsules (workspace_norm, updated_us, id);
CREATE INDEX all_by_time ON capsules (updated_us, id);
CREATE INDEX by_name ON capsules (name_norm, deleted_us, workspace_norm, updated_us, id) WHERE name_norm IS NOT NULL;
CREATE INDEX by_run ON capsules (run_id, updated_us, id) WHERE run_id IS NOT NULL;
CREATE INDEX by_session ON capsules (source_session, updated_us, id) WHERE source_session IS NOT NULL;

-- With the keys of their order, so that the capsules of a common tag are counted and paged through here alone.
CREATE TABLE tags (
    tag TEXT NOT NULL,
    active INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    id TEXT NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (tag, active, updated_us, id)
) WITHOUT ROWID;
CREATE INDEX tags_of_row ON tags (row);

-- Past versions of a capsule, whole: the current one is in `capsules`.
CREATE TABLE versions (
    row INTEGER NOT NULL,
    version INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    capsule TEXT NOT NULL,
    PRIMARY KEY (row, version)
) WITHOUT ROWID;

-- Dropped by a later migration.
CREATE TABLE changes (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE);

-- The last time stamp and the last id in use. `unscrubbed` is true while the file may hold purged text.
CREATE TABLE state (stamp_us INTEGER NOT NULL, last_id TEXT NOT NULL, unscrubbed INTEGER NOT NULL);
INSERT INTO state VALUES (0, '', FALSE);

CREATE VIRTUAL TABLE words USING fts5 (
    name, title, tags, text, content = '', tokenize = 'unicode61 remove_diacritics 2'
);
"""
# The time of the last update by the clock, beside `updated_us`, which is its place in the order of all updates.
_UPDATE_TIMES = """
ALTER TABLE capsules ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
UPDATE capsules SET updated_at = updated_us / 1000000;
UPDATE versions SET capsule = json_set(capsule, '$.updated_at', updated_us / 1000000);
"""
# The change log had no reader: a search asks this store itself. Words are indexed as the archive indexes them.
_ONE_SEARCH = """
DROP TABLE changes;
ALTER TABLE state ADD COLUMN words_version INTEGER NOT NULL DEFAULT 0
"""
_MIGRATIONS = (_FIRST_SCHEMA, _UPDATE_TIMES, _ONE_SEARCH)
_TERM = re.compile(r'"([^"]*)"|(\S+)')
# The index keeps letters and digits only. In names like these the other characters matter.
_SYMBOLIC = re.compile(r"\w+(\+\+|#)")
_MAX_TERMS = 32
# A word that is in nearly every capsule says little: of more hits only the newest are ranked and counted.
_RANKED = 2000
# The weights of a word in the name, the title, the tags and the text: one in a tag outweighs repetition in the text.
_WEIGHTS = "50.0, 30.0, 20.0, 1.0"
_LEAST_SCORE = 1e-9
_SNIPPET_CHARS = 240
_BEFORE_MATCH = 80
_MAX_PLACES = 20


def database_trouble(error: Exception) -> str | None:
    """The cause of a failure of the store and its cure, in a sentence; None where they are not known."""
    if isinstance(error, Unusable):
        return str(error)
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return _DAMAGED
    cause = explain(error, "it")
    return None if cause is None else f"The capsule store cannot be used: {cause}"


def check_database(path: Path) -> str | None:
    """The problem of a store, found without changing it; None for a sound store and where there is none."""
    if not path.exists():
        return None
    try:
        with closing(connect(path, writable=False)) as connection:
            version_of(connection, path.name, len(_MIGRATIONS))
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        return None if found == "ok" else _DAMAGED
    except (sqlite3.Error, Unusable) as error:
        return database_trouble(error)


def _clock_us() -> int:
    return time.time_ns() // 1000


class Store:
    """One connection, opened at the first use and shared by the threads of this process one at a time.

    `clock` gives microseconds since the epoch.
    """

    def __init__(self, home: Path, clock: Callable[[], int] = _clock_us) -> None:
        self.home = home
        self._clock = clock
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._close: Callable[[], None] = lambda: None

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """A consistent view: it does not see what others commit meanwhile."""
        with self._lock:
            connection = self._opened()
            with transaction(connection, "DEFERRED"):
                yield Reader(connection)

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Sole writer from the first statement on, so that what is read inside still holds when it is written."""
        with self._lock:
            connection = self._opened()
            with transaction(connection):
                # The clock is read inside the write lock, so that a later commit has a later time.
                yield Writer(connection, self._clock())

    @contextmanager
    def reading_aside(self) -> Iterator[Reader]:
        """A reader on a connection of its own, for long work: other threads do not wait for it."""
        with closing(Store(self.home)) as store, store.reading() as reader:
            yield reader

    def purge(self, workspace_norm: str | None, older_than_us: int | None) -> tuple[int, bool]:
        """Remove deleted capsules for good. Gives their number, and True when their text is gone from the files."""
        with self.writing() as writer:
            before = None if older_than_us is None else writer.now_us - older_than_us
            count = writer.purge(workspace_norm, before)
        return count, self._scrub()

    def await_after(self, second: int) -> None:
        """Wait for the end of a second, if it is the current one."""
        left_us = (second + 1) * SECOND - self._clock()
        if 0 < left_us <= SECOND:
            time.sleep(left_us / SECOND)

    def close(self) -> None:
        with self._lock:
            self._close()
            self._connection = None

    def _scrub(self) -> bool:
        """Remove purged text from the files. False while other readers prevent it: the next purge tries again.

        Freed space is overwritten anyway, but SQLite leaves copies behind where it moves rows between pages, and in the
        write-ahead log. So the file is rewritten, and the log emptied.
        """
        with self._lock:
            connection = self._opened()
            try:
                if not connection.execute("SELECT unscrubbed FROM state").fetchone()[0]:
                    return True
                connection.execute(f"PRAGMA busy_timeout = {_SCRUB_MS}")
                connection.execute("VACUUM")
                if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    return False
                connection.execute("UPDATE state SET unscrubbed = FALSE")
            except sqlite3.OperationalError:
                return False
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
            return True

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _open(self.home / FILE)
            # A store that is dropped without being closed still releases its files.
            self._close = weakref.finalize(self, self._connection.close)
        return self._connection


def _open(path: Path) -> sqlite3.Connection:
    """A store that cannot be written to, as on a mounted backup, is read as it is."""
    make_private_folder(path.parent)
    writable = is_writable(path)
    if writable:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            with suppress(FileNotFoundError):
                path.with_name(name).chmod(0o600)
    # An acknowledged capsule survives a power cut.
    connection = connect(path, writable=writable, busy_seconds=_BUSY_SECONDS, pragmas={"synchronous": "FULL"})
    connection.row_factory = sqlite3.Row
    try:
        if version_of(connection, path.name, len(_MIGRATIONS)) < len(_MIGRATIONS):
            prepare(path, _MIGRATIONS, busy_seconds=_BUSY_SECONDS)
        if writable and not Reader(connection).index_is_current:
            with transaction(connection):
                Writer(connection, _clock_us()).refresh_index()
    except BaseException:
        connection.close()
        raise
    return connection


# Search


class Hit(Struct, frozen=True):
    """`coverage` is the share of the query's terms that the capsule has. `score` orders by that, then by BM25;
    0 < score <= 1."""

    capsule: Capsule
    snippet: str
    coverage: float
    score: float


class Hits(Struct, frozen=True):
    """A page of hits, best BM25 first, and their total, counted no further than they are ranked."""

    hits: list[Hit]
    total: int


class _Ranked(NamedTuple):
    """The key of the order: BM25, which is negative and lower when better, then the newest."""

    bm25: float
    age: int
    row: int


def search(reader: Reader, query: str, filters: Filters, limit: int, offset: int = 0, *, mode: Mode) -> Hits:
    """All words as typed; without a hit the words as beginnings of words; then any of them.

    Snippets are cut from the redacted text: in a part of a secret no rule would recognise it.
    """
    terms = _terms(query)
    for match, literals in _attempts(terms):
        where, values = _conditions(match, filters, literals)
        found = reader.connection.execute(
            f"""SELECT bm25(words, {_WEIGHTS}) AS bm25, -updated_us AS age, capsules.row {where}
            ORDER BY words.rowid DESC LIMIT {_RANKED}""",
            values,
        )
        if ranked := sorted(_Ranked(*row) for row in found):
            return Hits([_hit(reader, place, terms, mode) for place in ranked[offset : offset + limit]], len(ranked))
    return Hits([], 0)


def _hit(reader: Reader, place: _Ranked, terms: list[str], mode: Mode) -> Hit:
    query = f"SELECT {WHOLE} FROM capsules WHERE row = ?"
    capsule = decode(reader.connection.execute(query, [place.row]).fetchone())
    content = "\n".join((capsule.name or "", capsule.title or "", *capsule.tags, capsule.text)).lower()
    present = max(1, sum(term.lower() in content for term in terms))
    strength = -place.bm25 / (1 - place.bm25)
    return Hit(
        capsule,
        snippet=_snippet(egress(capsule.text, mode), terms),
        coverage=present / len(terms),
        score=max((present - 1 + strength) / len(terms), _LEAST_SCORE),
    )


def _terms(query: str) -> list[str]:
    """The words and quoted phrases of a query. Stop words count only where there is nothing else."""
    found = (quoted or word for quoted, word in _TERM.findall(query.replace("\0", " ")))
    bare = (term.strip(" \t.,;:!?()[]{}<>'\"") for term in found)
    # A term without a letter or digit is not in the index.
    terms = list(dict.fromkeys(term for term in bare if any(map(str.isalnum, term))))
    ignored = stop_words(query)
    return ([term for term in terms if term.lower() not in ignored] or terms)[:_MAX_TERMS]


def _attempts(terms: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Match expressions from strict to lax, each with the terms that must occur literally."""
    if not terms:
        return
    phrases = ['"' + index_text(term)[0].replace('"', '""') + '"' for term in terms]
    beginnings = [f"{phrase}*" for phrase in phrases]
    literals = [term for term in terms if _SYMBOLIC.fullmatch(term)]
    yield " AND ".join(phrases), literals
    yield " AND ".join(beginnings), literals
    if len(phrases) > 1:
        yield " OR ".join(phrases), []
        yield " OR ".join(beginnings), []


def _conditions(match: str, filters: Filters, literals: list[str]) -> tuple[str, list[Any]]:
    where, values = filters.where()
    for literal in literals:
        columns = (TEXT, "name_raw", "capsules.title", "tags_json")
        where += f" AND ({' OR '.join(f'instr(lower({column}), ?)' for column in columns)})"
        values += [literal.lower()] * len(columns)
    return f"FROM words JOIN capsules ON capsules.row = words.rowid WHERE words MATCH ? AND {where}", [match, *values]


def _snippet(text: str, terms: list[str]) -> str:
    """The part of the text where most of the terms are together, on one line."""
    at = _best_place(text, terms)
    start = max(0, at - _BEFORE_MATCH)
    if start:
        start = max(text.find(" ", start, at) + 1, start)
    end = start + _SNIPPET_CHARS
    if end < len(text):
        end = max(text.rfind(" ", at + 1, end), start + _SNIPPET_CHARS // 2)
    folded = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{folded}{'…' if end < len(text) else ''}"


def _best_place(text: str, terms: list[str]) -> int:
    """The beginning of the first stretch with the most different terms."""
    lowered = text.lower()
    found = sorted((at, term) for term in terms for at in islice(_places(lowered, term.lower()), _MAX_PLACES))
    best, place = 0, 0
    for index, (start, _) in enumerate(found):
        reach = start + _SNIPPET_CHARS - _BEFORE_MATCH
        together = len({term for at, term in found[index:] if at < reach})
        if together > best:
            best, place = together, start
    return place


def _places(text: str, term: str) -> Iterator[int]:
    at = text.find(term)
    while at >= 0:
        yield at
        at = text.find(term, at + 1)

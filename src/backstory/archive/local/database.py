"""The record: archive.db, its tables, the numbers it gives to rows, and its texts, which are compressed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import zstandard

from ...sqlite import Unusable, is_damage
from ..errors import ArchiveError
from ..query import analyzer, index_text, tokens
from ..rows import SyncState

if TYPE_CHECKING:
    import tantivy

# `said` of an exchange is the uids of events, one after the other.
# `stale` has the former numbers of replaced events, until the index has deleted their documents, and of a forgotten
# session its key, until index and traces have followed.
# `forget` has the sessions that are to be forgotten, until they are. `forgotten` has the first eight bytes of the
# digests by which a forgotten one and its events are recognised, `forgotten_turn` the agent's own ids of its turns, by
# which copies of them are.
# `folder` and `file_stamp` are for a search that no writer serves: by the times of folders and by all that changes with
# a file, without the row of the file, most of which is the state of a parser, it sees what is new.
# `usage_loose` has few rows, which the projection looks for whenever it has caught up (`LocalRecord.loose_usage`).
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE source (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE project (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, identity TEXT) STRICT;

CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    public_id TEXT NOT NULL,
    source TEXT NOT NULL,
    title TEXT NOT NULL, title_rank INTEGER NOT NULL,
    summary TEXT, slug TEXT, folder TEXT, cwd TEXT, last_cwd TEXT, project TEXT, branch TEXT, version TEXT,
    parent TEXT, parent_call TEXT, forked_from TEXT,
    started_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    turn_count INTEGER NOT NULL, event_count INTEGER NOT NULL,
    completed INTEGER NOT NULL, mode TEXT NOT NULL,
    first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, exchange_count INTEGER NOT NULL,
    user TEXT, machine TEXT
) STRICT;
CREATE INDEX session_window ON session (updated_at, public_id, started_at, mode, source) WHERE event_count > 0;
CREATE INDEX session_neighbours ON session (source, cwd, started_at, public_id) WHERE event_count > 0;
CREATE INDEX session_folder ON session (source, folder, last_at)
    WHERE folder IS NOT NULL AND parent IS NULL AND last_at > 0;
CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL;

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

CREATE TABLE exchange (
    session INTEGER NOT NULL, number INTEGER NOT NULL,
    change INTEGER NOT NULL,
    ts INTEGER NOT NULL, user BLOB, user_text ANY, said BLOB NOT NULL,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX exchange_change ON exchange (change);

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
    reasoning_tokens INTEGER NOT NULL, cost REAL, stop_reason TEXT, request TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_place ON usage (session, turn);
CREATE INDEX usage_loose ON usage (session) WHERE turn = 0;

CREATE TABLE file (
    path TEXT PRIMARY KEY,
    source TEXT NOT NULL, session TEXT NOT NULL,
    inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    offset INTEGER NOT NULL, prefix BLOB NOT NULL,
    state TEXT, errors INTEGER NOT NULL, last_error TEXT, missing INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX file_stamp ON file (mtime_ns, source, inode, size, missing);
CREATE TABLE file_name (path TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (path, name)) STRICT, WITHOUT ROWID;
CREATE INDEX file_by_name ON file_name (name);
CREATE TRIGGER file_removed AFTER DELETE ON file BEGIN DELETE FROM file_name WHERE path = old.path; END;
CREATE TABLE folder (
    path TEXT NOT NULL, source TEXT NOT NULL, mtime_ns INTEGER NOT NULL, PRIMARY KEY (path, source)
) STRICT, WITHOUT ROWID;

CREATE TABLE stale (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL, turn INTEGER NOT NULL, event INTEGER NOT NULL,
    key TEXT, remember INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE forget (key TEXT PRIMARY KEY, remember INTEGER NOT NULL, wipe INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE forgotten (mark INTEGER PRIMARY KEY) STRICT;
CREATE TABLE forgotten_turn (
    session INTEGER NOT NULL, turn_key TEXT NOT NULL, PRIMARY KEY (session, turn_key)
) STRICT, WITHOUT ROWID;
"""
# One entry per version from the first on. Append only.
MIGRATIONS = (_TABLES,)
FIRST_VERSION = 14


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


# Texts: short ones as they are, longer ones compressed with a dictionary of this archive

_PLAIN_BELOW = 96
_LEVEL = 3
_DICTIONARY_BYTES = 65_536
_SAMPLES = 1_000
_SAMPLE_CHARS = 1_024
# Below this a dictionary would learn too little; the texts until then are compressed without one.
_MIN_SAMPLES = 400


Pack = Callable[[str], "str | bytes | None"]


class Bodies:
    """Packs and unpacks texts. zstd frames name the dictionary they need, so texts from before it stay readable."""

    def __init__(self, stored_dictionary: Callable[[], bytes | None]) -> None:
        self._stored_dictionary = stored_dictionary
        # Neither compressors nor decompressors may be used by two threads at once.
        self._local = threading.local()
        self._dictionary = _dictionary(stored_dictionary())

    @property
    def trained(self) -> bool:
        return self._dictionary is not None

    def learn(self, dictionary: bytes) -> None:
        self._use(dictionary)

    def _use(self, dictionary: bytes | None) -> None:
        self._dictionary = _dictionary(dictionary)
        self._local = threading.local()

    def pack(self, text: str) -> str | bytes | None:
        return self.packer()(text)

    def packer(self) -> Pack:
        """Packs many texts, as long as no other dictionary is learned. For one thread."""
        compress = self._compressor.compress

        def pack(text: str) -> str | bytes | None:
            if not text:
                return None
            if len(text) < _PLAIN_BELOW:
                return text
            return compress(text.encode())

        return pack

    def unpack(self, body: str | bytes | None) -> str:
        if body is None:
            return ""
        if isinstance(body, str):
            return body
        try:
            return self._decompress(body).decode()
        except zstandard.ZstdError:
            self._use(self._stored_dictionary())  # the writer has trained one since this reader looked
            return self._decompress(body).decode()

    @property
    def _compressor(self) -> zstandard.ZstdCompressor:
        compressor: zstandard.ZstdCompressor | None = getattr(self._local, "compressor", None)
        if compressor is None:
            compressor = self._local.compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=self._dictionary)
        return compressor

    def _decompress(self, body: bytes) -> bytes:
        try:
            decompress: Callable[[bytes], bytes] = self._local.decompress
        except AttributeError:
            decompress = self._local.decompress = zstandard.ZstdDecompressor(dict_data=self._dictionary).decompress
        return decompress(body)


def _dictionary(data: bytes | None) -> zstandard.ZstdCompressionDict | None:
    return zstandard.ZstdCompressionDict(data) if data else None


def train_dictionary(texts: Iterable[str]) -> bytes | None:
    """A compression dictionary for texts like these; None when they are too few or too different."""
    samples = list[bytes | bytearray | memoryview](
        text[:_SAMPLE_CHARS].encode() for text in islice((t for t in texts if len(t) >= _PLAIN_BELOW), _SAMPLES)
    )
    if len(samples) < _MIN_SAMPLES:
        return None
    try:
        return zstandard.train_dictionary(_DICTIONARY_BYTES, samples, level=_LEVEL).as_bytes()
    except zstandard.ZstdError:
        return None

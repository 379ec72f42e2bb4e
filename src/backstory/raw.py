"""Raw records: the bytes of transcripts as they were read, so that a session that its agent deletes can be put back.

A file is kept in pieces of fixed size, compressed, in `raw.db` below the home. Pieces are named by the digest of their
bytes: a copy of a transcript costs nothing. Of a folder that is one session, every file is kept. Databases, which hold
many sessions and are rewritten all the time, are not.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard

from .sqlite import connect, is_writable, transaction

_log = logging.getLogger(__name__)

PIECE_BYTES = 512 << 10
_DIGEST_BYTES = 16
# Level 3 takes half as long again, and saves 2 to 5 % of the space.
_LEVEL = 1
# So many bytes of small new files wait for a common transaction.
_WAITING_BYTES = 16 << 20
# Bodies are written once and rarely read: nothing is gained by keeping pages in memory.
_PRAGMAS = {"cache_size": -2_000, "mmap_size": 0}
_SCHEMA = """
CREATE TABLE IF NOT EXISTS file (
    path BLOB PRIMARY KEY, source TEXT NOT NULL, session TEXT NOT NULL, size INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS file_session ON file (source, session);
CREATE TABLE IF NOT EXISTS piece (
    path BLOB NOT NULL, number INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (path, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS piece_digest ON piece (digest);
CREATE TABLE IF NOT EXISTS body (digest BLOB PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
"""


class RawFile(NamedTuple):
    """A transcript that is kept. `session` is the agent's own id."""

    path: Path
    source: str
    session: str
    size: int


class _Waiting(NamedTuple):
    """Rows of new files that are not written yet."""

    files: dict[bytes, tuple[bytes, str, str, int]]
    pieces: list[tuple[bytes, int, bytes]]
    bodies: dict[bytes, bytes]


class RawStore:
    """The raw records below a home. The database is made when the first file is kept."""

    def __init__(self, home: Path) -> None:
        self._path = home / "raw.db"
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._waiting = _Waiting({}, [], {})
        self._waiting_bytes = 0
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)

    def keep(self, path: Path, source: str, session: str, *, from_start: bool = True) -> None:
        """Keep what a file has now, from the next `flush` on; `from_start` is false where it has only grown since it
        was last kept."""
        with self._lock:
            name = os.fsencode(path)
            if name in self._waiting.files:
                self.flush()
            database = self._database
            row = database.execute("SELECT size FROM file WHERE path = ?", (name,)).fetchone()
            if row is None and path.stat().st_size <= PIECE_BYTES:
                self._keep_small(name, path, source, session)
                return
            with transaction(database):
                # The last piece may be a part of one, which is kept anew with what follows.
                first = 0 if from_start or row is None else row[0] // PIECE_BYTES
                _keep_file(database, path, source, session, first)

    def _keep_small(self, name: bytes, path: Path, source: str, session: str) -> None:
        """A new file of one piece: there are thousands in a first sync, and a transaction for each costs more than the
        rest."""
        with path.open("rb") as stream:
            data = stream.read(PIECE_BYTES)
        digest = _digest(data)
        if data:
            self._waiting.bodies[digest] = self._compressor.compress(data)
            self._waiting.pieces.append((name, 0, digest))
        self._waiting.files[name] = (name, source, session, len(data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _WAITING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            if not self._waiting.files:
                return
            waiting, self._waiting, self._waiting_bytes = self._waiting, _Waiting({}, [], {}), 0
            database = self._database
            with transaction(database):
                database.executemany("INSERT OR IGNORE INTO body VALUES (?, ?)", waiting.bodies.items())
                database.executemany("REPLACE INTO piece VALUES (?, ?, ?)", waiting.pieces)
                database.executemany("REPLACE INTO file VALUES (?, ?, ?, ?)", waiting.files.values())

    def keep_folder(self, folder: Path, source: str, session: str) -> None:
        """Keep what the files of a folder have now, and nothing of files that are gone from it. Links are passed
        over: they may lead anywhere."""
        paths = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
        now = {path for path in paths if path.is_file() and not path.is_symlink()}
        self.flush()
        with self._lock, transaction(self._database):
            for path in now:
                _keep_file(self._database, path, source, session, 0)
            for file in self.files(source, [session]):
                if file.path.is_relative_to(folder) and file.path not in now:
                    _drop_file(self._database, file)

    def files(self, source: str, sessions: Iterable[str]) -> list[RawFile]:
        """The files of sessions, by the agent's own ids."""
        self.flush()
        if not self._path.exists():
            return []
        query = "SELECT path, size FROM file WHERE source = ? AND session = ? ORDER BY path"
        with self._lock:
            return [
                RawFile(Path(os.fsdecode(path)), source, session, size)
                for session in sessions
                for path, size in self._database.execute(query, (source, session))
            ]

    def paths(self) -> set[str]:
        """The files that are kept."""
        self.flush()
        if not self._path.exists():
            return set()
        with self._lock:
            return {os.fsdecode(path) for (path,) in self._database.execute("SELECT path FROM file")}

    @property
    def is_complete(self) -> bool:
        """True if every transcript that was read is kept. Reading one without keeping it sets this to false."""
        if not self._path.exists():
            return False
        with self._lock:
            return bool(self._database.execute("PRAGMA user_version").fetchone()[0])

    @is_complete.setter
    def is_complete(self, value: bool) -> None:
        if value != self.is_complete:
            with self._lock:
                self._database.execute(f"PRAGMA user_version = {int(value)}")

    def read(self, path: Path) -> Iterator[bytes]:
        """The bytes of a file that is kept, piece by piece."""
        self.flush()
        decompressor = zstandard.ZstdDecompressor()
        query = "SELECT bytes FROM piece JOIN body USING (digest) WHERE path = ? ORDER BY number"
        for (compressed,) in self._database.execute(query, (os.fsencode(path),)):
            yield decompressor.decompress(compressed)

    def forget(self, source: str, sessions: Iterable[str]) -> None:
        """Delete all that is kept of sessions; no byte of it is left in the database."""
        files = self.files(source, sessions)
        if not files:
            return
        with self._lock:
            with transaction(self._database):
                for file in files:
                    _drop_file(self._database, file)
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._lock:
            # What waits belongs to rows that were not committed: it is read and kept again.
            self._waiting, self._waiting_bytes = _Waiting({}, [], {}), 0
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @property
    def _database(self) -> sqlite3.Connection:
        if self._connection is None:
            writable = is_writable(self._path)
            database = connect(self._path, writable=writable, pragmas=_PRAGMAS)
            if writable:
                database.executescript(_SCHEMA)
            self._connection = database
        return self._connection


class Keeping:
    """Keeps the transcripts of agents as they are read. A failure here does not stop reading."""

    def __init__(self, store: RawStore, home: Path) -> None:
        self._store = store
        self._home = home
        self._troubles: set[str] = set()
        # Something was read and not kept since `keep_rest`.
        self._failed = False

    def keep(self, path: Path, source: str, session: str, *, from_start: bool) -> None:
        """Keep a file or a folder, from the next `flush` on."""
        if path.is_relative_to(self._home):  # what Backstory itself has received
            return
        try:
            if path.is_dir():
                self._store.keep_folder(path, source, session)
            else:
                self._store.keep(path, source, session, from_start=from_start)
        except (OSError, sqlite3.Error) as error:
            self._complain(str(path), error)

    def drop(self, source: str, session: str) -> None:
        """Keep nothing of a session."""
        try:
            self._store.forget(source, [session])
        except (OSError, sqlite3.Error) as error:
            self._complain(session, error)

    def flush(self) -> None:
        try:
            self._store.flush()
        except (OSError, sqlite3.Error) as error:
            self._complain("some transcripts", error)

    def pause(self) -> None:
        """Note that transcripts are read and not kept."""
        with suppress(OSError, sqlite3.Error):
            self._store.is_complete = False

    def _complain(self, place: str, error: OSError | sqlite3.Error) -> None:
        if not self._failed:
            self._failed = True
            self.pause()
        reason = str(getattr(error, "strerror", None) or error)
        if reason not in self._troubles:  # on a full disk, for one, it holds for all files
            self._troubles.add(reason)
            _log.warning("the raw records of %s are not kept, nor those of others: %s", place, reason)

    def keep_rest(self, files: Iterable[tuple[str, str, str]], *, unless: Callable[[str], bool]) -> None:
        """Keep the transcripts among these that were read and not kept, as while the setting was off: path, source and
        session of each. `unless` tells by the path that one must not be kept."""
        try:
            if self._store.is_complete and not self._failed:
                return
            self._failed = False
            kept = self._store.paths()
            for name, source, session in files:
                path = Path(name)
                if name in kept or not path.exists() or unless(name):
                    continue
                if path.is_file() or (path.is_dir() and not self._store.files(source, [session])):
                    self.keep(path, source, session, from_start=True)
        except sqlite3.Error as error:
            self._complain(str(self._home / "raw.db"), error)
        self.flush()
        if not self._failed:
            with suppress(OSError, sqlite3.Error):
                self._store.is_complete = True


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _keep_file(database: sqlite3.Connection, path: Path, source: str, session: str, first: int) -> None:
    """Keep a file from a piece on; those before it are kept already."""
    name = os.fsencode(path)
    with path.open("rb") as stream:
        size = _keep_pieces(database, name, stream, first)
    database.execute("REPLACE INTO file VALUES (?, ?, ?, ?)", (name, source, session, size))


def _drop_file(database: sqlite3.Connection, file: RawFile) -> None:
    name = os.fsencode(file.path)
    rows = database.execute("SELECT digest FROM piece WHERE path = ?", (name,)).fetchall()
    database.execute("DELETE FROM piece WHERE path = ?", (name,))
    database.execute("DELETE FROM file WHERE path = ?", (name,))
    _drop_bodies(database, (digest for (digest,) in rows))


def _keep_pieces(database: sqlite3.Connection, name: bytes, stream: BinaryIO, first: int) -> int:
    """Keep a file from a piece on; gives its size."""
    before = dict(database.execute("SELECT number, digest FROM piece WHERE path = ? AND number >= ?", (name, first)))
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    stream.seek(first * PIECE_BYTES)
    number, size = first, first * PIECE_BYTES
    while data := stream.read(PIECE_BYTES):
        digest = _digest(data)
        if before.get(number) != digest:
            if database.execute("SELECT 1 FROM body WHERE digest = ?", (digest,)).fetchone() is None:
                database.execute("INSERT INTO body VALUES (?, ?)", (digest, compressor.compress(data)))
            database.execute("REPLACE INTO piece VALUES (?, ?, ?)", (name, number, digest))
        size += len(data)
        number += 1
    database.execute("DELETE FROM piece WHERE path = ? AND number >= ?", (name, number))
    _drop_bodies(database, before.values())
    return size


def _drop_bodies(database: sqlite3.Connection, digests: Iterable[bytes]) -> None:
    """Delete bodies that no piece has any more."""
    unused = "DELETE FROM body WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM piece WHERE digest = ?1)"
    database.executemany(unused, ((digest,) for digest in set(digests)))

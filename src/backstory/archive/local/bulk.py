"""Writing much at once: a second process feeds the index and projects the traces while the writer goes on reading.

It takes commands line by line, and ends when its writer does, even if that is killed. It only reads the record, so a
writer that has lost it does the rest itself. Meanwhile the
writer uses what else makes many commits cheap.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOG_BYTES = 64 << 20
_BUSY_MS = 1_000
_BITS = 1 << 26
_MASK = _BITS - 1
_GARBAGE = (100_000, 20, 100)


class BulkLog:
    """The write-ahead log of the record. It is larger than usual: pages that change again and again go into the
    database less often.

    A log begins anew only when no process reads it. The usual checkpoint does not wait for that: beside the second
    process the log would grow, with a checkpoint after each commit, and every page be looked for in all of it.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._db = connection
        self._path = f"{path}-wal"
        self._limit = _LOG_BYTES
        connection.execute("PRAGMA wal_autocheckpoint=0")

    def bound(self) -> None:
        """To be called after each commit: move the log into the database if it is too large."""
        size = os.stat(self._path).st_size  # noqa: PTH116
        if size < self._limit:
            return
        (patience,) = self._db.execute("PRAGMA busy_timeout").fetchone()
        self._db.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        try:
            (is_busy, *_) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError:  # what is wrong with the disk shows with the next commit
            is_busy = True
        finally:
            self._db.execute(f"PRAGMA busy_timeout={patience}")
        # A process that reads for longer is not waited for again after each commit.
        self._limit = _LOG_BYTES + (size if is_busy else 0)


class Presence:
    """The uids of all events of a record, as one bit each in 8 MB: at a million events, one new uid in seventy is taken
    for a known one. The record is asked for those."""

    def __init__(self) -> None:
        self._bits = bytearray(_BITS >> 3)

    def add(self, uids: Iterable[bytes]) -> None:
        bits = self._bits
        for uid in uids:
            place = int.from_bytes(uid[:4], "little") & _MASK  # uids are digests
            bits[place >> 3] |= 1 << (place & 7)

    def among(self, uids: Iterable[bytes]) -> list[bytes]:
        """Those that may be present; the others are not."""
        bits, found = self._bits, []
        for uid in uids:
            place = int.from_bytes(uid[:4], "little") & _MASK
            if bits[place >> 3] >> (place & 7) & 1:
                found.append(uid)
        return found


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage less often. Hardly any is in a cycle, and what waits for a commit is looked through again and
    again: with the usual thresholds that takes a tenth of the time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*_GARBAGE)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


# The second process

# Feed new events; make them searchable; the same, with a reply; end.
_FOLLOW, _PUBLISH, _FLUSH, _CLOSE = "follow", "publish", "flush", "close"
_FLUSHED = "flushed"
_NICENESS = 10
# glibc gives every thread of the index a heap of its own, and returns little of what they have freed.
_SMALL_HEAP = {"MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": "16777216"}
# The traces of new turns take less. When all traces are projected again, a flush does not wait for them.
_PROJECT_SECONDS, _LAST_SECONDS = 1.0, 3.0

_log = logging.getLogger(__name__)


class Follower:
    """The second process, as the writer uses it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    def start(cls, home: Path, projection: str | None) -> Follower | None:
        """None where no other process can be started."""
        # -P: modules in the current folder are not part of this program.
        command = [sys.executable, "-P", "-m", __name__, os.fspath(home.absolute()), projection or ""]
        pipe = subprocess.PIPE
        try:
            # In a session of its own: an interrupt from the keyboard goes to the writer, which closes this process.
            process = subprocess.Popen(
                command,
                stdin=pipe,
                stdout=pipe,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                env={**os.environ, **_SMALL_HEAP},
            )
        except OSError as error:
            _log.warning("no second process could be started, this one does everything: %s", error)
            return None
        return cls(process)

    def follow(self) -> None:
        """Feed what was committed to the record."""
        self._send(_FOLLOW)

    def flush(self, *, wait: bool) -> bool:
        """Make everything searchable that is in the record now, or soon. False if the process has ended."""
        assert self._process.stdout is not None
        if self._send(_FLUSH if wait else _PUBLISH) and (
            not wait or self._process.stdout.readline().strip() == _FLUSHED
        ):
            return True
        _log.warning("the index is brought up to date by one process alone: the second one ended")
        return False

    def close(self) -> None:
        """Wait until the process has ended; then the index is free for another writer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._send(_CLOSE)
        try:
            self._process.wait()
        finally:
            # The end of its input, which it would take for the end of its writer, comes after its own.
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdout.close()

    def _send(self, command: str) -> bool:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return False
        return True


def main() -> None:
    """The second process."""
    from .archive import LocalArchive

    if hasattr(os, "nice"):  # searches go before indexing
        os.nice(max(_NICENESS - os.nice(0), 0))
    gc.disable()  # nothing here is ever part of a cycle, and looking for some takes a twentieth of the time
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    home, projection = sys.argv[1:]
    archive = LocalArchive(Path(home), projection or None)
    feed = archive.feed()
    while (command := commands.get()) != _CLOSE:
        if command == _FOLLOW:
            feed.feed()
            feed.traces.project(_PROJECT_SECONDS)
        else:
            feed.flush()
            feed.traces.project(_LAST_SECONDS)
        if command == _FLUSH:
            sys.stdout.write(f"{_FLUSHED}\n")
            sys.stdout.flush()
    feed.traces.finish()
    feed.close()
    archive.close()
    os._exit(0)  # the other thread listens until the end


def _listen(commands: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        commands.put(line.strip())
    # The writer was killed. Another one may be waiting for the index already.
    os._exit(1)


if __name__ == "__main__":
    main()

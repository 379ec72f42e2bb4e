"""The courier: finds what is to be shared, sends it, and takes back what is withheld."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from ..archive.base import Archive, ArchiveBusy, Batch, SessionRow, SessionsRequest
from ..archive.changes import Journal, Mark
from ..archive.errors import ArchiveError, explain
from ..archive.lock import WriterLock
from ..config import make_private_folder
from . import sharing as parcels
from .outbox import EVERYTHING, Outbox
from .sharing import FORMAT, Known, Packing, Parcel, Piece, Receipt, Rewritten, Sharing, fingerprint, seal

_log = logging.getLogger(__name__)

_CHANGES_AT_ONCE = 5_000
_ASKED_AT_ONCE = 5_000
_LONGEST_PAUSE_SECONDS = 300.0
_BUSY_POLL_SECONDS = 0.2


class Server(Protocol):
    """The receiving side: a hub, or the archive of the team itself."""

    def identity(self) -> str:
        """Another value means that nothing which was sent before is there."""

    def push(self, parcel: Parcel) -> Receipt:
        """Returns when everything that is not refused is durable. Raises ArchiveError."""

    def forget(self, keys: list[str]) -> Receipt:
        """Delete sessions and what they started; those that are not there are no error."""

    def close(self) -> None:
        """Let go of connections and locks; the next use takes them again."""


class Report(Struct):
    """The result of a push."""

    sessions: int = 0
    events: int = 0
    withdrawn: int = 0
    refused: int = 0
    waiting: int = 0
    """Sessions that are due and were not sent."""


class Collected(NamedTuple):
    """The archive as a collection has seen it."""

    mark: Mark
    sessions: Mapping[str, SessionRow]
    covered: set[str]
    """Keys of the sessions that are to be shared."""


class Courier:
    """Pushes for one machine. The archive may be written meanwhile, by this process or another."""

    def __init__(
        self, archive: Archive, journal: Journal, outbox: Outbox, server: Server, sharing: Sharing, machine: str
    ) -> None:
        self._archive = archive
        self._journal = journal
        self._outbox = outbox
        self._server = server
        self._sharing = sharing
        self._machine = machine
        self._packing = Packing(archive, journal)
        self._seen: Mark | None = None

    def push(self, stop: threading.Event | None = None) -> Report:
        """Take back, collect and send everything that is due; raises ArchiveError when the server cannot be used."""
        report = Report()
        self._seen = None
        try:
            self._recognise_server()
            self._ask()
            self._withdraw(report)
            collected = self.collect()
            self._deliver(collected, report, stop or threading.Event())
            self._withdraw(report)  # what was withheld meanwhile
        except ArchiveError as error:
            self._outbox.keep("error", str(error))
            raise
        finally:
            self._server.close()
        self._outbox.keep("error", "")
        self._outbox.keep("pushed_at", str(_now()))
        report.waiting = len(self._outbox.due().keys() & self._open_to(collected.covered))
        if not report.waiting:
            self._seen = collected.mark
        return report

    def _recognise_server(self) -> None:
        identity = self._server.identity()
        if self._outbox.value("server") not in (None, identity):
            with self._outbox.transaction():
                self._outbox.begin_anew()
                self._outbox.keep("server", identity)
        elif self._outbox.value("server") is None:
            self._outbox.keep("server", identity)

    def _ask(self) -> None:
        """Ask which of the sessions that were sent the server still has. It may have been told to forget some, by its
        owner or another machine; those are not sent again by themselves."""
        if not self._outbox.is_to_ask():
            return
        keys, lost = sorted(self._outbox.shared()), []
        for start in range(0, len(keys), _ASKED_AT_ONCE):
            asked = keys[start : start + _ASKED_AT_ONCE]
            lost += self._server.push(Parcel(machine=self._machine, batch=Batch(), asked=asked)).gone
        with self._outbox.transaction():
            self._outbox.note_lost(lost)
            self._outbox.asked()

    def _withdraw(self, report: Report) -> None:
        waiting = self._to_withdraw()
        if not waiting:
            return
        receipt = self._server.forget(waiting)
        with self._outbox.transaction():
            for key in waiting:
                if key in receipt.refused:
                    self._outbox.refuse(key, receipt.refused[key].message)
                else:
                    self._outbox.withdrawn(key)
                    report.withdrawn += 1

    def _to_withdraw(self) -> list[str]:
        withheld = self._outbox.withheld().values()
        return sorted(self._open_to({row.session for row in withheld if row.withdrawn_at is None}))

    # Collecting

    def preview(self) -> Iterator[Batch]:
        """The rows that a push would send now, in portions; nothing is sent."""
        collected = self.collect()
        due = self._outbox.due()
        for key in sorted(due.keys() & self._open_to(collected.covered)):
            for piece in self._pieces(collected.sessions[key], due[key]):
                yield piece.batch

    def has_news(self) -> bool:
        """True if the archive was written since the last push, something waits, or the server is to be asked."""
        return self._seen != self._journal.mark() or bool(self._to_withdraw()) or self._outbox.is_to_ask()

    def collect(self) -> Collected:
        """Note what is due since the last collection, in one transaction with the position."""
        mark = self._journal.mark()
        outbox = self._outbox
        sessions = {row.key: row for row in self._archive.sessions(SessionsRequest(empty=True))}
        covered = self._sharing.covered(sessions, outbox.withheld())
        states = _row_states([sessions[key] for key in covered])
        with outbox.transaction():
            looked_at = f"{mark.archive} {FORMAT.hex()}"
            if outbox.value("archive") != looked_at or outbox.position > mark.newest:
                outbox.look_again()
                outbox.keep("archive", looked_at)
            shared = outbox.shared()
            outbox.add_due((key, EVERYTHING) for key in covered if key not in shared)
            outbox.add_due((key, 0) for key in covered if key in shared and shared[key].row != states[key])
            while (changes := self._journal.changes(outbox.position, _CHANGES_AT_ONCE)) is not None:
                # A session that is not covered now may be again.
                outbox.add_due((ref.key, ref.ordinal) for ref in changes.turns if ref.key in shared)
                outbox.position = changes.until
        return Collected(mark, sessions, covered)

    # Sending

    def _open_to(self, keys: set[str]) -> set[str]:
        """Those of the sessions that the server has not refused a short time ago."""
        return keys - {key for key, refused in self._outbox.refused().items() if refused.retry_at > _now()}

    def _deliver(self, collected: Collected, report: Report, stop: threading.Event) -> None:
        sessions, covered = collected.sessions, self._open_to(collected.covered)
        due = {key: turns for key, turns in self._outbox.due().items() if key in covered}
        # The latest first: that is what others look for.
        order = sorted(due, key=lambda key: sessions[key].updated_at, reverse=True)
        pieces: list[Piece] = []
        size = chars = 0
        for key in order:
            for piece in self._pieces(sessions[key], due[key]):
                if pieces and (size + piece.size > parcels.MOST_EVENTS or chars + piece.chars > parcels.MOST_CHARS):
                    self._send(pieces, report)
                    pieces, size, chars = [], 0, 0
                    if stop.is_set():
                        return
                pieces.append(piece)
                size, chars = size + piece.size, chars + piece.chars
        if pieces:
            self._send(pieces, report)

    def _pieces(self, session: SessionRow, due: set[int]) -> Iterator[Piece]:
        """The pieces of a session. One that was read anew is sent from its beginning, at the next push if some of its
        pieces are on their way."""
        shared = self._outbox.shared(session.key).get(session.key)
        known = Known(self._outbox.sent(session.key), b"" if shared is None else shared.exchanges)
        begun = False
        try:
            for piece in self._packing.pack(session, due, known):
                begun = True
                yield piece
        except Rewritten:
            with self._outbox.transaction():
                self._outbox.rewrite(session.key)
            if not begun:
                row = self._archive.session(session.key)
                if row is not None:
                    yield from self._packing.pack(row, {EVERYTHING}, Known({}, b""))

    def _send(self, pieces: list[Piece], report: Report) -> None:
        outbox = self._outbox
        batch = _joined(pieces)
        keys = {row.key for row in batch.sessions}
        batch.removed = [key for key in sorted(keys) if outbox.rewriting(key)]
        known = [key for key in sorted(keys) if outbox.sent(key) and key not in batch.removed]
        receipt = self._server.push(Parcel(machine=self._machine, batch=batch, known=known))
        withheld = outbox.withheld()
        with outbox.transaction():
            for key, refusal in receipt.refused.items():
                if refusal.code == "conflict":
                    outbox.rewrite(key)
                else:
                    outbox.refuse(key, refusal.message)
                    report.refused += 1
            for piece in pieces:
                key = piece.batch.sessions[0].key
                if key in receipt.refused or key in withheld:
                    continue
                report.events += piece.size
                if piece.turn is not None:
                    outbox.acknowledge_turn(key, piece.turn, piece.states)
                if piece.last:
                    outbox.acknowledge_session(key, piece.row, piece.exchanges)
                    report.sessions += 1


def _joined(pieces: list[Piece]) -> Batch:
    """The rows of the pieces; the row of a session and of a turn once."""
    sessions = {piece.batch.sessions[0].key: piece.batch.sessions[0] for piece in pieces}
    turns = {(turn.session, turn.ordinal): turn for piece in pieces for turn in piece.batch.turns}
    return Batch(
        sessions=list(sessions.values()),
        turns=list(turns.values()),
        events=[event for piece in pieces for event in piece.batch.events],
        exchanges=[exchange for piece in pieces for exchange in piece.batch.exchanges],
        usage=[usage for piece in pieces for usage in piece.batch.usage],
    )


def _row_states(rows: list[SessionRow]) -> dict[str, bytes]:
    return {row.key: fingerprint(row) for row in seal(Batch(sessions=rows)).sessions}


def _now() -> int:
    return time.time_ns() // 1_000_000


class PushLock:
    """Held while a process of this machine pushes. Raises ArchiveBusy when another one still does after `patience`."""

    def __init__(self, home: Path, patience: float = 0.0) -> None:
        folder = make_private_folder(home / "team")
        until = time.monotonic() + patience
        while True:
            try:
                self._lock = WriterLock(folder)
                return
            except ArchiveBusy:
                if time.monotonic() >= until:
                    raise ArchiveBusy("another Backstory process is sharing sessions") from None
            time.sleep(_BUSY_POLL_SECONDS)

    def __enter__(self) -> PushLock:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def keep_pushing(
    open_courier: Callable[[], AbstractContextManager[Courier]], home: Path, stop: threading.Event, pause: float
) -> None:
    """Push whenever the archive has news, until stopped. A silent server is asked at growing intervals."""
    said = ""
    wait = 0.0
    while not stop.wait(wait):
        try:
            with open_courier() as courier:
                while not stop.is_set():
                    if courier.has_news():
                        with PushLock(home, patience=pause):
                            courier.push(stop)
                    said, wait = "", pause
                    stop.wait(pause)
        except ArchiveBusy:
            wait = pause
        except Exception as error:
            reason = explain(error) or str(error)
            if reason != said:
                _log.warning("sessions are not shared at the moment: %s", reason)
            said = reason
            wait = min(max(wait, pause) * 2, _LONGEST_PAUSE_SECONDS)

"""The spans of the turns that this machine has written, kept up to date with the record."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from pkgutil import resolve_name

from ....model import TurnRef
from ...errors import ArchiveError
from ...projection import KnownTurn, MakeProjection, Progress, Projection, TurnSpans
from ..record import ClickHouseRecord
from ..server import Server
from .writer import SpanWriter

_log = logging.getLogger(__name__)


class ClickHouseTurnWriter:
    """Writes the spans of turns. The progress is that of one machine: each projects the turns that it has written, by
    its own rules and prices."""

    def __init__(self, spans: SpanWriter, machine: str) -> None:
        self._spans = spans
        self._machine = machine
        self._known: dict[TurnRef, KnownTurn] = {}
        self._read: set[str] = set()

    def expect(self, keys: Iterable[str]) -> None:
        """Read the places of the turns of these sessions."""
        self._read.update(keys)
        self._known |= self._spans.places(keys)

    def progress(self) -> Progress | None:
        return self._spans.progress(self._machine)

    def known(self, turn: TurnRef) -> KnownTurn | None:
        if turn.key not in self._read:
            self.expect([turn.key])
        return self._known.get(turn)

    def replace(self, turns: Sequence[TurnSpans], progress: Progress) -> None:
        """Spans of another version are replaced turn by turn. Progress is written last: what a cut leaves out comes
        again."""
        self._known.clear()
        self._read.clear()
        if turns:
            self._spans.replace(turns)
        self._spans.write_progress(self._machine, progress)


class TraceFeed:
    """Lets the traces follow the record. An error in the traces does not stop the archive."""

    def __init__(self, server: Server, machine: str, spans: SpanWriter, projection: str | None) -> None:
        """`projection` names a `MakeProjection` as `module:object`; it is imported when there is something to do."""
        self._name = projection
        self._writer = ClickHouseTurnWriter(spans, machine)
        self._record = ClickHouseRecord(server, machine, self._writer.expect)
        self._projection: Projection | None = None
        self._projected = -1
        self._complaint = ""

    def project(self, newest: int, seconds: float) -> None:
        """Project the changes up to `newest`; what is left after so many seconds is for the next call."""
        if self._name is None or self._projected >= newest:
            return
        try:
            if self._projection is None:
                make: MakeProjection = resolve_name(self._name)
                self._projection = make(self._record, self._writer)
            self._projected = self._projection.follow(newest, time.monotonic() + seconds)
        except ArchiveError as error:
            self._projection = None
            if str(error) != self._complaint:
                _log.warning("traces are not up to date: %s", error)
            self._complaint = str(error)

    def newest(self) -> int:
        return self._record.newest()

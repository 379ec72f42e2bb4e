"""The traces of turns, brought to the state of the record by a projection that stands above the archive."""

from __future__ import annotations

import logging
import sqlite3
import time
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from ...base import ArchiveError
from ..bodies import Bodies
from ..database import newest_change, stored_dictionary

if TYPE_CHECKING:
    from ...projection import MakeProjection, Projection
    from .store import LocalSpans
    from .turns import LocalSpanWriter

_log = logging.getLogger(__name__)


class TraceFeed:
    """Used by one process at a time: the writer, or the process that works for it. The archive goes on without traces
    whatever is wrong with them."""

    def __init__(self, record: sqlite3.Connection, spans: LocalSpans, projection: str | None) -> None:
        """`projection` names a `MakeProjection` as `module:object`; it is imported when there is something to do."""
        self._record = record
        self._spans = spans
        self._name = projection
        self._projection: Projection | None = None
        self._writer: LocalSpanWriter | None = None
        self._complaint = ""
        # After a power cut the record may have lost changes that were projected already.
        self._projected = min(spans.projected, newest_change(record))

    @property
    def projected(self) -> int:
        """The last change of the record that the traces have."""
        return self._projected if self._name else newest_change(self._record)

    def project(self, seconds: float) -> None:
        """Let the traces follow the record; what is left after so many seconds is for the next call."""
        newest = newest_change(self._record)
        if self._name is None or self._projected >= newest:
            return
        try:
            if self._projection is None:
                self._projection = self._open(self._name)
            self._projected = self._projection.follow(newest, time.monotonic() + seconds)
        except (ArchiveError, sqlite3.DatabaseError) as error:
            self._complain(error)
            self.close()
            self._projected = min(self._spans.projected, newest)

    def forget(self, session: int, key: str, remember: bool) -> bool:
        """Delete the traces of a session; False if that has to be tried again."""
        try:
            self._spans.forget(session, key, remember=remember)
        except (ArchiveError, sqlite3.DatabaseError) as error:
            self._complain(error)
            return False
        return True

    def rewrite(self) -> None:
        """Write the file of the traces anew: nothing of what was deleted is left in it."""
        self._spans.rewrite()

    def close(self) -> None:
        self._projection = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, name: str) -> Projection:
        from ..outlines import LocalRecord

        record = self._record
        outlines = LocalRecord(record, Bodies(lambda: stored_dictionary(record)))
        self._writer = self._spans.turn_writer(outlines.number, self._projected)
        make: MakeProjection = resolve_name(name)
        return make(outlines, self._writer)

    def _complain(self, error: Exception) -> None:
        if str(error) != self._complaint:
            _log.warning("traces are not up to date: %s", error)
        self._complaint = str(error)

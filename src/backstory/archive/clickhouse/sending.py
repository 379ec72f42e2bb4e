"""Inserts of a writer, which may run in the background: the server works on some batches while others are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from .rows import EVENT_WRITTEN, Values
from .server import Server

# What is sent at once. A word has one row of postings for all these events: of four times fewer, the server has half as
# many rows again to write and to merge.
_EVENTS_AT_ONCE = 16_000
_CHARS_AT_ONCE = 32 << 20
_BODY = EVENT_WRITTEN.index("body")


class Insert(NamedTuple):
    table: str
    names: Sequence[str]
    rows: list[Values]


class SendingServer(Server):
    """The server of a writer. Within `in_background` batches are collected, and sent in their order while others are
    collected; whatever reads or changes rows waits until all are sent."""

    def __init__(self, server: Server) -> None:
        vars(self).update(vars(server))  # the same connections
        self._direct = server
        self._collected: dict[str, Insert] = {}
        self._sent: Future[None] | None = None
        self._background: ThreadPoolExecutor | None = None
        self.first: int | None = None
        """The version of the first of the batches that are collected."""

    @property
    def is_sending(self) -> bool:
        return self._sent is not None and not self._sent.done()

    def send(self, inserts: Sequence[Insert], version: int) -> None:
        """Insert the rows of a batch, table by table."""
        if self._background is None:
            _insert(self._direct, inserts)
            return
        if self.first is None:
            self.first = version
        for insert in inserts:
            self._collected.setdefault(insert.table, Insert(insert.table, insert.names, [])).rows.extend(insert.rows)
        events = self._collected["arrival"].rows
        if len(events) >= _EVENTS_AT_ONCE or sum(len(row[_BODY]) for row in events) >= _CHARS_AT_ONCE:
            self._send_collected()

    def settle(self) -> None:
        """Return when all is sent. Raises the error of what could not be sent; what was collected since is dropped,
        because it may go on where that ended."""
        if self._collected:
            self._send_collected()
        self._wait()

    @contextmanager
    def in_background(self) -> Iterator[None]:
        with ThreadPoolExecutor(1, "clickhouse-insert") as self._background:
            try:
                yield
            finally:
                try:
                    self.settle()
                finally:
                    self._background = None

    def _send_collected(self) -> None:
        assert self._background is not None
        collected, self._collected, self.first = [*self._collected.values()], {}, None
        self._wait()
        self._sent = self._background.submit(_insert, self._direct, collected)

    def _wait(self) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.result()

    def rows(
        self, sql: str, parameters: Mapping[str, Any] | None = None, deadline: float | None = None
    ) -> Sequence[Any]:
        self.settle()
        return super().rows(sql, parameters, deadline)

    def insert(self, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.settle()
        super().insert(table, names, rows)

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        self.settle()
        super().command(sql, parameters)


def _insert(server: Server, inserts: Iterable[Insert]) -> None:
    for table, names, rows in inserts:
        if table == "arrival":
            server.insert_by_month(table, names, rows, "ts")
        else:
            server.insert(table, names, rows)

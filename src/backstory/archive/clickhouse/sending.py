"""Inserts of a writer, which may run in the background: the server works on some batches while others are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, NamedTuple

from .rows import EVENT_WRITTEN, Values
from .server import Server

# What is sent at once. A word has one row of postings for all these events: of half as many, the server has a third
# more work with writing and merging rows. Of twice as many, it takes more memory for nothing.
_EVENTS_AT_ONCE = 32_000
_CHARS_AT_ONCE = 48 << 20
# The server makes the rows of what is sent at once with one processor.
_SENT_AT_ONCE = 2
_BODY = EVENT_WRITTEN.index("body")


class Insert(NamedTuple):
    table: str
    names: Sequence[str]
    rows: list[Values]


class SendingServer(Server):
    """The server of a writer. Within `in_background` batches are collected, and sent in their order while others are
    collected; whatever reads or changes rows waits until all are sent. Events do not wait for the batches before: they
    take their own place when they are written again."""

    def __init__(self, server: Server) -> None:
        vars(self).update(vars(server))  # the same connections
        self._direct = server
        self._collected: dict[str, Insert] = {}
        self._chars = 0
        self._sent: list[Future[None]] = []
        self._background: ThreadPoolExecutor | None = None
        self.first: int | None = None
        """The version of the first of the batches that are collected."""

    @property
    def is_sending(self) -> bool:
        return not all(sent.done() for sent in self._sent)

    def send(self, inserts: Sequence[Insert], version: int) -> None:
        """Insert the rows of a batch, table by table."""
        if self._background is None:
            _insert(self._direct, inserts)
            return
        if self.first is None:
            self.first = version
        for insert in inserts:
            self._collected.setdefault(insert.table, Insert(insert.table, insert.names, [])).rows.extend(insert.rows)
            if insert.table == "arrival":
                self._chars += sum(len(row[_BODY]) for row in insert.rows)
        if len(self._collected["arrival"].rows) >= _EVENTS_AT_ONCE or self._chars >= _CHARS_AT_ONCE:
            self._send_collected()

    def settle(self) -> None:
        """Return when all is sent. Raises the error of what could not be sent; what was collected since is dropped,
        because it may go on where that ended."""
        if self._collected:
            self._send_collected()
        self._wait()

    @contextmanager
    def in_background(self) -> Iterator[None]:
        with ThreadPoolExecutor(_SENT_AT_ONCE, "clickhouse-insert") as self._background:
            try:
                yield
            finally:
                try:
                    self.settle()
                finally:
                    self._background = None

    def _send_collected(self) -> None:
        assert self._background is not None
        collected, self._collected, self._chars, self.first = [*self._collected.values()], {}, 0, None
        self._wait(_SENT_AT_ONCE - 1)
        before = self._sent[-1] if self._sent else None
        self._sent.append(self._background.submit(_insert, self._direct, collected, before))

    def _wait(self, most: int = 0) -> None:
        """Return when at most so many are being sent."""
        while len(self._sent) > most:
            try:
                self._sent[0].result()
            except BaseException:
                wait(self._sent)  # they fail with it
                self._sent.clear()
                raise
            del self._sent[0]

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


def _insert(server: Server, inserts: Iterable[Insert], before: Future[None] | None = None) -> None:
    """Insert events, and all other rows when what was sent before is there."""
    others = []
    for insert in inserts:
        if insert.table == "arrival":
            server.insert_by_month(insert.table, insert.names, insert.rows, "ts")
        else:
            others.append(insert)
    if before is not None:
        before.result()
    for table, names, rows in others:
        server.insert(table, names, rows)

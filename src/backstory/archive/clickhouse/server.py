"""The connection to a ClickHouse server, and its errors in words."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ...interpreter import waiting
from ..errors import ArchiveError, DeadlineExceeded

_DEFAULT_DATABASE = "backstory"
_TIMEOUT_EXCEEDED = 159
_UNKNOWN_DATABASE = 81
# A statement stays below ClickHouse's `max_query_size` of 256 KiB.
_IN_AT_ONCE = 2_000
# Tables are partitioned by month, and ClickHouse refuses an insert into more than 100 partitions.
_MONTHS_AT_ONCE = 90
_MONTH_MS = 28 * 86_400_000
_NAMES_AT_ONCE = 500
# Reads of this process that run beside others; further ones wait.
_BESIDE = 8

# An insert returns when the shards have the rows; a subquery over all shards runs once, and replicas take its result.
_ON_SHARDS = {
    "distributed_foreground_insert": 1,
    "distributed_product_mode": "global",
    "allow_nondeterministic_mutations": 1,
}

# The cause, within the names of the layers that report it.
_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] ([\w ]+)")

T = TypeVar("T")


class Server:
    """One database of a server. Any thread may use it.

    With `cluster`, each table `t` is a Distributed table over the tables `t_local` of the shards (`cluster.py`).
    """

    def __init__(self, url: str, cluster: str | None = None) -> None:
        parts = urlsplit(url)
        self.database = parts.path.strip("/") or _DEFAULT_DATABASE
        self.cluster = cluster
        self._address = parts.hostname or url
        self._url = urlunsplit(parts._replace(path=""))
        self._types: dict[str, dict[str, Any]] = {}
        self._pool = ThreadPoolExecutor(_BESIDE, "clickhouse")
        with self._explained():
            self._client = self._connect()

    def _connect(self) -> Any:
        from clickhouse_connect import get_client
        from clickhouse_connect.driver.exceptions import DatabaseError

        # A session of ClickHouse would allow one query at a time.
        options: dict[str, Any] = {"dsn": self._url, "autogenerate_session_id": False}
        if self.cluster is not None:
            options["settings"] = _ON_SHARDS
        try:
            return get_client(database=self.database, **options)
        except DatabaseError as error:
            if error.code != _UNKNOWN_DATABASE:
                raise
        first = get_client(database="default", **options)
        first.command(f"CREATE DATABASE IF NOT EXISTS {quoted(self.database)}")
        first.close()
        return get_client(database=self.database, **options)

    def rows(
        self, sql: str, parameters: Mapping[str, Any] | None = None, deadline: float | None = None
    ) -> Sequence[Any]:
        """The rows of a query; parameters are bound as `%(name)s`."""
        if deadline is not None:
            if (seconds := deadline - time.monotonic()) <= 0:
                raise DeadlineExceeded("the request took too long")
            sql += f" SETTINGS max_execution_time = {seconds:.3f}"
        with self._explained(), waiting():
            found: Sequence[Any] = self._client.query(sql, dict(parameters or {})).result_rows
            return found

    def row(self, sql: str, parameters: Mapping[str, Any] | None = None, deadline: float | None = None) -> Any:
        return next(iter(self.rows(sql, parameters, deadline)), None)

    def beside(self, read: Callable[[], T]) -> Callable[[], T]:
        """Start a read that does not need what others give; the result is what waits for it."""
        future = self._pool.submit(read)

        def result() -> T:
            with waiting():
                return future.result()

        return result

    def rows_in(self, sql: str, digests: Sequence[bytes]) -> Iterator[Any]:
        """The rows of a query with `IN ({0})` over digests, in portions."""
        for start in range(0, len(digests), _IN_AT_ONCE):
            yield from self.rows(sql.format(hexed(digests[start : start + _IN_AT_ONCE])))

    def rows_of(
        self,
        sql: str,
        names: Iterable[Any],
        parameters: Mapping[str, Any] | None = None,
        deadline: float | None = None,
    ) -> Iterator[Any]:
        """The rows of a query with `IN %(names)s` over texts, numbers or tuples of them, in portions."""
        given = list(names)
        for start in range(0, len(given), _NAMES_AT_ONCE):
            portion = tuple(given[start : start + _NAMES_AT_ONCE])
            yield from self.rows(sql, {**(parameters or {}), "names": portion}, deadline)

    def insert(self, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if not rows:
            return
        with self._explained():
            types = self._types.get(table)
            if types is None:
                context = self._client.create_insert_context(table, "*")
                types = self._types[table] = dict(zip(context.column_names, context.column_types, strict=True))
            self._client.insert(table, rows, column_names=names, column_types=[types[name] for name in names])

    def insert_by_month(self, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]], ts: str) -> None:
        """Insert rows into a table that is partitioned by the month of the column `ts`, in milliseconds."""
        at = names.index(ts)
        months = sorted({row[at] // _MONTH_MS for row in rows})
        if len(months) <= _MONTHS_AT_ONCE:
            self.insert(table, names, rows)
            return
        for start in range(0, len(months), _MONTHS_AT_ONCE):
            some = frozenset(months[start : start + _MONTHS_AT_ONCE])
            self.insert(table, names, [row for row in rows if row[at] // _MONTH_MS in some])

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        with self._explained():
            self._client.command(sql, dict(parameters or {}))

    def delete(self, table: str, condition: str, parameters: Mapping[str, Any], *, wipe: bool = False) -> None:
        """Delete rows: at once for all readers. `wipe` rewrites the parts that have them before it returns."""
        if wipe:
            self.change(table, f"DELETE WHERE {condition}", parameters)
        else:
            sql = f"DELETE FROM {self._stored(table)} WHERE {condition} SETTINGS lightweight_deletes_sync = 2"
            self.command(sql, parameters)

    def change(self, table: str, changes: str, parameters: Mapping[str, Any], *, wait: bool = True) -> None:
        """Rewrite the parts of a table that changes of ALTER TABLE concern, before it returns if it is to wait."""
        sync = 2 if wait else 0
        self.command(f"ALTER TABLE {self._stored(table)} {changes} SETTINGS mutations_sync = {sync}", parameters)

    def _stored(self, table: str) -> str:
        return table if self.cluster is None else f"{table}_local ON CLUSTER {quoted(self.cluster)}"

    def index(self, table: str, name: str) -> str:
        """The contents of a text index as a table."""
        database = quoted(self.database)
        if self.cluster is None:
            return f"mergeTreeTextIndex({database}, {quoted(table)}, {name})"
        return f"cluster({quoted(self.cluster)}, mergeTreeTextIndex({database}, {quoted(table + '_local')}, {name}))"

    def close(self) -> None:
        self._pool.shutdown()
        self._client.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            from clickhouse_connect.driver.exceptions import ClickHouseError
        except ImportError:
            raise ArchiveError(
                "the ClickHouse engine needs clickhouse-connect: pip install 'backstory[clickhouse]'"
            ) from None
        try:
            yield
        except ClickHouseError as error:
            raise self._explanation(error) from error

    def _explanation(self, error: Exception) -> ArchiveError:
        code = getattr(error, "code", None)
        if code == _TIMEOUT_EXCEEDED:
            return DeadlineExceeded("the request took too long")
        if code is None and (of_system := _SYSTEM_ERROR.search(str(error))):
            reason = of_system[1]
        else:
            reason = " ".join(str(error).split())[:300]
        if code is None:  # no answer of the server
            return ArchiveError(
                f"the ClickHouse server {self._address} cannot be reached: check the network and its URL in the "
                f"settings ({reason})"
            )
        return ArchiveError(f"the ClickHouse server {self._address} answers: {reason}")


def quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def hexed(digests: Sequence[bytes]) -> str:
    """Digests as a list for IN, which is never empty."""
    return ", ".join(f"unhex('{digest.hex()}')" for digest in digests) or "unhex('')"


# With a backslash in the text of a statement. Percent signs and braces are those of parameters for the client.
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "%": "\\x25", "{": "\\x7b"})


def literal(text: str) -> str:
    return f"'{text.translate(_ESCAPES)}'"


def array(values: Iterable[Any], kind: str) -> str:
    """Texts, numbers or tuples of them as an array. It is one text, which the server reads as such: as SQL, each of its
    members would take ten times as long, and as a parameter the client would."""
    return f"CAST({literal('[' + ','.join(map(_element, values)) + ']')}, 'Array({kind})')"


def _element(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return f"({','.join(map(_element, value))})" if isinstance(value, tuple) else repr(value)


def encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()

"""The tables on a ClickHouse server, and their migrations.

Rows that are written again replace those with the same key: `version` decides, at reading by FINAL and for good when
ClickHouse merges parts. Events are partitioned by month. Texts are kept beside their tokens: the tokens in their order
give frequencies and phrases, and a text index over them gives the events that have a word.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from ..errors import ArchiveError
from .server import Server, quoted


class Table(NamedTuple):
    name: str
    columns: str
    engine: str
    order: str
    shard: str
    """The key that decides on which shard a row is."""
    age: str | None = None
    """The column with the time in milliseconds that `keep_days` looks at."""
    partition: str | None = None

    def create(self, name: str, engine: str, on_cluster: str = "") -> str:
        partition = f" PARTITION BY {self.partition}" if self.partition else ""
        return (
            f"CREATE TABLE IF NOT EXISTS {name}{on_cluster} ({self.columns.strip()}) "
            f"ENGINE = {engine}{partition} ORDER BY {self.order}"
        )


def _largest(*names: str) -> str:
    return ", ".join(f"{name} SimpleAggregateFunction(max, UInt64)" for name in names)


_REPLACING = "ReplacingMergeTree(version)"
_DIGEST = "FixedString(16)"
_TOKENS = "tokens Array(String) CODEC(ZSTD(3)), INDEX token_index tokens TYPE text(tokenizer = 'array')"

TABLES = (
    Table(
        "session",
        """
        key String, version_of_row UInt64, public_id String, source LowCardinality(String),
        title String, title_rank Int32, title_stems Array(String),
        summary Nullable(String), slug Nullable(String), folder Nullable(String), cwd Nullable(String),
        last_cwd Nullable(String), project Nullable(String), branch Nullable(String), version Nullable(String),
        parent Nullable(String), parent_call Nullable(String), forked_from Nullable(String),
        started_at Int64, updated_at Int64, turn_count UInt32, event_count UInt32, completed Bool,
        mode LowCardinality(String), first_at Int64, last_at Int64, exchange_count UInt32, provisional Bool,
        INDEX parent_index parent TYPE bloom_filter GRANULARITY 1
        """,
        "ReplacingMergeTree(version_of_row)",
        "key",
        "key",
        "updated_at",
    ),
    Table(
        "turn",
        f"""
        session String, ordinal UInt32, version UInt64, turn_key Nullable(String), started_at Int64, updated_at Int64,
        event_count UInt32, prompt Nullable({_DIGEST}), terminal Nullable({_DIGEST}), terminal_type Nullable(UInt8),
        candidate Nullable({_DIGEST}), last_answer Nullable({_DIGEST}), tools Array(LowCardinality(String)),
        types Array(UInt8), started_work Bool
        """,
        _REPLACING,
        "(session, ordinal)",
        "session",
        "updated_at",
    ),
    Table(
        "event",
        f"""
        session String, turn UInt32, ordinal UInt32, version UInt64, uid {_DIGEST}, type UInt8, ts Int64,
        source LowCardinality(String), project LowCardinality(String), tool LowCardinality(Nullable(String)),
        model LowCardinality(Nullable(String)), originating_model LowCardinality(Nullable(String)),
        usage_key Nullable({_DIGEST}), facts String CODEC(ZSTD(3)), body String CODEC(ZSTD(3)),
        words UInt32, stems UInt32, {_TOKENS}, INDEX uid_index uid TYPE bloom_filter(0.001) GRANULARITY 1
        """,
        _REPLACING,
        "(session, turn, ordinal)",
        "session",
        "ts",
        "toYYYYMM(toDateTime(intDiv(ts, 1000), 'UTC'))",
    ),
    Table(
        "exchange",
        f"""
        session String, number UInt32, version UInt64, ts Int64, user Nullable({_DIGEST}), user_text Nullable(String),
        said Array({_DIGEST}), {_TOKENS}
        """,
        _REPLACING,
        "(session, number)",
        "session",
        "ts",
    ),
    Table(
        "usage",
        f"""
        key {_DIGEST}, session SimpleAggregateFunction(any, String), turn SimpleAggregateFunction(any, UInt32),
        ts SimpleAggregateFunction(any, Int64), model SimpleAggregateFunction(anyLast, Nullable(String)),
        {_largest("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_5m_tokens")},
        {_largest("cache_write_1h_tokens", "reasoning_tokens")},
        cost SimpleAggregateFunction(anyLast, Nullable(Float64)),
        stop_reason SimpleAggregateFunction(anyLast, Nullable(String)),
        request SimpleAggregateFunction(anyLast, Nullable(String))
        """,
        "AggregatingMergeTree",
        "key",
        "key",
        "ts",
    ),
    Table(
        "file",
        """
        machine String, path String, version UInt64, source LowCardinality(String), session String, inode UInt64,
        size Int64, mtime_ns Int64, offset Int64, prefix String, state Nullable(String), errors UInt32,
        last_error Nullable(String), missing Bool
        """,
        _REPLACING,
        "(machine, path)",
        "machine",
    ),
    Table("project", "path String", "ReplacingMergeTree", "path", "path"),
    Table("repository", "path String, version UInt64, identity String", _REPLACING, "path", "path"),
    Table("meta", "machine String, name String, version UInt64, value String", _REPLACING, "(machine, name)", "name"),
    Table("forget", "key String, version UInt64, remember Bool, wipe Bool", _REPLACING, "key", "key"),
    Table("forgotten", f"mark {_DIGEST}", "ReplacingMergeTree", "mark", "mark"),
    Table("forgotten_turn", "session String, turn_key String", "ReplacingMergeTree", "(session, turn_key)", "session"),
)

# One entry per version: the statements that take a database from that version to the next. Append only.
MIGRATIONS: tuple[tuple[str, ...], ...] = (tuple(table.create(table.name, table.engine) for table in TABLES),)
VERSIONS = (
    "CREATE TABLE IF NOT EXISTS schema_version (version UInt32, applied DateTime DEFAULT now()) "
    "ENGINE = ReplacingMergeTree ORDER BY version"
)


def migrate(server: Server) -> None:
    """Bring the tables to the version of this code. Raises ArchiveError for a server that is ahead of it."""
    server.command(VERSIONS)
    found = server.row("SELECT max(version) FROM schema_version")
    version = found[0] if found else 0
    if version > len(MIGRATIONS):
        raise ArchiveError(
            f"the ClickHouse database {server.database} has schema version {version}, this Backstory knows "
            f"{len(MIGRATIONS)}: update Backstory on this machine"
        )
    if version < len(MIGRATIONS) and server.cluster is not None:
        raise ArchiveError(
            f"the tables of cluster {server.cluster} have schema version {version} instead of {len(MIGRATIONS)}: "
            "run the statements that `python -m backstory.archive.clickhouse.cluster` prints"
        )
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        for statement in statements:
            server.command(statement)
        server.insert("schema_version", ("version",), [(number,)])


def keep(server: Server, days: int) -> None:
    """Let ClickHouse delete what is older than so many days; 0 keeps everything. Changes only what differs."""
    found = server.row("SELECT value FROM meta FINAL WHERE machine = '' AND name = 'keep_days'")
    if int(found[0] if found else 0) == days:
        return
    for table in TABLES:
        if table.age is None:
            continue
        ttl = f"MODIFY TTL toDateTime(intDiv({table.age}, 1000)) + INTERVAL {days} DAY" if days else "REMOVE TTL"
        server.command(f"ALTER TABLE {quoted(table.name)} {ttl} SETTINGS mutations_sync = 0")
    row = ("", "keep_days", time.time_ns(), str(days))
    server.insert("meta", ("machine", "name", "version", "value"), [row])

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
    settings: str = ""

    def create(self, name: str, engine: str, on_cluster: str = "") -> str:
        partition = f" PARTITION BY {self.partition}" if self.partition else ""
        settings = f" SETTINGS {self.settings}" if self.settings else ""
        return (
            f"CREATE TABLE IF NOT EXISTS {name}{on_cluster} ({self.columns.strip()}) "
            f"ENGINE = {engine}{partition} ORDER BY {self.order}{settings}"
        )


def _largest(*names: str) -> str:
    return ", ".join(f"{name} SimpleAggregateFunction(max, UInt64)" for name in names)


def _month(column: str) -> str:
    return f"toYYYYMM(toDateTime(intDiv({column}, 1000), 'UTC'))"


_REPLACING = "ReplacingMergeTree(version)"
_DIGEST = "FixedString(16)"
# The client sends tokens as the lines of a text, which is much less work for it than an array. `lines` is not stored.
_SPLIT = "if(lines = '', [], splitByChar('\\n', lines))"
_TOKEN_INDEX = "INDEX token_index tokens TYPE text(tokenizer = 'array', posting_list_codec = 'bitpacking')"
_EXCHANGE_TOKENS = f"tokens Array(String) DEFAULT {_SPLIT} CODEC(ZSTD(1))"
# The index is most of the work of an insert, so it gets each token of an event once.
_EVENT_TOKENS = f"tokens Array(String) DEFAULT arrayDistinct({_SPLIT}) CODEC(ZSTD(1))"
# The numbers of the tokens in their order. Scores are computed from them: they are read many times faster than texts.
# They are hashes, which no codec makes smaller.
_NUMBERED = "terms Array(UInt32) DEFAULT arrayMap(token -> toUInt32(cityHash64(token)), {}) CODEC(LZ4)"
_TERMS = _NUMBERED.format(_SPLIT)
# For rows from before there were numbers, whose tokens are in their order.
_TERMS_OF_TOKENS = _NUMBERED.format("tokens")

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
        user Nullable(String), machine Nullable(String),
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
        session String, ordinal UInt32, version UInt64, machine LowCardinality(String),
        turn_key Nullable(String), started_at Int64, updated_at Int64,
        event_count UInt32, prompt Nullable({_DIGEST}), terminal Nullable({_DIGEST}), terminal_type Nullable(UInt8),
        candidate Nullable({_DIGEST}), last_answer Nullable({_DIGEST}), tools Array(LowCardinality(String)),
        types Array(UInt8), started_work Bool,
        INDEX version_index version TYPE minmax GRANULARITY 1
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
        usage_key Nullable({_DIGEST}), facts String CODEC(ZSTD(1)), body String CODEC(ZSTD(1)),
        words UInt32, stems UInt32, lines String EPHEMERAL, {_EVENT_TOKENS}, {_TERMS}, {_TOKEN_INDEX}
        """,
        _REPLACING,
        "(session, turn, ordinal)",
        "session",
        "ts",
        _month("ts"),
        # Texts and tokens are long: what is read for one event is read for its neighbours, too.
        "index_granularity = 128, min_compress_block_size = 16384",
    ),
    Table(
        "place",  # of each event in the table of events
        f"uid {_DIGEST}, version UInt64, session String, turn UInt32, ordinal UInt32, ts Int64",
        _REPLACING,
        "uid",
        "uid",
        "ts",
        None,
        "index_granularity = 1024",
    ),
    Table(
        "exchange",
        f"""
        session String, number UInt32, version UInt64, ts Int64, user Nullable({_DIGEST}), user_text Nullable(String),
        said Array({_DIGEST}), lines String EPHEMERAL, {_EXCHANGE_TOKENS}, {_TOKEN_INDEX}
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
        request SimpleAggregateFunction(anyLast, Nullable(String)),
        INDEX session_index session TYPE bloom_filter GRANULARITY 1
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
    Table(
        "span",
        """
        trace String, uid Int64, version UInt64, deleted UInt8, parent Nullable(Int64),
        name LowCardinality(String), type UInt8, status UInt8, start Int64, `end` Nullable(Int64),
        model LowCardinality(Nullable(String)), input Nullable(Int64), output Nullable(Int64), total Nullable(Int64),
        cache_read Nullable(Int64), cache_write Nullable(Int64), cache_write_1h Nullable(Int64),
        reasoning Nullable(Int64), cost Nullable(Float64), cost_reported Bool,
        stop_reason LowCardinality(Nullable(String)), exit_code Nullable(Int64), waiting Nullable(Int64),
        call Nullable(String), alias Nullable(String), logged Bool, cause Nullable(Int64),
        session String, turn UInt32, first Nullable(UInt32), last Nullable(UInt32), last_turn Nullable(UInt32),
        scope Nullable(Int64), counts Bool, twin_trace Nullable(String), twin Nullable(Int64),
        facts String CODEC(ZSTD(3)), content String CODEC(ZSTD(3)),
        paths Array(LowCardinality(String)), values Array(String) CODEC(ZSTD(3)),
        INDEX call_index call TYPE bloom_filter GRANULARITY 1, INDEX scope_index scope TYPE bloom_filter GRANULARITY 1,
        INDEX session_index session TYPE bloom_filter GRANULARITY 1,
        INDEX start_index start TYPE minmax GRANULARITY 1,
        INDEX path_index paths TYPE bloom_filter GRANULARITY 1, INDEX value_index values TYPE bloom_filter GRANULARITY 1
        """,
        "ReplacingMergeTree(version, deleted)",
        "(trace, uid)",
        "trace",
        "start",
        _month("start"),
    ),
    Table(
        "trace",
        """
        uid String, version UInt64, deleted UInt8, name Nullable(String), named Bool, status UInt8, start Int64,
        updated Int64, latency Nullable(Int64), cost Nullable(Float64), tokens Nullable(Int64), spans UInt32,
        session Nullable(String), native Nullable(String), source LowCardinality(Nullable(String)),
        project LowCardinality(Nullable(String)), dataset_run Nullable(String), projected Bool,
        INDEX session_index session TYPE bloom_filter GRANULARITY 1
        """,
        "ReplacingMergeTree(version, deleted)",
        "uid",
        "uid",
        "updated",
    ),
    Table(
        "turn_trace",
        """
        session String, turn UInt32, version UInt64, deleted UInt8, trace String, root Int64, parent Nullable(Int64),
        status UInt8
        """,
        "ReplacingMergeTree(version, deleted)",
        "(session, turn)",
        "session",
    ),
    Table("project", "path String", "ReplacingMergeTree", "path", "path"),
    Table("repository", "path String, version UInt64, identity String", _REPLACING, "path", "path"),
    Table("meta", "machine String, name String, version UInt64, value String", _REPLACING, "(machine, name)", "name"),
    Table("forget", "key String, version UInt64, remember Bool, wipe Bool", _REPLACING, "key", "key"),
    Table("forgotten", f"mark {_DIGEST}", "ReplacingMergeTree", "mark", "mark"),
    Table("forgotten_turn", "session String, turn_key String", "ReplacingMergeTree", "(session, turn_key)", "session"),
)

_CREATE = tuple(table.create(table.name, table.engine) for table in TABLES)
# One entry per version: the statements that take a database from that version to the next. Append only. A new database
# has the newest tables from the first statements, so the others change only what is missing.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    _CREATE,
    (
        *_CREATE,
        # The origin of a session that was received for a team.
        "ALTER TABLE session ADD COLUMN IF NOT EXISTS user Nullable(String)",
        "ALTER TABLE session ADD COLUMN IF NOT EXISTS machine Nullable(String)",
        "ALTER TABLE turn ADD COLUMN IF NOT EXISTS machine LowCardinality(String) AFTER version",
        "ALTER TABLE turn ADD INDEX IF NOT EXISTS version_index version TYPE minmax GRANULARITY 1",
        f"ALTER TABLE event ADD COLUMN IF NOT EXISTS lines String EPHEMERAL, MODIFY COLUMN {_EVENT_TOKENS}",
        f"ALTER TABLE exchange ADD COLUMN IF NOT EXISTS lines String EPHEMERAL, MODIFY COLUMN {_EXCHANGE_TOKENS}",
        f"ALTER TABLE event ADD COLUMN IF NOT EXISTS {_TERMS_OF_TOKENS}",
        "ALTER TABLE event MATERIALIZE COLUMN terms SETTINGS mutations_sync = 2",
        "ALTER TABLE usage ADD INDEX IF NOT EXISTS session_index session TYPE bloom_filter GRANULARITY 1",
    ),
    (
        *_CREATE,
        f"ALTER TABLE event MODIFY COLUMN {_TERMS}",
        f"ALTER TABLE event MODIFY COLUMN {_EVENT_TOKENS}",
        "ALTER TABLE event DROP INDEX IF EXISTS uid_index",
        "INSERT INTO place SELECT uid, version, session, turn, ordinal, ts FROM event",
    ),
)
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

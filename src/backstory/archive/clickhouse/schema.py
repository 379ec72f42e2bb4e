"""The tables on a ClickHouse server, and their migrations.

Rows that are written again replace those with the same key: `version` decides, at reading by FINAL and for good when
ClickHouse merges parts. Events are partitioned by month. Their words are in a table of postings, sorted by word, which
names an event by the version and a number within it: the numbers of a batch are small and next to each other. A posting
of an event that is gone names nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ..errors import ArchiveError
from .postings import DOCUMENTS, VIEWS, create_view, postings
from .server import Server, quoted


class Table(NamedTuple):
    name: str
    columns: str
    engine: str
    order: str
    shard: str
    """The key that decides on which shard a row is."""
    age: str | None = None
    """The time in milliseconds that `keep_days` looks at."""
    partition: str | None = None
    settings: str = ""

    def create(self, name: str, engine: str, on_cluster: str = "") -> str:
        partition = f" PARTITION BY {self.partition}" if self.partition else ""
        order = f" ORDER BY {self.order}" if self.order else ""
        settings = f" SETTINGS {self.settings}" if self.settings else ""
        return (
            f"CREATE TABLE IF NOT EXISTS {name}{on_cluster} ({self.columns.strip()}) "
            f"ENGINE = {engine}{partition}{order}{settings}"
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
# Of events until version 3.
_EVENT_TOKENS = f"tokens Array(String) DEFAULT arrayDistinct({_SPLIT}) CODEC(ZSTD(1))"
# The numbers of the words in their order, for phrases. They are hashes, which no codec makes smaller.
_NUMBERED = "terms Array(UInt32) DEFAULT arrayMap(token -> toUInt32(cityHash64(token)), {}) CODEC(LZ4)"
_TERMS = _NUMBERED.format(_SPLIT)
# For rows from before there were numbers, whose tokens are in their order.
_TERMS_OF_TOKENS = _NUMBERED.format("tokens")
_SHOWN = (
    f"session String, turn UInt32, ordinal UInt32, uid {_DIGEST}, type UInt8, project LowCardinality(String), ts Int64"
)

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
        words UInt32, stems UInt32, number UInt32, lines String EPHEMERAL, {_TERMS},
        INDEX version_index version TYPE minmax GRANULARITY 1
        """,
        _REPLACING,
        "(session, turn, ordinal)",
        "session",
        "ts",
        _month("ts"),
        # Texts and terms are long: what is read for one event is read for its neighbours, too.
        "index_granularity = 32, min_compress_block_size = 16384",
    ),
    Table(
        "posting",  # of a word or a marked stem: the events of a version that have it, how often, and their lengths
        """
        term UInt64, version UInt64 CODEC(Delta, ZSTD(1)), numbers Array(UInt32) CODEC(Delta, ZSTD(1)),
        frequencies Array(UInt8) CODEC(ZSTD(1)), lengths Array(UInt16) CODEC(ZSTD(1))
        """,
        "MergeTree",
        "(term, version)",
        "version",
        "intDiv(version, 1000000)",
        _month("intDiv(version, 1000000)"),
        "index_granularity = 512",
    ),
    Table(
        "document",  # what a search shows of events, by the names that postings have for them
        f"version UInt64, number UInt32, {_SHOWN}",
        "MergeTree",
        "(version, number)",
        "session",
        "intDiv(version, 1000000)",
        None,
        "index_granularity = 256, min_compress_block_size = 8192",
    ),
    # Events with their tokens as lines of a text. Nothing is stored here: `VIEWS` make documents and postings of it.
    Table(
        "arrival",
        f"version UInt64, number UInt32, {_SHOWN}, words UInt32, stems UInt32, lines String",
        "Null",
        "",
        "session",
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


_CREATE = (
    *(table.create(table.name, table.engine) for table in TABLES),
    *(create_view(f"{name}_view", "arrival", name, query) for name, query in VIEWS.items()),
)
_TOKENS_BEFORE = (
    "SELECT version, number, words, stems, arrayJoin(arrayFlatten(arrayMap(token -> "
    "arrayWithConstant(greatest(countEqual(terms, toUInt32(cityHash64(token))), 1), token), arrayDistinct(tokens)))) "
    "AS token FROM event_numbered"
)


def _make_postings(server: Server) -> None:
    """Number the events of version 3 and make postings of their tokens, in a table that takes the place of the other
    one at once. A cut leaves nothing that stops the next try."""
    server.command("DROP TABLE IF EXISTS event_numbered")
    has_tokens = (
        "SELECT count() FROM system.columns WHERE database = %(database)s AND table = 'event' AND name = 'tokens'"
    )
    if not server.row(has_tokens, {"database": server.database})[0]:
        return
    events = next(table for table in TABLES if table.name == "event")
    server.command(events.create("event_numbered", events.engine))
    server.command("ALTER TABLE event_numbered ADD COLUMN tokens Array(String)")
    names = ", ".join((*_COPIED, "tokens"))
    server.command(
        f"INSERT INTO event_numbered ({names}, number) SELECT {names}, rowNumberInAllBlocks() + 1 FROM event "
        "SETTINGS max_partitions_per_insert_block = 0"
    )
    for table in VIEWS:
        server.command(f"TRUNCATE TABLE {table}")
    server.command(f"INSERT INTO document {DOCUMENTS.format('event_numbered')}")
    server.command(f"INSERT INTO posting {postings(_TOKENS_BEFORE)} SETTINGS max_partitions_per_insert_block = 0")
    server.command("ALTER TABLE event_numbered DROP COLUMN tokens SETTINGS mutations_sync = 2")
    server.command("EXCHANGE TABLES event AND event_numbered")
    server.command("DROP TABLE event_numbered")
    found = server.row(_KEPT_DAYS)
    if found and int(found[0]):
        _set_age(server, events, int(found[0]))


_COPIED = (
    "session", "turn", "ordinal", "version", "uid", "type", "ts", "source", "project", "tool", "model",
    "originating_model", "usage_key", "facts", "body", "words", "stems", "terms",
)  # fmt: skip
# One entry per version: the steps that take a database from that version to the next. Append only. A new database gets
# the newest tables at once.
MIGRATIONS: tuple[tuple[str | Callable[[Server], None], ...], ...] = (
    _CREATE,
    (
        *_CREATE,
        # The origin of a session that was received for a team.
        "ALTER TABLE session ADD COLUMN IF NOT EXISTS user Nullable(String)",
        "ALTER TABLE session ADD COLUMN IF NOT EXISTS machine Nullable(String)",
        "ALTER TABLE turn ADD COLUMN IF NOT EXISTS machine LowCardinality(String) AFTER version",
        "ALTER TABLE turn ADD INDEX IF NOT EXISTS version_index version TYPE minmax GRANULARITY 1",
        f"ALTER TABLE event ADD COLUMN IF NOT EXISTS lines String EPHEMERAL, MODIFY COLUMN IF EXISTS {_EVENT_TOKENS}",
        f"ALTER TABLE exchange ADD COLUMN IF NOT EXISTS lines String EPHEMERAL, MODIFY COLUMN {_EXCHANGE_TOKENS}",
        f"ALTER TABLE event ADD COLUMN IF NOT EXISTS {_TERMS_OF_TOKENS}",
        "ALTER TABLE event MATERIALIZE COLUMN terms SETTINGS mutations_sync = 2",
        "ALTER TABLE usage ADD INDEX IF NOT EXISTS session_index session TYPE bloom_filter GRANULARITY 1",
    ),
    (
        *_CREATE,
        f"ALTER TABLE event MODIFY COLUMN {_TERMS}",
        f"ALTER TABLE event MODIFY COLUMN IF EXISTS {_EVENT_TOKENS}",
        "ALTER TABLE event DROP INDEX IF EXISTS uid_index",
        "INSERT INTO place SELECT uid, version, session, turn, ordinal, ts FROM event",
    ),
    (*_CREATE, _make_postings),
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
    if not version:
        for statement in _CREATE:
            server.command(statement)
        server.insert("schema_version", ("version",), [(each + 1,) for each in range(len(MIGRATIONS))])
        return
    for number, steps in enumerate(MIGRATIONS[version:], version + 1):
        for step in steps:
            if isinstance(step, str):
                server.command(step)
            else:
                step(server)
        server.insert("schema_version", ("version",), [(number,)])


def keep(server: Server, days: int) -> None:
    """Let ClickHouse delete what is older than so many days; 0 keeps everything. Changes only what differs."""
    found = server.row(_KEPT_DAYS)
    if int(found[0] if found else 0) == days:
        return
    for table in TABLES:
        if table.age is not None:
            _set_age(server, table, days)
    row = ("", "keep_days", time.time_ns(), str(days))
    server.insert("meta", ("machine", "name", "version", "value"), [row])


_KEPT_DAYS = "SELECT value FROM meta FINAL WHERE machine = '' AND name = 'keep_days'"


def _set_age(server: Server, table: Table, days: int) -> None:
    ttl = f"MODIFY TTL toDateTime(intDiv({table.age}, 1000)) + INTERVAL {days} DAY" if days else "REMOVE TTL"
    server.command(f"ALTER TABLE {quoted(table.name)} {ttl} SETTINGS mutations_sync = 0")

"""The migrations of the tables on a ClickHouse server, and the time that rows are kept.

ClickHouse has no transactions over statements: a migration may be cut between any two of them. The version is written
behind the last, and each statement can run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..errors import ArchiveError
from .common import PAIRS_END
from .documents import STEM
from .postings import DOCUMENTS, VIEWS, pair_postings, postings, size_of
from .schema import (
    CREATE_TABLES,
    CREATE_VIEWS,
    DOCUMENT_BLOCKS,
    DOCUMENT_ROW,
    EVENT_ROW,
    EXCHANGE_TOKENS,
    POSTING_SIZES,
    QUICKLY_READ,
    SPLIT,
    TABLES,
)
from .server import Server, quoted

# Of one statement that makes postings: of more, the server may have too little memory.
_EVENTS_AT_ONCE = 250_000
# Of events until version 3.
_EVENT_TOKENS = f"tokens Array(String) DEFAULT arrayDistinct({SPLIT.format('lines')}) CODEC(ZSTD(1))"
_NUMBERED = "terms Array(UInt32) DEFAULT arrayMap(token -> toUInt32(cityHash64(token)), {}) CODEC(LZ4)"
# Tokens stood once each beside the numbers of all. A stem is marked.
_TERMS_BEFORE = (
    "(SELECT version, number, words, stems, arrayDistinct(tokens) AS every, "
    f"arrayFilter(token -> token <> '' AND NOT startsWith(token, '{STEM}'), every) AS words_of, "
    "arrayFlatten(arrayMap(word -> arrayWithConstant(greatest(countEqual(terms, toUInt32(cityHash64(word))), 1), "
    "cityHash64(word)), words_of)) AS terms, "
    f"arrayMap(stem -> cityHash64(stem), arrayFilter(token -> startsWith(token, '{STEM}'), every)) AS stem_terms "
    "FROM event_numbered)"
)


def _make_postings(server: Server) -> None:
    """Number the events of version 3 and make postings of their tokens, in a table that takes the place of the other
    one at once. A cut leaves nothing that stops the next try."""
    server.command("DROP TABLE IF EXISTS event_numbered")
    if not _has_column(server, "event", "tokens"):
        return
    server.command(_EVENTS.create("event_numbered", _EVENTS.engine))
    server.command(f"ALTER TABLE event_numbered ADD COLUMN tokens Array(String), {_FOUND_BY.format('ADD COLUMN')}")
    names = ", ".join((*_COPIED, "tokens"))
    server.command(
        f"INSERT INTO event_numbered ({names}, number) SELECT {names}, rowNumberInAllBlocks() + 1 FROM event "
        "SETTINGS max_partitions_per_insert_block = 0"
    )
    for table in ("document", "posting"):
        server.command(f"TRUNCATE TABLE {table}")
    server.command(f"INSERT INTO document {DOCUMENTS.format('event_numbered')}")
    server.command(
        f"INSERT INTO posting {postings(_TERMS_BEFORE, 'UInt64')} SETTINGS max_partitions_per_insert_block = 0"
    )
    server.command("ALTER TABLE event_numbered DROP COLUMN tokens")
    _drop_terms(server, "event_numbered")
    if days := _kept_days(server):
        _set_age(server, "event_numbered", _EVENTS.age, days)
    server.command("EXCHANGE TABLES event AND event_numbered")
    server.command("DROP TABLE event_numbered")


def _make_documents(server: Server) -> None:
    """Take the words of events, which only searches read, from the table of events to that of documents."""
    if _has_column(server, "event", "terms"):
        server.command("DROP TABLE IF EXISTS document")
        documents = next(table for table in TABLES if table.name == "document")
        server.command(documents.create(documents.name, documents.engine))
        if days := _kept_days(server):
            _set_age(server, documents.name, documents.age, days)
        server.command(f"INSERT INTO document {DOCUMENTS.format('event')}")
    _drop_terms(server, "event")


def _drop_terms(server: Server, table: str) -> None:
    """Drop the columns of tokens, `terms` first: while that one exists, none is dropped."""
    for column in ("terms", "words", "stems", "lines"):
        server.command(f"ALTER TABLE {table} DROP COLUMN IF EXISTS {column}")


def _make_small_granules(server: Server) -> None:
    """Write the tables anew whose granules had thousands of rows: ClickHouse does not change them in place."""
    for table in (each for each in TABLES if each.name in ("turn", "session")):
        anew = f"{table.name}_anew"
        server.command(f"DROP TABLE IF EXISTS {anew}")
        server.command(table.create(anew, table.engine))
        query = (
            "SELECT name FROM system.columns WHERE database = %(database)s AND table = %(table)s "
            "AND default_kind <> 'MATERIALIZED'"
        )
        found = server.rows(query, {"database": server.database, "table": anew})
        names = ", ".join(quoted(name) for (name,) in found)
        server.command(f"INSERT INTO {anew} ({names}) SELECT {names} FROM {table.name}")
        if days := _kept_days(server):
            _set_age(server, anew, table.age, days)
        server.command(f"EXCHANGE TABLES {table.name} AND {anew}")
        server.command(f"DROP TABLE {anew}")


def _make_sizes(server: Server) -> None:
    """Keep the lengths of postings in one byte; every view of this version needs that. Numbers keep their compression:
    in an older database they go on from batch to batch."""
    if not _has_column(server, "posting", "lengths"):
        return
    kind, codec = POSTING_SIZES.split(" CODEC")
    sizes = f"{kind} DEFAULT arrayMap(length -> {size_of('length')}, lengths) CODEC{codec}"
    server.command(f"ALTER TABLE posting ADD COLUMN IF NOT EXISTS {sizes}")
    server.command(f"ALTER TABLE posting MODIFY COLUMN {sizes}")  # a cut may have left the column without it
    server.change("posting", "MATERIALIZE COLUMN sizes", {})
    server.command("ALTER TABLE posting MODIFY COLUMN sizes REMOVE DEFAULT")
    server.command("ALTER TABLE posting DROP COLUMN lengths")


def _make_pairs(server: Server) -> None:
    """Make the postings of pairs of common words. A former try that was cut leaves some: they are deleted first."""
    server.delete("posting", f"term < {PAIRS_END}", {})
    versions: list[int] = []
    events = 0
    for version, count in server.rows("SELECT version, count() FROM document GROUP BY version ORDER BY version"):
        versions.append(version)
        events += count
        if events >= _EVENTS_AT_ONCE:
            _make_pairs_of(server, versions)
            versions, events = [], 0
    if versions:
        _make_pairs_of(server, versions)


def _make_pairs_of(server: Server, versions: Sequence[int]) -> None:
    """`versions` are all that documents have between the first and the last."""
    of_versions = f"(SELECT * FROM document WHERE version BETWEEN {versions[0]} AND {versions[-1]})"
    server.command(f"INSERT INTO posting {pair_postings(of_versions)} SETTINGS max_partitions_per_insert_block = 0")


def _has_column(server: Server, table: str, name: str) -> bool:
    query = "SELECT count() FROM system.columns WHERE database = %(database)s AND table = %(table)s AND name = %(name)s"
    return bool(server.row(query, {"database": server.database, "table": table, "name": name})[0])


_EVENTS = next(table for table in TABLES if table.name == "event")
_FOUND_BY = "{0} words UInt32, {0} stems UInt32, {0} terms Array(UInt32)"
_COPIED = (
    "session", "turn", "ordinal", "version", "uid", "type", "ts", "source", "project", "tool", "model",
    "originating_model", "usage_key", "facts", "body", "words", "stems", "terms",
)  # fmt: skip
# One entry per version: the steps that take a database from that version to the next. Append only. A new database gets
# the newest tables at once.
MIGRATIONS: tuple[tuple[str | Callable[[Server], None], ...], ...] = (
    (*CREATE_TABLES, *CREATE_VIEWS),
    (
        *CREATE_TABLES,
        # The origin of a session that was received for a team.
        "ALTER TABLE session ADD COLUMN IF NOT EXISTS user Nullable(String)",
        "ALTER TABLE session ADD COLUMN IF NOT EXISTS machine Nullable(String)",
        "ALTER TABLE turn ADD COLUMN IF NOT EXISTS machine LowCardinality(String) AFTER version",
        "ALTER TABLE turn ADD INDEX IF NOT EXISTS version_index version TYPE minmax GRANULARITY 1",
        f"ALTER TABLE event ADD COLUMN IF NOT EXISTS lines String EPHEMERAL, MODIFY COLUMN IF EXISTS {_EVENT_TOKENS}",
        f"ALTER TABLE exchange ADD COLUMN IF NOT EXISTS lines String EPHEMERAL, MODIFY COLUMN {EXCHANGE_TOKENS}",
        f"ALTER TABLE event ADD COLUMN IF NOT EXISTS {_NUMBERED.format('tokens')}",
        "ALTER TABLE event MATERIALIZE COLUMN terms SETTINGS mutations_sync = 2",
        "ALTER TABLE usage ADD INDEX IF NOT EXISTS session_index session TYPE bloom_filter GRANULARITY 1",
    ),
    (
        *CREATE_TABLES,
        f"ALTER TABLE event MODIFY COLUMN {_NUMBERED.format(SPLIT.format('lines'))}",
        f"ALTER TABLE event MODIFY COLUMN IF EXISTS {_EVENT_TOKENS}",
        "ALTER TABLE event DROP INDEX IF EXISTS uid_index",
        "INSERT INTO place SELECT uid, version, session, turn, ordinal, ts FROM event",
    ),
    (*CREATE_TABLES, _make_postings),
    (
        # The server splits texts, and makes the rows of all tables of an event.
        *(f"DROP TABLE IF EXISTS {name}" for name in (*(f"{name}_view" for name in VIEWS), "arrival")),
        _make_documents,
        *CREATE_TABLES,
        _make_sizes,
        *CREATE_VIEWS,
    ),
    (
        *CREATE_TABLES,
        # Until they are written, in the background, they are computed when they are read.
        f"ALTER TABLE document ADD COLUMN IF NOT EXISTS {DOCUMENT_ROW}",
        "ALTER TABLE document MATERIALIZE COLUMN row SETTINGS mutations_sync = 0",
        f"ALTER TABLE event ADD COLUMN IF NOT EXISTS {EVENT_ROW}",
        "ALTER TABLE event MATERIALIZE COLUMN row SETTINGS mutations_sync = 0",
        _make_small_granules,
    ),
    (
        # Parts that are there keep their compression until they are merged.
        *(
            f"ALTER TABLE {table.name} MODIFY SETTING {QUICKLY_READ}"
            for table in TABLES
            if QUICKLY_READ in table.settings
        ),
        f"ALTER TABLE document MODIFY SETTING {DOCUMENT_BLOCKS}",
    ),
    (
        # Nothing arrives while pairs are made.
        *(f"DROP TABLE IF EXISTS {name}" for name in (*(f"{name}_view" for name in VIEWS), "arrival")),
        _make_sizes,
        _make_pairs,
        *CREATE_TABLES,
        *CREATE_VIEWS,
    ),
    (
        # The same rows with less work.
        *(f"DROP TABLE IF EXISTS {name}" for name in (*(f"{name}_view" for name in VIEWS), "arrival")),
        _make_sizes,
        *CREATE_TABLES,
        *CREATE_VIEWS,
    ),
    (
        "DROP TABLE IF EXISTS posting_view",
        _make_sizes,
        *CREATE_VIEWS,
    ),
)
VERSIONS = (
    "CREATE TABLE IF NOT EXISTS schema_version (version UInt32, applied DateTime DEFAULT now()) "
    "ENGINE = ReplacingMergeTree ORDER BY version"
)


def migrate(server: Server) -> None:
    """Bring the tables to the version of this code. Raises ArchiveError for a server that is ahead of it."""
    version = _version(server)
    if version > len(MIGRATIONS):
        raise ArchiveError(
            f"the ClickHouse database {server.database} has schema version {version}, this Backstory knows "
            f"{len(MIGRATIONS)}: update Backstory on this machine"
        )
    if version < len(MIGRATIONS) and server.cluster is not None:
        if version:
            raise ArchiveError(
                f"the tables of cluster {server.cluster} have schema version {version} instead of {len(MIGRATIONS)}: "
                "tables of a cluster are migrated by hand"
            )
        raise ArchiveError(
            f"the cluster {server.cluster} has no tables in the database {server.database}: run the statements that "
            f"`python -m backstory.archive.clickhouse.cluster {server.cluster} {server.database}` prints"
        )
    if not version:
        for statement in (*CREATE_TABLES, *CREATE_VIEWS):
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


def _version(server: Server) -> int:
    """The version of the tables, 0 if there are none. On a cluster no table is created: one of a single node would take
    the name of the table of the cluster."""
    if server.cluster is None:
        server.command(VERSIONS)
    elif not server.row("EXISTS TABLE schema_version")[0]:
        return 0
    found = server.row("SELECT max(version) FROM schema_version")
    return found[0] if found else 0


def keep(server: Server, days: int) -> None:
    """Let ClickHouse delete what is older than so many days; 0 keeps everything. Changes only what differs."""
    if _kept_days(server) == days:
        return
    for table in TABLES:
        if table.age is not None:
            _set_age(server, table.name, table.age, days)
    row = ("", "keep_days", time.time_ns(), str(days))
    server.insert("meta", ("machine", "name", "version", "value"), [row])


def _kept_days(server: Server) -> int:
    found = server.row("SELECT value FROM meta FINAL WHERE machine = '' AND name = 'keep_days'")
    return int(found[0]) if found else 0


def _set_age(server: Server, table: str, age: str | None, days: int) -> None:
    ttl = f"MODIFY TTL toDateTime(intDiv({age}, 1000)) + INTERVAL {days} DAY" if days else "REMOVE TTL"
    server.change(table, ttl, {}, wait=False)

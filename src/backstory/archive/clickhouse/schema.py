"""The tables on a ClickHouse server.

Rows that are written again replace those with the same key: `version` decides, at reading by FINAL and for good when
ClickHouse merges parts. Events are partitioned by month. Their words are in a table of postings, sorted by word, which
names an event by the version and a number within it: the numbers of a batch are small and next to each other. A posting
of an event that is gone names nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from ..query import MAX_TOKEN_CHARS
from .postings import VIEWS, create_view
from .rows import EVENT_COLUMNS, ROW_DIGESTS, SESSION_COLUMNS, TURN_COLUMNS


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


# ClickHouse may write numbers of 64 bits as texts, by a setting.
_LONG = ("ts", "started_at", "updated_at", "first_at", "last_at")


def _json(name: str) -> str:
    if name in _LONG:
        return f"toString({name})"
    return f"ifNull(toJSONString({f'hex({name})' if name in ROW_DIGESTS else name}), 'null')"


def _row(*names: str) -> str:
    """A column with the values of others as a JSON object: what is read together is one column, because each takes a
    statement time to analyse, and a seek for each row. A new column in it needs a migration."""
    members = ", ',', ".join(_member(name) for name in names)
    return f"row String MATERIALIZED concat('{{', {members}, '}}')"


def _member(name: str) -> str:
    return f"'\"{name}\":', {_json(name)}"


_REPLACING = "ReplacingMergeTree(version)"
_DIGEST = "FixedString(16)"
# The client sends tokens as the lines of a text, which is much less work for it than an array. `lines` is not stored.
SPLIT = "if({0} = '', [], splitByChar('\\n', {0}))"
_TOKEN_INDEX = "INDEX token_index tokens TYPE text(tokenizer = 'array', posting_list_codec = 'bitpacking')"
EXCHANGE_TOKENS = f"tokens Array(String) DEFAULT {SPLIT.format('lines')} CODEC(ZSTD(1))"
# As `documents.py` splits texts of ASCII. Numbers are multiplied by conditions: `if` takes several times as long.
_BODY_TERMS = f"arrayMap(word -> cityHash64(word) * (length(word) < {MAX_TOKEN_CHARS}), tokens(lower(body)))"
_LINE_TERMS = f"arrayMap(word -> cityHash64(word) * (word <> ''), {SPLIT.format('lines')})"
_TERMS = f"arrayConcat(if(is_plain, arrayFilter(term -> term <> 0, {_BODY_TERMS}), []), {_LINE_TERMS})"
_STEM_TERMS = f"arrayDistinct(arrayMap(stem -> cityHash64(stem), {SPLIT.format('stem_lines')}))"
_EVENT = f"""
        session String, turn UInt32, ordinal UInt32, version UInt64, uid {_DIGEST}, type UInt8, ts Int64,
        source LowCardinality(String), project LowCardinality(String), tool LowCardinality(Nullable(String)),
        model LowCardinality(Nullable(String)), originating_model LowCardinality(Nullable(String)),
        usage_key Nullable({_DIGEST}), facts String CODEC(ZSTD(1)), body String CODEC(ZSTD(1))"""
SESSION_ROW, TURN_ROW = _row(*SESSION_COLUMNS), _row(*TURN_COLUMNS)
# Texts are not in it, so that events are read without them.
EVENT_ROW = f"{_row(*EVENT_COLUMNS)} CODEC(ZSTD(1))"
# What a search reads of its best events.
DOCUMENT_ROW = _row("session", "turn", "ordinal", "uid", "type", "project", "ts", "words")
# A server may compress large parts with ZSTD, which takes several times as long to read a few rows of.
QUICKLY_READ = "default_compression_codec = 'LZ4'"
# Rows are few and read as a whole: in a compact part their columns are next to each other.
_WHOLE_ROWS = f"index_granularity = 256, min_bytes_for_wide_part = 1000000000000, {QUICKLY_READ}"
# A search reads single rows: a block is not much longer than a granule.
DOCUMENT_BLOCKS = "min_compress_block_size = 1024"
# Numbers and sizes are small, and those of T64 have no more bits than the largest: ZSTD makes them a tenth smaller, and
# takes longer than all the rest of a posting.
POSTING_SIZES = "sizes Array(UInt8) CODEC(LZ4)"
TABLES = (
    Table(
        "session",
        f"""
        key String, version_of_row UInt64, public_id String, source LowCardinality(String),
        title String, title_rank Int32, title_stems Array(String),
        summary Nullable(String), slug Nullable(String), folder Nullable(String), cwd Nullable(String),
        last_cwd Nullable(String), project Nullable(String), branch Nullable(String), version Nullable(String),
        parent Nullable(String), parent_call Nullable(String), forked_from Nullable(String),
        started_at Int64, updated_at Int64, turn_count UInt32, event_count UInt32, completed Bool,
        mode LowCardinality(String), first_at Int64, last_at Int64, exchange_count UInt32, provisional Bool,
        user Nullable(String), machine Nullable(String), {SESSION_ROW},
        INDEX parent_index parent TYPE bloom_filter GRANULARITY 1
        """,
        "ReplacingMergeTree(version_of_row)",
        "key",
        "key",
        "updated_at",
        None,
        _WHOLE_ROWS,
    ),
    Table(
        "turn",
        f"""
        session String, ordinal UInt32, version UInt64, machine LowCardinality(String),
        turn_key Nullable(String), started_at Int64, updated_at Int64,
        event_count UInt32, prompt Nullable({_DIGEST}), terminal Nullable({_DIGEST}), terminal_type Nullable(UInt8),
        candidate Nullable({_DIGEST}), last_answer Nullable({_DIGEST}), tools Array(LowCardinality(String)),
        types Array(UInt8), started_work Bool, {TURN_ROW},
        INDEX version_index version TYPE minmax GRANULARITY 1
        """,
        _REPLACING,
        "(session, ordinal)",
        "session",
        "updated_at",
        None,
        _WHOLE_ROWS,
    ),
    Table(
        "event",
        f"""
        {_EVENT}, number UInt32, {EVENT_ROW},
        INDEX version_index version TYPE minmax GRANULARITY 1
        """,
        _REPLACING,
        "(session, turn, ordinal)",
        "session",
        "ts",
        _month("ts"),
        # Texts are long: what is read for one event is read for its neighbours, too.
        f"index_granularity = 32, min_compress_block_size = 16384, {QUICKLY_READ}",
    ),
    Table(
        "posting",  # of a word or a marked stem: the events of a version that have it, how often, and their sizes
        f"""
        term UInt64, version UInt64 CODEC(Delta, ZSTD(1)), numbers Array(UInt32) CODEC(T64, LZ4),
        frequencies Array(UInt8) CODEC(ZSTD(1)), {POSTING_SIZES}
        """,
        "MergeTree",
        "(term, version)",
        "version",
        "intDiv(version, 1000000)",
        _month("intDiv(version, 1000000)"),
        f"index_granularity = 1024, min_compress_block_size = 16384, {QUICKLY_READ}",
    ),
    Table(
        "document",  # what a search needs of events, by the names that postings have for them
        f"""
        version UInt64, number UInt32, session String, turn UInt32, ordinal UInt32, uid {_DIGEST}, type UInt8,
        project LowCardinality(String), ts Int64, words UInt32, stems UInt32, terms Array(UInt32) CODEC(LZ4),
        {DOCUMENT_ROW}
        """,
        "MergeTree",
        "(version, number)",
        "session",
        "intDiv(version, 1000000)",
        None,
        f"index_granularity = 32, {DOCUMENT_BLOCKS}, {QUICKLY_READ}",
    ),
    Table(
        "replaced",  # the names that postings have for events that were replaced since
        "version UInt64, number UInt32",
        "MergeTree",
        "(version, number)",
        "version",
        "intDiv(version, 1000000)",
    ),
    # Events with what they are found by. Nothing is stored here: `VIEWS` make rows of four tables of it.
    Table(
        "arrival",
        f"""
        {_EVENT}, number UInt32, is_plain Bool, lines String, stem_lines String,
        terms Array(UInt64) DEFAULT {_TERMS}, stem_terms Array(UInt64) DEFAULT {_STEM_TERMS},
        stems UInt32 DEFAULT countSubstrings(stem_lines, '\\n') + (stem_lines <> ''),
        words UInt32 DEFAULT length(terms) - countEqual(terms, 0)
        """,
        "Null",
        "",
        "session",
    ),
    Table(
        "place",  # of each event in the table of events
        f"uid {_DIGEST}, version UInt64, session String, turn UInt32, ordinal UInt32, ts Int64",
        _REPLACING,
        "uid",
        "session",
        "ts",
        None,
        f"index_granularity = 1024, {QUICKLY_READ}",
    ),
    Table(
        "exchange",
        f"""
        session String, number UInt32, version UInt64, ts Int64, user Nullable({_DIGEST}), user_text Nullable(String),
        said Array({_DIGEST}), lines String EPHEMERAL, {EXCHANGE_TOKENS}, {_TOKEN_INDEX}
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


CREATE_TABLES = tuple(table.create(table.name, table.engine) for table in TABLES)
CREATE_VIEWS = tuple(create_view(f"{name}_view", "arrival", name, query) for name, query in VIEWS.items())

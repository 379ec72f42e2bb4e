"""The tables of a cluster as SQL: replicated tables on every shard, and Distributed tables over them.

    python -m backstory.archive.clickhouse.cluster CLUSTER [DATABASE] | clickhouse client --multiquery

The statements need ClickHouse Keeper and the macros {shard} and {replica}. Events, turns and exchanges of a session lie
on one shard, so that a search by session asks one, and replaced rows meet those that they replace.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from .migrations import MIGRATIONS
from .postings import VIEWS, create_view
from .schema import TABLES, Table
from .server import quoted

_PATH = "/clickhouse/tables/{{shard}}/{}/{}"


def statements(cluster: str, database: str) -> Iterator[str]:
    """Everything that a new cluster needs, for the newest version of the schema."""
    on_cluster = f" ON CLUSTER {quoted(cluster)}"
    yield f"CREATE DATABASE IF NOT EXISTS {quoted(database)}{on_cluster}"
    versions = Table(
        "schema_version", "version UInt32, applied DateTime DEFAULT now()", "ReplacingMergeTree", "version", "version"
    )
    for table in (*TABLES, versions):
        local = f"{quoted(database)}.{quoted(table.name + '_local')}"
        whole = f"{quoted(database)}.{quoted(table.name)}"
        yield table.create(local, _replicated(table, database), on_cluster)
        key = f"sipHash64({table.shard})"
        yield (
            f"CREATE TABLE IF NOT EXISTS {whole}{on_cluster} AS {local} "
            f"ENGINE = Distributed({quoted(cluster)}, {quoted(database)}, {quoted(table.name + '_local')}, {key})"
        )
    for name, query in VIEWS.items():
        view, source, target = (
            f"{quoted(database)}.{quoted(each)}" for each in (f"{name}_view", "arrival_local", f"{name}_local")
        )
        yield create_view(view, source, target, query, on_cluster)
    yield f"INSERT INTO {quoted(database)}.schema_version (version) VALUES ({len(MIGRATIONS)})"


def _replicated(table: Table, database: str) -> str:
    """The engine of a table with its path in Keeper and the name of the replica before its own arguments."""
    if table.engine == "Null":  # nothing is stored
        return table.engine
    name, _, arguments = table.engine.partition("(")
    places = [f"'{_PATH.format(database, table.name)}'", "'{replica}'"]
    rest = [arguments.removesuffix(")")] if arguments else []
    return f"Replicated{name}({', '.join([*places, *rest])})"


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit((__doc__ or "").strip())
    for statement in statements(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "backstory"):
        sys.stdout.write(f"{statement};\n")


if __name__ == "__main__":
    main()

"""Adds the fields of agents' records to those that are known: `python -m tests.agents.known_fields HOME...`

Each HOME has transcripts of agents that the sources read completely, such as recordings. Doctor reports fields that
are not in the result.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from backstory.ingest.reading import BrokenLine, decode_line
from backstory.ingest.unknown import parts_of, parts_of_row, rows_of
from backstory.ingest.walk import existing_roots, walk
from backstory.sources import load_sources
from backstory.sources.base import Source

FILE = Path(__file__).parents[2] / "src/backstory/sources/known_fields.json"
# A mapping with more names than this has names that are data.
_MOST_FIELDS = 90
# Mappings whose names are data, too, although they are few: those of tools.
_DATA = (".toolCounts",)


def records_of(source: Source, home: Path) -> Iterator[Any]:
    for root in existing_roots(source, home, {}, ()):
        for seen in walk(source, root):
            yield from _records_in(source, seen.path)


def _records_in(source: Source, path: Path) -> Iterator[Any]:
    stored = source.sessions(path)
    if stored is not None:
        for session in stored:
            yield from source.changes(path, session.session, None)
        return
    records = source.records(path)
    if records is not None:
        yield from records
        return
    for line in path.read_bytes().splitlines():
        if not source.skips(line):
            try:
                yield from decode_line(line)
            except BrokenLine as broken:
                yield from broken.records


def _is_format(kind: str, fields: set[str]) -> bool:
    return len(fields) <= _MOST_FIELDS and not kind.endswith(_DATA)


def main(homes: list[str]) -> None:
    known: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for source, kinds in json.loads(FILE.read_bytes()).items():
        for kind, fields in kinds.items():
            known[source][kind] |= set(fields)
    for source in load_sources(None):
        for home in homes:
            for record in records_of(source, Path(home)):
                if type(record) is dict:
                    found = [parts_of(record), *(parts_of_row(row) for row in rows_of(record))]
                    for kind, part in chain.from_iterable(found):
                        known[source.name][kind] |= part.keys()
    kept = {
        source: {kind: sorted(fields) for kind, fields in sorted(kinds.items()) if _is_format(kind, fields)}
        for source, kinds in sorted(known.items())
    }
    text = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
    FILE.write_text(text.replace('},"', '},\n"').replace('],"', '],\n "') + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

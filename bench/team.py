"""The ClickHouse engine beside the local one: the same events and questions.

    python -m bench.team --events 100000                      # chDB behind a bridge, or a clickhouse binary
    python -m bench.team --events 1000000 --url http://localhost:8123/bench
    python -m bench.team --events 125000 --doublings 3        # a million on the server, sooner than by writing
    python -m bench.team --hub --members 8                    # the hub under load, see bench/hub.py

A server that is given keeps the database of an earlier run; it is written only where it is empty. Beside the times by
the clock stands the time of processors, which other work on the machine changes little. That of the second process
which indexes for the local engine is not in it.

A doubling copies all sessions on the server under other names before the questions are asked: the words are as rare as
before. The local engine keeps the events that were written.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeVar

from backstory.archive import open_engine
from backstory.archive.base import Archive, SearchRequest, SessionsRequest
from backstory.config import ClickHouseSettings
from backstory.model import DEFAULT_TYPES, EventRef, digest
from bench.archives import SESSION_EVENTS, session_key, write_events
from bench.corpus import events, queries
from bench.report import percentile

_WARM_UP = 5
_DATABASE = "bench"
T = TypeVar("T")


class Taken(NamedTuple):
    """Milliseconds of one call: by the clock, and of processors, here and on the server."""

    wall: float
    client: float
    server: float = 0.0

    @property
    def processor(self) -> float:
        return self.client + self.server


class Measured(NamedTuple):
    engine: str
    events: int
    """With copies."""
    write: Taken
    merge: Taken
    """Of all parts into one; a server does it in the background."""
    size: int
    """Bytes on disk."""
    latencies: dict[str, list[Taken]]
    first: list[bytes | None]
    """The uid of the first hit of each question."""


_SESSION, _UID = "concat({0}, '-{1}')", "toFixedString(MD5(concat({0}, '-{1}')), 16)"
_VERSION = "{0} + {1}"
_OF_EVENTS = {"version": _VERSION, "session": _SESSION, "uid": _UID}
# The columns that differ in a copy of a session.
_COPIED = {
    "posting": {"version": _VERSION},
    "document": _OF_EVENTS,
    "place": _OF_EVENTS,
    "event": _OF_EVENTS,
    "turn": {"session": _SESSION, "prompt": _UID},
    "session": {"key": _SESSION, "public_id": _SESSION},
}


class Meter:
    """Measures calls; `url` is that of a server whose processors count, too."""

    def __init__(self, url: str | None = None) -> None:
        self._url = url

    def double(self, times: int) -> None:
        for number, (table, changes) in product(range(times), _COPIED.items() if self._url is not None else ()):
            changed = ", ".join(f"{change.format(name, 1 << number)} AS {name}" for name, change in changes.items())
            self._run(f"INSERT INTO {table} SELECT * REPLACE ({changed}) FROM {table}")

    def merge(self) -> None:
        """Merge the parts of the tables, so that no background work is measured with the questions."""
        for table in _COPIED if self._url is not None else ():
            self._run(f"OPTIMIZE TABLE {table} FINAL")

    def take(self, call: Callable[[], T]) -> tuple[T, Taken]:
        server, client, started = self._server(), time.process_time(), time.perf_counter()
        result = call()
        wall, client = time.perf_counter() - started, time.process_time() - client
        return result, Taken(wall * 1000, client * 1000, self._server() - server)

    def each(self, call: Callable[[T], object], values: Iterable[T]) -> list[Taken]:
        return [self.take(partial(call, value))[1] for value in values]

    def _server(self) -> float:
        sql = "SELECT sum(value) FROM system.events WHERE event IN ('UserTimeMicroseconds', 'SystemTimeMicroseconds')"
        return 0.0 if self._url is None else int(self._run(sql)) / 1000

    def _run(self, sql: str) -> str:
        server, _, database = (self._url or "").rpartition("/")
        with urllib.request.urlopen(f"{server}/?database={database}", sql.encode()) as answer:
            return str(answer.read(), "utf-8")


def measure(engine: str, archive: Archive, count: int, asked: int, meter: Meter, doublings: int = 0) -> Measured:
    write = merge = Taken(0, 0)
    if not archive.counts().events:
        texts = list(events(count))  # so that the time to make them is not in that of writing
        _, write = meter.take(lambda: write_events(archive, texts))
        meter.double(doublings)
        _, merge = meter.take(meter.merge)
    questions = list(queries(asked))
    chance = random.Random(1)

    def search(text: str, session: str | None = None) -> bytes | None:
        found = archive.search(SearchRequest(query=text, types=DEFAULT_TYPES, session=session))
        return found.hits[0].event.uid if found.hits else None

    for question in questions[:_WARM_UP]:
        search(question.text)
    latencies: dict[str, list[Taken]] = {}
    first = []
    for question in questions:
        uid, taken = meter.take(partial(search, question.text))
        first.append(uid)
        latencies.setdefault(f"search: {question.kind}", []).append(taken)
    sessions = [session_key(chance.randrange(count // SESSION_EVENTS)) for _ in questions]
    latencies["search in a session"] = meter.each(
        lambda pair: search(*pair), [(question.text, key) for question, key in zip(questions, sessions, strict=True)]
    )
    latencies["list 50 sessions"] = meter.each(lambda _: archive.sessions(SessionsRequest(limit=50)), questions[:50])
    uids = [digest("bench", str(chance.randrange(count))) for _ in questions]
    latencies["open(event)"] = meter.each(lambda uid: archive.open(EventRef(uid)), uids)
    return Measured(engine, count << doublings, write, merge, archive.counts().bytes, latencies, first)


def show(one: Measured, other: Measured, count: int) -> None:
    print(f"{count:,} events written{'':18}{one.engine:>30}{other.engine:>30}")
    print(f"{'events when asked':40}{one.events:>30,}{other.events:>30,}")
    both = [_rate(each.write, count) for each in (one, other)]
    print(f"{'write, processor here + on server':40}{both[0]:>30}{both[1]:>30}")
    both = [_rate(each.merge, each.events) for each in (one, other)]
    print(f"{'merging, processor here + on server':40}{both[0]:>30}{both[1]:>30}")
    both = [f"{each.size / 1e6:,.0f} MB, {each.size / each.events:,.0f} bytes/event" for each in (one, other)]
    print(f"{'on disk':40}{both[0]:>30}{both[1]:>30}")
    for name, latencies in one.latencies.items():
        both = [_percentiles(values) for values in (latencies, other.latencies[name])]
        print(f"{name + ' P50 / P95 (processor)':40}{both[0]:>30}{both[1]:>30}")
    same = sum(mine == theirs for mine, theirs in zip(one.first, other.first, strict=True))
    print(f"the same first hit: {same} of {len(one.first)} questions")


def _rate(write: Taken, count: int) -> str:
    if write.wall < 1:  # nothing was done
        return "-"
    client, server = (part / count * 1000 for part in (write.client, write.server))
    return f"{count / write.wall * 1000:,.0f}/s, {client:,.0f} + {server:,.0f} us"


def _percentiles(taken: list[Taken]) -> str:
    wall = [each.wall for each in taken]
    processor = [each.processor for each in taken]
    return (
        f"{percentile(wall, 0.5):,.0f} / {percentile(wall, 0.95):,.0f} "
        f"({percentile(processor, 0.5):,.0f} / {percentile(processor, 0.95):,.0f}) ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--url", help="of a ClickHouse server with a database for this benchmark")
    parser.add_argument("--doublings", type=int, default=0, help="of the events on the server")
    parser.add_argument("--hub", action="store_true", help="put load on a hub, over the local engine or --url")
    parser.add_argument("--members", type=int, default=8, help="of the hub")
    options = parser.parse_args()
    if options.hub:
        from bench.hub import load, show_load

        with tempfile.TemporaryDirectory() as folder:
            found = load(Path(folder), options.members, options.events, options.url)
        show_load(found, options.members, "clickhouse" if options.url else "local")
        return
    from tests.archive.clickhouse_server import missing, serving

    if options.url is None and (reason := missing()):
        parser.error(reason)
    with tempfile.TemporaryDirectory() as folder:
        server = nullcontext(options.url) if options.url else serving(Path(folder, "server"))
        with closing(open_engine("local", Path(folder, "local"))) as archive:
            local = measure("local", archive, options.events, options.queries, Meter())
        with server as url:
            settings = ClickHouseSettings(url=options.url or f"{url}/{_DATABASE}")
            with closing(open_engine("clickhouse", Path(folder, "team"), None, settings)) as archive:
                team = measure(
                    "clickhouse", archive, options.events, options.queries, Meter(settings.url), options.doublings
                )
    show(local, team, options.events)


if __name__ == "__main__":
    main()

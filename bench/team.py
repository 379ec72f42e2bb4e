"""The ClickHouse engine beside the local one: the same events and questions.

    python -m bench.team --events 100000                      # chDB behind a bridge, or a clickhouse binary
    python -m bench.team --events 1000000 --url http://localhost:8123/bench
    python -m bench.team --events 125000 --doublings 3        # a million on the server, sooner than by writing
    python -m bench.team --events 125000 --url http://localhost:8123/bench --doublings 3   # and eight times as many
    python -m bench.team --hub --members 8                    # the hub under load, see bench/hub.py

A server that is given keeps the database of an earlier run; it is written only where it is empty. Beside the times by
the clock stands the time of processors, which other work on the machine changes little. That of the second process
which indexes for the local engine is not in it.

A doubling copies all sessions on the server under other names, and the questions are asked again: the words are as rare
as before. The local engine keeps the events that were written. `--events 156400 --doublings 6 --ask-from 1000000` asks
at 1.25, 2.5, 5 and 10 million. Doublings of an earlier run are recognised by the number of events that were written
then, `--events`.
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


_NOTHING = Taken(0, 0)


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
        self.engine = "local" if url is None else "clickhouse"

    def double(self, copies: int) -> None:
        """Double an archive in which each event is there so many times."""
        for table, changes in _COPIED.items():
            changed = ", ".join(f"{change.format(name, copies)} AS {name}" for name, change in changes.items())
            self._run(f"INSERT INTO {table} SELECT * REPLACE ({changed}) FROM {table}")

    def merge(self) -> None:
        """Merge the parts of the tables, so that no background work is measured with the questions."""
        for table in _COPIED:
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


def write(archive: Archive, count: int, meter: Meter) -> Taken:
    if archive.counts().events:
        return _NOTHING
    texts = list(events(count))  # so that the time to make them is not in that of writing
    return meter.take(lambda: write_events(archive, texts))[1]


def ask(archive: Archive, count: int, asked: int, meter: Meter, written: Taken, merge: Taken) -> Measured:
    """Put the questions to an archive in which so many events were written, and copied since."""
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
    latencies["search: all kinds"] = [taken for values in latencies.values() for taken in values]
    sessions = [session_key(chance.randrange(count // SESSION_EVENTS)) for _ in questions]
    latencies["search in a session"] = meter.each(
        lambda pair: search(*pair), [(question.text, key) for question, key in zip(questions, sessions, strict=True)]
    )
    latencies["list 50 sessions"] = meter.each(lambda _: archive.sessions(SessionsRequest(limit=50)), questions[:50])
    uids = [digest("bench", str(chance.randrange(count))) for _ in questions]
    latencies["open(event)"] = meter.each(lambda uid: archive.open(EventRef(uid)), uids)
    counts = archive.counts()
    return Measured(meter.engine, counts.events, written, merge, counts.bytes, latencies, first)


def show(measured: list[Measured], count: int) -> None:
    """One column for the local engine and each size on the server."""

    def line(name: str, values: Iterable[object]) -> None:
        print(f"{name:40}{''.join(f'{value:>34}' for value in values)}")

    line(f"{count:,} events written", (each.engine for each in measured))
    line("events when asked", (f"{each.events:,}" for each in measured))
    line("write, processor here + on server", (_rate(each.write, count) for each in measured))
    line("merging, processor here + on server", (_rate(each.merge, each.events) for each in measured))
    line("on disk", (f"{each.size / 1e6:,.0f} MB, {each.size / each.events:,.0f} bytes/event" for each in measured))
    for name in measured[0].latencies:
        line(f"{name} P50 / P95 (processor)", (_percentiles(each.latencies[name]) for each in measured))
    # Copies have other names, so that the first hit says nothing about them.
    firsts = [each.first for each in measured if each.events == count]
    if len(firsts) == 2:
        same = sum(mine == theirs for mine, theirs in zip(*firsts, strict=True))
        line("the same first hit", [f"{same} of {len(firsts[0])} questions"])


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
    parser.add_argument(
        "--doublings", type=int, default=0, help="of the events on the server; the questions are asked at each size"
    )
    parser.add_argument(
        "--ask-from", type=int, default=0, metavar="EVENTS", help="neither merge nor ask before there are so many"
    )
    parser.add_argument("--server-only", action="store_true", help="without the local engine beside it")
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
        measured = []
        if not options.server_only:
            with closing(open_engine("local", Path(folder, "local"))) as archive:
                meter = Meter()
                written = write(archive, options.events, meter)
                measured.append(ask(archive, options.events, options.queries, meter, written, _NOTHING))
        with server as url:
            settings = ClickHouseSettings(url=options.url or f"{url}/{_DATABASE}")
            with closing(open_engine("clickhouse", Path(folder, "team"), None, settings)) as archive:
                meter = Meter(settings.url)
                written = write(archive, options.events, meter)
                for doubling in range(options.doublings + 1):
                    if doubling:
                        meter.double(archive.counts().events // options.events)
                    if archive.counts().events < options.ask_from:
                        continue
                    is_new = doubling > 0 or written is not _NOTHING
                    merge = meter.take(meter.merge)[1] if is_new else _NOTHING
                    measured.append(ask(archive, options.events, options.queries, meter, written, merge))
                    written = _NOTHING
                    show(measured, options.events)  # at each size: a long run may be cut


if __name__ == "__main__":
    main()

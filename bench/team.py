"""The ClickHouse engine beside the local one: the same events and questions.

    python -m bench.team --events 100000                      # chDB behind a bridge, or a clickhouse binary
    python -m bench.team --events 1000000 --url http://localhost:8123/bench

A server that is given keeps the database of an earlier run; it is written only where it is empty.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext
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


class Measured(NamedTuple):
    engine: str
    seconds: float
    size: int
    """Bytes on disk."""
    latencies: dict[str, list[float]]
    first: list[bytes | None]
    """The uid of the first hit of each question."""


def measure(engine: str, archive: Archive, count: int, asked: int) -> Measured:
    seconds = 0.0 if archive.counts().events else write_events(archive, events(count))
    questions = list(queries(asked))
    chance = random.Random(1)

    def search(text: str, session: str | None = None) -> bytes | None:
        found = archive.search(SearchRequest(query=text, types=DEFAULT_TYPES, session=session))
        return found.hits[0].event.uid if found.hits else None

    for question in questions[:_WARM_UP]:
        search(question.text)
    latencies: dict[str, list[float]] = {}
    first = []
    for question in questions:
        started = time.perf_counter()
        first.append(search(question.text))
        latencies.setdefault(f"search: {question.kind}", []).append(_since(started))
    sessions = [session_key(chance.randrange(count // SESSION_EVENTS)) for _ in questions]
    latencies["search in a session"] = _times(
        lambda pair: search(*pair), [(question.text, key) for question, key in zip(questions, sessions, strict=True)]
    )
    latencies["list 50 sessions"] = _times(lambda _: archive.sessions(SessionsRequest(limit=50)), questions[:50])
    uids = [digest("bench", str(chance.randrange(count))) for _ in questions]
    latencies["open(event)"] = _times(lambda uid: archive.open(EventRef(uid)), uids)
    return Measured(engine, seconds, archive.counts().bytes, latencies, first)


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _times(call: Callable[[T], object], values: Iterable[T]) -> list[float]:
    found = []
    for value in values:
        started = time.perf_counter()
        call(value)
        found.append(_since(started))
    return found


def show(one: Measured, other: Measured, count: int) -> None:
    print(f"{count:,} events{'':26}{one.engine:>22}{other.engine:>22}")
    rates = [f"{count / each.seconds:,.0f} events/s" if each.seconds else "-" for each in (one, other)]
    print(f"{'write':40}{rates[0]:>22}{rates[1]:>22}")
    print(f"{'on disk':40}{one.size / 1e6:>19,.0f} MB{other.size / 1e6:>19,.0f} MB")
    for name, latencies in one.latencies.items():
        both = [
            f"{percentile(values, 0.5):,.1f} / {percentile(values, 0.95):,.1f} ms"
            for values in (latencies, other.latencies[name])
        ]
        print(f"{name + ' P50 / P95':40}{both[0]:>22}{both[1]:>22}")
    same = sum(mine == theirs for mine, theirs in zip(one.first, other.first, strict=True))
    print(f"the same first hit: {same} of {len(one.first)} questions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--url", help="of a ClickHouse server with a database for this benchmark")
    options = parser.parse_args()
    from tests.archive.clickhouse_server import missing, serving

    if options.url is None and (reason := missing()):
        parser.error(reason)
    with tempfile.TemporaryDirectory() as folder:
        server = nullcontext(options.url) if options.url else serving(Path(folder, "server"))
        with closing(open_engine("local", Path(folder, "local"))) as archive:
            local = measure("local", archive, options.events, options.queries)
        with server as url:
            settings = ClickHouseSettings(url=options.url or f"{url}/{_DATABASE}")
            with closing(open_engine("clickhouse", Path(folder, "team"), None, settings)) as archive:
                team = measure("clickhouse", archive, options.events, options.queries)
    show(local, team, options.events)


if __name__ == "__main__":
    main()

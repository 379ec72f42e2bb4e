"""Search, list and open through the tools, as an agent calls them."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from backstory.archive import open_engine
from backstory.library import Library
from backstory.model import rfc3339, session_id, turn_id
from bench.archives import (
    LONG_SESSION,
    SESSION_EVENTS,
    START_MS,
    session_key,
    write_events,
    write_long_session,
    write_sessions,
)
from bench.corpus import events, queries
from bench.report import Report, percentile

_WARM_UP = 50
_LONG_TURNS = 1_000


def build(report: Report, home: Path, count: int) -> None:
    archive = open_engine("local", home)
    seconds = write_events(archive, events(count))
    report.note("write and index, generating included", f"{count / seconds:,.0f} events/s")
    write_long_session(archive, _LONG_TURNS)
    record = (home / "archive.db").stat().st_size
    index = sum(path.stat().st_size for path in (home / "index").rglob("*") if path.is_file())
    report.note("on disk", f"record {record / 1e6:,.0f} MB, index {index / 1e6:,.0f} MB")
    archive.close()


def measure(report: Report, home: Path, count: int, asked: int) -> None:
    with Library(home, environ={}) as library:
        questions = list(queries(asked))
        timed(library, "search_sessions", ({"query": question.text} for question in questions[:_WARM_UP]))
        by_kind: dict[str, list[float]] = {}
        for question in questions:
            by_kind.setdefault(question.kind, []).extend(timed(library, "search_sessions", [{"query": question.text}]))
        every = [latency for latencies in by_kind.values() for latency in latencies]
        report.at_most("search P50", percentile(every, 0.50), 10)
        report.at_most("search P99", percentile(every, 0.99), 60)
        for kind, latencies in by_kind.items():
            report.note(
                f"  {kind} P50 / P99", f"{percentile(latencies, 0.5):.2f} / {percentile(latencies, 0.99):.1f} ms"
            )
        chance = random.Random(1)
        sessions = [session_key(chance.randrange(count // SESSION_EVENTS)) for _ in questions]
        scoped = timed(
            library,
            "search_sessions",
            ({"query": q.text, "within_id": session_id(key)} for q, key in zip(questions, sessions, strict=True)),
        )
        report.at_most("search in a session P99", percentile(scoped, 0.99), 10)
        scoped = timed(
            library,
            "search_sessions",
            ({"query": q.text, "within_id": turn_id(key, 3)} for q, key in zip(questions, sessions, strict=True)),
        )
        report.at_most("search in a turn P99", percentile(scoped, 0.99), 10)
        found = [hit["id"] for q in questions[:100] for hit in library.search(q.text)["data"]["results"][:3]]
        report.at_most("open(event) P95", percentile(timed(library, "open", ({"id": id} for id in found)), 0.95), 10)
        long = [{"id": session_id(LONG_SESSION)}] * 100
        report.at_most("open(session of 1,000 turns) P95", percentile(timed(library, "open", long), 0.95), 100)


def compare(report: Report, folder: Path, home: Path, count: int, asked: int) -> None:
    """The same texts and questions in SQLite FTS5 and bm25s. Ratios only mean something from one run."""
    from bench.peers import build_bm25s, build_fts5, query_bm25s, query_fts5

    questions = [question.text for question in queries(asked)]
    with Library(home, environ={}) as library:
        ours = timed(library, "search_sessions", ({"query": question} for question in questions))
    path = folder / f"fts5-{count}.db"
    if not path.exists():
        built = build_fts5(path, events(count))
        report.note("SQLite FTS5 build", f"{built.seconds:.0f} s")
    fts5 = [answer.seconds * 1000 for answer in query_fts5(path, questions)]
    report.note("SQLite FTS5 P50 / P95", f"{percentile(fts5, 0.5):.1f} / {percentile(fts5, 0.95):.1f} ms")
    report.at_least("faster than FTS5 at P95", percentile(fts5, 0.95) / percentile(ours, 0.95), 20, "times")
    peer = build_bm25s(events(count))
    bm25s = [answer.seconds * 1000 for answer in query_bm25s(peer, questions)]
    report.note("bm25s build", f"{peer.built.seconds:.0f} s")
    report.note("bm25s P50 / P95", f"{percentile(bm25s, 0.5):.1f} / {percentile(bm25s, 0.95):.1f} ms")
    report.at_least("faster than bm25s at P95", percentile(bm25s, 0.95) / percentile(ours, 0.95), 1, "times")


def measure_while_writing(report: Report, home: Path, count: int, asked: int) -> None:
    questions = [{"query": question.text} for question in queries(asked, seed=2)]
    with Library(home, environ={}) as library:
        timed(library, "search_sessions", questions[:_WARM_UP])
        alone = percentile(timed(library, "search_sessions", questions), 0.99)
        stop = multiprocessing.get_context("spawn").Event()
        writer = multiprocessing.get_context("spawn").Process(target=_keep_writing, args=(home, count, stop))
        writer.start()
        time.sleep(3)
        busy = percentile(timed(library, "search_sessions", questions), 0.99)
        stop.set()
        writer.join()
    report.note("search P99 alone / while ingesting", f"{alone:.1f} / {busy:.1f} ms")
    report.at_most("ingesting slows P99 by", busy / alone, 2, "times")


def _keep_writing(home: Path, count: int, stop: Any) -> None:
    """A writer at work, as `backstory sync` is: as many events as come until it is told to stop."""
    os.nice(5)  # as `backstory sync`
    archive = open_engine("local", home)
    highest = archive.counts().events // SESSION_EVENTS + 1
    write_events(archive, _until(stop, events(2_000_000, seed=9)), first=(highest + 1) * SESSION_EVENTS)


def _until(stop: Any, texts: Iterable[str]) -> Iterable[str]:
    for number, text in enumerate(texts):
        if number % 1_000 == 0 and stop.is_set():
            return
        yield text


def measure_listing(report: Report, home: Path, count: int) -> None:
    write_sessions(home, count).close()
    chance = random.Random(3)
    whole = (START_MS, START_MS + count * 60_000 + 1)

    def window() -> dict[str, Any]:
        start = whole[0] + chance.randrange(whole[1] - whole[0])
        length = chance.choice((86_400_000, 7 * 86_400_000, 90 * 86_400_000, whole[1] - whole[0]))
        extra = chance.choice(({}, {"mode": "web_search"}, {"sort": "asc"}, {"limit": 50}))
        return {"start_datetime": rfc3339(start), "end_datetime": rfc3339(start + length), **extra}

    with Library(home, environ={}) as library:
        latencies = timed(library, "list_sessions", [window() for _ in range(300)])
    report.at_most(f"list_sessions of {count:,} P95", percentile(latencies, 0.95), 20)


def timed(library: Library, tool: str, requests: Iterable[dict[str, Any]]) -> list[float]:
    """Milliseconds of each call, from arguments to serialised answer."""
    handler = library.tool(tool).handler
    latencies = []
    for request in requests:
        started = time.perf_counter()
        reply = handler(request)
        latencies.append((time.perf_counter() - started) * 1000)
        assert "error" not in reply.data, reply.text
    return latencies

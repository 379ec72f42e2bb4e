"""Growth: the same measurements at several sizes, each with the exponent of its growth, and a plot of them.

`make growth` measures at 10,000, 100,000 and 1,000,000 events, and writes the plot and the table of
docs/performance.md. With --keep, what was measured at a size is in FOLDER/growth.json and is not measured again: a long
run can be done in parts.

An exponent of 0 does not grow, 1 grows as the number of events, 2 as its square.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from backstory.archive import open_engine
from backstory.library import Library
from bench import ingest, searching, startup
from bench.archives import write_events
from bench.corpus import events, queries
from bench.homes import mixed_questions, write_small_sessions
from bench.plot import Line, draw
from bench.report import percentile

_SIZES = (10_000, 100_000)
_QUERIES = 350
_MIXED = 150
# A question takes FTS5 seconds at a million events.
_PEER_QUERIES = 70
_WARM_UP = 50
_AT_ONCE = 8
_SESSION_EVENTS = 32
_COLD_RUNS = 5
_EVENT_BYTES = (200, 1_000, 5_000)
# The rows that are drawn, in milliseconds.
_DRAWN = ("search P50", "search P95", "search P99", "cold search", "sync, nothing new")
_PEERS = ("SQLite FTS5 P95", "bm25s P95")

_TABLE_BEGINS, _TABLE_ENDS = "<!-- growth: written by make growth -->", "<!-- growth ends -->"

Values = dict[str, float]


def exponent(values: Mapping[int, float]) -> float | None:
    """The slope of the values over the sizes, both as logarithms; None for fewer than two."""
    points = [(math.log(size), math.log(value)) for size, value in values.items() if value > 0]
    if len(points) < 2:
        return None
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread


def measure(folder: Path, size: int, *, peers: bool, bm25s: bool) -> Values:
    """Milliseconds, but where the name of a row says otherwise."""
    home = folder / f"archive-{size}"
    values: Values = {}
    if not (home / "archive.db").exists():
        archive = open_engine("local", home)
        values["write and index, s"] = write_events(archive, events(size))
        archive.close()
    asked = [question.text for question in queries(_QUERIES)]
    values |= _search(home, "search", asked) | _open(home, asked)
    if peers:
        values |= _peers(folder, size, bm25s=bm25s)
    return values | _small_sessions(folder / f"small-{size}", size)


def _search(home: Path, name: str, asked: Sequence[str]) -> Values:
    questions = [{"query": question} for question in asked]
    with Library(home, environ={}) as library:
        searching.timed(library, "search_sessions", questions[:_WARM_UP])
        latencies = searching.timed(library, "search_sessions", questions)
        handler = library.tool("search_sessions").handler
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            started = time.perf_counter()
            list(pool.map(handler, questions))
            rate = len(questions) / (time.perf_counter() - started)
    shares = {f"{name} P{round(share * 100)}": percentile(latencies, share) for share in (0.5, 0.95, 0.99)}
    return {**shares, f"{name}, {_AT_ONCE} at once, per s": rate}


def _open(home: Path, asked: Sequence[str]) -> Values:
    with Library(home, environ={}) as library:
        found = [hit["id"] for question in asked[:50] for hit in library.search(question)["data"]["results"][:3]]
        opened = searching.timed(library, "open", [{"id": id} for id in found])
    return {"open(event) P95": percentile(opened, 0.95)}


def _peers(folder: Path, size: int, *, bm25s: bool) -> Values:
    from bench.peers import build_bm25s, build_fts5, query_bm25s, query_fts5

    questions = [question.text for question in queries(_PEER_QUERIES)]
    path = folder / f"fts5-{size}.db"
    if not path.exists():
        build_fts5(path, events(size))
    answers = [query_fts5(path, questions)]
    if bm25s:
        answers.append(query_bm25s(build_bm25s(events(size)), questions))
    return {
        name: percentile([answer.seconds * 1000 for answer in given], 0.95)
        for name, given in zip(_PEERS, answers, strict=False)
    }


def _small_sessions(folder: Path, size: int) -> Values:
    """A home of many small sessions: the first sync, one with nothing new, and a search by a new process."""
    write_small_sessions(folder / "home", sessions=max(size // _SESSION_EVENTS, 1), events=_SESSION_EVENTS)
    first = ingest.sync(folder)
    with Library(folder / "backstory", agents_home=folder / "home", environ={}) as library:
        started = time.perf_counter()
        library.sync()
        again = (time.perf_counter() - started) * 1000
    environ = {**os.environ, "HOME": str(folder / "home"), "BACKSTORY_HOME": str(folder / "backstory")}
    cold = [startup.command(environ, "search", "schema", "migration", "failed") for _ in range(_COLD_RUNS)]
    news = [_search_news(folder / "home", environ, seed) for seed in range(1, 1 + _COLD_RUNS)]
    mixed = mixed_questions(folder / "home", _MIXED)
    return {
        **_search(folder / "backstory", "search in small sessions", mixed),
        "first sync of small sessions, s": first["seconds"],
        "first sync, peak MB of both processes": first["peak"],
        "first sync, peak MB without mapped files": first["own"],
        "sync, nothing new": again,
        "cold search": percentile(cold, 0.5),
        "cold search, one new session": percentile(news, 0.5),
    }


def _search_news(home: Path, environ: dict[str, str], seed: int) -> float:
    """Milliseconds of a search by a new process, after an agent has written a session."""
    write_small_sessions(home, sessions=1, events=_SESSION_EVENTS, seed=seed)
    return startup.command(environ, "search", "schema", "migration", "failed")


def event_rates(folder: Path, count: int) -> Values:
    """Events per second of a first sync, by the size of their texts."""
    rates = {}
    for size in _EVENT_BYTES:
        home = folder / f"events-{size}"
        sessions = max(count // _SESSION_EVENTS, 1)
        write_small_sessions(home / "home", sessions=sessions, events=_SESSION_EVENTS, event_bytes=size)
        done = ingest.sync(home)
        rates[f"events of {size:,} bytes per second"] = done["events"] / done["seconds"]
        rates[f"events of {size:,} bytes per second of processor time"] = done["events"] / done["processor"]
        shutil.rmtree(home)
    return rates


def table(by_size: Mapping[int, Values]) -> str:
    """The rows in Markdown, with their exponents."""
    sizes = sorted(by_size)
    lines = [f"| what | {' | '.join(f'{size:,}' for size in sizes)} | exponent |", f"|---|{'---|' * len(sizes)}---|"]
    for name in dict.fromkeys(name for size in sizes for name in by_size[size]):
        values = {size: by_size[size][name] for size in sizes if name in by_size[size]}
        slope = exponent(values)
        cells = [_number(values[size]) if size in values else "" for size in sizes]
        lines.append(f"| {name} | {' | '.join(cells)} | {'' if slope is None else f'{slope:.2f}'} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write_table(path: Path, text: str) -> None:
    """Replace what stands between the two marks of a page."""
    before, _, rest = path.read_text("utf-8").partition(_TABLE_BEGINS)
    _, mark, after = rest.partition(_TABLE_ENDS)
    if not mark:
        raise ValueError(f"{path} has no place for the table: {_TABLE_BEGINS} ... {_TABLE_ENDS}")
    path.write_text(f"{before}{_TABLE_BEGINS}\n\n{text}\n\n{_TABLE_ENDS}{after}", "utf-8")


def plot(by_size: Mapping[int, Values]) -> str:
    lines = []
    for name in (*_DRAWN, *_PEERS):
        points = {size: values[name] for size, values in sorted(by_size.items()) if name in values}
        if points:
            lines.append(Line(name, points, dashed=name in _PEERS))
    return draw(lines, x="events", y="milliseconds")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=_SIZES)
    parser.add_argument("--rate-events", type=int, default=50_000, help="events of each size to measure the rate with")
    parser.add_argument("--keep", type=Path, help="keep archives and results in this folder and use them again")
    parser.add_argument("--no-peers", action="store_true", help="skip SQLite FTS5 and bm25s")
    parser.add_argument(
        "--bm25s-events", type=int, default=100_000, help="the most events for bm25s; a million take 7 GB and 5 minutes"
    )
    parser.add_argument("--svg", type=Path, help="draw the rows over the sizes into this file")
    parser.add_argument("--page", type=Path, help="write the table into this page, between its marks")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="backstory-growth-"))
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "growth.json"
    by_size: dict[int, Values] = {}
    if results.exists():
        by_size = {int(size): values for size, values in json.loads(results.read_text()).items()}
    try:
        for size in options.sizes:
            if size not in by_size:
                print(f"measuring at {size:,} events", file=sys.stderr, flush=True)
                with_bm25s = size <= options.bm25s_events
                by_size[size] = measure(folder, size, peers=not options.no_peers, bm25s=with_bm25s)
                results.write_text(json.dumps(by_size, indent=2))
        rates = event_rates(folder, options.rate_events)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    text = (
        table(by_size)
        + "\n\nA first sync reads "
        + ", ".join(f"{rate:,.0f} {name}" for name, rate in rates.items())
        + "."
    )
    print(text)
    if options.svg:
        options.svg.write_text(plot(by_size), "utf-8")
    if options.page:
        write_table(options.page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

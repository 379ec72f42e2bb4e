"""Benchmark of live sessions: `python -m bench.live [--sessions 100000] [--entries 1000000] [--clients 100]`.

Appends and events go over loopback WebSockets to a real server; lists, pages and starts are measured in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from backstory.toolsets.live import Live
from backstory.toolsets.live.wire_client import WireClient
from bench.report import Report, percentile

THINK_SECONDS = 0.2
SECONDS = 8.0
CHANGES = 200
WORDS = "the quick brown fox jumps over the lazy dog " * 6


def message(words: str = WORDS) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": words}], "timestamp": 1}


def milliseconds(values: list[float], share: float) -> float:
    return percentile(values, share) * 1000


@asynccontextmanager
async def sessions(folder: Path, fsync: str = "always") -> AsyncIterator[Live]:
    async def config() -> dict[str, Any]:
        return {"adapter": {"name": "fs", "config": {"data_dir": str(folder), "fsync": fsync}}}

    async with Live(folder, fetch_config=config, environ={}) as live:
        yield live


@contextmanager
def server(home: Path) -> Iterator[str]:
    """A server of its own, by its WebSocket URL."""
    environ = {**os.environ, "BACKSTORY_HOME": str(home), "HOME": str(home)}
    command = [sys.executable, "-m", "backstory", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"].replace("http", "ws", 1)
        finally:
            process.terminate()


class Client:
    """One connection; the events of its binding go to `received`."""

    def __init__(self, url: str, received: Callable[[Any], None] | None = None) -> None:
        self._ready = asyncio.Event()
        self._received = received
        self._wire = WireClient(url, None, self._greet, lambda: None, {"bench::received": received or print})
        self._wire.start()

    async def _greet(self) -> None:
        if self._received is not None:
            await self._wire.send({"type": "registerfunction", "id": "bench::received"})
            binding = {"trigger_type": "session::message-added", "function_id": "bench::received", "config": {}}
            await self._wire.send({"type": "registertrigger", "id": "b", **binding})
            await self._wire.call("session::config-status", {})
        self._ready.set()

    async def call(self, function: str, **data: Any) -> Any:
        await self._ready.wait()
        return await self._wire.call(f"session::{function}", data)

    async def close(self) -> None:
        await self._wire.close()


def measure_disk(report: Report, folder: Path) -> None:
    """The time of one sync, for comparison."""
    taken = []
    fd = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for _ in range(300):
        started = time.perf_counter()
        os.write(fd, b"x" * 800)
        getattr(os, "fdatasync", os.fsync)(fd)
        taken.append(time.perf_counter() - started)
        time.sleep(0.002)
    os.close(fd)
    report.note("the disk's own sync", f"P50 {milliseconds(taken, 0.5):.2g} ms, P99 {milliseconds(taken, 0.99):.2g} ms")


async def measure_appends(report: Report, url: str, count: int) -> None:
    clients = [Client(url) for _ in range(count)]
    ids = [(await client.call("create"))["session_id"] for client in clients]
    taken: list[float] = []
    until = time.perf_counter() + SECONDS

    async def use(client: Client, session_id: str) -> None:
        await asyncio.sleep(random.uniform(0, THINK_SECONDS))
        while time.perf_counter() < until:
            started = time.perf_counter()
            await client.call("append", session_id=session_id, message=message())
            taken.append(time.perf_counter() - started)
            await asyncio.sleep(random.expovariate(1 / THINK_SECONDS))

    await asyncio.gather(*map(use, clients, ids))
    what = f"append, synced, {count} clients ({len(taken) / SECONDS:.0f}/s)"
    report.at_most(f"{what}, P50", milliseconds(taken, 0.5), 2)
    report.at_most(f"{what}, P99", milliseconds(taken, 0.99), 15)
    await asyncio.gather(*(client.close() for client in clients))


async def measure_fan_out(report: Report, url: str, count: int) -> None:
    arrived: dict[str, list[float]] = {}

    def received(payload: Any) -> None:
        arrived.setdefault(payload["entry_id"], []).append(time.perf_counter())

    subscribers = [Client(url, received) for _ in range(count)]
    writer = Client(url)
    session_id = (await writer.call("create"))["session_id"]
    await asyncio.gather(*(subscriber.call("get", session_id="-") for subscriber in subscribers))
    started: dict[str, float] = {}
    for number in range(CHANGES):
        entry_id = f"e{number}"
        started[entry_id] = time.perf_counter()
        await writer.call("append", session_id=session_id, message=message(), entry_id=entry_id)
        await asyncio.sleep(0.02)
    async with asyncio.timeout(30):
        while sum(map(len, arrived.values())) < CHANGES * count:
            await asyncio.sleep(0.01)
    taken = [max(times) - started[entry_id] for entry_id, times in arrived.items()]
    report.at_most(f"a change reaches {count} subscribers, P95", milliseconds(taken, 0.95), 50)
    await asyncio.gather(*(client.close() for client in (writer, *subscribers)))


async def measure_throughput(report: Report, folder: Path) -> None:
    async with sessions(folder, "interval") as live:
        ids = [(await live.call("session::create", {}))["session_id"] for _ in range(100)]
        count, started = 20_000, time.perf_counter()
        for number in range(count):
            await live.call("session::append", {"session_id": ids[number % 100], "message": message()})
        rate = count / (time.perf_counter() - started)
    report.at_least("appends in this process, synced every 200 ms", rate, 10_000, "/s")


def write_sessions(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        meta = {
            "session_id": f"s_{number:032x}",
            "title": f"Session {number}",
            "description": "",
            "status": "idle",
            "metadata": {"owner": f"u_{number % 1000}", "app": "bench"},
            "created_at": 1_760_000_000_000 + number,
            "updated_at": 1_760_000_000_000 + number * 7 % count,
            "message_count": 0,
        }
        path = folder / f"s_{number:032x}.jsonl"
        path.write_text(json.dumps({"type": "meta", "meta": meta}, separators=(",", ":")) + "\n")


async def measure_many_sessions(report: Report, folder: Path, count: int) -> None:
    write_sessions(folder, count)
    started = time.perf_counter()
    async with sessions(folder):
        report.note(f"index of {count:,} sessions, built", f"{time.perf_counter() - started:.1f} s")
    started = time.perf_counter()
    async with sessions(folder) as live:
        report.at_most(f"start with {count:,} sessions", time.perf_counter() - started, 2, "s")
        pages: dict[str, dict[str, Any]] = {
            "newest": {},
            "of one owner": {"metadata": {"owner": "u_7"}},
            "of an app": {"metadata": {"app": "bench"}, "status": "idle"},
            "by creation": {"order": "created_asc"},
        }
        for name, request in pages.items():
            taken = await _page_through(live, request)
            report.at_most(f"list page of 50 of {count:,}, {name}, P95", milliseconds(taken, 0.95), 10)


async def _page_through(live: Live, request: dict[str, Any], pages: int = 200) -> list[float]:
    taken, cursor = [], None
    for _ in range(pages):
        started = time.perf_counter()
        page = await live.call("session::list", {**request, "limit": 50, "cursor": cursor})
        taken.append(time.perf_counter() - started)
        cursor = page.get("next_cursor")
    return taken


async def measure_long_session(report: Report, folder: Path, count: int) -> None:
    await _write_long_session(folder, count)
    started = time.perf_counter()
    async with sessions(folder) as live:
        report.note(f"index of a session of {count:,} entries, built", f"{time.perf_counter() - started:.1f} s")
    async with sessions(folder, "off") as live:
        places = {"first": None, "middle": f"e{count // 2}", "last": f"e{count - 60}"}
        for name, after in places.items():
            cursor = None if after is None else _cursor(after)
            page = {"session_id": "long", "limit": 50, "cursor": cursor}
            taken = await _timed(partial(live.call, "session::messages", page))
            report.at_most(f"page of 50 of {count:,} entries, {name}, P95", milliseconds(taken, 0.95), 10)
        append = {"session_id": "long", "message": message()}
        taken = await _timed(partial(live.call, "session::append", append))
        report.at_most(f"append to {count:,} entries, P95", milliseconds(taken, 0.95), 2)


def _cursor(entry_id: str) -> str:
    from backstory.toolsets.live.functions import encode_page_cursor

    return encode_page_cursor(entry_id)


async def _timed(call: Callable[[], Awaitable[Any]], rounds: int = 100) -> list[float]:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - started)
    return taken


async def _write_long_session(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    meta = {"session_id": "long", "title": "", "description": "", "status": "idle", "message_count": count}
    with (folder / "long.jsonl").open("w") as file:
        file.write(json.dumps({"type": "meta", "meta": {**meta, "created_at": 1, "updated_at": 1}}) + "\n")
        content = json.dumps(message())
        for number in range(count):
            parent = f'"e{number - 1}"' if number else "null"
            head = f'"kind":"message","id":"e{number}","parent_id":{parent},"timestamp":1,"revision":0'
            file.write(f'{{"type":"entry","entry":{{{head},"message":{content}}}}}\n')
        file.write(json.dumps({"type": "leaf", "entry_id": f"e{count - 1}"}) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--entries", type=int, default=100_000, help="of one long session")
    parser.add_argument("--clients", type=int, default=100)
    options = parser.parse_args()
    report = Report(f"Live sessions, Python {sys.version.split()[0]}")
    folder = Path(tempfile.mkdtemp(prefix="backstory-bench-"))
    started = time.perf_counter()
    try:
        measure_disk(report, folder)
        with server(folder / "home") as url:
            asyncio.run(measure_appends(report, url, options.clients))
            asyncio.run(measure_fan_out(report, url, options.clients))
        asyncio.run(measure_throughput(report, folder / "throughput"))
        asyncio.run(measure_many_sessions(report, folder / "many", options.sessions))
        asyncio.run(measure_long_session(report, folder / "long", options.entries))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.show(time.perf_counter() - started)
    return 0 if report.met else 1


if __name__ == "__main__":
    sys.exit(main())

"""The hub of a team under load: members that push and search at the same time.

    python -m bench.team --hub --members 8 --events 20000
    python -m bench.team --hub --url http://localhost:8123/bench      # over ClickHouse; else over the local engine

The hub is a process of its own, the members are threads of this one. Each pushes its share of the events in parcels as
a laptop does, and after each parcel it searches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from backstory.archive.base import SearchRequest
from backstory.model import DEFAULT_TYPES
from backstory.team.access import Tokens
from backstory.team.remote import HubClient, RemoteArchive
from backstory.team.sharing import MOST_EVENTS, Parcel
from bench.archives import SESSION_EVENTS, batches
from bench.corpus import events, queries
from bench.report import percentile


class Load(NamedTuple):
    """Milliseconds of each request, and the seconds of all."""

    events: int
    seconds: float
    pushes: list[float]
    searches: list[float]


def load(folder: Path, members: int, count: int, url: str | None = None) -> Load:
    """Start a hub in a folder, and let members push and search `count` events in all."""
    home = folder / "hub"
    home.mkdir(mode=0o700)
    with closing(Tokens(home)) as tokens:
        texts = [tokens.create(f"member{number}", ("read", "write"), ("*",))[1] for number in range(members)]
    environ = {**os.environ, "BACKSTORY_HOME": str(home)}
    if url is not None:
        environ |= {"BACKSTORY_ARCHIVE_ENGINE": "clickhouse", "BACKSTORY_ARCHIVE_CLICKHOUSE_URL": url}
    command = [sys.executable, "-m", "backstory", "serve", "--hub", "--port", "0", "--json"]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["url"]
        return _measure(address, texts, count // members)
    finally:
        process.terminate()
        process.communicate()


def _measure(address: str, tokens: list[str], share: int) -> Load:
    pushes: list[float] = []
    searches: list[float] = []
    failures: list[BaseException] = []

    def work(number: int, token: str) -> None:
        try:
            client = HubClient(address, token)
            archive = RemoteArchive(client)
            questions = [question.text for question in queries(200, seed=number)]
            first = number * share
            for place, batch in enumerate(batches(events(share, seed=number), first, size=MOST_EVENTS)):
                started = time.perf_counter()
                receipt = client.push(Parcel(machine=f"machine{number}", batch=batch))
                pushes.append((time.perf_counter() - started) * 1000)
                assert not receipt.refused, receipt.refused
                started = time.perf_counter()
                archive.search(SearchRequest(query=questions[place % len(questions)], types=DEFAULT_TYPES))
                searches.append((time.perf_counter() - started) * 1000)
            client.close()
        except BaseException as error:
            failures.append(error)

    share -= share % SESSION_EVENTS  # members write no session together
    threads = [threading.Thread(target=work, args=each) for each in enumerate(tokens)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return Load(share * len(tokens), time.perf_counter() - started, pushes, searches)


def show_load(found: Load, members: int, engine: str) -> None:
    print(f"{members} members, {found.events:,} events, hub over the {engine} engine")
    print(f"received and searched: {found.events / found.seconds:,.0f} events/s")
    for name, values in ((f"push of {MOST_EVENTS:,} events", found.pushes), ("search", found.searches)):
        print(f"{name:26}P50 {percentile(values, 0.5):,.0f} ms, P95 {percentile(values, 0.95):,.0f} ms")

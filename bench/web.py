"""The pages of `backstory serve`: `python -m bench.web --events 100000 --keep FOLDER`.

Server time is that of a whole request without the socket: the search, the template, the compression. With `--processor`
it is processor time, for a machine that does other work. With `--browser` Chromium types into the search box of
`backstory serve`, and the time until the results are on the screen is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from starlette.applications import Starlette

from backstory.archive.spans import Origin, SpanRow
from backstory.faces.web.pages import page_routes
from backstory.faces.web.site import Site
from backstory.library import Library
from backstory.model import session_id
from bench import searching
from bench.archives import LONG_SESSION
from bench.corpus import queries
from bench.report import Report, percentile

_WARM_UP = 30
_LONG_TURNS = 1_000
# Of the transcripts of people: 28 model calls for 100 events.
_CALLS_PER_EVENT = 0.28
_SESSION_CALLS = 200
_LARGE_TRACE = "1a" * 16
_LARGE_SPANS = 10_000
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# The time from a key to the first results for what is in the box then.
_TYPE = """async (text) => {
  const field = document.querySelector("[data-search]"), found = document.getElementById("found");
  const started = performance.now();
  const shown = new Promise((done) => {
    new MutationObserver((_, self) => {
      self.disconnect();
      requestAnimationFrame(() => done(performance.now() - started));
    }).observe(found, { childList: true });
  });
  field.value = text;
  field.dispatchEvent(new Event("input"));
  return shown;
}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--keep", type=Path, help="keep the archive in this folder and use it again")
    parser.add_argument("--browser", action="store_true", help="measure in Chromium, too")
    parser.add_argument("--processor", action="store_true", help="measure processor time")
    options = parser.parse_args()

    folder = options.keep or Path(tempfile.mkdtemp(prefix="backstory-bench-"))
    report = Report(f"Pages over {options.events:,} events, Python {sys.version.split()[0]}")
    started = time.perf_counter()
    try:
        home = folder / f"archive-{options.events}"
        if not (home / "archive.db").exists():
            searching.build(report, home, options.events)
        with Library(home, environ={}) as library:
            write_work(library, round(options.events * _CALLS_PER_EVENT))
            app = Starlette(routes=page_routes(Site(library)))
            ask = Asking(app, time.process_time if options.processor else time.perf_counter)
            asyncio.run(measure(report, ask, options.queries))
            asyncio.run(measure_work(report, ask))
        if options.browser:
            measure_browser(report, home, options.queries // 3)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    report.show(time.perf_counter() - started)
    return 0 if report.met else 1


async def measure(report: Report, ask: Asking, asked: int) -> None:
    texts = [question.text for question in queries(asked)]
    searches = [f"/?{urlencode({'q': text})}" for text in texts]
    await ask.times(searches[:_WARM_UP])
    report.at_most("search page P95", percentile(await ask.times(searches), 0.95), 60)
    as_typed = [f"{address}&part=found" for address in searches]
    report.at_most("as-you-type answer P95", percentile(await ask.times(as_typed), 0.95), 60)
    report.at_most("start page P95", percentile(await ask.times(["/"] * 50), 0.95), 60)
    long = f"/s/{session_id(LONG_SESSION)}"
    await ask.times([long] * 3)
    report.at_most("session of 1,000 turns P95", percentile(await ask.times([long] * 50), 0.95), 120)
    chance = random.Random(1)
    parts = [f"{long}?at={chance.randrange(1, _LONG_TURNS)}&part=turns" for _ in range(100)]
    report.at_most("later part of it P95", percentile(await ask.times(parts), 0.95), 60)
    for name, address in (("search page", searches[0]), ("session page", long)):
        assets = await _assets(ask.app, address)
        size = sum([await _size(ask.app, each) for each in (address, *assets)])
        report.at_most(f"{name}, compressed, with its assets", size / 1000, 100, "KB")


def write_work(library: Library, calls: int) -> None:
    """A year of model calls and tool calls, as agents make them: in sessions of 200, in turns of 12 calls, a call every
    ten seconds; and one trace with ten thousand spans."""
    spans = library.archive.spans
    if spans.trace(_LARGE_TRACE, texts=False) is not None:
        return
    chance = random.Random(1)
    begin = int(time.time() * 1000) - 364 * 86_400_000
    for session in range(calls // _SESSION_CALLS):
        start = begin + round(session / (calls / _SESSION_CALLS) * 363 * 86_400_000)
        spans.put(*_session_work(session, start, chance))
    tools = [
        SpanRow(trace=_LARGE_TRACE, id=number, parent=number // 10 or None, name="Bash", start=begin + number * 100,
                end=begin + number * 100 + 90, input={"command": f"make part-{number}"})
        for number in range(1, _LARGE_SPANS + 1)
    ]  # fmt: skip
    spans.put(tools, {_LARGE_TRACE: Origin(name="ten thousand spans", source="otel")})


def _session_work(session: int, start: int, chance: random.Random) -> tuple[list[SpanRow], dict[str, Origin]]:
    origin = Origin(
        session=f"codex/{session}", source=chance.choice(("codex", "pi")), project=f"/home/dev/project-{session % 40}"
    )
    model = chance.choice(("claude-opus-4-5", "gpt-5.2", "claude-haiku-4-5"))
    rows, origins = [], {}
    for number in range(_SESSION_CALLS):
        turn, place = divmod(number, 12)
        trace, at = f"{session:016x}{turn:016x}", start + number * 10_000
        origins[trace] = origin
        call = number * 2 + 1
        parent = None if place == 0 else turn * 24 + 1
        rows.append(
            SpanRow(
                trace=trace,
                id=call,
                parent=parent,
                name=f"chat {model}",
                type="GENERATION",
                start=at,
                end=at + 6_000,
                model=model,
                input_tokens=60_000,
                cache_read_tokens=55_000,
                output_tokens=400,
                cost=0.05,
            )
        )
        tool = chance.choice(("Bash", "Read", "Edit", "Grep"))
        rows.append(
            SpanRow(trace=trace, id=call + 1, parent=call, cause=call, name=tool, start=at + 6_000, end=at + 9_000)
        )
    return rows, origins


async def measure_work(report: Report, ask: Asking) -> None:
    """The pages of usage and traces."""
    for name, address, limit in (
        ("usage page over a year P95", "/usage?range=1y", 250),
        ("list of traces P95", "/traces", 100),
        ("waterfall of 10,000 spans P95", f"/traces/{_LARGE_TRACE}", 400),
        ("its rows for the script P95", f"/traces/{_LARGE_TRACE}.json", 400),
    ):
        await ask.times([address])
        report.at_most(name, percentile(await ask.times([address] * 20), 0.95), limit)


class Asking:
    """Requests to the app, timed by a clock."""

    def __init__(self, app: Starlette, clock: Callable[[], float]) -> None:
        self.app = app
        self._clock = clock

    async def times(self, addresses: Iterable[str]) -> list[float]:
        times = []
        for address in addresses:
            started = self._clock()
            await _get(self.app, address)
            times.append((self._clock() - started) * 1000)
        return times


async def _get(app: Starlette, address: str) -> bytes:
    """The body of a response, compressed."""
    path, _, query = address.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"accept-encoding", b"gzip")],
    }
    body = bytearray()
    status = 0

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = int(str(message["status"]))
        else:
            body.extend(bytes(message.get("body", b"")))  # type: ignore[call-overload]

    await app(scope, receive, send)  # type: ignore[arg-type]
    if status != 200:
        raise RuntimeError(f"{address}: {status}")
    return bytes(body)


async def _size(app: Starlette, address: str) -> int:
    return len(await _get(app, address))


async def _assets(app: Starlette, address: str) -> list[str]:
    """The stylesheet, the scripts and the icon that a page names."""
    import re

    page = gzip.decompress(await _get(app, address)).decode()
    return sorted(set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page)))


# The sum of the layout shifts of a page until a moment after it was loaded.
_SHIFTS = """async () => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) sum += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
  await new Promise((done) => setTimeout(done, 500));
  return sum;
}"""


def measure_browser(report: Report, home: Path, asked: int) -> None:
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if chromium is None:
        report.note("in the browser", "no chromium on this machine")
        return
    with _served(home) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        times = [page.evaluate(_TYPE, question.text) for question in queries(asked + 5)]
        shifts = []
        for path in ("/", "/?q=error", f"/s/{session_id(LONG_SESSION)}", "/usage?range=1y", f"/traces/{_LARGE_TRACE}"):
            page.goto(url + path, wait_until="networkidle")
            shifts.append(page.evaluate(_SHIFTS))
        browser.close()
    report.at_most("key to results on the screen P95", percentile(times[5:], 0.95), 100)
    report.at_most("layout shift, the worst of five pages", max(shifts), 0.0, "")


@contextmanager
def _served(home: Path) -> Iterator[str]:
    """`backstory serve` as people run it: a process of its own. It finds no transcripts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as empty:
        server = subprocess.Popen(
            [sys.executable, "-m", "backstory", "serve", "--port", str(port)],
            env={**os.environ, "BACKSTORY_HOME": str(home), "HOME": empty},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    if server.poll() is not None:
                        raise RuntimeError("backstory serve ended") from None
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    sys.exit(main())

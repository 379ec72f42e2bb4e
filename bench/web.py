"""The pages of `backstory serve`: `python -m bench.web --events 100000 --keep FOLDER`.

Server time is that of a whole request without the socket: the search, the template, the compression. With `--browser`
Chromium types into the search box as well, and the time until the results are on the screen is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from starlette.applications import Starlette

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
    options = parser.parse_args()

    folder = options.keep or Path(tempfile.mkdtemp(prefix="backstory-bench-"))
    report = Report(f"Pages over {options.events:,} events, Python {sys.version.split()[0]}")
    started = time.perf_counter()
    try:
        home = folder / f"archive-{options.events}"
        if not (home / "archive.db").exists():
            searching.build(report, home, options.events)
        with Library(home, environ={}) as library:
            app = Starlette(routes=page_routes(Site(library)))
            asyncio.run(measure(report, app, options.queries))
            if options.browser:
                measure_browser(report, app, options.queries // 10)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    report.show(time.perf_counter() - started)
    return 0 if report.met else 1


async def measure(report: Report, app: Starlette, asked: int) -> None:
    texts = [question.text for question in queries(asked)]
    searches = [f"/?{urlencode({'q': text})}" for text in texts]
    await _times(app, searches[:_WARM_UP])
    report.at_most("search page P95", percentile(await _times(app, searches), 0.95), 60)
    as_typed = [f"{address}&part=found" for address in searches]
    report.at_most("as-you-type answer P95", percentile(await _times(app, as_typed), 0.95), 60)
    report.at_most("start page P95", percentile(await _times(app, ["/"] * 50), 0.95), 60)
    long = f"/s/{session_id(LONG_SESSION)}"
    await _times(app, [long] * 3)
    report.at_most("session of 1,000 turns P95", percentile(await _times(app, [long] * 50), 0.95), 120)
    chance = random.Random(1)
    parts = [f"{long}?at={chance.randrange(1, _LONG_TURNS)}&part=turns" for _ in range(100)]
    report.at_most("later part of it P95", percentile(await _times(app, parts), 0.95), 60)
    for name, address in (("search page", searches[0]), ("session page", long)):
        assets = await _assets(app, address)
        size = sum([await _size(app, each) for each in (address, *assets)])
        report.at_most(f"{name}, compressed, with its assets", size / 1000, 100, "KB")


async def _times(app: Starlette, addresses: Iterable[str]) -> list[float]:
    times = []
    for address in addresses:
        started = time.perf_counter()
        await _get(app, address)
        times.append((time.perf_counter() - started) * 1000)
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


def measure_browser(report: Report, app: Starlette, asked: int) -> None:
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if chromium is None:
        report.note("in the browser", "no chromium on this machine")
        return
    with _served(app) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        times = [page.evaluate(_TYPE, question.text) for question in queries(asked + 5)]
        browser.close()
    report.at_most("key to results on the screen P95", percentile(times[5:], 0.95), 100)


@contextmanager
def _served(app: Starlette) -> Iterator[str]:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


if __name__ == "__main__":
    sys.exit(main())

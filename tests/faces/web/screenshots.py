"""`make screenshots`: pictures of the pages over the built-in sample, for the README and the docs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from backstory.library import Library

from .conftest import CHROMIUM, WebServer

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "src" / "backstory" / "faces" / "cli" / "sample"
IMAGES = ROOT / "docs" / "images"
QUERY = "why was the checkout test flaky"
SIZE = {"width": 1280, "height": 800}


def main() -> int:
    if CHROMIUM is None:
        sys.stderr.write("no chromium on this machine\n")
        return 1
    from playwright.sync_api import sync_playwright

    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        Library(Path(folder), agents_home=SAMPLE, environ={}) as library,
    ):
        library.sync()
        found = library.search(QUERY)["data"]["results"]
        server = WebServer(library)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        httpx.get(server.url, params={"q": QUERY})  # the first search imports what others have
        for theme in ("light", "dark"):
            context = browser.new_context(viewport=SIZE, color_scheme=theme, timezone_id="UTC")
            page = context.new_page()
            shoot(page, f"{server.url}/?q={QUERY.replace(' ', '+')}", f"web-search-{theme}")
            page.goto(f"{server.url}/s/{found[0]['session']['id']}")
            page.locator(".event.tool details", has=page.locator(".diff")).first.locator("summary").click()
            page.mouse.move(0, 0)
            shoot(page, None, f"web-session-{theme}")
            shoot(page, f"{server.url}/usage?since=2026-09-10&until=2026-09-21", f"web-usage-{theme}")
            largest = library.call("search_traces", {"sortBy": "totalTokens"})["items"][0]["id"]
            page.goto(f"{server.url}/traces/{largest}")
            page.locator("[role=row]").nth(2).click()
            page.locator(".span-detail").wait_for()
            page.mouse.move(0, 0)
            shoot(page, None, f"web-trace-{theme}")
            context.close()
        browser.close()
        server.stop()
    return 0


def shoot(page: Any, url: str | None, name: str) -> None:
    if url is not None:
        page.goto(url)
        page.locator("main").focus()
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path, animations="disabled", caret="hide")
    sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    sys.exit(main())

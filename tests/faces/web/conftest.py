"""One server over a made-up archive and one browser, shared by all tests of the pages."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from backstory.faces.http.server import create_app
from backstory.library import Library
from tests.faces.http.conftest import FakeLive

from .world import World, make_world

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class WebServer:
    """The app over a real library, on a port of its own, in a thread of its own."""

    def __init__(self, library: Library, **options: Any) -> None:
        self.library = library
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(options)), daemon=True)
        self._thread.start()
        assert self._started.wait(60)

    async def _serve(self, options: dict[str, Any]) -> None:
        app = create_app(self.library, FakeLive(), **options)  # type: ignore[arg-type]
        config = uvicorn.Config(app, port=0, log_config=None, access_log=False, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self._started.set()
        await serving

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="package")
def library(world: World) -> Iterator[Library]:
    with Library(world.home / ".backstory", agents_home=world.home, environ={}) as library:
        yield library


@pytest.fixture(scope="package")
def site(library: Library) -> Iterator[WebServer]:
    server = WebServer(library)
    yield server
    server.stop()


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Package scope, not session scope: as long as Playwright is open, no other test can run an event loop."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine; tests of the pages need a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """Everything a page must never do: open a dialog, report an error, ask another server."""

    def __init__(self, page: Any, *own: str) -> None:
        self.seen: list[str] = []
        page.on("dialog", lambda dialog: (self.seen.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: self.seen.append(f"error {error}"))
        page.on("console", lambda message: self._console(message))
        page.on("request", lambda request: self._request(request.url, own))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.seen.append(f"{message.type} {message.text}")

    def _request(self, url: str, own: tuple[str, ...]) -> None:
        if not url.startswith(own):
            self.seen.append(f"request {url}")


def wait_until(page: Any, expression: str, arg: Any = None) -> None:
    """Wait for a condition in a page. Playwright's own `wait_for_function` asks again by `eval`, which the policy of
    the pages forbids: it works only where the condition holds at once."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression, arg):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(20)


@pytest.fixture
def open_page(browser: Any, site: WebServer) -> Iterator[Callable[..., Any]]:
    """Opens a path of the site in a context of its own: `open_page("/traces", width=360, color_scheme="dark")`.

    Fails at the end if a page opened a dialog, reported an error or asked another server.
    """
    contexts, watched = [], []

    def open_path(path: str, *, width: int = 1280, base: str | None = None, quiet: bool = True, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        if quiet:
            watched.append(Watched(page, base or site.url))
        page.goto((base or site.url) + path)
        return page

    yield open_path
    for context in contexts:
        context.close()
    assert [seen for each in watched for seen in each.seen] == []


@pytest.fixture(scope="package")
def violations() -> Callable[[Any], list[str]]:
    """The violations of WCAG that axe-core finds in a page, one line each."""
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()

    def find(page: Any) -> list[str]:
        answer = axe.run(page).response
        assert answer["passes"], "axe-core did not run"
        return [f"{each['id']}: {node['html'][:160]}" for each in answer["violations"] for node in each["nodes"][:3]]

    return find

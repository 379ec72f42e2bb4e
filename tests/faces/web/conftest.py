"""One server over a made-up archive and one browser, shared by all tests of the pages."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

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
        self._page, self._own = page, own
        self._listeners = {
            "dialog": self._dialog,
            "pageerror": lambda error: self.seen.append(f"error {error}"),
            "console": self._console,
            "request": self._request,
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def end(self) -> None:
        for event, listener in self._listeners.items():
            self._page.remove_listener(event, listener)

    def _dialog(self, dialog: Any) -> None:
        self.seen.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.seen.append(f"{message.type} {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self._own):
            self.seen.append(f"request {request.url}")


class Pages:
    """Pages of a browser, each in a context of its own. A page that a test has finished with serves the next test, at
    any width: to start a process for each takes longer than most tests."""

    _LOOKS: ClassVar = {"color_scheme": "light", "reduced_motion": "no-preference"}

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._free: dict[bool, Any] = {}  # by whether scripts run

    def take(self, width: int, *, java_script_enabled: bool = True, **looks: Any) -> Any:
        """A page without cookies, storage and history of its own."""
        size = {"width": width, "height": 900}
        page = self._free.pop(java_script_enabled, None)
        if page is None:
            context = self._browser.new_context(viewport=size, java_script_enabled=java_script_enabled, **looks)
            context.set_default_timeout(60_000)
            return context.new_page()
        page.set_viewport_size(size)
        page.emulate_media(**{**self._LOOKS, **looks})
        return page

    def give_back(self, page: Any, *, java_script_enabled: bool = True) -> None:
        if page.is_closed() or java_script_enabled in self._free:
            page.context.close()
            return
        page.unroute_all()
        page.evaluate("localStorage.clear(), sessionStorage.clear()")
        page.goto("about:blank")
        page.context.clear_cookies()
        page.context.clear_permissions()
        self._free[java_script_enabled] = page


def wait_until(page: Any, expression: str, arg: Any = None) -> None:
    """Wait for a condition in a page. Playwright's own `wait_for_function` asks again by `eval`, which the policy of
    the pages forbids: it works only where the condition holds at once."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression, arg):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(20)


@pytest.fixture(scope="package")
def pages(browser: Any) -> Pages:
    return Pages(browser)


@pytest.fixture
def open_page(pages: Pages, site: WebServer) -> Iterator[Callable[..., Any]]:
    """Opens a path of the site as if it were the first visit: `open_page("/traces", width=360, color_scheme="dark")`.

    Fails at the end if a page opened a dialog, reported an error or asked another server.
    """
    opened, watched = [], []

    def open_path(
        path: str,
        *,
        width: int = 1280,
        base: str | None = None,
        quiet: bool = True,
        java_script_enabled: bool = True,
        **looks: Any,
    ) -> Any:
        page = pages.take(width, java_script_enabled=java_script_enabled, **looks)
        opened.append((page, java_script_enabled))
        if quiet:
            watched.append(Watched(page, base or site.url))
        page.goto((base or site.url) + path)
        return page

    yield open_path
    for each in watched:
        each.end()
    for page, java_script_enabled in opened:
        pages.give_back(page, java_script_enabled=java_script_enabled)
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

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from history_world import Altered, Call, server, write_world
from mcp import Client, StdioServerParameters

from backstory.archive.base import Archive
from backstory.config import HUB_FILE, Settings, make_private_folder
from backstory.toolsets.base import Toolset
from backstory.toolsets.history.service import History
from backstory.toolsets.history.tools import toolset
from tests.engines import PrepareHome
from tests.schemas import validator


@pytest.fixture(scope="session", params=["local", pytest.param("team", marks=pytest.mark.slow)])
def scope(request: pytest.FixtureRequest) -> str:
    """The archive that is asked: that of this machine, or that of a team through its hub."""
    return str(request.param)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory, prepare_home: PrepareHome, scope: str) -> Path:
    folder = tmp_path_factory.mktemp("backstory")
    return prepare_home(folder / "home") if scope == "local" else make_private_folder(folder / "home")


@pytest.fixture(scope="session")
def archive(home: Path, prepare_home: PrepareHome, scope: str) -> Iterator[Archive]:
    with ExitStack() as stack:
        if scope == "local":
            yield stack.enter_context(closing(write_world(home)))
        else:
            yield stack.enter_context(closing(_shared(prepare_home(home.parent / "hub"), home, stack)))


def _shared(served: Path, home: Path, stack: ExitStack) -> Archive:
    """The world in the archive of a team, which the settings in the home name."""
    from backstory.team.remote import HubClient, RemoteArchive
    from tests.team_world import serving

    kept = write_world(served)
    (served / HUB_FILE).write_text("world")
    hub = stack.enter_context(serving(served, archive=kept))
    token = hub.token("reader", ("read",))
    (home / "config.toml").write_text(f'[team]\nurl = "{hub.url}"\ntoken = "{token}"\nscope = "team"\n')
    return RemoteArchive(HubClient(hub.url, token))


@pytest.fixture(scope="session")
def history(archive: Archive) -> Toolset:
    return toolset(History(lambda: archive, Settings()))


@pytest.fixture(scope="session")
def client(archive: Archive, home: Path) -> Iterator[Callable[[str, Any], dict[str, Any]]]:
    """A real client of a real server: `backstory mcp` on stdin and stdout."""
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(StdioServerParameters(**server(home)))) as client,
    ):

        def call(tool: str, arguments: Any) -> dict[str, Any]:
            result = portal.call(client.call_tool, tool, arguments)
            assert result.is_error is False
            assert json.loads(result.content[0].text) == result.structured_content
            answer: dict[str, Any] = result.structured_content
            return answer

        # On a busy machine the server looks for news for longer than its first answer waits, and says so.
        while call("search_sessions", {"query": "news"})["warnings"]:
            pass
        yield call


@pytest.fixture(scope="session")
def call(client: Callable[[str, Any], dict[str, Any]], history: Toolset) -> Call:
    """Calls a tool with keyword arguments (or one mapping), both as declared and over MCP: the answers are the same."""
    send = caller(history)

    def call(tool: str, arguments: Any = None, /, **given: Any) -> dict[str, Any]:
        asked = given if arguments is None else arguments
        answer, over_mcp = (_in_time(partial(ask, tool, asked)) for ask in (send, client))
        assert {**answer, "performance": None} == {**over_mcp, "performance": None}
        return answer

    return call


def _in_time(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer within the deadline of the tool: a busy machine may need several attempts."""
    patience = time.monotonic() + 60
    while True:
        answer = ask()
        is_late = (answer.get("error") or {}).get("code") == "deadline_exceeded"
        if not is_late or time.monotonic() > patience:
            return answer


def caller(tools: Toolset) -> Callable[[str, Any], dict[str, Any]]:
    """Calls handlers, and holds every answer against its schema and its text."""
    by_name = {tool.name: tool for tool in tools.tools}
    schemas = {tool.name: validator(tool.output_schema or {}) for tool in tools.tools}

    def send(tool: str, arguments: Any) -> dict[str, Any]:
        reply = by_name[tool].handler(arguments)
        assert reply.is_error is False
        assert json.loads(reply.text) == reply.data
        schemas[tool].validate(reply.data)
        return reply.data

    return send


@pytest.fixture
def altered(archive: Archive) -> Callable[..., Call]:
    """Calls the tools over an archive that behaves differently in one place."""

    def over(settings: Settings | None = None, **methods: Callable[..., Any]) -> Call:
        send = caller(toolset(History(lambda: Altered(archive, **methods), settings or Settings())))  # type: ignore[arg-type]
        return lambda tool, /, **given: send(tool, given)

    return over

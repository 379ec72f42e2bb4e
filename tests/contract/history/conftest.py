from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio.from_thread
import jsonschema
import pytest
from history_world import Altered, Call, server, write_world
from mcp import Client, StdioServerParameters

from backstory.archive.base import Archive
from backstory.config import Settings
from backstory.toolsets.base import Toolset
from backstory.toolsets.history.service import History
from backstory.toolsets.history.tools import toolset


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backstory") / "home"


@pytest.fixture(scope="session")
def archive(home: Path) -> Iterator[Archive]:
    archive = write_world(home)
    yield archive
    archive.close()


@pytest.fixture(scope="session")
def history(archive: Archive) -> Toolset:
    return toolset(History(archive, Settings()))


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

        yield call


@pytest.fixture(scope="session", params=["handler", "mcp"])
def call(request: pytest.FixtureRequest, history: Toolset) -> Call:
    """Calls a tool with keyword arguments (or one mapping), both as declared and over MCP."""
    send = request.getfixturevalue("client") if request.param == "mcp" else caller(history)

    def call(tool: str, arguments: Any = None, /, **given: Any) -> dict[str, Any]:
        answer: dict[str, Any] = send(tool, given if arguments is None else arguments)
        return answer

    return call


def caller(tools: Toolset) -> Callable[[str, Any], dict[str, Any]]:
    """Calls handlers, and holds every answer against its schema and its text."""
    by_name = {tool.name: tool for tool in tools.tools}
    schemas = {tool.name: jsonschema.Draft202012Validator(tool.output_schema or {}) for tool in tools.tools}

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
        send = caller(toolset(History(Altered(archive, **methods), settings or Settings())))  # type: ignore[arg-type]
        return lambda tool, /, **given: send(tool, given)

    return over

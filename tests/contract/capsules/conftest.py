from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from backstory.library import Library
from tests.capsule_world import Answer, Call, World, handler_call


def mcp_call(home: Path, stack: ExitStack) -> Call:
    """Calls of an MCP client to a server in this process."""
    from anyio.from_thread import start_blocking_portal
    from mcp import Client

    from backstory.faces.http.mcp import build_server

    portal = stack.enter_context(start_blocking_portal())
    client = stack.enter_context(
        portal.wrap_async_context_manager(Client(build_server(Library(home), ["capsules"]), raise_exceptions=True))
    )

    def call(name: str, arguments: dict[str, Any]) -> Answer:
        result = portal.call(client.call_tool, name, arguments)
        (content,) = result.content
        # An error is text only: the schemas of these tools admit successes.
        assert (result.structured_content is None) == bool(result.is_error)
        return Answer(result.structured_content or json.loads(content.text), content.text, bool(result.is_error))

    return call


@pytest.fixture
def new_home(tmp_path: Path) -> Callable[..., Path]:
    """Makes homes: `settings` go into `config.toml`."""

    def make(folder: str = "home", settings: str = "") -> Path:
        home = tmp_path / folder
        home.mkdir(mode=0o700, exist_ok=True)
        if settings:
            (home / "config.toml").write_text(f"[capsules]\n{settings}\n", "utf-8")
        return home

    return make


@pytest.fixture
def new_world(new_home: Callable[..., Path]) -> Callable[..., World]:
    """Makes worlds whose calls go to the tools' handlers."""

    def make(folder: str = "home", settings: str = "") -> World:
        home = new_home(folder, settings)
        return World(home, handler_call(home))

    return make


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    return new_world()


@pytest.fixture(params=["handler", "mcp"])
def new_served_world(request: pytest.FixtureRequest, new_home: Callable[..., Path]) -> Iterator[Callable[..., World]]:
    """Makes worlds for tests of the way to the tools: their handlers, and an MCP client."""
    with ExitStack() as stack:

        def make(folder: str = "home", settings: str = "") -> World:
            home = new_home(folder, settings)
            return World(home, handler_call(home) if request.param == "handler" else mcp_call(home, stack))

        yield make


@pytest.fixture
def served_world(new_served_world: Callable[..., World]) -> World:
    return new_served_world()

"""Errors as MCP clients meet them: none contradicts the schema its tool declares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import mcp_types as types
import pytest
from mcp import Client

from backstory.library import TOOLSETS, Library
from backstory.toolsets.base import Tool
from tests.faces.direct import direct

WRONG = (None, True, 1.5, "nonsense", [], {"nonsense": [1]})


def requests_of(tool: Tool) -> Iterator[dict[str, Any]]:
    """Requests of which many are refused: nothing, too much, each argument of each wrong type, names of nothing."""
    properties = tool.input_schema["properties"]
    plausible = dict.fromkeys(tool.input_schema.get("required", ()), "nonsense")
    yield {}
    yield {"nonsense": 1}
    yield plausible
    yield {**plausible, "nonsense" * 2000: "x" * 10_000}
    for name in properties:
        for value in WRONG:
            yield {**plausible, name: value}


def is_error(result: types.CallToolResult) -> bool:
    return bool(result.is_error) or "error" in (result.structured_content or {})


async def errors_of(library: Library, toolset: str) -> dict[str, list[types.CallToolResult]]:
    """The errors of each tool, sent by a server and received by a client. Unlike a client that checks answers itself,
    it is left to the test to find those that break their schema."""
    found: dict[str, list[types.CallToolResult]] = {}
    async with Client(direct(library, [toolset])) as client:
        for tool in library.toolset(toolset).tools:
            answers = [await raw_call(client, tool.name, arguments) for arguments in requests_of(tool)]
            found[tool.name] = [answer for answer in answers if is_error(answer)]
    return found


async def raw_call(client: Client, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    params = types.CallToolRequestParams(name=name, arguments=arguments)
    result = await client.session.send_request(types.CallToolRequest(params=params), types.CallToolResult)
    assert isinstance(result, types.CallToolResult)
    return result


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with Library(tmp_path / "home", agents_home=tmp_path, environ={}) as library:
        yield library


def check(library: Library, toolset: str) -> None:
    validators = {
        tool.name: jsonschema.Draft202012Validator(tool.output_schema)
        for tool in library.toolset(toolset).tools
        if tool.output_schema is not None
    }
    for name, errors in anyio.run(errors_of, library, toolset).items():
        assert errors, f"{name} refuses nothing"
        for error in errors:
            (block,) = error.content
            assert isinstance(block, types.TextContent)
            assert "error" in block.text
            assert len(block.text) < 6000
            if error.structured_content is not None and name in validators:
                validators[name].validate(error.structured_content)


@pytest.mark.parametrize("toolset", TOOLSETS)
class TestErrors:
    def test_keep_to_the_schema(self, library: Library, toolset: str) -> None:
        """Where an error is structured the schema admits it; elsewhere it is text. Clients that check would throw."""
        check(library, toolset)

    def test_of_a_damaged_home(self, library: Library, toolset: str) -> None:
        """Nor do the errors that are nobody's request's fault."""
        library.toolset(toolset)  # the server has started; it happens later
        for name in ("archive.db", "capsules.db", "traces.db", "live"):
            (library.home / name).write_bytes(b"no database at all, but long enough to be taken for one" * 100)

        check(library, toolset)


def test_an_archive_that_cannot_be_opened(library: Library) -> None:
    """The server starts all the same, and each call says why; capsules have a database of their own."""
    (library.home / "archive.db").write_bytes(b"no database at all, but long enough to be taken for one" * 100)

    async def call(name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        async with Client(direct(library, ["default"])) as client:
            return await raw_call(client, name, arguments)

    assert "archive.db is damaged" in str(anyio.run(call, "search_sessions", {"query": "flaky"}).content)
    assert not is_error(anyio.run(call, "moss.list", {}))

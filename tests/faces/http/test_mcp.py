from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client

from .conftest import Running


def served(url: str, era: str, use: Callable[[Client], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with Client(url, mode=era) as client:
            return await use(client)

    return anyio.run(main)


class TestMcp:
    """`/mcp` serves the tools over streamable HTTP, to clients of both protocol eras."""

    @pytest.mark.parametrize("era", ["legacy", "auto", "2026-07-28"])
    def test_list_and_call(self, server: Running, era: str) -> None:
        async def use(client: Client) -> Any:
            tools = (await client.list_tools()).tools
            return [tool.name for tool in tools], (await client.call_tool("echo", {"q": 1})).structured_content

        assert served(server.url + "/mcp", era, use) == (["echo", "refuse"], {"echo": {"q": 1}})

    def test_answers_are_plain_json(self, server: Running) -> None:
        """No event stream for a single message, which costs more than most answers."""
        headers = {"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-06-18"}
        opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        with httpx.Client(base_url=server.url, headers=headers) as client:
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
            opened = client.post("/mcp", json=message)
            client.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
            listed = client.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"})

        assert listed.headers["content-type"] == "application/json"
        assert [tool["name"] for tool in listed.json()["result"]["tools"]] == ["echo", "refuse"]

    def test_nested_without_end(self, server: Running) -> None:
        """Is refused at once, by its id."""
        deep = "[" * 900 + "]" * 900
        body = '{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo", "arguments": {"a": D}}}'
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

        refused = httpx.post(server.url + "/mcp", content=body.replace("D", deep, 1), headers=headers)

        assert (refused.status_code, refused.json()["error"]["code"], refused.json()["id"]) == (400, -32700, 7)

    def test_many_first_clients_at_once(self, server: Running) -> None:
        async def main() -> list[int]:
            body = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "clientInfo": {"name": "t", "version": "1"},
                },
            }
            headers = {"Accept": "application/json, text/event-stream"}
            statuses: list[int] = []

            async def ask() -> None:
                async with httpx.AsyncClient(timeout=60) as client:
                    statuses.append((await client.post(server.url + "/mcp", json=body, headers=headers)).status_code)

            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(ask)
            return statuses

        assert anyio.run(main) == [200] * 5

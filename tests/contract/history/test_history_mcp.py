"""The history tools as a client meets them, in both protocol eras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from history_world import MIGRATION, event_of, server, session_of
from mcp import Client, StdioServerParameters

from backstory.archive.base import Archive


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
class TestBothEras:
    def test_list_search_open(self, archive: Archive, home: Path, era: str) -> None:
        """The same tools and the same answers over stdio, whichever way the client speaks."""

        async def use() -> tuple[Any, Any, Any, Any]:
            async with Client(StdioServerParameters(**server(home)), mode=era) as client:
                tools = (await client.list_tools()).tools
                found = await client.call_tool("search_sessions", {"query": "store-client failures", "n_hits": 1})
                opened = await client.call_tool("open", {"id": session_of(MIGRATION)})
                refused = await client.call_tool("open", {"id": 3})
                return tools, found, opened, refused

        tools, found, opened, refused = anyio.run(use)

        assert [tool.name for tool in tools] == ["search_sessions", "open", "list_sessions"]
        assert all(tool.annotations.read_only_hint for tool in tools)
        assert all(tool.output_schema["type"] == "object" for tool in tools)
        assert found.structured_content["data"]["results"][0]["id"] == event_of(MIGRATION, 1, 4)
        assert opened.structured_content["data"]["kind"] == "session"
        assert refused.is_error is False
        assert refused.structured_content["error"]["code"] == "invalid_request"

"""The trace tools as a client meets them, over MCP."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from tests.engines import PrepareHome
from tests.traces_world import open_world, trace_id

SEED_SCHEMAS: dict[str, dict[str, Any]] = {
    "list_traces": {
        "type": "object",
        "properties": {
            "limit": {
                "type": "number",
                "minimum": 1,
                "maximum": 200,
                "default": 50,
                "description": "Maximum number of traces to return",
            },
            "sessionId": {"type": "string", "description": "Filter traces by session ID"},
            "datasetRunId": {"type": "string", "description": "Filter traces by dataset run ID"},
        },
        "additionalProperties": False,
    },
    "get_trace": {
        "type": "object",
        "properties": {"traceId": {"type": "string", "minLength": 1, "description": "The trace ID to retrieve"}},
        "required": ["traceId"],
        "additionalProperties": False,
    },
}


class TestClient:
    """A real client lists the four tools and gets answers and errors as the contract writes them."""

    def test_tools(self, tmp_path: Path, prepare_home: PrepareHome) -> None:
        home = prepare_home(tmp_path / "home")
        open_world(home)[0].close()
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "backstory", "mcp", "--tools", "traces"],
            env={"BACKSTORY_HOME": str(home), "HOME": str(tmp_path), "PATH": os.environ.get("PATH", "")},
        )

        async def use() -> tuple[Any, ...]:
            async with Client(server) as client:
                return (
                    (await client.list_tools()).tools,
                    await client.call_tool("get_trace", {"traceId": trace_id(2)}),
                    await client.call_tool("get_trace", {"traceId": "nothing"}),
                    await client.call_tool("search_spans", {"filters": [], "limit": 2}),
                )

        tools, trace, missing, page = anyio.run(use)

        by_name = {tool.name: tool for tool in tools}
        assert list(by_name) == ["list_traces", "search_traces", "get_trace", "search_spans"]
        for name, schema in SEED_SCHEMAS.items():
            assert by_name[name].input_schema == schema
        assert all(tool.input_schema["additionalProperties"] is False for tool in tools)
        assert not trace.is_error
        assert trace.structured_content["trace"]["id"] == trace_id(2)
        assert trace.content[0].text == json.dumps(trace.structured_content, indent=2, ensure_ascii=False)
        assert missing.is_error
        assert missing.structured_content["code"] == "NOT_FOUND"
        assert page.structured_content["hasMore"] is True

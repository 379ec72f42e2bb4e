"""The capsule tools in a server process on stdio, with the command line beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.capsule_world import GOOD, capsule_text


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


def command_line(home: Path, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "backstory", "capsule", *arguments],
        env=environment(home),
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
class TestServer:
    def test_two_agents_and_a_person(self, tmp_path: Path, era: str) -> None:
        """A stored capsule is visible to all at once; annotations and errors arrive as the contract says."""
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "backstory", "mcp", "--tools", "capsules"], env=environment(tmp_path)
        )

        async def use() -> tuple[Any, ...]:
            with anyio.fail_after(60):
                async with Client(server, mode=era) as one, Client(server, mode=era) as other:
                    tools = (await one.list_tools()).tools
                    stored = await one.call_tool("moss.store", {"capsule_text": GOOD, "name": "Auth"})
                    taken = await other.call_tool("moss_store", {"capsule_text": GOOD, "name": "auth"})
                    await anyio.to_thread.run_sync(
                        lambda: command_line(tmp_path, "update", "auth", text=capsule_text("from the terminal"))
                    )
                    fetched = await other.call_tool("capsule_fetch", {"name": "AUTH"})
                    return tools, stored, taken, fetched

        tools, stored, taken, fetched = anyio.run(use)
        hints = {tool.name: tool.annotations for tool in tools}
        assert hints["moss.fetch"].read_only_hint
        assert hints["moss.purge"].destructive_hint
        assert not hints["moss.store"].destructive_hint
        assert not stored.is_error
        assert taken.is_error
        assert taken.structured_content is None
        assert json.loads(taken.content[0].text)["error"]["details"] == {"workspace": "default", "name": "auth"}
        assert "from the terminal" in fetched.structured_content["capsule_text"]
        assert command_line(tmp_path, "fetch", "auth") == fetched.structured_content["capsule_text"]

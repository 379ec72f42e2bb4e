"""Clients on the TypeScript SDK 1.x: they check every answer, errors too, against the tool's output schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backstory.library import TOOLSETS, Library
from tests.capsule_world import GOOD
from tests.faces.test_mcp_errors import requests_of
from tests.transcripts import Transcript

pytestmark = pytest.mark.agents

CLIENT = Path(__file__).with_name("typescript_client.mjs")
PACKAGES = Path(__file__).parents[2] / ".agents"


def use(home: Path, offer: str, calls: list[tuple[str, dict[str, Any]]], **settings: str) -> dict[str, Any]:
    """The report of the client about a server that offers this."""
    server = {
        "command": sys.executable,
        "args": ["-m", "backstory", "mcp", "--tools", offer],
        "env": {"PATH": os.environ["PATH"], "HOME": str(home), **settings},
        "calls": calls,
    }
    done = subprocess.run(
        ["node", str(CLIENT)],
        input=json.dumps(server),
        env={**os.environ, "AGENT_PACKAGES": str(PACKAGES)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.fixture
def home(tmp_path: Path) -> Path:
    Transcript("numbat").prompt("What does a numbat eat?").answer("Termites.").write(tmp_path)
    with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
        library.sync()
    return tmp_path


@pytest.mark.parametrize("output_schemas", ["compact", "full"])
class TestTypeScript:
    @pytest.mark.parametrize("toolset", TOOLSETS)
    def test_every_error_is_seen(self, home: Path, toolset: str, output_schemas: str) -> None:
        """Nothing is thrown: an error arrives as the result it is, with its text."""
        with Library(home / ".backstory", agents_home=home, environ={}) as library:
            tools = library.toolset(toolset).tools
            calls = [(tool.name, request) for tool in tools for request in requests_of(tool)]

        seen = use(
            home,
            f"{toolset}-all" if toolset == "capsules" else toolset,
            calls,
            BACKSTORY_MCP_OUTPUT_SCHEMAS=output_schemas,
        )

        assert [tool["name"] for tool in seen["tools"]] == [tool.name for tool in tools]
        thrown = [(*call, answer) for call, answer in zip(calls, seen["answers"], strict=True) if "thrown" in answer]
        assert thrown == []
        texts = [answer["result"]["content"][0]["text"] for answer in seen["answers"]]
        assert sum("error" in json.loads(text) for text in texts) >= len(tools)

    def test_answers_are_seen(self, home: Path, output_schemas: str) -> None:
        """A search, an opened session, a capsule stored, refused and fetched, a trace."""
        with Library(home / ".backstory", agents_home=home, environ={}) as library:
            session = library.search("termites")["data"]["results"][0]["open"]["session_id"]
        calls: list[tuple[str, dict[str, Any]]] = [
            ("search_sessions", {"query": "termites"}),
            ("open", {"id": session}),
            ("moss.store", {"capsule_text": GOOD, "name": "auth"}),
            ("moss.store", {"capsule_text": "too thin"}),
            ("moss.fetch", {"name": "auth"}),
            ("moss.latest", {}),
            ("list_traces", {}),
            ("get_trace", {"traceId": "nothing"}),
        ]

        seen = use(home, "default", calls, BACKSTORY_MCP_OUTPUT_SCHEMAS=output_schemas)

        found, opened, stored, thin, fetched, latest, traces, missing = (each["result"] for each in seen["answers"])
        assert found["structuredContent"]["data"]["result_count"] >= 1
        assert opened["structuredContent"]["data"]["kind"] == "session"
        assert stored["structuredContent"]["created"] is True
        assert (thin["isError"], "structuredContent" in thin) == (True, False)
        assert json.loads(thin["content"][0]["text"])["error"]["code"] == "CAPSULE_TOO_THIN"
        assert fetched["structuredContent"]["capsule_text"] == GOOD
        assert latest["structuredContent"]["item"]["name"] == "auth"
        assert traces["structuredContent"]["count"] == 1
        assert (missing["isError"], missing["structuredContent"]["code"]) == (True, "NOT_FOUND")

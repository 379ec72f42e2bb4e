"""A test of an MCP server: it is started as an agent starts it, and one of its tools is called."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

# An agent waits at least so long for a server.
_SECONDS = 30.0
_PROTOCOL = "2025-06-18"
_TOOL = "search_sessions"


class Probe(Struct, frozen=True):
    """The outcome of starting a server."""

    works: bool
    tools: int = 0
    problem: str | None = None


def probe(command: Sequence[str], environ: Mapping[str, str] | None = None) -> Probe:
    """Start a server, list its tools and search with it."""
    try:
        server = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environ or {})},
        )
    except OSError as error:
        return Probe(False, problem=f"it cannot be started: {error.strerror}")
    watchdog = threading.Timer(_SECONDS, server.kill)
    watchdog.start()
    try:
        return _talk(server)
    finally:
        watchdog.cancel()
        server.kill()
        server.communicate()


def _talk(server: subprocess.Popen[bytes]) -> Probe:
    hello = {
        "protocolVersion": _PROTOCOL,
        "capabilities": {},
        "clientInfo": {"name": "backstory-setup", "version": "1"},
    }
    try:
        _ask(server, 1, "initialize", hello)
        _send(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        names = [tool["name"] for tool in _ask(server, 2, "tools/list", {})["tools"]]
        if _TOOL not in names:
            return Probe(False, len(names), f"it has no tool {_TOOL}")
        answer = _ask(server, 3, "tools/call", {"name": _TOOL, "arguments": {"query": "backstory", "n_hits": 1}})
        if answer.get("isError"):
            return Probe(False, len(names), str(answer["content"][0]["text"])[:200])
        return Probe(True, len(names))
    except (OSError, KeyError, ValueError, TypeError) as error:
        return Probe(False, problem=f"it does not answer: {_last_line(server) or error}")


def _ask(server: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    _send(server, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    assert server.stdout is not None
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == number:
            if "error" in message:
                raise ValueError(message["error"].get("message"))
            result: dict[str, Any] = message["result"]
            return result
    raise ValueError("it ended")


def _send(server: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert server.stdin is not None
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()


def _last_line(server: subprocess.Popen[bytes]) -> str:
    """The last line on stderr of a server that has ended."""
    server.kill()
    assert server.stderr is not None
    lines = server.stderr.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""

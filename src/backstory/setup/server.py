"""The MCP server as agents start it: the command of this installation, and a test that starts it and calls a tool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

# Commands that make an environment and delete it again, with signs of its folder on Linux, macOS and Windows.
_PASSING = (
    (("uvx",), (("archive-v0",),)),
    (("pipx", "run"), ((".cache", "pipx"), ("Caches", "pipx"), ("pipx", "Cache"))),
)
_SCRIPTS = ("backstory", "backstory.exe")
# An agent waits at least so long for a server.
_SECONDS = 30.0
_PROTOCOL = "2025-06-18"
_TOOL = "search_sessions"


def own_command() -> tuple[str, ...]:
    """The absolute path of the program, with arguments where it is started by another one.

    Agents start servers with a search path of their own, so a name alone is not enough. The environment of `uvx` and
    `pipx run` does not last: there it is the command that makes it again.
    """
    prefix = Path(sys.prefix).parts
    for (name, *arguments), signs in _PASSING:
        if any(_lies_in(prefix, folders) for folders in signs) and (program := shutil.which(name)):
            return (str(Path(program).absolute()), *arguments, "backstory")
    for name in _SCRIPTS:
        script = Path(sys.executable).absolute().with_name(name)
        if script.is_file():
            return (str(script),)
    return (str(Path(sys.executable).absolute()), "-m", "backstory")


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


def _lies_in(parts: tuple[str, ...], folders: tuple[str, ...]) -> bool:
    return any(parts[number : number + len(folders)] == folders for number in range(len(parts)))


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

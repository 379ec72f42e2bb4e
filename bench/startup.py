"""Cold processes: the command line, and an MCP server from its start to the first search."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.report import Report, percentile

_RUNS = 11
_INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
_SEARCH = {"name": "search_sessions", "arguments": {"query": "schema migration failed"}}


def measure(report: Report, home: Path) -> None:
    with tempfile.TemporaryDirectory() as empty:
        environ = {**os.environ, "BACKSTORY_HOME": str(home), "HOME": empty}
        search = [command(environ, "search", "schema", "migration", "failed") for _ in range(_RUNS)]
        report.at_most("`backstory search`, cold process", percentile(search, 0.5), 250)
        usage = [command(environ, "--help") for _ in range(_RUNS)]
        report.at_most("`backstory --help`", percentile(usage, 0.5), 120)
        _server(environ)  # the first start after an installation fills the cache of tool definitions
        initialized, listed, searched = zip(*(_server(environ) for _ in range(_RUNS)), strict=True)
        report.at_most("`backstory mcp`, start to `initialize` answered", percentile(initialized, 0.5), 120)
        report.at_most("`backstory mcp`, start to `tools/list` answered", percentile(listed, 0.5), 130)
        report.at_most("`backstory mcp`, start to first search answered", percentile(searched, 0.5), 200)


def command(environ: dict[str, str], *arguments: str) -> float:
    """Milliseconds of a command."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "backstory", *arguments], env=environ, capture_output=True, check=True)
    return _since(started)


def _server(environ: dict[str, str]) -> tuple[float, float, float]:
    """Milliseconds from the start of a server to the answers of `initialize`, `tools/list` and a search."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "backstory", "mcp"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        _ask(process, "initialize", _INITIALIZE)
        initialized = _since(started)
        _ask(process, "tools/list", {})
        listed = _since(started)
        _ask(process, "tools/call", _SEARCH)
        return initialized, listed, _since(started)


def _ask(process: subprocess.Popen[bytes], method: str, params: dict[str, Any]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    if "result" not in json.loads(process.stdout.readline()):
        raise RuntimeError(f"{method} failed")


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000

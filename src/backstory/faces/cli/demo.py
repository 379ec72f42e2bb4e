"""`make run`: read this machine's agents, or a small sample where there are none, and answer a search."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from .app import run

_SAMPLE = Path(__file__).with_name("sample")
_SAMPLE_QUERY = ("why", "was", "the", "checkout", "test", "flaky")
_AGENTS_VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")


def main() -> int:
    if _has_sessions():
        code = _show("sync") or _show("search", *_own_query())
        _show_next_steps()
        return code
    sys.stdout.write("No agent's sessions were found on this machine: here is a small sample, gone again afterwards.\n")
    with tempfile.TemporaryDirectory(prefix="backstory-") as folder:
        for variable in _AGENTS_VARIABLES:
            os.environ.pop(variable, None)
        os.environ.update(HOME=str(_SAMPLE), BACKSTORY_HOME=folder)
        code = _show("sync") or _show("search", *_SAMPLE_QUERY) or _show("sessions", "--since", "2026-09-01")
    _show_next_steps()
    return code


def _has_sessions() -> bool:
    from ...ingest.walk import existing_roots, walk
    from ...sources import load_sources

    home = Path.home()
    return any(
        True
        for source in load_sources()
        for root in existing_roots(source, home, os.environ)
        for _ in walk(source, root)
    )


def _own_query() -> list[str]:
    from ... import open_archive
    from .status import sample_query

    with open_archive() as library:
        return (sample_query(library) or "error").split()


def _show_next_steps() -> None:
    program = Path(sys.executable).with_name("backstory")
    shown = os.path.relpath(program) if program.is_relative_to(Path.cwd()) else program
    steps = (
        ("search WORDS", "find anything"),
        ("sessions", "list the latest sessions"),
        ("ui", "look at everything in the browser: http://127.0.0.1:7717/"),
        ("mcp --json", "the entry for an agent's MCP configuration"),
    )
    sys.stdout.write("\nTry next:\n")
    for command, why in steps:
        sys.stdout.write(f"  {shown} {command:<14} {why}\n")


def _show(*arguments: str) -> int:
    sys.stdout.write(f"\n$ backstory {' '.join(arguments)}\n")
    sys.stdout.flush()
    return run(list(arguments))


if __name__ == "__main__":
    sys.exit(main())

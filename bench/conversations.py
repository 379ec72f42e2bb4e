"""Search, list and read conversations turn by turn: `python -m bench.conversations --turns 100000`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from backstory.archive import open_engine
from backstory.archive.base import Batch, EventRow, ExchangeRow, SessionRow, TurnRow
from backstory.library import Library
from backstory.model import EventType, digest
from bench.corpus import queries
from bench.report import Report, percentile
from bench.texts import Texts

START_MS = 1_760_000_000_000
SESSION_TURNS = 10
FOLDERS = 60
_PATTERN = "-home-dev-sites*"
_LIMIT_MS = 20
_WARM_UP = 50
_SESSIONS_PER_COMMIT = 100
_SESSIONS_PER_FLUSH = 1_000
_TOOLS = (
    ("Bash", {"command": "git status"}),
    ("Read", {"file_path": "/home/dev/sites/shop/src/cart.py"}),
    ("Grep", {"pattern": "def total"}),
    ("Edit", {"file_path": "/home/dev/sites/shop/src/cart.py", "old_string": "a", "new_string": "b"}),
)


def folder(number: int) -> str:
    """Two of three are sites, as the pattern wants them."""
    return f"-home-dev-sites-project{number}" if number % 3 else f"-home-dev-other-project{number}"


def build(home: Path, sessions: int) -> float:
    """Write the sessions as ingest does, but without files; gives the seconds until all of it can be found."""
    started = time.perf_counter()
    archive = open_engine("local", home)
    writer = archive.writer()
    writer.recover()
    texts = Texts("conversations")
    for first in range(0, sessions, _SESSIONS_PER_COMMIT):
        batch = Batch()
        for number in range(first, min(first + _SESSIONS_PER_COMMIT, sessions)):
            _add_session(batch, number, texts)
        writer.write(batch)
        if first % _SESSIONS_PER_FLUSH == 0:
            writer.flush()
    writer.close()
    archive.close()
    return time.perf_counter() - started


def _add_session(batch: Batch, number: int, texts: Texts) -> None:
    key, start = f"claude-code/{texts.uuid()}", START_MS + number * 600_000
    session = SessionRow(
        key=key,
        source="claude-code",
        # One in ten has a summary, six have a name: what the list has to read the first prompt for is the rest.
        summary=texts.words(6) if number % 10 == 0 else None,
        slug="-".join(texts.words(3).split()) if number % 10 < 7 else None,
        folder=folder(number % FOLDERS),
        cwd=f"/home/dev/sites/project{number % FOLDERS}",
        branch="main",
        started_at=start,
        updated_at=start + SESSION_TURNS * 30_000,
        turn_count=SESSION_TURNS,
        first_at=start,
        last_at=start + SESSION_TURNS * 30_000,
        exchange_count=SESSION_TURNS,
    )
    for turn in range(1, SESSION_TURNS + 1):
        events = list(_events(key, turn, start + turn * 30_000, texts))
        session.event_count += len(events)
        batch.events += events
        tools = tuple(dict.fromkeys(event.tool for event in events if event.tool))
        batch.turns.append(
            TurnRow(session=key, ordinal=turn, event_count=len(events), prompt=events[0].uid, tools=tools)
        )
        said = bytearray(b"".join(event.uid for event in events[1:]))
        batch.exchanges.append(
            ExchangeRow(session=key, number=turn - 1, ts=events[0].ts, user=events[0].uid, said=said)
        )
    batch.sessions.append(session)


def _events(key: str, turn: int, ts: int, texts: Texts) -> Iterator[EventRow]:
    """A prompt, an answer, a tool call, and another answer."""
    tool, arguments = _TOOLS[texts.number(len(_TOOLS))]
    said = (
        (EventType.USER_INPUT, texts.question(texts.length())),
        (EventType.ASSISTANT_RESPONSE, texts.prose(30)),
        (EventType.TOOL_CALL, ""),
        (EventType.ASSISTANT_RESPONSE, texts.prose(texts.length())),
    )
    for ordinal, (kind, text) in enumerate(said, 1):
        row = EventRow(
            uid=digest("bench", key, str(turn), str(ordinal)),
            session=key,
            turn=turn,
            ordinal=ordinal,
            type=kind,
            ts=ts,
            text=text,
        )
        if kind is EventType.TOOL_CALL:
            row.tool, row.arguments = tool, arguments
        yield row


def measure(report: Report, home: Path, asked: int) -> None:
    questions = [question.text for question in queries(asked)]
    chance = random.Random(5)
    with Library(home, environ={}) as library:
        everywhere = _Server(library, "*")
        sites = _Server(library, _PATTERN)
        everywhere.time("search_conversations", ({"query": question} for question in questions[:_WARM_UP]))

        def search(server: _Server, **filters: Any) -> float:
            return server.p95("search_conversations", ({"query": question, **filters} for question in questions))

        report.at_most("search P95", search(everywhere), _LIMIT_MS)
        report.at_most("search under a pattern P95", search(sites), _LIMIT_MS)
        report.at_most("search in a project P95", search(sites, project="project1"), _LIMIT_MS)
        report.note("search, limit 100, P95", f"{search(everywhere, limit=100):.3g} ms")

        listed = everywhere.ask("list_conversations", limit=1_000)["conversations"]
        ids = [chance.choice(listed)["session_id"] for _ in questions]
        scoped = ({"query": question, "session_id": id} for question, id in zip(questions, ids, strict=True))
        report.at_most("search in a session P95", sites.p95("search_conversations", scoped), _LIMIT_MS)

        for name, server in (("list", everywhere), ("list under a pattern", sites)):
            report.at_most(f"{name} P95", server.p95("list_conversations", [{}] * 200), _LIMIT_MS)
        in_projects = [{"project": f"project{chance.randrange(FOLDERS)}"} for _ in range(200)]
        report.at_most("list of a project P95", everywhere.p95("list_conversations", in_projects), _LIMIT_MS)
        thousand = everywhere.p95("list_conversations", [{"limit": 1_000}] * 50)
        report.note("list, limit 1,000, P95", f"{thousand:.3g} ms")

        turns = ({"session_id": id, "turn_number": chance.randrange(SESSION_TURNS)} for id in ids)
        report.at_most("read_turn P95", everywhere.p95("read_turn", turns), _LIMIT_MS)
        pages = ({"session_id": id} for id in ids)
        report.at_most("read_conversation P95", everywhere.p95("read_conversation", pages), _LIMIT_MS)


class _Server:
    """The tools as an MCP server with this pattern calls them."""

    def __init__(self, library: Library, pattern: str) -> None:
        self._tools = {tool.name: tool for tool in library.toolset("conversations", pattern=pattern).tools}

    def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self._tools[tool].handler(arguments).data

    def time(self, tool: str, requests: Iterable[dict[str, Any]]) -> list[float]:
        """Milliseconds of each call, from arguments to serialised answer."""
        handler = self._tools[tool].handler
        latencies = []
        for request in requests:
            started = time.perf_counter()
            reply = handler(request)
            latencies.append((time.perf_counter() - started) * 1000)
            assert "error" not in reply.data, reply.text
        return latencies

    def p95(self, tool: str, requests: Iterable[dict[str, Any]]) -> float:
        return percentile(self.time(tool, requests), 0.95)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=700)
    parser.add_argument("--keep", type=Path, help="keep the archive in this folder and use it again")
    options = parser.parse_args()
    sessions = options.turns // SESSION_TURNS
    report = Report(f"{options.turns:,} turns in {sessions:,} sessions, Python {sys.version.split()[0]}")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="backstory-bench-") as temporary:
        home = (options.keep or Path(temporary)) / f"conversations-{options.turns}"
        if not (home / "archive.db").exists():
            seconds = build(home, sessions)
            report.note("write and index, generating included", f"{options.turns / seconds:,.0f} turns/s")
        measure(report, home, options.queries)
    report.show(time.perf_counter() - started)
    return 0 if report.met else 1


if __name__ == "__main__":
    sys.exit(main())

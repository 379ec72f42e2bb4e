"""Commands, the JSON API and the pages over an archive on ClickHouse: the answers are those of the local engine."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from backstory.model import session_id
from tests.e2e.served import Served, eventually, run
from tests.transcripts import Transcript, write_all

pytestmark = pytest.mark.clickhouse

# By default, lists and sums are of the last days.
LATELY = int(time.time() * 1000) - 3_600_000
TALK = (
    Transcript("talk", start_ms=LATELY)
    .prompt("why does the gateway time out?")
    .call("Bash", {"command": "curl gateway"}, "504")
    .answer("It waits for the parser.")
    .prompt("mend it")
    .answer("Done.")
)
OTHER = Transcript("other", "/home/dev/diary", start_ms=LATELY + 60_000).prompt("what is a parser?").answer("A reader.")
ID = session_id(f"claude-code/{TALK.id}")
COMMANDS = (("search", "gateway parser"), ("sessions",), ("open", ID), ("usage", "--by", "project"), ("traces", "list"))
TOOLS: dict[str, dict[str, Any]] = {
    "search_sessions": {"query": "gateway parser"},
    "list_sessions": {"start_datetime": "2026-01-01T00:00:00Z", "end_datetime": "2126-01-01T00:00:00Z"},
    "open": {"id": ID},
    "search_conversations": {"query": "gateway"},
    "list_traces": {},
}
PAGES = ("/.json?q=gateway", f"/s/{ID}.json", "/traces.json", "/usage.json")
# The moment and the duration of an answer.
_OF_ITS_OWN = ("performance", "request", "elapsed_ms")


class Home(NamedTuple):
    folder: Path
    variables: dict[str, str]
    """They choose the engine."""


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory, clickhouse_url: str) -> list[Home]:
    """The same transcripts, read into an archive of each engine."""
    server = {
        "BACKSTORY_ARCHIVE_ENGINE": "clickhouse",
        "BACKSTORY_ARCHIVE_CLICKHOUSE_URL": f"{clickhouse_url}/test_{uuid.uuid4().hex}",
    }
    made = [Home(tmp_path_factory.mktemp("home"), variables) for variables in ({}, server)]
    for home in made:
        write_all(home.folder, [TALK, OTHER])
        synced = run(home.folder, "sync", **home.variables)
        assert synced.returncode == 0, synced.stderr
    return made


def lasting(answer: Any) -> Any:
    """The part of an answer that does not depend on the moment. The engines add up scores in another order."""
    if isinstance(answer, dict):
        return {name: lasting(value) for name, value in answer.items() if name not in _OF_ITS_OWN}
    if isinstance(answer, list):
        return [lasting(each) for each in answer]
    return round(answer, 6) if isinstance(answer, float) else answer


def assert_same(answers: Sequence[Any], asked: object) -> None:
    """The engines agree, and the answer is about the sessions."""
    local, server = map(lasting, answers)
    assert server == local, asked
    assert any(word in json.dumps(local) for word in ("gateway", ID, "/home/dev/diary")), asked


def in_time(ask: Callable[..., str], *given: Any) -> Any:
    """An answer that is not the one that a busy machine gives after the deadline of a tool."""

    def answer() -> str | None:
        text = ask(*given)
        return None if "deadline_exceeded" in text else text

    return json.loads(eventually(answer))


def command(home: Home, *arguments: str) -> str:
    return run(home.folder, *arguments, "--json", **home.variables).stdout


def tool(url: str, name: str, arguments: dict[str, Any]) -> str:
    return httpx.post(f"{url}/api/tools/{name}", json=arguments).text


def page(url: str, path: str) -> str:
    return httpx.get(url + path).text


class TestFaces:
    def test_commands(self, homes: list[Home]) -> None:
        for arguments in COMMANDS:
            assert_same([in_time(command, home, *arguments) for home in homes], arguments)

    def test_http(self, homes: list[Home]) -> None:
        with ExitStack() as running:
            urls = [running.enter_context(Served(each.folder, port=0, **each.variables)).url for each in homes]
            for name, arguments in TOOLS.items():
                assert_same([in_time(tool, url, name, arguments) for url in urls], name)
            for path in PAGES:
                assert_same([in_time(page, url, path) for url in urls], path)
                assert all("<!doctype html>" in page(url, path.replace(".json", ""))[:20].lower() for url in urls)

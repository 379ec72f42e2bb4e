"""A command that ends with a code other than zero has failed, whichever agent ran it, wherever that is shown."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from backstory.archive.base import SessionsRequest
from backstory.archive.rows import EventRow
from backstory.faces.web.conversation import ON_PAGE, read_items
from backstory.library import Library
from backstory.model import event_id, turn_id
from tests.traces_world import caller

_HOMES = Path(__file__).parents[1] / "sources/agents"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    folder = tmp_path_factory.mktemp("commands")
    for made_up in _HOMES.iterdir():
        shutil.copytree(made_up / "home", folder / "home", dirs_exist_ok=True)
    with Library(folder / "backstory", agents_home=folder / "home", environ={}) as library:
        assert library.sync().errors == 0
        yield library


@pytest.fixture(scope="module")
def responses(library: Library) -> list[EventRow]:
    """The responses of commands that ended with a code other than zero."""
    archive = library.archive
    return [
        event
        for session in archive.sessions(SessionsRequest())
        for turn in archive.turns(session.key)
        for event in archive.events(session.key, turn.ordinal)
        if event.type == "tool_response" and event.exit_code
    ]


class TestFailedCommands:
    def test_not_all_agents_say_so(self, responses: list[EventRow]) -> None:
        """To some, a tool that ran such a command has succeeded; others write nothing beside the code."""
        assert {event.failed for event in responses} == {True, False, None}
        assert len({event.session.partition("/")[0] for event in responses}) > 8

    def test_opened(self, library: Library, responses: list[EventRow]) -> None:
        for response in responses:
            content = library.open(event_id(response.uid))["data"]["content"]
            assert content["exit_code"] == response.exit_code
            assert content.get("failed") is (None if response.failed is None else True)

    def test_traces(self, library: Library, responses: list[EventRow]) -> None:
        call = caller(library.archive)
        for response in responses:
            trace = call("get_trace", traceId=turn_id(response.session, response.turn))["trace"]
            assert trace["status"] == "error", response.session
            codes = {span["data"]["metadata"].get("exitCode"): span["status"] for span in trace["spans"]}
            assert codes[response.exit_code] == "error", response.session

    def test_pages(self, library: Library, responses: list[EventRow]) -> None:
        archive = library.archive
        for response in responses:
            items = read_items(library, archive.events(response.session, response.turn), ON_PAGE)
            failed = [item.tool.failed for item in items if item.tool and item.tool.exit_code == response.exit_code]
            assert failed == [True], response.session

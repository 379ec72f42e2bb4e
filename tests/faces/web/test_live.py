from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backstory.faces.web.live import ACTIVE_SECONDS, read_live
from backstory.library import Library
from backstory.model import session_id
from backstory.toolsets.live.tools import Portal
from tests.e2e.served import eventually
from tests.transcripts import Transcript

from .conftest import WebServer


class Writing:
    """An agent that writes a session right now."""

    def __init__(self, library: Library, name: str, calls: int = 20) -> None:
        self._library = library
        self.transcript = Transcript(name, "/home/dev/garden", start_ms=int(time.time() * 1000) - 60_000)
        self.transcript.prompt(f"Water the {name}")
        self.work(calls)

    @property
    def id(self) -> str:
        return session_id(f"claude-code/{self.transcript.id}")

    def work(self, calls: int) -> None:
        for _ in range(calls):
            number = len(self.transcript.records)
            self.transcript.call("Bash", {"command": f"pour {number}"}, f"poured {number}")
        self.transcript.write(self._library.agents_home)
        self._library.sync()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Library]:
    with Library(tmp_path / "home", agents_home=tmp_path, environ={}) as library:
        yield library


@pytest.fixture
def server(alone: Library) -> Iterator[WebServer]:
    """A server over an archive of its own: other tests do not see sessions that are being written."""
    server = WebServer(alone)
    yield server
    server.stop()


class TestLive:
    """The data of the page."""

    def test_has_the_sessions_with_something_new_and_their_last_events(self, alone: Library) -> None:
        writing = Writing(alone, "roses")
        page = read_live(alone)
        assert [session.id for session in page.sessions] == [writing.id]
        tail = page.sessions[0].tail
        assert [(event.type, event.text) for event in tail[-2:]] == [
            ("tool_call", "pour 39"),
            ("tool_response", "poured 39"),
        ]

    def test_a_session_that_rests_is_not_live(self, alone: Library) -> None:
        Writing(alone, "roses")
        later = int(time.time() * 1000) + ACTIVE_SECONDS * 1000 + 60_000
        assert read_live(alone, now=later).sessions == []

    def test_the_tail_of_a_session_goes_over_turns(self, alone: Library) -> None:
        writing = Writing(alone, "roses")
        writing.transcript.answer("Done.").prompt("And the lilies?").answer("Watered.")
        writing.work(0)
        followed = read_live(alone, writing.id).followed
        assert followed is not None
        assert [event.text for event in followed.tail[-3:]] == ["Done.", "And the lilies?", "Watered."]
        assert followed.tail[0].text == "Water the roses"

    def test_a_tail_of_short_turns_is_as_long(self, alone: Library) -> None:
        writing = Writing(alone, "violets", calls=0)
        for number in range(30):
            writing.transcript.prompt(f"Water pot {number}")
        writing.work(0)
        followed = read_live(alone, writing.id).followed
        assert followed is not None
        assert len(followed.tail) == 31

    def test_live_sessions_of_programs_are_there_too(self, alone: Library) -> None:
        append = alone.tool("session_append")
        access = Portal(alone.home, {"BACKSTORY_HOME": str(alone.home)})
        session = access.call("session::create", {"title": "Weather"})["session_id"]
        access.close()
        now = int(time.time() * 1000)
        message = {"role": "user", "content": [{"type": "text", "text": "Will it rain?"}], "timestamp": now}
        append.handler({"session_id": session, "message": message})
        alone.sync()
        assert [(each.source, each.tail[-1].text) for each in read_live(alone).sessions] == [("live", "Will it rain?")]

    def test_the_status_says_if_a_turn_is_under_way(self, alone: Library) -> None:
        writing = Writing(alone, "roses")

        def status(later: int = 0) -> str:
            (session,) = read_live(alone, now=int(time.time() * 1000) + later).sessions
            return session.status

        assert status() == "working"
        assert status(later=300_000) == "quiet"
        writing.transcript.answer("Done.")
        writing.work(0)
        assert status() == "idle"

    def test_a_program_sets_the_status_of_its_live_session(self, alone: Library) -> None:
        access = Portal(alone.home, {"BACKSTORY_HOME": str(alone.home)})
        session = access.call("session::create", {"title": "Weather"})["session_id"]
        message = {"role": "user", "content": [{"type": "text", "text": "Will it rain?"}]}
        access.call(
            "session::append", {"session_id": session, "message": {**message, "timestamp": int(time.time() * 1000)}}
        )
        access.call("session::set-status", {"session_id": session, "status": "error", "reason": "no network"})
        access.close()
        alone.sync()
        (found,) = read_live(alone).sessions
        assert (found.status, found.status_reason) == ("error", "no network")


class TestLivePage:
    def test_the_twin_and_the_parts(self, server: WebServer, alone: Library) -> None:
        writing = Writing(alone, "tulips")
        data = httpx.get(f"{server.url}/live.json", params={"session": writing.id}).json()
        assert data["followed"]["id"] == writing.id
        part = httpx.get(f"{server.url}/live", params={"session": writing.id, "part": "tail"}).text
        assert part.count("data-event") == len(data["followed"]["tail"])
        assert "Water the tulips" in httpx.get(f"{server.url}/live?part=sessions").text

    def test_without_scripts_the_page_loads_itself_again(self, server: WebServer) -> None:
        assert '<noscript><meta http-equiv="refresh"' in httpx.get(f"{server.url}/live").text

    @pytest.mark.parametrize("id", ["nonsense", "session:bm90aGluZw", "turn:x:1"])
    def test_an_unknown_session_is_not_found(self, server: WebServer, id: str) -> None:
        assert httpx.get(f"{server.url}/live", params={"session": id}).status_code == 404

    def test_a_card_has_the_dot_of_its_status(
        self, alone: Library, server: WebServer, open_page: Callable[..., Any]
    ) -> None:
        Writing(alone, "roses")
        page = open_page("/live", base=server.url)
        dot = "status => getComputedStyle(status, '::before').position"
        assert page.locator(".live-cards .status").evaluate(dot) == "static"

    def test_a_tail_follows_and_keeps_the_place_of_a_reader(
        self,
        alone: Library,
        server: WebServer,
        open_page: Callable[..., Any],
        violations: Callable[[Any], list[str]],
    ) -> None:
        writing = Writing(alone, "poppies")
        page = open_page(f"/live?session={writing.id}", base=server.url)
        tail = page.get_by_role("log")
        writing.work(1)
        tail.get_by_text(f"poured {len(writing.transcript.records) - 2}", exact=True).wait_for()
        assert tail.evaluate("t => t.scrollHeight - t.scrollTop - t.clientHeight") < 5

        tail.evaluate("t => { t.scrollTop = 50 }")
        writing.work(2)
        news = page.get_by_role("button", name="4 new events")
        news.wait_for()
        assert tail.evaluate("t => t.scrollTop") == 50
        assert violations(page) == []
        news.click()
        assert tail.evaluate("t => t.scrollHeight - t.scrollTop - t.clientHeight") < 5
        assert news.is_hidden()


class TestGrowth:
    """A session page that grows while it is read."""

    def test_new_events_come_at_the_end_and_the_reader_stays(
        self, alone: Library, server: WebServer, open_page: Callable[..., Any], violations: Callable[[Any], list[str]]
    ) -> None:
        writing = Writing(alone, "daisies", calls=6)
        page = open_page(f"/s/{writing.id}", base=server.url)
        page.locator("#live-badge").wait_for()
        page.set_viewport_size({"width": 1280, "height": 260})
        place = page.evaluate("scrollY")
        writing.work(2)
        writing.transcript.answer("All watered.").prompt("And the cactus?")
        writing.work(8)
        badge = page.locator("#growth")
        badge.wait_for()
        assert page.evaluate("scrollY") == place
        assert violations(page) == []
        page.get_by_text("And the cactus?").last.wait_for(state="attached")
        ids = page.evaluate("[...document.querySelectorAll('.event')].map(each => each.id)")
        assert len(ids) == len(set(ids))
        page.locator(".rail").get_by_text("And the cactus?").wait_for(state="attached")
        assert page.locator(".rail a").evaluate_all("links => links.map((link) => link.dataset.to)") == ["1", "2"]
        badge.click()
        eventually(lambda: page.evaluate("scrollY") > place)
        page.locator("#turn-2").evaluate("turn => turn.scrollIntoView({ behavior: 'instant' })")
        page.locator(".rail a[data-to='2'][aria-current]").wait_for(state="attached")

    def test_whoever_reads_an_earlier_part_is_told_and_led_to_the_end(
        self, alone: Library, server: WebServer, open_page: Callable[..., Any]
    ) -> None:
        writing = Writing(alone, "tulips", calls=200)
        page = open_page(f"/s/{writing.id}", base=server.url)
        page.locator("#live-badge").wait_for()
        writing.transcript.answer("All watered.").prompt("And the cactus?")
        writing.work(1)
        badge = page.locator("#growth")
        badge.get_by_text("4 new").wait_for()
        badge.click()
        page.locator("#turn-2").get_by_text("And the cactus?").wait_for()

    def test_the_state_says_how_long_a_session_is(self, server: WebServer, alone: Library) -> None:
        writing = Writing(alone, "lilacs")
        query = {"session": writing.id, "part": "state"}
        data = httpx.get(f"{server.url}/live.json", params=query).json()
        assert (data["sessions"], data["followed"]["tail"]) == ([], [])
        assert data["followed"]["events"] == 41
        assert data["followed"]["is_active"]

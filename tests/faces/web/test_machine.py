from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from backstory.archive.base import Batch, SyncState
from backstory.faces.web.machine import read_machine
from backstory.faces.web.site import Kept
from backstory.library import Library
from tests.transcripts import Transcript

from .conftest import WebServer, wait_until


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Library]:
    with Library(tmp_path / "home", agents_home=tmp_path, environ={}) as library:
        yield library


def set_progress(library: Library, state: SyncState) -> None:
    writer = library.archive.writer()
    writer.recover()
    writer.write(Batch(sync=state))
    writer.close()


class TestMachine:
    """The data of the page."""

    def test_is_that_of_doctor(self, alone: Library, tmp_path: Path) -> None:
        Transcript("one").prompt("Hello").answer("Hi.").write(tmp_path)
        alone.sync()
        found = read_machine(alone, Kept(60)).diagnosis
        assert found is not None
        assert [(agent.source, agent.sessions) for agent in found.agents] == [("claude-code", 1)]

    def test_problems_have_the_command_that_mends_them(self, alone: Library) -> None:
        found = read_machine(alone, Kept(60)).diagnosis
        assert found is not None
        assert "run backstory sync" in [problem.fix for problem in found.problems]

    def test_has_the_progress_of_the_first_read(self, alone: Library) -> None:
        set_progress(alone, SyncState(started_at=1, files_total=40, files_done=10))
        sync = read_machine(alone, Kept(60), only_sync=True).sync
        assert sync is not None
        assert (sync.running, sync.first, sync.files_done, sync.files_total) == (True, True, 10, 40)

    def test_settings_say_what_was_changed_and_hide_secrets(self, tmp_path: Path) -> None:
        adapter = {"name": "bridge", "config": {"url": "ws://x", "token": "hunter2"}}
        environ = {
            "BACKSTORY_CATCH_UP_SECONDS": "5",
            "BACKSTORY_LIVE": msgspec.json.encode({"adapter": adapter}).decode(),
        }
        with Library(tmp_path / "home", agents_home=tmp_path, environ=environ) as library:
            settings = {setting.name: setting for setting in read_machine(library, Kept(60)).settings}
        assert not settings["catch_up_seconds"].is_default
        assert settings["redact"].is_default
        assert settings["live.adapter.config.token"].value == '"[redacted:secret]"'


class TestMachinePage:
    def test_shows_agents_sizes_and_settings(self, site: WebServer) -> None:
        page = httpx.get(f"{site.url}/doctor").text
        for text in ("claude-code", "archive.db", "capsules.max_chars", "Last complete sync"):
            assert text in page
        data = httpx.get(f"{site.url}/doctor.json").json()
        assert data["diagnosis"]["archive"]["sessions"] >= 3

    def test_the_part_of_the_progress_is_empty_when_all_is_read(self, site: WebServer) -> None:
        assert httpx.get(f"{site.url}/doctor?part=sync").text.strip() == ""
        assert httpx.get(f"{site.url}/doctor.json?part=sync").json()["diagnosis"] is None

    def test_a_browser_shows_the_bar_until_the_first_read_is_done(
        self, open_page: Callable[..., Any], violations: Callable[[Any], list[str]], alone: Library, tmp_path: Path
    ) -> None:
        purged = Transcript("old").prompt("Hello").write(tmp_path)
        os.utime(purged, (1, 1))
        set_progress(alone, SyncState(started_at=1, files_total=40, files_done=10))
        server = WebServer(alone)
        try:
            page = open_page("/doctor", base=server.url)
            assert page.get_by_text("run backstory sync").count() == 0
            assert page.locator(".figure").first.inner_text() == "0"
            assert page.get_by_role("progressbar").get_attribute("value") == "10"
            assert violations(page) == []
            set_progress(alone, SyncState(started_at=1, files_total=40, files_done=30))
            page.locator("progress[value='30']").wait_for()
            Transcript("one").prompt("Hello").answer("Hi.").write(tmp_path)
            alone.sync()
            set_progress(
                alone, SyncState(started_at=1, finished_at=2, first_finished_at=2, files_total=40, files_done=40)
            )
            page.get_by_role("progressbar").wait_for(state="detached")
            # The rest of the page has the numbers of before: it is read again.
            page.get_by_text("Last complete sync").wait_for()
            wait_until(page, "document.querySelector('.figure').textContent === '2'")
        finally:
            server.stop()

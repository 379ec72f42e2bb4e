"""Matches deep in texts of which a session page shows the beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from backstory.library import Library
from backstory.model import session_id
from tests.transcripts import Transcript

from .conftest import WebServer

Open = Callable[..., Any]
FILLER = "nothing of note in this line\n" * 1_000


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with one session, in which every word that is looked for is deep in a text."""
    home = tmp_path_factory.mktemp("deep")
    transcript = Transcript("deep", start_ms=1_790_000_000_000)
    transcript.prompt(f"a shallow prompt\n{FILLER}a wombat <b>digs</b>")
    transcript.call("Bash", {"command": "make"}, f"a shallow output\n{FILLER}a quokka sleeps\n{FILLER}")
    transcript.call("Send", {"to": "all", "note": f"a shallow note\n{FILLER}a numbat eats"}, "sent")
    transcript.answer(f"a shallow answer\n{FILLER}a bilby hops")
    transcript.write(home)
    with Library(home / ".backstory", agents_home=home, environ={}) as library:
        library.sync()
        server = WebServer(library)
        yield f"{server.url}/s/{session_id(f'claude-code/{transcript.id}')}"
        server.stop()


def passages(address: str, word: str) -> list[str]:
    """The passages that the twin of a page has, each with the words that are marked in it."""
    page = httpx.get(f"{address}.json", params={"find": word}).json()
    items = [item for turn in page["turns"] for item in turn["items"]]
    found = [part["passage"] for item in items for part in (item, item["tool"] or {}) if part.get("passage")]
    return [each["text"][start:end] for each in found for start, end in each["marks"]]


class TestPassages:
    """The page has the match with its surroundings, beside the beginning of the text."""

    @pytest.mark.parametrize("word", ["wombat", "quokka", "numbat", "bilby"])
    def test_in_every_kind_of_text(self, deep: str, word: str) -> None:
        assert passages(deep, word) == [word]

    def test_what_is_shown_is_not_repeated(self, deep: str) -> None:
        assert passages(deep, "shallow") == []

    def test_it_is_text(self, deep: str) -> None:
        page = httpx.get(deep, params={"find": "wombat"}).text
        assert "a <mark>wombat</mark> &lt;b&gt;digs&lt;/b&gt;" in page

    def test_a_search_leads_to_it(self, deep: str, open_page: Open) -> None:
        """From the results of a search, and from the matches in the session, also of a text that is on the page."""
        base = deep.partition("/s/")[0]
        page = open_page("/?q=quokka", base=base)
        page.locator("main a", has_text="quokka").first.click()
        match = page.locator(".passage mark", has_text="quokka")
        match.wait_for()
        assert match.is_visible()
        page.keyboard.press("f")
        page.keyboard.type("numbat")
        page.locator("#matches mark", has_text="numbat").first.wait_for()
        page.locator("#matches a").first.click()
        match = page.locator(".passage mark", has_text="numbat")
        match.wait_for()
        assert match.is_visible()

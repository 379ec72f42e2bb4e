"""Every page in both themes and three widths: nothing is wider than the screen, and axe-core finds no violation."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backstory.library import Library
from tests.transcripts import Transcript

from .conftest import WebServer
from .world import World

PAGES: dict[str, Callable[[World], str]] = {
    "start": lambda world: "/",
    "search": lambda world: "/?q=flaky&agent=claude-code",
    "no match": lambda world: "/?q=zebracrossing",
    "hostile matches": lambda world: "/?q=wombat&since=1y",
    "session": lambda world: f"/s/{world.shop}",
    "find": lambda world: f"/s/{world.long}?find=inventory",
    "hostile": lambda world: f"/s/{world.hostile}",
    "traces": lambda world: "/traces",
    "spans": lambda world: "/traces?of=spans&name=bash",
    "usage": lambda world: "/usage?range=all",
    "live": lambda world: "/live",
    "capsules": lambda world: "/capsules",
    "capsule form": lambda world: "/capsules/default/checkout/edit",
    "machine": lambda world: "/doctor",
    "missing": lambda world: "/s/nothing",
}
# The first is opened, the others are the same page in another window.
LOOKS = ((1280, "dark"), (360, "light"), (2560, "light"))


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str, world: World, open_page: Callable[..., Any], violations: Callable[[Any], list[str]]) -> None:
    (first, theme), *others = LOOKS
    page = open_page(
        PAGES[name](world), width=first, color_scheme=theme, reduced_motion="reduce", quiet=name != "missing"
    )
    assert page.locator("main").count() == 1
    assert violations(page) == []
    for width, theme in others:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{width} px"
        # Nothing but the arrangement differs between wide windows.
        assert width > first or violations(page) == []


def test_the_theme_switch(world: World, open_page: Callable[..., Any]) -> None:
    page = open_page("/", color_scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    with page.expect_response("**/theme"):
        page.get_by_role("button", name="Theme: dark").click()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    assert page.evaluate(background) == dark


def test_titles_are_read_from_the_side_they_begin_at(open_page: Callable[..., Any], tmp_path: Path) -> None:
    transcript = Transcript("right", start_ms=int(time.time() * 1000) - 60_000)
    transcript.prompt("\u0644\u0645\u0627\u0630\u0627 checkout?").answer("\u0646\u0639\u0645.").write(tmp_path)
    with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
        library.sync()
        server = WebServer(library)
        for path in ("/", "/?q=checkout", "/live", "/traces", "/usage?range=all"):
            page = open_page(path, base=server.url)
            title = page.locator("main a", has_text="checkout").first
            assert title.evaluate("link => getComputedStyle(link).direction") == "rtl", path
        server.stop()

"""Every page with hostile texts in its data and its address: none of it is markup, or changes how text is shown."""

from __future__ import annotations

import re

import httpx
import pytest

from .conftest import WebServer
from .world import HOSTILE, World

TEXT = HOSTILE[:300]
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200b\u202a-\u202e\u2066-\u2069]")
MARKUP = re.compile(r"<script>|<img src=x|<iframe|<style>body|href=\"javascript:", re.IGNORECASE)
ADDRESSES: dict[str, list[str]] = {
    "/": ["q", "agent", "project", "type", "since", "until", "model", "branch", "failed"],
    "/traces": ["name", "status", "model", "since", "session", "f", "sort"],
    "/usage": ["project", "source"],
    "/live": [],
    "/capsules": ["q", "workspace"],
    "/capsules/new": ["workspace"],
    "/doctor": [],
}


def check(page: httpx.Response) -> None:
    assert CONTROLS.findall(page.text) == []
    assert MARKUP.findall(page.text) == []
    policy = page.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


class TestAddresses:
    @pytest.mark.parametrize("path", ADDRESSES)
    def test_each_parameter_and_all_of_them(self, path: str, site: WebServer) -> None:
        names = ADDRESSES[path]
        for given in ([], *([name] for name in names), names):
            check(httpx.get(site.url + path, params=dict.fromkeys(given, TEXT), headers={"Accept": "text/html"}))

    def test_a_path(self, site: WebServer) -> None:
        for path in ("/s/", "/traces/", "/capsules/x/", "/nothing/"):
            check(httpx.get(site.url + path + "<script>alert(1)<script>\u202e", headers={"Accept": "text/html"}))


class TestData:
    def test_the_pages_of_a_hostile_session(self, site: WebServer, world: World) -> None:
        traces = httpx.get(f"{site.url}/traces.json", params={"session": world.hostile}).json()["items"]
        spans = httpx.get(f"{site.url}/traces/{traces[0]['id']}.json").json()
        number = spans["columns"].index("id")
        pages = [f"/s/{world.hostile}", f"/s/{world.hostile}?find=wombat", "/?q=wombat", "/usage?range=all&tools"]
        pages += [f"/traces/{traces[0]['id']}", f"/traces/{traces[0]['id']}?view=tree", "/traces?of=spans&name=wombat"]
        pages += [f"/traces/{traces[0]['id']}/{row[number]}" for row in spans["rows"]]
        for path in pages:
            answer = httpx.get(site.url + path)
            assert answer.status_code == 200, path
            check(answer)

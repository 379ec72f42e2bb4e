from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from backstory.faces.web.site import own_path
from backstory.library import Library

from .conftest import WebServer

BROWSER = {"accept": "text/html"}
TOKEN = "a-token-of-some-length"


class TestPages:
    def test_the_policy_is_strict(self, site: WebServer) -> None:
        policy = httpx.get(site.url).headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy

    def test_are_compressed(self, site: WebServer) -> None:
        answer = httpx.get(site.url, headers={"accept-encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert "</html>" in answer.text

    def test_a_browser_gets_an_error_page_and_a_program_json(self, site: WebServer) -> None:
        page = httpx.get(f"{site.url}/nothing", headers=BROWSER)
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert httpx.get(f"{site.url}/nothing").json()["error"]["code"] == "not_found"

    def test_a_form_that_is_refused_is_a_page_and_a_twin_is_json(self, site: WebServer) -> None:
        page = httpx.post(f"{site.url}/capsules/new", data={"text": "x"}, headers=BROWSER)
        assert (page.status_code, page.headers["content-type"]) == (403, "text/html; charset=utf-8")
        assert "Reload the page" in page.text
        assert httpx.get(f"{site.url}/s/nothing.json", headers=BROWSER).json()["error"]["code"] == "not_found"

    def test_the_theme_is_kept_in_a_cookie(self, site: WebServer) -> None:
        """Also without scripts: the switch is a form."""
        with httpx.Client(base_url=site.url) as client:
            answer = client.post("/theme", data={"theme": "dark", "back": "/?q=x"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/?q=x")
            assert 'data-theme="dark"' in client.get("/").text


class TestOwnPath:
    """A form can lead back to a page of this server only."""

    @pytest.mark.parametrize("address", ["//evil.example", "https://evil.example", "/\\evil.example", "", "/x\ny"])
    def test_others_become_the_first_page(self, address: str) -> None:
        assert own_path(address) == "/"

    def test_own_ones_stay(self) -> None:
        assert own_path("/?q=a%20b") == "/?q=a%20b"


class TestToken:
    """Beyond loopback a browser is asked for the token once."""

    @pytest.fixture
    def guarded(self, library: Library) -> Any:
        server = WebServer(library, token=TOKEN, beyond_loopback=True)
        yield server
        server.stop()

    def test_is_asked_for_and_kept(self, guarded: WebServer) -> None:
        with httpx.Client(base_url=guarded.url, headers=BROWSER) as client:
            asked = client.get("/?q=x")
            assert asked.status_code == 401
            assert 'action="/token"' in asked.text
            refused = client.post("/token", data={"token": "wrong", "back": "/?q=x"})
            assert refused.status_code == 401
            assert 'name="back" value="/?q=x"' in refused.text
            entered = client.post("/token", data={"token": TOKEN, "back": "/?q=x"})
            assert (entered.status_code, entered.headers["location"]) == (303, "/?q=x")
            assert "HttpOnly" in entered.headers["set-cookie"]
            assert "Max-Age=31536000" in entered.headers["set-cookie"]  # also when the browser is started anew
            assert "SameSite=strict" in entered.headers["set-cookie"]
            assert client.get("/?q=x").status_code == 200

    def test_programs_get_json(self, guarded: WebServer) -> None:
        assert httpx.get(guarded.url).json()["error"]["code"] == "unauthorized"

    def test_the_page_has_its_stylesheet(self, guarded: WebServer, open_page: Callable[..., Any]) -> None:
        page = open_page("/", base=guarded.url, quiet=False)
        assert page.evaluate("document.styleSheets[0].cssRules.length") > 50
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.get_by_role("searchbox").wait_for()

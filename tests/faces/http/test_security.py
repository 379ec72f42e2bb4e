from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from .conftest import Running

TOKEN = "a-token-of-some-length"
ROUTES = [
    ("GET", "/"),
    ("GET", "/healthz"),
    ("GET", "/api/tools"),
    ("POST", "/api/tools/echo"),
    ("POST", "/session/create"),
    ("GET", "/session/events"),
    ("POST", "/mcp"),
    ("GET", "/nothing/here"),
]


def refused_socket(url: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as refusal, connect(url, **options):
        pass
    return refusal.value.response.status_code


class TestHost:
    """A request that names a host which is not this server is refused: that is how DNS rebinding arrives."""

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    def test_is_checked_on_every_route(self, server: Running, method: str, path: str) -> None:
        answer = httpx.request(method, server.url + path, headers={"Host": "evil.example"})
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "forbidden_host"

    def test_is_checked_on_websockets(self, server: Running) -> None:
        sock = socket.create_connection(("127.0.0.1", server.port))
        assert refused_socket("ws://evil.example", sock=sock) == 403

    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:7717", "127.9.9.9", "[::1]", "[::1]:99"])
    def test_loopback_has_many_names(self, server: Running, host: str) -> None:
        assert httpx.get(server.url + "/healthz", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host", ["", "localhost.evil.example", "localhost:80@evil.example", "[::1", "192.168.0.7", "127.0.0.1.nip.io"]
    )
    def test_what_only_looks_like_loopback_is_refused(self, server: Running, host: str) -> None:
        assert httpx.get(server.url + "/healthz", headers={"Host": host}).status_code in (400, 403)

    def test_beyond_loopback_addresses_and_given_names_are_let_in(self, run_server: Callable[..., Running]) -> None:
        server = run_server(token=TOKEN, beyond_loopback=True, hosts=["Box.local"])
        for host, status in (("192.168.0.7:7717", 200), ("box.local", 200), ("evil.example", 403)):
            assert httpx.get(server.url + "/healthz", headers={"Host": host}).status_code == status


class TestOrigin:
    """A request from a page is let in only if the page is this server's own, or was allowed by name."""

    @pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000", "file://"])
    def test_foreign_pages_are_refused(self, server: Running, origin: str) -> None:
        for method, path in ROUTES:
            answer = httpx.request(method, server.url + path, headers={"Origin": origin})
            assert answer.status_code == 403
            assert answer.json()["error"]["code"] == "forbidden_origin"
        assert refused_socket(server.ws_url, origin=origin) == 403

    def test_own_pages_are_let_in(self, server: Running) -> None:
        origin = f"http://127.0.0.1:{server.port}"
        assert httpx.post(server.url + "/session/create", headers={"Origin": origin}).status_code == 200
        with connect(server.ws_url, origin=origin) as client:
            assert "workerregistered" in client.recv(60)

    def test_allowed_pages_are_let_in_and_may_read_the_answer(self, run_server: Callable[..., Running]) -> None:
        page = "http://localhost:3000"
        server = run_server(token=TOKEN, origins=[page + "/"])
        headers = {"Origin": page, "Access-Control-Request-Method": "POST"}
        assert httpx.options(server.url + "/session/create", headers=headers).status_code == 200
        headers = {"Origin": page, "Authorization": f"Bearer {TOKEN}"}
        answer = httpx.post(server.url + "/session/create", headers=headers)
        assert answer.status_code == 200
        assert answer.headers["Access-Control-Allow-Origin"] == page


class TestToken:
    """With a token, only who presents it gets further than /healthz."""

    @pytest.fixture
    def server(self, run_server: Callable[..., Running]) -> Running:
        return run_server(token=TOKEN)

    @pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if route[1] != "/healthz"])
    def test_is_needed_on_every_route(self, server: Running, method: str, path: str) -> None:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            answer = httpx.request(method, server.url + path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert TOKEN not in answer.text

    def test_is_needed_on_websockets(self, server: Running) -> None:
        assert refused_socket(server.ws_url) == 401
        assert refused_socket(server.ws_url + "/?token=wrong") == 401

    def test_health_is_open(self, server: Running) -> None:
        assert httpx.get(server.url + "/healthz").json() == {"status": "ok"}

    def test_comes_as_a_header(self, server: Running) -> None:
        headers = {"Authorization": f"bearer {TOKEN}"}
        assert httpx.get(server.url + "/api/tools", headers=headers).status_code == 200
        with connect(server.ws_url, additional_headers=headers) as client:
            assert "workerregistered" in client.recv(60)

    def test_comes_in_the_address_where_headers_cannot_be_set(self, server: Running) -> None:
        assert httpx.get(f"{server.url}/api/tools?token={TOKEN}").status_code == 200
        assert httpx.post(f"{server.url}/session/create?token={TOKEN}").status_code == 401
        with connect(f"{server.ws_url}/?token={TOKEN}") as client:
            assert "workerregistered" in client.recv(60)

    def test_comes_as_a_subprotocol_from_browsers(self, server: Running) -> None:
        with connect(server.ws_url, subprotocols=[f"backstory.token.{TOKEN}"]) as client:  # type: ignore[list-item]
            assert client.subprotocol == f"backstory.token.{TOKEN}"
            assert "workerregistered" in client.recv(60)

    def test_of_a_page_becomes_a_cookie_and_leaves_the_address(self, server: Running) -> None:
        with httpx.Client(base_url=server.url, headers={"Accept": "text/html"}) as browser:
            answer = browser.get(f"/?q=1&token={TOKEN}")
            assert answer.status_code == 303
            assert answer.headers["Location"] == "/?q=1"
            assert "HttpOnly" in answer.headers["Set-Cookie"]
            assert "samesite=strict" in answer.headers["Set-Cookie"].lower()
            assert browser.get("/api/tools").status_code == 200

    def test_leads_to_no_other_site(self, server: Running) -> None:
        answer = httpx.get(f"{server.url}//evil.example/?token={TOKEN}", headers={"Accept": "text/html"})
        assert answer.headers["Location"] == "/evil.example/"


class TestHeaders:
    """Every answer tells browsers not to guess types, not to frame it and not to leak its address."""

    def test_are_set(self, server: Running) -> None:
        headers = httpx.get(f"{server.url}/healthz").headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Server" not in headers or "uvicorn" in headers["Server"]

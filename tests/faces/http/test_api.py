from __future__ import annotations

import httpx
import pytest

from .conftest import Running


class TestTools:
    """Every tool can be listed and called over HTTP, and answers with its own structured result."""

    def test_list(self, server: Running) -> None:
        tools = httpx.get(server.url + "/api/tools").json()["tools"]
        assert [(tool["name"], tool["toolset"]) for tool in tools] == [("echo", "history"), ("refuse", "history")]
        assert tools[0]["input_schema"] == {"type": "object"}

    def test_call(self, server: Running) -> None:
        answer = httpx.post(server.url + "/api/tools/echo", json={"q": "ä"})
        assert answer.status_code == 200
        assert answer.json() == {"echo": {"q": "ä"}}

    def test_without_arguments(self, server: Running) -> None:
        assert httpx.post(server.url + "/api/tools/echo").json() == {"echo": {}}

    def test_errors_are_the_tools_own(self, server: Running) -> None:
        answer = httpx.post(server.url + "/api/tools/refuse", json={})
        assert answer.status_code == 404
        assert answer.json() == {"error": {"code": "not_found", "message": "no such thing"}}

    @pytest.mark.parametrize("body", [[], "text", 1, False])
    def test_arguments_are_an_object(self, server: Running, body: object) -> None:
        answer = httpx.post(server.url + "/api/tools/echo", json=body)
        assert answer.status_code == 400

    def test_an_unknown_tool(self, server: Running) -> None:
        answer = httpx.post(server.url + "/api/tools/nothing", json={})
        assert answer.status_code == 404
        assert "/api/tools" in answer.json()["error"]["message"]


class TestAddresses:
    """Every wrong address is answered as JSON."""

    def test_health(self, server: Running) -> None:
        assert httpx.get(server.url + "/healthz").json() == {"status": "ok"}

    def test_not_found(self, server: Running) -> None:
        answer = httpx.get(server.url + "/nothing")
        assert answer.status_code == 404
        assert answer.json() == {"error": {"code": "not_found", "message": "GET /nothing: not found"}}

    def test_another_method(self, server: Running) -> None:
        answer = httpx.post(server.url)
        assert answer.status_code == 405
        assert answer.json()["error"]["code"] == "method_not_allowed"

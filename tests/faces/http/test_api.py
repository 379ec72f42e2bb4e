from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from backstory.faces.http.api import api_routes
from backstory.library import Library

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

    def test_an_error_with_a_status_has_it(self, tmp_path: Path) -> None:
        note = {"capsule_text": "x", "name": "n", "allow_thin": True}
        with Library(tmp_path, environ={}) as library, TestClient(Starlette(routes=api_routes(library))) as client:
            for arguments, status in (
                (note, 200),
                (note, 409),
                (note | {"allow_thin": False}, 422),
                (note | {"capsule_text": "x" * 12_001}, 413),
                (note | {"mode": "nope"}, 400),
            ):
                assert client.post("/api/tools/moss.store", json=arguments).status_code == status, arguments
            assert client.post("/api/tools/moss.fetch", json={"name": "nope"}).status_code == 404

    def test_wrong_arguments_are_400_and_what_is_not_there_is_404(self, tmp_path: Path) -> None:
        with Library(tmp_path, environ={}) as library, TestClient(Starlette(routes=api_routes(library))) as client:
            for tool, arguments, status in (
                ("search_sessions", {}, 400),
                ("search_sessions", {"query": "x", "event_types": ["x"]}, 400),
                ("open", {"id": "turn:x"}, 400),
                ("open", {"id": "session:Y29kZXgveA"}, 404),
                ("search_conversations", {}, 400),
                ("read_turn", {"session_id": "x", "turn_number": 0}, 400),
                ("list_traces", {"limit": 0}, 400),
                ("search_traces", {"sortBy": "x"}, 400),
                ("get_trace", {"traceId": "x"}, 404),
                ("session_get", {}, 400),
                ("session_set_status", {"session_id": "x", "status": "idle"}, 404),
            ):
                assert client.post(f"/api/tools/{tool}", json=arguments).status_code == status, tool

    @pytest.mark.parametrize(
        ("tool", "arguments", "status"),
        [
            ("list_traces", {}, 503),
            ("search_sessions", {"query": "x"}, 500),
            ("search_conversations", {"query": "x"}, 500),
        ],
    )
    def test_a_damaged_archive_is_no_mistake_of_the_caller(
        self, tmp_path: Path, tool: str, arguments: dict[str, str], status: int
    ) -> None:
        (tmp_path / "archive.db").write_bytes(b"not a database" * 1000)
        with Library(tmp_path, environ={}) as library, TestClient(Starlette(routes=api_routes(library))) as client:
            assert client.post(f"/api/tools/{tool}", json=arguments).status_code == status

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

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from .conftest import Running

MESSAGE = {"role": "user", "content": [{"type": "text", "text": "hello\nworld\u2028"}], "timestamp": 1}


class TestCalls:
    """`POST /session/<function>` is the function: the body its request, the answer its response."""

    def test_result(self, server: Running) -> None:
        answer = httpx.post(server.url + "/session/create", json={"session_id": "s_1"})
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.json() == {"session_id": "s_1"}

    def test_an_empty_body_is_an_empty_request(self, server: Running) -> None:
        assert httpx.post(server.url + "/session/create").status_code == 200

    def test_null_is_a_result(self, server: Running) -> None:
        assert httpx.post(server.url + "/session/get", json={}).text == "null"

    def test_errors_have_the_contracts_code(self, server: Running) -> None:
        answer = httpx.post(server.url + "/session/append", json={"session_id": "s_0", "message": MESSAGE})
        assert answer.status_code == 404
        assert answer.json() == {"error": {"code": "not_found", "message": "session/not_found: no session s_0"}}
        answer = httpx.post(server.url + "/session/create", json=[1])
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_request"

    def test_unexpected_errors_tell_nothing(self, server: Running) -> None:
        answer = httpx.post(server.url + "/session/store/put-meta", json={})
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "internal_error"
        assert "secret" not in answer.text

    @pytest.mark.parametrize("path", ["/session/nothing", "/session/", "/session/store::put-meta/x", "/session/a//b"])
    def test_an_unknown_function(self, server: Running, path: str) -> None:
        answer = httpx.post(server.url + path, json={})
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_found"

    def test_another_method(self, server: Running) -> None:
        answer = httpx.get(server.url + "/session/create")
        assert answer.status_code == 405
        assert answer.headers["Allow"] == "POST"
        assert answer.json()["error"]["code"] == "method_not_allowed"

    @pytest.mark.parametrize("body", ["{", "nonsense", "\xff", '{"title": "\xff"}', '{"a": NaN}', "[" * 100_000])
    def test_a_body_that_is_no_json(self, server: Running, body: str) -> None:
        answer = httpx.post(server.url + "/session/create", content=body.encode("latin-1"))
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["code"] == "invalid_request"
        assert error["message"].startswith("session/invalid_request: ")

    def test_a_body_too_large_is_refused_before_it_is_sent(self, server: Running) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"POST /session/create HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n{")
            answer = client.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"application/json" in answer

    def test_a_body_of_unknown_length_is_limited_too(self, server: Running) -> None:
        def chunks() -> Iterator[bytes]:
            for _ in range(9):
                yield b" " * 500_000

        answer = httpx.post(server.url + "/api/tools/echo", content=chunks())
        assert answer.status_code == 413


@contextmanager
def subscribe(server: Running, query: str = "", **headers: str) -> Iterator[Iterator[dict[str, str]]]:
    with httpx.stream("GET", f"{server.url}/session/events{query}", headers=headers, timeout=60) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        events = read_events(answer.iter_lines())
        yield events


def read_events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    event: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            yield event
            event = {}


def append(server: Running, session_id: str, **fields: Any) -> None:
    server.call("session::append", {"session_id": session_id, "message": MESSAGE | fields})


class TestEvents:
    """`GET /session/events` streams what happens, and goes on after `Last-Event-ID` without a gap."""

    def test_stream(self, server: Running) -> None:
        with subscribe(server) as events:
            assert next(events) == {"id": "0"}
            server.call("session::create", {"session_id": "s_1"})
            append(server, "s_1")
            created, added = next(events), next(events)
        assert created["event"] == "session::created"
        assert created["id"] == "1"
        assert added["event"] == "session::message-added"
        assert json.loads(added["data"])["message"] == MESSAGE

    def test_goes_on_where_the_client_was(self, server: Running) -> None:
        server.call("session::create", {"session_id": "s_1"})
        for timestamp in range(5):
            append(server, "s_1", timestamp=timestamp)
        with subscribe(server, **{"Last-Event-ID": "3"}) as events:
            assert [next(events)["id"] for _ in range(4)] == ["3", "4", "5", "6"]
        with subscribe(server, "?after=4") as events:
            assert [next(events)["id"] for _ in range(3)] == ["4", "5", "6"]
        with subscribe(server, "?after=1", **{"Last-Event-ID": "5"}) as events:
            assert [next(events)["id"] for _ in range(2)] == ["5", "6"]

    def test_only_what_is_new_without_a_position(self, server: Running) -> None:
        server.call("session::create", {"session_id": "s_1"})
        with subscribe(server) as events:
            assert next(events) == {"id": "1"}
            append(server, "s_1")
            assert next(events)["id"] == "2"

    def test_filters(self, server: Running) -> None:
        server.call("session::create", {"session_id": "s_1"})
        server.call("session::create", {"session_id": "s_2"})
        append(server, "s_1")
        append(server, "s_2")
        with subscribe(server, "?after=0&session_id=s_2&types=session::message-added,session::deleted") as events:
            assert [next(events)["id"] for _ in range(2)] == ["0", "4"]

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ("?colour=red", 400),
            ("?after=-1", 400),
            ("?after=x", 400),
            ("?after=" + "9" * 30, 400),
            ("?after=99", 410),
            ("?metadata={", 400),
        ],
    )
    def test_a_request_that_cannot_be_met(self, server: Running, query: str, status: int) -> None:
        answer = httpx.get(f"{server.url}/session/events{query}")
        assert answer.status_code == status
        assert answer.json()["error"]["message"].startswith("session/invalid_")

    def test_many_subscribers(self, server: Running) -> None:
        with subscribe(server) as first, subscribe(server) as second:
            next(first), next(second)
            server.call("session::create", {"session_id": "s_1"})
            assert next(first)["id"] == next(second)["id"] == "1"

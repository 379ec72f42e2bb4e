"""Clients that go away in the middle of something, or break the protocol, leave nothing in the log of the server."""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.served import Served, eventually

MESSAGE = {"role": "user", "content": [{"type": "text", "text": "x" * 200_000}], "timestamp": 1}
POST = (
    "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Accept: application/json, text/event-stream\r\n"
)


def deaf(port: int) -> socket.socket:
    """A connection with a small buffer, so that the server soon cannot send."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(60)
    client.connect(("127.0.0.1", port))
    return client


def web_socket(port: int) -> socket.socket:
    client = deaf(port)
    headers = (
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        + "A" * 22
        + "=="
    )
    client.sendall(f"GET / HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n".encode())
    assert client.recv(400).startswith(b"HTTP/1.1 101")
    return client


def frame(kind: str, **fields: Any) -> bytes:
    """A masked text frame; spaces make it long enough for a length of two bytes."""
    data = json.dumps({"type": kind, **fields}).encode().ljust(126)
    return b"\x81\xfe" + struct.pack(">H", len(data)) + bytes(4) + data


def vanish(client: socket.socket, reset: bool) -> None:
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def half_a_body(port: int) -> Iterator[socket.socket]:
    for path in ("/session/append", "/mcp", "/v1/traces", "/api/tools/search_sessions"):
        client = deaf(port)
        client.sendall(f"{POST.format(path)}Transfer-Encoding: chunked\r\n\r\n5\r\nab".encode())
        yield client


def half_an_answer(port: int) -> Iterator[socket.socket]:
    client = deaf(port)
    body = json.dumps({"session_id": "s", "limit": 500})
    client.sendall(f"{POST.format('/session/messages')}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    yield client


def half_an_event(port: int) -> Iterator[socket.socket]:
    client = deaf(port)
    client.sendall(b"GET /session/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    yield client


def a_call(port: int) -> Iterator[socket.socket]:
    client = web_socket(port)
    call = {"function_id": "session::messages", "data": {"session_id": "s", "limit": 500}}
    client.sendall(frame("invokefunction", invocation_id="1", **call) * 2)
    yield client


def a_subscriber(port: int) -> Iterator[socket.socket]:
    client = web_socket(port)
    client.sendall(frame("registerfunction", id="f"))
    binding = {"trigger_type": "session::message-added", "function_id": "f", "config": {"after": 0}}
    client.sendall(frame("registertrigger", id="t", **binding))
    yield client


def nonsense(port: int) -> Iterator[socket.socket]:
    for data in (b"\xff" * 9, b"\x88\x80\0\0\0\0", b"\x81\xff" + struct.pack(">Q", 1 << 40) + b"x" * 999):
        client = web_socket(port)
        call = {"function_id": "session::messages", "data": {"session_id": "s", "limit": 500}}
        client.sendall(frame("invokefunction", invocation_id="1", **call) + data)
        yield client


def sockets(server: Served) -> int:
    """The number of sockets that the server has open; 0 where that cannot be seen."""
    found = 0
    with suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{server.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found += str(descriptor.readlink()).startswith("socket:")
    return found


WAYS = [half_a_body, half_an_answer, half_an_event, a_call, a_subscriber, nonsense]


class TestVanished:
    """Each way, with and without a reset of the connection, before and after the server began to answer."""

    def test_no_traceback(self, tmp_path: Path) -> None:
        with Served(tmp_path) as server:
            server.call("ensure", {"session_id": "s"})
            for _ in range(30):
                server.call("append", {"session_id": "s", "message": MESSAGE})
            before = sockets(server)
            for way, reset, wait in product(WAYS, (False, True), (0.0, 0.2)):
                clients = list(way(server.port))
                if wait:
                    select.select(clients, [], [], wait)
                for client in clients:
                    vanish(client, reset)
            assert server.call("list", {})["sessions"]
            eventually(lambda: sockets(server) <= before)  # it has noticed all of them
            assert server.stop() == 0
        log = (tmp_path / "stderr").read_text()
        assert "Traceback" not in log
        assert "ERROR" not in log

    @pytest.mark.slow
    def test_cut_off_by_the_end_of_the_server(self, tmp_path: Path) -> None:
        """A client that takes its answer too slowly does not get the rest of it, which is no error."""
        with Served(tmp_path) as server:
            server.call("ensure", {"session_id": "s"})
            for _ in range(30):
                server.call("append", {"session_id": "s", "message": MESSAGE})
            clients = [*half_an_answer(server.port), *a_call(server.port), *half_an_event(server.port)]
            for client in clients:
                select.select([client], [], [], 60)  # it has begun to answer
            assert server.stop() == 0
            for client in clients:
                client.close()
        assert (tmp_path / "stderr").read_text() == ""

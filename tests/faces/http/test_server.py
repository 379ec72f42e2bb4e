from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from backstory.faces.http import server as http_server

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]
_ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
_SECONDS = 1.0


async def _answer(request: Request) -> PlainTextResponse:
    await asyncio.sleep(float(request.query_params.get("seconds", "0")))
    return PlainTextResponse("done")


async def _run(client: Client) -> bytes:
    """What a client gets from a server that runs meanwhile."""
    ready = asyncio.Event()
    app = Starlette(routes=[Route("/", _answer)])
    server = http_server._Server(http_server._configuration(app), ready.set)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await ready.wait()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            return await asyncio.wait_for(client(reader, writer), 10 * _SECONDS)
        finally:
            writer.close()
            server.should_exit = True
            await running


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_HEADER_SECONDS", _SECONDS)


class TestLateRequests:
    """A connection is closed when the headers of its next request take too long, and at no other time."""

    @pytest.mark.parametrize("begin", [b"", b"G", _ASK[:-2] + b"X-Slow: "])
    @pytest.mark.parametrize("first", [b"", _ASK])
    def test_slow_headers(self, begin: bytes, first: bytes) -> None:
        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            if first:
                writer.write(first)
                await reader.readuntil(b"done")
            writer.write(begin)
            rest = asyncio.create_task(reader.read())
            while not rest.done():
                if begin:
                    writer.write(b"x")
                await asyncio.sleep(_SECONDS / 10)
            with suppress(ConnectionResetError):
                return await rest
            return b""

        assert b"done" not in asyncio.run(_run(client))

    def test_a_slow_answer(self) -> None:
        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(_ASK.replace(b"/ ", b"/?seconds=%d " % (3 * _SECONDS), 1))
            return await reader.readuntil(b"done")

        assert b"200 OK" in asyncio.run(_run(client))

    def test_request_after_request(self) -> None:
        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            for _ in range(15):
                writer.write(_ASK)
                answer = await reader.readuntil(b"done")
                await asyncio.sleep(_SECONDS / 5)
            return answer

        assert b"200 OK" in asyncio.run(_run(client))

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import product, starmap

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from backstory.faces.http import read_body
from backstory.faces.http import server as http_server
from tests.e2e.served import PATIENCE

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]
_ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
_SECONDS = 1.0


async def _answer(request: Request) -> PlainTextResponse:
    await read_body(request)
    await asyncio.sleep(float(request.query_params.get("seconds", "0")))
    return PlainTextResponse("done")


async def _run(*clients: Client) -> list[bytes]:
    """The answers that clients get at the same time from one server."""
    ready = asyncio.Event()
    app = Starlette(routes=[Route("/", _answer, methods=["GET", "POST"])])
    server = http_server._Server(http_server._configuration(app), ready.set)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await ready.wait()

        async def connect(client: Client) -> bytes:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            try:
                return await client(reader, writer)
            finally:
                writer.close()

        try:
            return await asyncio.wait_for(asyncio.gather(*map(connect, clients)), PATIENCE)
        finally:
            server.should_exit = True
            await running


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_HEADER_SECONDS", _SECONDS)
    monkeypatch.setattr(http_server, "_BODY_SECONDS", _SECONDS)


class TestLateRequests:
    """A connection is closed when its next request takes too long to come, and at no other time."""

    def test_slow_headers(self) -> None:
        """After nothing, one byte or some headers; as the first request, or after one that was answered."""

        def sends(first: bytes, begin: bytes) -> Client:
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

            return client

        cases = product((b"", _ASK), (b"", b"G", _ASK[:-2] + b"X-Slow: "))
        for answer in asyncio.run(_run(*starmap(sends, cases))):
            assert b"done" not in answer

    def test_slow_bodies(self) -> None:
        """A request whose body stops is answered, and its connection closed; one that goes on is read to its end."""
        ask = b"POST /?body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345"

        async def stops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(ask)
            return await reader.read()

        async def goes_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(ask)
            for part in (b"6", b"7", b"8", b"9", b"0"):
                await asyncio.sleep(_SECONDS / 4)
                writer.write(part)
            return await reader.readuntil(b"done")

        stopped, read = asyncio.run(_run(stops, goes_on))
        assert b"400 Bad Request" in stopped
        assert b"200 OK" in read

    def test_too_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those that wait longest are closed at once."""
        monkeypatch.setattr(http_server, "_HEADER_SECONDS", PATIENCE)
        monkeypatch.setattr(http_server, "_MOST_WAITING", 3)
        closed: list[bytes] = []
        enough = asyncio.Event()

        async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(_ASK[:1])
            ended, over = asyncio.create_task(reader.read(1)), asyncio.create_task(enough.wait())
            await asyncio.wait([ended, over], return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                closed.append(b"")
                if len(closed) == 2:
                    enough.set()
                return b"closed"
            writer.write(_ASK[1:])
            return await ended + await reader.readuntil(b"done")

        answers = asyncio.run(_run(*[waits] * 5))
        assert answers.count(b"closed") == 2
        assert sum(b"200 OK" in answer for answer in answers) == 3

    def test_a_slow_answer_and_request_after_request(self) -> None:
        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(_ASK.replace(b"/ ", b"/?seconds=%d " % (3 * _SECONDS), 1))
            return await reader.readuntil(b"done")

        async def often(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            for _ in range(15):
                writer.write(_ASK)
                answer = await reader.readuntil(b"done")
                await asyncio.sleep(_SECONDS / 5)
            return answer

        for answer in asyncio.run(_run(slow, often)):
            assert b"200 OK" in answer

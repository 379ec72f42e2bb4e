"""The ASGI app of `backstory serve --hub`: members push, search and forget through it, so no machine but this one has
access to the database of the team."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ... import __version__
from ...archive.errors import ArchiveError, DeadlineExceeded, explain
from ...team import TeamError, wire
from ...team.access import LimitedArchive, Right, Token, Tokens
from ...team.intake import Receiver, hub_identity
from ...team.sharing import Parcel, Receipt
from . import HANDLERS, error_response, json_response, read_body

if TYPE_CHECKING:
    from pathlib import Path

    from ...archive.base import Archive

_log = logging.getLogger(__name__)

# Reads are mostly waiting for the database.
_PARALLEL_READS = 16
_MOST_WAITING = 64
_COUNTED_SECONDS = 30.0
_VERSION = {wire.VERSION_HEADER: str(wire.PROTOCOL)}
# Of the metrics.
_REQUESTS = "backstory_hub_requests_total"
_SECONDS = "backstory_hub_request_seconds"
_TOTALS = tuple(
    f"backstory_hub_{name}_total"
    for name in ("events_received", "received_bytes", "sessions_refused", "sessions_forgotten")
)
_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class _Refused(Exception):
    """The request is not allowed or not possible; the message is for the member."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.response = error_response(status, code, message, _VERSION)


class Hub:
    """The endpoints over an open archive. `close` ends what they use, except for the archive."""

    def __init__(self, home: Path, archive: Archive) -> None:
        self.identity = hub_identity(home, archive)
        self.tokens = Tokens(home)
        self.metrics = Metrics()
        self._archive = archive
        self._receiver = Receiver(archive)
        self._limiter = anyio.CapacityLimiter(_PARALLEL_READS)
        self._counted: tuple[float, dict[str, float]] = (0.0, {})

    def close(self) -> None:
        self._receiver.close()
        self.tokens.close()

    def app(self) -> Starlette:
        routes = [
            Route("/health", self._health, methods=["GET"]),
            Route("/metrics", self._endpoint("metrics", self._show_metrics, None), methods=["GET"]),
            Route(f"{wire.BASE}/hello", self._endpoint("hello", self._hello, None), methods=["GET"]),
            Route(f"{wire.BASE}/push", self._endpoint("push", self._push, "write"), methods=["POST"]),
            Route(f"{wire.BASE}/forget", self._endpoint("forget", self._forget, "write"), methods=["POST"]),
            Route(f"{wire.BASE}/read/{{method}}", self._endpoint("read", self._read, "read"), methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers=HANDLERS)

    def _endpoint(
        self, name: str, work: Callable[[Request, Token], Awaitable[Response]], right: Right | None
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for tokens with a right (None: for all), counted and timed."""

        async def answer(request: Request) -> Response:
            started = time.monotonic()
            try:
                response = await work(request, self._admit(request, right))
            except _Refused as refused:
                response = refused.response
            except HTTPException as error:
                response = error_response(error.status_code, "bad_request", error.detail, _VERSION)
            except Exception as error:
                response = _failure(error)
            method = request.path_params.get("method")
            called = f"{name}_{method}" if method in wire.METHODS else name
            self.metrics.observe(called, response.status_code, time.monotonic() - started)
            return response

        return answer

    def _admit(self, request: Request, right: Right | None) -> Token:
        version = request.headers.get(wire.VERSION_HEADER)
        if version is not None and version != str(wire.PROTOCOL):
            older = "Backstory on this machine" if version.isdecimal() and int(version) < wire.PROTOCOL else "the hub"
            raise _Refused(
                426,
                "wrong_version",
                f"it speaks version {wire.PROTOCOL} of the team protocol, this machine {version}: update {older}",
            )
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        token = self.tokens.find(text.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            raise _Refused(401, "unknown_token", "the token is not known: ask the owner of the hub for one")
        if token.revoked_at is not None:
            raise _Refused(
                403, "revoked_token", f"the token {token.id} was revoked: ask the owner of the hub for another"
            )
        if right is not None and not token.allows(right):
            allowed = " and ".join(token.rights)
            raise _Refused(
                403, "missing_right", f"the token {token.id} may only {allowed}, this needs the right to {right}"
            )
        return token

    # Endpoints

    async def _health(self, request: Request) -> Response:
        """The health of the hub and its database, without a token."""
        try:
            await run_sync(self._archive.sync_state, limiter=self._limiter)
        except Exception as error:
            return error_response(503, "archive_unavailable", explain(error) or "the archive cannot be read", _VERSION)
        return json_response({"status": "ok", "protocol": wire.PROTOCOL, "version": __version__}, headers=_VERSION)

    async def _hello(self, request: Request, token: Token) -> Response:
        return _packed(
            wire.Hello(
                protocol=wire.PROTOCOL,
                identity=self.identity,
                version=__version__,
                member=token.member,
                rights=list(token.rights),
                projects=list(token.projects),
            ),
            request,
        )

    async def _push(self, request: Request, token: Token) -> Response:
        parcel = await self._message(request, Parcel)
        count = len(parcel.batch.events)
        receipt: Receipt = await self._written(lambda intake: intake.push(parcel, token.member, token.scope))
        self.metrics.add("backstory_hub_events_received_total", count)
        self.metrics.add("backstory_hub_sessions_refused_total", len(receipt.refused))
        return _packed(receipt, request)

    async def _forget(self, request: Request, token: Token) -> Response:
        keys = await self._message(request, list[str])
        receipt: Receipt = await self._written(lambda intake: intake.forget(keys, token.member))
        self.metrics.add("backstory_hub_sessions_forgotten_total", len(keys) - len(receipt.refused))
        return _packed(receipt, request)

    async def _read(self, request: Request, token: Token) -> Response:
        method = wire.METHODS.get(request.path_params["method"])
        if method is None:
            raise _Refused(404, "unknown_method", f"there is no read {request.path_params['method']!r}")
        message = await self._message(request, method.message)
        archive = self._archive if token.scope.everything else LimitedArchive(self._archive, token.scope)
        answer = await run_sync(partial(method.call, archive, message), limiter=self._limiter, abandon_on_cancel=True)
        return _packed(answer, request)

    async def _show_metrics(self, request: Request, token: Token) -> Response:
        moment, counted = self._counted
        if time.monotonic() - moment > _COUNTED_SECONDS or not counted:
            counts = await run_sync(self._archive.counts, limiter=self._limiter)
            counted = {
                "backstory_hub_sessions": counts.sessions,
                "backstory_hub_events": counts.events,
                "backstory_hub_archive_bytes": counts.bytes,
            }
            self._counted = (time.monotonic(), counted)
        valid = sum(each.revoked_at is None for each in self.tokens.list())
        gauges = {**counted, "backstory_hub_tokens": valid, "backstory_hub_writes_waiting": self._receiver.waiting}
        text = self.metrics.text(gauges)
        return Response(text, headers=_VERSION, media_type="text/plain; version=0.0.4")

    # Parts of them

    async def _message(self, request: Request, kind: Any) -> Any:
        body = await read_body(request, wire.MAX_BODY_BYTES)
        self.metrics.add("backstory_hub_received_bytes_total", len(body))
        try:
            plain = await asyncio.to_thread(wire.decompress, body, request.headers.get("content-encoding"))
            return msgspec.msgpack.decode(plain, type=kind)
        except (ValueError, RecursionError) as error:  # errors of msgspec are ValueErrors
            raise _Refused(400, "unreadable", f"the message cannot be read: {error}") from None

    async def _written(self, job: Callable[[Any], Receipt]) -> Receipt:
        if self._receiver.waiting > _MOST_WAITING:
            raise _Refused(503, "busy", "too many writes are waiting: try again")
        return await asyncio.wrap_future(self._receiver.submit(job))


def _packed(value: Any, request: Request) -> Response:
    body, encoding = wire.encode(value), None
    if "zstd" in request.headers.get("accept-encoding", ""):
        body, encoding = wire.compress(body)
    headers = {**_VERSION, **({"Content-Encoding": encoding} if encoding else {})}
    return Response(body, headers=headers, media_type=wire.MEDIA_TYPE)


def _failure(error: Exception) -> Response:
    if isinstance(error, DeadlineExceeded):
        return error_response(504, "deadline_exceeded", str(error), _VERSION)
    if isinstance(error, TeamError):
        return error_response(403, "not_allowed", str(error), _VERSION)
    if isinstance(error, ArchiveError) or explain(error):
        return error_response(503, "archive_unavailable", explain(error) or str(error), _VERSION)
    _log.error("a request failed", exc_info=error)
    return error_response(500, "internal_error", "internal error; the log of the hub has the details", _VERSION)


class Metrics:
    """Counters of a hub in the text format of Prometheus, used in one thread. Names that end with `_total` are
    counters; requests have a histogram of their seconds."""

    def __init__(self) -> None:
        self._totals = Counter(dict.fromkeys(_TOTALS, 0))  # a counter that appears later looks as if it had never grown
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._buckets: Counter[tuple[str, float]] = Counter()

    def add(self, name: str, count: int) -> None:
        self._totals[name] += count

    def observe(self, method: str, status: int, seconds: float) -> None:
        """One request and the time that it took."""
        self._requests[method, status] += 1
        self._seconds[method] += seconds
        for bound in _BUCKETS:
            if seconds <= bound:
                self._buckets[method, bound] += 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """All counters, and these values as they are now."""
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        for name, total in sorted(self._totals.items()):
            lines += [f"# TYPE {name} counter", f"{name} {total}"]
        lines.append(f"# TYPE {_REQUESTS} counter")
        for (method, status), count in sorted(self._requests.items()):
            lines.append(f'{_REQUESTS}{{method="{method}",status="{status}"}} {count}')
        lines.append(f"# TYPE {_SECONDS} histogram")
        for method in sorted(self._seconds):
            count = sum(number for (name, _), number in self._requests.items() if name == method)
            for bound in _BUCKETS:
                lines.append(f'{_SECONDS}_bucket{{method="{method}",le="{bound:g}"}} {self._buckets[method, bound]}')
            lines.append(f'{_SECONDS}_bucket{{method="{method}",le="+Inf"}} {count}')
            lines.append(f'{_SECONDS}_sum{{method="{method}"}} {self._seconds[method]:.6f}')
            lines.append(f'{_SECONDS}_count{{method="{method}"}} {count}')
        return "\n".join(lines) + "\n"

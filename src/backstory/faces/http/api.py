"""The JSON API: every tool of every toolset, live sessions, and `GET /healthz`.

`GET /api/tools` and `POST /api/tools/<name>` are the tools. `POST /session/<function>` calls a function of the live
sessions, and `GET /session/events` streams their events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec
from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...toolsets.base import Reply, received
from ...toolsets.live import Event, Live, LiveError
from ..mcp import PARALLEL_CALLS
from ..offer import describe_tools
from . import error_response, json_response, read_json

if TYPE_CHECKING:
    from ...library import Library

MAX_ARGUMENT_BYTES = 4 * 1024 * 1024
_STATUS = {
    **dict.fromkeys(("not_found", "entry_not_found", "parent_not_found"), 404),
    **dict.fromkeys(("storage", "connection_failed", "timeout", "deadline_exceeded"), 503),
    "internal_error": 500,
}
"""The statuses of the codes of all contracts, in lower case; any other is 400."""
_GRACE_SECONDS = 1
_LIST_PARAMETERS = ("types", "roles")
# Many clients take these for the end of a line, as Unicode does; event streams do not. JSON has them in strings only.
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_PARAMETERS = frozenset({"types", "roles", "session_id", "metadata", "after", "token"})


def api_routes(library: Library) -> Sequence[BaseRoute]:
    limiter = anyio.CapacityLimiter(PARALLEL_CALLS)

    async def tools(request: Request) -> Response:
        listing = await run_sync(describe_tools, library, limiter=limiter)
        return json_response({"tools": listing})

    async def call(request: Request) -> Response:
        moment = time.monotonic()
        name = request.path_params["name"]
        arguments = await read_json(request, MAX_ARGUMENT_BYTES)
        if not isinstance(arguments, dict):
            raise HTTPException(400, "the arguments are a JSON object")
        try:
            tool = await run_sync(library.tool, name, limiter=limiter)
        except KeyError:
            raise HTTPException(404, f"there is no tool {name!r}; GET /api/tools lists them") from None
        with received(moment):
            reply = await run_sync(partial(tool.handler, arguments), limiter=limiter, abandon_on_cancel=True)
        return Response(reply.text.encode(), _status(reply), media_type="application/json")

    async def healthz(request: Request) -> Response:
        return json_response({"status": "ok"})

    return [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/api/tools", tools, methods=["GET"]),
        Route("/api/tools/{name}", call, methods=["POST"]),
    ]


def _status(reply: Reply) -> int:
    """The status of a tool's answer. Of errors, capsules say it themselves; conversations have words only, and a flag
    on those that are not the caller's. Codes are within the error, or beside it."""
    error = reply.data.get("error")
    if error is None and not reply.is_error:
        return 200
    described = error if isinstance(error, dict) else reply.data
    if isinstance(status := described.get("status"), int):
        return status
    code = described.get("code")
    return _STATUS.get(str(code).lower(), 400) if code is not None or not reply.is_error else 500


# Live sessions


def session_routes(live: Live) -> Sequence[BaseRoute]:
    functions = frozenset(function.id for function in live.functions())

    async def call(request: Request) -> Response:
        # `store/put-meta` is session::store::put-meta.
        function_id = "::".join(["session", *request.path_params["function"].split("/")])
        if function_id not in functions:
            raise HTTPException(404, f"there is no function {function_id}")
        try:
            data = await _body(request)
            return json_response(await live.call(function_id, data))
        except LiveError as error:
            return _refused(error)

    async def events(request: Request) -> Response:
        from sse_starlette import EventSourceResponse

        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        try:
            types, config, after = _subscription(request)
            if after is not None:
                await live.ensure_kept(after)
            stream = live.follow(config, types=types, after=after)
        except LiveError as error:
            return _refused(error, invalid_cursor=410)
        stop = anyio.Event()
        return EventSourceResponse(
            _event_stream(stream, live.last_seq if after is None else after, stop),
            sep="\n",
            shutdown_event=stop,
            shutdown_grace_period=_GRACE_SECONDS,
        )

    return [
        Route("/session/events", events, methods=["GET"]),
        Route("/session/{function:path}", call, methods=["POST"]),
    ]


async def _body(request: Request) -> Any:
    """The request as JSON; an invalid one raises the error of the functions."""
    try:
        return await read_json(request)
    except HTTPException as error:
        if error.status_code != 400:
            raise
        raise LiveError("invalid_request", error.detail) from None


def _refused(error: LiveError, *, invalid_cursor: int = 400) -> Response:
    status = invalid_cursor if error.code == "invalid_cursor" else _STATUS.get(error.code, 400)
    return error_response(status, error.code, str(error))


def _subscription(request: Request) -> tuple[list[str] | None, dict[str, Any], int | None]:
    """Types, filters and start position, from the query and `Last-Event-ID`."""
    query = request.query_params
    if unknown := set(query) - _PARAMETERS:
        raise LiveError("invalid_request", f"unknown parameter {sorted(unknown)[0]!r}; known: {sorted(_PARAMETERS)}")
    lists = {name: _list(query.getlist(name)) for name in _LIST_PARAMETERS if name in query}
    config: dict[str, Any] = {}
    if "session_id" in query:
        config["session_id"] = query["session_id"]
    if "roles" in lists:
        config["roles"] = lists["roles"]
    if "metadata" in query:
        try:
            config["metadata"] = msgspec.json.decode(query["metadata"])
        except (msgspec.DecodeError, RecursionError):
            raise LiveError("invalid_request", 'metadata: not JSON, e.g. metadata={"owner":"u_1"}') from None
    position = request.headers.get("last-event-id") or query.get("after")
    if position is None:
        return lists.get("types"), config, None
    if not (position.isascii() and position.isdecimal() and len(position) <= 20):
        raise LiveError("invalid_request", "after (or Last-Event-ID) is the number of the last event that was seen")
    return lists.get("types"), config, int(position)


def _list(values: list[str]) -> list[str]:
    """`a,b` and `name=a&name=b` are the same."""
    return [item for value in values for item in value.split(",") if item]


async def _event_stream(stream: AsyncIterator[Event], after: int, stop: anyio.Event) -> AsyncIterator[Any]:
    from sse_starlette import ServerSentEvent

    # Without data this is no event, but it gives the client the position to resume from after a lost connection.
    yield ServerSentEvent(id=str(after), comment="backstory", sep="\n")
    async for event in _until(stop, stream):
        data = msgspec.json.encode(event.payload).decode().translate(_LINE_BREAKS)
        yield ServerSentEvent(data=data, event=event.trigger_type, id=str(event.seq), sep="\n")


async def _until(stop: anyio.Event, stream: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """The events until the server stops, which ends the stream."""
    events = cast("AsyncGenerator[Event, None]", stream)
    stopping = asyncio.create_task(stop.wait())
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                return
            try:
                event = coming.result()
            except LiveError:
                return  # the next events are no longer kept: a client that reconnects gets 410
            if event is None:
                return
            yield event
            coming = asyncio.ensure_future(anext(events, None))
    finally:
        stopping.cancel()
        if coming.done():
            await events.aclose()
        else:
            coming.cancel()  # ends `events` too, which waits for its next event

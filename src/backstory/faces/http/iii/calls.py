"""Clients, their functions and their calls.

A local function is answered by this process; a function that a client registered is called at that client.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from ....toolsets.live import LiveError
from .frames import InvocationResult, InvokeFunction, RegisterFunction, error_body, fits, given, write_frame

if TYPE_CHECKING:
    from .triggers import Binding

logger = logging.getLogger(__name__)

MAX_FUNCTIONS = 10_000
MAX_PENDING = 10_000

OUTBOX_BYTES = 16 * 1024 * 1024
# The store's log keeps events, too: a subscriber that does not read costs this much, not a whole outbox.
EVENT_BYTES = 1024 * 1024
CALLS_AT_ONCE = 64


class PeerGone(Exception):
    """The client disconnected before the frame could be sent."""


class Outbox:
    """Frames that wait to be sent, bounded by size. One frame always fits into an empty outbox."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[str] = deque()
        self._size = 0
        self._closed = False
        self._changed = asyncio.Event()

    def offer(self, text: str, limit: int | None = None) -> bool:
        """Take the frame if there is room for it now. `limit` is a smaller bound than that of the outbox."""
        if self._closed or (self._frames and self._size + len(text) > (limit or self._limit)):
            return False
        self._frames.append(text)
        self._size += len(text)
        self._wake()
        return True

    async def put(self, text: str, limit: int | None = None) -> None:
        """Take the frame as soon as there is room for it."""
        while not self.offer(text, limit):
            if self._closed:
                raise PeerGone
            await self._changed.wait()

    async def get(self) -> str:
        while not self._frames:
            if self._closed:
                raise PeerGone
            await self._changed.wait()
        text = self._frames.popleft()
        self._size -= len(text)
        self._wake()
        return text

    def close(self) -> None:
        self._closed = True
        self._frames.clear()
        self._wake()

    def _wake(self) -> None:
        """Let all waiting tasks check again."""
        self._changed.set()
        self._changed = asyncio.Event()


class Peer:
    def __init__(self, outbox_bytes: int = OUTBOX_BYTES) -> None:
        self.id = str(uuid4())
        self.token = secrets.token_urlsafe(24)
        self.about: dict[str, Any] = {}
        self.outbox = Outbox(outbox_bytes)
        self.closing: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.functions: dict[str, RegisterFunction] = {}
        self.asked: dict[str, None] = {}
        """Its unanswered calls to other clients, oldest first."""
        self.bindings: dict[str, Binding] = {}
        """Its own bindings, by the id it gave them."""
        self.hosted: dict[str, Binding] = {}
        """Bindings of other clients to the trigger types it provides, by the id given to it."""
        self.slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._warned: set[str] = set()

    @property
    def name(self) -> str:
        name = self.about.get("name")
        return name if isinstance(name, str) and name else self.id

    def push(self, text: str) -> None:
        """Send a frame that must not be lost, without waiting. A client whose outbox is full is disconnected."""
        if not self.outbox.offer(text):
            self.close(1013, "too slow: too much is waiting to be read")

    def close(self, code: int, reason: str) -> None:
        if not self.closing.done():
            self.closing.set_result((code, reason))

    def warn_once(self, about: str, message: str) -> None:
        """Log a warning about this client once."""
        if about not in self._warned and len(self._warned) < 100:
            self._warned.add(about)
            logger.warning("iii client %s: %s", self.name[:80], message)


LocalFunction = Callable[[Peer | None, Any], Awaitable[Any]]
"""`await function(caller, data)`. A LiveError goes to the caller; any other error is a defect of this server."""


class Pending(Struct, frozen=True, eq=False):
    """A call that was forwarded to another client."""

    caller: Peer
    invocation_id: str
    function_id: str
    callee: Peer


class Calls:
    def __init__(self) -> None:
        self.local: dict[str, LocalFunction] = {}
        # Two clients may offer the same function (a second copy of an app, or a reconnect that overtook the end of
        # the old connection): the newest answers, and an older one when the newest is gone.
        self._owners: dict[str, dict[Peer, None]] = {}
        self._pending: dict[str, Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def register(self, peer: Peer, frame: RegisterFunction) -> None:
        if frame.id in self.local:
            # The SDKs report this code and continue without the one function.
            peer.push(
                write_frame(
                    "registrationrejected",
                    code="FUNCTION_NAMESPACE_CONFLICT",
                    namespace="default",
                    function_id=frame.id,
                    owner_worker_id="backstory",
                )
            )
        elif given(frame.invocation) is not None:
            peer.warn_once(f"http {frame.id}", f"{frame.id}: functions invoked over HTTP are not supported here")
        elif len(peer.functions) >= MAX_FUNCTIONS:
            peer.warn_once("functions", f"more than {MAX_FUNCTIONS} functions; {frame.id} was not registered")
        else:
            peer.functions[frame.id] = frame
            owners = self._owners.setdefault(frame.id, {})
            owners.pop(peer, None)
            owners[peer] = None

    def unregister(self, peer: Peer, function_id: str) -> None:
        if peer.functions.pop(function_id, None) is None:
            return
        owners = self._owners[function_id]
        del owners[peer]
        if not owners:
            del self._owners[function_id]

    def registered(self) -> Iterator[tuple[Peer, RegisterFunction]]:
        for function_id, owners in self._owners.items():
            owner = next(reversed(owners))
            yield owner, owner.functions[function_id]

    async def invoke(self, peer: Peer, frame: InvokeFunction) -> None:
        """Start one call. Returns before it is answered."""
        if frame.action is not None and frame.action.type != "void":
            self._refuse(peer, frame, "enqueue_error", f"no provider for action {frame.action.type!r} here")
        elif function := self.local.get(frame.function_id):
            # Reading from this client stops while it has too many running calls: that is its backpressure.
            await peer.slots.acquire()
            self._spawn(self._answer(peer, frame, function))
        elif callee := self._owner(frame.function_id):
            self._pass_on(peer, frame, callee)
        else:
            self._refuse(peer, frame, "function_not_found", f"Function '{frame.function_id}' not found")

    def result(self, peer: Peer, frame: InvocationResult) -> None:
        pending = self._pending.get(frame.invocation_id)
        if pending is None or pending.callee is not peer:
            return  # the caller is gone, or another client was called
        self._settle(frame.invocation_id)
        error = given(frame.error)
        self._reply(pending, None if error else frame.result, error, frame.traceparent, frame.baggage)

    async def notify(self, function_id: str, data: Any, binder: Peer, metadata: Raw | None = None) -> None:
        """Call a function for an event, without an answer. Returns when the outbox of the client has taken it."""
        if function := self.local.get(function_id):
            outcome = await self._run(function, None, function_id, data)
            if "error" in outcome:
                binder.warn_once(f"event {function_id}", f"an event for {function_id}: {outcome['error']['message']}")
            return
        # The binder's own function first: two copies of an app each get their own events.
        callee = binder if function_id in binder.functions else self._owner(function_id)
        if callee is None:
            binder.warn_once(f"no {function_id}", f"an event for {function_id}, which no client has registered")
            return
        text = write_frame("invokefunction", function_id=function_id, data=data, metadata=metadata)
        await callee.outbox.put(text, EVENT_BYTES)

    def drop(self, peer: Peer) -> None:
        """The client is gone: remove its functions and end the calls that wait for it."""
        for function_id in list(peer.functions):
            self.unregister(peer, function_id)
        for forwarded_id in list(peer.asked):
            self._settle(forwarded_id)
        for forwarded_id, pending in list(self._pending.items()):
            if pending.callee is peer:
                self._give_up(forwarded_id, f"the worker of '{pending.function_id}' disconnected")

    def _owner(self, function_id: str) -> Peer | None:
        owners = self._owners.get(function_id)
        return next(reversed(owners)) if owners else None

    def _pass_on(self, peer: Peer, frame: InvokeFunction, callee: Peer) -> None:
        # A new id: two callers may choose the same one.
        forwarded_id = str(uuid4()) if frame.wants_reply else None
        text = write_frame(
            "invokefunction",
            invocation_id=forwarded_id,
            function_id=frame.function_id,
            data=frame.data,
            metadata=given(frame.metadata),
            traceparent=frame.traceparent,
            baggage=frame.baggage,
        )
        if not callee.outbox.offer(text):
            self._refuse(peer, frame, "invocation_failed", f"the worker of '{frame.function_id}' does not keep up")
        elif forwarded_id is not None and frame.invocation_id is not None:
            self._pending[forwarded_id] = Pending(peer, frame.invocation_id, frame.function_id, callee)
            peer.asked[forwarded_id] = None
            if len(peer.asked) > MAX_PENDING:
                self._give_up(next(iter(peer.asked)), "no answer, and too many calls were made since")

    def _settle(self, forwarded_id: str) -> Pending:
        pending = self._pending.pop(forwarded_id)
        del pending.caller.asked[forwarded_id]
        return pending

    def _give_up(self, forwarded_id: str, why: str) -> None:
        self._reply(self._settle(forwarded_id), None, error_body("invocation_stopped", why))

    async def _answer(self, peer: Peer, frame: InvokeFunction, function: LocalFunction) -> None:
        try:
            fields = await self._run(function, peer, frame.function_id, frame.data)
            if frame.wants_reply:
                ids = (frame.invocation_id, frame.function_id)
                text = _result_frame(*ids, traceparent=frame.traceparent, **fields)
                if not fits(text):
                    why = "session/storage: the answer is too long to be sent; ask for less, or for pages"
                    text = _result_frame(*ids, error=error_body("invocation_failed", why))
                await peer.outbox.put(text)
        except PeerGone:
            pass  # there is no caller any more
        finally:
            peer.slots.release()

    async def _run(self, function: LocalFunction, caller: Peer | None, function_id: str, data: Any) -> dict[str, Any]:
        """The `result` or `error` field for a local function."""
        try:
            if isinstance(data, Raw):
                data = msgspec.json.decode(data)
            return {"result": await function(caller, data)}
        except LiveError as error:
            return {"error": error_body("invocation_failed", str(error))}
        except (msgspec.DecodeError, RecursionError) as error:
            return {"error": error_body("invocation_failed", f"session/invalid_request: data: {error}")}
        except Exception:
            logger.exception("%s failed", function_id)
            return {"error": error_body("invocation_failed", f"{function_id}: internal error, see the server's log")}

    def _refuse(self, peer: Peer, frame: InvokeFunction, code: str, message: str) -> None:
        if frame.wants_reply:
            peer.push(_result_frame(frame.invocation_id, frame.function_id, error=error_body(code, message)))
        else:
            peer.warn_once(f"{code} {frame.function_id}", message)

    def _reply(
        self, pending: Pending, result: Any, error: Any, traceparent: str | None = None, baggage: str | None = None
    ) -> None:
        pending.caller.push(
            _result_frame(pending.invocation_id, pending.function_id, result, error, traceparent, baggage)
        )

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _result_frame(
    invocation_id: str | None,
    function_id: str,
    result: Any = None,
    error: Any = None,
    traceparent: str | None = None,
    baggage: str | None = None,
) -> str:
    # A result that is null is still a result: it is written, where an absent error is not.
    outcome = {"error": error} if error is not None else {"result": Raw(b"null") if result is None else result}
    return write_frame(
        "invocationresult",
        invocation_id=invocation_id,
        function_id=function_id,
        traceparent=traceparent,
        baggage=baggage,
        **outcome,
    )

"""Functions and calls: whose function is called, and who waits for the answer.

Functions of this process ("local") answer here; a function a client registered is called at that client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from ....toolsets.live import LiveError
from .frames import InvocationResult, InvokeFunction, RegisterFunction, error_body, fits, given, write_frame
from .peer import EVENT_BYTES, Peer, PeerGone

__all__ = ["Calls", "LocalFunction"]

logger = logging.getLogger(__name__)

MAX_FUNCTIONS = 10_000
MAX_PENDING = 10_000

LocalFunction = Callable[[Peer | None, Any], Awaitable[Any]]
"""`await function(caller, data)`; a LiveError is the caller's to read, anything else is our fault."""


class Pending(Struct, frozen=True, eq=False):
    """A call that was passed on: who asked, under which id, and who has to answer."""

    caller: Peer
    invocation_id: str
    function_id: str
    callee: Peer


class Calls:
    def __init__(self) -> None:
        self.local: dict[str, LocalFunction] = {}
        # Two clients may offer the same function (a second copy of an app, or a reconnect that overtook the end of
        # the old connection): the newest answers, and an older one again when it is gone.
        self._owners: dict[str, dict[Peer, None]] = {}
        self._pending: dict[str, Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def register(self, peer: Peer, frame: RegisterFunction) -> None:
        if frame.id in self.local:
            # The SDKs report this code and carry on without the one function.
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
        """Take one call. Returns when it is on its way, not when it is answered."""
        if frame.action is not None and frame.action.type != "void":
            self._refuse(peer, frame, "enqueue_error", f"no provider for action {frame.action.type!r} here")
        elif function := self.local.get(frame.function_id):
            # Reading stops while this client has too much under way: that is all the backpressure it needs.
            await peer.slots.acquire()
            self._spawn(self._answer(peer, frame, function))
        elif callee := self._owner(frame.function_id):
            self._pass_on(peer, frame, callee)
        else:
            self._refuse(peer, frame, "function_not_found", f"Function '{frame.function_id}' not found")

    def result(self, peer: Peer, frame: InvocationResult) -> None:
        pending = self._pending.get(frame.invocation_id)
        if pending is None or pending.callee is not peer:
            return  # the caller is gone, or this was not asked of this client
        self._settle(frame.invocation_id)
        error = given(frame.error)
        self._reply(pending, None if error else frame.result, error, frame.traceparent, frame.baggage)

    async def notify(self, function_id: str, data: Any, binder: Peer, metadata: Raw | None = None) -> None:
        """Call a function for an event: no answer is expected. Returns when the client's connection has taken it."""
        if function := self.local.get(function_id):
            outcome = await self._run(function, None, function_id, data)
            if "error" in outcome:
                binder.warn_once(f"event {function_id}", f"an event for {function_id}: {outcome['error']['message']}")
            return
        # The binder's own function first: two copies of an app each get their own events.
        callee = binder if function_id in binder.functions else self._owner(function_id)
        if callee is None:
            binder.warn_once(f"no {function_id}", f"an event for {function_id}, which nobody has registered")
            return
        text = write_frame("invokefunction", function_id=function_id, data=data, metadata=metadata)
        await callee.outbox.put(text, EVENT_BYTES)

    def drop(self, peer: Peer) -> None:
        """The client is gone: so are its functions, and nobody waits for its answers any longer."""
        for function_id in list(peer.functions):
            self.unregister(peer, function_id)
        for forwarded_id in list(peer.asked):
            self._settle(forwarded_id)
        for forwarded_id, pending in list(self._pending.items()):
            if pending.callee is peer:
                self._give_up(forwarded_id, f"the worker of '{pending.function_id}' went away")

    def _owner(self, function_id: str) -> Peer | None:
        owners = self._owners.get(function_id)
        return next(reversed(owners)) if owners else None

    def _pass_on(self, peer: Peer, frame: InvokeFunction, callee: Peer) -> None:
        # An id of our own: callers choose theirs freely and may choose the same.
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
            pass  # nobody is left to be told
        finally:
            peer.slots.release()

    async def _run(self, function: LocalFunction, caller: Peer | None, function_id: str, data: Any) -> dict[str, Any]:
        """`result` or `error` of a local function."""
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

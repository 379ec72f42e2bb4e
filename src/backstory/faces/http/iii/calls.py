"""The functions of clients, their calls, and their triggers.

A local function is answered by this process; a function that a client registered is called at that client. A binding to
a trigger type without a provider is parked. It becomes active when the provider connects, or reconnects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from ....toolsets.live import Live, LiveError
from .peers import (
    EVENT_BYTES,
    Binding,
    InvocationResult,
    InvokeFunction,
    Peer,
    PeerGone,
    RegisterFunction,
    RegisterTrigger,
    RegisterTriggerType,
    TriggerRegistrationResult,
    error_body,
    fits,
    given,
    write_frame,
)

logger = logging.getLogger(__name__)
LocalFunction = Callable[[Peer | None, Any], Awaitable[Any]]
"""`await function(caller, data)`. A LiveError goes to the caller; any other error is a defect of this server."""

MAX_FUNCTIONS = 10_000
MAX_PENDING = 10_000
MAX_BINDINGS = 10_000
# An SDK that gets a binding right after it registered a trigger type may not have stored its handler yet, and then does
# not answer. So the binding is sent again.
REMINDERS = (1.0, 5.0)


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


# Triggers


class Triggers:
    def __init__(self, live: Live, calls: Calls) -> None:
        self._live = live
        self._calls = calls
        self._local = {kind.id for kind in live.trigger_types()}
        self._checking: set[asyncio.Task[None]] = set()
        self._providers: dict[str, tuple[Peer, RegisterTriggerType]] = {}

    def register_type(self, peer: Peer, frame: RegisterTriggerType, peers: list[Peer]) -> None:
        if frame.id in self._local:
            peer.warn_once(f"type {frame.id}", f"the trigger type {frame.id} is provided by this server")
            return
        self._providers[frame.id] = (peer, frame)
        # The newest provider takes over all parked bindings and those of an older one.
        for binding in [b for p in peers for b in p.bindings.values() if b.frame.trigger_type == frame.id]:
            self._withdraw(binding)
            self._activate(binding, peer)

    def unregister_type(self, peer: Peer, trigger_type: str) -> None:
        provider = self._providers.get(trigger_type)
        if provider is None or provider[0] is not peer:
            return
        del self._providers[trigger_type]
        for hosted_id, binding in list(peer.hosted.items()):
            if binding.frame.trigger_type == trigger_type:
                del peer.hosted[hosted_id]
                binding.provider = None

    def types(self) -> list[tuple[Peer, RegisterTriggerType]]:
        return list(self._providers.values())

    def bind(self, peer: Peer, frame: RegisterTrigger) -> None:
        self.unbind(peer, frame.id)
        binding = Binding(peer, frame)
        if len(peer.bindings) >= MAX_BINDINGS:
            self._tell(binding, error_body("trigger_registration_failed", f"more than {MAX_BINDINGS} triggers"))
            return
        peer.bindings[frame.id] = binding
        if frame.trigger_type in self._local:
            self._bind_here(binding)
        elif provider := self._providers.get(frame.trigger_type):
            self._activate(binding, provider[0])

    def unbind(self, peer: Peer, binding_id: str) -> None:
        if binding := peer.bindings.pop(binding_id, None):
            self._withdraw(binding)

    def result(self, provider: Peer, frame: TriggerRegistrationResult) -> None:
        """A provider accepted or refused a binding."""
        binding = provider.hosted.get(frame.id)
        if binding is None:
            return
        binding.answered = True
        error = given(frame.error)
        if error is not None:
            del provider.hosted[frame.id]
            binding.peer.bindings.pop(binding.frame.id, None)
        self._tell(binding, error)

    def drop(self, peer: Peer) -> None:
        """The client is gone: end its bindings and park those to its types."""
        for binding_id in list(peer.bindings):
            self.unbind(peer, binding_id)
        for trigger_type in [kind for kind, (provider, _) in self._providers.items() if provider is peer]:
            self.unregister_type(peer, trigger_type)

    def _bind_here(self, binding: Binding) -> None:
        peer, frame = binding.peer, binding.frame

        async def deliver(payload: dict[str, Any], seq: int) -> None:
            await self._calls.notify(frame.function_id, payload, peer, given(frame.metadata))

        def bind(config: Any) -> None:
            binding.unbind = self._live.bind(f"{peer.id}/{frame.id}", frame.trigger_type, config, deliver)
            self._tell(binding, None)

        async def bind_from(after: int, config: Any) -> None:
            try:
                await self._live.ensure_kept(after)
                if peer.bindings.get(frame.id) is binding:  # else it was withdrawn meanwhile
                    bind(config)
            except LiveError as error:
                self._reject(binding, error)

        try:
            config = msgspec.json.decode(frame.config)
            after = config.get("after") if isinstance(config, dict) else None
            if isinstance(after, int):
                self._checking.add(task := asyncio.create_task(bind_from(after, config)))
                task.add_done_callback(self._checking.discard)
            else:
                bind(config)
        except (LiveError, msgspec.DecodeError, RecursionError) as error:
            self._reject(binding, error)

    def _reject(self, binding: Binding, error: Exception) -> None:
        binding.peer.bindings.pop(binding.frame.id, None)
        self._tell(binding, error_body("trigger_registration_failed", str(error)))

    def _activate(self, binding: Binding, provider: Peer) -> None:
        """Ask the provider; its answer comes as `triggerregistrationresult`."""
        frame = binding.frame
        taken = frame.id in provider.hosted
        binding.hosted_id = f"{frame.id}@{binding.peer.id}" if taken else frame.id
        binding.provider, binding.answered = provider, False
        provider.hosted[binding.hosted_id] = binding
        self._ask(binding, provider, REMINDERS)

    def _ask(self, binding: Binding, provider: Peer, reminders: tuple[float, ...]) -> None:
        if binding.answered or provider.hosted.get(binding.hosted_id) is not binding:
            return
        provider.push(_trigger_frame("registertrigger", binding))
        if reminders:
            loop = asyncio.get_running_loop()
            loop.call_later(reminders[0], self._ask, binding, provider, reminders[1:])

    def _withdraw(self, binding: Binding) -> None:
        if binding.unbind is not None:
            binding.unbind()
            binding.unbind = None
        if binding.provider is not None:
            binding.provider.hosted.pop(binding.hosted_id, None)
            binding.provider.push(_trigger_frame("unregistertrigger", binding))
            binding.provider = None

    def _tell(self, binding: Binding, error: Any) -> None:
        frame = binding.frame
        binding.peer.push(
            write_frame(
                "triggerregistrationresult",
                id=frame.id,
                trigger_type=frame.trigger_type,
                function_id=frame.function_id,
                error=error,
            )
        )


def _trigger_frame(kind: str, binding: Binding) -> str:
    frame = binding.frame
    return write_frame(
        kind,
        id=binding.hosted_id,
        trigger_type=frame.trigger_type,
        function_id=frame.function_id,
        config=frame.config,
        metadata=given(frame.metadata),
    )

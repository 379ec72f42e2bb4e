"""Trigger types, their providers, and the bindings to them.

A binding to a type without a provider is parked. It becomes active when the provider connects, or reconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from ....toolsets.live import Live, LiveError
from .calls import Calls, Peer
from .frames import RegisterTrigger, RegisterTriggerType, TriggerRegistrationResult, error_body, given, write_frame

MAX_BINDINGS = 10_000
# An SDK that gets a binding right after it registered a trigger type may not have stored its handler yet, and then does
# not answer. So the binding is sent again.
REMINDERS = (1.0, 5.0)


class Binding:
    def __init__(self, peer: Peer, frame: RegisterTrigger) -> None:
        self.peer = peer
        self.frame = frame
        self.provider: Peer | None = None
        self.hosted_id = ""
        """The id the provider knows it by."""
        self.answered = False
        self.unbind: Callable[[], None] | None = None
        """Ends the binding, if this process provides the type."""


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

"""The clients of the iii WebSocket protocol, and the frames they exchange: JSON objects with a lower-case `type`.

Payloads, configs and schemas that are only forwarded stay raw JSON, so nothing of them is lost or changed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any, get_args
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from ....toolsets.live.types import MAX_FRAME_BYTES
from ...jsonrpc import top_of

NULL = Raw(b"null")
logger = logging.getLogger(__name__)

OUTBOX_BYTES = 16 * 1024 * 1024
# The store's log keeps events, too: a subscriber that does not read costs this much, not a whole outbox.
EVENT_BYTES = 1024 * 1024
CALLS_AT_ONCE = 64


class RegisterFunction(Struct, tag="registerfunction", tag_field="type"):
    id: str
    description: str | None = None
    request_format: Raw = NULL
    response_format: Raw = NULL
    metadata: Raw = NULL
    invocation: Raw = NULL


class UnregisterFunction(Struct, tag="unregisterfunction", tag_field="type"):
    id: str


class RegisterTriggerType(Struct, tag="registertriggertype", tag_field="type"):
    id: str
    description: str | None = None
    trigger_request_format: Raw = NULL
    call_request_format: Raw = NULL


class UnregisterTriggerType(Struct, tag="unregistertriggertype", tag_field="type"):
    id: str


class RegisterTrigger(Struct, tag="registertrigger", tag_field="type"):
    id: str
    trigger_type: str
    function_id: str
    config: Raw = NULL
    metadata: Raw = NULL


class UnregisterTrigger(Struct, tag="unregistertrigger", tag_field="type"):
    id: str


class TriggerRegistrationResult(Struct, tag="triggerregistrationresult", tag_field="type"):
    id: str
    error: Raw = NULL


class Action(Struct):
    type: str


class InvokeFunction(Struct, tag="invokefunction", tag_field="type"):
    function_id: str
    data: Raw = NULL
    invocation_id: str | None = None
    action: Action | None = None
    metadata: Raw = NULL
    traceparent: str | None = None
    baggage: str | None = None

    @property
    def wants_reply(self) -> bool:
        return self.invocation_id is not None and not (self.action and self.action.type == "void")


class InvocationResult(Struct, tag="invocationresult", tag_field="type"):
    invocation_id: str
    result: Raw = NULL
    error: Raw = NULL
    traceparent: str | None = None
    baggage: str | None = None


class Ping(Struct, tag="ping", tag_field="type"):
    pass


class Pong(Struct, tag="pong", tag_field="type"):
    pass


class Reattach(Struct, tag="reattach", tag_field="type"):
    previous_worker_id: str
    reattach_token: str | None = None


Frame = (
    RegisterFunction
    | UnregisterFunction
    | RegisterTriggerType
    | UnregisterTriggerType
    | RegisterTrigger
    | UnregisterTrigger
    | TriggerRegistrationResult
    | InvokeFunction
    | InvocationResult
    | Ping
    | Pong
    | Reattach
)

_KNOWN_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Frame))


class UnknownFrame(Exception):
    """A frame of an unknown type; it is ignored."""


class BadFrame(Exception):
    """A frame that cannot be read. With `invocation_id` it is a call, whose caller waits for an answer."""

    def __init__(self, message: str, invocation_id: str | None = None, function_id: str = "") -> None:
        super().__init__(message)
        self.invocation_id = invocation_id
        self.function_id = function_id


class _Head(Struct):
    type: Any = None
    invocation_id: Any = None
    function_id: Any = None


_frames: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)
_heads = msgspec.json.Decoder(_Head)
_encoder = msgspec.json.Encoder()


def read_frame(text: str) -> Frame:
    try:
        return _frames.decode(text)
    except msgspec.ValidationError as error:
        raise _refusal(text, str(error)) from None
    except RecursionError:
        raise BadFrame("session/invalid_request: nested too deeply", *_ids_of(text)) from None
    except msgspec.DecodeError as error:
        # Half a character of a text that was cut, or NaN: JavaScript writes the one, Python both.
        raise BadFrame(f"session/invalid_request: not JSON that can be read: {error}", *_ids_of(text)) from None


def _ids_of(text: str) -> tuple[str | None, str]:
    """Invocation and function id of a call that cannot be parsed."""
    top = {name: value for name, value in top_of(text).items() if isinstance(value, str)}
    is_call = top.get("type") == "invokefunction"
    return top.get("invocation_id") if is_call else None, top.get("function_id", "")


def _refusal(text: str, message: str) -> Exception:
    try:
        head = _heads.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return BadFrame(f"not a JSON object that can be read: {error}")
    if not isinstance(head.type, str):
        return BadFrame("a frame has a `type` in lower case")
    if head.type not in _KNOWN_TYPES:
        return UnknownFrame(head.type[:80])
    is_call = head.type == "invokefunction" and isinstance(head.invocation_id, str)
    return BadFrame(
        f"{head.type}: {message}",
        head.invocation_id if is_call else None,
        head.function_id if isinstance(head.function_id, str) else "",
    )


def write_frame(kind: str, **fields: Any) -> str:
    """A frame as text, without the fields that are None."""
    frame = {"type": kind} | {name: value for name, value in fields.items() if value is not None}
    return _encoder.encode(frame).decode()


def fits(text: str) -> bool:
    """True if a frame can be sent: one that is too long ends the connection of its receiver."""
    return len(text) <= MAX_FRAME_BYTES // 4 or len(text.encode()) <= MAX_FRAME_BYTES


def given(raw: Raw) -> Raw | None:
    """The value, or None where it is absent or JSON null."""
    return None if bytes(raw) == b"null" else raw


def error_body(code: str, message: str) -> dict[str, str]:
    return {"code": code, "message": message}


# Clients


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


class PeerGone(Exception):
    """The client disconnected before the frame could be sent."""


class Outbox:
    """Frames that wait to be sent, bounded by size. One frame always fits into an empty outbox."""

    def __init__(self) -> None:
        self._frames: deque[str] = deque()
        self._size = 0
        self._closed = False
        self._changed = asyncio.Event()

    def offer(self, text: str, limit: int = OUTBOX_BYTES) -> bool:
        """Take the frame if there is room for it now: if as many bytes wait then as `limit`, or less."""
        if self._closed or (self._frames and self._size + len(text) > limit):
            return False
        self._frames.append(text)
        self._size += len(text)
        self._wake()
        return True

    async def put(self, text: str, limit: int = OUTBOX_BYTES) -> None:
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
    def __init__(self) -> None:
        self.id = str(uuid4())
        self.token = secrets.token_urlsafe(24)
        self.about: dict[str, Any] = {}
        self.outbox = Outbox()
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

"""The shapes, sizes and errors of the contract: messages, entries, sessions.

JSON `null` equals an omitted field, and an omitted field is not written, with the exceptions that the contract names:
those fields have a default factory, which `omit_defaults` always writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

Code = Literal[
    "not_found",
    "entry_not_found",
    "parent_not_found",
    "invalid_entry_kind",
    "details_not_supported",
    "empty_batch",
    "invalid_cursor",
    "invalid_request",
    "storage",
]
Millis = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Unsigned = Annotated[int, Meta(ge=0)]
"""Up to `LARGEST`, which msgspec cannot check: `fits` does, in every Struct that has one."""
LARGEST = 2**64 - 1
Role = Literal["user", "assistant", "function_result", "custom"]
Status = Literal["idle", "working", "done", "error"]
Object = dict[str, Any]
MAX_FRAME_BYTES = 64 << 20
MAX_ENTRY_BYTES = 48 << 20
MAX_META_BYTES = 8 << 20
"""An event has an entry and the metadata of its session, and must fit a message."""
PAGE_BYTES = 16 << 20
T = TypeVar("T")


class LiveError(Exception):
    """A refused or failed call. Its text is the same on every wire: `session/<code>: <message>`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"session/{code}: {message}")
        self.code = code
        self.message = message


class InUse(LiveError):
    """Another process has the folder. `url` is its address, if it serves it."""

    def __init__(self, message: str, url: str) -> None:
        super().__init__("storage", message)
        self.url = url


def _null() -> None:
    return None


def fits(**numbers: int | None) -> None:
    """Refuse numbers beyond 64 bits."""
    for name, number in numbers.items():
        if number is not None and number > LARGEST:
            raise ValueError(f"{name}: Expected `int` <= {LARGEST}")


class Text(Struct, tag_field="type", tag="text"):
    text: str


class Image(Struct, tag_field="type", tag="image"):
    mime: str
    data: str


class Thinking(Struct, tag_field="type", tag="thinking", omit_defaults=True):
    text: str
    signature: str | None = None


class FunctionCall(Struct, tag_field="type", tag="function_call"):
    id: str
    function_id: str
    arguments: Any = None


class FunctionResult(Struct, tag_field="type", tag="function_result", omit_defaults=True):
    function_call_id: str
    content: list[Content]
    is_error: bool | None = None


Content = Text | Image | Thinking | FunctionCall | FunctionResult


class Usage(Struct, omit_defaults=True):
    input: Unsigned | None = None
    output: Unsigned | None = None
    cache_read: Unsigned | None = None
    cache_write: Unsigned | None = None
    reasoning: Unsigned | None = None
    cost_usd: float | None = None

    def __post_init__(self) -> None:
        fits(input=self.input, output=self.output, cache_read=self.cache_read, cache_write=self.cache_write)
        fits(reasoning=self.reasoning)


class UserMessage(Struct, tag_field="role", tag="user"):
    content: list[Content]
    timestamp: Millis


class AssistantMessage(Struct, tag_field="role", tag="assistant", omit_defaults=True, kw_only=True):
    content: list[Content]
    stop_reason: Literal["end", "length", "function_call", "aborted", "error"]
    native_stop_reason: str | None = None
    error_message: str | None = None
    error_kind: Literal["auth_expired", "rate_limited", "context_overflow", "transient", "permanent"] | None = None
    warnings: list[str] | None = None
    usage: Usage | None = None
    model: str
    provider: str
    timestamp: Millis


class FunctionResultMessage(Struct, tag_field="role", tag="function_result", kw_only=True):
    function_call_id: str
    function_id: str
    content: list[Content]
    details: Any = None
    is_error: bool | None = False
    timestamp: Millis

    def __post_init__(self) -> None:
        self.is_error = bool(self.is_error)


class CustomMessage(Struct, tag_field="role", tag="custom", omit_defaults=True, kw_only=True):
    custom_type: str
    content: list[Content]
    display: str | None = None
    details: Any = None
    timestamp: Millis


Message = UserMessage | AssistantMessage | FunctionResultMessage | CustomMessage


class CustomPayload(Struct):
    """Bookkeeping about the conversation, not part of it."""

    custom_type: str
    data: Any = None


class MessageEntry(Struct, tag_field="kind", tag="message", omit_defaults=True, kw_only=True):
    id: str
    parent_id: str | None = field(default_factory=_null)
    timestamp: Millis
    revision: Unsigned | None = field(default_factory=int)
    origin: Object | None = None
    message: Message

    def __post_init__(self) -> None:
        fits(revision=self.revision)
        self.revision = self.revision or 0


class CustomEntry(Struct, tag_field="kind", tag="custom", omit_defaults=True, kw_only=True):
    id: str
    parent_id: str | None = field(default_factory=_null)
    timestamp: Millis
    revision: Unsigned | None = field(default_factory=int)
    origin: Object | None = None
    custom_type: str
    data: Any = field(default_factory=_null)

    def __post_init__(self) -> None:
        fits(revision=self.revision)
        self.revision = self.revision or 0


Entry = MessageEntry | CustomEntry


class SessionMeta(Struct, omit_defaults=True, kw_only=True):
    session_id: str
    title: str
    description: str
    status: Status
    status_reason: str | None = None
    metadata: Object | None = None
    forked_from: str | None = None
    created_at: Millis
    updated_at: Millis
    message_count: Unsigned

    def __post_init__(self) -> None:
        fits(message_count=self.message_count)


decode_entry = msgspec.json.Decoder(Entry).decode
decode_meta = msgspec.json.Decoder(SessionMeta).decode


def check_sizes(entries: Iterable[bytes], meta: bytes) -> None:
    """Refuse entries and metas whose events would not fit a message."""
    if max(map(len, entries), default=0) > MAX_ENTRY_BYTES:
        raise LiveError("invalid_request", f"an entry may have up to {MAX_ENTRY_BYTES} bytes")
    if len(meta) > MAX_META_BYTES:
        raise LiveError("invalid_request", f"title, description and metadata may have up to {MAX_META_BYTES} bytes")


def page_of(items: Iterable[tuple[T, int]]) -> Iterator[T]:
    """The items, given with their sizes, that fit one page; at least one."""
    total = 0
    for number, (item, size) in enumerate(items):
        total += size
        if number and total > PAGE_BYTES:
            return
        yield item


def size_of(value: object) -> int:
    return len(msgspec.json.encode(value))

"""The shapes, sizes and errors of the contract (messages, entries, sessions), and the settings of the `[live]` table.

JSON `null` equals an omitted field, and an omitted field is not written, with the exceptions that the contract names:
those fields have a default factory, which `omit_defaults` always writes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from ...config import ConfigError, expand_placeholders, resolve_live_folder

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
"""Up to `LARGEST`, which msgspec cannot check: `check_numbers` does, in every Struct that has one."""
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
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]


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


class Unwritable(LiveError):
    """The folder cannot be written to."""

    def __init__(self, message: str) -> None:
        super().__init__("storage", message)


def _null() -> None:
    return None


def check_numbers(struct: Struct) -> None:
    """Refuse numbers beyond 64 bits. `data` and `details` hold any JSON value, and keep it."""
    for name in struct.__struct_fields__:
        if name not in ("data", "details") and isinstance(number := getattr(struct, name), int) and number > LARGEST:
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
        check_numbers(self)


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


class _Entry(Struct, tag_field="kind", omit_defaults=True, kw_only=True):
    id: str
    parent_id: str | None = field(default_factory=_null)
    timestamp: Millis
    revision: Unsigned | None = field(default_factory=int)
    origin: Object | None = None

    def __post_init__(self) -> None:
        check_numbers(self)
        self.revision = self.revision or 0


class MessageEntry(_Entry, tag="message", kw_only=True):
    message: Message


class CustomEntry(_Entry, tag="custom", kw_only=True):
    custom_type: str
    data: Any = field(default_factory=_null)


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
        check_numbers(self)


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


# Settings


class FsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`fs`: sessions in files of this machine."""

    data_dir: str | None = None
    """By default `live` in Backstory's home; relative to it when not absolute."""
    fsync: Literal["always", "interval", "off"] = "always"
    """An acknowledged change is synced at once, within `fsync_interval_ms`, or by the operating system."""
    fsync_interval_ms: Positive = 200
    replay_mb: Positive = 64
    """The size of the log from which events can be replayed."""


class BridgeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`bridge`: sessions kept by another instance."""

    url: str
    timeout_ms: Positive = 5000
    token: str | None = None


class _Adapter(Struct, forbid_unknown_fields=True):
    name: Literal["fs", "bridge"] = "fs"
    config: dict[str, Any] = {}


class _Table(Struct, forbid_unknown_fields=True):
    adapter: _Adapter = msgspec.field(default_factory=_Adapter)
    default_list_limit: Positive = 50
    max_list_limit: Positive = 500


class LiveSettings(Struct, frozen=True):
    adapter: FsSettings | BridgeSettings = FsSettings()
    default_list_limit: int = 50
    max_list_limit: int = 500

    def limit(self, requested: int | None) -> int:
        """The page size for a request."""
        return max(1, min(self.default_list_limit if requested is None else requested, self.max_list_limit))


def parse_settings(table: Mapping[str, Any], home: Path, environ: Mapping[str, str] = os.environ) -> LiveSettings:
    """Settings from the table as written. Raises ConfigError, which names the field."""
    try:
        read = msgspec.convert(_without_nulls(expand_placeholders(table, environ)), _Table)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"[live]: {error}") from None
    adapter: FsSettings | BridgeSettings
    try:
        if read.adapter.name == "fs":
            adapter = msgspec.convert(read.adapter.config, FsSettings)
            folder = resolve_live_folder(adapter.data_dir, home)
            adapter = msgspec.structs.replace(adapter, data_dir=str(folder))
        else:
            adapter = msgspec.convert(read.adapter.config, BridgeSettings)
            _check_url(adapter.url)
    except msgspec.ValidationError as error:
        raise ConfigError(f"[live] adapter.config of {read.adapter.name}: {error}") from None
    return LiveSettings(adapter, read.default_list_limit, read.max_list_limit)


def default_table(home: Path) -> dict[str, Any]:
    """The table with all defaults."""
    adapter = {"name": "fs", "config": {"data_dir": str(resolve_live_folder(None, home))}}
    defaults = LiveSettings()
    limits = {"default_list_limit": defaults.default_list_limit, "max_list_limit": defaults.max_list_limit}
    return {"adapter": adapter, **limits}


def configuration_schema() -> dict[str, Any]:
    """The JSON Schema of the table, with one variant for each adapter, for configuration forms."""
    table = msgspec.json.schema(_Table)["$defs"]["_Table"]["properties"]
    limits = {name: table[name] for name in ("default_list_limit", "max_list_limit")}
    variants = [_variant("fs", FsSettings), _variant("bridge", BridgeSettings)]
    adapter = {"description": "Where live sessions are kept.", "oneOf": variants}
    properties = {"adapter": adapter, **limits}
    return {"title": "Live sessions", "type": "object", "properties": properties, "additionalProperties": False}


def _variant(name: str, config: type[Struct]) -> dict[str, Any]:
    (schema,) = msgspec.json.schema(config)["$defs"].values()
    return {
        "title": name,
        "type": "object",
        "properties": {"name": {"const": name}, "config": schema},
        "required": ["name", *(["config"] if schema.get("required") else [])],
        "additionalProperties": False,
    }


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"[live] adapter.config.url: {url!r} is not a WebSocket URL like ws://127.0.0.1:7717")


def is_own_url(url: str, own: Iterable[str]) -> bool:
    """True if a URL leads to the same server as one of the others, also under another name."""
    return any(_same_place(url, other) for other in own)


def _same_place(one: str, other: str) -> bool:
    (host, port, path), (other_host, other_port, other_path) = _place(one), _place(other)
    if (port, path) != (other_port, other_path):
        return False
    return host == other_host or (_is_this_machine(host) and _is_this_machine(other_host))


def _place(url: str) -> tuple[str, int, str]:
    parts = urlsplit(url)
    default = 443 if parts.scheme in ("wss", "https") else 80
    return (parts.hostname or "").rstrip(".").lower(), parts.port or default, parts.path.rstrip("/")


def _is_this_machine(host: str) -> bool:
    """Loopback, a wildcard, or an address of this machine: one that a socket here can be bound to."""
    if host in ("localhost", "0.0.0.0", "::") or host.endswith(".localhost"):
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return any(_can_bind(family, address) for family, _, _, _, address in found)


def _can_bind(family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address[0], 0, *address[2:]))
        except OSError:
            return False
    return True

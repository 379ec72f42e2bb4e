"""The `[live]` table: the adapter and the page sizes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from ...config import ConfigError, expand_placeholders, resolve_live_folder

Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]


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

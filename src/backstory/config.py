"""Settings: where Backstory lives and how it behaves, from `config.toml` and `BACKSTORY_*` variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

__all__ = [
    "CapsuleSettings",
    "ConfigError",
    "McpSettings",
    "Settings",
    "home_folder",
    "load_settings",
    "make_private_folder",
]


class ConfigError(Exception):
    """A setting that cannot be used; the message names the setting and what it accepts."""


class CapsuleSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[capsules]`: limits and folders of the capsule store."""

    max_chars: Annotated[int, Meta(ge=1)] = 12_000
    capsule_max_chars: Annotated[int, Meta(ge=1)] | None = None
    """Another name for `max_chars`, which it overrides: the one the capsule format has for it."""
    export_folders: tuple[str, ...] = ()
    underscore_names: bool = False

    @property
    def most_chars(self) -> int:
        return self.max_chars if self.capsule_max_chars is None else self.capsule_max_chars


class McpSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[mcp]`: what MCP clients are told about the tools."""

    output_schemas: Literal["compact", "full"] = "compact"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set. The environment (BACKSTORY_<NAME>, BACKSTORY_<TABLE>_<NAME>) wins over the file."""

    sources: tuple[str, ...] | None = None
    extra_roots: dict[str, tuple[str, ...]] = {}
    redact: Literal["egress", "ingest", "off"] = "egress"
    catch_up_seconds: float = 2.0
    keep_raw: bool = True
    capsules: CapsuleSettings = CapsuleSettings()
    mcp: McpSettings = McpSettings()
    # Read by the live toolset itself, because it reloads this table while running.
    live: dict[str, Any] = {}


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """`BACKSTORY_HOME`, by default `~/.backstory`."""
    given = environ.get("BACKSTORY_HOME")
    return Path(given).expanduser().absolute() if given else Path.home() / ".backstory"


def make_private_folder(folder: Path) -> Path:
    """The folder, made if it is missing, as are those above it, readable by its owner only."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def load_settings(home: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    path = home / "config.toml"
    table: dict[str, Any] = {}
    try:
        if text := path.read_text("utf-8"):
            import tomllib  # most have no such file, and every command comes by here

            table = tomllib.loads(text)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    _apply_environment(Settings, table, environ, "BACKSTORY")
    try:
        return msgspec.convert(table, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} or BACKSTORY_* variables: {error}") from None


def _apply_environment(kind: type[Struct], table: dict[str, Any], environ: Mapping[str, str], prefix: str) -> None:
    """Lay the variables over the table, each converted to the type of its setting."""
    for field in msgspec.structs.fields(kind):
        variable = f"{prefix}_{field.name.upper()}"
        if isinstance(field.type, type) and issubclass(field.type, Struct):
            inner = table.setdefault(field.name, {})
            if isinstance(inner, dict):  # anything else is refused with the rest of the file
                _apply_environment(field.type, inner, environ, variable)
        elif variable in environ:
            table[field.name] = _from_text(field.type, environ[variable], variable)


def _from_text(kind: Any, text: str, variable: str) -> Any:
    """Text as the setting's type: JSON where it reads as such, comma-separated for lists, else the plain value."""
    for attempt in (lambda: msgspec.json.decode(text), lambda: text.split(","), lambda: text):
        try:
            return msgspec.to_builtins(msgspec.convert(attempt(), kind, strict=False))
        except (msgspec.ValidationError, msgspec.DecodeError):
            continue
    raise ConfigError(f"{variable}: {text!r} is not a valid value")

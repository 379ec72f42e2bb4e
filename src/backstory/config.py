"""Settings: the home folder of Backstory and its behaviour, from `config.toml` and `BACKSTORY_*` variables."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

LIVE_STATE = ".store"
"""The folder beside the files of live sessions that holds the state of their writer."""
HUB_FILE = "hub-id"
"""The file with the identity of a team's archive, in the home of its hub. Transcripts are not read into such a home."""
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([^}]*))?\}")


class ConfigError(Exception):
    """A setting that cannot be used; the message names the setting and what it accepts."""


class ClickHouseSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[archive.clickhouse]`: the server, for the engine `clickhouse`."""

    url: str = "http://localhost:8123/backstory"
    keep_days: Annotated[int, Meta(ge=0)] | None = None
    """The age in days at which the server deletes rows; 0 keeps everything, None what the server has set."""
    cluster: str = ""
    """The name of a cluster whose shards hold the tables; empty for a single server."""


class ArchiveSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[archive]`: the engine that keeps and finds everything."""

    engine: Literal["local", "clickhouse"] = "local"
    clickhouse: ClickHouseSettings = ClickHouseSettings()


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
    """`[mcp]`: the definitions of tools that MCP clients get."""

    output_schemas: Literal["compact", "full"] = "compact"


class TeamSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[team]`: the archive of a team, and the sessions of this machine that are shared with it."""

    url: str = ""
    """A hub: `https://host:port`. No more than one of `url` and `clickhouse` is set."""
    token: str = ""
    """The token of a member, or the file that has it."""
    token_file: str = ""
    clickhouse: str = ""
    """A ClickHouse server, used without a hub."""
    projects: tuple[str, ...] = ()
    """Patterns of projects whose sessions are shared: `github.com/acme/*`, `~/work/shop`. Without any, nothing is."""
    agents: tuple[str, ...] = ()
    """The agents whose sessions are shared; without any, all."""
    since: str = ""
    """The first day of sessions that are shared, or an RFC 3339 time."""
    user: str = ""
    """The name of the member, without a hub; by default the name of the user account."""
    machine: str = ""
    """The name of this machine; by default its host name."""
    scope: Literal["local", "team", "both"] = "local"
    """The archive that MCP clients search."""
    push_seconds: Annotated[float, Meta(ge=0.1)] = 15.0
    """The pause between two pushes in the background."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set. The environment (BACKSTORY_<NAME>, BACKSTORY_<TABLE>_<NAME>) wins over the file."""

    sources: tuple[str, ...] | None = None
    extra_roots: dict[str, tuple[str, ...]] = {}
    redact: Literal["egress", "ingest", "off"] = "egress"
    catch_up_seconds: Annotated[float, Meta(ge=0)] = 2.0
    archive: ArchiveSettings = ArchiveSettings()
    keep_raw: bool = True
    capsules: CapsuleSettings = CapsuleSettings()
    mcp: McpSettings = McpSettings()
    team: TeamSettings = TeamSettings()
    # Read by the live toolset itself, because it reloads this table while running.
    live: dict[str, Any] = {}


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """`BACKSTORY_HOME`, by default `~/.backstory`."""
    given = environ.get("BACKSTORY_HOME")
    home = Path(given).expanduser().absolute() if given else user_home() / ".backstory"
    try:
        str(home).encode()
    except UnicodeEncodeError:  # the index takes no other paths
        shown = os.fsencode(home).decode("utf-8", "replace")
        raise ConfigError(f"{shown} is not UTF-8: set BACKSTORY_HOME to another folder") from None
    return home


def user_home() -> Path:
    """The home folder of the user, where agents keep their own."""
    try:
        return Path.home().absolute()
    except RuntimeError:  # no HOME, and an account without an entry, as in many containers
        raise ConfigError("the home folder of this user is not known: set HOME") from None


def expand_home(path: str, home: Path) -> Path:
    """The path with `home` for a `~` at its beginning. A `~name` of no account stays as it is."""
    parts = Path(path).parts
    if parts[:1] == ("~",):
        return home.joinpath(*parts[1:])
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def make_private_folder(folder: Path) -> Path:
    """The folder, made if it is missing, as are those above it, readable by its owner only."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(folder)) from None
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
    for field in _fields(kind):
        variable = f"{prefix}_{field.name.upper()}"
        if isinstance(field.type, type) and issubclass(field.type, Struct):
            inner = table.setdefault(field.name, {})
            if isinstance(inner, dict):  # anything else is refused with the rest of the file
                _apply_environment(field.type, inner, environ, variable)
        elif variable in environ:
            table[field.name] = _from_text(field.type, environ[variable], variable)


# It evaluates every annotation, and the settings are read more than once.
_fields = cache(msgspec.structs.fields)


def _from_text(kind: Any, text: str, variable: str) -> Any:
    """Text as the setting's type: JSON where it reads as such, comma-separated for lists, else the plain value."""
    for attempt in (lambda: msgspec.json.decode(text), lambda: text.split(","), lambda: text):
        try:
            return msgspec.to_builtins(msgspec.convert(attempt(), kind, strict=False))
        except (msgspec.ValidationError, msgspec.DecodeError):
            continue
    raise ConfigError(f"{variable}: {text!r} is not a valid value")


def configured_live_folder(user_home: Path, environ: Mapping[str, str]) -> Path | None:
    """The folder of live sessions that the settings of a user name; None when another instance keeps them."""
    home = home_folder({"BACKSTORY_HOME": str(user_home / ".backstory"), **environ})
    try:
        return live_folder(load_settings(home, environ).live, home, environ)
    except ConfigError:
        return resolve_live_folder(None, home)


def live_folder(table: Mapping[str, Any], home: Path, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of live sessions that a `[live]` table names; None when another instance keeps them."""
    adapter = expand_placeholders(table, environ).get("adapter") or {}
    if not isinstance(adapter, Mapping) or adapter.get("name", "fs") != "fs":
        return None
    config = adapter.get("config") or {}
    given = config.get("data_dir") if isinstance(config, Mapping) else None
    return resolve_live_folder(given if isinstance(given, str) else None, home)


def resolve_live_folder(given: str | None, home: Path) -> Path:
    """A configured folder, relative to Backstory's home; by default `live` in it."""
    return home / Path(given).expanduser() if given else home / "live"


def expand_placeholders(value: Any, environ: Mapping[str, str] = os.environ) -> Any:
    """Replace `${NAME}` and `${NAME:default}` in every string of a configuration.

    A string that consists of one placeholder becomes a number or a boolean if its text reads as one (`${LIMIT:50}`).
    """
    if isinstance(value, Mapping):
        return {key: expand_placeholders(inner, environ) for key, inner in value.items()}
    if isinstance(value, list):
        return [expand_placeholders(inner, environ) for inner in value]
    if not isinstance(value, str):
        return value
    text = _PLACEHOLDER.sub(lambda match: _variable(match, environ), value)
    return _retyped(text) if _PLACEHOLDER.fullmatch(value) else text


def _variable(match: re.Match[str], environ: Mapping[str, str]) -> str:
    name, default = match.groups()
    found = environ.get(name, default)
    if found is None:
        raise ConfigError(f"{match[0]}: {name} is not set; set it or write ${{{name}:default}}")
    return found


def _retyped(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    return value if value is None or isinstance(value, bool | int | float) else text

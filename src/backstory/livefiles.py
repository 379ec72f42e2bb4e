"""Where live sessions are kept and what their files are called: what the writer and the reader of them share."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from .config import ConfigError, home_folder, load_settings

__all__ = [
    "STATE_FOLDER",
    "SUFFIX",
    "configured_folder",
    "data_folder",
    "expand_placeholders",
    "file_name",
    "resolve_folder",
    "session_of",
]

SUFFIX = ".jsonl"
STATE_FOLDER = ".store"
"""Beside the session files: what the writer alone needs."""
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([^}]*))?\}")
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_ENCODED = [chr(byte) if _PLAIN.match(chr(byte)) else f"%{byte:02X}" for byte in range(256)]


def file_name(session_id: str) -> str:
    """`[A-Za-z0-9._-]` as it is, every other byte of the id as `%XX`: no id leaves the folder."""
    if _PLAIN.fullmatch(session_id):
        return session_id + SUFFIX
    return "".join(_ENCODED[byte] for byte in session_id.encode()) + SUFFIX


def session_of(name: str) -> str | None:
    """The session id behind a file name; None for a name that no id is written as."""
    stem = name.removesuffix(SUFFIX)
    if stem == name or not stem:
        return None
    if _PLAIN.fullmatch(stem):
        return stem
    try:
        session_id = unquote_to_bytes(stem).decode()
        return session_id if file_name(session_id) == name else None
    except UnicodeError:
        return None


def configured_folder(home: Path, environ: Mapping[str, str]) -> Path | None:
    """The folder of session files for the user with this home; None when they are kept by another instance."""
    folder = home_folder({"BACKSTORY_HOME": str(home / ".backstory"), **environ})
    try:
        return data_folder(load_settings(folder, environ).live, folder, environ)
    except ConfigError:
        return resolve_folder(None, folder)


def data_folder(table: Mapping[str, Any], home: Path, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of session files that the `[live]` table names; None when they are kept by another instance."""
    adapter = expand_placeholders(table, environ).get("adapter") or {}
    if not isinstance(adapter, Mapping) or adapter.get("name", "fs") != "fs":
        return None
    config = adapter.get("config") or {}
    given = config.get("data_dir") if isinstance(config, Mapping) else None
    return resolve_folder(given if isinstance(given, str) else None, home)


def resolve_folder(given: str | None, home: Path) -> Path:
    """A configured folder, relative to Backstory's home; by default `live` in it."""
    return home / Path(given).expanduser() if given else home / "live"


def expand_placeholders(value: Any, environ: Mapping[str, str] = os.environ) -> Any:
    """`${NAME}` and `${NAME:default}` in every string of a configuration.

    A string that is nothing but one placeholder takes the type its text reads as (`${LIMIT:50}` is a number).
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

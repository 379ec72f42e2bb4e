"""Typed reading of fields: a value of another type than the expected one counts as missing."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

Payload = dict[str, Any]

_MOST_URL_CHARS = 300
_SCP_LIKE = re.compile(r"(?:[^@/]*@)?([^:/@]+):(?!//)(.+)")
_ADDRESS = re.compile(r"[\w.-]+(?:/(?!\.+(?:/|$))[\w.~+-]+)+")


def text_of(payload: Any, key: str, *others: str) -> str | None:
    """The first of the fields that is a non-empty string."""
    if not isinstance(payload, dict):
        return None
    if (value := payload.get(key)) and isinstance(value, str):
        return value
    for key in others:
        value = payload.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def mapping_of(payload: Any, *path: str) -> Payload:
    """The mapping at the end of a path; an empty one if the path leads nowhere."""
    for key in path:
        payload = payload.get(key) if isinstance(payload, dict) else None
    return payload if isinstance(payload, dict) else {}


def list_of(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def mappings_of(value: Any) -> list[Payload]:
    """The mappings in a list. Another entry becomes an empty mapping, so that the others keep their positions."""
    return [mapping_of(entry) for entry in list_of(value)]


def only_mappings(value: Any) -> list[Payload]:
    """The mappings in a list, without its other entries."""
    return [entry for entry in list_of(value) if isinstance(entry, dict)]


def integer(value: Any) -> int | None:
    """The value if it is an integer below 2**53, which is what JSON can carry exactly; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53 else None


def local_path(place: str) -> str:
    """A path, which newer versions write as a `file:` URL."""
    if not place.startswith("file://"):
        return place
    try:
        return unquote(urlsplit(place).path) or place
    except ValueError:
        return place


def remote_address(url: object) -> str | None:
    """The address of a remote without protocol, port, user and password, in lower case: `github.com/acme/demo`. None
    for a folder, and for what is no URL."""
    if not isinstance(url, str) or len(url) > _MOST_URL_CHARS:
        return None
    url = url.strip()
    scp_like = _SCP_LIKE.fullmatch(url)
    if "://" in url:
        try:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return None
    elif scp_like and len(scp_like[1]) > 1:  # not `C:\folder`
        host, path = scp_like[1], scp_like[2]
    else:
        return None
    path = path.strip("/").removesuffix(".git").rstrip("/")
    address = f"{host}/{path}".lower()
    return address if host and _ADDRESS.fullmatch(address) else None


def arguments_of(value: Any) -> Any:
    """The arguments of a tool call: a mapping, also when it was written as JSON in a string; else the value itself."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            decoded = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return value
        return decoded if isinstance(decoded, dict) else value
    return value

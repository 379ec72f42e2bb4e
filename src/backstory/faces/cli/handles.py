"""Short handles for sessions: the first characters of the agent's own session id, as people copy them.

`6f0c1a2b` is a session, `6f0c1a2b:3` its third turn, `codex/6f0c1a2b` says whose. The tools know full ids only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ...archive.base import SessionsRequest
from ...model import InvalidId, SessionRef, TurnRef, parse_id, session_id, turn_id

if TYPE_CHECKING:
    from ...archive.base import Archive

__all__ = ["find_id", "handle"]

_HANDLE = re.compile(r"(?:(?P<source>[a-z][a-z0-9-]*)/)?(?P<native>[\w./@+-]{3,200}?)(?::(?P<turn>[1-9]\d{0,6}))?")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_ALL_TIME = 1 << 53
_MANY = 1 << 20


def handle(full_id: str) -> str:
    """A short form of a session's or turn's id that `find_id` takes back; other ids are short enough as they are."""
    ref = parse_id(full_id)
    if isinstance(ref, SessionRef):
        return _shorten(ref.key)
    if isinstance(ref, TurnRef):
        return f"{_shorten(ref.key)}:{ref.ordinal}"
    return full_id


def find_id(archive: Archive, text: str) -> str:
    """The full id a person meant; what is neither an id nor a known handle comes back as it is, or fails if it
    fits several sessions."""
    try:
        parse_id(text)
        return text
    except InvalidId:
        match = _HANDLE.fullmatch(text)
    if match is None:
        return text
    keys = [key for key in _keys(archive, match["source"]) if key.partition("/")[2].startswith(match["native"])]
    exact = [key for key in keys if key.partition("/")[2] == match["native"]]
    keys = exact or keys
    if len(keys) > 1:
        some = ", ".join(sorted(keys)[:5])
        raise click.ClickException(f"{match['native']!r} fits {len(keys)} sessions: {some}; use more characters")
    if not keys:
        return text
    return turn_id(keys[0], int(match["turn"])) if match["turn"] else session_id(keys[0])


def _keys(archive: Archive, source: str | None) -> list[str]:
    request = SessionsRequest(start=-_ALL_TIME, end=_ALL_TIME, limit=_MANY, source=source)
    return [session.key for session in archive.sessions(request)]


def _shorten(key: str) -> str:
    """Eight characters of a random UUID tell sessions apart; one that begins with the time needs all of the time."""
    native = key.partition("/")[2]
    uuid = _UUID.fullmatch(native)
    if uuid is None:
        return native
    return native[:13] if uuid[1] == "7" else native[:8]

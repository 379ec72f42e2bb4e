"""Handles: short ids of sessions and turns, for people to copy and type.

`6f0c1a2b` is a session (the first characters of the agent's own session id), `6f0c1a2b:3` its third turn,
`6f0c1a2b/agent-a1` the session of a subagent; `codex/6f0c1a2b` names the agent too. Tools take full ids only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..archive.base import Archive

_TURN = re.compile(r"(.+):([1-9]\d{0,6})")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


class AmbiguousHandle(ValueError):
    """A handle that several sessions have."""


def handle(full_id: str) -> str:
    """Shorten the id of a session or turn; `find_id` is the inverse. Event ids are short already."""
    from ..model import SessionRef, TurnRef, parse_id

    ref = parse_id(full_id)
    if isinstance(ref, SessionRef):
        return _shorten(ref.key)
    if isinstance(ref, TurnRef):
        return f"{_shorten(ref.key)}:{ref.ordinal}"
    return full_id


def find_id(archive: Archive, text: str) -> str:
    """Resolve an id or handle to a full id. A text that matches nothing is returned as it is; a text that matches
    several sessions is an error."""
    from ..model import InvalidId, parse_id, session_id, turn_id

    try:
        parse_id(text)
        return text
    except InvalidId:
        turn = _TURN.fullmatch(text)
    given = turn[1] if turn else text
    keys = _fitting(archive, given)
    if len(keys) > 1:
        some = ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "")
        raise AmbiguousHandle(f"{given!r} matches {len(keys)} sessions, give more of the id: {some}")
    if not keys:
        return text
    return turn_id(keys[0], int(turn[2])) if turn else session_id(keys[0])


def unknown(text: str) -> str:
    """The message for a text that matches no id."""
    return f"No session, turn or event matches {text!r}; backstory search and backstory sessions show ids"


def _fitting(archive: Archive, given: str) -> list[str]:
    """The keys of the sessions that begin with the given parts; only the one that is equal, if there is one."""
    from ..archive.base import SessionsRequest

    parts = given.split("/")
    fitting: list[str] = []
    if not all(parts):
        return fitting
    found = archive.sessions(SessionsRequest(prefix=parts[0]))
    if len(parts) > 1:
        found += archive.sessions(SessionsRequest(prefix=parts[1], source=parts[0]))
    for session in found:
        source, *native = session.key.split("/")
        if given in (session.key, "/".join(native)):
            return [session.key]
        if _fits(parts, native) or (parts[0] == source and _fits(parts[1:], native)):
            fitting.append(session.key)
    return sorted(set(fitting))


def _fits(parts: list[str], native: list[str]) -> bool:
    return len(parts) == len(native) and all(full.startswith(part) for part, full in zip(parts, native, strict=True))


def _shorten(key: str) -> str:
    return "/".join(_shorten_part(part) for part in key.split("/")[1:])


def _shorten_part(part: str) -> str:
    """Eight characters of a random UUID are enough; a UUID that begins with the time needs all of the time."""
    uuid = _UUID.fullmatch(part)
    if uuid is None:
        return part
    return part[:13] if uuid[1] == "7" else part[:8]

"""Times, sizes, paths, commands and ids as people write and read them.

The handle of a session or turn is a short id to copy and type: `6f0c1a2b` is a session (the first characters of the
agent's own session id), `6f0c1a2b:3` its third turn, `6f0c1a2b/agent-a1` the session of a subagent; `codex/6f0c1a2b`
names the agent too. Tools take full ids only.
"""

from __future__ import annotations

import os
import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..archive.base import Archive
    from ..library import Location


_RELATIVE = re.compile(r"(\d{1,6})\s*([a-z]+)(?:\s+ago)?", re.ASCII | re.IGNORECASE)
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_SECONDS = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("m", "min", "minute"), _MINUTE),
    **dict.fromkeys(("h", "hour"), _HOUR),
    **dict.fromkeys(("d", "day"), _DAY),
    **dict.fromkeys(("w", "week"), 7 * _DAY),
    **dict.fromkeys(("mo", "month"), 30 * _DAY),
    **dict.fromkeys(("y", "year"), 365 * _DAY),
}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The times that can be written as RFC 3339: from the year 1 to the year 9999.
EARLIEST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
LATEST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_TURN = re.compile(r"(.+):([1-9]\d{0,6})")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def parse_moment(text: str, *, end: bool = False, now: datetime | None = None) -> int | None:
    """Milliseconds since the epoch, or None for what is not a time.

    Days are local, not in UTC; at the `end` of a range a day counts to its last moment. A time before the year 1 or
    after the year 9999 in UTC, which cannot be written, is the first or the last one that can.
    """
    now = now or datetime.now().astimezone()
    text = text.strip()
    try:
        day = _day(text, now)
        if day is not None:
            since = _since_epoch(day, timedelta(days=1 if end else 0))
        elif relative := _RELATIVE.fullmatch(text):
            unit = relative[2].lower()
            unit = unit if unit in _SECONDS else unit.removesuffix("s")
            since = _since_epoch(now - timedelta(seconds=int(relative[1]) * _SECONDS[unit]))
        else:
            since = _since_epoch(now if text.lower() == "now" else datetime.fromisoformat(text))
    except (KeyError, ValueError, OverflowError):
        return None
    return min(max(since // timedelta(milliseconds=1), EARLIEST_MS), LATEST_MS)


def _since_epoch(moment: datetime, later: timedelta = timedelta(0)) -> timedelta:
    if moment.tzinfo is not None:
        return moment - _EPOCH + later
    try:
        # Local, with the offset of that day. `astimezone` puts a midnight that a change of clocks skips before it.
        return timedelta(seconds=(moment + later).timestamp())
    except (ValueError, OverflowError, OSError):  # no local time is known at the edges of the calendar
        return moment.replace(tzinfo=UTC) - _EPOCH + later


def _day(text: str, now: datetime) -> datetime | None:
    """Midnight at the start of the day a text names."""
    if _DATE.fullmatch(text):
        return datetime.fromisoformat(text)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return {"today": today, "yesterday": today - timedelta(days=1)}.get(text.lower())


def ago(ms: int, now_ms: int) -> str:
    """`just now`, `5 minutes ago`, `yesterday`, `3 days ago`, and the date for what is longer ago than a month."""
    seconds = (now_ms - ms) / 1000
    if seconds < -60:
        return _date(ms)
    if seconds < 60:
        return "just now"
    if seconds < _HOUR:
        return plural(int(seconds / _MINUTE), "minute") + " ago"
    if seconds < _DAY:
        return plural(int(seconds / _HOUR), "hour") + " ago"
    if seconds < 2 * _DAY:
        return "yesterday"
    if seconds < 31 * _DAY:
        return plural(int(seconds / _DAY), "day") + " ago"
    return _date(ms)


def duration(seconds: float) -> str:
    """`340 ms`, `2.1 s`, `5 minutes`, `3 hours`, `2 days`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return plural(int(seconds / _MINUTE), "minute")
    return plural(int(seconds / _HOUR), "hour") if seconds < 2 * _DAY else plural(int(seconds / _DAY), "day")


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"


def plural(count: int, noun: str) -> str:
    """`1 event`, `12,345 events`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def date_time(ms: int) -> str:
    """`2026-09-14 14:02`, in the local time zone."""
    return _local(ms).strftime("%Y-%m-%d %H:%M")


def home_path(path: str) -> str:
    """A path with `~` for the home folder."""
    home = os.path.expanduser("~")  # noqa: PTH111 - `Path.home` takes ten times as long, and a page has many paths
    return "~" + path.removeprefix(home) if path == home or path.startswith(f"{home}/") else path


def resume_command(location: Location) -> str | None:
    """The shell command that continues a session in its own agent."""
    if location.resume is None:
        return None
    command = shlex.join(location.resume)
    if location.project is None:
        return command
    folder = home_path(location.project)
    inner = folder.removeprefix("~/")
    quoted = f"~/{shlex.quote(inner)}" if inner != folder else "~" if folder == "~" else shlex.quote(folder)
    return f"cd {quoted} && {command}"


def width(text: str) -> int:
    """The number of terminal cells a text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, cells: int, *, keep_end: bool = False) -> str:
    """The text in exactly so many cells: padded, or cut with an ellipsis, at its end or (`keep_end`) at its start."""
    missing = cells - width(text)
    if missing >= 0:
        return text + " " * missing
    from rich.cells import set_cell_size

    if not keep_end:
        return set_cell_size(text, cells - 1) + "…"
    start = next((start for start in range(len(text)) if width(text[start:]) < cells), len(text))
    return fit(f"…{text[start:]}", cells)


def _date(ms: int) -> str:
    return _local(ms).strftime("%Y-%m-%d")


def _local(ms: int) -> datetime:
    return (_EPOCH + timedelta(milliseconds=ms)).astimezone()


class AmbiguousHandle(ValueError):
    """A handle that several sessions have."""


def handle(full_id: str) -> str:
    """Shorten the id of a session or turn; `find_id` is the inverse. Event ids are short already.

    An id that egress would change, because a program gave it a secret or control characters, stays as it is: encoded.
    """
    from ..egress import egress
    from ..model import SessionRef, TurnRef, parse_id

    ref = parse_id(full_id)
    if not isinstance(ref, SessionRef | TurnRef):
        return full_id
    short = _shorten(ref.key)
    if egress(short) != short:
        return full_id
    return f"{short}:{ref.ordinal}" if isinstance(ref, TurnRef) else short


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


def find_session(archive: Archive, text: str) -> str:
    """Resolve an id or handle of a session, a turn or an event to the id of the session. A text that matches nothing is
    returned as it is; a text that matches several sessions is an error."""
    from ..model import EventRef, InvalidId, parse_id, session_id

    try:
        ref = parse_id(find_id(archive, text))
    except InvalidId:
        return text
    if not isinstance(ref, EventRef):
        return session_id(ref.key)
    opened = archive.open(ref)
    return text if opened is None else session_id(opened.event.session)


def unknown(text: str) -> str:
    """The message for a text that matches no id."""
    return f"No session, turn or event matches {text!r}; backstory search and backstory sessions show ids"


def _fitting(archive: Archive, given: str) -> list[str]:
    """The keys of the sessions that begin with the given parts; only the one that is equal, if there is one."""
    from ..archive.base import SessionsRequest

    parts = given.split("/")
    fitting: list[str] = []
    # Arguments of a command that are not UTF-8 have lone surrogates, which no session has in its id.
    if not all(parts) or any("\ud800" <= char <= "\udfff" for char in given):
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

"""Times, sizes, paths and commands as people write and read them."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def parse_moment(text: str, *, end: bool = False, now: datetime | None = None) -> int | None:
    """Milliseconds since the epoch, or None for what is not a time.

    Days are local, not in UTC; at the `end` of a range a day counts to its last moment.
    """
    now = now or datetime.now().astimezone()
    text = text.strip()
    try:
        day = _day(text, now)
        if day is not None:
            moment = day + timedelta(days=1) if end else day
        elif relative := _RELATIVE.fullmatch(text):
            unit = relative[2].lower()
            unit = unit if unit in _SECONDS else unit.removesuffix("s")
            moment = now - timedelta(seconds=int(relative[1]) * _SECONDS[unit])
        else:
            moment = now if text.lower() == "now" else datetime.fromisoformat(text)
        # A time without an offset is local, with the offset of that day.
        return (moment.astimezone() - _EPOCH) // timedelta(milliseconds=1)
    except (KeyError, ValueError, OverflowError, OSError):
        return None


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
    home = str(Path.home())
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

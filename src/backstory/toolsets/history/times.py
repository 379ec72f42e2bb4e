"""Times as callers write them: RFC 3339 / ISO 8601 with an explicit offset, and nothing else."""

from __future__ import annotations

import re
from datetime import UTC, datetime

__all__ = ["parse_rfc3339"]

_FORM = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt]((?:[01]\d|2[0-3]):\d\d)(?::(\d\d)(?:[.,](\d+))?)?(?:[Zz]|([+-])([01]\d|2[0-3]):?([0-5]\d)?)",
    re.ASCII,
)
# The years 1 to 9999 in UTC: what can be written in this form again.
_FIRST_MS = -62_135_596_800_000
_END_MS = 253_402_300_800_000


def parse_rfc3339(text: str) -> int | None:
    """Milliseconds since the epoch, rounded up; None for a text that is not such a time.

    What happened is kept to the millisecond: rounded up, `>= start` and `< end` hold for the exact times too.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        return None
    date, minute, second, fraction, sign, hours, minutes = form.groups()
    leap = second == "60"
    try:
        moment = datetime.fromisoformat(f"{date}T{minute}:{'59' if leap else second or '00'}").replace(tzinfo=UTC)
    except ValueError:
        return None
    digits = (fraction or "").ljust(3, "0")
    ms = int(moment.timestamp() + leap) * 1000 + int(digits[:3]) + (digits[3:].strip("0") != "")
    if sign:
        offset = (int(hours) * 60 + int(minutes or 0)) * 60_000
        ms += offset if sign == "-" else -offset
    return ms if _FIRST_MS <= ms < _END_MS else None

"""Times as callers write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.model import parse_rfc3339, rfc3339

NOON = 1_777_464_000_000


class TestParse:
    @pytest.mark.parametrize(
        ("text", "ms"),
        [
            ("2026-04-29T12:00:00Z", NOON),
            ("2026-04-29t12:00:00z", NOON),
            ("2026-04-29T12:00Z", NOON),
            ("2026-04-29T08:00:00-04:00", NOON),
            ("2026-04-29T08:00:00-0400", NOON),
            ("2026-04-29T08:00:00-04", NOON),
            ("2026-04-29T17:45:00+05:45", NOON),
            ("2026-04-29T12:00:00-00:00", NOON),
            ("2026-04-29T12:00:00.5Z", NOON + 500),
            ("2026-04-29T12:00:00,125Z", NOON + 125),
            ("2026-04-29T12:00:00.123456789Z", NOON + 124),
            ("2026-04-29T12:00:00.123000000Z", NOON + 123),
            ("2026-04-29T11:59:59.9999Z", NOON),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
        ],
    )
    def test_accepted(self, text: str, ms: int) -> None:
        """RFC 3339 and its ISO 8601 relatives; fractions below a millisecond are rounded up."""
        assert parse_rfc3339(text) == ms

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "2026-04-29",
            "2026-04-29T12:00:00",
            "2026-04-29 12:00:00Z",
            "2026-04-29T12Z",
            "2026-04-29T24:00:00Z",
            "2026-04-29T12:60:00Z",
            "2026-04-29T12:00:61Z",
            "2026-13-29T12:00:00Z",
            "2026-02-29T12:00:00Z",
            "0000-01-01T00:00:00Z",
            "2026-04-29T12:00:00.Z",
            "2026-04-29T12:00:00+24:00",
            "2026-04-29T12:00:00+04:60",
            "2026-04-29T12:00:00+4:00",
            "2026-04-29T12:00:00ZZ",
            "2026-04-29T12:00:00Z\n",
            " 2026-04-29T12:00:00Z",
            "２026-04-29T12:00:00Z",
            "20260429T120000Z",
            "2026-W18-3T12:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "now",
            "1777464000",
        ],
    )
    def test_refused(self, text: str) -> None:
        """Whatever is not a date and time with an offset, or cannot be said in UTC."""
        assert parse_rfc3339(text) is None

    @given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
    def test_what_is_shown_can_be_read(self, ms: int) -> None:
        """Every time that is echoed means the same when it comes back."""
        assert parse_rfc3339(rfc3339(ms)) == ms

    @given(st.text(max_size=40))
    def test_any_text(self, text: str) -> None:
        """Read or refused, never a crash."""
        ms = parse_rfc3339(text)
        assert ms is None or datetime.fromtimestamp(ms / 1000, UTC)

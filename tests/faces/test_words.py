"""Times, sizes and counts as people write and read them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from backstory.faces.words import ago, duration, megabytes, parse_moment, plural

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture(autouse=True)
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class TestParseMoment:
    NOW = datetime(2026, 3, 30, 15, 0, tzinfo=UTC)

    def at(self, text: str, *, end: bool = False) -> int | None:
        return parse_moment(text, end=end, now=self.NOW.astimezone())

    def test_relative(self) -> None:
        """A number and a unit reach back from now."""
        for text, back in [
            ("90s", timedelta(seconds=90)),
            ("5m", timedelta(minutes=5)),
            ("5 minutes ago", timedelta(minutes=5)),
            ("2h", timedelta(hours=2)),
            ("3d", timedelta(days=3)),
            ("3 Days", timedelta(days=3)),
            ("1w", timedelta(weeks=1)),
            ("2mo", timedelta(days=60)),
            ("1y", timedelta(days=365)),
            ("now", timedelta()),
        ]:
            assert self.at(text) == round((self.NOW - back).timestamp() * 1000), text

    def test_rfc3339(self) -> None:
        """A time with an offset is that instant, at either end of a range."""
        for end in (False, True):
            assert self.at("2026-01-31T10:00:00.250Z", end=end) == ms("2026-01-31T10:00:00.250+00:00")
            assert self.at("2026-01-31T10:00:00-04:00", end=end) == ms("2026-01-31T14:00:00+00:00")

    def test_a_time_without_an_offset_is_local(self) -> None:
        """Nobody types offsets."""
        assert self.at("2026-01-31T10:00") == ms("2026-01-31T10:00:00+01:00")
        assert self.at("2026-07-31 10:00") == ms("2026-07-31T10:00:00+02:00")

    def test_a_date_begins_at_local_midnight(self) -> None:
        """`--since 2026-01-31` includes the whole of that day here."""
        assert self.at("2026-01-31") == ms("2026-01-31T00:00:00+01:00")

    def test_a_date_at_the_end_counts_to_its_last_moment(self) -> None:
        """`--until 2026-03-29` includes that day, which had 23 hours."""
        start, end = self.at("2026-03-29"), self.at("2026-03-29", end=True)

        assert start is not None
        assert end == start + 23 * HOUR

    def test_the_edges_of_the_calendar(self) -> None:
        """A time that cannot be written in UTC is the first or the last one that can."""
        first, last = ms("0001-01-01T00:00:00+00:00"), ms("9999-12-31T23:59:59.999+00:00")
        for text in ("0001-01-01", "0001-01-01T00:00", "0001-01-01T00:00:00+14:00"):
            assert self.at(text) == first, text
        for text in ("9999-12-31", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-12:00"):
            assert self.at(text, end=True) == last, text

    def test_a_day_without_midnight(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where clocks go forward at midnight, the day begins when the one before it ends."""
        monkeypatch.setenv("TZ", "America/Santiago")
        time.tzset()

        assert self.at("2026-09-06") == self.at("2026-09-05", end=True) == ms("2026-09-06T01:00:00-03:00")

    def test_named_days(self) -> None:
        """Today and yesterday are days of this place."""
        assert self.at("today") == ms("2026-03-30T00:00:00+02:00")
        assert self.at("Yesterday") == ms("2026-03-29T00:00:00+01:00")
        assert self.at("yesterday", end=True) == ms("2026-03-30T00:00:00+02:00")

    def test_refuses_the_rest(self) -> None:
        """Any other text is None, not a guess."""
        for text in ["", "soon", "3", "d3", "-3d", "2026-13-01", "2026-02-30", "999999y", "١d d"]:
            assert self.at(text) is None, text


class TestAgo:
    NOW = 1_775_000_000_000

    def test_near_times(self) -> None:
        """Within a month, how long ago it was."""
        for back, text in [
            (0, "just now"),
            (-30_000, "just now"),
            (59_999, "just now"),
            (60_000, "1 minute ago"),
            (59 * 60_000, "59 minutes ago"),
            (HOUR, "1 hour ago"),
            (23 * HOUR, "23 hours ago"),
            (DAY, "yesterday"),
            (2 * DAY, "2 days ago"),
            (30 * DAY, "30 days ago"),
        ]:
            assert ago(self.NOW - back, self.NOW) == text, back

    def test_far_times(self) -> None:
        """Beyond that, and for clocks gone wrong, the date."""
        assert ago(ms("2025-12-24T18:00:00+00:00"), self.NOW) == "2025-12-24"
        assert ago(ms("2031-05-01T12:00:00+00:00"), self.NOW) == "2031-05-01"


class TestDuration:
    def test_picks_a_unit(self) -> None:
        """One unit that fits the length."""
        for seconds, text in [
            (0.0124, "12 ms"),
            (2.14, "2.1 s"),
            (61, "1 minute"),
            (7300, "2 hours"),
            (260_000, "3 days"),
        ]:
            assert duration(seconds) == text, seconds


class TestMegabytes:
    def test_picks_a_unit(self) -> None:
        """Megabytes, or gigabytes from one on."""
        for count, text in [(0, "0.0 MB"), (28_240_000, "28.2 MB"), (2_345_000_000, "2.35 GB")]:
            assert megabytes(count) == text, count


class TestPlural:
    def test_agrees_with_the_count(self) -> None:
        """One is singular, the rest is not."""
        for count, text in [(0, "0 turns"), (1, "1 turn"), (12_345, "12,345 turns")]:
            assert plural(count, "turn") == text, count

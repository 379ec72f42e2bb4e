"""Hints that a question gives beside its words."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from backstory.archive.question import read_hints

# A Tuesday, in a time zone that is not UTC.
NOW = datetime(2026, 11, 17, 14, 30, tzinfo=timezone(timedelta(hours=2)))


def days(text: str) -> tuple[str, str] | None:
    """The first and the last day of the period that a question names, in the asker's time zone."""
    period = read_hints(text, NOW).period
    if period is None:
        return None
    first, end = (datetime.fromtimestamp(ms / 1000, NOW.tzinfo) for ms in period)
    return first.date().isoformat(), (end - timedelta(milliseconds=1)).date().isoformat()


class TestPeriod:
    """Words for a time become a period in the time zone of the asker."""

    @pytest.mark.parametrize(
        ("text", "first", "last"),
        [
            ("what did we change yesterday", "2026-11-16", "2026-11-16"),
            ("the day before yesterday", "2026-11-15", "2026-11-15"),
            ("errors of today", "2026-11-17", "2026-11-17"),
            ("last week in the api repo", "2026-11-09", "2026-11-15"),
            ("this week", "2026-11-16", "2026-11-22"),
            ("last month", "2026-10-01", "2026-10-31"),
            ("3 days ago", "2026-11-14", "2026-11-14"),
            ("2 weeks ago", "2026-10-30", "2026-11-07"),
            ("the last 10 days", "2026-11-07", "2026-11-17"),
            ("on Friday", "2026-11-13", "2026-11-13"),
            ("last tuesday", "2026-11-10", "2026-11-10"),
            ("gestern die Migration", "2026-11-16", "2026-11-16"),
            ("vor 3 Tagen", "2026-11-14", "2026-11-14"),
            ("letzte Woche", "2026-11-09", "2026-11-15"),
            ("la semaine dernière", "2026-11-09", "2026-11-15"),
            ("hace 2 días", "2026-11-15", "2026-11-15"),
            ("昨日のデプロイ", "2026-11-16", "2026-11-16"),
            ("上个月的错误", "2026-10-01", "2026-10-31"),
        ],
    )
    def test_named(self, text: str, first: str, last: str) -> None:
        """In English, German, French, Spanish, Japanese and Chinese."""
        assert days(text) == (first, last)

    @pytest.mark.parametrize(
        ("text", "first", "last"),
        [
            ("the outage of 2026-10-13", "2026-10-13", "2026-10-13"),
            ("what did we deploy on October 13, 2025", "2025-10-13", "2025-10-13"),
            ("the 3rd of March", "2026-03-03", "2026-03-03"),
            ("am 24. Dezember", "2025-12-24", "2025-12-24"),
            ("Oct 5", "2026-10-05", "2026-10-05"),
            ("the migration in June", "2026-06-01", "2026-06-30"),
            ("the release in December", "2025-12-01", "2025-12-31"),
            ("the audit of May 2025", "2025-05-01", "2025-05-31"),
            ("die Umstellung im Juli", "2026-07-01", "2026-07-31"),
            ("el 2 de mayo de 2026", "2026-05-02", "2026-05-02"),
            ("10月3日のデプロイ", "2026-10-03", "2026-10-03"),
        ],
    )
    def test_date(self, text: str, first: str, last: str) -> None:
        """A date, or a month; without a year the latest one that is not ahead."""
        assert days(text) == (first, last)

    @pytest.mark.parametrize(
        "text", ["this may fail", "march through the list", "a mar file", "June 31", "2026-13-45", "99月", "May"]
    )
    def test_no_date(self, text: str) -> None:
        """A word that may be a month, or a number that is no date, is a word."""
        assert days(text) is None

    @pytest.mark.parametrize("text", ["fix the parser", "lastweek", "hier ist der Fehler", "99999999999 days", ""])
    def test_not_named(self, text: str) -> None:
        assert days(text) is None

    def test_a_huge_number(self) -> None:
        """A number without sense neither fails nor leaves the calendar."""
        assert days("999999999 months ago") is not None

    def test_the_turn_of_the_year(self) -> None:
        """The month before January is the December of the year before."""
        period = read_hints("last month", NOW.replace(month=1)).period
        assert period is not None
        assert datetime.fromtimestamp(period[0] / 1000, NOW.tzinfo).date().isoformat() == "2025-12-01"

    def test_words(self) -> None:
        """The words of the phrase are named, so that they count little as words."""
        assert read_hints("the crash of last week", NOW).time_words == {"last", "week"}


class TestError:
    """A pasted error message is distinguished from a question about one."""

    @pytest.mark.parametrize(
        "text",
        [
            "TypeError: cannot read properties of undefined (reading 'id')",
            "fatal: not a git repository (or any of the parent directories): .git",
            "FAILED tests/test_total.py::test_sum - assert 3 == 4",
            "error[E0308]: mismatched types",
        ],
    )
    def test_message(self, text: str) -> None:
        assert read_hints(text, NOW).is_error

    @pytest.mark.parametrize(
        "text",
        [
            "what was the error with the build?",
            "why did the migration fail",
            "handle errors of the parser",
            "src/error.py",
        ],
    )
    def test_question(self, text: str) -> None:
        assert not read_hints(text, NOW).is_error

"""A question beyond its words: the time it names, and whether it is an error message.

Both are soft. "the flaky test of last week" prefers last week and still finds the one of the week before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache

from msgspec import Struct

_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)


class Hints(Struct, frozen=True):
    """Preferences that follow from how a question is put."""

    period: tuple[int, int] | None
    """Milliseconds since the epoch, the end excluded."""
    time_words: frozenset[str]
    """The words that name the period, in lower case: they say little about the text that is looked for."""
    is_error: bool


def read_hints(text: str, now: datetime) -> Hints:
    """The hints in a question that is asked at `now` (with its time zone)."""
    found = next(_periods(text, now), None)
    return Hints(
        period=found and (_ms(found[0]), _ms(found[1])),
        time_words=frozenset(found[2].lower().split()) if found else frozenset(),
        is_error=_is_error(text),
    )


_MIN_ERROR_WORDS = 3
_ERROR = re.compile(
    r"\b\w+(?:Error|Exception)\b|\b(?:error|fatal|panic|fail(?:ed|ure|s)?|traceback|denied|refused|cannot|undefined"
    r"|no such|not found|timed out|exit(?:ed)? (?:with )?(?:code|status)|fehler|erreur)\b",
    re.IGNORECASE,
)
_MARKS = re.compile(r"""[:=(){}\[\]<>'"`/\\]|\d""")


def _is_error(text: str) -> bool:
    """True for a message as a program prints it: a word for failure, and marks or numbers."""
    # The slowest test is the last one.
    if text.rstrip().endswith("?") or not _MARKS.search(text) or len(text.split()) < _MIN_ERROR_WORDS:
        return False
    return _ERROR.search(text) is not None


_Span = Callable[[datetime, int], tuple[datetime, datetime]]
"""From midnight of today and the number in the phrase (1 if it has none) to the beginning and the end of a period."""


def _days(first: int, last: int) -> _Span:
    """From so many days ago up to and including the other."""
    return lambda today, _: (today - first * _DAY, today - (last - 1) * _DAY)


def _weeks(back: int) -> _Span:
    def span(today: datetime, _: int) -> tuple[datetime, datetime]:
        monday = today - today.weekday() * _DAY - back * _WEEK
        return monday, monday + _WEEK

    return span


def _months(back: int) -> _Span:
    def span(today: datetime, _: int) -> tuple[datetime, datetime]:
        number = today.year * 12 + today.month - 1 - back
        first = today.replace(year=number // 12, month=number % 12 + 1, day=1)
        number += 1
        return first, today.replace(year=number // 12, month=number % 12 + 1, day=1)

    return span


def _ago(unit: int, slack: int) -> _Span:
    """ "3 days ago" means that day, "2 weeks ago" that week, give or take."""

    def span(today: datetime, count: int) -> tuple[datetime, datetime]:
        middle = today - min(count, 1000) * unit * _DAY
        return middle - slack * _DAY, middle + (slack + 1) * _DAY

    return span


def _past(unit: int) -> _Span:
    return lambda today, count: (today - min(count, 1000) * unit * _DAY, today + _DAY)


def _weekday(day: int) -> _Span:
    """The latest one before today."""

    def span(today: datetime, _: int) -> tuple[datetime, datetime]:
        first = today - ((today.weekday() - day - 1) % 7 + 1) * _DAY
        return first, first + _DAY

    return span


_WEEKDAYS = tuple(
    enumerate(
        (
            ("monday", "montag", "lundi", "lunes"),
            ("tuesday", "dienstag", "mardi", "martes"),
            ("wednesday", "mittwoch", "mercredi", "miércoles"),
            ("thursday", "donnerstag", "jeudi", "jueves"),
            ("friday", "freitag", "vendredi", "viernes"),
            ("saturday", "samstag", "samedi", "sábado"),
            ("sunday", "sonntag", "dimanche", "domingo"),
        )
    )
)
# The longer phrase first: "day before yesterday" is not yesterday.
_PHRASES: tuple[tuple[tuple[str, ...], _Span], ...] = (
    ((r"(?:the )?day before yesterday", "vorgestern", "avant-hier", "anteayer", "一昨日", "前天"), _days(2, 2)),
    (("yesterday", "last night", "gestern", "ayer", "昨日", "昨天"), _days(1, 1)),
    (("today", "this morning", "heute", "aujourd'hui", "hoy", "今日", "今天"), _days(0, 0)),
    ((r"(?:the )?last (\d+) days", r"(?:die )?letzten (\d+) tage"), _past(1)),
    ((r"(?:the )?last (\d+) weeks", r"(?:die )?letzten (\d+) wochen"), _past(7)),
    (
        (
            r"(\d+|a) days? ago",
            r"vor (\d+|einem) tag(?:en)?",
            r"il y a (\d+) jours?",
            r"hace (\d+) días?",
            r"(\d+)日前",
            r"(\d+)天前",
        ),
        _ago(1, 0),
    ),
    (
        (r"(\d+|a) weeks? ago", r"vor (\d+|einer) wochen?", r"il y a (\d+) semaines?", r"hace (\d+) semanas?"),
        _ago(7, 4),
    ),
    (
        (r"(\d+|a) months? ago", r"vor (\d+|einem) monat(?:en)?", r"il y a (\d+) mois", r"hace (\d+) mes(?:es)?"),
        _ago(30, 16),
    ),
    (
        ("last week", "(?:letzte|vorige) woche", "semaine dernière", "semana pasada", "先週", "上周", "上星期"),
        _weeks(1),
    ),
    (("this week", "diese woche", "cette semaine", "esta semana", "今週", "本周", "这周"), _weeks(0)),
    (("last month", "(?:letzten|vorigen) monat", "mois dernier", "mes pasado", "先月", "上个月"), _months(1)),
    (("this month", "diesen monat", "ce mois", "este mes", "今月", "本月", "这个月"), _months(0)),
    *(
        (tuple(f"(?:(?:on|last|am|letzten|le|el) )?{name}" for name in names), _weekday(day))
        for day, names in _WEEKDAYS
    ),
)


# English, German, French, Spanish.
_MONTHS = (
    ("january", "januar", "janvier", "enero"),
    ("february", "februar", "février", "febrero"),
    ("march", "märz", "mars", "marzo"),
    ("april", "avril", "abril"),
    ("may", "mai", "mayo"),
    ("june", "juni", "juin", "junio"),
    ("july", "juli", "juillet", "julio"),
    ("august", "août", "agosto"),
    ("september", "septembre", "septiembre"),
    ("october", "oktober", "octobre", "octubre"),
    ("november", "novembre", "noviembre"),
    ("december", "dezember", "décembre", "diciembre"),
)
_WHOLE_MONTHS = {name: number for number, names in enumerate(_MONTHS, 1) for name in names}
# A short form is a month only beside a number.
_MONTH_NUMBERS = {names[0][:3]: number for number, names in enumerate(_MONTHS, 1)} | {"sept": 9} | _WHOLE_MONTHS


@cache
def _date_patterns() -> list[re.Pattern[str]]:
    """The more exact form first."""
    month = f"(?P<month>{_either(_MONTH_NUMBERS)})"
    year, day = r"(?P<year>(?:19|20)\d\d)", r"(?P<day>\d{1,2})"
    patterns = (
        rf"\b{year}-(?P<month>\d\d)-(?P<day>\d\d)\b",
        rf"\b{day}(?:st|nd|rd|th|\.)? (?:of |de )?{month}\b(?:,? (?:de )?{year}\b)?",
        rf"\b{month}\.? {day}(?:st|nd|rd|th)?\b(?:,? {year}\b)?",
        rf"(?:{year}年)?(?P<month>\d{{1,2}})月(?:{day}日)?",
        rf"\b{month},? (?:de )?{year}\b",
        rf"\b(?:in|im|en|during|last|since|of) (?P<month>{_either(_WHOLE_MONTHS)})\b",
    )
    return [re.compile(pattern, re.IGNORECASE) for pattern in patterns]


def _either(names: Iterable[str]) -> str:
    """A pattern that matches the longest of some names."""
    return "|".join(sorted(names, key=len, reverse=True))


# Most questions have none of it, and need no pattern.
_DATE_HINT = re.compile(rf"\d-\d|月|\b(?:{_either(_MONTH_NUMBERS)})\b", re.IGNORECASE)


def _dates(text: str, now: datetime) -> Iterator[tuple[datetime, datetime, str]]:
    """The dates and months in a text. Without a year it is the latest one that is not ahead."""
    if _DATE_HINT.search(text) is None:
        return
    today = _midnight(now)
    for pattern in _date_patterns():
        for match in pattern.finditer(text):
            parts = match.groupdict()
            name = parts["month"].lower()
            month, day = _MONTH_NUMBERS.get(name) or int(name), int(parts.get("day") or 0)
            with suppress(ValueError):  # the 31st of June
                first = today.replace(year=int(parts.get("year") or today.year), month=month, day=day or 1)
                if not parts.get("year") and first > today:
                    first = first.replace(year=first.year - 1)
                yield first, first + _DAY if day else _months(-1)(first, 1)[0], match[0]


def _periods(text: str, now: datetime) -> Iterator[tuple[datetime, datetime, str]]:
    yield from _dates(text, now)
    lower = text.lower()
    named = {which for literal, which in _literals() if literal in lower}
    if not named:
        return
    today = _midnight(now)
    for phrases, span in (_PHRASES[which] for which in sorted(named)):
        if match := _pattern(phrases).search(text):
            number = next((group for group in match.groups() if group), "1")
            yield *span(today, int(number) if number.isdigit() else 1), match[0]


@cache
def _pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(_bounded, phrases)), re.IGNORECASE)


@cache
def _literals() -> list[tuple[str, int]]:
    """Texts of which one is in all that the phrases of a place in `_PHRASES` match, with that place. Most questions
    have none, and need no pattern."""
    return [(_literal(phrase), which) for which, (phrases, _) in enumerate(_PHRASES) for phrase in phrases]


def _literal(phrase: str) -> str:
    """The longest text that is in every match of a phrase: it stands outside of groups and is not optional."""
    return max(re.split(r"\([^()]*(?:\([^()]*\)[^()]*)*\)\??|.\?", phrase), key=len)


def _bounded(phrase: str) -> str:
    """Between the ends of words, in scripts that have them."""
    return rf"\b{phrase}\b" if phrase[-1].isascii() else phrase


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)

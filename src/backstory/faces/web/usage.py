"""The page of usage: tokens and cost over time, by project, model, agent and tool, and when the work was done."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from ...archive.base import SessionsRequest
from ...archive.spans import UsageTotal, Window
from ...model import rfc3339, session_id
from ...toolsets.traces.reports import Amount, ToolUse
from ..words import home_path
from . import figures, money, short_number
from .figures import DayAmount, add_by_day, add_up, grouped
from .site import Dated, Kept, Nav, Site

if TYPE_CHECKING:
    from ...library import Library

By = Literal["day", "week", "month"]
RANGES = {"7d": 7, "30d": 30, "90d": 90, "1y": 365, "all": None}
_DEFAULT_RANGE = "30d"
_CALENDAR_DAYS = 371
_SHOWN = 12
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
# Only a broken clock is before or after them, and every month of a period has its bar.
_FIRST_DAY, _LAST_DAY = date(1971, 1, 1), date(2099, 12, 31)
_MOST_BUCKETS = 1_000
_KEPT_SECONDS = 600

ToolsOf = Callable[[Window], Dated[list[ToolUse]] | None]


class Bucket(Struct, kw_only=True):
    """A day, week or month, and the same one of the period before."""

    name: str
    amount: Amount
    before: float | None = None
    """The cost in the period before."""


class CostlySession(Struct, kw_only=True):
    id: str
    title: str
    source: str | None
    project: str | None
    cost: float
    tokens: int


class Tools(Struct, kw_only=True):
    """The data of `?part=tools`."""

    tools: list[ToolUse] | None
    """With `tools` in the query, or if they are kept: they are added up from single calls, which takes long."""
    tools_at: str | None
    """The time they were added up at."""


class Usage(Tools, kw_only=True):
    """The data of the page. Dates are local, `until` is the last day."""

    range: str | None
    since: str
    until: str
    project: str | None
    source: str | None
    by: By
    total: Amount
    before: Amount | None
    """The period of the same length before; None if all time is shown."""
    buckets: list[Bucket]
    projects: list[Amount]
    models: list[Amount]
    agents: list[Amount]
    sessions: list[CostlySession]
    days: dict[str, Amount]
    """The last year, days with calls only."""
    hours: list[list[int]]
    """Model calls by weekday, from Monday, and hour."""
    sources: list[str]
    """The agents that can be chosen."""

    # Charts, which the JSON twin does not have.

    @property
    def cost_chart(self) -> figures.Bars:
        return figures.bar_chart(
            [
                figures.Bar(
                    name=bucket.name,
                    parts={"cost": bucket.amount.cost or 0.0},
                    before=bucket.before,
                    title=f"{bucket.name}: {money(bucket.amount.cost or 0.0)}"
                    + (f", {money(bucket.before)} in the period before" if bucket.before else ""),
                )
                for bucket in self.buckets
            ]
        )

    @property
    def token_chart(self) -> figures.Bars:
        return figures.bar_chart(
            [
                figures.Bar(
                    name=bucket.name,
                    parts={
                        "cached": float(bucket.amount.cache_read_tokens),
                        "input": float(bucket.amount.input_tokens - bucket.amount.cache_read_tokens),
                        "output": float(bucket.amount.output_tokens),
                    },
                    title=f"{bucket.name}: {short_number(bucket.amount.tokens)} tokens",
                )
                for bucket in self.buckets
            ]
        )

    @property
    def day_chart(self) -> figures.Grid:
        last = date.fromisoformat(self.until)
        amounts = {date.fromisoformat(day): amount for day, amount in self.days.items()}
        return figures.calendar(
            {day: float(amount.tokens) for day, amount in amounts.items()},
            last - timedelta(days=_CALENDAR_DAYS - 1),
            last,
            {
                day: f"{day.isoformat()}: {money(amount.cost or 0.0)}, {short_number(amount.tokens)} tokens"
                for day, amount in amounts.items()
            },
        )

    @property
    def hour_chart(self) -> figures.Grid:
        titles = [
            [f"{figures.WEEKDAYS[row]} {hour:02}:00: {calls:,} model calls" for hour, calls in enumerate(hours)]
            for row, hours in enumerate(self.hours)
        ]
        return figures.week_hours([[float(calls) for calls in hours] for hours in self.hours], titles)


class Period(Struct, frozen=True):
    """The days that a request asks for, both included."""

    range: str | None
    first: date
    last: date

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    @property
    def before(self) -> date:
        """The first day of the period before."""
        return self.first - timedelta(days=self.days)


def routes(site: Site) -> list[Route]:
    kept = Kept[list[ToolUse]](_KEPT_SECONDS)

    def build(request: Request) -> Tools:
        query = dict(request.query_params)
        only_tools = query.get("part") == "tools"
        asks = "tools" in query or only_tools

        def tools_of(window: Window) -> Dated[list[ToolUse]] | None:
            return kept.get(window, lambda: read_tools(site.library, window)) if asks else kept.find(window)

        if only_tools:
            return _tools(site.library, tools_of(_window(query, _period(site.library, query, date.today()))))
        return read_usage(site.library, query, tools_of=tools_of)

    return site.page("/usage", "usage.html", build, nav=Nav("Usage", "/usage", "u"), parts=["tools"])


def read_usage(
    library: Library, query: dict[str, str], today: date | None = None, tools_of: ToolsOf = lambda window: None
) -> Usage:
    """The data of the page for a query: `range`, or `since` and `until`; `by`, `project`, `source`."""
    period = _period(library, query, today or date.today())
    window = _window(query, period)
    tools = _tools(library, tools_of(window))
    reach = min(period.before, period.last - timedelta(days=_CALENDAR_DAYS - 1))
    totals = library.archive.spans.usage(msgspec.structs.replace(window, since=_midnight(reach)), "quarter")
    days = add_by_day(totals)
    first, before = period.first.isoformat(), period.before.isoformat()
    own = [entry for entry in days if entry.day >= first]
    own_totals = [entry for entry in totals if entry.day >= first]
    earlier = [entry for entry in days if before <= entry.day < first]
    by = _unit(query.get("by"), period)
    usage = Usage(
        range=period.range,
        since=first,
        until=period.last.isoformat(),
        project=window.project,
        source=window.source,
        by=by,
        total=add_up(own),
        before=None if period.range == "all" else add_up(earlier),
        buckets=_buckets(own, [] if period.range == "all" else earlier, period, by),
        projects=_by_project(own),
        models=grouped(own, lambda entry: entry.model),
        agents=grouped(own, lambda entry: entry.source),
        tools=tools.tools,
        tools_at=tools.tools_at,
        sessions=_costly(library, own_totals),
        days={amount.name or "": amount for amount in grouped(days, lambda entry: entry.day)},
        hours=_hours(own_totals),
        sources=sorted({entry.source for entry in days if entry.source} | {window.source or ""} - {""}),
    )
    return library.egress(usage)


def _tools(library: Library, found: Dated[list[ToolUse]] | None) -> Tools:
    if found is None:
        return Tools(tools=None, tools_at=None)
    return library.egress(Tools(tools=found.value, tools_at=rfc3339(found.made_at)))


def _window(query: dict[str, str], period: Period) -> Window:
    return Window(
        since=_midnight(period.first),
        until=_midnight(period.last, 1),
        project=query.get("project") or None,
        source=query.get("source") or None,
    )


def _period(library: Library, query: dict[str, str], today: date) -> Period:
    since, until = (_day(query.get(name)) for name in ("since", "until"))
    if since or until:
        last = until or today
        return Period(None, min(since or last - timedelta(days=29), last), last)
    chosen = query.get("range") or _DEFAULT_RANGE
    if chosen not in RANGES:
        raise HTTPException(400, f"range is one of {', '.join(RANGES)}")
    days = RANGES[chosen]
    return Period(chosen, _first_day(library) if days is None else today - timedelta(days=days - 1), today)


def _first_day(library: Library) -> date:
    """The day of the first model call of all."""
    days = [entry.day for entry in library.archive.spans.usage(Window())]
    return date.fromisoformat(min(days)) if days else date.today()


def _day(text: str | None) -> date | None:
    if not text:
        return None
    try:
        if _DATE.fullmatch(text):
            return min(max(date.fromisoformat(text), _FIRST_DAY), _LAST_DAY)
    except ValueError:
        pass
    raise HTTPException(400, "A day is written like 2026-09-14.")


def _midnight(day: date, later: int = 0) -> int:
    """The begin of a day, or of a later one, in milliseconds."""
    return int(datetime.combine(day + timedelta(days=later), datetime.min.time()).timestamp() * 1000)


def _unit(given: str | None, period: Period) -> By:
    if given in ("day", "week", "month"):
        by: By = given  # type: ignore[assignment]
        if period.days // {"day": 1, "week": 7, "month": 30}[by] <= _MOST_BUCKETS:
            return by
    return "day" if period.days <= 92 else "week" if period.days <= 400 else "month"


def _bucket_of(day: date, by: By) -> str:
    if by == "week":
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"
    return day.isoformat()[: 7 if by == "month" else 10]


def _buckets(own: list[DayAmount], earlier: list[DayAmount], period: Period, by: By) -> list[Bucket]:
    """All buckets of the period, also those without calls."""
    found: dict[str, Bucket] = {}
    names: dict[str, str] = {}
    for number in range(period.days):
        day = period.first + timedelta(days=number)
        name = names[day.isoformat()] = _bucket_of(day, by)
        found.setdefault(name, Bucket(name=name, amount=Amount(name=name)))
    for entry in own:
        found[names[entry.day]].amount.add(entry)
    for entry in earlier:
        # The same place in the period before.
        then = date.fromisoformat(entry.day) + timedelta(days=period.days)
        bucket = found[_bucket_of(then, by)]
        if entry.cost is not None:
            bucket.before = round((bucket.before or 0.0) + entry.cost, 6)
    return list(found.values())


def _by_project(totals: Iterable[DayAmount]) -> list[Amount]:
    amounts = grouped(totals, lambda entry: entry.project)
    for amount in amounts:
        amount.name = home_path(amount.name) if amount.name else None
    return amounts


def _costly(library: Library, totals: Iterable[UsageTotal]) -> list[CostlySession]:
    found: dict[str, tuple[float, int]] = {}
    for entry in totals:
        if entry.session:
            cost, tokens = found.get(entry.session, (0.0, 0))
            found[entry.session] = cost + (entry.cost or 0.0), tokens + entry.input_tokens + entry.output_tokens
    costliest = sorted(((*amounts, key) for key, amounts in found.items() if amounts[0]), reverse=True)[:_SHOWN]
    request = SessionsRequest(keys=tuple(key for _, _, key in costliest), empty=True)
    rows = {row.key: row for row in library.archive.sessions(request)}
    sessions = []
    for cost, tokens, key in costliest:
        row = rows.get(key)
        sessions.append(
            CostlySession(
                id=session_id(key),
                title=" ".join((row.title if row else "").split()) or key,
                source=row.source if row else None,
                project=home_path(row.cwd) if row and row.cwd else None,
                cost=cost,
                tokens=tokens,
            )
        )
    return sessions


def read_tools(library: Library, window: Window) -> list[ToolUse]:
    return [ToolUse.of(stats) for stats in library.archive.spans.stats(window, "tool", latencies=False)[:_SHOWN]]


def _hours(totals: Iterable[UsageTotal]) -> list[list[int]]:
    hours = [[0] * 24 for _ in range(7)]
    for entry in totals:
        start = time.localtime(entry.start / 1000)
        hours[start.tm_wday][start.tm_hour] += entry.calls
    return hours

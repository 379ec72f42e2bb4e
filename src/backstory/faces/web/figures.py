"""The figures of the usage page: model calls, added up by day, project, model and agent, and charts as shapes.

Templates draw the shapes as SVG with presentation attributes and classes, no styles and no scripts. A bar chart is
stretched to the width of the page, so its shapes are in units of a box that is `WIDTH` by `HEIGHT`; its labels are text
beside it. Grids have cells of a fixed size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Literal

from markupsafe import Markup, escape
from msgspec import Struct

from ...archive.spans import UsageTotal
from ...toolsets.traces.reports import Amount

WIDTH, HEIGHT = 1000.0, 100.0
CELL, GAP = 11, 2
STEP = CELL + GAP
_LEVELS = 4
_MOST_NAMES = 7
_EDGE = 2.5
_GUTTER = 28
_HEAD = 18
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class DayAmount(Amount, kw_only=True):
    """The model calls of one day, project, model and agent."""

    day: str
    project: str | None
    model: str | None
    source: str | None


def add_by_day(totals: Iterable[UsageTotal]) -> list[DayAmount]:
    """Without sessions and quarter hours, which are many times as many."""
    amounts: dict[tuple[str, str | None, str | None, str | None], DayAmount] = {}
    for entry in totals:
        key = entry.day, entry.project, entry.model, entry.source
        if key not in amounts:
            amounts[key] = DayAmount(day=entry.day, project=entry.project, model=entry.model, source=entry.source)
        amounts[key].add(entry)
    return list(amounts.values())


def add_up(totals: Iterable[DayAmount]) -> Amount:
    amount = Amount()
    for entry in totals:
        amount.add(entry)
    return amount


def grouped(totals: Iterable[DayAmount], name_of: Callable[[DayAmount], str | None]) -> list[Amount]:
    """Amounts by name, the most expensive first."""
    amounts: dict[str | None, Amount] = {}
    for entry in totals:
        name = name_of(entry)
        amounts.setdefault(name, Amount(name=name)).add(entry)
    return sorted(amounts.values(), key=lambda amount: (amount.cost or 0.0, amount.tokens), reverse=True)


class Shape(Struct, frozen=True, kw_only=True):
    """A rectangle. `kind` is its class, `title` the text a pointer shows."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str = ""


def _drawn(shapes: Iterable[Shape], corner: int = 0) -> Markup:
    """The shapes as SVG. Not by the template: a page has a thousand of them, and only their titles need escaping."""
    rounded = f' rx="{corner}"' if corner else ""
    return Markup(
        "".join(
            f'<rect class="{shape.kind}" x="{shape.x}" y="{shape.y}" width="{shape.width}" height="{shape.height}"'
            + rounded
            + (f"><title>{escape(shape.title)}</title></rect>" if shape.title else "/>")
            for shape in shapes
        )
    )


class Label(Struct, frozen=True):
    x: float
    y: float
    text: str


class Name(Struct, frozen=True):
    """The name of a bar below its middle, `x` percent of the width; `anchor` is that of an SVG text."""

    x: float
    anchor: Literal["start", "middle", "end"]
    text: str


class Bars(Struct, frozen=True, kw_only=True):
    """A bar chart with one or more series on top of each other."""

    shapes: list[Shape]
    top: float
    """The value at the upper edge."""
    names: list[Name]
    """Of some of the bars."""

    @property
    def drawn(self) -> Markup:
        return _drawn(self.shapes)


class Grid(Struct, frozen=True, kw_only=True):
    """A heatmap of cells."""

    width: int
    height: int
    shapes: list[Shape]
    labels: list[Label]

    @property
    def drawn(self) -> Markup:
        return _drawn(self.shapes, corner=2)


class Bar(Struct, frozen=True, kw_only=True):
    """One bar: its name, the parts it is stacked of, and the value it is compared with."""

    name: str
    parts: Mapping[str, float]
    title: str
    before: float | None = None


def bar_chart(bars: Sequence[Bar]) -> Bars:
    largest = max((max(sum(bar.parts.values()), bar.before or 0.0) for bar in bars), default=0.0)
    top = nice_top(largest)
    step = WIDTH / max(len(bars), 1)
    gap = step * 0.2 if len(bars) < 120 else 0.0
    shapes = []
    for place, bar in enumerate(bars):
        x, base = place * step + gap / 2, HEIGHT
        for kind, value in bar.parts.items():
            height = value / top * HEIGHT
            if height > 0:
                base -= height
                shapes.append(_shape(x, base, step - gap, height, kind))
        if bar.before:
            shapes.append(_shape(x, HEIGHT - bar.before / top * HEIGHT, step - gap, 1.0, "before"))
        # The whole column shows the title: a low bar is hard to point at.
        shapes.append(_shape(place * step, 0, step, HEIGHT, "hover", bar.title))
    return Bars(shapes=shapes, top=top, names=_some([bar.name for bar in bars]))


def nice_top(largest: float) -> float:
    """The smallest of 1, 2, 2.5, 5, 10 times a power of ten that is not below the largest value; 1 for nothing."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next((step * power for step in (1, 2, 2.5, 5, 10) if largest <= step * power * (1 + 1e-9)), 10 * power)


def calendar(values: Mapping[date, float], first: date, last: date, title: Mapping[date, str]) -> Grid:
    """Days as cells, a column for each week from Monday to Sunday."""
    monday = first - timedelta(days=first.weekday())
    levels = _thresholds(values.values())
    shapes, labels = [], [Label(0, _HEAD + row * STEP + CELL - 2, WEEKDAYS[row]) for row in (0, 2, 4)]
    weeks = (last - monday).days // 7 + 1
    month = None
    for week in range(weeks):
        start = monday + timedelta(days=7 * week)
        x = _GUTTER + week * STEP
        if start.month != month and week < weeks - 2:
            labels.append(Label(x, 10, start.strftime("%b")))
            month = start.month
        for row in range(7):
            day = start + timedelta(days=row)
            if first <= day <= last:
                text = title.get(day, f"{day.isoformat()}: nothing")
                shapes.append(_cell(x, _HEAD + row * STEP, _level(values.get(day, 0.0), levels), text))
    return Grid(width=_GUTTER + weeks * STEP, height=_HEAD + 7 * STEP, shapes=shapes, labels=labels)


def week_hours(values: Sequence[Sequence[float]], titles: Sequence[Sequence[str]]) -> Grid:
    """The hours of a week as cells: a row for each weekday, a column for each hour."""
    levels = _thresholds(value for row in values for value in row)
    labels = [Label(0, _HEAD + row * STEP + CELL - 2, name) for row, name in enumerate(WEEKDAYS)]
    labels += [Label(_GUTTER + hour * STEP, 10, f"{hour:02}") for hour in range(0, 24, 3)]
    shapes = [
        _cell(_GUTTER + hour * STEP, _HEAD + row * STEP, _level(value, levels), titles[row][hour])
        for row, hours in enumerate(values)
        for hour, value in enumerate(hours)
    ]
    return Grid(width=_GUTTER + 24 * STEP, height=_HEAD + 7 * STEP, shapes=shapes, labels=labels)


def _shape(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> Shape:
    return Shape(x=round(x, 2), y=round(y, 2), width=round(width, 2), height=round(height, 2), kind=kind, title=title)


def _cell(x: float, y: float, level: int, title: str) -> Shape:
    return Shape(x=x, y=y, width=CELL, height=CELL, kind=f"level-{level}", title=title)


def _thresholds(values: Iterable[float]) -> list[float]:
    """The values above which a cell has the next level: the quartiles of what is above zero."""
    above = sorted(value for value in values if value > 0)
    return [above[len(above) * part // _LEVELS] for part in range(1, _LEVELS)] if above else []


def _level(value: float, thresholds: Sequence[float]) -> int:
    return 0 if value <= 0 else 1 + sum(value >= threshold for threshold in thresholds)


def _some(names: Sequence[str]) -> list[Name]:
    """Every nth name from the first on, at most seven. Those at the edges stay within the chart."""
    step = max(math.ceil(len(names) / _MOST_NAMES), 1)
    some = []
    for place in range(0, len(names), step):
        x = round(100 * (place + 0.5) / len(names), 2)
        some.append(Name(x, "start" if x < _EDGE else "end" if x > 100 - _EDGE else "middle", names[place]))
    return some

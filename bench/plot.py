"""Lines over two logarithmic axes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 20, 50
_COLOURS = ("#0b6e99", "#0f7b6c", "#d9730d", "#6940a5", "#ad1a72", "#787774", "#9b9a97")
_LABEL_PIXELS = 15


class Line(NamedTuple):
    name: str
    points: Mapping[int, float]
    dashed: bool = False


class _Axis(NamedTuple):
    """From a power of ten to another, on so many pixels."""

    low: int
    high: int
    start: float
    end: float

    def place(self, value: float) -> float:
        return self.start + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> Iterator[tuple[float, str]]:
        for power in range(self.low, self.high + 1):
            yield self.place(10.0**power), f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def _axis(values: Sequence[float], start: float, end: float) -> _Axis:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return _Axis(low, max(high, low + 1), start, end)


def draw(lines: Sequence[Line], *, x: str, y: str) -> str:
    """The lines, each with its name at its end. All values are above 0."""
    across = _axis([size for line in lines for size in line.points], _LEFT, _WIDTH - _RIGHT)
    up = _axis([value for line in lines for value in line.points.values()], _HEIGHT - _BOTTOM, _TOP)
    frame = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12" role="img"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {frame}><title>{escape(y)} over {escape(x)}</title>',
        f"<desc>{escape('; '.join(map(_described, lines)))}</desc>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_grid(across, up),
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(x)}</text>',
        f'<text transform="translate(16 {_HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(y)}</text>',
    ]
    labels = _spread({line.name: up.place(list(line.points.values())[-1]) for line in lines})
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
        points = " ".join(f"{across.place(size):.1f},{up.place(value):.1f}" for size, value in line.points.items())
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        for point in points.split():
            left, top = point.split(",")
            parts.append(f'<circle cx="{left}" cy="{top}" r="3" fill="{colour}"/>')
        label = f'x="{_WIDTH - _RIGHT + 12}" y="{labels[line.name] + 4:.1f}" fill="{colour}"'
        parts.append(f"<text {label}>{escape(line.name)}</text>")
    return "\n".join((*parts, "</svg>\n"))


def _described(line: Line) -> str:
    return f"{line.name}: " + ", ".join(f"{value:.3g} at {size:,}" for size, value in line.points.items())


def _grid(across: _Axis, up: _Axis) -> Iterator[str]:
    for place, label in across.ticks():
        yield f'<path d="M{place:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#e3e2e0"/>'
        yield f'<text x="{place:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{label}</text>'
    for place, label in up.ticks():
        yield f'<path d="M{_LEFT} {place:.1f}H{_WIDTH - _RIGHT}" stroke="#e3e2e0"/>'
        yield f'<text x="{_LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{label}</text>'


def _spread(places: Mapping[str, float]) -> dict[str, float]:
    """The heights of the labels, moved down where they would lie upon one another."""
    spread: dict[str, float] = {}
    lowest = 0.0
    for name, place in sorted(places.items(), key=lambda item: item[1]):
        spread[name] = lowest = max(place, lowest + _LABEL_PIXELS)
    return spread

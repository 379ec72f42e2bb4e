"""Counters of a server in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

_REQUESTS = "backstory_hub_requests_total"
_SECONDS = "backstory_hub_request_seconds"
_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Used in one thread. Names that end with `_total` are counters; requests have a histogram of their seconds."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._buckets: Counter[tuple[str, float]] = Counter()

    def add(self, name: str, count: int) -> None:
        self._totals[name] += count

    def observe(self, method: str, status: int, seconds: float) -> None:
        """One request and the time that it took."""
        self._requests[method, status] += 1
        self._seconds[method] += seconds
        for bound in _BUCKETS:
            if seconds <= bound:
                self._buckets[method, bound] += 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """All counters, and these values as they are now."""
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        for name, total in sorted(self._totals.items()):
            lines += [f"# TYPE {name} counter", f"{name} {total}"]
        lines.append(f"# TYPE {_REQUESTS} counter")
        for (method, status), count in sorted(self._requests.items()):
            lines.append(f'{_REQUESTS}{{method="{method}",status="{status}"}} {count}')
        lines.append(f"# TYPE {_SECONDS} histogram")
        for method in sorted(self._seconds):
            count = sum(number for (name, _), number in self._requests.items() if name == method)
            for bound in _BUCKETS:
                lines.append(f'{_SECONDS}_bucket{{method="{method}",le="{bound:g}"}} {self._buckets[method, bound]}')
            lines.append(f'{_SECONDS}_bucket{{method="{method}",le="+Inf"}} {count}')
            lines.append(f'{_SECONDS}_sum{{method="{method}"}} {self._seconds[method]:.6f}')
            lines.append(f'{_SECONDS}_count{{method="{method}"}} {count}')
        return "\n".join(lines) + "\n"
